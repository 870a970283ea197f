/* gpu_norm: RMSNorm of whole rows, y = (x * rsqrt(mean(x^2) + eps)) * w, float32 inside, rounded once (layers.md, "Shared definitions"). */
#ifndef GPU_NORM_H
#define GPU_NORM_H

#include "gpu_backend.h"

namespace LSG_NS {

/* y, x [rows, n] in the activation type (bf16, else f16), w [n] float32; device pointers; y may be x. The sum's order depends on n alone,
 * so a row's result does not depend on the rows beside it. */
lsg_status ls_gpu_rms_norm(bool bf16, uint16_t *y, const uint16_t *x, const float *w, float eps, int64_t rows, int64_t n,
                           lsg_stream stream);

}  // namespace LSG_NS

#endif
