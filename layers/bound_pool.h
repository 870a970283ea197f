/* bound_pool: how far apart two softmax-weighted sums of a group's rows can be (layers.md, attn_v41 6, ratio above 1). */
#ifndef LS_BOUND_POOL_H
#define LS_BOUND_POOL_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* One channel: y = sum p_i k_i, p = softmax(s) over n entries. k, s [n]; off_k, off_s [n]: what each may be off by.
 *
 * Moved scores: dy/ds_i = p_i (k_i - y). On the way from s to s + d, |d_i| <= e_i, E = max e_i, a p_i grows to at most e^2E p_i, and y is
 * off by at most M = (e^2E - 1) sum p_i |k_i - y|; so by the mean value theorem y moves by at most e^2E sum p_i e_i (|k_i - y| + M).
 * Moved rows: e^2E sum p_i off_k_i. y stays between the least and the largest row, each as far off as it may be: that is what is left
 * where E is large.
 *
 * e_i is off_s_i and 6 2^-24 (|s_i| + max |s|): the difference from the maximum, the factor log2 e and its product round once each, on two
 * paths. Sums, exponentials and the quotient: (2 n + 16) 2^-24 sum p_i |k_i|.
 * An entry whose score is -inf has no part in it. NaN where y is. */
double ls_bound_pool(const double *k, const double *s, const double *off_k, const double *off_s, int64_t n);

#ifdef __cplusplus
}
#endif
#endif
