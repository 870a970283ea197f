#include <unistd.h>

#include "compare_helpers.h"
#include "json_check.h"

static const char *const pairs[] = {"golden-ref", "golden-emu", "ref-emu"};
static const ls_report_options plain = {.program = "lockstep", .repeat_options = "--path emu --threads 2"};

static ls_config config(void) {
  ls_config c = {.layer = &ls_layer_dflash_context_kv, .act = LS_BF16};
  c.dflash = (ls_dflash_config){.hidden = 64,
                                .aux_count = 5,
                                .layers = 2,
                                .num_kv_heads = 2,
                                .head_dim = 32,
                                .ring_capacity = 24,
                                .window = 16,
                                .max_rows = 8,
                                .rms_eps = 1e-6,
                                .rope_theta = 1e7,
                                .kv_dim = 64,
                                .fc_in = 320};
  return c;
}

static ls_result with(ls_verdict verdict) {
  ls_result r;
  ls_result_init(&r);
  r.verdict = verdict;
  bool compared = verdict == LS_PASS || verdict == LS_FAIL || verdict == LS_MISTRUSTED || verdict == LS_SHARED;
  if (compared) r.count = 1000, r.bit_equal = 996, r.use = 0.42, r.steps = 1, r.rows = 8;
  if (verdict == LS_MISTRUSTED) r.zeros = 1000;
  if (verdict == LS_FAIL) {
    r.failing = 12, r.rows_failing = 1, r.use = 7.5, r.steps = 9, r.has_worst = true, r.worst_ndim = 3;
    r.worst_index[1] = 7, r.worst_index[2] = 81;
    r.worst_a = 1.25, r.worst_b = -0.5, r.worst_bound = 0.0078125;
    strcpy(r.where, "layer 1 row 7 (position 2183, slot 7) head 2 channel 17");
  }
  return r;
}

static void stage(ls_report *report, int64_t step, const char *name, int64_t sub, const char *pair, ls_mode mode, ls_verdict verdict) {
  ls_result r = with(verdict);
  MUST(ls_report_stage(report, step, name, sub, pair, mode, &r, err));
}

static void property(ls_report *report, int64_t step, const char *name, const char *path, ls_verdict verdict, const char *note) {
  ls_result r = with(verdict);
  if (note) strcpy(r.note, note);
  MUST(ls_report_property(report, step, name, path, &r, err));
}

static ls_report *new_report(void) {
  ls_report *report = NULL;
  MUST(ls_report_new(&report, err));
  return report;
}

static void open_file(ls_report *report, const char *file) {
  ls_config c = config();
  MUST(ls_report_file(report, file, "rounds of a drafter", &c, err));
  MUST(ls_report_path(report, "ref", "OpenBLAS 0.3.21 Zen", err));
  MUST(ls_report_path(report, "emu", "fibers on 2 workers", err));
}

/* Three steps in which everything passes, as a runner adds them. */
static void all_pass(ls_report *report) {
  for (int64_t step = 5; step <= 7; step++) {
    for (int p = 0; p < 3; p++) {
      for (int m = 0; m < LS_MODES; m++) {
        stage(report, step, "ctx_combined", -1, pairs[p], (ls_mode)m, LS_PASS);
        stage(report, step, "ctx_normed", -1, pairs[p], (ls_mode)m, LS_PASS);
        for (int64_t layer = 0; layer < 2; layer++) {
          stage(report, step, "k_proj", layer, pairs[p], (ls_mode)m, p == 2 ? LS_SHARED : LS_PASS);
          stage(report, step, "v_proj", layer, pairs[p], (ls_mode)m, p == 2 ? LS_SHARED : LS_PASS);
          stage(report, step, "k_norm", layer, pairs[p], (ls_mode)m, p == 0 ? LS_PASS : LS_FUSED);
          stage(report, step, "k_rope", layer, pairs[p], (ls_mode)m, LS_PASS);
        }
        stage(report, step, "k_ring", -1, pairs[p], (ls_mode)m, LS_PASS);
      }
    }
    property(report, step, "write-set", "ref", LS_PASS, NULL);
    property(report, step, "write-set", "emu", LS_PASS, NULL);
  }
}

static char *text_of(const ls_report *report, const ls_report_options *options) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  MUST(ls_report_text(report, options, out, err));
  fclose(out);
  return text;
}

/* Whether text holds a line that begins (after blanks) with the words of `line`, blanks counting as one. */
static bool has_line(const char *text, const char *line) {
  char squeezed[1024];
  while (*text) {
    size_t length = strcspn(text, "\n"), used = 0;
    for (size_t i = 0; i < length && used + 1 < sizeof squeezed; i++) {
      bool blank = text[i] == ' ', before = used == 0 || squeezed[used - 1] == ' ';
      if (!(blank && before)) squeezed[used++] = text[i];
    }
    squeezed[used] = '\0';
    if (strncmp(squeezed, line, strlen(line)) == 0) return true;
    text += length + (text[length] == '\n');
  }
  return false;
}

