/* lockstep gen: scenarios made from a seed, with the reference's answers as expectations when asked. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_gemm.h"
#include "../core/ls_parallel.h"
#include "../fixtures/ls_fixture.h"
#include "cli.h"
#include "gen_options.h"

static const char help_gen[] =
    "usage: lockstep gen dflash|attn --out FILE [options]\n"
    "\n"
    "Makes a scenario from a seed: the same options give the same bytes. `lockstep gen dflash --help` and\n"
    "`lockstep gen attn --help` list the options.\n";

static const char help_dflash[] =
    "usage: lockstep gen dflash --out FILE [options]\n"
    "\n"
    "  --shape tiny|real|small tiny (default): drawn from the seed; real: the published drafter's; small: drawn, smaller still\n"
    "  --seed S                default 1\n"
    "  --rounds N              speculative rounds after the priming writes, default 8\n"
    "  --positions LOW:HIGH    where the rows start, default 0:64\n"
    "  --straddle F            share of rounds whose rows cross the end of the ring, 0 to 1, default 0.25\n"
    "  --act bf16|f16          default bf16\n"
    "  --expect ref|none       expected values from the reference (default), or none\n"
    "  --threads N\n";

static const char help_attn[] =
    "usage: lockstep gen attn --out FILE [options]\n"
    "\n"
    "  --shape tiny|mid|real|small\n"
    "                          tiny (default): drawn from the seed; mid: a tenth of the published sizes; real: the published\n"
    "                          sizes, weights and inputs as generated tensors; small: drawn, dim at most 40\n"
    "  --seed S                default 1\n"
    "  --roles all|LIST        all (default): a stack of the six roles; LIST: the smallest legal stack that holds these of\n"
    "                          window,full2,reuse2,full1,reuse1,reindex\n"
    "  --prefill M             rows of the first round, at position 0; 0: none. Default: drawn among 1, the ratio, the\n"
    "                          window, twice the window and their neighbours\n"
    "  --decode N              rounds of one token after it, default 6\n"
    "  --context P             start from a generated /state at position P (no prefill)\n"
    "  --jump                  start_pos jumps forward between some rounds\n"
    "  --index-keys WORD       published (default) or own: the keys that an owner scores against at a step that makes none\n"
    "  --values KIND           default: drawn from the seed (real: of normal, shifted, tiny, huge)\n"
    "      normal              around 0, of unit size\n"
    "      shifted             around 4 times their size\n"
    "      heavy               heavy-tailed: 1 channel in 32 of x is 50 times as large\n"
    "      constant            every row of x holds one value\n"
    "      tied                three different tokens and index keys that do not know their position: equal scores\n"
    "      amax                block maxima at 448 * 2^e (kv) and 6 * 2^e (index_k, compress_kv) and one bf16 step to\n"
    "                          either side, in the blocks that RoPE leaves alone\n"
    "      tiny                x of 1e-3 to 1e-12, in some norm weights of 1e-3 too: norm_eps and the grids' floors act\n"
    "      huge                logits near 1e5\n"
    "      nan                 a NaN in one channel of the norm weights of kv and index_k; never drawn\n"
    "  --refusals              steps that must be refused among the others: too many rows or none, beyond max_seq_len,\n"
    "                          several rows at a position above 0, a reader before anything was published, a selection or\n"
    "                          mask for another number of rows\n"
    "  --expect ref|none       expected values from the reference (default), or none\n"
    "  --threads N\n";

/* ---- options ---- */

enum { OPT_OUT = LS_GEN_OPTIONS_END, OPT_SHAPE, OPT_ROLES, OPT_REFUSALS, OPT_ACT, OPT_EXPECT, OPT_THREADS, OPT_HELP };

#define COMMON_OPTIONS                                                                                \
  {"out", required_argument, NULL, OPT_OUT}, {"seed", required_argument, NULL, LS_GEN_SEED},          \
      {"shape", required_argument, NULL, OPT_SHAPE}, {"expect", required_argument, NULL, OPT_EXPECT}, \
      {"threads", required_argument, NULL, OPT_THREADS}, {"help", no_argument, NULL, OPT_HELP}, {     \
    NULL, 0, NULL, 0                                                                                  \
  }

static const struct option options_dflash[] = {{"act", required_argument, NULL, OPT_ACT}, LS_GEN_DFLASH_OPTIONS, COMMON_OPTIONS};

static const struct option options_attn[] = {{"roles", required_argument, NULL, OPT_ROLES},
                                             {"values", required_argument, NULL, LS_GEN_VALUES},
                                             {"refusals", no_argument, NULL, OPT_REFUSALS},
                                             LS_GEN_ATTN_OPTIONS,
                                             COMMON_OPTIONS};

/* What both layers take. */
typedef struct {
  const char *out;
  uint64_t seed;
  int shape; /* index into shapes */
  bool no_expect;
  const char *const *shapes; /* NULL-terminated */
} common_options;

