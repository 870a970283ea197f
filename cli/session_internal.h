/* session_internal: what the files of a verify session share. verify_session.c runs the paths, session_stage.c judges stages,
 * session_dflash.c and session_attn.c hold what only one layer has: rings, selections, and the properties of its operations. */
#ifndef LS_SESSION_INTERNAL_H
#define LS_SESSION_INTERNAL_H

#include "../layers/ls_run.h"
#include "verify_session.h"

typedef struct session session;
typedef struct step_run step_run;
typedef struct session_recorded session_recorded;   /* session_recorded.c */
typedef struct session_relations session_relations; /* session_relations.c */
typedef struct session_roundings session_roundings; /* session_rounding.c */

/* What a session asks of a layer. */
typedef struct {
  const ls_layer *layer;
  const char *input; /* the name under which bounds and given stages hold the step's input */

  ls_status (*open)(session *v, const ls_trace *start, ls_error *err); /* fills v->history: what is remembered over steps */

  /* What the cascaded runs of all paths must follow (attn_v41: one selection), from the fixture; after the reference ran, from it where the
   * fixture says nothing. NULL: every path goes its own way. */
  ls_status (*lead)(session *v, step_run *s, ls_error *err);

  /* After the reference ran cascaded: fills s->staged, and where it is set s->input. */
  ls_status (*written)(session *v, step_run *s, ls_error *err);

  /* After all paths ran. */
  ls_status (*remember)(session *v, const step_run *s, ls_error *err);

  /* A stage whose verdict is not element by element, held by both sides in one shape. *handled stays false: it is an ordinary one. NULL:
   * all are. */
  ls_status (*judge_special)(session *v, const step_run *s, const ls_stage *stage, int a, int b, ls_mode mode, const ls_trace *bounds,
                             bool *handled, ls_result *result, ls_error *err);

  /* Of an ordinary stage: the elements that are defined (ls_compare_args.only), and, after the comparison, those taken back from the counts
   * that no operation wrote. Both may be NULL. */
  const ls_tensor *(*defined)(const session *v, const step_run *s, const ls_stage *stage, ls_mode mode);
  void (*discount)(const session *v, const step_run *s, ls_mode mode, const ls_compare_args *args, ls_result *result);

  /* A whole ring after the operation (stages with is_ring). own: the bounds of the pair's isolated stages, NULL where there are none. NULL
   * where the layer has no such stage. */
  ls_status (*judge_ring)(session *v, const step_run *s, const ls_stage *stage, int a, int b, ls_mode mode, const ls_trace *own,
                          ls_error *err);

  /* The places of a stage's elements. */
  ls_place_names (*names)(const session *v, const step_run *s, const ls_stage *stage);
  int64_t (*sub)(const step_run *s); /* the layer that the whole step is of; -1: none */

  /* A failing stage's result is handed in for what the layer can add to its note. May be NULL. */
  void (*explain)(session *v, const step_run *s, const ls_stage *stage, const ls_tensor *a, const ls_tensor *b, ls_result *result);

  /* What a report shows of a stage beside a map of errors (ring, selection), into v->detail. May be NULL. */
  void (*show)(session *v, const step_run *s, const ls_stage *stage, const ls_tensor *a, const ls_tensor *b);

  /* Properties of the fixture's own values, and of path p. */
  ls_status (*judge_expected)(session *v, const step_run *s, ls_error *err);
  ls_status (*judge_path)(session *v, const step_run *s, int p, ls_error *err);

  /* Stages whose rows must not stray from the exact values (session_drift.c), and those that are discrete choices, which the exact values
   * are computed through. NULL-terminated; drift NULL: none. */
  const char *const *drift, *const *discrete;

  bool (*minus_inf)(const char *stage); /* -inf is an ordinary value of it. NULL: of none */
} session_layer;

extern const session_layer session_dflash, session_attn;

enum { LS_TIMED_LAYERS = LS_ATTN_MAX_LAYERS };

typedef struct {
  int64_t runs; /* cascaded and traced */
  double sum[LS_MAX_PATHS], least[LS_MAX_PATHS];
} session_time;

/* What the reference recorded in an earlier step: a path may show it again. */
enum { LS_EARLIER = 4 };
typedef struct {
  int64_t step, sub;
  ls_trace *out;
} session_earlier;

/* Of one stage of one path. */
typedef struct {
  int times; /* that it was diagnosed */
  /* what its failures look like where each alone may be chance (ls_pattern.bits): the last one, and what all together came to */
  char pattern[LS_MAX_PATTERN];
  double bits, bits_before; /* with the step `bits_step`, and before it */
  int64_t bits_step;
  int64_t step; /* the last one that failed isolated, in layers (by bits) of a pair */
  int pair;
  uint64_t layers;
} session_diagnosis;

