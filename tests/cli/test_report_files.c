/* The files of a run, from outside: all of them from one run, none that changes what the run finds, none that is half there. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "shell_run.h"

#define LOCKSTEP LS_BINARY_DIR "/lockstep"
#define GOLDEN   LS_SOURCE_DIR "/fixtures/golden/"

#define run(...) shell_run(NULL, 0, __VA_ARGS__)

static void scratch(char path[256], const char *name) { snprintf(path, 256, "%s/files-%d-%s", LS_BINARY_DIR, (int)getpid(), name); }

static bool holds(const char *file, const char *words) { return run("grep -qF -- '%s' %s", words, file) == 0; }

Test(report_files, one_run_writes_them_all_and_finds_the_same) {
  char html[256], json[256], junit[256], with[256], without[256];
  scratch(html, "a.html"), scratch(json, "a.json"), scratch(junit, "a.xml"), scratch(with, "with.txt"), scratch(without, "without.txt");
  const char *const fixtures = GOLDEN "dflash_refusals.h5 " GOLDEN "attn_v41_single_token.h5";
  cr_assert_eq(run("%s verify --path emu %s >%s 2>&1", LOCKSTEP, fixtures, without), 0);
  cr_assert_eq(run("%s verify --path emu --report %s --json %s --junit %s %s >%s 2>&1", LOCKSTEP, html, json, junit, fixtures, with), 0);
  cr_expect_eq(run("cmp %s %s", with, without), 0, "collecting details changes the table");
  static const char *const shown[] = {"Lockstep: PASS, 2 of 2 fixtures pass",
                                      "dflash_refusals.h5",
                                      "Ring of 24 slots",
                                      "right, written in this step",
                                      "Query ",
                                      "data:image/png;base64,"};
  for (size_t i = 0; i < sizeof shown / sizeof *shown; i++) cr_expect(holds(html, shown[i]), "%s", shown[i]);
  cr_expect(holds(json, "\"use_999\"") && holds(junit, "<testsuite name=\"attn_v41_single_token.h5\""));
  if (run("command -v xmllint >/dev/null") == 0) {
    cr_expect_eq(run("xmllint --noout --nonet %s", html), 0);
    cr_expect_eq(run("xmllint --noout --nonet --schema " LS_SOURCE_DIR "/tests/compare/schemas/junit-10.xsd %s 2>/dev/null", junit), 0);
  }
  run("rm -f %s %s %s %s %s", html, json, junit, with, without);
}

Test(report_files, the_same_whatever_the_threads) {
  char html[2][256];
  for (int i = 0; i < 2; i++) {
    scratch(html[i], i ? "two.html" : "one.html");
    cr_assert_eq(run("%s verify --path ref --threads %d --report %s " GOLDEN "dflash_rounds.h5 >/dev/null 2>&1", LOCKSTEP, i + 1, html[i]),
                 0);
    run("sed -i 's/threads.[0-9]*//g' %s", html[i]);
  }
  cr_expect_eq(run("cmp %s %s", html[0], html[1]), 0);
  run("rm -f %s %s", html[0], html[1]);
}

Test(report_files, a_run_that_does_not_finish_leaves_reports_that_say_so) {
  char html[256], junit[256];
  scratch(html, "b.html"), scratch(junit, "b.xml");
  cr_assert_eq(
      run("%s verify --path emu --step 99999 --report %s --junit %s " GOLDEN "dflash_refusals.h5 >/dev/null 2>&1", LOCKSTEP, html, junit),
      2);
  cr_expect(holds(html, "Not finished (usage): ") && holds(html, "Lockstep: FAIL, 0 of 1 fixtures pass"));
  cr_expect(holds(junit, "<error type=\"usage\""));
  run("rm -f %s %s", html, junit);
}

Test(report_files, a_file_that_cannot_be_written_is_told_before_anything_runs) {
  static const char *const option[] = {"--report", "--junit", "--json"};
  char said[256];
  scratch(said, "said.txt");
  for (int i = 0; i < 3; i++) {
    cr_expect_eq(run("%s verify %s /no/such/folder/x " GOLDEN "dflash_refusals.h5 >%s 2>&1", LOCKSTEP, option[i], said), 2, "%s",
                 option[i]);
    cr_expect(holds(said, option[i]) && holds(said, "/no/such/folder/x") && !holds(said, "verdict"), "%s", option[i]);
    cr_expect_eq(run("test $(wc -l <%s) = 1", said), 0);
  }
  run("rm -f %s", said);
}
