#include "ref_compressor.h"

#include <math.h>

static int64_t at(const ls_tensor *t, int64_t i, int64_t c) { return i * t->stride[0] + c * t->stride[1]; }

/* One channel. fmax passes over a NaN score, its exp does not: the sum is NaN, and with it every weight. */
static float pool_f32(const ls_tensor *kv, const ls_tensor *score, int64_t c) {
  const float *v = kv->data, *s = score->data;
  const int64_t ratio = kv->dim[0];
  float max = -INFINITY, sum = 0, y = 0;
  for (int64_t i = 0; i < ratio; i++) max = fmaxf(max, s[at(score, i, c)]);
  for (int64_t i = 0; i < ratio; i++) sum += expf(s[at(score, i, c)] - max);
  for (int64_t i = 0; i < ratio; i++) y += expf(s[at(score, i, c)] - max) / sum * v[at(kv, i, c)];
  return y;
}

static double pool_f64(const ls_tensor *kv, const ls_tensor *score, int64_t c) {
  const double *v = kv->data, *s = score->data;
  const int64_t ratio = kv->dim[0];
  double max = -INFINITY, sum = 0, y = 0;
  for (int64_t i = 0; i < ratio; i++) max = fmax(max, s[at(score, i, c)]);
  for (int64_t i = 0; i < ratio; i++) sum += exp(s[at(score, i, c)] - max);
  for (int64_t i = 0; i < ratio; i++) y += exp(s[at(score, i, c)] - max) / sum * v[at(kv, i, c)];
  return y;
}

void ls_ref_pool(const ls_tensor *y, const ls_tensor *kv, const ls_tensor *score) {
  for (int64_t c = 0; c < kv->dim[1]; c++) {
    const double pooled = kv->dtype == LS_F64 ? pool_f64(kv, score, c) : (double)pool_f32(kv, score, c);
    ls_tensor_set(y, c, pooled); /* the one rounding */
  }
}
