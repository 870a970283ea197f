#include "compare_tally.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "../core/ls_numeric.h"
#include "../core/ls_ring.h"

enum { BLOCK = 64 };

#define LS_BIAS_CHANCE 1e-9

ls_line ls_line_of(const ls_tensor *t, int64_t flat) {
  const char *data = t->data;
  return (ls_line){.dtype = t->dtype,
                   .data = data + ls_tensor_offset(t, flat) * (int64_t)ls_dtype_size(t->dtype),
                   .stride = t->ndim > 0 ? t->stride[t->ndim - 1] : 1};
}

double ls_line_get(const ls_line *line, int64_t i) {
  int64_t at = i * line->stride;
  switch (line->dtype) {
    case LS_BF16:
      return (double)ls_bf16_to_f32(((const uint16_t *)line->data)[at]);
    case LS_F16:
      return (double)ls_f16_to_f32(((const uint16_t *)line->data)[at]);
    case LS_F32:
      return (double)((const float *)line->data)[at];
    case LS_F64:
      return ((const double *)line->data)[at];
    case LS_I32:
      return (double)((const int32_t *)line->data)[at];
    case LS_I64:
      return (double)((const int64_t *)line->data)[at];
    case LS_U8:
      return (double)((const uint8_t *)line->data)[at];
    default:
      return NAN;
  }
}

/* A worse element replaces the worst one: one that is not finite on one side only before any other, then the larger use. The first of
 * equals stays. */
static bool worse(bool lonely, double use, const ls_tally *than) {
  if (!than->has_worst) return lonely || use > 0;
  if (lonely != than->worst_lonely) return lonely;
  return use > than->use;
}

/* ls_bias.expected grows by at most 1: with |x - x'| <= bound a rounding boundary lies between them in bound / step of the places where x
 * may stand. The smaller step of the two sides. */
static void bias_element(ls_bias *bias, ls_dtype type, double a, double b, double bound, bool equal, uint64_t steps) {
  const double share = bound / ls_step_at(type, fmin(fabs(a), fabs(b)));
  bias->count++;
  bias->expected += share < 1 ? share : 1; /* a NaN counts as 1 */
  bias->differing += !equal;
  if (steps != 1) return;
  const unsigned kind = ls_f32_bits((float)a) * 2654435761u >> 24;
  uint64_t *kinds = fabs(b) < fabs(a) ? bias->toward_kinds : bias->away_kinds;
  bias->toward += fabs(b) < fabs(a);
  bias->away += fabs(b) >= fabs(a);
  kinds[kind / 64] |= (uint64_t)1 << kind % 64;
}

/* The same of BLOCK values of equal bits, of a 16-bit type. */
static void bias_block(ls_bias *bias, ls_dtype type, const uint16_t *a, const float *bound) {
  float part[8] = {0};
  const uint32_t mantissa = type == LS_BF16 ? 7 : 10, from = type == LS_BF16 ? 261 : 152, top = type == LS_BF16 ? 0x7F80 : 0x7C00;
  uint32_t finite = 0;
  for (int j = 0; j < BLOCK; j++) {
    const uint32_t magnitude = a[j] & 0x7FFFu, exponent = magnitude >> mantissa, field = from - (exponent > 0 ? exponent : 1);
    const float share = bound[j] * ls_f32_from_bits((field < 254 ? field : 254) << 23); /* bound / step */
    const bool counts = magnitude < top;
    part[j % 8] += !counts ? 0.0f : share < 1.0f ? share : 1.0f;
    finite += counts;
  }
  bias->count += finite;
  for (int j = 0; j < 8; j++) bias->expected += (double)part[j];
}

void ls_bias_merge(ls_bias *into, const ls_bias *from) {
  into->count += from->count, into->differing += from->differing, into->expected += from->expected;
  into->toward += from->toward, into->away += from->away;
  for (int i = 0; i < 4; i++) into->toward_kinds[i] |= from->toward_kinds[i], into->away_kinds[i] |= from->away_kinds[i];
}

/* Hoeffding: of n fair coins, one side a - b ahead in at most 2 exp(-(a - b)^2 / 2n) of cases. */
static bool unfair(double a, double b) { return a + b > 0 && (a - b) * (a - b) / (2 * (a + b)) > log(2 / LS_BIAS_CHANCE); }

/* How many different values there were about, of `most` elements, from how many of 256 classes occurred (linear counting). */
static double different(const uint64_t kinds[4], int64_t most) {
  int n = 0;
  for (int i = 0; i < 4; i++) n += __builtin_popcountll(kinds[i]);
  const double about = n > 0 ? -256 * log(1 - ((double)n - 0.5) / 256) : 0;
  return about < (double)most ? about : (double)most;
}

