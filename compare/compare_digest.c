#include "ls_compare_digest.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../core/ls_numeric.h"
#include "compare_tally.h"

/* One side of a row. */
typedef struct {
  uint64_t hash;
  double stat[LS_DIGEST_STATS];
} side;

/* What the elements of a row may differ by, added up. */
typedef struct {
  double sum, largest, squares, slack;
} allowance;

typedef struct {
  const ls_digest_args *args;
  const ls_tensor *values; /* of the side that has them; NULL: neither */
  int64_t width, rows;
  int row_ndim;
  int64_t row_dim[LS_MAX_DIMS];
  ls_digest_scratch scratch;
} work;

static ls_tensor row_view(const ls_tensor *t, int64_t row, int64_t width) {
  const int64_t flat[] = {width};
  ls_tensor view = ls_tensor_make(t->dtype, 1, flat, (char *)t->data + ls_tensor_offset(t, row * width) * (int64_t)ls_dtype_size(t->dtype));
  view.stride[0] = t->ndim > 0 ? t->stride[t->ndim - 1] : 1;
  return view;
}

static side side_of(work *w, const ls_tensor *values, const ls_digest *digest, int64_t row) {
  side s;
  memset(&s, 0, sizeof s);
  if (values != NULL) {
    const ls_tensor view = row_view(values, row, w->width);
    ls_tensor only;
    if (w->args->only != NULL) only = row_view(w->args->only, row, w->width);
    ls_digest_row(&s.hash, s.stat, &view, w->args->type, w->args->only != NULL ? &only : NULL, &w->scratch);
    return s;
  }
  const int64_t *hash = (const int64_t *)digest->hash.data + ls_tensor_offset(&digest->hash, row);
  memcpy(&s.hash, hash, sizeof s.hash);
  for (int i = 0; i < LS_DIGEST_STATS; i++) s.stat[i] = ls_tensor_get(&digest->stats, row * LS_DIGEST_STATS + i);
  return s;
}

/* The most that a right element may be off by: its step is taken where the other side's value may have gone. */
static double limit_of(const ls_digest_args *args, double v, double bound) {
  if (args->has_tolerance) return args->atol + args->rtol * fabs(v) + ls_step_at(args->type, v); /* and what rounding it here moved */
  const double reach = fabs(v) + args->steps * ls_step_at(args->type, v) + bound;
  const double limit = args->steps * ls_step_at(args->type, reach) + bound;
  return isfinite(limit) ? limit : 0; /* a bound that is not finite allows nothing */
}

static allowance allowance_of(const work *w, const side *a, const side *b, int64_t row) {
  const ls_digest_args *args = w->args;
  allowance sum = {0, 0, 0, 0};
  double magnitude = 0;
  const double big = fmax(fmax(fabs(a->stat[LS_DIGEST_LEAST]), fabs(a->stat[LS_DIGEST_LARGEST])),
                          fmax(fabs(b->stat[LS_DIGEST_LEAST]), fabs(b->stat[LS_DIGEST_LARGEST])));
  for (int64_t i = 0; i < w->width; i++) {
    const int64_t at = row * w->width + i;
    if (args->only != NULL && ls_tensor_get(args->only, at) == 0) continue;
    const double v = w->values != NULL ? ls_tensor_get(w->values, at) : big;
    if (!isfinite(v)) continue;
    const double l = limit_of(args, v, args->bound != NULL ? ls_tensor_get(args->bound, at) : 0);
    sum.sum += l;
    if (l > sum.largest) sum.largest = l;
    sum.squares += (2 * fabs(v) + l) * l; /* |x^2 - y^2| <= (2 |v| + l) l, whichever side v is of */
    magnitude += fabs(v) + l;
  }
  sum.slack = (double)w->width * 0x1p-52 * magnitude; /* of two sums in double */
  return sum;
}

/* A statistic that both sides tell, and by how much it may differ. */
typedef struct {
  ls_digest_stat stat;
  const char *name;
  double limit;
} rule;

