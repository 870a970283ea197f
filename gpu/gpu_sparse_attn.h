/* gpu_sparse_attn: attention of each query over the rows that its list names, with a sink, then the inverse rotation (layers.md, attn_v41
 * 11, 12), on tensor cores: 64 heads share one gathered tile of rows, which is key and value at once.
 *
 * One pass over both row sets (index below step->rows_a: rows_a, else the compressed cache), online softmax in float32, probabilities
 * rounded to bf16 for the product with the rows, the denominator of unrounded ones; -1 and tiles that are all -1 are safe; a query of -1
 * alone gives zeros. Decode splits the entries over blocks and combines exactly: the sink enters the denominator once, at the combine. A
 * NaN in a selected row makes all heads of the query NaN. Two runs give identical bytes. */
#ifndef GPU_SPARSE_ATTN_H
#define GPU_SPARSE_ATTN_H

#include "gpu_attn_step.h"

namespace LSG_NS {

/* How many parts the entries of a query are split into for these sizes, and the bytes of scratch that takes (0 where 1). */
int64_t ls_gpu_sparse_splits(int64_t m, int64_t heads, int64_t width);
size_t ls_gpu_sparse_bytes(int64_t m, int64_t heads, int64_t dim, int64_t width);

/* Which kernel ls_gpu_sparse_attn runs for these sizes, for a report: "wgmma" (cuda/hopper_sparse_attn.cuh: many queries, heads by the 64,
 * on compute capability 9.0 unless LOCKSTEP_PORTABLE is set) or "portable". */
const char *ls_gpu_sparse_kernel(int64_t m, int64_t heads, int64_t dim, int64_t rope_dim, int64_t width);

/* sparse_o, o_rot [m, heads * dim]; either may be NULL where it is not wanted (o_rot alone in production). q [m, heads * dim], rows_a
 * [rows_a, dim] dense (kv rows at start_pos 0, else the ring), idx [m, width] of leading dimension ld, sink [heads] float32, freq
 * [rope_dim / 2]. dim a multiple of 32, at most 512. o_rot rounds sparse_o to bf16 first, then rotates, as layers.md has it. */
lsg_status ls_gpu_sparse_attn(uint16_t *sparse_o, uint16_t *o_rot, const uint16_t *q, const uint16_t *rows_a, const int32_t *idx,
                              int64_t ld, int64_t width, const float *sink, const float *freq, int64_t m, int64_t heads, int64_t dim,
                              int64_t rope_dim, void *scratch, const ls_gpu_attn_step *step, lsg_stream stream);

}  // namespace LSG_NS

#endif
