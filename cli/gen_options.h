/* gen_options: what gen and import share: the options of drawn steps, and the reference as a source of expected values. */
#ifndef LS_GEN_OPTIONS_H
#define LS_GEN_OPTIONS_H

#include <getopt.h>

#include "../fixtures/ls_fixture.h"
#include "../layers/ls_run.h"

enum {
  LS_GEN_SEED = 2048,
  LS_GEN_ROUNDS,
  LS_GEN_POSITIONS,
  LS_GEN_STRADDLE,
  LS_GEN_PREFILL,
  LS_GEN_DECODE,
  LS_GEN_CONTEXT,
  LS_GEN_JUMP,
  LS_GEN_INDEX_KEYS,
  LS_GEN_VALUES,
  LS_GEN_OPTIONS_END
};

/* For a command's table of options, by layer. --seed and --values are the command's. */
#define LS_GEN_DFLASH_OPTIONS                                                                                     \
  {"rounds", required_argument, NULL, LS_GEN_ROUNDS}, {"positions", required_argument, NULL, LS_GEN_POSITIONS}, { \
    "straddle", required_argument, NULL, LS_GEN_STRADDLE                                                          \
  }
#define LS_GEN_ATTN_OPTIONS                                                                                 \
  {"prefill", required_argument, NULL, LS_GEN_PREFILL}, {"decode", required_argument, NULL, LS_GEN_DECODE}, \
      {"context", required_argument, NULL, LS_GEN_CONTEXT}, {"jump", no_argument, NULL, LS_GEN_JUMP}, {     \
    "index-keys", required_argument, NULL, LS_GEN_INDEX_KEYS                                                \
  }

/* One of them, its text in optarg. LS_USAGE with a line on stderr. */
ls_status ls_gen_dflash_option(int option, ls_make_dflash *make);
ls_status ls_gen_attn_option(int option, ls_make_attn *make);
ls_status ls_gen_seed_option(uint64_t *seed);

/* Which of the NULL-terminated words the option's text is: *index. LS_USAGE with a line on stderr. */
ls_status ls_cli_word(const char *option, const char *text, const char *const *words, int *index);

/* The reference as a source of expected values. Opened at the first step. */
typedef struct {
  ls_run run;
  bool open;
  bool none; /* no expectations are asked for: only an interrupt is looked for */
} ls_gen_oracle;

/* An ls_make_expect, arg an ls_gen_oracle. */
ls_status ls_gen_expect(void *arg, const ls_config *config, const ls_trace *weights, const ls_trace *start, ls_step *step, ls_error *err);
void ls_gen_oracle_close(ls_gen_oracle *oracle);

#endif
