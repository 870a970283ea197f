#include "bench_run.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../cli/verify_session.h"
#include "../core/ls_clock.h"
#include "../core/ls_digest.h"
#include "../layers/ls_run.h"

void bench_result_free(bench_result *result) { ls_timing_free(&result->timing); }

static bool interrupted(const bench_options *o) { return *o->interrupted != 0; }

/* ---- verified ---- */

/* The fixture through both paths, every stage of both modes. What does not pass is the result's outcome, not an error. */
static ls_status verify(bench_result *result, const char *file, const bench_options *o, ls_error *err) {
  ls_report *report = NULL;
  ls_verify_options verify;
  const ls_report_options judged = {.program = "lockstep", .allow_mistrusted = true}; /* generated: nothing stored to hold against */
  memset(&verify, 0, sizeof verify);
  verify.path[verify.n_paths++] = &ls_path_ref;
  if (o->path != &ls_path_ref) verify.path[verify.n_paths++] = o->path;
  verify.options = o->options;
  verify.only_step = -1;
  verify.trust = true;
  verify.interrupted = o->interrupted;
  verify.judged = o->path != &ls_path_ref ? LS_JUDGE_LAST_PAIR : LS_JUDGE_ALL;
  const double started = ls_clock_seconds();
  LS_TRY(ls_report_new(&report, err));
  ls_error why = {LS_OK, ""};
  ls_status status = ls_verify_fixture(file, &verify, report, &why);
  ls_report_hit hit;
  memset(&hit, 0, sizeof hit);
  if (status == LS_OK) status = ls_report_first(report, &hit, &why);
  const ls_status verdict = status == LS_OK ? ls_report_status(report, &judged) : status;
  ls_report_free(report);
  result->verified_s = ls_clock_seconds() - started;
  if (interrupted(o)) {
    result->outcome = BENCH_NOT_MEASURED;
    snprintf(result->why, sizeof result->why, "interrupted");
  } else if (status != LS_OK) {
    return ls_fail(err, status, "%s: %s", result->name, why.text);
  } else if (o->path != &ls_path_ref && hit.compared == 0) {
    result->outcome = BENCH_NOT_VERIFIED;
    snprintf(result->why, sizeof result->why, "nothing could be compared with the reference");
  } else if (hit.found || (o->path != &ls_path_ref && verdict != LS_OK)) {
    result->outcome = BENCH_NOT_VERIFIED;
    snprintf(result->why, sizeof result->why, "%s does not pass at step %lld %.120s", hit.found ? hit.name : "the fixture",
             (long long)hit.step, hit.where);
  }
  return LS_OK;
}

/* ---- timed ---- */

/* A path that is timed from outside: from the state before the step, loaded each time, untraced; then stage by stage from traced runs. */
static ls_status time_from_outside(ls_run *run, const ls_step *step, const ls_trace *before, const bench_options *o, ls_timing *timing,
                                   ls_error *err) {
  ls_timed *whole = ls_timing_add(timing, "", o->samples);
  if (whole == NULL) return ls_fail(err, LS_INTERNAL, "out of memory for %d times", o->samples);
  ls_run_result r;
  for (int i = -o->warmup; i < o->samples; i++) {
    LS_TRY(ls_run_step(run, step, before, NULL, false, &r, err));
    if (i >= 0) whole->seconds[i] = r.seconds;
    ls_run_result_free(&r);
    if (interrupted(o)) return ls_fail(err, LS_INTERNAL, "interrupted");
  }
  for (int i = 0; o->parts && i < o->samples; i++) {
    LS_TRY(ls_run_step(run, step, before, NULL, true, &r, err));
    for (int k = 0, part = 1; k < r.out->n; k++) { /* the same stages in the same order each time */
      if (!(r.out->rec[k].seconds > 0)) continue;
      if (i == 0 && ls_timing_add(timing, r.out->rec[k].name, o->samples) == NULL) break;
      if (part < timing->n) timing->part[part++].seconds[i] = r.out->rec[k].seconds;
    }
    ls_run_result_free(&r);
    if (interrupted(o)) return ls_fail(err, LS_INTERNAL, "interrupted");
  }
  return LS_OK;
}

