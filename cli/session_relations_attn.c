/* Relations of attn_v41, judged at every forward (docs/relations.md). Every run follows the selection that the cascaded run followed, so
 * that two runs differ in numbers alone; a path's own choice is judged by `selection`. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_gemm.h"
#include "../core/ls_numeric.h"
#include "../layers/ls_attn.h"
#include "session_relations.h"

static const ls_attn_config *config_of(const relation *r) { return &r->v->config->attn; }

static ls_run *own(const relation *r) { return &r->v->run[r->p]; }

static ls_attn_plan plan_of(const relation *r) {
  ls_attn_plan plan;
  ls_attn_plan_shapes(config_of(r), &r->s->step, &plan);
  return plan;
}

static bool along(const ls_stage *stage, const char *axis) { return strncmp(stage->axes, axis, strlen(axis)) == 0; }

static const ls_tensor *defined(const relation *r, const ls_stage *stage) { return r->v->hooks->defined(r->v, r->s, stage, LS_CASCADED); }

/* The first rows of a stage, exactly as they were. */
static void hold_rows(relation *r, const ls_stage *stage, int64_t rows) {
  const ls_tensor *was = ls_trace_tensor(r->was->out, stage->name), *is = ls_trace_tensor(r->is.out, stage->name),
                  *only = defined(r, stage);
  if (was == NULL || is == NULL || was->dim[0] < rows || is->dim[0] < rows) return;
  const ls_tensor expected = ls_tensor_slice(was, 0, 0, rows), found = ls_tensor_slice(is, 0, 0, rows),
                  where = only != NULL ? ls_tensor_slice(only, 0, 0, rows) : (ls_tensor){.data = NULL};
  relation_hold(r, stage->name, &expected, &found, NULL, only != NULL ? &where : NULL);
}

/* The step with another x. */
static ls_status with_input(relation *r, const ls_tensor *x, ls_step *step, ls_error *err) {
  LS_TRY(ls_trace_new(&r->in, "input", err));
  LS_TRY(ls_trace_add_view(r->in, "x", x, err));
  *step = r->s->step;
  step->in = r->in;
  return LS_OK;
}

/* ---- causal: a token changes nothing before it ----
 * The last token of a prefill becomes another; all that belongs to the tokens before must come out with the same bits, for the same code
 * ran on the same numbers. */
static ls_status judge_causal(relation *r, ls_error *err) {
  const ls_layer *layer = r->v->config->layer;
  const ls_attn_plan plan = plan_of(r);
  ls_tensor x;
  ls_step step;
  if (plan.m < 2) return LS_OK;
  LS_TRY(relation_start(r, err));
  LS_TRY(relation_copy(r, &r->s->input, &x, err));
  const ls_tensor first = ls_tensor_at(&x, 0), last = ls_tensor_at(&x, plan.m - 1);
  for (int64_t i = 0; i < ls_tensor_count(&last); i++) ls_tensor_set(&last, i, -ls_tensor_get(&first, i));
  LS_TRY(with_input(r, &x, &step, err));
  LS_TRY(relation_run(r, own(r), &step, r->s->lead, err));
  for (int i = 0; i < layer->n_stages; i++) {
    if (along(&layer->stages[i], "row")) hold_rows(r, &layer->stages[i], plan.m - 1);
    if (plan.kv_source && along(&layer->stages[i], "latent")) hold_rows(r, &layer->stages[i], (plan.m - 1) / plan.ratio);
  }
  return LS_OK;
}

/* ---- rows: a token does not know which of the tokens it is, until it is rotated ----
 * Bit for bit where layers.md promises it, for kv of up to 16 rows; else within the stages' bounds. */
