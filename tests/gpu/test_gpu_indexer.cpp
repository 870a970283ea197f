/* Index scores and selections of the emulated kernels against the reference's functions, bit for bit. Dot products are sums of fp4 grid
 * values, exact in float32, so that only the roundings and the order of the sum over heads can make a difference. */
#include <functional>

#include "core/ls_random.h"
#include "gpu/gpu_indexer.h"
#include "gpu_kernel_test.h"
#include "ref/ref_indexer.h"

using namespace gpu_test;

namespace {

const uint16_t MINUS_INFINITY = 0xFF80, PLUS_INFINITY = 0x7F80, ONE_NAN = 0x7FC0;

/* A step of m queries at start_pos, whose scores and masks are n_most wide. */
struct step {
  int64_t m, start_pos, ratio, n_most;
  int64_t n() const { return (start_pos + m) / ratio; }
  int64_t visible(int64_t t) const { return (start_pos + t + 1) / ratio; }
  ls_attn_plan plan() const {
    ls_attn_plan p = {};
    p.m = m, p.start_pos = start_pos, p.ratio = ratio, p.n = n();
    return p;
  }
  ls_gpu_attn_step on_device(const uint16_t *keys) const {
    ls_gpu_attn_step s = {};
    s.start_pos = start_pos, s.ratio = ratio, s.n = n(), s.rows_a = 7, s.index_cache = keys;
    return s;
  }
};
step prefill(int64_t m, int64_t ratio, int64_t past = 0) { return {m, 0, ratio, m / ratio + past}; }
step decode(int64_t n, int64_t ratio, int64_t past = 0) { return {1, n * ratio - 1 + (n == 0), ratio, n + past}; }

ls_tensor view(ls_dtype dtype, int64_t rows, int64_t columns, const void *data) {
  const int64_t dim[2] = {rows, columns};
  return ls_tensor_make(dtype, 2, dim, const_cast<void *>(data));
}
/* The first `columns` of rows that are ld apart. */
ls_tensor view(ls_dtype dtype, int64_t rows, int64_t columns, int64_t ld, const void *data) {
  ls_tensor t = view(dtype, rows, ld, data);
  return ls_tensor_slice(&t, 1, 0, columns);
}

/* ---- scores ---- */

std::vector<uint16_t> fp4_values(int64_t count, uint64_t seed) {
  static const double grid[] = {0, 0.5, 1, 1.5, 2, 3, 4, 6};
  std::vector<uint16_t> v((size_t)count);
  ls_random draw = {};
  draw.seed = seed;
  double scale = 1;
  for (int64_t i = 0; i < count; i++) {
    if (i % 32 == 0) scale = ldexp(1, (int)ls_random_range(&draw, -2, 2));
    const int64_t code = ls_random_range(&draw, 0, 15);
    v[(size_t)i] = ls_f64_to_bf16((code & 8 ? -1 : 1) * grid[code & 7] * scale);
  }
  return v;
}

struct score_inputs {
  std::vector<uint16_t> q, w, key;
};

std::vector<uint16_t> scores(const step &s, int64_t heads, int64_t width, const score_inputs &in) {
  device<uint16_t> q(in.q, "q"), w(in.w, "w"), key(in.key, "keys"),
      score(std::vector<uint16_t>((size_t)(s.m * s.n_most), ONE_NAN), "score");
  device<ls_gpu_attn_step> on_device({s.on_device(key)}, "step");
  expect_launched(ls_gpu_index_score(score, q, w, s.m, heads, width, s.n_most, on_device, stream()));
  return score.download();
}

bool same_value(uint16_t a, uint16_t b) { return a == b || (isnan(ls_bf16_to_f32(a)) && isnan(ls_bf16_to_f32(b))); }

void expect_scores(const step &s, int64_t heads, int64_t width, const std::function<void(score_inputs &)> &change = {}) {
  score_inputs in = {fp4_values(s.m * heads * width, 11), values(true, s.m * heads, 12), fp4_values(s.n() * width, 13)};
  if (change) change(in);
  const std::vector<uint16_t> found = scores(s, heads, width, in);
  std::vector<uint16_t> expected((size_t)(s.m * s.n_most), MINUS_INFINITY);
  const ls_tensor score = view(LS_BF16, s.m, s.n(), s.n_most, expected.data()), q = view(LS_BF16, s.m, heads * width, in.q.data());
  const ls_tensor key = view(LS_BF16, s.n(), width, in.key.data()), w = view(LS_BF16, s.m, heads, in.w.data());
  const ls_attn_plan plan = s.plan();
  if (s.n() > 0) cr_assert_eq(ls_ref_index_score(&score, &q, &key, &w, &plan, nullptr), LS_OK);
  for (size_t i = 0; i < expected.size(); i++)
    cr_assert(same_value(found[i], expected[i]), "m %ld, ratio %ld, heads %ld, width %ld, query %ld, key %ld: %04x, expected %04x",
              (long)s.m, (long)s.ratio, (long)heads, (long)width, (long)((int64_t)i / s.n_most), (long)((int64_t)i % s.n_most), found[i],
              expected[i]);
}

}  // namespace

