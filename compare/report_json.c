/* The JSON renderings, docs/report.schema.json and docs/fuzz.schema.json. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_shortage.h"
#include "ls_fuzz_report.h"
#include "ls_merge.h"
#include "report_model.h"

enum { FORMAT_VERSION = 1 };

/* A string from a file may not be UTF-8, which JSON must be. */
static json_t *text_json(const char *text) {
  json_t *j = json_string(text);
  if (j) return j;
  char *plain = ls_shortage_unless(strdup(text));
  for (char *c = plain; c && *c; c++) {
    if ((unsigned char)*c >= 0x80) *c = '?';
  }
  j = json_string(plain ? plain : "");
  free(plain);
  return j;
}

/* JSON has no NaN or infinity: they are the strings "nan", "inf", "-inf". */
static json_t *number_json(double v) {
  if (isnan(v)) return json_string("nan");
  if (isinf(v)) return json_string(v > 0 ? "inf" : "-inf");
  return json_real(v);
}

static json_t *steps_json(uint64_t steps) { return steps > (uint64_t)INT64_MAX ? json_null() : json_integer((json_int_t)steps); }

/* Enum values of the schema: lower case, underscores. */
static json_t *verdict_json(ls_verdict verdict) {
  char name[32];
  snprintf(name, sizeof name, "%s", ls_verdict_name(verdict));
  for (char *c = name; *c; c++) *c = *c == ' ' ? '_' : (char)(*c >= 'A' && *c <= 'Z' ? *c - 'A' + 'a' : *c);
  return json_string(name);
}

static json_t *sub_json(int64_t sub) { return sub < 0 ? json_null() : json_integer(sub); }
static json_t *mode_json(ls_mode mode) { return json_string(mode == LS_ISOLATED ? "isolated" : "cascaded"); }

static json_t *origin_json(report_origin origin) {
  return json_string(origin == ORIGIN_INTRODUCED ? "introduced" : origin == ORIGIN_INHERITED ? "inherited" : "unknown");
}

static json_t *result_json(const ls_result *r) {
  json_t *worst = json_null();
  if (r->has_worst) {
    json_t *index = json_array();
    for (int i = 0; i < r->worst_ndim; i++) json_array_append_new(index, json_integer(r->worst_index[i]));
    worst = json_pack("{s:o, s:o, s:o, s:o, s:o}", "index", index, "where", text_json(r->where), "a", number_json(r->worst_a), "b",
                      number_json(r->worst_b), "bound", number_json(r->worst_bound));
  }
  return json_pack("{s:o, s:I, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:I, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "verdict",
                   verdict_json(r->verdict), "count", (json_int_t)r->count, "zeros", (json_int_t)r->zeros, "bit_equal",
                   (json_int_t)r->bit_equal, "failing", (json_int_t)r->failing, "nonfinite", (json_int_t)r->nonfinite, "use",
                   number_json(r->use), "use_999", number_json(ls_result_use_999(r)), "steps", steps_json(r->steps), "rows",
                   (json_int_t)r->rows, "rows_failing", (json_int_t)r->rows_failing, "ties", (json_int_t)r->ties, "near_ties",
                   (json_int_t)r->near_ties, "worst", worst, "note", text_json(r->note), "pattern", text_json(r->pattern), "pattern_text",
                   text_json(r->pattern_text));
}

static json_t *runs_json(const report_tally *tally) {
  json_t *runs = json_object();
  for (int v = 0; v < LS_VERDICTS; v++) {
    json_t *name = verdict_json((ls_verdict)v);
    json_object_set_new(runs, json_string_value(name), json_integer(tally->runs[v]));
    json_decref(name);
  }
  return runs;
}

static json_t *failures_json(const report_file *file, const ls_report_options *options, const report_tally *tally, const char *stage,
                             int64_t sub) {
  char command[2048];
  json_t *list = json_array();
  for (int i = 0; i < tally->n_bad; i++) {
    const report_failure *bad = &tally->bad[i];
    report_repeat(command, sizeof command, file, options, stage, sub, bad->step);
    json_array_append_new(list, json_pack("{s:I, s:o, s:o}", "step", (json_int_t)bad->step, "result", result_json(&bad->result), "repeat",
                                          text_json(command)));
  }
  return list;
}

