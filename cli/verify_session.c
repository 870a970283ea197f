#include "verify_session.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../core/ls_numeric.h"
#include "../core/ls_ring.h"
#include "../layers/ls_dflash.h"
#include "../layers/ls_run.h"

typedef struct {
  const ls_verify_options *options;
  ls_report *report;
  ls_fixture *fixture;
  const ls_config *config;
  const ls_trace *weights;
  ls_run run[LS_MAX_PATHS];
  ls_ring_history *history;
  int64_t writes; /* context_writes that ran cascaded, and each path's time in them */
  double seconds[LS_MAX_PATHS], fastest[LS_MAX_PATHS];
} session;

/* One step through every path: [0] is the reference. */
typedef struct {
  ls_step step; /* as loaded; base filled in for context_write */
  int64_t base, rows;
  ls_run_result cascaded[LS_MAX_PATHS], isolated[LS_MAX_PATHS];
  ls_trace *values; /* the reference's stages and the step's input "capture": bounds are evaluated from these */
  ls_trace *given;  /* what isolated stages read: golden where the fixture holds it, else the reference's */
  ls_trace *filled; /* stages that the fixture does not hold, computed from those it does; NULL: none */
  ls_trace *bounds; /* cascaded: everything carried */
} step_run;

static void step_run_free(step_run *s) {
  for (int p = 0; p < LS_MAX_PATHS; p++) {
    ls_run_result_free(&s->cascaded[p]);
    ls_run_result_free(&s->isolated[p]);
  }
  ls_trace_free(s->values);
  ls_trace_free(s->given);
  ls_trace_free(s->filled);
  ls_trace_free(s->bounds);
  ls_step_free(&s->step);
}

/* ---- selection ---- */

static bool wanted(const session *v, const char *stage, int64_t sub) {
  const char *glob = v->options->stage_glob;
  if (glob == NULL || fnmatch(glob, stage, 0) == 0) return true;
  char name[LS_NAME_MAX + 24];
  snprintf(name, sizeof name, "%s.%" PRId64, stage, sub);
  return sub >= 0 && fnmatch(glob, name, 0) == 0;
}

/* ---- bounds ---- */

/* Whose difference is judged, and from what it may come. */
typedef struct {
  const session *v;
  const step_run *s;
  bool everything; /* cascaded */
  int a, b;        /* isolated: the pair; a -1: the fixture */
} carry_arg;

static ls_stage_kind kind_of(const session *v, const step_run *s, int path, const char *stage) {
  return v->run[path].path->stage_kind(v->run[path].ctx, &s->step, stage);
}

/* Isolated, both sides read the same inputs, with two exceptions: a side that fuses a stage away reads what comes before it, and the
 * fixture's next stage came from a stage of its own that it may not hold. */
static bool carries(void *arg, const char *stage) {
  const carry_arg *c = arg;
  if (c->everything || kind_of(c->v, c->s, c->b, stage) == LS_STAGE_FUSED) return true;
  if (c->a < 0) return ls_trace_find(c->s->step.expect, stage) == NULL;
  return kind_of(c->v, c->s, c->a, stage) == LS_STAGE_FUSED;
}

static ls_status evaluate_bounds(const session *v, const ls_trace *values, carry_arg *arg, ls_trace **bounds, ls_error *err) {
  ls_bound_args args = {
      .config = v->config, .weights = v->weights, .step = &arg->s->step, .values = values, .carries = carries, .carries_arg = arg};
  LS_TRY(ls_trace_new(bounds, "bounds", err));
  for (int i = 0; i < v->config->layer->n_stages; i++) {
    const ls_stage *stage = &v->config->layer->stages[i];
    if (stage->bound != NULL) LS_TRY(stage->bound(&args, *bounds, err));
  }
  return LS_OK;
}

/* `capture` (the rows that the step reads), then every stage but the rings from `first` where it holds it, else from `second`. Views;
 * rounded: what is not of the activation type (a double reference, a fixture in float32) is rounded to it, so that every path reads the
 * same values. */
