/* ref_attn: the layer attn_v41 of the reference: its weights, its state, and its forward, stage after stage (layers.md).
 *
 * What is stored (rings, caches, stages) has the stored type: bf16, so that every store is the one rounding of its stage, or f64 where the
 * path was opened with LS_PRECISION_F64 and nothing is rounded but the grids (fp8, fp4), which are discrete choices. What is computed has
 * the wide type: f32 or f64.
 *
 * Legal order of calls: open; then save, load, forward in any order; close. Not thread-safe. */
#ifndef LS_REF_ATTN_H
#define LS_REF_ATTN_H

#include "../layers/ls_attn.h"
#include "../layers/ls_path.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct ls_ref_attn ls_ref_attn;

/* freq [rope_head_dim / 2] of a layer: rope_theta alone at ratio 0; compressed: compress_rope_theta, stretched by YaRN where
 * original_seq_len > 0. */
void ls_ref_attn_freq(float *freq, const ls_attn_config *config, bool compressed);

/* wide: LS_F32 for the rounding points of layers.md, LS_F64 for none. config must have passed its check; weights of any other name, shape
 * or type than the layer's specs ask for are LS_BAD_FIXTURE. LS_INTERNAL with the bytes needed where memory does not suffice. The state is
 * the start. Caches are as large as max_seq_len asks for, but cost memory only where they were written. */
ls_status ls_ref_attn_open(ls_ref_attn **ref, const ls_config *config, const ls_trace *weights, ls_dtype wide, ls_error *err);
void ls_ref_attn_close(ls_ref_attn *ref); /* NULL is fine */

/* A state trace (ls_path.h). load changes nothing unless all of it is sound: LS_BAD_FIXTURE names what is not. state NULL: the start. */
ls_status ls_ref_attn_save(const ls_ref_attn *ref, ls_trace *state, ls_error *err);
ls_status ls_ref_attn_load(ls_ref_attn *ref, const ls_trace *state, ls_error *err);

/* One forward (ls_path.step). LS_REFUSED: refused, every byte of state as it was. A stage that `given` holds replaces the path's own after
 * it was recorded, before anything reads, stores or publishes it (any float type, converted to the stored type; LS_BAD_FIXTURE where one
 * has another shape, or an index is out of range). Whatever can fail fails before a byte of state changes. */
ls_status ls_ref_attn_forward(ls_ref_attn *ref, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err);

/* Whether the step has the stage at all, by the config and the step alone. */
ls_stage_kind ls_ref_attn_stage_kind(const ls_ref_attn *ref, const ls_step *step, const char *stage);

#ifdef __cplusplus
}
#endif
#endif
