#include "ref_indexer.h"

#include <math.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_gemm.h"
#include "../core/ls_numeric.h"
#include "../core/ls_parallel.h"

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static ls_status out_of_memory(ls_error *err, const char *what) { return ls_fail(err, LS_INTERNAL, "out of memory in %s", what); }

/* ---- scores ---- */

/* The work is cut in tiles of some queries by KEYS keys, the same ones whatever the number of threads; per tile the dot products of all
 * heads with all keys are one product. */
enum { KEYS = 256, ROWS = 256 /* heads * queries of a tile, about */ };

typedef struct {
  const ls_tensor *score, *q, *key, *w;
  const ls_attn_plan *plan;
  int64_t m, n, heads, width;
  int64_t queries, key_tiles; /* queries of a tile, tiles along the keys */
  atomic_bool failed;
} scoring;

static float bf16(float v) { return ls_bf16_to_f32(ls_f32_to_bf16(v)); }

/* y[j] = sum over heads of bf16(relu(bf16(dot[h][j])) * w[h]), one accumulator a key        dot [heads, KEYS], w [heads], y [keys] */
static void sum_heads_f32(float *y, const float *dot, const float *w, int64_t heads, int64_t keys) {
  memset(y, 0, (size_t)keys * sizeof *y);
  for (int64_t h = 0; h < heads; h++) {
    for (int64_t j = 0; j < keys; j++) {
      const float d = bf16(dot[h * KEYS + j]);
      y[j] += bf16((d < 0 ? 0 : d) * w[h]); /* not fmaxf, which would hide a NaN */
    }
  }
}

static void sum_heads_f64(double *y, const double *dot, const double *w, int64_t heads, int64_t keys) {
  memset(y, 0, (size_t)keys * sizeof *y);
  for (int64_t h = 0; h < heads; h++) {
    for (int64_t j = 0; j < keys; j++) {
      const double d = dot[h * KEYS + j];
      y[j] += (d < 0 ? 0 : d) * w[h];
    }
  }
}

/* Scores of query t against keys [first, first + keys) are in y: the causal -inf, then stored, rounded once. A sum that begins at +0 is
 * never -0. */
static void store_f32(const scoring *s, int64_t t, int64_t first, int64_t keys, float *y) {
  const ls_tensor row = ls_tensor_at(s->score, t), to = ls_tensor_slice(&row, 0, first, keys);
  const int64_t visible = ls_attn_visible(s->plan, t) - first;
  for (int64_t j = 0; j < keys; j++) y[j] = j >= visible ? -INFINITY : y[j];
  ls_tensor_from_f32(&to, y);
}

static void store_f64(const scoring *s, int64_t t, int64_t first, int64_t keys, double *y) {
  const ls_tensor row = ls_tensor_at(s->score, t), to = ls_tensor_slice(&row, 0, first, keys);
  const int64_t visible = ls_attn_visible(s->plan, t) - first;
  for (int64_t j = 0; j < keys; j++) y[j] = j >= visible ? -INFINITY : y[j];
  ls_tensor_from_f64(&to, y);
}

static void score_tile(void *arg, int64_t tile) {
  scoring *s = arg;
  const int64_t t0 = tile / s->key_tiles * s->queries, queries = smaller(s->queries, s->m - t0);
  const int64_t first = tile % s->key_tiles * KEYS, keys = smaller(KEYS, s->n - first);
  const int64_t heads = s->heads, width = s->width, rows = queries * heads;
  const bool none_visible = first >= ls_attn_visible(s->plan, t0 + queries - 1); /* the last query sees the most */
  const ls_tensor q = ls_tensor_slice(s->q, 0, t0, queries), key = ls_tensor_slice(s->key, 0, first, keys);
  const ls_tensor w = ls_tensor_slice(s->w, 0, t0, queries);

  const size_t size = s->score->dtype == LS_F64 ? sizeof(double) : sizeof(float);
  void *scratch = malloc((size_t)(rows * width + keys * width + rows + rows * KEYS + KEYS) * size);
  if (scratch == NULL) {
    atomic_store(&s->failed, true);
    return;
  }
  if (s->score->dtype == LS_F64) {
    double *wide_q = scratch, *wide_key = wide_q + rows * width, *wide_w = wide_key + keys * width, *dot = wide_w + rows;
    double *y = dot + rows * KEYS;
    if (!none_visible) {
      ls_tensor_to_f64(wide_q, &q);
      ls_tensor_to_f64(wide_key, &key);
      ls_tensor_to_f64(wide_w, &w);
      ls_gemm_f64(dot, wide_q, wide_key, rows, keys, width, KEYS, width, width);
    }
    for (int64_t t = 0; t < queries; t++) {
      if (!none_visible) sum_heads_f64(y, dot + t * heads * KEYS, wide_w + t * heads, heads, keys);
      store_f64(s, t0 + t, first, keys, y);
    }
  } else {
    float *wide_q = scratch, *wide_key = wide_q + rows * width, *wide_w = wide_key + keys * width, *dot = wide_w + rows;
    float *y = dot + rows * KEYS;
    if (!none_visible) {
      ls_tensor_to_f32(wide_q, &q);
      ls_tensor_to_f32(wide_key, &key);
      ls_tensor_to_f32(wide_w, &w);
      ls_gemm_f32(dot, wide_q, wide_key, rows, keys, width, KEYS, width, width);
    }
    for (int64_t t = 0; t < queries; t++) {
      if (!none_visible) sum_heads_f32(y, dot + t * heads * KEYS, wide_w + t * heads, heads, keys);
      store_f32(s, t0 + t, first, keys, y);
    }
  }
  free(scratch);
}