static bool same_bytes(const ls_tensor *a, const ls_tensor *b) {
  return a != NULL && b != NULL && a->dtype == b->dtype && ls_tensor_bytes(a) == ls_tensor_bytes(b) &&
         memcmp(a->data, b->data, ls_tensor_bytes(a)) == 0;
}

/* What the last timed run left is what the traced one did, byte for byte; *differs names the first that is not. */
static const char *differing(const ls_trace *expected, const ls_trace *found) {
  for (int i = 0; i < found->n; i++) {
    if (!same_bytes(ls_trace_tensor(expected, found->rec[i].name), &found->rec[i].t)) return found->rec[i].name;
  }
  return NULL;
}

typedef struct {
  ls_run run;
  ls_step step;       /* the last */
  ls_trace *before;   /* its state */
  ls_run_result sure; /* of the traced run */
} bench_subject;

static ls_status time_once(bench_result *result, bench_subject *s, const bench_options *o, ls_error *err) {
  const bool gpu = strcmp(o->path->name, "cuda") == 0;
  const ls_timing_how how = {
      .warmup = o->warmup, .samples = o->samples, .back_to_back = o->back_to_back, .cold = !o->warm, .interrupted = o->interrupted};
  ls_trace *last = NULL, *left = NULL;
  bool watching = false;
  ls_status status;
  ls_timing_free(&result->timing);
  result->timing.samples = o->samples;
  LS_TRY_OUT(ls_run_stand(&s->run, s->before, err));
  LS_TRY_OUT(ls_trace_new(&last, "last", err));
  LS_TRY_OUT(ls_trace_new(&left, "left", err));
  bench_watch_begin(&result->watch, gpu, o->options.device);
  watching = true;
  if (o->path->time_step == NULL) {
    LS_TRY_OUT(time_from_outside(&s->run, &s->step, s->before, o, &result->timing, err));
  } else {
    s->run.loaded = false;
    LS_TRY_OUT(o->path->time_step(s->run.ctx, &s->step, &how, &result->timing, last, err));
    LS_TRY_OUT(o->path->save(s->run.ctx, left, err));
  }
  watching = false;
  if (!bench_watch_end(&result->watch, gpu, o->options.device, o->company, result->why, sizeof result->why))
    result->outcome = BENCH_NOT_MEASURED;
  const char *differs = differing(s->sure.out, last);
  if (differs == NULL) differs = differing(s->sure.after, left);
  if (differs != NULL) {
    result->outcome = BENCH_NOT_VERIFIED;
    snprintf(result->why, sizeof result->why, "%s after the last timed run is not what the verified run left", differs);
  }
  if (o->parts && result->outcome == BENCH_MEASURED && o->path->time_step != NULL) {
    ls_timing_how pieces = how; /* they leave the state in disorder: after the whole was looked at */
    pieces.parts = true;
    pieces.back_to_back = 0;
    LS_TRY_OUT(ls_run_stand(&s->run, s->before, err));
    s->run.loaded = false;
    LS_TRY_OUT(o->path->time_step(s->run.ctx, &s->step, &pieces, &result->timing, NULL, err));
  }
out:
  if (watching)
    bench_watch_end(&result->watch, gpu, o->options.device, o->company, result->why, sizeof result->why); /* unties the threads */
  ls_trace_free(last);
  ls_trace_free(left);
  return status;
}

/* Up to the last step, which runs traced: what is timed, and what it has to come to. */
static ls_status stand_before_last(bench_subject *s, ls_fixture *fixture, const bench_options *o, ls_error *err) {
  const ls_trace *weights;
  ls_trace *start = NULL;
  ls_run_result r;
  const int64_t steps = ls_fixture_steps(fixture);
  LS_TRY(ls_fixture_weights(fixture, &weights, err));
  ls_status status;
  LS_TRY_OUT(ls_fixture_state(fixture, &start, err));
  LS_TRY_OUT(ls_run_open(&s->run, o->path, ls_fixture_config(fixture), weights, &o->options, start, err));
  for (int64_t i = 0; i + 1 < steps; i++) {
    ls_step step;
    LS_TRY_OUT(ls_fixture_load_step(fixture, i, &step, err));
    status = ls_run_step(&s->run, &step, NULL, NULL, false, &r, err);
    if (status == LS_OK) ls_run_result_free(&r);
    ls_step_free(&step);
    if (status != LS_OK) goto out;
    if (interrupted(o)) LS_TRY_OUT(ls_fail(err, LS_INTERNAL, "interrupted"));
  }
  LS_TRY_OUT(ls_fixture_load_step(fixture, steps - 1, &s->step, err));
  s->before = s->run.state; /* from here on every run starts from it */
  s->run.state = NULL;
  LS_TRY_OUT(ls_run_step(&s->run, &s->step, s->before, NULL, true, &s->sure, err));
  if (s->sure.status != LS_OK)
    LS_TRY_OUT(ls_fail(err, LS_BAD_FIXTURE, "%s: step %lld is refused (%s): nothing to time", ls_fixture_file(fixture),
                       (long long)s->step.number, s->sure.why.text));
out:
  ls_trace_free(start);
  return status;
}

