/* The bounds of dflash_context_kv against plain double arithmetic, and against two simulated paths that differ as real ones do. */
#include "compare_helpers.h"
#include "layers/bound_dflash_context_kv.h"

enum { HIDDEN = 128, AUX = 4, LAYERS = 2, HEADS = 2, HEAD_DIM = 64, ROWS = 4, KV = HEADS * HEAD_DIM, FC_IN = AUX * HIDDEN };

static const char *const stage_name[] = {"ctx_combined", "ctx_normed", "k_proj", "v_proj", "k_norm", "k_rope"};
static ls_bound_fn *const bound_fn[] = {ls_bound_ctx_combined, ls_bound_ctx_normed, ls_bound_k_proj,
                                        ls_bound_v_proj,       ls_bound_k_norm,     ls_bound_k_rope};
enum { STAGES = 6 };

typedef struct {
  ls_config config;
  ls_step step;
  ls_trace *weights, *bounds;
} layer_rig;

static void setup(layer_rig *g, ls_dtype act, int64_t base) {
  g->config = (ls_config){.layer = &ls_layer_dflash_context_kv, .act = act};
  g->config.dflash = (ls_dflash_config){.hidden = HIDDEN,
                                        .aux_count = AUX,
                                        .layers = LAYERS,
                                        .num_kv_heads = HEADS,
                                        .head_dim = HEAD_DIM,
                                        .ring_capacity = 32,
                                        .window = 16,
                                        .max_rows = 8,
                                        .rms_eps = 1e-6,
                                        .rope_theta = 1e7,
                                        .kv_dim = KV,
                                        .fc_in = FC_IN};
  g->step = (ls_step){.op = LS_OP_CONTEXT_WRITE, .base = base, .rows = ROWS};
  g->weights = new_trace("weights");
  g->bounds = new_trace("bounds");
  add_random(g->weights, "fc", act, 2, (int64_t[]){HIDDEN, FC_IN}, 0.05);
  ls_tensor norm = add_tensor(g->weights, "hidden_norm", LS_F32, 1, (int64_t[]){HIDDEN});
  ls_generate(&norm, "hidden_norm", 0.3, 1.0);
  for (int l = 0; l < LAYERS; l++) {
    char name[64];
    snprintf(name, sizeof name, "layers/%d/k_proj", l);
    add_random(g->weights, name, act, 2, (int64_t[]){KV, HIDDEN}, 0.1);
    snprintf(name, sizeof name, "layers/%d/v_proj", l);
    add_random(g->weights, name, act, 2, (int64_t[]){KV, HIDDEN}, 0.1);
    snprintf(name, sizeof name, "layers/%d/k_norm", l);
    norm = add_tensor(g->weights, name, act, 1, (int64_t[]){HEAD_DIM});
    ls_generate(&norm, name, 0.5, 1.0);
  }
}

static void teardown(layer_rig *g) {
  ls_trace_free(g->weights);
  ls_trace_free(g->bounds);
}

static void all_bounds(layer_rig *g, const ls_trace *values, bool (*carries)(void *, const char *)) {
  ls_bound_args args = {.config = &g->config, .weights = g->weights, .step = &g->step, .values = values, .carries = carries};
  ls_trace_free(g->bounds);
  g->bounds = new_trace("bounds");
  for (int s = 0; s < STAGES; s++) MUST(bound_fn[s](&args, g->bounds, err));
}

/* ---- a path in float32 whose sums run in one of two orders, or in float64 ---- */

typedef enum { FORWARD, BACKWARD, LANES, EXACT } order;

static double sum_products(const double *x, const double *w, int64_t n, order o) {
  if (o == EXACT) {
    double sum = 0;
    for (int64_t i = 0; i < n; i++) sum += x[i] * w[i];
    return sum;
  }
  float lane[8] = {0};
  int lanes = o == LANES ? 8 : 1;
  for (int64_t i = 0; i < n; i++) {
    int64_t at = o == BACKWARD ? n - 1 - i : i;
    float product = (float)x[at] * (float)w[at];
    lane[i % lanes] = o == LANES ? fmaf((float)x[at], (float)w[at], lane[i % lanes]) : lane[i % lanes] + product;
  }
  return (double)(((lane[0] + lane[1]) + (lane[2] + lane[3])) + ((lane[4] + lane[5]) + (lane[6] + lane[7])));
}

