/* All cases of a fuzz run. Workers are forked once and take every jobs-th case; what they count lies in memory that they share with the
 * process that waits for them, so that it is there after a worker died too. Which failing cases are reported does not depend on who was
 * faster: a worker goes on until as many failures as are wanted lie below its next case. */
#include <errno.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../core/ls_clock.h"
#include "session_fuzz_internal.h"

enum { MAX_FAILURES = 256, MAX_JOBS = 256 };

typedef struct {
  int64_t cases, op[LS_OPS], refused, compared;
  _Atomic int64_t now;   /* the case at hand + 1; 0: none */
  _Atomic int64_t began; /* milliseconds */
  _Atomic bool ended;    /* by itself */
  ls_status status;      /* that ended it */
  ls_error err;
} worker;

typedef struct {
  _Atomic int64_t number; /* + 1; 0: being written */
  ls_fuzz_finding finding;
} failing;

typedef struct {
  volatile sig_atomic_t stop;
  _Atomic int64_t failures;
  failing failure[MAX_FAILURES];
  worker worker[MAX_JOBS];
} board;

static void add_failure(board *b, int64_t number, const ls_fuzz_finding *finding) {
  const int64_t i = atomic_fetch_add(&b->failures, 1);
  if (i >= MAX_FAILURES) return;
  b->failure[i].finding = *finding;
  atomic_store(&b->failure[i].number, number + 1);
}

static int64_t failures_below(board *b, int64_t number) {
  int64_t n = 0, all = atomic_load(&b->failures);
  for (int64_t i = 0; i < all && i < MAX_FAILURES; i++) {
    const int64_t at = atomic_load(&b->failure[i].number);
    n += at > 0 && at - 1 < number;
  }
  return n;
}

/* Counts the steps of a case that was run to its end. */
static void count(worker *w, const ls_scenario *scenario, const ls_fuzz_finding *finding) {
  w->cases++;
  w->compared += finding->compared;
  for (int64_t i = 0; i < scenario->steps; i++) {
    w->op[scenario->step[i].op]++;
    w->refused += scenario->step[i].expect_refused;
  }
}

/* The cases k, k + step, ... of this shard, as its k-th one. */
static ls_status work(const ls_fuzz_options *o, board *b, worker *w, int64_t k, int64_t step, double deadline) {
  for (;; k += step) {
    const int64_t number = o->only >= 0 ? o->only : o->shard + k * o->shards;
    ls_scenario scenario = {.steps = 0};
    ls_fuzz_finding finding;
    if ((o->only >= 0 && k > 0) || (o->runs > 0 && number >= o->runs) || ls_clock_seconds() >= deadline) return LS_OK;
    if (b->stop || *o->verify->interrupted) return LS_INTERRUPTED;
    if (failures_below(b, number) >= o->failures) return LS_OK;
    atomic_store(&w->began, (int64_t)(1000 * ls_clock_seconds()));
    atomic_store(&w->now, number + 1);
    ls_status status = ls_scenario_draw(&scenario, o->layer, o->seed, number, o->verify->allow_nonfinite, &w->err);
    if (status == LS_OK) status = ls_fuzz_judge(&scenario, o->verify, &finding, &w->err);
    if (status == LS_OK) {
      if (finding.kind != LS_FUZZ_CLEAN) add_failure(b, number, &finding);
      count(w, &scenario, &finding);
    }
    ls_scenario_free(&scenario);
    atomic_store(&w->now, 0);
    if (status != LS_OK) return status;
  }
}

/* ---- workers ---- */

static pid_t start_worker(const ls_fuzz_options *o, board *b, int i, int64_t k, double deadline) {
  const pid_t parent = getpid();
  fflush(NULL);
  const pid_t child = fork();
  if (child != 0) return child;
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) _exit(0);
  ls_verify_options verify = *o->verify;
  ls_fuzz_options mine = *o;
  verify.interrupted = &b->stop; /* the parent's word: it hears every interrupt */
  mine.verify = &verify;
  b->worker[i].status = work(&mine, b, &b->worker[i], k, o->jobs, deadline);
  atomic_store(&b->worker[i].ended, true);
  _exit(0);
}

static void show_progress(const ls_fuzz_options *o, const board *b, double began) {
  int64_t cases = 0;
  for (int i = 0; i < MAX_JOBS; i++) cases += b->worker[i].cases;
  fprintf(stderr, "\rfuzz %s: %lld cases, %.0f s\033[K", o->layer_word, (long long)cases, ls_clock_seconds() - began);
  fflush(stderr);
}

