#include "bound_attn_v41.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_gemm.h"
#include "../core/ls_parallel.h"
#include "../core/ls_shortage.h"
#include "bound_common.h"
#include "bound_grid.h"
#include "bound_index_score.h"
#include "bound_pool.h"
#include "bound_rows.h"
#include "bound_sparse_attn.h"

typedef long long ll;

static ls_attn_plan plan_of(const ls_bound_args *args) {
  ls_attn_plan p;
  ls_attn_plan_shapes(&args->config->attn, args->step, &p);
  return p;
}

/* Queries of a step that scores, else 0. */
static int64_t scored(const ls_attn_plan *p) { return p->index_source && p->n > 0 ? p->m : 0; }

static const char *weight_name(char name[LS_MAX_SPEC_NAME], const ls_bound_args *args, const char *weight) {
  snprintf(name, LS_MAX_SPEC_NAME, "layers/%lld/%s", (ll)args->step->layer, weight);
  return name;
}

static const ls_tensor *find_weight(const ls_bound_args *args, const char *weight, int64_t elements, ls_error *err) {
  char name[LS_MAX_SPEC_NAME];
  return ls_bound_find(args->weights, "weights", weight_name(name, args, weight), elements, err);
}

static ls_status add_bound(ls_trace *bounds, const char *stage, int64_t rows, int64_t columns, ls_tensor *bound, ls_error *err) {
  return ls_trace_add(bounds, stage, LS_F32, 2, (int64_t[]){rows, columns}, bound, err);
}

static ls_tensor matrix(ls_dtype type, int64_t rows, int64_t columns, void *data) {
  return ls_tensor_make(type, 2, (int64_t[]){rows, columns}, data);
}

/* The step's input, [m, dim]: exact. */
static const ls_tensor *find_x(const ls_bound_args *args, ls_error *err) {
  return ls_bound_find(args->values, "values", "x", args->step->rows * args->config->attn.dim, err);
}

/* ---- GEMM: stage [rows, groups * n] = each group of k columns of input . its n rows of the weight ^T ---- */

typedef struct {
  const char *stage, *input, *weight;
  int64_t rows, groups, n, k;
} gemm_shape;

static ls_status gemm_stage(const ls_bound_args *args, ls_trace *bounds, const gemm_shape *s, ls_error *err) {
  if (s->rows == 0) return LS_OK;
  ls_status status = LS_OK;
  ls_stage_values x = {0};
  ls_tensor bound, values, totals;
  const ls_tensor *w = find_weight(args, s->weight, s->groups * s->n * s->k, err);
  if (!w) return LS_INTERNAL;
  LS_TRY_OUT(ls_stage_values_read(&x, args, bounds, s->input, s->rows * s->groups * s->k, err));
  values = matrix(LS_F64, s->rows, s->groups * s->k, x.value);
  totals = matrix(LS_F64, s->rows, s->groups * s->k, x.total);
  LS_TRY_OUT(add_bound(bounds, s->stage, s->rows, s->groups * s->n, &bound, err));
  for (int64_t g = 0; g < s->groups; g++) {
    const ls_tensor y = ls_tensor_slice(&bound, 1, g * s->n, s->n), wg = ls_tensor_slice(w, 0, g * s->n, s->n);
    const ls_tensor v = ls_tensor_slice(&values, 1, g * s->k, s->k), t = ls_tensor_slice(&totals, 1, g * s->k, s->k);
    LS_TRY_OUT(ls_bound_gemm(&y, &v, x.carried ? &t : NULL, &wg, err));
  }
out:
  free(x.value);
  return status;
}

/* A GEMM of the step's input. */
static ls_status gemm_of_x(const ls_bound_args *args, ls_trace *bounds, const char *stage, const char *weight, int64_t rows, int64_t n,
                           ls_error *err) {
  if (rows == 0) return LS_OK;
  const ls_tensor *x = find_x(args, err), *w = find_weight(args, weight, n * args->config->attn.dim, err);
  ls_tensor bound;
  if (!x || !w) return LS_INTERNAL;
  LS_TRY(add_bound(bounds, stage, rows, n, &bound, err));
  return ls_bound_gemm(&bound, x, NULL, w, err);
}

