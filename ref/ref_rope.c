#include "ref_rope.h"

#include <math.h>

void ls_ref_rope_freq(float *freq, int64_t dim, double theta) {
  for (int64_t i = 0; i < dim / 2; i++) {
    const float e = (float)(2 * i) / (float)dim;
    const float t = (float)pow(theta, (double)e);
    freq[i] = 1.0f / t;
  }
}

float ls_ref_rope_angle(int64_t position, float freq) { return (float)position * freq; }

void ls_ref_rope_table(const ls_tensor *cosine, const ls_tensor *sine, const float *freq, int64_t base) {
  const int64_t rows = cosine->dim[0], half = cosine->dim[1];
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t i = 0; i < half; i++) {
      const float angle = ls_ref_rope_angle(base + row, freq[i]);
      const int64_t at = row * half + i;
      if (cosine->dtype == LS_F64) {
        ((double *)cosine->data)[at] = cos((double)angle);
        ((double *)sine->data)[at] = sin((double)angle);
      } else {
        ((float *)cosine->data)[at] = cosf(angle);
        ((float *)sine->data)[at] = sinf(angle);
      }
    }
  }
}

void ls_ref_rope_neox_f32(float *x, const float *cosine, const float *sine, int64_t dim) {
  const int64_t half = dim / 2;
  for (int64_t i = 0; i < half; i++) {
    const float a = x[i], b = x[i + half];
    x[i] = a * cosine[i] - b * sine[i];
    x[i + half] = b * cosine[i] + a * sine[i];
  }
}

void ls_ref_rope_neox_f64(double *x, const double *cosine, const double *sine, int64_t dim) {
  const int64_t half = dim / 2;
  for (int64_t i = 0; i < half; i++) {
    const double a = x[i], b = x[i + half];
    x[i] = a * cosine[i] - b * sine[i];
    x[i + half] = b * cosine[i] + a * sine[i];
  }
}

void ls_ref_rope_neox(const ls_tensor *y, const ls_tensor *x, const ls_tensor *cosine, const ls_tensor *sine, void *wide) {
  const int64_t dim = 2 * cosine->dim[1], width = x->dim[1];
  for (int64_t row = 0; row < x->dim[0]; row++) {
    const ls_tensor from = ls_tensor_at(x, row), to = ls_tensor_at(y, row);
    const ls_tensor c = ls_tensor_at(cosine, row), s = ls_tensor_at(sine, row);
    if (cosine->dtype == LS_F64) {
      double *v = wide;
      ls_tensor_to_f64(v, &from);
      for (int64_t i = 0; i < width; i += dim) ls_ref_rope_neox_f64(v + i, c.data, s.data, dim);
      ls_tensor_from_f64(&to, v);
    } else {
      float *v = wide;
      ls_tensor_to_f32(v, &from);
      for (int64_t i = 0; i < width; i += dim) ls_ref_rope_neox_f32(v + i, c.data, s.data, dim);
      ls_tensor_from_f32(&to, v); /* the one rounding */
    }
  }
}
