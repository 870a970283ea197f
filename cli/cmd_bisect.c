/* lockstep bisect: where what fails was introduced (session_bisect.h). */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "run_options.h"
#include "session_bisect.h"

static const char help[] =
    "usage: lockstep bisect [options] FIXTURE\n"
    "\n"
    "  --path P              ref, cuda, emu, auto, a library (./libmine.so) or another build's path (FOLDER/lockstep:cuda);\n"
    "                        default auto\n"
    "  --against P           the first place where --path differs from this path, instead of from what is expected\n"
    "  --bits                with --against: in bits, instead of beyond the bound\n"
    "  --stage GLOB          only matching stages and properties\n"
    "  --threads N           of the reference and the emulator together with their BLAS (default: all cores)\n"
    "  --emu-schedule SEED   run the emulator's threads in a random order between rendezvous points\n"
    "  --device N            CUDA device (default 0)\n"
    "  --isolate             run cuda and emu in a child process too\n"
    "  --timeout SECONDS     a call of a path in a child process may take (default 120)\n"
    "  --memory MIB          address space of a child process beside what it starts with (default: no limit)\n"
    "  --json FILE           the report as JSON (docs/report.schema.json)\n"
    "  --allow-nonfinite     NaN and infinity in weights and inputs are fine\n"
    "  --trust               do not read the file in a child process first\n";

typedef enum { OPT_PATH = 256, OPT_AGAINST, OPT_BITS, OPT_STAGE, OPT_JSON, OPT_HELP } option;

static const struct option long_options[] = {{"path", required_argument, NULL, OPT_PATH},
                                             {"against", required_argument, NULL, OPT_AGAINST},
                                             {"bits", no_argument, NULL, OPT_BITS},
                                             {"stage", required_argument, NULL, OPT_STAGE},
                                             LS_RUN_OPTIONS,
                                             LS_CHILD_OPTIONS,
                                             {"json", required_argument, NULL, OPT_JSON},
                                             {"help", no_argument, NULL, OPT_HELP},
                                             {NULL, 0, NULL, 0}};

typedef struct {
  ls_verify_options verify;
  ls_path_list list;
  const char *path, *against, *json, *file;
  ls_repeat repeat;
} arguments;

static ls_status take(arguments *a, int c) {
  bool taken;
  LS_TRY(ls_run_option(c, &a->verify, &a->list, &a->repeat, &taken));
  if (taken) return LS_OK;
  switch (c) {
    case OPT_PATH:
      a->path = optarg;
      break;
    case OPT_AGAINST:
      a->against = optarg;
      break;
    case OPT_BITS:
      a->verify.exact = true;
      break;
    case OPT_STAGE:
      a->verify.stage_glob = optarg;
      break;
    case OPT_JSON:
      a->json = optarg;
      break;
    case OPT_HELP:
      fputs(help, stdout);
      return LS_REFUSED;
    default:
      fputs(help, stderr);
      return LS_USAGE;
  }
  return LS_OK;
}

static ls_status usage_error(const char *line) {
  fprintf(stderr, "lockstep bisect: %s\n%s", line, help);
  return LS_USAGE;
}

static ls_status parse(arguments *a, int argc, char **argv) {
  optind = 1;
  for (int c; (c = getopt_long(argc, argv, "", long_options, NULL)) != -1;) LS_TRY(take(a, c));
  if (optind + 1 != argc) return usage_error("expected one fixture");
  if (a->verify.exact && a->against == NULL) return usage_error("--bits wants --against: the fixture's values are not a path's own bits");
  a->file = argv[optind];
  return LS_OK;
}

static ls_status choose_paths(arguments *a) {
  if (strchr(a->path, ',') != NULL || (a->against != NULL && strchr(a->against, ',') != NULL))
    return usage_error("--path and --against take one path each");
  a->verify.judged = a->against != NULL ? LS_JUDGE_LAST_PAIR : LS_JUDGE_LAST_PATH;
  const int wanted = 1 + (a->against != NULL && strcmp(a->against, "ref") != 0) + (strcmp(a->path, "ref") != 0);
  if (a->against != NULL) LS_TRY(ls_cli_paths(&a->list, "--against", a->against));
  LS_TRY(ls_cli_paths(&a->list, "--path", a->path));
  if (a->list.n != wanted || (a->against != NULL && a->list.n < 2)) return usage_error("--path and --against are the same path");
  if (a->against != NULL && strcmp(a->path, "ref") == 0) return usage_error("--path ref: name the reference by --against");
  memcpy(a->verify.path, a->list.path, sizeof a->verify.path);
  a->verify.n_paths = a->list.n;
  if (a->verify.exact) { /* only a bisection compares bits */
    ls_repeat_add(&a->repeat, "path", a->path);
    ls_repeat_add(&a->repeat, "against", a->against);
    ls_repeat_add(&a->repeat, "bits", NULL);
    return LS_OK;
  }
  char both[768];
  snprintf(both, sizeof both, "%s%s%s", a->against != NULL ? a->against : "", a->against != NULL ? "," : "", a->path);
  ls_repeat_add(&a->repeat, "path", both);
  return LS_OK;
}

/* Exit 1 says that something was found, or that nothing was compared at all. */
static ls_status bisect(arguments *a, ls_error *err) {
  ls_report *report = NULL;
  ls_report_options print = {.allow_mistrusted = true,
                             .program = "lockstep",
                             .repeat_options = a->repeat.text,
                             .command = a->verify.exact ? "bisect" : NULL,
                             .no_step = a->verify.exact};
  print.colour = isatty(STDOUT_FILENO) != 0 && getenv("NO_COLOR") == NULL;
  ls_bisect_fixture(a->file, &a->verify, &report, err); /* what stopped it is in the report */
  if (report == NULL) {
    fprintf(stderr, "lockstep: %s\n", err->text);
    return err->status != LS_OK ? err->status : LS_INTERNAL;
  }
  err->status = LS_OK;
  err->text[0] = '\0';
  ls_report_hit hit;
  ls_status status = ls_report_first(report, &hit, err);
  if (hit.found || hit.compared == 0) print.allow_mistrusted = false;
  if (status == LS_OK) status = ls_report_text(report, &print, stdout, err);
  if (status == LS_OK && a->json != NULL) status = ls_report_json(report, &print, a->json, err);
  if (status == LS_OK)
    status = ls_report_status(report, &print);
  else
    fprintf(stderr, "lockstep: %s\n", err->text);
  ls_report_free(report);
  return status;
}

ls_status ls_cmd_bisect(int argc, char **argv) {
  arguments a;
  memset(&a, 0, sizeof a);
  ls_path_list_init(&a.list, &ls_interrupted);
  a.path = "auto";
  a.verify.only_step = -1;
  a.verify.interrupted = &ls_interrupted;
  a.verify.progress = isatty(STDERR_FILENO) != 0;
  ls_error err = {LS_OK, ""};
  ls_status status = parse(&a, argc, argv);
  if (status == LS_OK) status = ls_cli_output("--json", a.json, false);
  if (status == LS_OK) status = choose_paths(&a);
  if (status == LS_OK) status = bisect(&a, &err);
  ls_path_list_free(&a.list);
  return status == LS_REFUSED ? LS_OK : status;
}
