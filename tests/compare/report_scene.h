/* Reports as a runner would have filled them, for the tests of the renderings. */
#ifndef LS_TESTS_REPORT_SCENE_H
#define LS_TESTS_REPORT_SCENE_H

#include "compare_helpers.h"

static const char *const pairs[] = {"golden-ref", "golden-emu", "ref-emu"};
static const ls_report_options plain = {.program = "lockstep", .repeat_options = "--path emu --threads 2"};

static inline ls_config config(void) {
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

static inline ls_result with(ls_verdict verdict) {
  ls_result r;
  ls_result_init(&r);
  r.verdict = verdict;
  bool compared = verdict == LS_PASS || verdict == LS_FAIL || verdict == LS_MISTRUSTED || verdict == LS_SHARED;
  if (compared) r.count = 1000, r.bit_equal = 996, r.use = 0.42, r.steps = 1, r.rows = 8;
  if (compared) { /* four of the thousand differ */
    ls_spread_add_use(&r.spread, 0.125, 3);
    ls_spread_add_use(&r.spread, r.use, 1);
  }
  if (verdict == LS_MISTRUSTED) r.zeros = 1000;
  if (verdict == LS_FAIL) {
    r.failing = 12, r.rows_failing = 1, r.use = 7.5, r.steps = 9, r.has_worst = true, r.worst_ndim = 3;
    r.worst_index[1] = 7, r.worst_index[2] = 81;
    r.worst_a = 1.25, r.worst_b = -0.5, r.worst_bound = 0.0078125;
    strcpy(r.where, "layer 1 row 7 (position 2183, slot 7) head 2 channel 17");
  }
  return r;
}

static inline void stage(ls_report *report, int64_t step, const char *name, int64_t sub, const char *pair, ls_mode mode,
                         ls_verdict verdict) {
  ls_result r = with(verdict);
  MUST(ls_report_stage(report, step, name, sub, pair, mode, &r, err));
}

static inline void property(ls_report *report, int64_t step, const char *name, const char *path, ls_verdict verdict, const char *note) {
  ls_result r = with(verdict);
  if (note) strcpy(r.note, note);
  MUST(ls_report_property(report, step, name, path, &r, err));
}

static inline ls_report *new_report(void) {
  ls_report *report = NULL;
  MUST(ls_report_new(&report, err));
  return report;
}

static inline void open_file(ls_report *report, const char *file) {
  ls_config c = config();
  MUST(ls_report_file(report, file, "rounds of a drafter", &c, err));
  MUST(ls_report_path(report, "ref", "OpenBLAS 0.3.21 Zen", err));
  MUST(ls_report_path(report, "emu", "fibers on 2 workers", err));
}

/* Three steps in which everything passes, as a runner adds them. */
static inline void all_pass(ls_report *report) {
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

static inline char *text_of(const ls_report *report, const ls_report_options *options) {
  char *text = NULL;
  size_t size = 0;
  FILE *out = open_memstream(&text, &size);
  MUST(ls_report_text(report, options, out, err));
  fclose(out);
  return text;
}

/* Every verdict, a finding, a failing property, a file that stopped, and text that no format takes as it is. */
static inline ls_report *everything(void) {
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

#endif
