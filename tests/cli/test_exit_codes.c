/* The command line from outside: exit codes, the one clear line, files left behind. Runs build/.../lockstep as a user would. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shell_run.h"

#define LOCKSTEP LS_BINARY_DIR "/lockstep"
#define GOLDEN   LS_SOURCE_DIR "/fixtures/golden/"

static void expect(int code, const char *text, const char *arguments) {
  static char out[1 << 16];
  int found = shell_run(out, sizeof out, "%s %s 2>&1", LOCKSTEP, arguments);
  cr_expect_eq(found, code, "lockstep %s: expected exit %d, found %d:\n%s", arguments, code, found, out);
  cr_expect_not_null(strstr(out, text), "lockstep %s: expected '%s' in:\n%s", arguments, text, out);
}

static void scratch(char *path, size_t size, const char *name) { snprintf(path, size, "%s/cli-%d-%s", LS_BINARY_DIR, (int)getpid(), name); }

Test(cli, a_golden_passes_on_every_cpu_path) {
  expect(0, "1 fixture: 1 pass, 0 fail", "verify --path ref,emu " GOLDEN "dflash_refusals.h5");
}

Test(cli, times_are_noted_when_asked_for) { expect(0, "context_write traced", "verify --path ref --times " GOLDEN "dflash_refusals.h5"); }

Test(cli, two_runs_give_the_same_report_whatever_the_threads) {
  char path[2][256], arguments[1024], out[1 << 14];
  for (int i = 0; i < 2; i++) {
    scratch(path[i], sizeof path[i], i ? "two.json" : "one.json");
    snprintf(arguments, sizeof arguments, "verify --path ref --threads %d --json %s " GOLDEN "dflash_rounds.h5", i + 1, path[i]);
    expect(0, "1 pass", arguments);
  }
  cr_expect_eq(shell_run(out, sizeof out, "sed s/threads.[0-9]*// %s > %s.x; sed s/threads.[0-9]*// %s | cmp - %s.x 2>&1", path[0], path[0],
                         path[1], path[0]),
               0, "the reports differ: %s", out);
  shell_run(out, sizeof out, "rm -f %s %s.x %s", path[0], path[0], path[1]);
}

Test(cli, the_double_reference_passes_too) { expect(0, "1 pass", "verify --path emu --precision f64 " GOLDEN "dflash_refusals.h5"); }

Test(cli, a_stage_and_a_step_can_be_chosen) {
  expect(0, "k_rope", "verify --path emu --stage k_rope.1 --step 5 " GOLDEN "dflash_rounds.h5");
  expect(2, "no step 4711", "verify --path ref --step 4711 " GOLDEN "dflash_rounds.h5");
}

Test(cli, nothing_compared_is_a_failure) { expect(1, "", "verify --path ref --stage no_such_stage " GOLDEN "dflash_rounds.h5"); }

Test(cli, wrong_words_are_usage) {
  expect(2, "unknown command", "frobnicate");
  expect(2, "no fixture named", "verify");
  expect(2, "--path", "verify --path tpu " GOLDEN "dflash_rounds.h5");
  expect(2, "--threads", "verify --threads none " GOLDEN "dflash_rounds.h5");
  expect(2, "--precision", "verify --precision f8 " GOLDEN "dflash_rounds.h5");
  expect(2, "expected the layer", "gen attention");
  expect(2, "--out", "gen dflash");
  expect(2, "--straddle", "gen dflash --straddle 2 --out /dev/null");
}

Test(cli, scripts_refuse_unknown_words_at_once) {
  static const char *const commands[] = {"test -N",     "test --nosuch",      "test core",       "test --preset",
                                         "test -R",     "test --valgrind -V", "lint everything", "build",
                                         "build --all", "faults nosuch",      "format --nosuch", "setup --nosuch"};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    char out[1 << 14];
    int code = shell_run(out, sizeof out, "timeout 20 %s/scripts/%s 2>&1", LS_SOURCE_DIR, commands[i]);
    cr_expect_eq(code, 2, "scripts/%s: expected exit 2, found %d: %s", commands[i], code, out);
    cr_expect(strstr(out, "usage") || strstr(out, "known:"), "scripts/%s: expected its usage, found: %s", commands[i], out);
  }
}

