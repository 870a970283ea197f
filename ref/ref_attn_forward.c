/* ref_attn_forward: one forward of attn_v41, its stages in the order of layers.md, one function for each number there.
 *
 * What can fail for a reason that is known beforehand (shapes, indices, memory of this file) fails in begin(), before a byte of state
 * changes. The stages then write rings, caches and pooling state in place, because later stages read them with this step's rows in them;
 * the few that can still run out of memory are undone from copies. What is published changes last, in commit(). */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ref_attn_internal.h"
#include "ref_check.h"
#include "ref_compressor.h"
#include "ref_indexer.h"
#include "ref_linear.h"
#include "ref_norm.h"
#include "ref_quant.h"
#include "ref_record.h"
#include "ref_rope.h"
#include "ref_sparse_attn.h"
#include "ref_window.h"

typedef long long ll;

enum {
  KV_BLOCK = 32,       /* fp8 of window rows */
  INDEX_BLOCK = 32,    /* fp4 of index keys and queries */
  COMPRESS_BLOCK = 16, /* fp4 with e4m3 scales of compressed rows */
  UNDOS = 5
};

/* A part of the state that the step writes, and what it held. */
typedef struct {
  ls_tensor live, before;
} undo;

typedef struct {
  ls_ref_attn *ref;
  const ls_attn_config *c;
  ls_ref_attn_layer *l;
  ls_attn_plan plan;
  ls_attn_state next;
  const ls_trace *given;
  ls_ref_recorder recorder;
  ls_trace *memory; /* all below, but for what is published */

  ls_tensor x;                                      /* [m, dim] */
  ls_tensor qr, q, kv;                              /* [m, q_lora_rank], [m, q_dim], [m, head_dim] */
  ls_tensor window_idx, idx;                        /* [m, wk], [m, wk + k] i32 */
  ls_tensor kv32, score32;                          /* [m, head_dim] of the wide type */
  ls_tensor latent, compress_kv, index_k;           /* [g, head_dim], [g, head_dim], [g, index_head_dim] */
  ls_tensor index_q, index_w, index_score;          /* [m, index_q_dim], [m, index_n_heads], [m, n] */
  ls_tensor compress_idx, candidates;               /* [m, k] i32, [m, n] u8: published at the end */
  ls_tensor o, o_group, out;                        /* [m, q_dim], [m, o_dim], [m, dim] */
  ls_tensor cosine, sine, group_cosine, group_sine; /* [m, rope_head_dim / 2], [g, rope_head_dim / 2] of the wide type */
  ls_tensor wide_x, wide_y;                         /* scratch of the wide type */
  undo undos[UNDOS];
  int n_undos;
} forward;

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

/* ---- begin: all that can be known beforehand ---- */

static ls_status add(forward *f, const char *name, ls_dtype dtype, int64_t rows, int64_t columns, ls_tensor *t, ls_error *err) {
  return ls_trace_add(f->memory, name, dtype, 2, (int64_t[]){rows, columns}, t, err);
}

/* A stage that t will hold: what `given` has of it is checked, and its record is made. low .. high - 1: what an index may be, beside -1. */
static ls_status declare_indices(forward *f, const char *name, const ls_tensor *t, int64_t low, int64_t high, ls_error *err) {
  ls_tensor unused;
  const ls_tensor *from;
  if (ls_tensor_count(t) == 0) return LS_OK; /* the step does not have it */
  ls_tensor_spec spec = {.ndim = 2, .dim = {t->dim[0], t->dim[1], 1, 1}, .dtypes = 1u << t->dtype};
  if (ls_dtype_is_float(t->dtype)) spec.dtypes = 1u << LS_BF16 | 1u << LS_F16 | 1u << LS_F32 | 1u << LS_F64;
  snprintf(spec.name, sizeof spec.name, "%s", name);
  LS_TRY(ls_ref_check_tensor(&from, f->given, "given stage ", &spec, err));
  if (from != NULL && t->dtype == LS_I32) {
    for (int64_t i = 0; i < ls_tensor_count(from); i++) {
      const int64_t entry = (int64_t)ls_tensor_get(from, i);
      if (!(entry == -1 || (entry >= low && entry < high)))
        return ls_fail(err, LS_BAD_FIXTURE, "given stage %s: expected -1 or %lld .. %lld, found %lld at row %lld, entry %lld", name,
                       (ll)low, (ll)high - 1, (ll)entry, (ll)(i / t->dim[1]), (ll)(i % t->dim[1]));
    }
  }
  return f->recorder.out == NULL ? LS_OK : ls_trace_add(f->recorder.out, name, t->dtype, 2, t->dim, &unused, err);
}

