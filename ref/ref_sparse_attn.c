/* One query at a time, all its heads together: a block of 64 rows is gathered and widened once and serves every head. Which rows a query
 * reads differs from query to query, so nothing larger is shared.
 *
 * The sums of a dot product run in LANES interleaved partial sums, which a compiler keeps in vector registers without reordering anything.
 * A score depends on the query and the row alone, not on where in the list the row stands. */
#include "ref_sparse_attn.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_numeric.h"
#include "../core/ls_parallel.h"

enum { BLOCK = 64, LANES = 16 };

typedef struct {
  const ls_tensor *o, *q, *rows_a, *rows_b, *idx, *sink;
  int64_t heads, dim;
  atomic_bool failed;
} attention;

/* The row that entry j of query t names; false for -1. */
static bool row_of(const attention *a, int64_t t, int64_t j, ls_tensor *row) {
  const int64_t i = ((const int32_t *)a->idx->data)[t * a->idx->stride[0] + j * a->idx->stride[1]], rows_a = a->rows_a->dim[0];
  if (i < 0) return false;
  *row = i < rows_a ? ls_tensor_at(a->rows_a, i) : ls_tensor_at(a->rows_b, i - rows_a);
  return true;
}

/* ---- float32: the rounding points of layers.md ---- */

static float dot_f32(const float *x, const float *y, int64_t n) {
  float partial[LANES] = {0}, sum = 0;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    for (int lane = 0; lane < LANES; lane++) partial[lane] += x[i + lane] * y[i + lane];
  }
  for (; i < n; i++) partial[i % LANES] += x[i] * y[i];
  for (int lane = 0; lane < LANES; lane++) sum += partial[lane];
  return sum;
}

/* What one head carries from block to block. */
typedef struct {
  float max, denominator;
} running_f32;

/* One block for one head: o [dim] += sum_j bf16(p_j) * row_j, p_j = exp(s_j - max)        q [dim], rows [n, dim] */
static void block_f32(running_f32 *run, float *o, const float *q, const float *rows, int64_t n, int64_t dim) {
  const float scale = (float)(1.0 / sqrt((double)dim));
  float s[BLOCK], max = run->max;
  for (int64_t j = 0; j < n; j++) {
    s[j] = dot_f32(q, rows + j * dim, dim) * scale;
    max = s[j] > max ? s[j] : max; /* passes over a NaN, whose exp below does not */
  }
  if (max > run->max && run->max > -INFINITY) {
    const float rescale = expf(run->max - max);
    for (int64_t c = 0; c < dim; c++) o[c] *= rescale;
    run->denominator *= rescale;
  }
  run->max = max;
  const float shift = max > -INFINITY ? max : 0; /* only -inf so far: every p is 0 */
  for (int64_t j = 0; j < n; j++) {
    const float p = expf(s[j] - shift), p_bf16 = ls_bf16_to_f32(ls_f32_to_bf16(p));
    const float *row = rows + j * dim;
    run->denominator += p;
    for (int64_t c = 0; c < dim; c++) o[c] += p_bf16 * row[c];
  }
}

/* scratch: q, o [heads, dim], rows [BLOCK, dim], a running_f32 a head */
static void query_f32(const attention *a, int64_t t, float *scratch) {
  const int64_t heads = a->heads, dim = a->dim, width = a->idx->dim[1];
  float *q = scratch, *o = q + heads * dim, *rows = o + heads * dim;
  running_f32 *run = (void *)(rows + BLOCK * dim);
  const ls_tensor from = ls_tensor_at(a->q, t), to = ls_tensor_at(a->o, t);
  ls_tensor_to_f32(q, &from);
  memset(o, 0, (size_t)(heads * dim) * sizeof *o);
  for (int64_t h = 0; h < heads; h++) run[h] = (running_f32){.max = -INFINITY};

  int64_t seen = 0; /* entries that are not -1 */
  for (int64_t first = 0; first < width; first += BLOCK) {
    int64_t n = 0;
    for (int64_t j = first; j < width && j < first + BLOCK; j++) {
      ls_tensor row;
      if (row_of(a, t, j, &row)) ls_tensor_to_f32(rows + n++ * dim, &row);
    }
    if (n == 0) continue;
    seen += n;
    for (int64_t h = 0; h < heads; h++) block_f32(&run[h], o + h * dim, q + h * dim, rows, n, dim);
  }

  for (int64_t h = 0; h < heads && seen > 0; h++) {
    const float sink = ((const float *)a->sink->data)[h * a->sink->stride[0]];
    /* exp(s - max) of a head that met only -inf is NaN */
    const float denominator = run[h].max > -INFINITY ? run[h].denominator + expf(sink - run[h].max) : NAN;
    for (int64_t c = 0; c < dim; c++) o[h * dim + c] /= denominator;
  }
  ls_tensor_from_f32(&to, o); /* the one rounding */
}

