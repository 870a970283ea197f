/* hopper_linear.cu: the linear product for more than 16 rows, on compute capability 9.0a.
 *
 * A block holds 128 rows of x by 160 channels: two warpgroups of 64 rows each, their sums in registers, and a warp that keeps a ring of
 * K pieces of 64 full through TMA. Two blocks of a cluster take rows below one another: each brings half of the piece of W to both.
 *
 * The K order is that of gpu_linear.h. Registers hold two sums: the range's, which wgmma adds to, and the total. So the order costs one
 * addition an element a range, and no more than two thirds of the registers.
 *
 * Tiles are dealt to the clusters in turn as long as they fill all of them: side by side in time they read the same rows of W and x from
 * L2. What is left over is dealt by K range, so that no multiprocessor is idle: a cluster that starts a tile leaves the total of its
 * ranges in the workspace, the others leave each range's sum; when all have arrived, each adds in range order, and stores, its share of the
 * tile's columns. All clusters are resident at once (one block a multiprocessor), and none waits before all of its own sums are out. */
#include <cuda.h>
#include <cuda_runtime.h>

#include "cuda_internal.cuh"
#include "hopper_linear.h"
#include "hopper_registers.cuh"
#include "hopper_tma.cuh"

namespace LSG_NS {

/* ---- shapes ---- */

enum {
  RANGES = LS_GPU_K_RANGES,
  BLOCK_ROWS = 128,
  CHANNELS = 160, /* of a block's tile: the published 5120 and 10240 are whole multiples; SUMS in registers, twice */
  SUMS = CHANNELS / 2,
  PIECE = TMA_PIECE,
  CONSUMERS = 256,
  THREADS = CONSUMERS + 128, /* the producer's warpgroup: registers are given up by the warpgroup */
  RUN = 32,                  /* channels that a quad of lanes stores at once: 64 bytes */
  BAND = 16,                 /* blocks of rows that are taken channel tile by channel tile */
  MOST_SPLIT = 5             /* ranges a cluster: more would save less than the sums cost */
};

/* What is done by whom, for one shape. A team is a cluster; tiles are a team's: BLOCK_ROWS * team_blocks rows by CHANNELS. */
typedef struct {
  int64_t rows, n;
  int row_tiles, channel_tiles, band; /* band: in row tiles */
  int pieces, range_pieces;           /* of K, and of a range */
  int teams, whole;                   /* tiles 0 .. whole - 1 are dealt whole */
  int units, share;                   /* (tile, range) of the rest, and how many a team takes */
} linear_plan;

enum { /* bytes of shared memory */
       X_TILE = BLOCK_ROWS * PIECE * 2,
       W_TILE = CHANNELS * PIECE * 2,
       STAGE = X_TILE + W_TILE,
       STAGES = 6,
       SHARED_BYTES = STAGES * (STAGE + 16)
};

#if !defined(__CUDA_ARCH__) || defined(__CUDA_ARCH_FEAT_SM90_ALL) /* for any other architecture the kernel is empty, and not launched */

/* ---- the instructions that gpu_device.h has no names for ---- */

/* Arrives at the same barrier of block `rank` of the cluster. Of block scope: what it says is that wgmma has read, and only TMA writes
 * after it. A release to the cluster would be a fence of all memory, a microsecond each time. */
LSG_DEVICE void barrier_arrive(uint32_t barrier, int rank) {
  asm volatile(
      "{.reg .b32 there;\n"
      "mapa.shared::cluster.u32 there, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [there];}\n" ::"r"(barrier),
      "r"(rank)
      : "memory");
}

LSG_DEVICE void barrier_arrive(uint32_t barrier) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(barrier) : "memory"); }

LSG_DEVICE void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}