ls_status ls_ref_index_score(const ls_tensor *score, const ls_tensor *q, const ls_tensor *key, const ls_tensor *w, const ls_attn_plan *plan,
                             ls_error *err) {
  const int64_t heads = w->dim[1];
  scoring s = {.score = score, .q = q, .key = key, .w = w, .plan = plan, .m = score->dim[0], .n = score->dim[1]};
  s.heads = heads;
  s.width = key->dim[1];
  s.queries = heads < ROWS ? ROWS / heads : 1;
  s.key_tiles = (s.n + KEYS - 1) / KEYS;
  atomic_init(&s.failed, false);
  ls_parallel_for((s.m + s.queries - 1) / s.queries * s.key_tiles, score_tile, &s);
  return atomic_load(&s.failed) ? out_of_memory(err, "index_score") : LS_OK;
}

/* ---- ranks: scores as integers, larger is better ---- */

#define RANK_NONE   UINT64_C(0)      /* -inf, or not to be chosen at all */
#define RANK_NAN    (UINT64_MAX - 1) /* before every value */
#define RANK_ALWAYS UINT64_MAX       /* before NaN too */
#define RANK_SIGN   (UINT64_C(1) << 63)

static uint64_t rank_of(double v) {
  if (v != v) return RANK_NAN;
  if (v == -INFINITY) return RANK_NONE;
  if (v == 0) v = 0; /* -0 equals +0 */
  uint64_t bits;
  memcpy(&bits, &v, sizeof bits);
  return bits & RANK_SIGN ? ~bits : bits | RANK_SIGN;
}

/* Ranks of the first n scores of query t. */
static void rank_row(uint64_t *rank, const ls_tensor *score, int64_t t, int64_t n) {
  enum { PIECE = 512 };
  double v[PIECE];
  const ls_tensor row = ls_tensor_at(score, t);
  for (int64_t i = 0; i < n; i += PIECE) {
    const int64_t length = smaller(PIECE, n - i);
    const ls_tensor piece = ls_tensor_slice(&row, 0, i, length);
    ls_tensor_to_f64(v, &piece);
    for (int64_t j = 0; j < length; j++) rank[i + j] = rank_of(v[j]);
  }
}

/* What the k best of n ranks are: those above `bar`, and the first `at_bar` of those that equal it. RANK_NONE is never among them. */
typedef struct {
  uint64_t bar;
  int64_t at_bar;
} choice;

/* Byte by byte from the top: the k-th best rank is in the bin where the count from above reaches k; then the next byte of the ranks in
 * that bin. Eight passes at most, whatever the values. */
static choice choose(const uint64_t *rank, int64_t n, int64_t k) {
  uint64_t bar = 0, known = 0; /* the bytes found so far, and a mask of them */
  int64_t left = k;            /* of the ranks that agree with bar on them, how many are wanted */
  if (k <= 0) return (choice){RANK_ALWAYS, 0};
  for (int shift = 56; shift >= 0; shift -= 8) {
    int64_t count[256] = {0};
    for (int64_t i = 0; i < n; i++) {
      if ((rank[i] & known) == bar) count[rank[i] >> shift & 255]++;
    }
    int bin = 255;
    for (; bin > 0 && count[bin] < left; bin--) left -= count[bin];
    bar |= (uint64_t)bin << shift;
    known |= UINT64_C(255) << shift;
  }
  return (choice){bar, bar == RANK_NONE ? 0 : left};
}

