/* RoPE gone wrong: by another angle, of other pairs, with another table. Every candidate rotates the stage's own input again and is held
 * against what the path made of it. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_numeric.h"
#include "../core/ls_shortage.h"
#include "../layers/bound_attn_v41.h"
#include "../layers/bound_common.h"
#include "explain_internal.h"

typedef enum { AT_OWN, AT_SHIFT, AT_ROW, AT_FIXED, AT_MODULO, AT_QUOTIENT } place_kind;

typedef enum {
  TURN_PLAIN,
  TURN_NOT,           /* left as it was */
  TURN_BACK,          /* by the negative angle */
  TURN_OTHER_PAIRS,   /* adjacent for halves, halves for adjacent */
  TURN_EXCHANGED,     /* the two results of a pair in each other's place */
  TURN_SWAPPED_TABLE, /* cosine for sine */
  TURN_ROUNDED_TABLE, /* cosine and sine in the activation type */
  TURN_ROUNDED_ANGLE, /* the angle in the activation type */
  TURN_EXACT_ANGLE,   /* position times frequency not rounded to float32 */
  TURN_REDUCED,       /* whole turns taken off in float32 */
  TURN_FRONT,         /* the first elements of a head, not the last */
  TURN_TWICE
} turn_kind;

typedef struct {
  turn_kind kind;
  place_kind place;
  int64_t n; /* of the place */
  bool is_fused_product;
} rotation;

typedef struct {
  ls_recipe chain[LS_CHAIN_MOST];
  int n; /* of the chain */
  ls_tensor input;
  rotation how;
  const float *freq;
} rotation_try;

static int64_t place_of(const rotation *r, int64_t position, int64_t row) {
  switch (r->place) {
    case AT_SHIFT:
      return position + r->n;
    case AT_ROW:
      return row;
    case AT_FIXED:
      return r->n;
    case AT_MODULO:
      return position % r->n;
    case AT_QUOTIENT:
      return position / r->n;
    default:
      return position;
  }
}

/* Cosine and sine of pair i at a position. */
static void turn_of(const rotation_try *t, const ls_subject *s, int64_t position, int64_t i, double *cosine, double *sine) {
  const ls_dtype act = s->args->step->config->act;
  const float product = (float)position * t->freq[i];
  double angle = (double)product;
  if (t->how.kind == TURN_EXACT_ANGLE) angle = (double)position * (double)t->freq[i];
  if (t->how.kind == TURN_ROUNDED_ANGLE) angle = ls_round_to(act, angle);
  if (t->how.kind == TURN_TWICE) angle = 2 * angle;
  if (t->how.kind == TURN_REDUCED) {
    const float turns = floorf(product * 0.15915494f + 0.5f);
    angle = t->how.is_fused_product ? (double)(float)((double)product - (double)turns * (double)6.2831855f)
                                    : (double)(product - turns * 6.2831855f);
  }
  *cosine = cos(angle), *sine = sin(angle);
  if (t->how.kind == TURN_ROUNDED_TABLE) *cosine = ls_round_to(act, *cosine), *sine = ls_round_to(act, *sine);
  if (t->how.kind == TURN_SWAPPED_TABLE) {
    const double held = *cosine;
    *cosine = *sine, *sine = held;
  }
  if (t->chain[0].inverse != (t->how.kind == TURN_BACK)) *sine = -*sine;
}

/* y: the input, turned in place; from: the first element of the heads that turn it. */
static void turn_pair(const rotation_try *t, const ls_subject *s, int64_t position, int64_t i, float *y) {
  const ls_recipe *r = &t->chain[0];
  const int64_t half = r->turned / 2;
  const bool neox = r->neox != (t->how.kind == TURN_OTHER_PAIRS);
  const int64_t start = t->how.kind == TURN_FRONT ? 0 : r->width - r->turned;
  const int64_t first = start + (neox ? i : 2 * i), second = start + (neox ? i + half : 2 * i + 1);
  double cosine, sine;
  turn_of(t, s, position, i, &cosine, &sine);
  for (int64_t from = 0; from < s->width; from += r->width) {
    const double a = (double)y[from + first], b = (double)y[from + second];
    const double u = a * cosine - b * sine, v = b * cosine + a * sine;
    y[from + first] = (float)(t->how.kind == TURN_EXCHANGED ? v : u);
    y[from + second] = (float)(t->how.kind == TURN_EXCHANGED ? u : v);
  }
}

