/* liblockstep from C, in this process: what it comes to, what it says, and that it writes nothing of its own anywhere. */
#include <criterion/criterion.h>
#include <criterion/redirect.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "include/lockstep/lockstep.h"

static const char refusals[] = LS_SOURCE_DIR "/fixtures/golden/dflash_refusals.h5";

Test(lockstep_api, a_fixture_that_passes_and_its_report_in_every_form) {
  lockstep_options options = LOCKSTEP_OPTIONS_INIT;
  lockstep_finding first = LOCKSTEP_FINDING_INIT;
  lockstep_report *report = lockstep_report_new(0);
  options.paths = "emu";
  cr_assert_not_null(report);
  cr_expect_eq(lockstep_report_status(report), LOCKSTEP_DIVERGES, "nothing is proved before the first fixture");
  cr_redirect_stdout();
  cr_redirect_stderr();
  cr_assert_eq(lockstep_verify(report, refusals, &options, &first), LOCKSTEP_PASSES, "%s", lockstep_report_why(report));
  cr_expect_stdout_eq_str("");
  cr_expect_stderr_eq_str("");
  cr_expect_eq(first.found, 0);
  cr_expect_eq(first.size, sizeof first);
  cr_expect_eq(lockstep_report_status(report), LOCKSTEP_PASSES);
  cr_expect_str_empty(lockstep_report_why(report));
  const char *folder = getenv("TMPDIR") != NULL ? getenv("TMPDIR") : P_tmpdir;
  static const char *const begins[] = {"", "{", "<?xml", "<!DOCTYPE html>"};
  for (int32_t format = LOCKSTEP_TEXT; format <= LOCKSTEP_HTML; format++) {
    char file[256], start[64] = "";
    snprintf(file, sizeof file, "%s/lockstep_api.%ld.%d", folder, (long)getpid(), (int)format);
    cr_assert_eq(lockstep_report_write(report, format, file), LOCKSTEP_PASSES, "%s", lockstep_report_why(report));
    FILE *in = fopen(file, "r");
    cr_assert_not_null(in);
    cr_expect_gt(fread(start, 1, sizeof start - 1, in), 20);
    fclose(in);
    unlink(file);
    cr_expect_eq(strncmp(start, begins[format], strlen(begins[format])), 0, "format %d begins '%s'", (int)format, start);
  }
  lockstep_report_free(report);
  lockstep_report_free(NULL);
  cr_expect_eq(strncmp(lockstep_version(), "0.", 2), 0);
}

typedef struct {
  const char *fixture, *paths, *says;
  uint32_t size;
  int32_t threads, device, status;
  int64_t step;
  double timeout;
} wrong;

Test(lockstep_api, what_is_wrong_with_a_call_is_said_in_one_line) {
  const uint32_t all = sizeof(lockstep_options);
  const wrong cases[] = {
      {"", "ref", "no fixture", all, 0, 0, LOCKSTEP_WRONG_CALL, -1, 0},
      {NULL, "ref", "no fixture", all, 0, 0, LOCKSTEP_WRONG_CALL, -1, 0},
      {refusals, "ref", "options.size", all - 8, 0, 0, LOCKSTEP_WRONG_CALL, -1, 0},
      {refusals, "ref", "options.threads", all, -1, 0, LOCKSTEP_WRONG_CALL, -1, 0},
      {refusals, "ref", "options.device", all, 0, -2, LOCKSTEP_WRONG_CALL, -1, 0},
      {refusals, "ref", "options.step", all, 0, 0, LOCKSTEP_WRONG_CALL, -2, 0},
      {refusals, "ref", "options.timeout", all, 0, 0, LOCKSTEP_WRONG_CALL, -1, -1},
      {refusals, "emu,nonsense", "found 'nonsense'", all, 0, 0, LOCKSTEP_WRONG_CALL, -1, 0},
      {"/nowhere.h5", "ref", "/nowhere.h5", all, 0, 0, LOCKSTEP_BAD_FIXTURE, -1, 0},
      {__FILE__, "ref", "HDF5", all, 0, 0, LOCKSTEP_BAD_FIXTURE, -1, 0},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    const wrong *c = &cases[i];
    lockstep_options options = LOCKSTEP_OPTIONS_INIT;
    lockstep_report *report = lockstep_report_new(0);
    options.size = c->size;
    options.paths = c->paths;
    options.threads = c->threads;
    options.device = c->device;
    options.step = c->step;
    options.timeout = c->timeout;
    cr_expect_eq(lockstep_verify(report, c->fixture, &options, NULL), c->status, "case %zu: %s", i, lockstep_report_why(report));
    cr_expect_not_null(strstr(lockstep_report_why(report), c->says), "case %zu: %s", i, lockstep_report_why(report));
    cr_expect_null(strchr(lockstep_report_why(report), '\n'));
    lockstep_report_free(report);
  }
  lockstep_report *report = lockstep_report_new(0);
  lockstep_finding small = LOCKSTEP_FINDING_INIT;
  small.size = 8;
  cr_expect_eq(lockstep_verify(report, refusals, NULL, &small), LOCKSTEP_WRONG_CALL);
  cr_expect_eq(lockstep_verify(NULL, refusals, NULL, NULL), LOCKSTEP_WRONG_CALL);
  cr_expect_eq(lockstep_report_write(report, 7, "x"), LOCKSTEP_WRONG_CALL);
  cr_expect_eq(lockstep_report_write(report, LOCKSTEP_JSON, "/nowhere/x"), LOCKSTEP_WRONG_CALL);
  cr_expect_eq(lockstep_report_write(report, LOCKSTEP_TEXT, "/nowhere/x"), LOCKSTEP_WRONG_CALL);
  for (int32_t format = LOCKSTEP_TEXT; format <= LOCKSTEP_HTML; format++)
    cr_expect_eq(lockstep_report_write(report, format, "/dev/full"), LOCKSTEP_INTERNAL, "format %d", (int)format);
  lockstep_report_free(report);
}