ls_status ls_bound_attn_qr_proj(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  return gemm_of_x(args, bounds, "qr_proj", "wq_a", plan_of(args).m, args->config->attn.q_lora_rank, err);
}

ls_status ls_bound_attn_q_proj(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_attn_config *c = &args->config->attn;
  return gemm_stage(args, bounds, &(gemm_shape){"q_proj", "qr", "wq_b", plan_of(args).m, 1, c->q_dim, c->q_lora_rank}, err);
}

ls_status ls_bound_attn_kv_proj(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  return gemm_of_x(args, bounds, "kv_proj", "wkv", plan_of(args).m, args->config->attn.head_dim, err);
}

ls_status ls_bound_attn_index_k_proj(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_attn_config *c = &args->config->attn;
  return gemm_stage(args, bounds, &(gemm_shape){"index_k_proj", "latent", "indexer/wk", plan_of(args).g, 1, c->index_head_dim, c->head_dim},
                    err);
}

ls_status ls_bound_attn_index_q_proj(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_attn_config *c = &args->config->attn;
  const ls_attn_plan p = plan_of(args);
  return gemm_stage(args, bounds, &(gemm_shape){"index_q_proj", "qr", "indexer/wq_b", scored(&p), 1, c->index_q_dim, c->q_lora_rank}, err);
}

ls_status ls_bound_attn_index_w_proj(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_attn_plan p = plan_of(args);
  const int64_t heads = args->config->attn.index_n_heads;
  if (scored(&p) == 0) return LS_OK;
  const ls_tensor *x = find_x(args, err), *w = find_weight(args, "indexer/weights_proj", heads * args->config->attn.dim, err);
  ls_tensor bound;
  if (!x || !w) return LS_INTERNAL;
  LS_TRY(add_bound(bounds, "index_w_proj", scored(&p), heads, &bound, err));
  return ls_bound_gemm_sums(&bound, x, w, err); /* carried into index_w, where the part beyond the step would else be most of it */
}

ls_status ls_bound_attn_o_group(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_attn_config *c = &args->config->attn;
  return gemm_stage(args, bounds, &(gemm_shape){"o_group", "o_rot", "wo_a", plan_of(args).m, c->o_groups, c->o_lora_rank, c->group_dim},
                    err);
}

ls_status ls_bound_attn_out(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_attn_config *c = &args->config->attn;
  return gemm_stage(args, bounds, &(gemm_shape){"out", "o_group", "wo_b", plan_of(args).m, 1, c->dim, c->o_dim}, err);
}

/* index_w = index_w_proj * c. Own: two inverse roots, their product and the product with the GEMM's, five roundings a path. */
ls_status ls_bound_attn_index_w(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_attn_config *c = &args->config->attn;
  const ls_attn_plan p = plan_of(args);
  if (scored(&p) == 0) return LS_OK;
  const int64_t n = p.m * c->index_n_heads;
  const double factor = 1 / sqrt((double)c->index_head_dim * (double)c->index_n_heads);
  ls_status status = LS_OK;
  ls_stage_values x;
  ls_tensor bound;
  LS_TRY(ls_stage_values_read(&x, args, bounds, "index_w_proj", n, err));
  LS_TRY_OUT(add_bound(bounds, "index_w", p.m, c->index_n_heads, &bound, err));
  for (int64_t i = 0; i < n; i++) ((float *)bound.data)[i] = (float)(factor * (10 * LS_UNIT * fabs(x.value[i]) + x.total[i]));
out:
  free(x.value);
  return status;
}

/* ---- RMSNorm of each row ---- */

