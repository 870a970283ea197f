/* dflash_context_kv in a verify session: rings slot by slot, and what must hold after each operation. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../compare/ls_compare_digest.h"
#include "../core/ls_numeric.h"
#include "../core/ls_ring.h"
#include "../layers/ls_dflash.h"
#include "session_internal.h"

static ls_dflash_state state_of(const ls_trace *state) {
  ls_dflash_state s = {session_state_int(state, "cursor"), session_state_int(state, "capture_base"),
                       session_state_int(state, "capture_rows")};
  return s;
}

static ls_place_names places(const session *v, const step_run *s) {
  return (ls_place_names){.base = s->base, .capacity = v->config->dflash.ring_capacity, .head_dim = v->config->dflash.head_dim};
}

static ls_place_names dflash_names(const session *v, const step_run *s, const ls_stage *stage) {
  (void)stage;
  return places(v, s);
}

static int64_t dflash_sub(const step_run *s) {
  (void)s;
  return -1;
}

/* ---- running ---- */

static ls_status dflash_open(session *v, const ls_trace *start, ls_error *err) {
  const ls_dflash_config *c = &v->config->dflash;
  LS_TRY(session_history_new(v, 1, err));
  LS_TRY(ls_ring_history_new(&v->history[0], c->layers, c->ring_capacity, c->kv_dim, err));
  ls_ring_history_heads(v->history[0], c->head_dim);
  if (start == NULL || ls_trace_tensor(start, "k_ring") == NULL || ls_trace_tensor(start, "v_ring") == NULL) return LS_OK;
  return ls_ring_history_state(v->history[0], ls_trace_tensor(start, "k_ring"), ls_trace_tensor(start, "v_ring"),
                               session_state_int(start, "cursor"), err);
}

static ls_status dflash_written(session *v, step_run *s, ls_error *err) {
  const ls_run_result *ref = &s->cascaded[0];
  if (ref->status != LS_OK) return LS_OK;
  ls_dflash_state before = state_of(ref->before);
  ls_dflash_written(&before, &s->step, &s->base, &s->rows);
  if (s->step.op != LS_OP_CONTEXT_WRITE) return LS_OK;
  s->step.base = s->base;
  s->staged = true;
  const ls_tensor *buffer = ls_trace_tensor(ref->before, "capture");
  if (buffer == NULL) return ls_fail(err, LS_INTERNAL, "path %s saves no capture buffer", v->run[0].path->name);
  s->input = ls_tensor_slice(buffer, 0, 0, s->rows);
  return LS_OK;
}

/* ---- rings ---- */

/* Of the layer with the worst place. */
static void explain_ring(session *v, const step_run *s, const ls_stage *stage, int a, int b, ls_mode mode, const ls_tensor *ta,
                         const ls_tensor *tb, ls_result *result) {
  const int64_t layer = result->has_worst && result->worst_ndim == 3 ? result->worst_index[0] : 0;
  if (ta == NULL || tb == NULL || ta->ndim != 3 || /* a digest holds none */ !ls_tensor_same_shape(ta, tb)) return;
  const ls_tensor va = ls_tensor_slice(ta, 0, layer, 1), vb = ls_tensor_slice(tb, 0, layer, 1);
  double squares = 0;
  for (int64_t i = 0; i < ls_tensor_count(&va); i++) squares += ls_tensor_get(&va, i) * ls_tensor_get(&va, i);
  const ls_compare_args args = {.stage = stage,
                                .type = v->config->act,
                                .a = &va,
                                .b = &vb,
                                .has_tolerance = true, /* as rows of a ring are recognised (tolerances.md): other rows differ by about 1 */
                                .atol = 0x1p-5 * sqrt(squares / (double)ls_tensor_count(&va)),
                                .rtol = 0x1p-5,
                                .names = places(v, s),
                                .first_layer = layer};
  session_explain(v, s, a, b, mode, NULL, &args, result);
}

