/* lockstep __serve-path TARGET MEMORY_MIB: a path, served over the socket that the run which started this process handed to it
 * (plugin/ls_child.h). Not for the command line of a user. */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../layers/ls_path.h"
#include "../plugin/ls_serve.h"
#include "cli.h"

enum { SOCKET = 3 };

/* Address space beside what is mapped already. */
static void limit_memory(long long mib) {
  long long pages = 0;
  FILE *statm = mib > 0 ? fopen("/proc/self/statm", "r") : NULL;
  if (statm == NULL) return;
  const bool known = fscanf(statm, "%lld", &pages) == 1;
  fclose(statm);
  struct rlimit limit;
  if (!known || getrlimit(RLIMIT_AS, &limit) != 0) return;
  const rlim_t most = (rlim_t)pages * (rlim_t)sysconf(_SC_PAGESIZE) + ((rlim_t)mib << 20);
  if (limit.rlim_max == RLIM_INFINITY || most < limit.rlim_max) limit.rlim_cur = most;
  setrlimit(RLIMIT_AS, &limit);
}

static ls_status own_path(const ls_path **path, const char *name, ls_error *err) {
  *path = strcmp(name, "ref") == 0 ? &ls_path_ref : ls_path_find(name);
  if (*path == NULL) return ls_fail(err, LS_UNAVAILABLE, "this build holds no path %s", name);
  if (*path == &ls_path_ref) return LS_OK;
  const ls_status status = ls_path_available(name, err);
  if (status != LS_OK) *path = NULL;
  return status;
}

ls_status ls_cmd_serve(int argc, char **argv) {
  struct stat s;
  if (argc != 3 || fstat(SOCKET, &s) != 0 || !S_ISSOCK(s.st_mode)) {
    fputs("lockstep: __serve-path is for lockstep itself: expected TARGET, MEMORY_MIB and a socket\n", stderr);
    return LS_USAGE;
  }
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  /* a sanitizer's handlers would turn a crash into an exit */
  static const int fatal[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGINT, SIGTERM, SIGPIPE, SIGXFSZ};
  for (size_t i = 0; i < sizeof fatal / sizeof *fatal; i++) signal(fatal[i], SIG_DFL);
  limit_memory(strtoll(argv[2], NULL, 10));
  const ls_path *path = NULL;
  ls_error reason = {LS_OK, ""}, err = {LS_OK, ""};
  if (strchr(argv[1], '/') != NULL)
    ls_library_open(&path, argv[1], &reason);
  else
    own_path(&path, argv[1], &reason);
  const ls_status status = ls_serve(SOCKET, path, &reason, &err);
  if (status != LS_OK) fprintf(stderr, "lockstep: serving %s: %s\n", argv[1], err.text);
  fflush(NULL);
  _exit(status); /* without what the library may have left for exit */
}
