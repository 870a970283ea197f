/* Norms, grids and matrix products computed another way, from the stage's own input. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_numeric.h"
#include "../layers/bound_grid.h"
#include "explain_internal.h"

typedef struct {
  ls_recipe chain[LS_CHAIN_MOST];
  int n;
  ls_tensor input;
  const ls_tensor *weight;
  int how;
} product_try;

static bool open_try(product_try *t, const ls_subject *s, ls_made_by kind) {
  t->n = ls_recipe_chain(t->chain, s, kind);
  if (t->n == 0) return false;
  t->weight = ls_subject_weight(s, t->chain[0].weight);
  return ls_subject_stage(&t->input, s, t->chain[0].input, s->rows) && (kind == LS_MADE_BY_GEMM || t->input.dim[1] == s->width);
}

static void read_row(const product_try *t, int64_t row, float *y) {
  const ls_tensor view = ls_tensor_at(&t->input, row);
  ls_tensor_to_f32(y, &view);
}

/* ---- right by its own inputs ---- */

static bool predict_right(void *arg, const ls_subject *s, int64_t row, float *y, float *rest) {
  const product_try *t = arg;
  read_row(t, row, y);
  return ls_recipe_apply(&t->chain[0], s, row, y) && ls_recipe_finish(t->chain, t->n, s, row, y, rest);
}

static bool right_product(const ls_subject *s);

bool ls_explain_inherited(const ls_subject *s) {
  static const ls_made_by kinds[] = {LS_MADE_BY_NORM, LS_MADE_BY_ROPE, LS_MADE_BY_GRID};
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
    product_try t = {.n = 0};
    ls_fit fit;
    if (open_try(&t, s, kinds[i]) && ls_fit_rows(&fit, s, predict_right, &t, 1)) return true;
  }
  return right_product(s);
}

/* ---- RMSNorm ---- */

typedef enum { NORM_NOT, NORM_NO_WEIGHT, NORM_ONE_PLUS_WEIGHT, NORM_CENTRED, NORM_OF_ROW, NORM_SUM } norm_kind;

static bool predict_norm(void *arg, const ls_subject *s, int64_t row, float *y, float *rest) {
  const product_try *t = arg;
  const ls_attn_config *a = ls_subject_attn(s);
  const double eps = (double)(float)(a != NULL ? a->norm_eps : s->args->step->config->dflash.rms_eps);
  const int64_t n = t->how == NORM_OF_ROW ? s->width : t->chain[0].width;
  read_row(t, row, y);
  for (int64_t from = 0; from < s->width && t->how != NORM_NOT; from += n) {
    double squares = 0, mean = 0;
    for (int64_t i = 0; i < n; i++) mean += (double)y[from + i] / (double)n;
    if (t->how != NORM_CENTRED) mean = 0;
    for (int64_t i = 0; i < n; i++) squares += ((double)y[from + i] - mean) * ((double)y[from + i] - mean);
    const double inverse = 1 / sqrt(squares / (t->how == NORM_SUM ? 1 : (double)n) + eps);
    for (int64_t i = 0; i < n; i++) {
      const double w = ls_tensor_get(t->weight, (from + i) % t->chain[0].width);
      const double factor = t->how == NORM_NO_WEIGHT ? 1 : t->how == NORM_ONE_PLUS_WEIGHT ? 1 + w : w;
      y[from + i] = (float)(((double)y[from + i] - mean) * inverse * factor);
    }
  }
  return ls_recipe_finish(t->chain, t->n, s, row, y, rest);
}

void ls_explain_norm(const ls_subject *s, ls_best *best) {
  static const struct {
    norm_kind kind;
    const char *id, *text;
  } kinds[] = {{NORM_NOT, "norm-skipped", "was not normalised"},
               {NORM_NO_WEIGHT, "norm-weight", "was normalised without the weight"},
               {NORM_ONE_PLUS_WEIGHT, "norm-weight", "was normalised with 1 + weight instead of the weight"},
               {NORM_CENTRED, "norm-centred", "had its mean taken off before the norm, as LayerNorm does"},
               {NORM_OF_ROW, "norm-width", "was normalised over the whole row instead of each head"},
               {NORM_SUM, "norm-sum", "was normalised by the sum of squares instead of their mean"}};
  product_try t = {.n = 0};
  if (!open_try(&t, s, LS_MADE_BY_NORM) || t.weight == NULL || ls_tensor_count(t.weight) != t.chain[0].width) return;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !ls_best_is_certain(best); i++) {
    ls_fit fit;
    t.how = (int)kinds[i].kind;
    if (kinds[i].kind == NORM_OF_ROW && t.chain[0].width == s->width) continue;
    if (ls_fit_rows(&fit, s, predict_norm, &t, 8)) ls_best_offer(best, s, &fit, kinds[i].id, "%s %s", t.chain[0].input, kinds[i].text);
  }
}