LSG_DEVICE int cluster_rank() {
  int rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

/* A box of the map at (k, row), into all blocks of the mask, at the same place and barrier in each. */
LSG_DEVICE void tma_load_to(uint32_t to, const CUtensorMap *map, int k, int row, uint32_t barrier, int mask) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1, {%2, %3}], [%4], "
      "%5;" ::"r"(to),
      "l"(map), "r"(k), "r"(row), "r"(barrier), "h"((uint16_t)mask)
      : "memory");
}

LSG_DEVICE void wgmma_begin() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
LSG_DEVICE void wgmma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int left>
LSG_DEVICE void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(left) : "memory");
}

/* Registers that wgmma writes are not to be read or written by anything moved across this. */
template <int count>
LSG_DEVICE void wgmma_settle(float (&d)[count]) {
  LSG_UNROLL
  for (int i = 0; i < count; i++) asm volatile("" : "+f"(d[i])::"memory");
}

/* Of a tile in shared memory, rows of 128 bytes in the 128-byte swizzle, eight rows 1024 bytes apart, K along the row. */
LSG_DEVICE uint64_t tile_descriptor(uint32_t address) {
  return (uint64_t)((address & 0x3FFFFu) >> 4) | (uint64_t)1 << 16 | (uint64_t)(1024 >> 4) << 32 | (uint64_t)1 << 62;
}

/* d (64 rows by CHANNELS) = a . b, added to d where accumulate; 16 of K. Lane 4g + t of warp v of the warpgroup holds, of each eight
 * channels, (row 16v + g; channels 2t, 2t + 1) and the same of row 16v + g + 8. */
template <int type>
LSG_DEVICE void wgmma_k16(float (&d)[SUMS], uint64_t a, uint64_t b, int accumulate) {
  if constexpr (type == LSG_BF16) {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %82, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n160k16.f32.bf16.bf16 {" HOPPER_SUMS_80 "}, %80, %81, p, 1, 1, 0, 0;}\n"
        : HOPPER_OPERANDS_80(d)
        : "l"(a), "l"(b), "r"(accumulate));
  } else {
    asm volatile(
        "{.reg .pred p; setp.ne.b32 p, %82, 0;\n"
        "wgmma.mma_async.sync.aligned.m64n160k16.f32.f16.f16 {" HOPPER_SUMS_80 "}, %80, %81, p, 1, 1, 0, 0;}\n"
        : HOPPER_OPERANDS_80(d)
        : "l"(a), "l"(b), "r"(accumulate));
  }
}
/* ---- who does what, the same on all threads of a team ---- */

typedef struct {
  int row_tile, channel_tile, from, to; /* ranges [from, to) */
  int split;                            /* index among the split tiles; -1: whole */
} work_item;

/* Item i of a team; false after its last. */
LSG_DEVICE bool work_at(const linear_plan &plan, int team, int i, work_item *item) {
  int tile = team + i * plan.teams;
  item->from = 0, item->to = RANGES, item->split = -1;
  if (tile >= plan.whole) {
    int first = team * plan.share, end = first + plan.share < plan.units ? first + plan.share : plan.units;
    int piece = i - (team < plan.whole ? (plan.whole - team + plan.teams - 1) / plan.teams : 0);
    int split = first / RANGES + piece, begin = split * RANGES; /* a share is at most RANGES: parts of two tiles */
    item->from = first > begin ? first - begin : 0;
    item->to = end < begin + RANGES ? end - begin : RANGES;
    if (item->from >= item->to) return false;
    if (item->to - item->from < RANGES) item->split = split;
    tile = plan.whole + split;
  }
  int in_band = plan.band * plan.channel_tiles, band = tile / in_band, first_row = band * plan.band;
  int wide = plan.row_tiles - first_row < plan.band ? plan.row_tiles - first_row : plan.band;
  tile -= band * in_band;
  item->row_tile = first_row + tile % wide;
  item->channel_tile = tile / wide;
  return true;
}

