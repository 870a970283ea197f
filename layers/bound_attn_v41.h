/* bound_attn_v41: by how much two right paths of attn_v41 may differ, stage by stage and element by element, beyond the rounding steps that
 * the stage table counts. Formulas and reasons: docs/tolerances.md.
 *
 * Each is an ls_bound_fn (ls_layer.h): reads args->values (the stages of one trace, and the step's input under "x"), args->weights,
 * args->before, args->after and args->state_bounds, adds an f32 tensor named and shaped after the stage to `bounds`. A stage that the step
 * does not have adds nothing. LS_INTERNAL where something it reads is lacking, or memory does not suffice. */
#ifndef LS_BOUND_ATTN_V41_H
#define LS_BOUND_ATTN_V41_H

#include "ls_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

ls_bound_fn ls_bound_attn_qr_proj, ls_bound_attn_qr, ls_bound_attn_q_proj, ls_bound_attn_q;
ls_bound_fn ls_bound_attn_kv_proj, ls_bound_attn_kv_norm, ls_bound_attn_kv_rope, ls_bound_attn_kv, ls_bound_attn_window;
ls_bound_fn ls_bound_attn_latent_pool, ls_bound_attn_kv_state, ls_bound_attn_score_state, ls_bound_attn_latent;
ls_bound_fn ls_bound_attn_index_k_proj, ls_bound_attn_index_k_norm, ls_bound_attn_index_k_rope, ls_bound_attn_index_k;
ls_bound_fn ls_bound_attn_index_q_proj, ls_bound_attn_index_q_rope, ls_bound_attn_index_q;
ls_bound_fn ls_bound_attn_index_w_proj, ls_bound_attn_index_w, ls_bound_attn_index_score;
ls_bound_fn ls_bound_attn_compress_kv_rope, ls_bound_attn_compress_kv;
ls_bound_fn ls_bound_attn_sparse_o, ls_bound_attn_o_rot, ls_bound_attn_o_group, ls_bound_attn_out;

/* ls_layer.state_bounds: window, compress_cache, index_cache, kv_state and score_state of the step's layer take the bounds of the rows that
 * the step wrote; everything else is carried over. */
ls_status ls_bound_attn_state(const ls_bound_args *args, const ls_trace *bounds, ls_trace **next, ls_error *err);

/* freq [rope_head_dim / 2] of a layer: compressed (ratio above 0) the other theta, and YaRN where the config has it (layers.md). */
void ls_bound_attn_freq(float *freq, const ls_attn_config *config, bool compressed);

#ifdef __cplusplus
}
#endif
#endif
