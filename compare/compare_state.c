/* State of one path before and after an operation, and any two traces, bit for bit. */
#include <stdio.h>
#include <string.h>

#include "../core/ls_ring.h"
#include "compare_tally.h"

static bool listed(const char *name, const char *const *names) {
  for (; names && *names; names++) {
    if (strcmp(name, *names) == 0) return true;
  }
  return false;
}

static bool ends_in(const char *name, const char *end) {
  size_t n = strlen(name), m = strlen(end);
  return n >= m && strcmp(name + n - m, end) == 0;
}

static bool is_ring(const char *name) { return ends_in(name, "_ring"); }

/* The first element of two rows of n elements of one type whose bytes differ; -1: none. */
static int64_t first_difference(const ls_line *a, const ls_line *b, int64_t n) {
  int64_t size = (int64_t)ls_dtype_size(a->dtype);
  if (a->stride == 1 && b->stride == 1 && memcmp(a->data, b->data, (size_t)(n * size)) == 0) return -1;
  for (int64_t i = 0; i < n; i++) {
    if (memcmp((const char *)a->data + i * a->stride * size, (const char *)b->data + i * b->stride * size, (size_t)size) != 0) return i;
  }
  return -1;
}

/* How the place of a tensor without a stage is named. */
static const char *axes_of(const char *name, int ndim) {
  if (is_ring(name) && ndim == 3) return "layer slot channel";
  if (ndim == 3) return "layer row channel";
  if (ndim == 2 && (ends_in(name, "window") || ends_in(name, "_state"))) return "slot channel";
  if (ndim == 2 && ends_in(name, "_cache")) return "latent channel";
  if (ndim == 2 && ends_in(name, "topk_idxs")) return "row entry";
  if (ndim == 2 && ends_in(name, "candidates")) return "row position";
  if (ndim == 2) return "row channel";
  return NULL;
}

/* Two tensors of one name must have one type and shape before their bytes mean anything. */
static bool comparable(ls_result *result, const char *name, const ls_tensor *a, const ls_tensor *b) {
  char shape_a[64], shape_b[64];
  if (a && b && a->dtype == b->dtype && ls_tensor_same_shape(a, b) && a->place == LS_HOST && b->place == LS_HOST) return true;
  result->verdict = LS_FAIL;
  if (!a || !b) {
    snprintf(result->note, sizeof result->note, "%s: held by %s", name,
             a   ? "the first side only"
             : b ? "the second side only"
                 : "neither side");
  } else if (a->place != LS_HOST || b->place != LS_HOST) {
    snprintf(result->note, sizeof result->note, "%s: in device memory", name);
  } else {
    snprintf(result->note, sizeof result->note, "%s: %s %s against %s %s", name, ls_dtype_name(a->dtype),
             ls_dims_text(shape_a, sizeof shape_a, a->ndim, a->dim), ls_dtype_name(b->dtype),
             ls_dims_text(shape_b, sizeof shape_b, b->ndim, b->dim));
  }
  return false;
}

/* Records an element that differs; the first one keeps the place. */
static void differs(ls_result *result, const char *name, const ls_tensor *a, const ls_tensor *b, int64_t flat, const ls_place_names *names,
                    const char *why) {
  result->failing++;
  if (result->verdict == LS_FAIL) return;
  result->verdict = LS_FAIL;
  result->has_worst = true;
  result->worst_ndim = a->ndim;
  ls_unflatten(result->worst_index, flat, a->ndim, a->dim);
  result->worst_a = ls_tensor_get(a, flat), result->worst_b = ls_tensor_get(b, flat);
  ls_place_text_args place = {.axes = axes_of(name, a->ndim),
                              .ndim = a->ndim,
                              .index = result->worst_index,
                              .names = ends_in(name, "_state") || ends_in(name, "_cache") ? NULL : names, /* not rows at positions */
                              .heads = names && names->head_dim > 0 && a->ndim == 3,
                              .slot_position = -1};
  ls_place_text(result->where, sizeof result->where, &place);
  snprintf(result->note, sizeof result->note, "%s %s: %.9g %s %.9g%s", name, result->where, result->worst_a, why, result->worst_b,
           result->worst_a == result->worst_b ? " (in its bits)" : "");
}

