#include "ls_tensor.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "ls_numeric.h"
#include "ls_parallel.h"

/* ---- types and shapes ---- */

static const struct {
  const char *name;
  size_t size;
} dtypes[LS_DTYPES] = {[LS_BF16] = {"bf16", 2}, [LS_F16] = {"f16", 2}, [LS_F32] = {"f32", 4}, [LS_F64] = {"f64", 8},
                       [LS_I32] = {"i32", 4},   [LS_I64] = {"i64", 8}, [LS_U8] = {"u8", 1}};

size_t ls_dtype_size(ls_dtype dtype) { return (unsigned)dtype < LS_DTYPES ? dtypes[dtype].size : 0; }
const char *ls_dtype_name(ls_dtype dtype) { return (unsigned)dtype < LS_DTYPES ? dtypes[dtype].name : "unknown type"; }
bool ls_dtype_is_float(ls_dtype dtype) { return dtype == LS_BF16 || dtype == LS_F16 || dtype == LS_F32 || dtype == LS_F64; }

int64_t ls_dims_count(int ndim, const int64_t *dim) {
  int64_t count = 1;
  bool overflow = false, empty = false;
  for (int d = 0; d < ndim; d++) {
    if (dim[d] < 0) return -1;
    if (dim[d] == 0) empty = true;
    overflow = overflow || __builtin_mul_overflow(count, dim[d], &count);
  }
  return empty ? 0 : (overflow ? -1 : count);
}

ls_tensor ls_tensor_make(ls_dtype dtype, int ndim, const int64_t *dim, void *data) {
  ls_tensor t = {.dtype = dtype, .place = LS_HOST, .ndim = ndim, .data = data};
  int64_t stride = 1;
  for (int d = LS_MAX_DIMS - 1; d >= 0; d--) {
    t.dim[d] = d < ndim ? dim[d] : 1;
    t.stride[d] = stride;
    if (t.dim[d] > 0 && __builtin_mul_overflow(stride, t.dim[d], &stride)) stride = 0; /* only where another dim is 0: nothing is stored */
  }
  return t;
}

int64_t ls_tensor_count(const ls_tensor *t) { return ls_dims_count(t->ndim, t->dim); }
size_t ls_tensor_bytes(const ls_tensor *t) { return (size_t)ls_tensor_count(t) * ls_dtype_size(t->dtype); }

/* Number of elements that lie side by side in row-major order from any index that starts such a run: the product of the trailing dims
 * that are dense. The whole count where the tensor is dense. */
static int64_t run_length(const ls_tensor *t) {
  int64_t run = 1;
  for (int d = t->ndim - 1; d >= 0; d--) {
    if (t->dim[d] == 0) return 0;
    if (t->dim[d] != 1 && t->stride[d] != run) break;
    run *= t->dim[d];
  }
  return run;
}

bool ls_tensor_is_dense(const ls_tensor *t) {
  int64_t count = ls_tensor_count(t);
  return count == 0 || run_length(t) == count;
}

bool ls_tensor_same_shape(const ls_tensor *a, const ls_tensor *b) {
  if (a->ndim != b->ndim) return false;
  for (int d = 0; d < a->ndim; d++)
    if (a->dim[d] != b->dim[d]) return false;
  return true;
}

static void *element(const ls_tensor *t, int64_t offset) {
  return t->data == NULL ? NULL : (char *)t->data + offset * (int64_t)ls_dtype_size(t->dtype);
}

ls_tensor ls_tensor_slice(const ls_tensor *t, int axis, int64_t from, int64_t length) {
  ls_tensor view = *t;
  view.dim[axis] = length;
  view.data = element(t, length > 0 ? from * t->stride[axis] : 0);
  return view;
}

ls_tensor ls_tensor_at(const ls_tensor *t, int64_t index) {
  ls_tensor view = ls_tensor_slice(t, 0, index, 1);
  if (t->ndim <= 1) return view;
  view.ndim = t->ndim - 1;
  for (int d = 0; d < LS_MAX_DIMS; d++) {
    view.dim[d] = d < view.ndim ? t->dim[d + 1] : 1;
    view.stride[d] = d < view.ndim ? t->stride[d + 1] : 1;
  }
  return view;
}

int64_t ls_tensor_offset(const ls_tensor *t, int64_t flat) {
  int64_t offset = 0;
  for (int d = t->ndim - 1; d >= 0; d--) {
    offset += flat % t->dim[d] * t->stride[d];
    flat /= t->dim[d];
  }
  return offset;
}

char *ls_dims_text(char *buf, size_t size, int ndim, const int64_t *dim) {
  size_t used = 0;
  for (int d = 0; d <= ndim; d++) {
    int n = d == ndim ? snprintf(buf + used, size - used, ndim == 0 ? "[]" : "]")
                      : snprintf(buf + used, size - used, d == 0 ? "[%lld" : ", %lld", (long long)dim[d]);
    if (n < 0 || (size_t)n >= size - used) break;
    used += (size_t)n;
  }
  return buf;
}

/* ---- conversion of runs of elements ---- */

