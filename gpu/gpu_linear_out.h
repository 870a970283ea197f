/* gpu_linear_out.h: where the rows of a product go. out_line is worked out once a row, out_place once a run of channels: eight channels
 * from a multiple of eight lie side by side where the sizes are multiples of eight. */
#ifndef GPU_LINEAR_OUT_H
#define GPU_LINEAR_OUT_H

#include "gpu_linear.h"

namespace LSG_NS {

typedef struct {
  uint16_t *y;
  int64_t ld;
} dense_out;

/* Channels of several projections in turn, each in memory of its own, dense. Unused parts end where the last one does. */
typedef struct {
  uint16_t *y[LS_GPU_MOST_PARTS];
  int64_t n[LS_GPU_MOST_PARTS], end[LS_GPU_MOST_PARTS]; /* end: the channel after its last */
} parts_out;

/* A row's line is worked out once: its index, or the slot of its position. */
LSG_DEVICE int64_t out_line(const dense_out &, int64_t row) { return row; }
LSG_DEVICE int64_t out_line(const parts_out &, int64_t row) { return row; }
LSG_DEVICE int64_t out_line(const ls_gpu_ring &out, int64_t row) { return ring_slot(out, row); }

LSG_DEVICE uint16_t *out_place(const dense_out &out, int64_t line, int64_t channel) { return out.y + line * out.ld + channel; }

LSG_DEVICE uint16_t *out_place(const parts_out &out, int64_t line, int64_t channel) {
  uint16_t *place = out.y[0] + line * out.n[0] + channel;
  LSG_UNROLL
  for (int i = 1; i < LS_GPU_MOST_PARTS; i++) {
    if (channel >= out.end[i - 1]) place = out.y[i] + line * out.n[i] + (channel - out.end[i - 1]);
  }
  return place;
}

/* Output channels of [layers, 2, kv_dim]: K before V. */
LSG_DEVICE uint16_t *out_place(const ls_gpu_ring &out, int64_t line, int64_t channel) {
  int64_t layer = channel / (2 * out.kv_dim), rest = channel % (2 * out.kv_dim);
  uint16_t *which = rest < out.kv_dim ? out.k : out.v;
  return ring_place(out, which, layer, line, rest < out.kv_dim ? rest : rest - out.kv_dim);
}

/* The columns of group g of a grouped product; the others have one group. */
LSG_DEVICE void out_group(dense_out &out, int64_t first_channel) { out.y += first_channel; }
LSG_DEVICE void out_group(parts_out &, int64_t) {}
LSG_DEVICE void out_group(ls_gpu_ring &, int64_t) {}

}  // namespace LSG_NS

#endif
