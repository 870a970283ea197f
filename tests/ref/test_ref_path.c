#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/ls_numeric.h"
#include "ref_scene.h"

/* ---- a layer small enough to compute by hand ----
 * hidden 2, one aux, one drafter layer, one head of 2, a ring of 3. fc = [[1, 1], [0, 2]], hidden_norm = (1, 4), k_proj = [[1, 0], [0,
 * 1/2]], v_proj = [[0, 1], [1, 1]], k_norm = (2, 3), eps 0, theta any: freq[0] = 1. */

static void set(ls_trace *t, const char *name, ls_dtype type, int ndim, int64_t a, int64_t b, const double *v) {
  ls_tensor x;
  cr_assert_eq(ls_trace_add(t, name, type, ndim, (int64_t[]){a, b}, &x, NULL), LS_OK);
  for (int64_t i = 0; i < ls_tensor_count(&x); i++) ls_tensor_set(&x, i, v[i]);
}

static scene hand_scene(ls_dtype act) {
  scene s = {.config = {.layer = &ls_layer_dflash_context_kv, .act = act}};
  s.config.dflash = (ls_dflash_config){.hidden = 2,
                                       .aux_count = 1,
                                       .layers = 1,
                                       .num_kv_heads = 1,
                                       .head_dim = 2,
                                       .ring_capacity = 3,
                                       .window = 1,
                                       .max_rows = 4,
                                       .rms_eps = 0,
                                       .rope_theta = 1e4};
  cr_assert_eq(s.config.layer->config_check(&s.config, NULL), LS_OK);
  s.weights = scene_trace();
  set(s.weights, "fc", act, 2, 2, 2, (double[]){1, 1, 0, 2});
  set(s.weights, "hidden_norm", LS_F32, 1, 2, 1, (double[]){1, 4});
  set(s.weights, "layers/0/k_proj", act, 2, 2, 2, (double[]){1, 0, 0, 0.5});
  set(s.weights, "layers/0/v_proj", act, 2, 2, 2, (double[]){0, 1, 1, 1});
  set(s.weights, "layers/0/k_norm", LS_BF16, 1, 2, 1, (double[]){2, 3});
  cr_assert_eq(ls_path_ref.open(&s.path, &s.config, s.weights, NULL, &s.err), LS_OK, "%s", s.err.text);
  return s;
}

static void is(const ls_trace *t, const char *name, ls_dtype act, int n, const double *expected) {
  const ls_tensor *x = ls_trace_tensor(t, name);
  cr_assert(x != NULL && x->dtype == act && ls_tensor_count(x) == n, "%s", name);
  for (int i = 0; i < n; i++) {
    cr_assert_eq(ls_tensor_get(x, i), ls_round_to(act, expected[i]), "%s[%d]: expected %g, found %g", name, i, expected[i],
                 ls_tensor_get(x, i));
  }
}

