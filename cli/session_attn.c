/* attn_v41 in a verify session: selections that all paths follow, how they are judged, and what must hold after each forward. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_numeric.h"
#include "../layers/ls_attn.h"
#include "../ref/ref_attn.h"
#include "../ref/ref_rope.h"
#include "session_internal.h"

static const ls_attn_config *config_of(const session *v) { return &v->config->attn; }

static ls_attn_plan plan_of(const session *v, const step_run *s) {
  ls_attn_plan plan;
  ls_attn_plan_shapes(config_of(v), &s->step, &plan);
  return plan;
}

static void layer_name(char *buf, size_t size, int64_t layer, const char *tensor) {
  snprintf(buf, size, "layers/%" PRId64 "/%s", layer, tensor);
}

static const ls_tensor *layer_tensor(const ls_trace *state, int64_t layer, const char *tensor) {
  char name[LS_MAX_SPEC_NAME];
  layer_name(name, sizeof name, layer, tensor);
  return ls_trace_tensor(state, name);
}

/* ---- running ---- */

static ls_status attn_open(session *v, const ls_trace *start, ls_error *err) {
  const ls_attn_config *c = config_of(v);
  LS_TRY(session_history_new(v, c->n_layers, err));
  for (int64_t l = 0; l < c->n_layers; l++) {
    LS_TRY(ls_ring_history_new(&v->history[l], 1, c->window_size, c->head_dim, err));
    const ls_tensor *window = layer_tensor(start, l, "window");
    if (window != NULL) LS_TRY(ls_ring_history_state(v->history[l], window, NULL, session_state_int(start, "position"), err));
  }
  return LS_OK;
}

/* One selection for all: a legal tie, or a near tie, that falls differently on one path is judged where it is made, and is not a difference
 * in everything after it. */
static ls_status attn_lead(session *v, step_run *s, ls_error *err) {
  static const char *const choices[] = {"compress_idx", "candidates"};
  (void)v;
  for (int i = 0; i < 2; i++) {
    const ls_tensor *t = ls_trace_tensor(s->step.expect, choices[i]);
    if (t == NULL) t = ls_trace_tensor(s->cascaded[0].out, choices[i]);
    if (t == NULL || ls_trace_find(s->lead, choices[i]) != NULL) continue;
    if (s->lead == NULL) LS_TRY(ls_trace_new(&s->lead, "lead", err));
    LS_TRY(ls_trace_add_view(s->lead, choices[i], t, err));
  }
  return LS_OK;
}

static ls_status attn_written(session *v, step_run *s, ls_error *err) {
  (void)v;
  if (s->cascaded[0].status != LS_OK) return LS_OK;
  const ls_tensor *x = ls_trace_tensor(s->step.in, "x");
  if (x == NULL) return ls_fail(err, LS_INTERNAL, "step %" PRId64 " ran without x", s->step.number);
  s->base = s->step.start_pos;
  s->rows = s->step.rows;
  s->input = *x;
  s->staged = true;
  return LS_OK;
}

static ls_status attn_remember(session *v, const step_run *s, ls_error *err) {
  if (!s->staged) return LS_OK;
  const ls_tensor *kv = ls_trace_tensor(s->cascaded[0].out, "kv");
  if (kv == NULL) return LS_OK;
  return ls_ring_history_write(v->history[s->step.layer], s->step.number, "forward", s->base, s->rows, kv, NULL,
                               ls_trace_tensor(s->bounds, "kv"), NULL, err);
}

/* ---- stages ---- */

static ls_place_names attn_names(const session *v, const step_run *s, const ls_stage *stage) {
  const ls_attn_plan plan = plan_of(v, s);
  ls_place_names names = {.base = s->base, .newest = s->base + s->rows - 1};
  if (strncmp(stage->axes, "slot", 4) == 0) names.capacity = strcmp(stage->name, "window") == 0 ? config_of(v)->window_size : plan.ratio;
  if (strncmp(stage->axes, "latent", 6) == 0) {
    names.base = ls_attn_group_position(&plan, 0);
    names.stride = plan.ratio;
  }
  if (stage->head_dim_field != 0) names.head_dim = *(const int64_t *)((const char *)v->config + stage->head_width);
  return names;
}

static int64_t attn_sub(const step_run *s) { return s->step.layer; }

