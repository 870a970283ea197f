/* The bounds of attn_v41: formulas against brute force, and paths that differ as real ones do: other orders of sums, other blocks of
 * attention, exp2 for exp, stages fused. */
#include "compare_helpers.h"
#include "layers/bound_attn_v41.h"
#include "layers/bound_grid.h"
#include "layers/bound_index_score.h"
#include "layers/bound_pool.h"
#include "layers/bound_sparse_attn.h"

/* arg: names, each with a comma before and after it */
static bool named(void *arg, const char *stage) {
  char name[LS_NAME_MAX + 2];
  snprintf(name, sizeof name, ",%s,", stage);
  return strstr(arg, name) != NULL;
}

static double within(ls_random *r, double low, double high) { return low + (high - low) * ls_random_unit(r); }
static double bf16(double v) { return ls_round_to(LS_BF16, v); }

/* ---- round trips, as layers.md has them ---- */

static void quantise(double *x, int64_t n, ls_grid grid) {
  float amax = 0;
  for (int64_t i = 0; i < n; i++) amax = fmaxf(amax, fabsf((float)x[i]));
  float s = grid == LS_GRID_FP8   ? ls_pow2ceil(fmaxf(amax, 1e-4f) * (float)(1.0 / 448))
            : grid == LS_GRID_FP4 ? ls_pow2ceil(fmaxf(amax, 6 * 0x1p-126f) * (float)(1.0 / 6))
                                  : ls_e4m3_to_f32(ls_f32_to_e4m3(fmaxf(amax, 6 * 0x1p-9f) / 6));
  for (int64_t i = 0; i < n; i++) {
    float top = grid == LS_GRID_FP8 ? 448.0f : 6.0f, v = fminf(fmaxf((float)x[i] / s, -top), top);
    float code = grid == LS_GRID_FP8 ? ls_e4m3_to_f32(ls_f32_to_e4m3(v)) : ls_e2m1_to_f32(ls_f32_to_e2m1(v));
    x[i] = bf16((double)(code * s));
  }
}

static const ls_grid grids[] = {LS_GRID_FP8, LS_GRID_FP4, LS_GRID_FP4_E4M3};

/* Values of one block, of several kinds. */
static void fill_block(ls_random *r, double *x, int64_t n, int kind) {
  double scale = kind == 1 ? 1e-6 : kind == 2 ? 1e5 : kind == 3 ? 0 : 1;
  for (int64_t i = 0; i < n; i++) {
    x[i] = bf16(scale * within(r, -1, 1));
    if (kind == 4) x[i] = bf16(x[i] * x[i] * x[i] * 8);           /* heavy tails */
    if (kind == 5) x[i] = i % 3 == 0 ? 6 : 0.5 * (double)(i % 5); /* midpoints and ends of scales */
  }
}

Test(bounds_attn, equal_inputs_of_a_grid_leave_no_room) {
  ls_random r = {.seed = 1};
  double x[32], none[32] = {0};
  float bound[32];
  for (int g = 0; g < 3; g++) {
    for (int round = 0; round < 600; round++) {
      fill_block(&r, x, 32, round % 6);
      ls_bound_grid(bound, x, none, ls_grid_block(grids[g]), grids[g]);
      for (int64_t i = 0; i < ls_grid_block(grids[g]); i++) cr_assert(bound[i] == 0);
    }
  }
}

/* Inputs anywhere inside what they may be off by never leave the bound; and what the bound names is reached: in a grid a bound that is not
 * 0 is a step to a code that some input does go to. */
Test(bounds_attn, moved_inputs_of_a_grid_stay_inside_and_reach_it) {
  ls_random r = {.seed = 2};
  double x[32], total[32], moved[32], one[32], reached[32], least[32], most[32];
  float bound[32];
  const double sizes[] = {0x1p-10, 0x1p-8, 0x1p-5, 0.3};
  for (int g = 0; g < 3; g++) {
    const int64_t n = ls_grid_block(grids[g]);
    int64_t open = 0, hit = 0, all = 0;
    for (int round = 0; round < 480; round++) {
      fill_block(&r, x, n, round % 6);
      for (int64_t i = 0; i < n; i++) total[i] = (i + round) % 4 == 0 ? 0 : fabs(x[i]) * sizes[round % 4] + (round % 5 == 0 ? 1e-3 : 0);
      ls_bound_grid(bound, x, total, n, grids[g]);
      for (int64_t i = 0; i < n; i++) least[i] = INFINITY, most[i] = -INFINITY, reached[i] = 0;
      for (int tries = 0; tries < 200; tries++) {
        const int64_t largest = ls_random_range(&r, 0, n - 1);
        for (int64_t i = 0; i < n; i++) {
          const double to = tries % 3 == 0 ? (ls_random_unit(&r) < 0.5 ? -1 : 1) : within(&r, -1, 1);
          moved[i] = (double)(float)(x[i] + (i == largest ? (x[i] < 0 ? -1 : 1) : to) * total[i]);
          if (fabs(moved[i] - x[i]) > total[i]) moved[i] = x[i]; /* rounded to outside */
        }
        memcpy(one, moved, sizeof one);
        quantise(one, n, grids[g]);
        for (int64_t i = 0; i < n; i++) {
          least[i] = fmin(least[i], one[i]);
          most[i] = fmax(most[i], one[i]);
          reached[i] = most[i] - least[i];
          cr_assert(reached[i] <= (double)bound[i], "grid %d: %.9g apart, bound %.9g", g, reached[i], (double)bound[i]);
        }
      }
      for (int64_t i = 0; i < n; i++) all++, open += bound[i] > 0, hit += bound[i] > 0 && reached[i] > 0;
    }
    cr_log_info("grid %d: %.3f of the elements have room, %.3f of those use it", g, (double)open / (double)all, (double)hit / (double)open);
    cr_assert(open > all / 50 && open < all && hit > open / 3);
  }
}

Test(bounds_attn, a_code_that_no_input_reaches_is_outside) {
  double x[16], total[16];
  float bound[16];
  for (int i = 0; i < 16; i++) x[i] = i == 0 ? 6 : 1.1, total[i] = 0.1; /* scale 1; from 1.0 to 1.2 all round to 1, a midpoint is 1.25 */
  total[0] = 0;
  ls_bound_grid(bound, x, total, 16, LS_GRID_FP4_E4M3);
  for (int i = 0; i < 16; i++) cr_assert(bound[i] == 0);
  total[5] = 0.2; /* to 1.3: 1.5 */
  ls_bound_grid(bound, x, total, 16, LS_GRID_FP4_E4M3);
  for (int i = 0; i < 16; i++) cr_assert(bound[i] == (i == 5 ? 0.5f : 0.0f), "%d: %g", i, (double)bound[i]);
  total[0] = 0.5; /* another scale: everything may move */
  ls_bound_grid(bound, x, total, 16, LS_GRID_FP4_E4M3);
  for (int i = 0; i < 16; i++) cr_assert(bound[i] > 0);
}

Test(bounds_attn, a_block_that_is_not_finite_allows_nothing_or_needs_nothing) {
  double x[32] = {1, 2}, total[32] = {0};
  float bound[32];
  x[3] = NAN;
  total[1] = 0.5;
  ls_bound_grid(bound, x, total, 32, LS_GRID_FP8);
  for (int i = 0; i < 32; i++) cr_assert(bound[i] == 0); /* NaN on both sides */
  x[3] = 0;
  total[3] = NAN;
  ls_bound_grid(bound, x, total, 32, LS_GRID_FP8);
  for (int i = 0; i < 32; i++) cr_assert(!isfinite(bound[i]));
}

/* ---- the pool ---- */

static double pooled(const double *k, const double *s, int64_t n) {
  double most = -INFINITY, sum = 0, y = 0;
  for (int64_t i = 0; i < n; i++) most = fmax(most, s[i]);
  for (int64_t i = 0; i < n; i++) sum += exp(s[i] - most), y += exp(s[i] - most) * k[i];
  return y / sum;
}

Test(bounds_attn, moved_scores_and_rows_move_a_pool_by_no_more_than_its_bound) {
  ls_random r = {.seed = 3};
  double largest = 0, k[4], s[4], off_k[4], off_s[4], k2[4], s2[4];
  const double sizes[] = {1e-6, 1e-3, 0.1, 3};
  for (int round = 0; round < 4000; round++) {
    const int64_t n = 1 + round % 4;
    const double size = sizes[round / 4 % 4], scale = round % 3 == 0 ? 20 : 1;
    for (int64_t i = 0; i < n; i++) {
      k[i] = within(&r, -2, 2), s[i] = scale * within(&r, -1, 1);
      off_k[i] = round % 5 == 0 ? 0 : size * ls_random_unit(&r), off_s[i] = size * ls_random_unit(&r);
    }
    const double bound = ls_bound_pool(k, s, off_k, off_s, n), y = pooled(k, s, n);
    double apart = 0;
    for (int corner = 0; corner < 1 << (2 * n); corner++) {
      for (int64_t i = 0; i < n; i++) {
        s2[i] = s[i] + (corner >> i & 1 ? off_s[i] : -off_s[i]);
        k2[i] = k[i] + (corner >> (n + i) & 1 ? off_k[i] : -off_k[i]);
      }
      apart = fmax(apart, fabs(pooled(k2, s2, n) - y));
    }
    cr_assert(apart <= bound, "%.9g apart, bound %.9g", apart, bound);
    if (n > 1 && size < 0.01) largest = fmax(largest, apart / bound);
  }
  cr_log_info("pool: the worst corner uses %.3f", largest);
  cr_assert(largest > 0.9);
}

