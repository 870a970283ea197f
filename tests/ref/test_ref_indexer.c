/* Scores against the formula in plain loops; selections against a full sort by the rule of layers.md. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/ls_numeric.h"
#include "core/ls_parallel.h"
#include "core/ls_random.h"
#include "ref/ref_indexer.h"

static ls_tensor matrix(ls_dtype dtype, int64_t rows, int64_t columns) {
  const size_t bytes = (size_t)(rows * columns) * ls_dtype_size(dtype);
  void *data = malloc(bytes + 1);
  cr_assert_not_null(data);
  memset(data, 0xFF, bytes); /* NaN, or an index that no list holds */
  return ls_tensor_make(dtype, 2, (int64_t[]){rows, columns}, data);
}

static double get(const ls_tensor *t, int64_t row, int64_t column) { return ls_tensor_get(t, row * t->dim[1] + column); }
static void set(const ls_tensor *t, int64_t row, int64_t column, double v) { ls_tensor_set(t, row * t->dim[1] + column, v); }

static void fill_integers(const ls_tensor *t, uint64_t seed, int64_t most) {
  ls_random draw = {.seed = seed};
  for (int64_t i = 0; i < ls_tensor_count(t); i++) ls_tensor_set(t, i, (double)ls_random_range(&draw, -most, most));
}

/* Prefill of m tokens at ratio r, or one token at start_pos. */
static ls_attn_plan prefill(int64_t m, int64_t ratio) { return (ls_attn_plan){.m = m, .ratio = ratio, .n = m / ratio}; }
static ls_attn_plan decode(int64_t n) { return (ls_attn_plan){.start_pos = n - 1, .m = 1, .ratio = 1, .n = n}; }

/* ---- scores ---- */

static ls_tensor scores(const ls_tensor *q, const ls_tensor *key, const ls_tensor *w, const ls_attn_plan *plan) {
  const ls_tensor score = matrix(q->dtype, plan->m, plan->n);
  cr_assert_eq(ls_ref_index_score(&score, q, key, w, plan, NULL), LS_OK);
  return score;
}

static double naive_score(const ls_tensor *q, const ls_tensor *key, const ls_tensor *w, int64_t t, int64_t j) {
  const int64_t heads = w->dim[1], width = key->dim[1];
  const ls_dtype type = q->dtype;
  double sum = 0;
  for (int64_t h = 0; h < heads; h++) {
    double dot = 0;
    for (int64_t i = 0; i < width; i++) dot += get(q, t, h * width + i) * get(key, j, i);
    dot = ls_round_to(type, dot);
    if (dot < 0) dot = 0;
    sum += ls_round_to(type, dot * get(w, t, h));
  }
  return ls_round_to(type, sum);
}

/* Small integers: every sum is exact in float32, so the order of addition does not matter and the scores must be equal. */
Test(ref_indexer, scores_follow_the_formula_at_every_edge_of_a_tile) {
  static const struct {
    int64_t m, ratio, heads, width;
  } shapes[] = {{1, 1, 1, 8},    {5, 1, 3, 32},    {90, 1, 3, 7},   {512, 1, 4, 4},
                {300, 1, 4, 16}, {257, 2, 32, 32}, {515, 2, 40, 8}, {3, 2, 300, 8}};
  for (int wide = 0; wide < 2; wide++) {
    const ls_dtype type = wide ? LS_F64 : LS_BF16;
    for (size_t k = 0; k < sizeof shapes / sizeof shapes[0]; k++) {
      const ls_attn_plan plan = prefill(shapes[k].m, shapes[k].ratio);
      const ls_tensor q = matrix(type, plan.m, shapes[k].heads * shapes[k].width), key = matrix(type, plan.n, shapes[k].width);
      const ls_tensor w = matrix(type, plan.m, shapes[k].heads);
      fill_integers(&q, 1, 7), fill_integers(&key, 2, 9), fill_integers(&w, 3, 5);
      const ls_tensor score = scores(&q, &key, &w, &plan);
      for (int64_t t = 0; t < plan.m; t++) {
        for (int64_t j = 0; j < plan.n; j++) {
          const bool visible = j < (t + 1) / shapes[k].ratio;
          const double expected = visible ? naive_score(&q, &key, &w, t, j) : -(double)INFINITY, got = get(&score, t, j);
          cr_assert(got == expected, "shape %d, query %d, key %d: %g, expected %g", (int)k, (int)t, (int)j, got, expected);
          cr_assert(got != 0 || !signbit(got), "a zero is +0");
        }
      }
      free(q.data), free(key.data), free(w.data), free(score.data);
    }
  }
}

