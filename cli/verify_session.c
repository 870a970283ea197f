#include "verify_session.h"

#include <fnmatch.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_shortage.h"
#include "session_internal.h"

static void step_run_free(step_run *s) {
  for (int p = 0; p < LS_MAX_PATHS; p++) {
    ls_run_result_free(&s->cascaded[p]);
    ls_run_result_free(&s->isolated[p]);
    ls_trace_free(s->exact[p]);
  }
  ls_run_result_free(&s->unrounded);
  ls_trace_free(s->lead);
  ls_trace_free(s->values);
  ls_trace_free(s->given);
  ls_trace_free(s->golden);
  ls_trace_free(s->bounds);
  ls_trace_free(s->golden_bounds);
  ls_step_free(&s->step);
}

bool session_wanted(const session *v, const char *stage, int64_t sub) {
  const char *glob = v->options->stage_glob;
  if (glob == NULL || fnmatch(glob, stage, 0) == 0) return true;
  char name[LS_NAME_MAX + 24];
  snprintf(name, sizeof name, "%s.%" PRId64, stage, sub);
  return sub >= 0 && fnmatch(glob, name, 0) == 0;
}

bool session_judges(const session *v, int a, int b) {
  const int last = v->n_paths - 1;
  return v->options->judged == LS_JUDGE_ALL || (b == last && (v->options->judged == LS_JUDGE_LAST_PATH || a == last - 1));
}

/* Whose properties are judged. */
static bool judges_path(const session *v, int p) {
  return v->options->judged == LS_JUDGE_ALL || (v->options->judged == LS_JUDGE_LAST_PATH && p == v->n_paths - 1);
}

bool session_reruns(const session *v, const char *property) { return !v->options->no_reruns && session_wanted(v, property, -1); }

const char *session_pair(char buf[64], const session *v, int a, int b) {
  snprintf(buf, 64, "%s-%s", a < 0 ? "golden" : v->run[a].path->name, v->run[b].path->name);
  return buf;
}

const ls_trace *session_out(const step_run *s, int side, ls_mode mode) {
  if (side < 0) return s->step.expect;
  return mode == LS_CASCADED ? s->cascaded[side].out : s->isolated[side].out;
}

ls_status session_history_new(session *v, int64_t n, ls_error *err) {
  v->history = calloc((size_t)n, sizeof(ls_ring_history *));
  if (v->history == NULL) return ls_fail(err, LS_INTERNAL, "out of memory");
  v->n_history = n;
  return LS_OK;
}

int64_t session_state_int(const ls_trace *state, const char *name) {
  const ls_tensor *t = ls_trace_tensor(state, name);
  return t != NULL ? (int64_t)ls_tensor_get(t, 0) : 0;
}

/* ---- bounds ---- */

/* Whose difference is judged, and from what it may come. */
typedef struct {
  const session *v;
  const step_run *s;
  bool everything; /* cascaded */
  int a, b;        /* isolated: the pair; a -1: the fixture */
} carry_arg;

ls_stage_kind session_kind_of(const session *v, const step_run *s, int path, const char *stage) {
  return v->run[path].path->stage_kind(v->run[path].ctx, &s->step, stage);
}

bool session_carries(const session *v, const step_run *s, int a, int b, const char *stage) {
  if (session_kind_of(v, s, b, stage) == LS_STAGE_FUSED) return true;
  return a < 0 ? ls_trace_find(s->step.expect, stage) == NULL : session_kind_of(v, s, a, stage) == LS_STAGE_FUSED;
}

static bool carries(void *arg, const char *stage) {
  const carry_arg *c = arg;
  return c->everything || session_carries(c->v, c->s, c->a, c->b, stage);
}

static ls_bound_args bound_args(carry_arg *arg) {
  const session *v = arg->v;
  const step_run *s = arg->s;
  const ls_run_result *ref = arg->everything ? &s->cascaded[0] : &s->isolated[0];
  return (ls_bound_args){.config = v->config,
                         .weights = v->weights,
                         .step = &s->step,
                         .values = arg->everything ? s->values : s->given,
                         .carries = carries,
                         .carries_arg = arg,
                         .unrounded = v->options->options.precision == LS_PRECISION_F64 && (arg->a == 0 || arg->b == 0),
                         .before = ref->before,
                         .after = ref->after,
                         .state_bounds = arg->everything ? v->cascaded_bounds
                                         : arg->a < 0    ? v->golden_bounds
                                                         : NULL};
}