static ls_status declare(forward *f, const char *name, const ls_tensor *t, ls_error *err) { return declare_indices(f, name, t, 0, 0, err); }

/* x of the step, or `given`'s, as the stored type. */
static ls_status read_x(forward *f, const ls_step *step, ls_error *err) {
  ls_tensor_spec spec = {.name = "x", .ndim = 2, .dim = {f->plan.m, f->c->dim, 1, 1}};
  const ls_tensor *from;
  spec.dtypes = 1u << LS_BF16 | 1u << LS_F16 | 1u << LS_F32 | 1u << LS_F64;
  LS_TRY(ls_ref_check_tensor(&from, f->given, "given stage ", &spec, err));
  if (from == NULL) {
    LS_TRY(ls_ref_check_inputs(&f->ref->config, step, err));
    from = ls_trace_tensor(step->in, "x");
  }
  LS_TRY(add(f, "x", f->ref->stored, f->plan.m, f->c->dim, &f->x, err));
  return ls_tensor_copy(&f->x, from, err);
}

/* A published selection that this layer reads names only rows that it sees. */
static ls_status check_published_selection(const forward *f, ls_error *err) {
  const ls_attn_plan *p = &f->plan;
  const ls_tensor *topk = &f->ref->topk_idxs;
  if (p->ratio == 0 || p->index_source) return LS_OK;
  for (int64_t i = 0; i < ls_tensor_count(topk); i++) {
    const int32_t entry = ((const int32_t *)topk->data)[i];
    if (!(entry == -1 || (entry >= p->rows_a && entry < p->rows_a + p->n)))
      return ls_fail(err, LS_REFUSED, "layer %lld sees %lld compressed rows, and the published selection names row %lld", (ll)p->layer,
                     (ll)p->n, (ll)(entry - p->rows_a));
  }
  return LS_OK;
}

static ls_status begin_queries(forward *f, ls_error *err) {
  const ls_attn_config *c = f->c;
  const ls_dtype stored = f->ref->stored, wide = f->ref->wide;
  const int64_t m = f->plan.m, g = f->plan.g, half = c->rope_head_dim / 2;
  LS_TRY(add(f, "qr", stored, m, c->q_lora_rank, &f->qr, err));
  LS_TRY(add(f, "q", stored, m, c->q_dim, &f->q, err));
  LS_TRY(add(f, "kv", stored, m, c->head_dim, &f->kv, err));
  LS_TRY(add(f, "window_idx", LS_I32, m, f->plan.wk, &f->window_idx, err));
  LS_TRY(declare(f, "qr_proj", &f->qr, err));
  LS_TRY(declare(f, "qr", &f->qr, err));
  LS_TRY(declare(f, "q_proj", &f->q, err));
  LS_TRY(declare(f, "q", &f->q, err));
  LS_TRY(declare(f, "kv_proj", &f->kv, err));
  LS_TRY(declare(f, "kv_norm", &f->kv, err));
  LS_TRY(declare(f, "kv_rope", &f->kv, err));
  LS_TRY(declare(f, "kv", &f->kv, err));
  LS_TRY(declare(f, "window", &f->l->window, err));
  LS_TRY(declare_indices(f, "window_idx", &f->window_idx, 0, f->plan.rows_a, err));

  LS_TRY(add(f, "cosine", wide, m, half, &f->cosine, err));
  LS_TRY(add(f, "sine", wide, m, half, &f->sine, err));
  LS_TRY(add(f, "group cosine", wide, g, half, &f->group_cosine, err));
  LS_TRY(add(f, "group sine", wide, g, half, &f->group_sine, err));
  int64_t widest_in = larger(larger(c->dim, c->q_lora_rank), larger(c->head_dim, larger(c->group_dim, c->o_dim)));
  int64_t widest_out = larger(larger(c->dim, c->q_lora_rank), larger(c->q_dim, c->o_lora_rank));
  widest_in = larger(widest_in, (larger(c->q_dim, c->index_q_dim) + m - 1) / m); /* norm and RoPE: one row of all heads */
  widest_out = larger(widest_out, larger(c->index_q_dim, c->index_n_heads));
  LS_TRY(add(f, "wide x", wide, m, widest_in, &f->wide_x, err));
  return add(f, "wide y", wide, m, widest_out, &f->wide_y, err);
}

