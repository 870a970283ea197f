/* bound_rows: the rows that a step of attn_v41 reads from its caches, and what each may be off by: rows that this step made from its
 * stages, older ones from the state. Rows are fetched one at a time; no copy of a cache is ever made. */
#ifndef LS_BOUND_ROWS_H
#define LS_BOUND_ROWS_H

#include "bound_common.h"
#include "ls_attn.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  int64_t n, width;
  bool carried;                       /* whether any row may be off at all */
  const ls_tensor *held, *held_total; /* args->after and args->state_bounds; NULL, or rows past the end: zeros */
  ls_stage_values fresh;              /* the step's own rows, [m or g, width] */
  const ls_attn_config *config;       /* a ring: ls_attn_row_of_slot says which row is fresh. NULL: those from plan.first_row on */
  ls_attn_plan plan;
  int64_t first, fresh_rows;
} ls_bound_rows;

/* The window ring after the step [window_size, head_dim]. */
ls_status ls_bound_rows_ring(ls_bound_rows *r, const ls_bound_args *args, const ls_trace *bounds, ls_error *err);

/* rows_a of layers.md: `kv` at start_pos 0, else the ring. */
ls_status ls_bound_rows_a(ls_bound_rows *r, const ls_bound_args *args, const ls_trace *bounds, ls_error *err);

/* rows_b: the first n rows of the published compressed cache [n, head_dim]. */
ls_status ls_bound_rows_b(ls_bound_rows *r, const ls_bound_args *args, const ls_trace *bounds, ls_error *err);

/* The keys that an index source scores against [n, index_head_dim]. */
ls_status ls_bound_rows_keys(ls_bound_rows *r, const ls_bound_args *args, const ls_trace *bounds, ls_error *err);

/* Row i, 0 <= i < n, into value and total [width]; either may be NULL. Thread-safe. */
void ls_bound_rows_get(const ls_bound_rows *r, int64_t i, float *value, float *total);

void ls_bound_rows_free(ls_bound_rows *r);

#ifdef __cplusplus
}
#endif
#endif
