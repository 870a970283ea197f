/* gpu_common.h: what both backends build from the primitives of gpu_device.h, which includes this file last: the activation types as
 * traits, so that a kernel is written once for bf16 and f16. */
#ifndef GPU_COMMON_H
#define GPU_COMMON_H

namespace LSG_NS {

enum { LSG_BF16 = 0, LSG_F16 = 1 };

LSG_DEVICE lsg_u32x4 lsg_zero16() {
  const lsg_u32x4 v = {0, 0, 0, 0};
  return v;
}

/* lsg_act<LSG_BF16> and lsg_act<LSG_F16>: one 16-bit element as float32 and back (nearest-even), two packed into a word (lo in the low
 * half), and the tensor-core product d += a . b of that type. */
template <int type>
struct lsg_act;

template <>
struct lsg_act<LSG_BF16> {
  LSG_METHOD float widen(uint16_t h) { return lsg_bf16_to_f32(h); }
  LSG_METHOD uint16_t round(float v) { return lsg_f32_to_bf16(v); }
  LSG_METHOD uint32_t pack(float lo, float hi) { return lsg_pack_bf16(lo, hi); }
  LSG_METHOD float widen_lo(uint32_t pair) { return lsg_from_bits(pair << 16); }
  LSG_METHOD float widen_hi(uint32_t pair) { return lsg_from_bits(pair & 0xFFFF0000u); }
  LSG_METHOD void mma(float d[4], const uint32_t a[4], const uint32_t b[2] LSG_SITE) { lsg_mma_bf16(d, a, b LSG_SITE_PASS); }
};

template <>
struct lsg_act<LSG_F16> {
  LSG_METHOD float widen(uint16_t h) { return lsg_f16_to_f32(h); }
  LSG_METHOD uint16_t round(float v) { return lsg_f32_to_f16(v); }
  LSG_METHOD uint32_t pack(float lo, float hi) { return lsg_pack_f16(lo, hi); }
  LSG_METHOD float widen_lo(uint32_t pair) { return lsg_f16_to_f32((uint16_t)pair); }
  LSG_METHOD float widen_hi(uint32_t pair) { return lsg_f16_to_f32((uint16_t)(pair >> 16)); }
  LSG_METHOD void mma(float d[4], const uint32_t a[4], const uint32_t b[2] LSG_SITE) { lsg_mma_f16(d, a, b LSG_SITE_PASS); }
};

}  // namespace LSG_NS

#endif
