/* ref_dflash: the layer dflash_context_kv of the reference: its weights, its state, and its stages (layers.md), one function a stage.
 *
 * What is stored (rings, capture buffer, stages) has the stored type: the activation type, so that every store is the one rounding of its
 * stage, or f64 where the path was opened with LS_PRECISION_F64 and nothing is rounded. What is computed has the wide type: f32 or f64.
 *
 * Legal order of calls: open; then save, load, capture, draft_write, and context writes in any order; close. A context write is begin,
 * then the six stages in the order of this header, then end. Whatever can fail is in begin, before a byte of state changes.
 * Not thread-safe. */
#ifndef LS_REF_DFLASH_H
#define LS_REF_DFLASH_H

#include "../core/ls_ring.h"
#include "../layers/ls_dflash.h"
#include "ref_record.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  ls_config config;
  ls_dtype stored, wide;

  ls_trace *weights;          /* widened once, at open */
  ls_tensor fc, hidden_norm;  /* [hidden, fc_in], [hidden] */
  ls_tensor *k_proj, *v_proj; /* per drafter layer [kv_dim, hidden] */
  ls_tensor *k_norm;          /* per drafter layer [head_dim] */
  float *freq;                /* [head_dim / 2] */

  ls_trace *memory;         /* the state's tensors, of the stored type */
  ls_tensor k_ring, v_ring; /* [layers, ring_capacity, kv_dim] */
  ls_tensor capture;        /* [max_rows, fc_in] */
  ls_dflash_state state;
} ls_ref_dflash;

/* wide: LS_F32 for the rounding points of layers.md, LS_F64 for none. config must have passed its check; weights of any other name, shape
 * or type than the layer's specs ask for are LS_BAD_FIXTURE. LS_INTERNAL with the bytes needed where memory does not suffice. The state is
 * zero. */
ls_status ls_ref_dflash_open(ls_ref_dflash **ref, const ls_config *config, const ls_trace *weights, ls_dtype wide, ls_error *err);
void ls_ref_dflash_close(ls_ref_dflash *ref); /* NULL is fine */

/* A state trace (ls_path.h). load changes nothing unless all of it is sound: LS_BAD_FIXTURE names what is not. A capture buffer of fewer
 * than max_rows rows fills the first ones, the rest is zero. state NULL: the start. */
ls_status ls_ref_dflash_save(const ls_ref_dflash *ref, ls_trace *state, ls_error *err);
ls_status ls_ref_dflash_load(ls_ref_dflash *ref, const ls_trace *state, ls_error *err);

/* Operations that ls_dflash_decide has let through, without the move of the state that it returned. They cannot fail. */
void ls_ref_dflash_capture(ls_ref_dflash *ref, const ls_step *step);     /* rows beyond the captured ones keep what they held */
void ls_ref_dflash_draft_write(ls_ref_dflash *ref, const ls_step *step); /* k, v into the slots of [base, base + rows) */

/* One context write under way. */
typedef struct {
  int64_t base, rows;
  ls_span span[2]; /* of [base, base + rows) on the ring */
  int spans;
  ls_trace *memory;               /* all below, and what was converted from `given` */
  ls_tensor captured;             /* [rows, fc_in] */
  ls_tensor combined, normed;     /* [rows, hidden], this path's own */
  ls_tensor combined_in;          /* what ctx_normed reads: combined, or `given`'s */
  ls_tensor normed_in;            /* what k_proj and v_proj read */
  ls_tensor k_proj_in, k_norm_in; /* `given`'s [layers, rows, kv_dim]; data NULL: read from the slot */
  ls_tensor cosine, sine;         /* [rows, head_dim / 2] of the wide type */
  ls_tensor wide_x, wide_y;       /* scratch of the wide type */
  ls_ref_recorder recorder;
} ls_ref_write;

/* Reads capture, ctx_combined, ctx_normed, k_proj and k_norm from `given` where it holds them (any float type, converted to the stored
 * type), LS_BAD_FIXTURE where one has another shape. The rings then hold what this path makes of them: a k_rope, v_proj or ring of `given`
 * is the output of a last stage, which no stage reads. Adds the six stages to out. */
ls_status ls_ref_write_begin(ls_ref_write *w, const ls_ref_dflash *ref, int64_t rows, const ls_trace *given, ls_trace *out, ls_error *err);

void ls_ref_ctx_combined(const ls_ref_dflash *ref, ls_ref_write *w);
void ls_ref_ctx_normed(const ls_ref_dflash *ref, ls_ref_write *w);
void ls_ref_k_proj(const ls_ref_dflash *ref, ls_ref_write *w); /* straight into the slots */
void ls_ref_v_proj(const ls_ref_dflash *ref, ls_ref_write *w);
void ls_ref_k_norm(const ls_ref_dflash *ref, ls_ref_write *w); /* in place in the slots */
void ls_ref_k_rope(const ls_ref_dflash *ref, ls_ref_write *w);

void ls_ref_write_end(ls_ref_write *w); /* also after a failed begin */

#ifdef __cplusplus
}
#endif
#endif