static ls_status begin_latents(forward *f, ls_error *err) {
  const ls_attn_config *c = f->c;
  const ls_dtype stored = f->ref->stored, wide = f->ref->wide;
  const int64_t m = f->plan.m, g = f->plan.g;
  if (!f->plan.kv_source) return LS_OK;
  if (f->plan.ratio > 1) {
    LS_TRY(add(f, "kv32", wide, m, c->head_dim, &f->kv32, err));
    LS_TRY(add(f, "score32", wide, m, c->head_dim, &f->score32, err));
    LS_TRY(declare(f, "kv_state", &f->l->kv_state, err));
    LS_TRY(declare(f, "score_state", &f->l->score_state, err));
  }
  LS_TRY(add(f, "latent", stored, g, c->head_dim, &f->latent, err));
  LS_TRY(add(f, "index_k", stored, g, c->index_head_dim, &f->index_k, err));
  LS_TRY(add(f, "compress_kv", stored, g, c->head_dim, &f->compress_kv, err));
  LS_TRY(declare(f, "latent_pool", &f->latent, err));
  LS_TRY(declare(f, "latent", &f->latent, err));
  LS_TRY(declare(f, "index_k_proj", &f->index_k, err));
  LS_TRY(declare(f, "index_k_norm", &f->index_k, err));
  LS_TRY(declare(f, "index_k_rope", &f->index_k, err));
  LS_TRY(declare(f, "index_k", &f->index_k, err));
  LS_TRY(declare(f, "compress_kv_rope", &f->compress_kv, err));
  return declare(f, "compress_kv", &f->compress_kv, err);
}

static ls_status begin_selection(forward *f, ls_error *err) {
  const ls_attn_config *c = f->c;
  const ls_attn_plan *p = &f->plan;
  const ls_dtype stored = f->ref->stored;
  if (!p->index_source) return LS_OK;
  LS_TRY(ls_ref_attn_published_new(&f->compress_idx, LS_I32, p->m, p->k, err));
  if (p->candidate_source) LS_TRY(ls_ref_attn_published_new(&f->candidates, LS_U8, p->m, p->n, err));
  if (p->n == 0) return LS_OK;
  LS_TRY(add(f, "index_q", stored, p->m, c->index_q_dim, &f->index_q, err));
  LS_TRY(add(f, "index_w", stored, p->m, c->index_n_heads, &f->index_w, err));
  LS_TRY(add(f, "index_score", stored, p->m, p->n, &f->index_score, err));
  LS_TRY(declare(f, "index_q_proj", &f->index_q, err));
  LS_TRY(declare(f, "index_q_rope", &f->index_q, err));
  LS_TRY(declare(f, "index_q", &f->index_q, err));
  LS_TRY(declare(f, "index_w_proj", &f->index_w, err));
  LS_TRY(declare(f, "index_w", &f->index_w, err));
  LS_TRY(declare(f, "index_score", &f->index_score, err));
  if (p->candidate_source) LS_TRY(declare(f, "candidates", &f->candidates, err));
  return declare_indices(f, "compress_idx", &f->compress_idx, p->rows_a, p->rows_a + p->n, err);
}

static ls_status begin_output(forward *f, ls_error *err) {
  const ls_attn_config *c = f->c;
  const ls_dtype stored = f->ref->stored;
  const int64_t m = f->plan.m;
  LS_TRY(add(f, "idx", LS_I32, m, f->plan.wk + f->plan.k, &f->idx, err));
  LS_TRY(add(f, "o", stored, m, c->q_dim, &f->o, err));
  LS_TRY(add(f, "o_group", stored, m, c->o_dim, &f->o_group, err));
  LS_TRY(add(f, "out", stored, m, c->dim, &f->out, err));
  LS_TRY(declare_indices(f, "idx", &f->idx, 0, f->plan.rows_a + f->plan.n, err));
  LS_TRY(declare(f, "sparse_o", &f->o, err));
  LS_TRY(declare(f, "o_rot", &f->o, err));
  LS_TRY(declare(f, "o_group", &f->o_group, err));
  return declare(f, "out", &f->out, err);
}

