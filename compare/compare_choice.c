#include "compare_choice.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../core/ls_parallel.h"

/* ---- ranks ---- */

static const uint64_t SIGN = (uint64_t)1 << 63;
static const uint64_t RANK_NAN = UINT64_MAX - 1;

uint64_t ls_rank_of(double score) {
  if (isnan(score)) return RANK_NAN;
  if (score == -INFINITY) return 0;
  if (score == 0) score = 0; /* -0 */
  uint64_t bits;
  memcpy(&bits, &score, sizeof bits);
  return bits & SIGN ? ~bits : bits | SIGN;
}

double ls_rank_score(uint64_t rank) {
  if (rank == LS_RANK_FORCED) return INFINITY;
  if (rank == RANK_NAN) return NAN;
  if (rank == 0) return -INFINITY;
  uint64_t bits = rank & SIGN ? rank & ~SIGN : ~rank;
  double score;
  memcpy(&score, &bits, sizeof score);
  return score;
}

/* ---- one choice ---- */

uint64_t ls_choice_last(const uint64_t *rank, int64_t n, int64_t places) {
  uint64_t found = 0, known = 0; /* of the rank sought: the leading bits found so far, and which those are */
  for (int shift = 56; shift >= 0; shift -= 8) {
    int64_t bin[256] = {0};
    for (int64_t i = 0; i < n; i++) bin[rank[i] >> shift & 0xFF] += (rank[i] & known) == found;
    int digit = 255;
    for (; digit > 0 && bin[digit] < places; digit--) places -= bin[digit];
    found |= (uint64_t)digit << shift;
    known |= (uint64_t)0xFF << shift;
  }
  return found;
}

/* Marks what has no place by right: below the last rank, or of it and beyond the places that better items leave. */
static void mark_wrong(ls_choice_found *f, const ls_choice *c) {
  int64_t better = 0, equals = 0;
  f->last = ls_choice_last(c->rank, c->n, f->places);
  for (int64_t i = 0; i < c->n; i++) better += c->rank[i] > f->last;
  for (int64_t i = 0; i < c->n; i++) {
    const bool in = c->mark[i] & c->in, equal = c->rank[i] == f->last;
    bool wrong = in && c->rank[i] < f->last;
    if (equal && (in || c->lower_wins)) wrong = equals++ >= f->places - better && in; /* equals count in order of position */
    if (!wrong) continue;
    c->mark[i] |= LS_WRONG;
    f->wrong++;
  }
}

void ls_choice_judge(ls_choice_found *found, const ls_choice *c) {
  ls_choice_found f = {.best_out = -1};
  uint64_t worst = UINT64_MAX, best = 0; /* of those chosen; of those left out */
  int64_t worst_at = -1, at_worst = 0;
  for (int64_t i = 0; i < c->n; i++) {
    const uint64_t rank = c->rank[i];
    if (rank == 0) continue;
    f.eligible++;
    if (!(c->mark[i] & c->in)) {
      if (rank > best) best = rank, f.best_out = i;
      continue;
    }
    f.chosen++;
    if (rank < worst) worst = rank, at_worst = 0;
    if (rank == worst) worst_at = i, at_worst++;
  }
  f.places = c->k < f.eligible ? c->k : f.eligible;
  f.missing = f.places > f.chosen ? f.places - f.chosen : 0;
  const bool right = f.best_out < 0 || f.chosen == 0 || best < worst || (best == worst && (!c->lower_wins || worst_at < f.best_out));
  if (f.chosen == f.places && right) {
    if (f.best_out >= 0 && best == worst) f.ties = at_worst;
  } else if (f.places > 0) {
    mark_wrong(&f, c);
  }
  *found = f;
}

/* ---- two choices ---- */

