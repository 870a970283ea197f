/* lockstep gen attn from outside: what its files hold once the reference has answered, and how wrong options are told. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fixtures/ls_fixture.h"
#include "shell_run.h"

#define LOCKSTEP LS_BINARY_DIR "/lockstep"

/* Runs lockstep; both streams land in out. */
static int lockstep(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int lockstep(char *out, size_t size, const char *format, ...) {
  char arguments[1024];
  va_list list;
  va_start(list, format);
  vsnprintf(arguments, sizeof arguments, format, list);
  va_end(list);
  return shell_run(out, size, "%s %s 2>&1", LOCKSTEP, arguments);
}

static const char *scratch(const char *name) {
  static char path[2][512];
  static int next;
  char *p = path[next++ % 2];
  snprintf(p, sizeof path[0], "%s/gen-attn-%d-%s", LS_BINARY_DIR, (int)getpid(), name);
  return p;
}

static ls_fixture *generate(const char *options) {
  static char out[1 << 14];
  const char *file = scratch("a.h5");
  ls_fixture *fixture;
  ls_error err = {0};
  const int code = lockstep(out, sizeof out, "gen attn %s --out %s", options, file);
  cr_assert_eq(code, 0, "%s: exit %d: %s", options, code, out);
  cr_assert_eq(ls_fixture_open(&fixture, file, NULL, &err), LS_OK, "%s: %s", options, err.text);
  unlink(file);
  return fixture;
}

Test(gen_attn, the_reference_decides_every_scenario_as_it_was_made) {
  static const char *const kinds[] = {"normal", "shifted", "heavy", "constant", "tied", "amax", "tiny", "huge"};
  for (int i = 0; i < 8; i++) {
    char options[256];
    snprintf(options, sizeof options, "--seed %d --values %s --refusals --jump --decode 4 %s %s", i + 1, kinds[i],
             i % 3 == 2 ? "--context 300" : "", i % 2 == 0 ? "--index-keys own" : "");
    ls_fixture *fixture = generate(options);
    int64_t stored = 0;
    for (int64_t s = 0; s < ls_fixture_steps(fixture); s++) {
      ls_step step;
      ls_error err = {0};
      cr_assert_eq(ls_fixture_load_step(fixture, s, &step, &err), LS_OK, "%s: %s", options, err.text);
      cr_expect_eq(ls_trace_tensor(step.expect, "out") == NULL, step.expect_refused, "%s, step %d", options, (int)s);
      stored += step.expect->n;
      ls_step_free(&step);
    }
    cr_expect_gt(stored, 100);
    ls_fixture_close(fixture);
  }
}

/* Pairs of visible scores of one query that are equal and not zero. */
static int64_t ties(ls_fixture *fixture) {
  int64_t found = 0;
  for (int64_t s = 0; s < ls_fixture_steps(fixture); s++) {
    ls_step step;
    cr_assert_eq(ls_fixture_load_step(fixture, s, &step, NULL), LS_OK);
    const ls_tensor *score = ls_trace_tensor(step.expect, "index_score");
    for (int64_t t = 0; score != NULL && t < score->dim[0]; t++) {
      for (int64_t a = 0; a < score->dim[1]; a++) {
        const double v = ls_tensor_get(score, t * score->dim[1] + a);
        for (int64_t b = a + 1; isfinite(v) && v != 0 && b < score->dim[1]; b++) found += ls_tensor_get(score, t * score->dim[1] + b) == v;
      }
    }
    ls_step_free(&step);
  }
  return found;
}

Test(gen_attn, tied_scores_are_tied_far_more_often_than_others) {
  ls_fixture *tied = generate("--seed 2 --values tied --prefill 24 --roles reindex"),
             *normal = generate("--seed 2 --values normal --prefill 24 --roles reindex");
  const int64_t of_tied = ties(tied), of_normal = ties(normal);
  cr_expect(of_tied > 100 && of_tied > 10 * of_normal, "%lld ties, %lld with normal values", (long long)of_tied, (long long)of_normal);
  ls_fixture_close(tied);
  ls_fixture_close(normal);
}

/* The largest |q . kv| * head_dim^-0.5 of the first step. */
static double largest_logit(ls_fixture *fixture) {
  const ls_attn_config *c = &ls_fixture_config(fixture)->attn;
  ls_step step;
  double largest = 0;
  cr_assert_eq(ls_fixture_load_step(fixture, 0, &step, NULL), LS_OK);
  const ls_tensor *q = ls_trace_tensor(step.expect, "q"), *kv = ls_trace_tensor(step.expect, "kv");
  for (int64_t h = 0; h < q->dim[0] * c->n_heads; h++) {
    for (int64_t t = 0; t < kv->dim[0]; t++) {
      double dot = 0;
      for (int64_t i = 0; i < c->head_dim; i++) dot += ls_tensor_get(q, h * c->head_dim + i) * ls_tensor_get(kv, t * c->head_dim + i);
      largest = fmax(largest, fabs(dot) / sqrt((double)c->head_dim));
    }
  }
  ls_step_free(&step);
  return largest;
}

Test(gen_attn, huge_values_bring_logits_near_1e5) {
  ls_fixture *huge = generate("--seed 2 --values huge --prefill 8"), *normal = generate("--seed 2 --values normal --prefill 8");
  const double of_huge = largest_logit(huge), of_normal = largest_logit(normal);
  cr_expect(of_huge > 5e4 && of_huge < 2e6, "%g", of_huge);
  cr_expect(of_normal > 0.5 && of_normal < 50, "%g", of_normal);
  ls_fixture_close(huge);
  ls_fixture_close(normal);
}

Test(gen_attn, the_same_options_give_the_same_bytes_whatever_the_threads) {
  static char out[1 << 14];
  const char *a = scratch("x.h5"), *b = scratch("y.h5");
  cr_assert_eq(lockstep(out, sizeof out, "gen attn --seed 9 --refusals --threads 1 --out %s", a), 0, "%s", out);
  cr_assert_eq(lockstep(out, sizeof out, "gen attn --seed 9 --refusals --threads 2 --out %s", b), 0, "%s", out);
  cr_expect_eq(shell_run(NULL, 0, "cmp %s %s", a, b), 0);
  unlink(a);
  unlink(b);
}

static void refused(const char *arguments, const char *text) {
  static char out[1 << 14];
  const int code = lockstep(out, sizeof out, "%s", arguments);
  const char *end = strchr(out, '\n');
  cr_expect_eq(code, 2, "%s: exit %d: %s", arguments, code, out);
  cr_expect_not_null(strstr(out, text), "%s: expected '%s' in: %s", arguments, text, out);
  cr_expect(end != NULL && end[1] == '\0', "%s: expected one line, found: %s", arguments, out);
}

Test(gen_attn, wrong_options_are_exit_2_with_one_line) {
  const char *file = scratch("none.h5");
  char arguments[1024];
  static const char *const wrong[][2] = {{"--shape huge", "--shape: expected tiny, mid, real or small, found 'huge'"},
                                         {"--values odd", "--values: expected normal, shifted"},
                                         {"--roles window,full3", "found 'full3'"},
                                         {"--roles ''", "--roles"},
                                         {"--roles window,", "--roles"},
                                         {"--index-keys mine", "--index-keys: expected published or own"},
                                         {"--expect gold", "--expect"},
                                         {"--decode -1", "--decode"},
                                         {"--prefill many", "--prefill"},
                                         {"--context 99999999999", "--context"},
                                         {"--prefill 4 --context 9", "prefill"},
                                         {"--prefill 0 --decode 0", "decode"},
                                         {"--context 1", "context: expected at least the ratio"},
                                         {"--straddle 1", "unknown option '--straddle'"},
                                         {"more", "unexpected argument 'more'"}};
  for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
    snprintf(arguments, sizeof arguments, "gen attn --out %s %s", file, wrong[i][0]);
    refused(arguments, wrong[i][1]);
  }
  cr_expect_neq(access(file, F_OK), 0, "a file was left behind");
  refused("gen attn", "--out FILE is needed");
  refused("gen attn --out", "needs a value");
  refused("gen mamba", "expected the layer 'dflash' or 'attn', found 'mamba'");
  refused("gen dflash --out x.h5 --roles all", "unknown option '--roles'");
}

