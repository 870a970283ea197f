/* lockstep info: config, steps, datasets and sizes of fixtures; of recorded traces, where they come from. */
#include <stdio.h>
#include <string.h>

#include "../fixtures/ls_trace_file.h"
#include "cli.h"

static ls_status describe_trace(const char *file, ls_error *err) {
  ls_trace_reader *reader = NULL;
  ls_status status = ls_trace_reader_open(&reader, file, err);
  if (status == LS_OK) status = ls_trace_reader_describe(reader, stdout, err);
  if (status != LS_OK) fprintf(stderr, "%s\n", err->text);
  ls_trace_reader_close(reader);
  return status;
}

static ls_status describe(const char *file, ls_error *err) {
  bool is_trace = false;
  ls_fixture *fixture = NULL;
  ls_fixture_options options = {true, stderr};
  ls_status status = ls_fixture_probe(file, err);
  if (status != LS_OK) {
    fprintf(stderr, "%s\n", err->text);
    return status;
  }
  ls_error why = {LS_OK, ""};
  status = ls_trace_file_is(file, &is_trace, &why);
  if (status == LS_INTERNAL) {
    fprintf(stderr, "%s\n", why.text);
    return status;
  }
  if (status == LS_OK && is_trace) return describe_trace(file, err);
  status = ls_fixture_open(&fixture, file, &options, err); /* lists its problems itself */
  if (status != LS_OK && status != LS_BAD_FIXTURE) fprintf(stderr, "%s\n", err->text);
  if (status == LS_OK) {
    status = ls_fixture_describe(fixture, stdout, err);
    if (status != LS_OK) fprintf(stderr, "%s\n", err->text);
  }
  ls_fixture_close(fixture);
  return status;
}

ls_status ls_cmd_info(int argc, char **argv) {
  if (argc < 2 || argv[1][0] == '-') {
    const bool asked = argc == 2 && strcmp(argv[1], "--help") == 0;
    fputs("usage: lockstep info FILE...\n", asked ? stdout : stderr);
    return asked ? LS_OK : LS_USAGE;
  }
  ls_status worst = LS_OK;
  for (int i = 1; i < argc; i++) {
    ls_error err = {LS_OK, ""};
    ls_status status = describe(argv[i], &err);
    if (status > worst) worst = status;
  }
  return worst;
}
