#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "fuzz_target.h"

static void need(bool there, const char *what) {
  if (there) return;
  fprintf(stderr, "fuzz: %s: %s\n", what, strerror(errno));
  abort();
}

/* ---- bytes that decide ---- */

uint8_t fuzz_u8(fuzz_bytes *b) { return b->at < b->end ? *b->at++ : 0; }

uint64_t fuzz_u64(fuzz_bytes *b) {
  uint64_t v = 0;
  for (int i = 0; i < 8; i++) v |= (uint64_t)fuzz_u8(b) << 8 * i;
  return v;
}

int64_t fuzz_below(fuzz_bytes *b, int64_t n) { return fuzz_u8(b) % n; }

int64_t fuzz_int(fuzz_bytes *b) {
  static const int64_t edges[] = {INT64_MAX,
                                  INT64_MIN,
                                  INT32_MAX,
                                  INT32_MIN,
                                  (int64_t)INT32_MAX + 1,
                                  UINT32_MAX,
                                  (int64_t)1 << 32,
                                  (int64_t)1 << 40,
                                  (int64_t)1 << 62,
                                  INT64_MAX - 1,
                                  INT16_MAX,
                                  1 << 16,
                                  1 << 20,
                                  2048,
                                  2049,
                                  1 << 24};
  const uint8_t kind = fuzz_u8(b);
  if (kind < 192) return (int64_t)kind - 8; /* -8 .. 183: sizes of the small fixtures are among them */
  if (kind < 248) return edges[kind % (sizeof edges / sizeof *edges)];
  return (int64_t)fuzz_u64(b);
}

double fuzz_real(fuzz_bytes *b) {
  static const double edges[] = {0, -0.0, 1, -1, NAN, INFINITY, -INFINITY, 1e-300, 1e300, 5e-324, 1e-6, 1e4, 0.5, 3.5e38, 65520, 1e-45};
  const uint8_t kind = fuzz_u8(b);
  if (kind < 224) return edges[kind % (sizeof edges / sizeof *edges)];
  const uint64_t bits = fuzz_u64(b);
  double v;
  memcpy(&v, &bits, sizeof v);
  return v;
}

/* ---- files ---- */

static char gone_at_exit[8][128];
static int n_gone_at_exit;
static pid_t owner;

static void remove_files(void) {
  for (int i = 0; i < n_gone_at_exit && getpid() == owner; i++) unlink(gone_at_exit[i]);
}

void fuzz_file_new(fuzz_file *file) {
  static const char memory[] = "/dev/shm";
  if (n_gone_at_exit == 0) {
    owner = getpid();
    atexit(remove_files);
  }
  need(n_gone_at_exit < 8, "too many files");
  snprintf(file->path, sizeof file->path, "%s/fuzz-%ld-%d.h5", access(memory, W_OK) == 0 ? memory : P_tmpdir, (long)owner, n_gone_at_exit);
  file->fd = open(file->path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  need(file->fd >= 0, file->path);
  memcpy(gone_at_exit[n_gone_at_exit++], file->path, sizeof file->path);
}

void fuzz_file_set(const fuzz_file *file, const uint8_t *bytes, size_t n) {
  need(ftruncate(file->fd, 0) == 0, "ftruncate");
  for (size_t done = 0; done < n;) {
    const ssize_t part = pwrite(file->fd, bytes + done, n - done, (off_t)done);
    need(part > 0, "pwrite");
    done += (size_t)part;
  }
}

void fuzz_scratch(char path[128], const char *name) {
  const char *folder = getenv("TMPDIR");
  snprintf(path, 128, "%.80s/fuzz-%ld-%.20s", folder != NULL ? folder : P_tmpdir, (long)getpid(), name);
}

uint8_t *fuzz_file_bytes(const char *path, size_t *n) {
  FILE *in = fopen(path, "rb");
  need(in != NULL && fseek(in, 0, SEEK_END) == 0, path);
  const long size = ftell(in);
  rewind(in);
  uint8_t *bytes = malloc((size_t)size + 1);
  need(bytes != NULL && fread(bytes, 1, (size_t)size, in) == (size_t)size, path);
  fclose(in);
  *n = (size_t)size;
  return bytes;
}

FILE *fuzz_nowhere(void) {
  static FILE *out;
  if (out == NULL) out = fopen("/dev/null", "w");
  need(out != NULL, "/dev/null");
  return out;
}

/* ---- what must hold ---- */

void fuzz_expect(const char *what, ls_status status, unsigned allowed, const ls_error *err) {
  const bool known = status == LS_INTERRUPTED || (unsigned)status < 32;
  bool fine =
      known && (status < 32 && (allowed & 1u << status) != 0) && (err->status == status) && ((err->text[0] == '\0') == (status == LS_OK));
  for (const char *c = err->text; *c != '\0'; c++) fine = fine && (unsigned char)*c >= ' ' && *c != 0x7F;
  if (fine) return;
  fprintf(stderr, "fuzz: %s came to status %d (%s) with the line '%s'\n", what, (int)status, ls_status_name(status), err->text);
  abort();
}