static ls_status norm_stage(const ls_bound_args *args, ls_trace *bounds, const char *stage, const char *input, const char *weight,
                            int64_t rows, int64_t n, ls_error *err) {
  if (rows == 0) return LS_OK;
  char name[LS_MAX_SPEC_NAME];
  ls_status status = LS_OK;
  ls_stage_values x = {0};
  double *w = NULL;
  ls_tensor bound;
  LS_TRY_OUT(ls_stage_values_read(&x, args, bounds, input, rows * n, err));
  LS_TRY_OUT(ls_bound_norm_weight(&w, args->weights, weight_name(name, args, weight), n, err));
  LS_TRY_OUT(add_bound(bounds, stage, rows, n, &bound, err));
  for (int64_t at = 0; at < rows * n; at += n) {
    ls_bound_norm((float *)bound.data + at, x.value + at, x.total + at, w, n, (double)(float)args->config->attn.norm_eps);
  }
out:
  free(x.value);
  free(w);
  return status;
}

ls_status ls_bound_attn_qr(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  return norm_stage(args, bounds, "qr", "qr_proj", "q_norm", plan_of(args).m, args->config->attn.q_lora_rank, err);
}
ls_status ls_bound_attn_kv_norm(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  return norm_stage(args, bounds, "kv_norm", "kv_proj", "kv_norm", plan_of(args).m, args->config->attn.head_dim, err);
}
ls_status ls_bound_attn_latent(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  return norm_stage(args, bounds, "latent", "latent_pool", "compressor/norm", plan_of(args).g, args->config->attn.head_dim, err);
}
ls_status ls_bound_attn_index_k_norm(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  return norm_stage(args, bounds, "index_k_norm", "index_k_proj", "indexer/k_norm", plan_of(args).g, args->config->attn.index_head_dim,
                    err);
}

/* ---- adjacent-pair RoPE of the last rope_head_dim elements of each head: (a, b) = (x[2i], x[2i + 1]) ---- */

/* layers.md, YaRN: lows and highs in double, the rest float32. */
static void stretch(float *freq, const ls_attn_config *c) {
  const double dim = (double)c->rope_head_dim, per_log = dim / (2 * log(c->compress_rope_theta)), pi = 3.14159265358979323846;
  const double length = (double)c->original_seq_len;
  const double fast = per_log * log(length / ((double)c->beta_fast * 2 * pi)),
               slow = per_log * log(length / ((double)c->beta_slow * 2 * pi));
  const double low = fmax(floor(fast), 0), high = fmin(ceil(slow), dim - 1);
  for (int64_t i = 0; i < c->rope_head_dim / 2; i++) {
    const float ramp = fminf(fmaxf(((float)i - (float)low) / (float)fmax(high - low, 0.001), 0.0f), 1.0f), s = 1.0f - ramp;
    freq[i] = freq[i] / (float)c->rope_factor * (1.0f - s) + freq[i] * s;
  }
}

void ls_bound_attn_freq(float *freq, const ls_attn_config *config, bool compressed) {
  ls_bound_rope_freq(freq, config->rope_head_dim, compressed ? config->compress_rope_theta : config->rope_theta);
  if (compressed && config->original_seq_len > 0) stretch(freq, config);
}

typedef struct {
  const char *stage, *input;
  int64_t rows, heads, width;
  bool latents; /* at the group positions, else at start_pos + row */
} rope_shape;

typedef struct {
  const rope_shape *shape;
  const ls_attn_plan *plan;
  const ls_stage_values *x;
  const float *freq;
  double *turn; /* [rows, 2 * half] */
  int64_t half;
  float *bound;
} rope_work;

static void rope_row(void *arg, int64_t row) {
  const rope_work *w = arg;
  const rope_shape *r = w->shape;
  const int64_t half = w->half, still = r->width - 2 * half; /* elements that do not turn */
  double *turn = w->turn + row * 2 * half;
  ls_bound_rope_turn(turn, w->freq, half, r->latents ? ls_attn_group_position(w->plan, row) : w->plan->start_pos + row);
  for (int64_t h = 0; h < r->heads; h++) {
    const int64_t at = (row * r->heads + h) * r->width;
    float *y = w->bound + at;
    const double *v = w->x->value + at, *t = w->x->total + at;
    for (int64_t i = 0; i < still; i++) y[i] = (float)t[i];
    for (int64_t i = 0; i < half; i++) {
      const int64_t a = still + 2 * i, b = a + 1;
      ls_bound_rope_pair(y + a, y + b, v[a], v[b], t[a], t[b], turn[i], turn[half + i]);
    }
  }
}

