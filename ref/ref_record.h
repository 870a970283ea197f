/* ref_record: stages of a step as they are made, each with the seconds since the one before. */
#ifndef LS_REF_RECORD_H
#define LS_REF_RECORD_H

#include "../core/ls_trace.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  ls_trace *out; /* holds the records already, of the right shapes; NULL: nothing is recorded */
  double mark;   /* when the last stage ended */
} ls_ref_recorder;

void ls_ref_record_start(ls_ref_recorder *recorder, ls_trace *out);

/* The record of a stage that was just made, its seconds set; NULL where it is not recorded. The caller fills it, and then calls resume, so
 * that the copy counts for no stage. */
ls_record *ls_ref_record_of(ls_ref_recorder *recorder, const char *name);
void ls_ref_record_resume(ls_ref_recorder *recorder);

/* Both, with a copy of t in between. */
void ls_ref_record(ls_ref_recorder *recorder, const char *name, const ls_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
