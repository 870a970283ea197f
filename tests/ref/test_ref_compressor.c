#include <criterion/criterion.h>
#include <math.h>

#include "core/ls_numeric.h"
#include "core/ls_random.h"
#include "ref/ref_compressor.h"

static void pool_f32(const ls_tensor *y, float *kv, float *score, int64_t ratio) {
  const int64_t dim[] = {ratio, y->dim[0]};
  const ls_tensor v = ls_tensor_make(LS_F32, 2, dim, kv), s = ls_tensor_make(LS_F32, 2, dim, score);
  ls_ref_pool(y, &v, &s);
}

Test(ref_compressor, groups_by_hand) {
  float y[4];
  const ls_tensor out = ls_tensor_make(LS_F32, 1, (int64_t[]){4}, y);
  float kv[] = {1, 8, 3, 5, 3, 4, 7, 9}, score[] = {0, 2, -INFINITY, 1000, 0, 2 + logf(3), 0, 0};
  pool_f32(&out, kv, score, 2);
  cr_assert_eq(y[0], 2);             /* the mean */
  cr_assert_float_eq(y[1], 5, 4e-6); /* weights 1/4, 3/4 */
  cr_assert(y[2] == 7 && y[3] == 5); /* all of the weight on one; e^1000 does not overflow */
  float one[] = {1.5f, -2, 3, 0}, any[] = {0, 500, -500, -1e30f};
  pool_f32(&out, one, any, 1);
  cr_assert(y[0] == 1.5f && y[1] == -2 && y[2] == 3 && y[3] == 0); /* a group of one is itself */
}

Test(ref_compressor, channels_do_not_mix_and_nan_stays_in_its_own) {
  enum { WIDTH = 5 };
  for (int64_t bad = 0; bad < 3; bad++) {
    float y[WIDTH], kv[3 * WIDTH], score[3 * WIDTH];
    const ls_tensor out = ls_tensor_make(LS_F32, 1, (int64_t[]){WIDTH}, y);
    for (int i = 0; i < 3 * WIDTH; i++) kv[i] = 2, score[i] = (float)(i / WIDTH);
    score[bad * WIDTH + 1] = NAN;
    kv[bad * WIDTH + 2] = NAN;
    for (int i = 0; i < 3; i++) score[i * WIDTH + 3] = -INFINITY; /* no token at all */
    score[bad * WIDTH + 4] = INFINITY;
    pool_f32(&out, kv, score, 3);
    cr_assert_float_eq(y[0], 2, 1e-6);
    for (int c = 1; c < WIDTH; c++) cr_assert(isnan(y[c]), "channel %d: %g", c, y[c]);
  }
}

/* Weights in double by exp(s_i) / sum exp(s_j), without the shift by the maximum. */
Test(ref_compressor, agrees_with_the_formula_in_double) {
  enum { WIDTH = 37 };
  for (int64_t ratio = 1; ratio <= 8; ratio++) {
    float kv[8 * WIDTH], score[8 * WIDTH], y32[WIDTH];
    double kv64[8 * WIDTH], score64[8 * WIDTH], y64[WIDTH];
    uint16_t y16[WIDTH];
    for (int i = 0; i < (int)ratio * WIDTH; i++) {
      kv64[i] = kv[i] = (float)ls_generated_at(1, (uint64_t)i, 3, i % 7 == 0 ? 100 : 0);
      score64[i] = score[i] = (float)ls_generated_at(2, (uint64_t)i, 6, 1);
    }
    const int64_t dim[] = {ratio, WIDTH}, width[] = {WIDTH};
    const ls_tensor out32 = ls_tensor_make(LS_F32, 1, width, y32), out64 = ls_tensor_make(LS_F64, 1, width, y64);
    const ls_tensor out16 = ls_tensor_make(LS_BF16, 1, width, y16);
    const ls_tensor v = ls_tensor_make(LS_F64, 2, dim, kv64), s = ls_tensor_make(LS_F64, 2, dim, score64);
    pool_f32(&out32, kv, score, ratio);
    pool_f32(&out16, kv, score, ratio);
    ls_ref_pool(&out64, &v, &s);
    for (int c = 0; c < WIDTH; c++) {
      double sum = 0, expected = 0, size = 0;
      for (int i = 0; i < ratio; i++) sum += exp(score64[i * WIDTH + c]);
      for (int i = 0; i < ratio; i++) {
        const double p = exp(score64[i * WIDTH + c]) / sum;
        expected += p * kv64[i * WIDTH + c], size += fabs(p * kv64[i * WIDTH + c]);
      }
      /* float32: the argument of exp is off by half a step at up to 14, exp by a step, then ratio + 2 roundings of each sum */
      const double allowed = (16 + 4 + 2 * (double)ratio) * 0x1p-24;
      cr_assert(fabs(y32[c] - expected) <= allowed * size, "ratio %d channel %d: %g %g", (int)ratio, c, y32[c], expected);
      cr_assert(fabs(y64[c] - expected) <= allowed * 0x1p-28 * size);
      cr_assert_eq(y16[c], ls_f32_to_bf16(y32[c]), "rounded once");
    }
  }
}
