/* gpu_attn_rows.cu: the row work of attn_v41. All of it is bound by memory, or at decode by latency.
 *
 * row_work (kv, index_k, compress_kv): one warp a row. A lane holds 8 elements beside each other of each 256, 16 bytes a load, so a
 * rotated pair lies in one lane and a block of the round trips in 2 or 4: nothing goes through shared memory, and a row of up to 512 is
 * read once and stays in registers. Wider rows are read twice, once for the norm's sum. Each lane works out one angle of 64 elements and
 * hands it to the lane that rotates; rows of a published layer need one sine and one cosine a lane.
 *
 * x_rows_kernel: a decode step's launches are too short to go one by one, so what follows the projections of x is one launch of unlike
 * blocks.
 *
 * head_kernel (q, index_q): all heads of a row share their angles, which a block works out once, into shared memory.
 *
 * linear_f32: one order of sums in both kernels, whatever m and n are: K in ranges of 32, each ascending with fused multiply-adds from 0,
 * the ranges' sums added in order. linear_f32_stream_kernel (m <= 16) reads W once, through cp.async; a lane has a range, a warp a
 * channel. linear_f32_tile_kernel is the usual register tile, a range a stage; the least tiles that leave no multiprocessor idle. */
#include "gpu_attn_rows.h"

#include <math.h>

#include "gpu_norm_row.h"
#include "gpu_quant.h"
#include "gpu_rope.h"

