/* Recorded paths: a path that was recorded is judged as it would have been, whatever has to be told, and only that; as a digest by rows.
 *
 * What a test plants is a lie of a path (session_run.h) while it is recorded. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "gpu/gpu_path.h"
#include "session_run.h"

static volatile sig_atomic_t never = 0;

typedef struct {
  const char *golden;
  int64_t keep;      /* steps of it */
  const char *stage; /* one that the planted lie is in, in this step and place */
  int64_t step;
  const char *where, *row; /* how the place is named, and its row */
} layer_case;

static const layer_case layers[] = {{GOLDEN "dflash_refusals.h5", 26, "k_rope", 20, "channel", "layer 1 row"},
                                    {GOLDEN "attn_v41_six_roles.h5", 18, "kv", 13, "channel", "row 0"}};
enum { LAYERS = sizeof layers / sizeof *layers };

/* Where the files of one test are. */
typedef struct {
  char fixture[SCRATCH], a[SCRATCH], b[SCRATCH];
} files;

static files begin(const layer_case *c) {
  files f;
  session_scratch(f.fixture, "fixture");
  session_scratch(f.a, "a");
  session_scratch(f.b, "b");
  copy_fixture(f.fixture, c->golden, &(plant){.keep = c->keep});
  return f;
}

static void end(const files *f) {
  unlink(f->fixture);
  unlink(f->a);
  unlink(f->b);
}

static void record(const char *file, const char *fixture, const ls_path *path, bool digest) {
  static const ls_trace_about about[] = {{"commit", "0123abc"}, {NULL, NULL}};
  ls_recording recording = {.file = file, .digest = digest, .about = about};
  ls_verify_options options = {.path = {&ls_path_ref, path},
                               .n_paths = path != NULL ? 2 : 1,
                               .only_step = -1,
                               .trust = true,
                               .interrupted = &never,
                               .record = &recording};
  ls_report *report = NULL;
  ls_error err = {LS_OK, ""};
  cr_assert_eq(ls_report_new(&report, &err), LS_OK);
  cr_assert_eq(ls_verify_fixture(fixture, &options, report, &err), LS_OK);
  cr_assert_eq(access(file, R_OK), 0, "no file");
  cr_assert_gt(recording.steps, 0);
  ls_report_free(report);
}

typedef struct {
  const char *file[2]; /* recorded, as A and B; NULL: none */
  const ls_path *path; /* beside them */
  ls_precision precision;
} sides;

/* The report's text is the caller's to free. apart: told by the session. */
static ls_status diff(const char *fixture, const sides *s, char **text, bool *apart) {
  static const char *const names[] = {"rec@A", "rec@B"};
  ls_report *report = NULL;
  ls_error err = {LS_OK, ""};
  bool told[LS_MAX_PATHS] = {false};
  ls_verify_options options = {.path = {&ls_path_ref}, .n_paths = 1, .only_step = -1, .trust = true, .interrupted = &never, .apart = told};
  options.options.precision = s->precision;
  for (int i = 0; i < 2; i++) {
    if (s->file[i] == NULL) continue;
    cr_assert_eq(ls_trace_reader_open(&options.recorded[options.n_paths], s->file[i], &err), LS_OK, "%s", err.text);
    options.recorded_name[options.n_paths++] = names[i];
  }
  if (s->path != NULL) options.path[options.n_paths++] = s->path;
  const ls_report_options print = {
      .program = "lockstep", .command = "diff", .operands = (const char *const[]){"a.h5", "b 1.h5", NULL}, .width = 200};
  cr_assert_eq(ls_report_new(&report, &err), LS_OK);
  ls_verify_fixture(fixture, &options, report, &err);
  size_t size = 0;
  FILE *out = open_memstream(text, &size);
  cr_assert_eq(ls_report_text(report, &print, out, &err), LS_OK, "%s", err.text);
  fclose(out);
  const ls_status status = ls_report_status(report, &print);
  ls_report_free(report);
  for (int p = 0; p < LS_MAX_PATHS; p++) ls_trace_reader_close(options.recorded[p]);
  for (int p = 0; apart != NULL && p < LS_MAX_PATHS; p++) *apart = (p > 0 && *apart) || told[p];
  return status;
}

