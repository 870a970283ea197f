/* Fuzz runs from within: which cases run, what a path that lies in a known way is shrunk to, and how a run ends that something ends. */
#include <criterion/criterion.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/session_fuzz.h"
#include "session_run.h"

static volatile sig_atomic_t interrupted;

static char folder[SCRATCH];

static void make_folder(void) {
  session_scratch(folder, "fuzz");
  mkdir(folder, 0700);
}

static void remove_folder(void) {
  char command[2 * SCRATCH];
  snprintf(command, sizeof command, "rm -rf '%s'", folder);
  cr_expect_eq(system(command), 0);
}

TestSuite(session_fuzz, .init = make_folder, .fini = remove_folder, .timeout = 300);

/* path NULL: the reference alone. */
static ls_verify_options verify_options(const ls_path *path) {
  ls_verify_options v = {.only_step = -1, .interrupted = &interrupted, .n_paths = path != NULL ? 2 : 1};
  v.path[0] = &ls_path_ref;
  v.path[1] = path;
  return v;
}

static ls_fuzz_options options_of(const ls_verify_options *verify) {
  return (ls_fuzz_options){.layer = &ls_layer_dflash_context_kv,
                           .layer_word = "dflash",
                           .seed = 11,
                           .only = -1,
                           .runs = 24,
                           .shards = 1,
                           .jobs = 2,
                           .failures = 1,
                           .shrink = 2000,
                           .timeout = 60,
                           .folder = folder,
                           .repeat_options = "--path cheat",
                           .verify = verify};
}

static ls_fuzz_report run(const ls_fuzz_options *o, ls_status expected) {
  ls_fuzz_report report = {.layer = o->layer, .seed = o->seed, .shards = o->shards, .shard = o->shard};
  ls_error err = {LS_OK, ""};
  const ls_status status = ls_fuzz_run(o, &report, &err);
  cr_assert_eq(status, expected, "status %d: %s", (int)status, err.text);
  return report;
}

/* ---- which cases ---- */

Test(session_fuzz, shards_and_processes_run_the_cases_of_the_whole) {
  const ls_verify_options v = verify_options(NULL);
  ls_fuzz_options o = options_of(&v);
  ls_fuzz_report whole = run(&o, LS_OK), sum = {.cases = 0};
  cr_expect_eq(whole.cases, 24);
  o.shards = 3;
  for (o.shard = 0; o.shard < 3; o.shard++) {
    o.jobs = (int)o.shard; /* 0: in this process */
    ls_fuzz_report one = run(&o, LS_OK);
    cr_expect_eq(one.cases, 8);
    sum.cases += one.cases, sum.refused += one.refused, sum.compared += one.compared;
    for (int op = 0; op < LS_OPS; op++) sum.op[op] += one.op[op];
    ls_fuzz_report_free(&one);
  }
  cr_expect(sum.cases == whole.cases && sum.refused == whole.refused && sum.compared == whole.compared && whole.refused > 0);
  cr_expect_eq(memcmp(sum.op, whole.op, sizeof sum.op), 0);
  ls_fuzz_report_free(&whole);
}

Test(session_fuzz, a_clean_case_of_each_layer_is_clean_on_emu) {
  const ls_verify_options v = verify_options(ls_path_find("emu"));
  ls_fuzz_options o = options_of(&v);
  o.runs = 16;
  ls_fuzz_report dflash = run(&o, LS_OK);
  o.layer = &ls_layer_attn_v41;
  o.runs = 8;
  ls_fuzz_report attn = run(&o, LS_OK);
  cr_expect(dflash.cases == 16 && dflash.failures == 0, "%s", dflash.failures > 0 ? dflash.failure[0].finding : "");
  cr_expect(attn.cases == 8 && attn.failures == 0 && attn.compared > 10000, "%s", attn.failures > 0 ? attn.failure[0].finding : "");
  ls_fuzz_report_free(&dflash);
  ls_fuzz_report_free(&attn);
}

/* ---- lies ---- */

