#include "ls_run.h"

#include <string.h>

#include "../core/ls_clock.h"
#include "../core/ls_shortage.h"

static ls_status save(ls_run *run, ls_trace **state, ls_error *err) {
  LS_TRY(ls_trace_new(state, run->path->name, err));
  ls_status status = run->path->save(run->ctx, *state, err);
  if (status != LS_OK) {
    ls_trace_free(*state);
    *state = NULL;
  }
  return status;
}

ls_status ls_run_open(ls_run *run, const ls_path *path, const ls_config *config, const ls_trace *weights, const ls_path_options *options,
                      const ls_trace *start, ls_error *err) {
  memset(run, 0, sizeof *run);
  run->path = path;
  if (path->abi != LS_PATH_ABI)
    return ls_fail(err, LS_UNAVAILABLE, "path %s: expected ABI %d, found %d", path->name, LS_PATH_ABI, path->abi);
  ls_path_options with = options != NULL ? *options : (ls_path_options){.precision = LS_PRECISION_ACT};
  with.self = path->self;
  ls_status status = path->open(&run->ctx, config, weights, &with, err);
  if (status == LS_OK && start != NULL) status = path->load(run->ctx, start, err);
  if (status == LS_OK) status = save(run, &run->state, err);
  run->loaded = status == LS_OK;
  if (status != LS_OK) ls_run_close(run);
  return status;
}

/* Makes ctx stand at `state`, which is run->state where from is NULL. */
static ls_status stand_at(ls_run *run, const ls_trace *from, ls_error *err) {
  if (from == NULL && run->loaded) return LS_OK;
  run->loaded = false;
  LS_TRY(run->path->load(run->ctx, from != NULL ? from : run->state, err));
  run->loaded = from == NULL;
  return LS_OK;
}

ls_status ls_run_step(ls_run *run, const ls_step *step, const ls_trace *from, const ls_trace *given, bool traced, ls_run_result *result,
                      ls_error *err) {
  ls_status status;
  memset(result, 0, sizeof *result);
  LS_TRY(stand_at(run, from, err));
  if (traced) LS_TRY_OUT(ls_trace_new(&result->out, run->path->name, err));
  run->loaded = false;
  const double started = ls_clock_seconds();
  status = run->path->step(run->ctx, step, given, result->out, true, &result->why);
  result->seconds = ls_clock_seconds() - started;
  if ((status == LS_OK || status == LS_REFUSED) && ls_shortage_take()) {
    result->why = (ls_error){LS_OK, ""};
    status = ls_fail(&result->why, LS_INTERNAL, "out of memory");
  }
  if (status != LS_OK && status != LS_REFUSED) {
    ls_fail(err, status, "step %lld, path %s: %s", (long long)step->number, run->path->name, result->why.text);
    goto out;
  }
  result->status = status;
  status = save(run, &result->after, err);
  if (status != LS_OK) goto out;
  result->owns_after = true;
  if (from != NULL) {
    result->before = (ls_trace *)from;
  } else { /* the state before goes with the result, the one after stays with the run */
    result->before = run->state;
    result->owns_before = true;
    run->state = result->after;
    result->owns_after = false;
    run->loaded = true;
  }
out:
  if (status != LS_OK) ls_run_result_free(result);
  return status;
}

ls_status ls_run_sequence(ls_run *run, const ls_step *const *steps, int n, const ls_trace *from, ls_trace **after, bool *refused,
                          ls_error *err) {
  *after = NULL;
  *refused = false;
  LS_TRY(stand_at(run, from, err));
  run->loaded = false;
  for (int i = 0; i < n && !*refused; i++) {
    ls_error why = {LS_OK, ""};
    ls_status status = run->path->step(run->ctx, steps[i], NULL, NULL, false, &why);
    if ((status == LS_OK || status == LS_REFUSED) && ls_shortage_take()) {
      why = (ls_error){LS_OK, ""};
      status = ls_fail(&why, LS_INTERNAL, "out of memory");
    }
    *refused = status == LS_REFUSED;
    if (status != LS_OK && status != LS_REFUSED)
      return ls_fail(err, status, "step %lld, path %s: %s", (long long)steps[i]->number, run->path->name, why.text);
  }
  return save(run, after, err);
}

ls_status ls_run_stand(ls_run *run, const ls_trace *state, ls_error *err) {
  ls_trace *stood = NULL;
  run->loaded = false;
  LS_TRY(run->path->load(run->ctx, state, err));
  LS_TRY(save(run, &stood, err)); /* as the path itself holds it: in its own types */
  ls_trace_free(run->state);
  run->state = stood;
  run->loaded = true;
  return LS_OK;
}

void ls_run_result_free(ls_run_result *result) {
  ls_trace_free(result->out);
  if (result->owns_before) ls_trace_free(result->before);
  if (result->owns_after) ls_trace_free(result->after);
  memset(result, 0, sizeof *result);
}

void ls_run_close(ls_run *run) {
  if (run->path != NULL) run->path->close(run->ctx);
  ls_trace_free(run->state);
  memset(run, 0, sizeof *run);
}
