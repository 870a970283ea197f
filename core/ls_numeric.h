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

float ls_f16_to_f32(uint16_t h);
uint16_t ls_f32_to_f16(float v);

/* From float64 in one rounding (not through float32). */
uint16_t ls_f64_to_bf16(double v);
uint16_t ls_f64_to_f16(double v);

/* OCP e4m3 (no infinity, S.1111.111 is NaN, largest 448): values beyond 448 saturate; NaN stays NaN; and back. */
uint8_t ls_f32_to_e4m3(float v);
float ls_e4m3_to_f32(uint8_t code);

/* e2m1: grid 0 0.5 1 1.5 2 3 4 6 and negatives, code = sign<<3 | index, ties to the even code, beyond 6 saturates. v must not be NaN. */
uint8_t ls_f32_to_e2m1(float v);
float ls_e2m1_to_f32(uint8_t code);

/* 2^ceil(log2 v) for positive normal v, from the bits (layers.md, pow2ceil). */
float ls_pow2ceil(float v);

/* v rounded to a float dtype and widened again. */
double ls_round_to(ls_dtype dtype, double v);

/* The size of one step (unit in the last place) of dtype at |v|: the distance between neighbouring values of the binade that holds |v|;
 * at and below the smallest normal, the subnormal step. Infinity or NaN gives NaN, which no PASS condition survives. */
double ls_step_at(ls_dtype dtype, double v);

/* How many steps apart a and b are once each is rounded to dtype, along the line of representable values (-0 and +0 are the same
 * point). 0 for two NaN, UINT64_MAX where just one is NaN. */
uint64_t ls_steps_between(ls_dtype dtype, double a, double b);

#ifdef __cplusplus
}
#endif
#endif
