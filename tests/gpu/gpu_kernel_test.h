/* gpu_kernel_test.h: what the kernel tests share: buffers on the emulated device, values, and bounds in steps of a format. */
#ifndef GPU_KERNEL_TEST_H
#define GPU_KERNEL_TEST_H

#include <criterion/criterion.h>
#include <math.h>

#include <vector>

#include "core/ls_numeric.h"
#include "core/ls_random.h"
#include "gpu/gpu_backend.h"

namespace gpu_test {

using namespace lsg_emu;

/* The stream all kernel tests run on. */
inline lsg_stream stream(void) {
  static lsg_stream one = nullptr;
  if (!one) {
    cr_assert_eq(lsg_open(0), LSG_OK);
    cr_assert_eq(lsg_stream_new(&one), LSG_OK);
  }
  return one;
}

template <class T>
class device {
 public:
  explicit device(const std::vector<T> &values, const char *name = "test") : count_(values.size()) {
    cr_assert_eq(lsg_alloc(&data_, count_ * sizeof(T), name), LSG_OK, "%s", lsg_error_text());
    cr_assert_eq(lsg_upload(data_, values.data(), count_ * sizeof(T), stream()), LSG_OK, "%s", lsg_error_text());
  }
  ~device() { lsg_free(data_); }
  device(const device &) = delete;
  device &operator=(const device &) = delete;
  operator T *() const { return static_cast<T *>(data_); }
  std::vector<T> download() const {
    std::vector<T> values(count_);
    cr_assert_eq(lsg_download(values.data(), data_, count_ * sizeof(T), stream()), LSG_OK, "%s", lsg_error_text());
    return values;
  }

 private:
  void *data_ = nullptr;
  size_t count_;
};

inline uint16_t narrow(bool bf16, double v) { return bf16 ? ls_f64_to_bf16(v) : ls_f64_to_f16(v); }
inline double widen(bool bf16, uint16_t h) { return (double)(bf16 ? ls_bf16_to_f32(h) : ls_f16_to_f32(h)); }
inline ls_dtype type_of(bool bf16) { return bf16 ? LS_BF16 : LS_F16; }

/* count values in [offset - scale, offset + scale). */
inline std::vector<uint16_t> values(bool bf16, int64_t count, uint64_t seed, double scale = 1.0, double offset = 0.0) {
  std::vector<uint16_t> v((size_t)count);
  for (int64_t i = 0; i < count; i++) v[(size_t)i] = narrow(bf16, ls_generated_at(seed, (uint64_t)i, scale, offset));
  return v;
}

inline void expect_launched(lsg_status status) {
  cr_assert_eq(status, LSG_OK, "%s", lsg_error_text());
  cr_assert_eq(lsg_sync(stream()), LSG_OK, "%s", lsg_error_text());
}

}  // namespace gpu_test

#endif
