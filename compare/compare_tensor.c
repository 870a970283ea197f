#include <math.h>
#include <stdio.h>
#include <string.h>

#include "../core/ls_parallel.h"
#include "compare_tally.h"

const char *ls_verdict_name(ls_verdict verdict) {
  static const char *const name[LS_VERDICTS] = {"PASS", "FAIL", "MISTRUSTED", "MISSING", "FUSED", "SHARED", "NOT HELD", "NOT RUN"};
  return verdict >= 0 && verdict < LS_VERDICTS ? name[verdict] : "UNKNOWN";
}

void ls_result_init(ls_result *result) {
  memset(result, 0, sizeof *result);
  result->verdict = LS_NOT_RUN;
}

void ls_result_judge(ls_result *result) {
  bool enough = result->count > 0 && (double)result->zeros < LS_MISTRUST_SHARE * (double)result->count;
  bool ok = result->failing == 0 && result->use <= 1;
  if (ok && ls_bias_found(&result->bias)) {
    ok = false;
    ls_bias_say(result);
  }
  result->verdict = !ok ? LS_FAIL : enough ? LS_PASS : LS_MISTRUSTED;
}

double ls_result_use_999(const ls_result *result) { return ls_spread_use(&result->spread, result->count, 0.999, result->use); }

/* What wins when results come together. */
static int weight(ls_verdict verdict) {
  switch (verdict) {
    case LS_FAIL:
      return 6;
    case LS_MISSING:
      return 5;
    case LS_PASS:
    case LS_MISTRUSTED:
      return 4;
    case LS_SHARED:
      return 3;
    case LS_FUSED:
      return 2;
    case LS_NOT_HELD:
      return 1;
    default:
      return 0;
  }
}

static bool is_lonely(const ls_result *r) { return r->has_worst && !(isfinite(r->worst_a) && isfinite(r->worst_b)); }

void ls_result_own(const ls_result *r, double *use, int64_t *differing) {
  *use = r->merged ? r->own_use : r->carries ? 0 : r->use;
  *differing = r->merged ? r->own_differing : r->carries ? 0 : r->count - r->bit_equal;
}

void ls_result_merge(ls_result *into, const ls_result *from) {
  int w_into = weight(into->verdict), w_from = weight(from->verdict);
  if (w_from == 0) return;
  if (w_into == 0 || (into->verdict == LS_SHARED && w_from > w_into)) { /* SHARED counts prove nothing, so they do not mix with others */
    *into = *from;
    return;
  }
  if (from->verdict == LS_SHARED && w_into > w_from) return;

  bool take_worst = from->has_worst && (!into->has_worst || (is_lonely(from) != is_lonely(into) ? is_lonely(from) : from->use > into->use));
  if (take_worst) {
    into->has_worst = true;
    into->worst_ndim = from->worst_ndim;
    memcpy(into->worst_index, from->worst_index, sizeof into->worst_index);
    into->worst_a = from->worst_a, into->worst_b = from->worst_b, into->worst_bound = from->worst_bound;
    memcpy(into->where, from->where, sizeof into->where);
  }
  if (from->note[0] && (!into->note[0] || w_from > w_into)) memcpy(into->note, from->note, sizeof into->note);
  if (from->pattern[0] && (!into->pattern[0] || w_from > w_into)) { /* the first that has one */
    memcpy(into->pattern, from->pattern, sizeof into->pattern);
    memcpy(into->pattern_text, from->pattern_text, sizeof into->pattern_text);
  }
  double use[2];
  int64_t differing[2];
  ls_result_own(into, &use[0], &differing[0]);
  ls_result_own(from, &use[1], &differing[1]);
  into->merged = true;
  into->own_use = use[0] > use[1] ? use[0] : use[1], into->own_differing = differing[0] + differing[1];
  into->count += from->count, into->zeros += from->zeros, into->bit_equal += from->bit_equal;
  into->failing += from->failing, into->nonfinite += from->nonfinite;
  into->rows += from->rows, into->rows_failing += from->rows_failing;
  ls_bias_merge(&into->bias, &from->bias);
  into->ties += from->ties, into->near_ties += from->near_ties;
  if (from->use > into->use) into->use = from->use;
  if (from->steps > into->steps) into->steps = from->steps;
  ls_spread_merge(&into->spread, &from->spread);
  if (w_from == weight(LS_PASS) && w_into == weight(LS_PASS)) {
    ls_result_judge(into);
    ls_note_ties(into);
  } else if (w_from > w_into) {
    into->verdict = from->verdict;
  }
}

/* ---- one tensor ---- */

enum { PIECES = 64 };

typedef struct {
  const ls_compare_args *args;
  ls_rule rule;
  int64_t rows, width, rows_per_piece;
  ls_tally piece[PIECES];
} work;

