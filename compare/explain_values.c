/* What the two sides show by themselves: values of another place, another stage or another step, a factor, a bit. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_numeric.h"
#include "../core/ls_shortage.h"
#include "explain_internal.h"

static const char *axis_of(const ls_subject *s) {
  return s->args->compare.stage != NULL && strstr(s->args->compare.stage->axes, "slot") != NULL ? "slot" : "row";
}

/* ---- values that are not the stage's at all ---- */

/* Values of another tensor, row by row. */
typedef struct {
  const ls_tensor *t;
} tensor_arg;

static bool predict_tensor(void *arg, const ls_subject *s, int64_t row, float *y, float *rest) {
  const ls_tensor *t = ((const tensor_arg *)arg)->t;
  (void)rest;
  for (int64_t i = 0; i < s->width; i++) y[i] = (float)ls_tensor_get(t, row * s->width + i);
  return true;
}

static int64_t first_failing(const ls_subject *s) {
  for (int64_t i = 0; i < s->rows * s->width; i++)
    if (s->at[i] == LS_AT_FAILS) return i;
  return 0;
}

/* One value, to the bit, at 99% of the elements that fail; near it is not enough. */
static void constants(const ls_subject *s, ls_best *best) {
  const float value = s->b[first_failing(s)];
  int64_t same = 0;
  for (int64_t i = 0; i < s->rows * s->width; i++) same += s->at[i] == LS_AT_FAILS && s->b[i] == value;
  if (!isfinite(value) || s->failing < 8 || same < s->failing - s->failing / 100) return;
  const ls_fit fit = ls_fit_counted();
  if (value == 0) {
    ls_best_offer(best, s, &fit, "zeros", "all values there are 0: not written, or cleared");
  } else {
    ls_best_offer(best, s, &fit, "constant", "all values there are %g (float32 bits %08x): not written, or filled", (double)value,
                  (unsigned)ls_f32_bits(value));
  }
}

static void other_stages(const ls_subject *s, ls_best *best) {
  if (s->args->step == NULL || s->args->compare.stage == NULL) return;
  const ls_layer *layer = s->args->step->config->layer;
  const ls_stage *own = s->args->compare.stage;
  for (int i = 0; i < layer->n_stages && !ls_best_is_certain(best); i++) {
    const ls_stage *stage = &layer->stages[i];
    ls_tensor t;
    if (strcmp(stage->name, own->name) == 0 || stage->is_ring || !ls_subject_stage(&t, s, stage->name, s->rows) || t.dim[1] != s->width)
      continue;
    bool reads = false;
    for (int k = 0; k < LS_MAX_INPUTS && own->input[k] != NULL; k++) reads = reads || strcmp(own->input[k], stage->name) == 0;
    ls_recipe recipe;
    if (reads && ls_recipe_find(&recipe, s, own->name) && recipe.by != LS_MADE_BY_GEMM) continue; /* they say what was left out */
    ls_fit fit;
    tensor_arg arg = {&t};
    if (!ls_fit_rows(&fit, s, predict_tensor, &arg, 16)) continue;
    if (reads) {
      ls_best_offer(best, s, &fit, "stage-skipped", "values equal %s, what the stage reads: it was skipped", stage->name);
    } else {
      ls_best_offer(best, s, &fit, "other-stage", "values equal the stage %s (%s)", stage->name, stage->math);
    }
  }
}

/* b is what it was before the step, to the bit, where the right values are not what they were. (A slot that the step does not write, or
 * writes once more, stays as it was on both sides.) */
static bool is_stale(const ls_subject *s) {
  const ls_tensor *held = s->args->held, *right = s->args->held_right;
  const int64_t n = s->rows * s->width;
  int64_t same = 0;
  if (held == NULL || right == NULL || ls_tensor_count(held) != n || ls_tensor_count(right) != n || s->failing < 8) return false;
  for (int64_t i = 0; i < n; i++)
    same += s->at[i] == LS_AT_FAILS && (float)ls_tensor_get(held, i) == s->b[i] && (float)ls_tensor_get(right, i) != s->a[i];
  return same >= s->failing - s->failing / 100;
}

