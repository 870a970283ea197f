/* The round trips against an oracle of its own: scales with frexp and ldexp, grids as tables built from their definition, a search for the
 * nearest entry, all in double. */
#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "core/ls_numeric.h"
#include "core/ls_random.h"
#include "ref/ref_quant.h"

/* ---- oracle ---- */

typedef enum { FP8, FP4, FP4_E4M3, KINDS } kind;

static ls_ref_block_fn *const block_fn[KINDS] = {ls_ref_fp8_block, ls_ref_fp4_block, ls_ref_fp4_e4m3_block};
static const int64_t block_size[KINDS] = {32, 32, 16};

static double e4m3_at(int code) { return code < 8 ? ldexp(code, -9) : ldexp(8 + code % 8, code / 8 - 10); } /* codes 0 .. 126 */
static double e2m1_at(int code) { return (double[]){0, 0.5, 1, 1.5, 2, 3, 4, 6}[code]; }

/* The nearest entry of a grid, of two equally near the one with the even code; beyond the last: the last. */
static double nearest(double v, double (*at)(int), int codes) {
  const double magnitude = fabs(v);
  if (magnitude >= at(codes - 1)) return copysign(at(codes - 1), v); /* distances of huge values would all look alike */
  int best = 0;
  for (int c = 1; c < codes; c++) {
    const double d = fabs(magnitude - at(c)), least = fabs(magnitude - at(best));
    if (d < least || (d == least && c % 2 == 0)) best = c;
  }
  return copysign(at(best), v);
}

static double power_of_two_above(double v) {
  int exponent;
  return frexp(v, &exponent) == 0.5 ? v : ldexp(1, exponent);
}

static double scale_of(kind k, const float *x, int64_t n) {
  double amax = k == FP8 ? (double)1e-4f : ldexp(6, k == FP4 ? -126 : -9);
  for (int64_t i = 0; i < n; i++) amax = fabs((double)x[i]) > amax ? fabs((double)x[i]) : amax;
  if (k == FP4_E4M3) return nearest((double)(float)(amax / 6), e4m3_at, 127);
  const float reciprocal = (float)(1 / (k == FP8 ? 448.0 : 6.0));
  return power_of_two_above((double)(float)(amax * (double)reciprocal)); /* a product of two float32 is exact in double */
}

static void oracle(kind k, float *y, const float *x, int64_t n) {
  const double s = scale_of(k, x, n);
  for (int64_t i = 0; i < n; i++) {
    const double v = (double)(float)(x[i] / s);
    y[i] = (float)ls_round_to(LS_BF16, (k == FP8 ? nearest(v, e4m3_at, 127) : nearest(v, e2m1_at, 8)) * s);
  }
}

static void check(kind k, const float *x, int64_t n, const char *what) {
  float y[32], expected[32];
  memcpy(y, x, (size_t)n * sizeof *y);
  block_fn[k](y, n);
  oracle(k, expected, x, n);
  for (int64_t i = 0; i < n; i++) {
    cr_assert(ls_f32_bits(y[i]) == ls_f32_bits(expected[i]), "%s, kind %d, element %d: %a became %a, expected %a", what, k, (int)i, x[i],
              y[i], expected[i]);
  }
}

/* ---- facts by hand ---- */

Test(ref_quant, fp8_block_by_hand) {
  float x[] = {448, 1, -1.0625f, 17, 0.001f, 0x1p-9f, 0x1p-10f, -0.0f}; /* scale 1 */
  ls_ref_fp8_block(x, 8);
  const float expected[] = {448, 1, -1, 16, 0x1p-9f, 0x1p-9f, 0, -0.0f}; /* 1.0625 and 17 are ties: to even; 0.001 is nearest to 2^-9 */
  for (int i = 0; i < 8; i++) cr_assert_eq(ls_f32_bits(x[i]), ls_f32_bits(expected[i]), "element %d: %a", i, x[i]);
}

Test(ref_quant, fp4_block_by_hand) {
  float x[] = {6, 5, 3.5f, 2.5f, 1.75f, 1.25f, 0.75f, 0.25f, -5, -0.2f, 0.26f}; /* scale 1, all midpoints */
  ls_ref_fp4_block(x, 11);
  const float expected[] = {6, 4, 4, 2, 2, 1, 1, 0, -4, -0.0f, 0.5f};
  for (int i = 0; i < 11; i++) cr_assert_eq(ls_f32_bits(x[i]), ls_f32_bits(expected[i]), "element %d: %a", i, x[i]);
}

