/* gpu_norm.cu: one block a row. Each thread sums a fixed stride of the row, warps reduce by butterfly, the warps' sums are added in order.
 */
#include "gpu_norm.h"

namespace LSG_NS {

enum { NORM_THREADS = 256, NORM_WARPS = NORM_THREADS / 32 };

template <int type>
LSG_KERNEL(NORM_THREADS)
void rms_norm_kernel(uint16_t *y, const uint16_t *x, const float *w, float eps, int64_t n) {
  LSG_SHARED(float, warp_sum, NORM_WARPS);
  const uint16_t *from = x + lsg_block_x() * n;
  uint16_t *to = y + lsg_block_x() * n;

  float sum = 0.0f;
  for (int64_t i = lsg_thread(); i < n; i += NORM_THREADS) {
    float v = lsg_act<type>::widen(from[i]);
    sum += v * v;
  }
  sum = lsg_warp_sum(sum);
  if (lsg_lane() == 0) warp_sum[lsg_warp()] = sum;
  lsg_barrier();
  float total = 0.0f;
  LSG_UNROLL
  for (int i = 0; i < NORM_WARPS; i++) total += warp_sum[i];

  float scale = lsg_div(1.0f, lsg_sqrt(lsg_div(total, (float)n) + eps));
  for (int64_t i = lsg_thread(); i < n; i += NORM_THREADS) to[i] = lsg_act<type>::round(lsg_act<type>::widen(from[i]) * scale * w[i]);
}

lsg_status ls_gpu_rms_norm(bool bf16, uint16_t *y, const uint16_t *x, const float *w, float eps, int64_t rows, int64_t n,
                           lsg_stream stream) {
  auto kernel = bf16 ? rms_norm_kernel<LSG_BF16> : rms_norm_kernel<LSG_F16>;
  return LSG_LAUNCH(kernel, lsg_grid(rows), NORM_THREADS, 0, stream, y, x, w, eps, n);
}

}  // namespace LSG_NS
