#include "bound_attn_v41.h"

#define STUB(name)                                                             \
  ls_status name(const ls_bound_args *args, ls_trace *bounds, ls_error *err) { \
    (void)args, (void)bounds, (void)err;                                       \
    return LS_OK;                                                              \
  }
STUB(ls_bound_attn_qr_proj)
STUB(ls_bound_attn_qr)
STUB(ls_bound_attn_q_proj)
STUB(ls_bound_attn_q)
STUB(ls_bound_attn_kv_proj) STUB(ls_bound_attn_kv_norm) STUB(ls_bound_attn_kv_rope) STUB(ls_bound_attn_kv) STUB(ls_bound_attn_window)
    STUB(ls_bound_attn_latent_pool) STUB(ls_bound_attn_kv_state) STUB(ls_bound_attn_score_state) STUB(ls_bound_attn_latent)
        STUB(ls_bound_attn_index_k_proj) STUB(ls_bound_attn_index_k_norm) STUB(ls_bound_attn_index_k_rope) STUB(ls_bound_attn_index_k)
            STUB(ls_bound_attn_index_q_proj) STUB(ls_bound_attn_index_q_rope) STUB(ls_bound_attn_index_q) STUB(ls_bound_attn_index_w_proj)
                STUB(ls_bound_attn_index_w) STUB(ls_bound_attn_index_score) STUB(ls_bound_attn_compress_kv_rope)
                    STUB(ls_bound_attn_compress_kv) STUB(ls_bound_attn_sparse_o) STUB(ls_bound_attn_o_rot) STUB(ls_bound_attn_o_group)
                        STUB(ls_bound_attn_out) ls_status
    ls_bound_attn_state(const ls_bound_args *args, const ls_trace *bounds, ls_trace **next, ls_error *err) {
  (void)args, (void)bounds;
  return ls_trace_new(next, "state bounds", err);
}
