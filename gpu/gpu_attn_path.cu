/* gpu_attn_path.cu: the layer attn_v41 on a device: its memory, weights and state. The forward itself is gpu_attn_forward.cu.
 *
 * All that arithmetic reads lies on the device; what is published, and by whom, is kept on the host as well, so that a refusal is decided
 * before anything is enqueued and a step needs no answer from the device. All device memory is taken at open.
 */
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_attn_internal.h"
#include "gpu_attn_rows.h"
#include "gpu_indexer.h"
#include "gpu_sparse_attn.h"

namespace LSG_NS {

typedef long long ll;

/* ---- tensors from outside ---- */

/* "bf16 [96, 288]" or, with more than one type allowed, "bf16, f16 or f32 [96]" */
static const char *spec_text(char *buf, size_t size, const ls_tensor_spec *spec) {
  char dims[96], types[48] = "";
  int left = 0;
  for (int type = 0; type < LS_DTYPES; type++) left += (spec->dtypes >> type & 1u) != 0;
  for (int type = 0; type < LS_DTYPES; type++) {
    if ((spec->dtypes >> type & 1u) == 0) continue;
    left--;
    const size_t used = strlen(types);
    snprintf(types + used, sizeof types - used, "%s%s", ls_dtype_name((ls_dtype)type), left == 0 ? "" : left == 1 ? " or " : ", ");
  }
  snprintf(buf, size, "%s %s%s", types, ls_dims_text(dims, sizeof dims, spec->ndim, spec->dim), spec->partial ? " or fewer rows" : "");
  return buf;
}

ls_status attn_check_tensor(const ls_tensor **found, const ls_trace *trace, const char *where, const ls_tensor_spec *spec, ls_error *err) {
  char expected[160], dims[96];
  const ls_tensor *t = *found = ls_trace_tensor(trace, spec->name);
  if (!t && !spec->required) return LS_OK;
  spec_text(expected, sizeof expected, spec);
  if (!t) return ls_fail(err, LS_BAD_FIXTURE, "%s%s: expected %s, found nothing", where, spec->name, expected);
  bool sound = t->place == LS_HOST && (spec->dtypes >> t->dtype & 1u) == 1u && t->ndim == spec->ndim;
  for (int d = 0; d < spec->ndim; d++)
    sound = sound && (spec->partial && d == 0 ? t->dim[d] >= 0 && t->dim[d] <= spec->dim[d] : t->dim[d] == spec->dim[d]);
  if (sound) return LS_OK;
  return ls_fail(err, LS_BAD_FIXTURE, "%s%s: expected %s, found %s%s %s", where, spec->name, expected,
                 t->place == LS_HOST ? "" : "in device memory ", ls_dtype_name(t->dtype), ls_dims_text(dims, sizeof dims, t->ndim, t->dim));
}

static ls_status check_tensors(const ls_spec_list *list, const ls_trace *trace, const char *where, ls_error *err) {
  for (int i = 0; i < list->n; i++) {
    const ls_tensor *unused;
    LS_TRY(attn_check_tensor(&unused, trace, where, &list->spec[i], err));
  }
  return LS_OK;
}

/* What a trace holds of a layer; NULL where it has none of it. */
static const ls_tensor *of_layer(const ls_trace *trace, int64_t layer, const char *what) {
  char name[LS_MAX_SPEC_NAME];
  snprintf(name, sizeof name, "layers/%lld/%s", (ll)layer, what);
  return ls_trace_tensor(trace, name);
}

/* ---- memory ---- */

/* Device buffers as they are asked for: one list from which they are allocated, poisoned and freed. */
typedef struct {
  gpu_want *want;
  size_t n, room;
  bool full; /* the host had no memory for the list */
} buffers;

static void ask(buffers *b, void *to, const char *name, int64_t count, size_t size) {
  if (b->n == b->room) {
    const size_t room = b->room ? 2 * b->room : 256;
    gpu_want *grown = (gpu_want *)realloc(b->want, room * sizeof *grown);
    b->full = b->full || !grown;
    if (!grown) return;
    b->want = grown;
    b->room = room;
  }
  gpu_want *w = &b->want[b->n++];
  w->buffer = (void **)to; /* the address of the pointer */
  w->name = name;
  w->bytes = (size_t)count * size;
}

static const size_t act = sizeof(uint16_t), f32 = sizeof(float);

/* Channels of the projections of x and of qr, all of the layer's. */
static int64_t x_channels(const ls_attn_config *a, int64_t layer) {
  const bool latents = ls_attn_is_kv_source(a, layer) && a->compress_ratio[layer] == 1;
  return a->q_lora_rank + a->head_dim + (latents ? a->head_dim : 0) + (ls_attn_is_index_source(a, layer) ? a->index_n_heads : 0);
}

static int64_t qr_channels(const ls_attn_config *a, int64_t layer) {
  return a->q_dim + (ls_attn_is_index_source(a, layer) ? a->index_q_dim : 0);
}

static void ask_layer(buffers *b, const ls_attn_config *a, attn_layer *l, int64_t layer) {
  const int64_t rows = ls_attn_cache_rows(a, layer), ratio = a->compress_ratio[layer];
  ask(b, &l->x_weights, "wq_a, wkv and what shares x", x_channels(a, layer) * a->dim, act);
  ask(b, &l->qr_weights, "wq_b and what shares qr", qr_channels(a, layer) * a->q_lora_rank, act);
  ask(b, &l->wo_a, "wo_a", a->o_dim * a->group_dim, act);
  ask(b, &l->wo_b, "wo_b", a->dim * a->o_dim, act);
  ask(b, &l->attn_sink, "attn_sink", a->n_heads, f32);
  ask(b, &l->q_norm, "q_norm", a->q_lora_rank, f32);
  ask(b, &l->kv_norm, "kv_norm", a->head_dim, f32);
  ask(b, &l->window, "window", a->window_size * a->head_dim, act);
  if (!ls_attn_is_kv_source(a, layer)) return;
  ask(b, &l->pool_norm, "compressor/norm", a->head_dim, f32);
  ask(b, &l->index_wk, "indexer/wk", a->index_head_dim * a->head_dim, act);
  ask(b, &l->index_k_norm, "indexer/k_norm", a->index_head_dim, f32);
  ask(b, &l->compress_cache, "compress_cache", rows * a->head_dim, act);
  ask(b, &l->index_cache, "index_cache", rows * a->index_head_dim, act);
  if (!attn_pools(a, layer)) return;
  ask(b, &l->pool_weights, "compressor/wkv and wgate", 2 * a->head_dim * a->dim, f32);
  ask(b, &l->kv_state, "kv_state", ratio * a->head_dim, f32);
  ask(b, &l->score_state, "score_state", ratio * a->head_dim, f32);
}

/* The most elements of a [rows, columns] tensor of a step on visible rows of one ratio: all of max_tokens from position 0, or one query on
 * the whole cache. */
static int64_t most_scores(const ls_attn_config *a, int64_t ratio, int64_t most_m) {
  const int64_t prefill = most_m * (most_m / ratio), cache = a->max_seq_len / ratio;
  return prefill > cache ? prefill : cache;
}

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }
static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