static void other_steps(const ls_subject *s, ls_best *best) {
  ls_fit fit;
  if (is_stale(s)) {
    fit = ls_fit_counted();
    ls_best_offer(best, s, &fit, "stale", "values are those from before the step: the step did not write them");
  }
  if (strcmp(axis_of(s), "slot") == 0) return; /* a slot keeps what an earlier step put there */
  for (int i = 0; i < s->args->n_earlier && !ls_best_is_certain(best); i++) {
    tensor_arg arg = {s->args->earlier[i].values};
    if (arg.t == NULL || !ls_dtype_is_float(arg.t->dtype) || ls_tensor_count(arg.t) != s->rows * s->width) continue;
    if (ls_fit_rows(&fit, s, predict_tensor, &arg, 16))
      ls_best_offer(best, s, &fit, "stale", "values are those of step %lld, row by row", (long long)s->args->earlier[i].step);
  }
}

void ls_explain_other_values(const ls_subject *s, ls_best *best) {
  constants(s, best);
  if (!ls_best_is_certain(best)) other_steps(s, best);
  if (!ls_best_is_certain(best) && !s->args->inherits) other_stages(s, best);
}

/* ---- the right values in another place ---- */

typedef struct {
  int64_t shift;   /* row r holds row r + shift */
  bool reversed;   /* row rows - 1 - r */
  int64_t row;     /* >= 0: that row */
  int64_t turn;    /* > 0: modulo this many rows (a ring) */
  int64_t *of_row; /* [rows], where not NULL */
} rows_arg;

static bool predict_rows(void *arg, const ls_subject *s, int64_t row, float *y, float *rest) {
  const rows_arg *r = arg;
  int64_t from = r->of_row != NULL ? r->of_row[row] : r->row >= 0 ? r->row : r->reversed ? s->rows - 1 - row : row + r->shift;
  if (r->turn > 0) from = (from % r->turn + r->turn) % r->turn;
  if (from < 0 || from >= s->rows || from == row) return false;
  memcpy(y, s->a + from * s->width, (size_t)s->width * sizeof *y);
  for (int64_t i = 0; i < s->width; i++) rest[i] = fmaxf(rest[i], s->rest[from * s->width + i]);
  return true;
}

static bool row_matches(const ls_subject *s, int64_t row, int64_t from) {
  int64_t missed = 0, different = 0;
  for (int64_t c = 0; c < s->width && missed <= s->width / 100; c++) {
    const int64_t i = row * s->width + c, j = from * s->width + c;
    missed += !ls_subject_meets(s, i, (double)s->a[j], (double)fmaxf(s->rest[i], s->rest[j]));
    different += s->at[i] == LS_AT_FAILS;
  }
  return missed <= s->width / 100 && different >= 4;
}

/* The same stage without the failures of rows that a shift leaves without a source: what these hold is not the step's. false: those are too
 * many, or memory does not suffice. row_fails is to be freed. */
static bool without_ends(ls_subject *inner, const ls_subject *s, int64_t shift) {
  *inner = *s;
  inner->row_fails = ls_shortage_unless(malloc((size_t)s->rows));
  if (inner->row_fails == NULL) return false;
  memcpy(inner->row_fails, s->row_fails, (size_t)s->rows);
  for (int64_t row = 0; row < s->rows; row++) {
    if (!s->row_fails[row] || (row + shift >= 0 && row + shift < s->rows)) continue;
    inner->row_fails[row] = 0;
    inner->rows_failing--;
    for (int64_t i = row * s->width; i < (row + 1) * s->width; i++) inner->failing -= s->at[i] == LS_AT_FAILS;
  }
  return 2 * inner->rows_failing >= s->rows_failing;
}

