#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "core/ls_digest.h"
#include "core/ls_numeric.h"
#include "core/ls_random.h"

enum { WIDTH = 96 };

static ls_tensor add(ls_trace *trace, const char *name, ls_dtype dtype, int ndim, const int64_t *dim) {
  ls_tensor t;
  ls_error err = {0};
  cr_assert_eq(ls_trace_add(trace, name, dtype, ndim, dim, &t, &err), LS_OK, "%s", err.text);
  return t;
}

/* The digest of one row. */
static uint64_t row(double stat[LS_DIGEST_STATS], const ls_tensor *t, ls_dtype type, const ls_tensor *only) {
  ls_digest_scratch scratch;
  uint64_t hash;
  cr_assert_eq(ls_digest_scratch_new(&scratch, WIDTH, NULL), LS_OK);
  ls_digest_row(&hash, stat, t, type, only, &scratch);
  ls_digest_scratch_free(&scratch);
  return hash;
}

static ls_trace *scene(ls_tensor *bf16, ls_tensor *f64) {
  ls_trace *trace;
  const int64_t dim[] = {WIDTH};
  cr_assert_eq(ls_trace_new(&trace, "test", NULL), LS_OK);
  *bf16 = add(trace, "a", LS_BF16, 1, dim);
  *f64 = add(trace, "b", LS_F64, 1, dim);
  ls_generate(bf16, "row", 1, 0.25);
  cr_assert_eq(ls_tensor_copy(f64, bf16, NULL), LS_OK);
  return trace;
}

Test(digest, equal_values_hash_alike_whatever_their_type) {
  ls_tensor a, b;
  double stat[2][LS_DIGEST_STATS];
  ls_trace *trace = scene(&a, &b);
  ls_tensor_set(&a, 3, 0.0);
  ls_tensor_set(&b, 3, -0.0);
  ls_tensor_set(&a, 4, NAN);
  ((uint64_t *)b.data)[4] = 0xFFF8000000000123u; /* another NaN */
  const uint64_t hash = row(stat[0], &a, LS_BF16, NULL);
  cr_expect_eq(row(stat[1], &b, LS_BF16, NULL), hash);
  cr_expect_eq(memcmp(stat[0], stat[1], sizeof stat[0]), 0);
  ls_tensor_set(&b, 70, ls_tensor_get(&b, 70) * (1 + 0x1p-11)); /* rounds away */
  cr_expect_eq(row(stat[1], &b, LS_BF16, NULL), hash);
  ls_trace_free(trace);
}

Test(digest, one_step_of_one_element_is_another_hash) {
  ls_tensor a, b;
  double stat[2][LS_DIGEST_STATS];
  ls_trace *trace = scene(&a, &b);
  const uint64_t hash = row(stat[0], &a, LS_BF16, NULL);
  for (int64_t i = 0; i < WIDTH; i++) {
    const double v = ls_tensor_get(&a, i);
    ls_tensor_set(&a, i, v + ls_step_at(LS_BF16, v));
    cr_expect_neq(row(stat[1], &a, LS_BF16, NULL), hash, "element %d", (int)i);
    ls_tensor_set(&a, i, v);
  }
  ls_trace_free(trace);
}

Test(digest, statistics_are_those_of_the_finite_elements) {
  ls_tensor a, b;
  double stat[LS_DIGEST_STATS], sum = 0, squares = 0, least = INFINITY, largest = -INFINITY;
  ls_trace *trace = scene(&a, &b);
  ls_tensor_set(&a, 10, INFINITY);
  ls_tensor_set(&a, 20, -INFINITY);
  ls_tensor_set(&a, 30, -INFINITY);
  ls_tensor_set(&a, 40, NAN);
  for (int64_t i = 0; i < WIDTH; i++) {
    const double v = ls_tensor_get(&a, i);
    if (!isfinite(v)) continue;
    sum += v;
    squares += v * v;
    least = fmin(least, v);
    largest = fmax(largest, v);
  }
  row(stat, &a, LS_BF16, NULL);
  cr_expect_eq(stat[LS_DIGEST_FINITE], WIDTH - 4);
  cr_expect_eq(stat[LS_DIGEST_NAN], 1);
  cr_expect_eq(stat[LS_DIGEST_PLUS_INF], 1);
  cr_expect_eq(stat[LS_DIGEST_MINUS_INF], 2);
  cr_expect_eq(stat[LS_DIGEST_FIRST_NONFINITE], 10);
  cr_expect_eq(stat[LS_DIGEST_SUM], sum);
  cr_expect_eq(stat[LS_DIGEST_SUM_SQUARES], squares);
  cr_expect_eq(stat[LS_DIGEST_LEAST], least);
  cr_expect_eq(stat[LS_DIGEST_LARGEST], largest);
  ls_trace_free(trace);
}

Test(digest, elements_that_change_places_show_in_the_sum_with_signs_alone) {
  ls_tensor a, b;
  double stat[2][LS_DIGEST_STATS];
  ls_trace *trace = scene(&a, &b);
  int64_t j = 1;
  while (ls_digest_sign(j) == ls_digest_sign(0)) j++;
  row(stat[0], &a, LS_BF16, NULL);
  const double first = ls_tensor_get(&a, 0);
  ls_tensor_set(&a, 0, ls_tensor_get(&a, j));
  ls_tensor_set(&a, j, first);
  row(stat[1], &a, LS_BF16, NULL);
  cr_expect_neq(stat[0][LS_DIGEST_MIX], stat[1][LS_DIGEST_MIX]);
  cr_expect_float_eq(stat[0][LS_DIGEST_SUM], stat[1][LS_DIGEST_SUM], 1e-12);
  ls_trace_free(trace);
}

