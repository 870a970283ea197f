/* One case of a fuzz run: judged in this process or in one of its own, shrunk, and written as a fixture. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* vasprintf */
#endif
#include "session_fuzz.h"

#include <ctype.h>
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "session_fuzz_internal.h"

#include "../core/ls_clock.h"

bool ls_fuzz_same(const ls_fuzz_finding *a, const ls_fuzz_finding *b) {
  return a->kind == b->kind && strcmp(a->name, b->name) == 0 && (a->kind != LS_FUZZ_STAGE || a->mode == b->mode);
}

/* A line without its numbers, which are another case's in another case. */
static void without_numbers(char *name, size_t size, const char *line) {
  size_t n = 0;
  for (; *line != '\0' && n + 1 < size; line++) {
    if (!isdigit((unsigned char)*line)) {
      name[n++] = *line;
    } else if (n == 0 || name[n - 1] != '#') {
      name[n++] = '#';
    }
  }
  name[n] = '\0';
}

/* What a session that ended with `ran` found. LS_INTERRUPTED and LS_UNAVAILABLE are not about the case. */
static ls_status finding_of(const ls_report *report, ls_status ran, const ls_error *why, ls_fuzz_finding *finding, ls_error *err) {
  ls_report_hit hit;
  memset(finding, 0, sizeof *finding);
  if (ran == LS_INTERRUPTED || ran == LS_UNAVAILABLE) return ls_fail(err, ran, "%s", why->text);
  LS_TRY(ls_report_first(report, &hit, err));
  finding->compared = hit.compared;
  if (hit.found) { /* also where a path gave up later in that step */
    const char *mode = hit.is_property ? "" : hit.mode == LS_ISOLATED ? " isolated" : " cascaded";
    finding->kind = hit.is_property ? LS_FUZZ_PROPERTY : LS_FUZZ_STAGE;
    finding->mode = hit.mode;
    snprintf(finding->name, sizeof finding->name, "%.*s", (int)(hit.is_property ? strlen(hit.name) : strcspn(hit.name, ".")), hit.name);
    snprintf(finding->line, sizeof finding->line, "%s%s, step %lld: %s%s%s", hit.name, mode, (long long)hit.step, hit.where,
             hit.where[0] != '\0' && hit.note[0] != '\0' ? ": " : "", hit.note);
  } else if (ran != LS_OK) {
    finding->kind = LS_FUZZ_STOP;
    without_numbers(finding->name, sizeof finding->name, why->text);
    snprintf(finding->line, sizeof finding->line, "%s", why->text);
  }
  return LS_OK;
}

/* file: NULL, or the fixture to be judged in place of the scenario. */
static ls_status judge(const ls_scenario *scenario, const char *file, const ls_verify_options *verify, ls_fuzz_finding *finding,
                       ls_error *err) {
  ls_report *report = NULL;
  ls_error why = {LS_OK, ""};
  ls_verify_options options = *verify;
  ls_status status;
  options.only_step = -1;
  options.until_failure = options.trust = true;
  LS_TRY_OUT(ls_report_new(&report, err));
  const ls_status ran =
      file != NULL ? ls_verify_fixture(file, &options, report, &why) : ls_verify_scenario("case", scenario, &options, report, &why);
  status = finding_of(report, ran, &why, finding, err);
out:
  ls_report_free(report);
  return status;
}

ls_status ls_fuzz_judge(const ls_scenario *scenario, const ls_verify_options *verify, ls_fuzz_finding *finding, ls_error *err) {
  return judge(scenario, NULL, verify, finding, err);
}

/* ---- in a process of its own ---- */

void *fuzz_share(size_t bytes) {
  void *at = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  return at == MAP_FAILED ? NULL : at;
}

void fuzz_died(ls_fuzz_finding *finding, int wait_status, bool late, double timeout) {
  memset(finding, 0, sizeof *finding);
  finding->kind = late ? LS_FUZZ_HANG : LS_FUZZ_CRASH;
  if (late) {
    snprintf(finding->name, sizeof finding->name, "hang");
    snprintf(finding->line, sizeof finding->line, "the case did not end within %.0f s", timeout);
  } else if (WIFSIGNALED(wait_status)) {
    snprintf(finding->name, sizeof finding->name, "%s", strsignal(WTERMSIG(wait_status)));
    snprintf(finding->line, sizeof finding->line, "the process that ran the case died: %s", finding->name);
  } else {
    snprintf(finding->name, sizeof finding->name, "exit");
    snprintf(finding->line, sizeof finding->line, "the process that ran the case ended with exit status %d", WEXITSTATUS(wait_status));
  }
}

