/* The small formats against tables built from their definition with ldexp, in double, and a search for the nearest entry. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>

#include "core/ls_numeric.h"
#include "core/ls_random.h"

typedef struct {
  const char *name;
  ls_dtype dtype;
  int mantissa_bits, bias, exponent_bits;
  float (*widen)(uint16_t);
  uint16_t (*from_f32)(float);
  uint16_t (*from_f64)(double);
} format;

static float bf16_widen(uint16_t h) { return ls_bf16_to_f32(h); }
static uint16_t bf16_from_f32(float v) { return ls_f32_to_bf16(v); }
static uint16_t bf16_from_f64(double v) { return ls_f64_to_bf16(v); }
static float f16_widen(uint16_t h) { return ls_f16_to_f32(h); }
static uint16_t f16_from_f32(float v) { return ls_f32_to_f16(v); }
static uint16_t f16_from_f64(double v) { return ls_f64_to_f16(v); }

static const format formats[2] = {{"bf16", LS_BF16, 7, 127, 8, bf16_widen, bf16_from_f32, bf16_from_f64},
                                  {"f16", LS_F16, 10, 15, 5, f16_widen, f16_from_f32, f16_from_f64}};

/* The value of a code by the definition of an IEEE format; the code after the largest finite one gives what that value would be without
 * infinity, which is where rounding to infinity begins from. */
static double magnitude_of(const format *f, unsigned code) {
  unsigned exponent = code >> f->mantissa_bits, mantissa = code & ((1u << f->mantissa_bits) - 1);
  if (exponent == 0) return ldexp(mantissa, 1 - f->bias - f->mantissa_bits);
  return ldexp(mantissa + (1u << f->mantissa_bits), (int)exponent - f->bias - f->mantissa_bits);
}

static unsigned infinity_of(const format *f) { return ((1u << f->exponent_bits) - 1) << f->mantissa_bits; }

static void each_value_round_trips(const format *f) {
  for (unsigned code = 0; code < 0x10000; code++) {
    unsigned magnitude = code & 0x7FFF, sign = code & 0x8000;
    float wide = f->widen((uint16_t)code);
    cr_assert_eq(signbit(wide) != 0, sign != 0, "%s %04x", f->name, code);
    if (magnitude > infinity_of(f)) { /* NaN: stays, becomes quiet, keeps sign and payload */
      unsigned quiet = code | 1u << (f->mantissa_bits - 1);
      cr_assert(isnan(wide), "%s %04x", f->name, code);
      cr_assert_eq(f->from_f32(wide), quiet, "%s %04x", f->name, code);
      cr_assert(isnan(f->widen(f->from_f64((double)wide))), "%s %04x", f->name, code);
      continue;
    }
    if (magnitude == infinity_of(f)) {
      cr_assert(isinf(wide), "%s %04x", f->name, code);
    } else {
      cr_assert_eq(fabs((double)wide), magnitude_of(f, magnitude), "%s %04x", f->name, code);
    }
    cr_assert_eq(f->from_f32(wide), code, "%s %04x", f->name, code);
    cr_assert_eq(f->from_f64((double)wide), code, "%s %04x", f->name, code);
    cr_assert_eq(ls_round_to(f->dtype, (double)wide), (double)wide);
  }
}

Test(numeric, every_bf16_survives_a_round_trip) { each_value_round_trips(&formats[0]); }
Test(numeric, every_f16_survives_a_round_trip) { each_value_round_trips(&formats[1]); }

/* Between each two neighbours, up to the last one and infinity: the midpoint goes to the even code, everything else to the nearer. */
static void midpoints_round_to_even(const format *f) {
  for (unsigned code = 0; code < infinity_of(f); code++) {
    double low = magnitude_of(f, code), high = magnitude_of(f, code + 1), mid = low + (high - low) / 2;
    unsigned even = code & 1 ? code + 1 : code;
    for (int s = 0; s < 2; s++) {
      double sign = s ? -1 : 1;
      unsigned bit = s ? 0x8000 : 0;
      float m = (float)(sign * mid);
      cr_assert_eq((double)m, sign * mid, "a midpoint is a float32");
      cr_assert_eq(f->from_f32(m), even | bit, "%s %04x", f->name, code);
      cr_assert_eq(f->from_f32(nextafterf(m, 0.0f)), code | bit, "%s %04x", f->name, code);
      cr_assert_eq(f->from_f32(nextafterf(m, (float)(sign * INFINITY))), (code + 1) | bit, "%s %04x", f->name, code);
      /* float64 neighbours of a midpoint: float32 in between would lose them */
      cr_assert_eq(f->from_f64(sign * mid), even | bit, "%s %04x", f->name, code);
      cr_assert_eq(f->from_f64(sign * nextafter(mid, 0)), code | bit, "%s %04x", f->name, code);
      cr_assert_eq(f->from_f64(sign * nextafter(mid, INFINITY)), (code + 1) | bit, "%s %04x", f->name, code);
      cr_assert_eq(f->from_f64(sign * (low + (mid - low) / 2)), code | bit, "%s %04x", f->name, code);
      cr_assert_eq(f->from_f64(sign * (mid + (mid - low) / 2)), (code + 1) | bit, "%s %04x", f->name, code);
    }
  }
}

