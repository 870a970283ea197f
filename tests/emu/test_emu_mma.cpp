/* The tensor core's product and ldmatrix, by the definitions of the PTX ISA. */
#include "emu_test.h"

namespace LSG_NS {

/* One warp: fragments straight from memory by the ISA's table, `rounds` products on top of c. */
template <int type>
LSG_KERNEL(32)
void mma_kernel(float *d, const uint16_t *a, const uint16_t *b, const float *c, int rounds) {
  int g = lsg_lane() / 4, t = lsg_lane() % 4;
  auto pair = [](uint16_t lo, uint16_t hi) { return (uint32_t)lo | (uint32_t)hi << 16; };
  auto a_at = [&](int m, int k) { return pair(a[m * 16 + k], a[m * 16 + k + 1]); };
  auto b_at = [&](int k, int n) { return pair(b[k * 8 + n], b[(k + 1) * 8 + n]); };
  uint32_t fa[4] = {a_at(g, 2 * t), a_at(g + 8, 2 * t), a_at(g, 2 * t + 8), a_at(g + 8, 2 * t + 8)};
  uint32_t fb[2] = {b_at(2 * t, g), b_at(2 * t + 8, g)};
  float fd[4] = {c[g * 8 + 2 * t], c[g * 8 + 2 * t + 1], c[(g + 8) * 8 + 2 * t], c[(g + 8) * 8 + 2 * t + 1]};
  for (int i = 0; i < rounds; i++) lsg_act<type>::mma(fd, fa, fb);
  d[g * 8 + 2 * t] = fd[0];
  d[g * 8 + 2 * t + 1] = fd[1];
  d[(g + 8) * 8 + 2 * t] = fd[2];
  d[(g + 8) * 8 + 2 * t + 1] = fd[3];
}

template <int type>
static uint16_t narrow(double v) {
  return type == LSG_BF16 ? ls_f64_to_bf16(v) : ls_f64_to_f16(v);
}
template <int type>
static double wide(uint16_t h) {
  return type == LSG_BF16 ? (double)ls_bf16_to_f32(h) : (double)ls_f16_to_f32(h);
}

template <int type>
static void check_mma(bool integers, uint64_t order_seed) {
  test_stream s;
  test_schedule order(order_seed);
  std::vector<uint16_t> a(256), b(128);
  std::vector<float> c(128);
  for (int round = 0; round < 6; round++) {
    uint64_t seed = (uint64_t)round * 3 + 100;
    double scale = integers ? 8 : round == 5 ? 1e-4 : 2; /* round 5: f16 subnormals too */
    auto value = [&](uint64_t which, size_t i) {
      double v = ls_generated_at(seed + which, i, scale, 0);
      return integers ? nearbyint(v) : v;
    };
    for (size_t i = 0; i < 256; i++) a[i] = narrow<type>(value(0, i));
    for (size_t i = 0; i < 128; i++) b[i] = narrow<type>(value(1, i));
    for (size_t i = 0; i < 128; i++) c[i] = (float)value(2, i);
    test_buffer<uint16_t> da(s, a, "a"), db(s, b, "b");
    test_buffer<float> dc(s, c, "c"), dd(s, 128, "d");
    EXPECT_OK(LSG_LAUNCH(mma_kernel<type>, lsg_grid(1), 32, 0, s, dd.p, da.p, db.p, dc.p, 1));
    EXPECT_OK(lsg_sync(s));
    std::vector<float> d = dd.get();
    for (size_t m = 0; m < 16; m++)
      for (size_t n = 0; n < 8; n++) {
        double sum = c[m * 8 + n], size = fabs(sum);
        for (size_t k = 0; k < 16; k++) {
          double p = wide<type>(a[m * 16 + k]) * wide<type>(b[k * 8 + n]);
          sum += p;
          size += fabs(p);
        }
        double bound = integers ? 0 : 17 * 0x1p-24 * size; /* 16 additions */
        cr_assert(fabs(d[m * 8 + n] - sum) <= bound, "type %d round %d (%d, %d): %.9g, expected %.9g", type, round, (int)m, (int)n,
                  (double)d[m * 8 + n], sum);
      }
  }
}

Test(emu_mma, bf16_product_of_integers_is_exact) { check_mma<LSG_BF16>(true, 0); }
Test(emu_mma, f16_product_of_integers_is_exact) { check_mma<LSG_F16>(true, 4); }
Test(emu_mma, bf16_product_of_random_values_is_within_rounding) { check_mma<LSG_BF16>(false, 4); }
Test(emu_mma, f16_product_of_random_values_is_within_rounding) { check_mma<LSG_F16>(false, 0); }

template <int type>
static void check_non_finite() {
  test_stream s;
  std::vector<uint16_t> a(256, narrow<type>(1)), b(128, narrow<type>(1));
  std::vector<float> c(128, 0.0f);
  a[3 * 16 + 5] = narrow<type>((double)NAN);
  a[9 * 16 + 2] = narrow<type>((double)INFINITY);
  b[15 * 8 + 6] = narrow<type>(-(double)INFINITY);
  test_buffer<uint16_t> da(s, a, "a"), db(s, b, "b");
  test_buffer<float> dc(s, c, "c"), dd(s, 128, "d");
  EXPECT_OK(LSG_LAUNCH(mma_kernel<type>, lsg_grid(1), 32, 0, s, dd.p, da.p, db.p, dc.p, 1));
  EXPECT_OK(lsg_sync(s));
  std::vector<float> d = dd.get();
  for (size_t m = 0; m < 16; m++)
    for (size_t n = 0; n < 8; n++) {
      float v = d[m * 8 + n];
      bool nan = m == 3 || (m == 9 && n == 6), up = m == 9 && n != 6, down = m != 9 && n == 6;
      cr_assert(nan ? v != v : up ? v == INFINITY : down ? v == -INFINITY : v == 16, "(%d, %d): %g", (int)m, (int)n, (double)v);
    }
}
Test(emu_mma, nan_and_infinity_go_through_the_product) {
  check_non_finite<LSG_BF16>();
  check_non_finite<LSG_F16>();
}

Test(emu_mma, products_in_a_row_accumulate) {
  test_stream s;
  std::vector<uint16_t> a(256, 0x3F80), b(128, 0x3F80);
  std::vector<float> c(128, 5.0f);
  test_buffer<uint16_t> da(s, a, "a"), db(s, b, "b");
  test_buffer<float> dc(s, c, "c"), dd(s, 128, "d");
  EXPECT_OK(LSG_LAUNCH(mma_kernel<LSG_BF16>, lsg_grid(1), 32, 0, s, dd.p, da.p, db.p, dc.p, 1000));
  EXPECT_OK(lsg_sync(s));
  for (float v : dd.get()) cr_assert(v == 16005, "%g", (double)v);
}

LSG_KERNEL(32) void half_a_warp_mma_kernel(float *d) {
  uint32_t a[4] = {0, 0, 0, 0}, b[2] = {0, 0};
  float sum[4] = {0, 0, 0, 0};
  if (lsg_lane() < 16) lsg_mma_bf16(sum, a, b);
  d[lsg_lane()] = sum[0];
}

Test(emu_mma, a_product_that_half_the_warp_calls_is_reported) {
  test_stream s;
  test_buffer<float> d(s, 32, "d");
  EXPECT_OK(LSG_LAUNCH(half_a_warp_mma_kernel, lsg_grid(1), 32, 0, s, d.p));
  EXPECT_FAILS(lsg_sync(s), "half_a_warp_mma_kernel", "lsg_mma_bf16 (test_emu_mma.cpp:", "thread 16: has returned");
}

/* ---- ldmatrix ---- */

/* Rows of 8 halves, 20 apart from another (40 bytes would break the alignment: 48 bytes), each lane giving its row's address. */
template <bool x4, bool trans>
LSG_KERNEL(32)
void ldmatrix_kernel(uint32_t *y, const uint16_t *x) {
  LSG_SHARED(uint16_t, rows, 32 * 24);
  for (int i = lsg_lane(); i < 32 * 24; i += 32) rows[i] = x[i];
  lsg_warp_sync(LSG_FULL_MASK);
  uint32_t r[4] = {0, 0, 0, 0};
  const uint16_t *row = rows + 24 * lsg_lane() + 8;
  if (x4 && trans) lsg_ldmatrix_x4_trans(r, row);
  if (x4 && !trans) lsg_ldmatrix_x4(r, row);
  if (!x4 && trans) lsg_ldmatrix_x2_trans(r, row);
  if (!x4 && !trans) lsg_ldmatrix_x2(r, row);
  rows[24 * lsg_lane() + 8] = 0; /* what a lane does afterwards changes nothing of what others loaded */
  for (int i = 0; i < 4; i++) y[4 * lsg_lane() + i] = r[i];
}

template <bool x4, bool trans>
static void check_ldmatrix() {
  test_stream s;
  std::vector<uint16_t> x(32 * 24);
  for (size_t i = 0; i < x.size(); i++) x[i] = (uint16_t)(i + 1);
  test_buffer<uint16_t> dx(s, x, "x");
  for (uint64_t seed = 0; seed < 4; seed++) {
    test_schedule order(seed);
    test_buffer<uint32_t> dy(s, 128, "y");
    EXPECT_OK(LSG_LAUNCH((ldmatrix_kernel<x4, trans>), lsg_grid(1), 32, 0, s, dy.p, dx.p));
    EXPECT_OK(lsg_sync(s));
    std::vector<uint32_t> y = dy.get();
    for (size_t lane = 0; lane < 32; lane++)
      for (size_t i = 0; i < 4; i++) {
        uint32_t expected = 0;
        if (i < 2 || x4)
          for (size_t e = 0; e < 2; e++) {
            size_t row = trans ? lane % 4 * 2 + e : lane / 4, column = trans ? lane / 4 : lane % 4 * 2 + e;
            expected |= (uint32_t)x[(i * 8 + row) * 24 + 8 + column] << (16 * e);
          }
        cr_assert(y[4 * lane + i] == expected, "lane %d, register %d: %08x, expected %08x", (int)lane, (int)i, y[4 * lane + i], expected);
      }
  }
}

Test(emu_mma, ldmatrix_is_that_of_the_definition) {
  check_ldmatrix<true, false>();
  check_ldmatrix<false, false>();
}
Test(emu_mma, transposed_ldmatrix_is_that_of_the_definition) {
  check_ldmatrix<true, true>();
  check_ldmatrix<false, true>();
}

LSG_KERNEL(32) void ldmatrix_of_global_kernel(uint32_t *y, const uint16_t *x) { lsg_ldmatrix_x4(y + 4 * lsg_lane(), x); }
LSG_KERNEL(32) void ldmatrix_askew_kernel(uint32_t *y) {
  LSG_SHARED(uint16_t, rows, 512);
  lsg_ldmatrix_x4(y + 4 * lsg_lane(), rows + 8 * lsg_lane() + 4);
}

Test(emu_mma, ldmatrix_wants_aligned_shared_memory) {
  test_stream s;
  test_buffer<uint32_t> y(s, 128, "y");
  test_buffer<uint16_t> x(s, std::vector<uint16_t>(64, 1), "x");
  EXPECT_OK(LSG_LAUNCH(ldmatrix_of_global_kernel, lsg_grid(1), 32, 0, s, y.p, x.p));
  EXPECT_FAILS(lsg_sync(s), "is not 16 bytes of this block's shared memory");
  EXPECT_OK(LSG_LAUNCH(ldmatrix_askew_kernel, lsg_grid(1), 32, 0, s, y.p));
  EXPECT_FAILS(lsg_sync(s), "not 16-byte aligned: shared array 'rows' (1024 bytes), at byte 8");
}

}  // namespace LSG_NS
