/* The reference against values that were computed by other code (see the `source` of each fixture). */
#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/ls_numeric.h"
#include "fixtures/ls_fixture.h"
#include "layers/ls_path.h"

typedef struct {
  int64_t count, equal, outside; /* of elements that are not zero on both sides; outside of the bound */
  uint64_t steps;                /* the largest distance */
} tally;

static bool always(void *arg, const char *stage) {
  (void)arg, (void)stage;
  return true;
}

/* Adds one stage of one step. bound: NULL counts as nothing beyond `steps` rounding steps. */
static void compare(tally *t, ls_dtype type, double steps, const ls_tensor *golden, const ls_tensor *ref, const ls_tensor *bound) {
  cr_assert(ls_tensor_same_shape(golden, ref));
  for (int64_t i = 0; i < ls_tensor_count(golden); i++) {
    const double a = ls_tensor_get(golden, i), b = ls_tensor_get(ref, i), rest = bound == NULL ? 0 : ls_tensor_get(bound, i);
    if (a == 0 && b == 0) continue;
    const uint64_t apart = ls_steps_between(type, a, b);
    t->count++;
    t->equal += a == b;
    t->outside += !(fabs(a - b) <= steps * ls_step_at(type, fmax(fabs(a), fabs(b))) + rest);
    if (apart > t->steps) t->steps = apart;
  }
}

enum { STAGES = 6 };

/* Bounds of the six stages of a context write, with the golden values as the values that the stages read. */
static ls_trace *bounds_of(const ls_config *config, const ls_trace *weights, const ls_step *step, const ls_tensor *captured,
                           bool cascaded) {
  ls_trace *values = NULL, *bounds = NULL;
  ls_error err = {0};
  cr_assert_eq(ls_trace_copy(&values, step->expect, NULL), LS_OK);
  cr_assert_eq(ls_trace_add_view(values, "capture", captured, NULL), LS_OK);
  cr_assert_eq(ls_trace_new(&bounds, "bounds", NULL), LS_OK);
  const ls_bound_args args = {.config = config, .weights = weights, .step = step, .values = values, .carries = cascaded ? always : NULL};
  for (int i = 0; i < STAGES; i++) cr_assert_eq(config->layer->stages[i].bound(&args, bounds, &err), LS_OK, "%s", err.text);
  ls_trace_free(values);
  return bounds;
}

