/* hopper_sparse_attn: the sparse attention of many queries on sm_90a; gpu_sparse_attn.cu includes this file after what both variants share.
 *
 * A block stays on its multiprocessor and takes one query after another, 64 heads each (the M of wgmma). Three warpgroups:
 *
 *   producer   drops the empty entries of a query's list, gathers tiles of 64 rows by 16-byte cp.async into two buffers, and the query's
 *              heads into a third; halves of 256 columns are asked for as soon as their buffer is free, across queries too.
 *   two takers of tiles, in turn: number w owns tiles w, w + 2, ..: S = Q . K^T, softmax, P for both; and columns 256w .. 256w + 255 of all
 *              O = P . V. So S is made once, V is read once, and one taker's softmax runs beside the other's products.
 *
 * Tiles count in the order of the list, with a running maximum from one tile to the next, as layers.md has it: what the owner of a tile
 * publishes (maximum, factor of the sums so far, P in bf16) the other takes over before it goes on. P is an operand from registers for its
 * owner, from shared memory for the other. All buffers lie in the 128-byte swizzle of wgmma: sub-tiles of 64 rows x 64 columns; a tile
 * serves as K by its columns and as V by its rows without being moved.
 *
 * The buffers set the pace: a tile lands, is scored, waits for its softmax, is multiplied, and only then makes room. So taker 0 finishes
 * with a tile before it scores the next, which lands meanwhile; taker 1, whose next tile has landed before P of the one in between is
 * there, scores first, and that P . V runs beside its softmax.
 *
 * Who waits for whom. full[b][half], free[b][half]: a half of buffer b has landed, and has been multiplied by P (which means that S of it
 * is long done); query_full, query_free: the heads; told, untold: the list's length and the rotation's cosines, two queries deep. Named
 * barriers: 1 + w: P of w's tile is there (it also means that w has done with the P before, so that two buffers suffice); 3: the two parts
 * of the denominators; 4: the producer's own. Deterministic: nothing depends on which block takes a query nor on what it took before. */
#ifndef HOPPER_SPARSE_ATTN_CUH
#define HOPPER_SPARSE_ATTN_CUH

#include "cuda/cuda_internal.cuh"
#include "cuda/hopper_sparse_mma.cuh"

namespace LSG_NS {

enum {
  HOPPER_SPARSE_DIM = 512,
  HOPPER_SPARSE_ROPE_DIM = 64, /* at most */
  HOPPER_SPARSE_HEADS = 64,
  HOPPER_SPARSE_ROWS = 64, /* of a tile */
  HOPPER_SPARSE_GROUP = 128,
  HOPPER_SPARSE_THREADS = 3 * HOPPER_SPARSE_GROUP,
  HOPPER_SPARSE_WIDTH = 2048,          /* entries of a query, at most */
  HOPPER_SPARSE_CHUNKS = 8,            /* of HOPPER_SPARSE_GROUP entries, looked at together */
  HOPPER_SPARSE_SUBTILE = 64 * 64 * 2, /* bytes */
  HOPPER_SPARSE_HALF = 4 * HOPPER_SPARSE_SUBTILE,
  HOPPER_SPARSE_TILE = 8 * HOPPER_SPARSE_SUBTILE,
  HOPPER_SPARSE_SWIZZLE_STEP = 32 >> 4, /* 16 deep inside a sub-tile, in units of a matrix's address */
  HOPPER_SPARSE_NEXT_SUBTILE = HOPPER_SPARSE_SUBTILE >> 4,
  HOPPER_SPARSE_NEXT_ROWS = 16 * 128 >> 4, /* 16 rows further */
  HOPPER_SPARSE_TAKER_REGISTERS = 224,
  HOPPER_SPARSE_PRODUCER_REGISTERS = 56
};

/* The block's shared memory, from an address that is a multiple of 1024. */
typedef struct {
  unsigned char query[HOPPER_SPARSE_TILE], rows[2][HOPPER_SPARSE_TILE], p[2][HOPPER_SPARSE_SUBTILE];
  int32_t list[HOPPER_SPARSE_WIDTH];
  float cosine[2][HOPPER_SPARSE_ROPE_DIM / 2], sine[2][HOPPER_SPARSE_ROPE_DIM / 2];
  float maximum[2][HOPPER_SPARSE_HEADS], factor[2][HOPPER_SPARSE_HEADS]; /* after a tile of each owner */
  float sum[2][2][HOPPER_SPARSE_HEADS];                                  /* by query, owner */
  int32_t count[HOPPER_SPARSE_CHUNKS][4];                                /* of entries that a warp's share of a chunk names */
  int32_t named[2];                                                      /* of a query's entries */
  uint64_t full[2][2], free[2][2], query_full[2], query_free, told[2], untold[2];
} hopper_sparse_shared;

/* What a taker holds of a query: sums, scores of its tile, and by row (g, g + 8) the maximum so far, the maximum that its denominator
 * stands at, and that denominator. */
typedef struct {
  float o[128], s[32];
  float maximum[2], own_maximum[2], sum[2];
} hopper_sparse_taker;

/* 2^v to within 2^-22 of it; 0 below 2^-126. The bound of sparse_o allows for it (bound_sparse_attn.h: 16 2^-24 of each exponential). */
LSG_DEVICE float hopper_sparse_exp2(float v) {
  float r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(v));
  return r;
}