static bool read_input(const rotation_try *t, int64_t row, float *y) {
  const ls_tensor view = ls_tensor_at(&t->input, row);
  ls_tensor_to_f32(y, &view);
  return true;
}

static bool predict(void *arg, const ls_subject *s, int64_t row, float *y, float *rest) {
  const rotation_try *t = arg;
  const int64_t position = place_of(&t->how, ls_subject_position(s, row), row);
  read_input(t, row, y);
  if (t->how.kind != TURN_NOT) {
    for (int64_t i = 0; i < t->chain[0].turned / 2; i++) turn_pair(t, s, position, i, y);
  }
  return ls_recipe_finish(t->chain, t->n, s, row, y, rest);
}

static bool is_met(rotation_try *t, const ls_subject *s, rotation how, double tries, ls_fit *fit) {
  t->how = how;
  return ls_fit_rows(fit, s, predict, t, tries);
}

/* ---- by another position ---- */

/* The smallest shift that the row with most to show is met by, looked for nearest first; 0: none. */
static int64_t find_shift(rotation_try *t, const ls_subject *s, int64_t row, int64_t most) {
  float *y = ls_shortage_unless(malloc((size_t)s->width * 2 * sizeof *y));
  int64_t found = 0;
  if (y == NULL) return 0;
  float *rest = y + s->width;
  for (int64_t step = 1; step <= 2 * most && found == 0; step++) {
    const int64_t shift = step % 2 != 0 ? (step + 1) / 2 : -(step / 2);
    if (ls_subject_position(s, row) + shift < 0) continue;
    t->how = (rotation){.kind = TURN_PLAIN, .place = AT_SHIFT, .n = shift};
    int64_t missed = 0, failing = 0;
    if (t->n == 1) { /* pair by pair: the first that is missed ends it */
      const ls_recipe *r = &t->chain[0];
      const int64_t start = r->width - r->turned, half = r->turned / 2;
      int64_t cell = 0;
      while (cell < s->cells && !s->cell_fails[row * s->cells + cell]) cell++;
      read_input(t, row, y);
      for (int64_t i = 0; i < half && missed == 0; i++) {
        turn_pair(t, s, ls_subject_position(s, row) + shift, i, y);
        const int64_t pair[] = {r->neox ? i : 2 * i, r->neox ? i + half : 2 * i + 1};
        for (int k = 0; k < 2; k++) {
          const int64_t at = row * s->width + cell * s->cell + start + pair[k];
          missed += !ls_subject_meets(s, at, (double)y[at % s->width], (double)s->rest[at]);
          failing++;
        }
      }
    } else {
      memcpy(rest, s->rest + row * s->width, (size_t)s->width * sizeof *rest);
      if (!predict(t, s, row, y, rest)) break;
      for (int64_t c = 0; c < s->width; c++) {
        failing += s->at[row * s->width + c] == LS_AT_FAILS;
        missed += !ls_subject_meets(s, row * s->width + c, (double)y[c], (double)rest[c]);
        if (missed > s->width / 50) break;
      }
      if (missed <= s->width / 50 && failing > 0) missed = 0;
    }
    if (missed == 0 && failing > 0) found = shift;
  }
  free(y);
  return found;
}

static int64_t first_failing_row(const ls_subject *s) {
  int64_t row = 0;
  while (row < s->rows - 1 && !s->row_fails[row]) row++;
  return row;
}

