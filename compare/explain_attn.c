/* Index scores and attention of attn_v41 over other rows, or with another sink: a few heads of failing rows are computed again. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_numeric.h"
#include "../core/ls_shortage.h"
#include "../layers/bound_rows.h"
#include "explain_internal.h"

/* ---- index scores ---- */

/* Leading entries of a row that are not -inf. */
static int64_t seen_of(const float *row, int64_t n) {
  int64_t seen = n;
  while (seen > 0 && row[seen - 1] == -INFINITY) seen--;
  return seen;
}

/* -inf ends elsewhere: how many rows a query sees. */
static void visible(const ls_subject *s, ls_best *best) {
  int64_t by = 0, explained = 0;
  bool constant = true;
  for (int64_t row = 0; row < s->rows; row++) {
    const int64_t a = seen_of(s->a + row * s->width, s->width), b = seen_of(s->b + row * s->width, s->width);
    if (a == b) continue;
    constant = constant && (by == 0 || by == b - a);
    by = b - a;
    explained += llabs((long long)by);
  }
  if (by == 0 || !constant || explained < s->failing - s->failing / 100) return;
  const ls_fit fit = ls_fit_counted();
  if (by < 0) {
    ls_best_offer(best, s, &fit, "visible-rows",
                  "queries see %lld row%s less than they should: the newest is masked, p / ratio in place of (p + 1) / ratio",
                  (long long)-by, ls_plural(-by));
  } else {
    ls_best_offer(best, s, &fit, "visible-rows", "queries see %lld row%s more than they should: one that is in the future", (long long)by,
                  ls_plural(by));
  }
}

typedef struct {
  ls_tensor q, w; /* index_q [m, heads * width], index_w [m, heads] */
  const ls_tensor *keys;
  int64_t heads, width, shift;
  bool no_relu;
} score_try;

static double score_of(const score_try *t, int64_t row, int64_t position) {
  double sum = 0;
  const int64_t key = position + t->shift;
  for (int64_t h = 0; h < t->heads; h++) {
    double dot = 0;
    for (int64_t i = 0; i < t->width && key >= 0 && key < t->keys->dim[0]; i++)
      dot += ls_tensor_get(&t->q, (row * t->heads + h) * t->width + i) * ls_tensor_get(t->keys, key * t->width + i);
    dot = ls_round_to(LS_BF16, dot);
    if (dot < 0 && !t->no_relu) dot = 0;
    sum += ls_round_to(LS_BF16, dot * ls_tensor_get(&t->w, row * t->heads + h));
  }
  return sum;
}

enum { SCORES = 256 };

static bool scores_fit(ls_fit *fit, const ls_subject *s, const score_try *t, double tries) {
  *fit = (ls_fit){.tries = tries};
  const int64_t each = s->failing / SCORES + 1;
  int64_t seen = 0;
  for (int64_t i = 0; i < s->rows * s->width; i++) {
    const int64_t row = i / s->width;
    if (!s->row_fails[row] || s->at[i] == LS_AT_UNDEFINED || !isfinite(s->a[i]) || seen++ % each != 0) continue;
    ls_fit_add(fit, s, i, score_of(t, row, i % s->width), (double)s->rest[i]);
    if (fit->checked - fit->agree > SCORES / 50) return false;
  }
  return ls_fit_holds(fit);
}

