/* The fixture of a trained model's values (fixtures/real): what it is said to be, and that both paths come to its expected values. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "gpu/gpu_path.h"
#include "session_run.h"

#define REAL LS_SOURCE_DIR "/fixtures/real/minilm_drafter.h5"

static ls_fixture *open_real(void) {
  ls_error err = {LS_OK, ""};
  ls_fixture *fixture = NULL;
  cr_assert_eq(ls_fixture_probe(REAL, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_fixture_open(&fixture, REAL, &(ls_fixture_options){.problems = stderr}, &err), LS_OK, "%s", err.text);
  return fixture;
}

/* Sums of powers of all captured values; those of the mean first. */
static double captured_sum(ls_fixture *fixture, double mean, int power, double *count) {
  double sum = 0;
  *count = 0;
  for (int64_t i = 0; i < ls_fixture_steps(fixture); i++) {
    ls_step step;
    ls_error err = {LS_OK, ""};
    cr_assert_eq(ls_fixture_load_step(fixture, i, &step, &err), LS_OK, "%s", err.text);
    const ls_tensor *captured = ls_trace_tensor(step.in, "capture");
    for (int64_t e = 0; captured != NULL && e < ls_tensor_count(captured); e++) {
      sum += pow(ls_tensor_get(captured, e) - mean, power);
      *count += 1;
    }
    ls_step_free(&step);
  }
  return sum;
}

Test(real_values, fixture_is_sound_small_and_the_one_that_was_made) {
  ls_fixture *fixture = open_real();
  ls_error err = {LS_OK, ""};
  uint64_t digest = 0;
  struct stat st;
  cr_expect_eq(ls_fixture_check_values(fixture, &err), LS_OK, "%s", err.text);
  cr_expect_eq(ls_fixture_steps(fixture), 22);
  cr_assert_eq(ls_fixture_digest(fixture, &digest, &err), LS_OK, "%s", err.text);
  cr_expect_eq(digest, 0x3db594813b13ef84, "digest %#llx", (unsigned long long)digest); /* of make_minilm.py's bytes */
  ls_fixture_close(fixture);
  cr_assert_eq(stat(REAL, &st), 0);
  cr_expect_lt(st.st_size, 2000000);
}

Test(real_values, captures_have_heavy_tails) {
  ls_fixture *fixture = open_real();
  double n;
  const double mean = captured_sum(fixture, 0, 1, &n) / n;
  const double variance = captured_sum(fixture, mean, 2, &n) / n, fourth = captured_sum(fixture, mean, 4, &n) / n;
  cr_expect_gt(n, 50000);
  cr_expect_gt(fourth / (variance * variance), 1000); /* drawn values: 3 */
  ls_fixture_close(fixture);
}

Test(real_values, both_paths_pass_on_them) {
  char *text = NULL;
  cr_expect_eq(session_verify(REAL, &(session_how){.path = &ls_path_emu}, &text), LS_OK, "%s", text);
  static const char *const pairs[] = {"golden-ref", "golden-emu", "ref-emu"};
  for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++)
    cr_expect(session_says(text, "v_proj", pairs[i], "PASS"), "%s:\n%s", pairs[i], text);
  cr_expect(session_says(text, "split", "emu", "PASS"), "%s", text);
  free(text);
}

/* One value in each stage, off by more than roundings explain: by eight steps of bf16. */
Test(real_values, one_wrong_value_is_named_with_its_stage) {
  static const char *const stages[] = {"ctx_combined", "ctx_normed", "k_proj", "v_proj", "k_norm", "k_rope"};
  for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
    char said[64];
    snprintf(said, sizeof said, "first divergence: step 7, %s", stages[i]);
    session_expect(stages[i], &(plant){.stage = stages[i], .step = 7, .steps = 8}, REAL, &(session_how){.path = NULL}, LS_DIVERGED, said);
  }
}

static bool half_rows(const ls_step *step, const ls_trace *given, ls_trace *recorded, const ls_tensor *choice) {
  (void)step, (void)given, (void)recorded;
  for (int64_t i = ls_tensor_count(choice) / 2; i < ls_tensor_count(choice); i++) ls_tensor_set(choice, i, 0);
  return true;
}

/* A product of which half the rows never came: what a mean over all of them would hardly show. */
Test(real_values, path_that_leaves_rows_out_is_caught) {
  char *text = NULL;
  const ls_path *cheat = session_cheat(&(session_lies){.stage = "v_proj", .choose = half_rows});
  cr_expect_eq(session_verify(REAL, &(session_how){.path = cheat}, &text), LS_DIVERGED, "%s", text);
  free(text);
}
