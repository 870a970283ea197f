/* Relations of dflash_context_kv, judged at every context_write (docs/relations.md). */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_gemm.h"
#include "../core/ls_ring.h"
#include "../layers/ls_dflash.h"
#include "session_relations.h"

static const ls_dflash_config *config_of(const relation *r) { return &r->v->config->dflash; }

static ls_run *own(const relation *r) { return &r->v->run[r->p]; }

/* The rows of the capture buffer that the step reads, in r->from. */
static ls_tensor captured(const relation *r) { return ls_tensor_slice(ls_trace_tensor(r->from, "capture"), 0, 0, r->s->rows); }

static const char *const before_rope[] = {"ctx_combined", "ctx_normed", "k_proj", "v_proj", "k_norm"};
enum { BEFORE_ROPE = 5 };

static bool is_kv(const char *stage) { return stage[0] != 'c'; } /* [layers, rows, kv_dim]; else [rows, hidden] */

static const ls_tensor *stage_of(const ls_run_result *run, const char *stage) { return ls_trace_tensor(run->out, stage); }

/* ---- rows: a row does not know which of the rows it is, until it is rotated ----
 * Bit for bit up to 16 rows, which layers.md promises ("which of them it was"); beyond, within the stages' bounds. */
static ls_status judge_rows(relation *r, ls_error *err) {
  if (r->s->rows < 2) return LS_OK;
  LS_TRY(relation_start(r, err));
  const ls_tensor rows = captured(r);
  LS_TRY(relation_reverse(&rows, (relation_turn){0, 1}, err));
  for (int i = 0; i < BEFORE_ROPE; i++) {
    const relation_turn turns[] = {{is_kv(before_rope[i]) ? 1 : 0, 1}, {0, 0}};
    LS_TRY(relation_expect_turned(r, before_rope[i], turns, r->s->rows <= LS_INVARIANT_ROWS, err));
  }
  LS_TRY(relation_run(r, own(r), &r->s->step, r->given, err));
  relation_hold_expected(r);
  return LS_OK;
}

/* ---- shifted: a whole ring further (or back), the same slots ----
 * Only the angles know the position, so that all but k_rope must be the same bits in the same slots. */
static ls_status judge_shifted(relation *r, ls_error *err) {
  const int64_t capacity = config_of(r)->ring_capacity, base = r->s->base;
  const int64_t captured =
      (int64_t)ls_tensor_get(ls_trace_tensor(r->was->before, "capture_rows"), 0); /* all of them must have a position */
  const int64_t by = ls_positions_valid(base + capacity, captured) ? capacity : -capacity;
  if (base + by < 0) return LS_OK;
  LS_TRY(relation_start(r, err));
  const ls_tensor *at = ls_trace_tensor(r->from, "capture_base"), *cursor = ls_trace_tensor(r->from, "cursor");
  const double moved = ls_tensor_get(cursor, 0) + (double)by;
  ls_tensor_set(at, 0, (double)(base + by));
  ls_tensor_set(cursor, 0, moved > 0 ? moved : 0);
  LS_TRY(relation_run(r, own(r), &r->s->step, NULL, err));
  for (int i = 0; i < BEFORE_ROPE; i++)
    relation_hold(r, before_rope[i], stage_of(r->was, before_rope[i]), stage_of(&r->is, before_rope[i]), NULL, NULL);
  relation_hold_bytes(r, r->was->after, r->is.after, (const char *const[]){"v_ring", NULL});
  return LS_OK;
}

/* ---- unseen: what the step does not read may hold anything ----
 * Every slot of the rings and what the capture buffer holds beyond the rows become NaN; the rows must come out as they did, to the bit. */
static ls_status judge_unseen(relation *r, ls_error *err) {
  static const char *const kv[] = {"k_ring", "v_ring"};
  const ls_layer *layer = r->v->config->layer;
  LS_TRY(relation_start(r, err));
  const ls_tensor *buffer = ls_trace_tensor(r->from, "capture");
  const ls_tensor rest = ls_tensor_slice(buffer, 0, r->s->rows, buffer->dim[0] - r->s->rows);
  relation_poison(&rest);
  for (int i = 0; i < 2; i++) relation_poison(ls_trace_tensor(r->from, kv[i]));
  LS_TRY(relation_run(r, own(r), &r->s->step, NULL, err));
  for (int i = 0; i < layer->n_stages; i++) {
    const ls_stage *stage = &layer->stages[i];
    ls_trace *rows[2] = {NULL, NULL};
    if (!stage->is_ring) {
      relation_hold(r, stage->name, stage_of(r->was, stage->name), stage_of(&r->is, stage->name), NULL, NULL);
      continue;
    }
    if (r->is.status != LS_OK) continue;
    ls_status status = ls_trace_new(&rows[0], "rows", err);
    if (status == LS_OK) status = ls_trace_new(&rows[1], "rows", err);
    if (status == LS_OK) status = session_ring_rows(r->s, stage, ls_trace_tensor(r->was->after, stage->name), rows[0], err);
    if (status == LS_OK) status = session_ring_rows(r->s, stage, ls_trace_tensor(r->is.after, stage->name), rows[1], err);
    if (status == LS_OK) relation_hold_bytes(r, rows[0], rows[1], NULL);
    ls_trace_free(rows[0]);
    ls_trace_free(rows[1]);
    LS_TRY(status);
  }
  return LS_OK;
}

