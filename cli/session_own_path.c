/* The paths that are part of this build, by name. */
#include <string.h>

#include "verify_session.h"

ls_status ls_own_path(const char *name, const ls_path **path, ls_error *err) {
  ls_error why = {LS_OK, ""};
  if (strcmp(name, "auto") == 0) name = ls_path_find("cuda") != NULL && ls_path_available("cuda", NULL) == LS_OK ? "cuda" : "emu";
  *path = &ls_path_ref;
  if (strcmp(name, "ref") == 0) return LS_OK;
  *path = ls_path_find(name);
  if (*path == NULL) return ls_fail(err, LS_UNAVAILABLE, "%s: this build holds no such path (built without nvcc)", name);
  if (ls_path_available(name, &why) == LS_OK) return LS_OK;
  return ls_fail(err, LS_UNAVAILABLE, "%s: %s", name, why.text);
}