static ls_status judge_rows(relation *r, ls_error *err) {
  static const char *const before_rope[] = {"qr_proj", "qr", "q_proj", "kv_proj", "kv_norm", "index_w_proj", "index_w"};
  const relation_turn turns[] = {{0, 1}, {0, 0}};
  ls_tensor x;
  ls_step step;
  const ls_attn_plan plan = plan_of(r);
  if (plan.m < 2) return LS_OK;
  LS_TRY(relation_start(r, err));
  LS_TRY(relation_copy(r, &r->s->input, &x, err));
  LS_TRY(relation_reverse(&x, turns[0], err));
  LS_TRY(with_input(r, &x, &step, err));
  for (size_t i = 0; i < sizeof before_rope / sizeof before_rope[0]; i++)
    LS_TRY(relation_expect_turned(r, before_rope[i], turns, before_rope[i][0] == 'k' && plan.m <= LS_INVARIANT_ROWS, err));
  for (int i = 0; i < 2 && plan.ratio == 1; i++) /* above it, groups of tokens are pooled */
    LS_TRY(relation_expect_turned(r, i == 0 ? "latent_pool" : "latent", turns, false, err));
  LS_TRY(relation_follow(r, err));
  LS_TRY(relation_run(r, own(r), &step, r->given, err));
  relation_hold_expected(r);
  return LS_OK;
}

/* ---- replayed: the same step again, from the state that it left ----
 * What a step writes it does not read, and what it reads it does not change: outputs and state must be the same bytes. */
static ls_status judge_replayed(relation *r, ls_error *err) {
  const ls_layer *layer = r->v->config->layer;
  LS_TRY(ls_trace_copy(&r->from, r->was->after, err));
  LS_TRY(relation_run(r, own(r), &r->s->step, r->s->lead, err));
  for (int i = 0; i < layer->n_stages; i++) LS_TRY(relation_hold_scaled(r, layer->stages[i].name, 1, err));
  relation_hold_bytes(r, r->was->after, r->is.after, NULL);
  return LS_OK;
}

/* ---- unseen: what no query sees may hold anything ---- */

/* Marks the rows of the published compressed cache that some query selected. */
static void mark_selected(const relation *r, const ls_attn_plan *plan, bool *selected, int64_t rows) {
  const ls_tensor *idx = ls_trace_tensor(r->s->lead, "compress_idx");
  if (idx == NULL) idx = ls_trace_tensor(r->was->after, "topk_idxs");
  for (int64_t i = 0; plan->ratio > 0 && idx != NULL && i < ls_tensor_count(idx); i++) {
    const int64_t row = (int64_t)ls_tensor_get(idx, i) - plan->rows_a;
    if (row >= 0 && row < rows) selected[row] = true;
  }
}

/* Marks the keys that some query scores against: the visible ones, of a masked source those inside the mask. */
static void mark_scored(const relation *r, const ls_attn_plan *plan, bool *scored, int64_t rows) {
  const ls_tensor *mask = plan->masked ? ls_trace_tensor(r->was->before, "candidates") : NULL;
  for (int64_t j = 0; plan->index_source && j < plan->n && j < rows; j++) {
    scored[j] = mask == NULL;
    for (int64_t t = 0; mask != NULL && t < mask->dim[0] && j < mask->dim[1]; t++)
      if (ls_tensor_get(mask, t * mask->dim[1] + j) != 0) scored[j] = true;
  }
}

/* Poisons the rows of a cache that are not marked, and those that the step itself writes before it reads. */
static ls_status poison_cache(relation *r, const ls_attn_plan *plan, int64_t layer, const char *what, const char *source,
                              void (*mark)(const relation *, const ls_attn_plan *, bool *, int64_t), ls_error *err) {
  const ls_tensor *cache = relation_of_layer(r->from, layer, what);
  if (cache == NULL || cache->dim[0] == 0) return LS_OK;
  bool *read = calloc((size_t)cache->dim[0], sizeof *read);
  if (read == NULL) return ls_fail(err, LS_INTERNAL, "out of memory for the marks of %" PRId64 " rows", cache->dim[0]);
  if (session_state_int(r->was->after, source) == layer) mark(r, plan, read, cache->dim[0]);
  for (int64_t row = 0; row < cache->dim[0]; row++) {
    const bool written = plan->kv_source && layer == plan->layer && row >= plan->first_row && row < plan->first_row + plan->g;
    const ls_tensor of = ls_tensor_slice(cache, 0, row, 1);
    if (!read[row] || written) relation_poison(&of);
  }
  free(read);
  return LS_OK;
}

