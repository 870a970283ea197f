/* gpu_attn_rows: what attn_v41 does row by row between its GEMMs (layers.md 2, 3, 4, 5, 6, 7, 8, 9, 10): RMSNorm, RoPE of adjacent pairs on
 * the tail, the fp8 and fp4 round trips, and the stores into ring and caches. One pass over a row each; every rounding of layers.md is made
 * (a norm's result, a rotation's and a round trip's each round to bf16 in turn) though the values in between never leave registers.
 *
 * bf16 throughout, and NaN where a block of a round trip is not finite. x, y [rows, ...] dense; y may be x. w: norm weights,
 * float32. Device pointers are 16-byte aligned. freq [rope_dim / 2]: ls_gpu_attn_freq. Positions are read from *step. dim and width are
 * multiples of 32 (where no round trip is made, of 8), rope_dim is even and at most those. A row's result does not depend on the rows
 * beside it.
 */
#ifndef GPU_ATTN_ROWS_H
#define GPU_ATTN_ROWS_H

#include "../layers/ls_attn.h"
#include "gpu_attn_step.h"

namespace LSG_NS {

/* freq [rope_head_dim / 2] on the host. compressed: compress_rope_theta with YaRN where original_seq_len > 0; else rope_theta alone. */
void ls_gpu_attn_freq(float *freq, const ls_attn_config *config, bool compressed);

/* What follows the projections of x, in one launch. A NULL y leaves its job out.
 * 1. qr [m, q_rank] = RMSNorm(qr, q_norm), in place
 * 3. kv [m, head_dim] = fp8(RoPE(RMSNorm(kv_proj, kv_norm))), and 4. into the ring [window, head_dim] (NULL: not): position p in slot p mod
 *    window, of m > window rows the last ones
 * 5. window_idx [m, wk] into the first wk columns of idx [m, ld] (ref_window.h's formula); wk at most window
 * 6. latent [latents, head_dim] = RMSNorm(latent, pool_norm), in place
 * 8. index_w [m, index_heads] = bf16(index_w_proj * index_scale) */
typedef struct {
  uint16_t *qr;
  const float *q_norm;
  int64_t q_rank;
  uint16_t *kv, *ring;
  const uint16_t *kv_proj;
  const float *kv_norm, *freq;
  int64_t head_dim, rope_dim, window;
  int32_t *idx;
  int64_t ld, wk;
  uint16_t *latent;
  const float *pool_norm;
  int64_t latents;
  uint16_t *index_w;
  const uint16_t *index_w_proj;
  int64_t index_heads;
} ls_gpu_x_rows;
lsg_status ls_gpu_attn_x_rows(const ls_gpu_x_rows *rows, float eps, float index_scale, int64_t m, const ls_gpu_attn_step *step,
                              lsg_stream stream);

/* What follows the projections of qr, in one launch: 2. q [m, heads, width]: RoPE on the last rope_dim elements of each head, at
 * start_pos + t, in place; 8. index_q [m, index_heads, index_width] = fp4-32(RoPE(index_q_proj)) per head. heads 0, index_heads 0: not. */
lsg_status ls_gpu_attn_queries(uint16_t *q, int64_t heads, int64_t width, uint16_t *index_q, const uint16_t *index_q_proj,
                               int64_t index_heads, int64_t index_width, const float *freq, int64_t m, int64_t rope_dim,
                               const ls_gpu_attn_step *step, lsg_stream stream);

/* The rotation of heads alone. y may be x. inverse: by the negative angle (12). */
lsg_status ls_gpu_rope_heads(uint16_t *y, const uint16_t *x, const float *freq, int64_t m, int64_t heads, int64_t width, int64_t rope_dim,
                             bool inverse, const ls_gpu_attn_step *step, lsg_stream stream);

/* 4 alone: kv [m, dim] as it is into the ring. */
lsg_status ls_gpu_window_store(uint16_t *ring, const uint16_t *kv, int64_t m, int64_t dim, int64_t window, const ls_gpu_attn_step *step,
                               lsg_stream stream);

/* 6. ratio > 1: y [m, n] float32 = x [m, k] (bf16) . W [n, k]^T (float32), plain float32 products and sums (no TF32). Any m >= 1, n, k.
 * The order of a sum depends on k alone: ranges of 32, ascending, each added to those before it. */
lsg_status ls_gpu_linear_f32(float *y, const uint16_t *x, const float *w, int64_t m, int64_t n, int64_t k, lsg_stream stream);

/* 6. pooling. kv32, score32 [m, dim]. latent_pool [groups, dim] bf16, groups = max(m / ratio, 1) rows of memory, of which step->g are made.
 * Tokens that wait go to kv_state, score_state [ratio, dim] (start_pos 0: the last m mod ratio, in slots 0 ..; else slot start_pos mod
 * ratio); at start_pos > 0 the group that closes is read from there. */
lsg_status ls_gpu_pool(uint16_t *latent_pool, float *kv_state, float *score_state, const float *kv32, const float *score32, int64_t m,
                       int64_t dim, int64_t ratio, const ls_gpu_attn_step *step, lsg_stream stream);

/* 7. index_k [g_most, dim] = fp4-32(RoPE(RMSNorm(proj, w))) at the group positions (first_row + j) * ratio; rows j < step->g, and into
 * cache rows first_row + j (NULL: not). g_most: rows of memory. */
lsg_status ls_gpu_index_k(uint16_t *index_k, uint16_t *cache, const uint16_t *proj, const float *w, float eps, const float *freq,
                          int64_t g_most, int64_t dim, int64_t rope_dim, const ls_gpu_attn_step *step, lsg_stream stream);

/* 9. compress_kv [g_most, dim] = fp4-16(RoPE(latent)) with e4m3 scales, rows j < step->g, and into cache rows first_row + j (NULL: not). */
lsg_status ls_gpu_compress_kv(uint16_t *compress_kv, uint16_t *cache, const uint16_t *latent, const float *freq, int64_t g_most,
                              int64_t dim, int64_t rope_dim, const ls_gpu_attn_step *step, lsg_stream stream);

/* Rows j < step->g of rows [g_most, dim] into cache rows first_row + j, as they are. */
lsg_status ls_gpu_cache_store(uint16_t *cache, const uint16_t *rows, int64_t g_most, int64_t dim, const ls_gpu_attn_step *step,
                              lsg_stream stream);

}  // namespace LSG_NS

#endif
