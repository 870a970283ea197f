/* gpu_linear.cu: the two GEMM kernels of this project's own.
 *
 * linear_stream_kernel is bound by reading W. Weights are the M operand of mma m16n8k16 (16 output channels), activations the N operand (8
 * or 16 columns, missing rows are zeros), so no multiply is wasted on padding W. Each warp has a range of K and a ring of cp.async stages
 * of its own, which it fills before the launch in front of it has ended. Instructions count: addresses only ever step on.
 *
 * linear_tile_kernel is the plain one: 64 x 64 x 32 tiles through shared memory, cp.async double buffering, ldmatrix, four warps. Two sums
 * an element: of the K range, and of the ranges before it.
 *
 * On compute capability 9.0 cuda/hopper_stream.cu takes the place of the first where there are many channels, and cuda/hopper_linear.cu
 * that of the library, where they can. */
#include "gpu_linear_out.h"

#if defined(__CUDACC__)
#include "cuda/hopper_stream.h"
#endif

namespace LSG_NS {

/* ---- rows 1..16 ---- */

enum {
  STREAM_K = 64,   /* elements of a row in a stage: 8 pieces of 16 bytes */
  STREAM_ROWS = 4, /* rows that a warp loads at once, 8 lanes a row */
  STREAM_TILE = 16 /* channels of a warp */
};

/* Where 16-byte piece p of row r stands in a stage: eight rows of an ldmatrix lie in eight bank groups. */
LSG_DEVICE int stream_piece(int r, int p) { return r * STREAM_K + (p ^ (r & 7)) * 8; }

/* 8 elements of a row into shared memory, zeros from the first `left` on. vector: k is a multiple of 8 and rows are 16-byte aligned. */
template <bool vector, bool once>
LSG_DEVICE void stream_load8(uint16_t *to, const uint16_t *from, int left) {
  if constexpr (vector) {
    const int bytes = left >= 8 ? 16 : (left > 0 ? left * 2 : 0);
    once ? lsg_cp_async16_once(to, from, bytes) : lsg_cp_async16(to, from, bytes);
  } else {
    for (int e = 0; e < 8; e++) to[e] = e < left ? from[e] : (uint16_t)0;
  }
}

/* m_tiles x 16 channels a warp, ranges: of K, that it has one after the other. 72 KB a block, three on a multiprocessor: then all blocks of
 * the published products run at once, or in waves that end together. */
template <int warps, int m_tiles, int n_tiles, int ranges>
struct stream_shape {
  enum {
    COLUMNS = n_tiles * 8, /* rows of x, missing ones are zeros */
    THREADS = warps * 32,
    STAGES = 3,
    CHANNELS = m_tiles * STREAM_TILE, /* of a warp */
    W_STAGE = CHANNELS * STREAM_K,
    X_STAGE = COLUMNS * STREAM_K,
    BYTES = warps * STAGES * (W_STAGE + X_STAGE) * 2,
    SHARERS = LS_GPU_K_RANGES / ranges, /* warps of a tile of channels */
    TILES = warps / SHARERS,            /* of a block */
    LD = CHANNELS + 4                   /* of the ranges' sums in shared memory; + 4: no two lanes of a store hit one bank */
  };
};

/* A warp's way along its ranges, a stage at a time: elements from this lane's piece to the end of the range, and how far the next stage is.
 */
typedef struct {
  int left, step;
} stream_cursor;

/* Block (i, 0, z): TILES x 16 channels of group z, all of K. A warp's stages are its own: no barrier until the ranges are added. */
template <class S, int type, int m_tiles, int n_tiles, int ranges, bool vector, class out_t>
LSG_KERNEL(S::THREADS)
void linear_stream_kernel(out_t out, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t n, int64_t k, int64_t ldx) {
  LSG_DYNAMIC_SHARED(uint16_t, ring);
  const int lane = lsg_lane(), warp = lsg_warp(), piece = lane & 7, row_of_lane = lane >> 3;
  const int64_t first = (lsg_block_x() * S::TILES + warp / S::SHARERS) * S::CHANNELS; /* this warp's channels */
  uint16_t *w_ring = ring + warp * S::STAGES * S::W_STAGE,
           *x_ring = ring + S::THREADS / 32 * S::STAGES * S::W_STAGE + warp * S::STAGES * S::X_STAGE;
  out_group(out, lsg_block_z() * n);

  const int64_t length = ls_gpu_linear_range(k), begin = warp % S::SHARERS * ranges * length;
  const int all = begin < k ? (int)(k - begin < ranges * length ? k - begin : ranges * length) : 0; /* elements of all its ranges */
  const int range_steps = (int)((length + STREAM_K - 1) / STREAM_K), last_step = (int)length - (range_steps - 1) * STREAM_K;
  const int steps = ranges > 1 ? ranges * range_steps : (all + STREAM_K - 1) / STREAM_K;
  const uint16_t *w_next[S::CHANNELS / STREAM_ROWS], *x_next[S::COLUMNS / STREAM_ROWS];
  LSG_UNROLL
  for (int i = 0; i < S::CHANNELS / STREAM_ROWS; i++) { /* channels that do not exist read the last one: nobody stores them */
    const int64_t channel = first + i * STREAM_ROWS + row_of_lane;
    w_next[i] = w + (lsg_block_z() * n + (channel < n ? channel : n - 1)) * k + begin + piece * 8;
  }
  LSG_UNROLL
  for (int i = 0; i < S::COLUMNS / STREAM_ROWS; i++)
    x_next[i] = x + (i * STREAM_ROWS + row_of_lane) * ldx + lsg_block_z() * k + begin + piece * 8;
  const int rows_of_lane = ((int)rows - row_of_lane + STREAM_ROWS - 1) / STREAM_ROWS;

  /* elements that a stage has from this lane's piece on, and on to the next stage */
  stream_cursor w_at = {all - piece * 8, 0}, x_at = w_at;
  auto here = [&](const stream_cursor &at) {
    const int in_range = ranges > 1 && at.step == range_steps - 1 ? last_step - piece * 8 : STREAM_K;
    return at.left < in_range ? at.left : in_range;
  };
  auto forward = [&](stream_cursor &at) {
    const bool last = ranges > 1 && at.step == range_steps - 1;
    const int by = last ? last_step : STREAM_K;
    at.left -= by;
    at.step = last ? 0 : at.step + 1;
    return by;
  };
  auto load_w = [&](int slot) {
    const int left = here(w_at), by = forward(w_at);
    LSG_UNROLL
    for (int i = 0; i < S::CHANNELS / STREAM_ROWS; i++) {
      stream_load8<vector, true>(w_ring + slot * S::W_STAGE + stream_piece(i * STREAM_ROWS + row_of_lane, piece), w_next[i], left);
      w_next[i] += by;
    }
  };
  auto load_x = [&](int slot) {
    const int left = here(x_at), by = forward(x_at);
    LSG_UNROLL
    for (int i = 0; i < S::COLUMNS / STREAM_ROWS; i++) {
      if (i < rows_of_lane)
        stream_load8<vector, false>(x_ring + slot * S::X_STAGE + stream_piece(i * STREAM_ROWS + row_of_lane, piece), x_next[i], left);
      x_next[i] += by;
    }
  };

  /* W may be read before the launch in front has ended: nothing writes it */
  LSG_UNROLL
  for (int step = 0; step < S::STAGES - 1; step++) {
    if (step < steps) load_w(step);
    lsg_cp_async_commit();
  }
  for (int i = lane; i < S::STAGES * S::X_STAGE / 8; i += 32) { /* rows that do not exist; the others are filled stage by stage */
    if (i / (STREAM_K / 8) % S::COLUMNS >= rows) lsg_store16(x_ring + i * 8, lsg_zero16());
  }
  lsg_wait_before();
  lsg_let_next();
  LSG_UNROLL
  for (int step = 0; step < S::STAGES - 1; step++) {
    if (step < steps) load_x(step);
    lsg_cp_async_commit();
  }

  float sum[ranges][m_tiles][n_tiles][4];
  /* ldmatrix: lanes 8i .. 8i+7 name the rows of 8x8 matrix i. A: (0, 0), (8, 0), (0, 8), (8, 8); B: the four k8 of two k16 steps. */
  const int a_row = (lane & 7) + ((lane >> 3) & 1) * 8, a_piece = lane >> 4, b_row = lane & 7, b_piece = lane >> 3;
  int slot = 0, free_slot = S::STAGES - 1, ahead = S::STAGES - 1;
  auto run_range = [&](float sum_here[m_tiles][n_tiles][4], int count) {
    LSG_UNROLL
    for (int i = 0; i < m_tiles * n_tiles * 4; i++) sum_here[i / 4 / n_tiles][i / 4 % n_tiles][i % 4] = 0.0f;
    for (int step = 0; step < count; step++) {
      lsg_cp_async_wait<S::STAGES - 2>();
      lsg_warp_sync(LSG_FULL_MASK); /* this stage is there for all lanes, and the one before is read by all */
      if (ahead < steps) {
        load_w(free_slot);
        load_x(free_slot);
        ahead++;
      }
      lsg_cp_async_commit();
      const uint16_t *ws = w_ring + slot * S::W_STAGE, *xs = x_ring + slot * S::X_STAGE;
      free_slot = slot;
      slot = slot + 1 < S::STAGES ? slot + 1 : 0;
      LSG_UNROLL
      for (int half = 0; half < 2; half++) {
        uint32_t b[n_tiles][4];
        LSG_UNROLL
        for (int j = 0; j < n_tiles; j++) lsg_ldmatrix_x4(b[j], xs + stream_piece(j * 8 + b_row, half * 4 + b_piece));
        LSG_UNROLL
        for (int q = 0; q < 2; q++) {
          LSG_UNROLL
          for (int i = 0; i < m_tiles; i++) {
            uint32_t a[4];
            lsg_ldmatrix_x4(a, ws + stream_piece(i * 16 + a_row, half * 4 + q * 2 + a_piece));
            LSG_UNROLL
            for (int j = 0; j < n_tiles; j++) lsg_act<type>::mma(sum_here[i][j], a, b[j] + q * 2);
          }
        }
      }
    }
  };
  LSG_UNROLL
  for (int r = 0; r < ranges; r++) run_range(sum[r], ranges > 1 ? range_steps : steps);
  lsg_cp_async_wait<0>();
  lsg_barrier(); /* the ring is free for the ranges' sums */
  float *partial = reinterpret_cast<float *>(ring) + warp / S::SHARERS * LS_GPU_K_RANGES * S::COLUMNS * S::LD;
  LSG_UNROLL
  for (int r = 0; r < ranges; r++) {
    LSG_UNROLL
    for (int i = 0; i < m_tiles * n_tiles; i++) {
      LSG_UNROLL
      for (int e = 0; e < 4; e++) {
        const int channel = i / n_tiles * 16 + (e >> 1) * 8 + (lane >> 2), column = i % n_tiles * 8 + (lane & 3) * 2 + (e & 1);
        partial[((warp % S::SHARERS * ranges + r) * S::COLUMNS + column) * S::LD + channel] = sum[r][i / n_tiles][i % n_tiles][e];
      }
    }
  }
  lsg_barrier();
  for (int i = warp % S::SHARERS * 32 + lane; i < S::COLUMNS * S::CHANNELS; i += S::SHARERS * 32) {
    const int channel = i % S::CHANNELS, row = i / S::CHANNELS;
    if (row >= rows || first + channel >= n) continue;
    float y = 0.0f;
    LSG_UNROLL
    for (int range = 0; range < LS_GPU_K_RANGES; range++) y += partial[(range * S::COLUMNS + row) * S::LD + channel];
    *out_place(out, out_line(out, row), first + channel) = lsg_act<type>::round(y);
  }
}

/* ---- more rows ---- */

enum {
  TILE_ROWS = 64,
  TILE_CHANNELS = 64,
  TILE_K = 32,
  TILE_LD = TILE_K + 8, /* 80 bytes: eight rows of an ldmatrix lie in eight bank groups */
  TILE_THREADS = 128
};

/* 64 rows of TILE_K elements from `at`, zeros where there is nothing. Each thread brings two 16-byte pieces. */
template <bool vector>
LSG_DEVICE void tile_load(uint16_t *tile, const uint16_t *from, int64_t first, int64_t rows, int64_t at, int64_t k, int64_t ld) {
  LSG_UNROLL
  for (int i = 0; i < 2; i++) {
    int piece = lsg_thread() + i * TILE_THREADS, r = piece >> 2, p = (piece & 3) * 8;
    int64_t left = first + r < rows ? k - (at + p) : 0;
    if (left < 0) left = 0;
    const uint16_t *source = left > 0 ? from + (first + r) * ld + at + p : from;
    uint16_t *to = tile + r * TILE_LD + p;
    if constexpr (vector) {
      lsg_cp_async16(to, source, left >= 8 ? 16 : (int)left * 2);
    } else {
      for (int e = 0; e < 8; e++) to[e] = e < left ? source[e] : (uint16_t)0;
    }
  }
}

template <int type, bool vector, class out_t>
LSG_KERNEL(TILE_THREADS)
void linear_tile_kernel(out_t out, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t n, int64_t k, int64_t range, int64_t ldx) {
  LSG_SHARED(uint16_t, x_tile, 2 * TILE_ROWS * TILE_LD);
  LSG_SHARED(uint16_t, w_tile, 2 * TILE_CHANNELS * TILE_LD);
  const int64_t first_channel = lsg_block_x() * TILE_CHANNELS, first_row = lsg_block_y() * TILE_ROWS;
  x += lsg_block_z() * k; /* z: the group */
  w += lsg_block_z() * n * k;
  out_group(out, lsg_block_z() * n);
  const int lane = lsg_lane(), warp_row = (lsg_warp() & 1) * 32, warp_channel = (lsg_warp() >> 1) * 32;
  /* ldmatrix: lanes 8m .. 8m+7 name the rows of 8x8 matrix m. A: (rows 0-7, k 0-7), (8-15, 0-7), (0-7, 8-15), (8-15, 8-15).
   * B: both k halves of one tile of 8 channels, then of the next. */
  const int a_at = ((lane & 7) + ((lane >> 3) & 1) * 8) * TILE_LD + (lane >> 4) * 8;
  const int b_at = ((lane & 7) + (lane >> 4) * 8) * TILE_LD + ((lane >> 3) & 1) * 8;

  float total[2][4][4], sum[2][4][4];
  LSG_UNROLL
  for (int i = 0; i < 2; i++) {
    LSG_UNROLL
    for (int j = 0; j < 4; j++) {
      LSG_UNROLL
      for (int e = 0; e < 4; e++) total[i][j][e] = sum[i][j][e] = 0.0f;
    }
  }
  auto end_range = [&] {
    LSG_UNROLL
    for (int i = 0; i < 2; i++) {
      LSG_UNROLL
      for (int j = 0; j < 4; j++) {
        LSG_UNROLL
        for (int e = 0; e < 4; e++) {
          total[i][j][e] += sum[i][j][e];
          sum[i][j][e] = 0.0f;
        }
      }
    }
  };

  tile_load<vector>(x_tile, x, first_row, rows, 0, k, ldx);
  tile_load<vector>(w_tile, w, first_channel, n, 0, k, k);
  lsg_cp_async_commit();
  int stage = 0;
  int64_t range_end = range; /* a multiple of TILE_K */
  for (int64_t at = 0; at < k; at += TILE_K, stage ^= 1) {
    if (at + TILE_K < k) {
      tile_load<vector>(x_tile + (stage ^ 1) * TILE_ROWS * TILE_LD, x, first_row, rows, at + TILE_K, k, ldx);
      tile_load<vector>(w_tile + (stage ^ 1) * TILE_CHANNELS * TILE_LD, w, first_channel, n, at + TILE_K, k, k);
    }
    lsg_cp_async_commit(); /* an empty group at the end, so that "all but the newest" always means this stage */
    lsg_cp_async_wait<1>();
    lsg_barrier();
    const uint16_t *xs = x_tile + (stage * TILE_ROWS + warp_row) * TILE_LD + a_at;
    const uint16_t *ws = w_tile + (stage * TILE_CHANNELS + warp_channel) * TILE_LD + b_at;
    LSG_UNROLL
    for (int kk = 0; kk < TILE_K; kk += 16) {
      uint32_t a[2][4], b[2][4];
      LSG_UNROLL
      for (int i = 0; i < 2; i++) lsg_ldmatrix_x4(a[i], xs + i * 16 * TILE_LD + kk);
      LSG_UNROLL
      for (int j = 0; j < 2; j++) lsg_ldmatrix_x4(b[j], ws + j * 16 * TILE_LD + kk);
      LSG_UNROLL
      for (int i = 0; i < 2; i++) {
        LSG_UNROLL
        for (int j = 0; j < 4; j++) lsg_act<type>::mma(sum[i][j], a[i], b[j >> 1] + (j & 1) * 2);
      }
    }
    if (at + TILE_K == range_end) {
      end_range();
      range_end += range;
    }
    lsg_barrier(); /* before the next turn overwrites this stage */
  }
  end_range(); /* the last one, where k ends before it does; else nothing: a total is never -0 */

  LSG_UNROLL
  for (int i = 0; i < 2; i++) {
    LSG_UNROLL
    for (int h = 0; h < 2; h++) {
      int64_t row = first_row + warp_row + i * 16 + h * 8 + (lane >> 2);
      if (row >= rows) continue;
      int64_t line = out_line(out, row);
      LSG_UNROLL
      for (int j = 0; j < 4; j++) {
        LSG_UNROLL
        for (int e = 0; e < 2; e++) {
          int64_t channel = first_channel + warp_channel + j * 8 + (lane & 3) * 2 + e;
          if (channel < n) *out_place(out, line, channel) = lsg_act<type>::round(total[i][j][h * 2 + e]);
        }
      }
    }
  }
}

/* ---- launches ---- */

ls_gpu_linear_kind_t ls_gpu_linear_kind(int64_t rows, int64_t n, int64_t k) {
  if (rows <= LS_GPU_STREAM_ROWS) return LS_GPU_LINEAR_STREAM;
  return rows <= LS_GPU_TILE_LIMIT / n / k ? LS_GPU_LINEAR_TILE : LS_GPU_LINEAR_LIBRARY;
}

/* What the project's own kernels are launched on: `groups` products side by side, x of row stride ldx. */
typedef struct {
  bool bf16, stream_kernel;
  int64_t rows, groups, n, k, ldx;
} own_shape;

template <int warps, int m_tiles, int n_tiles, int ranges, int type, bool vector, class out_t>
static lsg_status launch_stream_as(const out_t &out, const uint16_t *x, const uint16_t *w, const own_shape &s, lsg_stream stream) {
  using S = stream_shape<warps, m_tiles, n_tiles, ranges>;
  const int64_t channels = S::TILES * S::CHANNELS;
  auto kernel = linear_stream_kernel<S, type, m_tiles, n_tiles, ranges, vector, out_t>;
  return LSG_LAUNCH_EARLY(kernel, lsg_grid((s.n + channels - 1) / channels, 1, s.groups), S::THREADS, S::BYTES, stream, out, x, w, s.rows,
                          s.n, s.k, s.ldx);
}

/* Few blocks to a multiprocessor, and all of a product's at once. Up to 8 rows two ranges a warp where that leaves enough warps to have W
 * on its way; above, x is half or all of what W is, and two tiles of channels share it. */
template <int type, bool vector, class out_t>
static lsg_status launch_stream(const out_t &out, const uint16_t *x, const uint16_t *w, const own_shape &s, lsg_stream stream) {
  enum { ENOUGH_TILES = 500 };
  const int64_t tiles = (s.n + STREAM_TILE - 1) / STREAM_TILE * s.groups;
  if (s.rows > 8) return launch_stream_as<4, 2, 2, 2, type, vector>(out, x, w, s, stream);
  if (tiles >= ENOUGH_TILES) return launch_stream_as<8, 1, 1, 2, type, vector>(out, x, w, s, stream);
  return launch_stream_as<8, 1, 1, 1, type, vector>(out, x, w, s, stream);
}

template <int type, bool vector, class out_t>
static lsg_status launch_own(const out_t &out, const uint16_t *x, const uint16_t *w, const own_shape &s, lsg_stream stream) {
  if (s.stream_kernel) return launch_stream<type, vector>(out, x, w, s, stream);
  auto kernel = linear_tile_kernel<type, vector, out_t>;
  lsg_dim3 grid = lsg_grid((s.n + TILE_CHANNELS - 1) / TILE_CHANNELS, (s.rows + TILE_ROWS - 1) / TILE_ROWS, s.groups);
  return LSG_LAUNCH(kernel, grid, TILE_THREADS, 0, stream, out, x, w, s.rows, s.n, s.k, ls_gpu_linear_range(s.k), s.ldx);
}

template <class out_t>
static lsg_status own(const out_t &out, const uint16_t *x, const uint16_t *w, const own_shape &s, lsg_stream stream) {
  bool vector = s.k % 8 == 0; /* then every row and group starts on 16 bytes: ldx is a multiple of k */
  if (s.bf16) return vector ? launch_own<LSG_BF16, true>(out, x, w, s, stream) : launch_own<LSG_BF16, false>(out, x, w, s, stream);
  return vector ? launch_own<LSG_F16, true>(out, x, w, s, stream) : launch_own<LSG_F16, false>(out, x, w, s, stream);
}

static own_shape shape_of(bool bf16, int64_t rows, int64_t groups, int64_t n, int64_t k) {
  own_shape s = {bf16, ls_gpu_linear_kind(rows, groups * n, k) == LS_GPU_LINEAR_STREAM, rows, groups, n, k, groups * k};
  return s;
}

const char *ls_gpu_linear_variant(lsg_gemm gemm) {
#if defined(__CUDACC__)
  return hopper_workspace_of(gemm)->usable ? "wgmma products, TMA for few rows" : "";
#else
  (void)gemm;
  return "";
#endif
}

/* linear_stream_kernel's place is taken, on compute capability 9.0, by one that TMA feeds, where a product has channels for the device. */
template <class out_t>
static bool hopper_few(lsg_status *status, bool bf16, const out_t &out, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t n,
                       int64_t k, lsg_gemm gemm, lsg_stream stream) {
#if defined(__CUDACC__)
  if (!hopper_stream_takes(hopper_workspace_of(gemm), rows, n, k)) return false;
  *status = hopper_stream(out, x, w, hopper_shape{bf16, rows, n, k, k}, stream);
  return true;
#else
  (void)status, (void)bf16, (void)out, (void)x, (void)w, (void)rows, (void)n, (void)k, (void)gemm, (void)stream;
  return false;
#endif
}

/* The library's place is taken, on compute capability 9.0, by a kernel in this project's K order wherever it can. false: it cannot. */
template <class out_t>
static bool hopper(lsg_status *status, bool bf16, const out_t &out, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t n,
                   int64_t k, lsg_gemm gemm, lsg_stream stream) {
#if defined(__CUDACC__)
  const hopper_workspace *workspace = hopper_workspace_of(gemm);
  if (!hopper_linear_takes(workspace, n, k)) return false;
  *status = hopper_linear(workspace, out, x, w, hopper_shape{bf16, rows, n, k, k}, stream);
  return true;
#else
  (void)status, (void)bf16, (void)out, (void)x, (void)w, (void)rows, (void)n, (void)k, (void)gemm, (void)stream;
  return false;
#endif
}

lsg_status ls_gpu_linear(bool bf16, uint16_t *y, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t n, int64_t k, lsg_gemm gemm,
                         lsg_stream stream) {
  lsg_status status = LSG_FAILED;
  const dense_out out = {y, n};
  if (hopper_few(&status, bf16, out, x, w, rows, n, k, gemm, stream)) return status;
  if (ls_gpu_linear_kind(rows, n, k) == LS_GPU_LINEAR_LIBRARY && hopper(&status, bf16, out, x, w, rows, n, k, gemm, stream)) return status;
  return ls_gpu_linear_grouped(bf16, y, x, w, rows, 1, n, k, gemm, stream);
}

lsg_status ls_gpu_linear_grouped(bool bf16, uint16_t *y, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t groups, int64_t n,
                                 int64_t k, lsg_gemm gemm, lsg_stream stream) {
  if (ls_gpu_linear_kind(rows, groups * n, k) != LS_GPU_LINEAR_LIBRARY) {
    dense_out out = {y, groups * n};
    return own(out, x, w, shape_of(bf16, rows, groups, n, k), stream);
  }
  return lsg_gemm_run_groups(gemm, bf16, y, x, w, rows, groups, n, k, stream);
}

/* n: channels in all. */
static parts_out parts_of(const ls_gpu_part *part, int parts, int64_t *n) {
  parts_out out;
  *n = 0;
  for (int i = 0; i < LS_GPU_MOST_PARTS; i++) {
    *n += i < parts ? part[i].n : 0;
    out.y[i] = part[i < parts ? i : parts - 1].y;
    out.n[i] = part[i < parts ? i : parts - 1].n;
    out.end[i] = *n;
  }
  return out;
}

/* Whether parts of many rows go in one launch of ours, which is faster than a call of the library a part: runs of eight channels must lie
 * in one part. */
static bool together(const ls_gpu_part *part, int parts, int64_t rows, int64_t n, int64_t k) {
  bool in_one_part = true;
  for (int i = 0; i < parts; i++) in_one_part = in_one_part && part[i].n % 8 == 0;
  return (parts > 1 || part->same_bits) && in_one_part && ls_gpu_linear_kind(rows, n, k) == LS_GPU_LINEAR_LIBRARY;
}

lsg_status ls_gpu_linear_parts(bool bf16, const ls_gpu_part *part, int parts, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t k,
                               lsg_gemm gemm, lsg_stream stream) {
  int64_t n;
  lsg_status status = LSG_OK;
  if (parts < 1) return LSG_FAILED;
  if (parts <= LS_GPU_MOST_PARTS) {
    const parts_out out = parts_of(part, parts, &n);
    if (rows <= LS_GPU_STREAM_ROWS) return own(out, x, w, shape_of(bf16, rows, 1, n, k), stream);
    if (together(part, parts, rows, n, k) && hopper(&status, bf16, out, x, w, rows, n, k, gemm, stream)) return status;
  }
  for (int i = 0; i < parts && status == LSG_OK; w += part[i++].n * k)
    status = part[i].same_bits ? ls_gpu_linear(bf16, part[i].y, x, w, rows, part[i].n, k, gemm, stream)
                               : ls_gpu_linear_grouped(bf16, part[i].y, x, w, rows, 1, part[i].n, k, gemm, stream);
  return status;
}

lsg_status ls_gpu_linear_to_ring(bool bf16, const ls_gpu_ring *ring, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t k,
                                 uint16_t *workspace, lsg_gemm gemm, lsg_stream stream) {
  int64_t n = ring->layers * 2 * ring->kv_dim;
  lsg_status status = LSG_FAILED;
  if (hopper_few(&status, bf16, *ring, x, w, rows, n, k, gemm, stream)) return status;
  if (ls_gpu_linear_kind(rows, n, k) != LS_GPU_LINEAR_LIBRARY) return own(*ring, x, w, shape_of(bf16, rows, 1, n, k), stream);
  if (ring->kv_dim % 8 == 0 && hopper(&status, bf16, *ring, x, w, rows, n, k, gemm, stream)) return status;
  status = lsg_gemm_run(gemm, bf16, workspace, x, w, rows, n, k, n, k, k, stream);
  if (status != LSG_OK) return status;
  ls_gpu_kv_rows from = {workspace, workspace + ring->kv_dim, 2 * ring->kv_dim, n};
  return ls_gpu_ring_scatter(ring, &from, rows, stream);
}

}  // namespace LSG_NS
