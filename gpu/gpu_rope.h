/* gpu_rope: k_norm and k_rope in one pass over each K head in its ring slot (layers.md, dflash_context_kv 4 and 5).
 *
 *   n = round(rms_norm(slot, w, eps))                      rounded to the activation type, as the stage k_norm would be stored
 *   (slot[i], slot[i + d/2]) = round(n[i] cos - n[i + d/2] sin, n[i + d/2] cos + n[i] sin),  angle = (float)position * freq[i] in float32
 *
 * d = head_dim, NeoX pairs over the whole head, position = base + row. */
#ifndef GPU_ROPE_H
#define GPU_ROPE_H

#include "gpu_ring.h"

namespace LSG_NS {

/* freq[i], i < dim / 2, as layers.md rounds it: t = (float)pow(theta, (double)((float)(2i) / (float)dim)), freq = 1 / t. Host memory. */
void ls_gpu_rope_freq(float *freq, int64_t dim, double theta);

/* w [layers, head_dim] and freq [head_dim / 2] float32, device pointers. head_dim even and a divisor of ring->kv_dim. In place on the
 * K ring's rows [*base, *base + rows); touches no other slot. */
lsg_status ls_gpu_k_norm_rope(bool bf16, const ls_gpu_ring *ring, const float *w, const float *freq, float eps, int64_t rows,
                              int64_t head_dim, lsg_stream stream);

}  // namespace LSG_NS

#endif