/* Scratch of the selection and of the attention: the most over every m, and over every bucket of a decode step. */
static void measure_scratch(attn_context *c, int64_t ratio, bool selects, int64_t most_m) {
  const ls_attn_config *a = &c->config.attn;
  for (int64_t m = 1; m <= most_m; m++) { /* start_pos 0 */
    const int64_t n = ratio > 0 ? m / ratio : 0, width = smaller(m, a->window_size) + smaller(a->index_topk, n);
    if (selects && n > 0) c->select_bytes = larger(c->select_bytes, ls_gpu_select_bytes(m, n));
    c->sparse_bytes = larger(c->sparse_bytes, ls_gpu_sparse_bytes(m, a->n_heads, a->head_dim, width));
  }
  const int64_t most_n = ratio > 0 ? a->max_seq_len / ratio : 0;
  for (int64_t n = 0; n <= most_n; n = n == most_n ? n + 1 : smaller(n > 0 ? 2 * n : 1, most_n)) {
    const int64_t columns = attn_columns(1, n, most_n);
    if (selects && n > 0) c->select_bytes = larger(c->select_bytes, ls_gpu_select_bytes(1, columns));
    c->sparse_bytes =
        larger(c->sparse_bytes, ls_gpu_sparse_bytes(1, a->n_heads, a->head_dim, a->window_size + smaller(a->index_topk, columns)));
  }
}

