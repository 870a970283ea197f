/* A user's library as a path: one that works, and one broken in each way that there is. Each fault is one line that names library, step
 * and call, and an exit code; what was judged before it stays. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "plugin_run.h"

#define ROUNDS GOLDEN "dflash_rounds.h5"
#define VERIFY "verify --path " BROKEN " " ROUNDS
#define BRIEF  "verify --path " BROKEN " " GOLDEN "dflash_refusals.h5"

static char out[PLUGIN_OUTPUT];

Test(plugin, a_library_that_is_right_passes_every_small_golden) {
  plugin_expect("none", -1, 0, "5 fixtures: 5 pass, 0 fail",
                "verify --path " BROKEN " " ROUNDS " " GOLDEN "dflash_f16.h5 " GOLDEN "dflash_far_position.h5 " GOLDEN
                "dflash_far_theta1e7.h5 " GOLDEN "dflash_refusals.h5");
  plugin_expect("no_describe", -1, 0, "  broken_plugin: broken\n", BRIEF);
}

Test(plugin, it_is_judged_against_the_fixture_the_reference_and_other_paths) {
  plugin_expect("none", -1, 0, "golden-broken_plugin", "verify --path emu," BROKEN " " GOLDEN "dflash_refusals.h5");
  plugin_expect("none", -1, 0, "emu-broken_plugin", "verify --path emu," BROKEN " " GOLDEN "dflash_refusals.h5");
  plugin_expect("none", -1, 0, "broken_plugin-broken_plugin.2", "verify --path " BROKEN "," BROKEN " " GOLDEN "dflash_refusals.h5");
  plugin_expect("none", -1, 2, "more than 3 paths", "verify --path emu," BROKEN "," BROKEN "," BROKEN " " GOLDEN "dflash_refusals.h5");
}

Test(plugin, a_wrong_value_is_introduced_here_with_the_command_that_repeats_it) {
  plugin_expect("wrong_key", 11, 1, "first divergence: step 11, k_rope.0, layer 0 row 1 ", VERIFY);
  plugin_expect("wrong_key", 11, 1, "isolated: introduced here", VERIFY);
  plugin_expect("wrong_key", 11, 1, "repeat   lockstep verify --path " BROKEN " --stage k_rope.0 --step 11 " ROUNDS, VERIFY);
}

/* ---- what cannot be loaded ---- */

Test(plugin, what_is_no_library_is_exit_4_and_one_line) {
  static const char *const refused[][2] = {
      {"./nosuch.so", "nosuch.so: No such file or directory"},
      {LS_BINARY_DIR "/plugins/libno_entry.so", "libno_entry.so: exports no function lockstep_plugin_entry"},
      {LS_SOURCE_DIR "/"
                     "README.md",
       "README.md: cannot be loaded: "},
      {LS_SOURCE_DIR "/", "/: cannot be loaded: "}};
  for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
    const int code = plugin_run(out, "%s verify --path %s %s", LOCKSTEP, refused[i][0], ROUNDS);
    cr_expect_eq(code, 4, "%s: expected exit 4, found %d:\n%s", refused[i][0], code, out);
    cr_expect_not_null(strstr(out, refused[i][1]), "%s: expected '%s' in:\n%s", refused[i][0], refused[i][1], out);
    cr_expect_eq(strchr(out, '\n') - out + 1, (long)strlen(out), "%s: expected one line:\n%s", refused[i][0], out);
  }
}

Test(plugin, a_table_that_does_not_fit_is_exit_4) {
  plugin_expect("abi", -1, 4, "libbroken_plugin.so: built for plug-in ABI 2, expected 1\n", VERIFY);
  plugin_expect("no_table", -1, 4, "returned NULL: it was not built for plug-in ABI 1", VERIFY);
  plugin_expect("size", -1, 4, "its table says that it has 8 bytes", VERIFY);
  static const char *const functions[] = {"open", "step", "save", "load", "stage_kind", "close"};
  for (size_t i = 0; i < sizeof functions / sizeof *functions; i++) {
    char fault[32], said[64];
    snprintf(fault, sizeof fault, "no_%s", functions[i]);
    snprintf(said, sizeof said, "its table has NULL for the function %s\n", functions[i]);
    plugin_expect(fault, -1, 4, said, VERIFY);
  }
}

