#include "ref_record.h"

#include "../core/ls_clock.h"

void ls_ref_record_start(ls_ref_recorder *recorder, ls_trace *out) {
  *recorder = (ls_ref_recorder){.out = out, .mark = ls_clock_seconds()};
}

ls_record *ls_ref_record_of(ls_ref_recorder *recorder, const char *name) {
  ls_record *rec = ls_trace_find(recorder->out, name);
  if (rec != NULL) rec->seconds = ls_clock_seconds() - recorder->mark;
  return rec;
}

void ls_ref_record_resume(ls_ref_recorder *recorder) { recorder->mark = ls_clock_seconds(); }

void ls_ref_record(ls_ref_recorder *recorder, const char *name, const ls_tensor *t) {
  ls_record *rec = ls_ref_record_of(recorder, name);
  if (rec != NULL) ls_tensor_copy(&rec->t, t, NULL);
  ls_ref_record_resume(recorder);
}
