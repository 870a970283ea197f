/* lockstep fuzz and lockstep merge from outside: words, ends, reports, shards; and the corpus of shrunk cases. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "shell_run.h"

#define LOCKSTEP LS_BINARY_DIR "/lockstep"
#define GOLDEN   LS_SOURCE_DIR "/fixtures/golden/"

static char folder[256], out[1 << 16];

static void make_folder(void) {
  snprintf(folder, sizeof folder, "%s/fuzz-merge-%d", LS_BINARY_DIR, (int)getpid());
  cr_assert_eq(mkdir(folder, 0700), 0);
}

/* Runs the shell command in the folder; both streams land in out. */
static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int run(const char *format, ...) {
  char command[2048];
  va_list list;
  const int n = snprintf(command, sizeof command, "cd '%s' && exec 2>&1; ", folder);
  va_start(list, format);
  vsnprintf(command + n, sizeof command - (size_t)n, format, list);
  va_end(list);
  return shell_run(out, sizeof out, "%s", command);
}

static void remove_folder(void) { run("rm -rf '%s'", folder); }

TestSuite(fuzz_merge, .init = make_folder, .fini = remove_folder, .timeout = 300);

static void expect(int code, const char *text, const char *arguments) {
  const int found = run("%s %s", LOCKSTEP, arguments);
  cr_expect_eq(found, code, "lockstep %s: expected exit %d, found %d:\n%s", arguments, code, found, out);
  cr_expect_not_null(strstr(out, text), "lockstep %s: expected '%s' in:\n%s", arguments, text, out);
}

/* The value of a member of a JSON report, as its text up to the comma. */
static const char *member(const char *file, const char *name) {
  static char text[8][256];
  static int next;
  char *to = text[next++ % 8];
  char *const saved = strdup(out);
  run("grep -m1 '\"%s\":' %s | sed 's/.*\": //; s/,$//'", name, file);
  snprintf(to, sizeof text[0], "%.255s", out);
  strcpy(out, saved);
  free(saved);
  return to;
}

Test(fuzz_merge, wrong_words_are_usage) {
  expect(2, "usage: lockstep fuzz", "fuzz");
  expect(2, "expected the layer 'dflash' or 'attn', found 'attention'", "fuzz attention");
  expect(2, "unknown option '--frobnicate'", "fuzz dflash --frobnicate");
  expect(2, "'--seed' needs a value", "fuzz dflash --seed");
  expect(2, "--runs: expected a whole number from 1", "fuzz dflash --runs 0");
  expect(2, "--time: expected a whole number from 1", "fuzz attn --time -1");
  expect(2, "--shard: expected I/N", "fuzz dflash --shard 0/4");
  expect(2, "--shard: expected I/N", "fuzz dflash --shard 5/4");
  expect(2, "--shard: expected I/N", "verify --shard 1 " GOLDEN "dflash_refusals.h5");
  expect(2, "--case stands alone", "fuzz dflash --case 3 --runs 9");
  expect(2, "--out: expected a folder", "fuzz dflash --out /no/such/folder");
  expect(2, "--json", "fuzz dflash --json /no/such/folder/a.json");
  expect(2, "unexpected argument 'more'", "fuzz dflash --runs 1 more");
  expect(2, "--path", "fuzz dflash --path tpu");
  expect(2, "no report named", "merge");
  expect(2, "unknown option", "merge --out x y");
  expect(0, "usage: lockstep fuzz", "fuzz --help");
  expect(0, "--shard I/N", "fuzz attn --help");
  expect(0, "usage: lockstep merge", "merge --help");
  expect(0, "lockstep fuzz dflash|attn", "--help");
}

Test(fuzz_merge, a_short_run_of_each_layer_is_clean_on_emu) {
  expect(0, "0 failures", "fuzz dflash --runs 40 --path emu --json d.json --junit d.xml");
  expect(0, "0 failures", "fuzz attn --runs 12 --path emu --json a.json");
  cr_expect_str_eq(member("d.json", "cases"), "40\n");
  cr_expect_gt(atoll(member("d.json", "context_write")), 100);
  cr_expect_gt(atoll(member("a.json", "forward")), 100);
  expect(0, "1 case,", "fuzz dflash --case 7 --path emu");
}