void ls_explain_score(const ls_subject *s, ls_best *best) {
  const ls_attn_config *a = ls_subject_attn(s);
  if (a == NULL || s->args->compare.stage == NULL || strcmp(s->args->compare.stage->name, "index_score") != 0) return;
  visible(s, best);
  score_try t = {.heads = a->index_n_heads, .width = a->index_head_dim};
  const ls_trace *after = s->args->step->after;
  const ls_tensor *source = ls_trace_tensor(after, "index_source");
  if (ls_best_is_certain(best) || source == NULL || !ls_subject_stage(&t.q, s, "index_q", s->rows) ||
      !ls_subject_stage(&t.w, s, "index_w", s->rows) || t.q.dim[1] != t.heads * t.width || t.w.dim[1] != t.heads)
    return;
  const int64_t right = (int64_t)ls_tensor_get(source, 0), own = s->args->step->step->layer;
  ls_fit fit;
  char name[LS_MAX_SPEC_NAME];
  snprintf(name, sizeof name, "layers/%lld/index_cache", (long long)right);
  t.keys = ls_trace_tensor(after, name);
  if (s->args->inherits && t.keys != NULL && t.keys->ndim == 2 && t.keys->dim[1] == t.width && scores_fit(&fit, s, &t, 1))
    return; /* right by what it read */
  for (int64_t l = 0; l < a->n_layers; l++) {
    snprintf(name, sizeof name, "layers/%lld/index_cache", (long long)l);
    t.keys = ls_trace_tensor(after, name);
    if (t.keys == NULL || t.keys->ndim != 2 || t.keys->dim[1] != t.width) continue;
    if (l != right && scores_fit(&fit, s, &t, (double)a->n_layers)) {
      ls_best_offer(best, s, &fit, "index-keys", "scores match the keys of layer %lld, not those of layer %lld that are published%s",
                    (long long)l, (long long)right,
                    l == own       ? ": the path scores as index_keys = own does"
                    : own == right ? ": the path scores as index_keys = published does"
                                   : "");
    }
    if (l != right) continue;
    for (int shift = -1; shift <= 1; shift += 2) {
      t.shift = shift;
      if (scores_fit(&fit, s, &t, 4))
        ls_best_offer(best, s, &fit, "keys-shifted", "position j has the score of key j %s 1", shift < 0 ? "-" : "+");
    }
    t.shift = 0;
    t.no_relu = true;
    if (scores_fit(&fit, s, &t, 4)) ls_best_offer(best, s, &fit, "no-relu", "negative dot products count: there is no relu");
    t.no_relu = false;
  }
}

/* ---- attention ---- */

typedef enum {
  LIST_OWN,
  LIST_EMPTY_IS_ROW_0, /* -1 read as row 0 */
  LIST_SELECTION_OF_0, /* the compressed entries of query 0 */
  LIST_OF_0,           /* all entries of query 0 */
  LIST_UP,             /* every index one higher */
  LIST_DOWN,           /* one lower */
  LIST_FIRST_SET,      /* only rows of the first row set */
  LIST_SECOND_SET,
  LIST_WITHOUT_LAST_WINDOW, /* the newest row of the window left out */
  LIST_WITHOUT_FIRST_WINDOW
} list_kind;

typedef struct {
  list_kind list;
  double sinks;      /* how often the sink counts in the denominator */
  double sink_scale; /* what the sink is multiplied by */
  double scale;      /* of the scores */
} attention_how;

typedef struct {
  ls_tensor q;
  const ls_tensor *idx, *sink;
  ls_bound_rows a, b;
  int64_t heads, width, entries, wk;
  attention_how how;
  float *row;    /* [width] */
  double *score; /* [entries] */
  double *y;     /* [width] */
} attention_try;

/* What entry j of query t names; -1: nothing. */
static int64_t entry_of(const attention_try *t, int64_t query, int64_t j) {
  const bool of_0 = t->how.list == LIST_OF_0 || (t->how.list == LIST_SELECTION_OF_0 && j >= t->wk);
  const int64_t i = (int64_t)ls_tensor_get(t->idx, (of_0 ? 0 : query) * t->entries + j);
  if (i < 0) return t->how.list == LIST_EMPTY_IS_ROW_0 ? 0 : -1;
  const int64_t moved = i + (t->how.list == LIST_UP) - (t->how.list == LIST_DOWN);
  if (moved < 0 || moved >= t->a.n + t->b.n) return -1;
  if ((t->how.list == LIST_FIRST_SET && i >= t->a.n) || (t->how.list == LIST_SECOND_SET && i < t->a.n)) return -1;
  if (t->how.list == LIST_WITHOUT_LAST_WINDOW && j < t->wk) {
    bool is_last = true;
    for (int64_t k = j + 1; k < t->wk; k++) is_last = is_last && ls_tensor_get(t->idx, query * t->entries + k) < 0;
    if (is_last) return -1;
  }
  if (t->how.list == LIST_WITHOUT_FIRST_WINDOW && j < t->wk) {
    bool is_first = true;
    for (int64_t k = 0; k < j; k++) is_first = is_first && ls_tensor_get(t->idx, query * t->entries + k) < 0;
    if (is_first) return -1;
  }
  return moved;
}

