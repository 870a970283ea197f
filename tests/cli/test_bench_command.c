/* lockstep bench from outside: exit codes, the one clear line, what it writes. Whether this machine is quiet enough to be measured is not
 * this test's business: "measured" and "not measured" (4) are both right. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shell_run.h"

#define LOCKSTEP LS_BINARY_DIR "/lockstep"

enum { OUT = 1 << 16 };
static char out[OUT], folder[256];

/* lockstep bench with the arguments, in the test's folder; both streams land in out. */
static int bench(const char *arguments) { return shell_run(out, sizeof out, "cd %s && %s bench %s 2>&1", folder, LOCKSTEP, arguments); }

static void begin(void) {
  snprintf(folder, sizeof folder, "%s/bench-%d", LS_BINARY_DIR, (int)getpid());
  char command[300];
  snprintf(command, sizeof command, "mkdir -p %s", folder);
  cr_assert_eq(system(command), 0);
}
static void end(void) {
  char command[300];
  snprintf(command, sizeof command, "rm -rf %s", folder);
  cr_expect_eq(system(command), 0);
}
TestSuite(bench_command, .init = begin, .fini = end, .timeout = 240);

static void expect(int code, const char *text, const char *arguments) {
  const int found = bench(arguments);
  cr_expect_eq(found, code, "bench %s: expected exit %d, found %d:\n%s", arguments, code, found, out);
  cr_expect_not_null(strstr(out, text), "bench %s: expected '%s' in:\n%s", arguments, text, out);
}

static void expect_run(const char *text, const char *arguments) {
  const int found = bench(arguments);
  cr_expect(found == 0 || found == 4, "bench %s: found exit %d:\n%s", arguments, found, out);
  cr_expect_not_null(strstr(out, text), "bench %s: expected '%s' in:\n%s", arguments, text, out);
}

Test(bench_command, help_and_list) {
  expect(0, "usage: lockstep bench", "--help");
  expect(0, "attn/decode/index-r1/n=1048576", "--list");
}

Test(bench_command, words_that_are_none_are_refused) {
  expect(2, "no scenario 'dflash/rows=0'", "--path emu dflash/rows=0");
  expect(2, "--threshold: expected a percentage above 0, found 'x'", "--threshold x tiny/dflash/rows=1");
  expect(2, "--samples: expected a whole number from 1", "--samples 0");
  expect(2, "--history FILE is missing", "--plot p.html");
  expect(2, "--compare or --against", "--compare a --against b");
  expect(2, "usage: lockstep bench", "--unknown");
  expect(2, "--json", "--json nowhere/b.json --path emu tiny/dflash/rows=1");
  expect(3, "missing.h5", "--path emu missing.h5");
  expect(4, "", "--path emu --against ./nothing tiny/dflash/rows=1");
  expect(4, "expected it to be ready for its turns", "--path emu --against /bin/true tiny/dflash/rows=1");
}

Test(bench_command, figures_are_printed_kept_and_drawn) {
  expect_run("emu/tiny/dflash/rows=2", "--path ref,emu --parts --json b.json --history h.jsonl --plot p.html tiny/dflash/rows=2");
  cr_expect_not_null(strstr(out, "ref/tiny/dflash/rows=2"));
  char command[700];
  snprintf(command, sizeof command, "cd %s && grep -q emu/tiny/dflash/rows=2 b.json h.jsonl p.html && ls | wc -l | grep -qx 3", folder);
  cr_expect_eq(system(command), 0, "three files, and nothing beside them");
  expect(0, "", "--history h.jsonl --plot again.html");
  cr_expect_str_empty(out, "drawn without a run");
}

/* Too few rounds are no pass, whatever they say; five are judged. */
Test(bench_command, a_comparison_is_exit_4_where_it_cannot_be_decided) {
  expect_run("tiny", "--path ref --history h.jsonl tiny/dflash/rows=1");
  expect(4, "not measured", "--path ref --rounds 2 --compare h.jsonl tiny/dflash/rows=1");
  expect(3, "none.json", "--path ref --compare none.json tiny/dflash/rows=1");
}

Test(bench_command, two_builds_take_turns) {
  const int found = bench("--path emu --rounds 5 --samples 2 --threshold 900 --against " LOCKSTEP " tiny/dflash/rows=1");
  cr_expect(found == 0 || found == 4, "found exit %d:\n%s", found, out);
  cr_expect(strstr(out, "5 against 5 rounds") != NULL || strstr(out, "not measured") != NULL, "%s", out);
}