void ls_choice_ends_find(ls_choice_ends *ends, const ls_choice_pair *p) {
  ls_choice_ends e = {.last = {UINT64_MAX, UINT64_MAX}, .last_item = {-1, -1}, .least_alone = {INFINITY, INFINITY}};
  for (int64_t i = 0; i < p->n; i++) {
    for (int s = 0; s < 2; s++) {
      if (!(p->mark[i] & (LS_IN_A << s))) continue;
      e.chosen[s]++;
      e.alone[s] += !(p->mark[i] & (LS_IN_B >> s));
      if (e.last_item[s] < 0 || p->rank[s][i] < e.last[s]) e.last[s] = p->rank[s][i], e.last_item[s] = i;
    }
  }
  for (int s = 0; s < 2; s++) e.full[s] = e.chosen[s] >= p->k;
  if (e.alone[0] + e.alone[1] > 0) {
    for (int64_t i = 0; i < p->n; i++) {
      for (int s = 0; s < 2; s++) {
        if (!(p->mark[i] & (LS_IN_A << s))) continue;
        const bool last = p->rank[s][i] == e.last[s], alone = !(p->mark[i] & (LS_IN_B >> s));
        if (!last && !alone) continue;
        const double bound = p->bound(p->arg, i);
        if (last && !(bound <= e.last_bound[s])) e.last_bound[s] = bound;
        if (alone && !(bound >= e.least_alone[s])) e.least_alone[s] = bound;
      }
    }
  }
  *ends = e;
}

ls_swap ls_choice_swap(const ls_choice_pair *p, const ls_choice_ends *e, int64_t item) {
  const int holder = p->mark[item] & LS_IN_A ? 0 : 1;
  const double own = p->bound(p->arg, item), least = e->least_alone[!holder];
  ls_swap swap = {.kind = LS_SWAP_TIE, .use = -1};
  for (int s = 0; s < 2; s++) {
    const uint64_t rank = p->rank[s][item];
    double limit = own + (least > e->last_bound[s] && isfinite(least) ? least : e->last_bound[s]), apart = 0, use = 0;
    if (!e->full[s] || rank == 0) { /* no k-th to lie near, or no score to lie near it with */
      apart = use = INFINITY;
    } else if (rank != e->last[s]) {
      apart = fabs(ls_rank_score(rank) - ls_rank_score(e->last[s]));
      use = apart <= limit && isfinite(limit) ? apart / limit : apart > limit && limit > 0 ? apart / limit : INFINITY;
      if (swap.kind == LS_SWAP_TIE) swap.kind = LS_SWAP_NEAR;
    }
    if (!(use <= 1)) swap.kind = LS_SWAP_ILLEGAL;
    if (!(use <= swap.use) || rank == 0) swap.side = s, swap.apart = apart, swap.limit = limit, swap.use = use;
  }
  return swap;
}

/* ---- sums ---- */

bool ls_choice_fault(ls_choice_tally *t, int64_t row, int64_t at, double a, double b, double bound) {
  if (t->is_fault) return false;
  t->has_worst = t->is_fault = true;
  t->worst_row = row, t->worst_at = at;
  t->a = a, t->b = b, t->bound = bound;
  return true;
}

void ls_choice_near(ls_choice_tally *t, int64_t row, int64_t at, double use, double a, double b, double bound) {
  if (use > 0) ls_spread_add_use(&t->spread, use, 1);
  if (t->is_fault || !(use > t->use)) return;
  t->has_worst = true;
  t->worst_row = row, t->worst_at = at;
  t->a = a, t->b = b, t->bound = bound;
  t->use = use;
}

void ls_choice_tally_merge(ls_choice_tally *into, const ls_choice_tally *from) {
  const bool take = from->is_fault ? !into->is_fault : from->has_worst && !into->is_fault && (!into->has_worst || from->use > into->use);
  if (take) {
    into->has_worst = true, into->is_fault = from->is_fault;
    into->worst_row = from->worst_row, into->worst_at = from->worst_at;
    into->a = from->a, into->b = from->b, into->bound = from->bound;
    memcpy(into->note, from->note, sizeof into->note);
  }
  into->count += from->count, into->chosen += from->chosen, into->equal += from->equal, into->failing += from->failing;
  into->rows += from->rows, into->rows_failing += from->rows_failing;
  into->ties += from->ties, into->near_ties += from->near_ties;
  if (from->use > into->use) into->use = from->use;
  ls_spread_merge(&into->spread, &from->spread);
  into->out_of_memory = into->out_of_memory || from->out_of_memory;
}

enum { PIECES = 64 };

typedef struct {
  int64_t m, queries; /* in all; in a piece */
  ls_choice_queries *judge;
  void *arg;
  ls_choice_tally piece[PIECES];
} pieces;

static void judge_piece(void *arg, int64_t i) {
  pieces *p = arg;
  const int64_t from = i * p->queries, end = from + p->queries < p->m ? from + p->queries : p->m;
  if (!p->judge(p->arg, &p->piece[i], from, end)) p->piece[i].out_of_memory = true;
}

