#include "selection_helpers.h"

enum { M = 4, N = 12, K = 4, OFFSET = 16, START = 20 };

/* Queries at positions 20 .. 23, ratio 2: 10, 11, 11, 12 rows visible. Scores are a different order of 1 .. 12 for every query. */
typedef struct {
  ls_trace *trace;
  ls_tensor idx, score, bound, mask;
  ls_selection s;
  ls_select_rule rule;
} rig;

static void set_score(rig *g, int64_t t, int64_t i, double v) { ls_tensor_set(&g->score, t * N + i, v); }

static void setup(rig *g) {
  memset(g, 0, sizeof *g);
  g->trace = new_trace("test");
  g->idx = add_tensor(g->trace, "idx", LS_I32, 2, (int64_t[]){M, K});
  g->score = add_tensor(g->trace, "score", LS_BF16, 2, (int64_t[]){M, N});
  g->bound = add_tensor(g->trace, "bound", LS_F32, 2, (int64_t[]){M, N});
  g->mask = add_tensor(g->trace, "mask", LS_U8, 2, (int64_t[]){M, N});
  memset(g->mask.data, 1, M * N);
  for (int64_t t = 0; t < M; t++) {
    for (int64_t i = 0; i < N; i++) ls_tensor_set(&g->score, t * N + i, (double)(1 + (7 * i + 5 * t) % 12));
  }
  set_score(g, 1, 2, 11);
  g->rule = (ls_select_rule){.m = M, .n = N, .k = K, .offset = OFFSET, .start_pos = START, .ratio = 2, .lower_wins = true};
  g->s = (ls_selection){.idx = &g->idx, .score = &g->score};
  choose(&g->idx, &g->score, &g->rule);
}

static ls_result judge(const rig *g) {
  ls_result r;
  ls_compare_selection(&r, &g->s, &g->rule);
  return r;
}

static int32_t *entry(rig *g, int64_t t, int64_t e) { return (int32_t *)g->idx.data + t * K + e; }

/* Sets the entries of query 1. */
static void set_query(rig *g, int a, int b, int c, int d) {
  const int v[K] = {a, b, c, d};
  for (int e = 0; e < K; e++) *entry(g, 1, e) = v[e] < 0 ? v[e] : OFFSET + v[e];
}

static ls_result must_fail(const rig *g, int64_t failing, const char *note, const char *where) {
  ls_result r = judge(g);
  assert_verdict(r, LS_FAIL);
  cr_assert_eq(r.failing, failing, "%lld failing: %s", (long long)r.failing, r.note);
  cr_assert(r.use > 1 && r.rows == M && r.rows_failing == 1 && r.count == M * K && r.bit_equal == r.count - failing && r.has_worst);
  assert_has(r.note, note);
  cr_assert_str_eq(r.where, where);
  return r;
}

static void teardown(rig *g) { ls_trace_free(g->trace); }

/* Query 1 has the scores 6 1 11 3 10 5 12 7 2 9 4 (11 is in the future): the best four are 2 4 6 9, the last of them 9. */
Test(compare_index, a_right_selection_passes) {
  rig g;
  setup(&g);
  cr_assert(*entry(&g, 1, 0) == 18 && *entry(&g, 1, 1) == 20 && *entry(&g, 1, 2) == 22 && *entry(&g, 1, 3) == 25);
  ls_result r = judge(&g);
  assert_verdict(r, LS_PASS);
  cr_assert(r.count == M * K && r.bit_equal == M * K && r.failing == 0 && r.rows == M && r.rows_failing == 0 && r.use == 0);
  cr_assert_str_eq(r.note, "");
  teardown(&g);
}

Test(compare_index, an_entry_out_of_range_is_named) {
  rig g;
  setup(&g);
  set_query(&g, 2, 4, 6, 12);
  must_fail(&g, 1, "query 1 (position 21) entry 3: 28 is out of range (-1, or 16 to 27)", "row 1 (position 21) entry 3");
  *entry(&g, 1, 3) = -2;
  must_fail(&g, 1, "entry 3: -2 is out of range", "row 1 (position 21) entry 3");
  set_query(&g, 2, 4, 6, 9);
  *entry(&g, 1, 0) = OFFSET - 1; /* a row of the first set */
  must_fail(&g, 1, "entry 0: 15 is out of range", "row 1 (position 21) entry 0");
  *entry(&g, 1, 0) = INT32_MIN;
  must_fail(&g, 1, "out of range", "row 1 (position 21) entry 0");
  teardown(&g);
}

