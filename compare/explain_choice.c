/* Index lists, selections and candidate masks: what is missing, what is too much, and by what rule. */
#include <inttypes.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_shortage.h"
#include "../layers/ls_attn.h"
#include "explain_internal.h"

enum { LEAST = 3 }; /* entries that differ: fewer could be anything */

__attribute__((format(printf, 3, 4))) static void name_it(ls_pattern *pattern, const char *id, const char *format, ...) {
  va_list args;
  snprintf(pattern->id, sizeof pattern->id, "%s", id);
  va_start(args, format);
  vsnprintf(pattern->text, sizeof pattern->text, format, args);
  va_end(args);
}

static bool plan_of(const ls_explain_args *args, ls_attn_plan *plan) {
  if (args->step == NULL || args->step->config->layer != &ls_layer_attn_v41) return false;
  ls_attn_plan_shapes(&args->step->config->attn, args->step->step, plan);
  return true;
}

/* ---- lists ---- */

/* One side, [m, k]; -1: empty. */
typedef struct {
  int64_t m, k;
  int64_t *a, *b;
  uint8_t *differs;      /* [m] */
  int64_t rows, entries; /* that differ */
} lists;

static bool lists_open(lists *l, const ls_explain_args *args) {
  const ls_tensor *a = args->compare.a, *b = args->compare.b;
  if (a->ndim != 2 || !ls_tensor_same_shape(a, b) || a->place != LS_HOST || b->place != LS_HOST) return false;
  *l = (lists){.m = a->dim[0], .k = a->dim[1]};
  const int64_t n = l->m * l->k;
  if (n == 0 || n > LS_EXPLAIN_MOST) return false;
  l->a = ls_shortage_unless(malloc((size_t)n * 2 * sizeof *l->a));
  l->differs = ls_shortage_unless(calloc((size_t)l->m, 1));
  if (l->a == NULL || l->differs == NULL) return false;
  l->b = l->a + n;
  for (int64_t i = 0; i < n; i++) {
    l->a[i] = (int64_t)ls_tensor_get(a, i), l->b[i] = (int64_t)ls_tensor_get(b, i);
    if (l->a[i] == l->b[i]) continue;
    l->entries++;
    l->rows += !l->differs[i / l->k];
    l->differs[i / l->k] = 1;
  }
  return l->rows > 0;
}

static void lists_close(lists *l) {
  free(l->a);
  free(l->differs);
}

static bool holds(const int64_t *list, int64_t k, int64_t value) {
  for (int64_t j = 0; j < k; j++)
    if (list[j] == value) return true;
  return false;
}

/* Every entry of every row that differs is the right one and a constant more. */
static bool shifted(const lists *l, const ls_explain_args *args, ls_pattern *pattern) {
  int64_t by = 0, seen = 0;
  for (int64_t i = 0; i < l->m * l->k; i++) {
    if (!l->differs[i / l->k]) continue;
    if ((l->a[i] < 0) != (l->b[i] < 0)) return false;
    if (l->a[i] < 0 || l->a[i] == l->b[i]) {
      if (l->a[i] >= 0 && strcmp(args->compare.stage->name, "compress_idx") == 0) return false;
      continue; /* of a list that joins two only one part may be moved */
    }
    if (seen++ == 0) by = l->b[i] - l->a[i];
    if (l->b[i] - l->a[i] != by) return false;
  }
  if (seen < LEAST) return false;
  ls_attn_plan plan;
  char why[120] = "";
  if (plan_of(args, &plan)) {
    const int64_t window = args->step->config->attn.window_size;
    if (by == window - plan.rows_a)
      snprintf(why, sizeof why, ": the offset is the window, %lld, where the first row set has %lld rows", (long long)window,
               (long long)plan.rows_a);
    else if (by == -plan.rows_a)
      snprintf(why, sizeof why, ": the offset of %lld, the rows of the first row set, is lacking", (long long)plan.rows_a);
  }
  name_it(pattern, "indices-shifted", "%lld of %lld rows differ: %lld entries are the right ones %s %lld%s", (long long)l->rows,
          (long long)l->m, (long long)seen, by < 0 ? "-" : "+", llabs((long long)by), why);
  return true;
}

