/* The data of attn_v41: its config and what is refused of one, and the tensors it asks for. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "attn_published.h"
#include "layers/ls_layer.h"

/* The six roles at the published widths. */
static ls_config sound(void) {
  ls_config config = {.layer = &ls_layer_attn_v41, .act = LS_BF16};
  ls_attn_config *c = &config.attn;
  static const int64_t ratio[] = {0, 2, 2, 1, 1, 1}, kv[] = {0, 1, 0, 1, 0, 0}, index[] = {0, 1, 0, 1, 0, 1};
  *c = attn_published();
  c->candidate_source_layer = 3;
  c->max_tokens = 160;
  c->n_layers = 6;
  memcpy(c->compress_ratio, ratio, sizeof ratio);
  memcpy(c->is_kv_source, kv, sizeof kv);
  memcpy(c->is_index_source, index, sizeof index);
  return config;
}

static ls_status check(ls_config *config, ls_error *err) { return config->layer->config_check(config, err); }

Test(attn_config, a_sound_one_is_accepted_and_its_derived_fields_are_filled) {
  ls_config config = sound();
  ls_error err = {0};
  cr_assert_eq(check(&config, &err), LS_OK, "%s", err.text);
  cr_assert_eq(config.attn.q_dim, 32768);
  cr_assert_eq(config.attn.group_dim, 4096);
  cr_assert_eq(config.attn.o_dim, 8192);
  cr_assert_eq(config.attn.index_q_dim, 4096);
}

static const ls_field *field(const char *name) {
  for (int i = 0; i < ls_layer_attn_v41.n_fields; i++)
    if (strcmp(ls_layer_attn_v41.fields[i].name, name) == 0) return &ls_layer_attn_v41.fields[i];
  return NULL;
}

static int64_t *int_field(ls_config *config, const char *name) {
  const ls_field *f = field(name);
  cr_assert(f != NULL && f->kind == LS_FIELD_INT, "%s", name);
  return (int64_t *)(void *)((char *)config + f->offset);
}

/* Exactly this one line: a second complaint about one fault would be noise. */
static void refuses(ls_config config, const char *text) {
  ls_error err = {0};
  cr_assert_eq(check(&config, &err), LS_BAD_FIXTURE, "%s: accepted", text);
  cr_assert_str_eq(err.text, text);
}

/* The same where others follow from it. */
static void refuses_too(ls_config config, const char *text) {
  ls_error err = {0};
  cr_assert_eq(check(&config, &err), LS_BAD_FIXTURE, "%s: accepted", text);
  cr_assert_not_null(strstr(err.text, text), "expected \"%s\", found \"%s\"", text, err.text);
  cr_assert_null(strchr(err.text, '\n'));
}

/* sound() with one assignment: `c` is its attn config. */
#define REFUSES(text, ...)            \
  do {                                \
    ls_config config = sound();       \
    ls_attn_config *c = &config.attn; \
    __VA_ARGS__;                      \
    refuses(config, text);            \
  } while (0)

static const char *const sizes[] = {"dim",         "n_heads",     "head_dim",    "rope_head_dim",         "q_lora_rank",
                                    "o_lora_rank", "o_groups",    "window_size", "index_n_heads",         "index_head_dim",
                                    "index_topk",  "max_seq_len", "max_tokens",  "candidate_topk_blocks", "candidate_block_size"};

Test(attn_config, fields_are_those_of_the_fixture_format) {
  static const char *const others[] = {"candidate_source_layer", "original_seq_len", "beta_fast", "beta_slow", "n_layers"};
  static const char *const floats[] = {"norm_eps", "rope_theta", "compress_rope_theta", "rope_factor"};
  static const char *const arrays[] = {"compress_ratio", "is_kv_source", "is_index_source"};
  ls_config config = sound();
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) cr_assert_gt(*int_field(&config, sizes[i]), 0);
  for (size_t i = 0; i < sizeof others / sizeof others[0]; i++) cr_assert_not_null(int_field(&config, others[i]));
  for (int i = 0; i < 4; i++) cr_assert(field(floats[i]) != NULL && field(floats[i])->kind == LS_FIELD_FLOAT, "%s", floats[i]);
  for (int i = 0; i < 3; i++) {
    const ls_field *f = field(arrays[i]);
    cr_assert(f != NULL && f->kind == LS_FIELD_INTS && f->most == LS_ATTN_MAX_LAYERS, "%s", arrays[i]);
    cr_assert_eq(*(const int64_t *)(const void *)((const char *)&config + f->count_offset), 6, "%s has n_layers entries", arrays[i]);
    cr_assert_gt(f, field("n_layers"), "the count is read first");
  }
  const ls_field *keys = field("index_keys");
  cr_assert(keys != NULL && keys->kind == LS_FIELD_WORD && keys->words[2] == NULL);
  cr_assert_str_eq(keys->words[LS_INDEX_KEYS_PUBLISHED], "published");
  cr_assert_str_eq(keys->words[LS_INDEX_KEYS_OWN], "own");
  cr_assert_eq(ls_layer_attn_v41.n_fields, 15 + 5 + 4 + 3 + 1);
}