bool fuzz_wait(pid_t child, double deadline, int *wait_status) {
  struct timespec pause = {0, 200000};
  while (waitpid(child, wait_status, WNOHANG) == 0) {
    if (ls_clock_seconds() > deadline) {
      kill(child, SIGKILL);
      waitpid(child, wait_status, 0);
      return false;
    }
    nanosleep(&pause, NULL);
    if (pause.tv_nsec < 20000000) pause.tv_nsec += pause.tv_nsec / 4;
  }
  return true;
}

typedef struct {
  ls_status status;
  ls_error err;
  ls_fuzz_finding finding;
} judged;

ls_status fuzz_judge_apart(const ls_scenario *scenario, const char *file, const ls_fuzz_options *options, ls_fuzz_finding *finding,
                           ls_error *err) {
  if (options->jobs == 0) return judge(scenario, file, options->verify, finding, err);
  judged *shared = fuzz_share(sizeof *shared);
  if (shared == NULL) return ls_fail(err, LS_INTERNAL, "fuzz: no shared memory: %s", strerror(errno));
  int wait_status = 0;
  ls_status status = LS_OK;
  fflush(NULL);
  const pid_t child = fork();
  if (child == 0) {
    if (file != NULL && freopen("/dev/null", "w", stderr) == NULL) _exit(LS_INTERNAL); /* what stops it is in the finding */
    shared->status = judge(scenario, file, options->verify, &shared->finding, &shared->err);
    _exit(0);
  }
  if (child < 0) {
    status = ls_fail(err, LS_INTERNAL, "fuzz: no process: %s", strerror(errno));
  } else if (!fuzz_wait(child, ls_clock_seconds() + options->timeout, &wait_status)) {
    fuzz_died(finding, wait_status, true, options->timeout);
  } else if (wait_status != 0) {
    fuzz_died(finding, wait_status, false, options->timeout);
  } else {
    *finding = shared->finding;
    if (shared->status != LS_OK) status = ls_fail(err, shared->status, "%s", shared->err.text);
  }
  munmap(shared, sizeof *shared);
  return status;
}

/* ---- shrinking ---- */

typedef struct {
  const ls_fuzz_options *options;
  const ls_fuzz_finding *sought;
  ls_fuzz_finding last; /* that was the same */
} shrinking;

static ls_status shows(void *arg, const ls_scenario *scenario, bool *same, ls_error *err) {
  shrinking *s = arg;
  ls_fuzz_finding found;
  if (*s->options->verify->interrupted) return ls_fail(err, LS_INTERRUPTED, "interrupted");
  LS_TRY(fuzz_judge_apart(scenario, NULL, s->options, &found, err));
  *same = ls_fuzz_same(&found, s->sought);
  if (*same) s->last = found;
  return LS_OK;
}

/* "capture(base 0, rows 1) context_write(rows 1)", of at most a dozen steps. */
static void history_text(char *buf, size_t size, const ls_scenario *scenario) {
  size_t used = 0;
  buf[0] = '\0';
  for (int64_t i = 0; i < scenario->steps && i < 12 && used < size; i++) {
    const ls_step *step = &scenario->step[i];
    int n = 0;
    const ls_int_attribute *attribute = ls_op_attributes(step->op, &n);
    used += (size_t)snprintf(buf + used, size - used, "%s%s(", i > 0 ? " " : "", ls_op_name(step->op));
    for (int k = 0; k < n && used < size; k++)
      used += (size_t)snprintf(buf + used, size - used, "%s%s %lld", k > 0 ? ", " : "", attribute[k].name,
                               (long long)*(const int64_t *)(const void *)((const char *)step + attribute[k].offset));
    if (used < size && step->op == LS_OP_FORWARD)
      used += (size_t)snprintf(buf + used, size - used, ", %lld row%s", (long long)step->rows, step->rows == 1 ? "" : "s");
    if (used < size) used += (size_t)snprintf(buf + used, size - used, ")%s", step->expect_refused ? " refused" : "");
  }
  if (scenario->steps > 12 && used < size) snprintf(buf + used, size - used, " ...");
}

