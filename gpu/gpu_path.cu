/* gpu_path.cu: the device path: the layer's own path behind it, and what the layers share. */
#include "gpu_path.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_path_internal.h"
#include "gpu_timing.h"

#if defined(__CUDACC__)
#define LS_GPU_PATH      ls_path_cuda
#define LS_GPU_AVAILABLE ls_gpu_available_cuda
#else
#define LS_GPU_PATH      ls_path_emu
#define LS_GPU_AVAILABLE ls_gpu_available_emu
#endif

namespace LSG_NS {

/* ---- what the layers share ---- */

ls_status gpu_failed(lsg_status status, ls_error *err) {
  return ls_fail(err, status == LSG_NO_DEVICE ? LS_UNAVAILABLE : LS_INTERNAL, "path " LS_GPU_NAME ": %s", lsg_error_text());
}

ls_status gpu_device_open(gpu_device *d, const ls_path_options *options, ls_error *err) {
  d->schedule = options ? options->emu_schedule : 0;
  DEVICE_TRY(lsg_open(options ? options->device : 0));
  DEVICE_TRY(lsg_stream_new(&d->stream));
  DEVICE_TRY(lsg_gemm_new(&d->gemm));
  for (int i = 0; i < 2; i++) DEVICE_TRY(lsg_mark_new(&d->mark[i]));
  return LS_OK;
}

void gpu_device_close(gpu_device *d) {
  for (int i = 0; i < 2; i++) {
    if (d->mark[i]) lsg_mark_free(d->mark[i]);
  }
  if (d->gemm) lsg_gemm_free(d->gemm);
  if (d->stream) lsg_stream_free(d->stream);
}

ls_status gpu_allocate(gpu_device *d, const gpu_want *wanted, size_t n, ls_error *err) {
  size_t total = 0;
  for (size_t i = 0; i < n; i++) total += wanted[i].bytes;
  lsg_device_info info;
  DEVICE_TRY(lsg_info(&info));
  if (total > (size_t)info.memory_bytes)
    return ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": this config needs %zu bytes of device memory, %lld are free on %s", total,
                   (long long)info.memory_bytes, info.name);
  const char *variant = ls_gpu_linear_variant(d->gemm);
  snprintf(d->text, sizeof d->text, "%s, %s%s%s", info.name, info.runtime, *variant ? ", " : "", variant);
  for (size_t i = 0; i < n; i++) {
    if (!wanted[i].bytes) continue;
    lsg_status status = lsg_alloc(wanted[i].buffer, wanted[i].bytes, wanted[i].name);
    if (status == LSG_NO_MEMORY)
      return ls_fail(err, LS_INTERNAL,
                     "path " LS_GPU_NAME ": out of device memory: this config needs %zu bytes in all, %zu of them for %s (%s)", total,
                     wanted[i].bytes, wanted[i].name, lsg_error_text());
    DEVICE_TRY(status);
  }
  return LS_OK;
}

ls_status gpu_upload_tensor(gpu_device *d, void *device, ls_dtype type, const ls_tensor *t, const char *name, int64_t count,
                            ls_error *err) {
  if (!t) return ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": tensor %s is missing", name);
  if (ls_dtype_is_float(t->dtype) != ls_dtype_is_float(type) || t->place != LS_HOST || ls_tensor_count(t) != count)
    return ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": tensor %s: expected %lld %s values, found %lld of type %s", name,
                   (long long)count, ls_dtype_is_float(type) ? "floating-point" : "integer", (long long)ls_tensor_count(t),
                   ls_dtype_name(t->dtype));
  size_t bytes = (size_t)count * ls_dtype_size(type);
  if (bytes == 0) return LS_OK;
  if (t->dtype == type && ls_tensor_is_dense(t)) {
    DEVICE_TRY(lsg_upload(device, t->data, bytes, d->stream));
    return LS_OK;
  }
  void *host = malloc(bytes);
  if (!host) return ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": out of memory: %zu bytes to convert tensor %s", bytes, name);
  ls_tensor converted = ls_tensor_make(type, t->ndim, t->dim, host);
  ls_status status = ls_tensor_copy(&converted, t, err);
  if (status == LS_OK) {
    lsg_status uploaded = lsg_upload(device, host, bytes, d->stream);
    if (uploaded != LSG_OK) status = gpu_failed(uploaded, err);
  }
  free(host);
  return status;
}

