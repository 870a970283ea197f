/* gpu_dflash_path.cu: the layer dflash_context_kv on a device. Stages in order: enqueue_stage(), a table of contents of layers.md.
 *
 * All of the state that arithmetic reads lives on the device: rings, capture buffer, and the positions that kernels take slots and angles
 * from. What refusals are decided on (cursor, capture_base, capture_rows) is kept on the host, so that a refusal is decided before
 * anything is enqueued and a step needs no answer from the device. The device's copy of the positions is brought up to date, in stream
 * order, before work that reads it.
 *
 * A traced step and an untraced one run the same launches in the same order; untraced they are a graph, captured once for each row count.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../layers/ls_dflash.h"
#include "gpu_norm.h"
#include "gpu_path_internal.h"
#include "gpu_rope.h"
#include "gpu_timing.h"

namespace LSG_NS {

/* ---- context ---- */

enum { CAPTURE_BASE, DRAFT_BASE, POSITIONS };

enum { STAGE_COMBINED, STAGE_NORMED, STAGE_PROJECTED, STAGE_NORM_ROPE, STAGES }; /* what runs, in order */

struct dflash_context {
  ls_dflash_config config;
  ls_dtype act;
  bool bf16;
  gpu_device device;

  lsg_graph *graph; /* [most_rows + 1], by row count; NULL until first needed */
  int64_t most_rows;

  uint16_t *fc, *kv; /* [hidden, fc_in], [layers, 2, kv_dim, hidden] */
  float *hidden_norm, *k_norm, *freq;

  uint16_t *k_ring, *v_ring, *capture; /* [layers, capacity, kv_dim], [max_rows, fc_in] */
  int64_t *positions;                  /* [POSITIONS] */

  uint16_t *combined, *normed; /* [most_rows, hidden] */
  uint16_t *projected;         /* [most_rows, layers * 2 * kv_dim], where a library computes K and V */
  uint16_t *k_rows, *v_rows;   /* [layers, capacity, kv_dim]: dense rows on their way in or out */
  uint16_t *given_capture;     /* [most_rows, fc_in], made by the first step that is given a capture: the buffer above is state */
  const uint16_t *combines;    /* what ctx_combined reads in this step: capture or given_capture */

  ls_dflash_state state;
  int64_t draft_base;
  int64_t device_positions[POSITIONS]; /* what `positions` holds; -1: not known */
};

static int64_t kv_channels(const ls_dflash_config *c) { return c->layers * 2 * c->kv_dim; }
static int64_t ring_count(const ls_dflash_config *c) { return c->layers * c->ring_capacity * c->kv_dim; }

static ls_gpu_ring ring_at(const dflash_context *c, int which_base) {
  ls_gpu_ring ring = {c->k_ring, c->v_ring, c->positions + which_base, c->config.layers, c->config.ring_capacity, c->config.kv_dim};
  return ring;
}

static ls_gpu_kv_rows dense_rows(const dflash_context *c, bool k, bool v, int64_t rows) {
  ls_gpu_kv_rows dense = {k ? c->k_rows : NULL, v ? c->v_rows : NULL, rows * c->config.kv_dim, c->config.kv_dim};
  return dense;
}

/* ---- open and close ---- */

static void close_context(void *context) {
  dflash_context *c = (dflash_context *)context;
  if (!c) return;
  if (c->device.stream) lsg_sync(c->device.stream);
  for (int64_t i = 0; c->graph && i <= c->most_rows; i++) {
    if (c->graph[i]) lsg_graph_free(c->graph[i]);
  }
  free(c->graph);
  void *const buffers[] = {c->fc,        c->kv,       c->hidden_norm, c->k_norm,    c->freq,   c->k_ring, c->v_ring,       c->capture,
                           c->positions, c->combined, c->normed,      c->projected, c->k_rows, c->v_rows, c->given_capture};
  for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) {
    if (buffers[i]) lsg_free(buffers[i]);
  }
  gpu_device_close(&c->device);
  free(c);
}

