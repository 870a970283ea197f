#include "selection_helpers.h"

enum { M = 3, N = 26, BLOCK = 4, KEPT = 3, START = 40 };

/* Queries at positions 40 .. 42, ratio 2: 20, 21, 21 rows visible, so 5, 6, 6 blocks. Block scores of query 1: 5 9 3 7 1 and the newest,
 * of which one position is visible: kept are 1, 3 and 5, that one with all of its positions. */
typedef struct {
  ls_trace *trace;
  ls_tensor mask, score, bound;
  ls_selection s;
  ls_select_rule rule;
  ls_candidate_rule blocks;
} rig;

static void set_score(rig *g, int64_t t, int64_t i, double v) { ls_tensor_set(&g->score, t * N + i, v); }
static void set_block(rig *g, int64_t t, int64_t b, double v) { /* its best position is its third */
  for (int64_t i = 0; i < BLOCK; i++) set_score(g, t, b * BLOCK + i, i == 2 ? v : v - 0.5 - (double)i);
}
static void keep(rig *g, int64_t t, int64_t b, int v) {
  for (int64_t i = b * BLOCK; i < (b + 1) * BLOCK; i++) ls_tensor_set(&g->mask, t * N + i, v);
}

static void setup(rig *g) {
  static const double best[] = {5, 9, 3, 7, 1};
  memset(g, 0, sizeof *g);
  g->trace = new_trace("test");
  g->mask = add_tensor(g->trace, "mask", LS_U8, 2, (int64_t[]){M, N});
  g->score = add_tensor(g->trace, "score", LS_BF16, 2, (int64_t[]){M, N});
  g->bound = add_tensor(g->trace, "bound", LS_F32, 2, (int64_t[]){M, N});
  g->rule = (ls_select_rule){.m = M, .n = N, .start_pos = START, .ratio = 2, .lower_wins = true};
  g->blocks = (ls_candidate_rule){.block = BLOCK, .topk_blocks = KEPT};
  for (int64_t t = 0; t < M; t++) {
    for (int64_t b = 0; b < 5; b++) set_block(g, t, b, best[(b + 2 * (t != 1)) % 5]);
    set_score(g, t, 20, -4);
    for (int64_t i = 21; i < N; i++) set_score(g, t, i, 50);
  }
  g->s = (ls_selection){.idx = &g->mask, .score = &g->score};
  keep_blocks(&g->mask, &g->score, &g->rule, &g->blocks);
}

static void teardown(rig *g) { ls_trace_free(g->trace); }

static ls_result judge(const rig *g) {
  ls_result r;
  ls_compare_candidates(&r, &g->s, &g->rule, &g->blocks);
  return r;
}

static ls_result must_fail(const rig *g, int64_t failing, const char *note) {
  ls_result r = judge(g);
  assert_verdict(r, LS_FAIL);
  cr_assert_eq(r.failing, failing, "%lld failing: %s", (long long)r.failing, r.note);
  cr_assert(r.use > 1 && r.rows == M && r.rows_failing == 1 && r.count == M * N && r.has_worst);
  assert_has(r.note, note);
  return r;
}

Test(compare_candidates, a_right_mask_passes) {
  rig g;
  setup(&g);
  cr_assert(ls_tensor_get(&g.mask, N + 4) == 1 && ls_tensor_get(&g.mask, N + 12) == 1 && ls_tensor_get(&g.mask, N + 20) == 1);
  ls_result r = judge(&g);
  assert_verdict(r, LS_PASS);
  cr_assert(r.count == M * N && r.bit_equal == M * N && r.rows == M && r.use == 0);
  cr_assert_str_eq(r.note, "");
  teardown(&g);
}

Test(compare_candidates, a_missing_block_is_named) {
  rig g;
  setup(&g);
  keep(&g, 1, 3, 0);
  ls_result r =
      must_fail(&g, 4, "query 1 (position 41) block 3 (positions 12 to 15): missing (score 7): 2 blocks are kept, 3 have a place");
  cr_assert_str_eq(r.where, "row 1 (position 41) position 12");
  teardown(&g);
}

