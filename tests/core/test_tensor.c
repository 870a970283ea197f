#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/ls_numeric.h"
#include "core/ls_parallel.h"
#include "core/ls_random.h"
#include "core/ls_tensor.h"

Test(tensor, counts_know_overflow_and_emptiness) {
  cr_assert_eq(ls_dims_count(0, NULL), 1);
  cr_assert_eq(ls_dims_count(3, (int64_t[]){2, 3, 4}), 24);
  cr_assert_eq(ls_dims_count(2, (int64_t[]){INT64_MAX, 2}), -1);
  cr_assert_eq(ls_dims_count(4, (int64_t[]){1 << 20, 1 << 20, 1 << 20, 16}), -1);
  cr_assert_eq(ls_dims_count(3, (int64_t[]){INT64_MAX, INT64_MAX, 0}), 0);
  cr_assert_eq(ls_dims_count(2, (int64_t[]){0, -1}), -1);
}

Test(tensor, shapes_are_written_in_brackets_and_cut_to_the_buffer) {
  char buf[32];
  cr_assert_str_eq(ls_dims_text(buf, sizeof buf, 3, (int64_t[]){5, 8, 1024}), "[5, 8, 1024]");
  cr_assert_str_eq(ls_dims_text(buf, sizeof buf, 0, NULL), "[]");
  cr_assert_str_eq(ls_dims_text(buf, 6, 3, (int64_t[]){5, 8, 1024}), "[5, 8");
  cr_assert_str_eq(ls_dims_text(buf, 1, 1, (int64_t[]){5}), "");
}

/* A view and, kept beside it, where each flat index lies in the buffer. */
static void view_reads(const ls_tensor *t, const int64_t *where) {
  int64_t n = ls_tensor_count(t);
  float single[64];
  double wide[64];
  ls_tensor_to_f32(single, t);
  ls_tensor_to_f64(wide, t);
  for (int64_t i = 0; i < n; i++) {
    cr_assert_eq(ls_tensor_get(t, i), (double)where[i], "flat %ld", (long)i);
    cr_assert_eq(single[i], (float)where[i]);
    cr_assert_eq(wide[i], (double)where[i]);
  }
}

Test(tensor, slices_and_rows_read_and_write_where_they_should) {
  for (int d = 0; d < LS_DTYPES; d++) {
    _Alignas(64) char memory[24 * 8];
    ls_tensor t = ls_tensor_make((ls_dtype)d, 3, (int64_t[]){2, 3, 4}, memory);
    cr_assert(ls_tensor_is_dense(&t));
    for (int64_t i = 0; i < 24; i++) ls_tensor_set(&t, i, (double)i);
    view_reads(&t, (int64_t[]){0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23});
    ls_tensor middle = ls_tensor_slice(&t, 1, 1, 2);
    cr_assert_not(ls_tensor_is_dense(&middle));
    view_reads(&middle, (int64_t[]){4, 5, 6, 7, 8, 9, 10, 11, 16, 17, 18, 19, 20, 21, 22, 23});
    ls_tensor column = ls_tensor_slice(&t, 2, 3, 1);
    view_reads(&column, (int64_t[]){3, 7, 11, 15, 19, 23});
    ls_tensor row = ls_tensor_at(&t, 1);
    cr_assert_eq(row.ndim, 2);
    cr_assert(ls_tensor_is_dense(&row));
    view_reads(&row, (int64_t[]){12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 22, 23});
    ls_tensor one = ls_tensor_at(&column, 0), two = ls_tensor_at(&one, 2), three = ls_tensor_at(&two, 0);
    view_reads(&two, (int64_t[]){11});
    view_reads(&three, (int64_t[]){11});
    cr_assert_eq(three.ndim, 1);
    if (ls_dtype_is_float((ls_dtype)d)) {
      float values[6] = {100, 101, 102, 103, 104, 105};
      ls_tensor_from_f32(&column, values);
      view_reads(&t, (int64_t[]){0, 1, 2, 100, 4, 5, 6, 101, 8, 9, 10, 102, 12, 13, 14, 103, 16, 17, 18, 104, 20, 21, 22, 105});
    }
  }
}

