/* What a bisection asks of a report, and where its conclusion is rendered. */
#include <unistd.h>

#include "json_check.h"
#include "report_scene.h"

static ls_report_hit first_of(const ls_report *report) {
  ls_report_hit hit;
  MUST(ls_report_first(report, &hit, err));
  return hit;
}

Test(report_bisect, nothing_fails_and_what_was_compared_is_counted) {
  ls_report *report = new_report();
  cr_assert_not(first_of(report).found, "no file yet");
  open_file(report, "a.h5");
  all_pass(report);
  stage(report, 7, "v_ring", -1, "ref-emu", LS_CASCADED, LS_FUSED); /* compared nothing */
  const ls_report_hit hit = first_of(report);
  cr_assert_not(hit.found);
  /* 13 comparisons a pair and mode of all_pass, less the fused ones of two pairs; three steps of 1000 elements each */
  cr_assert_eq(hit.compared % 3000, 0);
  cr_assert_gt(hit.compared, 0);
  cr_assert_eq(hit.bit_equal, hit.compared / 1000 * 996);
  ls_report_free(report);
}

Test(report_bisect, the_first_failing_stage_is_named) {
  ls_report *report = new_report();
  open_file(report, "a.h5");
  stage(report, 4, "k_norm", 1, "ref-emu", LS_ISOLATED, LS_PASS);
  stage(report, 5, "k_rope", 1, "ref-emu", LS_ISOLATED, LS_FAIL);
  stage(report, 6, "k_norm", 1, "ref-emu", LS_CASCADED, LS_FAIL);
  const ls_report_hit hit = first_of(report);
  cr_assert(hit.found && !hit.is_property && !hit.is_state);
  cr_assert_eq(hit.step, 5);
  cr_assert_eq(hit.mode, LS_ISOLATED);
  cr_assert_str_eq(hit.name, "k_rope.1");
  assert_has(hit.where, "layer 1 row 7");
  ls_report_free(report);
}

Test(report_bisect, a_ring_is_state) {
  ls_report *report = new_report();
  open_file(report, "a.h5");
  stage(report, 5, "k_ring", -1, "ref-emu", LS_CASCADED, LS_FAIL);
  const ls_report_hit hit = first_of(report);
  cr_assert(hit.found && hit.is_state);
  cr_assert_str_eq(hit.name, "k_ring");
  ls_report_free(report);
}

Test(report_bisect, a_property_counts_where_it_failed_before_any_stage) {
  ls_report *report = new_report();
  open_file(report, "a.h5");
  stage(report, 5, "k_rope", 1, "ref-emu", LS_CASCADED, LS_FAIL);
  property(report, 5, "stored", "emu", LS_FAIL, "as late as the stage");
  property(report, 3, "write-set", "ref", LS_PASS, NULL);
  cr_assert_not(first_of(report).is_property);
  property(report, 4, "cursor", "emu", LS_FAIL, "earlier");
  const ls_report_hit hit = first_of(report);
  cr_assert(hit.found && hit.is_property);
  cr_assert_eq(hit.step, 4);
  cr_assert_str_eq(hit.name, "cursor");
  cr_assert_str_eq(hit.note, "earlier");
  ls_report_free(report);
}

Test(report_bisect, its_conclusion_ends_the_text_and_is_in_the_json) {
  static const char *const words[LS_ORIGINS] = {"none", "stage", "step", "state", "unknown"};
  ls_report *report = new_report();
  ls_bisect bisect = {.failing_step = 7, .origin_step = 5, .name = "k_rope.1", .passes = 3, .line = "step 5 leaves it wrong"};
  cr_assert_eq(ls_report_bisect(report, &bisect, NULL), LS_INTERNAL, "there is no file to add it to");
  open_file(report, "a.h5");
  all_pass(report);
  for (int i = 0; i < LS_ORIGINS; i++) {
    char file[256], expected[64];
    bisect.origin = (ls_bisect_origin)i;
    if (i == 0) bisect.failing_step = bisect.origin_step = -1;
    if (i == 1) bisect.failing_step = 7, bisect.origin_step = 5;
    MUST(ls_report_bisect(report, &bisect, err));
    char *text = text_of(report, &plain);
    assert_has(text, "bisect: step 5 leaves it wrong\n");
    free(text);
    snprintf(file, sizeof file, "%s/bisect-%d.json", LS_BINARY_DIR, (int)getpid());
    MUST(ls_report_json(report, &plain, file, err));
    char *json = json_file_text(file);
    snprintf(expected, sizeof expected, "\"origin\": \"%s\"", words[i]);
    assert_has(json, expected);
    assert_has(json, i == 0 ? "\"failing_step\": null" : "\"failing_step\": 7");
    assert_has(json, "\"name\": \"k_rope.1\"");
    free(json);
    unlink(file);
  }
  ls_report_free(report);
}
