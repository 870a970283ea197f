/* lockstep merge: the reports of sharded runs as one. */
#include <ctype.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../compare/ls_merge.h"
#include "cli.h"
#include "run_options.h"

static const char help_merge[] =
    "usage: lockstep merge [options] REPORT...\n"
    "\n"
    "Puts the reports of one run that was divided by --shard I/N into one of the same form: those of `verify` or of `fuzz`, JSON, JUnit "
    "or\n"
    "both (told apart by their first byte). The exit code is that of the whole run, and at least 1 where a shard is missing.\n"
    "\n"
    "  --json FILE             the merged JSON reports\n"
    "  --junit FILE            the merged JUnit reports\n";

enum { OPT_JSON = 256, OPT_JUNIT, OPT_HELP };

static const struct option long_options[] = {{"json", required_argument, NULL, OPT_JSON},
                                             {"junit", required_argument, NULL, OPT_JUNIT},
                                             {"help", no_argument, NULL, OPT_HELP},
                                             {NULL, 0, NULL, 0}};

/* The first byte that is no blank; 0: there is none, or no file. */
static int first_byte(const char *name) {
  FILE *file = fopen(name, "r");
  int c = 0;
  if (file == NULL) return 0;
  do c = fgetc(file);
  while (c != EOF && isspace(c));
  fclose(file);
  return c == EOF ? 0 : c;
}

typedef ls_status merge_function(ls_merged *merged, const char *const *files, int n, const char *out, ls_error *err);

/* *whole: the status of what was merged, as the exit code. */
static ls_status merge_kind(merge_function *merge, const char *const *files, int n, const char *out, ls_status *whole) {
  ls_merged merged;
  ls_error err = {LS_OK, ""};
  if (n == 0) return LS_OK;
  const ls_status status = merge(&merged, files, n, out, &err);
  if (status != LS_OK) {
    fprintf(stderr, "lockstep merge: %s\n", err.text);
    return status;
  }
  if (merged.missing[0] != '\0') printf("MISSING: shard %s\n", merged.missing);
  printf("%s: %s\n", merged.line, ls_status_name(merged.status));
  if (*whole == LS_OK) *whole = merged.status;
  return LS_OK;
}

static ls_status parse(int argc, char **argv, const char **json, const char **junit) {
  int option = 0;
  optind = 1;
  opterr = 0;
  while ((option = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
    if (option == OPT_HELP) {
      fputs(help_merge, stdout);
      return LS_REFUSED;
    }
    if (option == '?' || option == ':') {
      fprintf(stderr, option == '?' ? "lockstep merge: unknown option '%s'\n" : "lockstep merge: '%s' needs a value\n", argv[optind - 1]);
      return LS_USAGE;
    }
    *(option == OPT_JSON ? json : junit) = optarg;
  }
  if (optind == argc) {
    fprintf(stderr, "lockstep merge: no report named\n%s", help_merge);
    return LS_USAGE;
  }
  LS_TRY(ls_cli_output("--json", *json, false));
  return ls_cli_output("--junit", *junit, false);
}

ls_status ls_cmd_merge(int argc, char **argv) {
  const char *json = NULL, *junit = NULL;
  ls_status whole = LS_OK, status = parse(argc, argv, &json, &junit);
  if (status != LS_OK) return status == LS_REFUSED ? LS_OK : status;
  const int n = argc - optind;
  const char **as_json = calloc((size_t)n, sizeof *as_json), **as_junit = calloc((size_t)n, sizeof *as_junit);
  int n_json = 0, n_junit = 0;
  if (as_json == NULL || as_junit == NULL) {
    fprintf(stderr, "lockstep merge: out of memory\n");
    status = LS_INTERNAL;
    goto out;
  }
  for (int i = optind; i < argc; i++) {
    if (first_byte(argv[i]) == '<') {
      as_junit[n_junit++] = argv[i];
    } else {
      as_json[n_json++] = argv[i]; /* what is neither is told by the reader */
    }
  }
  if ((json != NULL && n_json == 0) || (junit != NULL && n_junit == 0)) {
    fprintf(stderr, "lockstep merge: --%s: no report of that form is named\n", json != NULL && n_json == 0 ? "json" : "junit");
    status = LS_USAGE;
    goto out;
  }
  status = merge_kind(ls_merge_json, as_json, n_json, json, &whole);
  if (status == LS_OK) status = merge_kind(ls_merge_junit, as_junit, n_junit, junit, &whole);
out:
  free(as_json);
  free(as_junit);
  return status != LS_OK ? status : whole;
}