/* What a step computes into, and what is published. */
static void ask_step(buffers *b, attn_context *c, bool scratch_only) {
  const ls_attn_config *a = &c->config.attn;
  const int64_t m = smaller(a->max_tokens, a->max_seq_len);
  int64_t latents = 0, scores = 0, masks = 0;
  bool pools = false;
  c->select_bytes = c->sparse_bytes = 0;
  for (int64_t l = 0; l < a->n_layers; l++) {
    const int64_t ratio = a->compress_ratio[l];
    const bool selects = ls_attn_is_index_source(a, l);
    bool measured = false; /* by a layer before it of the same kind */
    for (int64_t k = 0; k < l && !measured; k++) measured = a->compress_ratio[k] == ratio && (ls_attn_is_index_source(a, k) || !selects);
    if (!measured) measure_scratch(c, ratio, selects, m);
    pools = pools || attn_pools(a, l);
    if (ls_attn_is_kv_source(a, l) && latents < attn_latents(m, ratio)) latents = attn_latents(m, ratio);
    if (selects && scores < most_scores(a, ratio, m)) scores = most_scores(a, ratio, m);
    if (a->candidate_source_layer == l) masks = most_scores(a, ratio, m);
  }
  ask(b, &c->x, "x", m * a->dim, act);
  ask(b, &c->qr, "qr", m * a->q_lora_rank, act);
  ask(b, &c->q, "q", m * a->q_dim, act);
  ask(b, &c->kv_proj, "kv_proj", m * a->head_dim, act);
  ask(b, &c->kv, "kv", m * a->head_dim, act);
  ask(b, &c->latent, "latent", latents * a->head_dim, act);
  ask(b, &c->compress_kv, "compress_kv", latents * a->head_dim, act);
  ask(b, &c->index_k_proj, "index_k_proj", latents * a->index_head_dim, act);
  ask(b, &c->index_k, "index_k", latents * a->index_head_dim, act);
  ask(b, &c->pool32, "kv32 and score32", pools ? 2 * m * a->head_dim : 0, f32);
  ask(b, &c->index_q_proj, "index_q_proj", scores > 0 ? m * a->index_q_dim : 0, act);
  ask(b, &c->index_q, "index_q", scores > 0 ? m * a->index_q_dim : 0, act);
  ask(b, &c->index_w_proj, "index_w_proj", scores > 0 ? m * a->index_n_heads : 0, act);
  ask(b, &c->index_w, "index_w", scores > 0 ? m * a->index_n_heads : 0, act);
  ask(b, &c->index_score, "index_score", scores, act);
  ask(b, &c->sparse_o, "sparse_o", m * a->q_dim, act);
  ask(b, &c->o_rot, "o_rot", m * a->q_dim, act);
  ask(b, &c->o_group, "o_group", m * a->o_dim, act);
  ask(b, &c->out, "out", m * a->dim, act);
  ask(b, &c->select_scratch, "scratch of the selection", (int64_t)c->select_bytes, 1);
  ask(b, &c->sparse_scratch, "scratch of the attention", (int64_t)c->sparse_bytes, 1);
  ask(b, &c->given_idx, "given idx", m * attn_ld(a), sizeof(int32_t));
  if (scratch_only) return;
  ask(b, &c->idx, "idx", m * attn_ld(a), sizeof(int32_t));
  ask(b, &c->candidates, "candidates", masks, 1);
  ask(b, &c->freq, "rope frequencies", a->rope_head_dim / 2, f32);
  ask(b, &c->compress_freq, "rope frequencies of compressed layers", a->rope_head_dim / 2, f32);
  ask(b, &c->step, "step", 1, sizeof(ls_gpu_attn_step));
}

/* Every buffer of the context, in one list. */
static ls_status list_all(buffers *b, attn_context *c, ls_error *err) {
  memset(b, 0, sizeof *b);
  ask_step(b, c, false);
  for (int64_t l = 0; l < c->config.attn.n_layers; l++) ask_layer(b, &c->config.attn, &c->layer[l], l);
  if (!b->full) return LS_OK;
  free(b->want);
  return ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": out of memory for a list of buffers");
}

static void close_context(void *context) {
  attn_context *c = (attn_context *)context;
  if (!c) return;
  if (c->device.stream) lsg_sync(c->device.stream);
  for (int64_t l = 0; c->layer && l < c->config.attn.n_layers; l++) {
    for (int i = 0; i < ATTN_BUCKETS; i++) {
      if (c->layer[l].decode[i]) lsg_graph_free(c->layer[l].decode[i]);
    }
    if (c->layer[l].prefill) lsg_graph_free(c->layer[l].prefill);
  }
  buffers b;
  if (c->layer && list_all(&b, c, NULL) == LS_OK) {
    for (size_t i = 0; i < b.n; i++) {
      if (*b.want[i].buffer) lsg_free(*b.want[i].buffer);
    }
    free(b.want);
  }
  gpu_device_close(&c->device);
  free(c->layer);
  free(c);
}

