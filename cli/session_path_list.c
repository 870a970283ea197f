#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "session_path_list.h"

#include <ctype.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../plugin/ls_child.h"

void ls_path_list_init(ls_path_list *list, volatile sig_atomic_t *interrupted) {
  memset(list, 0, sizeof *list);
  list->interrupted = interrupted;
  list->timeout = LS_DEFAULT_TIMEOUT;
  list->path[list->n++] = &ls_path_ref;
}

void ls_path_list_free(ls_path_list *list) {
  for (int i = 0; i < list->n_owned; i++) ls_child_path_free(list->owned[i]);
  list->n_owned = 0;
}

static ls_status check_room(const ls_path_list *list, const char *option, ls_error *err) {
  if (list->n < LS_MAX_PATHS) return LS_OK;
  return ls_fail(err, LS_USAGE, "%s: more than %d paths beside the reference", option, LS_MAX_PATHS - 1);
}

static bool is_taken(const ls_path_list *list, const char *name) {
  static const char *const reserved[] = {"golden", "ref", "cuda", "emu"};
  for (size_t i = 0; i < sizeof reserved / sizeof *reserved; i++)
    if (strcmp(reserved[i], name) == 0) return true;
  for (int i = 0; i < list->n; i++)
    if (strcmp(list->path[i]->name, name) == 0) return true;
  return false;
}

/* "./build/libmine.so" is "mine", another build's "cuda" is "lockstep.cuda"; the second of a name "mine.2". Reports put two names
 * together with '-' and lists of known failures cut at ':', so neither is in a name. */
static void name_path(char name[24], const ls_path_list *list, const char *file, const char *of) {
  char base[24];
  const char *from = strrchr(file, '/') != NULL ? strrchr(file, '/') + 1 : file;
  if (of == NULL && strncmp(from, "lib", 3) == 0 && from[3] != '\0' && from[3] != '.') from += 3;
  const char *end = of == NULL ? strstr(from, ".so") : NULL;
  const int length = end != NULL && end != from ? (int)(end - from) : (int)strlen(from);
  snprintf(base, sizeof base - 3, "%.*s%s%s", length < 15 ? length : 15, from, of != NULL ? "." : "", of != NULL ? of : "");
  for (char *c = base; *c != '\0'; c++)
    if (!isalnum((unsigned char)*c) && *c != '_' && *c != '.') *c = '_';
  snprintf(name, 24, "%s", base);
  for (int i = 2; is_taken(list, name) && i < 10; i++) snprintf(name, 24, "%.20s.%d", base, i);
}

static ls_status add_child(ls_path_list *list, const char *option, const char *program, const char *target, const char *label,
                           const char *name, ls_error *err) {
  ls_error why = {LS_OK, ""};
  const ls_child_options options = {.program = program,
                                    .target = target,
                                    .label = label,
                                    .name = name,
                                    .timeout = list->timeout,
                                    .memory_mib = list->memory_mib,
                                    .interrupted = list->interrupted};
  LS_TRY(check_room(list, option, err));
  const ls_status status = ls_child_path_new(&list->owned[list->n_owned], &options, &why);
  if (status != LS_OK) return ls_fail(err, status, "%s %s", option, why.text);
  list->path[list->n++] = list->owned[list->n_owned++];
  return LS_OK;
}

static ls_status own_program(char program[PATH_MAX], const ls_path_list *list, const char *option, ls_error *err) {
  if (list->program != NULL) {
    if ((size_t)snprintf(program, PATH_MAX, "%s", list->program) >= PATH_MAX)
      return ls_fail(err, LS_USAGE, "%s: a file name of more than %d characters", option, PATH_MAX - 1);
    if (access(program, X_OK) == 0) return LS_OK;
    return ls_fail(err, LS_UNAVAILABLE, "%s: %s is no program that can be run", option, program);
  }
  const ssize_t n = readlink("/proc/self/exe", program, PATH_MAX - 1);
  if (n <= 0) return ls_fail(err, LS_INTERNAL, "%s: cannot find the program itself (/proc/self/exe) to start a child process of", option);
  program[n] = '\0';
  return LS_OK;
}