static ls_status overlay(const session *v, const ls_trace *first, const ls_trace *second, const ls_tensor *capture, bool rounded,
                         ls_trace **out, ls_error *err) {
  LS_TRY(ls_trace_new(out, "given", err));
  LS_TRY(ls_trace_add_view(*out, "capture", capture, err));
  for (int i = 0; i < v->config->layer->n_stages; i++) {
    const ls_stage *stage = &v->config->layer->stages[i];
    const ls_tensor *t = ls_trace_tensor(first, stage->name);
    if (t == NULL) t = ls_trace_tensor(second, stage->name);
    if (stage->is_ring || t == NULL) continue;
    if (rounded && t->dtype != v->config->act) {
      ls_tensor copy;
      LS_TRY(ls_trace_add(*out, stage->name, v->config->act, t->ndim, t->dim, &copy, err));
      LS_TRY(ls_tensor_copy(&copy, t, err));
    } else {
      LS_TRY(ls_trace_add_view(*out, stage->name, t, err));
    }
  }
  return LS_OK;
}

/* ---- running ---- */

static int64_t state_int(const ls_trace *state, const char *name) {
  const ls_tensor *t = ls_trace_tensor(state, name);
  return t != NULL ? (int64_t)ls_tensor_get(t, 0) : 0;
}

static ls_dflash_state state_of(const ls_trace *state) {
  ls_dflash_state s = {state_int(state, "cursor"), state_int(state, "capture_base"), state_int(state, "capture_rows")};
  return s;
}

/* Fills s->given. Where the fixture holds some stages and not others, those others are the reference's from what the fixture holds: taken
 * from the cascaded run they would not belong to the fixture's. */
static ls_status give(session *v, step_run *s, const ls_tensor *capture, ls_error *err) {
  const ls_layer *layer = v->config->layer;
  int held = 0, stages = 0;
  for (int i = 0; i < layer->n_stages; i++) {
    stages += !layer->stages[i].is_ring;
    held += !layer->stages[i].is_ring && ls_trace_find(s->step.expect, layer->stages[i].name) != NULL;
  }
  const ls_run_result *ref = &s->cascaded[0];
  if (held == 0 || held == stages) return overlay(v, s->step.expect, ref->out, capture, true, &s->given, err);
  ls_trace *golden = NULL;
  ls_run_result filled = {.out = NULL};
  ls_status status;
  LS_TRY_OUT(overlay(v, s->step.expect, NULL, capture, true, &golden, err));
  LS_TRY_OUT(ls_run_step(&v->run[0], &s->step, ref->before, golden, true, &filled, err));
  LS_TRY_OUT(overlay(v, s->step.expect, filled.out, capture, true, &s->given, err));
  s->filled = filled.out; /* s->given holds views of it */
  filled.out = NULL;
out:
  ls_run_result_free(&filled);
  ls_trace_free(golden);
  return status;
}

static ls_status run_paths(session *v, step_run *s, ls_error *err) {
  const int n = v->options->n_paths;
  for (int p = 0; p < n; p++) LS_TRY(ls_run_step(&v->run[p], &s->step, NULL, NULL, true, &s->cascaded[p], err));
  const ls_run_result *ref = &s->cascaded[0];
  if (ref->status == LS_OK) {
    ls_dflash_state before = state_of(ref->before);
    ls_dflash_written(&before, &s->step, &s->base, &s->rows);
  }
  if (s->step.op != LS_OP_CONTEXT_WRITE || ref->status != LS_OK) return LS_OK;

  v->writes++;
  for (int p = 0; p < n; p++) {
    const double seconds = s->cascaded[p].seconds;
    v->seconds[p] += seconds;
    if (v->writes == 1 || seconds < v->fastest[p]) v->fastest[p] = seconds;
  }
  s->step.base = s->base;
  const ls_tensor *buffer = ls_trace_tensor(ref->before, "capture");
  if (buffer == NULL) return ls_fail(err, LS_INTERNAL, "path %s saves no capture buffer", v->run[0].path->name);
  ls_tensor capture = ls_tensor_slice(buffer, 0, 0, s->rows);
  LS_TRY(overlay(v, ref->out, NULL, &capture, false, &s->values, err));
  LS_TRY(give(v, s, &capture, err));
  carry_arg all = {.v = v, .s = s, .everything = true};
  LS_TRY(evaluate_bounds(v, s->values, &all, &s->bounds, err));
  for (int p = 0; p < n; p++) LS_TRY(ls_run_step(&v->run[p], &s->step, ref->before, s->given, true, &s->isolated[p], err));
  return LS_OK;
}