Test(gpu_indexer, scores_have_the_bytes_of_the_reference_at_every_edge_of_a_tile) {
  expect_scores(prefill(1, 1), 1, 32);
  expect_scores(prefill(5, 1), 3, 32);
  expect_scores(prefill(20, 2, 3), 32, 128);
  expect_scores(prefill(17, 1), 33, 64);
  expect_scores(prefill(33, 1, 1), 8, 96);
  expect_scores(prefill(3, 1), 70, 160); /* a key in two pieces, heads in three stages */
  expect_scores(prefill(40, 2), 5, 288);
  expect_scores(decode(31, 1), 4, 32);
  expect_scores(decode(300, 1, 212), 32, 128);
  expect_scores(decode(257, 2), 2, 32);
}

Test(gpu_indexer, what_is_not_visible_is_minus_infinity_and_is_not_read) {
  expect_scores(prefill(300, 1, 300), 2, 32); /* whole tiles above the diagonal, and past n: keys end at n */
  expect_scores(prefill(1, 2, 5), 2, 32);     /* n = 0: there are no keys */
  expect_scores(decode(0, 2, 300), 2, 32);
}

Test(gpu_indexer, non_finite_values_come_through_the_relu_and_only_where_they_belong) {
  for (int64_t heads : {1, 3, 9, 32, 35}) {
    const step s = prefill(40, 1);
    expect_scores(s, heads, 64, [](score_inputs &in) { in.key[5 * 64 + 63] = ONE_NAN; });
    expect_scores(s, heads, 64, [](score_inputs &in) { in.key[5 * 64 + 1] = PLUS_INFINITY, in.key[9 * 64 + 33] = MINUS_INFINITY; });
    expect_scores(s, heads, 64, [&](score_inputs &in) { in.q[(size_t)(17 * heads * 64 + (heads - 1) * 64)] = ONE_NAN; });
    expect_scores(s, heads, 64, [&](score_inputs &in) { in.w[(size_t)(30 * heads + heads - 1)] = ONE_NAN, in.w[0] = PLUS_INFINITY; });
  }
}

/* All heads have one dot product, and large weights that cancel: what is left of the small ones between them depends on the order. */
Test(gpu_indexer, heads_are_added_in_their_order) {
  for (int64_t heads : {5, 32, 44}) {
    expect_scores(prefill(34, 1), heads, 64, [&](score_inputs &in) {
      for (size_t i = 0; i < in.q.size(); i++) in.q[i] = in.q[i / (size_t)(heads * 64) * (size_t)(heads * 64) + i % 64];
      for (size_t i = 0; i < in.w.size(); i++) {
        const int h = (int)(i % (size_t)heads);
        if (h % 3 == 0 && h / 6 * 6 + 3 < heads) in.w[i] = ls_f64_to_bf16(h % 6 == 0 ? 0x1p20 : -0x1p20);
      }
    });
  }
}

Test(gpu_indexer, a_zero_score_is_plus_zero) {
  expect_scores(prefill(9, 1), 3, 32, [](score_inputs &in) {
    for (uint16_t &w : in.w) w = 0x8000;
  });
  expect_scores(prefill(9, 1), 3, 32, [](score_inputs &in) {
    for (uint16_t &k : in.key) k |= 0x8000; /* negative keys: the relu leaves zeros */
    for (uint16_t &q : in.q) q &= 0x7FFF;
  });
}

Test(gpu_indexer, scores_do_not_depend_on_the_schedule) {
  for (uint64_t seed = 1; seed <= 5; seed++) {
    lsg_set_schedule(seed);
    expect_scores(prefill(19, 1), 35, 160);
    expect_scores(decode(70, 1), 32, 128);
  }
  lsg_set_schedule(0);
}

/* ---- selections ---- */

