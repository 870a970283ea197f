/* gpu_linear.cu: the two GEMM kernels of this project's own.
 *
 * linear_stream_kernel is bound by reading W. Weights are the M operand of mma m16n8k16 (16 output channels a tile), activations the N
 * operand (8 or 16 columns, missing rows are zeros), so no multiply is wasted on padding W. Inside each 32 of K the order is permuted:
 * lane t of a group of four owns elements 8t .. 8t+7 and feeds them to the fragments of two k16 products, the same for W and x. So each
 * thread's fragments are its own contiguous 16 bytes: loads go from memory to registers and into the tensor core, nothing is exchanged.
 * K is cut in chunks of 64, dealt to the block's warps in turn (the block reads 1 KB runs of each row); the next chunk is in flight
 * while this one is multiplied. The warps' partial sums are added in warp order. K order and cuts depend on k alone.
 *
 * linear_tile_kernel is the plain one: 64 x 64 x 32 tiles through shared memory, cp.async double buffering, ldmatrix, four warps. */
#include "gpu_linear.h"

namespace LSG_NS {

/* ---- where results go ---- */

typedef struct {
  uint16_t *y;
  int64_t ld;
} dense_out;

/* Channels of several projections in turn, each in memory of its own, dense. Unused parts end where the last one does. */
typedef struct {
  uint16_t *y[LS_GPU_MOST_PARTS];
  int64_t n[LS_GPU_MOST_PARTS], end[LS_GPU_MOST_PARTS]; /* end: the channel after its last */
} parts_out;

/* A row's line is worked out once: its index, or the slot of its position. */
LSG_DEVICE int64_t out_line(const dense_out &, int64_t row) { return row; }
LSG_DEVICE int64_t out_line(const parts_out &, int64_t row) { return row; }
LSG_DEVICE int64_t out_line(const ls_gpu_ring &out, int64_t row) { return ring_slot(out, row); }

LSG_DEVICE uint16_t *out_place(const dense_out &out, int64_t line, int64_t channel) { return out.y + line * out.ld + channel; }

LSG_DEVICE uint16_t *out_place(const parts_out &out, int64_t line, int64_t channel) {
  uint16_t *place = out.y[0] + line * out.n[0] + channel;
  LSG_UNROLL
  for (int i = 1; i < LS_GPU_MOST_PARTS; i++) {
    if (channel >= out.end[i - 1]) place = out.y[i] + line * out.n[i] + (channel - out.end[i - 1]);
  }
  return place;
}

/* The columns of group g of a grouped product; the others have one group. */
LSG_DEVICE void out_group(dense_out &out, int64_t first_channel) { out.y += first_channel; }
LSG_DEVICE void out_group(parts_out &, int64_t) {}
LSG_DEVICE void out_group(ls_gpu_ring &, int64_t) {}

/* Output channels of [layers, 2, kv_dim]: K before V. */
LSG_DEVICE uint16_t *out_place(const ls_gpu_ring &out, int64_t line, int64_t channel) {
  int64_t layer = channel / (2 * out.kv_dim), rest = channel % (2 * out.kv_dim);
  uint16_t *which = rest < out.kv_dim ? out.k : out.v;
  return ring_place(out, which, layer, line, rest < out.kv_dim ? rest : rest - out.kv_dim);
}

/* ---- rows 1..16 ---- */

enum {
  STREAM_WARPS = 8,
  STREAM_THREADS = STREAM_WARPS * 32,
  STREAM_CHUNK = 64,                    /* of K, a warp's turn */
  STREAM_M_TILES = 2,                   /* two tiles of 16 channels share a load of x */
  STREAM_CHANNELS = STREAM_M_TILES * 16 /* a block */
};

LSG_DEVICE lsg_u32x4 zero16() {
  lsg_u32x4 v = {0, 0, 0, 0};
  return v;
}

/* Elements at .. at + 7 of a row of k; those past k are zero. vector: k is a multiple of 8 and the row 16-byte aligned. */
template <bool vector, bool stream_once>
LSG_DEVICE lsg_u32x4 load8(const uint16_t *row, int64_t at, int64_t k, bool exists) {
  if (!exists || at >= k) return zero16();
  if constexpr (vector) {
    return stream_once ? lsg_load16_stream(row + at) : lsg_load16(row + at);
  } else {
    uint32_t e[8];
    LSG_UNROLL
    for (int i = 0; i < 8; i++) e[i] = at + i < k ? row[at + i] : 0u;
    lsg_u32x4 v = {e[0] | e[1] << 16, e[2] | e[3] << 16, e[4] | e[5] << 16, e[6] | e[7] << 16};
    return v;
  }
}

/* What one lane holds of a chunk: its 16 bytes of both halves (32 of K each) of its channels g and g + 8 of each tile, and of its columns.
 */
template <int n_tiles>
struct stream_chunk {
  lsg_u32x4 w[STREAM_M_TILES][2][2], x[n_tiles][2];
};

template <int type, int n_tiles, bool vector, class out_t>
LSG_KERNEL(STREAM_THREADS)
void linear_stream_kernel(out_t out, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t n, int64_t k, int64_t ldx) {
  enum { COLUMNS = n_tiles * 8, LD = STREAM_CHANNELS + 4 }; /* + 4: no two lanes of a store hit one bank */
  LSG_SHARED(float, partial, STREAM_WARPS *COLUMNS *LD);
  const int g = lsg_lane() >> 2, t = lsg_lane() & 3;
  const int64_t first = lsg_block_x() * STREAM_CHANNELS;
  x += lsg_block_z() * k; /* z: the group */
  w += lsg_block_z() * n * k;
  out_group(out, lsg_block_z() * n);

  const uint16_t *w_row[STREAM_M_TILES][2], *x_row[n_tiles];
  bool w_exists[STREAM_M_TILES][2], x_exists[n_tiles];
  LSG_UNROLL
  for (int i = 0; i < STREAM_M_TILES; i++) {
    LSG_UNROLL
    for (int h = 0; h < 2; h++) {
      int64_t channel = first + i * 16 + h * 8 + g;
      w_exists[i][h] = channel < n;
      w_row[i][h] = w + (channel < n ? channel : 0) * k;
    }
  }
  LSG_UNROLL
  for (int j = 0; j < n_tiles; j++) {
    int64_t row = j * 8 + g;
    x_exists[j] = row < rows;
    x_row[j] = x + (row < rows ? row : 0) * ldx;
  }

  float sum[STREAM_M_TILES][n_tiles][4];
  LSG_UNROLL
  for (int i = 0; i < STREAM_M_TILES; i++) {
    LSG_UNROLL
    for (int j = 0; j < n_tiles; j++) {
      LSG_UNROLL
      for (int e = 0; e < 4; e++) sum[i][j][e] = 0.0f;
    }
  }

  auto load = [&](stream_chunk<n_tiles> &c, int64_t at) {
    LSG_UNROLL
    for (int i = 0; i < STREAM_M_TILES; i++) {
      LSG_UNROLL
      for (int h = 0; h < 2; h++) {
        LSG_UNROLL
        for (int q = 0; q < 2; q++) c.w[i][h][q] = load8<vector, true>(w_row[i][h], at + q * 32 + t * 8, k, w_exists[i][h]);
      }
    }
    LSG_UNROLL
    for (int j = 0; j < n_tiles; j++) {
      LSG_UNROLL
      for (int q = 0; q < 2; q++) c.x[j][q] = load8<vector, false>(x_row[j], at + q * 32 + t * 8, k, x_exists[j]);
    }
  };
  auto multiply = [&](const stream_chunk<n_tiles> &c) {
    LSG_UNROLL
    for (int q = 0; q < 2; q++) {
      LSG_UNROLL
      for (int i = 0; i < STREAM_M_TILES; i++) {
        const lsg_u32x4 &lo = c.w[i][0][q], &hi = c.w[i][1][q];
        uint32_t a0[4] = {lo.x, hi.x, lo.y, hi.y}, a1[4] = {lo.z, hi.z, lo.w, hi.w};
        LSG_UNROLL
        for (int j = 0; j < n_tiles; j++) {
          uint32_t b0[2] = {c.x[j][q].x, c.x[j][q].y}, b1[2] = {c.x[j][q].z, c.x[j][q].w};
          lsg_act<type>::mma(sum[i][j], a0, b0);
          lsg_act<type>::mma(sum[i][j], a1, b1);
        }
      }
    }
  };

  const int64_t stride = STREAM_WARPS * STREAM_CHUNK;
  stream_chunk<n_tiles> now, next;
  load(now, (int64_t)lsg_warp() * STREAM_CHUNK);
  for (int64_t at = (int64_t)lsg_warp() * STREAM_CHUNK; at < k; at += stride) {
    load(next, at + stride);
    multiply(now);
    now = next;
  }

  LSG_UNROLL
  for (int i = 0; i < STREAM_M_TILES; i++) {
    LSG_UNROLL
    for (int j = 0; j < n_tiles; j++) {
      LSG_UNROLL
      for (int e = 0; e < 4; e++) {
        int channel = i * 16 + (e >> 1) * 8 + g, column = j * 8 + t * 2 + (e & 1);
        partial[(lsg_warp() * COLUMNS + column) * LD + channel] = sum[i][j][e];
      }
    }
  }
  lsg_barrier();
  for (int i = lsg_thread(); i < COLUMNS * STREAM_CHANNELS; i += STREAM_THREADS) {
    int channel = i % STREAM_CHANNELS, row = i / STREAM_CHANNELS;
    if (row >= rows || first + channel >= n) continue;
    float total = 0.0f;
    LSG_UNROLL
    for (int warp = 0; warp < STREAM_WARPS; warp++) total += partial[(warp * COLUMNS + row) * LD + channel];
    *out_place(out, out_line(out, row), first + channel) = lsg_act<type>::round(total);
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
void linear_tile_kernel(out_t out, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t n, int64_t k, int64_t ldx) {
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

  float sum[2][4][4];
  LSG_UNROLL
  for (int i = 0; i < 2; i++) {
    LSG_UNROLL
    for (int j = 0; j < 4; j++) {
      LSG_UNROLL
      for (int e = 0; e < 4; e++) sum[i][j][e] = 0.0f;
    }
  }

  tile_load<vector>(x_tile, x, first_row, rows, 0, k, ldx);
  tile_load<vector>(w_tile, w, first_channel, n, 0, k, k);
  lsg_cp_async_commit();
  int stage = 0;
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
    lsg_barrier(); /* before the next turn overwrites this stage */
  }

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
          if (channel < n) *out_place(out, line, channel) = lsg_act<type>::round(sum[i][j][h * 2 + e]);
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

template <int type, bool vector, class out_t>
static lsg_status launch_own(const out_t &out, const uint16_t *x, const uint16_t *w, const own_shape &s, lsg_stream stream) {
  if (s.stream_kernel) {
    auto kernel = s.rows <= 8 ? linear_stream_kernel<type, 1, vector, out_t> : linear_stream_kernel<type, 2, vector, out_t>;
    lsg_dim3 grid = lsg_grid((s.n + STREAM_CHANNELS - 1) / STREAM_CHANNELS, 1, s.groups);
    return LSG_LAUNCH(kernel, grid, STREAM_THREADS, 0, stream, out, x, w, s.rows, s.n, s.k, s.ldx);
  }
  auto kernel = linear_tile_kernel<type, vector, out_t>;
  lsg_dim3 grid = lsg_grid((s.n + TILE_CHANNELS - 1) / TILE_CHANNELS, (s.rows + TILE_ROWS - 1) / TILE_ROWS, s.groups);
  return LSG_LAUNCH(kernel, grid, TILE_THREADS, 0, stream, out, x, w, s.rows, s.n, s.k, s.ldx);
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

lsg_status ls_gpu_linear(bool bf16, uint16_t *y, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t n, int64_t k, lsg_gemm gemm,
                         lsg_stream stream) {
  return ls_gpu_linear_grouped(bf16, y, x, w, rows, 1, n, k, gemm, stream);
}

lsg_status ls_gpu_linear_grouped(bool bf16, uint16_t *y, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t groups, int64_t n,
                                 int64_t k, lsg_gemm gemm, lsg_stream stream) {
  if (ls_gpu_linear_kind(rows, groups * n, k) != LS_GPU_LINEAR_LIBRARY) {
    dense_out out = {y, groups * n};
    return own(out, x, w, shape_of(bf16, rows, groups, n, k), stream);
  }
  lsg_status status = LSG_OK;
  for (int64_t g = 0; g < groups && status == LSG_OK; g++)
    status = lsg_gemm_run(gemm, bf16, y + g * n, x + g * k, w + g * n * k, rows, n, k, groups * n, groups * k, k, stream);
  return status;
}

lsg_status ls_gpu_linear_parts(bool bf16, const ls_gpu_part *part, int parts, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t k,
                               lsg_gemm gemm, lsg_stream stream) {
  if (rows > LS_GPU_STREAM_ROWS || parts < 1 || parts > LS_GPU_MOST_PARTS) {
    lsg_status status = parts < 1 ? LSG_FAILED : LSG_OK;
    for (int i = 0; i < parts && status == LSG_OK; w += part[i++].n * k)
      status = ls_gpu_linear(bf16, part[i].y, x, w, rows, part[i].n, k, gemm, stream);
    return status;
  }
  parts_out out;
  int64_t n = 0;
  for (int i = 0; i < LS_GPU_MOST_PARTS; i++) {
    n += i < parts ? part[i].n : 0;
    out.y[i] = part[i < parts ? i : parts - 1].y;
    out.n[i] = part[i < parts ? i : parts - 1].n;
    out.end[i] = n;
  }
  return own(out, x, w, shape_of(bf16, rows, 1, n, k), stream);
}

lsg_status ls_gpu_linear_to_ring(bool bf16, const ls_gpu_ring *ring, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t k,
                                 uint16_t *workspace, lsg_gemm gemm, lsg_stream stream) {
  int64_t n = ring->layers * 2 * ring->kv_dim;
  if (ls_gpu_linear_kind(rows, n, k) != LS_GPU_LINEAR_LIBRARY) return own(*ring, x, w, shape_of(bf16, rows, 1, n, k), stream);
  lsg_status status = lsg_gemm_run(gemm, bf16, workspace, x, w, rows, n, k, n, k, k, stream);
  if (status != LSG_OK) return status;
  ls_gpu_kv_rows from = {workspace, workspace + ring->kv_dim, 2 * ring->kv_dim, n};
  return ls_gpu_ring_scatter(ring, &from, rows, stream);
}

}  // namespace LSG_NS
