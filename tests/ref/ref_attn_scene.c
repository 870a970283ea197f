#include "ref_attn_scene.h"

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/ls_random.h"

ls_attn_config attn_scene_shape(ls_index_keys index_keys) {
  return (ls_attn_config){.dim = 72,
                          .n_heads = HEADS,
                          .head_dim = HEAD_DIM,
                          .rope_head_dim = 12,
                          .q_lora_rank = 40,
                          .o_lora_rank = 24,
                          .o_groups = 2,
                          .window_size = WINDOW,
                          .index_n_heads = 3,
                          .index_head_dim = 32,
                          .index_topk = TOPK,
                          .candidate_topk_blocks = BLOCKS,
                          .candidate_block_size = BLOCK,
                          .candidate_source_layer = SOURCE,
                          .original_seq_len = 32,
                          .beta_fast = 32,
                          .beta_slow = 1,
                          .max_seq_len = MAX_SEQ,
                          .max_tokens = MAX_TOKENS,
                          .n_layers = LAYERS,
                          .norm_eps = 1e-6,
                          .rope_theta = 1e4,
                          .compress_rope_theta = 4e4,
                          .rope_factor = 4,
                          .index_keys = index_keys,
                          .compress_ratio = {0, RATIO, RATIO, 1, 1, 1},
                          .is_kv_source = {0, 1, 0, 1, 0, 0},
                          .is_index_source = {0, 1, 0, 1, 0, 1}};
}

static ls_trace *weights_of(const ls_config *config) {
  ls_spec_list list = {0};
  ls_trace *weights = scene_trace();
  cr_assert_eq(config->layer->weight_specs(config, &list, NULL), LS_OK);
  for (int i = 0; i < list.n; i++) {
    const ls_tensor_spec *spec = &list.spec[i];
    ls_dtype type = LS_BF16;
    while ((spec->dtypes >> type & 1u) == 0) type++;
    const bool norm = spec->ndim == 1;
    ls_tensor t;
    cr_assert_eq(ls_trace_add(weights, spec->name, type, spec->ndim, spec->dim, &t, NULL), LS_OK);
    ls_generate(&t, spec->name, norm ? 0.3 : 2.0 / sqrt((double)spec->dim[1]), norm ? 1.0 : 0.0);
  }
  ls_spec_free(&list);
  return weights;
}

attn_scene attn_scene_open(ls_index_keys index_keys, ls_precision precision) {
  attn_scene s = {.precision = precision, .config = {.layer = &ls_layer_attn_v41, .act = LS_BF16, .attn = attn_scene_shape(index_keys)}};
  cr_assert_eq(s.config.layer->config_check(&s.config, &s.err), LS_OK, "%s", s.err.text);
  s.weights = weights_of(&s.config);
  attn_scene_reopen(&s);
  return s;
}

void attn_scene_reopen(attn_scene *s) {
  const ls_path_options options = {.precision = s->precision};
  ls_path_ref.close(s->path);
  cr_assert_eq(ls_path_ref.open(&s->path, &s->config, s->weights, &options, &s->err), LS_OK, "%s", s->err.text);
}

void attn_scene_close(attn_scene *s) {
  ls_path_ref.close(s->path);
  ls_trace_free(s->weights);
}

ls_trace *attn_scene_input(const attn_scene *s, int64_t layer, int64_t start, int64_t m) {
  ls_trace *in = scene_trace();
  ls_tensor t;
  cr_assert_eq(ls_trace_add(in, "x", s->config.act, 2, (int64_t[]){m, s->config.attn.dim}, &t, NULL), LS_OK);
  for (int64_t row = 0; row < m; row++) {
    char name[64];
    snprintf(name, sizeof name, "x layer %lld position %lld", (long long)layer, (long long)(start + row));
    const uint64_t seed = ls_fnv1a64(name, strlen(name));
    const ls_tensor one = ls_tensor_at(&t, row);
    for (int64_t i = 0; i < ls_tensor_count(&one); i++) ls_tensor_set(&one, i, ls_generated_at(seed, (uint64_t)i, 1.0, 0.1));
  }
  return in;
}

ls_status attn_scene_try(attn_scene *s, int64_t layer, int64_t start, int64_t m, const ls_trace *in, const ls_trace *given, ls_trace *out) {
  const ls_step step = {.op = LS_OP_FORWARD, .layer = layer, .start_pos = start, .rows = m, .in = (ls_trace *)in};
  s->err = (ls_error){0};
  return ls_path_ref.step(s->path, &step, given, out, true, &s->err);
}

ls_trace *attn_scene_forward(attn_scene *s, int64_t layer, int64_t start, int64_t m, const ls_trace *given) {
  ls_trace *in = attn_scene_input(s, layer, start, m), *out = scene_trace();
  cr_assert_eq(attn_scene_try(s, layer, start, m, in, given, out), LS_OK, "layer %d at %d: %s", (int)layer, (int)start, s->err.text);
  ls_trace_free(in);
  return out;
}

void attn_scene_round(attn_scene *s, int64_t start, int64_t m, ls_trace *out[LAYERS]) {
  for (int64_t layer = 0; layer < LAYERS; layer++) {
    ls_trace *of_layer = attn_scene_forward(s, layer, start, m, NULL);
    if (out != NULL) {
      out[layer] = of_layer;
    } else {
      ls_trace_free(of_layer);
    }
  }
}

void attn_scene_free(ls_trace *out[LAYERS]) {
  for (int layer = 0; layer < LAYERS; layer++) ls_trace_free(out[layer]);
}

void attn_scene_load(attn_scene *s, const ls_trace *state) {
  s->err = (ls_error){0};
  cr_assert_eq(ls_path_ref.load(s->path, state, &s->err), LS_OK, "%s", s->err.text);
}

ls_trace *attn_scene_state(const attn_scene *s) {
  ls_trace *state = scene_trace();
  cr_assert_eq(ls_path_ref.save(s->path, state, NULL), LS_OK);
  return state;
}

const ls_tensor *attn_scene_of(const ls_trace *state, int64_t layer, const char *what) {
  char name[LS_MAX_SPEC_NAME];
  snprintf(name, sizeof name, "layers/%lld/%s", (long long)layer, what);
  return ls_trace_tensor(state, name);
}

bool attn_scene_has_nan(const ls_tensor *t) {
  for (int64_t i = 0; i < ls_tensor_count(t); i++) {
    if (isnan(ls_tensor_get(t, i))) return true;
  }
  return false;
}