static json_t *stages_json(const report_file *file, const ls_report_options *options) {
  json_t *list = json_array();
  for (int i = 0; i < file->n_entries; i++) {
    const report_entry *e = &file->entry[i];
    json_array_append_new(
        list, json_pack("{s:o, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "stage", text_json(e->stage), "sub", sub_json(e->sub), "pair",
                        text_json(e->pair), "mode", mode_json(e->mode), "verdict", verdict_json(e->tally.total.verdict), "runs",
                        runs_json(&e->tally), "result", result_json(&e->tally.total), "failures",
                        failures_json(file, options, &e->tally, e->stage, e->sub)));
  }
  return list;
}

static json_t *properties_json(const report_file *file, const ls_report_options *options) {
  json_t *list = json_array();
  for (int i = 0; i < file->n_properties; i++) {
    const report_property *p = &file->property[i];
    json_array_append_new(list, json_pack("{s:o, s:o, s:o, s:o, s:o}", "property", text_json(p->property), "path", text_json(p->path),
                                          "verdict", verdict_json(p->tally.total.verdict), "runs", runs_json(&p->tally), "failures",
                                          failures_json(file, options, &p->tally, NULL, -1)));
  }
  return list;
}

static json_t *finding_json(const report_file *file, const ls_report_options *options, const report_finding *f) {
  char command[2048];
  const report_entry *e = f->mode[f->first_mode];
  const report_failure *explained = report_explained(&e->tally);
  report_repeat(command, sizeof command, file, options, e->stage, e->sub, f->first->step);
  return json_pack("{s:I, s:o, s:o, s:o, s:o, s:o, s:b, s:o, s:o, s:o, s:o, s:o}", "step", (json_int_t)f->first->step, "stage",
                   text_json(e->stage), "sub", sub_json(e->sub), "pair", text_json(e->pair), "mode", mode_json(f->first_mode), "origin",
                   origin_json(f->origin), "known", (int)f->known, "where", text_json(f->first->result.where), "note",
                   text_json(f->first->result.note), "pattern", text_json(explained ? explained->result.pattern : ""), "pattern_text",
                   text_json(explained ? explained->result.pattern_text : ""), "repeat", text_json(command));
}

static json_t *bisect_json(const ls_bisect *b) {
  static const char *const origin[LS_ORIGINS] = {"none", "stage", "step", "state", "unknown"};
  return json_pack("{s:s, s:o, s:o, s:o, s:I, s:o}", "origin", origin[b->origin], "failing_step",
                   b->failing_step < 0 ? json_null() : json_integer(b->failing_step), "origin_step",
                   b->origin_step < 0 ? json_null() : json_integer(b->origin_step), "name", text_json(b->name), "passes",
                   (json_int_t)b->passes, "line", text_json(b->line));
}

static ls_status file_json(json_t **json, const report_file *file, const ls_report_options *options, ls_error *err) {
  report_finding *found = NULL;
  int n = 0;
  LS_TRY(report_findings(&found, &n, file, options, err));
  report_verdict v = report_judge(file, options);
  json_t *paths = json_array(), *notes = json_array(), *findings = json_array();
  for (int i = 0; i < file->n_paths; i++) {
    json_array_append_new(
        paths, json_pack("{s:o, s:o}", "name", text_json(file->path[i].name), "description", text_json(file->path[i].description)));
  }
  for (int i = 0; i < file->n_notes; i++) json_array_append_new(notes, text_json(file->note[i]));
  for (int i = 0; i < n; i++) json_array_append_new(findings, finding_json(file, options, &found[i]));
  json_t *first = n > 0 && !found[0].known ? finding_json(file, options, &found[0]) : json_null();
  json_t *stop = json_null();
  if (file->stop != LS_OK) {
    stop = json_pack("{s:i, s:s, s:o}", "exit_status", (int)file->stop, "status", ls_status_name(file->stop), "line",
                     text_json(file->stop_line ? file->stop_line : ""));
  }
  const char *verdict = file->stop != LS_OK ? "not_finished" : v.status == LS_OK ? "pass" : "fail";
  *json = json_pack("{s:o, s:o, s:o, s:o, s:o, s:s, s:i, s:I, s:o, s:o, s:o, s:o, s:o, s:o, s:o}", "file", text_json(file->file), "title",
                    text_json(file->title), "layer", file->layer ? text_json(file->layer->name) : json_null(), "act_dtype",
                    file->layer ? text_json(ls_dtype_name(file->act)) : json_null(), "config", text_json(file->config_text), "verdict",
                    verdict, "exit_status", (int)v.status, "elements_compared", (json_int_t)v.compared, "stop", stop, "paths", paths,
                    "notes", notes, "first_divergence", first, "findings", findings, "stages", stages_json(file, options), "properties",
                    properties_json(file, options));
  if (*json && file->has_bisect) json_object_set_new(*json, "bisect", bisect_json(&file->bisect));
  free(found);
  return *json ? LS_OK : ls_fail(err, LS_INTERNAL, "report: could not make JSON of %s", file->file);
}

