/* hopper_index_score.cu: index scores of many queries on Hopper's tensor cores (wgmma). The twin of index_score_kernel in gpu_indexer.cu,
 * for 32 heads of 128 elements: the same dot products, the same roundings, the same sum in the order of the heads.
 *
 * A block holds 256 keys in shared memory and takes four queries at a time past them, 4 x 32 heads as the 128 columns of a product. The
 * rows of a stage of queries are laid so that a thread's columns of the product are all the heads of one query, in order: column 8j + 2t +
 * e is head 2j + e of query t, and lane t of a group of four holds columns 8j + 2t and 8j + 2t + 1. So the sum over heads stays in a
 * register and no lane needs another's. Rows of keys are laid so that a thread's two rows are neighbours: their scores are one store.
 *
 * Each of four warpgroups has 64 of the keys. While one rounds, weighs and adds up its product, those of the others are on the tensor
 * cores: what they share, a ring of four stages of queries filled two ahead by bulk copies (whose tensor map has the order of the rows), is
 * guarded by barriers in memory, so that none waits for another unless it is two stages behind.
 *
 * Work is counted in stages: those of each tile of keys that sees any of its keys, tile after tile. Each block takes an equal part of the
 * count, so that the triangle of a causal prefill leaves none idle, and loads new keys where its part crosses into another tile. */
#include "hopper_index_score.cuh"

#include <cuda.h>
#include <cuda_runtime.h>

#include "cuda_internal.cuh"
#include "hopper_registers.cuh"
#include "hopper_tma.cuh"

namespace LSG_NS {

enum {
  HEADS = 32,
  WIDTH = 128,
  QUERIES = 4, /* of a stage */
  COLUMNS = QUERIES * HEADS,
  TILE_KEYS = 64, /* of a product */
  TILES = 4,      /* of a block, one for each warpgroup */
  KEYS = TILES * TILE_KEYS,
  THREADS = TILES * 128,
  STAGES = 4,
  AHEAD = 2,       /* stages asked for before they are needed */
  ROW_BYTES = 128, /* half a key or head: what a swizzle of 128 bytes takes */
  TILE_HALF = TILE_KEYS * ROW_BYTES,
  STAGE_HALF = COLUMNS * ROW_BYTES,
  UNITS = WIDTH / 8, /* of 16 bytes in a row */
  ALIGNMENT = 1024,
  DYNAMIC_BYTES = ALIGNMENT + 2 * TILES * TILE_HALF + STAGES * 2 * STAGE_HALF,
  MINUS_INFINITY_PAIR = 0xFF80
};

typedef struct {
  int64_t m, n_most;
} score_size;

#if defined(__CUDA_ARCH_FEAT_SM90_ALL)

/* A tile of rows of 128 bytes, K contiguous, swizzled by 128 bytes; groups of eight rows follow each other. The lower half holds the
 * address in units of 16 bytes, so that what lies further along is an addition away. */
LSG_DEVICE uint32_t descriptor_low(uint32_t address) { return address >> 4 | 1u << 16; }
LSG_DEVICE uint64_t descriptor(uint32_t low) { return (uint64_t)(8 * ROW_BYTES >> 4 | 1u << 30) << 32 | low; }

/* d [64, 128] = a [64, 16] . b [128, 16]^T, added to d or not */
LSG_DEVICE void wgmma_m64n128k16(float (&d)[64], uint64_t a, uint64_t b, int add) {
  asm volatile("{.reg .pred p; setp.ne.b32 p, %66, 0; wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 {" HOPPER_SUMS_64
               "}, "
               "%64, %65, p, 1, 1, 0, 0;}"
               : HOPPER_OPERANDS_64(d)
               : "l"(a), "l"(b), "r"(add));
}

LSG_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }

/* All products of this thread are done, and d holds what the last one made. */
LSG_DEVICE void wgmma_wait(float (&d)[64]) {
  asm volatile("wgmma.wait_group.sync.aligned 0;" ::: "memory");
  LSG_UNROLL
  for (int i = 0; i < 64; i++) asm volatile("" : "+f"(d[i])::"memory");
}

LSG_DEVICE void multiply(float (&d)[64], uint32_t tile, uint32_t stage) {
  const uint32_t a = descriptor_low(tile), b = descriptor_low(stage);
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
  LSG_UNROLL
  for (int k = 0; k < WIDTH / 16; k++) {
    const int half = k / 4, at = k % 4 * 32;
    wgmma_m64n128k16(d, descriptor(a + ((half * TILE_HALF + at) >> 4)), descriptor(b + ((half * STAGE_HALF + at) >> 4)), k > 0);
  }
  wgmma_commit();
}

