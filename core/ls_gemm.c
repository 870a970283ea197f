/* Few rows (at most LS_INVARIANT_ROWS): every BLAS call is the same call. It has LS_GEMM_BLOCK_ROWS rows of x, missing ones zero,
 * LS_GEMM_BLOCK_CHANNELS rows of W, missing ones zero, and one BLAS thread; so a library that picks its code by shape or thread count has
 * nothing to pick by, and what is left to test is whether the rows of one block are treated alike (ls_gemm_selftest). The call computes
 * the transpose, W . x^T: then the rows of x are what the library calls M, the dimension its kernels lay along vector lanes, and 16 rows
 * alike is what it does on every core type tried. The other way round they are N, which Haswell and Zen cut in 12 + 4 with another order
 * of addition in each, and blocks of at most 8 would be needed: two passes over W instead of one.
 *
 * More rows: a fixed grid of larger blocks, one BLAS thread each, spread over ls_parallel. */
#include "ls_gemm.h"

#include <cblas.h>
#include <limits.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ls_gemm_internal.h"
#include "ls_parallel.h"
#include "ls_random.h"
#include "ls_shortage.h"

enum { H = LS_GEMM_BLOCK_ROWS, P = LS_GEMM_BLOCK_CHANNELS, MANY_ROWS = 512, MANY_CHANNELS = 256, ALIGN = 64 };

/* ---- the library ---- */

static char library[128];
static pthread_once_t library_once = PTHREAD_ONCE_INIT;

static void set_up_library(void) {
  openblas_set_num_threads(1);
  const char *config = openblas_get_config(); /* "OpenBLAS 0.3.21 NO_LAPACKE DYNAMIC_ARCH ..." */
  int length = (int)strcspn(config, " ");
  if (config[length] == ' ') length += 1 + (int)strcspn(config + length + 1, " ");
  snprintf(library, sizeof library, "%.*s %s", length, config, openblas_get_corename());
}

const char *ls_gemm_library(void) {
  pthread_once(&library_once, set_up_library);
  return library;
}

const char *ls_gemm_faster_core_than(const char *core, bool has_avx2_and_fma) {
  return has_avx2_and_fma && strcmp(core, "Prescott") == 0 ? "Haswell" : NULL;
}

const char *ls_gemm_faster_core(void) {
#if defined(__x86_64__)
  return ls_gemm_faster_core_than(openblas_get_corename(), __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"));
#else
  return NULL;
#endif
}

void ls_gemm_blas_block_f32(float *yt, const float *w, const float *x, int64_t k, int64_t ldw) {
  cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, P, H, (blasint)k, 1.0f, w, (blasint)ldw, x, (blasint)k, 0.0f, yt, H);
}

void ls_gemm_blas_block_f64(double *yt, const double *w, const double *x, int64_t k, int64_t ldw) {
  cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, P, H, (blasint)k, 1.0, w, (blasint)ldw, x, (blasint)k, 0.0, yt, H);
}

/* ---- one product of either type ---- */

typedef struct {
  size_t size; /* of an element: 4 or 8 */
  char *y;     /* bytes, so that one code addresses both types */
  const char *x, *w;
  int64_t rows, n, k, ldy, ldx, ldw;
  ls_gemm_block_f32 *f32; /* the one that fits size */
  ls_gemm_block_f64 *f64;
  char *block;      /* few rows: x, zero-padded to [H, k] */
  char *last_piece; /* few rows: the last channels of w, zero-padded to [P, k], where n is no multiple of P */
} product;

/* NULL: the product is spoilt, and ls_shortage told. */
static void *scratch(size_t bytes) { return ls_shortage_unless(aligned_alloc(ALIGN, (bytes + ALIGN - 1) / ALIGN * ALIGN)); }

/* Copies rows of `width` elements to dense rows. */
static void copy_rows(char *to, int64_t to_ld, const char *from, int64_t from_ld, int64_t rows, int64_t width, size_t size) {
  for (int64_t r = 0; r < rows; r++) memcpy(to + r * to_ld * (int64_t)size, from + r * from_ld * (int64_t)size, (size_t)width * size);
}

