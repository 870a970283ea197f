/* session_fuzz: scenarios drawn from a seed, each through a verify session without a fixture; what fails is shrunk and written as one.
 *
 * Case i of a seed is the same scenario wherever and however it is run: in one process or several, whole or sharded. Where paths may be run
 * in a forked process they are: workers for the cases, and one for each candidate while shrinking, so that a crash or a hang of a path is a
 * finding like any other. */
#ifndef LS_SESSION_FUZZ_H
#define LS_SESSION_FUZZ_H

#include "../compare/ls_fuzz_report.h"
#include "verify_session.h"

/* What a case came to. Two findings are the same where kind, name and mode are: which numbers, step and layer show it may change. */
typedef enum {
  LS_FUZZ_CLEAN,
  LS_FUZZ_STAGE,    /* a stage fails; its name without the layer */
  LS_FUZZ_PROPERTY, /* a property fails */
  LS_FUZZ_STOP,     /* a path gave up: its line, without numbers */
  LS_FUZZ_CRASH,    /* the process died: of which signal */
  LS_FUZZ_HANG      /* it did not end in time */
} ls_fuzz_kind;

typedef struct {
  ls_fuzz_kind kind;
  char name[160];
  ls_mode mode;     /* of a stage */
  char line[1024];  /* for people */
  int64_t compared; /* elements of all comparisons */
} ls_fuzz_finding;

bool ls_fuzz_same(const ls_fuzz_finding *a, const ls_fuzz_finding *b);

typedef struct {
  const ls_layer *layer;
  uint64_t seed;
  int64_t only;                            /* this case alone; -1: all */
  int64_t runs;                            /* cases 0 .. runs - 1 of the whole run; 0: no end */
  double seconds;                          /* no case begins after so long; 0: no limit */
  int64_t shard, shards;                   /* of 0 .. shards - 1: cases of this remainder */
  int jobs;                                /* processes; 0: in this one (a path that does not outlive a fork) */
  int64_t failures;                        /* ends after so many failing cases, those of the lowest numbers: at least 1 */
  int64_t shrink;                          /* candidates tried at most for one of them */
  double timeout;                          /* seconds a case may take; not in this process */
  const char *folder;                      /* where failing ones are written */
  const char *layer_word, *repeat_options; /* of the command that repeats a case */
  const ls_verify_options *verify;
  bool progress; /* a line on stderr, written over */
} ls_fuzz_options;

/* Judges one scenario in this process. LS_INTERRUPTED, LS_UNAVAILABLE (a path is not there), LS_INTERNAL (no memory for the report). */
ls_status ls_fuzz_judge(const ls_scenario *scenario, const ls_verify_options *verify, ls_fuzz_finding *finding, ls_error *err);

/* Runs all of it; fills *report, which the caller frees (ls_fuzz_report_free) whatever comes back. What ran until then is in it also where
 * it ends with LS_INTERRUPTED or another status than LS_OK; failures found are no error. */
ls_status ls_fuzz_run(const ls_fuzz_options *options, ls_fuzz_report *report, ls_error *err);

#endif
