/* ls_trace: a set of named tensors, found by name, with the memory they live in.
 *
 * The one noun of the flow: a fixture holds inputs and expected traces, a path turns inputs into a trace, compare takes any two.
 * Not thread-safe. */
#ifndef LS_TRACE_H
#define LS_TRACE_H

#include "ls_arena.h"
#include "ls_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const char *name;
  ls_tensor t;
  double seconds;     /* time spent making it, 0 where not measured */
  bool has_tolerance; /* an expected dataset with its own atol and rtol */
  double atol, rtol;
} ls_record;

typedef struct {
  const char *origin; /* "golden", "ref", "cuda", "emu", "weights", ... a string that outlives the trace */
  ls_record *rec;
  int n, room;
  ls_arena *mem;
} ls_trace;

ls_status ls_trace_new(ls_trace **trace, const char *origin, ls_error *err);

/* Adds a host tensor with memory of its own, poisoned; *t is its view. A name that is already there is LS_INTERNAL. name is copied. */
ls_status ls_trace_add(ls_trace *trace, const char *name, ls_dtype dtype, int ndim, const int64_t *dim, ls_tensor *t, ls_error *err);

/* Adds a view of memory that the caller keeps alive. */
ls_status ls_trace_add_view(ls_trace *trace, const char *name, const ls_tensor *t, ls_error *err);

/* NULL where trace is NULL or holds no such name. The pointer is good until the next add. */
ls_record *ls_trace_find(const ls_trace *trace, const char *name);
const ls_tensor *ls_trace_tensor(const ls_trace *trace, const char *name);

/* A deep copy: dense, same types. */
ls_status ls_trace_copy(ls_trace **copy, const ls_trace *trace, ls_error *err);

void ls_trace_free(ls_trace *trace); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