static ls_status rope_stage(const ls_bound_args *args, ls_trace *bounds, const rope_shape *r, ls_error *err) {
  if (r->rows == 0) return LS_OK;
  const ls_attn_config *c = &args->config->attn;
  const ls_attn_plan p = plan_of(args);
  const int64_t half = c->rope_head_dim / 2;
  ls_status status = LS_OK;
  ls_stage_values x = {0};
  float *freq = ls_shortage_unless(malloc((size_t)half * sizeof *freq + 1));
  double *turn = ls_shortage_unless(malloc((size_t)(r->rows * 2 * half) * sizeof *turn + 1));
  ls_tensor bound;
  if (!freq || !turn) {
    status = ls_fail(err, LS_INTERNAL, "bound: out of memory");
    goto out;
  }
  LS_TRY_OUT(ls_stage_values_read(&x, args, bounds, r->input, r->rows * r->heads * r->width, err));
  LS_TRY_OUT(add_bound(bounds, r->stage, r->rows, r->heads * r->width, &bound, err));
  ls_bound_attn_freq(freq, c, p.ratio > 0);
  ls_parallel_for(r->rows, rope_row,
                  &(rope_work){.shape = r, .plan = &p, .x = &x, .freq = freq, .turn = turn, .half = half, .bound = bound.data});
out:
  free(x.value);
  free(freq);
  free(turn);
  return status;
}

ls_status ls_bound_attn_q(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_attn_config *c = &args->config->attn;
  return rope_stage(args, bounds, &(rope_shape){"q", "q_proj", plan_of(args).m, c->n_heads, c->head_dim, false}, err);
}
ls_status ls_bound_attn_kv_rope(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  return rope_stage(args, bounds, &(rope_shape){"kv_rope", "kv_norm", plan_of(args).m, 1, args->config->attn.head_dim, false}, err);
}
ls_status ls_bound_attn_index_k_rope(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const int64_t width = args->config->attn.index_head_dim;
  return rope_stage(args, bounds, &(rope_shape){"index_k_rope", "index_k_norm", plan_of(args).g, 1, width, true}, err);
}
ls_status ls_bound_attn_index_q_rope(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_attn_config *c = &args->config->attn;
  const ls_attn_plan p = plan_of(args);
  return rope_stage(args, bounds, &(rope_shape){"index_q_rope", "index_q_proj", scored(&p), c->index_n_heads, c->index_head_dim, false},
                    err);
}
ls_status ls_bound_attn_compress_kv_rope(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  return rope_stage(args, bounds, &(rope_shape){"compress_kv_rope", "latent", plan_of(args).g, 1, args->config->attn.head_dim, true}, err);
}
ls_status ls_bound_attn_o_rot(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_attn_config *c = &args->config->attn;
  return rope_stage(args, bounds, &(rope_shape){"o_rot", "sparse_o", plan_of(args).m, c->n_heads, c->head_dim, false}, err);
}

/* ---- grids ---- */

/* Elements of a rotation that do not turn are copied: nothing rounds them, so that what they are off by is what they were before it. Else a
 * tie that goes the wrong way, a code apart, would pass in every one of them. width: of a head. */
static void copies_round_nothing(ls_stage_values *x, const ls_tensor *rest, int64_t n, int64_t width, int64_t still) {
  for (int64_t head = 0; head < n; head += width) {
    for (int64_t i = head; i < head + still; i++) x->total[i] = ls_tensor_get(rest, i);
  }
}

