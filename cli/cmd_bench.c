/* lockstep bench: how long a step takes, held against what the machine could do, what it took before, or what another build takes. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../bench/bench_gate.h"
#include "../bench/bench_peer.h"
#include "../core/ls_parallel.h"
#include "../gpu/emu/emu_rate.h"
#include "cli.h"
#include "provenance.h"
#include "run_options.h"

static const char help_bench[] =
    "usage: lockstep bench [options] [SCENARIO | GLOB | FIXTURE.h5]...\n"
    "\n"
    "Times the last step of each scenario, after the path was verified against the reference on it; what does not pass is not timed.\n"
    "Without a scenario: all of the published shapes that --list lists. FIXTURE.h5: the last step of that file.\n"
    "\n"
    "  --list                  the scenarios, and how to name others\n"
    "  --path LIST             of ref, emu, cuda, auto (default: cuda where a device is present, else emu)\n"
    "  --samples N             timed runs a round (default 25 on cuda, 7 on the cores)\n"
    "  --warmup N              runs before them (default 5 on cuda, 1 on the cores)\n"
    "  --back-to-back N        and so many in one piece (default 20 on cuda, 0 on the cores)\n"
    "  --rounds N              rounds of samples (default 1; with --compare 5, with --against 10)\n"
    "  --parts                 stage by stage too\n"
    "  --warm                  leave the caches as they are (default on cuda: other data is read before each run)\n"
    "  --threads N             of the reference and the emulator\n"
    "  --device N              CUDA device (default 0)\n"
    "  --ceilings              only what the machine gives at each scenario's size\n"
    "  --json FILE             the figures in Google Benchmark's JSON\n"
    "  --history FILE          append a line a round to FILE; with --plot also what is drawn\n"
    "  --plot FILE             the history as one HTML page; without a scenario nothing is run\n"
    "  --compare BASELINE      hold the figures against a history (.jsonl) or a JSON file of rounds before\n"
    "  --against BINARY        hold them against another build of lockstep, round by round in turn\n"
    "  --threshold P           how much slower is a regression, in percent (default 5)\n"
    "\n"
    "Exit status: 0 all measured and none slower, 1 a regression or a step that does not pass, 4 something was not measured\n"
    "(contended, throttled, too few rounds): never taken for a pass.\n";

enum {
  OPT_LIST = 256,
  OPT_PATH,
  OPT_SAMPLES,
  OPT_WARMUP,
  OPT_BACK,
  OPT_ROUNDS,
  OPT_PARTS,
  OPT_WARM,
  OPT_CEILINGS,
  OPT_JSON,
  OPT_HISTORY,
  OPT_PLOT,
  OPT_COMPARE,
  OPT_AGAINST,
  OPT_THRESHOLD,
  OPT_TURNS,
  OPT_HELP
};

static const struct option long_options[] = {{"list", no_argument, NULL, OPT_LIST},
                                             {"path", required_argument, NULL, OPT_PATH},
                                             {"samples", required_argument, NULL, OPT_SAMPLES},
                                             {"warmup", required_argument, NULL, OPT_WARMUP},
                                             {"back-to-back", required_argument, NULL, OPT_BACK},
                                             {"rounds", required_argument, NULL, OPT_ROUNDS},
                                             {"parts", no_argument, NULL, OPT_PARTS},
                                             {"warm", no_argument, NULL, OPT_WARM},
                                             {"ceilings", no_argument, NULL, OPT_CEILINGS},
                                             {"json", required_argument, NULL, OPT_JSON},
                                             {"history", required_argument, NULL, OPT_HISTORY},
                                             {"plot", required_argument, NULL, OPT_PLOT},
                                             {"compare", required_argument, NULL, OPT_COMPARE},
                                             {"against", required_argument, NULL, OPT_AGAINST},
                                             {"threshold", required_argument, NULL, OPT_THRESHOLD},
                                             {"turns", no_argument, NULL, OPT_TURNS}, /* the peer's side of --against */
                                             {"threads", required_argument, NULL, LS_OPT_THREADS},
                                             {"device", required_argument, NULL, LS_OPT_DEVICE},
                                             {"help", no_argument, NULL, OPT_HELP},
                                             {NULL, 0, NULL, 0}};

typedef struct {
  long long samples, warmup, back, rounds; /* -1: not said */
  bool list, parts, warm, ceilings, turns;
  const char *paths, *json, *history, *plot, *compare, *against, *argv0;
  double threshold;
  ls_verify_options run; /* threads and device, as every command takes them */
  ls_path_list list_of_paths;

  bench_machine machine;
  bench_records rounds_taken, against_rounds, baseline_file;
  bench_comparison *comparison;
  int n_comparisons;
  bool unverified, unmeasured;
} arguments;

