/* gpu_attn_forward.cu: one forward of attn_v41 on a device, its stages in the order of layers.md, one function for each number there.
 *
 * What a step reads and writes, and whether it is refused, is decided on the host (ls_attn_decide) before anything is enqueued. Launches
 * depend on the layer, m, and the bucket of n alone; the step's own numbers lie in device memory, so that a captured graph serves every
 * position of its bucket. A traced step and an untraced one run the same launches in the same order; only a traced one asks the attention
 * kernel for sparse_o as well.
 */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "gpu_attn_internal.h"
#include "gpu_attn_rows.h"
#include "gpu_indexer.h"
#include "gpu_norm.h"
#include "gpu_sparse_attn.h"
#include "gpu_timing.h"

namespace LSG_NS {

typedef long long ll;

typedef struct {
  attn_context *c;
  const ls_attn_config *a;
  attn_layer *l;
  lsg_stream stream;
  ls_attn_plan plan;
  int64_t m, n_most, k_most, g_most; /* what launches depend on, besides the layer */
  int32_t *list;                     /* [m, wk + k_most]: window entries, selection */
  int64_t list_ld;

  /* traced or given only */
  const ls_trace *given;
  ls_trace *out;
  ls_spec_list specs; /* the stages of the step */

  gpu_cuts *cuts; /* timed only: launches are captured, and cut where a stage stands; its stages are in specs */
} forward;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

int64_t attn_columns(int64_t start_pos, int64_t n, int64_t cache_rows) {
  if (start_pos == 0 || n == 0) return n;
  int64_t most = 1;
  while (most < n) most *= 2;
  return smaller(most, cache_rows);
}

int attn_bucket(int64_t n_most) {
  int bucket = n_most > 0;
  for (int64_t most = 1; most < n_most; most *= 2) bucket++;
  return bucket;
}

/* ---- what a step has ---- */

/* Stages that only ever exist inside a kernel. */
static const char *const fused[] = {"kv_norm", "kv_rope", "index_k_norm", "index_k_rope", "index_q_rope", "compress_kv_rope"};

static bool is_fused(const char *stage) {
  for (size_t i = 0; i < sizeof fused / sizeof *fused; i++) {
    if (strcmp(stage, fused[i]) == 0) return true;
  }
  return false;
}

/* A product's stage is the work of whoever multiplied. */
static ls_stage_kind own_kind(const ls_attn_config *a, const ls_attn_plan *p, const char *stage) {
  const struct {
    const char *name;
    int64_t rows, n, k;
  } products[] = {
      {"qr_proj", p->m, a->q_lora_rank, a->dim},
      {"q_proj", p->m, a->q_dim, a->q_lora_rank},
      {"kv_proj", p->m, a->head_dim, a->dim},
      {"latent_pool", p->ratio == 1 ? p->m : 1, a->head_dim, a->dim}, /* above ratio 1 no library pools */
      {"index_k_proj", p->ratio > 0 ? attn_latents(p->m, p->ratio) : 1, a->index_head_dim, a->head_dim},
      {"index_q_proj", p->m, a->index_q_dim, a->q_lora_rank},
      {"index_w_proj", p->m, a->index_n_heads, a->dim},
      {"o_group", p->m, a->o_dim, a->group_dim},
      {"out", p->m, a->dim, a->o_dim},
  };
  for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
    if (strcmp(stage, products[i].name) == 0) return gpu_linear_stage(products[i].rows, products[i].n, products[i].k);
  }
  return LS_STAGE_OWN;
}

static bool has_stage(const ls_spec_list *specs, const char *stage) {
  for (int i = 0; i < specs->n; i++) {
    if (strcmp(specs->spec[i].name, stage) == 0) return true;
  }
  return false;
}

ls_stage_kind attn_stage_kind(const ls_attn_config *a, const ls_step *step, const char *stage) {
  ls_config config;
  ls_spec_list specs = {NULL, 0, 0};
  ls_attn_plan plan;
  config.layer = &ls_layer_attn_v41;
  config.act = LS_BF16;
  config.attn = *a;
  const bool has = config.layer->expect_specs(&config, step, &specs, NULL) == LS_OK && has_stage(&specs, stage);
  ls_spec_free(&specs);
  if (!has) return LS_STAGE_ABSENT;
  if (is_fused(stage)) return LS_STAGE_FUSED;
  ls_attn_plan_shapes(a, step, &plan);
  return own_kind(a, &plan, stage);
}