bool ls_bias_found(const ls_bias *bias) {
  const double found = (double)bias->differing, expected = bias->expected;
  if (!(found > expected)) return false;
  /* Chernoff: a sum of independent events of mean m reaches d > m in at most exp(-(d ln(d/m) - d + m)) of cases */
  const bool many = expected <= 0 || found * log(found / expected) - found + expected > log(1 / LS_BIAS_CHANCE);
  return many && unfair((double)bias->toward, (double)bias->away) &&
         unfair(different(bias->toward_kinds, bias->toward), different(bias->away_kinds, bias->away));
}

void ls_bias_say(ls_result *r) {
  const ls_bias *bias = &r->bias;
  const int64_t one = bias->toward + bias->away, most = bias->toward > bias->away ? bias->toward : bias->away;
  const char *side = bias->toward > bias->away ? "nearer to zero" : "further from zero";
  const bool nearly_all = most >= one - one / 100;
  snprintf(r->note, sizeof r->note,
           "biased: %lld of %lld elements differ, where the bound explains at most %.0f, and %lld of %lld that are one step apart are %s",
           (long long)bias->differing, (long long)bias->count, ceil(bias->expected), (long long)most, (long long)one, side);
  snprintf(r->pattern, sizeof r->pattern, "%s", !nearly_all ? "biased" : bias->toward > bias->away ? "truncated" : "rounded-away");
  snprintf(r->pattern_text, sizeof r->pattern_text,
           "%lld of %lld elements differ, each within its bound, and %lld of %lld by one step %s%s", (long long)bias->differing,
           (long long)bias->count, (long long)most, (long long)one, side,
           !nearly_all                 ? ": more than a fair rounding leaves"
           : bias->toward > bias->away ? ": values are cut off instead of rounded"
                                       : ": values are rounded away from zero");
}

static void tally_element(ls_tally *t, const ls_rule *rule, double stored_a, double stored_b, double bound, int64_t at) {
  double a = ls_round_to(rule->type, stored_a), b = ls_round_to(rule->type, stored_b);
  bool equal = a == b || (a != a && b != b); /* also -0 and +0, two NaN, two infinities of one sign */
  bool finite = isfinite(a) && isfinite(b);
  bool lonely = !finite && !equal;

  double limit = 0, use = 0;
  bool ok = equal;
  if (finite && (!equal || rule->has_tolerance)) {
    double apart = fabs(a - b);
    if (rule->has_tolerance) {
      apart = fabs(stored_a - stored_b);
      limit = rule->atol + rule->rtol * fabs(stored_a);
    } else {
      double step = rule->steps > 0 ? rule->steps * ls_step_at(rule->type, fmax(fabs(a), fabs(b))) : 0;
      limit = step + bound;
    }
    ok = apart == 0 || (apart <= limit && isfinite(limit));
    if (apart > 0 || !ok) {
      use = limit > 0 && isfinite(limit) ? apart / limit : INFINITY;
      if (!ok && !(use > 1)) use = INFINITY;
    }
  } else if (lonely) {
    use = INFINITY;
  }

  uint64_t steps = equal ? 0 : ls_steps_between(rule->type, a, b);
  t->count++;
  t->zeros += a == 0 && b == 0;
  t->bit_equal += equal;
  t->nonfinite += !finite && equal;
  t->lonely += lonely;
  t->failing += !ok;
  if (rule->bias && finite) bias_element(&t->bias, rule->type, a, b, bound, equal, steps);
  if (steps > t->steps) t->steps = steps;
  if (worse(lonely, use, t)) {
    t->has_worst = true, t->worst_lonely = lonely;
    t->worst_at = at, t->worst_a = stored_a, t->worst_b = stored_b, t->worst_bound = limit;
  }
  if (use > t->use) t->use = use;
}

