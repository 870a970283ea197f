#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/ls_random.h"
#include "core/ls_trace_delta.h"

static ls_trace *new_trace(void) {
  ls_trace *trace;
  cr_assert_eq(ls_trace_new(&trace, "test", NULL), LS_OK);
  return trace;
}

static ls_tensor add(ls_trace *trace, const char *name, ls_dtype dtype, int ndim, const int64_t *dim) {
  ls_tensor t;
  ls_error err = {0};
  cr_assert_eq(ls_trace_add(trace, name, dtype, ndim, dim, &t, &err), LS_OK, "%s", err.text);
  memset(t.data, 0, ls_tensor_bytes(&t));
  return t;
}

/* A state: a ring, a cache, a cursor, and something that comes and goes. */
static ls_trace *state(int64_t cache_rows, bool extra) {
  ls_trace *trace = new_trace();
  ls_tensor ring = add(trace, "ring", LS_BF16, 3, (int64_t[]){2, 6, 8}),
            cache = add(trace, "layers/0/cache", LS_F32, 2, (int64_t[]){cache_rows, 4});
  add(trace, "cursor", LS_I64, 1, (int64_t[]){1});
  ls_generate(&ring, "ring", 1, 0);
  ls_generate(&cache, "cache", 1, 0);
  if (extra) add(trace, "topk", LS_I32, 2, (int64_t[]){2, 3});
  return trace;
}

static void expect_same(const ls_trace *a, const ls_trace *b) {
  cr_expect_eq(a->n, b->n);
  for (int i = 0; i < a->n; i++) {
    const ls_tensor *t = ls_trace_tensor(b, a->rec[i].name);
    cr_expect(t != NULL && ls_tensor_same_bytes(t, &a->rec[i].t), "%s", a->rec[i].name);
  }
}

static void round_trip(const ls_trace *before, const ls_trace *after, int said) {
  ls_trace *delta, *back;
  ls_error err = {0};
  cr_assert_eq(ls_trace_delta(&delta, before, after, &err), LS_OK, "%s", err.text);
  cr_expect_eq(delta->n, said, "expected %d tensors of change, found %d", said, delta->n);
  cr_assert_eq(ls_trace_patch(&back, before, delta, "test", &err), LS_OK, "%s", err.text);
  expect_same(after, back);
  ls_trace_free(back);
  ls_trace_free(delta);
}

Test(trace_delta, nothing_changed_is_nothing_said) {
  ls_trace *a = state(3, true), *b = state(3, true);
  round_trip(a, b, 0);
  ls_trace_free(a);
  ls_trace_free(b);
}

Test(trace_delta, changed_rows_come_back) {
  ls_trace *a = state(3, true), *b = state(3, true), *delta;
  const ls_tensor *ring = ls_trace_tensor(b, "ring");
  ls_tensor_set(ring, 8 * 7 + 2, 9);  /* row 7 */
  ls_tensor_set(ring, 8 * 11 + 7, 9); /* row 11 */
  round_trip(a, b, 2);
  cr_assert_eq(ls_trace_delta(&delta, a, b, NULL), LS_OK);
  const int64_t *rows = ls_trace_tensor(delta, "rows/ring")->data;
  cr_expect(rows[0] == 7 && rows[1] == 11 && ls_trace_tensor(delta, "values/ring")->dim[0] == 2);
  ls_trace_free(delta);
  ls_trace_free(a);
  ls_trace_free(b);
}

Test(trace_delta, what_grows_goes_comes_or_changes_its_shape_comes_back) {
  ls_trace *small = state(3, false), *large = state(5, true), *odd = new_trace();
  round_trip(small, large, 3); /* rows and values of the cache, all of topk */
  round_trip(large, small, 2); /* a shorter cache is told in whole; topk is gone */
  round_trip(NULL, large, 4);
  add(odd, "ring", LS_F32, 3, (int64_t[]){2, 6, 8});
  add(odd, "cursor", LS_I64, 1, (int64_t[]){1});
  round_trip(large, odd, 3);
  ls_trace_free(small);
  ls_trace_free(large);
  ls_trace_free(odd);
}

/* What a file may say instead. */
static void refuse(const char *what, const int64_t *rows, int64_t n, int64_t width, ls_dtype dtype, const char *name) {
  ls_trace *before = state(3, false), *delta = new_trace(), *after = NULL;
  char full[64];
  ls_error err = {0};
  snprintf(full, sizeof full, "rows/%s", name);
  if (rows != NULL) memcpy(add(delta, full, LS_I64, 1, &n).data, rows, (size_t)n * sizeof *rows);
  snprintf(full, sizeof full, "values/%s", name);
  if (width > 0) add(delta, full, dtype, 2, (int64_t[]){n, width});
  cr_expect_eq(ls_trace_patch(&after, before, delta, "test", &err), LS_BAD_FIXTURE, "%s", what);
  cr_expect_not_null(strstr(err.text, name), "%s: %s", what, err.text);
  cr_expect_null(after);
  ls_trace_free(delta);
  ls_trace_free(before);
}

Test(trace_delta, a_change_that_does_not_fit_is_refused) {
  refuse("before the first row", (int64_t[]){-1}, 1, 8, LS_BF16, "ring");
  refuse("a gap past the end", (int64_t[]){13}, 1, 8, LS_BF16, "ring");
  refuse("half a slab past the end", (int64_t[]){12, 13}, 2, 8, LS_BF16, "ring");
  refuse("far past the end", (int64_t[]){INT64_MAX}, 1, 8, LS_BF16, "ring");
  refuse("descending", (int64_t[]){5, 4}, 2, 8, LS_BF16, "ring");
  refuse("twice", (int64_t[]){4, 4}, 2, 8, LS_BF16, "ring");
  refuse("another width", (int64_t[]){4}, 1, 7, LS_BF16, "ring");
  refuse("another type", (int64_t[]){4}, 1, 8, LS_F32, "ring");
  refuse("rows without values", (int64_t[]){4}, 1, 0, LS_BF16, "ring");
  refuse("rows of what is not there", (int64_t[]){0}, 1, 8, LS_BF16, "other");
}
