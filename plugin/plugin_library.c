/* A user's shared library as an ls_path: its fixed C tables (include/lockstep/plugin.h) on one side, traces and configs on the other. Runs
 * in the child process alone. What it hands back is judged by the other side, which trusts nothing; here only what would not get there. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../core/ls_arena.h"
#include "../include/lockstep/plugin.h"
#include "ls_serve.h"

_Static_assert(LOCKSTEP_BF16 == (int)LS_BF16 && LOCKSTEP_F16 == (int)LS_F16 && LOCKSTEP_F32 == (int)LS_F32 && LOCKSTEP_F64 == (int)LS_F64 &&
                   LOCKSTEP_I32 == (int)LS_I32 && LOCKSTEP_I64 == (int)LS_I64 && LOCKSTEP_U8 == (int)LS_U8,
               "types have the same numbers on both sides");
_Static_assert(LOCKSTEP_STAGE_OWN == (int)LS_STAGE_OWN && LOCKSTEP_STAGE_FUSED == (int)LS_STAGE_FUSED &&
                   LOCKSTEP_STAGE_SHARED == (int)LS_STAGE_SHARED && LOCKSTEP_STAGE_ABSENT == (int)LS_STAGE_ABSENT,
               "kinds have the same numbers on both sides");
_Static_assert((int)LOCKSTEP_MAX_DIMS == (int)LS_MAX_DIMS, "tensors have as many axes on both sides");

struct lockstep_error {
  ls_error err;
};

struct lockstep_out {
  ls_trace *trace;
  ls_error failed; /* a call of add that could not be served */
  bool told;       /* what is added is a stage, worth telling the other side about */
};

typedef struct {
  const lockstep_plugin *plugin;
  ls_path path;
  bool opened;
  void (*tell)(void *arg, const char *stage);
  void *tell_arg;
} library;

typedef struct {
  const lockstep_plugin *plugin;
  void *ctx;
  ls_config config;
  lockstep_setup setup;
  lockstep_field *field;
  lockstep_tensor *weights;
  char text[256];
} context;

static library loaded; /* one a process */

void ls_library_on_stage(void (*tell)(void *arg, const char *stage), void *arg) {
  loaded.tell = tell;
  loaded.tell_arg = arg;
}

/* ---- what the library may call ---- */

static void *host_add(lockstep_out *out, const char *name, int32_t dtype, int32_t ndim, const int64_t *dim) {
  if (out == NULL) return NULL;
  if (name == NULL || dim == NULL || dtype < 0 || dtype >= LS_DTYPES || ndim < 0 || ndim > LS_MAX_DIMS ||
      strlen(name) >= LS_MAX_SPEC_NAME) {
    ls_fail(&out->failed, LS_INTERNAL, "add('%.64s', dtype %d, ndim %d): expected a name, a LOCKSTEP_ type and 0 to %d dimensions",
            name != NULL ? name : "(null)", (int)dtype, (int)ndim, (int)LS_MAX_DIMS);
    return NULL;
  }
  ls_tensor t;
  if (ls_trace_add(out->trace, name, (ls_dtype)dtype, ndim, dim, &t, &out->failed) != LS_OK) return NULL;
  if (out->told && loaded.tell != NULL) loaded.tell(loaded.tell_arg, name);
  return t.data;
}

__attribute__((format(printf, 3, 4))) static int32_t host_fail(lockstep_error *error, int32_t status, const char *format, ...) {
  char text[LS_ERROR_TEXT];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (error != NULL) ls_fail(&error->err, LS_INTERNAL, "%s", text);
  return status;
}

static const lockstep_host host = {LOCKSTEP_PLUGIN_ABI, sizeof host, host_add, host_fail};

/* What the library said, as a status and a line. */
static ls_status outcome(const char *call, int32_t said, const lockstep_error *error, const lockstep_out *out, ls_error *err) {
  const char *why = error->err.status != LS_OK ? error->err.text : "it gives no reason";
  if (out != NULL && out->failed.status != LS_OK) return ls_fail(err, LS_INTERNAL, "%s", out->failed.text);
  switch (said) {
    case LOCKSTEP_OK:
      break;
    case LOCKSTEP_REFUSED:
      if (strcmp(call, "step") == 0) return ls_fail(err, LS_REFUSED, "%s", why);
      return ls_fail(err, LS_INTERNAL, "%s returned LOCKSTEP_REFUSED, which only a step may: %s", call, why);
    case LOCKSTEP_UNAVAILABLE:
      return ls_fail(err, LS_UNAVAILABLE, "%s: %s", call, why);
    case LOCKSTEP_FAILED:
      return ls_fail(err, LS_INTERNAL, "%s failed: %s", call, why);
    default:
      return ls_fail(err, LS_INTERNAL, "%s returned %d, which is none of LOCKSTEP_OK, REFUSED, UNAVAILABLE, FAILED", call, (int)said);
  }
  ls_error guard = {LS_OK, ""};
  if (out != NULL && ls_arena_check(out->trace->mem, &guard) != LS_OK)
    return ls_fail(err, LS_INTERNAL, "%s wrote outside a tensor: %s", call, guard.text);
  return LS_OK;
}

