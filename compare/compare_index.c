/* Selections: what a query chose among compressed positions, judged by scores, never by equality with another path's choice alone. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_shortage.h"
#include "compare_choice.h"

/* What is wrong with an entry. */
typedef enum { RIGHT, OUT_OF_RANGE, FUTURE, TWICE, EMPTY_BEFORE, NOT_ASCENDING, OUTSIDE, MINUS_INF, MISSING, INFERIOR, LOST_TIE } cause;

typedef struct {
  const ls_selection *side[2]; /* [1] NULL: one side is judged by its own scores */
  const ls_select_rule *rule;
  int64_t offset[2]; /* that each side's entries are read with */
} job;

/* One query, and memory for it. */
typedef struct {
  const job *j;
  int64_t t, visible;
  ls_line idx[2], mask, bound[2];
  uint64_t *rank[2]; /* [n] */
  uint8_t *mark;     /* [n] */
  uint8_t *cause[2]; /* [k] */
  ls_choice_found found[2];
  int64_t faults[2];
} query;

static int64_t visible_rows(const ls_select_rule *r, int64_t t) {
  int64_t rows = (r->start_pos + t + 1) / r->ratio;
  return rows < r->n ? rows : r->n;
}

static void query_free(query *q) {
  free(q->mark);
  for (int s = 0; s < 2; s++) {
    free(q->rank[s]);
    free(q->cause[s]);
  }
}

static bool query_make(query *q, const job *j) {
  const ls_select_rule *r = j->rule;
  *q = (query){.j = j};
  q->mark = ls_shortage_unless(malloc((size_t)r->n + 1));
  bool ok = q->mark != NULL;
  for (int s = 0; s < 2 && ok && j->side[s]; s++) {
    q->rank[s] = ls_shortage_unless(malloc((size_t)r->n * sizeof *q->rank[s] + 1));
    q->cause[s] = ls_shortage_unless(malloc((size_t)r->k + 1));
    ok = q->rank[s] && q->cause[s];
  }
  if (!ok) query_free(q);
  return ok;
}

/* ---- form ---- */

static bool is_masked_out(const query *q, int64_t position) { return q->j->rule->mask && ls_line_int(&q->mask, position) == 0; }

static void start_query(query *q, int64_t t) {
  const ls_select_rule *r = q->j->rule;
  q->t = t;
  q->visible = visible_rows(r, t);
  if (r->mask) q->mask = ls_line_of(r->mask, t * r->n);
  memset(q->mark, 0, (size_t)r->n);
  for (int s = 0; s < 2 && q->j->side[s]; s++) {
    const ls_selection *side = q->j->side[s];
    const ls_line score = ls_line_of(side->score, t * r->n);
    q->idx[s] = ls_line_of(side->idx, t * r->k);
    if (side->bound) q->bound[s] = ls_line_of(side->bound, t * r->n);
    for (int64_t i = 0; i < r->n; i++) {
      q->rank[s][i] = i < q->visible && !is_masked_out(q, i) ? ls_rank_of(ls_line_get(&score, i)) : 0;
    }
  }
}

/* Reads a side's entries: marks what is chosen, and what is wrong with an entry by itself. */
static void read_entries(query *q, int s) {
  const ls_select_rule *r = q->j->rule;
  const uint8_t in = (uint8_t)(LS_IN_A << s);
  int64_t previous = -1, end = r->k; /* entries from `end` are -1 */
  while (end > 0 && ls_line_int(&q->idx[s], end - 1) == -1) end--;
  q->faults[s] = 0;
  for (int64_t e = 0; e < r->k; e++) {
    const int64_t entry = ls_line_int(&q->idx[s], e), position = entry - q->j->offset[s];
    cause why = RIGHT;
    if (entry == -1) {
      if (e < end) why = EMPTY_BEFORE;
    } else if (entry < 0 || position < 0 || position >= r->n) {
      why = OUT_OF_RANGE;
    } else if (position >= q->visible) {
      why = FUTURE;
    } else if (q->mark[position] & in) {
      why = TWICE;
    } else if (is_masked_out(q, position)) {
      why = OUTSIDE;
    } else if (q->rank[s][position] == 0) {
      why = MINUS_INF;
    } else {
      q->mark[position] |= in;
      if (position < previous) why = NOT_ASCENDING;
    }
    if (entry != -1 && why != OUT_OF_RANGE) previous = position;
    q->cause[s][e] = (uint8_t)why;
    q->faults[s] += why != RIGHT;
  }
}

