/* The gate on made rounds: what it calls a regression, what it must not, and what it leaves undecided. */
#include <criterion/criterion.h>
#include <string.h>

#include "bench/bench_gate.h"
#include "core/ls_random.h"

static bench_records before, after;
static ls_random noise;

static void begin(void) { noise = (ls_random){.seed = 7}; }
static void end(void) {
  bench_records_free(&before);
  bench_records_free(&after);
}
TestSuite(bench_gate, .init = begin, .fini = end);

/* A round of 9 samples around a median; width: of the rounds' own scatter. */
static bench_record *add_round(bench_records *to, const char *name, double median, double width) {
  double v[9];
  const double at = median * (1 + width * (2 * ls_random_unit(&noise) - 1));
  for (int i = 0; i < 9; i++) v[i] = at * (1 + 0.002 * (i - 4));
  bench_record *r = bench_records_add(to, v, 9);
  snprintf(r->name, sizeof r->name, "%s", name);
  return r;
}

static bench_comparison compare(double slower, double width, int rounds) {
  bench_comparison c;
  end();
  for (int i = 0; i < rounds; i++) add_round(&before, "emu/x", 1e-4, width), add_round(&after, "emu/x", 1e-4 * slower, width);
  bench_compare(&c, "emu/x", &before, &after, 0.05);
  return c;
}

Test(bench_gate, six_percent_slower_is_a_regression) {
  const bench_comparison c = compare(1.06, 0.005, 10);
  cr_expect_eq(c.verdict, BENCH_REGRESSION);
  cr_expect_float_eq(c.effect, 0.06, 0.006);
  cr_expect_eq(bench_gate_status(&c, 1), LS_DIVERGED);
}

Test(bench_gate, faster_is_told_and_passes) {
  const bench_comparison c = compare(0.9, 0.005, 10);
  cr_expect_eq(c.verdict, BENCH_FASTER);
  cr_expect_eq(bench_gate_status(&c, 1), LS_OK);
}

/* sure (p is tiny) and beyond the noise, but smaller than what was asked for */
Test(bench_gate, below_the_threshold_is_the_same) { cr_expect_eq(compare(1.03, 0.001, 10).verdict, BENCH_SAME); }

/* 8% beyond the threshold, with rounds that scatter by 20% to either side: not beyond the noise */
Test(bench_gate, within_the_noise_is_the_same) {
  for (int i = 0; i < 20; i++) cr_expect_neq(compare(1.08, 0.2, 10).verdict, BENCH_REGRESSION);
}

Test(bench_gate, the_same_build_alarms_in_fewer_than_one_in_twenty) {
  int alarms = 0;
  for (int i = 0; i < 400; i++) {
    const bench_verdict v = compare(1, 0.08, 10).verdict;
    alarms += v == BENCH_REGRESSION;
  }
  cr_expect_lt(alarms, 20, "%d of 400", alarms);
}

Test(bench_gate, a_round_that_was_not_measured_leaves_it_undecided) {
  bench_comparison c = compare(1, 0.001, 10);
  bench_record *r = add_round(&after, "emu/x", 1e-4, 0);
  r->outcome = BENCH_NOT_MEASURED;
  snprintf(r->why, sizeof r->why, "other processes had 40%% of the cores");
  bench_compare(&c, "emu/x", &before, &after, 0.05);
  cr_expect_eq(c.verdict, BENCH_UNDECIDED);
  cr_expect_str_eq(c.why, "other processes had 40% of the cores");
  cr_expect_eq(bench_gate_status(&c, 1), LS_UNAVAILABLE, "never a pass");
}

Test(bench_gate, few_rounds_are_undecided) {
  const bench_comparison c = compare(2, 0.001, 4);
  cr_expect_eq(c.verdict, BENCH_UNDECIDED);
  cr_expect_not_null(strstr(c.why, "at least 5 a side"));
}

Test(bench_gate, nothing_compared_is_no_pass) { cr_expect_eq(bench_gate_status(NULL, 0), LS_UNAVAILABLE); }

Test(bench_gate, a_regression_counts_more_than_an_undecided_one) {
  bench_comparison c[2] = {{.verdict = BENCH_UNDECIDED}, {.verdict = BENCH_REGRESSION}};
  cr_expect_eq(bench_gate_status(c, 2), LS_DIVERGED);
}

static void add_line(const char *commit, const char *machine, double median, bench_outcome outcome) {
  bench_record *r = add_round(&before, "emu/x", median, 0);
  snprintf(r->commit, sizeof r->commit, "%s", commit);
  snprintf(r->machine_class, sizeof r->machine_class, "%s", machine);
  r->outcome = outcome;
}

Test(bench_gate, a_baseline_is_the_last_other_commit_on_this_kind_of_machine) {
  ls_error err;
  add_line("aaa", "box", 1, BENCH_MEASURED);
  add_line("bbb", "box", 2, BENCH_MEASURED);
  add_line("bbb", "box", 3, BENCH_NOT_MEASURED);
  add_line("bbb", "box", 4, BENCH_MEASURED);
  add_line("ccc", "other box", 5, BENCH_MEASURED);
  add_line("now", "box", 6, BENCH_MEASURED);
  cr_assert_eq(bench_baseline(&after, &before, "emu/x", "box", "now", 20, &err), LS_OK);
  cr_assert_eq(after.n, 2);
  cr_expect_float_eq(after.record[0].seconds[4], 4, 1e-12);
  cr_expect_float_eq(after.record[1].seconds[4], 2, 1e-12);
  bench_records_free(&after);
  cr_assert_eq(bench_baseline(&after, &before, "emu/x", "box", "now", 1, &err), LS_OK);
  cr_expect_eq(after.n, 1, "no more than were asked for");
  bench_records_free(&after);
  cr_assert_eq(bench_baseline(&after, &before, "emu/y", "box", "now", 20, &err), LS_OK);
  cr_expect_eq(after.n, 0);
}