static ls_status percent(const char *text, double *value) {
  char *end = NULL;
  const double v = strtod(text, &end);
  if (end != text && (*end == '\0' || strcmp(end, "%") == 0) && v > 0 && v <= 1000) {
    *value = v / 100;
    return LS_OK;
  }
  fprintf(stderr, "lockstep: --threshold: expected a percentage above 0, found '%s'\n", text);
  return LS_USAGE;
}

static ls_status parse(arguments *a, int argc, char **argv) {
  int c;
  optind = 1;
  while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
    bool taken;
    LS_TRY(ls_run_option(c, &a->run, &a->list_of_paths, NULL, &taken));
    if (taken) continue;
    switch (c) {
      case OPT_LIST:
        a->list = true;
        break;
      case OPT_PATH:
        a->paths = optarg;
        break;
      case OPT_SAMPLES:
        LS_TRY(ls_cli_number("--samples", optarg, 1, 100000, &a->samples));
        break;
      case OPT_WARMUP:
        LS_TRY(ls_cli_number("--warmup", optarg, 0, 100000, &a->warmup));
        break;
      case OPT_BACK:
        LS_TRY(ls_cli_number("--back-to-back", optarg, 0, 100000, &a->back));
        break;
      case OPT_ROUNDS:
        LS_TRY(ls_cli_number("--rounds", optarg, 1, 10000, &a->rounds));
        break;
      case OPT_PARTS:
        a->parts = true;
        break;
      case OPT_WARM:
        a->warm = true;
        break;
      case OPT_CEILINGS:
        a->ceilings = true;
        break;
      case OPT_JSON:
        a->json = optarg;
        break;
      case OPT_HISTORY:
        a->history = optarg;
        break;
      case OPT_PLOT:
        a->plot = optarg;
        break;
      case OPT_COMPARE:
        a->compare = optarg;
        break;
      case OPT_AGAINST:
        a->against = optarg;
        break;
      case OPT_THRESHOLD:
        LS_TRY(percent(optarg, &a->threshold));
        break;
      case OPT_TURNS:
        a->turns = true;
        break;
      case OPT_HELP:
        fputs(help_bench, stdout);
        return LS_REFUSED;
      default:
        fputs(help_bench, stderr);
        return LS_USAGE;
    }
  }
  if (a->plot != NULL && a->history == NULL) {
    fprintf(stderr, "lockstep bench: --plot draws a history: --history FILE is missing\n");
    return LS_USAGE;
  }
  if (a->compare != NULL && a->against != NULL) {
    fprintf(stderr, "lockstep bench: --compare or --against, not both\n");
    return LS_USAGE;
  }
  return LS_OK;
}

static ls_status list_scenarios(ls_error *err) {
  bench_scenario *scenarios = NULL;
  int n = 0;
  ls_status status = bench_scenarios(&scenarios, &n, "*", err);
  for (int i = 0; i < n && status == LS_OK; i++) printf("%s\n", scenarios[i].name);
  free(scenarios);
  if (status == LS_OK)
    printf(
        "\nand any other size: dflash/rows=R, attn/decode/ROLE/n=N, attn/prefill/ROLE/m=M, each also under tiny/;\n"
        "ROLE: window full-r2 full-r1 reuse-r1 index-r1 masked-r1\n");
  return status;
}

/* ---- one scenario on one path ---- */

static bench_options options_of(arguments *a, const ls_path *path) {
  const bool gpu = strcmp(path->name, "cuda") == 0;
  return (bench_options){.path = path,
                         .options = a->run.options,
                         .samples = (int)(a->samples >= 0 ? a->samples
                                          : gpu           ? 25
                                                          : 7),
                         .warmup = (int)(a->warmup >= 0 ? a->warmup
                                         : gpu          ? 5
                                                        : 1),
                         .back_to_back = (int)(a->back >= 0 ? a->back
                                               : gpu        ? 20
                                                            : 0),
                         .attempts = 3,
                         .parts = a->parts && !a->turns,
                         .warm = a->warm,
                         .company = a->turns || a->against != NULL,
                         .interrupted = &ls_interrupted};
}

typedef struct {
  arguments *a;
  const ls_path *path;
  bench_options options;
  long long rounds, done;
  bench_ceiling ceiling;
  bool has_ceiling;
  bench_peer peer;
  ls_status status;
  ls_error *err;
} rounds;