static double *widened(const ls_tensor *t) {
  double *v = malloc((size_t)ls_tensor_count(t) * sizeof *v);
  ls_tensor_to_f64(v, t);
  return v;
}

static void gemm(const ls_tensor *y, int64_t y_from, const ls_tensor *x, const ls_tensor *w, order o) {
  int64_t n = w->dim[0], k = w->dim[1];
  double *xv = widened(x), *wv = widened(w);
  for (int64_t r = 0; r < ROWS; r++) {
    for (int64_t i = 0; i < n; i++) ls_tensor_set(y, y_from + r * n + i, sum_products(xv + r * k, wv + i * k, k, o));
  }
  free(xv);
  free(wv);
}

static void norm(const ls_tensor *y, const ls_tensor *x, int64_t from, int64_t n, const ls_tensor *w, order o) {
  double *v = malloc((size_t)n * sizeof *v);
  for (int64_t i = 0; i < n; i++) v[i] = ls_tensor_get(x, from + i);
  double sum = sum_products(v, v, n, o);
  double inv = o == EXACT ? 1 / sqrt(sum / (double)n + (double)1e-6f) : (double)(1.0f / sqrtf((float)sum / (float)n + 1e-6f));
  for (int64_t i = 0; i < n; i++) {
    double weight = ls_tensor_get(w, i);
    ls_tensor_set(y, from + i, o == EXACT ? v[i] * inv * weight : (double)((float)v[i] * (float)inv * (float)weight));
  }
  free(v);
}

static void rope(const ls_tensor *y, const ls_tensor *x, int64_t base, order o) {
  for (int64_t at = 0; at < LAYERS * ROWS * KV; at += HEAD_DIM) {
    float position = (float)(base + at / KV % ROWS);
    for (int64_t i = 0; i < HEAD_DIM / 2; i++) {
      float exponent = (float)(2 * i) / (float)HEAD_DIM;
      float angle = position * (1.0f / (float)pow(1e7, (double)exponent));
      double a = ls_tensor_get(x, at + i), b = ls_tensor_get(x, at + HEAD_DIM / 2 + i);
      double c = cos((double)angle), s = sin((double)angle);
      if (o != EXACT) { /* a cosine within 2 ulps: as good as it gets, or 2 ulps off */
        float fc = (float)c, fs = (float)s;
        if (o == BACKWARD) fc = nextafterf(nextafterf(fc, 2), 2), fs = nextafterf(nextafterf(fs, 2), 2);
        ls_tensor_set(y, at + i, (double)((float)a * fc - (float)b * fs));
        ls_tensor_set(y, at + HEAD_DIM / 2 + i, (double)((float)b * fc + (float)a * fs));
      } else {
        ls_tensor_set(y, at + i, a * c - b * s);
        ls_tensor_set(y, at + HEAD_DIM / 2 + i, b * c + a * s);
      }
    }
  }
}

/* A whole step. given: the trace whose stages are read (isolated), NULL: its own (cascaded). Stages are stored as `act`. */
static ls_trace *run_stored(const layer_rig *g, order o, const ls_trace *given, double capture_scale, double capture_offset, ls_dtype act) {
  ls_trace *t = new_trace("path");
  ls_tensor capture = add_tensor(t, "capture", g->config.act, 2, (int64_t[]){ROWS, FC_IN});
  ls_generate(&capture, "capture", capture_scale, capture_offset);
  int64_t wide[] = {LAYERS, ROWS, KV};
  for (int s = 0; s < STAGES; s++) {
    add_tensor(t, stage_name[s], act, s < 2 ? 2 : 3, s < 2 ? (const int64_t[]){ROWS, HIDDEN} : wide);
  }
  const ls_trace *from = given ? given : t;
  gemm(ls_trace_tensor(t, "ctx_combined"), 0, &capture, ls_trace_tensor(g->weights, "fc"), o);
  for (int64_t r = 0; r < ROWS; r++) {
    norm(ls_trace_tensor(t, "ctx_normed"), ls_trace_tensor(from, "ctx_combined"), r * HIDDEN, HIDDEN,
         ls_trace_tensor(g->weights, "hidden_norm"), o);
  }
  for (int64_t l = 0; l < LAYERS; l++) {
    char name[64];
    snprintf(name, sizeof name, "layers/%d/k_proj", (int)l);
    gemm(ls_trace_tensor(t, "k_proj"), l * ROWS * KV, ls_trace_tensor(from, "ctx_normed"), ls_trace_tensor(g->weights, name), o);
    snprintf(name, sizeof name, "layers/%d/v_proj", (int)l);
    gemm(ls_trace_tensor(t, "v_proj"), l * ROWS * KV, ls_trace_tensor(from, "ctx_normed"), ls_trace_tensor(g->weights, name), o);
    snprintf(name, sizeof name, "layers/%d/k_norm", (int)l);
    for (int64_t at = l * ROWS * KV; at < (l + 1) * ROWS * KV; at += HEAD_DIM) {
      norm(ls_trace_tensor(t, "k_norm"), ls_trace_tensor(from, "k_proj"), at, HEAD_DIM, ls_trace_tensor(g->weights, name), o);
    }
  }
  rope(ls_trace_tensor(t, "k_rope"), ls_trace_tensor(from, "k_norm"), g->step.base, o);
  return t;
}