static ls_status evaluate_bounds(carry_arg *arg, ls_trace **bounds, ls_error *err) {
  const ls_layer *layer = arg->v->config->layer;
  const ls_bound_args args = bound_args(arg);
  if (!arg->everything) return session_bounds_isolated(arg->s->pair_bounds, &args, bounds, err);
  LS_TRY(ls_trace_new(bounds, "bounds", err));
  for (int i = 0; i < layer->n_stages; i++) {
    if (layer->stages[i].bound != NULL) LS_TRY(layer->stages[i].bound(&args, *bounds, err));
  }
  return LS_OK;
}

ls_status session_own_bounds(const session *v, const step_run *s, int p, ls_trace **bounds, ls_error *err) {
  carry_arg own = {.v = v, .s = s, .a = p, .b = p};
  return evaluate_bounds(&own, bounds, err);
}

/* What the states after the step may be off by, in place of those before it. */
static ls_status carry_state_bounds(carry_arg *arg, const ls_trace *bounds, ls_trace **state_bounds, ls_error *err) {
  const ls_layer *layer = arg->v->config->layer;
  if (layer->state_bounds == NULL) return LS_OK;
  ls_trace *next = NULL;
  const ls_bound_args args = bound_args(arg);
  ls_status status = layer->state_bounds(&args, bounds, &next, err);
  if (status != LS_OK) {
    ls_trace_free(next);
    return status;
  }
  ls_trace_free(*state_bounds);
  *state_bounds = next;
  return LS_OK;
}

/* The input, then every stage but the rings from `first` where it holds it, else from `second`. Views; rounded: values that are not of the
 * stage's type (a double reference, a fixture in float32) are rounded to it, so that every path reads the same ones. */
static ls_status overlay(const session *v, const step_run *s, const ls_trace *first, const ls_trace *second, bool rounded, ls_trace **out,
                         ls_error *err) {
  LS_TRY(ls_trace_new(out, "given", err));
  LS_TRY(ls_trace_add_view(*out, v->hooks->input, &s->input, err));
  for (int i = 0; i < v->config->layer->n_stages; i++) {
    const ls_stage *stage = &v->config->layer->stages[i];
    const ls_dtype type = ls_stage_type(v->config, stage);
    const ls_tensor *t = ls_trace_tensor(first, stage->name);
    if (t == NULL) t = ls_trace_tensor(second, stage->name);
    if (stage->is_ring || t == NULL) continue;
    if (rounded && t->dtype != type && ls_dtype_is_float(type)) {
      ls_tensor copy;
      LS_TRY(ls_trace_add(*out, stage->name, type, t->ndim, t->dim, &copy, err));
      LS_TRY(ls_tensor_copy(&copy, t, err));
    } else {
      LS_TRY(ls_trace_add_view(*out, stage->name, t, err));
    }
  }
  return LS_OK;
}

/* ---- running ---- */

static void count_time(session *v, const step_run *s) {
  const int64_t layer = s->step.op == LS_OP_FORWARD ? s->step.layer : 0;
  session_time *t = &v->time[s->step.op == LS_OP_FORWARD && s->step.rows == 1][layer];
  t->runs++;
  for (int p = 0; p < v->n_paths; p++) {
    const double seconds = s->cascaded[p].seconds;
    t->sum[p] += seconds;
    if (t->runs == 1 || seconds < t->least[p]) t->least[p] = seconds;
  }
}

static ls_status run_step(session *v, step_run *s, int p, ls_mode mode, const ls_trace *from, ls_error *err) {
  ls_run_result *result = mode == LS_CASCADED ? &s->cascaded[p] : &s->isolated[p];
  if (v->recorded[p] != NULL) return session_recorded_step(v, s, p, mode, from, result, err);
  return ls_run_step(&v->run[p], &s->step, from, mode == LS_CASCADED ? s->lead : s->given, true, result, err);
}

