/* compare_tally: the element-by-element core of compare_tensor.c and compare_ring.c, private to compare/. Sums of one run of elements can
 * be merged with those of another, so that threads work apart and the sum is formed in a fixed order. */
#ifndef LS_COMPARE_TALLY_H
#define LS_COMPARE_TALLY_H

#include "ls_compare.h"

/* n elements of one side, `stride` apart. */
typedef struct {
  ls_dtype dtype;
  const void *data;
  int64_t stride;
} ls_line;

typedef struct {
  ls_dtype type; /* in whose steps is counted */
  double steps;
  bool has_tolerance;
  double atol, rtol;
  bool bias; /* count for ls_bias */
} ls_rule;

typedef struct {
  int64_t count, zeros, bit_equal, failing, nonfinite;
  int64_t lonely; /* of the failing ones: not the same non-finite value on both sides */
  double use;
  uint64_t steps;
  int64_t rows, rows_failing;
  bool has_worst, worst_lonely;
  int64_t worst_at; /* flat index as the caller counts */
  double worst_a, worst_b, worst_bound;
  ls_bias bias;
} ls_tally;

/* The line that starts at flat element `flat` of t's last axis. */
ls_line ls_line_of(const ls_tensor *t, int64_t flat);
double ls_line_get(const ls_line *line, int64_t i);

/* Compares a row of n elements, of which the first has the flat index `at`. bound: NULL, or f32 elements. Counts one row. */
void ls_tally_row(ls_tally *tally, const ls_rule *rule, const ls_line *a, const ls_line *b, const ls_line *bound, int64_t n, int64_t at);

/* The same of the elements where only is not 0; a row without any is not counted. */
void ls_tally_row_only(ls_tally *tally, const ls_rule *rule, const ls_line *a, const ls_line *b, const ls_line *bound, const ls_line *only,
                       int64_t n, int64_t at);

/* Elements of a row that are not zero (a NaN is not zero); *first: the first of them. */
int64_t ls_line_nonzeros(const ls_line *line, int64_t n, int64_t *first);

void ls_tally_merge(ls_tally *into, const ls_tally *from);

void ls_bias_merge(ls_bias *into, const ls_bias *from);

/* Words for a bias that was found, into note and pattern. */
void ls_bias_say(ls_result *result);

/* Counts and worst values into a result whose verdict is then judged; the caller names the place. */
void ls_tally_result(ls_result *result, const ls_tally *tally);

/* "4 ties, 2 near ties" into the note; nothing where there are none. */
void ls_note_ties(ls_result *result);

/* The multi-dimensional index of a flat one. */
void ls_unflatten(int64_t index[LS_MAX_DIMS], int64_t flat, int ndim, const int64_t *dim);

/* Names a place: a word of `axes` and an index per axis. Words beyond the rank are dropped from the front, except that a leading "layer" is
 * then named as first_layer. slot_position: the position that the slot of axis "slot" should hold; -1: unknown. */
typedef struct {
  const char *axes; /* NULL: "[1, 2, 3]" */
  int ndim;
  const int64_t *index;
  const ls_place_names *names; /* NULL: none */
  int64_t first_layer;
  bool heads; /* the last axis is heads x head_dim */
  int64_t slot_position;
} ls_place_text_args;

void ls_place_text(char *buf, size_t size, const ls_place_text_args *args);

#endif
