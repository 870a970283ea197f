#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "layers/ls_layer.h"

static ls_config published(void) {
  ls_config config = {.layer = &ls_layer_dflash_context_kv, .act = LS_BF16};
  config.dflash = (ls_dflash_config){.hidden = 5120,
                                     .aux_count = 5,
                                     .layers = 5,
                                     .num_kv_heads = 8,
                                     .head_dim = 128,
                                     .ring_capacity = 2176,
                                     .window = 2048,
                                     .max_rows = 2048,
                                     .rms_eps = 1e-6,
                                     .rope_theta = 1e7};
  return config;
}

static ls_status check(ls_config *config, ls_error *err) { return config->layer->config_check(config, err); }

Test(dflash_config, published_shape_is_accepted_and_its_derived_fields_are_filled) {
  ls_config config = published();
  cr_assert_eq(check(&config, NULL), LS_OK);
  cr_assert_eq(config.dflash.kv_dim, 1024);
  cr_assert_eq(config.dflash.fc_in, 25600);
}

static int64_t *int_field(ls_config *config, const char *name) {
  for (int i = 0; i < config->layer->n_fields; i++) {
    const ls_field *f = &config->layer->fields[i];
    if (strcmp(f->name, name) == 0 && f->kind == LS_FIELD_INT) return (int64_t *)(void *)((char *)config + f->offset);
  }
  return NULL;
}

static double *float_field(ls_config *config, const char *name) {
  for (int i = 0; i < config->layer->n_fields; i++) {
    const ls_field *f = &config->layer->fields[i];
    if (strcmp(f->name, name) == 0 && f->kind == LS_FIELD_FLOAT) return (double *)(void *)((char *)config + f->offset);
  }
  return NULL;
}

static void expect_bad(ls_config *config, const char *text) {
  ls_error err = {0};
  cr_assert_eq(check(config, &err), LS_BAD_FIXTURE, "%s: accepted", text);
  cr_assert_not_null(strstr(err.text, text), "expected \"%s\", found \"%s\"", text, err.text);
  cr_assert_null(strchr(err.text, '\n'));
}

Test(dflash_config, fields_are_those_of_the_fixture_format) {
  static const char *const ints[] = {"hidden", "aux_count", "layers", "num_kv_heads", "head_dim", "ring_capacity", "window", "max_rows"};
  ls_config config = published();
  cr_assert_eq(config.layer->n_fields, 10);
  for (int i = 0; i < 8; i++) cr_assert_not_null(int_field(&config, ints[i]), "%s", ints[i]);
  cr_assert_eq(*int_field(&config, "ring_capacity"), 2176);
  cr_assert_eq(*float_field(&config, "rms_eps"), 1e-6);
  cr_assert_eq(*float_field(&config, "rope_theta"), 1e7);
}

Test(dflash_config, zero_negative_and_oversized_sizes_are_refused_by_name) {
  static const char *const ints[] = {"hidden", "aux_count", "layers", "num_kv_heads", "head_dim", "ring_capacity", "window", "max_rows"};
  static const int64_t bad[] = {0, -1, -2, INT64_MIN, (int64_t)1 << 31, (int64_t)1 << 32, INT64_MAX};
  for (int i = 0; i < 8; i++) {
    for (size_t j = 0; j < sizeof bad / sizeof bad[0]; j++) {
      ls_config config = published();
      char text[128];
      *int_field(&config, ints[i]) = bad[j];
      snprintf(text, sizeof text, "%s: expected 1 .. %s, found %lld", ints[i], i == 2 ? "16384" : "2147483647", (long long)bad[j]);
      expect_bad(&config, text);
    }
  }
}

Test(dflash_config, odd_head_dim_is_refused) {
  ls_config config = published();
  config.dflash.head_dim = 127;
  expect_bad(&config, "head_dim: expected an even number, found 127");
}