/* What runs says which variants prefills of many rows take. */
static void name_variants(attn_context *c) {
  enum { MANY = 1024 };
  const ls_attn_config *a = &c->config.attn;
  char *text = c->device.text;
  auto add = [&](const char *kernel, const char *of) {
    const size_t used = strlen(text);
    if (strcmp(kernel, "portable") != 0) snprintf(text + used, sizeof c->device.text - used, ", %s %s", kernel, of);
  };
  add(ls_gpu_sparse_kernel(MANY, a->n_heads, a->head_dim, a->rope_head_dim, a->window_size + a->index_topk), "attention");
  add(ls_gpu_index_score_kernel(MANY, a->index_n_heads, a->index_head_dim, MANY), "scores");
}

static ls_status allocate(attn_context *c, ls_error *err) {
  buffers b;
  LS_TRY(list_all(&b, c, err));
  const ls_status status = gpu_allocate(&c->device, b.want, b.n, err);
  free(b.want);
  if (status == LS_OK) name_variants(c);
  return status;
}

/* What a step computes into holds NaN after a load (-1 where it is indices): a kernel that does not run finds nothing that the run before
 * left. */
static ls_status poison_scratch(attn_context *c, ls_error *err) {
  buffers b;
  memset(&b, 0, sizeof b);
  ask_step(&b, c, true);
  lsg_status status = LSG_OK;
  for (size_t i = 0; i < b.n && status == LSG_OK; i++) {
    if (*b.want[i].buffer) status = lsg_fill(*b.want[i].buffer, 0xFF, b.want[i].bytes, c->device.stream);
  }
  if (status == LSG_OK && c->select_bytes > 0) status = ls_gpu_select_clear(c->select_scratch, c->device.stream);
  free(b.want);
  if (b.full) return ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": out of memory for a list of buffers");
  return status == LSG_OK ? LS_OK : gpu_failed(status, err);
}

/* ---- weights ---- */

static ls_status upload_weight(attn_context *c, void *device, ls_dtype type, const ls_trace *weights, int64_t layer, const char *what,
                               ls_error *err) {
  const ls_tensor *t = of_layer(weights, layer, what); /* there, and of its shape: checked */
  return gpu_upload_tensor(&c->device, device, type, t, what, ls_tensor_count(t), err);
}

static ls_status upload_layer(attn_context *c, const ls_trace *weights, int64_t layer, ls_error *err) {
  const ls_attn_config *a = &c->config.attn;
  attn_layer *l = &c->layer[layer];
  const bool source = ls_attn_is_kv_source(a, layer), selects = ls_attn_is_index_source(a, layer), pools = attn_pools(a, layer);
  uint16_t *next = l->x_weights; /* in the order of project_x */
  LS_TRY(upload_weight(c, next, LS_BF16, weights, layer, "wq_a", err));
  next += a->q_lora_rank * a->dim;
  LS_TRY(upload_weight(c, next, LS_BF16, weights, layer, "wkv", err));
  next += a->head_dim * a->dim;
  if (source && !pools) {
    LS_TRY(upload_weight(c, next, LS_BF16, weights, layer, "compressor/wkv", err));
    next += a->head_dim * a->dim;
  }
  if (selects) {
    LS_TRY(upload_weight(c, next, LS_BF16, weights, layer, "indexer/weights_proj", err));
    LS_TRY(upload_weight(c, l->qr_weights + a->q_dim * a->q_lora_rank, LS_BF16, weights, layer, "indexer/wq_b", err));
  }
  LS_TRY(upload_weight(c, l->qr_weights, LS_BF16, weights, layer, "wq_b", err));
  LS_TRY(upload_weight(c, l->wo_a, LS_BF16, weights, layer, "wo_a", err));
  LS_TRY(upload_weight(c, l->wo_b, LS_BF16, weights, layer, "wo_b", err));
  LS_TRY(upload_weight(c, l->attn_sink, LS_F32, weights, layer, "attn_sink", err));
  LS_TRY(upload_weight(c, l->q_norm, LS_F32, weights, layer, "q_norm", err));
  LS_TRY(upload_weight(c, l->kv_norm, LS_F32, weights, layer, "kv_norm", err));
  if (source) {
    LS_TRY(upload_weight(c, l->pool_norm, LS_F32, weights, layer, "compressor/norm", err));
    LS_TRY(upload_weight(c, l->index_wk, LS_BF16, weights, layer, "indexer/wk", err));
    LS_TRY(upload_weight(c, l->index_k_norm, LS_F32, weights, layer, "indexer/k_norm", err));
  }
  if (!pools) return LS_OK;
  LS_TRY(upload_weight(c, l->pool_weights, LS_F32, weights, layer, "compressor/wkv", err));
  return upload_weight(c, l->pool_weights + a->head_dim * a->dim, LS_F32, weights, layer, "compressor/wgate", err);
}

