/* The terminal rendering: a screen a file, the first divergence on top. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_shortage.h"
#include "report_numbers.h"

enum { DETAIL_BLOCKS = 5, DEFAULT_WIDTH = 120 };

typedef struct {
  FILE *out;
  const ls_report_options *options;
  int width;
} printer;

/* ---- verdicts ---- */

static const char *colour_of(ls_verdict v) {
  switch (v) {
    case LS_PASS:
      return "\033[32m";
    case LS_FAIL:
    case LS_MISSING:
      return "\033[1;31m";
    case LS_MISTRUSTED:
      return "\033[33m";
    default:
      return "\033[2m";
  }
}

static void put_verdict(const printer *p, ls_verdict v, int width) {
  bool colour = p->options->colour;
  fprintf(p->out, "%s%-*s%s", colour ? colour_of(v) : "", width, ls_verdict_name(v), colour ? "\033[0m" : "");
}

static void put_strong(const printer *p, bool good, const char *text) {
  bool colour = p->options->colour;
  fprintf(p->out, "%s%s%s", colour ? (good ? "\033[32m" : "\033[1;31m") : "", text, colour ? "\033[0m" : "");
}

/* ---- the table ---- */

typedef struct {
  int stage, pair; /* widths of the name columns */
  bool steps, percentile, bit_equal;
} columns;

enum { INDENT = 2, GAP = 2, VERDICT = 10, USE = 6, PERCENTILE = 5, BIT_EQUAL = 9, STEPS = 6 };

static int cell_width(const columns *c) {
  return VERDICT + 1 + USE + (c->percentile ? 1 + PERCENTILE : 0) + (c->bit_equal ? 1 + BIT_EQUAL : 0) + (c->steps ? 1 + STEPS : 0);
}
static int table_width(const columns *c) { return INDENT + c->stage + GAP + c->pair + GAP + cell_width(c) + GAP + 1 + cell_width(c); }

static columns fit(const report_file *file, int width) {
  columns c = {.stage = 5, .pair = 4, .steps = true, .percentile = true, .bit_equal = true};
  for (int i = 0; i < file->n_entries; i++) {
    int stage = (int)strlen(file->entry[i].stage), pair = (int)strlen(file->entry[i].pair);
    if (stage > c.stage) c.stage = stage;
    if (pair > c.pair) c.pair = pair;
  }
  if (table_width(&c) > width) c.steps = false;
  if (table_width(&c) > width) c.percentile = false;
  if (table_width(&c) > width) c.bit_equal = false;
  return c;
}

static void put_cell(const printer *p, const columns *cols, const report_cell *c) {
  char use[16] = "-", most[16] = "-", share[16] = "-", steps[16] = "-";
  if (c->sum.count > 0) {
    use_text(use, c->sum.use);
    use_text(most, ls_result_use_999(&c->sum));
    share_text(share, c->sum.bit_equal, c->sum.count);
    steps_text(steps, c->sum.steps);
  }
  put_verdict(p, c->verdict, VERDICT);
  fprintf(p->out, " %*s", USE, use);
  if (cols->percentile) fprintf(p->out, " %*s", PERCENTILE, most);
  if (cols->bit_equal) fprintf(p->out, " %*s", BIT_EQUAL, share);
  if (cols->steps) fprintf(p->out, " %*s", STEPS, steps);
}

