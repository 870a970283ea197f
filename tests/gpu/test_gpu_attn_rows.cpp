/* The row kernels of attn_v41 in the emulator. Where nothing but the order of a float32 sum could differ from the reference, inputs are
 * chosen whose sums are exact, and every bit is compared; rings, indices and pooling state are compared with models that count positions
 * one by one. */
#include "gpu/gpu_attn_rows.h"

#include <algorithm>

#include "gpu/gpu_quant.h"
#include "gpu_kernel_test.h"
#include "ref/ref_compressor.h"
#include "ref/ref_norm.h"
#include "ref/ref_quant.h"
#include "ref/ref_rope.h"
#include "ref/ref_window.h"

using namespace gpu_test;

namespace {

const uint16_t poison = 0xA5A5; /* a value that no kernel here makes by chance in a whole row */

struct schedule {
  explicit schedule(uint64_t seed) { lsg_set_schedule(seed); }
  ~schedule() { lsg_set_schedule(0); }
};

ls_gpu_attn_step step_at(int64_t start_pos, int64_t m, int64_t ratio) {
  ls_gpu_attn_step s = {};
  s.start_pos = start_pos;
  s.ratio = ratio;
  if (ratio > 0) {
    s.n = (start_pos + m) / ratio;
    s.first_row = start_pos / ratio;
    s.g = s.n - s.first_row;
  }
  return s;
}

std::vector<float> frequencies(int64_t rope_dim, double theta = 1e4) {
  std::vector<float> freq((size_t)(rope_dim / 2));
  ls_ref_rope_freq(freq.data(), rope_dim, theta);
  return freq;
}

/* Multiples of 1/8 up to 31/8: their squares add up exactly in float32, in any order, for thousands of them. */
std::vector<uint16_t> exact_values(int64_t count, uint64_t seed) {
  std::vector<uint16_t> v((size_t)count);
  for (int64_t i = 0; i < count; i++) {
    ls_random r = {seed, (uint64_t)i};
    v[(size_t)i] = narrow(true, (double)ls_random_range(&r, -31, 31) / 8);
  }
  return v;
}

std::vector<float> weights(int64_t n, uint64_t seed) {
  std::vector<float> w((size_t)n);
  for (int64_t i = 0; i < n; i++) w[(size_t)i] = (float)ls_generated_at(seed, (uint64_t)i, 0.5, 1.0);
  return w;
}

bool is_nan(uint16_t h) { return (h & 0x7FFF) > 0x7F80; }

void expect_bits(const std::vector<uint16_t> &found, const std::vector<uint16_t> &expected, const char *what, int64_t columns) {
  cr_assert_eq(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); i++) {
    bool same = is_nan(expected[i]) ? is_nan(found[i]) : found[i] == expected[i];
    cr_assert(same, "%s, row %zu, element %zu of %ld: %04x (%g), expected %04x (%g)", what, i / (size_t)columns, i % (size_t)columns,
              (long)columns, found[i], widen(true, found[i]), expected[i], widen(true, expected[i]));
  }
}

ls_tensor matrix(ls_dtype dtype, int64_t rows, int64_t columns, const void *data) {
  const int64_t dim[2] = {rows, columns};
  return ls_tensor_make(dtype, 2, dim, const_cast<void *>(data));
}

/* y = fn(RoPE(RMSNorm(x))) by the reference, each rounded to bf16; w empty: no norm; fn NULL: no round trip. Row r stands at base + stride
 * * r. */
std::vector<uint16_t> reference_rows(const std::vector<uint16_t> &x, const std::vector<float> &w, const std::vector<float> &freq,
                                     int64_t groups, int64_t width, int64_t base, int64_t stride, bool inverse, int64_t block,
                                     ls_ref_block_fn *fn) {
  const float eps = 1e-20f;
  int64_t columns = groups * width, rows = (int64_t)x.size() / columns, half = (int64_t)freq.size();
  std::vector<uint16_t> y = x;
  std::vector<float> wide((size_t)columns), cosine((size_t)(rows * half)), sine((size_t)(rows * half));
  ls_tensor t = matrix(LS_BF16, rows, columns, y.data());
  ls_tensor c = matrix(LS_F32, rows, half, cosine.data()), s = matrix(LS_F32, rows, half, sine.data());
  if (!w.empty()) {
    int64_t n = (int64_t)w.size();
    ls_tensor weight = ls_tensor_make(LS_F32, 1, &n, const_cast<float *>(w.data()));
    ls_ref_rms_norm(&t, &t, &weight, (double)eps, wide.data());
  }
  ls_ref_rope_table_strided(&c, &s, freq.data(), base, stride);
  ls_ref_rope_pairs(&t, &t, &c, &s, width, inverse, wide.data());
  if (fn) ls_ref_quantise(&t, &t, block, fn);
  return y;
}

}  // namespace

/* ---- the round trips alone, on float32 ---- */

namespace lsg_emu {

template <int kind>
LSG_KERNEL(32)
void round_trip_kernel(uint16_t *y, const float *x) {
  const int64_t at = lsg_block_x() * 256 + lsg_lane() * 8;
  float v[8];
  for (int e = 0; e < 8; e++) v[e] = x[at + e];
  quant_round_trip<kind>(v);
  for (int e = 0; e < 8; e++) y[at + e] = lsg_f32_to_bf16(v[e]);
}

}  // namespace lsg_emu

