/* Rings, slot by slot: what each should hold, and, where it does not, what it holds instead. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_numeric.h"
#include "../core/ls_parallel.h"
#include "../core/ls_ring.h"
#include "../core/ls_shortage.h"
#include "compare_tally.h"

/* Memory for rows that no slot should hold any more. Rows that slots should hold are always kept. */
static const size_t DEAD_BYTES_MAX = (size_t)64 << 20;

/* Two rows are the same row seen through two paths where they differ by no more than this, relative L2. Rounding leaves 2^-8 or so;
 * different tokens, or one token at different positions, are of the order of 1 apart. */
#define SAME_ROW 0x1p-6

enum { FROM_STATE = -1 }; /* the step of rows that were there before the first */

/* One position's K and V of all layers: [layers, kv_dim] each; no V (NULL) where the layer has one ring. */
typedef struct seen_row seen_row;
struct seen_row {
  int64_t step, position;
  const char *kind;
  ls_dtype dtype[2]; /* of K, of V */
  void *data[2];
  float *bound[2]; /* NULL: nothing may differ */
  size_t bytes;
  seen_row *next; /* in the list of dead rows, oldest first */
};

typedef struct {
  const char *stage;
  int64_t base;
  ls_tensor rows; /* [layers, rows, kv_dim], own memory */
} intermediate;

enum { MAX_INTERMEDIATES = 8 };

struct ls_ring_history {
  int64_t layers, capacity, kv_dim, head_dim;
  int64_t last_step;
  seen_row **live; /* [capacity], what each slot should hold; NULL: nothing was written there */
  seen_row *oldest, *newest;
  size_t live_bytes, dead_bytes;
  intermediate intermediates[MAX_INTERMEDIATES];
  int n_intermediates;
  bool isolated; /* rows of positions now_base .. + now_rows may differ by now_bound, all others not at all */
  int64_t now_base, now_rows;
  const ls_tensor *now_bound[2]; /* [layers, rows, kv_dim] f32 */
};

/* ---- keeping rows ---- */

static void free_row(seen_row *row) {
  if (!row) return;
  for (int i = 0; i < 2; i++) {
    free(row->data[i]);
    free(row->bound[i]);
  }
  free(row);
}

static void forget_intermediates(ls_ring_history *h) {
  for (int i = 0; i < h->n_intermediates; i++) free(h->intermediates[i].rows.data);
  h->n_intermediates = 0;
}

ls_status ls_ring_history_new(ls_ring_history **history, int64_t layers, int64_t capacity, int64_t kv_dim, ls_error *err) {
  *history = NULL;
  if (layers < 1 || capacity < 1 || kv_dim < 1 || ls_dims_count(3, (int64_t[]){layers, capacity, kv_dim}) < 0) {
    return ls_fail(err, LS_INTERNAL, "ring history: bad shape [%lld, %lld, %lld]", (long long)layers, (long long)capacity,
                   (long long)kv_dim);
  }
  ls_ring_history *h = ls_shortage_unless(calloc(1, sizeof *h));
  seen_row **live = ls_shortage_unless(calloc((size_t)capacity, sizeof *live));
  if (!h || !live) {
    free(h);
    free(live);
    return ls_fail(err, LS_INTERNAL, "ring history: out of memory");
  }
  h->layers = layers, h->capacity = capacity, h->kv_dim = kv_dim, h->live = live, h->last_step = FROM_STATE;
  *history = h;
  return LS_OK;
}

void ls_ring_history_free(ls_ring_history *history) {
  if (!history) return;
  for (int64_t slot = 0; slot < history->capacity; slot++) free_row(history->live[slot]);
  for (seen_row *row = history->oldest, *next; row; row = next) {
    next = row->next;
    free_row(row);
  }
  forget_intermediates(history);
  free(history->live);
  free(history);
}

void ls_ring_history_heads(ls_ring_history *history, int64_t head_dim) { history->head_dim = head_dim; }

size_t ls_ring_history_bytes(const ls_ring_history *history) { return history->live_bytes + history->dead_bytes; }

