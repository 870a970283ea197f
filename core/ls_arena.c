#include "ls_arena.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "ls_parallel.h"

typedef struct block {
  struct block *next;
  char *name;
  unsigned char *base; /* guard, then the block, then the guard up to the end of the allocation */
  size_t bytes, total;
} block;

struct ls_arena {
  block *first, *last; /* oldest first: a check names the first broken one */
  size_t bytes;
};

/* More than any machine here holds. An address sanitizer ends the program on requests it finds absurd; this is well below. */
#define MOST_BYTES ((size_t)1 << 39)

/* The guard pattern changes with the place and is never the poison, so that a shifted copy or a spread of poison shows. */
static unsigned char guard_byte(size_t i) { return (unsigned char)(0xA5u ^ (i * 7u & 0x3Fu)); }

ls_status ls_arena_new(ls_arena **arena, ls_error *err) {
  *arena = calloc(1, sizeof **arena);
  return *arena == NULL ? ls_fail(err, LS_INTERNAL, "out of memory for an arena") : LS_OK;
}

enum { POISON_PIECE = 4 << 20 };

typedef struct {
  unsigned char *at;
  size_t bytes;
} region;

static void poison_piece(void *arg, int64_t i) {
  const region *r = arg;
  size_t from = (size_t)i * POISON_PIECE, left = r->bytes - from;
  memset(r->at + from, LS_POISON_BYTE, left < POISON_PIECE ? left : POISON_PIECE);
}

ls_status ls_arena_alloc(ls_arena *arena, const char *name, size_t bytes, void **out, ls_error *err) {
  *out = NULL;
  if (bytes > MOST_BYTES) return ls_fail(err, LS_INTERNAL, "out of memory: %s wants %zu bytes", name, bytes);
  size_t total = (LS_GUARD_BYTES + bytes + LS_GUARD_BYTES + LS_ALIGN - 1) / LS_ALIGN * LS_ALIGN;
  block *b = calloc(1, sizeof *b);
  char *copy = strdup(name);
  unsigned char *base = aligned_alloc(LS_ALIGN, total);
  if (b == NULL || copy == NULL || base == NULL) {
    free(b);
    free(copy);
    free(base);
    return ls_fail(err, LS_INTERNAL, "out of memory: %s wants %zu bytes", name, bytes);
  }
  *b = (block){.name = copy, .base = base, .bytes = bytes, .total = total};
  for (size_t i = 0; i < LS_GUARD_BYTES; i++) base[i] = guard_byte(i);
  for (size_t i = LS_GUARD_BYTES + bytes; i < total; i++) base[i] = guard_byte(i);
  region r = {base + LS_GUARD_BYTES, bytes};
  ls_parallel_for((int64_t)((bytes + POISON_PIECE - 1) / POISON_PIECE), poison_piece, &r); /* of large blocks the page faults cost */
  if (arena->last != NULL) arena->last->next = b;
  if (arena->first == NULL) arena->first = b;
  arena->last = b;
  arena->bytes += bytes;
  *out = base + LS_GUARD_BYTES;
  return LS_OK;
}

ls_status ls_arena_check(const ls_arena *arena, ls_error *err) {
  for (const block *b = arena->first; b != NULL; b = b->next) {
    for (size_t i = LS_GUARD_BYTES; i-- > 0;)
      if (b->base[i] != guard_byte(i))
        return ls_fail(err, LS_INTERNAL, "%s (%zu bytes): written to %zu bytes before its start", b->name, b->bytes, LS_GUARD_BYTES - i);
    for (size_t i = LS_GUARD_BYTES + b->bytes; i < b->total; i++)
      if (b->base[i] != guard_byte(i))
        return ls_fail(err, LS_INTERNAL, "%s (%zu bytes): written to at byte %zu, past its end", b->name, b->bytes, i - LS_GUARD_BYTES);
  }
  return LS_OK;
}

size_t ls_arena_bytes(const ls_arena *arena) { return arena->bytes; }

void ls_arena_free(ls_arena *arena) {
  if (arena == NULL) return;
  for (block *b = arena->first; b != NULL;) {
    block *next = b->next;
    free(b->base);
    free(b->name);
    free(b);
    b = next;
  }
  free(arena);
}
