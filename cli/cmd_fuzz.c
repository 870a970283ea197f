/* lockstep fuzz: scenarios drawn from a seed, each verified path against path; what fails is shrunk and written as a fixture. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "../core/ls_parallel.h"
#include "cli.h"
#include "run_options.h"
#include "session_fuzz.h"

static const char help_fuzz[] =
    "usage: lockstep fuzz dflash|attn [options]\n"
    "\n"
    "Draws scenarios from a seed (config, shapes, positions, operations, values), verifies each of them path against path with all "
    "properties,\n"
    "and shrinks the first that fails to a minimal fixture. Case I of a seed is the same wherever it is run.\n"
    "\n"
    "  --seed S                default 1\n"
    "  --runs N                cases 0 .. N-1; default 200, with --time: as many as there is time for\n"
    "  --time SECONDS          no case begins after so long\n"
    "  --case I                case I alone\n"
    "  --path LIST             as of verify: of ref, cuda, emu, auto, a library of yours; default auto\n"
    "  --shard I/N             of the cases only those whose number leaves the remainder I-1 by N; `lockstep merge` puts reports together\n"
    "  --jobs J                processes (default: all cores; with cuda: one)\n"
    "  --failures N            go on until N cases fail, default 1\n"
    "  --shrink N              candidates tried at most to make a failing case smaller, default 4000; 0: written as drawn\n"
    "  --out DIR               where failing cases are written, default .\n"
    "  --timeout SECONDS       a case may take (default 120); not with cuda\n"
    "  --relations             each path against itself too, in runs whose outcome must relate (docs/relations.md)\n"
    "  --allow-nonfinite       NaN among the values, too (other cases than without)\n"
    "  --emu-schedule SEED     run the emulator's threads in a random order between rendezvous points\n"
    "  --device N              CUDA device (default 0)\n"
    "  --json FILE             the report as JSON (docs/fuzz.schema.json)\n"
    "  --junit FILE            the report as JUnit XML\n"
    "\n"
    "Exit codes: 0 nothing fails, 1 something does or no case was run, else as of `lockstep --help`.\n";

enum {
  OPT_SEED = 256,
  OPT_RUNS,
  OPT_TIME,
  OPT_CASE,
  OPT_PATH,
  OPT_SHARD,
  OPT_JOBS,
  OPT_FAILURES,
  OPT_SHRINK,
  OPT_OUT,
  OPT_JSON,
  OPT_JUNIT,
  OPT_RELATIONS,
  OPT_HELP
};

static const struct option long_options[] = {{"seed", required_argument, NULL, OPT_SEED},
                                             {"runs", required_argument, NULL, OPT_RUNS},
                                             {"time", required_argument, NULL, OPT_TIME},
                                             {"case", required_argument, NULL, OPT_CASE},
                                             {"path", required_argument, NULL, OPT_PATH},
                                             {"shard", required_argument, NULL, OPT_SHARD},
                                             {"jobs", required_argument, NULL, OPT_JOBS},
                                             {"failures", required_argument, NULL, OPT_FAILURES},
                                             {"shrink", required_argument, NULL, OPT_SHRINK},
                                             {"out", required_argument, NULL, OPT_OUT},
                                             {"timeout", required_argument, NULL, LS_OPT_TIMEOUT},
                                             {"allow-nonfinite", no_argument, NULL, LS_OPT_NONFINITE},
                                             {"emu-schedule", required_argument, NULL, LS_OPT_SCHEDULE},
                                             {"device", required_argument, NULL, LS_OPT_DEVICE},
                                             {"relations", no_argument, NULL, OPT_RELATIONS},
                                             {"json", required_argument, NULL, OPT_JSON},
                                             {"junit", required_argument, NULL, OPT_JUNIT},
                                             {"help", no_argument, NULL, OPT_HELP},
                                             {NULL, 0, NULL, 0}};

typedef struct {
  ls_fuzz_options fuzz;
  ls_verify_options verify;
  ls_path_list list;
  ls_repeat repeat;
  const char *paths, *json, *junit;
} arguments;

static ls_status one_option(arguments *a, int option) {
  long long value = 0;
  switch (option) {
    case OPT_SEED:
      LS_TRY(ls_cli_number("--seed", optarg, 0, INT64_MAX, &value));
      a->fuzz.seed = (uint64_t)value;
      return LS_OK;
    case OPT_RUNS:
      return ls_cli_optarg("--runs", 1, INT64_MAX / 1024, &a->fuzz.runs);
    case OPT_TIME:
      LS_TRY(ls_cli_number("--time", optarg, 1, LS_MAX_TIMEOUT, &value));
      a->fuzz.seconds = (double)value;
      return LS_OK;
    case OPT_CASE:
      return ls_cli_optarg("--case", 0, INT64_MAX / 1024, &a->fuzz.only);
    case OPT_PATH:
      a->paths = optarg;
      return LS_OK;
    case OPT_SHARD:
      return ls_cli_shard(optarg, &a->fuzz.shard, &a->fuzz.shards);
    case OPT_JOBS:
      LS_TRY(ls_cli_number("--jobs", optarg, 1, 256, &value));
      a->fuzz.jobs = (int)value;
      return LS_OK;
    case OPT_FAILURES:
      return ls_cli_optarg("--failures", 1, 256, &a->fuzz.failures);
    case OPT_SHRINK:
      return ls_cli_optarg("--shrink", 0, INT32_MAX, &a->fuzz.shrink);
    case OPT_OUT:
      a->fuzz.folder = optarg;
      return LS_OK;
    case OPT_JSON:
      a->json = optarg;
      return LS_OK;
    case OPT_JUNIT:
      a->junit = optarg;
      return LS_OK;
    case OPT_RELATIONS:
      a->verify.relations = true;
      ls_repeat_add(&a->repeat, "relations", NULL);
      return LS_OK;
    default:
      return LS_REFUSED;
  }
}

static ls_status parse(arguments *a, int argc, char **argv) {
  int option = 0;
  optind = 1;
  opterr = 0;
  while ((option = getopt_long(argc, argv, ":", long_options, NULL)) != -1) {
    bool taken = false;
    if (option == OPT_HELP) {
      fputs(help_fuzz, stdout);
      return LS_REFUSED;
    }
    if (option == '?' || option == ':') {
      fprintf(stderr, option == '?' ? "lockstep fuzz: unknown option '%s'\n" : "lockstep fuzz: '%s' needs a value\n", argv[optind - 1]);
      return LS_USAGE;
    }
    LS_TRY(ls_run_option(option, &a->verify, &a->list, &a->repeat, &taken));
    if (!taken) LS_TRY(one_option(a, option));
  }
  if (optind < argc) {
    fprintf(stderr, "lockstep fuzz: unexpected argument '%s'\n", argv[optind]);
    return LS_USAGE;
  }
  if (a->fuzz.only >= 0 && (a->fuzz.runs > 0 || a->fuzz.seconds > 0 || a->fuzz.shards > 1)) {
    fprintf(stderr, "lockstep fuzz: --case stands alone, without --runs, --time and --shard\n");
    return LS_USAGE;
  }
  if (a->fuzz.only < 0 && a->fuzz.runs == 0 && a->fuzz.seconds <= 0) a->fuzz.runs = 200;
  return LS_OK;
}

/* A path on a GPU does not outlive a fork. */
static ls_status choose_paths(arguments *a) {
  bool forks = true;
  LS_TRY(ls_cli_paths(&a->list, "--path", a->paths));
  memcpy(a->verify.path, a->list.path, sizeof a->verify.path);
  a->verify.n_paths = a->list.n;
  for (int p = 0; p < a->list.n; p++) forks = forks && strcmp(a->list.path[p]->name, "cuda") != 0;
  if (!forks && a->fuzz.jobs > 1) {
    fprintf(stderr, "lockstep fuzz: --jobs: the path cuda runs in one process; --shard divides the cases among several commands\n");
    return LS_USAGE;
  }
  if (!forks) {
    a->fuzz.jobs = 0;
  } else if (a->fuzz.jobs == 0) {
    a->fuzz.jobs = ls_threads() < 256 ? ls_threads() : 256;
  }
  a->fuzz.timeout = a->list.timeout;
  return LS_OK;
}