Test(fuzz_merge, merged_shards_say_what_the_whole_says) {
  for (int i = 1; i <= 3; i++)
    cr_assert_eq(run("%s fuzz dflash --seed 2 --runs 20 --path ref --shard %d/3 --json s%d.json --junit s%d.xml", LOCKSTEP, i, i, i), 0,
                 "%s", out);
  cr_assert_eq(run("%s fuzz dflash --seed 2 --runs 20 --path ref --json whole.json", LOCKSTEP), 0, "%s", out);
  expect(0, "3 reports of fuzz dflash_context_kv", "merge --json m.json --junit m.xml s3.json s1.xml s1.json s3.xml s2.xml s2.json");
  static const char *const names[] = {"cases", "capture", "draft_write", "context_write", "rewind", "refused", "elements_compared", "seed"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    cr_expect_str_eq(member("m.json", names[i]), member("whole.json", names[i]), "%s", names[i]);
  cr_expect_eq(run("tr -d ' \\n' <m.json | grep -o '\"ran\":\\[1,2,3\\]'"), 0, "%s", out);
  expect(0, "1 report of fuzz", "merge m.json"); /* a merged report is a report */
  if (run("command -v xmllint") == 0)
    cr_expect_eq(run("xmllint --noout --nonet --schema " LS_SOURCE_DIR "/tests/compare/schemas/junit-10.xsd m.xml s1.xml"), 0, "%s", out);

  expect(1, "MISSING: shard 2 of 3", "merge --json n.json s3.json s1.json");
  cr_expect_str_eq(member("n.json", "exit_status"), "1\n");
  expect(1, "MISSING: shard 1, 3 of 3", "merge --junit n.xml s2.xml");
  cr_expect_eq(run("grep -c '<failure type=\"MISSING\"' n.xml"), 0, "%s", out);
  expect(3, "s1.json: shard 1 of 3 is there twice", "merge s1.json s2.json s1.json");
  expect(3, "expected one of 3 shards, as the reports before it, found one of 1", "merge s1.json whole.json");
  run("sed 's/\"seed\": \"2\"/\"seed\": \"3\"/' s2.json >other.json");
  expect(3, "other.json: expected a report of the same run as s1.json, seed \"2\", found \"3\"", "merge s1.json other.json s3.json");
  expect(2, "--junit: no report of that form", "merge --junit x.xml s1.json");
}

Test(fuzz_merge, what_is_no_report_is_told_in_one_line) {
  expect(3, "nothing.json: expected a report as JSON", "merge nothing.json");
  run("echo '{\"format\": \"lockstep-report\"}' >short.json; echo '[1]' >list.json; echo '<a/>' >a.xml; head -c 200 /dev/zero >zero.json; "
      "echo '<testsuites name=\"lockstep shard 9 of 2\"/>' >nine.xml; echo '<testsuites' >cut.xml");
  expect(3, "short.json: expected an integer named format_version, found nothing", "merge short.json");
  expect(3, "list.json: expected format lockstep-report or lockstep-fuzz, found none", "merge list.json");
  expect(3, "zero.json: expected a report as JSON", "merge zero.json");
  expect(3, "a.xml: expected a JUnit report", "merge a.xml");
  expect(3, "cut.xml: expected a JUnit report", "merge cut.xml");
  expect(3, "nine.xml: expected a shard from 1 to 2, found 9", "merge nine.xml");
}

Test(fuzz_merge, sharded_verify_merges_to_the_whole_report) {
  const char *const fixtures = GOLDEN "dflash_refusals.h5 " GOLDEN "dflash_far_position.h5 " GOLDEN "attn_v41_single_token.h5";
  for (int i = 1; i <= 2; i++)
    cr_assert_eq(run("%s verify --path ref --shard %d/2 --json v%d.json --junit v%d.xml %s", LOCKSTEP, i, i, i, fixtures), 0, "%s", out);
  cr_assert_eq(run("%s verify --path ref --json whole.json %s", LOCKSTEP, fixtures), 0, "%s", out);
  expect(0, "2 reports of verify", "merge --json m.json v2.json v1.json");
  /* but for the list of shards it is the report of the whole */
  cr_expect_eq(
      run("python3 -c \"import json; m, w = json.load(open('m.json')), json.load(open('whole.json')); del m['shards']; assert m == w\""), 0,
      "%s", out);
  expect(0, "2 JUnit reports", "merge v1.xml v2.xml");
  expect(1, "MISSING: shard 1 of 2", "merge v2.json");
}

/* A report with a failure, and one that a known failure excuses, keep their exit codes when they are merged. */
Test(fuzz_merge, the_exit_code_is_that_of_the_whole) {
  run("echo 'no fixture' >bad.h5; echo '*:k_rope:ref-emu' >known");
  cr_expect_eq(run("%s verify --path ref --shard 1/2 --json a.json --junit a.xml " GOLDEN "dflash_refusals.h5 bad.h5", LOCKSTEP), 0, "%s",
               out);
  cr_expect_eq(run("%s verify --path ref --shard 2/2 --json b.json --junit b.xml " GOLDEN "dflash_refusals.h5 bad.h5", LOCKSTEP), 3, "%s",
               out);
  expect(3, "bad fixture", "merge a.json b.json");
  expect(3, "bad fixture", "merge a.xml b.xml");
  cr_expect_eq(run("%s verify --path emu --known-failures known --json k.json " GOLDEN "dflash_refusals.h5", LOCKSTEP), 1, "%s", out);
  expect(1, "diverged", "merge k.json");
}

Test(fuzz_merge, an_interrupt_ends_a_run_in_order_with_its_reports) {
  const int code = run("%s fuzz dflash --path ref --time 100 --jobs 2 --json i.json >i.txt & sleep 1.5; kill -INT $!; wait $!", LOCKSTEP);
  cr_expect_eq(code, 130, "exit %d: %s", code, out);
  cr_expect_eq(run("grep 'INTERRUPTED, 0 failures' i.txt"), 0, "%s", out);
  cr_expect_str_eq(member("i.json", "interrupted"), "true\n");
  cr_expect_str_eq(member("i.json", "exit_status"), "130\n");
  expect(130, "interrupted", "merge i.json");
  cr_expect_neq(run("pgrep -f '[f]uzz dflash --path ref --time 100 --jobs 2 --json i[.]json'"), 0, "a worker is left: %s", out);
}

Test(fuzz_merge, every_shrunk_case_of_the_corpus_passes) {
  expect(0, "12 fixtures: 12 pass",
         "verify --path emu --relations --trust --allow-mistrusted " LS_SOURCE_DIR "/fixtures/corpus/*.h5 | tail -1");
  cr_expect_not_null(strstr(out, " pass, 0 fail"), "%s", out);
}
