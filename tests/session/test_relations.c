/* Metamorphic relations (docs/relations.md): an honest path passes every one of them, and each catches, with nothing else judged, a path
 * that does the reference's work and breaks it. No relation asks the reference: the lies here would be in both. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu/gpu_path.h"
#include "session_run.h"

static void nudge(const ls_tensor *t, int64_t i) {
  const double v = ls_tensor_get(t, i);
  ls_tensor_set(t, i, v + (v == 0 ? 0.5 : ls_step_at(t->dtype, v)));
}

static void expect(const char *what, const char *file, const session_how *how, ls_status status, const char *property,
                   const char *verdict) {
  char *text = NULL;
  const ls_status found = session_verify(file, how, &text);
  cr_expect_eq(found, status, "%s: expected status %d, found %d:\n%s", what, (int)status, (int)found, text);
  if (property != NULL) {
    cr_expect(session_says(text, property, how->path->name, verdict), "%s: expected %s %s:\n%s", what, property, verdict, text);
    cr_expect(session_says(text, property, "ref", "PASS"), "%s: expected %s of ref to pass:\n%s", what, property, text);
  }
  free(text);
}

/* ---- nothing is a false alarm ---- */

static const char *const of_dflash[] = {"rows", "shifted", "unseen", "replayed", "permuted", "scaled", "duplicated"};
static const char *const of_attn[] = {"causal", "rows", "replayed", "unseen", "decoded", "hull", "permuted", "scaled", "duplicated"};

static void expect_all_hold(const char *file, const ls_path *path, ls_precision precision, const char *const *properties, size_t n) {
  char *text = NULL;
  const session_how how = {.path = path, .relations = true, .allow_mistrusted = true, .precision = precision};
  const ls_status found = session_verify(file, &how, &text);
  cr_expect_eq(found, LS_OK, "%s: status %d:\n%s", file, (int)found, text);
  for (size_t i = 0; i < n; i++) {
    cr_expect(session_says(text, properties[i], path->name, "PASS"), "%s: expected %s to pass:\n%s", file, properties[i], text);
    cr_expect(session_says(text, properties[i], "ref", "PASS"), "%s: expected %s of ref to pass:\n%s", file, properties[i], text);
  }
  free(text);
}

Test(relations, hold_of_both_paths_on_fixtures_of_both_layers) {
  char file[SCRATCH];
  session_scratch(file, "relations");
  copy_fixture(file, GOLDEN "attn_v41_six_roles.h5", &(plant){.keep = 12});
  expect_all_hold(file, &ls_path_emu, LS_PRECISION_ACT, of_attn, sizeof of_attn / sizeof of_attn[0]);
  expect_all_hold(file, session_cheat(&(session_lies){.fused = NULL}), LS_PRECISION_F64, of_attn, sizeof of_attn / sizeof of_attn[0]);
  unlink(file);
  expect_all_hold(GOLDEN "dflash_refusals.h5", &ls_path_emu, LS_PRECISION_ACT, of_dflash, sizeof of_dflash / sizeof of_dflash[0]);
  expect_all_hold(GOLDEN "dflash_f16.h5", &ls_path_emu, LS_PRECISION_F64, of_dflash, sizeof of_dflash / sizeof of_dflash[0]);
}

Test(relations, hold_of_values_at_the_ends_of_what_a_scenario_holds) {
  static const int kinds[] = {LS_VALUES_TINY, LS_VALUES_HUGE, LS_VALUES_TIED, LS_VALUES_NAN};
  char file[SCRATCH], *text = NULL;
  session_scratch(file, "kinds");
  for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    const ls_make_attn make = {.seed = 5 + i, .prefill = -1, .decode = 1, .values = kinds[i], .jump = true};
    session_generate(file, &make, NULL);
    const session_how how = {.path = session_cheat(&(session_lies){.fused = NULL}),
                             .relations = true,
                             .allow_mistrusted = true,
                             .allow_nonfinite = kinds[i] == LS_VALUES_NAN};
    const ls_status found = session_verify(file, &how, &text);
    cr_expect_eq(found, LS_OK, "%s: status %d:\n%s", ls_make_values_names[kinds[i]], (int)found, text);
    free(text);
  }
  unlink(file);
}

Test(relations, are_judged_only_where_they_are_asked_for) {
  char *text = NULL;
  session_verify(GOLDEN "dflash_refusals.h5", &(session_how){.path = &ls_path_emu}, &text);
  cr_expect_not(session_says(text, "scaled", "emu", "PASS"), "%s", text);
  free(text);
}

/* ---- dflash_context_kv: what each catches ---- */

static void caught(const char *property, const session_lies *lies) {
  const session_how how = {.path = session_cheat(lies), .relations = true, .stage = property, .allow_mistrusted = true};
  expect(property, GOLDEN "dflash_refusals.h5", &how, LS_DIVERGED, property, "FAIL");
}

