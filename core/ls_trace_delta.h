/* ls_trace_delta: what a trace has that another has not, as a trace, and back. States of a path are kept so: a step changes few rows.
 *
 * Of a tensor `name` (a row: all elements of the last axis, counted over the leading axes):
 *   values/<name>, alone: the whole tensor, new or of another shape or type
 *   values/<name> [n, width] and rows/<name> [n] i64, ascending: the rows that differ. Rows past the end of the old tensor make axis 0
 * longer. removed/<name> [1] i64: it is gone A tensor of which nothing is said is as it was. */
#ifndef LS_TRACE_DELTA_H
#define LS_TRACE_DELTA_H

#include "ls_trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* before NULL: nothing was there. Bytes are compared. Whole tensors are views into `after`. */
ls_status ls_trace_delta(ls_trace **delta, const ls_trace *before, const ls_trace *after, ls_error *err);

/* Undoes it: a new trace of its own. LS_BAD_FIXTURE, naming the tensor, where the delta does not fit `before`; nothing it holds is trusted.
 */
ls_status ls_trace_patch(ls_trace **after, const ls_trace *before, const ls_trace *delta, const char *origin, ls_error *err);

#ifdef __cplusplus
}
#endif
#endif
