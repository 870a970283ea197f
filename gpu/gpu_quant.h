/* gpu_quant.h: device helpers for the fp8 and fp4 round trips of layers.md ("Shared definitions"), on a row that lies across a warp: lane l
 * holds 8 elements beside each other, its neighbours the next 8, so that a block of 32 is 4 lanes and a block of 16 is 2.
 *
 * The clamp of layers.md is in the conversions, which saturate, and nothing non-finite reaches one: a block whose amax is not finite is NaN
 * as a whole before. Dividing by a power of two is multiplying by its inverse, to the bit. */
#ifndef GPU_QUANT_H
#define GPU_QUANT_H

#include "gpu_device.h"

namespace LSG_NS {

typedef enum { QUANT_NONE, QUANT_FP8, QUANT_FP4, QUANT_FP4_E4M3 } quant_kind;

enum { QUANT_UNIT = 8 }; /* elements of a lane */

/* 2^ceil(log2 v) for positive normal v, from the bits. */
LSG_DEVICE float quant_pow2ceil(float v) { return lsg_from_bits((lsg_bits(v) + 0x7FFFFFu) & 0x7F800000u); }

/* 1 / s for a power of two s, 2^-126 .. 2^126. */
LSG_DEVICE float quant_pow2_inverse(float s) { return lsg_from_bits((254u << 23) - lsg_bits(s)); }

/* v on the grid 0 0.5 1 1.5 2 3 4 6 and negatives, ties to the even code, beyond 6 saturated; v finite, -0 stays. The grid's step is 0.5
 * below 2, 1 below 4, then 2, and a code is even where the value is an even number of steps: adding 2^23 steps rounds to nearest-even
 * there, as float32 does. */
LSG_DEVICE float quant_e2m1(float v) {
  const float m = lsg_from_bits(lsg_bits(v) & 0x7FFFFFFFu), steps = m < 2.0f ? 0x1p22f : (m < 4.0f ? 0x1p23f : 0x1p24f);
  const float rounded = (m + steps) - steps;
  return lsg_from_bits(lsg_bits(rounded < 6.0f ? rounded : 6.0f) | (lsg_bits(v) & 0x80000000u));
}

LSG_DEVICE float quant_e4m3(float v) { return lsg_e4m3_to_f32(lsg_f32_to_e4m3(v)); }

/* max(max |v|, least) of the block, NaN where an element is; the same in all its lanes. Called by the whole warp. */
template <int lanes>
LSG_DEVICE float quant_amax(const float v[QUANT_UNIT], float least LSG_SITE) {
  float amax = least;
  LSG_UNROLL
  for (int e = 0; e < QUANT_UNIT; e++) amax = lsg_fmax_nan(amax, lsg_from_bits(lsg_bits(v[e]) & 0x7FFFFFFFu));
  LSG_UNROLL
  for (int offset = lanes / 2; offset > 0; offset >>= 1) amax = lsg_fmax_nan(amax, lsg_shfl_xor(LSG_FULL_MASK, amax, offset LSG_SITE_PASS));
  return amax;
}

/* The round trip of this lane's elements but for the last rounding to bf16, which the caller's store makes. Called by the whole warp. */
template <int kind>
LSG_DEVICE void quant_round_trip(float v[QUANT_UNIT] LSG_SITE) {
  if constexpr (kind != QUANT_NONE) {
    constexpr int lanes = kind == QUANT_FP4_E4M3 ? 2 : 4;
    constexpr float least = kind == QUANT_FP8 ? 1e-4f : (kind == QUANT_FP4 ? 6 * 0x1p-126f : 6 * 0x1p-9f);
    const float amax = quant_amax<lanes>(v, least LSG_SITE_PASS);
    if (!lsg_isfinite(amax)) {
      LSG_UNROLL
      for (int e = 0; e < QUANT_UNIT; e++) v[e] = lsg_from_bits(0x7FFFFFFFu);
    } else if constexpr (kind == QUANT_FP4_E4M3) {
      const float s = quant_e4m3(lsg_div(amax, 6.0f));
      LSG_UNROLL
      for (int e = 0; e < QUANT_UNIT; e++) v[e] = quant_e2m1(lsg_div(v[e], s)) * s;
    } else {
      const float s = quant_pow2ceil(amax * (kind == QUANT_FP8 ? (float)(1.0 / 448.0) : (float)(1.0 / 6.0)));
      const float inverse = quant_pow2_inverse(s);
      LSG_UNROLL
      for (int e = 0; e < QUANT_UNIT; e++) v[e] = (kind == QUANT_FP8 ? quant_e4m3(v[e] * inverse) : quant_e2m1(v[e] * inverse)) * s;
    }
  }
}

}  // namespace LSG_NS

#endif