static ls_status grid_stage(const ls_bound_args *args, ls_trace *bounds, const char *stage, const char *input, ls_grid grid, int64_t rows,
                            int64_t columns, int64_t width, ls_error *err) {
  if (rows == 0) return LS_OK;
  const int64_t block = ls_grid_block(grid);
  ls_status status = LS_OK;
  ls_stage_values x;
  ls_tensor bound;
  LS_TRY(ls_stage_values_read(&x, args, bounds, input, rows * columns, err));
  const ls_tensor *rest = x.carried ? ls_trace_tensor(bounds, input) : NULL;
  if (rest) copies_round_nothing(&x, rest, rows * columns, width, width - args->config->attn.rope_head_dim);
  LS_TRY_OUT(add_bound(bounds, stage, rows, columns, &bound, err));
  for (int64_t at = 0; at < rows * columns; at += block) ls_bound_grid((float *)bound.data + at, x.value + at, x.total + at, block, grid);
out:
  free(x.value);
  return status;
}

ls_status ls_bound_attn_kv(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  return grid_stage(args, bounds, "kv", "kv_rope", LS_GRID_FP8, plan_of(args).m, args->config->attn.head_dim, args->config->attn.head_dim,
                    err);
}
ls_status ls_bound_attn_index_k(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  return grid_stage(args, bounds, "index_k", "index_k_rope", LS_GRID_FP4, plan_of(args).g, args->config->attn.index_head_dim,
                    args->config->attn.index_head_dim, err);
}
ls_status ls_bound_attn_index_q(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_attn_plan p = plan_of(args);
  return grid_stage(args, bounds, "index_q", "index_q_rope", LS_GRID_FP4, scored(&p), args->config->attn.index_q_dim,
                    args->config->attn.index_head_dim, err);
}
ls_status ls_bound_attn_compress_kv(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  return grid_stage(args, bounds, "compress_kv", "compress_kv_rope", LS_GRID_FP4_E4M3, plan_of(args).g, args->config->attn.head_dim,
                    args->config->attn.head_dim, err);
}

/* ---- the compressor above ratio 1 ---- */

/* The row of x that waits in slot `slot` after the step, or -1: at start_pos 0 the rows that fill no group, later every row. */
static int64_t row_that_waits(const ls_attn_plan *p, int64_t slot) {
  const int64_t r = p->ratio, end = p->start_pos + p->m;
  const int64_t newest = end - 1 - ((end - 1 - slot) % r + r) % r; /* the last position below end that goes to this slot */
  const int64_t first = p->start_pos == 0 ? end / r * r : p->start_pos;
  return newest >= first ? newest - p->start_pos : -1;
}

/* What row i of a state tensor of the step's layer was off by before the step, [n]; zeros where nothing says so. */
static ls_status held_total(double *total, const ls_bound_args *args, const char *name, int64_t i, int64_t n, ls_error *err) {
  char full[LS_MAX_SPEC_NAME];
  const ls_tensor *t = ls_bound_held(args, weight_name(full, args, name));
  for (int64_t c = 0; c < n; c++) total[c] = 0;
  if (t == NULL || i >= t->dim[0]) return LS_OK;
  const ls_tensor row = ls_tensor_at(t, i);
  if (ls_tensor_count(&row) != n) return ls_fail(err, LS_INTERNAL, "bound: state bounds of %s: expected rows of %lld", full, (ll)n);
  ls_tensor_to_f64(total, &row);
  return LS_OK;
}

