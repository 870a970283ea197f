#include "ls_layer.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_shortage.h"

static const ls_layer *const known_layers[] = {&ls_layer_dflash_context_kv, &ls_layer_attn_v41};

const ls_layer *ls_layer_find(const char *name) {
  for (size_t i = 0; name != NULL && i < sizeof known_layers / sizeof known_layers[0]; i++) {
    if (strcmp(known_layers[i]->name, name) == 0) return known_layers[i];
  }
  return NULL;
}

const ls_stage *ls_stage_find(const ls_layer *layer, const char *name) {
  for (int i = 0; layer != NULL && name != NULL && i < layer->n_stages; i++) {
    if (strcmp(layer->stages[i].name, name) == 0) return &layer->stages[i];
  }
  return NULL;
}

const char *ls_op_name(ls_op op) {
  static const char *const names[LS_OPS] = {"capture", "draft_write", "context_write", "rewind", "forward"};
  return (int)op >= 0 && op < LS_OPS ? names[op] : "unknown operation";
}

const ls_int_attribute *ls_op_attributes(ls_op op, int *n) {
  static const ls_int_attribute base_rows[] = {{"base", offsetof(ls_step, base), 0}, {"rows", offsetof(ls_step, rows), 0}},
                                position[] = {{"position", offsetof(ls_step, position), 0}},
                                forward[] = {{"layer", offsetof(ls_step, layer), 0}, {"start_pos", offsetof(ls_step, start_pos), 0}};
  switch (op) {
    case LS_OP_CAPTURE:
    case LS_OP_DRAFT_WRITE:
      *n = 2;
      return base_rows;
    case LS_OP_CONTEXT_WRITE:
      *n = 1;
      return &base_rows[1];
    case LS_OP_REWIND:
      *n = 1;
      return position;
    case LS_OP_FORWARD:
      *n = 2;
      return forward;
    default:
      *n = 0;
      return NULL;
  }
}

ls_dtype ls_stage_type(const ls_config *config, const ls_stage *stage) {
  switch (stage->holds) {
    case LS_HOLDS_VALUES:
      return config->act;
    case LS_HOLDS_F32:
      return LS_F32;
    case LS_HOLDS_MASK:
      return LS_U8;
    default:
      return LS_I32;
  }
}

ls_status ls_spec_add(ls_spec_list *list, const char *name, int ndim, const int64_t *dim, unsigned dtypes, bool required, ls_error *err) {
  if (strlen(name) >= LS_MAX_SPEC_NAME)
    return ls_fail(err, LS_INTERNAL, "tensor name %.40s...: longer than %d", name, LS_MAX_SPEC_NAME - 1);
  if (ndim < 0 || ndim > LS_MAX_DIMS) return ls_fail(err, LS_INTERNAL, "tensor %s: rank %d, at most %d", name, ndim, LS_MAX_DIMS);
  if (list->n == list->room) {
    int room = list->room > 0 ? 2 * list->room : 16;
    ls_tensor_spec *grown = ls_shortage_unless(realloc(list->spec, (size_t)room * sizeof *grown));
    if (grown == NULL) return ls_fail(err, LS_INTERNAL, "out of memory: %zu bytes for a list of tensors", (size_t)room * sizeof *grown);
    list->spec = grown;
    list->room = room;
  }
  ls_tensor_spec *spec = &list->spec[list->n++];
  memset(spec, 0, sizeof *spec);
  strcpy(spec->name, name);
  spec->ndim = ndim;
  for (int i = 0; i < LS_MAX_DIMS; i++) spec->dim[i] = i < ndim ? dim[i] : 1;
  spec->dtypes = dtypes;
  spec->required = required;
  return LS_OK;
}

void ls_spec_free(ls_spec_list *list) {
  if (list == NULL) return;
  free(list->spec);
  *list = (ls_spec_list){0};
}

/* "layer dflash_context_kv, bf16, hidden 96, aux_count 3, ...": the table of fields is the one source of what a config holds. */
char *ls_config_text(char *buf, size_t size, const ls_config *config) {
  if (size == 0) return buf;
  int used = snprintf(buf, size, "%s, %s", config->layer->name, ls_dtype_name(config->act));
  for (int i = 0; i < config->layer->n_fields && used >= 0 && (size_t)used < size; i++) {
    const ls_field *field = &config->layer->fields[i];
    const void *at = (const char *)config + field->offset;
    char *to = buf + used;
    size_t room = size - (size_t)used;
    switch (field->kind) {
      case LS_FIELD_INT:
        used += snprintf(to, room, ", %s %lld", field->name, (long long)*(const int64_t *)at);
        break;
      case LS_FIELD_FLOAT:
        used += snprintf(to, room, ", %s %g", field->name, *(const double *)at);
        break;
      case LS_FIELD_WORD:
        used += snprintf(to, room, ", %s %s", field->name, field->words[*(const int64_t *)at]);
        break;
      case LS_FIELD_INTS:
        used += snprintf(to, room, ", %s", field->name);
        for (int64_t k = 0; k < *(const int64_t *)((const char *)config + field->count_offset) && used >= 0 && (size_t)used < size; k++)
          used += snprintf(buf + used, size - (size_t)used, "%c%lld", k == 0 ? ' ' : '/', (long long)((const int64_t *)at)[k]);
        break;
    }
  }
  return buf;
}
