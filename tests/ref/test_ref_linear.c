#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "core/ls_numeric.h"
#include "core/ls_random.h"
#include "ref/ref_linear.h"

/* Small integers: every product and sum is exact in float32, so the result is known to the bit whatever the order. */
Test(ref_linear, integers_come_out_exactly_and_land_in_the_pieces_in_order) {
  enum { ROWS = 7, N = 13, K = 37, FIRST = 3 };
  float w[N * K], wide_x[ROWS * K], wide_y[ROWS * N];
  uint16_t x_bits[ROWS * K], y_bits[(ROWS + 2) * N];
  ls_random r = {.seed = 5};
  const ls_tensor x = ls_tensor_make(LS_BF16, 2, (int64_t[]){ROWS, K}, x_bits),
                  all = ls_tensor_make(LS_BF16, 2, (int64_t[]){ROWS + 2, N}, y_bits);
  const ls_tensor weight = ls_tensor_make(LS_F32, 2, (int64_t[]){N, K}, w);
  for (int i = 0; i < ROWS * K; i++) ls_tensor_set(&x, i, (double)ls_random_range(&r, -3, 3));
  for (int i = 0; i < N * K; i++) w[i] = (float)ls_random_range(&r, -1, 1);
  for (int i = 0; i < (ROWS + 2) * N; i++) y_bits[i] = 0x5555;
  /* the last rows of the ring, then the first: what lies between stays */
  const ls_tensor piece[] = {ls_tensor_slice(&all, 0, ROWS + 2 - FIRST, FIRST), ls_tensor_slice(&all, 0, 0, ROWS - FIRST)};
  ls_ref_linear(piece, 2, &x, &weight, wide_x, wide_y);
  for (int row = 0; row < ROWS; row++) {
    for (int n = 0; n < N; n++) {
      double sum = 0;
      for (int k = 0; k < K; k++) sum += ls_tensor_get(&x, row * K + k) * w[n * K + k];
      const int slot = row < FIRST ? ROWS + 2 - FIRST + row : row - FIRST;
      cr_assert_eq(ls_tensor_get(&all, slot * N + n), sum, "row %d channel %d", row, n); /* |sum| <= 111: exact in bf16 */
    }
  }
  for (int i = (ROWS - FIRST) * N; i < (ROWS + 2 - FIRST) * N; i++) cr_assert_eq(y_bits[i], 0x5555);
}

Test(ref_linear, the_sum_is_rounded_once_to_the_stored_type) {
  const float w[] = {1, 1, 1};
  float wide_x[3], wide_y[1];
  uint16_t in[3], out[1];
  for (int act = LS_BF16; act <= LS_F16; act++) {
    const double one_step = act == LS_BF16 ? 0x1p-7 : 0x1p-10;
    const ls_tensor x = ls_tensor_make((ls_dtype)act, 2, (int64_t[]){1, 3}, in),
                    y = ls_tensor_make((ls_dtype)act, 2, (int64_t[]){1, 1}, out);
    const ls_tensor weight = ls_tensor_make(LS_F32, 2, (int64_t[]){1, 3}, (void *)(uintptr_t)w);
    /* 1 + half a step is a tie to even 1; a second rounding of partial sums would lose the last, tiny term that decides */
    ls_tensor_set(&x, 0, 1);
    ls_tensor_set(&x, 1, one_step / 2);
    ls_tensor_set(&x, 2, 0);
    ls_ref_linear(&y, 1, &x, &weight, wide_x, wide_y);
    cr_assert_eq(ls_tensor_get(&y, 0), 1);
    ls_tensor_set(&x, 2, 0x1p-20);
    ls_ref_linear(&y, 1, &x, &weight, wide_x, wide_y);
    cr_assert_eq(ls_tensor_get(&y, 0), 1 + one_step);
  }
}

Test(ref_linear, float64_rounds_nothing) {
  const double w[] = {1.0 / 3, 1};
  double x[] = {1, 0x1p-40}, y[1], wide_x[2], wide_y[1];
  const ls_tensor in = ls_tensor_make(LS_F64, 2, (int64_t[]){1, 2}, x), out = ls_tensor_make(LS_F64, 2, (int64_t[]){1, 1}, y);
  const ls_tensor weight = ls_tensor_make(LS_F64, 2, (int64_t[]){1, 2}, (void *)(uintptr_t)w);
  ls_ref_linear(&out, 1, &in, &weight, wide_x, wide_y);
  cr_assert(fabs(y[0] - (1.0 / 3 + 0x1p-40)) < 1e-15);
}

Test(ref_linear, a_free_row_is_the_same_product_within_its_rounding) {
  enum { K = 130, N = 70 };
  static uint16_t x[2 * K], alone[N], among[2 * N];
  static float w[N * K], wide_x[2 * K], wide_y[2 * N];
  for (int i = 0; i < 2 * K; i++) x[i] = ls_f32_to_bf16((float)(i % 9 - 4));
  for (int i = 0; i < N * K; i++) w[i] = (float)(i % 11 - 5);
  const ls_tensor tx = ls_tensor_make(LS_BF16, 2, (int64_t[]){2, K}, x), ty = ls_tensor_make(LS_BF16, 2, (int64_t[]){2, N}, among),
                  tw = ls_tensor_make(LS_F32, 2, (int64_t[]){N, K}, w), row = ls_tensor_slice(&tx, 0, 1, 1),
                  one = ls_tensor_make(LS_BF16, 2, (int64_t[]){1, N}, alone);
  ls_ref_linear_free(&ty, &tx, &tw, wide_x, wide_y);
  ls_ref_linear_free(&one, &row, &tw, wide_x, wide_y);
  for (int c = 0; c < N; c++) cr_assert_eq(alone[c], among[N + c], "channel %d", c); /* whole numbers: exact before the rounding */
}