Test(compare_index, an_entry_from_the_future_is_named) {
  rig g;
  setup(&g);
  set_query(&g, 2, 4, 6, 11);
  ls_result r = must_fail(&g, 1, "query 1 (position 21) entry 3: position 11 is in the future (11 visible)", "row 1 (position 21) entry 3");
  cr_assert(r.worst_a == OFFSET + 9 && r.worst_b == OFFSET + 11);
  set_query(&g, 2, 4, 6, 9);
  set_score(&g, 1, 10, 50); /* the newest visible one may be chosen */
  choose(&g.idx, &g.score, &g.rule);
  cr_assert_eq(*entry(&g, 1, 3), OFFSET + 10);
  assert_verdict(judge(&g), LS_PASS);
  teardown(&g);
}

Test(compare_index, a_duplicate_is_named) {
  rig g;
  setup(&g);
  set_query(&g, 2, 4, 4, 9);
  must_fail(&g, 1, "entry 2: position 4 is a duplicate of entry 1", "row 1 (position 21) entry 2");
  teardown(&g);
}

Test(compare_index, an_empty_entry_before_a_valid_one_is_named) {
  rig g;
  setup(&g);
  set_query(&g, 2, -1, 6, 9);
  must_fail(&g, 1, "entry 1: -1 before a valid entry", "row 1 (position 21) entry 1");
  for (int64_t i = 3; i < N; i++) set_score(&g, 1, i, -INFINITY);
  choose(&g.idx, &g.score, &g.rule); /* three may be chosen */
  assert_verdict(judge(&g), LS_PASS);
  set_query(&g, -1, 0, 1, 2);
  must_fail(&g, 1, "entry 0: -1 before a valid entry", "row 1 (position 21) entry 0");
  teardown(&g);
}

Test(compare_index, entries_that_do_not_ascend_are_named) {
  rig g;
  setup(&g);
  set_query(&g, 2, 6, 4, 9);
  must_fail(&g, 1, "entry 2: position 4 is not ascending: it follows 6", "row 1 (position 21) entry 2");
  set_query(&g, 9, 2, 4, 6); /* by score instead of by position */
  must_fail(&g, 1, "entry 1: position 2 is not ascending: it follows 9", "row 1 (position 21) entry 1");
  teardown(&g);
}

Test(compare_index, a_missing_entry_is_named) {
  rig g;
  setup(&g);
  set_query(&g, 2, 4, 6, -1);
  ls_result r = must_fail(&g, 1, "entry 3: is -1, but position 9 (score 9) is missing: 3 chosen, 4 places", "row 1 (position 21) entry 3");
  cr_assert(r.worst_a == OFFSET + 9 && r.worst_b == -1);
  set_query(&g, -1, -1, -1, -1);
  must_fail(&g, 4, "entry 0: is -1, but position 6 (score 12) is missing", "row 1 (position 21) entry 0");
  for (int64_t i = 0; i < N; i++) set_score(&g, 1, i, -INFINITY); /* nothing may be chosen */
  assert_verdict(judge(&g), LS_PASS);
  teardown(&g);
}

Test(compare_index, an_inferior_entry_is_named_with_what_it_displaced) {
  rig g;
  setup(&g);
  set_query(&g, 2, 4, 6, 7);
  ls_result r =
      must_fail(&g, 1, "entry 3: position 7 (score 7) is inferior by 2 to position 9 (score 9), left out", "row 1 (position 21) entry 3");
  cr_assert(r.worst_a == 9 && r.worst_b == 7);
  set_query(&g, 0, 2, 4, 9); /* the best one left out */
  must_fail(&g, 1, "entry 0: position 0 (score 6) is inferior by 6 to position 6 (score 12)", "row 1 (position 21) entry 0");
  set_query(&g, 1, 3, 5, 8); /* the worst four */
  must_fail(&g, 4, "entry 0: position 1 (score 1) is inferior by 11", "row 1 (position 21) entry 0");
  ls_tensor_set(&g.bound, N + 9, 100); /* by its own scores a choice is exact */
  ls_tensor_set(&g.bound, N + 7, 100);
  g.s.bound = &g.bound;
  set_query(&g, 2, 4, 6, 7);
  must_fail(&g, 1, "inferior by 2", "row 1 (position 21) entry 3");
  teardown(&g);
}

