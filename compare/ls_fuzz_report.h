/* ls_fuzz_report: what one `lockstep fuzz` ran and found, and its renderings. */
#ifndef LS_FUZZ_REPORT_H
#define LS_FUZZ_REPORT_H

#include <stdio.h>

#include "../layers/ls_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int64_t number;    /* of the case */
  char *finding;     /* one line: what fails, where */
  char *name;        /* of the stage or property */
  char *file;        /* the fixture that shows it; NULL: none was written, and `shrunk` says why */
  char *shrunk;      /* one line: from what to what, in how many tries */
  char *history;     /* the steps that are left */
  char *shape;       /* the config that is left */
  char *repeat_case; /* commands: the case as drawn, the fixture */
  char *repeat_file;
  int64_t steps_before, steps, tried;
  double seconds; /* that shrinking took */
} ls_fuzz_failure;

typedef struct {
  const ls_layer *layer;
  uint64_t seed;
  int64_t shard, shards;              /* 0-based */
  int64_t runs;                       /* asked for in all shards together; 0: as many as there was time for */
  char *paths;                        /* "ref, emu" */
  int64_t cases, op[LS_OPS], refused; /* run to their end; steps by operation, and how many of all were to be refused */
  int64_t compared;                   /* elements */
  double seconds;                     /* of the search */
  bool interrupted;
  ls_fuzz_failure *failure;
  int64_t failures, failures_room;
} ls_fuzz_report;

void ls_fuzz_report_free(ls_fuzz_report *report);

/* LS_OK; LS_DIVERGED: something fails, or no case was run; LS_INTERRUPTED. */
ls_status ls_fuzz_report_status(const ls_fuzz_report *report);

/* "1234 operations (capture 400, ...), 56 of them to be refused"; returns buf. */
char *ls_fuzz_report_ran(char *buf, size_t size, const ls_fuzz_report *report);

ls_status ls_fuzz_report_text(const ls_fuzz_report *report, FILE *out, ls_error *err);

/* Written to a temporary name and renamed, as ls_report_json. JSON: docs/fuzz.schema.json. JUnit: a suite a layer, a case for the run and
 * for each failing case. */
ls_status ls_fuzz_report_json(const ls_fuzz_report *report, const char *file, ls_error *err);
ls_status ls_fuzz_report_junit(const ls_fuzz_report *report, const char *file, ls_error *err);

#ifdef __cplusplus
}
#endif
#endif
