/* attn_v41 on a device: what holds bit for bit, refusals, given stages, state. On emu; on cuda too where there is a device. A tiny stack of
 * all six roles, made here. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/ls_random.h"
#include "layers/ls_attn.h"
#include "layers/ls_path.h"

/* The layers by role. */
enum { PLAIN, POOLER, POOL_READER, SOURCE, READER, MASKED, LAYERS };
enum { RATIO = 3, WINDOW = 7, TOPK = 5, MAX_TOKENS = 24, MAX_SEQ = 96, HEAD_DIM = 64 };

typedef struct {
  ls_config config;
  ls_trace *weights;
} stack;

static ls_trace *trace_of(const char *origin) {
  ls_trace *t = NULL;
  cr_assert_eq(ls_trace_new(&t, origin, NULL), LS_OK);
  return t;
}

static ls_tensor added(ls_trace *trace, const char *name, ls_dtype type, int64_t rows, int64_t columns) {
  ls_tensor t;
  ls_error err = {0};
  cr_assert_eq(ls_trace_add(trace, name, type, 2, (int64_t[]){rows, columns}, &t, &err), LS_OK, "%s", err.text);
  return t;
}

static stack stack_of(ls_index_keys keys) {
  stack s = {.config = {.layer = &ls_layer_attn_v41, .act = LS_BF16}, .weights = trace_of("weights")};
  s.config.attn = (ls_attn_config){.dim = 72,
                                   .n_heads = 4,
                                   .head_dim = HEAD_DIM,
                                   .rope_head_dim = 12,
                                   .q_lora_rank = 40,
                                   .o_lora_rank = 24,
                                   .o_groups = 2,
                                   .window_size = WINDOW,
                                   .index_n_heads = 3,
                                   .index_head_dim = 32,
                                   .index_topk = TOPK,
                                   .candidate_topk_blocks = 3,
                                   .candidate_block_size = 2,
                                   .candidate_source_layer = SOURCE,
                                   .original_seq_len = 32,
                                   .beta_fast = 32,
                                   .beta_slow = 1,
                                   .max_seq_len = MAX_SEQ,
                                   .max_tokens = MAX_TOKENS,
                                   .n_layers = LAYERS,
                                   .norm_eps = 1e-6,
                                   .rope_theta = 1e4,
                                   .compress_rope_theta = 4e4,
                                   .rope_factor = 4,
                                   .index_keys = keys,
                                   .compress_ratio = {0, RATIO, RATIO, 1, 1, 1},
                                   .is_kv_source = {0, 1, 0, 1, 0, 0},
                                   .is_index_source = {0, 1, 0, 1, 0, 1}};
  ls_spec_list list = {0};
  ls_error err = {0};
  cr_assert_eq(s.config.layer->config_check(&s.config, &err), LS_OK, "%s", err.text);
  cr_assert_eq(s.config.layer->weight_specs(&s.config, &list, &err), LS_OK);
  for (int i = 0; i < list.n; i++) {
    const ls_tensor_spec *spec = &list.spec[i];
    ls_dtype type = LS_BF16;
    while ((spec->dtypes >> type & 1u) == 0) type++;
    ls_tensor t;
    cr_assert_eq(ls_trace_add(s.weights, spec->name, type, spec->ndim, spec->dim, &t, &err), LS_OK);
    ls_generate(&t, spec->name, spec->ndim == 1 ? 0.3 : 2.0 / sqrt((double)spec->dim[1]), spec->ndim == 1 ? 1.0 : 0.0);
  }
  ls_spec_free(&list);
  return s;
}

static void *open_path(const ls_path *path, const stack *s, uint64_t schedule) {
  const ls_path_options options = {.emu_schedule = schedule};
  ls_error err = {0};
  void *ctx = NULL;
  cr_assert_eq(path->open(&ctx, &s->config, s->weights, &options, &err), LS_OK, "%s", err.text);
  return ctx;
}