Test(ref_path, hand_computed_context_write_that_crosses_the_end_of_the_ring) {
  for (int a = LS_BF16; a <= LS_F16; a++) {
    const ls_dtype act = (ls_dtype)a;
    scene s = hand_scene(act);
    ls_trace *in = scene_trace(), *out = scene_trace();
    set(in, "capture", act, 2, 2, 2, (double[]){2, 2, 12, 4});
    const ls_step capture = {.op = LS_OP_CAPTURE, .base = 2, .rows = 2, .in = in}, write = {.op = LS_OP_CONTEXT_WRITE, .rows = 2};
    cr_assert_eq(ls_path_ref.step(s.path, &capture, NULL, NULL, false, NULL), LS_OK);
    cr_assert_eq(ls_path_ref.step(s.path, &write, NULL, out, true, NULL), LS_OK);

    const double root = sqrt(160.0); /* of row 1: mean of squares (256 + 64) / 2 */
    const double n10 = ls_round_to(act, 16 / root), n11 = ls_round_to(act, 8 / root * 4);
    is(out, "ctx_combined", act, 4, (double[]){4, 4, 16, 8});
    is(out, "ctx_normed", act, 4, (double[]){1, 4, n10, n11});
    is(out, "k_proj", act, 4, (double[]){1, 2, n10, n11 / 2});
    is(out, "v_proj", act, 4, (double[]){4, 5, n11, n10 + n11});
    const double k10 = ls_round_to(act, n10), k11 = ls_round_to(act, n11 / 2), r0 = sqrt(2.5), r1 = sqrt((k10 * k10 + k11 * k11) / 2);
    const double m00 = ls_round_to(act, 2 / r0), m01 = ls_round_to(act, 6 / r0), m10 = ls_round_to(act, 2 * k10 / r1),
                 m11 = ls_round_to(act, 3 * k11 / r1);
    is(out, "k_norm", act, 4, (double[]){m00, m01, m10, m11});
    /* positions 2 and 3, freq 1 */
    const double c2 = -0.41614683654714238700, s2 = 0.90929742682568169540, c3 = -0.98999249660044545727, s3 = 0.14112000805986722210;
    const double p00 = m00 * c2 - m01 * s2, p01 = m01 * c2 + m00 * s2, p10 = m10 * c3 - m11 * s3, p11 = m11 * c3 + m10 * s3;
    is(out, "k_rope", act, 4, (double[]){p00, p01, p10, p11});
    /* position 2 in slot 2, position 3 in slot 0, slot 1 never written */
    is(out, "k_ring", act, 6, (double[]){p10, p11, 0, 0, p00, p01});
    is(out, "v_ring", act, 6, (double[]){n11, n10 + n11, 0, 0, 4, 5});

    ls_trace *state = scene_state(&s);
    cr_assert_eq(scene_integer(state, "cursor"), 4);
    cr_assert_eq(scene_integer(state, "capture_rows"), 0);
    is(state, "capture", act, 8, (double[]){2, 2, 12, 4, 0, 0, 0, 0});
    ls_trace_free(state);
    ls_trace_free(out);
    ls_trace_free(in);
    scene_close(&s);
  }
}

/* ---- what is recorded ---- */

Test(ref_path, recording_changes_nothing_and_records_hold_what_the_slots_hold) {
  const ls_dflash_config shape = scene_shape();
  scene traced = scene_open(&shape, LS_BF16, LS_PRECISION_ACT), plain = scene_open(&shape, LS_BF16, LS_PRECISION_ACT);
  ls_trace *out = scene_trace();
  cr_assert_eq(scene_capture(&traced, 20, 7, 0), LS_OK);
  cr_assert_eq(scene_capture(&plain, 20, 7, 0), LS_OK);
  cr_assert_eq(scene_write(&traced, 7, NULL, out, true), LS_OK);
  cr_assert_eq(scene_write(&plain, 7, NULL, NULL, true), LS_OK);
  ls_trace *a = scene_state(&traced), *b = scene_state(&plain);
  cr_assert(scene_same(a, b));
  cr_assert(ls_tensor_same_bytes(ls_trace_tensor(out, "k_ring"), ls_trace_tensor(a, "k_ring")));
  cr_assert(ls_tensor_same_bytes(ls_trace_tensor(out, "v_ring"), ls_trace_tensor(a, "v_ring")));
  for (int64_t layer = 0; layer < shape.layers; layer++) {
    for (int64_t row = 0; row < 7; row++) {
      const ls_tensor k = ls_tensor_at(ls_trace_tensor(out, "k_rope"), layer), v = ls_tensor_at(ls_trace_tensor(out, "v_proj"), layer);
      const ls_tensor k_row = ls_tensor_at(&k, row), v_row = ls_tensor_at(&v, row);
      const ls_tensor k_slot = scene_slot(a, "k_ring", layer, (20 + row) % 24), v_slot = scene_slot(a, "v_ring", layer, (20 + row) % 24);
      cr_assert(ls_tensor_same_bytes(&k_row, &k_slot) && ls_tensor_same_bytes(&v_row, &v_slot));
    }
  }
  cr_assert_eq(out->n, 8);
  ls_trace_free(a), ls_trace_free(b), ls_trace_free(out);
  scene_close(&traced), scene_close(&plain);
}