/* All device memory there will ever be, but for a given capture: nothing is allocated inside a step of production form. */
static ls_status allocate(dflash_context *c, ls_error *err) {
  const ls_dflash_config *d = &c->config;
  const size_t act = sizeof(uint16_t);
  bool library = ls_gpu_linear_kind(c->most_rows, kv_channels(d), d->hidden) == LS_GPU_LINEAR_LIBRARY;
  const gpu_want wanted[] = {
      {(void **)&c->fc, "fc", act * (size_t)(d->hidden * d->fc_in)},
      {(void **)&c->kv, "k_proj and v_proj", act * (size_t)(kv_channels(d) * d->hidden)},
      {(void **)&c->hidden_norm, "hidden_norm", sizeof(float) * (size_t)d->hidden},
      {(void **)&c->k_norm, "k_norm", sizeof(float) * (size_t)(d->layers * d->head_dim)},
      {(void **)&c->freq, "rope frequencies", sizeof(float) * (size_t)(d->head_dim / 2)},
      {(void **)&c->k_ring, "k_ring", act * (size_t)ring_count(d)},
      {(void **)&c->v_ring, "v_ring", act * (size_t)ring_count(d)},
      {(void **)&c->capture, "capture", act * (size_t)(d->max_rows * d->fc_in)},
      {(void **)&c->positions, "positions", sizeof(int64_t) * POSITIONS},
      {(void **)&c->combined, "ctx_combined", act * (size_t)(c->most_rows * d->hidden)},
      {(void **)&c->normed, "ctx_normed", act * (size_t)(c->most_rows * d->hidden)},
      {(void **)&c->projected, "projected rows", library ? act * (size_t)(c->most_rows * kv_channels(d)) : 0},
      {(void **)&c->k_rows, "k rows", act * (size_t)ring_count(d)},
      {(void **)&c->v_rows, "v rows", act * (size_t)ring_count(d)},
  };
  LS_TRY(gpu_allocate(&c->device, wanted, sizeof wanted / sizeof *wanted, err));
  c->graph = (lsg_graph *)calloc((size_t)c->most_rows + 1, sizeof *c->graph);
  if (!c->graph)
    return ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": out of memory for the graphs of %lld row counts", (long long)c->most_rows);
  return LS_OK;
}

static ls_status upload_weights(dflash_context *c, const ls_trace *weights, ls_error *err) {
  const ls_dflash_config *d = &c->config;
  LS_TRY(gpu_upload_tensor(&c->device, c->fc, c->act, ls_trace_tensor(weights, "fc"), "fc", d->hidden * d->fc_in, err));
  LS_TRY(gpu_upload_tensor(&c->device, c->hidden_norm, LS_F32, ls_trace_tensor(weights, "hidden_norm"), "hidden_norm", d->hidden, err));
  for (int64_t l = 0; l < d->layers; l++) {
    int64_t matrix = d->kv_dim * d->hidden;
    char name[LS_NAME_MAX];
    snprintf(name, sizeof name, "layers/%lld/k_proj", (long long)l);
    LS_TRY(gpu_upload_tensor(&c->device, c->kv + (2 * l) * matrix, c->act, ls_trace_tensor(weights, name), name, matrix, err));
    snprintf(name, sizeof name, "layers/%lld/v_proj", (long long)l);
    LS_TRY(gpu_upload_tensor(&c->device, c->kv + (2 * l + 1) * matrix, c->act, ls_trace_tensor(weights, name), name, matrix, err));
    snprintf(name, sizeof name, "layers/%lld/k_norm", (long long)l);
    LS_TRY(gpu_upload_tensor(&c->device, c->k_norm + l * d->head_dim, LS_F32, ls_trace_tensor(weights, name), name, d->head_dim, err));
  }
  size_t bytes = (size_t)(d->head_dim / 2) * sizeof(float);
  float *freq = (float *)malloc(bytes);
  if (!freq) return ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": out of memory for %zu bytes of rope frequencies", bytes);
  ls_gpu_rope_freq(freq, d->head_dim, d->rope_theta);
  lsg_status status = lsg_upload(c->freq, freq, bytes, c->device.stream);
  free(freq);
  DEVICE_TRY(status);
  return LS_OK;
}

