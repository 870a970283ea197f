#include "compare/compare_tally.h"
#include "compare_helpers.h"

static const ls_stage stage = {.name = "k_rope", .axes = "layer row channel", .steps = 1, .head_dim_field = 1};

typedef struct {
  ls_trace *trace;
  ls_tensor a, b, bound;
  ls_compare_args args;
} pair;

/* Two equal tensors [2, 4, 96] of bf16 (more than one block of 64, and a rest), one step allowed. */
static void setup(pair *p, ls_dtype type) {
  p->trace = new_trace("test");
  int64_t dim[] = {2, 4, 96};
  p->a = add_random(p->trace, "a", type, 3, dim, 2.0);
  p->b = add_copy(p->trace, "b", &p->a);
  p->bound = add_tensor(p->trace, "bound", LS_F32, 3, dim);
  p->args = (ls_compare_args){
      .stage = &stage, .type = type, .a = &p->a, .b = &p->b, .steps = 1, .names = {.base = 2176, .capacity = 2176, .head_dim = 32}};
}

static ls_result compare(const pair *p) {
  ls_result r;
  ls_compare_tensor(&r, &p->args);
  return r;
}

enum { AT = 96 * 6 + 70 }; /* layer 1 row 2 channel 70: head 2 channel 6 */

Test(compare_tensor, equal_tensors_pass_bit_for_bit) {
  for (int type = LS_BF16; type <= LS_F64; type++) {
    pair p;
    setup(&p, (ls_dtype)type);
    ls_result r = compare(&p);
    assert_verdict(r, LS_PASS);
    cr_assert(r.count == 768 && r.bit_equal == 768 && r.failing == 0 && r.use == 0 && r.steps == 0);
    cr_assert(r.rows == 8 && r.rows_failing == 0 && !r.has_worst);
    ls_trace_free(p.trace);
  }
}

Test(compare_tensor, nan_on_either_side_fails_and_is_named) {
  for (int type = LS_BF16; type <= LS_F64; type++) {
    for (int side = 0; side < 2; side++) {
      pair p;
      setup(&p, (ls_dtype)type);
      ls_tensor_set(side ? &p.b : &p.a, AT, NAN);
      ls_result r = compare(&p);
      assert_verdict(r, LS_FAIL);
      cr_assert(r.failing == 1 && r.rows_failing == 1 && r.has_worst && isinf(r.use) && r.steps == UINT64_MAX);
      cr_assert_str_eq(r.where, "layer 1 row 2 (position 2178, slot 2) head 2 channel 6");
      assert_has(r.note, "not finite");
      ls_trace_free(p.trace);
    }
  }
}

Test(compare_tensor, nan_never_passes_however_wide_the_bound) {
  pair p;
  setup(&p, LS_BF16);
  for (int64_t i = 0; i < 768; i++) ls_tensor_set(&p.bound, i, INFINITY);
  p.args.bound = &p.bound;
  ls_tensor_set(&p.b, AT, NAN);
  ls_result r = compare(&p);
  assert_verdict(r, LS_FAIL);
  p.args.has_tolerance = true, p.args.atol = INFINITY, p.args.rtol = INFINITY;
  r = compare(&p);
  assert_verdict(r, LS_FAIL);
  ls_trace_free(p.trace);
}

Test(compare_tensor, nan_on_both_sides_agrees_whatever_its_payload) {
  pair p;
  setup(&p, LS_BF16);
  ((uint16_t *)p.a.data)[AT] = 0x7FC1;
  ((uint16_t *)p.b.data)[AT] = 0xFFC7;
  ls_result r = compare(&p);
  assert_verdict(r, LS_PASS);
  cr_assert(r.nonfinite == 1 && r.bit_equal == 768);
  ((uint16_t *)p.b.data)[AT] = 0x7FC1; /* the same bits: the fast path counts it too */
  r = compare(&p);
  cr_assert(r.verdict == LS_PASS && r.nonfinite == 1);
  ls_trace_free(p.trace);
}

Test(compare_tensor, infinities_agree_only_with_their_like) {
  pair p;
  setup(&p, LS_F16);
  ls_tensor_set(&p.a, AT, INFINITY);
  ls_tensor_set(&p.b, AT, INFINITY);
  ls_result r = compare(&p);
  cr_assert(r.verdict == LS_PASS && r.nonfinite == 1);
  ls_tensor_set(&p.b, AT, -INFINITY);
  r = compare(&p);
  assert_verdict(r, LS_FAIL);
  ls_tensor_set(&p.b, AT, NAN);
  r = compare(&p);
  assert_verdict(r, LS_FAIL);
  ls_tensor_set(&p.b, AT, 65504); /* the largest finite value, one step before infinity */
  r = compare(&p);
  assert_verdict(r, LS_FAIL);
  ls_trace_free(p.trace);
}

