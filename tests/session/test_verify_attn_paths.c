/* The verify session against paths of attn_v41 that cheat: each does the reference's work and lies in one way, and the session must say
 * which property or stage it broke.
 *
 * The golden is a prefill of 12 and decode steps: steps 6 n .. 6 n + 5 are the six layers at position 11 + n. Layer 0 has a window only, 1
 * makes rows of ratio 2, 2 reads them, 3 makes rows of ratio 1 and the candidates, 4 reads them, 5 selects inside the candidates. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "session_run.h"

enum { KEEP = 24, PRODUCES = 13, LEAVES_OPEN = 19, READS = 14, WINDOW_ONLY = 12, MAKES_CANDIDATES = 15, READS_CANDIDATES = 16 };
/* PRODUCES: layer 1 at position 13, which closes a group; LEAVES_OPEN: at position 14. */

static void judge(const char *what, const session_lies *lies, ls_status status, const char *property, const char *said) {
  char file[SCRATCH], *text = NULL;
  session_scratch(file, "cheat");
  copy_fixture(file, GOLDEN "attn_v41_six_roles.h5", &(plant){.keep = KEEP});
  const ls_status found = session_verify(file, &(session_how){.path = session_cheat(lies)}, &text);
  cr_expect_eq(found, status, "%s: expected status %d, found %d:\n%s", what, (int)status, (int)found, text);
  if (property != NULL) cr_expect(session_says(text, property, "cheat", "FAIL"), "%s: expected %s to fail:\n%s", what, property, text);
  if (said != NULL) cr_expect_not_null(strstr(text, said), "%s: expected '%s' in:\n%s", what, said, text);
  cr_expect_null(strstr(text, "ref     FAIL"), "%s: the reference fails:\n%s", what, text);
  free(text);
  unlink(file);
}

static void caught(const char *what, const session_lies *lies, const char *property, const char *said) {
  judge(what, lies, LS_DIVERGED, property, said);
}

static void nudge(const ls_tensor *t, int64_t i) {
  const double v = ls_tensor_get(t, i);
  ls_tensor_set(t, i, v + (v == 0 ? 0.5 : ls_step_at(t->dtype, v)));
}

Test(verify_attn_paths, an_honest_twin_passes) { judge("no lie", &(session_lies){.fused = NULL}, LS_OK, NULL, "1 pass"); }

/* ---- records ---- */

static void nothing(const ls_step *step, const ls_trace *given, ls_trace *out) {
  (void)step, (void)given;
  out->n = 0;
}

Test(verify_attn_paths, a_path_that_records_nothing_is_missing) {
  caught("records nothing", &(session_lies){.record = nothing}, NULL, "path cheat did not record it");
}

Test(verify_attn_paths, a_path_that_calls_everything_fused_is_caught) {
  caught("all fused", &(session_lies){.record = nothing, .fused = "*"}, NULL, "records no stage that ends the group");
}

Test(verify_attn_paths, a_stage_that_is_called_fused_and_recorded_is_caught) {
  caught("fused and recorded", &(session_lies){.fused = "kv_norm"}, NULL, "says that it fuses this stage, and records it");
}

static const char *nudged;

static void nudges(const ls_step *step, const ls_trace *given, ls_trace *out) {
  (void)step, (void)given;
  const ls_tensor *t = ls_trace_tensor(out, nudged);
  if (t != NULL) nudge(t, 0);
}

Test(verify_attn_paths, a_recorded_row_that_is_not_what_was_stored_is_caught) {
  static const char *const stages[] = {"kv", "index_k", "compress_kv"};
  for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
    char said[128];
    nudged = stages[i];
    snprintf(said, sizeof said, "does not hold the recorded %s of row 0", nudged);
    caught(nudged, &(session_lies){.record = nudges}, "stored", said);
  }
}

/* ---- the production form ---- */

static ls_status nothing_untraced(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  return out == NULL ? LS_OK : ls_path_ref.step(ctx, step, given, out, false, err);
}

Test(verify_attn_paths, a_path_that_does_nothing_untraced_is_caught) {
  caught("nothing untraced", &(session_lies){.step = nothing_untraced}, "untraced", "not the bytes that the traced step left");
}

static ls_status refuses_untraced(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  return out == NULL ? ls_fail(err, LS_REFUSED, "not now") : ls_path_ref.step(ctx, step, given, out, false, err);
}

Test(verify_attn_paths, a_path_that_refuses_untraced_is_caught) {
  caught("refuses untraced", &(session_lies){.step = refuses_untraced}, "untraced", "refused untraced, done traced");
}

