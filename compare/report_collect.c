#include <errno.h>
#include <fnmatch.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_shortage.h"
#include "report_model.h"

/* ---- collecting ---- */

void *report_grow(void *array, int *n, int *room, size_t size) {
  char *items;
  memcpy(&items, array, sizeof items);
  if (*n == *room) {
    int larger = *room > 0 ? 2 * *room : 8;
    char *moved = ls_shortage_unless(realloc(items, (size_t)larger * size));
    if (!moved) return NULL; /* the array stays its owner's */
    items = moved;
    memcpy(array, &items, sizeof items);
    *room = larger;
  }
  char *item = items + (size_t)*n * size;
  memset(item, 0, size);
  (*n)++;
  return item;
}

static ls_status no_memory(ls_error *err) { return ls_fail(err, LS_INTERNAL, "report: out of memory"); }

/* A copy for one line of a terminal: what comes from a file must not bring control characters along. */
static char *copy_line(const char *text) {
  char *copy = ls_shortage_unless(strdup(text ? text : ""));
  for (char *c = copy; c && *c; c++) {
    if ((unsigned char)*c < 0x20 || *c == 0x7F) *c = '?';
  }
  return copy;
}

ls_status ls_report_new(ls_report **report, ls_error *err) {
  *report = ls_shortage_unless(calloc(1, sizeof **report));
  return *report ? LS_OK : no_memory(err);
}

void ls_report_free(ls_report *report) {
  if (!report) return;
  for (int i = 0; i < report->n_files; i++) {
    report_file *file = &report->file[i];
    for (int j = 0; j < file->n_paths; j++) free(file->path[j].description);
    for (int j = 0; j < file->n_entries; j++) free(file->entry[j].tally.bad);
    for (int j = 0; j < file->n_properties; j++) free(file->property[j].tally.bad);
    for (int j = 0; j < file->n_notes; j++) free(file->note[j]);
    report_details_free(file);
    free(file->file);
    free(file->title);
    free(file->config_text);
    free(file->path);
    free(file->entry);
    free(file->property);
    free(file->note);
    free(file->stop_line);
  }
  free(report->file);
  free(report);
}

ls_status ls_report_file(ls_report *report, const char *file, const char *title, const ls_config *config, ls_error *err) {
  char config_text[512] = "";
  report_file *f = report_grow(&report->file, &report->n_files, &report->files_room, sizeof *f);
  if (!f) return no_memory(err);
  if (config) {
    f->layer = config->layer;
    f->act = config->act;
    ls_config_text(config_text, sizeof config_text, config);
  }
  f->file = ls_shortage_unless(strdup(file));
  f->title = copy_line(title);
  f->config_text = copy_line(config_text);
  if (f->file && f->title && f->config_text) return LS_OK;
  free(f->file); /* a section without a name is none */
  free(f->title);
  free(f->config_text);
  report->n_files--;
  return no_memory(err);
}

/* The open section; NULL, with the error recorded, before the first. */
static report_file *current(ls_report *report, ls_error *err) {
  if (report->n_files > 0) return &report->file[report->n_files - 1];
  ls_fail(err, LS_INTERNAL, "report: something was added before any file");
  return NULL;
}

ls_status ls_report_path(ls_report *report, const char *path, const char *description, ls_error *err) {
  report_file *file = current(report, err);
  if (!file) return LS_INTERNAL;
  report_path *p = report_grow(&file->path, &file->n_paths, &file->paths_room, sizeof *p);
  if (!p) return no_memory(err);
  snprintf(p->name, sizeof p->name, "%s", path);
  p->description = copy_line(description);
  if (p->description) return LS_OK;
  file->n_paths--;
  return no_memory(err);
}