/* Places left empty that no faulty entry took: so many -1 entries are wrong. */
static void mark_missing(query *q, int s) {
  int64_t missing = q->found[s].missing;
  for (int64_t e = 0; e < q->j->rule->k; e++) {
    const cause why = q->cause[s][e];
    if (why != RIGHT && why != NOT_ASCENDING) missing--;
  }
  for (int64_t e = 0; e < q->j->rule->k && missing > 0; e++) {
    if (q->cause[s][e] != RIGHT || ls_line_int(&q->idx[s], e) != -1) continue;
    q->cause[s][e] = MISSING;
    q->faults[s]++;
    missing--;
  }
}

/* The form of a side's entries and how many there are. by_score: also whether they are the best by its own scores. */
static void judge_side(query *q, int s, bool by_score) {
  const ls_select_rule *r = q->j->rule;
  read_entries(q, s);
  const uint8_t in = (uint8_t)(LS_IN_A << s);
  ls_choice choice = {.n = r->n, .k = r->k, .rank = q->rank[s], .mark = q->mark, .in = in, .lower_wins = r->lower_wins};
  ls_choice_judge(&q->found[s], &choice);
  mark_missing(q, s);
  const ls_choice_found *f = &q->found[s];
  if (f->wrong == 0) return;
  for (int64_t e = 0; by_score && e < r->k; e++) {
    const int64_t position = ls_line_int(&q->idx[s], e) - q->j->offset[s];
    if (q->cause[s][e] != RIGHT || position < 0 || position >= r->n || !(q->mark[position] & LS_WRONG)) continue;
    q->cause[s][e] = f->best_out >= 0 && q->rank[s][f->best_out] == q->rank[s][position] ? LOST_TIE : INFERIOR;
    q->faults[s]++;
  }
  for (int64_t i = 0; i < r->n; i++) q->mark[i] &= (uint8_t)~LS_WRONG;
}

/* ---- faults in words ---- */

/* The entry that a right selection has at e (-1: none), the lower position winning ties. */
static int64_t expected_entry(const query *q, int s, int64_t e) {
  const ls_select_rule *r = q->j->rule;
  const int64_t places = q->found[s].places;
  if (e >= places) return -1;
  const uint64_t last = ls_choice_last(q->rank[s], r->n, places);
  int64_t equals = places, seen = 0;
  for (int64_t i = 0; i < r->n; i++) equals -= q->rank[s][i] > last;
  for (int64_t i = 0; i < r->n; i++) {
    const uint64_t rank = q->rank[s][i];
    if (rank < last || (rank == last && equals-- <= 0)) continue;
    if (seen++ == e) return r->offset + i;
  }
  return -1;
}

