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

/* ---- YaRN ---- */

/* Constants from the formula with each float32 operation rounded by hand (Python). low 15, high 25. */
Test(ref_rope, stretched_frequencies_of_the_published_shape_have_the_bits_of_the_contract) {
  static const uint32_t expected[32] = {0x3f800000, 0x3f300a3a, 0x3ef21c1f, 0x3ea67d01, 0x3e64f92e, 0x3e1d7475, 0x3dd88cb4, 0x3d94e963,
                                        0x3d4ccccd, 0x3d0cd4fb, 0x3cc1b019, 0x3c8530ce, 0x3c372dbf, 0x3bfbed88, 0x3bad3d5e, 0x3b6e4237,
                                        0x3b147ae1, 0x3ab714e0, 0x3a5ebdb6, 0x3a0530ce, 0x399bb3af, 0x39305978, 0x38be904d, 0x383e9b5f,
                                        0x37a3d70c, 0x36b443d0, 0x3677eba6, 0x362a7be8, 0x35ea77ff, 0x35a13bdc, 0x355dbf30, 0x35187c4d};
  const ls_ref_yarn yarn = {.original_seq_len = 65536, .beta_fast = 32, .beta_slow = 1, .factor = 16};
  float freq[32];
  ls_ref_rope_freq(freq, 64, 1.6e5);
  ls_ref_rope_yarn(freq, 64, 1.6e5, &yarn);
  for (int i = 0; i < 32; i++) cr_assert_eq(ls_f32_bits(freq[i]), expected[i], "freq[%d]", i);
}

/* The same in double, the ramp from wavelengths: a pair turns original / wavelength times in the original context. */
Test(ref_rope, stretched_frequencies_agree_with_a_computation_in_double) {
  static const struct {
    int64_t dim, original, fast, slow;
    double theta, factor;
  } shapes[] = {{64, 65536, 32, 1, 1.6e5, 16},
                {32, 4096, 32, 1, 1e4, 40},
                {128, 32768, 8, 2, 1e6, 4},
                {8, 64, 32, 1, 1e4, 2},
                {64, 100, 64, 32, 1e4, 3} /* low and high both below 0 */,
                {16, 1000, 67, 2, 10, 8} /* high beyond dim */,
                {16, 1000, 67, 8, 10, 8} /* and beyond the last pair */,
                {16, 1 << 20, 4, 1, 10, 8} /* low too */};
  for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
    const int64_t dim = shapes[k].dim;
    const ls_ref_yarn yarn = {shapes[k].original, shapes[k].fast, shapes[k].slow, shapes[k].factor};
    float freq[64], plain[64];
    ls_ref_rope_freq(freq, dim, shapes[k].theta);
    ls_ref_rope_freq(plain, dim, shapes[k].theta);
    ls_ref_rope_yarn(freq, dim, shapes[k].theta, &yarn);
    /* where theta^(2 i / dim) * 2 pi * r = original, i counted on, not rounded */
    const double per_pair = 2 * log(shapes[k].theta) / (double)dim, turn = 2 * acos(-1.0);
    double low = floor(log((double)shapes[k].original / turn / (double)shapes[k].fast) / per_pair);
    double high = ceil(log((double)shapes[k].original / turn / (double)shapes[k].slow) / per_pair);
    if (low < 0) low = 0;
    if (high > (double)(dim - 1)) high = (double)(dim - 1);
    const double length = high - low < 0.001 ? 0.001 : high - low;
    for (int64_t i = 0; i < dim / 2; i++) {
      const double at = ((double)i - low) / length, ramp = at < 0 ? 0 : at > 1 ? 1 : at;
      const double expected = (double)plain[i] * (ramp / shapes[k].factor + 1 - ramp);
      /* the ramp is near 1 in the worst case: 1 - s loses half a step of 1, against a result of freq / factor */
      cr_assert(fabs(freq[i] - expected) <= 2 * shapes[k].factor * 0x1p-24 * expected, "shape %d, freq[%d]: %g %g", (int)k, (int)i, freq[i],
                expected);
      if ((double)i <= low && high > low) cr_assert_eq(freq[i], plain[i], "fast pairs are left alone");
      if ((double)i >= high && (double)i > low) cr_assert_eq(freq[i], plain[i] / (float)shapes[k].factor, "slow pairs are divided");
    }
  }
}

Test(ref_rope, no_original_length_no_stretching) {
  const ls_ref_yarn yarn = {.original_seq_len = 0, .beta_fast = 32, .beta_slow = 1, .factor = 16};
  float freq[32], plain[32];
  ls_ref_rope_freq(freq, 64, 1.6e5);
  ls_ref_rope_freq(plain, 64, 1.6e5);
  ls_ref_rope_yarn(freq, 64, 1.6e5, &yarn);
  cr_assert_eq(memcmp(freq, plain, sizeof freq), 0);
}