/* x depends on (layer, position) alone. */
static ls_step step_at(int64_t layer, int64_t start, int64_t m) {
  ls_step step = {.op = LS_OP_FORWARD, .layer = layer, .start_pos = start, .rows = m, .cursor = -1, .in = trace_of("in")};
  const ls_tensor x = added(step.in, "x", LS_BF16, m, 72);
  for (int64_t row = 0; row < m; row++) {
    char name[64];
    snprintf(name, sizeof name, "x of layer %d at %d", (int)layer, (int)(start + row));
    ls_tensor one = ls_tensor_at(&x, row);
    ls_generate(&one, name, 1.0, 0.1);
  }
  return step;
}

static ls_status tried(const ls_path *path, void *ctx, ls_step step, const ls_trace *given, ls_trace *out, ls_error *err) {
  ls_error unused = {0};
  const ls_status status = path->step(ctx, &step, given, out, true, err ? err : &unused);
  ls_trace_free(step.in);
  return status;
}

static void run(const ls_path *path, void *ctx, ls_step step, const ls_trace *given, ls_trace *out) {
  ls_error err = {0};
  cr_assert_eq(tried(path, ctx, step, given, out, &err), LS_OK, "layer %d at %d, %d rows: %s", (int)step.layer, (int)step.start_pos,
               (int)step.rows, err.text);
}

static void round_of(const ls_path *path, void *ctx, int64_t start, int64_t m, bool traced) {
  for (int64_t layer = 0; layer < LAYERS; layer++) {
    ls_trace *out = traced ? trace_of("out") : NULL;
    run(path, ctx, step_at(layer, start, m), NULL, out);
    ls_trace_free(out);
  }
}

static ls_trace *saved(const ls_path *path, void *ctx) {
  ls_trace *state = trace_of("state");
  ls_error err = {0};
  cr_assert_eq(path->save(ctx, state, &err), LS_OK, "%s", err.text);
  return state;
}

static void expect_same(const ls_trace *a, const ls_trace *b, const char *what) {
  cr_assert_eq(a->n, b->n, "%s: %d tensors and %d", what, a->n, b->n);
  for (int i = 0; i < a->n; i++) {
    const ls_tensor *t = ls_trace_tensor(b, a->rec[i].name);
    cr_assert(t && ls_tensor_same_bytes(&a->rec[i].t, t), "%s: %s differs", what, a->rec[i].name);
  }
}

static void expect_state(const ls_path *path, void *ctx, const ls_trace *expected, const char *what) {
  ls_trace *now = saved(path, ctx);
  expect_same(expected, now, what);
  ls_trace_free(now);
}

static const ls_tensor *of_layer(const ls_trace *state, int64_t layer, const char *what) {
  char name[LS_MAX_SPEC_NAME];
  snprintf(name, sizeof name, "layers/%d/%s", (int)layer, what);
  return ls_trace_tensor(state, name);
}

/* The same shape and type, every element v. */
static ls_tensor filled_like(ls_trace *trace, const char *name, const ls_tensor *t, double v) {
  const ls_tensor copy = added(trace, name, t->dtype, t->dim[0], t->dim[1]);
  for (int64_t i = 0; i < ls_tensor_count(&copy); i++) ls_tensor_set(&copy, i, v);
  return copy;
}

static void on_each_path(void (*fn)(const ls_path *path)) {
  const char *const names[] = {"emu", "cuda"};
  cr_assert(ls_path_find("emu"), "every build has the emu path");
  for (int i = 0; i < 2; i++) {
    const ls_path *path = ls_path_find(names[i]);
    if (path && ls_path_available(names[i], NULL) == LS_OK) fn(path);
  }
}

/* ---- traced, untraced, replayed ---- */

