#include "ls_numeric.h"

#include <math.h>
#include <string.h>

uint8_t ls_f32_to_e4m3(float v) {
  uint32_t u = ls_f32_bits(v), a = u & 0x7FFFFFFFu;
  uint8_t sign = (uint8_t)(u >> 24 & 0x80u);
  if (a > 0x7F800000u) return sign | 0x7Fu;
  float m = ls_f32_from_bits(a);
  if (m >= 448.0f) return sign | 0x7Eu;
  if (m < 0x1p-6f) return (uint8_t)(sign | (ls_f32_bits(m + 0x1p14f) - ls_f32_bits(0x1p14f))); /* a step at 2^14 is 2^-9 */
  return (uint8_t)(sign | (((a + 0x7FFFFu + ((a >> 20) & 1u)) >> 20) - (120u << 3)));          /* rebias 127 -> 7 */
}

float ls_e4m3_to_f32(uint8_t code) {
  uint32_t sign = (uint32_t)(code & 0x80u) << 24, exponent = code >> 3 & 15u, mantissa = code & 7u;
  if (exponent == 15 && mantissa == 7) return ls_f32_from_bits(sign | 0x7FC00000u);
  float m = exponent == 0 ? (float)mantissa * 0x1p-9f : ls_f32_from_bits((exponent + 120u) << 23 | mantissa << 20);
  return ls_f32_from_bits(ls_f32_bits(m) | sign);
}

uint8_t ls_f32_to_e2m1(float v) {
  float m = ls_f32_from_bits(ls_f32_bits(v) & 0x7FFFFFFFu);
  /* each comparison is a midpoint of the grid; a tie goes down where the lower code is even, up where it is odd */
  int index = (m > 0.25f) + (m >= 0.75f) + (m > 1.25f) + (m >= 1.75f) + (m > 2.5f) + (m >= 3.5f) + (m > 5.0f);
  return (uint8_t)((ls_f32_bits(v) >> 28 & 8u) | (uint32_t)index);
}

float ls_e2m1_to_f32(uint8_t code) {
  static const float grid[8] = {0.0f, 0.5f, 1.0f, 1.5f, 2.0f, 3.0f, 4.0f, 6.0f};
  float m = grid[code & 7u];
  return code & 8u ? -m : m;
}

float ls_pow2ceil(float v) { return ls_f32_from_bits((ls_f32_bits(v) + 0x7FFFFFu) & 0x7F800000u); }

/* ---- rounding and distance by dtype ---- */

static double round_to_integer(double v, double low, double high) {
  if (v != v) return 0;
  double r = nearbyint(v);
  return r < low ? low : (r > high ? high : r);
}

double ls_round_to(ls_dtype dtype, double v) {
  switch (dtype) {
    case LS_BF16:
      return (double)ls_bf16_to_f32(ls_f64_to_bf16(v));
    case LS_F16:
      return (double)ls_f16_to_f32(ls_f64_to_f16(v));
    case LS_F32:
      return (double)(float)v;
    case LS_I32:
      return round_to_integer(v, -0x1p31, 0x1p31 - 1);
    case LS_I64:
      return round_to_integer(v, -0x1p63, 0x1p63);
    case LS_U8:
      return round_to_integer(v, 0, 255);
    case LS_F64:
    case LS_DTYPES:
      break;
  }
  return v;
}

double ls_step_at(ls_dtype dtype, double v) {
  int mantissa_bits, least_exponent; /* of the smallest normal */
  switch (dtype) {
    case LS_BF16:
      mantissa_bits = 7, least_exponent = -126;
      break;
    case LS_F16:
      mantissa_bits = 10, least_exponent = -14;
      break;
    case LS_F32:
      mantissa_bits = 23, least_exponent = -126;
      break;
    case LS_F64:
      mantissa_bits = 52, least_exponent = -1022;
      break;
    default:
      return isfinite(v) ? 1.0 : NAN;
  }
  uint64_t bits;
  memcpy(&bits, &v, sizeof bits);
  const int exponent = (int)(bits >> 52 & 0x7FF) - 1023; /* of a subnormal double -1023, which is below every least_exponent */
  const int step = (exponent > least_exponent ? exponent : least_exponent) - mantissa_bits;
  if (exponent >= (dtype == LS_F16 ? 15 : 127) && !isfinite(ls_round_to(dtype, v))) return NAN; /* below it nothing overflows */
  if (step < -1022) return ldexp(1.0, step);
  bits = (uint64_t)(step + 1023) << 52;
  memcpy(&v, &bits, sizeof v);
  return v;
}

/* Where a value stands on the line of a sign-magnitude format: 0 at zero, one more a step, negatives below (mod 2^64). */
static uint64_t place_on_line(uint64_t bits, int width) {
  uint64_t sign = (uint64_t)1 << (width - 1), magnitude = bits & (sign - 1);
  return bits & sign ? -magnitude : magnitude;
}

uint64_t ls_steps_between(ls_dtype dtype, double a, double b) {
  if (a != a || b != b) return a != a && b != b ? 0 : UINT64_MAX;
  uint64_t from, to;
  double low = a < b ? a : b, high = a < b ? b : a;
  switch (dtype) {
    case LS_BF16:
      from = place_on_line(ls_f64_to_bf16(low), 16), to = place_on_line(ls_f64_to_bf16(high), 16);
      break;
    case LS_F16:
      from = place_on_line(ls_f64_to_f16(low), 16), to = place_on_line(ls_f64_to_f16(high), 16);
      break;
    case LS_F32:
      from = place_on_line(ls_f32_bits((float)low), 32), to = place_on_line(ls_f32_bits((float)high), 32);
      break;
    case LS_F64: {
      uint64_t low_bits, high_bits;
      memcpy(&low_bits, &low, sizeof low_bits);
      memcpy(&high_bits, &high, sizeof high_bits);
      from = place_on_line(low_bits, 64), to = place_on_line(high_bits, 64);
      break;
    }
    default: {
      double apart = ls_round_to(dtype, high) - ls_round_to(dtype, low);
      return apart < 0x1p64 ? (uint64_t)apart : UINT64_MAX - 1;
    }
  }
  return to - from;
}