static ls_status remember(forward *f, const char *name, const ls_tensor *live, ls_error *err) {
  undo *u = &f->undos[f->n_undos];
  u->live = *live;
  LS_TRY(ls_trace_add(f->memory, name, live->dtype, live->ndim, live->dim, &u->before, err));
  LS_TRY(ls_tensor_copy(&u->before, live, err));
  f->n_undos++;
  return LS_OK;
}

/* The rows that this step writes to a cache. */
static ls_tensor step_rows(const forward *f, const ls_tensor *cache) { return ls_tensor_slice(cache, 0, f->plan.first_row, f->plan.g); }

static ls_status begin_undo(forward *f, ls_error *err) {
  const ls_ref_attn_layer *l = f->l;
  LS_TRY(remember(f, "window before", &l->window, err));
  if (!f->plan.kv_source) return LS_OK;
  const ls_tensor compress_rows = step_rows(f, &l->compress_cache), index_rows = step_rows(f, &l->index_cache);
  LS_TRY(remember(f, "compress_cache before", &compress_rows, err));
  LS_TRY(remember(f, "index_cache before", &index_rows, err));
  if (f->plan.ratio == 1) return LS_OK;
  LS_TRY(remember(f, "kv_state before", &l->kv_state, err));
  return remember(f, "score_state before", &l->score_state, err);
}

static ls_status begin(forward *f, const ls_step *step, ls_trace *out, ls_error *err) {
  f->recorder.out = out;
  LS_TRY(check_published_selection(f, err)); /* a refusal, before the input is looked at */
  LS_TRY(ls_trace_new(&f->memory, "ref forward", err));
  LS_TRY(read_x(f, step, err));
  LS_TRY(begin_queries(f, err));
  LS_TRY(begin_latents(f, err));
  LS_TRY(begin_selection(f, err));
  LS_TRY(begin_output(f, err));
  LS_TRY(begin_undo(f, err));
  ls_ref_record_start(&f->recorder, out);
  return LS_OK;
}

/* ---- what stages share ---- */

/* A stage stands in t: it is recorded, and what `given` holds of it takes its place. */
static void done(forward *f, const char *name, const ls_tensor *t) {
  ls_ref_record(&f->recorder, name, t);
  const ls_tensor *from = ls_tensor_count(t) > 0 ? ls_trace_tensor(f->given, name) : NULL;
  if (from != NULL) ls_tensor_copy(t, from, NULL);
  ls_ref_record_resume(&f->recorder);
}

static void linear(forward *f, const ls_tensor *y, const ls_tensor *x, const ls_tensor *w) {
  ls_ref_linear(y, 1, x, w, f->wide_x.data, f->wide_y.data);
}

/* Where nothing asks that a row have the same bits alone and among others (layers.md asks it of kv): large weights are read once. */
static void linear_free(forward *f, const ls_tensor *y, const ls_tensor *x, const ls_tensor *w) {
  ls_ref_linear_free(y, x, w, f->wide_x.data, f->wide_y.data);
}

static void norm(forward *f, const ls_tensor *y, const ls_tensor *w) { ls_ref_rms_norm(y, y, w, f->c->norm_eps, f->wide_x.data); }

/* On the tail of each head of `width`, at the position of each row of the step. */
static void rope(forward *f, const ls_tensor *y, int64_t width, bool inverse) {
  ls_ref_rope_pairs(y, y, &f->cosine, &f->sine, width, inverse, f->wide_x.data);
}

/* At the positions of the step's groups. */
static void rope_groups(forward *f, const ls_tensor *y, const ls_tensor *x, int64_t width) {
  ls_ref_rope_pairs(y, x, &f->group_cosine, &f->group_sine, width, false, f->wide_x.data);
}

static void rope_tables(forward *f) {
  ls_ref_rope_table(&f->cosine, &f->sine, f->l->freq, f->plan.start_pos);
  for (int64_t j = 0; j < f->plan.g; j++) {
    const ls_tensor cosine = ls_tensor_slice(&f->group_cosine, 0, j, 1), sine = ls_tensor_slice(&f->group_sine, 0, j, 1);
    ls_ref_rope_table(&cosine, &sine, f->l->freq, ls_attn_group_position(&f->plan, j));
  }
}

/* ---- the stages ---- */

