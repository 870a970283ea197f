/* The property "rounding": whether a path rounds inside its fused groups where layers.md says so, and nowhere else.
 *
 * The bound of a group must leave room for single flips, and so lets through a path that keeps float32 where the contract rounds, or that
 * rounds twice. Here the group is computed from the values that the isolated run was given, in double, once as the contract has it and once
 * with a rounding left out (or one made too often), and only those elements are looked at where the two results differ: they tell which of
 * the two the path did. No tolerance is in it.
 *
 * No legal path can fail. Elements are left out where a value that the contract rounds lies within MARGIN (2^-16 of it; of a rotation, of
 * its pair) of the middle between two values of the type, or where such an element may set the scale of a block: float32 arithmetic in any
 * order is off by less (sums of n squares by about sqrt(n) 2^-25), so that on the others it gives the contract's very bits. What is left to
 * chance (larger sums of squares, the dot products of scores, a quotient at the middle of two grid codes that was made with an inverse)
 * moves single elements, with probabilities of about 2 delta / step, far below the share that has to look like the fault: SHARE of at least
 * LEAST elements. The path that has the fault gives nearly all of them. */
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_numeric.h"
#include "../layers/ls_attn.h"
#include "../ref/ref_attn.h"
#include "../ref/ref_norm.h"
#include "../ref/ref_quant.h"
#include "../ref/ref_rope.h"
#include "session_internal.h"

#define MARGIN 0x1p-16
#define SHARE  0.75
enum { LEAST = 32, ELEMENTS = 1 << 14 /* of a stage in a step, about */, PRODUCTS = 1 << 20, PAIRS = 1024, MOST_OPS = 3, VARIANTS = 4 };

/* ---- what was found so far ---- */

typedef struct {
  int64_t right, other; /* elements that tell, by what the path holds there */
  int64_t step, row, channel;
  double expected, found; /* of the first that is `other` */
} tally;

typedef struct {
  int p, variant;
  const ls_stage *stage;
  int64_t layer; /* -1: all of them */
  tally of;
} entry;

struct session_roundings {
  entry *entry;
  int64_t n, room;
};

void session_roundings_close(session *v) {
  if (v->roundings != NULL) free(v->roundings->entry);
  free(v->roundings);
  v->roundings = NULL;
}

static tally *tally_of(session *v, entry key, ls_error *err) {
  if (v->roundings == NULL) v->roundings = calloc(1, sizeof *v->roundings);
  session_roundings *all = v->roundings;
  for (int64_t i = 0; all != NULL && i < all->n; i++) {
    entry *e = &all->entry[i];
    if (e->p == key.p && e->variant == key.variant && e->stage == key.stage && e->layer == key.layer) return &e->of;
  }
  if (all != NULL && all->n == all->room) {
    const int64_t room = 2 * all->room + 64;
    entry *more = realloc(all->entry, (size_t)room * sizeof *more);
    if (more != NULL) {
      all->entry = more;
      all->room = room;
    }
  }
  if (all == NULL || all->n == all->room) {
    ls_fail(err, LS_INTERNAL, "out of memory");
    return NULL;
  }
  all->entry[all->n] = key;
  return &all->entry[all->n++].of;
}

static void count(tally *t, int64_t step, int64_t row, int64_t channel, double right, double other, double found) {
  if (found == right) t->right++;
  if (found != other) return;
  if (t->other++ == 0) *t = (tally){t->right, 1, step, row, channel, right, found};
}

static void add(tally *into, const tally *from) {
  const tally sum = {.right = into->right + from->right, .other = into->other + from->other};
  if (into->other == 0) *into = *from;
  into->right = sum.right;
  into->other = sum.other;
}

static bool is_other(const tally *t) { return t->right + t->other >= LEAST && (double)t->other >= SHARE * (double)(t->right + t->other); }

/* ---- groups ---- */

typedef enum { MADE_BY_NORM, MADE_BY_ROPE, MADE_BY_GRID } made_by;