Test(compare_index, scores_of_minus_infinity_may_not_be_chosen) {
  rig g;
  setup(&g);
  for (int64_t i = 3; i < N; i++) set_score(&g, 1, i, -INFINITY);
  set_query(&g, 0, 1, 2, 5);
  must_fail(&g, 1, "entry 3: position 5 has a score of -inf", "row 1 (position 21) entry 3");
  set_query(&g, 0, 1, 2, -1);
  assert_verdict(judge(&g), LS_PASS);
  set_score(&g, 1, 5, -3e38); /* finite, however low: it belongs there */
  must_fail(&g, 1, "position 5 (score -3.00", "row 1 (position 21) entry 3");
  teardown(&g);
}

Test(compare_index, what_lies_outside_the_candidates_is_named) {
  rig g;
  setup(&g);
  g.rule.mask = &g.mask;
  assert_verdict(judge(&g), LS_PASS);
  ls_tensor_set(&g.mask, N + 6, 0);
  must_fail(&g, 1, "entry 2: position 6 is outside the candidates", "row 1 (position 21) entry 2");
  choose(&g.idx, &g.score, &g.rule);
  ls_result r = judge(&g);
  assert_verdict(r, LS_PASS);
  cr_assert_eq(*entry(&g, 1, 2), OFFSET + 7); /* the next best took its place */
  for (int64_t i = 0; i < N; i++) ls_tensor_set(&g.mask, N + i, i == 1 || i == 3);
  choose(&g.idx, &g.score, &g.rule); /* fewer than k candidates: -1 */
  cr_assert(*entry(&g, 1, 1) == OFFSET + 3 && *entry(&g, 1, 2) == -1);
  assert_verdict(judge(&g), LS_PASS);
  set_query(&g, 1, 3, 6, -1); /* the published code's arbitrary masked row */
  must_fail(&g, 1, "entry 2: position 6 is outside the candidates", "row 1 (position 21) entry 2");
  teardown(&g);
}

Test(compare_index, the_lower_position_must_win_a_tie_on_our_paths) {
  rig g;
  setup(&g);
  set_score(&g, 1, 7, 9); /* ties with 9 for the last place */
  ls_result r = must_fail(&g, 1, "entry 3: position 9 is the wrong winner of a tie at score 9: position 7 is lower and left out",
                          "row 1 (position 21) entry 3");
  cr_assert(r.worst_a == 9 && r.worst_b == 9);
  g.rule.lower_wins = false; /* foreign values: any choice among equals, */
  r = judge(&g);
  assert_verdict(r, LS_PASS);
  cr_assert_str_eq(r.note, "1 tie");
  set_query(&g, 0, 2, 4, 6); /* nothing else */
  must_fail(&g, 1, "entry 0: position 0 (score 6) is inferior by 3 to position 7", "row 1 (position 21) entry 0");
  g.rule.lower_wins = true;
  set_query(&g, 2, 4, 6, 7);
  r = judge(&g);
  assert_verdict(r, LS_PASS);
  cr_assert_str_eq(r.note, "1 tie");
  teardown(&g);
}

Test(compare_index, an_equal_one_in_place_of_a_better_one_is_inferior) {
  rig g;
  setup(&g);
  set_score(&g, 1, 2, 8);
  set_score(&g, 1, 7, 9);
  for (int lower = 0; lower < 2; lower++) {
    g.rule.lower_wins = lower;
    set_query(&g, 4, 6, 7, 9); /* both of the tie, and 2 (score 8) is right out; 10 and 12 are in */
    ls_result r = judge(&g);
    assert_verdict(r, LS_PASS);
    set_score(&g, 1, 0, 11); /* now 0 4 6 and one of 7, 9 */
    must_fail(&g, 1, "position 9 (score 9) is inferior by 2 to position 0 (score 11), left out", "row 1 (position 21) entry 3");
    set_score(&g, 1, 0, 6);
  }
  teardown(&g);
}

