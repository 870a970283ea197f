/* Drift: whether a path that reads its own results strays further from the exact values than the reference does.
 *
 * The cascaded bounds assume the worst direction of every rounding, so what a path makes of many steps uses a small share of them. What
 * roundings really come to is measured here: beside each path runs the reference in double, from a state of its own, through the same
 * discrete choices (grid codes, selections) as that path made or followed. Of the layer's last stages, row by row, with e = the L2 norm of
 * path less exact, r = that of reference less its exact values,
 *   e <= 2 r + floor,   floor^2 = sum over the row of step_i^2,
 * one step of the stored type an element: docs/tolerances.md, "Drift". */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../compare/compare_tally.h"
#include "../core/ls_numeric.h"
#include "session_internal.h"

/* A double of every weight takes four bytes for each of the stored two; the state and a step's stages come on top. */
static bool affordable(const ls_trace *weights, int64_t *bytes) {
  *bytes = 0;
  for (int i = 0; i < weights->n; i++) *bytes += ls_tensor_count(&weights->rec[i].t) * (int64_t)sizeof(double);
  return *bytes <= (int64_t)sysconf(_SC_PHYS_PAGES) / 4 * (int64_t)sysconf(_SC_PAGESIZE);
}

ls_status session_drift_open(session *v, const ls_trace *start, ls_error *err) {
  if (v->hooks->drift == NULL || v->options->options.precision != LS_PRECISION_ACT || !session_wanted(v, "drift", -1)) return LS_OK;
  if (v->options->record != NULL || v->options->judged == LS_JUDGE_LAST_PAIR) return LS_OK; /* no properties are judged */
  int64_t bytes;
  char line[160];
  if (!affordable(v->weights, &bytes)) {
    snprintf(line, sizeof line, "drift: NOT RUN: the weights in double take %" PRId64 " MiB, more than a quarter of the memory",
             bytes >> 20);
    return ls_report_note(v->report, line, err);
  }
  ls_path_options options = v->options->options;
  options.precision = LS_PRECISION_F64;
  ls_error why = {LS_OK, ""};
  const ls_status status = ls_run_open(&v->exact, &ls_path_ref, v->config, v->weights, &options, start, &why);
  if (status != LS_OK) return ls_fail(err, status, "%s", why.text);
  v->has_exact = true;
  return LS_OK;
}

static bool is_discrete(const session *v, const char *stage) {
  for (const char *const *name = v->hooks->discrete; name != NULL && *name != NULL; name++)
    if (strcmp(*name, stage) == 0) return true;
  return false;
}

/* The discrete choices that path p's values went through: those it was led on, else its own; none of another shape than the reference's,
 * which fails at its stage. Views. */
static ls_status choices_of(const session *v, const step_run *s, int p, ls_trace **choices, ls_error *err) {
  LS_TRY(ls_trace_new(choices, "choices", err));
  const ls_trace *out = s->cascaded[p].out;
  for (int i = 0; out != NULL && i < out->n; i++) {
    const char *name = out->rec[i].name;
    if (!is_discrete(v, name)) continue;
    const ls_tensor *led = ls_trace_tensor(s->lead, name), *right = ls_trace_tensor(s->cascaded[0].out, name);
    if (right == NULL || !ls_tensor_same_shape(right, &out->rec[i].t)) continue;
    LS_TRY(ls_trace_add_view(*choices, name, led != NULL ? led : &out->rec[i].t, err));
  }
  return LS_OK;
}

/* The step in double through path p's choices: s->exact[p] and what the next step starts from. */
static ls_status exact_step(session *v, step_run *s, int p, ls_error *err) {
  ls_trace *choices = NULL;
  ls_run_result result = {.out = NULL};
  const ls_trace *from = v->exact_state[p] != NULL ? v->exact_state[p] : v->exact.state;
  ls_status status;
  LS_TRY_OUT(choices_of(v, s, p, &choices, err));
  LS_TRY_OUT(ls_run_step(&v->exact, &s->step, from, choices, true, &result, err));
  if (result.status == LS_OK) {
    LS_TRY_OUT(ls_trace_new(&s->exact[p], "exact", err));
    for (const char *const *name = v->hooks->drift; *name != NULL; name++) {
      const ls_tensor *t = ls_trace_tensor(result.out, *name);
      ls_tensor copy;
      if (t == NULL) continue;
      LS_TRY_OUT(ls_trace_add(s->exact[p], *name, t->dtype, t->ndim, t->dim, &copy, err));
      LS_TRY_OUT(ls_tensor_copy(&copy, t, err));
    }
  }
  ls_trace_free(v->exact_state[p]);
  v->exact_state[p] = result.after;
  result.after = NULL;
  result.owns_after = false;
out:
  ls_trace_free(choices);
  ls_run_result_free(&result);
  return status;
}

ls_status session_drift_step(session *v, step_run *s, ls_error *err) {
  for (int p = 0; v->has_exact && p < v->n_paths; p++)
    if (s->cascaded[p].status == LS_OK) LS_TRY(exact_step(v, s, p, err));
  return LS_OK;
}