static void describe(char *buf, size_t size, const query *q, int s, int64_t e) {
  const ls_select_rule *r = q->j->rule;
  const ls_choice_found *f = &q->found[s];
  const int64_t entry = ls_line_int(&q->idx[s], e);
  const long long position = (long long)(entry - q->j->offset[s]), best = (long long)f->best_out;
  const double best_score = f->best_out >= 0 ? ls_rank_score(q->rank[s][f->best_out]) : NAN;
  switch ((cause)q->cause[s][e]) {
    case OUT_OF_RANGE:
      snprintf(buf, size, "%lld is out of range (-1, or %lld to %lld)", (long long)entry, (long long)r->offset,
               (long long)(r->offset + r->n - 1));
      break;
    case FUTURE:
      snprintf(buf, size, "position %lld is in the future (%lld visible)", position, (long long)q->visible);
      break;
    case TWICE: {
      int64_t first = 0;
      while (first < e && ls_line_int(&q->idx[s], first) != entry) first++;
      snprintf(buf, size, "position %lld is a duplicate of entry %lld", position, (long long)first);
      break;
    }
    case EMPTY_BEFORE:
      snprintf(buf, size, "-1 before a valid entry");
      break;
    case NOT_ASCENDING:
      do e--;
      while (e > 0 && (q->cause[s][e] == EMPTY_BEFORE || q->cause[s][e] == OUT_OF_RANGE));
      snprintf(buf, size, "position %lld is not ascending: it follows %lld", position,
               (long long)(ls_line_int(&q->idx[s], e) - q->j->offset[s]));
      break;
    case OUTSIDE:
      snprintf(buf, size, "position %lld is outside the candidates", position);
      break;
    case MINUS_INF:
      snprintf(buf, size, "position %lld has a score of -inf and may not be chosen", position);
      break;
    case MISSING:
      snprintf(buf, size, "is -1, but position %lld (score %.9g) is missing: %lld chosen, %lld places", best, best_score,
               (long long)f->chosen, (long long)f->places);
      break;
    case INFERIOR: {
      const double score = ls_rank_score(q->rank[s][position]);
      snprintf(buf, size, "position %lld (score %.9g) is inferior by %.4g to position %lld (score %.9g), left out", position, score,
               best_score - score, best, best_score);
      break;
    }
    case LOST_TIE:
      snprintf(buf, size, "position %lld is the wrong winner of a tie at score %.9g: position %lld is lower and left out", position,
               best_score, best);
      break;
    default:
      snprintf(buf, size, "right");
  }
}

static void prefix(char *buf, size_t size, const query *q, int s, int64_t e) {
  const bool first_of_two = q->j->side[1] && s == 0;
  snprintf(buf, size, "query %lld (position %lld) entry %lld%s: ", (long long)q->t, (long long)(q->j->rule->start_pos + q->t), (long long)e,
           first_of_two ? " of the first side" : "");
}

/* The first faulty entry of a side goes into the tally, if nothing is there yet. */
static void record_fault(const query *q, int s, ls_choice_tally *tally) {
  char text[240], place[80];
  if (q->faults[s] == 0 || tally->is_fault) return;
  int64_t e = 0;
  while (q->cause[s][e] == RIGHT) e++;
  const int64_t entry = ls_line_int(&q->idx[s], e);
  double a = (double)expected_entry(q, s, e), b = (double)entry;
  if (q->cause[s][e] == INFERIOR || q->cause[s][e] == LOST_TIE) {
    a = ls_rank_score(q->rank[s][q->found[s].best_out]);
    b = ls_rank_score(q->rank[s][entry - q->j->offset[s]]);
  }
  ls_choice_fault(tally, q->t, e, a, b, 0);
  describe(text, sizeof text, q, s, e);
  prefix(place, sizeof place, q, s, e);
  ls_choice_say(tally->note, sizeof tally->note, "%s%s", place, text);
}

/* ---- one selection ---- */

static void judge_own(query *q, ls_choice_tally *tally) {
  judge_side(q, 0, true);
  tally->count += q->j->rule->k;
  tally->chosen += q->found[0].chosen;
  tally->failing += q->faults[0];
  tally->equal += q->j->rule->k - q->faults[0];
  tally->ties += q->found[0].ties;
  tally->rows++;
  tally->rows_failing += q->faults[0] > 0;
  record_fault(q, 0, tally);
}

/* ---- two selections ---- */

/* What an item's score may differ by between the sides. A bound is of the difference in all, so the larger one is it. */
static double bound_of(void *arg, int64_t item) {
  const query *q = arg;
  double bound = 0;
  for (int s = 0; s < 2; s++) {
    if (!q->j->side[s]->bound) continue;
    const double b = ls_line_get(&q->bound[s], item);
    if (!(b <= bound)) bound = b; /* a NaN stays: it allows nothing */
  }
  return bound;
}

