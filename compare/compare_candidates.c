/* Candidate masks: whole blocks of positions, chosen by their best score, judged as a selection of blocks. */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_shortage.h"
#include "compare_choice.h"

typedef struct {
  const ls_selection *side[2]; /* [1] NULL: one side is judged by its own scores */
  const ls_select_rule *rule;
  const ls_candidate_rule *blocks;
} job;

/* One query, and memory for it: blocks of visible positions are its items. */
typedef struct {
  const job *j;
  int64_t t, visible, n; /* n blocks, the last of them the newest */
  ls_line mask[2], bound[2];
  uint64_t *rank[2]; /* [blocks] */
  uint8_t *mark;     /* [blocks] */
  int64_t kept[2];   /* elements that are 1 */
  ls_choice_found found[2];
  ls_choice_tally *tally;
  int64_t failing[2]; /* elements */
} query;

static void query_free(query *q) {
  free(q->mark);
  free(q->rank[0]);
  free(q->rank[1]);
}

static bool query_make(query *q, const job *j, ls_choice_tally *tally) {
  const size_t n = (size_t)(j->rule->n / j->blocks->block + 1);
  *q = (query){.j = j, .tally = tally, .mark = ls_shortage_unless(malloc(n))};
  bool ok = q->mark != NULL;
  for (int s = 0; s < 2 && ok; s++) {
    q->rank[s] = ls_shortage_unless(malloc(n * sizeof *q->rank[s]));
    ok = q->rank[s] != NULL;
  }
  if (!ok) query_free(q);
  return ok;
}

static int64_t block_start(const query *q, int64_t block) { return block * q->j->blocks->block; }
/* Of the newest block the mask holds the positions that are not visible yet too; its score is that of the visible ones. */
static int64_t block_end(const query *q, int64_t block) {
  const int64_t end = (block + 1) * q->j->blocks->block;
  return end < q->j->rule->n ? end : q->j->rule->n;
}
static int64_t seen_end(const query *q, int64_t block) {
  const int64_t end = block_end(q, block);
  return end < q->visible ? end : q->visible;
}

static void start_query(query *q, int64_t t) {
  const ls_select_rule *r = q->j->rule;
  const int64_t rows = (r->start_pos + t + 1) / r->ratio, block = q->j->blocks->block;
  q->t = t;
  q->visible = rows < r->n ? rows : r->n;
  q->n = (q->visible + block - 1) / block;
  memset(q->mark, 0, (size_t)q->n);
  for (int s = 0; s < 2 && q->j->side[s]; s++) {
    const ls_selection *side = q->j->side[s];
    const ls_line score = ls_line_of(side->score, t * r->n);
    q->mask[s] = ls_line_of(side->idx, t * r->n);
    if (side->bound) q->bound[s] = ls_line_of(side->bound, t * r->n);
    q->kept[s] = q->failing[s] = 0;
    for (int64_t b = 0; b < q->n; b++) {
      uint64_t best = 0;
      for (int64_t i = block_start(q, b); i < seen_end(q, b); i++) {
        const uint64_t rank = ls_rank_of(ls_line_get(&score, i));
        if (rank > best) best = rank;
      }
      q->rank[s][b] = b == q->n - 1 ? LS_RANK_FORCED : best;
    }
  }
}

/* A fault of `elements` elements, the first at position `at`; the first fault of all is put in words. block -1: of no block. */
static void fault(query *q, int s, int64_t elements, int64_t at, double a, double b, double bound, int64_t block, const char *format, ...)
    __attribute__((format(printf, 9, 10)));
static void fault(query *q, int s, int64_t elements, int64_t at, double a, double b, double bound, int64_t block, const char *format, ...) {
  ls_choice_tally *t = q->tally;
  q->failing[s] += elements;
  if (!ls_choice_fault(t, q->t, at, a, b, bound)) return;
  ls_choice_say(t->note, sizeof t->note, "query %lld (position %lld)", (long long)q->t, (long long)(q->j->rule->start_pos + q->t));
  if (block >= 0) {
    ls_choice_say(t->note, sizeof t->note, " block %lld (positions %lld to %lld)", (long long)block, (long long)block_start(q, block),
                  (long long)block_end(q, block) - 1);
  }
  char text[200];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  ls_choice_say(t->note, sizeof t->note, "%s: %s", q->j->side[1] && s == 0 ? " of the first side" : "", text);
}

/* Marks the blocks that a side keeps; what is wrong with an element or a block by itself is a fault. Returns the blocks that
 * took or left a place wrongly. */
