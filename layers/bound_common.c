#include "bound_common.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "../core/ls_gemm.h"
#include "../core/ls_numeric.h"
#include "../core/ls_parallel.h"
#include "../core/ls_shortage.h"

const ls_tensor *ls_bound_find(const ls_trace *trace, const char *what, const char *name, int64_t elements, ls_error *err) {
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

const ls_tensor *ls_bound_held(const ls_bound_args *args, const char *name) {
  if (args->asked_state) *args->asked_state = true;
  return ls_trace_tensor(args->state_bounds, name);
}

double ls_bound_total(ls_dtype type, double steps, double v, double rest) {
  v = fabs(v);
  double step = ls_step_at(type, v);
  double step_there = ls_step_at(type, v + steps * step + rest);
  return steps * (step_there == step_there ? step_there : step) + rest;
}

enum { VALUES_PIECE = 1 << 14 };

static void total_piece(void *arg, int64_t piece) {
  ls_stage_values *s = arg;
  int64_t end = (piece + 1) * VALUES_PIECE < s->n ? (piece + 1) * VALUES_PIECE : s->n;
  for (int64_t i = piece * VALUES_PIECE; i < end; i++) s->total[i] = ls_bound_total(s->type, s->steps, s->value[i], s->total[i]);
}

ls_status ls_stage_values_read(ls_stage_values *s, const ls_bound_args *args, const ls_trace *bounds, const char *stage, int64_t n,
                               ls_error *err) {
  *s = (ls_stage_values){.type = args->config->act, .n = n};
  s->carried = args->carries && args->carries(args->carries_arg, stage);
  const ls_tensor *value = ls_bound_find(args->values, "values", stage, n, err), *rest = NULL;
  if (!value) return LS_INTERNAL;
  if (s->carried) {
    const ls_stage *entry = ls_stage_find(args->config->layer, stage);
    if (!entry) return ls_fail(err, LS_INTERNAL, "bound: the layer has no stage %s", stage);
    rest = ls_bound_find(bounds, "bounds", stage, n, err);
    if (!rest) return LS_INTERNAL;
    s->steps = entry->steps;
    s->type = ls_stage_type(args->config, entry);
  }
  if (ls_tensor_count(value) != n || (rest && ls_tensor_count(rest) != n)) {
    return ls_fail(err, LS_INTERNAL, "bound: %s: expected %lld elements, found %lld", stage, (long long)n,
                   (long long)ls_tensor_count(value));
  }
  s->value = ls_shortage_unless(calloc((size_t)n + 1, 2 * sizeof(double)));
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
  int64_t rows, n, k, ldy;
  atomic_bool out_of_memory;
} gemm_work;

/* PIECE output channels: |W| is widened for these alone, so that no float copy of all weights ever exists. */
static void gemm_piece(void *arg, int64_t i) {
  gemm_work *g = arg;
  int64_t first = i * PIECE, channels = g->n - first < PIECE ? g->n - first : PIECE;
  float *w = ls_shortage_unless(malloc((size_t)(channels * g->k) * sizeof *w));
  if (!w) {
    atomic_store(&g->out_of_memory, true);
    return;
  }
  ls_tensor rows_of_w = ls_tensor_slice(g->w, 0, first, channels);
  ls_tensor_to_f32(w, &rows_of_w);
  for (int64_t j = 0; j < channels * g->k; j++) w[j] = fabsf(w[j]);
  ls_gemm_f32(g->y + first, g->x, w, g->rows, channels, g->k, g->ldy, g->k, g->k);
  free(w);
}

ls_status ls_bound_gemm(const ls_tensor *bound, const ls_tensor *x, const ls_tensor *total, const ls_tensor *w, ls_error *err) {
  const int64_t rows = bound->dim[0], n = bound->dim[1], k = w->dim[1];
  if (w->ndim != 2 || w->dim[0] != n || x->ndim != 2 || x->dim[1] != k || x->dim[0] < rows ||
      (total && (total->dim[1] != k || total->dim[0] < rows))) {
    return ls_fail(err, LS_INTERNAL, "bound: expected a weight of %lld rows and values [%lld, %lld]", (long long)n, (long long)rows,
                   (long long)k);
  }
  double own = 4 * sqrt((double)k) * LS_UNIT;
  int64_t at_once = rows < ROWS_AT_ONCE ? rows : ROWS_AT_ONCE;
  float *scaled = ls_shortage_unless(malloc((size_t)(at_once * k) * sizeof *scaled + 1));
  double *rest = total ? ls_shortage_unless(malloc((size_t)(at_once * k) * sizeof *rest + 1)) : NULL;
  ls_status status = LS_OK;
  if (!scaled || (total && !rest)) {
    status = ls_fail(err, LS_INTERNAL, "bound: out of memory for [%lld, %lld] values", (long long)at_once, (long long)k);
    goto out;
  }
  for (int64_t from = 0; from < rows; from += at_once) {
    int64_t count = rows - from < at_once ? rows - from : at_once;
    ls_tensor rows_of_x = ls_tensor_slice(x, 0, from, count);
    ls_tensor_to_f32(scaled, &rows_of_x);
    if (total) {
      ls_tensor rows_of_total = ls_tensor_slice(total, 0, from, count);
      ls_tensor_to_f64(rest, &rows_of_total);
    }
    for (int64_t i = 0; i < count * k; i++) scaled[i] = (float)(own * fabs((double)scaled[i]) + (total ? rest[i] : 0));
    float *y = (float *)bound->data + from * bound->stride[0];
    gemm_work g = {.y = y, .ldy = bound->stride[0], .x = scaled, .w = w, .rows = count, .n = n, .k = k};
    ls_parallel_for((n + PIECE - 1) / PIECE, gemm_piece, &g);
    if (atomic_load(&g.out_of_memory)) {
      status = ls_fail(err, LS_INTERNAL, "bound: out of memory for %d x %lld floats a thread", PIECE, (long long)k);
      goto out;
    }
  }
out:
  free(scaled);
  free(rest);
  return status;
}

/* A float32 sum of K terms makes an error of at most u times each partial sum, and these are independent, so together they come to
 * u sqrt(sum of partial^2) = u sqrt(K) R, R the partial sums' root mean square. |x| . |W|^T takes every partial sum for as large as all
 * terms of one sign would make it. R itself is at most the largest of three: forward and backward along k, from partial sums at 16 places,
 * where long runs of one sign show; and in any order that has nothing to do with the signs, R^2 = y^2 / 3 + sum (x w)^2 / 6: at the share t
 * of its terms a partial sum is t y and a bridge of the variance t (1 - t) sum (x w)^2. Five deviations of two paths. */
enum { SUMS = 16 };

/* Scaled by the power of two that brings the largest magnitude to [1, 2): squares of tiny values would vanish. The scale taken out. */
static float scale_to_one(float *v, int64_t n) {
  float most = 0;
  for (int64_t i = 0; i < n; i++) most = fabsf(v[i]) > most ? fabsf(v[i]) : most;
  if (!(most > 0) || !isfinite(most)) return 1;
  const int exponent = ilogbf(most);
  for (int64_t i = 0; i < n; i++) v[i] = ldexpf(v[i], -exponent);
  return ldexpf(1, exponent);
}

ls_status ls_bound_gemm_sums(const ls_tensor *bound, const ls_tensor *x, const ls_tensor *w, ls_error *err) {
  LS_TRY(ls_bound_gemm(bound, x, NULL, w, err));
  const int64_t rows = bound->dim[0], n = bound->dim[1], k = w->dim[1], piece = (k + SUMS - 1) / SUMS;
  float *v = ls_shortage_unless(malloc((size_t)((rows + n) * k + (2 + SUMS) * rows * n) * sizeof *v + 1));
  if (!v) return ls_fail(err, LS_INTERNAL, "bound: out of memory for the sums of [%lld, %lld]", (long long)rows, (long long)n);
  float *weights = v + rows * k, *part = weights + n * k, *sum = part + rows * n, *prefix = sum + rows * n;
  const ls_tensor some = ls_tensor_slice(x, 0, 0, rows);
  ls_tensor_to_f32(v, &some);
  ls_tensor_to_f32(weights, w);
  const float scale = scale_to_one(v, rows * k) * scale_to_one(weights, n * k);
  int64_t pieces = 0;
  for (int64_t i = 0; i < rows * n; i++) sum[i] = 0;
  for (int64_t at = 0; at < k; at += piece, pieces++) {
    ls_gemm_f32(part, v + at, weights + at, rows, n, k - at < piece ? k - at : piece, n, k, k);
    for (int64_t i = 0; i < rows * n; i++) prefix[pieces * rows * n + i] = sum[i] += part[i];
  }
  for (int64_t i = 0; i < (rows + n) * k; i++) v[i] *= v[i];
  ls_gemm_f32(part, v, weights, rows, n, k, n, k, k);
  for (int64_t r = 0; r < rows; r++) {
    float *y = (float *)bound->data + r * bound->stride[0];
    for (int64_t c = 0; c < n; c++) {
      const int64_t at = r * n + c;
      const double total = (double)sum[at];
      double forward = 0, backward = 0;
      for (int64_t i = 0; i < pieces; i++) {
        const double ahead = (double)prefix[i * rows * n + at], behind = total - (i > 0 ? (double)prefix[(i - 1) * rows * n + at] : 0);
        forward += ahead * ahead / (double)pieces;
        backward += behind * behind / (double)pieces;
      }
      const double squares = fmax(fmax(forward, backward), total * total / 3 + (double)part[at] / 6);
      const double sums = 5 * sqrt(2 * (double)k * squares) * LS_UNIT * (double)scale;
      if (sums < (double)y[c]) y[c] = (float)sums; /* a NaN stays */
    }
  }
  free(v);
  return LS_OK;
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
void ls_bound_norm(float *bound, const double *x, const double *total, const double *w, int64_t n, double eps) {
  double squares = 0, cross = 0;
  for (int64_t j = 0; j < n; j++) {
    squares += x[j] * x[j];
    cross += 2 * fabs(x[j]) * total[j] + total[j] * total[j];
  }
  double inv = 1 / sqrt(squares / (double)n + eps);
  double tau = inv * inv * cross / (double)n;
  double r = tau < 1 ? 1 / sqrt(1 - tau) - 1 : INFINITY;
  double own = (sqrt((double)n) + 16) * LS_UNIT;
  for (int64_t i = 0; i < n; i++) {
    double v = fabs(x[i]), weight = fabs(w[i]);
    double farthest = 2 * sqrt((double)n) * weight;
    double moved = tau < 1 ? weight * inv * (total[i] * (1 + r) + v * r) : farthest;
    bound[i] = (float)(own * weight * inv * v + (moved > farthest ? farthest : moved)); /* a NaN stays one */
  }
}

ls_status ls_bound_norm_weight(double **w, const ls_trace *weights, const char *name, int64_t n, ls_error *err) {
  *w = NULL;
  const ls_tensor *t = ls_bound_find(weights, "weights", name, n, err);
  if (!t) return LS_INTERNAL;
  if (ls_tensor_count(t) != n) return ls_fail(err, LS_INTERNAL, "bound: %s: expected %lld elements", name, (long long)n);
  *w = ls_shortage_unless(malloc((size_t)n * sizeof **w + 1));
  if (!*w) return ls_fail(err, LS_INTERNAL, "bound: out of memory");
  ls_tensor_to_f64(*w, t);
  return LS_OK;
}

/* ---- RoPE ---- */

void ls_bound_rope_freq(float *freq, int64_t dim, double theta) {
  for (int64_t i = 0; i < dim / 2; i++) {
    float exponent = (float)(2 * i) / (float)dim;
    float power = (float)pow(theta, (double)exponent);
    freq[i] = 1.0f / power;
  }
}

void ls_bound_rope_turn(double *turn, const float *freq, int64_t half, int64_t position) {
  for (int64_t i = 0; i < half; i++) {
    float angle = (float)position * freq[i];
    turn[i] = fabs(cos((double)angle));
    turn[half + i] = fabs(sin((double)angle));
  }
}