/* A slot of the window that no query reads: all at the start; later those that are still empty, and the one that is written. */
static bool slot_unread(const relation *r, const ls_attn_plan *plan, int64_t slot) {
  return plan->start_pos == 0 || slot > plan->start_pos || slot == plan->start_pos % config_of(r)->window_size;
}

/* The slots of the pooling state that the step writes: the token's own, or those of the tokens that wait after a prefill. */
static void poison_pool(relation *r, const ls_attn_plan *plan, int64_t layer) {
  static const char *const states[] = {"kv_state", "score_state"};
  for (int i = 0; i < 2; i++) {
    const ls_tensor *pool = relation_of_layer(r->from, layer, states[i]);
    if (pool == NULL) continue;
    const bool own = layer == plan->layer, prefill = plan->start_pos == 0;
    const int64_t first = own && !prefill ? plan->start_pos % plan->ratio : 0, slots = !own      ? pool->dim[0]
                                                                                       : prefill ? plan->m % plan->ratio
                                                                                                 : 1;
    const ls_tensor of = ls_tensor_slice(pool, 0, first, slots);
    relation_poison(&of);
  }
}

/* Other layers' rows, empty slots, unselected rows, unseen keys: all NaN; every output must have the bits that it had (layers.md: a NaN in
 * a selected row makes a query's heads NaN, one elsewhere does nothing). */
static ls_status judge_unseen(relation *r, ls_error *err) {
  const ls_layer *stages = r->v->config->layer;
  const ls_attn_config *c = config_of(r);
  const ls_attn_plan plan = plan_of(r);
  LS_TRY(relation_start(r, err));
  for (int64_t l = 0; l < c->n_layers; l++) {
    const ls_tensor *window = relation_of_layer(r->from, l, "window");
    for (int64_t slot = 0; window != NULL && slot < window->dim[0]; slot++) {
      const ls_tensor of = ls_tensor_slice(window, 0, slot, 1);
      if (l != plan.layer || slot_unread(r, &plan, slot)) relation_poison(&of);
    }
    poison_pool(r, &plan, l);
    LS_TRY(poison_cache(r, &plan, l, "compress_cache", "compress_source", mark_selected, err));
    LS_TRY(poison_cache(r, &plan, l, "index_cache", "index_source", mark_scored, err));
  }
  LS_TRY(relation_run(r, own(r), &r->s->step, r->s->lead, err));
  for (int i = 0; i < stages->n_stages; i++) {
    const ls_stage *stage = &stages->stages[i];
    if (strcmp(stage->name, "window") != 0) LS_TRY(relation_hold_scaled(r, stage->name, 1, err));
  }
  const ls_tensor *was = ls_trace_tensor(r->was->out, "window"), *is = ls_trace_tensor(r->is.out, "window");
  for (int64_t slot = 0; was != NULL && is != NULL && slot < c->window_size; slot++) { /* a slot that stays unread stays NaN */
    if (slot_unread(r, &plan, slot) && ls_attn_row_of_slot(c, &plan, slot) < 0) continue;
    const ls_tensor expected = ls_tensor_slice(was, 0, slot, 1), found = ls_tensor_slice(is, 0, slot, 1);
    relation_hold(r, "window", &expected, &found, NULL, NULL);
  }
  return LS_OK;
}

/* ---- decoded: a prefill of m tokens is a prefill of m - 1 and a step of one ----
 * Of layers that make all that they read. The window that the first m - 1 tokens leave must hold the prefill's kv, byte for byte up to 16
 * rows (layers.md). Then the step of one is given what the prefill made of its last token and, in its caches, of the others: each stage
 * must come to the same within its own bound, however differently a path decodes. */

/* The last query's choice, as a step of one makes it: compressed entries start behind another row set. */
static ls_status give_choice(relation *r, const ls_attn_plan *plan, ls_error *err) {
  static const char *const choices[] = {"compress_idx", "candidates"};
  for (int i = 0; i < 2; i++) {
    const ls_tensor *led = ls_trace_tensor(r->s->lead, choices[i]);
    ls_tensor one;
    if (led == NULL) continue;
    const ls_tensor last = ls_tensor_slice(led, 0, plan->m - 1, 1);
    LS_TRY(relation_copy(r, &last, &one, err));
    for (int64_t k = 0; i == 0 && k < ls_tensor_count(&one); k++) {
      const double entry = ls_tensor_get(&one, k);
      if (entry >= 0) ls_tensor_set(&one, k, entry - (double)plan->rows_a + (double)config_of(r)->window_size);
    }
    LS_TRY(relation_give(r, choices[i], &one, err));
  }
  return LS_OK;
}

