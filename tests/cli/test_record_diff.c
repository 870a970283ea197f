/* lockstep record and lockstep diff from outside: exit codes, the one clear line, files left behind. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "shell_run.h"

#define LOCKSTEP LS_BINARY_DIR "/lockstep"
#define GOLDEN   LS_SOURCE_DIR "/fixtures/golden/"

enum { OUT = 1 << 16 };
static char out[OUT];

#define run(...) shell_run(out, sizeof out, __VA_ARGS__)

static char folder[256];

static void begin(void) {
  snprintf(folder, sizeof folder, "%s/record-%d", LS_BINARY_DIR, (int)getpid());
  cr_assert_eq(run("mkdir -p %s", folder), 0);
}
static void end(void) { run("rm -rf %s", folder); }

TestSuite(record_diff, .init = begin, .fini = end, .timeout = 300);

/* lockstep with the arguments, in the test's folder. */
static void expect(int code, const char *text, const char *arguments) {
  const int found = run("cd %s && %s %s 2>&1", folder, LOCKSTEP, arguments);
  cr_expect_eq(found, code, "lockstep %s: expected exit %d, found %d:\n%s", arguments, code, found, out);
  cr_expect_not_null(strstr(out, text), "lockstep %s: expected '%s' in:\n%s", arguments, text, out);
}

static void expect_line(int code, const char *text, const char *arguments) {
  expect(code, text, arguments);
  const char *stop = strchr(out, '\n');
  cr_expect(stop != NULL && stop[1] == '\0', "lockstep %s: expected one line, found:\n%s", arguments, out);
}

Test(record_diff, a_recording_is_judged_and_described) {
  expect(0, "a.h5: trace of path emu, 62 steps, ", "record --path emu --out a.h5 " GOLDEN "dflash_refusals.h5");
  expect(0, "b.h5: digest of path ref, 62 steps, ", "record --path ref --digest --out b.h5 " GOLDEN "dflash_refusals.h5");
  expect(0, "1 fixture: 1 pass, 0 fail", "diff a.h5 ref");
  expect(0, "1 fixture: 1 pass, 0 fail", "diff emu a.h5");
  expect(0, "emu@A-ref@B", "diff a.h5 b.h5");
  expect(0, "1 fixture: 1 pass", "diff --stage k_rope.1 --step 8 a.h5 b.h5");
  cr_expect_null(strstr(out, "v_proj  "), "only k_rope was asked for: %s", out);
  expect(0, "holds    every stage of path emu", "info a.h5");
  static const char *const about[] = {
      "commit", "compiler", "flags", "blas", "cpu", "date", "command            record --path emu --out a.h5"};
  for (size_t i = 0; i < sizeof about / sizeof *about; i++) cr_expect_not_null(strstr(out, about[i]), "%s: %s", about[i], out);
  expect(0, "holds    a digest of path ref", "info b.h5");
}

Test(record_diff, a_trace_of_attn_is_judged) {
  expect(0, "a.h5: trace", "record --path emu --out a.h5 " GOLDEN "attn_v41_single_token.h5");
  expect(0, "1 fixture: 1 pass, 0 fail", "diff --json r.json a.h5 ref");
  cr_expect_eq(run("grep -q '\"golden-emu@A\"' %s/r.json && grep -q '\"format\": \"lockstep-report\"' %s/r.json", folder, folder), 0);
}

Test(record_diff, the_fixture_is_found_where_it_was_beside_the_trace_or_where_it_is_said_to_be) {
  cr_assert_eq(run("cd %s && mkdir there here && cp %sdflash_refusals.h5 there/f.h5", folder, GOLDEN), 0, "%s", out);
  expect(0, "", "record --path emu --out there/a.h5 there/f.h5");
  expect(0, "1 pass", "diff there/a.h5 ref");
  cr_assert_eq(run("cd %s && mv there/a.h5 there/f.h5 here", folder), 0);
  expect(0, "1 pass", "diff here/a.h5 ref");
  cr_assert_eq(run("cd %s && mv here/f.h5 there/g.h5", folder), 0);
  expect_line(2, "was recorded from there/f.h5, which is not here: --fixture FILE says where it is", "diff here/a.h5 ref");
  expect(0, "1 pass", "diff --fixture there/g.h5 here/a.h5 ref");
  expect(3, "of another fixture (there/f.h5)", "diff --fixture " GOLDEN "dflash_rounds.h5 here/a.h5 ref");
  expect(3, "no.h5", "diff --fixture no.h5 here/a.h5 ref");
}

