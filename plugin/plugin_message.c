#include "plugin_message.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

ls_status ls_wire_status(const ls_wire *wire, ls_error *err) {
  static const char *const lines[] = {[LS_WIRE_CLOSED] = "the other process has closed the connection",
                                      [LS_WIRE_TIMEOUT] = "the other process did not answer in time",
                                      [LS_WIRE_INTERRUPTED] = "interrupted",
                                      [LS_WIRE_MALFORMED] = "the other process sent what the protocol does not know"};
  if (wire->state == LS_WIRE_OK) return LS_OK;
  return ls_fail(err, wire->state == LS_WIRE_INTERRUPTED ? LS_INTERRUPTED : LS_INTERNAL, "%s", lines[wire->state]);
}

/* ---- traces ---- */

static ls_status put_tensor(ls_wire *wire, const char *name, const ls_tensor *t, ls_error *err) {
  if (t->place != LS_HOST) return ls_fail(err, LS_INTERNAL, "tensor %s lies in device memory", name);
  ls_wire_put_text(wire, name);
  ls_wire_put_int(wire, t->dtype);
  ls_wire_put_int(wire, t->ndim);
  for (int d = 0; d < t->ndim; d++) ls_wire_put_int(wire, t->dim[d]);
  const size_t bytes = ls_tensor_bytes(t);
  if (bytes == 0) return LS_OK;
  if (ls_tensor_is_dense(t)) {
    ls_wire_put_bytes(wire, t->data, bytes);
    return LS_OK;
  }
  void *copy = malloc(bytes);
  if (copy == NULL) return ls_fail(err, LS_INTERNAL, "out of memory: %zu bytes to pass on tensor %s", bytes, name);
  const ls_tensor dense = ls_tensor_make(t->dtype, t->ndim, t->dim, copy);
  const ls_status status = ls_tensor_copy(&dense, t, err);
  if (status == LS_OK) ls_wire_put_bytes(wire, copy, bytes);
  free(copy);
  return status;
}

ls_status ls_wire_put_trace(ls_wire *wire, const ls_trace *trace, ls_error *err) {
  const int n = trace != NULL ? trace->n : 0;
  ls_wire_put_int(wire, n);
  for (int i = 0; i < n; i++) LS_TRY(put_tensor(wire, trace->rec[i].name, &trace->rec[i].t, err));
  return LS_OK;
}

static void get_head(ls_wire *wire, ls_wire_head *head) {
  memset(head, 0, sizeof *head);
  ls_wire_get_text(wire, head->name, sizeof head->name);
  head->dtype = (ls_dtype)ls_wire_get_range(wire, 0, LS_DTYPES - 1);
  head->ndim = (int)ls_wire_get_range(wire, 0, LS_MAX_DIMS);
  for (int d = 0; d < head->ndim; d++) head->dim[d] = ls_wire_get_range(wire, 0, INT64_MAX);
}

ls_status ls_wire_get_trace(ls_wire *wire, ls_trace *trace, ls_wire_accept *accept, void *arg, ls_error *err) {
  const int64_t n = ls_wire_get_range(wire, 0, INT32_MAX);
  for (int64_t i = 0; i < n && wire->state == LS_WIRE_OK; i++) {
    ls_wire_head head;
    ls_tensor t;
    get_head(wire, &head);
    if (wire->state != LS_WIRE_OK) break;
    if (accept != NULL) LS_TRY(accept(arg, &head, err));
    LS_TRY(ls_trace_add(trace, head.name, head.dtype, head.ndim, head.dim, &t, err));
    ls_wire_get_bytes(wire, t.data, ls_tensor_bytes(&t));
  }
  return ls_wire_status(wire, err);
}

/* ---- configs ---- */

static int64_t values_of(const ls_config *config, const ls_field *field) {
  if (field->kind != LS_FIELD_INTS) return 1;
  return *(const int64_t *)((const char *)config + field->count_offset);
}

void ls_wire_put_config(ls_wire *wire, const ls_config *config) {
  ls_wire_put_text(wire, config->layer->name);
  ls_wire_put_int(wire, config->act);
  ls_wire_put_int(wire, config->layer->n_fields);
  for (int i = 0; i < config->layer->n_fields; i++) {
    const ls_field *field = &config->layer->fields[i];
    const char *at = (const char *)config + field->offset;
    const int64_t n = values_of(config, field);
    ls_wire_put_text(wire, field->name);
    ls_wire_put_int(wire, n);
    ls_wire_put_bytes(wire, at, (size_t)n * 8); /* an int64_t or a double each */
  }
}

static const ls_field *field_named(const ls_layer *layer, const char *name) {
  for (int i = 0; i < layer->n_fields; i++)
    if (strcmp(layer->fields[i].name, name) == 0) return &layer->fields[i];
  return NULL;
}

ls_status ls_wire_get_config(ls_wire *wire, ls_config *config, ls_error *err) {
  char name[LS_MAX_SPEC_NAME];
  memset(config, 0, sizeof *config);
  ls_wire_get_text(wire, name, sizeof name);
  LS_TRY(ls_wire_status(wire, err));
  config->layer = ls_layer_find(name);
  if (config->layer == NULL) return ls_fail(err, LS_UNAVAILABLE, "layer %s is not known to this build", name);
  config->act = (ls_dtype)ls_wire_get_range(wire, 0, LS_DTYPES - 1);
  const int64_t n = ls_wire_get_range(wire, 0, 1024);
  for (int64_t i = 0; i < n && wire->state == LS_WIRE_OK; i++) {
    ls_wire_get_text(wire, name, sizeof name);
    const ls_field *field = field_named(config->layer, name);
    if (field == NULL && wire->state == LS_WIRE_OK)
      return ls_fail(err, LS_UNAVAILABLE, "config field %s of layer %s is not known to this build", name, config->layer->name);
    const int64_t most = field != NULL && field->kind == LS_FIELD_INTS ? field->most : 1;
    const int64_t values = ls_wire_get_range(wire, 0, most);
    if (field != NULL) ls_wire_get_bytes(wire, (char *)config + field->offset, (size_t)values * 8);
  }
  LS_TRY(ls_wire_status(wire, err));
  return config->layer->config_check(config, err);
}

/* ---- steps ---- */

ls_status ls_wire_put_step(ls_wire *wire, const ls_step *step, ls_error *err) {
  ls_wire_put_text(wire, ls_op_name(step->op));
  const int64_t number[] = {step->number, step->base, step->rows, step->position, step->layer, step->start_pos};
  ls_wire_put_bytes(wire, number, sizeof number);
  return ls_wire_put_trace(wire, step->in, err);
}

ls_status ls_wire_get_step(ls_wire *wire, ls_step *step, ls_error *err) {
  char op[LS_NAME_MAX];
  int64_t number[6];
  memset(step, 0, sizeof *step);
  ls_wire_get_text(wire, op, sizeof op);
  ls_wire_get_bytes(wire, number, sizeof number);
  LS_TRY(ls_wire_status(wire, err));
  int found = 0;
  while (found < LS_OPS && strcmp(ls_op_name((ls_op)found), op) != 0) found++;
  if (found == LS_OPS) return ls_fail(err, LS_UNAVAILABLE, "operation %s is not known to this build", op);
  step->op = (ls_op)found;
  step->number = number[0], step->base = number[1], step->rows = number[2];
  step->position = number[3], step->layer = number[4], step->start_pos = number[5];
  step->cursor = -1;
  LS_TRY(ls_trace_new(&step->in, "input", err));
  return ls_wire_get_trace(wire, step->in, NULL, NULL, err);
}
