/* What a person looks at in a selection: the scores around the last place of one query, on both sides, and who chose what. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_shortage.h"
#include "compare_choice.h"

typedef struct {
  uint64_t rank;
  int64_t position;
} ranked;

static int by_rank(const void *left, const void *right) {
  const ranked *a = left, *b = right;
  if (a->rank != b->rank) return a->rank > b->rank ? -1 : 1;
  return (a->position > b->position) - (a->position < b->position);
}

static double bound_of(const ls_selection *s, int64_t at) {
  if (!s->bound) return 0;
  const ls_line bound = ls_line_of(s->bound, at);
  return ls_line_get(&bound, 0);
}

static void add(ls_choice_view *view, const ls_selection *const side[2], const ls_select_rule *rule, const ranked *item, int64_t place,
                const uint8_t *chosen) {
  const int64_t at = view->row * rule->n + item->position;
  ls_choice_item *to = &view->item[view->n++];
  *to = (ls_choice_item){.position = item->position, .place = place};
  for (int s = 0; s < 2; s++) {
    const ls_line score = ls_line_of(side[s]->score, at);
    to->score[s] = ls_line_get(&score, 0);
    to->in[s] = (chosen[item->position] >> s) & 1;
    to->bound = fmax(to->bound, bound_of(side[s], at));
  }
}

void ls_selection_view(ls_choice_view *view, const ls_selection *a, const ls_selection *b, const ls_select_rule *rule, int64_t row) {
  const ls_selection *const side[2] = {a, b};
  memset(view, 0, sizeof *view);
  if (row < 0 || row >= rule->m || rule->n == 0 || rule->k == 0 || !a->score || !b->score || !a->idx || !b->idx) return;
  ranked *order = ls_shortage_unless(malloc((size_t)rule->n * sizeof *order));
  uint8_t *chosen = ls_shortage_unless(calloc((size_t)rule->n, 1));
  if (!order || !chosen) goto out; /* the report is then without this view */

  view->row = row, view->k = rule->k;
  const int64_t visible = (rule->start_pos + row + 1) / rule->ratio;
  const ls_line score = ls_line_of(a->score, row * rule->n);
  ls_line mask = {0};
  if (rule->mask) mask = ls_line_of(rule->mask, row * rule->n);
  for (int64_t i = 0; i < rule->n && i < visible; i++) {
    if (rule->mask && ls_line_int(&mask, i) == 0) continue;
    const uint64_t rank = ls_rank_of(ls_line_get(&score, i));
    if (rank != 0) order[view->eligible++] = (ranked){rank, i};
  }
  qsort(order, (size_t)view->eligible, sizeof *order, by_rank);
  for (int s = 0; s < 2; s++) {
    const ls_line idx = ls_line_of(side[s]->idx, row * rule->k);
    for (int64_t e = 0; e < rule->k; e++) {
      const int64_t position = ls_line_int(&idx, e) - rule->offset;
      if (position >= 0 && position < rule->n) chosen[position] |= (uint8_t)(1 << s);
    }
  }

  const int64_t places = rule->k < view->eligible ? rule->k : view->eligible;
  for (int64_t i = 0; i < view->eligible && places > 0; i++) view->equals += order[i].rank == order[places - 1].rank;
  int alone = 0;
  for (int64_t i = 0; i < view->eligible; i++) {
    const bool near = i >= places - LS_CHOICE_AROUND && i < places + LS_CHOICE_AROUND;
    const bool one_side = chosen[order[i].position] == 1 || chosen[order[i].position] == 2;
    if (near || (one_side && alone++ < LS_CHOICE_ALONE)) add(view, side, rule, &order[i], i, chosen);
  }
out:
  free(order);
  free(chosen);
}
