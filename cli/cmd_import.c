/* lockstep import: a fixture whose config and weights are those of a published checkpoint. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_gemm.h"
#include "../core/ls_parallel.h"
#include "../fixtures/ls_import.h"
#include "cli.h"
#include "gen_options.h"

static const char help[] =
    "usage: lockstep import --layer LAYER --config FILE --weights PATH... --out FILE [options]\n"
    "\n"
    "Makes a fixture of a checkpoint's config and weights. docs/import.md says which names, types and keys.\n"
    "\n"
    "  --layer LAYER           attn_v41 (DeepSeek-V4.1) or dflash_context_kv (DFlash2)\n"
    "  --config FILE           its config.json, of the model hub or (attn_v41) of the inference code\n"
    "  --weights PATH...       a folder, a model.safetensors.index.json, or files of safetensors: only what is needed is read\n"
    "  --out FILE\n"
    "  --layers LIST           such as 18-24 or 0,2,20-22; default: all. attn_v41: layers that these read from come along\n"
    "  --steps FILE            take the steps, their inputs and the start from this fixture of the same layer; default: drawn\n"
    "  --expect ref|none|steps expected values: from the reference (default), none, or those of --steps\n"
    "  --allow-nonfinite       NaN and infinity in weights and steps are fine\n"
    "  --threads N\n"
    "\n"
    "Steps that are drawn, as by `lockstep gen`:\n"
    "  --seed S                default 1\n"
    "  attn_v41:\n"
    "  --prefill M             rows of the first round, at position 0; 0: none. Default: drawn around the ratio and the window\n"
    "  --decode N              rounds of one token after it, default 6\n"
    "  --context P             start from a generated /state at position P (no prefill)\n"
    "  --jump                  start_pos jumps forward between some rounds\n"
    "  --index-keys WORD       published (default) or own\n"
    "  --values KIND           of x: normal (default), shifted, heavy, constant, tiny\n"
    "  dflash_context_kv:\n"
    "  --rounds N              speculative rounds after the priming writes, default 8\n"
    "  --positions LOW:HIGH    where the rows start, default 0:64\n"
    "  --straddle F            share of rounds whose rows cross the end of the ring, 0 to 1, default 0.25\n"
    "  --window N              default: the config's sliding_window\n"
    "  --ring-capacity N       default: the window + 128\n"
    "  --max-rows N            rows of a capture at most, default 16\n";

enum {
  OPT_LAYER = LS_GEN_OPTIONS_END,
  OPT_CONFIG,
  OPT_WEIGHTS,
  OPT_OUT,
  OPT_LAYERS,
  OPT_STEPS,
  OPT_EXPECT,
  OPT_NONFINITE,
  OPT_THREADS,
  OPT_WINDOW,
  OPT_RING,
  OPT_ROWS,
  OPT_HELP
};

static const struct option options[] = {{"layer", required_argument, NULL, OPT_LAYER},
                                        {"config", required_argument, NULL, OPT_CONFIG},
                                        {"weights", required_argument, NULL, OPT_WEIGHTS},
                                        {"out", required_argument, NULL, OPT_OUT},
                                        {"layers", required_argument, NULL, OPT_LAYERS},
                                        {"steps", required_argument, NULL, OPT_STEPS},
                                        {"expect", required_argument, NULL, OPT_EXPECT},
                                        {"allow-nonfinite", no_argument, NULL, OPT_NONFINITE},
                                        {"threads", required_argument, NULL, OPT_THREADS},
                                        {"window", required_argument, NULL, OPT_WINDOW},
                                        {"ring-capacity", required_argument, NULL, OPT_RING},
                                        {"max-rows", required_argument, NULL, OPT_ROWS},
                                        {"seed", required_argument, NULL, LS_GEN_SEED},
                                        {"values", required_argument, NULL, LS_GEN_VALUES},
                                        LS_GEN_ATTN_OPTIONS,
                                        LS_GEN_DFLASH_OPTIONS,
                                        {"help", no_argument, NULL, OPT_HELP},
                                        {NULL, 0, NULL, 0}};

typedef enum { EXPECT_REF, EXPECT_NONE, EXPECT_STEPS } expectation;

typedef struct {
  ls_import import;
  const char *out;
  uint64_t seed;
  int expect;            /* an expectation */
  const char **weights;  /* room for all words of the command line */
  const char *attn_only; /* the last option of one layer, and of drawn steps */
  const char *dflash_only, *drawn_only;
} command;