/* ---- traces as the library sees them ---- */

static ls_status views(lockstep_tensors *set, lockstep_tensor **memory, const ls_trace *trace, ls_error *err) {
  const int n = trace != NULL ? trace->n : 0;
  *memory = calloc((size_t)n + 1, sizeof **memory);
  if (*memory == NULL) return ls_fail(err, LS_INTERNAL, "out of memory");
  for (int i = 0; i < n; i++) {
    const ls_tensor *t = &trace->rec[i].t;
    lockstep_tensor *view = &(*memory)[i];
    *view = (lockstep_tensor){.name = trace->rec[i].name, .dtype = (int32_t)t->dtype, .ndim = t->ndim, .data = t->data};
    for (int d = 0; d < LS_MAX_DIMS; d++) view->dim[d] = t->dim[d];
  }
  *set = (lockstep_tensors){*memory, n};
  return LS_OK;
}

static lockstep_step step_of(const ls_step *step, lockstep_tensors in) {
  return (lockstep_step){.size = sizeof(lockstep_step),
                         .op = ls_op_name(step->op),
                         .number = step->number,
                         .base = step->base,
                         .rows = step->rows,
                         .position = step->position,
                         .layer = step->layer,
                         .start_pos = step->start_pos,
                         .in = in};
}

/* ---- the path ---- */

static void library_close(void *of) {
  context *c = of;
  if (c == NULL) return;
  c->plugin->close(c->ctx);
  free(c->field);
  free(c->weights);
  free(c);
}

static ls_status make_setup(context *c, const ls_trace *weights, const ls_path_options *options, ls_error *err) {
  const ls_layer *layer = c->config.layer;
  c->field = calloc((size_t)layer->n_fields + 1, sizeof *c->field);
  if (c->field == NULL) return ls_fail(err, LS_INTERNAL, "out of memory");
  for (int i = 0; i < layer->n_fields; i++) {
    const ls_field *field = &layer->fields[i];
    const void *at = (const char *)&c->config + field->offset;
    lockstep_field *f = &c->field[i];
    *f = (lockstep_field){.name = field->name, .n = 1};
    if (field->kind == LS_FIELD_INTS) memcpy(&f->n, (const char *)&c->config + field->count_offset, sizeof f->n);
    if (field->kind == LS_FIELD_FLOAT) {
      memcpy(&f->real, at, sizeof f->real);
    } else {
      f->integer = at;
      f->real = f->n > 0 ? (double)f->integer[0] : 0;
    }
  }
  c->setup = (lockstep_setup){.size = sizeof c->setup,
                              .act = (int32_t)c->config.act,
                              .layer = layer->name,
                              .field = c->field,
                              .n_fields = layer->n_fields,
                              .device = options != NULL ? options->device : 0};
  return views(&c->setup.weights, &c->weights, weights, err);
}

static ls_status library_open_path(void **of, const ls_config *config, const ls_trace *weights, const ls_path_options *options,
                                   ls_error *err) {
  *of = NULL;
  if (loaded.opened) return ls_fail(err, LS_INTERNAL, "a library is opened once a process");
  loaded.opened = true;
  context *c = calloc(1, sizeof *c);
  if (c == NULL) return ls_fail(err, LS_INTERNAL, "out of memory");
  c->plugin = loaded.plugin;
  c->config = *config;
  lockstep_error error = {{LS_OK, ""}};
  ls_status status = make_setup(c, weights, options, err);
  if (status == LS_OK) status = outcome("open", c->plugin->open(&c->ctx, &host, &c->setup, &error), &error, NULL, err);
  if (status == LS_OK) {
    *of = c;
    return LS_OK;
  }
  free(c->field);
  free(c->weights);
  free(c);
  return status;
}

static ls_status library_step(void *of, const ls_step *step, const ls_trace *given, ls_trace *out, bool out_rings, ls_error *err) {
  context *c = of;
  (void)out_rings; /* save has them */
  lockstep_tensors in = {NULL, 0}, handed = {NULL, 0};
  lockstep_tensor *in_memory = NULL, *given_memory = NULL;
  lockstep_out record = {.trace = out, .told = true};
  lockstep_error error = {{LS_OK, ""}};
  ls_status status;
  LS_TRY_OUT(views(&in, &in_memory, step->in, err));
  LS_TRY_OUT(views(&handed, &given_memory, given, err));
  const lockstep_step what = step_of(step, in);
  const int32_t said = c->plugin->step(c->ctx, &what, given != NULL ? &handed : NULL, out != NULL ? &record : NULL, &error);
  status = outcome("step", said, &error, out != NULL ? &record : NULL, err);
out:
  free(in_memory);
  free(given_memory);
  return status;
}

