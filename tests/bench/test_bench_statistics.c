/* Medians, spreads, the rank test against values that were worked out by hand or stand in tables, and the noise of halves. */
#include <criterion/criterion.h>
#include <math.h>

#include "bench/bench_statistics.h"

Test(bench_statistics, quantiles_are_linear_between_neighbours) {
  const double v[] = {4, 1, 3, 2};
  cr_expect_float_eq(bench_median(v, 4), 2.5, 1e-15);
  cr_expect_float_eq(bench_quantile(v, 4, 0), 1, 1e-15);
  cr_expect_float_eq(bench_quantile(v, 4, 1), 4, 1e-15);
  cr_expect_float_eq(bench_quantile(v, 4, 0.25), 1.75, 1e-15);
  cr_expect_float_eq(bench_median(v, 1), 4, 0);
  cr_expect(isnan(bench_median(v, 0)));
  cr_expect_eq(v[0], 4, "the values are not changed");
}

Test(bench_statistics, spread_is_half_the_quartiles_distance_over_the_median) {
  const double v[] = {1, 2, 3, 4, 5};
  cr_expect_float_eq(bench_spread(v, 5), 0.5 * (4.0 - 2.0) / 3.0, 1e-15);
}

/* 3 against 3, all below: 1 of 20 arrangements on either side. 5 against 5: 2 / 252. One exchange in 5 against 5: U = 1, 4 / 252. */
Test(bench_statistics, rank_test_is_exact_for_few_values) {
  const double a[] = {1, 2, 3}, b[] = {4, 5, 6};
  cr_expect_float_eq(bench_rank_test(a, 3, b, 3), 0.1, 1e-12);
  cr_expect_float_eq(bench_rank_test(b, 3, a, 3), 0.1, 1e-12, "the sides may change places");
  const double c[] = {1, 2, 3, 4, 5}, d[] = {6, 7, 8, 9, 10}, e[] = {1, 2, 3, 4, 6}, f[] = {5, 7, 8, 9, 10};
  cr_expect_float_eq(bench_rank_test(c, 5, d, 5), 2.0 / 252, 1e-12);
  cr_expect_float_eq(bench_rank_test(e, 5, f, 5), 4.0 / 252, 1e-12);
}

Test(bench_statistics, rank_test_of_interleaved_values_sees_nothing) {
  const double a[] = {1, 3, 5, 7}, b[] = {2, 4, 6, 8}, one[] = {1};
  cr_expect_gt(bench_rank_test(a, 4, b, 4), 0.5);
  cr_expect_eq(bench_rank_test(a, 4, one, 0), 1, "an empty side");
}

/* n = m = 12 apart: z = (72 - 0 - 0.5) / sqrt(144 * 25 / 12) = 4.128, p = 3.66e-5. All equal: variance 0, no difference. */
Test(bench_statistics, rank_test_of_many_values_is_the_normal_one_corrected_for_ties) {
  double a[12], b[12], same[12];
  for (int i = 0; i < 12; i++) a[i] = i, b[i] = 100 + i, same[i] = 5;
  cr_expect_float_eq(bench_rank_test(a, 12, b, 12), 3.66e-5, 2e-7);
  cr_expect_eq(bench_rank_test(same, 12, same, 12), 1);
}

/* Of two distributions that are one the test rejects at 0.01 about one time in a hundred: over 2000 draws of 5 against 5. */
Test(bench_statistics, rank_test_rejects_equals_as_often_as_it_says) {
  uint64_t z = 12345;
  int rejected = 0;
  for (int t = 0; t < 2000; t++) {
    double v[10];
    for (int i = 0; i < 10; i++) {
      z = z * 6364136223846793005u + 1442695040888963407u;
      v[i] = (double)(z >> 33);
    }
    rejected += bench_rank_test(v, 5, v + 5, 5) < 0.01;
  }
  cr_expect(rejected >= 5 && rejected <= 32, "expected about 16 (2 / 252 of 2000), found %d", rejected);
}

Test(bench_statistics, noise_is_how_far_halves_come_apart) {
  const double still[] = {1, 1, 1, 1, 1, 1}, restless[] = {1, 1.2, 1, 1.2, 1, 1.2, 1, 1.2};
  cr_expect_eq(bench_noise(still, 6, 200, 1), 0);
  const double noise = bench_noise(restless, 8, 1000, 1);
  cr_expect(noise >= 0.09 && noise <= 0.2001, "found %g", noise);
  cr_expect_eq(noise, bench_noise(restless, 8, 1000, 1), "the same values and seed give the same");
  cr_expect_eq(bench_noise(still, 3, 100, 1), 0, "too few to halve");
}