Test(compare_tensor, a_finite_mismatch_never_outranks_a_non_finite_one) {
  pair p;
  setup(&p, LS_BF16);
  ls_tensor_set(&p.b, 3, 1e30);
  ls_tensor_set(&p.b, AT, NAN);
  ls_result r = compare(&p);
  cr_assert(r.failing == 2 && r.rows_failing == 2);
  cr_assert(r.worst_index[0] == 1 && r.worst_index[1] == 2 && r.worst_index[2] == 70);
  ls_trace_free(p.trace);
}

Test(compare_tensor, one_step_passes_at_exactly_the_bound_and_two_fail) {
  pair p;
  setup(&p, LS_BF16);
  ls_tensor_set(&p.a, AT, 1.0);
  ls_tensor_set(&p.b, AT, 1.0 + 0x1p-7);
  ls_result r = compare(&p);
  assert_verdict(r, LS_PASS);
  cr_assert(r.use == 1.0 && r.steps == 1 && r.bit_equal == 767 && r.has_worst && r.worst_bound == 0x1p-7);
  ls_tensor_set(&p.b, AT, 1.0 + 0x1p-6);
  r = compare(&p);
  assert_verdict(r, LS_FAIL);
  cr_assert(r.use == 2.0 && r.steps == 2 && r.failing == 1);
  cr_assert(r.worst_a == 1.0 && r.worst_b == 1.0 + 0x1p-6);
  cr_assert_str_eq(r.where, "layer 1 row 2 (position 2178, slot 2) head 2 channel 6");
  ls_trace_free(p.trace);
}

Test(compare_tensor, the_bound_tensor_is_added_element_by_element) {
  pair p;
  setup(&p, LS_BF16);
  ls_tensor_set(&p.a, AT, 1.0);
  ls_tensor_set(&p.b, AT, 1.0 + 3 * 0x1p-7);
  ls_tensor_set(&p.bound, AT, 2 * 0x1p-7);
  p.args.bound = &p.bound;
  ls_result r = compare(&p);
  assert_verdict(r, LS_PASS);
  cr_assert(r.use == 1.0);
  ls_tensor_set(&p.bound, AT, 1.99 * 0x1p-7); /* one element beyond */
  r = compare(&p);
  assert_verdict(r, LS_FAIL);
  ls_tensor_set(&p.bound, AT - 1, 1.0); /* the neighbour's bound does not help */
  r = compare(&p);
  assert_verdict(r, LS_FAIL);
  ls_trace_free(p.trace);
}

Test(compare_tensor, a_bound_that_is_not_finite_allows_nothing) {
  const double bad[] = {NAN, INFINITY, -1.0};
  for (int i = 0; i < 3; i++) {
    pair p;
    setup(&p, LS_BF16);
    p.args.bound = &p.bound;
    ls_tensor_set(&p.bound, AT, bad[i]);
    ls_result r = compare(&p);
    assert_verdict(r, LS_PASS); /* equal values need no bound */
    ls_tensor_set(&p.b, AT, ls_tensor_get(&p.a, AT) * (1 + 0x1p-7));
    r = compare(&p);
    assert_verdict(r, LS_FAIL);
    cr_assert(r.failing == 1 && isinf(r.use));
    ls_trace_free(p.trace);
  }
}

Test(compare_tensor, one_wrong_ulp_fails_where_equality_is_asked) {
  pair p;
  setup(&p, LS_BF16);
  p.args.steps = 0;
  ls_result r = compare(&p);
  assert_verdict(r, LS_PASS);
  ((uint16_t *)p.b.data)[AT] ^= 1;
  r = compare(&p);
  assert_verdict(r, LS_FAIL);
  cr_assert(r.failing == 1 && r.steps == 1 && isinf(r.use));
  ls_trace_free(p.trace);
}

