/* ls_child: a path that lives in a child process: a user's shared library, another build's path, or this build's own. It is an ls_path like
 * any other; what it does cannot harm the run: a crash, a call of exit, a hang or an answer out of the contract ends the child, and the
 * call returns one line that names it.
 *
 * The child is a fresh `lockstep __serve-path TARGET`, started by fork and exec for each open, so that nothing of the parent (threads, a
 * CUDA context, memory) is in it, and nothing that it writes is in the parent. It has no other open file than its standard streams (output
 * goes to standard error) and its socket. Calls wait for their answer at most `timeout` seconds. */
#ifndef LS_CHILD_H
#define LS_CHILD_H

#include <signal.h>

#include "../layers/ls_path.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  const char *program;                      /* a lockstep executable */
  const char *target;                       /* a shared library's file (with a '/'), or "ref", "cuda", "emu" of that executable */
  const char *label;                        /* what messages call it: "libmine.so" */
  const char *name;                         /* the path's name in reports: "mine" */
  double timeout;                           /* seconds a call may take; above 0 */
  int64_t memory_mib;                       /* address space that the child may map beside what it starts with; 0: no limit */
  const volatile sig_atomic_t *interrupted; /* set: calls return LS_INTERRUPTED. May be NULL */
} ls_child_options;

/* Makes the path and starts a child once, to see that the target can be had. LS_UNAVAILABLE: it cannot (not there, not a library, no such
 * path, another ABI), with the reason. LS_INTERNAL: it crashed or hung in loading. */
ls_status ls_child_path_new(ls_path **path, const ls_child_options *options, ls_error *err);

void ls_child_path_free(ls_path *path); /* NULL is fine; after every context of it is closed */

#ifdef __cplusplus
}
#endif
#endif
