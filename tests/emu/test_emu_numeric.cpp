/* The emulator's conversions are its own code: against core's, for every value that matters. NaN becomes the GPU's canonical one. */
#include "emu_test.h"

namespace LSG_NS {

/* Every 16-bit upper half, with lower halves around each rounding decision. */
template <typename F>
static void for_many_floats(F check) {
  for (uint32_t high = 0; high < 0x10000; high++)
    for (uint32_t low : {0x0000u, 0x0001u, 0x0FFFu, 0x1000u, 0x1001u, 0x2FFFu, 0x3000u, 0x3001u, 0x7FFFu, 0x8000u, 0x8001u, 0xFFFFu})
      check(lsg_from_bits(high << 16 | low));
}

Test(emu_numeric, bf16_and_f16_agree_with_core_both_ways) {
  for (uint32_t h = 0; h < 0x10000; h++) {
    float a = lsg_bf16_to_f32((uint16_t)h), b = lsg_f16_to_f32((uint16_t)h), c = ls_f16_to_f32((uint16_t)h);
    cr_assert(lsg_bits(a) == h << 16, "bf16 %04x", h);
    cr_assert(b != b ? c != c : lsg_bits(b) == lsg_bits(c), "f16 %04x: %g, %g", h, (double)b, (double)c);
    if (b == b) cr_assert(lsg_f32_to_f16(b) == h, "f16 %04x does not come back", h);
    if (a == a) cr_assert(lsg_f32_to_bf16(a) == h, "bf16 %04x does not come back", h);
  }
  for_many_floats([](float v) {
    uint16_t bf16 = lsg_f32_to_bf16(v), f16 = lsg_f32_to_f16(v);
    if (v != v) {
      cr_assert(bf16 == 0x7FFF && f16 == 0x7FFF, "NaN: %04x %04x", bf16, f16);
      return;
    }
    cr_assert(bf16 == ls_f32_to_bf16(v), "bf16 of %a: %04x, core %04x", (double)v, bf16, ls_f32_to_bf16(v));
    cr_assert(f16 == ls_f32_to_f16(v), "f16 of %a: %04x, core %04x", (double)v, f16, ls_f32_to_f16(v));
  });
  cr_assert(lsg_pack_bf16(1.0f, -2.0f) == 0xC0003F80u && lsg_pack_f16(1.0f, -2.0f) == 0xC0003C00u, "%s", "packing");
}

Test(emu_numeric, e4m3_agrees_with_core_both_ways) {
  for (uint32_t code = 0; code < 256; code++) {
    float a = lsg_e4m3_to_f32((uint8_t)code), b = ls_e4m3_to_f32((uint8_t)code);
    cr_assert(a != a ? b != b : lsg_bits(a) == lsg_bits(b), "code %02x: %g, %g", code, (double)a, (double)b);
    if (a == a) cr_assert(lsg_f32_to_e4m3(a) == code, "code %02x does not come back", code);
  }
  for_many_floats([](float v) {
    uint8_t code = lsg_f32_to_e4m3(v);
    if (v != v)
      cr_assert(code == 0x7F, "NaN: %02x", code);
    else
      cr_assert(code == ls_f32_to_e4m3(v), "%a: %02x, core %02x", (double)v, code, ls_f32_to_e4m3(v));
  });
}

Test(emu_numeric, max_and_min_hand_on_a_nan_and_order_the_zeros) {
  const float nan = lsg_from_bits(0x7FC00001u);
  for (float other : {0.0f, 3.0f, -INFINITY, nan}) {
    cr_assert(lsg_bits(lsg_fmax_nan(nan, other)) == 0x7FFFFFFFu && lsg_bits(lsg_fmax_nan(other, nan)) == 0x7FFFFFFFu, "max %g",
              (double)other);
    cr_assert(lsg_bits(lsg_fmin_nan(nan, other)) == 0x7FFFFFFFu && lsg_bits(lsg_fmin_nan(other, nan)) == 0x7FFFFFFFu, "min %g",
              (double)other);
  }
  cr_assert(lsg_fmax_nan(1, 2) == 2 && lsg_fmin_nan(1, 2) == 1 && lsg_fmax_nan(-1, -INFINITY) == -1, "%s", "order");
  cr_assert(lsg_bits(lsg_fmax_nan(-0.0f, 0.0f)) == 0 && lsg_bits(lsg_fmax_nan(0.0f, -0.0f)) == 0, "%s", "max of zeros");
  cr_assert(lsg_bits(lsg_fmin_nan(-0.0f, 0.0f)) == 0x80000000u && lsg_bits(lsg_fmin_nan(0.0f, -0.0f)) == 0x80000000u, "%s", "min of zeros");
  cr_assert(lsg_isfinite(1e38f) && !lsg_isfinite(INFINITY) && !lsg_isfinite(nan), "%s", "finite");
}

/* Any bits; factors whose product ends half way between two floats, with something far below it on either side; and sums that cancel, or
 * fall among the subnormals. */
Test(emu_numeric, fma_has_the_bits_of_fmaf) {
  ls_random draw = {3, 0};
  auto check = [](float a, float b, float c) {
    const float got = lsg_fma(a, b, c), want = fmaf(a, b, c);
    cr_assert(got != got ? want != want : lsg_bits(got) == lsg_bits(want), "fma(%a, %a, %a): %a, fmaf %a", (double)a, (double)b, (double)c,
              (double)got, (double)want);
  };
  for (int i = 0; i < 300000; i++) {
    const uint64_t r = ls_random_u64(&draw), s = ls_random_u64(&draw);
    const float a = lsg_from_bits((uint32_t)r), b = lsg_from_bits((uint32_t)(r >> 32)), c = lsg_from_bits((uint32_t)s);
    check(a, b, c);
    check(a, b, -(a * b));                                                                 /* what the product was rounded by */
    const float odd = lsg_from_bits(0x3F800000u | ((uint32_t)(s >> 32) & 0xFFFFFFu) | 1u); /* 24 bits times 3: often half way */
    const float tiny = ldexpf(1.0f + (float)(s & 7), -40 - (int)(s >> 8 & 63));
    for (float third : {tiny, -tiny, 0.0f}) check(odd, 3.0f, third);
    check(ldexpf(odd, -100), ldexpf(odd, -20 - (int)(s & 31)), ldexpf(tiny, -100)); /* among the subnormals */
  }
  for (float a : {0.0f, -0.0f, 1.0f, INFINITY})
    for (float b : {0.0f, -0.0f, -1.0f, INFINITY})
      for (float c : {0.0f, -0.0f, 1.0f, -INFINITY}) check(a, b, c);
}

Test(emu_numeric, sine_and_cosine_of_large_angles_are_within_two_steps) {
  for (int i = 0; i < 20000; i++) {
    float angle = (float)ls_generated_at(5, (uint64_t)i, i % 2 != 0 ? 2e9 : 10, 0), s, c;
    lsg_sincos(angle, &s, &c);
    cr_assert(ls_steps_between(LS_F32, s, sin((double)angle)) <= 2 && ls_steps_between(LS_F32, c, cos((double)angle)) <= 2, "angle %a",
              (double)angle);
  }
}

}  // namespace LSG_NS