static ls_status run_cascaded(session *v, step_run *s, ls_error *err) {
  for (int p = 0; p < v->n_paths; p++) {
    if (p <= 1 && v->hooks->lead != NULL) LS_TRY(v->hooks->lead(v, s, err)); /* the fixture's, then also the reference's */
    if (p == 0) LS_TRY(session_recorded_lead(v, s, err));
    LS_TRY(run_step(v, s, p, LS_CASCADED, NULL, err));
  }
  if (v->options->record != NULL && v->n_paths == 1 && v->hooks->lead != NULL) LS_TRY(v->hooks->lead(v, s, err)); /* for whoever follows */
  LS_TRY(session_recorded_followed(v, s, err));
  return v->hooks->written(v, s, err);
}

/* The reference first, from what the fixture holds: its other stages are then what the fixture's own would have been; taken from the
 * cascaded run they would not belong to the fixture's. */
static ls_status run_isolated(session *v, step_run *s, ls_error *err) {
  const ls_trace *from = v->isolated != NULL ? v->isolated : s->cascaded[0].before;
  const ls_trace *recorded = session_recorded_given(v);
  LS_TRY(overlay(v, s, s->step.expect, recorded, true, &s->golden, err));
  LS_TRY(ls_run_step(&v->run[0], &s->step, from, s->golden, true, &s->isolated[0], err));
  if (s->isolated[0].status != LS_OK)
    return ls_fail(err, LS_INTERNAL, "step %" PRId64 ": refused in isolation: %s", s->step.number, s->isolated[0].why.text);
  LS_TRY(overlay(v, s, s->step.expect, recorded != NULL ? recorded : s->isolated[0].out, true, &s->given, err));
  if (v->options->options.precision == LS_PRECISION_F64) { /* what it gave away was rounded: it reads that too */
    s->unrounded = s->isolated[0];
    memset(&s->isolated[0], 0, sizeof s->isolated[0]);
    LS_TRY(ls_run_step(&v->run[0], &s->step, from, s->given, true, &s->isolated[0], err));
  }
  const bool judged = v->options->only_step < 0 || v->options->only_step == s->step.number;
  LS_TRY(session_recorded_read(v, s, from, err));
  for (int p = 1; p < v->n_paths && judged; p++) LS_TRY(run_step(v, s, p, LS_ISOLATED, from, err));
  return LS_OK;
}

static ls_status run_paths(session *v, step_run *s, ls_error *err) {
  LS_TRY(run_cascaded(v, s, err));
  LS_TRY(session_drift_step(v, s, err));
  if (!s->staged) return LS_OK;
  count_time(v, s);
  if (v->options->record != NULL) return run_isolated(v, s, err); /* bounds are for those who judge */
  LS_TRY(overlay(v, s, s->cascaded[0].out, NULL, false, &s->values, err));
  carry_arg all = {.v = v, .s = s, .everything = true}, golden = {.v = v, .s = s, .a = -1, .b = 0};
  LS_TRY(evaluate_bounds(&all, &s->bounds, err));
  if (v->options->cascaded_only) return LS_OK;
  LS_TRY(run_isolated(v, s, err));
  return v->has_expected ? evaluate_bounds(&golden, &s->golden_bounds, err) : LS_OK;
}

/* After the step was judged: what the next one starts from. */
static ls_status move_on(session *v, step_run *s, ls_error *err) {
  if (!s->staged || v->config->layer->state_bounds == NULL) return LS_OK;
  if (v->options->record == NULL) {
    carry_arg all = {.v = v, .s = s, .everything = true}, golden = {.v = v, .s = s, .a = -1, .b = 0};
    LS_TRY(carry_state_bounds(&all, s->bounds, &v->cascaded_bounds, err));
    if (v->options->cascaded_only) return LS_OK;
    if (v->has_expected) LS_TRY(carry_state_bounds(&golden, s->golden_bounds, &v->golden_bounds, err));
  }
  ls_trace_free(v->isolated);
  v->isolated = s->isolated[0].after;
  s->isolated[0].after = NULL;
  s->isolated[0].owns_after = false;
  return LS_OK;
}

/* ---- the session ---- */