static ls_status upload_freq(attn_context *c, float *device, bool compressed, ls_error *err) {
  const size_t bytes = (size_t)(c->config.attn.rope_head_dim / 2) * sizeof(float);
  float *host = (float *)malloc(bytes);
  if (!host) return ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": out of memory for %zu bytes of rope frequencies", bytes);
  ls_gpu_attn_freq(host, &c->config.attn, compressed);
  const lsg_status status = lsg_upload(device, host, bytes, c->device.stream);
  free(host);
  DEVICE_TRY(status);
  return LS_OK;
}

static ls_status upload_weights(attn_context *c, const ls_trace *weights, ls_error *err) {
  ls_spec_list list = {NULL, 0, 0};
  ls_status status = c->config.layer->weight_specs(&c->config, &list, err);
  if (status == LS_OK) status = check_tensors(&list, weights, "weights/", err);
  ls_spec_free(&list);
  if (status != LS_OK) return status;
  LS_TRY(upload_freq(c, c->freq, false, err));
  LS_TRY(upload_freq(c, c->compress_freq, true, err));
  for (int64_t l = 0; l < c->config.attn.n_layers; l++) {
    c->layer[l].freq = c->config.attn.compress_ratio[l] > 0 ? c->compress_freq : c->freq;
    LS_TRY(upload_layer(c, weights, l, err));
  }
  return LS_OK;
}

/* ---- the state, out ---- */

static ls_status save_tensor(attn_context *c, ls_trace *state, const char *name, ls_dtype type, const void *device, int64_t rows,
                             int64_t columns, ls_error *err) {
  const int64_t dim[2] = {rows, columns};
  ls_tensor t;
  if (!device || rows == 0) return LS_OK;
  LS_TRY(ls_trace_add(state, name, type, 2, dim, &t, err));
  DEVICE_TRY(lsg_download(t.data, device, ls_tensor_bytes(&t), c->device.stream));
  return LS_OK;
}

static ls_status save_of_layer(attn_context *c, ls_trace *state, int64_t layer, const char *what, ls_dtype type, const void *device,
                               int64_t rows, int64_t columns, ls_error *err) {
  char name[LS_MAX_SPEC_NAME];
  snprintf(name, sizeof name, "layers/%lld/%s", (ll)layer, what);
  return save_tensor(c, state, name, type, device, rows, columns, err);
}

/* A copy of the whole idx on the host, free() it; NULL: *err says why. */
static int32_t *download_idx(attn_context *c, int64_t rows, ls_error *err) {
  const size_t bytes = (size_t)(rows * attn_ld(&c->config.attn)) * sizeof(int32_t);
  int32_t *host = (int32_t *)malloc(bytes);
  if (!host) {
    ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": out of memory: %zu bytes for the published selection", bytes);
    return NULL;
  }
  const lsg_status status = lsg_download(host, c->idx, bytes, c->device.stream);
  if (status == LSG_OK) return host;
  gpu_failed(status, err);
  free(host);
  return NULL;
}

static ls_status save_selection(attn_context *c, ls_trace *state, ls_error *err) {
  const ls_attn_config *a = &c->config.attn;
  const int64_t rows = c->published.topk_rows, width = c->published.topk_width, dim[2] = {rows, width};
  ls_tensor t;
  if (rows == 0 || width == 0) return LS_OK;
  LS_TRY(ls_trace_add(state, "topk_idxs", LS_I32, 2, dim, &t, err));
  int32_t *host = download_idx(c, rows, err);
  if (!host) return LS_INTERNAL;
  for (int64_t r = 0; r < rows; r++)
    memcpy((int32_t *)t.data + r * width, host + r * attn_ld(a) + a->window_size, (size_t)width * sizeof(int32_t));
  free(host);
  return LS_OK;
}

