/* ls_compare: any two tensors or traces of one stage, judged. "a" is the side that is trusted more (golden before ref before a GPU path).
 *
 * PASS is always stated as the condition that must hold, so that a NaN fails by itself. Non-finite places are compared first, as sets. */
#ifndef LS_COMPARE_H
#define LS_COMPARE_H

#include "../layers/ls_layer.h"
#include "ls_detail.h"
#include "ls_spread.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  LS_PASS,
  LS_FAIL,
  LS_MISTRUSTED, /* agreed, but proves little: nothing compared, or almost only zeros */
  LS_MISSING,    /* one side should hold the stage and does not */
  LS_FUSED,      /* never exists by itself on this path; its group is judged */
  LS_SHARED,     /* both sides ran the same code */
  LS_NOT_HELD,   /* the fixture has no expected values for it */
  LS_NOT_RUN,    /* not reached: interrupted, deselected, or an earlier error */
  LS_VERDICTS
} ls_verdict;

const char *ls_verdict_name(ls_verdict verdict); /* "PASS", "FAIL", "MISTRUSTED", ... */

enum { LS_MAX_WHERE = 128, LS_MAX_NOTE = 320, LS_MAX_PATTERN = 32, LS_MAX_PATTERN_TEXT = 400 };

/* What tells a path that rounds otherwise (toward zero, say) from one whose sums differ: each of its elements is within the one step that
 * is allowed. Counted where steps and a bound are allowed and the type is rounded to; else all zero. The rule: docs/tolerances.md, "Bias".
 */
typedef struct {
  int64_t count, differing; /* finite elements; of them, not equal after rounding */
  double expected;          /* the most of them that may differ on average: sum of min(1, bound / step) */
  int64_t toward, away;     /* b one step nearer to zero than a, or further from it */
  /* Of a's values there, which of 256 classes of them occurred: a value that stands in many places rounds alike in all of them. */
  uint64_t toward_kinds[4], away_kinds[4];
} ls_bias;

/* Whether more elements differ than the bound explains, and too many of them in one direction: each by chance in less than 1e-9 of cases.
 */
bool ls_bias_found(const ls_bias *bias);

/* What a comparison came to. Mergeable over steps: counts add, the worst place is the one with the largest use. */
typedef struct {
  ls_verdict verdict;
  int64_t count;     /* elements compared: only those the operation wrote */
  int64_t zeros;     /* of them zero on both sides */
  int64_t bit_equal; /* of them equal in bits after rounding to the stage's type (-0 equals +0) */
  int64_t failing;   /* of them outside the bound, or non-finite on one side only */
  int64_t nonfinite; /* of them non-finite alike on both sides */
  double use;        /* largest |a - b| / bound of a finite element, the share of the bound in use; > 1 fails; 0 where all are equal */
  bool carries;      /* the bound holds errors carried in: what is used of it says nothing about the stage's own */
  bool merged;       /* then these two are of the comparisons that carry nothing: ls_result_own */
  double own_use;
  int64_t own_differing;
  uint64_t steps;             /* largest distance in steps of the stage's type */
  int64_t rows, rows_failing; /* a row: all elements of the last axis */
  ls_bias bias;               /* where it is found the verdict is LS_FAIL, though no element is outside its bound */
  int64_t ties, near_ties;    /* selections: entries or blocks that equal scores, or scores within their bounds, left open */
  ls_spread spread;           /* of the elements that differ; of a selection, of its near ties and wrong entries */
  /* the worst element: where failing > 0 the one with the largest use (a non-finite one first), else the one with the largest use */
  bool has_worst;
  int worst_ndim;
  int64_t worst_index[LS_MAX_DIMS];
  double worst_a, worst_b, worst_bound; /* as stored, not rounded; the bound in full, steps included */
  char where[LS_MAX_WHERE];             /* "layer 3 row 7 (position 2183, slot 7) head 2 channel 81" */
  char note[LS_MAX_NOTE];               /* ring findings, causes of a wrong selection, ties, non-finite origin; may be empty */
  char pattern[LS_MAX_PATTERN];         /* what it looks like (ls_explain.h), an identifier that stays: "rotation-position"; may be empty */
  char pattern_text[LS_MAX_PATTERN_TEXT]; /* the same in a sentence, with numbers */
} ls_result;