Test(ref_quant, fp4_with_e4m3_scale_by_hand) {
  float x[] = {9, 6, 4.5f, 1, 0.374f, 0.376f}; /* amax / 6 = 1.5 is an e4m3: the grid is 0 0.75 1.5 2.25 3 4.5 6 9 */
  ls_ref_fp4_e4m3_block(x, 6);
  const float expected[] = {9, 6, 4.5f, 0.75f, 0, 0.75f};
  for (int i = 0; i < 6; i++) cr_assert_eq(x[i], expected[i], "element %d: %a", i, x[i]);

  float large[] = {3e4f, 2000, 1000}; /* 5000 saturates at 448; then 6 * 448 is the most that a block can hold */
  ls_ref_fp4_e4m3_block(large, 3);
  cr_assert(large[0] == 2688 && large[1] == 1792 && large[2] == 896);

  float small[] = {0x1p-9f, 0x1p-11f, 0}; /* least scale 2^-9 */
  ls_ref_fp4_e4m3_block(small, 3);
  cr_assert(small[0] == 0x1p-9f && small[1] == 0 && small[2] == 0);
}

Test(ref_quant, scale_moves_one_float_step_above_a_full_block) {
  for (int e = -13; e <= 100;
       e++) { /* the small element stays where the scale is 2^e, and is a tie that goes to 0 where it is twice that */
    const float most = ldexpf(448, e), least = ldexpf(1, e - 9);
    float at[] = {most, least}, below[] = {nextafterf(most, 0), least}, above[] = {nextafterf(most, INFINITY), least};
    ls_ref_fp8_block(at, 2), ls_ref_fp8_block(below, 2), ls_ref_fp8_block(above, 2);
    cr_assert(at[0] == most && at[1] == least, "2^%d", e);
    cr_assert(below[0] == most && below[1] == least, "2^%d", e);
    cr_assert(above[0] == most && above[1] == 0, "2^%d", e);
  }
  for (int e = -126; e <= 100; e++) {
    const float most = ldexpf(6, e), least = ldexpf(1, e - 1);
    float at[] = {most, least}, below[] = {nextafterf(most, 0), least}, above[] = {nextafterf(most, INFINITY), least};
    ls_ref_fp4_block(at, 2), ls_ref_fp4_block(below, 2), ls_ref_fp4_block(above, 2);
    cr_assert(at[0] == most && at[1] == least, "2^%d", e);
    cr_assert(below[0] == most && below[1] == least, "2^%d", e);
    cr_assert(above[0] == most && above[1] == 0, "2^%d", e);
  }
}

Test(ref_quant, least_scale_of_fp4_is_normal) {
  cr_assert_eq(6 * 0x1p-126f * (float)(1.0 / 6.0), 0x1p-126f);
  float x[] = {0x1p-126f, 0x1p-127f, 0x1p-128f, 0x1.8p-128f, 0x1p-149f}; /* quarter of a step is a tie, three eighths are not */
  ls_ref_fp4_block(x, 5);
  cr_assert(x[0] == 0x1p-126f && x[1] == 0x1p-127f && x[2] == 0 && x[3] == 0x1p-127f && x[4] == 0);
}

Test(ref_quant, zeros_stay_zeros_with_their_sign) {
  for (int k = 0; k < KINDS; k++) {
    float x[16] = {0};
    x[3] = -0.0f;
    block_fn[k](x, 16);
    for (int i = 0; i < 16; i++) cr_assert_eq(ls_f32_bits(x[i]), i == 3 ? 0x80000000u : 0u);
  }
}

Test(ref_quant, block_with_anything_not_finite_is_lost_as_a_whole) {
  static const float bad[] = {NAN, INFINITY, -INFINITY};
  for (int k = 0; k < KINDS; k++) {
    for (int b = 0; b < 3; b++) {
      for (int64_t at = 0; at < block_size[k]; at++) {
        float x[32];
        for (int64_t i = 0; i < block_size[k]; i++) x[i] = i == at ? bad[b] : 1;
        block_fn[k](x, block_size[k]);
        for (int64_t i = 0; i < block_size[k]; i++) cr_assert(isnan(x[i]), "kind %d, bad %g at %d, element %d", k, bad[b], (int)at, (int)i);
      }
    }
  }
}

/* ---- against the oracle ---- */

Test(ref_quant, every_bf16_value_in_blocks_of_several_sizes_of_amax) {
  static const float amax[] = {0, 0x1p-130f, 1e-4f, 0.0123f, 0.5f, 1, 3, 6, 7, 448, 449, 2688, 1e10f, 3e38f};
  for (int k = 0; k < KINDS; k++) {
    for (size_t a = 0; a < sizeof amax / sizeof amax[0]; a++) {
      float x[32];
      int64_t filled = 0;
      x[filled++] = amax[a];
      for (unsigned h = 0; h < 0x10000; h++) {
        const float v = ls_bf16_to_f32((uint16_t)h);
        if (!(fabsf(v) <= amax[a])) continue;
        x[filled++] = v;
        if (filled == block_size[k]) {
          check(k, x, filled, "with the amax");
          filled = 1;
        }
      }
      check(k, x, filled, "with the amax");
    }
  }
}

