/* Scenarios: their names, the fixtures that they make, and the work that is counted. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench_scenario.h"

static ls_error err;

Test(bench_scenario, names_say_what_is_timed) {
  bench_scenario s;
  cr_assert_eq(bench_scenario_parse(&s, "dflash/rows=8", &err), LS_OK);
  cr_expect(s.operation == BENCH_CONTEXT_WRITE && s.size == 8 && !s.tiny);
  cr_assert_eq(bench_scenario_parse(&s, "tiny/attn/decode/full-r2/n=64", &err), LS_OK);
  cr_expect(s.operation == BENCH_DECODE && s.role == BENCH_FULL2 && s.size == 64 && s.tiny);
  cr_assert_eq(bench_scenario_parse(&s, "attn/prefill/m=2048", &err), LS_OK);
  cr_expect(s.operation == BENCH_PREFILL && s.role == BENCH_INDEX1 && s.size == 2048);
  cr_assert_eq(bench_scenario_parse(&s, "attn/prefill/reuse-r1/m=7", &err), LS_OK);
  cr_expect(s.role == BENCH_REUSE1 && s.size == 7);
}

Test(bench_scenario, what_is_no_name_is_one_line) {
  static const char *const none[] = {"",
                                     "dflash",
                                     "dflash/rows=0",
                                     "dflash/rows=2177",
                                     "dflash/rows=8 ",
                                     "dflash/rows=+8",
                                     "dflash/rows=99999999999999999999",
                                     "attn/decode/n=4096",
                                     "attn/decode/full-r3/n=4",
                                     "attn/decode/full-r1/m=4",
                                     "attn/decode/full-r1/n=1",
                                     "attn/decode/full-r1/n=1048577",
                                     "attn/prefill/m=",
                                     "tiny/tiny/dflash/rows=1"};
  bench_scenario s;
  for (size_t i = 0; i < sizeof none / sizeof *none; i++)
    cr_expect(bench_scenario_parse(&s, none[i], &err) == LS_USAGE && strchr(err.text, '\n') == NULL, "'%s'", none[i]);
}

Test(bench_scenario, a_glob_chooses_from_the_list_and_a_name_stands_for_itself) {
  bench_scenario *s = NULL;
  int n = 0;
  cr_assert_eq(bench_scenarios(&s, &n, "dflash/*", &err), LS_OK);
  cr_expect_eq(n, 5);
  free(s);
  cr_assert_eq(bench_scenarios(&s, &n, "dflash/rows=5", &err), LS_OK);
  cr_expect(n == 1 && s[0].size == 5);
  free(s);
  cr_assert_eq(bench_scenarios(&s, &n, NULL, &err), LS_OK);
  for (int i = 0; i < n; i++) cr_expect(!s[i].tiny, "%s", s[i].name);
  free(s);
  cr_expect_eq(bench_scenarios(&s, &n, "nothing*", &err), LS_USAGE);
  free(s);
}

/* Every scenario of the list is a fixture that opens and whose last step is the one that its name says. */
Test(bench_scenario, each_makes_a_sound_fixture) {
  bench_scenario *s = NULL;
  int n = 0;
  char file[256];
  snprintf(file, sizeof file, "%s/bench-scenario-%d.h5", LS_BINARY_DIR, (int)getpid());
  cr_assert_eq(bench_scenarios(&s, &n, "*", &err), LS_OK);
  cr_assert_gt(n, 20);
  for (int i = 0; i < n; i++) {
    ls_fixture *fixture = NULL;
    cr_assert_eq(bench_scenario_make(&s[i], file, &err), LS_OK, "%s: %s", s[i].name, err.text);
    cr_assert_eq(ls_fixture_open(&fixture, file, NULL, &err), LS_OK, "%s: %s", s[i].name, err.text);
    const ls_step *last = ls_fixture_step_info(fixture, ls_fixture_steps(fixture) - 1);
    const ls_config *config = ls_fixture_config(fixture);
    cr_expect_eq(last->op, s[i].operation == BENCH_CONTEXT_WRITE ? LS_OP_CONTEXT_WRITE : LS_OP_FORWARD, "%s", s[i].name);
    if (s[i].operation == BENCH_DECODE) {
      const int64_t ratio = config->attn.compress_ratio[last->layer];
      cr_expect_eq((last->start_pos + 1) / (ratio > 0 ? ratio : 1), s[i].size, "%s", s[i].name);
    } else {
      cr_expect_eq(last->rows, s[i].size, "%s", s[i].name);
    }
    ls_fixture_close(fixture);
  }
  unlink(file);
  free(s);
}

static bench_work work_of(const char *name) {
  bench_scenario s;
  bench_work w = {0, 0};
  cr_assert_eq(bench_scenario_parse(&s, name, &err), LS_OK);
  cr_assert_eq(bench_scenario_work(&w, &s, 2, &err), LS_OK);
  return w;
}

/* Against figures that were worked out apart from this code (the performance notes of the project), in MB and GFLOP. */
Test(bench_scenario, work_is_what_the_shapes_come_to) {
  static const struct {
    const char *name;
    double megabytes, gigaflops; /* 0: not told there */
  } known[] = {
      {"dflash/rows=1", 367.1, 0.37},
      {"dflash/rows=8", 367.6, 2.9},
      {"dflash/rows=256", 385.4, 94.0},
      {"dflash/rows=2048", 513.8, 751.6},
      {"attn/decode/reuse-r1/n=4096", 253.9, 0},
      {"attn/decode/index-r1/n=4096", 265.7, 0},
      {"attn/decode/index-r1/n=65536", 281.5, 0},
      {"attn/decode/index-r1/n=1048576", 533.1, 0},
      {"attn/prefill/m=2048", 0, 518.6 + 22 + 17.2 + 153.6},
      {"attn/prefill/m=4096", 0, 1037 + 44 + 68.7 + 325.4},
  };
  for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
    const bench_work w = work_of(known[i].name);
    if (known[i].megabytes > 0)
      cr_expect_float_eq(1e-6 * w.bytes / known[i].megabytes, 1, 0.002, "%s: %g MB", known[i].name, 1e-6 * w.bytes);
    if (known[i].gigaflops > 0)
      cr_expect_float_eq(1e-9 * w.flops / known[i].gigaflops, 1, 0.02, "%s: %g GFLOP", known[i].name, 1e-9 * w.flops);
  }
}
