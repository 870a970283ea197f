/* One query at a time, and of a query that is alone some heads at a time: a block of 64 rows is gathered and widened once and serves all
 * these heads. Which rows a query reads differs from query to query, so nothing larger is shared.
 *
 * The two loops that take the time are cut so that what they read over and over stays in the first cache and what they add to in vector
 * registers: scores go ROWS rows at a time through all heads, outputs HEADS heads at a time through all rows. A dot product runs in
 * interleaved partial sums, the same ones on every processor; an output adds its rows in list order. A score depends on the query and the
 * row alone, not on where in the list the row stands. */
#include "ref_sparse_attn.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_clones.h"
#include "../core/ls_numeric.h"
#include "../core/ls_parallel.h"

enum {
  BLOCK = 64,
  ROWS = 4,
  HEADS = 4,
  APART = 16 /* unused elements after a gathered row: rows of 2 KiB would fight for the same lines */
};

/* Neighbours that are added and multiplied together; two such vectors make the partial sums of a dot product. */
enum { F32_LANES = 8, F64_LANES = 4 };
typedef float f32_lanes __attribute__((vector_size(F32_LANES * sizeof(float)), aligned(sizeof(float)), may_alias));
typedef double f64_lanes __attribute__((vector_size(F64_LANES * sizeof(double)), aligned(sizeof(double)), may_alias));

typedef struct {
  const ls_tensor *o, *q, *rows_a, *rows_b, *idx, *sink;
  int64_t heads, dim;
  int64_t parts, heads_of_part; /* a query's heads are dealt out in so many parts */
  atomic_bool failed;
} attention;

/* What one call works on: heads [first, first + heads) of query t. */
typedef struct {
  const attention *a;
  int64_t t, first, heads;
  ls_tensor q, o; /* [heads * dim], of the stored type */
} share;

/* The row that entry j of query t names; false for -1. */
static bool row_of(const attention *a, int64_t t, int64_t j, ls_tensor *row) {
  const int64_t i = ((const int32_t *)a->idx->data)[t * a->idx->stride[0] + j * a->idx->stride[1]], rows_a = a->rows_a->dim[0];
  if (i < 0) return false;
  *row = i < rows_a ? ls_tensor_at(a->rows_a, i) : ls_tensor_at(a->rows_b, i - rows_a);
  return true;
}

/* ---- float32: the rounding points of layers.md ---- */

#define ELEMENT     float
#define VECTOR      f32_lanes
#define LANES       F32_LANES
#define NAMED(name) name##_f32
#include "ref_sparse_loops.h"
#undef ELEMENT
#undef VECTOR
#undef LANES
#undef NAMED

/* What one head carries from block to block. */
typedef struct {
  float max, denominator;
} running_f32;

/* One block for one head: s [n] becomes p_j = exp(s_j - max) rounded to bf16; o [dim] is brought to the new maximum. */
static void weigh_f32(running_f32 *run, float *o, float *s, int64_t n, int64_t dim) {
  float max = run->max;
  for (int64_t j = 0; j < n; j++) max = s[j] > max ? s[j] : max; /* passes over a NaN, whose exp below does not */
  if (max > run->max && run->max > -INFINITY) {
    const float rescale = expf(run->max - max);
    for (int64_t c = 0; c < dim; c++) o[c] *= rescale;
    run->denominator *= rescale;
  }
  run->max = max;
  const float shift = max > -INFINITY ? max : 0; /* only -inf so far: every p is 0 */
  for (int64_t j = 0; j < n; j++) {
    const float p = expf(s[j] - shift);
    run->denominator += p;
    s[j] = ls_bf16_to_f32(ls_f32_to_bf16(p));
  }
}

static int64_t rounded_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

/* Of the lanes that round up a share's heads: queries of zeros, whose outputs nobody reads. scratch: q, o [lanes, dim], rows [BLOCK,
 * stride], s [lanes, BLOCK], a running_f32 a lane */
static void query_f32(const share *of, float *scratch) {
  const attention *a = of->a;
  const int64_t heads = of->heads, lanes = rounded_up(heads, HEADS), dim = a->dim, width = a->idx->dim[1], stride = dim + APART;
  float *q = scratch, *o = q + lanes * dim, *rows = o + lanes * dim, *s = rows + BLOCK * stride;
  running_f32 *run = (void *)(s + lanes * BLOCK);
  memset(q, 0, (size_t)(2 * lanes * dim) * sizeof *q);
  ls_tensor_to_f32(q, &of->q);
  for (int64_t h = 0; h < lanes; h++) run[h] = (running_f32){.max = -INFINITY};

  int64_t seen = 0; /* entries that are not -1 */
  for (int64_t first = 0; first < width; first += BLOCK) {
    int64_t n = 0;
    for (int64_t j = first; j < width && j < first + BLOCK; j++) {
      ls_tensor row;
      if (row_of(a, of->t, j, &row)) ls_tensor_to_f32(rows + n++ * stride, &row);
    }
    if (n == 0) continue;
    seen += n;
    const int64_t whole = rounded_up(n, ROWS); /* as is BLOCK */
    memset(rows + n * stride, 0, (size_t)((whole - n) * stride) * sizeof *rows);
    scores_f32(s, q, rows, lanes, whole, dim, BLOCK);
    for (int64_t h = 0; h < lanes; h++) weigh_f32(&run[h], o + h * dim, s + h * BLOCK, n, dim);
    add_rows_f32(o, s, rows, lanes, n, dim, BLOCK);
  }

  for (int64_t h = 0; h < heads && seen > 0; h++) {
    const float sink = ((const float *)a->sink->data)[(of->first + h) * a->sink->stride[0]];
    /* exp(s - max) of a head that met only -inf is NaN */
    const float denominator = run[h].max > -INFINITY ? run[h].denominator + expf(sink - run[h].max) : NAN;
    for (int64_t c = 0; c < dim; c++) o[h * dim + c] /= denominator;
  }
  ls_tensor_from_f32(&of->o, o); /* the one rounding */
}