static ls_status save_context(void *context, ls_trace *state, ls_error *err) {
  attn_context *c = (attn_context *)context;
  const ls_attn_config *a = &c->config.attn;
  for (int64_t layer = 0; layer < a->n_layers; layer++) {
    const attn_layer *l = &c->layer[layer];
    const int64_t ratio = a->compress_ratio[layer];
    LS_TRY(save_of_layer(c, state, layer, "window", LS_BF16, l->window, a->window_size, a->head_dim, err));
    LS_TRY(save_of_layer(c, state, layer, "compress_cache", LS_BF16, l->compress_cache, l->compress_rows, a->head_dim, err));
    LS_TRY(save_of_layer(c, state, layer, "index_cache", LS_BF16, l->index_cache, l->index_rows, a->index_head_dim, err));
    LS_TRY(save_of_layer(c, state, layer, "kv_state", LS_F32, l->kv_state, ratio, a->head_dim, err));
    LS_TRY(save_of_layer(c, state, layer, "score_state", LS_F32, l->score_state, ratio, a->head_dim, err));
  }
  for (int i = 0; i < LS_ATTN_PUBLISHED; i++) {
    const int64_t one = 1;
    ls_tensor t;
    LS_TRY(ls_trace_add(state, ls_attn_published[i].name, LS_I64, 1, &one, &t, err));
    memcpy(t.data, (const char *)&c->published + ls_attn_published[i].offset, sizeof(int64_t));
  }
  LS_TRY(save_selection(c, state, err));
  const ls_attn_state *p = &c->published; /* one row, or as wide as memory: dense either way */
  return save_tensor(c, state, "candidates", LS_U8, c->candidates, p->candidate_width > 0 ? p->candidate_rows : 0, p->candidate_width, err);
}

/* ---- the state, in ---- */

static ls_status read_integers(ls_attn_state *next, const ls_trace *state, ls_error *err) {
  for (int i = 0; i < LS_ATTN_PUBLISHED; i++) {
    const ls_tensor *t = ls_trace_tensor(state, ls_attn_published[i].name);
    int64_t value = ls_attn_published[i].absent;
    if (t && (t->place != LS_HOST || ls_tensor_count(t) != 1 || ls_dtype_is_float(t->dtype))) {
      char dims[96];
      return ls_fail(err, LS_BAD_FIXTURE, "state: %s: expected one integer, found %s %s", ls_attn_published[i].name,
                     ls_dtype_name(t->dtype), ls_dims_text(dims, sizeof dims, t->ndim, t->dim));
    }
    if (t) value = (int64_t)ls_tensor_get(t, 0);
    memcpy((char *)next + ls_attn_published[i].offset, &value, sizeof value);
  }
  return LS_OK;
}

/* A published tensor [rows, width] of a state; NULL where there is none. */
static ls_status find_published(const ls_tensor **t, const ls_trace *state, const char *name, ls_dtype type, int64_t rows, int64_t width,
                                ls_error *err) {
  ls_tensor_spec spec;
  *t = NULL;
  if (rows == 0 || width == 0) return LS_OK;
  memset(&spec, 0, sizeof spec);
  snprintf(spec.name, sizeof spec.name, "%s", name);
  spec.ndim = 2;
  spec.dim[0] = rows, spec.dim[1] = width;
  spec.dtypes = 1u << type;
  spec.required = true;
  return attn_check_tensor(t, state, "state: ", &spec, err);
}

/* Entries of a selection made for positions [start, start + rows): -1, or a compressed row behind the rows_a of that step. What a step may
 * read of them depends on its ratio too, which the step checks. */
static ls_status check_selection(const ls_attn_config *a, const ls_attn_state *s, const ls_tensor *topk, int64_t *most, ls_error *err) {
  const int64_t offset = s->topk_start == 0 ? s->topk_rows : a->window_size, end = offset + s->topk_start + s->topk_rows;
  *most = -1;
  for (int64_t i = 0; topk && i < ls_tensor_count(topk); i++) {
    const int64_t entry = (int64_t)ls_tensor_get(topk, i);
    if (!(entry == -1 || (entry >= offset && entry < end)))
      return ls_fail(err, LS_BAD_FIXTURE, "state: topk_idxs: expected -1 or %lld .. %lld, found %lld at row %lld, entry %lld", (ll)offset,
                     (ll)end - 1, (ll)entry, (ll)(i / s->topk_width), (ll)(i % s->topk_width));
    if (entry > *most) *most = entry;
  }
  return LS_OK;
}

/* A mask that no step can have made has no place: more than one row elsewhere than at position 0, or wider than the cache. */
static ls_status check_candidates(const ls_attn_config *a, const ls_attn_state *s, ls_error *err) {
  const int64_t source = a->candidate_source_layer, rows = s->candidate_rows, width = s->candidate_width;
  if (rows == 0 || width == 0) return LS_OK;
  const int64_t ratio = source >= 0 ? a->compress_ratio[source] : 0;
  if (ratio > 0 && (rows == 1 || s->candidate_start == 0) && width <= (s->candidate_start + rows) / ratio) return LS_OK;
  return ls_fail(err, LS_BAD_FIXTURE,
                 "state: candidates: expected what the candidate source publishes, found [%lld, %lld] at start_pos %lld", (ll)rows,
                 (ll)width, (ll)s->candidate_start);
}