Test(ref_path, rings_are_recorded_only_where_asked_for_and_after_any_operation) {
  const ls_dflash_config shape = scene_shape();
  scene s = scene_open(&shape, LS_F16, LS_PRECISION_ACT);
  ls_trace *in = scene_draft_input(&s, 22, 5, 3), *out = scene_trace(), *none = scene_trace();
  const ls_step draft = {.op = LS_OP_DRAFT_WRITE, .base = 22, .rows = 5, .in = in}, rewind = {.op = LS_OP_REWIND, .position = 9};
  cr_assert_eq(ls_path_ref.step(s.path, &draft, NULL, none, false, NULL), LS_OK);
  cr_assert_eq(none->n, 0);
  cr_assert_eq(ls_path_ref.step(s.path, &rewind, NULL, out, true, NULL), LS_OK);
  cr_assert_eq(out->n, 2);
  ls_trace *state = scene_state(&s);
  cr_assert(ls_tensor_same_bytes(ls_trace_tensor(out, "k_ring"), ls_trace_tensor(state, "k_ring")));
  cr_assert(ls_tensor_same_bytes(ls_trace_tensor(out, "v_ring"), ls_trace_tensor(state, "v_ring")));
  ls_trace_free(state), ls_trace_free(out), ls_trace_free(none), ls_trace_free(in);
  scene_close(&s);
}

Test(ref_path, says_which_stages_a_step_has) {
  const ls_dflash_config shape = scene_shape();
  scene s = scene_open(&shape, LS_BF16, LS_PRECISION_ACT);
  static const ls_step capture = {.op = LS_OP_CAPTURE}, draft = {.op = LS_OP_DRAFT_WRITE}, write = {.op = LS_OP_CONTEXT_WRITE},
                       rewind = {.op = LS_OP_REWIND};
  for (int i = 0; i < s.config.layer->n_stages; i++) {
    const ls_stage *stage = &s.config.layer->stages[i];
    cr_assert_eq(ls_path_ref.stage_kind(s.path, &write, stage->name), LS_STAGE_OWN);
    cr_assert_eq(ls_path_ref.stage_kind(s.path, &draft, stage->name), stage->is_ring ? LS_STAGE_OWN : LS_STAGE_ABSENT);
    cr_assert_eq(ls_path_ref.stage_kind(s.path, &capture, stage->name), LS_STAGE_ABSENT);
    cr_assert_eq(ls_path_ref.stage_kind(s.path, &rewind, stage->name), LS_STAGE_ABSENT);
  }
  cr_assert_eq(ls_path_ref.stage_kind(s.path, &write, "no such stage"), LS_STAGE_ABSENT);
  cr_assert_not_null(strstr(ls_path_ref.describe(s.path), "OpenBLAS"));
  cr_assert_eq(ls_path_ref.abi, LS_PATH_ABI);
  scene_close(&s);
  ls_path_ref.close(NULL);
}

/* ---- isolated ---- */

static ls_trace *recorded(scene *s, const ls_trace *given) {
  ls_trace *out = scene_trace();
  scene_reset(s);
  cr_assert_eq(scene_capture(s, 20, 7, 0), LS_OK);
  cr_assert_eq(scene_write(s, 7, given, out, true), LS_OK, "%s", s->err.text);
  return out;
}

static bool same_stage(const ls_trace *a, const ls_trace *b, const char *stage) {
  return ls_tensor_same_bytes(ls_trace_tensor(a, stage), ls_trace_tensor(b, stage));
}

