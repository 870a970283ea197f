/* The project's own GEMM kernels in the emulator, against scalar products in double, and the properties that layers.md asks for. */
#include "gpu/gpu_linear.h"
#include "gpu_kernel_test.h"

using namespace gpu_test;

namespace {

lsg_gemm library(void) {
  static lsg_gemm one = nullptr;
  if (!one) cr_assert_eq(lsg_gemm_new(&one), LSG_OK);
  return one;
}

std::vector<uint16_t> linear(bool bf16, const std::vector<uint16_t> &x, const std::vector<uint16_t> &w, int64_t rows, int64_t n,
                             int64_t k) {
  device<uint16_t> dx(x, "x"), dw(w, "w"), dy(std::vector<uint16_t>((size_t)(rows * n), 0x7FFF), "y");
  expect_launched(ls_gpu_linear(bf16, dy, dx, dw, rows, n, k, library(), stream()));
  return dy.download();
}

/* Element (r, c): 1 step of the type + 4 sqrt(k) 2^-24 |x|.|w|. */
bool within_bound(bool bf16, uint16_t found, const uint16_t *x, const uint16_t *w, int64_t k, double *expected) {
  double sum = 0, magnitude = 0;
  for (int64_t i = 0; i < k; i++) {
    double p = widen(bf16, x[i]) * widen(bf16, w[i]);
    sum += p;
    magnitude += fabs(p);
  }
  *expected = sum;
  double bound = ls_step_at(type_of(bf16), sum) + 4.0 * sqrt((double)k) * 0x1p-24 * magnitude;
  return fabs(widen(bf16, found) - sum) <= bound;
}

void expect_product(bool bf16, int64_t rows, int64_t n, int64_t k, int64_t every) {
  auto x = values(bf16, rows * k, (uint64_t)(rows * 31 + k)), w = values(bf16, n * k, (uint64_t)(n * 17 + k + 1), 1.0, 0.125);
  auto y = linear(bf16, x, w, rows, n, k);
  for (int64_t i = 0; i < rows * n; i += every) {
    double expected;
    bool ok = within_bound(bf16, y[(size_t)i], &x[(size_t)(i / n * k)], &w[(size_t)(i % n * k)], k, &expected);
    cr_assert(ok, "rows %ld n %ld k %ld row %ld channel %ld: %g, expected %g", (long)rows, (long)n, (long)k, (long)(i / n), (long)(i % n),
              widen(bf16, y[(size_t)i]), expected);
  }
}

}  // namespace

Test(gpu_linear, kind_is_chosen_by_rows_and_work_alone) {
  cr_assert_eq(ls_gpu_linear_kind(1, 5120, 25600), LS_GPU_LINEAR_STREAM);
  cr_assert_eq(ls_gpu_linear_kind(16, 5120, 25600), LS_GPU_LINEAR_STREAM);
  cr_assert_eq(ls_gpu_linear_kind(17, 5120, 25600), LS_GPU_LINEAR_LIBRARY);
  cr_assert_eq(ls_gpu_linear_kind(17, 64, 64), LS_GPU_LINEAR_TILE);
  cr_assert_eq(ls_gpu_linear_kind(256, 1024, 1024), LS_GPU_LINEAR_TILE);
  cr_assert_eq(ls_gpu_linear_kind(257, 1024, 1024), LS_GPU_LINEAR_LIBRARY);
  cr_assert_eq(ls_gpu_linear_kind((int64_t)1 << 40, (int64_t)1 << 20, (int64_t)1 << 20), LS_GPU_LINEAR_LIBRARY);
}

Test(gpu_linear, stream_is_within_the_bound_at_every_tail) {
  const int64_t channels[] = {1, 7, 16, 31, 32, 33, 70}, inner[] = {1, 2, 7, 8, 15, 16, 24, 40, 63, 64, 65, 72, 96, 128, 288, 520, 1030};
  int64_t rows = 1;
  for (int64_t n : channels) {
    for (int64_t k : inner) {
      expect_product(true, rows, n, k, 1);
      expect_product(false, rows, n, k, 1);
      rows = rows % 16 + 1;
    }
  }
  for (rows = 1; rows <= 16; rows++) expect_product(true, rows, 40, 200, 1);
}

