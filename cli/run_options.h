/* run_options: the options that every command understands alike which runs paths, and what a command line has to keep of them. */
#ifndef LS_RUN_OPTIONS_H
#define LS_RUN_OPTIONS_H

#include <getopt.h>

#include "session_path_list.h"

/* Options of a run that the command which repeats a finding must carry. */
typedef struct {
  char text[1024];
} ls_repeat;

void ls_repeat_add(ls_repeat *repeat, const char *option, const char *value); /* value NULL: none */

enum {
  LS_OPT_THREADS = 1024,
  LS_OPT_SCHEDULE,
  LS_OPT_DEVICE,
  LS_OPT_NONFINITE,
  LS_OPT_TRUST,
  LS_OPT_ISOLATE,
  LS_OPT_TIMEOUT,
  LS_OPT_MEMORY
};

/* For a command's table of options: of any run; of paths in child processes. */
#define LS_RUN_OPTIONS                                                                                                \
  {"threads", required_argument, NULL, LS_OPT_THREADS}, {"emu-schedule", required_argument, NULL, LS_OPT_SCHEDULE},   \
      {"device", required_argument, NULL, LS_OPT_DEVICE}, {"allow-nonfinite", no_argument, NULL, LS_OPT_NONFINITE}, { \
    "trust", no_argument, NULL, LS_OPT_TRUST                                                                          \
  }
#define LS_CHILD_OPTIONS                                                                                  \
  {"isolate", no_argument, NULL, LS_OPT_ISOLATE}, {"timeout", required_argument, NULL, LS_OPT_TIMEOUT}, { \
    "memory", required_argument, NULL, LS_OPT_MEMORY                                                      \
  }

/* Takes one of them, its text in optarg; *taken is false where it is none. list: needed by those of LS_CHILD_OPTIONS alone. repeat: NULL
 * where nothing is repeated. */
ls_status ls_run_option(int option, ls_verify_options *verify, ls_path_list *list, ls_repeat *repeat, bool *taken);

/* ls_path_list_add, and what it says on stderr. */
ls_status ls_cli_paths(ls_path_list *list, const char *option, const char *names);

/* "I/N" of --shard: *shard is I - 1. LS_USAGE with a line on stderr. */
ls_status ls_cli_shard(const char *text, int64_t *shard, int64_t *shards);

/* Whether `file` can be made, asked now and not after the whole run; NULL: nothing is asked for. regular: no device or pipe will do. */
ls_status ls_cli_output(const char *option, const char *file, bool regular);

#endif
