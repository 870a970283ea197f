#include "bound_sparse_attn.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "../core/ls_gemm.h"
#include "../core/ls_parallel.h"
#include "../core/ls_shortage.h"

typedef struct {
  float *bound;
  const ls_stage_values *q;
  const ls_bound_rows *a, *b;
  const ls_tensor *idx;
  const double *sink;
  int64_t queries, heads, width, entries;
  bool carried;
  atomic_bool out_of_memory, out_of_range;
} sparse_work;

/* One query's rows. n: its entries that are not -1. */
typedef struct {
  float *row, *abs_row, *off;              /* v, |v|, t [n, width] */
  float *row_t, *abs_t, *square_t, *off_t; /* v, |v|, v^2, t [width, n] */
  float *least, *most;                     /* of each channel: where a mean of moved rows and 0 can lie [width] */
  float *q, *abs_q, *off_q;                /* [heads, width]; abs_q and off_q end as what multiplies t and |v| */
  float *s, *e, *e_more;                   /* scores and what they are off by [heads, n] */
  float *p, *p_off, *p_square;             /* [heads, n] */
  float *y, *sums, *squares, *by_rows;     /* sum p v; sum p_off |v|, sum p |v| [2, heads, width]; sum p^2 v^2; sum p t [heads, width] */
} scratch;

static float *take(float **at, int64_t n) {
  float *from = *at;
  *at += n;
  return from;
}

static ls_status scratch_new(scratch *s, float **block, int64_t heads, int64_t width, int64_t n) {
  const int64_t floats = 7 * n * width + 2 * width + 3 * heads * width + 6 * heads * n + 5 * heads * width;
  float *at = *block = ls_shortage_unless(malloc((size_t)floats * sizeof *at + 1));
  if (!at) return LS_INTERNAL;
  s->row = take(&at, n * width), s->abs_row = take(&at, n * width), s->off = take(&at, n * width);
  s->row_t = take(&at, n * width), s->abs_t = take(&at, n * width), s->square_t = take(&at, n * width), s->off_t = take(&at, n * width);
  s->least = take(&at, width), s->most = take(&at, width);
  s->q = take(&at, heads * width), s->abs_q = take(&at, heads * width), s->off_q = take(&at, heads * width);
  s->s = take(&at, heads * n), s->e = take(&at, heads * n), s->e_more = take(&at, heads * n);
  s->p = take(&at, heads * n), s->p_off = take(&at, 2 * heads * n); /* p_off, then p again: one GEMM with |v| */
  s->p_square = s->e_more;                                          /* no longer needed by then */
  s->y = take(&at, heads * width), s->sums = take(&at, 2 * heads * width);
  s->squares = take(&at, heads * width), s->by_rows = take(&at, heads * width);
  return LS_OK;
}

/* The rows of query t; how many. -1: an index is out of range. */
static int64_t gather(const sparse_work *g, scratch *s, int64_t t) {
  int64_t n = 0;
  for (int64_t j = 0; j < g->entries; j++) {
    const int64_t i = (int64_t)ls_tensor_get(g->idx, t * g->entries + j);
    if (i == -1) continue;
    if (i < -1 || i >= g->a->n + g->b->n) return -1;
    const bool in_a = i < g->a->n;
    ls_bound_rows_get(in_a ? g->a : g->b, in_a ? i : i - g->a->n, s->row + n * g->width, s->off + n * g->width);
    n++;
  }
  for (int64_t c = 0; c < g->width; c++) {
    float least = 0, most = 0;
    for (int64_t j = 0; j < n; j++) {
      const float v = s->row[j * g->width + c], off = s->off[j * g->width + c];
      s->abs_row[j * g->width + c] = fabsf(v);
      s->row_t[c * n + j] = v;
      s->abs_t[c * n + j] = fabsf(v);
      s->square_t[c * n + j] = v * v;
      s->off_t[c * n + j] = off;
      least = fminf(least, v - off);
      most = fmaxf(most, v + off);
    }
    s->least[c] = least;
    s->most[c] = most;
  }
  return n;
}

/* s->s, and s->e = own |q|.|v| + t_q.|v| + (|q| + t_q).t, both without the scale */
static void scores(const sparse_work *g, scratch *s, int64_t t, int64_t n) {
  const int64_t from = t * g->heads * g->width;
  const double own = 4 * sqrt((double)g->width) * LS_UNIT;
  for (int64_t i = 0; i < g->heads * g->width; i++) {
    const double v = g->q->value[from + i], off = g->q->total[from + i];
    s->q[i] = (float)v;
    s->abs_q[i] = (float)(fabs(v) + off);
    s->off_q[i] = (float)(own * fabs(v) + off);
  }
  ls_gemm_f32(s->s, s->q, s->row, g->heads, n, g->width, n, g->width, g->width);
  ls_gemm_f32(s->e, s->off_q, s->abs_row, g->heads, n, g->width, n, g->width, g->width);
  if (!g->carried) return;
  ls_gemm_f32(s->e_more, s->abs_q, s->off, g->heads, n, g->width, n, g->width, g->width);
  for (int64_t i = 0; i < g->heads * n; i++) s->e[i] += s->e_more[i];
}

/* What a head's scores are off by on average over p, and e^2E, E being the most. */
typedef struct {
  double mean, grow;
} head_off;