static bool is_chosen(choice *c, uint64_t rank) { return rank > c->bar || (rank == c->bar && c->at_bar-- > 0); } /* in ascending order */

/* ---- candidates ---- */

typedef struct {
  const ls_tensor *mask, *score;
  const ls_attn_config *config;
  const ls_attn_plan *plan;
  atomic_bool failed;
} masking;

static void mask_row(void *arg, int64_t t) {
  masking *c = arg;
  const int64_t block = c->config->candidate_block_size, visible = ls_attn_visible(c->plan, t);
  const int64_t blocks = (visible + block - 1) / block, n = c->mask->dim[1];
  const ls_tensor row = ls_tensor_at(c->mask, t);
  uint8_t *mask = row.data;
  for (int64_t j = 0; j < n; j++) mask[j * row.stride[0]] = 0;
  if (visible == 0) return;

  uint64_t *rank = malloc((size_t)(visible + blocks) * sizeof *rank);
  if (rank == NULL) {
    atomic_store(&c->failed, true);
    return;
  }
  uint64_t *best = rank + visible;
  rank_row(rank, c->score, t, visible);
  for (int64_t b = 0; b < blocks; b++) {
    best[b] = RANK_NONE;
    for (int64_t j = b * block; j < smaller((b + 1) * block, visible); j++) best[b] = rank[j] > best[b] ? rank[j] : best[b];
  }
  best[(visible - 1) / block] = RANK_ALWAYS; /* the block of the newest position */

  choice kept = choose(best, blocks, c->config->candidate_topk_blocks);
  for (int64_t b = 0; b < blocks; b++) {
    if (!is_chosen(&kept, best[b])) continue;
    for (int64_t j = b * block; j < smaller((b + 1) * block, n); j++) mask[j * row.stride[0]] = 1;
  }
  free(rank);
}

ls_status ls_ref_candidates(const ls_tensor *mask, const ls_tensor *score, const ls_attn_config *config, const ls_attn_plan *plan,
                            ls_error *err) {
  masking c = {.mask = mask, .score = score, .config = config, .plan = plan};
  atomic_init(&c.failed, false);
  ls_parallel_for(mask->dim[0], mask_row, &c);
  return atomic_load(&c.failed) ? out_of_memory(err, "candidates") : LS_OK;
}

/* ---- top-k ---- */

typedef struct {
  const ls_tensor *idx, *score, *mask;
  int64_t offset;
  const ls_attn_plan *plan;
  atomic_bool failed;
} selection;

static void select_row(void *arg, int64_t t) {
  selection *s = arg;
  const int64_t k = s->idx->dim[1], visible = ls_attn_visible(s->plan, t);
  const ls_tensor row = ls_tensor_at(s->idx, t);
  int32_t *idx = row.data;
  uint64_t *rank = malloc((size_t)(visible > 0 ? visible : 1) * sizeof *rank);
  if (rank == NULL) {
    atomic_store(&s->failed, true);
    return;
  }
  rank_row(rank, s->score, t, visible);
  if (s->mask != NULL) {
    const ls_tensor mask_row = ls_tensor_at(s->mask, t);
    const uint8_t *mask = mask_row.data;
    for (int64_t j = 0; j < visible; j++) {
      if (mask[j * mask_row.stride[0]] == 0) rank[j] = RANK_NONE;
    }
  }

  choice chosen = choose(rank, visible, k);
  int64_t found = 0;
  for (int64_t j = 0; j < visible; j++) { /* ascending, so the list is sorted and the lower position wins a tie */
    if (is_chosen(&chosen, rank[j])) idx[found++ * row.stride[0]] = (int32_t)(j + s->offset);
  }
  for (; found < k; found++) idx[found * row.stride[0]] = -1;
  free(rank);
}

ls_status ls_ref_topk(const ls_tensor *idx, const ls_tensor *score, const ls_tensor *mask, int64_t offset, const ls_attn_plan *plan,
                      ls_error *err) {
  selection s = {.idx = idx, .score = score, .mask = mask, .offset = offset, .plan = plan};
  atomic_init(&s.failed, false);
  ls_parallel_for(idx->dim[0], select_row, &s);
  return atomic_load(&s.failed) ? out_of_memory(err, "compress_idx") : LS_OK;
}
