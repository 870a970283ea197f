/* cuda_device.cuh: gpu_device.h under nvcc. Each name is the instruction it stands for; nothing here costs more than writing it by hand. */
#ifndef CUDA_DEVICE_CUH
#define CUDA_DEVICE_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <cuda_runtime.h>

#define LSG_KERNEL(threads) __global__ __launch_bounds__(threads)
#define LSG_DEVICE          static __device__ __forceinline__
#define LSG_HOST_DEVICE     static __host__ __device__ __forceinline__
#define LSG_METHOD          static __device__ __forceinline__
#define LSG_UNROLL          _Pragma("unroll")
#define LSG_RESTRICT        __restrict__

/* the emulator's call sites: nothing here */
#define LSG_SITE
#define LSG_SITE_PASS

#define LSG_SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define LSG_DYNAMIC_SHARED(type, name)                                 \
  extern __shared__ __align__(128) unsigned char lsg_dynamic_shared[]; \
  type *name = reinterpret_cast<type *>(lsg_dynamic_shared)

namespace LSG_NS {

/* ---- indices ---- */
LSG_DEVICE int lsg_thread() { return (int)threadIdx.x; }
LSG_DEVICE int lsg_block_threads() { return (int)blockDim.x; }
LSG_DEVICE int lsg_lane() { return (int)(threadIdx.x & 31u); }
LSG_DEVICE int lsg_warp() { return (int)(threadIdx.x >> 5); }
LSG_DEVICE int64_t lsg_block_x() { return blockIdx.x; }
LSG_DEVICE int64_t lsg_block_y() { return blockIdx.y; }
LSG_DEVICE int64_t lsg_block_z() { return blockIdx.z; }
LSG_DEVICE int64_t lsg_grid_x() { return gridDim.x; }
LSG_DEVICE int64_t lsg_grid_y() { return gridDim.y; }
LSG_DEVICE int64_t lsg_grid_z() { return gridDim.z; }

/* ---- bits and conversions ---- */
LSG_DEVICE uint32_t lsg_bits(float v) { return __float_as_uint(v); }
LSG_DEVICE float lsg_from_bits(uint32_t u) { return __uint_as_float(u); }
LSG_DEVICE float lsg_bf16_to_f32(uint16_t h) { return __uint_as_float((uint32_t)h << 16); }
LSG_DEVICE uint16_t lsg_f32_to_bf16(float v) { return __bfloat16_as_ushort(__float2bfloat16_rn(v)); }
LSG_DEVICE float lsg_f16_to_f32(uint16_t h) { return __half2float(__ushort_as_half(h)); }
LSG_DEVICE uint16_t lsg_f32_to_f16(float v) { return __half_as_ushort(__float2half_rn(v)); }
LSG_DEVICE uint32_t lsg_pack_bf16(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
LSG_DEVICE uint32_t lsg_pack_f16(float lo, float hi) {
  uint32_t r;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(r) : "f"(hi), "f"(lo));
  return r;
}
LSG_DEVICE uint8_t lsg_f32_to_e4m3(float v) { return (uint8_t)__nv_cvt_float_to_fp8(v, __NV_SATFINITE, __NV_E4M3); }
LSG_DEVICE float lsg_e4m3_to_f32(uint8_t code) { return __half2float(__half(__nv_cvt_fp8_to_halfraw(code, __NV_E4M3))); }

/* ---- maths ---- */
LSG_DEVICE float lsg_sqrt(float v) { return __fsqrt_rn(v); }
LSG_DEVICE float lsg_div(float a, float b) { return __fdiv_rn(a, b); }
LSG_DEVICE float lsg_exp(float v) { return expf(v); }
LSG_DEVICE void lsg_sincos(float angle, float *s, float *c) { sincosf(angle, s, c); }
LSG_DEVICE float lsg_fma(float a, float b, float c) { return __fmaf_rn(a, b, c); }
LSG_DEVICE float lsg_fmax_nan(float a, float b) {
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
LSG_DEVICE float lsg_fmin_nan(float a, float b) {
  float r;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
}
LSG_DEVICE bool lsg_isfinite(float v) { return (__float_as_uint(v) & 0x7F800000u) != 0x7F800000u; }

/* ---- early launches ---- */
LSG_DEVICE void lsg_wait_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}
LSG_DEVICE void lsg_let_next() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;" ::: "memory");
#endif
}

