#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>

#include "core/ls_gemm.h"
#include "core/ls_gemm_internal.h"
#include "core/ls_parallel.h"
#include "core/ls_random.h"
#include "gemm_check.h"

enum { BH = LS_GEMM_BLOCK_ROWS, BP = LS_GEMM_BLOCK_CHANNELS };

static float *random_floats(int64_t n, uint64_t seed) {
  float *v = malloc((size_t)n * sizeof *v + 1);
  ls_random draw = {.seed = seed};
  for (int64_t i = 0; i < n; i++) v[i] = (float)(2 * ls_random_unit(&draw) - 1);
  return v;
}

/* ---- the promise ---- */

Test(gemm, a_row_has_the_same_bits_in_any_company) {
  const int64_t shapes[][2] = {{1, 1},    {3, 2},     {5, 7},    {63, 64},   {64, 65}, {65, 129},
                               {130, 33}, {200, 255}, {17, 511}, {70, 1000}, {9, 2561}};
  char text[160];
  for (size_t s = 0; s < sizeof shapes / sizeof *shapes; s++)
    cr_assert(gemm_rows_are_invariant(shapes[s][0], shapes[s][1], text), "%s", text);
}

Test(gemm, a_channel_has_the_same_bits_whatever_n_is) {
  const int64_t fewer[] = {1, 2, 5, 31, 63, 64, 65, 128, 129};
  char text[160];
  for (size_t i = 0; i < sizeof fewer / sizeof *fewer; i++)
    for (int64_t k = 50; k < 1000; k = 3 * k + 1) cr_assert(gemm_channels_are_invariant(fewer[i], 130, k, text), "%s", text);
}

int openblas_get_num_threads(void); /* only ls_gemm.c includes the library's header */

Test(gemm, the_blas_itself_runs_on_one_thread) {
  float x = 2, w = 3, y = 0;
  ls_threads_set(4);
  ls_gemm_f32(&y, &x, &w, 1, 1, 1, 1, 1, 1);
  cr_assert_eq(y, 6);
  cr_assert_eq(openblas_get_num_threads(), 1);
}

Test(gemm, the_bytes_do_not_depend_on_the_number_of_threads) {
  const int64_t rows[] = {1, 5, 16, 17, 100, 520}, n = 700, k = 300;
  float *x = random_floats(520 * k, 1), *w = random_floats(n * k, 2);
  float *first = malloc((size_t)(520 * n) * sizeof *first), *y = malloc((size_t)(520 * n) * sizeof *y);
  for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
    for (int threads = 1; threads <= 7; threads += 2) {
      ls_threads_set(threads);
      ls_gemm_f32(threads == 1 ? first : y, x, w, rows[i], n, k, n, k, k);
      if (threads > 1) cr_assert_eq(memcmp(first, y, (size_t)(rows[i] * n) * sizeof *y), 0, "%ld rows, %d threads", (long)rows[i], threads);
    }
  }
  free(x), free(w), free(first), free(y);
}

/* ---- the product ---- */

/* Small whole numbers: every sum is exact, so equality is asked for. Leading dimensions leave gaps, which must stay as they were. */
static void exact_product(int64_t rows, int64_t n, int64_t k) {
  const int64_t ldx = k + 3, ldw = k + 5, ldy = n + 2;
  float *x = malloc((size_t)(rows * ldx + 1) * sizeof *x), *w = malloc((size_t)(n * ldw + 1) * sizeof *w);
  float *y = malloc((size_t)(rows * ldy + 1) * sizeof *y);
  double *xd = malloc((size_t)(rows * ldx + 1) * sizeof *xd), *wd = malloc((size_t)(n * ldw + 1) * sizeof *wd);
  double *yd = malloc((size_t)(rows * ldy + 1) * sizeof *yd);
  ls_random draw = {.seed = 5};
  for (int64_t i = 0; i < rows * ldx; i++) xd[i] = x[i] = i % ldx < k ? (float)ls_random_range(&draw, -9, 9) : NAN;
  for (int64_t i = 0; i < n * ldw; i++) wd[i] = w[i] = i % ldw < k ? (float)ls_random_range(&draw, -9, 9) : NAN;
  for (int64_t i = 0; i < rows * ldy; i++) yd[i] = y[i] = -12345;
  ls_gemm_f32(y, x, w, rows, n, k, ldy, ldx, ldw);
  ls_gemm_f64(yd, xd, wd, rows, n, k, ldy, ldx, ldw);
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t c = 0; c < ldy; c++) {
      int64_t sum = 0;
      for (int64_t i = 0; c < n && i < k; i++) sum += (int64_t)x[r * ldx + i] * (int64_t)w[c * ldw + i];
      double expected = c < n ? (double)sum : -12345;
      cr_assert_eq((double)y[r * ldy + c], expected, "f32 [%ld, %ld] of %ld x %ld x %ld", (long)r, (long)c, (long)rows, (long)n, (long)k);
      cr_assert_eq(yd[r * ldy + c], expected, "f64 [%ld, %ld] of %ld x %ld x %ld", (long)r, (long)c, (long)rows, (long)n, (long)k);
    }
  }
  free(x), free(w), free(y), free(xd), free(wd), free(yd);
}

