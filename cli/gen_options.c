#include "gen_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cli.h"

ls_status ls_cli_word(const char *option, const char *text, const char *const *words, int *index) {
  for (int i = 0; words[i] != NULL; i++) {
    if (strcmp(text, words[i]) != 0) continue;
    *index = i;
    return LS_OK;
  }
  fprintf(stderr, "lockstep: %s: expected ", option);
  for (int i = 0; words[i] != NULL; i++) fprintf(stderr, "%s%s", i == 0 ? "" : words[i + 1] == NULL ? " or " : ", ", words[i]);
  fprintf(stderr, ", found '%s'\n", text);
  return LS_USAGE;
}

ls_status ls_gen_dflash_option(int option, ls_make_dflash *make) {
  char *end = NULL;
  switch (option) {
    case LS_GEN_ROUNDS:
      return ls_cli_optarg("--rounds", 1, 100000, &make->rounds);
    case LS_GEN_POSITIONS: {
      long long low = 0, high = 0;
      char rest = '\0';
      if (sscanf(optarg, "%lld:%lld%c", &low, &high, &rest) != 2 || low < 0 || high < low || high > INT32_MAX) {
        fprintf(stderr, "lockstep: --positions: expected LOW:HIGH within 0:2147483647, found '%s'\n", optarg);
        return LS_USAGE;
      }
      make->position_low = low;
      make->position_high = high;
      return LS_OK;
    }
    case LS_GEN_STRADDLE:
      make->straddle = strtod(optarg, &end);
      if (end != optarg && *end == '\0' && make->straddle >= 0 && make->straddle <= 1) return LS_OK;
      fprintf(stderr, "lockstep: --straddle: expected a share from 0 to 1, found '%s'\n", optarg);
      return LS_USAGE;
    default:
      return LS_USAGE;
  }
}

ls_status ls_gen_attn_option(int option, ls_make_attn *make) {
  static const char *const keys[] = {"published", "own", NULL};
  int word = 0;
  switch (option) {
    case LS_GEN_PREFILL:
      return ls_cli_optarg("--prefill", 0, INT32_MAX / 2, &make->prefill);
    case LS_GEN_DECODE:
      return ls_cli_optarg("--decode", 0, 100000, &make->decode);
    case LS_GEN_CONTEXT:
      return ls_cli_optarg("--context", 0, INT32_MAX / 2, &make->context);
    case LS_GEN_JUMP:
      make->jump = true;
      return LS_OK;
    case LS_GEN_INDEX_KEYS:
      LS_TRY(ls_cli_word("--index-keys", optarg, keys, &word));
      make->index_keys = word == 1 ? LS_INDEX_KEYS_OWN : LS_INDEX_KEYS_PUBLISHED;
      return LS_OK;
    default:
      return LS_USAGE;
  }
}

ls_status ls_gen_seed_option(uint64_t *seed) {
  long long value = 0;
  LS_TRY(ls_cli_number("--seed", optarg, 0, INT64_MAX, &value));
  *seed = (uint64_t)value;
  return LS_OK;
}

/* ---- expected values ---- */

ls_status ls_gen_expect(void *arg, const ls_config *config, const ls_trace *weights, const ls_trace *start, ls_step *step, ls_error *err) {
  ls_gen_oracle *o = arg;
  if (ls_interrupted) return ls_fail(err, LS_INTERRUPTED, "interrupted before step %lld: no file was written", (long long)step->number);
  if (o->none) return LS_OK;
  if (!o->open) {
    ls_path_options options = {.precision = LS_PRECISION_ACT};
    LS_TRY(ls_run_open(&o->run, &ls_path_ref, config, weights, &options, start, err));
    o->open = true;
  }
  ls_run_result result;
  LS_TRY(ls_run_step(&o->run, step, NULL, NULL, true, &result, err));
  step->expect_refused = result.status == LS_REFUSED;
  if (config->layer->has_cursor) step->cursor = (int64_t)ls_tensor_get(ls_trace_tensor(result.after, "cursor"), 0);
  step->expect = result.out;
  result.out = NULL;
  ls_run_result_free(&result);
  return LS_OK;
}

void ls_gen_oracle_close(ls_gen_oracle *oracle) {
  if (oracle->open) ls_run_close(&oracle->run);
  oracle->open = false;
}