/* ---- sizes ---- */

Test(attn_config, zero_negative_and_oversized_sizes_are_refused_by_name) {
  static const int64_t bad[] = {0, -1, INT64_MIN, (int64_t)1 << 31, INT64_MAX};
  for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    for (size_t j = 0; j < sizeof bad / sizeof bad[0]; j++) {
      ls_config config = sound();
      char text[128];
      *int_field(&config, sizes[i]) = bad[j];
      snprintf(text, sizeof text, "%s: expected 1 .. 2147483647, found %lld", sizes[i], (long long)bad[j]);
      refuses(config, text);
    }
  }
}

Test(attn_config, a_number_of_layers_outside_1_to_256_is_refused_before_any_array_is_looked_at) {
  REFUSES("n_layers: expected 1 .. 256, found 0", c->n_layers = 0);
  REFUSES("n_layers: expected 1 .. 256, found 257", c->n_layers = 257);
  REFUSES("n_layers: expected 1 .. 256, found -9223372036854775808", c->n_layers = INT64_MIN);
  REFUSES("n_layers: expected 1 .. 256, found 9223372036854775807", c->n_layers = INT64_MAX);
  ls_config config = sound();
  config.attn.n_layers = 256;
  for (int l = 6; l < 256; l++) config.attn.compress_ratio[l] = 1;
  cr_assert_eq(check(&config, NULL), LS_OK);
}

Test(attn_config, candidate_sizes_are_ignored_where_there_is_no_candidate_source) {
  ls_config config = sound();
  config.attn.candidate_source_layer = -1;
  config.attn.candidate_topk_blocks = 0;
  config.attn.candidate_block_size = -5;
  cr_assert_eq(check(&config, NULL), LS_OK);
}

Test(attn_config, sizes_that_do_not_divide_are_refused) {
  REFUSES("o_groups: expected a divisor of n_heads 64, found 7", c->o_groups = 7);
  REFUSES("head_dim: expected a multiple of 32, found 500", c->head_dim = 500);
  REFUSES("index_head_dim: expected a multiple of 32, found 144", c->index_head_dim = 144);
  REFUSES("rope_head_dim: expected an even number, found 63", c->rope_head_dim = 63);
}

Test(attn_config, an_index_head_below_the_rotated_width_is_refused_and_equal_is_not) {
  REFUSES("index_head_dim: expected at least rope_head_dim 64, found 32", c->index_head_dim = 32);
  REFUSES("rope_head_dim: expected at most head_dim 32, found 64", c->head_dim = 32);
  ls_config config = sound();
  config.attn.index_head_dim = config.attn.rope_head_dim = config.attn.head_dim = 64;
  cr_assert_eq(check(&config, NULL), LS_OK);
}

Test(attn_config, window_and_topk_above_2048_are_refused_and_2048_is_not) {
  REFUSES("index_topk: expected at most 2048 with window_size, found 128 + 1921", c->index_topk = 1921);
  REFUSES("index_topk: expected at most 2048 with window_size, found 1537 + 512", c->window_size = 1537);
  ls_config config = sound();
  config.attn.index_topk = 1920;
  cr_assert_eq(check(&config, NULL), LS_OK);
}