Test(compare_index, zeros_of_either_sign_tie_and_nan_ranks_first) {
  rig g;
  setup(&g);
  for (int64_t i = 0; i < N; i++) set_score(&g, 1, i, i % 2 ? -0.0 : 0.0);
  set_query(&g, 0, 1, 2, 3);
  ls_result r = judge(&g);
  assert_verdict(r, LS_PASS);
  cr_assert_str_eq(r.note, "4 ties");
  set_query(&g, 0, 2, 4, 6); /* taking -0 for less than +0 */
  must_fail(&g, 2, "entry 2: position 4 is the wrong winner of a tie at score 0: position 1", "row 1 (position 21) entry 2");
  set_score(&g, 1, 8, NAN);
  set_query(&g, 0, 1, 2, 3);
  must_fail(&g, 1, "entry 3: position 3 (score 0) is inferior by nan to position 8 (score nan)", "row 1 (position 21) entry 3");
  set_query(&g, 0, 1, 2, 8);
  assert_verdict(judge(&g), LS_PASS);
  set_score(&g, 1, 9, INFINITY); /* ranks after NaN */
  for (int64_t i = 4; i < 8; i++) set_score(&g, 1, i, NAN);
  set_query(&g, 4, 5, 6, 7); /* the lower of five NaN */
  assert_verdict(judge(&g), LS_PASS);
  set_query(&g, 4, 5, 6, 9);
  must_fail(&g, 1, "entry 3: position 9 (score inf) is inferior by nan to position 7 (score nan)", "row 1 (position 21) entry 3");
  teardown(&g);
}

Test(compare_index, a_wrong_offset_base_is_named) {
  rig g;
  setup(&g);
  for (int64_t i = 0; i < M * K; i++) ((int32_t *)g.idx.data)[i] += 112; /* the window instead of m */
  ls_result r = judge(&g);
  assert_verdict(r, LS_FAIL);
  cr_assert(r.failing == M * K && r.rows_failing == M && r.bit_equal == 0);
  assert_has(r.note, "wrong offset base: all entries are off by 112, as if 128 were added, not 16");
  for (int64_t i = 0; i < M * K; i++) ((int32_t *)g.idx.data)[i] -= 128; /* not added at all */
  r = judge(&g);
  cr_assert(r.failing == M * K);
  assert_has(r.note, "wrong offset base: all entries are off by -16, as if 0 were added, not 16");
  for (int64_t i = 0; i < M * K; i++) ((int32_t *)g.idx.data)[i] += 17; /* in range for the most part */
  r = judge(&g);
  cr_assert(r.failing == M * K);
  assert_has(r.note, "off by 1, as if 17");
  *entry(&g, 3, 1) -= 1; /* one is right: it is not the base */
  r = judge(&g);
  assert_verdict(r, LS_FAIL);
  assert_lacks(r.note, "offset base");
  teardown(&g);
}

Test(compare_index, faults_of_several_queries_are_counted_and_the_first_is_named) {
  rig g;
  setup(&g);
  *entry(&g, 2, 3) = 40;
  *entry(&g, 3, 0) = 41;
  *entry(&g, 3, 1) = 41;
  ls_result r = judge(&g);
  assert_verdict(r, LS_FAIL);
  cr_assert(r.failing == 3 && r.rows_failing == 2 && r.worst_index[0] == 2 && r.worst_index[1] == 3);
  assert_has(r.note, "query 2 (position 22) entry 3: 40 is out of range");
  assert_has(r.note, "; 3 entries are wrong");
  teardown(&g);
}

Test(compare_index, nothing_chosen_proves_nothing) {
  rig g;
  setup(&g);
  g.rule.start_pos = 0, g.rule.ratio = 8; /* nothing is visible */
  memset(g.idx.data, 0xFF, M * K * 4);
  ls_result r = judge(&g);
  assert_verdict(r, LS_MISTRUSTED);
  assert_has(r.note, "no entry was chosen");
  ls_tensor idx = ls_tensor_slice(&g.idx, 1, 0, 0), score = ls_tensor_slice(&g.score, 1, 0, 0);
  g.s = (ls_selection){.idx = &idx, .score = &score};
  g.rule.n = g.rule.k = 0;
  r = judge(&g);
  assert_verdict(r, LS_MISTRUSTED);
  assert_has(r.note, "nothing was compared");
  teardown(&g);
}

