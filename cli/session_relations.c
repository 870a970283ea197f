#include "session_relations.h"

#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- twins ---- */

typedef struct {
  ls_run run;
  ls_config config;
  bool open;
} twin;

struct session_relations {
  twin twin[LS_MAX_PATHS][RELATION_MIRRORS];
};

static ls_status open_twin(session *v, int p, twin *t, relation_change *change, ls_error *err) {
  ls_path_options options = v->options->options;
  if (p > 0) options.precision = LS_PRECISION_ACT;
  ls_trace *weights = NULL;
  t->config = *v->config;
  LS_TRY(ls_trace_copy(&weights, v->weights, err));
  ls_status status = change(&t->config, weights, err);
  if (status == LS_OK) status = ls_run_open(&t->run, v->run[p].path, &t->config, weights, &options, NULL, err);
  ls_trace_free(weights); /* a path copies what it needs of them */
  t->open = status == LS_OK;
  return status;
}

ls_status relation_twin(relation *r, relation_mirror which, relation_change *change, ls_run **run, ls_error *err) {
  session *v = r->v;
  if (v->relations == NULL) v->relations = calloc(1, sizeof *v->relations);
  if (v->relations == NULL) return ls_fail(err, LS_INTERNAL, "out of memory");
  twin *t = &v->relations->twin[r->p][which];
  *run = &t->run;
  return t->open ? LS_OK : open_twin(v, r->p, t, change, err);
}

void session_relations_close(session *v) {
  for (int p = 0; v->relations != NULL && p < LS_MAX_PATHS; p++)
    for (int i = 0; i < RELATION_MIRRORS; i++) ls_run_close(&v->relations->twin[p][i].run);
  free(v->relations);
  v->relations = NULL;
}

/* ---- running ---- */

ls_status relation_start(relation *r, ls_error *err) {
  ls_trace_free(r->from);
  r->from = NULL;
  return ls_trace_copy(&r->from, r->was->before, err);
}

ls_status relation_run(relation *r, ls_run *run, const ls_step *step, const ls_trace *given, ls_error *err) {
  ls_run_result_free(&r->is);
  LS_TRY(ls_run_step(run, step, r->from, given, true, &r->is, err));
  if (r->is.status != LS_OK) relation_fail(r, "refused: %s", r->is.why.text);
  return LS_OK;
}

/* ---- changing ---- */

static ls_status add(relation *r, ls_dtype type, const ls_tensor *shape, ls_tensor *t, ls_error *err) {
  char name[32];
  if (r->memory == NULL) LS_TRY(ls_trace_new(&r->memory, "relation", err));
  snprintf(name, sizeof name, "%d", r->memory->n);
  return ls_trace_add(r->memory, name, type, shape->ndim, shape->dim, t, err);
}

ls_status relation_copy(relation *r, const ls_tensor *from, ls_tensor *copy, ls_error *err) {
  LS_TRY(add(r, from->dtype, from, copy, err));
  return ls_tensor_copy(copy, from, err);
}

ls_status relation_reverse(const ls_tensor *t, relation_turn turn, ls_error *err) {
  const int64_t n = t->dim[turn.axis] / turn.block;
  if (n < 2 || ls_tensor_count(t) == 0) return LS_OK;
  void *data = malloc(ls_tensor_bytes(t));
  if (data == NULL) return ls_fail(err, LS_INTERNAL, "out of memory: %zu bytes to reverse a tensor", ls_tensor_bytes(t));
  const ls_tensor old = ls_tensor_make(t->dtype, t->ndim, t->dim, data);
  ls_status status = ls_tensor_copy(&old, t, err);
  for (int64_t i = 0; i < n && status == LS_OK; i++) {
    const ls_tensor to = ls_tensor_slice(t, turn.axis, i * turn.block, turn.block);
    const ls_tensor from = ls_tensor_slice(&old, turn.axis, (n - 1 - i) * turn.block, turn.block);
    status = ls_tensor_copy(&to, &from, err);
  }
  free(data);
  return status;
}

void relation_scale(const ls_tensor *t, double factor) {
  if (factor == 1) return;
  for (int64_t i = 0; i < ls_tensor_count(t); i++) ls_tensor_set(t, i, ls_tensor_get(t, i) * factor);
}

void relation_poison(const ls_tensor *t) {
  for (int64_t i = 0; i < ls_tensor_count(t); i++) ls_tensor_set(t, i, NAN);
}