static ls_status one_round(bench_result *result, bench_subject *s, const bench_options *o, ls_error *err) {
  ls_status status = LS_OK;
  result->attempts = 0;
  do {
    result->outcome = BENCH_MEASURED;
    result->attempts++;
    status = time_once(result, s, o, err);
  } while (status == LS_OK && result->outcome == BENCH_NOT_MEASURED && result->attempts < o->attempts && !interrupted(o));
  if (status == LS_OK || !interrupted(o)) return status;
  result->outcome = BENCH_NOT_MEASURED;
  snprintf(result->why, sizeof result->why, "interrupted");
  return LS_OK;
}

static ls_status time_fixture(bench_result *result, const char *file, const bench_options *o, bench_round *round, void *arg,
                              ls_error *err) {
  bench_subject s;
  ls_fixture *fixture = NULL;
  ls_status status;
  memset(&s, 0, sizeof s);
  LS_TRY_OUT(ls_fixture_open(&fixture, file, NULL, err));
  LS_TRY_OUT(stand_before_last(&s, fixture, o, err));
  result->work = bench_count_work(ls_fixture_config(fixture), &s.step, o->path == &ls_path_ref ? 4 : 2);
  if (result->work.bytes == 0)
    LS_TRY_OUT(
        ls_fail(err, LS_USAGE, "%s: the last step is a %s: only a context_write or a forward is timed", file, ls_op_name(s.step.op)));
  snprintf(result->runs, sizeof result->runs, "%s", o->path->describe(s.run.ctx));
  uint64_t state = 0;
  LS_TRY_OUT(ls_hash_trace(&result->digest, s.sure.out, NULL, NULL, err));
  LS_TRY_OUT(ls_hash_trace(&state, s.sure.after, NULL, NULL, err));
  result->digest = ls_hash_bytes(&state, sizeof state, result->digest);
  if (round != NULL && !round(arg, NULL)) goto out;
  do {
    LS_TRY_OUT(one_round(result, &s, o, err));
  } while (round != NULL && round(arg, result) && !interrupted(o));
out:
  ls_run_result_free(&s.sure);
  ls_trace_free(s.before);
  ls_run_close(&s.run);
  ls_step_free(&s.step);
  ls_fixture_close(fixture);
  return status;
}

ls_status bench_run_fixture(bench_result *result, const char *file, const bench_options *options, bench_round *round, void *arg,
                            ls_error *err) {
  result->outcome = BENCH_MEASURED;
  LS_TRY(verify(result, file, options, err));
  return result->outcome == BENCH_MEASURED ? time_fixture(result, file, options, round, arg, err) : LS_OK;
}

ls_status bench_run_scenario(bench_result *result, const bench_scenario *scenario, const bench_options *options, bench_round *round,
                             void *arg, ls_error *err) {
  char folder[256], file[300];
  const char *temporary = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%s/lockstep-bench-XXXXXX", temporary != NULL && *temporary != '\0' ? temporary : P_tmpdir);
  if (mkdtemp(folder) == NULL) return ls_fail(err, LS_INTERNAL, "no temporary folder %s for a scenario's fixture", folder);
  snprintf(file, sizeof file, "%s/scenario.h5", folder);
  ls_status status = bench_scenario_make(scenario, file, err);
  if (status == LS_OK) status = bench_run_fixture(result, file, options, round, arg, err);
  unlink(file);
  rmdir(folder);
  return status;
}
