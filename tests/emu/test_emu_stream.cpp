/* Streams, copies, graphs, the large product, and how a failure travels. */
#include "emu_test.h"

namespace LSG_NS {

LSG_KERNEL(32) void add_kernel(int *y, const int *x, int n) {
  int64_t i = lsg_block_x() * 32 + lsg_thread();
  if (i < n) y[i] += x[i];
}
LSG_KERNEL(32) void at_position_kernel(int *y, const int *position) {
  if (lsg_thread() == 0) y[position[0]] = position[0] + 100;
}
LSG_KERNEL(32) void overrun_kernel(int *y) { y[100000] = 1; }
template <int a, int b>
LSG_KERNEL(32)
void templated_kernel(int *y) {
  y[100000] = a + b;
}

Test(emu_stream, a_failure_stays_until_sync_and_does_not_poison_what_follows) {
  test_stream s;
  test_buffer<int> y(s, std::vector<int>(32, 1), "y"), x(s, std::vector<int>(32, 2), "x");
  int host[32];
  EXPECT_OK(LSG_LAUNCH(overrun_kernel, lsg_grid(8), 32, 0, s, y.p));
  EXPECT_OK(LSG_LAUNCH(add_kernel, lsg_grid(1), 32, 0, s, y.p, x.p, 32)); /* skipped */
  EXPECT_OK(lsg_fill(y.p, 0, 128, s));                                    /* skipped */
  EXPECT_FAILS(lsg_download(host, y.p, 128, s), "overrun_kernel");
  EXPECT_FAILS(lsg_sync(s), "emu: kernel overrun_kernel, block (0,0,0)");
  EXPECT_OK(lsg_sync(s));
  cr_assert(y.get() == std::vector<int>(32, 1), "%s", "something ran after the failure");
  EXPECT_OK(LSG_LAUNCH(add_kernel, lsg_grid(1), 32, 0, s, y.p, x.p, 32));
  EXPECT_OK(lsg_sync(s));
  cr_assert(y.get() == std::vector<int>(32, 3), "%s", "the launch after the failure is wrong");
}

Test(emu_stream, a_template_instance_is_named_with_its_arguments) {
  test_stream s;
  test_buffer<int> y(s, 32, "y");
  EXPECT_OK(LSG_LAUNCH((templated_kernel<3, 4>), lsg_grid(1), 32, 0, s, y.p));
  EXPECT_FAILS(lsg_sync(s), "emu: kernel templated_kernel<3, 4>, block (0,0,0), thread ");
}

Test(emu_stream, many_failures_leak_and_break_nothing) {
  test_stream s;
  test_buffer<int> y(s, std::vector<int>(32, 0), "y"), x(s, std::vector<int>(32, 1), "x");
  for (int i = 0; i < 100; i++) {
    EXPECT_OK(LSG_LAUNCH(overrun_kernel, lsg_grid(4), 32, 0, s, y.p));
    EXPECT_FAILS(lsg_sync(s), "overrun_kernel");
    EXPECT_OK(LSG_LAUNCH(add_kernel, lsg_grid(1), 32, 0, s, y.p, x.p, 32));
    EXPECT_OK(lsg_sync(s));
  }
  cr_assert(y.get() == std::vector<int>(32, 100), "%d", y.get()[0]);
}

Test(emu_stream, copies_are_checked_against_their_buffers) {
  test_stream s;
  test_buffer<int> y(s, std::vector<int>(32, 1), "yy"), x(s, std::vector<int>(16, 2), "xx");
  int host[64] = {0};
  EXPECT_FAILS(lsg_upload(y.p, host, 132, s), "lsg_upload: expected 132 bytes of device memory", "buffer 'yy' (128 bytes), at byte 0");
  EXPECT_FAILS(lsg_upload(host, host, 16, s), "lsg_upload", "no device memory");
  EXPECT_FAILS(lsg_upload(y.p, x.p, 16, s), "expected host memory", "buffer 'xx'");
  EXPECT_FAILS(lsg_download(host, y.p + 31, 8, s), "lsg_download", "at byte 124");
  EXPECT_FAILS(lsg_copy(y.p, x.p, 68, s), "lsg_copy from", "buffer 'xx'");
  EXPECT_FAILS(lsg_copy(host, x.p, 8, s), "lsg_copy to");
  EXPECT_FAILS(lsg_fill(x.p, 0, 65, s), "lsg_fill");
  EXPECT_OK(lsg_copy(y.p + 8, x.p, 64, s));
  EXPECT_OK(lsg_fill(y.p, 0, 16, s));
  std::vector<int> v = y.get();
  cr_assert(v[3] == 0 && v[4] == 1 && v[8] == 2 && v[23] == 2 && v[24] == 1, "%d %d %d", v[3], v[8], v[24]);
}

Test(emu_stream, a_graph_reads_device_memory_anew_each_time) {
  test_stream s;
  test_buffer<int> y(s, std::vector<int>(64, 0), "y"), twin(s, 64, "twin"), position(s, std::vector<int>{5}, "position");
  lsg_graph graph = nullptr;
  EXPECT_OK(lsg_graph_begin(s));
  EXPECT_OK(LSG_LAUNCH(at_position_kernel, lsg_grid(1), 32, 0, s, y.p, position.p));
  EXPECT_OK(lsg_copy(twin.p, y.p, 256, s));
  EXPECT_OK(lsg_fill(y.p, 0, 4, s));
  EXPECT_OK(lsg_graph_end(&graph, s));
  cr_assert(y.get() == std::vector<int>(64, 0), "%s", "the capture ran what it captured");
  for (int p : {7, 40, 63}) {
    EXPECT_OK(lsg_upload(position.p, &p, sizeof p, s));
    EXPECT_OK(lsg_graph_launch(graph, s));
    EXPECT_OK(lsg_sync(s));
    cr_assert(twin.get()[(size_t)p] == p + 100, "position %d", p);
  }
  cr_assert(twin.get()[5] == 0, "%s", "the position of the capture was frozen");
  int wild = 1 << 20;
  EXPECT_OK(lsg_upload(position.p, &wild, sizeof wild, s));
  EXPECT_OK(lsg_graph_launch(graph, s));
  EXPECT_FAILS(lsg_sync(s), "emu: kernel at_position_kernel, block (0,0,0), thread 0: writes");
  lsg_graph_free(graph);
}

Test(emu_stream, a_graph_outlives_its_arguments_variables_but_not_its_buffers) {
  test_stream s;
  lsg_graph graph = nullptr;
  test_buffer<int> y(s, std::vector<int>(32, 0), "y");
  {
    test_buffer<int> x(s, std::vector<int>(32, 4), "short_lived");
    int n = 32;
    EXPECT_OK(lsg_graph_begin(s));
    EXPECT_OK(LSG_LAUNCH(add_kernel, lsg_grid(1), 32, 0, s, y.p, x.p, n));
    EXPECT_OK(lsg_graph_end(&graph, s));
    n = 0;
    EXPECT_OK(lsg_graph_launch(graph, s));
    EXPECT_OK(lsg_sync(s));
    cr_assert(y.get() == std::vector<int>(32, 4), "%d", y.get()[0]);
  }
  EXPECT_OK(lsg_graph_launch(graph, s));
  EXPECT_FAILS(lsg_sync(s), "argument 2", "freed buffer 'short_lived'");
  lsg_graph_free(graph);
}

Test(emu_stream, a_capture_takes_no_uploads_downloads_or_syncs) {
  test_stream s;
  test_buffer<int> y(s, std::vector<int>(4, 0), "y");
  lsg_graph graph = nullptr;
  int host[4] = {0};
  EXPECT_FAILS(lsg_graph_end(&graph, s), "no graph capture was begun");
  EXPECT_OK(lsg_graph_begin(s));
  EXPECT_FAILS(lsg_graph_begin(s), "being captured already");
  EXPECT_FAILS(lsg_upload(y.p, host, 16, s), "an upload inside a graph capture");
  EXPECT_FAILS(lsg_download(host, y.p, 16, s), "a download inside a graph capture");
  EXPECT_FAILS(lsg_sync(s), "lsg_sync inside a graph capture");
  EXPECT_OK(lsg_graph_end(&graph, s));
  EXPECT_OK(lsg_graph_launch(graph, s));
  EXPECT_OK(lsg_sync(s));
  lsg_graph_free(graph);
}

Test(emu_stream, the_large_product_is_x_times_w_transposed_rounded_once) {
  test_stream s;
  lsg_gemm gemm = nullptr;
  EXPECT_OK(lsg_gemm_new(&gemm));
  const int64_t rows = 21, n = 530, k = 70, ldx = 75, ldw = 72, ldy = 533; /* more than one piece of W */
  for (bool bf16 : {true, false}) {
    auto value = [&](uint64_t seed, int64_t i) { return (float)(int)(ls_splitmix64_at(seed, (uint64_t)i) % 15) - 7; }; /* exact */
    std::vector<uint16_t> x((size_t)(rows * ldx)), w((size_t)(n * ldw));
    for (size_t i = 0; i < x.size(); i++) x[i] = bf16 ? ls_f32_to_bf16(value(1, (int64_t)i)) : ls_f32_to_f16(value(1, (int64_t)i));
    for (size_t i = 0; i < w.size(); i++) w[i] = bf16 ? ls_f32_to_bf16(value(2, (int64_t)i)) : ls_f32_to_f16(value(2, (int64_t)i));
    test_buffer<uint16_t> dx(s, x, "x"), dw(s, w, "w"), dy(s, (size_t)(rows * ldy), "y");
    lsg_graph graph = nullptr;
    EXPECT_OK(lsg_graph_begin(s));
    EXPECT_OK(lsg_gemm_run(gemm, bf16, dy.p, dx.p, dw.p, rows, n, k, ldy, ldx, ldw, s));
    EXPECT_OK(lsg_graph_end(&graph, s));
    EXPECT_OK(lsg_graph_launch(graph, s));
    EXPECT_OK(lsg_sync(s));
    std::vector<uint16_t> y = dy.get();
    for (int64_t r = 0; r < rows; r++)
      for (int64_t c = 0; c < ldy; c++) {
        float sum = 0;
        for (int64_t i = 0; i < k && c < n; i++) sum += value(1, r * ldx + i) * value(2, c * ldw + i);
        uint16_t expected = c >= n ? 0xFFFF : bf16 ? ls_f32_to_bf16(sum) : ls_f32_to_f16(sum);
        cr_assert(y[(size_t)(r * ldy + c)] == expected, "bf16 %d, row %d, channel %d", (int)bf16, (int)r, (int)c);
      }
    lsg_graph_free(graph);
    EXPECT_FAILS(lsg_gemm_run(gemm, bf16, dy.p, dx.p, dw.p, rows + 1, n, k, ldy, ldx, ldw, s), "lsg_gemm_run, y");
  }
  lsg_gemm_free(gemm);
}

Test(emu_stream, products_side_by_side_are_each_of_its_own_columns) {
  test_stream s;
  lsg_gemm gemm = nullptr;
  EXPECT_OK(lsg_gemm_new(&gemm));
  const int64_t rows = 5, groups = 3, n = 7, k = 11;
  auto value = [](uint64_t seed, int64_t i) { return (float)(int)(ls_splitmix64_at(seed, (uint64_t)i) % 15) - 7; }; /* exact */
  std::vector<uint16_t> x((size_t)(rows * groups * k)), w((size_t)(groups * n * k));
  for (size_t i = 0; i < x.size(); i++) x[i] = ls_f32_to_bf16(value(3, (int64_t)i));
  for (size_t i = 0; i < w.size(); i++) w[i] = ls_f32_to_bf16(value(4, (int64_t)i));
  test_buffer<uint16_t> dx(s, x, "x"), dw(s, w, "w"), dy(s, (size_t)(rows * groups * n), "y");
  EXPECT_OK(lsg_gemm_run_groups(gemm, true, dy.p, dx.p, dw.p, rows, groups, n, k, s));
  EXPECT_OK(lsg_sync(s));
  const std::vector<uint16_t> y = dy.get();
  for (int64_t i = 0; i < rows * groups * n; i++) {
    const int64_t row = i / (groups * n), channel = i % (groups * n), group = channel / n;
    float sum = 0;
    for (int64_t j = 0; j < k; j++) sum += value(3, (row * groups + group) * k + j) * value(4, channel * k + j);
    cr_assert(y[(size_t)i] == ls_f32_to_bf16(sum), "row %d, channel %d", (int)row, (int)channel);
  }
  lsg_gemm_free(gemm);
}

Test(emu_stream, marks_measure_forward) {
  test_stream s;
  lsg_mark from = nullptr, to = nullptr;
  double seconds = -1;
  EXPECT_OK(lsg_mark_new(&from));
  EXPECT_OK(lsg_mark_new(&to));
  EXPECT_FAILS(lsg_mark_seconds(&seconds, from, to), "a mark was not recorded");
  EXPECT_OK(lsg_mark_record(from, s));
  EXPECT_OK(lsg_mark_record(to, s));
  EXPECT_OK(lsg_mark_seconds(&seconds, from, to));
  cr_assert(seconds >= 0 && seconds < 60, "%g", seconds);
  lsg_mark_free(from);
  lsg_mark_free(to);
}

Test(emu_stream, the_device_says_what_it_is) {
  lsg_device_info info;
  EXPECT_FAILS(lsg_open(1), "no device 1");
  EXPECT_OK(lsg_open(0));
  ls_threads_set(3);
  EXPECT_OK(lsg_info(&info));
  cr_assert(strcmp(info.name, "emulator, 3 workers") == 0 && strcmp(info.runtime, "emu") == 0, "%s", info.name);
  cr_assert(info.max_shared_bytes == 227 * 1024 && info.memory_bytes > 0 && info.multiprocessors == 3, "%d", info.max_shared_bytes);
}

}  // namespace LSG_NS