ls_status relation_duplicate(const ls_tensor *t, int axis, int64_t block, ls_error *err) {
  if (t->dim[axis] < 2 * block) return LS_OK;
  const ls_tensor from = ls_tensor_slice(t, axis, 0, block), to = ls_tensor_slice(t, axis, block, block);
  return ls_tensor_copy(&to, &from, err);
}

bool relation_is_ordinary(const ls_tensor *rows) {
  for (int64_t row = 0; row < rows->dim[0]; row++) {
    const ls_tensor of = ls_tensor_at(rows, row);
    double most = 0;
    for (int64_t i = 0; i < ls_tensor_count(&of); i++) {
      const double value = fabs(ls_tensor_get(&of, i));
      if (!(value <= 0x1p40)) return false;
      most = value > most ? value : most;
    }
    if (most != 0 && most < 0x1p-45) return false;
  }
  return true;
}

ls_tensor *relation_of_layer(const ls_trace *trace, int64_t layer, const char *what) {
  char name[LS_MAX_SPEC_NAME];
  snprintf(name, sizeof name, "layers/%" PRId64 "/%s", layer, what);
  ls_record *record = ls_trace_find(trace, name);
  return record != NULL ? &record->t : NULL;
}

/* ---- comparing ---- */

void relation_fail(relation *r, const char *format, ...) {
  ls_result fact = session_fact(false);
  va_list args;
  va_start(args, format);
  vsnprintf(fact.note, sizeof fact.note, format, args);
  va_end(args);
  ls_result_merge(&r->result, &fact);
}

void relation_hold(relation *r, const char *name, const ls_tensor *expected, const ls_tensor *found, const ls_tensor *bound,
                   const ls_tensor *only) {
  const ls_stage *stage = ls_stage_find(r->v->config->layer, name);
  if (expected == NULL || found == NULL || ls_tensor_count(expected) == 0) return;
  const ls_compare_args args = {.stage = stage,
                                .type = ls_stage_type(r->v->config, stage),
                                .a = expected,
                                .b = found,
                                .bound = bound,
                                .only = only,
                                .steps = bound != NULL ? stage->steps : 0,
                                .names = r->v->hooks->names(r->v, r->s, stage)};
  ls_result one;
  ls_result_init(&one);
  if (ls_dtype_is_float(expected->dtype)) {
    ls_compare_tensor(&one, &args);
  } else {
    ls_compare_indices(&one, stage, expected, found, &args.names);
  }
  if (one.verdict == LS_FAIL && one.has_worst) {
    snprintf(one.note, sizeof one.note, "%s %s: expected %.6g, found %.6g", name, one.where, one.worst_a, one.worst_b);
  } else if (one.verdict == LS_FAIL) {
    char why[sizeof one.note];
    snprintf(why, sizeof why, "%s", one.note);
    snprintf(one.note, sizeof one.note, "%s: %.280s", name, why);
  }
  ls_result_merge(&r->result, &one);
}

void relation_hold_bytes(relation *r, const ls_trace *expected, const ls_trace *found, const char *const *names) {
  ls_result one;
  if (r->is.status != LS_OK) return;
  ls_compare_same_bytes(&one, expected, found, names, NULL);
  ls_result_merge(&r->result, &one);
}

/* Of an ordinary stage the elements that are defined. */
static const ls_tensor *defined(const relation *r, const char *stage) {
  if (r->v->hooks->defined == NULL) return NULL;
  return r->v->hooks->defined(r->v, r->s, ls_stage_find(r->v->config->layer, stage), LS_CASCADED);
}

/* ---- stage by stage ---- */

ls_status relation_bound(relation *r, const char *stage, const ls_tensor **bound, ls_error *err) {
  if (*r->bounds == NULL) LS_TRY(session_own_bounds(r->v, r->s, r->p, r->bounds, err));
  *bound = ls_trace_tensor(*r->bounds, stage);
  return LS_OK;
}

static ls_status add_view(ls_trace **trace, const char *name, const ls_tensor *t, ls_error *err) {
  if (*trace == NULL) LS_TRY(ls_trace_new(trace, "relation", err));
  return ls_trace_find(*trace, name) != NULL ? LS_OK : ls_trace_add_view(*trace, name, t, err);
}

ls_status relation_give(relation *r, const char *stage, const ls_tensor *t, ls_error *err) { return add_view(&r->given, stage, t, err); }

ls_status relation_follow(relation *r, ls_error *err) {
  for (int i = 0; r->s->lead != NULL && i < r->s->lead->n; i++)
    LS_TRY(relation_give(r, r->s->lead->rec[i].name, &r->s->lead->rec[i].t, err));
  return LS_OK;
}