namespace {

struct round_trip {
  int block;
  ls_ref_block_fn *fn;
  void (*kernel)(uint16_t *, const float *);
} const round_trips[] = {{32, ls_ref_fp8_block, round_trip_kernel<QUANT_FP8>},
                         {32, ls_ref_fp4_block, round_trip_kernel<QUANT_FP4>},
                         {16, ls_ref_fp4_e4m3_block, round_trip_kernel<QUANT_FP4_E4M3>}};

void expect_round_trip(const round_trip &r, std::vector<float> x) {
  while (x.size() % 256 != 0) x.push_back(0.0f);
  device<float> dx(x, "x");
  device<uint16_t> dy(std::vector<uint16_t>(x.size(), poison), "y");
  expect_launched(LSG_LAUNCH(r.kernel, lsg_grid((int64_t)x.size() / 256), 32, 0, stream(), (uint16_t *)dy, (float *)dx));
  std::vector<uint16_t> expected(x.size());
  for (size_t i = 0; i < x.size(); i += (size_t)r.block) r.fn(&x[i], r.block);
  for (size_t i = 0; i < x.size(); i++) expected[i] = ls_f32_to_bf16(x[i]);
  expect_bits(dy.download(), expected, "round trip", r.block);
}

}  // namespace

Test(gpu_attn_rows, round_trips_are_exact_at_every_scale_and_a_step_around_it) {
  for (const round_trip &r : round_trips) {
    std::vector<float> x;
    for (int e = -149; e <= 127; e++) {
      for (float at : {1.0f, 1.75f, 1.5f}) { /* 448 = 1.75 * 256, 6 = 1.5 * 4 */
        float exact = ldexpf(at, e);
        for (float amax : {nextafterf(exact, 0.0f), exact, nextafterf(exact, INFINITY)}) {
          for (int i = 0; i < r.block; i++) {
            float part = (float)ls_generated_at((uint64_t)(e + 200), (uint64_t)i, 1.0, 0.0);
            x.push_back(i == r.block / 3 ? amax : (i == 0 ? -amax : amax * part));
          }
        }
      }
    }
    expect_round_trip(r, x);
  }
}

Test(gpu_attn_rows, every_midpoint_of_the_grids_ties_as_the_contract_says) {
  for (const round_trip &r : round_trips) {
    for (float scale : {1.0f, 0x1p-7f, 0x1p20f}) {
      float largest = r.fn == ls_ref_fp8_block ? 448.0f : 6.0f;
      std::vector<float> grid, x;
      if (r.fn == ls_ref_fp8_block) {
        for (int code = 0; code < 127; code++) grid.push_back(ls_e4m3_to_f32((uint8_t)code));
      } else {
        for (int code = 0; code < 8; code++) grid.push_back(ls_e2m1_to_f32((uint8_t)code));
      }
      auto add = [&](float v) { /* the first of each block sets the scale */
                                if (x.size() % (size_t)r.block == 0) x.push_back(largest * scale);
                                x.push_back(v * scale);
      };
      for (size_t i = 0; i < grid.size(); i++) {
        float middle = i + 1 < grid.size() ? (grid[i] + grid[i + 1]) / 2 : grid[i];
        for (float v : {grid[i], nextafterf(middle, 0.0f), middle, nextafterf(middle, INFINITY)}) add(v), add(-v);
      }
      add(-0.0f);
      expect_round_trip(r, x);
    }
  }
}

Test(gpu_attn_rows, round_trips_of_every_bf16_pattern_and_of_non_finite_blocks) {
  for (const round_trip &r : round_trips) {
    std::vector<float> x;
    for (int i = 0; i < 65536; i++) x.push_back(ls_bf16_to_f32((uint16_t)i)); /* infinities and NaNs of both signs are among them */
    expect_round_trip(r, x);
    for (float bad : {INFINITY, -INFINITY, NAN}) {
      for (int place = 0; place < 64; place++) { /* every lane and element of a block, its neighbours finite */
        std::vector<float> y(256, 1.25f);
        y[(size_t)(96 + place)] = bad;
        expect_round_trip(r, y);
      }
    }
  }
}

/* ---- 3, 7, 9: rows ---- */

namespace {

/* kv, index_k or compress_kv over `rows` rows from a step; rows of memory `memory`, of which `made` are made. */
struct row_kind {
  const char *name;
  bool norm, groups;
  int64_t block;
  ls_ref_block_fn *fn;
} const kv_kind = {"kv", true, false, 32, ls_ref_fp8_block}, index_k_kind = {"index_k", true, true, 32, ls_ref_fp4_block},
        compress_kind = {"compress_kv", false, true, 16, ls_ref_fp4_e4m3_block};

struct row_result {
  std::vector<uint16_t> y, store;
};

/* store_rows 0: none. */
row_result run_rows(const row_kind &kind, const std::vector<uint16_t> &x, const std::vector<float> &w, const std::vector<float> &freq,
                    int64_t dim, int64_t store_rows, const ls_gpu_attn_step &at) {
  int64_t rows = (int64_t)x.size() / dim, rope_dim = 2 * (int64_t)freq.size();
  device<uint16_t> dx(x, "x"), dy(std::vector<uint16_t>(x.size(), poison), kind.name);
  device<uint16_t> store(std::vector<uint16_t>((size_t)(store_rows * dim), poison), "store");
  device<float> dw(w, "w"), df(freq, "freq");
  device<ls_gpu_attn_step> step({at}, "step");
  uint16_t *to = store_rows > 0 ? (uint16_t *)store : nullptr;
  if (kind.fn == ls_ref_fp8_block) {
    ls_gpu_x_rows kv = {};
    kv.kv = dy, kv.ring = to, kv.kv_proj = dx, kv.kv_norm = dw, kv.freq = df;
    kv.head_dim = dim, kv.rope_dim = rope_dim, kv.window = store_rows > 0 ? store_rows : 1;
    expect_launched(ls_gpu_attn_x_rows(&kv, 1e-20f, 0.0f, rows, step, stream()));
  } else if (kind.norm)
    expect_launched(ls_gpu_index_k(dy, to, dx, dw, 1e-20f, df, rows, dim, rope_dim, step, stream()));
  else
    expect_launched(ls_gpu_compress_kv(dy, to, dx, df, rows, dim, rope_dim, step, stream()));
  return {dy.download(), store.download()};
}

void expect_rows(const row_kind &kind, int64_t rows, int64_t dim, int64_t rope_dim, int64_t start_pos, int64_t ratio) {
  auto x = exact_values(rows * dim, (uint64_t)(dim + rope_dim));
  auto w = weights(dim, 9), freq = frequencies(rope_dim);
  int64_t stride = kind.groups ? ratio : 1, base = kind.groups ? start_pos / ratio * ratio : start_pos;
  ls_gpu_attn_step at = step_at(start_pos, rows * stride, ratio);
  auto found = run_rows(kind, x, w, freq, dim, 0, at);
  auto expected = reference_rows(x, kind.norm ? w : std::vector<float>(), freq, 1, dim, base, stride, false, kind.block, kind.fn);
  expect_bits(found.y, expected, kind.name, dim);
}

}  // namespace