/* Scores that a selection was made by, and what they may be off by in all. Memory: free with selection_free. */
typedef struct {
  ls_selection of;
  ls_tensor bound;
} selection;

static void selection_free(selection *s) { free(s->bound.data); }

/* Steps and bound of index_score, in one number an element. */
static ls_status total_of(ls_tensor *total, const session *v, const ls_tensor *score, const ls_tensor *bound, ls_error *err) {
  const ls_stage *stage = ls_stage_find(v->config->layer, "index_score");
  const int64_t n = ls_tensor_count(score);
  float *data = malloc((size_t)n * sizeof *data + 1);
  if (data == NULL) return ls_fail(err, LS_INTERNAL, "out of memory for the bounds of %" PRId64 " scores", n);
  for (int64_t i = 0; i < n; i++) {
    const double value = ls_tensor_get(score, i);
    data[i] = isfinite(value) ? (float)(stage->steps * ls_step_at(v->config->act, value) + ls_tensor_get(bound, i)) : 0;
  }
  *total = ls_tensor_make(LS_F32, score->ndim, score->dim, data);
  return LS_OK;
}

/* The selection of one side as it is judged. Isolated, all sides chose by the scores that they were given; but the fixture by its own,
 * which differ from those by `bound` where it does not hold them. Of a digest, whose scores are not kept, the reference's stand in: they
 * differ by `bound` too. */
static ls_status selection_of(selection *out, session *v, const step_run *s, int side, ls_mode mode, const char *what,
                              const ls_trace *bounds, ls_error *err) {
  memset(out, 0, sizeof *out);
  const ls_trace *trace = session_out(s, side, mode);
  const ls_tensor *own = ls_trace_tensor(s->step.expect, "index_score"), *bound = ls_trace_tensor(bounds, "index_score");
  out->of.idx = ls_trace_tensor(trace, what);
  out->of.score = mode == LS_ISOLATED ? ls_trace_tensor(s->given, "index_score") : ls_trace_tensor(trace, "index_score");
  if (side < 0 && own == NULL) out->of.score = ls_trace_tensor(s->given, "index_score");
  if (out->of.score == NULL && session_is_digest(v, side)) out->of.score = ls_trace_tensor(s->cascaded[0].out, "index_score");
  if (out->of.score == NULL) return ls_fail(err, LS_INTERNAL, "step %" PRId64 ": a selection without scores", s->step.number);
  const bool off = mode == LS_CASCADED || (side < 0 && own == NULL);
  if (!off || bound == NULL || !ls_tensor_same_shape(out->of.score, bound)) return LS_OK; /* another shape is told by the comparison */
  LS_TRY(total_of(&out->bound, v, out->of.score, bound, err));
  out->of.bound = &out->bound;
  return LS_OK;
}

static ls_select_rule rule_of(const session *v, const step_run *s, ls_mode mode) {
  const ls_attn_plan plan = plan_of(v, s);
  ls_select_rule rule = {.m = plan.m, .n = plan.n, .k = plan.k, .offset = plan.rows_a, .start_pos = plan.start_pos, .ratio = plan.ratio};
  const ls_trace *before = mode == LS_CASCADED ? s->cascaded[0].before : s->isolated[0].before;
  if (plan.masked) rule.mask = ls_trace_tensor(before, "candidates"); /* one for all: it was led, or given */
  return rule;
}

static ls_candidate_rule candidate_rule(const session *v) {
  return (ls_candidate_rule){.block = config_of(v)->candidate_block_size, .topk_blocks = config_of(v)->candidate_topk_blocks};
}

/* Whether row `row` holds anything but zeros; most rows say so at once. */
static bool row_is_written(const ls_tensor *t, int64_t row) {
  enum { PIECE = 256 };
  double v[PIECE];
  const ls_tensor held = ls_tensor_at(t, row);
  bool written = t->dim[1] > 0 && ls_tensor_get(&held, 0) != 0;
  for (int64_t at = 0; at < t->dim[1] && !written; at += PIECE) {
    const int64_t n = t->dim[1] - at < PIECE ? t->dim[1] - at : PIECE;
    const ls_tensor piece = ls_tensor_slice(&held, 0, at, n);
    ls_tensor_to_f64(v, &piece);
    for (int64_t i = 0; i < n; i++) written = written || v[i] != 0;
  }
  return written;
}