/* ---- begin: what can be known beforehand ---- */

static ls_dtype type_of(const char *stage) {
  const ls_stage *s = ls_stage_find(&ls_layer_attn_v41, stage);
  if (!s || s->holds == LS_HOLDS_VALUES) return LS_BF16;
  if (s->holds == LS_HOLDS_F32) return LS_F32;
  return s->holds == LS_HOLDS_MASK ? LS_U8 : LS_I32;
}

/* Indices of a given stage: -1, or in low .. high - 1. */
static ls_status check_indices(const ls_tensor *t, const char *name, int64_t low, int64_t high, ls_error *err) {
  for (int64_t i = 0; i < ls_tensor_count(t); i++) {
    const int64_t entry = (int64_t)ls_tensor_get(t, i);
    if (!(entry == -1 || (entry >= low && entry < high)))
      return ls_fail(err, LS_BAD_FIXTURE, "given stage %s: expected -1 or %lld .. %lld, found %lld at row %lld, entry %lld", name, (ll)low,
                     (ll)high - 1, (ll)entry, (ll)(i / t->dim[1]), (ll)(i % t->dim[1]));
  }
  return LS_OK;
}

/* Checks what is given, and makes the records. */
static ls_status declare(forward *f, const ls_step *step, ls_error *err) {
  const ls_attn_plan *p = &f->plan;
  ls_step accepted = *step;
  accepted.expect_refused = false; /* whatever was expected of it */
  LS_TRY(f->c->config.layer->expect_specs(&f->c->config, &accepted, &f->specs, err));
  for (int i = 0; i < f->specs.n; i++) {
    ls_tensor_spec *spec = &f->specs.spec[i];
    const ls_dtype type = type_of(spec->name);
    if (strcmp(spec->name, "idx") == 0) spec->dim[1] = p->wk + p->k; /* a reader's: as wide as what is published */
    if (is_fused(spec->name)) continue;
    const ls_tensor *from;
    ls_tensor unused;
    LS_TRY(attn_check_tensor(&from, f->given, "given stage ", spec, err));
    if (from && type == LS_I32) {
      const bool selection = strcmp(spec->name, "compress_idx") == 0, window = strcmp(spec->name, "window_idx") == 0;
      LS_TRY(check_indices(from, spec->name, selection ? p->rows_a : 0, window ? p->rows_a : p->rows_a + p->n, err));
    }
    if (f->out) LS_TRY(ls_trace_add(f->out, spec->name, type, spec->ndim, spec->dim, &unused, err));
  }
  return LS_OK;
}

static ls_status upload_x(const forward *f, const ls_step *step, ls_error *err) {
  ls_tensor_spec spec;
  const ls_tensor *x;
  memset(&spec, 0, sizeof spec);
  strcpy(spec.name, "x");
  spec.ndim = 2;
  spec.dim[0] = f->m, spec.dim[1] = f->a->dim;
  spec.dtypes = 1u << LS_BF16 | 1u << LS_F16 | 1u << LS_F32 | 1u << LS_F64;
  LS_TRY(attn_check_tensor(&x, f->given, "given stage ", &spec, err));
  spec.required = true;
  if (!x) LS_TRY(attn_check_tensor(&x, step->in, "in/", &spec, err));
  return gpu_upload_tensor(&f->c->device, f->c->x, LS_BF16, x, "x", f->m * f->a->dim, err);
}

/* A published selection that this layer reads names only rows that it sees. */
static ls_status check_published_selection(const forward *f, ls_error *err) {
  const ls_attn_plan *p = &f->plan;
  if (p->ratio == 0 || p->index_source || f->c->loaded_most < p->rows_a + p->n) return LS_OK;
  return ls_fail(err, LS_REFUSED, "layer %lld sees %lld compressed rows, and the published selection names row %lld", (ll)p->layer,
                 (ll)p->n, (ll)(f->c->loaded_most - p->rows_a));
}

