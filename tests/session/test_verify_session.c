/* The verify session against fixtures with wrong or missing expectations, and against paths that cheat. Each cheat is a path that does the
 * reference's work and lies in one way; the session must say which property or stage it broke. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu/gpu_path.h"
#include "session_run.h"

static ls_status verify(const char *file, const ls_path *path, ls_precision precision, char **text) {
  return session_verify(file, &(session_how){.path = path, .precision = precision}, text);
}

static void scratch(char *path, size_t size) { snprintf(path, size, "%s/session-%d.h5", LS_BINARY_DIR, (int)getpid()); }

static void expect(const char *what, const plant *p, const char *golden, const ls_path *path, ls_status status, const char *said) {
  session_expect(what, p, golden, &(session_how){.path = path}, status, said);
}

/* ---- fixtures ---- */

Test(session, a_copy_without_a_fault_passes) {
  expect("a plain copy", &(plant){.drop = NULL}, GOLDEN "dflash_rounds.h5", &ls_path_emu, LS_OK, "1 pass");
}

Test(session, fixtures_that_hold_only_some_stages_pass) {
  static const char *const drops[] = {"ctx_combined",  "ctx_normed",   "k_proj k_norm", "k_norm",
                                      "k_proj",        "v_proj",       "ctx_*",         "k_rope",
                                      "k_ring v_ring", "ctx_* k_norm", "k_proj k_rope", "ctx_combined k_proj v_proj"};
  for (size_t i = 0; i < sizeof drops / sizeof *drops; i++) {
    expect(drops[i], &(plant){.drop = drops[i]}, GOLDEN "dflash_f16.h5", &ls_path_emu, LS_OK, "1 pass");
    expect(drops[i], &(plant){.drop = drops[i]}, GOLDEN "dflash_far_theta1e7.h5", &ls_path_emu, LS_OK, "1 pass");
  }
}

Test(session, one_wrong_expected_value_names_its_stage) {
  static const char *const stages[] = {"ctx_combined", "ctx_normed", "k_proj", "v_proj", "k_norm", "k_rope"};
  for (size_t i = 0; i < sizeof stages / sizeof *stages; i++) {
    char said[128];
    snprintf(said, sizeof said, "first divergence: step 11, %s", stages[i]);
    expect(stages[i], &(plant){.stage = stages[i], .step = 11, .steps = 16}, GOLDEN "dflash_rounds.h5", NULL, LS_DIVERGED, said);
    expect(stages[i], &(plant){.stage = stages[i], .step = 11, .steps = 16}, GOLDEN "dflash_rounds.h5", NULL, LS_DIVERGED,
           "introduced here");
  }
}

Test(session, a_wrong_expected_ring_names_the_slot) {
  expect("k_ring", &(plant){.stage = "k_ring", .step = 8, .steps = 1000}, GOLDEN "dflash_rounds.h5", NULL, LS_DIVERGED, "step 8, k_ring");
  expect("v_ring", &(plant){.stage = "v_ring", .step = 8, .steps = 1000}, GOLDEN "dflash_rounds.h5", NULL, LS_DIVERGED, "slot");
}

Test(session, a_golden_ring_that_does_not_hold_its_own_rows_is_caught) {
  /* step 11 writes rows at 16..19; one step of the last place is far inside the cascaded bound */
  char file[512], *text = NULL;
  scratch(file, sizeof file);
  for (int steps = 0; steps < 2; steps++) {
    copy_fixture(file, GOLDEN "dflash_rounds.h5", &(plant){.stage = "k_rope", .step = 11, .steps = steps});
    const ls_status found = verify(file, NULL, LS_PRECISION_ACT, &text);
    cr_expect_eq(strstr(text, "stored       golden  FAIL") != NULL, steps == 1, "%d steps, status %d:\n%s", steps, (int)found, text);
    free(text);
  }
  unlink(file);
}

Test(session, a_double_reference_needs_no_expectations) {
  char file[512], *text = NULL;
  scratch(file, sizeof file);
  copy_fixture(file, GOLDEN "dflash_rounds.h5", &(plant){.drop = "*"});
  cr_expect_eq(verify(file, &ls_path_emu, LS_PRECISION_F64, &text), LS_OK, "%s", text);
  free(text);
  unlink(file);
}

/* ---- paths that cheat ---- */

static bool (*lie)(const ls_step *step, const ls_trace *given, ls_trace *out); /* true: the work is skipped */
static void (*lie_in_state)(ls_trace *state);
static const char *fused_lie;

