/* ref_norm: RMSNorm (layers.md, "Shared definitions"). */
#ifndef LS_REF_NORM_H
#define LS_REF_NORM_H

#include "../core/ls_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

/* y = (x * rsqrt(mean(x^2) + eps)) * w        x, w, y [n]; y may be x. The order of the sum depends on n alone. */
void ls_ref_rms_norm_f32(float *y, const float *x, const float *w, int64_t n, float eps);
void ls_ref_rms_norm_f64(double *y, const double *x, const double *w, int64_t n, double eps);

/* The same for each group of n = len(w) elements of each row, rounded once when y is stored. x, y [rows, groups * n] of the stored type, y
 * may be x; w [n] of the working type (f32, or f64 where nothing is rounded). eps counts as float32 in both precisions. wide: scratch of
 * the working type, groups * n elements. */
void ls_ref_rms_norm(const ls_tensor *y, const ls_tensor *x, const ls_tensor *w, double eps, void *wide);

#ifdef __cplusplus
}
#endif
#endif
