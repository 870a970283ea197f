#include "bound_rows.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *name_of_layer(char full[LS_MAX_SPEC_NAME], int64_t layer, const char *name) {
  snprintf(full, LS_MAX_SPEC_NAME, "layers/%lld/%s", (long long)layer, name);
  return full;
}

static void start(ls_bound_rows *r, const ls_bound_args *args, int64_t n, int64_t width) {
  *r = (ls_bound_rows){.n = n, .width = width};
  ls_attn_plan_shapes(&args->config->attn, args->step, &r->plan);
}

/* The rows that layer `layer`'s tensor `name` holds after the step. */
static ls_status take_held(ls_bound_rows *r, const ls_bound_args *args, int64_t layer, const char *name, ls_error *err) {
  char full[LS_MAX_SPEC_NAME];
  r->held = ls_trace_tensor(args->after, name_of_layer(full, layer, name));
  r->held_total = ls_bound_held(args, full);
  const ls_tensor *both[] = {r->held, r->held_total};
  for (int i = 0; i < 2; i++) {
    if (both[i] && (both[i]->ndim != 2 || both[i]->dim[1] != r->width))
      return ls_fail(err, LS_INTERNAL, "bound: %s of layer %lld: expected rows of %lld", name, (long long)layer, (long long)r->width);
  }
  r->carried = r->held_total != NULL;
  return LS_OK;
}

/* `count` rows of this step's stage, which stand from row `first` on. */
static ls_status take_fresh(ls_bound_rows *r, const ls_bound_args *args, const ls_trace *bounds, const char *stage, int64_t first,
                            int64_t count, ls_error *err) {
  r->first = first;
  r->fresh_rows = count;
  if (count == 0) return LS_OK;
  LS_TRY(ls_stage_values_read(&r->fresh, args, bounds, stage, count * r->width, err));
  r->carried = r->carried || r->fresh.carried;
  return LS_OK;
}

ls_status ls_bound_rows_ring(ls_bound_rows *r, const ls_bound_args *args, const ls_trace *bounds, ls_error *err) {
  const ls_attn_config *c = &args->config->attn;
  start(r, args, c->window_size, c->head_dim);
  r->config = c;
  LS_TRY(take_held(r, args, args->step->layer, "window", err));
  return take_fresh(r, args, bounds, "kv", 0, r->plan.m, err);
}

ls_status ls_bound_rows_a(ls_bound_rows *r, const ls_bound_args *args, const ls_trace *bounds, ls_error *err) {
  if (args->step->start_pos > 0) return ls_bound_rows_ring(r, args, bounds, err);
  start(r, args, args->step->rows, args->config->attn.head_dim);
  return take_fresh(r, args, bounds, "kv", 0, r->plan.m, err);
}

/* The first n rows of the cache that `source` names, which this step's layer wrote to where it is that source. */
static ls_status cache(ls_bound_rows *r, const ls_bound_args *args, const ls_trace *bounds, const char *source, const char *name,
                       const char *stage, int64_t width, ls_error *err) {
  start(r, args, 0, width);
  r->n = r->plan.n;
  if (r->n == 0) return LS_OK;
  const ls_tensor *layer = ls_bound_find(args->after, "the state after the step", source, 1, err);
  if (!layer) return LS_INTERNAL;
  const int64_t from = (int64_t)ls_tensor_get(layer, 0);
  if (from < 0) return ls_fail(err, LS_INTERNAL, "bound: %lld compressed rows are visible, and %s names no layer", (long long)r->n, source);
  LS_TRY(take_held(r, args, from, name, err));
  return from == args->step->layer ? take_fresh(r, args, bounds, stage, r->plan.first_row, r->plan.g, err) : LS_OK;
}

ls_status ls_bound_rows_b(ls_bound_rows *r, const ls_bound_args *args, const ls_trace *bounds, ls_error *err) {
  return cache(r, args, bounds, "compress_source", "compress_cache", "compress_kv", args->config->attn.head_dim, err);
}

ls_status ls_bound_rows_keys(ls_bound_rows *r, const ls_bound_args *args, const ls_trace *bounds, ls_error *err) {
  return cache(r, args, bounds, "index_source", "index_cache", "index_k", args->config->attn.index_head_dim, err);
}

static void get(float *to, const ls_tensor *t, int64_t i, int64_t width) {
  if (t == NULL || i >= t->dim[0]) {
    memset(to, 0, (size_t)width * sizeof *to);
    return;
  }
  const ls_tensor row = ls_tensor_at(t, i);
  ls_tensor_to_f32(to, &row);
}

static void narrow(float *to, const double *from, int64_t n) {
  for (int64_t i = 0; i < n; i++) to[i] = (float)from[i];
}

void ls_bound_rows_get(const ls_bound_rows *r, int64_t i, float *value, float *total) {
  const int64_t row = r->config ? ls_attn_row_of_slot(r->config, &r->plan, i) : i - r->first;
  if (row >= 0 && row < r->fresh_rows) {
    if (value) narrow(value, r->fresh.value + row * r->width, r->width);
    if (total) narrow(total, r->fresh.total + row * r->width, r->width);
    return;
  }
  if (value) get(value, r->held, i, r->width);
  if (total) get(total, r->held_total, i, r->width);
}

void ls_bound_rows_free(ls_bound_rows *r) {
  free(r->fresh.value);
  *r = (ls_bound_rows){.n = 0};
}