static char *text(const char *format, ...) __attribute__((format(printf, 1, 2)));
static char *text(const char *format, ...) {
  char *made = NULL;
  va_list args;
  va_start(args, format);
  if (vasprintf(&made, format, args) < 0) made = NULL;
  va_end(args);
  return made;
}

/* Writes the fixture and looks whether it shows the same when it is read again. */
static ls_status write_case(const ls_fuzz_options *options, const ls_scenario *scenario, const ls_fuzz_finding *finding, ls_fuzz_failure *f,
                            ls_error *err) {
  char source[512];
  ls_fuzz_finding again;
  f->file = text("%s/fuzz_%s_%llu_%lld.h5", options->folder, options->layer_word, (unsigned long long)options->seed, (long long)f->number);
  f->repeat_file = text("lockstep verify %s %s", options->repeat_options, f->file != NULL ? f->file : "");
  if (f->file == NULL || f->repeat_file == NULL || f->repeat_case == NULL) return ls_fail(err, LS_INTERNAL, "fuzz: out of memory");
  snprintf(source, sizeof source, "lockstep fuzz %s, seed %llu, case %lld; no expected values", options->layer_word,
           (unsigned long long)options->seed, (long long)f->number);
  const char *const attributes[] = {"repeat", f->repeat_case, "finding", f->finding, "shrunk", f->shrunk, NULL};
  LS_TRY(ls_scenario_write(scenario, f->file, source, attributes, err));
  if (*options->verify->interrupted) return LS_OK;
  LS_TRY(fuzz_judge_apart(scenario, f->file, options, &again, err));
  if (again.kind != finding->kind)
    return ls_fail(err, LS_INTERNAL, "fuzz: case %lld: %s does not show what the case showed: %s", (long long)f->number, f->file,
                   finding->line);
  return LS_OK;
}

ls_status fuzz_shrink_case(const ls_fuzz_options *options, int64_t number, const ls_fuzz_finding *finding, ls_fuzz_failure *f,
                           ls_error *err) {
  ls_scenario scenario = {.steps = 0};
  shrinking s = {.options = options, .sought = finding, .last = *finding};
  char history[1024], shape[1024];
  const double began = ls_clock_seconds();
  ls_status status, shrunk = LS_OK;
  memset(f, 0, sizeof *f);
  f->number = number;
  LS_TRY_OUT(ls_scenario_draw(&scenario, options->layer, options->seed, number, options->verify->allow_nonfinite, err));
  f->steps_before = scenario.steps;
  if (options->shrink > 0) {
    ls_error why = {LS_OK, ""};
    shrunk = ls_scenario_shrink(&scenario, shows, &s, options->shrink, &f->tried, &why);
    if (shrunk != LS_OK && shrunk != LS_INTERRUPTED) {
      status = ls_fail(err, shrunk, "%s", why.text);
      goto out;
    }
  }
  f->steps = scenario.steps;
  f->seconds = ls_clock_seconds() - began;
  history_text(history, sizeof history, &scenario);
  snprintf(scenario.title, sizeof scenario.title, "fuzz %s, seed %llu, case %lld: %.300s", options->layer_word,
           (unsigned long long)options->seed, (long long)number, s.last.line);
  f->finding = text("%s", s.last.line);
  f->name = text("%s", finding->name);
  f->history = text("%s", history);
  f->shape = text("%s", ls_config_text(shape, sizeof shape, &scenario.config));
  f->shrunk = text("%lld of %lld step%s after %lld tries in %.1f s%s", (long long)f->steps, (long long)f->steps_before,
                   f->steps_before == 1 ? "" : "s", (long long)f->tried, f->seconds,
                   shrunk == LS_INTERRUPTED                             ? ", interrupted"
                   : options->shrink > 0 && f->tried >= options->shrink ? ", which was the limit"
                                                                        : "");
  f->repeat_case = text("lockstep fuzz %s --seed %llu --case %lld %s", options->layer_word, (unsigned long long)options->seed,
                        (long long)number, options->repeat_options);
  if (f->finding == NULL || f->name == NULL || f->history == NULL || f->shape == NULL || f->shrunk == NULL) {
    status = ls_fail(err, LS_INTERNAL, "fuzz: out of memory");
    goto out;
  }
  LS_TRY_OUT(write_case(options, &scenario, finding, f, err));
out:
  ls_scenario_free(&scenario);
  return status;
}