Test(gpu_attn_rows, rows_of_every_width_have_the_references_bits) {
  for (const row_kind *kind : {&kv_kind, &index_k_kind, &compress_kind}) {
    for (int64_t dim : {32, 64, 96, 128, 224, 256, 288, 480, 512, 544, 1056}) {
      for (int64_t rope_dim : {(int64_t)2, (int64_t)6, (int64_t)32, (int64_t)64, dim - 32, dim}) {
        if (rope_dim >= 2 && rope_dim <= dim) expect_rows(*kind, 5, dim, rope_dim, 24, 2);
      }
    }
    for (int64_t start : {(int64_t)0, (int64_t)7, ((int64_t)1 << 20) - 3, ((int64_t)1 << 24) + 1}) {
      for (int64_t ratio : {1, 2, 3}) expect_rows(*kind, 6, 128, 64, start, ratio);
    }
    for (int64_t rows : {1, 3, 4, 9}) expect_rows(*kind, rows, 64, 16, 12, 4);
  }
}

Test(gpu_attn_rows, rows_do_not_depend_on_the_order_of_threads) {
  for (uint64_t seed = 1; seed <= 5; seed++) {
    schedule s(seed);
    for (const row_kind *kind : {&kv_kind, &index_k_kind, &compress_kind}) {
      expect_rows(*kind, 5, 96, 32, 8, 2);
      expect_rows(*kind, 2, 512, 64, 8, 2);
      expect_rows(*kind, 2, 544, 64, 8, 2);
    }
  }
}

/* Where a norm's sum rounds otherwise, a bf16 may flip, and with it a code of the grid: rare, and by one step of the grid. */
Test(gpu_attn_rows, rows_of_any_values_are_within_a_rare_flip_of_the_reference) {
  const double inputs[][2] = {{1.0, 0.0}, {1.0, 100.0}, {1e-6, 0.0}, {1e15, 0.0}, {1e-25, 0.0}}; /* scale, offset */
  for (const row_kind *kind : {&kv_kind, &index_k_kind, &compress_kind}) {
    for (int64_t dim : {96, 128, 512, 544}) {
      for (auto &in : inputs) {
        const int64_t rows = 8;
        auto x = values(true, rows * dim, (uint64_t)dim, in[0], in[1]);
        auto w = weights(dim, 3), freq = frequencies(32);
        auto found = run_rows(*kind, x, w, freq, dim, 0, step_at(10, rows * 2, 2)).y;
        auto expected =
            reference_rows(x, kind->norm ? w : std::vector<float>(), freq, 1, dim, 10, kind->groups ? 2 : 1, false, kind->block, kind->fn);
        int64_t equal = 0;
        for (int64_t i = 0; i < rows * dim; i++) {
          double amax = 0, a = widen(true, found[(size_t)i]), b = widen(true, expected[(size_t)i]);
          for (int64_t j = i / kind->block * kind->block; j < (i / kind->block + 1) * kind->block; j++)
            amax = fmax(amax, fabs(widen(true, expected[(size_t)j])));
          equal += found[(size_t)i] == expected[(size_t)i];
          cr_assert(fabs(a - b) <= amax * (kind->fn == ls_ref_fp8_block ? 1.0 / 7 : 2.0 / 3), "%s, element %ld of %ld: %g, expected %g",
                    kind->name, (long)i, (long)dim, a, b);
        }
        cr_assert(equal >= rows * dim - rows * dim / 100, "%s: %ld of %ld values equal", kind->name, (long)equal, (long)(rows * dim));
      }
    }
  }
}