typedef struct {
  const char *stage;
  made_by by;
  const char *weight; /* of a norm */
  int block;          /* of a grid */
  ls_ref_block_fn *grid;
} making;

static const making makings[] = {
    {"ctx_normed", MADE_BY_NORM, "hidden_norm", 0, NULL},
    {"k_norm", MADE_BY_NORM, "k_norm", 0, NULL},
    {"k_rope", MADE_BY_ROPE, NULL, 0, NULL},
    {"qr", MADE_BY_NORM, "q_norm", 0, NULL},
    {"kv_norm", MADE_BY_NORM, "kv_norm", 0, NULL},
    {"kv_rope", MADE_BY_ROPE, NULL, 0, NULL},
    {"kv", MADE_BY_GRID, NULL, 32, ls_ref_fp8_block},
    {"latent", MADE_BY_NORM, "compressor/norm", 0, NULL},
    {"index_k_norm", MADE_BY_NORM, "indexer/k_norm", 0, NULL},
    {"index_k_rope", MADE_BY_ROPE, NULL, 0, NULL},
    {"index_k", MADE_BY_GRID, NULL, 32, ls_ref_fp4_block},
    {"index_q_rope", MADE_BY_ROPE, NULL, 0, NULL},
    {"index_q", MADE_BY_GRID, NULL, 32, ls_ref_fp4_block},
    {"compress_kv_rope", MADE_BY_ROPE, NULL, 0, NULL},
    {"compress_kv", MADE_BY_GRID, NULL, 16, ls_ref_fp4_e4m3_block},
};

static const making *making_of(const char *stage) {
  for (size_t i = 0; i < sizeof makings / sizeof *makings; i++)
    if (strcmp(makings[i].stage, stage) == 0) return &makings[i];
  return NULL;
}

/* A stage that a path records, with what it fuses away before it; of one layer. */
typedef struct {
  session *v;
  const step_run *s;
  int p;
  const ls_stage *stage;
  int64_t layer; /* -1: none */
  const making *op[MOST_OPS];
  int n;
  ls_tensor in, out; /* [rows, width] */
  int64_t rows, width;
  int64_t norm_width, head, half; /* of a norm, of a rotated head, pairs of it that turn */
  int64_t base, stride;           /* positions */
  double eps;
  double *weight, *ones, *cosine, *sine, *x, *margin, *right, *other;
  float *freq;
  uint8_t *sure, *ignored;
} group;

/* A variant: bits 0 and 1 are the stages of the group whose rounding is left out; TWICE: the norm rounds before its weight. */
enum { AS_IT_IS = 0, TWICE = MOST_OPS + 1 };

static bool has_norm(const group *g) { return g->op[0]->by == MADE_BY_NORM; }

/* false: the path fuses a product into it, which is not computed again here. */
static bool find_ops(group *g, const char **input) {
  const char *stage = g->stage->name;
  for (g->n = 0; g->n < MOST_OPS;) {
    const making *m = making_of(stage);
    if (m == NULL) return false;
    memmove(g->op + 1, g->op, (size_t)g->n++ * sizeof *g->op);
    g->op[0] = m;
    *input = ls_stage_find(g->v->config->layer, stage)->input[0];
    if (session_kind_of(g->v, g->s, g->p, *input) != LS_STAGE_FUSED) return g->n > 1 || has_norm(g);
    stage = *input;
  }
  return false;
}

static const ls_tensor *weight_of(const group *g) {
  char name[LS_MAX_SPEC_NAME];
  snprintf(name, sizeof name, "layers/%" PRId64 "/%s", g->layer, g->op[0]->weight);
  return ls_trace_tensor(g->v->weights, g->layer < 0 ? g->op[0]->weight : name);
}

static double *doubles(int64_t n) { return malloc((size_t)n * sizeof(double) + 1); }

