/* ls_explain: what a failing stage looks like it did wrong: one pattern, with numbers, or none.
 *
 * A wrong diagnosis is worse than none. Each pattern is a statement that predicts values, and it is named only where the prediction is met
 * by at least 99% of the elements that fail and by 99% of those that pass in the same heads of the same rows, within the bound that the
 * stage itself is judged by; `bits` says whether that could be chance. Patterns that say no more than where (a row, a head, every n-th
 * channel) come last, and only where nothing else holds. docs/tolerances.md lists them all. */
#ifndef LS_EXPLAIN_H
#define LS_EXPLAIN_H

#include "ls_compare.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Below this many bits of evidence a pattern may be chance (one in 2^bits): too few elements fail. It is to be named only where others of
 * the same stage, in other steps, show the same and they come to as much together. */
#define LS_PATTERN_BITS 20.0

typedef struct {
  char id[LS_MAX_PATTERN];        /* "rotation-position"; empty: no pattern */
  char text[LS_MAX_PATTERN_TEXT]; /* one sentence, with numbers */
  double bits;
} ls_pattern;

/* Values of the stage at an earlier step, of the shape that the comparison has (a view of one layer where it has one). */
typedef struct {
  int64_t step;
  const ls_tensor *values;
} ls_explain_earlier;

typedef struct {
  ls_compare_args compare; /* what was compared, and failed */
  /* What side b's stage read: config, weights, step, values; before, after (attn_v41). NULL: only patterns that need none of it. */
  const ls_bound_args *step;
  const ls_trace *bounds; /* by stage name, as compare.bound was made; NULL: nothing is carried */
  /* Whether side b never has the stage by itself, so that a fault in it shows at the end of its group. NULL: it has them all. */
  bool (*fused)(void *arg, const char *stage);
  void *fused_arg;
  /* Of a stage that is state: the same tensor before the step, of side b and of the right one; NULL: unknown. */
  const ls_tensor *held, *held_right;
  const ls_explain_earlier *earlier; /* newest first */
  int n_earlier;
  const ls_tensor *score; /* of a selection or mask: the scores that it was made by; NULL: unknown */
  bool a_is_expected;     /* side a is a fixture's expected values, with which something may be wrong: what somebody's layer did */
  bool inherits;          /* what it read may be wrong already: where it fails then says nothing about the stage */
} ls_explain_args;

/* Host tensors. Never fails as a call: where memory does not suffice, or nothing is recognised, pattern->id is empty. On the caller's
 * thread; at most LS_EXPLAIN_MOST elements are looked at, a larger stage gets no pattern. */
void ls_explain(const ls_explain_args *args, ls_pattern *pattern);

#define LS_EXPLAIN_MOST ((int64_t)1 << 24)

#ifdef __cplusplus
}
#endif
#endif
