/* lockstep export: all that a fixture or a recorded trace holds, as arrays for NumPy. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "../core/ls_parallel.h"
#include "../fixtures/ls_export.h"
#include "cli.h"
#include "run_options.h"

static const char help[] =
    "usage: lockstep export [options] --out FILE.npz FIXTURE|TRACE\n"
    "\n"
    "Writes every dataset and attribute as an array that numpy.load gives under its name (docs/export.md).\n"
    "\n"
    "  --npz                   as NumPy's .npz: the one form there is, and the default\n"
    "  --out FILE.npz\n"
    "  --only GLOB             only arrays of such names: 'weights/*', 'steps/0003/*', '*k_rope'\n"
    "  --bits                  bf16 as the 16 bits that are stored (uint16); default: float32 of the same value\n"
    "  --threads N             of what makes generated tensors (default: all cores)\n"
    "  --trust                 do not read the file in a child process first\n";

enum { OPT_NPZ = 256, OPT_OUT, OPT_ONLY, OPT_BITS, OPT_THREADS, OPT_TRUST, OPT_HELP };

static const struct option long_options[] = {{"npz", no_argument, NULL, OPT_NPZ},
                                             {"out", required_argument, NULL, OPT_OUT},
                                             {"only", required_argument, NULL, OPT_ONLY},
                                             {"bits", no_argument, NULL, OPT_BITS},
                                             {"threads", required_argument, NULL, OPT_THREADS},
                                             {"trust", no_argument, NULL, OPT_TRUST},
                                             {"help", no_argument, NULL, OPT_HELP},
                                             {NULL, 0, NULL, 0}};

typedef struct {
  ls_export how;
  const char *out, *file;
  bool trust;
} command;

/* LS_REFUSED: help was asked for and given. */
static ls_status parse(command *c, int argc, char **argv) {
  int option;
  optind = 1;
  while ((option = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
    switch (option) {
      case OPT_NPZ:
        break;
      case OPT_OUT:
        c->out = optarg;
        break;
      case OPT_ONLY:
        c->how.only = optarg;
        break;
      case OPT_BITS:
        c->how.bits = true;
        break;
      case OPT_THREADS: {
        int64_t threads;
        LS_TRY(ls_cli_optarg("--threads", 1, 1024, &threads));
        ls_threads_set((int)threads);
        break;
      }
      case OPT_TRUST:
        c->trust = true;
        break;
      case OPT_HELP:
        fputs(help, stdout);
        return LS_REFUSED;
      default:
        fputs(help, stderr);
        return LS_USAGE;
    }
  }
  if (c->out == NULL || argc - optind != 1) {
    fprintf(stderr, "lockstep export: %s\n%s", c->out == NULL ? "--out FILE.npz is needed" : "expected one fixture or trace", help);
    return LS_USAGE;
  }
  struct stat from, to;
  c->file = argv[optind];
  if (stat(c->file, &from) == 0 && stat(c->out, &to) == 0 && from.st_dev == to.st_dev && from.st_ino == to.st_ino) {
    fprintf(stderr, "lockstep export: --out %s: is the file that is read\n", c->out);
    return LS_USAGE;
  }
  return ls_cli_output("--out", c->out, true); /* told before a large file is read */
}

static ls_status still_wanted(void *arg, ls_error *err) {
  (void)arg;
  return ls_interrupted ? ls_fail(err, LS_INTERRUPTED, "interrupted: no file was written") : LS_OK;
}

static ls_status export_file(const command *c, ls_export_report *report, ls_error *err) {
  bool is_trace = false;
  ls_status status;
  ls_trace_reader *reader = NULL;
  ls_fixture *fixture = NULL;
  const ls_fixture_options options = {.allow_nonfinite = true};
  if (!c->trust) LS_TRY(ls_fixture_probe(c->file, err));
  LS_TRY(ls_trace_file_is(c->file, &is_trace, err));
  if (is_trace) {
    LS_TRY_OUT(ls_trace_reader_open(&reader, c->file, err));
    status = ls_export_trace(reader, c->out, &c->how, report, err);
  } else {
    LS_TRY_OUT(ls_fixture_open(&fixture, c->file, &options, err));
    status = ls_export_fixture(fixture, c->out, &c->how, report, err);
  }
out:
  ls_trace_reader_close(reader);
  ls_fixture_close(fixture);
  return status;
}

ls_status ls_cmd_export(int argc, char **argv) {
  command c = {.how = {.alive = still_wanted}};
  ls_export_report report;
  ls_error err = {LS_OK, ""};
  ls_status status = parse(&c, argc, argv);
  if (status != LS_OK) return status == LS_REFUSED ? LS_OK : status;
  status = export_file(&c, &report, &err);
  if (status != LS_OK) {
    fprintf(stderr, "lockstep export: %s\n", err.text);
    return status;
  }
  printf("%s: %lld datasets and %lld attributes of %s, %lld bytes\n", c.out, (long long)report.datasets, (long long)report.attributes,
         c.file, (long long)report.bytes);
  if (report.left_out > 0) printf("left out: %lld attributes that are neither numbers nor one text\n", (long long)report.left_out);
  return LS_OK;
}