/* Decode steps of one bucket replay one graph at other positions, a jump forward and a second prefill of the same m among them. */
static void replay_equals_eager(const ls_path *path) {
  for (int keys = LS_INDEX_KEYS_PUBLISHED; keys <= LS_INDEX_KEYS_OWN; keys++) {
    stack s = stack_of((ls_index_keys)keys);
    void *traced = open_path(path, &s, 0), *untraced = open_path(path, &s, 0);
    const int64_t starts[] = {0, 5, 6, 7, 8, 9, 10, 11, 12, 13, 20, 21, 22, 40, 41, 0, 0, 0, 5, 94, 95};
    for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
      char what[64];
      snprintf(what, sizeof what, "round %d at %d", (int)i, (int)starts[i]);
      const int64_t m = starts[i] > 0 ? 1 : i == 0 ? 5 : 20;
      round_of(path, traced, starts[i], m, true);
      round_of(path, untraced, starts[i], m, false);
      ls_trace *state = saved(path, traced);
      expect_state(path, untraced, state, what);
      ls_trace_free(state);
    }
    path->close(traced), path->close(untraced);
    ls_trace_free(s.weights);
  }
}
Test(gpu_attn_path, a_replayed_graph_leaves_the_state_of_a_traced_step) { on_each_path(replay_equals_eager); }

/* The same steps in two contexts, with fibers in another order: every recorded byte. */
static void runs_alike(const ls_path *path) {
  stack s = stack_of(LS_INDEX_KEYS_PUBLISHED);
  void *a = open_path(path, &s, 0), *b = open_path(path, &s, 7);
  const int64_t starts[] = {0, 19, 20, 21};
  for (size_t i = 0; i < sizeof starts / sizeof *starts; i++) {
    for (int64_t layer = 0; layer < LAYERS; layer++) {
      ls_trace *of_a = trace_of("a"), *of_b = trace_of("b");
      run(path, a, step_at(layer, starts[i], i ? 1 : 19), NULL, of_a);
      run(path, b, step_at(layer, starts[i], i ? 1 : 19), NULL, of_b);
      expect_same(of_a, of_b, "two runs");
      ls_trace_free(of_a), ls_trace_free(of_b);
    }
  }
  path->close(a), path->close(b);
  ls_trace_free(s.weights);
}
Test(gpu_attn_path, two_runs_give_the_same_bytes_in_any_order_of_threads) { on_each_path(runs_alike); }

static void records_what_it_says(const ls_path *path) {
  stack s = stack_of(LS_INDEX_KEYS_PUBLISHED);
  void *ctx = open_path(path, &s, 0);
  const int64_t starts[] = {0, 1, 2, 17}, rows[] = {1, 1, 1, 1};
  int64_t recorded = 0;
  for (int i = 0; i < 4; i++) {
    for (int64_t layer = 0; layer < LAYERS; layer++) {
      ls_trace *out = trace_of("out");
      ls_step step = step_at(layer, starts[i], rows[i]);
      const ls_step asked = step;
      run(path, ctx, step, NULL, out);
      for (int k = 0; k < s.config.layer->n_stages; k++) {
        const char *name = s.config.layer->stages[k].name;
        const ls_stage_kind kind = path->stage_kind(ctx, &asked, name);
        const bool expected = kind == LS_STAGE_OWN || kind == LS_STAGE_SHARED;
        cr_assert_eq(ls_trace_find(out, name) != NULL, expected, "layer %d at %d: %s", (int)layer, (int)starts[i], name);
        recorded += expected;
      }
      ls_trace_free(out);
    }
  }
  cr_assert_gt(recorded, 4 * LAYERS * 15);
  path->close(ctx);
  ls_trace_free(s.weights);
}
Test(gpu_attn_path, what_is_said_to_be_recorded_is_recorded_and_nothing_else) { on_each_path(records_what_it_says); }

