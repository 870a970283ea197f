/* The rendering of `verify --calibrate`: what each stage uses of its bound, over all fixtures of the run together. */
#include <stdlib.h>

#include "report_numbers.h"

/* A right path that never needs a twentieth of a bound says that the bound is wider than its reason. */
#define TOO_WIDE 0.05

/* One stage in one mode: every drafter layer, pair and fixture. Comparisons of the same code with itself are left out. */
static ls_result over_files(const ls_report *report, const ls_layer *layer, const char *stage, ls_mode mode) {
  ls_result sum;
  ls_result_init(&sum);
  for (int i = 0; i < report->n_files; i++) {
    const report_file *file = &report->file[i];
    if (file->layer != layer) continue;
    for (int j = 0; j < file->n_entries; j++) {
      const report_entry *e = &file->entry[j];
      if (e->mode != mode || strcmp(e->stage, stage) != 0 || !report_compared(e->tally.total.verdict)) continue;
      ls_result_merge(&sum, &e->tally.total);
    }
  }
  return sum;
}

static bool is_first_of_layer(const ls_report *report, int i) {
  for (int j = 0; j < i; j++) {
    if (report->file[j].layer == report->file[i].layer) return false;
  }
  return report->file[i].layer != NULL;
}

/* Values with a bound, some of which differ: then the bound is not 0, and its use is what the largest difference takes of it. Only where
 * nothing is carried into the bound, which would be for the worst case of another stage. */
static bool is_too_wide(const ls_stage *stage, const ls_result *isolated) {
  const bool values = stage->holds == LS_HOLDS_VALUES || stage->holds == LS_HOLDS_F32;
  double use;
  int64_t differing;
  ls_result_own(isolated, &use, &differing);
  return values && isolated->count > 0 && differing > 0 && use <= TOO_WIDE;
}

static void put_half(FILE *out, const ls_result *r) {
  char use[16] = "-", most[16] = "-", share[16] = "-", elements[32] = "-";
  if (r->count > 0) {
    use_text(use, r->use);
    use_text(most, ls_result_use_999(r));
    share_text(share, r->bit_equal, r->count);
    grouped(elements, r->count);
  }
  fprintf(out, "   %6s %6s %9s %15s", use, most, share, elements);
}

static int put_layer(FILE *out, const ls_report *report, const ls_layer *layer) {
  int files = 0, width = 5, wide = 0;
  for (int i = 0; i < report->n_files; i++) files += report->file[i].layer == layer;
  for (int i = 0; i < layer->n_stages; i++) {
    const int length = (int)strlen(layer->stages[i].name);
    if (length > width) width = length;
  }
  fprintf(out, "%s, %d fixture%s\n\n", layer->name, files, plural(files));
  fprintf(out, "  %-*s   isolated%32s   cascaded\n", width, "", "");
  fprintf(out, "  %-*s", width, "stage");
  for (int m = 0; m < LS_MODES; m++) fprintf(out, "   %6s %6s %9s %15s", "use", "99.9%", "bit-equal", "elements");
  fprintf(out, "\n");
  for (int i = 0; i < layer->n_stages; i++) {
    ls_result mode[LS_MODES];
    for (int m = 0; m < LS_MODES; m++) mode[m] = over_files(report, layer, layer->stages[i].name, (ls_mode)m);
    if (mode[LS_ISOLATED].count == 0 && mode[LS_CASCADED].count == 0) continue;
    const bool too_wide = is_too_wide(&layer->stages[i], &mode[LS_ISOLATED]);
    wide += too_wide;
    fprintf(out, "  %-*s", width, layer->stages[i].name);
    for (int m = 0; m < LS_MODES; m++) put_half(out, &mode[m]);
    fprintf(out, "%s\n", too_wide ? "  too wide" : "");
  }
  fprintf(out, "\n");
  return wide;
}

static void put_too_wide(FILE *out, const ls_report *report, const ls_layer *layer) {
  for (int i = 0; i < layer->n_stages; i++) {
    char use[16], differing[32], elements[32];
    const ls_result r = over_files(report, layer, layer->stages[i].name, LS_ISOLATED);
    if (!is_too_wide(&layer->stages[i], &r)) continue;
    double own;
    int64_t apart;
    ls_result_own(&r, &own, &apart);
    fprintf(out, "TOO WIDE: %s %s: isolated, at most %s of its bound in use; %s of %s elements differ\n", layer->name,
            layer->stages[i].name, use_text(use, own), grouped(differing, apart), grouped(elements, r.count));
  }
}

ls_status ls_report_calibrate(const ls_report *report, FILE *out, ls_error *err) {
  int wide = 0;
  for (int i = 0; i < report->n_files; i++) {
    if (is_first_of_layer(report, i)) wide += put_layer(out, report, report->file[i].layer);
  }
  for (int i = 0; i < report->n_files; i++) {
    if (is_first_of_layer(report, i)) put_too_wide(out, report, report->file[i].layer);
  }
  if (wide == 0)
    fprintf(out, "no bound is too wide: every stage that differs uses more than %.0f%% of its bound, isolated\n", 100 * TOO_WIDE);
  if (fflush(out) != 0 || ferror(out)) return ls_fail(err, LS_INTERNAL, "report: could not write the calibration");
  return LS_OK;
}