Test(numeric, bf16_rounds_once_and_to_nearest_even) { midpoints_round_to_even(&formats[0]); }
Test(numeric, f16_rounds_once_and_to_nearest_even) { midpoints_round_to_even(&formats[1]); }

Test(numeric, two_roundings_would_be_caught) {
  double just_above = nextafter(1 + 0x1p-8, 2); /* nearest bf16: 1 + 2^-7; by way of float32 it looks like a tie and goes to 1 */
  cr_assert_eq(ls_f64_to_bf16(just_above), 0x3F81);
  cr_assert_eq(ls_f32_to_bf16((float)just_above), 0x3F80);
  double half = nextafter(1 + 0x1p-11, 2);
  cr_assert_eq(ls_f64_to_f16(half), 0x3C01);
  cr_assert_eq(ls_f32_to_f16((float)half), 0x3C00);
}

Test(numeric, what_lies_beyond_float32_rounds_too) {
  for (int i = 0; i < 2; i++) {
    const format *f = &formats[i];
    cr_assert_eq(f->from_f64(1e300), infinity_of(f));
    cr_assert_eq(f->from_f64(-1e300), infinity_of(f) | 0x8000);
    cr_assert_eq(f->from_f64(INFINITY), infinity_of(f));
    cr_assert_eq(f->from_f64(0x1p-1074), 0);
    cr_assert_eq(f->from_f64(-0x1p-1074), 0x8000);
    cr_assert_eq(f->from_f64(-0.0), 0x8000);
    cr_assert(isnan(f->widen(f->from_f64(NAN))));
    cr_assert(isnan(f->widen(f->from_f32(ls_f32_from_bits(0x7F800001u)))), "a NaN whose payload is cut off stays NaN");
    cr_assert(isnan(f->widen(f->from_f32(ls_f32_from_bits(0xFFFFFFFFu)))));
  }
}

/* ---- e4m3 and e2m1 ---- */

static double e4m3_magnitude(unsigned code) { /* 0 .. 126 */
  unsigned exponent = code >> 3, mantissa = code & 7;
  return exponent == 0 ? ldexp(mantissa, -9) : ldexp(8 + mantissa, (int)exponent - 10);
}

static double e2m1_magnitude(unsigned code) { /* 0 .. 7 */
  unsigned exponent = code >> 1, mantissa = code & 1;
  return exponent == 0 ? 0.5 * mantissa : ldexp(2 + mantissa, (int)exponent - 2);
}

/* The code of the nearest magnitude, the even one of two equally near; the last for all beyond. */
static unsigned nearest(double magnitude, double (*of)(unsigned), unsigned codes) {
  if (magnitude >= of(codes - 1)) return codes - 1;
  unsigned best = 0;
  for (unsigned c = 1; c < codes; c++) {
    double d = fabs(magnitude - of(c)), least = fabs(magnitude - of(best));
    if (d < least || (d == least && c % 2 == 0)) best = c;
  }
  return best;
}

static unsigned nearest_e4m3(float v) { return nearest(fabs((double)v), e4m3_magnitude, 127) | (signbit(v) ? 0x80 : 0); }
static unsigned nearest_e2m1(float v) { return nearest(fabs((double)v), e2m1_magnitude, 8) | (signbit(v) ? 8 : 0); }

Test(numeric, every_e4m3_code_has_its_value_and_survives) {
  for (unsigned code = 0; code < 256; code++) {
    float v = ls_e4m3_to_f32((uint8_t)code);
    cr_assert_eq(signbit(v) != 0, code >= 128, "%02x", code);
    if ((code & 127) == 127) {
      cr_assert(isnan(v));
    } else {
      cr_assert_eq(fabs((double)v), e4m3_magnitude(code & 127), "%02x", code);
    }
    cr_assert_eq(ls_f32_to_e4m3(v), code, "%02x", code);
  }
}

Test(numeric, every_bf16_goes_to_the_nearest_e4m3) {
  for (unsigned h = 0; h < 0x10000; h++) {
    float v = ls_bf16_to_f32((uint16_t)h);
    unsigned expected = isnan(v) ? (h >> 8 & 0x80) | 0x7F : nearest_e4m3(v);
    cr_assert_eq(ls_f32_to_e4m3(v), expected, "bf16 %04x", h);
  }
}

