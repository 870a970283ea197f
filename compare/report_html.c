/* The rendering for people: one page that loads nothing from elsewhere. What matters shows without scripts; those add copying and the
 * values under the pointer. */
#include <stdarg.h>
#include <stdlib.h>

#include "../core/ls_shortage.h"
#include "report_html.h"

enum { MOST_FINDINGS = 40, OPEN_PANELS = 4 };

/* ---- text ---- */

void html_text(FILE *out, const char *text) {
  char *clean = report_clean(text);
  for (const char *c = clean; c && *c; c++) {
    switch (*c) {
      case '&':
        fputs("&amp;", out);
        break;
      case '<':
        fputs("&lt;", out);
        break;
      case '>':
        fputs("&gt;", out);
        break;
      case '"':
        fputs("&quot;", out);
        break;
      default:
        fputc(*c, out);
    }
  }
  free(clean);
}

void html_say(FILE *out, const char *format, ...) {
  char text[2048];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  html_text(out, text);
}

static const char *class_of(ls_verdict verdict) {
  switch (verdict) {
    case LS_PASS:
      return "good";
    case LS_FAIL:
    case LS_MISSING:
      return "bad";
    case LS_MISTRUSTED:
      return "odd";
    default:
      return "quiet";
  }
}

void html_verdict(FILE *out, ls_verdict verdict) {
  fprintf(out, "<span class=\"v %s\">%s</span>", class_of(verdict), ls_verdict_name(verdict));
}

void html_command(FILE *out, const char *command) {
  fprintf(out, "<div class=\"command\"><code>");
  html_text(out, command);
  fprintf(out, "</code></div>\n");
}

void html_number(FILE *out, int64_t n) {
  char digits[32];
  fputs(grouped(digits, n), out);
}