/* Whose fields up to in and out are set. */
static ls_status group_open(group *g, ls_error *err) {
  const ls_config *c = g->v->config;
  const bool dflash = c->layer == &ls_layer_dflash_context_kv, index = strncmp(g->stage->name, "index_", 6) == 0;
  g->head = dflash ? c->dflash.head_dim : index ? c->attn.index_head_dim : c->attn.head_dim;
  g->half = (dflash ? g->head : c->attn.rope_head_dim) / 2;
  g->eps = (double)(float)(dflash ? c->dflash.rms_eps : c->attn.norm_eps);
  g->base = g->s->base;
  g->stride = 1;
  if (strncmp(g->stage->axes, "latent", 6) == 0) {
    const ls_place_names names = g->v->hooks->names(g->v, g->s, g->stage);
    g->base = names.base;
    g->stride = names.stride;
  }
  const ls_tensor *weight = has_norm(g) ? weight_of(g) : NULL;
  g->norm_width = weight != NULL ? ls_tensor_count(weight) : 1;
  if ((has_norm(g) && weight == NULL) || g->width % g->norm_width != 0)
    return ls_fail(err, LS_INTERNAL, "%s: no norm weight of its width", g->stage->name);
  g->weight = doubles(g->norm_width);
  g->ones = doubles(g->norm_width);
  g->cosine = doubles(g->half);
  g->sine = doubles(g->half);
  g->x = doubles(g->width);
  g->margin = doubles(g->width);
  g->right = doubles(g->width);
  g->other = doubles(g->width);
  g->freq = malloc((size_t)g->half * sizeof *g->freq + 1);
  g->sure = malloc((size_t)g->width + 1);
  g->ignored = malloc((size_t)g->width + 1);
  if (g->weight == NULL || g->ones == NULL || g->cosine == NULL || g->sine == NULL || g->x == NULL || g->margin == NULL ||
      g->right == NULL || g->other == NULL || g->freq == NULL || g->sure == NULL || g->ignored == NULL)
    return ls_fail(err, LS_INTERNAL, "out of memory for the roundings of %s", g->stage->name);
  if (weight != NULL) ls_tensor_to_f64(g->weight, weight);
  for (int64_t i = 0; i < g->norm_width; i++) g->ones[i] = 1;
  if (dflash) {
    ls_ref_rope_freq(g->freq, g->head, c->dflash.rope_theta);
  } else {
    ls_ref_attn_freq(g->freq, &c->attn, c->attn.compress_ratio[g->layer] > 0);
  }
  return LS_OK;
}

static void group_close(group *g) {
  double *const all[] = {g->weight, g->ones, g->cosine, g->sine, g->x, g->margin, g->right, g->other};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) free(all[i]);
  free(g->freq);
  free(g->sure);
  free(g->ignored);
}

/* ---- one row ---- */

static void norm_row(const group *g, double *y, bool twice) {
  const ls_dtype type = g->v->config->act;
  for (int64_t from = 0; from < g->width; from += g->norm_width) {
    ls_ref_rms_norm_f64(y + from, y + from, twice ? g->ones : g->weight, g->norm_width, g->eps);
    for (int64_t i = 0; twice && i < g->norm_width; i++) y[from + i] = ls_round_to(type, y[from + i]) * g->weight[i];
  }
  for (int64_t i = 0; i < g->width; i++) g->margin[i] = MARGIN * fabs(y[i]);
}

/* A result is as sure as its pair, and off by at most a share of the pair's length. */
static void rope_row(const group *g, double *y, uint8_t *sure) {
  const bool neox = g->v->config->layer == &ls_layer_dflash_context_kv;
  for (int64_t i = 0; i < g->width; i++) g->margin[i] = 0;
  for (int64_t head = g->head - 2 * g->half; head < g->width; head += g->head) {
    for (int64_t i = 0; i < g->half; i++) {
      const int64_t a = head + (neox ? i : 2 * i), b = neox ? a + g->half : a + 1;
      const double ya = y[a], yb = y[b];
      g->margin[a] = g->margin[b] = MARGIN * hypot(ya, yb);
      y[a] = ya * g->cosine[i] - yb * g->sine[i];
      y[b] = yb * g->cosine[i] + ya * g->sine[i];
      sure[a] = sure[b] = sure[a] && sure[b];
    }
  }
}