static void record_swap(const query *q, const ls_choice_ends *ends, int64_t position, int holder, int64_t e, const ls_swap *swap,
                        ls_choice_tally *tally) {
  char place[80];
  const int s = swap->side;
  const double score = ls_rank_score(q->rank[s][position]), last = ends->full[s] ? ls_rank_score(ends->last[s]) : NAN;
  if (swap->kind != LS_SWAP_ILLEGAL) {
    ls_choice_near(tally, q->t, e, swap->use, last, score, swap->limit);
    return;
  }
  if (!ls_choice_fault(tally, q->t, e, last, score, swap->limit)) return;
  prefix(place, sizeof place, q, holder, e);
  const char *by = s == 0 ? "first" : "second";
  if (!ends->full[s] || q->rank[s][position] == 0) {
    ls_choice_say(tally->note, sizeof tally->note, "%sposition %lld is chosen by this side only, and by the scores of the %s side %s",
                  place, (long long)position, by,
                  q->rank[s][position] == 0 ? "it may not be (-inf)" : "every position that may be chosen is");
    return;
  }
  const char *what = s == holder ? "superior" : "inferior"; /* left out although so much better, or chosen although so much worse */
  ls_choice_say(
      tally->note, sizeof tally->note,
      "%sposition %lld is chosen by this side only; by the scores of the %s side it is %s by %.4g to position %lld, the k-th (%.9g "
      "against %.9g, %.4g allowed)",
      place, (long long)position, by, what, swap->apart, (long long)ends->last_item[s], score, last, swap->limit);
}

/* Every position that one side alone chose; returns how many of them may not differ. */
static int64_t judge_swaps(query *q, const ls_choice_ends *ends, const ls_choice_pair *pair, ls_choice_tally *tally) {
  int64_t e[2] = {0, 0}, ties[2] = {0, 0}, bad[2] = {0, 0};
  for (int64_t i = 0; i < pair->n; i++) {
    const uint8_t in = q->mark[i] & (LS_IN_A | LS_IN_B);
    if (in == LS_IN_A || in == LS_IN_B) {
      const int holder = in == LS_IN_A ? 0 : 1;
      const ls_swap swap = ls_choice_swap(pair, ends, i);
      ties[holder] += swap.kind == LS_SWAP_TIE;
      bad[holder] += swap.kind == LS_SWAP_ILLEGAL;
      record_swap(q, ends, i, holder, e[holder], &swap, tally);
    }
    e[0] += in & LS_IN_A ? 1 : 0;
    e[1] += in & LS_IN_B ? 1 : 0;
  }
  const int64_t wrong = bad[0] > bad[1] ? bad[0] : bad[1], tied = ties[0] < ties[1] ? ties[0] : ties[1];
  const int64_t alone = ends->alone[0] > ends->alone[1] ? ends->alone[0] : ends->alone[1];
  tally->ties += tied;
  if (alone - tied - wrong > 0) tally->near_ties += alone - tied - wrong;
  return wrong;
}

static void judge_two(query *q, ls_choice_tally *tally) {
  const ls_select_rule *r = q->j->rule;
  for (int s = 0; s < 2; s++) judge_side(q, s, false);
  ls_choice_pair pair = {.n = r->n, .k = r->k, .rank = {q->rank[0], q->rank[1]}, .mark = q->mark, .bound = bound_of, .arg = q};
  ls_choice_ends ends;
  ls_choice_ends_find(&ends, &pair);
  int64_t failing = q->faults[0] > q->faults[1] ? q->faults[0] : q->faults[1];
  if (failing > 0) {
    for (int s = 0; s < 2; s++) record_fault(q, s, tally);
  } else if (ends.alone[0] + ends.alone[1] > 0) {
    failing = judge_swaps(q, &ends, &pair, tally);
  }
  const int64_t alone = ends.alone[0] > ends.alone[1] ? ends.alone[0] : ends.alone[1];
  const int64_t apart = alone > failing ? alone : failing;
  tally->count += r->k;
  tally->chosen += ends.chosen[0] + ends.chosen[1];
  tally->equal += r->k - (apart < r->k ? apart : r->k);
  tally->failing += failing;
  tally->rows++;
  tally->rows_failing += failing > 0;
}

