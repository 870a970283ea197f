/* Fuzz target: a file of any bytes, as the command reads it: ls_fixture_probe, whose child process may crash or hang in libhdf5 as it
 * likes, and only where that finds nothing wrong the reader in this process. A crash here is a file that got past the probe. libFuzzer's
 * mutations are followed by one of our own: checksums of object headers (HDF5 1.10's, version 2) are put right, so that changed metadata
 * are read at all. */
#include <pthread.h>
#include <string.h>

#include "fixtures/ls_fixture.h"
#include "fixtures/ls_trace_file.h"
#include "fuzz_target.h"

static fuzz_file file;

#if defined(FUZZ_MUTATES)
void __sanitizer_set_death_callback(void (*callback)(void));
static void nothing(void) {}
/* What a sanitizer finds in libhdf5 ends the probe's child, as a crash does: that is no finding, and libFuzzer must not keep it as one. */
static void in_child(void) { __sanitizer_set_death_callback(nothing); }
#endif

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc, (void)argv;
#if defined(FUZZ_MUTATES)
  pthread_atfork(NULL, NULL, in_child);
#endif
  fuzz_file_new(&file);
  return 0;
}

#if defined(FUZZ_MUTATES) /* a replay does not */
/* ---- checksums ---- */

static uint32_t turned(uint32_t x, int k) { return x << k | x >> (32 - k); }

static uint32_t word(const uint8_t *at, size_t n) {
  uint32_t v = 0;
  for (size_t i = 0; i < n && i < 4; i++) v |= (uint32_t)at[i] << 8 * i;
  return v;
}

/* Bob Jenkins' hashlittle, initial value 0. */
static uint32_t lookup3(const uint8_t *at, size_t n) {
  uint32_t a = 0xDEADBEEF + (uint32_t)n, b = a, c = a;
  while (n > 12) {
    a += word(at, 4), b += word(at + 4, 4), c += word(at + 8, 4);
    a = (a - c) ^ turned(c, 4), c += b;
    b = (b - a) ^ turned(a, 6), a += c;
    c = (c - b) ^ turned(b, 8), b += a;
    a = (a - c) ^ turned(c, 16), c += b;
    b = (b - a) ^ turned(a, 19), a += c;
    c = (c - b) ^ turned(b, 4), b += a;
    at += 12, n -= 12;
  }
  if (n == 0) return c;
  a += word(at, n), b += n > 4 ? word(at + 4, n - 4) : 0, c += n > 8 ? word(at + 8, n - 8) : 0;
  c = (c ^ b) - turned(b, 14);
  a = (a ^ c) - turned(c, 11);
  b = (b ^ a) - turned(a, 25);
  c = (c ^ b) - turned(b, 16);
  a = (a ^ c) - turned(c, 4);
  b = (b ^ a) - turned(a, 14);
  return (c ^ b) - turned(b, 24);
}

static void put_checksum(uint8_t *from, uint8_t *end) {
  const uint32_t sum = lookup3(from, (size_t)(end - from));
  for (int i = 0; i < 4; i++) end[i] = (uint8_t)(sum >> 8 * i);
}

/* Object headers and the superblock. */
static void put_checksums(uint8_t *bytes, size_t n) {
  if (n >= 48 && memcmp(bytes, "\211HDF\r\n\032\n", 8) == 0 && bytes[8] >= 2) put_checksum(bytes, bytes + 44);
  for (size_t at = 0; at + 8 < n; at++) {
    if (memcmp(bytes + at, "OHDR", 4) != 0) continue;
    const uint8_t flags = bytes[at + 5];
    const size_t first = at + 6 + (flags & 32 ? 16 : 0) + (flags & 16 ? 4 : 0), width = (size_t)1 << (flags & 3);
    if (first + width > n) continue;
    const size_t size = word(bytes + first, width), end = first + width + size;
    if (size < n && end + 4 <= n) put_checksum(bytes + at, bytes + end);
  }
}

size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t most);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed);
size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t most, unsigned seed) {
  size = LLVMFuzzerMutate(data, size, most);
  if (seed % 8 != 0) put_checksums(data, size);
  return size;
}
#endif

/* ---- reading ---- */

static const unsigned good_or_bad = 1u << LS_OK | 1u << LS_BAD_FIXTURE;

static void read_trace(const char *path) {
  ls_trace_reader *reader = NULL;
  ls_error err = {LS_OK, ""};
  const ls_status status = ls_trace_reader_open(&reader, path, &err);
  fuzz_expect("ls_trace_reader_open", status, good_or_bad, &err);
  if (status == LS_OK) ls_trace_reader_describe(reader, fuzz_nowhere(), &err);
  ls_trace_reader_close(reader);
}

static void read_fixture(const char *path) {
  const ls_fixture_options options = {.allow_nonfinite = true, .problems = fuzz_nowhere()};
  ls_fixture *fixture = NULL;
  ls_trace *state = NULL;
  const ls_trace *weights = NULL;
  ls_error err = {LS_OK, ""};
  ls_status status = ls_fixture_open(&fixture, path, &options, &err);
  fuzz_expect("ls_fixture_open", status, good_or_bad, &err);
  if (status != LS_OK) return;
  fuzz_expect("ls_fixture_check_values", ls_fixture_check_values(fixture, &err), good_or_bad, &err);
  ls_fixture_weights(fixture, &weights, NULL);
  ls_fixture_state(fixture, &state, NULL);
  ls_trace_free(state);
  for (int64_t i = 0; i < ls_fixture_steps(fixture); i++) {
    ls_step step;
    ls_fixture_load_step(fixture, i, &step, NULL);
    ls_step_free(&step);
  }
  ls_fixture_close(fixture);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_file_set(&file, data, size);
  bool is_trace = false;
  ls_error err = {LS_OK, ""};
  const ls_status status = ls_fixture_probe(file.path, &err);
  fuzz_expect("ls_fixture_probe", status, good_or_bad, &err);
  if (status != LS_OK) return 0;
  fuzz_expect("ls_trace_file_is", ls_trace_file_is(file.path, &is_trace, &err), 1u << LS_OK, &err); /* the probe has read it */
  if (is_trace)
    read_trace(file.path);
  else
    read_fixture(file.path);
  return 0;
}
