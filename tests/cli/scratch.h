/* scratch: commands of the shell in a folder that the test has for itself. Included once by a file of tests. */
#ifndef SCRATCH_H
#define SCRATCH_H

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "shell_run.h"

static char folder[256], out[1 << 16]; /* what the last command wrote */

/* Runs the command in the folder, where $L is lockstep, $F the fixtures' folder and $G a golden fixture; the exit status as of a shell. */
static int run(const char *format, ...) __attribute__((format(printf, 1, 2)));
static int run(const char *format, ...) {
  char command[2048];
  va_list list;
  va_start(list, format);
  vsnprintf(command, sizeof command, format, list);
  va_end(list);
  return shell_run(out, sizeof out, "cd %s; L=%s/lockstep; F=%s/fixtures; G=$F/golden/dflash_refusals.h5; { %s ; } 2>&1", folder,
                   LS_BINARY_DIR, LS_SOURCE_DIR, command);
}

static void set_up(void) {
  snprintf(folder, sizeof folder, "%s/scratch-XXXXXX", LS_BINARY_DIR);
  cr_assert_not_null(mkdtemp(folder));
}

static void tear_down(void) { run("cd /; rm -rf %s", folder); }

static void expect(int code, const char *text, const char *command) {
  const int found = run("%s", command);
  cr_expect_eq(found, code, "%s: expected exit %d, found %d:\n%s", command, code, found, out);
  cr_expect_not_null(strstr(out, text), "%s: expected '%s' in:\n%s", command, text, out);
}

#endif