namespace {

/* Score (t, j), where it is visible. */
typedef std::function<uint16_t(int64_t t, int64_t j)> score_of;

uint16_t drawn(uint64_t seed, int64_t t, int64_t j, int64_t most) { /* 0 .. most - 1 */
  ls_random draw = {};
  draw.seed = seed * 1000003 + (uint64_t)t * 70001 + (uint64_t)j * 7;
  return (uint16_t)ls_random_range(&draw, 0, most - 1);
}
const score_of levels = [](int64_t t, int64_t j) { return ls_f64_to_bf16((double)drawn(1, t, j, 9) - 4); }; /* many ties */
const score_of any_bits = [](int64_t t, int64_t j) { return drawn(2, t, j, 65536); };
const score_of near = [](int64_t t, int64_t j) { return (uint16_t)(0x4000 + drawn(3, t, j, 70)); }; /* few bins, many ranks in one */
const score_of equal = [](int64_t, int64_t) { return (uint16_t)0x3F80; };
const score_of none = [](int64_t, int64_t) { return MINUS_INFINITY; };
const score_of zeros = [](int64_t t, int64_t j) { return (uint16_t)(drawn(4, t, j, 2) ? 0x8000 : 0); };
const score_of nans = [](int64_t t, int64_t j) { return drawn(5, t, j, 3) ? near(t, j) : (uint16_t)(drawn(6, t, j, 2) ? 0xFFFF : 0x7F81); };
const score_of all_nan = [](int64_t, int64_t) { return ONE_NAN; };
const score_of sparse = [](int64_t t, int64_t j) { return drawn(7, t, j, 40) ? MINUS_INFINITY : levels(t, j); };
const score_of rising = [](int64_t, int64_t j) { return ls_f64_to_bf16((double)j); };
const score_of ends = [](int64_t, int64_t j) { /* both infinities, the largest and the smallest values of both signs */
                                               static const uint16_t v[] = {0x7F80, 0xFF80, 0x7F7F, 0xFF7F, 0x0001, 0x8001, 0x0000, 0x8000};
                                               return v[j % 8];
};
const score_of *const patterns[] = {&levels, &any_bits, &near, &equal, &none, &zeros, &nans, &all_nan, &sparse, &rising, &ends};

std::vector<uint16_t> score_rows(const step &s, const score_of &of) {
  std::vector<uint16_t> v((size_t)(s.m * s.n_most), MINUS_INFINITY);
  for (int64_t t = 0; t < s.m; t++) {
    for (int64_t j = 0; j < s.visible(t); j++) v[(size_t)(t * s.n_most + j)] = of(t, j);
  }
  return v;
}

/* Positions in the mask: one in `one_in`, by hash. */
std::vector<uint8_t> mask_rows(const step &s, int64_t one_in) {
  std::vector<uint8_t> v((size_t)(s.m * s.n_most));
  for (int64_t i = 0; i < (int64_t)v.size(); i++) v[(size_t)i] = drawn(8, 0, i, one_in) == 0;
  return v;
}

void expect_topk(const step &s, int64_t topk, const std::vector<uint16_t> &score_in, const std::vector<uint8_t> *mask_in = nullptr) {
  const int64_t k_most = topk < s.n_most ? topk : s.n_most, k = topk < s.n() ? topk : s.n(), ld = k_most + 3;
  const std::vector<int32_t> before((size_t)(s.m * ld), -77);
  device<uint16_t> score(score_in, "score");
  device<uint8_t> mask(mask_in ? *mask_in : std::vector<uint8_t>(1), "mask");
  device<uint8_t> scratch(std::vector<uint8_t>(ls_gpu_select_bytes(s.m, s.n_most), 0xA5), "scratch");
  expect_launched(ls_gpu_select_clear(scratch, stream()));
  device<int32_t> idx(before, "idx");
  device<ls_gpu_attn_step> on_device({s.on_device(nullptr)}, "step");
  expect_launched(ls_gpu_topk(idx, ld, k_most, score, mask_in ? static_cast<uint8_t *>(mask) : nullptr, s.m, s.n_most, topk, scratch,
                              on_device, stream()));
  const std::vector<int32_t> found = idx.download();

  std::vector<int32_t> expected = before;
  for (int64_t t = 0; t < s.m; t++) {
    for (int64_t i = 0; i < k_most; i++) expected[(size_t)(t * ld + i)] = -1;
  }
  if (k > 0) {
    const ls_tensor idx_view = view(LS_I32, s.m, k, ld, expected.data()), score_view = view(LS_BF16, s.m, s.n(), s.n_most, score_in.data());
    const ls_tensor mask_view = view(LS_U8, s.m, s.n(), s.n_most, mask_in ? mask_in->data() : nullptr);
    const ls_attn_plan plan = s.plan();
    cr_assert_eq(ls_ref_topk(&idx_view, &score_view, mask_in ? &mask_view : nullptr, 7, &plan, nullptr), LS_OK);
  }
  for (size_t i = 0; i < found.size(); i++)
    cr_assert_eq(found[i], expected[i], "n %ld of %ld, topk %ld, query %ld, entry %ld: %d, expected %d", (long)s.n(), (long)s.n_most,
                 (long)topk, (long)((int64_t)i / ld), (long)((int64_t)i % ld), found[i], expected[i]);
}

void expect_candidates(const step &s, int64_t block, int64_t topk, const std::vector<uint16_t> &score_in) {
  device<uint16_t> score(score_in, "score");
  device<uint8_t> mask(std::vector<uint8_t>((size_t)(s.m * s.n_most), 0x77), "mask");
  device<uint8_t> scratch(std::vector<uint8_t>(ls_gpu_select_bytes(s.m, s.n_most), 0xA5), "scratch");
  expect_launched(ls_gpu_select_clear(scratch, stream()));
  device<ls_gpu_attn_step> on_device({s.on_device(nullptr)}, "step");
  expect_launched(ls_gpu_candidates(mask, score, s.m, s.n_most, block, topk, scratch, on_device, stream()));
  const std::vector<uint8_t> found = mask.download();

  std::vector<uint8_t> expected((size_t)(s.m * s.n_most), 0);
  if (s.n() > 0) {
    ls_attn_config config = {};
    config.candidate_block_size = block, config.candidate_topk_blocks = topk;
    const ls_tensor mask_view = view(LS_U8, s.m, s.n(), s.n_most, expected.data());
    const ls_tensor score_view = view(LS_BF16, s.m, s.n(), s.n_most, score_in.data());
    const ls_attn_plan plan = s.plan();
    cr_assert_eq(ls_ref_candidates(&mask_view, &score_view, &config, &plan, nullptr), LS_OK);
  }
  for (size_t i = 0; i < found.size(); i++)
    cr_assert_eq(found[i], expected[i], "n %ld of %ld, blocks of %ld, the best %ld, query %ld, position %ld: %d, expected %d", (long)s.n(),
                 (long)s.n_most, (long)block, (long)topk, (long)((int64_t)i / s.n_most), (long)((int64_t)i % s.n_most), found[i],
                 expected[i]);
}

}  // namespace