static ls_status add(report_tally *tally, int64_t step, const ls_result *result, ls_error *err) {
  if (result->verdict < 0 || result->verdict >= LS_VERDICTS)
    return ls_fail(err, LS_INTERNAL, "report: no verdict %d", (int)result->verdict);
  ls_result_merge(&tally->total, result);
  tally->runs[result->verdict]++;
  if (tally->n_bad == 0 && tally->total.verdict == LS_FAIL && result->verdict != LS_FAIL) result = &tally->total; /* only all together */
  if ((result->verdict == LS_FAIL || result->verdict == LS_MISSING) && tally->n_bad < LS_KEPT_FAILURES) {
    report_failure *bad = report_grow(&tally->bad, &tally->n_bad, &tally->bad_room, sizeof *bad);
    if (!bad) return no_memory(err);
    bad->step = step;
    bad->result = *result;
    for (int i = tally->n_bad - 1; i > 0 && tally->bad[i - 1].step > tally->bad[i].step; i--) { /* steps may be added out of order */
      report_failure swap = tally->bad[i];
      tally->bad[i] = tally->bad[i - 1];
      tally->bad[i - 1] = swap;
    }
  }
  return LS_OK;
}

static int order_of(const report_file *file, const char *stage) {
  int n = file->layer ? file->layer->n_stages : 0;
  for (int i = 0; i < n; i++) {
    if (strcmp(file->layer->stages[i].name, stage) == 0) return i;
  }
  return n;
}

static int pair_order_of(const report_file *file, const char *pair) {
  int next = 0;
  for (int i = 0; i < file->n_entries; i++) {
    if (strcmp(file->entry[i].pair, pair) == 0) return file->entry[i].pair_order;
    if (file->entry[i].pair_order >= next) next = file->entry[i].pair_order + 1;
  }
  return next;
}

ls_status ls_report_stage(ls_report *report, int64_t step, const char *stage, int64_t sub, const char *pair, ls_mode mode,
                          const ls_result *result, ls_error *err) {
  report_file *file = current(report, err);
  if (!file) return LS_INTERNAL;
  if (strlen(stage) >= LS_NAME_MAX || strlen(pair) >= LS_MAX_PAIR || mode < 0 || mode >= LS_MODES) {
    return ls_fail(err, LS_INTERNAL, "report: bad name or mode: %.80s, %.80s", stage, pair);
  }
  report_entry *entry = NULL;
  for (int i = 0; i < file->n_entries && !entry; i++) { /* every step adds in the same order: the one sought follows the last one found */
    int at = (file->hint + i) % file->n_entries;
    report_entry *e = &file->entry[at];
    if (e->sub == sub && e->mode == mode && strcmp(e->stage, stage) == 0 && strcmp(e->pair, pair) == 0) {
      entry = e;
      file->hint = at + 1;
    }
  }
  if (!entry) {
    int pair_order = pair_order_of(file, pair);
    entry = report_grow(&file->entry, &file->n_entries, &file->entries_room, sizeof *entry);
    if (!entry) return no_memory(err);
    strcpy(entry->stage, stage);
    strcpy(entry->pair, pair);
    entry->sub = sub, entry->mode = mode, entry->order = order_of(file, stage), entry->pair_order = pair_order;
    ls_result_init(&entry->tally.total);
  }
  return add(&entry->tally, step, result, err);
}

ls_status ls_report_property(ls_report *report, int64_t step, const char *property, const char *path, const ls_result *result,
                             ls_error *err) {
  report_file *file = current(report, err);
  if (!file) return LS_INTERNAL;
  if (strlen(property) >= LS_NAME_MAX || strlen(path) >= LS_NAME_MAX) {
    return ls_fail(err, LS_INTERNAL, "report: name too long: %.80s, %.80s", property, path);
  }
  report_property *found = NULL;
  for (int i = 0; i < file->n_properties && !found; i++) {
    report_property *p = &file->property[i];
    if (strcmp(p->property, property) == 0 && strcmp(p->path, path) == 0) found = p;
  }
  if (!found) {
    found = report_grow(&file->property, &file->n_properties, &file->properties_room, sizeof *found);
    if (!found) return no_memory(err);
    strcpy(found->property, property);
    strcpy(found->path, path);
    ls_result_init(&found->tally.total);
  }
  return add(&found->tally, step, result, err);
}

ls_status ls_report_stop(ls_report *report, ls_status status, const char *line, ls_error *err) {
  if (report->n_files == 0) LS_TRY(ls_report_file(report, "", "", NULL, err));
  report_file *file = current(report, err);
  if (!file) return LS_INTERNAL;
  if (file->stop != LS_OK || status == LS_OK) return LS_OK; /* the first reason stays */
  file->stop = status == LS_REFUSED ? LS_INTERNAL : status; /* a refusal is a result; a file that ends with one was not handled */
  file->stop_line = copy_line(line);
  return file->stop_line ? LS_OK : no_memory(err);
}