static int64_t read_mask(query *q, int s) {
  const int64_t n = q->j->rule->n;
  int64_t bad = 0;
  for (int64_t b = 0; b < q->n; b++) {
    const int64_t start = block_start(q, b), end = block_end(q, b);
    int64_t ones = 0, first_zero = -1, first_one = -1;
    for (int64_t i = start; i < end; i++) {
      const int64_t v = ls_line_int(&q->mask[s], i);
      if (v > 1) fault(q, s, 1, i, 1, (double)v, 0, -1, "position %lld: the mask holds %lld, not 0 or 1", (long long)i, (long long)v);
      ones += v != 0;
      if (v == 0 && first_zero < 0) first_zero = i;
      if (v != 0 && first_one < 0) first_one = i;
    }
    q->kept[s] += ones;
    if (ones == 0) {
      if (b == q->n - 1) {
        fault(q, s, end - start, start, 1, 0, 0, b, "the newest visible position's block is missing");
        bad++;
      }
      continue;
    }
    if (q->rank[s][b] == 0) {
      fault(q, s, ones, first_one, 0, 1, 0, b, "kept, but its best score is -inf");
      bad++;
      continue;
    }
    q->mark[b] |= (uint8_t)(LS_IN_A << s);
    if (ones == end - start) continue;
    fault(q, s, end - start - ones, first_zero, 1, 0, 0, b, "kept in part: %lld of %lld positions, not %lld", (long long)ones,
          (long long)(end - start), (long long)first_zero);
  }
  for (int64_t i = q->n > 0 ? block_end(q, q->n - 1) : 0; i < n; i++) {
    const int64_t v = ls_line_int(&q->mask[s], i);
    if (v == 0) continue;
    q->kept[s]++;
    fault(q, s, 1, i, 0, (double)v, 0, -1, "position %lld is in the future (%lld visible)", (long long)i, (long long)q->visible);
  }
  return bad;
}

static void judge_wrong(query *q, int s) {
  const ls_choice_found *f = &q->found[s];
  for (int64_t b = 0; b < q->n; b++) {
    if (!(q->mark[b] & LS_WRONG)) continue;
    const int64_t start = block_start(q, b), elements = block_end(q, b) - start, out = f->best_out;
    const double score = ls_rank_score(q->rank[s][b]), best = out >= 0 ? ls_rank_score(q->rank[s][out]) : NAN;
    if (f->chosen > f->places) {
      fault(q, s, elements, start, 0, 1, 0, b, "an extra block (score %.9g): %lld are kept, %lld have a place", score, (long long)f->chosen,
            (long long)f->places);
    } else if (q->rank[s][out] == q->rank[s][b]) {
      fault(q, s, elements, start, best, score, 0, b, "the wrong winner of a tie at score %.9g: block %lld is lower and left out", score,
            (long long)out);
    } else {
      fault(q, s, elements, start, best, score, 0, b, "score %.9g is inferior by %.4g to block %lld (score %.9g), left out", score,
            best - score, (long long)out, best);
    }
  }
}

static void judge_side(query *q, int s, bool by_score) {
  const uint8_t in = (uint8_t)(LS_IN_A << s);
  const int64_t bad = read_mask(q, s);
  ls_choice choice = {
      .n = q->n, .k = q->j->blocks->topk_blocks, .rank = q->rank[s], .mark = q->mark, .in = in, .lower_wins = q->j->rule->lower_wins};
  ls_choice_judge(&q->found[s], &choice);
  const ls_choice_found *f = &q->found[s];
  if (by_score || f->chosen > f->places) judge_wrong(q, s);
  if (f->missing > bad) {
    const int64_t out = f->best_out, start = block_start(q, out);
    fault(q, s, (f->missing - bad) * (block_end(q, out) - start), start, 1, 0, 0, out,
          "missing (score %.9g): %lld blocks are kept, %lld have a place", ls_rank_score(q->rank[s][out]), (long long)f->chosen,
          (long long)f->places);
  }
  for (int64_t b = 0; b < q->n; b++) q->mark[b] &= (uint8_t)~LS_WRONG;
}

/* ---- one mask, two masks ---- */

static void judge_own(query *q, ls_choice_tally *tally) {
  judge_side(q, 0, true);
  const int64_t n = q->j->rule->n, failing = q->failing[0] < n ? q->failing[0] : n;
  tally->count += n;
  tally->chosen += q->kept[0];
  tally->failing += failing;
  tally->equal += n - failing;
  tally->ties += q->found[0].ties;
  tally->rows++;
  tally->rows_failing += failing > 0;
}

/* A block's best score differs by no more than the largest bound of its positions. */
static double bound_of(void *arg, int64_t block) {
  const query *q = arg;
  double bound = 0;
  for (int s = 0; s < 2; s++) {
    for (int64_t i = block_start(q, block); q->j->side[s]->bound && i < block_end(q, block); i++) {
      const double b = ls_line_get(&q->bound[s], i);
      if (!(b <= bound)) bound = b; /* a NaN stays: it allows nothing */
    }
  }
  return bound;
}