Test(gpu_attn_rows, what_is_not_finite_stays_in_its_block_or_takes_its_row) {
  for (const row_kind *kind : {&kv_kind, &index_k_kind, &compress_kind}) {
    for (int64_t dim : {96, 512, 544}) {
      for (uint16_t bad : {(uint16_t)0x7FC0, (uint16_t)0xFF81, (uint16_t)0x7F80, (uint16_t)0xFF80}) {
        for (int64_t place : {(int64_t)0, (int64_t)45, dim - 1}) {
          const int64_t rows = 3;
          auto x = exact_values(rows * dim, 77);
          x[(size_t)(dim + place)] = bad;
          auto w = weights(dim, 5), freq = frequencies(32);
          auto found = run_rows(*kind, x, w, freq, dim, 0, step_at(4, rows, 1)).y;
          auto expected = reference_rows(x, kind->norm ? w : std::vector<float>(), freq, 1, dim, 4, 1, false, kind->block, kind->fn);
          expect_bits(found, expected, kind->name, dim);
          int64_t nans = 0, wanted = kind->norm && is_nan(bad) ? dim : kind->block;
          for (uint16_t h : found) nans += is_nan(h);
          cr_assert_eq(nans, wanted, "%s, %04x at %ld of %ld: %ld NaN, expected %ld", kind->name, bad, (long)place, (long)dim, (long)nans,
                       (long)wanted);
        }
      }
    }
  }
}

Test(gpu_attn_rows, minus_zero_keeps_its_sign) {
  std::vector<uint16_t> x(64, 0x8000);
  auto found = run_rows(compress_kind, x, weights(64, 1), frequencies(2), 64, 0, step_at(0, 1, 1)).y;
  for (int i = 0; i < 62; i++) cr_assert_eq(found[(size_t)i], 0x8000); /* the last pair is rotated: -0 - (-0 * 0) */
}

/* ---- 3, 4: the ring ---- */

namespace {

/* kv rows and a ring of `window`, both ways in: fused, and the store alone. Slot s holds the step's newest position that is s modulo the
 * window, if that is one of its rows, else what it held. */
void expect_ring(int64_t window, int64_t start_pos, int64_t m) {
  const int64_t dim = 32;
  ls_gpu_attn_step at = step_at(start_pos, m, 0);
  auto fused = run_rows(kv_kind, exact_values(m * dim, (uint64_t)(7 * m + start_pos)), weights(dim, 1), frequencies(16), dim, window, at);
  device<uint16_t> kv(fused.y, "kv"), ring(std::vector<uint16_t>((size_t)(window * dim), poison), "ring");
  device<ls_gpu_attn_step> step({at}, "step");
  expect_launched(ls_gpu_window_store(ring, kv, m, dim, window, step, stream()));
  auto stored = ring.download();
  std::vector<int64_t> row_of((size_t)window, -1);
  for (int64_t t = 0; t < m; t++) row_of[(size_t)((start_pos + t) % window)] = t; /* later rows replace earlier ones */
  for (int64_t slot = 0; slot < window; slot++) {
    for (int64_t c = 0; c < dim; c++) {
      int64_t t = row_of[(size_t)slot];
      uint16_t expected = t < 0 ? poison : fused.y[(size_t)(t * dim + c)];
      cr_assert_eq(fused.store[(size_t)(slot * dim + c)], expected, "window %ld, start %ld, m %ld: slot %ld, channel %ld", (long)window,
                   (long)start_pos, (long)m, (long)slot, (long)c);
      cr_assert_eq(stored[(size_t)(slot * dim + c)], expected, "store alone, window %ld, start %ld, m %ld: slot %ld, channel %ld",
                   (long)window, (long)start_pos, (long)m, (long)slot, (long)c);
    }
  }
}

}  // namespace

Test(gpu_attn_rows, the_ring_holds_the_newest_position_of_each_slot) {
  for (int64_t window : {1, 3, 8}) {
    for (int64_t m = 1; m <= 2 * window + 1; m++) expect_ring(window, 0, m);
    for (int64_t start = 0; start <= 2 * window + 2; start++) expect_ring(window, start, 1);
    expect_ring(window, 5, 2 * window + 1); /* a block beyond position 0 wraps as well */
  }
  for (uint64_t seed = 1; seed <= 5; seed++) {
    schedule s(seed);
    expect_ring(3, 0, 7);
    expect_ring(3, 4, 1);
  }
}

/* ---- 5: window_idx ---- */

namespace {

/* The positions that the query at p sees, oldest first, as row numbers: at start_pos 0 the rows of the step, else slots; -1 for positions
 * before 0, which at start_pos 0 stand last. */
void expect_window_idx(int64_t window, int64_t start_pos, int64_t m, int64_t wk, int64_t ld) {
  device<int32_t> idx(std::vector<int32_t>((size_t)((m - 1) * ld + wk), 77), "idx"); /* the last row ends with its window entries */
  device<ls_gpu_attn_step> step({step_at(start_pos, m, 0)}, "step");
  ls_gpu_x_rows seen = {};
  seen.idx = idx, seen.ld = ld, seen.wk = wk, seen.window = window;
  expect_launched(ls_gpu_attn_x_rows(&seen, 0.0f, 0.0f, m, step, stream()));
  auto found = idx.download();
  for (int64_t t = 0; t < m; t++) {
    std::vector<int32_t> expected;
    for (int64_t p = start_pos + t - window + 1; p <= start_pos + t; p++) {
      if (p >= 0 || start_pos > 0) expected.push_back(p < 0 ? -1 : (int32_t)(start_pos == 0 ? p : p % window));
    }
    while ((int64_t)expected.size() < wk) expected.push_back(-1);
    for (int64_t j = 0; j < ld && t * ld + j < (int64_t)found.size(); j++) {
      int32_t want = j < wk ? expected[(size_t)j] : 77;
      cr_assert_eq(found[(size_t)(t * ld + j)], want, "window %ld, start %ld, m %ld: query %ld, entry %ld: %d, expected %d", (long)window,
                   (long)start_pos, (long)m, (long)t, (long)j, found[(size_t)(t * ld + j)], want);
    }
  }
}

}  // namespace