LSG_DEVICE int range_pieces(const linear_plan &plan, int range) {
  int left = plan.pieces - range * plan.range_pieces;
  return left < 0 ? 0 : (left < plan.range_pieces ? left : plan.range_pieces);
}

/* A stage of the ring, and the parity of its present turn. */
typedef struct {
  int stage, parity;
} ring_place_at;

LSG_DEVICE void next_stage(ring_place_at *at) {
  if (++at->stage == STAGES) at->stage = 0, at->parity ^= 1;
}

/* ---- the producer ---- */

template <int team_blocks>
LSG_DEVICE void produce(const CUtensorMap *x_map, const CUtensorMap *w_map, const linear_plan &plan, uint32_t shared, int team, int rank) {
  const uint32_t full = shared + STAGES * STAGE, empty = full + STAGES * 8;
  auto load_w = [&](int stage, int piece, int channel) {
    const uint32_t w_tile = shared + stage * STAGE + X_TILE;
    barrier_expect(full + stage * 8, STAGE);
    if (team_blocks == 1)
      tma_load(w_tile, w_map, piece * PIECE, channel, full + stage * 8);
    else
      tma_load_to(w_tile + rank * (W_TILE / team_blocks), w_map, piece * PIECE, channel, full + stage * 8, (1 << team_blocks) - 1);
  };
  ring_place_at at = {0, 0};
  work_item item;
  if (!work_at(plan, team, 0, &item)) lsg_wait_before();
  for (int i = 0; work_at(plan, team, i, &item); i++) {
    const int row = (item.row_tile * team_blocks + rank) * BLOCK_ROWS;
    const int channel = item.channel_tile * CHANNELS + rank * (CHANNELS / team_blocks);
    int piece = item.from * plan.range_pieces, end = item.to * plan.range_pieces, ahead = 0;
    if (end > plan.pieces) end = plan.pieces;
    if (i == 0) { /* W is read before the launch in front has ended: nothing writes it */
      for (; ahead < STAGES && piece + ahead < end; ahead++) load_w(ahead, piece + ahead, channel);
      lsg_wait_before();
    }
    for (; piece < end; piece++, ahead--) {
      barrier_wait(empty + at.stage * 8, at.parity ^ 1); /* of the whole team: W goes to all of it */
      if (ahead <= 0) load_w(at.stage, piece, channel);
      tma_load(shared + at.stage * STAGE, x_map, piece * PIECE, row, full + at.stage * 8);
      next_stage(&at);
    }
  }
}

/* ---- the consumers ---- */

LSG_DEVICE void consumers_barrier() { asm volatile("bar.sync 1, %0;" ::"n"((int)CONSUMERS) : "memory"); }

/* Where thread `thread` keeps four of a tile's sums: four registers in turn, then the next thread's. */
LSG_DEVICE float4 *sums_at(float *sums, int64_t unit, int four, int thread) {
  return reinterpret_cast<float4 *>(sums) + (unit * (CHANNELS / 8) + four) * CONSUMERS + thread;
}

LSG_DEVICE void leave_sums(float *sums, int64_t unit, const float (&d)[SUMS]) {
  LSG_UNROLL
  for (int i = 0; i < CHANNELS / 8; i++) {
    float4 v = {d[4 * i], d[4 * i + 1], d[4 * i + 2], d[4 * i + 3]};
    *sums_at(sums, unit, i, (int)threadIdx.x) = v;
  }
}

/* Lane t of a quad holds word t of four rows of words; after it, row t. */
LSG_DEVICE void transpose_quad(uint32_t (&v)[4]) {
  const int t = lsg_lane() & 3;
  LSG_UNROLL
  for (int far = 1; far <= 2; far *= 2) {
    LSG_UNROLL
    for (int i = 0; i < 4; i++) {
      if (i & far) continue;
      uint32_t got = __shfl_xor_sync(LSG_FULL_MASK, t & far ? v[i] : v[i + far], far);
      if (t & far)
        v[i] = got;
      else
        v[i + far] = got;
    }
  }
}