Test(ref_indexer, decode_sees_every_key) {
  for (int64_t n = 1; n <= 600; n += 85) {
    const ls_attn_plan plan = decode(n);
    const ls_tensor q = matrix(LS_BF16, 1, 4 * 32), key = matrix(LS_BF16, n, 32), w = matrix(LS_BF16, 1, 4);
    fill_integers(&q, 1, 7), fill_integers(&key, 2, 9), fill_integers(&w, 3, 5);
    const ls_tensor score = scores(&q, &key, &w, &plan);
    for (int64_t j = 0; j < n; j++) cr_assert_eq(get(&score, 0, j), naive_score(&q, &key, &w, 0, j));
    free(q.data), free(key.data), free(w.data), free(score.data);
  }
}

static double one_score(ls_dtype type, int64_t heads, const double *dot, const double *weight) { /* keys of width 1 that are 1 */
  const ls_attn_plan plan = decode(1);
  const ls_tensor q = matrix(type, 1, heads), key = matrix(type, 1, 1), w = matrix(type, 1, heads);
  for (int64_t h = 0; h < heads; h++) set(&q, 0, h, dot[h]), set(&w, 0, h, weight[h]);
  set(&key, 0, 0, 1);
  const ls_tensor score = scores(&q, &key, &w, &plan);
  const double got = get(&score, 0, 0);
  free(q.data), free(key.data), free(w.data), free(score.data);
  return got;
}

Test(ref_indexer, each_rounding_is_where_the_contract_has_it) {
  /* products: 1.0078125 * 1.0078125 = 1.01568603515625 rounds to 1.015625 */
  const double u = 1.0078125;
  cr_assert_eq(one_score(LS_BF16, 1, &u, &u), 1.015625);
  cr_assert_eq(one_score(LS_F64, 1, &u, &u), u * u);
  /* the sum is float32: four times 2^-9 beside 1 are not lost one by one, and round once at the end */
  cr_assert_eq(one_score(LS_BF16, 5, (double[]){1, 1, 1, 1, 1}, (double[]){1, 0x1p-9, 0x1p-9, 0x1p-9, 0x1p-9}), 1.0078125);
  /* the dot product rounds before the weight is applied: (256 + 1) -> 256 */
  const ls_attn_plan plan = decode(1);
  const ls_tensor q = matrix(LS_BF16, 1, 2), key = matrix(LS_BF16, 1, 2), w = matrix(LS_BF16, 1, 1);
  set(&q, 0, 0, 256), set(&q, 0, 1, 1), set(&key, 0, 0, 1), set(&key, 0, 1, 1), set(&w, 0, 0, 1.0078125);
  const ls_tensor score = scores(&q, &key, &w, &plan);
  cr_assert_eq(get(&score, 0, 0), 258); /* 257 * 1.0078125 = 259.008 would round to 260 */
  free(q.data), free(key.data), free(w.data), free(score.data);
}

Test(ref_indexer, nan_passes_the_relu_and_negative_products_do_not) {
  for (int wide = 0; wide < 2; wide++) {
    const ls_dtype type = wide ? LS_F64 : LS_BF16;
    cr_assert(isnan(one_score(type, 2, (double[]){(double)NAN, 1}, (double[]){1, 1})));
    cr_assert(isnan(one_score(type, 2, (double[]){1, 1}, (double[]){(double)NAN, 1})));
    cr_assert(isnan(one_score(type, 1, (double[]){(double)INFINITY}, (double[]){0})), "inf * 0");
    cr_assert_eq(one_score(type, 1, (double[]){(double)INFINITY}, (double[]){-1}), -(double)INFINITY);
    cr_assert_eq(one_score(type, 2, (double[]){-(double)INFINITY, 3}, (double[]){1, 2}), 6);
    const double zero = one_score(type, 2, (double[]){-5, -0.0}, (double[]){-1, -1}); /* 0 * -1 twice */
    cr_assert(zero == 0 && !signbit(zero));
  }
}