/* ---- stages ---- */

/* The recorded stage that ends the group of a fused one; NULL: nothing of it can be judged. */
static const char *group_end(const session *v, const step_run *s, int path, const char *stage) {
  const ls_layer *layer = v->config->layer;
  for (int i = 0; i < layer->n_stages; i++) {
    const ls_stage *next = &layer->stages[i];
    for (int k = 0; k < LS_MAX_INPUTS && next->input[k] != NULL; k++) {
      if (next->is_ring || strcmp(next->input[k], stage) != 0) continue;
      const char *end = kind_of(v, s, path, next->name) == LS_STAGE_FUSED ? group_end(v, s, path, next->name) : next->name;
      if (end != NULL && ls_trace_find(s->cascaded[path].out, end) != NULL) return end;
    }
  }
  return NULL;
}

/* A path that says FUSED must record where the group ends, and must not record what it says it never has. */
static void judge_fused(const session *v, const step_run *s, int path, const ls_stage *stage, ls_result *result) {
  const char *name = v->run[path].path->name;
  if (ls_trace_find(s->cascaded[path].out, stage->name) != NULL) {
    result->verdict = LS_FAIL;
    snprintf(result->note, sizeof result->note, "path %s says that it fuses this stage, and records it", name);
  } else if (group_end(v, s, path, stage->name) == NULL) {
    result->verdict = LS_MISSING;
    snprintf(result->note, sizeof result->note, "path %s says that it fuses this stage, and records no stage that ends the group", name);
  } else {
    result->verdict = LS_FUSED;
  }
}

/* Both sides ran ls_gemm: the reference always does. */
static bool same_code(int a, ls_stage_kind kind_a, ls_stage_kind kind_b) {
  return kind_b == LS_STAGE_SHARED && (a == 0 || kind_a == LS_STAGE_SHARED);
}