static ls_status zero_state(dflash_context *c, ls_error *err) {
  size_t ring = (size_t)ring_count(&c->config) * sizeof(uint16_t);
  DEVICE_TRY(lsg_fill(c->k_ring, 0, ring, c->device.stream));
  DEVICE_TRY(lsg_fill(c->v_ring, 0, ring, c->device.stream));
  DEVICE_TRY(lsg_fill(c->capture, 0, (size_t)(c->config.max_rows * c->config.fc_in) * sizeof(uint16_t), c->device.stream));
  memset(&c->state, 0, sizeof c->state);
  c->draft_base = 0;
  for (int i = 0; i < POSITIONS; i++) c->device_positions[i] = -1;
  return LS_OK;
}

/* What a step computes into holds NaN after a load: a kernel that does not run finds nothing that the run before left. */
static ls_status poison_scratch(dflash_context *c, ls_error *err) {
  const ls_dflash_config *d = &c->config;
  const size_t row = (size_t)c->most_rows * sizeof(uint16_t), ring = (size_t)ring_count(d) * sizeof(uint16_t);
  DEVICE_TRY(lsg_fill(c->combined, 0xFF, row * (size_t)d->hidden, c->device.stream));
  DEVICE_TRY(lsg_fill(c->normed, 0xFF, row * (size_t)d->hidden, c->device.stream));
  if (c->projected) DEVICE_TRY(lsg_fill(c->projected, 0xFF, row * (size_t)kv_channels(d), c->device.stream));
  DEVICE_TRY(lsg_fill(c->k_rows, 0xFF, ring, c->device.stream));
  DEVICE_TRY(lsg_fill(c->v_rows, 0xFF, ring, c->device.stream));
  return LS_OK;
}

static ls_status open_context(void **context, const ls_config *config, const ls_trace *weights, const ls_path_options *options,
                              ls_error *err) {
  *context = NULL;
  if (config->act != LS_BF16 && config->act != LS_F16)
    return ls_fail(err, LS_UNAVAILABLE, "path " LS_GPU_NAME ": activation type %s is not implemented", ls_dtype_name(config->act));

  dflash_context *c = (dflash_context *)calloc(1, sizeof *c);
  if (!c) return ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": out of memory");
  c->config = config->dflash;
  c->act = config->act;
  c->bf16 = config->act == LS_BF16;
  c->most_rows = c->config.max_rows < c->config.ring_capacity ? c->config.max_rows : c->config.ring_capacity;

  ls_status status = gpu_device_open(&c->device, options, err);
  if (status == LS_OK) status = allocate(c, err);
  if (status == LS_OK) status = upload_weights(c, weights, err);
  if (status == LS_OK) status = zero_state(c, err);
  const lsg_status ran = status == LS_OK ? lsg_sync(c->device.stream) : LSG_OK;
  if (ran != LSG_OK) status = gpu_failed(ran, err);
  if (status == LS_OK)
    *context = c;
  else
    close_context(c);
  return status;
}

/* ---- the stages ---- */

static lsg_status enqueue_stage(const dflash_context *c, int stage, int64_t rows) {
  const ls_dflash_config *d = &c->config;
  const ls_gpu_ring ring = ring_at(c, CAPTURE_BASE);
  const float eps = (float)d->rms_eps;
  switch (stage) {
    case STAGE_COMBINED: /* 1. ctx_combined = capture . fc^T */
      return ls_gpu_linear(c->bf16, c->combined, c->combines, c->fc, rows, d->hidden, d->fc_in, c->device.gemm, c->device.stream);
    case STAGE_NORMED: /* 2. ctx_normed = RMSNorm(ctx_combined, hidden_norm) */
      return ls_gpu_rms_norm(c->bf16, c->normed, c->combined, c->hidden_norm, eps, rows, d->hidden, c->device.stream);
    case STAGE_PROJECTED: /* 3. k_proj, v_proj of all layers, into the ring slots */
      return ls_gpu_linear_to_ring(c->bf16, &ring, c->normed, c->kv, rows, d->hidden, c->projected, c->device.gemm, c->device.stream);
    case STAGE_NORM_ROPE: /* 4. k_norm and 5. k_rope, in place in the slots */
      return ls_gpu_k_norm_rope(c->bf16, &ring, c->k_norm, c->freq, eps, rows, d->head_dim, c->device.stream);
    default:
      return LSG_FAILED;
  }
}