Test(compare_candidates, a_missing_newest_block_is_named) {
  rig g;
  setup(&g);
  keep(&g, 1, 5, 0);
  ls_result r = must_fail(&g, 4, "query 1 (position 41) block 5 (positions 20 to 23): the newest visible position's block is missing");
  cr_assert_str_eq(r.where, "row 1 (position 41) position 20");
  keep(&g, 1, 0, 1); /* another one took its place */
  must_fail(&g, 8, "the newest visible position's block is missing");
  teardown(&g);
}

Test(compare_candidates, a_partial_block_is_named) {
  rig g;
  setup(&g);
  ls_tensor_set(&g.mask, N + 6, 0);
  ls_result r = must_fail(&g, 1, "block 1 (positions 4 to 7): kept in part: 3 of 4 positions, not 6");
  cr_assert_str_eq(r.where, "row 1 (position 41) position 6");
  teardown(&g);
}

Test(compare_candidates, an_extra_block_is_named) {
  rig g;
  setup(&g);
  keep(&g, 1, 0, 1);
  must_fail(&g, 4, "block 0 (positions 0 to 3): an extra block (score 5): 4 are kept, 3 have a place");
  teardown(&g);
}

Test(compare_candidates, a_block_of_minus_infinity_is_never_kept) {
  rig g;
  setup(&g);
  for (int64_t b = 1; b < 5; b++) {
    for (int64_t i = 0; i < BLOCK; i++) set_score(&g, 1, b * BLOCK + i, -INFINITY);
  }
  keep_blocks(&g.mask, &g.score, &g.rule, &g.blocks); /* block 0 and the newest are left */
  assert_verdict(judge(&g), LS_PASS);
  keep(&g, 1, 1, 1);
  must_fail(&g, 4, "block 1 (positions 4 to 7): kept, but its best score is -inf");
  keep(&g, 1, 1, 0);
  set_score(&g, 1, 20, -INFINITY); /* the newest is kept whatever its score */
  assert_verdict(judge(&g), LS_PASS);
  set_score(&g, 1, 6, -100); /* one finite score in block 1: it has a place now */
  must_fail(&g, 4, "block 1 (positions 4 to 7): missing (score -100)");
  teardown(&g);
}

Test(compare_candidates, an_inferior_block_is_named) {
  rig g;
  setup(&g);
  keep(&g, 1, 3, 0);
  keep(&g, 1, 2, 1);
  ls_result r = must_fail(&g, 4, "block 2 (positions 8 to 11): score 3 is inferior by 4 to block 3 (score 7), left out");
  cr_assert(r.worst_a == 7 && r.worst_b == 3);
  teardown(&g);
}

Test(compare_candidates, the_lower_block_wins_a_tie) {
  rig g;
  setup(&g);
  set_block(&g, 1, 0, 7);
  must_fail(&g, 4, "block 3 (positions 12 to 15): the wrong winner of a tie at score 7: block 0 is lower and left out");
  g.rule.lower_wins = false;
  ls_result r = judge(&g);
  assert_verdict(r, LS_PASS);
  cr_assert_str_eq(r.note, "1 tie");
  g.rule.lower_wins = true;
  keep_blocks(&g.mask, &g.score, &g.rule, &g.blocks);
  assert_verdict(judge(&g), LS_PASS);
  teardown(&g);
}

Test(compare_candidates, the_future_and_other_values_are_named) {
  rig g;
  setup(&g);
  ls_tensor_set(&g.mask, N + 24, 1);
  ls_result r = must_fail(&g, 1, "query 1 (position 41): position 24 is in the future (21 visible)");
  cr_assert_str_eq(r.where, "row 1 (position 41) position 24");
  ls_tensor_set(&g.mask, N + 24, 0);
  ls_tensor_set(&g.mask, N + 21, 0); /* not visible yet, but of the newest block */
  must_fail(&g, 1, "block 5 (positions 20 to 23): kept in part: 3 of 4 positions, not 21");
  ls_tensor_set(&g.mask, N + 21, 1);
  ls_tensor_set(&g.mask, N + 5, 255);
  must_fail(&g, 1, "query 1 (position 41): position 5: the mask holds 255, not 0 or 1");
  teardown(&g);
}