static ls_status check_scratch(const forward *f, ls_error *err) {
  const ls_attn_plan *p = &f->plan;
  const size_t select = p->index_source && f->n_most > 0 ? ls_gpu_select_bytes(f->m, f->n_most) : 0;
  const size_t sparse = ls_gpu_sparse_bytes(f->m, f->a->n_heads, f->a->head_dim, p->wk + f->k_most);
  if (select <= f->c->select_bytes && sparse <= f->c->sparse_bytes) return LS_OK;
  return ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": m %lld, n %lld: %zu and %zu bytes of scratch, %zu and %zu are there", (ll)f->m,
                 (ll)p->n, select, sparse, f->c->select_bytes, f->c->sparse_bytes);
}

static ls_gpu_attn_step step_of(const forward *f) {
  const ls_attn_plan *p = &f->plan;
  ls_gpu_attn_step s;
  memset(&s, 0, sizeof s);
  s.start_pos = p->start_pos;
  s.ratio = p->ratio;
  s.n = p->n;
  s.g = p->g;
  s.first_row = p->first_row;
  s.rows_a = p->rows_a;
  if (p->compress_cache >= 0) s.compress_cache = f->c->layer[p->compress_cache].compress_cache;
  if (p->index_cache >= 0) s.index_cache = f->c->layer[p->index_cache].index_cache;
  return s;
}

/* ---- a stage stands ---- */

static const ls_tensor_spec *spec_of(const forward *f, const char *name) {
  for (int i = 0; i < f->specs.n; i++) {
    if (strcmp(f->specs.spec[i].name, name) == 0) return &f->specs.spec[i];
  }
  return NULL;
}

/* The record of a stage whose launches end here, its seconds set; NULL where nothing is recorded. */
static ls_status close_record(forward *f, const char *name, ls_record **record, ls_error *err) {
  const gpu_device *d = &f->c->device;
  *record = ls_trace_find(f->out, name);
  if (!*record) return LS_OK;
  DEVICE_TRY(lsg_mark_record(d->mark[1], d->stream));
  DEVICE_TRY(lsg_sync(d->stream)); /* a kernel's failure is this stage's */
  DEVICE_TRY(lsg_mark_seconds(&(*record)->seconds, d->mark[0], d->mark[1]));
  return LS_OK;
}

/* What follows is the next stage's time. */
static ls_status open_record(const forward *f, ls_error *err) {
  DEVICE_TRY(lsg_mark_record(f->c->device.mark[0], f->stream));
  return LS_OK;
}

/* A stage stands in device memory, dense: it is recorded, and what `given` holds of it takes its place (*replaced, may be NULL). */
static ls_status done(forward *f, const char *name, void *device, bool *replaced, ls_error *err) {
  if (replaced) *replaced = false;
  const ls_tensor_spec *spec = spec_of(f, name);
  if (!spec) return LS_OK; /* untraced, or a stage that the step does not have */
  if (f->cuts) return gpu_cut(f->cuts, name, err);
  ls_record *record;
  LS_TRY(close_record(f, name, &record, err));
  if (record) DEVICE_TRY(lsg_download(record->t.data, device, ls_tensor_bytes(&record->t), f->stream));
  const ls_tensor *from = ls_trace_tensor(f->given, name);
  if (from) {
    LS_TRY(gpu_upload_tensor(&f->c->device, device, type_of(name), from, name, ls_tensor_count(from), err));
    if (replaced) *replaced = true;
  }
  return open_record(f, err);
}

/* The same for columns of the list, given ones taking their place only where `replace`. They go through host memory that holds
 * what lies between them too. */
