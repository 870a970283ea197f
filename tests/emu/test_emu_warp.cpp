/* Warp calls: what they compute, against a scalar model, and what wrong use is called. */
#include "emu_test.h"

namespace LSG_NS {

enum { SHFL, XOR, DOWN, UP };

template <typename T>
struct shuffle_case {
  int kind, operand;
  unsigned mask;
};

/* Lanes of the mask shuffle; the others go by. */
template <typename T>
LSG_KERNEL(64)
void shuffle_kernel(T *y, const T *x, int kind, int operand, unsigned mask) {
  int t = lsg_thread();
  T v = x[t];
  if ((mask >> lsg_lane() & 1u) == 0) return;
  if (kind == SHFL)
    v = lsg_shfl(mask, v, operand + lsg_lane());
  else if (kind == XOR)
    v = lsg_shfl_xor(mask, v, operand);
  else if (kind == DOWN)
    v = lsg_shfl_down(mask, v, operand);
  else
    v = lsg_shfl_up(mask, v, operand);
  y[t] = v;
}

template <typename T>
static void check_shuffles(uint64_t seed) {
  test_stream s;
  test_schedule order(seed);
  std::vector<T> values;
  for (int i = 0; i < 64; i++) values.push_back((T)(i * 1237 + 1) * (T)3);
  test_buffer<T> x(s, values, "x");
  for (int kind : {SHFL, XOR, DOWN, UP})
    for (int operand = 0; operand < 32; operand++) {
      test_buffer<T> y(s, 64, "y");
      EXPECT_OK(LSG_LAUNCH(shuffle_kernel<T>, lsg_grid(1), 64, 0, s, y.p, x.p, kind, operand, LSG_FULL_MASK));
      EXPECT_OK(lsg_sync(s));
      std::vector<T> v = y.get();
      for (int t = 0; t < 64; t++) {
        int lane = t % 32, from = lane;
        if (kind == SHFL) from = (lane + operand) % 32;
        if (kind == XOR) from = lane ^ operand;
        if (kind == DOWN && lane + operand < 32) from = lane + operand;
        if (kind == UP && lane - operand >= 0) from = lane - operand;
        cr_assert(v[(size_t)t] == values[(size_t)(t - lane + from)], "kind %d, operand %d, thread %d", kind, operand, t);
      }
    }
}

Test(emu_warp, shuffles_are_those_of_the_model) {
  for (uint64_t seed : {0, 3}) {
    check_shuffles<int>(seed);
    check_shuffles<unsigned>(seed);
    check_shuffles<float>(seed);
    check_shuffles<long long>(seed);
    check_shuffles<unsigned long long>(seed);
  }
}

Test(emu_warp, a_partial_mask_shuffles_among_its_own_lanes) {
  test_stream s;
  std::vector<int> values;
  for (int i = 0; i < 64; i++) values.push_back(i);
  test_buffer<int> x(s, values, "x"), y(s, 64, "y");
  EXPECT_OK(LSG_LAUNCH(shuffle_kernel<int>, lsg_grid(1), 64, 0, s, y.p, x.p, XOR, 5, 0x0000FF00u));
  EXPECT_OK(lsg_sync(s));
  std::vector<int> v = y.get();
  for (int t = 0; t < 64; t++) {
    bool in = t % 32 >= 8 && t % 32 < 16;
    cr_assert(v[(size_t)t] == (in ? t / 32 * 32 + ((t % 32) ^ 5) : -1), "thread %d: %d", t, v[(size_t)t]);
  }
}

LSG_KERNEL(64) void halves_kernel(int *y) {
  int t = lsg_thread(), v = t, rounds = lsg_lane() < 16 ? 3 : 7; /* the halves go their own ways and meet again */
  unsigned mask = lsg_lane() < 16 ? 0x0000FFFFu : 0xFFFF0000u;
  for (int i = 0; i < rounds; i++) v = lsg_shfl_xor(mask, v, 1) + 1;
  lsg_warp_sync(LSG_FULL_MASK);
  y[t] = lsg_shfl_xor(LSG_FULL_MASK, v, 16);
}

Test(emu_warp, disjoint_masks_go_their_own_ways) {
  test_stream s;
  for (uint64_t seed = 0; seed < 5; seed++) {
    test_schedule order(seed);
    test_buffer<int> y(s, 64, "y");
    EXPECT_OK(LSG_LAUNCH(halves_kernel, lsg_grid(1), 64, 0, s, y.p));
    EXPECT_OK(lsg_sync(s));
    std::vector<int> v = y.get();
    for (int t = 0; t < 64; t++) {
      int from = t ^ 16, rounds = from % 32 < 16 ? 3 : 7;
      cr_assert(v[(size_t)t] == (from ^ 1) + rounds, "thread %d: %d", t, v[(size_t)t]);
    }
  }
}

LSG_KERNEL(32) void votes_kernel(unsigned *y, unsigned wanted, unsigned mask) {
  if ((mask >> lsg_lane() & 1u) == 0) return;
  int p = (wanted >> lsg_lane() & 1u) != 0 ? 7 : 0;
  unsigned *mine = y + 3 * lsg_lane();
  mine[0] = lsg_ballot(mask, p);
  mine[1] = (unsigned)lsg_any(mask, p);
  mine[2] = (unsigned)lsg_all(mask, p);
}

Test(emu_warp, votes_are_those_of_the_model) {
  test_stream s;
  for (unsigned mask : {LSG_FULL_MASK, 0x00F0F001u})
    for (unsigned wanted : {0u, 1u, 0x80000000u, 0x12345678u, 0xFFFFFFFEu, 0xFFFFFFFFu}) {
      test_buffer<unsigned> y(s, 96, "y");
      EXPECT_OK(LSG_LAUNCH(votes_kernel, lsg_grid(1), 32, 0, s, y.p, wanted, mask));
      EXPECT_OK(lsg_sync(s));
      std::vector<unsigned> v = y.get();
      for (size_t lane = 0; lane < 32; lane++) {
        if ((mask >> lane & 1u) == 0) continue;
        cr_assert(
            v[3 * lane] == (wanted & mask) && v[3 * lane + 1] == ((wanted & mask) != 0) && v[3 * lane + 2] == ((wanted & mask) == mask),
            "lane %d: %x %u %u", (int)lane, v[3 * lane], v[3 * lane + 1], v[3 * lane + 2]);
      }
    }
}

LSG_KERNEL(64) void reduce_kernel(float *sum, float *most, const float *x) {
  int t = lsg_thread();
  sum[t] = lsg_warp_sum(x[t]);
  most[t] = lsg_warp_max(x[t]);
}
LSG_KERNEL(64) void reduce_by_shuffles_kernel(float *sum, float *most, const float *x) {
  int t = lsg_thread();
  float a = x[t], b = x[t];
  for (int offset = 16; offset > 0; offset >>= 1) a += lsg_shfl_xor(LSG_FULL_MASK, a, offset);
  for (int offset = 16; offset > 0; offset >>= 1) b = lsg_fmax_nan(b, lsg_shfl_xor(LSG_FULL_MASK, b, offset));
  sum[t] = a;
  most[t] = b;
}

Test(emu_warp, sum_and_max_have_the_bits_of_the_butterfly_and_keep_a_nan) {
  test_stream s;
  std::vector<float> values;
  for (int i = 0; i < 64; i++) values.push_back((float)ls_generated_at(1, (uint64_t)i, 1e3, 0.1));
  for (bool nan : {false, true}) {
    if (nan) values[37] = lsg_from_bits(0x7FC00000u);
    test_buffer<float> x(s, values, "x"), a(s, 64, "a"), b(s, 64, "b"), c(s, 64, "c"), d(s, 64, "d");
    EXPECT_OK(LSG_LAUNCH(reduce_kernel, lsg_grid(1), 64, 0, s, a.p, b.p, x.p));
    EXPECT_OK(LSG_LAUNCH(reduce_by_shuffles_kernel, lsg_grid(1), 64, 0, s, c.p, d.p, x.p));
    EXPECT_OK(lsg_sync(s));
    std::vector<float> sum = a.get(), most = b.get(), sum_2 = c.get(), most_2 = d.get();
    for (size_t t = 0; t < 64; t++) {
      size_t first = t / 32 * 32;
      if (nan && first == 32) {
        cr_assert(sum[t] != sum[t] && most[t] != most[t], "%s", "the NaN is lost");
        continue;
      }
      cr_assert(lsg_bits(sum[t]) == lsg_bits(sum_2[t]) && lsg_bits(sum[t]) == lsg_bits(sum[first]), "thread %d: sum %.9g, %.9g", (int)t,
                (double)sum[t], (double)sum_2[t]);
      cr_assert(most[t] == *std::max_element(&values[first], &values[first] + 32) && most[t] == most_2[t], "thread %d: max", (int)t);
    }
  }
}

/* ---- wrong use ---- */

LSG_KERNEL(64) void own_lane_kernel(int *y) { y[lsg_thread()] = lsg_shfl(0xFFFF0000u, lsg_thread(), 20); }
LSG_KERNEL(64) void returned_lane_kernel(int *y) {
  if (lsg_thread() == 37) return;
  y[lsg_thread()] = lsg_shfl_xor(LSG_FULL_MASK, lsg_thread(), 2);
}
LSG_KERNEL(64) void lane_returns_later_kernel(int *y) {
  if (lsg_thread() != 63) y[lsg_thread()] = lsg_any(LSG_FULL_MASK, 1);
}
LSG_KERNEL(40) void short_warp_kernel(int *y) { y[lsg_thread()] = lsg_all(LSG_FULL_MASK, 1); }
LSG_KERNEL(32) void two_kinds_kernel(int *y) {
  if (lsg_lane() < 16)
    y[lsg_thread()] = lsg_any(LSG_FULL_MASK, 1);
  else
    y[lsg_thread()] = lsg_all(LSG_FULL_MASK, 1);
}
LSG_KERNEL(32) void two_places_kernel(int *y) {
  if (lsg_lane() < 16)
    y[lsg_thread()] = lsg_shfl(LSG_FULL_MASK, 1, 0);
  else
    y[lsg_thread()] = lsg_shfl(LSG_FULL_MASK, 2, 0);
}
LSG_KERNEL(32) void two_masks_kernel(int *y) { y[lsg_thread()] = lsg_shfl(lsg_lane() < 8 ? 0x000000FFu : LSG_FULL_MASK, 1, 0); }
LSG_KERNEL(32) void outside_mask_kernel(int *y) {
  if (lsg_lane() < 16) y[lsg_thread()] = lsg_shfl(0x0000FFFFu, 1, 20);
}
LSG_KERNEL(32) void far_offset_kernel(int *y) { y[lsg_thread()] = lsg_shfl_down(LSG_FULL_MASK, 1, 32); }

Test(emu_warp, wrong_use_is_reported_with_kernel_block_thread_and_line) {
  test_stream s;
  test_buffer<int> y(s, 64, "y");
  EXPECT_OK(LSG_LAUNCH(own_lane_kernel, lsg_grid(2), 64, 0, s, y.p));
  EXPECT_FAILS(lsg_sync(s), "emu: kernel own_lane_kernel, block (0,0,0), thread 0: lsg_shfl (test_emu_warp.cpp:",
               "its own lane 0 is not in mask 0xffff0000");
  EXPECT_OK(LSG_LAUNCH(returned_lane_kernel, lsg_grid(1), 64, 0, s, y.p));
  EXPECT_FAILS(lsg_sync(s), "returned_lane_kernel", "thread 37: has returned, while lanes 0x0000001f of its warp wait at lsg_shfl_xor");
  EXPECT_OK(LSG_LAUNCH(lane_returns_later_kernel, lsg_grid(1), 64, 0, s, y.p));
  EXPECT_FAILS(lsg_sync(s), "thread 63: has returned, while lanes 0x7fffffff of its warp wait at lsg_any (test_emu_warp.cpp:");
  EXPECT_OK(LSG_LAUNCH(short_warp_kernel, lsg_grid(1), 40, 0, s, y.p));
  EXPECT_FAILS(lsg_sync(s), "thread 32: lsg_all", "names lanes 0xffffff00, which this warp does not have");
  EXPECT_OK(LSG_LAUNCH(two_kinds_kernel, lsg_grid(1), 32, 0, s, y.p));
  EXPECT_FAILS(lsg_sync(s), "thread 16: lsg_all", "meets another call, lsg_any", "of lanes 0x0000ffff");
  EXPECT_OK(LSG_LAUNCH(two_places_kernel, lsg_grid(1), 32, 0, s, y.p));
  EXPECT_FAILS(lsg_sync(s), "two_places_kernel", "thread 16: lsg_shfl", "meets another call, lsg_shfl");
  EXPECT_OK(LSG_LAUNCH(two_masks_kernel, lsg_grid(1), 32, 0, s, y.p));
  EXPECT_FAILS(lsg_sync(s), "two_masks_kernel", "mask 0xffffffff");
  EXPECT_OK(LSG_LAUNCH(outside_mask_kernel, lsg_grid(1), 32, 0, s, y.p));
  EXPECT_FAILS(lsg_sync(s), "lane 0 reads lane 20, which is not in mask 0x0000ffff");
  EXPECT_OK(LSG_LAUNCH(far_offset_kernel, lsg_grid(1), 32, 0, s, y.p));
  EXPECT_FAILS(lsg_sync(s), "asks for an offset of 32, outside 0..31");
}

Test(emu_warp, a_returned_lane_in_the_mask_is_reported_in_any_order) {
  test_stream s;
  test_buffer<int> y(s, 64, "y");
  for (uint64_t seed = 1; seed <= 20; seed++) {
    test_schedule order(seed);
    EXPECT_OK(LSG_LAUNCH(returned_lane_kernel, lsg_grid(1), 64, 0, s, y.p));
    EXPECT_FAILS(lsg_sync(s), "returned_lane_kernel", "has returned");
  }
}

/* ---- atomics ---- */

LSG_KERNEL(128) void atomics_kernel(int *i, unsigned *u, unsigned long long *l, float *f) {
  int t = (int)lsg_block_x() * 128 + lsg_thread();
  lsg_atomic_add(&i[0], -1);
  lsg_atomic_max(&i[1], t);
  lsg_atomic_min(&i[2], -t);
  lsg_atomic_add(&u[0], 2u);
  lsg_atomic_or(&u[1], 1u << (t & 31));
  lsg_atomic_max(&u[2], 0x80000000u + (unsigned)t);
  lsg_atomic_add(&l[0], 1ull << 40);
  lsg_atomic_add(&f[0], 0.5f);
  unsigned old = u[3], seen;
  while ((seen = lsg_atomic_cas(&u[3], old, old + 3)) != old) old = seen;
  lsg_fence();
}

Test(emu_warp, atomics_lose_nothing_across_blocks) {
  test_stream s;
  ls_threads_set(4);
  const int n = 50 * 128;
  test_buffer<int> i(s, std::vector<int>{5, -1, 1}, "i");
  test_buffer<unsigned> u(s, std::vector<unsigned>{1, 0, 0, 0}, "u");
  test_buffer<unsigned long long> l(s, std::vector<unsigned long long>{7}, "l");
  test_buffer<float> f(s, std::vector<float>{1}, "f");
  EXPECT_OK(LSG_LAUNCH(atomics_kernel, lsg_grid(50), 128, 0, s, i.p, u.p, l.p, f.p));
  EXPECT_OK(lsg_sync(s));
  cr_assert(i.get() == (std::vector<int>{5 - n, n - 1, 1 - n}), "%d", i.get()[0]);
  cr_assert(u.get() == (std::vector<unsigned>{1 + 2 * n, 0xFFFFFFFFu, 0x80000000u + n - 1, 3 * n}), "%u %u", u.get()[0], u.get()[3]);
  cr_assert(l.get()[0] == 7 + ((unsigned long long)n << 40) && f.get()[0] == 1 + 0.5f * n, "%g", (double)f.get()[0]);
}

}  // namespace LSG_NS
