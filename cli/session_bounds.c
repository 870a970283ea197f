/* Bounds of isolated stages, once for all pairs of a step. Which values they are evaluated from is the same for every pair; what differs is
 * which stages' errors are carried on (those that one side fuses away, or that the fixture lacks) and what the states before the step may
 * be off by. So a stage's bound is taken over from an earlier evaluation of the same step where everything that it asked for then comes out
 * the same now: it is not evaluated to the same numbers again. */
#include <stdlib.h>
#include <string.h>

#include "session_internal.h"

enum { MOST_EVALUATIONS = 8 };

/* One evaluation: what it came to, and what each stage's bound asked. */
typedef struct {
  ls_trace *bounds; /* of this evaluation alone; taken over ones are views of another's */
  const ls_trace *state_bounds;
  bool unrounded;
  uint64_t asked[LS_MAX_STAGES], carried[LS_MAX_STAGES]; /* a bit a stage: asked for by stage i, and carried */
  bool asked_state[LS_MAX_STAGES];
  bool alone[LS_MAX_STAGES]; /* it asked for what is no stage: not taken over */
} evaluation;

struct session_bounds {
  evaluation of[MOST_EVALUATIONS];
  int n;
};

_Static_assert(LS_MAX_STAGES <= 64, "a bit a stage");

void session_bounds_free(session_bounds *all) {
  for (int i = 0; all != NULL && i < all->n; i++) ls_trace_free(all->of[i].bounds);
  free(all);
}

/* Answers for the pair, and notes what was asked. */
typedef struct {
  const ls_bound_args *args;
  uint64_t asked, carried;
  bool other; /* asked for what is no stage */
} listener;

static bool listening(void *arg, const char *stage) {
  listener *l = arg;
  const ls_layer *layer = l->args->config->layer;
  const bool carried = l->args->carries(l->args->carries_arg, stage);
  int i = 0;
  while (i < layer->n_stages && strcmp(layer->stages[i].name, stage) != 0) i++;
  l->other = l->other || i == layer->n_stages;
  if (i < layer->n_stages) {
    l->asked |= (uint64_t)1 << i;
    l->carried |= (uint64_t)carried << i;
  }
  return carried;
}

/* Whether stage i of an earlier evaluation is what it would come to now. bounds: of this evaluation, as far as it is. */
static bool same_again(const evaluation *then, int i, const ls_bound_args *args, const ls_trace *bounds) {
  const ls_layer *layer = args->config->layer;
  if (then->alone[i] || then->unrounded != args->unrounded) return false;
  if (then->state_bounds != args->state_bounds && then->asked_state[i]) return false;
  for (int k = 0; k < layer->n_stages; k++) {
    const uint64_t bit = (uint64_t)1 << k;
    if ((then->asked[i] & bit) == 0) continue;
    const char *name = layer->stages[k].name;
    const bool carried = args->carries(args->carries_arg, name);
    if (carried != ((then->carried[i] & bit) != 0)) return false;
    const ls_tensor *a = ls_trace_tensor(then->bounds, name), *b = ls_trace_tensor(bounds, name);
    if (carried && (a == NULL || b == NULL || a->data != b->data)) return false; /* what is carried must be the very same */
  }
  return true;
}

static ls_status evaluate(session_bounds *all, evaluation *now, const ls_bound_args *args, ls_error *err) {
  const ls_layer *layer = args->config->layer;
  for (int i = 0; i < layer->n_stages; i++) {
    const ls_stage *stage = &layer->stages[i];
    const evaluation *then = NULL;
    if (stage->bound == NULL) continue;
    for (int e = 0; e < all->n && then == NULL; e++) then = same_again(&all->of[e], i, args, now->bounds) ? &all->of[e] : NULL;
    if (then != NULL) {
      const ls_tensor *t = ls_trace_tensor(then->bounds, stage->name);
      if (t != NULL) LS_TRY(ls_trace_add_view(now->bounds, stage->name, t, err)); /* else the step has no such stage */
      now->asked[i] = then->asked[i];
      now->carried[i] = then->carried[i];
      now->asked_state[i] = then->asked_state[i];
      continue;
    }
    listener l = {.args = args};
    ls_bound_args listened = *args;
    listened.carries = listening;
    listened.carries_arg = &l;
    listened.asked_state = &now->asked_state[i];
    LS_TRY(stage->bound(&listened, now->bounds, err));
    now->asked[i] = l.asked;
    now->carried[i] = l.carried;
    now->alone[i] = l.other;
  }
  return LS_OK;
}

ls_status session_bounds_isolated(session_bounds **of_step, const ls_bound_args *args, ls_trace **bounds, ls_error *err) {
  ls_status status;
  *bounds = NULL;
  if (*of_step == NULL) *of_step = calloc(1, sizeof **of_step);
  session_bounds *all = *of_step;
  if (all == NULL) return ls_fail(err, LS_INTERNAL, "out of memory");
  evaluation now = {.state_bounds = args->state_bounds, .unrounded = args->unrounded};
  LS_TRY_OUT(ls_trace_new(&now.bounds, "bounds", err));
  LS_TRY_OUT(evaluate(all, &now, args, err));
  if (all->n == MOST_EVALUATIONS) { /* more pairs than are remembered: this one's own, which may look at others' */
    *bounds = now.bounds;
    return LS_OK;
  }
  LS_TRY_OUT(ls_trace_new(bounds, "bounds", err));
  for (int i = 0; i < now.bounds->n; i++) LS_TRY_OUT(ls_trace_add_view(*bounds, now.bounds->rec[i].name, &now.bounds->rec[i].t, err));
  all->of[all->n++] = now;
  return LS_OK;
out:
  ls_trace_free(now.bounds);
  ls_trace_free(*bounds);
  *bounds = NULL;
  return status;
}