/* Probabilities of head h, and p e. */
static head_off softmax(const sparse_work *g, scratch *s, int64_t h, int64_t n) {
  const double scale = 1 / sqrt((double)g->width);
  const float *score = s->s + h * n, *off = s->e + h * n;
  double highest = -INFINITY, largest = 0, sum = 0;
  for (int64_t j = 0; j < n; j++) {
    highest = fmax(highest, scale * (double)score[j]);
    largest = fmax(largest, scale * fabs((double)score[j]));
  }
  for (int64_t j = 0; j < n; j++) sum += exp(scale * (double)score[j] - highest);
  sum += exp(g->sink[h] - highest);
  double most = 0, mean = 0;
  for (int64_t j = 0; j < n; j++) {
    const double v = scale * (double)score[j], p = exp(v - highest) / sum;
    const double e = scale * (double)off[j] + 10 * LS_UNIT * (fabs(v) + largest);
    most = fmax(most, e);
    mean += p * e;
    s->p[h * n + j] = (float)p;
    s->p_off[h * n + j] = (float)(p * e);
    s->p_off[(g->heads + h) * n + j] = (float)p;
    s->p_square[h * n + j] = (float)(p * p);
  }
  return (head_off){.mean = mean, .grow = exp(2 * most)};
}

static double element_bound(const scratch *s, head_off off, int64_t i, int64_t c, double with_off, double magnitude, int64_t n,
                            bool carried) {
  const double y = (double)s->y[i], rows = carried ? (double)s->by_rows[i] : 0;
  const double drift = (off.grow - 1) * (magnitude + fabs(y));
  const double moved = off.grow * (with_off + off.mean * (fabs(y) + drift) + rows);
  const double farthest = fmax((double)s->most[c] - y, y - (double)s->least[c]);
  const double each = 0x1p-7 * magnitude, together = 0x1p-7 * fabs(y) + 4 * 0x1p-8 * sqrt((double)s->squares[i]);
  const double rounding = each < together ? each : together;
  return (1 + 0x1p-5) * (moved <= farthest ? moved : farthest) + rounding + ((double)n + 16) * LS_UNIT * magnitude;
}

static void sparse_query(sparse_work *g, scratch *s, head_off *off, int64_t t) {
  const int64_t heads = g->heads, width = g->width, n = gather(g, s, t);
  float *bound = g->bound + t * heads * width;
  if (n < 0) atomic_store(&g->out_of_range, true);
  if (n <= 0) {
    for (int64_t i = 0; i < heads * width; i++) bound[i] = 0;
    return;
  }
  scores(g, s, t, n);
  for (int64_t h = 0; h < heads; h++) off[h] = softmax(g, s, h, n);
  ls_gemm_f32(s->y, s->p, s->row_t, heads, width, n, width, n, n);
  ls_gemm_f32(s->sums, s->p_off, s->abs_t, 2 * heads, width, n, width, n, n);
  ls_gemm_f32(s->squares, s->p_square, s->square_t, heads, width, n, width, n, n);
  if (g->carried) ls_gemm_f32(s->by_rows, s->p, s->off_t, heads, width, n, width, n, n);
  for (int64_t h = 0; h < heads; h++) {
    for (int64_t c = 0; c < width; c++) {
      const int64_t i = h * width + c;
      bound[i] = (float)element_bound(s, off[h], i, c, (double)s->sums[i], (double)s->sums[heads * width + i], n, g->carried);
    }
  }
}

/* Queries that share scratch memory: 15 MB of it at the published shape, which would cost as long to have from the system, and to give
 * back, as the bounds of a query take. */
enum { PIECE_QUERIES = 16 };

static void sparse_piece(void *arg, int64_t piece) {
  sparse_work *g = arg;
  const int64_t first = piece * PIECE_QUERIES, end = first + PIECE_QUERIES < g->queries ? first + PIECE_QUERIES : g->queries;
  float *block = NULL;
  scratch s;
  head_off *off = ls_shortage_unless(malloc((size_t)g->heads * sizeof *off));
  if (!off || scratch_new(&s, &block, g->heads, g->width, g->entries) != LS_OK) {
    atomic_store(&g->out_of_memory, true);
  } else {
    for (int64_t t = first; t < end; t++) sparse_query(g, &s, off, t);
  }
  free(off);
  free(block);
}

ls_status ls_bound_sparse(const ls_tensor *bound, const ls_stage_values *q, const ls_bound_rows *a, const ls_bound_rows *b,
                          const ls_tensor *idx, const double *sink, int64_t heads, ls_error *err) {
  sparse_work g = {.bound = bound->data,
                   .q = q,
                   .a = a,
                   .b = b,
                   .idx = idx,
                   .sink = sink,
                   .queries = bound->dim[0],
                   .heads = heads,
                   .width = a->width,
                   .entries = idx->dim[1],
                   .carried = q->carried || a->carried || b->carried};
  ls_parallel_for((g.queries + PIECE_QUERIES - 1) / PIECE_QUERIES, sparse_piece, &g);
  if (atomic_load(&g.out_of_memory)) return ls_fail(err, LS_INTERNAL, "bound: out of memory for the rows of a query");
  if (atomic_load(&g.out_of_range)) return ls_fail(err, LS_INTERNAL, "bound: idx: an entry is out of range");
  return LS_OK;
}