Test(gpu_indexer, selections_are_those_of_the_reference_for_every_kind_of_scores) {
  for (const score_of *of : patterns) {
    for (const step &s : {decode(300, 1), decode(611, 2, 13)}) {
      for (int64_t topk : {1, 64, 299, 300, 700}) expect_topk(s, topk, score_rows(s, *of));
    }
  }
}

Test(gpu_indexer, selections_are_right_at_every_width) {
  for (int64_t n : {1, 2, 7, 8, 9, 15, 16, 17, 255, 256, 257, 512, 4095, 4096, 4097, 8200}) {
    for (int64_t past : {0, 1}) {
      const step s = decode(n, 1, past ? 16 - n % 16 : 0); /* aligned rows are read 16 bytes at a time */
      const std::vector<uint16_t> score = score_rows(s, near);
      for (int64_t topk : {(int64_t)5, n - 1, n}) {
        if (topk > 0 && topk <= 2000) expect_topk(s, topk, score);
      }
    }
  }
}

Test(gpu_indexer, no_visible_row_is_a_selection_of_nothing) {
  for (const step &s : {decode(0, 2, 1), decode(0, 2, 100), prefill(1, 2, 16)}) {
    expect_topk(s, 8, score_rows(s, equal));
    expect_candidates(s, 4, 3, score_rows(s, equal));
  }
}

Test(gpu_indexer, a_prefill_selects_below_its_diagonal) {
  for (int64_t ratio : {1, 2}) {
    for (int64_t past : {0, 6}) {
      const step s = prefill(26, ratio, past);
      for (const score_of *of : {&levels, &any_bits, &equal}) {
        for (int64_t topk : {1, 6, 13, 40}) expect_topk(s, topk, score_rows(s, *of));
      }
    }
  }
}

Test(gpu_indexer, a_selection_stays_inside_its_mask) {
  for (const step &s : {decode(300, 1), decode(611, 2, 13), prefill(33, 1), prefill(30, 1, 2)}) {
    for (const score_of *of : {&levels, &any_bits, &sparse}) {
      for (int64_t one_in : {1, 2, 30, 100000}) { /* all, half, fewer than k, none or next to none */
        const std::vector<uint8_t> mask = mask_rows(s, one_in);
        for (int64_t topk : {1, 24}) expect_topk(s, topk, score_rows(s, *of), &mask);
      }
    }
  }
}