/* A block is as sure as the elements that may set its scale. */
static void grid_row(const group *g, const making *m, double *y, uint8_t *sure) {
  float v[LS_REF_LARGEST_BLOCK];
  for (int64_t from = 0; from + m->block <= g->width; from += m->block) {
    double amax = 0;
    bool scale_sure = true;
    for (int64_t i = from; i < from + m->block; i++) amax = fmax(amax, fabs(y[i]));
    for (int64_t i = from; i < from + m->block; i++) {
      v[i - from] = (float)y[i];
      if (!sure[i] && !(fabs(y[i]) < 0.9 * amax)) scale_sure = false;
    }
    m->grid(v, m->block);
    for (int64_t i = from; i < from + m->block; i++) {
      y[i] = (double)v[i - from];
      sure[i] = sure[i] && scale_sure;
    }
  }
}

/* g->x through the group in y; sure[i]: whether a legal path must have that very value (of AS_IT_IS). */
static void make_row(const group *g, int variant, double *y, uint8_t *sure) {
  const ls_dtype type = g->v->config->act;
  memcpy(y, g->x, (size_t)g->width * sizeof *y);
  memset(sure, 1, (size_t)g->width);
  for (int op = 0; op < g->n; op++) {
    if (g->op[op]->by == MADE_BY_NORM) norm_row(g, y, variant == TWICE);
    if (g->op[op]->by == MADE_BY_ROPE) rope_row(g, y, sure);
    if (g->op[op]->by == MADE_BY_GRID) {
      grid_row(g, g->op[op], y, sure); /* rounded by the grid */
    } else if (variant == TWICE || op == g->n - 1 || (variant >> op & 1) == 0) {
      for (int64_t i = 0; i < g->width; i++) {
        if (variant == AS_IT_IS && ls_round_to(type, y[i] - g->margin[i]) != ls_round_to(type, y[i] + g->margin[i])) sure[i] = 0;
        y[i] = ls_round_to(type, y[i]);
      }
    }
  }
}

static void place_row(group *g, int64_t row) {
  const ls_tensor from = ls_tensor_at(&g->in, row);
  const ls_tensor cosine = ls_tensor_make(LS_F64, 2, (const int64_t[]){1, g->half}, g->cosine);
  const ls_tensor sine = ls_tensor_make(LS_F64, 2, (const int64_t[]){1, g->half}, g->sine);
  ls_tensor_to_f64(g->x, &from);
  ls_ref_rope_table(&cosine, &sine, g->freq, g->base + g->stride * row);
}

/* The variants of the group: what may be left out, then TWICE. */
static int variants_of(const group *g, int variant[VARIANTS]) {
  int n = 0;
  for (int left_out = 1; left_out < 1 << (g->n - 1); left_out++) variant[n++] = left_out;
  if (has_norm(g)) variant[n++] = TWICE;
  return n;
}

static ls_status measure_group(group *g, tally found[VARIANTS], const int variant[VARIANTS], int n, ls_error *err) {
  LS_TRY(group_open(g, err));
  const int64_t every = (g->rows * g->width + ELEMENTS - 1) / ELEMENTS; /* rows; another first one in each step */
  for (int64_t row = g->s->step.number % every; row < g->rows; row += every) {
    const ls_tensor out = ls_tensor_at(&g->out, row);
    place_row(g, row);
    make_row(g, AS_IT_IS, g->right, g->sure);
    for (int k = 0; k < n; k++) {
      make_row(g, variant[k], g->other, g->ignored);
      for (int64_t i = 0; i < g->width; i++) {
        if (!g->sure[i] || !isfinite(g->right[i]) || !isfinite(g->other[i]) || g->right[i] == g->other[i]) continue;
        count(&found[k], g->s->step.number, row, i, g->right[i], g->other[i], ls_tensor_get(&out, i));
      }
    }
  }
  return LS_OK;
}

