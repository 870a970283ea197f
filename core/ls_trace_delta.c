#include "ls_trace_delta.h"

#include <stdio.h>
#include <string.h>

static const char values_prefix[] = "values/", rows_prefix[] = "rows/", removed_prefix[] = "removed/";
enum { MAX_NAME = 160 };

static int64_t width_of(const ls_tensor *t) { return t->ndim > 0 ? t->dim[t->ndim - 1] : 1; }
static int64_t rows_of(const ls_tensor *t) { return width_of(t) > 0 ? ls_tensor_count(t) / width_of(t) : 0; }

static const char *joined(char buf[MAX_NAME], const char *prefix, const char *name) {
  snprintf(buf, MAX_NAME, "%s%s", prefix, name);
  return buf;
}

/* Whether the rows of b can be told by those of a that differ and those after them. */
static bool grows_from(const ls_tensor *a, const ls_tensor *b) {
  if (a == NULL || a->dtype != b->dtype || a->ndim != b->ndim || a->ndim < 2 || !ls_tensor_is_dense(a) || !ls_tensor_is_dense(b))
    return false;
  for (int i = 1; i < a->ndim; i++)
    if (a->dim[i] != b->dim[i]) return false;
  return a->dim[0] <= b->dim[0];
}

static bool row_differs(const ls_tensor *a, const ls_tensor *b, int64_t row) {
  const size_t bytes = (size_t)width_of(b) * ls_dtype_size(b->dtype);
  return row >= rows_of(a) || memcmp((const char *)a->data + (size_t)row * bytes, (const char *)b->data + (size_t)row * bytes, bytes) != 0;
}

static ls_status add_rows(ls_trace *delta, const char *name, const ls_tensor *a, const ls_tensor *b, ls_error *err) {
  char full[MAX_NAME];
  const int64_t rows = rows_of(b), width = width_of(b);
  const size_t bytes = (size_t)width * ls_dtype_size(b->dtype);
  int64_t n = 0;
  for (int64_t r = 0; r < rows; r++) n += row_differs(a, b, r);
  if (n == 0) return LS_OK;
  if (n == rows) return ls_trace_add_view(delta, joined(full, values_prefix, name), b, err);
  ls_tensor index, values;
  const int64_t dim[] = {n, width};
  LS_TRY(ls_trace_add(delta, joined(full, rows_prefix, name), LS_I64, 1, dim, &index, err));
  LS_TRY(ls_trace_add(delta, joined(full, values_prefix, name), b->dtype, 2, dim, &values, err));
  int64_t at = 0;
  for (int64_t r = 0; r < rows; r++) {
    if (!row_differs(a, b, r)) continue;
    ((int64_t *)index.data)[at] = r;
    memcpy((char *)values.data + (size_t)at * bytes, (const char *)b->data + (size_t)r * bytes, bytes);
    at++;
  }
  return LS_OK;
}

ls_status ls_trace_delta(ls_trace **delta, const ls_trace *before, const ls_trace *after, ls_error *err) {
  char full[MAX_NAME];
  ls_tensor gone;
  ls_status status;
  *delta = NULL;
  ls_trace *made = NULL;
  LS_TRY_OUT(ls_trace_new(&made, "delta", err));
  for (int i = 0; i < after->n; i++) {
    const char *name = after->rec[i].name;
    const ls_tensor *a = ls_trace_tensor(before, name), *b = &after->rec[i].t;
    if (a != NULL && ls_tensor_same_bytes(a, b)) continue;
    LS_TRY_OUT(grows_from(a, b) ? add_rows(made, name, a, b, err) : ls_trace_add_view(made, joined(full, values_prefix, name), b, err));
  }
  for (int i = 0; before != NULL && i < before->n; i++) {
    if (ls_trace_find(after, before->rec[i].name) != NULL) continue;
    LS_TRY_OUT(ls_trace_add(made, joined(full, removed_prefix, before->rec[i].name), LS_I64, 1, (const int64_t[]){1}, &gone, err));
    *(int64_t *)gone.data = 1;
  }
  *delta = made;
  made = NULL;
out:
  ls_trace_free(made);
  return status;
}