/* A key that was never written is zero, and so are its scores, on any path: such scores must agree, and prove nothing. */
static void discount_unwritten(const step_run *s, ls_mode mode, const ls_compare_args *args, ls_result *result) {
  const ls_trace *after = mode == LS_CASCADED ? s->cascaded[0].after : s->isolated[0].after;
  const ls_tensor *keys = layer_tensor(after, session_state_int(after, "index_source"), "index_cache");
  const int64_t m = args->a->dim[0], n = args->a->dim[1];
  if (result->verdict != LS_PASS && result->verdict != LS_MISTRUSTED) return;
  for (int64_t j = 0; j < n; j++) {
    const bool written = keys != NULL && j < keys->dim[0] && row_is_written(keys, j);
    for (int64_t t = 0; t < m && !written; t++) {
      const int64_t at = t * n + j;
      if (args->only != NULL && ls_tensor_get(args->only, at) == 0) continue;
      if (ls_tensor_get(args->a, at) != 0 || ls_tensor_get(args->b, at) != 0) continue;
      result->count--;
      result->zeros--;
      result->bit_equal--;
    }
  }
  if (result->count > 0) ls_result_judge(result); /* where nothing is left the verdict stays what it was */
}

/* A slot that no step wrote is zero, on any path: it must agree, and proves nothing. */
static void discount_empty_slots(const session *v, const step_run *s, const ls_tensor *a, const ls_tensor *b, ls_result *result) {
  const ls_attn_plan plan = plan_of(v, s);
  if (result->verdict != LS_PASS && result->verdict != LS_MISTRUSTED) return;
  for (int64_t slot = 0; slot < a->dim[0]; slot++) {
    if (ls_attn_row_of_slot(config_of(v), &plan, slot) >= 0) continue; /* written now, whatever it holds */
    bool empty = true;
    for (int64_t i = slot * a->dim[1]; i < (slot + 1) * a->dim[1] && empty; i++) {
      empty = ls_tensor_get(a, i) == 0 && ls_tensor_get(b, i) == 0;
    }
    if (!empty) continue;
    result->count -= a->dim[1];
    result->zeros -= a->dim[1];
    result->bit_equal -= a->dim[1];
    result->rows--;
  }
  if (result->count > 0) ls_result_judge(result);
}

static void attn_discount(const session *v, const step_run *s, ls_mode mode, const ls_compare_args *args, ls_result *result) {
  if (strcmp(args->stage->name, "index_score") == 0) discount_unwritten(s, mode, args, result);
  if (strcmp(args->stage->name, "window") == 0) discount_empty_slots(v, s, args->a, args->b, result);
}

/* Of an index source after the candidate source only the scores inside the mask. */
static const ls_tensor *attn_defined(const session *v, const step_run *s, const ls_stage *stage, ls_mode mode) {
  return strcmp(stage->name, "index_score") == 0 ? rule_of(v, s, mode).mask : NULL;
}

static ls_status attn_special(session *v, const step_run *s, const ls_stage *stage, int a, int b, ls_mode mode, const ls_trace *bounds,
                              bool *handled, ls_result *result, ls_error *err) {
  *handled = stage->holds == LS_HOLDS_INDICES || stage->holds == LS_HOLDS_SELECTION || stage->holds == LS_HOLDS_MASK;
  if (stage->holds == LS_HOLDS_INDICES) {
    const ls_place_names names = attn_names(v, s, stage);
    ls_compare_indices(result, stage, ls_trace_tensor(session_out(s, a, mode), stage->name),
                       ls_trace_tensor(session_out(s, b, mode), stage->name), &names);
  }
  if (stage->holds != LS_HOLDS_SELECTION && stage->holds != LS_HOLDS_MASK) return LS_OK;
  const ls_select_rule rule = rule_of(v, s, mode);
  selection sa, sb = {.bound = {.data = NULL}};
  ls_status status = selection_of(&sa, v, s, a, mode, stage->name, bounds, err);
  if (status == LS_OK) status = selection_of(&sb, v, s, b, mode, stage->name, bounds, err);
  if (status == LS_OK && stage->holds == LS_HOLDS_SELECTION) {
    ls_compare_selections(result, &sa.of, &sb.of, &rule);
    const int64_t row = result->has_worst ? result->worst_index[0] : rule.m - 1; /* the last query sees most */
    if (v->detail != NULL) ls_selection_view(&v->detail->choice, &sa.of, &sb.of, &rule, row);
  } else if (status == LS_OK) {
    const ls_candidate_rule blocks = candidate_rule(v);
    ls_compare_candidate_masks(result, &sa.of, &sb.of, &rule, &blocks);
  }
  selection_free(&sa);
  selection_free(&sb);
  return status;
}