Test(ref_indexer, bytes_of_the_scores_do_not_depend_on_the_number_of_threads) {
  const ls_attn_plan plan = prefill(300, 1);
  for (int wide = 0; wide < 2; wide++) {
    const ls_dtype type = wide ? LS_F64 : LS_BF16;
    const ls_tensor q = matrix(type, plan.m, 32 * 64), key = matrix(type, plan.n, 64), w = matrix(type, plan.m, 32);
    ls_generate(&q, "q", 1, 0), ls_generate(&key, "key", 1, 0), ls_generate(&w, "w", 0.05, 0);
    ls_threads_set(1);
    const ls_tensor alone = scores(&q, &key, &w, &plan);
    for (int threads = 2; threads <= 5; threads += 3) {
      ls_threads_set(threads);
      const ls_tensor together = scores(&q, &key, &w, &plan);
      cr_assert(ls_tensor_same_bytes(&alone, &together), "%d threads", threads);
      free(together.data);
    }
    ls_threads_set(0);
    if (wide) { /* and the values: a sum of 64 terms, then of 32, in double */
      for (int64_t j = 0; j < plan.n; j++) {
        const double expected = naive_score(&q, &key, &w, 299, j);
        cr_assert(fabs(get(&alone, 299, j) - expected) <= 1e-12);
      }
    }
    free(q.data), free(key.data), free(w.data), free(alone.data);
  }
}

/* ---- the oracle of selections: sort everything ---- */

typedef struct {
  double score;
  int64_t at;
} item;

/* NaN first, then the larger score, then the lower position. */
static int better_first(const void *a, const void *b) {
  const item *x = a, *y = b;
  const int nan_x = isnan(x->score), nan_y = isnan(y->score);
  if (nan_x != nan_y) return nan_y - nan_x;
  if (!nan_x && x->score != y->score) return x->score > y->score ? -1 : 1;
  return x->at < y->at ? -1 : 1;
}

static void check_topk(const ls_tensor *score, const ls_tensor *mask, int64_t k, int64_t offset, const ls_attn_plan *plan) {
  const int64_t n = score->dim[1];
  const ls_tensor idx = matrix(LS_I32, plan->m, k);
  cr_assert_eq(ls_ref_topk(&idx, score, mask, offset, plan, NULL), LS_OK);
  item *items = malloc((size_t)n * sizeof *items);
  uint8_t *chosen = malloc((size_t)n);
  cr_assert(items != NULL && chosen != NULL);
  for (int64_t t = 0; t < plan->m; t++) {
    const int64_t visible = (plan->start_pos + t + 1) / plan->ratio;
    int64_t count = 0, entry = 0;
    for (int64_t j = 0; j < n && j < visible; j++) {
      const double s = get(score, t, j);
      if (s != -(double)INFINITY && (mask == NULL || get(mask, t, j) != 0)) items[count++] = (item){s, j};
    }
    qsort(items, (size_t)count, sizeof *items, better_first);
    memset(chosen, 0, (size_t)n);
    for (int64_t i = 0; i < count && i < k; i++) chosen[items[i].at] = 1;
    for (int64_t j = 0; j < n; j++) {
      if (!chosen[j]) continue;
      cr_assert_eq(get(&idx, t, entry), (double)(j + offset), "query %d, entry %d", (int)t, (int)entry);
      entry++;
    }
    for (; entry < k; entry++) cr_assert_eq(get(&idx, t, entry), -1, "query %d, entry %d", (int)t, (int)entry);
  }
  free(items), free(chosen), free(idx.data);
}

/* ---- top-k ---- */

static void expect_topk(int64_t n, const double *score, int64_t k, const int32_t *expected) {
  const ls_attn_plan plan = decode(n);
  for (int wide = 0; wide < 2; wide++) {
    const ls_tensor s = matrix(wide ? LS_F64 : LS_BF16, 1, n), idx = matrix(LS_I32, 1, k);
    for (int64_t j = 0; j < n; j++) set(&s, 0, j, score[j]);
    cr_assert_eq(ls_ref_topk(&idx, &s, NULL, 0, &plan, NULL), LS_OK);
    for (int64_t i = 0; i < k; i++) cr_assert_eq(((int32_t *)idx.data)[i], expected[i], "entry %d", (int)i);
    free(s.data), free(idx.data);
  }
}

Test(ref_indexer, selections_by_hand) {
  const double inf = (double)INFINITY, nan = (double)NAN;
  expect_topk(5, (double[]){1, 5, 3, 4, 2}, 2, (int32_t[]){1, 3});
  expect_topk(5, (double[]){1, 2, 2, 2, 0}, 2, (int32_t[]){1, 2});              /* ties: the lower positions */
  expect_topk(4, (double[]){-0.0, 0, -0.0, 0}, 3, (int32_t[]){0, 1, 2});        /* -0 is 0 */
  expect_topk(4, (double[]){-3, -1, -2, -4}, 2, (int32_t[]){1, 2});             /* negative scores */
  expect_topk(4, (double[]){-inf, 1, -inf, -5}, 3, (int32_t[]){1, 3, -1});      /* -inf is never chosen */
  expect_topk(3, (double[]){-inf, -inf, -inf}, 2, (int32_t[]){-1, -1});         /* nothing at all */
  expect_topk(4, (double[]){inf, nan, 7, inf}, 2, (int32_t[]){0, 1});           /* NaN, then the lower infinity */
  expect_topk(4, (double[]){nan, 9, nan, nan}, 2, (int32_t[]){0, 2});           /* the lower NaN */
  expect_topk(4, (double[]){nan, 9, -(double)NAN, 3}, 3, (int32_t[]){0, 1, 2}); /* of either sign */
  expect_topk(2, (double[]){1, 2}, 4, (int32_t[]){0, 1, -1, -1});               /* fewer than k */
}