/* Positions for naming places: index i of an axis named "row" or "latent" is at position base + stride * i. They are named where any of
 * base, capacity and stride is above 0. capacity: of the ring that rows are written to, 0: none; a row's slot is named along with it.
 * newest: above 0, the axis "slot" is that ring and this the newest position in it: slot s holds newest - (newest - s) mod capacity. */
typedef struct {
  int64_t base, capacity, head_dim;
  int64_t newest;
  int64_t stride; /* positions from one row to the next; 0 counts as 1 */
} ls_place_names;

typedef struct {
  const ls_stage *stage;
  ls_dtype type;          /* the stage's type, in whose steps is counted */
  const ls_tensor *a, *b; /* any float types, same shape, else LS_FAIL with a note saying both shapes */
  const ls_tensor *bound; /* f32, same shape: what is allowed beyond stage->steps steps; NULL: 0 */
  double steps;           /* usually stage->steps; 0 with bound NULL asks for equality (-0 == +0) */
  bool has_tolerance;     /* an expected dataset's own atol, rtol: |a - b| <= atol + rtol |a| replaces bound and steps */
  double atol, rtol;
  ls_place_names names;
  int64_t first_layer; /* added to the index of the axis "layer" in names (a view of one layer) */
  /* u8, same shape: elements where it is 0 are neither compared nor counted (index scores outside the candidates). NULL: all are. */
  const ls_tensor *only;
  ls_map *map; /* filled with where the differences lie; NULL: not wanted. Heads are those of names.head_dim where the stage has them */
} ls_compare_args;

/* Judges b against a. Both are rounded to args->type first. Places that are not finite must be the same ones with the same meaning (any
 * NaN equals any NaN, an infinity its like). Elsewhere equal values pass, others where |a - b| <= limit with a finite
 *   limit = steps * step_at(type, max(|a|, |b|)) + bound     or, has_tolerance, atol + rtol |a| on the values as stored.
 * Never fails as a call: what cannot be compared is an LS_FAIL with a note. Runs on the threads of ls_parallel; the result does not
 * depend on their number. */
void ls_compare_tensor(ls_result *result, const ls_compare_args *args);

/* What all but one in a thousand of the elements stay within, in shares of their bounds; see ls_spread_use. */
double ls_result_use_999(const ls_result *result);

void ls_result_init(ls_result *result); /* nothing compared yet: LS_NOT_RUN, the neutral element of a merge */

/* Adds a step's (or a drafter layer's) result. LS_FAIL stays; then LS_MISSING; PASS or MISTRUSTED is judged anew on the summed counts;
 * SHARED counts never mix with others; a verdict that compared nothing (FUSED, NOT_HELD, NOT_RUN) yields to one that did. */
void ls_result_merge(ls_result *into, const ls_result *from);

/* Of the comparisons whose bound is the stage's own: the largest use, and how many elements differ. */
void ls_result_own(const ls_result *result, double *use, int64_t *differing);

/* The verdict of counts: FAIL where an element failed, or all together are biased (then note and pattern say so); MISTRUSTED where none was
 * compared or LS_MISTRUST_SHARE of them were zero on both sides; else PASS. */
void ls_result_judge(ls_result *result);

/* Above this share of zeros agreement proves little: with 99 of 100 elements zero on both sides, a kernel that writes zeros, or that
 * does not write, is told apart by one element in a hundred, and one that misses those few passes. Real activations hold next to none. */
#define LS_MISTRUST_SHARE 0.99

/* ---- selections (attn_v41, layers.md 8) ---- */

typedef struct {
  const ls_tensor *idx;   /* i32 [m, k]: compressed entries alone, with the offset added, -1 last */
  const ls_tensor *score; /* the float scores [m, n] that it was chosen by */
  /* f32 [m, n]: what a score may differ by, in all, from the other side's; NULL: nothing. Where both sides have one, the larger counts. Not
   * used where one side is judged by its own scores, which is exact. */
  const ls_tensor *bound;
} ls_selection;

