/* compare_choice: the best k of n items by a score, and what may differ between two such choices; private to compare/. The items of one
 * query are compressed positions (compare_index.c) or blocks of them (compare_candidates.c).
 *
 * Scores are compared through their ranks, integers in the order of the scores: NaN first, then +inf .. -inf, -0 equal to +0. Rank 0: may
 * not be chosen (a score of -inf, not visible, outside a mask). */
#ifndef LS_COMPARE_CHOICE_H
#define LS_COMPARE_CHOICE_H

#include "compare_tally.h"

#define LS_RANK_FORCED UINT64_MAX /* before any score: the block that must be kept */

uint64_t ls_rank_of(double score);
double ls_rank_score(uint64_t rank); /* the score again; a forced one is +inf */

/* Bits of a mark, one mark an item. */
enum { LS_IN_A = 1, LS_IN_B = 2, LS_WRONG = 4 };

/* ---- one choice, by its own scores ---- */

typedef struct {
  int64_t n, k;
  const uint64_t *rank; /* [n] */
  uint8_t *mark;        /* [n]; only items with a rank may carry `in` */
  uint8_t in;           /* LS_IN_A or LS_IN_B: the mark of a chosen item */
  bool lower_wins;
} ls_choice;

typedef struct {
  int64_t eligible, chosen, places; /* places: min(k, eligible), which a right choice fills */
  int64_t missing;                  /* places left empty */
  int64_t wrong;                    /* chosen items that have no place by right; they are marked LS_WRONG */
  int64_t ties;                     /* of a right choice: items chosen among equals, one of which was left out */
  int64_t best_out;                 /* the best item left out, the lowest of equals; -1: none */
  uint64_t last;                    /* the rank of the last place by right; where wrong or missing are not 0 */
} ls_choice_found;

/* O(n). */
void ls_choice_judge(ls_choice_found *found, const ls_choice *choice);

/* The rank of the last of `places` places; places in 1 .. items with a rank. O(n). */
uint64_t ls_choice_last(const uint64_t *rank, int64_t n, int64_t places);

/* ---- two choices ---- */

typedef struct {
  int64_t n, k;
  const uint64_t *rank[2]; /* by the scores of either side */
  const uint8_t *mark;
  double (*bound)(void *arg, int64_t item); /* what the item's score may differ by between the sides */
  void *arg;
} ls_choice_pair;

/* The k-th of each side, which what only one side holds is measured against. */
typedef struct {
  int64_t chosen[2], alone[2]; /* alone: held by this side only */
  bool full[2];                /* k items are chosen: there is a k-th */
  uint64_t last[2];            /* the lowest rank chosen */
  int64_t last_item[2];
  double last_bound[2];  /* the largest bound of the items of that rank */
  double least_alone[2]; /* the smallest bound of the items that this side alone holds */
} ls_choice_ends;

void ls_choice_ends_find(ls_choice_ends *ends, const ls_choice_pair *pair);

typedef enum { LS_SWAP_TIE, LS_SWAP_NEAR, LS_SWAP_ILLEGAL } ls_swap_kind;

typedef struct {
  ls_swap_kind kind;
  int side;            /* whose scores use most of the limit */
  double apart, limit; /* there, from that side's k-th */
  double use;          /* apart / limit; infinite where nothing is allowed */
} ls_swap;

/* Judges an item that one side holds and the other does not. On both sides its score must lie within limit of that side's k-th:
 *   limit = bound(item) + max(bound(k-th), min over what only the other side holds of bound).
 * Let x be held by a alone and y by b alone. By each side's own order s_a(y) <= k-th_a <= s_a(x) and s_b(x) <= k-th_b <= s_b(y), and with
 * |s_a - s_b| <= bound, s_a(x) - s_a(y) <= bound(x) + bound(y) and likewise for b. So x lies within bound(x) + bound(y) of both k-ths, for
 * every such y, while nothing ties it to bound(k-th) where that is smaller. */
ls_swap ls_choice_swap(const ls_choice_pair *pair, const ls_choice_ends *ends, int64_t item);

/* ---- what queries add up to ---- */

typedef struct {
  int64_t count, chosen, equal, failing, rows, rows_failing;
  int64_t ties, near_ties;
  double use;
  ls_spread spread;            /* of near ties */
  bool has_worst, is_fault;    /* a fault stays before any near tie, the first of them before later ones */
  int64_t worst_row, worst_at; /* query, and entry or position */
  double a, b, bound;          /* the worst values */
  char note[LS_MAX_NOTE - 48]; /* of the first fault */
  bool out_of_memory;
} ls_choice_tally;

/* Records a fault; only the first is kept. false: another one was there before, whose note stays. */
bool ls_choice_fault(ls_choice_tally *tally, int64_t row, int64_t at, double a, double b, double bound);
void ls_choice_near(ls_choice_tally *tally, int64_t row, int64_t at, double use, double a, double b, double bound);
void ls_choice_tally_merge(ls_choice_tally *into, const ls_choice_tally *from); /* from: later queries */

/* Judges queries [from, end) into a tally; false: out of memory. */
typedef bool ls_choice_queries(void *arg, ls_choice_tally *tally, int64_t from, int64_t end);

/* All m queries, in pieces on the threads of ls_parallel, added up in their order. work: what one query costs, in elements looked at. */
void ls_choice_all_queries(ls_choice_tally *total, int64_t m, int64_t work, ls_choice_queries *judge, void *arg);

/* Adds words to the end of a text, as far as they fit. */
void ls_choice_say(char *buf, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

/* The whole result. axes: "row entry". one, many: what is chosen, and what `failing` counts: "entry", "entries". */
void ls_choice_result(ls_result *result, const ls_choice_tally *tally, const char *axes, const ls_place_names *names, const char *one,
                      const char *many);

/* ---- tensors ---- */

/* Whether t is a host tensor [m, n] of one of `types` (a set of 1u << ls_dtype); else *result says what it is instead. */
bool ls_choice_expect(ls_result *result, const char *what, const ls_tensor *t, unsigned types, int64_t m, int64_t n);

int64_t ls_line_int(const ls_line *line, int64_t i); /* of an integer type */

#define LS_FLOAT_TYPES (1u << LS_BF16 | 1u << LS_F16 | 1u << LS_F32 | 1u << LS_F64)

#endif