Test(bounds_attn, an_empty_slot_has_no_part_in_a_pool) {
  const double k[] = {1, 0}, s[] = {0.5, -INFINITY}, off_k[] = {1e-3, 7}, off_s[] = {1e-3, 0}, off_none[] = {0, 0};
  const double bound = ls_bound_pool(k, s, off_k, off_s, 2);
  cr_assert(bound > 1e-3 && bound < 1.1e-3, "%g", bound);
  const double empty[] = {-INFINITY, -INFINITY};
  cr_assert(isnan(ls_bound_pool(k, empty, off_none, off_none, 2)));
}

/* ---- a small stack, and float32 paths through it ---- */

enum { DIM = 96, HEADS = 4, HEAD_DIM = 64, ROPE = 16, Q_RANK = 48, GROUPS = 2, O_RANK = 24, WINDOW = 8, I_HEADS = 8, I_DIM = 32, TOPK = 6 };
enum { Q_DIM = HEADS * HEAD_DIM, IQ_DIM = I_HEADS * I_DIM, N_LAYERS = 4, MAX_LEN = 64, PREFILL = 13 };
enum { WINDOW_ONLY, PAIRS, READER, SINGLES }; /* layers: ratio 0; ratio 2, a source; ratio 2, no source; ratio 1, a source */

typedef struct {
  ls_config config;
  ls_step step;
  ls_trace *weights, *bounds, *state_bounds, *before, *after;
} layer_rig;

static void add_weight(ls_trace *weights, int layer, const char *name, ls_dtype type, int64_t rows, int64_t columns, double scale,
                       double offset) {
  char full[LS_MAX_SPEC_NAME];
  snprintf(full, sizeof full, "layers/%d/%s", layer, name);
  ls_tensor t = add_tensor(weights, full, type, columns > 0 ? 2 : 1, (int64_t[]){rows, columns});
  ls_generate(&t, full, scale, offset);
}

static void setup(layer_rig *g) {
  *g = (layer_rig){.config = {.layer = &ls_layer_attn_v41, .act = LS_BF16}};
  g->config.attn = (ls_attn_config){.dim = DIM,
                                    .n_heads = HEADS,
                                    .head_dim = HEAD_DIM,
                                    .rope_head_dim = ROPE,
                                    .q_lora_rank = Q_RANK,
                                    .o_lora_rank = O_RANK,
                                    .o_groups = GROUPS,
                                    .window_size = WINDOW,
                                    .index_n_heads = I_HEADS,
                                    .index_head_dim = I_DIM,
                                    .index_topk = TOPK,
                                    .candidate_topk_blocks = 2,
                                    .candidate_block_size = 4,
                                    .candidate_source_layer = -1,
                                    .original_seq_len = 32,
                                    .beta_fast = 32,
                                    .beta_slow = 1,
                                    .max_seq_len = MAX_LEN,
                                    .max_tokens = 32,
                                    .n_layers = N_LAYERS,
                                    .norm_eps = 1e-20,
                                    .rope_theta = 1e4,
                                    .compress_rope_theta = 1.6e5,
                                    .rope_factor = 16,
                                    .compress_ratio = {0, 2, 2, 1},
                                    .is_kv_source = {0, 1, 0, 1},
                                    .is_index_source = {0, 1, 0, 1}};
  MUST(ls_layer_attn_v41.config_check(&g->config, err));
  g->weights = new_trace("weights");
  for (int l = 0; l < N_LAYERS; l++) {
    const bool pools = l == PAIRS;
    add_weight(g->weights, l, "attn_sink", LS_F32, HEADS, 0, 1, 0);
    add_weight(g->weights, l, "wq_a", LS_BF16, Q_RANK, DIM, 0.2, 0);
    add_weight(g->weights, l, "q_norm", LS_F32, Q_RANK, 0, 0.3, 1);
    add_weight(g->weights, l, "wq_b", LS_BF16, Q_DIM, Q_RANK, 0.4, 0);
    add_weight(g->weights, l, "wkv", LS_BF16, HEAD_DIM, DIM, 0.2, 0);
    add_weight(g->weights, l, "kv_norm", LS_BF16, HEAD_DIM, 0, 0.3, 1);
    add_weight(g->weights, l, "wo_a", LS_BF16, GROUPS * O_RANK, Q_DIM / GROUPS, 0.2, 0);
    add_weight(g->weights, l, "wo_b", LS_BF16, DIM, GROUPS * O_RANK, 0.2, 0);
    if (l == WINDOW_ONLY || l == READER) continue;
    add_weight(g->weights, l, "compressor/wkv", pools ? LS_F32 : LS_BF16, HEAD_DIM, DIM, 0.2, 0);
    if (pools) add_weight(g->weights, l, "compressor/wgate", LS_F32, HEAD_DIM, DIM, 0.2, 0);
    add_weight(g->weights, l, "compressor/norm", LS_F32, HEAD_DIM, 0, 0.3, 1);
    add_weight(g->weights, l, "indexer/wk", LS_BF16, I_DIM, HEAD_DIM, 0.2, 0);
    add_weight(g->weights, l, "indexer/k_norm", LS_F32, I_DIM, 0, 0.3, 1);
    add_weight(g->weights, l, "indexer/wq_b", LS_BF16, IQ_DIM, Q_RANK, 0.4, 0);
    add_weight(g->weights, l, "indexer/weights_proj", LS_BF16, I_HEADS, DIM, 0.2, 0);
  }
}

static void teardown(layer_rig *g) {
  ls_trace_free(g->weights);
  ls_trace_free(g->bounds);
  ls_trace_free(g->state_bounds);
}

typedef enum { FORWARD, BACKWARD, LANES, EXACT } order;

/* A path's run of one step. */
typedef struct {
  const layer_rig *g;
  ls_attn_plan p;
  order o;
  const ls_trace *given, *before;
  ls_trace *out, *after;
  ls_dtype store; /* of stages: LS_BF16, or LS_F64: not rounded */
} path;

static double sum_products(const double *x, const double *w, int64_t n, order o) {
  if (o == EXACT) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * w[i];
    return sum;
  }
  float lane[8] = {0};
  const int lanes = o == LANES ? 8 : 1;
  for (int64_t i = 0; i < n; i++) {
    const int64_t at = o == BACKWARD ? n - 1 - i : i;
    const float a = (float)x[at], b = (float)w[at];
    lane[i % lanes] = o == LANES ? fmaf(a, b, lane[i % lanes]) : lane[i % lanes] + a * b;
  }
  return (double)(((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7])));
}

static double *widened(const ls_tensor *t) {
  double *v = malloc((size_t)ls_tensor_count(t) * sizeof *v + 1);
  ls_tensor_to_f64(v, t);
  return v;
}

static const ls_tensor *weight(const path *p, const char *name) {
  char full[LS_MAX_SPEC_NAME];
  snprintf(full, sizeof full, "layers/%d/%s", (int)p->p.layer, name);
  const ls_tensor *t = ls_trace_tensor(p->g->weights, full);
  cr_assert_not_null(t, "%s", full);
  return t;
}

/* What a later stage reads. */
static double *read(const path *p, const char *stage) {
  const ls_tensor *t = p->given ? ls_trace_tensor(p->given, stage) : NULL;
  if (t == NULL) t = ls_trace_tensor(p->out, stage);
  cr_assert_not_null(t, "%s", stage);
  return widened(t);
}

static void store(const path *p, const char *stage, ls_dtype type, int64_t rows, int64_t columns, const double *v) {
  ls_tensor t = add_tensor(p->out, stage, type, 2, (int64_t[]){rows, columns});
  ls_tensor_from_f64(&t, v);
}

static double *gemm_values(const path *p, const double *x, const char *w, int64_t rows, int64_t groups) {
  const ls_tensor *t = weight(p, w);
  const int64_t n = t->dim[0], k = t->dim[1], per = n / groups;
  double *wv = widened(t), *y = malloc((size_t)(rows * n) * sizeof *y + 1);
  for (int64_t r = 0; r < rows; r++) {
    for (int64_t i = 0; i < n; i++) y[r * n + i] = sum_products(x + r * k * groups + i / per * k, wv + i * k, k, p->o);
  }
  free(wv);
  return y;
}

static void gemm_of(const path *p, const char *stage, const char *input, const char *w, int64_t rows, int64_t groups) {
  double *x = read(p, input), *y = gemm_values(p, x, w, rows, groups);
  store(p, stage, p->store, rows, weight(p, w)->dim[0], y);
  free(x);
  free(y);
}

static void norm_rows(const path *p, double *x, const char *w, int64_t rows, int64_t n) {
  double *wv = widened(weight(p, w));
  for (int64_t r = 0; r < rows; r++, x += n) {
    const double sum = sum_products(x, x, n, p->o);
    const double inv = p->o == EXACT ? 1 / sqrt(sum / (double)n + (double)1e-20f) : (double)(1.0f / sqrtf((float)sum / (float)n + 1e-20f));
    for (int64_t i = 0; i < n; i++) x[i] = p->o == EXACT ? x[i] * inv * wv[i] : (double)((float)x[i] * (float)inv * (float)wv[i]);
  }
  free(wv);
}

static void norm_of(const path *p, const char *stage, const char *input, const char *w, int64_t rows, int64_t n) {
  double *x = read(p, input);
  norm_rows(p, x, w, rows, n);
  store(p, stage, p->store, rows, n, x);
  free(x);
}

static float angle_of(const path *p, int64_t position, int64_t i) {
  const ls_attn_config *c = &p->g->config.attn;
  const double theta = p->p.ratio > 0 ? c->compress_rope_theta : c->rope_theta;
  float freq = 1.0f / (float)pow(theta, (double)((float)(2 * i) / (float)ROPE));
  if (p->p.ratio > 0) {
    const double per = ROPE / (2 * log(theta)), low = fmax(floor(per * log(32 / (32 * 2 * M_PI))), 0);
    const double high = fmin(ceil(per * log(32 / (2 * M_PI))), ROPE - 1);
    const float ramp = fminf(fmaxf(((float)i - (float)low) / (float)fmax(high - low, 0.001), 0), 1), s = 1 - ramp;
    freq = freq / 16.0f * (1 - s) + freq * s;
  }
  return (float)position * freq;
}