/* Both sides stored in the 16-bit type itself: whole blocks of equal bits are only counted, which the compiler vectorises. */
static void tally_same16(ls_tally *t, const ls_rule *rule, const ls_line *line_a, const ls_line *line_b, const ls_line *bound, int64_t n,
                         int64_t at) {
  const uint16_t *a = line_a->data, *b = line_b->data;
  const uint16_t top = rule->type == LS_BF16 ? 0x7F80 : 0x7C00; /* infinity; NaN lies above */
  const float *bounds = rule->bias && bound ? bound->data : NULL;
  int64_t i = 0;
  for (; i + BLOCK <= n; i += BLOCK) {
    uint16_t differ = 0, zero = 0, odd = 0;
    for (int j = 0; j < BLOCK; j++) {
      uint16_t magnitude = a[i + j] & 0x7FFF;
      differ = (uint16_t)(differ + (a[i + j] != b[i + j]));
      zero = (uint16_t)(zero + (magnitude == 0));
      odd = (uint16_t)(odd + (magnitude >= top));
    }
    if (differ == 0) {
      t->count += BLOCK, t->bit_equal += BLOCK, t->zeros += zero, t->nonfinite += odd;
      if (bounds) bias_block(&t->bias, rule->type, a + i, bounds + i);
      continue;
    }
    for (int64_t j = i; j < i + BLOCK; j++) {
      if (a[j] == b[j]) {
        uint16_t magnitude = a[j] & 0x7FFF;
        t->count++, t->bit_equal++, t->zeros += magnitude == 0, t->nonfinite += magnitude >= top;
        if (bounds && magnitude < top) {
          const double value = ls_line_get(line_a, j);
          bias_element(&t->bias, rule->type, value, value, (double)bounds[j], true, 0);
        }
      } else {
        tally_element(t, rule, ls_line_get(line_a, j), ls_line_get(line_b, j), bound ? ls_line_get(bound, j) : 0, at + j);
      }
    }
  }
  for (; i < n; i++) tally_element(t, rule, ls_line_get(line_a, i), ls_line_get(line_b, i), bound ? ls_line_get(bound, i) : 0, at + i);
}

void ls_tally_row(ls_tally *tally, const ls_rule *rule, const ls_line *a, const ls_line *b, const ls_line *bound, int64_t n, int64_t at) {
  int64_t failing = tally->failing;
  bool is16 = rule->type == LS_BF16 || rule->type == LS_F16;
  const bool plain = !rule->bias || (bound && bound->dtype == LS_F32 && bound->stride == 1);
  if (is16 && plain && a->dtype == rule->type && b->dtype == rule->type && a->stride == 1 && b->stride == 1) {
    tally_same16(tally, rule, a, b, bound, n, at);
  } else {
    for (int64_t i = 0; i < n; i++) {
      tally_element(tally, rule, ls_line_get(a, i), ls_line_get(b, i), bound ? ls_line_get(bound, i) : 0, at + i);
    }
  }
  tally->rows++;
  tally->rows_failing += tally->failing > failing;
}

void ls_tally_row_only(ls_tally *tally, const ls_rule *rule, const ls_line *a, const ls_line *b, const ls_line *bound, const ls_line *only,
                       int64_t n, int64_t at) {
  int64_t failing = tally->failing, count = tally->count;
  for (int64_t i = 0; i < n; i++) {
    if (ls_line_get(only, i) == 0) continue;
    tally_element(tally, rule, ls_line_get(a, i), ls_line_get(b, i), bound ? ls_line_get(bound, i) : 0, at + i);
  }
  tally->rows += tally->count > count;
  tally->rows_failing += tally->failing > failing;
}

int64_t ls_line_nonzeros(const ls_line *line, int64_t n, int64_t *first) {
  int64_t nonzeros = 0;
  if ((line->dtype == LS_BF16 || line->dtype == LS_F16) && line->stride == 1) {
    const uint16_t *v = line->data;
    uint16_t any = 0;
    for (int64_t i = 0; i < n; i++) any |= v[i];
    if ((any & 0x7FFF) == 0) return 0;
  }
  for (int64_t i = 0; i < n; i++) {
    if (ls_line_get(line, i) == 0) continue;
    if (nonzeros++ == 0) *first = i;
  }
  return nonzeros;
}

void ls_tally_merge(ls_tally *into, const ls_tally *from) {
  if (from->has_worst && worse(from->worst_lonely, from->use, into)) {
    into->has_worst = true, into->worst_lonely = from->worst_lonely, into->worst_at = from->worst_at;
    into->worst_a = from->worst_a, into->worst_b = from->worst_b, into->worst_bound = from->worst_bound;
  }
  into->count += from->count, into->zeros += from->zeros, into->bit_equal += from->bit_equal;
  into->failing += from->failing, into->nonfinite += from->nonfinite, into->lonely += from->lonely;
  into->rows += from->rows, into->rows_failing += from->rows_failing;
  ls_bias_merge(&into->bias, &from->bias);
  if (from->use > into->use) into->use = from->use;
  if (from->steps > into->steps) into->steps = from->steps;
}

void ls_tally_result(ls_result *result, const ls_tally *tally) {
  ls_result_init(result);
  result->count = tally->count, result->zeros = tally->zeros, result->bit_equal = tally->bit_equal;
  result->failing = tally->failing, result->nonfinite = tally->nonfinite;
  result->use = tally->use, result->steps = tally->steps;
  result->rows = tally->rows, result->rows_failing = tally->rows_failing;
  result->has_worst = tally->has_worst;
  result->bias = tally->bias;
  result->worst_a = tally->worst_a, result->worst_b = tally->worst_b, result->worst_bound = tally->worst_bound;
  ls_result_judge(result);
}