/* ---- producer ---- */

/* Four rows of a tile for each thread, a 16-byte piece of each sub-tile. */
typedef struct {
  const uint16_t *row[4];
  int bytes[4]; /* 16, or 0 where there is no row: zeros */
} hopper_sparse_pieces;

template <int half>
LSG_DEVICE void hopper_sparse_fetch(uint32_t tile, const hopper_sparse_pieces *from, uint64_t *full) {
  const int thread = lsg_thread() % HOPPER_SPARSE_GROUP, row = thread / 32 * 16 + (thread & 31) / 8, piece = thread & 7;
  const uint32_t even = tile + row * 128 + (piece ^ (row & 7)) * 16, odd = even ^ 64; /* row + 4 i: i even, i odd */
  LSG_UNROLL
  for (int sub = 4 * half; sub < 4 * half + 4; sub++) {
    LSG_UNROLL
    for (int i = 0; i < 4; i++)
      asm volatile(
          "cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;" ::"r"((i & 1 ? odd : even) + sub * HOPPER_SPARSE_SUBTILE + i * 512),
          "l"(__cvta_generic_to_global(from->row[i] + sub * 64)), "r"(from->bytes[i])
          : "memory");
  }
  hopper_barrier_arrive_landed(lsg_shared_address(full + half));
}

/* The entries of query t that are not -1, in their order, into s->list; returns how many. */
LSG_DEVICE int hopper_sparse_compact(const sparse_args *a, hopper_sparse_shared *s, int64_t t) {
  const int thread = lsg_thread() % HOPPER_SPARSE_GROUP, warp = thread / 32, lane = thread & 31, width = (int)a->width;
  int named = 0;
  for (int first = 0; first < width; first += HOPPER_SPARSE_CHUNKS * HOPPER_SPARSE_GROUP) { /* once, at the published width */
    const int32_t *entries = a->idx + t * a->ld + first + thread;
    const int left = width - first - thread;
    int mine[HOPPER_SPARSE_CHUNKS];
    LSG_UNROLL
    for (int c = 0; c < HOPPER_SPARSE_CHUNKS; c++) mine[c] = c * HOPPER_SPARSE_GROUP < left ? entries[c * HOPPER_SPARSE_GROUP] : -1;
    LSG_UNROLL
    for (int c = 0; c < HOPPER_SPARSE_CHUNKS; c++) {
      const unsigned bits = lsg_ballot(LSG_FULL_MASK, mine[c] >= 0);
      if (lane == 0) s->count[c][warp] = __popc(bits);
    }
    hopper_named_sync(4, HOPPER_SPARSE_GROUP); /* counted; and nobody reads the list of the query before any more */
    LSG_UNROLL
    for (int c = 0; c < HOPPER_SPARSE_CHUNKS; c++) {
      const unsigned bits = lsg_ballot(LSG_FULL_MASK, mine[c] >= 0);
      int before = named + __popc(bits & ((1u << lane) - 1u));
      LSG_UNROLL
      for (int w = 0; w < 4; w++) {
        const int n = s->count[c][w];
        if (w < warp) before += n;
        named += n;
      }
      if (mine[c] >= 0) s->list[before] = mine[c];
    }
    hopper_named_sync(4, HOPPER_SPARSE_GROUP);
  }
  return named;
}

