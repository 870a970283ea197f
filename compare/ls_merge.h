/* ls_merge: the reports of sharded runs put together into one of the same form (`lockstep merge`). */
#ifndef LS_MERGE_H
#define LS_MERGE_H

#include <stddef.h>
#include <stdint.h>

#include "../core/ls_status.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Which shards there are. Zeroed: none yet. */
typedef struct {
  int64_t of; /* 0: nothing was added; -1: reports that are no shards */
  int64_t n, room;
  int64_t *ran; /* 1-based */
} ls_shards;

/* Shard `ran` of `of`; of 0: a whole run. LS_BAD_FIXTURE, "FILE: ...", where it does not belong to those added before, or is there already.
 */
ls_status ls_shards_add(ls_shards *shards, const char *file, int64_t ran, int64_t of, ls_error *err);

/* "2, 5 to 7 of 8", or "" where none is missing; returns buf. */
char *ls_shards_missing(char *buf, size_t size, const ls_shards *shards);

void ls_shards_free(ls_shards *shards);

/* What the whole came to. */
typedef struct {
  ls_status status; /* the exit status of the whole run; at least LS_DIVERGED where a shard is missing */
  char line[512];   /* how many reports of what, and what they hold */
  char missing[256];
} ls_merged;

/* Merges n reports, of `verify --json` or of `fuzz --json`, in the order of their shards, into the file `out` (NULL: only *merged).
 * LS_BAD_FIXTURE with a line "FILE: expected ..., found ..." where one is no report or they are not of one run; nothing is written then.
 * LS_USAGE, LS_INTERNAL: `out` cannot be written. */
ls_status ls_merge_json(ls_merged *merged, const char *const *files, int n, const char *out, ls_error *err);

/* The same of `--junit`. */
ls_status ls_merge_junit(ls_merged *merged, const char *const *files, int n, const char *out, ls_error *err);

#ifdef __cplusplus
}
#endif
#endif