/* A wrong slot of the window: what does it hold? */
static void attn_explain(session *v, const step_run *s, const ls_stage *stage, const ls_tensor *a, const ls_tensor *b, ls_result *result) {
  if (strcmp(stage->name, "window") != 0) return;
  ls_result ring;
  ls_result_init(&ring);
  ls_compare_ring(&ring, v->history[s->step.layer], stage, v->config->act, false, a, b, 0, 0);
  if (ring.verdict == LS_FAIL && ring.note[0] != '\0') snprintf(result->note, sizeof result->note, "%s", ring.note);
}

static void attn_show(session *v, const step_run *s, const ls_stage *stage, const ls_tensor *a, const ls_tensor *b) {
  if (strcmp(stage->name, "window") != 0) return;
  ls_result ring;
  ls_compare_ring_slots(&ring, &v->detail->ring, v->history[s->step.layer], stage, v->config->act, false, a, b);
}

/* ---- properties ---- */

/* Rows of a tensor of the state that a step may change. */
typedef struct {
  const ls_attn_config *config;
  const ls_attn_plan *plan;
} writes;

static bool may_write_slot(const writes *w, int64_t row) { return ls_attn_row_of_slot(w->config, w->plan, row) >= 0; }

static bool may_write_cache(const writes *w, int64_t row) { return row >= w->plan->first_row && row < w->plan->first_row + w->plan->g; }

/* Where the tokens of the open group wait: those of this step only. */
static bool may_write_pool(const writes *w, int64_t row) {
  const int64_t start = w->plan->start_pos, m = w->plan->m, ratio = w->plan->ratio;
  const int64_t first = start == 0 ? m - m % ratio : start; /* at start_pos 0 whole groups never wait */
  for (int64_t p = first; p < start + m; p++)
    if (p % ratio == row) return true;
  return false;
}

/* Every row outside `may` the same bytes in both; rows that one side does not hold count as never written. */
static bool same_rows(const ls_tensor *a, const ls_tensor *b, const writes *w, bool (*may)(const writes *, int64_t), int64_t *row) {
  const int64_t rows_a = a != NULL ? a->dim[0] : 0, rows_b = b != NULL ? b->dim[0] : 0;
  for (int64_t r = 0; r < rows_a || r < rows_b; r++) {
    *row = r;
    if (may != NULL && may(w, r)) continue;
    if (r >= rows_a || r >= rows_b) { /* a cache is saved up to its last written row */
      const ls_tensor held = ls_tensor_slice(r < rows_a ? a : b, 0, r, 1);
      for (int64_t i = 0; i < ls_tensor_count(&held); i++)
        if (ls_tensor_get(&held, i) != 0) return false;
      continue;
    }
    const ls_tensor ra = ls_tensor_slice(a, 0, r, 1), rb = ls_tensor_slice(b, 0, r, 1);
    if (!ls_tensor_same_bytes(&ra, &rb)) return false;
  }
  return true;
}

/* Whether a tensor of the state may change in this step at all, and in which rows (NULL in *may: anywhere). */
static bool may_change(const char *name, const ls_attn_plan *p, bool refused, bool (**may)(const writes *, int64_t)) {
  static const struct {
    const char *tensor;
    bool (*rows)(const writes *, int64_t);
    bool of_source;
  } of_layer[] = {{"window", may_write_slot, false},
                  {"compress_cache", may_write_cache, true},
                  {"index_cache", may_write_cache, true},
                  {"kv_state", may_write_pool, true},
                  {"score_state", may_write_pool, true}};
  *may = NULL;
  if (refused) return false;
  char full[LS_MAX_SPEC_NAME];
  for (size_t i = 0; i < sizeof of_layer / sizeof of_layer[0]; i++) {
    layer_name(full, sizeof full, p->layer, of_layer[i].tensor);
    if (strcmp(name, full) != 0) continue;
    *may = of_layer[i].rows;
    return !of_layer[i].of_source || p->kv_source;
  }
  if (strcmp(name, "compress_source") == 0 || strcmp(name, "index_source") == 0) return p->kv_source;
  if (strncmp(name, "topk_", 5) == 0) return p->index_source;
  if (strncmp(name, "candidate", 9) == 0) return p->candidate_source;
  return false;
}