/* Where values are allowed not to be finite, paths that agree on them pass: the report still says where they begin. */
static ls_status note_nonfinite(session *v, const step_run *s, ls_error *err) {
  if (!v->options->allow_nonfinite || v->noted_nonfinite) return LS_OK;
  const ls_layer *layer = v->config->layer;
  for (int i = -1; i < layer->n_stages; i++) {
    const char *name = i < 0 ? v->hooks->input : layer->stages[i].name;
    const ls_tensor *t = i < 0 ? &s->input : ls_trace_tensor(s->cascaded[0].out, name);
    for (int64_t k = 0; t != NULL && ls_dtype_is_float(t->dtype) && k < ls_tensor_count(t); k++) {
      const double value = ls_tensor_get(t, k);
      if (isfinite(value) || (value == -INFINITY && v->hooks->minus_inf != NULL && v->hooks->minus_inf(name))) continue;
      char line[160], place[96] = "";
      for (int64_t axis = t->ndim - 1, rest = k; axis >= 0; rest /= t->dim[axis], axis--) {
        char behind[sizeof place];
        snprintf(behind, sizeof behind, "%s%s", axis < t->ndim - 1 ? ", " : "", place);
        snprintf(place, sizeof place, "%" PRId64 "%.64s", rest % t->dim[axis], behind);
      }
      snprintf(line, sizeof line, "the reference's first value that is not finite: step %" PRId64 ", %s [%s] is %g", s->step.number, name,
               place, value);
      v->noted_nonfinite = true;
      return ls_report_note(v->report, line, err);
    }
  }
  return LS_OK;
}

static ls_status judge_pair(session *v, const step_run *s, int a, int b, ls_error *err) {
  if (!s->staged || (a < 0 && b == 0)) return session_judge_stages(v, s, a, b, s->golden_bounds, err);
  if (a < 0 && s->step.expect->n == 0) return session_judge_stages(v, s, a, b, NULL, err); /* nothing is held: no bound is looked at */
  if (v->options->cascaded_only) return session_judge_stages(v, s, a, b, NULL, err);
  ls_trace *own = NULL;
  carry_arg arg = {.v = v, .s = s, .a = a, .b = b};
  ls_status status = evaluate_bounds(&arg, &own, err);
  if (status == LS_OK) status = session_judge_stages(v, s, a, b, own, err);
  ls_trace_free(own);
  return status;
}

/* Whoever is judged goes on from where the reference stands. */
static ls_status transplant(session *v, ls_error *err) {
  const int judged = v->options->judged == LS_JUDGE_LAST_PAIR ? 2 : 1;
  for (int p = v->n_paths - judged; p < v->n_paths; p++) {
    if (p <= 0) continue;
    LS_TRY(ls_run_stand(&v->run[p], v->run[0].state, err));
    LS_TRY(session_drift_transplant(v, p, err));
  }
  return LS_OK;
}

/* ---- where the steps come from ---- */

static int64_t steps_of(const session *v) { return v->fixture != NULL ? ls_fixture_steps(v->fixture) : v->scenario->steps; }

static const ls_step *step_info(const session *v, int64_t i) {
  return v->fixture != NULL ? ls_fixture_step_info(v->fixture, i) : &v->scenario->step[i];
}

static ls_status load_step(session *v, int64_t i, ls_step *step, ls_error *err) {
  return v->fixture != NULL ? ls_fixture_load_step(v->fixture, i, step, err) : ls_scenario_load_step(v->scenario, i, step, err);
}