Test(ref_path, given_its_own_trace_it_computes_the_same_bytes) {
  for (int precision = LS_PRECISION_ACT; precision <= LS_PRECISION_F64; precision++) {
    const ls_dflash_config shape = scene_shape();
    scene s = scene_open(&shape, LS_BF16, (ls_precision)precision);
    ls_trace *own = recorded(&s, NULL), *again = recorded(&s, own);
    cr_assert(scene_same(own, again));
    ls_trace_free(own), ls_trace_free(again);
    scene_close(&s);
  }
}

/* A changed input moves the stages that read it and no other: each stage reads what is given, not what was computed before it. */
Test(ref_path, a_given_stage_reaches_exactly_the_stages_that_read_it) {
  static const struct {
    const char *changed, *moves[3];
  } cases[] = {{"ctx_combined", {"ctx_normed"}},
               {"ctx_normed", {"k_proj", "v_proj", "v_ring"}},
               {"k_proj", {"k_norm"}},
               {"k_norm", {"k_rope", "k_ring"}},
               {"v_proj", {NULL}},
               {"k_rope", {NULL}}};
  const ls_dflash_config shape = scene_shape();
  scene s = scene_open(&shape, LS_BF16, LS_PRECISION_ACT);
  ls_trace *own = recorded(&s, NULL);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    ls_trace *given;
    cr_assert_eq(ls_trace_copy(&given, own, NULL), LS_OK);
    const ls_tensor *t = ls_trace_tensor(given, cases[i].changed);
    /* one element of the last row: no plain factor, which a norm would take out again */
    ls_tensor_set(t, ls_tensor_count(t) - 1, ls_tensor_get(t, ls_tensor_count(t) - 1) + 8);
    ls_trace *out = recorded(&s, given);
    for (int j = 0; j < own->n; j++) {
      bool moved = false;
      for (int k = 0; k < 3 && cases[i].moves[k] != NULL; k++) moved = moved || strcmp(cases[i].moves[k], own->rec[j].name) == 0;
      cr_assert_eq(same_stage(own, out, own->rec[j].name), !moved, "%s changed, %s", cases[i].changed, own->rec[j].name);
    }
    ls_trace_free(out), ls_trace_free(given);
  }
  ls_trace_free(own);
  scene_close(&s);
}

Test(ref_path, one_given_stage_alone_replaces_only_itself) {
  const ls_dflash_config shape = scene_shape();
  scene s = scene_open(&shape, LS_BF16, LS_PRECISION_ACT);
  ls_trace *own = recorded(&s, NULL), *given = scene_trace();
  ls_tensor t;
  cr_assert_eq(ls_trace_add(given, "k_proj", LS_F64, 3, ls_trace_tensor(own, "k_proj")->dim, &t, NULL), LS_OK);
  for (int64_t i = 0; i < ls_tensor_count(&t); i++) ls_tensor_set(&t, i, sin((double)i));
  ls_trace *out = recorded(&s, given);
  cr_assert(same_stage(own, out, "ctx_combined") && same_stage(own, out, "ctx_normed"));
  cr_assert(same_stage(own, out, "k_proj") && same_stage(own, out, "v_proj") && same_stage(own, out, "v_ring"));
  cr_assert(!same_stage(own, out, "k_norm") && !same_stage(own, out, "k_rope") && !same_stage(own, out, "k_ring"));
  ls_trace_free(out), ls_trace_free(given), ls_trace_free(own);
  scene_close(&s);
}