/* ---- judging ---- */

typedef struct {
  const ls_tensor *path, *path_exact, *ref, *ref_exact;
  ls_dtype type;
} drift_of;

/* Where all four hold finite values: the row's errors and its floor. */
static bool row_errors(const drift_of *d, int64_t row, int64_t width, double *e, double *r, double *floor) {
  double own = 0, reference = 0, steps = 0;
  for (int64_t i = row * width; i < (row + 1) * width; i++) {
    const double path = ls_tensor_get(d->path, i), path_exact = ls_tensor_get(d->path_exact, i);
    const double ref = ls_tensor_get(d->ref, i), ref_exact = ls_tensor_get(d->ref_exact, i);
    const double step = ls_step_at(d->type, ref_exact);
    if (!isfinite(path) || !isfinite(path_exact) || !isfinite(ref) || !isfinite(step)) return false;
    own += (path - path_exact) * (path - path_exact);
    reference += (ref - ref_exact) * (ref - ref_exact);
    steps += step * step;
  }
  *e = sqrt(own), *r = sqrt(reference), *floor = sqrt(steps);
  return true;
}

/* "row 3 (position 17)" of a stage "row channel" */
static void name_row(char *buf, size_t size, const session *v, const step_run *s, const ls_stage *stage, const ls_tensor *t, int64_t row) {
  char axes[LS_NAME_MAX];
  int64_t index[LS_MAX_DIMS];
  const ls_place_names names = v->hooks->names(v, s, stage);
  snprintf(axes, sizeof axes, "%s", stage->axes);
  char *last = strrchr(axes, ' ');
  if (last != NULL) *last = '\0';
  ls_unflatten(index, row, t->ndim - 1, t->dim);
  const ls_place_text_args place = {.axes = axes, .ndim = t->ndim - 1, .index = index, .names = &names, .slot_position = -1};
  ls_place_text(buf, size, &place);
}

/* Of fewer elements two errors of one size come as far apart by chance: their squares' ratio has the F distribution of so many degrees of
 * freedom, which exceeds 4 in one of five rows of 2 elements, in one of 2e7 rows of 64. */
enum { LEAST_ELEMENTS = 64 };

static void judge_rows(const session *v, const step_run *s, const ls_stage *stage, const drift_of *d, ls_result *result) {
  const int64_t width = d->path->dim[d->path->ndim - 1], rows = width >= LEAST_ELEMENTS ? ls_tensor_count(d->path) / width : 0;
  for (int64_t row = 0; row < rows; row++) {
    double e, r, floor;
    if (!row_errors(d, row, width, &e, &r, &floor)) continue;
    const double allowed = 2 * r + floor, use = e > 0 ? e / allowed : 0;
    const bool holds = e <= allowed;
    result->count += width;
    result->rows++;
    if (!holds) result->rows_failing++, result->failing += width, result->verdict = LS_FAIL;
    if (!(use > result->use)) continue;
    result->use = use;
    name_row(result->where, sizeof result->where, v, s, stage, d->path, row);
    snprintf(result->note, sizeof result->note,
             "%s, %s: %.3g from the exact values, the reference %.3g from its own, allowed %.3g (twice that and a step an element)",
             stage->name, result->where, e, r, allowed);
  }
}

ls_status session_judge_drift(session *v, const step_run *s, int p, ls_error *err) {
  ls_result result = session_fact(true);
  result.count = result.bit_equal = 0;
  if (!v->has_exact || p == 0 || s->exact[0] == NULL || s->exact[p] == NULL) return LS_OK;
  for (const char *const *name = v->hooks->drift; *name != NULL; name++) {
    const ls_stage *stage = ls_stage_find(v->config->layer, *name);
    const drift_of d = {.path = ls_trace_tensor(s->cascaded[p].out, *name),
                        .path_exact = ls_trace_tensor(s->exact[p], *name),
                        .ref = ls_trace_tensor(s->cascaded[0].out, *name),
                        .ref_exact = ls_trace_tensor(s->exact[0], *name),
                        .type = ls_stage_type(v->config, stage)};
    if (d.path == NULL || d.path_exact == NULL || d.ref == NULL || d.ref_exact == NULL) continue;
    if (!ls_tensor_same_shape(d.path, d.ref)) continue; /* the stage's own comparison says so */
    judge_rows(v, s, stage, &d, &result);
  }
  if (result.rows == 0) return LS_OK; /* not one row of finite values */
  if (result.verdict != LS_FAIL) result.note[0] = '\0';
  return session_property(v, s, "drift", p, &result, err);
}

ls_status session_drift_transplant(session *v, int p, ls_error *err) {
  if (!v->has_exact) return LS_OK;
  ls_trace_free(v->exact_state[p]);
  v->exact_state[p] = NULL;
  return v->exact_state[0] != NULL ? ls_trace_copy(&v->exact_state[p], v->exact_state[0], err) : LS_OK;
}

void session_drift_close(session *v) {
  for (int p = 0; p < LS_MAX_PATHS; p++) ls_trace_free(v->exact_state[p]);
  ls_run_close(&v->exact);
}