Test(gen_attn, help_lists_every_option) {
  static char out[1 << 14];
  static const char *const options[] = {"--shape", "--seed",   "--roles",  "--prefill",  "--decode",  "--context",
                                        "--jump",  "--values", "--expect", "--refusals", "--threads", "--index-keys"};
  cr_expect_eq(lockstep(out, sizeof out, "gen attn --help"), 0);
  for (size_t i = 0; i < sizeof options / sizeof options[0]; i++) cr_expect_not_null(strstr(out, options[i]), "%s", options[i]);
  for (int i = 0; i < LS_VALUE_KINDS; i++) cr_expect_not_null(strstr(out, ls_make_values_names[i]), "%s", ls_make_values_names[i]);
  for (int i = 0; i < LS_ROLES; i++) cr_expect_not_null(strstr(out, ls_make_role_names[i]), "%s", ls_make_role_names[i]);
}

Test(gen_attn, an_interrupt_leaves_no_file) {
  const char *file = scratch("stopped.h5");
  const int status = shell_run(NULL, 0, "timeout --preserve-status -s INT 1 %s gen attn --decode 100000 --expect none --out %s 2>/dev/null",
                               LOCKSTEP, file);
  cr_expect_eq(status, 130, "status %d", status);
  cr_expect_neq(shell_run(NULL, 0, "ls %s* 2>/dev/null", file), 0, "left behind");
}
