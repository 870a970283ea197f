/* emu_test.h: what the emulator's tests share: a stream, device buffers from host vectors, and the check of a failure's line. */
#ifndef EMU_TEST_H
#define EMU_TEST_H

#include <criterion/criterion.h>
#include <string.h>

#include <string>
#include <vector>

#include "core/ls_numeric.h"
#include "core/ls_parallel.h"
#include "core/ls_random.h"
#include "gpu_backend.h"

#define EXPECT_OK(call)                                                                                               \
  do {                                                                                                                \
    LSG_NS::lsg_status test_status = (call);                                                                          \
    cr_assert(test_status == LSG_NS::LSG_OK, "%s: status %d: %s", #call, (int)test_status, LSG_NS::lsg_error_text()); \
  } while (0)

/* The call fails, and the line holds every one of the texts. */
#define EXPECT_FAILS(call, ...)                                                                                               \
  do {                                                                                                                        \
    LSG_NS::lsg_status test_status = (call);                                                                                  \
    std::string test_line = LSG_NS::lsg_error_text();                                                                         \
    cr_assert(test_status != LSG_NS::LSG_OK, "%s was expected to fail", #call);                                               \
    for (const char *test_part : {__VA_ARGS__})                                                                               \
      cr_assert(test_line.find(test_part) != std::string::npos, "'%s' is not in the line: %s", test_part, test_line.c_str()); \
    cr_assert(test_line.find('\n') == std::string::npos, "%s", "more than one line");                                         \
  } while (0)

namespace LSG_NS {

/* n elements on the device, poisoned, or from a host vector. */
template <typename T>
struct test_buffer {
  T *p = nullptr;
  size_t n;
  lsg_stream stream;
  test_buffer(lsg_stream s, size_t count, const char *name) : n(count), stream(s) {
    EXPECT_OK(lsg_alloc(reinterpret_cast<void **>(&p), n * sizeof(T), name));
  }
  test_buffer(lsg_stream s, const std::vector<T> &v, const char *name) : test_buffer(s, v.size(), name) {
    EXPECT_OK(lsg_upload(p, v.data(), n * sizeof(T), s));
  }
  test_buffer(const test_buffer &) = delete;
  test_buffer &operator=(const test_buffer &) = delete;
  ~test_buffer() { lsg_free(p); }
  std::vector<T> get() const {
    std::vector<T> v(n);
    EXPECT_OK(lsg_download(v.data(), p, n * sizeof(T), stream));
    return v;
  }
};

struct test_stream {
  lsg_stream s = nullptr;
  test_stream() {
    EXPECT_OK(lsg_open(0));
    EXPECT_OK(lsg_stream_new(&s));
  }
  test_stream(const test_stream &) = delete;
  test_stream &operator=(const test_stream &) = delete;
  ~test_stream() { lsg_stream_free(s); }
  operator lsg_stream() const { return s; }
};

/* The emulator's schedule for the life of this object. */
struct test_schedule {
  explicit test_schedule(uint64_t seed) { lsg_set_schedule(seed); }
  test_schedule(const test_schedule &) = delete;
  test_schedule &operator=(const test_schedule &) = delete;
  ~test_schedule() { lsg_set_schedule(0); }
};

}  // namespace LSG_NS

#endif