/* The second half of K takes back what the first half adds, so that a result is the rounding error of its sum and nothing else: another
 * order of addition shows in every bit of it. With ordinary values it would be rounded away. */
static std::vector<uint16_t> cancelling(const std::vector<uint16_t> &v, int64_t k, bool negate) {
  std::vector<uint16_t> out = v;
  for (size_t row = 0; row < v.size(); row += (size_t)k) {
    for (size_t i = 0; i < (size_t)(k / 2); i++) out[row + (size_t)(k / 2) + i] = negate ? (uint16_t)(v[row + i] ^ 0x8000u) : v[row + i];
  }
  return out;
}

Test(gpu_linear, a_row_has_the_same_bits_at_any_row_count_and_index) {
  const int64_t n = 40, inner[] = {344, 1160, 2053};
  for (int64_t k : inner) {
    for (bool bf16 : {true, false}) {
      /* f16: large, so that the error is no subnormal */
      auto x = cancelling(values(bf16, 16 * k, 5, bf16 ? 1.0 : 64.0), k, true),
           w = cancelling(values(bf16, n * k, 6, bf16 ? 1.0 : 64.0), k, false);
      for (int64_t i = k / 2 * 2; i < k; i++) {
        for (int64_t r = 0; r < 16; r++) x[(size_t)(r * k + i)] = 0; /* nothing stands alone at the end of an odd k */
      }
      std::vector<uint16_t> alone;
      int64_t zeros = 0;
      for (int64_t r = 0; r < 16; r++) {
        auto y = linear(bf16, std::vector<uint16_t>(x.begin() + r * k, x.begin() + (r + 1) * k), w, 1, n, k);
        for (uint16_t v : y) zeros += (v & 0x7FFF) == 0;
        alone.insert(alone.end(), y.begin(), y.end());
      }
      cr_assert_lt(zeros, 16 * n / 2, "%ld of %ld sums left no error to see", (long)zeros, (long)(16 * n));
      for (int64_t rows = 2; rows <= 16; rows++) {
        for (int64_t shift = 0; shift < 16; shift += k == 344 ? 1 : 5) { /* row i of the batch is row (i + shift) mod 16 */
          std::vector<uint16_t> batch;
          for (int64_t i = 0; i < rows; i++)
            batch.insert(batch.end(), x.begin() + (i + shift) % 16 * k, x.begin() + ((i + shift) % 16 + 1) * k);
          auto y = linear(bf16, batch, w, rows, n, k);
          for (int64_t i = 0; i < rows * n; i++)
            cr_assert_eq(y[(size_t)i], alone[(size_t)((i / n + shift) % 16 * n + i % n)], "k %ld, %ld rows, shift %ld, element %ld",
                         (long)k, (long)rows, (long)shift, (long)i);
        }
      }
    }
  }
}

/* x . w in the order of gpu_linear.h, as the emulator's tensor core adds inside its 16 elements. */
static uint16_t in_k_order(bool bf16, const uint16_t *x, const uint16_t *w, int64_t k) {
  const int64_t range = ls_gpu_linear_range(k);
  float total = 0.0f;
  for (int64_t first = 0; first < LS_GPU_K_RANGES * range; first += range) {
    float sum = 0.0f;
    for (int64_t i = first; i < first + range && i < k; i++) sum += (float)widen(bf16, x[i]) * (float)widen(bf16, w[i]);
    total += sum;
  }
  return narrow(bf16, (double)total);
}