static void few_rows_piece(void *arg, int64_t i) {
  const product *p = arg;
  const int64_t size = (int64_t)p->size, first = i * P, width = p->n - first < P ? p->n - first : P;
  const void *w = width < P ? p->last_piece : p->w + first * p->ldw * size;
  const int64_t ldw = width < P ? p->k : p->ldw;
  union {
    float f32[P * H];
    double f64[P * H];
  } yt;
  memset(&yt, 0, sizeof yt);
  if (p->size == sizeof(float)) {
    p->f32(yt.f32, w, (const void *)p->block, p->k, ldw);
    float *y = (void *)p->y;
    for (int64_t r = 0; r < p->rows; r++)
      for (int64_t c = 0; c < width; c++) y[r * p->ldy + first + c] = yt.f32[c * H + r];
  } else {
    p->f64(yt.f64, w, (const void *)p->block, p->k, ldw);
    double *y = (void *)p->y;
    for (int64_t r = 0; r < p->rows; r++)
      for (int64_t c = 0; c < width; c++) y[r * p->ldy + first + c] = yt.f64[c * H + r];
  }
}

static bool few_rows(product *p) {
  const size_t size = p->size, x_bytes = (size_t)(H * p->k) * size, w_bytes = (size_t)(P * p->k) * size;
  const int64_t tail = p->n % P;
  p->block = scratch(x_bytes);
  p->last_piece = tail > 0 ? scratch(w_bytes) : NULL;
  bool ok = p->block != NULL && (tail == 0 || p->last_piece != NULL);
  if (ok) {
    memset(p->block, 0, x_bytes);
    copy_rows(p->block, p->k, p->x, p->ldx, p->rows, p->k, size);
    if (tail > 0) {
      memset(p->last_piece, 0, w_bytes);
      copy_rows(p->last_piece, p->k, p->w + (p->n - tail) * p->ldw * (int64_t)size, p->ldw, tail, p->k, size);
    }
    ls_parallel_for((p->n + P - 1) / P, few_rows_piece, p);
  }
  free(p->block);
  free(p->last_piece);
  return ok;
}

static void many_rows_piece(void *arg, int64_t i) {
  const product *p = arg;
  const int64_t pieces = (p->n + MANY_CHANNELS - 1) / MANY_CHANNELS, size = (int64_t)p->size;
  const int64_t r = i / pieces * MANY_ROWS, c = i % pieces * MANY_CHANNELS;
  const blasint rows = (blasint)(p->rows - r < MANY_ROWS ? p->rows - r : MANY_ROWS);
  const blasint width = (blasint)(p->n - c < MANY_CHANNELS ? p->n - c : MANY_CHANNELS);
  const blasint k = (blasint)p->k, ldx = (blasint)p->ldx, ldw = (blasint)p->ldw, ldy = (blasint)p->ldy;
  void *y = p->y + (r * p->ldy + c) * size;
  const void *x = p->x + r * p->ldx * size, *w = p->w + c * p->ldw * size;
  if (p->size == sizeof(float)) {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, width, k, 1.0f, x, ldx, w, ldw, 0.0f, y, ldy);
  } else {
    cblas_dgemm(CblasRowMajor, CblasNoTrans, CblasTrans, rows, width, k, 1.0, x, ldx, w, ldw, 0.0, y, ldy);
  }
}

/* Every byte of a result that could not be made is 0xFF: NaN, which no comparison passes. */
static void spoil(product *p) {
  for (int64_t r = 0; r < p->rows; r++) memset(p->y + r * p->ldy * (int64_t)p->size, 0xFF, (size_t)p->n * p->size);
}

static void multiply(product *p) {
  if (p->rows <= 0 || p->n <= 0) return;
  if (p->k <= 0) {
    for (int64_t r = 0; r < p->rows; r++) memset(p->y + r * p->ldy * (int64_t)p->size, 0, (size_t)p->n * p->size);
    return;
  }
  pthread_once(&library_once, set_up_library);
  bool ok = p->k <= INT_MAX && p->ldx <= INT_MAX && p->ldw <= INT_MAX && p->ldy <= INT_MAX;
  if (ok && p->rows <= LS_INVARIANT_ROWS) {
    ok = few_rows(p);
  } else if (ok) {
    int64_t pieces = (p->rows + MANY_ROWS - 1) / MANY_ROWS * ((p->n + MANY_CHANNELS - 1) / MANY_CHANNELS);
    ls_parallel_for(pieces, many_rows_piece, p);
  }
  if (!ok) spoil(p);
}