static ls_status done_columns(forward *f, const char *name, int32_t *first, bool replace, ls_error *err) {
  const ls_tensor_spec *spec = spec_of(f, name);
  if (!spec) return LS_OK;
  if (f->cuts) return gpu_cut(f->cuts, name, err);
  const int64_t width = spec->dim[1], ld = f->list_ld, count = (f->m - 1) * ld + width;
  const size_t bytes = (size_t)count * sizeof(int32_t);
  const ls_tensor *from = replace ? ls_trace_tensor(f->given, name) : NULL;
  ls_record *record;
  LS_TRY(close_record(f, name, &record, err));
  if (record || from) {
    int32_t *host = (int32_t *)malloc(bytes);
    if (!host) return ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": out of memory: %zu bytes for %s", bytes, name);
    lsg_status moved = lsg_download(host, first, bytes, f->stream);
    for (int64_t t = 0; t < f->m && moved == LSG_OK; t++) {
      if (record) memcpy((int32_t *)record->t.data + t * width, host + t * ld, (size_t)width * sizeof(int32_t));
      for (int64_t j = 0; from && j < width; j++) host[t * ld + j] = (int32_t)ls_tensor_get(from, t * width + j);
    }
    if (from && moved == LSG_OK) moved = lsg_upload(first, host, bytes, f->stream);
    free(host);
    DEVICE_TRY(moved);
  }
  return open_record(f, err);
}

/* A given idx is this step's alone: what is published stays. */
static ls_status replace_list(forward *f, ls_error *err) {
  const ls_tensor *from = ls_trace_tensor(f->given, "idx");
  if (!from) return LS_OK;
  const int64_t held = f->plan.wk + f->plan.k, width = f->plan.wk + f->k_most;
  const size_t bytes = (size_t)(f->m * width) * sizeof(int32_t);
  int32_t *host = (int32_t *)malloc(bytes);
  if (!host) return ls_fail(err, LS_INTERNAL, "path " LS_GPU_NAME ": out of memory: %zu bytes for a given idx", bytes);
  for (int64_t t = 0; t < f->m; t++) {
    for (int64_t j = 0; j < width; j++) host[t * width + j] = j < held ? (int32_t)ls_tensor_get(from, t * held + j) : -1;
  }
  const lsg_status moved = lsg_upload(f->c->given_idx, host, bytes, f->stream);
  free(host);
  DEVICE_TRY(moved);
  f->list = f->c->given_idx;
  f->list_ld = width;
  return LS_OK;
}

/* ---- the stages ---- */

static bool scores(const forward *f) { return f->plan.index_source && f->n_most > 0; }

/* 1, 3, 6, 8: the projections that share x, in one launch where there are few rows */
static ls_status project_x(forward *f, ls_error *err) {
  attn_context *c = f->c;
  const ls_attn_config *a = f->a;
  ls_gpu_part part[LS_GPU_MOST_PARTS];
  int parts = 0;
  const bool latents = f->plan.kv_source && f->plan.ratio == 1;
  part[parts++] = {c->qr, a->q_lora_rank, false};
  part[parts++] = {c->kv_proj, a->head_dim, true}; /* ring rows of a prefill are those of a decode */
  if (latents) part[parts++] = {c->latent, a->head_dim, false};
  if (scores(f)) part[parts++] = {c->index_w_proj, a->index_n_heads, false};
  DEVICE_TRY(ls_gpu_linear_parts(true, part, parts, c->x, f->l->x_weights, f->m, a->dim, c->device.gemm, f->stream));
  LS_TRY(done(f, "qr_proj", c->qr, NULL, err));
  LS_TRY(done(f, "kv_proj", c->kv_proj, NULL, err));
  if (latents) LS_TRY(done(f, "latent_pool", c->latent, NULL, err));
  return done(f, "index_w_proj", c->index_w_proj, NULL, err);
}

/* What follows from those alone: 1. qr [m, q_lora_rank], 3. kv [m, head_dim], 4. into the ring, 5. which of its rows each query sees,
 * 6. latent [m, head_dim] at ratio 1, 8. index_w */
