/* gpu_timing: a step's launches as graphs, replayed and timed: the whole of it, and cut where stages stand.
 *
 * A timed run is: other data is read (the cache is left cold and clean: a write would bill its write-back to the step), a mark, the graph,
 * a mark, all enqueued while the read still runs, so that the time holds no launch of the host's. A pair of marks alone reads 1.3 us on an
 * H200, an empty kernel between them 2.9 us: every figure contains that. */
#ifndef GPU_TIMING_H
#define GPU_TIMING_H

#include "gpu_path_internal.h"

namespace LSG_NS {

typedef struct {
  gpu_device *device;
  const ls_timing_how *how;
  ls_timing *timing;
  lsg_u32x4 *other; /* read between runs; NULL where the cache stays as it is */
  uint32_t *sink;
  int64_t other_bytes;
} gpu_timer;

/* On a failure the timer is there to be closed all the same. */
ls_status gpu_timer_open(gpu_timer *t, gpu_device *d, const ls_timing_how *how, ls_timing *timing, ls_error *err);

/* Adds a part of that name: the graph's replays. */
ls_status gpu_timer_graph(gpu_timer *t, lsg_graph graph, const char *name, ls_error *err);

void gpu_timer_close(gpu_timer *t);

/* What the device gives, as ls_path.ceilings has it: medians of timed runs like those of a step. */
ls_status gpu_ceilings(const ls_path_options *options, double bytes, double *read_seconds, double *flops, ls_error *err);

/* Launches captured piece by piece. */
typedef struct {
  lsg_stream stream;
  struct {
    char name[LS_TIMING_NAME];
    lsg_graph graph;
  } piece[LS_TIMING_PARTS];
  int n;
} gpu_cuts;

ls_status gpu_cuts_begin(gpu_cuts *cuts, lsg_stream stream, ls_error *err);

/* What was enqueued since the last cut ends with this stage. Nothing was: the stage stood with the piece before, whose name grows. */
ls_status gpu_cut(gpu_cuts *cuts, const char *stage, ls_error *err);

/* Ends the capture, in whatever state it is. Frees nothing of the pieces. */
void gpu_cuts_end(gpu_cuts *cuts);
void gpu_cuts_free(gpu_cuts *cuts);

/* A part for each piece. */
ls_status gpu_timer_cuts(gpu_timer *t, const gpu_cuts *cuts, ls_error *err);

}  // namespace LSG_NS

#endif