#define assert_line(text, line) cr_assert(has_line(text, line), "expected a line \"%s\" in:\n%s", line, text)

/* Nothing wraps but what is to be read in full: places, values, notes and commands. */
static void assert_narrow(const char *text, size_t width) {
  static const char *const long_words[] = {"first divergence", " where ", " values ", " note ", " repeat ", " failing ", ".h5: "};
  for (const char *line = text; *line;) {
    size_t length = strcspn(line, "\n");
    char *copy = strndup(line, length);
    bool may = length <= width;
    for (size_t i = 0; i < sizeof long_words / sizeof *long_words; i++) may = may || has(copy, long_words[i]);
    cr_assert(may, "%d columns: %s", (int)length, copy);
    free(copy);
    line += length + (line[length] == '\n');
  }
}

/* ---- text ---- */

Test(report_text, a_passing_file_is_one_table_and_one_verdict) {
  ls_report *report = new_report();
  open_file(report, "some/where/dflash_rounds.h5");
  all_pass(report);
  char *text = text_of(report, &plain);
  assert_line(text, "dflash_rounds.h5 rounds of a drafter");
  assert_line(text, "dflash_context_kv, bf16, hidden 64, ");
  assert_line(text, "ref: OpenBLAS 0.3.21 Zen");
  assert_line(text, "emu: fibers on 2 workers");
  assert_line(text, "stage pair verdict use bit-equal steps verdict use bit-equal steps");
  assert_line(text, "ctx_combined golden-ref PASS 42% 99.60% 1 PASS 42% 99.60% 1");
  assert_line(text, "k_proj ref-emu SHARED 42% 99.60% 1 SHARED");
  assert_line(text, "k_norm golden-emu FUSED - - - FUSED - - -");
  assert_line(text, "k_ring ref-emu PASS");
  assert_line(text, "NOT RUN: v_ring"); /* never silent */
  assert_line(text, "write-set emu PASS 3 checks");
  assert_line(text, "dflash_rounds.h5: PASS (");
  assert_line(text, "1 fixture: 1 pass, 0 fail");
  assert_lacks(text, "first divergence");
  assert_lacks(text, "\033");
  assert_narrow(text, 120);
  cr_assert(strstr(text, "ctx_combined") < strstr(text, "ctx_normed") && strstr(text, "k_norm") < strstr(text, "k_rope"));
  cr_assert_eq(ls_report_status(report, &plain), LS_OK);
  free(text);
  ls_report_free(report);
}

Test(report_text, narrow_terminals_lose_columns_not_lines) {
  ls_report *report = new_report();
  open_file(report, "dflash_rounds.h5");
  all_pass(report);
  for (int width = 70; width <= 120; width += 10) {
    ls_report_options options = plain;
    options.width = width;
    char *text = text_of(report, &options);
    assert_narrow(text, (size_t)width);
    assert_line(text, "k_ring ref-emu PASS 42%");
    free(text);
  }
  ls_report_free(report);
}

Test(report_text, an_introduced_failure_is_named_with_all_that_repeats_it) {
  ls_report *report = new_report();
  open_file(report, "some/where/dflash rounds.h5");
  all_pass(report);
  stage(report, 7, "k_rope", 1, "golden-emu", LS_ISOLATED, LS_FAIL);
  stage(report, 7, "k_rope", 1, "golden-emu", LS_CASCADED, LS_FAIL);
  stage(report, 6, "k_ring", -1, "golden-emu", LS_CASCADED, LS_FAIL);
  char *text = text_of(report, &plain);
  assert_line(text, "first divergence: step 6, k_ring, layer 1 row 7"); /* the earlier step, though inherited */
  assert_line(text, "k_rope golden-emu FAIL 750% 99.60% 9 FAIL 750%");
  assert_line(text, "k_rope golden-ref PASS");
  assert_line(text, "step 7 k_rope.1 golden-emu isolated: introduced here");
  assert_line(text, "where layer 1 row 7 (position 2183, slot 7) head 2 channel 17");
  assert_line(text, "values golden 1.25 emu -0.5 apart 1.75 bound 0.007812 (750% of it)");
  assert_line(text, "failing 12 of 1000 elements in 1 of 8 rows, at most 9 steps apart");
  assert_line(text, "cascaded fails in 1 of 4 steps, first in step 7");
  assert_line(text, "repeat lockstep verify --path emu --threads 2 --stage k_rope.1 --step 7 'some/where/dflash rounds.h5'");
  assert_line(text, "step 6 k_ring golden-emu cascaded: inherited");
  assert_line(text, "dflash rounds.h5: FAIL (3 comparisons fail; ");
  assert_line(text, "1 fixture: 0 pass, 1 fail");
  assert_narrow(text, 120);
  cr_assert_eq(ls_report_status(report, &plain), LS_DIVERGED);
  free(text);
  ls_report_free(report);
}