namespace LSG_NS {

/* ---- frequencies, on the host ---- */

/* The pair that turns `turns` times within original_seq_len positions. */
static double turning_pair(const ls_attn_config *config, double turns) {
  const double two_pi = 6.283185307179586;
  const double ratio = (double)config->original_seq_len / (turns * two_pi);
  return (double)config->rope_head_dim * log(ratio) / (2 * log(config->compress_rope_theta));
}

void ls_gpu_attn_freq(float *freq, const ls_attn_config *config, bool compressed) {
  const int64_t dim = config->rope_head_dim;
  ls_gpu_rope_freq(freq, dim, compressed ? config->compress_rope_theta : config->rope_theta);
  if (!compressed || config->original_seq_len <= 0) return;

  /* YaRN: fast pairs as they are, slow ones stretched by `factor`, a ramp between */
  const double low = fmax(floor(turning_pair(config, (double)config->beta_fast)), 0);
  const double high = fmin(ceil(turning_pair(config, (double)config->beta_slow)), (double)(dim - 1));
  const float first = (float)low, length = (float)fmax(high - low, 0.001), factor = (float)config->rope_factor;
  for (int64_t i = 0; i < dim / 2; i++) {
    const float ramp = fminf(fmaxf(((float)i - first) / length, 0.0f), 1.0f), fast = 1.0f - ramp;
    freq[i] = freq[i] / factor * (1.0f - fast) + freq[i] * fast;
  }
}

/* ---- 8 elements, 16 bytes ---- */

LSG_DEVICE void unit_load(float v[QUANT_UNIT], const uint16_t *from) {
  const lsg_u32x4 p = lsg_load16(from);
  const uint32_t word[4] = {p.x, p.y, p.z, p.w};
  LSG_UNROLL
  for (int i = 0; i < 4; i++) {
    v[2 * i] = lsg_act<LSG_BF16>::widen_lo(word[i]);
    v[2 * i + 1] = lsg_act<LSG_BF16>::widen_hi(word[i]);
  }
}

LSG_DEVICE lsg_u32x4 unit_pack(const float v[QUANT_UNIT]) {
  const lsg_u32x4 p = {lsg_pack_bf16(v[0], v[1]), lsg_pack_bf16(v[2], v[3]), lsg_pack_bf16(v[4], v[5]), lsg_pack_bf16(v[6], v[7])};
  return p;
}

LSG_DEVICE float round_bf16(float v) { return lsg_bf16_to_f32(lsg_f32_to_bf16(v)); }

/* (a, b) turned by the angle whose sine and cosine these are, each rounded once. */
LSG_DEVICE void rotate(float *a, float *b, float s, float c) {
  const float x = *a, y = *b;
  *a = round_bf16(x * c - y * s);
  *b = round_bf16(y * c + x * s);
}

/* ---- 3, 7, 9: norm, rotation, round trip and store of one row a warp ---- */

enum {
  ROW_WARPS = NORM_WARPS,
  ROW_THREADS = ROW_WARPS * 32,
  ROW_CHUNK = 32 * QUANT_UNIT, /* elements that a warp holds at once, a unit a lane */
  ROW_HELD = 2,                /* chunks that stay in registers */
  TURN_LANES = 8,              /* lanes that hold 64 elements: 32 angles, one a lane of the warp */
  TURN_SPAN = TURN_LANES * QUANT_UNIT,
  TURN_PARTS = 32 / TURN_LANES
};

/* Jobs have no padding: the emulator takes every 8 bytes of a struct for what may be a pointer. */
typedef struct {
  uint16_t *y, *store;   /* [rows, dim]; the ring [window, dim] or a cache, NULL: none */
  const uint16_t *x;     /* [rows, dim] */
  const float *w, *freq; /* [dim], [rope_dim / 2] */
  int64_t rows, dim, rope_dim, window;
  const ls_gpu_attn_step *step;
} row_job;

/* Whether some of the 64 elements from `begin` on are in the tail, first .. dim - 1. */
LSG_DEVICE bool row_turns(int64_t begin, int64_t first, int64_t dim) { return begin + TURN_SPAN > first && begin < dim; }

/* This lane's angle of the 64 elements from `begin` on. */
LSG_DEVICE void row_angle(float *s, float *c, int64_t begin, int64_t first, int64_t dim, const float *freq, float position) {
  const int64_t pair = begin + 2 * lsg_lane();
  *s = 0.0f, *c = 0.0f;
  if (pair >= first && pair < dim) lsg_sincos(position * freq[(pair - first) / 2], s, c);
}

/* Rotates what of this lane's elements is in the tail: part `part` of the chunk that begins at `chunk`, whose angles the lanes have. Called
 * by the whole warp. */
LSG_DEVICE void row_turn(float v[QUANT_UNIT], int64_t chunk, int part, int64_t first, float s, float c LSG_SITE) {
  LSG_UNROLL
  for (int i = 0; i < QUANT_UNIT / 2; i++) {
    const int holder = (lsg_lane() % TURN_LANES) * (QUANT_UNIT / 2) + i;
    const float sine = lsg_shfl(LSG_FULL_MASK, s, holder LSG_SITE_PASS), cosine = lsg_shfl(LSG_FULL_MASK, c, holder LSG_SITE_PASS);
    if (lsg_lane() / TURN_LANES == part && chunk + part * TURN_SPAN + 2 * holder >= first) rotate(&v[2 * i], &v[2 * i + 1], sine, cosine);
  }
}

/* chunks: of the row, 1 .. ROW_HELD; 0: any number. groups: rows are latents of the step's groups and go to a cache; else they are tokens
 * and go to the ring. y may be x: a lane writes what it alone has read. The whole warp, at the start of a kernel launched early. */
template <int chunks, bool norm, bool groups, int quant>
LSG_DEVICE void row_work(const row_job &job, float eps, int64_t row) {
  constexpr int held = chunks > 0 ? chunks : 1;
  const bool exists = row < job.rows && !(groups && row >= job.step->g);
  const int64_t dim = job.dim, count = chunks > 0 ? chunks : (dim + ROW_CHUNK - 1) / ROW_CHUNK, first = dim - job.rope_dim;
  const int64_t place = groups ? (job.step->first_row + row) * job.step->ratio : job.step->start_pos + row;
  const float position = (float)place; /* nearest-even, as layers.md has it */

  /* what no launch writes comes before the wait */
  float v[held][QUANT_UNIT], weight[held][QUANT_UNIT], sine[held][TURN_PARTS], cosine[held][TURN_PARTS];
  auto load_weight = [&](float to[QUANT_UNIT], int64_t at) {
    if constexpr (!norm) return;
    const lsg_u32x4 low = at < dim ? lsg_load16(job.w + at) : lsg_zero16(), high = at < dim ? lsg_load16(job.w + at + 4) : lsg_zero16();
    const uint32_t w[QUANT_UNIT] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
    LSG_UNROLL
    for (int e = 0; e < QUANT_UNIT; e++) to[e] = lsg_from_bits(w[e]);
  };
  LSG_UNROLL
  for (int i = 0; i < chunks; i++) {
    load_weight(weight[i], i * ROW_CHUNK + lsg_lane() * QUANT_UNIT);
    LSG_UNROLL
    for (int part = 0; part < TURN_PARTS; part++) {
      const int64_t begin = i * ROW_CHUNK + part * TURN_SPAN;
      if (row_turns(begin, first, dim)) row_angle(&sine[i][part], &cosine[i][part], begin, first, dim, job.freq, position);
    }
  }
  lsg_wait_before();
  if (!exists) return;

  const uint16_t *x = job.x + row * dim;
  uint16_t *y = job.y + row * dim, *store = NULL;
  if (job.store && groups) store = job.store + (job.step->first_row + row) * dim;
  if (job.store && !groups && row >= job.rows - job.window) store = job.store + place % job.window * dim;
  auto load = [&](float to[QUANT_UNIT], int64_t chunk) {
    const int64_t at = chunk * ROW_CHUNK + lsg_lane() * QUANT_UNIT;
    if (at < dim) {
      unit_load(to, x + at);
    } else {
      LSG_UNROLL
      for (int e = 0; e < QUANT_UNIT; e++) to[e] = 0.0f;
    }
  };
  LSG_UNROLL
  for (int i = 0; i < chunks; i++) load(v[i], i);

  float scale = 1.0f;
  if constexpr (norm) {
    float sum = 0.0f;
    LSG_UNROLL
    for (int64_t i = 0; i < count; i++) {
      float *unit = v[chunks > 0 ? i : 0];
      if constexpr (chunks == 0) load(unit, i);
      LSG_UNROLL
      for (int e = 0; e < QUANT_UNIT; e++) sum += unit[e] * unit[e];
    }
    scale = lsg_div(1.0f, lsg_sqrt(lsg_div(lsg_warp_sum(sum), (float)dim) + eps));
  }

  LSG_UNROLL
  for (int64_t i = 0; i < count; i++) {
    const int64_t at = i * ROW_CHUNK + lsg_lane() * QUANT_UNIT;
    const int64_t h = chunks > 0 ? i : 0;
    if constexpr (chunks == 0) load(v[h], i);
    if constexpr (chunks == 0) load_weight(weight[h], at);
    if (norm && at < dim) {
      LSG_UNROLL
      for (int e = 0; e < QUANT_UNIT; e++) v[h][e] = round_bf16(v[h][e] * scale * weight[h][e]);
    }
    LSG_UNROLL
    for (int part = 0; part < TURN_PARTS; part++) {
      const int64_t begin = i * ROW_CHUNK + part * TURN_SPAN;
      if (!row_turns(begin, first, dim)) continue; /* the whole warp */
      if constexpr (chunks == 0) row_angle(&sine[h][part], &cosine[h][part], begin, first, dim, job.freq, position);
      row_turn(v[h], i * ROW_CHUNK, part, first, sine[h][part], cosine[h][part]);
    }
    quant_round_trip<quant>(v[h]);
    if (at < dim) {
      const lsg_u32x4 packed = unit_pack(v[h]);
      lsg_store16(y + at, packed);
      if (store) lsg_store16(store + at, packed);
    }
  }
}

/* 7, 9: rows of the step's groups. */
template <int chunks, bool norm, int quant>
LSG_KERNEL(ROW_THREADS)
void row_kernel(row_job job, float eps) {
  lsg_let_next();
  row_work<chunks, norm, true, quant>(job, eps, lsg_block_x() * ROW_WARPS + lsg_warp());
}

template <bool norm, int quant>
static lsg_status launch_rows(const row_job &job, float eps, lsg_stream stream) {
  auto kernel = row_kernel<0, norm, quant>;
  if (job.dim <= ROW_HELD * ROW_CHUNK) kernel = row_kernel<2, norm, quant>;
  if (job.dim <= ROW_CHUNK) kernel = row_kernel<1, norm, quant>;
  return LSG_LAUNCH_EARLY(kernel, lsg_grid((job.rows + ROW_WARPS - 1) / ROW_WARPS), ROW_THREADS, 0, stream, job, eps);
}

lsg_status ls_gpu_index_k(uint16_t *index_k, uint16_t *cache, const uint16_t *proj, const float *w, float eps, const float *freq,
                          int64_t g_most, int64_t dim, int64_t rope_dim, const ls_gpu_attn_step *step, lsg_stream stream) {
  const row_job job = {index_k, cache, proj, w, freq, g_most, dim, rope_dim, 0, step};
  return launch_rows<true, QUANT_FP4>(job, eps, stream);
}

lsg_status ls_gpu_compress_kv(uint16_t *compress_kv, uint16_t *cache, const uint16_t *latent, const float *freq, int64_t g_most,
                              int64_t dim, int64_t rope_dim, const ls_gpu_attn_step *step, lsg_stream stream) {
  const row_job job = {compress_kv, cache, latent, NULL, freq, g_most, dim, rope_dim, 0, step};
  return launch_rows<false, QUANT_FP4_E4M3>(job, 0.0f, stream);
}

/* ---- 1, 3, 4, 5, 6, 8: all that follows the projections of x alone, in one launch ---- */

/* Blocks in the order of their jobs; end[i]: the block after the last of job i. */
enum { X_QR, X_LATENT, X_KV, X_IDX, X_WEIGHTS, X_JOBS };
typedef struct {
  uint16_t *y; /* [rows, n], in place */
  const float *w;
  int64_t n, held; /* norm_is_held(n) */
} norm_job;
typedef struct {
  norm_job norm[2]; /* X_QR, X_LATENT */
  row_job kv;
  int32_t *idx; /* [m, ld] */
  int64_t ld, wk;
  uint16_t *index_w; /* [weights] */
  const uint16_t *index_w_proj;
  int64_t weights, end[X_JOBS];
} x_job;

/* One block a query. */
LSG_DEVICE void window_idx_row(int32_t *idx, int64_t t, int64_t ld, int64_t wk, int64_t window, const ls_gpu_attn_step *step) {
  const int64_t position = step->start_pos + t, oldest = position - window + 1;
  for (int64_t j = lsg_thread(); j < wk; j += ROW_THREADS) {
    int64_t seen;
    if (step->start_pos == 0) {
      seen = (oldest > 0 ? oldest : 0) + j; /* a row of kv */
    } else {
      seen = (position % window + 1 + j) % window; /* a slot: the one after the newest is the oldest */
    }
    idx[t * ld + j] = seen > position ? -1 : (int32_t)seen;
  }
}

template <int chunks>
LSG_KERNEL(ROW_THREADS)
void x_rows_kernel(x_job job, float eps, float index_scale) {
  LSG_SHARED(float, warp_sum, NORM_WARPS);
  const int64_t block = lsg_block_x();
  lsg_let_next();
  if (block < job.end[X_LATENT]) { /* the whole block, here and below */
    const bool latent = block >= job.end[X_QR];
    const norm_job &norm = job.norm[latent];
    uint16_t *y = norm.y + (block - (latent ? job.end[X_QR] : 0)) * norm.n;
    if (norm.held)
      norm_row<LSG_BF16, true>(y, y, norm.w, eps, norm.n, warp_sum);
    else
      norm_row<LSG_BF16, false>(y, y, norm.w, eps, norm.n, warp_sum);
  } else if (block < job.end[X_KV]) {
    row_work<chunks, true, false, QUANT_FP8>(job.kv, eps, (block - job.end[X_LATENT]) * ROW_WARPS + lsg_warp());
  } else if (block < job.end[X_IDX]) {
    lsg_wait_before(); /* the step before may still read the list */
    window_idx_row(job.idx, block - job.end[X_KV], job.ld, job.wk, job.kv.window, job.kv.step);
  } else {
    lsg_wait_before();
    const int64_t i = (block - job.end[X_IDX]) * ROW_THREADS + lsg_thread();
    if (i < job.weights) job.index_w[i] = lsg_f32_to_bf16(lsg_bf16_to_f32(job.index_w_proj[i]) * index_scale);
  }
}

lsg_status ls_gpu_attn_x_rows(const ls_gpu_x_rows *r, float eps, float index_scale, int64_t m, const ls_gpu_attn_step *step,
                              lsg_stream stream) {
  x_job job = {{{r->qr, r->q_norm, r->q_rank, norm_is_held(r->q_rank)}, {r->latent, r->pool_norm, r->head_dim, norm_is_held(r->head_dim)}},
               {r->kv, r->ring, r->kv_proj, r->kv_norm, r->freq, r->kv ? m : 0, r->head_dim, r->rope_dim, r->window, step},
               r->idx,
               r->ld,
               r->wk,
               r->index_w,
               r->index_w_proj,
               r->index_w ? m * r->index_heads : 0,
               {0}};
  const int64_t blocks[X_JOBS] = {r->qr ? m : 0, r->latent ? r->latents : 0, (job.kv.rows + ROW_WARPS - 1) / ROW_WARPS, r->idx ? m : 0,
                                  (job.weights + ROW_THREADS - 1) / ROW_THREADS};
  for (int i = 0; i < X_JOBS; i++) job.end[i] = (i > 0 ? job.end[i - 1] : 0) + blocks[i];
  auto kernel = x_rows_kernel<0>;
  if (r->head_dim <= ROW_HELD * ROW_CHUNK) kernel = x_rows_kernel<2>;
  if (r->head_dim <= ROW_CHUNK) kernel = x_rows_kernel<1>;
  return LSG_LAUNCH_EARLY(kernel, lsg_grid(job.end[X_JOBS - 1]), ROW_THREADS, 0, stream, job, eps, index_scale);
}

/* ---- 2, 8, 12: heads of a row ---- */

enum { HEAD_THREADS = 256, HEAD_UNITS = 2 * HEAD_THREADS /* of a block, about */ };

typedef struct {
  uint16_t *y;
  const uint16_t *x; /* [m, heads * width] */
  const float *freq;
  int64_t heads, width, rope_dim;
  int64_t block_heads; /* heads of a block; block (t, i) has heads i * block_heads .. of row t */
  int64_t skipped;     /* elements at the start of each head that are left alone, a multiple of 8 */
  const ls_gpu_attn_step *step;
} head_job;

template <int quant>
LSG_DEVICE void head_work(const head_job &job, int64_t group, const float *sine, const float *cosine) {
  const int64_t t = lsg_block_x(), first_head = group * job.block_heads;
  const int64_t left = job.heads - first_head, heads = left < job.block_heads ? left : job.block_heads;
  const int64_t start = (t * job.heads + first_head) * job.width;
  const unsigned units = (unsigned)((job.width - job.skipped) / QUANT_UNIT), count = units * (unsigned)heads;
  for (unsigned base = (unsigned)lsg_warp() * 32u; base < count; base += HEAD_THREADS) { /* the whole warp: the round trip meets in it */
    const unsigned unit = base + (unsigned)lsg_lane();
    const bool exists = unit < count;
    const int64_t at = job.skipped + (int64_t)(unit % units) * QUANT_UNIT, place = start + (int64_t)(unit / units) * job.width + at;
    float v[QUANT_UNIT] = {0};
    if (exists) {
      unit_load(v, job.x + place);
      const int64_t pair = (at - (job.width - job.rope_dim)) / 2; /* of the first element; negative before the tail */
      LSG_UNROLL
      for (int i = 0; i < QUANT_UNIT / 2; i++) {
        if (at + 2 * i >= job.width - job.rope_dim) rotate(&v[2 * i], &v[2 * i + 1], sine[pair + i], cosine[pair + i]);
      }
    }
    quant_round_trip<quant>(v);
    if (exists) lsg_store16(job.y + place, unit_pack(v));
  }
}

/* Grid: rows, groups of heads; the first `groups` of them are those of q, the others those of index_q. Both turn by the same angles. */
LSG_KERNEL(HEAD_THREADS)
void head_kernel(head_job q, head_job index_q, int64_t groups, bool inverse) {
  LSG_DYNAMIC_SHARED(float, sine); /* [rope_dim / 2], then as many cosines */
  const int64_t group = lsg_block_y(), half = q.rope_dim / 2;
  float *cosine = sine + half;
  lsg_let_next();
  for (int64_t i = lsg_thread(); i < half; i += HEAD_THREADS) {
    float s, c;
    lsg_sincos((float)(q.step->start_pos + lsg_block_x()) * q.freq[i], &s, &c);
    sine[i] = inverse ? -s : s;
    cosine[i] = c;
  }
  lsg_wait_before();
  lsg_barrier();
  if (group < groups)
    head_work<QUANT_NONE>(q, group, sine, cosine);
  else
    head_work<QUANT_FP4>(index_q, group - groups, sine, cosine);
}

static int64_t head_groups(head_job *job) {
  const int64_t units = (job->width - job->skipped) / QUANT_UNIT;
  job->block_heads = units < HEAD_UNITS ? HEAD_UNITS / units : 1;
  return (job->heads + job->block_heads - 1) / job->block_heads;
}

static head_job rope_job(uint16_t *y, const uint16_t *x, const float *freq, int64_t heads, int64_t width, int64_t rope_dim,
                         const ls_gpu_attn_step *step) {
  const int64_t skipped = y == x ? (width - rope_dim) / QUANT_UNIT * QUANT_UNIT : 0; /* in place the rest is where it belongs */
  const head_job job = {y, x, freq, heads, width, rope_dim, 0, skipped, step};
  return job;
}

/* Jobs without heads are left out. */
static lsg_status launch_heads(head_job q, head_job index_q, bool inverse, int64_t m, lsg_stream stream) {
  const int64_t groups = q.heads > 0 ? head_groups(&q) : 0, others = index_q.heads > 0 ? head_groups(&index_q) : 0;
  const size_t table = (size_t)q.rope_dim * sizeof(float);
  return LSG_LAUNCH_EARLY(head_kernel, lsg_grid(m, groups + others), HEAD_THREADS, table, stream, q, index_q, groups, inverse);
}

lsg_status ls_gpu_rope_heads(uint16_t *y, const uint16_t *x, const float *freq, int64_t m, int64_t heads, int64_t width, int64_t rope_dim,
                             bool inverse, const ls_gpu_attn_step *step, lsg_stream stream) {
  const head_job job = rope_job(y, x, freq, heads, width, rope_dim, step);
  head_job none = job;
  none.heads = 0;
  return launch_heads(job, none, inverse, m, stream);
}

lsg_status ls_gpu_attn_queries(uint16_t *q, int64_t heads, int64_t width, uint16_t *index_q, const uint16_t *index_q_proj,
                               int64_t index_heads, int64_t index_width, const float *freq, int64_t m, int64_t rope_dim,
                               const ls_gpu_attn_step *step, lsg_stream stream) {
  const head_job job = rope_job(q, q, freq, heads, width, rope_dim, step);
  const head_job index_job = {index_q, index_q_proj, freq, index_heads, index_width, rope_dim, 0, 0, step};
  return launch_heads(job, index_job, false, m, stream);
}

/* ---- copies ---- */

enum { COPY_THREADS = 256 };

static int64_t copy_blocks(int64_t count) { return (count + COPY_THREADS - 1) / COPY_THREADS; }

LSG_DEVICE int64_t copy_index() { return lsg_block_x() * COPY_THREADS + lsg_thread(); }

LSG_KERNEL(COPY_THREADS)
void window_store_kernel(uint16_t *ring, const uint16_t *kv, int64_t m, int64_t dim, int64_t window, const ls_gpu_attn_step *step) {
  const int64_t kept = m < window ? m : window, units = dim / QUANT_UNIT, i = copy_index();
  if (i >= kept * units) return;
  const int64_t t = m - kept + i / units, at = i % units * QUANT_UNIT;
  lsg_store16(ring + (step->start_pos + t) % window * dim + at, lsg_load16(kv + t * dim + at));
}

lsg_status ls_gpu_window_store(uint16_t *ring, const uint16_t *kv, int64_t m, int64_t dim, int64_t window, const ls_gpu_attn_step *step,
                               lsg_stream stream) {
  const int64_t kept = m < window ? m : window;
  return LSG_LAUNCH(window_store_kernel, lsg_grid(copy_blocks(kept * (dim / QUANT_UNIT))), COPY_THREADS, 0, stream, ring, kv, m, dim,
                    window, step);
}

LSG_KERNEL(COPY_THREADS)
void cache_store_kernel(uint16_t *cache, const uint16_t *rows, int64_t g_most, int64_t dim, const ls_gpu_attn_step *step) {
  const int64_t g = step->g < g_most ? step->g : g_most, units = dim / QUANT_UNIT, i = copy_index();
  if (i >= g * units) return;
  lsg_store16(cache + step->first_row * dim + i * QUANT_UNIT, lsg_load16(rows + i * QUANT_UNIT));
}

lsg_status ls_gpu_cache_store(uint16_t *cache, const uint16_t *rows, int64_t g_most, int64_t dim, const ls_gpu_attn_step *step,
                              lsg_stream stream) {
  return LSG_LAUNCH(cache_store_kernel, lsg_grid(copy_blocks(g_most * (dim / QUANT_UNIT))), COPY_THREADS, 0, stream, cache, rows, g_most,
                    dim, step);
}

/* ---- 6: pooling ---- */

enum { POOL_THREADS = 128 };

typedef struct {
  uint16_t *latent_pool;
  float *kv_state, *score_state;
  const float *kv32, *score32;
  int64_t m, dim, ratio;
  const ls_gpu_attn_step *step;
} pool_job;

/* Block (j, i): POOL_THREADS channels of group j. Token i of a group is a row of the step, or waits in slot i since an earlier one. The
 * thread that may read a channel's slots, that of group 0, is the one that writes them, after. ratio: that of the job where it is known,
 * which keeps a group in registers; 0: any. */
template <int ratio>
LSG_KERNEL(POOL_THREADS)
void pool_kernel(pool_job job) {
  const int64_t c = lsg_block_y() * POOL_THREADS + lsg_thread(), j = lsg_block_x(), dim = job.dim, r = ratio > 0 ? ratio : job.ratio;
  const int64_t start = job.step->start_pos, g = job.step->g, first_group = job.step->first_row;
  if (c >= dim) return;

  if (j < g) {
    const int64_t first = (first_group + j) * r - start; /* row of the group's first token; negative: before the step */
    auto score = [&](int64_t i) { return first + i < 0 ? job.score_state[i * dim + c] : job.score32[(first + i) * dim + c]; };
    auto value = [&](int64_t i) { return first + i < 0 ? job.kv_state[i * dim + c] : job.kv32[(first + i) * dim + c]; };
    float y = 0.0f;
    if constexpr (ratio > 0) {
      float s[ratio], v[ratio], most = -INFINITY, sum = 0.0f;
      LSG_UNROLL
      for (int i = 0; i < ratio; i++) s[i] = score(i), v[i] = value(i);
      LSG_UNROLL
      for (int i = 0; i < ratio; i++) most = lsg_fmax_nan(most, s[i]);
      LSG_UNROLL
      for (int i = 0; i < ratio; i++) s[i] = lsg_exp(s[i] - most), sum += s[i];
      LSG_UNROLL
      for (int i = 0; i < ratio; i++) y += lsg_div(s[i], sum) * v[i];
    } else {
      float most = -INFINITY, sum = 0.0f;
      for (int64_t i = 0; i < r; i++) most = lsg_fmax_nan(most, score(i));
      for (int64_t i = 0; i < r; i++) sum += lsg_exp(score(i) - most);
      for (int64_t i = 0; i < r; i++) y += lsg_div(lsg_exp(score(i) - most), sum) * value(i);
    }
    job.latent_pool[j * dim + c] = lsg_f32_to_bf16(y);
  }

  if (j > 0) return;
  const int64_t slot = start % r, begun = slot == 0 ? 0 : r - slot, closed = (first_group + g) * r - start;
  for (int64_t t = 0; t < begun && t < job.m; t++) { /* tokens of a group that began before the step */
    job.kv_state[(slot + t) * dim + c] = job.kv32[t * dim + c];
    job.score_state[(slot + t) * dim + c] = job.score32[t * dim + c];
  }
  for (int64_t t = closed > 0 ? closed : 0; t < job.m; t++) { /* tokens of a group that stays open */
    job.kv_state[(start + t) % r * dim + c] = job.kv32[t * dim + c];
    job.score_state[(start + t) % r * dim + c] = job.score32[t * dim + c];
  }
}

lsg_status ls_gpu_pool(uint16_t *latent_pool, float *kv_state, float *score_state, const float *kv32, const float *score32, int64_t m,
                       int64_t dim, int64_t ratio, const ls_gpu_attn_step *step, lsg_stream stream) {
  const pool_job job = {latent_pool, kv_state, score_state, kv32, score32, m, dim, ratio, step};
  const int64_t groups = m / ratio > 1 ? m / ratio : 1;
  auto kernel = ratio == 2 ? pool_kernel<2> : pool_kernel<0>;
  return LSG_LAUNCH(kernel, lsg_grid(groups, (dim + POOL_THREADS - 1) / POOL_THREADS), POOL_THREADS, 0, stream, job);
}

/* ---- 6: y = x . W^T with float32 weights ---- */

enum { F32_RANGE = 32 }; /* of K: summed on its own, then added to what the ranges before it gave */

/* 16 bytes of a row of k elements, from element `at` on, into shared memory, zeros past the row's end and where there is no row. vector: k
 * is a multiple of 8 and rows are 16-byte aligned. */
template <bool vector, class T>
LSG_DEVICE void piece_load(T *to, const T *from, int64_t row, bool exists, int64_t at, int64_t k) {
  enum { ELEMENTS = 16 / (int)sizeof(T) };
  const int64_t left = exists && at < k ? k - at : 0;
  const T *source = left > 0 ? from + row * k + at : from;
  if constexpr (vector) {
    lsg_cp_async16(to, source, left >= ELEMENTS ? 16 : (int)left * (int)sizeof(T));
  } else {
    for (int e = 0; e < ELEMENTS; e++) to[e] = e < left ? source[e] : (T)0;
  }
}

/* sum + x[0..7] . w[0..7], ascending */
LSG_DEVICE float fma8(float sum, const lsg_u32x4 &x, const lsg_u32x4 &w_low, const lsg_u32x4 &w_high) {
  sum = lsg_fma(lsg_from_bits(x.x << 16), lsg_from_bits(w_low.x), sum);
  sum = lsg_fma(lsg_from_bits(x.x & 0xFFFF0000u), lsg_from_bits(w_low.y), sum);
  sum = lsg_fma(lsg_from_bits(x.y << 16), lsg_from_bits(w_low.z), sum);
  sum = lsg_fma(lsg_from_bits(x.y & 0xFFFF0000u), lsg_from_bits(w_low.w), sum);
  sum = lsg_fma(lsg_from_bits(x.z << 16), lsg_from_bits(w_high.x), sum);
  sum = lsg_fma(lsg_from_bits(x.z & 0xFFFF0000u), lsg_from_bits(w_high.y), sum);
  sum = lsg_fma(lsg_from_bits(x.w << 16), lsg_from_bits(w_high.z), sum);
  return lsg_fma(lsg_from_bits(x.w & 0xFFFF0000u), lsg_from_bits(w_high.w), sum);
}

enum {
  F32_STREAM_ROWS = 16,
  F32_STREAM_CHANNELS = 4, /* of a block, a warp each */
  F32_STREAM_THREADS = F32_STREAM_CHANNELS * 32,
  F32_STREAM_K = 32 * F32_RANGE, /* of a stage, a range a lane */
  F32_STREAM_STAGES = 3,
  F32_STREAM_W = F32_STREAM_CHANNELS * F32_STREAM_K /* floats of a stage */
};

static size_t f32_stream_bytes(int rows) {
  return (size_t)F32_STREAM_STAGES * (F32_STREAM_W * sizeof(float) + (size_t)rows * F32_STREAM_K * sizeof(uint16_t));
}

/* Where 16-byte piece p of a lane's range stands in a row of a stage: eight lanes beside each other that read the same piece of their
 * ranges find them in eight different bank groups. W: 8 pieces a range, x: 4. */
LSG_DEVICE int w_piece(int range, int p) { return (range * 8 + (p ^ (range & 7))) * 4; }
LSG_DEVICE int x_piece(int range, int p) { return (range * 4 + (p ^ (range >> 1 & 3))) * 8; }

/* rows: at least m. */
template <int rows, bool vector>
LSG_KERNEL(F32_STREAM_THREADS)
void linear_f32_stream_kernel(float *y, const uint16_t *x, const float *w, int64_t m, int64_t n, int64_t k) {
  LSG_DYNAMIC_SHARED(float, w_stages);
  LSG_SHARED(float, partial, F32_STREAM_CHANNELS *rows * 33); /* 33: the lanes that sum up, one a row, hit no bank twice */
  uint16_t *x_stages = (uint16_t *)(w_stages + F32_STREAM_STAGES * F32_STREAM_W);
  const int64_t first = lsg_block_x() * F32_STREAM_CHANNELS;
  const int lane = lsg_lane();

  auto load = [&](int64_t stage) {
    float *w_to = w_stages + stage % F32_STREAM_STAGES * F32_STREAM_W;
    uint16_t *x_to = x_stages + stage % F32_STREAM_STAGES * (rows * F32_STREAM_K);
    const int64_t from = stage * F32_STREAM_K;
    for (int channel = 0; channel < F32_STREAM_CHANNELS; channel++) {
      LSG_UNROLL
      for (int p = lsg_thread(); p < F32_STREAM_K / 4; p += F32_STREAM_THREADS)
        piece_load<vector>(w_to + channel * F32_STREAM_K + w_piece(p / 8, p % 8), w, first + channel, first + channel < n, from + p * 4, k);
    }
    for (int row = 0; row < rows; row++) {
      const int p = lsg_thread();
      piece_load<vector>(x_to + row * F32_STREAM_K + x_piece(p / 4, p % 4), x, row, row < m, from + p * 8, k);
    }
  };

  const int64_t stages = (k + F32_STREAM_K - 1) / F32_STREAM_K;
  for (int64_t stage = 0; stage < F32_STREAM_STAGES - 1; stage++) {
    if (stage < stages) load(stage);
    lsg_cp_async_commit();
  }
  float total = 0.0f; /* of row `lane` */
  float *sums = partial + lsg_warp() * rows * 33;
  for (int64_t stage = 0; stage < stages; stage++) {
    lsg_cp_async_wait<F32_STREAM_STAGES - 2>();
    lsg_barrier(); /* this stage is there for all, and the one before is read by all */
    if (stage + F32_STREAM_STAGES - 1 < stages) load(stage + F32_STREAM_STAGES - 1);
    lsg_cp_async_commit();

    const float *ws = w_stages + stage % F32_STREAM_STAGES * F32_STREAM_W + lsg_warp() * F32_STREAM_K;
    const uint16_t *xs = x_stages + stage % F32_STREAM_STAGES * (rows * F32_STREAM_K);
    float sum[rows];
    LSG_UNROLL
    for (int row = 0; row < rows; row++) sum[row] = 0.0f;
    LSG_UNROLL
    for (int p = 0; p < F32_RANGE / 8; p++) {
      const lsg_u32x4 low = lsg_load16(ws + w_piece(lane, 2 * p)), high = lsg_load16(ws + w_piece(lane, 2 * p + 1));
      LSG_UNROLL
      for (int row = 0; row < rows; row++) sum[row] = fma8(sum[row], lsg_load16(xs + row * F32_STREAM_K + x_piece(lane, p)), low, high);
    }
    LSG_UNROLL
    for (int row = 0; row < rows; row++) sums[row * 33 + lane] = sum[row];
    lsg_warp_sync(LSG_FULL_MASK);
    if (lane < rows) {
      for (int range = 0; range < 32; range++) total += sums[lane * 33 + range];
    }
    lsg_warp_sync(LSG_FULL_MASK);
  }
  if (lane < rows && lane < m && first + lsg_warp() < n) y[lane * n + first + lsg_warp()] = total;
}

enum { F32_TILE_SIDE = 16, F32_TILE_THREADS = F32_TILE_SIDE * F32_TILE_SIDE, F32_W_LD = F32_RANGE + 4, F32_X_LD = F32_RANGE + 8 };

/* 2 stages of (16 side)^2 outputs. The leading dimensions are odd numbers of 16 bytes: rows beside each other lie in different banks. */
static size_t f32_tile_bytes(int side) {
  return (size_t)2 * F32_TILE_SIDE * (size_t)side * (F32_W_LD * sizeof(float) + F32_X_LD * sizeof(uint16_t));
}

/* Thread (i, j) of 16 x 16 has rows i + 16 a and channels j + 16 b, a, b < side. */
template <int side, bool vector>
LSG_KERNEL(F32_TILE_THREADS)
void linear_f32_tile_kernel(float *y, const uint16_t *x, const float *w, int64_t m, int64_t n, int64_t k) {
  enum { EDGE = F32_TILE_SIDE * side, W_STAGE = EDGE * F32_W_LD, X_STAGE = EDGE * F32_X_LD };
  LSG_DYNAMIC_SHARED(float, w_stages);
  uint16_t *x_stages = (uint16_t *)(w_stages + 2 * W_STAGE);
  const int64_t first_channel = lsg_block_x() * EDGE, first_row = lsg_block_y() * EDGE;
  const int channel = lsg_thread() % F32_TILE_SIDE, row = lsg_thread() / F32_TILE_SIDE;

  auto load = [&](int stage, int64_t from) {
    for (int piece = lsg_thread(); piece < EDGE * 8; piece += F32_TILE_THREADS) {
      const int64_t c = first_channel + piece / 8;
      piece_load<vector>(w_stages + stage * W_STAGE + piece / 8 * F32_W_LD + piece % 8 * 4, w, c, c < n, from + piece % 8 * 4, k);
    }
    for (int piece = lsg_thread(); piece < EDGE * 4; piece += F32_TILE_THREADS) {
      const int64_t t = first_row + piece / 4;
      piece_load<vector>(x_stages + stage * X_STAGE + piece / 4 * F32_X_LD + piece % 4 * 8, x, t, t < m, from + piece % 4 * 8, k);
    }
  };

  float total[side][side], sum[side][side];
  LSG_UNROLL
  for (int a = 0; a < side; a++) {
    LSG_UNROLL
    for (int b = 0; b < side; b++) total[a][b] = 0.0f;
  }
  load(0, 0);
  lsg_cp_async_commit();
  int stage = 0;
  for (int64_t from = 0; from < k; from += F32_RANGE, stage ^= 1) {
    if (from + F32_RANGE < k) load(stage ^ 1, from + F32_RANGE);
    lsg_cp_async_commit(); /* an empty group at the end, so that "all but the newest" always means this stage */
    lsg_cp_async_wait<1>();
    lsg_barrier();
    const float *ws = w_stages + stage * W_STAGE + channel * F32_W_LD;
    const uint16_t *xs = x_stages + stage * X_STAGE + row * F32_X_LD;
    LSG_UNROLL
    for (int a = 0; a < side; a++) {
      LSG_UNROLL
      for (int b = 0; b < side; b++) sum[a][b] = 0.0f;
    }
    LSG_UNROLL
    for (int p = 0; p < F32_RANGE / 8; p++) {
      lsg_u32x4 xv[side];
      LSG_UNROLL
      for (int a = 0; a < side; a++) xv[a] = lsg_load16(xs + a * F32_TILE_SIDE * F32_X_LD + p * 8);
      LSG_UNROLL
      for (int b = 0; b < side; b++) {
        const float *from_w = ws + b * F32_TILE_SIDE * F32_W_LD + p * 8;
        const lsg_u32x4 low = lsg_load16(from_w), high = lsg_load16(from_w + 4);
        LSG_UNROLL
        for (int a = 0; a < side; a++) sum[a][b] = fma8(sum[a][b], xv[a], low, high);
      }
    }
    LSG_UNROLL
    for (int a = 0; a < side; a++) {
      LSG_UNROLL
      for (int b = 0; b < side; b++) total[a][b] += sum[a][b];
    }
    lsg_barrier(); /* before the next turn overwrites this stage */
  }

  LSG_UNROLL
  for (int a = 0; a < side; a++) {
    LSG_UNROLL
    for (int b = 0; b < side; b++) {
      const int64_t t = first_row + row + a * F32_TILE_SIDE, c = first_channel + channel + b * F32_TILE_SIDE;
      if (t < m && c < n) y[t * n + c] = total[a][b];
    }
  }
}

template <bool vector>
static lsg_status launch_linear_f32(float *y, const uint16_t *x, const float *w, int64_t m, int64_t n, int64_t k, lsg_stream stream) {
  if (m <= F32_STREAM_ROWS) {
    auto kernel = m == 1 ? linear_f32_stream_kernel<1, vector>
                         : (m <= 4 ? linear_f32_stream_kernel<4, vector> : linear_f32_stream_kernel<F32_STREAM_ROWS, vector>);
    const int rows = m == 1 ? 1 : (m <= 4 ? 4 : F32_STREAM_ROWS);
    return LSG_LAUNCH(kernel, lsg_grid((n + F32_STREAM_CHANNELS - 1) / F32_STREAM_CHANNELS), F32_STREAM_THREADS, f32_stream_bytes(rows),
                      stream, y, x, w, m, n, k);
  }
  enum { ENOUGH_BLOCKS = 96 };
  auto tiles = [](int64_t count, int side) { return (count + F32_TILE_SIDE * side - 1) / (F32_TILE_SIDE * side); };
  int side = 8;
  while (side > 2 && tiles(m, side) * tiles(n, side) < ENOUGH_BLOCKS) side /= 2;
  auto kernel =
      side == 8 ? linear_f32_tile_kernel<8, vector> : (side == 4 ? linear_f32_tile_kernel<4, vector> : linear_f32_tile_kernel<2, vector>);
  return LSG_LAUNCH(kernel, lsg_grid(tiles(n, side), tiles(m, side)), F32_TILE_THREADS, f32_tile_bytes(side), stream, y, x, w, m, n, k);
}

lsg_status ls_gpu_linear_f32(float *y, const uint16_t *x, const float *w, int64_t m, int64_t n, int64_t k, lsg_stream stream) {
  return k % 8 == 0 ? launch_linear_f32<true>(y, x, w, m, n, k, stream) : launch_linear_f32<false>(y, x, w, m, n, k, stream);
}

}  // namespace LSG_NS
