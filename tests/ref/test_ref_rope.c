#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "core/ls_numeric.h"
#include "core/ls_random.h"
#include "ref/ref_rope.h"

/* Constants from a float32 power in double, rounded, then a float32 reciprocal (numpy). */
Test(ref_rope, frequencies_have_the_bits_of_the_contract) {
  static const struct {
    int i;
    uint32_t bits;
  } expected[] = {{0, 0x3f800000},  {1, 0x3f470165},  {2, 0x3f1ab32b},  {5, 0x3e9157e1}, {17, 0x3c627ce5},
                  {31, 0x39d54706}, {32, 0x39a5cb60}, {47, 0x36f2bb16}, {63, 0x340a2036}};
  float freq[64];
  ls_ref_rope_freq(freq, 128, 1e7);
  for (size_t k = 0; k < sizeof expected / sizeof expected[0]; k++) {
    cr_assert_eq(ls_f32_bits(freq[expected[k].i]), expected[k].bits, "freq[%d]", expected[k].i);
  }
  static const uint32_t powers_of_ten[] = {0x3f800000, 0x3dcccccd, 0x3c23d70a, 0x3a83126f, 0x38d1b717, 0x3727c5ac, 0x358637bd, 0x33d6bf95};
  ls_ref_rope_freq(freq, 16, 1e8);
  for (int i = 0; i < 8; i++) cr_assert_eq(ls_f32_bits(freq[i]), powers_of_ten[i], "freq[%d]", i);
}

Test(ref_rope, frequencies_are_not_the_other_common_reading) {
  float freq[64];
  int differ = 0;
  ls_ref_rope_freq(freq, 128, 1e7);
  for (int i = 0; i < 64; i++) {
    const float one_rounding = (float)pow(1e7, -(double)((float)(2 * i) / 128.0f));
    differ += freq[i] != one_rounding;
    cr_assert_leq(ls_steps_between(LS_F32, freq[i], one_rounding), 1);
  }
  cr_assert_eq(differ, 18);
}

Test(ref_rope, angles_have_the_bits_of_one_float32_product) {
  static const struct {
    int64_t position;
    int i;
    uint32_t bits;
  } expected[] = {{1000000, 0, 0x49742400},  {1000000, 1, 0x493dc950},  {1000000, 5, 0x488a9c33},  {1000000, 63, 0x3e03ba20},
                  {16777217, 0, 0x4b800000}, {16777217, 1, 0x4b470165}, {16777217, 5, 0x4a9157e1}, {16777217, 63, 0x400a2036},
                  {16777219, 0, 0x4b800002}, {16777219, 1, 0x4b470168}, {16777219, 5, 0x4a9157e3}, {16777219, 63, 0x400a2038},
                  {10000000, 0, 0x4b189680}, {10000000, 1, 0x4aed3ba5}, {10000000, 5, 0x4a2d4340}, {10000000, 63, 0x3fa4a8a8}};
  float freq[64];
  ls_ref_rope_freq(freq, 128, 1e7);
  for (size_t k = 0; k < sizeof expected / sizeof expected[0]; k++) {
    const float angle = ls_ref_rope_angle(expected[k].position, freq[expected[k].i]);
    cr_assert_eq(ls_f32_bits(angle), expected[k].bits, "position %lld, i %d", (long long)expected[k].position, expected[k].i);
  }
}

Test(ref_rope, positions_above_2_to_24_share_an_angle_nearest_even) {
  for (int i = 0; i < 3; i++) {
    const float freq = i == 0 ? 1.0f : i == 1 ? 0.777365f : 1e-7f;
    cr_assert_eq(ls_ref_rope_angle(16777217, freq), ls_ref_rope_angle(16777216, freq));
    cr_assert_eq(ls_ref_rope_angle(16777219, freq), ls_ref_rope_angle(16777220, freq));
    cr_assert_neq(ls_ref_rope_angle(16777218, freq), ls_ref_rope_angle(16777216, freq));
  }
  cr_assert_eq(ls_ref_rope_angle(2147483647, 1.0f), 2147483648.0f);
}

Test(ref_rope, known_sines_and_cosines_of_far_angles_come_out) {
  static const struct {
    int64_t position;
    int i;
    double cosine, sine;
  } expected[] = {{1000000, 0, 0.9367521275331447, -0.34999350217129294}, {1000000, 1, -0.9938477921564902, 0.11075453049726618},
                  {16777217, 0, 0.6263229832915329, -0.7795636732177778}, {16777219, 1, -0.8525642101694288, -0.5226224904634108},
                  {10000000, 5, 0.6685058393828258, -0.74370689301032},   {10000000, 63, 0.28058097648970926, 0.9598303577362415}};
  float freq[64], c[64], s[64];
  double c64[64], s64[64];
  const int64_t dim[] = {1, 64};
  ls_ref_rope_freq(freq, 128, 1e7);
  for (size_t k = 0; k < sizeof expected / sizeof expected[0]; k++) {
    const ls_tensor cosine = ls_tensor_make(LS_F32, 2, dim, c), sine = ls_tensor_make(LS_F32, 2, dim, s);
    const ls_tensor cosine64 = ls_tensor_make(LS_F64, 2, dim, c64), sine64 = ls_tensor_make(LS_F64, 2, dim, s64);
    ls_ref_rope_table(&cosine, &sine, freq, expected[k].position);
    ls_ref_rope_table(&cosine64, &sine64, freq, expected[k].position);
    const int i = expected[k].i;
    cr_assert_leq(ls_steps_between(LS_F32, c[i], expected[k].cosine), 1);
    cr_assert_leq(ls_steps_between(LS_F32, s[i], expected[k].sine), 1);
    cr_assert(fabs(c64[i] - expected[k].cosine) < 1e-15 && fabs(s64[i] - expected[k].sine) < 1e-15); /* of the float32 angle */
  }
}

