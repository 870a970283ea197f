/* ls_tensor: a typed, strided view. It owns nothing; the trace, arena or path that handed it out does. */
#ifndef LS_TENSOR_H
#define LS_TENSOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "ls_status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LS_MAX_DIMS = 4 };

typedef enum { LS_BF16, LS_F16, LS_F32, LS_F64, LS_I32, LS_I64, LS_U8, LS_DTYPES } ls_dtype;

typedef enum { LS_HOST, LS_DEVICE } ls_place;

typedef struct {
  ls_dtype dtype;
  ls_place place;
  int ndim;
  int64_t dim[LS_MAX_DIMS];    /* unused trailing entries are 1 */
  int64_t stride[LS_MAX_DIMS]; /* in elements; row-major and dense unless a view says otherwise */
  void *data;
} ls_tensor;

size_t ls_dtype_size(ls_dtype dtype);      /* bytes of one element */
const char *ls_dtype_name(ls_dtype dtype); /* "bf16", "f16", "f32", "f64", "i32", "i64", "u8" */
bool ls_dtype_is_float(ls_dtype dtype);

/* Product of the dims, or -1 where it overflows int64 or a dim is negative. */
int64_t ls_dims_count(int ndim, const int64_t *dim);

/* A dense row-major view of host memory. */
ls_tensor ls_tensor_make(ls_dtype dtype, int ndim, const int64_t *dim, void *data);

int64_t ls_tensor_count(const ls_tensor *t);
size_t ls_tensor_bytes(const ls_tensor *t); /* of a dense tensor of this shape */
bool ls_tensor_is_dense(const ls_tensor *t);
bool ls_tensor_same_shape(const ls_tensor *a, const ls_tensor *b);

/* The view [from, from + length) along axis; the rank stays. The range must lie inside the axis. */
ls_tensor ls_tensor_slice(const ls_tensor *t, int axis, int64_t from, int64_t length);

/* The view at one index of axis 0; the rank drops by one (a rank of 1 stays, with dim 1). */
ls_tensor ls_tensor_at(const ls_tensor *t, int64_t index);

/* Element offset of a flat row-major index of the shape, in elements from data. */
int64_t ls_tensor_offset(const ls_tensor *t, int64_t flat);

/* One element by flat row-major index, widened exactly (i64 above 2^53 rounds). Host tensors only. */
double ls_tensor_get(const ls_tensor *t, int64_t flat);

/* Stores v at a flat index, rounded to the tensor's type, nearest-even. */
void ls_tensor_set(const ls_tensor *t, int64_t flat, double v);

/* All elements, row-major, to dense float32/float64 (from f64 to f32: nearest-even), and back to any float type. */
void ls_tensor_to_f32(float *dst, const ls_tensor *t);
void ls_tensor_to_f64(double *dst, const ls_tensor *t);
void ls_tensor_from_f32(const ls_tensor *t, const float *src);
void ls_tensor_from_f64(const ls_tensor *t, const double *src);

/* Copies values, converting between types where they differ. Shapes must match. */
ls_status ls_tensor_copy(const ls_tensor *dst, const ls_tensor *src, ls_error *err);

/* Bitwise equality of every element (-0 and +0 differ, equal NaN payloads are equal). Same dtype and shape required, else false. */
bool ls_tensor_same_bytes(const ls_tensor *a, const ls_tensor *b);

/* "[5, 8, 1024]" into buf; returns buf. */
char *ls_dims_text(char *buf, size_t size, int ndim, const int64_t *dim);

#ifdef __cplusplus
}
#endif
#endif
