#include <math.h>

#include "ls_spread.h"

/* A bin holds the uses above the edge of the one before, up to its own edge: steps of an eighth within an octave, so that no logarithm is
 * taken. */
static int use_bin(double use) {
  int exponent;
  if (!(use > ldexp(1, LS_USE_LEAST))) return 0;
  if (!(use <= ldexp(1, LS_USE_MOST))) return LS_USE_BINS - 1;
  const double fraction = frexp(use, &exponent); /* in [1/2, 1), use = fraction * 2^exponent */
  const int eighth = (int)ceil((2 * fraction - 1) * LS_USE_PER_OCTAVE);
  return (exponent - 1 - LS_USE_LEAST) * LS_USE_PER_OCTAVE + eighth;
}

static double use_edge(int bin) {
  if (bin == LS_USE_BINS - 1) return INFINITY;
  return ldexp(1 + (double)(bin % LS_USE_PER_OCTAVE) / LS_USE_PER_OCTAVE, LS_USE_LEAST + bin / LS_USE_PER_OCTAVE);
}

void ls_spread_add_use(ls_spread *spread, double use, int64_t n) { spread->use[use_bin(use)] += n; }

void ls_spread_add_steps(ls_spread *spread, uint64_t steps, double a, double b) {
  if (steps == UINT64_MAX) {
    spread->lonely++;
    return;
  }
  int bin = 0;
  while (bin < LS_STEP_BINS - 1 && steps > ls_spread_steps_edge(bin)) bin++;
  (b < a ? spread->below : spread->above)[bin]++;
}

void ls_spread_merge(ls_spread *into, const ls_spread *from) {
  for (int i = 0; i < LS_USE_BINS; i++) into->use[i] += from->use[i];
  for (int i = 0; i < LS_STEP_BINS; i++) into->below[i] += from->below[i], into->above[i] += from->above[i];
  into->lonely += from->lonely;
}

double ls_spread_use(const ls_spread *spread, int64_t count, double share, double most) {
  const double allowed = (1 - share) * (double)count; /* so many may exceed what is returned */
  double above = 0;
  for (int bin = LS_USE_BINS - 1; bin >= 0; bin--) {
    above += (double)spread->use[bin];
    if (above <= allowed || spread->use[bin] == 0) continue;
    const double edge = use_edge(bin);
    return edge < most ? edge : most;
  }
  return 0;
}

uint64_t ls_spread_steps_edge(int bin) { return bin >= LS_STEP_BINS - 1 ? UINT64_MAX : UINT64_C(1) << bin; }
