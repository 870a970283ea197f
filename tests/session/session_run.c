#include "session_run.h"

#include <stdlib.h>
#include <unistd.h>

#include "layers/ls_run.h"

static volatile sig_atomic_t not_interrupted = 0;

ls_status session_verify(const char *file, const session_how *how, char **text) {
  ls_error err = {LS_OK, ""};
  ls_report *report = NULL;
  ls_verify_options options = {.path = {&ls_path_ref, how->path},
                               .n_paths = how->path != NULL ? 2 : 1,
                               .only_step = how->judge_one ? how->only : -1,
                               .allow_nonfinite = how->allow_nonfinite,
                               .relations = how->relations,
                               .stage_glob = how->stage,
                               .trust = true,
                               .interrupted = &not_interrupted};
  options.options.precision = how->precision;
  ls_report_options print = {.program = "lockstep", .repeat_options = "", .allow_mistrusted = how->allow_mistrusted};
  cr_assert_eq(ls_report_new(&report, &err), LS_OK);
  ls_verify_fixture(file, &options, report, &err);
  size_t size = 0;
  FILE *out = open_memstream(text, &size);
  cr_assert_eq(ls_report_text(report, &print, out, &err), LS_OK, "%s", err.text);
  fclose(out);
  ls_status status = ls_report_status(report, &print);
  ls_report_free(report);
  return status;
}

bool session_says(const char *text, const char *property, const char *path, const char *verdict) {
  for (const char *line = text; line != NULL; line = strchr(line, '\n') != NULL ? strchr(line, '\n') + 1 : NULL) {
    char word[3][64];
    if (sscanf(line, "%63s %63s %63s", word[0], word[1], word[2]) != 3) continue;
    if (strcmp(word[0], property) == 0 && strcmp(word[1], path) == 0) return strcmp(word[2], verdict) == 0;
  }
  return false;
}

void session_scratch(char path[SCRATCH], const char *name) {
  snprintf(path, SCRATCH, "%s/session-%d-%s.h5", LS_BINARY_DIR, (int)getpid(), name);
}

void session_expect(const char *what, const plant *p, const char *golden, const session_how *how, ls_status status, const char *said) {
  char file[SCRATCH], *text = NULL;
  session_scratch(file, "copy");
  copy_fixture(file, golden, p);
  const ls_status found = session_verify(file, how, &text);
  cr_expect_eq(found, status, "%s: expected status %d, found %d:\n%s", what, (int)status, (int)found, text);
  if (said != NULL) cr_expect_not_null(strstr(text, said), "%s: expected '%s' in:\n%s", what, said, text);
  free(text);
  unlink(file);
}

/* ---- scenarios ---- */

typedef struct {
  const ls_path *path;
  ls_run run;
  bool open;
} oracle;

static ls_status answer(void *arg, const ls_config *config, const ls_trace *weights, const ls_trace *start, ls_step *step, ls_error *err) {
  oracle *o = arg;
  const ls_path_options options = {.precision = LS_PRECISION_ACT};
  if (!o->open) LS_TRY(ls_run_open(&o->run, o->path, config, weights, &options, start, err));
  o->open = true;
  ls_run_result result;
  LS_TRY(ls_run_step(&o->run, step, NULL, NULL, true, &result, err));
  step->expect_refused = result.status == LS_REFUSED;
  step->expect = result.out;
  result.out = NULL;
  ls_run_result_free(&result);
  return LS_OK;
}

void session_generate(const char *file, const ls_make_attn *make, const ls_path *path) {
  ls_error err = {LS_OK, ""};
  oracle o = {.path = path != NULL ? path : &ls_path_ref};
  const ls_status status = ls_make_attn_fixture(file, make, answer, &o, "session tests", &err);
  if (o.open) ls_run_close(&o.run);
  cr_assert_eq(status, LS_OK, "seed %llu: %s", (unsigned long long)make->seed, err.text);
}

/* ---- the twin ---- */

static session_lies lies;

static ls_status lie_in_state(void *ctx, const ls_step *step, const ls_trace *out, ls_error *err) {
  ls_trace *state = NULL;
  LS_TRY(ls_trace_new(&state, "cheat", err));
  ls_status status = ls_path_ref.save(ctx, state, err);
  if (status == LS_OK) {
    lies.state(step, out, state);
    status = ls_path_ref.load(ctx, state, err);
  }
  ls_trace_free(state);
  return status;
}

/* Twice: for the scores to choose by, then from the same state with the choice given. */
static ls_status step_with_choice(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  ls_trace *before = NULL, *first = NULL, *with = NULL;
  ls_status status;
  LS_TRY_OUT(ls_trace_new(&before, "before", err));
  LS_TRY_OUT(ls_trace_new(&first, "first", err));
  LS_TRY_OUT(ls_trace_new(&with, "given", err));
  LS_TRY_OUT(ls_path_ref.save(ctx, before, err));
  LS_TRY_OUT(ls_path_ref.step(ctx, step, given, first, false, err));
  const ls_tensor *choice = ls_trace_tensor(first, lies.stage);
  const bool changed = choice != NULL && lies.choose(step, given, first, choice);
  for (int i = 0; given != NULL && i < given->n; i++) LS_TRY_OUT(ls_trace_add_view(with, given->rec[i].name, &given->rec[i].t, err));
  if (changed && ls_trace_find(with, lies.stage) == NULL) LS_TRY_OUT(ls_trace_add_view(with, lies.stage, choice, err));
  LS_TRY_OUT(ls_path_ref.load(ctx, before, err));
  LS_TRY_OUT(ls_path_ref.step(ctx, step, with, out, false, err));
  const bool scores_too = strcmp(lies.stage, "compress_idx") == 0;
  for (int i = 0; changed && out != NULL && i < out->n; i++) { /* what it says of the choice, and of the scores that it made it by */
    const char *name = out->rec[i].name;
    if (strcmp(name, lies.stage) != 0 && !(scores_too && strcmp(name, "index_score") == 0)) continue;
    LS_TRY_OUT(ls_tensor_copy(&out->rec[i].t, ls_trace_tensor(first, name), err));
  }
out:
  ls_trace_free(with);
  ls_trace_free(first);
  ls_trace_free(before);
  return status;
}

static ls_status cheat_step(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, bool rings, ls_error *err) {
  ls_status status = lies.step != NULL     ? lies.step(ctx, step, given, out, err)
                     : lies.choose != NULL ? step_with_choice(ctx, step, given, out, err)
                                           : ls_path_ref.step(ctx, step, given, out, rings, err);
  if (status == LS_OK && out != NULL && lies.record != NULL) lies.record(step, given, out);
  if ((status == LS_OK || status == LS_REFUSED) && lies.state != NULL) LS_TRY(lie_in_state(ctx, step, out, err));
  return status;
}

static ls_stage_kind cheat_kind(void *ctx, const ls_step *step, const char *stage) {
  const ls_stage_kind kind = ls_path_ref.stage_kind(ctx, step, stage);
  return lies.fused != NULL && kind == LS_STAGE_OWN && in_list(lies.fused, stage) ? LS_STAGE_FUSED : kind;
}

const ls_path *session_cheat(const session_lies *of) {
  static ls_path cheat;
  lies = *of;
  cheat = ls_path_ref;
  cheat.name = "cheat";
  cheat.step = cheat_step;
  cheat.stage_kind = cheat_kind;
  return &cheat;
}
