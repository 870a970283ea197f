/* ls_bound_gemm_sums: the own error of a float32 GEMM from how far its sums go. Forward, backward and eight-lane sums against each other,
 * on terms of mixed signs, of one sign, and in long runs of one sign, where sums go far and come back. */
#include <criterion/criterion.h>
#include <math.h>

#include "core/ls_random.h"
#include "layers/bound_common.h"

enum { K = 5120, N = 96 };

static float x[K], w[N * K], bound[N], all_one_sign[N];

typedef enum { MIXED, ONE_SIGN, RUNS, KINDS } signs;

static double unit(uint64_t i) { return (double)(ls_splitmix64_at(7, i) >> 11) * 0x1p-53; }

static void fill(signs kind, double size) {
  for (int64_t k = 0; k < K; k++) x[k] = (float)(size * (0.5 + unit((uint64_t)k)));
  for (int64_t i = 0; i < N * K; i++) {
    const double v = unit((uint64_t)(i + 1000003));
    w[i] = (float)(kind == MIXED ? 2 * v - 1 : kind == ONE_SIGN ? v : i % K < K / 2 ? v : -v);
  }
}

static double summed(int64_t n, int order) {
  float lane[8] = {0}, sum = 0;
  for (int64_t k = 0; k < K; k++) {
    const int64_t at = order == 1 ? K - 1 - k : k;
    float *to = order == 2 ? &lane[k % 8] : &sum;
    *to += x[at] * w[n * K + at];
  }
  for (int i = 0; i < 8; i++) sum += lane[i];
  return (double)sum;
}

/* The largest share of the bound that two orders of the same sum are apart. */
static double in_use(signs kind, double size) {
  double use = 0;
  fill(kind, size);
  const ls_tensor tx = ls_tensor_make(LS_F32, 2, (int64_t[]){1, K}, x), tw = ls_tensor_make(LS_F32, 2, (int64_t[]){N, K}, w);
  const ls_tensor tb = ls_tensor_make(LS_F32, 2, (int64_t[]){1, N}, bound), ta = ls_tensor_make(LS_F32, 2, (int64_t[]){1, N}, all_one_sign);
  cr_assert_eq(ls_bound_gemm_sums(&tb, &tx, &tw, NULL), LS_OK);
  cr_assert_eq(ls_bound_gemm(&ta, &tx, NULL, &tw, NULL), LS_OK);
  for (int64_t n = 0; n < N; n++) {
    cr_assert(bound[n] > 0 && bound[n] <= all_one_sign[n], "%d: %g, of one sign %g", (int)n, (double)bound[n], (double)all_one_sign[n]);
    const double forward = summed(n, 0), backward = summed(n, 1), lanes = summed(n, 2);
    use = fmax(use, fmax(fabs(forward - backward), fmax(fabs(forward - lanes), fabs(backward - lanes))) / (double)bound[n]);
  }
  return use;
}

Test(bound_sums, any_order_of_the_same_sum_stays_within_it_and_uses_some_of_it) {
  static const double sizes[] = {1, 1e-18, 1e15};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    for (signs kind = MIXED; kind < KINDS; kind++) {
      const double use = in_use(kind, sizes[i]);
      cr_log_info("signs %d, size %g: %.3f in use", (int)kind, sizes[i], use);
      cr_expect(use > 0.05 && use <= 1, "signs %d, size %g: %g in use", (int)kind, sizes[i], use);
    }
  }
}

Test(bound_sums, mixed_signs_are_allowed_a_tenth_of_what_one_sign_is) {
  in_use(MIXED, 1);
  for (int64_t n = 0; n < N; n++) cr_expect_lt(bound[n], 0.1f * all_one_sign[n]);
}