static ls_status layer_option(const ls_layer **layer) {
  static const char *const words[] = {"attn_v41", "dflash_context_kv", "attn", "dflash", NULL};
  int word = 0;
  LS_TRY(ls_cli_word("--layer", optarg, words, &word));
  *layer = word % 2 == 0 ? &ls_layer_attn_v41 : &ls_layer_dflash_context_kv;
  return LS_OK;
}

static ls_status values_option(int *values) {
  static const char *const words[] = {"normal", "shifted", "heavy", "constant", "tiny", NULL};
  static const ls_make_values kinds[] = {LS_VALUES_NORMAL, LS_VALUES_SHIFTED, LS_VALUES_HEAVY, LS_VALUES_CONSTANT, LS_VALUES_TINY};
  int word = 0;
  LS_TRY(ls_cli_word("--values", optarg, words, &word));
  *values = kinds[word];
  return LS_OK;
}

/* What says which checkpoint and which file. */
static ls_status take_place(command *c, int option) {
  static const char *const expectations[] = {"ref", "none", "steps", NULL};
  ls_import *import = &c->import;
  long long threads = 0;
  switch (option) {
    case OPT_LAYER:
      return layer_option(&import->layer);
    case OPT_CONFIG:
      import->config = optarg;
      return LS_OK;
    case OPT_WEIGHTS:
      c->weights[import->n_weights++] = optarg;
      return LS_OK;
    case OPT_OUT:
      c->out = optarg;
      return LS_OK;
    case OPT_LAYERS:
      import->layers = optarg;
      return LS_OK;
    case OPT_STEPS:
      import->steps = optarg;
      return LS_OK;
    case OPT_EXPECT:
      return ls_cli_word("--expect", optarg, expectations, &c->expect);
    case OPT_NONFINITE:
      import->allow_nonfinite = true;
      return LS_OK;
    default:
      LS_TRY(ls_cli_number("--threads", optarg, 1, 1024, &threads));
      ls_threads_set((int)threads);
      return LS_OK;
  }
}

/* What is drawn, and how. name: of the option. */
static ls_status take_drawn(command *c, int option, const char *name) {
  ls_import *import = &c->import;
  c->drawn_only = name;
  if (option == LS_GEN_SEED) return ls_gen_seed_option(&c->seed);
  if (option == LS_GEN_ROUNDS || option == LS_GEN_POSITIONS || option == LS_GEN_STRADDLE || option == OPT_WINDOW || option == OPT_RING ||
      option == OPT_ROWS) {
    c->dflash_only = name;
    if (option == OPT_WINDOW) return ls_cli_optarg("--window", 1, INT32_MAX, &import->window);
    if (option == OPT_RING) return ls_cli_optarg("--ring-capacity", 1, INT32_MAX, &import->ring_capacity);
    if (option == OPT_ROWS) return ls_cli_optarg("--max-rows", 1, INT32_MAX, &import->max_rows);
    return ls_gen_dflash_option(option, &import->dflash);
  }
  c->attn_only = name;
  return option == LS_GEN_VALUES ? values_option(&import->attn.values) : ls_gen_attn_option(option, &import->attn);
}

static ls_status wrong(const char *format, const char *what) {
  fprintf(stderr, "lockstep import: ");
  fprintf(stderr, format, what);
  fputc('\n', stderr);
  return LS_USAGE;
}

