/* session_path_list: the paths that a caller names: ref, cuda, emu, auto, a user's library (./libmine.so), another build's path
 * (/old/build/lockstep:cuda). */
#ifndef LS_SESSION_PATH_LIST_H
#define LS_SESSION_PATH_LIST_H

#include "verify_session.h"

typedef struct {
  const ls_path *path[LS_MAX_PATHS]; /* [0] is the reference */
  int n;
  bool may_drop; /* nobody asked for the second by name (auto) */
  ls_path *owned[LS_MAX_PATHS];
  int n_owned;
  /* of those in a child process */
  bool isolate;        /* this build's own too */
  double timeout;      /* seconds a call */
  int64_t memory_mib;  /* 0: no limit */
  const char *program; /* the lockstep whose child processes they are; NULL: this one */
  volatile sig_atomic_t *interrupted;
  const char *limited; /* "--timeout" or "--memory", which was given; NULL: neither was */
} ls_path_list;

enum { LS_DEFAULT_TIMEOUT = 120, LS_MAX_TIMEOUT = 1000000 };

void ls_path_list_init(ls_path_list *list, volatile sig_atomic_t *interrupted); /* the reference alone */

/* Adds those that `names` says, commas between; one that is there already is not added again. LS_USAGE or LS_UNAVAILABLE, or what a library
 * did in loading, with a line that begins with `option`. */
ls_status ls_path_list_add(ls_path_list *list, const char *option, const char *names, ls_error *err);

void ls_path_list_free(ls_path_list *list);

#endif
