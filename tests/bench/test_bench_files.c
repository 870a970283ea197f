/* Figures in files: written and read back, cut, broken, of another program. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "bench/bench_record.h"
#include "bench/bench_statistics.h"

static char path[256];
static bench_records made, found;
static ls_error err;

static void begin(void) {
  snprintf(path, sizeof path, "%s/bench-files-%d", LS_BINARY_DIR, (int)getpid());
  const double a[] = {1.5e-4, 1.25e-4, 2e-4}, b[] = {3e-3};
  bench_record *r = bench_records_add(&made, a, 3);
  snprintf(r->name, sizeof r->name, "cuda/dflash/rows=8");
  snprintf(r->commit, sizeof r->commit, "abc1234");
  snprintf(r->date, sizeof r->date, "2026-11-30T12:00:00Z");
  snprintf(r->machine_class, sizeof r->machine_class, "NVIDIA H200");
  r->floor = 8.5e-5, r->bytes = 3.67e8, r->flops = 2.9e9, r->back_to_back = 1.2e-4, r->launches = 4, r->sm_mhz = 1980;
  r = bench_records_add(&made, b, 1);
  snprintf(r->name, sizeof r->name, "cuda/dflash/rows=8/ctx_combined");
  r->part = true;
  r = bench_records_add(&made, NULL, 0);
  snprintf(r->name, sizeof r->name, "cuda/attn/prefill/m=2048");
  snprintf(r->why, sizeof r->why, "the GPU's clock was held down: <heat> \"now\"");
  r->outcome = BENCH_NOT_MEASURED;
}
static void end(void) {
  bench_records_free(&made);
  bench_records_free(&found);
  unlink(path);
}
TestSuite(bench_files, .init = begin, .fini = end);

static void put(const char *text) {
  FILE *out = fopen(path, "w");
  cr_assert_not_null(out);
  fputs(text, out);
  fclose(out);
}

static char *whole(void) {
  static char text[1 << 16];
  FILE *in = fopen(path, "r");
  cr_assert_not_null(in);
  text[fread(text, 1, sizeof text - 1, in)] = '\0';
  fclose(in);
  return text;
}

Test(bench_files, json_comes_back) {
  bench_machine machine = {.cores = 2, .host = "box", .machine_class = "NVIDIA H200"};
  cr_assert_eq(bench_write_json(&made, &machine, path, "lockstep", &err), LS_OK);
  cr_assert_eq(bench_read_json(&found, path, &err), LS_OK, "%s", err.text);
  cr_assert_eq(found.n, 3);
  const bench_record *r = bench_records_find(&found, "cuda/dflash/rows=8");
  cr_assert_eq(r->n, 3);
  cr_expect_float_eq(r->seconds[0], 1.5e-4, 1e-12);
  cr_expect_float_eq(r->floor, 8.5e-5, 1e-12);
  cr_expect_float_eq(r->bytes, 3.67e8, 1);
  cr_expect_str_eq(r->machine_class, "NVIDIA H200");
  r = bench_records_find(&found, "cuda/attn/prefill/m=2048");
  cr_expect_eq(r->outcome, BENCH_NOT_MEASURED);
  cr_expect_eq(r->n, 0);
}

Test(bench_files, another_programs_json_is_read) {
  put("{\"context\": {}, \"benchmarks\": [{\"name\": \"BM_x\", \"real_time\": 2.5, \"time_unit\": \"ms\"},"
      "{\"name\": \"BM_x\", \"run_type\": \"iteration\", \"real_time\": 3.5, \"time_unit\": \"ms\"},"
      "{\"name\": \"BM_x_mean\", \"run_type\": \"aggregate\", \"real_time\": 3, \"time_unit\": \"ms\"}]}");
  cr_assert_eq(bench_read_json(&found, path, &err), LS_OK, "%s", err.text);
  cr_assert_eq(found.n, 1);
  cr_expect_float_eq(bench_median(found.record[0].seconds, 2), 3e-3, 1e-12);
}

Test(bench_files, json_that_is_none_is_one_line) {
  static const char *const broken[] = {"",
                                       "{",
                                       "[]",
                                       "{\"benchmarks\": 3}",
                                       "{\"benchmarks\": [{}]}",
                                       "{\"benchmarks\": [{\"name\": \"a\", \"real_time\": -1, \"time_unit\": \"us\"}]}",
                                       "{\"benchmarks\": [{\"name\": \"a\", \"real_time\": 1, \"time_unit\": \"week\"}]}"};
  for (size_t i = 0; i < sizeof broken / sizeof *broken; i++) {
    put(broken[i]);
    cr_expect_eq(bench_read_json(&found, path, &err), LS_BAD_FIXTURE, "%s", broken[i]);
    cr_expect(strstr(err.text, path) != NULL && strchr(err.text, '\n') == NULL, "%s", err.text);
    bench_records_free(&found);
  }
}

Test(bench_files, history_is_appended_to_and_comes_back_in_order) {
  cr_assert_eq(bench_append_history(&made, path, &err), LS_OK);
  made.record[0].seconds[0] = 9e-4;
  cr_assert_eq(bench_append_history(&made, path, &err), LS_OK);
  cr_assert_eq(bench_read_history(&found, path, &err), LS_OK, "%s", err.text);
  cr_assert_eq(found.n, 6);
  cr_expect_float_eq(found.record[0].seconds[0], 1.5e-4, 1e-10);
  cr_expect_float_eq(found.record[3].seconds[0], 9e-4, 1e-10);
  cr_expect_str_eq(found.record[3].commit, "abc1234");
  cr_expect(found.record[1].part && !found.record[0].part);
  cr_expect_eq(found.record[2].outcome, BENCH_NOT_MEASURED);
  cr_expect_str_eq(found.record[2].why, made.record[2].why);
}

Test(bench_files, a_line_that_was_cut_off_is_passed_over_and_a_broken_one_is_not) {
  cr_assert_eq(bench_append_history(&made, path, &err), LS_OK);
  FILE *out = fopen(path, "a");
  fputs("{\"name\": \"emu/x\", \"us\": [1", out);
  fclose(out);
  cr_assert_eq(bench_read_history(&found, path, &err), LS_OK);
  cr_expect_eq(found.n, 3);
  bench_records_free(&found);
  out = fopen(path, "a");
  fputs("\n", out);
  fclose(out);
  cr_expect_eq(bench_read_history(&found, path, &err), LS_BAD_FIXTURE);
  cr_expect_not_null(strstr(err.text, "line 4"), "%s", err.text);
}

Test(bench_files, a_page_holds_every_name_and_escapes_what_it_is_told) {
  cr_assert_eq(bench_write_plot(&made, path, &err), LS_OK);
  const char *text = whole();
  for (int i = 0; i < made.n; i++) cr_expect_not_null(strstr(text, made.record[i].name));
  cr_expect_not_null(strstr(text, "&lt;heat&gt; &quot;now&quot;"));
  cr_expect_not_null(strstr(text, "class=\"gone\""), "what was not measured is drawn as such");
  cr_expect_null(strstr(text, "http"), "nothing is loaded from elsewhere");
  cr_expect_not_null(strstr(text, "</html>"));
}

Test(bench_files, rounds_are_merged_by_name_and_one_that_failed_stays_failed) {
  cr_assert_eq(bench_records_merge(&found, &made, &err), LS_OK);
  bench_records_free(&found);
  const double more[] = {4e-4};
  bench_record *r = bench_records_add(&made, more, 1);
  snprintf(r->name, sizeof r->name, "cuda/attn/prefill/m=2048");
  r = bench_records_add(&made, more, 1);
  snprintf(r->name, sizeof r->name, "cuda/dflash/rows=8");
  cr_assert_eq(bench_records_merge(&found, &made, &err), LS_OK);
  cr_assert_eq(found.n, 3);
  cr_expect_eq(bench_records_find(&found, "cuda/dflash/rows=8")->n, 4);
  cr_expect_eq(bench_records_find(&found, "cuda/attn/prefill/m=2048")->outcome, BENCH_NOT_MEASURED);
}