static void expect(const char *what, const char *fixture, const sides *s, ls_status status, const char *said) {
  char *text = NULL;
  const ls_status found = diff(fixture, s, &text, NULL);
  cr_expect_eq(found, status, "%s: expected status %d, found %d:\n%s", what, (int)status, (int)found, text);
  if (said != NULL) cr_expect_not_null(strstr(text, said), "%s: expected '%s' in:\n%s", what, said, text);
  free(text);
}

/* Whether every line of the pair in the table says `word` in both of its halves, or is of a stage that is fused or not held. */
static void expect_every_line(const char *text, const char *pair, const char *word) {
  int lines = 0;
  for (const char *line = text; line != NULL; line = strchr(line, '\n') != NULL ? strchr(line, '\n') + 1 : NULL) {
    char stage[64], of[64], rest[256];
    if (sscanf(line, " %63s %63s %255[^\n]", stage, of, rest) != 3 || strcmp(of, pair) != 0) continue;
    if (strstr(rest, "FUSED") != NULL || strstr(rest, "NOT HELD") != NULL || strstr(rest, "NOT RUN") != NULL) continue;
    const char *first = strstr(rest, word);
    cr_expect(first != NULL && strstr(first + 1, word) != NULL, "%s %s: expected %s twice in: %s", stage, pair, word, rest);
    lines++;
  }
  cr_expect_gt(lines, 4, "%s: %d lines in:\n%s", pair, lines, text);
}

/* Whether no stage of the pair was judged isolated, and some cascaded. */
static void expect_not_isolated(const char *text, const char *pair) {
  int cascaded = 0;
  for (const char *line = text; line != NULL; line = strchr(line, '\n') != NULL ? strchr(line, '\n') + 1 : NULL) {
    char stage[64], of[64], rest[256];
    if (sscanf(line, " %63s %63s %255[^\n]", stage, of, rest) != 3 || strcmp(of, pair) != 0 || strncmp(rest, "FUSED", 5) == 0) continue;
    cr_expect_eq(strncmp(rest, "NOT RUN", 7), 0, "%s %s: %s", stage, pair, rest);
    cascaded += strstr(rest, "PASS") != NULL || strstr(rest, "SHARED") != NULL;
  }
  cr_expect_gt(cascaded, 4, "%s: %d lines in:\n%s", pair, cascaded, text);
}

/* ---- nothing wrong ---- */

Test(verify_recorded, a_trace_against_itself_is_equal_in_bits) {
  for (int i = 0; i < LAYERS; i++) {
    const files f = begin(&layers[i]);
    record(f.a, f.fixture, &ls_path_emu, false);
    char *text = NULL;
    bool apart = true;
    cr_expect_eq(diff(f.fixture, &(sides){.file = {f.a, f.a}}, &text, &apart), LS_OK, "%s", text);
    cr_expect_not(apart);
    expect_every_line(text, "rec@A-rec@B", " 100% ");
    cr_expect_null(strstr(text, "FAIL"), "%s", text);
    cr_expect(session_says(text, "untraced", "rec@A", "PASS") && session_says(text, "write-set", "rec@A", "PASS"), "%s", text);
    free(text);
    end(&f);
  }
}

/* The report of a recorded path is that of the path itself, line by line, but for the names. */
Test(verify_recorded, a_trace_is_judged_as_the_path_was) {
  for (int i = 0; i < LAYERS; i++) {
    const files f = begin(&layers[i]);
    record(f.a, f.fixture, &ls_path_emu, false);
    char *live = NULL, *recorded = NULL;
    cr_expect_eq(session_verify(f.fixture, &(session_how){.path = &ls_path_emu}, &live), LS_OK);
    cr_expect_eq(diff(f.fixture, &(sides){.file = {f.a, NULL}}, &recorded, NULL), LS_OK);
    int lines = 0;
    for (char *line = strtok(live, "\n"), *rest; line != NULL; line = strtok(NULL, "\n")) {
      char stage[64], pair[64], cells[256], wanted[400];
      if (sscanf(line, " %63s %63s %255[^\n]", stage, pair, cells) != 3 || (rest = strstr(pair, "emu")) == NULL) continue;
      if (strncmp(cells, "PASS", 4) != 0) continue;
      char numbers[4][32] = {"", "", "", ""};
      sscanf(cells, "%31s %31s %31s %31s", numbers[0], numbers[1], numbers[2], numbers[3]);
      snprintf(wanted, sizeof wanted, "%.*srec@A", (int)(rest - pair), pair);
      bool found = false;
      for (const char *at = recorded; at != NULL && !found; at = strchr(at, '\n') != NULL ? strchr(at, '\n') + 1 : NULL) {
        char s[64], p[64], c[256], n[4][32] = {"", "", "", ""};
        if (sscanf(at, " %63s %63s %255[^\n]", s, p, c) != 3 || strcmp(s, stage) != 0 || strcmp(p, wanted) != 0) continue;
        sscanf(c, "%31s %31s %31s %31s", n[0], n[1], n[2], n[3]);
        found = true;
        for (int k = 0; k < 4; k++) cr_expect_str_eq(n[k], numbers[k], "%s %s: live '%s', recorded '%s'", stage, pair, cells, c);
      }
      cr_expect(found, "no line for %s %s", stage, wanted);
      lines += found;
    }
    cr_expect_gt(lines, 12, "%d lines", lines);
    free(live);
    free(recorded);
    end(&f);
  }
}