enum { PIECE = 1 << 18, CHUNK = 512 };

static void widen_to_f32(float *restrict dst, ls_dtype dtype, const void *restrict src, int64_t n) {
  switch (dtype) {
    case LS_BF16:
      for (int64_t i = 0; i < n; i++) dst[i] = ls_bf16_to_f32(((const uint16_t *)src)[i]);
      break;
    case LS_F16:
      for (int64_t i = 0; i < n; i++) dst[i] = ls_f16_to_f32(((const uint16_t *)src)[i]);
      break;
    case LS_F32:
      memcpy(dst, src, (size_t)n * sizeof *dst);
      break;
    case LS_F64:
      for (int64_t i = 0; i < n; i++) dst[i] = (float)((const double *)src)[i];
      break;
    case LS_I32:
      for (int64_t i = 0; i < n; i++) dst[i] = (float)((const int32_t *)src)[i];
      break;
    case LS_I64:
      for (int64_t i = 0; i < n; i++) dst[i] = (float)((const int64_t *)src)[i];
      break;
    case LS_U8:
      for (int64_t i = 0; i < n; i++) dst[i] = (float)((const uint8_t *)src)[i];
      break;
    case LS_DTYPES:
      break;
  }
}

static void widen_to_f64(double *restrict dst, ls_dtype dtype, const void *restrict src, int64_t n) {
  switch (dtype) {
    case LS_BF16:
      for (int64_t i = 0; i < n; i++) dst[i] = (double)ls_bf16_to_f32(((const uint16_t *)src)[i]);
      break;
    case LS_F16:
      for (int64_t i = 0; i < n; i++) dst[i] = (double)ls_f16_to_f32(((const uint16_t *)src)[i]);
      break;
    case LS_F32:
      for (int64_t i = 0; i < n; i++) dst[i] = (double)((const float *)src)[i];
      break;
    case LS_F64:
      memcpy(dst, src, (size_t)n * sizeof *dst);
      break;
    case LS_I32:
      for (int64_t i = 0; i < n; i++) dst[i] = (double)((const int32_t *)src)[i];
      break;
    case LS_I64:
      for (int64_t i = 0; i < n; i++) dst[i] = (double)((const int64_t *)src)[i];
      break;
    case LS_U8:
      for (int64_t i = 0; i < n; i++) dst[i] = (double)((const uint8_t *)src)[i];
      break;
    case LS_DTYPES:
      break;
  }
}

static void round_from_f64(ls_dtype dtype, void *restrict dst, const double *restrict src, int64_t n) {
  switch (dtype) {
    case LS_BF16:
      for (int64_t i = 0; i < n; i++) ((uint16_t *)dst)[i] = ls_f64_to_bf16(src[i]);
      break;
    case LS_F16:
      for (int64_t i = 0; i < n; i++) ((uint16_t *)dst)[i] = ls_f64_to_f16(src[i]);
      break;
    case LS_F32:
      for (int64_t i = 0; i < n; i++) ((float *)dst)[i] = (float)src[i];
      break;
    case LS_F64:
      memcpy(dst, src, (size_t)n * sizeof *src);
      break;
    case LS_I32:
      for (int64_t i = 0; i < n; i++) ((int32_t *)dst)[i] = (int32_t)ls_round_to(LS_I32, src[i]);
      break;
    case LS_I64:
      for (int64_t i = 0; i < n; i++) {
        double v = ls_round_to(LS_I64, src[i]);
        ((int64_t *)dst)[i] = v < 0x1p63 ? (int64_t)v : INT64_MAX;
      }
      break;
    case LS_U8:
      for (int64_t i = 0; i < n; i++) ((uint8_t *)dst)[i] = (uint8_t)ls_round_to(LS_U8, src[i]);
      break;
    case LS_DTYPES:
      break;
  }
}

static void round_from_f32(ls_dtype dtype, void *restrict dst, const float *restrict src, int64_t n) {
  switch (dtype) {
    case LS_BF16:
      for (int64_t i = 0; i < n; i++) ((uint16_t *)dst)[i] = ls_f32_to_bf16(src[i]);
      break;
    case LS_F16:
      for (int64_t i = 0; i < n; i++) ((uint16_t *)dst)[i] = ls_f32_to_f16(src[i]);
      break;
    case LS_F32:
      memcpy(dst, src, (size_t)n * sizeof *src);
      break;
    default: {
      double wide[CHUNK];
      for (int64_t i = 0; i < n; i += CHUNK) {
        int64_t part = n - i < CHUNK ? n - i : CHUNK;
        widen_to_f64(wide, LS_F32, src + i, part);
        round_from_f64(dtype, (char *)dst + i * (int64_t)ls_dtype_size(dtype), wide, part);
      }
    }
  }
}

