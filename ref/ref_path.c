/* ref_path: the reference behind ls_path. A step is the list of its stages, in order; each stage is a formula in ref_*.c. */
#include <stdlib.h>

#include "../core/ls_gemm.h"
#include "../layers/ls_path.h"
#include "ref_attn.h"
#include "ref_check.h"
#include "ref_dflash.h"

/* One layer is open, the other NULL. */
typedef struct {
  ls_ref_dflash *dflash;
  ls_ref_attn *attn;
} ref_path;

/* The promise of ls_gemm for every inner dimension that the layer multiplies over. */
static ls_status selftest(const ls_config *config, ls_error *err) {
  const ls_attn_config *a = &config->attn;
  if (config->layer == &ls_layer_dflash_context_kv) {
    LS_TRY(ls_gemm_selftest(config->dflash.fc_in, err));
    return ls_gemm_selftest(config->dflash.hidden, err);
  }
  LS_TRY(ls_gemm_selftest(a->dim, err));
  LS_TRY(ls_gemm_selftest(a->q_lora_rank, err));
  LS_TRY(ls_gemm_selftest(a->head_dim, err));
  LS_TRY(ls_gemm_selftest(a->group_dim, err));
  return ls_gemm_selftest(a->o_dim, err);
}

static void ref_close(void *ctx) {
  ref_path *path = ctx;
  if (path == NULL) return;
  ls_ref_dflash_close(path->dflash);
  ls_ref_attn_close(path->attn);
  free(path);
}

static ls_status ref_open(void **ctx, const ls_config *config, const ls_trace *weights, const ls_path_options *options, ls_error *err) {
  *ctx = NULL;
  if (config->layer != &ls_layer_dflash_context_kv && config->layer != &ls_layer_attn_v41) {
    return ls_fail(err, LS_UNAVAILABLE, "ref: layer %s is not implemented", config->layer->name);
  }
  ls_config checked = *config;
  LS_TRY(checked.layer->config_check(&checked, err));
  LS_TRY(selftest(&checked, err));

  ref_path *path = calloc(1, sizeof *path);
  if (path == NULL) return ls_fail(err, LS_INTERNAL, "out of memory: %zu bytes for the reference", sizeof *path);
  const ls_dtype wide = options != NULL && options->precision == LS_PRECISION_F64 ? LS_F64 : LS_F32;
  const ls_status status = checked.layer == &ls_layer_attn_v41 ? ls_ref_attn_open(&path->attn, &checked, weights, wide, err)
                                                               : ls_ref_dflash_open(&path->dflash, &checked, weights, wide, err);
  if (status == LS_OK) {
    *ctx = path;
  } else {
    ref_close(path);
  }
  return status;
}

static ls_status context_write(ls_ref_dflash *ref, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  ls_ref_write w;
  ls_status status;
  LS_TRY_OUT(ls_ref_write_begin(&w, ref, step->rows, given, out, err));
  ls_ref_ctx_combined(ref, &w);
  ls_ref_ctx_normed(ref, &w);
  ls_ref_k_proj(ref, &w);
  ls_ref_v_proj(ref, &w);
  ls_ref_k_norm(ref, &w);
  ls_ref_k_rope(ref, &w);
out:
  ls_ref_write_end(&w);
  return status;
}

static ls_status dflash_step(ls_ref_dflash *ref, const ls_step *step, const ls_trace *given, ls_trace *out, bool out_rings, ls_error *err) {
  ls_dflash_state next;
  ls_tensor k_ring, v_ring;
  LS_TRY(ls_dflash_decide(&ref->config.dflash, &ref->state, step, &next, err));
  LS_TRY(ls_ref_check_inputs(&ref->config, step, err));
  out_rings = out_rings && out != NULL;
  if (out_rings) {
    LS_TRY(ls_trace_add(out, "k_ring", ref->k_ring.dtype, ref->k_ring.ndim, ref->k_ring.dim, &k_ring, err));
    LS_TRY(ls_trace_add(out, "v_ring", ref->v_ring.dtype, ref->v_ring.ndim, ref->v_ring.dim, &v_ring, err));
  }

  if (step->op == LS_OP_CAPTURE) ls_ref_dflash_capture(ref, step);
  if (step->op == LS_OP_DRAFT_WRITE) ls_ref_dflash_draft_write(ref, step);
  if (step->op == LS_OP_CONTEXT_WRITE) LS_TRY(context_write(ref, step, given, out, err));
  ref->state = next; /* all that a rewind does */

  if (out_rings) {
    LS_TRY(ls_tensor_copy(&k_ring, &ref->k_ring, err));
    LS_TRY(ls_tensor_copy(&v_ring, &ref->v_ring, err));
  }
  return LS_OK;
}

static ls_status ref_step(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, bool out_rings, ls_error *err) {
  ref_path *path = ctx;
  if (path->attn != NULL) return ls_ref_attn_forward(path->attn, step, given, out, err);
  return dflash_step(path->dflash, step, given, out, out_rings, err);
}

static ls_status ref_save(void *ctx, ls_trace *state, ls_error *err) {
  const ref_path *path = ctx;
  return path->attn != NULL ? ls_ref_attn_save(path->attn, state, err) : ls_ref_dflash_save(path->dflash, state, err);
}

static ls_status ref_load(void *ctx, const ls_trace *state, ls_error *err) {
  ref_path *path = ctx;
  return path->attn != NULL ? ls_ref_attn_load(path->attn, state, err) : ls_ref_dflash_load(path->dflash, state, err);
}

static ls_stage_kind dflash_stage_kind(const ls_ref_dflash *ref, const ls_step *step, const char *name) {
  const ls_stage *stage = ls_stage_find(ref->config.layer, name);
  if (stage == NULL) return LS_STAGE_ABSENT;
  if (step->op == LS_OP_CONTEXT_WRITE) return LS_STAGE_OWN;
  return step->op == LS_OP_DRAFT_WRITE && stage->is_ring ? LS_STAGE_OWN : LS_STAGE_ABSENT;
}

static ls_stage_kind ref_stage_kind(void *ctx, const ls_step *step, const char *stage) {
  const ref_path *path = ctx;
  return path->attn != NULL ? ls_ref_attn_stage_kind(path->attn, step, stage) : dflash_stage_kind(path->dflash, step, stage);
}

static const char *ref_describe(void *ctx) {
  (void)ctx;
  return ls_gemm_library();
}

const ls_path ls_path_ref = {
    .abi = LS_PATH_ABI,
    .name = "ref",
    .open = ref_open,
    .step = ref_step,
    .save = ref_save,
    .load = ref_load,
    .stage_kind = ref_stage_kind,
    .describe = ref_describe,
    .close = ref_close,
};
