/* bench_run: one scenario on one path: verified, timed, and held against what was verified again.
 *
 * Order: the fixture goes through a verify session (reference and path, isolated and cascaded, every stage within its bound); where that
 * does not pass nothing is timed. The steps before the last run once; the last runs once traced, then many times in production form (on
 * cuda a captured graph), and what the last of these left, results and state, has to be the traced run's bytes. */
#ifndef BENCH_RUN_H
#define BENCH_RUN_H

#include "../layers/ls_path.h"
#include "bench_machine.h"
#include "bench_scenario.h"
#include "bench_work.h"

typedef enum {
  BENCH_MEASURED,
  BENCH_NOT_MEASURED, /* contended, throttled or interrupted: why says what was in the way */
  BENCH_NOT_VERIFIED  /* a stage does not pass: why names it */
} bench_outcome;

typedef struct {
  const ls_path *path; /* what is timed; ls_path_ref or one more */
  ls_path_options options;
  int samples, warmup, back_to_back;
  int attempts; /* how often a round that was disturbed is taken again */
  bool parts;   /* stage by stage too */
  bool warm;    /* caches are left as they are */
  bool company; /* another process on the GPU is no disturbance: the other side of a comparison waits there for its turn */
  volatile sig_atomic_t *interrupted; /* never NULL */
} bench_options;

/* One scenario on one path. */
typedef struct {
  char name[2 * BENCH_NAME]; /* "cuda/dflash/rows=8" */
  bench_outcome outcome;
  char why[256];
  char runs[256];    /* what ran: ls_path.describe */
  ls_timing timing;  /* part[0] is the whole step */
  bench_work work;   /* of the whole step */
  double verified_s; /* what verifying took */
  uint64_t digest;   /* of results and state after the step: the same for the same bytes */
  bench_watch watch;
  int attempts; /* that it took */
} bench_result;

void bench_result_free(bench_result *result);

/* Called before the first round with NULL, and then with what a round came to, also where it was not measured; asks for another by true. A
 * round begins with the state before the step;
 * what was opened and verified serves them all. result->timing is of the last round. */
typedef bool bench_round(void *arg, const bench_result *result);

/* Runs the last step of a fixture. result->name is the caller's. round NULL: one. Statuses but LS_OK are what stopped it: a bad file, no
 * device. A result that is BENCH_NOT_VERIFIED before anything was timed has no round. */
ls_status bench_run_fixture(bench_result *result, const char *file, const bench_options *options, bench_round *round, void *arg,
                            ls_error *err);

/* The same for a scenario, whose fixture is made in a temporary folder. */
ls_status bench_run_scenario(bench_result *result, const bench_scenario *scenario, const bench_options *options, bench_round *round,
                             void *arg, ls_error *err);

#endif