Test(report_text, in_one_step_what_was_introduced_comes_first) {
  ls_report *report = new_report();
  open_file(report, "a.h5");
  all_pass(report);
  stage(report, 7, "ctx_combined", -1, "ref-emu", LS_CASCADED, LS_FAIL);
  stage(report, 7, "k_rope", 0, "ref-emu", LS_ISOLATED, LS_FAIL);
  stage(report, 7, "k_rope", 1, "ref-emu", LS_ISOLATED, LS_FAIL);
  stage(report, 7, "ctx_normed", -1, "ref-emu", LS_ISOLATED, LS_FAIL);
  stage(report, 7, "ctx_normed", -1, "golden-emu", LS_ISOLATED, LS_FAIL);
  char *text = text_of(report, &plain);
  assert_line(text, "first divergence: step 7, ctx_normed, ");
  assert_has(text, "(golden-emu, isolated: introduced here)");
  free(text);
  ls_report_free(report);
}

Test(report_text, a_stage_that_was_not_judged_in_isolation_says_so) {
  ls_report *report = new_report();
  open_file(report, "a.h5");
  stage(report, 2, "v_ring", -1, "golden-emu", LS_CASCADED, LS_FAIL);
  char *text = text_of(report, &plain);
  assert_has(text, "not judged in isolation");
  assert_line(text, "v_ring golden-emu NOT RUN - - - FAIL");
  free(text);
  ls_report_free(report);
}

static void patterned(ls_report *report, int64_t step, const char *name, const char *pattern, const char *text) {
  ls_result r = with(LS_FAIL);
  snprintf(r.pattern, sizeof r.pattern, "%s", pattern);
  snprintf(r.pattern_text, sizeof r.pattern_text, "%s", text);
  MUST(ls_report_stage(report, step, name, 1, "golden-emu", LS_ISOLATED, &r, err));
}

Test(report_text, a_pattern_stands_under_the_finding_and_at_the_first_divergence) {
  ls_report *report = new_report();
  open_file(report, "rounds.h5");
  patterned(report, 3, "k_rope", "", "");
  patterned(report, 4, "k_rope", "rotation-position",
            "8 of 16 rows differ, all with position >= 2176: rows match a rotation by (position - 2176)");
  ls_report_options options = {.program = "lockstep", .width = 100};
  char *text = text_of(report, &options);
  cr_assert(has_line(text, "pattern step 4: 8 of 16 rows differ, all with position >= 2176: rows match a rotation by"), "%s", text);
  cr_assert(has_line(text, "(position - 2176) (rotation-position)"), "%s", text);
  cr_assert(has_line(text, "step 4: 8 of 16 rows differ, all with position >= 2176: rows match a rotation by"), "%s", text);
  free(text);
  ls_report_free(report);

  report = new_report(); /* and nothing where none is known */
  open_file(report, "rounds.h5");
  patterned(report, 3, "k_rope", "", "");
  text = text_of(report, &options);
  assert_lacks(text, "pattern");
  free(text);
  ls_report_free(report);
}

Test(report_text, at_most_five_findings_are_detailed) {
  ls_report *report = new_report();
  open_file(report, "a.h5");
  all_pass(report);
  for (int64_t sub = 0; sub < 2; sub++) {
    for (int p = 0; p < 3; p++) {
      stage(report, 7 + sub, "k_rope", sub, pairs[p], LS_ISOLATED, LS_FAIL);
      stage(report, 7 + sub, "k_proj", sub, pairs[p], LS_ISOLATED, LS_FAIL);
    }
  }
  char *text = text_of(report, &plain);
  int blocks = 0;
  for (const char *at = text; (at = strstr(at, "  repeat ")); at++) blocks++;
  cr_assert_eq(blocks, 5);
  assert_line(text, "and 7 more failing (see --json)");
  assert_line(text, "first divergence: step 7, k_proj.0, ");
  free(text);
  ls_report_free(report);
}