/* ---- round trips ---- */

typedef enum {
  GRID_NOT,
  GRID_FLOOR,    /* the power of two below amax / most */
  GRID_MANTISSA, /* the carry added, the mantissa left */
  GRID_EXACT,    /* no power of two at all */
  GRID_LATE,     /* divided by the exact scale, multiplied by the power of two */
  GRID_TWICE,
  GRID_HALF,
  GRID_CODE_UP, /* every code one further from zero */
  GRID_CODE_DOWN,
  GRID_TRUNCATED, /* codes toward zero */
  GRID_BLOCK      /* the block of another size: + log2 of it */
} grid_kind;

static float code_of(bool fp8, float v) { return fp8 ? ls_e4m3_to_f32(ls_f32_to_e4m3(v)) : ls_e2m1_to_f32(ls_f32_to_e2m1(v)); }

/* The next magnitude of the grid, or the one before; the ends stay. */
static float next_code(bool fp8, float v, int by) {
  const uint8_t code = fp8 ? ls_f32_to_e4m3(v) : ls_f32_to_e2m1(v), sign = code & (fp8 ? 0x80 : 8), most = fp8 ? 0x7E : 7;
  const int magnitude = (code & (fp8 ? 0x7F : 7)) + by;
  const uint8_t moved = (uint8_t)(sign | (magnitude < 0 ? 0 : magnitude > most ? most : magnitude));
  return fp8 ? ls_e4m3_to_f32(moved) : ls_e2m1_to_f32(moved);
}

static float other_code(bool fp8, float v, grid_kind kind) {
  const float code = code_of(fp8, v);
  if (kind == GRID_CODE_UP) return next_code(fp8, v, 1);
  if (kind == GRID_CODE_DOWN) return next_code(fp8, v, -1);
  if (kind == GRID_TRUNCATED && fabsf(code) > fabsf(v)) return next_code(fp8, code, -1);
  return code;
}

static bool predict_grid(void *arg, const ls_subject *s, int64_t row, float *y, float *rest) {
  const product_try *t = arg;
  const ls_grid grid = (ls_grid)t->chain[0].grid;
  const bool fp8 = grid == LS_GRID_FP8, pow2 = grid != LS_GRID_FP4_E4M3;
  const grid_kind kind = t->how >= GRID_BLOCK ? GRID_BLOCK : (grid_kind)t->how;
  const int64_t block = t->how >= GRID_BLOCK ? (int64_t)1 << (t->how - GRID_BLOCK) : ls_grid_block(grid);
  const float least = fp8 ? 1e-4f : pow2 ? 6 * 0x1p-126f : 6 * 0x1p-9f, most = fp8 ? 448 : 6;
  read_row(t, row, y);
  for (int64_t from = 0; from < s->width && kind != GRID_NOT; from += block) {
    const int64_t to = from + block < s->width ? from + block : s->width;
    float amax = least;
    for (int64_t i = from; i < to; i++) amax = fmaxf(amax, fabsf(y[i]));
    const float exact = fp8 || pow2 ? amax * (float)(1.0 / (double)most) : amax / most;
    float scale = pow2 ? ls_pow2ceil(exact) : ls_e4m3_to_f32(ls_f32_to_e4m3(exact)), divisor;
    if (kind == GRID_FLOOR) scale = ls_f32_from_bits(ls_f32_bits(pow2 ? exact : scale) & 0x7F800000u);
    if (kind == GRID_MANTISSA) scale = ls_f32_from_bits(ls_f32_bits(exact) + 0x7FFFFFu);
    if (kind == GRID_EXACT) scale = exact;
    if (kind == GRID_TWICE) scale *= 2;
    if (kind == GRID_HALF) scale *= 0.5f;
    divisor = kind == GRID_LATE ? exact : scale;
    for (int64_t i = from; i < to; i++) {
      y[i] = (float)ls_round_to(s->args->step->config->act, (double)(other_code(fp8, y[i] / divisor, kind) * scale));
    }
  }
  (void)rest;
  return true;
}

