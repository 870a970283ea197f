/* gpu_sparse_attn.cu: one block works on one query, a group of its heads and a range of its entries. The rows that the entries name are
 * gathered, a tile at a time, by 16-byte cp.async into shared memory while the tile before is worked on, and serve twice: as the B operand
 * of S = Q . K^T as they lie, and through transposing loads as that of O = P . V. No gathered row is ever written back.
 *
 * Two shapes of one kernel. wide: 64 heads x 64 rows, eight warps, one block on a multiprocessor: each row is fetched once for 64 heads,
 * and 64 x 512 sums fill half of the register file. narrow: 16 heads x 32 rows, four warps, for few queries or few heads: heads and
 * entries are spread over more blocks, whose unnormalised results a second kernel combines.
 *
 * S of a tile is small beside the depth of its sums, so the depth is dealt to K_PARTS warps, step by step in turn; each then gets the other
 * warps' share of the columns that it owns and adds the parts in the order of the parts: a score depends on query and row alone. Maxima and
 * rescalings go through shared memory, probabilities too (they are the A operand of P . V for all warps). Sums over P . V lie with warps by
 * columns of the rows: 16 columns in turn. A warp's columns are the same for all heads, so no V is fetched twice.
 *
 * Infinite and NaN scores: the maximum hands on a NaN, so every probability is NaN; masked entries score -inf, and while a maximum is
 * -inf, 0 is subtracted instead, so that nothing becomes NaN that was not. */
#include "gpu_sparse_attn.h"

#include <math.h>