/* Of a side without values: what the step wrote, as the rows that were written. */
static ls_status ring_by_digest(session *v, const step_run *s, const ls_stage *stage, int a, int b, ls_mode mode, const ls_tensor *ta,
                                const ls_tensor *tb, ls_result *result, ls_error *err) {
  const bool written = s->step.op == LS_OP_CONTEXT_WRITE;
  const char *from = stage->name[0] == 'v' ? "v_proj" : "k_rope";
  ls_trace *rows[2] = {NULL, NULL};
  ls_digest digest[2];
  ls_status status;
  const int side[2] = {a, b};
  const ls_tensor *ring[2] = {ta, tb};
  bool have[2];
  for (int i = 0; i < 2; i++) {
    have[i] = session_is_digest(v, side[i]) && ls_digest_find(&digest[i], session_out(s, side[i], mode), stage->name);
    LS_TRY_OUT(ls_trace_new(&rows[i], "rows", err));
    if (!have[i]) LS_TRY_OUT(session_ring_rows(s, stage, ring[i], rows[i], err));
  }
  const ls_tensor *va = ls_trace_tensor(rows[0], stage->name), *vb = ls_trace_tensor(rows[1], stage->name);
  result->verdict = LS_MISSING;
  if ((!have[0] && va == NULL) || (!have[1] && vb == NULL)) goto out;
  const ls_digest_args args = {.stage = ls_stage_find(v->config->layer, from),
                               .type = v->config->act,
                               .a = va,
                               .b = vb,
                               .digest_a = &digest[0],
                               .digest_b = &digest[1],
                               .bound = written ? ls_trace_tensor(s->bounds, from) : NULL,
                               .steps = written ? ls_stage_find(v->config->layer, from)->steps : 0,
                               .names = places(v, s)};
  ls_compare_digest(result, &args);
out:
  ls_trace_free(rows[0]);
  ls_trace_free(rows[1]);
  return status;
}

/* A whole ring, slot by slot: against the fixture's (a -1) or another path's. */
static ls_status dflash_ring(session *v, const step_run *s, const ls_stage *stage, int a, int b, ls_mode mode, const ls_trace *own,
                             ls_error *err) {
  const ls_run_result *side_b = mode == LS_CASCADED ? &s->cascaded[b] : &s->isolated[b];
  const ls_run_result *side_a = a < 0 ? NULL : mode == LS_CASCADED ? &s->cascaded[a] : &s->isolated[a];
  if (s->rows == 0 && ls_trace_find(s->step.expect, stage->name) == NULL) return LS_OK;
  if (!session_wanted(v, stage->name, -1)) return LS_OK;
  if (a < 0 && mode == LS_ISOLATED) return LS_OK; /* the state it started from is the reference's, not the fixture's */
  char pair[64];
  session_pair(pair, v, a, b);
  const ls_record *expected = a < 0 ? ls_trace_find(s->step.expect, stage->name) : NULL;
  const ls_tensor *ta = a < 0 ? (expected ? &expected->t : NULL) : ls_trace_tensor(side_a->after, stage->name);
  const ls_tensor *tb = ls_trace_tensor(side_b->after, stage->name);
  ls_result result;
  ls_result_init(&result);
  if (v->detail != NULL) memset(v->detail, 0, sizeof *v->detail);
  if (a < 0 && ta == NULL) {
    if (s->rows == 0) return LS_OK; /* nothing was written, nothing is owed */
    result.verdict = LS_NOT_HELD;
  } else if (session_is_digest(v, a) || session_is_digest(v, b)) {
    if (s->rows == 0) return LS_OK; /* whether a refused step wrote is a property, as it was recorded */
    LS_TRY(ring_by_digest(v, s, stage, a, b, mode, ta, tb, &result, err));
  } else if (ta == NULL || tb == NULL) {
    result.verdict = LS_MISSING;
  } else if (v->options->exact) {
    const ls_compare_args args = {
        .stage = stage, .type = v->config->act, .a = ta, .b = tb, .names = {.head_dim = v->config->dflash.head_dim}};
    ls_compare_tensor(&result, &args);
  } else if (expected != NULL && expected->has_tolerance) {
    ls_compare_args args = {
        .stage = stage, .type = v->config->act, .a = ta, .b = tb, .has_tolerance = true, .atol = expected->atol, .rtol = expected->rtol};
    ls_compare_tensor(&result, &args);
  } else {
    if (mode == LS_ISOLATED && own != NULL && s->step.op == LS_OP_CONTEXT_WRITE)
      ls_ring_history_isolated(v->history[0], s->base, s->rows, ls_trace_tensor(own, "k_rope"), ls_trace_tensor(own, "v_proj"));
    if (v->detail != NULL) {
      ls_compare_ring_slots(&result, &v->detail->ring, v->history[0], stage, v->config->act, stage->name[0] == 'v', ta, tb);
    } else {
      ls_compare_ring(&result, v->history[0], stage, v->config->act, stage->name[0] == 'v', ta, tb, 0, 0);
    }
    ls_ring_history_cascaded(v->history[0]);
  }
  if (result.verdict == LS_FAIL) explain_ring(v, s, stage, a, b, mode, ta, tb, &result);
  return session_add_stage(v, s, stage, -1, pair, mode, &result, err);
}

