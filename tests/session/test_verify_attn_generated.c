/* The verify session on generated scenarios of attn_v41: no false alarm, whatever the values, on the reference's own expectations, beside
 * an honest twin, and beside one that rounds some values of a stage to the other neighbour. LOCKSTEP_SEEDS=N runs more of them. */
#include <criterion/parameterized.h>
#include <stdlib.h>
#include <unistd.h>

#include "session_run.h"

static int64_t seeds(void) {
  const char *text = getenv("LOCKSTEP_SEEDS");
  return text != NULL ? atoll(text) : 1;
}

/* In turn: a plain one; with refusals and jumps; from a state. */
static ls_make_attn scenario(int values, int64_t seed) {
  ls_make_attn make = {.seed = (uint64_t)seed, .prefill = -1, .decode = 6, .values = values};
  make.refusals = make.jump = (seed + values) % 3 != 0;
  if ((seed + values) % 3 == 2) make.context = 8 + seed;
  return make;
}

/* Of one value in sixteen, told by its bits alone, so that rows do not depend on their number. */
static bool one_step_off(const ls_step *step, const ls_trace *given, ls_trace *recorded, const ls_tensor *t) {
  (void)step, (void)given, (void)recorded;
  for (int64_t i = 0; i < ls_tensor_count(t); i++) {
    uint16_t *bits = (uint16_t *)t->data + i;
    const unsigned mixed = *bits * 40503u >> 8;
    const unsigned magnitude = *bits & 0x7FFFu;
    const bool inner = magnitude > 0x80u && magnitude < 0x7F7Fu; /* both neighbours are finite, and neither is 0 */
    if (inner && mixed % 16 == 5) *bits = (uint16_t)(mixed % 32 < 16 ? *bits - 1 : *bits + 1); /* as many each way: no bias */
  }
  return true;
}

static void expect_pass(const char *file, const session_how *how, const char *what, const ls_make_attn *make) {
  char *text = NULL;
  const ls_status status = session_verify(file, how, &text);
  cr_expect_eq(status, LS_OK, "%s: --values %s --seed %d: status %d:\n%s", what, ls_make_values_names[make->values], (int)make->seed,
               (int)status, text);
  free(text);
}

ParameterizedTestParameters(verify_attn_generated, nothing_is_a_false_alarm) {
  static int kinds[LS_VALUE_KINDS];
  for (int i = 0; i < LS_VALUE_KINDS; i++) kinds[i] = i;
  return cr_make_param_array(int, kinds, LS_VALUE_KINDS);
}

ParameterizedTest(const int *values, verify_attn_generated, nothing_is_a_false_alarm, .timeout = 3600) {
  static const char *const stages[] = {"qr", "sparse_o", "kv_norm", "latent_pool", "index_w", "o_group", "q_proj", "index_score"};
  char file[SCRATCH];
  session_scratch(file, "generated");
  for (int64_t seed = 1; seed <= seeds(); seed++) {
    const ls_make_attn make = scenario(*values, seed);
    session_generate(file, &make, NULL);
    /* tiny and shifted values may leave whole stages zero, which proves little and is said so */
    session_how how = {.allow_mistrusted = true, .allow_nonfinite = *values == LS_VALUES_NAN};
    const char *stage = stages[(seed + *values) % 8];
    how.path = session_cheat(&(session_lies){.stage = stage, .choose = one_step_off});
    expect_pass(file, &how, stage, &make);
    how.path = session_cheat(&(session_lies){.fused = NULL});
    how.precision = LS_PRECISION_F64;
    expect_pass(file, &how, "double", &make);
  }
  unlink(file);
}