Test(gemm, products_of_whole_numbers_are_exact_and_gaps_stay) {
  const int64_t rows[] = {0, 1, 2, 7, 15, 16, 17, 33, 515}, n[] = {0, 1, 5, 64, 67, 257}, k[] = {0, 1, 2, 31, 200};
  for (size_t a = 0; a < sizeof rows / sizeof *rows; a++)
    for (size_t b = 0; b < sizeof n / sizeof *n; b++)
      for (size_t c = 0; c < sizeof k / sizeof *k; c++)
        if (rows[a] <= 33 || (n[b] == 257 && k[c] == 31)) exact_product(rows[a], n[b], k[c]);
}

Test(gemm, values_stay_within_the_bound_of_float32_summation) {
  const int64_t n = 100, k = 3000;
  float *x = random_floats(20 * k, 3), *w = random_floats(n * k, 4), *y = malloc((size_t)(20 * n) * sizeof *y);
  for (int64_t rows = 4; rows <= 20; rows += 16) {
    ls_gemm_f32(y, x, w, rows, n, k, n, k, k);
    for (int64_t r = 0; r < rows; r++) {
      for (int64_t c = 0; c < n; c++) {
        double sum = 0, size = 0;
        for (int64_t i = 0; i < k; i++)
          sum += (double)x[r * k + i] * (double)w[c * k + i], size += fabs((double)x[r * k + i] * (double)w[c * k + i]);
        cr_assert(fabs((double)y[r * n + c] - sum) <= 4 * sqrt((double)k) * 0x1p-24 * size);
      }
    }
  }
  free(x), free(w), free(y);
}

Test(gemm, a_nan_stays_in_its_row_and_its_channel) {
  const int64_t n = 70, k = 40;
  const float odd[3] = {NAN, INFINITY, -INFINITY};
  for (int64_t rows = 3; rows <= 40; rows += 37) {
    for (int o = 0; o < 3; o++) {
      float *x = random_floats(rows * k, 6), *w = random_floats(n * k, 7), *y = malloc((size_t)(rows * n) * sizeof *y);
      x[2 * k + 11] = odd[o];
      w[66 * k + 39] = odd[o];
      ls_gemm_f32(y, x, w, rows, n, k, n, k, k);
      for (int64_t r = 0; r < rows; r++)
        for (int64_t c = 0; c < n; c++) cr_assert_eq(!isfinite(y[r * n + c]), r == 2 || c == 66, "[%ld, %ld]", (long)r, (long)c);
      free(x), free(w), free(y);
    }
  }
}

Test(gemm, what_the_blas_cannot_count_becomes_nan) {
  float x = 1, w = 1, y = 1;
  ls_gemm_f32(&y, &x, &w, 1, 1, 1, 1, 1, INT64_C(1) << 40);
  cr_assert(isnan(y));
}

/* ---- the self-test, against BLAS libraries that break the promise ---- */

static void sum_block_f32(float *yt, const float *w, const float *x, int64_t k, int64_t ldw) {
  for (int64_t c = 0; c < BP; c++)
    for (int64_t r = 0; r < BH; r++) {
      float sum = 0;
      for (int64_t i = 0; i < k; i++) sum += w[c * ldw + i] * x[r * k + i];
      yt[c * BH + r] = sum;
    }
}

static void sum_block_f64(double *yt, const double *w, const double *x, int64_t k, int64_t ldw) {
  for (int64_t c = 0; c < BP; c++)
    for (int64_t r = 0; r < BH; r++) {
      double sum = 0;
      for (int64_t i = 0; i < k; i++) sum += w[c * ldw + i] * x[r * k + i];
      yt[c * BH + r] = sum;
    }
}

static int64_t odd_row; /* the row that a broken library below treats in its own way */

static void backwards_in_one_row_f32(float *yt, const float *w, const float *x, int64_t k, int64_t ldw) {
  sum_block_f32(yt, w, x, k, ldw);
  for (int64_t c = 0; c < BP; c++) {
    float sum = 0;
    for (int64_t i = k; i-- > 0;) sum += w[c * ldw + i] * x[odd_row * k + i];
    yt[c * BH + odd_row] = sum;
  }
}