static ls_status verify_step(session *v, int64_t i, ls_error *err) {
  step_run s;
  session_bounds *pair_bounds = NULL;
  memset(&s, 0, sizeof s);
  s.pair_bounds = &pair_bounds;
  ls_status status;
  LS_TRY_OUT(load_step(v, i, &s.step, err));
  LS_TRY_OUT(session_recorded_load(v, i, err));
  if (v->options->has_transplant && v->options->transplant == s.step.number) LS_TRY_OUT(transplant(v, err));
  LS_TRY_OUT(run_paths(v, &s, err));
  if (v->options->record != NULL) {
    LS_TRY_OUT(session_record_step(v, &s, err));
    LS_TRY_OUT(move_on(v, &s, err));
    LS_TRY_OUT(ls_shortage_check("what was found of a step", err));
    goto out;
  }
  LS_TRY_OUT(v->hooks->remember(v, &s, err));
  if (v->options->only_step < 0 || v->options->only_step == s.step.number) {
    if (s.staged) LS_TRY_OUT(note_nonfinite(v, &s, err));
    if (s.staged && v->options->judged == LS_JUDGE_ALL) LS_TRY_OUT(v->hooks->judge_expected(v, &s, err));
    for (int b = 0; b < v->n_paths; b++)
      for (int a = -1; a < b; a++)
        if (session_judges(v, a, b)) LS_TRY_OUT(judge_pair(v, &s, a, b, err));
    for (int p = 0; p < v->n_paths; p++)
      if (judges_path(v, p)) LS_TRY_OUT(v->hooks->judge_path(v, &s, p, err));
    for (int p = 1; s.staged && p < v->n_paths; p++)
      if (judges_path(v, p)) LS_TRY_OUT(session_judge_drift(v, &s, p, err));
  }
  LS_TRY_OUT(move_on(v, &s, err));
  session_remember_earlier(v, &s);
  LS_TRY_OUT(ls_shortage_check("what was found of a step", err));
out:
  step_run_free(&s);
  session_bounds_free(pair_bounds); /* which the step's bounds look at */
  return status;
}

static ls_status open_paths(session *v, const ls_trace *start, ls_error *err) {
  for (int p = 0; p < v->options->n_paths; p++) {
    if (v->options->recorded[p] != NULL) {
      LS_TRY(session_recorded_open(v, v->options->recorded[p], v->options->recorded_name[p], start, err));
      continue;
    }
    ls_path_options options = v->options->options;
    if (p > 0) options.precision = LS_PRECISION_ACT;
    ls_error why = {LS_OK, ""};
    ls_run *run = &v->run[v->n_paths];
    ls_status status = ls_run_open(run, v->options->path[p], v->config, v->weights, &options, start, &why);
    if (status == LS_UNAVAILABLE && p > 0 && v->options->may_drop_paths) { /* nobody asked for this one by name */
      LS_TRY(ls_report_note(v->report, why.text, err));
      continue;
    }
    if (status != LS_OK) return ls_fail(err, status, "%s", why.text);
    LS_TRY(ls_report_path(v->report, run->path->name, run->path->describe(run->ctx), err));
    v->n_paths++;
  }
  LS_TRY(session_drift_open(v, start, err));
  return v->hooks->open(v, start, err);
}

/* Step i ended the run: what is in the report is of the steps before it. */
static void note_not_run(session *v, int64_t i) {
  const int64_t n = steps_of(v);
  char line[160];
  snprintf(line, sizeof line, "NOT RUN: steps %" PRId64 " to %" PRId64 ", %" PRId64 " of %" PRId64, step_info(v, i)->number,
           step_info(v, n - 1)->number, n - i, n);
  ls_report_note(v->report, line, NULL);
}

