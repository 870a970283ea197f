/* ref_window: the window ring of attn_v41 (layers.md, attn_v41 4, 5, 10): which slot a row goes to, and which rows each query sees. */
#ifndef LS_REF_WINDOW_H
#define LS_REF_WINDOW_H

#include "../layers/ls_attn.h"

#ifdef __cplusplus
extern "C" {
#endif

/* kv [m, head_dim] into the ring [window_size, head_dim], position p in slot p mod window_size; of m > window_size rows the last ones.
 * Types alike. */
void ls_ref_window_write(const ls_tensor *ring, const ls_tensor *kv, const ls_attn_config *config, const ls_attn_plan *plan);

/* window_idx [m, wk] i32, -1 is empty:
 *   start_pos = 0: entry (t, j) = max(t - window + 1, 0) + j, -1 where that is > t
 *   start_pos > 0: oldest first, o = start_pos mod window + 1: o .. window-1, 0 .. o-1; -1 where the slot number is > start_pos */
void ls_ref_window_idx(const ls_tensor *idx, const ls_attn_config *config, const ls_attn_plan *plan);

#ifdef __cplusplus
}
#endif
#endif
