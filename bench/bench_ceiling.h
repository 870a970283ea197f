/* bench_ceiling: what the machine itself gives, and how long a step would take at that. */
#ifndef BENCH_CEILING_H
#define BENCH_CEILING_H

#include "../layers/ls_path.h"
#include "bench_work.h"

typedef struct {
  double read_seconds; /* to read the work's bytes once, measured at that size */
  double flops;        /* FLOP/s of a large product */
  double floor;        /* seconds: the larger of reading the bytes and multiplying at that rate */
  bool memory_bound;   /* of the two the read is the larger */
} bench_ceiling;

/* Measures on the path's own device, or on this process's cores (ls_threads() of them) where the path has none: a read of the bytes, and
 * products of 160 rows by 5120 x 5120 in float32, the reference's. Sizes within 5% of one that was measured before reuse that figure,
 * scaled. */
ls_status bench_measure_ceiling(bench_ceiling *ceiling, const ls_path *path, const ls_path_options *options, const bench_work *work,
                                ls_error *err);

#endif