/* y of one head of one query. */
static void attend(attention_try *t, int64_t query, int64_t head) {
  double highest = -INFINITY, sum = 0;
  for (int64_t j = 0; j < t->entries; j++) {
    const int64_t i = entry_of(t, query, j);
    t->score[j] = -INFINITY;
    if (i < 0) continue;
    ls_bound_rows_get(i < t->a.n ? &t->a : &t->b, i < t->a.n ? i : i - t->a.n, t->row, NULL);
    double dot = 0;
    for (int64_t c = 0; c < t->width; c++) dot += ls_tensor_get(&t->q, (query * t->heads + head) * t->width + c) * (double)t->row[c];
    t->score[j] = dot * t->how.scale;
    highest = fmax(highest, t->score[j]);
  }
  for (int64_t c = 0; c < t->width; c++) t->y[c] = 0;
  if (highest == -INFINITY) return;
  for (int64_t j = 0; j < t->entries; j++) sum += exp(t->score[j] - highest);
  sum += t->how.sinks * exp(ls_tensor_get(t->sink, head) * t->how.sink_scale - highest);
  for (int64_t j = 0; j < t->entries; j++) {
    if (t->score[j] == -INFINITY) continue;
    const int64_t i = entry_of(t, query, j);
    ls_bound_rows_get(i < t->a.n ? &t->a : &t->b, i < t->a.n ? i : i - t->a.n, t->row, NULL);
    const double p = exp(t->score[j] - highest) / sum;
    for (int64_t c = 0; c < t->width; c++) t->y[c] += p * (double)t->row[c];
  }
}

enum { CELLS = 12 };

/* An even choice of failing heads, and as many that pass: these must not contradict. */
static bool attention_fits(ls_fit *fit, const ls_subject *s, attention_try *t, double tries) {
  int64_t fails = 0;
  for (int64_t i = 0; i < s->rows * s->cells; i++) fails += s->cell_fails[i];
  const int64_t each[] = {(s->rows * s->cells - fails) / CELLS + 1, fails / CELLS + 1};
  int64_t seen[] = {0, 0};
  *fit = (ls_fit){.tries = tries};
  for (int64_t i = 0; i < s->rows * s->cells; i++) {
    const int kind = s->cell_fails[i];
    if (seen[kind]++ % each[kind] != 0) continue;
    attend(t, i / s->cells, i % s->cells);
    for (int64_t c = 0; c < t->width; c++) ls_fit_add(fit, s, i * s->cell + c, t->y[c], (double)s->rest[i * s->cell + c]);
    if (fit->failing - fit->explained > CELLS * t->width / 100) return false;
  }
  return ls_fit_holds(fit);
}

