/* bench_machine: which machine a figure is from, and what else went on there while it was taken. */
#ifndef BENCH_MACHINE_H
#define BENCH_MACHINE_H

#include <stdbool.h>
#include <stdint.h>

#include "../core/ls_status.h"

enum { BENCH_TEXT = 160 };

/* Facts that do not change in a run. */
typedef struct {
  char host[64], cpu[BENCH_TEXT];
  int cores;    /* that this process may use */
  double mhz;   /* of core 0, now; 0: not told */
  bool scaling; /* the cores' clock follows the load */
  double load[3];
  char no_cycles[96];               /* why the processor's cycles are not told; empty: they are */
  char gpu[BENCH_TEXT], driver[64]; /* empty: no device, or no NVML */
  double power_limit;               /* W */
  /* History is kept by this: cores and models, no names of hosts. "AMD EPYC 9654, 2 cores" or "NVIDIA H200". */
  char machine_class[2 * BENCH_TEXT];
} bench_machine;

void bench_machine_look(bench_machine *machine, bool gpu, int device);

/* What went on between begin and end. */
typedef struct {
  double others;                             /* share of the cores that other processes had, 0 .. 1 */
  double sm_mhz, memory_mhz, watts, celsius; /* GPU, at the end; 0: not told */
  unsigned long long throttle;               /* NVML's reasons, those at begin and at end together */
  int other_processes;                       /* on the GPU */
  bool pinned;                               /* each thread stood on a core of its own */
  double cycles, ghz; /* the processor's, of all that this process did meanwhile, and by the time its threads ran; 0: not told */
  double busy_before, own_before, elapsed_before, cycles_before; /* begin's */
} bench_watch;

/* Not on a GPU: from begin to end the process's threads are tied to cores. */
void bench_watch_begin(bench_watch *watch, bool gpu, int device);

/* true where a figure taken meanwhile is one of this machine alone; else reason says what was in the way: other processes on the cores
 * (more than a tenth of them, where the path runs there) or on the GPU (company: one of them is expected, and idle), a clock that was held
 * down for heat or by the board. */
bool bench_watch_end(bench_watch *watch, bool gpu, int device, bool company, char *reason, int size);

/* "0x4 power cap" */
void bench_throttle_text(unsigned long long reasons, char *text, int size);

#endif