/* Looks after the workers until all have ended. */
static ls_status watch(const ls_fuzz_options *o, board *b, double began, double deadline, ls_error *err) {
  pid_t child[MAX_JOBS];
  int running = 0;
  double shown = 0;
  ls_status status = LS_OK;
  if (*o->verify->interrupted) b->stop = 1; /* before there is anyone to begin a case */
  for (int i = 0; i < o->jobs; i++) {
    child[i] = start_worker(o, b, i, i, deadline);
    if (child[i] < 0) status = ls_fail(err, LS_INTERNAL, "fuzz: no process: %s", strerror(errno));
    if (child[i] < 0) b->stop = 1;
    running += child[i] > 0;
  }
  while (running > 0) {
    const struct timespec pause = {0, 5000000};
    nanosleep(&pause, NULL);
    if (*o->verify->interrupted) b->stop = 1;
    if (o->progress && ls_clock_seconds() - shown > 0.5) {
      show_progress(o, b, began);
      shown = ls_clock_seconds();
    }
    for (int i = 0; i < o->jobs; i++) {
      worker *w = &b->worker[i];
      int wait_status = 0;
      bool late = false;
      if (child[i] <= 0) continue;
      if (atomic_load(&w->now) > 0 && ls_clock_seconds() - 1e-3 * (double)atomic_load(&w->began) > o->timeout) {
        late = true;
        kill(child[i], SIGKILL);
        waitpid(child[i], &wait_status, 0);
      } else if (waitpid(child[i], &wait_status, WNOHANG) == 0) {
        continue;
      }
      running--;
      child[i] = 0;
      if (atomic_load(&w->ended)) {
        if (w->status != LS_OK && w->status != LS_INTERRUPTED) {
          b->stop = 1;
          if (status == LS_OK) status = ls_fail(err, w->status, "%s", w->err.text);
        }
        continue;
      }
      const int64_t number = atomic_load(&w->now) - 1; /* it died in this case: the next worker begins with its next one */
      if (number < 0) {
        b->stop = 1;
        if (status == LS_OK) status = ls_fail(err, LS_INTERNAL, "fuzz: a worker ended between two cases");
        continue;
      }
      ls_fuzz_finding finding;
      fuzz_died(&finding, wait_status, late, o->timeout);
      add_failure(b, number, &finding);
      w->cases++;
      atomic_store(&w->now, 0);
      if (o->only >= 0) continue;
      child[i] = start_worker(o, b, i, (number - o->shard) / o->shards + o->jobs, deadline);
      running += child[i] > 0;
    }
  }
  if (o->progress) fprintf(stderr, "\r\033[K");
  return status;
}

/* ---- all of it ---- */

static int by_number(const void *a, const void *b) {
  const int64_t x = ((const failing *)a)->number, y = ((const failing *)b)->number;
  return (x > y) - (x < y);
}

static ls_status report_failures(const ls_fuzz_options *o, board *b, ls_fuzz_report *report, ls_error *err) {
  int64_t n = b->failures < MAX_FAILURES ? b->failures : MAX_FAILURES;
  ls_status status = LS_OK;
  qsort(b->failure, (size_t)n, sizeof b->failure[0], by_number);
  if (n > o->failures) n = o->failures;
  if (n == 0) return LS_OK;
  report->failure = calloc((size_t)n, sizeof *report->failure);
  if (report->failure == NULL) return ls_fail(err, LS_INTERNAL, "fuzz: out of memory");
  for (int64_t i = 0; i < n; i++) {
    ls_error why = {LS_OK, ""};
    const ls_status one = fuzz_shrink_case(o, b->failure[i].number - 1, &b->failure[i].finding, &report->failure[i], &why);
    report->failures++;
    if (one != LS_OK && status == LS_OK) status = ls_fail(err, one, "%s", why.text);
  }
  return status;
}

ls_status ls_fuzz_run(const ls_fuzz_options *options, ls_fuzz_report *report, ls_error *err) {
  const double began = ls_clock_seconds(), deadline = options->seconds > 0 ? began + options->seconds : 1e300;
  board *b = fuzz_share(sizeof *b);
  ls_status status;
  if (b == NULL) return ls_fail(err, LS_INTERNAL, "fuzz: no shared memory: %s", strerror(errno));
  if (options->jobs > 0) {
    status = watch(options, b, began, deadline, err);
  } else {
    status = work(options, b, &b->worker[0], 0, 1, deadline);
    if (status == LS_INTERRUPTED) status = LS_OK;
    if (status != LS_OK) ls_fail(err, status, "%s", b->worker[0].err.text);
  }
  report->seconds = ls_clock_seconds() - began;
  report->interrupted = *options->verify->interrupted != 0;
  for (int i = 0; i < MAX_JOBS; i++) {
    const worker *w = &b->worker[i];
    report->cases += w->cases;
    report->refused += w->refused;
    report->compared += w->compared;
    for (int op = 0; op < LS_OPS; op++) report->op[op] += w->op[op];
  }
  ls_error why = {LS_OK, ""};
  const ls_status shrunk = report_failures(options, b, report, &why);
  if (status == LS_OK && shrunk != LS_OK) status = ls_fail(err, shrunk, "%s", why.text);
  report->interrupted = *options->verify->interrupted != 0;
  munmap(b, sizeof *b);
  return status;
}
