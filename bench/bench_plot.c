/* The history as a page: a chart for each name. Nothing is loaded from elsewhere, and nothing needs scripts: a point's numbers are its
 * tooltip, and all of them stand in the table under the chart. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../compare/report_model.h"
#include "bench_record.h"
#include "bench_statistics.h"

enum { WIDTH = 420, HEIGHT = 170, LEFT = 62, RIGHT = 12, TOP = 14, BOTTOM = 34 };

static const char head[] =
    "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\n"
    "<title>lockstep bench: history</title>\n<style>\n"
    ":root{--ink:#1c2024;--soft:#626a73;--line:#d4d8dd;--paper:#fff;--mark:#0b62c4;--bad:#b3261e}\n"
    "@media(prefers-color-scheme:dark){:root{--ink:#e6e8ea;--soft:#9aa3ad;--line:#3a4149;--paper:#15181b;--mark:#6db1ff;--bad:#ff8a80}}\n"
    "body{font:14px/1.45 system-ui,sans-serif;color:var(--ink);background:var(--paper);margin:1.2rem auto;max-width:1360px;padding:0 "
    "1rem}\n"
    "h1{font-size:1.25rem}h2{font:600 .92rem ui-monospace,monospace;margin:.1rem 0;overflow-wrap:anywhere}\n"
    "main{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,420px),1fr));gap:1.1rem}\n"
    "section{border:1px solid var(--line);border-radius:6px;padding:.6rem .7rem;min-width:0}\n"
    "svg{width:100%;height:auto;display:block}svg text{font:10px ui-monospace,monospace;fill:var(--soft)}\n"
    ".axis{stroke:var(--line)}.trend{fill:none;stroke:var(--mark);stroke-width:1.5}.box{stroke:var(--mark);stroke-width:3;opacity:.35}\n"
    ".dot{fill:var(--mark)}.gone{fill:none;stroke:var(--bad);stroke-width:1.5}.floor{stroke:var(--soft);stroke-dasharray:4 3}\n"
    "p,summary{color:var(--soft);margin:.2rem 0}table{border-collapse:collapse;font:12px ui-monospace,monospace;width:100%}\n"
    "details{overflow-x:auto}td,th{text-align:right;padding:.1rem .4rem;border-bottom:1px solid "
    "var(--line)}td:first-child,th:first-child{text-align:left}\n"
    "</style></head><body>\n<h1>lockstep bench: history</h1>\n"
    "<p>A point is a round: the median of its timed runs, the bar behind it their quartiles. Dashed: the floor that this machine's own "
    "read "
    "bandwidth and product rate set. An open ring: not measured, or not verified.</p>\n<main>\n";

static void escaped(FILE *out, const char *text) {
  char *clean = report_clean(text);
  for (const char *c = clean != NULL ? clean : ""; *c != '\0'; c++) {
    if (*c == '<')
      fputs("&lt;", out);
    else if (*c == '>')
      fputs("&gt;", out);
    else if (*c == '&')
      fputs("&amp;", out);
    else if (*c == '"')
      fputs("&quot;", out);
    else
      fputc(*c, out);
  }
  free(clean);
}

/* The rounds of one name on one class of machine. */
typedef struct {
  const bench_record **round;
  int n;
  double low, high, unit; /* of the axis, in seconds; of its labels */
  const char *unit_name;
} chart;

static void scale(chart *c) {
  c->low = (double)INFINITY, c->high = 0;
  for (int i = 0; i < c->n; i++) {
    const bench_record *r = c->round[i];
    if (r->n == 0) continue;
    const double q1 = bench_quantile(r->seconds, (size_t)r->n, 0.25), q3 = bench_quantile(r->seconds, (size_t)r->n, 0.75);
    c->low = fmin(c->low, r->floor > 0 ? fmin(q1, r->floor) : q1);
    c->high = fmax(c->high, q3);
  }
  if (c->high == 0) c->low = 0, c->high = 1e-6;
  const double margin = 0.08 * fmax(c->high - c->low, 0.05 * c->high);
  c->low = fmax(0, c->low - margin);
  c->high += margin;
  c->unit = c->high < 1e-2 ? 1e-6 : c->high < 10 ? 1e-3 : 1;
  c->unit_name = c->unit == 1e-6 ? "us" : c->unit == 1e-3 ? "ms" : "s";
}

static double x_of(const chart *c, int i) { return LEFT + (WIDTH - LEFT - RIGHT) * (c->n > 1 ? (double)i / (c->n - 1) : 0.5); }
static double y_of(const chart *c, double seconds) { return TOP + (HEIGHT - TOP - BOTTOM) * (c->high - seconds) / (c->high - c->low); }