typedef struct {
  double use, a, b, limit;
  const char *name;
} finding;

static finding judge_row(const side *a, const side *b, const allowance *allowed) {
  const rule rules[] = {{LS_DIGEST_FINITE, "the number of finite elements", 0},
                        {LS_DIGEST_NAN, "the number of NaN", 0},
                        {LS_DIGEST_PLUS_INF, "the number of inf", 0},
                        {LS_DIGEST_MINUS_INF, "the number of -inf", 0},
                        {LS_DIGEST_FIRST_NONFINITE, "the first element that is not finite", 0},
                        {LS_DIGEST_LARGEST, "the largest element", allowed->largest},
                        {LS_DIGEST_LEAST, "the least element", allowed->largest},
                        {LS_DIGEST_SUM, "the sum", allowed->sum + allowed->slack},
                        {LS_DIGEST_MIX, "the sum with signs", allowed->sum + allowed->slack},
                        {LS_DIGEST_SUM_SQUARES, "the sum of squares", allowed->squares * (1 + 0x1p-40)}};
  finding worst = {.name = "the hash", .use = allowed->sum > 0 ? 0 : INFINITY}; /* 0: equal bits were asked for */
  bool named = false;
  for (size_t i = 0; i < sizeof rules / sizeof *rules; i++) {
    const double x = a->stat[rules[i].stat], y = b->stat[rules[i].stat];
    double use = x == y ? 0 : fabs(x - y) / rules[i].limit;
    if (!(use >= 0)) use = INFINITY; /* a NaN, which no statistic is */
    if (!(use > worst.use) && (named || use == 0 || use < worst.use)) continue;
    worst = (finding){use, x, y, rules[i].limit, rules[i].name};
    named = true;
  }
  return worst;
}

static void name_row(ls_result *result, const work *w, int64_t row) {
  char axes[64] = "";
  const ls_stage *stage = w->args->stage;
  if (stage != NULL) {
    snprintf(axes, sizeof axes, "%s", stage->axes);
    char *last = strrchr(axes, ' ');
    if (last != NULL) *last = '\0';
  }
  result->worst_ndim = w->row_ndim;
  ls_unflatten(result->worst_index, row, w->row_ndim, w->row_dim);
  const ls_place_text_args place = {.axes = stage != NULL ? axes : NULL,
                                    .ndim = w->row_ndim,
                                    .index = result->worst_index,
                                    .names = &w->args->names,
                                    .first_layer = w->args->first_layer,
                                    .slot_position = -1};
  ls_place_text(result->where, sizeof result->where, &place);
}

static void cannot_compare(ls_result *result, const char *note) {
  result->verdict = LS_FAIL;
  snprintf(result->note, sizeof result->note, "%s", note);
}

static bool rows_fit(const work *w, const ls_digest *digest) {
  if (digest->hash.dtype != LS_I64 || digest->stats.dtype != LS_F64 || digest->hash.ndim != w->row_ndim) return false;
  for (int i = 0; i < w->row_ndim; i++)
    if (digest->hash.dim[i] != w->row_dim[i]) return false;
  return ls_tensor_count(&digest->stats) == w->rows * LS_DIGEST_STATS;
}

