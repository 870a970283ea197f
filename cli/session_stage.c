/* Judging stages: any two traces of a step, stage by stage, each by its bound. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../compare/ls_compare_digest.h"
#include "session_internal.h"

/* Values of a stage, or a digest of them. */
static bool holds(const ls_trace *out, const char *stage) {
  ls_digest digest;
  return ls_trace_find(out, stage) != NULL || ls_digest_find(&digest, out, stage);
}

/* The recorded stage that ends the group of a fused one; NULL: nothing of it can be judged. */
static const char *group_end(const session *v, const step_run *s, int path, const char *stage) {
  const ls_layer *layer = v->config->layer;
  for (int i = 0; i < layer->n_stages; i++) {
    const ls_stage *next = &layer->stages[i];
    for (int k = 0; k < LS_MAX_INPUTS && next->input[k] != NULL; k++) {
      if (next->is_ring || strcmp(next->input[k], stage) != 0) continue;
      const char *end = session_kind_of(v, s, path, next->name) == LS_STAGE_FUSED ? group_end(v, s, path, next->name) : next->name;
      if (end != NULL && holds(s->cascaded[path].out, end)) return end;
    }
  }
  return NULL;
}

/* A path that says FUSED must record where the group ends, and must not record what it says it never has. */
static void judge_fused(const session *v, const step_run *s, int path, const ls_stage *stage, ls_result *result) {
  const char *name = v->run[path].path->name;
  if (holds(s->cascaded[path].out, stage->name)) {
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

/* What an element for element comparison is made of. first: along the axis "layer", where the views are of one of them. */
static ls_compare_args values_args(session *v, const step_run *s, const ls_stage *stage, ls_mode mode, const ls_record *expected,
                                   const ls_tensor *a, const ls_tensor *b, const ls_tensor *bound, int64_t first) {
  const bool exact = v->options->exact;
  return (ls_compare_args){.stage = stage,
                           .type = ls_stage_type(v->config, stage),
                           .a = a,
                           .b = b,
                           .bound = exact ? NULL : bound,
                           .only = v->hooks->defined != NULL ? v->hooks->defined(v, s, stage, mode) : NULL,
                           .steps = exact ? 0 : stage->steps,
                           .has_tolerance = !exact && expected != NULL && expected->has_tolerance,
                           .atol = expected != NULL ? expected->atol : 0,
                           .rtol = expected != NULL ? expected->rtol : 0,
                           .names = v->hooks->names(v, s, stage),
                           .first_layer = first,
                           .map = v->detail != NULL ? &v->detail->map : NULL};
}

ls_status session_add_stage(session *v, const step_run *s, const ls_stage *stage, int64_t sub, const char *pair, ls_mode mode,
                            const ls_result *result, ls_error *err) {
  LS_TRY(ls_report_stage(v->report, s->step.number, stage->name, sub, pair, mode, result, err));
  if (v->detail == NULL) return LS_OK;
  const ls_place_names names = v->hooks->names(v, s, stage);
  const char *axis = stage->axes + (strncmp(stage->axes, "layer ", 6) == 0 ? 6 : 0);
  const bool by_position = strncmp(axis, "row", 3) == 0 || strncmp(axis, "latent", 6) == 0;
  snprintf(v->detail->row_name, sizeof v->detail->row_name, "%.*s", (int)strcspn(axis, " "), axis);
  v->detail->base = names.base;
  v->detail->stride = !by_position ? 0 : names.stride > 0 ? names.stride : 1;
  return ls_report_detail(v->report, s->step.number, stage->name, sub, pair, mode, result, v->detail, err);
}

/* Where one side has no values, or neither. */
static void compare_digest(const session *v, const step_run *s, const ls_stage *stage, ls_mode mode, const ls_record *expected,
                           const ls_tensor *a, const ls_digest *da, const ls_tensor *b, const ls_digest *db, const ls_tensor *bound,
                           int64_t first, ls_result *result) {
  const ls_digest_args args = {.stage = stage,
                               .type = ls_stage_type(v->config, stage),
                               .a = a,
                               .b = b,
                               .digest_a = da,
                               .digest_b = db,
                               .bound = bound,
                               .only = v->hooks->defined != NULL ? v->hooks->defined(v, s, stage, mode) : NULL,
                               .steps = stage->steps,
                               .has_tolerance = expected != NULL && expected->has_tolerance,
                               .atol = expected != NULL ? expected->atol : 0,
                               .rtol = expected != NULL ? expected->rtol : 0,
                               .names = v->hooks->names(v, s, stage),
                               .first_layer = first};
  ls_compare_digest(result, &args);
  const ls_tensor *values = a != NULL ? a : b;
  if (v->hooks->discount == NULL || values == NULL) return;
  /* What passes is zero on both sides where these values are zero and no operation wrote; a row judged by statistics counted no zeros. */
  const ls_compare_args both = {.stage = stage, .type = args.type, .a = values, .b = values, .only = args.only};
  v->hooks->discount(v, s, mode, &both, result);
  if (result->zeros < 0) result->zeros = 0;
  if (result->bit_equal < 0) result->bit_equal = 0;
}

/* The rows of one index of axis 0. */
static ls_digest digest_of_layer(const ls_digest *digest, int64_t l) {
  return (ls_digest){ls_tensor_slice(&digest->hash, 0, l, 1), ls_tensor_slice(&digest->stats, 0, l, 1)};
}

/* Whether an isolated comparison's bound is more than the stage's own. */
static bool reads_carried(const session *v, const step_run *s, const ls_stage *stage, int a, int b) {
  for (int k = 0; k < LS_MAX_INPUTS && stage->input[k] != NULL; k++) {
    const ls_stage *input = ls_stage_find(v->config->layer, stage->input[k]);
    if (input != NULL && !input->is_ring && session_carries(v, s, a, b, input->name)) return true;
  }
  return false;
}

/* One stage of one pair in one mode, drafter layer by drafter layer where the stage has that axis. a -1: the fixture's expected values. */
static ls_status judge_stage(session *v, const step_run *s, const ls_stage *stage, int a, int b, ls_mode mode, const ls_trace *bounds,
                             ls_error *err) {
  const ls_record *expected = a < 0 ? ls_trace_find(s->step.expect, stage->name) : NULL;
  const ls_tensor *ta = ls_trace_tensor(session_out(s, a, mode), stage->name);
  const ls_tensor *tb = ls_trace_tensor(session_out(s, b, mode), stage->name);
  const ls_tensor *bound = ls_trace_tensor(bounds, stage->name);
  ls_digest da, db;
  const bool digest_a = ta == NULL && ls_digest_find(&da, session_out(s, a, mode), stage->name);
  const bool digest_b = tb == NULL && ls_digest_find(&db, session_out(s, b, mode), stage->name);
  const char *apart = session_recorded_apart(v, s, a, b, mode);
  ls_stage_kind kind_b = session_kind_of(v, s, b, stage->name);
  ls_stage_kind kind_a = a < 0 ? LS_STAGE_OWN : session_kind_of(v, s, a, stage->name);
  if (kind_b == LS_STAGE_ABSENT && ta == NULL) return LS_OK;

  char pair[64];
  session_pair(pair, v, a, b);
  const bool by_layer = strncmp(stage->axes, "layer", 5) == 0;
  const ls_tensor *shaped = ta != NULL ? ta : tb != NULL ? tb : digest_a ? &da.hash : digest_b ? &db.hash : NULL;
  const int64_t layers = by_layer && shaped != NULL ? shaped->dim[0] : 1;
  for (int64_t l = 0; l < layers; l++) {
    const int64_t sub = by_layer && shaped != NULL ? l : v->hooks->sub(s);
    if (!session_wanted(v, stage->name, sub)) continue;
    ls_result result;
    ls_result_init(&result);
    bool handled = false;
    if (v->detail != NULL) memset(v->detail, 0, sizeof *v->detail);
    if (kind_a == LS_STAGE_FUSED || kind_b == LS_STAGE_FUSED) {
      judge_fused(v, s, kind_b == LS_STAGE_FUSED ? b : a, stage, &result);
    } else if (a < 0 && ta == NULL) {
      result.verdict = LS_NOT_HELD;
    } else if (apart != NULL) {
      snprintf(result.note, sizeof result.note, "%s", apart);
    } else if ((ta == NULL && !digest_a) || (tb == NULL && !digest_b)) {
      result.verdict = LS_MISSING;
      snprintf(result.note, sizeof result.note, "path %s did not record it", v->run[tb == NULL && !digest_b ? b : a].path->name);
    } else if (by_layer && bound != NULL && bound->dim[0] != layers) { /* two recordings may agree on a shape that no stage has */
      result.verdict = LS_FAIL;
      snprintf(result.note, sizeof result.note, "expected %" PRId64 " layers, found %" PRId64, bound->dim[0], layers);
    } else if (digest_a || digest_b) {
      if (by_layer &&
          ((digest_a && da.hash.dim[0] != layers) || (digest_b && db.hash.dim[0] != layers) || (tb != NULL && tb->dim[0] != layers))) {
        result.verdict = LS_FAIL;
        snprintf(result.note, sizeof result.note, "one side has another number of layers");
      } else {
        const ls_digest la = digest_a && by_layer ? digest_of_layer(&da, l) : da, lb = digest_b && by_layer ? digest_of_layer(&db, l) : db;
        const ls_tensor va = ta != NULL && by_layer ? ls_tensor_slice(ta, 0, l, 1) : ta != NULL ? *ta : (ls_tensor){.data = NULL};
        const ls_tensor vb = tb != NULL && by_layer ? ls_tensor_slice(tb, 0, l, 1) : tb != NULL ? *tb : (ls_tensor){.data = NULL};
        const ls_tensor vbound = bound != NULL && by_layer ? ls_tensor_slice(bound, 0, l, 1)
                                 : bound != NULL           ? *bound
                                                           : (ls_tensor){.data = NULL};
        compare_digest(v, s, stage, mode, expected, digest_a ? NULL : &va, &la, digest_b ? NULL : &vb, &lb, bound != NULL ? &vbound : NULL,
                       l, &result);
      }
      if (a >= 0 && same_code(a, kind_a, kind_b) && result.verdict == LS_PASS) result.verdict = LS_SHARED;
    } else if (!ls_tensor_same_shape(ta, tb)) {
      const ls_compare_args args = {.stage = stage, .type = ls_stage_type(v->config, stage), .a = ta, .b = tb};
      ls_compare_tensor(&result, &args); /* says both shapes */
    } else {
      if (v->hooks->judge_special != NULL && !v->options->exact)
        LS_TRY(v->hooks->judge_special(v, s, stage, a, b, mode, bounds, &handled, &result, err));
      ls_tensor va = by_layer ? ls_tensor_slice(ta, 0, l, 1) : *ta;
      ls_tensor vb = by_layer ? ls_tensor_slice(tb, 0, l, 1) : *tb;
      ls_tensor vbound = bound != NULL && by_layer ? ls_tensor_slice(bound, 0, l, 1) : bound != NULL ? *bound : (ls_tensor){.data = NULL};
      const ls_compare_args args = values_args(v, s, stage, mode, expected, &va, &vb, bound != NULL ? &vbound : NULL, l);
      if (v->options->exact && !ls_dtype_is_float(ta->dtype)) {
        ls_compare_indices(&result, stage, &va, &vb, &args.names);
      } else if (!handled) {
        ls_compare_tensor(&result, &args);
        if (v->hooks->discount != NULL) v->hooks->discount(v, s, mode, &args, &result);
        result.carries = mode == LS_CASCADED || reads_carried(v, s, stage, a, b);
      }
      if (result.verdict == LS_FAIL && v->hooks->explain != NULL) v->hooks->explain(v, s, stage, ta, tb, &result);
      if (result.verdict == LS_FAIL && !v->options->exact) session_explain(v, s, a, b, mode, bounds, &args, &result);
      if (a >= 0 && same_code(a, kind_a, kind_b) && result.verdict == LS_PASS) result.verdict = LS_SHARED;
    }
    if (v->detail != NULL && v->hooks->show != NULL && ta != NULL && tb != NULL) v->hooks->show(v, s, stage, ta, tb);
    LS_TRY(session_add_stage(v, s, stage, sub, pair, mode, &result, err));
  }
  return LS_OK;
}

ls_status session_judge_stages(session *v, const step_run *s, int a, int b, const ls_trace *own, ls_error *err) {
  const bool isolated = !v->options->cascaded_only;
  for (int i = 0; i < v->config->layer->n_stages; i++) {
    const ls_stage *stage = &v->config->layer->stages[i];
    if (stage->is_ring) {
      for (int m = s->staged && isolated ? LS_ISOLATED : LS_CASCADED; m < LS_MODES; m++)
        if (session_recorded_apart(v, s, a, b, (ls_mode)m) == NULL) LS_TRY(v->hooks->judge_ring(v, s, stage, a, b, (ls_mode)m, own, err));
    } else if (s->staged) {
      if (isolated) LS_TRY(judge_stage(v, s, stage, a, b, LS_ISOLATED, own, err));
      LS_TRY(judge_stage(v, s, stage, a, b, LS_CASCADED, s->bounds, err));
    }
  }
  return LS_OK;
}

/* ---- properties ---- */

ls_status session_property(session *v, const step_run *s, const char *property, int path, const ls_result *result, ls_error *err) {
  if (!session_wanted(v, property, -1)) return LS_OK;
  if (v->options->record != NULL) {
    session_record_property(v, property, result);
    return LS_OK;
  }
  return ls_report_property(v->report, s->step.number, property, path < 0 ? "golden" : v->run[path].path->name, result, err);
}

ls_result session_fact(bool holds) {
  ls_result result;
  ls_result_init(&result);
  result.count = 1;
  result.failing = holds ? 0 : 1;
  result.bit_equal = holds ? 1 : 0;
  result.verdict = holds ? LS_PASS : LS_FAIL;
  return result;
}

ls_status session_judge_refusal(session *v, const step_run *s, int p, ls_error *err) {
  const ls_run_result *r = &s->cascaded[p];
  const bool refused = r->status == LS_REFUSED;
  ls_result result = session_fact(refused == s->step.expect_refused);
  if (result.verdict == LS_FAIL)
    snprintf(result.note, sizeof result.note, "%s: expected %s, found %s%s", ls_op_name(s->step.op),
             s->step.expect_refused ? "refused" : "ok", refused ? "refused: " : "ok", refused ? r->why.text : "");
  return session_property(v, s, "refusal", p, &result, err);
}
