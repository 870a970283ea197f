/* report_model: what a report holds and what follows from it, shared by its renderings; private to compare/. */
#ifndef LS_REPORT_MODEL_H
#define LS_REPORT_MODEL_H

#include "ls_report.h"

enum { LS_MAX_PAIR = 64, LS_KEPT_FAILURES = 64 };

typedef struct {
  int64_t step;
  ls_result result;
} report_failure;

/* Everything added under one name. total: all steps merged. bad: the first LS_KEPT_FAILURES that failed or were missing, by step. */
typedef struct {
  ls_result total;
  int64_t runs[LS_VERDICTS]; /* how many were added with each verdict */
  report_failure *bad;
  int n_bad, bad_room;
} report_tally;

typedef struct {
  char stage[LS_NAME_MAX];
  int64_t sub;
  char pair[LS_MAX_PAIR];
  ls_mode mode;
  int order; /* of the stage in the layer's table; those unknown there come after */
  int pair_order;
  report_tally tally;
} report_entry;

/* What is kept of where differences lie. */
typedef struct {
  int64_t step, sub;
  char stage[LS_NAME_MAX], pair[LS_MAX_PAIR];
  ls_mode mode;
  ls_result result; /* of that step alone */
  ls_detail *detail;
} report_detail;

typedef struct {
  char property[LS_NAME_MAX], path[LS_NAME_MAX];
  report_tally tally;
} report_property;

typedef struct {
  char name[LS_NAME_MAX];
  char *description;
} report_path;

typedef struct {
  char *file, *title, *config_text;
  const ls_layer *layer; /* NULL: the file could not be opened */
  ls_dtype act;
  report_path *path;
  int n_paths, paths_room;
  report_entry *entry;
  int n_entries, entries_room, hint;
  report_property *property;
  int n_properties, properties_room;
  report_detail *detail; /* failing ones first come, passing ones by stage */
  int n_details, details_room;
  char **note;
  int n_notes, notes_room;
  ls_status stop; /* LS_OK: finished */
  char *stop_line;
  bool has_bisect;
  ls_bisect bisect;
} report_file;

struct ls_report {
  report_file *file;
  int n_files, files_room;
};

/* ---- what follows ---- */

typedef enum { ORIGIN_INTRODUCED, ORIGIN_INHERITED, ORIGIN_UNKNOWN } report_origin;

/* One stage of one pair that failed in some step and mode. */
typedef struct {
  const report_entry *mode[LS_MODES]; /* NULL: nothing was added in that mode */
  ls_mode first_mode;                 /* in which it failed first; isolated where both did in one step */
  const report_failure *first;
  report_origin origin;
  bool known;
} report_finding;

const char *report_origin_text(report_origin origin);

/* All findings of a file, the first divergence first: by step, then introduced before inherited, then in the order of computation. Findings
 * that are listed as known come last. The caller frees *list. */
ls_status report_findings(report_finding **list, int *n, const report_file *file, const ls_report_options *options, ls_error *err);

typedef struct {
  ls_status status;                                     /* LS_OK: the file passes */
  int64_t compared;                                     /* elements, in comparisons that prove something */
  int comparisons, failing, missing, mistrusted, known; /* stages by sub, pair and mode */
  int properties, properties_failing, properties_mistrusted;
  bool nothing; /* not one element was compared */
} report_verdict;

/* The failure whose pattern is shown: the first that has one. NULL: none has. Of a finding, in the mode it failed in first. */
const report_failure *report_explained(const report_tally *tally);

/* Its pattern in words, "step 7: 8 of 16 rows differ: ... (rotation-position)", the step where it is not the first failing one; "" where
 * there is none. Returns buf. */
char *report_pattern_words(char *buf, size_t size, const report_tally *tally);

enum { REPORT_PATTERN_WORDS = LS_MAX_PATTERN_TEXT + LS_MAX_PATTERN + 64 };

report_verdict report_judge(const report_file *file, const ls_report_options *options);

typedef enum { KNOWN_FAILS, KNOWN_PASSES, KNOWN_NOT_RUN } report_known;

/* What became of a known failure: it passes where something of its name was compared in a finished file and nothing of its name failed. */
report_known report_known_state(const ls_report *report, const char *pattern);

/* One stage and pair in one mode, all layers together. */
typedef struct {
  ls_result sum;
  ls_verdict verdict; /* the gravest, see report_graver */
  int64_t runs[LS_VERDICTS];
  int entries;
} report_cell;

report_cell report_cell_of(const report_file *file, const char *stage, const char *pair, ls_mode mode);

/* Whether a stage, property or pair of the file is among the known failures; sub -1: of a property. */
bool report_is_known(const ls_report_options *options, const char *file, const char *stage, int64_t sub, const char *pair);

void report_details_free(report_file *file);

const char *report_base_name(const char *file);
char *report_stage_name(char *buf, size_t size, const char *stage, int64_t sub); /* "k_rope.3"; returns buf */

/* The command that repeats a finding; stage NULL: of a property. Returns buf. */
char *report_repeat(char *buf, size_t size, const report_file *file, const ls_report_options *options, const char *stage, int64_t sub,
                    int64_t step);

/* A file of the report. Written to a temporary name beside `file` and renamed, so that no half of one is ever there; a device or a pipe is
 * written straight. write returns false where it could not. LS_USAGE where the file cannot be opened, LS_INTERNAL where it cannot be
 * written. */
ls_status report_write(const char *file, bool (*write)(FILE *out, void *arg), void *arg, ls_error *err);

/* A copy that any XML or HTML reader takes: UTF-8, and of the control characters only line feed and tab; what else was there is '?'. The
 * caller frees it; NULL: out of memory. */
char *report_clean(const char *text);

/* Room for one more element at the end of an array that grows by doubling; NULL: out of memory. The new element is zero. array: the
 * address of the array's pointer, of whatever type. */
void *report_grow(void *array, int *n, int *room, size_t size);

/* Whether a verdict came from a comparison that proves something when it agrees. */
static inline bool report_compared(ls_verdict v) { return v == LS_PASS || v == LS_FAIL || v == LS_MISTRUSTED; }

/* The one of two verdicts that a line over several layers shows: FAIL, MISSING, MISTRUSTED, PASS, SHARED, FUSED, NOT HELD, NOT RUN.
 */
ls_verdict report_graver(ls_verdict a, ls_verdict b);

/* The one of two exit statuses that a whole run ends with. */
ls_status report_graver_status(ls_status a, ls_status b);

#endif
