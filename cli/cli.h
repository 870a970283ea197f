/* cli: what the commands share. Each command returns the exit status. */
#ifndef LS_CLI_H
#define LS_CLI_H

#include <signal.h>
#include <stdint.h>

#include "../core/ls_status.h"

extern volatile sig_atomic_t ls_interrupted; /* set by SIGINT and SIGTERM */

ls_status ls_cmd_verify(int argc, char **argv);
ls_status ls_cmd_info(int argc, char **argv);
ls_status ls_cmd_gen(int argc, char **argv);
ls_status ls_cmd_import(int argc, char **argv);
ls_status ls_cmd_export(int argc, char **argv);
ls_status ls_cmd_record(int argc, char **argv);
ls_status ls_cmd_diff(int argc, char **argv);
ls_status ls_cmd_bisect(int argc, char **argv);
ls_status ls_cmd_fuzz(int argc, char **argv);
ls_status ls_cmd_merge(int argc, char **argv);
ls_status ls_cmd_bench(int argc, char **argv);
ls_status ls_cmd_version(int argc, char **argv);
ls_status ls_cmd_serve(int argc, char **argv); /* __serve-path: the child process of a path (plugin/ls_child.h) */

/* A whole number in [low, high] from an option's text; LS_USAGE with a line on stderr. */
ls_status ls_cli_number(const char *option, const char *text, long long low, long long high, long long *value);

/* The same from optarg. */
ls_status ls_cli_optarg(const char *option, long long low, long long high, int64_t *to);

#endif