Test(gpu_attn_rows, window_entries_are_the_positions_counted_one_by_one) {
  for (int64_t window : {1, 3, 8, 300}) {
    int64_t most = window > 8 ? 2 : 2 * window + 1;
    for (int64_t m = 1; m <= most; m++) {
      int64_t wk = m < window ? m : window;
      expect_window_idx(window, 0, m, wk, wk);
      expect_window_idx(window, 0, m, wk, wk + 5);
    }
    for (int64_t start = 1; start <= (window > 8 ? 4 : 2 * window + 2); start++) expect_window_idx(window, start, 1, window, window + 3);
  }
  expect_window_idx(300, 299, 1, 300, 300);
  expect_window_idx(300, 1000, 1, 300, 300);
  expect_window_idx(128, 1048575, 1, 128, 640);
  for (uint64_t seed = 1; seed <= 5; seed++) {
    schedule s(seed);
    expect_window_idx(3, 0, 7, 3, 4);
  }
}

/* ---- 7, 9: caches ---- */

Test(gpu_attn_rows, latents_go_to_their_rows_of_the_cache_and_nothing_else_is_written) {
  const int64_t dim = 64, memory = 4;
  for (const row_kind *kind : {&index_k_kind, &compress_kind}) {
    auto x = exact_values(memory * dim, 11);
    auto w = weights(dim, 1), freq = frequencies(16);
    for (int64_t first : {0, 5}) {
      for (int64_t g = 0; g <= memory; g++) { /* g 0: a step that leaves its group open */
        ls_gpu_attn_step at = step_at(first * 2, 1, 2);
        at.first_row = first, at.g = g;
        auto found = run_rows(*kind, x, w, freq, dim, first + memory, at);
        auto expected = reference_rows(x, kind->norm ? w : std::vector<float>(), freq, 1, dim, first * 2, 2, false, kind->block, kind->fn);
        device<uint16_t> rows(found.y, "rows"), cache(std::vector<uint16_t>((size_t)((first + memory) * dim), poison), "cache");
        device<ls_gpu_attn_step> step({at}, "step");
        expect_launched(ls_gpu_cache_store(cache, rows, memory, dim, step, stream()));
        auto stored = cache.download();
        for (int64_t i = 0; i < (first + memory) * dim; i++) {
          bool made = i >= first * dim && i < (first + g) * dim;
          uint16_t want = made ? expected[(size_t)(i - first * dim)] : poison;
          cr_assert_eq(found.store[(size_t)i], want, "%s, %ld latents from row %ld: element %ld", kind->name, (long)g, (long)first,
                       (long)i);
          cr_assert_eq(stored[(size_t)i], want, "cache_store, %ld latents from row %ld: element %ld", (long)g, (long)first, (long)i);
        }
        for (int64_t i = 0; i < memory * dim; i++) cr_assert_eq(found.y[(size_t)i], i < g * dim ? expected[(size_t)i] : poison);
      }
    }
  }
}

/* ---- 2, 8, 12: heads ---- */

namespace {

void expect_heads(int64_t m, int64_t heads, int64_t width, int64_t rope_dim, bool inverse, int64_t start_pos, bool in_place) {
  auto x = values(true, m * heads * width, (uint64_t)(width + heads), 2.0, 0.125);
  x[0] = 0x8000, x[1] = 0x7F81; /* -0 and a signalling NaN ahead of a tail: copied or left alone, but for the NaN's bits */
  auto freq = frequencies(rope_dim, 1.6e5);
  device<uint16_t> dx(x, "x"), dy(std::vector<uint16_t>(x.size(), poison), "y");
  device<float> df(freq, "freq");
  device<ls_gpu_attn_step> step({step_at(start_pos, m, 0)}, "step");
  expect_launched(
      ls_gpu_rope_heads(in_place ? (uint16_t *)dx : (uint16_t *)dy, dx, df, m, heads, width, rope_dim, inverse, step, stream()));
  auto expected = reference_rows(x, {}, freq, heads, width, start_pos, 1, inverse, 0, NULL);
  expect_bits(in_place ? dx.download() : dy.download(), expected, "q", heads * width);
  if (!in_place) cr_assert(dx.download() == x, "x is as it was");
}

}  // namespace

Test(gpu_attn_rows, the_tail_of_each_head_is_rotated_and_the_rest_is_as_it_was) {
  for (bool in_place : {true, false}) {
    for (bool inverse : {true, false}) {
      for (int64_t width : {8, 32, 40, 96, 512}) {
        for (int64_t rope_dim : {2, 6, 8, 32, 64}) {
          if (rope_dim <= width) expect_heads(2, 3, width, rope_dim, inverse, 9, in_place);
        }
      }
      expect_heads(2, 11, 512, 64, inverse, 70000, in_place); /* several blocks a row, the last not full */
      expect_heads(1, 1, 4200, 64, inverse, 3, in_place);     /* a head wider than a block's share */
      for (int64_t start : {(int64_t)0, ((int64_t)1 << 20) - 1, ((int64_t)1 << 24) + 1})
        expect_heads(3, 2, 64, 32, inverse, start, in_place);
    }
  }
  for (uint64_t seed = 1; seed <= 5; seed++) {
    schedule s(seed);
    expect_heads(2, 5, 40, 6, false, 9, true);
    expect_heads(2, 11, 512, 64, false, 9, false);
  }
}

