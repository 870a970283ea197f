/* liblockstep: the calls of include/lockstep/lockstep.h, which add nothing to what the command's session does but a stable form. */
#include "../include/lockstep/lockstep.h"

#include <limits.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../cli/session_path_list.h"
#include "../compare/ls_report.h"
#include "../core/ls_parallel.h"
#include "../core/ls_shortage.h"

_Static_assert(LOCKSTEP_PASSES == (int)LS_OK && LOCKSTEP_DIVERGES == (int)LS_DIVERGED && LOCKSTEP_WRONG_CALL == (int)LS_USAGE &&
                   LOCKSTEP_BAD_FIXTURE == (int)LS_BAD_FIXTURE && LOCKSTEP_NO_PATH == (int)LS_UNAVAILABLE &&
                   LOCKSTEP_INTERNAL == (int)LS_INTERNAL,
               "statuses have the same numbers on both sides");
_Static_assert(sizeof((lockstep_finding *)0)->name >= sizeof((ls_report_hit *)0)->name &&
                   sizeof((lockstep_finding *)0)->where >= LS_MAX_WHERE && sizeof((lockstep_finding *)0)->note >= LS_MAX_NOTE,
               "a finding has room for what a report tells");

struct lockstep_report {
  ls_report *report;
  ls_report_options options;
  ls_error why;
};

static atomic_flag busy = ATOMIC_FLAG_INIT; /* the threads are the process's */

/* What a caller that was built for a shorter struct does not know keeps its default. */
static bool read_struct(void *to, size_t size, const void *from, size_t least) {
  uint32_t known;
  memcpy(&known, from, sizeof known);
  if (known < least) return false;
  memcpy(to, from, known < size ? known : size);
  return true;
}

lockstep_report *lockstep_report_new(uint32_t flags) {
  lockstep_report *report = calloc(1, sizeof *report);
  if (report == NULL) return NULL;
  report->options.program = "lockstep";
  report->options.allow_mistrusted = (flags & LOCKSTEP_ALLOW_MISTRUSTED) != 0;
  if (ls_report_new(&report->report, &report->why) == LS_OK) return report;
  free(report);
  return NULL;
}

void lockstep_report_free(lockstep_report *report) {
  if (report == NULL) return;
  ls_report_free(report->report);
  free(report);
}

/* The program that child processes are of: the caller's, the installed one, the first on PATH; where there is none, what it is called. */
static const char *find_program(char found[PATH_MAX], const lockstep_options *options) {
  if (options->program != NULL) return options->program;
  if (access(LS_INSTALLED_PROGRAM, X_OK) == 0) return LS_INSTALLED_PROGRAM;
  for (const char *at = getenv("PATH"); at != NULL; at = strchr(at, ':') != NULL ? strchr(at, ':') + 1 : NULL) {
    const int length = (int)strcspn(at, ":");
    if (length > 0 && snprintf(found, PATH_MAX, "%.*s/lockstep", length, at) < PATH_MAX && access(found, X_OK) == 0) return found;
  }
  return LS_INSTALLED_PROGRAM;
}

static void tell_first(const ls_report *report, lockstep_finding *first, uint32_t size, ls_error *err) {
  lockstep_finding told = LOCKSTEP_FINDING_INIT;
  ls_report_hit hit;
  memset(&hit, 0, sizeof hit);
  if (ls_report_first(report, &hit, err) == LS_OK && hit.found) {
    told.found = 1;
    told.is_property = hit.is_property;
    told.cascaded = !hit.is_property && hit.mode == LS_CASCADED;
    told.step = hit.step;
    memcpy(told.name, hit.name, sizeof hit.name);
    memcpy(told.where, hit.where, sizeof hit.where);
    memcpy(told.note, hit.note, sizeof hit.note);
  }
  told.size = size;
  memcpy(first, &told, size < sizeof told ? size : sizeof told);
}