Test(compare_index, tensors_that_do_not_fit_fail_and_are_named) {
  rig g;
  setup(&g);
  g.rule.k = 5;
  ls_result r = judge(&g);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "the selection: expected [4, 5], found [4, 4] of i32");
  g.rule.k = K, g.s.idx = &g.score;
  g.rule.k = N;
  r = judge(&g);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "of bf16");
  g.s.idx = NULL;
  assert_verdict(judge(&g), LS_MISSING);
  teardown(&g);
}

/* ---- two selections ---- */

typedef struct {
  rig a, b;
} two;

static void setup_two(two *g) {
  setup(&g->a);
  setup(&g->b);
  g->a.s.bound = &g->a.bound;
  g->b.s.bound = &g->a.bound;
  for (int64_t i = 0; i < M * N; i++) ls_tensor_set(&g->a.bound, i, 0.25);
}

static void teardown_two(two *g) {
  teardown(&g->a);
  teardown(&g->b);
}

static ls_result judge_two(const two *g) {
  ls_result r;
  ls_compare_selections(&r, &g->a.s, &g->b.s, &g->a.rule);
  return r;
}

Test(compare_selections, equal_selections_pass) {
  two g;
  setup_two(&g);
  ls_result r = judge_two(&g);
  assert_verdict(r, LS_PASS);
  cr_assert(r.count == M * K && r.bit_equal == M * K && r.use == 0 && !r.has_worst);
  teardown_two(&g);
}

/* Position 7 of query 1 gets close to the k-th, position 9 (score 9). */
Test(compare_selections, a_near_tie_passes_and_is_counted) {
  two g;
  setup_two(&g);
  set_score(&g.a, 1, 7, 8.875);
  set_score(&g.b, 1, 7, 9.25);
  choose(&g.b.idx, &g.b.score, &g.b.rule);
  cr_assert_eq(*entry(&g.b, 1, 3), OFFSET + 7);
  ls_result r = judge_two(&g);
  assert_verdict(r, LS_PASS);
  cr_assert(r.failing == 0 && r.bit_equal == M * K - 1 && r.has_worst);
  cr_assert(r.use == 0.5, "%g", r.use); /* 9.25 against 9, of 0.25 + 0.25 */
  cr_assert_str_eq(r.note, "1 near tie");
  cr_assert(r.near_ties == 1 && r.ties == 0);
  cr_assert_str_eq(r.where, "row 1 (position 21) entry 3");
  set_score(&g.a, 1, 7, 8.5); /* exactly the sum of both bounds */
  r = judge_two(&g);
  assert_verdict(r, LS_PASS);
  cr_assert(r.use == 1);
  set_score(&g.a, 1, 7, 8.4375); /* one step beyond */
  r = judge_two(&g);
  assert_verdict(r, LS_FAIL);
  cr_assert(r.failing == 1 && r.use > 1 && r.rows_failing == 1);
  assert_has(r.note,
             "query 1 (position 21) entry 3: position 7 is chosen by this side only; by the scores of the first side it is "
             "inferior by 0.5625 to position 9, the k-th (8.4375 against 9, 0.5 allowed)");
  teardown_two(&g);
}

Test(compare_selections, both_sides_must_call_it_near) {
  two g;
  setup_two(&g);
  set_score(&g.a, 1, 7, 8.875);
  set_score(&g.b, 1, 7, 20); /* near by the scores of a, far by those of b */
  choose(&g.b.idx, &g.b.score, &g.b.rule);
  ls_result r = judge_two(&g);
  assert_verdict(r, LS_FAIL); /* 9 lies 1 below b's k-th, position 4 (score 10) */
  cr_assert_eq(r.failing, 1);
  assert_has(r.note, "second side");
  teardown_two(&g);
}

Test(compare_selections, without_bounds_only_ties_may_differ) {
  two g;
  setup_two(&g);
  g.a.s.bound = g.b.s.bound = NULL;
  set_score(&g.a, 1, 7, 9);
  set_score(&g.b, 1, 7, 9);
  choose(&g.a.idx, &g.a.score, &g.a.rule); /* 7; b keeps 9 */
  ls_result r = judge_two(&g);
  assert_verdict(r, LS_PASS);
  cr_assert_str_eq(r.note, "1 tie");
  cr_assert_eq(r.bit_equal, M * K - 1);
  set_score(&g.b, 1, 7, 8.9375);
  r = judge_two(&g);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "of the first side: position 7 is chosen by this side only");
  assert_has(r.note, "0 allowed");
  g.b.s.bound = &g.a.bound; /* the bound of one side will do */
  assert_verdict(judge_two(&g), LS_PASS);
  teardown_two(&g);
}