static ls_status check_folder(const char *folder) {
  struct stat at;
  if (stat(folder, &at) == 0 && S_ISDIR(at.st_mode) && access(folder, W_OK) == 0) return LS_OK;
  fprintf(stderr, "lockstep fuzz: --out: expected a folder that can be written to, found '%s'\n", folder);
  return LS_USAGE;
}

static ls_status path_names(const arguments *a, ls_fuzz_report *report) {
  char names[256] = "";
  for (int p = 0; p < a->list.n; p++) {
    const size_t used = strlen(names);
    snprintf(names + used, sizeof names - used, "%s%s", p > 0 ? ", " : "", a->list.path[p]->name);
  }
  report->paths = strdup(names);
  return report->paths != NULL ? LS_OK : LS_INTERNAL;
}

static ls_status run(arguments *a) {
  ls_error err = {LS_OK, ""};
  ls_fuzz_report report = {.layer = a->fuzz.layer,
                           .seed = a->fuzz.seed,
                           .shard = a->fuzz.shard,
                           .shards = a->fuzz.shards,
                           .runs = a->fuzz.only >= 0 ? 1 : a->fuzz.runs};
  ls_status status = path_names(a, &report);
  if (status == LS_OK) status = ls_fuzz_run(&a->fuzz, &report, &err);
  if (status != LS_OK) fprintf(stderr, "lockstep fuzz: %s\n", err.text[0] != '\0' ? err.text : "out of memory");
  ls_status written = LS_OK;
  const ls_status told = ls_fuzz_report_text(&report, stdout, &err);
  if (told != LS_OK) written = told;
  if (a->json != NULL) {
    const ls_status json = ls_fuzz_report_json(&report, a->json, &err);
    if (json != LS_OK) written = json;
  }
  if (a->junit != NULL) {
    const ls_status junit = ls_fuzz_report_junit(&report, a->junit, &err);
    if (junit != LS_OK) written = junit;
  }
  if (written != LS_OK) fprintf(stderr, "lockstep fuzz: %s\n", err.text);
  if (status == LS_OK) status = written != LS_OK ? written : ls_fuzz_report_status(&report);
  ls_fuzz_report_free(&report);
  return status;
}