/* ---- replayed: drafted over, rewound, captured and written again ----
 * The history ends with the same target-derived rows: the whole state must be the same bytes (the same capture written twice, layers.md).
 */
static ls_status judge_replayed(relation *r, ls_error *err) {
  const ls_dflash_config *c = config_of(r);
  const step_run *s = r->s;
  ls_step draft = {.op = LS_OP_DRAFT_WRITE, .number = s->step.number, .base = s->base, .rows = s->rows, .cursor = -1};
  ls_step rewind = {.op = LS_OP_REWIND, .number = s->step.number, .position = s->base, .cursor = -1};
  ls_step capture = {.op = LS_OP_CAPTURE, .number = s->step.number, .base = s->base, .rows = s->rows, .cursor = -1};
  const ls_step *steps[4] = {&draft};
  int n = 1;
  ls_tensor kv[2];
  ls_trace *after = NULL;
  bool refused = false;
  const int64_t dim[] = {c->layers, s->rows, c->kv_dim};
  LS_TRY(ls_trace_new(&r->in, "input", err));
  for (int i = 0; i < 2; i++) {
    LS_TRY(ls_trace_add(r->in, i == 0 ? "k" : "v", r->v->config->act, 3, dim, &kv[i], err));
    for (int64_t e = 0; e < ls_tensor_count(&kv[i]); e++) ls_tensor_set(&kv[i], e, (double)(e % 7) - 3 - i);
  }
  const ls_tensor rows = ls_tensor_slice(ls_trace_tensor(r->was->before, "capture"), 0, 0, s->rows);
  LS_TRY(ls_trace_add_view(r->in, "capture", &rows, err));
  draft.in = capture.in = rewind.in = r->in;
  const ls_dflash_state stands = {.cursor = s->base + s->rows};
  ls_dflash_state next;
  if (ls_dflash_decide(c, &stands, &rewind, &next, NULL) == LS_OK) steps[n++] = &rewind; /* too far back: written again without */
  steps[n++] = &capture;
  steps[n++] = &s->step;
  LS_TRY(ls_run_sequence(own(r), steps, n, r->was->after, &after, &refused, err));
  if (refused) {
    relation_fail(r, "drafting, rewinding or writing the rows again was refused");
  } else {
    relation_hold_bytes(r, r->was->after, after, NULL);
  }
  ls_trace_free(after);
  return LS_OK;
}

/* ---- twins ---- */

enum { PROJECTIONS = 2 };
static const char *const projection[PROJECTIONS] = {"k_proj", "v_proj"};

/* Two drafter layers change places, whatever types their weights have. */
static void swap_records(const ls_trace *weights, int64_t l, int64_t other, const char *what) {
  ls_tensor *a = relation_of_layer(weights, l, what), *b = relation_of_layer(weights, other, what);
  const ls_tensor held = *a;
  *a = *b;
  *b = held;
}

/* ---- permuted: blocks of the capture, drafter layers and heads in reverse order, and all that belongs to them ----
 * A sum over the capture then runs in another order, so within the stages' bounds. */
static ls_status permute(ls_config *config, const ls_trace *weights, ls_error *err) {
  const ls_dflash_config *c = &config->dflash;
  LS_TRY(relation_reverse(ls_trace_tensor(weights, "fc"), (relation_turn){1, c->hidden}, err));
  for (int64_t l = 0; l < c->layers; l++)
    for (int i = 0; i < PROJECTIONS; i++)
      LS_TRY(relation_reverse(relation_of_layer(weights, l, projection[i]), (relation_turn){0, c->head_dim}, err));
  for (int64_t l = 0; l < c->layers / 2; l++) {
    for (int i = 0; i < PROJECTIONS; i++) swap_records(weights, l, c->layers - 1 - l, projection[i]);
    swap_records(weights, l, c->layers - 1 - l, "k_norm");
  }
  return LS_OK;
}

static ls_status judge_permuted(relation *r, ls_error *err) {
  const ls_dflash_config *c = config_of(r);
  const relation_turn same[] = {{0, 0}}, turned[] = {{0, 1}, {2, c->head_dim}, {0, 0}};
  ls_run *twin;
  LS_TRY(relation_twin(r, RELATION_PERMUTED, permute, &twin, err));
  LS_TRY(relation_start(r, err));
  LS_TRY(relation_reverse(ls_trace_tensor(r->from, "capture"), (relation_turn){1, c->hidden}, err));
  for (int i = 0; i < BEFORE_ROPE; i++)
    LS_TRY(relation_expect_turned(r, before_rope[i], is_kv(before_rope[i]) ? turned : same, false, err));
  LS_TRY(relation_expect_turned(r, "k_rope", turned, false, err));
  LS_TRY(relation_run(r, twin, &r->s->step, r->given, err));
  relation_hold_expected(r);
  return LS_OK;
}

