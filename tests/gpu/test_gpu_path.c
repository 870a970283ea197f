/* The layer on a device: properties of layers.md that hold bit for bit, refusals, isolated mode, state. On emu; on cuda too where there is
 * a device. Tiny shapes, made here. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ls_random.h"
#include "core/ls_ring.h"
#include "layers/ls_path.h"

static const char *const state_names[] = {"k_ring", "v_ring", "capture", "cursor", "capture_base", "capture_rows"};
enum { STATE_TENSORS = 6 };

/* ---- a layer, its weights, its steps ---- */

typedef struct {
  ls_config config;
  ls_trace *weights;
} layer;

static void add(ls_trace *trace, const char *name, ls_dtype type, int ndim, int64_t a, int64_t b, int64_t c, double scale, double offset) {
  const int64_t dim[3] = {a, b, c};
  ls_error err = {0};
  ls_tensor t;
  cr_assert_eq(ls_trace_add(trace, name, type, ndim, dim, &t, &err), LS_OK, "%s", err.text);
  ls_generate(&t, name, scale, offset);
}

static void layer_make(layer *l, ls_dtype act, int64_t hidden, int64_t aux, int64_t layers, int64_t heads, int64_t head_dim,
                       int64_t capacity, int64_t max_rows) {
  ls_error err = {0};
  memset(l, 0, sizeof *l);
  l->config.layer = &ls_layer_dflash_context_kv;
  l->config.act = act;
  ls_dflash_config *d = &l->config.dflash;
  d->hidden = hidden, d->aux_count = aux, d->layers = layers, d->num_kv_heads = heads, d->head_dim = head_dim;
  d->ring_capacity = capacity, d->window = capacity * 2 / 3 ? capacity * 2 / 3 : 1, d->max_rows = max_rows;
  d->rms_eps = 1e-6, d->rope_theta = 1e7;
  cr_assert_eq(l->config.layer->config_check(&l->config, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_trace_new(&l->weights, "weights", &err), LS_OK, "%s", err.text);
  add(l->weights, "fc", act, 2, hidden, aux * hidden, 1, 0.1, 0.0);
  add(l->weights, "hidden_norm", LS_F32, 1, hidden, 1, 1, 0.25, 1.0);
  for (int64_t i = 0; i < layers; i++) {
    char name[LS_NAME_MAX];
    snprintf(name, sizeof name, "layers/%ld/k_proj", (long)i);
    add(l->weights, name, act, 2, heads * head_dim, hidden, 1, 0.2, 0.0);
    snprintf(name, sizeof name, "layers/%ld/v_proj", (long)i);
    add(l->weights, name, act, 2, heads * head_dim, hidden, 1, 0.2, 0.0);
    snprintf(name, sizeof name, "layers/%ld/k_norm", (long)i);
    add(l->weights, name, LS_BF16, 1, head_dim, 1, 1, 0.25, 1.0);
  }
}

static void layer_free(layer *l) { ls_trace_free(l->weights); }

/* A capture or draft_write with data of its own, named by seed. */
static ls_step with_data(const layer *l, ls_op op, int64_t base, int64_t rows, unsigned seed) {
  ls_step step = {.op = op, .base = base, .rows = rows, .cursor = -1};
  const ls_dflash_config *d = &l->config.dflash;
  ls_error err = {0};
  char name[LS_NAME_MAX];
  cr_assert_eq(ls_trace_new(&step.in, "in", &err), LS_OK, "%s", err.text);
  int64_t n = rows > 0 ? rows : 0;
  if (op == LS_OP_CAPTURE) {
    add(step.in, "capture", l->config.act, 2, n, d->fc_in, 1, 1.0, 0.0);
  } else {
    add(step.in, "k", l->config.act, 3, d->layers, n, d->kv_dim, 1.0, 0.0);
    add(step.in, "v", l->config.act, 3, d->layers, n, d->kv_dim, 1.0, 0.0);
  }
  for (int i = 0; i < step.in->n; i++) {
    snprintf(name, sizeof name, "%s of %u", step.in->rec[i].name, seed);
    ls_generate(&step.in->rec[i].t, name, 1.0, 0.125);
  }
  return step;
}
static ls_step context_write(int64_t rows) { return (ls_step){.op = LS_OP_CONTEXT_WRITE, .rows = rows, .cursor = -1}; }
static ls_step rewind_to(int64_t position) { return (ls_step){.op = LS_OP_REWIND, .position = position, .cursor = -1}; }

/* Part of a capture step: its rows from .. from + rows - 1. Views the whole one's data. */
static ls_step part_of(const ls_step *whole, int64_t from, int64_t rows) {
  ls_step step = {.op = LS_OP_CAPTURE, .base = whole->base + from, .rows = rows, .cursor = -1};
  ls_error err = {0};
  ls_tensor t = ls_tensor_slice(ls_trace_tensor(whole->in, "capture"), 0, from, rows);
  cr_assert_eq(ls_trace_new(&step.in, "in", &err), LS_OK);
  cr_assert_eq(ls_trace_add_view(step.in, "capture", &t, &err), LS_OK);
  return step;
}

/* ---- running ---- */

static void *open_path(const ls_path *path, const layer *l, uint64_t schedule) {
  ls_path_options options = {.precision = LS_PRECISION_ACT, .emu_schedule = schedule, .device = 0};
  ls_error err = {0};
  void *ctx = NULL;
  cr_assert_eq(path->open(&ctx, &l->config, l->weights, &options, &err), LS_OK, "%s", err.text);
  return ctx;
}

static void run(const ls_path *path, void *ctx, ls_step step, ls_trace *out) {
  ls_error err = {0};
  cr_assert_eq(path->step(ctx, &step, NULL, out, false, &err), LS_OK, "%s of %ld rows: %s", ls_op_name(step.op), (long)step.rows, err.text);
  ls_trace_free(step.in);
}

static ls_trace *run_traced(const ls_path *path, void *ctx, ls_step step) {
  ls_error err = {0};
  ls_trace *out = NULL;
  cr_assert_eq(ls_trace_new(&out, path->name, &err), LS_OK);
  run(path, ctx, step, out);
  return out;
}

static void refused(const ls_path *path, void *ctx, ls_step step) {
  ls_error err = {0};
  cr_assert_eq(path->step(ctx, &step, NULL, NULL, false, &err), LS_REFUSED, "%s of %ld rows at %ld", ls_op_name(step.op), (long)step.rows,
               (long)step.base);
  cr_assert(err.text[0] != '\0');
  ls_trace_free(step.in);
}

static ls_trace *saved(const ls_path *path, void *ctx) {
  ls_error err = {0};
  ls_trace *state = NULL;
  cr_assert_eq(ls_trace_new(&state, path->name, &err), LS_OK);
  cr_assert_eq(path->save(ctx, state, &err), LS_OK, "%s", err.text);
  return state;
}

/* All state zero again. */
static void reset(const ls_path *path, void *ctx) {
  ls_error err = {0};
  ls_trace *nothing = NULL;
  cr_assert_eq(ls_trace_new(&nothing, "nothing", &err), LS_OK);
  cr_assert_eq(path->load(ctx, nothing, &err), LS_OK, "%s", err.text);
  ls_trace_free(nothing);
}

static void expect_same_tensor(const ls_trace *a, const ls_trace *b, const char *name, const char *what) {
  const ls_tensor *x = ls_trace_tensor(a, name), *y = ls_trace_tensor(b, name);
  cr_assert(x && y, "%s: %s is missing", what, name);
  cr_assert(ls_tensor_same_bytes(x, y), "%s: %s differs", what, name);
}

static void expect_same_state(const ls_trace *a, const ls_trace *b, const char *what) {
  for (int i = 0; i < STATE_TENSORS; i++) expect_same_tensor(a, b, state_names[i], what);
}

static void expect_same_rings(const ls_trace *a, const ls_trace *b, const char *what) {
  expect_same_tensor(a, b, "k_ring", what);
  expect_same_tensor(a, b, "v_ring", what);
}

/* Runs fn for every device path that can run here. */
static void on_each_path(void (*fn)(const ls_path *path)) {
  cr_assert(ls_path_find("emu"), "every build has the emu path");
  cr_assert_eq(ls_path_available("emu", NULL), LS_OK);
  const char *const names[] = {"emu", "cuda"};
  for (int i = 0; i < 2; i++) {
    const ls_path *path = ls_path_find(names[i]);
    if (path && ls_path_available(names[i], NULL) == LS_OK) fn(path);
  }
}

/* A speculative round: draft, capture, a rewind into the block, the accepted rows written. */
static void round_of(const ls_path *path, void *ctx, const layer *l, int64_t base, int64_t rows, int64_t accepted, unsigned seed,
                     ls_trace *out) {
  run(path, ctx, with_data(l, LS_OP_DRAFT_WRITE, base, rows, seed), NULL);
  run(path, ctx, with_data(l, LS_OP_CAPTURE, base, rows, seed), NULL);
  run(path, ctx, rewind_to(base), NULL);
  run(path, ctx, context_write(accepted), out);
}

/* ---- traced, untraced, replayed ---- */

static void traced_equals_untraced(const ls_path *path) {
  layer l;
  layer_make(&l, LS_BF16, 96, 3, 2, 2, 32, 24, 40);
  void *traced = open_path(path, &l, 0), *untraced = open_path(path, &l, 0);
  int64_t base = 0;
  for (unsigned i = 0; i < 14; i++) { /* 5 rows again and again at other positions: one graph; sometimes 16, 1 and 20 rows */
    int64_t rows = i % 7 == 3 ? 16 : i % 7 == 5 ? 1 : i % 7 == 6 ? 20 : 5;
    ls_error err = {0};
    ls_trace *out = NULL;
    cr_assert_eq(ls_trace_new(&out, path->name, &err), LS_OK);
    round_of(path, traced, &l, base, rows, rows, i, out);
    round_of(path, untraced, &l, base, rows, rows, i, NULL);
    ls_trace *a = saved(path, traced), *b = saved(path, untraced);
    expect_same_state(a, b, "traced and untraced");
    ls_trace_free(a), ls_trace_free(b), ls_trace_free(out);
    base += i == 8 ? 1000003 : rows;
  }
  path->close(traced), path->close(untraced);
  layer_free(&l);
}
Test(gpu_path, a_replayed_graph_gives_the_bytes_of_a_traced_step) { on_each_path(traced_equals_untraced); }

static void trace_is_complete(const ls_path *path) {
  layer l;
  layer_make(&l, LS_F16, 64, 2, 3, 2, 16, 10, 16);
  void *ctx = open_path(path, &l, 0);
  run(path, ctx, with_data(&l, LS_OP_CAPTURE, 7, 6, 1), NULL);
  ls_step step = context_write(6);
  ls_error err = {0};
  ls_trace *out = NULL;
  cr_assert_eq(ls_trace_new(&out, path->name, &err), LS_OK);
  cr_assert_eq(path->step(ctx, &step, NULL, out, true, &err), LS_OK, "%s", err.text);
  const char *const names[] = {"ctx_combined", "ctx_normed", "k_proj", "v_proj", "k_rope", "k_ring", "v_ring"};
  cr_assert_eq(out->n, 7);
  for (int i = 0; i < 7; i++) {
    cr_assert(ls_trace_tensor(out, names[i]), "%s", names[i]);
    cr_assert_eq(ls_trace_tensor(out, names[i])->dtype, LS_F16);
    cr_assert_eq(path->stage_kind(ctx, &step, names[i]), LS_STAGE_OWN, "%s", names[i]);
  }
  cr_assert_eq(path->stage_kind(ctx, &step, "k_norm"), LS_STAGE_FUSED);
  ls_step capture = {.op = LS_OP_CAPTURE, .rows = 3};
  cr_assert_eq(path->stage_kind(ctx, &capture, "k_proj"), LS_STAGE_ABSENT);
  cr_assert_eq(path->stage_kind(ctx, &capture, "k_norm"), LS_STAGE_ABSENT);

  /* the rows recorded are the rows in the rings */
  const ls_tensor *ring = ls_trace_tensor(out, "k_ring"), *rope = ls_trace_tensor(out, "k_rope");
  const ls_tensor *v_ring = ls_trace_tensor(out, "v_ring"), *v = ls_trace_tensor(out, "v_proj");
  for (int64_t layer_ = 0; layer_ < 3; layer_++) {
    for (int64_t slot = 0; slot < 10; slot++) {
      int64_t row;
      bool written = ls_ring_row_of_slot(&row, slot, 7, 6, 10);
      for (int64_t c = 0; c < 32; c++) {
        int64_t in_ring = (layer_ * 10 + slot) * 32 + c, in_rows = (layer_ * 6 + row) * 32 + c;
        cr_assert_eq(ls_tensor_get(ring, in_ring), written ? ls_tensor_get(rope, in_rows) : 0.0);
        cr_assert_eq(ls_tensor_get(v_ring, in_ring), written ? ls_tensor_get(v, in_rows) : 0.0);
      }
    }
  }
  ls_trace_free(out);
  path->close(ctx);
  layer_free(&l);
}
Test(gpu_path, a_trace_holds_every_stage_and_the_rings_hold_its_rows) { on_each_path(trace_is_complete); }

/* ---- invariances ---- */

/* Two captured states of which the second takes back what the first adds: ctx_combined is the rounding error of its sum and nothing else,
 * so that another order of addition shows in every bit of it. */
static void cancel_halves(const layer *l, const ls_step *capture) {
  int64_t hidden = l->config.dflash.hidden;
  const ls_tensor *fc = ls_trace_tensor(l->weights, "fc"), *x = ls_trace_tensor(capture->in, "capture");
  for (int64_t n = 0; n < fc->dim[0]; n++) {
    for (int64_t i = 0; i < hidden; i++) ls_tensor_set(fc, n * 2 * hidden + hidden + i, ls_tensor_get(fc, n * 2 * hidden + i));
  }
  for (int64_t r = 0; r < capture->rows; r++) {
    for (int64_t i = 0; i < hidden; i++) ls_tensor_set(x, r * 2 * hidden + hidden + i, -ls_tensor_get(x, r * 2 * hidden + i));
  }
}

static void splits_agree(const ls_path *path) {
  layer l;
  layer_make(&l, LS_BF16, 328, 2, 2, 2, 14, 19, 16); /* half a head of 7, kv_dim 28, hidden 41 x 8 */
  const int64_t base = 9, rows = 16;                 /* crosses the end of the ring */
  ls_step whole = with_data(&l, LS_OP_CAPTURE, base, rows, 3);
  cancel_halves(&l, &whole);
  void *ctx = open_path(path, &l, 0);
  run(path, ctx, part_of(&whole, 0, rows), NULL);
  run(path, ctx, context_write(rows), NULL);
  ls_trace *at_once = saved(path, ctx);
  path->close(ctx);
  ls_random random = {.seed = 5, .i = 0};
  for (int trial = 0; trial < 24; trial++) {
    ctx = open_path(path, &l, 0);
    for (int64_t done = 0; done < rows;) {
      int64_t some = trial == 0 ? 1 : ls_random_range(&random, 1, rows - done);
      run(path, ctx, part_of(&whole, done, some), NULL);
      run(path, ctx, context_write(some), NULL);
      done += some;
    }
    ls_trace *in_parts = saved(path, ctx);
    expect_same_rings(at_once, in_parts, "a split");
    ls_trace_free(in_parts);
    path->close(ctx);
  }
  ls_trace_free(at_once), ls_trace_free(whole.in);
  layer_free(&l);
}
Test(gpu_path, any_split_of_the_rows_gives_the_same_bytes) { on_each_path(splits_agree); }

static void is_idempotent(const ls_path *path) {
  layer l;
  layer_make(&l, LS_F16, 64, 2, 2, 3, 16, 16, 16);
  void *ctx = open_path(path, &l, 0);
  for (int64_t rows = 1; rows <= 16; rows++) { /* 16: the whole ring */
    run(path, ctx, with_data(&l, LS_OP_CAPTURE, 100, rows, 1), NULL);
    run(path, ctx, context_write(rows), NULL);
    ls_trace *once = saved(path, ctx);
    run(path, ctx, with_data(&l, LS_OP_CAPTURE, 100, rows, 1), NULL);
    run(path, ctx, context_write(rows), NULL);
    ls_trace *twice = saved(path, ctx);
    expect_same_state(once, twice, "again");
    ls_trace_free(once), ls_trace_free(twice);
    reset(path, ctx);
  }
  path->close(ctx);
  layer_free(&l);
}
Test(gpu_path, writing_again_changes_nothing) { on_each_path(is_idempotent); }

static void writes_only_its_slots(const ls_path *path) {
  layer l;
  layer_make(&l, LS_BF16, 64, 2, 2, 2, 16, 24, 24);
  const ls_dflash_config *d = &l.config.dflash;
  void *ctx = open_path(path, &l, 0);
  run(path, ctx, with_data(&l, LS_OP_DRAFT_WRITE, 0, 24, 9), NULL); /* no slot is zero */
  ls_trace *before = saved(path, ctx);
  for (int64_t base = 24; base < 48; base++) {
    for (int context = 0; context < 2; context++) {
      int64_t rows = base % 3 == 0 ? 20 : base % 11 + 1;
      if (context) run(path, ctx, with_data(&l, LS_OP_CAPTURE, base, rows, (unsigned)base), NULL);
      if (context)
        run(path, ctx, context_write(rows), NULL);
      else
        run(path, ctx, with_data(&l, LS_OP_DRAFT_WRITE, base, rows, (unsigned)base), NULL);
      ls_trace *after = saved(path, ctx);
      for (int which = 0; which < 2; which++) {
        const ls_tensor *a = ls_trace_tensor(before, state_names[which]), *b = ls_trace_tensor(after, state_names[which]);
        for (int64_t layer_ = 0; layer_ < d->layers; layer_++) {
          for (int64_t slot = 0; slot < d->ring_capacity; slot++) {
            int64_t row;
            bool written = ls_ring_row_of_slot(&row, slot, base, rows, d->ring_capacity);
            ls_tensor of_a = ls_tensor_at(a, layer_), of_b = ls_tensor_at(b, layer_), x = ls_tensor_at(&of_a, slot),
                      y = ls_tensor_at(&of_b, slot);
            cr_assert_neq(ls_tensor_same_bytes(&x, &y), written, "%s layer %ld slot %ld, base %ld rows %ld", state_names[which],
                          (long)layer_, (long)slot, (long)base, (long)rows);
          }
        }
      }
      ls_trace_free(before);
      before = after;
    }
    ls_error err = {0}; /* cursor 0 again, the rows stay */
    for (int i = 3; i < STATE_TENSORS; i++) *(int64_t *)ls_trace_tensor(before, state_names[i])->data = 0;
    cr_assert_eq(path->load(ctx, before, &err), LS_OK, "%s", err.text);
  }
  ls_trace_free(before);
  path->close(ctx);
  layer_free(&l);
}
Test(gpu_path, only_the_slots_of_the_rows_change) { on_each_path(writes_only_its_slots); }

/* hidden 96: copies into shared memory are asynchronous; 90: they are plain stores, which land at once. */
static void any_schedule_agrees(int64_t hidden) {
  const ls_path *path = ls_path_find("emu");
  layer l;
  layer_make(&l, LS_BF16, hidden, 3, 2, 2, 32, 24, 24);
  ls_trace *first = NULL;
  for (uint64_t seed = 0; seed <= 20; seed++) {
    void *ctx = open_path(path, &l, seed);
    round_of(path, ctx, &l, 20, 8, 7, 1, NULL);
    round_of(path, ctx, &l, 27, 20, 19, 2, NULL);
    ls_trace *state = saved(path, ctx);
    path->close(ctx);
    if (!first) {
      first = state;
      continue;
    }
    expect_same_state(first, state, "another schedule");
    ls_trace_free(state);
  }
  ls_trace_free(first);
  layer_free(&l);
}
Test(gpu_path, any_order_of_fibers_gives_the_same_bytes) { any_schedule_agrees(96); }
Test(gpu_path, any_order_of_fibers_gives_the_same_bytes_without_vector_loads) { any_schedule_agrees(90); }

/* ---- refusals ---- */

static void refusals_change_nothing(const ls_path *path) {
  layer l;
  layer_make(&l, LS_BF16, 64, 2, 2, 2, 16, 12, 16);
  void *ctx = open_path(path, &l, 0);
  round_of(path, ctx, &l, 10, 8, 8, 1, NULL); /* cursor 18, nothing captured */
  ls_trace *before = saved(path, ctx);
  refused(path, ctx, context_write(1));
  refused(path, ctx, with_data(&l, LS_OP_CAPTURE, 5, 0, 2));
  refused(path, ctx, with_data(&l, LS_OP_CAPTURE, -1, 3, 2));
  refused(path, ctx, with_data(&l, LS_OP_CAPTURE, 5, 17, 2));
  refused(path, ctx, with_data(&l, LS_OP_CAPTURE, ((int64_t)1 << 31) - 2, 3, 2));
  refused(path, ctx, with_data(&l, LS_OP_DRAFT_WRITE, 5, 13, 2));
  refused(path, ctx, with_data(&l, LS_OP_DRAFT_WRITE, 5, 0, 2));
  refused(path, ctx, with_data(&l, LS_OP_DRAFT_WRITE, -3, 2, 2));
  refused(path, ctx, rewind_to(-1));
  refused(path, ctx, rewind_to(18 - 12 + 7)); /* 5 back, only capacity - window = 4 are kept */
  ls_trace *after = saved(path, ctx);
  expect_same_state(before, after, "after refusals");
  ls_trace_free(after), ls_trace_free(before);

  run(path, ctx, with_data(&l, LS_OP_CAPTURE, 12, 16, 3), NULL);
  before = saved(path, ctx);
  refused(path, ctx, context_write(0));
  refused(path, ctx, context_write(17)); /* more than captured */
  refused(path, ctx, context_write(13)); /* more than the ring */
  refused(path, ctx, context_write(5));  /* 12 + 5 < 18 */
  after = saved(path, ctx);
  expect_same_state(before, after, "after refusals");
  ls_trace_free(after), ls_trace_free(before);

  run(path, ctx, context_write(6), NULL); /* and the capture still serves */
  after = saved(path, ctx);
  cr_assert_eq(ls_tensor_get(ls_trace_tensor(after, "cursor"), 0), 18.0);
  cr_assert_eq(ls_tensor_get(ls_trace_tensor(after, "capture_rows"), 0), 0.0);
  ls_trace_free(after);
  path->close(ctx);
  layer_free(&l);
}
Test(gpu_path, a_refusal_leaves_every_byte_of_state) { on_each_path(refusals_change_nothing); }

/* ---- isolated mode ---- */

static void follows_given(const ls_path *path) {
  layer l;
  layer_make(&l, LS_BF16, 64, 2, 2, 2, 16, 12, 16);
  void *ctx = open_path(path, &l, 0), *other = open_path(path, &l, 0);
  for (int64_t rows = 5; rows <= 12; rows += 7) { /* crosses the end; then the whole ring */
    reset(path, other);
    run(path, other, with_data(&l, LS_OP_CAPTURE, 9, rows, 77), NULL);
    ls_trace *truth = run_traced(path, other, context_write(rows));

    const char *const given_name[] = {"ctx_combined", "ctx_normed", "k_proj"};
    const char *const follows[3][4] = {{"ctx_normed", NULL}, {"k_proj", "v_proj", NULL}, {"k_rope", NULL}};
    for (int i = 0; i < 3; i++) { /* a capture of other data, one given stage of the truth, as float64 */
      ls_error err = {0};
      ls_trace *given = NULL, *out = NULL;
      ls_tensor t;
      const ls_tensor *from = ls_trace_tensor(truth, given_name[i]);
      cr_assert_eq(ls_trace_new(&given, "given", &err), LS_OK);
      cr_assert_eq(ls_trace_new(&out, path->name, &err), LS_OK);
      cr_assert_eq(ls_trace_add(given, given_name[i], LS_F64, from->ndim, from->dim, &t, &err), LS_OK);
      cr_assert_eq(ls_tensor_copy(&t, from, &err), LS_OK);
      reset(path, ctx);
      run(path, ctx, with_data(&l, LS_OP_CAPTURE, 9, rows, 5), NULL);
      ls_step step = context_write(rows);
      cr_assert_eq(path->step(ctx, &step, given, out, false, &err), LS_OK, "%s", err.text);
      for (int j = 0; follows[i][j]; j++) expect_same_tensor(truth, out, follows[i][j], given_name[i]);
      cr_assert(!ls_tensor_same_bytes(from, ls_trace_tensor(out, given_name[i])), "%s itself is recorded as computed, not as given",
                given_name[i]);
      ls_trace_free(given), ls_trace_free(out);
    }
    ls_trace_free(truth);
  }
  path->close(ctx), path->close(other);
  layer_free(&l);
}
Test(gpu_path, a_stage_reads_what_is_given) { on_each_path(follows_given); }

static void follows_a_given_capture(const ls_path *path) {
  layer l;
  layer_make(&l, LS_BF16, 64, 2, 2, 2, 16, 12, 16);
  void *ctx = open_path(path, &l, 0), *other = open_path(path, &l, 0);
  const int64_t rows = 7;
  ls_error err = {0};
  ls_step of_given = with_data(&l, LS_OP_CAPTURE, 9, rows, 77), step = context_write(rows);
  const ls_tensor *from = ls_trace_tensor(of_given.in, "capture");
  ls_trace *given = NULL, *out = NULL;
  ls_tensor t;
  cr_assert_eq(ls_trace_new(&given, "given", &err), LS_OK);
  cr_assert_eq(ls_trace_new(&out, path->name, &err), LS_OK);
  cr_assert_eq(ls_trace_add(given, "capture", LS_F64, from->ndim, from->dim, &t, &err), LS_OK);
  cr_assert_eq(ls_tensor_copy(&t, from, &err), LS_OK);
  run(path, other, of_given, NULL);
  ls_trace *truth = run_traced(path, other, context_write(rows));

  run(path, ctx, with_data(&l, LS_OP_CAPTURE, 9, rows, 5), NULL);
  ls_trace *before = saved(path, ctx);
  cr_assert_eq(path->step(ctx, &step, given, out, false, &err), LS_OK, "%s", err.text);
  static const char *const stages[] = {"ctx_combined", "ctx_normed", "k_proj", "v_proj", "k_rope"};
  for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) expect_same_tensor(truth, out, stages[i], "a given capture");
  ls_trace *after = saved(path, ctx);
  expect_same_tensor(before, after, "capture", "the buffer is state: what is given does not go into it");

  /* and the next write, given nothing, reads the buffer again: traced, then as production runs it */
  run(path, ctx, with_data(&l, LS_OP_CAPTURE, 9, rows, 5), NULL);
  ls_trace *own = run_traced(path, ctx, context_write(rows)), *traced = saved(path, ctx);
  cr_assert(!ls_tensor_same_bytes(ls_trace_tensor(own, "ctx_combined"), ls_trace_tensor(truth, "ctx_combined")));
  run(path, ctx, with_data(&l, LS_OP_CAPTURE, 9, rows, 5), NULL);
  run(path, ctx, context_write(rows), NULL);
  ls_trace *untraced = saved(path, ctx);
  expect_same_state(traced, untraced, "untraced after a given capture");

  ls_trace *const all[] = {given, out, truth, before, after, own, traced, untraced};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) ls_trace_free(all[i]);
  path->close(ctx), path->close(other);
  layer_free(&l);
}
Test(gpu_path, a_given_capture_is_read_and_the_buffer_stays) { on_each_path(follows_a_given_capture); }

