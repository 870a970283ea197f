#include "ref_linear.h"

#include "../core/ls_gemm.h"

void ls_ref_linear(const ls_tensor *y, int n_y, const ls_tensor *x, const ls_tensor *w, void *wide_x, void *wide_y) {
  const int64_t rows = x->dim[0], k = x->dim[1], n = w->dim[0];
  if (w->dtype == LS_F64) {
    ls_tensor_to_f64(wide_x, x);
    ls_gemm_f64(wide_y, wide_x, w->data, rows, n, k, n, k, k);
  } else {
    ls_tensor_to_f32(wide_x, x);
    ls_gemm_f32(wide_y, wide_x, w->data, rows, n, k, n, k, k);
  }

  int64_t row = 0; /* first row of the piece */
  for (int piece = 0; piece < n_y; piece++) {
    if (w->dtype == LS_F64) {
      ls_tensor_from_f64(&y[piece], (double *)wide_y + row * n);
    } else {
      ls_tensor_from_f32(&y[piece], (float *)wide_y + row * n); /* the one rounding */
    }
    row += y[piece].dim[0];
  }
}

void ls_ref_linear_free(const ls_tensor *y, const ls_tensor *x, const ls_tensor *w, void *wide_x, void *wide_y) {
  const int64_t k = x->dim[1], n = w->dim[0];
  if (x->dim[0] != 1) {
    ls_ref_linear(y, 1, x, w, wide_x, wide_y);
  } else if (w->dtype == LS_F64) {
    ls_tensor_to_f64(wide_x, x);
    ls_gemv_f64(wide_y, wide_x, w->data, n, k, k);
    ls_tensor_from_f64(y, wide_y);
  } else {
    ls_tensor_to_f32(wide_x, x);
    ls_gemv_f32(wide_y, wide_x, w->data, n, k, k);
    ls_tensor_from_f32(y, wide_y); /* the one rounding */
  }
}