/* The row leaves its slot: its bounds are no longer needed, its values are, to be recognised. */
static void retire(ls_ring_history *h, seen_row *row) {
  h->live_bytes -= row->bytes;
  for (int i = 0; i < 2; i++) {
    if (row->bound[i]) row->bytes -= (size_t)(h->layers * h->kv_dim) * sizeof(float);
    free(row->bound[i]);
    row->bound[i] = NULL;
  }
  row->next = NULL;
  *(h->newest ? &h->newest->next : &h->oldest) = row;
  h->newest = row;
  h->dead_bytes += row->bytes;
  while (h->dead_bytes > DEAD_BYTES_MAX) {
    seen_row *gone = h->oldest;
    h->oldest = gone->next;
    if (!h->oldest) h->newest = NULL;
    h->dead_bytes -= gone->bytes;
    free_row(gone);
  }
}

/* Copies row r of t [layers, rows, kv_dim] to dense [layers, kv_dim]. */
static void copy_row(void *dst, const ls_tensor *t, int64_t r) {
  size_t size = ls_dtype_size(t->dtype), width = (size_t)t->dim[2];
  for (int64_t layer = 0; layer < t->dim[0]; layer++) {
    ls_line line = ls_line_of(t, (layer * t->dim[1] + r) * t->dim[2]);
    char *to = (char *)dst + (size_t)layer * width * size;
    if (line.stride == 1) {
      memcpy(to, line.data, width * size);
    } else {
      for (size_t i = 0; i < width; i++) memcpy(to + i * size, (const char *)line.data + (int64_t)(i * size) * line.stride, size);
    }
  }
}

static ls_status keep_row(ls_ring_history *h, int64_t step, const char *kind, int64_t position, int64_t r, const ls_tensor *const value[2],
                          const ls_tensor *const bound[2], ls_error *err) {
  size_t elements = (size_t)(h->layers * h->kv_dim);
  seen_row *row = ls_shortage_unless(calloc(1, sizeof *row));
  bool ok = row != NULL;
  for (int i = 0; ok && i < 2; i++) {
    if (!value[i]) continue;
    size_t bytes = elements * ls_dtype_size(value[i]->dtype);
    row->dtype[i] = value[i]->dtype;
    row->data[i] = ls_shortage_unless(malloc(bytes));
    row->bytes += bytes;
    ok = row->data[i] != NULL;
    if (ok && bound[i]) {
      row->bound[i] = ls_shortage_unless(malloc(elements * sizeof(float)));
      row->bytes += elements * sizeof(float);
      ok = row->bound[i] != NULL;
    }
  }
  if (!ok) {
    free_row(row);
    return ls_fail(err, LS_INTERNAL, "ring history: out of memory after %zu bytes", ls_ring_history_bytes(h));
  }
  row->step = step, row->position = position, row->kind = kind;
  for (int i = 0; i < 2; i++) {
    if (value[i]) copy_row(row->data[i], value[i], r);
    if (row->bound[i]) copy_row(row->bound[i], bound[i], r);
  }
  int64_t slot = ls_ring_slot(position, h->capacity);
  if (h->live[slot]) retire(h, h->live[slot]);
  h->live[slot] = row;
  h->live_bytes += row->bytes;
  return LS_OK;
}

/* t as [layers, rows, kv_dim]: [rows, kv_dim] will do where there is one layer. t may be NULL, and stays so. */
static const ls_tensor *with_layers(ls_tensor *view, const ls_ring_history *h, const ls_tensor *t) {
  if (!t || t->ndim != 2 || h->layers != 1) return t;
  *view = *t;
  view->ndim = 3;
  view->dim[0] = 1, view->stride[0] = t->dim[0] * t->stride[0];
  for (int i = 0; i < 2; i++) view->dim[i + 1] = t->dim[i], view->stride[i + 1] = t->stride[i];
  return view;
}

static ls_status check_rows(const ls_ring_history *h, const char *what, const ls_tensor *t, int64_t rows, bool is_bound, ls_error *err) {
  char shape[64];
  if (!t) return ls_fail(err, LS_INTERNAL, "ring history: %s is not there", what);
  bool fits = t->ndim == 3 && t->dim[0] == h->layers && t->dim[1] == rows && t->dim[2] == h->kv_dim && t->place == LS_HOST;
  bool typed = is_bound ? t->dtype == LS_F32 : ls_dtype_is_float(t->dtype);
  if (fits && typed) return LS_OK;
  return ls_fail(err, LS_INTERNAL, "ring history: %s: expected [%lld, %lld, %lld] of %s on the host, found %s of %s", what,
                 (long long)h->layers, (long long)rows, (long long)h->kv_dim, is_bound ? "f32" : "a float type",
                 ls_dims_text(shape, sizeof shape, t->ndim, t->dim), ls_dtype_name(t->dtype));
}

