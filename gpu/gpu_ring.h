/* gpu_ring: rows of K and V in and out of the ring slots of their positions (layers.md, dflash_context_kv 3).
 *
 * Kernels read the first position from device memory (`base`), so that one captured graph serves every round of the same row count. Row r
 * of a run lies in slot (base + r) mod capacity: a run that crosses the end of the ring goes on at slot 0 within the same launch. */
#ifndef GPU_RING_H
#define GPU_RING_H

#include "gpu_backend.h"

namespace LSG_NS {

/* Device pointers. K and V rings are [layers, capacity, kv_dim] each. */
typedef struct {
  uint16_t *k, *v;
  const int64_t *base; /* position of row 0 */
  int64_t layers, capacity, kv_dim;
} ls_gpu_ring;

/* Where K and V rows lie outside the rings: row r of layer l starts at k + l * layer_stride + r * row_stride (v alike), in elements. */
typedef struct {
  uint16_t *k, *v;
  int64_t layer_stride, row_stride;
} ls_gpu_kv_rows;

/* The slot of a row of the run. */
LSG_DEVICE int64_t ring_slot(const ls_gpu_ring &ring, int64_t row) { return (*ring.base + row) % ring.capacity; }

/* Element (layer, slot, channel) of one of the rings. */
LSG_DEVICE uint16_t *ring_place(const ls_gpu_ring &ring, uint16_t *which, int64_t layer, int64_t slot, int64_t channel) {
  return which + (layer * ring.capacity + slot) * ring.kv_dim + channel;
}

/* rows <= ring.capacity. A NULL k or v is left out. */
lsg_status ls_gpu_ring_scatter(const ls_gpu_ring *ring, const ls_gpu_kv_rows *from, int64_t rows, lsg_stream stream);
lsg_status ls_gpu_ring_gather(const ls_gpu_kv_rows *to, const ls_gpu_ring *ring, int64_t rows, lsg_stream stream);

}  // namespace LSG_NS

#endif
