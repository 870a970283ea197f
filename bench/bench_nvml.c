#include "bench_nvml.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef void *nvml_device;
typedef int nvml_return; /* 0: success */

/* nvmlProcessInfo_t of the interface's third version. */
typedef struct {
  unsigned pid;
  unsigned long long used_memory;
  unsigned gpu_instance, compute_instance;
} nvml_process;

enum { CLOCK_SM = 1, CLOCK_MEMORY = 2, SENSOR_GPU = 0, MOST_PROCESSES = 64 };

static struct {
  bool tried, usable;
  nvml_return (*init)(void);
  nvml_return (*by_index)(unsigned, nvml_device *);
  nvml_return (*name)(nvml_device, char *, unsigned);
  nvml_return (*driver)(char *, unsigned);
  nvml_return (*clock)(nvml_device, int, unsigned *);
  nvml_return (*power)(nvml_device, unsigned *);
  nvml_return (*power_limit)(nvml_device, unsigned *);
  nvml_return (*temperature)(nvml_device, int, unsigned *);
  nvml_return (*throttle)(nvml_device, unsigned long long *);
  nvml_return (*processes)(nvml_device, unsigned *, nvml_process *);
} nvml;

static bool load(void) {
  if (nvml.tried) return nvml.usable;
  nvml.tried = true;
  void *library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL); /* stays: there is one a process */
  if (library == NULL) return false;
  const struct {
    void *to;
    const char *name;
  } wanted[] = {
      {&nvml.init, "nvmlInit_v2"},
      {&nvml.by_index, "nvmlDeviceGetHandleByIndex_v2"},
      {&nvml.name, "nvmlDeviceGetName"},
      {&nvml.driver, "nvmlSystemGetDriverVersion"},
      {&nvml.clock, "nvmlDeviceGetClockInfo"},
      {&nvml.power, "nvmlDeviceGetPowerUsage"},
      {&nvml.power_limit, "nvmlDeviceGetEnforcedPowerLimit"},
      {&nvml.temperature, "nvmlDeviceGetTemperature"},
      {&nvml.throttle, "nvmlDeviceGetCurrentClocksThrottleReasons"},
      {&nvml.processes, "nvmlDeviceGetComputeRunningProcesses_v3"},
  };
  for (size_t i = 0; i < sizeof wanted / sizeof *wanted; i++) {
    void *symbol = dlsym(library, wanted[i].name);
    if (symbol == NULL) return false;
    memcpy(wanted[i].to, &symbol, sizeof symbol); /* POSIX: a function's address fits */
  }
  nvml.usable = nvml.init() == 0;
  return nvml.usable;
}

/* CUDA_VISIBLE_DEVICES=3,1 makes device 0 the card 3. */
static unsigned card_of(int device) {
  const char *visible = getenv("CUDA_VISIBLE_DEVICES");
  for (int i = 0; visible != NULL && *visible >= '0' && *visible <= '9'; i++) {
    char *end;
    const unsigned long card = strtoul(visible, &end, 10);
    if (i == device) return (unsigned)card;
    if (*end != ',') break;
    visible = end + 1;
  }
  return (unsigned)device;
}

static bool open_device(int device, nvml_device *handle) { return load() && nvml.by_index(card_of(device), handle) == 0; }

bool bench_nvml_device(int device, char *name, size_t name_size, char *driver, size_t driver_size, double *power_limit) {
  nvml_device handle;
  unsigned milliwatts = 0;
  if (!open_device(device, &handle)) return false;
  if (nvml.name(handle, name, (unsigned)name_size) != 0) name[0] = '\0';
  if (nvml.driver(driver, (unsigned)driver_size) != 0) driver[0] = '\0';
  *power_limit = nvml.power_limit(handle, &milliwatts) == 0 ? 1e-3 * milliwatts : 0;
  return true;
}

bool bench_nvml_look(int device, bench_nvml_state *state) {
  nvml_device handle;
  unsigned value = 0, count = MOST_PROCESSES;
  nvml_process process[MOST_PROCESSES];
  memset(state, 0, sizeof *state);
  if (!open_device(device, &handle)) return false;
  if (nvml.clock(handle, CLOCK_SM, &value) == 0) state->sm_mhz = value;
  if (nvml.clock(handle, CLOCK_MEMORY, &value) == 0) state->memory_mhz = value;
  if (nvml.power(handle, &value) == 0) state->watts = 1e-3 * value;
  if (nvml.temperature(handle, SENSOR_GPU, &value) == 0) state->celsius = value;
  if (nvml.throttle(handle, &state->throttle) != 0) state->throttle = 0;
  if (nvml.processes(handle, &count, process) != 0) count = 0;
  /* in a container process numbers are those of the host, or none are told: then one of them is taken to be this one */
  bool self = false;
  for (unsigned i = 0; i < count; i++) self = self || process[i].pid == (unsigned)getpid();
  state->other_processes = (int)count - (self || count > 0 ? 1 : 0);
  return true;
}
