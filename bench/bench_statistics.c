#include "bench_statistics.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_random.h"

static int by_size(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

static double *sorted(const double *values, size_t n) {
  double *copy = malloc(n * sizeof *copy);
  if (copy == NULL) return NULL;
  memcpy(copy, values, n * sizeof *copy);
  qsort(copy, n, sizeof *copy, by_size);
  return copy;
}

double bench_quantile(const double *values, size_t n, double q) {
  double *in_order = n > 0 ? sorted(values, n) : NULL;
  if (in_order == NULL) return (double)NAN;
  const double at = q * (double)(n - 1);
  const size_t below = (size_t)at, above = below + 1 < n ? below + 1 : below;
  const double v = in_order[below] + (at - (double)below) * (in_order[above] - in_order[below]);
  free(in_order);
  return v;
}

double bench_median(const double *values, size_t n) { return bench_quantile(values, n, 0.5); }

double bench_spread(const double *values, size_t n) {
  return 0.5 * (bench_quantile(values, n, 0.75) - bench_quantile(values, n, 0.25)) / bench_median(values, n);
}

/* ---- the rank test ---- */

/* How many of the ways to choose n of n + m ranks give a U of at most u, as a share of all: the recursion of Mann and Whitney (1947). */
static double exact_share(int n, int m, int u) {
  enum { MOST = 20, SUMS = MOST * MOST / 4 + 1 };
  double ways[MOST + 1][SUMS]; /* [members chosen so far][their U] */
  memset(ways, 0, sizeof ways);
  ways[0][0] = 1;
  for (int rank = 0; rank < n + m; rank++) { /* a member of x at this rank has rank - (members before it) of y below it */
    for (int k = (rank < n ? rank : n - 1); k >= 0; k--) {
      const int below = rank - k;
      if (below > m) continue;
      for (int s = 0; s + below < SUMS && s + below <= n * m; s++) ways[k + 1][s + below] += ways[k][s];
    }
  }
  double at_most = 0, all = 0;
  for (int s = 0; s <= n * m && s < SUMS; s++) {
    all += ways[n][s];
    if (s <= u) at_most += ways[n][s];
  }
  return at_most / all;
}

typedef struct {
  double value;
  bool of_x;
} ranked;

static int by_value(const void *a, const void *b) {
  const double x = ((const ranked *)a)->value, y = ((const ranked *)b)->value;
  return (x > y) - (x < y);
}

double bench_rank_test(const double *x, size_t n, const double *y, size_t m) {
  const size_t all = n + m;
  ranked *r = n > 0 && m > 0 ? malloc(all * sizeof *r) : NULL;
  if (r == NULL) return 1;
  for (size_t i = 0; i < all; i++) r[i] = (ranked){i < n ? x[i] : y[i - n], i < n};
  qsort(r, all, sizeof *r, by_value);
  double rank_sum = 0, tied = 0;
  for (size_t i = 0; i < all;) {
    size_t j = i;
    while (j < all && r[j].value == r[i].value) j++;
    const double same = (double)(j - i), rank = 0.5 * (double)(i + 1 + j); /* the mean of ranks i + 1 .. j */
    for (size_t k = i; k < j; k++) rank_sum += r[k].of_x ? rank : 0;
    tied += same * same * same - same;
    i = j;
  }
  free(r);
  const double dn = (double)n, dm = (double)m, u = rank_sum - dn * (dn + 1) / 2, low = u < dn * dm - u ? u : dn * dm - u;
  if (tied == 0 && all <= 20) {
    const double p = 2 * exact_share((int)n, (int)m, (int)low);
    return p < 1 ? p : 1;
  }
  const double both = dn + dm, variance = dn * dm / 12 * (both + 1 - tied / (both * (both - 1)));
  if (!(variance > 0)) return 1;
  const double z = (dn * dm / 2 - low - 0.5) / sqrt(variance);
  return z > 0 ? erfc(z / sqrt(2)) : 1;
}

double bench_noise(const double *values, size_t n, int rounds, uint64_t seed) {
  double *mixed = n >= 4 ? malloc(n * sizeof *mixed) : NULL, *apart = malloc((size_t)rounds * sizeof *apart), noise = 0;
  ls_random random = {.seed = seed};
  if (mixed != NULL && apart != NULL) {
    memcpy(mixed, values, n * sizeof *mixed);
    for (int i = 0; i < rounds; i++) {
      for (size_t k = n - 1; k > 0; k--) {
        const size_t other = (size_t)ls_random_range(&random, 0, (int64_t)k);
        const double v = mixed[k];
        mixed[k] = mixed[other];
        mixed[other] = v;
      }
      apart[i] = fabs(bench_median(mixed + n / 2, n - n / 2) / bench_median(mixed, n / 2) - 1);
    }
    noise = bench_quantile(apart, (size_t)rounds, 0.95);
  }
  free(mixed);
  free(apart);
  return noise;
}
