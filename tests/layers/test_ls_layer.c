#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "layers/ls_layer.h"

Test(layer, is_found_by_its_exact_name_only) {
  cr_assert_eq(ls_layer_find("dflash_context_kv"), &ls_layer_dflash_context_kv);
  cr_assert_eq(ls_layer_find("attn_v41"), &ls_layer_attn_v41);
  cr_assert_null(ls_layer_find("dflash_context_k"));
  cr_assert_null(ls_layer_find("dflash_context_kv "));
  cr_assert_null(ls_layer_find(""));
  cr_assert_null(ls_layer_find(NULL));
}

Test(layer, stage_is_found_by_its_exact_name_only) {
  const ls_layer *layer = &ls_layer_dflash_context_kv;
  for (int i = 0; i < layer->n_stages; i++) cr_assert_eq(ls_stage_find(layer, layer->stages[i].name), &layer->stages[i]);
  cr_assert_null(ls_stage_find(layer, "k_nor"));
  cr_assert_null(ls_stage_find(layer, ""));
  cr_assert_null(ls_stage_find(layer, NULL));
  cr_assert_null(ls_stage_find(NULL, "k_norm"));
}

Test(layer, operations_are_named_as_in_the_fixture_format) {
  cr_assert_str_eq(ls_op_name(LS_OP_CAPTURE), "capture");
  cr_assert_str_eq(ls_op_name(LS_OP_DRAFT_WRITE), "draft_write");
  cr_assert_str_eq(ls_op_name(LS_OP_CONTEXT_WRITE), "context_write");
  cr_assert_str_eq(ls_op_name(LS_OP_REWIND), "rewind");
  cr_assert_str_eq(ls_op_name(LS_OP_FORWARD), "forward");
  cr_assert_str_eq(ls_op_name(LS_OPS), "unknown operation");
}

Test(layer, attributes_of_an_operation_are_those_of_the_fixture_format) {
  static const char *const expected[LS_OPS] = {"base=1 rows=2 ", "base=1 rows=2 ", "rows=2 ", "position=3 ", "layer=4 start_pos=5 "};
  const ls_step step = {.base = 1, .rows = 2, .position = 3, .layer = 4, .start_pos = 5};
  for (int op = 0; op <= LS_OPS; op++) {
    char text[64] = "";
    int n = -1;
    const ls_int_attribute *a = ls_op_attributes((ls_op)op, &n);
    cr_assert_geq(n, 0);
    for (int i = 0; i < n; i++) {
      const size_t used = strlen(text);
      snprintf(text + used, sizeof text - used, "%s=%d ", a[i].name,
               (int)*(const int64_t *)(const void *)((const char *)&step + a[i].offset));
    }
    cr_assert_str_eq(text, op < LS_OPS ? expected[op] : "");
  }
}

Test(layer, spec_list_grows_and_keeps_what_was_added) {
  ls_spec_list list = {0};
  for (int64_t i = 0; i < 1000; i++) {
    char name[32];
    snprintf(name, sizeof name, "tensor %d", (int)i);
    cr_assert_eq(ls_spec_add(&list, name, 2, (int64_t[]){i, 2 * i}, 1u << LS_F16, i % 2 == 0, NULL), LS_OK);
  }
  cr_assert_eq(list.n, 1000);
  for (int64_t i = 0; i < 1000; i++) {
    char name[32];
    snprintf(name, sizeof name, "tensor %d", (int)i);
    const ls_tensor_spec *s = &list.spec[i];
    cr_assert_str_eq(s->name, name);
    cr_assert(s->ndim == 2 && s->dim[0] == i && s->dim[1] == 2 * i && s->dim[2] == 1 && s->dim[3] == 1);
    cr_assert_eq(s->dtypes, 1u << LS_F16);
    cr_assert_eq(s->required, i % 2 == 0);
  }
  ls_spec_free(&list);
  cr_assert(list.spec == NULL && list.n == 0 && list.room == 0);
  ls_spec_free(NULL);
}

Test(layer, spec_with_a_name_or_rank_that_does_not_fit_is_refused) {
  ls_spec_list list = {0};
  char name[LS_MAX_SPEC_NAME + 1];
  memset(name, 'n', LS_MAX_SPEC_NAME);
  name[LS_MAX_SPEC_NAME] = '\0';
  int64_t dim[LS_MAX_DIMS + 1] = {1, 1, 1, 1, 1};
  ls_error err = {0};
  cr_assert_eq(ls_spec_add(&list, name, 1, dim, 1, true, &err), LS_INTERNAL);
  name[LS_MAX_SPEC_NAME - 1] = '\0';
  cr_assert_eq(ls_spec_add(&list, name, LS_MAX_DIMS + 1, dim, 1, true, NULL), LS_INTERNAL);
  cr_assert_eq(list.n, 0);
  cr_assert_eq(ls_spec_add(&list, name, LS_MAX_DIMS, dim, 1, true, NULL), LS_OK);
  cr_assert_str_eq(list.spec[0].name, name);
  ls_spec_free(&list);
}

Test(layer, config_text_names_every_field_and_never_overruns) {
  ls_config config = {.layer = &ls_layer_dflash_context_kv, .act = LS_F16};
  config.dflash = (ls_dflash_config){96, 3, 2, 4, 32, 24, 16, 8, 1e-6, 1e7, 0, 0};
  char full[512];
  cr_assert_str_eq(ls_config_text(full, sizeof full, &config),
                   "dflash_context_kv, f16, hidden 96, aux_count 3, layers 2, num_kv_heads 4, head_dim 32, ring_capacity 24, window 16, "
                   "max_rows 8, rms_eps 1e-06, rope_theta 1e+07");
  for (size_t size = 1; size <= strlen(full) + 1; size++) {
    char text[512];
    memset(text, '!', sizeof text);
    cr_assert_eq(ls_config_text(text, size, &config), text);
    cr_assert_eq(strncmp(text, full, size - 1), 0);
    cr_assert_eq(text[size - 1], '\0');
    cr_assert_eq(text[size], '!');
  }
}

Test(layer, config_text_names_words_and_arrays) {
  ls_config config = {.layer = &ls_layer_attn_v41, .act = LS_BF16};
  config.attn.n_layers = 3;
  config.attn.compress_ratio[1] = 2;
  config.attn.compress_ratio[2] = 128;
  config.attn.index_keys = LS_INDEX_KEYS_OWN;
  char full[1024];
  ls_config_text(full, sizeof full, &config);
  cr_assert_not_null(strstr(full, ", n_layers 3, "), "%s", full);
  cr_assert_not_null(strstr(full, ", index_keys own, compress_ratio 0/2/128, is_kv_source 0/0/0, "), "%s", full);
  for (size_t size = 1; size <= strlen(full) + 1; size++) {
    char text[1024];
    memset(text, '#', sizeof text);
    ls_config_text(text, size, &config);
    cr_assert_eq(strlen(text), size - 1);
    cr_assert_eq(strncmp(text, full, size - 1), 0);
    cr_assert_eq(text[size], '#', "nothing is written past %d bytes", (int)size);
  }
}
