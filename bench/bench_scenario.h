/* bench_scenario: what is timed, by name. A scenario is a fixture like any other, made on the spot from generated tensors, and its last
 * step is the one that is timed.
 *
 *   dflash/rows=R                  the context_write of R rows
 *   attn/decode/ROLE/n=N           one token, the layer seeing N compressed rows (window: N positions)
 *   attn/prefill/ROLE/m=M          M tokens from position 0; attn/prefill/m=M is that of index-r1
 *   tiny/...                       the same at sizes that an emulator runs in milliseconds
 *
 * ROLE: window; full-r2 and full-r1 (kv and index source of ratio 2 and 1; full-r1 makes the candidates too); reuse-r1 (reads the rows and
 * the selection of a full-r1: 32 of the published 40 layers are readers or window layers); index-r1 (an index source that scores every key
 * of a full-r1 itself, without candidates and without a compressor); masked-r1 (an index source inside the candidates). */
#ifndef BENCH_SCENARIO_H
#define BENCH_SCENARIO_H

#include "../fixtures/ls_fixture.h"
#include "bench_work.h"

typedef enum { BENCH_CONTEXT_WRITE, BENCH_DECODE, BENCH_PREFILL } bench_operation;
typedef enum { BENCH_WINDOW, BENCH_FULL2, BENCH_FULL1, BENCH_REUSE1, BENCH_INDEX1, BENCH_MASKED1, BENCH_ROLES } bench_role;

enum { BENCH_NAME = 96 };

typedef struct {
  char name[BENCH_NAME];
  bool tiny;
  bench_operation operation;
  bench_role role; /* attn */
  int64_t size;    /* R, N or M */
} bench_scenario;

/* LS_USAGE, with a line, where the name is none of the above or the size is out of range. */
ls_status bench_scenario_parse(bench_scenario *scenario, const char *name, ls_error *err);

/* Those of the built-in list whose names match a glob, in the list's order; a name that is not in the list stands for itself. glob NULL:
 * all of the list but the tiny ones. *scenarios is the caller's to free. LS_USAGE where nothing matches. */
ls_status bench_scenarios(bench_scenario **scenarios, int *n, const char *glob, ls_error *err);

/* What its last step comes to (bench_work.h). */
ls_status bench_scenario_work(bench_work *work, const bench_scenario *scenario, int weight_bytes, ls_error *err);

/* Writes the fixture. */
ls_status bench_scenario_make(const bench_scenario *scenario, const char *file, ls_error *err);

#endif