static ls_status waiting_stage(const ls_bound_args *args, ls_trace *bounds, const char *stage, const char *weight, ls_error *err) {
  const ls_attn_config *c = &args->config->attn;
  const ls_attn_plan p = plan_of(args);
  if (!p.kv_source || p.ratio <= 1) return LS_OK;
  const ls_tensor *x = find_x(args, err), *w = find_weight(args, weight, c->head_dim * c->dim, err);
  if (!x || !w) return LS_INTERNAL;
  ls_tensor bound;
  ls_status status = LS_OK;
  double *total = ls_shortage_unless(malloc((size_t)c->head_dim * sizeof *total + 1));
  if (!total) return ls_fail(err, LS_INTERNAL, "bound: out of memory");
  LS_TRY_OUT(add_bound(bounds, stage, p.ratio, c->head_dim, &bound, err));
  for (int64_t slot = 0; slot < p.ratio; slot++) {
    const int64_t row = row_that_waits(&p, slot);
    const ls_tensor y = ls_tensor_slice(&bound, 0, slot, 1);
    if (row >= 0) {
      const ls_tensor token = ls_tensor_slice(x, 0, row, 1);
      LS_TRY_OUT(ls_bound_gemm_sums(&y, &token, w, err));
    } else {
      LS_TRY_OUT(held_total(total, args, stage, slot, c->head_dim, err));
      ls_tensor_from_f64(&y, total);
    }
  }
out:
  free(total);
  return status;
}

ls_status ls_bound_attn_kv_state(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  return waiting_stage(args, bounds, "kv_state", "compressor/wkv", err);
}
ls_status ls_bound_attn_score_state(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  return waiting_stage(args, bounds, "score_state", "compressor/wgate", err);
}

/* What the pool reads of the step's groups: rows x . w^T of all tokens, [g * ratio, n], and what each may be off by. */
typedef struct {
  double *value, *off;
} pool_input;

static ls_status read_pool_input(pool_input *in, const ls_bound_args *args, const char *state, const char *weight, ls_error *err) {
  const ls_attn_config *c = &args->config->attn;
  const ls_attn_plan p = plan_of(args);
  const int64_t n = c->head_dim, tokens = p.g * p.ratio, older = p.start_pos - p.first_row * p.ratio, made = tokens - older;
  const ls_tensor *x = find_x(args, err), *w = find_weight(args, weight, n * c->dim, err);
  char full[LS_MAX_SPEC_NAME];
  const ls_tensor *held =
      older > 0 ? ls_bound_find(args->before, "the state before the step", weight_name(full, args, state), older * n, err) : NULL;
  if (!x || !w || (older > 0 && !held)) return LS_INTERNAL;
  ls_status status = LS_OK;
  float *xv = ls_shortage_unless(malloc((size_t)(made * c->dim) * sizeof *xv + 1)),
        *wv = ls_shortage_unless(malloc((size_t)(n * c->dim) * sizeof *wv + 1));
  float *y = ls_shortage_unless(malloc((size_t)(2 * made * n) * sizeof *y + 1));
  in->value = ls_shortage_unless(malloc((size_t)(tokens * n) * sizeof *in->value + 1));
  in->off = ls_shortage_unless(malloc((size_t)(tokens * n) * sizeof *in->off + 1));
  if (!xv || !wv || !y || !in->value || !in->off) {
    status = ls_fail(err, LS_INTERNAL, "bound: out of memory for %lld tokens", (ll)tokens);
    goto out;
  }
  for (int64_t slot = 0; slot < older; slot++) {
    const ls_tensor row = ls_tensor_at(held, slot);
    ls_tensor_to_f64(in->value + slot * n, &row);
    LS_TRY_OUT(held_total(in->off + slot * n, args, state, slot, n, err));
  }
  const ls_tensor rows = ls_tensor_slice(x, 0, 0, made), off = matrix(LS_F32, made, n, y + made * n);
  ls_tensor_to_f32(xv, &rows);
  ls_tensor_to_f32(wv, w);
  ls_gemm_f32(y, xv, wv, made, n, c->dim, n, c->dim, c->dim);
  LS_TRY_OUT(ls_bound_gemm_sums(&off, &rows, w, err));
  for (int64_t i = 0; i < made * n; i++) {
    in->value[older * n + i] = (double)y[i];
    in->off[older * n + i] = (double)y[made * n + i];
  }
out:
  free(xv);
  free(wv);
  free(y);
  return status;
}