/* What a forward may write, and nothing else: its layer's window slots, a source's cache rows and pooling slots, and what it publishes. */
static void judge_write_set(const session *v, const step_run *s, const ls_run_result *r, ls_result *result) {
  const ls_attn_plan plan = plan_of(v, s);
  const writes w = {config_of(v), &plan};
  const bool refused = r->status == LS_REFUSED;
  *result = session_fact(true);
  result->count = 0;
  for (int pass = 0; pass < 2; pass++) { /* what after holds, then what only before held */
    const ls_trace *from = pass == 0 ? r->after : r->before, *other = pass == 0 ? r->before : r->after;
    for (int i = 0; i < from->n; i++) {
      const char *name = from->rec[i].name;
      const ls_tensor *t = &from->rec[i].t, *u = ls_trace_tensor(other, name);
      if (pass == 1 && u != NULL) continue;
      bool (*may)(const writes *, int64_t);
      const bool changes = may_change(name, &plan, refused, &may);
      if (changes && may == NULL) continue;
      int64_t row = 0;
      result->count++;
      const bool same = u != NULL && t->ndim != u->ndim ? false : same_rows(u, t, &w, changes ? may : NULL, &row);
      if (same) continue;
      result->failing++;
      if (result->verdict == LS_FAIL) continue;
      result->verdict = LS_FAIL;
      snprintf(result->note, sizeof result->note, "%s: row %" PRId64 " changed, and %s", name, row,
               refused ? "the step was refused" : "the step does not write there");
    }
  }
}

/* What is published is exact: it must be the reference's. */
static ls_status judge_published(session *v, const step_run *s, int p, ls_error *err) {
  ls_result result = session_fact(true);
  for (int i = 0; i < LS_ATTN_PUBLISHED; i++) {
    const char *name = ls_attn_published[i].name;
    const int64_t expected = session_state_int(s->cascaded[0].after, name);
    const int64_t found = session_state_int(s->cascaded[p].after, name);
    if (expected == found || result.verdict == LS_FAIL) continue;
    result = session_fact(false);
    snprintf(result.note, sizeof result.note, "%s after the step: expected %" PRId64 ", found %" PRId64, name, expected, found);
  }
  return session_property(v, s, "state", p, &result, err);
}

static void compare_stored(ls_result *result, const char *stage, const ls_tensor *rows, int64_t row, const ls_tensor *store, int64_t at,
                           const char *name) {
  bool same =
      store != NULL && at < store->dim[0] && store->ndim == 2 && rows->ndim == 2 && row < rows->dim[0] && store->dim[1] == rows->dim[1];
  if (same) {
    const ls_tensor a = ls_tensor_slice(rows, 0, row, 1), b = ls_tensor_slice(store, 0, at, 1);
    same = ls_tensor_same_bytes(&a, &b);
  }
  result->count++;
  if (same) return;
  result->failing++;
  if (result->verdict == LS_FAIL) return;
  result->verdict = LS_FAIL;
  snprintf(result->note, sizeof result->note, "%s: row %" PRId64 " does not hold the recorded %s of row %" PRId64, name, at, stage, row);
}

/* What a path published must be the choice that it was to follow. */
static void compare_published(ls_result *result, const step_run *s, const ls_trace *after, const char *stage, const char *name) {
  const ls_tensor *led = ls_trace_tensor(s->lead, stage), *published = ls_trace_tensor(after, name);
  if (led == NULL || ls_tensor_count(led) == 0) return;
  result->count++;
  if (published != NULL && ls_tensor_same_bytes(led, published)) return;
  result->failing++;
  if (result->verdict == LS_FAIL) return;
  result->verdict = LS_FAIL;
  snprintf(result->note, sizeof result->note, "%s after the step: not the %s that the path was to follow", name, stage);
}