static void rotate(const path *p, double *x, int64_t rows, int64_t heads, int64_t width, bool latents, bool inverse) {
  for (int64_t at = 0; at < rows * heads; at++) {
    const int64_t row = at / heads, position = latents ? ls_attn_group_position(&p->p, row) : p->p.start_pos + row;
    double *tail = x + at * width + width - ROPE;
    for (int64_t i = 0; i < ROPE / 2; i++) {
      const float angle = angle_of(p, position, i);
      const double a = tail[2 * i], b = tail[2 * i + 1], c = cos((double)angle), s = (inverse ? -1 : 1) * sin((double)angle);
      float fc = (float)c, fs = (float)s;
      if (p->o == BACKWARD) fc = nextafterf(nextafterf(fc, 2), 2), fs = nextafterf(nextafterf(fs, 2), 2); /* 2 ulps off */
      tail[2 * i] = p->o == EXACT ? a * c - b * s : (double)((float)a * fc - (float)b * fs);
      tail[2 * i + 1] = p->o == EXACT ? b * c + a * s : (double)((float)b * fc + (float)a * fs);
    }
  }
}

static void rope_of(const path *p, const char *stage, const char *input, int64_t rows, int64_t heads, int64_t width, bool latents,
                    bool inverse) {
  double *x = read(p, input);
  rotate(p, x, rows, heads, width, latents, inverse);
  store(p, stage, p->store, rows, heads * width, x);
  free(x);
}

static void grid_of(const path *p, const char *stage, const char *input, int64_t rows, int64_t columns, ls_grid grid) {
  double *x = read(p, input);
  for (int64_t at = 0; at < rows * columns; at += ls_grid_block(grid)) quantise(x + at, ls_grid_block(grid), grid);
  store(p, stage, LS_BF16, rows, columns, x);
  free(x);
}

/* A state tensor of the step's layer, or of `layer` where that is not negative; made where it is lacking. */
static const ls_tensor *state(const path *p, int64_t layer, const char *name, ls_dtype type, int64_t rows, int64_t columns) {
  char full[LS_MAX_SPEC_NAME];
  snprintf(full, sizeof full, "layers/%d/%s", (int)(layer < 0 ? p->p.layer : layer), name);
  if (ls_trace_tensor(p->after, full) == NULL) add_tensor(p->after, full, type, 2, (int64_t[]){rows, columns});
  return ls_trace_tensor(p->after, full);
}

static void put_rows(const ls_tensor *t, int64_t first, const double *v, int64_t rows) {
  for (int64_t i = 0; i < rows * t->dim[1]; i++) ls_tensor_set(t, first * t->dim[1] + i, v[i]);
}

static void run_pool(const path *p) {
  const int64_t r = p->p.ratio, m = p->p.m, older = p->p.start_pos % r;
  const ls_tensor *kv_state = state(p, -1, "kv_state", LS_F32, r, HEAD_DIM),
                  *score_state = state(p, -1, "score_state", LS_F32, r, HEAD_DIM);
  double *x = read(p, "x"), *kv = gemm_values(p, x, "compressor/wkv", m, 1), *score = gemm_values(p, x, "compressor/wgate", m, 1);
  double *y = malloc((size_t)(p->p.g * HEAD_DIM) * sizeof *y + 1);
  for (int64_t j = 0; j < p->p.g; j++) {
    for (int64_t c = 0; c < HEAD_DIM; c++) {
      float k[8], s[8], most = -INFINITY, sum = 0, all = 0;
      double wide_sum = 0, wide = 0;
      for (int64_t i = 0; i < r; i++) {
        const int64_t row = j * r + i - older;
        k[i] = (float)(row < 0 ? ls_tensor_get(kv_state, i * HEAD_DIM + c) : kv[row * HEAD_DIM + c]);
        s[i] = (float)(row < 0 ? ls_tensor_get(score_state, i * HEAD_DIM + c) : score[row * HEAD_DIM + c]);
        most = fmaxf(most, s[i]);
      }
      for (int64_t i = 0; i < r; i++) {
        const float e = p->o == BACKWARD ? exp2f((s[i] - most) * 1.44269504f) : expf(s[i] - most);
        sum += e, all += e * k[i];
        wide_sum += exp((double)(s[i] - most)), wide += exp((double)(s[i] - most)) * (double)k[i];
      }
      y[j * HEAD_DIM + c] = p->o == EXACT ? wide / wide_sum : (double)(all / sum);
    }
  }
  if (p->p.g > 0) store(p, "latent_pool", p->store, p->p.g, HEAD_DIM, y);
  const int64_t from = p->p.start_pos == 0 ? m / r * r : 0;
  for (int64_t row = from; row < m; row++) {
    put_rows(kv_state, (p->p.start_pos + row) % r, kv + row * HEAD_DIM, 1);
    put_rows(score_state, (p->p.start_pos + row) % r, score + row * HEAD_DIM, 1);
  }
  double *after_kv = widened(kv_state), *after_score = widened(score_state);
  store(p, "kv_state", LS_F32, r, HEAD_DIM, after_kv);
  store(p, "score_state", LS_F32, r, HEAD_DIM, after_score);
  free(x), free(kv), free(score), free(y), free(after_kv), free(after_score);
}

static void run_scores(const path *p) {
  const int64_t m = p->p.m, n = p->p.n;
  const ls_tensor *cache = state(p, -1, "index_cache", LS_BF16, MAX_LEN, I_DIM);
  double *q = read(p, "index_q"), *w = read(p, "index_w"), *key = widened(cache), *y = malloc((size_t)(m * n) * sizeof *y);
  for (int64_t t = 0; t < m; t++) {
    for (int64_t j = 0; j < n; j++) {
      double each[I_HEADS], one[I_HEADS];
      for (int64_t h = 0; h < I_HEADS; h++) {
        const double dot = bf16(sum_products(q + (t * I_HEADS + h) * I_DIM, key + j * I_DIM, I_DIM, p->o));
        each[h] = bf16((double)((float)(dot < 0 ? 0 : dot) * (float)w[t * I_HEADS + h])), one[h] = 1;
      }
      y[t * n + j] = j < ls_attn_visible(&p->p, t) ? sum_products(each, one, I_HEADS, p->o) : -INFINITY;
    }
  }
  store(p, "index_score", p->store, m, n, y);
  free(q), free(w), free(key), free(y);
}

/* Window entries, and of the compressed rows the newest that a query sees: any choice will do here. */
static void run_idx(const path *p) {
  const int64_t m = p->p.m, wk = p->p.wk, k = p->p.k, start = p->p.start_pos;
  ls_tensor idx = add_tensor(p->out, "idx", LS_I32, 2, (int64_t[]){m, wk + k});
  for (int64_t t = 0; t < m; t++) {
    for (int64_t j = 0; j < wk; j++) {
      int64_t i = start == 0 ? (t - WINDOW + 1 > 0 ? t - WINDOW + 1 : 0) + j : (start % WINDOW + 1 + j) % WINDOW;
      if (i > (start == 0 ? t : start)) i = -1;
      ls_tensor_set(&idx, t * (wk + k) + j, (double)i);
    }
    const int64_t visible = ls_attn_visible(&p->p, t), from = visible > k ? visible - k : 0;
    for (int64_t j = 0; j < k; j++) ls_tensor_set(&idx, t * (wk + k) + wk + j, (double)(from + j < visible ? p->p.rows_a + from + j : -1));
  }
}

/* One head over n rows: blocks of `block` in list order with a running maximum, the probabilities rounded to bf16. */
static void attend(float *acc, float *most, float *sum, const double *q, double *const *row, int64_t n, int64_t block, order o) {
  *most = -INFINITY, *sum = 0;
  for (int64_t c = 0; c < HEAD_DIM; c++) acc[c] = 0;
  for (int64_t from = 0; from < n; from += block) {
    const int64_t count = n - from < block ? n - from : block;
    float s[64], high = *most;
    for (int64_t j = 0; j < count; j++) {
      s[j] = (float)sum_products(q, row[from + j], HEAD_DIM, o) * 0.125f;
      high = fmaxf(high, s[j]);
    }
    const float shrink = *most == -INFINITY ? 0 : expf(*most - high);
    *sum *= shrink;
    for (int64_t c = 0; c < HEAD_DIM; c++) acc[c] *= shrink;
    for (int64_t j = 0; j < count; j++) {
      const float e = o == BACKWARD ? exp2f((s[j] - high) * 1.44269504f) : expf(s[j] - high);
      *sum += e;
      for (int64_t c = 0; c < HEAD_DIM; c++) acc[c] += ls_bf16_to_f32(ls_f32_to_bf16(e)) * (float)row[from + j][c];
    }
    *most = high;
  }
}

static void head_output(double *y, const double *q, double **row, int64_t n, double sink, order o) {
  float acc[2][HEAD_DIM], most[2], sum[2];
  if (o == EXACT) {
    double high = -INFINITY, all = 0;
    for (int64_t j = 0; j < n; j++) high = fmax(high, 0.125 * sum_products(q, row[j], HEAD_DIM, o));
    for (int64_t c = 0; c < HEAD_DIM; c++) y[c] = 0;
    for (int64_t j = 0; j < n; j++) {
      const double e = exp(0.125 * sum_products(q, row[j], HEAD_DIM, o) - high);
      all += e;
      for (int64_t c = 0; c < HEAD_DIM; c++) y[c] += e * row[j][c];
    }
    for (int64_t c = 0; c < HEAD_DIM; c++) y[c] /= all + exp(sink - high);
    return;
  }
  if (o == BACKWARD) {
    for (int64_t j = 0; j < n / 2; j++) {
      double *swap = row[j];
      row[j] = row[n - 1 - j], row[n - 1 - j] = swap;
    }
  }
  const int64_t half = o == LANES ? n / 2 : n; /* two splits, combined */
  attend(acc[0], most, sum, q, row, half, o == BACKWARD ? 3 : 4, o);
  attend(acc[1], most + 1, sum + 1, q, row + half, n - half, 64, o);
  const float high = fmaxf(most[0], most[1]), by[] = {expf(most[0] - high), expf(most[1] - high)};
  const float all = sum[0] * by[0] + sum[1] * by[1] + expf((float)sink - high);
  for (int64_t c = 0; c < HEAD_DIM; c++) y[c] = (double)((acc[0][c] * by[0] + acc[1][c] * by[1]) / all);
}