/* 1. qr [m, q_lora_rank] = RMSNorm(GEMM(x, wq_a), q_norm) */
static void latent_query(forward *f) {
  linear_free(f, &f->qr, &f->x, &f->l->wq_a);
  done(f, "qr_proj", &f->qr);
  norm(f, &f->qr, &f->l->q_norm);
  done(f, "qr", &f->qr);
}

/* 2. q [m, n_heads * head_dim] = GEMM(qr, wq_b), then RoPE on each head's tail */
static void query(forward *f) {
  linear_free(f, &f->q, &f->qr, &f->l->wq_b);
  done(f, "q_proj", &f->q);
  rope(f, &f->q, f->c->head_dim, false);
  done(f, "q", &f->q);
}

/* 3. kv [m, head_dim] = fp8(RoPE(RMSNorm(GEMM(x, wkv), kv_norm))), each rounded in turn */
static void key_value(forward *f) {
  linear(f, &f->kv, &f->x, &f->l->wkv);
  done(f, "kv_proj", &f->kv);
  norm(f, &f->kv, &f->l->kv_norm);
  done(f, "kv_norm", &f->kv);
  rope(f, &f->kv, f->c->head_dim, false);
  done(f, "kv_rope", &f->kv);
  ls_ref_quantise(&f->kv, &f->kv, KV_BLOCK, ls_ref_fp8_block);
  done(f, "kv", &f->kv);
}

/* 4. the ring, 5. which of its rows each query sees */
static void window(forward *f) {
  ls_ref_window_write(&f->l->window, &f->kv, f->c, &f->plan);
  done(f, "window", &f->l->window);
  ls_ref_window_idx(&f->window_idx, f->c, &f->plan);
  done(f, "window_idx", &f->window_idx);
}

/* Token t of the step to the slots of its position. */
static void wait_in_slot(forward *f, int64_t t) {
  const int64_t slot = (f->plan.start_pos + t) % f->plan.ratio;
  const ls_tensor kv_to = ls_tensor_at(&f->l->kv_state, slot), kv_from = ls_tensor_at(&f->kv32, t);
  const ls_tensor score_to = ls_tensor_at(&f->l->score_state, slot), score_from = ls_tensor_at(&f->score32, t);
  ls_tensor_copy(&kv_to, &kv_from, NULL);
  ls_tensor_copy(&score_to, &score_from, NULL);
}

/* 6. at ratio r > 1: kv32 = x . wkv^T, score32 = x . wgate^T, softmax-weighted sum of each group of r tokens that the step closes. A token
 * waits in its slot where its group began before the step, or stays open after it; a group within the step is pooled from where it is. */
static void pool(forward *f) {
  const int64_t r = f->plan.ratio, start = f->plan.start_pos, m = f->plan.m, closed = (f->plan.first_row + f->plan.g) * r;
  linear(f, &f->kv32, &f->x, &f->l->pool_wkv);
  linear(f, &f->score32, &f->x, &f->l->pool_wgate);
  const int64_t begun = start % r == 0 ? 0 : start / r * r + r - start; /* tokens of the step that belong to the group before it */
  for (int64_t t = 0; t < begun && t < m; t++) wait_in_slot(f, t);
  for (int64_t j = 0; j < f->plan.g; j++) {
    const int64_t first = ls_attn_group_position(&f->plan, j) - start; /* in the step; negative: in the slots */
    const ls_tensor to = ls_tensor_at(&f->latent, j);
    const ls_tensor kv = first < 0 ? f->l->kv_state : ls_tensor_slice(&f->kv32, 0, first, r);
    const ls_tensor score = first < 0 ? f->l->score_state : ls_tensor_slice(&f->score32, 0, first, r);
    ls_ref_pool(&to, &kv, &score);
  }
  for (int64_t t = larger(closed - start, 0); t < m; t++) wait_in_slot(f, t);
}

/* 6. latent [g, head_dim], before RoPE: RMSNorm of what was pooled */
static void latent(forward *f) {
  if (f->plan.ratio == 1) linear(f, &f->latent, &f->x, &f->l->pool_wkv);
  if (f->plan.ratio > 1) pool(f);
  done(f, "latent_pool", &f->latent);
  if (f->plan.ratio > 1) {
    done(f, "kv_state", &f->l->kv_state);
    done(f, "score_state", &f->l->score_state);
  }
  if (f->plan.g == 0) return;
  norm(f, &f->latent, &f->l->pool_norm);
  done(f, "latent", &f->latent);
}