static ls_trace *run(const layer_rig *g, order o, const ls_trace *given, double capture_scale, double capture_offset) {
  return run_stored(g, o, given, capture_scale, capture_offset, g->config.act);
}

static ls_result judge(const layer_rig *g, const char *stage, const ls_trace *a, const ls_trace *b) {
  const ls_stage *entry = ls_stage_find(&ls_layer_dflash_context_kv, stage);
  cr_assert_not_null(entry);
  ls_compare_args args = {.stage = entry,
                          .type = g->config.act,
                          .a = ls_trace_tensor(a, stage),
                          .b = ls_trace_tensor(b, stage),
                          .bound = ls_trace_tensor(g->bounds, stage),
                          .steps = entry->steps,
                          .names = {.base = g->step.base, .capacity = 32, .head_dim = HEAD_DIM}};
  ls_result r;
  ls_compare_tensor(&r, &args);
  return r;
}

/* ---- two right paths stay inside, and use a fair share ---- */

static void two_paths(ls_dtype act, int64_t base, double scale, double offset, bool cascaded, double use[STAGES]) {
  layer_rig g;
  setup(&g, act, base);
  static const order other[] = {BACKWARD, LANES, EXACT};
  ls_trace *a = run(&g, FORWARD, NULL, scale, offset);
  all_bounds(&g, a, cascaded ? yes : no);
  for (int i = 0; i < 3; i++) {
    ls_trace *b = run(&g, other[i], cascaded ? NULL : a, scale, offset);
    for (int s = 0; s < STAGES; s++) {
      ls_result r = judge(&g, stage_name[s], a, b);
      assert_verdict(r, LS_PASS);
      if (r.use > use[s]) use[s] = r.use;
    }
    ls_trace_free(b);
  }
  ls_trace_free(a);
  teardown(&g);
}

Test(bounds, two_right_paths_stay_inside_in_isolation) {
  double use[STAGES] = {0};
  two_paths(LS_BF16, 1000, 1.0, 0.0, false, use);
  two_paths(LS_BF16, 1000000, 1.0, 0.0, false, use);
  two_paths(LS_F16, 70000, 1.0, 0.0, false, use);
  for (int s = 0; s < STAGES; s++) cr_log_info("isolated %s: at most %.3f of the bound", stage_name[s], use[s]);
}

/* Carried errors assume that every input is off by all it may be, in the worst direction; the few roundings that really flip use a small
 * part of that. How wide the carried bounds are is for the formula tests below; here real flips must be there, and stay inside. */
Test(bounds, two_right_paths_stay_inside_when_errors_carry_on) {
  double use[STAGES] = {0};
  two_paths(LS_BF16, 1000, 1.0, 0.0, true, use);
  two_paths(LS_BF16, 2000000000, 1.0, 0.0, true, use);
  two_paths(LS_F16, 70000, 1.0, 0.0, true, use);
  double most = 0;
  for (int s = 0; s < STAGES; s++) {
    cr_log_info("cascaded %s: at most %.4f of the bound", stage_name[s], use[s]);
    if (use[s] > most) most = use[s];
  }
  cr_assert(most > 0.001 && most <= 1, "no more than %.4f of any bound is used", most);
}

/* Without the rounding steps, on results that were not rounded: the float32 part alone holds the float32 errors, and is not absurdly wide.
 * (GEMM: 4 sqrt(K) 2^-24 is for terms of one sign; where they cancel, as here, partial sums are sqrt(K) times smaller.) */