/* ---- adjacent pairs ---- */

Test(ref_rope, strided_table_has_the_rows_of_the_plain_one) {
  enum { ROWS = 5, HALF = 4 };
  for (int64_t stride = 1; stride <= 3; stride++) {
    float freq[HALF], c[ROWS * HALF], s[ROWS * HALF], c1[HALF], s1[HALF];
    double c64[ROWS * HALF], s64[ROWS * HALF];
    const int64_t dim[] = {ROWS, HALF}, one[] = {1, HALF};
    const ls_tensor cosine = ls_tensor_make(LS_F32, 2, dim, c), sine = ls_tensor_make(LS_F32, 2, dim, s);
    const ls_tensor cosine64 = ls_tensor_make(LS_F64, 2, dim, c64), sine64 = ls_tensor_make(LS_F64, 2, dim, s64);
    const ls_tensor cosine1 = ls_tensor_make(LS_F32, 2, one, c1), sine1 = ls_tensor_make(LS_F32, 2, one, s1);
    ls_ref_rope_freq(freq, 2 * HALF, 1e4);
    ls_ref_rope_table_strided(&cosine, &sine, freq, 999998, stride);
    ls_ref_rope_table_strided(&cosine64, &sine64, freq, 999998, stride);
    for (int64_t row = 0; row < ROWS; row++) {
      ls_ref_rope_table(&cosine1, &sine1, freq, 999998 + stride * row);
      cr_assert_eq(memcmp(c + row * HALF, c1, sizeof c1), 0);
      cr_assert_eq(memcmp(s + row * HALF, s1, sizeof s1), 0);
      for (int i = 0; i < HALF; i++) {
        const double angle = (double)((float)(999998 + stride * row) * freq[i]);
        cr_assert(fabs(c64[row * HALF + i] - cos(angle)) < 1e-15 && fabs(s64[row * HALF + i] - sin(angle)) < 1e-15);
      }
    }
  }
}

/* One row of float32 in place, rotated tail of 2 * half. */
static void turn_pairs(float *x, int64_t columns, int64_t width, float *c, float *s, int64_t half, bool inverse) {
  float wide[64];
  const ls_tensor row = ls_tensor_make(LS_F32, 2, (int64_t[]){1, columns}, x);
  const ls_tensor cosine = ls_tensor_make(LS_F32, 2, (int64_t[]){1, half}, c), sine = ls_tensor_make(LS_F32, 2, (int64_t[]){1, half}, s);
  ls_ref_rope_pairs(&row, &row, &cosine, &sine, width, inverse, wide);
}

Test(ref_rope, quarter_turn_of_pairs_swaps_neighbours_in_each_heads_tail_alone) {
  float zero[] = {0, 0}, one[] = {1, 1}, x[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}, back[12];
  memcpy(back, x, sizeof x);
  turn_pairs(x, 12, 6, zero, one, 2, false); /* two heads of 6, tails of 4: (a, b) -> (-b, a) */
  const float expected[] = {1, 2, -4, 3, -6, 5, 7, 8, -10, 9, -12, 11};
  cr_assert_eq(memcmp(x, expected, sizeof x), 0);
  turn_pairs(x, 12, 6, zero, one, 2, true);
  for (int i = 0; i < 12; i++) cr_assert_eq(x[i], back[i]);
  float inverse[] = {1, 2};
  turn_pairs(inverse, 2, 2, zero, one, 1, true); /* (a, b) -> (b, -a) */
  cr_assert(inverse[0] == 2 && inverse[1] == -1);
}

Test(ref_rope, each_adjacent_pair_turns_by_its_own_angle) {
  float x[] = {3, 4, 1, 10}, c[] = {0.6f, 1}, s[] = {0.8f, 0};
  turn_pairs(x, 4, 4, c, s, 2, false);
  cr_assert_float_eq(x[0], 3 * 0.6f - 4 * 0.8f, 1e-6);
  cr_assert_float_eq(x[1], 4 * 0.6f + 3 * 0.8f, 1e-6);
  cr_assert(x[2] == 1 && x[3] == 10);
}

