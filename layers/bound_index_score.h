/* bound_index_score: how far apart two index scores can be (layers.md, attn_v41 8). */
#ifndef LS_BOUND_INDEX_SCORE_H
#define LS_BOUND_INDEX_SCORE_H

#include "bound_rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bound [m, n] f32, n = keys->n; q [m, heads * width], w [m, heads], keys [n, width]. 0 where a position is not visible to the query.
 *
 * Per head: d = q . k is off by e = 4 sqrt(width) 2^-24 |q|.|k| + t_q.|k| + |q|.t_k + t_q.t_k. Either side's rounded dot product lies in
 * [R(d - e), R(d + e)], then relu, the product with a weight in [w - t_w, w + t_w] and its rounding keep the order, so the two sides'
 * products are no farther apart than the ends of what they reach. The bound is the sum of that over the heads, and 4 sqrt(heads) 2^-24 sum
 * |product| for the float32 sum.
 *
 * Most dot products are exact, and then e is 0: values of the fp4 grids are small multiples of a power of two. Where all of q are multiples
 * of 2^a and all of k of 2^b, every partial sum, in any order, is a multiple of 2^(a + b); while the sum of magnitudes stays below
 * 2^24 2^(a + b) each of them is a float32, and nothing rounds. Both sides then round the same number.
 *
 * unrounded: one side rounds neither dot products nor products (a double reference); what these can reach then includes the values before
 * rounding.
 *
 * On the threads of ls_parallel. LS_INTERNAL: out of memory. */
ls_status ls_bound_score(const ls_tensor *bound, const ls_stage_values *q, const ls_stage_values *w, const ls_bound_rows *keys,
                         const ls_attn_plan *plan, int64_t heads, bool unrounded, ls_error *err);

#ifdef __cplusplus
}
#endif
#endif
