/* gpu_attn_internal: what gpu_attn_path.cu (open, close, save, load) and gpu_attn_forward.cu share. */
#ifndef GPU_ATTN_INTERNAL_H
#define GPU_ATTN_INTERNAL_H

#include "../layers/ls_attn.h"
#include "gpu_attn_step.h"
#include "gpu_path_internal.h"

namespace LSG_NS {

enum { ATTN_BUCKETS = 33 }; /* of n: 0, then 2^0 .. 2^31 */

/* One layer of the stack: device pointers, NULL where the layer does not have it. What shares an input lies one below the other, so that
 * one launch computes it (ls_gpu_linear_parts). */
typedef struct {
  uint16_t *x_weights;   /* [.., dim]: wq_a, wkv, compressor/wkv (kv source of ratio 1), indexer/weights_proj (index source) */
  uint16_t *qr_weights;  /* [.., q_lora_rank]: wq_b, indexer/wq_b (index source) */
  uint16_t *wo_a, *wo_b; /* [o_dim, group_dim], [dim, o_dim] */
  uint16_t *index_wk;    /* [index_head_dim, head_dim] */
  float *pool_weights;   /* [2 * head_dim, dim]: compressor/wkv, compressor/wgate; ratio > 1 */
  float *attn_sink;      /* [n_heads] */
  float *q_norm, *kv_norm, *pool_norm, *index_k_norm;
  const float *freq; /* [rope_head_dim / 2] */

  uint16_t *window;                       /* [window_size, head_dim] */
  uint16_t *compress_cache, *index_cache; /* [max_seq_len / ratio, head_dim or index_head_dim] */
  int64_t compress_rows, index_rows;      /* rows up to the last that was ever written or loaded; zero beyond */
  float *kv_state, *score_state;          /* [ratio, head_dim] */

  lsg_graph decode[ATTN_BUCKETS]; /* m = 1 at start_pos > 0, by attn_bucket; NULL until first needed */
  lsg_graph prefill;              /* start_pos 0, prefill_m rows: what came twice in a row */
  int64_t prefill_m;
} attn_layer;

typedef struct {
  ls_config config;
  gpu_device device;
  attn_layer *layer; /* n_layers */

  float *freq, *compress_freq; /* [rope_head_dim / 2]: of ratio 0, of ratio > 0 */
  ls_gpu_attn_step *step;      /* the step's own numbers, uploaded before its work */

  /* What is published. idx [max_tokens, window_size + index_topk]: the selection in columns window_size .., and before them, up to there,
   * the window entries of the step that ran last. So a step's list is wk + k columns in a row, and a reader copies nothing. */
  ls_attn_state published;
  int32_t *idx;
  uint8_t *candidates; /* [rows, attn_columns of them] */
  int64_t loaded_most; /* the largest entry of a selection that was loaded, -1: none; steps make none out of range */

  /* Of one step. Rows: max_tokens; latents: the most that a step makes */
  uint16_t *x, *qr, *q, *kv_proj, *kv;                       /* [dim], [q_lora_rank], [q_dim], [head_dim] */
  uint16_t *latent, *compress_kv, *index_k_proj, *index_k;   /* [head_dim], [head_dim], [index_head_dim] */
  float *pool32;                                             /* kv32 [m, head_dim], then score32 */
  uint16_t *index_q_proj, *index_q, *index_w_proj, *index_w; /* [index_q_dim], [index_n_heads] */
  uint16_t *index_score;                                     /* [m, attn_columns] */
  uint16_t *sparse_o, *o_rot, *o_group, *out;                /* [q_dim], [q_dim], [o_dim], [dim] */
  int32_t *given_idx;                                        /* [max_tokens, window_size + index_topk] */
  void *select_scratch, *sparse_scratch;
  size_t select_bytes, sparse_bytes;
} attn_context;

/* ld of idx. */
static inline int64_t attn_ld(const ls_attn_config *a) { return a->window_size + a->index_topk; }

/* Columns of scores and masks of a step with n visible rows (n_most of gpu_attn_step.h): n itself at start_pos 0, else the smallest power
 * of two from n on, at most the cache's rows. */
int64_t attn_columns(int64_t start_pos, int64_t n, int64_t cache_rows);

/* The index of a decode step's graph: 0 where nothing is selected, then by powers of two. */
int attn_bucket(int64_t n_most);

/* Whether a layer pools: a kv source of ratio above 1. */
static inline bool attn_pools(const ls_attn_config *a, int64_t layer) {
  return ls_attn_is_kv_source(a, layer) && a->compress_ratio[layer] > 1;
}

/* Rows of memory for the latents of a step (g_most): those that m tokens make from position 0, one at least. */
static inline int64_t attn_latents(int64_t m, int64_t ratio) { return m / ratio > 1 ? m / ratio : 1; }

/* LS_BAD_FIXTURE where a trace holds a tensor of another shape or type than spec's, or lacks a required one. */
ls_status attn_check_tensor(const ls_tensor **found, const ls_trace *trace, const char *where, const ls_tensor_spec *spec, ls_error *err);

/* gpu_attn_forward.cu: one forward, as ls_path.step has it. */
ls_status attn_forward_step(attn_context *c, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err);
/* The same, timed, as ls_path.time_step has it. */
ls_status attn_forward_time(attn_context *c, const ls_step *step, const ls_timing_how *how, ls_timing *timing, ls_trace *last,
                            ls_error *err);
ls_stage_kind attn_stage_kind(const ls_attn_config *a, const ls_step *step, const char *stage);

}  // namespace LSG_NS

#endif
