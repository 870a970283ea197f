/* The files of figures: Google Benchmark's JSON, whose readers are many (its compare.py, the dashboards of the common CI services), and a
 * history of lines. */
#include <errno.h>
#include <fcntl.h>
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../compare/report_model.h"
#include "bench_record.h"
#include "bench_statistics.h"

static json_t *text_json(const char *text) {
  char *clean = report_clean(text);
  json_t *j = json_string(clean != NULL ? clean : "");
  free(clean);
  return j;
}

static double mean(const bench_record *r) {
  double sum = 0;
  for (int i = 0; i < r->n; i++) sum += r->seconds[i];
  return sum / r->n;
}

static double deviation(const bench_record *r) {
  const double m = mean(r);
  double sum = 0;
  for (int i = 0; i < r->n; i++) sum += (r->seconds[i] - m) * (r->seconds[i] - m);
  return r->n > 1 ? sqrt(sum / (r->n - 1)) : 0;
}

/* ---- Google Benchmark ---- */

static const struct {
  const char *name;
  size_t at;
  double scale;
} counters[] = {
    {"back_to_back_us", offsetof(bench_record, back_to_back), 1e6},
    {"floor_us", offsetof(bench_record, floor), 1e6},
    {"bytes", offsetof(bench_record, bytes), 1},
    {"flops", offsetof(bench_record, flops), 1},
    {"sm_mhz", offsetof(bench_record, sm_mhz), 1},
    {"watts", offsetof(bench_record, watts), 1},
    {"celsius", offsetof(bench_record, celsius), 1},
    {"others", offsetof(bench_record, others), 1},
    {"cycles", offsetof(bench_record, cycles), 1},
    {"ghz", offsetof(bench_record, ghz), 1},
};
enum { COUNTERS = sizeof counters / sizeof *counters };

static double counter_of(const bench_record *r, int i) {
  double v;
  memcpy(&v, (const char *)r + counters[i].at, sizeof v);
  return v * counters[i].scale;
}

static void read_counters(bench_record *r, const json_t *j) {
  for (int c = 0; c < COUNTERS; c++) {
    const double v = json_number_value(json_object_get(j, counters[c].name)) / counters[c].scale;
    memcpy((char *)r + counters[c].at, &v, sizeof v);
  }
}

/* What every entry of a record carries. */
static json_t *entry(const bench_record *r, int family, const char *name, double seconds) {
  json_t *j = json_pack("{s:o, s:i, s:i, s:o, s:i, s:i, s:s}", "name", text_json(name), "family_index", family, "per_family_instance_index",
                        0, "run_name", text_json(r->name), "repetitions", r->n, "threads", 1, "time_unit", "us");
  if (j == NULL) return NULL;
  json_object_set_new(j, "real_time", json_real(1e6 * seconds));
  json_object_set_new(j, "cpu_time", json_real(1e6 * seconds));
  return j;
}

static bool add_runs(json_t *list, const bench_record *r, int family) {
  for (int i = 0; i < r->n; i++) {
    json_t *j = entry(r, family, r->name, r->seconds[i]);
    if (j == NULL) return false;
    json_object_set_new(j, "run_type", json_string("iteration"));
    json_object_set_new(j, "repetition_index", json_integer(i));
    json_object_set_new(j, "iterations", json_integer(1));
    for (int c = 0; c < COUNTERS; c++) {
      if (counter_of(r, c) != 0) json_object_set_new(j, counters[c].name, json_real(counter_of(r, c)));
    }
    if (r->launches > 0) json_object_set_new(j, "launches", json_integer(r->launches));
    json_object_set_new(j, "label", text_json(r->runs));
    json_array_append_new(list, j);
  }
  return true;
}

