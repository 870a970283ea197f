/* ls_report: what one `verify` found, file by file, and its renderings. Owns everything that is added to it. */
#ifndef LS_REPORT_H
#define LS_REPORT_H

#include <stdio.h>

#include "ls_compare.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef enum { LS_ISOLATED, LS_CASCADED, LS_MODES } ls_mode;

typedef struct ls_report ls_report;

ls_status ls_report_new(ls_report **report, ls_error *err);
void ls_report_free(ls_report *report);

/* Opens a section for one fixture. Later adds go to it. */
ls_status ls_report_file(ls_report *report, const char *file, const char *title, const ls_config *config, ls_error *err);

/* What ran: "ref", "OpenBLAS 0.3.21 Zen". */
ls_status ls_report_path(ls_report *report, const char *path, const char *description, ls_error *err);

/* One stage (sub: the drafter layer, in attn_v41 the layer of the step; -1 none), of one step, one pair ("golden-ref", "golden-emu",
 * "ref-emu"), one mode. */
ls_status ls_report_stage(ls_report *report, int64_t step, const char *stage, int64_t sub, const char *pair, ls_mode mode,
                          const ls_result *result, ls_error *err);

/* Where the differences of the comparison just added lie. The report keeps a bounded number of copies: of the first steps that fail, and of
 * the stages that pass those that use most of their bounds; rings and selections always. Only ls_report_html shows them. */
ls_status ls_report_detail(ls_report *report, int64_t step, const char *stage, int64_t sub, const char *pair, ls_mode mode,
                           const ls_result *result, const ls_detail *detail, ls_error *err);

/* A property of one step on one path: "write-set", "idempotence", "split", "refusal", "cursor", "state", "selection" (a path's own choice
 * by its own scores). */
ls_status ls_report_property(ls_report *report, int64_t step, const char *property, const char *path, const ls_result *result,
                             ls_error *err);

/* The file could not be finished: the status and its line. What was added before is kept and reported as partial. */
ls_status ls_report_stop(ls_report *report, ls_status status, const char *line, ls_error *err);

/* Something worth a line in the file's section ("the real-shape file runs on emu only with --full"). */
ls_status ls_report_note(ls_report *report, const char *line, ls_error *err);

/* The first failure of the section that is open, as it stands now: of the first step that has one a stage before a property, isolated
 * before cascaded, and then in the order of computation. */
typedef struct {
  bool found;
  bool is_property;
  int64_t step;
  char name[LS_NAME_MAX + 32]; /* "k_rope.0", "write-set" */
  ls_mode mode;                /* of a stage */
  bool is_state;               /* a stage that is a ring: state, not computed by the step alone */
  char where[LS_MAX_WHERE], note[LS_MAX_NOTE];
  int64_t compared, bit_equal; /* elements of all comparisons so far, found or not */
} ls_report_hit;

ls_status ls_report_first(const ls_report *report, ls_report_hit *hit, ls_error *err);

/* What a bisection came to. */
typedef enum {
  LS_ORIGIN_NONE,    /* nothing fails */
  LS_ORIGIN_STAGE,   /* a stage, that fails isolated */
  LS_ORIGIN_STEP,    /* a step by itself: what it leaves is wrong though no stage of it is, isolated */
  LS_ORIGIN_STATE,   /* the state that an earlier step left, which the failing one only shows */
  LS_ORIGIN_UNKNOWN, /* it fails, but not again from the same start, or of the reference itself */
  LS_ORIGINS
} ls_bisect_origin;

typedef struct {
  ls_bisect_origin origin;
  int64_t failing_step, origin_step; /* -1: none */
  char name[LS_NAME_MAX + 32];       /* of what fails there: a stage or a property */
  int64_t passes;                    /* runs over the fixture that it took */
  char line[512];                    /* the conclusion, for people */
} ls_bisect;

/* For the open section. In JSON; the text rendering ends with its line. */
ls_status ls_report_bisect(ls_report *report, const ls_bisect *bisect, ls_error *err);

typedef struct {
  bool allow_mistrusted;
  /* "FILE:STAGE.SUB:PAIR", "FILE:STAGE:PAIR" (every sub) or "FILE:PROPERTY:PATH", FILE without folders, or globs of them; NULL-terminated,
   * or NULL */
  const char *const *known_failures;
  const char *program;         /* "lockstep", for the command that repeats a finding */
  const char *command;         /* of it, the one that made this report; NULL: "verify" */
  bool no_step;                /* the command takes no --step */
  const char *const *operands; /* what stands behind its options, NULL-terminated; NULL: the section's file */
  const char *repeat_options;  /* options of this run to be repeated: "--path emu --threads 2" */
  int64_t shard, shards;       /* 0-based, of how many; shards 0: the run is a whole one */
  bool colour;
  int width; /* columns of the terminal; 0: 120 */
} ls_report_options;

/* The terminal table: summary first, one line per stage and pair over all steps and layers, ties and near ties with it (finer stages that a
 * fixture does not hold share one line), failing ones with step, worst place, both values, the bound, introduced
 * here or inherited, and the command that repeats it; then properties; then a verdict line. */
ls_status ls_report_text(const ls_report *report, const ls_report_options *options, FILE *out, ls_error *err);

/* The same into a file, written to a temporary name and renamed. */
ls_status ls_report_text_file(const ls_report *report, const ls_report_options *options, const char *file, ls_error *err);

/* What the stages use of their bounds over all files together, by layer, stage and mode: the most, the 99.9th percentile, the share that
 * is bit-equal, and of how many elements. SHARED comparisons are left out. Then a line "TOO WIDE: LAYER STAGE: ..." for each stage of
 * values that differ somewhere, isolated, and never use more than 5% of their bound. Says nothing about failures. */
ls_status ls_report_calibrate(const ls_report *report, FILE *out, ls_error *err);

/* The same as JSON (schema: docs/report.schema.json). Written to a temporary name and renamed. */
ls_status ls_report_json(const ls_report *report, const ls_report_options *options, const char *file, ls_error *err);

/* The same as JUnit XML for continuous integration: a suite a file, a case for each stage, pair and mode and for each property. Failures
 * and errors are there exactly where the exit status is not 0; what proves nothing and may be so is skipped, with the reason. */
ls_status ls_report_junit(const ls_report *report, const ls_report_options *options, const char *file, ls_error *err);

/* The same as one HTML page for people: nothing is loaded from elsewhere, and what matters shows without scripts. */
ls_status ls_report_html(const ls_report *report, const ls_report_options *options, const char *file, ls_error *err);

/* The exit status: LS_OK, LS_DIVERGED, or the worst stop (5 over 3 over 4 over 1 over 0; 130 where interrupted). Known failures that pass
 * are LS_DIVERGED. Nothing compared at all is LS_DIVERGED. */
ls_status ls_report_status(const ls_report *report, const ls_report_options *options);

/* The same of the open section alone. LS_DIVERGED where there is none. */
ls_status ls_report_section_status(const ls_report *report, const ls_report_options *options);

#ifdef __cplusplus
}
#endif
#endif