/* Tells the history what the step wrote, with what a right path may differ by. */
static ls_status dflash_remember(session *v, const step_run *s, ls_error *err) {
  if (s->rows == 0) return LS_OK;
  const ls_trace *out = s->cascaded[0].out;
  if (s->step.op == LS_OP_DRAFT_WRITE)
    return ls_ring_history_write(v->history[0], s->step.number, "draft_write", s->base, s->rows, ls_trace_tensor(s->step.in, "k"),
                                 ls_trace_tensor(s->step.in, "v"), NULL, NULL, err);
  LS_TRY(ls_ring_history_write(v->history[0], s->step.number, "context_write", s->base, s->rows, ls_trace_tensor(out, "k_rope"),
                               ls_trace_tensor(out, "v_proj"), ls_trace_tensor(s->bounds, "k_rope"), ls_trace_tensor(s->bounds, "v_proj"),
                               err));
  LS_TRY(ls_ring_history_intermediate(v->history[0], "k_proj", s->base, ls_trace_tensor(out, "k_proj"), err));
  return ls_ring_history_intermediate(v->history[0], "k_norm", s->base, ls_trace_tensor(out, "k_norm"), err);
}

/* ---- properties ---- */

static const char *const rings[] = {"k_ring", "v_ring", NULL};

static const char *const *may_change(const ls_step *step) {
  static const char *const nothing[] = {NULL}, *const capture[] = {"capture", "capture_base", "capture_rows", NULL},
                           *const write[] = {"cursor", "capture_rows", NULL}, *const rewind[] = {"cursor", NULL};
  switch (step->op) {
    case LS_OP_CAPTURE:
      return capture;
    case LS_OP_CONTEXT_WRITE:
      return write;
    case LS_OP_REWIND:
      return rewind;
    default:
      return nothing;
  }
}

/* What holds after every operation: refused or not as the fixture says, the cursor, and which bytes changed. */
static ls_status judge_operation(session *v, const step_run *s, int p, ls_error *err) {
  static const char *const nothing[] = {NULL};
  const ls_run_result *r = &s->cascaded[p];
  const bool refused = r->status == LS_REFUSED;
  ls_result result;
  LS_TRY(session_judge_refusal(v, s, p, err));

  if (s->step.cursor >= 0) {
    const int64_t cursor = session_state_int(r->after, "cursor");
    result = session_fact(cursor == s->step.cursor);
    if (result.verdict == LS_FAIL)
      snprintf(result.note, sizeof result.note, "cursor after %s: expected %" PRId64 ", found %" PRId64, ls_op_name(s->step.op),
               s->step.cursor, cursor);
    LS_TRY(session_property(v, s, "cursor", p, &result, err));
  }
  ls_compare_write_set(&result, r->before, r->after, s->base, refused ? 0 : s->rows, v->config->dflash.ring_capacity,
                       refused ? nothing : may_change(&s->step));
  return session_property(v, s, "write-set", p, &result, err);
}

/* Beside the rings, a path's state is exact: it must be the reference's. */
static ls_status judge_state(session *v, const step_run *s, int p, ls_error *err) {
  static const char *const integers[] = {"cursor", "capture_base", "capture_rows"};
  const ls_trace *mine = s->cascaded[p].after, *ref = s->cascaded[0].after;
  ls_result result = session_fact(true);
  for (int i = 0; i < 3 && result.verdict == LS_PASS; i++) {
    const int64_t expected = session_state_int(ref, integers[i]), found = session_state_int(mine, integers[i]);
    if (expected == found) continue;
    result = session_fact(false);
    snprintf(result.note, sizeof result.note, "%s after %s: expected %" PRId64 ", found %" PRId64, integers[i], ls_op_name(s->step.op),
             expected, found);
  }
  const ls_tensor *a = ls_trace_tensor(ref, "capture"), *b = ls_trace_tensor(mine, "capture");
  if (result.verdict == LS_PASS && a != NULL && b != NULL && a->dtype == b->dtype && !ls_tensor_same_bytes(a, b)) {
    result = session_fact(false);
    snprintf(result.note, sizeof result.note, "the capture buffer after %s is not the reference's", ls_op_name(s->step.op));
  }
  return session_property(v, s, "state", p, &result, err);
}

