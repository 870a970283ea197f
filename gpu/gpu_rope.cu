/* gpu_rope.cu: one warp a (layer, row, head). The second pass of a lane reads only elements that this lane writes, so the head is
 * normalised and rotated where it lies, at any head_dim. */
#include "gpu_rope.h"

#include <math.h>

namespace LSG_NS {

enum { ROPE_THREADS = 128, ROPE_WARPS = ROPE_THREADS / 32 };

template <int type>
LSG_KERNEL(ROPE_THREADS)
void k_norm_rope_kernel(ls_gpu_ring ring, const float *w, const float *freq, float eps, int64_t rows, int64_t head_dim) {
  int64_t heads = ring.kv_dim / head_dim, half = head_dim / 2;
  int64_t task = lsg_block_x() * ROPE_WARPS + lsg_warp();
  if (task >= ring.layers * rows * heads) return; /* the whole warp: one task a warp */
  int64_t head = task % heads, row = task / heads % rows, layer = task / heads / rows;
  uint16_t *k = ring_place(ring, ring.k, layer, ring_slot(ring, row), head * head_dim);
  const float *weight = w + layer * head_dim;

  float sum = 0.0f;
  for (int64_t i = lsg_lane(); i < half; i += 32) {
    float a = lsg_act<type>::widen(k[i]), b = lsg_act<type>::widen(k[i + half]);
    sum += a * a;
    sum += b * b;
  }
  sum = lsg_warp_sum(sum);
  float scale = lsg_div(1.0f, lsg_sqrt(lsg_div(sum, (float)head_dim) + eps));

  float position = (float)(*ring.base + row); /* nearest-even: above 2^24 several positions share an angle */
  for (int64_t i = lsg_lane(); i < half; i += 32) {
    float a = lsg_act<type>::widen(lsg_act<type>::round(lsg_act<type>::widen(k[i]) * scale * weight[i]));
    float b = lsg_act<type>::widen(lsg_act<type>::round(lsg_act<type>::widen(k[i + half]) * scale * weight[i + half]));
    float s, c;
    lsg_sincos(position * freq[i], &s, &c);
    k[i] = lsg_act<type>::round(a * c - b * s);
    k[i + half] = lsg_act<type>::round(b * c + a * s);
  }
}

void ls_gpu_rope_freq(float *freq, int64_t dim, double theta) {
  for (int64_t i = 0; i < dim / 2; i++) {
    float e = (float)(2 * i) / (float)dim;
    float t = (float)pow(theta, (double)e);
    freq[i] = 1.0f / t;
  }
}

lsg_status ls_gpu_k_norm_rope(bool bf16, const ls_gpu_ring *ring, const float *w, const float *freq, float eps, int64_t rows,
                              int64_t head_dim, lsg_stream stream) {
  int64_t tasks = ring->layers * rows * (ring->kv_dim / head_dim);
  auto kernel = bf16 ? k_norm_rope_kernel<LSG_BF16> : k_norm_rope_kernel<LSG_F16>;
  return LSG_LAUNCH(kernel, lsg_grid((tasks + ROPE_WARPS - 1) / ROPE_WARPS), ROPE_THREADS, 0, stream, *ring, w, freq, eps, rows, head_dim);
}

}  // namespace LSG_NS