Test(ref_indexer, every_bf16_value_is_ranked) {
  const ls_attn_plan plan = decode(65536);
  const ls_tensor score = matrix(LS_BF16, 1, 65536);
  for (int64_t j = 0; j < 65536; j++) ((uint16_t *)score.data)[j] = (uint16_t)(j * 40503 % 65536); /* all values, shuffled */
  static const int64_t ks[] = {1, 2, 127, 254, 255, 256, 512, 10000, 32768, 65280, 65535, 65536};
  for (size_t i = 0; i < sizeof ks / sizeof ks[0]; i++) check_topk(&score, NULL, ks[i], 0, &plan);
  free(score.data);
}

Test(ref_indexer, scores_that_differ_in_the_last_bit_alone_are_told_apart) {
  enum { N = 3000 };
  const ls_attn_plan plan = decode(N);
  const ls_tensor score = matrix(LS_F64, 1, N);
  for (int sign = -1; sign <= 1; sign += 2) {
    double v = sign * 1.0;
    for (int64_t j = 0; j < N; j++) {
      set(&score, 0, j * 7 % N, v); /* 7 and N have no common divisor */
      if (j % 3 == 0) v = nextafter(v, 100);
    }
    for (int64_t k = 1; k <= N; k += 293) check_topk(&score, NULL, k, 0, &plan);
  }
  free(score.data);
}

Test(ref_indexer, every_query_selects_among_what_it_sees_inside_the_mask) {
  ls_random draw = {.seed = 21};
  for (int trial = 0; trial < 60; trial++) {
    const int64_t ratio = ls_random_range(&draw, 1, 3), m = ls_random_range(&draw, ratio, 60), values = ls_random_range(&draw, 1, 12);
    const ls_attn_plan plan = prefill(m, ratio);
    const ls_tensor score = matrix(trial % 2 ? LS_F64 : LS_BF16, m, plan.n), mask = matrix(LS_U8, m, plan.n);
    for (int64_t i = 0; i < m * plan.n; i++) { /* few values, so many ties; what is in the future is as tempting as the rest */
      const int64_t v = ls_random_range(&draw, 0, values);
      ls_tensor_set(&score, i, v == 0 ? -(double)INFINITY : v == 1 && trial % 3 == 0 ? (double)NAN : (double)(v - 6));
      ls_tensor_set(&mask, i, (double)ls_random_range(&draw, 0, 1));
    }
    for (int64_t k = 1; k <= plan.n + 2; k += 1 + k / 3) {
      check_topk(&score, NULL, k, m, &plan);
      check_topk(&score, &mask, k, 128, &plan);
    }
    free(score.data), free(mask.data);
  }
}

Test(ref_indexer, selection_without_rows_has_no_entries) {
  const ls_attn_plan plan = {.m = 1, .ratio = 2};
  const ls_tensor score = matrix(LS_BF16, 1, 0), idx = matrix(LS_I32, 1, 0);
  cr_assert_eq(ls_ref_topk(&idx, &score, NULL, 1, &plan, NULL), LS_OK);
  free(score.data), free(idx.data);
}

/* ---- candidates ---- */

static void check_candidates(const ls_tensor *score, int64_t block, int64_t topk_blocks, const ls_attn_plan *plan) {
  const int64_t n = score->dim[1];
  const ls_attn_config config = {.candidate_block_size = block, .candidate_topk_blocks = topk_blocks};
  const ls_tensor mask = matrix(LS_U8, plan->m, n);
  cr_assert_eq(ls_ref_candidates(&mask, score, &config, plan, NULL), LS_OK);
  item *items = malloc((size_t)(n + 1) * sizeof *items);
  uint8_t *kept = malloc((size_t)(n + 1));
  cr_assert(items != NULL && kept != NULL);
  for (int64_t t = 0; t < plan->m; t++) {
    const int64_t visible = (plan->start_pos + t + 1) / plan->ratio;
    memset(kept, 0, (size_t)(n + 1));
    if (visible > 0) {
      const int64_t newest = (visible - 1) / block;
      int64_t count = 0;
      for (int64_t b = 0; b < newest; b++) {
        item best = {-(double)INFINITY, b};
        for (int64_t j = b * block; j < (b + 1) * block; j++) {
          const item one = {get(score, t, j), b};
          if (isnan(one.score) || one.score > best.score) best = one;
          if (isnan(best.score)) break;
        }
        if (best.score != -(double)INFINITY) items[count++] = best;
      }
      qsort(items, (size_t)count, sizeof *items, better_first);
      kept[newest] = 1;
      for (int64_t i = 0; i < count && i < topk_blocks - 1; i++) kept[items[i].at] = 1;
    }
    for (int64_t j = 0; j < n; j++) {
      const int expected = visible > 0 && kept[j / block];
      cr_assert_eq((int)get(&mask, t, j), expected, "block %d of %d, query %d, position %d", (int)(j / block), (int)block, (int)t, (int)j);
    }
  }
  free(items), free(kept), free(mask.data);
}

