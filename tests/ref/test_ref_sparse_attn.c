/* Attention against a softmax in double over the entries of each list, without blocks, running maximum or rounding. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/ls_numeric.h"
#include "core/ls_parallel.h"
#include "core/ls_random.h"
#include "ref/ref_sparse_attn.h"

typedef struct {
  ls_tensor o, q, rows_a, rows_b, idx, sink;
  int64_t heads, dim;
} scene;

static ls_tensor zeros(ls_dtype dtype, int ndim, int64_t rows, int64_t columns) {
  void *data = calloc((size_t)(rows * columns) + 1, ls_dtype_size(dtype));
  cr_assert_not_null(data);
  return ls_tensor_make(dtype, ndim, (int64_t[]){rows, columns}, data);
}

/* Generated rows and queries; lists that are all -1; sinks of 0. wide: float32 or float64. stored: what rows, queries and results are. */
static scene start(ls_dtype stored, ls_dtype wide, int64_t m, int64_t heads, int64_t dim, int64_t a, int64_t b, int64_t width) {
  scene s = {.heads = heads, .dim = dim};
  s.o = zeros(stored, 2, m, heads * dim);
  s.q = zeros(stored, 2, m, heads * dim);
  s.rows_a = zeros(stored, 2, a, dim);
  s.rows_b = zeros(stored, 2, b, dim);
  s.idx = zeros(LS_I32, 2, m, width);
  s.sink = zeros(wide, 1, heads, 1);
  ls_generate(&s.q, "q", 1, 0.1);
  ls_generate(&s.rows_a, "rows_a", 1, 0.1);
  ls_generate(&s.rows_b, "rows_b", 1, -0.1);
  for (int64_t i = 0; i < m * width; i++) ls_tensor_set(&s.idx, i, -1);
  return s;
}

static void end(scene *s) {
  free(s->o.data), free(s->q.data), free(s->rows_a.data), free(s->rows_b.data), free(s->idx.data), free(s->sink.data);
}

static void run(scene *s) {
  const size_t bytes = ls_tensor_bytes(&s->o);
  memset(s->o.data, 0x5A, bytes);
  const ls_tensor none = {.dtype = s->rows_b.dtype, .ndim = 2, .dim = {0, s->dim, 1, 1}, .stride = {s->dim, 1, 1, 1}};
  cr_assert_eq(ls_ref_sparse_attn(&s->o, &s->q, &s->rows_a, s->rows_b.dim[0] > 0 ? &s->rows_b : &none, &s->idx, &s->sink, NULL), LS_OK);
}

static double row_element(const scene *s, int64_t i, int64_t c) {
  const int64_t a = s->rows_a.dim[0];
  return i < a ? ls_tensor_get(&s->rows_a, i * s->dim + c) : ls_tensor_get(&s->rows_b, (i - a) * s->dim + c);
}

/* o [dim] of one head of one query, size [dim] = sum of p |row|, and by how much a score of float32 may be off. */
static void naive(const scene *s, int64_t t, int64_t h, double *o, double *size, double *score_error) {
  const int64_t width = s->idx.dim[1], dim = s->dim;
  double *score = malloc((size_t)width * sizeof *score), max = -(double)INFINITY, denominator = 0;
  *score_error = 0;
  for (int64_t c = 0; c < dim; c++) o[c] = size[c] = 0;
  bool any = false;
  for (int64_t j = 0; j < width; j++) {
    const int64_t i = (int64_t)ls_tensor_get(&s->idx, t * width + j);
    double dot = 0, magnitude = 0;
    if (i < 0) continue;
    any = true;
    for (int64_t c = 0; c < dim; c++) {
      const double product = ls_tensor_get(&s->q, (t * s->heads + h) * dim + c) * row_element(s, i, c);
      dot += product, magnitude += fabs(product);
    }
    score[j] = dot / sqrt((double)dim);
    if (score[j] > max) max = score[j];
    /* 16 interleaved sums of dim / 16 products, 16 more sums, the scale and its product; then the difference to the maximum */
    const double off = ((double)dim / 16 + 19) * 0x1p-24 * magnitude / sqrt((double)dim) + 2 * 0x1p-24 * fabs(score[j]);
    if (off > *score_error) *score_error = off;
  }
  for (int64_t j = 0; j < width && any; j++) {
    const int64_t i = (int64_t)ls_tensor_get(&s->idx, t * width + j);
    if (i < 0) continue;
    const double p = exp(score[j] - max);
    denominator += p;
    for (int64_t c = 0; c < dim; c++) o[c] += p * row_element(s, i, c), size[c] += p * fabs(row_element(s, i, c));
  }
  denominator += exp(ls_tensor_get(&s->sink, h) - max);
  for (int64_t c = 0; c < dim && any; c++) o[c] /= denominator, size[c] /= denominator;
  free(score);
}