static void backwards_in_one_row_f64(double *yt, const double *w, const double *x, int64_t k, int64_t ldw) {
  sum_block_f64(yt, w, x, k, ldw);
  for (int64_t c = 0; c < BP; c++) {
    double sum = 0;
    for (int64_t i = k; i-- > 0;) sum += w[c * ldw + i] * x[odd_row * k + i];
    yt[c * BH + odd_row] = sum;
  }
}

/* Rows are zero where the caller has none: a library that skips them may add up differently. */
static void by_number_of_rows_f32(float *yt, const float *w, const float *x, int64_t k, int64_t ldw) {
  sum_block_f32(yt, w, x, k, ldw);
  int rows = 0;
  for (int64_t r = 0; r < BH; r++) rows += x[r * k] != 0;
  for (int64_t i = 0; rows > 8 && i < BP * BH; i++) yt[i] *= 1 + 0x1p-23f;
}

static void last_product_left_out_f32(float *yt, const float *w, const float *x, int64_t k, int64_t ldw) {
  sum_block_f32(yt, w, x, k, ldw);
  for (int64_t i = 0; i < BP * BH; i++) yt[i] -= w[i / BH * ldw + k - 1] * x[i % BH * k + k - 1];
}

static void one_channel_nan_f32(float *yt, const float *w, const float *x, int64_t k, int64_t ldw) {
  sum_block_f32(yt, w, x, k, ldw);
  for (int64_t r = 0; r < BH; r++) yt[17 * BH + r] = NAN;
}

static void nothing_written_f64(double *yt, const double *w, const double *x, int64_t k, int64_t ldw) {
  (void)yt, (void)w, (void)x, (void)k, (void)ldw;
}

static void refused(ls_gemm_block_f32 *f32, ls_gemm_block_f64 *f64, const char *what) {
  ls_error err = {0};
  cr_assert_eq(ls_gemm_selftest_blocks(f32, f64, 200, &err), LS_UNAVAILABLE, "%s: %s", what, err.text);
  cr_assert(strstr(err.text, "OPENBLAS_CORETYPE") && strstr(err.text, ls_gemm_library()) && strstr(err.text, what), "%s", err.text);
  cr_assert_eq(strchr(err.text, '\n'), NULL);
}

Test(gemm, the_selftest_passes_a_plain_sum) {
  ls_error err = {0};
  for (int64_t k = 1; k < 700; k = 5 * k + 2)
    cr_assert_eq(ls_gemm_selftest_blocks(sum_block_f32, sum_block_f64, k, &err), LS_OK, "%s", err.text);
}

Test(gemm, the_selftest_refuses_a_library_that_treats_one_row_its_own_way) {
  for (odd_row = 0; odd_row < BH; odd_row++) {
    refused(backwards_in_one_row_f32, sum_block_f64, "float32");
    refused(sum_block_f32, backwards_in_one_row_f64, "float64");
  }
}

Test(gemm, the_selftest_refuses_bits_that_depend_on_the_company) { refused(by_number_of_rows_f32, sum_block_f64, "same row alone"); }

Test(gemm, the_selftest_refuses_wrong_values) {
  refused(last_product_left_out_f32, sum_block_f64, "values are wrong");
  refused(one_channel_nan_f32, sum_block_f64, "values are wrong");
  refused(sum_block_f32, nothing_written_f64, "values are wrong");
}