LSG_DEVICE void gate_arrive(uint64_t *gate) {
  asm volatile("{.reg .b64 state; mbarrier.arrive.shared::cta.b64 state, [%0];}" ::"r"(lsg_shared_address(gate)) : "memory");
}

/* ---- copies ---- */

/* What this thread copied is there for the tensor core, once a barrier behind this is passed. */
LSG_DEVICE void publish() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* Keys first .. first + 255; those from `seen` on are zeros. Row 8h + g of 16 is key 2g + h. */
LSG_DEVICE void load_keys(unsigned char *tiles, const uint16_t *keys, int64_t first, int64_t seen) {
#pragma unroll 1
  for (int i = 0; i < KEYS * UNITS / THREADS; i++) {
    const int piece = lsg_thread() + i * THREADS, key = piece / UNITS, unit = piece % UNITS;
    const int row = (key % TILE_KEYS & ~15) + (key & 1) * 8 + (key % 16 >> 1);
    const bool exists = first + key < seen;
    lsg_cp_async16(tiles + (key / TILE_KEYS * 2 + unit / 8) * TILE_HALF + swizzled(row, unit % 8),
                   exists ? keys + (first + key) * WIDTH + unit * 8 : keys, exists ? 16 : 0);
  }
}

/* Queries 4s .. 4s + 3, zeros from m on, and the weights of those that exist; one thread. */
LSG_DEVICE void load_queries(unsigned char *stage, uint16_t *weights, uint64_t *full, const CUtensorMap *q, const uint16_t *w, int s,
                             int m) {
  const uint32_t to = lsg_shared_address(stage), gate = lsg_shared_address(full);
  const uint32_t weight_bytes = (uint32_t)(m - s * QUERIES < QUERIES ? m - s * QUERIES : (int)QUERIES) * HEADS * (uint32_t)sizeof(uint16_t);
  barrier_expect(gate, (int)(2 * STAGE_HALF + weight_bytes));
  LSG_UNROLL
  for (int half = 0; half < 2; half++)
    asm volatile("cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3, %4, %3}], [%5];" ::"r"(
                     to + half * STAGE_HALF),
                 "l"(q), "r"(half * WIDTH / 2), "r"(0), "r"(s * QUERIES), "r"(gate)
                 : "memory");
  asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(lsg_shared_address(weights)),
               "l"(__cvta_generic_to_global(w + (int64_t)s * COLUMNS)), "r"(weight_bytes), "r"(gate)
               : "memory");
}

/* bf16(relu(bf16(dot)) * w) of two heads: a NaN stays one through this relu, and -0 adds as little as +0. The product of two bf16 has the
 * bits of the float32 product rounded, for every pair of values (tried). */
LSG_DEVICE uint32_t weigh(float dot0, float dot1, uint32_t w) {
  uint32_t d;
  asm("cvt.rn.relu.bf16x2.f32 %0, %1, %2;" : "=r"(d) : "f"(dot1), "f"(dot0));
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(d) : "r"(d), "r"(w));
  return d;
}

/* Two scores, of keys in rows g and 8 + g, packed. */
LSG_DEVICE uint32_t sum_heads(const float (&d)[64], const uint16_t *weights, bool visible0, bool visible1) {
  typedef lsg_act<LSG_BF16> act;
  float sum0 = 0.0f, sum1 = 0.0f; /* a sum that begins at +0 is never -0 */
  LSG_UNROLL
  for (int i = 0; i < 4; i++) {
    const lsg_u32x4 v = lsg_load16(weights + i * 8);
    const uint32_t w[4] = {v.x, v.y, v.z, v.w};
    LSG_UNROLL
    for (int j = 0; j < 4; j++) {
      const float *four = d + (i * 4 + j) * 4;
      const uint32_t p0 = weigh(four[0], four[1], w[j]), p1 = weigh(four[2], four[3], w[j]);
      sum0 += act::widen_lo(p0), sum1 += act::widen_lo(p1);
      sum0 += act::widen_hi(p0), sum1 += act::widen_hi(p1);
    }
  }
  const uint32_t pair = lsg_pack_bf16(sum0, sum1);
  return (visible0 ? pair & 0xFFFFu : 0xFF80u) | (visible1 ? pair & 0xFFFF0000u : 0xFF800000u);
}

#endif