static void judge_swaps(query *q, const ls_choice_ends *ends, const ls_choice_pair *pair) {
  int64_t ties[2] = {0, 0}, bad[2] = {0, 0};
  for (int64_t b = 0; b < q->n; b++) {
    const uint8_t in = q->mark[b] & (LS_IN_A | LS_IN_B);
    if (in != LS_IN_A && in != LS_IN_B) continue;
    const int holder = in == LS_IN_A ? 0 : 1;
    const ls_swap swap = ls_choice_swap(pair, ends, b);
    const int s = swap.side;
    const double score = ls_rank_score(q->rank[s][b]), last = ends->full[s] ? ls_rank_score(ends->last[s]) : NAN;
    ties[holder] += swap.kind == LS_SWAP_TIE;
    bad[holder] += swap.kind == LS_SWAP_ILLEGAL;
    if (swap.kind != LS_SWAP_ILLEGAL) {
      ls_choice_near(q->tally, q->t, block_start(q, b), swap.use, last, score, swap.limit);
      continue;
    }
    fault(q, holder, block_end(q, b) - block_start(q, b), block_start(q, b), last, score, swap.limit, b,
          "kept by this side only; by the scores of the %s side it is %s by %.4g to the last block kept there (%.9g against %.9g, %.4g "
          "allowed)",
          s == 0 ? "first" : "second", s == holder ? "superior" : "inferior", swap.apart, score, last, swap.limit);
  }
  const int64_t wrong = bad[0] > bad[1] ? bad[0] : bad[1], tied = ties[0] < ties[1] ? ties[0] : ties[1];
  const int64_t alone = ends->alone[0] > ends->alone[1] ? ends->alone[0] : ends->alone[1];
  q->tally->ties += tied;
  if (alone - tied - wrong > 0) q->tally->near_ties += alone - tied - wrong;
}

static void judge_two(query *q, ls_choice_tally *tally) {
  const int64_t n = q->j->rule->n;
  for (int s = 0; s < 2; s++) judge_side(q, s, false);
  if (q->failing[0] + q->failing[1] == 0) {
    ls_choice_pair pair = {
        .n = q->n, .k = q->j->blocks->topk_blocks, .rank = {q->rank[0], q->rank[1]}, .mark = q->mark, .bound = bound_of, .arg = q};
    ls_choice_ends ends;
    ls_choice_ends_find(&ends, &pair);
    if (ends.alone[0] + ends.alone[1] > 0) judge_swaps(q, &ends, &pair);
  }
  int64_t failing = q->failing[0] > q->failing[1] ? q->failing[0] : q->failing[1], equal = 0;
  if (failing > n) failing = n;
  for (int64_t i = 0; i < n; i++) equal += ls_line_int(&q->mask[0], i) == ls_line_int(&q->mask[1], i);
  tally->count += n;
  tally->chosen += q->kept[0] + q->kept[1];
  tally->failing += failing;
  tally->equal += equal;
  tally->rows++;
  tally->rows_failing += failing > 0;
}

/* ---- all queries ---- */

static bool judge_queries(void *arg, ls_choice_tally *tally, int64_t from, int64_t end) {
  const job *j = arg;
  query q;
  if (!query_make(&q, j, tally)) return false;
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
  if (!ls_choice_expect(result, "the candidates", s->idx, 1u << LS_U8, r->m, r->n)) return false;
  if (!ls_choice_expect(result, "their scores", s->score, LS_FLOAT_TYPES, r->m, r->n)) return false;
  return !s->bound || ls_choice_expect(result, "the bound of their scores", s->bound, LS_FLOAT_TYPES, r->m, r->n);
}

static void judge(ls_result *result, const ls_selection *a, const ls_selection *b, const ls_select_rule *rule,
                  const ls_candidate_rule *blocks) {
  if (!can_judge(result, a, rule) || (b && !can_judge(result, b, rule))) return;
  job j = {.side = {a, b}, .rule = rule, .blocks = blocks};
  ls_choice_tally total = {0};
  if (rule->n > 0) ls_choice_all_queries(&total, rule->m, rule->n, judge_queries, &j);
  const ls_place_names names = {.base = rule->start_pos, .stride = 1, .newest = -1};
  ls_choice_result(result, &total, "row position", &names, "position", "elements");
}

void ls_compare_candidates(ls_result *result, const ls_selection *s, const ls_select_rule *rule, const ls_candidate_rule *blocks) {
  judge(result, s, NULL, rule, blocks);
}

void ls_compare_candidate_masks(ls_result *result, const ls_selection *a, const ls_selection *b, const ls_select_rule *rule,
                                const ls_candidate_rule *blocks) {
  judge(result, a, b, rule, blocks);
}
