#include "ls_shortage.h"

#include <stdatomic.h>
#include <stddef.h>

static atomic_bool noted;

void ls_shortage_note(void) { atomic_store(&noted, true); }

void *ls_shortage_unless(void *block) {
  if (block == NULL) ls_shortage_note();
  return block;
}

bool ls_shortage_take(void) { return atomic_exchange(&noted, false); }

ls_status ls_shortage_check(const char *what, ls_error *err) {
  return ls_shortage_take() ? ls_fail(err, LS_INTERNAL, "out of memory: %s is not whole", what) : LS_OK;
}
