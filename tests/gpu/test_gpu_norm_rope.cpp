/* RMSNorm and the fused k_norm + RoPE in the emulator, against double. */
#include "gpu/gpu_norm.h"
#include "gpu/gpu_rope.h"
#include "gpu_kernel_test.h"

using namespace gpu_test;

namespace {

std::vector<float> weights(int64_t n, uint64_t seed) {
  std::vector<float> w((size_t)n);
  for (int64_t i = 0; i < n; i++) w[(size_t)i] = (float)ls_generated_at(seed, (uint64_t)i, 0.5, 1.0);
  return w;
}

std::vector<uint16_t> rms_norm(bool bf16, const std::vector<uint16_t> &x, const std::vector<float> &w, float eps, int64_t rows, int64_t n) {
  device<uint16_t> dx(x, "x"), dy(std::vector<uint16_t>(x.size(), 0x7FFF), "y");
  device<float> dw(w, "w");
  expect_launched(ls_gpu_rms_norm(bf16, dy, dx, dw, eps, rows, n, stream()));
  return dy.download();
}

/* x * rsqrt(mean(x^2) + eps) * w of one row, unrounded. */
std::vector<double> norm_of(bool bf16, const uint16_t *x, const float *w, float eps, int64_t n) {
  double sum = 0;
  for (int64_t i = 0; i < n; i++) sum += widen(bf16, x[i]) * widen(bf16, x[i]);
  double scale = 1.0 / sqrt(sum / (double)n + (double)eps);
  std::vector<double> y((size_t)n);
  for (int64_t i = 0; i < n; i++) y[(size_t)i] = widen(bf16, x[i]) * scale * (double)w[i];
  return y;
}

}  // namespace

Test(gpu_norm, rms_norm_is_within_one_step_of_double) {
  const double inputs[][2] = {{1.0, 0.0}, {1.0, 1000.0}, {1e-6, 0.0}, {0.0, 0.0}, {2e4, 0.0}}; /* scale, offset */
  for (int64_t n : {1, 31, 64, 96, 255, 256, 257, 1000, 5120}) {
    for (auto &in : inputs) {
      for (bool bf16 : {true, false}) {
        auto x = values(bf16, 3 * n, (uint64_t)n, in[0], in[1]);
        auto w = weights(n, 7);
        auto y = rms_norm(bf16, x, w, 1e-6f, 3, n);
        for (int64_t r = 0; r < 3; r++) {
          auto want = norm_of(bf16, &x[(size_t)(r * n)], w.data(), 1e-6f, n);
          for (int64_t i = 0; i < n; i++) {
            double expected = want[(size_t)i], found = widen(bf16, y[(size_t)(r * n + i)]);
            cr_assert(fabs(found - expected) <= ls_step_at(type_of(bf16), expected), "n %ld row %ld channel %ld: %g, expected %g", (long)n,
                      (long)r, (long)i, found, expected);
          }
        }
      }
    }
  }
}

Test(gpu_norm, a_row_does_not_depend_on_the_rows_beside_it) {
  const int64_t n = 333, rows = 9;
  auto x = values(true, rows * n, 3);
  auto w = weights(n, 4);
  x[4 * n + 100] = 0x7FC0; /* NaN in row 4 */
  auto all = rms_norm(true, x, w, 1e-6f, rows, n);
  for (int64_t r = 0; r < rows; r++) {
    auto one = rms_norm(true, std::vector<uint16_t>(x.begin() + r * n, x.begin() + (r + 1) * n), w, 1e-6f, 1, n);
    for (int64_t i = 0; i < n; i++) {
      cr_assert_eq(one[(size_t)i], all[(size_t)(r * n + i)]);
      cr_assert_eq(isnan(widen(true, one[(size_t)i])), r == 4);
    }
  }
}

Test(gpu_rope, frequencies_are_rounded_where_the_contract_rounds) {
  for (double theta : {1e4, 1e7, 1e8}) {
    for (int64_t dim : {2, 6, 64, 128}) {
      std::vector<float> freq((size_t)(dim / 2));
      ls_gpu_rope_freq(freq.data(), dim, theta);
      cr_assert_eq(freq[0], 1.0f);
      for (int64_t i = 0; i < dim / 2; i++) {
        volatile float e = (float)(2 * i) / (float)dim, t = (float)pow(theta, (double)e), f = 1.0f / t;
        cr_assert_eq(freq[(size_t)i], f);
      }
    }
  }
}