Test(plugin, a_crash_an_exit_or_a_hang_in_loading_is_said) {
  plugin_expect("loading_crash", -1, 5, "libbroken_plugin.so: crashed (SIGSEGV) in loading\n", VERIFY);
  plugin_expect("loading_exit", -1, 4, "libbroken_plugin.so: ended its process (exit status 7) in loading\n", VERIFY);
  plugin_expect("loading_hang", -1, 5, "libbroken_plugin.so: did not come back within 10 s (--timeout) in loading\n",
                VERIFY " --timeout 10");
  plugin_expect("entry_crash", -1, 5, "libbroken_plugin.so: crashed (SIGSEGV) in loading\n", VERIFY);
}

Test(plugin, open_may_refuse_a_config) {
  plugin_expect("open_unavailable", -1, 4, "libbroken_plugin.so: open: no such device", VERIFY);
  plugin_expect("open_failed", -1, 5, "libbroken_plugin.so: open failed: it gives no reason", VERIFY);
  plugin_expect("none", -1, 4, "libbroken_plugin.so: open: layer attn_v41 is not written",
                "verify --path " BROKEN " " GOLDEN "attn_v41_single_token.h5");
}

/* ---- crashes, exits, hangs ---- */

Test(plugin, a_crash_names_library_step_call_and_the_last_stage) {
  plugin_expect("recording_crash", 11, 5,
                "dflash_rounds.h5: step 11, path broken_plugin: libbroken_plugin.so: crashed (SIGSEGV) in context_write (cascaded), after "
                "it began to "
                "record k_norm",
                VERIFY);
  plugin_expect("abort", 11, 5, "libbroken_plugin.so: crashed (SIGABRT) in context_write (cascaded)", VERIFY);
  plugin_expect("step_exit", 11, 5, "libbroken_plugin.so: ended its process (exit status 7) in context_write (cascaded)", VERIFY);
  plugin_expect("killed", 11, 5, "was killed (SIGKILL), as the system does where memory runs out, in context_write (cascaded)", VERIFY);
  plugin_expect("open_crash", -1, 5, "libbroken_plugin.so: crashed (SIGSEGV) in open", VERIFY);
  plugin_expect("save_crash", 3, 5, "libbroken_plugin.so: crashed (SIGSEGV) in save after step 3 ", VERIFY);
  plugin_expect("load_crash", 1, 5, "libbroken_plugin.so: crashed (SIGSEGV) in load after step 1 context_write (cascaded)", VERIFY);
  plugin_expect("stage_kind_crash", 11, 5, "libbroken_plugin.so: crashed (SIGSEGV) in context_write (cascaded)", VERIFY);
}

Test(plugin, a_hang_ends_with_the_timeout) {
  plugin_expect("step_hang", 11, 5,
                "step 11, path broken_plugin: libbroken_plugin.so: did not come back within 10 s (--timeout) in context_write (cascaded)",
                VERIFY " --timeout 10");
  plugin_expect("open_hang", -1, 5, "libbroken_plugin.so: did not come back within 10 s (--timeout) in open", VERIFY " --timeout 10");
  plugin_expect("save_hang", 2, 5, "did not come back within 10 s (--timeout) in save after step 2", VERIFY " --timeout 10");
}

Test(plugin, a_process_of_its_own_that_outlives_it_does_not_hold_the_run_up) {
  char own[256], arguments[1024]; /* a name of this test's: others run at the same time */
  plugin_scratch(own, sizeof own, "orphan.so");
  plugin_run(out, "ln -sf %s %s", BROKEN, own);
  snprintf(arguments, sizeof arguments, "verify --path %s " ROUNDS, own);
  plugin_expect("orphan", 11, 5, "orphan.so: crashed (SIGSEGV) in context_write (cascaded)", arguments);
  plugin_run(out, "sleep 0.2; ps -eo args | grep -F %s | grep -F __serve-path | grep -vc grep", own);
  cr_expect_str_eq(out, "0\n", "processes are left: %s", out);
  unlink(own);
}

Test(plugin, a_close_that_crashes_or_hangs_costs_nothing_that_was_judged) {
  plugin_expect("close_crash", -1, 0, "1 pass", BRIEF);
  plugin_expect("close_hang", -1, 0, "1 pass", BRIEF);
}

