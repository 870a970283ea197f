/* A recorded path in a verify session: its steps are read from a trace file instead of being run, and judged as those of any path.
 *
 * What it recorded belongs to the values that it was given. The reference of this machine differs from the one that stood beside it by a
 * few roundings, so here the reference reads what was recorded: the selection to be followed, and the inputs of isolated stages. Where that
 * cannot be (a digest holds no inputs, a second trace has others), hashes tell, and those comparisons are left out and say so. */
#include <fnmatch.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../compare/ls_compare_digest.h"
#include "../core/ls_ring.h"
#include "../core/ls_trace_delta.h"
#include "session_internal.h"

struct session_recorded {
  ls_path path; /* its name, and functions that answer from `step` */
  char name[LS_NAME_MAX], text[1024];
  ls_trace_reader *reader;
  ls_trace_step step;
  bool lead_apart;            /* since some step it followed another selection than is followed here */
  bool told[LS_MODES];        /* a note says so */
  char reason[LS_MODES][160]; /* in a result's note */
};

/* ---- the path's functions ---- */

static bool names_hold(const char *names, const char *stage) {
  const size_t n = strlen(stage);
  for (const char *at = names; (at = strstr(at, stage)) != NULL; at += n)
    if ((at == names || at[-1] == ' ') && (at[n] == '\0' || at[n] == ' ')) return true;
  return false;
}

static ls_stage_kind recorded_kind(void *ctx, const ls_step *step, const char *stage) {
  const session_recorded *r = ctx;
  (void)step;
  if (names_hold(r->step.own, stage)) return LS_STAGE_OWN;
  if (names_hold(r->step.fused, stage)) return LS_STAGE_FUSED;
  return names_hold(r->step.shared, stage) ? LS_STAGE_SHARED : LS_STAGE_ABSENT;
}

static const char *recorded_describe(void *ctx) { return ((session_recorded *)ctx)->text; }

static void recorded_close(void *ctx) {
  session_recorded *r = ctx;
  if (r == NULL) return;
  ls_trace_step_free(&r->step);
  free(r);
}

static ls_status never_run(const session_recorded *r, ls_error *err) {
  return ls_fail(err, LS_INTERNAL, "path %s is a recording: it cannot be run", r->name);
}
static ls_status recorded_run(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, bool out_rings, ls_error *err) {
  (void)step, (void)given, (void)out, (void)out_rings;
  return never_run(ctx, err);
}
static ls_status recorded_save(void *ctx, ls_trace *state, ls_error *err) {
  (void)state;
  return never_run(ctx, err);
}
static ls_status recorded_load(void *ctx, const ls_trace *state, ls_error *err) {
  (void)state;
  return never_run(ctx, err);
}

/* ---- opening and stepping ---- */

ls_status session_recorded_open(session *v, ls_trace_reader *reader, const char *name, const ls_trace *start, ls_error *err) {
  const char *date = ls_trace_reader_about(reader, "date"), *commit = ls_trace_reader_about(reader, "commit");
  LS_TRY(ls_trace_reader_bind(reader, v->fixture, err));
  session_recorded *r = calloc(1, sizeof *r);
  if (r == NULL) return ls_fail(err, LS_INTERNAL, "out of memory");
  r->reader = reader;
  snprintf(r->name, sizeof r->name, "%s", name);
  snprintf(r->text, sizeof r->text, "%s of %s, recorded %.40s by commit %.64s in %s",
           ls_trace_reader_is_digest(reader) ? "digest" : "trace", ls_trace_reader_description(reader), date, commit,
           ls_trace_reader_file(reader));
  r->path = (ls_path){.abi = LS_PATH_ABI,
                      .name = r->name,
                      .step = recorded_run,
                      .save = recorded_save,
                      .load = recorded_load,
                      .stage_kind = recorded_kind,
                      .describe = recorded_describe,
                      .close = recorded_close};
  ls_run *run = &v->run[v->n_paths];
  *run = (ls_run){.path = &r->path, .ctx = r};
  v->recorded[v->n_paths] = r;
  LS_TRY(ls_trace_reader_start(reader, start, &run->state, err));
  LS_TRY(ls_report_path(v->report, r->name, r->text, err));
  v->n_paths++;
  return LS_OK;
}

ls_status session_recorded_load(session *v, int64_t i, ls_error *err) {
  for (int p = 0; p < v->n_paths; p++) {
    session_recorded *r = v->recorded[p];
    if (r == NULL) continue;
    ls_trace_step_free(&r->step);
    LS_TRY(ls_trace_reader_step(r->reader, i, &r->step, err));
  }
  return LS_OK;
}

/* A tensor of the state that no stage reads: rings, which are the path's own rows. */
static bool is_ring(const void *layer, const char *name) {
  const ls_stage *stage = ls_stage_find(layer, name);
  return stage != NULL && stage->is_ring;
}

static bool has_rings(const ls_layer *layer) {
  for (int i = 0; i < layer->n_stages; i++)
    if (layer->stages[i].is_ring) return true;
  return false;
}