Test(report_text, quiet_verdicts_are_counted_beside_the_others) {
  ls_report *report = new_report();
  open_file(report, "a.h5");
  for (int m = 0; m < LS_MODES; m++) {
    stage(report, 1, "ctx_combined", -1, "golden-emu", (ls_mode)m, LS_PASS);
    stage(report, 2, "ctx_combined", -1, "golden-emu", (ls_mode)m, LS_NOT_HELD);
    stage(report, 3, "ctx_combined", -1, "golden-emu", (ls_mode)m, LS_NOT_HELD);
    stage(report, 1, "ctx_normed", -1, "golden-emu", (ls_mode)m, LS_NOT_HELD);
  }
  stage(report, 3, "k_proj", 0, "golden-emu", LS_CASCADED, LS_MISSING);
  stage(report, 3, "k_norm", 0, "golden-emu", LS_CASCADED, LS_MISTRUSTED);
  char *text = text_of(report, &plain);
  assert_line(text, "ctx_combined golden-emu PASS 42% 99.60% 1 PASS 42% 99.60% 1 NOT HELD 2x");
  assert_line(text, "ctx_normed golden-emu NOT HELD - - - NOT HELD");
  assert_line(text, "k_proj golden-emu NOT RUN - - - MISSING");
  assert_line(text, "k_norm golden-emu NOT RUN - - - MISTRUSTED");
  assert_line(text, "missing one side should hold this stage and does not");
  assert_line(text, "a.h5: FAIL (1 MISSING, 1 MISTRUSTED; ");
  cr_assert_eq(ls_report_status(report, &plain), LS_DIVERGED);
  ls_report_options allow = plain;
  allow.allow_mistrusted = true;
  cr_assert_eq(ls_report_status(report, &allow), LS_OK);
  free(text);
  ls_report_free(report);
}

Test(report_text, a_layer_of_zeros_is_not_hidden_by_the_others) {
  ls_report *report = new_report();
  open_file(report, "a.h5");
  for (int64_t layer = 0; layer < 5; layer++)
    stage(report, 1, "k_rope", layer, "ref-emu", LS_CASCADED, layer == 3 ? LS_MISTRUSTED : LS_PASS);
  char *text = text_of(report, &plain);
  assert_line(text, "k_rope ref-emu NOT RUN - - - MISTRUSTED");
  cr_assert_eq(ls_report_status(report, &plain), LS_DIVERGED);
  stage(report, 2, "k_rope", 3, "ref-emu", LS_CASCADED, LS_PASS); /* a later step proves it */
  cr_assert_eq(ls_report_status(report, &plain), LS_OK);
  free(text);
  ls_report_free(report);
}

/* Six layers by thirty stages by three pairs: one line a stage and pair, the layers together, finer records that no fixture holds on one
 * line. */
Test(report_text, a_stack_of_six_layers_stays_one_line_a_stage) {
  ls_report *report = new_report();
  ls_config c = {.layer = &ls_layer_attn_v41, .act = LS_BF16};
  c.attn = (ls_attn_config){.dim = 64, .n_layers = 6};
  MUST(ls_report_file(report, "attn_v41_six_roles.h5", "six roles", &c, err));
  int stages = ls_layer_attn_v41.n_stages, finer = 0, lines = 0;
  for (int64_t step = 1; step <= 12; step++) {
    int64_t layer = (step - 1) % 6;
    for (int i = 0; i < stages; i++) {
      const ls_stage *s = &ls_layer_attn_v41.stages[i];
      finer += step == 1 && s->finer;
      for (int p = 0; p < 3; p++) {
        for (int m = 0; m < LS_MODES; m++) {
          ls_result r = with(s->finer && p < 2 ? LS_NOT_HELD : step == 9 && p == 1 && strcmp(s->name, "kv") == 0 ? LS_FAIL : LS_PASS);
          if (s->holds == LS_HOLDS_SELECTION) r.ties = 2, r.near_ties = layer == 4, strcpy(r.note, "2 ties");
          MUST(ls_report_stage(report, step, s->name, layer, pairs[p], (ls_mode)m, &r, err));
        }
      }
    }
    property(report, step, "selection", "ref", LS_PASS, NULL);
  }
  char *text = text_of(report, &plain);
  for (const char *at = text; (at = strchr(at, '\n')) != NULL; at++) lines++;
  cr_assert(lines < 3 * stages - 2 * finer + 40, "%d lines\n%s", lines, text);
  assert_narrow(text, 120);
  assert_line(text, "first divergence: step 9, kv.2, ");
  assert_line(text, "kv golden-emu FAIL ");
  assert_line(text, "step 9 kv.2 golden-emu isolated: introduced here");
  assert_line(text, "repeat lockstep verify --path emu --threads 2 --stage kv.2 --step 9 attn_v41_six_roles.h5");
  assert_line(text, "kv golden-ref PASS ");
  assert_line(text, "qr_proj ref-emu PASS ");
  assert_line(text, "NOT HELD (golden-ref): qr_proj q_proj kv_proj kv_norm kv_rope latent_pool kv_state score_state ");
  assert_line(text, "NOT HELD (golden-emu): qr_proj ");
  cr_assert(!has_line(text, "qr_proj golden-ref"), "%s", text);
  cr_assert(has(text, "24 ties, 2 near ties"), "%s", text);
  assert_line(text, "selection ref PASS 12 checks");
  free(text);
  ls_report_free(report);
}