ls_status ls_ring_history_write(ls_ring_history *history, int64_t step, const char *kind, int64_t base, int64_t rows, const ls_tensor *k,
                                const ls_tensor *v, const ls_tensor *bound_k, const ls_tensor *bound_v, ls_error *err) {
  ls_tensor view[4];
  const ls_tensor *const value[2] = {with_layers(&view[0], history, k), with_layers(&view[1], history, v)};
  const ls_tensor *const bound[2] = {with_layers(&view[2], history, bound_k), with_layers(&view[3], history, v ? bound_v : NULL)};
  if (rows < 0 || !ls_positions_valid(base, rows)) {
    return ls_fail(err, LS_INTERNAL, "ring history: step %lld writes %lld rows at %lld", (long long)step, (long long)rows, (long long)base);
  }
  LS_TRY(check_rows(history, "k", value[0], rows, false, err));
  if (value[1]) LS_TRY(check_rows(history, "v", value[1], rows, false, err));
  if (bound[0]) LS_TRY(check_rows(history, "bound of k", bound[0], rows, true, err));
  if (bound[1]) LS_TRY(check_rows(history, "bound of v", bound[1], rows, true, err));
  forget_intermediates(history);
  history->last_step = step;
  int64_t first = rows > history->capacity ? rows - history->capacity : 0; /* earlier rows never lie in the ring */
  for (int64_t r = first; r < rows; r++) LS_TRY(keep_row(history, step, kind, base + r, r, value, bound, err));
  return LS_OK;
}

ls_status ls_ring_history_state(ls_ring_history *history, const ls_tensor *k_ring, const ls_tensor *v_ring, int64_t cursor, ls_error *err) {
  int64_t capacity = history->capacity;
  ls_tensor view[2];
  const ls_tensor *const value[2] = {with_layers(&view[0], history, k_ring), with_layers(&view[1], history, v_ring)};
  LS_TRY(check_rows(history, "k_ring", value[0], capacity, false, err));
  if (value[1]) LS_TRY(check_rows(history, "v_ring", value[1], capacity, false, err));
  for (int64_t slot = 0; slot < capacity; slot++) {
    int64_t first, nonzeros = 0;
    for (int64_t layer = 0; layer < history->layers; layer++) {
      for (int i = 0; i < 2 && value[i]; i++) {
        ls_line line = ls_line_of(value[i], (layer * capacity + slot) * history->kv_dim);
        nonzeros += ls_line_nonzeros(&line, history->kv_dim, &first);
      }
    }
    if (nonzeros == 0) continue;
    int64_t position = slot; /* a drafted slot at or beyond the cursor, where none below it lives there */
    if (cursor > slot) position = slot + (cursor - 1 - slot) / capacity * capacity;
    LS_TRY(keep_row(history, FROM_STATE, "state", position, slot, value, (const ls_tensor *const[]){NULL, NULL}, err));
  }
  return LS_OK;
}

ls_status ls_ring_history_intermediate(ls_ring_history *history, const char *stage, int64_t base, const ls_tensor *rows, ls_error *err) {
  ls_tensor view;
  const ls_tensor *all = with_layers(&view, history, rows);
  if (!all || all->ndim != 3) return ls_fail(err, LS_INTERNAL, "ring history: %s: not [layers, rows, kv_dim]", stage);
  LS_TRY(check_rows(history, stage, all, all->dim[1], false, err));
  if (history->n_intermediates == MAX_INTERMEDIATES)
    return ls_fail(err, LS_INTERNAL, "ring history: more than %d stages", MAX_INTERMEDIATES);
  int64_t skipped = all->dim[1] > history->capacity ? all->dim[1] - history->capacity : 0;
  ls_tensor last = ls_tensor_slice(all, 1, skipped, all->dim[1] - skipped);
  void *data = ls_shortage_unless(malloc(ls_tensor_bytes(&last) + 1));
  if (!data) return ls_fail(err, LS_INTERNAL, "ring history: out of memory for %zu bytes of %s", ls_tensor_bytes(&last), stage);
  intermediate *kept = &history->intermediates[history->n_intermediates];
  *kept = (intermediate){stage, base + skipped, ls_tensor_make(last.dtype, 3, last.dim, data)};
  ls_status status = ls_tensor_copy(&kept->rows, &last, err);
  if (status != LS_OK) {
    free(data);
    return status;
  }
  history->n_intermediates++;
  return LS_OK;
}

