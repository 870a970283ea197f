/* cuda_linear: on a device, the products of more rows than the portable kernels take, bit for bit against the portable kernels on the same
 * rows a few at a time, dense and into ring slots. Ends 77 (skipped) without a device, or without a kernel of ours for it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "core/ls_numeric.h"
#include "core/ls_random.h"
#include "gpu/cuda/hopper_stream.h"

using namespace LSG_NS;

static void need(lsg_status status) {
  if (status == LSG_OK) return;
  fprintf(stderr, "cuda_linear: %s\n", lsg_error_text());
  exit(1);
}

struct buffer {
  uint16_t *data = nullptr;
  size_t count;
  buffer(size_t n, const char *name) : count(n) { need(lsg_alloc((void **)&data, n * sizeof(uint16_t), name)); }
  ~buffer() { lsg_free(data); }
  buffer(const buffer &) = delete;
  buffer &operator=(const buffer &) = delete;
};

/* Values that differ in size by up to 2^8: sums in another order give other bits. */
static std::vector<uint16_t> values(bool bf16, size_t count, uint64_t seed) {
  std::vector<uint16_t> v(count);
  for (size_t i = 0; i < count; i++) {
    const double scale = (double)(1 << (i * 2654435761u >> 16 & 7)) / 128.0, value = ls_generated_at(seed, i, scale, 0.0);
    v[i] = bf16 ? ls_f64_to_bf16(value) : ls_f64_to_f16(value);
  }
  return v;
}

static int64_t differing(const std::vector<uint16_t> &a, const std::vector<uint16_t> &b) {
  int64_t n = 0;
  for (size_t i = 0; i < a.size(); i++) n += a[i] != b[i];
  return n;
}

/* Up to 16 rows: the kernel that TMA feeds against the portable one, dense and, with kv_dim, in a ring of one slot more than rows. */
static bool check_few(bool bf16, int64_t rows, int64_t n, int64_t k, int64_t kv_dim, lsg_gemm gemm, lsg_gemm portable, lsg_stream stream) {
  const size_t bytes = sizeof(uint16_t);
  const std::vector<uint16_t> hx = values(bf16, (size_t)(rows * k), 5), hw = values(bf16, (size_t)(n * k), 6);
  const size_t gap = 64; /* behind the last row */
  buffer x(hx.size(), "x"), w(hw.size(), "w");
  need(lsg_upload(x.data, hx.data(), hx.size() * bytes, stream));
  need(lsg_upload(w.data, hw.data(), hw.size() * bytes, stream));
  const int64_t layers = kv_dim > 0 ? n / (2 * kv_dim) : 0, capacity = rows + 1, base = rows / 2 + 3;
  int64_t *position;
  need(lsg_alloc((void **)&position, sizeof base, "base"));
  need(lsg_upload(position, &base, sizeof base, stream));
  std::vector<uint16_t> y[2], k_slots[2], v_slots[2];
  for (int own = 0; own < 2; own++) {
    const lsg_gemm with = own ? portable : gemm;
    buffer out((size_t)(rows * n) + gap, "y"), k_ring((size_t)(layers * capacity * kv_dim) + gap, "k_ring"), v_ring(k_ring.count, "v_ring");
    for (buffer *b : {&out, &k_ring, &v_ring}) need(lsg_fill(b->data, 0x11, b->count * bytes, stream));
    need(ls_gpu_linear(bf16, out.data, x.data, w.data, rows, n, k, with, stream));
    const ls_gpu_ring ring = {k_ring.data, v_ring.data, position, layers, capacity, kv_dim};
    if (kv_dim > 0) need(ls_gpu_linear_to_ring(bf16, &ring, x.data, w.data, rows, k, nullptr, with, stream));
    y[own].resize(out.count), k_slots[own].resize(k_ring.count), v_slots[own].resize(v_ring.count);
    need(lsg_download(y[own].data(), out.data, out.count * bytes, stream));
    need(lsg_download(k_slots[own].data(), k_ring.data, k_ring.count * bytes, stream));
    need(lsg_download(v_slots[own].data(), v_ring.data, v_ring.count * bytes, stream));
  }
  lsg_free(position);
  const int64_t wrong = differing(y[0], y[1]), wrong_slots = differing(k_slots[0], k_slots[1]) + differing(v_slots[0], v_slots[1]);
  printf("cuda_linear: %s %lld x %lld x %lld, few rows: %lld elements differ, %lld in the rings\n", bf16 ? "bf16" : "f16", (long long)rows,
         (long long)n, (long long)k, (long long)wrong, (long long)wrong_slots);
  return wrong == 0 && wrong_slots == 0;
}