Test(gemm, this_machines_blas_passes_the_selftest_at_the_published_shapes) {
  ls_error err = {0};
  cr_assert_eq(ls_gemm_selftest(25600, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_gemm_selftest(5120, &err), LS_OK, "%s", err.text);
}

Test(gemm, a_selftest_of_nothing_is_an_error) { cr_assert_eq(ls_gemm_selftest(0, NULL), LS_INTERNAL); }

/* ---- other core types ---- */

Test(gemm, a_processor_that_the_library_does_not_know_gets_kernels_that_suit_it) {
  cr_assert_str_eq(ls_gemm_faster_core_than("Prescott", true), "Haswell");
  cr_assert_eq(ls_gemm_faster_core_than("Prescott", false), NULL);
  cr_assert_eq(ls_gemm_faster_core_than("Zen", true), NULL);
  cr_assert_eq(ls_gemm_faster_core_than("SkylakeX", true), NULL);
}

static void under_coretype(const char *core, bool measured) {
  char command[512], line[512] = "";
  snprintf(command, sizeof command, "OPENBLAS_CORETYPE=%s '%s/gemm_under_coretype'", core, LS_BINARY_DIR);
  FILE *pipe = popen(command, "r");
  cr_assert_neq(pipe, NULL);
  if (fgets(line, sizeof line, pipe) == NULL) line[0] = '\0';
  int status = pclose(pipe);
  cr_assert(WIFEXITED(status), "%s: ended by a signal", core);
  int code = WEXITSTATUS(status);
  cr_assert(code == LS_OK || (!measured && code == LS_UNAVAILABLE), "OPENBLAS_CORETYPE=%s: exit %d, %s", core, code, line);
  cr_log_info("OPENBLAS_CORETYPE=%s: %s", core, line);
}

/* Measured invariant with OpenBLAS 0.3.21, so that a change shows; on the others the self-test may refuse, but must not be fooled. */
Test(gemm, core_types_are_invariant_or_refused) {
  under_coretype("Prescott", true);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("ssse3")) under_coretype("Core2", true);
  if (__builtin_cpu_supports("sse4.2")) under_coretype("Nehalem", true);
  if (__builtin_cpu_supports("avx")) under_coretype("Sandybridge", true);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) under_coretype("Haswell", true);
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) under_coretype("Zen", true);
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512dq") &&
      __builtin_cpu_supports("avx512vl"))
    under_coretype("SkylakeX", false);
  if (__builtin_cpu_supports("avx512bf16")) under_coretype("Cooperlake", false);
#endif
}

/* ---- one row ---- */

Test(gemv, a_single_row_is_within_the_bound_and_does_not_depend_on_the_threads) {
  const int64_t n = 700, k = 301, ldw = 310;
  float *x = random_floats(k, 3), *w = random_floats(n * ldw, 4), *first = malloc((size_t)n * sizeof *first),
        *y = malloc((size_t)n * sizeof *y);
  for (int threads = 1; threads <= 7; threads += 2) {
    ls_threads_set(threads);
    for (int64_t i = 0; i < n; i++) y[i] = NAN; /* what stood there is not read */
    ls_gemv_f32(y, x, w, n, k, ldw);
    if (threads == 1) memcpy(first, y, (size_t)n * sizeof *y);
    cr_assert_eq(memcmp(first, y, (size_t)n * sizeof *y), 0, "%d threads", threads);
  }
  for (int64_t c = 0; c < n; c++) {
    double sum = 0, size = 0;
    for (int64_t i = 0; i < k; i++) {
      sum += (double)x[i] * (double)w[c * ldw + i];
      size += fabs((double)x[i] * (double)w[c * ldw + i]);
    }
    cr_assert(fabs((double)y[c] - sum) <= 4 * sqrt((double)k) * 0x1p-24 * size, "channel %ld", (long)c);
  }
  free(x), free(w), free(first), free(y);
}

Test(gemv, whole_numbers_are_exact_in_both_types) {
  enum { N = 259, K = 33 };
  static float x32[K], w32[N * K], y32[N];
  static double x64[K], w64[N * K], y64[N];
  for (int i = 0; i < K; i++) x64[i] = x32[i] = (float)(i % 5 - 2);
  for (int i = 0; i < N * K; i++) w64[i] = w32[i] = (float)(i % 7 - 3);
  ls_gemv_f32(y32, x32, w32, N, K, K);
  ls_gemv_f64(y64, x64, w64, N, K, K);
  for (int c = 0; c < N; c++) {
    double sum = 0;
    for (int i = 0; i < K; i++) sum += x64[i] * w64[c * K + i];
    cr_assert(y64[c] == sum && (double)y32[c] == sum, "channel %d: %g", c, sum);
  }
}

Test(gemv, a_nan_stays_in_its_channel_and_a_zero_does_not_hide_it) {
  enum { N = 300, K = 40 };
  static float x[K], w[N * K], y[N + 1];
  for (int i = 0; i < N * K; i++) w[i] = 1;
  w[257 * K + 9] = NAN; /* times x[9] = 0 */
  ls_gemv_f32(y, x, w, N, K, K);
  for (int c = 0; c < N; c++) cr_assert_eq(isnan(y[c]) != 0, c == 257, "channel %d", c);
}

Test(gemv, nothing_to_sum_is_zero_and_what_the_blas_cannot_count_is_nan) {
  float x = 1, w[2] = {1, 1}, y[2] = {7, 7};
  ls_gemv_f32(y, &x, w, 0, 1, 1);
  cr_assert_eq(y[0], 7);
  ls_gemv_f32(y, &x, w, 2, 0, 0);
  cr_assert(y[0] == 0 && y[1] == 0);
  ls_gemv_f32(y, &x, w, 1, 1, (int64_t)1 << 40);
  cr_assert(isnan(y[0]));
}
