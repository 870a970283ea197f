#include "gemm_check.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/ls_gemm.h"
#include "core/ls_random.h"

enum { MOST = LS_INVARIANT_ROWS };

typedef struct {
  size_t size;
  int64_t n, k;
  char *x, *w, *alone, *y; /* x [16, k], w [n, k], alone and y [16, n] */
} operands;

static void open_operands(operands *o, size_t size, int64_t n, int64_t k) {
  *o = (operands){.size = size, .n = n, .k = k};
  o->x = malloc((size_t)(MOST * k) * size + 1);
  o->w = malloc((size_t)(n * k) * size + 1);
  o->alone = malloc((size_t)(MOST * n) * size + 1);
  o->y = malloc((size_t)(MOST * n) * size + 1);
  ls_random draw = {.seed = (uint64_t)(n * 1000003 + k)};
  for (int64_t i = 0; i < (MOST + n) * k; i++) {
    double v = 2 * ls_random_unit(&draw) - 1;
    char *at = i < MOST * k ? o->x + i * (int64_t)size : o->w + (i - MOST * k) * (int64_t)size;
    if (size == sizeof(float)) {
      *(float *)(void *)at = (float)v;
    } else {
      *(double *)(void *)at = v;
    }
  }
}

static void close_operands(operands *o) {
  free(o->x);
  free(o->w);
  free(o->alone);
  free(o->y);
}

static void gemm(const operands *o, char *y, int64_t from, int64_t rows, int64_t n) {
  char *x = o->x + from * o->k * (int64_t)o->size;
  if (o->size == sizeof(float)) {
    ls_gemm_f32((void *)y, (void *)x, (void *)o->w, rows, n, o->k, n, o->k, o->k);
  } else {
    ls_gemm_f64((void *)y, (void *)x, (void *)o->w, rows, n, o->k, n, o->k, o->k);
  }
}

bool gemm_rows_are_invariant(int64_t n, int64_t k, char text[160]) {
  bool same = true;
  for (size_t size = sizeof(float); size <= sizeof(double); size *= 2) {
    operands o;
    open_operands(&o, size, n, k);
    const size_t row = (size_t)n * size;
    for (int64_t r = 0; r < MOST; r++) gemm(&o, o.alone + (size_t)r * row, r, 1, n);
    for (int64_t rows = 1; rows <= MOST; rows++) {
      for (int64_t from = 0; from + rows <= MOST; from += rows > 4 ? 1 : 4) { /* sliding windows: a row meets many indices */
        gemm(&o, o.y, from, rows, n);
        for (int64_t r = 0; same && r < rows; r++) {
          same = memcmp(o.y + (size_t)r * row, o.alone + (size_t)(from + r) * row, row) == 0;
          if (!same)
            snprintf(text, 160, "f%d, n %lld, k %lld: row %lld of %lld differs from the same row alone", (int)size * 8, (long long)n,
                     (long long)k, (long long)r, (long long)rows);
        }
      }
    }
    close_operands(&o);
  }
  return same;
}

bool gemm_channels_are_invariant(int64_t fewer, int64_t n, int64_t k, char text[160]) {
  bool same = true;
  for (size_t size = sizeof(float); size <= sizeof(double); size *= 2) {
    operands o;
    open_operands(&o, size, n, k);
    gemm(&o, o.alone, 0, MOST, n);
    gemm(&o, o.y, 0, MOST, fewer);
    for (int64_t r = 0; r < MOST; r++)
      same = same && memcmp(o.y + r * fewer * (int64_t)size, o.alone + r * n * (int64_t)size, (size_t)fewer * size) == 0;
    if (!same)
      snprintf(text, 160, "f%d, k %lld: the first %lld of %lld channels differ from those alone", (int)size * 8, (long long)k,
               (long long)fewer, (long long)n);
    close_operands(&o);
  }
  return same;
}
