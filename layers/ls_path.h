/* ls_path: an implementation of a layer behind a small struct of function pointers. ref, cuda, emu; one driver runs them all.
 *
 * Legal order of calls: open; then step, save, load in any order; close. Not thread-safe; several contexts may be open at once.
 *
 * Tensors of a state trace (save, load, /state of a fixture), dflash_context_kv:
 *   k_ring, v_ring [layers, ring_capacity, kv_dim] activation type (f64 on a path opened with LS_PRECISION_F64)
 *   capture [max_rows, aux_count * hidden] activation type, the whole buffer
 *   cursor, capture_base, capture_rows [1] i64
 *
 * attn_v41 (types in parentheses: on a path opened with LS_PRECISION_F64):
 *   layers/<l>/window [window_size, head_dim] activation type (f64)
 *   layers/<l>/compress_cache [rows, head_dim], index_cache [rows, index_head_dim] activation type (f64), on a kv source: the rows up to
 * the last that was ever written or loaded, absent where none was layers/<l>/kv_state, score_state [ratio, head_dim] f32 (f64), on a kv
 * source of ratio > 1 compress_source, index_source [1] i64, -1: nothing published topk_rows, topk_width, topk_start [1] i64 and, where
 * rows and width are not 0, topk_idxs [rows, width] i32: the published selection candidate_rows, candidate_width, candidate_start [1] i64
 * and, likewise, candidates [rows, width] u8: the published mask load takes all of them as absent: zero (score_state: -inf), nothing
 * published; it passes over `position`. */
#ifndef LS_PATH_H
#define LS_PATH_H

#include "ls_layer.h"
#include "ls_timing.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LS_PATH_ABI = 1 };

typedef enum {
  LS_PRECISION_ACT, /* the rounding points of layers.md */
  LS_PRECISION_F64  /* the same formulas in double, no intermediate rounding: error budgets */
} ls_precision;

typedef struct {
  ls_precision precision; /* only ref knows LS_PRECISION_F64; others answer LS_UNAVAILABLE */
  uint64_t emu_schedule;  /* emu: 0 runs fibers in order, else the seed of a random order between rendezvous points */
  int device;             /* cuda: device index */
  const void *self;       /* ls_path.self of the path that is opened; ls_run_open fills it in */
} ls_path_options;

typedef enum {
  LS_STAGE_OWN,    /* computed by this path's own code and recorded */
  LS_STAGE_FUSED,  /* never exists by itself on this path: judged with the group that holds it */
  LS_STAGE_SHARED, /* recorded, but computed by code that the other path uses too (ls_gemm): proves nothing */
  LS_STAGE_ABSENT  /* this step has no such stage (a capture has no k_proj) */
} ls_stage_kind;

typedef struct {
  int abi; /* LS_PATH_ABI */
  const char *name;

  /* Copies or widens what it needs of weights. LS_UNAVAILABLE: no device, BLAS self-test failed. LS_INTERNAL: with bytes needed where
   * memory does not suffice. */
  ls_status (*open)(void **ctx, const ls_config *config, const ls_trace *weights, const ls_path_options *options, ls_error *err);

  /* Runs one operation. LS_REFUSED: refused, every byte of state as it was, and err->text says why.
   *
   * out: NULL runs untraced (the production form: on cuda a graph replay); else every stage this path records is added to it, k_ring and
   * v_ring after the operation included where out_rings is set (they are large).
   * given: NULL: a stage reads its own path's earlier outputs (cascaded). Else a stage reads those of its inputs that `given` holds from
   * there (isolated). A stage fused away reads the inputs of its group.
   * attn_v41: a stage that `given` holds is computed and recorded, and then replaced by `given`'s before anything reads, stores or
   * publishes it. `given` may hold compress_idx and candidates alone: so a legal tie is followed. */
  ls_status (*step)(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, bool out_rings, ls_error *err);

  /* The whole state as a trace of host tensors, and back. load converts float types, nearest-even; absent tensors become zero. */
  ls_status (*save)(void *ctx, ls_trace *state, ls_error *err);
  ls_status (*load)(void *ctx, const ls_trace *state, ls_error *err);

  ls_stage_kind (*stage_kind)(void *ctx, const ls_step *step, const char *stage);

  /* One line on what runs: "NVIDIA H200, CUDA 13.0", "OpenBLAS 0.3.21 Zen". Good until close. */
  const char *(*describe)(void *ctx);

  void (*close)(void *ctx); /* NULL is fine */

  const void *self; /* tells paths with the same functions apart in open (plugin/ls_child.h); else NULL */

  /* Runs the step in production form, untraced, many times over, and times it. NULL: a path that is timed from outside, by calling step.
   * The step must be one that can be run again from where it ends with the same results (a context_write, a forward). Refusals as in step,
   * with nothing timed. last: what the last timed run of the whole left that is no state is added to it under its stage's name (attn_v41:
   * out). State: as after one step; with how->parts what the step stored is not to be relied on, and a state has to be loaded. LS_INTERNAL
   * where it was interrupted. */
  ls_status (*time_step)(void *ctx, const ls_step *step, const ls_timing_how *how, ls_timing *timing, ls_trace *last, ls_error *err);

  /* What the device itself gives: seconds to read that many bytes once with nothing of them in a cache, and the rate of a large product of
   * the activation type, in FLOP/s. NULL: a path without a device of its own. */
  ls_status (*ceilings)(const ls_path_options *options, double bytes, double *read_seconds, double *flops, ls_error *err);
} ls_path;

extern const ls_path ls_path_ref;

/* The GPU backends that this build holds, by name ("cuda", "emu"); NULL where it holds none of that name. */
const ls_path *ls_path_find(const char *name);

/* LS_OK where the path can run here (cuda: a device is present), else LS_UNAVAILABLE with the reason. */
ls_status ls_path_available(const char *name, ls_error *err);

#ifdef __cplusplus
}
#endif
#endif