static void append(char *buf, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void append(char *buf, size_t size, const char *format, ...) {
  size_t used = strlen(buf);
  va_list args;
  va_start(args, format);
  vsnprintf(buf + used, size - used, format, args);
  va_end(args);
}

/* What the two cells do not say: steps that ended otherwise, and what a choice was left open. */
static void remarks_of(char *buf, size_t size, const report_cell cells[LS_MODES]) {
  static const ls_verdict quiet[] = {LS_MISSING, LS_SHARED, LS_FUSED, LS_NOT_HELD, LS_NOT_RUN};
  buf[0] = '\0';
  for (size_t i = 0; i < sizeof quiet / sizeof *quiet; i++) {
    int64_t most = 0;
    for (int m = 0; m < LS_MODES; m++) {
      if (cells[m].verdict != quiet[i] && cells[m].runs[quiet[i]] > most) most = cells[m].runs[quiet[i]];
    }
    if (most > 0) append(buf, size, "%s%s %" PRId64 "x", buf[0] ? ", " : "", ls_verdict_name(quiet[i]), most);
  }
  int64_t ties = 0, near = 0;
  for (int m = 0; m < LS_MODES; m++) {
    if (cells[m].sum.ties > ties) ties = cells[m].sum.ties;
    if (cells[m].sum.near_ties > near) near = cells[m].sum.near_ties;
  }
  if (ties > 0) append(buf, size, "%s%" PRId64 " tie%s", buf[0] ? ", " : "", ties, plural(ties));
  if (near > 0) append(buf, size, "%s%" PRId64 " near tie%s", buf[0] ? ", " : "", near, plural(near));
}

/* A label and words after it, broken between words. */
static void put_words(const printer *p, const char *label, const char *words) {
  int column = fprintf(p->out, "%*s%s:", INDENT, "", label);
  while (*words) {
    words += strspn(words, " ");
    int length = (int)strcspn(words, " ");
    if (length == 0) break;
    if (column + 1 + length > p->width) column = fprintf(p->out, "\n%*s", 2 * INDENT, "") - 1;
    column += fprintf(p->out, " %.*s", length, words);
    words += length;
  }
  fprintf(p->out, "\n");
}

/* A finer record that the fixture does not hold says nothing in a line of its own. */
static bool is_absent_finer(const report_file *file, const report_entry *e, const report_cell cells[LS_MODES]) {
  if (!file->layer || e->order >= file->layer->n_stages || !file->layer->stages[e->order].finer) return false;
  bool absent = true;
  for (int m = 0; m < LS_MODES; m++) absent = absent && (cells[m].verdict == LS_NOT_HELD || cells[m].verdict == LS_NOT_RUN);
  return absent;
}

static void put_absent_finer(const printer *p, const report_file *file) {
  int pairs = 0;
  for (int i = 0; i < file->n_entries; i++) {
    if (file->entry[i].pair_order >= pairs) pairs = file->entry[i].pair_order + 1;
  }
  for (int pair = 0; pair < pairs; pair++) {
    char names[LS_MAX_STAGES * LS_NAME_MAX] = "", label[LS_MAX_PAIR + 16] = "";
    int last = -1;
    for (int order = 0; file->layer && order < file->layer->n_stages; order++) {
      for (int i = 0; i < file->n_entries; i++) {
        const report_entry *e = &file->entry[i];
        if (e->order != order || e->pair_order != pair || order == last) continue;
        report_cell cells[LS_MODES];
        for (int m = 0; m < LS_MODES; m++) cells[m] = report_cell_of(file, e->stage, e->pair, (ls_mode)m);
        last = order;
        if (!is_absent_finer(file, e, cells)) continue;
        append(names, sizeof names, " %s", e->stage);
        snprintf(label, sizeof label, "NOT HELD (%s)", e->pair);
      }
    }
    if (names[0]) put_words(p, label, names);
  }
}

/* ---- details of a finding ---- */

/* "pattern  8 of 16 rows differ: ... (rotation-position)", broken between words. */
static void put_pattern(const printer *p, int indent, const char *label, const report_tally *tally) {
  char text[REPORT_PATTERN_WORDS];
  if (report_pattern_words(text, sizeof text, tally)[0] == '\0') return;
  int column = fprintf(p->out, "%*s%s", indent, "", label);
  const int left = column + 1;
  for (const char *word = text; *word;) {
    const int length = (int)strcspn(word, " ");
    if (column + 1 + length > p->width && column > left) column = fprintf(p->out, "\n%*s", left - 1, "") - 1;
    column += fprintf(p->out, " %.*s", length, word);
    word += length;
    word += strspn(word, " ");
  }
  fprintf(p->out, "\n");
}

static void put_finding(const printer *p, const report_file *file, const report_finding *f) {
  char name[LS_NAME_MAX + 32], command[2048], use[16], steps[16], a[LS_MAX_PAIR], b[LS_MAX_PAIR];
  const report_entry *e = f->mode[f->first_mode];
  const ls_result *r = &f->first->result;
  fprintf(p->out, "      step %" PRId64 "  %s  %s  %s: %s%s\n", f->first->step, report_stage_name(name, sizeof name, e->stage, e->sub),
          e->pair, mode_name(f->first_mode), report_origin_text(f->origin), f->known ? " (known failure)" : "");
  if (r->verdict == LS_MISSING) fprintf(p->out, "        missing  one side should hold this stage and does not\n");
  if (r->where[0]) fprintf(p->out, "        where    %s\n", r->where);
  if (r->has_worst) {
    side_names(e->pair, a, b);
    fprintf(p->out, "        values   %s %.9g   %s %.9g   apart %.4g   bound %.4g (%s of it)\n", a, r->worst_a, b, r->worst_b,
            fabs(r->worst_a - r->worst_b), r->worst_bound, use_text(use, r->use));
  }
  if (r->failing > 0) {
    fprintf(p->out, "        failing  %" PRId64 " of %" PRId64 " elements in %" PRId64 " of %" PRId64 " rows", r->failing, r->count,
            r->rows_failing, r->rows);
    if (r->steps > 0) fprintf(p->out, ", at most %s steps apart", steps_text(steps, r->steps)); /* a choice has no steps */
    fprintf(p->out, "\n");
  }
  if (r->note[0]) fprintf(p->out, "        note     %s\n", r->note);
  put_pattern(p, 8, "pattern ", &e->tally);
  for (int m = 0; m < LS_MODES; m++) {
    const report_tally *t = f->mode[m] ? &f->mode[m]->tally : NULL;
    int64_t bad = t ? t->runs[LS_FAIL] + t->runs[LS_MISSING] : 0, runs = 0;
    for (int v = 0; t && v < LS_VERDICTS; v++) runs += t->runs[v];
    if (bad > 0 && (bad > 1 || m != (int)f->first_mode)) {
      fprintf(p->out, "        %s fails in %" PRId64 " of %" PRId64 " steps, first in step %" PRId64 "\n", mode_name((ls_mode)m), bad, runs,
              t->bad[0].step);
    }
  }
  fprintf(p->out, "        repeat   %s\n", report_repeat(command, sizeof command, file, p->options, e->stage, e->sub, f->first->step));
}

/* The line the whole product is for. */
static void put_first(const printer *p, const report_file *file, const report_finding *list, int n) {
  char name[LS_NAME_MAX + 32];
  const report_property *first = NULL;
  for (int i = 0; i < file->n_properties; i++) {
    const report_property *q = &file->property[i];
    if (q->tally.n_bad > 0 && (!first || q->tally.bad[0].step < first->tally.bad[0].step)) first = q;
  }
  const bool stage = n > 0 && !list[0].known; /* of one step, the stage tells more than the property */
  if (stage && (!first || list[0].first->step <= first->tally.bad[0].step)) {
    const report_finding *f = &list[0];
    const report_entry *e = f->mode[f->first_mode];
    const ls_result *r = &f->first->result;
    fprintf(p->out, "  ");
    put_strong(p, false, "first divergence:");
    fprintf(p->out, " step %" PRId64 ", %s%s%s (%s, %s: %s)\n", f->first->step, report_stage_name(name, sizeof name, e->stage, e->sub),
            r->where[0] ? ", " : "", r->where, e->pair, mode_name(f->first_mode), report_origin_text(f->origin));
    if (r->note[0]) fprintf(p->out, "                    %s\n", r->note);
    put_pattern(p, 19, "", &e->tally);
    return;
  }
  if (!first) return;
  fprintf(p->out, "  ");
  put_strong(p, false, "first divergence:");
  fprintf(p->out, " step %" PRId64 ", property %s of %s\n", first->tally.bad[0].step, first->property, first->path);
}

static void put_table(const printer *p, const report_file *file, const report_finding *list, int n) {
  columns cols = fit(file, p->width);
  int left = INDENT + cols.stage + GAP + cols.pair + GAP;
  char heading[80];
  snprintf(heading, sizeof heading, "%-*s %*s%s%s%s", VERDICT, "verdict", USE, "use", cols.percentile ? " 99.9%" : "",
           cols.bit_equal ? " bit-equal" : "", cols.steps ? "  steps" : "");
  fprintf(p->out, "\n%*s%-*s%*s%s\n", left, "", cell_width(&cols) + GAP + 1, "isolated", 0, "", "cascaded");
  fprintf(p->out, "%*s%-*s%*s%-*s%*s%s%*s%s\n", INDENT, "", cols.stage, "stage", GAP, "", cols.pair, "pair", GAP, "", heading, GAP + 1, "",
          heading);

  /* lines in the order of computation, then of the pairs */
  int last_order = -1;
  int stages = (file->layer ? file->layer->n_stages : 0) + 1;
  bool *done = ls_shortage_unless(calloc((size_t)file->n_entries + 1, sizeof *done));
  for (int order = 0; done && order < stages; order++) {
    for (int i = 0; i < file->n_entries; i++) {
      const report_entry *e = &file->entry[i];
      if (e->order != order || done[i]) continue;
      report_cell cells[LS_MODES];
      for (int m = 0; m < LS_MODES; m++) cells[m] = report_cell_of(file, e->stage, e->pair, (ls_mode)m);
      for (int j = i; j < file->n_entries; j++) {
        const report_entry *o = &file->entry[j];
        if (strcmp(o->stage, e->stage) == 0 && strcmp(o->pair, e->pair) == 0) done[j] = true;
      }
      last_order = order;
      if (is_absent_finer(file, e, cells)) continue; /* see put_absent_finer */
      fprintf(p->out, "%*s%-*s%*s%-*s%*s", INDENT, "", cols.stage, e->stage, GAP, "", cols.pair, e->pair, GAP, "");
      put_cell(p, &cols, &cells[LS_ISOLATED]);
      fprintf(p->out, "%*s", GAP + 1, "");
      put_cell(p, &cols, &cells[LS_CASCADED]);
      char remarks[200];
      remarks_of(remarks, sizeof remarks, cells);
      int room = p->width - table_width(&cols) - GAP;
      if (remarks[0] && (int)strlen(remarks) <= room) {
        fprintf(p->out, "%*s%s", GAP, "", remarks);
      } else if (remarks[0]) {
        fprintf(p->out, "\n      %s", remarks);
      }
      fprintf(p->out, "\n");
      for (int k = 0; k < n && k < DETAIL_BLOCKS; k++) {
        const report_entry *of = list[k].mode[list[k].first_mode];
        if (strcmp(of->stage, e->stage) == 0 && strcmp(of->pair, e->pair) == 0) put_finding(p, file, &list[k]);
      }
    }
  }
  free(done);
  put_absent_finer(p, file);
  if (n > DETAIL_BLOCKS) fprintf(p->out, "  and %d more failing (see --json)\n", n - DETAIL_BLOCKS);
  if (last_order < 0) fprintf(p->out, "  no stage was compared\n");

  char absent[LS_MAX_STAGES * LS_NAME_MAX] = "";
  for (int i = 0; file->layer && i < file->layer->n_stages; i++) {
    bool held = false;
    for (int j = 0; j < file->n_entries; j++) held = held || file->entry[j].order == i;
    if (!held) append(absent, sizeof absent, " %s", file->layer->stages[i].name);
  }
  if (absent[0]) put_words(p, "NOT RUN", absent);
}

/* ---- properties ---- */

static void put_properties(const printer *p, const report_file *file) {
  int name = 8, path = 4;
  for (int i = 0; i < file->n_properties; i++) {
    int n = (int)strlen(file->property[i].property), m = (int)strlen(file->property[i].path);
    if (n > name) name = n;
    if (m > path) path = m;
  }
  if (file->n_properties > 0) fprintf(p->out, "\n");
  for (int i = 0; i < file->n_properties; i++) {
    const report_property *q = &file->property[i];
    int64_t runs = 0, bad = q->tally.runs[LS_FAIL] + q->tally.runs[LS_MISSING];
    for (int v = 0; v < LS_VERDICTS; v++) runs += q->tally.runs[v];
    fprintf(p->out, "  %-*s  %-*s  ", name, q->property, path, q->path);
    put_verdict(p, q->tally.total.verdict, VERDICT);
    if (bad == 0) {
      fprintf(p->out, " %" PRId64 " check%s", runs, plural(runs));
      for (int v = 0; v < LS_VERDICTS; v++) {
        if (v != LS_PASS && v != (int)q->tally.total.verdict && q->tally.runs[v] > 0) {
          fprintf(p->out, ", %s %" PRId64 "x", ls_verdict_name((ls_verdict)v), q->tally.runs[v]);
        }
      }
      if (q->tally.total.verdict != LS_PASS && q->tally.total.note[0]) fprintf(p->out, ": %s", q->tally.total.note);
      fprintf(p->out, "\n");
      continue;
    }
    const report_failure *first = &q->tally.bad[0];
    char command[2048];
    fprintf(p->out, " %" PRId64 " of %" PRId64 " check%s, first in step %" PRId64 ": %s\n", bad, runs, plural(runs), first->step,
            first->result.note[0] ? first->result.note : first->result.where);
    put_pattern(p, 8, "pattern ", &q->tally);
    fprintf(p->out, "        repeat   %s\n", report_repeat(command, sizeof command, file, p->options, NULL, -1, first->step));
  }
}

/* ---- a file ---- */

static void list_count(char *buf, size_t size, int n, const char *one, const char *many) {
  if (n > 0) append(buf, size, "%s%d %s", buf[0] ? ", " : "", n, n == 1 ? one : many);
}

static void put_verdict_line(const printer *p, const report_file *file) {
  report_verdict v = report_judge(file, p->options);
  char why[400] = "", elements[32];
  list_count(why, sizeof why, v.failing, "comparison fails", "comparisons fail");
  list_count(why, sizeof why, v.missing, "MISSING", "MISSING");
  list_count(why, sizeof why, v.mistrusted, "MISTRUSTED", "MISTRUSTED");
  list_count(why, sizeof why, v.properties_failing, "property fails", "properties fail");
  list_count(why, sizeof why, v.properties_mistrusted, "property proves nothing", "properties prove nothing");
  list_count(why, sizeof why, v.known, "known failure", "known failures");
  if (v.nothing) append(why, sizeof why, "%snothing was compared", why[0] ? ", " : "");

  fprintf(p->out, "\n  %s: ", report_base_name(file->file));
  if (file->stop != LS_OK) {
    put_strong(p, false, "NOT FINISHED");
    fprintf(p->out, " (%s): %s%s\n", ls_status_name(file->stop), file->stop_line ? file->stop_line : "",
            file->n_entries + file->n_properties > 0 ? "; what is above is partial" : "");
    if (why[0] && file->n_entries > 0) fprintf(p->out, "  so far: %s\n", why);
    return;
  }
  put_strong(p, v.status == LS_OK, v.status == LS_OK ? "PASS" : "FAIL");
  fprintf(p->out, " (%s%s%d comparison%s of %s element%s, %d propert%s)\n", why, why[0] ? "; " : "", v.comparisons, plural(v.comparisons),
          grouped(elements, v.compared), plural(v.compared), v.properties, v.properties == 1 ? "y" : "ies");
}

/* A long line of phrases with commas, broken between them. */
static void put_wrapped(const printer *p, const char *text) {
  int column = 0;
  while (*text) {
    const char *comma = strstr(text, ", ");
    int length = comma ? (int)(comma - text) + 1 : (int)strlen(text);
    if (column > 0 && column + 1 + length > p->width) {
      fprintf(p->out, "\n");
      column = 0;
    }
    int indent = column == 0 ? INDENT : 1;
    fprintf(p->out, "%*s%.*s", indent, "", length, text);
    column += indent + length;
    text += comma ? length + 1 : length;
  }
  if (column > 0) fprintf(p->out, "\n");
}

static ls_status put_file(const printer *p, const report_file *file, ls_error *err) {
  report_finding *list = NULL;
  int n = 0;
  LS_TRY(report_findings(&list, &n, file, p->options, err));
  fprintf(p->out, "%s%s%s\n", report_base_name(file->file), file->title[0] ? "  " : "", file->title);
  put_wrapped(p, file->config_text);
  for (int i = 0; i < file->n_paths; i++) fprintf(p->out, "  %s: %s\n", file->path[i].name, file->path[i].description);
  for (int i = 0; i < file->n_notes; i++) fprintf(p->out, "  note: %s\n", file->note[i]);
  put_first(p, file, list, n);
  if (file->stop == LS_OK || file->n_entries > 0) put_table(p, file, list, n);
  put_properties(p, file);
  put_verdict_line(p, file);
  if (file->has_bisect) fprintf(p->out, "  bisect: %s\n", file->bisect.line);
  fprintf(p->out, "\n");
  free(list);
  return LS_OK;
}

ls_status ls_report_text(const ls_report *report, const ls_report_options *options, FILE *out, ls_error *err) {
  printer p = {.out = out, .options = options, .width = options->width > 0 ? options->width : DEFAULT_WIDTH};
  int passed = 0, failed = 0, stopped = 0, cured = 0;
  for (int i = 0; i < report->n_files; i++) {
    const report_file *file = &report->file[i];
    LS_TRY(put_file(&p, file, err));
    bool ok = report_judge(file, options).status == LS_OK;
    passed += ok;
    stopped += file->stop != LS_OK;
    failed += !ok && file->stop == LS_OK;
  }
  for (const char *const *known = options->known_failures; known && *known; known++) {
    switch (report_known_state(report, *known)) {
      case KNOWN_FAILS:
        fprintf(out, "known failure %s: fails, as listed\n", *known);
        break;
      case KNOWN_PASSES:
        cured++;
        fprintf(out, "known failure %s: ", *known);
        put_strong(&p, false, "passes now");
        fprintf(out, ", take it off the list\n");
        break;
      default:
        fprintf(out, "known failure %s: nothing of that name was compared\n", *known);
    }
  }
  fprintf(out, "%d fixture%s: %d pass, %d fail", report->n_files, plural(report->n_files), passed, failed);
  if (stopped > 0) fprintf(out, ", %d not finished", stopped);
  if (cured > 0) fprintf(out, ", %d known failure%s (the run fails)", cured, cured == 1 ? " passes" : "s pass");
  fprintf(out, "\n");
  if (fflush(out) != 0 || ferror(out)) return ls_fail(err, LS_INTERNAL, "report: could not write the table");
  return LS_OK;
}

typedef struct {
  const ls_report *report;
  const ls_report_options *options;
  ls_error *err;
} text_page;

static bool put_text(FILE *out, void *arg) {
  const text_page *p = arg;
  return ls_report_text(p->report, p->options, out, p->err) == LS_OK;
}

ls_status ls_report_text_file(const ls_report *report, const ls_report_options *options, const char *file, ls_error *err) {
  text_page p = {.report = report, .options = options, .err = err};
  return report_write(file, put_text, &p, err);
}