ls_status ls_report_note(ls_report *report, const char *line, ls_error *err) {
  report_file *file = current(report, err);
  if (!file) return LS_INTERNAL;
  char **note = report_grow(&file->note, &file->n_notes, &file->notes_room, sizeof *note);
  if (!note) return no_memory(err);
  *note = copy_line(line);
  if (*note) return LS_OK;
  file->n_notes--;
  return no_memory(err);
}

/* ---- names ---- */

const char *report_base_name(const char *file) {
  const char *slash = strrchr(file, '/');
  return slash ? slash + 1 : file;
}

char *report_stage_name(char *buf, size_t size, const char *stage, int64_t sub) {
  if (sub < 0) {
    snprintf(buf, size, "%s", stage);
  } else {
    snprintf(buf, size, "%s.%lld", stage, (long long)sub);
  }
  return buf;
}

const report_failure *report_explained(const report_tally *tally) {
  for (int i = 0; i < tally->n_bad; i++) {
    if (tally->bad[i].result.pattern[0]) return &tally->bad[i];
  }
  return NULL;
}

char *report_pattern_words(char *buf, size_t size, const report_tally *tally) {
  const report_failure *of = report_explained(tally);
  char step[32] = "";
  if (of != NULL && of != &tally->bad[0]) snprintf(step, sizeof step, "step %lld: ", (long long)of->step);
  snprintf(buf, size, "%s%s%s%s%s", step, of ? of->result.pattern_text : "", of ? " (" : "", of ? of->result.pattern : "", of ? ")" : "");
  return buf;
}

const char *report_origin_text(report_origin origin) {
  switch (origin) {
    case ORIGIN_INTRODUCED:
      return "introduced here";
    case ORIGIN_INHERITED:
      return "inherited";
    default:
      return "introduced or inherited is not known: not judged in isolation";
  }
}