Test(verify_recorded, a_trace_against_its_digest_and_two_digests_pass) {
  for (int i = 0; i < LAYERS; i++) {
    const files f = begin(&layers[i]);
    record(f.a, f.fixture, &ls_path_emu, false);
    record(f.b, f.fixture, &ls_path_emu, true);
    char *text = NULL;
    bool apart = true;
    cr_expect_eq(diff(f.fixture, &(sides){.file = {f.a, f.b}}, &text, &apart), LS_OK, "%s", text);
    cr_expect_not(apart);
    expect_every_line(text, "rec@A-rec@B", " 100% ");
    free(text);
    expect("two digests", f.fixture, &(sides){.file = {f.b, f.b}}, LS_OK, "1 pass");
    expect("a digest and a live path", f.fixture, &(sides){.file = {f.b, NULL}, .path = &ls_path_emu}, LS_OK, "1 pass");
    end(&f);
  }
}

Test(verify_recorded, the_reference_is_recorded_too_and_the_double_one_judges) {
  for (int i = 0; i < LAYERS; i++) {
    const files f = begin(&layers[i]);
    record(f.a, f.fixture, NULL, false);
    record(f.b, f.fixture, NULL, true);
    char *text = NULL;
    bool apart = true;
    cr_expect_eq(diff(f.fixture, &(sides){.file = {f.a, f.b}}, &text, &apart), LS_OK, "%s", text);
    cr_expect_not(apart, "%s", text);
    expect_every_line(text, "ref-rec@A", " 100% ");
    free(text);
    cr_expect_eq(diff(f.fixture, &(sides){.file = {f.a, f.b}, .precision = LS_PRECISION_F64}, &text, &apart), LS_OK, "%s", text);
    cr_expect_not(apart, "%s", text);
    free(text);
    end(&f);
  }
}

/* ---- one wrong element ---- */

static const layer_case *planted_in;
static bool planted_isolated_only;
static double planted_by;

/* Off by much in one element; in both modes, or in isolated mode alone. */
static void spoil(const ls_step *step, const ls_trace *given, ls_trace *out) {
  const ls_tensor *t = ls_trace_tensor(out, planted_in->stage);
  if (step->number != planted_in->step || t == NULL) return;
  const bool isolated = given != NULL && ls_trace_find(given, planted_in->stage[0] == 'k' && planted_in->stage[1] == 'v' ? "x" : "capture");
  if (planted_isolated_only && !isolated) return;
  ls_tensor_set(t, ls_tensor_count(t) - 3, ls_tensor_get(t, ls_tensor_count(t) - 3) + planted_by);
}

