/* ref_attn_internal: what ref_attn.c (open, close, save, load) and ref_attn_forward.c share. */
#ifndef LS_REF_ATTN_INTERNAL_H
#define LS_REF_ATTN_INTERNAL_H

#include "ref_attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One layer of the stack. A tensor whose role the layer does not have has data NULL. */
typedef struct {
  /* weights of the wide type, widened once, at open */
  ls_tensor attn_sink;                 /* [n_heads] */
  ls_tensor wq_a, q_norm, wq_b;        /* [q_lora_rank, dim], [q_lora_rank], [q_dim, q_lora_rank] */
  ls_tensor wkv, kv_norm;              /* [head_dim, dim], [head_dim] */
  ls_tensor wo_a, wo_b;                /* [o_dim, group_dim], [dim, o_dim] */
  ls_tensor pool_wkv, pool_wgate;      /* [head_dim, dim]: compressor/wkv, compressor/wgate */
  ls_tensor pool_norm;                 /* [head_dim]: compressor/norm */
  ls_tensor index_wk, index_k_norm;    /* [index_head_dim, head_dim], [index_head_dim] */
  ls_tensor index_wq_b, index_weights; /* [index_q_dim, q_lora_rank], [index_n_heads, dim] */
  const float *freq;                   /* [rope_head_dim / 2] */

  /* state */
  ls_tensor window;                      /* [window_size, head_dim] of the stored type */
  ls_tensor compress_cache, index_cache; /* [max_seq_len / ratio, head_dim or index_head_dim] of the stored type */
  int64_t compress_rows, index_rows;     /* rows up to the last that was ever written or loaded; zero beyond */
  ls_tensor kv_state, score_state;       /* [ratio, head_dim] of the wide type, slot = position mod ratio */
} ls_ref_attn_layer;

struct ls_ref_attn {
  ls_config config;
  ls_dtype stored, wide;
  ls_ref_attn_layer *layer;    /* n_layers */
  float *freq, *compress_freq; /* [rope_head_dim / 2]: of ratio 0, of ratio > 0 */
  ls_trace *weights, *memory;  /* memory: rings and pooling state */

  ls_attn_state published;
  ls_tensor topk_idxs;  /* [topk_rows, topk_width] i32, memory of its own */
  ls_tensor candidates; /* [candidate_rows, candidate_width] u8, likewise */
};

/* Memory for a selection or a mask, which outlives the step that makes it. Freed with free(t->data). */
ls_status ls_ref_attn_published_new(ls_tensor *t, ls_dtype dtype, int64_t rows, int64_t width, ls_error *err);

#ifdef __cplusplus
}
#endif
#endif
