/* Fuzz target: a recorded trace that is a sound HDF5 file and says anything: fixtures/trace_read.c, core/ls_trace_delta.c. The first byte
 * chooses what was recorded, the rest are edits (fuzz_edit.h). The fixture that a trace belongs to is sound. */
#include <stdlib.h>

#include "cli/verify_session.h"
#include "core/ls_trace_delta.h"
#include "fuzz_edit.h"
#include "tests/fixtures/sound_fixture.h"

enum { FIXTURES = 2 };

static ls_fixture *fixture[FIXTURES];
static ls_trace *start[FIXTURES]; /* its /state */
static fuzz_base base[2 * FIXTURES];
static fuzz_file file;

static void must(ls_status status, const ls_error *err) { fuzz_expect("making what is fuzzed", status, 1u << LS_OK, err); }

/* As `lockstep record --path ref` does. */
static void record(const char *to, const char *of, bool digest) {
  static const ls_trace_about about[] = {{"commit", "0123abc"}, {NULL, NULL}};
  static volatile sig_atomic_t never;
  ls_recording recording = {.file = to, .digest = digest, .about = about};
  const ls_verify_options options = {
      .path = {&ls_path_ref}, .n_paths = 1, .only_step = -1, .record = &recording, .trust = true, .interrupted = &never};
  ls_error err = {LS_OK, ""};
  ls_report *report = NULL;
  must(ls_report_new(&report, &err), &err);
  must(ls_verify_fixture(of, &options, report, &err), &err);
  ls_report_free(report);
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc, (void)argv;
  ls_error err = {LS_OK, ""};
  static fuzz_file sound[FIXTURES];
  for (int i = 0; i < FIXTURES; i++) {
    char made[128], recorded[128];
    fuzz_scratch(made, "base.h5");
    fuzz_scratch(recorded, "recorded.h5");
    if (i == 0)
      write_small(made);
    else
      write_small_attn(made, true);
    size_t n = 0;
    uint8_t *bytes = fuzz_file_bytes(made, &n);
    fuzz_file_new(&sound[i]);
    fuzz_file_set(&sound[i], bytes, n);
    free(bytes);
    must(ls_fixture_open(&fixture[i], sound[i].path, NULL, &err), &err);
    must(ls_fixture_state(fixture[i], &start[i], &err), &err);
    for (int digest = 0; digest < 2; digest++) {
      record(recorded, made, digest == 1);
      fuzz_base_load(&base[2 * i + digest], recorded);
      remove(recorded);
    }
    remove(made);
  }
  fuzz_file_new(&file);
  return 0;
}

static const unsigned good_or_bad = 1u << LS_OK | 1u << LS_BAD_FIXTURE;

/* Every step, and the states that the recorded changes lead to. */
static void follow(ls_trace_reader *reader, const ls_fixture *of, ls_trace *state) {
  for (int64_t i = 0; i < ls_fixture_steps(of); i++) {
    ls_trace_step step;
    ls_error err = {LS_OK, ""};
    ls_status status = ls_trace_reader_step(reader, i, &step, &err);
    fuzz_expect("ls_trace_reader_step", status, good_or_bad, &err);
    if (status == LS_OK && state != NULL) {
      ls_trace *after = NULL;
      status = ls_trace_patch(&after, state, step.part[LS_TRACE_STATE], "recorded", &err);
      fuzz_expect("ls_trace_patch", status, good_or_bad, &err);
      if (status == LS_OK) {
        status = ls_trace_reader_check_state(reader, after, step.number, &err);
        fuzz_expect("ls_trace_reader_check_state", status, good_or_bad, &err);
      }
      ls_trace_free(state);
      state = status == LS_OK ? after : NULL;
      if (status != LS_OK) ls_trace_free(after);
    }
    ls_trace_step_free(&step);
  }
  ls_trace_free(state);
}

static void read_all(const char *path, int of) {
  ls_trace_reader *reader = NULL;
  ls_trace *state = NULL;
  bool is_trace = false;
  ls_error err = {LS_OK, ""};
  fuzz_expect("ls_trace_file_is", ls_trace_file_is(path, &is_trace, &err), good_or_bad, &err);
  err = (ls_error){LS_OK, ""};
  ls_status status = ls_trace_reader_open(&reader, path, &err);
  fuzz_expect("ls_trace_reader_open", status, good_or_bad, &err);
  if (status != LS_OK) return;
  fuzz_expect("ls_trace_reader_describe", ls_trace_reader_describe(reader, fuzz_nowhere(), &err), 1u << LS_OK, &err);
  ls_trace_reader_about(reader, "commit");
  status = ls_trace_reader_bind(reader, fixture[of], &err);
  fuzz_expect("ls_trace_reader_bind", status, good_or_bad, &err);
  if (status == LS_OK) {
    status = ls_trace_reader_start(reader, start[of], &state, &err);
    fuzz_expect("ls_trace_reader_start", status, good_or_bad, &err);
    follow(reader, fixture[of], state);
  }
  ls_trace_reader_close(reader);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_bytes b = {data, data + size};
  const int which = (int)fuzz_below(&b, 2 * FIXTURES);
  fuzz_edit(&base[which], &file, &b);
  read_all(file.path, which / 2);
  return 0;
}