/* A line of a list of facts; nothing where there is nothing to say. */
static void put_fact(FILE *out, const char *label, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void put_fact(FILE *out, const char *label, const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (!text[0]) return;
  fprintf(out, "<dt>");
  html_text(out, label);
  fprintf(out, "</dt><dd>");
  html_text(out, text);
  fprintf(out, "</dd>");
}

/* ---- findings ---- */

static void put_result(FILE *out, const ls_result *r, const char *pair) {
  char use[16], steps[16] = "", a[LS_MAX_PAIR], b[LS_MAX_PAIR], count[32], of[32];
  if (r->verdict == LS_MISSING) put_fact(out, "missing", "one side should hold this stage and does not");
  put_fact(out, "where", "%s", r->where);
  if (r->has_worst) {
    side_names(pair, a, b);
    put_fact(out, "values", "%s %.9g, %s %.9g, apart %.4g, bound %.4g (%s of it)", a, r->worst_a, b, r->worst_b,
             fabs(r->worst_a - r->worst_b), r->worst_bound, use_text(use, r->use));
  }
  if (r->failing > 0) {
    if (r->steps > 0) snprintf(steps, sizeof steps, "%s", steps_text((char[16]){0}, r->steps));
    put_fact(out, "failing", "%s of %s elements in %" PRId64 " of %" PRId64 " rows%s%s%s", grouped(count, r->failing),
             grouped(of, r->count), r->rows_failing, r->rows, steps[0] ? ", at most " : "", steps, steps[0] ? " steps apart" : "");
  }
  put_fact(out, "note", "%s", r->note);
}

static void put_finding(FILE *out, const report_file *file, const report_finding *f, const ls_report_options *options) {
  char name[LS_NAME_MAX + 32], command[2048], words[REPORT_PATTERN_WORDS];
  const report_entry *e = f->mode[f->first_mode];
  fprintf(out, "<article class=\"finding\"><h4>");
  html_text(out, report_stage_name(name, sizeof name, e->stage, e->sub));
  fprintf(out, " <small>");
  html_say(out, "step %" PRId64 ", %s, %s", f->first->step, e->pair, mode_name(f->first_mode));
  fprintf(out, "</small> <span class=\"v %s\">%s</span>%s</h4><dl>", f->origin == ORIGIN_INTRODUCED ? "bad" : "odd",
          report_origin_text(f->origin), f->known ? " <span class=\"v quiet\">known failure</span>" : "");
  put_result(out, &f->first->result, e->pair);
  put_fact(out, "pattern", "%s", report_pattern_words(words, sizeof words, &e->tally));
  for (int m = 0; m < LS_MODES; m++) {
    const report_tally *t = f->mode[m] ? &f->mode[m]->tally : NULL;
    int64_t bad = t ? t->runs[LS_FAIL] + t->runs[LS_MISSING] : 0, runs = 0;
    for (int v = 0; t && v < LS_VERDICTS; v++) runs += t->runs[v];
    if (bad > 0)
      put_fact(out, mode_name((ls_mode)m), "fails in %" PRId64 " of %" PRId64 " steps, first in step %" PRId64, bad, runs, t->bad[0].step);
  }
  fprintf(out, "</dl>");
  html_command(out, report_repeat(command, sizeof command, file, options, e->stage, e->sub, f->first->step));
  fprintf(out, "</article>\n");
}

static int failing_properties(const report_file *file) {
  int n = 0;
  for (int i = 0; i < file->n_properties; i++) n += file->property[i].tally.n_bad > 0;
  return n;
}

static void put_findings(FILE *out, const report_file *file, const report_finding *list, int n, const ls_report_options *options) {
  char command[2048];
  if (n == 0 && failing_properties(file) == 0) return;
  fprintf(out, "<h3>Findings</h3>\n");
  for (int i = 0; i < n && i < MOST_FINDINGS; i++) put_finding(out, file, &list[i], options);
  if (n > MOST_FINDINGS) fprintf(out, "<p>and %d more (see --json)</p>\n", n - MOST_FINDINGS);
  for (int i = 0; i < file->n_properties; i++) {
    const report_property *p = &file->property[i];
    if (p->tally.n_bad == 0) continue;
    const report_failure *first = &p->tally.bad[0];
    fprintf(out, "<article class=\"finding\"><h4>property ");
    html_text(out, p->property);
    fprintf(out, " <small>");
    html_say(out, "of %s, step %" PRId64, p->path, first->step);
    fprintf(out, "</small></h4><dl>");
    put_fact(out, "what", "%s", first->result.note[0] ? first->result.note : first->result.where);
    fprintf(out, "</dl>");
    html_command(out, report_repeat(command, sizeof command, file, options, NULL, -1, first->step));
    fprintf(out, "</article>\n");
  }
}

/* ---- the table ---- */

static void put_cell(FILE *out, const report_cell *c, const char *mode) {
  char use[16], most[16], share[16], steps[16];
  fprintf(out, "<td data-mode=\"%s\">", mode);
  html_verdict(out, c->verdict);
  if (c->sum.count > 0) {
    const double largest = c->sum.use <= 1 ? 100 * c->sum.use : 100, usual = ls_result_use_999(&c->sum);
    fprintf(out, "<span class=\"bar%s\"><i style=\"width:%.1f%%\"></i><b style=\"width:%.1f%%\"></b></span>",
            c->sum.use <= 1 ? "" : " over", largest, usual <= 1 ? 100 * usual : 100);
    fprintf(out, "<span class=\"n\"><b>%s</b> <span>99.9%%: %s</span> <span>equal %s</span> <span>%s step%s</span></span>",
            use_text(use, c->sum.use), use_text(most, usual), share_text(share, c->sum.bit_equal, c->sum.count),
            steps_text(steps, c->sum.steps), c->sum.steps == 1 ? "" : "s");
  }
  if (c->sum.ties > 0) fprintf(out, "<span class=\"n\">%" PRId64 " tie%s</span>", c->sum.ties, plural(c->sum.ties));
  if (c->sum.near_ties > 0) fprintf(out, "<span class=\"n\">%" PRId64 " near tie%s</span>", c->sum.near_ties, plural(c->sum.near_ties));
  fprintf(out, "</td>");
}

/* A finer record that nobody holds: named in one line below the table, as on a terminal. */
static bool is_absent_finer(const report_file *file, const report_entry *e) {
  if (!file->layer || e->order >= file->layer->n_stages || !file->layer->stages[e->order].finer) return false;
  for (int m = 0; m < LS_MODES; m++) {
    const ls_verdict verdict = report_cell_of(file, e->stage, e->pair, (ls_mode)m).verdict;
    if (verdict != LS_NOT_HELD && verdict != LS_NOT_RUN) return false;
  }
  return true;
}

static void put_line(FILE *out, const report_file *file, const report_entry *e, bool lead) {
  report_cell cells[LS_MODES];
  for (int m = 0; m < LS_MODES; m++) cells[m] = report_cell_of(file, e->stage, e->pair, (ls_mode)m);
  const bool bad = report_graver(cells[0].verdict, cells[1].verdict) == LS_FAIL;
  fprintf(out, "<tr class=\"%s%s\"><th scope=\"row\">", bad ? "fails " : "", lead ? "lead" : "");
  html_text(out, e->stage);
  fprintf(out, "</th><td class=\"pair\">");
  html_text(out, e->pair);
  fprintf(out, "</td>");
  put_cell(out, &cells[LS_ISOLATED], "isolated");
  put_cell(out, &cells[LS_CASCADED], "cascaded");
  fprintf(out, "</tr>\n");
}

static void put_absent(FILE *out, const report_file *file, const bool *absent) {
  for (int pair = 0, more = 1; more; pair++) {
    int named = 0;
    more = 0;
    for (int i = 0; i < file->n_entries; i++) {
      const report_entry *e = &file->entry[i];
      more = more || e->pair_order > pair;
      if (!absent[i] || e->pair_order != pair) continue;
      if (named++ == 0) {
        fprintf(out, "<p class=\"hint\">");
        html_say(out, "NOT HELD (%s):", e->pair);
      }
      html_say(out, " %s", e->stage);
    }
    if (named > 0) fprintf(out, "</p>\n");
  }
}

static void put_table(FILE *out, const report_file *file) {
  if (file->n_entries == 0) return;
  const int orders = (file->layer ? file->layer->n_stages : 0) + 1;
  bool *done = ls_shortage_unless(calloc((size_t)file->n_entries, sizeof *done)),
       *absent = ls_shortage_unless(calloc((size_t)file->n_entries, sizeof *absent));
  fprintf(out,
          "<h3>Stages</h3>\n<p class=\"hint\">A bar is the share of the bound in use: light the most, dark what all but one in a thousand "
          "elements stay within.</p>\n<table class=\"stages\"><thead><tr><th>stage</th><th>pair</th><th>isolated</th><th>cascaded</th></tr>"
          "</thead><tbody>\n");
  for (int order = 0; done && absent && order < orders; order++) {
    const char *stage = "";
    for (int i = 0; i < file->n_entries; i++) {
      const report_entry *e = &file->entry[i];
      if (e->order != order || done[i]) continue;
      for (int j = i; j < file->n_entries; j++) {
        const report_entry *o = &file->entry[j];
        if (strcmp(o->stage, e->stage) == 0 && strcmp(o->pair, e->pair) == 0) done[j] = true;
      }
      absent[i] = is_absent_finer(file, e);
      if (absent[i]) continue;
      put_line(out, file, e, strcmp(stage, e->stage) != 0);
      stage = e->stage;
    }
  }
  fprintf(out, "</tbody></table>\n");
  if (absent) put_absent(out, file, absent);
  free(done);
  free(absent);
}

static void put_properties(FILE *out, const report_file *file) {
  if (file->n_properties == 0) return;
  fprintf(out,
          "<h3>Properties</h3>\n<table "
          "class=\"properties\"><thead><tr><th>property</th><th>path</th><th>verdict</th><th>checks</th></tr></thead><tbody>\n");
  for (int i = 0; i < file->n_properties; i++) {
    const report_property *p = &file->property[i];
    int64_t runs = 0, bad = p->tally.runs[LS_FAIL] + p->tally.runs[LS_MISSING];
    for (int v = 0; v < LS_VERDICTS; v++) runs += p->tally.runs[v];
    fprintf(out, "<tr><th scope=\"row\">");
    html_text(out, p->property);
    fprintf(out, "</th><td>");
    html_text(out, p->path);
    fprintf(out, "</td><td>");
    html_verdict(out, p->tally.total.verdict);
    if (bad > 0) {
      fprintf(out, "</td><td>%" PRId64 " of %" PRId64 " fail</td></tr>\n", bad, runs);
    } else {
      fprintf(out, "</td><td>%" PRId64 "</td></tr>\n", runs);
    }
  }
  fprintf(out, "</tbody></table>\n");
}

/* ---- panels ---- */

/* Failing ones first, by step, then what uses most of its bound. */
static int by_weight(const void *left, const void *right) {
  const report_detail *a = left, *b = right;
  const int bad_a = a->result.verdict == LS_FAIL, bad_b = b->result.verdict == LS_FAIL;
  if (bad_a != bad_b) return bad_b - bad_a;
  if (bad_a && a->step != b->step) return a->step < b->step ? -1 : 1;
  if (a->mode != b->mode) return a->mode < b->mode ? -1 : 1;
  return (a->result.use < b->result.use) - (a->result.use > b->result.use);
}

static ls_status put_panels(FILE *out, const report_file *file, const ls_report_options *options, ls_error *err) {
  if (file->n_details == 0) return LS_OK;
  report_detail *list = ls_shortage_unless(malloc((size_t)file->n_details * sizeof *list));
  if (!list) return ls_fail(err, LS_INTERNAL, "report: out of memory");
  memcpy(list, file->detail, (size_t)file->n_details * sizeof *list);
  qsort(list, (size_t)file->n_details, sizeof *list, by_weight);
  fprintf(
      out,
      "<h3>Where the differences lie</h3>\n<p class=\"hint\">The first step of what fails, and of what passes the stages that use most of "
      "their bounds.</p>\n");
  html_legend(out);
  for (int i = 0; i < file->n_details; i++) {
    html_panel(out, file, &list[i], options, i < OPEN_PANELS && list[i].result.verdict == LS_FAIL);
  }
  free(list);
  return LS_OK;
}

/* ---- a file ---- */

static const char *file_word(const report_file *file, const report_verdict *v) {
  return file->stop != LS_OK ? "NOT FINISHED" : v->status == LS_OK ? "PASS" : "FAIL";
}

static void put_count(FILE *out, int n, const char *one, const char *many) {
  if (n > 0) fprintf(out, ", <b>%d %s</b>", n, n == 1 ? one : many);
}

static void put_summary(FILE *out, const report_file *file, const report_verdict *v) {
  fprintf(out, "<p>%d comparison%s of ", v->comparisons, plural(v->comparisons));
  html_number(out, v->compared);
  fprintf(out, " elements, %d propert%s", v->properties, v->properties == 1 ? "y" : "ies");
  put_count(out, v->failing, "comparison fails", "comparisons fail");
  put_count(out, v->missing, "MISSING", "MISSING");
  put_count(out, v->mistrusted, "MISTRUSTED", "MISTRUSTED");
  put_count(out, v->properties_failing, "property fails", "properties fail");
  put_count(out, v->properties_mistrusted, "property proves nothing", "properties prove nothing");
  put_count(out, v->known, "known failure", "known failures");
  if (v->nothing) fprintf(out, ", <b>nothing was compared</b>");
  fprintf(out, ".</p>\n");
  if (file->stop == LS_OK) return;
  fprintf(out, "<p class=\"stop\">Not finished (%s): ", ls_status_name(file->stop));
  html_text(out, file->stop_line ? file->stop_line : "");
  fprintf(out, "%s</p>\n", file->n_entries + file->n_properties > 0 ? "; what follows is partial" : "");
}

static void put_first(FILE *out, const report_file *file, const report_finding *list, int n) {
  char name[LS_NAME_MAX + 32];
  if (n > 0 && !list[0].known) {
    const report_finding *f = &list[0];
    const report_entry *e = f->mode[f->first_mode];
    fprintf(out, "<p class=\"first\"><b>First divergence:</b> ");
    html_say(out, "step %" PRId64 ", %s%s%s (%s, %s: %s)", f->first->step, report_stage_name(name, sizeof name, e->stage, e->sub),
             f->first->result.where[0] ? ", " : "", f->first->result.where, e->pair, mode_name(f->first_mode),
             report_origin_text(f->origin));
    char words[REPORT_PATTERN_WORDS];
    if (report_pattern_words(words, sizeof words, &e->tally)[0]) {
      fprintf(out, ". ");
      html_text(out, words);
    }
    fprintf(out, "</p>\n");
    return;
  }
  for (int i = 0; i < file->n_properties; i++) {
    const report_property *p = &file->property[i];
    if (p->tally.n_bad == 0) continue;
    fprintf(out, "<p class=\"first\"><b>First divergence:</b> ");
    html_say(out, "step %" PRId64 ", property %s of %s", p->tally.bad[0].step, p->property, p->path);
    fprintf(out, "</p>\n");
    return;
  }
}

static ls_status put_file(FILE *out, const report_file *file, int number, const ls_report_options *options, ls_error *err) {
  report_finding *list = NULL;
  int n = 0;
  LS_TRY(report_findings(&list, &n, file, options, err));
  const report_verdict v = report_judge(file, options);
  fprintf(out, "<section id=\"file%d\"><h2>", number);
  html_text(out, report_base_name(file->file));
  fprintf(out, " <span class=\"v %s\">%s</span></h2>\n", v.status == LS_OK ? "good" : "bad", file_word(file, &v));
  if (file->title[0]) {
    fprintf(out, "<p class=\"title\">");
    html_text(out, file->title);
    fprintf(out, "</p>\n");
  }
  put_summary(out, file, &v);
  put_first(out, file, list, n);
  fprintf(out, "<details class=\"about\"><summary>Config, paths and notes</summary><dl>");
  put_fact(out, "file", "%s", file->file);
  put_fact(out, "config", "%s", file->config_text);
  for (int i = 0; i < file->n_paths; i++) put_fact(out, file->path[i].name, "%s", file->path[i].description);
  for (int i = 0; i < file->n_notes; i++) put_fact(out, "note", "%s", file->note[i]);
  fprintf(out, "</dl></details>\n");
  put_findings(out, file, list, n, options);
  put_table(out, file);
  put_properties(out, file);
  ls_status status = put_panels(out, file, options, err);
  fprintf(out, "</section>\n");
  free(list);
  return status;
}

/* ---- the page ---- */

typedef struct {
  const ls_report *report;
  const ls_report_options *options;
  ls_error *err;
  ls_status status;
} page;

static void put_pieces(FILE *out, const char *const *piece) {
  while (*piece) fputs(*piece++, out);
}

static void put_head(FILE *out, const page *p) {
  int passed = 0, stopped = 0;
  const ls_report *report = p->report;
  for (int i = 0; i < report->n_files; i++) {
    const ls_status status = report_judge(&report->file[i], p->options).status;
    passed += status == LS_OK;
    stopped += report->file[i].stop != LS_OK;
  }
  const ls_status status = ls_report_status(report, p->options);
  const int failed = report->n_files - passed - stopped;
  fprintf(out,
          "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"/>"
          "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\"/><meta name=\"color-scheme\" content=\"light dark\"/>"
          "<title>Lockstep: %s, %d of %d fixtures pass</title>\n<style>",
          status == LS_OK ? "PASS" : "FAIL", passed, report->n_files);
  put_pieces(out, report_html_style);
  fprintf(out, "</style></head>\n<body><main>\n");
  fprintf(out, "<header><h1>Lockstep <span class=\"v %s\">%s</span></h1><p>%d fixture%s: %d pass, %d fail",
          status == LS_OK ? "good" : "bad", status == LS_OK ? "PASS" : "FAIL", report->n_files, plural(report->n_files), passed, failed);
  if (stopped > 0) fprintf(out, ", %d not finished", stopped);
  fprintf(out, ". Exit status %d (%s). <code>", (int)status, ls_status_name(status));
  html_say(out, "%s verify %s", p->options->program ? p->options->program : "lockstep",
           p->options->repeat_options ? p->options->repeat_options : "");
  fprintf(out, "</code></p>\n");
  if (report->n_files > 1) {
    fprintf(out, "<ul class=\"files\">");
    for (int i = 0; i < report->n_files; i++) {
      const report_verdict v = report_judge(&report->file[i], p->options);
      fprintf(out, "<li><span class=\"v %s\">%s</span> <a href=\"#file%d\">", v.status == LS_OK ? "good" : "bad",
              file_word(&report->file[i], &v), i);
      html_text(out, report_base_name(report->file[i].file));
      fprintf(out, "</a></li>");
    }
    fprintf(out, "</ul>\n");
  }
  for (const char *const *known = p->options->known_failures; known && *known; known++) {
    const report_known state = report_known_state(report, *known);
    fprintf(out, "<p>known failure ");
    html_text(out, *known);
    fprintf(out, ": %s</p>\n",
            state == KNOWN_FAILS    ? "fails, as listed"
            : state == KNOWN_PASSES ? "<b>passes now</b>, take it off the list"
                                    : "nothing of that name was compared");
  }
  fprintf(out, "</header>\n");
}

static bool put_page(FILE *out, void *arg) {
  page *p = arg;
  put_head(out, p);
  for (int i = 0; i < p->report->n_files && p->status == LS_OK; i++) {
    p->status = put_file(out, &p->report->file[i], i, p->options, p->err);
  }
  fprintf(out, "</main>\n<script>");
  put_pieces(out, report_html_script);
  fprintf(out, "</script>\n</body></html>\n");
  return p->status == LS_OK;
}

ls_status ls_report_html(const ls_report *report, const ls_report_options *options, const char *file, ls_error *err) {
  page p = {.report = report, .options = options, .err = err, .status = LS_OK};
  return report_write(file, put_page, &p, err);
}