/* Ring bytes of a prefill of up to 16 rows are those of decoding them one by one. */
static void prefill_equals_decode(const ls_path *path) {
  stack s = stack_of(LS_INDEX_KEYS_OWN);
  void *once = open_path(path, &s, 0), *split = open_path(path, &s, 0);
  run(path, once, step_at(PLAIN, 0, 16), NULL, NULL);
  for (int64_t t = 0; t < 16; t++) run(path, split, step_at(PLAIN, t, 1), NULL, NULL);
  ls_trace *a = saved(path, once), *b = saved(path, split);
  cr_assert(ls_tensor_same_bytes(of_layer(a, PLAIN, "window"), of_layer(b, PLAIN, "window")));
  ls_trace_free(a), ls_trace_free(b);
  path->close(once), path->close(split);
  ls_trace_free(s.weights);
}
Test(gpu_attn_path, the_ring_of_a_prefill_is_that_of_decoding_its_tokens) { on_each_path(prefill_equals_decode); }

/* ---- refusals ---- */

static void refusals_change_nothing(const ls_path *path) {
  stack s = stack_of(LS_INDEX_KEYS_PUBLISHED);
  void *ctx = open_path(path, &s, 0);
  cr_assert_eq(tried(path, ctx, step_at(READER, 0, 3), NULL, NULL, NULL), LS_REFUSED, "nothing was published");
  round_of(path, ctx, 0, 11, false);
  ls_trace *before = saved(path, ctx);
  const struct {
    int64_t layer, start, m;
  } steps[] = {{PLAIN, 0, MAX_TOKENS + 1}, {PLAIN, MAX_SEQ, 1}, {SOURCE, 11, 2}, {READER, 11, 1}, {MASKED, 11, 1}, {POOL_READER, 0, 11}};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    for (int traced = 0; traced < 2; traced++) {
      ls_error err = {0};
      ls_trace *out = traced ? trace_of("out") : NULL;
      cr_assert_eq(tried(path, ctx, step_at(steps[i].layer, steps[i].start, steps[i].m), NULL, out, &err), LS_REFUSED, "step %d", (int)i);
      cr_assert(err.text[0] != '\0');
      expect_state(path, ctx, before, "after a refusal");
      ls_trace_free(out);
    }
  }
  ls_trace_free(before);
  path->close(ctx);
  ls_trace_free(s.weights);
}
Test(gpu_attn_path, a_refused_step_changes_nothing) { on_each_path(refusals_change_nothing); }

/* A loaded selection that names a row beyond what its reader sees. */
static void selection_beyond_is_refused(const ls_path *path) {
  stack s = stack_of(LS_INDEX_KEYS_PUBLISHED);
  void *ctx = open_path(path, &s, 0);
  const struct {
    const char *name;
    int64_t value;
  } integers[] = {{"compress_source", POOLER}, {"index_source", POOLER}, {"topk_rows", 1}, {"topk_width", 1}, {"topk_start", 11}};
  for (int beyond = 0; beyond < 2; beyond++) {
    ls_trace *state = trace_of("state");
    for (int i = 0; i < 5; i++) {
      ls_tensor t;
      cr_assert_eq(ls_trace_add(state, integers[i].name, LS_I64, 1, (int64_t[]){1}, &t, NULL), LS_OK);
      ls_tensor_set(&t, 0, (double)integers[i].value);
    }
    const ls_tensor topk = added(state, "topk_idxs", LS_I32, 1, 1); /* 12 / 3 = 4 rows are visible: 0 .. 3 */
    ls_tensor_set(&topk, 0, WINDOW + 3 + beyond);
    ls_error err = {0};
    cr_assert_eq(path->load(ctx, state, &err), LS_OK, "%s", err.text);
    cr_assert_eq(tried(path, ctx, step_at(POOL_READER, 11, 1), NULL, NULL, NULL), beyond ? LS_REFUSED : LS_OK);
    ls_trace_free(state);
  }
  path->close(ctx);
  ls_trace_free(s.weights);
}
Test(gpu_attn_path, a_loaded_selection_of_rows_that_its_reader_does_not_see_is_refused) { on_each_path(selection_beyond_is_refused); }