Test(dflash_config, window_above_ring_capacity_is_refused_and_equal_is_not) {
  ls_config config = published();
  config.dflash.window = 2177;
  expect_bad(&config, "window: expected at most ring_capacity 2176, found 2177");
  config.dflash.window = 2176;
  cr_assert_eq(check(&config, NULL), LS_OK);
}

Test(dflash_config, eps_must_be_finite_and_not_negative) {
  static const double bad[] = {-1e-6, -INFINITY, INFINITY, NAN, 1e39}, good[] = {0.0, 1e-20, 1.0};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    ls_config config = published();
    config.dflash.rms_eps = bad[i];
    expect_bad(&config, "rms_eps: expected finite and >= 0");
  }
  for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
    ls_config config = published();
    config.dflash.rms_eps = good[i];
    cr_assert_eq(check(&config, NULL), LS_OK, "eps %g", good[i]);
  }
}

Test(dflash_config, theta_must_be_finite_and_positive) {
  static const double bad[] = {0.0, -0.0, -1e7, INFINITY, NAN, 1e39, 1e-300};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    ls_config config = published();
    config.dflash.rope_theta = bad[i];
    expect_bad(&config, "rope_theta: expected finite and > 0");
  }
}

Test(dflash_config, products_that_overflow_are_refused_by_name) {
  ls_config config = published();
  config.dflash.num_kv_heads = INT32_MAX;
  expect_bad(&config, "num_kv_heads * head_dim: expected a product of at most 2147483647, found 2147483647 * 128");
  config = published();
  config.dflash.aux_count = INT32_MAX;
  expect_bad(&config, "aux_count * hidden: expected a product of at most 2147483647, found 2147483647 * 5120");
  config = published();
  config.dflash.hidden = 1 << 20;
  expect_bad(&config, "(fc)");
  config = published();
  config.dflash.num_kv_heads = 1 << 20;
  expect_bad(&config, "(k_proj, v_proj)");
  config = published();
  config.dflash.ring_capacity = INT32_MAX;
  expect_bad(&config, "(k_ring, v_ring)");
  config = published();
  config.dflash.max_rows = INT32_MAX;
  expect_bad(&config, "(capture)");
}

Test(dflash_config, largest_sizes_of_every_field_at_once_do_not_overflow) {
  ls_config config = published();
  for (int i = 0; i < config.layer->n_fields; i++) {
    if (config.layer->fields[i].kind == LS_FIELD_INT) *int_field(&config, config.layer->fields[i].name) = INT32_MAX - 1;
  }
  config.dflash.layers = 16384;
  expect_bad(&config, "num_kv_heads * head_dim");
}

Test(dflash_config, all_problems_are_listed_in_one_line) {
  ls_config config = published();
  config.dflash.hidden = 0;
  config.dflash.head_dim = 7;
  config.dflash.window = 4000;
  config.dflash.rms_eps = NAN;
  config.act = LS_F32;
  ls_error err = {0};
  cr_assert_eq(check(&config, &err), LS_BAD_FIXTURE);
  cr_assert_str_eq(err.text,
                   "act_dtype: expected bf16 or f16, found f32; hidden: expected 1 .. 2147483647, found 0; head_dim: expected an even "
                   "number, found 7; window: expected at most ring_capacity 2176, found 4000; rms_eps: expected finite and >= 0 in "
                   "float32, found nan");
}

Test(dflash_config, line_of_problems_never_overruns) {
  ls_config config = published();
  for (int i = 0; i < config.layer->n_fields; i++) {
    if (config.layer->fields[i].kind == LS_FIELD_INT) *int_field(&config, config.layer->fields[i].name) = INT64_MIN + 1;
  }
  config.dflash.rms_eps = -1.7976931348623157e308;
  config.dflash.rope_theta = -1.7976931348623157e308;
  config.act = LS_I32;
  ls_error err = {0};
  cr_assert_eq(check(&config, &err), LS_BAD_FIXTURE);
  cr_assert_lt(strlen(err.text), LS_ERROR_TEXT);
}

