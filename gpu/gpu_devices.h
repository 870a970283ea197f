/* gpu_devices: the CUDA devices of this machine, for --version: what is there, whether or not a path can use it. */
#ifndef GPU_DEVICES_H
#define GPU_DEVICES_H

#ifdef __cplusplus
extern "C" {
#endif

enum { LS_GPU_DEVICES = 16 };

typedef struct {
  char name[256];
  int major, minor; /* compute capability */
  double bytes;     /* of global memory */
} ls_gpu_device;

typedef struct {
  int runtime, driver; /* as the toolkit numbers versions: 13010 is 13.1; 0: not in this build, no driver */
  int n;
  ls_gpu_device device[LS_GPU_DEVICES];
} ls_gpu_devices;

/* Never fails: what is not found is zero. */
void ls_gpu_devices_find(ls_gpu_devices *devices);
void ls_gpu_devices_cuda(ls_gpu_devices *devices); /* only where the build has the cuda backend */

#ifdef __cplusplus
}
#endif
#endif