static ls_status cheat_step(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, bool rings, ls_error *err) {
  if (lie != NULL && out == NULL && lie(step, given, out)) return LS_OK;
  ls_status status = ls_path_ref.step(ctx, step, given, out, rings, err);
  if (lie != NULL && out != NULL && status == LS_OK) lie(step, given, out);
  return status;
}
static ls_status cheat_save(void *ctx, ls_trace *state, ls_error *err) {
  ls_status status = ls_path_ref.save(ctx, state, err);
  if (lie_in_state != NULL && status == LS_OK) lie_in_state(state);
  return status;
}
static ls_stage_kind cheat_kind(void *ctx, const ls_step *step, const char *stage) {
  ls_stage_kind kind = ls_path_ref.stage_kind(ctx, step, stage);
  return fused_lie != NULL && kind == LS_STAGE_OWN && in_list(fused_lie, stage) ? LS_STAGE_FUSED : kind;
}

static void expect_caught(const char *what, const char *said) {
  ls_path cheat = ls_path_ref;
  cheat.name = "cheat";
  cheat.step = cheat_step;
  cheat.save = cheat_save;
  cheat.stage_kind = cheat_kind;
  char *text = NULL;
  ls_status status = verify(GOLDEN "dflash_refusals.h5", &cheat, LS_PRECISION_ACT, &text);
  if (said == NULL) {
    cr_expect_eq(status, LS_OK, "%s: expected a pass:\n%s", what, text);
  } else {
    cr_expect_eq(status, LS_DIVERGED, "%s: expected a failure:\n%s", what, text);
    cr_expect_not_null(strstr(text, said), "%s: expected '%s' in:\n%s", what, said, text);
  }
  free(text);
}

Test(session, an_honest_twin_passes) { expect_caught("no lie", NULL); }

static bool does_nothing_untraced(const ls_step *step, const ls_trace *given, ls_trace *out) {
  (void)given;
  return out == NULL && step->op == LS_OP_CONTEXT_WRITE;
}
Test(session, a_path_that_does_nothing_untraced_is_caught) {
  lie = does_nothing_untraced;
  expect_caught("untraced does nothing", "untraced     cheat   FAIL");
}

static bool records_elsewhere(const ls_step *step, const ls_trace *given, ls_trace *out) {
  (void)given, (void)step;
  const ls_tensor *t = ls_trace_tensor(out, "v_proj");
  if (t != NULL) ls_tensor_set(t, 0, ls_tensor_get(t, 0) * (1 + 0x1p-7)); /* one step: within every bound */
  return false;
}
Test(session, a_recorded_stage_that_is_not_what_was_stored_is_caught) {
  lie = records_elsewhere;
  expect_caught("records elsewhere", "stored       cheat   FAIL");
}

static bool records_nothing(const ls_step *step, const ls_trace *given, ls_trace *out) {
  (void)given, (void)step;
  if (out != NULL) out->n = 0;
  return false;
}
Test(session, a_path_that_records_nothing_is_missing) {
  lie = records_nothing;
  expect_caught("records nothing", "MISSING");
}

Test(session, a_stage_that_is_called_fused_and_recorded_is_caught) {
  fused_lie = "k_norm";
  expect_caught("fused and recorded", "says that it fuses this stage, and records it");
}

static bool records_no_stage(const ls_step *step, const ls_trace *given, ls_trace *out) {
  (void)given, (void)step;
  if (out != NULL) out->n = 0;
  return false;
}
Test(session, a_path_that_calls_everything_fused_is_caught) {
  lie = records_no_stage;
  fused_lie = "ctx_* k_* v_proj";
  expect_caught("all fused", "records no stage that ends the group");
}

static void wrong_capture_rows(ls_trace *state) {
  const ls_tensor *t = ls_trace_tensor(state, "capture_rows");
  if (ls_tensor_get(t, 0) == 0) ls_tensor_set(t, 0, 1);
}
Test(session, a_wrong_state_integer_is_caught) {
  lie_in_state = wrong_capture_rows;
  expect_caught("capture_rows", "state        cheat   FAIL");
}

static void wrong_untouched_slot(ls_trace *state) {
  static int calls = 0;
  const ls_tensor *t = ls_trace_tensor(state, "k_ring");
  if (calls++ > 40) ls_tensor_set(t, ls_tensor_count(t) - 1, 0.5 + calls);
}
Test(session, a_changed_slot_that_no_operation_wrote_is_caught) {
  lie_in_state = wrong_untouched_slot;
  expect_caught("a stray write", "write-set    cheat   FAIL");
}