/* Before the first round, and when one is done. Two builds take turns in pairs, in an order that changes from pair to pair, so that neither
 * always comes second. */
static bool next_round(void *arg, const bench_result *result) {
  rounds *r = arg;
  arguments *a = r->a;
  if (result == NULL) return !a->turns || bench_turn(stdin, stdout, NULL);
  if (!r->has_ceiling && result->outcome == BENCH_MEASURED && !a->turns && a->against == NULL) {
    r->status = bench_measure_ceiling(&r->ceiling, r->path, &r->options.options, &result->work, r->err);
    r->has_ceiling = r->status == LS_OK;
  }
  bench_records one = {NULL, 0, 0};
  bench_records *to = a->turns ? &one : &a->rounds_taken;
  if (r->status == LS_OK)
    r->status = bench_records_add_result(to, result, r->has_ceiling ? &r->ceiling : NULL, &a->machine, ls_provenance_commit(), r->err);
  if (r->status != LS_OK) return false;
  if (a->turns) {
    const bool more = bench_turn(stdin, stdout, &one);
    bench_records_free(&one);
    return more;
  }
  r->done++;
  /* pairs: this build first, then the other first, and so on */
  if (a->against != NULL && r->done % 2 == 1) {
    r->status = bench_peer_round(&r->peer, &a->against_rounds, r->err);
    if (r->status == LS_OK && r->done < r->rounds) r->status = bench_peer_round(&r->peer, &a->against_rounds, r->err);
  }
  return r->status == LS_OK && r->done < r->rounds;
}

static ls_status start_peer(rounds *r, const char *operand, ls_error *err) {
  arguments *a = r->a;
  char samples[32], warmup[32], device[32], threads[32];
  char *command[20] = {(char *)"bench", (char *)"--turns", (char *)"--path", (char *)r->path->name};
  int n = 4;
  snprintf(samples, sizeof samples, "%d", r->options.samples);
  snprintf(warmup, sizeof warmup, "%d", r->options.warmup);
  snprintf(device, sizeof device, "%d", a->run.options.device);
  snprintf(threads, sizeof threads, "%d", ls_threads());
  char *const more[] = {(char *)"--samples",      samples,     (char *)"--warmup",  warmup,  (char *)"--device", device,
                        (char *)"--back-to-back", (char *)"0", (char *)"--threads", threads, (char *)operand};
  for (size_t i = 0; i < sizeof more / sizeof *more; i++) command[n++] = more[i];
  if (a->warm) command[n++] = (char *)"--warm";
  return bench_peer_start(&r->peer, a->against, command, err);
}

static bool is_fixture(const char *operand) {
  const size_t length = strlen(operand);
  return length > 3 && strcmp(operand + length - 3, ".h5") == 0;
}

static ls_status run_one(arguments *a, const ls_path *path, const char *operand, const bench_scenario *scenario, ls_error *err) {
  bench_result result;
  memset(&result, 0, sizeof result);
  rounds r = {.a = a, .path = path, .options = options_of(a, path), .peer = {.pid = -1}, .status = LS_OK, .err = err};
  r.rounds = a->rounds >= 0 ? a->rounds : a->against != NULL ? 10 : a->compare != NULL ? BENCH_LEAST_ROUNDS : 1;
  snprintf(result.name, sizeof result.name, "%s/%.*s", path->name, 2 * BENCH_NAME - 16, operand);
  if (isatty(STDERR_FILENO) != 0 && !a->turns) fprintf(stderr, "%s ...\r", result.name);
  ls_status status = a->against != NULL ? start_peer(&r, operand, err) : LS_OK;
  if (status == LS_OK)
    status = scenario != NULL ? bench_run_scenario(&result, scenario, &r.options, next_round, &r, err)
                              : bench_run_fixture(&result, operand, &r.options, next_round, &r, err);
  if (status == LS_OK) status = r.status;
  bench_peer_end(&r.peer);
  if (status == LS_OK && result.outcome == BENCH_NOT_VERIFIED && a->turns) printf("not verified: %s\n", result.why);
  if (status == LS_OK && r.done == 0 && !a->turns) /* not verified, so no round */
    status = bench_records_add_result(&a->rounds_taken, &result, NULL, &a->machine, ls_provenance_commit(), err);
  a->unverified = a->unverified || result.outcome == BENCH_NOT_VERIFIED;
  a->unmeasured = a->unmeasured || result.outcome == BENCH_NOT_MEASURED;
  bench_result_free(&result);
  return status;
}

