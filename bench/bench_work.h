/* bench_work: what a step has to move and to multiply, counted from its shapes. */
#ifndef BENCH_WORK_H
#define BENCH_WORK_H

#include "../layers/ls_layer.h"

typedef struct {
  double bytes; /* read and written once each: weights, inputs, rings, cached rows and keys that the step needs, results */
  double flops; /* two a multiply-add: products, scores, attention over the entries that are not empty */
} bench_work;

/* weight_bytes: of a GEMM weight of the activation type on the path that is timed (cuda 2, ref 4); the compressor's above ratio 1 are
 * float32 everywhere. What is recomputed or read twice does not count, nor does what stays in a cache: a floor. A step that is not timed
 * (no context_write, no forward): zeros. */
bench_work bench_count_work(const ls_config *config, const ls_step *step, int weight_bytes);

#endif