Test(bounds, the_part_beyond_the_steps_holds_float32_errors_tightly) {
  double use[STAGES] = {0};
  const int64_t base[] = {3, 100000, 2000000000};
  for (int i = 0; i < 3; i++) {
    layer_rig g;
    setup(&g, LS_BF16, base[i]);
    ls_trace *given = run(&g, FORWARD, NULL, 1.0, 0.1 * i);
    all_bounds(&g, given, no);
    ls_trace *path[3];
    static const order orders[] = {FORWARD, BACKWARD, LANES};
    for (int j = 0; j < 3; j++) path[j] = run_stored(&g, orders[j], given, 1.0, 0.1 * i, LS_F64);
    for (int j = 0; j < 3; j++) {
      for (int s = 0; s < STAGES; s++) {
        ls_compare_args args = {.type = LS_F64,
                                .a = ls_trace_tensor(path[j], stage_name[s]),
                                .b = ls_trace_tensor(path[(j + 1) % 3], stage_name[s]),
                                .bound = ls_trace_tensor(g.bounds, stage_name[s])};
        ls_result r;
        ls_compare_tensor(&r, &args);
        assert_verdict(r, LS_PASS);
        if (r.use > use[s]) use[s] = r.use;
      }
    }
    for (int j = 0; j < 3; j++) ls_trace_free(path[j]);
    ls_trace_free(given);
    teardown(&g);
  }
  for (int s = 0; s < STAGES; s++) {
    cr_log_info("float32 part of %s: at most %.3f in use", stage_name[s], use[s]);
    double least = s == 0 || s == 2 || s == 3 ? 0.1 / sqrt(FC_IN) : 0.03;
    cr_assert(use[s] > least && use[s] <= 1, "%s uses %.3f of it", stage_name[s], use[s]);
  }
}

Test(bounds, shifted_huge_and_tiny_inputs_stay_inside) {
  double use[STAGES] = {0};
  const double data[][2] = {{1.0, 30.0}, {1e4, 0.0}, {1e-3, 0.0}, {0.0, 1.0}};
  for (int i = 0; i < 4; i++) {
    two_paths(LS_BF16, 5, data[i][0], data[i][1], false, use);
    two_paths(LS_BF16, 5, data[i][0], data[i][1], true, use);
  }
}

/* ---- a wrong path does not ---- */

Test(bounds, a_wrong_stage_is_outside_in_isolation_and_alone) {
  for (int wrong = 0; wrong < STAGES; wrong++) {
    layer_rig g;
    setup(&g, LS_BF16, 1000);
    ls_trace *a = run(&g, FORWARD, NULL, 1, 0);
    all_bounds(&g, a, no);
    ls_trace *b = run(&g, LANES, a, 1, 0);
    const ls_tensor *t = ls_trace_tensor(b, stage_name[wrong]);
    for (int64_t i = 0; i < ls_tensor_count(t); i++) ls_tensor_set(t, i, ls_tensor_get(t, i) * (1 + 0x1p-5)); /* two to four steps */
    for (int s = 0; s < STAGES; s++) {
      ls_result r = judge(&g, stage_name[s], a, b);
      assert_verdict(r, s == wrong ? LS_FAIL : LS_PASS);
      if (s == wrong) cr_assert(r.rows_failing == r.rows && 2 * r.failing > r.count);
    }
    ls_trace_free(a);
    ls_trace_free(b);
    teardown(&g);
  }
}

Test(bounds, a_rotation_by_the_next_position_is_outside_even_when_carried) {
  layer_rig g;
  setup(&g, LS_BF16, 1000);
  ls_trace *a = run(&g, FORWARD, NULL, 1, 0);
  all_bounds(&g, a, yes);
  ls_trace *b = run(&g, LANES, NULL, 1, 0);
  ls_result r = judge(&g, "k_rope", a, b);
  assert_verdict(r, LS_PASS);
  rope(ls_trace_tensor(b, "k_rope"), ls_trace_tensor(b, "k_norm"), 1001, LANES);
  r = judge(&g, "k_rope", a, b);
  assert_verdict(r, LS_FAIL);
  cr_assert(r.rows_failing == r.rows && r.use > 3);
  assert_has(r.where, "(position 100");
  ls_trace_free(a);
  ls_trace_free(b);
  teardown(&g);
}