static bool read_as_zero(const lists *l, ls_pattern *pattern) {
  for (int64_t i = 0; i < l->m * l->k; i++)
    if (l->a[i] != l->b[i] && !(l->a[i] == -1 && l->b[i] == 0)) return false;
  if (l->entries < LEAST) return false;
  name_it(pattern, "minus-one-is-row-0", "%lld of %lld rows differ: %lld empty entries hold 0 instead of -1", (long long)l->rows,
          (long long)l->m, (long long)l->entries);
  return true;
}

static bool of_another_row(const lists *l, ls_pattern *pattern) {
  if (l->rows < 2 || l->entries < LEAST) return false;
  bool first = true;
  int64_t by = 0;
  for (int64_t t = 0; t < l->m; t++) {
    if (!l->differs[t]) continue;
    first = first && memcmp(l->b + t * l->k, l->a, (size_t)l->k * sizeof *l->a) == 0;
  }
  if (first) {
    name_it(pattern, "selection-of-query-0", "%lld of %lld rows differ: each holds the entries of query 0", (long long)l->rows,
            (long long)l->m);
    return true;
  }
  for (int64_t shift = -1; shift <= 1; shift += 2) {
    bool all = true;
    for (int64_t t = 0; t < l->m && all; t++) {
      if (!l->differs[t]) continue;
      const int64_t from = t + shift;
      all = from >= 0 && from < l->m && memcmp(l->b + t * l->k, l->a + from * l->k, (size_t)l->k * sizeof *l->a) == 0;
    }
    if (all) by = shift;
  }
  if (by == 0) return false;
  name_it(pattern, "rows-shifted", "%lld of %lld rows differ: query t holds the entries of query t %s 1", (long long)l->rows,
          (long long)l->m, by < 0 ? "-" : "+");
  return true;
}

/* The same entries in another order, or some of them twice. */
static bool of_another_order(const lists *l, ls_pattern *pattern) {
  bool reversed = true, same = true;
  int64_t twice = 0;
  for (int64_t t = 0; t < l->m; t++) {
    if (!l->differs[t]) continue;
    const int64_t *a = l->a + t * l->k, *b = l->b + t * l->k;
    int64_t n = 0;
    for (int64_t j = 0; j < l->k; j++) n += a[j] >= 0;
    for (int64_t j = 0; j < n; j++) reversed = reversed && b[j] == a[n - 1 - j];
    for (int64_t j = 0; j < l->k; j++) {
      same = same && (a[j] < 0 || holds(b, l->k, a[j])) && (b[j] < 0 || holds(a, l->k, b[j]));
      twice += b[j] >= 0 && holds(b, j, b[j]);
    }
  }
  if (twice > 0) {
    name_it(pattern, "duplicates", "%lld of %lld rows differ: %lld entr%s named twice in one row", (long long)l->rows, (long long)l->m,
            (long long)twice, twice == 1 ? "y is" : "ies are");
    return true;
  }
  if (!same || l->entries < LEAST) return false;
  name_it(pattern, reversed ? "order-reversed" : "order", "%lld of %lld rows differ: they hold the right entries in %s", (long long)l->rows,
          (long long)l->m, reversed ? "the reverse order" : "another order");
  return true;
}

/* What only one side holds. */
typedef struct {
  int64_t missing, extra, most_missing, most_extra, least_missing, least_extra;
  int64_t missing_first, missing_last; /* of the missing ones: at the head of the right list, at its end */
  int64_t extra_after;                 /* of the extra ones: one higher than the newest right entry, around the ring */
  int64_t future;                      /* of the extra ones: rows that the query does not see yet */
} difference;