static void planted(const layer_case *c, double by, bool digest, ls_status status, const char *said) {
  const files f = begin(c);
  planted_in = c;
  planted_by = by;
  planted_isolated_only = true; /* cascaded, the stage and what is stored of it must agree */
  record(f.a, f.fixture, session_cheat(&(session_lies){.record = spoil}), digest);
  record(f.b, f.fixture, &ls_path_ref, false);
  char *text = NULL;
  const ls_status found = diff(f.fixture, &(sides){.file = {f.a, f.b}}, &text, NULL);
  cr_expect_eq(found, status, "%s %g: expected status %d, found %d:\n%s", c->stage, by, (int)status, (int)found, text);
  if (said != NULL) cr_expect_not_null(strstr(text, said), "expected '%s' in:\n%s", said, text);
  if (status == LS_DIVERGED) {
    char first[128];
    snprintf(first, sizeof first, "first divergence: step %d, %s", (int)c->step, c->stage);
    cr_expect_not_null(strstr(text, first), "expected '%s' in:\n%s", first, text);
    const char *line = strstr(text, "first divergence:");
    char head[400];
    snprintf(head, sizeof head, "%.*s", (int)strcspn(line, "\n"), line);
    cr_expect_not_null(strstr(head, c->row), "expected '%s' in: %s", c->row, head);
    cr_expect_eq(strstr(head, c->where) != NULL, !digest, "a digest names the row, values the element: %s", head);
    cr_expect_not_null(strstr(text, "lockstep diff --stage"), "how to repeat it: %s", text);
    cr_expect_not_null(strstr(text, " a.h5 'b 1.h5'"), "%s", text);
  }
  free(text);
  end(&f);
}

Test(verify_recorded, one_wrong_element_is_named_exactly) {
  for (int i = 0; i < LAYERS; i++) {
    planted(&layers[i], 8, false, LS_DIVERGED, "introduced here");
    planted(&layers[i], 0, false, LS_OK, "1 pass"); /* the near miss: nothing planted */
  }
}

Test(verify_recorded, of_a_digest_the_row_is_named) {
  for (int i = 0; i < LAYERS; i++) {
    planted(&layers[i], 8, true, LS_DIVERGED, "which element, a digest cannot tell");
    planted(&layers[i], 0, true, LS_OK, "1 pass");
  }
}

/* ---- what is stored, and properties ---- */

static void wrong_slot(const ls_step *step, const ls_trace *out, ls_trace *state) {
  (void)out;
  const ls_tensor *ring = ls_trace_tensor(state, "k_ring");
  if (step->op == LS_OP_REWIND && ring != NULL) ls_tensor_set(ring, 5, 17);
}

Test(verify_recorded, a_write_outside_its_slots_is_told_of_a_trace_and_of_a_digest) {
  for (int digest = 0; digest < 2; digest++) {
    const files f = begin(&layers[0]);
    record(f.a, f.fixture, session_cheat(&(session_lies){.state = wrong_slot}), digest);
    char *text = NULL;
    cr_expect_eq(diff(f.fixture, &(sides){.file = {f.a, NULL}}, &text, NULL), LS_DIVERGED, "%s", text);
    cr_expect(session_says(text, "write-set", "rec@A", "FAIL"), "%s", text);
    free(text);
    end(&f);
  }
}

static ls_status skips_untraced(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, ls_error *err) {
  if (out == NULL && (step->op == LS_OP_CONTEXT_WRITE || step->op == LS_OP_FORWARD)) return LS_OK;
  return ls_path_ref.step(ctx, step, given, out, true, err);
}

Test(verify_recorded, what_needs_the_path_is_told_as_it_was_when_recorded) {
  for (int i = 0; i < LAYERS; i++) {
    const files f = begin(&layers[i]);
    record(f.a, f.fixture, session_cheat(&(session_lies){.step = skips_untraced}), false);
    char *text = NULL;
    cr_expect_eq(diff(f.fixture, &(sides){.file = {f.a, NULL}}, &text, NULL), LS_DIVERGED, "%s", text);
    cr_expect(session_says(text, "untraced", "rec@A", "FAIL"), "%s", text);
    cr_expect_not_null(strstr(text, "when it was recorded: "), "%s", text);
    free(text);
    end(&f);
  }
}

/* ---- shapes that no such stage has ---- */

static int64_t more; /* rows and layers that a record has too many, or, below 0, too few */