namespace {

void expect_norm_rope(bool bf16, int64_t head_dim, int64_t heads, int64_t layers, int64_t capacity, int64_t base, int64_t rows,
                      double theta) {
  const float eps = 1e-6f;
  int64_t kv_dim = heads * head_dim, half = head_dim / 2, count = layers * capacity * kv_dim;
  auto before = values(bf16, count, 21, 3.0, 0.25);
  auto w = weights(layers * head_dim, 22);
  std::vector<float> freq((size_t)half);
  ls_gpu_rope_freq(freq.data(), head_dim, theta);
  device<uint16_t> k_ring(before, "k_ring"), v_ring(before, "v_ring");
  device<float> dw(w, "k_norm"), df(freq, "freq");
  device<int64_t> position({base}, "base");
  ls_gpu_ring ring = {k_ring, v_ring, position, layers, capacity, kv_dim};
  expect_launched(ls_gpu_k_norm_rope(bf16, &ring, dw, df, eps, rows, head_dim, stream()));
  auto after = k_ring.download();
  cr_assert(v_ring.download() == before, "v_ring is untouched");
  int64_t compared = 0, equal = 0; /* a rounding point left out or put elsewhere stays within most bounds, and flips one result in three */

  for (int64_t l = 0; l < layers; l++) {
    for (int64_t slot = 0; slot < capacity; slot++) {
      int64_t row = (slot - base % capacity + capacity) % capacity;
      for (int64_t h = 0; h < heads; h++) {
        int64_t at = (l * capacity + slot) * kv_dim + h * head_dim;
        if (row >= rows) {
          for (int64_t i = 0; i < head_dim; i++)
            cr_assert_eq(after[(size_t)(at + i)], before[(size_t)(at + i)], "slot %ld is not of this step", (long)slot);
          continue;
        }
        auto n = norm_of(bf16, &before[(size_t)at], &w[(size_t)(l * head_dim)], eps, head_dim);
        for (int64_t i = 0; i < half; i++) {
          float angle = (float)(base + row) * freq[(size_t)i];
          double c = cos((double)angle), s = sin((double)angle);
          double a = widen(bf16, narrow(bf16, n[(size_t)i])), b = widen(bf16, narrow(bf16, n[(size_t)(i + half)]));
          /* one step of the result, float32 rounding where the terms cancel, and a k_norm that was rounded to the neighbour */
          double carried = fabs(c) * ls_step_at(type_of(bf16), a) + fabs(s) * ls_step_at(type_of(bf16), b);
          double carried_2 = fabs(c) * ls_step_at(type_of(bf16), b) + fabs(s) * ls_step_at(type_of(bf16), a);
          double rounding = 8 * 0x1p-24 * (fabs(a) + fabs(b));
          double low = a * c - b * s, high = b * c + a * s;
          double found_low = widen(bf16, after[(size_t)(at + i)]), found_high = widen(bf16, after[(size_t)(at + i + half)]);
          cr_assert(fabs(found_low - low) <= ls_step_at(type_of(bf16), low) + rounding + carried,
                    "head_dim %ld position %ld channel %ld: %g, expected %g", (long)head_dim, (long)(base + row), (long)i, found_low, low);
          cr_assert(fabs(found_high - high) <= ls_step_at(type_of(bf16), high) + rounding + carried_2,
                    "head_dim %ld position %ld channel %ld: %g, expected %g", (long)head_dim, (long)(base + row), (long)(i + half),
                    found_high, high);
          compared += 2;
          equal += (after[(size_t)(at + i)] == narrow(bf16, low)) + (after[(size_t)(at + i + half)] == narrow(bf16, high));
        }
      }
    }
  }
  cr_assert(equal >= compared - 1 - compared / 100, "head_dim %ld: %ld of %ld values have the bits of double at the same rounding points",
            (long)head_dim, (long)equal, (long)compared);
}

}  // namespace

Test(gpu_rope, every_head_width_is_normalised_and_rotated_in_its_slot) {
  for (int64_t head_dim : {2, 6, 16, 32, 62, 64, 66, 128, 130, 512}) {
    expect_norm_rope(true, head_dim, 3, 2, 7, 12, 5, 1e7); /* crosses the end of the ring */
    expect_norm_rope(false, head_dim, 1, 2, 4, 5, 4, 1e4); /* rows = capacity */
  }
}

Test(gpu_rope, many_rows_share_their_angles_between_heads) {
  for (int64_t head_dim : {6, 64, 128, 130}) {
    expect_norm_rope(true, head_dim, 2, 1, 530, 530 * 3 + 200, 517, 1e7); /* crosses the end of the ring */
    expect_norm_rope(false, head_dim, 1, 2, 512, ((int64_t)1 << 24) - 9, 512, 1e4);
  }
}

Test(gpu_rope, far_positions_use_the_float32_angle) {
  for (int64_t base : {(int64_t)999990, ((int64_t)1 << 24) - 2, ((int64_t)1 << 31) - 6}) {
    expect_norm_rope(true, 64, 2, 2, 24, base, 6, 1e7);
    expect_norm_rope(false, 64, 2, 1, 24, base, 6, 1e8);
  }
}

Test(gpu_rope, a_nan_stays_in_its_head) {
  const int64_t head_dim = 8, heads = 2, capacity = 3;
  auto before = values(true, capacity * heads * head_dim, 5);
  before[1 * heads * head_dim + 3] = 0x7FC0; /* slot 1, head 0 */
  device<uint16_t> k_ring(before), v_ring(before);
  std::vector<float> freq(4);
  ls_gpu_rope_freq(freq.data(), head_dim, 1e4);
  device<float> dw(std::vector<float>(8, 1.0f)), df(freq);
  device<int64_t> position({3});
  ls_gpu_ring ring = {k_ring, v_ring, position, 1, capacity, heads * head_dim};
  expect_launched(ls_gpu_k_norm_rope(true, &ring, dw, df, 1e-6f, 3, head_dim, stream()));
  auto after = k_ring.download();
  for (int64_t i = 0; i < (int64_t)after.size(); i++)
    cr_assert_eq(isnan(widen(true, after[(size_t)i])), i / head_dim == 2, "element %ld", (long)i);
}
