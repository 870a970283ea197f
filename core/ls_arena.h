/* ls_arena: memory handed out in named blocks, each between two guard bands, all released at once.
 *
 * Blocks are poisoned with LS_POISON_BYTE (a NaN in bf16, f16, f32 and f64) so that what was never written shows. Not thread-safe. */
#ifndef LS_ARENA_H
#define LS_ARENA_H

#include <stddef.h>

#include "ls_status.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LS_POISON_BYTE = 0xFF, LS_GUARD_BYTES = 64, LS_ALIGN = 64 };

typedef struct ls_arena ls_arena;

ls_status ls_arena_new(ls_arena **arena, ls_error *err);

/* bytes may be 0. The block is aligned to LS_ALIGN and poisoned. name is copied, for messages. */
ls_status ls_arena_alloc(ls_arena *arena, const char *name, size_t bytes, void **block, ls_error *err);

/* LS_INTERNAL naming the first block whose guard band was written over. */
ls_status ls_arena_check(const ls_arena *arena, ls_error *err);

size_t ls_arena_bytes(const ls_arena *arena); /* handed out so far, without the guards */

void ls_arena_free(ls_arena *arena); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