/* The state after a step from the one before it. */
static ls_status patched(const session_recorded *r, const ls_trace *before, const ls_trace *delta, ls_trace **after, ls_error *err) {
  ls_error own = {LS_OK, ""};
  ls_status status = ls_trace_patch(after, before, delta, r->name, &own);
  if (status == LS_BAD_FIXTURE)
    return ls_fail(err, status, "%s: step %" PRId64 ": %s", ls_trace_reader_file(r->reader), r->step.number, own.text);
  if (status == LS_OK) status = ls_trace_reader_check_state(r->reader, *after, r->step.number, &own);
  if (status == LS_OK) return LS_OK;
  ls_trace_free(*after);
  *after = NULL;
  return ls_fail(err, status, "%s", own.text);
}

/* The rings of a state in the activation type: those of a double reference are rounded to it. Views where nothing is. */
static ls_status rings_of(const session *v, const ls_trace *state, ls_trace **rings, ls_error *err) {
  LS_TRY(ls_trace_new(rings, "rings", err));
  for (int i = 0; i < v->config->layer->n_stages; i++) {
    const ls_stage *stage = &v->config->layer->stages[i];
    const ls_tensor *t = stage->is_ring ? ls_trace_tensor(state, stage->name) : NULL;
    ls_tensor rounded;
    if (t == NULL) continue;
    if (t->dtype == v->config->act) {
      LS_TRY(ls_trace_add_view(*rings, stage->name, t, err));
      continue;
    }
    LS_TRY(ls_trace_add(*rings, stage->name, v->config->act, t->ndim, t->dim, &rounded, err));
    LS_TRY(ls_tensor_copy(&rounded, t, err));
  }
  return LS_OK;
}

static ls_trace *taken(session_recorded *r, ls_trace_part part) {
  ls_trace *trace = r->step.part[part];
  r->step.part[part] = NULL;
  return trace;
}

ls_status session_recorded_step(session *v, step_run *s, int p, ls_mode mode, const ls_trace *from, ls_run_result *result, ls_error *err) {
  session_recorded *r = v->recorded[p];
  ls_run *run = &v->run[p];
  (void)s;
  memset(result, 0, sizeof *result);
  result->out = taken(r, mode == LS_CASCADED ? LS_TRACE_CASCADED : LS_TRACE_ISOLATED);
  result->status = (mode == LS_CASCADED ? r->step.refused : r->step.isolated_refused) ? LS_REFUSED : LS_OK;
  if (mode == LS_CASCADED) {
    ls_fail(&result->why, result->status, "%s", r->step.why);
    if (ls_trace_reader_is_digest(r->reader)) return LS_OK;
    ls_trace *after = NULL;
    LS_TRY(patched(r, run->state, r->step.part[LS_TRACE_STATE], &after, err));
    result->before = run->state;
    result->owns_before = true;
    result->after = run->state = after;
    return LS_OK;
  }
  result->before = (ls_trace *)from;
  if (!has_rings(v->config->layer) || ls_trace_reader_is_digest(r->reader)) return LS_OK;
  ls_trace *rings = NULL;
  ls_status status = rings_of(v, from, &rings, err);
  if (status == LS_OK) status = patched(r, rings, r->step.part[LS_TRACE_RINGS], &result->after, err);
  result->owns_after = status == LS_OK;
  ls_trace_free(rings);
  return status;
}

/* ---- what is followed and given ---- */

static bool has_recorded(const session *v) {
  for (int p = 0; p < v->n_paths; p++)
    if (v->recorded[p] != NULL) return true;
  return false;
}

ls_status session_recorded_lead(session *v, step_run *s, ls_error *err) {
  const session_recorded *leader = NULL;
  for (int p = v->n_paths - 1; p >= 0; p--)
    if (v->recorded[p] != NULL) leader = v->recorded[p];
  const ls_trace *lead = leader != NULL ? leader->step.part[LS_TRACE_LEAD] : NULL;
  for (int i = 0; lead != NULL && i < lead->n; i++) {
    if (ls_trace_find(s->lead, lead->rec[i].name) != NULL) continue;
    if (s->lead == NULL) LS_TRY(ls_trace_new(&s->lead, "lead", err));
    LS_TRY(ls_trace_add_view(s->lead, lead->rec[i].name, &lead->rec[i].t, err));
  }
  return LS_OK;
}

const ls_trace *session_recorded_given(const session *v) {
  for (int p = 0; p < v->n_paths; p++) {
    const session_recorded *r = v->recorded[p];
    if (r != NULL && !ls_trace_reader_is_digest(r->reader) && r->step.staged) return r->step.part[LS_TRACE_GIVEN];
  }
  return NULL;
}

/* Once for each path and mode, where it begins. */
static ls_status tell_apart(session *v, int p, ls_mode mode, int64_t step, ls_error *err) {
  session_recorded *r = v->recorded[p];
  char line[320];
  if (v->options->apart != NULL) v->options->apart[p] = true;
  if (r->told[mode]) return LS_OK;
  r->told[mode] = true;
  snprintf(
      r->reason[mode], sizeof r->reason[mode], "path %s %s", r->name,
      mode == LS_ISOLATED ? "was given other values than the reference reads here" : "followed another selection than is followed here");
  snprintf(line, sizeof line, "%s, from step %" PRId64 " on: not compared %s there", r->reason[mode], step,
           mode == LS_ISOLATED ? "isolated" : "cascaded");
  return ls_report_note(v->report, line, err);
}