struct session {
  const ls_verify_options *options;
  const session_layer *hooks;
  int n_paths; /* of options->path that run here */
  ls_report *report;
  ls_fixture *fixture;         /* NULL: of a scenario in memory */
  const ls_scenario *scenario; /* NULL: of a fixture */
  const ls_config *config;
  const ls_trace *weights;
  ls_run run[LS_MAX_PATHS];
  session_recorded *recorded[LS_MAX_PATHS]; /* NULL: the path runs here */
  ls_ring_history **history;                /* dflash: one; attn_v41: one a layer */
  int64_t n_history;
  /* attn_v41: where isolated steps start: the reference's state with the fixture's values stored in place of its own; and what states may
   * be off by: cascaded, and the fixture's against `isolated` */
  ls_trace *isolated, *cascaded_bounds, *golden_bounds;
  ls_run exact; /* the reference in double; its own state stays at the start */
  bool has_exact;
  ls_trace *exact_state[LS_MAX_PATHS]; /* where it stands beside each path; NULL: at the start */
  bool has_expected;                   /* the fixture holds expected values: what they may be off by is evaluated */
  bool noted_nonfinite;
  session_earlier earlier[LS_EARLIER]; /* newest first */
  session_diagnosis diagnosis[LS_MAX_STAGES][LS_MAX_PATHS];
  session_relations *relations;          /* twins that relations run; NULL: none yet */
  session_roundings *roundings;          /* what was seen of roundings so far; NULL: nothing */
  ls_detail *detail;                     /* of the comparison at hand; NULL: not wanted */
  session_time time[2][LS_TIMED_LAYERS]; /* rows > 1, one row; by layer of the step */
};

/* Bounds of the pairs of one step in isolation (session_bounds.c). */
typedef struct session_bounds session_bounds;

/* One step through every path: [0] is the reference. */
struct step_run {
  ls_step step; /* as loaded; base filled in for context_write */
  int64_t base, rows;
  bool staged;     /* the step has stages to judge */
  ls_tensor input; /* where staged */
  ls_run_result cascaded[LS_MAX_PATHS], isolated[LS_MAX_PATHS];
  ls_run_result unrounded;       /* the reference in double, isolated, before it read its own values rounded; else empty */
  ls_trace *lead;                /* what cascaded runs follow; NULL: their own */
  ls_trace *values;              /* the reference's stages and the step's input: bounds are evaluated from these */
  ls_trace *given;               /* what isolated stages read: golden where the fixture holds it, else what the reference makes of that */
  ls_trace *golden;              /* of it, what the fixture holds */
  ls_trace *exact[LS_MAX_PATHS]; /* beside each path, the stages of hooks->drift in double */
  ls_trace *bounds;              /* cascaded: everything carried */
  ls_trace *golden_bounds;       /* isolated, golden-ref */
  session_bounds **pair_bounds;  /* what was evaluated for isolated pairs so far */
  uint64_t given_hash, from_hash, lead_hash; /* of all that runs read, where something is recorded */
};

/* ---- session_bounds.c ---- */

/* Evaluates the bounds of one pair in isolation, or takes them over from what was evaluated for other pairs of the step; args->values is
 * the same for all. *bounds looks at *of_step, which is made where it is NULL and freed after it with session_bounds_free. */
ls_status session_bounds_isolated(session_bounds **of_step, const ls_bound_args *args, ls_trace **bounds, ls_error *err);
void session_bounds_free(session_bounds *all);

/* ---- verify_session.c ---- */

ls_stage_kind session_kind_of(const session *v, const step_run *s, int path, const char *stage);

/* Whether what `stage` may be off by is carried into isolated stages that read it. Both sides read the same inputs, with two exceptions: a
 * side that fuses a stage away reads what comes before it, and the fixture's next stage came from a stage of its own that it may not hold.
 */
bool session_carries(const session *v, const step_run *s, int a, int b, const char *stage);

/* What two runs of path p may differ by in a stage that reads the same values in both. Of a step that ran isolated; free with
 * ls_trace_free. */
ls_status session_own_bounds(const session *v, const step_run *s, int p, ls_trace **bounds, ls_error *err);

bool session_wanted(const session *v, const char *stage, int64_t sub);
bool session_judges(const session *v, int a, int b);                    /* whether a pair is judged; a -1: the fixture */
bool session_reruns(const session *v, const char *property);            /* whether a property that runs a step again is asked for */
const char *session_pair(char buf[64], const session *v, int a, int b); /* "golden-ref" for a -1; returns buf */

/* What one side of a pair recorded, or (-1) what the fixture holds. */
const ls_trace *session_out(const step_run *s, int side, ls_mode mode);

/* Room for n histories in v->history, all NULL. */
ls_status session_history_new(session *v, int64_t n, ls_error *err);

/* The i64 [1] of a state trace; 0 where it has none. */
int64_t session_state_int(const ls_trace *state, const char *name);

/* ---- session_drift.c ---- */

