/* layer_attn_v41: compressed sparse attention as data: config fields and their limits, tensors, stages. No arithmetic. */
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "bound_attn_v41.h"
#include "ls_attn.h"
#include "ls_problems.h"

typedef long long ll;

/* ---- config ---- */

#define FIELD(field, of) \
  { .name = #field, .kind = of, .offset = offsetof(ls_config, attn.field) }
#define LAYER_FIELD(field)                                                                                                                \
  {                                                                                                                                       \
    .name = #field, .kind = LS_FIELD_INTS, .offset = offsetof(ls_config, attn.field), .count_offset = offsetof(ls_config, attn.n_layers), \
    .most = LS_ATTN_MAX_LAYERS                                                                                                            \
  }

static const char *const index_keys_words[] = {"published", "own", NULL}; /* by ls_index_keys */

static const ls_field fields[] = {
    FIELD(dim, LS_FIELD_INT),
    FIELD(n_heads, LS_FIELD_INT),
    FIELD(head_dim, LS_FIELD_INT),
    FIELD(rope_head_dim, LS_FIELD_INT),
    FIELD(q_lora_rank, LS_FIELD_INT),
    FIELD(o_lora_rank, LS_FIELD_INT),
    FIELD(o_groups, LS_FIELD_INT),
    FIELD(window_size, LS_FIELD_INT),
    FIELD(index_n_heads, LS_FIELD_INT),
    FIELD(index_head_dim, LS_FIELD_INT),
    FIELD(index_topk, LS_FIELD_INT),
    FIELD(candidate_topk_blocks, LS_FIELD_INT),
    FIELD(candidate_block_size, LS_FIELD_INT),
    FIELD(candidate_source_layer, LS_FIELD_INT),
    FIELD(original_seq_len, LS_FIELD_INT),
    FIELD(beta_fast, LS_FIELD_INT),
    FIELD(beta_slow, LS_FIELD_INT),
    FIELD(max_seq_len, LS_FIELD_INT),
    FIELD(max_tokens, LS_FIELD_INT),
    FIELD(n_layers, LS_FIELD_INT),
    FIELD(norm_eps, LS_FIELD_FLOAT),
    FIELD(rope_theta, LS_FIELD_FLOAT),
    FIELD(compress_rope_theta, LS_FIELD_FLOAT),
    FIELD(rope_factor, LS_FIELD_FLOAT),
    {.name = "index_keys", .kind = LS_FIELD_WORD, .offset = offsetof(ls_config, attn.index_keys), .words = index_keys_words},
    LAYER_FIELD(compress_ratio),
    LAYER_FIELD(is_kv_source),
    LAYER_FIELD(is_index_source),
};

static const int64_t max_size = INT32_MAX, max_elements = (int64_t)1 << 40;
enum { MAX_SELECTED = 2048 }; /* window + index_topk: layers.md */

static void check_sizes(ls_problems *p, const ls_attn_config *c) {
  ls_problem_size(p, "dim", c->dim, max_size);
  ls_problem_size(p, "n_heads", c->n_heads, max_size);
  ls_problem_size(p, "head_dim", c->head_dim, max_size);
  ls_problem_size(p, "rope_head_dim", c->rope_head_dim, max_size);
  ls_problem_size(p, "q_lora_rank", c->q_lora_rank, max_size);
  ls_problem_size(p, "o_lora_rank", c->o_lora_rank, max_size);
  ls_problem_size(p, "o_groups", c->o_groups, max_size);
  ls_problem_size(p, "window_size", c->window_size, max_size);
  ls_problem_size(p, "index_n_heads", c->index_n_heads, max_size);
  ls_problem_size(p, "index_head_dim", c->index_head_dim, max_size);
  ls_problem_size(p, "index_topk", c->index_topk, max_size);
  ls_problem_size(p, "max_seq_len", c->max_seq_len, max_size);
  ls_problem_size(p, "max_tokens", c->max_tokens, max_size);
  ls_problem_size(p, "n_layers", c->n_layers, LS_ATTN_MAX_LAYERS);
  if (c->candidate_source_layer != -1) { /* else both are ignored */
    ls_problem_size(p, "candidate_topk_blocks", c->candidate_topk_blocks, max_size);
    ls_problem_size(p, "candidate_block_size", c->candidate_block_size, max_size);
  }
}

static void check_divisions(ls_problems *p, const ls_attn_config *c) {
  if (c->n_heads % c->o_groups != 0)
    ls_problem(p, "o_groups: expected a divisor of n_heads %lld, found %lld", (ll)c->n_heads, (ll)c->o_groups);
  if (c->head_dim % 32 != 0) ls_problem(p, "head_dim: expected a multiple of 32, found %lld", (ll)c->head_dim);
  if (c->index_head_dim % 32 != 0) ls_problem(p, "index_head_dim: expected a multiple of 32, found %lld", (ll)c->index_head_dim);
  if (c->rope_head_dim % 2 != 0) ls_problem(p, "rope_head_dim: expected an even number, found %lld", (ll)c->rope_head_dim);
  if (c->rope_head_dim > c->head_dim)
    ls_problem(p, "rope_head_dim: expected at most head_dim %lld, found %lld", (ll)c->head_dim, (ll)c->rope_head_dim);
  if (c->index_head_dim < c->rope_head_dim)
    ls_problem(p, "index_head_dim: expected at least rope_head_dim %lld, found %lld", (ll)c->rope_head_dim, (ll)c->index_head_dim);
  if (c->window_size + c->index_topk > MAX_SELECTED)
    ls_problem(p, "index_topk: expected at most %d with window_size, found %lld + %lld", MAX_SELECTED, (ll)c->window_size,
               (ll)c->index_topk);
}

static void check_floats(ls_problems *p, const ls_attn_config *c) {
  const struct {
    const char *name;
    double value;
  } theta[] = {{"rope_theta", c->rope_theta}, {"compress_rope_theta", c->compress_rope_theta}};
  for (int i = 0; i < 2; i++) {
    if (!(theta[i].value >= FLT_MIN && theta[i].value <= FLT_MAX))
      ls_problem(p, "%s: expected finite and > 0 (%g .. %g in float32), found %g", theta[i].name, FLT_MIN, FLT_MAX, theta[i].value);
  }
  if (!(c->norm_eps >= 0 && c->norm_eps <= FLT_MAX)) ls_problem(p, "norm_eps: expected finite and >= 0 in float32, found %g", c->norm_eps);
  if (c->original_seq_len < 0 || c->original_seq_len > max_size)
    ls_problem(p, "original_seq_len: expected 0 (no YaRN) .. %lld, found %lld", (ll)max_size, (ll)c->original_seq_len);
  if (c->original_seq_len <= 0) return;
  ls_problem_size(p, "beta_fast", c->beta_fast, max_size);
  ls_problem_size(p, "beta_slow", c->beta_slow, max_size);
  if (!(c->rope_factor >= FLT_MIN && c->rope_factor <= FLT_MAX))
    ls_problem(p, "rope_factor: expected finite and > 0 in float32, found %g", c->rope_factor);
  if (c->compress_rope_theta == 1.0) ls_problem(p, "compress_rope_theta: expected other than 1 where original_seq_len > 0, found 1");
}

/* Who reads what from whom, layer by layer. */
static void check_roles(ls_problems *p, const ls_attn_config *c) {
  const int64_t candidate = c->candidate_source_layer;
  int64_t source = -1; /* the last kv source */
  for (int64_t l = 0; l < c->n_layers; l++) {
    const int64_t ratio = c->compress_ratio[l], kv = c->is_kv_source[l], index = c->is_index_source[l];
    if (!(ratio >= 0 && ratio <= c->max_seq_len)) {
      ls_problem(p, "compress_ratio: expected 0 .. max_seq_len %lld, found %lld at layer %lld", (ll)c->max_seq_len, (ll)ratio, (ll)l);
      return;
    }
    if (kv != 0 && kv != 1) ls_problem(p, "is_kv_source: expected 0 or 1, found %lld at layer %lld", (ll)kv, (ll)l);
    if (index != 0 && index != 1) ls_problem(p, "is_index_source: expected 0 or 1, found %lld at layer %lld", (ll)index, (ll)l);
    if (ratio == 0 && kv != 0) ls_problem(p, "is_kv_source: expected 0 where compress_ratio is 0, found %lld at layer %lld", (ll)kv, (ll)l);
    if (ratio == 0 && index != 0)
      ls_problem(p, "is_index_source: expected 0 where compress_ratio is 0, found %lld at layer %lld", (ll)index, (ll)l);
    if (ratio == 0) continue;
    if (kv != 0 && index == 0) ls_problem(p, "is_index_source: expected 1 on every kv source, found 0 at layer %lld", (ll)l);
    if (kv != 0) source = l;
    if (source < 0) {
      ls_problem(p, "compress_ratio: expected 0 before the first kv source, found %lld at layer %lld", (ll)ratio, (ll)l);
    } else if (ratio != c->compress_ratio[source]) {
      ls_problem(p, "compress_ratio: expected %lld, that of kv source %lld, found %lld at layer %lld", (ll)c->compress_ratio[source],
                 (ll)source, (ll)ratio, (ll)l);
    }
    if (index != 0 && candidate >= 0 && candidate < c->n_layers && l > candidate && ratio != c->compress_ratio[candidate])
      ls_problem(p, "compress_ratio: expected %lld, that of the candidate source %lld, found %lld at index source %lld",
                 (ll)c->compress_ratio[candidate], (ll)candidate, (ll)ratio, (ll)l);
  }
  if (!(candidate >= -1 && candidate < c->n_layers)) {
    ls_problem(p, "candidate_source_layer: expected -1 .. %lld, found %lld", (ll)c->n_layers - 1, (ll)candidate);
  } else if (candidate >= 0 && c->is_index_source[candidate] == 0) {
    ls_problem(p, "candidate_source_layer: expected -1 or an index source, found layer %lld, which is none", (ll)candidate);
  }
}

/* Every product that later code forms. */
static void check_products(ls_problems *p, ls_attn_config *c) {
  c->q_dim = ls_problem_product(p, "n_heads * head_dim", max_size, c->n_heads, c->head_dim, 1);
  c->o_dim = ls_problem_product(p, "o_groups * o_lora_rank", max_size, c->o_groups, c->o_lora_rank, 1);
  c->index_q_dim = ls_problem_product(p, "index_n_heads * index_head_dim", max_size, c->index_n_heads, c->index_head_dim, 1);
  if (c->q_dim == 0 || c->o_dim == 0 || c->index_q_dim == 0) return;
  c->group_dim = c->q_dim / c->o_groups;
  ls_problem_product(p, "q_lora_rank * dim (wq_a)", max_elements, c->q_lora_rank, c->dim, 1);
  ls_problem_product(p, "n_heads * head_dim * q_lora_rank (wq_b)", max_elements, c->q_dim, c->q_lora_rank, 1);
  ls_problem_product(p, "head_dim * dim (wkv)", max_elements, c->head_dim, c->dim, 1);
  ls_problem_product(p, "o_groups * o_lora_rank * group (wo_a)", max_elements, c->o_dim, c->group_dim, 1);
  ls_problem_product(p, "dim * o_groups * o_lora_rank (wo_b)", max_elements, c->dim, c->o_dim, 1);
  ls_problem_product(p, "index_n_heads * index_head_dim * q_lora_rank (indexer/wq_b)", max_elements, c->index_q_dim, c->q_lora_rank, 1);
  ls_problem_product(p, "index_head_dim * head_dim (indexer/wk)", max_elements, c->index_head_dim, c->head_dim, 1);
  ls_problem_product(p, "index_n_heads * dim (indexer/weights_proj)", max_elements, c->index_n_heads, c->dim, 1);
  ls_problem_product(p, "max_seq_len * head_dim (compress_cache)", max_elements, c->max_seq_len, c->head_dim, 1);
  ls_problem_product(p, "max_seq_len * index_head_dim (index_cache)", max_elements, c->max_seq_len, c->index_head_dim, 1);
  ls_problem_product(p, "max_tokens * n_heads * head_dim (q)", max_elements, c->max_tokens, c->q_dim, 1);
  ls_problem_product(p, "max_tokens * dim (x)", max_elements, c->max_tokens, c->dim, 1);
  ls_problem_product(p, "max_tokens * max_seq_len (index_score)", max_elements, c->max_tokens, c->max_seq_len, 1);
}

static ls_status config_check(ls_config *config, ls_error *err) {
  ls_attn_config *c = &config->attn;
  ls_problems p = {.used = 0};
  c->q_dim = c->group_dim = c->o_dim = c->index_q_dim = 0;
  if (config->act != LS_BF16) ls_problem(&p, "act_dtype: expected bf16, found %s", ls_dtype_name(config->act));
  check_sizes(&p, c);
  const bool sizes_sound = p.used == 0; /* the rest of unsound sizes says nothing */
  check_floats(&p, c);
  if (c->index_keys != LS_INDEX_KEYS_PUBLISHED && c->index_keys != LS_INDEX_KEYS_OWN)
    ls_problem(&p, "index_keys: expected published or own, found %lld", (ll)c->index_keys);
  if (sizes_sound) {
    check_divisions(&p, c);
    check_roles(&p, c);
    check_products(&p, c);
  }
  return p.used == 0 ? LS_OK : ls_fail(err, LS_BAD_FIXTURE, "%s", p.text);
}

/* ---- tensors ---- */

enum {
  NORM_TYPES = 1u << LS_BF16 | 1u << LS_F16 | 1u << LS_F32,
  ANY_FLOAT = 1u << LS_BF16 | 1u << LS_F16 | 1u << LS_F32 | 1u << LS_F64, /* converted, or compared as they are */
  F32_ONLY = 1u << LS_F32,
  INDEX_TYPES = 1u << LS_I32,
  MASK_TYPES = 1u << LS_U8
};

/* A tensor of one layer: "layers/<l>/<name>", of rank 1 where columns is 0. */
static ls_status add_layer_tensor(ls_spec_list *list, int64_t layer, const char *name, int64_t rows, int64_t columns, unsigned types,
                                  bool required, ls_error *err) {
  char full[LS_MAX_SPEC_NAME];
  snprintf(full, sizeof full, "layers/%lld/%s", (ll)layer, name);
  return ls_spec_add(list, full, columns > 0 ? 2 : 1, (int64_t[]){rows, columns}, types, required, err);
}

static ls_status weight_specs(const ls_config *config, ls_spec_list *list, ls_error *err) {
  const ls_attn_config *c = &config->attn;
  const unsigned act = 1u << config->act;
  for (int64_t l = 0; l < c->n_layers; l++) {
    LS_TRY(add_layer_tensor(list, l, "attn_sink", c->n_heads, 0, F32_ONLY, true, err));
    LS_TRY(add_layer_tensor(list, l, "wq_a", c->q_lora_rank, c->dim, act, true, err));
    LS_TRY(add_layer_tensor(list, l, "q_norm", c->q_lora_rank, 0, NORM_TYPES, true, err));
    LS_TRY(add_layer_tensor(list, l, "wq_b", c->q_dim, c->q_lora_rank, act, true, err));
    LS_TRY(add_layer_tensor(list, l, "wkv", c->head_dim, c->dim, act, true, err));
    LS_TRY(add_layer_tensor(list, l, "kv_norm", c->head_dim, 0, NORM_TYPES, true, err));
    LS_TRY(add_layer_tensor(list, l, "wo_a", c->o_dim, c->group_dim, act, true, err));
    LS_TRY(add_layer_tensor(list, l, "wo_b", c->dim, c->o_dim, act, true, err));
    if (ls_attn_is_kv_source(c, l)) {
      const bool pools = c->compress_ratio[l] > 1;
      LS_TRY(add_layer_tensor(list, l, "compressor/wkv", c->head_dim, c->dim, pools ? F32_ONLY : act, true, err));
      if (pools) LS_TRY(add_layer_tensor(list, l, "compressor/wgate", c->head_dim, c->dim, F32_ONLY, true, err));
      LS_TRY(add_layer_tensor(list, l, "compressor/norm", c->head_dim, 0, NORM_TYPES, true, err));
      LS_TRY(add_layer_tensor(list, l, "indexer/wk", c->index_head_dim, c->head_dim, act, true, err));
      LS_TRY(add_layer_tensor(list, l, "indexer/k_norm", c->index_head_dim, 0, NORM_TYPES, true, err));
    }
    if (ls_attn_is_index_source(c, l)) {
      LS_TRY(add_layer_tensor(list, l, "indexer/wq_b", c->index_q_dim, c->q_lora_rank, act, true, err));
      LS_TRY(add_layer_tensor(list, l, "indexer/weights_proj", c->index_n_heads, c->dim, act, true, err));
    }
  }
  return LS_OK;
}

/* A step that is to be refused may leave its input out: what is refused is not read. */
static ls_status input_specs(const ls_config *config, const ls_step *step, ls_spec_list *list, ls_error *err) {
  const int64_t m = step->rows > 0 ? step->rows : 0;
  return ls_spec_add(list, "x", 2, (int64_t[]){m, config->attn.dim}, ANY_FLOAT, !step->expect_refused, err);
}

/* All optional. A stage that the step does not have (no rows, no columns) is not asked for. */
static ls_status add_stage(ls_spec_list *list, const char *stage, int64_t rows, int64_t columns, unsigned types, ls_error *err) {
  if (rows == 0 || columns == 0) return LS_OK;
  return ls_spec_add(list, stage, 2, (int64_t[]){rows, columns}, types, false, err);
}

/* The same for indices and masks, whose values are below a limit. */
static ls_status add_choice(ls_spec_list *list, const char *stage, int64_t rows, int64_t columns, unsigned types, int64_t below,
                            ls_error *err) {
  const int before = list->n;
  LS_TRY(add_stage(list, stage, rows, columns, types, err));
  if (list->n > before) list->spec[before].below = below;
  return LS_OK;
}

static ls_status expect_specs(const ls_config *config, const ls_step *step, ls_spec_list *list, ls_error *err) {
  const ls_attn_config *c = &config->attn;
  LS_TRY(add_stage(list, "window", c->window_size, c->head_dim, ANY_FLOAT, err)); /* of a refused step: unchanged */
  ls_attn_plan p;
  ls_attn_plan_shapes(c, step, &p);
  if (step->expect_refused || p.m == 0) return LS_OK;
  const int64_t m = p.m, own_k = p.index_source ? p.k : 0;
  const int64_t pools = p.kv_source && p.ratio > 1 ? p.ratio : 0, scored = p.index_source && p.n > 0 ? m : 0;
  LS_TRY(add_stage(list, "qr_proj", m, c->q_lora_rank, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "qr", m, c->q_lora_rank, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "q_proj", m, c->q_dim, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "q", m, c->q_dim, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "kv_proj", m, c->head_dim, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "kv_norm", m, c->head_dim, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "kv_rope", m, c->head_dim, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "kv", m, c->head_dim, ANY_FLOAT, err));
  LS_TRY(add_choice(list, "window_idx", m, p.wk, INDEX_TYPES, p.rows_a, err));
  LS_TRY(add_stage(list, "latent_pool", p.g, c->head_dim, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "kv_state", pools, c->head_dim, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "score_state", pools, c->head_dim, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "latent", p.g, c->head_dim, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "index_k_proj", p.g, c->index_head_dim, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "index_k_norm", p.g, c->index_head_dim, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "index_k_rope", p.g, c->index_head_dim, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "index_k", p.g, c->index_head_dim, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "index_q_proj", scored, c->index_q_dim, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "index_q_rope", scored, c->index_q_dim, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "index_q", scored, c->index_q_dim, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "index_w_proj", scored, c->index_n_heads, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "index_w", scored, c->index_n_heads, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "index_score", scored, p.n, ANY_FLOAT, err));
  LS_TRY(add_choice(list, "candidates", p.candidate_source ? m : 0, p.n, MASK_TYPES, 2, err));
  LS_TRY(add_choice(list, "compress_idx", m, own_k, INDEX_TYPES, p.rows_a + p.n, err));
  LS_TRY(add_stage(list, "compress_kv_rope", p.g, c->head_dim, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "compress_kv", p.g, c->head_dim, ANY_FLOAT, err));
  LS_TRY(add_choice(list, "idx", m, p.wk + p.k, INDEX_TYPES, p.rows_a + p.n, err));
  LS_TRY(add_stage(list, "sparse_o", m, c->q_dim, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "o_rot", m, c->q_dim, ANY_FLOAT, err));
  LS_TRY(add_stage(list, "o_group", m, c->o_dim, ANY_FLOAT, err));
  return add_stage(list, "out", m, c->dim, ANY_FLOAT, err);
}

static ls_status state_specs(const ls_config *config, ls_spec_list *list, ls_error *err) {
  const ls_attn_config *c = &config->attn;
  for (int64_t l = 0; l < c->n_layers; l++) {
    LS_TRY(add_layer_tensor(list, l, "window", c->window_size, c->head_dim, ANY_FLOAT, false, err));
    if (!ls_attn_is_kv_source(c, l)) continue;
    const int64_t rows = ls_attn_cache_rows(c, l);
    LS_TRY(add_layer_tensor(list, l, "compress_cache", rows, c->head_dim, ANY_FLOAT, false, err));
    list->spec[list->n - 1].partial = true;
    LS_TRY(add_layer_tensor(list, l, "index_cache", rows, c->index_head_dim, ANY_FLOAT, false, err));
    list->spec[list->n - 1].partial = true;
    if (c->compress_ratio[l] <= 1) continue;
    LS_TRY(add_layer_tensor(list, l, "kv_state", c->compress_ratio[l], c->head_dim, ANY_FLOAT, false, err));
    LS_TRY(add_layer_tensor(list, l, "score_state", c->compress_ratio[l], c->head_dim, ANY_FLOAT, false, err));
    list->spec[list->n - 1].minus_inf = true;
  }
  return LS_OK;
}

static const ls_int_attribute state_attributes[] = {{"position", offsetof(ls_layer_state, attn.position), 0},
                                                    {"compress_source", offsetof(ls_layer_state, attn.compress_source), -1},
                                                    {"index_source", offsetof(ls_layer_state, attn.index_source), -1}};

static ls_status state_check(const ls_config *config, const ls_layer_state *state, ls_error *err) {
  return ls_attn_state_check(&config->attn, &state->attn, err);
}

/* ---- stages ---- */

static const char gemm_why[] =
    "1 step + 4 sqrt(K) 2^-24 (|x| . |W|^T): float32 sums of K terms in any order, then one rounding that may fall to either side";
static const char sums_why[] = "5 sqrt(2 K) 2^-24 times the root mean square of the partial sums: never rounded";
static const char rounded_sums_why[] = "1 step + 5 sqrt(2 K) 2^-24 times the root mean square of the partial sums";
static const char norm_why[] = "1 step: the float32 sum of squares differs by order only in the last bits, which moves one rounding";
static const char rope_why[] =
    "1 step + 8 * 2^-24 (|a| + |b|): sine and cosine within 2 ulp of the same float32 angle; where the two terms cancel a step is too "
    "small a unit";
static const char grid_why[] =
    "exact on the grid: another code only where the value before rounding lies within its bound of a midpoint, another scale only where "
    "amax lies within its bound of a power of two";
static const char state_why[] = "state: each slot holds the row of one position, judged by the bound of the stage that wrote it";
static const char choice_why[] =
    "exact by the scores of the path that chose; between paths entries within both scores' bounds of the k-th may swap";

#define HEADS       .head_dim_field = 1, .head_width = offsetof(ls_config, attn.head_dim)
#define INDEX_HEADS .head_dim_field = 1, .head_width = offsetof(ls_config, attn.index_head_dim)

static const ls_stage stages[] = {
    {.name = "qr_proj",
     .math = "GEMM(x, wq_a)",
     .axes = "row channel",
     .input = {"x"},
     .steps = 1,
     .bound = ls_bound_attn_qr_proj,
     .why = gemm_why,
     .finer = true},
    {.name = "qr",
     .math = "RMSNorm(qr_proj, q_norm)",
     .axes = "row channel",
     .input = {"qr_proj"},
     .steps = 1,
     .bound = ls_bound_attn_qr,
     .why = norm_why},
    {.name = "q_proj",
     .math = "GEMM(qr, wq_b)",
     .axes = "row channel",
     .input = {"qr"},
     .steps = 1,
     .bound = ls_bound_attn_q_proj,
     .why = gemm_why,
     .finer = true,
     HEADS},
    {.name = "q",
     .math = "RoPE(q_proj) on each head's tail",
     .axes = "row channel",
     .input = {"q_proj"},
     .steps = 1,
     .bound = ls_bound_attn_q,
     .why = rope_why,
     HEADS},
    {.name = "kv_proj",
     .math = "GEMM(x, wkv)",
     .axes = "row channel",
     .input = {"x"},
     .steps = 1,
     .bound = ls_bound_attn_kv_proj,
     .why = gemm_why,
     .finer = true},
    {.name = "kv_norm",
     .math = "RMSNorm(kv_proj, kv_norm)",
     .axes = "row channel",
     .input = {"kv_proj"},
     .steps = 1,
     .bound = ls_bound_attn_kv_norm,
     .why = norm_why,
     .finer = true},
    {.name = "kv_rope",
     .math = "RoPE(kv_norm) on the tail",
     .axes = "row channel",
     .input = {"kv_norm"},
     .steps = 1,
     .bound = ls_bound_attn_kv_rope,
     .why = rope_why,
     .finer = true},
    {.name = "kv",
     .math = "fp8 round trip of kv_rope, blocks of 32",
     .axes = "row channel",
     .input = {"kv_rope"},
     .bound = ls_bound_attn_kv,
     .why = grid_why},
    {.name = "window",
     .math = "slot of position p = p mod window_size, after the step",
     .axes = "slot channel",
     .input = {"kv"},
     .bound = ls_bound_attn_window,
     .why = state_why},
    {.name = "window_idx",
     .math = "which window rows each query sees, -1 last or where the ring is empty",
     .axes = "row entry",
     .why = "exact",
     .holds = LS_HOLDS_INDICES},
    {.name = "latent_pool",
     .math = "ratio 1: GEMM(x, compressor/wkv); above: softmax-weighted sum of a group's rows",
     .axes = "latent channel",
     .input = {"x"},
     .steps = 1,
     .bound = ls_bound_attn_latent_pool,
     .why = "1 step + the float32 errors of both GEMMs through the softmax",
     .finer = true},
    {.name = "kv_state",
     .math = "x . compressor/wkv^T of the open group's tokens, after the step",
     .axes = "slot channel",
     .input = {"x"},
     .bound = ls_bound_attn_kv_state,
     .why = sums_why,
     .holds = LS_HOLDS_F32,
     .finer = true},
    {.name = "score_state",
     .math = "x . compressor/wgate^T of the open group's tokens, after the step",
     .axes = "slot channel",
     .input = {"x"},
     .bound = ls_bound_attn_score_state,
     .why = sums_why,
     .holds = LS_HOLDS_F32,
     .finer = true},
    {.name = "latent",
     .math = "RMSNorm(latent_pool, compressor/norm)",
     .axes = "latent channel",
     .input = {"latent_pool"},
     .steps = 1,
     .bound = ls_bound_attn_latent,
     .why = norm_why},
    {.name = "index_k_proj",
     .math = "GEMM(latent, indexer/wk)",
     .axes = "latent channel",
     .input = {"latent"},
     .steps = 1,
     .bound = ls_bound_attn_index_k_proj,
     .why = gemm_why,
     .finer = true},
    {.name = "index_k_norm",
     .math = "RMSNorm(index_k_proj, indexer/k_norm)",
     .axes = "latent channel",
     .input = {"index_k_proj"},
     .steps = 1,
     .bound = ls_bound_attn_index_k_norm,
     .why = norm_why,
     .finer = true},
    {.name = "index_k_rope",
     .math = "RoPE(index_k_norm) on the tail at the group's position",
     .axes = "latent channel",
     .input = {"index_k_norm"},
     .steps = 1,
     .bound = ls_bound_attn_index_k_rope,
     .why = rope_why,
     .finer = true},
    {.name = "index_k",
     .math = "fp4 round trip of index_k_rope, blocks of 32, power-of-two scales",
     .axes = "latent channel",
     .input = {"index_k_rope"},
     .bound = ls_bound_attn_index_k,
     .why = grid_why},
    {.name = "index_q_proj",
     .math = "GEMM(qr, indexer/wq_b)",
     .axes = "row channel",
     .input = {"qr"},
     .steps = 1,
     .bound = ls_bound_attn_index_q_proj,
     .why = gemm_why,
     .finer = true,
     INDEX_HEADS},
    {.name = "index_q_rope",
     .math = "RoPE(index_q_proj) on each head's tail",
     .axes = "row channel",
     .input = {"index_q_proj"},
     .steps = 1,
     .bound = ls_bound_attn_index_q_rope,
     .why = rope_why,
     .finer = true,
     INDEX_HEADS},
    {.name = "index_q",
     .math = "fp4 round trip of index_q_rope, blocks of 32, power-of-two scales",
     .axes = "row channel",
     .input = {"index_q_rope"},
     .bound = ls_bound_attn_index_q,
     .why = grid_why,
     INDEX_HEADS},
    {.name = "index_w_proj",
     .math = "GEMM(x, indexer/weights_proj)",
     .axes = "row head",
     .input = {"x"},
     .steps = 1,
     .bound = ls_bound_attn_index_w_proj,
     .why = rounded_sums_why,
     .finer = true},
    {.name = "index_w",
     .math = "index_w_proj * index_head_dim^-0.5 * index_n_heads^-0.5",
     .axes = "row head",
     .input = {"index_w_proj"},
     .steps = 1,
     .bound = ls_bound_attn_index_w,
     .why = "1 step: one product"},
    {.name = "index_score",
     .math = "sum over heads of relu(index_q . index_k) * index_w",
     .axes = "row position",
     .input = {"index_q", "index_k", "index_w"},
     .steps = 1,
     .bound = ls_bound_attn_index_score,
     .why = "1 step + per head the bf16 roundings of dot product and product that the float32 error may flip"},
    {.name = "candidates",
     .math = "the best blocks of index_score, the newest one among them",
     .axes = "row position",
     .input = {"index_score"},
     .why = choice_why,
     .holds = LS_HOLDS_MASK},
    {.name = "compress_idx",
     .math = "the index_topk best positions, ascending, -1 last",
     .axes = "row entry",
     .input = {"index_score"},
     .why = choice_why,
     .holds = LS_HOLDS_SELECTION},
    {.name = "compress_kv_rope",
     .math = "RoPE(latent) on the tail at the group's position",
     .axes = "latent channel",
     .input = {"latent"},
     .steps = 1,
     .bound = ls_bound_attn_compress_kv_rope,
     .why = rope_why,
     .finer = true},
    {.name = "compress_kv",
     .math = "fp4 round trip of compress_kv_rope, blocks of 16, e4m3 scales",
     .axes = "latent channel",
     .input = {"compress_kv_rope"},
     .bound = ls_bound_attn_compress_kv,
     .why = grid_why},
    {.name = "idx",
     .math = "window_idx, then the published selection",
     .axes = "row entry",
     .input = {"window_idx", "compress_idx"},
     .why = "exact",
     .holds = LS_HOLDS_INDICES},
    {.name = "sparse_o",
     .math = "softmax with sink over the selected rows",
     .axes = "row channel",
     .input = {"q", "window", "compress_kv", "idx"},
     .steps = 1,
     .bound = ls_bound_attn_sparse_o,
     .why = "1 step + the scores' float32 error through the softmax + the rounding of the probabilities to bf16",
     HEADS},
    {.name = "o_rot",
     .math = "inverse RoPE(sparse_o) on each head's tail",
     .axes = "row channel",
     .input = {"sparse_o"},
     .steps = 1,
     .bound = ls_bound_attn_o_rot,
     .why = rope_why,
     HEADS},
    {.name = "o_group",
     .math = "GEMM of each group of heads with its part of wo_a",
     .axes = "row channel",
     .input = {"o_rot"},
     .steps = 1,
     .bound = ls_bound_attn_o_group,
     .why = gemm_why},
    {.name = "out",
     .math = "GEMM(o_group, wo_b)",
     .axes = "row channel",
     .input = {"o_group"},
     .steps = 1,
     .bound = ls_bound_attn_out,
     .why = gemm_why},
};

const ls_layer ls_layer_attn_v41 = {
    .name = "attn_v41",
    .ops = 1u << LS_OP_FORWARD,
    .fields = fields,
    .n_fields = sizeof fields / sizeof fields[0],
    .stages = stages,
    .n_stages = sizeof stages / sizeof stages[0],
    .config_check = config_check,
    .weight_specs = weight_specs,
    .input_specs = input_specs,
    .expect_specs = expect_specs,
    .state_specs = state_specs,
    .state_attributes = state_attributes,
    .n_state_attributes = sizeof state_attributes / sizeof state_attributes[0],
    .state_check = state_check,
    .state_bounds = ls_bound_attn_state,
};
