/* report_numbers: how the renderings for people write numbers and names, so that a figure reads the same in each; private to compare/.
 * Every function returns buf. */
#ifndef LS_REPORT_NUMBERS_H
#define LS_REPORT_NUMBERS_H

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "report_model.h"

static inline char *use_text(char buf[16], double use) {
  if (use == 0) {
    snprintf(buf, 16, "0%%");
  } else if (!isfinite(use)) {
    snprintf(buf, 16, "inf");
  } else if (use <= 1) { /* rounded so that 100% is never printed for what exceeds it, nor 0% for what differs */
    double percent = ceil(use * 1000) / 10;
    snprintf(buf, 16, percent < 10 ? "%.1f%%" : "%.0f%%", percent < 10 ? percent : floor(use * 100));
  } else if (use < 99.99) {
    snprintf(buf, 16, "%.0f%%", ceil(use * 100));
  } else {
    snprintf(buf, 16, "%.0ex", use);
  }
  return buf;
}

static inline char *share_text(char buf[16], int64_t part, int64_t whole) {
  if (whole <= 0) {
    snprintf(buf, 16, "-");
  } else if (part == whole) {
    snprintf(buf, 16, "100%%");
  } else {
    snprintf(buf, 16, "%.2f%%", floor((double)part / (double)whole * 1e4) / 100); /* never rounded up to 100 */
  }
  return buf;
}

static inline char *steps_text(char buf[16], uint64_t steps) {
  if (steps == UINT64_MAX) {
    snprintf(buf, 16, "nan");
  } else if (steps < 1000000) {
    snprintf(buf, 16, "%" PRIu64, steps);
  } else {
    snprintf(buf, 16, "%.0e", (double)steps);
  }
  return buf;
}

static inline char *grouped(char buf[32], int64_t n) {
  char digits[32];
  int length = snprintf(digits, sizeof digits, "%" PRId64, n), used = 0;
  for (int i = 0; i < length; i++) {
    if (i > 0 && (length - i) % 3 == 0) buf[used++] = ',';
    buf[used++] = digits[i];
  }
  buf[used] = '\0';
  return buf;
}

static inline const char *plural(int64_t n) { return n == 1 ? "" : "s"; }

static inline void side_names(const char *pair, char a[LS_MAX_PAIR], char b[LS_MAX_PAIR]) {
  const char *dash = strchr(pair, '-');
  snprintf(a, LS_MAX_PAIR, "%.*s", dash ? (int)(dash - pair) : LS_MAX_PAIR - 1, dash ? pair : "a");
  snprintf(b, LS_MAX_PAIR, "%s", dash ? dash + 1 : "b");
}

static inline const char *mode_name(ls_mode mode) { return mode == LS_ISOLATED ? "isolated" : "cascaded"; }

#endif
