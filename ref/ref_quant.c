#include "ref_quant.h"

#include <math.h>

#include "../core/ls_numeric.h"

/* max(max|x|, least); NaN where any value is not finite: then the block is lost as a whole. */
static float amax_of(const float *x, int64_t n, float least) {
  float amax = least;
  for (int64_t i = 0; i < n; i++) {
    if (!isfinite(x[i])) return NAN;
    amax = fmaxf(amax, fabsf(x[i]));
  }
  return amax;
}

static void fill_nan(float *x, int64_t n) {
  for (int64_t i = 0; i < n; i++) x[i] = NAN;
}

static float clamp(float v, float most) { return v < -most ? -most : (v > most ? most : v); }
static float bf16(float v) { return ls_bf16_to_f32(ls_f32_to_bf16(v)); }
static float e4m3(float v) { return ls_e4m3_to_f32(ls_f32_to_e4m3(v)); }
static float e2m1(float v) { return ls_e2m1_to_f32(ls_f32_to_e2m1(v)); }

void ls_ref_fp8_block(float *x, int64_t n) {
  const float amax = amax_of(x, n, 1e-4f);
  if (isnan(amax)) {
    fill_nan(x, n);
    return;
  }
  const float s = ls_pow2ceil(amax * (float)(1.0 / 448.0));
  for (int64_t i = 0; i < n; i++) x[i] = bf16(e4m3(clamp(x[i] / s, 448.0f)) * s);
}

static void round_to_fp4(float *x, int64_t n, float s) {
  for (int64_t i = 0; i < n; i++) x[i] = bf16(e2m1(clamp(x[i] / s, 6.0f)) * s);
}

void ls_ref_fp4_block(float *x, int64_t n) {
  const float amax = amax_of(x, n, 6 * 0x1p-126f);
  if (isnan(amax)) {
    fill_nan(x, n);
  } else {
    round_to_fp4(x, n, ls_pow2ceil(amax * (float)(1.0 / 6.0))); /* the least product is 2^-126 exactly, still normal */
  }
}

void ls_ref_fp4_e4m3_block(float *x, int64_t n) {
  const float amax = amax_of(x, n, 6 * 0x1p-9f);
  if (isnan(amax)) {
    fill_nan(x, n);
  } else {
    round_to_fp4(x, n, e4m3(amax / 6.0f));
  }
}

void ls_ref_quantise(const ls_tensor *y, const ls_tensor *x, int64_t block, ls_ref_block_fn *fn) {
  float v[LS_REF_LARGEST_BLOCK];
  for (int64_t row = 0; row < x->dim[0]; row++) {
    const ls_tensor from = ls_tensor_at(x, row), to = ls_tensor_at(y, row);
    for (int64_t i = 0; i < x->dim[1]; i += block) {
      const ls_tensor in = ls_tensor_slice(&from, 0, i, block), out = ls_tensor_slice(&to, 0, i, block);
      ls_tensor_to_f32(v, &in);
      fn(v, block);
      ls_tensor_from_f32(&out, v);
    }
  }
}