/* ---- recognising rows ---- */

static ls_line line_of_row(const ls_ring_history *h, const seen_row *row, int is_v, int64_t layer) {
  size_t at = (size_t)(layer * h->kv_dim) * ls_dtype_size(row->dtype[is_v]);
  return (ls_line){row->dtype[is_v], (const char *)row->data[is_v] + at, 1};
}

typedef struct {
  const double *value; /* [n], the row to be recognised */
  int64_t n;
  double best; /* squared distance of the nearest candidate so far, at most that of the same row */
} target;

/* Whether the candidate is nearer than any before; gives up as soon as it cannot be. */
static bool nearer(target *t, const ls_line *candidate) {
  double sum = 0;
  for (int64_t i = 0; i < t->n; i++) {
    double d = t->value[i] - ls_line_get(candidate, i);
    sum += d * d;
    if (!(sum < t->best)) return false;
  }
  t->best = sum;
  return true;
}

typedef struct {
  const seen_row *row;      /* one of the rows written */
  const intermediate *part; /* or one of the intermediates, */
  int64_t part_row;         /* this row of it */
  bool other_ring;          /* the row's V in the K ring, or its K in the V ring */
  int64_t layer;
} finding;

static void look_at_rows(const ls_ring_history *h, target *t, int is_v, int64_t layer, bool other_ring, finding *found) {
  for (int64_t slot = 0; slot < h->capacity; slot++) {
    if (!h->live[slot] || !h->live[slot]->data[is_v]) continue;
    ls_line line = line_of_row(h, h->live[slot], is_v, layer);
    if (nearer(t, &line)) *found = (finding){.row = h->live[slot], .layer = layer, .other_ring = other_ring};
  }
  for (const seen_row *row = h->oldest; row; row = row->next) {
    if (!row->data[is_v]) continue;
    ls_line line = line_of_row(h, row, is_v, layer);
    if (nearer(t, &line)) *found = (finding){.row = row, .layer = layer, .other_ring = other_ring};
  }
}

/* What the row of one slot and layer is: the nearest of all rows of this ring and layer and of the intermediates, else of the other ring,
 * else of other layers. */
static finding recognise(const ls_ring_history *h, target *t, int is_v, int64_t layer, const seen_row *expected) {
  finding found = {0};
  if (expected) {
    ls_line line = line_of_row(h, expected, is_v, layer);
    if (nearer(t, &line)) found = (finding){.row = expected, .layer = layer};
  }
  look_at_rows(h, t, is_v, layer, false, &found);
  for (int i = 0; i < h->n_intermediates; i++) {
    const intermediate *part = &h->intermediates[i];
    for (int64_t r = 0; r < part->rows.dim[1]; r++) {
      ls_line line = ls_line_of(&part->rows, (layer * part->rows.dim[1] + r) * h->kv_dim);
      if (nearer(t, &line)) found = (finding){.part = part, .part_row = r, .layer = layer};
    }
  }
  if (!found.row && !found.part) look_at_rows(h, t, !is_v, layer, true, &found);
  for (int64_t other = 0; other < h->layers && !found.row && !found.part; other++) {
    if (other != layer) look_at_rows(h, t, is_v, other, false, &found);
  }
  return found;
}

typedef struct {
  char *buf;
  size_t size;
} note_text;

