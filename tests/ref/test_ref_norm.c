#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/ls_numeric.h"
#include "core/ls_random.h"
#include "ref/ref_norm.h"

Test(ref_norm, hand_computed_rows_are_exact) {
  const float signs[] = {1, -1, 1, -1}, twos[] = {2, 2, -2, 2}, w[] = {1, 2, -3, 0.5f};
  float y[4];
  ls_ref_rms_norm_f32(y, signs, w, 4, 0); /* mean of squares 1 */
  cr_assert(y[0] == 1 && y[1] == -2 && y[2] == -3 && y[3] == -0.5f);
  ls_ref_rms_norm_f32(y, twos, w, 4, 0); /* 4: scale 1/2 */
  cr_assert(y[0] == 1 && y[1] == 2 && y[2] == 3 && y[3] == 0.5f);
  ls_ref_rms_norm_f32(y, twos, w, 4, 12); /* 4 + 12: scale 1/4; eps is inside the root */
  cr_assert(y[0] == 0.5f && y[1] == 1 && y[2] == 1.5f && y[3] == 0.25f);
  const double x64[] = {3, 4}, w64[] = {1, 1};
  double y64[2];
  ls_ref_rms_norm_f64(y64, x64, w64, 2, 0);
  cr_assert(fabs(y64[0] - 0.84852813742385702928) < 1e-15 && fabs(y64[1] - 1.13137084989847603904) < 1e-15);
}

Test(ref_norm, zero_row_is_zero_with_eps_and_nan_without) {
  const float x[] = {0, 0}, w[] = {1, 1};
  float y[2];
  ls_ref_rms_norm_f32(y, x, w, 2, 1e-6f);
  cr_assert(y[0] == 0 && y[1] == 0);
  ls_ref_rms_norm_f32(y, x, w, 2, 0);
  cr_assert(isnan(y[0]) && isnan(y[1]));
}

Test(ref_norm, nan_and_infinity_are_never_hidden) {
  for (int at = 0; at < 40; at++) {
    float x[40], w[40], y[40];
    for (int i = 0; i < 40; i++) x[i] = w[i] = 1;
    x[at] = NAN;
    ls_ref_rms_norm_f32(y, x, w, 40, 1e-6f);
    for (int i = 0; i < 40; i++) cr_assert(isnan(y[i]));
    x[at] = INFINITY; /* scale 0: inf * 0 is NaN, the others vanish */
    ls_ref_rms_norm_f32(y, x, w, 40, 1e-6f);
    for (int i = 0; i < 40; i++) cr_assert(i == at ? isnan(y[i]) : y[i] == 0);
  }
}

/* Kinds of rows, as zero-mean data hides faults: shifted, heavy-tailed, constant, huge, tiny. */
static float element(int kind, uint64_t seed, int64_t i) {
  const double u = ls_generated_at(seed, (uint64_t)i, 1.0, 0.0);
  switch (kind) {
    case 0:
      return (float)u;
    case 1:
      return (float)(1000 + u);
    case 2:
      return (float)(u * u * u * u * u * 1e4);
    case 3:
      return 0.37f;
    case 4:
      return (float)(u * 1e17);
    default:
      return (float)(u * 1e-18);
  }
}

Test(ref_norm, float32_agrees_with_float64_on_every_kind_of_row) {
  static const int64_t lengths[] = {1, 2, 15, 16, 17, 31, 96, 128, 1000, 5120};
  for (int kind = 0; kind < 6; kind++) {
    for (size_t l = 0; l < sizeof lengths / sizeof lengths[0]; l++) {
      const int64_t n = lengths[l];
      float *x = malloc((size_t)n * sizeof *x), *w = malloc((size_t)n * sizeof *w), *y = malloc((size_t)n * sizeof *y);
      double *x64 = malloc((size_t)n * sizeof *x64), *w64 = malloc((size_t)n * sizeof *w64), *y64 = malloc((size_t)n * sizeof *y64);
      for (int64_t i = 0; i < n; i++) {
        x64[i] = x[i] = element(kind, 77 + (uint64_t)l, i);
        w64[i] = w[i] = 1 + 0.5f * element(0, 5, i);
      }
      const float eps = kind == 5 ? 1e-37f : 1e-6f;
      ls_ref_rms_norm_f32(y, x, w, n, eps);
      ls_ref_rms_norm_f64(y64, x64, w64, n, (double)eps);
      /* 16 interleaved sums of n / 16 terms, then 5 more roundings */
      const double allowed = (6 + (double)n / 16) * 0x1p-24;
      for (int64_t i = 0; i < n; i++) {
        cr_assert(fabs(y[i] - y64[i]) <= allowed * fabs(y64[i]), "kind %d n %d i %d: %g %g", kind, (int)n, (int)i, y[i], y64[i]);
      }
      free(x), free(w), free(y), free(x64), free(w64), free(y64);
    }
  }
}