static ls_status check_call(const char *fixture, const lockstep_options *with, lockstep_options *options, const lockstep_finding *first,
                            ls_error *err) {
  const lockstep_options unset = LOCKSTEP_OPTIONS_INIT;
  *options = unset;
  if (fixture == NULL || *fixture == '\0') return ls_fail(err, LS_USAGE, "no fixture named");
  if (with != NULL && !read_struct(options, sizeof *options, with, offsetof(lockstep_options, timeout) + sizeof with->timeout))
    return ls_fail(err, LS_USAGE, "options.size is %u, expected sizeof(lockstep_options): use LOCKSTEP_OPTIONS_INIT", with->size);
  if (first != NULL && first->size < offsetof(lockstep_finding, note) + sizeof first->note)
    return ls_fail(err, LS_USAGE, "first->size is %u, expected sizeof(lockstep_finding): use LOCKSTEP_FINDING_INIT", first->size);
  if (options->threads < 0 || options->threads > 4096)
    return ls_fail(err, LS_USAGE, "options.threads: expected 0 to 4096, found %d", options->threads);
  if (options->device < 0) return ls_fail(err, LS_USAGE, "options.device: expected 0 or more, found %d", options->device);
  if (!(options->timeout >= 0 && options->timeout <= LS_MAX_TIMEOUT))
    return ls_fail(err, LS_USAGE, "options.timeout: expected 0 to %d seconds, found %g", (int)LS_MAX_TIMEOUT, options->timeout);
  if (options->step < -1) return ls_fail(err, LS_USAGE, "options.step: expected -1 or more, found %lld", (long long)options->step);
  return LS_OK;
}

static ls_status verify(lockstep_report *report, const char *fixture, const lockstep_options *with, lockstep_finding *first) {
  static volatile sig_atomic_t never;
  lockstep_options options;
  ls_verify_options run;
  ls_path_list list;
  char program[PATH_MAX];
  memset(&run, 0, sizeof run);
  LS_TRY(check_call(fixture, with, &options, first, &report->why));
  ls_path_list_init(&list, &never);
  list.program = find_program(program, &options);
  if (options.timeout > 0) list.timeout = options.timeout;
  ls_status status;
  LS_TRY_OUT(ls_path_list_add(&list, "options.paths", options.paths != NULL ? options.paths : "auto", &report->why));
  memcpy(run.path, list.path, sizeof run.path);
  run.n_paths = list.n;
  run.may_drop_paths = list.may_drop;
  run.options.device = options.device;
  run.stage_glob = options.stage;
  run.only_step = options.step;
  run.trust = (options.flags & LOCKSTEP_PROBE) == 0;
  run.allow_nonfinite = (options.flags & LOCKSTEP_ALLOW_NONFINITE) != 0;
  run.relations = (options.flags & LOCKSTEP_RELATIONS) != 0;
  run.details = true;
  run.quiet = true;
  run.interrupted = &never;
  ls_threads_set(options.threads);
  status = ls_verify_fixture(fixture, &run, report->report, &report->why);
  ls_threads_set(0);
  if (ls_shortage_take() && status != LS_INTERNAL) {
    report->why = (ls_error){LS_OK, ""};
    status = ls_fail(&report->why, LS_INTERNAL, "out of memory: the report is not whole");
  }
  if (first != NULL) tell_first(report->report, first, first->size, &report->why);
  if (status == LS_OK) status = ls_report_section_status(report->report, &report->options);
out:
  ls_path_list_free(&list);
  return status;
}

int32_t lockstep_verify(lockstep_report *report, const char *fixture, const lockstep_options *options, lockstep_finding *first) {
  if (report == NULL) return LOCKSTEP_WRONG_CALL;
  report->why = (ls_error){LS_OK, ""};
  if (atomic_flag_test_and_set(&busy)) return (int32_t)ls_fail(&report->why, LS_USAGE, "another call of lockstep_verify is in progress");
  const ls_status status = verify(report, fixture, options, first);
  atomic_flag_clear(&busy);
  return (int32_t)status;
}

int32_t lockstep_report_status(const lockstep_report *report) {
  return report != NULL ? (int32_t)ls_report_status(report->report, &report->options) : LOCKSTEP_WRONG_CALL;
}

int32_t lockstep_report_write(lockstep_report *report, int32_t format, const char *file) {
  if (report == NULL) return LOCKSTEP_WRONG_CALL;
  ls_error *err = &report->why;
  *err = (ls_error){LS_OK, ""};
  if (file == NULL || *file == '\0') return (int32_t)ls_fail(err, LS_USAGE, "no file named");
  switch (format) {
    case LOCKSTEP_TEXT:
      return (int32_t)ls_report_text_file(report->report, &report->options, file, err);
    case LOCKSTEP_JSON:
      return (int32_t)ls_report_json(report->report, &report->options, file, err);
    case LOCKSTEP_JUNIT:
      return (int32_t)ls_report_junit(report->report, &report->options, file, err);
    case LOCKSTEP_HTML:
      return (int32_t)ls_report_html(report->report, &report->options, file, err);
    default:
      return (int32_t)ls_fail(err, LS_USAGE, "format %d: expected LOCKSTEP_TEXT, JSON, JUNIT or HTML", format);
  }
}

const char *lockstep_report_why(const lockstep_report *report) { return report != NULL ? report->why.text : "no report"; }

const char *lockstep_version(void) { return LS_VERSION " (commit " LS_COMMIT ")"; }
