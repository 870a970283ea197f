/* The JSON rendering, docs/report.schema.json. */
#include <jansson.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_shortage.h"
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
  status = report_write(file, write_json, root, err);
out:
  json_decref(root);
  json_decref(files);
  json_decref(known);
  return status;
}
