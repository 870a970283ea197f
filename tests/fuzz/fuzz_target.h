/* fuzz_target: what a fuzz target is, for libFuzzer and for fuzz_replay.c, which runs one over files without it; and what targets share:
 * bytes that decide, files, and what must hold. */
#ifndef FUZZ_TARGET_H
#define FUZZ_TARGET_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#include "core/ls_status.h"

int LLVMFuzzerInitialize(int *argc, char ***argv);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size); /* returns 0; a finding ends the process */

/* The input, read from the front. Past its end everything is 0. */
typedef struct {
  const uint8_t *at, *end;
} fuzz_bytes;

uint8_t fuzz_u8(fuzz_bytes *b);
uint64_t fuzz_u64(fuzz_bytes *b);
int64_t fuzz_int(fuzz_bytes *b);              /* small, at the edge of a type, or any */
double fuzz_real(fuzz_bytes *b);              /* likewise */
int64_t fuzz_below(fuzz_bytes *b, int64_t n); /* 0 .. n - 1; n at most 256 */

/* A file that is written again for each input: in memory where there is a folder for that. Gone at exit. At most 8 of them. HDF5 wants a
 * path that it can resolve, so memfd_create will not do. */
typedef struct {
  int fd;
  char path[128];
} fuzz_file;

void fuzz_file_new(fuzz_file *file);
void fuzz_file_set(const fuzz_file *file, const uint8_t *bytes, size_t n);

/* A name for a file that is written once and removed; of this process alone. */
void fuzz_scratch(char path[128], const char *name);

/* All bytes of a file, malloc'd. */
uint8_t *fuzz_file_bytes(const char *path, size_t *n);

/* Where text goes that nobody reads. */
FILE *fuzz_nowhere(void);

/* A call came to a status: one of those that are allowed, a bit each (1u << LS_OK | ...), with one printable line where it is not LS_OK and
 * none where it is. Else ends the process, saying what. */
void fuzz_expect(const char *what, ls_status status, unsigned allowed, const ls_error *err);

#endif