ls_status relation_expect(relation *r, const char *stage, const ls_tensor *t, const ls_tensor *bound, ls_error *err) {
  LS_TRY(relation_give(r, stage, t, err));
  if (bound != NULL) LS_TRY(add_view(&r->within, stage, bound, err));
  return add_view(&r->expect, stage, t, err);
}

ls_status relation_expect_turned(relation *r, const char *stage, const relation_turn *turns, bool exact, ls_error *err) {
  const ls_tensor *was = ls_trace_tensor(r->was->out, stage), *bound = NULL;
  ls_tensor expected, turned;
  if (was == NULL) return LS_OK;
  if (!exact) LS_TRY(relation_bound(r, stage, &bound, err));
  LS_TRY(relation_copy(r, was, &expected, err));
  if (bound != NULL) LS_TRY(relation_copy(r, bound, &turned, err));
  for (; turns->block > 0; turns++) {
    LS_TRY(relation_reverse(&expected, *turns, err));
    if (bound != NULL) LS_TRY(relation_reverse(&turned, *turns, err));
  }
  return relation_expect(r, stage, &expected, bound != NULL ? &turned : NULL, err);
}

void relation_hold_expected(relation *r) {
  for (int i = 0; r->expect != NULL && i < r->expect->n; i++) {
    const char *name = r->expect->rec[i].name;
    relation_hold(r, name, &r->expect->rec[i].t, ls_trace_tensor(r->is.out, name), ls_trace_tensor(r->within, name), defined(r, name));
  }
}

/* ---- in one go ---- */

/* float16 has few exponents: only where value and product are normal numbers did both round alike. bfloat16 has as many as the float32 that
 * it is computed in. */
static ls_status normal_ones(relation *r, const ls_tensor *was, double factor, ls_tensor *only, ls_error *err) {
  LS_TRY(add(r, LS_U8, was, only, err));
  for (int64_t i = 0; i < ls_tensor_count(was); i++) {
    const double value = fabs(ls_tensor_get(was, i));
    ls_tensor_set(only, i, !isfinite(value) || (value >= 0x1p-14 && value * factor <= 65504) ? 1 : 0);
  }
  return LS_OK;
}

ls_status relation_hold_scaled(relation *r, const char *stage, double factor, ls_error *err) {
  const ls_tensor *was = ls_trace_tensor(r->was->out, stage), *is = ls_trace_tensor(r->is.out, stage), *only = defined(r, stage);
  ls_tensor expected, normal;
  if (was == NULL || is == NULL) return LS_OK;
  LS_TRY(relation_copy(r, was, &expected, err));
  if (factor != 1 && r->v->config->act == LS_F16) {
    LS_TRY(normal_ones(r, was, factor, &normal, err));
    only = &normal;
  }
  relation_scale(&expected, factor);
  relation_hold(r, stage, &expected, is, NULL, only);
  return LS_OK;
}

/* ---- the session ---- */

static ls_status judge(session *v, const step_run *s, int p, const relation_kind *kind, ls_trace **bounds, ls_error *err) {
  relation r = {.v = v, .s = s, .p = p, .was = &s->cascaded[p], .bounds = bounds};
  ls_result_init(&r.result);
  ls_status status = kind->judge(&r, err);
  if (r.result.verdict == LS_MISTRUSTED) r.result.verdict = LS_PASS; /* zeros are judged where they are made */
  if (status == LS_OK && r.result.verdict != LS_NOT_RUN) status = session_property(v, s, kind->name, p, &r.result, err);
  ls_run_result_free(&r.is);
  ls_trace_free(r.from);
  ls_trace_free(r.memory);
  ls_trace_free(r.in);
  ls_trace_free(r.given);
  ls_trace_free(r.expect);
  ls_trace_free(r.within);
  return status;
}

ls_status relation_judge_all(session *v, const step_run *s, int p, const relation_kind *kinds, int n, ls_error *err) {
  if (!v->options->relations || !s->staged || s->cascaded[p].status != LS_OK || v->recorded[p] != NULL || s->given == NULL) return LS_OK;
  ls_trace *bounds = NULL;
  ls_status status = LS_OK;
  for (int i = 0; i < n && status == LS_OK; i++)
    if (session_reruns(v, kinds[i].name)) status = judge(v, s, p, &kinds[i], &bounds, err);
  ls_trace_free(bounds);
  return status;
}