void ls_choice_all_queries(ls_choice_tally *total, int64_t m, int64_t work, ls_choice_queries *judge, void *arg) {
  pieces p = {.m = m, .judge = judge, .arg = arg};
  int64_t n = m * work / (1 << 16) + 1; /* smaller ones are not worth a thread */
  if (n > PIECES) n = PIECES;
  p.queries = m > 0 ? (m + n - 1) / n : 1;
  n = (m + p.queries - 1) / p.queries;
  ls_parallel_for(n, judge_piece, &p);
  for (int64_t i = 0; i < n; i++) ls_choice_tally_merge(total, &p.piece[i]);
}

void ls_choice_say(char *buf, size_t size, const char *format, ...) {
  const size_t used = strlen(buf);
  va_list args;
  va_start(args, format);
  vsnprintf(buf + used, size - used, format, args);
  va_end(args);
}

static void note_sums(ls_result *r, const ls_choice_tally *t, const char *one, const char *many) {
  const size_t size = sizeof r->note;
  if (t->is_fault) {
    ls_choice_say(r->note, size, "%s", t->note);
    if (t->failing > 1) ls_choice_say(r->note, size, "; %lld %s are wrong", (long long)t->failing, many);
  } else if (t->count == 0) {
    ls_choice_say(r->note, size, "nothing was compared");
  } else if (t->chosen == 0) {
    ls_choice_say(r->note, size, "no %s was chosen", one);
  } else {
    ls_note_ties(r);
  }
}

void ls_choice_result(ls_result *result, const ls_choice_tally *t, const char *axes, const ls_place_names *names, const char *one,
                      const char *many) {
  ls_result_init(result);
  if (t->out_of_memory) {
    result->verdict = LS_FAIL;
    snprintf(result->note, sizeof result->note, "out of memory");
    return;
  }
  result->count = t->count, result->bit_equal = t->equal, result->failing = t->failing;
  result->rows = t->rows, result->rows_failing = t->rows_failing;
  result->ties = t->ties, result->near_ties = t->near_ties;
  result->zeros = t->chosen == 0 ? t->count : 0; /* nothing was chosen: proves little */
  result->use = t->is_fault ? INFINITY : t->use;
  result->spread = t->spread;
  if (t->failing > 0) ls_spread_add_use(&result->spread, INFINITY, t->failing);
  ls_result_judge(result);
  note_sums(result, t, one, many);
  if (!t->has_worst) return;
  result->has_worst = true;
  result->worst_ndim = 2;
  result->worst_index[0] = t->worst_row, result->worst_index[1] = t->worst_at;
  result->worst_a = t->a, result->worst_b = t->b, result->worst_bound = t->bound;
  ls_place_text_args place = {.axes = axes, .ndim = 2, .index = result->worst_index, .names = names, .slot_position = -1};
  ls_place_text(result->where, sizeof result->where, &place);
}

/* ---- tensors ---- */

bool ls_choice_expect(ls_result *result, const char *what, const ls_tensor *t, unsigned types, int64_t m, int64_t n) {
  char expected[64], found[64];
  if (t && t->place == LS_HOST && (types >> t->dtype & 1u) && t->ndim == 2 && t->dim[0] == m && t->dim[1] == n) return true;
  ls_result_init(result);
  result->verdict = t ? LS_FAIL : LS_MISSING;
  if (!t) {
    snprintf(result->note, sizeof result->note, "%s is not there", what);
  } else if (t->place != LS_HOST) {
    snprintf(result->note, sizeof result->note, "%s is in device memory", what);
  } else {
    snprintf(result->note, sizeof result->note, "%s: expected %s, found %s of %s", what,
             ls_dims_text(expected, sizeof expected, 2, (int64_t[]){m, n}), ls_dims_text(found, sizeof found, t->ndim, t->dim),
             ls_dtype_name(t->dtype));
  }
  return false;
}

int64_t ls_line_int(const ls_line *line, int64_t i) {
  const int64_t at = i * line->stride;
  switch (line->dtype) {
    case LS_I32:
      return ((const int32_t *)line->data)[at];
    case LS_I64:
      return ((const int64_t *)line->data)[at];
    default:
      return ((const uint8_t *)line->data)[at];
  }
}
