/* bench_statistics: of a handful of times, what can be said without believing that they are normal. */
#ifndef BENCH_STATISTICS_H
#define BENCH_STATISTICS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* The quantile q of n > 0 values, linear between neighbours (R's type 7). The values are not changed; NaN where there is no memory. */
double bench_quantile(const double *values, size_t n, double q);
double bench_median(const double *values, size_t n);

/* Half the distance between the quartiles, relative to the median: the spread that tables show. */
double bench_spread(const double *values, size_t n);

/* Two-sided p of the Mann-Whitney rank test that x and y come from one distribution: exact for up to 20 values together without ties, else
 * by the normal approximation, corrected for ties and continuity. 1 where a side is empty. */
double bench_rank_test(const double *x, size_t n, const double *y, size_t m);

/* How far apart the medians of two halves of one sample come by chance, relative: the 95th percentile over `rounds` random halvings of the
 * values (seeded: the same for the same values). 0 for fewer than 4. */
double bench_noise(const double *values, size_t n, int rounds, uint64_t seed);

#endif
