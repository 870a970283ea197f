#define _GNU_SOURCE /* sched_getaffinity */
#include "bench_machine.h"

#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "bench_nvml.h"

#include "../core/ls_clock.h"
#include "../core/ls_parallel.h"
#include "bench_cycles.h"

/* ---- the CPU ---- */

static void cpu_model(char *text, size_t size) {
  FILE *file = fopen("/proc/cpuinfo", "r");
  char line[512];
  snprintf(text, size, "unknown CPU");
  while (file != NULL && fgets(line, sizeof line, file) != NULL) {
    const char *colon = strchr(line, ':');
    if (strncmp(line, "model name", 10) != 0 || colon == NULL) continue;
    snprintf(text, size, "%.*s", (int)strcspn(colon + 2, "\n"), colon + 2);
    break;
  }
  if (file != NULL) fclose(file);
}

static double first_number(const char *file) {
  FILE *f = fopen(file, "r");
  double v = 0;
  if (f == NULL) return 0;
  if (fscanf(f, "%lf", &v) != 1) v = 0;
  fclose(f);
  return v;
}

static int usable_cores(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : (int)sysconf(_SC_NPROCESSORS_ONLN);
}

/* Seconds that the cores of the whole machine were busy since it started. */
static double busy_seconds(void) {
  FILE *file = fopen("/proc/stat", "r");
  double user = 0, nice = 0, system = 0, idle, wait, irq = 0, soft = 0, steal = 0;
  if (file == NULL) return 0;
  if (fscanf(file, "cpu %lf %lf %lf %lf %lf %lf %lf %lf", &user, &nice, &system, &idle, &wait, &irq, &soft, &steal) != 8)
    user = nice = system = irq = soft = steal = 0;
  fclose(file);
  return (user + nice + system + irq + soft + steal) / (double)sysconf(_SC_CLK_TCK);
}

static double own_seconds(void) {
  struct rusage self, children;
  getrusage(RUSAGE_SELF, &self);
  getrusage(RUSAGE_CHILDREN, &children);
  const struct timeval *t[] = {&self.ru_utime, &self.ru_stime, &children.ru_utime, &children.ru_stime};
  double sum = 0;
  for (int i = 0; i < 4; i++) sum += (double)t[i]->tv_sec + 1e-6 * (double)t[i]->tv_usec;
  return sum;
}

void bench_machine_look(bench_machine *machine, bool gpu, int device) {
  memset(machine, 0, sizeof *machine);
  if (gethostname(machine->host, sizeof machine->host - 1) != 0) snprintf(machine->host, sizeof machine->host, "unknown");
  cpu_model(machine->cpu, sizeof machine->cpu);
  machine->cores = usable_cores();
  machine->mhz = 1e-3 * first_number("/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq");
  machine->scaling = machine->mhz > 0;
  if (getloadavg(machine->load, 3) != 3) memset(machine->load, 0, sizeof machine->load);
  const char *why;
  bench_cycles_so_far(&why);
  snprintf(machine->no_cycles, sizeof machine->no_cycles, "%s", why);
  if (gpu) bench_nvml_device(device, machine->gpu, sizeof machine->gpu, machine->driver, sizeof machine->driver, &machine->power_limit);
  if (gpu)
    snprintf(machine->machine_class, sizeof machine->machine_class, "%s", machine->gpu[0] != '\0' ? machine->gpu : "CUDA device");
  else
    snprintf(machine->machine_class, sizeof machine->machine_class, "%s, %d core%s", machine->cpu, machine->cores,
             machine->cores == 1 ? "" : "s");
}

/* ---- what goes on ---- */

void bench_watch_begin(bench_watch *watch, bool gpu, int device) {
  memset(watch, 0, sizeof *watch);
  if (gpu) {
    bench_nvml_state state;
    if (bench_nvml_look(device, &state)) watch->throttle = state.throttle;
  } else {
    watch->pinned = ls_threads_pin(true);
  }
  const char *why;
  watch->cycles_before = bench_cycles_so_far(&why);
  watch->own_before = own_seconds();
  watch->busy_before = busy_seconds();
  watch->elapsed_before = ls_clock_seconds();
}

/* NVML: a clock held down by heat (software's or hardware's guard), by the board's power brake, or by hardware for any reason. A power cap
 * is how a card of 700 W works under load, and is noted only. */
enum { HELD_DOWN = 0x8 | 0x20 | 0x40 | 0x80 };

bool bench_watch_end(bench_watch *watch, bool gpu, int device, bool company, char *reason, int size) {
  /* busy time is counted in ticks, and a core's may be cut twice: a short round is watched a little longer than it takes */
  const double most_others = 0.1, ticks = 2.0 / (double)sysconf(_SC_CLK_TCK), least = 0.2;
  const char *why;
  const double own = own_seconds() - watch->own_before;
  watch->cycles = bench_cycles_so_far(&why) - watch->cycles_before;
  watch->ghz = own > 0 ? 1e-9 * watch->cycles / own : 0;
  if (!gpu) ls_threads_pin(false);
  const double left = gpu ? 0 : least - (ls_clock_seconds() - watch->elapsed_before);
  if (left > 0) nanosleep(&(struct timespec){.tv_nsec = (long)(1e9 * left)}, NULL);
  const double elapsed = ls_clock_seconds() - watch->elapsed_before, cores = (double)sysconf(_SC_NPROCESSORS_ONLN);
  const double busy = busy_seconds() - watch->busy_before - (own_seconds() - watch->own_before) - ticks * cores;
  watch->others = elapsed > 0 && busy > 0 ? busy / (elapsed * cores) : 0;
  *reason = '\0';
  if (gpu) {
    bench_nvml_state state;
    if (!bench_nvml_look(device, &state)) return true; /* a card that tells nothing: noted by the empty fields */
    watch->sm_mhz = state.sm_mhz, watch->memory_mhz = state.memory_mhz, watch->watts = state.watts, watch->celsius = state.celsius;
    watch->throttle |= state.throttle;
    watch->other_processes = state.other_processes;
    char text[BENCH_TEXT];
    bench_throttle_text(watch->throttle, text, sizeof text);
    if (watch->other_processes > (company ? 1 : 0))
      snprintf(reason, (size_t)size, "%d other process%s on the GPU", watch->other_processes, watch->other_processes == 1 ? "" : "es");
    else if ((watch->throttle & HELD_DOWN) != 0)
      snprintf(reason, (size_t)size, "the GPU's clock was held down: %s", text);
  } else if (watch->others > most_others) {
    snprintf(reason, (size_t)size, "other processes had %.0f%% of the cores", 100 * watch->others);
  }
  return *reason == '\0';
}

void bench_throttle_text(unsigned long long reasons, char *text, int size) {
  static const struct {
    unsigned long long bit;
    const char *name;
  } known[] = {{0x1, "idle"},           {0x2, "application clocks"}, {0x4, "power cap"},    {0x8, "hardware"},        {0x10, "sync boost"},
               {0x20, "heat (driver)"}, {0x40, "heat (hardware)"},   {0x80, "power brake"}, {0x100, "display clocks"}};
  int used = snprintf(text, (size_t)size, "none");
  bool first = true;
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    if ((reasons & known[i].bit) == 0) continue;
    if (first) used = 0;
    if (used < size) used += snprintf(text + used, (size_t)(size - used), "%s%s", first ? "" : ", ", known[i].name);
    first = false;
  }
}
