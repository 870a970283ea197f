/* cp.async: in thread order bytes land at the wait and not before; under a seed at any moment between. */
#include "emu_test.h"

namespace LSG_NS {

enum { NO_WAIT, WAIT, NO_COMMIT, WAIT_FOR_OLDER };

/* Each thread brings two 16-byte pieces in as two groups and stores what it then sees. */
LSG_KERNEL(32) void copy_kernel(uint32_t *y, const uint32_t *x, int how, int bytes) {
  LSG_SHARED(uint32_t, box, 32 * 8);
  uint32_t *mine = box + 8 * lsg_thread();
  const uint32_t *from = x + 8 * lsg_thread();
  for (int i = 0; i < 8; i++) mine[i] = 7;
  lsg_cp_async16(mine, from, bytes);
  if (how != NO_COMMIT) lsg_cp_async_commit();
  lsg_cp_async16(mine + 4, from + 4, bytes);
  if (how != NO_COMMIT) lsg_cp_async_commit();
  if (how == WAIT || how == NO_COMMIT) lsg_cp_async_wait<0>();
  if (how == WAIT_FOR_OLDER) lsg_cp_async_wait<1>();
  for (int i = 0; i < 8; i++) y[8 * lsg_thread() + i] = mine[i];
}

static std::vector<uint32_t> copied(int how, int bytes, std::vector<uint32_t> *source) {
  test_stream s;
  source->clear();
  for (uint32_t i = 0; i < 256; i++) source->push_back(1000 + i);
  test_buffer<uint32_t> x(s, *source, "x"), y(s, 256, "y");
  EXPECT_OK(LSG_LAUNCH(copy_kernel, lsg_grid(1), 32, 0, s, y.p, x.p, how, bytes));
  EXPECT_OK(lsg_sync(s));
  return y.get();
}

Test(emu_copies, bytes_are_there_after_the_wait) {
  std::vector<uint32_t> x;
  cr_assert(copied(WAIT, 16, &x) == x, "%s", "not what was copied");
}

Test(emu_copies, without_a_wait_or_a_commit_the_old_bytes_stay) {
  std::vector<uint32_t> x, old(256, 7);
  cr_assert(copied(NO_WAIT, 16, &x) == old, "%s", "bytes landed without a wait");
  cr_assert(copied(NO_COMMIT, 16, &x) == old, "%s", "bytes landed without a commit");
}

Test(emu_copies, a_wait_leaves_the_newest_groups_in_flight) {
  std::vector<uint32_t> x, y = copied(WAIT_FOR_OLDER, 16, &x);
  for (size_t i = 0; i < 256; i++) cr_assert(y[i] == (i % 8 < 4 ? x[i] : 7), "word %d: %u", (int)i, y[i]);
}

Test(emu_copies, bytes_past_the_count_are_zero) {
  std::vector<uint32_t> x;
  for (int bytes : {0, 4, 8, 12, 16}) {
    std::vector<uint32_t> y = copied(WAIT, bytes, &x);
    for (size_t i = 0; i < 256; i++)
      cr_assert(y[i] == (i % 4 * 4 < (size_t)bytes ? x[i] : 0), "%d bytes, word %d: %u", bytes, (int)i, y[i]);
  }
  std::vector<uint32_t> y = copied(WAIT, 6, &x);
  cr_assert(y[0] == x[0] && y[1] == (x[1] & 0xFFFFu) && y[2] == 0, "%u %u %u", y[0], y[1], y[2]);
}

Test(emu_copies, a_seed_lands_some_early_and_all_by_the_wait) {
  std::vector<uint32_t> x, old(256, 7);
  for (uint64_t seed = 1; seed <= 20; seed++) {
    test_schedule order(seed);
    cr_assert(copied(WAIT, 16, &x) == x, "seed %d: not what was copied", (int)seed);
    std::vector<uint32_t> y = copied(NO_WAIT, 16, &x);
    for (size_t i = 0; i < 256; i++) cr_assert(y[i] == x[i] || y[i] == 7, "seed %d, word %d: %u", (int)seed, (int)i, y[i]);
    cr_assert(y != x && y != old, "seed %d: without a wait all landed, or none did", (int)seed);
  }
}

/* Each thread brings a piece in, all read another warp's, and the stage is filled again. What lacks a barrier before that shows only where
 * bytes land before the barrier after it. */
template <bool with_barrier>
LSG_KERNEL(64)
void refill_kernel(uint32_t *y, const uint32_t *x) {
  LSG_SHARED(uint32_t, stage, 64 * 4);
  const int t = lsg_thread(), other = 4 * ((t + 32) & 63);
  lsg_cp_async16(stage + 4 * t, x + 4 * t, 16);
  lsg_cp_async_commit();
  lsg_cp_async_wait<0>();
  lsg_barrier();
  y[t] = stage[other];
  if (with_barrier) lsg_barrier();
  lsg_cp_async16(stage + 4 * t, x + 256 + 4 * t, 16);
  lsg_cp_async_commit();
  lsg_barrier();
  lsg_cp_async_wait<0>();
  lsg_barrier();
  y[64 + t] = stage[other];
}

template <bool with_barrier>
static bool refill_is_right(uint64_t seed) {
  test_stream s;
  test_schedule order(seed);
  std::vector<uint32_t> values, expected;
  for (uint32_t i = 0; i < 512; i++) values.push_back(i);
  for (uint32_t i = 0; i < 128; i++) expected.push_back(i / 64 * 256 + 4 * ((i + 32) & 63));
  test_buffer<uint32_t> x(s, values, "x"), y(s, 128, "y");
  EXPECT_OK(LSG_LAUNCH(refill_kernel<with_barrier>, lsg_grid(1), 64, 0, s, y.p, x.p));
  EXPECT_OK(lsg_sync(s));
  return y.get() == expected;
}

Test(emu_copies, a_refill_of_what_others_still_read_shows_under_a_seed) {
  cr_assert(refill_is_right<false>(0), "%s", "thread order is expected to hide this one");
  for (uint64_t seed = 1; seed <= 5; seed++) cr_assert(!refill_is_right<false>(seed), "seed %d hid the missing barrier", (int)seed);
  for (uint64_t seed = 0; seed <= 50; seed++) cr_assert(refill_is_right<true>(seed), "seed %d: wrong with the barrier", (int)seed);
}

LSG_KERNEL(32) void wrong_copy_kernel(uint32_t *y, const uint32_t *x, int how) {
  LSG_SHARED(uint32_t, box, 64);
  if (lsg_thread() != 9) return;
  if (how == 0) lsg_cp_async16(y, x, 16);
  if (how == 1) lsg_cp_async16(box + 1, x, 16);
  if (how == 2) lsg_cp_async16(box, x + 2, 16);
  if (how == 3) lsg_cp_async16(box, x, 17);
  if (how == 4) lsg_cp_async16(box, x + 16, 4);
  if (how == 5) lsg_cp_async16(box, x + 16, 0);
  lsg_cp_async_commit();
  lsg_cp_async_wait<0>();
}

Test(emu_copies, wrong_use_is_reported) {
  test_stream s;
  test_buffer<uint32_t> y(s, 16, "y"), x(s, std::vector<uint32_t>(16, 1), "x");
  auto run = [&](int how) {
    EXPECT_OK(LSG_LAUNCH(wrong_copy_kernel, lsg_grid(1), 32, 0, s, y.p, x.p, how));
    return lsg_sync(s);
  };
  EXPECT_FAILS(run(0), "wrong_copy_kernel, block (0,0,0), thread 9: lsg_cp_async16 (test_emu_copies.cpp:",
               "is not 16 bytes of this block's shared memory");
  EXPECT_FAILS(run(1), "not 16-byte aligned: shared array 'box' (256 bytes), at byte 4");
  EXPECT_FAILS(run(2), "not 16-byte aligned: buffer 'x' (64 bytes), at byte 8");
  EXPECT_FAILS(run(3), "17 bytes, expected 0..16");
  EXPECT_FAILS(run(4), "thread 9: reads", "buffer 'x' (64 bytes), 0 bytes past its end");
  EXPECT_OK(run(5)); /* nothing is read */
}

LSG_KERNEL(64) void stale_after_failure_kernel(uint32_t *y, const uint32_t *x, bool fail) {
  LSG_SHARED(uint32_t, box, 64 * 4);
  uint32_t *mine = box + 4 * lsg_thread();
  for (int i = 0; i < 4; i++) mine[i] = 7;
  if (fail) lsg_cp_async16(mine, x + 4 * lsg_thread(), 16);
  lsg_cp_async_commit();
  if (fail && lsg_thread() == 63) y[1 << 20] = 0;
  lsg_cp_async_wait<0>();
  y[lsg_thread()] = mine[0];
}

Test(emu_copies, copies_of_a_failed_block_do_not_land_in_the_next) {
  test_stream s;
  ls_threads_set(1);
  test_buffer<uint32_t> y(s, 64, "y"), x(s, std::vector<uint32_t>(256, 1), "x");
  EXPECT_OK(LSG_LAUNCH(stale_after_failure_kernel, lsg_grid(1), 64, 0, s, y.p, x.p, true));
  EXPECT_FAILS(lsg_sync(s), "thread 63: writes");
  EXPECT_OK(LSG_LAUNCH(stale_after_failure_kernel, lsg_grid(1), 64, 0, s, y.p, x.p, false));
  EXPECT_OK(lsg_sync(s));
  cr_assert(y.get() == std::vector<uint32_t>(64, 7), "%s", "a dead copy landed");
}

}  // namespace LSG_NS