Test(compare_selections, a_bound_that_is_not_finite_allows_nothing) {
  const double bad[] = {NAN, INFINITY, -1};
  for (int i = 0; i < 3; i++) {
    two g;
    setup_two(&g);
    set_score(&g.a, 1, 7, 8.875);
    set_score(&g.b, 1, 7, 9.125);
    choose(&g.b.idx, &g.b.score, &g.b.rule);
    assert_verdict(judge_two(&g), LS_PASS);
    ls_tensor_set(&g.a.bound, N + 7, bad[i]);
    if (bad[i] < 0) ls_tensor_set(&g.a.bound, N + 9, 0);
    assert_verdict(judge_two(&g), LS_FAIL);
    teardown_two(&g);
  }
}

/* The k-th of a is 9, with a small bound; what it was swapped against has a large one. Both selections are right by their own scores,
 * and all scores lie within their bounds: a legal flip must not be called a fault. */
Test(compare_selections, the_bound_of_what_was_swapped_in_counts_where_the_kth_has_a_smaller_one) {
  two g;
  setup_two(&g);
  for (int64_t i = 0; i < N; i++) ls_tensor_set(&g.a.bound, N + i, 0.0625);
  ls_tensor_set(&g.a.bound, N + 7, 4);
  ls_tensor_set(&g.a.bound, N + 0, 4);
  set_score(&g.a, 1, 7, 8.5), set_score(&g.b, 1, 7, 12); /* 7 and 0 rise over 4 (10) and 9 (9) */
  set_score(&g.a, 1, 0, 8.5), set_score(&g.b, 1, 0, 12);
  set_score(&g.a, 1, 2, 11), set_score(&g.b, 1, 2, 11);
  choose(&g.a.idx, &g.a.score, &g.a.rule);
  choose(&g.b.idx, &g.b.score, &g.b.rule);
  ls_result r = judge_two(&g);
  assert_verdict(r, LS_PASS);
  cr_assert_str_eq(r.note, "2 near ties");
  ls_tensor_set(&g.a.bound, N + 0, 0.0625); /* one of the two may not */
  ls_tensor_set(&g.a.bound, N + 7, 0.0625);
  r = judge_two(&g);
  assert_verdict(r, LS_FAIL);
  cr_assert_eq(r.failing, 2);
  teardown_two(&g);
}

Test(compare_selections, nan_scores_tie_with_each_other_only) {
  two g;
  setup_two(&g);
  for (int64_t i = 0; i < 6; i++) set_score(&g.a, 1, i, NAN), set_score(&g.b, 1, i, NAN);
  set_query(&g.a, 0, 1, 2, 3);
  set_query(&g.b, 0, 1, 2, 5);
  ls_result r = judge_two(&g);
  assert_verdict(r, LS_PASS);
  cr_assert_str_eq(r.note, "1 tie");
  set_query(&g.b, 0, 1, 2, 6);
  assert_verdict(judge_two(&g), LS_FAIL);
  teardown_two(&g);
}

Test(compare_selections, the_form_of_either_side_is_judged) {
  two g;
  setup_two(&g);
  set_query(&g.b, 2, 4, 4, 9);
  ls_result r = judge_two(&g);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "query 1 (position 21) entry 2: position 4 is a duplicate of entry 1");
  set_query(&g.b, 2, 4, 6, 9);
  set_query(&g.a, 2, 4, 6, -1);
  r = judge_two(&g);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "query 1 (position 21) entry 3 of the first side: is -1, but position 9");
  set_query(&g.a, 2, 4, 6, 9);
  for (int64_t i = 0; i < M * K; i++) ((int32_t *)g.b.idx.data)[i] += 112;
  r = judge_two(&g);
  assert_has(r.note, "wrong offset base: all entries are off by 112");
  cr_assert_eq(r.failing, M * K);
  teardown_two(&g);
}

