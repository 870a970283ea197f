#include <inttypes.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ls_merge.h"

ls_status ls_shards_add(ls_shards *shards, const char *file, int64_t ran, int64_t of, ls_error *err) {
  const int64_t kind = of == 0 ? -1 : of;
  if (shards->of != 0 && shards->of != kind) {
    char expected[48] = "a whole run", found[48] = "a whole run";
    if (shards->of > 0) snprintf(expected, sizeof expected, "one of %" PRId64 " shards", shards->of);
    if (of > 0) snprintf(found, sizeof found, "one of %" PRId64, of);
    return ls_fail(err, LS_BAD_FIXTURE, "%s: expected %s, as the reports before it, found %s", file, expected, found);
  }
  if (of != 0 && !(ran >= 1 && ran <= of))
    return ls_fail(err, LS_BAD_FIXTURE, "%s: expected a shard from 1 to %" PRId64 ", found %" PRId64, file, of, ran);
  for (int64_t i = 0; of != 0 && i < shards->n; i++)
    if (shards->ran[i] == ran) return ls_fail(err, LS_BAD_FIXTURE, "%s: shard %" PRId64 " of %" PRId64 " is there twice", file, ran, of);
  if (shards->n == shards->room) {
    const int64_t room = shards->room > 0 ? 2 * shards->room : 16;
    int64_t *grown = realloc(shards->ran, (size_t)room * sizeof *grown);
    if (grown == NULL) return ls_fail(err, LS_INTERNAL, "merge: out of memory");
    shards->ran = grown;
    shards->room = room;
  }
  shards->of = kind;
  shards->ran[shards->n] = ran;
  shards->n++;
  return LS_OK;
}

static bool has(const ls_shards *shards, int64_t shard) {
  for (int64_t i = 0; i < shards->n; i++)
    if (shards->ran[i] == shard) return true;
  return false;
}

char *ls_shards_missing(char *buf, size_t size, const ls_shards *shards) {
  size_t used = 0;
  buf[0] = '\0';
  for (int64_t first = 1; first <= shards->of && used < size; first++) {
    if (has(shards, first)) continue;
    int64_t last = first;
    while (last < shards->of && !has(shards, last + 1)) last++;
    used += (size_t)snprintf(buf + used, size - used, "%s%" PRId64, used > 0 ? ", " : "", first);
    if (last > first && used < size) used += (size_t)snprintf(buf + used, size - used, " to %" PRId64, last);
    first = last;
  }
  if (used > 0 && used < size) snprintf(buf + used, size - used, " of %" PRId64, shards->of);
  return buf;
}

void ls_shards_free(ls_shards *shards) {
  free(shards->ran);
  memset(shards, 0, sizeof *shards);
}