Test(gpu_linear, every_kernel_of_ours_adds_in_the_same_k_order) {
  const int64_t n = 40, most = 100, inner[] = {344, 1160, 2053}, all_rows[] = {1, 8, 16, 17, 64, 65, 100};
  for (int64_t k : inner) {
    for (bool bf16 : {true, false}) {
      auto x = cancelling(values(bf16, most * k, 7, bf16 ? 1.0 : 64.0), k, true),
           w = cancelling(values(bf16, n * k, 8, bf16 ? 1.0 : 64.0), k, false);
      std::vector<uint16_t> expected;
      for (int64_t i = 0; i < most * n; i++) expected.push_back(in_k_order(bf16, &x[(size_t)(i / n * k)], &w[(size_t)(i % n * k)], k));
      for (int64_t rows : all_rows) {
        auto y = linear(bf16, std::vector<uint16_t>(x.end() - rows * k, x.end()), w, rows, n, k); /* other places in the tile each time */
        for (int64_t i = 0; i < rows * n; i++)
          cr_assert_eq(y[(size_t)i], expected[(size_t)((most - rows) * n + i)], "k %ld, %ld rows, row %ld, channel %ld", (long)k,
                       (long)rows, (long)(i / n), (long)(i % n));
      }
    }
  }
}

/* Groups side by side, at row counts of every kind of kernel. */
/* With many channels a warp has two ranges of K. */
Test(gpu_linear, a_channel_has_the_same_bits_among_many_and_among_few) {
  const int64_t many = 8008, few = 40, inner[] = {40, 344, 1160, 2052};
  for (int64_t k : inner) {
    const auto w_few = cancelling(values(true, few * k, 6), k, false);
    for (int64_t rows : {1, 9}) {
      const auto x = cancelling(values(true, rows * k, 5), k, true);
      std::vector<uint16_t> w;
      for (int64_t i = 0; i < many; i++) w.insert(w.end(), w_few.begin() + i % few * k, w_few.begin() + (i % few + 1) * k);
      const auto alone = linear(true, x, w_few, rows, few, k), among = linear(true, x, w, rows, many, k);
      for (int64_t i = 0; i < rows * many; i++)
        cr_assert_eq(among[(size_t)i], alone[(size_t)(i / many * few + i % many % few)], "k %ld, row %ld, channel %ld", (long)k,
                     (long)(i / many), (long)(i % many));
    }
  }
}

Test(gpu_linear, a_grouped_product_has_the_bits_of_each_group_alone) {
  const int64_t groups = 3, n = 37, inner[] = {72, 51}, all_rows[] = {1, 9, 16, 17, 70};
  for (int64_t k : inner) {
    for (int64_t rows : all_rows) {
      auto x = values(true, rows * groups * k, 11), w = values(true, groups * n * k, 12);
      device<uint16_t> dx(x, "x"), dw(w, "w"), dy(std::vector<uint16_t>((size_t)(rows * groups * n), 0x7FFF), "y");
      expect_launched(ls_gpu_linear_grouped(true, dy, dx, dw, rows, groups, n, k, library(), stream()));
      auto y = dy.download();
      for (int64_t g = 0; g < groups; g++) {
        std::vector<uint16_t> part;
        for (int64_t r = 0; r < rows; r++) part.insert(part.end(), x.begin() + (r * groups + g) * k, x.begin() + (r * groups + g + 1) * k);
        auto alone = linear(true, part, std::vector<uint16_t>(w.begin() + g * n * k, w.begin() + (g + 1) * n * k), rows, n, k);
        for (int64_t i = 0; i < rows * n; i++)
          cr_assert_eq(y[(size_t)((i / n * groups + g) * n + i % n)], alone[(size_t)i], "%ld rows of %ld, group %ld, element %ld",
                       (long)rows, (long)k, (long)g, (long)i);
      }
    }
  }
}