Test(ref_quant, every_bf16_value_as_the_amax) {
  for (int k = 0; k < KINDS; k++) {
    for (unsigned h = 0; h < 0x7F80; h++) {
      const float v = ls_bf16_to_f32((uint16_t)h);
      const float x[] = {v, -v / 3, v / 7, -v / 50, v / 448, 0.7f * v, -0.99f * v, v / 1000};
      check(k, x, 8, "a multiple of the amax");
    }
  }
}

/* A quotient, not a product with a rounded 1/6: they differ just where the scale is about to change. */
Test(ref_quant, scale_of_e4m3_changes_at_the_float_where_the_quotient_crosses_a_midpoint) {
  for (int code = 1; code < 126; code++) {
    const float midpoint = (float)((e4m3_at(code) + e4m3_at(code + 1)) / 2);
    float amax = 6 * midpoint;
    for (int i = 0; i < 4; i++) amax = nextafterf(amax, 0);
    for (int i = 0; i < 9; i++, amax = nextafterf(amax, INFINITY)) {
      const float x[] = {amax, amax / 2, amax / 3, -amax / 5, amax / 12};
      check(FP4_E4M3, x, 5, "about a midpoint");
    }
  }
}

Test(ref_quant, random_blocks_of_every_size) {
  ls_random draw = {.seed = 11};
  for (int k = 0; k < KINDS; k++) {
    for (int trial = 0; trial < 4000; trial++) {
      float x[32];
      const int exponent = (int)ls_random_range(&draw, -140, 120), spread = (int)ls_random_range(&draw, 0, 12);
      for (int64_t i = 0; i < block_size[k]; i++)
        x[i] = (float)ldexp(2 * ls_random_unit(&draw) - 1, exponent - (int)ls_random_range(&draw, 0, spread));
      check(k, x, block_size[k], "random");
    }
  }
}

Test(ref_quant, second_round_trip_with_a_power_of_two_scale_changes_nothing) {
  ls_random draw = {.seed = 12};
  for (int k = FP8; k <= FP4; k++) {
    for (int trial = 0; trial < 2000; trial++) {
      float x[32], twice[32];
      const double size = ldexp(1, (int)ls_random_range(&draw, -20, 20));
      for (int i = 0; i < 32; i++) x[i] = (float)(size * (2 * ls_random_unit(&draw) - 1));
      block_fn[k](x, 32);
      memcpy(twice, x, sizeof x);
      block_fn[k](twice, 32);
      cr_assert_eq(memcmp(twice, x, sizeof x), 0);
    }
  }
}

/* ---- whole tensors ---- */

Test(ref_quant, each_block_of_each_row_has_its_own_scale) {
  enum { ROWS = 3, BLOCKS = 4 };
  static const ls_dtype types[] = {LS_BF16, LS_F16, LS_F32, LS_F64};
  for (int k = 0; k < KINDS; k++) {
    for (int d = 0; d < 4; d++) {
      const int64_t block = block_size[k], columns = BLOCKS * block;
      double in[ROWS * BLOCKS * 32], out[ROWS * BLOCKS * 32]; /* room for any type */
      const ls_tensor x = ls_tensor_make(types[d], 2, (int64_t[]){ROWS, columns}, in);
      const ls_tensor y = ls_tensor_make(types[d], 2, (int64_t[]){ROWS, columns}, out);
      for (int64_t i = 0; i < ROWS * columns; i++) ls_tensor_set(&x, i, ls_generated_at(5, (uint64_t)i, ldexp(1, (int)(i / block)), 0));
      ls_tensor_set(&x, columns + 3, (double)NAN); /* row 1, block 0 */
      ls_ref_quantise(&y, &x, block, block_fn[k]);
      for (int64_t b = 0; b < ROWS * BLOCKS; b++) {
        float from[32], expected[32];
        for (int64_t i = 0; i < block; i++) from[i] = (float)ls_tensor_get(&x, b * block + i);
        if (b != BLOCKS) oracle(k, expected, from, block);
        for (int64_t i = 0; i < block; i++) {
          const double got = ls_tensor_get(&y, b * block + i);
          cr_assert(b == BLOCKS ? isnan(got) : got == (double)expected[i], "kind %d, %s, block %d", k, ls_dtype_name(types[d]), (int)b);
        }
      }
      ls_ref_quantise(&x, &x, block, block_fn[k]); /* in place */
      cr_assert(ls_tensor_same_bytes(&x, &y));
    }
  }
}

Test(ref_quant, float64_goes_to_the_grid_by_way_of_float32) {
  double in[16] = {6, 0.25 + 0x1p-40, 0.25 + 0x1p-20}, out[16]; /* the first looks like a tie in float32 */
  const ls_tensor x = ls_tensor_make(LS_F64, 2, (int64_t[]){1, 16}, in), y = ls_tensor_make(LS_F64, 2, (int64_t[]){1, 16}, out);
  ls_ref_quantise(&y, &x, 16, ls_ref_fp4_block);
  cr_assert(out[0] == 6 && out[1] == 0 && out[2] == 0.5);
}