/* One stage of one pair in one mode, drafter layer by drafter layer. a -1: the fixture's expected values. */
static ls_status judge_stage(session *v, const step_run *s, const ls_stage *stage, int a, int b, ls_mode mode, const ls_trace *bounds,
                             ls_error *err) {
  const ls_run_result *side_b = mode == LS_CASCADED ? &s->cascaded[b] : &s->isolated[b];
  const ls_run_result *side_a = a < 0 ? NULL : mode == LS_CASCADED ? &s->cascaded[a] : &s->isolated[a];
  const ls_record *expected = a < 0 ? ls_trace_find(s->step.expect, stage->name) : NULL;
  const ls_tensor *ta = a < 0 ? (expected ? &expected->t : NULL) : ls_trace_tensor(side_a->out, stage->name);
  const ls_tensor *tb = ls_trace_tensor(side_b->out, stage->name);
  ls_stage_kind kind_b = kind_of(v, s, b, stage->name);
  ls_stage_kind kind_a = a < 0 ? LS_STAGE_OWN : kind_of(v, s, a, stage->name);
  if (kind_b == LS_STAGE_ABSENT && ta == NULL) return LS_OK;

  char pair[64];
  snprintf(pair, sizeof pair, "%s-%s", a < 0 ? "golden" : v->run[a].path->name, v->run[b].path->name);
  const bool by_layer = strncmp(stage->axes, "layer", 5) == 0;
  const ls_tensor *shaped = ta != NULL ? ta : tb;
  const int64_t layers = by_layer && shaped != NULL ? shaped->dim[0] : 1;
  for (int64_t l = 0; l < layers; l++) {
    const int64_t sub = by_layer && shaped != NULL ? l : -1;
    if (!wanted(v, stage->name, sub)) continue;
    ls_result result;
    ls_result_init(&result);
    if (kind_a == LS_STAGE_FUSED || kind_b == LS_STAGE_FUSED) {
      judge_fused(v, s, kind_b == LS_STAGE_FUSED ? b : a, stage, &result);
    } else if (a < 0 && ta == NULL) {
      result.verdict = LS_NOT_HELD;
    } else if (ta == NULL || tb == NULL) {
      result.verdict = LS_MISSING;
      snprintf(result.note, sizeof result.note, "path %s did not record it", v->run[tb == NULL ? b : a].path->name);
    } else if (!ls_tensor_same_shape(ta, tb)) {
      ls_compare_args args = {.stage = stage, .type = v->config->act, .a = ta, .b = tb};
      ls_compare_tensor(&result, &args);
    } else {
      const ls_tensor *bound = ls_trace_tensor(bounds, stage->name);
      ls_tensor va = by_layer ? ls_tensor_slice(ta, 0, l, 1) : *ta;
      ls_tensor vb = by_layer ? ls_tensor_slice(tb, 0, l, 1) : *tb;
      ls_tensor vbound = bound != NULL && by_layer ? ls_tensor_slice(bound, 0, l, 1) : bound != NULL ? *bound : (ls_tensor){.data = NULL};
      ls_compare_args args = {
          .stage = stage,
          .type = v->config->act,
          .a = &va,
          .b = &vb,
          .bound = bound != NULL ? &vbound : NULL,
          .steps = stage->steps,
          .has_tolerance = expected != NULL && expected->has_tolerance,
          .atol = expected != NULL ? expected->atol : 0,
          .rtol = expected != NULL ? expected->rtol : 0,
          .names = {.base = s->base, .capacity = v->config->dflash.ring_capacity, .head_dim = v->config->dflash.head_dim},
          .first_layer = l};
      ls_compare_tensor(&result, &args);
      if (a >= 0 && same_code(a, kind_a, kind_b) && result.verdict == LS_PASS) result.verdict = LS_SHARED;
    }
    LS_TRY(ls_report_stage(v->report, s->step.number, stage->name, sub, pair, mode, &result, err));
  }
  return LS_OK;
}

/* A whole ring, slot by slot: against the fixture's (a -1) or another path's. */
static ls_status judge_ring(session *v, const step_run *s, const ls_stage *stage, int a, int b, ls_mode mode, ls_error *err) {
  const ls_run_result *side_b = mode == LS_CASCADED ? &s->cascaded[b] : &s->isolated[b];
  const ls_run_result *side_a = a < 0 ? NULL : mode == LS_CASCADED ? &s->cascaded[a] : &s->isolated[a];
  if (!wanted(v, stage->name, -1)) return LS_OK;
  if (a < 0 && mode == LS_ISOLATED) return LS_OK; /* the state it started from is the reference's, not the fixture's */
  char pair[64];
  snprintf(pair, sizeof pair, "%s-%s", a < 0 ? "golden" : v->run[a].path->name, v->run[b].path->name);
  const ls_record *expected = a < 0 ? ls_trace_find(s->step.expect, stage->name) : NULL;
  const ls_tensor *ta = a < 0 ? (expected ? &expected->t : NULL) : ls_trace_tensor(side_a->after, stage->name);
  const ls_tensor *tb = ls_trace_tensor(side_b->after, stage->name);
  ls_result result;
  ls_result_init(&result);
  if (a < 0 && ta == NULL) {
    if (s->rows == 0) return LS_OK; /* nothing was written, nothing is owed */
    result.verdict = LS_NOT_HELD;
  } else if (ta == NULL || tb == NULL) {
    result.verdict = LS_MISSING;
  } else if (expected != NULL && expected->has_tolerance) {
    ls_compare_args args = {
        .stage = stage, .type = v->config->act, .a = ta, .b = tb, .has_tolerance = true, .atol = expected->atol, .rtol = expected->rtol};
    ls_compare_tensor(&result, &args);
  } else {
    ls_compare_ring(&result, v->history, stage, v->config->act, stage->name[0] == 'v', ta, tb, 0, 0);
  }
  return ls_report_stage(v->report, s->step.number, stage->name, -1, pair, mode, &result, err);
}

