#include "bound_index_score.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "../core/ls_gemm.h"
#include "../core/ls_numeric.h"
#include "../core/ls_parallel.h"
#include "../core/ls_shortage.h"

/* Keys a piece of work, and queries whose dot products with them are held at once. */
enum { KEYS = 64, QUERIES = 8 };

typedef struct {
  float *bound;
  const ls_stage_values *q, *w;
  const ls_bound_rows *keys;
  const ls_attn_plan *plan;
  int64_t m, n, heads, width;
  bool unrounded;
  atomic_bool out_of_memory;
} score_work;

/* The dot products of some queries' heads with some keys, [heads, keys] each. */
typedef struct {
  float *dot, *magnitude, *carried;
  double *grain_q, *grain_k; /* the power of two that all of a row are multiples of */
} products;

static double grain_of(const float *v, int64_t n) {
  int least = 1000;
  for (int64_t i = 0; i < n; i++) {
    uint32_t u = ls_f32_bits(v[i]), exponent = u >> 23 & 255u, mantissa = u & 0x7FFFFFu;
    if (exponent == 0 && mantissa == 0) continue;
    int bit = exponent == 0 ? -149 + __builtin_ctz(mantissa) : (int)exponent - 150 + __builtin_ctz(mantissa | 0x800000u);
    least = bit < least ? bit : least;
  }
  return least == 1000 ? 1 : ldexp(1, least);
}

static double rounded(double v) { return (double)ls_bf16_to_f32(ls_f32_to_bf16((float)v)); }

/* What a relu leaves; a NaN stays one. */
static double relu(double v) { return v < 0 ? 0 : v; }

/* One query and key: dot products of head h at [h * KEYS], weights w and their totals [heads]. */
static double bound_of(const products *p, int64_t from, int64_t heads, int64_t key, int64_t width, bool unrounded, const double *w,
                       const double *off_w) {
  const double own = 4 * sqrt((double)width) * LS_UNIT;
  double apart = 0, sum = 0;
  for (int64_t h = 0; h < heads; h++) {
    const int64_t at = (from + h) * KEYS + key;
    const double grain = p->grain_q[from + h] * p->grain_k[key], magnitude = (double)p->magnitude[at];
    const double carried = p->carried ? (double)p->carried[at] : 0;
    /* 0.999: the magnitude was itself summed in float32. 2^-126: below it float32 has fewer bits. */
    const bool exact = carried == 0 && magnitude < 0.999 * 0x1p24 * grain && grain >= 0x1p-126;
    const double off = exact ? 0 : own * magnitude + carried, dot = (double)p->dot[at];
    double low = relu(rounded(dot - off)), high = relu(rounded(dot + off));
    if (unrounded) low = fmin(low, relu(dot - off)), high = fmax(high, relu(dot + off));
    if (high == 0 || (low == high && off_w[h] == 0 && !unrounded)) {
      sum += fabs(high * w[h]);
      continue;
    }
    double least = INFINITY, most = -INFINITY;
    for (int corner = 0; corner < 4; corner++) {
      const float weight = (float)(w[h] + (corner & 1 ? off_w[h] : -off_w[h]));
      const double exact_product = (corner & 2 ? high : low) * (double)weight, product = rounded((double)(float)exact_product);
      least = product < least ? product : least;
      most = product > most ? product : most;
      if (unrounded) least = fmin(least, exact_product), most = fmax(most, exact_product);
    }
    apart += most - least;
    sum += fmax(fabs(most), fabs(least));
  }
  return apart + 4 * sqrt((double)heads) * LS_UNIT * sum;
}

