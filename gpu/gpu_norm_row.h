/* gpu_norm_row: RMSNorm of one row by one block, for the kernels that have such rows among other work. */
#ifndef GPU_NORM_ROW_H
#define GPU_NORM_ROW_H

#include "gpu_backend.h"

namespace LSG_NS {

enum {
  NORM_THREADS = 256,
  NORM_WARPS = NORM_THREADS / 32,
  NORM_UNIT = 8,                                   /* elements of a load */
  NORM_HELD = 3,                                   /* units of a thread that stay in registers, and their weights */
  NORM_MOST = NORM_HELD * NORM_THREADS * NORM_UNIT /* of a row that does */
};

/* Whether a row of n elements (16-byte aligned, as rows of a dense array are where n is a multiple of 8) is read once. */
static inline bool norm_is_held(int64_t n) { return n % NORM_UNIT == 0 && n <= NORM_MOST; }

/* The sum of all threads' v in every thread: warps by butterfly, their sums in order. warp_sum: shared, [NORM_WARPS]. */
LSG_DEVICE float norm_block_sum(float v, float *warp_sum) {
  v = lsg_warp_sum(v);
  if (lsg_lane() == 0) warp_sum[lsg_warp()] = v;
  lsg_barrier();
  float total = 0.0f;
  LSG_UNROLL
  for (int i = 0; i < NORM_WARPS; i++) total += warp_sum[i];
  return total;
}

/* y [n] = x [n] / rms(x) * w [n], rounded once; y may be x. The whole block of NORM_THREADS, once in a kernel launched early: weights are
 * fetched before lsg_wait_before. held: norm_is_held(n). warp_sum as above. */
template <int type, bool held>
LSG_DEVICE void norm_row(uint16_t *y, const uint16_t *x, const float *w, float eps, int64_t n, float *warp_sum) {
  if constexpr (held) {
    float v[NORM_HELD][NORM_UNIT], weight[NORM_HELD][NORM_UNIT];
    LSG_UNROLL
    for (int i = 0; i < NORM_HELD; i++) {
      const int64_t at = (int64_t)(i * NORM_THREADS + lsg_thread()) * NORM_UNIT;
      LSG_UNROLL
      for (int e = 0; e < NORM_UNIT; e += 4) {
        const lsg_u32x4 four = at < n ? lsg_load16(w + at + e) : lsg_zero16();
        weight[i][e] = lsg_from_bits(four.x), weight[i][e + 1] = lsg_from_bits(four.y);
        weight[i][e + 2] = lsg_from_bits(four.z), weight[i][e + 3] = lsg_from_bits(four.w);
      }
    }
    lsg_wait_before();
    float sum = 0.0f;
    lsg_u32x4 word[NORM_HELD];
    LSG_UNROLL
    for (int i = 0; i < NORM_HELD; i++) { /* all loads before the first use */
      const int64_t at = (int64_t)(i * NORM_THREADS + lsg_thread()) * NORM_UNIT;
      word[i] = at < n ? lsg_load16(x + at) : lsg_zero16();
    }
    LSG_UNROLL
    for (int i = 0; i < NORM_HELD; i++) {
      const uint32_t pair[4] = {word[i].x, word[i].y, word[i].z, word[i].w};
      LSG_UNROLL
      for (int e = 0; e < 4; e++) v[i][2 * e] = lsg_act<type>::widen_lo(pair[e]), v[i][2 * e + 1] = lsg_act<type>::widen_hi(pair[e]);
      LSG_UNROLL
      for (int e = 0; e < NORM_UNIT; e++) sum += v[i][e] * v[i][e];
    }
    const float scale = lsg_div(1.0f, lsg_sqrt(lsg_div(norm_block_sum(sum, warp_sum), (float)n) + eps));
    LSG_UNROLL
    for (int i = 0; i < NORM_HELD; i++) {
      const int64_t at = (int64_t)(i * NORM_THREADS + lsg_thread()) * NORM_UNIT;
      if (at >= n) continue;
      uint32_t pair[4];
      LSG_UNROLL
      for (int e = 0; e < 4; e++)
        pair[e] = lsg_act<type>::pack(v[i][2 * e] * scale * weight[i][2 * e], v[i][2 * e + 1] * scale * weight[i][2 * e + 1]);
      const lsg_u32x4 packed = {pair[0], pair[1], pair[2], pair[3]};
      lsg_store16(y + at, packed);
    }
  } else {
    lsg_wait_before();
    float sum = 0.0f;
    for (int64_t i = lsg_thread(); i < n; i += NORM_THREADS) {
      const float v = lsg_act<type>::widen(x[i]);
      sum += v * v;
    }
    const float scale = lsg_div(1.0f, lsg_sqrt(lsg_div(norm_block_sum(sum, warp_sum), (float)n) + eps));
    for (int64_t i = lsg_thread(); i < n; i += NORM_THREADS) y[i] = lsg_act<type>::round(lsg_act<type>::widen(x[i]) * scale * w[i]);
  }
}

}  // namespace LSG_NS

#endif
