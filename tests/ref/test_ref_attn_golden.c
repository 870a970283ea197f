/* attn_v41 of the reference against values that were computed by other code (see the `source` of each fixture). */
#include <criterion/criterion.h>
#include <criterion/logging.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/ls_numeric.h"
#include "fixtures/ls_fixture.h"
#include "layers/ls_attn.h"
#include "layers/ls_path.h"

typedef struct {
  int64_t count, equal; /* of elements that are not zero on both sides */
  uint64_t steps;       /* the largest distance */
} tally;

/* Elements that the contract defines: of masks what the query sees (the golden ones name whole blocks, beyond its newest position too), and
 * scores inside the candidates on a source that selects inside them. */
static bool defined(const ls_attn_config *c, const ls_attn_plan *p, const ls_tensor *candidates, const char *stage, int64_t row,
                    int64_t at) {
  if (strcmp(stage, "candidates") == 0) return at < ls_attn_visible(p, row);
  return strcmp(stage, "index_score") != 0 || !ls_attn_is_masked(c, p->layer) || ls_tensor_get(candidates, row * p->n + at) != 0;
}

static void compare(tally *t, const ls_config *config, const ls_attn_plan *p, const ls_tensor *candidates, const char *stage,
                    const ls_tensor *golden, const ls_tensor *ref) {
  cr_assert_not_null(ref, "%s is in the fixture, and the reference has none", stage);
  cr_assert(ls_tensor_same_shape(golden, ref), "%s", stage);
  for (int64_t i = 0; i < ls_tensor_count(golden); i++) {
    const double a = ls_tensor_get(golden, i), b = ls_tensor_get(ref, i);
    if (!defined(&config->attn, p, candidates, stage, i / golden->dim[1], i % golden->dim[1])) continue;
    if (a == 0 && b == 0) continue;
    const uint64_t apart = ls_steps_between(config->act, a, b);
    t->count++;
    t->equal += a == b;
    if (apart > t->steps) t->steps = apart;
  }
}

enum { MOST_STAGES = 48 };

/* Runs a golden file through the reference, each stage on the golden outputs of the stages before it, each step on the state that they
 * make. */
static void run(const char *name, tally of_stage[MOST_STAGES]) {
  char file[512];
  ls_fixture *fixture = NULL;
  const ls_trace *weights;
  ls_trace *start = NULL;
  void *path = NULL;
  ls_error err = {0};
  const ls_fixture_options options = {0};
  ls_tensor candidates = {0}; /* of the last candidate source */
  ls_step held = {0};         /* the step that they are from */
  snprintf(file, sizeof file, "%s/fixtures/golden/%s", LS_SOURCE_DIR, name);
  cr_assert_eq(ls_fixture_open(&fixture, file, &options, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_fixture_weights(fixture, &weights, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_fixture_state(fixture, &start, &err), LS_OK, "%s", err.text);
  const ls_config *config = ls_fixture_config(fixture);
  cr_assert_eq(ls_path_ref.open(&path, config, weights, NULL, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_path_ref.load(path, start, &err), LS_OK, "%s", err.text);

  for (int64_t i = 0; i < ls_fixture_steps(fixture); i++) {
    ls_step step;
    ls_trace *out = NULL;
    ls_error why = {0};
    cr_assert_eq(ls_fixture_load_step(fixture, i, &step, &err), LS_OK, "%s", err.text);
    cr_assert_eq(ls_trace_new(&out, "ref", NULL), LS_OK);
    const ls_status status = ls_path_ref.step(path, &step, step.expect, out, true, &why);
    cr_assert_eq(status, step.expect_refused ? LS_REFUSED : LS_OK, "%s step %d: %s", name, (int)step.number, why.text);
    ls_attn_plan plan;
    ls_attn_plan_shapes(&config->attn, &step, &plan);
    const ls_tensor *made = ls_trace_tensor(step.expect, "candidates");
    if (made != NULL) candidates = *made;
    for (int k = 0; k < config->layer->n_stages && status == LS_OK; k++) {
      const char *stage = config->layer->stages[k].name;
      const ls_tensor *golden = ls_trace_tensor(step.expect, stage), *ref = ls_trace_tensor(out, stage);
      cr_assert_eq(ls_path_ref.stage_kind(path, &step, stage) == LS_STAGE_OWN, ref != NULL, "%s step %d %s", name, (int)step.number, stage);
      if (golden != NULL) compare(&of_stage[k], config, &plan, &candidates, stage, golden, ref);
    }
    ls_trace_free(out);
    if (made != NULL) {
      ls_step_free(&held);
      held = step;
    } else {
      ls_step_free(&step);
    }
  }
  for (int k = 0; k < config->layer->n_stages; k++) {
    const tally *t = &of_stage[k];
    if (t->count == 0) continue;
    cr_log_info("%-34s %-13s %8lld elements, equal %8.4f%%, at most %llu steps", name, config->layer->stages[k].name, (long long)t->count,
                100.0 * (double)t->equal / (double)t->count, (unsigned long long)t->steps);
  }
  ls_step_free(&held);
  ls_trace_free(start);
  ls_path_ref.close(path);
  ls_fixture_close(fixture);
}

/* n_stages: how many stages the file holds. Indices and masks alike in every element; values bit-equal in 99.6% (a wrong rounding point
 * flips 10 to 50 of a hundred). */
static void holds(const char *name, int n_stages) {
  tally of_stage[MOST_STAGES] = {{0}};
  int held = 0;
  run(name, of_stage);
  for (int k = 0; k < ls_layer_attn_v41.n_stages; k++) {
    const ls_stage *stage = &ls_layer_attn_v41.stages[k];
    const tally *t = &of_stage[k];
    const bool exact = stage->holds == LS_HOLDS_INDICES || stage->holds == LS_HOLDS_SELECTION || stage->holds == LS_HOLDS_MASK;
    held += t->count > 0;
    const double least = (exact ? 1.0 : 0.996) * (double)t->count;
    cr_expect((double)t->equal >= least, "%s %s: %lld of %lld equal", name, stage->name, (long long)t->equal, (long long)t->count);
  }
  cr_assert_eq(held, n_stages, "%s: %d stages compared", name, held);
}

Test(ref_attn_golden, six_roles) { holds("attn_v41_six_roles.h5", 18); }
Test(ref_attn_golden, six_roles_own_keys) { holds("attn_v41_six_roles_own_keys.h5", 18); }
Test(ref_attn_golden, single_token) { holds("attn_v41_single_token.h5", 18); }
Test(ref_attn_golden, ring_filling) { holds("attn_v41_ring_filling.h5", 18); }
Test(ref_attn_golden, far_position) { holds("attn_v41_far_position.h5", 17); } /* no candidate source */
Test(ref_attn_golden, mid) { holds("attn_v41_mid.h5", 18); }
Test(ref_attn_golden, context_4k) { holds("attn_v41_context_4k.h5", 18); }
