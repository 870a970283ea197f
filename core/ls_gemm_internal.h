/* ls_gemm_internal: the one BLAS call of ls_gemm as a parameter, so that a test can put a broken BLAS in its place. */
#ifndef LS_GEMM_INTERNAL_H
#define LS_GEMM_INTERNAL_H

#include <stdbool.h>
#include <stdint.h>

#include "ls_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Every BLAS call for at most LS_INVARIANT_ROWS rows has exactly this shape. */
enum { LS_GEMM_BLOCK_ROWS = 16, LS_GEMM_BLOCK_CHANNELS = 64 };

/* yt [LS_GEMM_BLOCK_CHANNELS, LS_GEMM_BLOCK_ROWS] = w [LS_GEMM_BLOCK_CHANNELS, k] . x [LS_GEMM_BLOCK_ROWS, k]^T; yt and x dense, w with
 * ldw elements a row. */
typedef void ls_gemm_block_f32(float *yt, const float *w, const float *x, int64_t k, int64_t ldw);
typedef void ls_gemm_block_f64(double *yt, const double *w, const double *x, int64_t k, int64_t ldw);

/* What this machine's BLAS does. */
void ls_gemm_blas_block_f32(float *yt, const float *w, const float *x, int64_t k, int64_t ldw);
void ls_gemm_blas_block_f64(double *yt, const double *w, const double *x, int64_t k, int64_t ldw);

/* The self-test for given block functions; ls_gemm_selftest runs it for the BLAS. */
ls_status ls_gemm_selftest_blocks(ls_gemm_block_f32 *f32, ls_gemm_block_f64 *f64, int64_t k, ls_error *err);

/* ls_gemm_faster_core for a library that chose `core`, on a processor that has or has not what Haswell's kernels need. */
const char *ls_gemm_faster_core_than(const char *core, bool has_avx2_and_fma);

#ifdef __cplusplus
}
#endif
#endif
