/* gpu_registry.c: the GPU backends of this build, by name. */
#include <string.h>

#include "gpu_devices.h"
#include "gpu_path.h"

const ls_path *ls_path_find(const char *name) {
  if (name && strcmp(name, "emu") == 0) return &ls_path_emu;
#ifdef LOCKSTEP_HAVE_CUDA
  if (name && strcmp(name, "cuda") == 0) return &ls_path_cuda;
#endif
  return NULL;
}

ls_status ls_path_available(const char *name, ls_error *err) {
  if (name && strcmp(name, "emu") == 0) return ls_gpu_available_emu(err);
  if (name && strcmp(name, "cuda") == 0) {
#ifdef LOCKSTEP_HAVE_CUDA
    return ls_gpu_available_cuda(err);
#else
    return ls_fail(err, LS_UNAVAILABLE, "path cuda: this build has no cuda backend (configured without nvcc)");
#endif
  }
  return ls_fail(err, LS_UNAVAILABLE, "path %s: no GPU backend of that name (known: cuda, emu)", name ? name : "(none)");
}

void ls_gpu_devices_find(ls_gpu_devices *devices) {
  memset(devices, 0, sizeof *devices);
#ifdef LOCKSTEP_HAVE_CUDA
  ls_gpu_devices_cuda(devices);
#endif
}
