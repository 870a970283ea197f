/* ls_spread: how the differences of a comparison are spread, in a fixed number of bins: over shares of the bound in use, and over signed
 * distances in steps. Counts alone, so that pieces, drafter layers and steps add up in any order to the same. Elements without a
 * difference are in no bin: who asks says how many there are in all. */
#ifndef LS_SPREAD_H
#define LS_SPREAD_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Shares of the bound: eight bins an octave from 2^LS_USE_LEAST to 2^LS_USE_MOST (an edge is at most an eighth above what it stands for),
 * one bin for all that is smaller, one for what is larger or infinite. */
enum { LS_USE_LEAST = -13, LS_USE_MOST = 3, LS_USE_PER_OCTAVE = 8, LS_USE_BINS = (LS_USE_MOST - LS_USE_LEAST) * LS_USE_PER_OCTAVE + 2 };

/* Distances in steps: 1, 2, 3-4, 5-8, ... 513-1024, more; once where b lies below a, once where it lies above. */
enum { LS_STEP_BINS = 12 };

typedef struct {
  int64_t use[LS_USE_BINS];
  int64_t below[LS_STEP_BINS], above[LS_STEP_BINS];
  int64_t lonely; /* not finite on one side only, or otherwise: no distance */
} ls_spread;

void ls_spread_add_use(ls_spread *spread, double use, int64_t n);                /* use > 0, may be infinite */
void ls_spread_add_steps(ls_spread *spread, uint64_t steps, double a, double b); /* steps > 0; UINT64_MAX: no distance */
void ls_spread_merge(ls_spread *into, const ls_spread *from);

/* What `share` of `count` elements do not exceed, 0.999 for the 99.9th percentile: the upper edge of a bin, and never above `most`, the
 * largest use. 0 where more than that share have no difference, or count is 0. */
double ls_spread_use(const ls_spread *spread, int64_t count, double share, double most);

/* The largest distance of a bin: 1, 2, 4, ... 1024; UINT64_MAX of the last. */
uint64_t ls_spread_steps_edge(int bin);

#ifdef __cplusplus
}
#endif
#endif