static bool add_aggregates(json_t *list, const bench_record *r, int family) {
  const struct {
    const char *name;
    double seconds;
  } of[] = {{"mean", mean(r)}, {"median", bench_median(r->seconds, (size_t)r->n)}, {"stddev", deviation(r)}, {"cv", 0}};
  for (int i = 0; i < 4; i++) {
    char name[BENCH_RECORD_NAME + 16];
    snprintf(name, sizeof name, "%s_%s", r->name, of[i].name);
    json_t *j = entry(r, family, name, of[i].seconds);
    if (j == NULL) return false;
    json_object_set_new(j, "run_type", json_string("aggregate"));
    json_object_set_new(j, "aggregate_name", json_string(of[i].name));
    json_object_set_new(j, "aggregate_unit", json_string(i == 3 ? "percentage" : "time"));
    json_object_set_new(j, "iterations", json_integer(r->n));
    if (i == 3) { /* a share, not a time, as that program has it */
      json_object_set_new(j, "real_time", json_real(deviation(r) / mean(r)));
      json_object_set_new(j, "cpu_time", json_real(deviation(r) / mean(r)));
    }
    json_array_append_new(list, j);
  }
  return true;
}

/* What was not measured is an entry that failed, which its readers pass over. */
static bool add_failure(json_t *list, const bench_record *r, int family) {
  json_t *j = entry(r, family, r->name, 0);
  char message[320];
  if (j == NULL) return false;
  snprintf(message, sizeof message, "%s: %s", r->outcome == BENCH_NOT_MEASURED ? "not measured" : "not verified", r->why);
  json_object_set_new(j, "run_type", json_string("iteration"));
  json_object_set_new(j, "repetition_index", json_integer(0));
  json_object_set_new(j, "iterations", json_integer(0));
  json_object_set_new(j, "error_occurred", json_true());
  json_object_set_new(j, "error_message", text_json(message));
  json_array_append_new(list, j);
  return true;
}

static json_t *context(const bench_records *records, const bench_machine *machine, const char *argv0) {
  const bench_record *r = records->n > 0 ? &records->record[0] : NULL;
  json_t *load = json_array();
  for (int i = 0; i < 3; i++) json_array_append_new(load, json_real(machine->load[i]));
  return json_pack("{s:o, s:o, s:o, s:i, s:i, s:b, s:[], s:o, s:s, s:o, s:o, s:o, s:o, s:o, s:o}", "date",
                   text_json(r != NULL ? r->date : ""), "host_name", text_json(machine->host), "executable", text_json(argv0), "num_cpus",
                   machine->cores, "mhz_per_cpu", (int)machine->mhz, "cpu_scaling_enabled", (int)machine->scaling, "caches", "load_avg",
                   load, "library_build_type", "release", "cpu", text_json(machine->cpu), "gpu", text_json(machine->gpu), "driver",
                   text_json(machine->driver), "machine_class", text_json(machine->machine_class), "commit",
                   text_json(r != NULL ? r->commit : ""), "no_cycles", text_json(machine->no_cycles));
}

static bool dump(FILE *out, void *root) {
  return json_dumpf(root, out, JSON_INDENT(1) | JSON_REAL_PRECISION(10)) == 0 && fputc('\n', out) != EOF;
}

ls_status bench_write_json(const bench_records *records, const bench_machine *machine, const char *file, const char *argv0, ls_error *err) {
  json_t *list = json_array(), *root = json_pack("{s:o, s:O}", "context", context(records, machine, argv0), "benchmarks", list);
  bool made = root != NULL;
  for (int i = 0; i < records->n && made; i++) {
    const bench_record *r = &records->record[i];
    made = r->n > 0 ? add_runs(list, r, i) && add_aggregates(list, r, i) : add_failure(list, r, i);
  }
  const ls_status status = made ? report_write(file, dump, root, err) : ls_fail(err, LS_INTERNAL, "%s: could not make JSON", file);
  json_decref(list);
  json_decref(root);
  return status;
}

static const char *string_of(const json_t *j, const char *key) {
  const char *text = json_string_value(json_object_get(j, key));
  return text != NULL ? text : "";
}

static double number_of(const json_t *j, const char *key) { return json_number_value(json_object_get(j, key)); }

static bench_record *named_record(bench_records *records, const char *name) {
  bench_record *r = (bench_record *)bench_records_find(records, name);
  if (r != NULL) return r;
  r = bench_records_add(records, NULL, 0);
  if (r != NULL) snprintf(r->name, sizeof r->name, "%s", name);
  return r;
}

static bool take_sample(bench_record *r, double seconds) {
  double *grown = realloc(r->seconds, (size_t)(r->n + 1) * sizeof *grown);
  if (grown == NULL) return false;
  grown[r->n++] = seconds;
  r->seconds = grown;
  return true;
}

