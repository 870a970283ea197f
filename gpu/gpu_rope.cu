/* gpu_rope.cu: one warp a (layer, row, head). A lane writes only what it alone has read, so the head is normalised and rotated where it
 * lies, at any head_dim. */
#include "gpu_rope.h"

#include <math.h>

namespace LSG_NS {

enum { ROPE_THREADS = 128, ROPE_WARPS = ROPE_THREADS / 32 };

/* Pair i of a head: elements i and i + head_dim / 2. pairs: that a lane has, held in registers, 0: any number, read a second time. */
template <int type, int pairs>
LSG_KERNEL(ROPE_THREADS)
void k_norm_rope_kernel(ls_gpu_ring ring, const float *w, const float *freq, float eps, int64_t rows, int64_t head_dim) {
  using A = lsg_act<type>;
  const int64_t heads = ring.kv_dim / head_dim, half = head_dim / 2;
  const int64_t task = lsg_block_x() * ROPE_WARPS + lsg_warp(), tasks = ring.layers * rows * heads;
  const bool exists = task < tasks; /* the whole warp: one task a warp */
  const int64_t head = task % heads, row = task / heads % rows, layer = exists ? task / heads / rows : 0;
  uint16_t *k = ring_place(ring, ring.k, layer, ring_slot(ring, row), head * head_dim);
  const float *weight = w + layer * head_dim;
  const float position = (float)(*ring.base + row); /* nearest-even: above 2^24 several positions share an angle */

  /* what no launch writes comes before the wait: weights, positions, angles */
  float sine[pairs + 1], cosine[pairs + 1], w_low[pairs + 1], w_high[pairs + 1], low[pairs + 1], high[pairs + 1];
  LSG_UNROLL
  for (int j = 0; j < pairs; j++) {
    const int64_t i = j * 32 + lsg_lane();
    w_low[j] = i < half ? weight[i] : 0.0f;
    w_high[j] = i < half ? weight[i + half] : 0.0f;
    lsg_sincos(i < half ? position * freq[i] : 0.0f, &sine[j], &cosine[j]);
  }
  lsg_wait_before();
  lsg_let_next();
  if (!exists) return;

  float sum = 0.0f;
  LSG_UNROLL
  for (int j = 0; j < pairs; j++) {
    const int64_t i = j * 32 + lsg_lane();
    low[j] = i < half ? A::widen(k[i]) : 0.0f;
    high[j] = i < half ? A::widen(k[i + half]) : 0.0f;
  }
  LSG_UNROLL
  for (int j = 0; j < pairs; j++) {
    sum += low[j] * low[j];
    sum += high[j] * high[j];
  }
  for (int64_t i = lsg_lane(); pairs == 0 && i < half; i += 32) {
    const float a = A::widen(k[i]), b = A::widen(k[i + half]);
    sum += a * a;
    sum += b * b;
  }
  const float scale = lsg_div(1.0f, lsg_sqrt(lsg_div(lsg_warp_sum(sum), (float)head_dim) + eps));

  auto turn = [&](int64_t i, float x, float y, float wx, float wy, float s, float c) {
    const float a = A::widen(A::round(x * scale * wx)), b = A::widen(A::round(y * scale * wy));
    k[i] = A::round(a * c - b * s);
    k[i + half] = A::round(b * c + a * s);
  };
  LSG_UNROLL
  for (int j = 0; j < pairs; j++) {
    const int64_t i = j * 32 + lsg_lane();
    if (i < half) turn(i, low[j], high[j], w_low[j], w_high[j], sine[j], cosine[j]);
  }
  for (int64_t i = lsg_lane(); pairs == 0 && i < half; i += 32) {
    float s, c;
    lsg_sincos(position * freq[i], &s, &c);
    turn(i, A::widen(k[i]), A::widen(k[i + half]), weight[i], weight[i + half], s, c);
  }
}

template <int type>
static lsg_status launch_k_norm_rope(const ls_gpu_ring *ring, const float *w, const float *freq, float eps, int64_t rows, int64_t head_dim,
                                     lsg_stream stream) {
  const int64_t tasks = ring->layers * rows * (ring->kv_dim / head_dim);
  auto kernel = k_norm_rope_kernel<type, 0>;
  if (head_dim <= 128) kernel = k_norm_rope_kernel<type, 2>;
  if (head_dim <= 64) kernel = k_norm_rope_kernel<type, 1>;
  return LSG_LAUNCH_EARLY(kernel, lsg_grid((tasks + ROPE_WARPS - 1) / ROPE_WARPS), ROPE_THREADS, 0, stream, *ring, w, freq, eps, rows,
                          head_dim);
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
  return bf16 ? launch_k_norm_rope<LSG_BF16>(ring, w, freq, eps, rows, head_dim, stream)
              : launch_k_norm_rope<LSG_F16>(ring, w, freq, eps, rows, head_dim, stream);
}

}  // namespace LSG_NS