Test(gpu_indexer, candidates_are_those_of_the_reference) {
  for (int64_t block = 1; block <= 8; block++) {
    for (const score_of *of : patterns) {
      for (int64_t topk : {1, 2, 9, 400}) expect_candidates(decode(203, 1, 5), block, topk, score_rows(decode(203, 1, 5), *of));
    }
  }
  for (const score_of *of : patterns) { /* rows of whole 16 bytes, blocks of eight; n ends inside a block, and with one */
    for (const step &s : {decode(600, 1, 8), decode(603, 1, 5), decode(603, 1, 421), decode(1024, 2)}) {
      for (int64_t topk : {1, 20}) expect_candidates(s, 8, topk, score_rows(s, *of));
    }
  }
}

Test(gpu_indexer, candidates_of_a_prefill_end_at_the_newest_row_of_the_step) {
  for (int64_t ratio : {1, 2}) {
    for (int64_t block : {1, 3, 8}) {
      for (const step &s : {prefill(19, ratio), prefill(16 * ratio, ratio, 16)}) {
        for (int64_t topk : {2, 50}) expect_candidates(s, block, topk, score_rows(s, levels));
      }
    }
  }
}

/* ---- rows that several blocks share ---- */

Test(gpu_indexer, a_wide_row_is_selected_from_by_several_blocks) {
  for (const step &s : {decode(70000, 1), decode(69999, 1), decode(9000, 2, 60000), decode(0, 2, 70000)}) {
    const std::vector<uint8_t> mask = mask_rows(s, 3), few = mask_rows(s, 5000);
    for (const score_of *of : {&near, &equal, &nans, &none}) {
      const std::vector<uint16_t> score = score_rows(s, *of);
      expect_topk(s, 512, score);
      expect_topk(s, 512, score, &mask);
      expect_topk(s, 512, score, &few);
    }
    expect_topk(s, 1, score_rows(s, any_bits));
  }
  const step all = decode(40000, 1);
  expect_topk(all, 40000, score_rows(all, any_bits)); /* k = n */
}

Test(gpu_indexer, wide_rows_of_a_prefill_do_not_mix) {
  const step s = {3, 0, 1, 33000}; /* a bucket far wider than its step */
  expect_topk(s, 2, score_rows(s, levels));
  const step far = {3, 39999, 1, 40002}; /* not a step of today's contract; kernels take any (start_pos, m) */
  expect_topk(far, 100, score_rows(far, near));
  expect_candidates(far, 8, 1000, score_rows(far, near));
}

Test(gpu_indexer, a_wide_row_has_its_candidates) {
  for (const step &s : {decode(70000, 1), decode(69999, 1, 1), decode(69999, 1), decode(9001, 2, 60000), decode(0, 2, 70000)}) {
    for (int64_t block : {1, 3, 8}) expect_candidates(s, block, 300, score_rows(s, near));
    expect_candidates(s, 8, 2048, score_rows(s, equal));
    expect_candidates(s, 8, 20, score_rows(s, none));
  }
}

Test(gpu_indexer, a_wide_step_from_keys_to_indices) {
  const step s = decode(110000, 1);
  const score_inputs in = {fp4_values(2 * 32, 1), values(true, 2, 2), fp4_values(s.n() * 32, 3)};
  expect_scores(s, 2, 32, [&](score_inputs &to) { to = in; });
  const std::vector<uint16_t> score = scores(s, 2, 32, in);
  expect_topk(s, 512, score);
  expect_candidates(s, 8, 2048, score);
}

Test(gpu_indexer, selections_do_not_depend_on_the_schedule) {
  for (uint64_t seed = 1; seed <= 5; seed++) {
    lsg_set_schedule(seed);
    const step s = decode(300, 1), rows = prefill(20, 1, 3), wide = decode(34000, 1);
    expect_topk(s, 24, score_rows(s, near));
    expect_topk(rows, 5, score_rows(rows, levels));
    expect_candidates(rows, 3, 2, score_rows(rows, levels));
    expect_candidates(s, 8, 9, score_rows(s, near));
    expect_topk(wide, 512, score_rows(wide, near));
    expect_candidates(wide, 8, 300, score_rows(wide, near));
  }
  lsg_set_schedule(0);
}