/* A finer record that a fixture does hold has its line. */
Test(report_text, a_finer_stage_that_is_judged_keeps_its_line) {
  ls_report *report = new_report();
  ls_config c = {.layer = &ls_layer_attn_v41, .act = LS_BF16};
  MUST(ls_report_file(report, "a.h5", "", &c, err));
  stage(report, 1, "qr_proj", 0, pairs[0], LS_ISOLATED, LS_NOT_HELD);
  stage(report, 2, "qr_proj", 1, pairs[0], LS_ISOLATED, LS_FAIL);
  stage(report, 1, "qr", 0, pairs[0], LS_ISOLATED, LS_NOT_HELD);
  char *text = text_of(report, &plain);
  assert_line(text, "qr_proj golden-ref FAIL ");
  assert_line(text, "qr golden-ref NOT HELD ");
  assert_lacks(text, "NOT HELD (");
  free(text);
  ls_report_free(report);
}

Test(report_text, a_wrong_choice_is_told_by_its_note_and_without_steps) {
  ls_report *report = new_report();
  ls_config c = {.layer = &ls_layer_attn_v41, .act = LS_BF16};
  MUST(ls_report_file(report, "a.h5", "", &c, err));
  ls_result r = with(LS_FAIL);
  r.steps = 0, r.use = INFINITY;
  strcpy(r.note, "query 3 (position 2051) entry 5: position 17 is in the future (6 visible)");
  MUST(ls_report_stage(report, 1, "compress_idx", 2, "golden-ref", LS_ISOLATED, &r, err));
  char *text = text_of(report, &plain);
  assert_has(text, "note     query 3 (position 2051) entry 5: position 17 is in the future (6 visible)");
  assert_has(text, "failing  12 of 1000 elements in 1 of 8 rows\n");
  free(text);
  ls_report_free(report);
}

Test(report_text, a_failing_property_is_told_with_its_step) {
  ls_report *report = new_report();
  open_file(report, "a.h5");
  all_pass(report);
  property(report, 9, "write-set", "emu", LS_FAIL, "k_ring layer 1 slot 7 changed");
  property(report, 8, "refusal", "emu", LS_FAIL, "the step was taken");
  char *text = text_of(report, &plain);
  assert_line(text, "first divergence: step 8, property refusal of emu");
  assert_line(text, "write-set emu FAIL 1 of 4 checks, first in step 9: k_ring layer 1 slot 7 changed");
  assert_line(text, "write-set ref PASS 3 checks");
  assert_line(text, "repeat lockstep verify --path emu --threads 2 --step 9 a.h5");
  assert_line(text, "a.h5: FAIL (2 properties fail; ");
  cr_assert_eq(ls_report_status(report, &plain), LS_DIVERGED);
  free(text);
  ls_report_free(report);
}

Test(report_text, a_file_that_stopped_keeps_what_it_found) {
  ls_report *report = new_report();
  open_file(report, "a.h5");
  all_pass(report);
  MUST(ls_report_note(report, "isolated mode starts at step 5", err));
  MUST(ls_report_stop(report, LS_INTERRUPTED, "interrupted in step 8", err));
  MUST(ls_report_file(report, "b.h5", "", NULL, err));
  MUST(ls_report_stop(report, LS_BAD_FIXTURE, "b.h5: /config/hidden: expected an integer, found a string", err));
  char *text = text_of(report, &plain);
  assert_line(text, "note: isolated mode starts at step 5");
  assert_line(text, "a.h5: NOT FINISHED (interrupted): interrupted in step 8; what is above is partial");
  assert_line(text, "b.h5: NOT FINISHED (bad fixture): b.h5: /config/hidden: expected an integer, found a string");
  assert_line(text, "2 fixtures: 0 pass, 0 fail, 2 not finished");
  free(text);
  ls_report_free(report);
}

Test(report_text, colours_only_where_asked_and_control_characters_never) {
  ls_report *report = new_report();
  ls_config c = config();
  MUST(ls_report_file(report, "a.h5", "title\033[2J\n", &c, err));
  all_pass(report);
  char *text = text_of(report, &plain);
  assert_lacks(text, "\033");
  free(text);
  ls_report_options colour = plain;
  colour.colour = true;
  text = text_of(report, &colour);
  assert_has(text, "\033[32mPASS");
  assert_lacks(text, "\033[2J");
  free(text);
  ls_report_free(report);
}

/* ---- exit status ---- */

static ls_status status_of(int n, const ls_status *stops, bool fails) {
  ls_report *report = new_report();
  for (int i = 0; i < n; i++) {
    open_file(report, "a.h5");
    stage(report, 1, "k_rope", 0, "ref-emu", LS_CASCADED, fails && i == 0 ? LS_FAIL : LS_PASS);
    if (stops[i] != LS_OK) MUST(ls_report_stop(report, stops[i], "why", err));
  }
  ls_status status = ls_report_status(report, &plain);
  ls_report_free(report);
  return status;
}

