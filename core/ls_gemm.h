/* ls_gemm: y = x . W^T through OpenBLAS, the only file that includes cblas.h.
 *
 *   y[r][n] = sum_k x[r][k] * W[n][k]        x [rows, k], W [n, k], y [rows, n], dense row-major (ldx, ldw, ldy in elements)
 *
 * x, W and y must not overlap; the gaps of a leading dimension beyond the width are left alone. rows, n or k may be 0 (k = 0: zeros).
 * Thread-safe. Non-finite values go where IEEE arithmetic takes them: never from one row of x or W to another's results. Where scratch
 * memory is refused, or a size exceeds the BLAS's integers, y is filled with NaN, which no comparison passes.
 *
 * Promise (layers.md, "row-count invariance"): for rows <= LS_INVARIANT_ROWS a row of y has the same bits whatever the number of rows
 * computed with it, its index among them, and the number of threads; a channel's bits do not depend on n. No BLAS gives that by itself:
 * measured with OpenBLAS 0.3.21 on Zen, a row of a 16-row block has one of several results by its index, and two BLAS threads change the
 * bits. So all rows go in one zero-padded block of fixed height, one BLAS thread a call, and output channels in fixed, zero-padded pieces
 * over the threads of ls_parallel. Above LS_INVARIANT_ROWS the bytes are still independent of the number of threads. */
#ifndef LS_GEMM_H
#define LS_GEMM_H

#include <stdint.h>

#include "ls_status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LS_INVARIANT_ROWS = 16 };

void ls_gemm_f32(float *y, const float *x, const float *w, int64_t rows, int64_t n, int64_t k, int64_t ldy, int64_t ldx, int64_t ldw);
void ls_gemm_f64(double *y, const double *x, const double *w, int64_t rows, int64_t n, int64_t k, int64_t ldy, int64_t ldx, int64_t ldw);

/* One row, y[n] = sum_k x[k] * W[n][k], without the promise: other bits than ls_gemm gives the same row, but W is read once, at the speed
 * of memory (ls_gemm computes LS_INVARIANT_ROWS rows whatever is asked for). The bytes do not depend on the number of threads. */
void ls_gemv_f32(float *y, const float *x, const float *w, int64_t n, int64_t k, int64_t ldw);
void ls_gemv_f64(double *y, const double *x, const double *w, int64_t n, int64_t k, int64_t ldw);

/* LS_UNAVAILABLE with one clear line where this machine's BLAS breaks the promise above for inner dimension k (or computes wrong
 * values: some old kernels do). Cheap: small n, the given k. The reference calls it at open. */
ls_status ls_gemm_selftest(int64_t k, ls_error *err);

/* "OpenBLAS 0.3.21 Zen", for provenance. */
const char *ls_gemm_library(void);

/* A processor that is younger than the library is taken for a Prescott, whose kernels know no AVX2: the core type to start with
 * instead (OPENBLAS_CORETYPE, read when the library is loaded). NULL: it chose as well as it can. */
const char *ls_gemm_faster_core(void);

#ifdef __cplusplus
}
#endif
#endif