/* kv_dim > 0: also into a ring of one slot more than there are rows, that the rows cross the end of; n = layers * 2 * kv_dim. */
static bool check(bool bf16, int64_t rows, int64_t n, int64_t k, int64_t kv_dim, lsg_gemm gemm, lsg_stream stream) {
  const size_t bytes = sizeof(uint16_t);
  const std::vector<uint16_t> hx = values(bf16, (size_t)(rows * k), 1), hw = values(bf16, (size_t)(n * k), 2);
  buffer x(hx.size(), "x"), w(hw.size(), "w"), whole((size_t)(rows * n), "whole"), parts((size_t)(rows * n), "parts");
  need(lsg_upload(x.data, hx.data(), hx.size() * bytes, stream));
  need(lsg_upload(w.data, hw.data(), hw.size() * bytes, stream));
  need(lsg_fill(whole.data, 0xFF, whole.count * bytes, stream));
  need(lsg_fill(parts.data, 0xFF, parts.count * bytes, stream));
  need(ls_gpu_linear(bf16, whole.data, x.data, w.data, rows, n, k, gemm, stream));
  const int64_t few = LS_GPU_TILE_LIMIT / n / k;
  for (int64_t first = 0; first < rows; first += few) {
    const int64_t now = rows - first < few ? rows - first : few;
    need(ls_gpu_linear(bf16, parts.data + first * n, x.data + first * k, w.data, now, n, k, gemm, stream));
  }
  std::vector<uint16_t> found(whole.count), expected(parts.count);
  need(lsg_download(found.data(), whole.data, whole.count * bytes, stream));
  need(lsg_download(expected.data(), parts.data, parts.count * bytes, stream));
  int64_t wrong = differing(found, expected), wrong_slots = 0;

  if (kv_dim > 0) {
    const int64_t layers = n / (2 * kv_dim), capacity = rows + 1, base = rows / 2 + 3;
    buffer k_ring((size_t)(layers * capacity * kv_dim), "k_ring"), v_ring(k_ring.count, "v_ring");
    int64_t *position;
    need(lsg_alloc((void **)&position, sizeof base, "base"));
    need(lsg_upload(position, &base, sizeof base, stream));
    need(lsg_fill(k_ring.data, 0x11, k_ring.count * bytes, stream));
    need(lsg_fill(v_ring.data, 0x11, v_ring.count * bytes, stream));
    const ls_gpu_ring ring = {k_ring.data, v_ring.data, position, layers, capacity, kv_dim};
    need(ls_gpu_linear_to_ring(bf16, &ring, x.data, w.data, rows, k, nullptr, gemm, stream));
    std::vector<uint16_t> found_k(k_ring.count), found_v(v_ring.count), want_k(k_ring.count, 0x1111), want_v(v_ring.count, 0x1111);
    need(lsg_download(found_k.data(), k_ring.data, k_ring.count * bytes, stream));
    need(lsg_download(found_v.data(), v_ring.data, v_ring.count * bytes, stream));
    for (int64_t r = 0; r < rows; r++) {
      for (int64_t l = 0; l < layers; l++) {
        const size_t to = (size_t)((l * capacity + (base + r) % capacity) * kv_dim), from = (size_t)(r * n + l * 2 * kv_dim);
        memcpy(&want_k[to], &expected[from], (size_t)kv_dim * bytes);
        memcpy(&want_v[to], &expected[from + (size_t)kv_dim], (size_t)kv_dim * bytes);
      }
    }
    wrong_slots = differing(found_k, want_k) + differing(found_v, want_v);
    lsg_free(position);
  }
  printf("cuda_linear: %s %lld x %lld x %lld, %lld rows at a time: %lld of %lld elements differ, %lld in the rings\n",
         bf16 ? "bf16" : "f16", (long long)rows, (long long)n, (long long)k, (long long)few, (long long)wrong, (long long)(rows * n),
         (long long)wrong_slots);
  return wrong == 0 && wrong_slots == 0;
}