Test(attn_config, products_that_overflow_are_refused_by_name) {
  REFUSES("n_heads * head_dim: expected a product of at most 2147483647, found 8388608 * 512 * 1", c->n_heads = 1 << 23);
  REFUSES("o_groups * o_lora_rank: expected a product of at most 2147483647, found 8 * 536870912 * 1", c->o_lora_rank = 1 << 29);
  REFUSES("index_n_heads * index_head_dim: expected a product of at most 2147483647, found 33554432 * 128 * 1", c->index_n_heads = 1 << 25);
  static const struct {
    const char *name;
    int64_t value;
    const char *product;
  } grown[] = {{"q_lora_rank", 1 << 28, "q_lora_rank * dim (wq_a)"},
               {"q_lora_rank", 1 << 26, "n_heads * head_dim * q_lora_rank (wq_b)"},
               {"dim", 1 << 30, "dim * o_groups * o_lora_rank (wo_b)"},
               {"o_lora_rank", 1 << 27, "o_groups * o_lora_rank * group (wo_a)"},
               {"max_seq_len", INT32_MAX, "max_tokens * max_seq_len (index_score)"},
               {"max_tokens", INT32_MAX, "max_tokens * n_heads * head_dim (q)"},
               {"max_tokens", INT32_MAX, "max_tokens * dim (x)"}};
  for (size_t i = 0; i < sizeof grown / sizeof grown[0]; i++) {
    ls_config config = sound();
    if (i == 4) config.attn.max_tokens = 1024;
    *int_field(&config, grown[i].name) = grown[i].value;
    char text[128];
    snprintf(text, sizeof text, "%s: expected a product of at most 1099511627776", grown[i].product);
    refuses_too(config, text);
  }
}

/* ---- roles ---- */

Test(attn_config, a_kv_source_that_is_no_index_source_is_refused) {
  REFUSES("is_index_source: expected 1 on every kv source, found 0 at layer 1", c->is_index_source[1] = 0);
}

Test(attn_config, a_source_flag_at_ratio_0_is_refused) {
  REFUSES("is_kv_source: expected 0 where compress_ratio is 0, found 1 at layer 0", c->is_kv_source[0] = 1);
  REFUSES("is_index_source: expected 0 where compress_ratio is 0, found 1 at layer 0", c->is_index_source[0] = 1);
}

Test(attn_config, flags_other_than_0_and_1_are_refused) {
  REFUSES("is_kv_source: expected 0 or 1, found 2 at layer 1", c->is_kv_source[1] = 2);
  REFUSES("is_index_source: expected 0 or 1, found -1 at layer 1", c->is_index_source[1] = -1);
}

Test(attn_config, a_candidate_source_that_is_no_index_source_is_refused) {
  REFUSES("candidate_source_layer: expected -1 or an index source, found layer 4, which is none", c->candidate_source_layer = 4);
  REFUSES("candidate_source_layer: expected -1 .. 5, found 6", c->candidate_source_layer = 6);
  REFUSES("candidate_source_layer: expected -1 .. 5, found -2", c->candidate_source_layer = -2);
}

Test(attn_config, an_index_source_after_the_candidate_source_with_another_ratio_is_refused) {
  REFUSES(
      "compress_ratio: expected 2, that of the candidate source 1, found 1 at index source 3; "
      "compress_ratio: expected 2, that of the candidate source 1, found 1 at index source 5",
      c->candidate_source_layer = 1);
}

Test(attn_config, a_reader_before_any_kv_source_is_refused) {
  REFUSES("compress_ratio: expected 0 before the first kv source, found 2 at layer 0", c->compress_ratio[0] = 2);
}

Test(attn_config, a_reader_with_another_ratio_than_its_source_is_refused) {
  REFUSES("compress_ratio: expected 2, that of kv source 1, found 1 at layer 2", c->compress_ratio[2] = 1);
  REFUSES("compress_ratio: expected 1, that of kv source 3, found 3 at layer 4", c->compress_ratio[4] = 3);
}

Test(attn_config, a_ratio_below_0_or_above_the_context_is_refused) {
  REFUSES("compress_ratio: expected 0 .. max_seq_len 1048576, found -1 at layer 2", c->compress_ratio[2] = -1);
  REFUSES("compress_ratio: expected 0 .. max_seq_len 1048576, found 1048577 at layer 1", c->compress_ratio[1] = 1048577);
  REFUSES("compress_ratio: expected 0 .. max_seq_len 1048576, found -9223372036854775808 at layer 5", c->compress_ratio[5] = INT64_MIN);
}

/* ---- the rest ---- */

Test(attn_config, floats_must_be_finite_and_positive) {
  static const double bad[] = {0.0, -1.0, INFINITY, NAN, 1e39, 1e-300};
  for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
    ls_config config = sound();
    config.attn.rope_theta = bad[i];
    refuses_too(config, "rope_theta: expected finite and > 0");
    config = sound();
    config.attn.compress_rope_theta = bad[i];
    refuses_too(config, "compress_rope_theta: expected finite and > 0");
    config = sound();
    config.attn.rope_factor = bad[i];
    refuses_too(config, "rope_factor: expected finite and > 0");
  }
  static const double eps[] = {-1e-20, INFINITY, NAN, 1e39};
  for (size_t i = 0; i < sizeof eps / sizeof eps[0]; i++) {
    ls_config config = sound();
    config.attn.norm_eps = eps[i];
    refuses_too(config, "norm_eps: expected finite and >= 0");
  }
  ls_config config = sound();
  config.attn.norm_eps = 0;
  cr_assert_eq(check(&config, NULL), LS_OK);
}

