#include "shell_run.h"

#include <criterion/criterion.h>
#include <stdarg.h>
#include <stdio.h>
#include <sys/wait.h>

int shell_run(char *out, size_t size, const char *format, ...) {
  char command[8192], rest[4096];
  va_list list;
  va_start(list, format);
  const int length = vsnprintf(command, sizeof command, format, list);
  va_end(list);
  cr_assert(length >= 0 && (size_t)length < sizeof command, "a command of %d bytes", length);
  FILE *pipe = popen(command, "r");
  cr_assert_not_null(pipe);
  if (out != NULL) out[fread(out, 1, size - 1, pipe)] = '\0';
  while (fread(rest, 1, sizeof rest, pipe) > 0) continue; /* a pipe that is closed early would end the command */
  const int status = pclose(pipe);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}