Test(numeric, e4m3_ties_go_to_the_even_code) {
  for (unsigned code = 0; code < 126; code++) {
    float m = (float)((e4m3_magnitude(code) + e4m3_magnitude(code + 1)) / 2);
    const float around[3] = {nextafterf(m, 0.0f), m, nextafterf(m, INFINITY)};
    for (int i = 0; i < 3; i++) {
      cr_assert_eq(ls_f32_to_e4m3(around[i]), nearest_e4m3(around[i]), "code %02x", code);
      cr_assert_eq(ls_f32_to_e4m3(-around[i]), nearest_e4m3(-around[i]), "code %02x", code);
    }
    cr_assert_eq(ls_f32_to_e4m3(m) % 2, 0);
  }
}

Test(numeric, e4m3_saturates_at_its_largest_value) {
  static const float beyond[] = {448, 463.99f, 464,     464.01f,
                                 480, 1e30f,   INFINITY}; /* 464 would be the tie with 480, which is a NaN's code */
  for (size_t i = 0; i < sizeof beyond / sizeof beyond[0]; i++) {
    cr_assert_eq(ls_f32_to_e4m3(beyond[i]), 0x7E, "%g", beyond[i]);
    cr_assert_eq(ls_f32_to_e4m3(-beyond[i]), 0xFE, "%g", -beyond[i]);
    cr_assert_eq(ls_f32_to_e2m1(beyond[i]), 7, "%g", beyond[i]);
    cr_assert_eq(ls_f32_to_e2m1(-beyond[i]), 15, "%g", -beyond[i]);
  }
}

Test(numeric, e4m3_is_rounded_once) { /* one float32 step beyond a midpoint; by way of f16 or bf16 it would look like the tie */
  for (int e = -6; e <= 8; e++) {
    const float tie = ldexpf(1.0625f, e);
    cr_assert_eq(ls_e4m3_to_f32(ls_f32_to_e4m3(tie)), ldexpf(1, e));
    cr_assert_eq(ls_e4m3_to_f32(ls_f32_to_e4m3(nextafterf(tie, INFINITY))), ldexpf(1.125f, e));
    cr_assert_eq(ls_e4m3_to_f32(ls_f32_to_e4m3(ls_f16_to_f32(ls_f32_to_f16(nextafterf(tie, INFINITY))))), ldexpf(1, e));
  }
}

