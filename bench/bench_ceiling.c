#include "bench_ceiling.h"

#include <math.h>
#include <stdlib.h>

#include "../core/ls_clock.h"
#include "../core/ls_gemm.h"
#include "../core/ls_parallel.h"

/* ---- the cores ---- */

typedef struct {
  const uint64_t *words;
  int64_t count, pieces;
  uint64_t *folded; /* [pieces] */
} reading;

static void read_piece(void *arg, int64_t piece) {
  const reading *r = arg;
  const int64_t from = r->count * piece / r->pieces, to = r->count * (piece + 1) / r->pieces;
  uint64_t folded = 0;
  for (int64_t i = from; i < to; i++) folded |= r->words[i];
  r->folded[piece] = folded;
}

enum { RUNS = 5, ROWS = 160, SIDE = 5120 };

/* The smallest of a few. What fits a cache is read from there after the first: so are a step's own small tensors. */
static ls_status read_on_cores(double bytes, double *seconds, ls_error *err) {
  const int64_t count = (int64_t)(bytes / sizeof(uint64_t)) + 1;
  reading r = {.count = count, .pieces = 4 * (int64_t)ls_threads()};
  uint64_t *words = malloc((size_t)count * sizeof *words);
  r.folded = calloc((size_t)r.pieces, sizeof *r.folded);
  ls_status status = LS_OK;
  if (words == NULL || r.folded == NULL) status = ls_fail(err, LS_INTERNAL, "out of memory: %.0f bytes to measure a read of", bytes);
  for (int64_t i = 0; status == LS_OK && i < count; i++) words[i] = 0; /* pages of its own */
  r.words = words;
  *seconds = (double)INFINITY;
  for (int run = 0; status == LS_OK && run < RUNS; run++) {
    const double started = ls_clock_seconds();
    ls_parallel_for(r.pieces, read_piece, &r);
    *seconds = fmin(*seconds, ls_clock_seconds() - started);
    for (int64_t i = 0; i < r.pieces; i++) { /* used, so that the read is not dropped */
      if (r.folded[i] != 0) status = ls_fail(err, LS_INTERNAL, "a read of zeros found something else");
    }
  }
  free(words);
  free(r.folded);
  return status;
}

static ls_status multiply_on_cores(double *flops, ls_error *err) {
  static double measured;
  *flops = measured;
  if (measured > 0) return LS_OK;
  float *x = malloc(sizeof *x * ROWS * SIDE), *w = malloc(sizeof *w * SIDE * SIDE), *y = malloc(sizeof *y * ROWS * SIDE);
  ls_status status = LS_OK;
  if (x == NULL || w == NULL || y == NULL)
    status = ls_fail(err, LS_INTERNAL, "out of memory for the product that the cores are measured by");
  for (int64_t i = 0; status == LS_OK && i < (int64_t)ROWS * SIDE; i++) x[i] = (float)(i % 13) - 6;
  for (int64_t i = 0; status == LS_OK && i < (int64_t)SIDE * SIDE; i++) w[i] = (float)(i % 7) - 3;
  for (int run = 0; status == LS_OK && run < RUNS; run++) {
    const double started = ls_clock_seconds();
    ls_gemm_f32(y, x, w, ROWS, SIDE, SIDE, SIDE, SIDE, SIDE);
    measured = fmax(measured, 2.0 * ROWS * SIDE * SIDE / (ls_clock_seconds() - started));
  }
  free(x);
  free(w);
  free(y);
  *flops = measured;
  return status;
}

/* ---- what was measured before ---- */

enum { KEPT = 64 };
static struct {
  const ls_path *path;
  double bytes, read_seconds, flops;
} kept[KEPT];
static int n_kept;

ls_status bench_measure_ceiling(bench_ceiling *ceiling, const ls_path *path, const ls_path_options *options, const bench_work *work,
                                ls_error *err) {
  int found = -1;
  for (int i = 0; i < n_kept && found < 0; i++) {
    if (kept[i].path == path && fabs(kept[i].bytes / work->bytes - 1) < 0.05) found = i;
  }
  if (found >= 0) {
    ceiling->read_seconds = kept[found].read_seconds * work->bytes / kept[found].bytes;
    ceiling->flops = kept[found].flops;
  } else {
    if (path->ceilings != NULL) {
      LS_TRY(path->ceilings(options, work->bytes, &ceiling->read_seconds, &ceiling->flops, err));
    } else {
      LS_TRY(read_on_cores(work->bytes, &ceiling->read_seconds, err));
      LS_TRY(multiply_on_cores(&ceiling->flops, err));
    }
    if (n_kept < KEPT) {
      kept[n_kept].path = path;
      kept[n_kept].bytes = work->bytes;
      kept[n_kept].read_seconds = ceiling->read_seconds;
      kept[n_kept++].flops = ceiling->flops;
    }
  }
  const double multiplying = work->flops / ceiling->flops;
  ceiling->memory_bound = ceiling->read_seconds >= multiplying;
  ceiling->floor = ceiling->memory_bound ? ceiling->read_seconds : multiplying;
  return LS_OK;
}