static ls_status judge_stages(session *v, const step_run *s, int a, int b, const ls_trace *own, ls_error *err) {
  const bool staged = s->bounds != NULL;
  for (int i = 0; i < v->config->layer->n_stages; i++) {
    const ls_stage *stage = &v->config->layer->stages[i];
    if (!stage->is_ring && staged) {
      LS_TRY(judge_stage(v, s, stage, a, b, LS_ISOLATED, own, err));
      LS_TRY(judge_stage(v, s, stage, a, b, LS_CASCADED, s->bounds, err));
    } else if (stage->is_ring && (s->rows > 0 || ls_trace_find(s->step.expect, stage->name) != NULL)) {
      if (staged) LS_TRY(judge_ring(v, s, stage, a, b, LS_ISOLATED, err));
      LS_TRY(judge_ring(v, s, stage, a, b, LS_CASCADED, err));
    }
  }
  return LS_OK;
}

static ls_status judge_pair(session *v, const step_run *s, int a, int b, ls_error *err) {
  ls_trace *own = NULL;
  carry_arg arg = {.v = v, .s = s, .a = a, .b = b};
  ls_status status = s->bounds != NULL ? evaluate_bounds(v, s->given, &arg, &own, err) : LS_OK;
  if (status == LS_OK) status = judge_stages(v, s, a, b, own, err);
  ls_trace_free(own);
  return status;
}

/* Tells the history what the step wrote, with what a right path may differ by. */
static ls_status remember(session *v, const step_run *s, ls_error *err) {
  if (s->rows == 0) return LS_OK;
  const ls_trace *out = s->cascaded[0].out;
  if (s->step.op == LS_OP_DRAFT_WRITE)
    return ls_ring_history_write(v->history, s->step.number, "draft_write", s->base, s->rows, ls_trace_tensor(s->step.in, "k"),
                                 ls_trace_tensor(s->step.in, "v"), NULL, NULL, err);
  LS_TRY(ls_ring_history_write(v->history, s->step.number, "context_write", s->base, s->rows, ls_trace_tensor(out, "k_rope"),
                               ls_trace_tensor(out, "v_proj"), ls_trace_tensor(s->bounds, "k_rope"), ls_trace_tensor(s->bounds, "v_proj"),
                               err));
  LS_TRY(ls_ring_history_intermediate(v->history, "k_proj", s->base, ls_trace_tensor(out, "k_proj"), err));
  return ls_ring_history_intermediate(v->history, "k_norm", s->base, ls_trace_tensor(out, "k_norm"), err);
}

/* ---- properties ---- */

static ls_status add_property(session *v, const step_run *s, const char *property, int path, const ls_result *result, ls_error *err) {
  if (!wanted(v, property, -1)) return LS_OK;
  return ls_report_property(v->report, s->step.number, property, v->run[path].path->name, result, err);
}

