/* session_run: a verify session as a test wants it, generated attn_v41 scenarios, and paths that do the reference's work and lie. */
#ifndef SESSION_RUN_H
#define SESSION_RUN_H

#include "cli/verify_session.h"
#include "layers/ls_path.h"
#include "planted_fixture.h"

#define GOLDEN LS_SOURCE_DIR "/fixtures/golden/"

enum { SCRATCH = 512 };

typedef struct {
  const ls_path *path; /* beside the reference; NULL: none */
  ls_precision precision;
  bool judge_one; /* only step `only` is judged */
  int64_t only;
  bool allow_nonfinite;
  bool allow_mistrusted;
  bool relations;
  const char *stage; /* glob of what is judged; NULL: all */
} session_how;

/* The report's text is the caller's to free. */
ls_status session_verify(const char *file, const session_how *how, char **text);

/* A copy of `golden` with the plant, verified: the status, and what the report must say (NULL: nothing). Tells `what` where it fails. */
void session_expect(const char *what, const plant *p, const char *golden, const session_how *how, ls_status status, const char *said);

/* Whether the report's line of a property of a path has this verdict. */
bool session_says(const char *text, const char *property, const char *path, const char *verdict);

/* A name for a scratch file of this process. */
void session_scratch(char path[SCRATCH], const char *name);

/* A scenario with the expectations of a path, the reference where NULL. */
void session_generate(const char *file, const ls_make_attn *make, const ls_path *path);

/* ---- a twin of the reference, named "cheat", that lies in one way ---- */

/* The file's own lies. All NULL: an honest twin. */
typedef struct {
  /* Instead of the reference's step; honest work is ls_path_ref.step on the same arguments. */
  ls_status (*step)(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err);
  /* After a traced step that was done. */
  void (*record)(const ls_step *step, const ls_trace *given, ls_trace *out);
  /* The state that a step left, or left alone when it was refused. out NULL: an untraced step. */
  void (*state)(const ls_step *step, const ls_trace *out, ls_trace *state);
  /* One stage as the step made it (or a choice: compress_idx, candidates); `recorded` is all that it recorded. True where choose changed
   * it: the twin then goes on with it, wherever it is not given another. Of a choice, what it changed of the scores is told too. */
  const char *stage;
  bool (*choose)(const ls_step *step, const ls_trace *given, ls_trace *recorded, const ls_tensor *choice);
  const char *fused; /* glob list of stages that are called fused */
} session_lies;

const ls_path *session_cheat(const session_lies *lies);

/* Isolated steps are given x. */
static inline bool session_is_isolated(const ls_trace *given) { return ls_trace_find(given, "x") != NULL; }

#endif
