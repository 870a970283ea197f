#include "ls_output.h"

#include <errno.h>
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

static ls_status cannot(ls_error *err, const char *file, int why) {
  return ls_fail(err, why == ENOMEM ? LS_INTERNAL : LS_USAGE, "%s: cannot be written: %s", *file != '\0' ? file : "(no name)",
                 strerror(why));
}

/* The folder of a file that is not there yet, resolved, with its last part. */
static ls_status new_file(char **target, const char *file, ls_error *err) {
  char *folder_copy = strdup(file), *name_copy = strdup(file), *folder = NULL;
  ls_status status = LS_OK;
  if (folder_copy == NULL || name_copy == NULL) {
    status = ls_fail(err, LS_INTERNAL, "%s: out of memory", file);
    goto out;
  }
  folder = realpath(dirname(folder_copy), NULL);
  if (folder == NULL || access(folder, W_OK) != 0) {
    status = cannot(err, file, errno);
    goto out;
  }
  const char *name = basename(name_copy);
  const size_t room = strlen(folder) + strlen(name) + 2;
  *target = malloc(room);
  if (*target == NULL)
    status = ls_fail(err, LS_INTERNAL, "%s: out of memory", file);
  else
    snprintf(*target, room, "%s/%s", folder, name);
out:
  free(folder_copy);
  free(name_copy);
  free(folder);
  return status;
}

ls_status ls_output_target(char **target, bool *through, const char *file, ls_error *err) {
  struct stat st;
  *target = NULL;
  *through = false;
  const size_t length = strlen(file);
  if (length == 0) return cannot(err, file, ENOENT);
  if (file[length - 1] == '/') return cannot(err, file, EISDIR);
  if (stat(file, &st) != 0) {
    const int why = errno;
    if (why != ENOENT || lstat(file, &st) == 0) return cannot(err, file, why); /* a link to nothing among them */
    return new_file(target, file, err);
  }
  if (S_ISDIR(st.st_mode)) return cannot(err, file, EISDIR);
  *through = !S_ISREG(st.st_mode);
  if (access(file, W_OK) != 0) return cannot(err, file, errno);
  if (*through) {
    *target = strdup(file);
  } else {
    char *resolved = realpath(file, NULL);
    if (resolved == NULL) return cannot(err, file, errno);
    ls_status status = new_file(target, resolved, err); /* its folder must take a temporary file */
    free(resolved);
    return status;
  }
  return *target != NULL ? LS_OK : ls_fail(err, LS_INTERNAL, "%s: out of memory", file);
}