static void one_row_is_another(const ls_step *step, const ls_trace *given, ls_trace *out) {
  (void)step, (void)given;
  const ls_tensor *t = ls_trace_tensor(out, "v_proj");
  if (t != NULL) nudge(t, 0); /* one step of the first row's first channel: far inside the bound */
}
Test(relations, rows_that_know_their_index_are_caught) { caught("rows", &(session_lies){.record = one_row_is_another}); }

/* The state before the step, as the twin stands. */
static ls_status with_state(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err,
                            void (*lie)(const ls_step *step, const ls_trace *before, ls_trace *out)) {
  ls_trace *before = NULL;
  LS_TRY(ls_trace_new(&before, "before", err));
  ls_status status = ls_path_ref.save(ctx, before, err);
  if (status == LS_OK) status = ls_path_ref.step(ctx, step, given, out, true, err);
  if (status == LS_OK && out != NULL) lie(step, before, out);
  ls_trace_free(before);
  return status;
}

static void far_rows_differ(const ls_step *step, const ls_trace *before, ls_trace *out) {
  (void)step;
  const ls_tensor *t = ls_trace_tensor(out, "v_proj");
  const double base = ls_tensor_get(ls_trace_tensor(before, "capture_base"), 0);
  if (t != NULL && base >= (double)ls_trace_tensor(before, "k_ring")->dim[1]) nudge(t, 0);
}
static ls_status step_far(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  return with_state(ctx, step, given, out, err, far_rows_differ);
}
Test(relations, rows_that_know_how_often_the_ring_was_filled_are_caught) { caught("shifted", &(session_lies){.step = step_far}); }

static ls_status refuses_far(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  ls_trace *before = NULL;
  LS_TRY(ls_trace_new(&before, "before", err));
  ls_status status = ls_path_ref.save(ctx, before, err);
  const bool far = status == LS_OK && step->op == LS_OP_CONTEXT_WRITE &&
                   ls_tensor_get(ls_trace_tensor(before, "capture_base"), 0) >= (double)ls_trace_tensor(before, "k_ring")->dim[1];
  ls_trace_free(before);
  if (far) return ls_fail(err, LS_REFUSED, "too far");
  return status != LS_OK ? status : ls_path_ref.step(ctx, step, given, out, true, err);
}
Test(relations, a_step_that_is_refused_further_on_is_caught) { caught("shifted", &(session_lies){.step = refuses_far}); }

static void old_slot_leaks(const ls_step *step, const ls_trace *before, ls_trace *out) {
  (void)step;
  const ls_tensor *t = ls_trace_tensor(out, "k_rope"), *ring = ls_trace_tensor(before, "k_ring");
  if (t != NULL) ls_tensor_set(t, 0, ls_tensor_get(t, 0) + 0 * ls_tensor_get(ring, ls_tensor_count(ring) - 1));
}
static ls_status step_leaks(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  return with_state(ctx, step, given, out, err, old_slot_leaks);
}
Test(relations, a_slot_that_leaks_times_zero_is_caught) { caught("unseen", &(session_lies){.step = step_leaks}); }

static bool rewound;
static void rewind_is_remembered(const ls_step *step, const ls_trace *out, ls_trace *state) {
  (void)out;
  if (step->op == LS_OP_CONTEXT_WRITE && rewound) nudge(ls_trace_tensor(state, "k_ring"), 0);
  rewound = step->op == LS_OP_REWIND || (rewound && step->op != LS_OP_CONTEXT_WRITE);
}
Test(relations, a_rewind_that_shows_in_what_is_written_next_is_caught) {
  caught("replayed", &(session_lies){.state = rewind_is_remembered});
}

static void head_0_is_doubled(const ls_step *step, const ls_trace *given, ls_trace *out) {
  (void)step, (void)given;
  const ls_tensor *t = ls_trace_tensor(out, "k_rope") != NULL ? ls_trace_tensor(out, "k_rope") : ls_trace_tensor(out, "sparse_o");
  for (int64_t i = 0; t != NULL && i < 4; i++) ls_tensor_set(t, i, 2 * ls_tensor_get(t, i) + 1);
}
Test(relations, a_head_with_a_fault_of_its_own_is_caught) {
  caught("permuted", &(session_lies){.record = head_0_is_doubled});
  caught("duplicated", &(session_lies){.record = head_0_is_doubled});
}

static void small_is_zero(const ls_step *step, const ls_trace *given, ls_trace *out) {
  static const char *const stages[] = {"v_proj", "out"};
  (void)step, (void)given;
  for (int s = 0; s < 2; s++) {
    const ls_tensor *t = ls_trace_tensor(out, stages[s]);
    for (int64_t i = 0; t != NULL && i < ls_tensor_count(t); i++)
      if (fabs(ls_tensor_get(t, i)) < 0x1p-6) ls_tensor_set(t, i, 0);
  }
}
Test(relations, a_threshold_that_is_an_absolute_number_is_caught) { caught("scaled", &(session_lies){.record = small_is_zero}); }

/* ---- attn_v41 ---- */

static void caught_attn(const char *property, const session_lies *lies) {
  char file[SCRATCH];
  session_scratch(file, property);
  copy_fixture(file, GOLDEN "attn_v41_six_roles.h5", &(plant){.keep = 12});
  const session_how how = {.path = session_cheat(lies), .relations = true, .stage = property, .allow_mistrusted = true};
  expect(property, file, &how, LS_DIVERGED, property, "FAIL");
  unlink(file);
}