LSG_DEVICE void hopper_sparse_produce(const sparse_args *a, hopper_sparse_shared *s) {
  const int thread = lsg_thread() % HOPPER_SPARSE_GROUP, first_row = thread / 32 * 16 + (thread & 31) / 8, piece = thread & 7;
  const uint16_t *rows_a = a->rows_a + piece * 8, *rows_b = a->step->compress_cache;
  const int64_t n_rows_a = a->step->rows_a, start_pos = a->step->start_pos, groups = a->heads / HOPPER_SPARSE_HEADS, items = a->m * groups;
  if (rows_b) rows_b += piece * 8 - n_rows_a * HOPPER_SPARSE_DIM;
  const uint32_t query = lsg_shared_address(s->query);
  uint32_t buffer_parity = 3, query_parity = 1; /* of the phase that frees: buffer b is bit b */
  int n = 0;
  for (int64_t item = lsg_block_x(); item < items; item += lsg_grid_x(), n++) {
    const int64_t t = a->m - 1 - item / groups,
                  first_head = item % groups * HOPPER_SPARSE_HEADS; /* the longest lists are last, taken first */
    const int named = hopper_sparse_compact(a, s, t), tiles = (named + HOPPER_SPARSE_ROWS - 1) / HOPPER_SPARSE_ROWS;
    hopper_barrier_wait(lsg_shared_address(&s->untold[n & 1]), (n >> 1 & 1) ^ 1);
    if (thread == 0) s->named[n & 1] = named;
    const float position = (float)(start_pos + t); /* nearest-even: above 2^24 several positions share an angle */
    for (int i = thread; i < a->rope_dim / 2; i += HOPPER_SPARSE_GROUP) {
      float sine, cosine;
      lsg_sincos(position * a->freq[i], &sine, &cosine);
      s->sine[n & 1][i] = sine, s->cosine[n & 1][i] = cosine;
    }
    hopper_barrier_arrive(lsg_shared_address(&s->told[n & 1]));
    for (int j = 0; j < tiles; j++) {
      hopper_sparse_pieces from;
      LSG_UNROLL
      for (int i = 0; i < 4; i++) {
        const int at = j * HOPPER_SPARSE_ROWS + first_row + 4 * i, entry = at < named ? s->list[at] : -1;
        from.row[i] = (entry < n_rows_a ? rows_a : rows_b) + (int64_t)entry * HOPPER_SPARSE_DIM;
        from.bytes[i] = entry < 0 ? 0 : 16;
        if (entry < 0) from.row[i] = a->q; /* not read */
      }
      const int b = j & 1;
      hopper_barrier_wait(lsg_shared_address(&s->free[b][0]), buffer_parity >> b & 1);
      hopper_sparse_fetch<0>(lsg_shared_address(s->rows[b]), &from, s->full[b]);
      hopper_barrier_wait(lsg_shared_address(&s->free[b][1]), buffer_parity >> b & 1);
      hopper_sparse_fetch<1>(lsg_shared_address(s->rows[b]), &from, s->full[b]);
      buffer_parity ^= 1u << b;
      if (j == 0) {
        LSG_UNROLL
        for (int i = 0; i < 4; i++) {
          from.row[i] = a->q + (t * a->heads + first_head + first_row + 4 * i) * HOPPER_SPARSE_DIM + piece * 8;
          from.bytes[i] = 16;
        }
        hopper_barrier_wait(lsg_shared_address(&s->query_free), query_parity);
        hopper_sparse_fetch<0>(query, &from, s->query_full);
        hopper_sparse_fetch<1>(query, &from, s->query_full);
      }
    }
    if (tiles > 0) query_parity ^= 1;
  }
}