/* The one failure of a run, with what it must be. */
static ls_fuzz_failure only_failure(const ls_fuzz_report *report, const char *name, int64_t steps) {
  struct stat at;
  cr_assert_eq(report->failures, 1, "%d failures in %d cases", (int)report->failures, (int)report->cases);
  const ls_fuzz_failure f = report->failure[0];
  cr_expect_str_eq(f.name, name, "%s", f.finding);
  cr_expect_eq(f.steps, steps, "%s", f.history);
  cr_expect(f.steps_before > f.steps && f.tried > 0);
  cr_expect(f.file != NULL && stat(f.file, &at) == 0 && at.st_size < 40000, "%s", f.file);
  cr_expect_not_null(strstr(f.repeat_case, "--seed 11 --case "), "%s", f.repeat_case);
  return f;
}

/* A second row that is written leaves a mark in the first slot of layer 0. */
static void mark_two_rows(const ls_step *step, const ls_trace *out, ls_trace *state) {
  if (out == NULL || step->op != LS_OP_CONTEXT_WRITE || step->rows < 2) return;
  const ls_tensor *ring = ls_trace_tensor(state, "v_ring");
  ls_tensor_set(ring, 0, ls_tensor_get(ring, 0) + 64);
}

Test(session_fuzz, a_lie_about_two_rows_shrinks_to_two_rows_and_the_file_shows_it) {
  const ls_verify_options v = verify_options(session_cheat(&(session_lies){.state = mark_two_rows}));
  ls_fuzz_options o = options_of(&v);
  o.jobs = 0;
  ls_fuzz_report report = run(&o, LS_OK);
  cr_assert_eq(report.failures, 1);
  const ls_fuzz_failure f = only_failure(&report, report.failure[0].name, 2);
  cr_expect_not_null(strstr(f.history, "rows 2) context_write(rows 2)"), "%s", f.history);
  session_how how = {.path = v.path[1], .allow_mistrusted = true};
  char *text = NULL;
  cr_expect_eq(session_verify(f.file, &how, &text), LS_DIVERGED);
  cr_expect_not_null(strstr(text, f.name), "%s", text);
  free(text);
  ls_fuzz_report_free(&report);
}

static ls_status lazy_rewind(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  return step->op == LS_OP_REWIND && !step->expect_refused ? LS_OK : ls_path_ref.step(ctx, step, given, out, true, err);
}

Test(session_fuzz, the_same_case_fails_first_however_many_processes_look) {
  const ls_verify_options v = verify_options(session_cheat(&(session_lies){.step = lazy_rewind}));
  ls_fuzz_options o = options_of(&v);
  o.runs = 60;
  char *history = NULL;
  int64_t number = -1;
  for (o.jobs = 0; o.jobs <= 3; o.jobs += 3) {
    ls_fuzz_report report = run(&o, LS_OK);
    const ls_fuzz_failure f = only_failure(&report, "cursor", 3); /* capture, context_write, rewind */
    if (o.jobs > 0) cr_expect(f.number == number && strcmp(f.history, history) == 0, "case %d and case %d", (int)f.number, (int)number);
    free(history);
    history = strdup(f.history);
    number = f.number;
    ls_fuzz_report_free(&report);
  }
  free(history);
}

static ls_status dies_of_rewind(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  if (step->op == LS_OP_REWIND) {
    signal(SIGABRT, SIG_DFL);
    abort();
  }
  return ls_path_ref.step(ctx, step, given, out, true, err);
}

Test(session_fuzz, a_crash_is_a_finding_and_shrinks) {
  const ls_verify_options v = verify_options(session_cheat(&(session_lies){.step = dies_of_rewind}));
  const ls_fuzz_options o = options_of(&v);
  ls_fuzz_report report = run(&o, LS_OK);
  const ls_fuzz_failure f = only_failure(&report, "Aborted", 1);
  cr_expect_eq(strncmp(f.history, "rewind(", 7), 0, "%s", f.history);
  ls_fuzz_report_free(&report);
}

static ls_status hangs(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  if (step->op == LS_OP_REWIND) sleep(600);
  return ls_path_ref.step(ctx, step, given, out, true, err);
}

