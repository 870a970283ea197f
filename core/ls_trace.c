#include "ls_trace.h"

#include <stdlib.h>
#include <string.h>

ls_status ls_trace_new(ls_trace **trace, const char *origin, ls_error *err) {
  *trace = NULL;
  ls_trace *made = calloc(1, sizeof *made);
  if (made == NULL) return ls_fail(err, LS_INTERNAL, "out of memory for the trace of %s", origin);
  made->origin = origin;
  ls_status status = ls_arena_new(&made->mem, err);
  if (status == LS_OK) {
    *trace = made;
  } else {
    free(made);
  }
  return status;
}

ls_status ls_trace_add_view(ls_trace *trace, const char *name, const ls_tensor *t, ls_error *err) {
  if (ls_trace_find(trace, name) != NULL) return ls_fail(err, LS_INTERNAL, "trace of %s: %s is there already", trace->origin, name);
  if (trace->n == trace->room) {
    int room = trace->room == 0 ? 16 : 2 * trace->room;
    ls_record *more = realloc(trace->rec, (size_t)room * sizeof *more);
    if (more == NULL) return ls_fail(err, LS_INTERNAL, "out of memory: trace of %s, %s", trace->origin, name);
    trace->rec = more;
    trace->room = room;
  }
  size_t length = strlen(name) + 1;
  void *copy;
  LS_TRY(ls_arena_alloc(trace->mem, name, length, &copy, err));
  memcpy(copy, name, length);
  trace->rec[trace->n++] = (ls_record){.name = copy, .t = *t};
  return LS_OK;
}

ls_status ls_trace_add(ls_trace *trace, const char *name, ls_dtype dtype, int ndim, const int64_t *dim, ls_tensor *t, ls_error *err) {
  if (ls_trace_find(trace, name) != NULL) return ls_fail(err, LS_INTERNAL, "trace of %s: %s is there already", trace->origin, name);
  if (ndim < 0 || ndim > LS_MAX_DIMS)
    return ls_fail(err, LS_INTERNAL, "trace of %s: %s has %d dimensions, expected 0 to %d", trace->origin, name, ndim, LS_MAX_DIMS);
  int64_t count = ls_dims_count(ndim, dim), bytes;
  if (count < 0 || __builtin_mul_overflow(count, (int64_t)ls_dtype_size(dtype), &bytes)) {
    char text[96];
    return ls_fail(err, LS_INTERNAL, "trace of %s: %s has the impossible shape %s", trace->origin, name,
                   ls_dims_text(text, sizeof text, ndim, dim));
  }
  void *data;
  LS_TRY(ls_arena_alloc(trace->mem, name, (size_t)bytes, &data, err));
  *t = ls_tensor_make(dtype, ndim, dim, data);
  return ls_trace_add_view(trace, name, t, err);
}

ls_record *ls_trace_find(const ls_trace *trace, const char *name) {
  for (int i = 0; trace != NULL && i < trace->n; i++)
    if (strcmp(trace->rec[i].name, name) == 0) return &trace->rec[i];
  return NULL;
}

const ls_tensor *ls_trace_tensor(const ls_trace *trace, const char *name) {
  const ls_record *rec = ls_trace_find(trace, name);
  return rec == NULL ? NULL : &rec->t;
}

ls_status ls_trace_copy(ls_trace **copy, const ls_trace *trace, ls_error *err) {
  *copy = NULL;
  ls_trace *made = NULL;
  ls_status status;
  LS_TRY_OUT(ls_trace_new(&made, trace->origin, err));
  for (int i = 0; i < trace->n; i++) {
    const ls_record *from = &trace->rec[i];
    ls_tensor t;
    LS_TRY_OUT(ls_trace_add(made, from->name, from->t.dtype, from->t.ndim, from->t.dim, &t, err));
    LS_TRY_OUT(ls_tensor_copy(&t, &from->t, err));
    ls_record *to = &made->rec[i];
    to->seconds = from->seconds;
    to->has_tolerance = from->has_tolerance;
    to->atol = from->atol;
    to->rtol = from->rtol;
  }
  *copy = made;
  made = NULL;
out:
  ls_trace_free(made);
  return status;
}

void ls_trace_free(ls_trace *trace) {
  if (trace == NULL) return;
  ls_arena_free(trace->mem);
  free(trace->rec);
  free(trace);
}