static difference difference_of(const lists *l, const ls_explain_args *args) {
  difference d = {.least_missing = INT64_MAX, .least_extra = INT64_MAX};
  ls_attn_plan plan;
  const bool planned = plan_of(args, &plan);
  const bool window = strcmp(args->compare.stage->name, "window_idx") == 0;
  for (int64_t t = 0; t < l->m; t++) {
    if (!l->differs[t]) continue;
    const int64_t *a = l->a + t * l->k, *b = l->b + t * l->k;
    int64_t missing = 0, extra = 0, n = 0, newest = -1;
    for (int64_t j = 0; j < l->k; j++)
      if (a[j] >= 0) n = j + 1, newest = a[j];
    int64_t first = 0;
    while (first < n && a[first] < 0) first++;
    for (int64_t j = 0; j < l->k; j++) {
      if (a[j] >= 0 && !holds(b, l->k, a[j])) {
        missing++;
        d.missing_first += j == first;
        d.missing_last += j == n - 1;
      }
      if (b[j] < 0 || holds(a, l->k, b[j])) continue;
      extra++;
      if (planned && plan.rows_a > 0) d.extra_after += b[j] == (newest + 1) % plan.rows_a || b[j] == newest + 1;
      if (planned && window) d.future += plan.start_pos == 0 && b[j] > t;
      if (planned && !window && b[j] >= plan.rows_a) d.future += b[j] - plan.rows_a >= ls_attn_visible(&plan, t);
    }
    d.missing += missing, d.extra += extra;
    d.most_missing = missing > d.most_missing ? missing : d.most_missing;
    d.most_extra = extra > d.most_extra ? extra : d.most_extra;
    d.least_missing = missing < d.least_missing ? missing : d.least_missing;
    d.least_extra = extra < d.least_extra ? extra : d.least_extra;
  }
  return d;
}

static void by_difference(const lists *l, const ls_explain_args *args, ls_pattern *pattern) {
  const difference d = difference_of(l, args);
  const long long rows = (long long)l->rows, m = (long long)l->m;
  const bool window = strcmp(args->compare.stage->name, "window_idx") == 0;
  if (d.extra > 0 && d.future == d.extra && d.missing == 0 && d.most_extra == 1) {
    name_it(pattern, window ? "window-long" : "future",
            "%lld of %lld rows differ: each has 1 entry too many, which is in the future of its query", rows, m);
  } else if (window && d.extra > 0 && d.missing == 0 && d.most_extra == 1 && d.extra_after == d.extra) {
    name_it(pattern, "window-long", "%lld of %lld rows differ: each has 1 entry too many, the one after the newest: the window is one long",
            rows, m);
  } else if (window && d.missing > 0 && d.extra == 0 && d.most_missing == 1 && d.missing_first == d.missing) {
    name_it(pattern, "window-short", "%lld of %lld rows differ: each lacks its oldest entry: the window is one short", rows, m);
  } else if (window && d.missing > 0 && d.extra == 0 && d.most_missing == 1 && d.missing_last == d.missing) {
    name_it(pattern, "window-short", "%lld of %lld rows differ: each lacks its newest entry: a query does not see itself", rows, m);
  } else if (d.extra > 0 && d.future == d.extra && d.extra >= LEAST) {
    name_it(pattern, "future", "%lld of %lld rows differ: %lld entries are in the future of their query, %lld lack", rows, m,
            (long long)d.extra, (long long)d.missing);
  } else if (d.missing >= LEAST && d.extra == 0) {
    name_it(pattern, "entries-missing", "%lld of %lld rows differ: %lld entries lack (%lld .. %lld a row), none is too many", rows, m,
            (long long)d.missing, (long long)d.least_missing, (long long)d.most_missing);
  } else if (d.extra >= LEAST && d.missing == 0) {
    name_it(pattern, "entries-extra", "%lld of %lld rows differ: %lld entries are too many (%lld .. %lld a row), none lacks", rows, m,
            (long long)d.extra, (long long)d.least_extra, (long long)d.most_extra);
  }
}

/* Of what a selection lacks: whether all of it scores exactly as the k-th does, so that ties were lost. */
static bool ties_lost(const lists *l, const ls_explain_args *args, ls_pattern *pattern) {
  ls_attn_plan plan;
  const ls_tensor *score = args->score;
  if (score == NULL || !plan_of(args, &plan) || score->ndim != 2 || score->dim[0] != l->m) return false;
  int64_t missing = 0;
  for (int64_t t = 0; t < l->m; t++) {
    if (!l->differs[t]) continue;
    const int64_t *a = l->a + t * l->k, *b = l->b + t * l->k;
    double kth = INFINITY;
    for (int64_t j = 0; j < l->k; j++) {
      const int64_t at = a[j] - plan.rows_a;
      if (at >= 0 && at < score->dim[1]) kth = fmin(kth, ls_tensor_get(score, t * score->dim[1] + at));
    }
    for (int64_t j = 0; j < l->k; j++) {
      const int64_t at = a[j] - plan.rows_a;
      if (b[j] >= 0 && !holds(a, l->k, b[j])) return false;
      if (a[j] < 0 || holds(b, l->k, a[j])) continue;
      if (at < 0 || at >= score->dim[1] || ls_tensor_get(score, t * score->dim[1] + at) != kth) return false;
      missing++;
    }
  }
  if (missing < LEAST) return false;
  name_it(pattern, "ties-lost",
          "%lld of %lld rows differ: %lld entries lack, and each of them scores exactly as the k-th does: ties are dropped",
          (long long)l->rows, (long long)l->m, (long long)missing);
  return true;
}

