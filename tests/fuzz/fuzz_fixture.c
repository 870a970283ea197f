/* Fuzz target: a fixture that is a sound HDF5 file and says anything: fixtures/fixture_open.c, fixture_load.c, fixture_describe.c,
 * fixture_digest.c, and the layers' tables behind them. The first byte chooses the sound fixture, the rest are edits (fuzz_edit.h). */
#include "fixtures/ls_fixture.h"
#include "fuzz_edit.h"
#include "tests/fixtures/sound_fixture.h"

static fuzz_base base[3];
static fuzz_file file;

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc, (void)argv;
  char path[128];
  for (int i = 0; i < 3; i++) {
    fuzz_scratch(path, "base.h5");
    if (i == 0)
      write_small(path);
    else
      write_small_attn(path, i == 2);
    fuzz_base_load(&base[i], path);
    remove(path);
  }
  fuzz_file_new(&file);
  return 0;
}

static const unsigned good_or_bad = 1u << LS_OK | 1u << LS_BAD_FIXTURE;

static void read_steps(ls_fixture *fixture) {
  for (int64_t i = 0; i < ls_fixture_steps(fixture); i++) {
    ls_step step;
    ls_error err = {LS_OK, ""};
    const ls_status status = ls_fixture_load_step(fixture, i, &step, &err);
    fuzz_expect("ls_fixture_load_step", status, good_or_bad, &err);
    ls_step_free(&step);
  }
}

static void read_all(const char *path, bool nonfinite) {
  const ls_fixture_options options = {.allow_nonfinite = nonfinite, .problems = fuzz_nowhere()};
  ls_fixture *fixture = NULL;
  const ls_trace *weights = NULL;
  ls_trace *state = NULL;
  uint64_t digest = 0;
  ls_error err = {LS_OK, ""};
  ls_status status = ls_fixture_open(&fixture, path, &options, &err);
  fuzz_expect("ls_fixture_open", status, good_or_bad, &err);
  if (status != LS_OK) return;
  fuzz_expect("ls_fixture_describe", ls_fixture_describe(fixture, fuzz_nowhere(), &err), 1u << LS_OK, &err);
  ls_fixture_has_expected(fixture);
  status = ls_fixture_check_values(fixture, &err);
  fuzz_expect("ls_fixture_check_values", status, good_or_bad, &err);
  err = (ls_error){LS_OK, ""};
  fuzz_expect("ls_fixture_weights", ls_fixture_weights(fixture, &weights, &err), good_or_bad, &err);
  err = (ls_error){LS_OK, ""};
  fuzz_expect("ls_fixture_state", ls_fixture_state(fixture, &state, &err), good_or_bad, &err);
  ls_trace_free(state);
  err = (ls_error){LS_OK, ""};
  fuzz_expect("ls_fixture_digest", ls_fixture_digest(fixture, &digest, &err), good_or_bad, &err);
  read_steps(fixture);
  ls_fixture_close(fixture);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_bytes b = {data, data + size};
  const uint8_t first = fuzz_u8(&b);
  fuzz_edit(&base[first % 3], &file, &b);
  read_all(file.path, first >= 128);
  return 0;
}