/* Every row of a tensor but those of slots in [base, base + rows) of a ring. */
static void compare_rows(ls_result *result, const char *name, const ls_tensor *a, const ls_tensor *b, const ls_place_names *names,
                         const char *why, int64_t base, int64_t rows, int64_t capacity) {
  int64_t count = ls_tensor_count(a);
  int64_t width = a->ndim > 0 ? a->dim[a->ndim - 1] : 1;
  bool ring = rows > 0 && is_ring(name) && a->ndim == 3 && a->dim[1] == capacity;
  for (int64_t at = 0; at < count; at += width) {
    int64_t row;
    if (ring && ls_ring_row_of_slot(&row, at / width % capacity, base, rows, capacity)) continue;
    ls_line line_a = ls_line_of(a, at), line_b = ls_line_of(b, at);
    int64_t i = first_difference(&line_a, &line_b, width);
    result->count += width;
    result->rows++;
    result->rows_failing += i >= 0;
    if (i >= 0) differs(result, name, a, b, at + i, names, why);
    for (int64_t j = i + 1; i >= 0 && j < width; j++) { /* the rest of a row that differs, element by element */
      ls_line from_a = ls_line_of(a, at), from_b = ls_line_of(b, at);
      int64_t size = (int64_t)ls_dtype_size(a->dtype);
      from_a.data = (const char *)from_a.data + j * from_a.stride * size;
      from_b.data = (const char *)from_b.data + j * from_b.stride * size;
      result->failing += first_difference(&from_a, &from_b, 1) == 0;
    }
  }
}

static void finish(ls_result *result) {
  result->bit_equal = result->count - result->failing;
  if (result->verdict == LS_FAIL) return;
  result->verdict = result->count > 0 ? LS_PASS : LS_MISTRUSTED;
  if (result->count == 0) snprintf(result->note, sizeof result->note, "nothing was compared");
}

void ls_compare_write_set(ls_result *result, const ls_trace *before, const ls_trace *after, int64_t base, int64_t rows, int64_t capacity,
                          const char *const *may_change) {
  char outside[96];
  ls_result_init(result);
  if (rows > 0) {
    snprintf(outside, sizeof outside, "outside the slots of positions %lld..%lld changed from", (long long)base,
             (long long)(base + rows - 1));
  }
  for (int i = 0; i < before->n; i++) {
    const ls_record *record = &before->rec[i];
    if (listed(record->name, may_change)) continue;
    const ls_tensor *now = ls_trace_tensor(after, record->name);
    if (!comparable(result, record->name, &record->t, now)) continue;
    bool ring = rows > 0 && is_ring(record->name);
    int64_t failing = result->failing;
    ls_verdict verdict = result->verdict;
    compare_rows(result, record->name, &record->t, now, NULL, "changed to", base, rows, capacity);
    if (ring && verdict != LS_FAIL && result->failing > failing) {
      snprintf(result->note, sizeof result->note, "%s %s %s %.9g to %.9g", record->name, result->where, outside, result->worst_a,
               result->worst_b);
    }
  }
  for (int i = 0; i < after->n; i++) {
    const char *name = after->rec[i].name;
    if (!listed(name, may_change) && !ls_trace_find(before, name)) comparable(result, name, NULL, &after->rec[i].t);
  }
  finish(result);
}

void ls_compare_same_bytes(ls_result *result, const ls_trace *a, const ls_trace *b, const char *const *names, const ls_place_names *place) {
  ls_result_init(result);
  for (int i = 0; names ? names[i] != NULL : i < a->n; i++) {
    const char *name = names ? names[i] : a->rec[i].name;
    const ls_tensor *ta = ls_trace_tensor(a, name), *tb = ls_trace_tensor(b, name);
    if (!comparable(result, name, ta, tb)) continue;
    compare_rows(result, name, ta, tb, place, "against", 0, 0, 0);
  }
  finish(result);
}