/* What a path recorded of a stage and what it stored must be the same bytes: else one of them was not what the next reader gets. */
static ls_status judge_stored(session *v, const step_run *s, int p, ls_error *err) {
  const ls_attn_plan plan = plan_of(v, s);
  const ls_trace *out = s->cascaded[p].out, *after = s->cascaded[p].after;
  ls_result result = session_fact(true);
  result.count = 0;
  const ls_tensor *kv = ls_trace_tensor(out, "kv"), *window = layer_tensor(after, plan.layer, "window");
  for (int64_t slot = 0; kv != NULL && slot < config_of(v)->window_size; slot++) {
    const int64_t row = ls_attn_row_of_slot(config_of(v), &plan, slot);
    if (row >= 0) compare_stored(&result, "kv", kv, row, window, slot, "window");
  }
  static const char *const caches[2][2] = {{"compress_kv", "compress_cache"}, {"index_k", "index_cache"}};
  for (int i = 0; i < 2; i++) {
    const ls_tensor *rows = ls_trace_tensor(out, caches[i][0]), *cache = layer_tensor(after, plan.layer, caches[i][1]);
    for (int64_t g = 0; rows != NULL && g < plan.g; g++) {
      compare_stored(&result, caches[i][0], rows, g, cache, plan.first_row + g, caches[i][1]);
    }
  }
  if (plan.index_source) compare_published(&result, s, after, "compress_idx", "topk_idxs");
  if (plan.candidate_source) compare_published(&result, s, after, "candidates", "candidates");
  return session_property(v, s, "stored", p, &result, err);
}

/* A path's own choice, by its own scores, exactly; the fixture's by the fixture's, where any choice among equals will do. */
static ls_status judge_choice(session *v, const step_run *s, int p, ls_error *err) {
  const ls_trace *out = p < 0 ? s->step.expect : s->cascaded[p].out;
  const ls_tensor *score = ls_trace_tensor(out, "index_score"), *idx = ls_trace_tensor(out, "compress_idx"),
                  *mask = ls_trace_tensor(out, "candidates");
  ls_select_rule rule = rule_of(v, s, p < 0 ? LS_ISOLATED : LS_CASCADED);
  rule.lower_wins = p >= 0;
  ls_result result;
  if (score != NULL && idx != NULL) {
    const ls_selection of = {.idx = idx, .score = score};
    ls_result_init(&result);
    ls_compare_selection(&result, &of, &rule);
    LS_TRY(session_property(v, s, "selection", p, &result, err));
  }
  if (score != NULL && mask != NULL) {
    const ls_selection of = {.idx = mask, .score = score};
    const ls_candidate_rule blocks = candidate_rule(v);
    ls_result_init(&result);
    ls_compare_candidates(&result, &of, &rule, &blocks);
    LS_TRY(session_property(v, s, "selection", p, &result, err));
  }
  return LS_OK;
}

/* The production form (untraced, nothing given) of the same step from the same state must leave the same state, byte for byte; of what it
 * publishes, its own choice. */
static ls_status judge_untraced(session *v, const step_run *s, int p, ls_error *err) {
  const ls_step *step = &s->step;
  const ls_run_result *r = &s->cascaded[p];
  ls_trace *after = NULL;
  bool refused = false;
  ls_status status;
  if (v->recorded[p] != NULL) return session_recorded_property(v, s, p, "untraced", err);
  LS_TRY_OUT(ls_run_sequence(&v->run[p], &step, 1, r->before, &after, &refused, err));
  ls_result result = session_fact(!refused);
  if (refused) snprintf(result.note, sizeof result.note, "refused untraced, done traced");
  for (int i = 0; !refused && i < r->after->n && result.verdict == LS_PASS; i++) {
    const char *name = r->after->rec[i].name;
    const ls_tensor *a = &r->after->rec[i].t, *own = NULL, *b = ls_trace_tensor(after, name);
    if (strcmp(name, "topk_idxs") == 0) own = ls_trace_tensor(r->out, "compress_idx");
    if (strcmp(name, "candidates") == 0) own = ls_trace_tensor(r->out, "candidates");
    if (own != NULL) a = own;
    if (b != NULL && ls_tensor_same_bytes(a, b)) continue;
    result = session_fact(false);
    snprintf(result.note, sizeof result.note, "%s after the step: not the bytes that the traced step left", name);
  }
  status = session_property(v, s, "untraced", p, &result, err);
out:
  ls_trace_free(after);
  return status;
}

