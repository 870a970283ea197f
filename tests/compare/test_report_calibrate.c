/* What `verify --calibrate` prints: a bound that is wider than needed is named, and nothing else is. */
#include "report_scene.h"

static char *calibration(const ls_report *report) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  MUST(ls_report_calibrate(report, out, err));
  fclose(out);
  return text;
}

static void add(ls_report *report, const char *name, ls_mode mode, ls_verdict verdict, double use, int64_t differing) {
  ls_result r;
  ls_result_init(&r);
  r.verdict = verdict, r.count = 1000, r.bit_equal = 1000 - differing, r.use = use, r.rows = 8;
  if (differing > 0) ls_spread_add_use(&r.spread, use, differing);
  MUST(ls_report_stage(report, 1, name, 0, "ref-emu", mode, &r, err));
}

Test(report_calibrate, a_bound_of_which_a_twentieth_is_used_is_too_wide) {
  static const struct {
    const char *stage;
    ls_mode mode;
    ls_verdict verdict;
    double use;
    int64_t differing;
    bool too_wide;
  } tried[] = {
      {"k_rope", LS_ISOLATED, LS_PASS, 0.05, 5, true},    {"k_rope", LS_ISOLATED, LS_PASS, 0.0501, 5, false},
      {"k_rope", LS_ISOLATED, LS_PASS, 0.001, 1, true},   {"k_rope", LS_ISOLATED, LS_PASS, 0, 0, false}, /* wholly equal: says nothing */
      {"k_rope", LS_CASCADED, LS_PASS, 0.01, 5, false}, /* carried bounds are meant to be wide */
      {"k_rope", LS_ISOLATED, LS_SHARED, 0.01, 5, false}, {"v_ring", LS_ISOLATED, LS_PASS, 0.02, 5, true},
  };
  for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
    ls_report *report = new_report();
    open_file(report, "a.h5");
    add(report, tried[i].stage, tried[i].mode, tried[i].verdict, tried[i].use, tried[i].differing);
    char *text = calibration(report), line[128];
    snprintf(line, sizeof line, "TOO WIDE: dflash_context_kv %s: isolated, at most ", tried[i].stage);
    cr_expect_eq(strstr(text, line) != NULL, tried[i].too_wide, "%d:\n%s", (int)i, text);
    cr_expect_eq(strstr(text, "no bound is too wide") == NULL, tried[i].too_wide, "%d:\n%s", (int)i, text);
    free(text);
    ls_report_free(report);
  }
}

Test(report_calibrate, fixtures_are_judged_together) {
  ls_report *report = new_report();
  open_file(report, "a.h5");
  add(report, "k_rope", LS_ISOLATED, LS_PASS, 0.01, 7);
  open_file(report, "b.h5");
  add(report, "k_rope", LS_ISOLATED, LS_PASS, 0.3, 1);
  char *text = calibration(report);
  cr_expect_null(strstr(text, "TOO WIDE"), "%s", text);
  cr_expect_not_null(strstr(text, "dflash_context_kv, 2 fixtures"), "%s", text);
  cr_expect_not_null(strstr(text, "30%   1.1%    99.60%           2,000"), "%s",
                     text); /* 8 of 2000 differ, one of them by 30%; an upper edge */
  free(text);
  ls_report_free(report);
}

Test(report_calibrate, selections_have_no_bound_of_their_own) {
  const ls_config c = {.layer = &ls_layer_attn_v41, .act = LS_BF16};
  ls_report *report = new_report();
  MUST(ls_report_file(report, "a.h5", "", &c, err));
  add(report, "compress_idx", LS_ISOLATED, LS_PASS, 0.01, 5);
  add(report, "kv_state", LS_ISOLATED, LS_PASS, 0.04, 5);
  char *text = calibration(report);
  cr_expect_null(strstr(text, "TOO WIDE: attn_v41 compress_idx"), "%s", text);
  cr_expect_not_null(strstr(text, "TOO WIDE: attn_v41 kv_state: isolated, at most 4.0% of its bound in use; 5 of 1,000 elements differ"),
                     "%s", text);
  free(text);
  ls_report_free(report);
}

Test(report_calibrate, what_carried_errors_leave_unused_says_nothing) {
  ls_report *report = new_report();
  open_file(report, "a.h5");
  ls_result r;
  ls_result_init(&r);
  r.verdict = LS_PASS, r.count = 1000, r.bit_equal = 995, r.use = 0.01, r.rows = 8, r.carries = true;
  for (int step = 0; step < 2; step++) MUST(ls_report_stage(report, step, "k_rope", 0, "golden-ref", LS_ISOLATED, &r, err));
  char *text = calibration(report);
  cr_expect_not_null(strstr(text, "no bound is too wide"), "%s", text);
  free(text);
  r.carries = false; /* one that carries nothing does, and counts alone */
  MUST(ls_report_stage(report, 2, "k_rope", 0, "ref-emu", LS_ISOLATED, &r, err));
  text = calibration(report);
  cr_expect_not_null(strstr(text, "k_rope: isolated, at most 1.0% of its bound in use; 5 of 3,000 elements differ"), "%s", text);
  free(text);
  ls_report_free(report);
}