static void run_attention(const path *p) {
  const int64_t m = p->p.m;
  const ls_tensor *idx = ls_trace_tensor(p->out, "idx"), *ring = state(p, -1, "window", LS_BF16, WINDOW, HEAD_DIM);
  const int64_t source = p->p.layer == READER ? PAIRS : p->p.layer;
  double *q = read(p, "q"), *a = p->p.start_pos == 0 ? read(p, "kv") : widened(ring), *sink = widened(weight(p, "attn_sink"));
  double *b = widened(p->p.n > 0 ? state(p, source, "compress_cache", LS_BF16, MAX_LEN, HEAD_DIM) : ring);
  double *y = calloc((size_t)(m * Q_DIM), sizeof *y), *row[64];
  for (int64_t t = 0; t < m; t++) {
    int64_t n = 0;
    for (int64_t h = 0; h < HEADS; h++) {
      n = 0;
      for (int64_t j = 0; j < idx->dim[1]; j++) {
        const int64_t i = (int64_t)ls_tensor_get(idx, t * idx->dim[1] + j);
        if (i >= 0) row[n++] = i < p->p.rows_a ? a + i * HEAD_DIM : b + (i - p->p.rows_a) * HEAD_DIM;
      }
      head_output(y + t * Q_DIM + h * HEAD_DIM, q + t * Q_DIM + h * HEAD_DIM, row, n, sink[h], p->o);
    }
  }
  store(p, "sparse_o", p->store, m, Q_DIM, y);
  free(q), free(a), free(b), free(sink), free(y);
}

static void set_source(ls_trace *after, const char *name, int64_t layer) {
  if (ls_trace_tensor(after, name) == NULL) add_tensor(after, name, LS_I64, 1, (int64_t[]){1});
  ls_tensor_set(ls_trace_tensor(after, name), 0, (double)layer);
}

/* x: kind 0 uniform, 1 shifted, 2 huge, 3 tiny, 4 all rows alike */
static void add_x(const path *p, int kind) {
  ls_tensor x = add_tensor(p->out, "x", LS_BF16, 2, (int64_t[]){p->p.m, DIM});
  const double scale[] = {1, 0.2, 1e4, 1e-4, 1}, offset[] = {0, 3, 0, 0, 0};
  char name[32];
  snprintf(name, sizeof name, "x%d", (int)p->p.start_pos);
  ls_generate(&x, kind == 4 ? "x" : name, scale[kind], offset[kind]);
  for (int64_t i = DIM; kind == 4 && i < p->p.m * DIM; i++) ls_tensor_set(&x, i, ls_tensor_get(&x, i % DIM));
}

static path run_stored(const layer_rig *g, order o, const ls_trace *given, const ls_trace *before, int kind, ls_dtype stored) {
  path p = {.g = g, .o = o, .given = given, .before = before, .store = stored, .out = new_trace("path")};
  ls_attn_plan_shapes(&g->config.attn, &g->step, &p.p);
  if (before) {
    MUST(ls_trace_copy(&p.after, before, err));
  } else {
    p.after = new_trace("state");
  }
  const int64_t m = p.p.m;
  add_x(&p, kind);
  gemm_of(&p, "qr_proj", "x", "wq_a", m, 1);
  norm_of(&p, "qr", "qr_proj", "q_norm", m, Q_RANK);
  gemm_of(&p, "q_proj", "qr", "wq_b", m, 1);
  rope_of(&p, "q", "q_proj", m, HEADS, HEAD_DIM, false, false);
  gemm_of(&p, "kv_proj", "x", "wkv", m, 1);
  norm_of(&p, "kv_norm", "kv_proj", "kv_norm", m, HEAD_DIM);
  rope_of(&p, "kv_rope", "kv_norm", m, 1, HEAD_DIM, false, false);
  grid_of(&p, "kv", "kv_rope", m, HEAD_DIM, LS_GRID_FP8);
  const ls_tensor *ring = state(&p, -1, "window", LS_BF16, WINDOW, HEAD_DIM);
  double *kv = read(&p, "kv");
  for (int64_t t = 0; t < m; t++) put_rows(ring, (p.p.start_pos + t) % WINDOW, kv + t * HEAD_DIM, 1);
  free(kv);
  double *after_ring = widened(ring);
  store(&p, "window", LS_BF16, WINDOW, HEAD_DIM, after_ring);
  free(after_ring);
  if (p.p.kv_source) {
    const int64_t n = p.p.g;
    if (p.p.ratio > 1) run_pool(&p);
    if (p.p.ratio == 1) gemm_of(&p, "latent_pool", "x", "compressor/wkv", m, 1);
    set_source(p.after, "compress_source", p.p.layer);
    set_source(p.after, "index_source", p.p.layer);
    const ls_tensor *keys = state(&p, -1, "index_cache", LS_BF16, MAX_LEN, I_DIM);
    const ls_tensor *rows = state(&p, -1, "compress_cache", LS_BF16, MAX_LEN, HEAD_DIM);
    if (n > 0) {
      norm_of(&p, "latent", "latent_pool", "compressor/norm", n, HEAD_DIM);
      gemm_of(&p, "index_k_proj", "latent", "indexer/wk", n, 1);
      norm_of(&p, "index_k_norm", "index_k_proj", "indexer/k_norm", n, I_DIM);
      rope_of(&p, "index_k_rope", "index_k_norm", n, 1, I_DIM, true, false);
      grid_of(&p, "index_k", "index_k_rope", n, I_DIM, LS_GRID_FP4);
      rope_of(&p, "compress_kv_rope", "latent", n, 1, HEAD_DIM, true, false);
      grid_of(&p, "compress_kv", "compress_kv_rope", n, HEAD_DIM, LS_GRID_FP4_E4M3);
      double *k = read(&p, "index_k"), *c = read(&p, "compress_kv");
      put_rows(keys, p.p.first_row, k, n);
      put_rows(rows, p.p.first_row, c, n);
      free(k), free(c);
    }
  }
  if (p.p.index_source && p.p.n > 0) {
    gemm_of(&p, "index_q_proj", "qr", "indexer/wq_b", m, 1);
    rope_of(&p, "index_q_rope", "index_q_proj", m, I_HEADS, I_DIM, false, false);
    grid_of(&p, "index_q", "index_q_rope", m, IQ_DIM, LS_GRID_FP4);
    gemm_of(&p, "index_w_proj", "x", "indexer/weights_proj", m, 1);
    double *w = read(&p, "index_w_proj");
    for (int64_t i = 0; i < m * I_HEADS; i++) w[i] = p.o == EXACT ? w[i] / 16 : (double)((float)w[i] * 0.0625f);
    store(&p, "index_w", p.store, m, I_HEADS, w);
    free(w);
    run_scores(&p);
  }
  run_idx(&p);
  run_attention(&p);
  rope_of(&p, "o_rot", "sparse_o", m, HEADS, HEAD_DIM, false, true);
  gemm_of(&p, "o_group", "o_rot", "wo_a", m, GROUPS);
  gemm_of(&p, "out", "o_group", "wo_b", m, 1);
  return p;
}

static path run(const layer_rig *g, order o, const ls_trace *given, const ls_trace *before, int kind) {
  return run_stored(g, o, given, before, kind, LS_BF16);
}

static void path_free(path *p) {
  ls_trace_free(p->out);
  ls_trace_free(p->after);
}

static ls_bound_args args_of(const layer_rig *g, const path *ref, bool (*carries)(void *, const char *), const char *names) {
  return (ls_bound_args){.config = &g->config,
                         .weights = g->weights,
                         .step = &g->step,
                         .values = ref->out,
                         .before = ref->before,
                         .after = ref->after,
                         .state_bounds = g->state_bounds,
                         .carries = carries,
                         .carries_arg = (void *)(uintptr_t)names};
}

static void all_bounds(layer_rig *g, const path *ref, bool (*carries)(void *, const char *), const char *names) {
  const ls_bound_args args = args_of(g, ref, carries, names);
  ls_trace_free(g->bounds);
  g->bounds = new_trace("bounds");
  for (int i = 0; i < ls_layer_attn_v41.n_stages; i++) {
    const ls_stage *stage = &ls_layer_attn_v41.stages[i];
    if (stage->bound == NULL) continue;
    MUST(stage->bound(&args, g->bounds, err));
    const ls_tensor *value = ls_trace_tensor(ref->out, stage->name), *bound = ls_trace_tensor(g->bounds, stage->name);
    cr_assert((value == NULL) == (bound == NULL), "%s", stage->name);
    if (bound) cr_assert(bound->dtype == LS_F32 && ls_tensor_same_shape(value, bound), "%s", stage->name);
  }
}

static ls_result judge(const layer_rig *g, const ls_stage *stage, const path *a, const path *b, bool unrounded) {
  ls_compare_args args = {.stage = stage,
                          .type = unrounded ? LS_F64 : ls_stage_type(&g->config, stage),
                          .a = ls_trace_tensor(a->out, stage->name),
                          .b = ls_trace_tensor(b->out, stage->name),
                          .bound = ls_trace_tensor(g->bounds, stage->name),
                          .steps = unrounded ? 0 : stage->steps};
  ls_result r;
  ls_compare_tensor(&r, &args);
  return r;
}