/* ---- state ---- */

static void state_round_trips(const ls_path *path) {
  layer l;
  layer_make(&l, LS_F16, 64, 2, 2, 2, 16, 12, 16);
  ls_error err = {0};
  void *a = open_path(path, &l, 0), *b = open_path(path, &l, 0);
  ls_trace *start = saved(path, a);
  round_of(path, a, &l, 10, 8, 5, 1, NULL);
  run(path, a, with_data(&l, LS_OP_CAPTURE, 15, 9, 2), NULL);
  ls_trace *middle = saved(path, a);
  round_of(path, b, &l, 3, 6, 6, 8, NULL); /* something else to be replaced */
  cr_assert_eq(path->load(b, middle, &err), LS_OK, "%s", err.text);
  ls_trace *loaded = saved(path, b);
  expect_same_state(middle, loaded, "load(save())");
  run(path, a, context_write(9), NULL);
  run(path, b, context_write(9), NULL);
  ls_trace *end_a = saved(path, a), *end_b = saved(path, b);
  expect_same_state(end_a, end_b, "the step after a load");

  /* in float64 the same; absent tensors become zero */
  ls_trace *wide = NULL;
  cr_assert_eq(ls_trace_new(&wide, "wide", &err), LS_OK);
  for (int i = 0; i < 3; i++) {
    ls_tensor t;
    const ls_tensor *from = ls_trace_tensor(middle, state_names[i]);
    cr_assert_eq(ls_trace_add(wide, state_names[i], LS_F64, from->ndim, from->dim, &t, &err), LS_OK);
    cr_assert_eq(ls_tensor_copy(&t, from, &err), LS_OK);
  }
  cr_assert_eq(path->load(b, wide, &err), LS_OK, "%s", err.text);
  ls_trace *converted = saved(path, b);
  for (int i = 0; i < 3; i++) expect_same_tensor(middle, converted, state_names[i], "from float64");
  cr_assert_eq(ls_tensor_get(ls_trace_tensor(converted, "cursor"), 0), 0.0);
  reset(path, b);
  ls_trace *zero = saved(path, b);
  expect_same_state(start, zero, "an empty state");

  ls_trace *const all[] = {start, middle, loaded, end_a, end_b, wide, converted, zero};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) ls_trace_free(all[i]);
  path->close(a), path->close(b);
  layer_free(&l);
}
Test(gpu_path, state_survives_a_round_trip) { on_each_path(state_round_trips); }

