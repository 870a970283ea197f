#include "bound_dflash_context_kv.h"

#include <math.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include "../core/ls_gemm.h"
#include "../core/ls_numeric.h"
#include "../core/ls_parallel.h"

/* Relative rounding error of one float32 operation. */
#define UNIT 0x1p-24

static const ls_tensor *find(const ls_trace *trace, const char *what, const char *name, int64_t elements, ls_error *err) {
  const ls_tensor *t = ls_trace_tensor(trace, name);
  if (!t) {
    ls_fail(err, LS_INTERNAL, "bound: %s hold no %s", what, name);
  } else if (ls_tensor_count(t) < elements) {
    ls_fail(err, LS_INTERNAL, "bound: %s of %s: expected at least %lld elements, found %lld", name, what, (long long)elements,
            (long long)ls_tensor_count(t));
    t = NULL;
  }
  return t;
}

/* What element v of a stage may be off by in all: `steps` steps of the binade that the other side's value may have reached, and the rest.
 */
static double total_of(ls_dtype type, double steps, double v, double rest) {
  v = fabs(v);
  double step = ls_step_at(type, v);
  double step_there = ls_step_at(type, v + steps * step + rest);
  return steps * (step_there == step_there ? step_there : step) + rest;
}

/* Values of a stage and what each may be off by. All doubles, [n] each, one block: free(value). */
typedef struct {
  double *value, *total;
  ls_dtype type;
  double steps;
  int64_t n;
} stage_values;

enum { VALUES_PIECE = 1 << 14 };

static void total_piece(void *arg, int64_t piece) {
  stage_values *s = arg;
  int64_t end = (piece + 1) * VALUES_PIECE < s->n ? (piece + 1) * VALUES_PIECE : s->n;
  for (int64_t i = piece * VALUES_PIECE; i < end; i++) s->total[i] = total_of(s->type, s->steps, s->value[i], s->total[i]);
}

/* value: the n elements of `stage`. total: what each may be off by where that is carried on, else zeros. On failure there is nothing to
 * free. */
static ls_status read_stage(stage_values *s, const ls_bound_args *args, const ls_trace *bounds, const char *stage, int64_t n,
                            ls_error *err) {
  *s = (stage_values){.type = args->config->act, .n = n};
  bool carries = args->carries && args->carries(args->carries_arg, stage);
  const ls_tensor *value = find(args->values, "values", stage, n, err), *rest = NULL;
  if (!value) return LS_INTERNAL;
  if (carries) {
    const ls_stage *entry = ls_stage_find(args->config->layer, stage);
    if (!entry) return ls_fail(err, LS_INTERNAL, "bound: the layer has no stage %s", stage);
    rest = find(bounds, "bounds", stage, n, err);
    if (!rest) return LS_INTERNAL;
    s->steps = entry->steps;
  }
  if (ls_tensor_count(value) != n || (rest && ls_tensor_count(rest) != n)) {
    return ls_fail(err, LS_INTERNAL, "bound: %s: expected %lld elements, found %lld", stage, (long long)n,
                   (long long)ls_tensor_count(value));
  }
  s->value = calloc((size_t)n + 1, 2 * sizeof(double));
  if (!s->value) return ls_fail(err, LS_INTERNAL, "bound: out of memory for %lld values of %s", (long long)n, stage);
  s->total = s->value + n;
  ls_tensor_to_f64(s->value, value);
  if (rest) {
    ls_tensor_to_f64(s->total, rest);
    ls_parallel_for((n + VALUES_PIECE - 1) / VALUES_PIECE, total_piece, s);
  }
  return LS_OK;
}

/* ---- GEMM: y [rows, n] = x [rows, k] . W^T, W [n, k] ---- */

enum { PIECE = 64, ROWS_AT_ONCE = 512 };

typedef struct {
  float *y;
  const float *x;
  const ls_tensor *w;
  int64_t rows, n, k;
  atomic_bool out_of_memory;
} gemm_work;