static ls_status print_ceiling(arguments *a, const ls_path *path, const bench_scenario *scenario, ls_error *err) {
  bench_work work;
  bench_ceiling ceiling;
  LS_TRY(bench_scenario_work(&work, scenario, path == &ls_path_ref ? 4 : 2, err));
  LS_TRY(bench_measure_ceiling(&ceiling, path, &a->run.options, &work, err));
  printf("%s/%-36s %9.1f MB in %9.1f us (%7.1f GB/s), %9.3g GFLOP at %8.1f GFLOP/s in %9.1f us: floor %9.1f us\n", path->name,
         scenario->name, 1e-6 * work.bytes, 1e6 * ceiling.read_seconds, 1e-9 * work.bytes / ceiling.read_seconds, 1e-9 * work.flops,
         1e-9 * ceiling.flops, 1e6 * work.flops / ceiling.flops, 1e6 * ceiling.floor);
  return LS_OK;
}

/* What the emulator adds to the cores' own figures, which every kernel on it is bound by. */
static ls_status print_emulator(ls_error *err) {
  ls_emu_rates rates;
  LS_TRY(ls_emu_measure(&rates, err));
  printf("emu: %.2f GFLOP/s of mma m16n8k16, %.0f blocks/s of %d threads with a barrier, on %d threads\n", 1e-9 * rates.mma_flops,
         rates.blocks, rates.block_threads, ls_threads());
  return LS_OK;
}

/* ---- all of them ---- */

static ls_status run_scenarios(arguments *a, const ls_path *path, const char *glob, ls_error *err) {
  bench_scenario *scenarios = NULL;
  int n = 0;
  ls_status status = bench_scenarios(&scenarios, &n, glob, err);
  if (status == LS_OK && a->ceilings && strcmp(path->name, "emu") == 0) status = print_emulator(err);
  for (int i = 0; i < n && status == LS_OK && !ls_interrupted; i++)
    status = a->ceilings ? print_ceiling(a, path, &scenarios[i], err) : run_one(a, path, scenarios[i].name, &scenarios[i], err);
  free(scenarios);
  return status;
}

static ls_status run_path(arguments *a, const ls_path *path, int n, char **operands, ls_error *err) {
  bench_machine_look(&a->machine, strcmp(path->name, "cuda") == 0, a->run.options.device);
  if (n == 0) return run_scenarios(a, path, NULL, err);
  for (int i = 0; i < n && !ls_interrupted; i++) {
    if (is_fixture(operands[i]))
      LS_TRY(run_one(a, path, operands[i], NULL, err));
    else
      LS_TRY(run_scenarios(a, path, operands[i], err));
  }
  return LS_OK;
}

/* ---- held against others ---- */

static ls_status compare_all(arguments *a, ls_error *err) {
  const size_t length = a->compare != NULL ? strlen(a->compare) : 0;
  const bool lines = length > 6 && strcmp(a->compare + length - 6, ".jsonl") == 0;
  a->comparison = calloc((size_t)a->rounds_taken.n + 1, sizeof *a->comparison);
  if (a->comparison == NULL) return ls_fail(err, LS_INTERNAL, "out of memory for the comparison");
  if (a->compare != NULL) LS_TRY((lines ? bench_read_history : bench_read_json)(&a->baseline_file, a->compare, err));
  for (int i = 0; i < a->rounds_taken.n; i++) {
    const bench_record *r = &a->rounds_taken.record[i];
    bool seen = r->part;
    for (int k = 0; k < i && !seen; k++) seen = strcmp(a->rounds_taken.record[k].name, r->name) == 0;
    if (seen) continue;
    bench_comparison *c = &a->comparison[a->n_comparisons++];
    bench_records before = {NULL, 0, 0};
    ls_status status = LS_OK;
    if (lines) status = bench_baseline(&before, &a->baseline_file, r->name, a->machine.machine_class, ls_provenance_commit(), 20, err);
    if (status == LS_OK)
      bench_compare(c, r->name,
                    a->against != NULL ? &a->against_rounds
                    : lines            ? &before
                                       : &a->baseline_file,
                    &a->rounds_taken, a->threshold);
    bench_records_free(&before);
    LS_TRY(status);
  }
  bench_print_comparison(a->comparison, a->n_comparisons, a->threshold, stdout);
  return LS_OK;
}

/* ---- the command ---- */