/* ---- barrier and warp ---- */
LSG_DEVICE void lsg_barrier() { __syncthreads(); }
LSG_DEVICE void lsg_warp_sync(unsigned mask) { __syncwarp(mask); }
template <typename T>
LSG_DEVICE T lsg_shfl(unsigned mask, T v, int lane) {
  return __shfl_sync(mask, v, lane);
}
template <typename T>
LSG_DEVICE T lsg_shfl_xor(unsigned mask, T v, int lane_mask) {
  return __shfl_xor_sync(mask, v, lane_mask);
}
template <typename T>
LSG_DEVICE T lsg_shfl_down(unsigned mask, T v, int n) {
  return __shfl_down_sync(mask, v, (unsigned)n);
}
template <typename T>
LSG_DEVICE T lsg_shfl_up(unsigned mask, T v, int n) {
  return __shfl_up_sync(mask, v, (unsigned)n);
}
LSG_DEVICE unsigned lsg_ballot(unsigned mask, int p) { return __ballot_sync(mask, p); }
LSG_DEVICE int lsg_any(unsigned mask, int p) { return __any_sync(mask, p); }
LSG_DEVICE int lsg_all(unsigned mask, int p) { return __all_sync(mask, p); }

/* offsets 16 8 4 2 1: addition commutes, so every lane ends with the same bits */
LSG_DEVICE float lsg_warp_sum(float v) {
  LSG_UNROLL
  for (int offset = 16; offset > 0; offset >>= 1) v = __fadd_rn(v, __shfl_xor_sync(LSG_FULL_MASK, v, offset));
  return v;
}
LSG_DEVICE float lsg_warp_max(float v) {
  LSG_UNROLL
  for (int offset = 16; offset > 0; offset >>= 1) v = lsg_fmax_nan(v, __shfl_xor_sync(LSG_FULL_MASK, v, offset));
  return v;
}

/* ---- tensor core ---- */
LSG_DEVICE void lsg_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
LSG_DEVICE void lsg_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2]) {
  asm volatile("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
               : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
LSG_DEVICE uint32_t lsg_shared_address(const void *p) { return (uint32_t)__cvta_generic_to_shared(p); }
LSG_DEVICE void lsg_ldmatrix_x4(uint32_t r[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(lsg_shared_address(row))
               : "memory");
}
LSG_DEVICE void lsg_ldmatrix_x2(uint32_t r[2], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(lsg_shared_address(row))
               : "memory");
}
LSG_DEVICE void lsg_ldmatrix_x4_trans(uint32_t r[4], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(lsg_shared_address(row))
               : "memory");
}
LSG_DEVICE void lsg_ldmatrix_x2_trans(uint32_t r[2], const void *row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(lsg_shared_address(row))
               : "memory");
}

/* ---- cp.async ---- */
LSG_DEVICE void lsg_cp_async16(void *shared, const void *global, int bytes) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(lsg_shared_address(shared)), "l"(__cvta_generic_to_global(global)),
               "r"(bytes)
               : "memory");
}
LSG_DEVICE void lsg_cp_async16_once(void *shared, const void *global, int bytes) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(lsg_shared_address(shared)),
               "l"(__cvta_generic_to_global(global)), "r"(bytes)
               : "memory");
}
LSG_DEVICE void lsg_cp_async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
LSG_DEVICE void lsg_cp_async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

/* ---- atomics ---- */
template <typename T>
LSG_DEVICE T lsg_atomic_add(T *p, T v) {
  return atomicAdd(p, v);
}
template <typename T>
LSG_DEVICE T lsg_atomic_max(T *p, T v) {
  return atomicMax(p, v);
}
template <typename T>
LSG_DEVICE T lsg_atomic_min(T *p, T v) {
  return atomicMin(p, v);
}
LSG_DEVICE unsigned lsg_atomic_or(unsigned *p, unsigned v) { return atomicOr(p, v); }
template <typename T>
LSG_DEVICE T lsg_atomic_cas(T *p, T compare, T v) {
  return atomicCAS(p, compare, v);
}
LSG_DEVICE void lsg_fence() { __threadfence(); }

/* ---- 16-byte accesses ---- */
typedef uint4 lsg_u32x4;
LSG_DEVICE lsg_u32x4 lsg_load16(const void *p) { return *reinterpret_cast<const uint4 *>(p); }
LSG_DEVICE lsg_u32x4 lsg_load16_stream(const void *p) { /* not volatile: the compiler may batch these loads */
  uint4 v;
  asm("ld.global.nc.L1::no_allocate.L2::256B.v4.u32 {%0, %1, %2, %3}, [%4];"
      : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
      : "l"(__cvta_generic_to_global(p)));
  return v;
}
LSG_DEVICE void lsg_store16(void *p, lsg_u32x4 v) { *reinterpret_cast<uint4 *>(p) = v; }

}  // namespace LSG_NS

#endif