/* ---- verdicts ---- */

static void say_variant(char *buf, size_t size, const group *g, int variant) {
  const char *type = ls_dtype_name(g->v->config->act);
  if (g->op[0] == NULL) {
    snprintf(buf, size, "%s%s%s were not rounded to %s", variant & 1 ? "a head's dot product" : "", variant == 3 ? " and " : "",
             variant & 2 ? "its product with the weight" : "", type);
  } else if (variant == TWICE) {
    snprintf(buf, size, "%s were rounded to %s before the weight, too", g->op[0]->stage, type);
  } else {
    snprintf(buf, size, "%s%s%s were not rounded to %s before %s", variant & 1 ? g->op[0]->stage : "", variant == 3 ? " and " : "",
             variant & 2 ? g->op[1]->stage : "", type, g->op[variant & 2 ? 2 : 1]->stage);
  }
}

static void say_place(char *buf, size_t size, const group *g, const tally *t) {
  if (g->op[0] == NULL) {
    snprintf(buf, size, "step %" PRId64 " row %" PRId64 " position %" PRId64, t->step, t->row, t->channel);
  } else if (g->stage->head_dim_field != 0) {
    snprintf(buf, size, "step %" PRId64 " row %" PRId64 " head %" PRId64 " channel %" PRId64, t->step, t->row, t->channel / g->head,
             t->channel % g->head);
  } else {
    snprintf(buf, size, "step %" PRId64 " row %" PRId64 " channel %" PRId64, t->step, t->row, t->channel);
  }
}

/* What the step added, and whether all so far, of this layer or of all layers, is the work of a variant. */
static ls_status judge(group *g, const tally found[VARIANTS], const int variant[VARIANTS], int n, ls_error *err) {
  ls_result result = session_fact(true);
  double most = 0;
  result.count = result.bit_equal = 0;
  for (int k = 0; k < n; k++) {
    if (found[k].right + found[k].other > result.count) {
      result.count = found[k].right + found[k].other;
      result.bit_equal = found[k].right;
    }
    for (int64_t layer = g->layer; found[k].right + found[k].other > 0 && layer >= -1; layer = layer < 0 ? -2 : -1) {
      tally *t = tally_of(g->v, (entry){.p = g->p, .variant = variant[k], .stage = g->stage, .layer = layer}, err);
      if (t == NULL) return LS_INTERNAL;
      add(t, &found[k]);
      const double share = (double)t->other / (double)(t->right + t->other);
      if (!is_other(t) || share <= most) continue;
      char what[88], where[64], of[24] = "";
      most = share;
      say_variant(what, sizeof what, g, variant[k]);
      say_place(where, sizeof where, g, t);
      if (layer >= 0) snprintf(of, sizeof of, ".%" PRId64, layer);
      result.verdict = LS_FAIL;
      snprintf(result.note, sizeof result.note,
               "%.20s%s: looks as if %s: %" PRId64 " of %" PRId64 " elements that tell; the first, %s: expected %.6g, found %.6g",
               g->stage->name, of, what, t->other, t->right + t->other, where, t->expected, t->found);
    }
  }
  if (result.count == 0) return LS_OK;
  if (result.verdict == LS_FAIL) result.failing = result.count - result.bit_equal > 0 ? result.count - result.bit_equal : 1;
  return session_property(g->v, g->s, "rounding", g->p, &result, err);
}

static bool is_rows_of(const ls_tensor *t, int64_t rows, int64_t width) { return t->ndim == 2 && t->dim[0] == rows && t->dim[1] == width; }