/* ---- a wrong base of all entries ---- */

/* Whether every query's selection is right once read with another offset. Two entries at least must say so. */
static bool is_right_with(const job *j, int s, int64_t offset, int64_t *entries, int64_t *queries) {
  job shifted = {.side = {j->side[s], NULL}, .rule = j->rule, .offset = {offset, 0}};
  query q;
  *entries = *queries = 0;
  if (!query_make(&q, &shifted)) return false;
  bool right = true;
  for (int64_t t = 0; t < j->rule->m && right; t++) {
    start_query(&q, t);
    judge_side(&q, 0, true);
    right = q.faults[0] == 0;
    *entries += q.found[0].chosen;
    *queries += q.found[0].chosen > 0;
  }
  query_free(&q);
  return right && *entries > 1;
}

/* Where a side's entries are all off by one constant, the note says so beside what the first of them looks like. */
static bool find_wrong_base(const job *j, int s, ls_choice_tally *total) {
  const ls_select_rule *r = j->rule;
  query q;
  job one = {.side = {j->side[s], NULL}, .rule = r, .offset = {r->offset, 0}};
  if (r->k == 0 || !query_make(&q, &one)) return false;
  int64_t t = 0, entries = 0, queries = 0, base = r->offset, found_entry = -1, right_entry = -1;
  for (; t < r->m; t++) { /* the first query that chose anything says by how much */
    start_query(&q, t);
    judge_side(&q, 0, true);
    found_entry = ls_line_int(&q.idx[0], 0), right_entry = expected_entry(&q, 0, 0);
    if (found_entry >= 0 || right_entry >= 0) break;
  }
  query_free(&q);
  if (found_entry < 0 || right_entry < 0 || found_entry == right_entry) return false;
  base += found_entry - right_entry;
  if (!is_right_with(j, s, base, &entries, &queries)) return false;
  total->failing = entries, total->equal = total->count - entries, total->rows_failing = queries;
  ls_choice_say(total->note, sizeof total->note, "; wrong offset base: all entries%s are off by %lld, as if %lld were added, not %lld",
                j->side[1] && s == 0 ? " of the first side" : "", (long long)(base - r->offset), (long long)base, (long long)r->offset);
  return true;
}

/* ---- all queries ---- */

static bool judge_queries(void *arg, ls_choice_tally *tally, int64_t from, int64_t end) {
  const job *j = arg;
  query q;
  if (!query_make(&q, j)) return false;
  for (int64_t t = from; t < end; t++) {
    start_query(&q, t);
    if (j->side[1]) {
      judge_two(&q, tally);
    } else {
      judge_own(&q, tally);
    }
  }
  query_free(&q);
  return true;
}

static bool can_judge(ls_result *result, const ls_selection *s, const ls_select_rule *r) {
  const unsigned integers = 1u << LS_I32 | 1u << LS_I64;
  if (!ls_choice_expect(result, "the selection", s->idx, integers, r->m, r->k)) return false;
  if (!ls_choice_expect(result, "its scores", s->score, LS_FLOAT_TYPES, r->m, r->n)) return false;
  if (s->bound && !ls_choice_expect(result, "the bound of its scores", s->bound, LS_FLOAT_TYPES, r->m, r->n)) return false;
  return !r->mask || ls_choice_expect(result, "the candidates", r->mask, 1u << LS_U8, r->m, r->n);
}

