/* gpu_linear: y = x . W^T, x [rows, k], W [n, k], in the activation type with float32 accumulation, rounded once.
 *
 * Which kernel runs is decided in one place, ls_gpu_linear_kind:
 *   STREAM   rows 1..16. Reads W once, straight into the tensor core's fragments. On compute capability 9.0 cuda/hopper_stream.cu in
 *            its place, with the same bits, where that can (hopper_stream_takes): in ls_gpu_linear and into rings.
 *   TILE     more rows, up to LS_GPU_TILE_LIMIT multiply-adds. Shared-memory tiles. Beyond that size a library is faster on a GPU and the
 *            only affordable way in the emulator; below it both backends run our own code, so that emu does not only compare a library
 *            with itself.
 *   LIBRARY  the rest: lsg_gemm (cuBLASLt on cuda, ls_gemm on emu). Its place is taken, on compute capability 9.0, by
 *            cuda/hopper_linear.cu, where that can (hopper_linear_takes) and a row's bits count: in ls_gpu_linear, in parts that say
 *            so, into rings, and for several products of one x. Others stay with the library, which need not keep an order and is faster.
 *
 * All but the library add in one order, so a row of y has the same bits whatever the number of rows computed with it and its index among
 * them (layers.md, "row-count invariance"): a column of the tensor core's product does not depend on the columns beside it, and one step of
 * 16 gives the same bits as mma.sync and as wgmma, with either operand as its rows (tests/gpu/cuda_linear.cu, on the card).
 *
 * All device pointers; x, W and y 16-byte aligned, dense. k a multiple of 8 takes 16-byte loads, any other k a slower variant. */
#ifndef GPU_LINEAR_H
#define GPU_LINEAR_H

#include "gpu_ring.h"

namespace LSG_NS {

/* The order of every sum over K but a library's: K in LS_GPU_K_RANGES ranges of ls_gpu_linear_range(k) elements (the last ones shorter, or
 * empty); in a range one float32 accumulator goes through ascending steps of 16 elements of the tensor core, from 0, zeros past the range's
 * end; then 0 + r0 + r1 + ... in the order of the ranges, in float32; then one rounding. It depends on k alone. */
enum { LS_GPU_K_RANGES = 8 };
LSG_HOST_DEVICE int64_t ls_gpu_linear_range(int64_t k) { return ((k + LS_GPU_K_RANGES - 1) / LS_GPU_K_RANGES + 31) / 32 * 32; }

enum { LS_GPU_STREAM_ROWS = 16 };
#define LS_GPU_TILE_LIMIT ((int64_t)1 << 28)

typedef enum { LS_GPU_LINEAR_STREAM, LS_GPU_LINEAR_TILE, LS_GPU_LINEAR_LIBRARY } ls_gpu_linear_kind_t;
ls_gpu_linear_kind_t ls_gpu_linear_kind(int64_t rows, int64_t n, int64_t k);

/* What stands in the library's place, for a path's description; "": nothing. */
const char *ls_gpu_linear_variant(lsg_gemm gemm);

/* y [rows, n] */
lsg_status ls_gpu_linear(bool bf16, uint16_t *y, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t n, int64_t k, lsg_gemm gemm,
                         lsg_stream stream);

/* Products side by side: group g of x's columns with group g of W's rows. y [rows, groups * n], x [rows, groups * k], W [groups * n, k].
 * The kind is that of the whole. */
lsg_status ls_gpu_linear_grouped(bool bf16, uint16_t *y, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t groups, int64_t n,
                                 int64_t k, lsg_gemm gemm, lsg_stream stream);

/* Several projections of one x, W [sum of n, k] one below the other, each into memory of its own, part[i].y [rows, part[i].n]. Up to
 * LS_GPU_STREAM_ROWS rows one launch, and above where the whole is of the kind LIBRARY and something of ours takes its place; else one a
 * part. In one launch, and of parts that say so, the bits are those of ls_gpu_linear on each part alone. */
enum { LS_GPU_MOST_PARTS = 4 };
typedef struct {
  uint16_t *y;
  int64_t n;
  bool same_bits; /* of a row in any number of rows, where the library would be faster too */
} ls_gpu_part;
lsg_status ls_gpu_linear_parts(bool bf16, const ls_gpu_part *part, int parts, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t k,
                               lsg_gemm gemm, lsg_stream stream);

/* The K and V projections of all layers at once, into the ring slots of rows [*base, *base + rows): W [layers, 2, kv_dim, k], K before V.
 * workspace [rows, layers * 2 * kv_dim] is used where the kind is LIBRARY (else may be NULL). */
lsg_status ls_gpu_linear_to_ring(bool bf16, const ls_gpu_ring *ring, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t k,
                                 uint16_t *workspace, lsg_gemm gemm, lsg_stream stream);

}  // namespace LSG_NS

#endif
