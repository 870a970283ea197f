/* cp.async: bytes land at the wait and not before. */
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