/* What the cores ran at, as far as it is told. */
static void print_clock(const bench_record *last, const bench_machine *machine) {
  if (machine->no_cycles[0] != '\0')
    printf("cycles are not told: %s\n", machine->no_cycles);
  else if (last->ghz > 0)
    printf("%.2f GHz, %.4g cycles in the last round of %s\n", last->ghz, last->cycles, last->name);
}

static ls_status write_all(arguments *a, ls_error *err) {
  bench_records merged = {NULL, 0, 0};
  ls_status status = bench_records_merge(&merged, &a->rounds_taken, err);
  if (status == LS_OK) bench_print_table(&merged, a->parts, stdout);
  if (status == LS_OK && a->machine.gpu[0] == '\0' && merged.n > 0) print_clock(&merged.record[merged.n - 1], &a->machine);
  if (status == LS_OK && a->json != NULL) status = bench_write_json(&merged, &a->machine, a->json, a->argv0, err);
  if (status == LS_OK && a->history != NULL) status = bench_append_history(&a->rounds_taken, a->history, err);
  if (status == LS_OK && (a->compare != NULL || a->against != NULL)) status = compare_all(a, err);
  bench_records_free(&merged);
  return status;
}

static ls_status plot(const arguments *a, ls_error *err) {
  bench_records history = {NULL, 0, 0};
  ls_status status = bench_read_history(&history, a->history, err);
  if (status == LS_OK) status = bench_write_plot(&history, a->plot, err);
  bench_records_free(&history);
  return status;
}

static bool names_reference(const char *paths) {
  for (const char *at = paths; at != NULL && *at != '\0'; at += strcspn(at, ","), at += *at == ',') {
    if (strncmp(at, "ref", 3) == 0 && (at[3] == ',' || at[3] == '\0')) return true;
  }
  return false;
}

static ls_status bench(arguments *a, int n, char **operands, ls_error *err) {
  if (a->list) return list_scenarios(err);
  const bool runs = n > 0 || a->plot == NULL;
  ls_status status = LS_OK;
  const bool reference = names_reference(a->paths); /* it is in every list, first */
  for (int p = reference || a->list_of_paths.n == 1 ? 0 : 1; runs && p < a->list_of_paths.n && status == LS_OK; p++)
    status = run_path(a, a->list_of_paths.path[p], n, operands, err);
  if (runs && !a->ceilings && !a->turns) { /* what was taken is kept, also where something stopped the rest */
    ls_error why = {LS_OK, ""};
    const ls_status written = write_all(a, &why);
    if (status == LS_OK && written != LS_OK) status = ls_fail(err, written, "%s", why.text);
  }
  if (status == LS_OK && a->plot != NULL) status = plot(a, err);
  return status;
}

static ls_status verdict(const arguments *a) {
  if (a->unverified) return LS_DIVERGED;
  const ls_status gate = a->comparison != NULL ? bench_gate_status(a->comparison, a->n_comparisons) : LS_OK;
  if (gate == LS_DIVERGED) return gate;
  if (ls_interrupted) return LS_INTERRUPTED;
  return a->unmeasured ? LS_UNAVAILABLE : gate;
}

ls_status ls_cmd_bench(int argc, char **argv) {
  arguments a;
  memset(&a, 0, sizeof a);
  a.samples = a.warmup = a.back = a.rounds = -1;
  a.threshold = 0.05;
  a.argv0 = "lockstep";
  a.run.options.precision = LS_PRECISION_ACT;
  ls_path_list_init(&a.list_of_paths, &ls_interrupted);
  ls_error err = {LS_OK, ""};
  ls_status status = parse(&a, argc, argv);
  if (status == LS_REFUSED) return LS_OK; /* help was asked for */
  if (status == LS_OK) status = ls_cli_output("--json", a.json, false);
  if (status == LS_OK) status = ls_cli_output("--plot", a.plot, false);
  if (status == LS_OK && !a.list) status = ls_cli_paths(&a.list_of_paths, "--path", a.paths != NULL ? a.paths : "auto");
  if (status == LS_OK) {
    status = bench(&a, argc - optind, argv + optind, &err);
    if (status != LS_OK) fprintf(stderr, "lockstep bench: %s\n", err.text);
    if (status == LS_OK) status = verdict(&a);
  }
  ls_path_list_free(&a.list_of_paths);
  bench_records_free(&a.rounds_taken);
  bench_records_free(&a.against_rounds);
  bench_records_free(&a.baseline_file);
  free(a.comparison);
  return status;
}
