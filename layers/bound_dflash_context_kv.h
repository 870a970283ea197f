/* bound_dflash_context_kv: by how much two right paths of dflash_context_kv may differ, stage by stage and element by element, beyond the
 * rounding steps that the stage table counts. Formulas and reasons: docs/tolerances.md.
 *
 * Each is an ls_bound_fn (ls_layer.h): reads args->values and args->weights, adds an f32 tensor named and shaped after the stage to
 * `bounds`. LS_INTERNAL where values, weights or bounds lack something it reads, or memory does not suffice. GEMM bounds run on the threads
 * of ls_parallel and need 64 x K floats a thread and 512 x K floats beside. */
#ifndef LS_BOUND_DFLASH_CONTEXT_KV_H
#define LS_BOUND_DFLASH_CONTEXT_KV_H

#include "ls_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* own(x, K) = 4 sqrt(K) 2^-24 (|x| . |W|^T): two sums of K products in float32, each in its own order. total(x): all that x may be off by.
 */
ls_status ls_bound_ctx_combined(const ls_bound_args *args, ls_trace *bounds, ls_error *err); /* own(capture, fc_in) */
ls_status ls_bound_ctx_normed(const ls_bound_args *args, ls_trace *bounds, ls_error *err);   /* RMSNorm of ctx_combined */
ls_status ls_bound_k_proj(const ls_bound_args *args, ls_trace *bounds, ls_error *err);       /* own(ctx_normed, hidden) + total . |W|^T */
ls_status ls_bound_v_proj(const ls_bound_args *args, ls_trace *bounds, ls_error *err);       /* the same */
ls_status ls_bound_k_norm(const ls_bound_args *args, ls_trace *bounds, ls_error *err);       /* RMSNorm of each head of k_proj */
ls_status ls_bound_k_rope(const ls_bound_args *args, ls_trace *bounds, ls_error *err);       /* rotation of k_norm at step->base + row */

#ifdef __cplusplus
}
#endif
#endif