void ls_gemm_f32(float *y, const float *x, const float *w, int64_t rows, int64_t n, int64_t k, int64_t ldy, int64_t ldx, int64_t ldw) {
  product p = {sizeof(float), (char *)y, (const char *)x, (const char *)w, rows, n, k, ldy, ldx, ldw, ls_gemm_blas_block_f32, NULL,
               NULL,          NULL};
  multiply(&p);
}

void ls_gemm_f64(double *y, const double *x, const double *w, int64_t rows, int64_t n, int64_t k, int64_t ldy, int64_t ldx, int64_t ldw) {
  product p = {sizeof(double), (char *)y, (const char *)x, (const char *)w, rows, n, k, ldy, ldx, ldw, NULL, ls_gemm_blas_block_f64,
               NULL,           NULL};
  multiply(&p);
}

/* ---- one row ---- */

enum { ROW_CHANNELS = 256 }; /* a piece: enough to hide the call, few enough that both cores end together */

static void row_piece(void *arg, int64_t i) {
  const product *p = arg;
  const int64_t first = i * ROW_CHANNELS, width = p->n - first < ROW_CHANNELS ? p->n - first : ROW_CHANNELS, size = (int64_t)p->size;
  const void *w = p->w + first * p->ldw * size, *x = p->x;
  void *y = p->y + first * size;
  if (p->size == sizeof(float)) {
    cblas_sgemv(CblasRowMajor, CblasNoTrans, (blasint)width, (blasint)p->k, 1.0f, w, (blasint)p->ldw, x, 1, 0.0f, y, 1);
  } else {
    cblas_dgemv(CblasRowMajor, CblasNoTrans, (blasint)width, (blasint)p->k, 1.0, w, (blasint)p->ldw, x, 1, 0.0, y, 1);
  }
}

static void multiply_row(product *p) {
  if (p->n <= 0) return;
  pthread_once(&library_once, set_up_library);
  memset(p->y, 0, (size_t)p->n * p->size); /* gemv multiplies what stands there by 0, which a NaN survives; and k may be 0 */
  if (p->k <= 0) return;
  if (p->k <= INT_MAX && p->ldw <= INT_MAX) {
    ls_parallel_for((p->n + ROW_CHANNELS - 1) / ROW_CHANNELS, row_piece, p);
  } else {
    spoil(p);
  }
}

void ls_gemv_f32(float *y, const float *x, const float *w, int64_t n, int64_t k, int64_t ldw) {
  product p = {.size = sizeof(float), .y = (char *)y, .x = (const char *)x, .w = (const char *)w, .rows = 1, .n = n, .k = k, .ldw = ldw};
  multiply_row(&p);
}

void ls_gemv_f64(double *y, const double *x, const double *w, int64_t n, int64_t k, int64_t ldw) {
  product p = {.size = sizeof(double), .y = (char *)y, .x = (const char *)x, .w = (const char *)w, .rows = 1, .n = n, .k = k, .ldw = ldw};
  multiply_row(&p);
}

/* ---- self-test ---- */

static ls_status refuse(ls_error *err, int64_t k, const char *type, const char *what) {
  return ls_fail(err, LS_UNAVAILABLE, "BLAS self-test, %s, k %lld: %s (%s); OPENBLAS_CORETYPE=Haswell or another core may help", type,
                 (long long)k, what, ls_gemm_library());
}

/* Values against a plain double sum: 4 * sqrt(k) * eps * sum |x||w|, eps half a step at 1. */
static bool value_holds(double got, const product *p, int64_t row, int64_t channel, double eps) {
  double sum = 0, size = 0;
  for (int64_t i = 0; i < p->k; i++) {
    int64_t at_x = row * p->ldx + i, at_w = channel * p->ldw + i;
    bool single = p->size == sizeof(float);
    double x = single ? (double)((const float *)(const void *)p->x)[at_x] : ((const double *)(const void *)p->x)[at_x];
    double w = single ? (double)((const float *)(const void *)p->w)[at_w] : ((const double *)(const void *)p->w)[at_w];
    sum += x * w;
    size += fabs(x * w);
  }
  return fabs(got - sum) <= 4 * sqrt((double)p->k) * eps * size;
}

