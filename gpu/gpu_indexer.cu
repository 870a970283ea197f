/* gpu_indexer.cu: index scores on tensor cores. What is chosen by them is in gpu_select.cu.
 *
 * Keys are the M operand of mma m16n8k16 and stay in registers: a warp holds 32 of them (up to 128 wide), read once, straight from memory,
 * for every head of every query of its block. Queries come through shared memory, a stage of 32 heads at a time, the next one in flight
 * while this one is multiplied. One query of up to 32 heads of up to 128, which is bound by reading the keys, has a kernel of its own,
 * where it is the query that stays in registers; many queries have one on Hopper (cuda/hopper_index_score.cu).
 *
 * Inside each 32 of K the order is permuted: lane t of a group of four owns elements 8t .. 8t+7 of a key and of a head, so a fragment is 16
 * contiguous bytes of both.
 *
 * The sum over heads is in head order, as in the reference, so that the same dot products give the same bytes. A product tile leaves two of
 * its eight heads in each lane of a group of four, for the group's four keys; the rounded products, packed in pairs, are transposed among
 * the four lanes, after which each lane owns one key and adds up its heads one after another. */
#include "gpu_indexer.h"

#if defined(__CUDACC__)
#include "cuda/hopper_index_score.cuh"
#endif

namespace LSG_NS {

enum {
  SCORE_WARPS = 8,
  SCORE_THREADS = SCORE_WARPS * 32,
  SCORE_WARP_KEYS = 32, /* two m16 tiles; lane i ends up with key i */
  SCORE_KEYS = SCORE_WARPS * SCORE_WARP_KEYS,
  SCORE_QUERIES = 16, /* of a block, at most */
  SCORE_HEADS = 32,   /* of a stage */
  SCORE_K = 128,      /* elements of a head in a stage, and of a key in registers */
  SCORE_CHUNKS = SCORE_K / 32,
  BF16_MINUS_INFINITY = 0xFF80
};

typedef struct {
  int64_t m, heads, width, n_most;
} score_shape;

/* A stage: up to 32 heads from `head` of query t, their elements from `k`. */
typedef struct {
  int64_t t, head, k;
} score_stage;

LSG_DEVICE int at_most(int64_t v, int most) { return v < most ? (int)v : most; }

LSG_DEVICE score_stage stage_after(score_stage s, const score_shape &shape) {
  s.k += SCORE_K;
  if (s.k < shape.width) return s;
  s.k = 0, s.head += SCORE_HEADS;
  if (s.head < shape.heads) return s;
  s.head = 0, s.t++;
  return s;
}

/* Where chunk c (32 elements) of a head lies in a stage: odd heads have neighbouring chunks exchanged, so that the eight lanes of a shared
 * memory access (two heads, 64 bytes each) hit all banks once. */
LSG_DEVICE int stage_place(int head, int c) { return head * SCORE_K + (c ^ (head & 1)) * 32; }

/* Starts the copy of a stage's queries; heads that do not exist, up to a whole tile of eight, are zeros. */
LSG_DEVICE void stage_load(uint16_t *stage, const uint16_t *q, const score_stage &s, const score_shape &shape) {
  const uint16_t *from = q + (s.t * shape.heads + s.head) * shape.width + s.k;
  LSG_UNROLL
  for (int i = 0; i < SCORE_HEADS * SCORE_K / 8 / SCORE_THREADS; i++) {
    const int piece = lsg_thread() + i * SCORE_THREADS, head = piece / (SCORE_K / 8), at = piece % (SCORE_K / 8) * 8;
    if (s.k + at >= shape.width || (head & ~7) >= shape.heads - s.head) continue;
    const bool exists = head < shape.heads - s.head;
    lsg_cp_async16(stage + stage_place(head, at / 32) + at % 32, exists ? from + head * shape.width + at : q, exists ? 16 : 0);
  }
  lsg_cp_async_commit();
}

/* p[r]: what this lane holds for key r of its group of four; after, p[s]: what lane s of the group held for key lsg_lane() & 3. */
LSG_DEVICE void transpose4(uint32_t p[4] LSG_SITE) {
  const int t = lsg_lane() & 3;
  LSG_UNROLL
  for (int r = 0; r < 2; r++) {
    const uint32_t got = lsg_shfl_xor(LSG_FULL_MASK, t & 2 ? p[r] : p[r + 2], 2 LSG_SITE_PASS);
    if (t & 2)
      p[r] = got;
    else
      p[r + 2] = got;
  }
  LSG_UNROLL
  for (int r = 0; r < 4; r += 2) {
    const uint32_t got = lsg_shfl_xor(LSG_FULL_MASK, t & 1 ? p[r] : p[r + 1], 1 LSG_SITE_PASS);
    if (t & 1)
      p[r] = got;
    else
      p[r + 1] = got;
  }
}

/* bf16(relu(bf16(dot)) * w) of two heads. A NaN is not below zero and stays. */
LSG_DEVICE uint32_t weigh(float dot0, float dot1, float w0, float w1) {
  typedef lsg_act<LSG_BF16> act;
  const uint32_t rounded = act::pack(dot0, dot1);
  const float d0 = act::widen_lo(rounded), d1 = act::widen_hi(rounded);
  return act::pack((d0 < 0.0f ? 0.0f : d0) * w0, (d1 < 0.0f ? 0.0f : d1) * w1);
}

/* The products of heads j * 8 .. j * 8 + 7 with keys 4g .. 4g + 3, of which this lane holds two heads, go to the lanes that own the keys:
 * sum of key lsg_lane(), head by head. w0, w1: the weights of this lane's two heads, of which `exist` exist. */
LSG_DEVICE float add_heads(float sum, const float lo[4], const float hi[4], float w0, float w1, int exist LSG_SITE) {
  uint32_t product[4] = {weigh(lo[0], lo[1], w0, w1), weigh(lo[2], lo[3], w0, w1), weigh(hi[0], hi[1], w0, w1),
                         weigh(hi[2], hi[3], w0, w1)};
  if (exist < 2) { /* a head that does not exist adds nothing, not 0 times an infinite key */
    const uint32_t keep = exist == 1 ? 0xFFFFu : 0u;
    LSG_UNROLL
    for (int r = 0; r < 4; r++) product[r] &= keep;
  }
  transpose4(product LSG_SITE_PASS);
  LSG_UNROLL
  for (int s = 0; s < 4; s++) {
    sum += lsg_act<LSG_BF16>::widen_lo(product[s]);
    sum += lsg_act<LSG_BF16>::widen_hi(product[s]);
  }
  return sum;
}

/* Grid (tiles of 256 keys, tiles of `queries` queries). one_piece: a key fits in the registers; else its pieces are read again for every 32
 * heads. once: no other block reads these keys. */
template <bool one_piece>
LSG_KERNEL(SCORE_THREADS)
void index_score_kernel(uint16_t *score, const uint16_t *q, const uint16_t *w, score_shape shape, int64_t queries, bool once,
                        const ls_gpu_attn_step *step) {
  LSG_SHARED(uint16_t, stages, 2 * SCORE_HEADS * SCORE_K);
  lsg_let_next();
  lsg_wait_before();
  const int lane = lsg_lane(), g = lane >> 2, t = lane & 3;
  const int64_t first_query = lsg_block_y() * queries, last = first_query + queries < shape.m ? first_query + queries : shape.m;
  const int64_t first = lsg_block_x() * SCORE_KEYS + lsg_warp() * SCORE_WARP_KEYS, mine = first + lane;
  const int64_t seen = attn_visible(step, last - 1); /* the last query sees the most */

  if (lsg_block_x() * SCORE_KEYS >= seen) {
    for (int64_t row = first_query; row < last && mine < shape.n_most; row++) score[row * shape.n_most + mine] = BF16_MINUS_INFINITY;
    return;
  }

  score_stage now = {first_query, 0, 0};
  stage_load(stages, q, now, shape);

  /* Row 8h + g of tile i is key 4g + 2i + h: the four keys of lane group g are neighbours. */
  lsg_u32x4 key[SCORE_CHUNKS][2][2];
  auto load_keys = [&](int64_t k) {
    LSG_UNROLL
    for (int i = 0; i < 2; i++) {
      LSG_UNROLL
      for (int h = 0; h < 2; h++) {
        const int64_t row = first + 4 * g + 2 * i + h;
        const uint16_t *from = step->index_cache + row * shape.width + k + 8 * t;
        LSG_UNROLL
        for (int c = 0; c < SCORE_CHUNKS; c++) {
          key[c][i][h] = lsg_zero16();
          if (row < seen && k + c * 32 < shape.width) key[c][i][h] = once ? lsg_load16_stream(from + c * 32) : lsg_load16(from + c * 32);
        }
      }
    }
  };
  if (one_piece) load_keys(0);

  float dot[SCORE_HEADS / 8][2][4];
  float sum = 0.0f;
  int64_t visible = 0;
  for (int buffer = 0; now.t < last; buffer ^= 1) {
    const score_stage next = stage_after(now, shape);
    const int heads = at_most(shape.heads - now.head, SCORE_HEADS), chunks = at_most((shape.width - now.k) / 32, SCORE_CHUNKS);
    const bool first_piece = one_piece || now.k == 0, last_piece = one_piece || next.k == 0;
    const float weight = lane < heads ? lsg_bf16_to_f32(w[now.t * shape.heads + now.head + lane]) : 0.0f; /* lane: the head */
    if (now.head == 0 && now.k == 0) {
      sum = 0.0f;
      visible = attn_visible(step, now.t);
    }

    lsg_cp_async_wait<0>();
    lsg_barrier(); /* this stage is there for all, and all are done with the other buffer */
    if (next.t < last) stage_load(stages + (buffer ^ 1) * SCORE_HEADS * SCORE_K, q, next, shape);

    if (first < visible) { /* the same for the whole warp */
      const uint16_t *stage = stages + buffer * SCORE_HEADS * SCORE_K;
      if (!one_piece) load_keys(now.k);
      LSG_UNROLL
      for (int j = 0; j < SCORE_HEADS / 8; j++) {
        if (j * 8 >= heads) break;
        if (first_piece) {
          LSG_UNROLL
          for (int e = 0; e < 4; e++) dot[j][0][e] = dot[j][1][e] = 0.0f;
        }
        LSG_UNROLL
        for (int c = 0; c < SCORE_CHUNKS; c++) {
          if (c >= chunks) break;
          const lsg_u32x4 b = lsg_load16(stage + stage_place(j * 8 + g, c) + 8 * t);
          const uint32_t b0[2] = {b.x, b.y}, b1[2] = {b.z, b.w};
          LSG_UNROLL
          for (int i = 0; i < 2; i++) {
            const lsg_u32x4 &lo = key[c][i][0], &hi = key[c][i][1];
            const uint32_t a0[4] = {lo.x, hi.x, lo.y, hi.y}, a1[4] = {lo.z, hi.z, lo.w, hi.w};
            lsg_mma_bf16(dot[j][i], a0, b0);
            lsg_mma_bf16(dot[j][i], a1, b1);
          }
        }
        if (!last_piece) continue;

        const float w0 = lsg_shfl(LSG_FULL_MASK, weight, j * 8 + 2 * t), w1 = lsg_shfl(LSG_FULL_MASK, weight, j * 8 + 2 * t + 1);
        sum = add_heads(sum, dot[j][0], dot[j][1], w0, w1, heads - (j * 8 + 2 * t));
      }
    }
    if (next.t != now.t && mine < shape.n_most) /* a sum that begins at +0 is never -0 */
      score[now.t * shape.n_most + mine] = mine < visible ? lsg_f32_to_bf16(sum) : (uint16_t)BF16_MINUS_INFINITY;
    now = next;
  }
}

/* ---- one query ---- */

/* Decode reads 256 bytes a key and multiplies little: what counts is that every SM always has enough bytes in flight. Each warp has a ring
 * of stages of 32 keys of its own, filled a stage ahead, and waits for no other warp; the query stays in its registers. Warps take the
 * tiles in turn, neighbouring tiles by different blocks, so that no SM has more than one tile more than another. The same sums in the same
 * order as above. */
enum {
  STREAM_WARPS = 8,
  STREAM_THREADS = STREAM_WARPS * 32,
  STREAM_STAGES = 2,
  STREAM_STAGE = SCORE_WARP_KEYS * SCORE_K,
  STREAM_BLOCKS = 132, /* at most: one for each SM of an H200 */
  STREAM_BYTES = STREAM_WARPS * STREAM_STAGES * STREAM_STAGE * (int)sizeof(uint16_t)
};

/* Where 16 bytes, number `unit` of a key's, lie in a stage: as in stage_place, for the two keys, four apart, of an access. */
LSG_DEVICE int key_place(int row, int unit) { return row * SCORE_K + (unit ^ (row & 4)) * 8; }

/* Starts the copy of keys first .. first + 31; those from `seen` on are zeros, those of no stage are left. One group of copies, always. */
LSG_DEVICE void keys_load(uint16_t *stage, const uint16_t *keys, int64_t first, int64_t seen, int units) {
  const int lane = lsg_lane(), odd = lane / (SCORE_K / 8), unit = lane % (SCORE_K / 8); /* row 2i + odd, whose bit 2 is that of 2i */
  const uint16_t *from = keys + first * units * 8 + lane * 8;
  if (units == SCORE_K / 8 && first + SCORE_WARP_KEYS <= seen) { /* addresses are constants apart */
    uint16_t *to[2] = {stage + key_place(odd, unit), stage + key_place(odd, unit ^ 4)};
    LSG_UNROLL
    for (int i = 0; i < SCORE_WARP_KEYS / 2; i++) lsg_cp_async16(to[i / 2 % 2] + 2 * i * SCORE_K, from + i * 256, 16);
  } else if (unit < units) {
    for (int row = odd; row < SCORE_WARP_KEYS && first < seen; row += 2) {
      const bool exists = first + row < seen;
      lsg_cp_async16(stage + key_place(row, unit), exists ? keys + ((first + row) * units + unit) * 8 : keys, exists ? 16 : 0);
    }
  }
  lsg_cp_async_commit();
}

/* One query of up to 32 heads of up to 128. */
LSG_KERNEL(STREAM_THREADS)
void index_score_stream_kernel(uint16_t *score, const uint16_t *q, const uint16_t *w, score_shape shape, const ls_gpu_attn_step *step) {
  LSG_DYNAMIC_SHARED(uint16_t, rings);
  lsg_let_next();
  lsg_wait_before();
  const int lane = lsg_lane(), g = lane >> 2, t = lane & 3, heads = (int)shape.heads, chunks = (int)shape.width / 32;
  const int64_t first = (lsg_warp() * lsg_grid_x() + lsg_block_x()) * SCORE_WARP_KEYS,
                stride = STREAM_WARPS * lsg_grid_x() * SCORE_WARP_KEYS;
  uint16_t *ring = rings + lsg_warp() * STREAM_STAGES * STREAM_STAGE;
  const int64_t seen = attn_visible(step, 0);
  const uint16_t *keys = step->index_cache;
  LSG_UNROLL
  for (int s = 0; s < STREAM_STAGES - 1; s++) keys_load(ring + s * STREAM_STAGE, keys, first + s * stride, seen, chunks * 4);

  /* head 8j + g: 16 bytes of each chunk; its weight, and those of heads 8j + 2t and 8j + 2t + 1 */
  lsg_u32x4 query[SCORE_HEADS / 8][SCORE_CHUNKS];
  float weight[SCORE_HEADS / 8][2];
  LSG_UNROLL
  for (int j = 0; j < SCORE_HEADS / 8; j++) {
    LSG_UNROLL
    for (int c = 0; c < SCORE_CHUNKS; c++) {
      query[j][c] = lsg_zero16();
      if (j * 8 + g < heads && c < chunks) query[j][c] = lsg_load16(q + (j * 8 + g) * shape.width + c * 32 + 8 * t);
    }
    LSG_UNROLL
    for (int e = 0; e < 2; e++) weight[j][e] = j * 8 + 2 * t + e < heads ? lsg_bf16_to_f32(w[j * 8 + 2 * t + e]) : 0.0f;
  }

  int now = 0, ahead = STREAM_STAGES - 1; /* stages: of this tile, of the one to be asked for */
  for (int64_t key = first; key < shape.n_most; key += stride) {
    if (key >= seen) {
      if (key + lane < shape.n_most) score[key + lane] = BF16_MINUS_INFINITY;
      continue;
    }
    lsg_cp_async_wait<STREAM_STAGES - 2>();
    lsg_warp_sync(LSG_FULL_MASK); /* this stage is there for all lanes, and all are done with the one before it */
    keys_load(ring + ahead * STREAM_STAGE, keys, key + (STREAM_STAGES - 1) * stride, seen, chunks * 4);
    const uint16_t *stage = ring + now * STREAM_STAGE;
    now = now + 1 < STREAM_STAGES ? now + 1 : 0, ahead = ahead + 1 < STREAM_STAGES ? ahead + 1 : 0;

    float dot[SCORE_HEADS / 8][2][4];
    LSG_UNROLL
    for (int j = 0; j < SCORE_HEADS / 8; j++) {
      LSG_UNROLL
      for (int e = 0; e < 4; e++) dot[j][0][e] = dot[j][1][e] = 0.0f;
    }
    LSG_UNROLL
    for (int c = 0; c < SCORE_CHUNKS; c++) {
      if (c >= chunks) break;
      lsg_u32x4 row[2][2]; /* row 8h + g of tile i is key 4g + 2i + h, as above */
      LSG_UNROLL
      for (int i = 0; i < 4; i++) row[i / 2][i % 2] = lsg_load16(stage + key_place(4 * g + i, c * 4 + t));
      LSG_UNROLL
      for (int half = 0; half < 2; half++) { /* eight products between two that add to the same sums */
        LSG_UNROLL
        for (int i = 0; i < 2; i++) {
          const lsg_u32x4 &lo = row[i][0], &hi = row[i][1];
          const uint32_t a[4] = {half ? lo.z : lo.x, half ? hi.z : hi.x, half ? lo.w : lo.y, half ? hi.w : hi.y};
          LSG_UNROLL
          for (int j = 0; j < SCORE_HEADS / 8; j++) {
            const uint32_t b[2] = {half ? query[j][c].z : query[j][c].x, half ? query[j][c].w : query[j][c].y};
            lsg_mma_bf16(dot[j][i], a, b);
          }
        }
      }
    }
    float sum = 0.0f;
    LSG_UNROLL
    for (int j = 0; j < SCORE_HEADS / 8; j++) {
      if (j * 8 < heads) sum = add_heads(sum, dot[j][0], dot[j][1], weight[j][0], weight[j][1], heads - (j * 8 + 2 * t));
    }
    if (key + lane < shape.n_most) score[key + lane] = key + lane < seen ? lsg_f32_to_bf16(sum) : (uint16_t)BF16_MINUS_INFINITY;
  }
}

/* Whether the variant for many queries takes them. */
static bool by_wgmma(int64_t m, int64_t heads, int64_t width, int64_t n_most) {
#if defined(__CUDACC__)
  return hopper_index_score_takes(m, heads, width, n_most);
#else
  (void)m, (void)heads, (void)width, (void)n_most;
  return false;
#endif
}

const char *ls_gpu_index_score_kernel(int64_t m, int64_t heads, int64_t width, int64_t n_most) {
  return by_wgmma(m, heads, width, n_most) ? "wgmma" : "portable";
}

lsg_status ls_gpu_index_score(uint16_t *score, const uint16_t *q, const uint16_t *w, int64_t m, int64_t heads, int64_t width,
                              int64_t n_most, const ls_gpu_attn_step *step, lsg_stream stream) {
  const score_shape shape = {m, heads, width, n_most};
  const int64_t queries = m < SCORE_QUERIES ? m : (int64_t)SCORE_QUERIES;
  if (n_most == 0) return LSG_OK;
  if (m == 1 && heads <= SCORE_HEADS && width <= SCORE_K) {
    const int64_t tiles = (n_most + SCORE_WARP_KEYS - 1) / SCORE_WARP_KEYS, blocks = tiles < STREAM_BLOCKS ? tiles : (int64_t)STREAM_BLOCKS;
    return LSG_LAUNCH_EARLY(index_score_stream_kernel, lsg_grid(blocks), STREAM_THREADS, STREAM_BYTES, stream, score, q, w, shape, step);
  }
#if defined(__CUDACC__)
  if (by_wgmma(m, heads, width, n_most)) return hopper_index_score(score, q, w, m, n_most, step, stream);
#endif
  auto kernel = width <= SCORE_K ? index_score_kernel<true> : index_score_kernel<false>;
  return LSG_LAUNCH_EARLY(kernel, lsg_grid((n_most + SCORE_KEYS - 1) / SCORE_KEYS, (m + queries - 1) / queries), SCORE_THREADS, 0, stream,
                          score, q, w, shape, queries, m <= queries, step);
}

}  // namespace LSG_NS
