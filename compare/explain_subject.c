/* What all patterns look at: both sides, what is allowed, where it fails; and how well a prediction does. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_numeric.h"
#include "../core/ls_shortage.h"
#include "../layers/bound_common.h"
#include "compare_tally.h"
#include "explain_internal.h"

/* What one element may be off by in all, other being what stands on the other side. */
static double limit_of(const ls_subject *s, int64_t i, double other, double rest) {
  const ls_compare_args *c = &s->args->compare;
  if (c->has_tolerance) return c->atol + c->rtol * fabs((double)s->a[i]);
  const double most = fmax(fabs(other), fabs((double)s->b[i]));
  return (c->steps > 0 ? c->steps * ls_step_at(c->type, most) : 0) + rest;
}

static bool within(double x, double y, double limit) {
  if (x == y || (x != x && y != y)) return true;
  return fabs(x - y) <= limit && isfinite(limit); /* a NaN fails by itself */
}

bool ls_subject_meets(const ls_subject *s, int64_t i, double predicted, double rest) {
  const double rounded = ls_round_to(s->args->compare.type, predicted);
  return within(rounded, (double)s->b[i], limit_of(s, i, rounded, rest));
}

static void widen(float *to, const ls_tensor *t, ls_dtype type) {
  ls_tensor_to_f32(to, t);
  if (t->dtype == type || t->dtype == LS_F32) return;
  for (int64_t i = 0; i < ls_tensor_count(t); i++) to[i] = (float)ls_round_to(type, ls_tensor_get(t, i));
}

bool ls_subject_open(ls_subject *s, const ls_explain_args *args) {
  memset(s, 0, sizeof *s);
  s->args = args;
  const ls_compare_args *c = &args->compare;
  const int64_t count = c->a != NULL && c->b != NULL ? ls_tensor_count(c->a) : 0;
  if (count <= 0 || count > LS_EXPLAIN_MOST || !ls_tensor_same_shape(c->a, c->b) || c->a->place != LS_HOST || c->b->place != LS_HOST ||
      !ls_dtype_is_float(c->a->dtype) || !ls_dtype_is_float(c->b->dtype))
    return false;
  if ((c->bound != NULL && !ls_tensor_same_shape(c->a, c->bound)) || (c->only != NULL && !ls_tensor_same_shape(c->a, c->only)))
    return false;
  s->width = c->a->ndim > 0 ? c->a->dim[c->a->ndim - 1] : 1;
  s->rows = count / s->width;
  const int64_t head = c->stage != NULL && c->stage->head_dim_field != 0 ? c->names.head_dim : 0;
  s->cell = head > 0 && s->width % head == 0 ? head : s->width;
  s->cells = s->width / s->cell;
  s->a = ls_shortage_unless(calloc((size_t)count, 3 * sizeof *s->a));
  s->at = ls_shortage_unless(calloc((size_t)count + (size_t)(s->rows * (s->cells + 1)), 1));
  if (s->a == NULL || s->at == NULL) {
    ls_subject_close(s);
    return false;
  }
  s->b = s->a + count, s->rest = s->b + count;
  s->cell_fails = s->at + count, s->row_fails = s->cell_fails + s->rows * s->cells;
  widen(s->a, c->a, c->type);
  widen(s->b, c->b, c->type);
  if (c->bound != NULL) ls_tensor_to_f32(s->rest, c->bound);
  for (int64_t i = 0; i < count; i++) {
    if (c->only != NULL && ls_tensor_get(c->only, i) == 0) {
      s->at[i] = LS_AT_UNDEFINED;
      continue;
    }
    const double a = (double)s->a[i], b = (double)s->b[i];
    if (within(a, b, limit_of(s, i, a, (double)s->rest[i]))) continue;
    s->at[i] = LS_AT_FAILS;
    s->failing++;
    s->lonely += !(isfinite(a) && isfinite(b));
    s->cell_fails[i / s->cell] = 1;
    s->rows_failing += !s->row_fails[i / s->width];
    s->row_fails[i / s->width] = 1;
  }
  return true;
}

void ls_subject_close(ls_subject *s) {
  free(s->a);
  free(s->at);
  s->a = NULL;
  s->at = NULL;
}

int64_t ls_subject_position(const ls_subject *s, int64_t row) {
  const ls_place_names *n = &s->args->compare.names;
  return n->base + (n->stride > 0 ? n->stride : 1) * row;
}

const ls_attn_config *ls_subject_attn(const ls_subject *s) {
  const ls_bound_args *step = s->args->step;
  return step != NULL && step->config->layer == &ls_layer_attn_v41 ? &step->config->attn : NULL;
}

