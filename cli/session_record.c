/* Recording: what the last path of a session does with each step, as a trace file holds it. */
#include <stdio.h>
#include <string.h>

#include "../core/ls_digest.h"
#include "../core/ls_ring.h"
#include "../core/ls_trace_delta.h"
#include "session_internal.h"

static int recorded_path(const session *v) { return v->n_paths - 1; }

ls_status session_record_begin(session *v, const ls_trace *start, ls_error *err) {
  ls_recording *rec = v->options->record;
  const ls_run *run = &v->run[recorded_path(v)];
  ls_trace *delta = NULL;
  LS_TRY(ls_trace_writer_new(&rec->writer, rec->file, v->fixture, run->path->name, run->path->describe(run->ctx), rec->digest, rec->about,
                             err));
  if (rec->digest) return LS_OK;
  LS_TRY(ls_trace_delta(&delta, start, run->state, err));
  ls_status status = ls_trace_writer_start(rec->writer, delta, err);
  ls_trace_free(delta);
  return status;
}

ls_status session_record_end(session *v, ls_status status, ls_error *err) {
  ls_recording *rec = v->options->record;
  ls_trace_writer *writer = rec->writer;
  rec->writer = NULL;
  if (status == LS_OK && writer != NULL) return ls_trace_writer_commit(writer, err);
  ls_trace_writer_abandon(writer);
  return status;
}

/* ---- one step ---- */

void session_record_property(session *v, const char *property, const ls_result *result) {
  ls_recording *rec = v->options->record;
  ls_trace_step *step = rec->step_being;
  const bool fails = result->verdict == LS_FAIL || result->verdict == LS_MISSING;
  ls_trace_property *p = NULL;
  rec->properties_failing += fails;
  for (int i = 0; i < step->properties; i++)
    if (strcmp(step->property[i].name, property) == 0) p = &step->property[i];
  if (p != NULL && !fails) return; /* of several in a step one that fails counts, else the first */
  if (p != NULL && strcmp(p->verdict, ls_verdict_name(LS_FAIL)) == 0) return;
  if (p == NULL && step->properties == LS_TRACE_PROPERTIES) return;
  if (p == NULL) p = &step->property[step->properties++];
  snprintf(p->name, sizeof p->name, "%s", property);
  snprintf(p->verdict, sizeof p->verdict, "%s", ls_verdict_name(result->verdict));
  snprintf(p->note, sizeof p->note, "%s", result->note);
}

/* Everything of `from` but what the reader has otherwise: the step's input and what the fixture holds. Views. */
static ls_status beside_fixture(const session *v, const step_run *s, const ls_trace *from, ls_trace **to, ls_error *err) {
  LS_TRY(ls_trace_new(to, "recorded", err));
  for (int i = 0; from != NULL && i < from->n; i++) {
    const char *name = from->rec[i].name;
    if (strcmp(name, v->hooks->input) == 0 || ls_trace_find(s->step.expect, name) != NULL) continue;
    LS_TRY(ls_trace_add_view(*to, name, &from->rec[i].t, err));
  }
  return LS_OK;
}

/* The stages that the path recorded in one mode, or their digests. */
static ls_status stages(session *v, const step_run *s, ls_mode mode, ls_trace **to, ls_error *err) {
  const ls_layer *layer = v->config->layer;
  const ls_run_result *result = mode == LS_CASCADED ? &s->cascaded[recorded_path(v)] : &s->isolated[recorded_path(v)];
  LS_TRY(ls_trace_new(to, "recorded", err));
  for (int i = 0; i < layer->n_stages; i++) {
    const ls_stage *stage = &layer->stages[i];
    const ls_tensor *t = ls_trace_tensor(stage->is_ring ? result->after : result->out, stage->name);
    if (t == NULL || (stage->is_ring && !v->options->record->digest)) continue; /* a ring is in the state */
    if (!v->options->record->digest || !ls_dtype_is_float(t->dtype)) {
      LS_TRY(ls_trace_add_view(*to, stage->name, t, err));
      continue;
    }
    ls_trace *rows = NULL;
    ls_status status = LS_OK;
    if (stage->is_ring) {
      status = ls_trace_new(&rows, "rows", err);
      if (status == LS_OK) status = session_ring_rows(s, stage, t, rows, err);
      t = ls_trace_tensor(rows, stage->name);
    }
    const ls_tensor *only = v->hooks->defined != NULL && !stage->is_ring ? v->hooks->defined(v, s, stage, mode) : NULL;
    if (only != NULL && !ls_tensor_same_shape(only, t)) only = NULL;
    if (status == LS_OK && t != NULL) status = ls_digest_add(*to, stage->name, t, ls_stage_type(v->config, stage), only, err);
    ls_trace_free(rows);
    if (status != LS_OK) return status;
  }
  return LS_OK;
}