/* Some rows of what the prefill made of a stage, as what the step of one must make of it. */
static ls_status expect_rows(relation *r, const ls_stage *stage, int64_t row, int64_t rows, bool exact, ls_error *err) {
  const ls_tensor *was = ls_trace_tensor(r->was->out, stage->name), *bound;
  LS_TRY(relation_bound(r, stage->name, &bound, err));
  if (was == NULL || bound == NULL || was->dim[0] < row + rows) return LS_OK;
  const ls_tensor expected = ls_tensor_slice(was, 0, row, rows), within = ls_tensor_slice(bound, 0, row, rows);
  return relation_expect(r, stage->name, &expected, exact ? NULL : &within, err);
}

/* The window of r->from against the prefill's rows, which then take its place; caches likewise, unjudged. */
static ls_status stand_at_prefill(relation *r, const ls_attn_plan *plan, ls_error *err) {
  static const char *const caches[] = {"compress_cache", "index_cache"};
  const ls_tensor *kv = ls_trace_tensor(r->was->out, "kv"), *bound, *window = relation_of_layer(r->from, plan->layer, "window");
  const int64_t slots = config_of(r)->window_size;
  LS_TRY(relation_bound(r, "kv", &bound, err));
  for (int64_t row = plan->m > slots ? plan->m - slots : 0; kv != NULL && window != NULL && row < plan->m - 1; row++) {
    const ls_tensor expected = ls_tensor_slice(kv, 0, row, 1), found = ls_tensor_slice(window, 0, row % slots, 1);
    if (plan->m <= LS_INVARIANT_ROWS) relation_hold(r, "kv", &expected, &found, NULL, NULL);
    LS_TRY(ls_tensor_copy(&found, &expected, err));
  }
  for (int i = 0; i < 2; i++) {
    const ls_tensor *to = relation_of_layer(r->from, plan->layer, caches[i]),
                    *from = relation_of_layer(r->was->after, plan->layer, caches[i]);
    for (int64_t row = 0; to != NULL && from != NULL && row < to->dim[0] && row < from->dim[0]; row++) {
      const ls_tensor a = ls_tensor_slice(to, 0, row, 1), b = ls_tensor_slice(from, 0, row, 1);
      LS_TRY(ls_tensor_copy(&a, &b, err));
    }
  }
  return LS_OK;
}

static ls_status judge_decoded(relation *r, ls_error *err) {
  const ls_layer *layer = r->v->config->layer;
  const ls_attn_plan plan = plan_of(r);
  if (plan.m < 2 || plan.start_pos != 0 || plan.masked || (plan.ratio > 0 && !plan.kv_source)) return LS_OK;
  const ls_tensor before = ls_tensor_slice(&r->s->input, 0, 0, plan.m - 1), last = ls_tensor_slice(&r->s->input, 0, plan.m - 1, 1);
  ls_step prefill, decode;
  const ls_step *steps[] = {&prefill};
  bool refused = false;
  LS_TRY(with_input(r, &before, &prefill, err));
  prefill.rows = plan.m - 1;
  LS_TRY(ls_run_sequence(own(r), steps, 1, r->was->before, &r->from, &refused, err));
  if (refused) {
    relation_fail(r, "a prefill of one row less was refused");
    return LS_OK;
  }
  ls_trace_free(r->in);
  r->in = NULL;
  LS_TRY(with_input(r, &last, &decode, err));
  decode.rows = 1;
  decode.start_pos = plan.m - 1;
  LS_TRY(stand_at_prefill(r, &plan, err));
  for (int i = 0; i < layer->n_stages; i++) {
    const ls_stage *stage = &layer->stages[i];
    if (stage->holds != LS_HOLDS_VALUES && stage->holds != LS_HOLDS_F32) continue; /* indices count from another row set */
    if (along(stage, "row"))
      LS_TRY(expect_rows(r, stage, plan.m - 1, 1, strncmp(stage->name, "kv", 2) == 0 && plan.m <= LS_INVARIANT_ROWS, err));
    if (plan.kv_source && along(stage, "latent") && plan.m % plan.ratio == 0) LS_TRY(expect_rows(r, stage, plan.g - 1, 1, false, err));
  }
  LS_TRY(give_choice(r, &plan, err));
  LS_TRY(relation_run(r, own(r), &decode, r->given, err));
  relation_hold_expected(r);
  return LS_OK;
}

