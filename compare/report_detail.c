/* Which details a report keeps. */
#include <stdlib.h>
#include <string.h>

#include "../core/ls_shortage.h"
#include "report_model.h"

enum { KEPT_FAILING = 24, KEPT_PASSING = 10 };

void report_details_free(report_file *file) {
  for (int i = 0; i < file->n_details; i++) free(file->detail[i].detail);
  free(file->detail);
}

static bool failed(const ls_result *r) { return r->verdict == LS_FAIL; }

/* A ring or a selection is worth looking at when it passes too. */
static bool is_special(const ls_detail *d) { return d->ring.capacity > 0 || d->choice.n > 0; }

/* Whether what passed tells more than what is kept: a use of a bound that is the stage's own, isolated, before one that is carried; then
 * the larger one; of selections that are equally right the one with more ties at its end, and of rings the later step, which holds more. */
static bool tells_more(ls_mode mode, const ls_result *result, const ls_detail *detail, const report_detail *kept) {
  if (is_special(detail) != is_special(kept->detail)) return is_special(detail);
  if (is_special(detail)) {
    if (result->use != kept->result.use) return result->use > kept->result.use;
    return detail->choice.equals >= kept->detail->choice.equals;
  }
  if (mode != kept->mode) return mode < kept->mode;
  return result->use > kept->result.use;
}

static report_detail *place_of_failing(report_file *file, const char *stage, int64_t sub, const char *pair, ls_mode mode) {
  int failing = 0;
  for (int i = 0; i < file->n_details; i++) {
    const report_detail *d = &file->detail[i];
    if (!failed(&d->result)) continue;
    failing++;
    if (d->sub == sub && d->mode == mode && strcmp(d->stage, stage) == 0 && strcmp(d->pair, pair) == 0) return NULL; /* the first stays */
  }
  return failing < KEPT_FAILING ? report_grow(&file->detail, &file->n_details, &file->details_room, sizeof *file->detail) : NULL;
}

static report_detail *place_of_passing(report_file *file, const char *stage, ls_mode mode, const ls_result *result,
                                       const ls_detail *detail) {
  report_detail *least = NULL;
  int passing = 0;
  if (!is_special(detail) && !(result->use > 0)) return NULL; /* a map of equal elements */
  for (int i = 0; i < file->n_details; i++) {
    report_detail *d = &file->detail[i];
    if (failed(&d->result)) continue;
    if (strcmp(d->stage, stage) == 0) return tells_more(mode, result, detail, d) ? d : NULL;
    if (is_special(d->detail)) continue;
    passing++;
    if (!least || tells_more(least->mode, &least->result, least->detail, d)) least = d;
  }
  if (is_special(detail) || passing < KEPT_PASSING) {
    return report_grow(&file->detail, &file->n_details, &file->details_room, sizeof *file->detail);
  }
  return tells_more(mode, result, detail, least) ? least : NULL;
}

ls_status ls_report_detail(ls_report *report, int64_t step, const char *stage, int64_t sub, const char *pair, ls_mode mode,
                           const ls_result *result, const ls_detail *detail, ls_error *err) {
  if (report->n_files == 0) return ls_fail(err, LS_INTERNAL, "report: something was added before any file");
  report_file *file = &report->file[report->n_files - 1];
  const bool proves = result->verdict == LS_PASS || failed(result);
  if (!proves || (!is_special(detail) && detail->map.width == 0)) return LS_OK;
  report_detail *to = failed(result) ? place_of_failing(file, stage, sub, pair, mode) : place_of_passing(file, stage, mode, result, detail);
  if (!to) return LS_OK;
  if (!to->detail) to->detail = ls_shortage_unless(malloc(sizeof *to->detail));
  if (!to->detail) {
    file->n_details--; /* it was the last one, new */
    return ls_fail(err, LS_INTERNAL, "report: out of memory");
  }
  *to->detail = *detail;
  to->step = step, to->sub = sub, to->mode = mode, to->result = *result;
  snprintf(to->stage, sizeof to->stage, "%s", stage);
  snprintf(to->pair, sizeof to->pair, "%s", pair);
  return LS_OK;
}
