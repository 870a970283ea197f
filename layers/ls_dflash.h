/* ls_dflash: decisions of the dflash_context_kv state machine (layers.md, "Operations"), without any arithmetic on tensors.
 *
 * Both paths ask here first, before a byte changes or a kernel is enqueued. */
#ifndef LS_DFLASH_H
#define LS_DFLASH_H

#include "ls_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* LS_OK, or LS_REFUSED with the rule that refuses it. On LS_OK *next is the state after the operation; state is not changed. */
ls_status ls_dflash_decide(const ls_dflash_config *config, const ls_dflash_state *state, const ls_step *step, ls_dflash_state *next,
                           ls_error *err);

/* Positions that the step writes into the rings: [*base, *base + *rows); rows = 0 where it writes none. state is the one before it. */
void ls_dflash_written(const ls_dflash_state *state, const ls_step *step, int64_t *base, int64_t *rows);

/* A state that comes from outside (load, /state of a fixture): LS_BAD_FIXTURE where no history leads to it (the cursor outside 0 .. 2^31,
 * more captured rows than max_rows, a captured row outside the positions). */
ls_status ls_dflash_state_check(const ls_dflash_config *config, const ls_dflash_state *state, ls_error *err);

#ifdef __cplusplus
}
#endif
#endif
