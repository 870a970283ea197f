#include "ref_dflash.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref_check.h"
#include "ref_linear.h"
#include "ref_norm.h"
#include "ref_rope.h"

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- open, close ---- */

static ls_status widen(ls_ref_dflash *ref, ls_tensor *to, const ls_trace *weights, const char *name, ls_error *err) {
  const ls_tensor *from = ls_trace_tensor(weights, name);
  LS_TRY(ls_trace_add(ref->weights, name, ref->wide, from->ndim, from->dim, to, err));
  return ls_tensor_copy(to, from, err);
}

static void set_zero(const ls_tensor *t) { memset(t->data, 0, ls_tensor_bytes(t)); }

ls_status ls_ref_dflash_open(ls_ref_dflash **ref, const ls_config *config, const ls_trace *weights, ls_dtype wide, ls_error *err) {
  const ls_dflash_config *c = &config->dflash;
  ls_ref_dflash *r = NULL;
  ls_status status;
  *ref = NULL;
  const int64_t state_bytes = (2 * c->layers * c->ring_capacity * c->kv_dim + c->max_rows * c->fc_in) *
                              (int64_t)ls_dtype_size(wide == LS_F64 ? LS_F64 : config->act);
  LS_TRY(ls_ref_check_weights(config, weights, wide, state_bytes, err));

  r = calloc(1, sizeof *r);
  if (r == NULL) return ls_fail(err, LS_INTERNAL, "out of memory: %zu bytes for the reference", sizeof *r);
  r->config = *config;
  r->wide = wide;
  r->stored = wide == LS_F64 ? LS_F64 : config->act;
  r->k_proj = calloc((size_t)c->layers, sizeof *r->k_proj);
  r->v_proj = calloc((size_t)c->layers, sizeof *r->v_proj);
  r->k_norm = calloc((size_t)c->layers, sizeof *r->k_norm);
  r->freq = calloc((size_t)c->head_dim / 2, sizeof *r->freq);
  if (r->k_proj == NULL || r->v_proj == NULL || r->k_norm == NULL || r->freq == NULL) {
    status = ls_fail(err, LS_INTERNAL, "out of memory: tables of %lld drafter layers", (long long)c->layers);
    goto out;
  }

  LS_TRY_OUT(ls_trace_new(&r->weights, "ref weights", err));
  LS_TRY_OUT(widen(r, &r->fc, weights, "fc", err));
  LS_TRY_OUT(widen(r, &r->hidden_norm, weights, "hidden_norm", err));
  for (int64_t layer = 0; layer < c->layers; layer++) {
    char name[LS_MAX_SPEC_NAME];
    snprintf(name, sizeof name, "layers/%lld/k_proj", (long long)layer);
    LS_TRY_OUT(widen(r, &r->k_proj[layer], weights, name, err));
    snprintf(name, sizeof name, "layers/%lld/v_proj", (long long)layer);
    LS_TRY_OUT(widen(r, &r->v_proj[layer], weights, name, err));
    snprintf(name, sizeof name, "layers/%lld/k_norm", (long long)layer);
    LS_TRY_OUT(widen(r, &r->k_norm[layer], weights, name, err));
  }
  ls_ref_rope_freq(r->freq, c->head_dim, c->rope_theta);

  const int64_t ring[] = {c->layers, c->ring_capacity, c->kv_dim};
  LS_TRY_OUT(ls_trace_new(&r->memory, "ref state", err));
  LS_TRY_OUT(ls_trace_add(r->memory, "k_ring", r->stored, 3, ring, &r->k_ring, err));
  LS_TRY_OUT(ls_trace_add(r->memory, "v_ring", r->stored, 3, ring, &r->v_ring, err));
  LS_TRY_OUT(ls_trace_add(r->memory, "capture", r->stored, 2, (int64_t[]){c->max_rows, c->fc_in}, &r->capture, err));
  LS_TRY_OUT(ls_ref_dflash_load(r, NULL, err));
  *ref = r;
  r = NULL;
out:
  ls_ref_dflash_close(r);
  return status;
}

void ls_ref_dflash_close(ls_ref_dflash *ref) {
  if (ref == NULL) return;
  ls_trace_free(ref->memory);
  ls_trace_free(ref->weights);
  free(ref->freq);
  free(ref->k_norm);
  free(ref->v_proj);
  free(ref->k_proj);
  free(ref);
}

/* ---- the state, out and in ---- */

static ls_status save_tensor(ls_trace *state, const char *name, const ls_tensor *t, ls_error *err) {
  ls_tensor copy;
  LS_TRY(ls_trace_add(state, name, t->dtype, t->ndim, t->dim, &copy, err));
  return ls_tensor_copy(&copy, t, err);
}