ls_status session_drift_open(session *v, const ls_trace *start, ls_error *err);
ls_status session_drift_step(session *v, step_run *s, ls_error *err); /* after all paths ran cascaded: fills s->exact */
ls_status session_judge_drift(session *v, const step_run *s, int p, ls_error *err);
ls_status session_drift_transplant(session *v, int p, ls_error *err); /* path p goes on from where the reference stands */
void session_drift_close(session *v);
/* ---- session_recorded.c: paths that were recorded ---- */

/* Path v->n_paths is a recorded one. */
ls_status session_recorded_open(session *v, ls_trace_reader *reader, const char *name, const ls_trace *start, ls_error *err);
ls_status session_recorded_load(session *v, int64_t i, ls_error *err); /* step i of all of them */

/* What all paths must follow, and be given, for a recorded one to be comparable; the latter NULL where nothing says. */
ls_status session_recorded_lead(session *v, step_run *s, ls_error *err);
const ls_trace *session_recorded_given(const session *v);

/* Hashes of what the runs of this step follow and read; nothing where nothing is recorded. */
ls_status session_recorded_followed(session *v, step_run *s, ls_error *err);
ls_status session_recorded_read(session *v, step_run *s, const ls_trace *from, ls_error *err);

/* In place of ls_run_step. */
ls_status session_recorded_step(session *v, step_run *s, int p, ls_mode mode, const ls_trace *from, ls_run_result *result, ls_error *err);

/* Why the two sides cannot be held against each other in this step; NULL: they can. */
const char *session_recorded_apart(const session *v, const step_run *s, int a, int b, ls_mode mode);

/* A property that needs the path itself, as it was recorded; NOT RUN where nothing was. */
ls_status session_recorded_property(session *v, const step_run *s, int p, const char *property, ls_error *err);

/* Whether side p (-1: the fixture) has no values, only a digest; and then the properties of its step. */
bool session_is_digest(const session *v, int p);
ls_status session_digest_path(session *v, const step_run *s, int p, ls_error *err);

/* Of a stage with is_ring: the slots that the step wrote, in the order of the rows, [layers, rows, width], added to `trace` under the
 * stage's name. Nothing is added where `ring` is NULL. */
ls_status session_ring_rows(const step_run *s, const ls_stage *stage, const ls_tensor *ring, ls_trace *trace, ls_error *err);

/* ---- session_record.c: recording a path ---- */

ls_status session_record_begin(session *v, const ls_trace *start, ls_error *err);
ls_status session_record_step(session *v, step_run *s, ls_error *err); /* after all runs of the step */
void session_record_property(session *v, const char *property, const ls_result *result);
ls_status session_record_end(session *v, ls_status status, ls_error *err); /* commits where status is LS_OK. The status to return */

/* ---- session_stage.c ---- */

/* Every stage of one pair (a -1: the fixture) in both modes. */
ls_status session_judge_stages(session *v, const step_run *s, int a, int b, const ls_trace *own, ls_error *err);

ls_status session_property(session *v, const step_run *s, const char *property, int path, const ls_result *result, ls_error *err);
ls_result session_fact(bool holds); /* of one thing; the caller adds the note */

/* Adds a judged stage to the report, with v->detail where details are wanted. */
ls_status session_add_stage(session *v, const step_run *s, const ls_stage *stage, int64_t sub, const char *pair, ls_mode mode,
                            const ls_result *result, ls_error *err);

/* Refused or not, as the fixture says. */
ls_status session_judge_refusal(session *v, const step_run *s, int p, ls_error *err);

/* ---- session_relations_dflash.c, session_relations_attn.c: where they are asked for, after the step was judged otherwise ---- */

ls_status session_relations_dflash(session *v, const step_run *s, int p, ls_error *err);
ls_status session_relations_attn(session *v, const step_run *s, int p, ls_error *err);
void session_relations_close(session *v);

/* ---- session_rounding.c ---- */

/* The property "rounding" of path p, of a step that ran isolated; nothing where it did not. What steps show adds up: a fault is named in
 * the step where it is certain. LS_INTERNAL where memory does not suffice. */
ls_status session_judge_rounding(session *v, const step_run *s, int p, ls_error *err);
void session_roundings_close(session *v);

/* ---- session_explain.c ---- */

/* What a failing stage looks like (ls_explain), into result->pattern: of an isolated comparison, and of a cascaded one where the isolated
 * one of the same step did not fail. compare: what was compared; bounds: as it was made. A stage of a path is diagnosed a few times, not in
 * each of many steps. */
void session_explain(session *v, const step_run *s, int a, int b, ls_mode mode, const ls_trace *bounds, const ls_compare_args *compare,
                     ls_result *result);

/* The same of a property that holds a stage against what path p's own stages, recorded in the cascaded run, should have made of it. */
void session_explain_own(session *v, const step_run *s, int p, const ls_compare_args *compare, ls_result *result);

/* Takes what the reference recorded out of the step, to be recognised in later ones. */
void session_remember_earlier(session *v, step_run *s);
void session_forget_earlier(session *v);

#endif