static void too_large_says_bytes(const ls_path *path) {
  stack s = stack_of(LS_INDEX_KEYS_PUBLISHED);
  s.config.attn.max_seq_len = INT32_MAX;
  ls_error err = {0};
  void *ctx = NULL;
  cr_assert_eq(path->open(&ctx, &s.config, s.weights, NULL, &err), LS_INTERNAL);
  cr_assert_null(ctx);
  cr_assert(strstr(err.text, "bytes"), "%s", err.text);
  ls_trace_free(s.weights);
}
Test(gpu_attn_path, what_does_not_fit_is_refused_at_open_with_the_bytes_needed) { on_each_path(too_large_says_bytes); }

/* ---- given ---- */

static void given_is_recorded_then_replaced(const ls_path *path) {
  stack s = stack_of(LS_INDEX_KEYS_PUBLISHED);
  void *ctx = open_path(path, &s, 0), *other = open_path(path, &s, 0);
  for (int64_t layer = 0; layer <= SOURCE; layer++) {
    run(path, ctx, step_at(layer, 0, 9), NULL, NULL);
    run(path, other, step_at(layer, 0, 9), NULL, NULL);
  }
  ls_trace *own = trace_of("own"), *out = trace_of("out"), *given = trace_of("given");
  run(path, other, step_at(SOURCE, 9, 1), NULL, own);
  const ls_tensor kv = filled_like(given, "kv", ls_trace_tensor(own, "kv"), 0.5);
  const ls_tensor key = filled_like(given, "index_k", ls_trace_tensor(own, "index_k"), 1.5);
  const ls_tensor row = filled_like(given, "compress_kv", ls_trace_tensor(own, "compress_kv"), -2);
  const ls_tensor choice = filled_like(given, "compress_idx", ls_trace_tensor(own, "compress_idx"), -1);
  const ls_tensor mask = filled_like(given, "candidates", ls_trace_tensor(own, "candidates"), 1);
  ls_tensor_set(&choice, 0, WINDOW + 4);
  run(path, ctx, step_at(SOURCE, 9, 1), given, out);
  const char *const same[] = {"qr_proj", "qr", "q", "kv", "index_k", "latent", "index_q", "compress_kv"};
  for (size_t i = 0; i < sizeof same / sizeof *same; i++) /* recorded: its own, from inputs that nothing replaced */
    cr_assert(ls_tensor_same_bytes(ls_trace_tensor(own, same[i]), ls_trace_tensor(out, same[i])), "%s", same[i]);
  cr_assert(!ls_tensor_same_bytes(ls_trace_tensor(own, "index_score"), ls_trace_tensor(out, "index_score")), "the given key was not read");
  cr_assert(!ls_tensor_same_bytes(ls_trace_tensor(own, "out"), ls_trace_tensor(out, "out")));

  ls_trace *state = saved(path, ctx);
  const ls_tensor slot = ls_tensor_slice(of_layer(state, SOURCE, "window"), 0, 9 % WINDOW, 1);
  const ls_tensor of_keys = ls_tensor_slice(of_layer(state, SOURCE, "index_cache"), 0, 9, 1);
  const ls_tensor of_rows = ls_tensor_slice(of_layer(state, SOURCE, "compress_cache"), 0, 9, 1);
  cr_assert(ls_tensor_same_bytes(&slot, &kv));
  cr_assert(ls_tensor_same_bytes(&of_keys, &key));
  cr_assert(ls_tensor_same_bytes(&of_rows, &row));
  cr_assert(ls_tensor_same_bytes(ls_trace_tensor(state, "topk_idxs"), &choice));
  cr_assert(ls_tensor_same_bytes(ls_trace_tensor(state, "candidates"), &mask));

  /* a given idx is this step's alone */
  ls_trace *list = trace_of("given"), *read = trace_of("out");
  const ls_tensor *idx = ls_trace_tensor(out, "idx");
  filled_like(list, "idx", idx, -1);
  run(path, ctx, step_at(READER, 9, 1), list, read);
  const ls_tensor *o = ls_trace_tensor(read, "sparse_o");
  for (int64_t i = 0; i < ls_tensor_count(o); i++) cr_assert_eq(ls_tensor_get(o, i), 0, "a list of -1 alone gives zeros");
  ls_trace *after = saved(path, ctx);
  cr_assert(ls_tensor_same_bytes(ls_trace_tensor(after, "topk_idxs"), &choice));
  ls_trace_free(after), ls_trace_free(list), ls_trace_free(read), ls_trace_free(state);
  ls_trace_free(own), ls_trace_free(out), ls_trace_free(given);
  path->close(ctx), path->close(other);
  ls_trace_free(s.weights);
}
Test(gpu_attn_path, a_given_stage_is_recorded_then_replaced_where_it_is_stored_and_published) {
  on_each_path(given_is_recorded_then_replaced);
}