/* ---- specs ---- */

static const ls_tensor_spec *find(const ls_spec_list *list, const char *name) {
  for (int i = 0; i < list->n; i++) {
    if (strcmp(list->spec[i].name, name) == 0) return &list->spec[i];
  }
  return NULL;
}

static void expect_spec(const ls_spec_list *list, const char *name, int ndim, int64_t a, int64_t b, int64_t c, unsigned dtypes,
                        bool required) {
  const ls_tensor_spec *s = find(list, name);
  cr_assert_not_null(s, "%s", name);
  cr_assert(s->ndim == ndim && s->dim[0] == a && s->dim[1] == b && s->dim[2] == c, "%s", name);
  cr_assert_eq(s->dtypes, dtypes, "%s", name);
  cr_assert_eq(s->required, required, "%s", name);
}

enum { NORM = 1u << LS_BF16 | 1u << LS_F16 | 1u << LS_F32, ANY = NORM | 1u << LS_F64 };

Test(dflash_specs, gemm_weights_have_the_activation_type_and_norm_weights_one_of_three) {
  for (int act = LS_BF16; act <= LS_F16; act++) {
    ls_config config = published();
    ls_spec_list list = {0};
    config.act = (ls_dtype)act;
    cr_assert_eq(check(&config, NULL), LS_OK);
    cr_assert_eq(config.layer->weight_specs(&config, &list, NULL), LS_OK);
    cr_assert_eq(list.n, 2 + 3 * 5);
    expect_spec(&list, "fc", 2, 5120, 25600, 1, 1u << act, true);
    expect_spec(&list, "hidden_norm", 1, 5120, 1, 1, NORM, true);
    expect_spec(&list, "layers/0/k_proj", 2, 1024, 5120, 1, 1u << act, true);
    expect_spec(&list, "layers/4/v_proj", 2, 1024, 5120, 1, 1u << act, true);
    expect_spec(&list, "layers/3/k_norm", 1, 128, 1, 1, NORM, true);
    ls_spec_free(&list);
  }
}

Test(dflash_specs, inputs_follow_the_operation) {
  ls_config config = published();
  cr_assert_eq(check(&config, NULL), LS_OK);
  ls_spec_list list = {0};
  ls_step step = {.op = LS_OP_CAPTURE, .rows = 7};
  cr_assert_eq(config.layer->input_specs(&config, &step, &list, NULL), LS_OK);
  cr_assert_eq(list.n, 1);
  expect_spec(&list, "capture", 2, 7, 25600, 1, ANY, true);
  ls_spec_free(&list);

  step.op = LS_OP_DRAFT_WRITE;
  cr_assert_eq(config.layer->input_specs(&config, &step, &list, NULL), LS_OK);
  cr_assert_eq(list.n, 2);
  expect_spec(&list, "k", 3, 5, 7, 1024, ANY, true);
  expect_spec(&list, "v", 3, 5, 7, 1024, ANY, true);
  ls_spec_free(&list);

  step.op = LS_OP_CONTEXT_WRITE;
  cr_assert_eq(config.layer->input_specs(&config, &step, &list, NULL), LS_OK);
  step.op = LS_OP_REWIND;
  cr_assert_eq(config.layer->input_specs(&config, &step, &list, NULL), LS_OK);
  cr_assert_eq(list.n, 0);
  ls_spec_free(&list);
}

Test(dflash_specs, refused_step_need_not_hold_inputs_and_has_no_negative_shape) {
  ls_config config = published();
  cr_assert_eq(check(&config, NULL), LS_OK);
  ls_spec_list list = {0};
  ls_step step = {.op = LS_OP_CAPTURE, .rows = -3, .expect_refused = true};
  cr_assert_eq(config.layer->input_specs(&config, &step, &list, NULL), LS_OK);
  expect_spec(&list, "capture", 2, 0, 25600, 1, ANY, false);
  ls_spec_free(&list);
}