#if !defined(__SANITIZE_ADDRESS__) /* its shadow memory fits no limit */
Test(cli, a_limit_on_address_space_ends_in_a_line_not_in_a_hang) {
  static char out[1 << 14];
  int refused = 0;
  for (int mib = 100; mib <= 2000; mib += 200) {
    int code = shell_run(out, sizeof out, "(ulimit -v %d; timeout -s KILL 60 %s verify --path emu %sdflash_refusals.h5) 2>&1", mib << 10,
                         LOCKSTEP, GOLDEN);
    if (code == 127) continue; /* the loader's word: no room for the libraries of this build */
    cr_expect(code == 0 || code == 5, "ulimit -v of %d MiB: expected exit 0 or 5, found %d: %s", mib, code, out);
    refused += code == 5 && strstr(out, "the limit on address space (ulimit -v ") != NULL;
  }
  cr_expect_gt(refused, 0, "no limit was named");
}
#endif

Test(cli, a_missing_or_foreign_file_is_a_bad_fixture) {
  expect(3, "no_such_file.h5", "verify --path ref no_such_file.h5");
  expect(3, "test_exit_codes.c", "verify --path ref " LS_SOURCE_DIR "/tests/cli/test_exit_codes.c");
  expect(3, "no_such_file.h5", "info no_such_file.h5");
}

Test(cli, a_bad_file_does_not_hide_the_good_ones) {
  expect(3, "dflash_refusals.h5: PASS", "verify --path ref no_such_file.h5 " GOLDEN "dflash_refusals.h5");
}

Test(cli, a_truncated_fixture_is_one_clear_line) {
  char path[256], arguments[1024], out[1 << 14];
  scratch(path, sizeof path, "short.h5");
  cr_assert_eq(shell_run(out, sizeof out, "head -c 100000 %sdflash_rounds.h5 > %s", GOLDEN, path), 0);
  snprintf(arguments, sizeof arguments, "verify --path ref %s", path);
  expect(3, path, arguments);
  unlink(path);
}

Test(cli, info_lists_config_and_steps) {
  expect(0, "ring_capacity", "info " GOLDEN "dflash_rounds.h5");
  expect(0, "context_write", "info " GOLDEN "dflash_rounds.h5");
}

Test(cli, a_made_scenario_passes_against_itself_and_repeats_by_seed) {
  char path[2][256], arguments[1024], out[1 << 14];
  for (int i = 0; i < 2; i++) {
    scratch(path[i], sizeof path[i], i ? "b.h5" : "a.h5");
    snprintf(arguments, sizeof arguments, "gen dflash --seed 7 --rounds 6 --positions 100:400 --straddle 0.5 --out %s", path[i]);
    expect(0, "", arguments);
  }
  cr_expect_eq(shell_run(out, sizeof out, "cmp %s %s 2>&1", path[0], path[1]), 0, "the same seed gave other bytes: %s", out);
  snprintf(arguments, sizeof arguments, "verify --path emu %s", path[0]);
  expect(0, "1 pass", arguments);
  unlink(path[0]);
  unlink(path[1]);
}

Test(cli, a_wrong_expected_value_is_a_divergence_that_is_named) {
  /* the golden's cursor expectation is a plain attribute: a byte of a checksummed dataset would be exit 3 */
  char path[256], arguments[1024], json[256], out[1 << 14];
  scratch(path, sizeof path, "known.txt");
  scratch(json, sizeof json, "report.json");
  FILE *file = fopen(path, "w");
  cr_assert_not_null(file);
  fprintf(file, "# passes, so it must not be listed\ndflash_refusals.h5:k_rope:golden-ref\n");
  fclose(file);
  snprintf(arguments, sizeof arguments, "verify --path ref --known-failures %s --json %s " GOLDEN "dflash_refusals.h5", path, json);
  expect(1, "1 fixture: 1 pass, 0 fail, 1 known failure passes (the run fails)\n", arguments);
  struct stat s;
  cr_expect(stat(json, &s) == 0 && s.st_size > 100, "the JSON report is missing");
  cr_expect_eq(shell_run(out, sizeof out, "python3 -m json.tool %s >/dev/null 2>&1 || ! command -v python3 >/dev/null", json), 0,
               "the report is no JSON");
  unlink(path);
  unlink(json);
}

Test(cli, an_unwritable_report_is_said) {
  expect(2, "no-such-folder", "verify --path ref --json /no-such-folder/report.json " GOLDEN "dflash_refusals.h5");
  static char out[1 << 14];
  int code = shell_run(out, sizeof out, "%s verify --path ref %sdflash_refusals.h5 2>&1 >/dev/full", LOCKSTEP, GOLDEN);
  cr_expect_eq(code, 5, "a full disk: expected exit 5, found %d", code);
  cr_expect_not_null(strstr(out, "could not write"), "a full disk went unsaid: %s", out);
}