Test(numeric, every_e2m1_code_has_its_value_and_survives) {
  static const float grid[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (unsigned code = 0; code < 16; code++) {
    float v = ls_e2m1_to_f32((uint8_t)code);
    cr_assert_eq(signbit(v) != 0, code >= 8);
    cr_assert_eq(fabsf(v), grid[code & 7]);
    cr_assert_eq(fabs((double)v), e2m1_magnitude(code & 7), "the grid is what a 2-bit exponent and a 1-bit mantissa give");
    cr_assert_eq(ls_f32_to_e2m1(v), code);
  }
}

Test(numeric, every_bf16_goes_to_the_nearest_e2m1) {
  for (unsigned h = 0; h < 0x10000; h++) {
    float v = ls_bf16_to_f32((uint16_t)h);
    if (!isnan(v)) cr_assert_eq(ls_f32_to_e2m1(v), nearest_e2m1(v), "bf16 %04x", h);
  }
}

Test(numeric, e2m1_ties_go_to_the_even_code) {
  for (unsigned code = 0; code < 7; code++) {
    float m = (float)((e2m1_magnitude(code) + e2m1_magnitude(code + 1)) / 2);
    const float around[3] = {nextafterf(m, 0.0f), m, nextafterf(m, INFINITY)};
    for (int i = 0; i < 3; i++) {
      cr_assert_eq(ls_f32_to_e2m1(around[i]), nearest_e2m1(around[i]), "code %u", code);
      cr_assert_eq(ls_f32_to_e2m1(-around[i]), nearest_e2m1(-around[i]), "code %u", code);
    }
    cr_assert_eq(ls_f32_to_e2m1(m) % 2, 0);
  }
}

/* ---- powers of two, steps ---- */

Test(numeric, pow2ceil_is_the_next_power_of_two_for_every_exponent) {
  for (int e = -126; e <= 126; e++) {
    float power = ldexpf(1, e);
    cr_assert_eq(ls_pow2ceil(power), power, "2^%d is its own", e);
    cr_assert_eq(ls_pow2ceil(nextafterf(power, INFINITY)), 2 * power, "just above 2^%d", e);
    cr_assert_eq(ls_pow2ceil(1.5f * power), 2 * power);
    cr_assert_eq(ls_pow2ceil(nextafterf(2 * power, 0.0f)), 2 * power, "just below 2^%d", e + 1);
  }
}

Test(numeric, pow2ceil_agrees_with_frexp_on_mantissas_of_every_exponent) {
  for (uint32_t exponent = 1; exponent <= 253; exponent++) {
    for (uint32_t i = 0; i < 48; i++) { /* each single bit of a mantissa, and each run of ones down to the last */
      const uint32_t mantissa = i < 24 ? (UINT32_C(1) << i) & 0x7FFFFF : (UINT32_C(1) << (i - 24)) - 1;
      const float v = ls_f32_from_bits(exponent << 23 | mantissa);
      int above;
      const double half = frexp((double)v, &above);
      cr_assert_eq((double)ls_pow2ceil(v), ldexp(1, half == 0.5 ? above - 1 : above), "%a", (double)v);
    }
  }
  cr_assert_eq(ls_pow2ceil(0x1p127f), 0x1p127f);
}

Test(numeric, steps_between_counts_along_the_line_of_all_16_bit_values) {
  for (int i = 0; i < 2; i++) {
    const format *f = &formats[i];
    int64_t most = infinity_of(f);
    ls_random draw = {.seed = 7};
    for (int64_t p = -most; p <= most; p++) { /* place on the line: 0 is zero, +-most the infinities */
      int64_t q = ls_random_range(&draw, -most, most);
      double a = (double)f->widen((uint16_t)(p < 0 ? 0x8000 - p : p)), b = (double)f->widen((uint16_t)(q < 0 ? 0x8000 - q : q));
      cr_assert_eq(ls_steps_between(f->dtype, a, b), (uint64_t)llabs(p - q), "%s %g %g", f->name, a, b);
      if (p < most) {
        double next = (double)f->widen((uint16_t)(p + 1 < 0 ? 0x8000 - (p + 1) : p + 1));
        cr_assert_eq(ls_steps_between(f->dtype, a, next), 1);
        if (isfinite(a) && isfinite(next)) {
          double nearer_zero = fabs(a) < fabs(next) ? a : next;
          cr_assert_eq(ls_step_at(f->dtype, nearer_zero), next - a, "%s, the gap from %g", f->name, a);
        }
      }
    }
  }
}

Test(numeric, steps_are_counted_after_rounding_to_the_type) {
  cr_assert_eq(ls_steps_between(LS_BF16, 1.0, 1.0 + 0x1p-9), 0);
  cr_assert_eq(ls_steps_between(LS_BF16, 1.0, 1.0 + 0x1.8p-8), 1);
  cr_assert_eq(ls_steps_between(LS_F16, 65504, 65519.99), 0);
  cr_assert_eq(ls_steps_between(LS_F16, 65504, 65520), 1);
}

Test(numeric, wide_types_have_steps_too) {
  cr_assert_eq(ls_steps_between(LS_F32, 1, (double)nextafterf(1, 2)), 1);
  cr_assert_eq(ls_steps_between(LS_F32, -0x1p-149, 0x1p-149), 2);
  cr_assert_eq(ls_steps_between(LS_F64, 1, nextafter(1, 2)), 1);
  cr_assert_eq(ls_steps_between(LS_F64, -INFINITY, INFINITY), UINT64_C(0xFFE0000000000000));
  cr_assert_eq(ls_steps_between(LS_F64, 0.0, -0.0), 0);
  cr_assert_eq(ls_step_at(LS_F32, 1), 0x1p-23);
  cr_assert_eq(ls_step_at(LS_F32, 0), 0x1p-149);
  cr_assert_eq(ls_step_at(LS_F32, 0x1p-149), 0x1p-149);
  cr_assert_eq(ls_step_at(LS_F64, -1.5), 0x1p-52);
  cr_assert_eq(ls_step_at(LS_F64, 0x1p-1074), 0x1p-1074);
  cr_assert_eq(ls_steps_between(LS_I32, -3, 4), 7);
  cr_assert_eq(ls_steps_between(LS_I64, -1e30, 1e30), UINT64_MAX - 1);
}

Test(numeric, nan_is_far_from_everything_but_nan) {
  for (int d = LS_BF16; d <= LS_F64; d++) {
    cr_assert_eq(ls_steps_between((ls_dtype)d, NAN, NAN), 0);
    cr_assert_eq(ls_steps_between((ls_dtype)d, NAN, 1), UINT64_MAX);
    cr_assert_eq(ls_steps_between((ls_dtype)d, INFINITY, NAN), UINT64_MAX);
    cr_assert(isnan(ls_step_at((ls_dtype)d, NAN)));
    cr_assert(isnan(ls_step_at((ls_dtype)d, -INFINITY)));
  }
  cr_assert(isnan(ls_step_at(LS_F16, 65520)), "what the type cannot hold has no step");
  cr_assert_eq(ls_step_at(LS_F16, 65519), 32);
}