Test(dflash_specs, expected_stages_are_optional_and_a_refused_write_has_only_rings) {
  ls_config config = published();
  cr_assert_eq(check(&config, NULL), LS_OK);
  ls_spec_list list = {0};
  ls_step step = {.op = LS_OP_CONTEXT_WRITE, .rows = 3};
  cr_assert_eq(config.layer->expect_specs(&config, &step, &list, NULL), LS_OK);
  cr_assert_eq(list.n, config.layer->n_stages);
  expect_spec(&list, "ctx_combined", 2, 3, 5120, 1, ANY, false);
  expect_spec(&list, "ctx_normed", 2, 3, 5120, 1, ANY, false);
  expect_spec(&list, "k_proj", 3, 5, 3, 1024, ANY, false);
  expect_spec(&list, "v_proj", 3, 5, 3, 1024, ANY, false);
  expect_spec(&list, "k_norm", 3, 5, 3, 1024, ANY, false);
  expect_spec(&list, "k_rope", 3, 5, 3, 1024, ANY, false);
  expect_spec(&list, "k_ring", 3, 5, 2176, 1024, ANY, false);
  expect_spec(&list, "v_ring", 3, 5, 2176, 1024, ANY, false);
  ls_spec_free(&list);

  step.expect_refused = true;
  cr_assert_eq(config.layer->expect_specs(&config, &step, &list, NULL), LS_OK);
  cr_assert_eq(list.n, 2);
  cr_assert_not_null(find(&list, "k_ring"));
  cr_assert_not_null(find(&list, "v_ring"));
  ls_spec_free(&list);
}

Test(dflash_specs, state_holds_rings_and_capture_buffer) {
  ls_config config = published();
  cr_assert_eq(check(&config, NULL), LS_OK);
  ls_spec_list list = {0};
  cr_assert_eq(config.layer->state_specs(&config, &list, NULL), LS_OK);
  cr_assert_eq(list.n, 3);
  expect_spec(&list, "k_ring", 3, 5, 2176, 1024, ANY, false);
  expect_spec(&list, "v_ring", 3, 5, 2176, 1024, ANY, false);
  expect_spec(&list, "capture", 2, 2048, 25600, 1, ANY, false);
  ls_spec_free(&list);
}

/* ---- stages ---- */

Test(dflash_stages, each_reads_only_inputs_and_earlier_stages_and_has_a_bound_with_a_reason) {
  const ls_layer *layer = &ls_layer_dflash_context_kv;
  static const char *const names[] = {"ctx_combined", "ctx_normed", "k_proj", "v_proj", "k_norm", "k_rope", "k_ring", "v_ring"};
  static const char *const reads[] = {"capture", "ctx_combined", "ctx_normed", "ctx_normed", "k_proj", "k_norm", "k_rope", "v_proj"};
  cr_assert_eq(layer->n_stages, 8);
  for (int i = 0; i < layer->n_stages; i++) {
    const ls_stage *s = &layer->stages[i];
    cr_assert_str_eq(s->name, names[i]);
    cr_assert_str_eq(s->input[0], reads[i]);
    cr_assert_null(s->input[1]);
    if (i > 0) cr_assert_lt(ls_stage_find(layer, s->input[0]), s);
    cr_assert_eq(s->is_ring, strstr(s->name, "_ring") != NULL);
    cr_assert_eq(s->bound == NULL, s->is_ring);
    cr_assert_eq(s->steps, s->is_ring ? 0 : 1);
    cr_assert(s->why != NULL && strlen(s->why) > 20 && s->math != NULL);
    cr_assert_str_eq(s->axes, s->is_ring ? "layer slot channel" : i < 2 ? "row channel" : "layer row channel");
    cr_assert_eq(s->head_dim_field, i >= 2);
  }
}