static void draw_axes(FILE *out, const chart *c) {
  for (int i = 0; i <= 3; i++) {
    const double seconds = c->low + (c->high - c->low) * i / 3, y = y_of(c, seconds);
    fprintf(out,
            "<line class=\"axis\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\">%.4g</text>\n",
            LEFT, WIDTH - RIGHT, y, y, LEFT - 5, y + 3, seconds / c->unit);
  }
  double free_from = 0; /* labels that would run into each other are left out; every commit is in the table */
  for (int i = 0; i < c->n; i++) {
    const char *commit = c->round[i]->commit;
    if (i > 0 && strcmp(commit, c->round[i - 1]->commit) == 0) continue;
    if (x_of(c, i) < free_from) continue;
    fprintf(out, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"%s\">%.8s</text>\n", x_of(c, i), HEIGHT - 16,
            c->n == 1                 ? "middle"
            : x_of(c, i) > WIDTH - 60 ? "end"
                                      : "start",
            commit);
    free_from = x_of(c, i) + 56;
  }
  fprintf(out, "<text x=\"%d\" y=\"10\">%s</text>\n", LEFT, c->unit_name);
}

static void draw_rounds(FILE *out, const chart *c) {
  fputs("<polyline class=\"trend\" points=\"", out);
  for (int i = 0; i < c->n; i++) {
    const bench_record *r = c->round[i];
    if (r->n > 0) fprintf(out, "%.1f,%.1f ", x_of(c, i), y_of(c, bench_median(r->seconds, (size_t)r->n)));
  }
  fputs("\"/>\n", out);
  for (int i = 0; i < c->n; i++) {
    const bench_record *r = c->round[i];
    const double x = x_of(c, i), median = r->n > 0 ? bench_median(r->seconds, (size_t)r->n) : c->low;
    if (r->n > 0)
      fprintf(out, "<line class=\"box\" x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>\n", x, x,
              y_of(c, bench_quantile(r->seconds, (size_t)r->n, 0.25)), y_of(c, bench_quantile(r->seconds, (size_t)r->n, 0.75)));
    fprintf(out, "<circle class=\"%s\" cx=\"%.1f\" cy=\"%.1f\" r=\"3\"><title>", r->outcome == BENCH_MEASURED ? "dot" : "gone", x,
            y_of(c, median));
    escaped(out, r->commit);
    fputc(' ', out);
    escaped(out, r->date);
    if (r->n > 0)
      fprintf(out, ": %.5g %s", median / c->unit, c->unit_name);
    else
      fputs(": not measured", out);
    fputs("</title></circle>\n", out);
  }
  const bench_record *last = c->round[c->n - 1];
  if (last->floor > 0)
    fprintf(out, "<line class=\"floor\" x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/>\n", LEFT, WIDTH - RIGHT, y_of(c, last->floor),
            y_of(c, last->floor));
}

static void write_table(FILE *out, const chart *c) {
  fputs(
      "<details><summary>all rounds</summary><table><tr><th>commit</th><th>date</th><th>median</th><th>spread</th><th>samples</th></tr>\n",
      out);
  for (int i = c->n - 1; i >= 0; i--) {
    const bench_record *r = c->round[i];
    fputs("<tr><td>", out);
    escaped(out, r->commit);
    fputs("</td><td>", out);
    escaped(out, r->date);
    if (r->n > 0) {
      fprintf(out, "</td><td>%.5g %s</td><td>%.1f%%</td><td>%d</td></tr>\n", bench_median(r->seconds, (size_t)r->n) / c->unit, c->unit_name,
              100 * bench_spread(r->seconds, (size_t)r->n), r->n);
    } else {
      fputs("</td><td colspan=\"3\">", out);
      escaped(out, r->why);
      fputs("</td></tr>\n", out);
    }
  }
  fputs("</table></details>\n", out);
}

static void write_chart(FILE *out, chart *c) {
  const bench_record *last = c->round[c->n - 1];
  scale(c);
  fputs("<section><h2>", out);
  escaped(out, last->name);
  fputs("</h2><p>", out);
  escaped(out, last->machine_class);
  if (last->n > 0) {
    const double median = bench_median(last->seconds, (size_t)last->n);
    fprintf(out, "; last %.5g %s", median / c->unit, c->unit_name);
    if (last->floor > 0) fprintf(out, ", %.2f times its floor", median / last->floor);
  }
  fprintf(out, "</p>\n<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"medians over commits\">\n", WIDTH, HEIGHT);
  draw_axes(out, c);
  draw_rounds(out, c);
  fputs("</svg>\n", out);
  write_table(out, c);
  fputs("</section>\n", out);
}

static bool same_chart(const bench_record *a, const bench_record *b) {
  return strcmp(a->name, b->name) == 0 && strcmp(a->machine_class, b->machine_class) == 0;
}

static bool write_page(FILE *out, void *arg) {
  const bench_records *history = arg;
  chart c = {.round = malloc((size_t)(history->n + 1) * sizeof *c.round)};
  if (c.round == NULL) return false;
  fputs(head, out);
  for (int i = 0; i < history->n; i++) {
    bool drawn = false;
    for (int k = 0; k < i && !drawn; k++) drawn = same_chart(&history->record[k], &history->record[i]);
    if (drawn) continue;
    c.n = 0;
    for (int k = i; k < history->n; k++) {
      if (same_chart(&history->record[k], &history->record[i])) c.round[c.n++] = &history->record[k];
    }
    write_chart(out, &c);
  }
  fputs("</main></body></html>\n", out);
  free(c.round);
  return true;
}

ls_status bench_write_plot(const bench_records *history, const char *file, ls_error *err) {
  return report_write(file, write_page, (void *)history, err);
}