/* ---- scaled: weights times powers of two ----
 * Multiplying by a power of two commutes with every rounding, as long as no number leaves the exponents: sums of products scale exactly,
 * and a norm of values twice as large, with an eps four times as large, is the same to the bit. So ctx_combined and k_proj double, their
 * norms stay (k_norm then doubles by its own weights), v_proj is four times what it was. float16 has too few exponents for sums that go on:
 * there only what is read no further is scaled. */
static ls_status scale(ls_config *config, const ls_trace *weights, ls_error *err) {
  const double factor = config->act == LS_F16 ? 1 : 2;
  (void)err;
  config->dflash.rms_eps *= factor * factor;
  relation_scale(ls_trace_tensor(weights, "fc"), factor);
  for (int64_t l = 0; l < config->dflash.layers; l++) {
    relation_scale(relation_of_layer(weights, l, "k_proj"), factor);
    relation_scale(relation_of_layer(weights, l, "v_proj"), 4);
    relation_scale(relation_of_layer(weights, l, "k_norm"), 2);
  }
  return LS_OK;
}

static ls_status judge_scaled(relation *r, ls_error *err) {
  const bool f16 = r->v->config->act == LS_F16;
  const double factor = f16 ? 1 : 2;
  ls_run *twin;
  if (!f16 && !relation_is_ordinary(&r->s->input)) return LS_OK;
  LS_TRY(relation_twin(r, RELATION_SCALED, scale, &twin, err));
  LS_TRY(relation_start(r, err));
  LS_TRY(relation_run(r, twin, &r->s->step, NULL, err));
  LS_TRY(relation_hold_scaled(r, "ctx_combined", factor, err));
  LS_TRY(relation_hold_scaled(r, "ctx_normed", 1, err));
  LS_TRY(relation_hold_scaled(r, "k_proj", factor, err));
  LS_TRY(relation_hold_scaled(r, "v_proj", 4, err));
  LS_TRY(relation_hold_scaled(r, "k_norm", 2, err));
  return f16 ? LS_OK : relation_hold_scaled(r, "k_rope", 2, err);
}

/* ---- duplicated: head 1 has the weights of head 0, drafter layer 1 those of layer 0 ----
 * Then it must make the same rows, within the bound: the contract does not promise that a sum's order is the same in every channel. */
static ls_status duplicate(ls_config *config, const ls_trace *weights, ls_error *err) {
  const ls_dflash_config *c = &config->dflash;
  for (int64_t l = 0; l < c->layers; l++)
    for (int i = 0; i < PROJECTIONS; i++) LS_TRY(relation_duplicate(relation_of_layer(weights, l, projection[i]), 0, c->head_dim, err));
  for (int i = 0; i <= PROJECTIONS && c->layers >= 2; i++) {
    const char *what = i < PROJECTIONS ? projection[i] : "k_norm";
    *relation_of_layer(weights, 1, what) = *relation_of_layer(weights, 0, what);
  }
  return LS_OK;
}

static ls_status judge_duplicated(relation *r, ls_error *err) {
  static const char *const kv[] = {"k_proj", "v_proj", "k_norm", "k_rope"};
  const ls_dflash_config *c = config_of(r);
  ls_run *twin;
  LS_TRY(relation_twin(r, RELATION_DUPLICATED, duplicate, &twin, err));
  LS_TRY(relation_start(r, err));
  LS_TRY(relation_run(r, twin, &r->s->step, NULL, err));
  for (int i = 0; i < 4; i++) {
    const ls_tensor *rows = stage_of(&r->is, kv[i]), *bound;
    ls_tensor expected, within;
    LS_TRY(relation_bound(r, kv[i], &bound, err));
    if (rows == NULL || bound == NULL) continue;
    LS_TRY(relation_copy(r, rows, &expected, err));
    LS_TRY(relation_copy(r, bound, &within, err));
    for (int both = 0; both < 2; both++) {
      const ls_tensor *t = both ? &within : &expected;
      LS_TRY(relation_duplicate(t, 2, c->head_dim, err));
      LS_TRY(relation_duplicate(t, 0, 1, err));
    }
    LS_TRY(relation_expect(r, kv[i], &expected, &within, err));
  }
  LS_TRY(relation_run(r, twin, &r->s->step, r->given, err)); /* each stage of what head 0 made, twice */
  relation_hold_expected(r);
  return LS_OK;
}

static const relation_kind kinds[] = {
    {"rows", judge_rows},         {"shifted", judge_shifted}, {"unseen", judge_unseen},        {"replayed", judge_replayed},
    {"permuted", judge_permuted}, {"scaled", judge_scaled},   {"duplicated", judge_duplicated}};

ls_status session_relations_dflash(session *v, const step_run *s, int p, ls_error *err) {
  return relation_judge_all(v, s, p, kinds, sizeof kinds / sizeof kinds[0], err);
}
