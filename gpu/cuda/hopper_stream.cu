/* hopper_stream.cu: the linear product for 1 to 16 rows, on compute capability 9.0.
 *
 * Bound by reading W, as linear_stream_kernel is; what is different is who moves the bytes. A warp has one K range of the block's 40
 * channels, and a ring of two stages that one lane keeps full through TMA, W and x alike: no instructions for addresses, missing rows come
 * as zeros, and x is read once for 40 channels instead of 16. W is the second operand of mma m16n8k16 here, x the first: 40 channels are
 * whole tiles of it, and the published 5120 and 10240 channels are 128 and 256 blocks, two to a multiprocessor.
 *
 * L2 must not fetch more than is asked for: promotion to 256 bytes cost 1 to 2 us of 66. */
#include "hopper_stream.h"

#include <cuda_runtime.h>

#include "hopper_tma.cuh"

namespace LSG_NS {

enum {
  STREAM_TILES = 5,                   /* of 8 channels */
  STREAM_CHANNELS = STREAM_TILES * 8, /* of a block */
  STREAM_WARPS = LS_GPU_K_RANGES,     /* a range each */
  STREAM_THREADS = STREAM_WARPS * 32,
  STREAM_STAGES = 2,                   /* of a warp's ring: two blocks' rings fill a multiprocessor */
  STREAM_LEAST = 96 * STREAM_CHANNELS, /* channels: fewer leave multiprocessors idle that smaller blocks would use */
  EIGHT_ROWS = 8 * TMA_PIECE * 2       /* bytes of eight rows, or channels, of a piece */
};

/* Products of up to halves * 8 rows. A stage: W's piece, then x's. */
template <int halves>
struct stream_ring {
  enum {
    ROWS = halves * 8,
    STAGE = (STREAM_TILES + halves) * EIGHT_ROWS,
    ALL = STREAM_WARPS * STREAM_STAGES * STAGE,
    BYTES = ALL + STREAM_WARPS * STREAM_STAGES * 8 /* a barrier a stage */
  };
};

typedef struct {
  int rows, n, pieces, range_pieces; /* of K, and of a range */
} stream_size;

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900 /* for any other architecture the kernel is empty, and not launched */

LSG_DEVICE void load_matrices(uint32_t r[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}

/* x's piece as the first operands of four steps of 16: (row 0-7, k 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15). */
template <int halves>
LSG_DEVICE void load_x(uint32_t (&a)[4][4], uint32_t tile) {
  const int lane = lsg_lane();
  if constexpr (halves == 2) {
    LSG_UNROLL
    for (int q = 0; q < 4; q++) load_matrices(a[q], tile + swizzled((lane & 7) + (lane >> 3 & 1) * 8, q * 2 + (lane >> 4)));
  } else {
    LSG_UNROLL
    for (int q = 0; q < 4; q += 2) {
      uint32_t r[4]; /* both halves of two steps */
      load_matrices(r, tile + swizzled(lane & 7, q * 2 + (lane >> 3)));
      a[q][0] = r[0], a[q][2] = r[1], a[q + 1][0] = r[2], a[q + 1][2] = r[3];
      a[q][1] = a[q][3] = a[q + 1][1] = a[q + 1][3] = 0;
    }
  }
}

/* sum [STREAM_TILES][4]: of this warp's range, in order. */
template <int type, int halves>
LSG_DEVICE void stream_range(float (&sum)[STREAM_TILES][4], const CUtensorMap *x_map, const CUtensorMap *w_map, uint32_t ring,
                             uint32_t full, const stream_size &size) {
  enum { STAGE = stream_ring<halves>::STAGE, X_AT = STREAM_TILES * EIGHT_ROWS };
  const int lane = lsg_lane(), first = (int)blockIdx.x * STREAM_CHANNELS, begin = lsg_warp() * size.range_pieces;
  const int left = size.pieces - begin, pieces = left < 0 ? 0 : (left < size.range_pieces ? left : size.range_pieces);
  auto load = [&](int stage, int piece) {
    barrier_expect(full + stage * 8, STAGE);
    tma_load(ring + stage * STAGE, w_map, (begin + piece) * TMA_PIECE, first, full + stage * 8);
  };
  auto load_rows = [&](int stage, int piece) {
    tma_load(ring + stage * STAGE + X_AT, x_map, (begin + piece) * TMA_PIECE, 0, full + stage * 8);
  };
  if (lane == 0) { /* W may be read before the launch in front has ended: nothing writes it */
    for (int s = 0; s < STREAM_STAGES; s++) barrier_init(full + s * 8, 1);
    barrier_init_done();
    for (int s = 0; s < STREAM_STAGES && s < pieces; s++) load(s, s);
  }
  lsg_let_next();
  __syncwarp();
  lsg_wait_before();
  if (lane == 0) {
    for (int s = 0; s < STREAM_STAGES && s < pieces; s++) load_rows(s, s);
  }
  LSG_UNROLL
  for (int t = 0; t < STREAM_TILES * 4; t++) sum[t / 4][t % 4] = 0.0f;
  int stage = 0, parity = 0;
  for (int piece = 0; piece < pieces; piece++) {
    const uint32_t w_tile = ring + stage * STAGE;
    uint32_t a[4][4];
    barrier_wait(full + stage * 8, parity);
    load_x<halves>(a, w_tile + X_AT);
    LSG_UNROLL
    for (int h = 0; h < 2; h++) {
      uint32_t b[STREAM_TILES][4]; /* the four k8 of two steps */
      LSG_UNROLL
      for (int t = 0; t < STREAM_TILES; t++) load_matrices(b[t], w_tile + t * EIGHT_ROWS + swizzled(lane & 7, h * 4 + (lane >> 3)));
      LSG_UNROLL
      for (int q = 0; q < 2; q++) {
        LSG_UNROLL
        for (int t = 0; t < STREAM_TILES; t++) lsg_act<type>::mma(sum[t], a[h * 2 + q], b[t] + q * 2);
      }
    }
    __syncwarp(); /* all lanes have read the stage */
    if (lane == 0 && piece + STREAM_STAGES < pieces) {
      load(stage, piece + STREAM_STAGES);
      load_rows(stage, piece + STREAM_STAGES);
    }
    if (++stage == STREAM_STAGES) stage = 0, parity ^= 1;
  }
}

#endif

template <int type, int halves, class out_t>
__global__ __launch_bounds__(STREAM_THREADS, 2) void hopper_stream_kernel(const __grid_constant__ CUtensorMap x_map,
                                                                          const __grid_constant__ CUtensorMap w_map,
                                                                          const __grid_constant__ out_t out,
                                                                          const __grid_constant__ stream_size size) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  using R = stream_ring<halves>;
  enum { LD = STREAM_CHANNELS }; /* of a row's sums: 8 words more than a multiple of 32, so a store meets every bank once */
  extern __shared__ __align__(1024) unsigned char hopper_stream_shared[];
  const uint32_t shared = lsg_shared_address(hopper_stream_shared);
  const int lane = lsg_lane(), warp = lsg_warp();
  float sum[STREAM_TILES][4];
  stream_range<type, halves>(sum, &x_map, &w_map, shared + warp * STREAM_STAGES * R::STAGE, shared + R::ALL + warp * STREAM_STAGES * 8,
                             size);
  __syncthreads(); /* the rings are free for the ranges' sums */
  float *partial = reinterpret_cast<float *>(hopper_stream_shared);
  LSG_UNROLL
  for (int h = 0; h < halves; h++) {
    LSG_UNROLL
    for (int t = 0; t < STREAM_TILES; t++) {
      const float2 two = {sum[t][2 * h], sum[t][2 * h + 1]};
      *reinterpret_cast<float2 *>(partial + (warp * R::ROWS + h * 8 + (lane >> 2)) * LD + t * 8 + (lane & 3) * 2) = two;
    }
  }
  __syncthreads();
  for (int i = (int)threadIdx.x; i < size.rows * STREAM_CHANNELS; i += STREAM_THREADS) {
    const int row = i / STREAM_CHANNELS, channel = i % STREAM_CHANNELS, at = (int)blockIdx.x * STREAM_CHANNELS + channel;
    if (at >= size.n) continue;
    float y = 0.0f;
    LSG_UNROLL
    for (int range = 0; range < LS_GPU_K_RANGES; range++) y += partial[(range * R::ROWS + row) * LD + channel];
    *out_place(out, out_line(out, row), at) = lsg_act<type>::round(y);
  }
#endif
}

/* ---- host ---- */

template <int type, int halves, class out_t>
static lsg_status launch(const out_t &out, const uint16_t *x, const uint16_t *w, const hopper_shape &s, lsg_stream stream) {
  CUtensorMap x_map, w_map;
  lsg_status status = tma_tile_map(&x_map, s.bf16, x, s.rows, s.k, s.ldx, stream_ring<halves>::ROWS, false);
  if (status == LSG_OK) status = tma_tile_map(&w_map, s.bf16, w, s.n, s.k, s.k, STREAM_CHANNELS, false);
  if (status != LSG_OK) return status;
  const stream_size size = {(int)s.rows, (int)s.n, (int)((s.k + TMA_PIECE - 1) / TMA_PIECE), (int)(ls_gpu_linear_range(s.k) / TMA_PIECE)};
  auto kernel = hopper_stream_kernel<type, halves, out_t>;
  return LSG_LAUNCH_EARLY(kernel, lsg_grid((s.n + STREAM_CHANNELS - 1) / STREAM_CHANNELS), STREAM_THREADS, stream_ring<halves>::BYTES,
                          stream, x_map, w_map, out, size);
}

template <class out_t>
lsg_status hopper_stream(const out_t &out, const uint16_t *x, const uint16_t *w, const hopper_shape &s, lsg_stream stream) {
  if (s.rows <= 8) return s.bf16 ? launch<LSG_BF16, 1>(out, x, w, s, stream) : launch<LSG_F16, 1>(out, x, w, s, stream);
  return s.bf16 ? launch<LSG_BF16, 2>(out, x, w, s, stream) : launch<LSG_F16, 2>(out, x, w, s, stream);
}

template lsg_status hopper_stream(const dense_out &, const uint16_t *, const uint16_t *, const hopper_shape &, lsg_stream);
template lsg_status hopper_stream(const ls_gpu_ring &, const uint16_t *, const uint16_t *, const hopper_shape &, lsg_stream);

bool hopper_stream_takes(const hopper_workspace *workspace, int64_t rows, int64_t n, int64_t k) {
  return rows <= LS_GPU_STREAM_ROWS && n >= STREAM_LEAST && n <= INT32_MAX && hopper_linear_takes(workspace, n, k);
}

}  // namespace LSG_NS
