/* The emulated attn_v41 path against the small goldens through ls_run, beside the reference. Cascaded: every value stage within the bound
 * that is carried from stage to stage and step to step, on one selection for both. Isolated: every stage on the golden outputs of the
 * stages before it. And the tiny ones in 20 random orders of the emulator's threads, both ways: the bytes are those of the order that is
 * judged here. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "compare/ls_compare.h"
#include "fixtures/ls_fixture.h"
#include "layers/ls_attn.h"
#include "layers/ls_run.h"

static bool all_carry(void *arg, const char *stage) {
  (void)arg, (void)stage;
  return true;
}

/* Views of what `from` holds of the named tensors, or of all of them. */
static ls_trace *views(const ls_trace *from, const char *const *names) {
  ls_trace *out = NULL;
  cr_assert_eq(ls_trace_new(&out, "views", NULL), LS_OK);
  for (int i = 0; i < from->n; i++) {
    bool wanted = names == NULL;
    for (int k = 0; names != NULL && names[k] != NULL; k++) wanted = wanted || strcmp(names[k], from->rec[i].name) == 0;
    if (wanted) cr_assert_eq(ls_trace_add_view(out, from->rec[i].name, &from->rec[i].t, NULL), LS_OK);
  }
  return out;
}

typedef struct {
  const char *file;
  const ls_config *config;
  const ls_trace *weights;
  ls_run ref, emu, alone; /* alone: isolated runs */
  ls_trace *state_bounds;
  int64_t compared, choices;
} golden;

/* The mask inside which the scores of a masked source are defined; NULL: everywhere. */
static const ls_tensor *mask_of(const golden *g, const ls_step *step, const char *stage, const ls_trace *before) {
  const bool masked = strcmp(stage, "index_score") == 0 && ls_attn_is_masked(&g->config->attn, step->layer);
  return masked ? ls_trace_tensor(before, "candidates") : NULL;
}

static void judge_value(golden *g, const ls_step *step, const ls_stage *stage, const ls_tensor *a, const ls_tensor *b,
                        const ls_tensor *bound, const ls_tensor *mask, const char *mode) {
  const ls_compare_args compare = {
      .stage = stage, .type = ls_stage_type(g->config, stage), .a = a, .b = b, .bound = bound, .only = mask, .steps = stage->steps};
  ls_result result;
  ls_compare_tensor(&result, &compare);
  cr_assert(result.verdict == LS_PASS || result.verdict == LS_MISTRUSTED, "%s step %d %s %s: %s, use %g: %s", g->file, (int)step->number,
            mode, stage->name, ls_verdict_name(result.verdict), result.use, result.where);
  g->compared += result.count;
}

/* All stages of a step of the device path, beside the reference's of the same step. values: what bounds are evaluated from. */
static void judge(golden *g, const ls_step *step, const ls_run_result *ref, const ls_run_result *emu, const ls_trace *state_bounds,
                  const ls_trace *values, ls_trace **bounds, const char *mode) {
  ls_error err = {0};
  ls_trace *held = views(values, NULL);
  if (ls_trace_find(held, "x") == NULL) cr_assert_eq(ls_trace_add_view(held, "x", ls_trace_tensor(step->in, "x"), NULL), LS_OK);
  const ls_bound_args args = {.config = g->config,
                              .weights = g->weights,
                              .step = step,
                              .values = held,
                              .carries = all_carry,
                              .before = ref->before,
                              .after = ref->after,
                              .state_bounds = state_bounds};
  cr_assert_eq(ls_trace_new(bounds, "bounds", NULL), LS_OK);
  for (int i = 0; i < g->config->layer->n_stages; i++) {
    const ls_stage *stage = &g->config->layer->stages[i];
    if (stage->bound) cr_assert_eq(stage->bound(&args, *bounds, &err), LS_OK, "%s", err.text);
    const ls_stage_kind kind = g->emu.path->stage_kind(g->emu.ctx, step, stage->name);
    const ls_tensor *a = ls_trace_tensor(ref->out, stage->name), *b = ls_trace_tensor(emu->out, stage->name);
    if (kind == LS_STAGE_FUSED || kind == LS_STAGE_ABSENT) continue;
    cr_assert(a && b, "%s step %d: %s", g->file, (int)step->number, stage->name);
    if (stage->holds == LS_HOLDS_VALUES || stage->holds == LS_HOLDS_F32)
      judge_value(g, step, stage, a, b, ls_trace_tensor(*bounds, stage->name), mask_of(g, step, stage->name, ref->before), mode);
    if (stage->holds == LS_HOLDS_INDICES) {
      cr_assert(ls_tensor_same_bytes(a, b), "%s step %d %s %s", g->file, (int)step->number, mode, stage->name);
      g->choices++;
    }
  }
  ls_trace_free(held);
}

