/* The emulated device path against the goldens, cascaded: every recorded stage of every step within the bound that is carried through. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "compare/ls_compare.h"
#include "fixtures/ls_fixture.h"
#include "layers/ls_path.h"

static bool all_carry(void *arg, const char *stage) {
  (void)arg, (void)stage;
  return true;
}

/* The step's golden values and what it captured: all that bounds are evaluated from. */
static ls_trace *values_of(const ls_step *step, const ls_trace *captured) {
  ls_error err = {0};
  ls_trace *values = NULL;
  cr_assert_eq(ls_trace_new(&values, "golden", &err), LS_OK, "%s", err.text);
  for (int i = 0; i < step->expect->n; i++)
    cr_assert_eq(ls_trace_add_view(values, step->expect->rec[i].name, &step->expect->rec[i].t, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_trace_add_view(values, "capture", ls_trace_tensor(captured, "capture"), &err), LS_OK, "%s", err.text);
  return values;
}

static int64_t judge(const char *file, const ls_config *config, const ls_trace *weights, const ls_step *step, const ls_trace *captured,
                     const ls_trace *out) {
  ls_error err = {0};
  ls_trace *bounds = NULL, *values = values_of(step, captured);
  cr_assert_eq(ls_trace_new(&bounds, "bounds", &err), LS_OK);
  const ls_bound_args args = {.config = config, .weights = weights, .step = step, .values = values, .carries = all_carry};
  int64_t compared = 0;
  for (int i = 0; i < config->layer->n_stages; i++) {
    const ls_stage *stage = &config->layer->stages[i];
    if (!stage->bound) continue;
    cr_assert_eq(stage->bound(&args, bounds, &err), LS_OK, "%s", err.text);
    const ls_tensor *golden = ls_trace_tensor(step->expect, stage->name), *found = ls_trace_tensor(out, stage->name);
    if (strcmp(stage->name, "k_norm") == 0) continue; /* fused away */
    cr_assert(golden && found, "%s step %ld: %s", file, (long)step->number, stage->name);
    const ls_compare_args compare = {
        .stage = stage, .type = config->act, .a = golden, .b = found, .bound = ls_trace_tensor(bounds, stage->name), .steps = stage->steps};
    ls_result result;
    ls_compare_tensor(&result, &compare);
    cr_assert_eq(result.verdict, LS_PASS, "%s step %ld %s: %s, use %g: %s", file, (long)step->number, stage->name,
                 ls_verdict_name(result.verdict), result.use, result.where);
    compared += result.count;
  }
  ls_trace_free(bounds), ls_trace_free(values);
  return compared;
}

static void run_golden(const char *name) {
  char file[1024];
  snprintf(file, sizeof file, "%s/fixtures/golden/%s", LS_SOURCE_DIR, name);
  ls_error err = {0};
  ls_fixture *fixture = NULL;
  const ls_fixture_options options = {false, NULL};
  cr_assert_eq(ls_fixture_open(&fixture, file, &options, &err), LS_OK, "%s", err.text);
  const ls_config *config = ls_fixture_config(fixture);
  const ls_trace *weights = NULL;
  cr_assert_eq(ls_fixture_weights(fixture, &weights, &err), LS_OK, "%s", err.text);
  const ls_path *path = ls_path_find("emu");
  void *ctx = NULL;
  cr_assert_eq(path->open(&ctx, config, weights, NULL, &err), LS_OK, "%s", err.text);

  ls_trace *captured = NULL;
  int64_t compared = 0;
  for (int64_t i = 0; i < ls_fixture_steps(fixture); i++) {
    ls_step step;
    ls_trace *out = NULL;
    ls_error why = {0};
    cr_assert_eq(ls_fixture_load_step(fixture, i, &step, &err), LS_OK, "%s", err.text);
    cr_assert_eq(ls_trace_new(&out, "emu", &err), LS_OK);
    ls_status status = path->step(ctx, &step, NULL, out, false, &why);
    cr_assert_eq(status, step.expect_refused ? LS_REFUSED : LS_OK, "%s step %ld: %s", name, (long)step.number, why.text);
    if (status == LS_OK && step.op == LS_OP_CAPTURE) {
      ls_trace_free(captured);
      cr_assert_eq(ls_trace_copy(&captured, step.in, &err), LS_OK);
    }
    if (status == LS_OK && step.op == LS_OP_CONTEXT_WRITE) compared += judge(name, config, weights, &step, captured, out);
    ls_trace_free(out);
    ls_step_free(&step);
  }
  cr_assert_gt(compared, 0);
  ls_trace_free(captured);
  path->close(ctx);
  ls_fixture_close(fixture);
}

Test(gpu_golden, rounds) { run_golden("dflash_rounds.h5"); }
Test(gpu_golden, f16) { run_golden("dflash_f16.h5"); }
Test(gpu_golden, far_position) { run_golden("dflash_far_position.h5"); }
Test(gpu_golden, far_theta1e7) { run_golden("dflash_far_theta1e7.h5"); }
Test(gpu_golden, refusals) { run_golden("dflash_refusals.h5"); }
