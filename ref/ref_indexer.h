/* ref_indexer: index scores and what is chosen by them (layers.md, attn_v41 8). */
#ifndef LS_REF_INDEXER_H
#define LS_REF_INDEXER_H

#include "../layers/ls_attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* score[t][j] = sum_h relu(q[t][h] . key[j]) * w[t][h], -inf where j is not visible to t, else never -0.
 *
 * q [m, heads * width], key [n, width], w [m, heads], score [m, n] of the stored type. With a stored type of bf16: the dot product rounds
 * to bf16, relu, the product with the weight rounds to bf16, the sum over heads is float32 and rounds to bf16 once. f64: nothing rounds.
 * NaN stays NaN through the relu. Runs on the threads of ls_parallel; the bytes do not depend on their number. LS_INTERNAL: out of memory.
 */
ls_status ls_ref_index_score(const ls_tensor *score, const ls_tensor *q, const ls_tensor *key, const ls_tensor *w, const ls_attn_plan *plan,
                             ls_error *err);

/* mask [m, n] u8: blocks of candidate_block_size positions, a block's score is its best visible position (NaN ranks first, lower block
 * first); the newest visible position's block counts as +inf and takes one of the candidate_topk_blocks places; a block whose score is -inf
 * is never kept; ties go to the lower block. All positions below n of a kept block are 1 (of the newest one also those not visible yet:
 * nothing selects them), everything else 0. LS_INTERNAL: out of memory. */
ls_status ls_ref_candidates(const ls_tensor *mask, const ls_tensor *score, const ls_attn_config *config, const ls_attn_plan *plan,
                            ls_error *err);

/* idx [m, k] i32: the k best positions by score (NaN first, then value, -0 equals +0, the lower position wins a tie), sorted ascending,
 * offset added; what is not visible, outside mask (NULL: none) or -inf becomes -1 and goes last. O(n) a query: scores can be a million
 * wide. LS_INTERNAL: out of memory. */
ls_status ls_ref_topk(const ls_tensor *idx, const ls_tensor *score, const ls_tensor *mask, int64_t offset, const ls_attn_plan *plan,
                      ls_error *err);

#ifdef __cplusplus
}
#endif
#endif
