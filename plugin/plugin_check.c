#include "plugin_check.h"

#include <stdio.h>
#include <string.h>

#include "../layers/ls_attn.h"

static const ls_tensor_spec *spec_named(const ls_spec_list *specs, const char *name) {
  for (int i = 0; i < specs->n; i++)
    if (strcmp(specs->spec[i].name, name) == 0) return &specs->spec[i];
  return NULL;
}

static const char *types_text(char *buf, size_t size, unsigned dtypes) {
  size_t used = 0;
  buf[0] = '\0';
  for (int d = 0; d < LS_DTYPES; d++)
    if ((dtypes & 1u << d) != 0 && used < size)
      used += (size_t)snprintf(buf + used, size - used, "%s%s", used > 0 ? " or " : "", ls_dtype_name((ls_dtype)d));
  return buf;
}

static ls_status check_form(const char *what, const ls_tensor_spec *spec, const ls_wire_head *head, ls_error *err) {
  bool right = head->ndim == spec->ndim && (spec->dtypes & 1u << head->dtype) != 0;
  for (int d = 0; d < spec->ndim && right; d++)
    right = head->dim[d] == spec->dim[d] || (d == 0 && spec->partial && head->dim[d] < spec->dim[d]);
  if (right) return LS_OK;
  char wanted[96], found[96], types[64];
  return ls_fail(err, LS_INTERNAL, "%s %s: expected %s%s of %s, found %s of %s", what, head->name, spec->partial ? "at most " : "",
                 ls_dims_text(wanted, sizeof wanted, spec->ndim, spec->dim), types_text(types, sizeof types, spec->dtypes),
                 ls_dims_text(found, sizeof found, head->ndim, head->dim), ls_dtype_name(head->dtype));
}

ls_status ls_check_stage(const ls_config *config, const ls_spec_list *specs, const ls_wire_head *head, ls_error *err) {
  const ls_tensor_spec *spec = spec_named(specs, head->name);
  if (spec != NULL) return check_form("stage", spec, head, err);
  if (ls_stage_find(config->layer, head->name) != NULL)
    return ls_fail(err, LS_INTERNAL, "it recorded stage %s, which this step does not have", head->name);
  return ls_fail(err, LS_INTERNAL, "it recorded '%s', which is no stage of layer %s", head->name, config->layer->name);
}

/* The integers that a state trace holds, each [1] i64 (ls_path.h). */
static const ls_int_attribute *integers_of(const ls_layer *layer, int *n) {
  const bool attn = layer == &ls_layer_attn_v41;
  *n = attn ? LS_ATTN_PUBLISHED : layer->n_state_attributes;
  return attn ? ls_attn_published : layer->state_attributes;
}

static bool is_integer(const ls_layer *layer, const char *name) {
  int n;
  const ls_int_attribute *list = integers_of(layer, &n);
  for (int i = 0; i < n; i++)
    if (strcmp(list[i].name, name) == 0) return true;
  return false;
}

/* What attn_v41 publishes beside its integers: [rows, width], both said by integers of the state. */
static const ls_tensor_spec *published_spec(const ls_config *config, const char *name) {
  static const ls_tensor_spec published[] = {
      {.name = "topk_idxs", .ndim = 2, .dim = {INT32_MAX, INT32_MAX}, .dtypes = 1u << LS_I32, .partial = true},
      {.name = "candidates", .ndim = 2, .dim = {INT32_MAX, INT32_MAX}, .dtypes = 1u << LS_U8, .partial = true}};
  for (int i = 0; config->layer == &ls_layer_attn_v41 && i < 2; i++)
    if (strcmp(published[i].name, name) == 0) return &published[i];
  return NULL;
}

ls_status ls_check_state_tensor(const ls_config *config, const ls_spec_list *specs, const ls_wire_head *head, ls_error *err) {
  const ls_tensor_spec *spec = spec_named(specs, head->name);
  if (spec != NULL) return check_form("state tensor", spec, head, err);
  if (is_integer(config->layer, head->name)) {
    const ls_tensor_spec one = {.ndim = 1, .dim = {1}, .dtypes = 1u << LS_I64};
    return check_form("state tensor", &one, head, err);
  }
  spec = published_spec(config, head->name);
  if (spec == NULL) return ls_fail(err, LS_INTERNAL, "it saved '%s', which no state of layer %s has", head->name, config->layer->name);
  ls_tensor_spec any = *spec; /* at most a selection of every row that the layer can hold */
  any.dim[0] = config->attn.max_tokens;
  any.dim[1] = head->ndim == 2 && head->dim[1] <= config->attn.max_seq_len + config->attn.window_size ? head->dim[1] : 0;
  return check_form("state tensor", &any, head, err);
}

ls_status ls_check_state_whole(const ls_config *config, const ls_spec_list *specs, const ls_trace *state, ls_error *err) {
  for (int i = 0; i < specs->n; i++)
    if (!specs->spec[i].partial && ls_trace_find(state, specs->spec[i].name) == NULL)
      return ls_fail(err, LS_INTERNAL, "the state that it saved holds no %s", specs->spec[i].name);
  int n;
  const ls_int_attribute *list = integers_of(config->layer, &n);
  for (int i = 0; i < n; i++)
    if (ls_trace_find(state, list[i].name) == NULL) return ls_fail(err, LS_INTERNAL, "the state that it saved holds no %s", list[i].name);
  return LS_OK;
}