Test(compare_tensor, minus_zero_equals_plus_zero) {
  pair p;
  setup(&p, LS_BF16);
  p.args.steps = 0;
  ((uint16_t *)p.a.data)[AT] = 0x8000;
  ((uint16_t *)p.b.data)[AT] = 0x0000;
  ls_result r = compare(&p);
  assert_verdict(r, LS_PASS);
  cr_assert(r.zeros == 1 && r.bit_equal == 768);
  ls_trace_free(p.trace);
}

Test(compare_tensor, swapped_rows_fail_in_both_rows) {
  pair p;
  setup(&p, LS_BF16);
  uint16_t *b = p.b.data, kept[96];
  memcpy(kept, b + 96, sizeof kept);
  memcpy(b + 96, b + 192, sizeof kept);
  memcpy(b + 192, kept, sizeof kept);
  ls_result r = compare(&p);
  assert_verdict(r, LS_FAIL);
  cr_assert(r.rows_failing == 2 && r.failing > 150);
  ls_trace_free(p.trace);
}

Test(compare_tensor, zeros_on_both_sides_prove_little) {
  pair p;
  setup(&p, LS_BF16);
  memset(p.a.data, 0, ls_tensor_bytes(&p.a));
  memset(p.b.data, 0, ls_tensor_bytes(&p.b));
  ls_result r = compare(&p);
  assert_verdict(r, LS_MISTRUSTED);
  cr_assert(r.zeros == 768);
  for (int i = 0; i < 8; i++) { /* 8 of 768 is more than 1% */
    ls_tensor_set(&p.a, i * 90, 1);
    ls_tensor_set(&p.b, i * 90, 1);
  }
  r = compare(&p);
  assert_verdict(r, LS_PASS);
  ls_tensor_set(&p.a, 0, 0);
  ls_tensor_set(&p.b, 0, 0); /* 7 is less */
  r = compare(&p);
  assert_verdict(r, LS_MISTRUSTED);
  ls_tensor_set(&p.b, 5, 1); /* a fault among zeros is a fault */
  r = compare(&p);
  assert_verdict(r, LS_FAIL);
  ls_trace_free(p.trace);
}

Test(compare_tensor, nothing_compared_is_mistrusted) {
  pair p;
  setup(&p, LS_BF16);
  p.a = ls_tensor_slice(&p.a, 1, 0, 0);
  p.b = ls_tensor_slice(&p.b, 1, 0, 0);
  ls_result r = compare(&p);
  assert_verdict(r, LS_MISTRUSTED);
  assert_has(r.note, "nothing was compared");
  ls_trace_free(p.trace);
}

Test(compare_tensor, shapes_that_differ_fail_and_are_named) {
  pair p;
  setup(&p, LS_BF16);
  p.b = ls_tensor_slice(&p.b, 1, 0, 3);
  ls_result r = compare(&p);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "[2, 4, 96]");
  assert_has(r.note, "[2, 3, 96]");
  p.args.b = NULL;
  r = compare(&p);
  assert_verdict(r, LS_MISSING);
  ls_trace_free(p.trace);
}

Test(compare_tensor, a_bound_of_another_shape_fails) {
  pair p;
  setup(&p, LS_BF16);
  p.bound = ls_tensor_slice(&p.bound, 0, 0, 1);
  p.args.bound = &p.bound;
  ls_result r = compare(&p);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "bound");
  ls_trace_free(p.trace);
}

Test(compare_tensor, tolerances_of_a_dataset_replace_the_bound) {
  pair p;
  setup(&p, LS_BF16);
  ls_tensor_set(&p.a, AT, 2.0);
  ls_tensor_set(&p.b, AT, 2.5);
  p.args.has_tolerance = true;
  p.args.atol = 0.25, p.args.rtol = 0.125;
  ls_result r = compare(&p);
  assert_verdict(r, LS_PASS);
  cr_assert(r.use == 1.0 && r.worst_bound == 0.5);
  p.args.atol = 0.2499;
  r = compare(&p);
  assert_verdict(r, LS_FAIL);
  p.args.atol = 0, p.args.rtol = 0; /* stricter than the stage's own step, too */
  ls_tensor_set(&p.b, AT, 2.0 + 0x1p-6);
  r = compare(&p);
  assert_verdict(r, LS_FAIL);
  p.args.atol = NAN;
  r = compare(&p);
  assert_verdict(r, LS_FAIL);
  ls_trace_free(p.trace);
}

