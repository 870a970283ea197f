/* The diagnosis of a failing stage: what ls_explain needs of a session. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "../compare/ls_explain.h"
#include "session_internal.h"

enum { DIAGNOSES = 12 };                                 /* of one stage of one path */
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

/* Whether both sides hold the stage as it was computed in isolation: then what was introduced shows there. */
static bool judged_isolated(const session *v, const step_run *s, int a, int b, const ls_stage *stage) {
  if (stage->is_ring) return a >= 0;
  return session_kind_of(v, s, b, stage->name) != LS_STAGE_FUSED && ls_trace_find(session_out(s, a, LS_ISOLATED), stage->name) != NULL &&
         ls_trace_find(session_out(s, b, LS_ISOLATED), stage->name) != NULL;
}

void session_explain(session *v, const step_run *s, int a, int b, ls_mode mode, const ls_trace *bounds, const ls_compare_args *compare,
                     ls_result *result) {
  int *times = &v->explained[stage_number(v, compare->stage->name)][b];
  if (*times >= DIAGNOSES || (mode == LS_CASCADED && judged_isolated(v, s, a, b, compare->stage))) return;
  ++*times;
  const ls_run_result *ref = mode == LS_CASCADED ? &s->cascaded[0] : &s->isolated[0];
  const ls_run_result *of_b = mode == LS_CASCADED ? &s->cascaded[b] : &s->isolated[b];
  ls_error ignored = {LS_OK, ""};
  ls_trace *own = NULL;
  fused_arg fused = {v, s, b};
  ls_tensor held_view, earlier_view[LS_EARLIER];
  ls_explain_earlier earlier[LS_EARLIER];
  ls_explain_args args = {.compare = *compare, .bounds = bounds, .fused = is_fused, .fused_arg = &fused, .earlier = earlier};
  if (mode == LS_CASCADED && s->staged && own_values(v, s, b, &own, &ignored) != LS_OK) {
    ls_trace_free(own);
    return;
  }
  const ls_bound_args step = {.config = v->config,
                              .weights = v->weights,
                              .step = &s->step,
                              .values = mode == LS_CASCADED ? own : s->given,
                              .before = ref->before,
                              .after = ref->after};
  if (s->staged) args.step = &step;
  args.held = held_before(v, s, of_b->before, compare, &held_view);
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
  if (pattern.id[0] == '\0') return; /* a bias keeps its own */
  snprintf(result->pattern, sizeof result->pattern, "%s", pattern.id);
  snprintf(result->pattern_text, sizeof result->pattern_text, "%s", pattern.text);
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