Test(gpu_linear, parts_have_the_bits_of_each_projection_alone) {
  const int64_t n[] = {40, 7, 65, 3}, inner[] = {72, 51}, all_rows[] = {1, 5, 8, 16, 17};
  for (int64_t k : inner) {
    for (int64_t rows : all_rows) {
      for (int parts = 1; parts <= LS_GPU_MOST_PARTS; parts++) {
        int64_t channels = 0;
        for (int i = 0; i < parts; i++) channels += n[i];
        auto x = values(true, rows * k, 21), w = values(true, channels * k, 22);
        device<uint16_t> dx(x, "x"), dw(w, "w");
        std::vector<device<uint16_t> *> y;
        ls_gpu_part part[LS_GPU_MOST_PARTS];
        for (int i = 0; i < parts; i++) {
          y.push_back(new device<uint16_t>(std::vector<uint16_t>((size_t)(rows * n[i]), 0x7FFF), "part"));
          part[i] = {*y.back(), n[i], i % 2 == 0};
        }
        expect_launched(ls_gpu_linear_parts(true, part, parts, dx, dw, rows, k, library(), stream()));
        for (int64_t i = 0, first = 0; i < parts; first += n[i++]) {
          auto alone = linear(true, x, std::vector<uint16_t>(w.begin() + first * k, w.begin() + (first + n[i]) * k), rows, n[i], k);
          cr_assert(y[(size_t)i]->download() == alone, "%ld rows of %ld, part %ld of %d", (long)rows, (long)k, (long)i, parts);
        }
        for (auto *p : y) delete p;
      }
    }
  }
}

Test(gpu_linear, a_nan_stays_in_its_row_and_channel) {
  const int64_t rows = 5, n = 20, k = 100;
  auto x = values(true, rows * k, 1), w = values(true, n * k, 2);
  x[3 * k + 99] = 0x7FC0;
  w[7 * k + 1] = 0x7F80; /* infinity */
  auto y = linear(true, x, w, rows, n, k);
  for (int64_t r = 0; r < rows; r++)
    for (int64_t c = 0; c < n; c++)
      cr_assert_eq(isfinite(widen(true, y[(size_t)(r * n + c)])), r != 3 && c != 7, "row %ld channel %ld", (long)r, (long)c);
}

Test(gpu_linear, tile_is_within_the_bound_at_every_tail) {
  const int64_t shapes[][3] = {{17, 1, 1},    {17, 63, 32},  {64, 64, 64},  {65, 65, 33},  {100, 70, 31}, {33, 129, 96},
                               {128, 64, 16}, {130, 10, 72}, {17, 200, 40}, {70, 33, 288}, {19, 64, 8},   {32, 96, 264}};
  for (auto &s : shapes) {
    expect_product(true, s[0], s[1], s[2], 1);
    expect_product(false, s[0], s[1], s[2], 1);
  }
}

Test(gpu_linear, library_is_within_the_bound) { expect_product(true, 256, 1024, 1032, 997); }

/* ---- straight into ring slots ---- */

namespace {

void expect_ring_store(int64_t layers, int64_t kv_dim, int64_t k, int64_t capacity, int64_t rows, int64_t base, bool exact) {
  const uint16_t untouched = 0x1234;
  int64_t n = layers * 2 * kv_dim, count = layers * capacity * kv_dim;
  auto x = values(true, rows * k, 11), w = values(true, n * k, 12);
  auto dense = linear(true, x, w, rows, n, k);
  std::vector<uint16_t> empty((size_t)count, untouched);
  device<uint16_t> k_ring(empty, "k_ring"), v_ring(empty, "v_ring"), dx(x, "x"), dw(w, "w");
  device<uint16_t> workspace(std::vector<uint16_t>((size_t)(rows * n)), "workspace");
  device<int64_t> position({base}, "base");
  ls_gpu_ring ring = {k_ring, v_ring, position, layers, capacity, kv_dim};
  expect_launched(ls_gpu_linear_to_ring(true, &ring, dx, dw, rows, k, exact ? NULL : (uint16_t *)workspace, library(), stream()));
  auto found_k = k_ring.download(), found_v = v_ring.download();

  std::vector<uint16_t> want_k = empty, want_v = empty;
  for (int64_t r = 0; r < rows; r++) {
    int64_t slot = (base + r) % capacity;
    for (int64_t l = 0; l < layers; l++) {
      for (int64_t c = 0; c < kv_dim; c++) {
        size_t at = (size_t)((l * capacity + slot) * kv_dim + c);
        want_k[at] = dense[(size_t)(r * n + l * 2 * kv_dim + c)];
        want_v[at] = dense[(size_t)(r * n + l * 2 * kv_dim + kv_dim + c)];
      }
    }
  }
  cr_assert(found_k == want_k, "K: rows %ld base %ld capacity %ld", (long)rows, (long)base, (long)capacity);
  cr_assert(found_v == want_v, "V: rows %ld base %ld capacity %ld", (long)rows, (long)base, (long)capacity);
}

}  // namespace