/* ---- back ---- */

static ls_status copy_into(ls_trace *trace, const char *name, const ls_tensor *from, ls_error *err) {
  ls_tensor t;
  LS_TRY(ls_trace_add(trace, name, from->dtype, from->ndim, from->dim, &t, err));
  return ls_tensor_copy(&t, from, err);
}

static ls_status does_not_fit(const char *name, ls_error *err) {
  return ls_fail(err, LS_BAD_FIXTURE, "%s: expected rows of the tensor that was there before, found others", name);
}

static ls_status patch_rows(ls_trace *made, const char *name, const ls_tensor *old, const ls_tensor *index, const ls_tensor *values,
                            ls_error *err) {
  if (old == NULL || old->ndim < 2 || index->dtype != LS_I64 || index->ndim != 1 || values->ndim != 2 || values->dtype != old->dtype ||
      values->dim[0] != index->dim[0] || values->dim[1] != width_of(old) || index->dim[0] < 1 || !ls_tensor_is_dense(index) ||
      !ls_tensor_is_dense(values) || rows_of(old) < 1)
    return does_not_fit(name, err);
  const int64_t *row = index->data, n = index->dim[0], held = rows_of(old);
  int64_t fresh = 0; /* rows past the end: they must follow it without a gap */
  for (int64_t i = 0; i < n; i++) {
    if (row[i] < 0 || (i > 0 && row[i] <= row[i - 1]) || (row[i] >= held && row[i] != held + fresh)) return does_not_fit(name, err);
    fresh += row[i] >= held;
  }
  const int64_t slab = held / old->dim[0];
  if (fresh % slab != 0) return does_not_fit(name, err);
  int64_t dim[LS_MAX_DIMS];
  memcpy(dim, old->dim, sizeof dim);
  dim[0] += fresh / slab;
  ls_tensor t;
  LS_TRY(ls_trace_add(made, name, old->dtype, old->ndim, dim, &t, err));
  const ls_tensor same = ls_tensor_slice(&t, 0, 0, old->dim[0]);
  LS_TRY(ls_tensor_copy(&same, old, err));
  const size_t bytes = (size_t)values->dim[1] * ls_dtype_size(old->dtype);
  for (int64_t i = 0; i < n; i++) memcpy((char *)t.data + (size_t)row[i] * bytes, (const char *)values->data + (size_t)i * bytes, bytes);
  return LS_OK;
}

ls_status ls_trace_patch(ls_trace **after, const ls_trace *before, const ls_trace *delta, const char *origin, ls_error *err) {
  char full[MAX_NAME];
  ls_status status;
  *after = NULL;
  ls_trace *made = NULL;
  LS_TRY_OUT(ls_trace_new(&made, origin, err));
  for (int i = 0; before != NULL && i < before->n; i++) {
    const char *name = before->rec[i].name;
    const ls_tensor *values = ls_trace_tensor(delta, joined(full, values_prefix, name));
    const ls_tensor *rows = ls_trace_tensor(delta, joined(full, rows_prefix, name));
    if (ls_trace_find(delta, joined(full, removed_prefix, name)) != NULL) continue;
    if (values == NULL && rows != NULL) {
      status = does_not_fit(name, err);
      goto out;
    }
    LS_TRY_OUT(values == NULL ? copy_into(made, name, &before->rec[i].t, err)
               : rows == NULL ? copy_into(made, name, values, err)
                              : patch_rows(made, name, &before->rec[i].t, rows, values, err));
  }
  for (int i = 0; i < delta->n; i++) {
    const char *name = delta->rec[i].name;
    if (strncmp(name, values_prefix, strlen(values_prefix)) != 0) continue;
    name += strlen(values_prefix);
    if (ls_trace_find(before, name) != NULL) continue;
    if (ls_trace_find(delta, joined(full, rows_prefix, name)) != NULL) {
      status = does_not_fit(name, err);
      goto out;
    }
    LS_TRY_OUT(copy_into(made, name, &delta->rec[i].t, err));
  }
  *after = made;
  made = NULL;
out:
  ls_trace_free(made);
  return status;
}
