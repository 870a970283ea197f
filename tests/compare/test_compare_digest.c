/* Rows against digests: what is right never fails, and planted errors are named by row. */
#include "compare/ls_compare_digest.h"
#include "compare_helpers.h"

enum { LAYERS = 2, ROWS = 5, WIDTH = 64 };

typedef struct {
  ls_trace *trace, *digests;
  ls_tensor a, b, bound;
  ls_digest da, db;
  ls_stage stage;
  ls_digest_args args;
} scene;

static scene make_scene(const char *seed) {
  static const int64_t dim[] = {LAYERS, ROWS, WIDTH};
  scene s = {.trace = new_trace("test"), .digests = new_trace("test")};
  s.stage = (ls_stage){.name = "k_rope", .axes = "layer row channel", .steps = 1};
  s.a = add_tensor(s.trace, "a", LS_BF16, 3, dim);
  ls_generate(&s.a, seed, 1, 0.125);
  s.b = add_copy(s.trace, "b", &s.a);
  s.bound = add_tensor(s.trace, "bound", LS_F32, 3, dim);
  s.args = (ls_digest_args){.type = LS_BF16, .steps = 1};
  return s;
}

static void free_scene(scene *s) {
  ls_trace_free(s->trace);
  ls_trace_free(s->digests);
}

/* values: a's are there. */
static ls_result judge(scene *s, bool values, const ls_tensor *only) {
  ls_result result;
  ls_trace_free(s->digests);
  s->digests = new_trace("digests");
  MUST(ls_digest_add(s->digests, "a", &s->a, LS_BF16, only, err));
  MUST(ls_digest_add(s->digests, "b", &s->b, LS_BF16, only, err));
  cr_assert(ls_digest_find(&s->da, s->digests, "a") && ls_digest_find(&s->db, s->digests, "b"));
  s->args.stage = &s->stage;
  s->args.a = values ? &s->a : NULL;
  s->args.b = NULL;
  s->args.digest_a = &s->da;
  s->args.digest_b = &s->db;
  s->args.bound = &s->bound;
  s->args.only = only;
  ls_compare_digest(&result, &s->args);
  return result;
}

static int64_t at(int64_t layer, int64_t row, int64_t channel) { return (layer * ROWS + row) * WIDTH + channel; }

Test(compare_digest, equal_rows_pass_in_bits) {
  scene s = make_scene("equal");
  for (int values = 0; values < 2; values++) {
    const ls_result r = judge(&s, values, NULL);
    assert_verdict(r, LS_PASS);
    cr_expect_eq(r.count, LAYERS * ROWS * WIDTH);
    cr_expect_eq(r.bit_equal, r.count);
    cr_expect_eq(r.rows, LAYERS * ROWS);
    cr_expect_eq(r.use, 0);
    cr_expect_not(r.has_worst);
  }
  free_scene(&s);
}

/* The property that the statistics are made for: whatever passes element by element passes here. */
Test(compare_digest, what_passes_element_by_element_never_fails) {
  for (int seed = 0; seed < 200; seed++) {
    char name[32];
    snprintf(name, sizeof name, "legal %d", seed);
    scene s = make_scene(name);
    ls_random random = {.seed = (uint64_t)seed};
    const double wide = seed % 3 == 0 ? 0 : seed % 3 == 1 ? 0.01 : 2;
    for (int64_t i = 0; i < LAYERS * ROWS * WIDTH; i++) {
      const double v = ls_tensor_get(&s.a, i), bound = wide * ls_random_unit(&random);
      ls_tensor_set(&s.bound, i, bound);
      double to = v + (seed % 2 == 0 ? 1 : 2 * ls_random_unit(&random) - 1) * (ls_tensor_get(&s.bound, i) + ls_step_at(LS_BF16, v));
      ls_tensor_set(&s.b, i, to); /* all one way, or either way; rounding may carry it too far: then it stays */
      const double limit = ls_step_at(LS_BF16, fmax(fabs(v), fabs(ls_tensor_get(&s.b, i)))) + ls_tensor_get(&s.bound, i);
      if (!(fabs(ls_tensor_get(&s.b, i) - v) <= limit)) ls_tensor_set(&s.b, i, v);
    }
    const ls_compare_args each = {.stage = &s.stage, .type = LS_BF16, .a = &s.a, .b = &s.b, .bound = &s.bound, .steps = 1};
    ls_result r;
    ls_compare_tensor(&r, &each);
    assert_verdict(r, LS_PASS);
    for (int values = 0; values < 2; values++) {
      r = judge(&s, values, NULL);
      assert_verdict(r, LS_PASS);
      cr_expect_gt(r.use, 0);
      assert_has(r.note, "by their statistics");
    }
    free_scene(&s);
  }
}

static void expect_row(const char *what, const ls_result *r, const char *note) {
  cr_expect_eq(r->verdict, LS_FAIL, "%s: %s", what, ls_verdict_name(r->verdict));
  cr_expect_str_eq(r->where, "layer 1 row 3", "%s: %s", what, r->where);
  cr_expect(has(r->note, note), "%s: expected '%s' in: %s", what, note, r->note);
  cr_expect_eq(r->rows_failing, 1, "%s", what);
  cr_expect_eq(r->failing, WIDTH, "%s", what);
  cr_expect_gt(r->use, 1, "%s", what);
}