static ls_status library_save(void *of, ls_trace *state, ls_error *err) {
  context *c = of;
  lockstep_out out = {.trace = state};
  lockstep_error error = {{LS_OK, ""}};
  return outcome("save", c->plugin->save(c->ctx, &out, &error), &error, &out, err);
}

static ls_status library_load(void *of, const ls_trace *state, ls_error *err) {
  context *c = of;
  lockstep_tensors set;
  lockstep_tensor *memory = NULL;
  lockstep_error error = {{LS_OK, ""}};
  LS_TRY(views(&set, &memory, state, err));
  const ls_status status = outcome("load", c->plugin->load(c->ctx, &set, &error), &error, NULL, err);
  free(memory);
  return status;
}

/* A number that is no kind goes on as it is: the other side names it. */
static ls_stage_kind library_stage_kind(void *of, const ls_step *step, const char *stage) {
  context *c = of;
  const lockstep_step what = step_of(step, (lockstep_tensors){NULL, 0});
  return (ls_stage_kind)c->plugin->stage_kind(c->ctx, &what, stage);
}

static const char *library_describe(void *of) {
  context *c = of;
  const char *text = c->plugin->describe != NULL ? c->plugin->describe(c->ctx) : NULL;
  snprintf(c->text, sizeof c->text, "%s", text != NULL ? text : c->plugin->name != NULL ? c->plugin->name : "a plug-in");
  return c->text;
}

/* ---- loading ---- */

static ls_status check_table(const lockstep_plugin *plugin, ls_error *err) {
  if (plugin == NULL)
    return ls_fail(err, LS_UNAVAILABLE, "lockstep_plugin_entry(%u) returned NULL: it was not built for plug-in ABI %u", LOCKSTEP_PLUGIN_ABI,
                   LOCKSTEP_PLUGIN_ABI);
  if (plugin->abi != LOCKSTEP_PLUGIN_ABI)
    return ls_fail(err, LS_UNAVAILABLE, "built for plug-in ABI %u, expected %u", plugin->abi, LOCKSTEP_PLUGIN_ABI);
  if (plugin->size < sizeof *plugin)
    return ls_fail(err, LS_UNAVAILABLE, "its table says that it has %u bytes, expected %zu: is `size` sizeof(lockstep_plugin)?",
                   plugin->size, sizeof *plugin);
  const char *missing = plugin->open == NULL         ? "open"
                        : plugin->step == NULL       ? "step"
                        : plugin->save == NULL       ? "save"
                        : plugin->load == NULL       ? "load"
                        : plugin->stage_kind == NULL ? "stage_kind"
                        : plugin->close == NULL      ? "close"
                                                     : NULL;
  return missing == NULL ? LS_OK : ls_fail(err, LS_UNAVAILABLE, "its table has NULL for the function %s", missing);
}

ls_status ls_library_open(const ls_path **path, const char *file, ls_error *err) {
  *path = NULL;
  if (access(file, R_OK) != 0) return ls_fail(err, LS_UNAVAILABLE, "%s", strerror(errno));
  void *handle = dlopen(file, RTLD_NOW | RTLD_LOCAL);
  if (handle == NULL) return ls_fail(err, LS_UNAVAILABLE, "cannot be loaded: %s", dlerror());
  void *symbol = dlsym(handle, "lockstep_plugin_entry");
  if (symbol == NULL) return ls_fail(err, LS_UNAVAILABLE, "exports no function lockstep_plugin_entry (include/lockstep/plugin.h)");
  const lockstep_plugin *(*entry)(uint32_t);
  memcpy(&entry, &symbol, sizeof entry); /* ISO C has no cast from an object's address to a function's */
  loaded.plugin = entry(LOCKSTEP_PLUGIN_ABI);
  LS_TRY(check_table(loaded.plugin, err));
  loaded.path = (ls_path){.abi = LS_PATH_ABI,
                          .name = loaded.plugin->name != NULL ? loaded.plugin->name : "plug-in",
                          .open = library_open_path,
                          .step = library_step,
                          .save = library_save,
                          .load = library_load,
                          .stage_kind = library_stage_kind,
                          .describe = library_describe,
                          .close = library_close};
  *path = &loaded.path;
  return LS_OK;
}
