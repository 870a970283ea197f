#include "bound_dflash_context_kv.h"

#include <stdio.h>
#include <stdlib.h>

#include "../core/ls_shortage.h"
#include "bound_common.h"

ls_status ls_bound_ctx_combined(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_dflash_config *c = &args->config->dflash;
  int64_t rows = args->step->rows;
  const ls_tensor *capture = ls_bound_find(args->values, "values", "capture", rows * c->fc_in, err); /* an input: exact */
  const ls_tensor *fc = ls_bound_find(args->weights, "weights", "fc", c->hidden * c->fc_in, err);
  if (!capture || !fc) return LS_INTERNAL;
  ls_tensor bound;
  LS_TRY(ls_trace_add(bounds, "ctx_combined", LS_F32, 2, (int64_t[]){rows, c->hidden}, &bound, err));
  return ls_bound_gemm(&bound, capture, NULL, fc, err);
}

/* k_proj and v_proj: one GEMM a drafter layer, all from ctx_normed. */
static ls_status projection_bound(const ls_bound_args *args, ls_trace *bounds, const char *stage, ls_error *err) {
  const ls_dflash_config *c = &args->config->dflash;
  int64_t rows = args->step->rows;
  ls_status status = LS_OK;
  ls_stage_values x;
  ls_tensor bound;
  LS_TRY(ls_stage_values_read(&x, args, bounds, "ctx_normed", rows * c->hidden, err));
  ls_tensor values = ls_tensor_make(LS_F64, 2, (int64_t[]){rows, c->hidden}, x.value);
  ls_tensor totals = ls_tensor_make(LS_F64, 2, (int64_t[]){rows, c->hidden}, x.total);
  LS_TRY_OUT(ls_trace_add(bounds, stage, LS_F32, 3, (int64_t[]){c->layers, rows, c->kv_dim}, &bound, err));
  for (int64_t layer = 0; layer < c->layers; layer++) {
    char name[LS_MAX_SPEC_NAME];
    snprintf(name, sizeof name, "layers/%lld/%s", (long long)layer, stage);
    const ls_tensor *w = ls_bound_find(args->weights, "weights", name, c->kv_dim * c->hidden, err);
    if (!w) {
      status = LS_INTERNAL;
      goto out;
    }
    ls_tensor of_layer = ls_tensor_at(&bound, layer);
    LS_TRY_OUT(ls_bound_gemm(&of_layer, &values, &totals, w, err));
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

ls_status ls_bound_ctx_normed(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_dflash_config *c = &args->config->dflash;
  int64_t rows = args->step->rows, n = c->hidden;
  ls_status status = LS_OK;
  ls_stage_values x = {0};
  double *w = NULL;
  ls_tensor bound;
  LS_TRY_OUT(ls_stage_values_read(&x, args, bounds, "ctx_combined", rows * n, err));
  LS_TRY_OUT(ls_bound_norm_weight(&w, args->weights, "hidden_norm", n, err));
  LS_TRY_OUT(ls_trace_add(bounds, "ctx_normed", LS_F32, 2, (int64_t[]){rows, n}, &bound, err));
  for (int64_t at = 0; at < rows * n; at += n) {
    ls_bound_norm((float *)bound.data + at, x.value + at, x.total + at, w, n, (double)(float)c->rms_eps);
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
  ls_stage_values x = {0};
  double *w = NULL;
  ls_tensor bound;
  LS_TRY_OUT(ls_stage_values_read(&x, args, bounds, "k_proj", c->layers * layer_elements, err));
  LS_TRY_OUT(ls_trace_add(bounds, "k_norm", LS_F32, 3, (int64_t[]){c->layers, rows, c->kv_dim}, &bound, err));
  for (int64_t layer = 0; layer < c->layers; layer++) {
    char name[LS_MAX_SPEC_NAME];
    snprintf(name, sizeof name, "layers/%lld/k_norm", (long long)layer);
    free(w);
    LS_TRY_OUT(ls_bound_norm_weight(&w, args->weights, name, c->head_dim, err));
    for (int64_t at = layer * layer_elements; at < (layer + 1) * layer_elements; at += c->head_dim) {
      ls_bound_norm((float *)bound.data + at, x.value + at, x.total + at, w, c->head_dim, (double)(float)c->rms_eps);
    }
  }
out:
  free(x.value);
  free(w);
  return status;
}

/* ---- NeoX RoPE: (a, b) = (x[i], x[i + dim/2]) -> (a cos - b sin, b cos + a sin) ---- */

ls_status ls_bound_k_rope(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  const ls_dflash_config *c = &args->config->dflash;
  int64_t rows = args->step->rows, elements = c->layers * rows * c->kv_dim, half = c->head_dim / 2;
  ls_status status = LS_OK;
  ls_stage_values x;
  double *turn = NULL; /* |cos|, |sin| of a row's angles, [2, half] */
  float *freq = NULL;
  ls_tensor bound;
  LS_TRY(ls_stage_values_read(&x, args, bounds, "k_norm", elements, err));
  turn = ls_shortage_unless(malloc((size_t)(2 * half) * sizeof *turn + 1));
  freq = ls_shortage_unless(malloc((size_t)half * sizeof *freq + 1));
  if (!turn || !freq) {
    status = ls_fail(err, LS_INTERNAL, "bound: out of memory");
    goto out;
  }
  LS_TRY_OUT(ls_trace_add(bounds, "k_rope", LS_F32, 3, (int64_t[]){c->layers, rows, c->kv_dim}, &bound, err));
  float *out_bound = bound.data;
  ls_bound_rope_freq(freq, c->head_dim, c->rope_theta);
  for (int64_t row = 0; row < rows; row++) {
    ls_bound_rope_turn(turn, freq, half, args->step->base + row);
    for (int64_t layer = 0; layer < c->layers; layer++) {
      for (int64_t head = 0; head < c->num_kv_heads; head++) {
        int64_t at = (layer * rows + row) * c->kv_dim + head * c->head_dim;
        for (int64_t i = 0; i < half; i++) {
          int64_t lower = at + i, upper = at + half + i;
          ls_bound_rope_pair(out_bound + lower, out_bound + upper, x.value[lower], x.value[upper], x.total[lower], x.total[upper], turn[i],
                             turn[half + i]);
        }
      }
    }
  }
out:
  free(x.value);
  free(turn);
  free(freq);
  return status;
}
