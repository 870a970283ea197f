/* cuda_internal: what the files of gpu/cuda share. */
#ifndef CUDA_INTERNAL_CUH
#define CUDA_INTERNAL_CUH

#include "gpu_backend.h"

namespace LSG_NS {

/* Sets the line of lsg_error_text and returns status. */
lsg_status cuda_fail(lsg_status status, const char *format, ...);

void *cuda_stream_of(lsg_stream stream); /* a cudaStream_t */

}  // namespace LSG_NS

#endif
