/* The panels of the HTML page: where the differences of one comparison lie. */
#include <stdlib.h>

#include "report_html.h"

/* Neither hue nor brightness alone: within the bound blues that darken, outside it orange to dark red, which no blindness mixes up. */
static const struct {
  uint32_t colour; /* RRGGBBAA */
  const char *what;
} level[LS_CELLS] = {[LS_CELL_NONE] = {0xffffff00, "not compared"},
                     [LS_CELL_EQUAL] = {0xe4e8ecff, "equal"},
                     [LS_CELL_1] = {0xc6dbefff, "at most 1% of the bound"},
                     [LS_CELL_3] = {0x9ecae1ff, "at most 3%"},
                     [LS_CELL_10] = {0x6baed6ff, "at most 10%"},
                     [LS_CELL_30] = {0x3182bdff, "at most 30%"},
                     [LS_CELL_100] = {0x08519cff, "within the bound"},
                     [LS_CELL_2X] = {0xfec44fff, "at most 2x the bound"},
                     [LS_CELL_10X] = {0xfe9929ff, "at most 10x"},
                     [LS_CELL_100X] = {0xd94801ff, "at most 100x"},
                     [LS_CELL_MORE] = {0x8c1c13ff, "more than 100x"},
                     [LS_CELL_LONELY] = {0x000000ff, "not finite on one side"}};

static void colours(uint32_t colour[LS_CELLS]) {
  for (int i = 0; i < LS_CELLS; i++) colour[i] = level[i].colour;
}

void html_legend(FILE *out) {
  fprintf(out, "<ul class=\"legend\" aria-label=\"colours of the error maps\">");
  for (int i = 0; i < LS_CELLS; i++)
    fprintf(out, "<li><i style=\"background:#%08x\"></i>%s</li>", (unsigned)level[i].colour, level[i].what);
  fprintf(out, "</ul>\n");
}

/* ---- error maps ---- */

static void put_extent(FILE *out, const char *name, int64_t first, int64_t last) {
  fprintf(out, "%s%s %" PRId64, name, first == last ? "" : "s", first);
  if (first != last) fprintf(out, " to %" PRId64, last);
}

/* What the two directions stand for. */
static void put_axes(FILE *out, const report_detail *d, const ls_cell_grid *g, const char *column) {
  const ls_detail *p = d->detail;
  fprintf(out, "down: ");
  put_extent(out, p->row_name, 0, g->rows - 1);
  if (p->stride > 0) {
    fprintf(out, ", ");
    put_extent(out, "position", p->base, p->base + p->stride * (g->rows - 1));
  }
  fprintf(out, "; across: ");
  put_extent(out, column, 0, g->columns - 1);
  if (g->rows > g->down || g->columns > g->across) {
    fprintf(out, "; a cell is the worst of %s%.3g x %.3g", g->rows % g->down || g->columns % g->across ? "about " : "",
            (double)g->rows / g->down, (double)g->columns / g->across);
  }
}

static void put_map(FILE *out, const report_detail *d, const ls_cell_grid *g, const char *column, const char *title) {
  enum { LEAST_CELL = 4, MOST_CELL = 16, HEIGHT = 288, WIDTH = 512 };
  uint32_t colour[LS_CELLS];
  colours(colour);
  char *png = report_png_base64(g->cell, g->across, g->down, colour, LS_CELLS);
  if (!png) return;
  int tall = HEIGHT / g->down, wide = WIDTH / g->across;
  tall = tall < LEAST_CELL ? LEAST_CELL : tall > MOST_CELL ? MOST_CELL : tall;
  wide = wide < LEAST_CELL ? LEAST_CELL : wide > 2 * MOST_CELL ? 2 * MOST_CELL : wide;
  int64_t failing = 0;
  for (int i = 0; i < g->down * g->across; i++) failing += g->cell[i] >= LS_CELL_2X;
  fprintf(out, "<figure class=\"map\"><figcaption>%s</figcaption>", title);
  fprintf(out, "<img alt=\"%s: %" PRId64 " of %d cells hold an element outside its bound\" src=\"data:image/png;base64,%s\"", title,
          failing, g->down * g->across, png);
  fprintf(out, " style=\"width:%dpx;height:%dpx\" width=\"%d\" height=\"%d\"", wide * g->across, tall * g->down, g->across, g->down);
  fprintf(out, " data-rows=\"%" PRId64 "\" data-columns=\"%" PRId64 "\" data-row=\"%s\" data-column=\"%s\"", g->rows, g->columns,
          d->detail->row_name, column);
  if (d->detail->stride > 0) fprintf(out, " data-base=\"%" PRId64 "\" data-stride=\"%" PRId64 "\"", d->detail->base, d->detail->stride);
  fprintf(out, "/><p class=\"axes\">");
  put_axes(out, d, g, column);
  fprintf(out, "</p></figure>\n");
  free(png);
}

