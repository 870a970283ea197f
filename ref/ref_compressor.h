/* ref_compressor: one latent from a group of `ratio` consecutive tokens (layers.md, attn_v41 6), float32 throughout, or double. */
#ifndef LS_REF_COMPRESSOR_H
#define LS_REF_COMPRESSOR_H

#include "../core/ls_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y[c] = sum_i softmax_i(score[i][c]) * kv[i][c]        kv, score [ratio, width] of the working type (f32 or f64), y [width] of the stored
 * type, rounded once. Per channel; a NaN in a channel's scores or values makes that channel NaN; where all scores are -inf the channel is
 * NaN, as the formula gives. */
void ls_ref_pool(const ls_tensor *y, const ls_tensor *kv, const ls_tensor *score);

#ifdef __cplusplus
}
#endif
#endif