/* Sizes from whatever has them; false, with a verdict, where the sides do not fit. */
static bool prepare(work *w, ls_result *result) {
  const ls_digest_args *args = w->args;
  const ls_tensor *shaped = args->a != NULL ? args->a : args->b != NULL ? args->b : args->bound;
  w->values = args->a != NULL ? args->a : args->b;
  if (shaped != NULL) {
    w->width = shaped->ndim > 0 ? shaped->dim[shaped->ndim - 1] : 1;
    w->row_ndim = ls_digest_shape(w->row_dim, shaped);
  } else {
    w->row_ndim = args->digest_a->hash.ndim;
    memcpy(w->row_dim, args->digest_a->hash.dim, sizeof w->row_dim);
    const double *stat = args->digest_a->stats.data; /* what is defined of the first row */
    if (ls_tensor_count(&args->digest_a->hash) > 0)
      w->width = (int64_t)(stat[LS_DIGEST_FINITE] + stat[LS_DIGEST_NAN] + stat[LS_DIGEST_PLUS_INF] + stat[LS_DIGEST_MINUS_INF]);
  }
  w->rows = ls_dims_count(w->row_ndim, w->row_dim);
  if ((args->a == NULL && !rows_fit(w, args->digest_a)) || (args->b == NULL && !rows_fit(w, args->digest_b))) {
    cannot_compare(result, "the sides have rows of another shape");
  } else if ((args->bound != NULL && shaped != NULL && !ls_tensor_same_shape(shaped, args->bound)) ||
             (args->only != NULL && shaped != NULL && !ls_tensor_same_shape(shaped, args->only))) {
    cannot_compare(result, "the bound, or what is defined, has another shape");
  } else if (ls_digest_scratch_new(&w->scratch, w->width, NULL) != LS_OK) {
    cannot_compare(result, "out of memory");
  } else {
    return true;
  }
  return false;
}

void ls_compare_digest(ls_result *result, const ls_digest_args *args) {
  work w = {.args = args};
  int64_t by_statistics = 0;
  finding worst = {.use = 0};
  ls_result_init(result);
  if (!prepare(&w, result)) return;
  for (int64_t row = 0; row < w.rows; row++) {
    const side a = side_of(&w, args->a, args->digest_a, row), b = side_of(&w, args->b, args->digest_b, row);
    const int64_t finite = (int64_t)a.stat[LS_DIGEST_FINITE];
    const int64_t odd = (int64_t)(a.stat[LS_DIGEST_NAN] + a.stat[LS_DIGEST_PLUS_INF] + a.stat[LS_DIGEST_MINUS_INF]);
    if (finite + odd <= 0) continue; /* nothing of it is defined */
    result->rows++;
    result->count += finite + odd;
    if (a.hash == b.hash) {
      result->bit_equal += finite + odd;
      result->nonfinite += odd;
      if (a.stat[LS_DIGEST_SUM_SQUARES] == 0) { /* of the others nobody knows how many are zero, and some are not */
        result->zeros += finite;
      } else if (w.values != NULL) {
        for (int64_t i = 0; i < w.width; i++) {
          const bool counts = args->only == NULL || ls_tensor_get(args->only, row * w.width + i) != 0;
          result->zeros += counts && ls_tensor_get(w.values, row * w.width + i) == 0;
        }
      }
      continue;
    }
    by_statistics++;
    const allowance allowed = allowance_of(&w, &a, &b, row);
    const finding found = judge_row(&a, &b, &allowed);
    if (found.use > result->use) result->use = found.use;
    if (!(found.use <= 1)) {
      result->rows_failing++;
      result->failing += finite + odd;
    }
    if (result->has_worst && !(found.use > worst.use)) continue;
    worst = found;
    result->has_worst = true;
    result->worst_a = found.a;
    result->worst_b = found.b;
    result->worst_bound = found.limit;
    name_row(result, &w, row);
  }
  ls_digest_scratch_free(&w.scratch);
  ls_result_judge(result);
  if (result->count == 0) {
    snprintf(result->note, sizeof result->note, "nothing was compared");
  } else if (result->failing > 0) {
    snprintf(result->note, sizeof result->note,
             "by digest: %s of the row differs by %.4g (allowed %.4g); which element, a digest cannot tell", worst.name,
             fabs(worst.a - worst.b), worst.limit);
  } else if (by_statistics > 0) {
    snprintf(result->note, sizeof result->note, "by digest: %lld of %lld rows by their statistics, the others equal in bits",
             (long long)by_statistics, (long long)result->rows);
  }
}