static void put_maps(FILE *out, const report_detail *d) {
  const ls_map *map = &d->detail->map;
  if (map->width == 0) return;
  fprintf(out, "<div class=\"maps\">");
  if (map->head_dim > 0) put_map(out, d, &map->by_head, "head", "Worst use of the bound by row and head");
  put_map(out, d, &map->by_channel, "channel",
          map->head_dim > 0 ? "By row and channel within the head" : "Worst use of the bound by row and channel");
  fprintf(out, "</div>\n");
}

/* ---- histogram ---- */

static void put_bar(FILE *out, const char *label, const char *class_name, int64_t n, double most) {
  char count[32];
  const double share = n > 0 ? 100 * log1p((double)n) / log1p(most) : 0;
  fprintf(out, "<tr><th scope=\"row\">%s</th><td><i class=\"%s\" style=\"width:%.1f%%\"></i></td><td class=\"r\">%s</td></tr>", label,
          class_name, share, grouped(count, n));
}

static void bin_label(char *buf, size_t size, int bin, const char *word) {
  const uint64_t last = ls_spread_steps_edge(bin), first = bin > 0 ? ls_spread_steps_edge(bin - 1) + 1 : 1;
  if (last == UINT64_MAX) {
    snprintf(buf, size, "more %s", word);
  } else if (first == last) {
    snprintf(buf, size, "%" PRIu64 " %s", last, word);
  } else {
    snprintf(buf, size, "%" PRIu64 "&#8211;%" PRIu64 " %s", first, last, word);
  }
}

/* Signed, so that a path that truncates shows. Lengths are logarithmic: one element in a million must show too. */
static void put_histogram(FILE *out, const report_detail *d) {
  const ls_spread *s = &d->result.spread;
  char b[LS_MAX_PAIR], a[LS_MAX_PAIR], label[64];
  int last_below = -1, last_above = -1;
  int64_t most = d->result.bit_equal;
  for (int i = 0; i < LS_STEP_BINS; i++) {
    if (s->below[i] > 0) last_below = i;
    if (s->above[i] > 0) last_above = i;
    most = s->below[i] > most ? s->below[i] : most;
    most = s->above[i] > most ? s->above[i] : most;
  }
  most = s->lonely > most ? s->lonely : most;
  if (last_below < 0 && last_above < 0 && s->lonely == 0) return;
  side_names(d->pair, a, b);
  fprintf(out, "<figure><figcaption>Differences in steps of the type: ");
  html_say(out, "%s against %s", b, a);
  fprintf(out, " (bars are logarithmic)</figcaption><table class=\"hist\">");
  for (int i = last_below; i >= 0; i--) {
    bin_label(label, sizeof label, i, "below");
    put_bar(out, label, "below", s->below[i], (double)most);
  }
  put_bar(out, "equal", "same", d->result.bit_equal, (double)most);
  for (int i = 0; i <= last_above; i++) {
    bin_label(label, sizeof label, i, "above");
    put_bar(out, label, "above", s->above[i], (double)most);
  }
  if (s->lonely > 0) put_bar(out, "not finite on one side", "lonely", s->lonely, (double)most);
  fprintf(out, "</table></figure>\n");
}

/* ---- rings ---- */

