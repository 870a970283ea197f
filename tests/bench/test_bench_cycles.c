/* What the processor counts is either counted, or it is said why not. */
#include <criterion/criterion.h>
#include <unistd.h>

#include "bench/bench_cycles.h"
#include "core/ls_parallel.h"

static char why[128];

static void spin(void *arg, int64_t i) {
  volatile double *sum = arg;
  for (int k = 0; k < 2000000; k++) sum[i * 64] += 1;
}

/* Of all threads that were started since. */
static double count(bench_counted what) {
  static double sum[2 * 64];
  const int counter = bench_counter_open(what, why, sizeof why);
  if (counter < 0) return -1;
  ls_threads_set(2);
  ls_parallel_for(2, spin, sum);
  const double counted = bench_counter_read(counter);
  close(counter);
  return counted;
}

Test(bench_cycles, are_counted_or_the_reason_is_told) {
  const double cycles = count(BENCH_CYCLES);
  if (cycles < 0) {
    cr_expect_neq(why[0], '\0');
    cr_skip_test("no cycles here: %s", why);
  }
  cr_expect_str_empty(why);
  cr_expect_gt(cycles, 4e6, "two threads of 2e6 turns: %g cycles", cycles);
}

Test(bench_cycles, threads_that_start_later_are_counted_too) {
  const double before = count(BENCH_TASK_CLOCK);
  if (before < 0) cr_skip_test("no counters here: %s", why);
  cr_expect_gt(before, 2e5, "two threads of 2e6 turns: %g ns", before);
}

Test(bench_cycles, no_counter_reads_as_nothing) { cr_expect_eq(bench_counter_read(-1), 0); }
