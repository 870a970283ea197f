/* attn_published: the published model's sizes (layers.md, attn_v41), without a stack: layers, roles, candidate source and max_tokens are
 * the test's. */
#ifndef ATTN_PUBLISHED_H
#define ATTN_PUBLISHED_H

#include "layers/ls_layer.h"

static inline ls_attn_config attn_published(void) {
  return (ls_attn_config){.dim = 5120,
                          .n_heads = 64,
                          .head_dim = 512,
                          .rope_head_dim = 64,
                          .q_lora_rank = 1280,
                          .o_lora_rank = 1024,
                          .o_groups = 8,
                          .window_size = 128,
                          .index_n_heads = 32,
                          .index_head_dim = 128,
                          .index_topk = 512,
                          .candidate_topk_blocks = 2048,
                          .candidate_block_size = 8,
                          .candidate_source_layer = -1,
                          .original_seq_len = 65536,
                          .beta_fast = 32,
                          .beta_slow = 1,
                          .max_seq_len = 1048576,
                          .norm_eps = 1e-20,
                          .rope_theta = 1e4,
                          .compress_rope_theta = 1.6e5,
                          .rope_factor = 16};
}

#endif
