/* gpu_timing.cu: timed replays of graphs. */
#include "gpu_timing.h"

#include <stdio.h>
#include <string.h>

namespace LSG_NS {

enum { READ_THREADS = 512, READ_BLOCKS = 1024, CACHES_READ = 8 };

/* Reads everything and writes nothing, which the compiler cannot know: the fill holds no 16 bytes that fold to `never`. */
LSG_KERNEL(READ_THREADS)
void read_kernel(uint32_t *sink, const lsg_u32x4 *other, int64_t count, uint32_t never) {
  uint32_t folded = 0;
  for (int64_t i = lsg_block_x() * READ_THREADS + lsg_thread(); i < count; i += (int64_t)READ_BLOCKS * READ_THREADS) {
    const lsg_u32x4 v = lsg_load16(other + i);
    folded |= v.x | v.y | v.z | v.w;
  }
  if (folded == never) *sink = folded;
}

ls_status gpu_timer_open(gpu_timer *t, gpu_device *d, const ls_timing_how *how, ls_timing *timing, ls_error *err) {
  lsg_device_info info;
  memset(t, 0, sizeof *t);
  t->device = d;
  t->how = how;
  t->timing = timing;
  DEVICE_TRY(lsg_info(&info));
  t->other_bytes = how->cold ? CACHES_READ * info.cache_bytes / 16 * 16 : 0;
  if (t->other_bytes == 0) return LS_OK;
  DEVICE_TRY(lsg_alloc((void **)&t->other, (size_t)t->other_bytes, "bytes read between timed runs"));
  DEVICE_TRY(lsg_alloc((void **)&t->sink, sizeof *t->sink, "sink of the read between timed runs"));
  DEVICE_TRY(lsg_fill(t->other, 0, (size_t)t->other_bytes, d->stream));
  return LS_OK;
}

void gpu_timer_close(gpu_timer *t) {
  if (t->other) lsg_free(t->other);
  if (t->sink) lsg_free(t->sink);
}

static lsg_status cool(const gpu_timer *t) {
  if (!t->other) return LSG_OK;
  return LSG_LAUNCH(read_kernel, lsg_grid(READ_BLOCKS), READ_THREADS, 0, t->device->stream, t->sink, t->other, t->other_bytes / 16, 1u);
}

/* `replays` of the graph between two marks. */
static ls_status timed(const gpu_timer *t, lsg_graph graph, int replays, bool cold, double *seconds, ls_error *err) {
  const gpu_device *d = t->device;
  if (cold) DEVICE_TRY(cool(t));
  DEVICE_TRY(lsg_mark_record(d->mark[0], d->stream));
  for (int i = 0; i < replays; i++) DEVICE_TRY(lsg_graph_launch(graph, d->stream));
  DEVICE_TRY(lsg_mark_record(d->mark[1], d->stream));
  DEVICE_TRY(lsg_sync(d->stream));
  DEVICE_TRY(lsg_mark_seconds(seconds, d->mark[0], d->mark[1]));
  if (t->how->interrupted && *t->how->interrupted) return ls_fail(err, LS_INTERNAL, "interrupted");
  return LS_OK;
}

ls_status gpu_timer_graph(gpu_timer *t, lsg_graph graph, const char *name, ls_error *err) {
  const ls_timing_how *how = t->how;
  ls_timed *part = ls_timing_add(t->timing, name, how->samples);
  double seconds = 0.0;
  if (!part) return ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": no room for the times of %s", *name ? name : "the step");
  part->launches = lsg_graph_nodes(graph);
  for (int i = 0; i < how->warmup; i++) LS_TRY(timed(t, graph, 1, how->cold, &seconds, err));
  if (how->back_to_back > 0) {
    LS_TRY(timed(t, graph, how->back_to_back, false, &seconds, err));
    part->back_to_back = seconds / how->back_to_back;
  }
  for (int i = 0; i < how->samples; i++) LS_TRY(timed(t, graph, 1, how->cold, &part->seconds[i], err));
  return LS_OK;
}

/* ---- ceilings ---- */

enum { CEILING_RUNS = 15, CEILING_SIDE = 8192 };

/* The fastest of them: what the device can do, not what it usually does. */
static double fastest(const ls_timed *part, int samples) {
  double least = part->seconds[0];
  for (int i = 1; i < samples; i++) least = part->seconds[i] < least ? part->seconds[i] : least;
  return least;
}

typedef struct {
  gpu_device device;
  ls_timing timing;
  lsg_u32x4 *data;  /* of the read */
  uint16_t *square; /* three matrices of CEILING_SIDE */
  lsg_graph graph;
} ceiling;