/* One step is not enough where the two terms of a rotation cancel: the term in |a| + |b| is needed. */
Test(bounds, a_cancelling_rotation_needs_its_own_term) {
  ls_dtype act = LS_BF16;
  double a = 1.0, b = 1.0, angle = 0.78539816; /* just below pi/4: a cos - b sin is nearly 0 */
  float fc = (float)cos(angle), fs = (float)sin(angle);
  float off = nextafterf(nextafterf(fc, 2), 2);
  double one = ls_round_to(act, (double)((float)a * fc - (float)b * fs)), two = ls_round_to(act, (double)((float)a * off - (float)b * fs));
  double apart = fabs(one - two);
  cr_assert(apart > ls_step_at(act, fmax(fabs(one), fabs(two))));
  cr_assert(apart <= ls_step_at(act, fmax(fabs(one), fabs(two))) + 8 * 0x1p-24 * (fabs(a) + fabs(b)));
}

/* ---- the formulas, element by element in double ---- */

static double total(const layer_rig *g, const ls_trace *values, const char *stage, int64_t i) {
  double v = fabs(ls_tensor_get(ls_trace_tensor(values, stage), i)), rest = ls_tensor_get(ls_trace_tensor(g->bounds, stage), i);
  return ls_step_at(g->config.act, v + ls_step_at(g->config.act, v) + rest) + rest;
}

static void near(const layer_rig *g, const char *stage, int64_t i, double expected) {
  double got = ls_tensor_get(ls_trace_tensor(g->bounds, stage), i);
  cr_assert(fabs(got - expected) <= 1e-5 * expected && expected > 0, "%s[%d]: %.9g, expected %.9g", stage, (int)i, got, expected);
}

static void check_formulas(bool carry) {
  layer_rig g;
  setup(&g, LS_BF16, 77);
  ls_trace *t = run(&g, FORWARD, NULL, 1, 0);
  all_bounds(&g, t, carry ? yes : no);
  const ls_tensor *capture = ls_trace_tensor(t, "capture"), *fc = ls_trace_tensor(g.weights, "fc");
  for (int64_t i = 0; i < ROWS * HIDDEN; i += 37) {
    double sum = 0;
    for (int64_t k = 0; k < FC_IN; k++) {
      sum += fabs(ls_tensor_get(capture, i / HIDDEN * FC_IN + k)) * fabs(ls_tensor_get(fc, i % HIDDEN * FC_IN + k));
    }
    near(&g, "ctx_combined", i, 4 * sqrt(FC_IN) * 0x1p-24 * sum);
  }
  for (int64_t i = 0; i < LAYERS * ROWS * KV; i += 53) {
    char name[64];
    int64_t layer = i / (ROWS * KV), row = i / KV % ROWS, channel = i % KV;
    const char *stage = i % 2 ? "k_proj" : "v_proj";
    snprintf(name, sizeof name, "layers/%d/%s", (int)layer, stage);
    double sum = 0;
    for (int64_t k = 0; k < HIDDEN; k++) {
      double x = fabs(ls_tensor_get(ls_trace_tensor(t, "ctx_normed"), row * HIDDEN + k));
      double w = fabs(ls_tensor_get(ls_trace_tensor(g.weights, name), channel * HIDDEN + k));
      sum += (4 * sqrt(HIDDEN) * 0x1p-24 * x + (carry ? total(&g, t, "ctx_normed", row * HIDDEN + k) : 0)) * w;
    }
    near(&g, stage, i, sum);
  }
  for (int64_t i = 0; i < LAYERS * ROWS * KV; i += 41) { /* k_norm: exact worst case of its formula */
    char name[64];
    int64_t layer = i / (ROWS * KV), head = i / HEAD_DIM * HEAD_DIM;
    snprintf(name, sizeof name, "layers/%d/k_norm", (int)layer);
    double squares = 0, cross = 0;
    for (int64_t j = head; j < head + HEAD_DIM; j++) {
      double x = fabs(ls_tensor_get(ls_trace_tensor(t, "k_proj"), j)), d = carry ? total(&g, t, "k_proj", j) : 0;
      squares += x * x;
      cross += 2 * x * d + d * d;
    }
    double inv = 1 / sqrt(squares / HEAD_DIM + (double)1e-6f), tau = inv * inv * cross / HEAD_DIM, r = 1 / sqrt(1 - tau) - 1;
    double x = fabs(ls_tensor_get(ls_trace_tensor(t, "k_proj"), i)), d = carry ? total(&g, t, "k_proj", i) : 0;
    double w = fabs(ls_tensor_get(ls_trace_tensor(g.weights, name), i % HEAD_DIM));
    near(&g, "k_norm", i, w * inv * (x * (sqrt(HEAD_DIM) + 16) * 0x1p-24 + d * (1 + r) + x * r));
  }
  for (int64_t i = 0; i < LAYERS * ROWS * KV; i += 29) {
    int64_t in_head = i % HEAD_DIM, half = HEAD_DIM / 2, other = in_head < half ? i + half : i - half;
    float exponent = (float)(2 * (in_head % half)) / (float)HEAD_DIM;
    float angle = (float)(77 + i / KV % ROWS) * (1.0f / (float)pow(1e7, (double)exponent));
    double a = fabs(ls_tensor_get(ls_trace_tensor(t, "k_norm"), i)), b = fabs(ls_tensor_get(ls_trace_tensor(t, "k_norm"), other));
    double carried =
        carry ? fabs(cos((double)angle)) * total(&g, t, "k_norm", i) + fabs(sin((double)angle)) * total(&g, t, "k_norm", other) : 0;
    near(&g, "k_rope", i, 8 * 0x1p-24 * (a + b) + carried);
  }
  ls_trace_free(t);
  teardown(&g);
}