Test(compare_digest, a_planted_error_is_named_by_its_row) {
  scene s = make_scene("planted");
  for (int values = 0; values < 2; values++) {
    ls_tensor_set(&s.b, at(1, 3, 17), 4);
    ls_result r = judge(&s, values, NULL);
    expect_row("an outlier", &r, "the largest element");
    ls_tensor_set(&s.b, at(1, 3, 17), NAN);
    r = judge(&s, values, NULL);
    expect_row("a NaN", &r, "the number of");
    cr_expect(isinf(r.use));
    for (int64_t c = 0; c < WIDTH; c++) ls_tensor_set(&s.b, at(1, 3, c), ls_tensor_get(&s.a, at(1, 3, c)) * 1.25);
    r = judge(&s, values, NULL);
    expect_row("a scale", &r, "by digest");
    for (int64_t c = 0; c < WIDTH; c++) ls_tensor_set(&s.b, at(1, 3, c), ls_tensor_get(&s.a, at(1, 3, (c + 1) % WIDTH)));
    r = judge(&s, values, NULL);
    expect_row("shifted by one channel", &r, "the sum with signs");
    for (int64_t c = 0; c < WIDTH; c++) ls_tensor_set(&s.b, at(1, 3, c), ls_tensor_get(&s.a, at(1, 3, c)));
  }
  free_scene(&s);
}

Test(compare_digest, where_equality_is_asked_any_other_row_fails) {
  scene s = make_scene("exact");
  s.args.steps = 0;
  const double v = ls_tensor_get(&s.a, at(1, 3, 17));
  ls_tensor_set(&s.b, at(1, 3, 17), v + ls_step_at(LS_BF16, v));
  ls_result r = judge(&s, true, NULL);
  expect_row("one step", &r, "by digest");
  s.args.steps = 1;
  r = judge(&s, true, NULL);
  assert_verdict(r, LS_PASS);
  cr_expect_eq(r.bit_equal, (LAYERS * ROWS - 1) * WIDTH);
  free_scene(&s);
}

Test(compare_digest, a_bound_that_is_not_finite_allows_nothing) {
  scene s = make_scene("unbounded");
  for (int64_t c = 0; c < WIDTH; c++) ls_tensor_set(&s.bound, at(1, 3, c), c % 2 ? NAN : INFINITY);
  ls_tensor_set(&s.b, at(1, 3, 17), 3);
  const ls_result r = judge(&s, true, NULL);
  expect_row("no bound", &r, "by digest");
  free_scene(&s);
}

Test(compare_digest, what_is_not_defined_is_not_judged) {
  scene s = make_scene("only");
  ls_tensor only = add_tensor(s.trace, "only", LS_U8, 3, s.a.dim);
  memset(only.data, 1, LAYERS * ROWS * WIDTH);
  ((uint8_t *)only.data)[at(1, 3, 17)] = 0;
  ls_tensor_set(&s.b, at(1, 3, 17), NAN);
  ls_result r = judge(&s, true, &only);
  assert_verdict(r, LS_PASS);
  cr_expect_eq(r.count, LAYERS * ROWS * WIDTH - 1);
  cr_expect_eq(r.bit_equal, r.count);
  ls_tensor_set(&s.b, at(1, 3, 18), 5);
  r = judge(&s, true, &only);
  cr_expect_eq(r.verdict, LS_FAIL);
  memset(only.data, 0, LAYERS * ROWS * WIDTH);
  r = judge(&s, true, &only);
  assert_verdict(r, LS_MISTRUSTED);
  cr_expect_eq(r.count, 0);
  free_scene(&s);
}

Test(compare_digest, zeros_prove_little) {
  scene s = make_scene("zeros");
  memset(s.a.data, 0, ls_tensor_bytes(&s.a));
  memset(s.b.data, 0, ls_tensor_bytes(&s.b));
  for (int values = 0; values < 2; values++) {
    const ls_result r = judge(&s, values, NULL);
    assert_verdict(r, LS_MISTRUSTED);
  }
  free_scene(&s);
}

Test(compare_digest, another_shape_is_a_failure) {
  scene s = make_scene("shape");
  judge(&s, true, NULL);
  ls_digest cut = {ls_tensor_slice(&s.db.hash, 1, 0, ROWS - 1), ls_tensor_slice(&s.db.stats, 1, 0, ROWS - 1)};
  ls_result r;
  s.args.digest_b = &cut;
  ls_compare_digest(&r, &s.args);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "another shape");
  free_scene(&s);
}

Test(compare_digest, a_tolerance_replaces_the_rule) {
  scene s = make_scene("tolerance");
  s.args.has_tolerance = true;
  s.args.atol = 0.5;
  for (int64_t i = 0; i < LAYERS * ROWS * WIDTH; i++) ls_tensor_set(&s.b, i, ls_tensor_get(&s.a, i) + 0.25);
  ls_result r = judge(&s, true, NULL);
  assert_verdict(r, LS_PASS);
  s.args.atol = 0.125;
  r = judge(&s, true, NULL);
  assert_verdict(r, LS_FAIL);
  cr_expect_eq(r.rows_failing, LAYERS * ROWS);
  free_scene(&s);
}