Test(attn_config, yarn_fields_count_only_where_there_is_yarn) {
  REFUSES("beta_fast: expected 1 .. 2147483647, found 0", c->beta_fast = 0);
  REFUSES("beta_slow: expected 1 .. 2147483647, found -1", c->beta_slow = -1);
  REFUSES("original_seq_len: expected 0 (no YaRN) .. 2147483647, found -1", c->original_seq_len = -1);
  REFUSES("compress_rope_theta: expected other than 1 where original_seq_len > 0, found 1", c->compress_rope_theta = 1);
  ls_config config = sound();
  config.attn.original_seq_len = 0;
  config.attn.beta_fast = config.attn.beta_slow = 0;
  config.attn.rope_factor = 0;
  config.attn.compress_rope_theta = 1;
  cr_assert_eq(check(&config, NULL), LS_OK);
}

Test(attn_config, other_activation_types_and_unknown_index_keys_are_refused) {
  REFUSES("act_dtype: expected bf16, found f16", (void)c; config.act = LS_F16);
  REFUSES("index_keys: expected published or own, found 2", c->index_keys = 2);
}

Test(attn_config, all_problems_are_listed_in_one_line) {
  REFUSES(
      "o_groups: expected a divisor of n_heads 64, found 7; head_dim: expected a multiple of 32, found 500; is_index_source: "
      "expected 1 on every kv source, found 0 at layer 1",
      c->o_groups = 7;
      c->head_dim = 500; c->is_index_source[1] = 0);
}

Test(attn_config, line_of_problems_never_overruns) {
  ls_config config = sound();
  for (int i = 0; i < config.layer->n_fields; i++)
    if (config.layer->fields[i].kind == LS_FIELD_INT) *int_field(&config, config.layer->fields[i].name) = INT64_MIN + 1;
  ls_error err = {0};
  cr_assert_eq(check(&config, &err), LS_BAD_FIXTURE);
  cr_assert_lt(strlen(err.text), LS_ERROR_TEXT);
  config = sound();
  config.attn.n_layers = 256;
  for (int l = 0; l < 256; l++) config.attn.is_kv_source[l] = config.attn.is_index_source[l] = INT64_MIN;
  err = (ls_error){0};
  cr_assert_eq(check(&config, &err), LS_BAD_FIXTURE);
  cr_assert_lt(strlen(err.text), LS_ERROR_TEXT);
}

/* ---- specs ---- */

static const ls_tensor_spec *find(const ls_spec_list *list, const char *name) {
  const ls_tensor_spec *found = NULL;
  for (int i = 0; i < list->n; i++) {
    if (strcmp(list->spec[i].name, name) != 0) continue;
    cr_assert_null(found, "%s twice", name);
    found = &list->spec[i];
  }
  return found;
}

static void expect_spec(const ls_spec_list *list, const char *name, int64_t rows, int64_t columns, unsigned dtypes, bool required) {
  const ls_tensor_spec *s = find(list, name);
  cr_assert_not_null(s, "%s", name);
  cr_assert(s->ndim == (columns > 0 ? 2 : 1) && s->dim[0] == rows && (columns == 0 || s->dim[1] == columns), "%s: [%d, %d]", name,
            (int)s->dim[0], (int)s->dim[1]);
  cr_assert_eq(s->dtypes, dtypes, "%s", name);
  cr_assert_eq(s->required, required, "%s", name);
}

enum {
  BF16 = 1u << LS_BF16,
  F32 = 1u << LS_F32,
  NORM = BF16 | F32 | 1u << LS_F16,
  ANY = NORM | 1u << LS_F64,
  I32 = 1u << LS_I32,
  U8 = 1u << LS_U8
};

static ls_config checked(void) {
  ls_config config = sound();
  cr_assert_eq(check(&config, NULL), LS_OK);
  return config;
}