Test(digest, what_is_not_defined_does_not_count) {
  ls_tensor a, b;
  double stat[2][LS_DIGEST_STATS];
  ls_trace *trace = scene(&a, &b);
  ls_tensor only = add(trace, "only", LS_U8, 1, a.dim);
  memset(only.data, 1, WIDTH);
  ((uint8_t *)only.data)[5] = 0;
  const uint64_t hash = row(stat[0], &a, LS_BF16, &only);
  ls_tensor_set(&a, 5, NAN);
  cr_expect_eq(row(stat[1], &a, LS_BF16, &only), hash);
  cr_expect_eq(stat[1][LS_DIGEST_FINITE], WIDTH - 1);
  cr_expect_eq(memcmp(stat[0], stat[1], sizeof stat[0]), 0);
  ls_tensor_set(&a, 6, 100);
  cr_expect_neq(row(stat[1], &a, LS_BF16, &only), hash);
  ls_trace_free(trace);
}

Test(digest, rows_of_a_strided_tensor_are_those_of_its_copy) {
  ls_trace *trace, *digests;
  ls_digest x, y;
  cr_assert_eq(ls_trace_new(&trace, "test", NULL), LS_OK);
  cr_assert_eq(ls_trace_new(&digests, "test", NULL), LS_OK);
  ls_tensor whole = add(trace, "whole", LS_F32, 3, (int64_t[]){3, 8, 16}), part = add(trace, "part", LS_F32, 3, (int64_t[]){3, 4, 16});
  ls_generate(&whole, "whole", 1, 0);
  const ls_tensor view = ls_tensor_slice(&whole, 1, 2, 4);
  cr_assert_eq(ls_tensor_copy(&part, &view, NULL), LS_OK);
  cr_assert_eq(ls_digest_add(digests, "x", &view, LS_BF16, NULL, NULL), LS_OK);
  cr_assert_eq(ls_digest_add(digests, "y", &part, LS_BF16, NULL, NULL), LS_OK);
  cr_assert(ls_digest_find(&x, digests, "x") && ls_digest_find(&y, digests, "y"));
  cr_expect_not(ls_digest_find(&x, digests, "z"));
  cr_expect_eq(x.hash.ndim, 2);
  cr_expect_eq(x.stats.dim[2], LS_DIGEST_STATS);
  cr_expect(ls_tensor_same_bytes(&x.hash, &y.hash) && ls_tensor_same_bytes(&x.stats, &y.stats));
  ls_trace_free(digests);
  ls_trace_free(trace);
}

static bool is_b(const void *arg, const char *name) {
  (void)arg;
  return strcmp(name, "b") == 0;
}

Test(digest, a_trace_hashes_by_names_shapes_and_values) {
  ls_tensor a, b;
  uint64_t hash[6];
  ls_trace *one = scene(&a, &b), *other, *swapped;
  cr_assert_eq(ls_hash_trace(&hash[0], one, NULL, NULL, NULL), LS_OK);
  cr_assert_eq(ls_trace_new(&swapped, "test", NULL), LS_OK);
  cr_assert_eq(ls_trace_add_view(swapped, "b", &a, NULL), LS_OK); /* the same values in another type, the other way round */
  cr_assert_eq(ls_trace_add_view(swapped, "a", &b, NULL), LS_OK);
  cr_assert_eq(ls_hash_trace(&hash[1], swapped, NULL, NULL, NULL), LS_OK);
  cr_expect_eq(hash[0], hash[1]);
  cr_assert_eq(ls_trace_copy(&other, one, NULL), LS_OK);
  ls_tensor_set(ls_trace_tensor(other, "b"), 7, 5);
  cr_assert_eq(ls_hash_trace(&hash[2], other, NULL, NULL, NULL), LS_OK);
  cr_expect_neq(hash[0], hash[2]);
  cr_assert_eq(ls_hash_trace(&hash[3], one, is_b, NULL, NULL), LS_OK);
  cr_assert_eq(ls_hash_trace(&hash[4], other, is_b, NULL, NULL), LS_OK);
  cr_expect_eq(hash[3], hash[4]);
  const ls_tensor flat = ls_tensor_make(LS_BF16, 2, (int64_t[]){2, WIDTH / 2}, a.data);
  ls_trace_free(swapped);
  cr_assert_eq(ls_trace_new(&swapped, "test", NULL), LS_OK);
  cr_assert_eq(ls_trace_add_view(swapped, "a", &flat, NULL), LS_OK);
  cr_assert_eq(ls_hash_trace(&hash[5], swapped, NULL, NULL, NULL), LS_OK);
  cr_expect_neq(hash[3], hash[5], "another shape");
  cr_assert_eq(ls_hash_trace(&hash[5], NULL, NULL, NULL, NULL), LS_OK);
  cr_expect_eq(hash[5], 0);
  ls_trace_free(swapped);
  ls_trace_free(other);
  ls_trace_free(one);
}