ls_status ls_ref_dflash_save(const ls_ref_dflash *ref, ls_trace *state, ls_error *err) {
  const int64_t one = 1;
  int64_t cursor = ref->state.cursor, base = ref->state.capture_base, rows = ref->state.capture_rows;
  const ls_tensor cursor_t = ls_tensor_make(LS_I64, 1, &one, &cursor), base_t = ls_tensor_make(LS_I64, 1, &one, &base),
                  rows_t = ls_tensor_make(LS_I64, 1, &one, &rows);
  LS_TRY(save_tensor(state, "k_ring", &ref->k_ring, err));
  LS_TRY(save_tensor(state, "v_ring", &ref->v_ring, err));
  LS_TRY(save_tensor(state, "capture", &ref->capture, err));
  LS_TRY(save_tensor(state, "cursor", &cursor_t, err));
  LS_TRY(save_tensor(state, "capture_base", &base_t, err));
  return save_tensor(state, "capture_rows", &rows_t, err);
}

static ls_status load_tensor(const ls_tensor *to, const ls_tensor *from, ls_error *err) {
  if (from == NULL) {
    set_zero(to);
    return LS_OK;
  }
  return ls_tensor_copy(to, from, err);
}

ls_status ls_ref_dflash_load(ls_ref_dflash *ref, const ls_trace *state, ls_error *err) {
  ls_spec_list list = {0};
  const ls_tensor *k_ring = NULL, *v_ring = NULL, *capture = NULL;
  ls_dflash_state next;
  ls_status status;
  LS_TRY_OUT(ls_ref_read_integer(&next.cursor, state, "cursor", 0, err));
  LS_TRY_OUT(ls_ref_read_integer(&next.capture_base, state, "capture_base", 0, err));
  LS_TRY_OUT(ls_ref_read_integer(&next.capture_rows, state, "capture_rows", 0, err));
  LS_TRY_OUT(ls_ref_check_state(&ref->config, &(ls_layer_state){.dflash = next}, err));

  LS_TRY_OUT(ref->config.layer->state_specs(&ref->config, &list, err));
  for (int i = 0; i < list.n; i++) {
    ls_tensor_spec *spec = &list.spec[i];
    const ls_tensor *t = ls_trace_tensor(state, spec->name);
    if (strcmp(spec->name, "capture") == 0 && t != NULL && t->ndim == 2 && t->dim[0] >= next.capture_rows && t->dim[0] < spec->dim[0]) {
      spec->dim[0] = t->dim[0]; /* the rows a fixture holds */
    }
    LS_TRY_OUT(ls_ref_check_tensor(&t, state, "state: ", spec, err));
    if (strcmp(spec->name, "k_ring") == 0) k_ring = t;
    if (strcmp(spec->name, "v_ring") == 0) v_ring = t;
    if (strcmp(spec->name, "capture") == 0) capture = t;
  }

  LS_TRY_OUT(load_tensor(&ref->k_ring, k_ring, err));
  LS_TRY_OUT(load_tensor(&ref->v_ring, v_ring, err));
  set_zero(&ref->capture);
  if (capture != NULL) {
    const ls_tensor first = ls_tensor_slice(&ref->capture, 0, 0, capture->dim[0]);
    LS_TRY_OUT(ls_tensor_copy(&first, capture, err));
  }
  ref->state = next;
out:
  ls_spec_free(&list);
  return status;
}

/* ---- capture and draft_write ---- */

void ls_ref_dflash_capture(ls_ref_dflash *ref, const ls_step *step) {
  const ls_tensor rows = ls_tensor_slice(&ref->capture, 0, 0, step->rows);
  ls_tensor_copy(&rows, ls_trace_tensor(step->in, "capture"), NULL);
}

/* The slots of one span in one drafter layer, [span->rows, kv_dim]. */
static ls_tensor slots(const ls_tensor *ring, int64_t layer, const ls_span *span) {
  const ls_tensor of_layer = ls_tensor_at(ring, layer);
  return ls_tensor_slice(&of_layer, 0, span->slot, span->rows);
}

/* The rows of one span in one drafter layer of a [layers, rows, kv_dim] tensor. */
static ls_tensor rows_of(const ls_tensor *t, int64_t layer, const ls_span *span) {
  const ls_tensor of_layer = ls_tensor_at(t, layer);
  return ls_tensor_slice(&of_layer, 0, span->row, span->rows);
}

