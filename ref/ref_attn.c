#include "ref_attn.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref_attn_internal.h"
#include "ref_check.h"
#include "ref_rope.h"

typedef long long ll;

/* ---- open, close ---- */

typedef enum { EVERY_LAYER, KV_SOURCE, POOLING_SOURCE, INDEX_SOURCE } role;

static const struct {
  const char *name; /* under layers/<l>/ */
  role of;
  size_t offset; /* of an ls_tensor in an ls_ref_attn_layer */
} weight_of_layer[] = {
    {"attn_sink", EVERY_LAYER, offsetof(ls_ref_attn_layer, attn_sink)},
    {"wq_a", EVERY_LAYER, offsetof(ls_ref_attn_layer, wq_a)},
    {"q_norm", EVERY_LAYER, offsetof(ls_ref_attn_layer, q_norm)},
    {"wq_b", EVERY_LAYER, offsetof(ls_ref_attn_layer, wq_b)},
    {"wkv", EVERY_LAYER, offsetof(ls_ref_attn_layer, wkv)},
    {"kv_norm", EVERY_LAYER, offsetof(ls_ref_attn_layer, kv_norm)},
    {"wo_a", EVERY_LAYER, offsetof(ls_ref_attn_layer, wo_a)},
    {"wo_b", EVERY_LAYER, offsetof(ls_ref_attn_layer, wo_b)},
    {"compressor/wkv", KV_SOURCE, offsetof(ls_ref_attn_layer, pool_wkv)},
    {"compressor/wgate", POOLING_SOURCE, offsetof(ls_ref_attn_layer, pool_wgate)},
    {"compressor/norm", KV_SOURCE, offsetof(ls_ref_attn_layer, pool_norm)},
    {"indexer/wk", KV_SOURCE, offsetof(ls_ref_attn_layer, index_wk)},
    {"indexer/k_norm", KV_SOURCE, offsetof(ls_ref_attn_layer, index_k_norm)},
    {"indexer/wq_b", INDEX_SOURCE, offsetof(ls_ref_attn_layer, index_wq_b)},
    {"indexer/weights_proj", INDEX_SOURCE, offsetof(ls_ref_attn_layer, index_weights)},
};

static bool has_role(const ls_attn_config *c, int64_t layer, role of) {
  if (of == KV_SOURCE) return ls_attn_is_kv_source(c, layer);
  if (of == POOLING_SOURCE) return ls_attn_is_kv_source(c, layer) && c->compress_ratio[layer] > 1;
  if (of == INDEX_SOURCE) return ls_attn_is_index_source(c, layer);
  return true;
}

static ls_status widen_layer(ls_ref_attn *ref, int64_t layer, const ls_trace *weights, ls_error *err) {
  for (size_t i = 0; i < sizeof weight_of_layer / sizeof weight_of_layer[0]; i++) {
    if (!has_role(&ref->config.attn, layer, weight_of_layer[i].of)) continue;
    char name[LS_MAX_SPEC_NAME];
    snprintf(name, sizeof name, "layers/%lld/%s", (ll)layer, weight_of_layer[i].name);
    const ls_tensor *from = ls_trace_tensor(weights, name);
    ls_tensor *to = (ls_tensor *)((char *)&ref->layer[layer] + weight_of_layer[i].offset);
    LS_TRY(ls_trace_add(ref->weights, name, ref->wide, from->ndim, from->dim, to, err));
    LS_TRY(ls_tensor_copy(to, from, err));
  }
  return LS_OK;
}

/* A cache of zeros. From the system, not from an arena, which would write to every page of it. */
static ls_status cache_new(ls_tensor *t, ls_dtype dtype, int64_t rows, int64_t width, ls_error *err) {
  *t = ls_tensor_make(dtype, 2, (int64_t[]){rows, width}, NULL);
  t->data = calloc((size_t)(rows * width), ls_dtype_size(dtype));
  if (t->data != NULL) return LS_OK;
  return ls_fail(err, LS_INTERNAL, "out of memory: %zu bytes for a cache of %lld rows of %lld", ls_tensor_bytes(t), (ll)rows, (ll)width);
}

static ls_status add_state(ls_ref_attn *ref, int64_t layer, const char *what, ls_dtype dtype, int64_t rows, ls_tensor *t, ls_error *err) {
  char name[LS_MAX_SPEC_NAME];
  snprintf(name, sizeof name, "layers/%lld/%s", (ll)layer, what);
  return ls_trace_add(ref->memory, name, dtype, 2, (int64_t[]){rows, ref->config.attn.head_dim}, t, err);
}

