/* emu_mma: mma.sync m16n8k16 and ldmatrix.
 *
 * Each lane puts its fragments, as the PTX ISA lays them out, into the warp's matrices when it arrives; the last to arrive multiplies. With
 * g = lane / 4 and t = lane % 4 a lane holds
 *   A  a0 (g, 2t) a1 (g+8, 2t) a2 (g, 2t+8) a3 (g+8, 2t+8), each with its right neighbour in the upper half
 *   B  b0 (k = 2t, n = g) b1 (k = 2t+8, n = g), each with the k after it in the upper half
 *   D  d0 d1 (g, 2t) d2 d3 (g+8, 2t)
 * Products of 16-bit floats are exact in float32 (short of its range's ends); sums run over k in order from d, multiplication and addition
 * apart, so that the bits do not depend on the processor. */
#include <string.h>

#include "emu_fiber.h"

namespace LSG_NS {

namespace {

typedef float float8 __attribute__((vector_size(32), aligned(4), may_alias));

#define ALWAYS_INLINE __attribute__((always_inline)) inline

template <bool bf16>
ALWAYS_INLINE void widen(float *out, const uint16_t *in, int n) {
  for (int i = 0; i < n; i++) {
    uint32_t h = in[i], u;
    if (bf16) {
      u = h << 16;
      memcpy(&out[i], &u, sizeof u);
    } else { /* lsg_f16_to_f32 without branches */
      uint32_t magnitude = (h & 0x7FFFu) << 13, sign = (h & 0x8000u) << 16, scaled;
      float v;
      memcpy(&v, &magnitude, sizeof v);
      v *= 0x1p112f;
      memcpy(&scaled, &v, sizeof scaled);
      u = sign | (magnitude >= 0x0F800000u ? magnitude | 0x70000000u : scaled);
      memcpy(&out[i], &u, sizeof u);
    }
  }
}

/* d += a . b */
template <bool bf16>
ALWAYS_INLINE void multiply(float (*d)[8], const uint16_t (*a)[16], const uint16_t (*b)[8]) {
  alignas(32) float wide_a[16][16], wide_b[16][8];
  widen<bf16>(wide_a[0], a[0], 256);
  widen<bf16>(wide_b[0], b[0], 128);
  for (int half = 0; half < 16; half += 8) { /* eight sums at a time stay in registers */
    float8 sum[8];
    for (int m = 0; m < 8; m++) memcpy(&sum[m], d[half + m], sizeof sum[m]);
    for (int k = 0; k < 16; k++) {
      float8 row;
      memcpy(&row, wide_b[k], sizeof row);
#pragma GCC unroll 8
      for (int m = 0; m < 8; m++) sum[m] += wide_a[half + m][k] * row;
    }
    for (int m = 0; m < 8; m++) memcpy(d[half + m], &sum[m], sizeof sum[m]);
  }
}

typedef void multiply_fn(float (*d)[8], const uint16_t (*a)[16], const uint16_t (*b)[8]);

void multiply_bf16_plain(float (*d)[8], const uint16_t (*a)[16], const uint16_t (*b)[8]) { multiply<true>(d, a, b); }
void multiply_f16_plain(float (*d)[8], const uint16_t (*a)[16], const uint16_t (*b)[8]) { multiply<false>(d, a, b); }
#if defined(__x86_64__)
__attribute__((target("avx2"))) void multiply_bf16_avx2(float (*d)[8], const uint16_t (*a)[16], const uint16_t (*b)[8]) {
  multiply<true>(d, a, b);
}
__attribute__((target("avx2"))) void multiply_f16_avx2(float (*d)[8], const uint16_t (*a)[16], const uint16_t (*b)[8]) {
  multiply<false>(d, a, b);
}
const bool has_avx2 = __builtin_cpu_supports("avx2");
multiply_fn *const multiply_bf16 = has_avx2 ? multiply_bf16_avx2 : multiply_bf16_plain;
multiply_fn *const multiply_f16 = has_avx2 ? multiply_f16_avx2 : multiply_f16_plain;
#else
multiply_fn *const multiply_bf16 = multiply_bf16_plain;
multiply_fn *const multiply_f16 = multiply_f16_plain;
#endif

}  // namespace

void emu_mma(emu_kind kind, float d[4], const uint32_t a[4], const uint32_t b[2], const char *file, int line) {
  emu_fiber *self = emu_self;
  emu_warp_state *warp = self->warp;
  const int lane = self->place.thread & 31, g = lane >> 2, t2 = (lane & 3) * 2;
  memcpy(&warp->a[g][t2], &a[0], 4);
  memcpy(&warp->a[g + 8][t2], &a[1], 4);
  memcpy(&warp->a[g][t2 + 8], &a[2], 4);
  memcpy(&warp->a[g + 8][t2 + 8], &a[3], 4);
  warp->b[t2][g] = (uint16_t)b[0];
  warp->b[t2 + 1][g] = (uint16_t)(b[0] >> 16);
  warp->b[t2 + 8][g] = (uint16_t)b[1];
  warp->b[t2 + 9][g] = (uint16_t)(b[1] >> 16);
  memcpy(&warp->d[g][t2], &d[0], 8);
  memcpy(&warp->d[g + 8][t2], &d[2], 8);
  if (emu_meet_warp(self, kind, file, line)) {
    (kind == EMU_MMA_BF16 ? multiply_bf16 : multiply_f16)(warp->d, warp->a, warp->b);
    emu_release(self, LSG_FULL_MASK);
  }
  memcpy(&d[0], &warp->d[g][t2], 8);
  memcpy(&d[2], &warp->d[g + 8][t2], 8);
}

void emu_ldmatrix(emu_kind kind, uint32_t *r, const void *row, const char *file, int line) {
  emu_fiber *self = emu_self;
  emu_warp_state *warp = self->warp;
  const bool x4 = kind == EMU_LDMATRIX_X4 || kind == EMU_LDMATRIX_X4_TRANS, trans = kind >= EMU_LDMATRIX_X4_TRANS;
  const int lane = self->place.thread & 31, g = lane >> 2, t2 = (lane & 3) * 2, matrices = x4 ? 4 : 2;
  if (lane < matrices * 8) { /* the other lanes' addresses are not used */
    if (((uintptr_t)row & 15u) != 0) emu_misaligned("ldmatrix", row, file, line);
    if (!emu_in_shared(self->worker, row, 16))
      emu_fail("ldmatrix (%s:%d): %p is not 16 bytes of this block's shared memory", emu_file_name(file), line, row);
    warp->row[lane] = row;
  }
  if (emu_meet_warp(self, kind, file, line)) {
    for (int i = 0; i < matrices * 8; i++) memcpy(warp->matrix[i >> 3][i & 7], warp->row[i], 16);
    emu_release(self, LSG_FULL_MASK);
  }
  for (int i = 0; i < matrices; i++) {
    const uint16_t(*m)[8] = warp->matrix[i];
    if (trans)
      r[i] = (uint32_t)m[t2][g] | (uint32_t)m[t2 + 1][g] << 16;
    else
      memcpy(&r[i], &m[g][t2], 4);
  }
}

}  // namespace LSG_NS
