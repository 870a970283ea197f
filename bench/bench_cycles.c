#define _GNU_SOURCE /* syscall */
#include "bench_cycles.h"

#include <errno.h>
#include <linux/perf_event.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

int bench_counter_open(bench_counted what, char *why, int size) {
  struct perf_event_attr attr;
  memset(&attr, 0, sizeof attr);
  attr.size = sizeof attr;
  attr.type = what == BENCH_CYCLES ? PERF_TYPE_HARDWARE : PERF_TYPE_SOFTWARE;
  attr.config = what == BENCH_CYCLES ? PERF_COUNT_HW_CPU_CYCLES : PERF_COUNT_SW_TASK_CLOCK;
  attr.exclude_kernel = attr.exclude_hv = 1; /* what a process without rights may count */
  attr.inherit = 1;
  attr.read_format = PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  const long counter = syscall(SYS_perf_event_open, &attr, 0, -1, -1, PERF_FLAG_FD_CLOEXEC);
  snprintf(why, (size_t)size, "%s%s", counter < 0 ? "perf_event_open: " : "", counter < 0 ? strerror(errno) : "");
  return (int)counter;
}

double bench_counter_read(int counter) {
  uint64_t v[3] = {0, 0, 0}; /* the count, nanoseconds it was wanted, and that it counted */
  if (counter < 0 || read(counter, v, sizeof v) != (ssize_t)sizeof v || v[2] == 0) return 0;
  return (double)v[0] * ((double)v[1] / (double)v[2]);
}

double bench_cycles_so_far(const char **why) {
  static bool opened;
  static int counter;
  static char reason[96];
  if (!opened) counter = bench_counter_open(BENCH_CYCLES, reason, sizeof reason);
  opened = true;
  *why = reason;
  return bench_counter_read(counter);
}