/* Row r holds row r + shift: around the end, or all but the rows at one end. */
static void shifted_rows(const ls_subject *s, int64_t shift, double tries, ls_best *best) {
  const char *axis = axis_of(s), *sign = shift < 0 ? "-" : "+", *by = llabs((long long)shift) == 1 ? "one" : "a constant";
  rows_arg arg = {.row = -1, .shift = shift, .turn = s->rows};
  ls_fit fit;
  ls_subject inner;
  const bool has_inner = without_ends(&inner, s, shift);
  const int64_t ends = s->rows_failing - inner.rows_failing;
  if (ls_fit_rows(&fit, s, predict_rows, &arg, tries))
    ls_best_offer(best, s, &fit, "rows-shifted", "%s r holds %s r %s %lld%s: off by %s", axis, axis, sign, llabs((long long)shift),
                  ends > 0 ? ", around the end" : "", by);
  arg.turn = 0;
  if (ends > 0 && has_inner && ls_fit_rows(&fit, &inner, predict_rows, &arg, tries))
    ls_best_offer(best, s, &fit, "rows-shifted", "%s r holds %s r %s %lld: off by %s; %lld at the end hold other values", axis, axis, sign,
                  llabs((long long)shift), by, (long long)ends);
  free(inner.row_fails);
}

/* Each row holds another one, by no rule. */
static void scattered_rows(const ls_subject *s, double tries, ls_best *best) {
  enum { MOST = 4096, NAMED = 6 };
  rows_arg arg = {.row = -1};
  char list[160] = "";
  size_t used = 0;
  ls_fit fit;
  if (s->rows > MOST || s->rows_failing < 2) return;
  arg.of_row = ls_shortage_unless(malloc((size_t)s->rows * sizeof *arg.of_row));
  if (arg.of_row == NULL) return;
  bool all = true;
  for (int64_t row = 0, named = 0; row < s->rows && all; row++) {
    int64_t found = -1;
    for (int64_t r = 0; s->row_fails[row] && r < s->rows && found < 0; r++)
      if (r != row && row_matches(s, row, r)) found = r;
    arg.of_row[row] = found;
    all = found >= 0 || !s->row_fails[row];
    if (found >= 0 && named++ < NAMED && used < sizeof list - 24)
      used +=
          (size_t)snprintf(list + used, sizeof list - used, "%s%lld holds %lld", used > 0 ? ", " : "", (long long)row, (long long)found);
  }
  if (all && ls_fit_rows(&fit, s, predict_rows, &arg, tries * tries))
    ls_best_offer(best, s, &fit, "rows-moved", "each holds another %s of the step: %s%s", axis_of(s), list,
                  s->rows_failing > NAMED ? ", ..." : "");
  free(arg.of_row);
}

/* A failing row that holds another row of the step, and which; false: none of the first few does. */
static bool find_moved(const ls_subject *s, int64_t *row, int64_t *from) {
  enum { FEW = 8 };
  int looked = 0;
  for (*row = 0; *row < s->rows && looked < FEW; ++*row) {
    if (!s->row_fails[*row]) continue;
    looked++;
    for (*from = 0; *from < s->rows; ++*from)
      if (*from != *row && row_matches(s, *row, *from)) return true;
  }
  return false;
}

static void other_rows(const ls_subject *s, ls_best *best) {
  const double tries = 4 * (double)s->rows;
  const char *axis = axis_of(s);
  int64_t row, from;
  ls_fit fit;
  if (!find_moved(s, &row, &from)) return;
  rows_arg arg = {.row = -1, .reversed = true};
  if (s->rows_failing >= 2 && ls_fit_rows(&fit, s, predict_rows, &arg, tries))
    ls_best_offer(best, s, &fit, "rows-reversed", "%s r holds %s %lld - r: the order is reversed", axis, axis, (long long)s->rows - 1);
  arg = (rows_arg){.row = from};
  if (s->rows_failing >= 2 && ls_fit_rows(&fit, s, predict_rows, &arg, tries))
    ls_best_offer(best, s, &fit, "row-repeated", "each holds %s %lld: one %s was written in place of the others", axis, (long long)from,
                  axis);
  if (s->rows_failing == 1 && ls_fit_rows(&fit, s, predict_rows, &arg, tries))
    ls_best_offer(best, s, &fit, "rows-shifted", "it holds %s %lld", axis, (long long)from);
  if (!ls_best_is_certain(best) && s->rows_failing > 1) shifted_rows(s, from - row, tries, best);
  if (!ls_best_is_certain(best)) scattered_rows(s, tries, best);
}