static void other_positions(rotation_try *t, const ls_subject *s, ls_best *best) {
  const ls_place_names *names = &s->args->compare.names;
  const ls_attn_config *a = ls_subject_attn(s);
  const int64_t stride = names->stride > 0 ? names->stride : 1, first = ls_subject_position(s, first_failing_row(s));
  const int64_t ring = a != NULL ? a->window_size : names->capacity;
  ls_fit fit;
  if (is_met(t, s, (rotation){.place = AT_ROW}, 16, &fit)) {
    if (s->rows > 1) {
      ls_best_offer(best, s, &fit, "rotation-position", "rows match a rotation by the row number (0 .. %lld) instead of the position",
                    (long long)s->rows - 1);
    } else {
      ls_best_offer(best, s, &fit, "rotation-position", "the row matches a rotation by its row number 0: position %lld was not used",
                    (long long)names->base);
    }
  }
  /* dflash: where the write should start, and where the last one ended */
  const ls_tensor *cursor = a == NULL ? ls_trace_tensor(s->args->step->before, "cursor") : NULL;
  const int64_t from_cursor = cursor != NULL ? (int64_t)ls_tensor_get(cursor, 0) - names->base : 0;
  const bool by_cursor = from_cursor != 0 && is_met(t, s, (rotation){.place = AT_SHIFT, .n = from_cursor}, 16, &fit);
  if (by_cursor)
    ls_best_offer(
        best, s, &fit, "rotation-position", "rows match a rotation by (position %s %lld): counted from the cursor, %lld, instead of %lld",
        from_cursor > 0 ? "+" : "-", llabs((long long)from_cursor), (long long)(names->base + from_cursor), (long long)names->base);
  if (ring > 0 && first >= ring && !by_cursor && is_met(t, s, (rotation){.place = AT_MODULO, .n = ring}, 16, &fit)) {
    const int64_t last = ls_subject_position(s, s->rows - 1);
    if (first / ring == last / ring) {
      ls_best_offer(best, s, &fit, "rotation-position",
                    "rows match a rotation by (position - %lld). Slots were wrapped before RoPE used the position",
                    (long long)(first / ring * ring));
    } else {
      ls_best_offer(best, s, &fit, "rotation-position",
                    "rows match a rotation by (position mod %lld). Slots were wrapped before RoPE used the position", (long long)ring);
    }
  }
  if (stride > 1 && is_met(t, s, (rotation){.place = AT_QUOTIENT, .n = stride}, 16, &fit))
    ls_best_offer(best, s, &fit, "rotation-position",
                  "rows match a rotation by the number of their group instead of its first position (%lld tokens a group)",
                  (long long)stride);
  if (stride > 1 && is_met(t, s, (rotation){.place = AT_SHIFT, .n = stride}, 16, &fit))
    ls_best_offer(best, s, &fit, "rotation-position", "rows match a rotation by (position + %lld): the group after theirs",
                  (long long)stride);
  if (stride > 1 && is_met(t, s, (rotation){.place = AT_SHIFT, .n = stride - 1}, 16, &fit))
    ls_best_offer(best, s, &fit, "rotation-position", "rows match a rotation by (position + %lld): the last token of their group",
                  (long long)stride - 1);
  if (s->rows > 1 && is_met(t, s, (rotation){.place = AT_FIXED, .n = names->base}, 16, &fit))
    ls_best_offer(best, s, &fit, "rotation-position", "rows match a rotation by one position, %lld, that of row 0", (long long)names->base);
  if (s->rows > 1 && is_met(t, s, (rotation){.place = AT_FIXED, .n = ls_subject_position(s, s->rows - 1)}, 16, &fit))
    ls_best_offer(best, s, &fit, "rotation-position", "rows match a rotation by one position, %lld, that of the last row",
                  (long long)ls_subject_position(s, s->rows - 1));
  if (ls_best_is_certain(best)) return;
  const int64_t most = t->n == 1 ? 4096 : 256, shift = find_shift(t, s, first_failing_row(s), most);
  if (shift != 0 && is_met(t, s, (rotation){.place = AT_SHIFT, .n = shift}, 2 * (double)most, &fit)) {
    const char *sign = shift > 0 ? "+" : "-";
    ls_best_offer(best, s, &fit, "rotation-position", "rows match a rotation by (position %s %lld)", sign, llabs(shift));
  }
}