static ls_status state_new(ls_ref_attn *ref, int64_t layer, ls_error *err) {
  const ls_attn_config *c = &ref->config.attn;
  ls_ref_attn_layer *l = &ref->layer[layer];
  LS_TRY(add_state(ref, layer, "window", ref->stored, c->window_size, &l->window, err));
  if (!has_role(c, layer, KV_SOURCE)) return LS_OK;
  const int64_t rows = ls_attn_cache_rows(c, layer);
  LS_TRY(cache_new(&l->compress_cache, ref->stored, rows, c->head_dim, err));
  LS_TRY(cache_new(&l->index_cache, ref->stored, rows, c->index_head_dim, err));
  if (!has_role(c, layer, POOLING_SOURCE)) return LS_OK;
  LS_TRY(add_state(ref, layer, "kv_state", ref->wide, c->compress_ratio[layer], &l->kv_state, err));
  return add_state(ref, layer, "score_state", ref->wide, c->compress_ratio[layer], &l->score_state, err);
}

/* Bytes that the state has from the start: rings and pooling state. Each product is within the limits of config_check. */
static int64_t state_bytes(const ls_attn_config *c, ls_dtype stored, ls_dtype wide) {
  int64_t bytes = 0;
  for (int64_t layer = 0; layer < c->n_layers; layer++) {
    bytes += c->window_size * c->head_dim * (int64_t)ls_dtype_size(stored);
    if (has_role(c, layer, POOLING_SOURCE)) bytes += 2 * c->compress_ratio[layer] * c->head_dim * (int64_t)ls_dtype_size(wide);
  }
  return bytes;
}

void ls_ref_attn_freq(float *freq, const ls_attn_config *config, bool compressed) {
  const ls_ref_yarn yarn = {config->original_seq_len, config->beta_fast, config->beta_slow, config->rope_factor};
  ls_ref_rope_freq(freq, config->rope_head_dim, compressed ? config->compress_rope_theta : config->rope_theta);
  if (compressed) ls_ref_rope_yarn(freq, config->rope_head_dim, config->compress_rope_theta, &yarn);
}

ls_status ls_ref_attn_open(ls_ref_attn **ref, const ls_config *config, const ls_trace *weights, ls_dtype wide, ls_error *err) {
  const ls_attn_config *c = &config->attn;
  const ls_dtype stored = wide == LS_F64 ? LS_F64 : config->act;
  ls_ref_attn *r = NULL;
  ls_status status;
  *ref = NULL;
  LS_TRY(ls_ref_check_weights(config, weights, wide, state_bytes(c, stored, wide), err));

  r = calloc(1, sizeof *r);
  if (r == NULL) return ls_fail(err, LS_INTERNAL, "out of memory: %zu bytes for the reference", sizeof *r);
  r->config = *config;
  r->wide = wide;
  r->stored = stored;
  r->layer = calloc((size_t)c->n_layers, sizeof *r->layer);
  r->freq = calloc((size_t)c->rope_head_dim / 2, sizeof *r->freq);
  r->compress_freq = calloc((size_t)c->rope_head_dim / 2, sizeof *r->compress_freq);
  if (r->layer == NULL || r->freq == NULL || r->compress_freq == NULL) {
    status = ls_fail(err, LS_INTERNAL, "out of memory: tables of %lld layers", (ll)c->n_layers);
    goto out;
  }

  ls_ref_attn_freq(r->freq, c, false);
  ls_ref_attn_freq(r->compress_freq, c, true);

  LS_TRY_OUT(ls_trace_new(&r->weights, "ref weights", err));
  LS_TRY_OUT(ls_trace_new(&r->memory, "ref state", err));
  for (int64_t layer = 0; layer < c->n_layers; layer++) {
    r->layer[layer].freq = c->compress_ratio[layer] > 0 ? r->compress_freq : r->freq;
    LS_TRY_OUT(widen_layer(r, layer, weights, err));
    LS_TRY_OUT(state_new(r, layer, err));
  }
  LS_TRY_OUT(ls_ref_attn_load(r, NULL, err));
  *ref = r;
  r = NULL;
out:
  ls_ref_attn_close(r);
  return status;
}

void ls_ref_attn_close(ls_ref_attn *ref) {
  if (ref == NULL) return;
  for (int64_t layer = 0; ref->layer != NULL && layer < ref->config.attn.n_layers; layer++) {
    free(ref->layer[layer].compress_cache.data);
    free(ref->layer[layer].index_cache.data);
  }
  free(ref->topk_idxs.data);
  free(ref->candidates.data);
  ls_trace_free(ref->memory);
  ls_trace_free(ref->weights);
  free(ref->compress_freq);
  free(ref->freq);
  free(ref->layer);
  free(ref);
}