Test(compare_tensor, a_wider_reference_is_rounded_to_the_stage_type_first) {
  pair p;
  setup(&p, LS_BF16);
  ls_tensor wide = add_tensor(p.trace, "wide", LS_F64, 3, p.a.dim);
  for (int64_t i = 0; i < 768; i++) ls_tensor_set(&wide, i, ls_tensor_get(&p.a, i) * (1 + 0x1p-10)); /* an eighth of a step or so off */
  p.args.a = &wide;
  p.args.steps = 0;
  ls_result r = compare(&p);
  assert_verdict(r, LS_PASS);
  cr_assert(r.bit_equal == 768);
  ls_trace_free(p.trace);
}

Test(compare_tensor, strided_views_compare_as_dense_ones) {
  ls_trace *trace = new_trace("test");
  ls_tensor wide = add_random(trace, "wide", LS_BF16, 3, (int64_t[]){2, 8, 96}, 1.0);
  ls_tensor view = ls_tensor_slice(&wide, 1, 3, 4);
  ls_tensor dense = add_copy(trace, "dense", &view);
  ls_compare_args args = {.stage = &stage, .type = LS_BF16, .a = &view, .b = &dense, .steps = 1, .names = {.head_dim = 32}};
  ls_result r;
  ls_compare_tensor(&r, &args);
  assert_verdict(r, LS_PASS);
  ls_tensor_set(&dense, AT, 77);
  ls_compare_tensor(&r, &args);
  assert_verdict(r, LS_FAIL);
  cr_assert_str_eq(r.where, "layer 1 row 2 head 2 channel 6");
  ls_tensor column_a = ls_tensor_slice(&view, 2, 0, 48), column_b = ls_tensor_slice(&dense, 2, 0, 48);
  args.a = &column_a, args.b = &column_b;
  ls_compare_tensor(&r, &args);
  assert_verdict(r, LS_PASS); /* the planted element lies outside this view */
  ls_trace_free(trace);
}

Test(compare_tensor, places_of_a_view_of_one_layer_name_that_layer) {
  pair p;
  setup(&p, LS_BF16);
  ls_tensor_set(&p.b, AT, 99);
  ls_tensor a = ls_tensor_at(&p.a, 1), b = ls_tensor_at(&p.b, 1);
  p.args.a = &a, p.args.b = &b, p.args.first_layer = 1;
  ls_result r = compare(&p);
  cr_assert_str_eq(r.where, "layer 1 row 2 (position 2178, slot 2) head 2 channel 6");
  ls_tensor sa = ls_tensor_slice(&p.a, 0, 1, 1), sb = ls_tensor_slice(&p.b, 0, 1, 1);
  p.args.a = &sa, p.args.b = &sb;
  r = compare(&p);
  cr_assert_str_eq(r.where, "layer 1 row 2 (position 2178, slot 2) head 2 channel 6");
  p.args.stage = NULL;
  r = compare(&p);
  cr_assert_str_eq(r.where, "[0, 2, 70]");
  ls_trace_free(p.trace);
}

Test(compare_tensor, the_result_does_not_depend_on_threads) {
  ls_trace *trace = new_trace("test");
  ls_tensor a = add_random(trace, "a", LS_BF16, 2, (int64_t[]){700, 512}, 1.0);
  ls_tensor b = add_copy(trace, "b", &a);
  for (int64_t i = 0; i < 700 * 512; i += 97) ((uint16_t *)b.data)[i] ^= 1;
  for (int64_t i = 5; i < 700 * 512; i += 50021) ((uint16_t *)b.data)[i] ^= 2;
  ls_stage rows = {.name = "x", .axes = "row channel", .steps = 1};
  ls_compare_args args = {.stage = &rows, .type = LS_BF16, .a = &a, .b = &b, .steps = 1};
  ls_result one, four;
  ls_threads_set(1);
  ls_compare_tensor(&one, &args);
  ls_threads_set(4);
  ls_compare_tensor(&four, &args);
  ls_threads_set(0);
  cr_assert(one.failing > 0 && memcmp(&one, &four, sizeof one) == 0);
  cr_assert(one.bit_equal == one.count - (700 * 512 + 96) / 97 - 8, "%lld", (long long)(one.count - one.bit_equal));
  ls_trace_free(trace);
}