/* All 16 rows one at a time, then in groups of several sizes: each row of each group, so every index, must have the bits it has alone. */
static ls_status selftest_of(product *p, char *alone, char *together, const char *type, double eps, ls_error *err) {
  static const int64_t sizes[] = {2, 3, 5, 8, 15, 16};
  const char *x = p->x;
  const size_t row_bytes = (size_t)P * p->size;
  p->n = P;
  p->ldx = p->ldw = p->k;
  p->ldy = P;
  for (int64_t r = 0; r < LS_INVARIANT_ROWS; r++) {
    p->rows = 1;
    p->x = x + r * p->k * (int64_t)p->size;
    p->y = alone + r * (int64_t)row_bytes;
    if (!few_rows(p)) return ls_fail(err, LS_INTERNAL, "out of memory in the BLAS self-test");
  }
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    int64_t from = LS_INVARIANT_ROWS - sizes[s]; /* a group's row i is row from + i */
    p->rows = sizes[s];
    p->x = x + from * p->k * (int64_t)p->size;
    p->y = together;
    if (!few_rows(p)) return ls_fail(err, LS_INTERNAL, "out of memory in the BLAS self-test");
    for (int64_t i = 0; i < sizes[s]; i++) {
      if (memcmp(together + i * (int64_t)row_bytes, alone + (from + i) * (int64_t)row_bytes, row_bytes) != 0) {
        char what[96];
        snprintf(what, sizeof what, "row %lld of %lld has other bits than the same row alone", (long long)i, (long long)sizes[s]);
        return refuse(err, p->k, type, what);
      }
    }
  }
  p->x = x;
  for (int64_t r = 0; r < LS_INVARIANT_ROWS; r += 5) {
    for (int64_t c = 0; c < P; c++) {
      double got = p->size == sizeof(float) ? (double)((const float *)(const void *)alone)[r * P + c]
                                            : ((const double *)(const void *)alone)[r * P + c];
      if (!value_holds(got, p, r, c, eps)) return refuse(err, p->k, type, "values are wrong");
    }
  }
  p->y = together;
  multiply_row(p);
  for (int64_t c = 0; c < P; c++) {
    double got =
        p->size == sizeof(float) ? (double)((const float *)(const void *)together)[c] : ((const double *)(const void *)together)[c];
    if (!value_holds(got, p, 0, c, eps)) return refuse(err, p->k, type, "values of a single row are wrong");
  }
  return LS_OK;
}

ls_status ls_gemm_selftest_blocks(ls_gemm_block_f32 *f32, ls_gemm_block_f64 *f64, int64_t k, ls_error *err) {
  if (k <= 0 || k > INT_MAX) return ls_fail(err, LS_INTERNAL, "BLAS self-test: inner dimension %lld", (long long)k);
  pthread_once(&library_once, set_up_library);
  ls_status status;
  const int64_t rows = LS_INVARIANT_ROWS, inputs = (rows + P) * k, outputs = 2 * rows * P;
  void *input = scratch((size_t)inputs * sizeof(double)), *output = scratch((size_t)outputs * sizeof(double));
  if (input == NULL || output == NULL) {
    status = ls_fail(err, LS_INTERNAL, "out of memory in the BLAS self-test");
    goto out;
  }
  const size_t size[2] = {sizeof(float), sizeof(double)};
  for (int i = 0; i < 2; i++) {
    ls_random draw = {.seed = 1}; /* full mantissas: products and sums must round for an order of addition to show */
    for (int64_t j = 0; j < inputs; j++) {
      double v = 2 * ls_random_unit(&draw) - 1;
      if (i == 0) {
        ((float *)input)[j] = (float)v;
      } else {
        ((double *)input)[j] = v;
      }
    }
    product p = {.size = size[i], .x = input, .w = (const char *)input + (size_t)(rows * k) * size[i], .k = k, .f32 = f32, .f64 = f64};
    char *together = (char *)output + (size_t)(rows * P) * size[i];
    LS_TRY_OUT(selftest_of(&p, output, together, i == 0 ? "float32" : "float64", i == 0 ? 0x1p-24 : 0x1p-53, err));
  }
out:
  free(input);
  free(output);
  return status;
}

ls_status ls_gemm_selftest(int64_t k, ls_error *err) {
  return ls_gemm_selftest_blocks(ls_gemm_blas_block_f32, ls_gemm_blas_block_f64, k, err);
}