Test(ref_rope, table_is_within_2_ulp_at_every_position_range) {
  enum { ROWS = 300 };
  static float c[ROWS * 64], s[ROWS * 64];
  static const int64_t bases[] = {0, 2171, 999900, 9999900, 16777100, 2147483348};
  const ls_tensor cosine = ls_tensor_make(LS_F32, 2, (int64_t[]){ROWS, 64}, c), sine = ls_tensor_make(LS_F32, 2, (int64_t[]){ROWS, 64}, s);
  float freq[64];
  ls_ref_rope_freq(freq, 128, 1e7);
  for (size_t b = 0; b < sizeof bases / sizeof bases[0]; b++) {
    ls_ref_rope_table(&cosine, &sine, freq, bases[b]);
    for (int64_t row = 0; row < ROWS; row++) {
      for (int i = 0; i < 64; i++) {
        const long double angle = ls_ref_rope_angle(bases[b] + row, freq[i]);
        cr_assert_leq(ls_steps_between(LS_F32, c[row * 64 + i], (double)cosl(angle)), 2);
        cr_assert_leq(ls_steps_between(LS_F32, s[row * 64 + i], (double)sinl(angle)), 2);
      }
    }
  }
}

Test(ref_rope, quarter_turn_moves_the_first_half_to_the_second) {
  float x[] = {1, 2, 3, 4, 5, 6};
  const float zero[] = {0, 0, 0}, one[] = {1, 1, 1};
  ls_ref_rope_neox_f32(x, one, zero, 6); /* no turn */
  cr_assert(x[0] == 1 && x[1] == 2 && x[2] == 3 && x[3] == 4 && x[4] == 5 && x[5] == 6);
  ls_ref_rope_neox_f32(x, zero, one, 6); /* (a, b) -> (-b, a), pairs are (i, i + 3) and not neighbours */
  cr_assert(x[0] == -4 && x[1] == -5 && x[2] == -6 && x[3] == 1 && x[4] == 2 && x[5] == 3);
  double y[] = {1, 2, 3, 4};
  const double zero64[] = {0, 0}, one64[] = {1, 1};
  ls_ref_rope_neox_f64(y, zero64, one64, 4);
  cr_assert(y[0] == -3 && y[1] == -4 && y[2] == 1 && y[3] == 2);
}

Test(ref_rope, each_pair_turns_by_its_own_angle) {
  float x[] = {3, 0, 4, 10};
  const float c[] = {0.6f, 1}, s[] = {0.8f, 0};
  ls_ref_rope_neox_f32(x, c, s, 4);
  cr_assert_float_eq(x[0], 3 * 0.6f - 4 * 0.8f, 1e-6);
  cr_assert_float_eq(x[2], 4 * 0.6f + 3 * 0.8f, 1e-6);
  cr_assert(x[1] == 0 && x[3] == 10);
}

Test(ref_rope, each_row_turns_by_its_own_position_in_every_head_and_rounds_once) {
  enum { ROWS = 4, HEADS = 3, DIM = 8 };
  const int64_t base = 999998;
  for (int act = LS_BF16; act <= LS_F16; act++) {
    uint16_t in[ROWS * HEADS * DIM], out[ROWS * HEADS * DIM];
    float freq[DIM / 2], c[ROWS * DIM / 2], s[ROWS * DIM / 2], wide[HEADS * DIM];
    const int64_t dim[] = {ROWS, HEADS * DIM}, half[] = {ROWS, DIM / 2};
    const ls_tensor x = ls_tensor_make((ls_dtype)act, 2, dim, in), y = ls_tensor_make((ls_dtype)act, 2, dim, out);
    const ls_tensor cosine = ls_tensor_make(LS_F32, 2, half, c), sine = ls_tensor_make(LS_F32, 2, half, s);
    for (int64_t i = 0; i < ROWS * HEADS * DIM; i++) ls_tensor_set(&x, i, ls_generated_at(1, (uint64_t)i, 2.0, 0.5));
    ls_ref_rope_freq(freq, DIM, 1e4);
    ls_ref_rope_table(&cosine, &sine, freq, base);
    ls_ref_rope_neox(&y, &x, &cosine, &sine, wide);
    for (int row = 0; row < ROWS; row++) {
      for (int head = 0; head < HEADS; head++) {
        for (int i = 0; i < DIM / 2; i++) {
          const int64_t at = (row * HEADS + head) * DIM + i;
          const float angle = (float)(base + row) * freq[i], a = (float)ls_tensor_get(&x, at), b = (float)ls_tensor_get(&x, at + DIM / 2);
          const float first = a * cosf(angle) - b * sinf(angle), second = b * cosf(angle) + a * sinf(angle);
          cr_assert_eq(out[at], act == LS_BF16 ? ls_f32_to_bf16(first) : ls_f32_to_f16(first));
          cr_assert_eq(out[at + DIM / 2], act == LS_BF16 ? ls_f32_to_bf16(second) : ls_f32_to_f16(second));
        }
      }
    }
    ls_ref_rope_neox(&x, &x, &cosine, &sine, wide);
    cr_assert_eq(memcmp(in, out, sizeof in), 0);
  }
}