/* The same window, byte for byte, when the rows of a prefill of up to 16 are decoded one by one. Only a layer without compressed rows can
 * be run alone. */
static ls_status judge_split(session *v, const step_run *s, int p, ls_error *err) {
  enum { MOST = 16 };
  if (s->step.start_pos != 0 || s->rows < 2 || s->rows > MOST || plan_of(v, s).ratio != 0) return LS_OK;
  if (v->recorded[p] != NULL) return session_recorded_property(v, s, p, "split", err);
  ls_step step[MOST];
  const ls_step *steps[MOST];
  ls_tensor rows[MOST];
  ls_trace *after = NULL;
  bool refused = false;
  ls_status status = LS_OK;
  memset(step, 0, sizeof step);
  for (int64_t t = 0; t < s->rows; t++) {
    steps[t] = &step[t];
    step[t] = (ls_step){.number = s->step.number, .op = LS_OP_FORWARD, .layer = s->step.layer, .start_pos = t, .rows = 1, .cursor = -1};
    rows[t] = ls_tensor_slice(&s->input, 0, t, 1);
    LS_TRY_OUT(ls_trace_new(&step[t].in, "input", err));
    LS_TRY_OUT(ls_trace_add_view(step[t].in, "x", &rows[t], err));
  }
  LS_TRY_OUT(ls_run_sequence(&v->run[p], steps, (int)s->rows, s->cascaded[p].before, &after, &refused, err));
  ls_result result = session_fact(false);
  if (refused) {
    snprintf(result.note, sizeof result.note, "a row of the prefill, decoded alone, was refused");
  } else {
    char name[LS_MAX_SPEC_NAME];
    layer_name(name, sizeof name, s->step.layer, "window");
    const char *const names[] = {name, NULL};
    const ls_place_names place = {.newest = s->rows - 1, .capacity = config_of(v)->window_size};
    ls_compare_same_bytes(&result, s->cascaded[p].after, after, names, &place);
  }
  status = session_property(v, s, "split", p, &result, err);
out:
  for (int64_t t = 0; t < s->rows; t++) ls_trace_free(step[t].in);
  ls_trace_free(after);
  return status;
}

/* cosines and sines of the step's positions, as its layer has them: [m, rope_head_dim / 2] f32. Memory: free both data. */
static ls_status rope_tables(const session *v, const ls_attn_plan *plan, ls_tensor *cosine, ls_tensor *sine, ls_error *err) {
  const ls_attn_config *c = config_of(v);
  const int64_t half = c->rope_head_dim / 2, dim[] = {plan->m, half};
  float *freq = malloc((size_t)half * sizeof *freq);
  *cosine = ls_tensor_make(LS_F32, 2, dim, malloc((size_t)(plan->m * half) * sizeof(float)));
  *sine = ls_tensor_make(LS_F32, 2, dim, malloc((size_t)(plan->m * half) * sizeof(float)));
  if (freq == NULL || cosine->data == NULL || sine->data == NULL) {
    free(freq);
    return ls_fail(err, LS_INTERNAL, "out of memory for the angles of %" PRId64 " rows", plan->m);
  }
  ls_ref_attn_freq(freq, c, plan->ratio > 0);
  ls_ref_rope_table(cosine, sine, freq, plan->start_pos);
  free(freq);
  return LS_OK;
}

/* A path's o_rot must be its own sparse_o, turned back, within what one rotation may be off by. Where a path fuses the two, no isolated run
 * sees the fused rotation (given sparse_o, it has another kernel turn that), and the bound that o_rot inherits is wider than a turn. */
