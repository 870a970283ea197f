/* gpu_indexer.cu: index scores on tensor cores. What is chosen by them is in gpu_select.cu.
 *
 * Keys are the M operand of mma m16n8k16 and stay in registers: a warp holds 32 of them (up to 128 wide), read once, straight from memory,
 * for every head of every query of its block. Queries come through shared memory, a stage of 32 heads at a time, the next one in flight
 * while this one is multiplied. Decode is bound by reading the keys, so a block is small enough that several share an SM and keep enough
 * bytes in flight; prefill is bound by the tensor core.
 *
 * Inside each 32 of K the order is permuted as in linear_stream_kernel: lane t of a group of four owns elements 8t .. 8t+7 of a key and of
 * a head, so a fragment is 16 contiguous bytes of both.
 *
 * The sum over heads is in head order, as in the reference, so that the same dot products give the same bytes. A product tile leaves two of
 * its eight heads in each lane of a group of four, for the group's four keys; the rounded products, packed in pairs, are transposed among
 * the four lanes, after which each lane owns one key and adds up its heads one after another. */
#include "gpu_indexer.h"

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

/* Grid (tiles of 256 keys, tiles of `queries` queries). one_piece: a key fits in the registers; else its pieces are read again for every 32
 * heads. once: no other block reads these keys. */
template <bool one_piece>
LSG_KERNEL(SCORE_THREADS)
void index_score_kernel(uint16_t *score, const uint16_t *q, const uint16_t *w, score_shape shape, int64_t queries, bool once,
                        const ls_gpu_attn_step *step) {
  LSG_SHARED(uint16_t, stages, 2 * SCORE_HEADS * SCORE_K);
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
          lsg_u32x4 zero = {0, 0, 0, 0};
          key[c][i][h] = zero;
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
        uint32_t product[4];
        LSG_UNROLL
        for (int r = 0; r < 4; r++) product[r] = weigh(dot[j][r >> 1][(r & 1) * 2], dot[j][r >> 1][(r & 1) * 2 + 1], w0, w1);
        if (heads < j * 8 + 8) { /* a head that does not exist adds nothing, not 0 times an infinite key */
          const int exist = heads - (j * 8 + 2 * t);
          const uint32_t keep = exist >= 2 ? 0xFFFFFFFFu : exist == 1 ? 0xFFFFu : 0u;
          LSG_UNROLL
          for (int r = 0; r < 4; r++) product[r] &= keep;
        }
        transpose4(product);
        LSG_UNROLL
        for (int s = 0; s < 4; s++) {
          sum += lsg_act<LSG_BF16>::widen_lo(product[s]);
          sum += lsg_act<LSG_BF16>::widen_hi(product[s]);
        }
      }
    }
    if (next.t != now.t && mine < shape.n_most) /* a sum that begins at +0 is never -0 */
      score[now.t * shape.n_most + mine] = mine < visible ? lsg_f32_to_bf16(sum) : (uint16_t)BF16_MINUS_INFINITY;
    now = next;
  }
}

lsg_status ls_gpu_index_score(uint16_t *score, const uint16_t *q, const uint16_t *w, int64_t m, int64_t heads, int64_t width,
                              int64_t n_most, const ls_gpu_attn_step *step, lsg_stream stream) {
  const score_shape shape = {m, heads, width, n_most};
  const int64_t queries = m < SCORE_QUERIES ? m : (int64_t)SCORE_QUERIES;
  if (n_most == 0) return LSG_OK;
  auto kernel = width <= SCORE_K ? index_score_kernel<true> : index_score_kernel<false>;
  return LSG_LAUNCH(kernel, lsg_grid((n_most + SCORE_KEYS - 1) / SCORE_KEYS, (m + queries - 1) / queries), SCORE_THREADS, 0, stream, score,
                    q, w, shape, queries, m <= queries, step);
}

}  // namespace LSG_NS