/* The fast path against a plain loop over all pairs of bit patterns of a few kinds. */
Test(compare_tensor, counts_agree_with_a_plain_loop) {
  static const uint16_t pattern[] = {0x0000, 0x8000, 0x0001, 0x8001, 0x3F80, 0x3F81, 0xBF80, 0x7F7F, 0x7F80, 0xFF80, 0x7FC0, 0xFFC1};
  enum { N = sizeof pattern / sizeof *pattern, WIDTH = 64 * N * N };
  ls_trace *trace = new_trace("test");
  ls_tensor a = add_tensor(trace, "a", LS_BF16, 1, (int64_t[]){WIDTH}), b = add_tensor(trace, "b", LS_BF16, 1, (int64_t[]){WIDTH});
  int64_t zeros = 0, equal = 0, failing = 0, odd = 0;
  for (int64_t i = 0; i < WIDTH; i++) {
    uint16_t x = pattern[i / 7 % N], y = i % 64 == 0 || i / 64 % 2 ? pattern[i / (7 * N) % N] : x;
    ((uint16_t *)a.data)[i] = x;
    ((uint16_t *)b.data)[i] = y;
    float u = ls_bf16_to_f32(x), v = ls_bf16_to_f32(y);
    bool same = u == v || (u != u && v != v), finite = isfinite(u) && isfinite(v);
    zeros += u == 0 && v == 0;
    equal += same;
    odd += same && !finite;
    failing += !(same || (finite && fabs((double)u - (double)v) <= ls_step_at(LS_BF16, fmax(fabs((double)u), fabs((double)v)))));
  }
  ls_compare_args args = {.type = LS_BF16, .a = &a, .b = &b, .steps = 1};
  ls_result r;
  ls_compare_tensor(&r, &args);
  cr_assert(r.zeros == zeros && r.bit_equal == equal && r.failing == failing && r.nonfinite == odd && failing > 0 && odd > 0);
  ls_trace_free(trace);
}

/* ---- merging ---- */

static ls_result result_of(ls_verdict verdict, int64_t count, int64_t zeros, int64_t failing, double use) {
  ls_result r;
  ls_result_init(&r);
  r.verdict = verdict, r.count = count, r.zeros = zeros, r.failing = failing, r.use = use;
  return r;
}

Test(compare_merge, counts_add_and_the_largest_use_keeps_its_place) {
  ls_result sum, first = result_of(LS_PASS, 100, 1, 0, 0.5), second = result_of(LS_PASS, 50, 2, 0, 0.75);
  first.has_worst = second.has_worst = true;
  strcpy(first.where, "first");
  strcpy(second.where, "second");
  first.steps = 3, second.steps = 2;
  ls_result_init(&sum);
  ls_result_merge(&sum, &first);
  ls_result_merge(&sum, &second);
  ls_result_merge(&sum, &first);
  cr_assert(sum.verdict == LS_PASS && sum.count == 250 && sum.zeros == 4 && sum.use == 0.75 && sum.steps == 3);
  cr_assert_str_eq(sum.where, "second");
}

Test(compare_merge, mistrust_is_judged_on_the_sum) {
  ls_result sum = result_of(LS_MISTRUSTED, 100, 100, 0, 0), real = result_of(LS_PASS, 100, 0, 0, 0.1);
  ls_result_merge(&sum, &real);
  assert_verdict(sum, LS_PASS);
  ls_result many = result_of(LS_MISTRUSTED, 100000, 100000, 0, 0);
  ls_result_merge(&sum, &many);
  assert_verdict(sum, LS_MISTRUSTED);
}

Test(compare_merge, a_failure_and_a_missing_stage_stay) {
  ls_result sum = result_of(LS_PASS, 100, 0, 0, 0.1), fail = result_of(LS_FAIL, 0, 0, 0, 0), more = result_of(LS_PASS, 1000, 0, 0, 0);
  strcpy(fail.note, "shapes differ");
  ls_result_merge(&sum, &fail);
  ls_result_merge(&sum, &more);
  assert_verdict(sum, LS_FAIL);
  cr_assert_str_eq(sum.note, "shapes differ");
  ls_result missing = result_of(LS_MISSING, 0, 0, 0, 0);
  sum = result_of(LS_PASS, 100, 0, 0, 0.1);
  ls_result_merge(&sum, &missing);
  ls_result_merge(&sum, &more);
  assert_verdict(sum, LS_MISSING);
  ls_result_merge(&sum, &fail);
  assert_verdict(sum, LS_FAIL);
}

