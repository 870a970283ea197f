#include "ref_check.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

/* "bf16 [96, 288]" or, with more than one type allowed, "bf16, f16 or f32 [96]" */
static const char *spec_text(char *buf, size_t size, const ls_tensor_spec *spec) {
  char dims[96], types[48] = "";
  for (int type = 0, left = __builtin_popcount(spec->dtypes); type < LS_DTYPES; type++) {
    if ((spec->dtypes >> type & 1u) == 0) continue;
    left--;
    size_t used = strlen(types);
    snprintf(types + used, sizeof types - used, "%s%s", ls_dtype_name((ls_dtype)type), left == 0 ? "" : left == 1 ? " or " : ", ");
  }
  snprintf(buf, size, "%s %s%s", types, ls_dims_text(dims, sizeof dims, spec->ndim, spec->dim), spec->partial ? " or fewer rows" : "");
  return buf;
}

ls_status ls_ref_check_tensor(const ls_tensor **found, const ls_trace *trace, const char *where, const ls_tensor_spec *spec,
                              ls_error *err) {
  char expected[160], dims[96];
  const ls_tensor *t = *found = ls_trace_tensor(trace, spec->name);
  if (t == NULL && !spec->required) return LS_OK;
  spec_text(expected, sizeof expected, spec);
  if (t == NULL) return ls_fail(err, LS_BAD_FIXTURE, "%s%s: expected %s, found nothing", where, spec->name, expected);
  bool sound = t->place == LS_HOST && (spec->dtypes >> t->dtype & 1u) == 1u && t->ndim == spec->ndim;
  for (int d = 0; d < spec->ndim; d++) {
    sound = sound && (spec->partial && d == 0 ? t->dim[d] >= 0 && t->dim[d] <= spec->dim[d] : t->dim[d] == spec->dim[d]);
  }
  if (sound) return LS_OK;
  return ls_fail(err, LS_BAD_FIXTURE, "%s%s: expected %s, found %s%s %s", where, spec->name, expected,
                 t->place == LS_HOST ? "" : "in device memory ", ls_dtype_name(t->dtype), ls_dims_text(dims, sizeof dims, t->ndim, t->dim));
}

ls_status ls_ref_check_inputs(const ls_config *config, const ls_step *step, ls_error *err) {
  ls_spec_list list = {0};
  char where[48];
  ls_status status;
  snprintf(where, sizeof where, "step %04lld: in/", (long long)step->number);
  LS_TRY_OUT(config->layer->input_specs(config, step, &list, err));
  for (int i = 0; i < list.n; i++) {
    const ls_tensor *t;
    list.spec[i].required = true; /* the step was let through, whatever the fixture expected of it */
    LS_TRY_OUT(ls_ref_check_tensor(&t, step->in, where, &list.spec[i], err));
  }
out:
  ls_spec_free(&list);
  return status;
}

ls_status ls_ref_check_weights(const ls_config *config, const ls_trace *weights, ls_dtype wide, int64_t state_bytes, ls_error *err) {
  ls_spec_list list = {0};
  int64_t elements = 0;
  ls_status status;
  LS_TRY_OUT(config->layer->weight_specs(config, &list, err));
  for (int i = 0; i < list.n; i++) {
    const ls_tensor *t;
    LS_TRY_OUT(ls_ref_check_tensor(&t, weights, "weights/", &list.spec[i], err));
    elements += ls_tensor_count(t);
  }
  const int64_t bytes = elements * (int64_t)ls_dtype_size(wide) + state_bytes;
  const int64_t pages = sysconf(_SC_PHYS_PAGES), page = sysconf(_SC_PAGESIZE);
  if (pages > 0 && page > 0 && bytes / page > pages) {
    status = ls_fail(err, LS_INTERNAL, "ref: weights and state need %lld bytes of memory, this machine has %lld", (long long)bytes,
                     (long long)(pages * page));
  }
out:
  ls_spec_free(&list);
  return status;
}

ls_status ls_ref_check_state(const ls_config *config, const ls_layer_state *state, ls_error *err) {
  ls_error why = {0};
  const ls_status status = config->layer->state_check(config, state, &why);
  return status == LS_OK ? LS_OK : ls_fail(err, status, "state: %s", why.text);
}

ls_status ls_ref_read_integer(int64_t *value, const ls_trace *state, const char *name, int64_t absent, ls_error *err) {
  const ls_tensor *t = ls_trace_tensor(state, name);
  *value = absent;
  if (t == NULL) return LS_OK;
  if (t->place != LS_HOST || ls_tensor_count(t) != 1 || ls_dtype_is_float(t->dtype)) {
    char dims[96];
    return ls_fail(err, LS_BAD_FIXTURE, "state: %s: expected one integer, found %s %s", name, ls_dtype_name(t->dtype),
                   ls_dims_text(dims, sizeof dims, t->ndim, t->dim));
  }
  *value = (int64_t)ls_tensor_get(t, 0); /* exact: what is not below 2^53 is refused as it is */
  return LS_OK;
}