Test(tensor, empty_and_scalar_tensors_are_fine) {
  ls_tensor none = ls_tensor_make(LS_BF16, 3, (int64_t[]){4, 0, 7}, NULL);
  cr_assert_eq(ls_tensor_count(&none), 0);
  cr_assert(ls_tensor_is_dense(&none));
  ls_tensor_to_f32(NULL, &none);
  ls_tensor_from_f64(&none, NULL);
  cr_assert_eq(ls_tensor_copy(&none, &none, NULL), LS_OK);
  cr_assert(ls_tensor_same_bytes(&none, &none));
  ls_tensor part = ls_tensor_slice(&none, 0, 4, 0);
  cr_assert_eq(ls_tensor_count(&part), 0);
  float v = 3;
  ls_tensor scalar = ls_tensor_make(LS_F32, 0, NULL, &v);
  cr_assert_eq(ls_tensor_get(&scalar, 0), 3);
}

Test(tensor, storing_rounds_once) {
  double just_above = nextafter(1 + 0x1p-8, 2); /* by way of float32 this would look like a tie and go to 1 */
  uint16_t a = 0, b = 0, c = 0;
  ls_tensor ta = ls_tensor_make(LS_BF16, 1, (int64_t[]){1}, &a), tb = ls_tensor_make(LS_BF16, 1, (int64_t[]){1}, &b);
  ls_tensor tc = ls_tensor_make(LS_BF16, 1, (int64_t[]){1}, &c), wide = ls_tensor_make(LS_F64, 1, (int64_t[]){1}, &just_above);
  ls_tensor_set(&ta, 0, just_above);
  ls_tensor_from_f64(&tb, &just_above);
  cr_assert_eq(ls_tensor_copy(&tc, &wide, NULL), LS_OK);
  cr_assert(a == 0x3F81 && b == 0x3F81 && c == 0x3F81);
}

Test(tensor, integers_saturate_and_round_to_even) {
  int32_t v[6];
  ls_tensor t = ls_tensor_make(LS_I32, 1, (int64_t[]){6}, v);
  ls_tensor_from_f64(&t, (double[]){2.5, 3.5, -1e30, 1e30, NAN, -7});
  cr_assert(v[0] == 2 && v[1] == 4 && v[2] == INT32_MIN && v[3] == INT32_MAX && v[4] == 0 && v[5] == -7);
  int64_t w[3];
  ls_tensor t64 = ls_tensor_make(LS_I64, 1, (int64_t[]){3}, w);
  ls_tensor_from_f64(&t64, (double[]){-INFINITY, INFINITY, 0x1p62});
  cr_assert(w[0] == INT64_MIN && w[1] == INT64_MAX && w[2] == INT64_C(1) << 62);
  uint8_t u[2];
  ls_tensor t8 = ls_tensor_make(LS_U8, 1, (int64_t[]){2}, u);
  ls_tensor_from_f32(&t8, (float[]){-3, 300});
  cr_assert(u[0] == 0 && u[1] == 255);
}

Test(tensor, every_type_widens_exactly_and_back) {
  static const double kept[] = {0, 1, 2, 64, 127}; /* exact in all of them */
  for (int type = 0; type < LS_DTYPES; type++) {
    uint64_t memory[5], copied[5];
    const int64_t five = 5;
    const ls_tensor t = ls_tensor_make((ls_dtype)type, 1, &five, memory), to = ls_tensor_make((ls_dtype)type, 1, &five, copied);
    float narrow[5];
    double wide[5];
    ls_tensor_from_f64(&t, kept);
    ls_tensor_to_f32(narrow, &t);
    ls_tensor_to_f64(wide, &t);
    for (int i = 0; i < 5; i++) cr_assert((double)narrow[i] == kept[i] && wide[i] == kept[i], "%s", ls_dtype_name((ls_dtype)type));
    ls_tensor_from_f32(&to, narrow);
    cr_assert(ls_tensor_same_bytes(&t, &to), "%s", ls_dtype_name((ls_dtype)type));
  }
}

