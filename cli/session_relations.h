/* session_relations: metamorphic relations of a session: what must hold between two runs of one path, whatever the right values are.
 *
 * A relation runs a step of a path again, with the same path, on inputs, a state or weights that were changed in a way whose effect is
 * known, and holds the two runs against each other. Nothing is compared with the reference or the fixture: where these have the same fault
 * as the path, a relation still sees it. docs/relations.md lists them. session_relations.c holds the tools, session_relations_dflash.c and
 * session_relations_attn.c the relations of a layer. */
#ifndef LS_SESSION_RELATIONS_H
#define LS_SESSION_RELATIONS_H

#include "session_internal.h"

/* Twins of a path with weights of their own. */
typedef enum { RELATION_PERMUTED, RELATION_SCALED, RELATION_DUPLICATED, RELATION_MIRRORS } relation_mirror;

/* One relation being judged. */
typedef struct {
  session *v;
  const step_run *s;
  int p;                    /* the path */
  const ls_run_result *was; /* the step as the path ran it, cascaded */
  ls_run_result is;         /* the step as the relation runs it */
  ls_trace *from;           /* the state that it is run from: a copy of the one before the step, to be changed */
  ls_trace *memory;         /* tensors that the relation makes */
  ls_trace *in;             /* the step's input, where it is another */
  ls_trace *given;          /* what its stages read, where that is not what the run itself makes */
  ls_trace *expect;         /* what its stages must come out as: views */
  ls_trace *within;         /* by how much they may differ, beyond the stage's steps; not there: not at all */
  ls_trace **bounds;        /* session_own_bounds, made when they are first asked for: one for all relations of the step */
  ls_result result;
} relation;

typedef struct {
  const char *name;                               /* of the property */
  ls_status (*judge)(relation *r, ls_error *err); /* fills r->result; one that does not apply compares nothing */
} relation_kind;

/* Judges those of the kinds that are wanted of path p, and reports each that compared something. */
ls_status relation_judge_all(session *v, const step_run *s, int p, const relation_kind *kinds, int n, ls_error *err);

/* ---- for a relation ---- */

/* Makes *config and the weights of a twin, in place, from copies of the session's. */
typedef ls_status relation_change(ls_config *config, const ls_trace *weights, ls_error *err);

/* The path's twin, opened when it is first asked for and kept. */
ls_status relation_twin(relation *r, relation_mirror which, relation_change *change, ls_run **run, ls_error *err);

/* Runs a step traced from r->from (made by relation_start) into r->is. One that is refused has failed the relation. */
ls_status relation_start(relation *r, ls_error *err);
ls_status relation_run(relation *r, ls_run *run, const ls_step *step, const ls_trace *given, ls_error *err);

/* A dense copy in r->memory. */
ls_status relation_copy(relation *r, const ls_tensor *from, ls_tensor *copy, ls_error *err);

/* In place: blocks of `block` elements along an axis, in reverse order; every element times a power of two; all NaN. */
typedef struct {
  int axis;
  int64_t block; /* 0: the end of a list */
} relation_turn;
ls_status relation_reverse(const ls_tensor *t, relation_turn turn, ls_error *err);
void relation_scale(const ls_tensor *t, double factor);
void relation_poison(const ls_tensor *t);

/* Block 1 along an axis becomes a copy of block 0, where there is one. */
ls_status relation_duplicate(const ls_tensor *t, int axis, int64_t block, ls_error *err);

/* Whether rows are finite, and each zero or large enough that nothing made of it by sums of products comes near the ends of the exponents.
 */
bool relation_is_ordinary(const ls_tensor *rows);

/* Adds a comparison of a stage to r->result. bound: what the elements may differ by beyond the stage's steps; NULL: they must be equal (-0
 * equals +0). Nothing is added where either is NULL: a path may fuse the stage away. */
void relation_hold(relation *r, const char *stage, const ls_tensor *expected, const ls_tensor *found, const ls_tensor *bound,
                   const ls_tensor *only);

/* ---- stage by stage: each reads what the relation makes of the step's own values, so that only its own rounding is allowed ---- */

/* The bound of a stage that reads the same values in both runs; NULL where there is none. */
ls_status relation_bound(relation *r, const char *stage, const ls_tensor **bound, ls_error *err);

/* Stages that read `t` in r->given; what the cascaded run followed, if anything; the same, and held by relation_hold_expected against what
 * the run makes of that stage. The tensors must outlive the relation (relation_copy). */
ls_status relation_give(relation *r, const char *stage, const ls_tensor *t, ls_error *err);
ls_status relation_follow(relation *r, ls_error *err);
ls_status relation_expect(relation *r, const char *stage, const ls_tensor *t, const ls_tensor *bound, ls_error *err);

/* Expects r->was's stage turned (a list). Nothing where it was not recorded. */
ls_status relation_expect_turned(relation *r, const char *stage, const relation_turn *turns, bool exact, ls_error *err);

void relation_hold_expected(relation *r);

/* ---- in one go ---- */

/* Holds a stage of r->is, exactly, against that of r->was times a power of two. */
ls_status relation_hold_scaled(relation *r, const char *stage, double factor, ls_error *err);

/* Adds a comparison of bytes, named by its tensors. */
void relation_hold_bytes(relation *r, const ls_trace *expected, const ls_trace *found, const char *const *names);

void relation_fail(relation *r, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* The record's tensor "layers/<layer>/<what>", which may be given another view; NULL where there is none. */
ls_tensor *relation_of_layer(const ls_trace *trace, int64_t layer, const char *what);

#endif
