/* How a stage comes about: what a prediction of "computed another way" is made from. Formulas: docs/layers.md. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_numeric.h"
#include "../core/ls_shortage.h"
#include "../layers/bound_attn_v41.h"
#include "../layers/bound_common.h"
#include "../layers/bound_grid.h"
#include "explain_internal.h"

typedef struct {
  const char *stage, *input, *weight;
  ls_made_by by;
  int grid;
  bool inverse, grouped, by_head;
} recipe_row;

static const recipe_row dflash[] = {
    {"ctx_combined", "capture", "fc", LS_MADE_BY_GEMM, 0, false, false, false},
    {"ctx_normed", "ctx_combined", "hidden_norm", LS_MADE_BY_NORM, 0, false, false, false},
    {"k_proj", "ctx_normed", "k_proj", LS_MADE_BY_GEMM, 0, false, false, false},
    {"v_proj", "ctx_normed", "v_proj", LS_MADE_BY_GEMM, 0, false, false, false},
    {"k_norm", "k_proj", "k_norm", LS_MADE_BY_NORM, 0, false, false, true},
    {"k_rope", "k_norm", NULL, LS_MADE_BY_ROPE, 0, false, false, true},
};

static const recipe_row attn[] = {
    {"qr_proj", "x", "wq_a", LS_MADE_BY_GEMM, 0, false, false, false},
    {"qr", "qr_proj", "q_norm", LS_MADE_BY_NORM, 0, false, false, false},
    {"q_proj", "qr", "wq_b", LS_MADE_BY_GEMM, 0, false, false, false},
    {"q", "q_proj", NULL, LS_MADE_BY_ROPE, 0, false, false, true},
    {"kv_proj", "x", "wkv", LS_MADE_BY_GEMM, 0, false, false, false},
    {"kv_norm", "kv_proj", "kv_norm", LS_MADE_BY_NORM, 0, false, false, false},
    {"kv_rope", "kv_norm", NULL, LS_MADE_BY_ROPE, 0, false, false, false},
    {"kv", "kv_rope", NULL, LS_MADE_BY_GRID, LS_GRID_FP8, false, false, false},
    {"latent", "latent_pool", "compressor/norm", LS_MADE_BY_NORM, 0, false, false, false},
    {"index_k_proj", "latent", "indexer/wk", LS_MADE_BY_GEMM, 0, false, false, false},
    {"index_k_norm", "index_k_proj", "indexer/k_norm", LS_MADE_BY_NORM, 0, false, false, false},
    {"index_k_rope", "index_k_norm", NULL, LS_MADE_BY_ROPE, 0, false, false, false},
    {"index_k", "index_k_rope", NULL, LS_MADE_BY_GRID, LS_GRID_FP4, false, false, false},
    {"index_q_proj", "qr", "indexer/wq_b", LS_MADE_BY_GEMM, 0, false, false, false},
    {"index_q_rope", "index_q_proj", NULL, LS_MADE_BY_ROPE, 0, false, false, true},
    {"index_q", "index_q_rope", NULL, LS_MADE_BY_GRID, LS_GRID_FP4, false, false, true},
    {"index_w_proj", "x", "indexer/weights_proj", LS_MADE_BY_GEMM, 0, false, false, false},
    {"compress_kv_rope", "latent", NULL, LS_MADE_BY_ROPE, 0, false, false, false},
    {"compress_kv", "compress_kv_rope", NULL, LS_MADE_BY_GRID, LS_GRID_FP4_E4M3, false, false, false},
    {"o_rot", "sparse_o", NULL, LS_MADE_BY_ROPE, 0, true, false, true},
    {"o_group", "o_rot", "wo_a", LS_MADE_BY_GEMM, 0, false, true, false},
    {"out", "o_group", "wo_b", LS_MADE_BY_GEMM, 0, false, false, false},
};

bool ls_recipe_find(ls_recipe *recipe, const ls_subject *s, const char *stage) {
  *recipe = (ls_recipe){.by = LS_MADE_OTHERWISE};
  const ls_bound_args *step = s->args->step;
  if (step == NULL || stage == NULL) return false;
  const ls_attn_config *a = ls_subject_attn(s);
  const recipe_row *row = a != NULL ? attn : dflash;
  const size_t n = a != NULL ? sizeof attn / sizeof *attn : sizeof dflash / sizeof *dflash;
  if (a == NULL && step->config->layer != &ls_layer_dflash_context_kv) return false;
  for (size_t i = 0; i < n; i++) {
    if (strcmp(row[i].stage, stage) != 0) continue;
    *recipe = (ls_recipe){.by = row[i].by,
                          .stage = row[i].stage,
                          .input = row[i].input,
                          .weight = row[i].weight,
                          .grid = row[i].grid,
                          .inverse = row[i].inverse,
                          .neox = a == NULL,
                          .groups = row[i].grouped ? a->o_groups : 1};
    const bool index = strncmp(stage, "index_", 6) == 0;
    recipe->width = !row[i].by_head ? s->width : a == NULL ? step->config->dflash.head_dim : index ? a->index_head_dim : a->head_dim;
    recipe->turned = a == NULL ? recipe->width : a->rope_head_dim;
    return true;
  }
  return false;
}

static bool is_fused(const ls_subject *s, const char *stage) { return s->args->fused != NULL && s->args->fused(s->args->fused_arg, stage); }

int ls_recipe_chain(ls_recipe chain[LS_CHAIN_MOST], const ls_subject *s, ls_made_by kind) {
  const char *stage = s->args->compare.stage != NULL ? s->args->compare.stage->name : NULL;
  for (int n = 1; n <= LS_CHAIN_MOST; n++) {
    memmove(chain + 1, chain, (size_t)(n - 1) * sizeof *chain);
    if (!ls_recipe_find(&chain[0], s, stage)) return 0;
    if (chain[0].by == kind) return n;
    if (chain[0].by == LS_MADE_BY_GEMM || !is_fused(s, chain[0].input)) return 0;
    stage = chain[0].input;
  }
  return 0;
}

bool ls_recipe_freq(float *freq, const ls_recipe *rope, const ls_subject *s) {
  const ls_attn_config *a = ls_subject_attn(s);
  if (a == NULL) {
    ls_bound_rope_freq(freq, rope->turned, s->args->step->config->dflash.rope_theta);
  } else {
    ls_bound_attn_freq(freq, a, a->compress_ratio[s->args->step->step->layer] > 0);
  }
  return true;
}

/* ---- one row, as it should be ---- */