Test(session_fuzz, a_hang_is_a_finding) {
  const ls_verify_options v = verify_options(session_cheat(&(session_lies){.step = hangs}));
  ls_fuzz_options o = options_of(&v);
  o.timeout = 2;
  o.shrink = 1;
  ls_fuzz_report report = run(&o, LS_OK);
  cr_assert_eq(report.failures, 1);
  cr_expect_str_eq(report.failure[0].name, "hang", "%s", report.failure[0].finding);
  ls_fuzz_report_free(&report);
}

static ls_status gives_up_at_draft(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  if (step->op == LS_OP_DRAFT_WRITE) return ls_fail(err, LS_INTERNAL, "device fault at 0x%llx", (unsigned long long)step->base);
  return ls_path_ref.step(ctx, step, given, out, true, err);
}

Test(session_fuzz, a_path_that_gives_up_is_a_finding) {
  const ls_verify_options v = verify_options(session_cheat(&(session_lies){.step = gives_up_at_draft}));
  const ls_fuzz_options o = options_of(&v);
  ls_fuzz_report report = run(&o, LS_OK);
  cr_assert_eq(report.failures, 1);
  cr_expect_not_null(strstr(report.failure[0].name, "device fault"), "%s", report.failure[0].name);
  cr_expect_eq(report.failure[0].steps, 1, "%s", report.failure[0].history);
  ls_fuzz_report_free(&report);
}

/* Two lies: what is shrunk keeps to the one that was found, though the other is shorter. */
static ls_status two_lies(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  if (step->op == LS_OP_DRAFT_WRITE && step->rows == 1 && !step->expect_refused)
    return ls_fail(err, LS_INTERNAL, "a draft of one row"); /* shorter, and reached by shrinking */
  return lazy_rewind(ctx, step, given, out, err);
}

Test(session_fuzz, shrinking_does_not_slide_into_another_fault) {
  const ls_verify_options v = verify_options(session_cheat(&(session_lies){.step = two_lies}));
  ls_fuzz_options o = options_of(&v);
  o.failures = 12;
  o.runs = 60;
  ls_fuzz_report report = run(&o, LS_OK);
  int64_t cursors = 0;
  for (int64_t i = 0; i < report.failures; i++) {
    if (strcmp(report.failure[i].name, "cursor") != 0) continue;
    cursors++;
    cr_expect_eq(report.failure[i].steps, 3, "%s", report.failure[i].history);
    cr_expect_null(strstr(report.failure[i].history, "draft_write"), "%s", report.failure[i].history);
  }
  cr_expect(cursors > 0 && cursors < report.failures, "%d of %d", (int)cursors, (int)report.failures);
  ls_fuzz_report_free(&report);
}

/* ---- ends ---- */

Test(session_fuzz, a_limit_of_time_ends_it) {
  const ls_verify_options v = verify_options(NULL);
  ls_fuzz_options o = options_of(&v);
  o.runs = 0;
  o.seconds = 1;
  ls_fuzz_report report = run(&o, LS_OK);
  cr_expect(report.cases > 0 && report.seconds >= 1 && report.seconds < 30, "%d cases in %g s", (int)report.cases, report.seconds);
  ls_fuzz_report_free(&report);
}

Test(session_fuzz, an_interrupt_ends_it_with_what_ran) {
  const ls_verify_options v = verify_options(NULL);
  ls_fuzz_options o = options_of(&v);
  interrupted = 1;
  for (o.jobs = 0; o.jobs < 3; o.jobs += 2) {
    ls_fuzz_report report = run(&o, LS_OK);
    cr_expect(report.interrupted && report.cases == 0 && ls_fuzz_report_status(&report) == LS_INTERRUPTED);
    ls_fuzz_report_free(&report);
  }
  interrupted = 0;
}

Test(session_fuzz, a_failure_that_cannot_be_written_is_told) {
  const ls_verify_options v = verify_options(session_cheat(&(session_lies){.step = lazy_rewind}));
  ls_fuzz_options o = options_of(&v);
  o.folder = "/proc/no such folder";
  o.shrink = 0;
  o.runs = 60;
  ls_fuzz_report report = run(&o, LS_USAGE);
  cr_assert_eq(report.failures, 1);
  cr_expect(report.failure[0].steps == report.failure[0].steps_before && report.failure[0].finding != NULL);
  ls_fuzz_report_free(&report);
}