static void bad_given_changes_nothing(const ls_path *path) {
  stack s = stack_of(LS_INDEX_KEYS_PUBLISHED);
  void *ctx = open_path(path, &s, 0);
  round_of(path, ctx, 0, 9, false);
  ls_trace *before = saved(path, ctx);
  const struct {
    const char *name;
    ls_dtype type;
    int64_t columns;
    double value;
  } bad[] = {{"compress_idx", LS_I32, TOPK, WINDOW - 1},
             {"compress_idx", LS_I32, TOPK, WINDOW + 10},
             {"compress_idx", LS_I32, TOPK + 1, -1},
             {"kv", LS_BF16, HEAD_DIM + 1, 0},
             {"kv", LS_I32, HEAD_DIM, 0},
             {"window_idx", LS_I32, WINDOW, WINDOW},
             {"candidates", LS_I32, 10, 1},
             {"x", LS_BF16, 71, 0}};
  for (size_t i = 0; i < sizeof bad / sizeof *bad; i++) {
    ls_trace *given = trace_of("given"), *out = trace_of("out");
    const ls_tensor t = added(given, bad[i].name, bad[i].type, 1, bad[i].columns);
    for (int64_t k = 0; k < ls_tensor_count(&t); k++) ls_tensor_set(&t, k, bad[i].value);
    ls_error err = {0};
    cr_assert_eq(tried(path, ctx, step_at(SOURCE, 9, 1), given, out, &err), LS_BAD_FIXTURE, "%d: %s", (int)i, err.text);
    cr_assert(strstr(err.text, bad[i].name), "%s", err.text);
    expect_state(path, ctx, before, bad[i].name);
    ls_trace_free(given), ls_trace_free(out);
  }
  ls_trace_free(before);
  path->close(ctx);
  ls_trace_free(s.weights);
}
Test(gpu_attn_path, a_given_stage_of_another_shape_or_out_of_range_changes_nothing) { on_each_path(bad_given_changes_nothing); }

/* The attention kernel's own inverse rotation is that of the row kernel, to the bit. */
static void rotation_is_one(const ls_path *path) {
  stack s = stack_of(LS_INDEX_KEYS_PUBLISHED);
  void *a = open_path(path, &s, 0), *b = open_path(path, &s, 0);
  const int64_t starts[] = {0, 18, 60};
  for (int i = 0; i < 3; i++) {
    for (int64_t layer = 0; layer <= POOLER; layer++) {
      ls_trace *fused = trace_of("out"), *apart = trace_of("out"), *given = trace_of("given");
      const int64_t m = i ? 1 : 18;
      run(path, a, step_at(layer, starts[i], m), NULL, fused);
      cr_assert_eq(ls_trace_add_view(given, "sparse_o", ls_trace_tensor(fused, "sparse_o"), NULL), LS_OK);
      run(path, b, step_at(layer, starts[i], m), given, apart);
      expect_same(fused, apart, "o_rot of the kernel, and of sparse_o alone");
      ls_trace_free(fused), ls_trace_free(apart), ls_trace_free(given);
    }
  }
  path->close(a), path->close(b);
  ls_trace_free(s.weights);
}
Test(gpu_attn_path, the_fused_rotation_of_the_attention_is_that_of_the_row_kernel) { on_each_path(rotation_is_one); }