static ls_status check(const command *c) {
  const ls_import *import = &c->import;
  const bool attn = import->layer == &ls_layer_attn_v41;
  const char *needed = import->layer == NULL    ? "--layer LAYER"
                       : import->config == NULL ? "--config FILE"
                       : import->n_weights == 0 ? "--weights PATH"
                       : c->out == NULL         ? "--out FILE"
                                                : NULL;
  if (needed != NULL) return wrong("%s is needed", needed);
  if (attn && c->dflash_only != NULL) return wrong("--%s is of dflash_context_kv", c->dflash_only);
  if (!attn && c->attn_only != NULL) return wrong("--%s is of attn_v41", c->attn_only);
  if (import->steps != NULL && c->drawn_only != NULL) return wrong("--%s is for drawn steps: --steps brings its own", c->drawn_only);
  if (import->steps == NULL && c->expect == EXPECT_STEPS) return wrong("--expect steps: %s is needed", "--steps FILE");
  return LS_OK;
}

/* *done: help was asked for and given. */
static ls_status parse(command *c, int argc, char **argv, bool *done) {
  int option = 0, at = -1;
  optind = 1;
  opterr = 0;
  while ((option = getopt_long(argc, argv, ":", options, &at)) != -1) {
    if (option == OPT_HELP) {
      fputs(help, stdout);
      *done = true;
      return LS_OK;
    }
    if (option == '?') return wrong("unknown option '%s'", argv[optind - 1]);
    if (option == ':') return wrong("'%s' needs a value", argv[optind - 1]);
    const bool place = option >= OPT_LAYER && option <= OPT_THREADS;
    LS_TRY(place ? take_place(c, option) : take_drawn(c, option, options[at].name));
  }
  if (optind < argc && c->import.n_weights == 0) return wrong("unexpected argument '%s'", argv[optind]);
  while (optind < argc) c->weights[c->import.n_weights++] = argv[optind++]; /* the shell's --weights model-*.safetensors */
  return check(c);
}

static ls_status alive(void *arg, ls_error *err) {
  (void)arg;
  return ls_interrupted ? ls_fail(err, LS_INTERRUPTED, "interrupted: no file was written") : LS_OK;
}

static void tell(const char *out, const ls_import_report *r) {
  printf("%s: layer%s %s as 0", out, r->layers > 1 ? "s" : "", r->taken);
  if (r->layers > 1) printf("-%lld", (long long)r->layers - 1);
  if (r->added[0] != '\0') printf(" (%s because others read from there)", r->added);
  printf("; %d weights", r->tensors);
  if (r->dequantised > 0) printf(", %d of them dequantised", r->dequantised);
  if (r->promoted > 0) printf(", %d made float32", r->promoted);
  printf(", from %d %s\n", r->files, r->files > 1 ? "files" : "file");
}

static ls_status run(command *c) {
  ls_gen_oracle oracle = {.none = c->expect == EXPECT_NONE};
  ls_error err = {LS_OK, ""};
  ls_import_report report;
  char provenance[256];
  c->import.bare = c->expect == EXPECT_NONE;
  c->import.expect_steps = c->expect == EXPECT_STEPS;
  c->import.attn.seed = c->import.dflash.seed = c->seed;
  c->import.alive = alive;
  snprintf(provenance, sizeof provenance, "lockstep %s import; expected values: %s%s", LS_VERSION,
           c->expect == EXPECT_NONE ? "none" : "reference, ", c->expect == EXPECT_NONE ? "" : ls_gemm_library());
  const ls_status status = ls_import_fixture(c->out, &c->import, ls_gen_expect, &oracle, provenance, &report, &err);
  if (status == LS_OK) {
    tell(c->out, &report);
  } else {
    fprintf(stderr, "lockstep import: %s\n", err.text);
  }
  ls_gen_oracle_close(&oracle);
  return status;
}

ls_status ls_cmd_import(int argc, char **argv) {
  bool done = false;
  command c = {.seed = 1};
  c.weights = calloc((size_t)argc, sizeof *c.weights);
  if (c.weights == NULL) {
    fprintf(stderr, "lockstep import: out of memory\n");
    return LS_INTERNAL;
  }
  c.import.weights = c.weights;
  c.import.attn = (ls_make_attn){.prefill = -1, .decode = 6, .values = LS_VALUES_NORMAL};
  c.import.dflash = (ls_make_dflash){.rounds = 8, .position_high = 64, .straddle = 0.25};
  ls_status status = parse(&c, argc, argv, &done);
  if (status == LS_OK && !done) status = run(&c);
  free(c.weights);
  return status;
}