/* ---- takers ---- */

/* S of a taker's own tile, whose two halves have landed or will have. first: of a query, whose heads are waited for too. */
template <int w, bool first>
LSG_DEVICE void hopper_sparse_score(hopper_sparse_taker *c, hopper_sparse_shared *s, uint32_t tile_parity, uint32_t query_parity) {
  const uint32_t q = hopper_matrix(lsg_shared_address(s->query), 16), k = hopper_matrix(lsg_shared_address(s->rows[w]), 16);
  LSG_UNROLL
  for (int half = 0; half < 2; half++) {
    if (first) hopper_barrier_wait(lsg_shared_address(&s->query_full[half]), query_parity);
    hopper_barrier_wait(lsg_shared_address(&s->full[w][half]), tile_parity);
    hopper_fence_async();
    hopper_mma_fence();
    LSG_UNROLL
    for (int step = 16 * half; step < 16 * half + 16; step++) {
      const uint32_t at = step / 4 * HOPPER_SPARSE_NEXT_SUBTILE + step % 4 * HOPPER_SPARSE_SWIZZLE_STEP;
      if (step == 0) hopper_mma_n64<false>(c->s, q + at, k + at);
      if (step > 0) hopper_mma_n64<true>(c->s, q + at, k + at);
    }
  }
  hopper_mma_commit();
}

LSG_DEVICE void hopper_sparse_rescale(hopper_sparse_taker *c, const float factor[2]) {
  LSG_UNROLL
  for (int i = 0; i < 128; i++) c->o[i] *= factor[i >> 1 & 1];
}

/* One arrival for each of the four warps, whose products are complete. */
LSG_DEVICE void hopper_sparse_release(uint64_t *barrier) {
  if (lsg_lane() == 0) hopper_barrier_arrive(lsg_shared_address(barrier));
}

/* Softmax of a taker's own tile, whose S is complete: published, and multiplied by V. The tile is free then. Scores and maxima are dot
 * products still; scale is theirs to the power of two that they are exponents of. In taker 1 the product with the other's tile still runs;
 * it ends beside the maxima. */
