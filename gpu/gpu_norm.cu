/* gpu_norm.cu: one block a row. */
#include "gpu_norm.h"

#include "gpu_norm_row.h"

namespace LSG_NS {

template <int type, bool held>
LSG_KERNEL(NORM_THREADS)
void rms_norm_kernel(uint16_t *y, const uint16_t *x, const float *w, float eps, int64_t n) {
  LSG_SHARED(float, warp_sum, NORM_WARPS);
  lsg_let_next();
  norm_row<type, held>(y + lsg_block_x() * n, x + lsg_block_x() * n, w, eps, n, warp_sum);
}

lsg_status ls_gpu_rms_norm(bool bf16, uint16_t *y, const uint16_t *x, const float *w, float eps, int64_t rows, int64_t n,
                           lsg_stream stream) {
  auto kernel = bf16 ? rms_norm_kernel<LSG_BF16, false> : rms_norm_kernel<LSG_F16, false>;
  if (norm_is_held(n)) kernel = bf16 ? rms_norm_kernel<LSG_BF16, true> : rms_norm_kernel<LSG_F16, true>;
  return LSG_LAUNCH_EARLY(kernel, lsg_grid(rows), NORM_THREADS, 0, stream, y, x, w, eps, n);
}

}  // namespace LSG_NS