void ls_ref_dflash_draft_write(ls_ref_dflash *ref, const ls_step *step) {
  const ls_tensor *k = ls_trace_tensor(step->in, "k"), *v = ls_trace_tensor(step->in, "v");
  ls_span span[2];
  const int spans = ls_ring_spans(span, step->base, step->rows, ref->config.dflash.ring_capacity);
  for (int64_t layer = 0; layer < ref->config.dflash.layers; layer++) {
    for (int i = 0; i < spans; i++) {
      const ls_tensor k_to = slots(&ref->k_ring, layer, &span[i]), k_from = rows_of(k, layer, &span[i]);
      const ls_tensor v_to = slots(&ref->v_ring, layer, &span[i]), v_from = rows_of(v, layer, &span[i]);
      ls_tensor_copy(&k_to, &k_from, NULL);
      ls_tensor_copy(&v_to, &v_from, NULL);
    }
  }
}

/* ---- context_write ---- */

/* What `given` holds under name, as a copy of the stored type; else *t stays as it is. */
static ls_status read_given(ls_tensor *t, ls_ref_write *w, const ls_ref_dflash *ref, const ls_trace *given, const char *name, int ndim,
                            const int64_t *dim, ls_error *err) {
  ls_tensor_spec spec = {.ndim = ndim, .dtypes = 1u << LS_BF16 | 1u << LS_F16 | 1u << LS_F32 | 1u << LS_F64};
  const ls_tensor *from;
  snprintf(spec.name, sizeof spec.name, "%s", name);
  for (int d = 0; d < LS_MAX_DIMS; d++) spec.dim[d] = d < ndim ? dim[d] : 1;
  LS_TRY(ls_ref_check_tensor(&from, given, "given stage ", &spec, err));
  if (from == NULL) return LS_OK;
  char copy[LS_MAX_SPEC_NAME + 8];
  snprintf(copy, sizeof copy, "given %s", name);
  LS_TRY(ls_trace_add(w->memory, copy, ref->stored, ndim, dim, t, err));
  return ls_tensor_copy(t, from, err);
}

ls_status ls_ref_write_begin(ls_ref_write *w, const ls_ref_dflash *ref, int64_t rows, const ls_trace *given, ls_trace *out, ls_error *err) {
  const ls_dflash_config *c = &ref->config.dflash;
  *w = (ls_ref_write){.base = ref->state.capture_base, .rows = rows};
  w->spans = ls_ring_spans(w->span, w->base, rows, c->ring_capacity);
  LS_TRY(ls_trace_new(&w->memory, "ref context_write", err));

  const int64_t hidden[] = {rows, c->hidden}, kv[] = {c->layers, rows, c->kv_dim}, fc_in[] = {rows, c->fc_in};
  w->captured = ls_tensor_slice(&ref->capture, 0, 0, rows);
  LS_TRY(read_given(&w->captured, w, ref, given, "capture", 2, fc_in, err));
  LS_TRY(ls_trace_add(w->memory, "ctx_combined", ref->stored, 2, hidden, &w->combined, err));
  LS_TRY(ls_trace_add(w->memory, "ctx_normed", ref->stored, 2, hidden, &w->normed, err));
  w->combined_in = w->combined;
  w->normed_in = w->normed;
  LS_TRY(read_given(&w->combined_in, w, ref, given, "ctx_combined", 2, hidden, err));
  LS_TRY(read_given(&w->normed_in, w, ref, given, "ctx_normed", 2, hidden, err));
  LS_TRY(read_given(&w->k_proj_in, w, ref, given, "k_proj", 3, kv, err));
  LS_TRY(read_given(&w->k_norm_in, w, ref, given, "k_norm", 3, kv, err));

  const int64_t half[] = {rows, c->head_dim / 2};
  LS_TRY(ls_trace_add(w->memory, "cosine", ref->wide, 2, half, &w->cosine, err));
  LS_TRY(ls_trace_add(w->memory, "sine", ref->wide, 2, half, &w->sine, err));
  const int64_t x[] = {rows, larger(c->fc_in, c->kv_dim)}, y[] = {rows, larger(c->hidden, c->kv_dim)}; /* fc_in >= hidden */
  LS_TRY(ls_trace_add(w->memory, "wide x", ref->wide, 2, x, &w->wide_x, err));
  LS_TRY(ls_trace_add(w->memory, "wide y", ref->wide, 2, y, &w->wide_y, err));

  static const char *const per_layer[] = {"k_proj", "v_proj", "k_norm", "k_rope"};
  ls_tensor unused;
  if (out != NULL) {
    LS_TRY(ls_trace_add(out, "ctx_combined", ref->stored, 2, hidden, &unused, err));
    LS_TRY(ls_trace_add(out, "ctx_normed", ref->stored, 2, hidden, &unused, err));
    for (size_t i = 0; i < sizeof per_layer / sizeof per_layer[0]; i++) {
      LS_TRY(ls_trace_add(out, per_layer[i], ref->stored, 3, kv, &unused, err));
    }
  }
  ls_ref_record_start(&w->recorder, out);
  return LS_OK;
}