Test(report_status, precedence_is_130_5_3_4_1_0) {
  const ls_status order[] = {LS_OK, LS_DIVERGED, LS_UNAVAILABLE, LS_BAD_FIXTURE, LS_INTERNAL, LS_INTERRUPTED};
  for (int i = 0; i < 6; i++) {
    for (int j = 0; j < 6; j++) {
      ls_status expected = order[i > j ? i : j], got = status_of(2, (const ls_status[]){order[i], order[j]}, false);
      cr_assert_eq(got, expected, "%d and %d give %d", order[i], order[j], got);
      if (expected == LS_OK) expected = LS_DIVERGED;
      got = status_of(2, (const ls_status[]){order[i], order[j]}, true);
      cr_assert_eq(got, expected, "%d and %d and a failure give %d", order[i], order[j], got);
    }
  }
  cr_assert_eq(status_of(1, (const ls_status[]){LS_REFUSED}, false), LS_INTERNAL);
}

Test(report_status, nothing_compared_is_a_divergence) {
  ls_report *report = new_report();
  ls_report_options allow = plain;
  allow.allow_mistrusted = true;
  cr_assert_eq(ls_report_status(report, &plain), LS_DIVERGED);
  open_file(report, "a.h5");
  cr_assert_eq(ls_report_status(report, &plain), LS_DIVERGED);
  for (int i = LS_FUSED; i < LS_VERDICTS; i++) stage(report, 1, "k_rope", i, "ref-emu", LS_CASCADED, (ls_verdict)i);
  property(report, 1, "write-set", "emu", LS_PASS, NULL);
  cr_assert_eq(ls_report_status(report, &plain), LS_DIVERGED); /* SHARED proves nothing either */
  cr_assert_eq(ls_report_status(report, &allow), LS_OK);
  char *text = text_of(report, &plain);
  assert_line(text, "a.h5: FAIL (nothing was compared; ");
  free(text);
  open_file(report, "b.h5"); /* one file that compares does not cover for another */
  stage(report, 1, "k_rope", 0, "ref-emu", LS_CASCADED, LS_PASS);
  cr_assert_eq(ls_report_status(report, &plain), LS_DIVERGED);
  ls_report_free(report);
}

Test(report_status, quiet_verdicts_do_not_fail) {
  ls_report *report = new_report();
  open_file(report, "a.h5");
  all_pass(report);
  const ls_verdict quiet[] = {LS_FUSED, LS_SHARED, LS_NOT_HELD, LS_NOT_RUN};
  for (int i = 0; i < 4; i++) stage(report, 1, "v_ring", i, "ref-emu", LS_CASCADED, quiet[i]);
  cr_assert_eq(ls_report_status(report, &plain), LS_OK);
  ls_report_free(report);
}

Test(report_status, known_failures_are_excused_by_name_and_fail_when_they_pass) {
  ls_report *report = new_report();
  open_file(report, "dir/a.h5");
  all_pass(report);
  stage(report, 7, "k_rope", 1, "golden-emu", LS_CASCADED, LS_FAIL);
  static const struct {
    const char *name;
    ls_status status;
    const char *line;
  } tried[] = {
      {"a.h5:k_rope.1:golden-emu", LS_OK, "known failure a.h5:k_rope.1:golden-emu: fails, as listed"},
      {"a.h5:k_rope:golden-emu", LS_OK, "known failure a.h5:k_rope:golden-emu: fails, as listed"},
      {"*:k_*:*-emu", LS_OK, "known failure *:k_*:*-emu: fails, as listed"},
      {"a.h5:k_rope.0:golden-emu", LS_DIVERGED, "known failure a.h5:k_rope.0:golden-emu: passes now, take it off the list"},
      {"b.h5:k_rope.1:golden-emu", LS_DIVERGED, "known failure b.h5:k_rope.1:golden-emu: nothing of that name was compared"},
      {"a.h5:k_rope.1:ref-emu", LS_DIVERGED, "known failure a.h5:k_rope.1:ref-emu: passes now"},
  };
  for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
    const char *const names[] = {tried[i].name, NULL};
    ls_report_options options = plain;
    options.known_failures = names;
    ls_status status = ls_report_status(report, &options);
    cr_assert_eq(status, tried[i].status, "%s: %d", tried[i].name, status);
    char *text = text_of(report, &options);
    assert_line(text, tried[i].line);
    cr_assert_eq(has(text, "first divergence"), status != LS_OK);
    free(text);
  }
  const char *const both[] = {"a.h5:k_rope.1:golden-emu", "a.h5:ctx_normed:golden-emu", NULL}; /* one still fails, one passes */
  ls_report_options options = plain;
  options.known_failures = both;
  cr_assert_eq(ls_report_status(report, &options), LS_DIVERGED);
  property(report, 1, "split", "emu", LS_FAIL, "rows differ");
  const char *const properties[] = {"a.h5:k_rope.1:golden-emu", "a.h5:split:emu", NULL};
  options.known_failures = properties;
  cr_assert_eq(ls_report_status(report, &options), LS_OK);
  ls_report_free(report);
}

