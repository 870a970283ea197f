/* A scenario on a path: verified, timed, verified again; and what does not pass is never timed. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "bench/bench_run.h"

static volatile sig_atomic_t stop;
static ls_error err;
static bench_result result;

static bench_options options_for(const ls_path *path) {
  return (bench_options){.path = path, .samples = 3, .warmup = 1, .back_to_back = 2, .attempts = 1, .company = true, .interrupted = &stop};
}

static ls_status run(const char *name, const bench_options *options, bench_round *round, void *arg) {
  bench_scenario s;
  bench_result_free(&result);
  memset(&result, 0, sizeof result);
  snprintf(result.name, sizeof result.name, "%s/%s", options->path->name, name);
  cr_assert_eq(bench_scenario_parse(&s, name, &err), LS_OK);
  return bench_run_scenario(&result, &s, options, round, arg, &err);
}

static void end(void) { bench_result_free(&result); }
TestSuite(bench_run, .fini = end, .timeout = 120);

Test(bench_run, each_tiny_scenario_runs_on_ref_and_emu) {
  static const char *const names[] = {"tiny/dflash/rows=1",
                                      "tiny/dflash/rows=8",
                                      "tiny/attn/decode/window/n=20",
                                      "tiny/attn/decode/reuse-r1/n=20",
                                      "tiny/attn/decode/full-r2/n=20",
                                      "tiny/attn/decode/full-r1/n=20",
                                      "tiny/attn/decode/index-r1/n=20",
                                      "tiny/attn/decode/masked-r1/n=20",
                                      "tiny/attn/prefill/m=9"};
  const ls_path *paths[] = {&ls_path_ref, ls_path_find("emu")};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    for (int p = 0; p < 2; p++) {
      bench_options o = options_for(paths[p]);
      o.parts = i % 4 == 0;
      cr_assert_eq(run(names[i], &o, NULL, NULL), LS_OK, "%s: %s", names[i], err.text);
      cr_assert_neq(result.outcome, BENCH_NOT_VERIFIED, "%s: %s", names[i], result.why);
      cr_assert_geq(result.timing.n, 1);
      for (int s = 0; s < 3; s++) cr_expect_gt(result.timing.part[0].seconds[s], 0);
      if (o.parts && result.outcome == BENCH_MEASURED) cr_expect_gt(result.timing.n, 3, "%s: parts", names[i]);
      cr_expect(result.work.bytes > 0 && result.work.flops > 0 && result.digest != 0);
    }
  }
}

Test(bench_run, the_same_scenario_gives_the_same_bytes) {
  const bench_options o = options_for(ls_path_find("emu"));
  cr_assert_eq(run("tiny/dflash/rows=8", &o, NULL, NULL), LS_OK);
  const uint64_t first = result.digest;
  cr_assert_eq(run("tiny/dflash/rows=8", &o, NULL, NULL), LS_OK);
  cr_expect_eq(result.digest, first);
}

static bool count(void *arg, const bench_result *r) { return r == NULL || ++*(int *)arg < 4; }

Test(bench_run, rounds_are_as_many_as_are_asked_for) {
  const bench_options o = options_for(ls_path_find("emu"));
  int rounds = 0;
  cr_assert_eq(run("tiny/dflash/rows=1", &o, count, &rounds), LS_OK);
  cr_expect_eq(rounds, 4);
}

/* emu, but for one bit of what a step leaves. */
static ls_path crooked;
static int crooked_runs;
static ls_status crooked_step(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, bool out_rings, ls_error *why) {
  LS_TRY(ls_path_find("emu")->step(ctx, step, given, out, out_rings, why));
  const ls_tensor *t = ls_trace_tensor(out, "ctx_normed");
  if (t != NULL) *(uint16_t *)t->data ^= 0x0400;
  return LS_OK;
}
static ls_status crooked_time(void *ctx, const ls_step *step, const ls_timing_how *how, ls_timing *timing, ls_trace *last, ls_error *why) {
  crooked_runs++;
  return ls_path_find("emu")->time_step(ctx, step, how, timing, last, why);
}

Test(bench_run, what_does_not_pass_is_not_timed) {
  crooked = *ls_path_find("emu");
  crooked.name = "crooked";
  crooked.step = crooked_step;
  crooked.time_step = crooked_time;
  const bench_options o = options_for(&crooked);
  int rounds = 0;
  cr_assert_eq(run("tiny/dflash/rows=8", &o, count, &rounds), LS_OK);
  cr_expect_eq(result.outcome, BENCH_NOT_VERIFIED);
  cr_expect_not_null(strstr(result.why, "ctx_normed"), "%s", result.why);
  cr_expect_eq(crooked_runs, 0);
  cr_expect_eq(rounds, 0);
}

/* emu, but a timed run leaves something else than a traced one: a graph that was captured wrong. */
static ls_status stale_save(void *ctx, ls_trace *state, ls_error *why) {
  LS_TRY(ls_path_find("emu")->save(ctx, state, why));
  const ls_tensor *ring = ls_trace_tensor(state, "k_ring");
  if (crooked_runs > 0) *(uint16_t *)ring->data ^= 1;
  return LS_OK;
}

Test(bench_run, what_the_last_timed_run_left_is_held_against_the_verified_one) {
  crooked = *ls_path_find("emu");
  crooked.save = stale_save;
  crooked.time_step = crooked_time;
  const bench_options o = options_for(&crooked);
  cr_assert_eq(run("tiny/dflash/rows=8", &o, NULL, NULL), LS_OK);
  cr_expect_eq(result.outcome, BENCH_NOT_VERIFIED);
  cr_expect_str_eq(result.why, "k_ring after the last timed run is not what the verified run left");
}

Test(bench_run, an_interrupt_is_not_measured) {
  const bench_options o = options_for(ls_path_find("emu"));
  stop = 1;
  cr_assert_eq(run("tiny/dflash/rows=8", &o, NULL, NULL), LS_OK, "%s", err.text);
  stop = 0;
  cr_expect_eq(result.outcome, BENCH_NOT_MEASURED);
}

Test(bench_run, a_fixture_whose_last_step_is_no_work_is_refused) {
  const bench_options o = options_for(ls_path_find("emu"));
  bench_result_free(&result);
  memset(&result, 0, sizeof result);
  cr_expect_eq(bench_run_fixture(&result, LS_SOURCE_DIR "/fixtures/golden/missing.h5", &o, NULL, NULL, &err), LS_BAD_FIXTURE);
}