static ls_status verify_steps(session *v, const char *file, ls_error *err) {
  const int64_t n = steps_of(v);
  bool found = v->options->only_step < 0;
  for (int64_t i = 0; i < n; i++) {
    if (*v->options->interrupted) return ls_fail(err, LS_INTERRUPTED, "%s: interrupted after %" PRId64 " of %" PRId64 " steps", file, i, n);
    const ls_step *info = step_info(v, i);
    if (v->options->progress) {
      fprintf(stderr, "\r%s: step %" PRId64 " of %" PRId64 " (%s)\033[K", file, i + 1, n, ls_op_name(info->op));
      fflush(stderr);
    }
    ls_status status = verify_step(v, i, err);
    if (status != LS_OK) {
      note_not_run(v, i);
      return status;
    }
    ls_report_hit hit;
    if (v->options->until_failure) {
      LS_TRY(ls_report_first(v->report, &hit, err));
      if (hit.found) break;
    }
    if (v->options->has_last_step && info->number == v->options->last_step) break;
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
  for (int one_row = 0; one_row < 2; one_row++) {
    for (int64_t layer = 0; layer < LS_TIMED_LAYERS; layer++) {
      const session_time *t = &v->time[one_row][layer];
      for (int p = 0; p < v->n_paths && t->runs > 0; p++) {
        char line[200], what[64];
        if (v->hooks == &session_attn) {
          snprintf(what, sizeof what, "forward of layer %" PRId64 "%s", layer, one_row ? ", one row," : "");
        } else {
          snprintf(what, sizeof what, "context_write");
        }
        snprintf(line, sizeof line, "%s: %" PRId64 " %s traced, %.3g s each, the fastest %.3g s", v->run[p].path->name, t->runs, what,
                 t->sum[p] / (double)t->runs, t->least[p]);
        LS_TRY(ls_report_note(v->report, line, err));
      }
    }
  }
  return LS_OK;
}

/* Config, weights and steps are there. start: as of ls_fixture_state. */
static ls_status run_session(session *v, const char *name, const ls_trace *start, ls_error *err) {
  ls_status status = LS_OK;
  if (v->options->details) {
    v->detail = calloc(1, sizeof *v->detail);
    if (v->detail == NULL) return ls_fail(err, LS_INTERNAL, "out of memory");
  }
  v->hooks = v->config->layer == &ls_layer_attn_v41 ? &session_attn : &session_dflash;
  status = open_paths(v, start, err);
  if (status == LS_OK && v->options->record != NULL) status = session_record_begin(v, start, err);
  if (status == LS_OK) status = verify_steps(v, name, err);
  if (v->options->record != NULL) status = session_record_end(v, status, err);
  if (status == LS_OK && v->options->times) status = note_times(v, err);
  if (v->options->progress) fprintf(stderr, "\r\033[K");
  return status;
}

static void session_close(session *v) {
  for (int p = 0; p < LS_MAX_PATHS; p++) ls_run_close(&v->run[p]);
  session_drift_close(v);
  session_relations_close(v);
  session_roundings_close(v);
  for (int64_t i = 0; i < v->n_history; i++) ls_ring_history_free(v->history[i]);
  free(v->history);
  free(v->detail);
  ls_trace_free(v->isolated);
  ls_trace_free(v->cascaded_bounds);
  ls_trace_free(v->golden_bounds);
  session_forget_earlier(v);
}

ls_status ls_verify_scenario(const char *name, const ls_scenario *scenario, const ls_verify_options *options, ls_report *report,
                             ls_error *err) {
  session v;
  ls_error why = {LS_OK, ""};
  memset(&v, 0, sizeof v);
  v.options = options;
  v.report = report;
  v.scenario = scenario;
  v.config = &scenario->config;
  v.weights = scenario->weights;
  LS_TRY(ls_report_file(report, name, scenario->title, v.config, err));
  ls_status status = run_session(&v, name, scenario->start, &why);
  if (status != LS_OK) {
    const ls_status added = ls_report_stop(report, status, why.text, err);
    if (added == LS_OK) ls_fail(err, status, "%s", why.text);
    if (added != LS_OK) status = added;
  }
  session_close(&v);
  return status;
}

ls_status ls_verify_fixture(const char *file, const ls_verify_options *options, ls_report *report, ls_error *err) {
  session v;
  memset(&v, 0, sizeof v);
  v.options = options;
  v.report = report;
  ls_fixture_options reading = {options->allow_nonfinite, options->quiet ? NULL : stderr};
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
  v.has_expected = status == LS_OK && ls_fixture_has_expected(v.fixture);
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
  if (status == LS_OK) status = run_session(&v, file, start, &why);
  if (status != LS_OK) {
    const bool named = strstr(why.text, file) != NULL;
    if (options->quiet)
      ls_fail(err, status, "%s%s%s", named ? "" : file, named ? "" : ": ", why.text);
    else if (!listed)
      fprintf(stderr, "%s%s%s\n", named ? "" : file, named ? "" : ": ", why.text);
    ls_status added = ls_report_stop(report, status, why.text, err);
    if (added != LS_OK) status = added;
  }
  session_close(&v);
  ls_trace_free(start);
  ls_fixture_close(v.fixture);
  return status;
}