/* in, out: of the group's layer. Of another shape, or not rounded at all (the reference in double): judged elsewhere, or not here. */
static ls_status judge_group(group *g, ls_error *err) {
  tally found[VARIANTS] = {{0}};
  int variant[VARIANTS];
  if (g->out.dtype != g->v->config->act || g->in.ndim != 2 || !is_rows_of(&g->out, g->in.dim[0], g->in.dim[1])) return LS_OK;
  g->rows = g->in.dim[0];
  g->width = g->in.dim[1];
  if (g->rows == 0 || g->width == 0) return LS_OK;
  const int n = variants_of(g, variant);
  ls_status status = measure_group(g, found, variant, n, err);
  if (status == LS_OK) status = judge(g, found, variant, n, err);
  group_close(g);
  return status;
}

static ls_status judge_making(session *v, const step_run *s, int p, const ls_stage *stage, ls_error *err) {
  const char *input;
  group g = {.v = v, .s = s, .p = p, .stage = stage};
  if (!find_ops(&g, &input)) return LS_OK;
  const ls_tensor *in = ls_trace_tensor(s->given, input), *out = ls_trace_tensor(s->isolated[p].out, stage->name);
  if (in == NULL || out == NULL) return LS_OK;
  const bool by_layer = strncmp(stage->axes, "layer", 5) == 0;
  if (!by_layer) {
    g.layer = v->hooks->sub(s);
    g.in = *in;
    g.out = *out;
    return judge_group(&g, err);
  }
  if (in->ndim != 3 || out->ndim != 3) return LS_OK;
  for (int64_t l = 0; l < in->dim[0] && l < out->dim[0]; l++) {
    group of = g;
    of.layer = l;
    of.in = ls_tensor_at(in, l);
    of.out = ls_tensor_at(out, l);
    LS_TRY(judge_group(&of, err));
  }
  return LS_OK;
}

/* ---- index scores ---- */

typedef struct {
  ls_tensor q, w, key, score;
  int64_t heads, width;
  double *qs, *keys, *ws, *dots; /* of one query, one key */
} scoring;

/* The dot products of c->qs with c->keys. */
static void make_dots(const scoring *c) {
  for (int64_t h = 0; h < c->heads; h++) {
    double dot = 0;
    for (int64_t i = 0; i < c->width; i++) dot += c->qs[h * c->width + i] * c->keys[i];
    c->dots[h] = dot;
  }
}

/* One score; variant bits: the dot products, their products with the weight are not rounded. sure: as in make_row. */
static double make_score(const scoring *c, ls_dtype type, int variant, bool *sure) {
  double sum = 0, magnitude = 0;
  for (int64_t h = 0; h < c->heads; h++) {
    const double dot = (variant & 1) == 0 ? ls_round_to(type, c->dots[h]) : c->dots[h];
    double product = (dot < 0 ? 0 : dot) * c->ws[h];
    if ((variant & 2) == 0) product = ls_round_to(type, product);
    sum += product;
    magnitude += fabs(product);
  }
  *sure = ls_round_to(type, sum - MARGIN * magnitude) == ls_round_to(type, sum + MARGIN * magnitude);
  return ls_round_to(type, sum);
}

