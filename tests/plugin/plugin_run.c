#include "plugin_run.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "tests/cli/shell_run.h"

int plugin_run(char *out, const char *format, ...) {
  char command[4096];
  va_list list;
  va_start(list, format);
  vsnprintf(command, sizeof command, format, list);
  va_end(list);
  return shell_run(out, PLUGIN_OUTPUT, "cd %s && { %s\n} 2>&1", LS_SOURCE_DIR, command);
}

void plugin_expect(const char *fault, int step, int code, const char *text, const char *arguments) {
  static char out[PLUGIN_OUTPUT], ran[4096];
  static int found;
  char command[4096], when[64] = "";
  if (step >= 0) snprintf(when, sizeof when, "LOCKSTEP_TEST_STEP=%d", step);
  snprintf(command, sizeof command, "%s LOCKSTEP_TEST_FAULT=%s timeout -s KILL 300 %s %s", when, fault, LOCKSTEP, arguments);
  if (strcmp(command, ran) != 0) found = plugin_run(out, "%s", command); /* else: another look at what it said */
  strcpy(ran, command);
  cr_expect_eq(found, code, "%s in step %d, lockstep %s: expected exit %d, found %d:\n%s", fault, step, arguments, code, found, out);
  if (text != NULL)
    cr_expect_not_null(strstr(out, text), "%s in step %d, lockstep %s: expected '%s' in:\n%s", fault, step, arguments, text, out);
}

void plugin_scratch(char *path, unsigned size, const char *name) {
  snprintf(path, size, "%s/plugin-%d-%s", LS_BINARY_DIR, (int)getpid(), name);
}
