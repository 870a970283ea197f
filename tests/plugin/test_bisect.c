/* lockstep bisect on paths with a fault in one place: the step and the stage that introduced it are named, or the state that carried it. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../compare/json_check.h"
#include "plugin_run.h"

#define ROUNDS GOLDEN "dflash_rounds.h5"
#define ALONE  "bisect --path " BROKEN " " ROUNDS
#define HONEST LS_BINARY_DIR "/plugins/libown_kernel.so"
#define PAIR   "bisect --path " BROKEN " --against " HONEST " " ROUNDS

static char out[PLUGIN_OUTPUT];

Test(bisect, a_path_without_a_fault_is_exit_0) {
  plugin_expect("none", -1, 0, "bisect: nothing fails; ", ALONE);
  plugin_expect("none", -1, 0, "bisect: nothing differs\n", PAIR " --bits");
  plugin_expect("none", -1, 0, "bisect: nothing ", "bisect --path emu " GOLDEN "dflash_refusals.h5");
  plugin_expect("none", -1, 0, "bisect: nothing ", "bisect --path ref " GOLDEN "dflash_refusals.h5");
  plugin_expect("none", -1, 0, "bisect: nothing fails; ", "bisect --path emu " GOLDEN "attn_v41_single_token.h5");
}

Test(bisect, a_stage_that_is_wrong_in_one_step_is_named) {
  static const int steps[] = {1, 11, 47, 103};
  for (size_t i = 0; i < sizeof steps / sizeof *steps; i++) {
    char said[128];
    snprintf(said, sizeof said, "bisect: introduced in step %d context_write by k_rope.0, layer 0 row 1 ", steps[i]);
    plugin_expect("wrong_key", steps[i], 1, said, ALONE);
  }
  plugin_expect("wrong_key", 11, 1, "repeat   lockstep verify --path " BROKEN " --stage k_rope.0 --step 11 " ROUNDS, ALONE);
}

Test(bisect, a_stage_that_is_missing_is_named) {
  plugin_expect("missing_stage", 11, 1, "bisect: introduced in step 11 context_write by k_norm", ALONE);
}

Test(bisect, a_step_that_damages_the_state_by_itself_is_named) {
  plugin_expect("wrong_ring", 10, 1, "bisect: introduced in step 10 rewind: property write-set fails from the reference's state too",
                ALONE);
  plugin_expect("wrong_ring", 8, 1, "bisect: introduced in step 8 draft_write: v_ring fails from the reference's state too",
                ALONE " --stage '?_ring'");
  plugin_expect("refuses", 11, 1, "bisect: introduced in step 11 context_write", ALONE);
}

/* A ring slot damaged by a rewind, after which rings are not looked at; with write-set deselected only the next write shows it. */
Test(bisect, a_fault_that_only_the_state_carries_leads_back_to_the_step_that_left_it) {
  plugin_expect("wrong_far_slot", 10, 1,
                "bisect: carried in the state that step 10 rewind left: step 11 context_write (v_ring) fails where the path goes on from "
                "the reference's "
                "state before step 10, and passes from that after it",
                ALONE " --stage 'v_*'");
  plugin_expect("wrong_far_slot", 9, 1, "carried in the state that step 9 capture left: step 11 context_write (v_ring)",
                ALONE " --stage 'v_*'");
}

/* A second copy of the capture buffer, that save does not show and load heals: cascaded it is wrong, isolated nothing is. */
Test(bisect, a_fault_in_what_no_state_shows_is_found_too) {
  plugin_expect("hidden_capture", 9, 1, "bisect: carried in the state that step 9 capture left: step 11 context_write (ctx_combined) fails",
                ALONE);
  plugin_expect("hidden_capture", 17, 1,
                "bisect: carried in the state that step 17 capture left: step 19 context_write (ctx_combined) fails", ALONE);
  plugin_expect("hidden_capture", 9, 1, "bisect: carried in the state that step 9 capture left: step 11 context_write (ctx_combined) fails",
                PAIR);
}

Test(bisect, two_libraries_part_at_a_step_stage_and_element) {
  plugin_expect(
      "wrong_key", 11, 1,
      "first divergence: step 11, k_rope.0, layer 0 row 1 (position 17, slot 17) head 0 channel 5 (own_kernel-broken_plugin, isolated",
      PAIR);
  plugin_expect("wrong_key", 11, 1,
                "bisect: introduced in step 11 context_write by k_rope.0, layer 0 row 1 (position 17, slot 17) head 0 channel 5", PAIR);
}

Test(bisect, what_is_inside_the_bound_is_a_difference_in_bits_alone) {
  plugin_expect("last_bit", 11, 0, "elements differ in bits, within their bounds (--bits names the first)", PAIR);
  plugin_expect("last_bit", 11, 1,
                "bisect: introduced in step 11 context_write by k_rope.0, layer 0 row 0 (position 16, slot 16) head 0 channel 3",
                PAIR " --bits");
  plugin_expect("last_bit", 11, 1, "repeat   lockstep bisect --path " BROKEN " --against " HONEST " --bits --stage k_rope.0 " ROUNDS,
                PAIR " --bits");
}