Test(compare_merge, shared_code_never_mixes_with_a_real_comparison) {
  ls_result shared = result_of(LS_SHARED, 500, 0, 0, 0), real = result_of(LS_PASS, 100, 0, 0, 0.1), sum = shared;
  ls_result_merge(&sum, &real);
  cr_assert(sum.verdict == LS_PASS && sum.count == 100);
  ls_result_merge(&sum, &shared);
  cr_assert(sum.verdict == LS_PASS && sum.count == 100);
  sum = shared;
  ls_result_merge(&sum, &shared);
  cr_assert(sum.verdict == LS_SHARED && sum.count == 1000);
}

Test(compare_merge, what_was_not_compared_yields) {
  ls_result sum, real = result_of(LS_PASS, 100, 0, 0, 0.1);
  const ls_verdict quiet[] = {LS_FUSED, LS_NOT_HELD, LS_NOT_RUN};
  for (int i = 0; i < 3; i++) {
    ls_result q = result_of(quiet[i], 0, 0, 0, 0);
    ls_result_init(&sum);
    ls_result_merge(&sum, &q);
    assert_verdict(sum, quiet[i]);
    ls_result_merge(&sum, &real);
    cr_assert(sum.verdict == LS_PASS && sum.count == 100);
    ls_result_merge(&sum, &q);
    cr_assert(sum.verdict == LS_PASS && sum.count == 100);
  }
}

Test(compare_merge, ties_add_up_and_the_note_says_how_many) {
  ls_result sum = result_of(LS_PASS, 100, 0, 0, 0), more = result_of(LS_PASS, 100, 0, 0, 0.5);
  ls_result_merge(&sum, &more);
  cr_assert_str_eq(sum.note, "");
  more.ties = 1, more.near_ties = 2;
  strcpy(more.note, "1 tie, 2 near ties");
  ls_result_merge(&sum, &more);
  ls_result_merge(&sum, &more);
  cr_assert(sum.verdict == LS_PASS && sum.ties == 2 && sum.near_ties == 4);
  cr_assert_str_eq(sum.note, "2 ties, 4 near ties");
  ls_result fail = result_of(LS_FAIL, 100, 0, 1, 9);
  strcpy(fail.note, "query 3 entry 5: a duplicate");
  ls_result_merge(&sum, &fail);
  ls_result_merge(&sum, &more);
  cr_assert(sum.verdict == LS_FAIL && sum.ties == 3);
  cr_assert_str_eq(sum.note, "query 3 entry 5: a duplicate");
}

/* ---- attn_v41: states in float32, grids, scores of a masked index source ---- */

Test(compare_tensor, float32_stages_without_steps_are_judged_by_their_bound) {
  pair p;
  setup(&p, LS_F32);
  p.args.steps = 0;
  p.args.bound = &p.bound;
  ls_tensor_set(&p.a, AT, 1.0);
  ls_tensor_set(&p.b, AT, 1.0 + 0x1p-23);
  ls_result r = compare(&p);
  assert_verdict(r, LS_FAIL);
  cr_assert(r.failing == 1 && r.steps == 1);
  ls_tensor_set(&p.bound, AT, 0x1p-23);
  r = compare(&p);
  assert_verdict(r, LS_PASS);
  cr_assert(r.use == 1 && r.bit_equal == 767);
  ls_tensor_set(&p.b, AT, 1.0 + 0x1p-22);
  r = compare(&p);
  assert_verdict(r, LS_FAIL);
  ls_trace_free(p.trace);
}

Test(compare_tensor, another_code_of_a_grid_passes_only_where_the_bound_reaches_it) {
  pair p;
  setup(&p, LS_BF16);
  p.args.steps = 0;
  p.args.bound = &p.bound;
  ls_tensor_set(&p.a, AT, 3.0);
  ls_tensor_set(&p.b, AT, 4.0); /* the next code of fp4 */
  assert_verdict(compare(&p), LS_FAIL);
  ls_tensor_set(&p.bound, AT, 1.0);
  assert_verdict(compare(&p), LS_PASS);
  ls_tensor_set(&p.b, AT, 6.0); /* the one after */
  assert_verdict(compare(&p), LS_FAIL);
  ls_trace_free(p.trace);
}

