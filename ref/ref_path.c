/* ref_path: the reference behind ls_path. A step is the list of its stages, in order; each stage is a formula in ref_*.c. */
#include "../core/ls_gemm.h"
#include "../layers/ls_path.h"
#include "ref_dflash.h"

static ls_status ref_open(void **ctx, const ls_config *config, const ls_trace *weights, const ls_path_options *options, ls_error *err) {
  *ctx = NULL;
  if (config->layer != &ls_layer_dflash_context_kv) {
    return ls_fail(err, LS_UNAVAILABLE, "ref: layer %s is not implemented", config->layer->name);
  }
  ls_config checked = *config;
  LS_TRY(checked.layer->config_check(&checked, err));
  LS_TRY(ls_gemm_selftest(checked.dflash.fc_in, err));
  LS_TRY(ls_gemm_selftest(checked.dflash.hidden, err));

  const bool exact = options != NULL && options->precision == LS_PRECISION_F64;
  ls_ref_dflash *ref;
  LS_TRY(ls_ref_dflash_open(&ref, &checked, weights, exact ? LS_F64 : LS_F32, err));
  *ctx = ref;
  return LS_OK;
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

static ls_status ref_step(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, bool out_rings, ls_error *err) {
  ls_ref_dflash *ref = ctx;
  ls_dflash_state next;
  ls_tensor k_ring, v_ring;
  LS_TRY(ls_dflash_decide(&ref->config.dflash, &ref->state, step, &next, err));
  LS_TRY(ls_ref_dflash_check_inputs(ref, step, err));
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

static ls_status ref_save(void *ctx, ls_trace *state, ls_error *err) { return ls_ref_dflash_save(ctx, state, err); }

static ls_status ref_load(void *ctx, const ls_trace *state, ls_error *err) { return ls_ref_dflash_load(ctx, state, err); }

static ls_stage_kind ref_stage_kind(void *ctx, const ls_step *step, const char *name) {
  const ls_ref_dflash *ref = ctx;
  const ls_stage *stage = ls_stage_find(ref->config.layer, name);
  if (stage == NULL) return LS_STAGE_ABSENT;
  if (step->op == LS_OP_CONTEXT_WRITE) return LS_STAGE_OWN;
  return step->op == LS_OP_DRAFT_WRITE && stage->is_ring ? LS_STAGE_OWN : LS_STAGE_ABSENT;
}

static const char *ref_describe(void *ctx) {
  (void)ctx;
  return ls_gemm_library();
}

static void ref_close(void *ctx) { ls_ref_dflash_close(ctx); }

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
