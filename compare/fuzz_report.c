/* A fuzz run's report: what follows from it, and the text for people. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "ls_fuzz_report.h"

static void failure_free(ls_fuzz_failure *f) {
  char *const texts[] = {f->finding, f->name, f->file, f->shrunk, f->history, f->shape, f->repeat_case, f->repeat_file};
  for (size_t i = 0; i < sizeof texts / sizeof *texts; i++) free(texts[i]);
}

void ls_fuzz_report_free(ls_fuzz_report *report) {
  for (int64_t i = 0; i < report->failures; i++) failure_free(&report->failure[i]);
  free(report->failure);
  free(report->paths);
  memset(report, 0, sizeof *report);
}

ls_status ls_fuzz_report_status(const ls_fuzz_report *report) {
  if (report->interrupted) return LS_INTERRUPTED;
  return report->failures > 0 || report->cases == 0 ? LS_DIVERGED : LS_OK;
}

char *ls_fuzz_report_ran(char *buf, size_t size, const ls_fuzz_report *report) {
  int64_t all = 0;
  char by_op[256] = "";
  size_t used = 0;
  for (int op = 0; op < LS_OPS; op++) {
    all += report->op[op];
    if ((report->layer->ops & 1u << op) != 0 && used < sizeof by_op)
      used +=
          (size_t)snprintf(by_op + used, sizeof by_op - used, "%s%s %" PRId64, used > 0 ? ", " : "", ls_op_name((ls_op)op), report->op[op]);
  }
  snprintf(buf, size, "%" PRId64 " operation%s (%s), %" PRId64 " of them to be refused", all, all == 1 ? "" : "s", by_op, report->refused);
  return buf;
}

static void put_failure(const ls_fuzz_failure *f, FILE *out) {
  fprintf(out, "case %" PRId64 " fails: %s\n", f->number, f->finding != NULL ? f->finding : "(could not be told)");
  if (f->shrunk != NULL) fprintf(out, "  shrunk to  %s\n", f->shrunk);
  if (f->history != NULL) fprintf(out, "  history    %s\n", f->history);
  if (f->shape != NULL) fprintf(out, "  shape      %s\n", f->shape);
  if (f->file != NULL) fprintf(out, "  fixture    %s\n", f->file);
  if (f->repeat_file != NULL) fprintf(out, "  repeat     %s\n", f->repeat_file);
  if (f->repeat_case != NULL) fprintf(out, "  as drawn   %s\n", f->repeat_case);
}

ls_status ls_fuzz_report_text(const ls_fuzz_report *report, FILE *out, ls_error *err) {
  char ran[512], shard[64] = "";
  for (int64_t i = 0; i < report->failures; i++) put_failure(&report->failure[i], out);
  if (report->shards > 1) snprintf(shard, sizeof shard, " shard %" PRId64 "/%" PRId64 ",", report->shard + 1, report->shards);
  fprintf(out, "fuzz %s, seed %" PRIu64 ",%s %s: %" PRId64 " case%s, %s, %" PRId64 " elements compared, %.1f s: ", report->layer->name,
          report->seed, shard, report->paths, report->cases, report->cases == 1 ? "" : "s", ls_fuzz_report_ran(ran, sizeof ran, report),
          report->compared, report->seconds);
  if (report->interrupted) fprintf(out, "INTERRUPTED, ");
  if (report->cases == 0) fprintf(out, "nothing was run, ");
  fprintf(out, "%" PRId64 " failure%s\n", report->failures, report->failures == 1 ? "" : "s");
  if (fflush(out) != 0 || ferror(out)) return ls_fail(err, LS_INTERNAL, "cannot write the report to standard output");
  return LS_OK;
}