/* ---- state ---- */

/* At every kind of moment: nothing yet, a group open, after a jump. What is saved, loaded elsewhere and gone on from is the same. */
static void state_round_trip(const ls_path *path) {
  stack s = stack_of(LS_INDEX_KEYS_PUBLISHED);
  void *a = open_path(path, &s, 0), *b = open_path(path, &s, 0);
  round_of(path, b, 0, 20, false); /* what a load must clear */
  round_of(path, b, 90, 1, false);
  const int64_t starts[] = {0, 11, 12, 50, 0};
  for (int i = 0; i < 5; i++) {
    ls_error err = {0};
    ls_trace *state = saved(path, a);
    cr_assert_eq(path->load(b, state, &err), LS_OK, "%s", err.text);
    expect_state(path, b, state, "saved, loaded and saved");
    ls_trace_free(state);
    round_of(path, a, starts[i], starts[i] ? 1 : i ? 2 : 11, false);
    round_of(path, b, starts[i], starts[i] ? 1 : i ? 2 : 11, false);
    state = saved(path, a);
    expect_state(path, b, state, "gone on from a loaded state");
    ls_trace_free(state);
  }
  path->close(a), path->close(b);
  ls_trace_free(s.weights);
}
Test(gpu_attn_path, a_saved_state_loads_and_goes_on) { on_each_path(state_round_trip); }

static void start_is_as_documented(const ls_path *path) {
  stack s = stack_of(LS_INDEX_KEYS_PUBLISHED);
  void *ctx = open_path(path, &s, 0);
  ls_trace *state = saved(path, ctx);
  cr_assert_null(of_layer(state, SOURCE, "compress_cache"), "no row was written");
  cr_assert_null(ls_trace_tensor(state, "topk_idxs"));
  cr_assert_eq(ls_tensor_get(ls_trace_tensor(state, "compress_source"), 0), -1);
  const ls_tensor *scores = of_layer(state, POOLER, "score_state"), *window = of_layer(state, MASKED, "window");
  for (int64_t i = 0; i < ls_tensor_count(scores); i++) cr_assert_eq(ls_tensor_get(scores, i), -INFINITY);
  for (int64_t i = 0; i < ls_tensor_count(window); i++) cr_assert_eq(ls_tensor_get(window, i), 0);
  ls_trace_free(state);
  path->close(ctx);
  ls_trace_free(s.weights);
}
Test(gpu_attn_path, the_start_is_zeros_and_minus_infinity_with_nothing_published) { on_each_path(start_is_as_documented); }

static void unsound_state_changes_nothing(const ls_path *path) {
  stack s = stack_of(LS_INDEX_KEYS_PUBLISHED);
  void *ctx = open_path(path, &s, 0);
  round_of(path, ctx, 0, 9, false);
  round_of(path, ctx, 9, 1, false);
  ls_trace *before = saved(path, ctx);
  for (int i = 0; i < 4; i++) {
    ls_trace *state = NULL;
    ls_error err = {0};
    cr_assert_eq(ls_trace_copy(&state, before, NULL), LS_OK);
    if (i == 0) ls_tensor_set(ls_trace_tensor(state, "topk_idxs"), 0, WINDOW - 1);
    if (i == 1) ls_tensor_set(ls_trace_tensor(state, "compress_source"), 0, READER);
    if (i == 2) ls_tensor_set(ls_trace_tensor(state, "candidate_width"), 0, 9);
    if (i == 3) ls_trace_find(state, "layers/0/window")->t.dim[0]--;
    cr_assert_eq(path->load(ctx, state, &err), LS_BAD_FIXTURE, "%d: %s", i, err.text);
    expect_state(path, ctx, before, "after a load that was refused");
    ls_trace_free(state);
  }
  ls_trace_free(before);
  path->close(ctx);
  ls_trace_free(s.weights);
}
Test(gpu_attn_path, an_unsound_state_is_named_and_changes_nothing) { on_each_path(unsound_state_changes_nothing); }
