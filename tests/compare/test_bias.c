/* A path that rounds otherwise stays within the one step that each element is allowed; all elements together show it. */
#include "compare/compare_tally.h"
#include "compare_helpers.h"

enum { ROWS = 24, WIDTH = 96, COUNT = ROWS * WIDTH };

static const ls_stage stage = {.name = "k_proj", .axes = "row channel", .steps = 1};

/* Exact values, and both sides as a path would store them. */
typedef struct {
  ls_trace *trace;
  ls_tensor exact, a, b, bound;
  ls_compare_args args;
} sides;

static void open_sides(sides *s, ls_dtype type, double bound) {
  s->trace = new_trace("bias");
  const int64_t dim[] = {ROWS, WIDTH};
  s->exact = add_random(s->trace, "exact", LS_F64, 2, dim, 2.0);
  s->a = add_tensor(s->trace, "a", type, 2, dim);
  s->b = add_tensor(s->trace, "b", type, 2, dim);
  s->bound = add_tensor(s->trace, "bound", LS_F32, 2, dim);
  for (int64_t i = 0; i < COUNT; i++) {
    ls_tensor_set(&s->exact, i, ls_tensor_get(&s->exact, i) + 1e-5 * sin((double)i));
    ls_tensor_set(&s->bound, i, bound * fabs(ls_tensor_get(&s->exact, i)));
    ls_tensor_set(&s->a, i, ls_tensor_get(&s->exact, i));
    ls_tensor_set(&s->b, i, ls_tensor_get(&s->exact, i));
  }
  s->args = (ls_compare_args){.stage = &stage, .type = type, .a = &s->a, .b = &s->b, .bound = &s->bound, .steps = 1};
}

static ls_result compare(const sides *s) {
  ls_result r;
  ls_compare_tensor(&r, &s->args);
  return r;
}

/* bf16 or f16 toward zero, or away from it. */
static double cut(ls_dtype type, double v, bool away) {
  const double nearest = ls_round_to(type, v), step = ls_step_at(type, nearest);
  if (!away && fabs(nearest) > fabs(v)) return nearest - copysign(step, v);
  if (away && fabs(nearest) < fabs(v)) return nearest + copysign(step, v);
  return nearest;
}

Test(bias, values_cut_off_fail_though_each_is_within_its_bound) {
  const ls_dtype types[] = {LS_BF16, LS_F16};
  for (int t = 0; t < 2; t++) {
    sides s;
    open_sides(&s, types[t], 1e-6);
    for (int64_t i = 0; i < COUNT; i++) ls_tensor_set(&s.b, i, cut(types[t], ls_tensor_get(&s.exact, i), false));
    ls_result r = compare(&s);
    assert_verdict(r, LS_FAIL);
    cr_assert(r.failing == 0 && r.use <= 1);
    assert_has(r.note, "biased");
    cr_assert_str_eq(r.pattern, "truncated");
    assert_has(r.pattern_text, "nearer to zero: values are cut off instead of rounded");
    for (int64_t i = 0; i < COUNT; i++) ls_tensor_set(&s.b, i, cut(types[t], ls_tensor_get(&s.exact, i), true));
    r = compare(&s);
    assert_verdict(r, LS_FAIL);
    cr_assert_str_eq(r.pattern, "rounded-away");
    ls_trace_free(s.trace);
  }
}

/* A path whose exact results are off by all that the bound allows, and all in one direction, differs in as many elements as that explains.
 */
Test(bias, errors_within_the_bound_pass_even_where_all_have_one_sign) {
  const double bounds[] = {1e-6, 1e-4, 1e-3};
  for (int k = 0; k < 3; k++) {
    sides s;
    open_sides(&s, LS_BF16, bounds[k]);
    for (int64_t i = 0; i < COUNT; i++) ls_tensor_set(&s.b, i, ls_tensor_get(&s.exact, i) * (1 - 0.999 * bounds[k]));
    const ls_result r = compare(&s);
    assert_verdict(r, LS_PASS);
    cr_assert(k == 0 || r.bias.toward > 10, "the case shows nothing");
    cr_assert(r.bias.away == 0 && r.bias.differing <= r.count);
    ls_trace_free(s.trace);
  }
}

/* More differ than the bound explains, but as many one way as the other: an error that a bound may lack, not a rounding. */
Test(bias, many_differences_of_both_signs_pass) {
  sides s;
  open_sides(&s, LS_BF16, 1e-6);
  for (int64_t i = 0; i < COUNT; i += 2) ls_tensor_set(&s.b, i, cut(LS_BF16, ls_tensor_get(&s.exact, i), i % 4 == 0));
  const ls_result r = compare(&s);
  assert_verdict(r, LS_PASS);
  cr_assert(r.bias.toward > 200 && r.bias.away > 200);
  ls_trace_free(s.trace);
}

/* Mostly one way, but not all: found, and not called truncation. */
Test(bias, a_mixture_is_biased_and_not_truncated) {
  sides s;
  open_sides(&s, LS_BF16, 1e-6);
  for (int64_t i = 0; i < COUNT; i++) ls_tensor_set(&s.b, i, cut(LS_BF16, ls_tensor_get(&s.exact, i), i % 5 == 0));
  const ls_result r = compare(&s);
  assert_verdict(r, LS_FAIL);
  cr_assert_str_eq(r.pattern, "biased");
  ls_trace_free(s.trace);
}