static ls_status time_launch(ceiling *c, const gpu_timer *t, int64_t bytes, double *seconds, ls_error *err) {
  gpu_device *d = &c->device;
  gpu_timer timer = *t;
  const int64_t side = CEILING_SIDE, square = side * side;
  DEVICE_TRY(lsg_graph_begin(d->stream));
  const lsg_status enqueued =
      bytes > 0 ? LSG_LAUNCH(read_kernel, lsg_grid(READ_BLOCKS), READ_THREADS, 0, d->stream, t->sink, c->data, bytes / 16, 1u)
                : lsg_gemm_run(d->gemm, true, c->square, c->square + square, c->square + 2 * square, side, side, side, side, side, side,
                               d->stream);
  const lsg_status ended = lsg_graph_end(&c->graph, d->stream);
  if (enqueued != LSG_OK || ended != LSG_OK) return gpu_failed(enqueued != LSG_OK ? enqueued : ended, err);
  LS_TRY(gpu_timer_graph(&timer, c->graph, "", err));
  *seconds = fastest(&c->timing.part[c->timing.n - 1], CEILING_RUNS);
  lsg_graph_free(c->graph);
  c->graph = NULL;
  return LS_OK;
}

static ls_status measure_ceilings(ceiling *c, const ls_path_options *options, double bytes, double *read_seconds, double *flops,
                                  ls_error *err) {
  const ls_timing_how how = {3, CEILING_RUNS, 0, true, false, NULL};
  const int64_t count = ((int64_t)bytes + 15) / 16 * 16;
  const double side = CEILING_SIDE;
  const size_t squares = (size_t)3 * CEILING_SIDE * CEILING_SIDE * sizeof(uint16_t);
  gpu_timer timer;
  double product = 0.0;
  LS_TRY(gpu_device_open(&c->device, options, err));
  ls_status status = gpu_timer_open(&timer, &c->device, &how, &c->timing, err);
  if (status == LS_OK && lsg_alloc((void **)&c->data, (size_t)count, "bytes of the ceiling") != LSG_OK)
    status = gpu_failed(LSG_NO_MEMORY, err);
  if (status == LS_OK && lsg_fill(c->data, 0, (size_t)count, c->device.stream) != LSG_OK) status = gpu_failed(LSG_FAILED, err);
  if (status == LS_OK) status = time_launch(c, &timer, count, read_seconds, err);
  if (status == LS_OK && lsg_alloc((void **)&c->square, squares, "matrices of the ceiling") != LSG_OK)
    status = gpu_failed(LSG_NO_MEMORY, err);
  /* 0x3C3C is a bf16 near 0.011: zeros would draw less power than a product does, and run faster */
  if (status == LS_OK && lsg_fill(c->square, 0x3C, squares, c->device.stream) != LSG_OK) status = gpu_failed(LSG_FAILED, err);
  if (status == LS_OK) status = time_launch(c, &timer, 0, &product, err);
  if (status == LS_OK) *flops = 2 * side * side * side / product;
  gpu_timer_close(&timer);
  return status;
}

ls_status gpu_ceilings(const ls_path_options *options, double bytes, double *read_seconds, double *flops, ls_error *err) {
  ceiling c;
  memset(&c, 0, sizeof c);
  const ls_status status = measure_ceilings(&c, options, bytes, read_seconds, flops, err);
  if (c.graph) lsg_graph_free(c.graph);
  if (c.data) lsg_free(c.data);
  if (c.square) lsg_free(c.square);
  gpu_device_close(&c.device);
  ls_timing_free(&c.timing);
  return status;
}

/* ---- cuts ---- */

ls_status gpu_cuts_begin(gpu_cuts *cuts, lsg_stream stream, ls_error *err) {
  memset(cuts, 0, sizeof *cuts);
  cuts->stream = stream;
  DEVICE_TRY(lsg_graph_begin(stream));
  return LS_OK;
}

ls_status gpu_cut(gpu_cuts *cuts, const char *stage, ls_error *err) {
  lsg_graph graph = NULL;
  DEVICE_TRY(lsg_graph_end(&graph, cuts->stream));
  const bool empty = lsg_graph_nodes(graph) == 0;
  if (empty) lsg_graph_free(graph);
  if (empty && cuts->n > 0) {
    char *name = cuts->piece[cuts->n - 1].name;
    const size_t used = strlen(name);
    snprintf(name + used, LS_TIMING_NAME - used, "+%s", stage);
  } else if (!empty) {
    if (cuts->n == LS_TIMING_PARTS - 1) { /* one is the whole step's */
      lsg_graph_free(graph);
      return ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": more than %d parts to time", LS_TIMING_PARTS - 1);
    }
    snprintf(cuts->piece[cuts->n].name, LS_TIMING_NAME, "%s", stage);
    cuts->piece[cuts->n++].graph = graph;
  }
  DEVICE_TRY(lsg_graph_begin(cuts->stream));
  return LS_OK;
}

void gpu_cuts_end(gpu_cuts *cuts) {
  lsg_graph dropped = NULL;
  if (lsg_graph_end(&dropped, cuts->stream) == LSG_OK && dropped) lsg_graph_free(dropped);
}

void gpu_cuts_free(gpu_cuts *cuts) {
  for (int i = 0; i < cuts->n; i++) lsg_graph_free(cuts->piece[i].graph);
  cuts->n = 0;
}

ls_status gpu_timer_cuts(gpu_timer *t, const gpu_cuts *cuts, ls_error *err) {
  for (int i = 0; i < cuts->n; i++) LS_TRY(gpu_timer_graph(t, cuts->piece[i].graph, cuts->piece[i].name, err));
  return LS_OK;
}

}  // namespace LSG_NS