static int stage_index(const char *name) {
  for (int i = 0; i < ls_layer_attn_v41.n_stages; i++) {
    if (strcmp(ls_layer_attn_v41.stages[i].name, name) == 0) return i;
  }
  cr_assert_fail("%s", name);
  return 0;
}

/* Every stage of a and b that has a bound; use[i] grows to the largest seen. */
static void judge_all(const layer_rig *g, const path *a, const path *b, bool unrounded, double use[LS_MAX_STAGES]) {
  for (int i = 0; i < ls_layer_attn_v41.n_stages; i++) {
    const ls_stage *stage = &ls_layer_attn_v41.stages[i];
    if (stage->bound == NULL || ls_trace_tensor(a->out, stage->name) == NULL) continue;
    const ls_result r = judge(g, stage, a, b, unrounded);
    cr_assert(r.failing == 0 && r.count > 0, "%s of layer %d at %d: %s, use %.3f, %.9g and %.9g, bound %.9g", stage->name,
              (int)g->step.layer, (int)g->step.start_pos, r.where, r.use, r.worst_a, r.worst_b, r.worst_bound);
    if (r.use > use[i]) use[i] = r.use;
  }
}

static void log_use(const char *what, const double use[LS_MAX_STAGES]) {
  for (int i = 0; i < ls_layer_attn_v41.n_stages; i++) {
    if (ls_layer_attn_v41.stages[i].bound) cr_log_info("%s %s: at most %.4f of the bound", what, ls_layer_attn_v41.stages[i].name, use[i]);
  }
}

static const order other[] = {BACKWARD, LANES, EXACT};
static const int64_t starts[] = {0, PREFILL, PREFILL + 1}; /* a prefill, a token that fills a group of two, one that opens the next */

/* Isolated: each path starts each step from one state and reads one trace. */
static void isolated(int kind, ls_dtype stored, double use[LS_MAX_STAGES]) {
  layer_rig g;
  setup(&g);
  for (int layer = 0; layer < N_LAYERS; layer++) {
    if (layer == READER) continue;
    ls_trace *before = NULL;
    for (int s = 0; s < 3; s++) {
      g.step = (ls_step){.op = LS_OP_FORWARD, .layer = layer, .start_pos = starts[s], .rows = s == 0 ? PREFILL : 1};
      path given = run(&g, FORWARD, NULL, before, kind), a = run_stored(&g, FORWARD, given.out, before, kind, stored);
      all_bounds(&g, &given, no, NULL);
      for (int i = 0; i < 3; i++) {
        path b = run_stored(&g, other[i], given.out, before, kind, stored);
        judge_all(&g, &a, &b, stored == LS_F64, use);
        path_free(&b);
      }
      path_free(&a);
      ls_trace_free(before);
      before = given.after;
      ls_trace_free(given.out);
    }
    ls_trace_free(before);
  }
  teardown(&g);
}

Test(bounds_attn, two_right_paths_stay_inside_in_isolation) {
  double use[LS_MAX_STAGES] = {0};
  for (int kind = 0; kind < 5; kind++) isolated(kind, LS_BF16, use);
  log_use("isolated", use);
  const char *exact[] = {"kv", "window", "index_k", "index_q", "compress_kv"};
  for (size_t i = 0; i < sizeof exact / sizeof exact[0]; i++) cr_assert(use[stage_index(exact[i])] == 0, "%s", exact[i]);
}

/* Without the last rounding: what is allowed beyond the steps holds what float32 and the roundings within a stage do, and no more than some
 * tens of times it. (GEMM: see test_bounds.c.) */
Test(bounds_attn, the_part_beyond_the_steps_holds_float32_errors_tightly) {
  double use[LS_MAX_STAGES] = {0};
  for (int kind = 0; kind < 2; kind++) isolated(kind, LS_F64, use);
  log_use("unrounded", use);
  const struct {
    const char *stage;
    double least;
  } floors[] = {{"qr_proj", 0.01},     {"qr", 0.1},           {"q_proj", 0.01},       {"q", 0.2},        {"kv_proj", 0.01},
                {"kv_norm", 0.1},      {"kv_rope", 0.2},      {"latent_pool", 0.005}, {"latent", 0.1},   {"index_k_norm", 0.05},
                {"index_k_rope", 0.2}, {"index_q_rope", 0.2}, {"o_rot", 0.2},         {"o_group", 0.01}, {"compress_kv_rope", 0.2},
                {"sparse_o", 0.1},     {"kv_state", 0.05},    {"score_state", 0.05},  {"out", 0.01}};
  for (size_t i = 0; i < sizeof floors / sizeof floors[0]; i++) {
    const double u = use[stage_index(floors[i].stage)];
    cr_assert(u > floors[i].least && u <= 1, "%s uses %.4f of it", floors[i].stage, u);
  }
}

static void next_state_bounds(layer_rig *g, const path *ref) {
  const ls_bound_args args = args_of(g, ref, yes, NULL);
  ls_trace *next = NULL;
  MUST(ls_layer_attn_v41.state_bounds(&args, g->bounds, &next, err));
  ls_trace_free(g->state_bounds);
  g->state_bounds = next;
}

/* Cascaded: each path goes on from what it made itself, layer after layer, and the bounds follow the state. The last of
 * the others never rounds a stage: all of its values are off. */
static void cascaded(int kind, double use[LS_MAX_STAGES]) {
  for (int i = 0; i < 4; i++) {
    layer_rig g;
    setup(&g);
    path a = {0}, b = {0};
    for (int s = 0; s < 3; s++) {
      for (int layer = 0; layer < N_LAYERS; layer++) {
        if (layer == READER && s == 0 && i == 0) continue;
        g.step = (ls_step){.op = LS_OP_FORWARD, .layer = layer, .start_pos = starts[s], .rows = s == 0 ? PREFILL : 1};
        if (layer == READER) { /* what layer PAIRS published before layer SINGLES came */
          set_source(a.after, "compress_source", PAIRS);
          set_source(b.after, "compress_source", PAIRS);
        }
        path next_a = run(&g, FORWARD, NULL, a.after, kind),
             next_b = run_stored(&g, i < 3 ? other[i] : EXACT, NULL, b.after, kind, i < 3 ? LS_BF16 : LS_F64);
        all_bounds(&g, &next_a, yes, NULL);
        judge_all(&g, &next_a, &next_b, false, use);
        next_state_bounds(&g, &next_a);
        path_free(&a), path_free(&b);
        a = next_a, b = next_b;
      }
    }
    path_free(&a), path_free(&b);
    teardown(&g);
  }
}

Test(bounds_attn, two_right_paths_stay_inside_when_errors_carry_on) {
  double use[LS_MAX_STAGES] = {0};
  for (int kind = 0; kind < 5; kind++) cascaded(kind, use);
  log_use("cascaded", use);
  cr_assert(use[stage_index("kv")] > 0.1 && use[stage_index("compress_kv")] > 0.1, "no code of a grid flips");
}

/* A path that fuses what leads to a grid never rounds it: the bound that reads the stages before it has room for that, and mostly none. */
Test(bounds_attn, a_path_that_fuses_up_to_a_grid_stays_inside) {
  layer_rig g;
  setup(&g);
  g.step = (ls_step){.op = LS_OP_FORWARD, .layer = SINGLES, .start_pos = 0, .rows = PREFILL};
  path a = run(&g, FORWARD, NULL, NULL, 0);
  static const char names[] = ",kv_proj,kv_norm,kv_rope,index_q_rope,index_q_proj,compress_kv_rope,";
  all_bounds(&g, &a, named, names);
  const struct {
    const char *stage, *first;
    ls_grid grid;
    int64_t heads, width;
    bool norm, latents;
  } fused[] = {{"kv", "kv_proj", LS_GRID_FP8, 1, HEAD_DIM, true, false},
               {"index_q", "index_q_proj", LS_GRID_FP4, I_HEADS, I_DIM, false, false},
               {"compress_kv", "latent", LS_GRID_FP4_E4M3, 1, HEAD_DIM, false, true}};
  for (int f = 0; f < 3; f++) {
    const int64_t columns = fused[f].heads * fused[f].width, n = PREFILL * columns;
    int64_t open = 0, moved = 0;
    const ls_tensor *stored = ls_trace_tensor(a.out, fused[f].stage), *bound = ls_trace_tensor(g.bounds, fused[f].stage);
    for (int i = 0; i < 3; i++) {
      path b = a;
      b.o = other[i];
      double *x = f == 2 ? read(&a, "latent") : NULL, *from = f == 2 ? NULL : read(&a, f == 0 ? "x" : "qr");
      if (f < 2) x = gemm_values(&b, from, f == 0 ? "wkv" : "indexer/wq_b", PREFILL, 1);
      if (fused[f].norm) norm_rows(&b, x, "kv_norm", PREFILL, HEAD_DIM);
      rotate(&b, x, PREFILL, fused[f].heads, fused[f].width, fused[f].latents, false);
      for (int64_t at = 0; at < n; at += ls_grid_block(fused[f].grid)) quantise(x + at, ls_grid_block(fused[f].grid), fused[f].grid);
      for (int64_t e = 0; e < n; e++) {
        const double apart = fabs(x[e] - ls_tensor_get(stored, e)), room = ls_tensor_get(bound, e);
        cr_assert(apart <= room, "%s[%d]: %.9g apart, bound %.9g", fused[f].stage, (int)e, apart, room);
        open += room > 0, moved += apart > 0;
      }
      free(x);
      free(from);
    }
    cr_log_info("fused %s: %.3f of the codes have room, %.4f flip", fused[f].stage, (double)open / (double)(3 * n),
                (double)moved / (double)(3 * n));
    cr_assert(open > 0 && open < n * 3 * 3 / 5 && moved > 0, "%s", fused[f].stage);
  }
  path_free(&a);
  teardown(&g);
}