static void other_row_alone(const ls_step *step, const ls_trace *out, ls_trace *state) {
  if (out == NULL && step->rows == 1) nudge(ls_trace_tensor(state, "layers/0/window"), 0);
}

Test(verify_attn_paths, rows_that_depend_on_their_number_are_caught) {
  caught("other bytes row by row", &(session_lies){.state = other_row_alone}, "split", "");
}

/* ---- the state ---- */

static int64_t at_step, at_element, at_value;
static const char *at_tensor;

static void changes(const ls_step *step, const ls_trace *out, ls_trace *state) {
  (void)out;
  const ls_tensor *t = step->number == at_step ? ls_trace_tensor(state, at_tensor) : NULL;
  if (t != NULL && ls_dtype_is_float(t->dtype)) nudge(t, at_element);
  if (t != NULL && !ls_dtype_is_float(t->dtype)) ls_tensor_set(t, at_element, (double)at_value);
}

static void expect_write_set(int64_t step, const char *tensor, int64_t element, int64_t row) {
  char said[128];
  at_step = step, at_tensor = tensor, at_element = element;
  snprintf(said, sizeof said, "%s: row %d changed, and the step does not write there", tensor, (int)row);
  caught(tensor, &(session_lies){.state = changes}, "write-set", said);
}

Test(verify_attn_paths, a_changed_row_that_the_step_does_not_write_is_caught) {
  expect_write_set(WINDOW_ONLY, "layers/0/window", 2 * 64, 2); /* position 13 goes to slot 5 */
  expect_write_set(PRODUCES, "layers/1/window", 4 * 64 + 63, 4);
  expect_write_set(PRODUCES, "layers/0/window", 0, 0);              /* another layer's */
  expect_write_set(PRODUCES, "layers/1/compress_cache", 5 * 64, 5); /* the group of position 13 is row 6 */
  expect_write_set(PRODUCES, "layers/1/index_cache", 0, 0);
  expect_write_set(LEAVES_OPEN, "layers/1/compress_cache", 6 * 64, 6); /* no row is made at all */
  expect_write_set(LEAVES_OPEN, "layers/1/kv_state", 64, 1);           /* position 14 waits in slot 0 */
  expect_write_set(LEAVES_OPEN, "layers/1/score_state", 64 + 5, 1);
}

Test(verify_attn_paths, a_layer_that_is_no_source_and_changes_what_is_published_is_caught) {
  at_value = 3; /* the other kv source */
  expect_write_set(READS, "compress_source", 0, 0);
  expect_write_set(READS, "index_source", 0, 0);
  at_value = -1;
  expect_write_set(READS, "topk_idxs", 0, 0);
  at_value = 14;
  expect_write_set(READS, "topk_start", 0, 0);
  at_value = 0;
  expect_write_set(READS_CANDIDATES, "candidates", 13, 0); /* the newest position, which is always one */
  expect_write_set(READS, "layers/1/compress_cache", 0, 0);
}

static void expect_state(int64_t step, const char *tensor, int64_t value, const char *said) {
  at_step = step, at_tensor = tensor, at_element = 0, at_value = value;
  caught(tensor, &(session_lies){.state = changes}, "state", said);
}

Test(verify_attn_paths, another_source_that_is_published_is_caught) {
  expect_state(MAKES_CANDIDATES, "compress_source", 1, "compress_source after the step: expected 3, found 1");
  expect_state(MAKES_CANDIDATES, "index_source", 1, "index_source after the step: expected 3, found 1");
  expect_state(PRODUCES, "topk_start", 14, "topk_start after the step: expected 13, found 14");
  expect_state(MAKES_CANDIDATES, "candidate_start", 1, "candidate_start after the step: expected 13, found 1");
}

static void publishes(const ls_step *step, const ls_trace *out, ls_trace *state) {
  if (out != NULL) changes(step, out, state); /* the production form is honest */
}

Test(verify_attn_paths, a_published_choice_that_is_not_the_recorded_one_is_caught) {
  at_step = 23, at_tensor = "topk_idxs", at_element = 0, at_value = -1; /* layer 5's: nobody reads it any more */
  caught("another selection", &(session_lies){.state = publishes}, "stored", "topk_idxs");
  at_step = MAKES_CANDIDATES, at_tensor = "candidates", at_element = 13, at_value = 0;
  caught("another mask", &(session_lies){.state = publishes}, "stored", "candidates");
}

static void another_row(const ls_step *step, const ls_trace *out, ls_trace *state) { changes(step, out, state); }

