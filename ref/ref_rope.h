/* ref_rope: rotary embeddings (layers.md, "Shared definitions"): NeoX for dflash, adjacent pairs for attn_v41. */
#ifndef LS_REF_ROPE_H
#define LS_REF_ROPE_H

#include "../core/ls_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* freq[i] = 1 / t, t = (float)pow(theta, e), e = (float)(2i) / (float)dim        freq [dim / 2] */
void ls_ref_rope_freq(float *freq, int64_t dim, double theta);

/* freq of ls_ref_rope_freq, stretched for contexts beyond original_seq_len: freq / factor * (1 - s) + freq * s, s = 1 - ramp (YaRN). lows
 * and highs in double, the rest float32. In place, freq [dim / 2]. original_seq_len 0: freq stays. */
typedef struct {
  int64_t original_seq_len, beta_fast, beta_slow;
  double factor;
} ls_ref_yarn;
void ls_ref_rope_yarn(float *freq, int64_t dim, double theta, const ls_ref_yarn *yarn);

/* (float)position * freq, in float32. This rounding is part of the definition in both precisions: above position 2^24 several positions
 * share an angle. */
float ls_ref_rope_angle(int64_t position, float freq);

/* cosines and sines of the angles at positions base .. base + rows - 1. cosine, sine [rows, dim / 2] dense, of the working type: f32 (to
 * within 1 ulp, full range reduction), or the f64 cosine and sine of the same float32 angle. freq [dim / 2]. */
void ls_ref_rope_table(const ls_tensor *cosine, const ls_tensor *sine, const float *freq, int64_t base);

/* (x[i], x[i + dim/2]) -> (x[i] cos - x[i + dim/2] sin, x[i + dim/2] cos + x[i] sin), i < dim/2        x [dim], in place */
void ls_ref_rope_neox_f32(float *x, const float *cosine, const float *sine, int64_t dim);
void ls_ref_rope_neox_f64(double *x, const double *cosine, const double *sine, int64_t dim);

/* The same for each group of dim elements of each row, rounded once when y is stored. x, y [rows, groups * dim] of the stored type, y may
 * be x; cosine, sine [rows, dim / 2] of the working type, row by row. wide: scratch of the working type, groups * dim elements. */
void ls_ref_rope_neox(const ls_tensor *y, const ls_tensor *x, const ls_tensor *cosine, const ls_tensor *sine, void *wide);

/* As ls_ref_rope_table, for the positions base + stride * row: latents stand `ratio` positions apart. */
void ls_ref_rope_table_strided(const ls_tensor *cosine, const ls_tensor *sine, const float *freq, int64_t base, int64_t stride);

/* Adjacent pairs of the last dim elements of each group of `width`: (x[2i], x[2i+1]) -> (x[2i] cos - x[2i+1] sin, x[2i+1] cos + x[2i] sin);
 * inverse: by the negative angle. The other elements are copied. x, y [rows, groups * width] of the stored type, y may be x, rounded once
 * when y is stored; cosine, sine [rows, dim / 2] of the working type. wide: scratch of the working type, groups * width elements. */
void ls_ref_rope_pairs(const ls_tensor *y, const ls_tensor *x, const ls_tensor *cosine, const ls_tensor *sine, int64_t width, bool inverse,
                       void *wide);

#ifdef __cplusplus
}
#endif
#endif