/* Relative: 2^-8 for each p that was rounded to bf16, the scores' error twice (in a p and in the denominator), a step of exp and one
 * rounding per entry in each of the two sums, two per block for the rescaling; then the output's own half step. In float64 2^-29 of the
 * latter. */
static void check(const scene *s) {
  const int64_t m = s->q.dim[0], width = s->idx.dim[1];
  const bool is_f64 = s->sink.dtype == LS_F64;
  double *o = malloc((size_t)s->dim * sizeof *o), *size = malloc((size_t)s->dim * sizeof *size), score_error;
  for (int64_t t = 0; t < m; t++) {
    for (int64_t h = 0; h < s->heads; h++) {
      naive(s, t, h, o, size, &score_error);
      const double sums = (2 * (double)width + 4 * (double)(width / 64 + 1) + 8) * 0x1p-23;
      const double relative = is_f64 ? (sums + 2 * score_error) * 0x1p-29 : 1.01 * (0x1p-8 + 2 * score_error + sums);
      for (int64_t c = 0; c < s->dim; c++) {
        const double got = ls_tensor_get(&s->o, (t * s->heads + h) * s->dim + c);
        const double half_step = s->o.dtype == LS_BF16 ? 1.01 * 0x1p-8 * fabs(o[c]) + 0x1p-134 : 0;
        cr_assert(fabs(got - o[c]) <= relative * size[c] + half_step, "query %d head %d channel %d: %.9g, expected %.9g", (int)t, (int)h,
                  (int)c, got, o[c]);
      }
    }
  }
  free(o), free(size);
}

/* ---- by hand ---- */

/* dim 1, float32 stored: o is not rounded. Scores are q * row. */
static double attend(const double *rows, int64_t n, double q, double sink) {
  scene s = start(LS_F32, LS_F32, 1, 1, 1, n, 0, n);
  ls_tensor_set(&s.q, 0, q);
  ls_tensor_set(&s.sink, 0, sink);
  for (int64_t j = 0; j < n; j++) ls_tensor_set(&s.rows_a, j, rows[j]), ls_tensor_set(&s.idx, j, (double)j);
  run(&s);
  const double o = ls_tensor_get(&s.o, 0);
  end(&s);
  return o;
}

Test(ref_sparse_attn, small_cases_by_hand) {
  const double inf = (double)INFINITY;
  cr_assert_eq(attend((double[]){4}, 1, 0, -inf), 4);       /* one row, no sink: itself */
  cr_assert_eq(attend((double[]){4}, 1, 0, 0), 2);          /* a sink as heavy as the row: half of it */
  cr_assert_eq(attend((double[]){4, 8}, 2, 0, -inf), 6);    /* no preference: the mean */
  cr_assert_eq(attend((double[]){4, 8}, 2, 0, 0), 4);       /* a third each */
  cr_assert_eq(attend((double[]){4, 8}, 2, 1000, -inf), 8); /* 4000 and 8000: all on the second, no overflow */
  cr_assert_eq(attend((double[]){4, 8}, 2, -1000, -inf), 4);
  cr_assert_eq(attend((double[]){4, 8}, 2, 0, 1e30), 0); /* the sink takes all */
}

