/* The rendering for continuous integration: JUnit XML as Jenkins' junit-10.xsd describes it, which GitLab, GitHub's actions, Azure and
 * TeamCity read too. A test case is one stage, pair and mode, or one property of one path; it fails exactly where it makes the run fail. */
#include <mxml.h>
#include <stdarg.h>
#include <stdlib.h>

#include "ls_fuzz_report.h"
#include "ls_merge.h"
#include "report_numbers.h"

typedef struct {
  const ls_report *report;
  const ls_report_options *options;
  mxml_node_t *document, *root;
  const report_file *file; /* of the open suite */
  mxml_node_t *suite;
  int tests, failures, errors, skipped;                 /* of the suite */
  int all_tests, all_failures, all_errors, all_skipped; /* of the run */
  char class_name[512];
  bool out_of_memory;
} writer;

/* What mxml does not do: it escapes, but takes any bytes. */
static void set(writer *w, mxml_node_t *node, const char *name, const char *value) {
  char *clean = report_clean(value);
  for (char *c = clean; c && *c; c++) {
    if (*c == '\n' || *c == '\t') *c = ' ';
  }
  if (clean) mxmlElementSetAttr(node, name, clean);
  w->out_of_memory = w->out_of_memory || !clean;
  free(clean);
}

static void set_count(mxml_node_t *node, const char *name, int n) { mxmlElementSetAttrf(node, name, "%d", n); }

static void open_suite(writer *w, const report_file *file, const char *name) {
  w->suite = mxmlNewElement(w->root, "testsuite");
  w->file = file;
  w->tests = w->failures = w->errors = w->skipped = 0;
  set(w, w->suite, "name", name);
  snprintf(w->class_name, sizeof w->class_name, "lockstep.%s", name);
  for (char *c = w->class_name + strlen("lockstep."); *c; c++) {
    if (*c == '.') *c = '_'; /* a reader takes a dot for a package */
  }
}

static void close_suite(writer *w) {
  set_count(w->suite, "tests", w->tests);
  set_count(w->suite, "failures", w->failures);
  set_count(w->suite, "errors", w->errors);
  set_count(w->suite, "skipped", w->skipped);
  w->all_tests += w->tests, w->all_failures += w->failures, w->all_errors += w->errors, w->all_skipped += w->skipped;
}

static mxml_node_t *add_case(writer *w, const char *format, ...) __attribute__((format(printf, 2, 3)));
static mxml_node_t *add_case(writer *w, const char *format, ...) {
  char name[256];
  va_list args;
  va_start(args, format);
  vsnprintf(name, sizeof name, format, args);
  va_end(args);
  mxml_node_t *test = mxmlNewElement(w->suite, "testcase");
  set(w, test, "classname", w->class_name);
  set(w, test, "name", name);
  w->tests++;
  return test;
}

typedef enum { CASE_FAILURE, CASE_ERROR, CASE_SKIPPED } outcome;

/* Ends a test case otherwise than well. text: NULL, or what a reader shows in full. */
static void end_case(writer *w, mxml_node_t *test, outcome how, const char *type, const char *message, const char *text) {
  static const char *const name[] = {"failure", "error", "skipped"};
  int *const count[] = {&w->failures, &w->errors, &w->skipped};
  mxml_node_t *node = mxmlNewElement(test, name[how]);
  (*count[how])++;
  set(w, node, "type", type);
  set(w, node, "message", message);
  char *clean = text && *text ? report_clean(text) : NULL;
  if (clean) mxmlNewOpaque(node, clean);
  free(clean);
}

/* ---- what a finding says ---- */

static const char *meaning_of(ls_verdict verdict) {
  switch (verdict) {
    case LS_FUSED:
      return "this stage never exists by itself on this path; the group that holds it is judged";
    case LS_SHARED:
      return "both sides ran the same code, so agreement proves nothing";
    case LS_NOT_HELD:
      return "the fixture has no expected values for this stage";
    case LS_MISSING:
      return "one side should hold this stage and does not";
    case LS_MISTRUSTED:
      return "agreed, but that proves little: nothing compared, or almost only zeros";
    default:
      return "not reached";
  }
}