/* Brings the device's copy of the positions up to date where it is behind. */
static ls_status refresh_positions(dflash_context *c, ls_error *err) {
  const int64_t now[POSITIONS] = {c->state.capture_base, c->draft_base};
  if (memcmp(now, c->device_positions, sizeof now) == 0) return LS_OK;
  DEVICE_TRY(lsg_upload(c->positions, now, sizeof now, c->device.stream));
  memcpy(c->device_positions, now, sizeof now);
  return LS_OK;
}

/* ---- traced: one stage at a time, recorded, and in isolated mode fed from `given` ---- */

static ls_status record(dflash_context *c, ls_trace *out, const char *name, const uint16_t *device, int ndim, const int64_t *dim,
                        double seconds, ls_error *err) {
  ls_tensor t;
  LS_TRY(ls_trace_add(out, name, c->act, ndim, dim, &t, err));
  DEVICE_TRY(lsg_download(t.data, device, ls_tensor_bytes(&t), c->device.stream));
  ls_trace_find(out, name)->seconds = seconds;
  return LS_OK;
}

/* K and/or V rows of the step, from the slots they lie in. */
static ls_status record_slots(dflash_context *c, ls_trace *out, const char *k_name, const char *v_name, int64_t rows, double seconds,
                              ls_error *err) {
  const int64_t dim[3] = {c->config.layers, rows, c->config.kv_dim};
  const ls_gpu_ring ring = ring_at(c, CAPTURE_BASE);
  const ls_gpu_kv_rows dense = dense_rows(c, k_name != NULL, v_name != NULL, rows);
  DEVICE_TRY(ls_gpu_ring_gather(&dense, &ring, rows, c->device.stream));
  if (k_name) LS_TRY(record(c, out, k_name, c->k_rows, 3, dim, seconds, err));
  if (v_name) LS_TRY(record(c, out, v_name, c->v_rows, 3, dim, seconds, err));
  return LS_OK;
}

static ls_status record_rings(dflash_context *c, ls_trace *out, ls_error *err) {
  const int64_t dim[3] = {c->config.layers, c->config.ring_capacity, c->config.kv_dim};
  LS_TRY(record(c, out, "k_ring", c->k_ring, 3, dim, 0.0, err));
  return record(c, out, "v_ring", c->v_ring, 3, dim, 0.0, err);
}

/* Replaces what the next stage reads by what `given` holds of it. */
static ls_status take_given(dflash_context *c, int stage, int64_t rows, const ls_trace *given, ls_error *err) {
  const ls_dflash_config *d = &c->config;
  const ls_tensor *t;
  switch (stage) {
    case STAGE_COMBINED:
      t = ls_trace_tensor(given, "capture");
      if (!t) return LS_OK;
      if (!c->given_capture) {
        size_t bytes = (size_t)(c->most_rows * d->fc_in) * sizeof(uint16_t);
        DEVICE_TRY(lsg_alloc((void **)&c->given_capture, bytes, "given capture"));
      }
      c->combines = c->given_capture;
      return gpu_upload_tensor(&c->device, c->given_capture, c->act, t, "capture", rows * d->fc_in, err);
    case STAGE_NORMED:
      t = ls_trace_tensor(given, "ctx_combined");
      return t ? gpu_upload_tensor(&c->device, c->combined, c->act, t, "ctx_combined", rows * d->hidden, err) : LS_OK;
    case STAGE_PROJECTED:
      t = ls_trace_tensor(given, "ctx_normed");
      return t ? gpu_upload_tensor(&c->device, c->normed, c->act, t, "ctx_normed", rows * d->hidden, err) : LS_OK;
    case STAGE_NORM_ROPE: { /* k_norm is fused away: the group reads k_proj */
      t = ls_trace_tensor(given, "k_proj");
      if (!t) return LS_OK;
      LS_TRY(gpu_upload_tensor(&c->device, c->k_rows, c->act, t, "k_proj", d->layers * rows * d->kv_dim, err));
      const ls_gpu_ring ring = ring_at(c, CAPTURE_BASE);
      const ls_gpu_kv_rows dense = dense_rows(c, true, false, rows);
      DEVICE_TRY(ls_gpu_ring_scatter(&ring, &dense, rows, c->device.stream));
      return LS_OK;
    }
    default:
      return LS_OK;
  }
}