static void say(note_text note, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void say(note_text note, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(note.buf, note.size, format, args);
  va_end(args);
}

static void step_text(char *buf, size_t size, int64_t step) {
  if (step == FROM_STATE) {
    snprintf(buf, size, "start state");
  } else {
    snprintf(buf, size, "step %lld", (long long)step);
  }
}

/* One sentence on what `place` ("slot 3") holds. */
static void describe(note_text note, const ls_ring_history *h, const char *place, int64_t slot, int64_t layer, int is_v,
                     const seen_row *expected, const ls_line *b) {
  char step[48], expected_step[48];
  double *value = ls_shortage_unless(malloc((size_t)h->kv_dim * sizeof *value));
  if (!value) {
    say(note, "%s is wrong", place);
    return;
  }
  double square = 0;
  bool finite = true;
  for (int64_t i = 0; i < h->kv_dim; i++) {
    value[i] = ls_line_get(b, i);
    finite = finite && isfinite(value[i]);
    square += value[i] * value[i];
  }
  target t = {value, h->kv_dim, nextafter(SAME_ROW * SAME_ROW * square, INFINITY)};
  finding found = finite && square > 0 ? recognise(h, &t, is_v, layer, expected) : (finding){0};
  free(value);

  char held[160];
  if (!finite) {
    snprintf(held, sizeof held, "values that are not finite");
  } else if (square == 0) {
    snprintf(held, sizeof held, "zeros");
  } else if (found.part) {
    snprintf(held, sizeof held, "%s of position %lld", found.part->stage, (long long)(found.part->base + found.part_row));
  } else if (found.row) {
    step_text(step, sizeof step, found.row->step);
    snprintf(held, sizeof held, "%sposition %lld (%s)", found.other_ring ? (is_v ? "the K row of " : "the V row of ") : "",
             (long long)found.row->position, step);
  } else {
    snprintf(held, sizeof held, "nothing seen so far");
  }

  if (!expected) {
    say(note, "%s changed, but no operation wrote it; it holds %s", place, held);
    return;
  }
  long long p = (long long)expected->position;
  step_text(expected_step, sizeof expected_step, expected->step);
  if (found.part) {
    int64_t at = found.part->base + found.part_row;
    char instead[64] = "";
    if (at != expected->position) snprintf(instead, sizeof instead, ", expected position %lld", p);
    say(note, "%s holds %s%s: a later stage was skipped", place, held, instead);
  } else if (!found.row || found.other_ring) {
    say(note, "%s holds %s, expected position %lld (%s)%s", place, held, p, expected_step,
        finite && square == 0 ? ": never written, or cleared" : "");
  } else if (found.layer != layer) {
    say(note, "%s holds layer %lld's row of %s, expected position %lld of layer %lld", place, (long long)found.layer, held, p,
        (long long)layer);
  } else if (found.row == expected) {
    say(note, "%s holds position %lld as expected, but outside its bound", place, p);
  } else if (found.row->step == expected->step && expected->step != FROM_STATE) {
    long long shift = (long long)(found.row->position - expected->position);
    char by[32];
    snprintf(by, sizeof by, "%lld", shift < 0 ? -shift : shift);
    say(note, "%s holds position %lld of %s%s, expected position %lld: shifted by %s", place, (long long)found.row->position,
        expected->step == h->last_step ? "this " : "", expected->step == h->last_step ? "step" : expected_step, p,
        shift == 1 || shift == -1 ? "one" : by);
  } else if (found.row->position == expected->position) {
    say(note, "%s holds position %lld as %s wrote it (%s), expected that of %s (%s): stale, not overwritten", place, p, step,
        found.row->kind, expected_step, expected->kind);
  } else if (ls_ring_slot(found.row->position, h->capacity) == slot) {
    say(note, "%s holds %s, expected %lld: stale, not overwritten", place, held, p);
  } else {
    say(note, "%s holds %s, which belongs in slot %lld; expected position %lld", place, held,
        (long long)ls_ring_slot(found.row->position, h->capacity), p);
  }
}

void ls_ring_history_isolated(ls_ring_history *h, int64_t base, int64_t rows, const ls_tensor *bound_k, const ls_tensor *bound_v) {
  h->isolated = true;
  h->now_base = base, h->now_rows = rows;
  h->now_bound[0] = bound_k, h->now_bound[1] = bound_v;
}

void ls_ring_history_cascaded(ls_ring_history *h) { h->isolated = false; }

/* ---- judging ---- */

enum { PIECES = 64 };

typedef struct {
  const ls_ring_history *h;
  ls_rule rule;
  double steps; /* where a row has a bound: at least the one rounding with which it was stored */
  int is_v;
  const ls_tensor *a, *b;
  int64_t only_base, only_rows;
  int64_t pairs_per_piece; /* (layer, slot) pairs in layer-major order */
  unsigned char *wrong;    /* [layers, capacity] */
  ls_tally piece[PIECES];
} work;

/* What a row of a layer may be off by; NULL: nothing. */
static const float *bound_of(const work *w, const seen_row *row, int64_t layer) {
  const ls_ring_history *h = w->h;
  if (!h->isolated) return row->bound[w->is_v] ? row->bound[w->is_v] + layer * h->kv_dim : NULL;
  const int64_t r = row->position - h->now_base;
  const ls_tensor *bound = h->now_bound[w->is_v];
  return bound && r >= 0 && r < h->now_rows ? (const float *)bound->data + (layer * h->now_rows + r) * h->kv_dim : NULL;
}

static void judge_slot(work *w, ls_tally *tally, int64_t pair) {
  const ls_ring_history *h = w->h;
  int64_t slot = pair % h->capacity, layer = pair / h->capacity, at = pair * h->kv_dim, row;
  if (w->only_rows > 0 && !ls_ring_row_of_slot(&row, slot, w->only_base, w->only_rows, h->capacity)) return;

  const seen_row *expected = h->live[slot];
  ls_line b = ls_line_of(w->b, at);
  int64_t failing = tally->failing;
  if (expected) {
    ls_line a = w->a ? ls_line_of(w->a, at) : line_of_row(h, expected, w->is_v, layer), bound = {0};
    const float *allowed = bound_of(w, expected, layer);
    if (allowed) bound = (ls_line){LS_F32, allowed, 1};
    ls_rule rule = w->rule;
    rule.steps = allowed ? w->steps : 0;
    ls_tally_row(tally, &rule, &a, &b, allowed ? &bound : NULL, h->kv_dim, at);
  } else { /* must be zero on both sides; says nothing where it is */
    static const double zero = 0;
    ls_line nothing = {LS_F64, &zero, 0};
    int64_t first;
    ls_line a = w->a ? ls_line_of(w->a, at) : nothing;
    if (ls_line_nonzeros(&b, h->kv_dim, &first) > 0) {
      ls_tally_row(tally, &w->rule, &nothing, &b, NULL, h->kv_dim, at);
    } else if (w->a && ls_line_nonzeros(&a, h->kv_dim, &first) > 0) {
      ls_tally_row(tally, &w->rule, &a, &nothing, NULL, h->kv_dim, at);
    }
  }
  w->wrong[pair] = tally->failing > failing;
}

static void judge_piece(void *arg, int64_t i) {
  work *w = arg;
  int64_t pairs = w->h->layers * w->h->capacity;
  int64_t end = (i + 1) * w->pairs_per_piece < pairs ? (i + 1) * w->pairs_per_piece : pairs;
  for (int64_t pair = i * w->pairs_per_piece; pair < end; pair++) judge_slot(w, &w->piece[i], pair);
}

/* Whether a row is what the history expects, within its bound. */
static bool is_right(const work *w, const seen_row *expected, int64_t layer, const ls_line *row) {
  if (!expected) return false;
  ls_line a = line_of_row(w->h, expected, w->is_v, layer), bound = {0};
  const float *allowed = bound_of(w, expected, layer);
  if (allowed) bound = (ls_line){LS_F32, allowed, 1};
  ls_rule rule = w->rule;
  rule.steps = allowed ? w->steps : 0;
  ls_tally tally = {0};
  ls_tally_row(&tally, &rule, &a, row, allowed ? &bound : NULL, w->h->kv_dim, 0);
  return tally.failing == 0;
}

/* The first wrong slot in words, and how many more there are. Of this step's slots the first written comes first. */
static void explain(ls_result *result, const work *w) {
  const ls_ring_history *h = w->h;
  int64_t first_slot = -1, first_layer = 0, slots = 0, layers_wrong = 0;
  for (int64_t slot = 0; slot < h->capacity; slot++) {
    int64_t wrong = 0, layer_of_first = 0;
    for (int64_t layer = h->layers - 1; layer >= 0; layer--) {
      if (!w->wrong[layer * h->capacity + slot]) continue;
      wrong++;
      layer_of_first = layer;
    }
    if (wrong == 0) continue;
    slots++;
    const seen_row *row = h->live[slot], *first = first_slot >= 0 ? h->live[first_slot] : NULL;
    bool earlier = first_slot < 0 || (row && !first) ||
                   (row && first && (row->step > first->step || (row->step == first->step && row->position < first->position)));
    if (earlier) first_slot = slot, first_layer = layer_of_first, layers_wrong = wrong;
  }
  if (first_slot < 0) return;

  char place[96], sentence[LS_MAX_NOTE - 48];
  if (layers_wrong == h->layers) {
    snprintf(place, sizeof place, "slot %lld", (long long)first_slot);
  } else {
    snprintf(place, sizeof place, "slot %lld layer %lld", (long long)first_slot, (long long)first_layer);
  }
  int64_t at = (first_layer * h->capacity + first_slot) * h->kv_dim, first;
  ls_line b = ls_line_of(w->b, at);
  if (!h->live[first_slot] && ls_line_nonzeros(&b, h->kv_dim, &first) == 0) {
    snprintf(sentence, sizeof sentence, "%s of the trusted side holds values, but no operation wrote it", place);
  } else if (w->a && is_right(w, h->live[first_slot], first_layer, &b)) { /* the fault is on the side that is trusted more */
    ls_line a = ls_line_of(w->a, at);
    snprintf(place + strlen(place), sizeof place - strlen(place), " of the first side");
    describe((note_text){sentence, sizeof sentence}, h, place, first_slot, first_layer, w->is_v, h->live[first_slot], &a);
  } else {
    describe((note_text){sentence, sizeof sentence}, h, place, first_slot, first_layer, w->is_v, h->live[first_slot], &b);
  }
  if (slots > 1) {
    snprintf(result->note, sizeof result->note, "%s; %lld slots are wrong", sentence, (long long)slots);
  } else {
    snprintf(result->note, sizeof result->note, "%s", sentence);
  }
}

/* ---- slot by slot, for a report ---- */

static ls_slot_status status_of(const work *w, int64_t slot, int64_t layer, int64_t *held) {
  const ls_ring_history *h = w->h;
  const seen_row *expected = h->live[slot];
  const ls_line b = ls_line_of(w->b, (layer * h->capacity + slot) * h->kv_dim);
  double *value = ls_shortage_unless(malloc((size_t)h->kv_dim * sizeof *value)), square = 0;
  for (int64_t i = 0; value && i < h->kv_dim; i++) {
    value[i] = ls_line_get(&b, i);
    square += value[i] * value[i];
  }
  target t = {value, h->kv_dim, nextafter(SAME_ROW * SAME_ROW * square, INFINITY)};
  const bool known = value && isfinite(square) && square > 0;
  const finding found = known ? recognise(h, &t, w->is_v, layer, expected) : (finding){0};
  const bool zeros = value && square == 0;
  free(value);
  if (found.row) *held = found.row->position;
  if (found.part) *held = found.part->base + found.part_row;
  if (!expected) return LS_SLOT_CHANGED;
  if (zeros) return LS_SLOT_CLEARED;
  if (found.part) return *held == expected->position ? LS_SLOT_UNDONE : LS_SLOT_MISPLACED;
  if (!found.row) return LS_SLOT_UNKNOWN;
  if (found.row == expected && found.layer == layer && !found.other_ring) return LS_SLOT_OUTSIDE;
  const bool here = found.layer == layer && !found.other_ring && ls_ring_slot(*held, h->capacity) == slot;
  return here && found.row->step != expected->step ? LS_SLOT_STALE : LS_SLOT_MISPLACED;
}

static void add_slot(ls_ring_view *view, const ls_ring_run *one) {
  ls_ring_run *last = view->n > 0 ? &view->run[view->n - 1] : NULL;
  const bool follows = last && last->status == one->status && view->left_out == 0 &&
                       one->expected == (last->expected < 0 ? -1 : last->expected + last->slots) &&
                       one->held == (last->held < 0 ? -1 : last->held + last->slots);
  if (follows) {
    last->slots++;
  } else if (view->n < LS_RING_RUNS) {
    view->run[view->n++] = *one;
  } else {
    view->left_out++;
  }
}

static void view_slots(ls_ring_view *view, const work *w) {
  enum { MOST_RECOGNISED = 512 }; /* each is a search through all rows kept */
  const ls_ring_history *h = w->h;
  int recognised = 0;
  view->capacity = h->capacity;
  for (int64_t slot = 0; slot < h->capacity; slot++) {
    const seen_row *expected = h->live[slot];
    int64_t layer = 0;
    while (layer < h->layers && !w->wrong[layer * h->capacity + slot]) layer++;
    ls_ring_run one = {.slot = slot, .slots = 1, .expected = expected ? expected->position : -1, .held = -1};
    if (layer == h->layers) {
      one.status = !expected ? LS_SLOT_EMPTY : expected->step == h->last_step ? LS_SLOT_WRITTEN : LS_SLOT_KEPT;
    } else {
      one.status = recognised++ < MOST_RECOGNISED ? status_of(w, slot, layer, &one.held) : LS_SLOT_UNKNOWN;
    }
    add_slot(view, &one);
  }
}

static void judge_ring(ls_result *result, ls_ring_view *view, const ls_ring_history *history, const ls_stage *stage, ls_dtype type,
                       bool is_v, const ls_tensor *a, const ls_tensor *b, int64_t only_base, int64_t only_rows) {
  ls_result_init(result);
  if (!b) {
    result->verdict = LS_MISSING;
    snprintf(result->note, sizeof result->note, "the judged side holds no ring");
    return;
  }
  int64_t dim[3] = {history->layers, history->capacity, history->kv_dim};
  ls_tensor three[2];
  a = with_layers(&three[0], history, a);
  b = with_layers(&three[1], history, b);
  const ls_tensor *const side[2] = {a, b};
  for (int i = 0; i < 2; i++) {
    const ls_tensor *t = side[i];
    if (!t) continue;
    if (t->ndim == 3 && t->dim[0] == dim[0] && t->dim[1] == dim[1] && t->dim[2] == dim[2] && t->place == LS_HOST) continue;
    char expected[64], found[64];
    result->verdict = LS_FAIL;
    snprintf(result->note, sizeof result->note, "shapes differ: the ring is %s, found %s", ls_dims_text(expected, sizeof expected, 3, dim),
             ls_dims_text(found, sizeof found, t->ndim, t->dim));
    return;
  }
  for (int64_t slot = 0; slot < history->capacity; slot++) {
    if (!history->live[slot] || history->live[slot]->data[is_v]) continue;
    result->verdict = LS_FAIL;
    snprintf(result->note, sizeof result->note, "the history holds no V rows");
    return;
  }

  int64_t pairs = history->layers * history->capacity;
  work w = {.h = history, .rule = {.type = type}, .steps = stage->steps > 0 ? stage->steps : stage->is_ring, .is_v = is_v, .a = a, .b = b};
  w.only_base = only_base, w.only_rows = only_rows < history->capacity ? only_rows : history->capacity;
  w.wrong = ls_shortage_unless(calloc((size_t)pairs, 1));
  if (!w.wrong) {
    result->verdict = LS_FAIL;
    snprintf(result->note, sizeof result->note, "out of memory for %lld slots", (long long)pairs);
    return;
  }
  int64_t pieces = pairs * history->kv_dim / (1 << 16) + 1;
  if (pieces > PIECES) pieces = PIECES;
  w.pairs_per_piece = (pairs + pieces - 1) / pieces;
  pieces = (pairs + w.pairs_per_piece - 1) / w.pairs_per_piece;
  ls_parallel_for(pieces, judge_piece, &w);

  ls_tally total = {0};
  for (int64_t i = 0; i < pieces; i++) ls_tally_merge(&total, &w.piece[i]);
  ls_tally_result(result, &total);
  if (total.has_worst) {
    ls_unflatten(result->worst_index, total.worst_at, 3, dim);
    const seen_row *expected = history->live[result->worst_index[1]];
    const bool layers = history->layers > 1 || !stage->axes || strncmp(stage->axes, "layer", 5) == 0; /* else the ring is of one layer */
    if (!layers) memmove(result->worst_index, result->worst_index + 1, 2 * sizeof *result->worst_index);
    result->worst_ndim = layers ? 3 : 2;
    ls_place_names names = {.head_dim = history->head_dim};
    ls_place_text_args place = {.axes = layers ? "layer slot channel" : "slot channel",
                                .ndim = result->worst_ndim,
                                .index = result->worst_index,
                                .names = &names,
                                .heads = history->head_dim > 0,
                                .slot_position = expected ? expected->position : -1};
    ls_place_text(result->where, sizeof result->where, &place);
  }
  if (total.failing > 0) {
    explain(result, &w);
  } else if (total.count == 0) {
    snprintf(result->note, sizeof result->note, "no operation has written a slot yet: nothing was compared");
  }
  if (view) view_slots(view, &w);
  free(w.wrong);
}

void ls_compare_ring(ls_result *result, const ls_ring_history *history, const ls_stage *stage, ls_dtype type, bool is_v, const ls_tensor *a,
                     const ls_tensor *b, int64_t only_base, int64_t only_rows) {
  judge_ring(result, NULL, history, stage, type, is_v, a, b, only_base, only_rows);
}

void ls_compare_ring_slots(ls_result *result, ls_ring_view *view, const ls_ring_history *history, const ls_stage *stage, ls_dtype type,
                           bool is_v, const ls_tensor *a, const ls_tensor *b) {
  memset(view, 0, sizeof *view);
  judge_ring(result, view, history, stage, type, is_v, a, b, 0, 0);
}
