/* A right selection to plant faults in: scores, and the best k by them, made by sorting. */
#ifndef LS_TESTS_SELECTION_HELPERS_H
#define LS_TESTS_SELECTION_HELPERS_H

#include "compare_helpers.h"

typedef struct {
  double score;
  int64_t item;
} ranked_item;

/* NaN first, then the higher score, then the lower position. */
static inline int better_first(const void *left, const void *right) {
  const ranked_item *a = left, *b = right;
  if (isnan(a->score) != isnan(b->score)) return isnan(a->score) ? -1 : 1;
  if (a->score != b->score && !isnan(a->score)) return a->score > b->score ? -1 : 1;
  return (a->item > b->item) - (a->item < b->item);
}

static inline int64_t visible_to(const ls_select_rule *r, int64_t t) {
  int64_t visible = (r->start_pos + t + 1) / r->ratio;
  return visible < r->n ? visible : r->n;
}

/* idx by definition: every eligible position sorted, the first k of them, ascending. */
static inline void choose(const ls_tensor *idx, const ls_tensor *score, const ls_select_rule *r) {
  ranked_item *item = malloc((size_t)(r->n + 1) * sizeof *item);
  bool *in = malloc((size_t)r->n + 1);
  for (int64_t t = 0; t < r->m; t++) {
    int64_t eligible = 0, e = 0;
    memset(in, 0, (size_t)r->n + 1);
    for (int64_t i = 0; i < visible_to(r, t); i++) {
      double s = ls_tensor_get(score, t * r->n + i);
      if (s == -INFINITY || (r->mask && ls_tensor_get(r->mask, t * r->n + i) == 0)) continue;
      item[eligible++] = (ranked_item){s, i};
    }
    qsort(item, (size_t)eligible, sizeof *item, better_first);
    for (int64_t i = 0; i < eligible && i < r->k; i++) in[item[i].item] = true;
    for (int64_t i = 0; i < r->n; i++) {
      if (in[i]) ls_tensor_set(idx, t * r->k + e++, (double)(r->offset + i));
    }
    while (e < r->k) ls_tensor_set(idx, t * r->k + e++, -1);
  }
  free(item);
  free(in);
}

/* mask by definition. */
static inline void keep_blocks(const ls_tensor *mask, const ls_tensor *score, const ls_select_rule *r, const ls_candidate_rule *c) {
  ranked_item *item = malloc((size_t)(r->n + 1) * sizeof *item);
  for (int64_t t = 0; t < r->m; t++) {
    int64_t visible = visible_to(r, t), newest = (visible - 1) / c->block, n = 0;
    for (int64_t i = 0; i < r->n; i++) ls_tensor_set(mask, t * r->n + i, 0);
    for (int64_t b = 0; visible > 0 && b < newest; b++) {
      ranked_item best = {ls_tensor_get(score, t * r->n + b * c->block), b};
      for (int64_t i = b * c->block; i < (b + 1) * c->block; i++) {
        double s = ls_tensor_get(score, t * r->n + i);
        if (isnan(s) || s > best.score) best.score = s;
      }
      if (best.score != -INFINITY) item[n++] = best;
    }
    qsort(item, (size_t)n, sizeof *item, better_first);
    for (int64_t k = -1; visible > 0 && k < n && k < c->topk_blocks - 1; k++) {
      int64_t b = k < 0 ? newest : item[k].item;
      for (int64_t i = b * c->block; i < (b + 1) * c->block && i < r->n; i++) ls_tensor_set(mask, t * r->n + i, 1);
    }
  }
  free(item);
}

#endif
