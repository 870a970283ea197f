/* ls_random: the generator of fixture-format.md ("Generated tensors"), random access by element, the same on every machine. */
#ifndef LS_RANDOM_H
#define LS_RANDOM_H

#include <stddef.h>
#include <stdint.h>

#include "ls_tensor.h"

#ifdef __cplusplus
extern "C" {
#endif

uint64_t ls_fnv1a64(const void *bytes, size_t n);

/* z of element i (0-based) for a seed = fnv1a64(name). */
uint64_t ls_splitmix64_at(uint64_t seed, uint64_t i);

/* Element i as the format says, in float64 before any rounding: (2u - 1) * scale + offset, u = (z >> 40) / 2^24. */
double ls_generated_at(uint64_t seed, uint64_t i, double scale, double offset);

/* Fills a dense host tensor of a float type with elements 0 .. count - 1 of the sequence named name, rounded to float32 and then to the
 * storage type, nearest-even. Runs on the threads of ls_parallel; the bytes do not depend on their number. */
void ls_generate(const ls_tensor *t, const char *name, double scale, double offset);

/* The same with elements from .. from + count - 1. */
void ls_generate_from(const ls_tensor *t, const char *name, int64_t from, double scale, double offset);

/* A small sequential generator for scenarios: state advances by one draw. */
typedef struct {
  uint64_t seed, i;
} ls_random;
uint64_t ls_random_u64(ls_random *r);
int64_t ls_random_range(ls_random *r, int64_t low, int64_t high); /* uniform in [low, high], low <= high */
double ls_random_unit(ls_random *r);                              /* [0, 1) */

#ifdef __cplusplus
}
#endif
#endif
