#include "ref_norm.h"

#include <math.h>

/* The sum runs in LANES interleaved partial sums: as near to the exact value as a pairwise one, and a compiler can keep them in a vector
 * register without reordering anything. */
enum { LANES = 16 };

void ls_ref_rms_norm_f32(float *y, const float *x, const float *w, int64_t n, float eps) {
  float partial[LANES] = {0}, sum = 0;
  int64_t i = 0;
  for (; i + LANES <= n; i += LANES) {
    for (int lane = 0; lane < LANES; lane++) partial[lane] += x[i + lane] * x[i + lane];
  }
  for (; i < n; i++) partial[i % LANES] += x[i] * x[i];
  for (int lane = 0; lane < LANES; lane++) sum += partial[lane];

  const float scale = 1.0f / sqrtf(sum / (float)n + eps);
  for (i = 0; i < n; i++) y[i] = (x[i] * scale) * w[i];
}

void ls_ref_rms_norm_f64(double *y, const double *x, const double *w, int64_t n, double eps) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += x[i] * x[i];
  const double scale = 1.0 / sqrt(sum / (double)n + eps);
  for (int64_t i = 0; i < n; i++) y[i] = (x[i] * scale) * w[i];
}

void ls_ref_rms_norm(const ls_tensor *y, const ls_tensor *x, const ls_tensor *w, double eps, void *wide) {
  const int64_t n = w->dim[0], width = x->dim[1];
  for (int64_t row = 0; row < x->dim[0]; row++) {
    const ls_tensor from = ls_tensor_at(x, row), to = ls_tensor_at(y, row);
    if (w->dtype == LS_F64) {
      double *v = wide;
      ls_tensor_to_f64(v, &from);
      for (int64_t i = 0; i < width; i += n) ls_ref_rms_norm_f64(v + i, v + i, w->data, n, (double)(float)eps);
      ls_tensor_from_f64(&to, v);
    } else {
      float *v = wide;
      ls_tensor_to_f32(v, &from);
      for (int64_t i = 0; i < width; i += n) ls_ref_rms_norm_f32(v + i, v + i, w->data, n, (float)eps);
      ls_tensor_from_f32(&to, v); /* the one rounding */
    }
  }
}