typedef struct {
  int64_t m, n, k;
  int64_t offset;           /* added to every compressed position */
  int64_t start_pos, ratio; /* query t sees (start_pos + t + 1) / ratio rows */
  const ls_tensor *mask;    /* u8 [m, n]: selects inside it alone; NULL: no mask */
  bool lower_wins;          /* among equal scores the lower position must win (our paths); false: any choice (foreign values) */
} ls_select_rule;

/* Judges a selection by the scores of the path that made it. Passes where every query's entries are -1 or offset + position, in range,
 * visible, inside the mask, strictly ascending, -1 last, as many as there are eligible positions (at most k), and no position left out has
 * a better score than one that is in (NaN ranks first; -0 equals +0). count: entries, m * k; failing: wrong entries; MISTRUSTED where no
 * query chose anything (all of them then count as zeros). note names the first fault by cause: "query 3 (position 2051) entry 5: position
 * 17 is in the future (6 visible)": out of range, in the future, duplicate, wrong offset base (all entries of all queries off by one
 * constant), -1 before a valid entry, not ascending, missing, inferior by x to position y, outside the candidates, a score of -inf, wrong
 * winner of a tie; a passing one says how many entries were chosen among equals ("4 ties"). worst: the first fault; worst_a, worst_b: the
 * entry expected (the lower position winning ties) and found, or of an inferior one the score of the one left out and its own. O(n + k) a
 * query, and memory for 17 bytes times n a thread. */
void ls_compare_selection(ls_result *result, const ls_selection *s, const ls_select_rule *rule);

/* Judges b's selection against a's, each made by scores of its own. Beside what ls_compare_selection asks of the form of each (but not that
 * it is the best by its scores): an entry that only one side holds must have, on both sides, a score within the sum of both bounds, the
 * entry's and the k-th's, of that side's k-th, the lowest score it chose. (The bound of what it was swapped with stands in for the k-th's
 * where that is larger, see compare_choice.h.) Such a pair passes as a near tie, or as a tie where all of its scores equal the k-th; note
 * counts both. Where a side holds fewer than k there is no k-th, and the sets must be the same. use: the largest share of that sum in use;
 * worst_a, worst_b: the k-th score and the entry's, worst_bound the sum. */
void ls_compare_selections(ls_result *result, const ls_selection *a, const ls_selection *b, const ls_select_rule *rule);

/* The scores of one query around the last place, on both sides. Says nothing (n 0) where there is no score. */
void ls_selection_view(ls_choice_view *view, const ls_selection *a, const ls_selection *b, const ls_select_rule *rule, int64_t row);

typedef struct {
  int64_t block, topk_blocks;
} ls_candidate_rule;

/* The same for a candidate mask u8 [m, n] (0 or 1 in every element; idx of ls_selection is the mask): whole blocks of visible positions,
 * the newest visible one's among them, the best topk_blocks by their best score, none whose score is -inf. rule->k and rule->mask are
 * ignored. */
void ls_compare_candidates(ls_result *result, const ls_selection *s, const ls_select_rule *rule, const ls_candidate_rule *blocks);
void ls_compare_candidate_masks(ls_result *result, const ls_selection *a, const ls_selection *b, const ls_select_rule *rule,
                                const ls_candidate_rule *blocks);

/* Integers that must be equal, element by element (window_idx, idx). The first that differs is named. No value counts as zero. */
void ls_compare_indices(ls_result *result, const ls_stage *stage, const ls_tensor *a, const ls_tensor *b, const ls_place_names *names);

/* ---- rings ---- */

/* What each slot of a ring should hold, and rows seen so far, so that a wrong slot can be named. One for K and V together; a layer with one
 * ring (attn_v41) has a history of its own, with layers 1, every v NULL and is_v false. Where layers is 1 a tensor may leave that axis out.
 * Rows are kept up to a fixed memory; the oldest go first. */
typedef struct ls_ring_history ls_ring_history;

ls_status ls_ring_history_new(ls_ring_history **history, int64_t layers, int64_t capacity, int64_t kv_dim, ls_error *err);
void ls_ring_history_free(ls_ring_history *history);

