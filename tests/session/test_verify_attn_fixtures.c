/* The verify session against fixtures of attn_v41 with missing, wrong or non-finite values. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "session_run.h"

#define SIX_ROLES GOLDEN "attn_v41_six_roles.h5"

enum { KEEP = 24 };

static const session_how alone = {.path = NULL};

Test(verify_attn_fixtures, goldens_pass_beside_an_honest_twin) {
  static const char *const goldens[] = {SIX_ROLES, GOLDEN "attn_v41_ring_filling.h5", GOLDEN "attn_v41_single_token.h5",
                                        GOLDEN "attn_v41_six_roles_own_keys.h5"};
  for (size_t i = 0; i < sizeof goldens / sizeof *goldens; i++) {
    char *text = NULL;
    const ls_path *twin = session_cheat(&(session_lies){.fused = NULL});
    cr_expect_eq(session_verify(goldens[i], &(session_how){.path = twin}, &text), LS_OK, "%s", text);
    free(text);
  }
}

Test(verify_attn_fixtures, fixtures_that_hold_only_some_stages_pass) {
  static const char *const drops[] = {"[!o]* o_*",             /* out alone */
                                      "[!ow]* o_* window_idx", /* out and window */
                                      "kv",
                                      "window",
                                      "compress_kv",
                                      "index_score",
                                      "compress_idx",
                                      "candidates",
                                      "idx",
                                      "qr window index_k index_w candidates compress_kv sparse_o o_group",     /* every other one */
                                      "q kv window_idx latent index_q index_score compress_idx idx o_rot out", /* the others */
                                      "index_score compress_idx",
                                      "index_score candidates",
                                      "index_*",
                                      "compress_* candidates idx"};
  const ls_path *twin = session_cheat(&(session_lies){.fused = NULL});
  for (size_t i = 0; i < sizeof drops / sizeof *drops; i++) {
    session_expect(drops[i], &(plant){.drop = drops[i], .keep = 36}, SIX_ROLES, &(session_how){.path = twin}, LS_OK, "1 pass");
    session_expect(drops[i], &(plant){.drop = drops[i]}, GOLDEN "attn_v41_single_token.h5", &alone, LS_OK, "1 pass");
  }
  session_expect("ring filling", &(plant){.drop = "[!o]* o_*"}, GOLDEN "attn_v41_ring_filling.h5", &alone, LS_OK, "1 pass");
}

Test(verify_attn_fixtures, a_fixture_of_which_nothing_is_compared_fails) {
  session_expect("nothing held", &(plant){.drop = "*", .keep = 6}, SIX_ROLES, &alone, LS_DIVERGED, "nothing was compared");
}

/* ---- the reference in double ---- */

Test(verify_attn_fixtures, a_double_reference_needs_no_expectations) {
  const ls_path *twin = session_cheat(&(session_lies){.fused = NULL});
  const session_how how = {.path = twin, .precision = LS_PRECISION_F64};
  session_expect("f64", &(plant){.drop = "*"}, SIX_ROLES, &how, LS_OK, "1 pass");
  session_expect("f64", &(plant){.drop = "*"}, GOLDEN "attn_v41_ring_filling.h5", &how, LS_OK, "1 pass");
  session_expect("f64 and goldens", &(plant){.keep = 60}, SIX_ROLES, &how, LS_OK, "1 pass");
}

/* ---- values that are not finite ---- */

static ls_status verify_nan(bool allowed, const char *drop, char **text) {
  char file[SCRATCH];
  session_scratch(file, "nan");
  copy_fixture(file, SIX_ROLES, &(plant){.stage = "x", .step = 13, .steps = (double)NAN, .keep = 36, .drop = drop});
  const ls_path *twin = session_cheat(&(session_lies){.fused = NULL});
  const ls_status status = session_verify(file, &(session_how){.path = twin, .allow_nonfinite = allowed}, text);
  unlink(file);
  return status;
}

Test(verify_attn_fixtures, a_nan_in_an_input_is_a_bad_fixture_unless_allowed) {
  char *text = NULL;
  cr_expect_eq(verify_nan(false, "*", &text), LS_BAD_FIXTURE, "%s", text);
  cr_expect_not_null(strstr(text, "/steps/0013/in/x"), "%s", text);
  free(text);
}

Test(verify_attn_fixtures, paths_that_turn_non_finite_alike_agree) {
  char *text = NULL;
  cr_expect_eq(verify_nan(true, "*", &text), LS_OK, "%s", text);
  cr_expect_not_null(strstr(text, "not finite: step 13, x [0, 48] is nan"), "the report does not say where:\n%s", text);
  free(text);
  cr_expect_eq(verify_nan(true, NULL, &text), LS_DIVERGED, "the fixture's values are finite:\n%s", text);
  cr_expect_not_null(strstr(text, "first divergence: step 13, qr"), "%s", text);
  free(text);
}