static void compare_piece(void *arg, int64_t i) {
  work *w = arg;
  int64_t end = (i + 1) * w->rows_per_piece < w->rows ? (i + 1) * w->rows_per_piece : w->rows;
  for (int64_t row = i * w->rows_per_piece; row < end; row++) {
    int64_t at = row * w->width;
    ls_line a = ls_line_of(w->args->a, at), b = ls_line_of(w->args->b, at), bound;
    if (w->args->bound) bound = ls_line_of(w->args->bound, at);
    if (w->args->only) {
      ls_line only = ls_line_of(w->args->only, at);
      ls_tally_row_only(&w->piece[i], &w->rule, &a, &b, w->args->bound ? &bound : NULL, &only, w->width, at);
      continue;
    }
    ls_tally_row(&w->piece[i], &w->rule, &a, &b, w->args->bound ? &bound : NULL, w->width, at);
  }
}

static void cannot_compare(ls_result *result, const char *note) {
  result->verdict = LS_FAIL;
  snprintf(result->note, sizeof result->note, "%s", note);
}

static void name_place(char *buf, size_t size, const ls_compare_args *args, const int64_t *index) {
  ls_place_text_args place = {.axes = args->stage ? args->stage->axes : NULL,
                              .ndim = args->a->ndim,
                              .index = index,
                              .names = &args->names,
                              .first_layer = args->first_layer,
                              .heads = args->stage && args->stage->head_dim_field,
                              .slot_position = -1};
  ls_place_text(buf, size, &place);
}

void ls_compare_tensor(ls_result *result, const ls_compare_args *args) {
  char note[LS_MAX_NOTE], shape_a[64], shape_b[64];
  ls_result_init(result);
  if (!args->a || !args->b) {
    result->verdict = LS_MISSING;
    snprintf(result->note, sizeof result->note, "%s side holds no such tensor", !args->a && !args->b ? "neither" : "one");
    return;
  }
  const ls_tensor *other = !ls_tensor_same_shape(args->a, args->b)                      ? args->b
                           : args->bound && !ls_tensor_same_shape(args->a, args->bound) ? args->bound
                           : args->only && !ls_tensor_same_shape(args->a, args->only)   ? args->only
                                                                                        : NULL;
  if (other) {
    ls_dims_text(shape_a, sizeof shape_a, args->a->ndim, args->a->dim);
    ls_dims_text(shape_b, sizeof shape_b, other->ndim, other->dim);
    snprintf(note, sizeof note, "shapes differ: %s against %s%s", shape_a, shape_b,
             other == args->bound  ? " of the bound"
             : other == args->only ? " of the mask"
                                   : "");
    cannot_compare(result, note);
    return;
  }
  if (args->only && (args->only->dtype != LS_U8 || args->only->place != LS_HOST)) {
    cannot_compare(result, "the mask of what is compared is not u8 on the host");
    return;
  }
  if (args->a->place != LS_HOST || args->b->place != LS_HOST || (args->bound && args->bound->place != LS_HOST)) {
    cannot_compare(result, "a tensor is in device memory");
    return;
  }

  int64_t count = ls_tensor_count(args->a);
  const bool rounds = args->type == LS_BF16 || args->type == LS_F16;
  work w = {.args = args,
            .rule = {.type = args->type,
                     .steps = args->steps,
                     .has_tolerance = args->has_tolerance,
                     .atol = args->atol,
                     .rtol = args->rtol,
                     .bias = rounds && args->bound != NULL && args->bound->dtype == LS_F32 && args->steps >= 1 && !args->has_tolerance}};
  w.width = args->a->ndim > 0 ? args->a->dim[args->a->ndim - 1] : 1;
  w.rows = count > 0 ? count / w.width : 0;
  if (args->map) {
    const bool heads = args->stage && args->stage->head_dim_field;
    ls_map_start(args->map, w.rows, w.width, heads ? args->names.head_dim : 0, args->only != NULL);
    for (int i = 0; i < PIECES; i++) w.piece[i].map = args->map;
  }
  int64_t pieces = count / (1 << 16) + 1; /* smaller ones are not worth a thread */
  if (pieces > PIECES) pieces = PIECES;
  w.rows_per_piece = (w.rows + pieces - 1) / pieces;
  pieces = w.rows > 0 ? (w.rows + w.rows_per_piece - 1) / w.rows_per_piece : 0;
  if (pieces == 1) {
    compare_piece(&w, 0);
  } else {
    ls_parallel_for(pieces, compare_piece, &w);
  }

  ls_tally total = {0};
  for (int64_t i = 0; i < pieces; i++) ls_tally_merge(&total, &w.piece[i]);
  ls_tally_result(result, &total);
  if (total.has_worst) {
    result->worst_ndim = args->a->ndim;
    ls_unflatten(result->worst_index, total.worst_at, args->a->ndim, args->a->dim);
    name_place(result->where, sizeof result->where, args, result->worst_index);
  }
  if (total.lonely > 0) {
    snprintf(result->note, sizeof result->note, "%lld element%s not finite on one side only, or of another kind or sign; the first: %s",
             (long long)total.lonely, total.lonely == 1 ? "" : "s", result->where);
  } else if (total.count == 0) {
    snprintf(result->note, sizeof result->note, "nothing was compared");
  }
}
