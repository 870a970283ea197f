/* What a bisection asks of a report while it runs, and what it came to. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "report_model.h"

static void hit_stage(ls_report_hit *hit, const report_file *file, const report_finding *f) {
  const report_entry *e = f->mode[f->first_mode];
  hit->step = f->first->step;
  hit->mode = f->first_mode;
  hit->is_state = file->layer != NULL && e->order < file->layer->n_stages && file->layer->stages[e->order].is_ring;
  report_stage_name(hit->name, sizeof hit->name, e->stage, e->sub);
  snprintf(hit->where, sizeof hit->where, "%s", f->first->result.where);
  snprintf(hit->note, sizeof hit->note, "%s", f->first->result.note);
}

ls_status ls_report_first(const ls_report *report, ls_report_hit *hit, ls_error *err) {
  static const ls_report_options plain;
  memset(hit, 0, sizeof *hit);
  if (report->n_files == 0) return LS_OK;
  const report_file *file = &report->file[report->n_files - 1];
  report_finding *list = NULL;
  int n = 0;
  bool bad = false; /* asked for after each step: most have nothing */
  for (int i = 0; i < file->n_entries && !bad; i++) bad = file->entry[i].tally.n_bad > 0;
  if (bad) LS_TRY(report_findings(&list, &n, file, &plain, err));
  hit->found = n > 0;
  if (n > 0) hit_stage(hit, file, &list[0]);
  free(list);
  for (int i = 0; i < file->n_properties; i++) {
    const report_property *p = &file->property[i];
    if (p->tally.n_bad == 0 || (hit->found && hit->step <= p->tally.bad[0].step)) continue;
    const ls_result *r = &p->tally.bad[0].result;
    hit->found = hit->is_property = true;
    hit->step = p->tally.bad[0].step;
    snprintf(hit->name, sizeof hit->name, "%s", p->property);
    snprintf(hit->where, sizeof hit->where, "%s", r->where);
    snprintf(hit->note, sizeof hit->note, "%s", r->note);
  }
  for (int i = 0; i < file->n_entries; i++) {
    const ls_result *r = &file->entry[i].tally.total;
    if (!report_compared(r->verdict) && r->verdict != LS_SHARED) continue;
    hit->compared += r->count;
    hit->bit_equal += r->bit_equal;
  }
  return LS_OK;
}

ls_status ls_report_bisect(ls_report *report, const ls_bisect *bisect, ls_error *err) {
  if (report->n_files == 0) return ls_fail(err, LS_INTERNAL, "report: a bisection was added before any file");
  report_file *file = &report->file[report->n_files - 1];
  file->has_bisect = true;
  file->bisect = *bisect;
  return LS_OK;
}