/* One run from any type to any type, rounded at most once (i64 above 2^53 twice). */
static void convert_run(ls_dtype to, void *restrict dst, ls_dtype from, const void *restrict src, int64_t n) {
  if (to == from) {
    memcpy(dst, src, (size_t)n * ls_dtype_size(to));
  } else if (to == LS_F32) {
    widen_to_f32(dst, from, src, n);
  } else if (to == LS_F64) {
    widen_to_f64(dst, from, src, n);
  } else if (from == LS_F32) {
    round_from_f32(to, dst, src, n);
  } else if (from == LS_F64) {
    round_from_f64(to, dst, src, n);
  } else {
    double wide[CHUNK];
    for (int64_t i = 0; i < n; i += CHUNK) {
      int64_t part = n - i < CHUNK ? n - i : CHUNK;
      widen_to_f64(wide, from, (const char *)src + i * (int64_t)ls_dtype_size(from), part);
      round_from_f64(to, (char *)dst + i * (int64_t)ls_dtype_size(to), wide, part);
    }
  }
}

/* A conversion of a whole tensor, cut in pieces that never cross the end of a run of either side. */
typedef struct {
  const ls_tensor *dst, *src;
  int64_t run, piece, pieces_per_run;
} conversion;

static void convert_piece(void *arg, int64_t i) {
  const conversion *c = arg;
  int64_t within = i % c->pieces_per_run * c->piece;
  int64_t flat = i / c->pieces_per_run * c->run + within;
  int64_t n = c->run - within < c->piece ? c->run - within : c->piece;
  convert_run(c->dst->dtype, element(c->dst, ls_tensor_offset(c->dst, flat)), c->src->dtype,
              element(c->src, ls_tensor_offset(c->src, flat)), n);
}

/* Runs of a dense tensor end with every trailing product of dims, so the shorter of two runs divides the longer. */
static void convert(const ls_tensor *dst, const ls_tensor *src) {
  int64_t count = ls_tensor_count(src);
  if (count <= 0) return;
  int64_t dst_run = run_length(dst), src_run = run_length(src);
  conversion c = {.dst = dst, .src = src, .run = dst_run < src_run ? dst_run : src_run};
  c.piece = c.run < PIECE ? c.run : PIECE;
  c.pieces_per_run = (c.run + c.piece - 1) / c.piece;
  int64_t pieces = count / c.run * c.pieces_per_run;
  if (count >= 2 * PIECE && c.run >= 64) { /* short pieces would cost more to hand out than to do */
    ls_parallel_for(pieces, convert_piece, &c);
  } else {
    for (int64_t i = 0; i < pieces; i++) convert_piece(&c, i);
  }
}

double ls_tensor_get(const ls_tensor *t, int64_t flat) {
  double v;
  widen_to_f64(&v, t->dtype, element(t, ls_tensor_offset(t, flat)), 1);
  return v;
}

void ls_tensor_set(const ls_tensor *t, int64_t flat, double v) { round_from_f64(t->dtype, element(t, ls_tensor_offset(t, flat)), &v, 1); }

static ls_tensor dense_as(ls_dtype dtype, const ls_tensor *shape, const void *data) {
  return ls_tensor_make(dtype, shape->ndim, shape->dim, (void *)(uintptr_t)data);
}

void ls_tensor_to_f32(float *dst, const ls_tensor *t) {
  ls_tensor to = dense_as(LS_F32, t, dst);
  convert(&to, t);
}

void ls_tensor_to_f64(double *dst, const ls_tensor *t) {
  ls_tensor to = dense_as(LS_F64, t, dst);
  convert(&to, t);
}

void ls_tensor_from_f32(const ls_tensor *t, const float *src) {
  ls_tensor from = dense_as(LS_F32, t, src);
  convert(t, &from);
}

void ls_tensor_from_f64(const ls_tensor *t, const double *src) {
  ls_tensor from = dense_as(LS_F64, t, src);
  convert(t, &from);
}

ls_status ls_tensor_copy(const ls_tensor *dst, const ls_tensor *src, ls_error *err) {
  if (dst->place != LS_HOST || src->place != LS_HOST)
    return ls_fail(err, LS_INTERNAL, "tensor copy: a tensor lies in device memory, expected two in host memory");
  if (!ls_tensor_same_shape(dst, src)) {
    char to[96], from[96];
    return ls_fail(err, LS_INTERNAL, "tensor copy: shapes differ: to %s, from %s", ls_dims_text(to, sizeof to, dst->ndim, dst->dim),
                   ls_dims_text(from, sizeof from, src->ndim, src->dim));
  }
  convert(dst, src);
  return LS_OK;
}

bool ls_tensor_same_bytes(const ls_tensor *a, const ls_tensor *b) {
  if (a->dtype != b->dtype || a->place != LS_HOST || b->place != LS_HOST || !ls_tensor_same_shape(a, b)) return false;
  int64_t count = ls_tensor_count(a);
  if (count <= 0) return count == 0;
  int64_t a_run = run_length(a), b_run = run_length(b), run = a_run < b_run ? a_run : b_run;
  for (int64_t flat = 0; flat < count; flat += run)
    if (memcmp(element(a, ls_tensor_offset(a, flat)), element(b, ls_tensor_offset(b, flat)), (size_t)run * ls_dtype_size(a->dtype)) != 0)
      return false;
  return true;
}