Test(record_diff, two_builds_that_differ_are_told_apart) {
  expect(0, "", "gen dflash --seed 3 --rounds 3 --out f.h5");
  expect(0, "", "gen dflash --seed 4 --rounds 3 --out g.h5");
  expect(0, "", "record --path emu --out a.h5 f.h5");
  expect(0, "", "record --path emu --out b.h5 g.h5");
  expect(3, "of another fixture", "diff a.h5 b.h5");
}

Test(record_diff, wrong_words_are_usage) {
  expect(2, "--out TRACE is needed", "record " GOLDEN "dflash_refusals.h5");
  expect(2, "expected one fixture", "record --out a.h5");
  expect_line(2, "expected ref, cuda, emu, auto, a library", "record --path tpu --out a.h5 " GOLDEN "dflash_refusals.h5");
  expect(2, "expected two traces, or a trace and a path", "diff a.h5");
  expect_line(2, "at least one of ref and emu has to be a trace", "diff ref emu");
  expect(2, "unknown option '--path'", "diff --path emu a.h5 ref");
  expect(2, "unknown option '--relations'", "diff --relations a.h5 ref");
  expect(2, "unknown option '--fixture'", "verify --path ref --fixture x " GOLDEN "dflash_refusals.h5");
  expect(0, "usage: lockstep record", "record --help");
  expect(0, "usage: lockstep diff", "diff --help");
}

Test(record_diff, what_is_no_trace_is_a_bad_file_and_one_line) {
  expect_line(3, "no.h5: cannot be opened", "diff no.h5 ref");
  expect_line(3, "expected \"lockstep-trace\", found \"lockstep-fixture\"", "diff " GOLDEN "dflash_refusals.h5 ref");
  expect(0, "", "record --path emu --out a.h5 " GOLDEN "dflash_refusals.h5");
  expect(3, "/@format: expected \"lockstep-fixture\", found \"lockstep-trace\"", "verify --path ref a.h5");
  for (int i = 0; i < 20; i++) {
    cr_assert_eq(run("cd %s && head -c $(($(wc -c < a.h5) * %d / 20)) a.h5 > cut.h5", folder, i), 0);
    expect_line(3, "cut.h5", "diff cut.h5 ref");
  }
}

Test(record_diff, an_output_that_cannot_be_made_is_told_at_once) {
  expect_line(2, "/no-such-folder/a.h5", "record --path ref --out /no-such-folder/a.h5 " GOLDEN "dflash_refusals.h5");
  expect_line(2, "expected a regular file", "record --path ref --out /dev/null " GOLDEN "dflash_refusals.h5");
  expect_line(2, "--out: .: cannot be written", "record --path ref --out . " GOLDEN "dflash_refusals.h5");
}

Test(record_diff, a_bad_fixture_leaves_no_recording) {
  cr_assert_eq(run("cd %s && head -c 100000 %sdflash_refusals.h5 > short.h5", folder, GOLDEN), 0);
  expect(3, "short.h5", "record --path ref --out a.h5 short.h5");
  cr_expect_eq(run("ls %s/a.h5* 2>/dev/null", folder), 2, "left behind: %s", out);
}

Test(record_diff, an_interrupted_recording_leaves_no_file) {
  const int code = run("cd %s && timeout --preserve-status -s INT 1 %s record --path emu --out a.h5 %sdflash_real_shape.h5 2>&1", folder,
                       LOCKSTEP, GOLDEN);
  cr_expect_eq(code, 130, "expected exit 130, found %d: %s", code, out);
  cr_expect_eq(run("ls %s/a.h5* 2>/dev/null", folder), 2, "left behind: %s", out);
}

Test(record_diff, the_version_names_the_commit) { expect(0, "(commit ", "--version"); }

Test(record_diff, the_version_names_libraries_and_paths) {
  expect(0, "\nHDF5 1.", "--version");
  expect(0, "\nOpenBLAS ", "--version");
  expect(0, "\ncompiler: ", "--version");
  expect(0, "\nemu: available\ncuda: ", "--version");
  expect(0, "\"openblas\": \"OpenBLAS ", "--version --json");
  expect(0, "\"emu\": \"available\"", "--version --json");
  expect(0, "\"devices\": [", "--version --json");
  expect(2, "unexpected '--jsn' (known: --json)", "--version --jsn");
  expect(2, "unexpected 'more' (known: --json)", "--version --json more");
}