/* ---- by other frequencies ---- */

/* One rounding of theta^-e in place of two. */
static void freq_once(float *freq, int64_t dim, double theta) {
  for (int64_t i = 0; i < dim / 2; i++) freq[i] = (float)pow(theta, -(double)((float)(2 * i) / (float)dim));
}

static void other_frequencies(rotation_try *t, const ls_subject *s, ls_best *best) {
  const ls_attn_config *a = ls_subject_attn(s);
  const ls_recipe *r = &t->chain[0];
  const float *own = t->freq;
  float *freq = ls_shortage_unless(malloc((size_t)(r->turned / 2) * sizeof *freq + 1));
  const bool compressed = a != NULL && a->compress_ratio[s->args->step->step->layer] > 0;
  const double theta = a == NULL ? s->args->step->config->dflash.rope_theta : compressed ? a->compress_rope_theta : a->rope_theta;
  ls_fit fit;
  if (freq == NULL) return;
  t->freq = freq;
  if (a != NULL && compressed && a->original_seq_len > 0) {
    ls_bound_rope_freq(freq, r->turned, theta);
    if (is_met(t, s, (rotation){.kind = TURN_PLAIN}, 16, &fit))
      ls_best_offer(best, s, &fit, "rotation-frequency", "rows match a rotation by the plain frequencies of theta %g, without YaRN", theta);
  }
  if (a != NULL) {
    ls_bound_attn_freq(freq, a, !compressed);
    if (is_met(t, s, (rotation){.kind = TURN_PLAIN}, 16, &fit))
      ls_best_offer(best, s, &fit, "rotation-frequency", "rows match a rotation by the frequencies of the layers %s (theta %g%s)",
                    compressed ? "without compressed rows" : "with compressed rows", compressed ? a->rope_theta : a->compress_rope_theta,
                    !compressed && a->original_seq_len > 0 ? " and YaRN" : "");
    ls_bound_rope_freq(freq, r->turned, compressed ? a->rope_theta : a->compress_rope_theta);
    if (is_met(t, s, (rotation){.kind = TURN_PLAIN}, 16, &fit))
      ls_best_offer(best, s, &fit, "rotation-frequency", "rows match a rotation by the plain frequencies of theta %g instead of %g",
                    compressed ? a->rope_theta : a->compress_rope_theta, theta);
  }
  if (a == NULL || !compressed || a->original_seq_len == 0) {
    freq_once(freq, r->turned, theta);
    if (is_met(t, s, (rotation){.kind = TURN_PLAIN}, 16, &fit))
      ls_best_offer(best, s, &fit, "rotation-frequency",
                    "rows match frequencies that were rounded once, as theta^-e, instead of 1 / theta^e with theta^e rounded first");
  }
  if (r->turned < r->width) { /* exponents over the whole head */
    for (int64_t i = 0; i < r->turned / 2; i++) freq[i] = 1.0f / (float)pow(theta, (double)((float)(2 * i) / (float)r->width));
    if (is_met(t, s, (rotation){.kind = TURN_PLAIN}, 16, &fit))
      ls_best_offer(best, s, &fit, "rotation-frequency", "rows match frequencies of a width of %lld, the head, instead of %lld, what turns",
                    (long long)r->width, (long long)r->turned);
  }
  free(freq);
  t->freq = own;
}

/* ---- all ---- */

