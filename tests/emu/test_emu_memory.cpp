/* Device and shared memory: what is never written reads as poison, what is out of bounds is reported by buffer. */
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "emu_test.h"

#if __has_include(<valgrind/valgrind.h>)
#include <valgrind/valgrind.h>
#else
#define RUNNING_ON_VALGRIND 0
#endif

namespace LSG_NS {

/* Thread 3 of block 2 alone touches element `at`; an opaque offset, so that no compiler sees it. */
LSG_KERNEL(64) void touch_kernel(float *y, const float *x, int64_t at, bool write) {
  if (lsg_block_x() != 2 || lsg_thread() != 3) return;
  if (write)
    y[at] = 1.0f;
  else
    y[0] = x[at];
}

#define TOUCH(y, x, at, write) LSG_LAUNCH(touch_kernel, lsg_grid(4), 64, 0, s, y, x, at, write)

Test(emu_memory, one_element_past_the_end_is_reported_by_name) {
  test_stream s;
  for (size_t n : {4, 100, 1024, 5000}) { /* multiples of 16 bytes: the buffer ends at the inaccessible page */
    test_buffer<float> y(s, n, "the_output"), x(s, std::vector<float>(n, 2.0f), "the_input");
    EXPECT_OK(TOUCH(y.p, x.p, (int64_t)n - 1, false));
    EXPECT_OK(lsg_sync(s));
    cr_assert(y.get()[0] == 2, "%s", "the last element was not read");
    std::string bytes = "(" + std::to_string(n * 4) + " bytes), 0 bytes past its end";
    EXPECT_OK(TOUCH(y.p, x.p, (int64_t)n, false));
    EXPECT_FAILS(lsg_sync(s), "emu: kernel touch_kernel, block (2,0,0), thread 3: reads at address 0x", "buffer 'the_input'",
                 bytes.c_str());
    EXPECT_OK(TOUCH(y.p, x.p, (int64_t)n, true));
    EXPECT_FAILS(lsg_sync(s), "block (2,0,0), thread 3: writes at address 0x", "buffer 'the_output'", bytes.c_str());
    EXPECT_OK(TOUCH(y.p, x.p, (int64_t)n + 500, true));
    EXPECT_FAILS(lsg_sync(s), "2000 bytes past its end");
  }
}

Test(emu_memory, within_the_last_sixteen_bytes_an_overrun_is_found_after_the_launch) {
  test_stream s;
  test_buffer<float> y(s, 5, "five"), x(s, std::vector<float>(5, 1.0f), "x");
  EXPECT_OK(TOUCH(y.p, x.p, (int64_t)5, true));
  EXPECT_FAILS(lsg_sync(s), "emu: kernel touch_kernel: one of its threads wrote past buffer 'five' (20 bytes), 0 bytes past its end");
  EXPECT_OK(TOUCH(y.p, x.p, (int64_t)4, true)); /* mended: reported once */
  EXPECT_OK(lsg_sync(s));
}

Test(emu_memory, before_the_begin_is_reported) {
  test_stream s;
  test_buffer<float> y(s, 100, "small"), page(s, std::vector<float>(1024, 1.0f), "page");
  EXPECT_OK(TOUCH(y.p, page.p, (int64_t)-1, false)); /* a whole page begins at the guard */
  EXPECT_FAILS(lsg_sync(s), "thread 3: reads", "buffer 'page' (4096 bytes), 4 bytes before its begin");
  EXPECT_OK(TOUCH(y.p, page.p, (int64_t)-3, true));
  EXPECT_FAILS(lsg_sync(s), "wrote before buffer 'small' (400 bytes), as far as 12 bytes before its begin");
  EXPECT_OK(TOUCH(y.p, page.p, (int64_t)-100000, true));
  EXPECT_FAILS(lsg_sync(s), "thread 3: writes", "buffer 'small' (400 bytes), 400000 bytes before its begin");
}

Test(emu_memory, use_after_free_is_reported) {
  test_stream s;
  test_buffer<float> y(s, 16, "y");
  void *gone = nullptr, **pointer = nullptr;
  EXPECT_OK(lsg_alloc(&gone, 64, "gone"));
  EXPECT_OK(lsg_alloc(reinterpret_cast<void **>(&pointer), 64, "pointer"));
  lsg_free(gone);
  const float *dead = static_cast<const float *>(gone);
  EXPECT_FAILS(TOUCH(y.p, dead, (int64_t)0, false), "emu: kernel touch_kernel: argument 2 is 0x",
               "freed buffer 'gone' (64 bytes), at byte 0");
  /* reached by an offset from a live buffer, which no check of arguments sees */
  EXPECT_OK(TOUCH(y.p, y.p, (dead - y.p) + 3, false));
  EXPECT_FAILS(lsg_sync(s), "thread 3: reads", "freed buffer 'gone' (64 bytes), at byte 12");
  EXPECT_FAILS(lsg_download(&gone, dead, 8, s), "lsg_download", "freed buffer 'gone'");
  lsg_free(pointer);
}

Test(emu_memory, nothing_written_reads_as_poison) {
  test_stream s;
  test_buffer<float> y(s, 1000, "y");
  for (float v : y.get()) cr_assert(v != v, "%s", "not a NaN");
  test_buffer<uint16_t> h(s, 999, "h");
  for (uint16_t v : h.get()) cr_assert(v == 0xFFFF, "%x", v);
}

LSG_KERNEL(64) void unwritten_shared_kernel(float *y, bool write) {
  LSG_SHARED(float, part, 64);
  LSG_DYNAMIC_SHARED(float, stage);
  int t = lsg_thread();
  y[lsg_block_x() * 128 + t] = part[t];
  y[lsg_block_x() * 128 + 64 + t] = stage[t];
  lsg_barrier();
  if (write) part[t] = stage[t] = 1.0f;
}

Test(emu_memory, shared_memory_is_poisoned_anew_for_every_block) {
  test_stream s;
  ls_threads_set(1);
  test_buffer<float> y(s, 10 * 128, "y");
  for (int launch = 0; launch < 3; launch++) {
    EXPECT_OK(lsg_fill(y.p, 0, 10 * 128 * 4, s));
    EXPECT_OK(LSG_LAUNCH(unwritten_shared_kernel, lsg_grid(10), 64, 64 * 4, s, y.p, true));
    EXPECT_OK(lsg_sync(s));
    for (float v : y.get()) cr_assert(v != v, "%s", "a block saw what another wrote");
  }
}

LSG_KERNEL(32) void shared_touch_kernel(float *y, int at, bool dynamic) {
  LSG_SHARED(float, tile, 64);
  LSG_SHARED(float, other, 64);
  LSG_DYNAMIC_SHARED(float, stage);
  float *p = dynamic ? stage : tile;
  if (lsg_thread() == 7) p[at] = 1.0f;
  y[lsg_thread()] = other[0] + y[lsg_thread()];
}

Test(emu_memory, past_a_shared_array_is_reported_by_name) {
  test_stream s;
  test_buffer<float> y(s, 32, "y");
  for (bool dynamic : {false, true}) {
    const char *name = dynamic ? "shared array 'dynamic shared memory' (80 bytes)" : "shared array 'tile' (256 bytes)";
    int n = dynamic ? 20 : 64;
    EXPECT_OK(LSG_LAUNCH(shared_touch_kernel, lsg_grid(3), 32, 80, s, y.p, n - 1, dynamic));
    EXPECT_OK(lsg_sync(s));
    EXPECT_OK(LSG_LAUNCH(shared_touch_kernel, lsg_grid(3), 32, 80, s, y.p, n, dynamic));
    EXPECT_FAILS(lsg_sync(s), "shared_touch_kernel, block (0,0,0), thread 7: writes at address", name, "0 bytes past its end");
    EXPECT_OK(LSG_LAUNCH(shared_touch_kernel, lsg_grid(3), 32, 80, s, y.p, n + 300, dynamic));
    EXPECT_FAILS(lsg_sync(s), name, "1200 bytes past its end");
    EXPECT_OK(LSG_LAUNCH(shared_touch_kernel, lsg_grid(3), 32, 80, s, y.p, -2, dynamic));
    EXPECT_FAILS(lsg_sync(s), "block (0,0,0)", dynamic ? "'dynamic shared memory' were written" : "'tile' were written");
  }
  EXPECT_OK(LSG_LAUNCH(shared_touch_kernel, lsg_grid(3), 32, 78, s, y.p, 19, true)); /* 2 of the 4 bytes are inside */
  EXPECT_FAILS(lsg_sync(s), "'dynamic shared memory' were written");
  EXPECT_OK(LSG_LAUNCH(shared_touch_kernel, lsg_grid(3), 32, 0, s, y.p, 0, true));
  EXPECT_FAILS(lsg_sync(s), "'dynamic shared memory' (0 bytes), 0 bytes past its end");
}

LSG_KERNEL(32) void same_array_kernel(int *y) {
  LSG_SHARED(int, box, 32);
  LSG_SHARED(int, twin, 32);
  box[lsg_thread()] = lsg_thread();
  twin[lsg_thread()] = 1000;
  lsg_barrier();
  y[lsg_thread()] = box[31 - lsg_thread()] + (int)(sizeof box == 32 * sizeof(int)) * 100;
}

Test(emu_memory, a_shared_array_is_one_for_its_block_and_apart_from_others) {
  test_stream s;
  test_buffer<int> y(s, 32, "y");
  EXPECT_OK(LSG_LAUNCH(same_array_kernel, lsg_grid(1), 32, 0, s, y.p));
  EXPECT_OK(lsg_sync(s));
  std::vector<int> v = y.get();
  for (int t = 0; t < 32; t++) cr_assert(v[(size_t)t] == 131 - t, "%d", v[(size_t)t]);
}

LSG_KERNEL(32) void big_shared_kernel(int *y) {
  LSG_SHARED(int, big, 12000);
  LSG_SHARED(int, more, 1000);
  y[lsg_thread()] = big[0] + more[0];
}
LSG_KERNEL(32) void plain_kernel(int *y) { y[lsg_thread()] = 1; }
LSG_KERNEL(32) void some_shared_kernel(int *y) {
  LSG_SHARED(int, some, 1000);
  y[lsg_thread()] = some[0];
}

Test(emu_memory, what_a_gpu_cannot_launch_is_refused) {
  test_stream s;
  test_buffer<int> y(s, 32, "y");
  EXPECT_FAILS(LSG_LAUNCH(plain_kernel, lsg_grid(1), 1025, 0, s, y.p), "emu: kernel plain_kernel: 1025 threads a block, expected 1..1024");
  EXPECT_FAILS(LSG_LAUNCH(plain_kernel, lsg_grid(1), 0, 0, s, y.p), "0 threads a block");
  EXPECT_FAILS(LSG_LAUNCH(plain_kernel, lsg_grid(0), 32, 0, s, y.p), "grid (0,1,1)");
  EXPECT_FAILS(LSG_LAUNCH(plain_kernel, lsg_grid((int64_t)1 << 33), 32, 0, s, y.p), "grid (0,1,1)");
  EXPECT_FAILS(LSG_LAUNCH(plain_kernel, lsg_grid(1, 65536), 32, 0, s, y.p), "grid (1,65536,1)");
  EXPECT_FAILS(LSG_LAUNCH(plain_kernel, lsg_grid(1), 32, 227 * 1024 + 1, s, y.p),
               "232449 bytes of dynamic shared memory, expected at most 232448");
  EXPECT_OK(LSG_LAUNCH(plain_kernel, lsg_grid(1), 32, 227 * 1024, s, y.p));
  EXPECT_OK(lsg_sync(s));
  EXPECT_OK(LSG_LAUNCH(some_shared_kernel, lsg_grid(1), 32, 227 * 1024, s, y.p));
  EXPECT_FAILS(lsg_sync(s), "4000 bytes of static and 232448 of dynamic shared memory");
  EXPECT_OK(LSG_LAUNCH(big_shared_kernel, lsg_grid(1), 32, 0, s, y.p));
  EXPECT_FAILS(lsg_sync(s), "the shared array 'more' makes 52000 bytes of static shared memory, more than 49152");
}

struct pair_of_pointers {
  int count;
  const float *first;
  double share;
  const float *second;
};
LSG_KERNEL(32) void struct_kernel(float *y, pair_of_pointers p) { y[lsg_thread()] = p.first[0] + (p.second != nullptr ? p.second[0] : 0); }

Test(emu_memory, a_host_pointer_is_refused_directly_and_in_a_struct) {
  test_stream s;
  test_buffer<float> y(s, 32, "y");
  float host[4] = {1, 2, 3, 4};
  const float *p = host;
  EXPECT_FAILS(TOUCH(y.p, p, (int64_t)0, false), "emu: kernel touch_kernel: argument 2 is 0x", "expected device memory, found host memory");
  pair_of_pointers both = {1 << 30, y.p, 1e300, y.p + 32};
  EXPECT_OK(LSG_LAUNCH(struct_kernel, lsg_grid(1), 32, 0, s, y.p, (pair_of_pointers{1 << 30, y.p, -2.5e-7, nullptr})));
  EXPECT_OK(lsg_sync(s));
  both.second = host;
  EXPECT_FAILS(LSG_LAUNCH(struct_kernel, lsg_grid(1), 32, 0, s, y.p, both), "argument 2 (a struct), byte 24, is 0x", "found host memory");
}

Test(emu_memory, null_and_garbled_pointers_are_reported) {
  test_stream s;
  test_buffer<float> y(s, 32, "y");
  if (RUNNING_ON_VALGRIND) return; /* it reports such addresses itself: no buffer of the emulator's is near them */
  EXPECT_OK(TOUCH(y.p, (const float *)nullptr, (int64_t)2, false));
  EXPECT_FAILS(lsg_sync(s), "thread 3: reads at address 0x8: a null pointer");
  EXPECT_OK(TOUCH(y.p, (const float *)nullptr, (int64_t)1 << 60, false));
  EXPECT_FAILS(lsg_sync(s), "thread 3: reads an address that no memory can have");
}

LSG_KERNEL(32) void askew_kernel(uint32_t *y, const uint32_t *x, int at, bool store) {
  lsg_u32x4 v = {1, 2, 3, 4};
  if (lsg_thread() != 5) return;
  if (store)
    lsg_store16(y + at, v);
  else
    v = lsg_load16(x + at), y[0] = v.x + v.y + v.z + v.w;
}

Test(emu_memory, a_misaligned_16_byte_access_is_reported) {
  test_stream s;
  test_buffer<uint32_t> y(s, 32, "y"), x(s, std::vector<uint32_t>(32, 3), "x");
  EXPECT_OK(LSG_LAUNCH(askew_kernel, lsg_grid(1), 32, 0, s, y.p, x.p, 8, false));
  EXPECT_OK(lsg_sync(s));
  cr_assert(y.get()[0] == 12, "%s", "the aligned load is wrong");
  EXPECT_OK(LSG_LAUNCH(askew_kernel, lsg_grid(1), 32, 0, s, y.p, x.p, 9, false));
  EXPECT_FAILS(lsg_sync(s), "askew_kernel, block (0,0,0), thread 5: lsg_load16 (test_emu_memory.cpp:",
               "not 16-byte aligned: buffer 'x' (128 bytes), at byte 36");
  EXPECT_OK(LSG_LAUNCH(askew_kernel, lsg_grid(1), 32, 0, s, y.p, x.p, 2, true));
  EXPECT_FAILS(lsg_sync(s), "thread 5: lsg_store16", "buffer 'y' (128 bytes), at byte 8");
  EXPECT_OK(LSG_LAUNCH(askew_kernel, lsg_grid(1), 32, 0, s, y.p, x.p, 32, false));
  EXPECT_FAILS(lsg_sync(s), "buffer 'x' (128 bytes), 0 bytes past its end");
}

LSG_KERNEL(64) void depth_kernel(int *y, int depth) {
  struct deep {
    static int go(int n, volatile int *keep) {
      volatile int room[256] = {n};
      return n <= 0 ? *keep : go(n - 1, room) + room[0];
    }
  };
  volatile int zero = 0;
  if (lsg_thread() == 11) y[0] = deep::go(depth, &zero);
}

Test(emu_memory, a_used_up_stack_is_reported) {
  test_stream s;
  test_buffer<int> y(s, 4, "y");
  EXPECT_OK(LSG_LAUNCH(depth_kernel, lsg_grid(1), 64, 0, s, y.p, 1000000));
  EXPECT_FAILS(lsg_sync(s), "depth_kernel, block (0,0,0), thread 11: its stack of");
  EXPECT_OK(LSG_LAUNCH(depth_kernel, lsg_grid(1), 64, 0, s, y.p, 3));
  EXPECT_OK(lsg_sync(s));
  cr_assert(y.get()[0] == 7, "%d", y.get()[0]); /* 3 + 2 + 1, and the innermost sees the 1 of its caller */
}

Test(emu_memory, buffers_are_aligned_and_apart) {
  test_stream s;
  for (size_t n : {256, 512, 4096, 65536}) {
    test_buffer<unsigned char> a(s, n, "a"), b(s, n - 5, "b");
    cr_assert((uintptr_t)a.p % 256 == 0 && (uintptr_t)b.p % 16 == 0, "%p %p", (void *)a.p, (void *)b.p);
  }
  test_buffer<float> empty(s, 0, "empty");
  cr_assert(empty.p != nullptr, "%s", "no address for an empty buffer");
}

Test(emu_memory, a_buffer_that_cannot_be_had_is_named) {
  void *p = nullptr;
  EXPECT_FAILS(lsg_alloc(&p, (size_t)1 << 60, "too_much"), "buffer 'too_much'");
  cr_assert(p == nullptr, "%p", p);
}

/* A fault outside the kernel's threads is none of the emulator's business. */
static void exit_with_42(int) { _exit(42); }

Test(emu_memory, a_fault_outside_a_kernel_goes_to_the_handler_before) {
  test_stream s;
  test_buffer<int> y(s, 32, "y");
  pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, exit_with_42);
    lsg_status status = LSG_LAUNCH(plain_kernel, lsg_grid(1), 32, 0, s, y.p);
    if (status != LSG_OK || lsg_sync(s) != LSG_OK) _exit(1);
    raise(SIGSEGV);
    _exit(2);
  }
  int how = 0;
  cr_assert(waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 42, "wait status %x", (unsigned)how);
}

LSG_KERNEL(32) void kill_kernel(int *y) {
  if (lsg_thread() == 0) raise(SIGSEGV);
  y[lsg_thread()] = 1;
}

Test(emu_memory, a_signal_someone_sent_during_a_kernel_is_handed_on) {
  test_stream s;
  test_buffer<int> y(s, 32, "y");
  pid_t child = fork();
  if (child == 0) {
    ls_threads_set(1);
    signal(SIGSEGV, exit_with_42);
    LSG_LAUNCH(kill_kernel, lsg_grid(1), 32, 0, s, y.p);
    _exit(3);
  }
  int how = 0;
  cr_assert(waitpid(child, &how, 0) == child && WIFEXITED(how) && WEXITSTATUS(how) == 42, "wait status %x", (unsigned)how);
}

}  // namespace LSG_NS