static ls_status rows_of_x(forward *f, ls_error *err) {
  attn_context *c = f->c;
  const ls_attn_config *a = f->a;
  attn_layer *l = f->l;
  const float scale = (float)(1 / sqrt((double)a->index_head_dim) * (1 / sqrt((double)a->index_n_heads)));
  const bool latents = f->plan.kv_source && f->plan.ratio == 1;
  ls_gpu_x_rows r;
  memset(&r, 0, sizeof r);
  r.qr = c->qr, r.q_norm = l->q_norm, r.q_rank = a->q_lora_rank;
  r.kv = c->kv, r.ring = l->window, r.kv_proj = c->kv_proj, r.kv_norm = l->kv_norm, r.freq = l->freq;
  r.head_dim = a->head_dim, r.rope_dim = a->rope_head_dim, r.window = a->window_size;
  r.idx = f->list, r.ld = f->list_ld, r.wk = f->plan.wk;
  if (latents) r.latent = c->latent, r.pool_norm = l->pool_norm, r.latents = f->g_most;
  if (scores(f)) r.index_w = c->index_w, r.index_w_proj = c->index_w_proj, r.index_heads = a->index_n_heads;
  DEVICE_TRY(ls_gpu_attn_x_rows(&r, (float)a->norm_eps, scale, f->m, c->step, f->stream));

  bool given_kv;
  LS_TRY(done(f, "qr", c->qr, NULL, err));
  LS_TRY(done(f, "kv", c->kv, &given_kv, err));
  if (given_kv) DEVICE_TRY(ls_gpu_window_store(l->window, c->kv, f->m, a->head_dim, a->window_size, c->step, f->stream));
  LS_TRY(done(f, "window", l->window, NULL, err));
  LS_TRY(done_columns(f, "window_idx", f->list, true, err));
  if (latents) LS_TRY(done(f, "latent", c->latent, NULL, err));
  return done(f, "index_w", c->index_w, NULL, err);
}

/* 2, 8: the projections that share qr; 2. q = RoPE(q_proj) on each head's tail, 8. index_q */
static ls_status queries(forward *f, ls_error *err) {
  attn_context *c = f->c;
  const ls_attn_config *a = f->a;
  const ls_gpu_part part[] = {{c->q, a->q_dim, false}, {c->index_q_proj, a->index_q_dim, false}};
  DEVICE_TRY(ls_gpu_linear_parts(true, part, scores(f) ? 2 : 1, c->qr, f->l->qr_weights, f->m, a->q_lora_rank, c->device.gemm, f->stream));
  LS_TRY(done(f, "q_proj", c->q, NULL, err));
  LS_TRY(done(f, "index_q_proj", c->index_q_proj, NULL, err));
  DEVICE_TRY(ls_gpu_attn_queries(c->q, a->n_heads, a->head_dim, c->index_q, c->index_q_proj, scores(f) ? a->index_n_heads : 0,
                                 a->index_head_dim, f->l->freq, f->m, a->rope_head_dim, c->step, f->stream));
  LS_TRY(done(f, "q", c->q, NULL, err));
  return done(f, "index_q", c->index_q, NULL, err);
}

/* 6. at ratio r > 1: kv32 = x . wkv^T, score32 = x . wgate^T, pooled group by group */
static ls_status pool(forward *f, ls_error *err) {
  attn_context *c = f->c;
  attn_layer *l = f->l;
  const int64_t hd = f->a->head_dim, dim = f->a->dim;
  float *kv32 = c->pool32, *score32 = c->pool32 + f->m * hd;
  if (f->m == 1) { /* both rows in one: they lie side by side, and so do the weights */
    DEVICE_TRY(ls_gpu_linear_f32(kv32, c->x, l->pool_weights, 1, 2 * hd, dim, f->stream));
  } else {
    DEVICE_TRY(ls_gpu_linear_f32(kv32, c->x, l->pool_weights, f->m, hd, dim, f->stream));
    DEVICE_TRY(ls_gpu_linear_f32(score32, c->x, l->pool_weights + hd * dim, f->m, hd, dim, f->stream));
  }
  DEVICE_TRY(ls_gpu_pool(c->latent, l->kv_state, l->score_state, kv32, score32, f->m, hd, f->plan.ratio, c->step, f->stream));
  LS_TRY(done(f, "latent_pool", c->latent, NULL, err));
  LS_TRY(done(f, "kv_state", l->kv_state, NULL, err));
  return done(f, "score_state", l->score_state, NULL, err);
}

/* 6. latent [g, head_dim], before RoPE, at ratio r > 1. Rows of memory that this step makes no latent in hold what they held: nothing reads
 * them. */