static ls_status take_entry(bench_records *records, const json_t *j, const char *file, ls_error *err) {
  static const struct {
    const char *name;
    double seconds;
  } units[] = {{"ns", 1e-9}, {"us", 1e-6}, {"ms", 1e-3}, {"s", 1}};
  const char *name = string_of(j, "name"), *unit = string_of(j, "time_unit");
  if (strcmp(string_of(j, "run_type"), "aggregate") == 0) return LS_OK;
  if (*name == '\0') return ls_fail(err, LS_BAD_FIXTURE, "%s: a benchmark without a name", file);
  bench_record *r = named_record(records, name);
  if (r == NULL) return ls_fail(err, LS_INTERNAL, "%s: out of memory", file);
  if (json_is_true(json_object_get(j, "error_occurred"))) {
    r->outcome = BENCH_NOT_MEASURED;
    snprintf(r->why, sizeof r->why, "%s", string_of(j, "error_message"));
    return LS_OK;
  }
  double scale = 0;
  for (size_t i = 0; i < sizeof units / sizeof *units; i++) scale = strcmp(unit, units[i].name) == 0 ? units[i].seconds : scale;
  const double seconds = scale * number_of(j, "real_time");
  if (!(seconds > 0) || !isfinite(seconds))
    return ls_fail(err, LS_BAD_FIXTURE, "%s: %s: expected a positive real_time in ns, us, ms or s, found %g %s", file, name,
                   number_of(j, "real_time"), unit);
  read_counters(r, j);
  return take_sample(r, seconds) ? LS_OK : ls_fail(err, LS_INTERNAL, "%s: out of memory", file);
}

ls_status bench_read_json(bench_records *records, const char *file, ls_error *err) {
  json_error_t why;
  json_t *root = json_load_file(file, 0, &why);
  if (root == NULL) return ls_fail(err, LS_BAD_FIXTURE, "%s: line %d: %s", file, why.line, why.text);
  const json_t *list = json_object_get(root, "benchmarks"), *about = json_object_get(root, "context");
  ls_status status = json_is_array(list)
                         ? LS_OK
                         : ls_fail(err, LS_BAD_FIXTURE, "%s: expected Google Benchmark's JSON, found no array \"benchmarks\"", file);
  for (size_t i = 0; i < json_array_size(list) && status == LS_OK; i++) status = take_entry(records, json_array_get(list, i), file, err);
  for (int i = 0; i < records->n && status == LS_OK; i++) {
    bench_record *r = &records->record[i];
    snprintf(r->machine_class, sizeof r->machine_class, "%s", string_of(about, "machine_class"));
    snprintf(r->commit, sizeof r->commit, "%s", string_of(about, "commit"));
    snprintf(r->date, sizeof r->date, "%s", string_of(about, "date"));
  }
  json_decref(root);
  return status;
}

/* ---- history ---- */

static const char *const outcome_names[] = {"measured", "not measured", "not verified"};

static json_t *history_json(const bench_record *r) {
  json_t *samples = json_array();
  for (int i = 0; i < r->n; i++) json_array_append_new(samples, json_real(1e6 * r->seconds[i]));
  json_t *j =
      json_pack("{s:o, s:o, s:o, s:o, s:s, s:o, s:b, s:o, s:o, s:o}", "name", text_json(r->name), "date", text_json(r->date), "commit",
                text_json(r->commit), "machine_class", text_json(r->machine_class), "outcome", outcome_names[r->outcome], "why",
                text_json(r->why), "part", (int)r->part, "runs", text_json(r->runs), "throttle", text_json(r->throttle), "us", samples);
  for (int c = 0; j != NULL && c < COUNTERS; c++) {
    if (counter_of(r, c) != 0) json_object_set_new(j, counters[c].name, json_real(counter_of(r, c)));
  }
  return j;
}

/* The line with its end; NULL: no memory. */
static char *line_of(const bench_record *r) {
  json_t *j = history_json(r);
  char *text = j != NULL ? json_dumps(j, JSON_COMPACT | JSON_REAL_PRECISION(7)) : NULL;
  const size_t length = text != NULL ? strlen(text) : 0;
  char *line = text != NULL ? realloc(text, length + 2) : NULL;
  json_decref(j);
  if (line == NULL) {
    free(text);
    return NULL;
  }
  memcpy(line + length, "\n", 2);
  return line;
}