static void misshape(const ls_step *step, const ls_trace *given, ls_trace *out) {
  (void)given;
  if (step->number % 2 != 0) return;
  for (int i = 0, n = out->n; i < n; i++) {
    int64_t dim[LS_MAX_DIMS];
    ls_tensor t;
    char name[LS_NAME_MAX + 8];
    memcpy(dim, out->rec[i].t.dim, sizeof dim);
    for (int d = 0; d < out->rec[i].t.ndim; d++) dim[d] = dim[d] + more > 0 ? dim[d] + more : 1;
    snprintf(name, sizeof name, "%s misshaped", out->rec[i].name);
    cr_assert_eq(ls_trace_add(out, name, out->rec[i].t.dtype, out->rec[i].t.ndim, dim, &t, NULL), LS_OK);
    memset(t.data, 1, ls_tensor_bytes(&t));
    out->rec[i].t = t;
    out->n--; /* its memory stays */
  }
}

Test(verify_recorded, records_of_impossible_shapes_fail_and_nothing_else) {
  for (int i = 0; i < 2 * LAYERS; i++) {
    const files f = begin(&layers[i / 2]);
    more = i % 2 == 0 ? 3 : -1;
    for (int digest = 0; digest < 2; digest++) {
      record(f.a, f.fixture, session_cheat(&(session_lies){.record = misshape}), digest);
      expect("against the reference", f.fixture, &(sides){.file = {f.a, NULL}}, LS_DIVERGED, "FAIL");
      expect("against itself", f.fixture, &(sides){.file = {f.a, f.a}}, LS_DIVERGED, "FAIL");
    }
    end(&f);
  }
}

/* ---- other given values ---- */

/* The reference of another machine: one stage a step of the last place away, in a step that the fixture holds nothing of. */
static const char *off_stage;
static ls_status off_by_a_step(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, bool rings, ls_error *err) {
  ls_status status = ls_path_ref.step(ctx, step, given, out, rings, err);
  const ls_tensor *t = status == LS_OK ? ls_trace_tensor(out, off_stage) : NULL;
  if (t != NULL && ls_tensor_count(t) > 0) {
    const int64_t i = ls_tensor_count(t) / 2;
    ls_tensor_set(t, i, ls_tensor_get(t, i) + ls_step_at(t->dtype, ls_tensor_get(t, i)));
  }
  return status;
}

/* Records as that machine would: its reference gives what is read. */
static void record_elsewhere(const char *file, const char *fixture, const char *stage, bool digest) {
  ls_path elsewhere = ls_path_ref;
  elsewhere.step = off_by_a_step;
  off_stage = stage;
  ls_recording recording = {.file = file, .digest = digest};
  ls_verify_options options = {
      .path = {&elsewhere, &ls_path_emu}, .n_paths = 2, .only_step = -1, .trust = true, .interrupted = &never, .record = &recording};
  ls_report *report = NULL;
  ls_error err = {LS_OK, ""};
  cr_assert_eq(ls_report_new(&report, &err), LS_OK);
  cr_assert_eq(ls_verify_fixture(fixture, &options, report, &err), LS_OK);
  ls_report_free(report);
}

Test(verify_recorded, what_was_given_elsewhere_is_given_here) {
  static const char *const stages[] = {"ctx_normed", "q_proj"};
  for (int i = 0; i < LAYERS; i++) {
    files f = begin(&layers[i]);
    copy_fixture(f.fixture, layers[i].golden, &(plant){.drop = "*", .keep = layers[i].keep}); /* nothing is held, all is given */
    record_elsewhere(f.a, f.fixture, stages[i], false);
    char *text = NULL;
    bool apart = true;
    cr_expect_eq(diff(f.fixture, &(sides){.file = {f.a, NULL}}, &text, &apart), LS_OK, "%s", text);
    cr_expect_not(apart, "it was given what is read here:\n%s", text);
    cr_expect_null(strstr(text, "was given other values"), "%s", text);
    free(text);

    record_elsewhere(f.b, f.fixture, stages[i], true); /* a digest keeps no given values: the reference's own are others */
    cr_expect_eq(diff(f.fixture, &(sides){.file = {f.b, NULL}}, &text, &apart), LS_OK, "%s", text);
    cr_expect(apart, "%s", text);
    cr_expect_not_null(strstr(text, "path rec@A was given other values than the reference reads here, from step"), "%s", text);
    expect_not_isolated(text, "ref-rec@A");
    free(text);
    cr_expect_eq(diff(f.fixture, &(sides){.file = {f.a, f.b}}, &text, &apart), LS_OK, "%s", text); /* but beside the trace they are here */
    cr_expect_not(apart, "%s", text);
    free(text);

    record(f.b, f.fixture, &ls_path_emu, false); /* two traces of two machines */
    cr_expect_eq(diff(f.fixture, &(sides){.file = {f.a, f.b}}, &text, &apart), LS_OK, "%s", text);
    cr_expect(apart, "%s", text);
    cr_expect_not_null(strstr(text, "path rec@B was given other values"), "%s", text);
    expect_not_isolated(text, "ref-rec@B");
    expect_not_isolated(text, "rec@A-rec@B");
    free(text);
    end(&f);
  }
}