static ls_status judge_turned(session *v, const step_run *s, int p, ls_error *err) {
  const ls_stage *stage = ls_stage_find(v->config->layer, "o_rot");
  const ls_attn_config *c = config_of(v);
  const ls_attn_plan plan = plan_of(v, s);
  const ls_tensor *from = ls_trace_tensor(s->cascaded[p].out, "sparse_o"), *to = ls_trace_tensor(s->cascaded[p].out, "o_rot");
  if (from == NULL || to == NULL || !ls_tensor_same_shape(from, to)) return LS_OK;         /* judged as MISSING */
  if (from->ndim != 2 || from->dim[0] != plan.m || from->dim[1] != c->q_dim) return LS_OK; /* judged where it is made */
  ls_tensor cosine = {.data = NULL}, sine = {.data = NULL};
  ls_trace *memory = NULL, *bounds = NULL;
  ls_tensor turned, wide;
  ls_status status;
  LS_TRY_OUT(rope_tables(v, &plan, &cosine, &sine, err));
  LS_TRY_OUT(ls_trace_new(&memory, "turned", err));
  LS_TRY_OUT(ls_trace_add(memory, "o_rot", from->dtype, 2, from->dim, &turned, err));
  LS_TRY_OUT(ls_trace_add(memory, "wide", LS_F64, 1, &c->q_dim, &wide, err));
  if (from->dtype == LS_F64) goto out; /* the reference in double, turned by this very code */
  ls_ref_rope_pairs(&turned, from, &cosine, &sine, c->head_dim, true, wide.data);
  const ls_bound_args exact = {.config = v->config, .weights = v->weights, .step = &s->step, .values = s->cascaded[p].out};
  LS_TRY_OUT(ls_trace_new(&bounds, "bounds", err));
  LS_TRY_OUT(stage->bound(&exact, bounds, err)); /* nothing carried: of this very sparse_o */
  ls_result result;
  ls_result_init(&result);
  ls_compare_args args = {.stage = stage,
                          .type = v->config->act,
                          .a = &turned,
                          .b = to,
                          .bound = ls_trace_tensor(bounds, stage->name),
                          .steps = stage->steps,
                          .names = attn_names(v, s, stage)};
  ls_compare_tensor(&result, &args);
  if (result.verdict == LS_FAIL) session_explain_own(v, s, p, &args, &result);
  if (result.verdict == LS_FAIL && result.note[0] == '\0')
    snprintf(result.note, sizeof result.note, "o_rot is not sparse_o turned back: %s: expected %.6g, found %.6g", result.where,
             result.worst_a, result.worst_b);
  if (result.verdict == LS_MISTRUSTED) result.verdict = LS_PASS; /* zeros are judged where sparse_o is */
  status = session_property(v, s, "turned", p, &result, err);
out:
  free(cosine.data);
  free(sine.data);
  ls_trace_free(bounds);
  ls_trace_free(memory);
  return status;
}

/* What no query sees, and where no token waits. */
static bool attn_minus_inf(const char *stage) { return strcmp(stage, "index_score") == 0 || strcmp(stage, "score_state") == 0; }

static ls_status attn_expected(session *v, const step_run *s, ls_error *err) { return judge_choice(v, s, -1, err); }

static ls_status attn_path(session *v, const step_run *s, int p, ls_error *err) {
  const ls_run_result *r = &s->cascaded[p];
  ls_result result;
  if (session_is_digest(v, p)) return session_digest_path(v, s, p, err);
  LS_TRY(session_judge_refusal(v, s, p, err));
  judge_write_set(v, s, r, &result);
  LS_TRY(session_property(v, s, "write-set", p, &result, err));
  if (p > 0) LS_TRY(judge_published(v, s, p, err));
  if (!s->staged || r->status != LS_OK) return LS_OK;
  LS_TRY(judge_stored(v, s, p, err));
  LS_TRY(judge_choice(v, s, p, err));
  if (session_wanted(v, "turned", -1)) LS_TRY(judge_turned(v, s, p, err));
  LS_TRY(session_judge_rounding(v, s, p, err));
  if (session_reruns(v, "untraced")) LS_TRY(judge_untraced(v, s, p, err));
  if (session_reruns(v, "split")) LS_TRY(judge_split(v, s, p, err));
  return session_relations_attn(v, s, p, err);
}

static const char *const last_stages[] = {"out", NULL};
static const char *const discrete[] = {"kv", "index_k", "index_q", "compress_kv", "compress_idx", "candidates", NULL};

const session_layer session_attn = {
    .layer = &ls_layer_attn_v41,
    .input = "x",
    .open = attn_open,
    .lead = attn_lead,
    .written = attn_written,
    .remember = attn_remember,
    .judge_special = attn_special,
    .defined = attn_defined,
    .discount = attn_discount,
    .names = attn_names,
    .sub = attn_sub,
    .explain = attn_explain,
    .show = attn_show,
    .judge_expected = attn_expected,
    .judge_path = attn_path,
    .drift = last_stages,
    .discrete = discrete,
    .minus_inf = attn_minus_inf,
};