static void norm_row(const ls_recipe *r, double eps, const ls_tensor *weight, float *y, int64_t width) {
  for (int64_t from = 0; from < width; from += r->width) {
    double squares = 0;
    for (int64_t i = 0; i < r->width; i++) squares += (double)y[from + i] * (double)y[from + i];
    const double inverse = 1 / sqrt(squares / (double)r->width + eps);
    for (int64_t i = 0; i < r->width; i++) y[from + i] = (float)((double)y[from + i] * inverse * ls_tensor_get(weight, i));
  }
}

static void rope_row(const ls_recipe *r, const float *freq, int64_t position, float *y, int64_t width) {
  const int64_t half = r->turned / 2, still = r->width - r->turned;
  for (int64_t i = 0; i < half; i++) {
    const double angle = (double)((float)position * freq[i]), cosine = cos(angle), sine = r->inverse ? -sin(angle) : sin(angle);
    const int64_t first = r->neox ? i : 2 * i, second = r->neox ? i + half : 2 * i + 1;
    for (int64_t from = still; from < width; from += r->width) {
      const double a = (double)y[from + first], b = (double)y[from + second];
      y[from + first] = (float)(a * cosine - b * sine);
      y[from + second] = (float)(b * cosine + a * sine);
    }
  }
}

static float grid_scale(ls_grid grid, float amax) {
  if (grid == LS_GRID_FP8) return ls_pow2ceil(fmaxf(amax, 1e-4f) * (float)(1.0 / 448));
  if (grid == LS_GRID_FP4) return ls_pow2ceil(fmaxf(amax, 6 * 0x1p-126f) * (float)(1.0 / 6));
  return ls_e4m3_to_f32(ls_f32_to_e4m3(fmaxf(amax, 6 * 0x1p-9f) / 6.0f));
}