static void try_all(const ls_subject *s, attention_try *t, ls_best *best) {
  static const struct {
    list_kind kind;
    const char *id, *text;
  } lists[] = {{LIST_EMPTY_IS_ROW_0, "minus-one-is-row-0", "an entry of -1 was read as row 0"},
               {LIST_SELECTION_OF_0, "selection-of-query-0", "every query attends to the selection of query 0"},
               {LIST_OF_0, "selection-of-query-0", "every query attends to the whole list of query 0"},
               {LIST_UP, "indices-shifted", "each index names the row after its own"},
               {LIST_DOWN, "indices-shifted", "each index names the row before its own"},
               {LIST_FIRST_SET, "rows-left-out", "the compressed rows are left out"},
               {LIST_SECOND_SET, "rows-left-out", "the rows of the window are left out"},
               {LIST_WITHOUT_LAST_WINDOW, "rows-left-out", "the newest row of the window is left out"},
               {LIST_WITHOUT_FIRST_WINDOW, "rows-left-out", "the oldest row of the window is left out"}};
  const double scale = 1 / sqrt((double)t->width);
  const attention_how right = {LIST_OWN, 1, 1, scale};
  ls_fit fit;
  t->how = right;
  if (s->args->inherits && attention_fits(&fit, s, t, 1)) return; /* right by what it read */
  for (size_t i = 0; i < sizeof lists / sizeof *lists && !ls_best_is_certain(best); i++) {
    t->how = right;
    t->how.list = lists[i].kind;
    if (attention_fits(&fit, s, t, 32)) ls_best_offer(best, s, &fit, lists[i].id, "values match an attention where %s", lists[i].text);
  }
  static const struct {
    double sinks, sink_scale; /* sink_scale 0: that of the scores */
    const char *id, *text;
  } sinks[] = {{0, 1, "sink-missing", "without the sink"},
               {1, 0, "sink-scaled", "with the sink multiplied by the scale of the scores"},
               {1, -1, "sink-scaled", "with the sink of the opposite sign"},
               {1, 1.4426950408889634, "sink-scaled", "with the sink multiplied by log2 e"},
               {2, 1, "sink-counted-twice", "with the sink counted twice, as by each of two splits"},
               {3, 1, "sink-counted-twice", "with the sink counted three times, as by each of three splits"},
               {4, 1, "sink-counted-twice", "with the sink counted four times, as by each of four splits"}};
  for (size_t i = 0; i < sizeof sinks / sizeof *sinks && !ls_best_is_certain(best); i++) {
    t->how = right;
    t->how.sinks = sinks[i].sinks;
    t->how.sink_scale = sinks[i].sink_scale == 0 ? scale : sinks[i].sink_scale;
    if (attention_fits(&fit, s, t, 32)) ls_best_offer(best, s, &fit, sinks[i].id, "values match an attention %s", sinks[i].text);
  }
  const double rope = (double)ls_subject_attn(s)->rope_head_dim, still = (double)t->width - rope;
  const double scales[] = {1, scale * scale, 1 / sqrt(rope), still > 0 ? 1 / sqrt(still) : 0};
  for (size_t i = 0; i < sizeof scales / sizeof *scales && !ls_best_is_certain(best); i++) {
    t->how = right;
    t->how.scale = scales[i];
    if (scales[i] != 0 && attention_fits(&fit, s, t, 32))
      ls_best_offer(best, s, &fit, "score-scale", "values match an attention whose scores are multiplied by %.6g instead of %.6g",
                    scales[i], scale);
  }
}

void ls_explain_attention(const ls_subject *s, ls_best *best) {
  const ls_attn_config *a = ls_subject_attn(s);
  if (a == NULL || s->args->compare.stage == NULL || strcmp(s->args->compare.stage->name, "sparse_o") != 0) return;
  attention_try t = {.heads = a->n_heads, .width = a->head_dim};
  ls_attn_plan plan;
  ls_attn_plan_shapes(a, s->args->step->step, &plan);
  t.wk = plan.wk;
  t.idx = ls_trace_tensor(s->args->step->values, "idx");
  t.sink = ls_subject_weight(s, "attn_sink");
  if (t.idx == NULL || t.idx->ndim != 2 || t.idx->dim[0] != s->rows || t.sink == NULL || ls_tensor_count(t.sink) != a->n_heads) return;
  if (!ls_subject_stage(&t.q, s, "q", s->rows) || t.q.dim[1] != s->width || s->cell != a->head_dim) return;
  t.entries = t.idx->dim[1];
  ls_bound_args args = *s->args->step;
  args.carries = NULL, args.state_bounds = NULL; /* values alone */
  ls_error err = {LS_OK, ""};
  float *row = ls_shortage_unless(malloc((size_t)t.width * sizeof *row + 1));
  double *numbers = ls_shortage_unless(malloc((size_t)(t.entries + t.width) * sizeof *numbers + 1));
  if (row != NULL && numbers != NULL && ls_bound_rows_a(&t.a, &args, NULL, &err) == LS_OK &&
      ls_bound_rows_b(&t.b, &args, NULL, &err) == LS_OK) {
    t.row = row, t.score = numbers, t.y = numbers + t.entries;
    try_all(s, &t, best);
  }
  ls_bound_rows_free(&t.a);
  ls_bound_rows_free(&t.b);
  free(row);
  free(numbers);
}
