/* verify_session: one fixture through every path, in both modes, judged stage by stage into a report. */
#ifndef LS_VERIFY_SESSION_H
#define LS_VERIFY_SESSION_H

#include <signal.h>

#include "../compare/ls_report.h"
#include "../fixtures/ls_fixture.h"
#include "../fixtures/ls_scenario.h"
#include "../fixtures/ls_trace_file.h"
#include "../layers/ls_path.h"

enum { LS_MAX_PATHS = 4 };

/* What the last path does is written to a file, and nothing is judged. */
typedef struct {
  const char *file;
  bool digest; /* hashes and statistics of rows in place of values */
  const ls_trace_about *about;
  int64_t steps;             /* written */
  int properties_failing;    /* of the path, in all steps */
  ls_trace_writer *writer;   /* the session's own */
  ls_trace_step *step_being; /* likewise */
} ls_recording;
/* What of a run is judged. */
typedef enum {
  LS_JUDGE_ALL,
  LS_JUDGE_LAST_PATH, /* the last path: against the fixture and every other path, and its properties */
  LS_JUDGE_LAST_PAIR  /* the last path against the one before it; no properties */
} ls_judged;

typedef struct {
  const ls_path *path[LS_MAX_PATHS]; /* path[0] is the reference: bounds are evaluated from its values */
  /* Where it is not NULL, path p is what this trace recorded, under the name recorded_name[p], and path[p] is not looked at. Opened, and
   * bound by the session to its fixture. */
  ls_trace_reader *recorded[LS_MAX_PATHS];
  const char *recorded_name[LS_MAX_PATHS];
  bool *apart; /* of each path: set where a recorded one could not be judged in some step, having been given other values; NULL: not told */
  ls_recording *record; /* NULL: judge */
  int n_paths;
  bool may_drop_paths; /* a path that does not have the fixture's layer is left out with a note (auto) instead of stopping the file */
  ls_path_options options;
  const char *stage_glob; /* NULL: all. Matches "stage", "stage.sub" and names of properties */
  int64_t only_step;      /* -1: all. Earlier steps run, unjudged */
  bool trust;             /* skip the child process that reads the file first */
  bool allow_nonfinite;
  bool progress;
  bool quiet;     /* nothing on stderr: what stops the file is in err, the first of its problems */
  bool details;   /* collects where differences lie, for ls_report_html */
  bool relations; /* metamorphic relations of each path (docs/relations.md): up to ten more runs of every step */
  bool times;     /* adds a note on each path's time; off, two runs give the same report */
  volatile sig_atomic_t *interrupted;

  /* what a bisection asks for (session_bisect.h); zero: nothing of it */
  ls_judged judged;
  bool cascaded_only; /* no isolated steps: paths run on without ever loading a state */
  bool until_failure; /* ends after the first step in which something fails */
  bool no_reruns;     /* without the properties that run a step again: untraced, idempotence, split */
  bool exact;         /* stages must be equal in bits (-0 equals +0) instead of within their bounds */
  bool has_last_step; /* ends after step last_step */
  int64_t last_step;
  bool has_transplant; /* before step transplant what is judged goes on from the reference's state */
  int64_t transplant;
} ls_verify_options;

/* One of this build's own paths, ref, cuda, emu or "auto", where it can run here; else LS_UNAVAILABLE. */
ls_status ls_own_path(const char *name, const ls_path **path, ls_error *err);

/* Adds a section to the report. What stops the file (bad fixture, device gone) is recorded there as well as returned. */
ls_status ls_verify_fixture(const char *file, const ls_verify_options *options, ls_report *report, ls_error *err);

/* The same of a scenario in memory, under a name of the caller's. Nothing is recorded and no path is a recorded one. Says nothing on
 * stderr: what stops it is in the report and in err. */
ls_status ls_verify_scenario(const char *name, const ls_scenario *scenario, const ls_verify_options *options, ls_report *report,
                             ls_error *err);

#endif