Test(ref_path, given_stages_of_any_float_type_are_converted_to_the_activation_type) {
  const ls_dflash_config shape = scene_shape();
  scene s = scene_open(&shape, LS_BF16, LS_PRECISION_ACT);
  ls_trace *own = recorded(&s, NULL);
  for (int type = LS_F32; type <= LS_F64; type++) {
    ls_trace *given = scene_trace();
    for (int i = 0; i < own->n; i++) {
      const ls_tensor *from = &own->rec[i].t;
      ls_tensor t;
      cr_assert_eq(ls_trace_add(given, own->rec[i].name, (ls_dtype)type, from->ndim, from->dim, &t, NULL), LS_OK);
      /* off by less than half a step: rounds back */
      for (int64_t j = 0; j < ls_tensor_count(from); j++) ls_tensor_set(&t, j, ls_tensor_get(from, j) * (1 + 0x1p-10));
    }
    ls_trace *out = recorded(&s, given);
    cr_assert(scene_same(own, out));
    ls_trace_free(out), ls_trace_free(given);
  }
  ls_trace_free(own);
  scene_close(&s);
}

Test(ref_path, given_stage_of_another_shape_is_an_error_that_changes_nothing) {
  static const char *const stages[] = {"ctx_combined", "ctx_normed", "k_proj", "k_norm"};
  const ls_dflash_config shape = scene_shape();
  scene s = scene_open(&shape, LS_BF16, LS_PRECISION_ACT);
  for (size_t i = 0; i < 4; i++) {
    scene_reset(&s);
    cr_assert_eq(scene_capture(&s, 20, 7, 0), LS_OK);
    ls_trace *given = scene_trace(), *before = scene_state(&s);
    ls_tensor t;
    const int64_t dim[] = {2, 6, 66};
    cr_assert_eq(ls_trace_add(given, stages[i], LS_BF16, 3, dim, &t, NULL), LS_OK);
    cr_assert_eq(scene_write(&s, 7, given, NULL, false), LS_BAD_FIXTURE);
    cr_assert_not_null(strstr(s.err.text, stages[i]), "%s", s.err.text);
    cr_assert_not_null(strstr(s.err.text, "found bf16 [2, 6, 66]"), "%s", s.err.text);
    ls_trace *after = scene_state(&s);
    cr_assert(scene_same(before, after));
    ls_trace_free(before), ls_trace_free(after), ls_trace_free(given);
  }
  scene_close(&s);
}

/* ---- what open and step refuse ---- */

static void open_fails(const ls_config *config, const ls_trace *weights, ls_status status, const char *text) {
  void *ctx = &ctx;
  ls_error err = {0};
  cr_assert_eq(ls_path_ref.open(&ctx, config, weights, NULL, &err), status, "%s", text);
  cr_assert_null(ctx);
  cr_assert_not_null(strstr(err.text, text), "expected \"%s\", found \"%s\"", text, err.text);
}

Test(ref_open, weights_of_another_name_shape_or_type_are_refused_by_name) {
  static const struct {
    const char *name; /* of the weight to spoil */
    int type, ndim;   /* type -1: left out */
    int64_t dim[2];
    const char *text;
  } cases[] = {
      {"fc", -1, 0, {0, 0}, "weights/fc: expected bf16 [50, 150], found nothing"},
      {"fc", LS_F32, 2, {50, 150}, "weights/fc: expected bf16 [50, 150], found f32 [50, 150]"},
      {"fc", LS_F16, 2, {50, 150}, "found f16"},
      {"fc", LS_U8, 2, {50, 150}, "weights/fc: expected bf16 [50, 150], found u8 [50, 150]"}, /* a quantised one */
      {"fc", LS_BF16, 2, {150, 50}, "found bf16 [150, 50]"},
      {"hidden_norm", LS_F64, 1, {50, 1}, "weights/hidden_norm: expected bf16, f16 or f32 [50], found f64 [50]"},
      {"layers/1/k_proj", LS_BF16, 1, {3300, 1}, "weights/layers/1/k_proj: expected bf16 [66, 50], found bf16 [3300]"},
      {"layers/0/v_proj", LS_BF16, 2, {66, 49}, "weights/layers/0/v_proj"},
      {"layers/1/k_norm", LS_I32, 1, {22, 1}, "weights/layers/1/k_norm: expected bf16, f16 or f32 [22], found i32 [22]"},
      {"layers/1/k_norm", LS_F32, 1, {66, 1}, "found f32 [66]"},
  };
  ls_config config = {.layer = &ls_layer_dflash_context_kv, .act = LS_BF16, .dflash = scene_shape()};
  cr_assert_eq(config.layer->config_check(&config, NULL), LS_OK);
  ls_trace *right = scene_weights(&config);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    ls_trace *weights = scene_trace();
    for (int j = 0; j < right->n; j++) {
      ls_tensor t;
      if (strcmp(right->rec[j].name, cases[i].name) != 0) {
        cr_assert_eq(ls_trace_add_view(weights, right->rec[j].name, &right->rec[j].t, NULL), LS_OK);
      } else if (cases[i].type >= 0) {
        cr_assert_eq(ls_trace_add(weights, cases[i].name, (ls_dtype)cases[i].type, cases[i].ndim, cases[i].dim, &t, NULL), LS_OK);
      }
    }
    open_fails(&config, weights, LS_BAD_FIXTURE, cases[i].text);
    ls_trace_free(weights);
  }
  ls_trace_free(right);
}