Test(ref_sparse_attn, probabilities_are_rounded_for_the_product_and_not_in_the_denominator) {
  const double difference = 1; /* scores 2 and 1 */
  const float p = expf(-1.0f), p_bf16 = ls_bf16_to_f32(ls_f32_to_bf16(p));
  cr_assert_neq(p, p_bf16);
  const double got = attend((double[]){2, 1}, 2, difference, -(double)INFINITY);
  cr_assert_eq(got, (double)((2 + p_bf16) / (1 + p)));
  cr_assert_neq(got, (double)((2 + p) / (1 + p)));
  cr_assert_neq(got, (double)((2 + p_bf16) / (1 + p_bf16)));
}

Test(ref_sparse_attn, sink_enters_once_however_many_blocks_there_are) {
  double rows[200];
  for (int i = 0; i < 200; i++) rows[i] = 1;
  cr_assert_float_eq(attend(rows, 200, 0, log(200)), 0.5, 1e-6);
  cr_assert_float_eq(attend(rows, 64, 0, log(64)), 0.5, 1e-6);
}

Test(ref_sparse_attn, scale_is_the_root_of_the_head_dim) {
  scene s = start(LS_F32, LS_F32, 1, 1, 4, 2, 0, 2);
  static const double rows[] = {2, 0, 0, 0, 0, 0, 0, 1};
  for (int i = 0; i < 8; i++) ls_tensor_set(&s.rows_a, i, rows[i]);
  for (int c = 0; c < 4; c++) ls_tensor_set(&s.q, c, c == 0 ? 3 : 0); /* scores 3 and 0 */
  ls_tensor_set(&s.sink, 0, -(double)INFINITY);
  ls_tensor_set(&s.idx, 0, 0), ls_tensor_set(&s.idx, 1, 1);
  run(&s);
  cr_assert_float_eq(ls_tensor_get(&s.o, 0), 2 / (1 + exp(-3)), 1e-6);
  end(&s);
}

Test(ref_sparse_attn, list_of_nothing_gives_zeros) {
  for (int wide = 0; wide < 2; wide++) {
    scene s = start(wide ? LS_F64 : LS_BF16, wide ? LS_F64 : LS_F32, 2, 3, 8, 4, 2, 70);
    ls_tensor_set(&s.idx, 70 + 69, 2); /* the second query has one entry, the last */
    run(&s);
    for (int64_t i = 0; i < 24; i++) cr_assert(ls_tensor_get(&s.o, i) == 0 && !signbit(ls_tensor_get(&s.o, i)));
    check(&s);
    cr_assert_neq(ls_tensor_get(&s.o, 24), 0);
    end(&s);
  }
}

/* ---- against the softmax in double ---- */

static void fill_lists(scene *s, uint64_t seed, double empty) {
  ls_random draw = {.seed = seed};
  const int64_t rows = s->rows_a.dim[0] + s->rows_b.dim[0];
  for (int64_t i = 0; i < ls_tensor_count(&s->idx); i++)
    ls_tensor_set(&s->idx, i, ls_random_unit(&draw) < empty ? -1 : (double)ls_random_range(&draw, 0, rows - 1));
}

Test(ref_sparse_attn, agrees_with_the_softmax_in_double) {
  static const struct {
    int64_t m, heads, dim, a, b, width;
    double empty;
  } shapes[] = {{1, 1, 8, 1, 0, 1, 0},      {3, 2, 32, 5, 7, 12, 0.2},    {2, 4, 48, 20, 40, 63, 0},       {2, 4, 48, 20, 40, 64, 0},
                {2, 4, 48, 20, 40, 65, 0},  {2, 3, 64, 9, 300, 300, 0.3}, {1, 2, 512, 128, 600, 640, 0.1}, {4, 1, 10, 3, 2, 200, 0.9},
                {1, 20, 7, 300, 0, 193, 0}, {2, 64, 32, 30, 30, 128, 0.5}};
  for (int wide = 0; wide < 2; wide++) {
    for (int size = 0; size < 3; size++) {
      for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
        scene s = start(wide ? LS_F64 : LS_BF16, wide ? LS_F64 : LS_F32, shapes[k].m, shapes[k].heads, shapes[k].dim, shapes[k].a,
                        shapes[k].b, shapes[k].width);
        if (size > 0) ls_generate(&s.q, "q", size == 1 ? 30 : 0.01, 0); /* peaked and flat distributions */
        fill_lists(&s, 100 + (uint64_t)k, shapes[k].empty);
        for (int64_t h = 0; h < s.heads; h++) ls_tensor_set(&s.sink, h, (double)(h % 5) * 2 - 3);
        run(&s);
        check(&s);
        end(&s);
      }
    }
  }
}

