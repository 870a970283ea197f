/* fuzz_edit: bytes as a list of edits of a sound HDF5 file, through the library's own interface. HDF5 guards its metadata by checksums, so
 * flipped bytes of a file end in the library; edits end in what the file says, which is what the readers of fixtures/ must stand. */
#ifndef FUZZ_EDIT_H
#define FUZZ_EDIT_H

#include "fuzz_target.h"

enum { FUZZ_MOST_NAMES = 512 };

/* A sound file, with the names of what is in it. */
typedef struct {
  uint8_t *bytes;
  size_t n;
  char *object[FUZZ_MOST_NAMES];
  int objects;
  char *attribute[FUZZ_MOST_NAMES]; /* names, each once */
  int attributes;
} fuzz_base;

void fuzz_base_load(fuzz_base *base, const char *path);

/* file becomes the base with the edits that the bytes say, at most 16 of them. What the library refuses is left out. */
void fuzz_edit(const fuzz_base *base, const fuzz_file *file, fuzz_bytes *b);

#endif