/* Stores RUN channels of the thread's two rows: 16 registers of its sums. */
template <int type, class out_t>
LSG_DEVICE void store_run(const out_t &out, const float *d, const int64_t (&row)[2], const int64_t (&line)[2], int64_t channel,
                          const linear_plan &plan) {
  LSG_UNROLL
  for (int h = 0; h < 2; h++) {
    uint32_t v[4];
    LSG_UNROLL
    for (int i = 0; i < 4; i++) v[i] = lsg_act<type>::pack(d[4 * i + 2 * h], d[4 * i + 2 * h + 1]);
    transpose_quad(v);
    const int64_t at = channel + (lsg_lane() & 3) * 8;
    if (row[h] >= plan.rows || at >= plan.n) continue;
    lsg_u32x4 eight = {v[0], v[1], v[2], v[3]};
    lsg_store16(out_place(out, line[h], at), eight);
  }
}

/* The rows of a thread, and their lines. */
template <int team_blocks, class out_t>
LSG_DEVICE void rows_of(const out_t &out, const work_item &item, int rank, int64_t (&row)[2], int64_t (&line)[2]) {
  LSG_UNROLL
  for (int h = 0; h < 2; h++) {
    row[h] = (int64_t)(item.row_tile * team_blocks + rank) * BLOCK_ROWS + lsg_warp() * 16 + h * 8 + (lsg_lane() >> 2);
    line[h] = out_line(out, row[h]);
  }
}

/* The sums of a range, through the tensor core: in order from its first 16. */
template <int type, int team_blocks>
LSG_DEVICE void multiply_range(float (&sum)[SUMS], int pieces, uint32_t shared, ring_place_at *at) {
  const uint32_t full = shared + STAGES * STAGE, empty = full + STAGES * 8;
  auto release = [&](int stage) {
    if (lsg_lane() >= team_blocks) return;
    if (team_blocks == 1)
      barrier_arrive(empty + stage * 8);
    else
      barrier_arrive(empty + stage * 8, lsg_lane());
  };
  int before = at->stage;
  wgmma_settle(sum);
  for (int piece = 0; piece < pieces; piece++) {
    barrier_wait(full + at->stage * 8, at->parity);
    const uint32_t x_tile = shared + at->stage * STAGE + (threadIdx.x >> 7) * 64 * 128;
    uint64_t a = tile_descriptor(x_tile), b = tile_descriptor(shared + at->stage * STAGE + X_TILE);
    wgmma_begin();
    LSG_UNROLL
    for (int k = 0; k < PIECE / 16; k++) wgmma_k16<type>(sum, a + k * 2, b + k * 2, piece + k);
    wgmma_commit();
    wgmma_wait<1>();
    if (piece > 0) release(before);
    before = at->stage;
    next_stage(at);
  }
  wgmma_wait<0>();
  wgmma_settle(sum);
  release(before);
}