Test(compare_selections, a_selection_that_is_not_full_must_be_the_same_set) {
  two g;
  setup_two(&g);
  for (int64_t i = 3; i < N; i++) set_score(&g.a, 1, i, -INFINITY), set_score(&g.b, 1, i, -INFINITY);
  choose(&g.a.idx, &g.a.score, &g.a.rule);
  choose(&g.b.idx, &g.b.score, &g.b.rule);
  ls_result r = judge_two(&g);
  assert_verdict(r, LS_PASS);
  cr_assert_eq(r.bit_equal, M * K); /* -1 on both sides */
  set_score(&g.b, 1, 2, -INFINITY);
  choose(&g.b.idx, &g.b.score, &g.b.rule); /* right by its own scores, and yet another set */
  r = judge_two(&g);
  assert_verdict(r, LS_FAIL);
  cr_assert_eq(r.failing, 1);
  assert_has(r.note,
             "entry 2 of the first side: position 2 is chosen by this side only, and by the scores of the second side it may not be");
  teardown_two(&g);
}

/* Scores of one path that lie within their bounds of the other's, ties and NaN among them, and each side's own best: never a fault. And
 * one inferior entry planted in them always is. */
Test(compare_selections, legal_flips_always_pass_and_planted_faults_never) {
  enum { ROUNDS = 300, WIDE = 40 };
  ls_random random = {.seed = 1};
  int64_t near = 0, planted = 0;
  for (int round = 0; round < ROUNDS; round++) {
    ls_trace *trace = new_trace("test");
    ls_select_rule rule = {
        .m = 3, .n = WIDE, .k = 1 + round % 17, .offset = 5, .start_pos = 50, .ratio = 1 + round % 2, .lower_wins = true};
    int64_t scores[] = {rule.m, rule.n}, entries[] = {rule.m, rule.k};
    ls_tensor a = add_tensor(trace, "a", LS_BF16, 2, scores), b = add_tensor(trace, "b", LS_BF16, 2, scores);
    ls_tensor bound = add_tensor(trace, "bound", LS_F32, 2, scores);
    ls_tensor ia = add_tensor(trace, "ia", LS_I32, 2, entries), ib = add_tensor(trace, "ib", LS_I32, 2, entries);
    for (int64_t i = 0; i < rule.m * rule.n; i++) {
      uint64_t bits = ls_random_u64(&random);
      double value = (double)(bits & 31) / 4 - 2, limit = (bits >> 8 & 7) == 0 ? 3 : (bits >> 8 & 7) == 1 ? 0 : 0.25;
      double shift = (double)(bits >> 16 & 7) / 7 * 2 - 1;
      if ((bits >> 24 & 63) == 0) value = -INFINITY, limit = shift = 0;
      if ((bits >> 24 & 63) == 1) value = NAN, limit = shift = 0;
      ls_tensor_set(&a, i, value);
      ls_tensor_set(&b, i, value == value && isfinite(value) ? value + shift * limit * 0.9 : value);
      double apart = fabs(ls_tensor_get(&a, i) - ls_tensor_get(&b, i));
      ls_tensor_set(&bound, i, isfinite(apart) && apart > limit ? apart : limit);
    }
    choose(&ia, &a, &rule);
    choose(&ib, &b, &rule);
    ls_selection sa = {&ia, &a, &bound}, sb = {&ib, &b, &bound};
    ls_result r;
    ls_compare_selection(&r, &sa, &rule);
    assert_verdict(r, LS_PASS);
    ls_compare_selection(&r, &sb, &rule);
    assert_verdict(r, LS_PASS);
    ls_compare_selections(&r, &sa, &sb, &rule);
    assert_verdict(r, LS_PASS);
    near += has(r.note, "near tie");

    int64_t t = round % rule.m, worst = -1, best = -1; /* the worst finite one chosen by b goes, the worst of all left out comes */
    for (int64_t i = 0; i < visible_to(&rule, t); i++) {
      bool in = false;
      for (int64_t e = 0; e < rule.k; e++) in = in || ls_tensor_get(&ib, t * rule.k + e) == (double)(i + rule.offset);
      double s = ls_tensor_get(&b, t * rule.n + i);
      if (!isfinite(s)) continue;
      if (in && (best < 0 || s > ls_tensor_get(&b, t * rule.n + best))) best = i;
      if (!in && (worst < 0 || s < ls_tensor_get(&b, t * rule.n + worst))) worst = i;
    }
    if (best >= 0 && worst >= 0 && ls_tensor_get(&b, t * rule.n + worst) < ls_tensor_get(&b, t * rule.n + best)) {
      double kept = ls_tensor_get(&b, t * rule.n + best);
      ls_tensor_set(&b, t * rule.n + best, -INFINITY);
      double given = ls_tensor_get(&b, t * rule.n + worst);
      ls_tensor_set(&b, t * rule.n + worst, 100);
      choose(&ib, &b, &rule);
      ls_tensor_set(&b, t * rule.n + best, kept);
      ls_tensor_set(&b, t * rule.n + worst, given);
      ls_compare_selection(&r, &sb, &rule);
      assert_verdict(r, LS_FAIL);
      cr_assert(r.failing >= 1 && r.rows_failing == 1);
      planted++;
    }
    ls_trace_free(trace);
  }
  cr_assert(near > 50 && planted > 200, "%lld near ties, %lld planted", (long long)near, (long long)planted);
}

