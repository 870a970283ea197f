/* lockstep verify on attn_v41 fixtures from outside: exit codes and the lines that go with them. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "shell_run.h"

#define LOCKSTEP LS_BINARY_DIR "/lockstep"
#define GOLDEN   LS_SOURCE_DIR "/fixtures/golden/"

static char out[1 << 16]; /* of the last run, both streams */

static int lockstep(const char *arguments) { return shell_run(out, sizeof out, "%s %s 2>&1", LOCKSTEP, arguments); }

static void expect(int code, const char *text, const char *arguments) {
  const int found = lockstep(arguments);
  cr_expect_eq(found, code, "lockstep %s: expected exit %d, found %d:\n%s", arguments, code, found, out);
  cr_expect_not_null(strstr(out, text), "lockstep %s: expected '%s' in:\n%s", arguments, text, out);
}

Test(verify_attn, the_goldens_pass) {
  expect(0, "1 fixture: 1 pass, 0 fail", "verify --path ref " GOLDEN "attn_v41_six_roles.h5");
  expect(0, "2 fixtures: 2 pass, 0 fail", "verify --path ref " GOLDEN "attn_v41_single_token.h5 " GOLDEN "attn_v41_ring_filling.h5");
}

Test(verify_attn, auto_runs_whatever_this_machine_has) { expect(0, "1 pass", "verify " GOLDEN "attn_v41_single_token.h5"); }

Test(verify_attn, a_path_asked_for_by_name_runs_or_is_unavailable) {
  const int code = lockstep("verify --path emu " GOLDEN "attn_v41_single_token.h5");
  cr_expect(code == 0 || code == 4, "expected exit 0 or 4, found %d:\n%s", code, out);
  cr_expect_not_null(strstr(out, code == 0 ? "1 pass" : "emu"), "%s", out);
}

Test(verify_attn, the_double_reference_passes) {
  expect(0, "1 pass", "verify --path ref --precision f64 " GOLDEN "attn_v41_single_token.h5");
}

Test(verify_attn, a_stage_and_a_step_can_be_chosen) {
  expect(0, "index_score", "verify --path ref --stage 'index_*.1' --step 13 " GOLDEN "attn_v41_six_roles.h5");
  cr_expect_null(strstr(out, "sparse_o  "), "another stage was judged:\n%s", out);
  expect(0, "write-set", "verify --path ref --stage '[qw]*' --step 3 " GOLDEN "attn_v41_single_token.h5");
  expect(1, "", "verify --path ref --stage k_ring " GOLDEN "attn_v41_single_token.h5");
  expect(2, "no step 4711", "verify --path ref --step 4711 " GOLDEN "attn_v41_single_token.h5");
}

Test(verify_attn, times_are_noted_layer_by_layer) {
  expect(0, "forward of layer 5, one row, traced", "verify --path ref --times " GOLDEN "attn_v41_single_token.h5");
}

Test(verify_attn, a_made_scenario_passes_against_itself) {
  char path[256], arguments[1024];
  snprintf(path, sizeof path, "%s/cli-%d-verify-attn.h5", LS_BINARY_DIR, (int)getpid());
  snprintf(arguments, sizeof arguments, "gen attn --seed 4 --values normal --refusals --jump --out %s", path);
  expect(0, "", arguments);
  snprintf(arguments, sizeof arguments, "verify --path ref %s", path);
  expect(0, "1 pass", arguments);
  unlink(path);
}

Test(verify_attn, a_truncated_fixture_is_a_bad_one) {
  char path[256], arguments[1024];
  snprintf(path, sizeof path, "%s/cli-%d-short-attn.h5", LS_BINARY_DIR, (int)getpid());
  snprintf(arguments, sizeof arguments, "--version; head -c 300000 %sattn_v41_single_token.h5 > %s", GOLDEN, path);
  cr_assert_eq(lockstep(arguments), 0, "%s", out);
  snprintf(arguments, sizeof arguments, "verify --path ref %s", path);
  expect(3, path, arguments);
  unlink(path);
}