namespace {

void expect_index_q(int64_t m, int64_t heads, int64_t width, int64_t rope_dim, std::vector<uint16_t> x) {
  auto freq = frequencies(rope_dim);
  device<uint16_t> dx(x, "proj"), dy(std::vector<uint16_t>(x.size(), poison), "index_q");
  device<float> df(freq, "freq");
  device<ls_gpu_attn_step> step({step_at(31, m, 1)}, "step");
  expect_launched(ls_gpu_attn_queries(nullptr, 0, 0, dy, dx, heads, width, df, m, rope_dim, step, stream()));
  expect_bits(dy.download(), reference_rows(x, {}, freq, heads, width, 31, 1, false, 32, ls_ref_fp4_block), "index_q", heads * width);
  expect_launched(ls_gpu_attn_queries(nullptr, 0, 0, dx, dx, heads, width, df, m, rope_dim, step, stream()));
  cr_assert(dx.download() == dy.download(), "in place: the same");
}

}  // namespace

Test(gpu_attn_rows, index_queries_have_the_references_bits) {
  for (int64_t heads : {1, 3, 32}) {
    for (int64_t width : {32, 96, 128}) {
      for (int64_t rope_dim : {2, 6, 32}) expect_index_q(2, heads, width, rope_dim, values(true, 2 * heads * width, (uint64_t)width, 3.0));
    }
  }
  for (uint64_t seed = 1; seed <= 5; seed++) {
    schedule s(seed);
    expect_index_q(2, 3, 96, 32, values(true, 2 * 3 * 96, seed, 3.0));
  }
  auto x = values(true, 2 * 3 * 96, 8, 3.0);
  x[3] = 0x7FC0, x[96 + 32] = 0x7F80, x[400] = 0xFF80, x[575] = 0xFFC0;
  expect_index_q(2, 3, 96, 32, x);
}

Test(gpu_attn_rows, index_weights_are_scaled_and_rounded_once) {
  for (int64_t count : {1, 31, 256, 257, 1000}) {
    auto x = values(true, count, 4);
    const float c = (float)(1 / sqrt(128.0) * (1 / sqrt(32.0)));
    x[0] = count > 1 ? 0x7FC0 : x[0];
    device<uint16_t> dx(x, "proj"), dy(std::vector<uint16_t>(x.size(), poison), "index_w");
    ls_gpu_x_rows scaled = {};
    scaled.index_w = dy, scaled.index_w_proj = dx, scaled.index_heads = count;
    device<ls_gpu_attn_step> step({step_at(0, 1, 1)}, "step");
    expect_launched(ls_gpu_attn_x_rows(&scaled, 0.0f, c, 1, step, stream()));
    for (uint16_t &h : x) h = ls_f32_to_bf16(ls_bf16_to_f32(h) * c);
    expect_bits(dy.download(), x, "index_w", count);
  }
}

/* ---- frequencies ---- */

Test(gpu_attn_rows, frequencies_are_the_references) {
  ls_attn_config c = {};
  c.rope_theta = 1e4, c.compress_rope_theta = 1.6e5, c.rope_factor = 16, c.beta_fast = 32, c.beta_slow = 1;
  for (int64_t length : {(int64_t)0, (int64_t)256, (int64_t)65536, (int64_t)1 << 20}) {
    for (int64_t dim : {2, 6, 64, 128}) {
      c.rope_head_dim = dim, c.original_seq_len = length;
      const ls_ref_yarn yarn = {length, c.beta_fast, c.beta_slow, c.rope_factor};
      std::vector<float> found((size_t)(dim / 2)), expected = frequencies(dim, c.compress_rope_theta);
      ls_ref_rope_yarn(expected.data(), dim, c.compress_rope_theta, &yarn);
      ls_gpu_attn_freq(found.data(), &c, true);
      cr_assert(found == expected, "compressed, dim %ld, original_seq_len %ld", (long)dim, (long)length);
      ls_gpu_attn_freq(found.data(), &c, false);
      cr_assert(found == frequencies(dim, c.rope_theta), "window only, dim %ld", (long)dim);
    }
  }
}

/* ---- 6: pooling ---- */

namespace {

/* Tokens one after the other, as layers.md tells it. */
struct pooling {
  int64_t dim, ratio;
  std::vector<float> kv, score;             /* [tokens, dim] */
  std::vector<float> kv_state, score_state; /* [ratio, dim] */