static ls_status load_selection(attn_context *c, const ls_tensor *topk, ls_error *err) {
  const ls_attn_config *a = &c->config.attn;
  const int64_t rows = smaller(a->max_tokens, a->max_seq_len), ld = attn_ld(a);
  DEVICE_TRY(lsg_fill(c->idx, 0xFF, (size_t)(rows * ld) * sizeof(int32_t), c->device.stream)); /* -1 */
  if (!topk) return LS_OK;
  int32_t *host = download_idx(c, topk->dim[0], err);
  if (!host) return LS_INTERNAL;
  for (int64_t i = 0; i < ls_tensor_count(topk); i++)
    host[i / topk->dim[1] * ld + a->window_size + i % topk->dim[1]] = (int32_t)ls_tensor_get(topk, i);
  const lsg_status status = lsg_upload(c->idx, host, (size_t)(topk->dim[0] * ld) * sizeof(int32_t), c->device.stream);
  free(host);
  DEVICE_TRY(status);
  return LS_OK;
}

static ls_status load_mask(attn_context *c, const ls_tensor *mask, ls_error *err) {
  const ls_attn_config *a = &c->config.attn;
  if (!c->candidates) return LS_OK;
  const int64_t ratio = a->compress_ratio[a->candidate_source_layer];
  const size_t bytes = (size_t)most_scores(a, ratio, smaller(a->max_tokens, a->max_seq_len));
  DEVICE_TRY(lsg_fill(c->candidates, 0, bytes, c->device.stream));
  return mask ? gpu_upload_tensor(&c->device, c->candidates, LS_U8, mask, "candidates", ls_tensor_count(mask), err) : LS_OK;
}

/* The first rows of a cache; the rest was zero already, or becomes it. */
static ls_status load_cache(attn_context *c, uint16_t *cache, int64_t *rows, int64_t width, const ls_tensor *from, const char *name,
                            ls_error *err) {
  if (*rows > 0) DEVICE_TRY(lsg_fill(cache, 0, (size_t)(*rows * width) * act, c->device.stream));
  *rows = from ? from->dim[0] : 0;
  return *rows > 0 ? gpu_upload_tensor(&c->device, cache, LS_BF16, from, name, *rows * width, err) : LS_OK;
}

/* score_state of nothing that waits: -inf, which no byte fills. */
static ls_status fill_minus_inf(attn_context *c, float *device, int64_t count, ls_error *err) {
  float *host = (float *)malloc((size_t)count * f32);
  if (!host) return ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": out of memory: %zu bytes for score_state", (size_t)count * f32);
  for (int64_t i = 0; i < count; i++) host[i] = -INFINITY;
  const lsg_status status = lsg_upload(device, host, (size_t)count * f32, c->device.stream);
  free(host);
  DEVICE_TRY(status);
  return LS_OK;
}

static ls_status load_layer(attn_context *c, const ls_trace *state, int64_t layer, ls_error *err) {
  const ls_attn_config *a = &c->config.attn;
  attn_layer *l = &c->layer[layer];
  const int64_t ring = a->window_size * a->head_dim, waiting = a->compress_ratio[layer] * a->head_dim;
  const ls_tensor *t = of_layer(state, layer, "window");
  if (t)
    LS_TRY(gpu_upload_tensor(&c->device, l->window, LS_BF16, t, "window", ring, err));
  else
    DEVICE_TRY(lsg_fill(l->window, 0, (size_t)ring * act, c->device.stream));
  if (!ls_attn_is_kv_source(a, layer)) return LS_OK;
  t = of_layer(state, layer, "compress_cache");
  LS_TRY(load_cache(c, l->compress_cache, &l->compress_rows, a->head_dim, t, "compress_cache", err));
  t = of_layer(state, layer, "index_cache");
  LS_TRY(load_cache(c, l->index_cache, &l->index_rows, a->index_head_dim, t, "index_cache", err));
  if (!attn_pools(a, layer)) return LS_OK;
  t = of_layer(state, layer, "kv_state");
  if (t)
    LS_TRY(gpu_upload_tensor(&c->device, l->kv_state, LS_F32, t, "kv_state", waiting, err));
  else
    DEVICE_TRY(lsg_fill(l->kv_state, 0, (size_t)waiting * f32, c->device.stream));
  t = of_layer(state, layer, "score_state");
  return t ? gpu_upload_tensor(&c->device, l->score_state, LS_F32, t, "score_state", waiting, err)
           : fill_minus_inf(c, l->score_state, waiting, err);
}