/* ---- float64: nothing rounds, so the formula as it stands, all rows at once ---- */

#define ELEMENT     double
#define VECTOR      f64_lanes
#define LANES       F64_LANES
#define NAMED(name) name##_f64
#include "ref_sparse_loops.h"
#undef ELEMENT
#undef VECTOR
#undef LANES
#undef NAMED

/* scratch: q, o [lanes, dim], rows [up to width, stride], s [lanes, as many] */
static void query_f64(const share *of, double *scratch) {
  const attention *a = of->a;
  const int64_t heads = of->heads, lanes = rounded_up(heads, HEADS), dim = a->dim, width = a->idx->dim[1], ld = rounded_up(width, ROWS),
                stride = dim + APART;
  double *q = scratch, *o = q + lanes * dim, *rows = o + lanes * dim, *s = rows + ld * stride;
  memset(q, 0, (size_t)(2 * lanes * dim) * sizeof *q);
  ls_tensor_to_f64(q, &of->q);

  int64_t n = 0; /* entries that are not -1 */
  for (int64_t j = 0; j < width; j++) {
    ls_tensor row;
    if (row_of(a, of->t, j, &row)) ls_tensor_to_f64(rows + n++ * stride, &row);
  }
  const int64_t whole = rounded_up(n, ROWS);
  memset(rows + n * stride, 0, (size_t)((whole - n) * stride) * sizeof *rows);
  scores_f64(s, q, rows, lanes, whole, dim, ld);
  for (int64_t h = 0; h < lanes && n > 0; h++) {
    const double sink = h < heads ? ((const double *)a->sink->data)[(of->first + h) * a->sink->stride[0]] : 0;
    double *p = s + h * ld, max = -INFINITY, denominator = 0;
    for (int64_t j = 0; j < n; j++) max = p[j] > max ? p[j] : max;
    for (int64_t j = 0; j < n; j++) denominator += p[j] = exp(p[j] - max);
    denominator += exp(sink - max);
    for (int64_t j = 0; j < n; j++) p[j] /= denominator;
  }
  add_rows_f64(o, s, rows, lanes, n, dim, ld);
  ls_tensor_from_f64(&of->o, o);
}

/* ---- all queries ---- */

static void one_share(void *arg, int64_t i) {
  attention *a = arg;
  const int64_t t = i / a->parts, first = i % a->parts * a->heads_of_part, dim = a->dim, width = a->idx->dim[1];
  const int64_t heads = a->heads - first < a->heads_of_part ? a->heads - first : a->heads_of_part;
  if (heads <= 0) return;
  const ls_tensor q = ls_tensor_at(a->q, t), o = ls_tensor_at(a->o, t);
  const share of = {.a = a,
                    .t = t,
                    .first = first,
                    .heads = heads,
                    .q = ls_tensor_slice(&q, 0, first * dim, heads * dim),
                    .o = ls_tensor_slice(&o, 0, first * dim, heads * dim)};
  const bool is_f64 = a->sink->dtype == LS_F64;
  const int64_t lanes = rounded_up(heads, HEADS), most = rounded_up(width, ROWS);
  const int64_t f32 = 2 * lanes * dim + BLOCK * (dim + APART) + lanes * BLOCK + 2 * lanes,
                f64 = 2 * lanes * dim + most * (dim + APART) + lanes * most;
  void *scratch = malloc(is_f64 ? (size_t)f64 * sizeof(double) : (size_t)f32 * sizeof(float));
  if (scratch == NULL) {
    atomic_store(&a->failed, true);
  } else if (is_f64) {
    query_f64(&of, scratch);
  } else {
    query_f32(&of, scratch);
  }
  free(scratch);
}

ls_status ls_ref_sparse_attn(const ls_tensor *o, const ls_tensor *q, const ls_tensor *rows_a, const ls_tensor *rows_b, const ls_tensor *idx,
                             const ls_tensor *sink, ls_error *err) {
  enum { FEW = 8 }; /* queries, which are cut in parts for the threads to share; of many each is gathered for once */
  attention a = {.o = o, .q = q, .rows_a = rows_a, .rows_b = rows_b, .idx = idx, .sink = sink};
  a.heads = sink->dim[0];
  a.dim = q->dim[1] / a.heads;
  a.parts = q->dim[0] < FEW ? FEW : 1;
  a.heads_of_part = (a.heads + a.parts - 1) / a.parts;
  atomic_init(&a.failed, false);
  ls_parallel_for(q->dim[0] * a.parts, one_share, &a);
  return atomic_load(&a.failed) ? ls_fail(err, LS_INTERNAL, "out of memory in sparse_o") : LS_OK;
}
