/* explain_internal: what the files of the diagnosis share; private to compare/. explain.c holds the order in which patterns are tried,
 * explain_subject.c what all of them look at, the others the patterns:
 *   explain_values.c    what needs the two sides alone: other rows, other channels, a factor, a bit; values of other stages and steps
 *   explain_rotation.c  RoPE by another angle, other pairs, another table
 *   explain_products.c  norms, grids and GEMMs, computed another way
 *   explain_attn.c      scores and attention over other rows
 *   explain_choice.c    index lists, selections and masks
 *   explain_places.c    where, and no more */
#ifndef LS_EXPLAIN_INTERNAL_H
#define LS_EXPLAIN_INTERNAL_H

#include "ls_explain.h"

/* ---- the failing stage ---- */

enum { LS_AT_PASSES = 0, LS_AT_FAILS = 1, LS_AT_UNDEFINED = 2 };

/* Rows are all axes but the last. A cell is a head of a row where the stage has heads, else the row: what a fault takes as a whole. */
typedef struct {
  const ls_explain_args *args;
  int64_t rows, width, cell, cells; /* cells a row, of `cell` elements each */
  float *a, *b, *rest;              /* [rows, width], rounded to the stage's type; rest: what is allowed beyond the steps */
  uint8_t *at;                      /* [rows, width] */
  uint8_t *cell_fails;              /* [rows, cells] */
  uint8_t *row_fails;               /* [rows] */
  int64_t failing, lonely;          /* lonely: of the failing ones, not finite on one side only */
  int64_t rows_failing;
} ls_subject;

/* false: out of memory, too large, or the comparison is not one of elements. */
bool ls_subject_open(ls_subject *s, const ls_explain_args *args);
void ls_subject_close(ls_subject *s);

/* Whether side b's element i is what was predicted: within steps and `rest`. */
bool ls_subject_meets(const ls_subject *s, int64_t i, double predicted, double rest);

int64_t ls_subject_position(const ls_subject *s, int64_t row); /* of a row; the row itself where positions are not known */

/* A stage of the step, or its input, as [rows, any]: the view of the subject's layer where it has that axis. false: not held, or of other
 * rows (rows -1: of any). */
bool ls_subject_stage(ls_tensor *t, const ls_subject *s, const char *stage, int64_t rows);

const ls_tensor *ls_subject_weight(const ls_subject *s, const char *name); /* of the subject's layer ("wq_a"), or of none ("fc") */

const ls_attn_config *ls_subject_attn(const ls_subject *s); /* NULL: another layer, or no step is known */

/* ---- how well a prediction does ---- */

/* evidence, in bits: how much nearer the path's values lie to the prediction than to the right values, log2 of the quotient of the two
 * distances, an element each, between -8 and 8 (3 on a grid, where a value is one of a few), each distance no less than the rounding with
 * which it is known. A value that has nothing to do with the prediction would come n times nearer to it about once in n times. What was
 * found by trying `tries` parameters needs log2(tries) more. */
typedef struct {
  int64_t failing, explained; /* elements that fail; of them, what the prediction meets */
  int64_t checked, agree;     /* all elements of failing cells */
  double evidence, tries;
} ls_fit;

double ls_fit_bits(const ls_fit *fit); /* evidence less what trying took */

void ls_fit_add(ls_fit *fit, const ls_subject *s, int64_t i, double predicted, double rest);
bool ls_fit_holds(const ls_fit *fit);   /* 99% of both; whether it could be chance is another matter: ls_fit_bits */
double ls_fit_share(const ls_fit *fit); /* of the checked elements that agree */

/* Predicts row `row` [width] into y; may lower or raise rest [width], which comes as the subject's. false: it says nothing about the row.
 */
typedef bool ls_predict_fn(void *arg, const ls_subject *s, int64_t row, float *y, float *rest);

/* Every failing cell of every failing row against the prediction; gives up as soon as it cannot hold. true: it holds. */
bool ls_fit_rows(ls_fit *fit, const ls_subject *s, ls_predict_fn *predict, void *arg, double tries);

/* ---- the best pattern so far ---- */

typedef struct {
  ls_pattern *pattern;
  double share; /* of the best so far; 0: none */
} ls_best;