/* Grid: any number of blocks. */
__global__ __launch_bounds__(THREADS, 1) void hopper_index_score_kernel(uint16_t *score, const __grid_constant__ CUtensorMap q,
                                                                        const uint16_t *w, score_size size, const ls_gpu_attn_step *step) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  LSG_DYNAMIC_SHARED(unsigned char, dynamic);
  LSG_SHARED(uint16_t, weights, STAGES * COLUMNS);
  LSG_SHARED(uint64_t, full, STAGES);  /* the copies of a stage have landed */
  LSG_SHARED(uint64_t, empty, STAGES); /* nothing reads the stage any more: all warps */
  unsigned char *tiles = dynamic + (ALIGNMENT - (lsg_shared_address(dynamic) & (ALIGNMENT - 1))) % ALIGNMENT;
  unsigned char *stages = tiles + 2 * TILES * TILE_HALF;
  const int group = lsg_thread() / 128, g = lsg_lane() >> 2, t = lsg_lane() & 3;
  const uint32_t own_tile = lsg_shared_address(tiles) + (uint32_t)(group * 2 * TILE_HALF), stage_address = lsg_shared_address(stages);
  const int64_t n_most = size.n_most;
  const int m = (int)size.m, all = (m + QUERIES - 1) / QUERIES;

  /* the first query that sees a key, and the first stage that a tile of 256 keys has */
  auto first_query = [&](int64_t key) {
    const int64_t query = (key + 1) * step->ratio - 1 - step->start_pos;
    return query <= 0 ? 0 : query < m ? (int)query : m;
  };
  auto first_stage = [&](int tile) { return first_query((int64_t)tile * KEYS) / QUERIES; };
  const int64_t seen = attn_visible(step, m - 1);
  int64_t total = 0;
  for (int tile = 0; (int64_t)tile * KEYS < seen; tile++) total += all - first_stage(tile);
  const int64_t begin = total * lsg_block_x() / lsg_grid_x();
  const int count = (int)(total * (lsg_block_x() + 1) / lsg_grid_x() - begin);

  struct place {
    int tile, s;
  } now = {0, 0}, ahead;
  auto advance = [&](place &p) {
    if (++p.s == all) p.tile++, p.s = first_stage(p.tile);
  };
  if (count > 0) {
    int64_t at = begin;
    while (at >= all - first_stage(now.tile)) at -= all - first_stage(now.tile++);
    now.s = first_stage(now.tile) + (int)at;
    load_keys(tiles, step->index_cache, (int64_t)now.tile * KEYS, seen);
  }
  lsg_cp_async_commit();
  ahead = now;
  if (lsg_thread() == 0) {
    for (int i = 0; i < STAGES; i++) {
      barrier_init(lsg_shared_address(&full[i]), 1);
      barrier_init(lsg_shared_address(&empty[i]), THREADS / 32);
    }
    barrier_init_done();
    publish();
    for (int i = 0; i < AHEAD && i < count; i++) {
      load_queries(stages + i * 2 * STAGE_HALF, weights + i * COLUMNS, &full[i], &q, w, ahead.s, m);
      advance(ahead);
    }
  }

  /* what no stage writes is -inf */
  for (int row = (int)lsg_block_x(); row < m; row += (int)lsg_grid_x()) {
    const int last = (row | (QUERIES - 1)) < m ? row | (QUERIES - 1) : m - 1;
    const int64_t from = (attn_visible(step, last) + KEYS - 1) / KEYS * KEYS;
    if (n_most % 8 == 0) {
      const lsg_u32x4 v = {0xFF80FF80u, 0xFF80FF80u, 0xFF80FF80u, 0xFF80FF80u};
      for (int64_t i = from + lsg_thread() * 8; i < n_most; i += THREADS * 8) lsg_store16(score + row * n_most + i, v);
    } else {
      for (int64_t i = from + lsg_thread() * 2; i < n_most; i += THREADS * 2)
        *reinterpret_cast<uint32_t *>(score + row * n_most + i) = 0xFF80FF80u;
    }
  }

  lsg_cp_async_wait<0>();
  publish();
  lsg_barrier(); /* the keys are there, and the barriers */

  float dot[64];
  for (int i = 0; i < count;) {
    const int tile_end = all - now.s < count - i ? i + all - now.s : count;
    const int64_t first = (int64_t)now.tile * KEYS + group * TILE_KEYS, key = first + lsg_warp() % 4 * 16 + 2 * g;
    const int first_of_group = first_query(first), first_of_0 = first_query(key), first_of_1 = first_query(key + 1);
    int query = now.s * QUERIES + t;
    uint16_t *to = score + query * n_most + key;
    const int stored = key < n_most ? m : 0; /* queries that store */
    for (; i < tile_end; i++, query += QUERIES, to += QUERIES * n_most) {
      const int slot = i & (STAGES - 1);
      if (lsg_thread() == 0 && i + AHEAD < count) {
        const int j = i + AHEAD, place = j & (STAGES - 1); /* in the place of stage j - STAGES */
        if (j >= STAGES) barrier_wait(lsg_shared_address(&empty[place]), (j / STAGES - 1) & 1);
        load_queries(stages + place * 2 * STAGE_HALF, weights + place * COLUMNS, &full[place], &q, w, ahead.s, m);
        advance(ahead);
      }
      barrier_wait(lsg_shared_address(&full[slot]), (i / STAGES) & 1);
      lsg_warp_sync(LSG_FULL_MASK);
      const bool visible = (query | (QUERIES - 1)) >= first_of_group; /* the same for the whole warpgroup */
      uint32_t pair = 0xFF80FF80u;
      if (visible) {
        multiply(dot, own_tile, stage_address + (uint32_t)(slot * 2 * STAGE_HALF));
        wgmma_wait(dot);
        pair = sum_heads(dot, weights + slot * COLUMNS + t * HEADS, query >= first_of_0, query >= first_of_1);
      }
      lsg_warp_sync(LSG_FULL_MASK);
      if (lsg_lane() == 0) gate_arrive(&empty[slot]);
      if (query < stored) *reinterpret_cast<uint32_t *>(to) = pair;
    }
    if (i < count) { /* the tile's last query is behind this: the next tile */
      now.tile++, now.s = first_stage(now.tile);
      lsg_barrier(); /* all are done with the keys */
      load_keys(tiles, step->index_cache, (int64_t)now.tile * KEYS, attn_visible(step, m - 1));
      lsg_cp_async_commit();
      lsg_cp_async_wait<0>();
      publish();
      lsg_barrier();
    }
  }