/* ---- one wrong value ---- */

/* A float by `plain` of its steps: 16, or one or two steps of its grid (e4m3: 16 bf16 steps, e2m1: 64); an index or a mask by -1. Step 13
 * is layer 1 at position 13, where a latent is made; 15 is layer 3, which makes candidates. `least`: the smallest difference that is caught
 * wherever it stands. It is above one or two steps where a value that nearly cancels has a small step, and above one step of a grid where
 * the fixture does not hold what was rounded to it: the neighbouring code may then be right. */
static const struct {
  const char *stage;
  int64_t step;
  double plain, least;
} wrong[] = {{"qr", 13, 16, 8},          {"q", 13, 16, 16},          {"kv", 13, 16, 32},         {"window", 13, 16, 1},
             {"window_idx", 13, -1, -1}, {"latent", 13, 16, 4},      {"index_k", 13, 64, 128},   {"index_q", 13, 128, 1},
             {"index_w", 13, 16, 3},     {"index_score", 13, 16, 2}, {"candidates", 15, -1, -1}, {"compress_idx", 13, -1, -1},
             {"compress_kv", 13, 64, 1}, {"idx", 13, -1, -1},        {"sparse_o", 13, 16, 12},   {"o_rot", 13, 16, 2},
             {"o_group", 13, 16, 2},     {"out", 13, 16, 2}};

enum { STAGES = sizeof wrong / sizeof wrong[0] };

static bool held(int64_t number, const char *stage) {
  ls_error err = {LS_OK, ""};
  ls_fixture *fixture = NULL;
  ls_step step;
  const ls_fixture_options options = {false, NULL};
  cr_assert_eq(ls_fixture_open(&fixture, SIX_ROLES, &options, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_fixture_load_step(fixture, number, &step, &err), LS_OK, "%s", err.text); /* they are numbered from 0 */
  const bool found = ls_trace_find(step.expect, stage) != NULL;
  ls_step_free(&step);
  ls_fixture_close(fixture);
  return found;
}

/* The first divergence is in this stage and step, and isolated. */
static void expect_named(const plant *p, bool judge_one) {
  char file[SCRATCH], said[128], *text = NULL;
  session_scratch(file, "wrong");
  copy_fixture(file, SIX_ROLES, p);
  const ls_status status = session_verify(file, &(session_how){.judge_one = judge_one, .only = p->step}, &text);
  cr_expect_eq(status, LS_DIVERGED, "%s by %g at %g of step %d: status %d:\n%s", p->stage, p->steps, p->at, (int)p->step, (int)status,
               text);
  snprintf(said, sizeof said, "  first divergence: step %d, %s", (int)p->step, p->stage);
  const char *line = strstr(text, said);
  const char *named = line != NULL ? strstr(line, "isolated: introduced here") : NULL;
  cr_expect(named != NULL && named < strchr(line, '\n'), "%s by %g at %g: expected '%s ... introduced here' in:\n%s", p->stage, p->steps,
            p->at, said, text);
  free(text);
  unlink(file);
}

Test(verify_attn_fixtures, one_wrong_expected_value_names_its_stage) {
  for (int i = 0; i < STAGES; i++)
    expect_named(&(plant){.stage = wrong[i].stage, .step = wrong[i].step, .steps = wrong[i].plain, .keep = KEEP}, false);
}

static void expect_least_caught(int first, int stages) {
  static const int64_t steps[] = {1, 13, 3};
  static const double at[] = {0.45, 0.8};
  for (int i = first; i < first + stages; i++) {
    for (int k = 0; k < 3; k++) {
      if (!held(steps[k], wrong[i].stage)) continue;
      for (int a = 0; a < 2; a++)
        expect_named(&(plant){.stage = wrong[i].stage, .step = steps[k], .steps = wrong[i].least, .keep = steps[k] + 1, .at = at[a]}, true);
    }
  }
}

Test(verify_attn_fixtures, the_least_wrong_value_of_queries_and_rows_is_caught) { expect_least_caught(0, STAGES / 3); }
Test(verify_attn_fixtures, the_least_wrong_value_of_selections_is_caught) { expect_least_caught(STAGES / 3, STAGES / 3); }
Test(verify_attn_fixtures, the_least_wrong_value_of_outputs_is_caught) { expect_least_caught(2 * (STAGES / 3), STAGES - 2 * (STAGES / 3)); }

Test(verify_attn_fixtures, an_expected_selection_that_names_no_compressed_row_is_a_bad_fixture) {
  session_expect("below the offset", &(plant){.stage = "compress_idx", .step = 13, .steps = -1, .keep = KEEP, .at = 0.1}, SIX_ROLES, &alone,
                 LS_BAD_FIXTURE, "given stage compress_idx: expected -1 or 8 .. 14, found 7 at row 0, entry 0");
}