/* ---- hull: an output lies between the rows that it is made of ----
 * A head's output is a weighted mean of the query's rows and of a zero (the sink), weights of one sign: in no channel can it leave what
 * they span. The weights are rounded to bfloat16 against an unrounded sum (2^-9), the result once (2^-9): twice that is allowed. */
static ls_status judge_hull(relation *r, ls_error *err) {
  const ls_attn_config *c = config_of(r);
  const ls_attn_plan plan = plan_of(r);
  const ls_tensor *o = ls_trace_tensor(r->was->out, "sparse_o"), *idx = ls_trace_tensor(r->was->out, "idx"),
                  *rows_a =
                      plan.start_pos == 0 ? ls_trace_tensor(r->was->out, "kv") : relation_of_layer(r->was->after, plan.layer, "window"),
                  *rows_b = relation_of_layer(r->was->after, session_state_int(r->was->after, "compress_source"), "compress_cache");
  if (o == NULL || idx == NULL || rows_a == NULL || o->dim[0] != plan.m || idx->dim[0] != plan.m || o->dim[1] != c->q_dim) return LS_OK;
  double *low = malloc((size_t)c->head_dim * sizeof *low), *high = malloc((size_t)c->head_dim * sizeof *high);
  ls_result fact = session_fact(true);
  fact.count = 0;
  for (int64_t t = 0; low != NULL && high != NULL && t < plan.m; t++) {
    bool finite = true;
    for (int64_t d = 0; d < c->head_dim; d++) low[d] = high[d] = 0;
    for (int64_t k = 0; k < idx->dim[1]; k++) {
      const int64_t entry = (int64_t)ls_tensor_get(idx, t * idx->dim[1] + k);
      const ls_tensor *rows = entry < plan.rows_a ? rows_a : rows_b;
      const int64_t row = entry < plan.rows_a ? entry : entry - plan.rows_a;
      for (int64_t d = 0; entry >= 0 && rows != NULL && row < rows->dim[0] && d < c->head_dim; d++) {
        const double value = ls_tensor_get(rows, row * c->head_dim + d);
        finite = finite && isfinite(value);
        if (value < low[d]) low[d] = value;
        if (value > high[d]) high[d] = value;
      }
    }
    for (int64_t i = 0; finite && i < c->q_dim; i++) {
      const int64_t d = i % c->head_dim;
      const double value = ls_tensor_get(o, t * c->q_dim + i), most = high[d] > -low[d] ? high[d] : -low[d], slack = 0x1p-7 * most;
      fact.count++;
      if (value >= low[d] - slack && value <= high[d] + slack) continue;
      fact.failing++;
      if (fact.verdict == LS_FAIL) continue;
      fact.verdict = LS_FAIL;
      snprintf(fact.note, sizeof fact.note,
               "sparse_o row %" PRId64 " head %" PRId64 " channel %" PRId64 ": %.6g, of rows within [%.6g, %.6g]", t, i / c->head_dim, d,
               value, low[d], high[d]);
    }
  }
  const bool room = low != NULL && high != NULL;
  free(low);
  free(high);
  if (!room) return ls_fail(err, LS_INTERNAL, "out of memory for %" PRId64 " channels", c->head_dim);
  fact.bit_equal = fact.count - fact.failing;
  if (fact.count > 0) ls_result_merge(&r->result, &fact);
  return LS_OK;
}

/* ---- twins ---- */

/* ---- permuted: heads, groups of heads and index heads in reverse order, and all that belongs to them ----
 * Reversing all heads reverses the groups and the heads within each. The last sums run in another order: within the bounds. */
