/* The verify session against fixtures of attn_v41 with missing, wrong or non-finite values. */
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