static void judge(ls_result *result, const ls_selection *a, const ls_selection *b, const ls_select_rule *rule) {
  if (!can_judge(result, a, rule) || (b && !can_judge(result, b, rule))) return;
  job j = {.side = {a, b}, .rule = rule, .offset = {rule->offset, rule->offset}};
  ls_choice_tally total = {0};
  if (rule->k > 0) ls_choice_all_queries(&total, rule->m, rule->n + rule->k, judge_queries, &j);
  for (int s = 0; s < 2 && j.side[s] && total.is_fault; s++) {
    if (find_wrong_base(&j, s, &total)) break;
  }
  const ls_place_names names = {.base = rule->start_pos, .stride = 1, .newest = -1};
  ls_choice_result(result, &total, "row entry", &names, "entry", "entries");
}

void ls_compare_selection(ls_result *result, const ls_selection *s, const ls_select_rule *rule) { judge(result, s, NULL, rule); }

void ls_compare_selections(ls_result *result, const ls_selection *a, const ls_selection *b, const ls_select_rule *rule) {
  judge(result, a, b, rule);
}

/* ---- indices ---- */

void ls_compare_indices(ls_result *result, const ls_stage *stage, const ls_tensor *a, const ls_tensor *b, const ls_place_names *names) {
  const unsigned integers = 1u << LS_I32 | 1u << LS_I64 | 1u << LS_U8;
  const ls_tensor *const side[2] = {a, b};
  char shape_a[64], shape_b[64];
  ls_result_init(result);
  if (!a || !b) {
    result->verdict = LS_MISSING;
    snprintf(result->note, sizeof result->note, "%s side holds no such tensor", !a && !b ? "neither" : "one");
    return;
  }
  for (int s = 0; s < 2; s++) {
    if (side[s]->place == LS_HOST && (integers >> side[s]->dtype & 1u)) continue;
    result->verdict = LS_FAIL;
    snprintf(result->note, sizeof result->note, "expected integers on the host, found %s%s", ls_dtype_name(side[s]->dtype),
             side[s]->place == LS_HOST ? "" : " in device memory");
    return;
  }
  if (!ls_tensor_same_shape(a, b)) {
    result->verdict = LS_FAIL;
    snprintf(result->note, sizeof result->note, "shapes differ: %s against %s", ls_dims_text(shape_a, sizeof shape_a, a->ndim, a->dim),
             ls_dims_text(shape_b, sizeof shape_b, b->ndim, b->dim));
    return;
  }
  const int64_t count = ls_tensor_count(a), width = a->ndim > 0 ? a->dim[a->ndim - 1] : 1;
  for (int64_t at = 0; at < count; at += width) {
    const ls_line line_a = ls_line_of(a, at), line_b = ls_line_of(b, at);
    int64_t failing = 0;
    for (int64_t i = 0; i < width; i++) {
      const int64_t va = ls_line_int(&line_a, i), vb = ls_line_int(&line_b, i);
      if (va == vb) continue;
      failing++;
      if (result->has_worst) continue; /* the first one is named */
      result->has_worst = true;
      result->worst_ndim = a->ndim;
      ls_unflatten(result->worst_index, at + i, a->ndim, a->dim);
      result->worst_a = (double)va, result->worst_b = (double)vb;
      ls_place_text_args place = {
          .axes = stage ? stage->axes : NULL, .ndim = a->ndim, .index = result->worst_index, .names = names, .slot_position = -1};
      ls_place_text(result->where, sizeof result->where, &place);
      snprintf(result->note, sizeof result->note, "%s: expected %lld, found %lld", result->where, (long long)va, (long long)vb);
    }
    result->failing += failing;
    result->rows++;
    result->rows_failing += failing > 0;
  }
  result->count = count;
  result->bit_equal = count - result->failing;
  if (result->failing > 0) {
    result->use = INFINITY;
    ls_spread_add_use(&result->spread, INFINITY, result->failing);
  }
  if (count == 0) snprintf(result->note, sizeof result->note, "nothing was compared");
  ls_result_judge(result);
}
