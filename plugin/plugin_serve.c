/* The child's loop: one request, one call of the path, one reply. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_parallel.h"
#include "../core/ls_shortage.h"
#include "ls_serve.h"
#include "plugin_message.h"

typedef struct {
  ls_wire wire;
  const ls_path *path;
  void *ctx;
  ls_config config;
  ls_trace *weights; /* a path may read them until it is closed */
} server;

static void tell_stage(void *arg, const char *stage) {
  server *s = arg;
  ls_wire_put_int(&s->wire, LS_WIRE_PROGRESS);
  ls_wire_put_text(&s->wire, stage);
  ls_wire_flush(&s->wire); /* now: the next thing it does may be its last */
}

static void done(server *s, ls_status status, const ls_error *err) {
  ls_wire_put_int(&s->wire, LS_WIRE_DONE);
  ls_wire_put_int(&s->wire, status);
  ls_wire_put_text(&s->wire, err->text);
}

static ls_status read_new_trace(server *s, ls_trace **trace, const char *origin, ls_error *err) {
  LS_TRY(ls_trace_new(trace, origin, err));
  return ls_wire_get_trace(&s->wire, *trace, NULL, NULL, err);
}

static ls_status open_served(server *s, ls_error *err) {
  ls_path_options options;
  memset(&options, 0, sizeof options);
  LS_TRY(ls_wire_get_config(&s->wire, &s->config, err));
  options.precision = (ls_precision)ls_wire_get_range(&s->wire, 0, LS_PRECISION_F64);
  options.emu_schedule = (uint64_t)ls_wire_get_int(&s->wire);
  options.device = (int)ls_wire_get_range(&s->wire, 0, INT32_MAX);
  ls_threads_set((int)ls_wire_get_range(&s->wire, 1, 4096));
  LS_TRY(read_new_trace(s, &s->weights, "weights", err));
  return s->path->open(&s->ctx, &s->config, s->weights, &options, err);
}

static ls_status serve_open(server *s, ls_error *err) {
  if (s->ctx != NULL || s->weights != NULL) return ls_fail(err, LS_INTERNAL, "opened twice");
  ls_error why = {LS_OK, ""}; /* of the path's; what ends the serving is err's */
  const ls_status status = open_served(s, &why);
  LS_TRY(ls_wire_status(&s->wire, err));
  done(s, status, &why);
  if (status == LS_OK) ls_wire_put_text(&s->wire, s->path->describe(s->ctx));
  return LS_OK;
}

/* What every stage of the layer is in this step. */
static void put_kinds(server *s, const ls_step *step) {
  ls_wire_put_int(&s->wire, s->config.layer->n_stages);
  for (int i = 0; i < s->config.layer->n_stages; i++) {
    const char *name = s->config.layer->stages[i].name;
    ls_wire_put_text(&s->wire, name);
    ls_wire_put_int(&s->wire, s->path->stage_kind(s->ctx, step, name));
  }
}

static ls_status serve_step(server *s, ls_error *err) {
  ls_step step;
  ls_trace *given = NULL, *out = NULL;
  ls_status status;
  const bool traced = ls_wire_get_range(&s->wire, 0, 1) == 1, rings = ls_wire_get_range(&s->wire, 0, 1) == 1,
             isolated = ls_wire_get_range(&s->wire, 0, 1) == 1;
  LS_TRY_OUT(ls_wire_get_step(&s->wire, &step, err));
  if (isolated) LS_TRY_OUT(read_new_trace(s, &given, "given", err));
  if (traced) LS_TRY_OUT(ls_trace_new(&out, s->path->name, err));
  ls_error why = {LS_OK, ""};
  ls_status stepped = s->path->step(s->ctx, &step, given, out, rings, &why);
  if (ls_shortage_take()) {
    why = (ls_error){LS_OK, ""};
    stepped = ls_fail(&why, LS_INTERNAL, "out of memory in a step");
  }
  done(s, stepped, &why);
  if ((stepped == LS_OK || stepped == LS_REFUSED) && traced) {
    put_kinds(s, &step);
    status = ls_wire_put_trace(&s->wire, out, err);
  }
out:
  ls_trace_free(step.in);
  ls_trace_free(given);
  ls_trace_free(out);
  return status;
}

