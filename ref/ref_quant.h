/* ref_quant: the round trips through fp8 and fp4 of attn_v41 (layers.md, "Shared definitions"): what a stored code gives back. */
#ifndef LS_REF_QUANT_H
#define LS_REF_QUANT_H

#include "../core/ls_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* One block of n values, in place. A block whose amax is not finite becomes NaN as a whole. The results are what bf16 holds: the final
 * rounding of layers.md is in here.
 *   fp8:     s = pow2ceil(max(max|x|, 1e-4) * (float)(1/448)); y = bf16(e4m3(clamp(x / s, -448, 448)) * s)
 *   fp4:     s = pow2ceil(max(max|x|, 6 * 2^-126) * (float)(1/6)); y = bf16(e2m1(clamp(x / s, -6, 6)) * s)
 *   fp4 with e4m3 scales: s = e4m3(max(max|x|, 6 * 2^-9) / 6), saturating at 448; then as fp4 */
void ls_ref_fp8_block(float *x, int64_t n);
void ls_ref_fp4_block(float *x, int64_t n);
void ls_ref_fp4_e4m3_block(float *x, int64_t n);

typedef void ls_ref_block_fn(float *x, int64_t n);

enum { LS_REF_LARGEST_BLOCK = 64 };

/* The same for every block of `block` elements of each row. x, y [rows, columns] of any float type, y may be x; columns a multiple of
 * block, block at most LS_REF_LARGEST_BLOCK. From f64 the values are rounded to f32 first: the grid is a discrete choice, the same in every
 * precision. */
void ls_ref_quantise(const ls_tensor *y, const ls_tensor *x, int64_t block, ls_ref_block_fn *fn);

#ifdef __cplusplus
}
#endif
#endif
