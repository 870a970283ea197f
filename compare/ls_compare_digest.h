/* ls_compare_digest: a stage against what a digest (core/ls_digest.h) says of it, row by row. */
#ifndef LS_COMPARE_DIGEST_H
#define LS_COMPARE_DIGEST_H

#include "../core/ls_digest.h"
#include "ls_compare.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const ls_stage *stage;
  ls_dtype type;
  const ls_tensor *a, *b;               /* values of a side; NULL: only its digest is there. Not both */
  const ls_digest *digest_a, *digest_b; /* of the side whose values are NULL; hash and stats have the shape of the rows */
  const ls_tensor *bound;               /* f32, of the shape of the values; NULL: 0 */
  const ls_tensor *only;                /* u8, likewise: what is defined. The digest was made with the same one */
  double steps;
  bool has_tolerance;
  double atol, rtol;
  ls_place_names names;
  int64_t first_layer;
} ls_digest_args;

/* A row whose hashes are equal is equal in bits. Any other is judged by its statistics: with l the largest difference that
 * ls_compare_tensor would let pass in an element, the sums, and the sums with signs, must lie within the sum of l of each other, the least
 * and the largest element within the largest l, the sums of squares within the sum of 2 |v| l + l^2; numbers and the first place of NaN
 * and infinities must be the same. Each follows from what ls_compare_tensor asks, so no row fails that passes there; a row whose elements
 * are wrong within those sums can pass here. Where neither side has values |v| is the largest of the row.
 *
 * use: the largest share of those. failing: all elements of the rows that fail. worst: the row, and the statistic that uses most, on both
 * sides. note: how many rows were judged by statistics, or which one fails. Never fails as a call. */
void ls_compare_digest(ls_result *result, const ls_digest_args *args);

#ifdef __cplusplus
}
#endif
#endif