ls_status ls_ref_attn_published_new(ls_tensor *t, ls_dtype dtype, int64_t rows, int64_t width, ls_error *err) {
  *t = ls_tensor_make(dtype, 2, (int64_t[]){rows, width}, NULL);
  const size_t bytes = ls_tensor_bytes(t);
  t->data = malloc(bytes > 0 ? bytes : 1); /* width 0 is published too */
  if (t->data != NULL) return LS_OK;
  return ls_fail(err, LS_INTERNAL, "out of memory: %zu bytes for a selection or mask [%lld, %lld]", bytes, (ll)rows, (ll)width);
}

/* ---- the state, out ---- */

static ls_status save_tensor(ls_trace *state, const char *name, const ls_tensor *t, ls_error *err) {
  ls_tensor copy;
  LS_TRY(ls_trace_add(state, name, t->dtype, t->ndim, t->dim, &copy, err));
  return ls_tensor_copy(&copy, t, err);
}

static ls_status save_of_layer(ls_trace *state, int64_t layer, const char *what, const ls_tensor *t, int64_t rows, ls_error *err) {
  if (t->data == NULL || rows == 0) return LS_OK;
  char name[LS_MAX_SPEC_NAME];
  snprintf(name, sizeof name, "layers/%lld/%s", (ll)layer, what);
  const ls_tensor first = ls_tensor_slice(t, 0, 0, rows);
  return save_tensor(state, name, &first, err);
}

ls_status ls_ref_attn_save(const ls_ref_attn *ref, ls_trace *state, ls_error *err) {
  const ls_attn_config *c = &ref->config.attn;
  for (int64_t layer = 0; layer < c->n_layers; layer++) {
    const ls_ref_attn_layer *l = &ref->layer[layer];
    LS_TRY(save_of_layer(state, layer, "window", &l->window, c->window_size, err));
    LS_TRY(save_of_layer(state, layer, "compress_cache", &l->compress_cache, l->compress_rows, err));
    LS_TRY(save_of_layer(state, layer, "index_cache", &l->index_cache, l->index_rows, err));
    LS_TRY(save_of_layer(state, layer, "kv_state", &l->kv_state, c->compress_ratio[layer], err));
    LS_TRY(save_of_layer(state, layer, "score_state", &l->score_state, c->compress_ratio[layer], err));
  }
  for (int i = 0; i < LS_ATTN_PUBLISHED; i++) {
    int64_t value;
    memcpy(&value, (const char *)&ref->published + ls_attn_published[i].offset, sizeof value);
    const ls_tensor t = ls_tensor_make(LS_I64, 1, &(int64_t){1}, &value);
    LS_TRY(save_tensor(state, ls_attn_published[i].name, &t, err));
  }
  if (ls_tensor_count(&ref->topk_idxs) > 0) LS_TRY(save_tensor(state, "topk_idxs", &ref->topk_idxs, err));
  if (ls_tensor_count(&ref->candidates) > 0) LS_TRY(save_tensor(state, "candidates", &ref->candidates, err));
  return LS_OK;
}

/* ---- the state, in ---- */

/* A published selection or mask of a state trace as a copy with memory of its own. */
static ls_status load_published(ls_tensor *t, const ls_trace *state, const char *name, ls_dtype dtype, int64_t rows, int64_t width,
                                ls_error *err) {
  ls_tensor_spec spec = {.ndim = 2, .dim = {rows, width, 1, 1}, .dtypes = 1u << dtype, .required = rows > 0 && width > 0};
  const ls_tensor *from = NULL;
  snprintf(spec.name, sizeof spec.name, "%s", name);
  if (spec.required) LS_TRY(ls_ref_check_tensor(&from, state, "state: ", &spec, err));
  LS_TRY(ls_ref_attn_published_new(t, dtype, rows, width, err));
  return from == NULL ? LS_OK : ls_tensor_copy(t, from, err);
}

/* Entries of a selection made for positions [start, start + rows): -1, or a compressed row behind the rows_a of that step. What a step may
 * read of them depends on its ratio too, which the step checks. */
static ls_status check_selection(const ls_attn_config *c, const ls_attn_state *s, const ls_tensor *topk, ls_error *err) {
  const int64_t offset = s->topk_start == 0 ? s->topk_rows : c->window_size, end = offset + s->topk_start + s->topk_rows;
  const int32_t *entry = topk->data;
  for (int64_t i = 0; i < ls_tensor_count(topk); i++) {
    if (!(entry[i] == -1 || (entry[i] >= offset && entry[i] < end)))
      return ls_fail(err, LS_BAD_FIXTURE, "state: topk_idxs: expected -1 or %lld .. %lld, found %d at row %lld, entry %lld", (ll)offset,
                     (ll)end - 1, (int)entry[i], (ll)(i / s->topk_width), (ll)(i % s->topk_width));
  }
  return LS_OK;
}

