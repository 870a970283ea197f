/* gpu_path: what each backend's build of gpu_path.cu exports. Found by name through ls_path_find (ls_path.h), gpu_registry.c. */
#ifndef GPU_PATH_H
#define GPU_PATH_H

#include "../layers/ls_path.h"

#ifdef __cplusplus
extern "C" {
#endif

extern const ls_path ls_path_emu;
extern const ls_path ls_path_cuda; /* only where the build has the cuda backend */

/* LS_OK where the backend has a device here, else LS_UNAVAILABLE with the reason. */
ls_status ls_gpu_available_emu(ls_error *err);
ls_status ls_gpu_available_cuda(ls_error *err);

#ifdef __cplusplus
}
#endif
#endif