Test(plugin, results_before_a_crash_are_kept_in_text_and_json) {
  char json[256], arguments[1024];
  plugin_scratch(json, sizeof json, "kept.json");
  snprintf(arguments, sizeof arguments, VERIFY " --json %s", json);
  plugin_expect("step_crash", 11, 5,
                "dflash_rounds.h5: NOT FINISHED (internal error): step 11, path broken_plugin: libbroken_plugin.so: crashed", arguments);
  plugin_expect("step_crash", 11, 5, "k_rope        golden-broken_plugin  PASS", arguments);
  plugin_expect("step_crash", 11, 5, "what is above is partial", arguments);
  plugin_run(out, "cat %s", json);
  cr_expect_not_null(strstr(out, "\"verdict\": \"not_finished\""), "%s", out);
  cr_expect_not_null(strstr(out, "crashed (SIGSEGV) in context_write (cascaded)"), "%s", out);
  cr_expect_not_null(strstr(out, "golden-broken_plugin"), "%s", out);
  unlink(json);
  plugin_expect("step_crash", 11, 5, "note: NOT RUN: steps 11 to 167, 157 of 168\n", arguments);
  plugin_expect("step_crash", 0, 5, "note: NOT RUN: steps 0 to 167, 168 of 168\n", VERIFY);
  plugin_expect("step_crash", 100, 5, "dflash_refusals.h5: PASS",
                VERIFY " " GOLDEN "dflash_refusals.h5"); /* the next file has a new process */
}

#if !defined(__SANITIZE_ADDRESS__) /* its shadow memory fits no limit */
Test(plugin, memory_that_runs_out_is_said_under_a_limit) {
  plugin_expect("memory", 11, 5, "libbroken_plugin.so: step failed: out of memory", VERIFY " --memory 512");
  plugin_expect("none", -1, 0, "1 pass", BRIEF " --memory 512");
}
#endif

/* ---- the process's borders ---- */

Test(plugin, it_cannot_write_into_the_report_nor_fake_an_answer) {
  plugin_expect("close_socket", 11, 5, "closed its connection to lockstep (file descriptor 3) in context_write (cascaded)", VERIFY);
  plugin_expect("scribble", 11, 5, "wrote to lockstep's socket (file descriptor 3) in context_write (cascaded)", VERIFY);
  const int code = plugin_run(out, "LOCKSTEP_TEST_FAULT=print %s " BRIEF " 2>/dev/null", LOCKSTEP);
  cr_expect_eq(code, 0);
  cr_expect_null(strstr(out, "a word on"), "what it prints is in the report: %s", out);
  plugin_run(out, "LOCKSTEP_TEST_FAULT=print %s " BRIEF " 2>&1 >/dev/null", LOCKSTEP);
  cr_expect_not_null(strstr(out, "a word on"), "what it prints is lost: %s", out);
}

Test(plugin, it_inherits_no_open_file_but_its_socket) {
  int code = plugin_run(out, "exec 7<README.md 9>/dev/null; LOCKSTEP_TEST_FAULT=files %s " BRIEF, LOCKSTEP);
  cr_expect_eq(code, 0, "%s", out);
  code = plugin_run(out, "LOCKSTEP_TEST_FAULT=files_from_3 %s " BRIEF, LOCKSTEP); /* the check sees what is open */
  cr_expect(code == 5 && strstr(out, "open failed: file descriptor 3 is open") != NULL, "%d %s", code, out);
}

Test(plugin, an_interrupt_while_it_hangs_ends_the_run_in_order) {
  const int code = plugin_run(out, "LOCKSTEP_TEST_FAULT=step_hang LOCKSTEP_TEST_STEP=11 timeout -s INT 15 %s " VERIFY, LOCKSTEP);
  cr_expect(code == 124 || code == 130, "exit %d: %s", code, out); /* timeout's own, or ours */
  cr_expect_not_null(strstr(out, "was interrupted in context_write (cascaded)"), "%s", out);
  cr_expect_not_null(strstr(out, "NOT FINISHED (interrupted)"), "%s", out);
}

/* ---- answers that break the contract ---- */

Test(plugin, a_record_out_of_the_contract_is_one_line) {
  plugin_expect("wrong_shape", 1, 5,
                "libbroken_plugin.so: context_write (cascaded): stage k_norm: expected [2, 8, 64] of bf16 or f16 or f32 or f64, found [2, "
                "64, 8] of bf16",
                VERIFY);
  plugin_expect("wrong_type", 1, 5, "stage k_norm: expected [2, 8, 64] of bf16 or f16 or f32 or f64, found [2, 8, 64] of i32", VERIFY);
  plugin_expect("bad_type", 1, 5, "add('k_norm', dtype 99, ndim 3): expected a name, a LOCKSTEP_ type and 0 to 4 dimensions", VERIFY);
  plugin_expect("impossible_shape", 1, 5, "k_norm has the impossible shape", VERIFY);
  plugin_expect("unknown_stage", 1, 5, "it recorded 'k_normal', which is no stage of layer dflash_context_kv", VERIFY);
  plugin_expect("twice", 1, 5, "k_norm is there already", VERIFY);
  plugin_expect("absent_stage", 0, 5, "it recorded stage k_proj, which this step does not have", VERIFY);
  plugin_expect("fused_but_recorded", 1, 5, "it recorded stage k_norm, which it calls fused", VERIFY);
  plugin_expect("overrun", 1, 5, "wrote outside a tensor: ", VERIFY);
  plugin_expect("bad_kind", 1, 5, "returned 17, which is no kind", VERIFY);
}

