#include "ref_rope.h"

#include <math.h>

void ls_ref_rope_freq(float *freq, int64_t dim, double theta) {
  for (int64_t i = 0; i < dim / 2; i++) {
    const float e = (float)(2 * i) / (float)dim;
    const float t = (float)pow(theta, (double)e);
    freq[i] = 1.0f / t;
  }
}

/* corr(r) = dim * ln(original_seq_len / (r * 2 pi)) / (2 ln theta): the pair that turns r times in original_seq_len positions */
static double yarn_pair(double turns, int64_t dim, double theta, const ls_ref_yarn *yarn) {
  const double two_pi = 6.283185307179586;
  return (double)dim * log((double)yarn->original_seq_len / (turns * two_pi)) / (2 * log(theta));
}

void ls_ref_rope_yarn(float *freq, int64_t dim, double theta, const ls_ref_yarn *yarn) {
  if (yarn->original_seq_len <= 0) return;
  const double low = fmax(floor(yarn_pair((double)yarn->beta_fast, dim, theta, yarn)), 0);
  const double high = fmin(ceil(yarn_pair((double)yarn->beta_slow, dim, theta, yarn)), (double)(dim - 1));
  const float from = (float)low, length = (float)fmax(high - low, 0.001), factor = (float)yarn->factor;
  for (int64_t i = 0; i < dim / 2; i++) {
    const float ramp = fminf(fmaxf(((float)i - from) / length, 0.0f), 1.0f);
    const float s = 1.0f - ramp;
    freq[i] = freq[i] / factor * (1.0f - s) + freq[i] * s;
  }
}

float ls_ref_rope_angle(int64_t position, float freq) { return (float)position * freq; }

void ls_ref_rope_table(const ls_tensor *cosine, const ls_tensor *sine, const float *freq, int64_t base) {
  ls_ref_rope_table_strided(cosine, sine, freq, base, 1);
}

void ls_ref_rope_table_strided(const ls_tensor *cosine, const ls_tensor *sine, const float *freq, int64_t base, int64_t stride) {
  const int64_t rows = cosine->dim[0], half = cosine->dim[1];
  for (int64_t row = 0; row < rows; row++) {
    for (int64_t i = 0; i < half; i++) {
      const float angle = ls_ref_rope_angle(base + stride * row, freq[i]);
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

/* x [2 * half], in place */
static void pairs_f32(float *x, const float *cosine, const float *sine, int64_t half, bool inverse) {
  for (int64_t i = 0; i < half; i++) {
    const float a = x[2 * i], b = x[2 * i + 1], c = cosine[i], s = inverse ? -sine[i] : sine[i];
    x[2 * i] = a * c - b * s;
    x[2 * i + 1] = b * c + a * s;
  }
}

static void pairs_f64(double *x, const double *cosine, const double *sine, int64_t half, bool inverse) {
  for (int64_t i = 0; i < half; i++) {
    const double a = x[2 * i], b = x[2 * i + 1], c = cosine[i], s = inverse ? -sine[i] : sine[i];
    x[2 * i] = a * c - b * s;
    x[2 * i + 1] = b * c + a * s;
  }
}

void ls_ref_rope_pairs(const ls_tensor *y, const ls_tensor *x, const ls_tensor *cosine, const ls_tensor *sine, int64_t width, bool inverse,
                       void *wide) {
  const int64_t half = cosine->dim[1], columns = x->dim[1];
  for (int64_t row = 0; row < x->dim[0]; row++) {
    const ls_tensor from = ls_tensor_at(x, row), to = ls_tensor_at(y, row);
    const ls_tensor c = ls_tensor_at(cosine, row), s = ls_tensor_at(sine, row);
    if (cosine->dtype == LS_F64) {
      double *v = wide;
      ls_tensor_to_f64(v, &from);
      for (int64_t head = 0; head < columns; head += width) pairs_f64(v + head + width - 2 * half, c.data, s.data, half, inverse);
      ls_tensor_from_f64(&to, v);
    } else {
      float *v = wide;
      ls_tensor_to_f32(v, &from);
      for (int64_t head = 0; head < columns; head += width) pairs_f32(v + head + width - 2 * half, c.data, s.data, half, inverse);
      ls_tensor_from_f32(&to, v); /* the one rounding */
    }
  }
}