void ls_explain_rotation(const ls_subject *s, ls_best *best) {
  static const struct {
    turn_kind kind;
    const char *id, *text;
  } kinds[] = {
      {TURN_NOT, "not-rotated", "rows equal %s: they were not rotated"},
      {TURN_BACK, "rotation-conjugate", "rows match %s turned by the negative angle: the sine has the wrong sign"},
      {TURN_OTHER_PAIRS, "rotation-pairs", "rows match %s rotated in the other layout of pairs"},
      {TURN_EXCHANGED, "rotation-exchanged", "rows match a rotation of %s whose two results stand in each other's place"},
      {TURN_SWAPPED_TABLE, "rotation-exchanged", "rows match a rotation of %s with cosine and sine taken for each other"},
      {TURN_FRONT, "rotation-part", "rows match %s with the first elements of each head turned instead of the last"},
      {TURN_ROUNDED_TABLE, "rotation-table", "rows match a rotation of %s with cosine and sine rounded to the activation type"},
      {TURN_ROUNDED_ANGLE, "rotation-angle", "rows match a rotation of %s by angles that were rounded to the activation type"},
      {TURN_REDUCED, "rotation-reduction", "rows match a rotation of %s by angles whose turns were taken off in float32 (a fast sine)"},
      {TURN_EXACT_ANGLE, "rotation-angle", "rows match a rotation of %s by angles that were never rounded to float32"},
  };
  rotation_try t = {.n = 0};
  t.n = ls_recipe_chain(t.chain, s, LS_MADE_BY_ROPE);
  if (t.n == 0 || !ls_subject_stage(&t.input, s, t.chain[0].input, s->rows) || t.input.dim[1] != s->width) return;
  float *freq = ls_shortage_unless(malloc((size_t)(t.chain[0].turned / 2) * sizeof *freq + 1));
  if (freq == NULL) return;
  ls_recipe_freq(freq, &t.chain[0], s);
  t.freq = freq;
  ls_fit fit;
  for (size_t i = 0; i < sizeof kinds / sizeof *kinds && !ls_best_is_certain(best); i++) {
    if (kinds[i].kind == TURN_FRONT && t.chain[0].turned == t.chain[0].width) continue; /* the whole head: no other part */
    const int forms = kinds[i].kind == TURN_REDUCED ? 2 : 1;                            /* with and without a fused multiply-add */
    for (int fused = 0; fused < forms; fused++) {
      if (!is_met(&t, s, (rotation){.kind = kinds[i].kind, .is_fused_product = fused != 0}, 16, &fit)) continue;
      char text[LS_MAX_PATTERN_TEXT];
      snprintf(text, sizeof text, kinds[i].text, t.chain[0].input);
      if (kinds[i].kind == TURN_NOT && s->rows == 1) {
        ls_best_offer(best, s, &fit, kinds[i].id, "the row equals %s: it was not rotated, or as at position 0", t.chain[0].input);
      } else if (kinds[i].kind == TURN_OTHER_PAIRS) {
        ls_best_offer(best, s, &fit, kinds[i].id, "rows match %s rotated in %s instead of %s", t.chain[0].input,
                      t.chain[0].neox ? "adjacent pairs (x[2i], x[2i+1])" : "pairs of halves (x[i], x[i + n/2])",
                      t.chain[0].neox ? "pairs of halves (x[i], x[i + n/2])" : "adjacent pairs (x[2i], x[2i+1])");
      } else {
        ls_best_offer(best, s, &fit, kinds[i].id, "%s", text);
      }
    }
  }
  if (!ls_best_is_certain(best)) other_positions(&t, s, best);
  if (!ls_best_is_certain(best)) other_frequencies(&t, s, best);
  if (best->share < 1 && is_met(&t, s, (rotation){.kind = TURN_TWICE}, 16, &fit)) /* of one row it is also another position */
    ls_best_offer(best, s, &fit, "rotated-twice", "rows match %s turned by twice the angle: it was rotated before, or is rotated twice",
                  t.chain[0].input);
  free(freq);
}
