/* From a fault in a fixture to the panel that shows it: one wrong value is one cell, a wrong choice is marked. */
#include <stdlib.h>
#include <unistd.h>

#include "session_run.h"

static volatile sig_atomic_t not_interrupted = 0;

/* The page of a run of the reference alone over a copy of the golden with the plant. The caller frees it. */
static char *page_of(const char *golden, const plant *p, ls_status expected) {
  char file[SCRATCH], html[SCRATCH];
  ls_error err = {LS_OK, ""};
  ls_report *report = NULL;
  session_scratch(file, "details");
  session_scratch(html, "details-page");
  copy_fixture(file, golden, p);
  const ls_verify_options options = {
      .path = {&ls_path_ref}, .n_paths = 1, .only_step = -1, .trust = true, .details = true, .interrupted = &not_interrupted};
  const ls_report_options print = {.program = "lockstep", .repeat_options = ""};
  cr_assert_eq(ls_report_new(&report, &err), LS_OK);
  ls_verify_fixture(file, &options, report, &err);
  cr_expect_eq(ls_report_status(report, &print), expected);
  cr_assert_eq(ls_report_html(report, &print, html, &err), LS_OK, "%s", err.text);
  ls_report_free(report);
  FILE *in = fopen(html, "r");
  cr_assert_not_null(in);
  char *text = NULL;
  size_t size = 0;
  cr_assert(getdelim(&text, &size, '\0', in) > 0);
  fclose(in);
  unlink(html);
  unlink(file);
  return text;
}

/* The panel whose summary says so; the words must be in it. */
static void expect_in_panel(const char *text, const char *summary, const char *const *words) {
  const char *panel = strstr(text, summary);
  cr_assert_not_null(panel, "no panel '%s'", summary);
  const char *end = strstr(panel, "</details>");
  for (; *words; words++) {
    const char *found = strstr(panel, *words);
    cr_expect(found && found < end, "panel '%s': expected '%s'", summary, *words);
  }
}

Test(verify_details, one_wrong_value_is_one_cell_of_the_maps) {
  const plant p = {.stage = "k_proj", .step = 7, .steps = 4000};
  char *text = page_of(GOLDEN "dflash_rounds.h5", &p, LS_DIVERGED);
  expect_in_panel(text, "golden-ref, isolated, step 7; 1 of ",
                  (const char *const[]){"Worst use of the bound by row and head: 1 of ", "By row and channel within the head: 1 of ",
                                        "heads 0 to 1", "channels 0 to 31", "Differences in steps", " --stage k_proj.", NULL});
  free(text);
}

Test(verify_details, a_wrong_choice_is_marked_beside_the_scores) {
  const plant p = {.stage = "compress_idx", .step = 1, .steps = -1, .at = 0.99};
  char *text = page_of(GOLDEN "attn_v41_six_roles.h5", &p, LS_DIVERGED);
  expect_in_panel(text, "compress_idx.1</b> golden-ref, isolated, step 1; ",
                  (const char *const[]){"the scores around place ", "<td>ref</td>", NULL});
  free(text);
}

Test(verify_details, a_wrong_slot_of_a_ring_is_shown_as_what_it_is) {
  const plant p = {.stage = "window", .step = 1, .steps = 300};
  char *text = page_of(GOLDEN "attn_v41_six_roles.h5", &p, LS_DIVERGED);
  expect_in_panel(text, "window.1</b> golden-ref", (const char *const[]){"Ring of 8 slots", "right, written in this step (", NULL});
  free(text);
}

Test(verify_details, what_passes_shows_rings_and_selections) {
  char *text = page_of(GOLDEN "attn_v41_six_roles.h5", &(plant){.keep = 30}, LS_OK);
  expect_in_panel(text, "</b> golden-ref, cascaded, step", (const char *const[]){"of the bound in use", NULL});
  expect_in_panel(text, "<b>window.", (const char *const[]){"Ring of 8 slots", NULL});
  expect_in_panel(text, "<b>compress_idx.", (const char *const[]){"the scores around place ", "<td>both</td>", NULL});
  cr_expect_null(strstr(text, "<span class=\"v bad\">"));
  free(text);
}