static ls_status record_stage(dflash_context *c, int stage, int64_t rows, ls_trace *out, double seconds, ls_error *err) {
  const int64_t dim[2] = {rows, c->config.hidden};
  switch (stage) {
    case STAGE_COMBINED:
      return record(c, out, "ctx_combined", c->combined, 2, dim, seconds, err);
    case STAGE_NORMED:
      return record(c, out, "ctx_normed", c->normed, 2, dim, seconds, err);
    case STAGE_PROJECTED:
      return record_slots(c, out, "k_proj", "v_proj", rows, seconds, err);
    default:
      return record_slots(c, out, "k_rope", NULL, rows, seconds, err);
  }
}

static ls_status run_stages(dflash_context *c, int64_t rows, const ls_trace *given, ls_trace *out, ls_error *err) {
  for (int stage = 0; stage < STAGES; stage++) {
    if (given) LS_TRY(take_given(c, stage, rows, given, err));
    DEVICE_TRY(lsg_mark_record(c->device.mark[0], c->device.stream));
    DEVICE_TRY(enqueue_stage(c, stage, rows));
    DEVICE_TRY(lsg_mark_record(c->device.mark[1], c->device.stream));
    if (!out) continue;
    double seconds = 0.0;
    DEVICE_TRY(lsg_sync(c->device.stream)); /* a kernel's failure is this stage's */
    DEVICE_TRY(lsg_mark_seconds(&seconds, c->device.mark[0], c->device.mark[1]));
    LS_TRY(record_stage(c, stage, rows, out, seconds, err));
  }
  return LS_OK;
}

/* ---- untraced: one graph a row count ---- */

static ls_status graph_of(dflash_context *c, int64_t rows, ls_error *err) {
  if (c->graph[rows]) return LS_OK;
  DEVICE_TRY(lsg_graph_begin(c->device.stream));
  lsg_status status = LSG_OK;
  for (int stage = 0; stage < STAGES && status == LSG_OK; stage++) status = enqueue_stage(c, stage, rows);
  if (status != LSG_OK) { /* the first failure is the one to tell; the stream must leave its capture all the same */
    gpu_failed(status, err);
    lsg_graph dropped = NULL;
    if (lsg_graph_end(&dropped, c->device.stream) == LSG_OK && dropped) lsg_graph_free(dropped);
    return LS_INTERNAL;
  }
  DEVICE_TRY(lsg_graph_end(&c->graph[rows], c->device.stream));
  return LS_OK;
}

static ls_status replay(dflash_context *c, int64_t rows, ls_error *err) {
  LS_TRY(graph_of(c, rows, err));
  DEVICE_TRY(lsg_graph_launch(c->graph[rows], c->device.stream));
  return LS_OK;
}

/* ---- operations ---- */

static ls_status run_capture(dflash_context *c, const ls_step *step, ls_error *err) {
  /* rows of the buffer beyond the captured ones keep what they hold: nothing reads them */
  return gpu_upload_tensor(&c->device, c->capture, c->act, ls_trace_tensor(step->in, "capture"), "capture", step->rows * c->config.fc_in,
                           err);
}

static ls_status run_draft_write(dflash_context *c, const ls_step *step, ls_error *err) {
  int64_t count = c->config.layers * step->rows * c->config.kv_dim;
  LS_TRY(gpu_upload_tensor(&c->device, c->k_rows, c->act, ls_trace_tensor(step->in, "k"), "k", count, err));
  LS_TRY(gpu_upload_tensor(&c->device, c->v_rows, c->act, ls_trace_tensor(step->in, "v"), "v", count, err));
  c->draft_base = step->base;
  LS_TRY(refresh_positions(c, err));
  const ls_gpu_ring ring = ring_at(c, DRAFT_BASE);
  const ls_gpu_kv_rows dense = dense_rows(c, true, true, step->rows);
  DEVICE_TRY(ls_gpu_ring_scatter(&ring, &dense, step->rows, c->device.stream));
  return LS_OK;
}