Test(verify_attn_paths, a_stored_row_that_is_not_what_was_recorded_is_caught) {
  at_step = PRODUCES, at_tensor = "layers/1/window", at_element = 5 * 64;
  caught("window", &(session_lies){.state = another_row}, "stored", "window: row 5 does not hold the recorded kv of row 0");
  at_tensor = "layers/1/compress_cache", at_element = 6 * 64 + 1;
  caught("compress_cache", &(session_lies){.state = another_row}, "stored", "compress_cache: row 6 does not hold the recorded compress_kv");
  at_tensor = "layers/1/index_cache", at_element = 6 * 32;
  caught("index_cache", &(session_lies){.state = another_row}, "stored", "index_cache: row 6 does not hold the recorded index_k");
}

Test(verify_attn_paths, wrong_pooling_state_is_caught) {
  at_step = LEAVES_OPEN, at_tensor = "layers/1/kv_state", at_element = 3;
  caught("kv_state", &(session_lies){.state = publishes}, "untraced", "layers/1/kv_state");
}

/* ---- choices ---- */

typedef struct {
  int64_t row, offset, k, n;
  const ls_tensor *idx, *score;
} query;

static int64_t entry(const query *q, int64_t j) { return (int64_t)ls_tensor_get(q->idx, q->row * q->k + j); }
static double score(const query *q, int64_t position) { return ls_tensor_get(q->score, q->row * q->n + position); }

static bool is_chosen(const query *q, int64_t position) {
  for (int64_t j = 0; j < q->k; j++)
    if (entry(q, j) == q->offset + position) return true;
  return false;
}

/* Entry j becomes another position, and the entries stay sorted. */
static void replace(const query *q, int64_t j, int64_t position) {
  ls_tensor_set(q->idx, q->row * q->k + j, (double)(q->offset + position));
  for (int64_t a = 1; a < q->k; a++) {
    for (int64_t b = a; b > 0 && entry(q, b) != -1 && entry(q, b - 1) > entry(q, b); b--) {
      const int64_t moved = entry(q, b);
      ls_tensor_set(q->idx, q->row * q->k + b, (double)entry(q, b - 1));
      ls_tensor_set(q->idx, q->row * q->k + b - 1, (double)moved);
    }
  }
}

/* Looks for a chosen position and a visible one left out that satisfy `may`; the first becomes the second. Layers without a mask only. */
static bool swap(const ls_step *step, const ls_trace *recorded, const ls_tensor *choice, bool (*may)(const query *, int64_t, int64_t),
                 int64_t *found_row, int64_t *in, int64_t *out) {
  query q = {.idx = choice, .score = ls_trace_tensor(recorded, "index_score")};
  q.k = choice->dim[1];
  q.n = q.score->dim[1];
  q.offset = ls_trace_tensor(recorded, step->start_pos == 0 ? "kv" : "window")->dim[0];
  for (q.row = choice->dim[0] - 1; q.row >= 0; q.row--) {
    for (int64_t j = 0; j < q.k; j++) {
      for (int64_t p = 0; p < q.n && entry(&q, j) >= 0; p++) {
        const int64_t old = entry(&q, j) - q.offset;
        if (is_chosen(&q, p) || !isfinite(score(&q, p)) || !may(&q, old, p)) continue;
        *found_row = q.row, *in = p, *out = old;
        replace(&q, j, p);
        return true;
      }
    }
  }
  return false;
}

static int swaps;

static bool swap_by(const ls_step *step, const ls_trace *recorded, const ls_tensor *choice, bool (*may)(const query *, int64_t, int64_t)) {
  int64_t row, in, out;
  const bool done = step->layer != 5 && swap(step, recorded, choice, may, &row, &in, &out);
  swaps += done;
  return done;
}

static bool far_inferior(const query *q, int64_t out, int64_t in) { return score(q, in) < 0.5 * score(q, out); }

static bool inferior(const ls_step *step, const ls_trace *given, ls_trace *recorded, const ls_tensor *choice) {
  (void)given;
  return swap_by(step, recorded, choice, far_inferior);
}

Test(verify_attn_paths, an_inferior_row_that_is_selected_is_caught) {
  const session_lies lies = {.stage = "compress_idx", .choose = inferior};
  caught("inferior", &lies, "selection", "inferior by");
  caught("inferior", &lies, NULL, "compress_idx");
}

/* Entry of a query that sees fewer rows than it may choose. */
static bool future(const ls_step *step, const ls_trace *given, ls_trace *recorded, const ls_tensor *choice) {
  (void)given, (void)recorded;
  if (step->number != 3) return false; /* layer 3's prefill: query 0 sees row 0 */
  ls_tensor_set(choice, 1, 12 + 4);
  return true;
}