Test(lockstep_api, a_report_that_cannot_be_written_leaves_the_file_that_was_there) {
  char folder[256], file[300], was[32] = "";
  lockstep_report *report = lockstep_report_new(0);
  snprintf(folder, sizeof folder, "%s/lockstep_api.XXXXXX", getenv("TMPDIR") != NULL ? getenv("TMPDIR") : P_tmpdir);
  cr_assert_not_null(mkdtemp(folder));
  for (int32_t format = LOCKSTEP_TEXT; format <= LOCKSTEP_HTML; format++) {
    snprintf(file, sizeof file, "%s/report", folder);
    FILE *out = fopen(file, "w");
    cr_assert_not_null(out);
    fputs("before", out);
    fclose(out);
    const struct rlimit none = {0, RLIM_INFINITY};
    struct rlimit usual;
    signal(SIGXFSZ, SIG_IGN);
    cr_assert_eq(getrlimit(RLIMIT_FSIZE, &usual), 0);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &none), 0);
    const int32_t status = lockstep_report_write(report, format, file);
    cr_assert_eq(setrlimit(RLIMIT_FSIZE, &usual), 0);
    cr_expect_eq(status, LOCKSTEP_INTERNAL, "format %d: %s", (int)format, lockstep_report_why(report));
    FILE *in = fopen(file, "r");
    cr_assert_not_null(in);
    cr_expect_not_null(fgets(was, sizeof was, in));
    fclose(in);
    cr_expect_str_eq(was, "before", "format %d", (int)format);
    cr_expect_eq(unlink(file), 0);
    cr_expect_eq(rmdir(folder), 0, "format %d left another file", (int)format);
    cr_expect_eq(mkdir(folder, 0700), 0);
  }
  cr_expect_eq(rmdir(folder), 0);
  lockstep_report_free(report);
}

Test(lockstep_api, a_library_without_a_program_to_run_it_in) {
  lockstep_options options = LOCKSTEP_OPTIONS_INIT;
  lockstep_report *report = lockstep_report_new(0);
  options.paths = "./libmine.so";
  setenv("PATH", "/nowhere:", 1);
  cr_expect_eq(lockstep_verify(report, refusals, &options, NULL), LOCKSTEP_NO_PATH);
  cr_expect_not_null(strstr(lockstep_report_why(report), "lockstep is no program that can be run"), "%s", lockstep_report_why(report));
  options.program = LS_SOURCE_DIR;
  cr_expect_eq(lockstep_verify(report, refusals, &options, NULL), LOCKSTEP_NO_PATH);
  options.program = __FILE__;
  cr_expect_eq(lockstep_verify(report, refusals, &options, NULL), LOCKSTEP_NO_PATH);
  cr_expect_not_null(strstr(lockstep_report_why(report), "test_lockstep_api.c is no program"), "%s", lockstep_report_why(report));
  lockstep_report_free(report);
}

Test(lockstep_api, a_stage_and_a_step_alone_and_a_caller_of_a_longer_struct) {
  struct {
    lockstep_options known;
    char later[64];
  } options = {LOCKSTEP_OPTIONS_INIT, "a field of a later header"};
  lockstep_report *report = lockstep_report_new(LOCKSTEP_ALLOW_MISTRUSTED);
  options.known.size = sizeof options;
  options.known.paths = "ref";
  options.known.stage = "k_*";
  options.known.step = 0;
  options.known.threads = 1;
  cr_expect_eq(lockstep_verify(report, refusals, &options.known, NULL), LOCKSTEP_PASSES, "%s", lockstep_report_why(report));
  lockstep_report_free(report);
}