ls_status session_recorded_followed(session *v, step_run *s, ls_error *err) {
  if (!has_recorded(v) && v->options->record == NULL) return LS_OK;
  LS_TRY(ls_hash_trace(&s->lead_hash, s->lead, NULL, NULL, err));
  for (int p = 0; p < v->n_paths; p++) {
    session_recorded *r = v->recorded[p];
    if (r == NULL || r->step.lead_hash == s->lead_hash) continue;
    r->lead_apart = true;
    LS_TRY(tell_apart(v, p, LS_CASCADED, s->step.number, err));
  }
  return LS_OK;
}

static bool given_apart(const session_recorded *r, const step_run *s) {
  return !r->step.staged || r->step.given_hash != s->given_hash || r->step.from_hash != s->from_hash;
}

ls_status session_recorded_read(session *v, step_run *s, const ls_trace *from, ls_error *err) {
  if (!has_recorded(v) && v->options->record == NULL) return LS_OK;
  LS_TRY(ls_hash_trace(&s->given_hash, s->given, NULL, NULL, err));
  LS_TRY(ls_hash_trace(&s->from_hash, from, is_ring, v->config->layer, err));
  for (int p = 0; p < v->n_paths; p++)
    if (v->recorded[p] != NULL && given_apart(v->recorded[p], s)) LS_TRY(tell_apart(v, p, LS_ISOLATED, s->step.number, err));
  return LS_OK;
}

const char *session_recorded_apart(const session *v, const step_run *s, int a, int b, ls_mode mode) {
  const int side[] = {a, b};
  for (int i = 0; i < 2; i++) {
    const session_recorded *r = side[i] >= 0 ? v->recorded[side[i]] : NULL;
    if (r != NULL && (mode == LS_CASCADED ? r->lead_apart : given_apart(r, s))) return r->reason[mode];
  }
  return NULL;
}

/* ---- properties ---- */

static ls_verdict verdict_of(const char *word) {
  for (int i = 0; i < LS_VERDICTS; i++)
    if (strcmp(word, ls_verdict_name((ls_verdict)i)) == 0) return (ls_verdict)i;
  return LS_NOT_RUN;
}

static ls_status report_recorded(session *v, const step_run *s, int p, const ls_trace_property *property, ls_error *err) {
  ls_result result = session_fact(true);
  result.verdict = verdict_of(property->verdict);
  if (result.verdict == LS_FAIL) result.failing = 1, result.bit_equal = 0;
  if (property->note[0] != '\0') snprintf(result.note, sizeof result.note, "when it was recorded: %.280s", property->note);
  return session_property(v, s, property->name, p, &result, err);
}

ls_status session_recorded_property(session *v, const step_run *s, int p, const char *property, ls_error *err) {
  const session_recorded *r = v->recorded[p];
  for (int i = 0; i < r->step.properties; i++)
    if (strcmp(r->step.property[i].name, property) == 0) return report_recorded(v, s, p, &r->step.property[i], err);
  ls_result result;
  ls_result_init(&result);
  snprintf(result.note, sizeof result.note, "a recording cannot be run again, and it does not say");
  return session_property(v, s, property, p, &result, err);
}

bool session_is_digest(const session *v, int p) {
  return p >= 0 && v->recorded[p] != NULL && ls_trace_reader_is_digest(v->recorded[p]->reader);
}

/* Refused or not is told; all others ask for values. */
ls_status session_digest_path(session *v, const step_run *s, int p, ls_error *err) {
  const session_recorded *r = v->recorded[p];
  LS_TRY(session_judge_refusal(v, s, p, err));
  for (int i = 0; i < r->step.properties; i++)
    if (strcmp(r->step.property[i].name, "refusal") != 0) LS_TRY(report_recorded(v, s, p, &r->step.property[i], err));
  return LS_OK;
}

ls_status session_ring_rows(const step_run *s, const ls_stage *stage, const ls_tensor *ring, ls_trace *trace, ls_error *err) {
  if (ring == NULL || s->rows == 0) return LS_OK;
  if (ring->ndim != 3 || s->rows > ring->dim[1]) return LS_OK; /* judged as MISSING */
  const int64_t layers = ring->dim[0], capacity = ring->dim[1], dim[] = {layers, s->rows, ring->dim[2]};
  ls_tensor rows;
  LS_TRY(ls_trace_add(trace, stage->name, ring->dtype, 3, dim, &rows, err));
  for (int64_t l = 0; l < layers; l++) {
    const ls_tensor from = ls_tensor_at(ring, l), to = ls_tensor_at(&rows, l);
    for (int64_t r = 0; r < s->rows; r++) {
      const ls_tensor slot = ls_tensor_slice(&from, 0, ls_ring_slot(s->base + r, capacity), 1), row = ls_tensor_slice(&to, 0, r, 1);
      LS_TRY(ls_tensor_copy(&row, &slot, err));
    }
  }
  return LS_OK;
}
