/* shell_run: a command of the shell, as a user would run it, for the tests that look at the product from outside. */
#ifndef SHELL_RUN_H
#define SHELL_RUN_H

#include <stddef.h>

/* Runs the command; what it writes to its standard output lands in out[size], cut to fit, or (NULL) nowhere. Returns the exit status,
 * 128 + N for signal N. */
int shell_run(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));

#endif