static void expect_candidates(int64_t n, const double *score, int64_t topk_blocks, const char *expected) { /* blocks of 2 */
  const ls_attn_plan plan = decode(n);
  const ls_attn_config config = {.candidate_block_size = 2, .candidate_topk_blocks = topk_blocks};
  const ls_tensor s = matrix(LS_BF16, 1, n), mask = matrix(LS_U8, 1, n);
  for (int64_t j = 0; j < n; j++) set(&s, 0, j, score[j]);
  cr_assert_eq(ls_ref_candidates(&mask, &s, &config, &plan, NULL), LS_OK);
  for (int64_t j = 0; j < n; j++) cr_assert_eq(((uint8_t *)mask.data)[j], expected[j] - '0', "position %d of %s", (int)j, expected);
  free(s.data), free(mask.data);
}

Test(ref_indexer, candidates_by_hand) {
  const double inf = (double)INFINITY, nan = (double)NAN;
  expect_candidates(7, (double[]){1, 9, 3, 3, 8, 1, -5}, 2, "1100001"); /* the newest takes one of two places */
  expect_candidates(7, (double[]){1, 9, 3, 3, 8, 1, -5}, 1, "0000001"); /* or the only one */
  expect_candidates(7, (double[]){1, 9, 3, 3, 8, 1, -5}, 4, "1111111"); /* exactly as many as there are */
  expect_candidates(7, (double[]){1, 9, 3, 3, 8, 1, -5}, 9, "1111111");
  expect_candidates(6, (double[]){4, 2, 1, 4, 0, 0}, 2, "110011");                /* a tie of blocks: the lower one */
  expect_candidates(6, (double[]){-inf, -inf, -inf, 2, -inf, -inf}, 3, "001111"); /* a block of -inf is never kept, the newest always */
  expect_candidates(8, (double[]){inf, 1, nan, 1, nan, 1, 0, 0}, 2, "00110011");  /* NaN before infinity, the lower one */
  expect_candidates(6, (double[]){inf, inf, inf, inf, 0, 0}, 2, "110011");        /* infinities do not push the newest out */
  expect_candidates(1, (double[]){-inf}, 1, "1");
}

Test(ref_indexer, candidates_follow_the_rule_for_every_query) {
  ls_random draw = {.seed = 22};
  for (int trial = 0; trial < 60; trial++) {
    const int64_t ratio = ls_random_range(&draw, 1, 3), m = ls_random_range(&draw, 1, 70), block = ls_random_range(&draw, 1, 9);
    const ls_attn_plan plan = prefill(m, ratio);
    const ls_tensor score = matrix(trial % 2 ? LS_F64 : LS_BF16, m, plan.n);
    for (int64_t i = 0; i < m * plan.n; i++) {
      const int64_t v = ls_random_range(&draw, 0, 40);
      ls_tensor_set(&score, i, v < 30 ? -(double)INFINITY : v == 40 && trial % 4 == 0 ? (double)NAN : (double)(v - 35));
    }
    const int64_t blocks = (plan.n + block - 1) / block;
    for (int64_t topk = 1; topk <= blocks + 1; topk++) check_candidates(&score, block, topk, &plan);
    free(score.data);
  }
}

Test(ref_indexer, lists_of_seventy_thousand_scores_are_selected_from) {
  const int64_t n = 70001;
  const ls_attn_plan plan = decode(n);
  for (int wide = 0; wide < 2; wide++) {
    const ls_tensor score = matrix(wide ? LS_F64 : LS_BF16, 1, n);
    ls_generate(&score, "scores", 1, 0);
    check_topk(&score, NULL, 512, 128, &plan);
    check_candidates(&score, 8, 2048, &plan);
    free(score.data);
  }
}