/* PIECE output channels: |W| is widened for these alone, so that no float copy of all weights ever exists. */
static void gemm_piece(void *arg, int64_t i) {
  gemm_work *g = arg;
  int64_t first = i * PIECE, channels = g->n - first < PIECE ? g->n - first : PIECE;
  float *w = malloc((size_t)(channels * g->k) * sizeof *w);
  if (!w) {
    atomic_store(&g->out_of_memory, true);
    return;
  }
  ls_tensor rows_of_w = ls_tensor_slice(g->w, 0, first, channels);
  ls_tensor_to_f32(w, &rows_of_w);
  for (int64_t j = 0; j < channels * g->k; j++) w[j] = fabsf(w[j]);
  ls_gemm_f32(g->y + first, g->x, w, g->rows, channels, g->k, g->n, g->k, g->k);
  free(w);
}

/* bound [rows, n] = (4 sqrt(k) 2^-24 |x| + total(x)) . |W|^T, own error and carried error in one GEMM: all terms are positive.
 * x [at least rows, k]. total [rows, k] may be NULL: zeros. */
static ls_status gemm_bound(float *bound, const ls_tensor *x, const double *total, const ls_tensor *w, int64_t rows, int64_t n, int64_t k,
                            ls_error *err) {
  if (w->ndim != 2 || w->dim[0] != n || w->dim[1] != k || x->ndim != 2 || x->dim[1] != k) {
    return ls_fail(err, LS_INTERNAL, "bound: expected a weight of [%lld, %lld] and values of as many columns", (long long)n, (long long)k);
  }
  double own = 4 * sqrt((double)k) * UNIT;
  int64_t at_once = rows < ROWS_AT_ONCE ? rows : ROWS_AT_ONCE;
  float *scaled = malloc((size_t)(at_once * k) * sizeof *scaled + 1);
  if (!scaled) return ls_fail(err, LS_INTERNAL, "bound: out of memory for [%lld, %lld] floats", (long long)at_once, (long long)k);
  ls_status status = LS_OK;
  for (int64_t from = 0; from < rows && status == LS_OK; from += at_once) {
    int64_t count = rows - from < at_once ? rows - from : at_once;
    ls_tensor rows_of_x = ls_tensor_slice(x, 0, from, count);
    ls_tensor_to_f32(scaled, &rows_of_x);
    for (int64_t i = 0; i < count * k; i++) scaled[i] = (float)(own * fabs((double)scaled[i]) + (total ? total[from * k + i] : 0));
    gemm_work g = {.y = bound + from * n, .x = scaled, .w = w, .rows = count, .n = n, .k = k};
    ls_parallel_for((n + PIECE - 1) / PIECE, gemm_piece, &g);
    if (atomic_load(&g.out_of_memory))
      status = ls_fail(err, LS_INTERNAL, "bound: out of memory for %d x %lld floats a thread", PIECE, (long long)k);
  }
  free(scaled);
  return status;
}

ls_status ls_bound_ctx_combined(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_dflash_config *c = &args->config->dflash;
  int64_t rows = args->step->rows;
  const ls_tensor *capture = find(args->values, "values", "capture", rows * c->fc_in, err); /* an input: exact */
  const ls_tensor *fc = find(args->weights, "weights", "fc", c->hidden * c->fc_in, err);
  if (!capture || !fc) return LS_INTERNAL;
  ls_tensor bound;
  LS_TRY(ls_trace_add(bounds, "ctx_combined", LS_F32, 2, (int64_t[]){rows, c->hidden}, &bound, err));
  return gemm_bound(bound.data, capture, NULL, fc, rows, c->hidden, c->fc_in, err);
}

/* k_proj and v_proj: one GEMM a drafter layer, all from ctx_normed. */
static ls_status projection_bound(const ls_bound_args *args, ls_trace *bounds, const char *stage, ls_error *err) {
  const ls_dflash_config *c = &args->config->dflash;
  int64_t rows = args->step->rows;
  ls_status status = LS_OK;
  stage_values x;
  ls_tensor bound;
  LS_TRY(read_stage(&x, args, bounds, "ctx_normed", rows * c->hidden, err));
  ls_tensor values = ls_tensor_make(LS_F64, 2, (int64_t[]){rows, c->hidden}, x.value);
  LS_TRY_OUT(ls_trace_add(bounds, stage, LS_F32, 3, (int64_t[]){c->layers, rows, c->kv_dim}, &bound, err));
  for (int64_t layer = 0; layer < c->layers; layer++) {
    char name[LS_MAX_SPEC_NAME];
    snprintf(name, sizeof name, "layers/%lld/%s", (long long)layer, stage);
    const ls_tensor *w = find(args->weights, "weights", name, c->kv_dim * c->hidden, err);
    if (!w) {
      status = LS_INTERNAL;
      goto out;
    }
    LS_TRY_OUT(gemm_bound((float *)bound.data + layer * rows * c->kv_dim, &values, x.total, w, rows, c->kv_dim, c->hidden, err));
  }
out:
  free(x.value);
  return status;
}