/* Nothing rounds what a rotation copies: given the same latent, both paths must choose the same code, in a tie as well. */
Test(bounds_attn, elements_that_do_not_turn_have_no_room_for_another_code) {
  layer_rig g;
  setup(&g);
  g.step = (ls_step){.op = LS_OP_FORWARD, .layer = SINGLES, .start_pos = 0, .rows = PREFILL};
  path a = run(&g, FORWARD, NULL, NULL, 0);
  static const char names[] = ",compress_kv_rope,";
  all_bounds(&g, &a, named, names);
  const ls_tensor *bound = ls_trace_tensor(g.bounds, "compress_kv");
  int64_t open = 0;
  for (int64_t e = 0; e < PREFILL * HEAD_DIM; e++) {
    const double room = ls_tensor_get(bound, e);
    if (e % HEAD_DIM < HEAD_DIM - ROPE) cr_assert(room == 0, "element %d, which does not turn: %.9g", (int)(e % HEAD_DIM), room);
    open += room > 0;
  }
  cr_assert(open > 0, "none of those that turn has room");
  path_free(&a);
  teardown(&g);
}

/* ---- formulas, element by element in double ---- */

static double value_of(const path *p, const char *stage, int64_t i) { return ls_tensor_get(ls_trace_tensor(p->out, stage), i); }
static double bound_at(const layer_rig *g, const char *stage, int64_t i) { return ls_tensor_get(ls_trace_tensor(g->bounds, stage), i); }

/* One step of the binade that the other side may be in, and the bound. */
static double total(const layer_rig *g, const path *p, const char *stage, int64_t i) {
  const double v = fabs(value_of(p, stage, i)), rest = bound_at(g, stage, i);
  return ls_step_at(LS_BF16, v + ls_step_at(LS_BF16, v) + rest) + rest;
}

static void near(const layer_rig *g, const char *stage, int64_t i, double expected) {
  const double got = bound_at(g, stage, i);
  cr_assert(fabs(got - expected) <= 1e-5 * expected && expected > 0, "%s[%d]: %.9g, expected %.9g", stage, (int)i, got, expected);
}

Test(bounds_attn, formulas_hold_with_carrying) {
  for (int layer = PAIRS; layer <= SINGLES; layer += SINGLES - PAIRS) {
    layer_rig g;
    setup(&g);
    g.step = (ls_step){.op = LS_OP_FORWARD, .layer = layer, .start_pos = 0, .rows = PREFILL};
    path a = run(&g, FORWARD, NULL, NULL, 0);
    all_bounds(&g, &a, yes, NULL);
    enum { GROUP = Q_DIM / GROUPS, O_DIM = GROUPS * O_RANK };
    for (int64_t i = 0; i < PREFILL * O_DIM; i += 7) { /* each group of heads with its own rows of the weight */
      const int64_t from = i / O_DIM * Q_DIM + i % O_DIM / O_RANK * GROUP;
      double sum = 0;
      for (int64_t k = 0; k < GROUP; k++) {
        const double x = fabs(value_of(&a, "o_rot", from + k)), w = fabs(ls_tensor_get(weight(&a, "wo_a"), i % O_DIM * GROUP + k));
        sum += (4 * sqrt(GROUP) * 0x1p-24 * x + total(&g, &a, "o_rot", from + k)) * w;
      }
      near(&g, "o_group", i, sum);
    }
    for (int64_t i = 0; i < PREFILL * I_HEADS; i++)
      near(&g, "index_w", i, 0.0625 * (10 * 0x1p-24 * fabs(value_of(&a, "index_w_proj", i)) + total(&g, &a, "index_w_proj", i)));
    for (int64_t i = 0; i < a.p.g * HEAD_DIM; i++) { /* latents stand `ratio` positions apart */
      const int64_t c = i % HEAD_DIM - (HEAD_DIM - ROPE), mate = c % 2 ? i - 1 : i + 1;
      if (c < 0) {
        near(&g, "compress_kv_rope", i, total(&g, &a, "latent", i));
        continue;
      }
      const double angle = (double)angle_of(&a, i / HEAD_DIM * a.p.ratio, c / 2);
      const double own = 8 * 0x1p-24 * (fabs(value_of(&a, "latent", i)) + fabs(value_of(&a, "latent", mate)));
      near(&g, "compress_kv_rope", i,
           own + fabs(cos(angle)) * total(&g, &a, "latent", i) + fabs(sin(angle)) * total(&g, &a, "latent", mate));
    }
    if (layer == PAIRS) { /* 13 tokens: the last one waits in slot 0, slot 1 holds nothing yet */
      for (int64_t c = 0; c < HEAD_DIM; c++) {
        enum { PIECE = (DIM + 15) / 16 };
        double squares = 0, sum = 0, magnitudes = 0, ends[16] = {0}, forward = 0, backward = 0;
        int n = 0;
        for (int64_t k = 0; k < DIM; k++) {
          const double term = value_of(&a, "x", (PREFILL - 1) * DIM + k) * ls_tensor_get(weight(&a, "compressor/wgate"), c * DIM + k);
          sum += term, squares += term * term, magnitudes += fabs(term);
          if ((k + 1) % PIECE == 0 || k + 1 == DIM) ends[n++] = sum;
        }
        for (int i = 0; i < n; i++) {
          const double behind = sum - (i > 0 ? ends[i - 1] : 0);
          forward += ends[i] * ends[i] / n, backward += behind * behind / n;
        }
        const double mean = fmax(fmax(forward, backward), sum * sum / 3 + squares / 6);
        near(&g, "score_state", c, 0x1p-24 * fmin(5 * sqrt(2 * DIM * mean), 4 * sqrt(DIM) * magnitudes));
        cr_assert(bound_at(&g, "score_state", HEAD_DIM + c) == 0);
      }
    }
    path_free(&a);
    teardown(&g);
  }
}

/* ---- planted faults ---- */

Test(bounds_attn, a_wrong_stage_is_outside_in_isolation_and_alone) {
  layer_rig g;
  setup(&g);
  for (int layer = 0; layer < N_LAYERS; layer++) {
    if (layer == READER) continue;
    g.step = (ls_step){.op = LS_OP_FORWARD, .layer = layer, .start_pos = 0, .rows = PREFILL};
    path a = run(&g, FORWARD, NULL, NULL, 0), b = run(&g, LANES, a.out, NULL, 0);
    all_bounds(&g, &a, no, NULL);
    for (int i = 0; i < ls_layer_attn_v41.n_stages; i++) {
      const ls_stage *stage = &ls_layer_attn_v41.stages[i];
      const ls_tensor *t = ls_trace_tensor(b.out, stage->name);
      if (stage->bound == NULL || t == NULL) continue;
      ls_result r = judge(&g, stage, &a, &b, false);
      assert_verdict(r, LS_PASS);
      const bool attention = strcmp(stage->name, "sparse_o") == 0;
      for (int64_t e = 0; e < ls_tensor_count(t); e++) ls_tensor_set(t, e, ls_tensor_get(t, e) * (attention ? 1.125 : 1 + 0x1p-5));
      r = judge(&g, stage, &a, &b, false);
      assert_verdict(r, LS_FAIL);
      cr_assert(strcmp(stage->name, "kv_state") == 0 || strcmp(stage->name, "score_state") == 0 || r.rows_failing > r.rows / 2, "%s",
                stage->name);
    }
    path_free(&a), path_free(&b);
  }
  teardown(&g);
}

/* Faults that are made in kernels: each must leave the bound of its stage. */
Test(bounds_attn, faults_of_attention_are_outside) {
  layer_rig g;
  setup(&g);
  g.step = (ls_step){.op = LS_OP_FORWARD, .layer = PAIRS, .start_pos = 0, .rows = PREFILL};
  path a = run(&g, FORWARD, NULL, NULL, 0);
  all_bounds(&g, &a, no, NULL);
  const ls_stage *stage = ls_stage_find(&ls_layer_attn_v41, "sparse_o");
  for (int fault = 0; fault < 3; fault++) {
    ls_trace *wrong = NULL;
    MUST(ls_trace_copy(&wrong, a.out, err));
    layer_rig h = g;
    MUST(ls_trace_copy(&h.weights, g.weights, err));
    const ls_tensor *sink = ls_trace_tensor(h.weights, "layers/1/attn_sink"), *q = ls_trace_tensor(wrong, "q");
    for (int64_t i = 0; fault == 0 && i < HEADS; i++) ls_tensor_set(sink, i, -INFINITY);                        /* no sink */
    for (int64_t i = 0; fault == 1 && i < PREFILL * Q_DIM; i++) ls_tensor_set(q, i, ls_tensor_get(q, i) * 0.7); /* another scale */
    const ls_tensor *kv = ls_trace_tensor(wrong, "kv");
    for (int64_t i = 0; fault == 2 && i < HEAD_DIM; i++) ls_tensor_set(kv, 3 * HEAD_DIM + i, 0); /* one row lost */
    path b = run(&h, LANES, wrong, NULL, 0);
    const ls_result r = judge(&g, stage, &a, &b, false);
    assert_verdict(r, LS_FAIL);
    cr_assert(r.rows_failing >= 5, "fault %d: %d rows", fault, (int)r.rows_failing);
    path_free(&b);
    ls_trace_free(wrong);
    ls_trace_free(h.weights);
  }
  path_free(&a);
  teardown(&g);
}

/* ---- index scores ---- */

