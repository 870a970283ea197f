/* ls_run: one path with its state, driven step by step. The one way a path is run, whichever path it is.
 *
 * Cascaded: a step starts from the state the path's own previous step left. Isolated: it starts from a state that is handed in, and its
 * stages read the inputs that are handed in; the path's own state is untouched by that. */
#ifndef LS_RUN_H
#define LS_RUN_H

#include "ls_path.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const ls_path *path;
  void *ctx;
  ls_trace *state; /* after the last cascaded step; owned */
  bool loaded;     /* ctx stands at `state` */
} ls_run;

/* What one step came to. Free with ls_run_result_free. */
typedef struct {
  ls_status status; /* LS_OK or LS_REFUSED */
  ls_error why;     /* the refusal's line */
  ls_trace *out;    /* stages, rings included; NULL where untraced */
  ls_trace *before; /* state before; a loan from the caller where `from` was given, else owned */
  ls_trace *after;  /* state after; a loan of run->state (good until the next cascaded step) in cascaded mode, else owned */
  bool owns_before, owns_after;
  double seconds; /* wall time of the path's step alone, without loading and saving state */
} ls_run_result;

/* start: the fixture's /state, or NULL for the layer's all-zero start. */
ls_status ls_run_open(ls_run *run, const ls_path *path, const ls_config *config, const ls_trace *weights, const ls_path_options *options,
                      const ls_trace *start, ls_error *err);

/* from NULL: cascaded. given and traced as in ls_path.step. Any status but LS_OK is an error, not a refusal. */
ls_status ls_run_step(ls_run *run, const ls_step *step, const ls_trace *from, const ls_trace *given, bool traced, ls_run_result *result,
                      ls_error *err);

/* Runs steps one after the other, untraced, from a state; *after is the state they leave (the caller frees it). A refused one among them
 * ends the sequence with *refused set. run->state stays. */
ls_status ls_run_sequence(ls_run *run, const ls_step *const *steps, int n, const ls_trace *from, ls_trace **after, bool *refused,
                          ls_error *err);

/* The path goes on from this state as if its own steps had led there. */
ls_status ls_run_stand(ls_run *run, const ls_trace *state, ls_error *err);

void ls_run_result_free(ls_run_result *result);
void ls_run_close(ls_run *run);

#ifdef __cplusplus
}
#endif
#endif
