/* The order in which threads and blocks run: barriers that are missing show, those that not all reach are named. */
#include "emu_test.h"

namespace LSG_NS {

/* Sums 256 values in shared memory; with_barrier false leaves out the barrier between the halving steps. */
template <bool with_barrier>
LSG_KERNEL(256)
void tree_sum_kernel(float *y, const float *x) {
  LSG_SHARED(float, part, 256);
  int t = lsg_thread();
  part[t] = x[lsg_block_x() * 256 + t];
  lsg_barrier();
  for (int half = 128; half > 0; half >>= 1) {
    if (t < half) part[t] += part[t + half];
    if (with_barrier) lsg_barrier();
  }
  if (t == 0) y[lsg_block_x()] = part[0];
}

template <bool with_barrier>
static int wrong_seeds(int seeds) {
  test_stream s;
  const int blocks = 4;
  std::vector<float> values;
  for (int i = 0; i < blocks * 256; i++) values.push_back((float)(i % 64));
  test_buffer<float> x(s, values, "x"), y(s, (size_t)blocks, "y");
  int wrong = 0;
  for (int seed = 1; seed <= seeds; seed++) {
    test_schedule order((uint64_t)seed);
    EXPECT_OK(LSG_LAUNCH(tree_sum_kernel<with_barrier>, lsg_grid(blocks), 256, 0, s, y.p, x.p));
    EXPECT_OK(lsg_sync(s));
    bool right = true;
    for (float sum : y.get()) right = right && sum == 256 / 64 * (63 * 64 / 2);
    wrong += !right;
  }
  return wrong;
}

Test(emu_schedule, a_missing_barrier_shows_under_a_random_order) { cr_assert(wrong_seeds<false>(5) == 5, "%s", "a seed hid it"); }
Test(emu_schedule, with_the_barrier_fifty_orders_are_right) { cr_assert(wrong_seeds<true>(50) == 0, "%s", "a seed broke it"); }

/* A reversal that is right in thread order by luck alone: thread t reads what thread t - 1 wrote, no barrier between. */
template <bool with_barrier>
LSG_KERNEL(64)
void neighbour_kernel(int *y) {
  LSG_SHARED(int, left, 64);
  int t = lsg_thread();
  left[t] = t;
  if (with_barrier) lsg_barrier();
  y[t] = t > 0 ? left[t - 1] : -1;
}

Test(emu_schedule, what_thread_order_hides_a_seed_finds) {
  test_stream s;
  test_buffer<int> y(s, 64, "y");
  auto is_right = [&] {
    EXPECT_OK(lsg_sync(s));
    bool right = true;
    std::vector<int> v = y.get();
    for (int t = 0; t < 64; t++) right = right && v[(size_t)t] == t - 1;
    return right;
  };
  EXPECT_OK(LSG_LAUNCH(neighbour_kernel<false>, lsg_grid(1), 64, 0, s, y.p));
  cr_assert(is_right(), "%s", "thread order is expected to hide this one");
  test_schedule order(1);
  EXPECT_OK(LSG_LAUNCH(neighbour_kernel<false>, lsg_grid(1), 64, 0, s, y.p));
  cr_assert(!is_right(), "%s", "the missing barrier did not show");
  EXPECT_OK(LSG_LAUNCH(neighbour_kernel<true>, lsg_grid(1), 64, 0, s, y.p));
  cr_assert(is_right(), "%s", "wrong with the barrier");
}

enum { LEAD_WARPS = 4, LEAD_ROUNDS = 40 };

/* By how many of its LEAD_ROUNDS warp calls a warp was ever ahead of the last one. */
LSG_KERNEL(128)
void lead_kernel(int *lead) {
  LSG_SHARED(int, round, LEAD_WARPS);
  if (lsg_lane() == 0) round[lsg_warp()] = 0;
  lsg_barrier();
  int most = 0;
  for (int i = 1; i <= LEAD_ROUNDS; i++) {
    lsg_warp_sync(LSG_FULL_MASK);
    if (lsg_lane() != 0) continue;
    round[lsg_warp()] = i;
    for (int w = 0; w < LEAD_WARPS; w++) most = i - round[w] > most ? i - round[w] : most;
  }
  if (lsg_lane() == 0) lead[lsg_warp()] = most;
}

/* A stage that is filled again too early shows only where a warp is a whole turn ahead of another. */
Test(emu_schedule, a_seed_lets_warps_run_far_ahead) {
  test_stream s;
  test_buffer<int> lead(s, LEAD_WARPS, "lead");
  int far = 0;
  for (int seed = 1; seed <= 20; seed++) {
    test_schedule order((uint64_t)seed);
    EXPECT_OK(LSG_LAUNCH(lead_kernel, lsg_grid(1), 128, 0, s, lead.p));
    EXPECT_OK(lsg_sync(s));
    int most = 0;
    for (int v : lead.get()) most = v > most ? v : most;
    far += most >= LEAD_ROUNDS / 2;
  }
  cr_assert(far >= 5, "in %d of 20 orders a warp was ahead by half of its calls", far);
}

LSG_KERNEL(64) void early_return_kernel(int *y) {
  if (lsg_thread() == 40) return;
  lsg_barrier();
  y[lsg_thread()] = 1;
}

Test(emu_schedule, a_barrier_that_a_returned_thread_misses_is_named) {
  test_stream s;
  test_buffer<int> y(s, 64, "y");
  for (uint64_t seed = 0; seed < 10; seed++) {
    test_schedule order(seed);
    EXPECT_OK(LSG_LAUNCH(early_return_kernel, lsg_grid(4), 64, 0, s, y.p));
    EXPECT_FAILS(lsg_sync(s), "emu: kernel early_return_kernel, block (", ",0,0), thread ",
                 "lsg_barrier (test_emu_schedule.cpp:", "thread 40 has returned");
  }
}

LSG_KERNEL(64) void divergent_barrier_kernel(int *y) {
  if (lsg_thread() < 32) {
    lsg_barrier();
    y[lsg_thread()] = 1;
  } else {
    lsg_barrier();
    y[lsg_thread()] = 2;
  }
}

Test(emu_schedule, two_barriers_do_not_meet) {
  test_stream s;
  test_buffer<int> y(s, 64, "y");
  EXPECT_OK(LSG_LAUNCH(divergent_barrier_kernel, lsg_grid(1), 64, 0, s, y.p));
  EXPECT_FAILS(lsg_sync(s), "divergent_barrier_kernel", "while others of the block wait at another one (test_emu_schedule.cpp:");
}

LSG_KERNEL(64) void barrier_or_shuffle_kernel(int *y) {
  int t = lsg_thread();
  if (t == 33)
    y[0] = lsg_shfl_xor(LSG_FULL_MASK, t, 1);
  else
    lsg_barrier();
}

Test(emu_schedule, threads_that_wait_for_each_other_are_named) {
  test_stream s;
  test_buffer<int> y(s, 64, "y");
  EXPECT_OK(LSG_LAUNCH(barrier_or_shuffle_kernel, lsg_grid(3, 2), 64, 0, s, y.p));
  EXPECT_FAILS(lsg_sync(s), "emu: kernel barrier_or_shuffle_kernel, block (0,0,0), thread 33: waits at lsg_shfl_xor",
               "thread 32 waits at lsg_barrier (test_emu_schedule.cpp:");
}

LSG_KERNEL(96) void index_kernel(int64_t *y) {
  int64_t block = lsg_block_x() + lsg_grid_x() * (lsg_block_y() + lsg_grid_y() * lsg_block_z());
  int64_t at = block * lsg_block_threads() + lsg_thread();
  y[at] = at * 1000000 + lsg_warp() * 10000 + lsg_lane() * 100 + lsg_grid_z();
}

Test(emu_schedule, every_thread_of_every_block_runs_once_whatever_the_workers_and_the_order) {
  test_stream s;
  const size_t n = 5 * 3 * 2 * 70;
  std::vector<int64_t> expected;
  for (size_t i = 0; i < n; i++) {
    int64_t t = (int64_t)(i % 70);
    expected.push_back((int64_t)i * 1000000 + t / 32 * 10000 + t % 32 * 100 + 2);
  }
  for (int threads : {1, 2, 3, 8})
    for (uint64_t seed : {0, 7}) {
      ls_threads_set(threads);
      test_schedule order(seed);
      test_buffer<int64_t> y(s, n, "y");
      EXPECT_OK(LSG_LAUNCH(index_kernel, lsg_grid(5, 3, 2), 70, 0, s, y.p));
      EXPECT_OK(lsg_sync(s));
      cr_assert(y.get() == expected, "%d workers, seed %d", threads, (int)seed);
    }
}

/* Which thread of its block came first, which depends on the order alone. */
LSG_KERNEL(128) void first_kernel(int *y) {
  LSG_SHARED(unsigned, ticket, 1);
  int *mine = y + lsg_block_x() * 128;
  if (lsg_thread() == 0) ticket[0] = 0;
  lsg_barrier();
  mine[lsg_thread()] = (int)lsg_atomic_add(ticket, 1u);
  lsg_warp_sync(LSG_FULL_MASK);
  mine[lsg_thread()] += 1000 * (int)lsg_atomic_add(ticket, 1u);
}

static std::vector<int> order_under(uint64_t seed, int workers) {
  test_stream s;
  ls_threads_set(workers);
  test_schedule order(seed);
  test_buffer<int> y(s, 20 * 128, "y");
  EXPECT_OK(LSG_LAUNCH(first_kernel, lsg_grid(20), 128, 0, s, y.p));
  EXPECT_OK(lsg_sync(s));
  return y.get();
}

Test(emu_schedule, a_seed_gives_one_order_whatever_the_workers) {
  std::vector<int> one = order_under(5, 1);
  cr_assert(one == order_under(5, 1), "%s", "two runs differ");
  cr_assert(one == order_under(5, 4), "%s", "four workers differ from one");
  cr_assert(one != order_under(6, 1), "%s", "two seeds give one order");
  cr_assert(one != order_under(0, 1), "%s", "a seed gives thread order");
  cr_assert(!std::equal(one.begin(), one.begin() + 128, one.begin() + 128), "%s", "all blocks have one order");
}

LSG_KERNEL(32) void block_order_kernel(int *y, unsigned *count) {
  if (lsg_thread() == 0) y[lsg_block_x()] = (int)lsg_atomic_add(count, 1u);
}

Test(emu_schedule, a_seed_shuffles_the_blocks_too) {
  test_stream s;
  ls_threads_set(1);
  test_schedule order(9);
  test_buffer<int> y(s, 100, "y");
  test_buffer<unsigned> count(s, std::vector<unsigned>{0}, "count");
  EXPECT_OK(LSG_LAUNCH(block_order_kernel, lsg_grid(100), 32, 0, s, y.p, count.p));
  EXPECT_OK(lsg_sync(s));
  std::vector<int> v = y.get(), sorted = v;
  std::sort(sorted.begin(), sorted.end());
  int in_place = 0;
  for (int i = 0; i < 100; i++) {
    cr_assert(sorted[(size_t)i] == i, "turn %d was not taken", i);
    in_place += v[(size_t)i] == i;
  }
  cr_assert(in_place < 20, "%d of 100 blocks ran in their own turn", in_place);
}

Test(emu_schedule, the_first_failing_block_is_the_one_reported) {
  test_stream s;
  test_buffer<int> y(s, 64, "y");
  for (int threads : {1, 4}) {
    ls_threads_set(threads);
    EXPECT_OK(LSG_LAUNCH(early_return_kernel, lsg_grid(500), 64, 0, s, y.p));
    EXPECT_FAILS(lsg_sync(s), "block (0,0,0)");
  }
}

LSG_KERNEL(1024) void many_kernel(unsigned *y) {
  unsigned votes = lsg_ballot(LSG_FULL_MASK, lsg_lane() & 1);
  lsg_barrier();
  if (lsg_lane() == 0) lsg_atomic_add(y, votes == 0xAAAAAAAAu ? 1u : 100000u);
}

Test(emu_schedule, a_big_grid_of_big_blocks_runs) {
  test_stream s;
  test_buffer<unsigned> y(s, std::vector<unsigned>{0}, "y");
  EXPECT_OK(LSG_LAUNCH(many_kernel, lsg_grid(400), 1024, 0, s, y.p));
  EXPECT_OK(lsg_sync(s));
  cr_assert(y.get()[0] == 400 * 32, "%u", y.get()[0]);
}

}  // namespace LSG_NS