static void measure_scores(group *g, const scoring *c, const ls_attn_plan *plan, const ls_tensor *only, tally found[VARIANTS]) {
  const int64_t all = plan->m * plan->n, fit = PRODUCTS / (c->heads * c->width) + 1, pairs = fit < PAIRS ? fit : PAIRS;
  const int64_t every = (all + pairs - 1) / pairs;
  const ls_dtype type = g->v->config->act;
  int64_t query = -1; /* whose values are at hand */
  for (int64_t k = 0; k * every < all; k++) {
    const int64_t at = k * every + (int64_t)((uint64_t)(k + g->s->step.number) * UINT64_C(2654435761) % (uint64_t)every);
    const int64_t t = at / plan->n, j = at % plan->n;
    bool sure, ignored;
    if (at >= all || j >= ls_attn_visible(plan, t) || (only != NULL && ls_tensor_get(only, at) == 0)) continue;
    const ls_tensor q = ls_tensor_at(&c->q, t), w = ls_tensor_at(&c->w, t), key = ls_tensor_at(&c->key, j);
    if (t != query) {
      ls_tensor_to_f64(c->qs, &q);
      ls_tensor_to_f64(c->ws, &w);
      query = t;
    }
    ls_tensor_to_f64(c->keys, &key);
    make_dots(c);
    const double right = make_score(c, type, AS_IT_IS, &sure);
    for (int variant = 1; sure && variant < 4; variant++) {
      const double other = make_score(c, type, variant, &ignored);
      if (!isfinite(right) || !isfinite(other) || right == other) continue;
      count(&found[variant - 1], g->s->step.number, t, j, right, other, ls_tensor_get(&c->score, at));
    }
  }
}

static ls_status judge_scores(session *v, const step_run *s, int p, const ls_stage *stage, ls_error *err) {
  static const int variant[VARIANTS] = {1, 2, 3};
  const ls_attn_config *a = &v->config->attn;
  const ls_trace *after = s->isolated[0].after; /* all start from its state and store the keys that are given */
  char name[LS_MAX_SPEC_NAME];
  ls_attn_plan plan;
  ls_attn_plan_shapes(a, &s->step, &plan);
  snprintf(name, sizeof name, "layers/%" PRId64 "/index_cache", session_state_int(after, "index_source"));
  const ls_tensor *q = ls_trace_tensor(s->given, "index_q"), *w = ls_trace_tensor(s->given, "index_w"), *key = ls_trace_tensor(after, name);
  const ls_tensor *score = ls_trace_tensor(s->isolated[p].out, stage->name);
  if (!plan.index_source || q == NULL || w == NULL || key == NULL || score == NULL || score->dtype != v->config->act) return LS_OK;
  if (!is_rows_of(q, plan.m, a->index_q_dim) || !is_rows_of(w, plan.m, a->index_n_heads) || !is_rows_of(score, plan.m, plan.n) ||
      key->ndim != 2 || key->dim[1] != a->index_head_dim || key->dim[0] < plan.n)
    return LS_OK; /* judged where they are made */
  group g = {.v = v, .s = s, .p = p, .stage = stage, .layer = s->step.layer};
  tally found[VARIANTS] = {{0}};
  scoring c = {.q = *q, .w = *w, .key = *key, .score = *score, .heads = a->index_n_heads, .width = a->index_head_dim};
  double *memory = doubles(a->index_q_dim + c.width + 2 * c.heads);
  if (memory == NULL) return ls_fail(err, LS_INTERNAL, "out of memory for the roundings of %s", stage->name);
  c.qs = memory;
  c.keys = c.qs + a->index_q_dim;
  c.ws = c.keys + c.width;
  c.dots = c.ws + c.heads;
  measure_scores(&g, &c, &plan, v->hooks->defined(v, s, stage, LS_ISOLATED), found);
  free(memory);
  return judge(&g, found, variant, 3, err);
}

ls_status session_judge_rounding(session *v, const step_run *s, int p, ls_error *err) {
  if (!s->staged || s->given == NULL || s->isolated[p].status != LS_OK || !session_wanted(v, "rounding", -1)) return LS_OK;
  if (session_recorded_apart(v, s, 0, p, LS_ISOLATED) != NULL) return LS_OK;
  const ls_layer *layer = v->config->layer;
  for (int i = 0; i < layer->n_stages; i++) {
    const ls_stage *stage = &layer->stages[i];
    if (strcmp(stage->name, "index_score") == 0) {
      LS_TRY(judge_scores(v, s, p, stage, err));
    } else if (making_of(stage->name) != NULL) {
      LS_TRY(judge_making(v, s, p, stage, err));
    }
  }
  return LS_OK;
}