void ls_note_ties(ls_result *r) {
  char near[48] = "";
  if (r->near_ties > 0) {
    snprintf(near, sizeof near, "%s%lld near tie%s", r->ties > 0 ? ", " : "", (long long)r->near_ties, r->near_ties == 1 ? "" : "s");
  }
  if (r->ties > 0) {
    snprintf(r->note, sizeof r->note, "%lld tie%s%s", (long long)r->ties, r->ties == 1 ? "" : "s", near);
  } else if (r->near_ties > 0) {
    snprintf(r->note, sizeof r->note, "%s", near);
  }
}

void ls_unflatten(int64_t index[LS_MAX_DIMS], int64_t flat, int ndim, const int64_t *dim) {
  for (int i = 0; i < LS_MAX_DIMS; i++) index[i] = 0;
  for (int i = ndim - 1; i >= 0; i--) {
    index[i] = flat % dim[i];
    flat /= dim[i];
  }
}

/* ---- naming places ---- */

typedef struct {
  char *buf;
  size_t size, used;
} text;

static void put(text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put(text *t, const char *format, ...) {
  if (t->used >= t->size) return;
  va_list args;
  va_start(args, format);
  int n = vsnprintf(t->buf + t->used, t->size - t->used, format, args);
  va_end(args);
  if (n > 0) t->used += (size_t)n;
}

static int words_in(const char *axes) {
  int n = 0;
  for (const char *p = axes; *p;) {
    p += strspn(p, " ");
    if (*p) n++;
    p += strcspn(p, " ");
  }
  return n;
}

static bool is_word(const char *word, int length, const char *expected) {
  return (size_t)length == strlen(expected) && strncmp(word, expected, (size_t)length) == 0;
}

/* The position of a row, where the names know any, and its slot. */
static void put_position(text *t, const ls_place_names *names, int64_t row) {
  if (!names || (names->base <= 0 && names->capacity <= 0 && names->stride <= 0)) return;
  int64_t position = names->base + (names->stride > 0 ? names->stride : 1) * row;
  put(t, " (position %lld", (long long)position);
  if (names->capacity > 0) put(t, ", slot %lld", (long long)ls_ring_slot(position, names->capacity));
  put(t, ")");
}

/* The newest position that lives in a slot, -1 where none does or the names know none. */
static int64_t slot_position(const ls_place_names *names, int64_t slot) {
  if (!names || names->capacity <= 0 || names->newest <= 0 || slot >= names->capacity) return -1;
  int64_t back = ls_ring_slot(names->newest, names->capacity) - slot;
  return names->newest - (back < 0 ? back + names->capacity : back);
}

void ls_place_text(char *buf, size_t size, const ls_place_text_args *args) {
  text t = {buf, size, 0};
  if (size > 0) buf[0] = '\0';
  int words = args->axes ? words_in(args->axes) : 0;
  if (words < args->ndim || args->ndim == 0) {
    put(&t, "[");
    for (int i = 0; i < args->ndim; i++) put(&t, "%s%lld", i > 0 ? ", " : "", (long long)args->index[i]);
    put(&t, "]");
    return;
  }
  const char *word = args->axes;
  for (int w = 0; w < words; w++) {
    word += strspn(word, " ");
    int length = (int)strcspn(word, " ");
    int axis = w - (words - args->ndim);
    bool is_layer = is_word(word, length, "layer");
    const char *gap = t.used > 0 ? " " : "";
    if (axis < 0) { /* an axis that this view no longer has */
      if (is_layer) put(&t, "%slayer %lld", gap, (long long)args->first_layer);
      word += length;
      continue;
    }
    long long i = (long long)args->index[axis];
    if (is_layer) {
      put(&t, "%slayer %lld", gap, i + (long long)args->first_layer);
    } else if (is_word(word, length, "row") || is_word(word, length, "latent")) {
      put(&t, "%s%.*s %lld", gap, length, word, i);
      put_position(&t, args->names, i);
    } else if (is_word(word, length, "slot")) {
      int64_t position = args->slot_position >= 0 ? args->slot_position : slot_position(args->names, i);
      put(&t, "%sslot %lld", gap, i);
      if (position >= 0) put(&t, " (position %lld)", (long long)position);
    } else if (axis == args->ndim - 1 && args->heads && args->names && args->names->head_dim > 0) {
      long long head_dim = (long long)args->names->head_dim;
      put(&t, "%shead %lld channel %lld", gap, i / head_dim, i % head_dim);
    } else {
      put(&t, "%s%.*s %lld", gap, length, word, i);
    }
    word += length;
  }
}