typedef enum { MOVE_HEAD, MOVE_SWAP_NEIGHBOURS, MOVE_SWAP_HALVES, MOVE_INTERLEAVE, MOVE_DEAL, MOVE_REVERSE, MOVE_TRANSPOSE } move_kind;

typedef struct {
  move_kind kind;
  int64_t n; /* head: shift, or the head; transpose: groups */
  int64_t unit;
} move_arg;

static int64_t moved_from(const move_arg *m, const ls_subject *s, int64_t c) {
  const int64_t base = c / m->unit * m->unit, i = c % m->unit, half = m->unit / 2;
  switch (m->kind) {
    case MOVE_HEAD:
      return ((c / s->cell + m->n) % s->cells + s->cells) % s->cells * s->cell + c % s->cell;
    case MOVE_SWAP_NEIGHBOURS:
      return base + (i ^ 1);
    case MOVE_SWAP_HALVES:
      return base + (i + half) % m->unit;
    case MOVE_INTERLEAVE: /* halves where pairs belong */
      return base + i / 2 + (i % 2) * half;
    case MOVE_DEAL: /* pairs where halves belong */
      return base + (i % half) * 2 + i / half;
    case MOVE_REVERSE:
      return base + m->unit - 1 - i;
    default: /* [groups, n] read as [n, groups] */
      return base + i % m->n * (m->unit / m->n) + i / m->n;
  }
}

static bool predict_moved(void *arg, const ls_subject *s, int64_t row, float *y, float *rest) {
  const move_arg *m = arg;
  for (int64_t c = 0; c < s->width; c++) {
    const int64_t from = row * s->width + moved_from(m, s, c);
    y[c] = s->a[from];
    rest[c] = fmaxf(rest[c], s->rest[from]);
  }
  return true;
}

static void other_heads(const ls_subject *s, ls_best *best) {
  for (int64_t shift = 1; shift < s->cells && !ls_best_is_certain(best); shift++) {
    move_arg arg = {MOVE_HEAD, shift, s->width};
    ls_fit fit;
    if (!ls_fit_rows(&fit, s, predict_moved, &arg, 2 * (double)s->cells)) continue;
    const long long by = 2 * shift <= s->cells ? (long long)shift : (long long)(shift - s->cells);
    ls_best_offer(best, s, &fit, "heads-shifted", "head h holds head h %s %lld", by < 0 ? "-" : "+", llabs(by));
  }
}

static void other_channels(const ls_subject *s, ls_best *best) {
  static const struct {
    move_kind kind;
    const char *id, *text;
  } kinds[] = {{MOVE_SWAP_NEIGHBOURS, "pairs-swapped", "channels 2i and 2i + 1 stand in each other's place"},
               {MOVE_SWAP_HALVES, "halves-swapped", "channels i and i + n/2 stand in each other's place"},
               {MOVE_INTERLEAVE, "channels-interleaved", "the two halves lie interleaved, as adjacent pairs"},
               {MOVE_DEAL, "channels-interleaved", "adjacent pairs lie apart, as two halves"},
               {MOVE_REVERSE, "channels-reversed", "the order of the channels is reversed"}};
  const ls_attn_config *a = ls_subject_attn(s);
  const int64_t units[] = {s->cell, s->width};
  ls_fit fit;
  for (int u = 0; u < (s->cells > 1 ? 2 : 1); u++) {
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !ls_best_is_certain(best); i++) {
      move_arg arg = {kinds[i].kind, 0, units[u]};
      if (units[u] % 2 != 0 || units[u] < 4) continue;
      if (ls_fit_rows(&fit, s, predict_moved, &arg, 32))
        ls_best_offer(best, s, &fit, kinds[i].id, "%s%s", kinds[i].text, u == 0 && s->cells > 1 ? ", head by head" : "");
    }
  }
  const int64_t groups[] = {s->cells, a != NULL ? a->o_groups : 1};
  for (int g = 0; g < 2 && !ls_best_is_certain(best); g++) {
    for (int way = 0; way < 2 && groups[g] > 1 && s->width % groups[g] == 0 && s->width > groups[g]; way++) {
      move_arg arg = {MOVE_TRANSPOSE, way == 0 ? groups[g] : s->width / groups[g], s->width};
      if (ls_fit_rows(&fit, s, predict_moved, &arg, 32))
        ls_best_offer(best, s, &fit, "groups-transposed", "the %lld groups of %lld lie transposed (%s)", (long long)groups[g],
                      (long long)(s->width / groups[g]), way == 0 ? "interleaved" : "the other way round");
    }
  }
}

