/* bench_nvml: what NVIDIA's management library tells of a card. The library comes with the driver, not with the toolkit, so it is loaded
 * when it is asked for; where it is not there, nothing is told. Only the calls of its stable interface that are used here are declared. */
#ifndef BENCH_NVML_H
#define BENCH_NVML_H

#include <stdbool.h>
#include <stddef.h>

typedef struct {
  double sm_mhz, memory_mhz, watts, celsius;
  unsigned long long throttle; /* nvmlClocksThrottleReasons */
  int other_processes;         /* with a compute context, besides this one */
} bench_nvml_state;

/* device: CUDA's index. CUDA_VISIBLE_DEVICES, where it is set to indices, is followed; NVML counts in bus order, as CUDA does where
 * CUDA_DEVICE_ORDER says PCI_BUS_ID or all cards are alike. false: nothing is told. */
bool bench_nvml_device(int device, char *name, size_t name_size, char *driver, size_t driver_size, double *power_limit);
bool bench_nvml_look(int device, bench_nvml_state *state);

#endif