/* Adds what the teams of a split tile left, and stores the columns that are this one's share. */
template <int type, int team_blocks, class out_t>
LSG_DEVICE void finish_split(const out_t &out, const linear_plan &plan, const work_item &item, int team, int rank, float *sums,
                             unsigned *arrived) {
  const int unit = item.split * RANGES, first = unit / plan.share, last = (unit + RANGES - 1) / plan.share, parts = last - first + 1;
  const int summed = (first + 1) * plan.share - unit; /* ranges in the first team's total */
  unsigned *count = arrived + (item.split * team_blocks + rank) * 2;
  if (threadIdx.x == 0) {
    while (*(volatile unsigned *)count < (unsigned)parts) {
    }
    __threadfence();
  }
  consumers_barrier();
  int64_t row[2], line[2];
  rows_of<team_blocks>(out, item, rank, row, line);
  const int filled = (plan.pieces + plan.range_pieces - 1) / plan.range_pieces; /* ranges that are not empty */
  for (int run = team - first; run < CHANNELS / RUN; run += parts) {
    float4 left[RANGES][RUN / 8]; /* all on their way at once */
    LSG_UNROLL
    for (int range = 0; range < RANGES; range++) {
      LSG_UNROLL
      for (int i = 0; i < RUN / 8; i++) {
        left[range][i] = {0.0f, 0.0f, 0.0f, 0.0f}; /* nothing to add: a total is never -0 */
        if (range == 0 || (range >= summed && range < filled))
          left[range][i] = __ldcg(sums_at(sums, (int64_t)(unit + range) * team_blocks + rank, run * (RUN / 8) + i, (int)threadIdx.x));
      }
    }
    float total[RUN / 2];
    LSG_UNROLL
    for (int i = 0; i < RUN / 8; i++) {
      float4 t = {0.0f, 0.0f, 0.0f, 0.0f};
      LSG_UNROLL
      for (int range = 0; range < RANGES; range++)
        t.x += left[range][i].x, t.y += left[range][i].y, t.z += left[range][i].z, t.w += left[range][i].w;
      total[4 * i] = t.x, total[4 * i + 1] = t.y, total[4 * i + 2] = t.z, total[4 * i + 3] = t.w;
    }
    store_run<type>(out, total, row, line, (int64_t)item.channel_tile * CHANNELS + run * RUN, plan);
  }
  consumers_barrier();
  if (threadIdx.x == 0 && atomicAdd(count + 1, 1u) == (unsigned)parts - 1) { /* the last to read: as found, for the next launch */
    count[0] = 0;
    count[1] = 0;
  }
}

template <int type, int team_blocks, class out_t>
LSG_DEVICE void consume(const out_t &out, const linear_plan &plan, uint32_t shared, int team, int rank, float *sums, unsigned *arrived) {
  ring_place_at at = {0, 0};
  work_item item;
  float sum[SUMS], total[SUMS];
  lsg_wait_before();
  LSG_UNROLL
  for (int i = 0; i < SUMS; i++) sum[i] = 0.0f;
  for (int i = 0; work_at(plan, team, i, &item); i++) {
    const int64_t unit = ((int64_t)item.split * RANGES) * team_blocks + rank;
    LSG_UNROLL
    for (int e = 0; e < SUMS; e++) total[e] = 0.0f;
    for (int range = item.from; range < item.to; range++) {
      const int pieces = range_pieces(plan, range);
      if (pieces == 0) break; /* nothing to add: a total is never -0 */
      multiply_range<type, team_blocks>(sum, pieces, shared, &at);
      if (item.from > 0) {
        leave_sums(sums, unit + (int64_t)range * team_blocks, sum);
      } else {
        LSG_UNROLL
        for (int e = 0; e < SUMS; e++) total[e] += sum[e];
      }
    }
    if (item.split < 0) {
      int64_t row[2], line[2];
      rows_of<team_blocks>(out, item, rank, row, line);
      LSG_UNROLL
      for (int run = 0; run < CHANNELS / RUN; run++)
        store_run<type>(out, total + run * (RUN / 2), row, line, (int64_t)item.channel_tile * CHANNELS + run * RUN, plan);
    } else {
      if (item.from == 0) leave_sums(sums, unit, total);
      __threadfence();
      consumers_barrier();
      if (threadIdx.x == 0) atomicAdd(arrived + (item.split * team_blocks + rank) * 2, 1u);
    }
  }
  lsg_let_next();
  for (int i = 0; work_at(plan, team, i, &item); i++) {
    if (item.split >= 0) finish_split<type, team_blocks>(out, plan, item, team, rank, sums, arrived);
  }
}

#endif

/* ---- the kernel ---- */

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define CLUSTER_OF(blocks)
#else
#define CLUSTER_OF(blocks) __cluster_dims__(blocks)
#endif

