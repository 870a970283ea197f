/* Where a stage fails, in words; and, where no values explain it, as a pattern of its own. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_shortage.h"
#include "compare_tally.h"
#include "explain_internal.h"

/* A set of indices as words: "3", "2 .. 5", "every 4th from 1"; empty: all, or none of these forms. */
typedef struct {
  int64_t count, first, last, every; /* every: the constant distance, 1: a run; 0: neither */
} index_set;

static index_set set_of(const uint8_t *in, int64_t n) {
  index_set set = {.first = -1, .every = 1};
  int64_t distance = 0;
  for (int64_t i = 0; i < n; i++) {
    if (!in[i]) continue;
    if (set.first < 0) set.first = i;
    if (set.count > 0) {
      if (distance == 0) distance = i - set.last;
      if (i - set.last != distance) set.every = 0;
    }
    set.last = i;
    set.count++;
  }
  if (set.every != 0 && set.count > 1) set.every = distance;
  return set;
}

static const char *ordinal(int64_t n) {
  return n % 100 >= 11 && n % 100 <= 13 ? "th" : n % 10 == 1 ? "st" : n % 10 == 2 ? "nd" : n % 10 == 3 ? "rd" : "th";
}

static void say(char *buf, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static void say(char *buf, size_t size, const char *format, ...) {
  const size_t used = strlen(buf);
  va_list args;
  va_start(args, format);
  vsnprintf(buf + used, size - used, format, args);
  va_end(args);
}

static bool is_slots(const ls_subject *s) { return s->args->compare.stage != NULL && strstr(s->args->compare.stage->axes, "slot") != NULL; }

static bool is_latents(const ls_subject *s) {
  return s->args->compare.stage != NULL && strstr(s->args->compare.stage->axes, "latent") != NULL;
}

static bool knows_positions(const ls_subject *s) {
  const ls_place_names *n = &s->args->compare.names;
  return !is_slots(s) && (n->base > 0 || n->capacity > 0 || n->stride > 0);
}

/* A run of slots that may go around the end; length 0: none. */
static void ring_span(const ls_subject *s, int64_t *first, int64_t *length) {
  int64_t starts = 0, failing = 0;
  *first = 0, *length = 0;
  for (int64_t r = 0; r < s->rows; r++) {
    failing += s->row_fails[r];
    if (s->row_fails[r] && !s->row_fails[(r + s->rows - 1) % s->rows]) starts++, *first = r;
  }
  if (starts == 1 && failing < s->rows) *length = failing;
}

/* Heads and channels that fail in any row. */
static bool columns_of(const ls_subject *s, index_set *heads, index_set *channels) {
  uint8_t *in = ls_shortage_unless(calloc((size_t)(s->cells + s->cell), 1));
  if (in == NULL) return false;
  for (int64_t i = 0; i < s->rows * s->width; i++) {
    if (s->at[i] != LS_AT_FAILS) continue;
    in[i % s->width / s->cell] = 1;
    in[s->cells + i % s->cell] = 1;
  }
  *heads = set_of(in, s->cells);
  *channels = set_of(in + s->cells, s->cell);
  free(in);
  return true;
}

static void say_rows(char *buf, size_t size, const ls_subject *s) {
  const char *word = is_slots(s) ? "slot" : is_latents(s) ? "latent" : "row";
  const index_set set = set_of(s->row_fails, s->rows);
  const long long n = (long long)s->rows, failing = (long long)s->rows_failing;
  if (set.count == s->rows) {
    if (n == 1) {
      say(buf, size, "the %s differs", word);
    } else {
      say(buf, size, "all %lld %ss differ", n, word);
    }
    return;
  }
  if (set.count == 1) {
    say(buf, size, "1 of %lld %ss differs, %s %lld", n, word, word, (long long)set.first);
    if (knows_positions(s)) say(buf, size, " (position %lld)", (long long)ls_subject_position(s, set.first));
    return;
  }
  say(buf, size, "%lld of %lld %ss differ", failing, n, word);
  int64_t first, length;
  ring_span(s, &first, &length);
  if (is_slots(s) && length > 0) {
    say(buf, size, ", slots %lld .. %lld", (long long)first, (long long)((first + length - 1) % s->rows));
  } else if (set.every == 1 && set.last == s->rows - 1) {
    if (knows_positions(s)) {
      say(buf, size, ", all with position >= %lld", (long long)ls_subject_position(s, set.first));
    } else {
      say(buf, size, ", all from row %lld on", (long long)set.first);
    }
  } else if (set.every == 1 && set.first == 0) {
    if (knows_positions(s)) {
      say(buf, size, ", all with position < %lld", (long long)ls_subject_position(s, set.last + 1));
    } else {
      say(buf, size, ", all before row %lld", (long long)set.last + 1);
    }
  } else if (set.every == 1) {
    say(buf, size, ", %ss %lld .. %lld", word, (long long)set.first, (long long)set.last);
  } else if (set.every > 1 && set.count > 2) {
    say(buf, size, ", every %lld%s from %lld on", (long long)set.every, ordinal(set.every), (long long)set.first);
  }
}

static void say_columns(char *buf, size_t size, const ls_subject *s, index_set heads, index_set channels) {
  if (s->cells > 1 && heads.count == 1) {
    say(buf, size, ", in head %lld alone", (long long)heads.first);
  } else if (s->cells > 1 && heads.count < s->cells && heads.every == 1) {
    say(buf, size, ", in heads %lld .. %lld", (long long)heads.first, (long long)heads.last);
  } else if (s->cells > 1 && heads.count < s->cells) {
    say(buf, size, ", in %lld of %lld heads", (long long)heads.count, (long long)s->cells);
  }
  if (channels.count == 1 && s->cell > 1) {
    say(buf, size, ", at channel %lld", (long long)channels.first);
  } else if (2 * channels.count <= s->cell && channels.every == 1) { /* nearly all of them is no place */
    say(buf, size, ", in channels %lld .. %lld", (long long)channels.first, (long long)channels.last);
  } else if (channels.count < s->cell && channels.every > 1 && channels.count > 2) {
    say(buf, size, ", in every %lld%s channel from %lld on", (long long)channels.every, ordinal(channels.every), (long long)channels.first);
  }
}

char *ls_place_words(char *buf, size_t size, const ls_subject *s) {
  index_set heads, channels;
  buf[0] = '\0';
  say_rows(buf, size, s);
  if (columns_of(s, &heads, &channels)) say_columns(buf, size, s, heads, channels);
  return buf;
}

/* ---- places alone ---- */

/* Of the elements in the failing rows, and there in the heads and channels of the two sets, the share that fails. */
static double density(const ls_subject *s, index_set heads, index_set channels) {
  int64_t inside = 0;
  for (int64_t row = 0; row < s->rows; row++)
    if (s->row_fails[row]) inside += heads.count * channels.count;
  return inside > 0 ? (double)s->failing / (double)inside : 0;
}

/* Enough to be no accident: few scattered failures fill no row, head or channel. */
enum { PLACE_LEAST = 16 };
#define PLACE_FILLED 0.8

void ls_explain_place(const ls_subject *s, ls_best *best) {
  index_set heads, channels;
  if (s->args->compare.stage == NULL || !columns_of(s, &heads, &channels) || s->failing < PLACE_LEAST ||
      density(s, heads, channels) < PLACE_FILLED)
    return;
  const ls_fit fit = ls_fit_counted();
  const index_set rows = set_of(s->row_fails, s->rows);
  int64_t first, length;
  ring_span(s, &first, &length);
  if (s->args->compare.stage->is_ring) { /* compared too coarsely to say that other heads or channels are right */
    if (is_slots(s) && length > 0 && heads.count == s->cells) ls_best_offer(best, s, &fit, "ring-span", "one span of the ring");
    return;
  }
  const bool all_rows = rows.count == s->rows, all_heads = heads.count == s->cells, all_channels = channels.count == s->cell;
  if (!all_channels && channels.every > 1 && channels.count > 2) {
    ls_best_offer(best, s, &fit, "every-nth-channel", "nothing else differs, and the values have no relation that is known");
    return;
  }
  if (!all_heads) {
    ls_best_offer(best, s, &fit, heads.count == 1 ? "one-head" : "some-heads", "all other heads are right");
    return;
  }
  if (!all_channels && channels.every == 1 && rows.count * heads.count * (s->cell - channels.count) >= PLACE_LEAST) {
    ls_best_offer(best, s, &fit, "channel-range", "channels %lld .. %lld are wrong, all others right", (long long)channels.first,
                  (long long)channels.last);
    return;
  }
  if (all_rows || !all_channels) return; /* that everything differs names nothing */
  if (is_slots(s) && length > 0) {
    ls_best_offer(best, s, &fit, "ring-span", "whole slots, one span of the ring");
  } else if (rows.every == 1 && rows.last == s->rows - 1 && rows.count > 1) {
    ls_best_offer(best, s, &fit, "rows-after", "whole rows, all others are right");
  } else if (rows.every == 1 && rows.first == 0 && rows.count > 1) {
    ls_best_offer(best, s, &fit, "rows-before", "whole rows, all others are right");
  } else if (rows.count == 1) {
    ls_best_offer(best, s, &fit, "one-row", "the whole row, all others are right");
  } else {
    ls_best_offer(best, s, &fit, "whole-rows", "whole rows, all others are right");
  }
}