static const struct {
  const char *class_name, *mark, *what;
} slot[LS_SLOTS] = {
    [LS_SLOT_EMPTY] = {"s-empty", "", "never written"},
    [LS_SLOT_KEPT] = {"s-kept", "", "right, written earlier"},
    [LS_SLOT_WRITTEN] = {"s-new", "", "right, written in this step"},
    [LS_SLOT_OUTSIDE] = {"s-bad", "&#8800;", "the right row, outside its bound"},
    [LS_SLOT_STALE] = {"s-stale", "&#8635;", "stale: what the slot held before"},
    [LS_SLOT_MISPLACED] = {"s-moved", "&#8644;", "a row that belongs elsewhere"},
    [LS_SLOT_UNDONE] = {"s-undone", "&#8230;", "a later stage was skipped"},
    [LS_SLOT_CLEARED] = {"s-zero", "0", "zeros: never written, or cleared"},
    [LS_SLOT_CHANGED] = {"s-bad", "!", "changed, but no operation wrote it"},
    [LS_SLOT_UNKNOWN] = {"s-bad", "?", "nothing seen so far"},
};

static void put_span(FILE *out, int64_t first, int64_t n) {
  if (first < 0) {
    fprintf(out, "&#8211;");
  } else if (n == 1) {
    fprintf(out, "%" PRId64, first);
  } else {
    fprintf(out, "%" PRId64 "&#8211;%" PRId64, first, first + n - 1);
  }
}

static void put_slots(FILE *out, const ls_ring_view *v) {
  fprintf(out, "<ol class=\"slots\">");
  for (int i = 0; i < v->n; i++) {
    const ls_ring_run *r = &v->run[i];
    for (int64_t k = 0; k < r->slots; k++) {
      fprintf(out, "<li class=\"%s\" title=\"slot %" PRId64 ": %s\"><small>%" PRId64 "</small>", slot[r->status].class_name, r->slot + k,
              slot[r->status].what, r->slot + k);
      if (r->expected >= 0) fprintf(out, "<b>%" PRId64 "</b>", r->expected + k);
      if (r->held >= 0 && r->held != r->expected) fprintf(out, "<em>%" PRId64 "</em>", r->held + k);
      fprintf(out, "%s</li>", slot[r->status].mark);
    }
  }
  fprintf(out, "</ol>\n");
}

static void put_strip(FILE *out, const ls_ring_view *v) {
  enum { MOST_LISTED = 48 };
  fprintf(out, "<div class=\"strip\" aria-hidden=\"true\">");
  for (int i = 0; i < v->n; i++) {
    fprintf(out, "<i class=\"%s\" style=\"flex-grow:%" PRId64 "\"></i>", slot[v->run[i].status].class_name, v->run[i].slots);
  }
  if (v->left_out > 0) fprintf(out, "<i style=\"flex-grow:%" PRId64 "\"></i>", v->left_out);
  fprintf(out,
          "</div><div class=\"scroll\"><table class=\"runs\"><tr><th>slots</th><th>should hold</th><th>holds</th><th>status</th></tr>");
  for (int i = 0; i < v->n && i < MOST_LISTED; i++) {
    const ls_ring_run *r = &v->run[i];
    fprintf(out, "<tr><td>");
    put_span(out, r->slot, r->slots);
    fprintf(out, "</td><td>");
    put_span(out, r->expected, r->slots);
    fprintf(out, "</td><td>");
    put_span(out, r->held, r->slots);
    fprintf(out, "</td><td><i class=\"dot %s\"></i>%s</td></tr>", slot[r->status].class_name, slot[r->status].what);
  }
  fprintf(out, "</table></div>");
  int64_t more = v->left_out;
  for (int i = MOST_LISTED; i < v->n; i++) more += v->run[i].slots;
  if (more > 0) fprintf(out, "<p class=\"axes\">and %" PRId64 " more slots</p>", more);
}