static void result_text(FILE *out, const ls_result *r, const char *pair) {
  char use[16], steps[16], a[LS_MAX_PAIR], b[LS_MAX_PAIR];
  if (r->where[0]) fprintf(out, "where    %s\n", r->where);
  if (r->has_worst && pair) {
    side_names(pair, a, b);
    fprintf(out, "values   %s %.9g   %s %.9g   apart %.4g   bound %.4g (%s of it)\n", a, r->worst_a, b, r->worst_b,
            fabs(r->worst_a - r->worst_b), r->worst_bound, use_text(use, r->use));
  }
  if (r->failing > 0 && pair) {
    fprintf(out, "failing  %" PRId64 " of %" PRId64 " elements in %" PRId64 " of %" PRId64 " rows, at most %s steps apart\n", r->failing,
            r->count, r->rows_failing, r->rows, steps_text(steps, r->steps));
  }
  if (r->note[0]) fprintf(out, "note     %s\n", r->note);
}

/* What a failing case says in full, from the first step in which it failed, and in one line. The caller frees both. */
typedef struct {
  char *text, *line;
} explanation;

static explanation explain(writer *w, const report_tally *tally, const char *stage, int64_t sub, const char *pair, const char *origin) {
  explanation e = {NULL, NULL};
  size_t size = 0;
  char command[2048], words[REPORT_PATTERN_WORDS];
  const report_failure *first = tally->n_bad > 0 ? &tally->bad[0] : NULL;
  const ls_result *r = first ? &first->result : &tally->total;
  FILE *line = open_memstream(&e.line, &size);
  if (line) {
    if (first) fprintf(line, "step %" PRId64 ": ", first->step);
    fprintf(line, "%s%s", ls_verdict_name(r->verdict), origin ? ", " : "");
    fprintf(line, "%s%s%s", origin ? origin : "", r->where[0] || r->note[0] ? ": " : "", r->where[0] && pair ? r->where : r->note);
    fclose(line);
  }
  FILE *text = open_memstream(&e.text, &size);
  if (text) {
    const int64_t bad = tally->runs[LS_FAIL] + tally->runs[LS_MISSING];
    if (r->verdict != LS_FAIL) fprintf(text, "%s\n", meaning_of(r->verdict));
    if (first) fprintf(text, "step     %" PRId64 "%s\n", first->step, bad > 1 ? ", the first of several" : "");
    if (bad > 1) fprintf(text, "steps    %" PRId64 " fail\n", bad);
    if (origin) fprintf(text, "origin   %s\n", origin);
    result_text(text, r, pair);
    if (report_pattern_words(words, sizeof words, tally)[0]) fprintf(text, "pattern  %s\n", words);
    if (first) fprintf(text, "repeat   %s\n", report_repeat(command, sizeof command, w->file, w->options, stage, sub, first->step));
    fclose(text);
  }
  w->out_of_memory = w->out_of_memory || !e.line || !e.text;
  return e;
}

static void judge_case(writer *w, mxml_node_t *test, const report_tally *tally, const char *stage, int64_t sub, const char *pair,
                       bool known, const char *origin) {
  const ls_verdict verdict = tally->total.verdict;
  const bool excusable = verdict == LS_MISSING || verdict == LS_MISTRUSTED;
  if (verdict == LS_PASS) return;
  if (verdict != LS_FAIL && !excusable) {
    end_case(w, test, CASE_SKIPPED, ls_verdict_name(verdict), meaning_of(verdict), NULL);
    return;
  }
  const bool excused = known || (excusable && w->options->allow_mistrusted);
  explanation e = explain(w, tally, stage, sub, pair, origin);
  char message[LS_MAX_NOTE + 512];
  snprintf(message, sizeof message, "%s%s", known ? "known failure: " : excused ? "allowed: " : "", e.line ? e.line : "");
  end_case(w, test, excused ? CASE_SKIPPED : CASE_FAILURE, ls_verdict_name(verdict), message, e.text);
  free(e.line);
  free(e.text);
}

/* ---- suites ---- */

static const report_finding *finding_of(const report_finding *list, int n, const report_entry *e) {
  for (int i = 0; i < n; i++) {
    if (list[i].mode[e->mode] == e) return &list[i];
  }
  return NULL;
}

static void add_stages(writer *w, const report_finding *list, int n) {
  char name[LS_NAME_MAX + 32];
  for (int i = 0; i < w->file->n_entries; i++) {
    const report_entry *e = &w->file->entry[i];
    const report_finding *f = finding_of(list, n, e);
    /* of the other mode of a finding the same origin is not known */
    const char *origin = !f ? NULL : f->first_mode == e->mode ? report_origin_text(f->origin) : NULL;
    mxml_node_t *test = add_case(w, "%s %s %s", report_stage_name(name, sizeof name, e->stage, e->sub), e->pair, mode_name(e->mode));
    judge_case(w, test, &e->tally, e->stage, e->sub, e->pair, report_is_known(w->options, w->file->file, e->stage, e->sub, e->pair),
               origin);
  }
}

