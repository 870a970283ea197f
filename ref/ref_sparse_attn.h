/* ref_sparse_attn: attention of each query over the rows that its list names, with a sink (layers.md, attn_v41 11). */
#ifndef LS_REF_SPARSE_ATTN_H
#define LS_REF_SPARSE_ATTN_H

#include "../core/ls_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* o[t][h] = sum_j exp(s_j - max) row_j / (sum_j exp(s_j - max) + exp(sink[h] - max)),  s_j = q[t][h] . row_j * head_dim^-0.5
 *
 * over the entries j of idx[t] that are not -1: index i < rows_a's rows picks rows_a[i], else rows_b[i - those]. The row is key and value.
 * Entries in list order in blocks of 64 with a running maximum; exp(s - max) is rounded to bf16 for the product with the rows (not in f64),
 * the denominator sums the unrounded values. A query whose entries are all -1 gives zeros. A NaN in a selected row makes all heads of that
 * query NaN. No copy of the gathered rows for all heads is ever made.
 *
 * o, q [m, heads * head_dim], rows_a [a, head_dim], rows_b [b, head_dim] (data NULL: none) of the stored type; idx [m, width] i32, every
 * entry -1 or below a + b; sink [heads] of the working type (f32, f64). Rounded once when o is stored. On the threads of ls_parallel, the
 * bytes independent of their number. LS_INTERNAL: out of memory. */
ls_status ls_ref_sparse_attn(const ls_tensor *o, const ls_tensor *q, const ls_tensor *rows_a, const ls_tensor *rows_b, const ls_tensor *idx,
                             const ls_tensor *sink, ls_error *err);

#ifdef __cplusplus
}
#endif
#endif