/* The same once rounded to the type: a fixture may hold a stage in one type and a ring in another. */
static bool same_values(ls_dtype type, const ls_tensor *a, const ls_tensor *b) {
  bool same = true;
  for (int64_t i = 0; i < ls_tensor_count(a) && same; i++) same = ls_steps_between(type, ls_tensor_get(a, i), ls_tensor_get(b, i)) == 0;
  return same;
}

/* What a path recorded of a stage and what it stored must be the same bytes: else one of them was not what the next reader gets. */
static ls_result same_rows(const session *v, const step_run *s, const ls_trace *stages, const ls_trace *state) {
  static const char *const stored[2][2] = {{"k_rope", "k_ring"}, {"v_proj", "v_ring"}};
  const int64_t capacity = v->config->dflash.ring_capacity;
  ls_result result = session_fact(true);
  result.count = 0;
  for (int i = 0; i < 2; i++) {
    const ls_tensor *rows = ls_trace_tensor(stages, stored[i][0]), *ring = ls_trace_tensor(state, stored[i][1]);
    if (rows == NULL || ring == NULL || rows->ndim != 3 || ring->ndim != 3 || rows->dim[0] != ring->dim[0] || rows->dim[1] != s->rows)
      continue; /* judged as MISSING */
    for (int64_t l = 0; l < rows->dim[0]; l++) {
      const ls_tensor from = ls_tensor_at(rows, l), to = ls_tensor_at(ring, l);
      for (int64_t row = 0; row < s->rows; row++) {
        const int64_t slot = ls_ring_slot(s->base + row, capacity);
        const ls_tensor a = ls_tensor_slice(&from, 0, row, 1), b = ls_tensor_slice(&to, 0, slot, 1);
        result.count++;
        if (ls_tensor_same_bytes(&a, &b) || (a.dtype != b.dtype && same_values(v->config->act, &a, &b))) continue;
        result.failing++;
        if (result.verdict == LS_FAIL) continue;
        result.verdict = LS_FAIL;
        snprintf(result.note, sizeof result.note, "%s: layer %" PRId64 " slot %" PRId64 " does not hold the recorded %s of row %" PRId64,
                 stored[i][1], l, slot, stored[i][0], row);
      }
    }
  }
  return result;
}

static ls_status judge_stored(session *v, const step_run *s, int p, const ls_run_result *r, ls_error *err) {
  const ls_result result = same_rows(v, s, r->out, r->after);
  return session_property(v, s, "stored", p, &result, err);
}

/* The fixture's own rings must hold its own rows: the cascaded bound, by which they are judged against a path, is too wide to see it. */
static ls_status dflash_expected(session *v, const step_run *s, ls_error *err) {
  static const char *const names[] = {"k_rope", "v_proj", "k_ring", "v_ring"};
  for (int i = 0; i < 4; i++) {
    const ls_record *r = ls_trace_find(s->step.expect, names[i]);
    if (r != NULL && r->has_tolerance) return LS_OK; /* values from elsewhere, not exact among themselves */
  }
  ls_result result = same_rows(v, s, s->step.expect, s->step.expect);
  if (result.count == 0 || !session_wanted(v, "stored", -1)) return LS_OK;
  return session_property(v, s, "stored", -1, &result, err);
}

/* The production form (untraced; on cuda a graph replay) of the same step from the same state must leave the same state, byte for byte. */
static ls_status judge_untraced(session *v, const step_run *s, int p, ls_error *err) {
  const ls_step *step = &s->step;
  ls_trace *after = NULL;
  bool refused = false;
  ls_status status;
  if (v->recorded[p] != NULL) return session_recorded_property(v, s, p, "untraced", err);
  LS_TRY_OUT(ls_run_sequence(&v->run[p], &step, 1, s->cascaded[p].before, &after, &refused, err));
  ls_result result = session_fact(false);
  if (refused) {
    snprintf(result.note, sizeof result.note, "refused untraced, done traced");
  } else {
    const ls_place_names names = places(v, s);
    ls_compare_same_bytes(&result, s->cascaded[p].after, after, NULL, &names);
  }
  status = session_property(v, s, "untraced", p, &result, err);
out:
  ls_trace_free(after);
  return status;
}

/* capture + context_write of rows [from, from + rows) of what the step captured, as two steps of their own. */
typedef struct {
  ls_step capture, write;
  ls_trace *in;
} rewrite;