static void grid_row(ls_grid grid, float *y, int64_t width) {
  const int64_t block = ls_grid_block(grid);
  for (int64_t from = 0; from + block <= width; from += block) {
    float amax = 0;
    bool finite = true;
    for (int64_t i = from; i < from + block; i++) {
      amax = fmaxf(amax, fabsf(y[i]));
      finite = finite && isfinite(y[i]);
    }
    const float scale = grid_scale(grid, amax);
    for (int64_t i = from; i < from + block; i++) {
      const float v = y[i] / scale;
      y[i] = !finite ? NAN : scale * (grid == LS_GRID_FP8 ? ls_e4m3_to_f32(ls_f32_to_e4m3(v)) : ls_e2m1_to_f32(ls_f32_to_e2m1(v)));
    }
  }
}

bool ls_recipe_apply(const ls_recipe *recipe, const ls_subject *s, int64_t row, float *y) {
  const ls_config *config = s->args->step->config;
  const ls_attn_config *a = ls_subject_attn(s);
  if (recipe->by == LS_MADE_BY_NORM) {
    const ls_tensor *weight = ls_subject_weight(s, recipe->weight);
    if (weight == NULL || ls_tensor_count(weight) != recipe->width) return false;
    norm_row(recipe, (double)(float)(a != NULL ? a->norm_eps : config->dflash.rms_eps), weight, y, s->width);
  } else if (recipe->by == LS_MADE_BY_ROPE) {
    float *freq = ls_shortage_unless(malloc((size_t)(recipe->turned / 2) * sizeof *freq + 1));
    if (freq == NULL) return false;
    ls_recipe_freq(freq, recipe, s);
    rope_row(recipe, freq, ls_subject_position(s, row), y, s->width);
    free(freq);
  } else if (recipe->by == LS_MADE_BY_GRID) {
    grid_row((ls_grid)recipe->grid, y, s->width);
  } else {
    return false;
  }
  return true;
}

static void round_row(const ls_subject *s, float *y) {
  for (int64_t i = 0; i < s->width; i++) y[i] = (float)ls_round_to(s->args->step->config->act, (double)y[i]);
}

/* What a grid's prediction may differ by where what it rounds is known to its bound only. */
static void grid_rest(const ls_recipe *grid, const ls_subject *s, int64_t row, const float *y, float *rest) {
  const ls_tensor *bound = ls_trace_tensor(s->args->bounds, grid->input);
  const int64_t block = ls_grid_block((ls_grid)grid->grid);
  double x[64], total[64];
  if (!is_fused(s, grid->input) || bound == NULL || ls_tensor_count(bound) != s->rows * s->width || block > 64) return;
  for (int64_t from = 0; from + block <= s->width; from += block) {
    for (int64_t i = 0; i < block; i++) {
      x[i] = (double)y[from + i];
      total[i] = ls_bound_total(s->args->step->config->act, 1, x[i], ls_tensor_get(bound, row * s->width + from + i));
    }
    ls_bound_grid(rest + from, x, total, block, (ls_grid)grid->grid);
  }
}

bool ls_recipe_finish(const ls_recipe *chain, int n, const ls_subject *s, int64_t row, float *y, float *rest) {
  for (int i = 1; i < n; i++) {
    round_row(s, y);
    if (chain[i].by == LS_MADE_BY_GRID) grid_rest(&chain[i], s, row, y, rest);
    if (!ls_recipe_apply(&chain[i], s, row, y)) return false;
  }
  return true;
}