void ls_explain_moved(const ls_subject *s, ls_best *best) {
  if (s->args->inherits && strcmp(axis_of(s), "slot") != 0)
    return; /* a stage by its own inputs; slots may be filled wrongly from right rows */
  if (s->rows > 1) other_rows(s, best);
  if (!ls_best_is_certain(best) && s->cells > 1) other_heads(s, best);
  if (!ls_best_is_certain(best)) other_channels(s, best);
}

/* ---- the right values, changed by a number ---- */

static bool predict_ratio(void *arg, const ls_subject *s, int64_t row, float *y, float *rest) {
  const double ratio = *(const double *)arg;
  for (int64_t i = 0; i < s->width; i++) {
    y[i] = (float)(ratio * (double)s->a[row * s->width + i]);
    /* the right value was rounded: what is predicted from it is known to half a step of it */
    const double step = ls_step_at(s->args->compare.type, (double)s->a[row * s->width + i]);
    rest[i] = (float)(fabs(ratio) * ((double)rest[i] + (isfinite(step) && s->args->compare.steps > 0 ? step / 2 : 0)));
  }
  return true;
}

/* The middle one of up to 255 quotients. */
static double typical_ratio(const ls_subject *s) {
  double kept[255];
  int n = 0;
  const int64_t each = s->failing / 255 + 1;
  int64_t seen = 0;
  for (int64_t i = 0; i < s->rows * s->width && n < 255; i++) {
    if (s->at[i] != LS_AT_FAILS || seen++ % each != 0 || s->a[i] == 0 || !isfinite(s->b[i])) continue;
    const double ratio = (double)s->b[i] / (double)s->a[i];
    int at = n++;
    for (; at > 0 && kept[at - 1] > ratio; at--) kept[at] = kept[at - 1];
    kept[at] = ratio;
  }
  return n > 0 ? kept[n / 2] : 0;
}

static void ratios(const ls_subject *s, ls_best *best) {
  double ratio = typical_ratio(s);
  int exponent;
  ls_fit fit;
  if (ratio == 0 || ratio == 1 || !isfinite(ratio) || s->failing < 4) return;
  const double nearest = copysign(exp2(round(log2(fabs(ratio)))), ratio);
  if (fabs(ratio / nearest - 1) < 0x1p-7 && nearest != 1) {
    double exact = nearest;
    if (ls_fit_rows(&fit, s, predict_ratio, &exact, 64)) {
      frexp(fabs(nearest), &exponent);
      if (nearest == -1) {
        ls_best_offer(best, s, &fit, "sign", "values have the opposite sign");
      } else {
        ls_best_offer(best, s, &fit, "ratio", "values are %g times the right ones, 2^%d%s", nearest, exponent - 1,
                      nearest < 0 ? " with the opposite sign" : "");
      }
      return;
    }
  }
  if (ls_fit_rows(&fit, s, predict_ratio, &ratio, 1024)) {
    const double inverse_square = 1 / (ratio * ratio), whole = round(inverse_square), square = round(ratio * ratio);
    char also[64] = "";
    if (whole >= 2 && whole < 65536 && fabs(inverse_square / whole - 1) < 0x1p-6) snprintf(also, sizeof also, ", about %.0f^-1/2", whole);
    if (square >= 2 && square < 65536 && fabs(ratio * ratio / square - 1) < 0x1p-6) snprintf(also, sizeof also, ", about %.0f^1/2", square);
    ls_best_offer(best, s, &fit, "ratio", "values are %.6g times the right ones%s", ratio, also);
  }
}

static bool predict_magnitude(void *arg, const ls_subject *s, int64_t row, float *y, float *rest) {
  (void)arg, (void)rest;
  for (int64_t i = 0; i < s->width; i++) y[i] = fabsf(s->a[row * s->width + i]);
  return true;
}