ls_stage_kind gpu_linear_stage(int64_t rows, int64_t n, int64_t k) {
  return ls_gpu_linear_kind(rows, n, k) == LS_GPU_LINEAR_LIBRARY ? LS_GPU_LIBRARY : LS_STAGE_OWN;
}

/* ---- the path of whichever layer ---- */

struct path_context {
  const ls_path *layer;
  void *ctx;
};

static void close_path(void *context) {
  path_context *c = (path_context *)context;
  if (!c) return;
  c->layer->close(c->ctx);
  free(c);
}

static ls_status open_path(void **context, const ls_config *config, const ls_trace *weights, const ls_path_options *options,
                           ls_error *err) {
  *context = NULL;
  const ls_path *layer = config->layer == &ls_layer_dflash_context_kv ? &gpu_dflash_path
                         : config->layer == &ls_layer_attn_v41        ? &gpu_attn_path
                                                                      : NULL;
  if (!layer)
    return ls_fail(err, LS_UNAVAILABLE, "path " LS_GPU_NAME ": layer %s is not implemented",
                   config->layer ? config->layer->name : "(none)");
  if (options && options->precision != LS_PRECISION_ACT)
    return ls_fail(err, LS_UNAVAILABLE, "path " LS_GPU_NAME ": float64 precision exists on the reference path only");
  path_context *c = (path_context *)calloc(1, sizeof *c);
  if (!c) return ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": out of memory");
  c->layer = layer;
  ls_status status = layer->open(&c->ctx, config, weights, options, err);
  if (status == LS_OK)
    *context = c;
  else
    free(c);
  return status;
}

static ls_status step_path(void *context, const ls_step *step, const ls_trace *given, ls_trace *out, bool out_rings, ls_error *err) {
  path_context *c = (path_context *)context;
  return c->layer->step(c->ctx, step, given, out, out_rings, err);
}

static ls_status save_path(void *context, ls_trace *state, ls_error *err) {
  path_context *c = (path_context *)context;
  return c->layer->save(c->ctx, state, err);
}

static ls_status load_path(void *context, const ls_trace *state, ls_error *err) {
  path_context *c = (path_context *)context;
  return c->layer->load(c->ctx, state, err);
}

static ls_stage_kind stage_kind_path(void *context, const ls_step *step, const char *stage) {
  path_context *c = (path_context *)context;
  return c->layer->stage_kind(c->ctx, step, stage);
}

static ls_status time_path(void *context, const ls_step *step, const ls_timing_how *how, ls_timing *timing, ls_trace *last, ls_error *err) {
  path_context *c = (path_context *)context;
  return c->layer->time_step(c->ctx, step, how, timing, last, err);
}

static const char *describe_path(void *context) {
  path_context *c = (path_context *)context;
  return c->layer->describe(c->ctx);
}

}  // namespace LSG_NS

extern "C" {

const ls_path LS_GPU_PATH = {
    LS_PATH_ABI,
    LS_GPU_NAME,
    LSG_NS::open_path,
    LSG_NS::step_path,
    LSG_NS::save_path,
    LSG_NS::load_path,
    LSG_NS::stage_kind_path,
    LSG_NS::describe_path,
    LSG_NS::close_path,
    NULL,
    LSG_NS::time_path,
#if defined(__CUDACC__)
    LSG_NS::gpu_ceilings,
#else
    NULL, /* the emulator's device is the CPU, and its ceilings are the reference's */
#endif
};

ls_status LS_GPU_AVAILABLE(ls_error *err) {
  LSG_NS::lsg_device_info info;
  LSG_NS::lsg_status status = LSG_NS::lsg_open(0);
  if (status == LSG_NS::LSG_OK) status = LSG_NS::lsg_info(&info);
  if (status == LSG_NS::LSG_OK) return LS_OK;
  return ls_fail(err, LS_UNAVAILABLE, "path " LS_GPU_NAME ": %s", LSG_NS::lsg_error_text());
}
}