namespace LSG_NS {

enum {
  SPARSE_MOST_DIM = 512,
  SPARSE_MOST_PARTS = 64,    /* parts of a query's entries */
  SPARSE_LEAST_ENTRIES = 16, /* of a part: one step of P . V */
  SPARSE_PREFILL = 64,       /* queries from which on there is enough to do without parts */
  SPARSE_FILL = 132          /* blocks that fill the device */
};

template <bool wide>
struct sparse_shape {
  enum {
    WARPS = wide ? 8 : 4,
    THREADS = WARPS * 32,
    HEADS = wide ? 64 : 16,
    ROWS = wide ? 64 : 32,     /* of a tile */
    WARP_ROWS = ROWS / WARPS,  /* that a warp fetches: 8, as many as columns of an mma */
    M_TILES = HEADS / 16,      /* of all heads */
    S_M = wide ? 2 : 1,        /* a warp's part of S: S_M x 16 heads */
    S_N = 4,                   /* by S_N x 8 rows */
    N_GROUPS = ROWS / 8 / S_N, /* warps beside each other along the rows */
    M_GROUPS = M_TILES / S_M,  /* and along the heads */
    K_PARTS = WARPS / N_GROUPS / M_GROUPS,
    OWN = S_N / K_PARTS,                  /* x 8 rows whose scores a warp ends up with */
    COLUMN_GROUPS = N_GROUPS * K_PARTS,   /* warps that share the rows of a head */
    PAIRS = SPARSE_MOST_DIM / 16 / WARPS, /* x 16 columns of O that a warp sums, at most */
    P_LD = ROWS + 8,                      /* + 8 elements, here and for rows: eight rows of an ldmatrix lie in eight bank groups */
    EXCHANGED = S_M * OWN * 32            /* 16-byte fragments from one warp to another */
  };
};

/* What both kernels need to know. partial [m, parts, heads, dim], of each 16 columns in the order of the sums' fragments: 0 1 8 9, 2 3 10
 * 11,
 * ..., a lane's four together. part_stats [m, parts, heads, 2]: maximum and denominator. */
typedef struct {
  uint16_t *sparse_o, *o_rot;
  const uint16_t *q, *rows_a;
  const int32_t *idx;
  const float *sink, *freq;
  float *partial, *part_stats;
  const ls_gpu_attn_step *step;
  int64_t m, heads, dim, rope_dim, ld, width, parts, entries; /* entries: of a part */
  float scale;
} sparse_args;

/* A part that names no row has this denominator, a maximum of -inf, and thereby the weight 0. */
#define SPARSE_NOTHING -1.0f

/* What a head's sums are multiplied by. A maximum of -inf though rows are named: NaN, as exp(-inf + inf). */
LSG_DEVICE float sparse_inverse(float maximum, float denominator, float sink, bool names_a_row) {
  if (!names_a_row) return 0.0f;
  if (maximum == -INFINITY) return NAN;
  return lsg_div(1.0f, denominator + lsg_exp(sink - maximum));
}

/* What is subtracted from scores. */
LSG_DEVICE float sparse_shift(float maximum) { return maximum == -INFINITY ? 0.0f : maximum; }

/* Turns a pair of bf16 values back by the angle whose cosine and sine these are. */
LSG_DEVICE uint32_t turn_back(uint32_t pair, float cosine, float sine) {
  const float a = lsg_act<LSG_BF16>::widen_lo(pair), b = lsg_act<LSG_BF16>::widen_hi(pair);
  return lsg_pack_bf16(a * cosine + b * sine, b * cosine - a * sine);
}

LSG_DEVICE lsg_u32x4 fragment_bits(const float v[4]) {
  lsg_u32x4 bits = {lsg_bits(v[0]), lsg_bits(v[1]), lsg_bits(v[2]), lsg_bits(v[3])};
  return bits;
}

/* fixed_dim: dim where it is known when compiled, else 0. grid: m, groups of heads, parts. */
template <bool wide, int fixed_dim>
LSG_KERNEL(sparse_shape<wide>::THREADS)
void sparse_attn_kernel(sparse_args a) {
  using S = sparse_shape<wide>;
  LSG_DYNAMIC_SHARED(uint16_t, shared);
  LSG_SHARED(float, column_value, S::COLUMN_GROUPS *S::HEADS); /* a maximum or a sum over the columns of each group */
  LSG_SHARED(float, head_value, S::HEADS);                     /* a factor of each head */
  LSG_SHARED(float, maximum, S::HEADS);
  LSG_SHARED(uint32_t, named, 2 * S::WARPS); /* of each stage: which of a warp's rows are named by an entry */
  LSG_SHARED(float, cosine, SPARSE_MOST_DIM / 2);
  LSG_SHARED(float, sine, SPARSE_MOST_DIM / 2);

  const int dim = fixed_dim > 0 ? fixed_dim : (int)a.dim, ld = dim + 8, pieces = dim / 8;
  uint16_t *query = shared;                                                    /* [HEADS, ld] */
  uint16_t *rows = query + S::HEADS * ld;                                      /* [2, ROWS, ld] */
  uint16_t *p = rows + 2 * S::ROWS * ld;                                       /* [HEADS, P_LD] */
  lsg_u32x4 *exchange = reinterpret_cast<lsg_u32x4 *>(p + S::HEADS * S::P_LD); /* [WARPS, K_PARTS - 1, EXCHANGED] */

  const int lane = lsg_lane(), warp = lsg_warp(), g = lane >> 2, quad = lane & 3;
  const int k_part = warp % S::K_PARTS, column_group = warp % S::COLUMN_GROUPS;
  const int n_group = column_group / S::K_PARTS, m_group = warp / S::COLUMN_GROUPS;
  /* ldmatrix: lanes 8i .. 8i+7 name the rows of 8x8 matrix i. a_at: (0, 0), (8, 0), (0, 8), (8, 8): A as it lies, B transposed;
   * b_at: (0, 0), (0, 8), (8, 0), (8, 8): B as it lies. */
  const int a_row = (lane & 7) + ((lane >> 3) & 1) * 8, a_column = (lane >> 4) * 8;
  const int b_row = (lane & 7) + (lane >> 4) * 8, b_column = ((lane >> 3) & 1) * 8;

  const int64_t t = lsg_block_x(), first_head = lsg_block_y() * S::HEADS;
  const int64_t from = lsg_block_z() * a.entries, to = from + a.entries < a.width ? from + a.entries : a.width;
  const int tiles = (int)((to - from + S::ROWS - 1) / S::ROWS);
  const int32_t *entries = a.idx + t * a.ld;
  const uint16_t *rows_b = a.step->compress_cache;
  const int64_t n_rows_a = a.step->rows_a;

  /* The entry of this warp's row `lane` of a tile; -1 where there is none. */
  auto entry = [&](int tile) -> int {
    const int64_t at = from + (int64_t)tile * S::ROWS + warp * S::WARP_ROWS + lane;
    return lane < S::WARP_ROWS && at < to ? entries[at] : -1;
  };
  auto gather = [&](int stage, int mine) {
    const unsigned bits = lsg_ballot(LSG_FULL_MASK, mine >= 0);
    if (lane == 0) named[stage * S::WARPS + warp] = bits;
    uint16_t *into = rows + (stage * S::ROWS + warp * S::WARP_ROWS) * ld;
    LSG_UNROLL
    for (int r = 0; r < S::WARP_ROWS; r++) {
      const int i = lsg_shfl(LSG_FULL_MASK, mine, r);
      const uint16_t *row = i < n_rows_a ? a.rows_a + (int64_t)i * dim : rows_b + (i - n_rows_a) * dim;
      if (i < 0) row = a.q; /* not read: no bytes of it are wanted */
      for (int piece = lane; piece < pieces; piece += 32) lsg_cp_async16(into + r * ld + piece * 8, row + piece * 8, i < 0 ? 0 : 16);
    }
  };

  int next = entry(0);
  for (int i = lsg_thread(); i < S::HEADS * pieces; i += S::THREADS) {
    const int head = i / pieces, piece = i % pieces;
    const bool exists = first_head + head < a.heads;
    const uint16_t *source = exists ? a.q + (t * a.heads + first_head + head) * dim + piece * 8 : a.q;
    lsg_cp_async16(query + head * ld + piece * 8, source, exists ? 16 : 0);
  }
  gather(0, next);
  lsg_cp_async_commit();
  next = entry(1);
  if (a.parts == 1 && a.o_rot) {
    const float position = (float)(a.step->start_pos + t); /* nearest-even: above 2^24 several positions share an angle */
    for (int i = lsg_thread(); i < a.rope_dim / 2; i += S::THREADS) lsg_sincos(position * a.freq[i], &sine[i], &cosine[i]);
  }

  float o[S::M_TILES][S::PAIRS][2][4], largest[S::S_M][2], sum[S::S_M][2];
  LSG_UNROLL
  for (int i = 0; i < S::M_TILES; i++) {
    LSG_UNROLL
    for (int pair = 0; pair < S::PAIRS; pair++) {
      LSG_UNROLL
      for (int e = 0; e < 8; e++) o[i][pair][e >> 2][e & 3] = 0.0f;
    }
  }
  LSG_UNROLL
  for (int i = 0; i < S::S_M * 2; i++) largest[i >> 1][i & 1] = -INFINITY, sum[i >> 1][i & 1] = 0.0f;
  bool names_a_row = false;

  for (int tile = 0; tile < tiles; tile++) {
    const int stage = tile & 1;
    lsg_cp_async_wait<0>();
    lsg_barrier(); /* this tile is there, and nobody reads the one before any more */
    if (tile + 1 < tiles) {
      gather(stage ^ 1, next);
      lsg_cp_async_commit();
      next = entry(tile + 2);
    }
    const uint32_t *named_here = named + stage * S::WARPS;
    if (!lsg_any(LSG_FULL_MASK, named_here[lane % S::WARPS] != 0)) continue; /* all threads alike */
    names_a_row = true;

    /* S, this warp's share of the depth */
    float part[S::S_M][S::S_N][4];
    LSG_UNROLL
    for (int i = 0; i < S::S_M * S::S_N * 4; i++) part[i / 4 / S::S_N][i / 4 % S::S_N][i % 4] = 0.0f;
    const uint16_t *row_tile = rows + stage * S::ROWS * ld;
    const uint16_t *q_at = query + (m_group * S::S_M * 16 + a_row) * ld + a_column;
    const uint16_t *k_at = row_tile + (n_group * S::S_N * 8 + b_row) * ld + b_column;
    LSG_UNROLL
    for (int step = 0; step < (SPARSE_MOST_DIM / 16 + S::K_PARTS - 1) / S::K_PARTS; step++) {
      const int k = (step * S::K_PARTS + k_part) * 16;
      if (k >= dim) break;
      uint32_t qf[S::S_M][4], kf[S::S_N / 2][4];
      LSG_UNROLL
      for (int i = 0; i < S::S_M; i++) lsg_ldmatrix_x4(qf[i], q_at + i * 16 * ld + k);
      LSG_UNROLL
      for (int j = 0; j < S::S_N / 2; j++) lsg_ldmatrix_x4(kf[j], k_at + j * 16 * ld + k);
      LSG_UNROLL
      for (int i = 0; i < S::S_M; i++) {
        LSG_UNROLL
        for (int j = 0; j < S::S_N; j++) lsg_mma_bf16(part[i][j], qf[i], kf[j >> 1] + (j & 1) * 2);
      }
    }

    /* each warp hands the others what they own; the parts are added in their order */
    LSG_UNROLL
    for (int owner = 0; owner < S::K_PARTS; owner++) {
      if (owner == k_part) continue;
      lsg_u32x4 *there =
          exchange + ((warp - k_part + owner) * (S::K_PARTS - 1) + (k_part < owner ? k_part : k_part - 1)) * S::EXCHANGED + lane;
      LSG_UNROLL
      for (int i = 0; i < S::S_M; i++) {
        LSG_UNROLL
        for (int j = 0; j < S::OWN; j++) lsg_store16(there + (i * S::OWN + j) * 32, fragment_bits(part[i][owner * S::OWN + j]));
      }
    }
    lsg_barrier();
    float score[S::S_M][S::OWN][4];
    LSG_UNROLL
    for (int k = 0; k < S::K_PARTS; k++) {
      const lsg_u32x4 *here = exchange + (warp * (S::K_PARTS - 1) + (k < k_part ? k : k - 1)) * S::EXCHANGED + lane;
      LSG_UNROLL
      for (int i = 0; i < S::S_M; i++) {
        LSG_UNROLL
        for (int j = 0; j < S::OWN; j++) {
          lsg_u32x4 bits = k == k_part ? fragment_bits(part[i][k * S::OWN + j]) : lsg_load16(here + (i * S::OWN + j) * 32);
          const float v[4] = {lsg_from_bits(bits.x), lsg_from_bits(bits.y), lsg_from_bits(bits.z), lsg_from_bits(bits.w)};
          LSG_UNROLL
          for (int e = 0; e < 4; e++) score[i][j][e] = k == 0 ? v[e] : score[i][j][e] + v[e];
        }
      }
    }

    /* online softmax */
    LSG_UNROLL
    for (int j = 0; j < S::OWN; j++) {
      const uint32_t bits = named_here[column_group * S::OWN + j] >> (quad * 2);
      LSG_UNROLL
      for (int i = 0; i < S::S_M; i++) {
        LSG_UNROLL
        for (int e = 0; e < 4; e++) score[i][j][e] = bits >> (e & 1) & 1u ? score[i][j][e] * a.scale : -INFINITY;
      }
    }
    LSG_UNROLL
    for (int i = 0; i < S::S_M; i++) {
      LSG_UNROLL
      for (int h = 0; h < 2; h++) {
        float v = -INFINITY;
        LSG_UNROLL
        for (int j = 0; j < S::OWN; j++) v = lsg_fmax_nan(v, lsg_fmax_nan(score[i][j][2 * h], score[i][j][2 * h + 1]));
        v = lsg_fmax_nan(v, lsg_shfl_xor(LSG_FULL_MASK, v, 1));
        v = lsg_fmax_nan(v, lsg_shfl_xor(LSG_FULL_MASK, v, 2));
        if (quad == 0) column_value[column_group * S::HEADS + (m_group * S::S_M + i) * 16 + h * 8 + g] = v;
      }
    }
    lsg_barrier();
    LSG_UNROLL
    for (int i = 0; i < S::S_M; i++) {
      LSG_UNROLL
      for (int h = 0; h < 2; h++) {
        const int head = (m_group * S::S_M + i) * 16 + h * 8 + g;
        float v = largest[i][h];
        LSG_UNROLL
        for (int group = 0; group < S::COLUMN_GROUPS; group++) v = lsg_fmax_nan(v, column_value[group * S::HEADS + head]);
        const float shift = sparse_shift(v), factor = lsg_exp(largest[i][h] - shift);
        if (column_group == 0 && quad == 0) head_value[head] = factor;
        largest[i][h] = v;
        sum[i][h] *= factor;
        LSG_UNROLL
        for (int j = 0; j < S::OWN; j++) {
          const float lo = lsg_exp(score[i][j][2 * h] - shift), hi = lsg_exp(score[i][j][2 * h + 1] - shift);
          sum[i][h] += lo + hi;
          uint16_t *at = p + head * S::P_LD + (column_group * S::OWN + j) * 8 + quad * 2;
          *reinterpret_cast<uint32_t *>(at) = lsg_pack_bf16(lo, hi);
        }
      }
    }
    lsg_barrier();

    /* O = O . factor + P . V */
    LSG_UNROLL
    for (int i = 0; i < S::M_TILES; i++) {
      const float low = head_value[i * 16 + g], high = head_value[i * 16 + 8 + g];
      LSG_UNROLL
      for (int pair = 0; pair < S::PAIRS; pair++) {
        LSG_UNROLL
        for (int e = 0; e < 8; e++) o[i][pair][e >> 2][e & 3] *= e & 2 ? high : low;
      }
    }
    LSG_UNROLL
    for (int k = 0; k < S::ROWS; k += 16) {
      uint32_t pf[S::M_TILES][4];
      LSG_UNROLL
      for (int i = 0; i < S::M_TILES; i++) lsg_ldmatrix_x4(pf[i], p + (i * 16 + a_row) * S::P_LD + a_column + k);
      LSG_UNROLL
      for (int pair = 0; pair < S::PAIRS; pair++) {
        const int column = (pair * S::WARPS + warp) * 16;
        if (column >= dim) break;
        uint32_t vf[4];
        lsg_ldmatrix_x4_trans(vf, row_tile + (k + a_row) * ld + column + a_column);
        LSG_UNROLL
        for (int i = 0; i < S::M_TILES; i++) {
          lsg_mma_bf16(o[i][pair][0], pf[i], vf);
          lsg_mma_bf16(o[i][pair][1], pf[i], vf + 2);
        }
      }
    }
  }

  /* denominators: over the columns of a warp, then over the warps */
  lsg_cp_async_wait<0>();
  LSG_UNROLL
  for (int i = 0; i < S::S_M; i++) {
    LSG_UNROLL
    for (int h = 0; h < 2; h++) {
      const int head = (m_group * S::S_M + i) * 16 + h * 8 + g;
      float v = sum[i][h];
      v += lsg_shfl_xor(LSG_FULL_MASK, v, 1);
      v += lsg_shfl_xor(LSG_FULL_MASK, v, 2);
      if (quad == 0) column_value[column_group * S::HEADS + head] = v;
      if (quad == 0 && column_group == 0) maximum[head] = largest[i][h];
    }
  }
  lsg_barrier();
  const int64_t left = a.heads - first_head;
  if (lsg_thread() < S::HEADS && lsg_thread() < left) {
    const int head = lsg_thread();
    float denominator = 0.0f;
    LSG_UNROLL
    for (int group = 0; group < S::COLUMN_GROUPS; group++) denominator += column_value[group * S::HEADS + head];
    if (a.parts == 1) {
      head_value[head] = sparse_inverse(maximum[head], denominator, a.sink[first_head + head], names_a_row);
    } else {
      float *stats = a.part_stats + ((t * a.parts + lsg_block_z()) * a.heads + first_head + head) * 2;
      stats[0] = maximum[head];
      stats[1] = names_a_row ? denominator : SPARSE_NOTHING;
    }
  }

  if (a.parts > 1) {
    float *partial = a.partial + ((t * a.parts + lsg_block_z()) * a.heads + first_head) * dim;
    LSG_UNROLL
    for (int i = 0; i < S::M_TILES; i++) {
      LSG_UNROLL
      for (int h = 0; h < 2; h++) {
        const int head = i * 16 + h * 8 + g;
        LSG_UNROLL
        for (int pair = 0; pair < S::PAIRS; pair++) {
          const int column = (pair * S::WARPS + warp) * 16;
          if (column >= dim || head >= left) break;
          const float four[4] = {o[i][pair][0][2 * h], o[i][pair][0][2 * h + 1], o[i][pair][1][2 * h], o[i][pair][1][2 * h + 1]};
          lsg_store16(partial + head * dim + column + quad * 4, fragment_bits(four));
        }
      }
    }
    return;
  }

  /* rounded through shared memory, where the query was, so that whole lines are written */
  lsg_barrier();
  LSG_UNROLL
  for (int i = 0; i < S::M_TILES; i++) {
    LSG_UNROLL
    for (int h = 0; h < 2; h++) {
      const int head = i * 16 + h * 8 + g;
      const float inverse = head < left ? head_value[head] : 0.0f;
      LSG_UNROLL
      for (int pair = 0; pair < S::PAIRS; pair++) {
        const int column = (pair * S::WARPS + warp) * 16 + quad * 2;
        if (column >= dim) break;
        LSG_UNROLL
        for (int e = 0; e < 2; e++) {
          uint16_t *at = query + head * ld + column + e * 8;
          *reinterpret_cast<uint32_t *>(at) = lsg_pack_bf16(o[i][pair][e][2 * h] * inverse, o[i][pair][e][2 * h + 1] * inverse);
        }
      }
    }
  }
  lsg_barrier();
  for (int i = lsg_thread(); i < S::HEADS * pieces; i += S::THREADS) {
    const int head = i / pieces, column = i % pieces * 8;
    if (head >= left) break;
    const int64_t at = (t * a.heads + first_head + head) * dim + column;
    lsg_u32x4 v = lsg_load16(query + head * ld + column);
    if (a.sparse_o) lsg_store16(a.sparse_o + at, v);
    if (!a.o_rot) continue;
    const int turned = (column - (dim - (int)a.rope_dim)) / 2; /* of the first pair, below 0: of those that do not turn; both even */
    if (column + 8 > dim - (int)a.rope_dim) {
      if (turned >= 0) v.x = turn_back(v.x, cosine[turned], sine[turned]);
      if (turned >= -1) v.y = turn_back(v.y, cosine[turned + 1], sine[turned + 1]);
      if (turned >= -2) v.z = turn_back(v.z, cosine[turned + 2], sine[turned + 2]);
      v.w = turn_back(v.w, cosine[turned + 3], sine[turned + 3]);
    }
    lsg_store16(a.o_rot + at, v);
  }
}

/* ---- parts together ---- */

enum { COMBINE_THREADS = 64, COMBINE_COLUMNS = 4 * COMBINE_THREADS, COMBINE_FEW = 16, COMBINE_MANY = 32 };
static_assert((int)COMBINE_THREADS >= (int)SPARSE_MOST_PARTS, "a thread a part");

/* grid: m, heads, blocks of columns; a thread sums four columns, two pairs. at_once: parts in flight; many for one query, whose blocks are
 * alone with the latency, few where more blocks have to find room. */
template <int at_once>
LSG_KERNEL(COMBINE_THREADS)
void sparse_combine_kernel(sparse_args a) {
  LSG_SHARED(float, largest, SPARSE_MOST_PARTS);
  LSG_SHARED(float, weight, SPARSE_MOST_PARTS);
  LSG_SHARED(float, denominator, SPARSE_MOST_PARTS);
  const int64_t t = lsg_block_x(), head = lsg_block_y(), column = lsg_block_z() * COMBINE_COLUMNS + lsg_thread() * 4; /* in partial */
  const int parts = (int)a.parts, thread = lsg_thread();
  const float *stats = a.part_stats + (t * a.parts * a.heads + head) * 2;
  const float *partial = a.partial + (t * a.parts * a.heads + head) * a.dim + column;
  lsg_u32x4 v[at_once]; /* in flight together, the first of them beside the maxima */
  auto fetch = [&](int first) {
    LSG_UNROLL
    for (int i = 0; i < at_once; i++) {
      if (first + i < parts && column < a.dim) v[i] = lsg_load16(partial + (first + i) * a.heads * a.dim);
    }
  };
  fetch(0);
  if (thread < parts) {
    largest[thread] = stats[thread * a.heads * 2];
    denominator[thread] = stats[thread * a.heads * 2 + 1];
  }
  lsg_barrier();
  float maximum = -INFINITY;
  for (int i = 0; i < parts; i++) maximum = lsg_fmax_nan(maximum, largest[i]);
  if (thread < parts) weight[thread] = lsg_exp(largest[thread] - sparse_shift(maximum));
  lsg_barrier();
  if (column >= a.dim) return;

  float total = 0.0f, o[4] = {0.0f, 0.0f, 0.0f, 0.0f};
  bool names_a_row = false;
  for (int first = 0; first < parts; first += at_once) {
    if (first > 0) fetch(first);
    LSG_UNROLL
    for (int i = 0; i < at_once; i++) {
      if (first + i >= parts) break;
      const float w = weight[first + i], d = denominator[first + i];
      names_a_row = names_a_row || d != SPARSE_NOTHING;
      total += w * d;
      o[0] += w * lsg_from_bits(v[i].x);
      o[1] += w * lsg_from_bits(v[i].y);
      o[2] += w * lsg_from_bits(v[i].z);
      o[3] += w * lsg_from_bits(v[i].w);
    }
  }
  const float inverse = sparse_inverse(maximum, total, a.sink[head], names_a_row);
  const int64_t at = (t * a.heads + head) * a.dim;
  LSG_UNROLL
  for (int e = 0; e < 2; e++) {
    const int64_t first = column / 16 * 16 + column % 16 / 2 + e * 8, turned = first - (a.dim - a.rope_dim);
    uint32_t pair = lsg_pack_bf16(o[2 * e] * inverse, o[2 * e + 1] * inverse);
    if (a.sparse_o) *reinterpret_cast<uint32_t *>(a.sparse_o + at + first) = pair;
    if (!a.o_rot) continue;
    if (turned >= 0) {
      float s, c;
      lsg_sincos((float)(a.step->start_pos + t) * a.freq[turned / 2], &s, &c);
      pair = turn_back(pair, c, s);
    }
    *reinterpret_cast<uint32_t *>(a.o_rot + at + first) = pair;
  }
}

/* ---- launches ---- */

}  // namespace LSG_NS

