/* gpu_ring.cu: copies between dense rows and ring slots. One block a (row, layer): the slot is worked out once, channels are contiguous. */
#include "gpu_ring.h"

namespace LSG_NS {

enum { RING_THREADS = 256 };

/* Grid (rows, layers). to_ring: rows -> slots, else slots -> rows. */
template <bool to_ring>
LSG_KERNEL(RING_THREADS)
void ring_copy_kernel(ls_gpu_ring ring, ls_gpu_kv_rows rows) {
  int64_t row = lsg_block_x(), layer = lsg_block_y(), slot = ring_slot(ring, row);
  for (int which = 0; which < 2; which++) {
    uint16_t *dense = which ? rows.v : rows.k, *in_ring = ring_place(ring, which ? ring.v : ring.k, layer, slot, 0);
    if (!dense) continue;
    dense += layer * rows.layer_stride + row * rows.row_stride;
    const uint16_t *from = to_ring ? dense : in_ring;
    uint16_t *to = to_ring ? in_ring : dense;
    for (int64_t c = lsg_thread(); c < ring.kv_dim; c += RING_THREADS) to[c] = from[c];
  }
}

lsg_status ls_gpu_ring_scatter(const ls_gpu_ring *ring, const ls_gpu_kv_rows *from, int64_t rows, lsg_stream stream) {
  return LSG_LAUNCH(ring_copy_kernel<true>, lsg_grid(rows, ring->layers), RING_THREADS, 0, stream, *ring, *from);
}

lsg_status ls_gpu_ring_gather(const ls_gpu_kv_rows *to, const ls_gpu_ring *ring, int64_t rows, lsg_stream stream) {
  return LSG_LAUNCH(ring_copy_kernel<false>, lsg_grid(rows, ring->layers), RING_THREADS, 0, stream, *ring, *to);
}

}  // namespace LSG_NS
