/* hopper_tma: tiles of a matrix into shared memory by TMA, and the barriers that say when they are there. For compute capability 9.0. */
#ifndef HOPPER_TMA_CUH
#define HOPPER_TMA_CUH

#include <cuda.h>

#include "gpu_backend.h"

namespace LSG_NS {

enum { TMA_PIECE = 64 }; /* of K: 128 bytes, the row of a swizzled tile */

/* cuTensorMapEncodeTiled, asked of the driver once; NULL: it does not make tensor maps. */
typedef CUresult tma_encode_fn(CUtensorMap *, CUtensorMapDataType, cuuint32_t, void *, const cuuint64_t *, const cuuint64_t *,
                               const cuuint32_t *, const cuuint32_t *, CUtensorMapInterleave, CUtensorMapSwizzle, CUtensorMapL2promotion,
                               CUtensorMapFloatOOBfill);
tma_encode_fn *tma_encoder();

/* Boxes of box_rows rows by TMA_PIECE of a matrix [rows, k]; what lies outside of it reads as zero. wide: L2 fetches 256 bytes at a time,
 * for boxes that many blocks read; where each byte is read once it costs (docs/measurements.md). */
lsg_status tma_tile_map(CUtensorMap *map, bool bf16, const uint16_t *matrix, int64_t rows, int64_t k, int64_t ld, int box_rows, bool wide);

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

/* Byte of 16-byte piece p of row r of a tile, in the 128-byte swizzle. */
LSG_DEVICE int swizzled(int r, int p) { return r * 128 + ((p ^ (r & 7)) << 4); }

LSG_DEVICE void barrier_init(uint32_t barrier, int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(barrier), "r"(arrivals) : "memory");
}

/* After all barrier_init of a thread: TMA sees them. */
LSG_DEVICE void barrier_init_done() { asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory"); }

LSG_DEVICE void barrier_expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes) : "memory");
}

LSG_DEVICE void barrier_wait(uint32_t barrier, int parity) {
  int done;
  do {
    asm volatile(
        "{.reg .pred p;\n"
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"
        "selp.b32 %0, 1, 0, p;}\n"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  } while (!done);
}

/* A box of the map at (k, row), into this block. */
LSG_DEVICE void tma_load(uint32_t to, const CUtensorMap *map, int k, int row, uint32_t barrier) {
  asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1, {%2, %3}], [%4];" ::"r"(to),
               "l"(map), "r"(k), "r"(row), "r"(barrier)
               : "memory");
}

#endif

}  // namespace LSG_NS

#endif