static void add_properties(writer *w) {
  for (int i = 0; i < w->file->n_properties; i++) {
    const report_property *p = &w->file->property[i];
    mxml_node_t *test = add_case(w, "property %s of %s", p->property, p->path);
    judge_case(w, test, &p->tally, NULL, -1, NULL, report_is_known(w->options, w->file->file, p->property, -1, p->path), NULL);
  }
}

/* The file as a whole: it was run to its end, and something was compared. */
static void add_whole(writer *w) {
  const report_verdict v = report_judge(w->file, w->options);
  mxml_node_t *test = add_case(w, "the whole fixture");
  if (w->file->stop != LS_OK) {
    end_case(w, test, CASE_ERROR, ls_status_name(w->file->stop), w->file->stop_line ? w->file->stop_line : "", NULL);
  } else if (v.nothing && !w->options->allow_mistrusted) {
    end_case(w, test, CASE_FAILURE, "MISTRUSTED", "nothing was compared", NULL);
  }
}

static void add_setting(writer *w, mxml_node_t *list, const char *name, const char *value) {
  mxml_node_t *property = mxmlNewElement(list, "property");
  set(w, property, "name", name);
  set(w, property, "value", value);
}

static ls_status add_file(writer *w, const report_file *file, ls_error *err) {
  report_finding *list = NULL;
  int n = 0;
  LS_TRY(report_findings(&list, &n, file, w->options, err));
  open_suite(w, file, report_base_name(file->file));
  mxml_node_t *settings = mxmlNewElement(w->suite, "properties");
  add_setting(w, settings, "file", file->file);
  add_setting(w, settings, "title", file->title);
  add_setting(w, settings, "config", file->config_text);
  for (int i = 0; i < file->n_paths; i++) add_setting(w, settings, file->path[i].name, file->path[i].description);
  for (int i = 0; i < file->n_notes; i++) add_setting(w, settings, "note", file->note[i]);
  add_whole(w);
  add_stages(w, list, n);
  add_properties(w);
  close_suite(w);
  free(list);
  return LS_OK;
}

/* A known failure that passes fails the run. */
static void add_known(writer *w) {
  if (!w->options->known_failures || !w->options->known_failures[0]) return;
  open_suite(w, NULL, "known failures");
  for (const char *const *name = w->options->known_failures; *name; name++) {
    mxml_node_t *test = add_case(w, "%s", *name);
    const report_known state = report_known_state(w->report, *name);
    if (state == KNOWN_PASSES) end_case(w, test, CASE_FAILURE, "PASS", "passes now: take it off the list", NULL);
    if (state == KNOWN_NOT_RUN) end_case(w, test, CASE_SKIPPED, "NOT RUN", "nothing of that name was compared", NULL);
  }
  close_suite(w);
}

/* Nothing was named, nothing ran: as the exit status says. */
static void add_nothing(writer *w) {
  if (w->report->n_files > 0 || w->options->allow_mistrusted) return;
  open_suite(w, NULL, "no fixture");
  end_case(w, add_case(w, "a fixture was verified"), CASE_FAILURE, "MISTRUSTED", "nothing was compared", NULL);
  close_suite(w);
}

/* A line an element, so that two reports can be told apart by eye; text stays as it is. */
static const char *breaks(mxml_node_t *node, int where) {
  const char *name = mxmlGetElement(node);
  const bool leaf = name && (strcmp(name, "failure") == 0 || strcmp(name, "error") == 0 || strcmp(name, "skipped") == 0);
  if (where == MXML_WS_AFTER_OPEN && leaf) return NULL;
  if (where == MXML_WS_BEFORE_OPEN || where == MXML_WS_BEFORE_CLOSE) return NULL;
  return "\n";
}

static bool save(FILE *out, void *document) {
  mxmlSetWrapMargin(0);
  return mxmlSaveFile(document, out, breaks) == 0;
}

/* The root, named after the program, and "shard i of n" behind it where this is one of several. */
static ls_status open_root(writer *w, const char *program, int64_t shard, int64_t shards, ls_error *err) {
  char name[256];
  w->document = mxmlNewXML("1.0");
  w->root = w->document ? mxmlNewElement(w->document, "testsuites") : NULL;
  if (!w->root) return ls_fail(err, LS_INTERNAL, "report: out of memory");
  snprintf(name, sizeof name, "%s", program);
  if (shards > 0) snprintf(name, sizeof name, "%.200s shard %" PRId64 " of %" PRId64, program, shard + 1, shards);
  set(w, w->root, "name", name);
  return LS_OK;
}

