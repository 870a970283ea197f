/* bench_cycles: what the processor itself counted, where the system lets a process read it (perf_event_open). */
#ifndef BENCH_CYCLES_H
#define BENCH_CYCLES_H

#include <stdbool.h>
#include <stdint.h>

typedef enum {
  BENCH_CYCLES,    /* of the cores, in user mode */
  BENCH_TASK_CLOCK /* nanoseconds that threads ran: the system's own count, there also where the processor's is not */
} bench_counted;

/* Opens a counter over the calling thread and all threads that it starts from now on. -1: there is none; why (of `size` bytes) says it,
 * else it is "". Close with close(). */
int bench_counter_open(bench_counted what, char *why, int size);

/* What was counted since it was opened; 0 for -1. Where several counters share the processor's, scaled up to all of the time. */
double bench_counter_read(int counter);

/* The process's cycles, counted from the first call on: to be called before there are threads. *why: as above. */
double bench_cycles_so_far(const char **why);

#endif
