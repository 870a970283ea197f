/* lockstep gen: scenarios made from a seed, with the reference's answers as expectations when asked. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_gemm.h"
#include "../core/ls_parallel.h"
#include "../fixtures/ls_fixture.h"
#include "../layers/ls_run.h"
#include "cli.h"

static const char help[] =
    "usage: lockstep gen dflash --out FILE [options]\n"
    "\n"
    "  --shape tiny|real       tiny (default): drawn from the seed; real: the published drafter's\n"
    "  --seed S                default 1\n"
    "  --rounds N              speculative rounds after the priming writes, default 8\n"
    "  --positions LOW:HIGH    where the rows start, default 0:64\n"
    "  --straddle F            share of rounds whose rows cross the end of the ring, 0 to 1, default 0.25\n"
    "  --act bf16|f16          default bf16\n"
    "  --expect ref|none       expected values from the reference (default), or none\n"
    "  --threads N\n";

/* The reference as a source of expected values. Opened at the first step. */
typedef struct {
  ls_run run;
  bool open;
  bool none; /* no expectations are asked for: only an interrupt is looked for */
} oracle;

static ls_status expect(void *arg, const ls_config *config, const ls_trace *weights, ls_step *step, ls_error *err) {
  oracle *o = arg;
  if (ls_interrupted) return ls_fail(err, LS_INTERRUPTED, "interrupted before step %lld: no file was written", (long long)step->number);
  if (o->none) return LS_OK;
  if (!o->open) {
    ls_path_options options = {.precision = LS_PRECISION_ACT};
    LS_TRY(ls_run_open(&o->run, &ls_path_ref, config, weights, &options, NULL, err));
    o->open = true;
  }
  ls_run_result result;
  LS_TRY(ls_run_step(&o->run, step, NULL, NULL, true, &result, err));
  step->expect_refused = result.status == LS_REFUSED;
  step->cursor = (int64_t)ls_tensor_get(ls_trace_tensor(result.after, "cursor"), 0);
  step->expect = result.out;
  result.out = NULL;
  ls_run_result_free(&result);
  return LS_OK;
}

enum { OPT_OUT = 256, OPT_SHAPE, OPT_SEED, OPT_ROUNDS, OPT_POSITIONS, OPT_STRADDLE, OPT_ACT, OPT_EXPECT, OPT_THREADS, OPT_HELP };

static const struct option long_options[] = {{"out", required_argument, NULL, OPT_OUT},
                                             {"shape", required_argument, NULL, OPT_SHAPE},
                                             {"seed", required_argument, NULL, OPT_SEED},
                                             {"rounds", required_argument, NULL, OPT_ROUNDS},
                                             {"positions", required_argument, NULL, OPT_POSITIONS},
                                             {"straddle", required_argument, NULL, OPT_STRADDLE},
                                             {"act", required_argument, NULL, OPT_ACT},
                                             {"expect", required_argument, NULL, OPT_EXPECT},
                                             {"threads", required_argument, NULL, OPT_THREADS},
                                             {"help", no_argument, NULL, OPT_HELP},
                                             {NULL, 0, NULL, 0}};

/* One of two words: *second tells which. */
static ls_status one_of(const char *option, const char *text, const char *first, const char *other, bool *second) {
  *second = strcmp(text, other) == 0;
  if (*second || strcmp(text, first) == 0) return LS_OK;
  fprintf(stderr, "lockstep: %s: expected %s or %s, found '%s'\n", option, first, other, text);
  return LS_USAGE;
}

ls_status ls_cmd_gen(int argc, char **argv) {
  if (argc < 2 || strcmp(argv[1], "dflash") != 0) {
    const bool asked = argc == 2 && strcmp(argv[1], "--help") == 0;
    if (argc >= 2 && !asked) fprintf(stderr, "lockstep gen: expected the layer 'dflash', found '%s'\n", argv[1]);
    fputs(help, asked ? stdout : stderr);
    return asked ? LS_OK : LS_USAGE;
  }
  ls_make_dflash make = {.seed = 1, .rounds = 8, .position_high = 64, .straddle = 0.25, .act = LS_BF16};
  const char *out = NULL;
  bool no_expect = false, f16 = false;
  long long value = 0;
  int c;
  argc--;
  argv++;
  optind = 1;
  while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
    switch (c) {
      case OPT_OUT:
        out = optarg;
        break;
      case OPT_SHAPE:
        LS_TRY(one_of("--shape", optarg, "tiny", "real", &make.real_shape));
        break;
      case OPT_SEED:
        LS_TRY(ls_cli_number("--seed", optarg, 0, INT64_MAX, &value));
        make.seed = (uint64_t)value;
        break;
      case OPT_ROUNDS:
        LS_TRY(ls_cli_number("--rounds", optarg, 1, 100000, &value));
        make.rounds = value;
        break;
      case OPT_POSITIONS: {
        long long low = 0, high = 0;
        char end = '\0';
        if (sscanf(optarg, "%lld:%lld%c", &low, &high, &end) != 2 || low < 0 || high < low || high > INT32_MAX) {
          fprintf(stderr, "lockstep: --positions: expected LOW:HIGH within 0:2147483647, found '%s'\n", optarg);
          return LS_USAGE;
        }
        make.position_low = low;
        make.position_high = high;
        break;
      }
      case OPT_STRADDLE: {
        char *end = NULL;
        make.straddle = strtod(optarg, &end);
        if (end == optarg || *end != '\0' || !(make.straddle >= 0 && make.straddle <= 1)) {
          fprintf(stderr, "lockstep: --straddle: expected a share from 0 to 1, found '%s'\n", optarg);
          return LS_USAGE;
        }
        break;
      }
      case OPT_ACT:
        LS_TRY(one_of("--act", optarg, "bf16", "f16", &f16));
        break;
      case OPT_EXPECT:
        LS_TRY(one_of("--expect", optarg, "ref", "none", &no_expect));
        break;
      case OPT_THREADS:
        LS_TRY(ls_cli_number("--threads", optarg, 1, 1024, &value));
        ls_threads_set((int)value);
        break;
      case OPT_HELP:
        fputs(help, stdout);
        return LS_OK;
      default:
        fputs(help, stderr);
        return LS_USAGE;
    }
  }
  if (out == NULL || optind < argc) {
    fprintf(stderr, out == NULL ? "lockstep gen: --out FILE is needed\n" : "lockstep gen: unexpected argument '%s'\n",
            argv[optind < argc ? optind : 0]);
    return LS_USAGE;
  }
  make.act = f16 ? LS_F16 : LS_BF16;
  char provenance[256];
  snprintf(provenance, sizeof provenance, "lockstep %s gen dflash --seed %llu; expected values: %s%s", LS_VERSION,
           (unsigned long long)make.seed, no_expect ? "none" : "reference, ", no_expect ? "" : ls_gemm_library());
  oracle o;
  memset(&o, 0, sizeof o);
  o.none = no_expect;
  ls_error err = {LS_OK, ""};
  ls_status status = ls_make_dflash_fixture(out, &make, expect, &o, provenance, &err);
  if (status != LS_OK) fprintf(stderr, "lockstep gen: %s\n", err.text);
  if (o.open) ls_run_close(&o.run);
  return status;
}