void ls_explain_grid(const ls_subject *s, ls_best *best) {
  static const struct {
    int kind;
    const char *id, *text;
  } kinds[] = {{GRID_NOT, "grid-skipped", "stored as they were, without the round trip"},
               {GRID_FLOOR, "grid-scale", "scales rounded down to a power of two instead of up"},
               {GRID_MANTISSA, "grid-scale", "scales that kept their mantissa after the carry of pow2ceil was added"},
               {GRID_EXACT, "grid-scale", "scales that were never rounded"},
               {GRID_LATE, "grid-scale-late", "codes made with the exact scale and multiplied by the rounded one"},
               {GRID_TWICE, "grid-scale", "scales of twice the size, the next power of two"},
               {GRID_HALF, "grid-scale", "scales of half the size, the power of two before"},
               {GRID_CODE_UP, "grid-code", "every code one step further from zero"},
               {GRID_CODE_DOWN, "grid-code", "every code one step nearer to zero"},
               {GRID_TRUNCATED, "grid-truncated", "codes cut toward zero instead of rounded"},
               {GRID_BLOCK + 3, "grid-block", "scales of blocks of 8"},
               {GRID_BLOCK + 4, "grid-block", "scales of blocks of 16"},
               {GRID_BLOCK + 5, "grid-block", "scales of blocks of 32"},
               {GRID_BLOCK + 6, "grid-block", "scales of blocks of 64"},
               {GRID_BLOCK + 7, "grid-block", "scales of blocks of 128"},
               {GRID_BLOCK + 30, "grid-block", "one scale a row"}};
  product_try t = {.n = 0};
  if (!open_try(&t, s, LS_MADE_BY_GRID)) return;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !ls_best_is_certain(best); i++) {
    ls_fit fit;
    t.how = kinds[i].kind;
    if (kinds[i].kind >= GRID_BLOCK && (int64_t)1 << (kinds[i].kind - GRID_BLOCK) == ls_grid_block((ls_grid)t.chain[0].grid)) continue;
    if (ls_fit_rows(&fit, s, predict_grid, &t, 16))
      ls_best_offer(best, s, &fit, kinds[i].id, "values match %s: %s", t.chain[0].input, kinds[i].text);
  }
}

/* ---- matrix products ---- */

/* Elements that stand for all: an even choice of those that fail, and of those that pass in rows that fail. */
enum { SAMPLE = 192 };

typedef struct {
  int64_t at[2 * SAMPLE];
  int n;
} gemm_sample;

static void sample_of(gemm_sample *sample, const ls_subject *s, int kind, int64_t count) {
  const int64_t each = count / SAMPLE + 1;
  int64_t seen = 0;
  for (int64_t i = 0; i < s->rows * s->width && sample->n < 2 * SAMPLE; i++) {
    if (s->at[i] != kind || !s->row_fails[i / s->width]) continue;
    if (seen++ % each == 0) sample->at[sample->n++] = i;
  }
}

typedef enum {
  GEMM_RIGHT,
  GEMM_OTHER_INPUT,
  GEMM_INTERLEAVED_WEIGHT, /* row r of group g is row r * groups + g */
  GEMM_INTERLEAVED_INPUT,  /* element i of group g is element i * groups + g */
  GEMM_INTERLEAVED_HEADS,  /* head h of group g is head h * groups + g */
  GEMM_TRANSPOSED          /* a square weight */
} gemm_kind;

typedef struct {
  gemm_kind kind;
  const ls_recipe *recipe;
  const ls_tensor *input, *weight;
  int64_t k, head;
} gemm_how;

static double product(const gemm_how *g, const ls_subject *s, int64_t row, int64_t column) {
  const int64_t groups = g->recipe->groups, n = s->width / groups, group = column / n, r = column % n, wide = g->input->dim[1];
  const int64_t line = g->kind == GEMM_INTERLEAVED_WEIGHT ? r * groups + group : column;
  double sum = 0;
  for (int64_t i = 0; i < g->k; i++) {
    int64_t from = group * g->k + i;
    if (g->kind == GEMM_INTERLEAVED_INPUT) from = i * groups + group;
    if (g->kind == GEMM_INTERLEAVED_HEADS) from = (i / g->head * groups + group) * g->head + i % g->head;
    const int64_t w = g->kind == GEMM_TRANSPOSED ? i * g->k + column : line * g->k + i;
    sum += ls_tensor_get(g->input, row * wide + from) * ls_tensor_get(g->weight, w);
  }
  return sum;
}