ls_status ls_cmd_fuzz(int argc, char **argv) {
  const bool attn = argc >= 2 && strcmp(argv[1], "attn") == 0;
  if (argc < 2 || (!attn && strcmp(argv[1], "dflash") != 0)) {
    const bool asked = argc == 2 && strcmp(argv[1], "--help") == 0;
    if (argc >= 2 && !asked) fprintf(stderr, "lockstep fuzz: expected the layer 'dflash' or 'attn', found '%s'\n", argv[1]);
    if (argc < 2 || asked) fputs(help_fuzz, asked ? stdout : stderr);
    return asked ? LS_OK : LS_USAGE;
  }
  arguments a;
  memset(&a, 0, sizeof a);
  ls_path_list_init(&a.list, &ls_interrupted);
  a.verify.only_step = -1;
  a.verify.interrupted = &ls_interrupted;
  a.fuzz = (ls_fuzz_options){.layer = attn ? &ls_layer_attn_v41 : &ls_layer_dflash_context_kv,
                             .layer_word = attn ? "attn" : "dflash",
                             .seed = 1,
                             .only = -1,
                             .shards = 1,
                             .failures = 1,
                             .shrink = 4000,
                             .folder = ".",
                             .verify = &a.verify,
                             .progress = isatty(STDERR_FILENO) != 0};
  a.paths = "auto";
  ls_status status = parse(&a, argc - 1, argv + 1);
  if (status == LS_REFUSED)
    status = LS_OK; /* help was asked for */
  else {
    if (status == LS_OK) status = check_folder(a.fuzz.folder);
    if (status == LS_OK) status = ls_cli_output("--json", a.json, false);
    if (status == LS_OK) status = ls_cli_output("--junit", a.junit, false);
    if (status == LS_OK) status = choose_paths(&a);
    if (status == LS_OK) {
      ls_threads_set(1); /* of a case; cases run beside each other */
      ls_repeat_add(&a.repeat, "path", a.paths);
      a.fuzz.repeat_options = a.repeat.text;
      status = run(&a);
    }
  }
  ls_path_list_free(&a.list);
  return status;
}