/* What a state trace holds of a layer; NULL where it has none of it. */
static const ls_tensor *of_layer(const ls_trace *state, int64_t layer, const char *what) {
  char name[LS_MAX_SPEC_NAME];
  snprintf(name, sizeof name, "layers/%lld/%s", (ll)layer, what);
  return ls_trace_tensor(state, name);
}

static void load_tensor(const ls_tensor *to, const ls_tensor *from, double absent) {
  if (from != NULL) {
    ls_tensor_copy(to, from, NULL);
  } else {
    for (int64_t i = 0; i < ls_tensor_count(to); i++) ls_tensor_set(to, i, absent);
  }
}

/* The first rows of a cache; the rest was zero already, or becomes it. */
static void load_cache(const ls_tensor *cache, int64_t *rows, const ls_tensor *from) {
  const int64_t held = *rows, now = from == NULL ? 0 : from->dim[0];
  const ls_tensor beyond = ls_tensor_slice(cache, 0, now, held > now ? held - now : 0), first = ls_tensor_slice(cache, 0, 0, now);
  if (held > now) memset(beyond.data, 0, ls_tensor_bytes(&beyond));
  if (now > 0) ls_tensor_copy(&first, from, NULL);
  *rows = now;
}

ls_status ls_ref_attn_load(ls_ref_attn *ref, const ls_trace *state, ls_error *err) {
  const ls_attn_config *c = &ref->config.attn;
  ls_attn_state next = {0};
  ls_spec_list list = {0};
  ls_tensor topk = {0}, candidates = {0};
  ls_status status;
  for (int i = 0; i < LS_ATTN_PUBLISHED; i++) {
    int64_t value;
    LS_TRY_OUT(ls_ref_read_integer(&value, state, ls_attn_published[i].name, ls_attn_published[i].absent, err));
    memcpy((char *)&next + ls_attn_published[i].offset, &value, sizeof value);
  }
  LS_TRY_OUT(ls_ref_check_state(&ref->config, &(ls_layer_state){.attn = next}, err));
  LS_TRY_OUT(ref->config.layer->state_specs(&ref->config, &list, err));
  for (int i = 0; i < list.n; i++) {
    const ls_tensor *unused;
    LS_TRY_OUT(ls_ref_check_tensor(&unused, state, "state: ", &list.spec[i], err));
  }
  LS_TRY_OUT(load_published(&topk, state, "topk_idxs", LS_I32, next.topk_rows, next.topk_width, err));
  LS_TRY_OUT(check_selection(c, &next, &topk, err));
  LS_TRY_OUT(load_published(&candidates, state, "candidates", LS_U8, next.candidate_rows, next.candidate_width, err));

  /* nothing below fails */
  for (int64_t layer = 0; layer < c->n_layers; layer++) {
    ls_ref_attn_layer *l = &ref->layer[layer];
    load_tensor(&l->window, of_layer(state, layer, "window"), 0);
    if (has_role(c, layer, KV_SOURCE)) {
      load_cache(&l->compress_cache, &l->compress_rows, of_layer(state, layer, "compress_cache"));
      load_cache(&l->index_cache, &l->index_rows, of_layer(state, layer, "index_cache"));
    }
    if (has_role(c, layer, POOLING_SOURCE)) {
      load_tensor(&l->kv_state, of_layer(state, layer, "kv_state"), 0);
      load_tensor(&l->score_state, of_layer(state, layer, "score_state"), -(double)INFINITY);
    }
  }
  ref->published = next;
  free(ref->topk_idxs.data);
  free(ref->candidates.data);
  ref->topk_idxs = topk;
  ref->candidates = candidates;
  topk.data = candidates.data = NULL;
out:
  free(topk.data);
  free(candidates.data);
  ls_spec_free(&list);
  return status;
}

/* ---- what a step has ---- */

ls_stage_kind ls_ref_attn_stage_kind(const ls_ref_attn *ref, const ls_step *step, const char *stage) {
  ls_spec_list list = {0};
  ls_stage_kind kind = LS_STAGE_ABSENT;
  const bool known = ref->config.layer->expect_specs(&ref->config, step, &list, NULL) == LS_OK;
  for (int i = 0; known && i < list.n; i++) {
    if (strcmp(list.spec[i].name, stage) == 0) kind = LS_STAGE_OWN;
  }
  ls_spec_free(&list);
  return kind;
}