Test(ref_sparse_attn, maximum_may_move_in_every_block_or_in_none) {
  enum { N = 256 };
  for (int rising = 0; rising < 2; rising++) {
    scene s = start(LS_BF16, LS_F32, 1, 1, 16, N, 0, N);
    for (int64_t j = 0; j < N; j++) {
      for (int64_t c = 0; c < 16; c++) ls_tensor_set(&s.rows_a, j * 16 + c, (double)(rising ? j : N - j) / 64 + (double)c / 16);
      ls_tensor_set(&s.idx, j, (double)j);
    }
    for (int64_t c = 0; c < 16; c++) ls_tensor_set(&s.q, c, 1);
    run(&s);
    check(&s);
    end(&s);
  }
}

Test(ref_sparse_attn, empty_blocks_before_between_and_after_change_nothing) {
  enum { WIDTH = 5 * 64 };
  for (int wide = 0; wide < 2; wide++) {
    scene s = start(wide ? LS_F64 : LS_BF16, wide ? LS_F64 : LS_F32, 2, 2, 16, 40, 40, WIDTH);
    for (int64_t j = 0; j < 64; j++) { /* query 0: blocks 1 and 3; query 1: the same in blocks 0 and 1 */
      ls_tensor_set(&s.idx, 64 + j, (double)j), ls_tensor_set(&s.idx, 3 * 64 + j, (double)(79 - j));
      ls_tensor_set(&s.idx, WIDTH + j, (double)j), ls_tensor_set(&s.idx, WIDTH + 64 + j, (double)(79 - j));
    }
    for (int64_t i = 0; i < 32; i++) ls_tensor_set(&s.q, 32 + i, ls_tensor_get(&s.q, i));
    run(&s);
    check(&s);
    const ls_tensor first = ls_tensor_at(&s.o, 0), second = ls_tensor_at(&s.o, 1);
    cr_assert(ls_tensor_same_bytes(&first, &second));
    end(&s);
  }
}

Test(ref_sparse_attn, row_named_twice_counts_twice) {
  cr_assert_float_eq(attend((double[]){1, 1, 4}, 3, 0, -(double)INFINITY), 2, 1e-6);
  scene s = start(LS_F32, LS_F32, 1, 1, 1, 1, 1, 3);
  ls_tensor_set(&s.q, 0, 0), ls_tensor_set(&s.sink, 0, -(double)INFINITY);
  ls_tensor_set(&s.rows_a, 0, 1), ls_tensor_set(&s.rows_b, 0, 4);
  ls_tensor_set(&s.idx, 0, 0), ls_tensor_set(&s.idx, 1, 1), ls_tensor_set(&s.idx, 2, 0);
  run(&s);
  cr_assert_float_eq(ls_tensor_get(&s.o, 0), 2, 1e-6);
  end(&s);
}

/* ---- not finite ---- */

Test(ref_sparse_attn, nan_in_a_selected_row_takes_all_heads_of_that_query_and_no_other) {
  for (int wide = 0; wide < 2; wide++) {
    for (int64_t entry = 0; entry < 130; entry += 43) {
      scene s = start(wide ? LS_F64 : LS_BF16, wide ? LS_F64 : LS_F32, 3, 4, 20, 10, 200, 130);
      for (int64_t t = 0; t < 3; t++)
        for (int64_t j = 0; j < 130; j++) ls_tensor_set(&s.idx, t * 130 + j, (double)j);
      for (int64_t j = 0; j < 80; j++) ls_tensor_set(&s.q, 80 + j, 0); /* even a query of zeros */
      ls_tensor_set(&s.idx, 130 + entry, 209);
      ls_tensor_set(&s.rows_b, 199 * 20 + 7, (double)NAN);
      run(&s);
      for (int64_t i = 0; i < 240; i++) cr_assert_eq(isnan(ls_tensor_get(&s.o, i)) != 0, i >= 80 && i < 160, "element %d", (int)i);
      end(&s);
    }
  }
}

