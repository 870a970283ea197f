/* The diagnosis of a failing stage: what ls_explain needs of a session. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../compare/ls_explain.h"
#include "session_internal.h"

enum { DIAGNOSES = 24 };                                   /* of one stage of one path */
static const size_t most_earlier_bytes = (size_t)32 << 20; /* of one step */

typedef struct {
  const session *v;
  const step_run *s;
  int path;
} fused_arg;

static bool is_fused(void *arg, const char *stage) {
  const fused_arg *f = arg;
  return session_kind_of(f->v, f->s, f->path, stage) == LS_STAGE_FUSED;
}

/* What path b read in cascaded mode: its own stages, and for those that it does not have the reference's. */
static ls_status own_values(const session *v, const step_run *s, int b, ls_trace **values, ls_error *err) {
  LS_TRY(ls_trace_new(values, "values", err));
  for (int i = 0; s->values != NULL && i < s->values->n; i++) {
    const char *name = s->values->rec[i].name;
    const ls_tensor *own = ls_trace_tensor(s->cascaded[b].out, name);
    LS_TRY(ls_trace_add_view(*values, name, own != NULL ? own : &s->values->rec[i].t, err));
  }
  (void)v;
  return LS_OK;
}

/* The state tensor that a stage records, before the step. */
static const ls_tensor *held_before(const session *v, const step_run *s, const ls_trace *before, const ls_compare_args *compare,
                                    ls_tensor *view) {
  const ls_tensor *t = ls_trace_tensor(before, compare->stage->name);
  if (t != NULL && t->ndim == 3 && compare->first_layer < t->dim[0]) {
    *view = ls_tensor_at(t, compare->first_layer);
    return view;
  }
  char name[LS_MAX_SPEC_NAME];
  snprintf(name, sizeof name, "layers/%" PRId64 "/%s", v->hooks->sub(s), compare->stage->name);
  return t != NULL ? t : ls_trace_tensor(before, name);
}

static int stage_number(const session *v, const char *name) {
  for (int i = 0; i < v->config->layer->n_stages && i < LS_MAX_STAGES; i++)
    if (strcmp(v->config->layer->stages[i].name, name) == 0) return i;
  return 0;
}

/* Whether its isolated comparison failed in this step: then what was introduced shows there. */
static bool failed_isolated(session_diagnosis *d, const step_run *s, int a, ls_mode mode, int64_t layer) {
  const uint64_t bit = (uint64_t)1 << (layer & 63);
  if (d->step != s->step.number || d->pair != a) d->layers = 0;
  d->step = s->step.number, d->pair = a;
  if (mode == LS_CASCADED) return (d->layers & bit) != 0;
  d->layers |= bit;
  return false;
}

/* Takes a pattern over; one that may be chance only where the failures of the stage that look like it come to enough together. The pairs of
 * one step show the same values: they count once. */
static void take(session_diagnosis *d, int64_t step, const ls_pattern *pattern, ls_result *result) {
  if (pattern->id[0] == '\0') return; /* a bias keeps its own */
  if (pattern->bits < LS_PATTERN_BITS) {
    if (strcmp(d->pattern, pattern->id) != 0) d->bits = d->bits_before = 0, d->bits_step = -1;
    memcpy(d->pattern, pattern->id, sizeof d->pattern);
    if (d->bits_step != step) d->bits_before = d->bits;
    d->bits_step = step;
    if (d->bits < d->bits_before + pattern->bits) d->bits = d->bits_before + pattern->bits;
    if (d->bits < LS_PATTERN_BITS) return;
  }
  memcpy(result->pattern, pattern->id, sizeof result->pattern);
  memcpy(result->pattern_text, pattern->text, sizeof result->pattern_text);
}

