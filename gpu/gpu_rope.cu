/* gpu_rope.cu: one warp a head. A lane writes only what it alone has read, so the head is normalised and rotated where it
 * lies, at any head_dim. */
#include "gpu_rope.h"

#include <math.h>

namespace LSG_NS {

enum {
  ROPE_THREADS = 128,
  ROPE_WARPS = ROPE_THREADS / 32,
  ROPE_MANY_ROWS = 512, /* from which on a row has a block: fewer leave the device idle */
  ROPE_TABLE = 4096     /* head_dim whose angles a block holds, at most */
};

/* What turns a head, and the weights of its norm. */
typedef struct {
  const float *weight; /* [2 * half] */
  int64_t half;
  float eps;
} k_norm;

/* A lane's weights, of both halves, where it holds its pairs: nothing writes them, so they are fetched before the wait. */
template <int pairs>
struct k_weights {
  float low[pairs + 1], high[pairs + 1];
};

template <int pairs>
LSG_DEVICE k_weights<pairs> k_weights_of(const k_norm &norm) {
  k_weights<pairs> w;
  LSG_UNROLL
  for (int j = 0; j < pairs; j++) {
    const int64_t i = j * 32 + lsg_lane();
    w.low[j] = i < norm.half ? norm.weight[i] : 0.0f;
    w.high[j] = i < norm.half ? norm.weight[i + norm.half] : 0.0f;
  }
  return w;
}

/* One head, k [2 * half], by a warp: RMSNorm, then pair i (elements i and i + half) turned by angle i. turn(i, j, &s, &c): sine and cosine
 * of angle i, the lane's j-th. pairs: that a lane has, held in registers, 0: any number, read a second time. */
template <int type, int pairs, class turn_t>
LSG_DEVICE void k_head(uint16_t *k, const k_norm &norm, const k_weights<pairs> &weights, turn_t turn) {
  using A = lsg_act<type>;
  const int64_t half = norm.half;
  float low[pairs + 1], high[pairs + 1], sum = 0.0f;
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
  const float scale = lsg_div(1.0f, lsg_sqrt(lsg_div(lsg_warp_sum(sum), (float)(2 * half)) + norm.eps));
  auto store = [&](int64_t i, int j, float x, float y, float w_low, float w_high) {
    float s, c;
    turn(i, j, &s, &c);
    const float a = A::widen(A::round(x * scale * w_low)), b = A::widen(A::round(y * scale * w_high));
    k[i] = A::round(a * c - b * s);
    k[i + half] = A::round(b * c + a * s);
  };
  LSG_UNROLL
  for (int j = 0; j < pairs; j++) {
    const int64_t i = j * 32 + lsg_lane();
    if (i < half) store(i, j, low[j], high[j], weights.low[j], weights.high[j]);
  }
  for (int64_t i = lsg_lane(); pairs == 0 && i < half; i += 32)
    store(i, 0, A::widen(k[i]), A::widen(k[i + half]), norm.weight[i], norm.weight[i + half]);
}

/* One warp a (layer, row, head). */
template <int type, int pairs>
LSG_KERNEL(ROPE_THREADS)
void k_norm_rope_kernel(ls_gpu_ring ring, const float *w, const float *freq, float eps, int64_t rows, int64_t head_dim) {
  const int64_t heads = ring.kv_dim / head_dim, half = head_dim / 2;
  const int64_t task = lsg_block_x() * ROPE_WARPS + lsg_warp();
  const bool exists = task < ring.layers * rows * heads; /* the whole warp: one task a warp */
  const int64_t head = task % heads, row = task / heads % rows, layer = exists ? task / heads / rows : 0;
  const float position = (float)(*ring.base + row); /* nearest-even: above 2^24 several positions share an angle */
  uint16_t *k = ring_place(ring, ring.k, layer, ring_slot(ring, row), head * head_dim);

  float sine[pairs + 1], cosine[pairs + 1]; /* no launch writes positions: the angles come before the wait */
  LSG_UNROLL
  for (int j = 0; j < pairs; j++) {
    const int64_t i = j * 32 + lsg_lane();
    lsg_sincos(i < half ? position * freq[i] : 0.0f, &sine[j], &cosine[j]);
  }
  const k_norm norm = {w + layer * head_dim, half, eps};
  const k_weights<pairs> weights = k_weights_of<pairs>(norm);
  lsg_wait_before();
  lsg_let_next();
  if (!exists) return;
  k_head<type, pairs>(k, norm, weights, [&](int64_t i, int j, float *s, float *c) {
    if constexpr (pairs > 0)
      *s = sine[j], *c = cosine[j];
    else
      lsg_sincos(position * freq[i], s, c);
  });
}

/* One block a row: all heads of all layers turn by the same angles, worked out once. */
template <int type, int pairs>
LSG_KERNEL(ROPE_THREADS)
void k_norm_rope_rows_kernel(ls_gpu_ring ring, const float *w, const float *freq, float eps, int64_t head_dim) {
  LSG_DYNAMIC_SHARED(float, sine); /* [half], then as many cosines */
  const int64_t heads = ring.kv_dim / head_dim, half = head_dim / 2, row = lsg_block_x(), slot = ring_slot(ring, row);
  const float position = (float)(*ring.base + row);
  float *cosine = sine + half;
  for (int64_t i = lsg_thread(); i < half; i += ROPE_THREADS) lsg_sincos(position * freq[i], &sine[i], &cosine[i]);
  lsg_wait_before();
  lsg_let_next();
  lsg_barrier();
  for (int64_t task = lsg_warp(); task < ring.layers * heads; task += ROPE_WARPS) {
    const k_norm norm = {w + task / heads * head_dim, half, eps};
    k_head<type, pairs>(ring_place(ring, ring.k, task / heads, slot, task % heads * head_dim), norm, k_weights_of<pairs>(norm),
                        [&](int64_t i, int, float *s, float *c) { *s = sine[i], *c = cosine[i]; });
  }
}

template <int type>
static lsg_status launch_k_norm_rope(const ls_gpu_ring *ring, const float *w, const float *freq, float eps, int64_t rows, int64_t head_dim,
                                     lsg_stream stream) {
  if (rows >= ROPE_MANY_ROWS && head_dim <= ROPE_TABLE) {
    auto kernel = k_norm_rope_rows_kernel<type, 0>;
    if (head_dim <= 128) kernel = k_norm_rope_rows_kernel<type, 2>;
    if (head_dim <= 64) kernel = k_norm_rope_rows_kernel<type, 1>;
    return LSG_LAUNCH_EARLY(kernel, lsg_grid(rows), ROPE_THREADS, (size_t)head_dim * sizeof(float), stream, *ring, w, freq, eps, head_dim);
  }
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