template <int type, int team_blocks, class out_t>
__global__ CLUSTER_OF(team_blocks)
    __launch_bounds__(THREADS, 1) void hopper_linear_kernel(const __grid_constant__ CUtensorMap x_map,
                                                            const __grid_constant__ CUtensorMap w_map, const __grid_constant__ out_t out,
                                                            const __grid_constant__ linear_plan plan, float *sums, unsigned *arrived) {
#if defined(__CUDA_ARCH_FEAT_SM90_ALL)
  extern __shared__ __align__(1024) unsigned char hopper_shared[];
  const uint32_t shared = lsg_shared_address(hopper_shared), full = shared + STAGES * STAGE, empty = full + STAGES * 8;
  const int rank = team_blocks == 1 ? 0 : cluster_rank(), team = (int)blockIdx.x / team_blocks;
  if (threadIdx.x == 0) {
    for (int i = 0; i < STAGES; i++) {
      barrier_init(full + i * 8, 1);
      barrier_init(empty + i * 8, CONSUMERS / 32 * team_blocks);
    }
    barrier_init_done();
  }
  __syncthreads();
  if (team_blocks > 1) cluster_barrier();
  if (threadIdx.x >= CONSUMERS) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    if (threadIdx.x == CONSUMERS)
      produce<team_blocks>(&x_map, &w_map, plan, shared, team, rank);
    else
      lsg_wait_before();
    __syncwarp();
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    consume<type, team_blocks>(out, plan, shared, team, rank, sums, arrived);
  }
  if (team_blocks > 1) cluster_barrier(); /* no block ends while another may still arrive at its barriers */
#endif
}

/* ---- host ---- */

static linear_plan make_plan(const hopper_shape &s, int team_blocks, int teams) {
  const int64_t team_rows = BLOCK_ROWS * team_blocks;
  linear_plan p;
  p.rows = s.rows, p.n = s.n;
  p.row_tiles = (int)((s.rows + team_rows - 1) / team_rows);
  p.channel_tiles = (int)((s.n + CHANNELS - 1) / CHANNELS);
  p.band = BAND / team_blocks;
  p.range_pieces = (int)(ls_gpu_linear_range(s.k) / PIECE);
  p.pieces = (int)((s.k + PIECE - 1) / PIECE);
  p.teams = teams;
  const int tiles = p.row_tiles * p.channel_tiles;
  p.whole = tiles / p.teams * p.teams;
  p.units = (tiles - p.whole) * RANGES;
  p.share = (p.units + p.teams - 1) / p.teams;
  if (p.share > MOST_SPLIT) p.whole = tiles, p.units = 0, p.share = 1;
  return p;
}

template <int type, int team_blocks, class out_t>
static lsg_status launch(const hopper_workspace *workspace, const out_t &out, const uint16_t *x, const uint16_t *w, const hopper_shape &s,
                         lsg_stream stream) {
  CUtensorMap x_map, w_map;
  lsg_status status = tma_tile_map(&x_map, s.bf16, x, s.rows, s.k, s.ldx, BLOCK_ROWS, true);
  if (status == LSG_OK) status = tma_tile_map(&w_map, s.bf16, w, s.n, s.k, s.k, CHANNELS / team_blocks, true);
  if (status != LSG_OK) return status;
  const linear_plan plan = make_plan(s, team_blocks, workspace->teams[team_blocks - 1]);
  auto kernel = hopper_linear_kernel<type, team_blocks, out_t>;
  return LSG_LAUNCH_EARLY(kernel, lsg_grid(plan.teams * team_blocks), THREADS, SHARED_BYTES, stream, x_map, w_map, out, plan,
                          workspace->sums, workspace->arrived);
}