/* Keys [piece * KEYS, ...) against every query. */
static void score_piece(void *arg, int64_t piece) {
  score_work *g = arg;
  const int64_t first = piece * KEYS, count = g->n - first < KEYS ? g->n - first : KEYS, width = g->width, heads = g->heads;
  const int64_t rows = QUERIES * heads; /* of q at once */
  const bool carried = g->keys->carried || g->q->carried;
  float *block = ls_shortage_unless(malloc((size_t)(3 * KEYS * width + 3 * rows * width + 4 * rows * KEYS) * sizeof *block));
  double *grains = ls_shortage_unless(malloc((size_t)(rows + KEYS) * sizeof *grains));
  if (!block || !grains) {
    atomic_store(&g->out_of_memory, true);
    goto out;
  }
  float *k = block, *abs_k = k + KEYS * width, *off_k = abs_k + KEYS * width;
  float *q = off_k + KEYS * width, *abs_q = q + rows * width, *off_q = abs_q + rows * width;
  float *dot = off_q + rows * width, *magnitude = dot + rows * KEYS, *by_q = magnitude + rows * KEYS, *by_k = by_q + rows * KEYS;
  const products p = {.dot = dot, .magnitude = magnitude, .carried = carried ? by_q : NULL, .grain_q = grains, .grain_k = grains + rows};
  for (int64_t j = 0; j < count; j++) {
    ls_bound_rows_get(g->keys, first + j, k + j * width, off_k + j * width);
    p.grain_k[j] = grain_of(k + j * width, width);
  }
  for (int64_t i = 0; i < count * width; i++) abs_k[i] = fabsf(k[i]);

  for (int64_t from = 0; from < g->m; from += QUERIES) {
    const int64_t queries = g->m - from < QUERIES ? g->m - from : QUERIES, now = queries * heads;
    if (ls_attn_visible(g->plan, from + queries - 1) <= first) continue; /* none of them sees any of these keys */
    for (int64_t i = 0; i < now * width; i++) {
      q[i] = (float)g->q->value[from * heads * width + i];
      off_q[i] = (float)g->q->total[from * heads * width + i];
      abs_q[i] = fabsf(q[i]);
    }
    for (int64_t i = 0; i < now; i++) p.grain_q[i] = grain_of(q + i * width, width);
    ls_gemm_f32(dot, q, k, now, count, width, KEYS, width, width);
    ls_gemm_f32(magnitude, abs_q, abs_k, now, count, width, KEYS, width, width);
    if (carried) { /* t_q . |k| + (|q| + t_q) . t_k */
      ls_gemm_f32(by_q, off_q, abs_k, now, count, width, KEYS, width, width);
      for (int64_t i = 0; i < now * width; i++) abs_q[i] += off_q[i];
      ls_gemm_f32(by_k, abs_q, off_k, now, count, width, KEYS, width, width);
      for (int64_t i = 0; i < now; i++) {
        for (int64_t j = 0; j < count; j++) by_q[i * KEYS + j] += by_k[i * KEYS + j];
      }
    }
    for (int64_t t = from; t < from + queries; t++) {
      const int64_t visible = ls_attn_visible(g->plan, t);
      for (int64_t j = 0; j < count && first + j < visible; j++) {
        g->bound[t * g->n + first + j] =
            (float)bound_of(&p, (t - from) * heads, heads, j, width, g->unrounded, g->w->value + t * heads, g->w->total + t * heads);
      }
    }
  }
out:
  free(block);
  free(grains);
}

ls_status ls_bound_score(const ls_tensor *bound, const ls_stage_values *q, const ls_stage_values *w, const ls_bound_rows *keys,
                         const ls_attn_plan *plan, int64_t heads, bool unrounded, ls_error *err) {
  score_work g = {.bound = bound->data,
                  .q = q,
                  .w = w,
                  .keys = keys,
                  .plan = plan,
                  .m = bound->dim[0],
                  .n = bound->dim[1],
                  .heads = heads,
                  .width = keys->width,
                  .unrounded = unrounded};
  for (int64_t i = 0; i < g.m * g.n; i++) g.bound[i] = 0; /* what is not visible is -inf on both sides */
  ls_parallel_for((g.n + KEYS - 1) / KEYS, score_piece, &g);
  if (atomic_load(&g.out_of_memory)) return ls_fail(err, LS_INTERNAL, "bound: out of memory for the index scores of %d keys", KEYS);
  return LS_OK;
}