ls_status ls_bound_attn_latent_pool(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_attn_plan p = plan_of(args);
  const int64_t n = args->config->attn.head_dim, r = p.ratio;
  if (r <= 1) return gemm_of_x(args, bounds, "latent_pool", "compressor/wkv", p.g, n, err);
  if (p.g == 0) return LS_OK;
  ls_status status = LS_OK;
  pool_input kv = {0}, score = {0};
  double *one = ls_shortage_unless(malloc((size_t)(4 * r) * sizeof *one)); /* a channel of a group: k, s and what each may be off by */
  ls_tensor bound;
  if (!one) return ls_fail(err, LS_INTERNAL, "bound: out of memory");
  LS_TRY_OUT(read_pool_input(&kv, args, "kv_state", "compressor/wkv", err));
  LS_TRY_OUT(read_pool_input(&score, args, "score_state", "compressor/wgate", err));
  LS_TRY_OUT(add_bound(bounds, "latent_pool", p.g, n, &bound, err));
  for (int64_t j = 0; j < p.g; j++) {
    for (int64_t c = 0; c < n; c++) {
      for (int64_t i = 0; i < r; i++) {
        const int64_t at = (j * r + i) * n + c;
        one[i] = kv.value[at], one[r + i] = score.value[at], one[2 * r + i] = kv.off[at], one[3 * r + i] = score.off[at];
      }
      ((float *)bound.data)[j * n + c] = (float)ls_bound_pool(one, one + r, one + 2 * r, one + 3 * r, r);
    }
  }
out:
  free(kv.value);
  free(kv.off);
  free(score.value);
  free(score.off);
  free(one);
  return status;
}

/* ---- what reads rows ---- */

ls_status ls_bound_attn_window(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  if (plan_of(args).m == 0) return LS_OK;
  ls_status status = LS_OK;
  ls_bound_rows ring = {0};
  ls_tensor bound;
  LS_TRY_OUT(ls_bound_rows_ring(&ring, args, bounds, err));
  LS_TRY_OUT(add_bound(bounds, "window", ring.n, ring.width, &bound, err));
  for (int64_t slot = 0; slot < ring.n; slot++) ls_bound_rows_get(&ring, slot, NULL, (float *)bound.data + slot * ring.width);
out:
  ls_bound_rows_free(&ring);
  return status;
}

ls_status ls_bound_attn_index_score(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_attn_config *c = &args->config->attn;
  const ls_attn_plan p = plan_of(args);
  if (scored(&p) == 0) return LS_OK;
  ls_status status = LS_OK;
  ls_stage_values q = {0}, w = {0};
  ls_bound_rows keys = {0};
  ls_tensor bound;
  LS_TRY_OUT(ls_stage_values_read(&q, args, bounds, "index_q", p.m * c->index_q_dim, err));
  LS_TRY_OUT(ls_stage_values_read(&w, args, bounds, "index_w", p.m * c->index_n_heads, err));
  LS_TRY_OUT(ls_bound_rows_keys(&keys, args, bounds, err));
  LS_TRY_OUT(add_bound(bounds, "index_score", p.m, p.n, &bound, err));
  LS_TRY_OUT(ls_bound_score(&bound, &q, &w, &keys, &p, c->index_n_heads, args->unrounded, err));
out:
  free(q.value);
  free(w.value);
  ls_bound_rows_free(&keys);
  return status;
}

ls_status ls_bound_attn_sparse_o(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_attn_config *c = &args->config->attn;
  const ls_attn_plan p = plan_of(args);
  if (p.m == 0) return LS_OK;
  const ls_tensor *idx = ls_bound_find(args->values, "values", "idx", p.m, err), *sink = find_weight(args, "attn_sink", c->n_heads, err);
  if (!idx || !sink) return LS_INTERNAL;
  if (idx->ndim != 2 || idx->dim[0] != p.m) return ls_fail(err, LS_INTERNAL, "bound: idx: expected %lld rows", (ll)p.m);
  ls_status status = LS_OK;
  ls_stage_values q = {0};
  ls_bound_rows a = {0}, b = {0};
  ls_tensor bound;
  double *sinks = ls_shortage_unless(malloc((size_t)c->n_heads * sizeof *sinks));
  if (!sinks) return ls_fail(err, LS_INTERNAL, "bound: out of memory");
  ls_tensor_to_f64(sinks, sink);
  LS_TRY_OUT(ls_stage_values_read(&q, args, bounds, "q", p.m * c->q_dim, err));
  LS_TRY_OUT(ls_bound_rows_a(&a, args, bounds, err));
  LS_TRY_OUT(ls_bound_rows_b(&b, args, bounds, err));
  LS_TRY_OUT(add_bound(bounds, "sparse_o", p.m, c->q_dim, &bound, err));
  LS_TRY_OUT(ls_bound_sparse(&bound, &q, &a, &b, idx, sinks, c->n_heads, err));
out:
  free(sinks);
  free(q.value);
  ls_bound_rows_free(&a);
  ls_bound_rows_free(&b);
  return status;
}