Test(attn_specs, weights_are_those_of_each_role) {
  const ls_config config = checked();
  ls_spec_list list = {0};
  cr_assert_eq(config.layer->weight_specs(&config, &list, NULL), LS_OK);
  expect_spec(&list, "layers/0/attn_sink", 64, 0, F32, true);
  expect_spec(&list, "layers/0/wq_a", 1280, 5120, BF16, true);
  expect_spec(&list, "layers/0/q_norm", 1280, 0, NORM, true);
  expect_spec(&list, "layers/0/wq_b", 32768, 1280, BF16, true);
  expect_spec(&list, "layers/0/wkv", 512, 5120, BF16, true);
  expect_spec(&list, "layers/0/kv_norm", 512, 0, NORM, true);
  expect_spec(&list, "layers/0/wo_a", 8192, 4096, BF16, true);
  expect_spec(&list, "layers/0/wo_b", 5120, 8192, BF16, true);
  expect_spec(&list, "layers/1/compressor/wkv", 512, 5120, F32, true);
  expect_spec(&list, "layers/1/compressor/wgate", 512, 5120, F32, true);
  expect_spec(&list, "layers/1/compressor/norm", 512, 0, NORM, true);
  expect_spec(&list, "layers/1/indexer/wq_b", 4096, 1280, BF16, true);
  expect_spec(&list, "layers/1/indexer/weights_proj", 32, 5120, BF16, true);
  expect_spec(&list, "layers/1/indexer/wk", 128, 512, BF16, true);
  expect_spec(&list, "layers/1/indexer/k_norm", 128, 0, NORM, true);
  expect_spec(&list, "layers/3/compressor/wkv", 512, 5120, BF16, true);
  cr_assert_null(find(&list, "layers/3/compressor/wgate"), "ratio 1 has no gate");
  expect_spec(&list, "layers/5/indexer/wq_b", 4096, 1280, BF16, true);
  cr_assert_null(find(&list, "layers/5/indexer/wk"), "a reindexer makes no keys");
  cr_assert_null(find(&list, "layers/2/indexer/wq_b"), "a reader selects nothing");
  cr_assert_eq(list.n, 6 * 8 + 7 + 6 + 2);
  ls_spec_free(&list);
}

static ls_spec_list stages_of(const ls_config *config, int64_t layer, int64_t start, int64_t m, bool refused) {
  ls_spec_list list = {0};
  const ls_step step = {.op = LS_OP_FORWARD, .layer = layer, .start_pos = start, .rows = m, .expect_refused = refused};
  cr_assert_eq(config->layer->expect_specs(config, &step, &list, NULL), LS_OK);
  return list;
}

Test(attn_specs, a_prefill_of_a_candidate_source_may_hold_every_stage) {
  const ls_config config = checked();
  ls_spec_list list = stages_of(&config, 3, 0, 100, false);
  for (int i = 0; i < config.layer->n_stages; i++) {
    const char *name = config.layer->stages[i].name;
    const bool pools = strcmp(name, "kv_state") == 0 || strcmp(name, "score_state") == 0;
    cr_assert((find(&list, name) == NULL) == pools, "%s", name);
  }
  expect_spec(&list, "q", 100, 32768, ANY, false);
  expect_spec(&list, "window", 128, 512, ANY, false);
  expect_spec(&list, "window_idx", 100, 100, I32, false);
  expect_spec(&list, "latent", 100, 512, ANY, false);
  expect_spec(&list, "index_k", 100, 128, ANY, false);
  expect_spec(&list, "index_score", 100, 100, ANY, false);
  expect_spec(&list, "candidates", 100, 100, U8, false);
  expect_spec(&list, "compress_idx", 100, 100, I32, false);
  expect_spec(&list, "idx", 100, 200, I32, false);
  expect_spec(&list, "out", 100, 5120, ANY, false);
  cr_assert_eq(find(&list, "window_idx")->below, 100);
  cr_assert_eq(find(&list, "compress_idx")->below, 200);
  cr_assert_eq(find(&list, "idx")->below, 200);
  cr_assert_eq(find(&list, "candidates")->below, 2);
  cr_assert_eq(find(&list, "out")->below, 0);
  ls_spec_free(&list);
}