static ls_status common_option(int option, common_options *common) {
  static const char *const expectations[] = {"ref", "none", NULL};
  long long value = 0;
  int word = 0;
  switch (option) {
    case OPT_OUT:
      common->out = optarg;
      return LS_OK;
    case LS_GEN_SEED:
      return ls_gen_seed_option(&common->seed);
    case OPT_SHAPE:
      return ls_cli_word("--shape", optarg, common->shapes, &common->shape);
    case OPT_EXPECT:
      LS_TRY(ls_cli_word("--expect", optarg, expectations, &word));
      common->no_expect = word == 1;
      return LS_OK;
    case OPT_THREADS:
      LS_TRY(ls_cli_number("--threads", optarg, 1, 1024, &value));
      ls_threads_set((int)value);
      return LS_OK;
    default:
      return LS_USAGE;
  }
}

static ls_status dflash_option(int option, ls_make_dflash *make) {
  static const char *const types[] = {"bf16", "f16", NULL};
  int word = 0;
  if (option != OPT_ACT) return ls_gen_dflash_option(option, make);
  LS_TRY(ls_cli_word("--act", optarg, types, &word));
  make->act = word == 1 ? LS_F16 : LS_BF16;
  return LS_OK;
}

/* "all", or role names with commas between. */
static ls_status roles_option(const char *text, unsigned *roles) {
  *roles = 0;
  if (strcmp(text, "all") == 0) return LS_OK;
  for (const char *at = text;;) {
    const size_t length = strcspn(at, ",");
    char name[32] = "";
    int role = 0;
    memcpy(name, at, length < sizeof name ? length : sizeof name - 1);
    LS_TRY(ls_cli_word("--roles", name, ls_make_role_names, &role));
    *roles |= 1u << role;
    if (at[length] == '\0') return LS_OK;
    at += length + 1;
  }
}

static ls_status attn_option(int option, ls_make_attn *make) {
  switch (option) {
    case OPT_ROLES:
      return roles_option(optarg, &make->roles);
    case LS_GEN_VALUES:
      return ls_cli_word("--values", optarg, ls_make_values_names, &make->values);
    case OPT_REFUSALS:
      make->refusals = true;
      return LS_OK;
    default:
      return ls_gen_attn_option(option, make);
  }
}

ls_status ls_cmd_gen(int argc, char **argv) {
  static const char *const dflash_shapes[] = {"tiny", "real", "small", NULL};
  const bool attn = argc >= 2 && strcmp(argv[1], "attn") == 0;
  if (argc < 2 || (!attn && strcmp(argv[1], "dflash") != 0)) {
    const bool asked = argc == 2 && strcmp(argv[1], "--help") == 0;
    if (argc >= 2 && !asked) fprintf(stderr, "lockstep gen: expected the layer 'dflash' or 'attn', found '%s'\n", argv[1]);
    if (argc < 2 || asked) fputs(help_gen, asked ? stdout : stderr);
    return asked ? LS_OK : LS_USAGE;
  }
  ls_make_dflash dflash = {.rounds = 8, .position_high = 64, .straddle = 0.25, .act = LS_BF16};
  ls_make_attn make = {.prefill = -1, .decode = 6, .values = -1};
  common_options common = {.seed = 1, .shapes = attn ? ls_make_shape_names : dflash_shapes};
  int option = 0;
  argc--;
  argv++;
  optind = 1;
  opterr = 0;
  while ((option = getopt_long(argc, argv, ":", attn ? options_attn : options_dflash, NULL)) != -1) {
    if (option == OPT_HELP) {
      fputs(attn ? help_attn : help_dflash, stdout);
      return LS_OK;
    }
    if (option == '?' || option == ':') {
      fprintf(stderr, option == '?' ? "lockstep gen %s: unknown option '%s'\n" : "lockstep gen %s: '%s' needs a value\n", argv[0],
              argv[optind - 1]);
      return LS_USAGE;
    }
    const bool shared = option == OPT_OUT || option == LS_GEN_SEED || option == OPT_SHAPE || option == OPT_EXPECT || option == OPT_THREADS;
    LS_TRY(shared ? common_option(option, &common) : attn ? attn_option(option, &make) : dflash_option(option, &dflash));
  }
  if (common.out == NULL || optind < argc) {
    fprintf(stderr, common.out == NULL ? "lockstep gen: --out FILE is needed\n" : "lockstep gen: unexpected argument '%s'\n",
            argv[optind < argc ? optind : 0]);
    return LS_USAGE;
  }
  char provenance[256];
  snprintf(provenance, sizeof provenance, "lockstep %s gen %s --seed %llu; expected values: %s%s", LS_VERSION, argv[0],
           (unsigned long long)common.seed, common.no_expect ? "none" : "reference, ", common.no_expect ? "" : ls_gemm_library());
  ls_gen_oracle o = {.none = common.no_expect};
  ls_error err = {LS_OK, ""};
  ls_status status;
  if (attn) {
    make.shape = (ls_make_shape)common.shape;
    make.seed = common.seed;
    make.bare = common.no_expect;
    status = ls_make_attn_fixture(common.out, &make, ls_gen_expect, &o, provenance, &err);
  } else {
    dflash.real_shape = common.shape == 1;
    dflash.small_shape = common.shape == 2;
    dflash.seed = common.seed;
    status = ls_make_dflash_fixture(common.out, &dflash, ls_gen_expect, &o, provenance, &err);
  }
  if (status != LS_OK) fprintf(stderr, "lockstep gen: %s\n", err.text);
  ls_gen_oracle_close(&o);
  return status;
}