Test(compare_selections, the_result_does_not_depend_on_threads) {
  ls_trace *trace = new_trace("test");
  ls_select_rule rule = {.m = 300, .n = 1500, .k = 64, .offset = 128, .start_pos = 3000, .ratio = 2, .lower_wins = true};
  ls_tensor score = add_random(trace, "score", LS_BF16, 2, (int64_t[]){rule.m, rule.n}, 1.0);
  ls_tensor idx = add_tensor(trace, "idx", LS_I32, 2, (int64_t[]){rule.m, rule.k});
  choose(&idx, &score, &rule);
  for (int64_t t = 5; t < rule.m; t += 50) ((int32_t *)idx.data)[t * rule.k + 3]++;
  ls_selection s = {.idx = &idx, .score = &score};
  ls_result one, four;
  ls_threads_set(1);
  ls_compare_selection(&one, &s, &rule);
  ls_threads_set(4);
  ls_compare_selection(&four, &s, &rule);
  ls_threads_set(0);
  cr_assert(one.failing >= 6 && memcmp(&one, &four, sizeof one) == 0);
  assert_has(one.note, "query 5 (position 3005) entry 3");
  ls_trace_free(trace);
}

/* ---- indices ---- */

Test(compare_indices, equal_integers_pass_and_one_other_is_named) {
  static const ls_stage stage = {.name = "window_idx", .axes = "row entry"};
  ls_place_names names = {.base = 7, .newest = -1};
  ls_trace *trace = new_trace("test");
  ls_tensor a = add_tensor(trace, "a", LS_I32, 2, (int64_t[]){3, 4}), b = add_tensor(trace, "b", LS_I32, 2, (int64_t[]){3, 4});
  ls_result r;
  ls_compare_indices(&r, &stage, &a, &b, &names);
  assert_verdict(r, LS_PASS); /* zeros are indices like others */
  cr_assert(r.count == 12 && r.bit_equal == 12 && r.rows == 3);
  ((int32_t *)b.data)[6] = -1;
  ls_compare_indices(&r, &stage, &a, &b, &names);
  assert_verdict(r, LS_FAIL);
  cr_assert(r.failing == 1 && r.rows_failing == 1 && r.worst_a == 0 && r.worst_b == -1);
  cr_assert_str_eq(r.where, "row 1 (position 8) entry 2");
  cr_assert_str_eq(r.note, "row 1 (position 8) entry 2: expected 0, found -1");
  ((int32_t *)a.data)[6] = INT32_MAX, ((int32_t *)b.data)[6] = INT32_MAX - 1; /* too close for a float32 */
  ls_compare_indices(&r, &stage, &a, &b, &names);
  assert_verdict(r, LS_FAIL);
  ls_tensor part = ls_tensor_slice(&b, 1, 0, 3);
  ls_compare_indices(&r, &stage, &a, &part, &names);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "[3, 4] against [3, 3]");
  ls_compare_indices(&r, &stage, &a, NULL, &names);
  assert_verdict(r, LS_MISSING);
  ls_tensor real = add_tensor(trace, "real", LS_F32, 2, (int64_t[]){3, 4});
  ls_compare_indices(&r, &stage, &a, &real, &names);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "expected integers on the host, found f32");
  ls_trace_free(trace);
}