void session_explain(session *v, const step_run *s, int a, int b, ls_mode mode, const ls_trace *bounds, const ls_compare_args *compare,
                     ls_result *result) {
  session_diagnosis *d = &v->diagnosis[stage_number(v, compare->stage->name)][b];
  if (failed_isolated(d, s, a, mode, compare->first_layer) || d->times >= DIAGNOSES) return;
  d->times++;
  const ls_run_result *from = mode == LS_CASCADED ? &s->cascaded[b] : &s->isolated[0];
  const ls_run_result *of_b = mode == LS_CASCADED ? &s->cascaded[b] : &s->isolated[b];
  ls_error ignored = {LS_OK, ""};
  ls_trace *own = NULL;
  fused_arg fused = {v, s, b};
  ls_tensor held_view, right_view, earlier_view[LS_EARLIER];
  ls_explain_earlier earlier[LS_EARLIER];
  ls_explain_args args = {.compare = *compare,
                          .bounds = bounds,
                          .fused = is_fused,
                          .fused_arg = &fused,
                          .earlier = earlier,
                          .a_is_expected = a < 0,
                          .inherits = mode == LS_CASCADED && !(compare->stage->is_ring && a < 0)};
  if (mode == LS_CASCADED && s->staged && own_values(v, s, b, &own, &ignored) != LS_OK) {
    ls_trace_free(own);
    return;
  }
  const ls_bound_args step = {.config = v->config,
                              .weights = v->weights,
                              .step = &s->step,
                              .values = mode == LS_CASCADED ? own : s->given,
                              .before = from->before,
                              .after = from->after};
  if (s->staged) args.step = &step;
  args.held = held_before(v, s, of_b->before, compare, &held_view);
  args.held_right = held_before(v, s, mode == LS_CASCADED ? s->cascaded[0].before : s->isolated[0].before, compare, &right_view);
  args.score = ls_trace_tensor(step.values, "index_score");
  for (int i = 0; i < LS_EARLIER && v->earlier[i].out != NULL; i++) {
    const ls_tensor *t = ls_trace_tensor(v->earlier[i].out, compare->stage->name);
    if (v->earlier[i].sub != v->hooks->sub(s) || t == NULL) continue;
    const bool by_layer = strncmp(compare->stage->axes, "layer", 5) == 0 && compare->first_layer < t->dim[0];
    earlier_view[i] = by_layer ? ls_tensor_at(t, compare->first_layer) : *t;
    earlier[args.n_earlier++] = (ls_explain_earlier){v->earlier[i].step, &earlier_view[i]};
  }
  ls_pattern pattern;
  ls_explain(&args, &pattern);
  ls_trace_free(own);
  take(d, s->step.number, &pattern, result);
}

void session_explain_own(session *v, const step_run *s, int p, const ls_compare_args *compare, ls_result *result) {
  const ls_run_result *r = &s->cascaded[p];
  const ls_bound_args step = {
      .config = v->config, .weights = v->weights, .step = &s->step, .values = r->out, .before = r->before, .after = r->after};
  const ls_explain_args args = {.compare = *compare, .step = &step};
  ls_pattern pattern;
  ls_explain(&args, &pattern);
  take(&v->diagnosis[stage_number(v, compare->stage->name)][p], s->step.number, &pattern, result);
}

void session_remember_earlier(session *v, step_run *s) {
  size_t bytes = 0;
  for (int i = 0; s->cascaded[0].out != NULL && i < s->cascaded[0].out->n; i++) bytes += ls_tensor_bytes(&s->cascaded[0].out->rec[i].t);
  if (!s->staged || s->cascaded[0].out == NULL || bytes > most_earlier_bytes) return;
  ls_trace_free(v->earlier[LS_EARLIER - 1].out);
  memmove(v->earlier + 1, v->earlier, (LS_EARLIER - 1) * sizeof v->earlier[0]);
  v->earlier[0] = (session_earlier){s->step.number, v->hooks->sub(s), s->cascaded[0].out};
  s->cascaded[0].out = NULL;
}

void session_forget_earlier(session *v) {
  for (int i = 0; i < LS_EARLIER; i++) ls_trace_free(v->earlier[i].out);
}
