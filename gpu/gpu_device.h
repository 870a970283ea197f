/* gpu_device.h: all that a kernel file may use. Under nvcc each name is the real thing, inlined, with no overhead; in the emulator
 * (gpu/emu) the same names run on the CPU, one fiber a thread, and check what a GPU would leave to luck.
 *
 * A kernel file looks like this:
 *
 *   #include "gpu_device.h"
 *   namespace LSG_NS {
 *   LSG_KERNEL(256) void scale_kernel(float *y, const float *x, int64_t n) {
 *     LSG_SHARED(float, tile, 256);                  // static shared memory: float tile[256], poisoned per block in emu
 *     LSG_DYNAMIC_SHARED(uint16_t, stage);           // the block's dynamic shared memory, seen as uint16_t *stage
 *     int t = lsg_thread();  int64_t b = lsg_block_x();
 *     ...
 *     lsg_barrier();
 *   }
 *   }
 *   ...
 *   lsg_status s = LSG_LAUNCH(scale_kernel, lsg_grid(blocks), 256, dynamic_bytes, stream, y, x, n);     (gpu_backend.h)
 *
 * Blocks are one-dimensional (LSG_LAUNCH takes a thread count); grids have up to three dimensions. Kernels are C-style: no classes with
 * destructors, no exceptions, no recursion; templates on integers, bools and element types are fine. Kernel arguments are pointers to
 * device memory, scalars, and plain structs of them.
 *
 *   declaring    LSG_KERNEL(largest thread count) before `void name(...)`; LSG_DEVICE before a helper function, LSG_HOST_DEVICE where the
 *                host calls it too; LSG_UNROLL before a loop;
 *                LSG_RESTRICT. A helper that holds barriers or warp calls may end its parameters with LSG_SITE and pass
 *                LSG_SITE_PASS on, so that emu's messages name its caller's line
 *   indices      int lsg_thread(), lsg_block_threads(), lsg_lane() (0..31), lsg_warp(); int64_t lsg_block_x/y/z(), lsg_grid_x/y/z()
 *   barrier      lsg_barrier(): all threads of the block that exist must reach the same call
 *   early        a kernel launched by LSG_LAUNCH_EARLY may begin before the launch in front of it has ended. Until lsg_wait_before()
 *                it reads only what no launch writes (weights, the step's numbers) and writes shared memory alone; every thread calls
 *                it, once, and emu fails a thread that does not. lsg_let_next(): the launch behind may begin where there is room
 *   warp         every thread named in mask must make the same call with the same mask
 *                lsg_warp_sync(mask); T lsg_shfl(mask, v, lane), lsg_shfl_xor(mask, v, lane_mask), lsg_shfl_down(mask, v, n),
 *                lsg_shfl_up(mask, v, n) for int, unsigned, float, long long, unsigned long long; width is always 32
 *                unsigned lsg_ballot(mask, p); int lsg_any(mask, p), lsg_all(mask, p); LSG_FULL_MASK
 *                float lsg_warp_sum(v), lsg_warp_max(v): butterflies over the full warp, the same bits in every lane; max hands on a NaN
 *   tensor core  whole warp. lsg_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) and lsg_mma_f16: d += A . B,
 *                m16n8k16, fragments as PTX mma.sync.aligned.m16n8k16.row.col.f32.{bf16,f16} lays them out
 *                lsg_ldmatrix_x4(uint32_t r[4], const void *row), _x2, _x4_trans, _x2_trans: row in shared memory, 16-byte aligned
 *   cp.async     lsg_cp_async16(void *shared, const void *global, int bytes): 16 bytes, those past `bytes` (0..16) zero; both 16-byte
 *                aligned. lsg_cp_async16_once: the same, for what is read once.
 *                lsg_cp_async_commit(); lsg_cp_async_wait<N>(): all but the newest N groups of this thread have landed.
 *                emu lands bytes only at the wait, so that a missing wait shows; under a schedule's seed at a random moment before it, so
 *                that a stage filled again while others still read it shows too
 *   atomics      T lsg_atomic_add(T *p, T v) for int, unsigned, unsigned long long, float; lsg_atomic_max/min(int, unsigned),
 *                lsg_atomic_or(unsigned), lsg_atomic_cas(unsigned, unsigned long long); lsg_fence() (device-wide memory fence)
 *   loads        lsg_u32x4 (a 16-byte vector: .x .y .z .w), lsg_load16(const void *) plain, lsg_load16_stream(const void *) read-once
 *                (evict first, read-only path), lsg_store16(void *, lsg_u32x4). 16-byte aligned global addresses; emu checks alignment
 *   conversions  float lsg_bf16_to_f32(uint16_t), uint16_t lsg_f32_to_bf16(float) nearest-even; lsg_f16_to_f32, lsg_f32_to_f16;
 *                uint32_t lsg_pack_bf16(lo, hi), lsg_pack_f16(lo, hi); lsg_bits(float), lsg_from_bits(uint32_t);
 *                uint8_t lsg_f32_to_e4m3(float) saturating, lsg_e4m3_to_f32
 *                A NaN rounds to 0x7FFF in bf16 and f16, to 0x7F in e4m3, on both backends
 *                traits: lsg_act<LSG_BF16>/<LSG_F16>: static float widen(uint16_t), uint16_t round(float), uint32_t pack(lo, hi),
 *                float widen_lo/widen_hi(uint32_t pair), mma(d, a, b)
 *   maths        lsg_sqrt, lsg_div (IEEE), lsg_exp, lsg_sincos(float angle, float *s, float *c) (full range reduction, within 2 ulp),
 *                lsg_fma, lsg_fmax_nan / lsg_fmin_nan (a NaN operand gives NaN), lsg_isfinite. No fast-math anywhere
 *
 * Hopper variants (wgmma, TMA) may come to stand beside the portable kernels; they do not go through this file. */
#ifndef GPU_DEVICE_H
#define GPU_DEVICE_H

#include <stddef.h>
#include <stdint.h>

#define LSG_FULL_MASK 0xFFFFFFFFu

#if defined(__CUDACC__)
#define LSG_NS lsg_cuda
#include "cuda/cuda_device.cuh"
#else
#define LSG_NS lsg_emu
#include "emu/emu_device.h"
#endif

#include "gpu_common.h" /* what both backends build from the above: warp sums, activation traits */

#endif