/* 7. index_k [g, index_head_dim] = fp4(RoPE(RMSNorm(GEMM(latent, indexer/wk), indexer/k_norm))) at the groups' positions, into the cache */
static void index_key(forward *f) {
  linear(f, &f->index_k, &f->latent, &f->l->index_wk);
  done(f, "index_k_proj", &f->index_k);
  norm(f, &f->index_k, &f->l->index_k_norm);
  done(f, "index_k_norm", &f->index_k);
  rope_groups(f, &f->index_k, &f->index_k, f->c->index_head_dim);
  done(f, "index_k_rope", &f->index_k);
  ls_ref_quantise(&f->index_k, &f->index_k, INDEX_BLOCK, ls_ref_fp4_block);
  done(f, "index_k", &f->index_k);
  const ls_tensor rows = step_rows(f, &f->l->index_cache);
  ls_tensor_copy(&rows, &f->index_k, NULL);
}

/* 8. index_w = index_w_proj * c, c = index_head_dim^-0.5 * index_n_heads^-0.5 in float32 */
static void scale_index_weights(forward *f) {
  const float c = (float)(1 / sqrt((double)f->c->index_head_dim) * (1 / sqrt((double)f->c->index_n_heads)));
  const int64_t count = ls_tensor_count(&f->index_w);
  if (f->ref->wide == LS_F64) {
    double *w = f->wide_y.data;
    ls_tensor_to_f64(w, &f->index_w);
    for (int64_t i = 0; i < count; i++) w[i] *= (double)c;
    ls_tensor_from_f64(&f->index_w, w);
  } else {
    float *w = f->wide_y.data;
    ls_tensor_to_f32(w, &f->index_w);
    for (int64_t i = 0; i < count; i++) w[i] *= c;
    ls_tensor_from_f32(&f->index_w, w); /* the one rounding */
  }
}

/* 8. index_q = fp4(RoPE(GEMM(qr, indexer/wq_b))), index_w, index_score; candidates; the k best */
static ls_status select_rows(forward *f, ls_error *err) {
  const ls_attn_plan *p = &f->plan;
  linear_free(f, &f->index_q, &f->qr, &f->l->index_wq_b);
  done(f, "index_q_proj", &f->index_q);
  rope(f, &f->index_q, f->c->index_head_dim, false);
  done(f, "index_q_rope", &f->index_q);
  ls_ref_quantise(&f->index_q, &f->index_q, INDEX_BLOCK, ls_ref_fp4_block);
  done(f, "index_q", &f->index_q);

  linear_free(f, &f->index_w, &f->x, &f->l->index_weights);
  done(f, "index_w_proj", &f->index_w);
  scale_index_weights(f);
  done(f, "index_w", &f->index_w);

  const ls_tensor keys = ls_tensor_slice(&f->ref->layer[p->index_cache].index_cache, 0, 0, p->n);
  LS_TRY(ls_ref_index_score(&f->index_score, &f->index_q, &keys, &f->index_w, p, err));
  done(f, "index_score", &f->index_score);
  if (p->candidate_source) {
    LS_TRY(ls_ref_candidates(&f->candidates, &f->index_score, f->c, p, err));
    done(f, "candidates", &f->candidates);
  }
  LS_TRY(ls_ref_topk(&f->compress_idx, &f->index_score, p->masked ? &f->ref->candidates : NULL, p->rows_a, p, err));
  done(f, "compress_idx", &f->compress_idx);
  return LS_OK;
}

/* 9. compress_kv [g, head_dim] = fp4(RoPE(latent)) at the groups' positions, into the cache */
static void compressed_rows(forward *f) {
  rope_groups(f, &f->compress_kv, &f->latent, f->c->head_dim);
  done(f, "compress_kv_rope", &f->compress_kv);
  ls_ref_quantise(&f->compress_kv, &f->compress_kv, COMPRESS_BLOCK, ls_ref_fp4_e4m3_block);
  done(f, "compress_kv", &f->compress_kv);
  const ls_tensor rows = step_rows(f, &f->l->compress_cache);
  ls_tensor_copy(&rows, &f->compress_kv, NULL);
}