template <int w, bool first>
LSG_DEVICE void hopper_sparse_own(hopper_sparse_taker *c, hopper_sparse_shared *s, int left, float scale) {
  const int thread = lsg_thread() % HOPPER_SPARSE_GROUP, warp = thread / 32, g = (thread & 31) >> 2, quad = thread & 3;
  hopper_mma_hold(c->s);
  if (left < HOPPER_SPARSE_ROWS) { /* the last tile of a query: rows that are not there */
    LSG_UNROLL
    for (int i = 0; i < 32; i++) {
      if (i / 4 * 8 + quad * 2 + (i & 1) >= left) c->s[i] = -INFINITY;
    }
  }
  float factor[2], shift[2];
  LSG_UNROLL
  for (int h = 0; h < 2; h++) {
    float v = c->maximum[h];
    LSG_UNROLL
    for (int i = 0; i < 8; i++) v = lsg_fmax_nan(v, lsg_fmax_nan(c->s[4 * i + 2 * h], c->s[4 * i + 2 * h + 1]));
    v = lsg_fmax_nan(v, lsg_shfl_xor(LSG_FULL_MASK, v, 1));
    v = lsg_fmax_nan(v, lsg_shfl_xor(LSG_FULL_MASK, v, 2));
    shift[h] = sparse_shift(v) * scale;
    factor[h] = hopper_sparse_exp2(c->maximum[h] * scale - shift[h]);
    if (quad == 0) {
      s->maximum[w][warp * 16 + g + 8 * h] = v;
      s->factor[w][warp * 16 + g + 8 * h] = factor[h];
    }
    c->maximum[h] = v;
  }
  if (w == 1) {
    hopper_mma_wait<0>();
    hopper_sparse_release(&s->free[1 - w][w]);
  }
  uint32_t p[32 / 2];
  unsigned char *p_at = s->p[w] + (warp * 16 + g) * 128 + quad * 4;
  LSG_UNROLL
  for (int i = 0; i < 8; i++) {
    LSG_UNROLL
    for (int h = 0; h < 2; h++) {
      float *pair = c->s + 4 * i + 2 * h;
      pair[0] = hopper_sparse_exp2(lsg_fma(pair[0], scale, -shift[h])), pair[1] = hopper_sparse_exp2(lsg_fma(pair[1], scale, -shift[h]));
      p[2 * i + h] = lsg_pack_bf16(pair[0], pair[1]);
      *reinterpret_cast<uint32_t *>(p_at + h * 8 * 128 + (i ^ g) * 16) = p[2 * i + h];
    }
  }
  hopper_fence_async();
  hopper_named_arrive(1 + w, 2 * HOPPER_SPARSE_GROUP);

  hopper_mma_hold(c->o);
  if (!first) hopper_sparse_rescale(c, factor);
  const uint32_t v = hopper_matrix(lsg_shared_address(s->rows[w]) + w * HOPPER_SPARSE_HALF, HOPPER_SPARSE_SUBTILE);
  hopper_mma_fence();
  LSG_UNROLL
  for (int k = 0; k < 4; k++) {
    if (first && k == 0) hopper_mma_n256<false>(c->o, p + 4 * k, v + k * HOPPER_SPARSE_NEXT_ROWS);
    if (!first || k > 0) hopper_mma_n256<true>(c->o, p + 4 * k, v + k * HOPPER_SPARSE_NEXT_ROWS);
  }
  hopper_mma_commit();
  LSG_UNROLL
  for (int h = 0; h < 2; h++) { /* the denominators, beside the product */
    float v = c->sum[h] * hopper_sparse_exp2(c->own_maximum[h] * scale - shift[h]);
    LSG_UNROLL
    for (int i = 0; i < 8; i++) v += c->s[4 * i + 2 * h] + c->s[4 * i + 2 * h + 1];
    c->sum[h] = v, c->own_maximum[h] = c->maximum[h];
  }
  hopper_mma_wait<0>();
  hopper_mma_hold(c->o);
  hopper_sparse_release(&s->free[w][w]);
}

/* P . V of the other's tile is set off. The tile has landed: its owner has seen it, fenced, and then told of P. */
template <int w, bool first>
LSG_DEVICE void hopper_sparse_other(hopper_sparse_taker *c, hopper_sparse_shared *s) {
  const int thread = lsg_thread() % HOPPER_SPARSE_GROUP, warp = thread / 32, g = (thread & 31) >> 2;
  hopper_named_sync(1 + (1 - w), 2 * HOPPER_SPARSE_GROUP);
  float factor[2];
  LSG_UNROLL
  for (int h = 0; h < 2; h++) {
    c->maximum[h] = s->maximum[1 - w][warp * 16 + g + 8 * h];
    factor[h] = s->factor[1 - w][warp * 16 + g + 8 * h];
  }
  if (!first) hopper_sparse_rescale(c, factor);
  const uint32_t p = hopper_matrix(lsg_shared_address(s->p[1 - w]), 16);
  const uint32_t v = hopper_matrix(lsg_shared_address(s->rows[1 - w]) + w * HOPPER_SPARSE_HALF, HOPPER_SPARSE_SUBTILE);
  hopper_mma_fence();
  LSG_UNROLL
  for (int k = 0; k < 4; k++) {
    if (first && k == 0) hopper_mma_n256<false>(c->o, p + k * HOPPER_SPARSE_SWIZZLE_STEP, v + k * HOPPER_SPARSE_NEXT_ROWS);
    if (!first || k > 0) hopper_mma_n256<true>(c->o, p + k * HOPPER_SPARSE_SWIZZLE_STEP, v + k * HOPPER_SPARSE_NEXT_ROWS);
  }
  hopper_mma_commit();
}