static ls_status close_root(writer *w, const char *file, ls_error *err) {
  set_count(w->root, "tests", w->all_tests);
  set_count(w->root, "failures", w->all_failures);
  set_count(w->root, "errors", w->all_errors);
  return w->out_of_memory ? ls_fail(err, LS_INTERNAL, "report: out of memory") : report_write(file, save, w->document, err);
}

ls_status ls_report_junit(const ls_report *report, const ls_report_options *options, const char *file, ls_error *err) {
  ls_status status = LS_OK;
  writer w = {.report = report, .options = options};
  LS_TRY_OUT(open_root(&w, options->program ? options->program : "lockstep", options->shard, options->shards, err));
  for (int i = 0; i < report->n_files; i++) LS_TRY_OUT(add_file(&w, &report->file[i], err));
  add_known(&w);
  add_nothing(&w);
  status = close_root(&w, file, err);
out:
  mxmlDelete(w.document);
  return status;
}

/* ---- a fuzz run ---- */

static void add_fuzz_failure(writer *w, const ls_fuzz_failure *f) {
  mxml_node_t *test = add_case(w, "case %" PRId64, f->number);
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  if (out) {
    if (f->shrunk) fprintf(out, "shrunk   %s\n", f->shrunk);
    if (f->history) fprintf(out, "history  %s\n", f->history);
    if (f->shape) fprintf(out, "shape    %s\n", f->shape);
    if (f->file) fprintf(out, "fixture  %s\n", f->file);
    if (f->repeat_case) fprintf(out, "repeat   %s\n", f->repeat_case);
    fclose(out);
  }
  end_case(w, test, CASE_FAILURE, f->name ? f->name : "", f->finding ? f->finding : "", text);
  free(text);
}

ls_status ls_fuzz_report_junit(const ls_fuzz_report *report, const char *file, ls_error *err) {
  ls_status status = LS_OK;
  writer w = {.report = NULL};
  char ran[512], number[32], suite[LS_NAME_MAX + 8];
  LS_TRY_OUT(open_root(&w, "lockstep", report->shard, report->shards, err));
  snprintf(suite, sizeof suite, "fuzz %s", report->layer->name);
  open_suite(&w, NULL, suite);
  mxml_node_t *settings = mxmlNewElement(w.suite, "properties");
  snprintf(number, sizeof number, "%llu", (unsigned long long)report->seed);
  add_setting(&w, settings, "seed", number);
  snprintf(number, sizeof number, "%" PRId64, report->cases);
  add_setting(&w, settings, "cases", number);
  add_setting(&w, settings, "ran", ls_fuzz_report_ran(ran, sizeof ran, report));
  add_setting(&w, settings, "paths", report->paths);
  mxml_node_t *whole = add_case(&w, "all of shard %" PRId64 " of %" PRId64, report->shard + 1, report->shards);
  if (report->interrupted) {
    end_case(&w, whole, CASE_ERROR, "interrupted", "interrupted: not all cases were run", NULL);
  } else if (report->cases == 0) {
    end_case(&w, whole, CASE_FAILURE, "MISTRUSTED", "no case was run", NULL);
  }
  for (int64_t i = 0; i < report->failures; i++) add_fuzz_failure(&w, &report->failure[i]);
  close_suite(&w);
  status = close_root(&w, file, err);
out:
  mxmlDelete(w.document);
  return status;
}

/* ---- merging ---- */

typedef struct {
  const char *file;
  mxml_node_t *document, *root;
  int64_t shard; /* 1-based; 0: a whole run */
} part;

static int by_shard(const void *a, const void *b) {
  const int64_t x = ((const part *)a)->shard, y = ((const part *)b)->shard;
  return (x > y) - (x < y);
}

static void say_nothing(const char *message) { (void)message; }

static ls_status read_part(part *p, const char *file, ls_shards *shards, ls_error *err) {
  p->file = file;
  FILE *in = fopen(file, "r");
  if (!in) return ls_fail(err, LS_BAD_FIXTURE, "%s: cannot be read", file);
  mxmlSetErrorCallback(say_nothing);
  p->document = mxmlLoadFile(NULL, in, MXML_OPAQUE_CALLBACK);
  fclose(in);
  const char *outer = p->document ? mxmlGetElement(p->document) : NULL; /* with an XML declaration that is the outermost node */
  if (outer)
    p->root =
        strcmp(outer, "testsuites") == 0 ? p->document : mxmlFindElement(p->document, p->document, "testsuites", NULL, NULL, MXML_DESCEND);
  const char *name = p->root ? mxmlElementGetAttr(p->root, "name") : NULL;
  if (!name) return ls_fail(err, LS_BAD_FIXTURE, "%s: expected a JUnit report, testsuites with a name, found none", file);
  const char *shard = strstr(name, " shard ");
  long long ran = 0, of = 0;
  char rest = '\0';
  if (!shard) return ls_shards_add(shards, file, 0, 0, err);
  if (sscanf(shard, " shard %lld of %lld%c", &ran, &of, &rest) != 2 || of < 1)
    return ls_fail(err, LS_BAD_FIXTURE, "%s: expected a name with \"shard I of N\", found \"%.80s\"", file, name);
  p->shard = ran;
  return ls_shards_add(shards, file, ran, of, err);
}