/* Which of how many shards a report covers; merging several lists them all. */
static json_t *shards_json(int64_t shard, int64_t shards) {
  return json_pack("{s:I, s:[I]}", "of", (json_int_t)shards, "ran", (json_int_t)shard + 1);
}

static bool write_json(FILE *out, void *root) {
  return json_dumpf(root, out, JSON_INDENT(2) | JSON_REAL_PRECISION(12)) == 0 && fputc('\n', out) != EOF;
}

ls_status ls_report_json(const ls_report *report, const ls_report_options *options, const char *file, ls_error *err) {
  static const char *const state_name[] = {[KNOWN_FAILS] = "fails", [KNOWN_PASSES] = "passes", [KNOWN_NOT_RUN] = "not_run"};
  ls_status status = LS_OK;
  int passed = 0, failed = 0, stopped = 0;
  json_t *root = NULL, *files = json_array(), *known = json_array();
  for (int i = 0; i < report->n_files; i++) {
    json_t *one = NULL;
    LS_TRY_OUT(file_json(&one, &report->file[i], options, err));
    json_array_append_new(files, one);
    bool ok = report_judge(&report->file[i], options).status == LS_OK;
    passed += ok;
    stopped += report->file[i].stop != LS_OK;
    failed += !ok && report->file[i].stop == LS_OK;
  }
  for (const char *const *name = options->known_failures; name && *name; name++) {
    json_array_append_new(known, json_pack("{s:o, s:s}", "name", text_json(*name), "state", state_name[report_known_state(report, *name)]));
  }
  ls_status exit_status = ls_report_status(report, options);
  root = json_pack("{s:s, s:i, s:o, s:o, s:b, s:i, s:s, s:{s:i, s:i, s:i, s:i}, s:O, s:O}", "format", "lockstep-report", "format_version",
                   FORMAT_VERSION, "program", text_json(options->program ? options->program : "lockstep"), "options",
                   text_json(options->repeat_options ? options->repeat_options : ""), "allow_mistrusted", (int)options->allow_mistrusted,
                   "exit_status", (int)exit_status, "status", ls_status_name(exit_status), "totals", "files", report->n_files, "pass",
                   passed, "fail", failed, "not_finished", stopped, "files", files, "known_failures", known);
  if (!root) {
    status = ls_fail(err, LS_INTERNAL, "report: could not make JSON");
    goto out;
  }
  if (options->shards > 0) json_object_set_new(root, "shards", shards_json(options->shard, options->shards));
  status = report_write(file, write_json, root, err);
out:
  json_decref(root);
  json_decref(files);
  json_decref(known);
  return status;
}

/* ---- a fuzz run ---- */

static json_t *text_or_null(const char *text) { return text ? text_json(text) : json_null(); }

static json_t *fuzz_failure_json(const ls_fuzz_failure *f) {
  return json_pack("{s:I, s:o, s:o, s:o, s:o, s:I, s:I, s:I, s:o, s:o, s:o, s:o}", "case", (json_int_t)f->number, "name",
                   text_or_null(f->name), "finding", text_or_null(f->finding), "file", text_or_null(f->file), "shrunk",
                   text_or_null(f->shrunk), "steps_before", (json_int_t)f->steps_before, "steps", (json_int_t)f->steps, "tried",
                   (json_int_t)f->tried, "seconds", json_real(f->seconds), "history", text_or_null(f->history), "shape",
                   text_or_null(f->shape), "repeat", text_or_null(f->repeat_case));
}

