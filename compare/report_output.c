/* What the renderings that go to a file share: writing it whole or not at all, and text that comes from elsewhere. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../core/ls_output.h"
#include "../core/ls_shortage.h"
#include "report_model.h"

ls_status report_write(const char *file, bool (*write)(FILE *out, void *arg), void *arg, ls_error *err) {
  char *target = NULL, *temporary = NULL;
  bool through = false;
  ls_status status;
  LS_TRY_OUT(ls_output_target(&target, &through, file, err));
  size_t size = strlen(target) + 32;
  temporary = ls_shortage_unless(malloc(size));
  if (!temporary) {
    status = ls_fail(err, LS_INTERNAL, "report: out of memory");
    goto out;
  }
  snprintf(temporary, size, "%s.%ld.tmp", target, (long)getpid());
  FILE *out = fopen(through ? target : temporary, "w");
  if (!out) {
    status = ls_fail(err, errno == ENOMEM ? LS_INTERNAL : LS_USAGE, "%s: cannot be written: %s", file, strerror(errno));
    goto out;
  }
  bool ok = write(out, arg);
  const bool short_of_memory = ls_shortage_take(); /* a line of it may be missing */
  ok = fflush(out) == 0 && ok && !ferror(out);
  ok = fclose(out) == 0 && ok;
  if (!ok || short_of_memory || (!through && rename(temporary, target) != 0)) {
    status = ls_fail(err, LS_INTERNAL, "%s: could not be written: %s", file, strerror(short_of_memory ? ENOMEM : errno));
    if (!through) unlink(temporary);
  }
out:
  free(target);
  free(temporary);
  return status;
}

/* Bytes of the UTF-8 character at c that XML may hold; 0: none is there. */
static int character(const unsigned char *c) {
  if (c[0] < 0x80) return c[0] >= 0x20 || c[0] == '\n' || c[0] == '\t' ? c[0] != 0x7F : 0;
  const int length = c[0] >= 0xC2 && c[0] <= 0xDF ? 2 : (c[0] & 0xF0) == 0xE0 ? 3 : c[0] >= 0xF0 && c[0] <= 0xF4 ? 4 : 0;
  uint32_t code = length > 0 ? c[0] & (0xFFu >> (length + 1)) : 0;
  for (int i = 1; i < length; i++) {
    if ((c[i] & 0xC0) != 0x80) return 0;
    code = code << 6 | (c[i] & 0x3F);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool barred = (code >= 0xD800 && code <= 0xDFFF) || code == 0xFFFE || code == 0xFFFF || code > 0x10FFFF;
  return overlong || barred ? 0 : length;
}

char *report_clean(const char *text) {
  char *copy = ls_shortage_unless(strdup(text));
  for (unsigned char *c = (unsigned char *)copy; c && *c;) {
    const int length = character(c);
    if (length == 0) *c = '?';
    c += length > 0 ? length : 1;
  }
  return copy;
}