Test(ref_norm, bits_do_not_depend_on_where_the_row_lies_nor_on_computing_in_place) {
  enum { N = 133 };
  _Alignas(64) float from[N + 16], to[N + 16], w[N], first[N];
  for (int i = 0; i < N; i++) w[i] = element(1, 9, i);
  for (int shift = 0; shift < 16; shift++) {
    for (int i = 0; i < N; i++) from[shift + i] = element(0, 3, i);
    ls_ref_rms_norm_f32(to + 15 - shift, from + shift, w, N, 1e-6f);
    if (shift == 0) memcpy(first, to + 15, sizeof first);
    cr_assert_eq(memcmp(first, to + 15 - shift, sizeof first), 0);
    ls_ref_rms_norm_f32(from + shift, from + shift, w, N, 1e-6f);
    cr_assert_eq(memcmp(first, from + shift, sizeof first), 0);
  }
}

Test(ref_norm, each_group_of_each_row_is_normed_by_itself_and_rounded_once) {
  enum { ROWS = 3, GROUPS = 2, N = 6 };
  for (int act = LS_BF16; act <= LS_F16; act++) {
    uint16_t in[ROWS * GROUPS * N], out[ROWS * GROUPS * N];
    float w[N], wide[GROUPS * N];
    const ls_tensor x = ls_tensor_make((ls_dtype)act, 2, (int64_t[]){ROWS, GROUPS * N}, in);
    const ls_tensor y = ls_tensor_make((ls_dtype)act, 2, (int64_t[]){ROWS, GROUPS * N}, out);
    const ls_tensor weight = ls_tensor_make(LS_F32, 1, (int64_t[]){N}, w);
    for (int64_t i = 0; i < ROWS * GROUPS * N; i++) ls_tensor_set(&x, i, element(0, 4, i) * (double)(1 + i / N));
    for (int i = 0; i < N; i++) w[i] = 1 + element(0, 8, i);
    ls_ref_rms_norm(&y, &x, &weight, 1e-6, wide);
    for (int64_t group = 0; group < ROWS * GROUPS; group++) {
      float one[N];
      for (int i = 0; i < N; i++) one[i] = (float)ls_tensor_get(&x, group * N + i);
      ls_ref_rms_norm_f32(one, one, w, N, 1e-6f);
      for (int i = 0; i < N; i++) {
        const uint16_t bits = act == LS_BF16 ? ls_f32_to_bf16(one[i]) : ls_f32_to_f16(one[i]);
        cr_assert_eq(out[group * N + i], bits);
      }
    }
    ls_ref_rms_norm(&x, &x, &weight, 1e-6, wide); /* in place, as in a slot */
    cr_assert_eq(memcmp(in, out, sizeof in), 0);
  }
}

Test(ref_norm, float64_is_not_rounded_and_counts_eps_as_float32) {
  double x[2] = {1.0 / 3, 2.0 / 3}, y[2], w[2] = {1, 1}, wide[2], expected[2];
  const ls_tensor in = ls_tensor_make(LS_F64, 2, (int64_t[]){1, 2}, x), out = ls_tensor_make(LS_F64, 2, (int64_t[]){1, 2}, y);
  const ls_tensor weight = ls_tensor_make(LS_F64, 1, (int64_t[]){2}, w);
  ls_ref_rms_norm(&out, &in, &weight, 0.1, wide);
  ls_ref_rms_norm_f64(expected, x, w, 2, (double)0.1f);
  cr_assert(y[0] == expected[0] && y[1] == expected[1]);
  cr_assert_neq(y[0], (double)(float)y[0]);
}
