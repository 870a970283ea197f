/* bound_sparse_attn: how far apart two attentions over the same list of rows can be (layers.md, attn_v41 11). */
#ifndef LS_BOUND_SPARSE_ATTN_H
#define LS_BOUND_SPARSE_ATTN_H

#include "bound_rows.h"

#ifdef __cplusplus
extern "C" {
#endif

/* bound [m, heads * width] f32; q [m, heads * width]; rows a and b [.., width]; idx i32 [m, entries]; sink [heads]. 0 for a query whose
 * entries are all -1. LS_INTERNAL: an index out of range, or out of memory. On the threads of ls_parallel, a query each.
 *
 * y = sum p_j v_j, s_j = scale q . v_j, p the softmax of the scores and the sink, whose value is 0 and whose score is exact.
 *   e_j = scale (4 sqrt(width) 2^-24 |q|.|v_j| + t_q.|v_j| + |q|.t_j + t_q.t_j) + 10 2^-24 (|s_j| + max |s|)
 *         (scale and its product, the difference from the maximum, log2 e and its product: five roundings a path)
 *   moved = e^2E (sum p_j e_j (|v_j| + |y| + M) + sum p_j t_j),  E = max e_j,  M = (e^2E - 1) (sum p_j |v_j| + |y|)
 *         (as bound_pool.h has it, with |v_j - y| <= |v_j| + |y|, so that it is a GEMM)
 *         never more than from y to the ends of where a weighted mean of the rows, each as far off as it may be, and 0 can lie
 *   rounding of p to bf16 = min(2^-7 sum p_j |v_j|, 2^-7 |y| + 4 2^-8 sqrt(sum p_j^2 v_j^2))
 *   float32 sums and exponentials = (entries + 16) 2^-24 sum p_j |v_j|
 * bound = (1 + 2^-5) moved + rounding + sums; the factor is for the roundings of the moved probabilities.
 *
 * The rounding: each path rounds each p_j, unnormalised, to 8 bits: by at most 2^-8 of it, so 2^-7 between two. Paths that block otherwise
 * round multiples of the p_j of their own, and which way each falls is as good as random: uniform in +-2^-8 of the binade, at most
 * 2^-8 / sqrt(3) relative, times sqrt(2) between two paths is 0.82 2^-8: 4 is five deviations even if all p_j stood at the foot of a
 * binade, nearly seven where they spread. (Bounded uniform errors have lighter tails than a normal sum.) What that leaves out: (nearly)
 * equal probabilities round alike, by a common factor within 2^-8 on each path, which moves y by itself: 2^-7 |y|. */
ls_status ls_bound_sparse(const ls_tensor *bound, const ls_stage_values *q, const ls_bound_rows *a, const ls_bound_rows *b,
                          const ls_tensor *idx, const double *sink, int64_t heads, ls_error *err);

#ifdef __cplusplus
}
#endif
#endif