Test(plugin, what_is_not_recorded_or_not_written_is_a_verdict) {
  plugin_expect("missing_stage", 1, 1, "MISSING", VERIFY);
  plugin_expect("poisoned", 1, 1, "first divergence: step 1, ctx_combined", VERIFY);
}

Test(plugin, a_state_out_of_the_contract_is_one_line) {
  plugin_expect("save_lacks_capture", 3, 5, "save after step 3 ", VERIFY);
  plugin_expect("save_lacks_capture", 3, 5, "the state that it saved holds no capture", VERIFY);
  plugin_expect("save_wrong_shape", 3, 5,
                "state tensor k_ring: expected [2, 24, 64] of bf16 or f16 or f32 or f64, found [2, 64, 24] of bf16", VERIFY);
  plugin_expect("save_unknown", 3, 5, "it saved 'curser', which no state of layer dflash_context_kv has", VERIFY);
  plugin_expect("save_refuses", 3, 5, "save returned LOCKSTEP_REFUSED, which only a step may", VERIFY);
}

Test(plugin, what_a_step_returns_is_taken_at_its_word) {
  plugin_expect("failed", 11, 5, "step 11, path broken_plugin: libbroken_plugin.so: step failed: launch of kernel k_rope failed: error 700",
                VERIFY);
  plugin_expect("status_42", 11, 5, "step returned 42, which is none of LOCKSTEP_OK", VERIFY);
  plugin_expect("refuses", 11, 1, "context_write: expected ok, found refused: not today", VERIFY);
}

/* ---- other builds, and this one's own paths ---- */

Test(plugin, this_builds_own_path_in_a_child_gives_the_same_report) {
  static char alone[PLUGIN_OUTPUT];
  static const char *const files[] = {GOLDEN "dflash_rounds.h5", GOLDEN "dflash_refusals.h5", GOLDEN "attn_v41_single_token.h5"};
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) {
    cr_expect_eq(plugin_run(alone, "%s verify --path emu %s", LOCKSTEP, files[i]), 0, "%s", alone);
    cr_expect_eq(plugin_run(out, "%s verify --isolate --path emu %s", LOCKSTEP, files[i]), 0, "%s", out);
    cr_expect_str_eq(out, alone, "%s: the reports differ", files[i]);
  }
}

Test(plugin, another_builds_path_is_named_and_judged) {
  plugin_expect("none", -1, 0, "golden-lockstep.emu", "verify --path " LOCKSTEP ":emu " GOLDEN "dflash_refusals.h5");
  plugin_expect("none", -1, 0, "golden-lockstep.ref", "verify --path " LOCKSTEP ":ref " GOLDEN "dflash_refusals.h5");
  plugin_expect("none", -1, 4, "nosuch is no program that can be run", "verify --path ./nosuch:emu " GOLDEN "dflash_refusals.h5");
  plugin_expect("none", -1, 4, "ended its process (exit status 0) in loading", "verify --path /bin/true:emu " GOLDEN "dflash_refusals.h5");
}

Test(plugin, a_program_that_talks_nonsense_is_refused) {
  char script[256], arguments[512];
  plugin_scratch(script, sizeof script, "nonsense");
  cr_assert_eq(plugin_run(out, "printf '#!/bin/sh\\nhead -c 100000 /dev/zero >&3\\n' > %s && chmod +x %s", script, script), 0, "%s", out);
  snprintf(arguments, sizeof arguments, "verify --path %s:emu " ROUNDS, script);
  plugin_expect("none", -1, 4, "answered what the protocol does not know", arguments);
  unlink(script);
}

Test(plugin, its_options_are_checked) {
  plugin_expect("none", -1, 2, "--timeout", VERIFY " --timeout 0");
  plugin_expect("none", -1, 2, "--memory", VERIFY " --memory none");
  const int code = plugin_run(out, "%s __serve-path emu 0", LOCKSTEP);
  cr_expect_eq(code, 2, "%d %s", code, out);
}
