/* hopper_sparse_mma: the instructions of sm_90a that hopper_sparse_attn.cuh is made of, each behind one function: wgmma in the three shapes
 * that it needs, mbarriers, named barriers, registers handed between warpgroups.
 *
 * wgmma: four warps multiply A [64, 16] by B [16, n] of bf16 and add to d in float32; warp w holds rows 16w .. 16w + 15, laid out as the
 * sums of mma.m16n8k16 side by side: d[4j + 0 .. 1] row g, columns 8j + 2q, + 1; d[4j + 2 .. 3] row g + 8. It reads shared memory through
 * the asynchronous proxy: what ordinary stores or cp.async wrote needs hopper_fence_async between the barrier that tells of it and the read
 * (or, by the writer, before that barrier). */
#ifndef HOPPER_SPARSE_MMA_CUH
#define HOPPER_SPARSE_MMA_CUH

#include "gpu_device.h"
#include "hopper_registers.cuh"

namespace LSG_NS {

/* ---- barriers; bar: an address in shared memory ---- */
LSG_DEVICE void hopper_barrier_init(uint32_t bar, uint32_t arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(bar), "r"(arrivals) : "memory");
}
LSG_DEVICE void hopper_barrier_arrive(uint32_t bar) { asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(bar) : "memory"); }
/* arrives when all cp.async of this thread so far have landed */
LSG_DEVICE void hopper_barrier_arrive_landed(uint32_t bar) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared::cta.b64 [%0];" ::"r"(bar) : "memory");
}
LSG_DEVICE bool hopper_barrier_passed(uint32_t bar, uint32_t parity) {
  uint32_t passed;
  asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}\n"
               : "=r"(passed)
               : "r"(bar), "r"(parity)
               : "memory");
  return passed != 0;
}
/* until the phase of this parity is complete; a barrier before its first phase passes parity 1 */
LSG_DEVICE void hopper_barrier_wait(uint32_t bar, uint32_t parity) {
#if defined(HOPPER_SPARSE_GUARD)
  for (long long spins = 0; !hopper_barrier_passed(bar, parity); spins++)
    if (spins > HOPPER_SPARSE_GUARD) __trap();
#else
  while (!hopper_barrier_passed(bar, parity)) {
  }
#endif
}
LSG_DEVICE void hopper_named_sync(int id, int threads) { asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
LSG_DEVICE void hopper_named_arrive(int id, int threads) { asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory"); }
LSG_DEVICE void hopper_fence_async() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

/* ---- registers ---- */
template <int count>
LSG_DEVICE void hopper_registers_grow() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(count));
}
template <int count>
LSG_DEVICE void hopper_registers_shrink() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(count));
}

/* ---- wgmma ---- */

/* A matrix in shared memory, rows of 128 bytes in groups of eight, 16-byte pieces swizzled by the row: the low word of its descriptor. By K
 * (rows are of A's M or B's N): one piece of 64 deep. By N (rows are of K): `leading` bytes from 64 columns to the next 64. Plus an offset
 * in units of 16 bytes: the matrix that starts there. */
LSG_DEVICE uint32_t hopper_matrix(uint32_t address, uint32_t leading) { return ((address & 0x3FFFFu) >> 4) | (leading >> 4) << 16; }
/* the high word: 1024 bytes from eight rows to the next eight, a swizzle of 128 bytes */
#define HOPPER_MATRIX_HIGH "0x40000040"

LSG_DEVICE void hopper_mma_fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
LSG_DEVICE void hopper_mma_commit() { asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }
template <int newest>
LSG_DEVICE void hopper_mma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(newest) : "memory");
}
/* keeps the compiler from moving what it does with these registers past this point */
template <int count>
LSG_DEVICE void hopper_mma_hold(float (&d)[count]) {
  LSG_UNROLL
  for (int i = 0; i < count; i++) asm volatile("" : "+f"(d[i])::"memory");
}

/* d (+)= A . B^T, both by K */
template <bool add>
LSG_DEVICE void hopper_mma_n64(float (&d)[32], uint32_t a, uint32_t b) {
  asm volatile("{\n.reg .pred p;\n.reg .b64 a, b;\nmov.b64 a, {%32, " HOPPER_MATRIX_HIGH "};\nmov.b64 b, {%33, " HOPPER_MATRIX_HIGH
               "};\nsetp.ne.b32 p, %34, 0;\nwgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 {" HOPPER_SUMS_32
               "}, "
               "a, b, p, 1, 1, 0, 0;\n}\n"
               : HOPPER_OPERANDS_32(d)
               : "r"(a), "r"(b), "n"(add ? 1 : 0));
}

/* d (+)= A . B, A by K, B by N */
template <bool add>
LSG_DEVICE void hopper_mma_n256(float (&d)[128], uint32_t a, uint32_t b) {
  asm volatile("{\n.reg .pred p;\n.reg .b64 a, b;\nmov.b64 a, {%128, " HOPPER_MATRIX_HIGH "};\nmov.b64 b, {%129, " HOPPER_MATRIX_HIGH
               "};\nsetp.ne.b32 p, %130, 0;\nwgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" HOPPER_SUMS_128
               "}, "
               "a, b, p, 1, 1, 0, 1;\n}\n"
               : HOPPER_OPERANDS_128(d)
               : "r"(a), "r"(b), "n"(add ? 1 : 0));
}

/* the same with A in registers, laid out as the A of mma.m16n8k16 */
template <bool add>
LSG_DEVICE void hopper_mma_n256(float (&d)[128], const uint32_t a[4], uint32_t b) {
  asm volatile("{\n.reg .pred p;\n.reg .b64 b;\nmov.b64 b, {%132, " HOPPER_MATRIX_HIGH
               "};\nsetp.ne.b32 p, %133, 0;\nwgmma.mma_async.sync.aligned.m64n256k16.f32.bf16.bf16 {" HOPPER_SUMS_128
               "}, "
               "{%128, %129, %130, %131}, b, p, 1, 1, 1;\n}\n"
               : HOPPER_OPERANDS_128(d)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b), "n"(add ? 1 : 0));
}

}  // namespace LSG_NS

#endif
