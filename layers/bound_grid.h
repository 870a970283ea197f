/* bound_grid: how far apart two round trips through fp8 or fp4 (layers.md, "Shared definitions") can be when what they round may differ. */
#ifndef LS_BOUND_GRID_H
#define LS_BOUND_GRID_H

#include "ls_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum {
  LS_GRID_FP8,     /* e4m3, blocks of 32, power-of-two scales */
  LS_GRID_FP4,     /* e2m1, blocks of 32, power-of-two scales */
  LS_GRID_FP4_E4M3 /* e2m1, blocks of 16, e4m3 scales */
} ls_grid;

int64_t ls_grid_block(ls_grid grid); /* 32, 32, 16 */

/* One block: bound [n], x [n] values, total [n] what each may be off by.
 *
 * A round trip is deterministic, so equal values give equal results and total = 0 gives 0. Else both sides have a largest magnitude in
 * [max(|x| - total), max(|x| + total)], hence a scale between those of both ends (a scale grows with the magnitude), and for a given scale
 * the result grows with x, so it lies between those of x - total and x + total. The bound is the distance between the lowest and the
 * highest result over all those scales: 0 unless a midpoint of the grid, or another scale, is within reach.
 *
 * A block that holds a non-finite value is NaN on both sides: 0. One that may turn non-finite: infinite, which allows nothing. */
void ls_bound_grid(float *bound, const double *x, const double *total, int64_t n, ls_grid grid);

#ifdef __cplusplus
}
#endif
#endif