#else
  (void)score, (void)q, (void)w, (void)size, (void)step;
#endif
}

/* What the device in use gives, asked once. */
typedef struct {
  int multiprocessors;
  tma_encode_fn *encode; /* NULL: the kernel does not run here */
} score_device;

static score_device ask_device(void) {
  score_device d = {0, nullptr};
  cuda_device device;
  cudaFuncAttributes image;
  if (!cuda_device_ask(&device) || cudaFuncGetAttributes(&image, hopper_index_score_kernel) != cudaSuccess) {
    cudaGetLastError();
    return d;
  }
  d.multiprocessors = device.multiprocessors;
  /* built for 9.0 without its "a" the kernel has no body, and no shared memory */
  if (device.hopper && image.sharedSizeBytes > 0) d.encode = tma_encoder();
  return d;
}

static const score_device &the_device(void) {
  static const score_device d = ask_device();
  return d;
}

bool hopper_index_score_takes(int64_t m, int64_t heads, int64_t width, int64_t n_most) {
  return heads == HEADS && width == WIDTH && m >= 64 && m < INT32_MAX / 2 && n_most % 2 == 0 && the_device().encode != nullptr;
}

/* q as stages are laid: 64 elements of a head, its two neighbours, four queries, sixteen pairs of heads. */
static lsg_status map_queries(CUtensorMap *map, const uint16_t *q, int64_t m) {
  const cuuint64_t row = WIDTH * sizeof(uint16_t);
  const cuuint64_t count[4] = {WIDTH, 2, (cuuint64_t)m, HEADS / 2}, stride[3] = {row, HEADS * row, 2 * row};
  const cuuint32_t box[4] = {WIDTH / 2, 2, QUERIES, HEADS / 2}, step[4] = {1, 1, 1, 1};
  const CUresult result = the_device().encode(map, CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, 4, const_cast<uint16_t *>(q), count, stride, box, step,
                                              CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
                                              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? LSG_OK : cuda_fail(LSG_FAILED, "index scores: cuTensorMapEncodeTiled: error %d", (int)result);
}

lsg_status hopper_index_score(uint16_t *score, const uint16_t *q, const uint16_t *w, int64_t m, int64_t n_most,
                              const ls_gpu_attn_step *step, lsg_stream stream) {
  CUtensorMap map;
  const score_size size = {m, n_most};
  const lsg_status status = map_queries(&map, q, m);
  if (status != LSG_OK) return status;
  return LSG_LAUNCH(hopper_index_score_kernel, lsg_grid(the_device().multiprocessors), THREADS, DYNAMIC_BYTES, stream, score, map, w, size,
                    step);
}

}  // namespace LSG_NS