template <class out_t>
lsg_status hopper_linear(const hopper_workspace *workspace, const out_t &out, const uint16_t *x, const uint16_t *w, const hopper_shape &s,
                         lsg_stream stream) {
  if (s.rows <= BLOCK_ROWS)
    return s.bf16 ? launch<LSG_BF16, 1>(workspace, out, x, w, s, stream) : launch<LSG_F16, 1>(workspace, out, x, w, s, stream);
  return s.bf16 ? launch<LSG_BF16, 2>(workspace, out, x, w, s, stream) : launch<LSG_F16, 2>(workspace, out, x, w, s, stream);
}

/* How many clusters of the kernel are resident at once: they wait for one another. */
template <int team_blocks>
static cudaError_t count_teams(int *teams, int multiprocessors) {
  auto kernel = hopper_linear_kernel<LSG_BF16, team_blocks, dense_out>;
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, SHARED_BYTES);
  if (error != cudaSuccess) return error;
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = team_blocks, cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3((unsigned)(multiprocessors / team_blocks * team_blocks));
  config.blockDim = dim3(THREADS);
  config.dynamicSmemBytes = SHARED_BYTES;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaOccupancyMaxActiveClusters(teams, kernel, &config);
}

lsg_status hopper_workspace_new(hopper_workspace *workspace) {
  cuda_device device;
  cudaFuncAttributes image;
  *workspace = {};
  if (!cuda_device_ask(&device) || cudaFuncGetAttributes(&image, hopper_linear_kernel<LSG_BF16, 2, dense_out>) != cudaSuccess)
    return cuda_fail(LSG_FAILED, "the device's attributes: %s", cudaGetErrorString(cudaGetLastError()));
  /* built for 9.0 without the "a" the kernel is empty, and needs few registers */
  if (!device.hopper || image.numRegs < 64 || tma_encoder() == nullptr) return LSG_OK;
  if (count_teams<1>(&workspace->teams[0], device.multiprocessors) != cudaSuccess ||
      count_teams<2>(&workspace->teams[1], device.multiprocessors) != cudaSuccess || workspace->teams[0] < 1 || workspace->teams[1] < 1)
    return cuda_fail(LSG_FAILED, "clusters that are resident at once: %s", cudaGetErrorString(cudaGetLastError()));
  const size_t most_units = (size_t)device.multiprocessors * MOST_SPLIT, arrived_bytes = most_units * 2 * sizeof(unsigned);
  lsg_status status = lsg_alloc((void **)&workspace->sums, most_units * BLOCK_ROWS * CHANNELS * sizeof(float), "sums of K ranges");
  if (status == LSG_OK) status = lsg_alloc((void **)&workspace->arrived, arrived_bytes, "arrivals");
  if (status == LSG_OK && cudaMemset(workspace->arrived, 0, arrived_bytes) != cudaSuccess)
    status = cuda_fail(LSG_FAILED, "cudaMemset: %s", cudaGetErrorString(cudaGetLastError()));
  workspace->usable = status == LSG_OK;
  if (status != LSG_OK) hopper_workspace_free(workspace);
  return status;
}

void hopper_workspace_free(hopper_workspace *workspace) {
  lsg_free(workspace->sums);
  lsg_free(workspace->arrived);
  *workspace = {};
}

template lsg_status hopper_linear(const hopper_workspace *, const dense_out &, const uint16_t *, const uint16_t *, const hopper_shape &,
                                  lsg_stream);
template lsg_status hopper_linear(const hopper_workspace *, const parts_out &, const uint16_t *, const uint16_t *, const hopper_shape &,
                                  lsg_stream);
template lsg_status hopper_linear(const hopper_workspace *, const ls_gpu_ring &, const uint16_t *, const uint16_t *, const hopper_shape &,
                                  lsg_stream);

bool hopper_linear_takes(const hopper_workspace *workspace, int64_t n, int64_t k) {
  return workspace->usable && n % 8 == 0 && k % 8 == 0 && ls_gpu_linear_range(k) % PIECE == 0;
}

}  // namespace LSG_NS