static ls_status run_context_write(dflash_context *c, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  LS_TRY(refresh_positions(c, err));
  c->combines = c->capture;
  if (out || given) return run_stages(c, step->rows, given, out, err);
  return replay(c, step->rows, err);
}

static ls_status step_context(void *context, const ls_step *step, const ls_trace *given, ls_trace *out, bool out_rings, ls_error *err) {
  dflash_context *c = (dflash_context *)context;
  ls_dflash_state next;
  lsg_set_schedule(c->device.schedule);
  ls_status decision = ls_dflash_decide(&c->config, &c->state, step, &next, err);
  if (decision != LS_OK && decision != LS_REFUSED) return decision;
  if (decision == LS_OK) {
    switch (step->op) {
      case LS_OP_CAPTURE:
        LS_TRY(run_capture(c, step, err));
        break;
      case LS_OP_DRAFT_WRITE:
        LS_TRY(run_draft_write(c, step, err));
        break;
      case LS_OP_CONTEXT_WRITE:
        LS_TRY(run_context_write(c, step, given, out, err));
        break;
      default:
        break; /* rewind changes no row */
    }
    c->state = next;
  }
  if (out && out_rings) LS_TRY(record_rings(c, out, err));
  return decision;
}

/* ---- timed ---- */

static ls_status time_parts(dflash_context *c, gpu_timer *timer, int64_t rows, ls_error *err) {
  static const char *const stands[STAGES] = {"ctx_combined", "ctx_normed", "k_proj+v_proj", "k_rope"};
  gpu_cuts cuts;
  LS_TRY(gpu_cuts_begin(&cuts, c->device.stream, err));
  ls_status status = LS_OK;
  for (int stage = 0; stage < STAGES && status == LS_OK; stage++) {
    const lsg_status enqueued = enqueue_stage(c, stage, rows);
    status = enqueued == LSG_OK ? gpu_cut(&cuts, stands[stage], err) : gpu_failed(enqueued, err);
  }
  gpu_cuts_end(&cuts);
  if (status == LS_OK) status = gpu_timer_cuts(timer, &cuts, err);
  gpu_cuts_free(&cuts);
  return status;
}

static ls_status time_context(void *context, const ls_step *step, const ls_timing_how *how, ls_timing *timing, ls_trace *last,
                              ls_error *err) {
  dflash_context *c = (dflash_context *)context;
  ls_dflash_state next;
  gpu_timer timer;
  (void)last; /* all that a context_write leaves is state */
  lsg_set_schedule(c->device.schedule);
  LS_TRY(ls_dflash_decide(&c->config, &c->state, step, &next, err));
  if (step->op != LS_OP_CONTEXT_WRITE)
    return ls_fail(err, LS_USAGE, "path " LS_GPU_NAME ": only a context_write can be timed, not a %s", ls_op_name(step->op));
  LS_TRY(refresh_positions(c, err));
  c->combines = c->capture;
  LS_TRY(graph_of(c, step->rows, err));
  ls_status status = gpu_timer_open(&timer, &c->device, how, timing, err);
  if (status == LS_OK)
    status = how->parts ? time_parts(c, &timer, step->rows, err) : gpu_timer_graph(&timer, c->graph[step->rows], "", err);
  if (status == LS_OK) c->state = next;
  gpu_timer_close(&timer);
  return status;
}

/* ---- state ---- */

static ls_status save_scalar(ls_trace *state, const char *name, int64_t value, ls_error *err) {
  const int64_t one = 1;
  ls_tensor t;
  LS_TRY(ls_trace_add(state, name, LS_I64, 1, &one, &t, err));
  *(int64_t *)t.data = value;
  return LS_OK;
}