static ls_status permute(ls_config *config, const ls_trace *weights, ls_error *err) {
  const ls_attn_config *c = &config->attn;
  for (int64_t l = 0; l < c->n_layers; l++) {
    LS_TRY(relation_reverse(relation_of_layer(weights, l, "wq_b"), (relation_turn){0, c->head_dim}, err));
    LS_TRY(relation_reverse(relation_of_layer(weights, l, "attn_sink"), (relation_turn){0, 1}, err));
    LS_TRY(relation_reverse(relation_of_layer(weights, l, "wo_a"), (relation_turn){0, c->o_lora_rank}, err));
    LS_TRY(relation_reverse(relation_of_layer(weights, l, "wo_a"), (relation_turn){1, c->head_dim}, err));
    LS_TRY(relation_reverse(relation_of_layer(weights, l, "wo_b"), (relation_turn){1, c->o_lora_rank}, err));
    if (!ls_attn_is_index_source(c, l)) continue;
    LS_TRY(relation_reverse(relation_of_layer(weights, l, "indexer/wq_b"), (relation_turn){0, c->index_head_dim}, err));
    LS_TRY(relation_reverse(relation_of_layer(weights, l, "indexer/weights_proj"), (relation_turn){0, 1}, err));
  }
  return LS_OK;
}

static ls_status judge_permuted(relation *r, ls_error *err) {
  const ls_attn_config *c = config_of(r);
  const ls_layer *layer = r->v->config->layer;
  ls_run *twin;
  LS_TRY(relation_twin(r, RELATION_PERMUTED, permute, &twin, err));
  LS_TRY(relation_start(r, err));
  for (int i = 0; i < layer->n_stages; i++) {
    const ls_stage *stage = &layer->stages[i];
    const bool of_index = strncmp(stage->name, "index_q", 7) == 0 || strncmp(stage->name, "index_w", 7) == 0;
    const bool group = strcmp(stage->name, "o_group") == 0;
    const int64_t block = group                   ? c->o_lora_rank
                          : !of_index             ? (stage->head_dim_field ? c->head_dim : 0)
                          : stage->name[6] == 'w' ? 1
                                                  : c->index_head_dim;
    const relation_turn turns[] = {{1, block}, {0, 0}};
    if (stage->holds == LS_HOLDS_VALUES) LS_TRY(relation_expect_turned(r, stage->name, turns, false, err));
  }
  LS_TRY(relation_follow(r, err));
  LS_TRY(relation_run(r, twin, &r->s->step, r->given, err));
  relation_hold_expected(r);
  return LS_OK;
}

/* ---- scaled: weights times powers of two ----
 * Multiplying by a power of two commutes with every rounding, as long as no number leaves the exponents. Twice wq_a, wkv, compressor/wkv
 * and indexer/wk with four times norm_eps leave every norm the same to the bit, and so all that follows it: kv, rows, scores, selection.
 * Twice indexer/wq_b and weights_proj makes scores four times as large, of the same order, so the selection stays; a power-of-two grid
 * follows. Twice wo_a and wo_b: out is four times what it was. */
static ls_status scale(ls_config *config, const ls_trace *weights, ls_error *err) {
  static const char *const doubled[] = {"wq_a",           "wkv",        "wo_a",         "wo_b",
                                        "compressor/wkv", "indexer/wk", "indexer/wq_b", "indexer/weights_proj"};
  (void)err;
  config->attn.norm_eps *= 4;
  for (int64_t l = 0; l < config->attn.n_layers; l++) {
    for (size_t i = 0; i < sizeof doubled / sizeof doubled[0]; i++) {
      const ls_tensor *t = relation_of_layer(weights, l, doubled[i]);
      if (t != NULL) relation_scale(t, 2);
    }
  }
  return LS_OK;
}

static double factor_of(const char *stage) {
  static const char *const twice[] = {"qr_proj",      "kv_proj", "latent_pool",  "kv_state", "index_k_proj", "index_q_proj",
                                      "index_q_rope", "index_q", "index_w_proj", "index_w",  "o_group"};
  for (size_t i = 0; i < sizeof twice / sizeof twice[0]; i++)
    if (strcmp(stage, twice[i]) == 0) return 2;
  return strcmp(stage, "index_score") == 0 || strcmp(stage, "out") == 0 ? 4 : 1;
}