static int count_of(mxml_node_t *suite, const char *name) {
  const char *text = mxmlElementGetAttr(suite, name);
  const long n = text ? strtol(text, NULL, 10) : 0;
  return n > 0 && n < INT32_MAX ? (int)n : 0;
}

/* The exit status that an <error type="..."> stands for. */
static ls_status error_status(mxml_node_t *suite) {
  static const ls_status all[] = {LS_BAD_FIXTURE, LS_UNAVAILABLE, LS_INTERRUPTED, LS_USAGE};
  ls_status status = LS_OK;
  for (mxml_node_t *e = mxmlFindElement(suite, suite, "error", NULL, NULL, MXML_DESCEND); e;
       e = mxmlFindElement(e, suite, "error", NULL, NULL, MXML_DESCEND)) {
    const char *type = mxmlElementGetAttr(e, "type");
    ls_status one = LS_INTERNAL;
    for (size_t i = 0; type && i < sizeof all / sizeof *all; i++) one = strcmp(type, ls_status_name(all[i])) == 0 ? all[i] : one;
    status = report_graver_status(status, one);
  }
  return status;
}

/* Line breaks between elements were read as text. */
static void drop_blanks(mxml_node_t *node) {
  for (mxml_node_t *child = mxmlGetFirstChild(node), *next; child; child = next) {
    next = mxmlGetNextSibling(child);
    const char *text = mxmlGetOpaque(child);
    if (mxmlGetType(child) == MXML_OPAQUE && text && text[strspn(text, " \t\r\n")] == '\0') {
      mxmlDelete(child);
    } else {
      drop_blanks(child);
    }
  }
}

static void take_suites(writer *w, part *p, ls_merged *merged) {
  drop_blanks(p->root);
  for (mxml_node_t *suite = mxmlGetFirstChild(p->root), *next; suite; suite = next) {
    next = mxmlGetNextSibling(suite);
    if (!mxmlGetElement(suite) || strcmp(mxmlGetElement(suite), "testsuite") != 0) continue;
    w->all_tests += count_of(suite, "tests");
    w->all_failures += count_of(suite, "failures");
    w->all_errors += count_of(suite, "errors");
    if (count_of(suite, "failures") > 0) merged->status = report_graver_status(merged->status, LS_DIVERGED);
    merged->status = report_graver_status(merged->status, error_status(suite));
    mxmlAdd(w->root, MXML_ADD_AFTER, MXML_ADD_TO_PARENT, suite);
  }
}

ls_status ls_merge_junit(ls_merged *merged, const char *const *files, int n, const char *out, ls_error *err) {
  ls_status status = LS_OK;
  ls_shards shards = {.of = 0};
  writer w = {.report = NULL};
  part *parts = calloc((size_t)n, sizeof *parts);
  *merged = (ls_merged){.status = LS_OK};
  if (!parts) return ls_fail(err, LS_INTERNAL, "merge: out of memory");
  for (int p = 0; p < n; p++) LS_TRY_OUT(read_part(&parts[p], files[p], &shards, err));
  qsort(parts, (size_t)n, sizeof *parts, by_shard);
  LS_TRY_OUT(open_root(&w, "lockstep", 0, 0, err));
  for (int p = 0; p < n; p++) take_suites(&w, &parts[p], merged);
  if (ls_shards_missing(merged->missing, sizeof merged->missing, &shards)[0]) {
    open_suite(&w, NULL, "shards");
    end_case(&w, add_case(&w, "every shard was merged"), CASE_FAILURE, "MISSING", merged->missing, NULL);
    close_suite(&w);
    merged->status = report_graver_status(merged->status, LS_DIVERGED);
  }
  snprintf(merged->line, sizeof merged->line, "%d JUnit report%s: %d tests, %d failures, %d errors", n, n == 1 ? "" : "s", w.all_tests,
           w.all_failures, w.all_errors);
  if (out) status = close_root(&w, out, err);
out:
  mxmlDelete(w.document);
  for (int p = 0; p < n; p++) mxmlDelete(parts[p].document);
  free(parts);
  ls_shards_free(&shards);
  return status;
}