static ls_status save_context(void *context, ls_trace *state, ls_error *err) {
  dflash_context *c = (dflash_context *)context;
  const int64_t dim[2] = {c->config.max_rows, c->config.fc_in};
  LS_TRY(record_rings(c, state, err));
  LS_TRY(record(c, state, "capture", c->capture, 2, dim, 0.0, err));
  LS_TRY(save_scalar(state, "cursor", c->state.cursor, err));
  LS_TRY(save_scalar(state, "capture_base", c->state.capture_base, err));
  return save_scalar(state, "capture_rows", c->state.capture_rows, err);
}

static ls_status load_scalar(int64_t *value, const ls_trace *state, const char *name, int64_t most, ls_error *err) {
  const ls_tensor *t = ls_trace_tensor(state, name);
  if (!t) return LS_OK;
  double v = ls_tensor_count(t) == 1 ? ls_tensor_get(t, 0) : -1.0;
  if (!(v >= 0.0 && v <= (double)most))
    return ls_fail(err, LS_BAD_FIXTURE, "state: %s: expected one value in 0 .. %lld, found %g", name, (long long)most, v);
  *value = (int64_t)v;
  return LS_OK;
}

static ls_status load_context(void *context, const ls_trace *state, ls_error *err) {
  dflash_context *c = (dflash_context *)context;
  const ls_dflash_config *d = &c->config;
  ls_dflash_state loaded = {0, 0, 0};
  const int64_t limit = (int64_t)1 << 31;
  LS_TRY(load_scalar(&loaded.cursor, state, "cursor", limit, err));
  LS_TRY(load_scalar(&loaded.capture_base, state, "capture_base", limit, err));
  LS_TRY(load_scalar(&loaded.capture_rows, state, "capture_rows", limit, err));
  LS_TRY(ls_dflash_state_check(d, &loaded, err));

  LS_TRY(zero_state(c, err));
  LS_TRY(poison_scratch(c, err));
  const ls_tensor *t = ls_trace_tensor(state, "k_ring");
  if (t) LS_TRY(gpu_upload_tensor(&c->device, c->k_ring, c->act, t, "k_ring", ring_count(d), err));
  t = ls_trace_tensor(state, "v_ring");
  if (t) LS_TRY(gpu_upload_tensor(&c->device, c->v_ring, c->act, t, "v_ring", ring_count(d), err));
  t = ls_trace_tensor(state, "capture"); /* the whole buffer, or its first rows */
  if (t) {
    int64_t rows = t->dim[0] < d->max_rows ? t->dim[0] : d->max_rows;
    LS_TRY(gpu_upload_tensor(&c->device, c->capture, c->act, t, "capture", rows * d->fc_in, err));
  }
  DEVICE_TRY(lsg_sync(c->device.stream));
  c->state = loaded;
  return LS_OK;
}

/* ---- what it says of itself ---- */

static ls_stage_kind stage_kind(void *context, const ls_step *step, const char *stage) {
  const ls_dflash_config *d = &((dflash_context *)context)->config;
  if (strcmp(stage, "k_ring") == 0 || strcmp(stage, "v_ring") == 0) return LS_STAGE_OWN;
  if (step->op != LS_OP_CONTEXT_WRITE) return LS_STAGE_ABSENT;
  if (strcmp(stage, "ctx_combined") == 0) return gpu_linear_stage(step->rows, d->hidden, d->fc_in);
  if (strcmp(stage, "k_proj") == 0 || strcmp(stage, "v_proj") == 0) return gpu_linear_stage(step->rows, kv_channels(d), d->hidden);
  if (strcmp(stage, "k_norm") == 0) return LS_STAGE_FUSED;
  return strcmp(stage, "ctx_normed") == 0 || strcmp(stage, "k_rope") == 0 ? LS_STAGE_OWN : LS_STAGE_ABSENT;
}

static const char *describe(void *context) { return ((dflash_context *)context)->device.text; }

const ls_path gpu_dflash_path = {
    LS_PATH_ABI, LS_GPU_NAME, open_context,  step_context, save_context, load_context,
    stage_kind,  describe,    close_context, NULL,         time_context, NULL,
};

}  // namespace LSG_NS