static ls_status judge_scaled(relation *r, ls_error *err) {
  const ls_layer *layer = r->v->config->layer;
  if (r->v->config->act != LS_BF16 || !relation_is_ordinary(&r->s->input)) return LS_OK;
  ls_run *twin;
  LS_TRY(relation_twin(r, RELATION_SCALED, scale, &twin, err));
  LS_TRY(relation_start(r, err));
  for (int64_t l = 0; l < config_of(r)->n_layers; l++) { /* who waits was made by the weights as they were */
    const ls_tensor *waits = relation_of_layer(r->from, l, "kv_state");
    if (waits != NULL) relation_scale(waits, 2);
  }
  LS_TRY(relation_run(r, twin, &r->s->step, r->s->lead, err));
  for (int i = 0; i < layer->n_stages; i++) LS_TRY(relation_hold_scaled(r, layer->stages[i].name, factor_of(layer->stages[i].name), err));
  return LS_OK;
}

/* ---- duplicated: head 1 has the weights of head 0, of queries, sinks and index heads ----
 * Then it must come out as head 0 does, within the bound. */
static ls_status duplicate(ls_config *config, const ls_trace *weights, ls_error *err) {
  const ls_attn_config *c = &config->attn;
  for (int64_t l = 0; l < c->n_layers; l++) {
    LS_TRY(relation_duplicate(relation_of_layer(weights, l, "wq_b"), 0, c->head_dim, err));
    LS_TRY(relation_duplicate(relation_of_layer(weights, l, "attn_sink"), 0, 1, err));
    if (!ls_attn_is_index_source(c, l)) continue;
    LS_TRY(relation_duplicate(relation_of_layer(weights, l, "indexer/wq_b"), 0, c->index_head_dim, err));
    LS_TRY(relation_duplicate(relation_of_layer(weights, l, "indexer/weights_proj"), 0, 1, err));
  }
  return LS_OK;
}

static ls_status judge_duplicated(relation *r, ls_error *err) {
  const ls_attn_config *c = config_of(r);
  const struct {
    const char *stage;
    int64_t width;
  } heads[] = {{"q_proj", c->head_dim}, {"q", c->head_dim},        {"index_q", c->index_head_dim},
               {"index_w", 1},          {"sparse_o", c->head_dim}, {"o_rot", c->head_dim}};
  ls_run *twin;
  LS_TRY(relation_twin(r, RELATION_DUPLICATED, duplicate, &twin, err));
  LS_TRY(relation_start(r, err));
  LS_TRY(relation_run(r, twin, &r->s->step, r->s->lead, err));
  for (size_t i = 0; i < sizeof heads / sizeof heads[0]; i++) {
    const ls_tensor *t = ls_trace_tensor(r->is.out, heads[i].stage), *bound;
    ls_tensor expected, within;
    LS_TRY(relation_bound(r, heads[i].stage, &bound, err));
    if (t == NULL || bound == NULL) continue;
    LS_TRY(relation_copy(r, t, &expected, err));
    LS_TRY(relation_copy(r, bound, &within, err));
    LS_TRY(relation_duplicate(&expected, 1, heads[i].width, err));
    LS_TRY(relation_duplicate(&within, 1, heads[i].width, err));
    LS_TRY(relation_expect(r, heads[i].stage, &expected, &within, err));
  }
  LS_TRY(relation_follow(r, err));
  LS_TRY(relation_run(r, twin, &r->s->step, r->given, err)); /* each stage of what head 0 made, twice */
  relation_hold_expected(r);
  return LS_OK;
}

static const relation_kind kinds[] = {{"causal", judge_causal},     {"rows", judge_rows},       {"replayed", judge_replayed},
                                      {"unseen", judge_unseen},     {"decoded", judge_decoded}, {"hull", judge_hull},
                                      {"permuted", judge_permuted}, {"scaled", judge_scaled},   {"duplicated", judge_duplicated}};

ls_status session_relations_attn(session *v, const step_run *s, int p, ls_error *err) {
  return relation_judge_all(v, s, p, kinds, sizeof kinds / sizeof kinds[0], err);
}
