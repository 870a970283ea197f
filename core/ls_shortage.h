/* ls_shortage: memory that was refused to code which has no status to return (a product's block, a comparator's marks, a line of a report).
 * Such code goes on with less; whoever called it asks here, before the outcome counts, and ends with LS_INTERNAL. Thread-safe. */
#ifndef LS_SHORTAGE_H
#define LS_SHORTAGE_H

#include <stdbool.h>

#include "ls_status.h"

#ifdef __cplusplus
extern "C" {
#endif

void ls_shortage_note(void);

/* Notes it where block is NULL; returns block. Around an allocation. */
void *ls_shortage_unless(void *block);

/* Whether any was noted since it was last asked. */
bool ls_shortage_take(void);

/* LS_INTERNAL with "out of memory: <what> is not whole" where any was noted since it was last asked, else LS_OK. */
ls_status ls_shortage_check(const char *what, ls_error *err);

#ifdef __cplusplus
}
#endif
#endif