/* Four lanes' words of columns 2q of four groups of 8 become 8 columns of group q. */
LSG_DEVICE lsg_u32x4 hopper_sparse_turn(const uint32_t w[4]) {
  const int quad = lsg_lane() & 3;
  const bool odd = quad & 1, upper = quad & 2;
  const uint32_t a = lsg_shfl_xor(LSG_FULL_MASK, odd ? w[0] : w[1], 1), b = lsg_shfl_xor(LSG_FULL_MASK, odd ? w[2] : w[3], 1);
  const uint32_t v0 = odd ? a : w[0], v1 = odd ? w[1] : a, v2 = odd ? b : w[2], v3 = odd ? w[3] : b;
  const uint32_t e = lsg_shfl_xor(LSG_FULL_MASK, upper ? v0 : v2, 2), f = lsg_shfl_xor(LSG_FULL_MASK, upper ? v1 : v3, 2);
  lsg_u32x4 r = {upper ? e : v0, upper ? f : v1, upper ? v2 : e, upper ? v3 : f};
  return r;
}

/* The query's results from the sums: rounded, then turned back. at: of the block's first head. n: the query's place in what the producer
 * tells. */
template <int w>
LSG_DEVICE void hopper_sparse_store(const hopper_sparse_taker *c, const hopper_sparse_shared *s, const sparse_args *a,
                                    const float inverse[2], int64_t at, int n) {
  const int thread = lsg_thread() % HOPPER_SPARSE_GROUP, warp = thread / 32, g = (thread & 31) >> 2, quad = thread & 3;
  LSG_UNROLL
  for (int block = 0; block < 8; block++) {
    LSG_UNROLL
    for (int h = 0; h < 2; h++) {
      const int column = w * 256 + block * 32;
      const int64_t to = at + (warp * 16 + g + 8 * h) * HOPPER_SPARSE_DIM + column + quad * 8;
      uint32_t words[4];
      LSG_UNROLL
      for (int i = 0; i < 4; i++) {
        const int j = 4 * (4 * block + i) + 2 * h;
        words[i] = lsg_pack_bf16(c->o[j] * inverse[h], c->o[j + 1] * inverse[h]);
      }
      lsg_u32x4 turned = hopper_sparse_turn(words);
      if (a->sparse_o) lsg_store16(a->sparse_o + to, turned);
      if (column >= HOPPER_SPARSE_DIM - HOPPER_SPARSE_ROPE_DIM) {
        LSG_UNROLL
        for (int i = 0; i < 4; i++) {
          const int pair = (column + 8 * i) / 2 + quad - (HOPPER_SPARSE_DIM - (int)a->rope_dim) / 2;
          if (pair >= 0) words[i] = turn_back(words[i], s->cosine[n][pair], s->sine[n][pair]);
        }
        turned = hopper_sparse_turn(words);
      }
      if (a->o_rot) lsg_store16(a->o_rot + to, turned);
    }
  }
}