Test(bounds, formulas_hold_without_carrying) { check_formulas(false); }
Test(bounds, formulas_hold_with_carrying) { check_formulas(true); }

/* The worst case of the norm's carried bound, tried: every input moved to the edge of what it may be off by, in the worst direction. */
Test(bounds, a_moved_input_moves_a_norm_by_no_more_than_its_bound) {
  layer_rig g;
  setup(&g, LS_BF16, 0);
  ls_trace *t = run(&g, FORWARD, NULL, 1, 0);
  all_bounds(&g, t, yes);
  double *x = widened(ls_trace_tensor(t, "ctx_combined")), *w = widened(ls_trace_tensor(g.weights, "hidden_norm"));
  double largest = 0;
  for (int64_t i = 0; i < HIDDEN; i += 11) {
    double before = 0, after = 0;
    for (int64_t j = 0; j < HIDDEN; j++) { /* x_i grows while all others shrink */
      double moved = fabs(x[j]) + (j == i ? 1 : -1) * total(&g, t, "ctx_combined", j);
      before += x[j] * x[j];
      after += moved * moved;
    }
    double moved = fabs(x[i]) + total(&g, t, "ctx_combined", i);
    double apart = fabs(w[i]) * fabs(moved / sqrt(after / HIDDEN + 1e-6) - fabs(x[i]) / sqrt(before / HIDDEN + 1e-6));
    double allowed = ls_tensor_get(ls_trace_tensor(g.bounds, "ctx_normed"), i);
    cr_assert(apart <= allowed);
    if (apart / allowed > largest) largest = apart / allowed;
  }
  cr_assert(largest > 0.9, "the worst case uses only %.3f", largest);
  free(x);
  free(w);
  ls_trace_free(t);
  teardown(&g);
}

Test(bounds, what_is_missing_is_an_error_that_names_it) {
  layer_rig g;
  setup(&g, LS_BF16, 0);
  ls_trace *values = run(&g, FORWARD, NULL, 1, 0), *empty = new_trace("empty");
  ls_bound_args args = {.config = &g.config, .weights = g.weights, .step = &g.step, .values = empty, .carries = yes};
  ls_error err = {0};
  cr_assert_eq(ls_bound_ctx_combined(&args, g.bounds, &err), LS_INTERNAL);
  assert_has(err.text, "capture");
  args.values = values;
  for (int s = 1; s < STAGES; s++) { /* their inputs have no bounds yet */
    err = (ls_error){0};
    cr_assert_eq(bound_fn[s](&args, g.bounds, &err), LS_INTERNAL);
    assert_has(err.text, "bounds");
  }
  args.weights = empty, args.carries = no;
  for (int s = 0; s < STAGES - 1; s++) {
    err = (ls_error){0};
    ls_trace *bounds = new_trace("bounds");
    cr_assert_eq(bound_fn[s](&args, bounds, &err), LS_INTERNAL);
    assert_has(err.text, "weights");
    ls_trace_free(bounds);
  }
  ls_trace_free(empty);
  ls_trace_free(values);
  teardown(&g);
}
