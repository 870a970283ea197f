#include "bench_record.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench_statistics.h"

void bench_records_free(bench_records *records) {
  for (int i = 0; i < records->n; i++) free(records->record[i].seconds);
  free(records->record);
  memset(records, 0, sizeof *records);
}

bench_record *bench_records_add(bench_records *records, const double *seconds, int n) {
  if (records->n == records->room) {
    const int room = records->room > 0 ? 2 * records->room : 64;
    bench_record *grown = realloc(records->record, (size_t)room * sizeof *grown);
    if (grown == NULL) return NULL;
    records->record = grown;
    records->room = room;
  }
  bench_record *r = &records->record[records->n];
  memset(r, 0, sizeof *r);
  r->seconds = malloc((size_t)(n > 0 ? n : 1) * sizeof *r->seconds);
  if (r->seconds == NULL) return NULL;
  if (n > 0) memcpy(r->seconds, seconds, (size_t)n * sizeof *seconds);
  r->n = n;
  records->n++;
  return r;
}

const bench_record *bench_records_find(const bench_records *records, const char *name) {
  for (int i = records->n - 1; i >= 0; i--) {
    if (strcmp(records->record[i].name, name) == 0) return &records->record[i];
  }
  return NULL;
}

static ls_status append(bench_record *to, const bench_record *round, ls_error *err) {
  double *all = realloc(to->seconds, (size_t)(to->n + round->n + 1) * sizeof *all);
  if (all == NULL) return ls_fail(err, LS_INTERNAL, "out of memory for the figures of %s", to->name);
  memcpy(all + to->n, round->seconds, (size_t)round->n * sizeof *all);
  const bench_record before = *to;
  *to = *round;
  to->seconds = all;
  to->n = before.n + round->n;
  if (before.outcome != BENCH_MEASURED && round->outcome == BENCH_MEASURED) {
    to->outcome = before.outcome;
    memcpy(to->why, before.why, sizeof to->why);
  }
  return LS_OK;
}

ls_status bench_records_merge(bench_records *merged, const bench_records *rounds, ls_error *err) {
  for (int i = 0; i < rounds->n; i++) {
    const bench_record *round = &rounds->record[i];
    bench_record *to = (bench_record *)bench_records_find(merged, round->name);
    if (to == NULL) {
      to = bench_records_add(merged, NULL, 0);
      if (to == NULL) return ls_fail(err, LS_INTERNAL, "out of memory for the figures of %s", round->name);
      memcpy(to->name, round->name, sizeof to->name);
      to->outcome = round->outcome;
      memcpy(to->why, round->why, sizeof to->why);
    }
    LS_TRY(append(to, round, err));
  }
  return LS_OK;
}

ls_status bench_records_add_result(bench_records *records, const bench_result *result, const bench_ceiling *ceiling,
                                   const bench_machine *machine, const char *commit, ls_error *err) {
  const time_t now = time(NULL);
  struct tm utc;
  gmtime_r(&now, &utc);
  const int parts = result->outcome == BENCH_MEASURED && result->timing.n > 0 ? result->timing.n : 1;
  for (int p = 0; p < parts; p++) {
    const ls_timed *timed = result->outcome == BENCH_MEASURED ? &result->timing.part[p] : NULL;
    bench_record *r = bench_records_add(records, timed != NULL ? timed->seconds : NULL, timed != NULL ? result->timing.samples : 0);
    if (r == NULL) return ls_fail(err, LS_INTERNAL, "out of memory for the figures of %s", result->name);
    const bool part = timed != NULL && timed->name[0] != '\0';
    snprintf(r->name, sizeof r->name, "%s%s%s", result->name, part ? "/" : "", part ? timed->name : "");
    r->part = part;
    r->outcome = result->outcome;
    snprintf(r->why, sizeof r->why, "%s", result->outcome == BENCH_MEASURED ? "" : result->why);
    if (timed != NULL) {
      r->back_to_back = timed->back_to_back;
      r->launches = timed->launches;
    }
    if (!part) {
      r->bytes = result->work.bytes;
      r->flops = result->work.flops;
      if (ceiling != NULL) r->floor = ceiling->floor, r->memory_bound = ceiling->memory_bound;
    }
    r->sm_mhz = result->watch.sm_mhz, r->watts = result->watch.watts, r->celsius = result->watch.celsius, r->others = result->watch.others;
    r->cycles = result->watch.cycles, r->ghz = result->watch.ghz;
    bench_throttle_text(result->watch.throttle, r->throttle, sizeof r->throttle);
    snprintf(r->runs, sizeof r->runs, "%s", result->runs);
    snprintf(r->machine_class, sizeof r->machine_class, "%s", machine->machine_class);
    snprintf(r->commit, sizeof r->commit, "%s", commit);
    strftime(r->date, sizeof r->date, "%Y-%m-%dT%H:%M:%SZ", &utc);
  }
  return LS_OK;
}

/* ---- the table ---- */

static void print_time(FILE *out, double seconds) {
  if (seconds <= 0)
    fprintf(out, " %11s", "-");
  else if (seconds < 1e-2)
    fprintf(out, " %8.1f us", 1e6 * seconds);
  else
    fprintf(out, " %8.1f ms", 1e3 * seconds);
}

void bench_print_table(const bench_records *records, bool parts, FILE *out) {
  fprintf(out, "%-44s %11s %7s %11s %11s %7s  %s\n", "scenario", "median", "spread", "b2b", "floor", "x floor", "bound by");
  for (int i = 0; i < records->n; i++) {
    const bench_record *r = &records->record[i];
    if (r->part && !parts) continue;
    const char *name = r->name;
    if (r->part) { /* under its scenario, without its name */
      int whole = i;
      while (records->record[whole].part) whole--;
      name += strlen(records->record[whole].name) + 1;
    }
    fprintf(out, "%s%-*s", r->part ? "  " : "", r->part ? 42 : 44, name);
    if (r->outcome != BENCH_MEASURED) {
      fprintf(out, " %s: %s\n", r->outcome == BENCH_NOT_MEASURED ? "not measured" : "NOT VERIFIED", r->why);
      continue;
    }
    const double median = bench_median(r->seconds, (size_t)r->n);
    print_time(out, median);
    fprintf(out, " %6.1f%%", 100 * bench_spread(r->seconds, (size_t)r->n));
    print_time(out, r->back_to_back);
    print_time(out, r->floor);
    if (r->floor > 0)
      fprintf(out, " %7.2f  %s, %.1f MB, %.3g GFLOP", median / r->floor, r->memory_bound ? "memory" : "compute", 1e-6 * r->bytes,
              1e-9 * r->flops);
    fputc('\n', out);
  }
}