Test(report_status, adding_before_a_file_is_an_internal_error) {
  ls_report *report = new_report();
  ls_result r = with(LS_PASS);
  ls_error error = {0};
  cr_assert_eq(ls_report_stage(report, 1, "k_rope", 0, "ref-emu", LS_CASCADED, &r, &error), LS_INTERNAL);
  cr_assert_eq(ls_report_property(report, 1, "x", "ref", &r, NULL), LS_INTERNAL);
  cr_assert_eq(ls_report_note(report, "x", NULL), LS_INTERNAL);
  MUST(ls_report_stop(report, LS_UNAVAILABLE, "no device", err));
  cr_assert_eq(ls_report_status(report, &plain), LS_UNAVAILABLE);
  ls_report_free(report);
}

/* ---- JSON ---- */

static json_value *must_read(const char *file) {
  char why[JSON_WHY] = "";
  char *text = json_file_text(file);
  cr_assert_not_null(text, "%s cannot be read", file);
  json_value *v = json_read(text, why);
  cr_assert_not_null(v, "%s: %s", file, why);
  free(text);
  return v;
}

static ls_report *everything(void) {
  ls_report *report = new_report();
  open_file(report, "some/where/a \"b\".h5");
  all_pass(report);
  for (int i = 0; i < LS_VERDICTS; i++) stage(report, 8, "v_ring", i, "ref-emu", LS_CASCADED, (ls_verdict)i);
  stage(report, 7, "k_rope", 1, "golden-emu", LS_ISOLATED, LS_FAIL);
  ls_result r = with(LS_FAIL);
  r.use = INFINITY, r.steps = UINT64_MAX, r.worst_a = NAN, r.worst_b = -INFINITY;
  strcpy(r.note, "not finite");
  MUST(ls_report_stage(report, 9, "k_rope", 1, "golden-emu", LS_CASCADED, &r, err));
  property(report, 9, "write-set", "emu", LS_FAIL, "slot 7");
  MUST(ls_report_file(report, "b.h5", "not UTF-8: \xff\xfe", NULL, err));
  MUST(ls_report_note(report, "a note", err));
  MUST(ls_report_stop(report, LS_BAD_FIXTURE, "no /config", err));
  return report;
}

static const json_value *at(const json_value *v, int i) {
  cr_assert(v && v->kind == JSON_ARRAY && i < v->n);
  return v->item[i];
}

static const char *word(const json_value *object, const char *key) {
  const json_value *v = json_get(object, key);
  return v && v->kind == JSON_STRING ? v->string : "(none)";
}

Test(report_json, a_report_of_everything_conforms_to_the_schema) {
  char why[JSON_WHY] = "", file[] = LS_BINARY_DIR "/report_everything.json";
  ls_report *report = everything();
  ls_report_options options = plain;
  const char *const known[] = {"*:v_ring.1:*", "*:ctx_normed:*", "nothing", NULL};
  options.known_failures = known;
  MUST(ls_report_json(report, &options, file, err));
  json_value *v = must_read(file), *schema = must_read(LS_SOURCE_DIR "/docs/report.schema.json");
  cr_assert(json_conforms(v, schema, why), "%s", why);

  cr_assert_eq(json_get(v, "exit_status")->number, LS_BAD_FIXTURE);
  const json_value *first = at(json_get(v, "files"), 0), *second = at(json_get(v, "files"), 1);
  const json_value *divergence = json_get(first, "first_divergence");
  cr_assert_str_eq(word(divergence, "stage"), "k_rope");
  cr_assert_eq(json_get(divergence, "step")->number, 7);
  cr_assert_eq(json_get(divergence, "sub")->number, 1);
  cr_assert_str_eq(word(divergence, "origin"), "introduced");
  assert_has(word(divergence, "repeat"), "--stage k_rope.1 --step 7 'some/where/a \"b\".h5'");
  cr_assert_str_eq(word(first, "verdict"), "fail");
  cr_assert_str_eq(word(second, "verdict"), "not_finished");
  cr_assert_str_eq(word(second, "title"), "not UTF-8: ??");
  cr_assert_str_eq(word(at(json_get(v, "known_failures"), 0), "state"), "fails");
  cr_assert_str_eq(word(at(json_get(v, "known_failures"), 1), "state"), "passes");
  cr_assert_str_eq(word(at(json_get(v, "known_failures"), 2), "state"), "not_run");
  bool found = false;
  for (int i = 0; i < json_get(first, "stages")->n; i++) { /* per step where it failed, with NaN as words */
    const json_value *s = at(json_get(first, "stages"), i);
    if (strcmp(word(s, "stage"), "k_rope") != 0 || strcmp(word(s, "mode"), "cascaded") != 0 || json_get(s, "failures")->n == 0) continue;
    const json_value *result = json_get(at(json_get(s, "failures"), 0), "result"), *worst = json_get(result, "worst");
    cr_assert_str_eq(word(result, "use"), "inf");
    cr_assert_eq(json_get(result, "steps")->kind, JSON_NULL);
    cr_assert_str_eq(word(worst, "a"), "nan");
    cr_assert_str_eq(word(worst, "b"), "-inf");
    cr_assert_eq(json_get(worst, "index")->n, 3);
    found = true;
  }
  cr_assert(found);
  json_free(v);
  json_free(schema);
  remove(file);
  ls_report_free(report);
}

