/* Where differences lie, in bins: the percentile is never below the exact one, and not far above it. */
#include "compare_helpers.h"

static int by_value(const void *a, const void *b) {
  const double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

Test(spread, a_percentile_is_at_most_an_eighth_above_the_exact_one) {
  enum { N = 20000 };
  static double use[N];
  ls_spread s = {.lonely = 0};
  ls_random random = {.seed = 7};
  for (int i = 0; i < N; i++) {
    use[i] = exp2(12 * ls_random_unit(&random) - 11);
    ls_spread_add_use(&s, use[i], 1);
  }
  qsort(use, N, sizeof *use, by_value);
  for (int permille = 100; permille < 1000; permille += 9) {
    const double exact = use[(int64_t)N * permille / 1000 - 1], found = ls_spread_use(&s, N, permille / 1000.0, use[N - 1]);
    cr_expect(found >= exact && found <= exact * 1.125, "%d of 1000 lie within %g, found %g", permille, exact, found);
  }
}

Test(spread, every_edge_belongs_to_the_bin_below_it) {
  for (int e = LS_USE_LEAST; e < LS_USE_MOST; e++) {
    for (int i = 0; i < LS_USE_PER_OCTAVE; i++) {
      ls_spread s = {.lonely = 0};
      const double edge = ldexp(1 + i / (double)LS_USE_PER_OCTAVE, e), above = nextafter(edge, INFINITY);
      ls_spread_add_use(&s, edge, 1);
      cr_expect_eq(ls_spread_use(&s, 1, 0.999, INFINITY), edge, "edge %g", edge);
      ls_spread next = {.lonely = 0};
      ls_spread_add_use(&next, above, 1);
      const double found = ls_spread_use(&next, 1, 0.999, INFINITY);
      cr_expect(found > edge && found <= edge * 1.125, "just above %g: %g", edge, found);
    }
  }
}

Test(spread, ends_are_in_bins_of_their_own) {
  ls_spread s = {.lonely = 0};
  ls_spread_add_use(&s, 0x1p-60, 1);
  cr_expect_eq(ls_spread_use(&s, 1, 0.999, 0x1p-60), 0x1p-60); /* never above the largest */
  ls_spread_add_use(&s, INFINITY, 1);
  cr_expect(isinf(ls_spread_use(&s, 2, 0.999, INFINITY)));
  ls_spread_add_use(&s, 1e9, 1);
  cr_expect_eq(s.use[LS_USE_BINS - 1], 2);
}

Test(spread, elements_without_a_difference_count_as_zero) {
  ls_spread s = {.lonely = 0};
  ls_spread_add_use(&s, 0.5, 1);
  cr_expect_eq(ls_spread_use(&s, 1000, 0.999, 0.5), 0); /* one in a thousand is just what may exceed it */
  cr_expect_eq(ls_spread_use(&s, 999, 0.999, 0.5), 0.5);
}

Test(spread, pieces_add_up_to_the_whole) {
  ls_spread whole = {.lonely = 0}, part[3] = {{.lonely = 0}}, sum = {.lonely = 0};
  ls_random random = {.seed = 11};
  for (int i = 0; i < 3000; i++) {
    const double use = exp2(20 * ls_random_unit(&random) - 15), a = ls_random_unit(&random), b = ls_random_unit(&random);
    const uint64_t steps = i % 97 == 0 ? UINT64_MAX : 1 + ls_random_u64(&random) % 3000;
    ls_spread_add_use(&whole, use, 1);
    ls_spread_add_use(&part[i % 3], use, 1);
    ls_spread_add_steps(&whole, steps, a, b);
    ls_spread_add_steps(&part[i % 3], steps, a, b);
  }
  for (int i = 2; i >= 0; i--) ls_spread_merge(&sum, &part[i]);
  cr_expect_eq(memcmp(&sum, &whole, sizeof sum), 0);
  cr_expect_eq(whole.lonely, 31);
}

Test(spread, steps_are_told_by_size_and_sign) {
  ls_spread s = {.lonely = 0};
  const uint64_t steps[] = {1, 2, 3, 4, 5, 1024, 1025, 1u << 30};
  const int bin[] = {0, 1, 2, 2, 3, 10, 11, 11};
  for (int i = 0; i < 8; i++) {
    memset(&s, 0, sizeof s);
    ls_spread_add_steps(&s, steps[i], 1, 2);
    ls_spread_add_steps(&s, steps[i], 2, 1);
    cr_expect(s.above[bin[i]] == 1 && s.below[bin[i]] == 1, "%d steps", (int)steps[i]);
  }
}

/* Through the comparator: a truncating path is biased to one side, which a largest distance does not show. */
Test(spread, a_comparison_counts_what_differs_and_nothing_else) {
  enum { ROWS = 40, WIDTH = 192 };
  static uint16_t a[ROWS * WIDTH], b[ROWS * WIDTH];
  for (int i = 0; i < ROWS * WIDTH; i++) a[i] = b[i] = (uint16_t)(0x3F80 + i % 64);
  for (int i = 0; i < 20; i++) b[i * 331] = (uint16_t)(b[i * 331] - 1); /* one bf16 step below */
  b[5] = 0x7FC0;
  const int64_t dim[] = {ROWS, WIDTH};
  ls_tensor ta = ls_tensor_make(LS_BF16, 2, dim, a), tb = ls_tensor_make(LS_BF16, 2, dim, b);
  const ls_compare_args args = {.type = LS_BF16, .a = &ta, .b = &tb, .steps = 1};
  ls_result r;
  ls_compare_tensor(&r, &args);
  int64_t below = 0, above = 0, use = 0;
  for (int i = 0; i < LS_STEP_BINS; i++) below += r.spread.below[i], above += r.spread.above[i];
  for (int i = 0; i < LS_USE_BINS; i++) use += r.spread.use[i];
  cr_expect(below == 20 && above == 0 && r.spread.lonely == 1, "%d below, %d above, %d lonely", (int)below, (int)above,
            (int)r.spread.lonely);
  cr_expect_eq(use, 21);
  cr_expect_eq(use, r.count - r.bit_equal);
  cr_expect_eq(ls_result_use_999(&r), 1); /* 21 of 7680 are more than one in a thousand, the NaN alone is not */
}