  pooling(int64_t width, int64_t r, int64_t tokens, uint64_t seed)
      : dim(width),
        ratio(r),
        kv((size_t)(tokens * width)),
        score(kv.size()),
        kv_state((size_t)(r * width), 0.0f),
        score_state((size_t)(r * width), -INFINITY) {
    for (size_t i = 0; i < kv.size(); i++) {
      kv[i] = (float)ls_generated_at(seed, i, 2.0, 0.5);
      score[i] = (float)ls_generated_at(seed + 1, i, seed % 2 ? 300.0 : 6.0, 0.0); /* 300: exp overflows but for the maximum */
    }
  }
  /* Rows start .. start + m - 1; the state after them, the latents that they close. */
  std::vector<uint16_t> feed(int64_t start, int64_t m) {
    std::vector<uint16_t> made;
    for (int64_t p = start; p < start + m; p++) {
      std::vector<float> group_kv, group_score;
      for (int64_t i = 0; i < ratio; i++) { /* of the group: tokens of this call from their rows, earlier ones from their slots */
        int64_t q = p - p % ratio + i;
        const float *k = q >= start ? &kv[(size_t)(std::min(q, p) * dim)] : &kv_state[(size_t)(i * dim)];
        const float *s = q >= start ? &score[(size_t)(std::min(q, p) * dim)] : &score_state[(size_t)(i * dim)];
        group_kv.insert(group_kv.end(), k, k + dim);
        group_score.insert(group_score.end(), s, s + dim);
      }
      if ((p + 1) % ratio != 0) continue;
      std::vector<uint16_t> y((size_t)dim);
      ls_tensor to = ls_tensor_make(LS_BF16, 1, &dim, y.data()), k = matrix(LS_F32, ratio, dim, group_kv.data());
      ls_tensor s = matrix(LS_F32, ratio, dim, group_score.data());
      ls_ref_pool(&to, &k, &s);
      made.insert(made.end(), y.begin(), y.end());
    }
    for (int64_t p = start; p < start + m; p++) { /* who waits: a group that began before, or one that is still open */
      bool began_before = p - p % ratio<start, open = p - p % ratio + ratio> start + m;
      if (!began_before && !open) continue;
      std::copy_n(&kv[(size_t)(p * dim)], dim, &kv_state[(size_t)(p % ratio * dim)]);
      std::copy_n(&score[(size_t)(p * dim)], dim, &score_state[(size_t)(p % ratio * dim)]);
    }
    return made;
  }
};

bool same_floats(const std::vector<float> &a, const std::vector<float> &b) {
  return memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

/* One step of the kernel and of the model from the model's state. */
void expect_pool(pooling &p, int64_t start, int64_t m) {
  int64_t groups = m / p.ratio > 1 ? m / p.ratio : 1;
  auto rows_of = [&](const std::vector<float> &v) {
    return std::vector<float>(v.begin() + start * p.dim, v.begin() + (start + m) * p.dim);
  };
  device<uint16_t> latent(std::vector<uint16_t>((size_t)(groups * p.dim), poison), "latent_pool");
  device<float> kv_state(p.kv_state, "kv_state"), score_state(p.score_state, "score_state");
  device<float> kv(rows_of(p.kv), "kv32"), score(rows_of(p.score), "score32");
  device<ls_gpu_attn_step> step({step_at(start, m, p.ratio)}, "step");
  expect_launched(ls_gpu_pool(latent, kv_state, score_state, kv, score, m, p.dim, p.ratio, step, stream()));
  auto expected = p.feed(start, m);
  expected.resize((size_t)(groups * p.dim), poison);
  expect_bits(latent.download(), expected, "latent_pool", p.dim);
  cr_assert(same_floats(kv_state.download(), p.kv_state), "ratio %ld, start %ld, m %ld: kv_state", (long)p.ratio, (long)start, (long)m);
  cr_assert(same_floats(score_state.download(), p.score_state), "ratio %ld, start %ld, m %ld: score_state", (long)p.ratio, (long)start,
            (long)m);
}

}  // namespace

Test(gpu_attn_rows, pooling_follows_the_tokens_one_by_one) {
  for (int64_t ratio : {2, 3, 4, 5}) {
    for (int64_t dim : {1, 70, 130}) {
      for (int64_t m = 1; m <= 2 * ratio + 1; m++) { /* a prefill, then decode through groups that stay open and that close */
        pooling p(dim, ratio, m + 2 * ratio + 1, (uint64_t)(m * 10 + ratio));
        expect_pool(p, 0, m);
        for (int64_t start = m; start < m + 2 * ratio; start++) expect_pool(p, start, 1);
      }
      pooling block(dim, ratio, 4 * ratio, 5); /* a block of rows at a position beyond 0 */
      expect_pool(block, 0, 1);
      expect_pool(block, 1, 2 * ratio - 1);
      expect_pool(block, 2 * ratio, 2 * ratio);
    }
  }
  for (uint64_t seed = 1; seed <= 5; seed++) {
    schedule s(seed);
    pooling p(130, 3, 20, seed);
    expect_pool(p, 0, 7);
    for (int64_t start = 7; start < 10; start++) expect_pool(p, start, 1);
  }
}

Test(gpu_attn_rows, a_slot_that_was_skipped_has_no_weight_and_nan_stays_in_its_channel) {
  for (int64_t ratio : {2, 3}) {
    pooling p(40, ratio, 8 * ratio, 3); /* nothing waits: scores of -inf */
    int64_t last = 3 * ratio - 1;
    p.score[(size_t)(last * 40 + 5)] = NAN;
    p.kv[(size_t)(last * 40 + 6)] = NAN;
    p.score[(size_t)(last * 40 + 7)] = -INFINITY; /* all of the channel's scores */
    p.score[(size_t)(last * 40 + 8)] = INFINITY;
    expect_pool(p, last, 1);
    p.kv_state.assign(p.kv_state.size(), 0.0f);
    p.score_state.assign(p.score_state.size(), -INFINITY);
    auto made = p.feed(last, 1);
    for (size_t c = 0; c < 40; c++) {
      cr_assert_eq(is_nan(made[c]), c >= 5 && c <= 8, "channel %zu", c);
      if (c < 5 || c > 8) cr_assert_eq(made[c], ls_f32_to_bf16(p.kv[(size_t)last * 40 + c]), "channel %zu is the one token's value", c);
    }
  }
}

/* ---- 6: y = x . W^T with float32 weights ---- */

namespace {

std::vector<float> linear_f32(const std::vector<uint16_t> &x, const std::vector<float> &w, int64_t m, int64_t n, int64_t k) {
  device<uint16_t> dx(x, "x");
  device<float> dw(w, "w"), dy(std::vector<float>((size_t)(m * n), -777.0f), "y");
  expect_launched(ls_gpu_linear_f32(dy, dx, dw, m, n, k, stream()));
  return dy.download();
}

std::vector<float> matrix_f32(int64_t count, uint64_t seed) {
  std::vector<float> w((size_t)count);
  for (size_t i = 0; i < w.size(); i++) w[i] = (float)ls_generated_at(seed, i, 1.0, 0.1);
  return w;
}

void expect_linear(int64_t m, int64_t n, int64_t k) {
  auto x = values(true, m * k, (uint64_t)(m + k));
  auto w = matrix_f32(n * k, (uint64_t)n);
  auto y = linear_f32(x, w, m, n, k);
  for (int64_t t = 0; t < m; t++) {
    for (int64_t c = 0; c < n; c++) {
      double exact = 0, size = 0, found = (double)y[(size_t)(t * n + c)];
      for (int64_t i = 0; i < k; i++) {
        double product = widen(true, x[(size_t)(t * k + i)]) * (double)w[(size_t)(c * k + i)];
        exact += product, size += fabs(product);
      }
      double bound = (double)(32 + k / 32 + 1) * 0x1p-24 * size; /* one rounding a term of a range, one a range */
      cr_assert(fabs(found - exact) <= bound, "[%ld, %ld, %ld]: row %ld, channel %ld: %.9g, expected %.9g", (long)m, (long)n, (long)k,
                (long)t, (long)c, found, exact);
    }
  }
}

}  // namespace

Test(gpu_attn_rows, float32_products_are_within_float32_of_double) {
  for (int64_t m : {1, 2, 4, 5, 16, 17, 33, 70}) {
    for (int64_t n : {1, 3, 4, 37}) {
      for (int64_t k : {1, 7, 8, 32, 40, 75, 1024, 1030, 3304}) {
        if (k <= 75 || (m <= 17 && n <= 4)) expect_linear(m, n, k);
      }
    }
  }
}

/* A row alone, in a small batch, and in each tile of the larger ones: the same bits, since the order of the sum is. */
Test(gpu_attn_rows, a_float32_row_does_not_depend_on_the_rows_beside_it) {
  const struct {
    int64_t n, k;
    std::vector<int64_t> m;
  } cases[] = {
      {37, 1100, {2, 4, 5, 16, 17, 40}}, {19, 77, {3, 16, 17, 33}}, {700, 40, {16, 17, 600}}, {700, 72, {2100}}, {650, 35, {2300}}};
  for (auto &c : cases) { /* tiles of 32, 64 and 128 */
    auto w = matrix_f32(c.n * c.k, 4);
    for (int64_t m : c.m) {
      auto x = values(true, m * c.k, 6);
      auto all = linear_f32(x, w, m, c.n, c.k);
      for (int64_t t : {(int64_t)0, m / 2, m - 1}) {
        auto one = linear_f32(std::vector<uint16_t>(x.begin() + t * c.k, x.begin() + (t + 1) * c.k), w, 1, c.n, c.k);
        cr_assert(memcmp(one.data(), &all[(size_t)(t * c.n)], (size_t)c.n * sizeof(float)) == 0, "n %ld, k %ld: row %ld of %ld", (long)c.n,
                  (long)c.k, (long)t, (long)m);
      }
    }
  }
}

Test(gpu_attn_rows, integers_are_multiplied_exactly_by_every_tile) {
  for (auto &shape : {std::vector<int64_t>{16, 9, 100}, {20, 50, 64}, {600, 700, 33}, {2100, 700, 40}}) {
    int64_t m = shape[0], n = shape[1], k = shape[2];
    std::vector<uint16_t> x((size_t)(m * k));
    std::vector<float> w((size_t)(n * k));
    for (int64_t i = 0; i < m * k; i++) x[(size_t)i] = narrow(true, (double)((i * 37 + i / k * 11) % 17 - 8));
    for (int64_t i = 0; i < n * k; i++) w[(size_t)i] = (float)((i * 53 + i / k * 7) % 2003 - 1000);
    auto y = linear_f32(x, w, m, n, k);
    for (int64_t t = 0; t<m; t += m> 100 ? 13 : 1) {
      for (int64_t c = 0; c < n; c++) {
        double exact = 0;
        for (int64_t i = 0; i < k; i++) exact += widen(true, x[(size_t)(t * k + i)]) * (double)w[(size_t)(c * k + i)];
        cr_assert_eq((double)y[(size_t)(t * n + c)], exact, "m %ld: row %ld, channel %ld", (long)m, (long)t, (long)c);
      }
    }
  }
}

Test(gpu_attn_rows, float32_products_under_every_schedule_and_with_nan) {
  for (int64_t m : {1, 7, 20}) {
    const int64_t n = 10, k = 1100;
    auto x = values(true, m * k, 2);
    auto w = matrix_f32(n * k, 3);
    auto first = linear_f32(x, w, m, n, k);
    for (uint64_t seed = 1; seed <= 5; seed++) {
      schedule s(seed);
      cr_assert(same_floats(linear_f32(x, w, m, n, k), first), "m %ld, schedule %lu", (long)m, (unsigned long)seed);
    }
    x[(size_t)((m - 1) * k + 1050)] = 0x7FC0;
    w[(size_t)(4 * k + 3)] = INFINITY;
    auto y = linear_f32(x, w, m, n, k);
    for (int64_t t = 0; t < m; t++) {
      for (int64_t c = 0; c < n; c++) {
        float found = y[(size_t)(t * n + c)];
        if (t == m - 1)
          cr_assert(isnan(found));
        else if (c == 4)
          cr_assert(isinf(found));
        else
          cr_assert_eq(found, first[(size_t)(t * n + c)]);
      }
    }
  }
}