static ls_result fact(bool holds) {
  ls_result result;
  ls_result_init(&result);
  result.count = 1;
  result.failing = holds ? 0 : 1;
  result.bit_equal = holds ? 1 : 0;
  result.verdict = holds ? LS_PASS : LS_FAIL;
  return result;
}

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
  ls_result result = fact(refused == s->step.expect_refused);
  if (result.verdict == LS_FAIL)
    snprintf(result.note, sizeof result.note, "%s: expected %s, found %s%s", ls_op_name(s->step.op),
             s->step.expect_refused ? "refused" : "ok", refused ? "refused: " : "ok", refused ? r->why.text : "");
  LS_TRY(add_property(v, s, "refusal", p, &result, err));

  if (s->step.cursor >= 0) {
    const int64_t cursor = state_int(r->after, "cursor");
    result = fact(cursor == s->step.cursor);
    if (result.verdict == LS_FAIL)
      snprintf(result.note, sizeof result.note, "cursor after %s: expected %" PRId64 ", found %" PRId64, ls_op_name(s->step.op),
               s->step.cursor, cursor);
    LS_TRY(add_property(v, s, "cursor", p, &result, err));
  }
  ls_compare_write_set(&result, r->before, r->after, s->base, refused ? 0 : s->rows, v->config->dflash.ring_capacity,
                       refused ? nothing : may_change(&s->step));
  return add_property(v, s, "write-set", p, &result, err);
}