Test(ref_rope, pairs_turn_by_the_rows_position_and_round_once) {
  enum { ROWS = 4, HEADS = 3, WIDTH = 10, DIM = 6 };
  for (int act = LS_BF16; act <= LS_F16; act++) {
    for (int inverse = 0; inverse < 2; inverse++) {
      uint16_t in[ROWS * HEADS * WIDTH], out[ROWS * HEADS * WIDTH];
      float freq[DIM / 2], c[ROWS * DIM / 2], s[ROWS * DIM / 2], wide[HEADS * WIDTH];
      const int64_t dim[] = {ROWS, HEADS * WIDTH}, half[] = {ROWS, DIM / 2};
      const ls_tensor x = ls_tensor_make((ls_dtype)act, 2, dim, in), y = ls_tensor_make((ls_dtype)act, 2, dim, out);
      const ls_tensor cosine = ls_tensor_make(LS_F32, 2, half, c), sine = ls_tensor_make(LS_F32, 2, half, s);
      for (int64_t i = 0; i < ROWS * HEADS * WIDTH; i++) ls_tensor_set(&x, i, ls_generated_at(1, (uint64_t)i, 2.0, 0.5));
      ls_ref_rope_freq(freq, DIM, 1e4);
      ls_ref_rope_table_strided(&cosine, &sine, freq, 70000, 2);
      ls_ref_rope_pairs(&y, &x, &cosine, &sine, WIDTH, inverse != 0, wide);
      for (int row = 0; row < ROWS; row++) {
        for (int head = 0; head < HEADS; head++) {
          const int64_t at = (row * HEADS + head) * WIDTH;
          for (int i = 0; i < WIDTH - DIM; i++) cr_assert_eq(out[at + i], in[at + i], "what is not turned is copied");
          for (int i = 0; i < DIM / 2; i++) {
            const int64_t pair = at + WIDTH - DIM + 2 * i;
            const float angle = (float)(70000 + 2 * row) * freq[i], turn = inverse ? -sinf(angle) : sinf(angle);
            const float a = (float)ls_tensor_get(&x, pair), b = (float)ls_tensor_get(&x, pair + 1);
            const float first = a * cosf(angle) - b * turn, second = b * cosf(angle) + a * turn;
            cr_assert_eq(out[pair], act == LS_BF16 ? ls_f32_to_bf16(first) : ls_f32_to_f16(first));
            cr_assert_eq(out[pair + 1], act == LS_BF16 ? ls_f32_to_bf16(second) : ls_f32_to_f16(second));
          }
        }
      }
      ls_ref_rope_pairs(&x, &x, &cosine, &sine, WIDTH, inverse != 0, wide);
      cr_assert_eq(memcmp(in, out, sizeof in), 0);
    }
  }
}

Test(ref_rope, inverse_undoes_the_turn) {
  enum { ROWS = 3, COLUMNS = 24, WIDTH = 12, HALF = 4 };
  double start[ROWS * COLUMNS], x[ROWS * COLUMNS], c[ROWS * HALF], s[ROWS * HALF], wide[COLUMNS];
  float freq[HALF], x32[ROWS * COLUMNS], c32[ROWS * HALF], s32[ROWS * HALF], wide32[COLUMNS];
  const int64_t dim[] = {ROWS, COLUMNS}, half[] = {ROWS, HALF};
  const ls_tensor v = ls_tensor_make(LS_F64, 2, dim, x), cosine = ls_tensor_make(LS_F64, 2, half, c);
  const ls_tensor sine = ls_tensor_make(LS_F64, 2, half, s), v32 = ls_tensor_make(LS_F32, 2, dim, x32);
  const ls_tensor cosine32 = ls_tensor_make(LS_F32, 2, half, c32), sine32 = ls_tensor_make(LS_F32, 2, half, s32);
  for (int i = 0; i < ROWS * COLUMNS; i++) start[i] = x[i] = x32[i] = (float)ls_generated_at(3, (uint64_t)i, 2, 0.3);
  ls_ref_rope_freq(freq, 2 * HALF, 1.6e5);
  ls_ref_rope_table(&cosine, &sine, freq, 123456);
  ls_ref_rope_table(&cosine32, &sine32, freq, 123456);
  ls_ref_rope_pairs(&v, &v, &cosine, &sine, WIDTH, false, wide);
  ls_ref_rope_pairs(&v32, &v32, &cosine32, &sine32, WIDTH, false, wide32);
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    if (i % WIDTH >= WIDTH - 2 * HALF) cr_assert_neq(x[i], start[i]);
  }
  ls_ref_rope_pairs(&v, &v, &cosine, &sine, WIDTH, true, wide);
  ls_ref_rope_pairs(&v32, &v32, &cosine32, &sine32, WIDTH, true, wide32);
  for (int i = 0; i < ROWS * COLUMNS; i++) {
    cr_assert(fabs(x[i] - start[i]) <= 2.3 * 2 * 6 * 0x1p-53, "element %d", i);   /* |pair| <= 2.3 sqrt 2, six roundings */
    cr_assert(fabs(x32[i] - start[i]) <= 2.3 * 2 * 8 * 0x1p-24, "element %d", i); /* and a table off by an ulp */
  }
}

Test(ref_rope, nan_stays_in_its_pair) {
  float x[] = {1, NAN, 3, 4}, c[] = {0.6f, 0.6f}, s[] = {0.8f, 0.8f};
  turn_pairs(x, 4, 4, c, s, 2, false);
  cr_assert(isnan(x[0]) && isnan(x[1]) && !isnan(x[2]) && !isnan(x[3]));
}