/* A step wrote rows at positions [base, base + rows). k, v [layers, rows, kv_dim] as written by the trusted side. kind: "draft_write" or
 * "context_write", a string that outlives the history. v NULL: there is no V. bound_k, bound_v: what a right row may differ by on another
 * path (NULL: nothing). Of more rows than the capacity the last ones stay. */
ls_status ls_ring_history_write(ls_ring_history *history, int64_t step, const char *kind, int64_t base, int64_t rows, const ls_tensor *k,
                                const ls_tensor *v, const ls_tensor *bound_k, const ls_tensor *bound_v, ls_error *err);

/* Also worth recognising in a slot: an intermediate of this step ("k_proj", "k_norm": a later stage was skipped). Forgotten at the next
 * ls_ring_history_write. Of more rows than the capacity the last ones are kept. */
ls_status ls_ring_history_intermediate(ls_ring_history *history, const char *stage, int64_t base, const ls_tensor *rows, ls_error *err);

/* Where the rings stand before the first step (a fixture's /state): k_ring, v_ring [layers, capacity, kv_dim], expected unchanged. Slot s
 * is taken to hold the newest position below cursor that lives there. A slot of zeros in every layer counts as never written. v_ring NULL:
 * there is no V. */
ls_status ls_ring_history_state(ls_ring_history *history, const ls_tensor *k_ring, const ls_tensor *v_ring, int64_t cursor, ls_error *err);

/* Places are named by head and channel instead of by element of kv_dim. */
void ls_ring_history_heads(ls_ring_history *history, int64_t head_dim);

/* Comparisons until ls_ring_history_cascaded are of rings that came from one state by one write of positions base .. base + rows - 1: its
 * rows may differ by bound_k, bound_v ([layers, rows, kv_dim] f32, dense; NULL: by nothing; good until then), all others not at all. */
void ls_ring_history_isolated(ls_ring_history *history, int64_t base, int64_t rows, const ls_tensor *bound_k, const ls_tensor *bound_v);
void ls_ring_history_cascaded(ls_ring_history *history);

size_t ls_ring_history_bytes(const ls_ring_history *history); /* of all rows kept */

/* Judges a whole ring [layers, capacity, kv_dim] of side b against side a (or, a NULL, against what the history says), slot by slot. The
 * bound of a slot is that of the row the history says it holds: stage->steps, or one step where a stage with is_ring has none (it stores
 * what its row's stage rounded once), and the row's bound; equality where the row came without one. note: "slot 3 holds position 2171 (step
 * 12), expected 2179: stale, not overwritten". count takes only slots that some operation wrote; slots that none wrote must be zero on both
 * sides. only_base/only_rows (rows > 0): judge only the slots of [only_base, only_base + only_rows). */
void ls_compare_ring(ls_result *result, const ls_ring_history *history, const ls_stage *stage, ls_dtype type, bool is_v, const ls_tensor *a,
                     const ls_tensor *b, int64_t only_base, int64_t only_rows);

/* The same, and what every slot holds: of several layers the first wrong one's. */
void ls_compare_ring_slots(ls_result *result, ls_ring_view *view, const ls_ring_history *history, const ls_stage *stage, ls_dtype type,
                           bool is_v, const ls_tensor *a, const ls_tensor *b);

/* ---- write-set ---- */

/* Compares two state traces of one path around one operation, bit for bit: only ring slots of [base, base + rows) may differ, and only
 * what `may_change` names (NULL-terminated: "capture", "cursor", ...). LS_PASS, or LS_FAIL with the first byte's place in note. */
void ls_compare_write_set(ls_result *result, const ls_trace *before, const ls_trace *after, int64_t base, int64_t rows, int64_t capacity,
                          const char *const *may_change);

/* Two traces, every tensor of `names` (NULL-terminated; NULL: all of a) bit for bit. LS_FAIL names the first difference. */
void ls_compare_same_bytes(ls_result *result, const ls_trace *a, const ls_trace *b, const char *const *names, const ls_place_names *place);

#ifdef __cplusplus
}
#endif
#endif