Test(attn_specs, a_stage_that_a_step_does_not_have_is_not_asked_for) {
  const ls_config config = checked();
  ls_spec_list list = stages_of(&config, 1, 1000, 1, false); /* leaves a group of two open */
  cr_assert_null(find(&list, "latent"));
  cr_assert_null(find(&list, "compress_kv"));
  expect_spec(&list, "kv_state", 2, 512, ANY, false);
  expect_spec(&list, "compress_idx", 1, 500, I32, false);
  expect_spec(&list, "idx", 1, 628, I32, false);
  ls_spec_free(&list);
  list = stages_of(&config, 1, 0, 1, false); /* sees nothing */
  cr_assert(find(&list, "compress_idx") == NULL && find(&list, "index_q") == NULL && find(&list, "index_score") == NULL);
  ls_spec_free(&list);
  list = stages_of(&config, 4, 2000, 1, false); /* a reader */
  cr_assert(find(&list, "compress_idx") == NULL && find(&list, "candidates") == NULL && find(&list, "latent") == NULL);
  expect_spec(&list, "idx", 1, 640, I32, false);
  ls_spec_free(&list);
  list = stages_of(&config, 0, 2000, 1, false);
  expect_spec(&list, "idx", 1, 128, I32, false);
  cr_assert_eq(find(&list, "idx")->below, 128);
  ls_spec_free(&list);
  list = stages_of(&config, 5, 2000, 1, true); /* refused: the unchanged ring alone */
  cr_assert_eq(list.n, 1);
  expect_spec(&list, "window", 128, 512, ANY, false);
  ls_spec_free(&list);
}

Test(attn_specs, x_is_required_unless_the_step_is_refused) {
  const ls_config config = checked();
  for (int refused = 0; refused < 2; refused++) {
    ls_spec_list list = {0};
    const ls_step step = {.op = LS_OP_FORWARD, .rows = 7, .expect_refused = refused != 0};
    cr_assert_eq(config.layer->input_specs(&config, &step, &list, NULL), LS_OK);
    cr_assert_eq(list.n, 1);
    expect_spec(&list, "x", 7, 5120, ANY, refused == 0);
    ls_spec_free(&list);
  }
}

Test(attn_specs, state_has_rings_and_the_caches_of_kv_sources) {
  const ls_config config = checked();
  ls_spec_list list = {0};
  cr_assert_eq(config.layer->state_specs(&config, &list, NULL), LS_OK);
  for (int l = 0; l < 6; l++) {
    char name[64];
    snprintf(name, sizeof name, "layers/%d/window", l);
    expect_spec(&list, name, 128, 512, ANY, false);
    cr_assert_not(find(&list, name)->partial);
  }
  expect_spec(&list, "layers/1/compress_cache", 524288, 512, ANY, false);
  expect_spec(&list, "layers/1/index_cache", 524288, 128, ANY, false);
  expect_spec(&list, "layers/3/compress_cache", 1048576, 512, ANY, false);
  cr_assert(find(&list, "layers/3/compress_cache")->partial && find(&list, "layers/1/index_cache")->partial);
  expect_spec(&list, "layers/1/kv_state", 2, 512, ANY, false);
  expect_spec(&list, "layers/1/score_state", 2, 512, ANY, false);
  cr_assert(find(&list, "layers/1/score_state")->minus_inf && !find(&list, "layers/1/kv_state")->minus_inf);
  cr_assert_eq(list.n, 6 + 4 + 2);
  ls_spec_free(&list);
}

/* ---- stages ---- */

Test(attn_stages, names_are_unique_and_inputs_come_earlier) {
  const ls_layer *layer = &ls_layer_attn_v41;
  for (int i = 0; i < layer->n_stages; i++) {
    const ls_stage *s = &layer->stages[i];
    cr_assert_eq(ls_stage_find(layer, s->name), s, "%s twice", s->name);
    cr_assert(s->math != NULL && s->axes != NULL && s->why != NULL, "%s", s->name);
    for (int k = 0; k < LS_MAX_INPUTS && s->input[k] != NULL; k++) {
      const ls_stage *input = ls_stage_find(layer, s->input[k]);
      cr_assert(strcmp(s->input[k], "x") == 0 || (input != NULL && input < s), "%s reads %s", s->name, s->input[k]);
    }
  }
}

Test(attn_stages, a_stage_is_held_in_the_type_of_layers_md) {
  const ls_config config = checked();
  static const struct {
    const char *stage;
    ls_dtype dtype;
  } types[] = {{"kv", LS_BF16},          {"kv_state", LS_F32},  {"score_state", LS_F32}, {"window_idx", LS_I32},
               {"compress_idx", LS_I32}, {"candidates", LS_U8}, {"idx", LS_I32},         {"out", LS_BF16}};
  for (size_t i = 0; i < sizeof types / sizeof types[0]; i++)
    cr_assert_eq(ls_stage_type(&config, ls_stage_find(config.layer, types[i].stage)), types[i].dtype, "%s", types[i].stage);
}