Test(ref_sparse_attn, nan_in_a_query_or_a_sink_takes_that_head_alone) {
  for (int wide = 0; wide < 2; wide++) {
    scene s = start(wide ? LS_F64 : LS_BF16, wide ? LS_F64 : LS_F32, 1, 4, 20, 100, 0, 100);
    for (int64_t j = 0; j < 100; j++) ls_tensor_set(&s.idx, j, (double)j);
    ls_tensor_set(&s.q, 20 + 19, (double)NAN);
    ls_tensor_set(&s.sink, 3, (double)NAN);
    run(&s);
    for (int64_t i = 0; i < 80; i++) cr_assert_eq(isnan(ls_tensor_get(&s.o, i)) != 0, i / 20 == 1 || i / 20 == 3, "element %d", (int)i);
    end(&s);
  }
}

Test(ref_sparse_attn, what_no_list_names_is_never_read) {
  scene s = start(LS_BF16, LS_F32, 1, 2, 16, 50, 50, 70);
  for (int64_t i = 0; i < 100; i++) {
    const ls_tensor row = ls_tensor_at(i < 50 ? &s.rows_a : &s.rows_b, i % 50);
    for (int64_t c = 0; c < 16 && i % 2 == 1; c++) ls_tensor_set(&row, c, (double)NAN);
  }
  for (int64_t j = 0; j < 50; j++) ls_tensor_set(&s.idx, j, (double)(2 * j));
  run(&s);
  check(&s);
  end(&s);
}

Test(ref_sparse_attn, scores_of_minus_infinity_follow_the_formula) {
  const double inf = (double)INFINITY;
  for (int wide = 0; wide < 2; wide++) {
    /* the scores overflow, the rows do not: 64 entries of -inf, then one that is finite, which has all of the weight */
    scene s = start(wide ? LS_F64 : LS_F32, wide ? LS_F64 : LS_F32, 1, 1, 1, 2, 0, 65);
    const double huge = wide ? 1e300 : 1e38;
    ls_tensor_set(&s.q, 0, huge), ls_tensor_set(&s.sink, 0, -inf);
    ls_tensor_set(&s.rows_a, 0, -huge), ls_tensor_set(&s.rows_a, 1, 0);
    for (int64_t j = 0; j < 65; j++) ls_tensor_set(&s.idx, j, j == 64 ? 1 : 0);
    run(&s);
    cr_assert_eq(ls_tensor_get(&s.o, 0), 0);
    ls_tensor_set(&s.idx, 64, 0); /* none but -inf: exp(-inf - -inf) */
    run(&s);
    cr_assert(isnan(ls_tensor_get(&s.o, 0)));
    ls_tensor_set(&s.q, 0, -huge); /* +inf */
    run(&s);
    cr_assert(isnan(ls_tensor_get(&s.o, 0)));
    end(&s);
  }
}

Test(ref_sparse_attn, bytes_do_not_depend_on_the_number_of_threads_nor_on_the_other_queries) {
  scene s = start(LS_BF16, LS_F32, 9, 3, 40, 20, 90, 150);
  fill_lists(&s, 5, 0.2);
  ls_threads_set(1);
  run(&s);
  const ls_tensor alone = zeros(LS_BF16, 2, 9, 120);
  memcpy(alone.data, s.o.data, ls_tensor_bytes(&s.o));
  for (int threads = 2; threads <= 4; threads += 2) {
    ls_threads_set(threads);
    run(&s);
    cr_assert(ls_tensor_same_bytes(&alone, &s.o));
  }
  ls_threads_set(0);
  scene one = s;
  one.o = ls_tensor_slice(&s.o, 0, 4, 1), one.q = ls_tensor_slice(&s.q, 0, 4, 1), one.idx = ls_tensor_slice(&s.idx, 0, 4, 1);
  run(&one);
  cr_assert(ls_tensor_same_bytes(&alone, &s.o));
  free(alone.data);
  end(&s);
}
