/* The devices that the CUDA runtime finds. */
#include <stdio.h>

#include "../gpu_devices.h"
#include "cuda_internal.cuh"

extern "C" void ls_gpu_devices_cuda(ls_gpu_devices *devices) {
  int found = 0;
  cudaRuntimeGetVersion(&devices->runtime);
  if (cudaDriverGetVersion(&devices->driver) != cudaSuccess) devices->driver = 0;
  if (cudaGetDeviceCount(&found) != cudaSuccess) found = 0;
  for (int i = 0; i < found && devices->n < LS_GPU_DEVICES; i++) {
    cudaDeviceProp properties;
    if (cudaGetDeviceProperties(&properties, i) != cudaSuccess) continue;
    ls_gpu_device *d = &devices->device[devices->n++];
    snprintf(d->name, sizeof d->name, "%s", properties.name);
    d->major = properties.major, d->minor = properties.minor;
    d->bytes = (double)properties.totalGlobalMem;
  }
}
