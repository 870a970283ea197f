/* gpu_indexer: index scores and what is chosen by them (layers.md, attn_v41 8), on the device: no score ever goes to the host.
 *
 * score, mask [m, n_most]; a row's elements past what the query sees are -inf and 0. Same rules, to the bit, as the reference: NaN ranks
 * first, -0 equals +0, ties to the lower position, selections ascending, -1 last. Two runs give identical bytes. */
#ifndef GPU_INDEXER_H
#define GPU_INDEXER_H

#include "gpu_attn_step.h"

namespace LSG_NS {

/* score[t][j] = bf16(sum_h bf16(relu(bf16(q[t][h] . key[j])) * w[t][h])), float32 sums, +0 where zero, -inf where j is not visible to t (up
 * to n_most). q [m, heads * width], w [m, heads], keys step->index_cache [n, width]. Tensor cores; the heads are reduced in registers.
 * width a multiple of 32. NaN stays NaN through the relu. */
lsg_status ls_gpu_index_score(uint16_t *score, const uint16_t *q, const uint16_t *w, int64_t m, int64_t heads, int64_t width,
                              int64_t n_most, const ls_gpu_attn_step *step, lsg_stream stream);

/* Which kernel takes many queries of these sizes: "wgmma" (on compute capability 9.0 unless LOCKSTEP_PORTABLE is set) or "portable". */
const char *ls_gpu_index_score_kernel(int64_t m, int64_t heads, int64_t width, int64_t n_most);

/* Bytes of scratch that the two below need for one call of these sizes: device memory that may hold anything once
 * ls_gpu_select_clear has made it ready, which lasts over calls of any sizes. */
size_t ls_gpu_select_bytes(int64_t m, int64_t n_most);
lsg_status ls_gpu_select_clear(void *scratch, lsg_stream stream);

/* mask u8 [m, n_most]: ref_indexer.h, ls_ref_candidates: the best topk_blocks blocks of `block` positions, the newest visible one always,
 * a block of -inf never; a kept block is whole up to step->n. */
lsg_status ls_gpu_candidates(uint8_t *mask, const uint16_t *score, int64_t m, int64_t n_most, int64_t block, int64_t topk_blocks,
                             void *scratch, const ls_gpu_attn_step *step, lsg_stream stream);

/* idx: columns [0, k_most) of rows of leading dimension ld, i32: the min(topk, step->n) best positions of each query, ascending,
 * step->rows_a added, -1 last (all of the columns past them too). mask NULL: none. Exact for n_most up to 1,048,576: radix select on the
 * ordered bits, one block a query where n_most is small, several where it is large. */
lsg_status ls_gpu_topk(int32_t *idx, int64_t ld, int64_t k_most, const uint16_t *score, const uint8_t *mask, int64_t m, int64_t n_most,
                       int64_t topk, void *scratch, const ls_gpu_attn_step *step, lsg_stream stream);

}  // namespace LSG_NS

#endif