static ls_status latent(forward *f, ls_error *err) {
  attn_context *c = f->c;
  const ls_attn_config *a = f->a;
  LS_TRY(pool(f, err));
  DEVICE_TRY(ls_gpu_rms_norm(true, c->latent, c->latent, f->l->pool_norm, (float)a->norm_eps, f->g_most, a->head_dim, f->stream));
  return done(f, "latent", c->latent, NULL, err);
}

/* 7. index_k [g, index_head_dim] at the groups' positions, into the cache */
static ls_status index_key(forward *f, ls_error *err) {
  attn_context *c = f->c;
  const ls_attn_config *a = f->a;
  attn_layer *l = f->l;
  bool given_k;
  DEVICE_TRY(
      ls_gpu_linear(true, c->index_k_proj, c->latent, l->index_wk, f->g_most, a->index_head_dim, a->head_dim, c->device.gemm, f->stream));
  LS_TRY(done(f, "index_k_proj", c->index_k_proj, NULL, err));
  DEVICE_TRY(ls_gpu_index_k(c->index_k, l->index_cache, c->index_k_proj, l->index_k_norm, (float)a->norm_eps, l->freq, f->g_most,
                            a->index_head_dim, a->rope_head_dim, c->step, f->stream));
  LS_TRY(done(f, "index_k", c->index_k, &given_k, err));
  if (given_k) DEVICE_TRY(ls_gpu_cache_store(l->index_cache, c->index_k, f->g_most, a->index_head_dim, c->step, f->stream));
  return LS_OK;
}

/* 8. index_score; candidates; the k best */
static ls_status select_rows(forward *f, ls_error *err) {
  attn_context *c = f->c;
  const ls_attn_config *a = f->a;
  const ls_attn_plan *p = &f->plan;
  DEVICE_TRY(
      ls_gpu_index_score(c->index_score, c->index_q, c->index_w, f->m, a->index_n_heads, a->index_head_dim, f->n_most, c->step, f->stream));
  LS_TRY(done(f, "index_score", c->index_score, NULL, err));
  if (p->candidate_source) {
    DEVICE_TRY(ls_gpu_candidates(c->candidates, c->index_score, f->m, f->n_most, a->candidate_block_size, a->candidate_topk_blocks,
                                 c->select_scratch, c->step, f->stream));
    LS_TRY(done(f, "candidates", c->candidates, NULL, err));
  }
  DEVICE_TRY(ls_gpu_topk(f->list + p->wk, f->list_ld, f->k_most, c->index_score, p->masked ? c->candidates : NULL, f->m, f->n_most,
                         a->index_topk, c->select_scratch, c->step, f->stream));
  return done_columns(f, "compress_idx", f->list + p->wk, true, err);
}

/* 9. compress_kv [g, head_dim] at the groups' positions, into the cache */
static ls_status compressed_rows(forward *f, ls_error *err) {
  attn_context *c = f->c;
  const ls_attn_config *a = f->a;
  attn_layer *l = f->l;
  bool given_kv;
  DEVICE_TRY(ls_gpu_compress_kv(c->compress_kv, l->compress_cache, c->latent, l->freq, f->g_most, a->head_dim, a->rope_head_dim, c->step,
                                f->stream));
  LS_TRY(done(f, "compress_kv", c->compress_kv, &given_kv, err));
  if (given_kv) DEVICE_TRY(ls_gpu_cache_store(l->compress_cache, c->compress_kv, f->g_most, a->head_dim, c->step, f->stream));
  return LS_OK;
}

/* 10. idx: the list as it lies; 11. sparse_o and 12. o_rot in one kernel */
static ls_status attend(forward *f, ls_error *err) {
  attn_context *c = f->c;
  const ls_attn_config *a = f->a;
  const uint16_t *rows_a = f->plan.start_pos == 0 ? c->kv : f->l->window;
  bool given_o;
  LS_TRY(done_columns(f, "idx", f->list, false, err));
  LS_TRY(replace_list(f, err));
  DEVICE_TRY(ls_gpu_sparse_attn(f->out || f->given ? c->sparse_o : NULL, c->o_rot, c->q, rows_a, f->list, f->list_ld,
                                f->plan.wk + f->k_most, f->l->attn_sink, f->l->freq, f->m, a->n_heads, a->head_dim, a->rope_head_dim,
                                c->sparse_scratch, c->step, f->stream));
  LS_TRY(done(f, "sparse_o", c->sparse_o, &given_o, err));
  if (given_o) /* the kernel rotated its own: the given one is rotated after it */
    DEVICE_TRY(
        ls_gpu_rope_heads(c->o_rot, c->sparse_o, f->l->freq, f->m, a->n_heads, a->head_dim, a->rope_head_dim, true, c->step, f->stream));
  return done(f, "o_rot", c->o_rot, NULL, err);
}