void ls_explain_indices(const ls_explain_args *args, ls_pattern *pattern) {
  lists l = {.a = NULL};
  if (!lists_open(&l, args)) {
    lists_close(&l);
    return;
  }
  const bool window = strcmp(args->compare.stage->name, "window_idx") == 0; /* one entry long is also the window of the next query */
  if (window) by_difference(&l, args, pattern);
  const bool named = pattern->id[0] != '\0' || shifted(&l, args, pattern) || read_as_zero(&l, pattern) || of_another_row(&l, pattern) ||
                     of_another_order(&l, pattern) || ties_lost(&l, args, pattern);
  if (!named && !window) by_difference(&l, args, pattern);
  lists_close(&l);
}

/* ---- masks ---- */

void ls_explain_mask(const ls_explain_args *args, ls_pattern *pattern) {
  ls_attn_plan plan;
  const ls_tensor *a = args->compare.a, *b = args->compare.b;
  if (!plan_of(args, &plan) || a->ndim != 2 || !ls_tensor_same_shape(a, b) || a->place != LS_HOST || b->place != LS_HOST) return;
  const int64_t m = a->dim[0], n = a->dim[1], block = args->step->config->attn.candidate_block_size;
  if (m * n == 0 || m * n > LS_EXPLAIN_MOST || block <= 0) return;
  int64_t rows = 0, future_rows = 0, newest_rows = 0, missing = 0, extra = 0, rows_of_last = 0, more = 0, less = 0;
  for (int64_t t = 0; t < m; t++) {
    const int64_t visible = ls_attn_visible(&plan, t), newest = visible > 0 ? (visible - 1) / block : -1;
    bool differs = false, future = false, newest_lost = false, of_last = true;
    int64_t row_missing = 0, row_extra = 0;
    for (int64_t i = 0; i < n; i++) {
      const bool in_a = ls_tensor_get(a, t * n + i) != 0, in_b = ls_tensor_get(b, t * n + i) != 0;
      of_last = of_last && in_b == (ls_tensor_get(b, (m - 1) * n + i) != 0);
      if (in_a == in_b) continue;
      differs = true;
      future = future || (in_b && i / block > newest);
      newest_lost = newest_lost || (in_a && i / block == newest);
      if (i % block == 0) row_missing += in_a, row_extra += in_b;
    }
    if (!differs) continue;
    rows++, missing += row_missing, extra += row_extra;
    future_rows += future, newest_rows += newest_lost, rows_of_last += of_last && t < m - 1;
    more += row_extra > row_missing, less += row_extra < row_missing;
  }
  const long long r = (long long)rows, of = (long long)m;
  if (rows == 0) return;
  if (rows_of_last == rows && rows >= 2 && future_rows > 0) {
    name_it(pattern, "not-causal",
            "%lld of %lld queries differ: each has the candidates of the last query, blocks of the future among them", r, of);
  } else if (future_rows == rows) {
    name_it(pattern, "not-causal", "%lld of %lld queries differ: each keeps blocks that are in its future", r, of);
  } else if (newest_rows == rows) {
    name_it(pattern, "newest-block-missing", "%lld of %lld queries differ: each lacks the block of its newest row, which must be kept", r,
            of);
  } else if (less == rows && extra == 0) {
    name_it(pattern, "blocks-missing", "%lld of %lld queries differ: %lld blocks lack, none is too many", r, of, (long long)missing);
  } else if (more == rows && missing == 0) {
    name_it(pattern, "blocks-extra", "%lld of %lld queries differ: %lld blocks are too many, none lacks", r, of, (long long)extra);
  }
}