void ls_ref_write_end(ls_ref_write *w) {
  ls_trace_free(w->memory);
  w->memory = NULL;
}

static void record_slots(const ls_ref_dflash *ref, ls_ref_write *w, const char *name, const ls_tensor *ring) {
  ls_record *rec = ls_ref_record_of(&w->recorder, name);
  for (int64_t layer = 0; rec != NULL && layer < ref->config.dflash.layers; layer++) {
    for (int i = 0; i < w->spans; i++) {
      const ls_tensor to = rows_of(&rec->t, layer, &w->span[i]), from = slots(ring, layer, &w->span[i]);
      ls_tensor_copy(&to, &from, NULL);
    }
  }
  ls_ref_record_resume(&w->recorder);
}

/* 1. ctx_combined [rows, hidden] = GEMM(capture, fc) */
void ls_ref_ctx_combined(const ls_ref_dflash *ref, ls_ref_write *w) {
  ls_ref_linear(&w->combined, 1, &w->captured, &ref->fc, w->wide_x.data, w->wide_y.data);
  ls_ref_record(&w->recorder, "ctx_combined", &w->combined);
}

/* 2. ctx_normed [rows, hidden] = RMSNorm(ctx_combined, hidden_norm) */
void ls_ref_ctx_normed(const ls_ref_dflash *ref, ls_ref_write *w) {
  ls_ref_rms_norm(&w->normed, &w->combined_in, &ref->hidden_norm, ref->config.dflash.rms_eps, w->wide_x.data);
  ls_ref_record(&w->recorder, "ctx_normed", &w->normed);
}

/* 3. k_proj, v_proj [layers, rows, kv_dim] = GEMM(ctx_normed, W of the layer), straight into the slots, in two spans at the ring's end */
static void project(const ls_ref_dflash *ref, ls_ref_write *w, const char *name, const ls_tensor *ring, const ls_tensor *weight) {
  for (int64_t layer = 0; layer < ref->config.dflash.layers; layer++) {
    ls_tensor to[2];
    for (int i = 0; i < w->spans; i++) to[i] = slots(ring, layer, &w->span[i]);
    ls_ref_linear(to, w->spans, &w->normed_in, &weight[layer], w->wide_x.data, w->wide_y.data);
  }
  record_slots(ref, w, name, ring);
}

void ls_ref_k_proj(const ls_ref_dflash *ref, ls_ref_write *w) { project(ref, w, "k_proj", &ref->k_ring, ref->k_proj); }
void ls_ref_v_proj(const ls_ref_dflash *ref, ls_ref_write *w) { project(ref, w, "v_proj", &ref->v_ring, ref->v_proj); }

/* 4. k_norm: RMSNorm per head over head_dim, in place in the slot */
void ls_ref_k_norm(const ls_ref_dflash *ref, ls_ref_write *w) {
  for (int64_t layer = 0; layer < ref->config.dflash.layers; layer++) {
    for (int i = 0; i < w->spans; i++) {
      const ls_tensor slot = slots(&ref->k_ring, layer, &w->span[i]);
      const ls_tensor x = w->k_proj_in.data != NULL ? rows_of(&w->k_proj_in, layer, &w->span[i]) : slot;
      ls_ref_rms_norm(&slot, &x, &ref->k_norm[layer], ref->config.dflash.rms_eps, w->wide_x.data);
    }
  }
  record_slots(ref, w, "k_norm", &ref->k_ring);
}

/* 5. k_rope: NeoX RoPE over the whole head at each row's own position, in place */
void ls_ref_k_rope(const ls_ref_dflash *ref, ls_ref_write *w) {
  ls_ref_rope_table(&w->cosine, &w->sine, ref->freq, w->base);
  for (int64_t layer = 0; layer < ref->config.dflash.layers; layer++) {
    for (int i = 0; i < w->spans; i++) {
      const ls_tensor slot = slots(&ref->k_ring, layer, &w->span[i]);
      const ls_tensor x = w->k_norm_in.data != NULL ? rows_of(&w->k_norm_in, layer, &w->span[i]) : slot;
      const ls_tensor cosine = ls_tensor_slice(&w->cosine, 0, w->span[i].row, w->span[i].rows);
      const ls_tensor sine = ls_tensor_slice(&w->sine, 0, w->span[i].row, w->span[i].rows);
      ls_ref_rope_neox(&slot, &x, &cosine, &sine, w->wide_x.data);
    }
  }
  record_slots(ref, w, "k_rope", &ref->k_ring);
}
