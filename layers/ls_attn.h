/* ls_attn: decisions of attn_v41 (layers.md), without any arithmetic on tensors: what a forward reads and writes, and when it is refused.
 *
 * Both paths ask here first, before a byte changes or a kernel is enqueued. All arithmetic takes (start_pos, m), so that blocks of m > 1 at
 * start_pos > 0, refused today, need no other formula. */
#ifndef LS_ATTN_H
#define LS_ATTN_H

#include "ls_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Roles of a layer, from the config alone. */
bool ls_attn_is_kv_source(const ls_attn_config *config, int64_t layer);
bool ls_attn_is_index_source(const ls_attn_config *config, int64_t layer);
/* An index source after the candidate source: it selects inside the candidates. */
bool ls_attn_is_masked(const ls_attn_config *config, int64_t layer);
/* Rows of a compressed or index cache: max_seq_len / ratio; 0 at ratio 0. */
int64_t ls_attn_cache_rows(const ls_attn_config *config, int64_t layer);

/* What one forward works on. */
typedef struct {
  int64_t layer, start_pos, m, ratio;
  bool kv_source, index_source, candidate_source, masked;
  int64_t rows_a;         /* rows of the first row set: m at start_pos 0, else window_size */
  int64_t wk;             /* window entries a query: min(m, window_size) at start_pos 0, else window_size */
  int64_t n;              /* visible compressed rows, (start_pos + m) / ratio; 0 at ratio 0. Also the rows of rows_b. */
  int64_t g, first_row;   /* latents that a kv source makes, and the cache row of the first, start_pos / ratio; g 0 for others */
  int64_t k;              /* entries of the selection a query: min(index_topk, n); a reader's: the published width */
  int64_t compress_cache; /* the layer whose compressed cache rows_b is; -1: n is 0 or ratio is 0 */
  int64_t index_cache;    /* the layer whose keys an index source scores against; -1: it scores none */
} ls_attn_plan;

/* LS_OK, or LS_REFUSED with the rule that refuses it. On LS_OK *next is what is published after the step; state is not changed. m is
 * step->rows. */
ls_status ls_attn_decide(const ls_attn_config *config, const ls_attn_state *state, const ls_step *step, ls_attn_plan *plan,
                         ls_attn_state *next, ls_error *err);

/* The same shapes as far as the config and the step alone tell: a reader's selection is taken to be of this round. A step whose layer, m
 * or start_pos is off gives a plan of zeros. What a fixture may hold of a step is checked against this. */
void ls_attn_plan_shapes(const ls_attn_config *config, const ls_step *step, ls_attn_plan *plan);

/* Position of the group that latent j of the step stands for: (start_pos / ratio + j) * ratio. */
int64_t ls_attn_group_position(const ls_attn_plan *plan, int64_t j);

/* Compressed rows that query t may see: (start_pos + t + 1) / ratio. */
int64_t ls_attn_visible(const ls_attn_plan *plan, int64_t t);

/* The row of the step (0 .. m-1) that slot s of the window ring holds after it, or -1 where the step left the slot alone. */
int64_t ls_attn_row_of_slot(const ls_attn_config *config, const ls_attn_plan *plan, int64_t slot);

/* The integers of a state trace (ls_path.h) and where they lie in an ls_attn_state: what is published, without the values. */
enum { LS_ATTN_PUBLISHED = 8 };
extern const ls_int_attribute ls_attn_published[LS_ATTN_PUBLISHED];

/* Nothing published. */
void ls_attn_state_start(ls_attn_state *state);

/* A state that comes from outside: LS_BAD_FIXTURE, "position: expected ..., found ...". */
ls_status ls_attn_state_check(const ls_attn_config *config, const ls_attn_state *state, ls_error *err);

#ifdef __cplusplus
}
#endif
#endif