#if defined(__CUDACC__)
#include "cuda/hopper_sparse_attn.cuh" /* a variant of the kernel for many queries, made of what is above */
#endif

namespace LSG_NS {

static int64_t quotient_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

/* Entries of a part: enough parts to fill the device, none of less than one step of P . V. */
static int64_t part_entries(int64_t m, int64_t heads, int64_t width) {
  if (m >= SPARSE_PREFILL) return width;
  const int64_t most = SPARSE_MOST_PARTS, least = SPARSE_LEAST_ENTRIES;
  const int64_t wanted = quotient_up(SPARSE_FILL, m * quotient_up(heads, sparse_shape<false>::HEADS));
  const int64_t entries = quotient_up(width, wanted < most ? wanted : most);
  return entries > least ? entries : least;
}

int64_t ls_gpu_sparse_splits(int64_t m, int64_t heads, int64_t width) { return quotient_up(width, part_entries(m, heads, width)); }

size_t ls_gpu_sparse_bytes(int64_t m, int64_t heads, int64_t dim, int64_t width) {
  const int64_t parts = ls_gpu_sparse_splits(m, heads, width);
  return parts == 1 ? 0 : (size_t)(m * parts * heads * (dim + 2)) * sizeof(float);
}

template <bool wide>
static size_t shared_bytes(int64_t dim) {
  using S = sparse_shape<wide>;
  return (size_t)((S::HEADS + 2 * S::ROWS) * (dim + 8) + S::HEADS * S::P_LD) * sizeof(uint16_t) +
         (size_t)(S::WARPS * (S::K_PARTS - 1) * S::EXCHANGED) * sizeof(lsg_u32x4);
}

/* Devices before sm_90 have too little at the largest dim. Asked once: a launch must not wait for the device. */
static bool wide_fits(int64_t dim) {
  static const int most = [] {
    lsg_device_info info;
    return lsg_info(&info) == LSG_OK ? info.max_shared_bytes : 0;
  }();
  const size_t declared = 4096; /* what the kernel declares beside the dynamic part, rounded up */
  return shared_bytes<true>(dim) + declared <= (size_t)most;
}

template <bool wide>
static lsg_status launch_shape(const sparse_args &a, lsg_stream stream) {
  using S = sparse_shape<wide>;
  auto kernel = a.dim == SPARSE_MOST_DIM ? sparse_attn_kernel<wide, SPARSE_MOST_DIM> : sparse_attn_kernel<wide, 0>;
  return LSG_LAUNCH(kernel, lsg_grid(a.m, quotient_up(a.heads, S::HEADS), a.parts), sparse_shape<wide>::THREADS, shared_bytes<wide>(a.dim),
                    stream, a);
}

/* Whether the variant for many queries takes them. */
static bool by_wgmma(int64_t m, int64_t heads, int64_t dim, int64_t rope_dim, int64_t width) {
#if defined(__CUDACC__)
  return m >= SPARSE_PREFILL && hopper_sparse_fits(heads, dim, rope_dim, width);
#else
  (void)m, (void)heads, (void)dim, (void)rope_dim, (void)width;
  return false;
#endif
}

const char *ls_gpu_sparse_kernel(int64_t m, int64_t heads, int64_t dim, int64_t rope_dim, int64_t width) {
  return by_wgmma(m, heads, dim, rope_dim, width) ? "wgmma" : "portable";
}

lsg_status ls_gpu_sparse_attn(uint16_t *sparse_o, uint16_t *o_rot, const uint16_t *q, const uint16_t *rows_a, const int32_t *idx,
                              int64_t ld, int64_t width, const float *sink, const float *freq, int64_t m, int64_t heads, int64_t dim,
                              int64_t rope_dim, void *scratch, const ls_gpu_attn_step *step, lsg_stream stream) {
  const int64_t parts = ls_gpu_sparse_splits(m, heads, width);
  float *partial = parts > 1 ? static_cast<float *>(scratch) : nullptr;
  float *part_stats = parts > 1 ? partial + m * parts * heads * dim : nullptr;
  const float scale = (float)(1.0 / sqrt((double)dim));
  const sparse_args a = {sparse_o, o_rot, q,     rows_a, idx,      sink, freq,  partial, part_stats,
                         step,     m,     heads, dim,    rope_dim, ld,   width, parts,   part_entries(m, heads, width),
                         scale};
#if defined(__CUDACC__)
  if (by_wgmma(m, heads, dim, rope_dim, width)) return hopper_sparse_launch(a, stream);
#endif

  /* 64 heads in one block where most of them exist, there are blocks enough, and a block can have the shared memory */
  const bool wide = m >= SPARSE_PREFILL && heads > 2 * sparse_shape<false>::HEADS && wide_fits(dim);
  const lsg_status status = wide ? launch_shape<true>(a, stream) : launch_shape<false>(a, stream);
  if (status != LSG_OK || parts == 1) return status;
  auto combine = parts > COMBINE_FEW ? sparse_combine_kernel<COMBINE_MANY> : sparse_combine_kernel<COMBINE_FEW>;
  return LSG_LAUNCH(combine, lsg_grid(m, heads, quotient_up(dim, COMBINE_COLUMNS)), COMBINE_THREADS, 0, stream, a);
}

}  // namespace LSG_NS
