#include "ls_status.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

ls_status ls_fail(ls_error *err, ls_status status, const char *format, ...) {
  if (err == NULL || err->status != LS_OK) return status;
  err->status = status;
  va_list args;
  va_start(args, format);
  int length = vsnprintf(err->text, sizeof err->text, format, args);
  va_end(args);
  if (length < 0) snprintf(err->text, sizeof err->text, "%s", ls_status_name(status));
  if (length >= (int)sizeof err->text) memcpy(err->text + sizeof err->text - 4, "...", 4);
  /* names come from files: a line break or an escape in one must not break the one-line promise */
  for (char *c = err->text; *c != '\0'; c++)
    if ((unsigned char)*c < ' ' || *c == 0x7F) *c = ' ';
  return status;
}

const char *ls_status_name(ls_status status) {
  switch (status) {
    case LS_OK:
      return "ok";
    case LS_DIVERGED:
      return "diverged";
    case LS_USAGE:
      return "usage";
    case LS_BAD_FIXTURE:
      return "bad fixture";
    case LS_UNAVAILABLE:
      return "unavailable";
    case LS_INTERNAL:
      return "internal error";
    case LS_REFUSED:
      return "refused";
    case LS_INTERRUPTED:
      return "interrupted";
  }
  return "unknown status";
}
