#include "ref_window.h"

void ls_ref_window_write(const ls_tensor *ring, const ls_tensor *kv, const ls_attn_config *config, const ls_attn_plan *plan) {
  const int64_t window = config->window_size, m = plan->m;
  for (int64_t t = m > window ? m - window : 0; t < m; t++) {
    const ls_tensor slot = ls_tensor_at(ring, (plan->start_pos + t) % window), row = ls_tensor_at(kv, t);
    ls_tensor_copy(&slot, &row, NULL); /* types and shapes alike: it cannot fail */
  }
}

void ls_ref_window_idx(const ls_tensor *idx, const ls_attn_config *config, const ls_attn_plan *plan) {
  const int64_t window = config->window_size, wk = idx->dim[1];
  for (int64_t t = 0; t < idx->dim[0]; t++) {
    const ls_tensor row = ls_tensor_at(idx, t);
    int32_t *entry = row.data;
    for (int64_t j = 0; j < wk; j++) {
      int64_t seen; /* a row of kv, or a slot of the ring */
      bool empty;
      if (plan->start_pos == 0) {
        seen = (t - window + 1 > 0 ? t - window + 1 : 0) + j;
        empty = seen > t;
      } else {
        const int64_t position = plan->start_pos + t;
        seen = (position % window + 1 + j) % window; /* the slot after the newest is the oldest */
        empty = seen > position;
      }
      entry[j * row.stride[0]] = empty ? -1 : (int32_t)seen;
    }
  }
}