/* Runs a golden file through the reference. Isolated: each stage reads the golden outputs of the stages before it. */
static void run(const char *name, bool cascaded, tally of_stage[STAGES], tally of_ring[2]) {
  char file[512];
  ls_fixture *fixture = NULL;
  const ls_trace *weights;
  void *path = NULL;
  ls_error err = {0};
  const ls_fixture_options options = {0};
  snprintf(file, sizeof file, "%s/fixtures/golden/%s", LS_SOURCE_DIR, name);
  cr_assert_eq(ls_fixture_open(&fixture, file, &options, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_fixture_weights(fixture, &weights, &err), LS_OK, "%s", err.text);
  const ls_config *config = ls_fixture_config(fixture);
  cr_assert_eq(ls_path_ref.open(&path, config, weights, NULL, &err), LS_OK, "%s", err.text);

  for (int64_t i = 0; i < ls_fixture_steps(fixture); i++) {
    ls_step step;
    ls_trace *before = NULL, *out = NULL, *state = NULL;
    cr_assert_eq(ls_fixture_load_step(fixture, i, &step, &err), LS_OK, "%s", err.text);
    cr_assert_eq(ls_trace_new(&out, "ref", NULL), LS_OK);
    cr_assert_eq(ls_trace_new(&before, "before", NULL), LS_OK);
    cr_assert_eq(ls_trace_new(&state, "after", NULL), LS_OK);
    cr_assert_eq(ls_path_ref.save(path, before, NULL), LS_OK);
    ls_error refusal = {0};
    const ls_status status = ls_path_ref.step(path, &step, cascaded ? NULL : step.expect, out, false, &refusal);
    cr_assert_eq(status, step.expect_refused ? LS_REFUSED : LS_OK, "%s step %d: %s", name, (int)step.number, refusal.text);
    cr_assert_eq(ls_path_ref.save(path, state, NULL), LS_OK);
    cr_assert_eq((int64_t)ls_tensor_get(ls_trace_tensor(state, "cursor"), 0), step.cursor, "%s step %d", name, (int)step.number);

    if (step.op == LS_OP_CONTEXT_WRITE && status == LS_OK) {
      const ls_tensor captured = ls_tensor_slice(ls_trace_tensor(before, "capture"), 0, 0, step.rows);
      step.base = (int64_t)ls_tensor_get(ls_trace_tensor(before, "capture_base"), 0); /* where the bound of k_rope finds the positions */
      ls_trace *bounds = bounds_of(config, weights, &step, &captured, cascaded);
      for (int k = 0; k < STAGES; k++) {
        const ls_stage *stage = &config->layer->stages[k];
        compare(&of_stage[k], config->act, stage->steps, ls_trace_tensor(step.expect, stage->name), ls_trace_tensor(out, stage->name),
                ls_trace_tensor(bounds, stage->name));
      }
      ls_trace_free(bounds);
    }
    static const char *const ring[] = {"k_ring", "v_ring"};
    for (int k = 0; k < 2; k++) {
      const ls_tensor *golden = ls_trace_tensor(step.expect, ring[k]);
      if (golden != NULL) compare(&of_ring[k], config->act, INFINITY, golden, ls_trace_tensor(state, ring[k]), NULL);
    }
    ls_trace_free(state), ls_trace_free(out), ls_trace_free(before);
    ls_step_free(&step);
  }
  for (int k = 0; k < STAGES + 2; k++) {
    const tally *t = k < STAGES ? &of_stage[k] : &of_ring[k - STAGES];
    cr_log_info("%-27s %-8s %-13s %9lld elements, equal %8.4f%%, at most %llu steps, %lld outside the bound", name,
                cascaded ? "cascaded" : "isolated", config->layer->stages[k].name, (long long)t->count,
                100.0 * (double)t->equal / (double)(t->count > 0 ? t->count : 1), (unsigned long long)t->steps, (long long)t->outside);
  }
  ls_path_ref.close(path);
  ls_fixture_close(fixture);
}

/* Bit-equal in 99.5% of the elements (a wrong rounding point flips 10 to 50 of a hundred), and none outside the stage's bound. */
static void holds(const char *name, bool cascaded, int stages_by_share) {
  tally of_stage[STAGES] = {{0}}, of_ring[2] = {{0}};
  run(name, cascaded, of_stage, of_ring);
  for (int k = 0; k < STAGES; k++) {
    const ls_stage *stage = &ls_layer_dflash_context_kv.stages[k];
    cr_assert_gt(of_stage[k].count, 1000);
    cr_assert_eq(of_stage[k].outside, 0, "%s %s: %lld outside the bound", name, stage->name, (long long)of_stage[k].outside);
    if (k < stages_by_share) {
      cr_assert_geq((double)of_stage[k].equal, 0.995 * (double)of_stage[k].count, "%s %s: %lld of %lld equal", name, stage->name,
                    (long long)of_stage[k].equal, (long long)of_stage[k].count);
    }
  }
  for (int k = 0; k < 2; k++) {
    cr_assert_gt(of_ring[k].count, 1000);
    cr_assert_geq((double)of_ring[k].equal, 0.995 * (double)of_ring[k].count, "%s ring %d", name, k);
  }
}

Test(ref_golden, rounds_isolated) { holds("dflash_rounds.h5", false, STAGES); }
Test(ref_golden, rounds_cascaded) { holds("dflash_rounds.h5", true, STAGES); }
Test(ref_golden, refusals_isolated) { holds("dflash_refusals.h5", false, STAGES); }
Test(ref_golden, refusals_cascaded) { holds("dflash_refusals.h5", true, STAGES); }
Test(ref_golden, f16_isolated) { holds("dflash_f16.h5", false, STAGES); }
Test(ref_golden, f16_cascaded) { holds("dflash_f16.h5", true, STAGES); }
Test(ref_golden, far_position_isolated) { holds("dflash_far_position.h5", false, STAGES); }
Test(ref_golden, far_position_cascaded) { holds("dflash_far_position.h5", true, STAGES); }
Test(ref_golden, far_theta1e7_isolated) { holds("dflash_far_theta1e7.h5", false, STAGES); }
Test(ref_golden, far_theta1e7_cascaded) { holds("dflash_far_theta1e7.h5", true, STAGES); }

/* Cascaded at the real shape, k_proj and what follows carry the flips of 5,120 inputs each, some of which the golden values have against
 * the exact ones themselves: about 1% of the elements. By share only what comes before the projections; all by the carried bound. */
Test(ref_golden, real_shape_isolated) { holds("dflash_real_shape.h5", false, STAGES); }
Test(ref_golden, real_shape_cascaded) { holds("dflash_real_shape.h5", true, 2); }