Test(tensor, copies_convert_and_refuse_other_shapes) {
  uint16_t half[4];
  int64_t whole[4] = {1, -2, 300, 65504};
  float back[4];
  ls_tensor h = ls_tensor_make(LS_F16, 2, (int64_t[]){2, 2}, half), w = ls_tensor_make(LS_I64, 2, (int64_t[]){2, 2}, whole);
  ls_tensor b = ls_tensor_make(LS_F32, 1, (int64_t[]){4}, back);
  cr_assert_eq(ls_tensor_copy(&h, &w, NULL), LS_OK);
  for (int64_t i = 0; i < 4; i++) cr_assert_eq(ls_tensor_get(&h, i), (double)whole[i]);
  ls_error err = {0};
  cr_assert_eq(ls_tensor_copy(&b, &h, &err), LS_INTERNAL);
  cr_assert(strstr(err.text, "[4]") && strstr(err.text, "[2, 2]"), "%s", err.text);
  h.place = LS_DEVICE;
  cr_assert_eq(ls_tensor_copy(&w, &h, NULL), LS_INTERNAL);
}

Test(tensor, same_bytes_tells_zeros_and_nan_payloads_apart) {
  float a[6] = {1, 0.0f, NAN, 4, 5, 6}, b[6] = {1, 0.0f, NAN, 4, 5, 6};
  ls_tensor ta = ls_tensor_make(LS_F32, 2, (int64_t[]){2, 3}, a), tb = ls_tensor_make(LS_F32, 2, (int64_t[]){2, 3}, b);
  memcpy(b, a, sizeof a);
  cr_assert(ls_tensor_same_bytes(&ta, &tb));
  b[1] = -0.0f;
  cr_assert_not(ls_tensor_same_bytes(&ta, &tb));
  ls_tensor ca = ls_tensor_slice(&ta, 1, 2, 1), cb = ls_tensor_slice(&tb, 1, 2, 1);
  cr_assert(ls_tensor_same_bytes(&ca, &cb), "the columns do not hold the changed element");
  b[2] = ls_f32_from_bits(ls_f32_bits(a[2]) ^ 1);
  cr_assert_not(ls_tensor_same_bytes(&ca, &cb));
  memcpy(b, a, sizeof a);
  b[5] = 7;
  cr_assert_not(ls_tensor_same_bytes(&ta, &tb));
  b[5] = 6;
  ls_tensor other = ls_tensor_make(LS_F32, 1, (int64_t[]){6}, b), typed = ls_tensor_make(LS_I32, 2, (int64_t[]){2, 3}, b);
  cr_assert_not(ls_tensor_same_bytes(&ta, &other));
  cr_assert_not(ls_tensor_same_bytes(&ta, &typed));
}

Test(tensor, large_conversions_are_element_by_element_the_same_at_any_thread_count) {
  enum { ROWS = 3, WIDTH = 300007, GAP = 11 };
  const int64_t dim[2] = {ROWS, WIDTH + GAP};
  uint16_t *half = malloc(sizeof(uint16_t) * ROWS * (WIDTH + GAP));
  float *wide = malloc(sizeof(float) * ROWS * WIDTH);
  for (int d = LS_BF16; d <= LS_F16; d++) {
    ls_tensor t = ls_tensor_make((ls_dtype)d, 2, dim, half);
    ls_generate(&t, "large", 2, 0);
    ls_tensor inner = ls_tensor_slice(&t, 1, 5, WIDTH); /* rows longer than a piece, with gaps */
    for (int threads = 1; threads <= 3; threads += 2) {
      ls_threads_set(threads);
      memset(wide, 0xFF, sizeof(float) * ROWS * WIDTH);
      ls_tensor_to_f32(wide, &inner);
      for (int64_t r = 0; r < ROWS; r++) {
        for (int64_t c = 0; c < WIDTH; c++) {
          uint16_t h = half[r * (WIDTH + GAP) + 5 + c];
          if (wide[r * WIDTH + c] != (d == LS_BF16 ? ls_bf16_to_f32(h) : ls_f16_to_f32(h)))
            cr_assert_fail("row %ld column %ld", (long)r, (long)c);
        }
      }
      ls_tensor_set(&t, 4, 9), ls_tensor_set(&t, 5 + WIDTH, 9);
      ls_tensor_from_f32(&inner, wide);
      cr_assert(ls_tensor_get(&t, 4) == 9 && ls_tensor_get(&t, 5 + WIDTH) == 9, "gaps are left alone");
    }
  }
  free(half);
  free(wide);
}