Test(bisect, another_builds_path_is_told_apart_from_this_ones) {
  plugin_expect("none", -1, 0, "bisect: nothing differs\n",
                "bisect --path emu --against " LOCKSTEP ":emu --bits " GOLDEN "dflash_refusals.h5");
  plugin_expect("none", -1, 0, "bisect: nothing differs\n",
                "bisect --path emu --against " LOCKSTEP ":emu --bits " GOLDEN "attn_v41_single_token.h5");
  plugin_expect("none", -1, 1, "(ref-emu, isolated: introduced here)",
                "bisect --path emu --against ref --bits " GOLDEN "attn_v41_single_token.h5");
}

Test(bisect, a_crash_stops_it_with_what_was_found_so_far) {
  plugin_expect("step_crash", 11, 5, "step 11, path broken_plugin: libbroken_plugin.so: crashed (SIGSEGV) in context_write (cascaded)",
                ALONE);
}

Test(bisect, its_words_are_checked) {
  plugin_expect("none", -1, 2, "expected one fixture", "bisect");
  plugin_expect("none", -1, 2, "expected one fixture", "bisect " ROUNDS " " ROUNDS);
  plugin_expect("none", -1, 2, "--bits wants --against", "bisect --bits " ROUNDS);
  plugin_expect("none", -1, 2, "the same path", "bisect --path emu --against emu " ROUNDS);
  plugin_expect("none", -1, 2, "one path each", "bisect --path emu,ref " ROUNDS);
  plugin_expect("none", -1, 2, "name the reference by --against", "bisect --path ref --against emu " ROUNDS);
  plugin_expect("none", -1, 3, "nosuch.h5: cannot be opened", "bisect --path ref nosuch.h5");
  plugin_expect("none", -1, 4, "nosuch.so: No such file", "bisect --path emu --against ./nosuch.so " ROUNDS);
  plugin_expect("none", -1, 1, "bisect: nothing was compared", "bisect --path emu --stage nosuch " ROUNDS);
}

/* The JSON of a run of the library with this fault, valid by the schema; its conclusion. */
static void expect_json(const char *fault, int step, const char *origin, int origin_step, const char *name) {
  char json[256], arguments[1024], why[JSON_WHY] = "";
  plugin_scratch(json, sizeof json, "bisect.json");
  snprintf(arguments, sizeof arguments, ALONE " --json %s", json);
  plugin_expect(fault, step, strcmp(origin, "none") == 0 ? 0 : 1, NULL, arguments);
  char *text = json_file_text(json), *schema_text = json_file_text(LS_SOURCE_DIR "/docs/report.schema.json");
  cr_assert(text != NULL && schema_text != NULL);
  json_value *report = json_read(text, why), *schema = json_read(schema_text, why);
  cr_assert(report != NULL && schema != NULL, "%s", why);
  cr_expect(json_conforms(report, schema, why), "%s: %s", fault, why);
  const json_value *bisect = json_get(json_get(report, "files")->item[0], "bisect");
  cr_assert_not_null(bisect);
  cr_expect_str_eq(json_get(bisect, "origin")->string, origin);
  cr_expect_str_eq(json_get(bisect, "name")->string, name);
  const json_value *from = json_get(bisect, "origin_step");
  cr_expect(origin_step < 0 ? from->kind == JSON_NULL : from->number == origin_step);
  json_free(report);
  json_free(schema);
  free(text);
  free(schema_text);
  unlink(json);
}

Test(bisect, its_json_holds_the_conclusion) {
  expect_json("none", -1, "none", -1, "");
  expect_json("wrong_key", 11, "stage", 11, "k_rope.0");
  expect_json("wrong_ring", 10, "step", 10, "write-set");
  expect_json("hidden_capture", 9, "state", 9, "ctx_combined");
}

Test(bisect, a_run_that_stops_has_valid_json_too) {
  char json[256], arguments[1024], why[JSON_WHY] = "";
  plugin_scratch(json, sizeof json, "stopped.json");
  snprintf(arguments, sizeof arguments, "verify --path " BROKEN " --json %s " ROUNDS, json);
  plugin_expect("step_crash", 11, 5, NULL, arguments);
  char *text = json_file_text(json), *schema_text = json_file_text(LS_SOURCE_DIR "/docs/report.schema.json");
  json_value *report = json_read(text, why), *schema = json_read(schema_text, why);
  cr_assert(report != NULL && schema != NULL, "%s", why);
  cr_expect(json_conforms(report, schema, why), "%s", why);
  json_free(report);
  json_free(schema);
  free(text);
  free(schema_text);
  unlink(json);
  plugin_run(out, "rm -f %s", json);
}
