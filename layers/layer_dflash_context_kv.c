/* layer_dflash_context_kv: the drafter's context-KV write as data: config fields and their limits, tensors, stages. No arithmetic. */
#include <float.h>
#include <math.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

#include "bound_dflash_context_kv.h"
#include "ls_dflash.h"
#include "ls_problems.h"

/* ---- config ---- */

#define FIELD(field, of) \
  { .name = #field, .kind = of, .offset = offsetof(ls_config, dflash.field) }

static const ls_field fields[] = {
    FIELD(hidden, LS_FIELD_INT),    FIELD(aux_count, LS_FIELD_INT),     FIELD(layers, LS_FIELD_INT), FIELD(num_kv_heads, LS_FIELD_INT),
    FIELD(head_dim, LS_FIELD_INT),  FIELD(ring_capacity, LS_FIELD_INT), FIELD(window, LS_FIELD_INT), FIELD(max_rows, LS_FIELD_INT),
    FIELD(rms_eps, LS_FIELD_FLOAT), FIELD(rope_theta, LS_FIELD_FLOAT),
};

/* A size fits a BLAS int. A tensor has at most 2^40 elements, of at most 8 bytes: 2^43 bytes. The sums that code forms run over one K
 * ring, one V ring, the capture buffer, fc, all layers' projections and norms, and a handful of stages no larger than those: below 2^62
 * by far. layers is bounded as each has tensors of its own by name. */
enum { MAX_LAYERS = 16384 };
static const int64_t max_size = INT32_MAX, max_elements = (int64_t)1 << 40;

static ls_status config_check(ls_config *config, ls_error *err) {
  ls_dflash_config *c = &config->dflash;
  ls_problems p = {.used = 0};
  c->kv_dim = c->fc_in = 0;

  if (config->act != LS_BF16 && config->act != LS_F16)
    ls_problem(&p, "act_dtype: expected bf16 or f16, found %s", ls_dtype_name(config->act));
  ls_problem_size(&p, "hidden", c->hidden, max_size);
  ls_problem_size(&p, "aux_count", c->aux_count, max_size);
  ls_problem_size(&p, "layers", c->layers, MAX_LAYERS);
  ls_problem_size(&p, "num_kv_heads", c->num_kv_heads, max_size);
  ls_problem_size(&p, "head_dim", c->head_dim, max_size);
  ls_problem_size(&p, "ring_capacity", c->ring_capacity, max_size);
  ls_problem_size(&p, "window", c->window, max_size);
  ls_problem_size(&p, "max_rows", c->max_rows, max_size);
  bool sizes_sound = p.used == 0; /* products of unsound sizes say nothing */

  if (c->head_dim % 2 != 0) ls_problem(&p, "head_dim: expected an even number, found %lld", (long long)c->head_dim);
  if (c->window > c->ring_capacity) {
    ls_problem(&p, "window: expected at most ring_capacity %lld, found %lld", (long long)c->ring_capacity, (long long)c->window);
  }
  if (!(c->rms_eps >= 0 && c->rms_eps <= FLT_MAX)) ls_problem(&p, "rms_eps: expected finite and >= 0 in float32, found %g", c->rms_eps);
  /* theta^e, e in [0, 1), then lies between theta and 1: it neither vanishes nor overflows in float32, and 1 / theta^e is finite */
  if (!(c->rope_theta >= FLT_MIN && c->rope_theta <= FLT_MAX)) {
    ls_problem(&p, "rope_theta: expected finite and > 0 (%g .. %g in float32), found %g", FLT_MIN, FLT_MAX, c->rope_theta);
  }

  if (sizes_sound) {
    c->kv_dim = ls_problem_product(&p, "num_kv_heads * head_dim", max_size, c->num_kv_heads, c->head_dim, 1);
    c->fc_in = ls_problem_product(&p, "aux_count * hidden", max_size, c->aux_count, c->hidden, 1);
    if (c->kv_dim > 0 && c->fc_in > 0) {
      ls_problem_product(&p, "hidden * aux_count * hidden (fc)", max_elements, c->hidden, c->fc_in, 1);
      ls_problem_product(&p, "layers * num_kv_heads * head_dim * hidden (k_proj, v_proj)", max_elements, c->layers, c->kv_dim, c->hidden);
      ls_problem_product(&p, "layers * ring_capacity * num_kv_heads * head_dim (k_ring, v_ring)", max_elements, c->layers, c->ring_capacity,
                         c->kv_dim);
      ls_problem_product(&p, "max_rows * aux_count * hidden (capture)", max_elements, c->max_rows, c->fc_in, 1);
    }
  }
  return p.used == 0 ? LS_OK : ls_fail(err, LS_BAD_FIXTURE, "%s", p.text);
}

/* ---- tensors ---- */

enum {
  NORM_TYPES = 1u << LS_BF16 | 1u << LS_F16 | 1u << LS_F32,
  ANY_FLOAT = 1u << LS_BF16 | 1u << LS_F16 | 1u << LS_F32 | 1u << LS_F64 /* converted, or compared as they are */
};

static ls_status weight_specs(const ls_config *config, ls_spec_list *list, ls_error *err) {
  const ls_dflash_config *c = &config->dflash;
  const unsigned act = 1u << config->act;
  LS_TRY(ls_spec_add(list, "fc", 2, (int64_t[]){c->hidden, c->fc_in}, act, true, err));
  LS_TRY(ls_spec_add(list, "hidden_norm", 1, (int64_t[]){c->hidden}, NORM_TYPES, true, err));
  for (int64_t layer = 0; layer < c->layers; layer++) {
    char name[LS_MAX_SPEC_NAME];
    snprintf(name, sizeof name, "layers/%lld/k_proj", (long long)layer);
    LS_TRY(ls_spec_add(list, name, 2, (int64_t[]){c->kv_dim, c->hidden}, act, true, err));
    snprintf(name, sizeof name, "layers/%lld/v_proj", (long long)layer);
    LS_TRY(ls_spec_add(list, name, 2, (int64_t[]){c->kv_dim, c->hidden}, act, true, err));
    snprintf(name, sizeof name, "layers/%lld/k_norm", (long long)layer);
    LS_TRY(ls_spec_add(list, name, 1, (int64_t[]){c->head_dim}, NORM_TYPES, true, err));
  }
  return LS_OK;
}

/* A step that is to be refused may leave its inputs out: what is refused is not read. */
static ls_status input_specs(const ls_config *config, const ls_step *step, ls_spec_list *list, ls_error *err) {
  const ls_dflash_config *c = &config->dflash;
  const bool required = !step->expect_refused;
  const int64_t rows = step->rows > 0 ? step->rows : 0;
  if (step->op == LS_OP_CAPTURE) {
    LS_TRY(ls_spec_add(list, "capture", 2, (int64_t[]){rows, c->fc_in}, ANY_FLOAT, required, err));
  } else if (step->op == LS_OP_DRAFT_WRITE) {
    LS_TRY(ls_spec_add(list, "k", 3, (int64_t[]){c->layers, rows, c->kv_dim}, ANY_FLOAT, required, err));
    LS_TRY(ls_spec_add(list, "v", 3, (int64_t[]){c->layers, rows, c->kv_dim}, ANY_FLOAT, required, err));
  }
  return LS_OK;
}

/* All optional. Rings may be stored after any operation: what it must have left unchanged is a claim too. */
static ls_status expect_specs(const ls_config *config, const ls_step *step, ls_spec_list *list, ls_error *err) {
  const ls_dflash_config *c = &config->dflash;
  if (step->op == LS_OP_CONTEXT_WRITE && !step->expect_refused) {
    const int64_t rows = step->rows > 0 ? step->rows : 0;
    LS_TRY(ls_spec_add(list, "ctx_combined", 2, (int64_t[]){rows, c->hidden}, ANY_FLOAT, false, err));
    LS_TRY(ls_spec_add(list, "ctx_normed", 2, (int64_t[]){rows, c->hidden}, ANY_FLOAT, false, err));
    static const char *const per_layer[] = {"k_proj", "v_proj", "k_norm", "k_rope"};
    for (size_t i = 0; i < sizeof per_layer / sizeof per_layer[0]; i++) {
      LS_TRY(ls_spec_add(list, per_layer[i], 3, (int64_t[]){c->layers, rows, c->kv_dim}, ANY_FLOAT, false, err));
    }
  }
  LS_TRY(ls_spec_add(list, "k_ring", 3, (int64_t[]){c->layers, c->ring_capacity, c->kv_dim}, ANY_FLOAT, false, err));
  LS_TRY(ls_spec_add(list, "v_ring", 3, (int64_t[]){c->layers, c->ring_capacity, c->kv_dim}, ANY_FLOAT, false, err));
  return LS_OK;
}

/* What absent leaves zero. cursor, capture_base and capture_rows are attributes in a fixture and [1] i64 in a state trace. */
static ls_status state_specs(const ls_config *config, ls_spec_list *list, ls_error *err) {
  const ls_dflash_config *c = &config->dflash;
  LS_TRY(ls_spec_add(list, "k_ring", 3, (int64_t[]){c->layers, c->ring_capacity, c->kv_dim}, ANY_FLOAT, false, err));
  LS_TRY(ls_spec_add(list, "v_ring", 3, (int64_t[]){c->layers, c->ring_capacity, c->kv_dim}, ANY_FLOAT, false, err));
  LS_TRY(ls_spec_add(list, "capture", 2, (int64_t[]){c->max_rows, c->fc_in}, ANY_FLOAT, false, err));
  return LS_OK;
}

static const ls_int_attribute state_attributes[] = {{"cursor", offsetof(ls_layer_state, dflash.cursor), 0},
                                                    {"capture_base", offsetof(ls_layer_state, dflash.capture_base), 0},
                                                    {"capture_rows", offsetof(ls_layer_state, dflash.capture_rows), 0}};

static ls_status state_check(const ls_config *config, const ls_layer_state *state, ls_error *err) {
  return ls_dflash_state_check(&config->dflash, &state->dflash, err);
}

/* ---- stages ---- */

static const char gemm_why[] =
    "1 step + 4 sqrt(K) 2^-24 (|x| . |W|^T): float32 sums of K terms in any order, then one rounding that may fall to either side";
static const char norm_why[] = "1 step: the float32 sum of squares differs by order only in the last bits, which moves one rounding";
static const char rope_why[] =
    "1 step + 8 * 2^-24 (|a| + |b|): sine and cosine within 2 ulp of the same float32 angle; where the two terms cancel a step is too "
    "small a unit";
static const char ring_why[] = "state: each slot holds the row of one position, judged by the bound of the stage that wrote it";

static const ls_stage stages[] = {
    {.name = "ctx_combined",
     .math = "GEMM(capture, fc)",
     .axes = "row channel",
     .input = {"capture"},
     .steps = 1,
     .bound = ls_bound_ctx_combined,
     .why = gemm_why},
    {.name = "ctx_normed",
     .math = "RMSNorm(ctx_combined, hidden_norm)",
     .axes = "row channel",
     .input = {"ctx_combined"},
     .steps = 1,
     .bound = ls_bound_ctx_normed,
     .why = norm_why},
    {.name = "k_proj",
     .math = "GEMM(ctx_normed, layers/<l>/k_proj), into the ring slots",
     .axes = "layer row channel",
     .input = {"ctx_normed"},
     .steps = 1,
     .bound = ls_bound_k_proj,
     .why = gemm_why,
     .head_dim_field = 1,
     .head_width = offsetof(ls_config, dflash.head_dim)},
    {.name = "v_proj",
     .math = "GEMM(ctx_normed, layers/<l>/v_proj), into the ring slots",
     .axes = "layer row channel",
     .input = {"ctx_normed"},
     .steps = 1,
     .bound = ls_bound_v_proj,
     .why = gemm_why,
     .head_dim_field = 1,
     .head_width = offsetof(ls_config, dflash.head_dim)},
    {.name = "k_norm",
     .math = "RMSNorm(k_proj, layers/<l>/k_norm) per head, in place in the slot",
     .axes = "layer row channel",
     .input = {"k_proj"},
     .steps = 1,
     .bound = ls_bound_k_norm,
     .why = norm_why,
     .head_dim_field = 1,
     .head_width = offsetof(ls_config, dflash.head_dim)},
    {.name = "k_rope",
     .math = "NeoX RoPE(k_norm) over the whole head at the row's position, in place in the slot",
     .axes = "layer row channel",
     .input = {"k_norm"},
     .steps = 1,
     .bound = ls_bound_k_rope,
     .why = rope_why,
     .head_dim_field = 1,
     .head_width = offsetof(ls_config, dflash.head_dim)},
    {.name = "k_ring",
     .math = "slot of position p = p mod ring_capacity, after the operation",
     .axes = "layer slot channel",
     .input = {"k_rope"},
     .why = ring_why,
     .is_ring = true,
     .head_dim_field = 1,
     .head_width = offsetof(ls_config, dflash.head_dim)},
    {.name = "v_ring",
     .math = "slot of position p = p mod ring_capacity, after the operation",
     .axes = "layer slot channel",
     .input = {"v_proj"},
     .why = ring_why,
     .is_ring = true,
     .head_dim_field = 1,
     .head_width = offsetof(ls_config, dflash.head_dim)},
};

const ls_layer ls_layer_dflash_context_kv = {
    .name = "dflash_context_kv",
    .ops = 1u << LS_OP_CAPTURE | 1u << LS_OP_DRAFT_WRITE | 1u << LS_OP_CONTEXT_WRITE | 1u << LS_OP_REWIND,
    .has_cursor = true,
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
};