static ls_status rewrite_make(rewrite *w, const step_run *s, const ls_tensor *buffer, int64_t from, int64_t rows, ls_error *err) {
  memset(w, 0, sizeof *w);
  ls_tensor data = ls_tensor_slice(buffer, 0, from, rows);
  LS_TRY(ls_trace_new(&w->in, "input", err));
  LS_TRY(ls_trace_add_view(w->in, "capture", &data, err));
  w->capture = (ls_step){.number = s->step.number, .op = LS_OP_CAPTURE, .base = s->base + from, .rows = rows, .cursor = -1, .in = w->in};
  w->write = (ls_step){.number = s->step.number, .op = LS_OP_CONTEXT_WRITE, .rows = rows, .cursor = -1};
  return LS_OK;
}

/* Rings after `n` rewrites from a state must equal, byte for byte, those that the step left. The rewrites run untraced, so this also holds
 * the production form (a graph replay on cuda) to the traced one. */
static ls_status judge_rewrites(session *v, const step_run *s, int p, const char *property, rewrite *w, int n, const ls_trace *from,
                                ls_error *err) {
  const ls_step *steps[4];
  for (int i = 0; i < n; i++) {
    steps[2 * i] = &w[i].capture;
    steps[2 * i + 1] = &w[i].write;
  }
  ls_trace *after = NULL;
  bool refused = false;
  ls_status status;
  if (v->recorded[p] != NULL) return session_recorded_property(v, s, p, property, err);
  LS_TRY_OUT(ls_run_sequence(&v->run[p], steps, 2 * n, from, &after, &refused, err));
  ls_result result = session_fact(false);
  if (refused) {
    snprintf(result.note, sizeof result.note, "writing the same rows again was refused");
  } else {
    const ls_place_names names = places(v, s);
    ls_compare_same_bytes(&result, s->cascaded[p].after, after, rings, &names);
  }
  status = session_property(v, s, property, p, &result, err);
out:
  ls_trace_free(after);
  return status;
}

static ls_status judge_invariance(session *v, const step_run *s, int p, ls_error *err) {
  const ls_run_result *r = &s->cascaded[p];
  const ls_tensor *buffer = ls_trace_tensor(r->before, "capture");
  if (!s->staged || r->status != LS_OK || buffer == NULL) return LS_OK;
  ls_status status = LS_OK;
  rewrite w[2] = {{.in = NULL}, {.in = NULL}};
  if (session_wanted(v, "stored", -1)) {
    LS_TRY(judge_stored(v, s, p, r, err));
    if (!v->options->cascaded_only) LS_TRY(judge_stored(v, s, p, &s->isolated[p], err));
  }
  if (session_reruns(v, "untraced")) LS_TRY(judge_untraced(v, s, p, err));
  if (session_reruns(v, "idempotence")) {
    LS_TRY_OUT(rewrite_make(&w[0], s, buffer, 0, s->rows, err));
    LS_TRY_OUT(judge_rewrites(v, s, p, "idempotence", w, 1, r->after, err));
    ls_trace_free(w[0].in);
    w[0].in = NULL;
  }
  /* the contract promises the bytes of a split for up to 16 rows; beyond, a bound */
  if (s->rows >= 2 && s->rows <= 16 && s->base >= session_state_int(r->before, "cursor") && session_reruns(v, "split")) {
    const int64_t first = 1 + s->step.number % (s->rows - 1); /* a different cut each step */
    LS_TRY_OUT(rewrite_make(&w[0], s, buffer, 0, first, err));
    LS_TRY_OUT(rewrite_make(&w[1], s, buffer, first, s->rows - first, err));
    LS_TRY_OUT(judge_rewrites(v, s, p, "split", w, 2, r->before, err));
  }
out:
  ls_trace_free(w[0].in);
  ls_trace_free(w[1].in);
  return status;
}

static ls_status dflash_path(session *v, const step_run *s, int p, ls_error *err) {
  if (session_is_digest(v, p)) return session_digest_path(v, s, p, err);
  LS_TRY(judge_operation(v, s, p, err));
  if (p > 0) LS_TRY(judge_state(v, s, p, err));
  LS_TRY(judge_invariance(v, s, p, err));
  LS_TRY(session_judge_rounding(v, s, p, err));
  return session_relations_dflash(v, s, p, err);
}

static const char *const last_stages[] = {"k_rope", "v_proj", NULL};

const session_layer session_dflash = {
    .layer = &ls_layer_dflash_context_kv,
    .input = "capture",
    .open = dflash_open,
    .written = dflash_written,
    .remember = dflash_remember,
    .judge_ring = dflash_ring,
    .names = dflash_names,
    .sub = dflash_sub,
    .judge_expected = dflash_expected,
    .judge_path = dflash_path,
    .drift = last_stages,
};
