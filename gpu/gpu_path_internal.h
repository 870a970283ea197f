/* gpu_path_internal: what the layers of the device path share: the device's handles, uploads, checks of tensors from outside. A layer's
 * file hands out an ls_path of its own, which gpu_path.cu chooses by the config. */
#ifndef GPU_PATH_INTERNAL_H
#define GPU_PATH_INTERNAL_H

#include "../layers/ls_path.h"
#include "gpu_linear.h"

#if defined(__CUDACC__)
#define LS_GPU_NAME    "cuda"
#define LS_GPU_LIBRARY LS_STAGE_OWN /* cuBLASLt: no other path uses it */
#else
#define LS_GPU_NAME    "emu"
#define LS_GPU_LIBRARY LS_STAGE_SHARED /* ls_gemm: the reference uses it too */
#endif

namespace LSG_NS {

extern const ls_path gpu_dflash_path, gpu_attn_path;

typedef struct {
  lsg_stream stream;
  lsg_gemm gemm;
  lsg_mark mark[2];
  uint64_t schedule; /* emu: of the fibers */
  char text[256];    /* what runs, one line */
} gpu_device;

/* Opens the device of the options. On a failure what was opened is there to be closed all the same. */
ls_status gpu_device_open(gpu_device *d, const ls_path_options *options, ls_error *err);
void gpu_device_close(gpu_device *d);

/* Relays a failed call of the backend, its text included. */
ls_status gpu_failed(lsg_status status, ls_error *err);

#define DEVICE_TRY(call)                                                \
  do {                                                                  \
    lsg_status device_status = (call);                                  \
    if (device_status != LSG_OK) return gpu_failed(device_status, err); \
  } while (0)

/* A device buffer that a path will hold from open to close. */
typedef struct {
  void **buffer; /* set by gpu_allocate; 0 bytes: left NULL */
  const char *name;
  size_t bytes;
} gpu_want;

/* All of them, or LS_INTERNAL with the bytes needed. Also fills d->text. */
ls_status gpu_allocate(gpu_device *d, const gpu_want *wanted, size_t n, ls_error *err);

/* Copies values to the device as `type`, nearest-even where a float type differs. t must hold `count` elements. */
ls_status gpu_upload_tensor(gpu_device *d, void *device, ls_dtype type, const ls_tensor *t, const char *name, int64_t count, ls_error *err);

/* What runs a product of this shape, as a stage is reported. */
ls_stage_kind gpu_linear_stage(int64_t rows, int64_t n, int64_t k);

}  // namespace LSG_NS

#endif