/* ---- float64: nothing rounds, so the formula as it stands, without blocks ---- */

static double dot_f64(const double *x, const double *y, int64_t n) {
  double partial[LANES] = {0}, sum = 0;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    for (int lane = 0; lane < LANES; lane++) partial[lane] += x[i + lane] * y[i + lane];
  }
  for (; i < n; i++) partial[i % LANES] += x[i] * y[i];
  for (int lane = 0; lane < LANES; lane++) sum += partial[lane];
  return sum;
}

/* scratch: q, o [heads, dim], row [dim], s [width, heads], max, denominator [heads] */
static void query_f64(const attention *a, int64_t t, double *scratch) {
  const int64_t heads = a->heads, dim = a->dim, width = a->idx->dim[1];
  const double scale = 1.0 / sqrt((double)dim);
  double *q = scratch, *o = q + heads * dim, *row = o + heads * dim, *s = row + dim, *max = s + width * heads, *denominator = max + heads;
  const ls_tensor from = ls_tensor_at(a->q, t), to = ls_tensor_at(a->o, t);
  ls_tensor_to_f64(q, &from);
  memset(o, 0, (size_t)(heads * dim) * sizeof *o);
  for (int64_t h = 0; h < heads; h++) max[h] = -INFINITY, denominator[h] = 0;

  int64_t seen = 0;
  ls_tensor named;
  for (int64_t j = 0; j < width; j++) {
    if (!row_of(a, t, j, &named)) continue;
    seen++;
    ls_tensor_to_f64(row, &named);
    for (int64_t h = 0; h < heads; h++) {
      s[j * heads + h] = dot_f64(q + h * dim, row, dim) * scale;
      max[h] = s[j * heads + h] > max[h] ? s[j * heads + h] : max[h];
    }
  }
  for (int64_t j = 0; j < width; j++) {
    if (!row_of(a, t, j, &named)) continue;
    ls_tensor_to_f64(row, &named);
    for (int64_t h = 0; h < heads; h++) {
      const double p = exp(s[j * heads + h] - max[h]);
      denominator[h] += p;
      for (int64_t c = 0; c < dim; c++) o[h * dim + c] += p * row[c];
    }
  }
  for (int64_t h = 0; h < heads && seen > 0; h++) {
    denominator[h] += exp(((const double *)a->sink->data)[h * a->sink->stride[0]] - max[h]);
    for (int64_t c = 0; c < dim; c++) o[h * dim + c] /= denominator[h];
  }
  ls_tensor_from_f64(&to, o);
}

/* ---- all queries ---- */

static void one_query(void *arg, int64_t t) {
  attention *a = arg;
  const int64_t heads = a->heads, dim = a->dim, width = a->idx->dim[1];
  const bool is_f64 = a->sink->dtype == LS_F64;
  const int64_t f32 = 2 * heads * dim + BLOCK * dim + 2 * heads, f64 = 2 * heads * dim + dim + width * heads + 2 * heads;
  void *scratch = malloc(is_f64 ? (size_t)f64 * sizeof(double) : (size_t)f32 * sizeof(float));
  if (scratch == NULL) {
    atomic_store(&a->failed, true);
  } else if (is_f64) {
    query_f64(a, t, scratch);
  } else {
    query_f32(a, t, scratch);
  }
  free(scratch);
}

ls_status ls_ref_sparse_attn(const ls_tensor *o, const ls_tensor *q, const ls_tensor *rows_a, const ls_tensor *rows_b, const ls_tensor *idx,
                             const ls_tensor *sink, ls_error *err) {
  attention a = {.o = o, .q = q, .rows_a = rows_a, .rows_b = rows_b, .idx = idx, .sink = sink};
  a.heads = sink->dim[0];
  a.dim = q->dim[1] / a.heads;
  atomic_init(&a.failed, false);
  ls_parallel_for(q->dim[0], one_query, &a);
  return atomic_load(&a.failed) ? ls_fail(err, LS_INTERNAL, "out of memory in sparse_o") : LS_OK;
}