/* Several products of one x in one launch, against each alone: every part's bits, and not a byte past its end. */
static bool check_parts(bool bf16, int64_t rows, int64_t k, const std::vector<int64_t> &n, lsg_gemm gemm, lsg_stream stream) {
  const size_t bytes = sizeof(uint16_t);
  int64_t all = 0, wrong = 0;
  for (int64_t channels : n) all += channels;
  const std::vector<uint16_t> hx = values(bf16, (size_t)(rows * k), 3), hw = values(bf16, (size_t)(all * k), 4);
  const size_t gap = 64; /* between the parts */
  buffer x(hx.size(), "x"), w(hw.size(), "w"), together((size_t)(rows * all) + gap * n.size(), "together"), alone(together.count, "alone");
  need(lsg_upload(x.data, hx.data(), hx.size() * bytes, stream));
  need(lsg_upload(w.data, hw.data(), hw.size() * bytes, stream));
  need(lsg_fill(together.data, 0xFF, together.count * bytes, stream));
  need(lsg_fill(alone.data, 0xFF, alone.count * bytes, stream));
  std::vector<ls_gpu_part> part;
  size_t at = 0;
  int64_t channel = 0;
  for (int64_t channels : n) {
    part.push_back({together.data + at, channels, part.empty()});
    for (int64_t first = 0; first < rows; first += LS_GPU_STREAM_ROWS) {
      const int64_t now = rows - first < LS_GPU_STREAM_ROWS ? rows - first : (int64_t)LS_GPU_STREAM_ROWS;
      need(ls_gpu_linear(bf16, alone.data + at + first * channels, x.data + first * k, w.data + channel * k, now, channels, k, gemm,
                         stream));
    }
    at += (size_t)(rows * channels) + gap, channel += channels;
  }
  need(ls_gpu_linear_parts(bf16, part.data(), (int)part.size(), x.data, w.data, rows, k, gemm, stream));
  std::vector<uint16_t> found(together.count), expected(alone.count);
  need(lsg_download(found.data(), together.data, together.count * bytes, stream));
  need(lsg_download(expected.data(), alone.data, alone.count * bytes, stream));
  wrong = differing(found, expected);
  printf("cuda_linear: %s %lld x %lld x %lld in %zu parts: %lld of %lld elements differ\n", bf16 ? "bf16" : "f16", (long long)rows,
         (long long)all, (long long)k, n.size(), (long long)wrong, (long long)(rows * all));
  return wrong == 0;
}

int main() {
  lsg_stream stream;
  lsg_gemm gemm;
  if (lsg_open(0) != LSG_OK) {
    printf("cuda_linear: skipped: %s\n", lsg_error_text());
    return 77;
  }
  need(lsg_stream_new(&stream));
  need(lsg_gemm_new(&gemm));
  if (!hopper_linear_takes(hopper_workspace_of(gemm), 8, 512)) {
    printf("cuda_linear: skipped: no kernel of ours for so many rows on this device\n");
    return 77;
  }
  bool same = true;
  lsg_gemm portable;
  setenv("LOCKSTEP_PORTABLE", "1", 1);
  need(lsg_gemm_new(&portable));
  unsetenv("LOCKSTEP_PORTABLE");
  const bool taken = hopper_stream_takes(hopper_workspace_of(gemm), 16, 3848, 1000);
  if (!taken || hopper_stream_takes(hopper_workspace_of(portable), 16, 3848, 1000)) {
    printf("cuda_linear: the two kernels for few rows are not told apart\n");
    same = false;
  }
  for (bool bf16 : {true, false}) { /* k: the last range short, and two of eight empty; n: the last block with 8 of its 40 channels */
    for (int64_t rows : {1, 7, 8, 9, 16}) same = check_few(bf16, rows, 3848, 1000, 0, gemm, portable, stream) && same;
    same = check_few(bf16, 5, 4800, 328, 48, gemm, portable, stream) && same;
    same = check_few(bf16, 16, 10240, 5120, 1024, gemm, portable, stream) && same;
    same = check_few(bf16, 3, 5120, 25600, 128, gemm, portable, stream) && same;
  }
  lsg_gemm_free(portable);
  for (bool bf16 : {true, false}) {
    same = check(bf16, 130, 96, 25600, 48, gemm, stream) && same;
    same = check(bf16, 257, 512, 5120, 64, gemm, stream) && same;
    same = check(bf16, 300, 520, 4608, 0, gemm, stream) && same;
    same = check(bf16, 2048, 512, 5120, 128, gemm, stream) && same;
    same = check(bf16, 700, 1288, 1000, 0, gemm, stream) && same;
  }
  for (bool bf16 : {true, false}) {
    same = check_parts(bf16, 1000, 5120, {1280, 512, 32}, gemm, stream) && same;
    same = check_parts(bf16, 131, 5120, {8, 520, 152, 1024}, gemm, stream) && same;
  }
  lsg_gemm_free(gemm);
  lsg_stream_free(stream);
  printf("cuda_linear: %s\n", same ? "the same bits" : "BITS DIFFER");
  return same ? 0 : 1;
}