static ls_status add_library(ls_path_list *list, const char *option, const char *file, ls_error *err) {
  char program[PATH_MAX], target[PATH_MAX], name[24];
  LS_TRY(own_program(program, list, option, err));
  if ((size_t)snprintf(target, sizeof target, "%s%s", strchr(file, '/') != NULL ? "" : "./", file) >= sizeof target)
    return ls_fail(err, LS_USAGE, "%s: a file name of more than %d characters", option, PATH_MAX - 3);
  name_path(name, list, file, NULL);
  const char *base = strrchr(target, '/') + 1;
  return add_child(list, option, program, target, *base != '\0' ? base : target, name, err);
}

static ls_status add_other_build(ls_path_list *list, const char *option, const char *names, size_t program_length, ls_error *err) {
  char program[PATH_MAX], name[24];
  const char *of = names + program_length + 1;
  if (program_length >= sizeof program) return ls_fail(err, LS_USAGE, "%s: a file name of more than %d characters", option, PATH_MAX - 1);
  snprintf(program, sizeof program, "%.*s", (int)program_length, names);
  if (access(program, X_OK) != 0) return ls_fail(err, LS_UNAVAILABLE, "%s %s: %s is no program that can be run", option, names, program);
  name_path(name, list, program, of);
  return add_child(list, option, program, of, names, name, err);
}

static ls_status add_own(ls_path_list *list, const char *option, const char *name, ls_error *err) {
  ls_error why = {LS_OK, ""};
  const ls_path *path = NULL;
  for (int i = 0; i < list->n; i++)
    if (strcmp(list->path[i]->name, name) == 0) return LS_OK;
  if (list->isolate && ls_path_find(name) != NULL) { /* the child looks for the device: this process must not */
    char program[PATH_MAX];
    LS_TRY(own_program(program, list, option, err));
    return add_child(list, option, program, name, name, name, err);
  }
  const ls_status status = ls_own_path(name, &path, &why);
  if (status != LS_OK) return ls_fail(err, status, "%s %s", option, why.text);
  LS_TRY(check_room(list, option, err));
  list->path[list->n++] = path;
  return LS_OK;
}

static ls_status add_one(ls_path_list *list, const char *option, const char *names, const char *name, ls_error *err) {
  static const char *const own[] = {"ref", "cuda", "emu"};
  const size_t length = strlen(name);
  const char *colon = strrchr(name, ':');
  if (strcmp(name, "ref") == 0) return LS_OK; /* always there */
  if (strcmp(name, "auto") == 0) {
    list->may_drop = strcmp(names, "auto") == 0;
    name = ls_path_find("cuda") != NULL && ls_path_available("cuda", NULL) == LS_OK ? "cuda" : "emu";
  }
  for (size_t i = 0; i < sizeof own / sizeof *own; i++) {
    if (strcmp(name, own[i]) == 0) return add_own(list, option, name, err);
    if (colon != NULL && colon != name && strcmp(colon + 1, own[i]) == 0)
      return add_other_build(list, option, name, (size_t)(colon - name), err);
  }
  if (strchr(name, '/') != NULL || (length > 3 && strcmp(name + length - 3, ".so") == 0)) return add_library(list, option, name, err);
  return ls_fail(err, LS_USAGE,
                 "%s: expected ref, cuda, emu, auto, a library (./libmine.so) or another build's path (FOLDER/lockstep:emu), found '%s'",
                 option, name);
}

ls_status ls_path_list_add(ls_path_list *list, const char *option, const char *names, ls_error *err) {
  char *copy = strdup(names);
  if (copy == NULL) return ls_fail(err, LS_INTERNAL, "%s: out of memory", option);
  ls_status status = LS_OK;
  char *rest = copy;
  for (char *name; status == LS_OK && (name = strsep(&rest, ",")) != NULL;) status = add_one(list, option, names, name, err);
  free(copy);
  return status;
}