ls_status ls_fuzz_report_json(const ls_fuzz_report *report, const char *file, ls_error *err) {
  const ls_status exit_status = ls_fuzz_report_status(report);
  json_t *operations = json_object(), *failures = json_array();
  for (int op = 0; op < LS_OPS; op++) {
    if ((report->layer->ops & 1u << op) != 0) json_object_set_new(operations, ls_op_name((ls_op)op), json_integer(report->op[op]));
  }
  for (int64_t i = 0; i < report->failures; i++) json_array_append_new(failures, fuzz_failure_json(&report->failure[i]));
  char seed[32];
  snprintf(seed, sizeof seed, "%llu", (unsigned long long)report->seed);
  json_t *root =
      json_pack("{s:s, s:i, s:s, s:s, s:I, s:o, s:o, s:i, s:s, s:b, s:{s:I, s:o, s:I, s:I, s:I}, s:o, s:o}", "format", "lockstep-fuzz",
                "format_version", FORMAT_VERSION, "layer", report->layer->name, "seed", seed, "runs", (json_int_t)report->runs, "shards",
                shards_json(report->shard, report->shards), "paths", text_json(report->paths), "exit_status", (int)exit_status, "status",
                ls_status_name(exit_status), "interrupted", (int)report->interrupted, "totals", "cases", (json_int_t)report->cases,
                "operations", operations, "refused", (json_int_t)report->refused, "elements_compared", (json_int_t)report->compared,
                "failures", (json_int_t)report->failures, "seconds", json_real(report->seconds), "failures", failures);
  if (!root) return ls_fail(err, LS_INTERNAL, "report: could not make JSON");
  const ls_status status = report_write(file, write_json, root, err);
  json_decref(root);
  return status;
}

/* ---- merging ---- */