/* A value that stands in every row rounds alike in every row: that is one coin, not as many as there are rows. */
Test(bias, repeated_values_are_no_evidence) {
  sides s;
  open_sides(&s, LS_BF16, 1e-6);
  for (int64_t i = 0; i < COUNT; i++) {
    const double v = i % 8 == 0 ? 1.0 + 0.7 * 0x1p-7 : 2.0;
    ls_tensor_set(&s.a, i, v);
    ls_tensor_set(&s.b, i, cut(LS_BF16, v, false));
  }
  const ls_result r = compare(&s);
  assert_verdict(r, LS_PASS);
  cr_assert(r.bias.toward == COUNT / 8 && r.bias.away == 0);
  ls_trace_free(s.trace);
}

Test(bias, few_elements_prove_nothing) {
  sides s;
  open_sides(&s, LS_BF16, 1e-6);
  for (int64_t i = 0, cuts = 0; i < COUNT && cuts < 30; i++) {
    const double v = cut(LS_BF16, ls_tensor_get(&s.exact, i), false);
    cuts += v != ls_tensor_get(&s.a, i);
    ls_tensor_set(&s.b, i, v);
  }
  const ls_result r = compare(&s);
  assert_verdict(r, LS_PASS);
  cr_assert_eq(r.bias.toward, 30);
  ls_trace_free(s.trace);
}

/* Where no rounding is judged (own tolerance, no bound, float32) nothing is counted. */
Test(bias, counts_only_what_is_rounded) {
  sides s;
  open_sides(&s, LS_BF16, 1e-6);
  for (int64_t i = 0; i < COUNT; i++) ls_tensor_set(&s.b, i, cut(LS_BF16, ls_tensor_get(&s.exact, i), false));
  s.args.has_tolerance = true, s.args.atol = 1;
  assert_verdict(compare(&s), LS_PASS);
  s.args.has_tolerance = false, s.args.bound = NULL;
  ls_result r = compare(&s);
  assert_verdict(r, LS_PASS);
  cr_assert_eq(r.bias.count, 0);
  ls_trace_free(s.trace);
}

/* Whole blocks of equal bits are counted in another way than single elements: to the same sums. */
Test(bias, both_ways_of_counting_agree) {
  const ls_dtype types[] = {LS_BF16, LS_F16};
  for (int t = 0; t < 2; t++) {
    sides s;
    open_sides(&s, types[t], 3e-4);
    for (int64_t i = 0; i < COUNT; i += 331) ls_tensor_set(&s.b, i, cut(types[t], ls_tensor_get(&s.exact, i), false));
    for (int64_t i = 0; i < 8; i++)
      ls_tensor_set(&s.a, 9 + i, ldexp(1, -8 - 2 * (int)i)), ls_tensor_set(&s.b, 9 + i, ldexp(1, -8 - 2 * (int)i));
    ls_tensor_set(&s.a, 40, 0), ls_tensor_set(&s.b, 40, 0);
    ls_tensor_set(&s.a, 41, INFINITY), ls_tensor_set(&s.b, 41, INFINITY);
    const ls_result fast = compare(&s);
    const int64_t dim[] = {ROWS, WIDTH};
    const ls_tensor a = add_tensor(s.trace, "wide a", LS_F32, 2, dim), b = add_tensor(s.trace, "wide b", LS_F32, 2, dim);
    MUST(ls_tensor_copy(&a, &s.a, err));
    MUST(ls_tensor_copy(&b, &s.b, err));
    s.args.a = &a, s.args.b = &b;
    const ls_result slow = compare(&s);
    cr_assert(fast.bias.count == slow.bias.count && fast.bias.count == COUNT - 1);
    cr_assert(fast.bias.differing == slow.bias.differing && fast.bias.toward == slow.bias.toward && fast.bias.away == slow.bias.away);
    cr_assert(fabs(fast.bias.expected - slow.bias.expected) < 1e-4 * slow.bias.expected, "%g and %g", fast.bias.expected,
              slow.bias.expected);
    ls_trace_free(s.trace);
  }
}

/* Steps that are each too small to tell come to a verdict together, and the report has a finding for it. */
Test(bias, many_steps_together_fail_and_are_reported) {
  ls_report *report = NULL;
  MUST(ls_report_new(&report, err));
  ls_config config = {.layer = &ls_layer_dflash_context_kv, .act = LS_BF16};
  MUST(ls_report_file(report, "steps.h5", "", &config, err));
  sides s;
  open_sides(&s, LS_BF16, 1e-6);
  for (int64_t i = 0; i < COUNT; i++) ls_tensor_set(&s.b, i, cut(LS_BF16, ls_tensor_get(&s.exact, i), false));
  const ls_tensor a = s.a, b = s.b, bound = s.bound;
  for (int64_t row = 0; row < ROWS; row++) {
    const ls_tensor one_a = ls_tensor_slice(&a, 0, row, 1), one_b = ls_tensor_slice(&b, 0, row, 1),
                    one_bound = ls_tensor_slice(&bound, 0, row, 1);
    const ls_tensor half_a = ls_tensor_slice(&one_a, 1, 0, 32), half_b = ls_tensor_slice(&one_b, 1, 0, 32),
                    half = ls_tensor_slice(&one_bound, 1, 0, 32);
    s.args.a = &half_a, s.args.b = &half_b, s.args.bound = &half;
    const ls_result r = compare(&s);
    assert_verdict(r, LS_PASS);
    MUST(ls_report_stage(report, row, "k_proj", 0, "ref-emu", LS_ISOLATED, &r, err));
  }
  const ls_report_options options = {.program = "lockstep", .width = 120};
  cr_assert_eq(ls_report_status(report, &options), LS_DIVERGED);
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  MUST(ls_report_text(report, &options, out, err));
  fclose(out);
  assert_has(text, "biased");
  assert_has(text, "(truncated)");
  free(text);
  ls_trace_free(s.trace);
  ls_report_free(report);
}
