/* ref_linear: y = x . W^T, accumulated in the working precision, rounded once when y is stored. */
#ifndef LS_REF_LINEAR_H
#define LS_REF_LINEAR_H

#include "../core/ls_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[r][n] = sum_k x[r][k] * W[n][k]        x [rows, k], W [n, k]
 *
 * y comes in n_y pieces [rows of the piece, n] that follow each other: the spans of a ring, or just one tensor. x and y have the stored
 * type, W the working type: f32, or f64 where nothing is rounded. wide_x [rows, k] and wide_y [rows, n] are scratch of the working type,
 * dense. Overlap of y and x is fine. For rows <= 16 a row of y has the same bits whatever stands in the other rows (ls_gemm.h). */
void ls_ref_linear(const ls_tensor *y, int n_y, const ls_tensor *x, const ls_tensor *w, void *wide_x, void *wide_y);

/* The same for one tensor y, where a single row need not have the bits that it has among others: it is a matrix-vector product then, which
 * reads W once at the speed of memory. */
void ls_ref_linear_free(const ls_tensor *y, const ls_tensor *x, const ls_tensor *w, void *wide_x, void *wide_y);

#ifdef __cplusplus
}
#endif
#endif