Test(gpu_linear, stream_writes_both_spans_for_every_base_and_nothing_else) {
  for (int64_t base = 0; base < 20; base++) {
    for (int64_t rows : {(int64_t)1, (int64_t)7, (int64_t)16}) expect_ring_store(2, 6, 24, 20, rows, base + 20 * 7, true);
  }
  for (int64_t base : {(int64_t)0, (int64_t)3, ((int64_t)1 << 31) - 16})
    expect_ring_store(3, 5, 8, 16, 16, base, true); /* rows = capacity */
}

Test(gpu_linear, tile_writes_both_spans_for_every_base_and_nothing_else) {
  for (int64_t base = 0; base < 24; base++) expect_ring_store(2, 20, 24, 24, base % 2 ? 24 : 17, base + 24 * 5, true);
}

Test(gpu_linear, library_rows_reach_both_spans_through_the_workspace) { expect_ring_store(2, 512, 1032, 130, 128, 130 * 3 + 77, false); }

/* ---- copies between dense rows and slots ---- */

Test(gpu_ring, a_gather_returns_what_a_scatter_wrote) {
  const int64_t layers = 3, kv_dim = 10, capacity = 9, count = layers * capacity * kv_dim;
  for (int64_t base = 100; base < 109; base++) {
    for (int64_t rows = 1; rows <= capacity; rows++) {
      auto k = values(true, layers * rows * kv_dim, 1), v = values(true, layers * rows * kv_dim, 2);
      device<uint16_t> k_ring(std::vector<uint16_t>((size_t)count, 1)), v_ring(std::vector<uint16_t>((size_t)count, 2)), dk(k), dv(v);
      device<uint16_t> k_back(std::vector<uint16_t>(k.size())), v_back(std::vector<uint16_t>(v.size(), 77));
      device<int64_t> position({base});
      ls_gpu_ring ring = {k_ring, v_ring, position, layers, capacity, kv_dim};
      ls_gpu_kv_rows from = {dk, dv, rows * kv_dim, kv_dim}, to = {k_back, NULL, rows * kv_dim, kv_dim};
      expect_launched(ls_gpu_ring_scatter(&ring, &from, rows, stream()));
      expect_launched(ls_gpu_ring_gather(&to, &ring, rows, stream()));
      cr_assert(k_back.download() == k);
      cr_assert(v_back.download() == std::vector<uint16_t>(v.size(), 77), "a NULL v is left out");
      auto ring_v = v_ring.download();
      for (int64_t l = 0; l < layers; l++) {
        for (int64_t slot = 0; slot < capacity; slot++) {
          int64_t row = (slot - base % capacity + capacity) % capacity;
          for (int64_t c = 0; c < kv_dim; c++)
            cr_assert_eq(ring_v[(size_t)((l * capacity + slot) * kv_dim + c)], row < rows ? v[(size_t)((l * rows + row) * kv_dim + c)] : 2);
        }
      }
    }
  }
}