Test(report_json, a_pattern_is_told_with_its_finding_and_where_it_was_found) {
  char why[JSON_WHY] = "", file[] = LS_BINARY_DIR "/report_pattern.json";
  ls_report *report = new_report();
  open_file(report, "rounds.h5");
  patterned(report, 3, "k_rope", "", "");
  patterned(report, 4, "k_rope", "not-rotated", "all 8 rows differ: rows equal k_norm: they were not rotated");
  MUST(ls_report_json(report, &plain, file, err));
  json_value *v = must_read(file), *schema = must_read(LS_SOURCE_DIR "/docs/report.schema.json");
  cr_assert(json_conforms(v, schema, why), "%s", why);
  const json_value *first = at(json_get(v, "files"), 0), *finding = at(json_get(first, "findings"), 0);
  cr_assert_eq(json_get(finding, "step")->number, 3);
  cr_assert_str_eq(word(finding, "pattern"), "not-rotated");
  cr_assert_str_eq(word(finding, "pattern_text"), "all 8 rows differ: rows equal k_norm: they were not rotated");
  const json_value *failures = json_get(at(json_get(first, "stages"), 0), "failures");
  cr_assert_str_eq(word(json_get(at(failures, 0), "result"), "pattern"), "");
  cr_assert_str_eq(word(json_get(at(failures, 1), "result"), "pattern"), "not-rotated");
  json_free(v);
  json_free(schema);
  remove(file);
  ls_report_free(report);
}

/* The check itself: a schema that cannot fail would be worth nothing. */
Test(report_json, the_schema_refuses_what_is_wrong) {
  json_value *schema = must_read(LS_SOURCE_DIR "/docs/report.schema.json");
  char why[JSON_WHY] = "", file[] = LS_BINARY_DIR "/report_refused.json";
  ls_report *report = everything();
  MUST(ls_report_json(report, &plain, file, err));
  char *text = json_file_text(file);
  static const char *const change[][2] = {
      {"\"format_version\": 1", "\"format_version\": 2"},
      {"\"verdict\": \"shared\"", "\"verdict\": \"SHARED\""},
      {"\"count\": 1000", "\"count\": -1"},
      {"\"count\": 1000", "\"count\": 1.5"},
      {"\"rows\": ", "\"columns\": "},
      {"\"use\": \"inf\"", "\"use\": \"infinity\""},
      {"\"sub\": null", "\"sub\": \"none\""},
      {"\"origin\": \"introduced\"", "\"origin\": \"\""},
  };
  for (size_t i = 0; i < sizeof change / sizeof *change; i++) {
    char *place = strstr(text, change[i][0]);
    cr_assert_not_null(place, "%s", change[i][0]);
    char *changed = calloc(strlen(text) + 64, 1);
    sprintf(changed, "%.*s%s%s", (int)(place - text), text, change[i][1], place + strlen(change[i][0]));
    json_value *v = json_read(changed, why);
    cr_assert_not_null(v, "%s", why);
    cr_assert(!json_conforms(v, schema, why), "%s was accepted", change[i][1]);
    json_free(v);
    free(changed);
  }
  free(text);
  json_free(schema);
  remove(file);
  ls_report_free(report);
}

Test(report_json, a_file_that_cannot_be_written_is_said_and_leaves_nothing) {
  ls_report *report = everything();
  ls_error err = {0};
  cr_assert_eq(ls_report_json(report, &plain, LS_BINARY_DIR "/no/such/folder/report.json", &err), LS_USAGE);
  assert_has(err.text, "no/such/folder/report.json");
  err = (ls_error){0};
  cr_assert_eq(ls_report_json(report, &plain, LS_BINARY_DIR, &err), LS_USAGE); /* a folder: told before anything is written */
  char left[512];
  snprintf(left, sizeof left, "%s.%ld.tmp", LS_BINARY_DIR, (long)getpid());
  cr_assert_neq(access(left, F_OK), 0);
  ls_report_free(report);
}
