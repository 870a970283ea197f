/* lockstep record: what one path does with a fixture, into a trace file. */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli.h"
#include "provenance.h"
#include "run_options.h"

static const char help[] =
    "usage: lockstep record [options] --out TRACE FIXTURE\n"
    "\n"
    "  --path NAME             ref, cuda, emu or auto (cuda where a device is present, else emu); default auto\n"
    "  --out TRACE             the file to be made (docs/trace-format.md)\n"
    "  --digest                hashes and statistics of rows in place of values: far smaller, and names a row, not an element\n"
    "  --threads N             of the reference and the emulator together with their BLAS (default: all cores)\n"
    "  --emu-schedule SEED     run the emulator's threads in a random order between rendezvous points\n"
    "  --device N              CUDA device (default 0)\n"
    "  --allow-nonfinite       NaN and infinity in weights and inputs are fine\n"
    "  --trust                 do not read the fixture in a child process first\n"
    "\n"
    "Nothing is judged, and a recording that is interrupted leaves no file. lockstep diff judges.\n";

enum { OPT_PATH = 256, OPT_OUT, OPT_DIGEST, OPT_HELP };

static const struct option long_options[] = {{"path", required_argument, NULL, OPT_PATH}, {"out", required_argument, NULL, OPT_OUT},
                                             {"digest", no_argument, NULL, OPT_DIGEST},   LS_RUN_OPTIONS,
                                             {"help", no_argument, NULL, OPT_HELP},       {NULL, 0, NULL, 0}};

static ls_status parse(ls_verify_options *options, ls_recording *record, const char **path, int argc, char **argv) {
  int c;
  optind = 1;
  while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
    bool taken;
    LS_TRY(ls_run_option(c, options, NULL, NULL, &taken));
    if (taken) continue;
    switch (c) {
      case OPT_PATH:
        *path = optarg;
        break;
      case OPT_OUT:
        record->file = optarg;
        break;
      case OPT_DIGEST:
        record->digest = true;
        break;
      case OPT_HELP:
        fputs(help, stdout);
        return LS_REFUSED;
      default:
        fputs(help, stderr);
        return LS_USAGE;
    }
  }
  if (record->file != NULL && argc - optind == 1) return LS_OK;
  fprintf(stderr, "lockstep record: %s\n%s", record->file == NULL ? "--out TRACE is needed" : "expected one fixture", help);
  return LS_USAGE;
}

ls_status ls_cmd_record(int argc, char **argv) {
  ls_recording record = {.file = NULL};
  ls_verify_options options = {.path = {&ls_path_ref},
                               .n_paths = 1,
                               .only_step = -1,
                               .record = &record,
                               .progress = isatty(STDERR_FILENO) != 0,
                               .interrupted = &ls_interrupted};
  const char *name = "auto";
  ls_path_list list;
  static ls_provenance provenance;
  ls_report *report = NULL;
  ls_error err = {LS_OK, ""};
  ls_status status = parse(&options, &record, &name, argc, argv);
  if (status == LS_REFUSED) return LS_OK; /* help was asked for */
  if (status == LS_OK) status = ls_cli_output("--out", record.file, true);
  if (status != LS_OK) return status;
  ls_path_list_init(&list, &ls_interrupted);
  status = ls_cli_paths(&list, "--path", name);
  if (status == LS_OK && list.n > 2) {
    fprintf(stderr, "lockstep record: --path: expected one path, found '%s'\n", name);
    status = LS_USAGE;
  }
  if (status != LS_OK) {
    ls_path_list_free(&list);
    return status;
  }
  const ls_path *path = list.path[list.n - 1];
  if (path != &ls_path_ref) options.path[options.n_paths++] = path;
  ls_provenance_collect(&provenance, argc, argv);
  record.about = provenance.line;
  status = ls_report_new(&report, &err); /* nobody reads it: the session says on stderr what stops it, but for the report's own troubles */
  if (status == LS_OK) status = ls_verify_fixture(argv[optind], &options, report, &err);
  if (status != LS_OK && err.text[0] != '\0') fprintf(stderr, "lockstep record: %s\n", err.text);
  ls_report_free(report);
  struct stat st;
  if (status == LS_OK)
    printf("%s: %s of path %s, %" PRId64 " steps, %lld bytes\n", record.file, record.digest ? "digest" : "trace", path->name, record.steps,
           stat(record.file, &st) == 0 ? (long long)st.st_size : 0);
  ls_path_list_free(&list);
  if (status != LS_OK) return status;
  if (record.properties_failing > 0)
    printf("%d properties of the path do not hold; lockstep diff or lockstep info names them\n", record.properties_failing);
  return LS_OK;
}