/* 13. o_group [m, o_groups * o_lora_rank], 14. out [m, dim] */
static ls_status project_out(forward *f, ls_error *err) {
  attn_context *c = f->c;
  const ls_attn_config *a = f->a;
  DEVICE_TRY(ls_gpu_linear_grouped(true, c->o_group, c->o_rot, f->l->wo_a, f->m, a->o_groups, a->o_lora_rank, a->group_dim, c->device.gemm,
                                   f->stream));
  LS_TRY(done(f, "o_group", c->o_group, NULL, err));
  DEVICE_TRY(ls_gpu_linear_grouped(true, c->out, c->o_group, f->l->wo_b, f->m, 1, a->dim, a->o_dim, c->device.gemm, f->stream));
  return done(f, "out", c->out, NULL, err);
}

static ls_status stages(forward *f, ls_error *err) {
  LS_TRY(project_x(f, err));
  LS_TRY(rows_of_x(f, err));
  LS_TRY(queries(f, err));
  if (f->plan.kv_source && f->plan.ratio > 1) LS_TRY(latent(f, err));
  if (f->plan.kv_source) LS_TRY(index_key(f, err));
  if (scores(f)) LS_TRY(select_rows(f, err));
  if (f->plan.kv_source) LS_TRY(compressed_rows(f, err));
  LS_TRY(attend(f, err));
  return project_out(f, err);
}

/* ---- untraced: graphs ---- */

static ls_status capture(forward *f, lsg_graph *graph, ls_error *err) {
  DEVICE_TRY(lsg_graph_begin(f->stream));
  const ls_status status = stages(f, err);
  if (status != LS_OK) { /* the first failure is the one to tell; the stream must leave its capture all the same */
    lsg_graph dropped = NULL;
    if (lsg_graph_end(&dropped, f->stream) == LSG_OK && dropped) lsg_graph_free(dropped);
    return status;
  }
  DEVICE_TRY(lsg_graph_end(graph, f->stream));
  return LS_OK;
}

/* A decode step replays the graph of its bucket. At start_pos 0 everything is fixed by m, and a row count that comes a second time in a row
 * is likely to come again: the first is not worth a capture. */
static ls_status run_untraced(forward *f, ls_error *err) {
  attn_layer *l = f->l;
  lsg_graph *graph = &l->prefill;
  if (f->plan.start_pos > 0) {
    graph = &l->decode[attn_bucket(f->n_most)];
  } else if (l->prefill_m != f->m) {
    if (l->prefill) lsg_graph_free(l->prefill);
    l->prefill = NULL;
    l->prefill_m = f->m;
    return stages(f, err);
  }
  if (!*graph) LS_TRY(capture(f, graph, err));
  DEVICE_TRY(lsg_graph_launch(*graph, f->stream));
  return LS_OK;
}

/* ---- the step ---- */

static void commit(forward *f, const ls_attn_state *next) {
  const ls_attn_plan *p = &f->plan;
  attn_layer *l = f->l;
  if (p->g > 0) {
    const int64_t end = p->first_row + p->g;
    if (l->compress_rows < end) l->compress_rows = end;
    if (l->index_rows < end) l->index_rows = end;
  }
  if (p->index_source) f->c->loaded_most = -1;
  f->c->published = *next;
}

static ls_status run(forward *f, const ls_step *step, ls_error *err) {
  if (f->out || f->given) LS_TRY(declare(f, step, err));
  LS_TRY(upload_x(f, step, err));
  const ls_gpu_attn_step numbers = step_of(f);
  DEVICE_TRY(lsg_upload(f->c->step, &numbers, sizeof numbers, f->stream));
  if (!f->out && !f->given) return run_untraced(f, err);
  LS_TRY(open_record(f, err));
  return stages(f, err);
}