Test(verify_attn_paths, a_row_of_the_future_that_is_selected_is_caught) {
  caught("the future", &(session_lies){.stage = "compress_idx", .choose = future}, "selection", "is in the future");
}

static bool empty_first(const ls_step *step, const ls_trace *given, ls_trace *recorded, const ls_tensor *choice) {
  (void)given, (void)recorded;
  if (step->number != 3) return false;
  ls_tensor_set(choice, 0, -1);
  ls_tensor_set(choice, 1, 12);
  return true;
}

Test(verify_attn_paths, an_empty_entry_before_a_valid_one_is_caught) {
  caught("-1 first", &(session_lies){.stage = "compress_idx", .choose = empty_first}, "selection", "-1");
}

static bool unsorted(const ls_step *step, const ls_trace *given, ls_trace *recorded, const ls_tensor *choice) {
  (void)given, (void)recorded;
  if (step->number != 3) return false;
  const int64_t last = ls_tensor_count(choice) - 1; /* of the last query, which has chosen as many as it may */
  const double moved = ls_tensor_get(choice, last);
  ls_tensor_set(choice, last, ls_tensor_get(choice, last - 1));
  ls_tensor_set(choice, last - 1, moved);
  return true;
}

Test(verify_attn_paths, entries_that_do_not_ascend_are_caught) {
  caught("not ascending", &(session_lies){.stage = "compress_idx", .choose = unsorted}, "selection", "ascending");
}

static bool drops_block(const ls_step *step, const ls_trace *given, ls_trace *recorded, const ls_tensor *choice) {
  (void)given, (void)recorded;
  if (step->number != 3) return false;
  const int64_t n = choice->dim[1], row = (choice->dim[0] - 1) * n; /* the last query; the newest position's block is the last */
  for (int64_t p = 0; p + 2 < n; p += 2) {
    if (ls_tensor_get(choice, row + p) == 0) continue;
    ls_tensor_set(choice, row + p, 0);
    ls_tensor_set(choice, row + p + 1, 0);
    return true;
  }
  return false;
}

Test(verify_attn_paths, a_candidate_block_that_is_dropped_is_caught) {
  caught("a block dropped", &(session_lies){.stage = "candidates", .choose = drops_block}, "selection", "block");
}

static bool drops_newest(const ls_step *step, const ls_trace *given, ls_trace *recorded, const ls_tensor *choice) {
  (void)given, (void)recorded;
  if (step->number != 3) return false;
  ls_tensor_set(choice, ls_tensor_count(choice) - 1, 0);
  ls_tensor_set(choice, ls_tensor_count(choice) - 2, 0);
  return true;
}

Test(verify_attn_paths, a_candidate_mask_without_the_newest_block_is_caught) {
  caught("the newest dropped", &(session_lies){.stage = "candidates", .choose = drops_newest}, "selection", "newest");
}

/* ---- ties ---- */

static bool equal_and_higher(const query *q, int64_t out, int64_t in) { return in > out && score(q, in) == score(q, out); }

static bool upper_wins(const ls_step *step, const ls_trace *given, ls_trace *recorded, const ls_tensor *choice) {
  (void)given;
  return swap_by(step, recorded, choice, equal_and_higher);
}

static const ls_make_attn tied = {
    .seed = 3, .roles = 1u << LS_ROLE_FULL2, .prefill = 12, .decode = 12, .values = LS_VALUES_TIED}; /* no layer has a mask */

Test(verify_attn_paths, a_legal_tie_that_falls_otherwise_breaks_our_rule_and_nothing_else) {
  char file[SCRATCH], *text = NULL;
  session_scratch(file, "tied");
  session_generate(file, &tied, NULL);
  const ls_path *cheat = session_cheat(&(session_lies){.stage = "compress_idx", .choose = upper_wins});
  cr_expect_eq(session_verify(file, &(session_how){.path = cheat}, &text), LS_DIVERGED, "%s", text);
  cr_expect_gt(swaps, 0, "no tie was swapped");
  cr_expect(session_says(text, "selection", "cheat", "FAIL"), "%s", text);
  cr_expect_not_null(strstr(text, "wrong winner of a tie"), "%s", text);
  cr_expect_not_null(strstr(text, "FAIL (1 property fails;"), "%s", text);
  free(text);
  unlink(file);
}