static bool gemm_fits(ls_fit *fit, const ls_subject *s, const gemm_sample *sample, const gemm_how *g) {
  *fit = (ls_fit){.tries = 32};
  const int spare = sample->n / 100;
  for (int i = 0; i < sample->n && fit->checked - fit->agree <= spare; i++) {
    const int64_t at = sample->at[i];
    ls_fit_add(fit, s, at, product(g, s, at / s->width, at % s->width), (double)s->rest[at]);
  }
  return fit->checked == sample->n && ls_fit_holds(fit);
}

static bool open_gemm(product_try *t, const ls_subject *s, gemm_sample *sample) {
  if (!open_try(t, s, LS_MADE_BY_GEMM) || t->n != 1 || t->weight == NULL || t->weight->ndim != 2 || t->weight->dim[0] != s->width)
    return false;
  sample_of(sample, s, LS_AT_FAILS, s->failing);
  sample_of(sample, s, LS_AT_PASSES, s->rows_failing * s->width - s->failing);
  return t->input.dim[1] == t->weight->dim[1] * t->chain[0].groups;
}

static bool right_product(const ls_subject *s) {
  product_try t = {.n = 0};
  gemm_sample sample = {.n = 0};
  if (!open_gemm(&t, s, &sample)) return false;
  const gemm_how g = {.kind = GEMM_RIGHT, .recipe = &t.chain[0], .input = &t.input, .weight = t.weight, .k = t.weight->dim[1], .head = 1};
  ls_fit fit;
  return gemm_fits(&fit, s, &sample, &g);
}

void ls_explain_gemm(const ls_subject *s, ls_best *best) {
  product_try t = {.n = 0};
  gemm_sample sample = {.n = 0};
  if (!open_gemm(&t, s, &sample)) return;
  const int64_t k = t.weight->dim[1];
  const ls_attn_config *a = ls_subject_attn(s);
  gemm_how g = {.recipe = &t.chain[0], .input = &t.input, .weight = t.weight, .k = k, .head = a != NULL ? a->head_dim : 1};
  ls_fit fit;
  if (t.chain[0].groups > 1) {
    const long long groups = (long long)t.chain[0].groups;
    g.kind = GEMM_INTERLEAVED_WEIGHT;
    if (gemm_fits(&fit, s, &sample, &g))
      ls_best_offer(best, s, &fit, "groups-interleaved",
                    "values match %s read as if its %lld groups lay interleaved: row r of group g taken from row r * %lld + g",
                    t.chain[0].weight, groups, groups);
    g.kind = GEMM_INTERLEAVED_INPUT;
    if (gemm_fits(&fit, s, &sample, &g))
      ls_best_offer(best, s, &fit, "groups-interleaved",
                    "values match %s read as if its %lld groups lay interleaved: element i of group g taken from element i * %lld + g",
                    t.chain[0].input, groups, groups);
    g.kind = GEMM_INTERLEAVED_HEADS;
    if (gemm_fits(&fit, s, &sample, &g))
      ls_best_offer(best, s, &fit, "groups-interleaved",
                    "values match heads dealt to the %lld groups in turn: head h of group g taken from head h * %lld + g", groups, groups);
  }
  if (t.chain[0].groups == 1 && k == s->width) {
    g.kind = GEMM_TRANSPOSED;
    if (gemm_fits(&fit, s, &sample, &g))
      ls_best_offer(best, s, &fit, "weight-transposed", "values match a product with %s transposed", t.chain[0].weight);
  }
  const ls_layer *layer = s->args->step->config->layer;
  g.kind = GEMM_OTHER_INPUT;
  for (int i = 0; i < layer->n_stages && !ls_best_is_certain(best); i++) {
    ls_tensor other;
    if (strcmp(layer->stages[i].name, t.chain[0].input) == 0 || !ls_subject_stage(&other, s, layer->stages[i].name, s->rows)) continue;
    if (other.dim[1] != t.input.dim[1]) continue;
    g.input = &other;
    if (gemm_fits(&fit, s, &sample, &g))
      ls_best_offer(best, s, &fit, "other-input", "values match a product of %s instead of %s", layer->stages[i].name, t.chain[0].input);
  }
}