/* A member that must be there and of this type; NULL with a line in err. */
static json_t *need(const json_t *object, const char *file, const char *name, json_type type, ls_error *err) {
  static const char *const word[] = {
      [JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list", [JSON_STRING] = "a string", [JSON_INTEGER] = "an integer"};
  json_t *found = json_object_get(object, name);
  if (found && json_typeof(found) == type) return found;
  ls_fail(err, LS_BAD_FIXTURE, "%s: expected %s named %s, found %s", file, word[type], name, found ? "another type" : "nothing");
  return NULL;
}

typedef struct {
  const char *file;
  json_t *root, *list; /* files, or failures */
  int64_t shard;       /* 1-based; 0: a whole run */
} part;

static int by_shard(const void *a, const void *b) {
  const int64_t x = ((const part *)a)->shard, y = ((const part *)b)->shard;
  return (x > y) - (x < y);
}

static bool is_fuzz(const json_t *root) {
  const char *format = json_string_value(json_object_get(root, "format"));
  return format && strcmp(format, "lockstep-fuzz") == 0;
}

/* Reads one report, and what shard it is. A merged one stands for all that it was made from. */
static ls_status read_part(part *p, const char *file, ls_shards *shards, ls_error *err) {
  json_error_t wrong;
  p->file = file;
  p->root = json_load_file(file, JSON_REJECT_DUPLICATES, &wrong);
  if (!p->root) return ls_fail(err, LS_BAD_FIXTURE, "%s: expected a report as JSON, found line %d: %.100s", file, wrong.line, wrong.text);
  const char *format = json_string_value(json_object_get(p->root, "format"));
  if (!format || (strcmp(format, "lockstep-fuzz") != 0 && strcmp(format, "lockstep-report") != 0))
    return ls_fail(err, LS_BAD_FIXTURE, "%s: expected format lockstep-report or lockstep-fuzz, found %.40s", file,
                   format ? format : "none");
  const json_t *version = need(p->root, file, "format_version", JSON_INTEGER, err);
  if (!version) return LS_BAD_FIXTURE;
  if (json_integer_value(version) != FORMAT_VERSION)
    return ls_fail(err, LS_BAD_FIXTURE, "%s: expected format_version %d, found %lld", file, FORMAT_VERSION,
                   (long long)json_integer_value(version));
  p->list = need(p->root, file, is_fuzz(p->root) ? "failures" : "files", JSON_ARRAY, err);
  if (!p->list || !need(p->root, file, "totals", JSON_OBJECT, err) || !need(p->root, file, "exit_status", JSON_INTEGER, err))
    return LS_BAD_FIXTURE;
  const json_t *ran = NULL, *one;
  size_t i;
  if (!json_object_get(p->root, "shards")) return ls_shards_add(shards, file, 0, 0, err);
  const json_t *of = need(p->root, file, "shards", JSON_OBJECT, err);
  if (of) ran = need(of, file, "ran", JSON_ARRAY, err);
  if (ran) of = need(of, file, "of", JSON_INTEGER, err);
  if (!ran || !of) return LS_BAD_FIXTURE;
  json_array_foreach(ran, i, one) {
    if (!json_is_integer(one)) return ls_fail(err, LS_BAD_FIXTURE, "%s: expected numbers of shards, found another type", file);
    if (i == 0) p->shard = json_integer_value(one);
    LS_TRY(ls_shards_add(shards, file, json_integer_value(one), json_integer_value(of), err));
  }
  return i > 0 ? LS_OK : ls_fail(err, LS_BAD_FIXTURE, "%s: expected at least one shard, found none", file);
}

/* What reports of one run have in common. */
static ls_status check_same(const part *a, const part *b, ls_error *err) {
  static const char *const names[] = {"format", "layer", "seed", "runs", "paths", "program", "options", "allow_mistrusted"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const json_t *x = json_object_get(a->root, names[i]), *y = json_object_get(b->root, names[i]);
    if (x == y || (x && y && json_equal(x, y))) continue;
    char *one = x ? json_dumps(x, JSON_ENCODE_ANY) : NULL, *other = y ? json_dumps(y, JSON_ENCODE_ANY) : NULL;
    ls_fail(err, LS_BAD_FIXTURE, "%s: expected a report of the same run as %s, %s %.60s, found %.60s", b->file, a->file, names[i],
            one ? one : "(none)", other ? other : "(none)");
    free(one);
    free(other);
    return LS_BAD_FIXTURE;
  }
  return LS_OK;
}

static void add_number(json_t *to, const json_t *from, const char *name) {
  json_t *x = json_object_get(to, name), *y = json_object_get(from, name);
  if (json_is_integer(x) && json_is_integer(y)) json_integer_set(x, json_integer_value(x) + json_integer_value(y));
}

static void add_totals(json_t *to, const json_t *from) {
  const char *name;
  json_t *value;
  json_object_foreach(to, name, value) {
    if (json_is_object(value)) {
      add_totals(value, json_object_get(from, name));
    } else {
      add_number(to, from, name);
    }
  }
}

/* The members of all lists: in turn, as the files were dealt to shards. */
static json_t *dealt(const part *parts, int n) {
  json_t *all = json_array();
  size_t most = 0;
  for (int p = 0; p < n; p++) most = json_array_size(parts[p].list) > most ? json_array_size(parts[p].list) : most;
  for (size_t i = 0; i < most; i++) {
    for (int p = 0; p < n; p++)
      if (i < json_array_size(parts[p].list)) json_array_append(all, json_array_get(parts[p].list, i));
  }
  return all;
}

static int64_t case_of(const json_t *failure) { return json_integer_value(json_object_get(failure, "case")); }

/* By number of the case. */
static json_t *sorted_failures(const part *parts, int n) {
  json_t *all = json_array();
  for (int p = 0; p < n; p++) {
    json_t *failure;
    size_t i;
    json_array_foreach(parts[p].list, i, failure) {
      size_t at = 0;
      while (at < json_array_size(all) && case_of(json_array_get(all, at)) < case_of(failure)) at++;
      json_array_insert(all, at, failure);
    }
  }
  return all;
}

/* A known failure fails where it does in any report, and passes where it was compared and failed in none. */
static ls_status merge_known(json_t *root, const part *parts, int n, bool *passes, ls_error *err) {
  static const char *const rank[] = {"not_run", "passes", "fails"};
  json_t *known = need(root, parts[0].file, "known_failures", JSON_ARRAY, err), *one;
  size_t i;
  *passes = false;
  if (!known) return LS_BAD_FIXTURE;
  json_array_foreach(known, i, one) {
    size_t state = 0;
    for (int p = 0; p < n; p++) {
      const json_t *list = json_object_get(parts[p].root, "known_failures"), *there = json_array_get(list, i);
      const char *name = json_string_value(json_object_get(there, "name")), *word = json_string_value(json_object_get(there, "state"));
      if (!name || !word || !json_equal(json_object_get(there, "name"), json_object_get(one, "name")))
        return ls_fail(err, LS_BAD_FIXTURE, "%s: expected the known failures of %s, found others", parts[p].file, parts[0].file);
      for (size_t k = state + 1; k < 3; k++) state = strcmp(word, rank[k]) == 0 ? k : state;
    }
    json_object_set_new(one, "state", json_string(rank[state]));
    *passes = *passes || state == 1;
  }
  return LS_OK;
}

static ls_status merge_verify(json_t *root, const part *parts, int n, ls_status *whole, ls_error *err) {
  bool passes = false;
  size_t i;
  json_t *file, *files = dealt(parts, n);
  json_object_set_new(root, "files", files);
  LS_TRY(merge_known(root, parts, n, &passes, err));
  if (passes) *whole = report_graver_status(*whole, LS_DIVERGED);
  json_array_foreach(files, i, file) {
    *whole = report_graver_status(*whole, (ls_status)json_integer_value(json_object_get(file, "exit_status")));
  }
  if (json_array_size(files) == 0 && !json_is_true(json_object_get(root, "allow_mistrusted")))
    *whole = report_graver_status(*whole, LS_DIVERGED);
  return LS_OK;
}

static ls_status merge_fuzz(json_t *root, const part *parts, int n, ls_status *whole) {
  double seconds = 0;
  bool interrupted = false;
  for (int p = 0; p < n; p++) {
    const double one = json_number_value(json_object_get(parts[p].root, "seconds"));
    seconds = one > seconds ? one : seconds;
    interrupted = interrupted || json_is_true(json_object_get(parts[p].root, "interrupted"));
    *whole = report_graver_status(*whole, (ls_status)json_integer_value(json_object_get(parts[p].root, "exit_status")));
  }
  json_object_set_new(root, "seconds", json_real(seconds));
  json_object_set_new(root, "interrupted", json_boolean(interrupted));
  json_object_set_new(root, "failures", sorted_failures(parts, n));
  return LS_OK;
}

static void set_shards(json_t *root, const ls_shards *shards) {
  if (shards->of <= 0) return;
  json_t *ran = json_array();
  for (int64_t shard = 1; shard <= shards->of; shard++) {
    for (int64_t i = 0; i < shards->n; i++)
      if (shards->ran[i] == shard) json_array_append_new(ran, json_integer(shard));
  }
  json_object_set_new(root, "shards", json_pack("{s:I, s:o}", "of", (json_int_t)shards->of, "ran", ran));
}

static void describe_merged(ls_merged *merged, const json_t *root, int n) {
  char *totals = json_dumps(json_object_get(root, "totals"), JSON_COMPACT);
  const char *layer = json_string_value(json_object_get(root, "layer"));
  for (char *c = totals; c && *c; c++) *c = *c == '"' || *c == '{' || *c == '}' ? ' ' : *c;
  snprintf(merged->line, sizeof merged->line, "%d report%s of %s%s:%.300s", n, n == 1 ? "" : "s", is_fuzz(root) ? "fuzz " : "verify",
           is_fuzz(root) && layer ? layer : "", totals ? totals : "");
  free(totals);
}

ls_status ls_merge_json(ls_merged *merged, const char *const *files, int n, const char *out, ls_error *err) {
  ls_status status = LS_OK;
  ls_shards shards = {.of = 0};
  json_t *root = NULL;
  part *parts = calloc((size_t)n, sizeof *parts);
  *merged = (ls_merged){.status = LS_OK};
  if (!parts) return ls_fail(err, LS_INTERNAL, "merge: out of memory");
  for (int p = 0; p < n; p++) {
    LS_TRY_OUT(read_part(&parts[p], files[p], &shards, err));
    LS_TRY_OUT(check_same(&parts[0], &parts[p], err));
  }
  qsort(parts, (size_t)n, sizeof *parts, by_shard);
  root = json_deep_copy(parts[0].root);
  if (!root) {
    status = ls_fail(err, LS_INTERNAL, "merge: out of memory");
    goto out;
  }
  for (int p = 1; p < n; p++) add_totals(json_object_get(root, "totals"), json_object_get(parts[p].root, "totals"));
  LS_TRY_OUT(is_fuzz(root) ? merge_fuzz(root, parts, n, &merged->status) : merge_verify(root, parts, n, &merged->status, err));
  set_shards(root, &shards);
  if (ls_shards_missing(merged->missing, sizeof merged->missing, &shards)[0])
    merged->status = report_graver_status(merged->status, LS_DIVERGED);
  json_object_set_new(root, "exit_status", json_integer((json_int_t)merged->status));
  json_object_set_new(root, "status", json_string(ls_status_name(merged->status)));
  describe_merged(merged, root, n);
  if (out) status = report_write(out, write_json, root, err);
out:
  json_decref(root);
  for (int p = 0; p < n; p++) json_decref(parts[p].root);
  free(parts);
  ls_shards_free(&shards);
  return status;
}