static ls_status check_state(const attn_context *c, const ls_trace *state, ls_attn_state *next, ls_error *err) {
  ls_spec_list list = {NULL, 0, 0};
  ls_error why;
  memset(&why, 0, sizeof why);
  memset(next, 0, sizeof *next);
  LS_TRY(read_integers(next, state, err));
  const ls_status sound = ls_attn_state_check(&c->config.attn, next, &why);
  if (sound != LS_OK) return ls_fail(err, sound, "state: %s", why.text);
  ls_status status = c->config.layer->state_specs(&c->config, &list, err);
  if (status == LS_OK) status = check_tensors(&list, state, "state: ", err);
  ls_spec_free(&list);
  return status;
}

static ls_status load_context(void *context, const ls_trace *state, ls_error *err) {
  attn_context *c = (attn_context *)context;
  ls_attn_state next;
  const ls_tensor *topk, *mask;
  int64_t most;
  LS_TRY(check_state(c, state, &next, err));
  LS_TRY(find_published(&topk, state, "topk_idxs", LS_I32, next.topk_rows, next.topk_width, err));
  LS_TRY(check_selection(&c->config.attn, &next, topk, &most, err));
  LS_TRY(check_candidates(&c->config.attn, &next, err));
  LS_TRY(find_published(&mask, state, "candidates", LS_U8, next.candidate_rows, next.candidate_width, err));

  /* nothing below fails but the device */
  LS_TRY(poison_scratch(c, err));
  for (int64_t l = 0; l < c->config.attn.n_layers; l++) LS_TRY(load_layer(c, state, l, err));
  LS_TRY(load_selection(c, topk, err));
  LS_TRY(load_mask(c, mask, err));
  DEVICE_TRY(lsg_sync(c->device.stream));
  c->published = next;
  c->loaded_most = most;
  return LS_OK;
}

/* ---- open ---- */

/* Caches are zero from the start to their last row; a load then clears only what was written. */
static ls_status zero_caches(attn_context *c, ls_error *err) {
  const ls_attn_config *a = &c->config.attn;
  for (int64_t l = 0; l < a->n_layers; l++) {
    c->layer[l].compress_rows = c->layer[l].index_rows = ls_attn_is_kv_source(a, l) ? ls_attn_cache_rows(a, l) : 0;
  }
  return load_context(c, NULL, err);
}

static ls_status open_context(void **context, const ls_config *config, const ls_trace *weights, const ls_path_options *options,
                              ls_error *err) {
  *context = NULL;
  ls_config checked = *config;
  LS_TRY(checked.layer->config_check(&checked, err));
  attn_context *c = (attn_context *)calloc(1, sizeof *c);
  if (!c) return ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": out of memory");
  c->config = checked;
  ls_status status = LS_OK;
  c->layer = (attn_layer *)calloc((size_t)checked.attn.n_layers, sizeof *c->layer);
  if (!c->layer) status = ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": out of memory for %lld layers", (ll)checked.attn.n_layers);
  if (status == LS_OK) status = gpu_device_open(&c->device, options, err);
  if (status == LS_OK) status = allocate(c, err);
  if (status == LS_OK) status = upload_weights(c, weights, err);
  if (status == LS_OK) status = zero_caches(c, err);
  if (status == LS_OK)
    *context = c;
  else
    close_context(c);
  return status;
}

/* ---- the path ---- */

static ls_status step_context(void *context, const ls_step *step, const ls_trace *given, ls_trace *out, bool out_rings, ls_error *err) {
  attn_context *c = (attn_context *)context;
  (void)out_rings; /* the window is a stage like any other: it is small */
  lsg_set_schedule(c->device.schedule);
  return attn_forward_step(c, step, given, out, err);
}

static ls_status time_context(void *context, const ls_step *step, const ls_timing_how *how, ls_timing *timing, ls_trace *last,
                              ls_error *err) {
  attn_context *c = (attn_context *)context;
  lsg_set_schedule(c->device.schedule);
  return attn_forward_time(c, step, how, timing, last, err);
}

static ls_stage_kind stage_kind(void *context, const ls_step *step, const char *stage) {
  return attn_stage_kind(&((attn_context *)context)->config.attn, step, stage);
}

static const char *describe(void *context) { return ((attn_context *)context)->device.text; }

const ls_path gpu_attn_path = {
    LS_PATH_ABI, LS_GPU_NAME, open_context,  step_context, save_context, load_context,
    stage_kind,  describe,    close_context, NULL,         time_context, NULL,
};

}  // namespace LSG_NS