/* Exact dot products leave room for the float32 sum over the heads alone; values off the grid do not. */
Test(bounds_attn, dot_products_of_grid_values_are_exact) {
  ls_random r = {.seed = 5};
  enum { N = 300, M = 3, H = 4, D = 64 };
  static const double grid[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  for (int rough = 0; rough < 2; rough++) {
    double q[M * H * D], none[M * H * D] = {0}, w[M * H];
    ls_trace *t = new_trace("keys");
    ls_tensor keys = add_tensor(t, "keys", LS_BF16, 2, (int64_t[]){N, D}), bound = add_tensor(t, "bound", LS_F32, 2, (int64_t[]){M, N});
    for (int64_t i = 0; i < N * D; i++)
      ls_tensor_set(&keys, i, (rough ? within(&r, -3, 3) : grid[ls_random_range(&r, 0, 7)] * (i % 64 < 32 ? 8 : -0.25)));
    for (int64_t i = 0; i < M * H * D; i++) q[i] = rough ? bf16(within(&r, -3, 3)) : grid[ls_random_range(&r, 0, 7)] * (i % 3 ? 1 : -1);
    for (int64_t i = 0; i < M * H; i++) w[i] = bf16(within(&r, -1, 1));
    for (int64_t i = 0; rough && i < M * H; i++) q[i * D] = 200, q[i * D + D - 1] = 200; /* two large terms that cancel */
    for (int64_t i = 0; rough && i < N; i++) ls_tensor_set(&keys, i * D, 200), ls_tensor_set(&keys, i * D + D - 1, -200);
    const ls_stage_values qs = {.value = q, .total = none}, ws = {.value = w, .total = none};
    const ls_bound_rows rows = {.n = N, .width = D, .held = &keys};
    const ls_attn_plan plan = {.m = M, .n = N, .ratio = 1, .start_pos = N - M};
    MUST(ls_bound_score(&bound, &qs, &ws, &rows, &plan, H, false, err));
    int64_t wide = 0, flipped = 0;
    for (int64_t m = 0; m < M; m++) {
      for (int64_t j = 0; j < N; j++) {
        double sum = 0, side[3] = {0}, key[D];
        for (int64_t d = 0; d < D; d++) key[d] = ls_tensor_get(&keys, j * D + d);
        for (int64_t h = 0; h < H; h++) {
          for (int o = 0; o < 3; o++) { /* FORWARD, BACKWARD, LANES */
            const double product = bf16(fmax(bf16(sum_products(q + (m * H + h) * D, key, D, (order)o)), 0) * w[m * H + h]);
            side[o] += product;
            if (o == 0) sum += fabs(product);
          }
        }
        const double got = ls_tensor_get(&bound, m * N + j), expected = 4 * sqrt(H) * 0x1p-24 * sum;
        if (j > N - M + m) {
          cr_assert(got == 0, "not visible");
          continue;
        }
        const double apart = fmax(fabs(side[0] - side[1]), fabs(side[0] - side[2]));
        cr_assert(apart <= got, "%g apart, bound %g", apart, got);
        flipped += apart > 0;
        wide += got > 2 * expected;
        if (!rough) cr_assert(fabs(got - expected) <= 0x1p-8 * expected, "%g, expected %g", got, expected);
      }
    }
    cr_log_info("%s values: %d of %d scores have room for a flip, %d flip", rough ? "rough" : "grid", (int)wide, N * M, (int)flipped);
    cr_assert(rough ? wide > 0 && wide < M * N && flipped > 0 : wide == 0 && flipped == 0);
    ls_trace_free(t);
  }
}

/* Inputs anywhere inside what they may be off by. */
Test(bounds_attn, moved_keys_queries_and_weights_stay_inside_the_score_bound) {
  ls_random r = {.seed = 6};
  enum { N = 9, M = 2, H = 4, D = 32 };
  const double sizes[] = {1e-3, 0.03, 0.5};
  double largest = 0;
  for (int round = 0; round < 60; round++) {
    double q[M * H * D], off_q[M * H * D], w[M * H], off_w[M * H];
    ls_trace *t = new_trace("keys");
    ls_tensor keys = add_tensor(t, "keys", LS_BF16, 2, (int64_t[]){N, D}), bound = add_tensor(t, "bound", LS_F32, 2, (int64_t[]){M, N});
    ls_tensor off_k = add_tensor(t, "off", LS_F32, 2, (int64_t[]){N, D});
    const double size = sizes[round % 3];
    for (int64_t i = 0; i < N * D; i++) ls_tensor_set(&keys, i, within(&r, -3, 3)), ls_tensor_set(&off_k, i, round % 2 ? size : 0);
    for (int64_t i = 0; i < M * H * D; i++) q[i] = bf16(within(&r, -3, 3)), off_q[i] = round % 4 < 2 ? size : 0;
    for (int64_t i = 0; i < M * H; i++) w[i] = bf16(within(&r, -1, 1)), off_w[i] = round % 3 ? size * 0.1 : 0;
    const ls_stage_values qs = {.value = q, .total = off_q, .carried = true}, ws = {.value = w, .total = off_w, .carried = true};
    const ls_bound_rows rows = {.n = N, .width = D, .held = &keys, .held_total = &off_k, .carried = true};
    const ls_attn_plan plan = {.m = M, .n = N, .ratio = 1, .start_pos = N - M};
    MUST(ls_bound_score(&bound, &qs, &ws, &rows, &plan, H, false, err));
    for (int64_t m = 0; m < M; m++) {
      for (int64_t j = 0; j < N - M + m; j++) {
        double sum[2] = {0};
        for (int side = 0; side < 2; side++) {
          for (int64_t h = 0; h < H; h++) {
            float dot = 0;
            const double sign = (ls_random_unit(&r) < 0.5 ? -1 : 1) * (side == 0 ? 0 : 1); /* the worst of one direction */
            for (int64_t d = 0; d < D; d++) {
              const int64_t at = (m * H + h) * D + d;
              const double k = ls_tensor_get(&keys, j * D + d);
              dot += (float)(q[at] + sign * (k < 0 ? -1 : 1) * off_q[at]) *
                     (float)(k + sign * (q[at] < 0 ? -1 : 1) * ls_tensor_get(&off_k, j * D + d));
            }
            sum[side] += bf16((double)((float)fmax(bf16((double)dot), 0) * (float)(w[m * H + h] + sign * off_w[m * H + h])));
          }
        }
        const double allowed = ls_tensor_get(&bound, m * N + j), apart = fabs(sum[0] - sum[1]);
        cr_assert(apart <= allowed, "%g apart, bound %g", apart, allowed);
        largest = fmax(largest, apart / allowed);
      }
    }
    ls_trace_free(t);
  }
  cr_log_info("moved scores use up to %.3f", largest);
  cr_assert(largest > 0.2);
}

/* ---- attention ---- */

/* Corners of what queries and rows may be off by, in double: nothing rounds, so this is the moved part alone. */
Test(bounds_attn, moved_queries_and_rows_stay_inside_the_attention_bound) {
  ls_random r = {.seed = 7};
  enum { N = 6, D = 32 };
  const double sizes[] = {1e-4, 0.01, 0.3};
  double largest = 0, largest_small = 0;
  for (int round = 0; round < 90; round++) {
    double q[D], off_q[D], sink = within(&r, -1, 1);
    ls_trace *t = new_trace("rows");
    ls_tensor rows = add_tensor(t, "rows", LS_BF16, 2, (int64_t[]){N, D}), off = add_tensor(t, "off", LS_F32, 2, (int64_t[]){N, D});
    ls_tensor bound = add_tensor(t, "bound", LS_F32, 2, (int64_t[]){1, D}), idx = add_tensor(t, "idx", LS_I32, 2, (int64_t[]){1, N + 2});
    const double size = sizes[round % 3];
    for (int64_t i = 0; i < N * D; i++) ls_tensor_set(&rows, i, within(&r, -2, 2)), ls_tensor_set(&off, i, round % 2 ? size : 0);
    for (int64_t i = 0; i < D; i++) q[i] = bf16(within(&r, -2, 2)), off_q[i] = round % 5 ? size : 0;
    for (int64_t j = 0; j < N + 2; j++) ls_tensor_set(&idx, j, j == 2 || j == 5 ? -1 : (double)(j > 5 ? j - 2 : j > 2 ? j - 1 : j));
    const ls_stage_values qs = {.value = q, .total = off_q, .carried = true};
    const ls_bound_rows a = {.n = 2, .width = D, .held = &rows, .held_total = &off, .carried = true};
    ls_tensor rest = ls_tensor_slice(&rows, 0, 2, N - 2), rest_off = ls_tensor_slice(&off, 0, 2, N - 2);
    const ls_bound_rows b = {.n = N - 2, .width = D, .held = &rest, .held_total = &rest_off, .carried = true};
    MUST(ls_bound_sparse(&bound, &qs, &a, &b, &idx, &sink, 1, err));
    double y[D] = {0};
    for (int corner = 0; corner < 200; corner++) {
      double s[N], v[N][D], high = sink, sum = 0, to[D] = {0};
      for (int64_t j = 0; j < N; j++) {
        const double up = ls_random_unit(&r) < 0.5 ? -1 : 1;
        s[j] = 0;
        for (int64_t d = 0; d < D; d++) {
          const double k = ls_tensor_get(&rows, j * D + d), toward = ls_random_unit(&r) < 0.5 ? -1 : 1;
          const double of_v = corner % 2 ? up * (q[d] < 0 ? -1 : 1) : toward;
          v[j][d] = corner == 0 ? k : k + of_v * ls_tensor_get(&off, j * D + d);
          const double of_q = corner % 3 ? (ls_tensor_get(&rows, corner % N * D + d) < 0 ? -1 : 1) : toward;
          s[j] += (corner == 0 ? q[d] : q[d] + of_q * off_q[d]) * v[j][d] / sqrt(D);
        }
        high = fmax(high, s[j]);
      }
      for (int64_t j = 0; j < N; j++) sum += exp(s[j] - high);
      sum += exp(sink - high);
      for (int64_t d = 0; d < D; d++) {
        for (int64_t j = 0; j < N; j++) to[d] += exp(s[j] - high) / sum * v[j][d];
        if (corner == 0) y[d] = to[d];
        const double allowed = ls_tensor_get(&bound, d), apart = fabs(to[d] - y[d]);
        cr_assert(apart <= allowed, "%g apart, bound %g", apart, allowed);
        largest = fmax(largest, apart / allowed);
        if (round % 3 == 1) largest_small = fmax(largest_small, apart / allowed);
      }
    }
    ls_trace_free(t);
  }
  cr_log_info("moved attention uses up to %.3f, with small errors %.3f", largest, largest_small);
  cr_assert(largest > 0.2 && largest_small > 0.1);
}

/* Many draws of probabilities that two ways of blocking round otherwise: the five deviations that the bound allows are not left, and a
 * bound of half as many would be near. */
Test(bounds_attn, roundings_of_probabilities_stay_inside) {
  ls_random r = {.seed = 8};
  enum { N = 300, D = 32 };
  double largest = 0;
  ls_trace *t = new_trace("rows");
  ls_tensor rows = add_tensor(t, "rows", LS_BF16, 2, (int64_t[]){N, D}), bound = add_tensor(t, "bound", LS_F32, 2, (int64_t[]){1, D});
  ls_tensor idx = add_tensor(t, "idx", LS_I32, 2, (int64_t[]){1, N});
  for (int64_t j = 0; j < N; j++) ls_tensor_set(&idx, j, (double)j);
  for (int round = 0; round < 200; round++) {
    const bool alike = round % 4 == 3; /* all rows but one are the same: equal probabilities, which round alike */
    double q[D], none[D] = {0}, sink = 0;
    for (int64_t i = 0; i < N * D; i++) {
      ls_tensor_set(&rows, i, alike && i >= 2 * D ? ls_tensor_get(&rows, i - D) : within(&r, -2, 2));
    }
    for (int64_t i = 0; i < D; i++) q[i] = bf16(within(&r, -1, 1) * (round % 3 == 0 ? 3 : 1));
    const ls_stage_values qs = {.value = q, .total = none};
    const ls_bound_rows a = {.n = N, .width = D, .held = &rows}, b = {.n = 0, .width = D};
    MUST(ls_bound_sparse(&bound, &qs, &a, &b, &idx, &sink, 1, err));
    double y[2][D];
    const double lift[] = {0, within(&r, 0, 3)}; /* the maximum that the second subtracts is another */
    for (int side = 0; side < 2; side++) {
      double sum = 0;
      for (int64_t d = 0; d < D; d++) y[side][d] = 0;
      for (int64_t j = 0; j < N; j++) {
        double s = 0;
        for (int64_t d = 0; d < D; d++) s += q[d] * ls_tensor_get(&rows, j * D + d) / sqrt(D);
        const double e = exp(s - lift[side]);
        sum += e;
        for (int64_t d = 0; d < D; d++) y[side][d] += bf16(e) * ls_tensor_get(&rows, j * D + d);
      }
      for (int64_t d = 0; d < D; d++) y[side][d] /= sum + exp(sink - lift[side]);
    }
    for (int64_t d = 0; d < D; d++) {
      const double allowed = ls_tensor_get(&bound, d), apart = fabs(y[0][d] - y[1][d]);
      cr_assert(apart <= allowed, "%g apart, bound %g", apart, allowed);
      largest = fmax(largest, apart / allowed);
    }
  }
  cr_log_info("rounded probabilities use up to %.3f", largest);
  cr_assert(largest > 0.3);
  ls_trace_free(t);
}

Test(bounds_attn, a_query_that_sees_nothing_leaves_no_room_and_a_bad_index_is_an_error) {
  ls_trace *t = new_trace("rows");
  ls_tensor rows = add_random(t, "rows", LS_BF16, 2, (int64_t[]){2, 32}, 1), bound = add_tensor(t, "bound", LS_F32, 2, (int64_t[]){2, 32});
  ls_tensor idx = add_tensor(t, "idx", LS_I32, 2, (int64_t[]){2, 2});
  double q[64] = {1, 2, 3}, none[64] = {0}, sink = 0;
  for (int i = 0; i < 4; i++) ls_tensor_set(&idx, i, i == 2 ? 1 : -1);
  const ls_stage_values qs = {.value = q, .total = none};
  const ls_bound_rows a = {.n = 2, .width = 32, .held = &rows}, b = {.n = 0, .width = 32};
  MUST(ls_bound_sparse(&bound, &qs, &a, &b, &idx, &sink, 1, err));
  for (int i = 0; i < 64; i++) cr_assert(i < 32 ? ls_tensor_get(&bound, i) == 0 : ls_tensor_get(&bound, i) > 0);
  for (int wrong = 0; wrong < 2; wrong++) {
    ls_error err = {0};
    ls_tensor_set(&idx, 0, wrong ? 2 : -2);
    cr_assert_eq(ls_bound_sparse(&bound, &qs, &a, &b, &idx, &sink, 1, &err), LS_INTERNAL);
    assert_has(err.text, "idx");
  }
  ls_trace_free(t);
}

/* ---- state ---- */

/* The state's bounds: rows that the step wrote have its stages', all others what they had. */
Test(bounds_attn, the_state_remembers_what_its_rows_may_be_off_by) {
  layer_rig g;
  setup(&g);
  path a = {0};
  for (int s = 0; s < 2; s++) {
    g.step = (ls_step){.op = LS_OP_FORWARD, .layer = PAIRS, .start_pos = starts[s], .rows = s == 0 ? PREFILL : 1};
    path next = run(&g, FORWARD, NULL, a.after, 0);
    all_bounds(&g, &next, yes, NULL);
    ls_trace *old = g.state_bounds;
    g.state_bounds = NULL;
    ls_bound_args args = args_of(&g, &next, yes, NULL);
    args.state_bounds = old;
    MUST(ls_bound_attn_state(&args, g.bounds, &g.state_bounds, err));
    const struct {
      const char *tensor, *stage;
      int64_t first, n;
    } parts[] = {{"layers/1/compress_cache", "compress_kv", next.p.first_row, next.p.g},
                 {"layers/1/index_cache", "index_k", next.p.first_row, next.p.g},
                 {"layers/1/kv_state", "kv_state", 0, 2},
                 {"layers/1/score_state", "score_state", 0, 2},
                 {"layers/1/window", "window", 0, WINDOW}};
    for (int k = 0; k < 5; k++) {
      const ls_tensor *t = ls_trace_tensor(g.state_bounds, parts[k].tensor), *stage = ls_trace_tensor(g.bounds, parts[k].stage);
      const ls_tensor *was = ls_trace_tensor(old, parts[k].tensor);
      cr_assert(t && t->dtype == LS_F32 && ls_tensor_same_shape(t, ls_trace_tensor(next.after, parts[k].tensor)), "%s", parts[k].tensor);
      double any = 0;
      for (int64_t i = 0; i < ls_tensor_count(t); i++) {
        const int64_t row = i / t->dim[1] - parts[k].first;
        const double expected = row >= 0 && row < parts[k].n ? ls_tensor_get(stage, i - parts[k].first * t->dim[1])
                                : was                        ? ls_tensor_get(was, i)
                                                             : 0;
        cr_assert(ls_tensor_get(t, i) == expected, "%s[%d]", parts[k].tensor, (int)i);
        any += expected;
      }
      cr_assert(any > 0, "%s", parts[k].tensor);
    }
    /* the ring: seven old rows and the new one; the state of an open group: a new token in slot 1, an old one in slot 0 */
    if (s == 1) {
      const ls_tensor *window = ls_trace_tensor(g.bounds, "window"), *kv = ls_trace_tensor(g.bounds, "kv");
      const ls_tensor *kv_state = ls_trace_tensor(g.bounds, "kv_state"), *kv_state_was = ls_trace_tensor(old, "layers/1/kv_state");
      for (int64_t i = 0; i < WINDOW * HEAD_DIM; i++) {
        const bool fresh = i / HEAD_DIM == PREFILL % WINDOW;
        cr_assert(ls_tensor_get(window, i) ==
                  (fresh ? ls_tensor_get(kv, i % HEAD_DIM) : ls_tensor_get(ls_trace_tensor(old, "layers/1/window"), i)));
      }
      for (int64_t i = 0; i < HEAD_DIM; i++) cr_assert(ls_tensor_get(kv_state, i) == ls_tensor_get(kv_state_was, i));
      for (int64_t i = HEAD_DIM; i < 2 * HEAD_DIM; i++) cr_assert(ls_tensor_get(kv_state, i) > 0);
    }
    ls_trace_free(old);
    path_free(&a);
    a = next;
  }
  path_free(&a);
  teardown(&g);
}

Test(bounds_attn, what_is_missing_is_an_error_that_names_it) {
  layer_rig g;
  setup(&g);
  g.step = (ls_step){.op = LS_OP_FORWARD, .layer = PAIRS, .start_pos = 0, .rows = PREFILL};
  path a = run(&g, FORWARD, NULL, NULL, 0);
  ls_trace *empty = new_trace("empty");
  for (int i = 0; i < ls_layer_attn_v41.n_stages; i++) {
    const ls_stage *stage = &ls_layer_attn_v41.stages[i];
    if (stage->bound == NULL) continue;
    const char *of[] = {"values", "bounds"};
    for (int lacking = 0; lacking < 2; lacking++) {
      if (lacking == 1 && strcmp(stage->input[0], "x") == 0) continue; /* reads no stage */
      ls_bound_args args = args_of(&g, &a, lacking == 0 ? no : yes, NULL);
      if (lacking == 0) args.values = empty;
      ls_trace *bounds = new_trace("bounds");
      ls_error err = {0};
      cr_assert_eq(stage->bound(&args, bounds, &err), LS_INTERNAL, "%s without %s", stage->name, of[lacking]);
      assert_has(err.text, of[lacking]);
      ls_trace_free(bounds);
    }
  }
  ls_trace *next = NULL;
  ls_error err = {0};
  const ls_bound_args args = args_of(&g, &a, yes, NULL);
  cr_assert_eq(ls_bound_attn_state(&args, empty, &next, &err), LS_INTERNAL);
  cr_assert(next == NULL);
  ls_trace_free(empty);
  path_free(&a);
  teardown(&g);
}