/* What a step is and which launches it comes to. LS_REFUSED before anything is enqueued. */
static ls_status prepare(forward *f, attn_context *c, const ls_step *step, ls_attn_state *next, ls_error *err) {
  memset(f, 0, sizeof *f);
  if (step->op != LS_OP_FORWARD) return ls_fail(err, LS_INTERNAL, "operation %d is none of attn_v41's", (int)step->op);
  f->c = c, f->a = &c->config.attn, f->stream = c->device.stream;
  LS_TRY(ls_attn_decide(f->a, &c->published, step, &f->plan, next, err));
  LS_TRY(check_published_selection(f, err));
  const ls_attn_plan *p = &f->plan;
  /* a reader's launches depend on how much can be selected, not on how much is visible */
  const int64_t n = p->index_source ? p->n : smaller(p->n, f->a->index_topk);
  f->l = &c->layer[p->layer];
  f->m = p->m;
  f->n_most = attn_columns(p->start_pos, n, ls_attn_cache_rows(f->a, p->layer));
  f->k_most = smaller(f->a->index_topk, f->n_most);
  f->g_most = p->kv_source ? attn_latents(p->m, p->ratio) : 0;
  f->list = c->idx + f->a->window_size - p->wk;
  f->list_ld = attn_ld(f->a);
  return check_scratch(f, err);
}

ls_status attn_forward_step(attn_context *c, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  forward f;
  ls_attn_state next;
  LS_TRY(prepare(&f, c, step, &next, err));
  f.given = given, f.out = out;
  const ls_status status = run(&f, step, err);
  if (status == LS_OK) commit(&f, &next);
  ls_spec_free(&f.specs);
  return status;
}

/* ---- timed ---- */

static ls_status time_parts(forward *f, gpu_timer *timer, const ls_step *step, ls_error *err) {
  gpu_cuts cuts;
  LS_TRY(f->c->config.layer->expect_specs(&f->c->config, step, &f->specs, err));
  LS_TRY(gpu_cuts_begin(&cuts, f->stream, err));
  f->cuts = &cuts;
  ls_status status = stages(f, err);
  f->cuts = NULL;
  gpu_cuts_end(&cuts);
  if (status == LS_OK) status = gpu_timer_cuts(timer, &cuts, err);
  gpu_cuts_free(&cuts);
  return status;
}

static ls_status time_whole(forward *f, gpu_timer *timer, ls_trace *last, ls_error *err) {
  const int64_t dim[2] = {f->m, f->a->dim};
  ls_tensor t;
  lsg_graph graph = NULL;
  LS_TRY(capture(f, &graph, err));
  ls_status status = gpu_timer_graph(timer, graph, "", err);
  lsg_graph_free(graph);
  if (status == LS_OK && last) status = ls_trace_add(last, "out", LS_BF16, 2, dim, &t, err);
  if (status == LS_OK && last) DEVICE_TRY(lsg_download(t.data, f->c->out, ls_tensor_bytes(&t), f->stream));
  return status;
}

ls_status attn_forward_time(attn_context *c, const ls_step *step, const ls_timing_how *how, ls_timing *timing, ls_trace *last,
                            ls_error *err) {
  forward f;
  ls_attn_state next;
  gpu_timer timer;
  LS_TRY(prepare(&f, c, step, &next, err));
  LS_TRY(upload_x(&f, step, err));
  const ls_gpu_attn_step numbers = step_of(&f);
  DEVICE_TRY(lsg_upload(c->step, &numbers, sizeof numbers, f.stream));
  ls_status status = gpu_timer_open(&timer, &c->device, how, timing, err);
  if (status == LS_OK) status = how->parts ? time_parts(&f, &timer, step, err) : time_whole(&f, &timer, last, err);
  if (status == LS_OK) commit(&f, &next);
  gpu_timer_close(&timer);
  ls_spec_free(&f.specs);
  return status;
}

}  // namespace LSG_NS