/* Both streams of the command, its output to a full disk, or to none at all. */
static void expect_unwritten(const char *arguments, const char *to) {
  static char out[1 << 14];
  int code = shell_run(out, sizeof out, "%s %s 2>&1 %s", LOCKSTEP, arguments, to);
  cr_expect_eq(code, 5, "lockstep %s %s: expected exit 5, found %d: %s", arguments, to, code, out);
  const char *end = strchr(out, '\n');
  cr_expect(end != NULL && end[1] == '\0' && strstr(out, "writ"), "lockstep %s %s: expected one line on it, found: %s", arguments, to, out);
}

Test(cli, output_that_cannot_be_written_is_never_a_success) {
  static const char *const commands[] = {"--help",
                                         "--version",
                                         "verify --help",
                                         "info --help",
                                         "gen --help",
                                         "gen dflash --help",
                                         "info " GOLDEN "dflash_refusals.h5",
                                         "info " GOLDEN "dflash_rounds.h5", /* more than a buffer of it */
                                         "verify --path ref " GOLDEN "dflash_refusals.h5"};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    expect_unwritten(commands[i], ">/dev/full");
    expect_unwritten(commands[i], ">&-");
  }
}

Test(cli, a_device_or_pipe_is_written_through_and_a_link_followed) {
  char link[256], target[256], fifo[256], arguments[1024], out[1 << 14];
  scratch(link, sizeof link, "link.json");
  scratch(target, sizeof target, "target.json");
  scratch(fifo, sizeof fifo, "fifo");
  cr_assert_eq(shell_run(out, sizeof out, "echo old > %s && ln -sf %s %s && mkfifo %s", target, target, link, fifo), 0, "%s", out);
  snprintf(arguments, sizeof arguments, "verify --path ref --json %s " GOLDEN "dflash_refusals.h5", link);
  expect(0, "1 pass", arguments);
  struct stat s;
  cr_expect(lstat(link, &s) == 0 && S_ISLNK(s.st_mode), "the link was replaced");
  cr_expect_eq(shell_run(out, sizeof out, "grep -q lockstep-report %s", target), 0, "the link's target was not written");
  cr_expect_eq(
      shell_run(out, sizeof out,
                "(timeout 20 grep -c lockstep-report < %s > %s.n &) ; timeout 20 %s verify --path ref --json %s %sdflash_refusals.h5", fifo,
                target, LOCKSTEP, fifo, GOLDEN),
      0, "%s", out);
  cr_expect(lstat(fifo, &s) == 0 && S_ISFIFO(s.st_mode), "the pipe was replaced");
  snprintf(arguments, sizeof arguments, "gen dflash --out %s", fifo);
  expect(2, "expected a regular file", arguments);
  shell_run(out, sizeof out, "rm -f %s %s %s %s.n", link, target, fifo, target);
}

Test(cli, an_interrupted_gen_leaves_no_file) {
  char path[256], out[1 << 14];
  scratch(path, sizeof path, "gen.h5");
  int code = shell_run(out, sizeof out, "timeout --preserve-status -s INT 1 %s gen dflash --rounds 100000 --out %s 2>&1", LOCKSTEP, path);
  cr_expect_eq(code, 130, "expected exit 130, found %d: %s", code, out);
  cr_expect_eq(shell_run(out, sizeof out, "ls %s* 2>/dev/null", path), 2, "left behind: %s", out);
}

Test(cli, known_failures_that_make_no_sense_are_usage) {
  char path[256], arguments[1024];
  scratch(path, sizeof path, "known-bad.txt");
  FILE *file = fopen(path, "w");
  cr_assert_not_null(file);
  fprintf(file, "garbage\n");
  fclose(file);
  snprintf(arguments, sizeof arguments, "verify --path ref --known-failures %s " GOLDEN "dflash_refusals.h5", path);
  expect(2, "garbage", arguments);
  snprintf(arguments, sizeof arguments, "verify --path ref --known-failures %s " GOLDEN "dflash_refusals.h5", LS_BINARY_DIR);
  expect(2, "cannot read", arguments);
  unlink(path);
}

Test(cli, without_a_device_cuda_is_unavailable) {
  char out[1 << 14];
  if (shell_run(out, sizeof out, "%s --version 2>&1 | grep -q '^cuda: available'", LOCKSTEP) == 0) return; /* there is one here */
  expect(4, "cuda", "verify --path cuda " GOLDEN "dflash_refusals.h5");
}

Test(cli, an_interrupt_keeps_what_ran) {
  static char out[1 << 16];
  int code =
      shell_run(out, sizeof out, "timeout --preserve-status -s INT 1 %s verify --path emu %sdflash_real_shape.h5 2>&1", LOCKSTEP, GOLDEN);
  cr_expect_eq(code, 130, "expected exit 130, found %d:\n%s", code, out);
  cr_expect_not_null(strstr(out, "NOT FINISHED (interrupted)"), "the report does not say that it is partial:\n%s", out);
}