Test(verify_attn_paths, foreign_values_may_break_a_tie_as_they_like) {
  char file[SCRATCH], *text = NULL;
  session_scratch(file, "foreign");
  session_generate(file, &tied, session_cheat(&(session_lies){.stage = "compress_idx", .choose = upper_wins}));
  cr_expect_gt(swaps, 0, "no tie was swapped");
  const ls_path *twin = session_cheat(&(session_lies){.fused = NULL});
  cr_expect_eq(session_verify(file, &(session_how){.path = twin}, &text), LS_OK, "%s", text);
  cr_expect_not_null(strstr(text, " ties"), "no tie was told:\n%s", text);
  free(text);
  unlink(file);
}

/* ---- near ties ---- */

static bool one_step_below(const query *q, int64_t out, int64_t in) {
  return score(q, in) < score(q, out) && ls_steps_between(LS_BF16, score(q, in), score(q, out)) == 1;
}

/* As a path whose scores come out one step off: two neighbours are the other way round, and the selection with them. */
static bool near_tie(const ls_step *step, const ls_trace *given, ls_trace *recorded, const ls_tensor *choice) {
  int64_t row, in, out;
  if (session_is_isolated(given) || step->layer == 5 || !swap(step, recorded, choice, one_step_below, &row, &in, &out)) return false;
  const ls_tensor *scores = ls_trace_tensor(recorded, "index_score");
  const double was = ls_tensor_get(scores, row * scores->dim[1] + in);
  ls_tensor_set(scores, row * scores->dim[1] + in, ls_tensor_get(scores, row * scores->dim[1] + out));
  ls_tensor_set(scores, row * scores->dim[1] + out, was);
  swaps++;
  return true;
}

Test(verify_attn_paths, scores_one_step_apart_that_change_places_are_a_near_tie) {
  enum { SEEDS = 20 };
  char file[SCRATCH];
  session_scratch(file, "near");
  ls_make_attn make = {.roles = 1u << LS_ROLE_FULL1, .prefill = 12, .decode = 20, .values = LS_VALUES_NORMAL};
  for (make.seed = 1; make.seed <= SEEDS && swaps == 0; make.seed++) { /* neighbours at the k-th place are not in every scenario */
    char *text = NULL;
    session_generate(file, &make, NULL);
    const ls_path *cheat = session_cheat(&(session_lies){.stage = "compress_idx", .choose = near_tie});
    cr_expect_eq(session_verify(file, &(session_how){.path = cheat}, &text), LS_OK, "%s", text);
    cr_expect_eq(strstr(text, "near tie") != NULL, swaps > 0, "%s", text);
    free(text);
  }
  cr_expect_gt(swaps, 0, "no neighbours were swapped");
  unlink(file);
}

/* ---- refusals ---- */

static ls_status refuses(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  if (step->number == READS) return ls_fail(err, LS_REFUSED, "not now");
  return ls_path_ref.step(ctx, step, given, out, false, err);
}

Test(verify_attn_paths, a_step_that_is_refused_and_must_run_is_caught) {
  caught("refuses", &(session_lies){.step = refuses}, "refusal", "forward: expected ok, found refused: not now");
}

static void expect_of_refusals(const session_lies *lies, ls_status status, const char *property, const char *said) {
  static const ls_make_attn make = {.seed = 5, .prefill = 9, .decode = 4, .values = LS_VALUES_NORMAL, .refusals = true};
  char file[SCRATCH], *text = NULL;
  session_scratch(file, "refusals");
  session_generate(file, &make, NULL);
  const ls_status found = session_verify(file, &(session_how){.path = session_cheat(lies)}, &text);
  cr_expect_eq(found, status, "%s", text);
  if (property != NULL) cr_expect(session_says(text, property, "cheat", "FAIL"), "%s", text);
  if (said != NULL) cr_expect_not_null(strstr(text, said), "expected '%s' in:\n%s", said, text);
  free(text);
  unlink(file);
}

static ls_status runs_all(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  return step->expect_refused ? LS_OK : ls_path_ref.step(ctx, step, given, out, false, err);
}

static void after_a_refusal(const ls_step *step, const ls_trace *out, ls_trace *state) {
  (void)out;
  if (step->expect_refused) nudge(ls_trace_tensor(state, "layers/0/window"), 0);
}

Test(verify_attn_paths, a_step_that_runs_and_must_be_refused_is_caught) {
  expect_of_refusals(&(session_lies){.fused = NULL}, LS_OK, NULL, NULL);
  expect_of_refusals(&(session_lies){.step = runs_all}, LS_DIVERGED, "refusal", "forward: expected refused, found ok");
}

Test(verify_attn_paths, a_state_that_a_refused_step_changed_is_caught) {
  expect_of_refusals(&(session_lies){.state = after_a_refusal}, LS_DIVERGED, "write-set",
                     "layers/0/window: row 0 changed, and the step was refused");
}