/* One bit of the stored value, flipped where it fails, or held at one value everywhere. */
static void bits(const ls_subject *s, ls_best *best) {
  const ls_dtype type = s->args->compare.type;
  if (type != LS_BF16 && type != LS_F16) return;
  for (int bit = 0; bit < 16; bit++) {
    ls_fit fit = {.tries = 64};
    int64_t set = 0, cleared = 0;
    for (int64_t i = 0; i < s->rows * s->width && fit.failing - fit.explained <= s->failing / 100; i++) {
      if (s->at[i] != LS_AT_FAILS) continue;
      const uint16_t a = type == LS_BF16 ? ls_f32_to_bf16(s->a[i]) : ls_f32_to_f16(s->a[i]), flipped = a ^ (uint16_t)(1u << bit);
      const float y = type == LS_BF16 ? ls_bf16_to_f32(flipped) : ls_f16_to_f32(flipped);
      ls_fit_add(&fit, s, i, (double)y, (double)s->rest[i]);
      set += (flipped >> bit & 1) != 0;
      cleared += (flipped >> bit & 1) == 0;
    }
    if (fit.failing != s->failing || s->failing < 8 || !ls_fit_holds(&fit)) continue;
    const char *how = cleared == 0 ? "always set" : set == 0 ? "always clear" : "flipped";
    ls_best_offer(best, s, &fit, "bit", "bit %d of the stored value (%s) is %s, and nothing else is wrong", bit,
                  bit == 15                           ? "the sign"
                  : bit >= (type == LS_BF16 ? 7 : 10) ? "of the exponent"
                                                      : "of the mantissa",
                  how);
    return;
  }
}

void ls_explain_numbers(const ls_subject *s, ls_best *best) {
  ls_fit fit;
  ratios(s, best);
  if (ls_best_is_certain(best)) return;
  if (s->failing >= 8 && ls_fit_rows(&fit, s, predict_magnitude, NULL, 4))
    ls_best_offer(best, s, &fit, "sign", "values are the magnitudes of the right ones: the sign was lost");
  if (!ls_best_is_certain(best)) bits(s, best);
}

/* ---- not finite ---- */

static bool row_is_finite(const ls_tensor *t, int64_t row) {
  for (int64_t i = 0; i < t->dim[1]; i++)
    if (!isfinite(ls_tensor_get(t, row * t->dim[1] + i))) return false;
  return true;
}

void ls_explain_nonfinite(const ls_subject *s, ls_best *best) {
  int64_t first = -1, of_b = 0;
  for (int64_t i = 0; i < s->rows * s->width; i++) {
    if (s->at[i] != LS_AT_FAILS || isfinite(s->b[i]) || !isfinite(s->a[i])) continue;
    if (first < 0) first = i;
    of_b++;
  }
  if (first < 0 || 2 * of_b < s->failing || s->args->compare.stage == NULL) return;
  const int64_t row = first / s->width;
  const ls_stage *stage = s->args->compare.stage;
  char inputs[160] = "";
  size_t used = 0;
  bool all_finite = true;
  for (int k = 0; k < LS_MAX_INPUTS && stage->input[k] != NULL; k++) {
    ls_tensor t;
    if (!ls_subject_stage(&t, s, stage->input[k], s->rows)) continue;
    const bool finite = row_is_finite(&t, row);
    all_finite = all_finite && finite;
    if (used < sizeof inputs - 1)
      used += (size_t)snprintf(inputs + used, sizeof inputs - used, "%s%s%s", used > 0 ? ", " : "", stage->input[k],
                               finite ? "" : " (not finite)");
  }
  const ls_fit fit = ls_fit_counted();
  char made[224] = "";
  if (used > 0)
    snprintf(made, sizeof made, "; what it reads in that row (%s) is %s", inputs, all_finite ? "finite: it was made here" : "not");
  ls_best_offer(best, s, &fit, "non-finite", "%lld of %lld failing values are not finite; the first is %g at row %lld channel %lld%s",
                (long long)of_b, (long long)s->failing, (double)s->b[first], (long long)row, (long long)(first % s->width), made);
}