bool ls_subject_stage(ls_tensor *t, const ls_subject *s, const char *stage, int64_t rows) {
  if (s->args->step == NULL || stage == NULL) return false;
  const ls_tensor *whole = ls_trace_tensor(s->args->step->values, stage);
  const ls_stage *entry = ls_stage_find(s->args->step->config->layer, stage);
  if (whole == NULL || whole->place != LS_HOST || !ls_dtype_is_float(whole->dtype)) return false;
  const bool by_layer = entry != NULL && strncmp(entry->axes, "layer", 5) == 0;
  if (whole->ndim != (by_layer ? 3 : 2) || (by_layer && s->args->compare.first_layer >= whole->dim[0])) return false;
  *t = by_layer ? ls_tensor_at(whole, s->args->compare.first_layer) : *whole;
  return rows < 0 || t->dim[0] == rows;
}

const ls_tensor *ls_subject_weight(const ls_subject *s, const char *name) {
  if (s->args->step == NULL || name == NULL) return NULL;
  const ls_bound_args *step = s->args->step;
  char full[LS_MAX_SPEC_NAME];
  const int64_t layer = ls_subject_attn(s) != NULL ? step->step->layer : s->args->compare.first_layer;
  snprintf(full, sizeof full, "layers/%lld/%s", (long long)layer, name);
  const ls_tensor *t = ls_trace_tensor(step->weights, full);
  return t != NULL ? t : ls_trace_tensor(step->weights, name);
}

/* ---- fits ---- */

/* How much nearer b lies to the prediction than to a. */
static double bits_of(const ls_subject *s, int64_t i, double predicted, double rest) {
  const ls_dtype type = s->args->compare.type;
  const double a = (double)s->a[i], b = (double)s->b[i], most = s->args->compare.steps > 0 || s->args->compare.has_tolerance ? 8 : 3;
  if (!isfinite(a) || !isfinite(b) || !isfinite(predicted)) return 0;
  const double step = ls_step_at(type, fmax(fabs(a), fabs(b))), known = fmax(isfinite(step) ? step / 2 : 0, rest / 4);
  if (!(known > 0)) return 0;
  const double bits = log2((fabs(a - b) + known) / (fabs(ls_round_to(type, predicted) - b) + known));
  return bits > most ? most : bits < -most ? -most : bits;
}

void ls_fit_add(ls_fit *fit, const ls_subject *s, int64_t i, double predicted, double rest) {
  if (s->at[i] == LS_AT_UNDEFINED) return;
  const bool meets = ls_subject_meets(s, i, predicted, rest);
  fit->checked++;
  fit->agree += meets;
  fit->evidence += bits_of(s, i, predicted, rest);
  if (s->at[i] != LS_AT_FAILS) return;
  fit->failing++;
  fit->explained += meets;
}

double ls_fit_bits(const ls_fit *fit) { return fit->evidence - log2(fit->tries > 1 ? fit->tries : 1); }

bool ls_fit_holds(const ls_fit *fit) {
  return fit->failing > 0 && fit->failing - fit->explained <= fit->failing / 100 && fit->checked - fit->agree <= fit->checked / 100;
}

double ls_fit_share(const ls_fit *fit) { return fit->checked > 0 ? (double)fit->agree / (double)fit->checked : 0; }

bool ls_fit_rows(ls_fit *fit, const ls_subject *s, ls_predict_fn *predict, void *arg, double tries) {
  *fit = (ls_fit){.tries = tries};
  float *y = ls_shortage_unless(malloc((size_t)s->width * 2 * sizeof *y));
  if (y == NULL) return false;
  float *rest = y + s->width;
  const int64_t spare = s->failing / 100;
  bool going = true;
  for (int64_t row = 0; row < s->rows && going; row++) {
    if (!s->row_fails[row]) continue;
    memcpy(rest, s->rest + row * s->width, (size_t)s->width * sizeof *rest);
    going = predict(arg, s, row, y, rest);
    for (int64_t c = 0; c < s->width && going; c++) {
      const int64_t i = row * s->width + c;
      if (s->cell_fails[i / s->cell]) ls_fit_add(fit, s, i, (double)y[c], (double)rest[c]);
      going = fit->failing - fit->explained <= spare;
    }
  }
  free(y);
  return going && ls_fit_holds(fit);
}

void ls_best_offer(ls_best *best, const ls_subject *s, const ls_fit *fit, const char *id, const char *format, ...) {
  const double share = ls_fit_share(fit), bits = ls_fit_bits(fit);
  const bool chance = bits < LS_PATTERN_BITS, held_chance = best->pattern->bits < LS_PATTERN_BITS;
  if (bits <= 0 || (best->share > 0 && chance && !held_chance)) return;
  if (best->share > 0 && chance == held_chance && (chance ? bits <= best->pattern->bits : share <= best->share)) return;
  best->share = share;
  best->pattern->bits = bits;
  char place[LS_MAX_PATTERN_TEXT / 2];
  snprintf(best->pattern->id, sizeof best->pattern->id, "%s", id);
  int used = snprintf(best->pattern->text, sizeof best->pattern->text, "%s: ", ls_place_words(place, sizeof place, s));
  va_list args;
  va_start(args, format);
  vsnprintf(best->pattern->text + used, sizeof best->pattern->text - (size_t)used, format, args);
  va_end(args);
}
