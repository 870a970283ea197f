/* cuda_internal: what the files of gpu/cuda share. */
#ifndef CUDA_INTERNAL_CUH
#define CUDA_INTERNAL_CUH

#include "gpu_backend.h"

namespace LSG_NS {

/* Sets the line of lsg_error_text and returns status. */
lsg_status cuda_fail(lsg_status status, const char *format, ...);

void *cuda_stream_of(lsg_stream stream); /* a cudaStream_t */

/* What the device in use gives to kernels that only some devices run. */
typedef struct {
  int major, multiprocessors, shared_bytes; /* of compute capability; that a block can have after opting in */
  bool portable;                            /* LOCKSTEP_PORTABLE is set: only what the emulator runs too is wanted */
  bool hopper;                              /* compute capability 9.0, and not portable */
} cuda_device;

/* Asks it; false where the runtime does not answer (cudaGetLastError says why). Not for every launch: callers keep the answer. */
bool cuda_device_ask(cuda_device *device);

}  // namespace LSG_NS

#endif