/* A fit of a pattern that counts instead of predicting values; certain. */
static inline ls_fit ls_fit_counted(void) { return (ls_fit){.checked = 1, .agree = 1, .evidence = 2 * LS_PATTERN_BITS, .tries = 1}; }

/* Takes it where it is better than the best so far: one that is no chance before one that may be, then the larger share, among those that
 * may be chance the one with more evidence. Of equals the first stays. `text` comes after the place: "8 of 16 rows differ: ...". */
__attribute__((format(printf, 5, 6))) void ls_best_offer(ls_best *best, const ls_subject *s, const ls_fit *fit, const char *id,
                                                         const char *format, ...);
static inline bool ls_best_is_certain(const ls_best *best) { return best->share >= 1 && best->pattern->bits >= LS_PATTERN_BITS; }

/* Where it fails, in words: "8 of 16 rows differ, all with position >= 2176, in head 3". Returns buf. */
char *ls_place_words(char *buf, size_t size, const ls_subject *s);

/* "" or "s". */
static inline const char *ls_plural(int64_t n) { return n == 1 ? "" : "s"; }

/* ---- patterns ---- */

/* Whether the path's values are what its own inputs make of them: then what is wrong came with these, and the stage has no pattern. */
bool ls_explain_inherited(const ls_subject *s);

void ls_explain_nonfinite(const ls_subject *s, ls_best *best);
void ls_explain_other_values(const ls_subject *s, ls_best *best); /* of other stages, steps, or none at all */
void ls_explain_moved(const ls_subject *s, ls_best *best);        /* rows, heads, channels in another place */
void ls_explain_numbers(const ls_subject *s, ls_best *best);      /* a factor, a bit, a sign */
void ls_explain_rotation(const ls_subject *s, ls_best *best);
void ls_explain_norm(const ls_subject *s, ls_best *best);
void ls_explain_grid(const ls_subject *s, ls_best *best);
void ls_explain_gemm(const ls_subject *s, ls_best *best);
void ls_explain_score(const ls_subject *s, ls_best *best);
void ls_explain_attention(const ls_subject *s, ls_best *best);
void ls_explain_place(const ls_subject *s, ls_best *best);

void ls_explain_indices(const ls_explain_args *args, ls_pattern *pattern); /* index lists and selections */
void ls_explain_mask(const ls_explain_args *args, ls_pattern *pattern);

/* ---- how a stage comes about ---- */

typedef enum { LS_MADE_BY_GEMM, LS_MADE_BY_NORM, LS_MADE_BY_ROPE, LS_MADE_BY_GRID, LS_MADE_OTHERWISE } ls_made_by;

typedef struct {
  ls_made_by by;
  const char *stage, *input, *weight; /* weight: NULL where it has none */
  int64_t width;                      /* norm: elements of a norm; RoPE: of a head */
  int64_t turned;                     /* RoPE: elements of a head that turn, the last ones */
  bool neox, inverse;                 /* RoPE */
  int grid;                           /* an ls_grid */
  int64_t groups;                     /* GEMM */
} ls_recipe;

/* false: LS_MADE_OTHERWISE, or the config is not known. */
bool ls_recipe_find(ls_recipe *recipe, const ls_subject *s, const char *stage);

/* The group that ends with the subject's stage: step[0] is the last of its kind that side b could have got wrong, step[n - 1] the stage
 * itself. Those between are fused away on side b. 0: there is none of that kind. */
enum { LS_CHAIN_MOST = 4 };
int ls_recipe_chain(ls_recipe chain[LS_CHAIN_MOST], const ls_subject *s, ls_made_by kind);

/* What the group makes of y [width], the right values of step[0], which are overwritten; each stage rounded to the activation type. rest:
 * as in ls_predict_fn. */
bool ls_recipe_finish(const ls_recipe *chain, int n, const ls_subject *s, int64_t row, float *y, float *rest);

/* freq [turned / 2] of a rotation of the step, as layers.md has it; false: the config is not known. */
bool ls_recipe_freq(float *freq, const ls_recipe *rope, const ls_subject *s);

/* One row through a right step of a group, in place. */
bool ls_recipe_apply(const ls_recipe *recipe, const ls_subject *s, int64_t row, float *y);

#endif