/* A word for a POSIX shell. */
static void quote(char *buf, size_t size, const char *word) {
  static const char plain[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-./+=:,@%";
  size_t used = 0;
  if (*word && strspn(word, plain) == strlen(word)) {
    snprintf(buf, size, "%s", word);
    return;
  }
  used += (size_t)snprintf(buf, size, "'");
  for (; *word && used + 6 < size; word++) used += (size_t)snprintf(buf + used, size - used, *word == '\'' ? "'\\''" : "%c", *word);
  snprintf(buf + used, size - used, "'");
}

char *report_repeat(char *buf, size_t size, const report_file *file, const ls_report_options *options, const char *stage, int64_t sub,
                    int64_t step) {
  char name[LS_NAME_MAX + 32], path[1024], select[LS_NAME_MAX + 48] = "";
  if (stage) snprintf(select, sizeof select, " --stage %s", report_stage_name(name, sizeof name, stage, sub));
  const char *repeat = options->repeat_options ? options->repeat_options : "";
  char only[40] = "";
  if (!options->no_step) snprintf(only, sizeof only, " --step %lld", (long long)step);
  size_t used = (size_t)snprintf(buf, size, "%s %s%s%s%s%s", options->program ? options->program : "lockstep",
                                 options->command ? options->command : "verify", *repeat ? " " : "", repeat, select, only);
  const char *const own[] = {file->file, NULL};
  for (const char *const *word = options->operands ? options->operands : own; *word && used < size; word++) {
    quote(path, sizeof path, *word);
    used += (size_t)snprintf(buf + used, size - used, " %s", path);
  }
  return buf;
}

/* ---- known failures ---- */

/* "FILE:STAGE.SUB:PAIR"; without a sub it names all of them. */
static bool pattern_names(const char *pattern, const char *file, const char *stage, int64_t sub, const char *pair) {
  char stage_name[LS_NAME_MAX + 32], name[1024];
  snprintf(name, sizeof name, "%s:%s:%s", report_base_name(file), report_stage_name(stage_name, sizeof stage_name, stage, sub), pair);
  if (fnmatch(pattern, name, 0) == 0) return true;
  snprintf(name, sizeof name, "%s:%s:%s", report_base_name(file), stage, pair);
  return fnmatch(pattern, name, 0) == 0;
}

bool report_is_known(const ls_report_options *options, const char *file, const char *stage, int64_t sub, const char *pair) {
  for (const char *const *known = options->known_failures; known && *known; known++) {
    if (pattern_names(*known, file, stage, sub, pair)) return true;
  }
  return false;
}

report_known report_known_state(const ls_report *report, const char *pattern) {
  report_known state = KNOWN_NOT_RUN;
  for (int i = 0; i < report->n_files; i++) {
    const report_file *file = &report->file[i];
    for (int j = 0; j < file->n_entries + file->n_properties; j++) {
      bool is_stage = j < file->n_entries;
      const report_entry *e = is_stage ? &file->entry[j] : NULL;
      const report_property *p = is_stage ? NULL : &file->property[j - file->n_entries];
      const report_tally *tally = is_stage ? &e->tally : &p->tally;
      if (!pattern_names(pattern, file->file, is_stage ? e->stage : p->property, is_stage ? e->sub : -1, is_stage ? e->pair : p->path))
        continue;
      ls_verdict v = tally->total.verdict;
      if (v == LS_FAIL || v == LS_MISSING || v == LS_MISTRUSTED) return KNOWN_FAILS;
      if (v == LS_PASS && file->stop == LS_OK) state = KNOWN_PASSES;
    }
  }
  return state;
}

/* ---- verdicts ---- */

ls_verdict report_graver(ls_verdict a, ls_verdict b) {
  static const int gravity[LS_VERDICTS] = {[LS_NOT_RUN] = 0, [LS_NOT_HELD] = 1,   [LS_FUSED] = 2,   [LS_SHARED] = 3,
                                           [LS_PASS] = 4,    [LS_MISTRUSTED] = 5, [LS_MISSING] = 6, [LS_FAIL] = 7};
  return gravity[a] >= gravity[b] ? a : b;
}

/* How grave a status is for a run; what is no exit code is an internal error. */
static int gravity_of(ls_status status) {
  switch (status) {
    case LS_OK:
      return 0;
    case LS_DIVERGED:
      return 1;
    case LS_USAGE:
      return 2;
    case LS_UNAVAILABLE:
      return 3;
    case LS_BAD_FIXTURE:
      return 4;
    case LS_INTERRUPTED:
      return 6;
    default:
      return 5;
  }
}

ls_status report_graver_status(ls_status a, ls_status b) { return gravity_of(a) >= gravity_of(b) ? a : b; }

report_cell report_cell_of(const report_file *file, const char *stage, const char *pair, ls_mode mode) {
  report_cell c = {.verdict = LS_NOT_RUN};
  ls_result_init(&c.sum);
  for (int i = 0; i < file->n_entries; i++) {
    const report_entry *e = &file->entry[i];
    if (e->mode != mode || strcmp(e->stage, stage) != 0 || strcmp(e->pair, pair) != 0) continue;
    ls_result_merge(&c.sum, &e->tally.total);
    c.verdict = report_graver(c.verdict, e->tally.total.verdict);
    for (int v = 0; v < LS_VERDICTS; v++) c.runs[v] += e->tally.runs[v];
    c.entries++;
  }
  return c;
}

report_verdict report_judge(const report_file *file, const ls_report_options *options) {
  report_verdict v = {.status = LS_OK};
  bool diverged = false;
  for (int i = 0; i < file->n_entries; i++) {
    const report_entry *e = &file->entry[i];
    const ls_result *r = &e->tally.total;
    if (report_compared(r->verdict)) v.compared += r->count, v.comparisons++;
    bool fails = r->verdict == LS_FAIL, excusable = r->verdict == LS_MISSING || r->verdict == LS_MISTRUSTED;
    if (!fails && !excusable) continue;
    if (report_is_known(options, file->file, e->stage, e->sub, e->pair)) {
      v.known++;
      continue;
    }
    v.failing += fails;
    v.missing += r->verdict == LS_MISSING;
    v.mistrusted += r->verdict == LS_MISTRUSTED;
    diverged = diverged || fails || !options->allow_mistrusted;
  }
  for (int i = 0; i < file->n_properties; i++) {
    const report_property *p = &file->property[i];
    ls_verdict verdict = p->tally.total.verdict;
    v.properties++;
    bool fails = verdict == LS_FAIL, excusable = verdict == LS_MISSING || verdict == LS_MISTRUSTED;
    if (!fails && !excusable) continue;
    if (report_is_known(options, file->file, p->property, -1, p->path)) {
      v.known++;
      continue;
    }
    v.properties_failing += fails;
    v.properties_mistrusted += excusable;
    diverged = diverged || fails || !options->allow_mistrusted;
  }
  v.nothing = v.compared == 0;
  if (v.nothing && !options->allow_mistrusted && file->stop == LS_OK) diverged = true;
  if (diverged) v.status = LS_DIVERGED;
  if (file->stop != LS_OK) v.status = report_graver_status(v.status, file->stop);
  return v;
}

ls_status ls_report_status(const ls_report *report, const ls_report_options *options) {
  ls_status status = LS_OK;
  for (int i = 0; i < report->n_files; i++) status = report_graver_status(status, report_judge(&report->file[i], options).status);
  for (const char *const *known = options->known_failures; known && *known; known++) {
    if (report_known_state(report, *known) == KNOWN_PASSES) status = report_graver_status(status, LS_DIVERGED);
  }
  if (report->n_files == 0 && !options->allow_mistrusted) status = report_graver_status(status, LS_DIVERGED);
  return status;
}

ls_status ls_report_section_status(const ls_report *report, const ls_report_options *options) {
  return report->n_files > 0 ? report_judge(&report->file[report->n_files - 1], options).status : LS_DIVERGED;
}

/* ---- findings ---- */

static const report_entry *other_mode(const report_file *file, const report_entry *e) {
  for (int i = 0; i < file->n_entries; i++) {
    const report_entry *o = &file->entry[i];
    if (o->mode != e->mode && o->sub == e->sub && strcmp(o->stage, e->stage) == 0 && strcmp(o->pair, e->pair) == 0) return o;
  }
  return NULL;
}

static int compare_i64(int64_t a, int64_t b) { return (a > b) - (a < b); }

static int by_time(const void *left, const void *right) {
  const report_finding *a = left, *b = right;
  const report_entry *ea = a->mode[a->first_mode], *eb = b->mode[b->first_mode];
  int c = (int)a->known - (int)b->known;
  if (!c) c = compare_i64(a->first->step, b->first->step);
  if (!c) c = (a->first_mode != LS_ISOLATED) - (b->first_mode != LS_ISOLATED);
  if (!c) c = ea->order - eb->order;
  if (!c) c = strcmp(ea->stage, eb->stage);
  if (!c) c = compare_i64(ea->sub, eb->sub);
  if (!c) c = ea->pair_order - eb->pair_order;
  return c;
}

ls_status report_findings(report_finding **list, int *n, const report_file *file, const ls_report_options *options, ls_error *err) {
  *n = 0;
  *list = ls_shortage_unless(calloc((size_t)file->n_entries + 1, sizeof **list));
  if (!*list) return no_memory(err);
  for (int i = 0; i < file->n_entries; i++) {
    const report_entry *e = &file->entry[i], *other = other_mode(file, e);
    if (e->tally.n_bad == 0) continue;
    if (other && other->tally.n_bad > 0 && other->mode < e->mode) continue; /* one finding for both modes */
    report_finding *f = &(*list)[(*n)++];
    f->mode[e->mode] = e;
    if (other) f->mode[other->mode] = other;
    f->first_mode = e->mode;
    if (other && other->tally.n_bad > 0 && other->tally.bad[0].step < e->tally.bad[0].step) f->first_mode = other->mode;
    f->first = &f->mode[f->first_mode]->tally.bad[0];
    f->known = report_is_known(options, file->file, e->stage, e->sub, e->pair);
    const report_entry *isolated = f->mode[LS_ISOLATED];
    bool judged = isolated && (report_compared(isolated->tally.total.verdict) || isolated->tally.total.verdict == LS_SHARED);
    f->origin = f->first_mode == LS_ISOLATED ? ORIGIN_INTRODUCED : judged ? ORIGIN_INHERITED : ORIGIN_UNKNOWN;
  }
  qsort(*list, (size_t)*n, sizeof **list, by_time);
  return LS_OK;
}
