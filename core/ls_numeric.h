/* ls_numeric: the small number formats, bit-exact, and distance in steps of a format. Header-only where it is hot.
 *
 * bf16 and f16 are carried as uint16_t. Rounding is nearest-even everywhere. NaN stays NaN (quiet, sign kept); overflow goes to
 * infinity. */
#ifndef LS_NUMERIC_H
#define LS_NUMERIC_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "ls_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

static inline uint32_t ls_f32_bits(float v) {
  uint32_t u;
  memcpy(&u, &v, sizeof u);
  return u;
}
static inline float ls_f32_from_bits(uint32_t u) {
  float v;
  memcpy(&v, &u, sizeof v);
  return v;
}

static inline float ls_bf16_to_f32(uint16_t h) { return ls_f32_from_bits((uint32_t)h << 16); }
static inline uint16_t ls_f32_to_bf16(float v) {
  uint32_t u = ls_f32_bits(v);
  if ((u & 0x7FFFFFFFu) > 0x7F800000u) return (uint16_t)((u >> 16) | 0x0040u); /* quiet, keep sign and upper payload */
  return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}

/* Both f16 conversions blend with masks instead of branching, so that loops over them vectorise. */
static inline uint32_t ls_blend(bool choose_a, uint32_t a, uint32_t b) {
  uint32_t mask = 0u - (uint32_t)choose_a;
  return (a & mask) | (b & ~mask);
}
static inline float ls_f16_to_f32(uint16_t h) {
  uint32_t sign = (uint32_t)(h & 0x8000u) << 16;
  uint32_t shifted = (uint32_t)(h & 0x7FFFu) << 13; /* exponent and mantissa where float32 has them */
  uint32_t normal = shifted + 0x38000000u;          /* rebias 15 -> 127 */
  uint32_t subnormal = ls_f32_bits(ls_f32_from_bits(shifted + 0x38800000u) - ls_f32_from_bits(0x38800000u)); /* (2^-14 + v) - 2^-14 */
  uint32_t special = shifted | 0x7F800000u | (uint32_t)(shifted > 0x0F800000u) << 22;                        /* NaN: quiet */
  uint32_t u = ls_blend(shifted >= 0x0F800000u, special, ls_blend(shifted < 0x00800000u, subnormal, normal));
  return ls_f32_from_bits(u | sign);
}
static inline uint16_t ls_f32_to_f16(float v) {
  uint32_t u = ls_f32_bits(v), a = u & 0x7FFFFFFFu;
  uint32_t normal = (a - 0x38000000u + 0x0FFFu + ((a >> 13) & 1u)) >> 13;
  /* a step of [0.5, 1) is f16's subnormal step, 2^-24; larger a are not added, a signalling NaN could trap */
  uint32_t subnormal = ls_f32_bits(ls_f32_from_bits(ls_blend(a < 0x38800000u, a, 0)) + 0.5f) - 0x3F000000u;
  uint32_t nan = 0x7E00u | ((a >> 13) & 0x01FFu); /* quiet, keep the upper payload */
  uint32_t h = ls_blend(a < 0x38800000u, subnormal, normal);
  h = ls_blend(a >= 0x477FF000u, 0x7C00u, h); /* from 65520, half way past the largest: infinity */
  h = ls_blend(a > 0x7F800000u, nan, h);
  return (uint16_t)(h | (u >> 16 & 0x8000u));
}
/* float64 to float32, to odd: toward zero, and where that is not exact the last bit is set. A second rounding, to nearest-even and to at
 * least two bits less, then gives what one rounding from float64 would. */
static inline float ls_f64_to_f32_odd(double v) {
  float nearest = (float)v;
  uint32_t u = ls_f32_bits(nearest);
  double d = (double)nearest;
  bool away = (v > 0) == (d > v); /* from zero */
  u = v == v && d != v ? (away ? u - 1u : u) | 1u : u;
  return ls_f32_from_bits(u);
}

/* From float64 in one rounding (not through float32 nearest-even). */
static inline uint16_t ls_f64_to_bf16(double v) { return ls_f32_to_bf16(ls_f64_to_f32_odd(v)); }
static inline uint16_t ls_f64_to_f16(double v) { return ls_f32_to_f16(ls_f64_to_f32_odd(v)); }

/* OCP e4m3 (no infinity, S.1111.111 is NaN, largest 448): values beyond 448, infinity included, saturate; NaN stays NaN; and back. */
uint8_t ls_f32_to_e4m3(float v);
float ls_e4m3_to_f32(uint8_t code);

/* e2m1: grid 0 0.5 1 1.5 2 3 4 6 and negatives, code = sign<<3 | index, ties to the even code, beyond 6 saturates. v must not be NaN. */
uint8_t ls_f32_to_e2m1(float v);
float ls_e2m1_to_f32(uint8_t code);

/* 2^ceil(log2 v) for positive normal v, from the bits (layers.md, pow2ceil). */
float ls_pow2ceil(float v);

/* v rounded to a float dtype and widened again; to an integer dtype: to the nearest integer of it (NaN: 0). */
double ls_round_to(ls_dtype dtype, double v);

/* The size of one step (unit in the last place) of dtype at |v|: the distance between neighbouring values of the binade that holds |v|;
 * at and below the smallest normal, the subnormal step. NaN, infinity and what rounds to infinity in dtype give NaN, which no PASS
 * condition survives. 1 for an integer dtype. */
double ls_step_at(ls_dtype dtype, double v);

/* How many steps apart a and b are once each is rounded to dtype, along the line of representable values (-0 and +0 are the same
 * point). 0 for two NaN, UINT64_MAX where just one is NaN. */
uint64_t ls_steps_between(ls_dtype dtype, double a, double b);

#ifdef __cplusplus
}
#endif
#endif