/* Each on its own state, the selection that of the golden. */
static void cascaded(golden *g, const ls_step *step) {
  static const char *const choices[] = {"compress_idx", "candidates", NULL};
  ls_error err = {0};
  ls_run_result ref, emu;
  ls_trace *lead = views(step->expect, choices), *bounds = NULL;
  cr_assert_eq(ls_run_step(&g->ref, step, NULL, lead, true, &ref, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_run_step(&g->emu, step, NULL, lead, true, &emu, &err), LS_OK, "%s", err.text);
  cr_assert_eq(emu.status, ref.status, "%s", emu.why.text);
  cr_assert_eq(ref.status, step->expect_refused ? LS_REFUSED : LS_OK);
  if (ref.status == LS_OK) {
    judge(g, step, &ref, &emu, g->state_bounds, ref.out, &bounds, "cascaded");
    const ls_bound_args args = {.config = g->config,
                                .weights = g->weights,
                                .step = step,
                                .values = ref.out,
                                .carries = all_carry,
                                .before = ref.before,
                                .after = ref.after,
                                .state_bounds = g->state_bounds};
    ls_trace *next = NULL;
    cr_assert_eq(g->config->layer->state_bounds(&args, bounds, &next, &err), LS_OK, "%s", err.text);
    ls_trace_free(g->state_bounds);
    g->state_bounds = next;
  }
  ls_trace_free(bounds), ls_trace_free(lead);
  ls_run_result_free(&ref), ls_run_result_free(&emu);
}

/* Both on the reference's state before the step and the golden stages; the choices are then by the same scores: the same. */
static void isolated(golden *g, const ls_step *step) {
  static const char *const choices[] = {"candidates", "compress_idx"};
  ls_error err = {0};
  ls_run_result ref, emu;
  ls_trace *bounds = NULL, *before = NULL;
  cr_assert_eq(ls_trace_copy(&before, g->ref.state, NULL), LS_OK);
  ls_run alone = {.path = g->ref.path, .ctx = g->alone.ctx};
  cr_assert_eq(ls_run_step(&alone, step, before, step->expect, true, &ref, &err), LS_OK, "%s", err.text);
  if (ref.status == LS_OK) {
    ls_trace *given = views(step->expect, NULL);
    for (int i = 0; i < ref.out->n; i++) {
      if (ls_trace_find(given, ref.out->rec[i].name) == NULL)
        cr_assert_eq(ls_trace_add_view(given, ref.out->rec[i].name, &ref.out->rec[i].t, NULL), LS_OK);
    }
    ls_run of_emu = {.path = g->emu.path, .ctx = g->emu.ctx};
    cr_assert_eq(ls_run_step(&of_emu, step, before, given, true, &emu, &err), LS_OK, "%s", err.text);
    g->emu.loaded = false; /* its context stands elsewhere now */
    judge(g, step, &ref, &emu, NULL, given, &bounds, "isolated");
    for (int i = 0; i < 2; i++) {
      const ls_tensor *a = ls_trace_tensor(ref.out, choices[i]), *b = ls_trace_tensor(emu.out, choices[i]);
      cr_assert_eq(a == NULL, b == NULL);
      if (!a) continue;
      cr_assert(ls_tensor_same_bytes(a, b), "%s step %d isolated %s", g->file, (int)step->number, choices[i]);
      g->choices++;
    }
    ls_run_result_free(&emu);
    ls_trace_free(given), ls_trace_free(bounds);
  }
  ls_run_result_free(&ref);
  ls_trace_free(before);
}

static void holds(const char *name) {
  char file[1024];
  snprintf(file, sizeof file, "%s/fixtures/golden/%s", LS_SOURCE_DIR, name);
  ls_error err = {0};
  ls_fixture *fixture = NULL;
  const ls_fixture_options options = {false, NULL};
  ls_trace *start = NULL;
  golden g = {.file = name};
  cr_assert_eq(ls_fixture_open(&fixture, file, &options, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_fixture_weights(fixture, &g.weights, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_fixture_state(fixture, &start, &err), LS_OK, "%s", err.text);
  g.config = ls_fixture_config(fixture);
  cr_assert_eq(ls_run_open(&g.ref, &ls_path_ref, g.config, g.weights, NULL, start, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_run_open(&g.alone, &ls_path_ref, g.config, g.weights, NULL, start, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_run_open(&g.emu, ls_path_find("emu"), g.config, g.weights, NULL, start, &err), LS_OK, "%s", err.text);
  for (int64_t i = 0; i < ls_fixture_steps(fixture); i++) {
    ls_step step;
    cr_assert_eq(ls_fixture_load_step(fixture, i, &step, &err), LS_OK, "%s", err.text);
    isolated(&g, &step);
    cascaded(&g, &step);
    ls_step_free(&step);
  }
  cr_assert_gt(g.compared, 0);
  cr_assert_gt(g.choices, 0);
  ls_trace_free(g.state_bounds), ls_trace_free(start);
  ls_run_close(&g.ref), ls_run_close(&g.alone), ls_run_close(&g.emu);
  ls_fixture_close(fixture);
}

Test(gpu_attn_golden, six_roles) { holds("attn_v41_six_roles.h5"); }
Test(gpu_attn_golden, six_roles_own_keys) { holds("attn_v41_six_roles_own_keys.h5"); }
Test(gpu_attn_golden, single_token) { holds("attn_v41_single_token.h5"); }
Test(gpu_attn_golden, ring_filling) { holds("attn_v41_ring_filling.h5"); }
Test(gpu_attn_golden, far_position) { holds("attn_v41_far_position.h5"); }
Test(gpu_attn_golden, mid) { holds("attn_v41_mid.h5"); }
Test(gpu_attn_golden, context_4k) { holds("attn_v41_context_4k.h5"); }

/* ---- random orders ---- */

#ifdef __SANITIZE_ADDRESS__
enum { ORDERS = 2 }; /* there for memory, not for orders, and four times as slow */
#else
enum { ORDERS = 20 };
#endif

static void expect_same_trace(const ls_trace *a, const ls_trace *b, const char *file, const ls_step *step, int order, const char *mode) {
  cr_assert_eq(a->n, b->n);
  for (int i = 0; i < a->n; i++) {
    const ls_tensor *t = ls_trace_tensor(b, a->rec[i].name);
    cr_assert(t != NULL && ls_tensor_same_bytes(&a->rec[i].t, t), "%s step %d %s, order %d: other bytes in %s", file, (int)step->number,
              mode, order, a->rec[i].name);
  }
}

/* Of one step: isolated on the golden stages, cascaded on the golden selection. */
typedef struct {
  ls_status status[2];
  ls_trace *out[2], *after[2];
} both_ways;

static void run_both_ways(both_ways *r, ls_run *run, const ls_step *step) {
  static const char *const choices[] = {"compress_idx", "candidates", NULL};
  ls_error err = {0};
  ls_trace *lead = views(step->expect, choices), *before = NULL;
  cr_assert_eq(ls_trace_copy(&before, run->state, NULL), LS_OK);
  for (int mode = 0; mode < 2; mode++) {
    ls_run_result result;
    cr_assert_eq(ls_run_step(run, step, mode == 0 ? before : NULL, mode == 0 ? step->expect : lead, true, &result, &err), LS_OK, "%s",
                 err.text);
    r->status[mode] = result.status;
    cr_assert_eq(ls_trace_copy(&r->out[mode], result.out, NULL), LS_OK);
    cr_assert_eq(ls_trace_copy(&r->after[mode], result.after, NULL), LS_OK);
    ls_run_result_free(&result);
  }
  ls_trace_free(lead), ls_trace_free(before);
}

static void free_both_ways(both_ways *r) {
  for (int mode = 0; mode < 2; mode++) ls_trace_free(r->out[mode]), ls_trace_free(r->after[mode]);
}

/* One path open at a time: the emulator looks at all buffers after every launch. */
static void in_any_order(const char *name) {
  enum { STEPS = 256 };
  static both_ways in_order[STEPS];
  char file[1024];
  snprintf(file, sizeof file, "%s/fixtures/golden/%s", LS_SOURCE_DIR, name);
  ls_error err = {0};
  ls_fixture *fixture = NULL;
  const ls_fixture_options options = {false, NULL};
  const ls_trace *weights = NULL;
  ls_trace *start = NULL;
  cr_assert_eq(ls_fixture_open(&fixture, file, &options, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_fixture_weights(fixture, &weights, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_fixture_state(fixture, &start, &err), LS_OK, "%s", err.text);
  const int64_t steps = ls_fixture_steps(fixture);
  cr_assert(steps > 0 && steps <= STEPS);
  for (int order = 0; order <= ORDERS; order++) {
    const ls_path_options random = {.emu_schedule = (uint64_t)order};
    ls_run run;
    cr_assert_eq(ls_run_open(&run, ls_path_find("emu"), ls_fixture_config(fixture), weights, &random, start, &err), LS_OK, "%s", err.text);
    for (int64_t i = 0; i < steps; i++) {
      ls_step step;
      both_ways now;
      cr_assert_eq(ls_fixture_load_step(fixture, i, &step, &err), LS_OK, "%s", err.text);
      run_both_ways(&now, &run, &step);
      for (int mode = 0; mode < 2 && order > 0; mode++) {
        const char *word = mode == 0 ? "isolated" : "cascaded";
        cr_assert_eq(now.status[mode], in_order[i].status[mode]);
        expect_same_trace(in_order[i].out[mode], now.out[mode], name, &step, order, word);
        expect_same_trace(in_order[i].after[mode], now.after[mode], name, &step, order, word);
      }
      if (order == 0)
        in_order[i] = now;
      else
        free_both_ways(&now);
      ls_step_free(&step);
    }
    ls_run_close(&run);
  }
  for (int64_t i = 0; i < steps; i++) free_both_ways(&in_order[i]);
  ls_trace_free(start);
  ls_fixture_close(fixture);
}

Test(gpu_attn_golden, six_roles_in_any_order_of_threads) { in_any_order("attn_v41_six_roles.h5"); }
Test(gpu_attn_golden, six_roles_own_keys_in_any_order_of_threads) { in_any_order("attn_v41_six_roles_own_keys.h5"); }
Test(gpu_attn_golden, single_token_in_any_order_of_threads) { in_any_order("attn_v41_single_token.h5"); }
Test(gpu_attn_golden, ring_filling_in_any_order_of_threads) { in_any_order("attn_v41_ring_filling.h5"); }
