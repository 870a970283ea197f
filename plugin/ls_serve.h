/* ls_serve: the child's side: a path, this build's own or a user's shared library, offered over a socket until the other side is done. */
#ifndef LS_SERVE_H
#define LS_SERVE_H

#include "../layers/ls_path.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Loads a library that exports lockstep_plugin_entry (include/lockstep/plugin.h) and makes a path of it, one a process; never unloaded.
 * LS_UNAVAILABLE with one line: not there, not a shared library, no such symbol, another ABI, a function missing. */
ls_status ls_library_open(const ls_path **path, const char *file, ls_error *err);

/* Which stage a library asked room for, while its step runs. */
void ls_library_on_stage(void (*tell)(void *arg, const char *stage), void *arg);

/* Serves `path` on the socket until it is closed. path NULL: says only why there is none (reason). LS_OK, or LS_INTERNAL where the other
 * side sent what the protocol does not know. */
ls_status ls_serve(int socket, const ls_path *path, const ls_error *reason, ls_error *err);

#ifdef __cplusplus
}
#endif
#endif