static void bad_state_is_an_error(const ls_path *path) {
  layer l;
  layer_make(&l, LS_BF16, 64, 2, 2, 2, 16, 12, 16);
  void *ctx = open_path(path, &l, 0);
  ls_trace *state = saved(path, ctx);
  ls_error err = {0};
  *(int64_t *)ls_trace_tensor(state, "capture_rows")->data = 17;
  cr_assert_eq(path->load(ctx, state, &err), LS_BAD_FIXTURE);
  cr_assert(strstr(err.text, "capture_rows") && strstr(err.text, "17"), "%s", err.text);
  ls_trace_free(state);
  path->close(ctx);
  layer_free(&l);
}
Test(gpu_path, a_state_beyond_the_buffers_is_an_error) { on_each_path(bad_state_is_an_error); }

/* ---- open ---- */

static void open_says_why_not(const ls_path *path) {
  layer l;
  layer_make(&l, LS_BF16, 64, 2, 2, 2, 16, 12, 16);
  ls_path_options options = {.precision = LS_PRECISION_F64};
  ls_error err = {0};
  void *ctx = NULL;
  cr_assert_eq(path->open(&ctx, &l.config, l.weights, &options, &err), LS_UNAVAILABLE);
  cr_assert_null(ctx);

  ls_trace *none = NULL;
  err = (ls_error){0};
  cr_assert_eq(ls_trace_new(&none, "weights", &err), LS_OK);
  cr_assert_eq(path->open(&ctx, &l.config, none, NULL, &err), LS_INTERNAL);
  cr_assert(strstr(err.text, "fc"), "%s", err.text);
  ls_trace_free(none);

  ls_config huge = l.config; /* 2^45 bytes of capture buffer */
  huge.dflash.max_rows = (int64_t)1 << 37;
  err = (ls_error){0};
  cr_assert_eq(path->open(&ctx, &huge, l.weights, NULL, &err), LS_INTERNAL);
  cr_assert(strstr(err.text, "bytes of device memory"), "%s", err.text);

  err = (ls_error){0};
  cr_assert_eq(path->open(&ctx, &l.config, l.weights, NULL, &err), LS_OK, "%s", err.text);
  cr_assert(strlen(path->describe(ctx)) > 3);
  path->close(ctx);
  path->close(NULL);
  layer_free(&l);
}
Test(gpu_path, open_names_what_it_cannot_have) { on_each_path(open_says_why_not); }

Test(gpu_path, an_unknown_backend_is_not_available) {
  ls_error err = {0};
  cr_assert_null(ls_path_find("metal"));
  cr_assert_null(ls_path_find(NULL));
  cr_assert_eq(ls_path_available("metal", &err), LS_UNAVAILABLE);
  cr_assert(strstr(err.text, "metal"));
}

/* The bound of a library is not bit for bit; that its stages are called SHARED on emu is what keeps a report honest. */
Test(gpu_path, large_products_on_emu_are_declared_shared) {
  const ls_path *path = ls_path_find("emu");
  layer l;
  layer_make(&l, LS_BF16, 1024, 1, 1, 2, 128, 300, 300);
  void *ctx = open_path(path, &l, 0);
  ls_step step = context_write(300);
  cr_assert_eq(path->stage_kind(ctx, &step, "ctx_combined"), LS_STAGE_SHARED);
  cr_assert_eq(path->stage_kind(ctx, &step, "k_proj"), LS_STAGE_OWN);
  step = context_write(16);
  cr_assert_eq(path->stage_kind(ctx, &step, "ctx_combined"), LS_STAGE_OWN);
  path->close(ctx);
  layer_free(&l);
}