ls_status ls_bound_k_proj(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  return projection_bound(args, bounds, "k_proj", err);
}
ls_status ls_bound_v_proj(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  return projection_bound(args, bounds, "v_proj", err);
}

/* ---- RMSNorm: y_i = x_i inv w_i, inv = (mean(x^2) + eps)^-1/2 ---- */

/* bound [n] of one row or head: x, total, w [n].
 *
 * Own error, two paths in float32: (sqrt(n) + 16) 2^-24 |y|. The sum of n squares: at each addition a rounding error of at most 2^-24 of
 * the sum so far; they are independent, so after n additions the relative error has a deviation of sqrt(n) 2^-24 / 3, half of it reaches
 * inv, and sqrt(2) times that is between two paths: sqrt(n) 2^-24 is four deviations. The rest, a dozen single operations on the two paths
 * (mean, + eps, two products, and rsqrt with 2 ulps on a GPU), is 16.
 *
 * Carried: with |dx_i| <= total_i the mean of squares moves, relative to inv^-2, by at most
 *   tau = inv^2 (2 sum |x_j| total_j + sum total_j^2) / n,  so inv by a factor within 1 +- r, r = (1 - tau)^-1/2 - 1, and y_i by at most
 *   |w_i| inv (total_i (1 + r) + |x_i| r);    to first order |w_i| inv total_i + |y_i| tau / 2.
 * Nor can two values differ by more than 2 sqrt(n) |w_i|, since |x_i| inv <= sqrt(n); that is what is left where tau nears 1. */
static void norm_bound(float *bound, const double *x, const double *total, const double *w, int64_t n, double eps) {
  double squares = 0, cross = 0;
  for (int64_t j = 0; j < n; j++) {
    squares += x[j] * x[j];
    cross += 2 * fabs(x[j]) * total[j] + total[j] * total[j];
  }
  double inv = 1 / sqrt(squares / (double)n + eps);
  double tau = inv * inv * cross / (double)n;
  double r = tau < 1 ? 1 / sqrt(1 - tau) - 1 : INFINITY;
  double own = (sqrt((double)n) + 16) * UNIT;
  for (int64_t i = 0; i < n; i++) {
    double v = fabs(x[i]), weight = fabs(w[i]);
    double farthest = 2 * sqrt((double)n) * weight;
    double moved = tau < 1 ? weight * inv * (total[i] * (1 + r) + v * r) : farthest;
    bound[i] = (float)(own * weight * inv * v + (moved > farthest ? farthest : moved)); /* a NaN stays one */
  }
}

/* The norm weight of n channels, widened; *w is to be freed. */
static ls_status read_norm_weight(double **w, const ls_trace *weights, const char *name, int64_t n, ls_error *err) {
  *w = NULL;
  const ls_tensor *t = find(weights, "weights", name, n, err);
  if (!t) return LS_INTERNAL;
  if (ls_tensor_count(t) != n) return ls_fail(err, LS_INTERNAL, "bound: %s: expected %lld elements", name, (long long)n);
  *w = malloc((size_t)n * sizeof **w + 1);
  if (!*w) return ls_fail(err, LS_INTERNAL, "bound: out of memory");
  ls_tensor_to_f64(*w, t);
  return LS_OK;
}

ls_status ls_bound_ctx_normed(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_dflash_config *c = &args->config->dflash;
  int64_t rows = args->step->rows, n = c->hidden;
  ls_status status = LS_OK;
  stage_values x = {0};
  double *w = NULL;
  ls_tensor bound;
  LS_TRY_OUT(read_stage(&x, args, bounds, "ctx_combined", rows * n, err));
  LS_TRY_OUT(read_norm_weight(&w, args->weights, "hidden_norm", n, err));
  LS_TRY_OUT(ls_trace_add(bounds, "ctx_normed", LS_F32, 2, (int64_t[]){rows, n}, &bound, err));
  for (int64_t at = 0; at < rows * n; at += n) {
    norm_bound((float *)bound.data + at, x.value + at, x.total + at, w, n, (double)(float)c->rms_eps);
  }
out:
  free(x.value);
  free(w);
  return status;
}

