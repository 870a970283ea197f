/* bench_record: a figure as it is kept: in a report, in a history, in a baseline. One a scenario and path, and one for each part of it. */
#ifndef BENCH_RECORD_H
#define BENCH_RECORD_H

#include "bench_ceiling.h"
#include "bench_run.h"

enum { BENCH_RECORD_NAME = 2 * BENCH_NAME + LS_TIMING_NAME };

typedef struct {
  char name[BENCH_RECORD_NAME]; /* "cuda/dflash/rows=8", of a part "cuda/dflash/rows=8/ctx_combined" */
  bool part;
  bench_outcome outcome;
  char why[256];
  int n;
  double *seconds; /* [n], in the order in which they were taken; n is 0 where nothing was measured */
  double back_to_back, floor, bytes, flops;
  bool memory_bound;
  int launches;
  double sm_mhz, watts, celsius, others, cycles, ghz; /* those of bench_watch */
  char throttle[BENCH_TEXT];
  char runs[256], machine_class[2 * BENCH_TEXT], commit[64], date[32]; /* date: UTC, "2026-11-30T17:40:00Z" */
} bench_record;

typedef struct {
  bench_record *record;
  int n, room;
} bench_records;

void bench_records_free(bench_records *records); /* and leaves it all zero */

/* A new one, all zero but its samples; NULL where there is no memory. */
bench_record *bench_records_add(bench_records *records, const double *seconds, int n);

/* The last one of a name; NULL: none. */
const bench_record *bench_records_find(const bench_records *records, const char *name);

/* The rounds of each name as one record: the last round's fields, all their samples; measured where all of them were. */
ls_status bench_records_merge(bench_records *merged, const bench_records *rounds, ls_error *err);

/* Those of a result: the whole, and its parts. */
ls_status bench_records_add_result(bench_records *records, const bench_result *result, const bench_ceiling *ceiling,
                                   const bench_machine *machine, const char *commit, ls_error *err);

/* ---- files (bench_json.c) ---- */

/* Google Benchmark's JSON: a run a sample ("iteration") and the aggregates median, mean, stddev and cv of each; times in microseconds, our
 * fields as counters. Written to a temporary name and renamed. argv0: what ran. */
ls_status bench_write_json(const bench_records *records, const bench_machine *machine, const char *file, const char *argv0, ls_error *err);

/* Reads such a file back, of this program or of another that writes the format: real_time of the runs, aggregates passed over. */
ls_status bench_read_json(bench_records *records, const char *file, ls_error *err);

/* A line a record, appended in one write each; the file is made where it is not there. Nothing is ever rewritten. */
ls_status bench_append_history(const bench_records *records, const char *file, ls_error *err);

/* All lines in order. A last line without its end (a killed writer's) is passed over. LS_BAD_FIXTURE, with file and line. */
ls_status bench_read_history(bench_records *records, const char *file, ls_error *err);

/* One such line: printed, without a flush (false: no memory, or the stream failed); read (file and number: for the message). */
bool bench_print_line(const bench_record *record, FILE *out);
ls_status bench_read_line(bench_records *records, const char *line, const char *file, int number, ls_error *err);

/* ---- renderings ---- */

/* One line a record: median, spread, back to back, floor, ratio to it. parts: those of a scenario under it. */
void bench_print_table(const bench_records *records, bool parts, FILE *out);

/* A self-contained page: a small chart for each name, medians over the history's records, commits on the axis. */
ls_status bench_write_plot(const bench_records *history, const char *file, ls_error *err);

#endif