/* ---- the state after the step ---- */

/* Rows of `from` into those of `to` from row `first` on. */
static ls_status put_rows(const ls_tensor *to, int64_t first, const ls_tensor *from, const char *name, ls_error *err) {
  if (from->ndim != 2 || to->ndim != 2 || from->dim[1] != to->dim[1] || first + from->dim[0] > to->dim[0])
    return ls_fail(err, LS_INTERNAL, "bound: %s: %lld rows from row %lld on do not fit the state", name, (ll)from->dim[0], (ll)first);
  const ls_tensor rows = ls_tensor_slice(to, 0, first, from->dim[0]);
  return ls_tensor_copy(&rows, from, err);
}

static ls_status fill_state(const ls_bound_args *args, const ls_trace *bounds, ls_trace *next, ls_error *err) {
  static const struct {
    const char *tensor, *stage;
    bool by_row; /* the stage holds the rows that were written, else the whole tensor */
  } kept[] = {{"window", "window", false},
              {"compress_cache", "compress_kv", true},
              {"index_cache", "index_k", true},
              {"kv_state", "kv_state", false},
              {"score_state", "score_state", false}};
  const ls_attn_plan p = plan_of(args);
  for (int i = 0; args->after && i < args->after->n; i++) {
    const ls_record *record = &args->after->rec[i];
    const char *slash = strrchr(record->name, '/');
    for (size_t k = 0; slash && k < sizeof kept / sizeof kept[0]; k++) {
      if (strcmp(slash + 1, kept[k].tensor) != 0) continue;
      ls_tensor t;
      LS_TRY(ls_trace_add(next, record->name, LS_F32, record->t.ndim, record->t.dim, &t, err));
      memset(t.data, 0, ls_tensor_bytes(&t));
      const ls_tensor *held = ls_trace_tensor(args->state_bounds, record->name);
      if (held) LS_TRY(put_rows(&t, 0, held, record->name, err));
      char own[LS_MAX_SPEC_NAME];
      if (strcmp(record->name, weight_name(own, args, kept[k].tensor)) != 0) continue;
      const ls_tensor *written = ls_trace_tensor(bounds, kept[k].stage);
      if (written) LS_TRY(put_rows(&t, kept[k].by_row ? p.first_row : 0, written, record->name, err));
      if (written && !(args->carries && args->carries(args->carries_arg, kept[k].stage))) { /* both sides stored the same rows */
        const ls_tensor rows = ls_tensor_slice(&t, 0, kept[k].by_row ? p.first_row : 0, written->dim[0]);
        memset(rows.data, 0, ls_tensor_bytes(&rows));
      }
      if (!written && p.m > 0 && (!kept[k].by_row || p.g > 0)) return ls_fail(err, LS_INTERNAL, "bound: bounds hold no %s", kept[k].stage);
    }
  }
  return LS_OK;
}

ls_status ls_bound_attn_state(const ls_bound_args *args, const ls_trace *bounds, ls_trace **next, ls_error *err) {
  LS_TRY(ls_trace_new(next, "state bounds", err));
  const ls_status status = fill_state(args, bounds, *next, err);
  if (status != LS_OK) {
    ls_trace_free(*next);
    *next = NULL;
  }
  return status;
}
