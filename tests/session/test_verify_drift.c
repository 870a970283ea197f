/* The property drift: what every comparison of a stage lets pass, isolated within a step and cascaded within bounds for the worst case,
 * and is wrong all the same: cascaded results that stray further from the exact values than roundings explain. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "core/ls_numeric.h"
#include "session_run.h"

static double steps_off; /* of each element of the last stage, in turn up and down, cascaded only */

static void strays(const ls_step *step, const ls_trace *given, ls_trace *out) {
  const ls_record *rec = ls_trace_find(out, "out");
  if (session_is_isolated(given) || rec == NULL || step->number < 6) return;
  for (int64_t i = 0; i < ls_tensor_count(&rec->t); i++) {
    const double v = ls_tensor_get(&rec->t, i), off = steps_off * ls_step_at(rec->t.dtype, v);
    ls_tensor_set(&rec->t, i, i % 2 ? v + off : v - off);
  }
}

static ls_status verify(double off, const char *stage_says, bool drift_fails) {
  char file[SCRATCH], *text = NULL;
  session_scratch(file, "drift");
  copy_fixture(file, GOLDEN "attn_v41_six_roles.h5", &(plant){.keep = 24});
  steps_off = off;
  const ls_status status = session_verify(file, &(session_how){.path = session_cheat(&(session_lies){.record = strays})}, &text);
  cr_expect(session_says(text, "drift", "cheat", drift_fails ? "FAIL" : "PASS"), "%g steps:\n%s", off, text);
  if (stage_says != NULL) cr_expect_not_null(strstr(text, stage_says), "%g steps: expected '%s' in:\n%s", off, stage_says, text);
  cr_expect_null(strstr(text, "introduced here"), "%g steps: a stage fails:\n%s", off, text);
  cr_expect_null(strstr(text, "inherited"), "%g steps: a stage fails:\n%s", off, text);
  free(text);
  unlink(file);
  return status;
}

Test(verify_drift, cascaded_values_three_steps_off_pass_every_stage_and_not_drift) {
  /* the first six steps are honest; the worst row of the others is named */
  cr_expect_eq(verify(3, "from the exact values, the reference", true), LS_DIVERGED);
}

Test(verify_drift, a_step_off_is_what_roundings_may_come_to) { cr_expect_eq(verify(0.4, NULL, false), LS_OK); }

Test(verify_drift, a_double_reference_has_no_drift_to_be_measured_by) {
  char *text = NULL;
  const session_how how = {.path = session_cheat(&(session_lies){.fused = NULL}), .precision = LS_PRECISION_F64, .allow_mistrusted = true};
  session_verify(GOLDEN "attn_v41_single_token.h5", &how, &text);
  cr_expect_null(strstr(text, "drift"), "%s", text);
  free(text);
}