/* Beside the rings, a path's state is exact: it must be the reference's. */
static ls_status judge_state(session *v, const step_run *s, int p, ls_error *err) {
  static const char *const integers[] = {"cursor", "capture_base", "capture_rows"};
  const ls_trace *mine = s->cascaded[p].after, *ref = s->cascaded[0].after;
  ls_result result = fact(true);
  for (int i = 0; i < 3 && result.verdict == LS_PASS; i++) {
    const int64_t expected = state_int(ref, integers[i]), found = state_int(mine, integers[i]);
    if (expected == found) continue;
    result = fact(false);
    snprintf(result.note, sizeof result.note, "%s after %s: expected %" PRId64 ", found %" PRId64, integers[i], ls_op_name(s->step.op),
             expected, found);
  }
  const ls_tensor *a = ls_trace_tensor(ref, "capture"), *b = ls_trace_tensor(mine, "capture");
  if (result.verdict == LS_PASS && a != NULL && b != NULL && a->dtype == b->dtype && !ls_tensor_same_bytes(a, b)) {
    result = fact(false);
    snprintf(result.note, sizeof result.note, "the capture buffer after %s is not the reference's", ls_op_name(s->step.op));
  }
  return add_property(v, s, "state", p, &result, err);
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
  ls_result result = fact(true);
  result.count = 0;
  for (int i = 0; i < 2; i++) {
    const ls_tensor *rows = ls_trace_tensor(stages, stored[i][0]), *ring = ls_trace_tensor(state, stored[i][1]);
    if (rows == NULL || ring == NULL || rows->ndim != 3 || rows->dim[1] != s->rows) continue; /* judged as MISSING */
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
  return add_property(v, s, "stored", p, &result, err);
}

/* The fixture's own rings must hold its own rows: the cascaded bound, by which they are judged against a path, is too wide to see it. */
static ls_status judge_expected(session *v, const step_run *s, ls_error *err) {
  static const char *const names[] = {"k_rope", "v_proj", "k_ring", "v_ring"};
  for (int i = 0; i < 4; i++) {
    const ls_record *r = ls_trace_find(s->step.expect, names[i]);
    if (r != NULL && r->has_tolerance) return LS_OK; /* values from elsewhere, not exact among themselves */
  }
  ls_result result = same_rows(v, s, s->step.expect, s->step.expect);
  if (result.count == 0 || !wanted(v, "stored", -1)) return LS_OK;
  return ls_report_property(v->report, s->step.number, "stored", "golden", &result, err);
}

/* The production form (untraced; on cuda a graph replay) of the same step from the same state must leave the same state, byte for byte. */
static ls_status judge_untraced(session *v, const step_run *s, int p, ls_error *err) {
  const ls_step *step = &s->step;
  ls_trace *after = NULL;
  bool refused = false;
  ls_status status;
  LS_TRY_OUT(ls_run_sequence(&v->run[p], &step, 1, s->cascaded[p].before, &after, &refused, err));
  ls_result result = fact(false);
  if (refused) {
    snprintf(result.note, sizeof result.note, "refused untraced, done traced");
  } else {
    ls_place_names names = {.base = s->base, .capacity = v->config->dflash.ring_capacity, .head_dim = v->config->dflash.head_dim};
    ls_compare_same_bytes(&result, s->cascaded[p].after, after, NULL, &names);
  }
  status = add_property(v, s, "untraced", p, &result, err);
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
  LS_TRY_OUT(ls_run_sequence(&v->run[p], steps, 2 * n, from, &after, &refused, err));
  ls_result result = fact(false);
  if (refused) {
    snprintf(result.note, sizeof result.note, "writing the same rows again was refused");
  } else {
    ls_place_names names = {.base = s->base, .capacity = v->config->dflash.ring_capacity, .head_dim = v->config->dflash.head_dim};
    ls_compare_same_bytes(&result, s->cascaded[p].after, after, rings, &names);
  }
  status = add_property(v, s, property, p, &result, err);
out:
  ls_trace_free(after);
  return status;
}

static ls_status judge_invariance(session *v, const step_run *s, int p, ls_error *err) {
  const ls_run_result *r = &s->cascaded[p];
  const ls_tensor *buffer = ls_trace_tensor(r->before, "capture");
  if (s->bounds == NULL || r->status != LS_OK || buffer == NULL) return LS_OK;
  ls_status status = LS_OK;
  rewrite w[2] = {{.in = NULL}, {.in = NULL}};
  if (wanted(v, "stored", -1)) {
    LS_TRY(judge_stored(v, s, p, r, err));
    LS_TRY(judge_stored(v, s, p, &s->isolated[p], err));
  }
  if (wanted(v, "untraced", -1)) LS_TRY(judge_untraced(v, s, p, err));
  if (wanted(v, "idempotence", -1)) {
    LS_TRY_OUT(rewrite_make(&w[0], s, buffer, 0, s->rows, err));
    LS_TRY_OUT(judge_rewrites(v, s, p, "idempotence", w, 1, r->after, err));
    ls_trace_free(w[0].in);
    w[0].in = NULL;
  }
  /* the contract promises the bytes of a split for up to 16 rows; beyond, a bound */
  if (s->rows >= 2 && s->rows <= 16 && s->base >= state_int(r->before, "cursor") && wanted(v, "split", -1)) {
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

/* ---- the session ---- */

static ls_status verify_step(session *v, int64_t i, ls_error *err) {
  step_run s;
  memset(&s, 0, sizeof s);
  ls_status status;
  LS_TRY_OUT(ls_fixture_load_step(v->fixture, i, &s.step, err));
  LS_TRY_OUT(run_paths(v, &s, err));
  LS_TRY_OUT(remember(v, &s, err));
  if (v->options->only_step < 0 || v->options->only_step == s.step.number) {
    if (s.bounds != NULL) LS_TRY_OUT(judge_expected(v, &s, err));
    for (int b = 0; b < v->options->n_paths; b++)
      for (int a = -1; a < b; a++) LS_TRY_OUT(judge_pair(v, &s, a, b, err));
    for (int p = 0; p < v->options->n_paths; p++) {
      LS_TRY_OUT(judge_operation(v, &s, p, err));
      if (p > 0) LS_TRY_OUT(judge_state(v, &s, p, err));
      LS_TRY_OUT(judge_invariance(v, &s, p, err));
    }
  }
out:
  step_run_free(&s);
  return status;
}

static ls_status open_paths(session *v, const ls_trace *start, ls_error *err) {
  const ls_dflash_config *c = &v->config->dflash;
  for (int p = 0; p < v->options->n_paths; p++) {
    ls_path_options options = v->options->options;
    if (p > 0) options.precision = LS_PRECISION_ACT;
    LS_TRY(ls_run_open(&v->run[p], v->options->path[p], v->config, v->weights, &options, start, err));
    LS_TRY(ls_report_path(v->report, v->run[p].path->name, v->run[p].path->describe(v->run[p].ctx), err));
  }
  LS_TRY(ls_ring_history_new(&v->history, c->layers, c->ring_capacity, c->kv_dim, err));
  ls_ring_history_heads(v->history, c->head_dim);
  if (start == NULL || ls_trace_tensor(start, "k_ring") == NULL || ls_trace_tensor(start, "v_ring") == NULL) return LS_OK;
  return ls_ring_history_state(v->history, ls_trace_tensor(start, "k_ring"), ls_trace_tensor(start, "v_ring"), state_int(start, "cursor"),
                               err);
}

static ls_status verify_steps(session *v, const char *file, ls_error *err) {
  const int64_t n = ls_fixture_steps(v->fixture);
  bool found = v->options->only_step < 0;
  for (int64_t i = 0; i < n; i++) {
    if (*v->options->interrupted) return ls_fail(err, LS_INTERRUPTED, "%s: interrupted after %" PRId64 " of %" PRId64 " steps", file, i, n);
    const ls_step *info = ls_fixture_step_info(v->fixture, i);
    if (v->options->progress) {
      fprintf(stderr, "\r%s: step %" PRId64 " of %" PRId64 " (%s)\033[K", file, i + 1, n, ls_op_name(info->op));
      fflush(stderr);
    }
    LS_TRY(verify_step(v, i, err));
    if (info->number == v->options->only_step) {
      found = true;
      break;
    }
  }
  if (!found) return ls_fail(err, LS_USAGE, "%s: no step %" PRId64, file, v->options->only_step);
  return LS_OK;
}

/* Traced steps: every stage is copied out. What a path takes in production is another figure, the bench's. */
static ls_status note_times(session *v, ls_error *err) {
  for (int p = 0; v->options->times && p < v->options->n_paths && v->writes > 0; p++) {
    char line[160];
    snprintf(line, sizeof line, "%s: %" PRId64 " context_write traced, %.3g s each, the fastest %.3g s", v->run[p].path->name, v->writes,
             v->seconds[p] / (double)v->writes, v->fastest[p]);
    LS_TRY(ls_report_note(v->report, line, err));
  }
  return LS_OK;
}

ls_status ls_verify_fixture(const char *file, const ls_verify_options *options, ls_report *report, ls_error *err) {
  session v = {.options = options, .report = report};
  ls_fixture_options reading = {options->allow_nonfinite, stderr};
  ls_trace *start = NULL;
  ls_error why = {LS_OK, ""};
  ls_status status = LS_OK;
  bool listed = false; /* problems that the reader has written to stderr already */

  if (!options->trust) {
    status = ls_fixture_probe(file, &why);
  }
  if (status == LS_OK) {
    status = ls_fixture_open(&v.fixture, file, &reading, &why);
    listed = status == LS_BAD_FIXTURE;
  }
  v.config = status == LS_OK ? ls_fixture_config(v.fixture) : NULL;
  ls_status filed = ls_report_file(report, file, status == LS_OK ? ls_fixture_title(v.fixture) : "", v.config, err);
  if (filed != LS_OK) {
    ls_fixture_close(v.fixture);
    return filed;
  }
  if (status == LS_OK) {
    status = ls_fixture_check_values(v.fixture, &why);
    listed = status == LS_BAD_FIXTURE;
  }
  if (status == LS_OK) status = ls_fixture_weights(v.fixture, &v.weights, &why);
  if (status == LS_OK) status = ls_fixture_state(v.fixture, &start, &why);
  if (status == LS_OK) status = open_paths(&v, start, &why);
  if (status == LS_OK) status = verify_steps(&v, file, &why);
  if (status == LS_OK) status = note_times(&v, &why);
  if (options->progress) fprintf(stderr, "\r\033[K");
  if (status != LS_OK) {
    if (!listed) fprintf(stderr, "%s%s%s\n", strstr(why.text, file) ? "" : file, strstr(why.text, file) ? "" : ": ", why.text);
    ls_status added = ls_report_stop(report, status, why.text, err);
    if (added != LS_OK) status = added;
  }
  for (int p = 0; p < LS_MAX_PATHS; p++) ls_run_close(&v.run[p]);
  ls_ring_history_free(v.history);
  ls_trace_free(start);
  ls_fixture_close(v.fixture);
  return status;
}