Test(ref_open, bad_config_and_unknown_layer_are_refused) {
  ls_config config = {.layer = &ls_layer_dflash_context_kv, .act = LS_BF16, .dflash = scene_shape()};
  config.dflash.head_dim = 21;
  open_fails(&config, NULL, LS_BAD_FIXTURE, "head_dim: expected an even number, found 21");
  ls_layer other = ls_layer_dflash_context_kv;
  other.name = "attn_v99";
  config.layer = &other;
  open_fails(&config, NULL, LS_UNAVAILABLE, "attn_v99");
}

Test(ref_step, inputs_that_are_missing_or_of_another_shape_are_named_and_change_nothing) {
  const ls_dflash_config shape = scene_shape();
  scene s = scene_open(&shape, LS_BF16, LS_PRECISION_ACT);
  ls_trace *before = scene_state(&s), *five = scene_capture_input(&s, 0, 5, 0), *draft = scene_draft_input(&s, 0, 5, 0), *k = scene_trace();
  cr_assert_eq(ls_trace_add_view(k, "k", ls_trace_tensor(draft, "k"), NULL), LS_OK);
  const struct {
    ls_step step;
    const char *text;
  } cases[] = {
      {{.number = 7, .op = LS_OP_CAPTURE, .rows = 5}, "step 0007: in/capture: expected bf16, f16, f32 or f64 [5, 150], found nothing"},
      {{.number = 7, .op = LS_OP_CAPTURE, .rows = 6, .in = five}, "[6, 150], found bf16 [5, 150]"},
      {{.number = 7, .op = LS_OP_CAPTURE, .rows = 5, .in = draft}, "in/capture"},
      {{.number = 7, .op = LS_OP_CAPTURE, .rows = 5, .expect_refused = true}, "in/capture"},
      {{.number = 12, .op = LS_OP_DRAFT_WRITE, .rows = 5, .in = k},
       "step 0012: in/v: expected bf16, f16, f32 or f64 [2, 5, 66], found nothing"},
      {{.number = 12, .op = LS_OP_DRAFT_WRITE, .rows = 4, .in = draft},
       "in/k: expected bf16, f16, f32 or f64 [2, 4, 66], found bf16 [2, 5, 66]"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    ls_error err = {0};
    cr_assert_eq(ls_path_ref.step(s.path, &cases[i].step, NULL, NULL, false, &err), LS_BAD_FIXTURE);
    cr_assert_not_null(strstr(err.text, cases[i].text), "expected \"%s\", found \"%s\"", cases[i].text, err.text);
    ls_trace *after = scene_state(&s);
    cr_assert(scene_same(before, after));
    ls_trace_free(after);
  }
  ls_trace_free(k), ls_trace_free(draft), ls_trace_free(five), ls_trace_free(before);
  scene_close(&s);
}