/* Another choice among the reference's scores: legal, and followed where it is recorded. */
static ls_status chooses_otherwise(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, bool rings, ls_error *err) {
  ls_status status = ls_path_ref.step(ctx, step, given, out, rings, err);
  const ls_tensor *idx = status == LS_OK && step->number == 13 ? ls_trace_tensor(out, "compress_idx") : NULL;
  if (idx != NULL && ls_tensor_count(idx) > 0)
    ls_tensor_set(idx, ls_tensor_count(idx) - 1, -1); /* one entry less: not what was chosen here */
  return status;
}

Test(verify_recorded, another_selection_is_followed_and_two_of_them_are_kept_apart) {
  files f = begin(&layers[1]);
  copy_fixture(f.fixture, layers[1].golden, &(plant){.drop = "*", .keep = layers[1].keep});
  ls_path elsewhere = ls_path_ref;
  elsewhere.step = chooses_otherwise;
  ls_recording recording = {.file = f.a};
  ls_verify_options options = {
      .path = {&elsewhere, &ls_path_emu}, .n_paths = 2, .only_step = -1, .trust = true, .interrupted = &never, .record = &recording};
  ls_report *report = NULL;
  ls_error err = {LS_OK, ""};
  cr_assert_eq(ls_report_new(&report, &err), LS_OK);
  cr_assert_eq(ls_verify_fixture(f.fixture, &options, report, &err), LS_OK);
  ls_report_free(report);
  record(f.b, f.fixture, &ls_path_emu, false);
  char *text = NULL;
  bool apart = true;
  diff(f.fixture, &(sides){.file = {f.a, NULL}}, &text, &apart);
  cr_expect_null(strstr(text, "followed another selection"), "%s", text);
  cr_expect_null(strstr(text, "sparse_o  ref-rec@A  FAIL"), "%s", text);
  free(text);
  diff(f.fixture, &(sides){.file = {f.a, f.b}}, &text, &apart);
  cr_expect(apart);
  cr_expect_not_null(strstr(text, "path rec@B followed another selection than is followed here, from step 13 on: not compared cascaded"),
                     "%s", text);
  free(text);
  end(&f);
}

/* ---- files ---- */

Test(verify_recorded, a_trace_of_another_fixture_stops_the_session) {
  const files f = begin(&layers[0]);
  record(f.a, f.fixture, &ls_path_emu, false);
  expect("another fixture", GOLDEN "dflash_rounds.h5", &(sides){.file = {f.a, NULL}}, LS_BAD_FIXTURE, "of another fixture");
  end(&f);
}

static void interrupt(const ls_step *step, const ls_trace *given, ls_trace *out) {
  (void)given, (void)out;
  if (step->number == 20) never = 1;
}

Test(verify_recorded, an_interrupted_recording_leaves_no_file) {
  const files f = begin(&layers[0]);
  ls_recording recording = {.file = f.a};
  ls_verify_options options = {.path = {&ls_path_ref, session_cheat(&(session_lies){.record = interrupt})},
                               .n_paths = 2,
                               .only_step = -1,
                               .trust = true,
                               .interrupted = &never,
                               .record = &recording};
  ls_report *report = NULL;
  ls_error err = {LS_OK, ""};
  char command[SCRATCH + 64];
  cr_assert_eq(ls_report_new(&report, &err), LS_OK);
  cr_expect_eq(ls_verify_fixture(f.fixture, &options, report, &err), LS_INTERRUPTED);
  ls_report_free(report);
  cr_expect(recording.steps > 10 && recording.steps < 40, "%d steps", (int)recording.steps);
  snprintf(command, sizeof command, "ls %s* >/dev/null 2>&1", f.a);
  cr_expect_neq(system(command), 0, "something was left behind");
  end(&f);
}
