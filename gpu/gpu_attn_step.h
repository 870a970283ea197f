/* gpu_attn_step: what of a forward changes from step to step, in device memory. Kernels of a captured graph read it from there, so that one
 * graph serves every position of its bucket (a power of two of n). What is fixed in a graph (m, sizes, strides, weights) is an argument.
 *
 * Widths: `n_most` is the bucket's largest n, the leading dimension of scores and masks; `k_most` = min(index_topk, n_most), that of
 * selections. Elements past the step's own n or k are written so that nothing reads them: -inf, 0, -1. */
#ifndef GPU_ATTN_STEP_H
#define GPU_ATTN_STEP_H

#include "gpu_backend.h"

namespace LSG_NS {

typedef struct {
  int64_t start_pos;
  int64_t ratio;                  /* 0: no compressed rows */
  int64_t n;                      /* visible compressed rows of the last query, (start_pos + m) / ratio: rows_b's rows */
  int64_t g, first_row;           /* latents that this step makes (decode: 0 or 1), and the cache row of the first */
  int64_t rows_a;                 /* rows of the first row set: m at start_pos 0, else window_size */
  const uint16_t *compress_cache; /* rows_b [n, head_dim]: the published cache; NULL where n is 0 */
  const uint16_t *index_cache;    /* keys [n, index_head_dim] that an index source scores against; NULL where it scores none */
} ls_gpu_attn_step;

/* Position of query t of the step; rows that query t sees: (start_pos + t + 1) / ratio. */
LSG_DEVICE int64_t attn_visible(const ls_gpu_attn_step *s, int64_t t) { return s->ratio > 0 ? (s->start_pos + t + 1) / s->ratio : 0; }

}  // namespace LSG_NS

#endif