/* 10. idx [m, wk + k]: the window entries, then the selection, the layer's own or the published one */
static void join_indices(forward *f) {
  const ls_attn_plan *p = &f->plan;
  const ls_tensor first = ls_tensor_slice(&f->idx, 1, 0, p->wk);
  ls_tensor_copy(&first, &f->window_idx, NULL);
  if (p->k > 0) {
    const ls_tensor rest = ls_tensor_slice(&f->idx, 1, p->wk, p->k);
    ls_tensor_copy(&rest, p->index_source ? &f->compress_idx : &f->ref->topk_idxs, NULL);
  }
  done(f, "idx", &f->idx);
}

/* 11. sparse_o: over rows_a (kv, or the ring) and rows_b (the published cache's first n rows), 12. o_rot: the inverse rotation */
static ls_status attend(forward *f, ls_error *err) {
  const ls_attn_plan *p = &f->plan;
  const ls_tensor *rows_a = p->start_pos == 0 ? &f->kv : &f->l->window;
  ls_tensor rows_b = ls_tensor_make(f->ref->stored, 2, (int64_t[]){0, f->c->head_dim}, NULL);
  if (p->compress_cache >= 0) rows_b = ls_tensor_slice(&f->ref->layer[p->compress_cache].compress_cache, 0, 0, p->n);
  LS_TRY(ls_ref_sparse_attn(&f->o, &f->q, rows_a, &rows_b, &f->idx, &f->l->attn_sink, err));
  done(f, "sparse_o", &f->o);
  rope(f, &f->o, f->c->head_dim, true);
  done(f, "o_rot", &f->o);
  return LS_OK;
}

/* 13. o_group [m, o_groups * o_lora_rank]: group g's heads times wo_a[g]^T, 14. out [m, dim] = GEMM(o_group, wo_b) */
static void project_out(forward *f) {
  const int64_t width = f->c->group_dim, rank = f->c->o_lora_rank;
  for (int64_t g = 0; g < f->c->o_groups; g++) {
    const ls_tensor y = ls_tensor_slice(&f->o_group, 1, g * rank, rank), x = ls_tensor_slice(&f->o, 1, g * width, width);
    const ls_tensor w = ls_tensor_slice(&f->l->wo_a, 0, g * rank, rank);
    linear_free(f, &y, &x, &w);
  }
  done(f, "o_group", &f->o_group);
  linear_free(f, &f->out, &f->o_group, &f->l->wo_b);
  done(f, "out", &f->out);
}

static ls_status stages(forward *f, ls_error *err) {
  const ls_attn_plan *p = &f->plan;
  rope_tables(f);
  latent_query(f);
  query(f);
  key_value(f);
  window(f);
  if (p->kv_source) latent(f);
  if (p->kv_source && p->g > 0) index_key(f);
  if (p->index_source && p->n > 0) LS_TRY(select_rows(f, err));
  if (p->kv_source && p->g > 0) compressed_rows(f);
  join_indices(f);
  LS_TRY(attend(f, err));
  project_out(f);
  return LS_OK;
}

/* ---- the end ---- */

/* Swaps in what the step publishes; what was published before goes with the step's memory. */
static void publish(ls_tensor *published, ls_tensor *made) {
  const ls_tensor before = *published;
  *published = *made;
  *made = before;
}

static void commit(forward *f) {
  const ls_attn_plan *p = &f->plan;
  if (p->g > 0) {
    f->l->compress_rows = larger(f->l->compress_rows, p->first_row + p->g);
    f->l->index_rows = larger(f->l->index_rows, p->first_row + p->g);
  }
  if (p->index_source) publish(&f->ref->topk_idxs, &f->compress_idx);
  if (p->candidate_source) publish(&f->ref->candidates, &f->candidates);
  f->ref->published = f->next;
}

ls_status ls_ref_attn_forward(ls_ref_attn *ref, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  forward f = {.ref = ref, .c = &ref->config.attn, .given = given};
  ls_status status;
  if (step->op != LS_OP_FORWARD) return ls_fail(err, LS_INTERNAL, "operation %d is none of attn_v41's", (int)step->op);
  LS_TRY(ls_attn_decide(f.c, &ref->published, step, &f.plan, &f.next, err));
  f.l = &ref->layer[f.plan.layer];
  LS_TRY_OUT(begin(&f, step, out, err));
  status = stages(&f, err);
  if (status == LS_OK) commit(&f);
  for (int i = 0; status != LS_OK && i < f.n_undos; i++) ls_tensor_copy(&f.undos[i].live, &f.undos[i].before, NULL);
out:
  free(f.compress_idx.data);
  free(f.candidates.data);
  ls_trace_free(f.memory);
  return status;
}