template <int w>
LSG_DEVICE void hopper_sparse_take(const sparse_args *a, hopper_sparse_shared *s) {
  const int thread = lsg_thread() % HOPPER_SPARSE_GROUP, warp = thread / 32, g = (thread & 31) >> 2, quad = thread & 3;
  const int64_t groups = a->heads / HOPPER_SPARSE_HEADS, items = a->m * groups;
  const float scale = a->scale * 1.4426950408889634f;
  hopper_sparse_taker c;
  LSG_UNROLL
  for (int i = 0; i < 128; i++) c.o[i] = 0.0f;
  LSG_UNROLL
  for (int i = 0; i < 32; i++) c.s[i] = 0.0f;
  uint32_t own = 0, query_parity = 0; /* parities of what is full next */
  int n = 0;
  for (int64_t item = lsg_block_x(); item < items; item += lsg_grid_x(), n++) {
    const int64_t t = a->m - 1 - item / groups, first_head = item % groups * HOPPER_SPARSE_HEADS;
    hopper_barrier_wait(lsg_shared_address(&s->told[n & 1]), n >> 1 & 1);
    const int named = s->named[n & 1], tiles = (named + HOPPER_SPARSE_ROWS - 1) / HOPPER_SPARSE_ROWS;
    LSG_UNROLL
    for (int h = 0; h < 2; h++) c.maximum[h] = c.own_maximum[h] = -INFINITY, c.sum[h] = 0.0f;

    /* Taker 0 finishes with a tile before it scores the next: that one lands meanwhile. Taker 1 scores first: the other's P is later. */
    int j = 0; /* the next tile */
    if (w < tiles) {
      hopper_sparse_score<w, true>(&c, s, own, query_parity);
      if (w == 1) {
        hopper_sparse_other<w, true>(&c, s);
        hopper_mma_wait<1>();
      }
      if (w == 0) hopper_mma_wait<0>();
      if (w + 2 >= tiles) hopper_sparse_release(&s->query_free);
      hopper_sparse_own<w, w == 0>(&c, s, named - w * HOPPER_SPARSE_ROWS, scale);
      own ^= 1;
      j = w + 1;
      for (; j + 1 < tiles; j += 2) {
        if (w == 0) {
          hopper_sparse_other<w, false>(&c, s);
          hopper_mma_wait<0>();
          hopper_mma_hold(c.o);
          hopper_sparse_release(&s->free[1 - w][w]);
          hopper_sparse_score<w, false>(&c, s, own, 0);
          hopper_mma_wait<0>();
        } else {
          hopper_sparse_score<w, false>(&c, s, own, 0);
          hopper_sparse_other<w, false>(&c, s);
          hopper_mma_wait<1>();
        }
        if (j + 3 >= tiles) hopper_sparse_release(&s->query_free);
        hopper_sparse_own<w, false>(&c, s, named - (j + 1) * HOPPER_SPARSE_ROWS, scale);
        own ^= 1;
      }
      if (j < tiles) {
        hopper_sparse_other<w, false>(&c, s);
        hopper_mma_wait<0>();
        hopper_mma_hold(c.o);
        hopper_sparse_release(&s->free[1 - w][w]);
      }
    } else if (tiles > 0) { /* w is 1, and the only tile is the other's */
      hopper_sparse_release(&s->query_free);
      hopper_sparse_other<w, true>(&c, s);
      hopper_mma_wait<0>();
      hopper_mma_hold(c.o);
      hopper_sparse_release(&s->free[1 - w][w]);
    } else {
      LSG_UNROLL
      for (int i = 0; i < 128; i++) c.o[i] = 0.0f;
    }
    if (tiles > 0) query_parity ^= 1;

    /* the denominators: each taker's own tiles, at the last maximum */
    float inverse[2];
    LSG_UNROLL
    for (int h = 0; h < 2; h++) {
      float v = c.sum[h] * hopper_sparse_exp2(c.own_maximum[h] * scale - sparse_shift(c.maximum[h]) * scale);
      v += lsg_shfl_xor(LSG_FULL_MASK, v, 1);
      v += lsg_shfl_xor(LSG_FULL_MASK, v, 2);
      if (quad == 0) s->sum[n & 1][w][warp * 16 + g + 8 * h] = v;
    }
    hopper_named_sync(3, 2 * HOPPER_SPARSE_GROUP);
    LSG_UNROLL
    for (int h = 0; h < 2; h++) {
      const int head = warp * 16 + g + 8 * h;
      const float denominator = s->sum[n & 1][0][head] + s->sum[n & 1][1][head];
      inverse[h] = sparse_inverse(c.maximum[h] * a->scale, denominator, a->sink[first_head + head], named > 0);
    }
    hopper_sparse_store<w>(&c, s, a, inverse, (t * a->heads + first_head) * HOPPER_SPARSE_DIM, n & 1);
    lsg_warp_sync(LSG_FULL_MASK);
    hopper_sparse_release(&s->untold[n & 1]);
  }
}