/* Rings alone; views. */
static ls_status rings_of(const session *v, const ls_trace *state, ls_trace **rings, ls_error *err) {
  LS_TRY(ls_trace_new(rings, "rings", err));
  for (int i = 0; i < v->config->layer->n_stages; i++) {
    const ls_stage *stage = &v->config->layer->stages[i];
    const ls_tensor *t = stage->is_ring ? ls_trace_tensor(state, stage->name) : NULL;
    if (t != NULL) LS_TRY(ls_trace_add_view(*rings, stage->name, t, err));
  }
  return LS_OK;
}

/* The change of rings by the isolated step, with all slots that it wrote: one that came out as it was is no change here, but is one where
 * the reference's ring holds another value, which is where the change will be read. */
static ls_status rings_written(const step_run *s, const ls_trace *before, const ls_trace *after, ls_trace **delta, ls_error *err) {
  ls_trace *other = NULL;
  LS_TRY(ls_trace_copy(&other, before, err));
  for (int i = 0; i < other->n; i++) {
    const ls_tensor *to = &other->rec[i].t, *from = ls_trace_tensor(after, other->rec[i].name);
    if (from == NULL || !ls_tensor_same_shape(to, from) || to->dtype != from->dtype || to->ndim != 3) continue; /* told in whole */
    const size_t bytes = (size_t)to->dim[2] * ls_dtype_size(to->dtype);
    for (int64_t l = 0; l < to->dim[0]; l++) {
      for (int64_t r = 0; r < s->rows; r++) {
        const size_t at = (size_t)(l * to->dim[1] + ls_ring_slot(s->base + r, to->dim[1])) * bytes;
        for (size_t k = 0; k < bytes; k++)
          ((unsigned char *)to->data)[at + k] = (unsigned char)~((const unsigned char *)from->data)[at + k];
      }
    }
  }
  const ls_status status = ls_trace_delta(delta, other, after, err);
  ls_trace_free(other);
  return status;
}

static void add_name(char names[LS_TRACE_NAMES], const char *name) {
  const size_t used = strlen(names);
  snprintf(names + used, LS_TRACE_NAMES - used, "%s%s", used > 0 ? " " : "", name);
}

static ls_status fill(session *v, step_run *s, ls_trace_step *t, ls_trace *kept[2], ls_error *err) {
  const int p = recorded_path(v);
  const ls_run_result *r = &s->cascaded[p], *isolated = &s->isolated[p];
  t->number = s->step.number;
  t->op = s->step.op;
  t->refused = r->status == LS_REFUSED;
  snprintf(t->why, sizeof t->why, "%s", r->why.text);
  t->staged = s->staged;
  t->isolated_refused = isolated->status == LS_REFUSED;
  t->base = s->base;
  t->rows = s->rows;
  t->lead_hash = s->lead_hash;
  t->given_hash = s->given_hash;
  t->from_hash = s->from_hash;
  for (int i = 0; i < v->config->layer->n_stages; i++) {
    const char *name = v->config->layer->stages[i].name;
    const ls_stage_kind kind = session_kind_of(v, s, p, name);
    if (kind != LS_STAGE_ABSENT) add_name(kind == LS_STAGE_OWN ? t->own : kind == LS_STAGE_FUSED ? t->fused : t->shared, name);
  }
  LS_TRY(stages(v, s, LS_CASCADED, &t->part[LS_TRACE_CASCADED], err));
  LS_TRY(beside_fixture(v, s, s->lead, &t->part[LS_TRACE_LEAD], err));
  if (s->staged) LS_TRY(stages(v, s, LS_ISOLATED, &t->part[LS_TRACE_ISOLATED], err));
  if (v->options->record->digest) return LS_OK;
  LS_TRY(ls_trace_delta(&t->part[LS_TRACE_STATE], r->before, r->after, err));
  if (!s->staged) return LS_OK;
  LS_TRY(beside_fixture(v, s, s->given, &t->part[LS_TRACE_GIVEN], err));
  LS_TRY(rings_of(v, isolated->before, &kept[0], err));
  LS_TRY(rings_of(v, isolated->after, &kept[1], err));
  return rings_written(s, kept[0], kept[1], &t->part[LS_TRACE_RINGS], err);
}

ls_status session_record_step(session *v, step_run *s, ls_error *err) {
  ls_recording *rec = v->options->record;
  ls_trace *kept[2] = {NULL, NULL}; /* what the views of a step look into */
  ls_trace_step step;
  ls_status status;
  memset(&step, 0, sizeof step);
  rec->step_being = &step;
  LS_TRY_OUT(fill(v, s, &step, kept, err));
  LS_TRY_OUT(v->hooks->judge_path(v, s, recorded_path(v), err));
  LS_TRY_OUT(ls_trace_writer_step(rec->writer, &step, err));
  rec->steps++;
out:
  rec->step_being = NULL;
  ls_trace_step_free(&step);
  ls_trace_free(kept[0]);
  ls_trace_free(kept[1]);
  return status;
}