static ls_status serve_save(server *s, ls_error *err) {
  ls_trace *state = NULL;
  ls_error why = {LS_OK, ""};
  LS_TRY(ls_trace_new(&state, s->path->name, err));
  ls_status status = s->path->save(s->ctx, state, &why);
  done(s, status, &why);
  status = status == LS_OK ? ls_wire_put_trace(&s->wire, state, err) : LS_OK;
  ls_trace_free(state);
  return status;
}

static ls_status serve_load(server *s, ls_error *err) {
  ls_trace *state = NULL;
  ls_error why = {LS_OK, ""};
  ls_status status = read_new_trace(s, &state, "state", err);
  if (status == LS_OK) done(s, s->path->load(s->ctx, state, &why), &why);
  ls_trace_free(state);
  return status;
}

static ls_status serve_kind(server *s, ls_error *err) {
  ls_step step;
  char stage[LS_NAME_MAX];
  ls_error fine = {LS_OK, ""};
  ls_status status = ls_wire_get_step(&s->wire, &step, err);
  ls_wire_get_text(&s->wire, stage, sizeof stage);
  if (status == LS_OK) status = ls_wire_status(&s->wire, err);
  if (status == LS_OK) {
    done(s, LS_OK, &fine);
    ls_wire_put_int(&s->wire, s->path->stage_kind(s->ctx, &step, stage));
  }
  ls_trace_free(step.in);
  return status;
}

static ls_status serve_requests(server *s, ls_error *err) {
  while (s->wire.state == LS_WIRE_OK) {
    ls_wire_flush(&s->wire);
    const int64_t request = ls_wire_get_int(&s->wire);
    if (s->wire.state != LS_WIRE_OK || request == LS_WIRE_CLOSE) break;
    if (request != LS_WIRE_OPEN && s->ctx == NULL) return ls_fail(err, LS_INTERNAL, "request %" PRId64 " before open", request);
    switch (request) {
      case LS_WIRE_OPEN:
        LS_TRY(serve_open(s, err));
        break;
      case LS_WIRE_STEP:
        LS_TRY(serve_step(s, err));
        break;
      case LS_WIRE_SAVE:
        LS_TRY(serve_save(s, err));
        break;
      case LS_WIRE_LOAD:
        LS_TRY(serve_load(s, err));
        break;
      case LS_WIRE_KIND:
        LS_TRY(serve_kind(s, err));
        break;
      default:
        return ls_fail(err, LS_INTERNAL, "request %" PRId64 " is unknown", request);
    }
  }
  return LS_OK; /* the other side may leave whenever it likes */
}

ls_status ls_serve(int socket, const ls_path *path, const ls_error *reason, ls_error *err) {
  server *s = calloc(1, sizeof *s);
  if (s == NULL) return ls_fail(err, LS_INTERNAL, "out of memory");
  ls_wire_init(&s->wire, socket);
  s->path = path;
  ls_wire_put_int(&s->wire, LS_WIRE_MAGIC);
  ls_wire_put_int(&s->wire, LS_WIRE_PROTOCOL);
  ls_wire_put_int(&s->wire, path != NULL ? LS_OK : reason->status);
  ls_wire_put_text(&s->wire, path != NULL ? path->name : reason->text);
  ls_wire_flush(&s->wire);
  ls_status status = LS_OK;
  if (path != NULL) {
    ls_library_on_stage(tell_stage, s);
    status = serve_requests(s, err);
    if (s->ctx != NULL) path->close(s->ctx);
  }
  ls_trace_free(s->weights);
  free(s);
  return status;
}