Test(compare_tensor, places_of_minus_infinity_are_compared_as_sets) {
  pair p;
  setup(&p, LS_F32);
  p.args.steps = 0;
  p.args.bound = &p.bound;
  for (int64_t i = 0; i < 768; i++) ls_tensor_set(&p.bound, i, 1e30);
  for (int64_t i = 96; i < 192; i++) ls_tensor_set(&p.a, i, -INFINITY), ls_tensor_set(&p.b, i, -INFINITY);
  ls_result r = compare(&p);
  assert_verdict(r, LS_PASS);
  cr_assert(r.nonfinite == 96 && r.bit_equal == 768);
  ls_tensor_set(&p.b, 100, -3e38); /* finite on one side, whatever the bound */
  r = compare(&p);
  assert_verdict(r, LS_FAIL);
  cr_assert(r.failing == 1 && r.nonfinite == 95);
  assert_has(r.note, "not finite on one side only");
  ls_trace_free(p.trace);
}

Test(compare_tensor, only_the_elements_that_are_defined_are_compared) {
  pair p;
  setup(&p, LS_BF16);
  ls_tensor only = add_tensor(p.trace, "only", LS_U8, 3, p.a.dim);
  for (int64_t i = 0; i < 768; i++) ls_tensor_set(&only, i, i < 96 * 7 && i % 3 == 0); /* the last row has none */
  p.args.only = &only;
  ls_tensor_set(&p.b, 1, NAN); /* not defined */
  ls_tensor_set(&p.b, 700, 1e9);
  ls_result r = compare(&p);
  assert_verdict(r, LS_PASS);
  cr_assert(r.count == 224 && r.bit_equal == 224 && r.rows == 7 && r.failing == 0);
  ls_tensor_set(&p.b, 96 * 6 + 69, 1e9); /* defined */
  r = compare(&p);
  assert_verdict(r, LS_FAIL);
  cr_assert(r.failing == 1 && r.rows_failing == 1 && r.worst_index[2] == 69);
  ls_tensor_set(&only, 96 * 6 + 69, 0);
  assert_verdict(compare(&p), LS_PASS);
  memset(only.data, 0, 768);
  r = compare(&p);
  assert_verdict(r, LS_MISTRUSTED);
  assert_has(r.note, "nothing was compared");
  p.args.only = &p.bound;
  r = compare(&p);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "not u8");
  only = ls_tensor_slice(&only, 0, 0, 1);
  p.args.only = &only;
  r = compare(&p);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "of the mask");
  ls_trace_free(p.trace);
}

static const char *place_of(const char *axes, const int64_t *index, const ls_place_names *names, bool heads) {
  static char buf[LS_MAX_WHERE];
  ls_place_text_args args = {.axes = axes, .ndim = 2, .index = index, .names = names, .heads = heads, .slot_position = -1};
  ls_place_text(buf, sizeof buf, &args);
  return buf;
}

Test(compare_tensor, places_are_named_by_position) {
  const int64_t at[] = {3, 70};
  ls_place_names window = {.capacity = 128, .newest = 2180}; /* slot 4 */
  cr_assert_str_eq(place_of("slot channel", at, &window, false), "slot 3 (position 2179) channel 70");
  window.newest = 2178; /* slot 2: slot 3 holds the oldest */
  cr_assert_str_eq(place_of("slot channel", at, &window, false), "slot 3 (position 2051) channel 70");
  window.newest = 2179;
  cr_assert_str_eq(place_of("slot channel", at, &window, false), "slot 3 (position 2179) channel 70");
  window.newest = 2; /* still filling: nothing lives there */
  cr_assert_str_eq(place_of("slot channel", at, &window, false), "slot 3 channel 70");
  window.newest = -1;
  cr_assert_str_eq(place_of("slot channel", at, &window, false), "slot 3 channel 70");
  ls_place_names latent = {.base = 2042, .stride = 2, .newest = -1};
  cr_assert_str_eq(place_of("latent channel", at, &latent, false), "latent 3 (position 2048) channel 70");
  ls_place_names start = {.stride = 2, .newest = -1};
  cr_assert_str_eq(place_of("latent channel", at, &start, false), "latent 3 (position 6) channel 70");
  ls_place_names rows = {.base = 2048, .newest = -1, .head_dim = 32};
  cr_assert_str_eq(place_of("row channel", at, &rows, true), "row 3 (position 2051) head 2 channel 6");
  cr_assert_str_eq(place_of("row entry", at, &rows, false), "row 3 (position 2051) entry 70");
  cr_assert_str_eq(place_of("row head", at, &rows, false), "row 3 (position 2051) head 70");
  cr_assert_str_eq(place_of("row position", at, &rows, false), "row 3 (position 2051) position 70");
  cr_assert_str_eq(place_of("row entry", at, NULL, false), "row 3 entry 70");
}