ls_status ls_bound_k_norm(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_dflash_config *c = &args->config->dflash;
  int64_t rows = args->step->rows, layer_elements = rows * c->kv_dim;
  ls_status status = LS_OK;
  stage_values x = {0};
  double *w = NULL;
  ls_tensor bound;
  LS_TRY_OUT(read_stage(&x, args, bounds, "k_proj", c->layers * layer_elements, err));
  LS_TRY_OUT(ls_trace_add(bounds, "k_norm", LS_F32, 3, (int64_t[]){c->layers, rows, c->kv_dim}, &bound, err));
  for (int64_t layer = 0; layer < c->layers; layer++) {
    char name[LS_MAX_SPEC_NAME];
    snprintf(name, sizeof name, "layers/%lld/k_norm", (long long)layer);
    free(w);
    LS_TRY_OUT(read_norm_weight(&w, args->weights, name, c->head_dim, err));
    for (int64_t at = layer * layer_elements; at < (layer + 1) * layer_elements; at += c->head_dim) {
      norm_bound((float *)bound.data + at, x.value + at, x.total + at, w, c->head_dim, (double)(float)c->rms_eps);
    }
  }
out:
  free(x.value);
  free(w);
  return status;
}

/* ---- NeoX RoPE: (a, b) = (x[i], x[i + dim/2]) -> (a cos - b sin, b cos + a sin) ---- */

/* Own error: cos and sin are within 2 ulps (2 * 2^-24 of their largest value) on each path, each product and the sum round once: 4 units of
 * 2^-24 (|a| + |b|) a path, 8 between two. It does not shrink with the result, which is why steps of the result alone do not suffice where
 * the terms cancel. The angle itself is defined to the bit (layers.md) and so carries no error. */
ls_status ls_bound_k_rope(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_dflash_config *c = &args->config->dflash;
  int64_t rows = args->step->rows, elements = c->layers * rows * c->kv_dim, half = c->head_dim / 2;
  ls_status status = LS_OK;
  stage_values x;
  double *turn = NULL; /* |cos|, |sin| of a row's angles, [2, half] */
  ls_tensor bound;
  LS_TRY(read_stage(&x, args, bounds, "k_norm", elements, err));
  turn = malloc((size_t)(2 * half) * sizeof *turn + 1);
  if (!turn) {
    status = ls_fail(err, LS_INTERNAL, "bound: out of memory");
    goto out;
  }
  LS_TRY_OUT(ls_trace_add(bounds, "k_rope", LS_F32, 3, (int64_t[]){c->layers, rows, c->kv_dim}, &bound, err));
  float *out_bound = bound.data;
  for (int64_t row = 0; row < rows; row++) {
    float position = (float)(args->step->base + row);
    for (int64_t i = 0; i < half; i++) {
      float exponent = (float)(2 * i) / (float)c->head_dim;
      float power = (float)pow(c->rope_theta, (double)exponent);
      float angle = position * (1.0f / power);
      turn[i] = fabs(cos((double)angle));
      turn[half + i] = fabs(sin((double)angle));
    }
    for (int64_t layer = 0; layer < c->layers; layer++) {
      for (int64_t head = 0; head < c->num_kv_heads; head++) {
        int64_t at = (layer * rows + row) * c->kv_dim + head * c->head_dim;
        for (int64_t i = 0; i < half; i++) {
          int64_t lower = at + i, upper = at + half + i;
          double own = 8 * UNIT * (fabs(x.value[lower]) + fabs(x.value[upper]));
          out_bound[lower] = (float)(own + turn[i] * x.total[lower] + turn[half + i] * x.total[upper]);
          out_bound[upper] = (float)(own + turn[i] * x.total[upper] + turn[half + i] * x.total[lower]);
        }
      }
    }
  }
out:
  free(x.value);
  free(turn);
  return status;
}
