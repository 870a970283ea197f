/* scripts/calibrate and what docs/tolerances.md says of bounds that are wider than needed, with a lockstep that prints what it is told. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static int calibrate(const char *options, const char *printed, const char *listed, int exit_code) {
  char fake[256], tolerances[256], command[1024];
  snprintf(fake, sizeof fake, "%s/calibrate-%d-lockstep", LS_BINARY_DIR, (int)getpid());
  snprintf(tolerances, sizeof tolerances, "%s/calibrate-%d-tolerances", LS_BINARY_DIR, (int)getpid());
  FILE *out = fopen(fake, "w");
  fprintf(out, "#!/bin/sh\ncat <<'END'\n%s\nEND\nexit %d\n", printed, exit_code);
  fclose(out);
  chmod(fake, 0755);
  out = fopen(tolerances, "w");
  fprintf(out, "# Tolerances\n\n## Wider than needed\n\n| stage | reason |\n| --- | --- |\n%s\n## Rings\n\n| `x y` | not of this table |\n",
          listed);
  fclose(out);
  snprintf(command, sizeof command, "LOCKSTEP=%s TOLERANCES=%s %s/scripts/calibrate %s >/dev/null 2>&1", fake, tolerances, LS_SOURCE_DIR,
           options);
  const int status = system(command);
  remove(fake);
  remove(tolerances);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

Test(calibrate, a_bound_that_is_too_wide_needs_a_reason_and_only_such_a_one) {
  const char *const wide = "a table\n\nTOO WIDE: attn_v41 kv_state: isolated, at most 4.0% of its bound in use; 5 of 9 elements differ";
  cr_expect_eq(calibrate("", "a table\n\nno bound is too wide", "", 0), 0);
  cr_expect_eq(calibrate("", wide, "", 0), 1);
  cr_expect_eq(calibrate("", wide, "| `attn_v41 kv_state` | a reason |\n", 0), 0);
  cr_expect_eq(calibrate("", wide, "| `attn_v41 score_state` | a reason |\n", 0), 1);
  cr_expect_eq(calibrate("--full", wide, "| `attn_v41 kv_state` | a reason |\n", 0), 0);
  cr_expect_eq(calibrate("--full", "no bound is too wide", "| `attn_v41 kv_state` | a reason |\n", 0), 1);
  cr_expect_eq(calibrate("", "no bound is too wide", "| `attn_v41 kv_state` | a reason |\n", 0), 0); /* may show in the one left out */
}

Test(calibrate, a_run_that_fails_fails) { cr_expect_eq(calibrate("", "no bound is too wide", "", 1), 1); }