/* ---- kernel ---- */

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
#define HOPPER_SPARSE_HERE 1
#else
#define HOPPER_SPARSE_HERE 0 /* another architecture's image: never launched there */
#endif

__global__ __launch_bounds__(HOPPER_SPARSE_THREADS, 1) void hopper_sparse_kernel(const __grid_constant__ sparse_args a) {
#if HOPPER_SPARSE_HERE
  extern __shared__ __align__(128) unsigned char lsg_dynamic_shared[];
  const uint32_t past = lsg_shared_address(lsg_dynamic_shared) & 1023u;
  hopper_sparse_shared *s = reinterpret_cast<hopper_sparse_shared *>(lsg_dynamic_shared + (past ? 1024u - past : 0u));
  const int group = lsg_shfl(LSG_FULL_MASK, lsg_thread() / HOPPER_SPARSE_GROUP, 0);
  if (lsg_thread() == 0) {
    for (int i = 0; i < 2; i++) {
      for (int half = 0; half < 2; half++) {
        hopper_barrier_init(lsg_shared_address(&s->full[i][half]), HOPPER_SPARSE_GROUP);
        hopper_barrier_init(lsg_shared_address(&s->free[i][half]), 4);
      }
      hopper_barrier_init(lsg_shared_address(&s->query_full[i]), HOPPER_SPARSE_GROUP);
      hopper_barrier_init(lsg_shared_address(&s->told[i]), HOPPER_SPARSE_GROUP);
      hopper_barrier_init(lsg_shared_address(&s->untold[i]), 8);
    }
    hopper_barrier_init(lsg_shared_address(&s->query_free), 8);
  }
  lsg_barrier();
  if (group == 2) {
    hopper_registers_shrink<HOPPER_SPARSE_PRODUCER_REGISTERS>();
    hopper_sparse_produce(&a, s);
  } else if (group == 0) {
    hopper_registers_grow<HOPPER_SPARSE_TAKER_REGISTERS>();
    hopper_sparse_take<0>(&a, s);
  } else {
    hopper_registers_grow<HOPPER_SPARSE_TAKER_REGISTERS>();
    hopper_sparse_take<1>(&a, s);
  }
#endif
}

/* ---- launches ---- */

/* What the device in use gives; asked once, a launch must not wait for it. */
typedef struct {
  bool works; /* sm_90, an image for sm_90a in this build, and LOCKSTEP_PORTABLE not set */
  int multiprocessors;
} hopper_sparse_device;

static hopper_sparse_device hopper_sparse_ask(void) {
  hopper_sparse_device d = {false, 0};
  cuda_device device;
  cudaFuncAttributes image;
  if (!cuda_device_ask(&device) || cudaFuncGetAttributes(&image, hopper_sparse_kernel) != cudaSuccess) {
    cudaGetLastError();
    return d;
  }
  d.multiprocessors = device.multiprocessors;
  /* an image for sm_90 without its "a" holds an empty kernel of a few registers */
  d.works = device.hopper && image.numRegs > 128 && device.shared_bytes >= (int)sizeof(hopper_sparse_shared) + 1024;
  return d;
}

static bool hopper_sparse_fits(int64_t heads, int64_t dim, int64_t rope_dim, int64_t width) {
  static const hopper_sparse_device device = hopper_sparse_ask();
  return device.works && heads % HOPPER_SPARSE_HEADS == 0 && dim == HOPPER_SPARSE_DIM && rope_dim <= HOPPER_SPARSE_ROPE_DIM &&
         width <= HOPPER_SPARSE_WIDTH;
}

static lsg_status hopper_sparse_launch(const sparse_args &a, lsg_stream stream) {
  static const int multiprocessors = hopper_sparse_ask().multiprocessors;
  const int64_t items = a.m * (a.heads / HOPPER_SPARSE_HEADS);
  return LSG_LAUNCH(hopper_sparse_kernel, lsg_grid(items < multiprocessors ? items : multiprocessors), HOPPER_SPARSE_THREADS,
                    sizeof(hopper_sparse_shared) + 1024, stream, a);
}

}  // namespace LSG_NS

#endif
