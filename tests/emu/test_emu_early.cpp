/* Launches that may begin before the one in front has ended: every thread waits, or the launch fails. */
#include "emu_test.h"

namespace LSG_NS {

LSG_KERNEL(64) void early_kernel(int *y, int waiting) {
  lsg_let_next();
  if (lsg_thread() < waiting) lsg_wait_before();
  y[lsg_thread()] = lsg_thread();
}

static void launch(test_stream &s, test_buffer<int> &y, bool early, int waiting) {
  EXPECT_OK(early ? LSG_LAUNCH_EARLY(early_kernel, lsg_grid(1), 64, 0, s, y.p, waiting)
                  : LSG_LAUNCH(early_kernel, lsg_grid(1), 64, 0, s, y.p, waiting));
}

Test(emu_early, a_launch_whose_threads_all_wait_is_a_launch) {
  test_stream s;
  test_buffer<int> y(s, 64, "y");
  launch(s, y, true, 64);
  EXPECT_OK(lsg_sync(s));
  cr_assert_eq(y.get()[63], 63);
}

Test(emu_early, a_thread_that_does_not_wait_fails_the_launch) {
  for (int waiting : {0, 31, 63}) {
    test_stream s;
    test_buffer<int> y(s, 64, "y");
    launch(s, y, true, waiting);
    EXPECT_FAILS(lsg_sync(s), "early_kernel", "lsg_wait_before()");
    launch(s, y, true, 64); /* what a thread of the launch before did not do is forgotten */
    EXPECT_OK(lsg_sync(s));
  }
}

Test(emu_early, an_ordinary_launch_need_not_wait) {
  test_stream s;
  test_buffer<int> y(s, 64, "y");
  launch(s, y, false, 0);
  EXPECT_OK(lsg_sync(s));
}

}  // namespace LSG_NS
