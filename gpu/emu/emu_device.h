/* emu_device.h: gpu_device.h on the CPU. A thread is a fiber; this file holds what needs no scheduling, and declares what does
 * (emu_fiber.cpp: barrier, warp calls, shared memory, cp.async; emu_mma.cpp: the tensor core).
 *
 * Every rendezvous carries its place in the source, by default arguments, for messages and to see two different calls meet. */
#ifndef EMU_DEVICE_H
#define EMU_DEVICE_H

#include <math.h>
#include <string.h>

#define LSG_KERNEL(threads)
#define LSG_DEVICE      [[maybe_unused]] static inline
#define LSG_HOST_DEVICE [[maybe_unused]] static inline
#define LSG_METHOD      static inline
#define LSG_UNROLL
#define LSG_RESTRICT  __restrict__

#define LSG_SITE      , const char *lsg_file = __builtin_FILE(), int lsg_line = __builtin_LINE()
#define LSG_SITE_PASS , lsg_file, lsg_line

/* A reference to an array, as __shared__ gives: sizeof works. One site a declaration (and template instance), one array a site and block.
 */
#define LSG_SHARED(type, name, count)                                                                \
  static const LSG_NS::emu_shared_site name##_shared_site = {#name, sizeof(type) * (size_t)(count)}; \
  type(&name)[count] = *reinterpret_cast<type(*)[count]>(LSG_NS::emu_shared(&name##_shared_site))
#define LSG_DYNAMIC_SHARED(type, name) type *name = reinterpret_cast<type *>(LSG_NS::emu_dynamic_shared())

/* Set before any code runs, so that reading one needs no guard (C++20's constinit, under each compiler's own name). */
#if defined(__clang__)
#define EMU_CONSTINIT __attribute__((require_constant_initialization))
#else
#define EMU_CONSTINIT __constinit
#endif

namespace LSG_NS {

/* ---- the thread that runs; emu_fiber.h holds the rest ---- */
struct emu_block { /* what the threads of a block share */
  int64_t block[3], grid[3];
  int threads;
};
struct emu_place { /* what a thread knows of where it is */
  int thread;
  const emu_block *block;
};
extern EMU_CONSTINIT thread_local const emu_place *emu_here; /* NULL outside a kernel */

struct emu_shared_site {
  const char *name;
  size_t bytes;
};
void *emu_shared(const emu_shared_site *site);
void *emu_dynamic_shared(void);

enum emu_kind : unsigned char {
  EMU_NONE,
  EMU_BARRIER,
  EMU_WARP_SYNC,
  EMU_SHFL,
  EMU_SHFL_XOR,
  EMU_SHFL_DOWN,
  EMU_SHFL_UP,
  EMU_BALLOT,
  EMU_ANY,
  EMU_ALL,
  EMU_WARP_SUM,
  EMU_WARP_MAX,
  EMU_LDMATRIX_X4,
  EMU_LDMATRIX_X2,
  EMU_LDMATRIX_X4_TRANS,
  EMU_LDMATRIX_X2_TRANS,
  EMU_MMA_BF16,
  EMU_MMA_F16,
  EMU_KINDS
};
void emu_barrier(const char *file, int line);
/* All lanes of mask meet; each hands in 64 bits and an operand and gets 64 bits. */
uint64_t emu_warp(emu_kind kind, unsigned mask, uint64_t bits, int operand, const char *file, int line);
void emu_ldmatrix(emu_kind kind, uint32_t *r, const void *row, const char *file, int line);
void emu_mma(emu_kind kind, float d[4], const uint32_t a[4], const uint32_t b[2], const char *file, int line);
void emu_cp_async16(void *shared, const void *global, int bytes, const char *file, int line);
void emu_wait_before(void);
void emu_cp_async_commit(void);
void emu_cp_async_wait(int groups);
[[noreturn]] void emu_misaligned(const char *what, const void *p, const char *file, int line);

/* ---- indices ---- */
LSG_DEVICE int lsg_thread() { return emu_here->thread; }
LSG_DEVICE int lsg_block_threads() { return emu_here->block->threads; }
LSG_DEVICE int lsg_lane() { return emu_here->thread & 31; }
LSG_DEVICE int lsg_warp() { return emu_here->thread >> 5; }
LSG_DEVICE int64_t lsg_block_x() { return emu_here->block->block[0]; }
LSG_DEVICE int64_t lsg_block_y() { return emu_here->block->block[1]; }
LSG_DEVICE int64_t lsg_block_z() { return emu_here->block->block[2]; }
LSG_DEVICE int64_t lsg_grid_x() { return emu_here->block->grid[0]; }
LSG_DEVICE int64_t lsg_grid_y() { return emu_here->block->grid[1]; }
LSG_DEVICE int64_t lsg_grid_z() { return emu_here->block->grid[2]; }

/* ---- bits and conversions: the GPU's results, written on their own (not core's code: the reference uses that) ---- */
LSG_DEVICE uint32_t lsg_bits(float v) {
  uint32_t u;
  memcpy(&u, &v, sizeof u);
  return u;
}
LSG_DEVICE float lsg_from_bits(uint32_t u) {
  float v;
  memcpy(&v, &u, sizeof v);
  return v;
}
LSG_DEVICE float lsg_bf16_to_f32(uint16_t h) { return lsg_from_bits((uint32_t)h << 16); }
LSG_DEVICE uint16_t lsg_f32_to_bf16(float v) {
  uint32_t u = lsg_bits(v);
  if (v != v) return 0x7FFF; /* the GPU's canonical NaN */
  return (uint16_t)((u + 0x7FFFu + ((u >> 16) & 1u)) >> 16);
}
/* The 15 bits without the sign moved to a float32's place, and the exponent's bias corrected by an exact multiplication, which also
 * normalises subnormals. */
LSG_DEVICE float lsg_f16_to_f32(uint16_t h) {
  uint32_t magnitude = (uint32_t)(h & 0x7FFFu) << 13, sign = (uint32_t)(h & 0x8000u) << 16;
  if (magnitude >= 0x0F800000u) return lsg_from_bits(sign | 0x70000000u | magnitude); /* infinity, NaN */
  return lsg_from_bits(sign | lsg_bits(lsg_from_bits(magnitude) * 0x1p112f));
}
LSG_DEVICE uint16_t lsg_f32_to_f16(float v) {
  if (v != v) return 0x7FFF;
  uint32_t u = lsg_bits(v), sign = u >> 16 & 0x8000u, magnitude = u & 0x7FFFFFFFu;
  if (magnitude >= 0x477FF000u) return (uint16_t)(sign | 0x7C00u); /* 65520 and more round to infinity */
  if (magnitude < 0x38800000u) {                                   /* below 2^-14: 0.5's last place is 2^-24, adding it rounds there */
    float sum = lsg_from_bits(magnitude) + 0.5f;
    return (uint16_t)(sign | (lsg_bits(sum) - 0x3F000000u));
  }
  return (uint16_t)(sign | ((magnitude - 0x38000000u + 0xFFFu + (magnitude >> 13 & 1u)) >> 13));
}
LSG_DEVICE uint32_t lsg_pack_bf16(float lo, float hi) { return (uint32_t)lsg_f32_to_bf16(lo) | (uint32_t)lsg_f32_to_bf16(hi) << 16; }
LSG_DEVICE uint32_t lsg_pack_f16(float lo, float hi) { return (uint32_t)lsg_f32_to_f16(lo) | (uint32_t)lsg_f32_to_f16(hi) << 16; }
LSG_DEVICE uint8_t lsg_f32_to_e4m3(float v) {
  if (v != v) return 0x7F;
  uint32_t u = lsg_bits(v), sign = u >> 24 & 0x80u, magnitude = u & 0x7FFFFFFFu;
  if (magnitude >= 0x43E00000u) return (uint8_t)(sign | 0x7Eu); /* 448 and more, infinity included */
  if (magnitude < 0x3C800000u) {                                /* below 2^-6: 2^14's last place is 2^-9 */
    float sum = lsg_from_bits(magnitude) + 0x1p14f;
    return (uint8_t)(sign | (lsg_bits(sum) - 0x46800000u));
  }
  return (uint8_t)(sign | ((magnitude - 0x3C000000u + 0x7FFFFu + (magnitude >> 20 & 1u)) >> 20));
}
LSG_DEVICE float lsg_e4m3_to_f32(uint8_t code) {
  uint32_t magnitude = code & 0x7Fu, sign = (uint32_t)(code & 0x80u) << 24;
  if (magnitude == 0x7F) return lsg_from_bits(0x7FFFFFFFu);
  if (magnitude < 8) return lsg_from_bits(sign | lsg_bits((float)magnitude * 0x1p-9f));
  return lsg_from_bits(sign | ((magnitude << 20) + 0x3C000000u));
}

/* ---- maths ---- */
LSG_DEVICE float lsg_sqrt(float v) { return sqrtf(v); }
LSG_DEVICE float lsg_div(float a, float b) { return a / b; }
LSG_DEVICE float lsg_exp(float v) { return expf(v); }
LSG_DEVICE void lsg_sincos(float angle, float *s, float *c) { *s = sinf(angle), *c = cosf(angle); }
/* fmaf's bits without a call: the product is exact in double, so all is rounded twice, and that shows only where the first rounding lands
 * half way between two floats, or below the normal ones, whose steps lie elsewhere. */
LSG_DEVICE float lsg_fma(float a, float b, float c) {
  const double sum = (double)a * (double)b + (double)c;
  uint64_t u;
  memcpy(&u, &sum, sizeof u);
  const bool half_way = (u & 0x1FFFFFFFu) == 0x10000000u, below = (u >> 52 & 0x7FFu) < 1023 - 126 && sum != 0;
  return __builtin_expect(half_way || below, 0) ? fmaf(a, b, c) : (float)sum;
}
LSG_DEVICE float lsg_fmax_nan(float a, float b) {
  if (a != a || b != b) return lsg_from_bits(0x7FFFFFFFu);
  return a > b || (a == b && !signbit(a)) ? a : b;
}
LSG_DEVICE float lsg_fmin_nan(float a, float b) {
  if (a != a || b != b) return lsg_from_bits(0x7FFFFFFFu);
  return a < b || (a == b && signbit(a)) ? a : b;
}
LSG_DEVICE bool lsg_isfinite(float v) { return (lsg_bits(v) & 0x7F800000u) != 0x7F800000u; }

/* ---- barrier and warp ---- */
LSG_DEVICE void lsg_barrier(const char *lsg_file = __builtin_FILE(), int lsg_line = __builtin_LINE()) { emu_barrier(lsg_file, lsg_line); }
LSG_DEVICE void lsg_warp_sync(unsigned mask LSG_SITE) { emu_warp(EMU_WARP_SYNC, mask, 0, 0 LSG_SITE_PASS); }

template <typename T>
LSG_DEVICE T emu_shuffle(emu_kind kind, unsigned mask, T v, int operand, const char *file, int line) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles take 32 and 64-bit values");
  uint64_t bits = 0;
  memcpy(&bits, &v, sizeof v);
  bits = emu_warp(kind, mask, bits, operand, file, line);
  memcpy(&v, &bits, sizeof v);
  return v;
}
template <typename T>
LSG_DEVICE T lsg_shfl(unsigned mask, T v, int lane LSG_SITE) {
  return emu_shuffle(EMU_SHFL, mask, v, lane LSG_SITE_PASS);
}
template <typename T>
LSG_DEVICE T lsg_shfl_xor(unsigned mask, T v, int lane_mask LSG_SITE) {
  return emu_shuffle(EMU_SHFL_XOR, mask, v, lane_mask LSG_SITE_PASS);
}
template <typename T>
LSG_DEVICE T lsg_shfl_down(unsigned mask, T v, int n LSG_SITE) {
  return emu_shuffle(EMU_SHFL_DOWN, mask, v, n LSG_SITE_PASS);
}
template <typename T>
LSG_DEVICE T lsg_shfl_up(unsigned mask, T v, int n LSG_SITE) {
  return emu_shuffle(EMU_SHFL_UP, mask, v, n LSG_SITE_PASS);
}
LSG_DEVICE unsigned lsg_ballot(unsigned mask, int p LSG_SITE) { return (unsigned)emu_warp(EMU_BALLOT, mask, p != 0, 0 LSG_SITE_PASS); }
LSG_DEVICE int lsg_any(unsigned mask, int p LSG_SITE) { return emu_warp(EMU_ANY, mask, p != 0, 0 LSG_SITE_PASS) != 0; }
LSG_DEVICE int lsg_all(unsigned mask, int p LSG_SITE) { return emu_warp(EMU_ALL, mask, p != 0, 0 LSG_SITE_PASS) != 0; }

/* One rendezvous instead of five shuffles; the same sums in the same order, so the same bits. */
LSG_DEVICE float lsg_warp_sum(float v LSG_SITE) { return emu_shuffle(EMU_WARP_SUM, LSG_FULL_MASK, v, 0 LSG_SITE_PASS); }
LSG_DEVICE float lsg_warp_max(float v LSG_SITE) { return emu_shuffle(EMU_WARP_MAX, LSG_FULL_MASK, v, 0 LSG_SITE_PASS); }

/* ---- tensor core ---- */
LSG_DEVICE void lsg_mma_bf16(float d[4], const uint32_t a[4], const uint32_t b[2] LSG_SITE) {
  emu_mma(EMU_MMA_BF16, d, a, b LSG_SITE_PASS);
}
LSG_DEVICE void lsg_mma_f16(float d[4], const uint32_t a[4], const uint32_t b[2] LSG_SITE) { emu_mma(EMU_MMA_F16, d, a, b LSG_SITE_PASS); }
LSG_DEVICE void lsg_ldmatrix_x4(uint32_t r[4], const void *row LSG_SITE) { emu_ldmatrix(EMU_LDMATRIX_X4, r, row LSG_SITE_PASS); }
LSG_DEVICE void lsg_ldmatrix_x2(uint32_t r[2], const void *row LSG_SITE) { emu_ldmatrix(EMU_LDMATRIX_X2, r, row LSG_SITE_PASS); }
LSG_DEVICE void lsg_ldmatrix_x4_trans(uint32_t r[4], const void *row LSG_SITE) {
  emu_ldmatrix(EMU_LDMATRIX_X4_TRANS, r, row LSG_SITE_PASS);
}
LSG_DEVICE void lsg_ldmatrix_x2_trans(uint32_t r[2], const void *row LSG_SITE) {
  emu_ldmatrix(EMU_LDMATRIX_X2_TRANS, r, row LSG_SITE_PASS);
}

/* ---- early launches ---- */
LSG_DEVICE void lsg_wait_before() { emu_wait_before(); }
LSG_DEVICE void lsg_let_next() {}

/* ---- cp.async ---- */
LSG_DEVICE void lsg_cp_async16(void *shared, const void *global, int bytes LSG_SITE) {
  emu_cp_async16(shared, global, bytes LSG_SITE_PASS);
}
LSG_DEVICE void lsg_cp_async16_once(void *shared, const void *global, int bytes LSG_SITE) {
  emu_cp_async16(shared, global, bytes LSG_SITE_PASS);
}
LSG_DEVICE void lsg_cp_async_commit() { emu_cp_async_commit(); }
template <int N>
LSG_DEVICE void lsg_cp_async_wait() {
  static_assert(N >= 0, "a count of groups");
  emu_cp_async_wait(N);
}

/* ---- atomics: blocks run on several CPU threads, so these are the CPU's ---- */
template <typename T, typename F>
LSG_DEVICE T emu_atomic(T *p, F next) {
  T old, wanted;
  __atomic_load(p, &old, __ATOMIC_SEQ_CST);
  do wanted = next(old);
  while (!__atomic_compare_exchange(p, &old, &wanted, true, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST));
  return old;
}
template <typename T>
LSG_DEVICE T lsg_atomic_add(T *p, T v) {
  /* an int wraps on a GPU: added as unsigned */
  if constexpr (T(0.5) != T(0))
    return emu_atomic(p, [v](T old) { return old + v; });
  else
    return emu_atomic(p, [v](T old) { return (T)((unsigned long long)old + (unsigned long long)v); });
}
template <typename T>
LSG_DEVICE T lsg_atomic_max(T *p, T v) {
  return emu_atomic(p, [v](T old) { return old > v ? old : v; });
}
template <typename T>
LSG_DEVICE T lsg_atomic_min(T *p, T v) {
  return emu_atomic(p, [v](T old) { return old < v ? old : v; });
}
LSG_DEVICE unsigned lsg_atomic_or(unsigned *p, unsigned v) {
  return emu_atomic(p, [v](unsigned old) { return old | v; });
}
template <typename T>
LSG_DEVICE T lsg_atomic_cas(T *p, T compare, T v) {
  return emu_atomic(p, [compare, v](T old) { return old == compare ? v : old; });
}
LSG_DEVICE void lsg_fence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }

/* ---- 16-byte accesses ---- */
struct alignas(16) lsg_u32x4 {
  uint32_t x, y, z, w;
};
LSG_DEVICE lsg_u32x4 lsg_load16(const void *p LSG_SITE) {
  if (((uintptr_t)p & 15u) != 0) emu_misaligned("lsg_load16", p LSG_SITE_PASS);
  lsg_u32x4 v;
  memcpy(&v, p, sizeof v);
  return v;
}
LSG_DEVICE lsg_u32x4 lsg_load16_stream(const void *p LSG_SITE) {
  if (((uintptr_t)p & 15u) != 0) emu_misaligned("lsg_load16_stream", p LSG_SITE_PASS);
  lsg_u32x4 v;
  memcpy(&v, p, sizeof v);
  return v;
}
LSG_DEVICE void lsg_store16(void *p, lsg_u32x4 v LSG_SITE) {
  if (((uintptr_t)p & 15u) != 0) emu_misaligned("lsg_store16", p LSG_SITE_PASS);
  memcpy(p, &v, sizeof v);
}

}  // namespace LSG_NS

#endif
