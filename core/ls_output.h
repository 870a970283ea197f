/* ls_output: where a file that is asked for is to be written. */
#ifndef LS_OUTPUT_H
#define LS_OUTPUT_H

#include <stdbool.h>

#include "ls_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* *target (the caller frees it): `file` with symbolic links followed, so that a temporary file beside it can be renamed onto it without
 * replacing a link. *through: it exists and is no regular file (a device, a pipe): it must be written straight, never renamed onto.
 * LS_USAGE with one line where it cannot be written: a directory, a folder that is not there or not writable, a link to nothing. */
ls_status ls_output_target(char **target, bool *through, const char *file, ls_error *err);

#ifdef __cplusplus
}
#endif
#endif