Test(compare_candidates, a_nan_block_ranks_first_after_the_newest) {
  rig g;
  setup(&g);
  set_score(&g, 1, 17, NAN);
  must_fail(&g, 4, "block 3 (positions 12 to 15): score 7 is inferior by nan to block 4 (score nan), left out");
  for (int64_t b = 0; b < 5; b++) set_score(&g, 1, b * BLOCK, NAN);
  keep_blocks(&g.mask, &g.score, &g.rule, &g.blocks);
  assert_verdict(judge(&g), LS_PASS);
  cr_assert(ls_tensor_get(&g.mask, N) == 1 && ls_tensor_get(&g.mask, N + 4) == 1 && ls_tensor_get(&g.mask, N + 20) == 1);
  teardown(&g);
}

Test(compare_candidates, nothing_visible_has_no_block) {
  rig g;
  setup(&g);
  g.rule.start_pos = 0, g.rule.ratio = 8;
  memset(g.mask.data, 0, M * N);
  ls_result r = judge(&g);
  assert_verdict(r, LS_MISTRUSTED);
  ls_tensor_set(&g.mask, 0, 1);
  r = judge(&g);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "position 0 is in the future (0 visible)");
  teardown(&g);
}

/* ---- two masks ---- */

static ls_result judge_two(const rig *a, const rig *b) {
  ls_result r;
  ls_compare_candidate_masks(&r, &a->s, &b->s, &a->rule, &a->blocks);
  return r;
}

Test(compare_candidates, near_ties_between_two_masks_pass_and_others_do_not) {
  rig a, b;
  setup(&a);
  setup(&b);
  ls_result r = judge_two(&a, &b);
  assert_verdict(r, LS_PASS);
  cr_assert(r.bit_equal == M * N && r.use == 0);
  for (int64_t i = 0; i < M * N; i++) ls_tensor_set(&a.bound, i, 0.25);
  a.s.bound = b.s.bound = &a.bound;
  set_block(&a, 1, 0, 6.75);
  set_block(&b, 1, 0, 7.25);
  keep_blocks(&b.mask, &b.score, &b.rule, &b.blocks);
  r = judge_two(&a, &b);
  assert_verdict(r, LS_PASS);
  cr_assert_str_eq(r.note, "1 near tie");
  cr_assert(r.use == 0.5 && r.bit_equal == M * N - 8);
  set_block(&a, 1, 0, 6.25);
  r = judge_two(&a, &b);
  assert_verdict(r, LS_FAIL);
  cr_assert_eq(r.failing, 4);
  assert_has(
      r.note,
      "query 1 (position 41) block 0 (positions 0 to 3): kept by this side only; by the scores of the first side it is inferior by 0.75");
  ls_tensor_set(&a.bound, N + 1, 0.5); /* the largest bound of the block's positions is the block's */
  r = judge_two(&a, &b);
  assert_verdict(r, LS_PASS);
  set_block(&a, 1, 0, 7), set_block(&b, 1, 0, 7);
  a.s.bound = b.s.bound = NULL;
  r = judge_two(&a, &b);
  assert_verdict(r, LS_PASS);
  cr_assert_str_eq(r.note, "1 tie");
  keep(&b, 1, 5, 0);
  r = judge_two(&a, &b);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "newest");
  keep(&b, 1, 5, 1);
  keep(&b, 1, 4, 1);
  r = judge_two(&a, &b);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "an extra block (score 1)");
  teardown(&a);
  teardown(&b);
}

Test(compare_candidates, masks_that_do_not_fit_fail_and_are_named) {
  rig g;
  setup(&g);
  g.s.score = &g.mask;
  ls_result r = judge(&g);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "their scores: expected [3, 26], found [3, 26] of u8");
  g.s.idx = NULL;
  assert_verdict(judge(&g), LS_MISSING);
  teardown(&g);
}