static void sees_the_last_token(const ls_step *step, const ls_trace *given, ls_trace *out) {
  (void)given;
  const ls_tensor *t = ls_trace_tensor(out, "qr"), *x = ls_trace_tensor(step->in, "x");
  if (t != NULL && x != NULL) ls_tensor_set(t, 0, ls_tensor_get(x, (x->dim[0] - 1) * x->dim[1]));
}
Test(relations, a_token_that_sees_a_later_one_is_caught) { caught_attn("causal", &(session_lies){.record = sees_the_last_token}); }

static void token_0_is_another(const ls_step *step, const ls_trace *given, ls_trace *out) {
  (void)step, (void)given;
  const ls_tensor *t = ls_trace_tensor(out, "kv_norm");
  if (t != NULL) nudge(t, 0);
}
Test(relations, tokens_that_know_their_index_are_caught) { caught_attn("rows", &(session_lies){.record = token_0_is_another}); }

static void reads_before_it_writes(const ls_step *step, const ls_trace *before, ls_trace *out) {
  const ls_tensor *window = ls_trace_tensor(before, "layers/0/window"), *t = ls_trace_tensor(out, "out");
  if (step->layer != 0 || t == NULL) return;
  const int64_t slot = step->start_pos % window->dim[0];
  ls_tensor_set(t, 0, ls_tensor_get(window, slot * window->dim[1]));
}
static ls_status step_reads_early(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  return with_state(ctx, step, given, out, err, reads_before_it_writes);
}
Test(relations, a_slot_that_is_read_before_it_is_written_is_caught) { caught_attn("replayed", &(session_lies){.step = step_reads_early}); }

static const char *leaking;
static void leaks(const ls_step *step, const ls_trace *before, ls_trace *out) {
  const ls_tensor *from = ls_trace_tensor(before, leaking), *t = ls_trace_tensor(out, "sparse_o");
  if (from == NULL || t == NULL || step->layer == 0) return;
  ls_tensor_set(t, 0, ls_tensor_get(t, 0) + 0 * ls_tensor_get(from, ls_tensor_count(from) - 1));
}
static ls_status step_leaks_rows(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  return with_state(ctx, step, given, out, err, leaks);
}
Test(relations, rows_that_no_query_sees_and_that_leak_are_caught) {
  static const char *const tensors[] = {"layers/0/window", "layers/1/compress_cache", "layers/1/index_cache", "layers/1/kv_state"};
  for (size_t i = 0; i < sizeof tensors / sizeof tensors[0]; i++) {
    leaking = tensors[i];
    caught_attn("unseen", &(session_lies){.step = step_leaks_rows});
  }
}

static void keeps_the_old_token(const ls_step *step, const ls_trace *before, ls_trace *out) {
  const ls_tensor *was = ls_trace_tensor(before, "layers/1/kv_state"), *is = ls_trace_tensor(out, "kv_state");
  if (step->layer != 1 || step->start_pos == 0 || is == NULL) return;
  const ls_tensor from = ls_tensor_slice(was, 0, step->start_pos % 2, 1), to = ls_tensor_slice(is, 0, step->start_pos % 2, 1);
  ls_tensor_copy(&to, &from, NULL);
}
static ls_status step_keeps(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  return with_state(ctx, step, given, out, err, keeps_the_old_token);
}
Test(relations, a_token_that_does_not_reach_its_group_is_caught) { caught_attn("unseen", &(session_lies){.step = step_keeps}); }

static void decodes_otherwise(const ls_step *step, const ls_trace *given, ls_trace *out) {
  (void)given;
  const ls_tensor *t = ls_trace_tensor(out, "o_rot");
  for (int64_t i = 0; t != NULL && step->rows == 1 && i < t->dim[1]; i++) ls_tensor_set(t, i, 1.5 * ls_tensor_get(t, i));
}
Test(relations, a_step_of_one_token_that_is_not_the_prefills_is_caught) {
  caught_attn("decoded", &(session_lies){.record = decodes_otherwise});
}

static void not_a_mean(const ls_step *step, const ls_trace *given, ls_trace *out) {
  (void)step, (void)given;
  const ls_tensor *t = ls_trace_tensor(out, "sparse_o");
  for (int64_t i = 0; t != NULL && i < ls_tensor_count(t); i++) ls_tensor_set(t, i, 8 * ls_tensor_get(t, i));
}
Test(relations, weights_that_come_to_more_than_one_are_caught) { caught_attn("hull", &(session_lies){.record = not_a_mean}); }

Test(relations, a_query_head_with_a_fault_of_its_own_is_caught) {
  caught_attn("permuted", &(session_lies){.record = head_0_is_doubled});
  caught_attn("duplicated", &(session_lies){.record = head_0_is_doubled});
}

Test(relations, an_absolute_threshold_of_an_output_is_caught) { caught_attn("scaled", &(session_lies){.record = small_is_zero}); }