static void put_ring(FILE *out, const ls_ring_view *v) {
  enum { MOST_SLOTS = 256 };
  if (v->capacity == 0) return;
  bool seen[LS_SLOTS] = {false};
  int64_t by[LS_SLOTS] = {0};
  for (int i = 0; i < v->n; i++) seen[v->run[i].status] = true, by[v->run[i].status] += v->run[i].slots;
  const bool cells = v->capacity <= MOST_SLOTS && v->left_out == 0;
  fprintf(out, "<figure><figcaption>Ring of %" PRId64 " slots%s</figcaption><ul class=\"legend\">", v->capacity,
          cells ? ": slot, the position it should hold, and after it the one it holds instead" : " and their positions");
  for (int i = 0; i < LS_SLOTS; i++) {
    if (seen[i]) fprintf(out, "<li><i class=\"%s\">%s</i>%s (%" PRId64 ")</li>", slot[i].class_name, slot[i].mark, slot[i].what, by[i]);
  }
  fprintf(out, "</ul>");
  if (cells) {
    put_slots(out, v);
  } else {
    put_strip(out, v);
  }
  fprintf(out, "</figure>\n");
}

/* ---- selections ---- */

static void put_choice(FILE *out, const report_detail *d) {
  const ls_choice_view *v = &d->detail->choice;
  char a[LS_MAX_PAIR], b[LS_MAX_PAIR];
  if (v->n == 0) return;
  side_names(d->pair, a, b);
  const int64_t last = (v->k < v->eligible ? v->k : v->eligible) - 1;
  double border = NAN;
  for (int i = 0; i < v->n; i++) border = v->item[i].place == last ? v->item[i].score[0] : border;
  fprintf(out, "<figure><figcaption>Query %" PRId64 ": the scores around place %" PRId64 " of %" PRId64 " that may be chosen", v->row,
          last + 1, v->eligible);
  if (v->equals > 1) fprintf(out, "; %" PRId64 " share the last place's score", v->equals);
  fprintf(out, "</figcaption><div class=\"scroll\"><table class=\"choice\"><tr><th>place</th><th>position</th><th>chosen by</th><th>");
  html_text(out, a);
  fprintf(out, "</th><th>");
  html_text(out, b);
  fprintf(out, "</th><th>may differ by</th></tr>");
  int64_t before = -1;
  for (int i = 0; i < v->n; i++) {
    const ls_choice_item *t = &v->item[i];
    const bool alone = t->in[0] != t->in[1], tie = t->score[0] == border;
    if (i > 0 && t->place != before + 1) fprintf(out, "<tr class=\"gap\"><td colspan=\"6\">&#8942;</td></tr>");
    fprintf(out, "<tr class=\"%s%s%s\"><td>%" PRId64 "</td><td>%" PRId64 "</td><td>", t->place == last ? "last " : "",
            alone ? "alone " : "", t->in[0] || t->in[1] ? "" : "out", t->place + 1, t->position);
    html_text(out, t->in[0] && t->in[1] ? "both" : t->in[0] ? a : t->in[1] ? b : "neither");
    fprintf(out, "</td><td>%.7g%s</td><td>%.7g</td><td>%.3g</td></tr>", t->score[0],
            tie && v->equals > 1 ? " <abbr title=\"equals the last place\">tie</abbr>" : "", t->score[1], t->bound);
    before = t->place;
  }
  fprintf(out, "</table></div></figure>\n");
}

/* ---- a panel ---- */

void html_panel(FILE *out, const report_file *file, const report_detail *d, const ls_report_options *options, bool open) {
  char name[LS_NAME_MAX + 32], use[16], failing[32], count[32], command[2048];
  fprintf(out, "<details class=\"panel\"%s><summary>", open ? " open=\"\"" : "");
  html_verdict(out, d->result.verdict);
  fprintf(out, " <b>");
  html_text(out, report_stage_name(name, sizeof name, d->stage, d->sub));
  fprintf(out, "</b> ");
  html_say(out, "%s, %s, step %" PRId64 "; ", d->pair, mode_name(d->mode), d->step);
  if (d->result.failing > 0) {
    html_say(out, "%s of %s fail", grouped(failing, d->result.failing), grouped(count, d->result.count));
  } else {
    html_say(out, "%s of the bound in use", use_text(use, d->result.use));
  }
  fprintf(out, "</summary>\n");
  put_maps(out, d);
  put_ring(out, &d->detail->ring);
  put_choice(out, d);
  put_histogram(out, d);
  report_repeat(command, sizeof command, file, options, d->stage, d->sub, d->step);
  html_command(out, command);
  fprintf(out, "</details>\n");
}