bool bench_print_line(const bench_record *record, FILE *out) {
  char *line = line_of(record);
  const bool printed = line != NULL && fputs(line, out) != EOF;
  free(line);
  return printed;
}

ls_status bench_append_history(const bench_records *records, const char *file, ls_error *err) {
  const int fd = open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  ls_status status = LS_OK;
  if (fd < 0) return ls_fail(err, LS_USAGE, "%s: cannot be written: %s", file, strerror(errno));
  for (int i = 0; i < records->n && status == LS_OK; i++) {
    char *line = line_of(&records->record[i]);
    const size_t length = line != NULL ? strlen(line) : 0;
    errno = line != NULL ? 0 : ENOMEM;
    if (line == NULL || write(fd, line, length) != (ssize_t)length)
      status = ls_fail(err, LS_INTERNAL, "%s: could not be written%s%s", file, errno != 0 ? ": " : "", errno != 0 ? strerror(errno) : "");
    free(line);
  }
  if (close(fd) != 0 && status == LS_OK) status = ls_fail(err, LS_INTERNAL, "%s: could not be written: %s", file, strerror(errno));
  return status;
}

ls_status bench_read_line(bench_records *records, const char *line, const char *file, int number, ls_error *err) {
  json_error_t why;
  json_t *j = json_loads(line, 0, &why);
  const json_t *samples = json_object_get(j, "us");
  ls_status status = LS_OK;
  if (j == NULL || *string_of(j, "name") == '\0' || !json_is_array(samples)) {
    status = ls_fail(err, LS_BAD_FIXTURE, "%s: line %d: %s", file, number, j == NULL ? why.text : "expected a name and an array \"us\"");
    json_decref(j);
    return status;
  }
  bench_record *r = bench_records_add(records, NULL, 0);
  if (r == NULL) status = ls_fail(err, LS_INTERNAL, "%s: out of memory", file);
  for (size_t i = 0; i < json_array_size(samples) && status == LS_OK; i++) {
    const double us = json_number_value(json_array_get(samples, i));
    if (!(us > 0) || !isfinite(us))
      status = ls_fail(err, LS_BAD_FIXTURE, "%s: line %d: expected positive times, found %g", file, number, us);
    else if (!take_sample(r, 1e-6 * us))
      status = ls_fail(err, LS_INTERNAL, "%s: out of memory", file);
  }
  if (status == LS_OK) {
    snprintf(r->name, sizeof r->name, "%s", string_of(j, "name"));
    snprintf(r->date, sizeof r->date, "%s", string_of(j, "date"));
    snprintf(r->commit, sizeof r->commit, "%s", string_of(j, "commit"));
    snprintf(r->machine_class, sizeof r->machine_class, "%s", string_of(j, "machine_class"));
    snprintf(r->why, sizeof r->why, "%s", string_of(j, "why"));
    snprintf(r->runs, sizeof r->runs, "%s", string_of(j, "runs"));
    snprintf(r->throttle, sizeof r->throttle, "%s", string_of(j, "throttle"));
    r->part = json_is_true(json_object_get(j, "part"));
    for (int o = 0; o < 3; o++) r->outcome = strcmp(string_of(j, "outcome"), outcome_names[o]) == 0 ? (bench_outcome)o : r->outcome;
    read_counters(r, j);
  }
  json_decref(j);
  return status;
}

ls_status bench_read_history(bench_records *records, const char *file, ls_error *err) {
  FILE *in = fopen(file, "r");
  char *line = NULL;
  size_t size = 0;
  ssize_t length;
  ls_status status = LS_OK;
  if (in == NULL) return ls_fail(err, LS_USAGE, "%s: cannot be read: %s", file, strerror(errno));
  for (int number = 1; status == LS_OK && (length = getline(&line, &size, in)) > 0; number++) {
    if (line[length - 1] == '\n' && length > 1) status = bench_read_line(records, line, file, number, err);
  }
  if (status == LS_OK && ferror(in)) status = ls_fail(err, LS_USAGE, "%s: cannot be read: %s", file, strerror(errno));
  free(line);
  fclose(in);
  return status;
}
