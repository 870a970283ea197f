/* Sparse attention in the emulator, against double and the reference, within the bound of sparse_o (docs/tolerances.md). */
#include "gpu/gpu_sparse_attn.h"
#include "gpu_kernel_test.h"
#include "layers/bound_sparse_attn.h"
#include "ref/ref_sparse_attn.h"

using namespace gpu_test;

namespace {

const uint16_t NAN_BF16 = 0x7FC0, INF_BF16 = 0x7F80, MINUS_INF_BF16 = 0xFF80;

struct attention {
  int64_t m, heads, dim, width, n_a, n_b, rope_dim = 16, ld = width, start_pos = 0;
  std::vector<uint16_t> q, rows_a, rows_b;
  std::vector<int32_t> idx; /* [m, width] */
  std::vector<float> sink;

  /* Scores spread over several units; a fifth of the entries is empty. Of many queries only the first and last ones see rows: the emulator
   * is slow. */
  attention(int64_t m_, int64_t heads_, int64_t dim_, int64_t width_, int64_t n_a_ = 20, int64_t n_b_ = 30)
      : m(m_), heads(heads_), dim(dim_), width(width_), n_a(n_a_), n_b(n_b_) {
    q = values(true, m * heads * dim, 1, 2.0);
    rows_a = values(true, n_a * dim, 2, 2.0);
    rows_b = values(true, n_b * dim, 3, 2.0, 0.25);
    for (int64_t i = 0; i < m * width; i++) {
      const double r = ls_generated_at(4, (uint64_t)i, 0.5, 0.5);
      const int64_t t = i / width;
      idx.push_back(r < 0.2 || (m >= 64 && t > 2 && t < m - 2) ? -1 : (int32_t)((r - 0.2) / 0.8 * (double)(n_a + n_b)));
    }
    for (int64_t h = 0; h < heads; h++) sink.push_back((float)ls_generated_at(5, (uint64_t)h, 2.0, 0.0));
  }
  int32_t &entry(int64_t t, int64_t j) { return idx[(size_t)(t * width + j)]; }
  uint16_t &row(int64_t i, int64_t c) { return i < n_a ? rows_a[(size_t)(i * dim + c)] : rows_b[(size_t)((i - n_a) * dim + c)]; }
  const uint16_t *row(int64_t i) const { return i < n_a ? &rows_a[(size_t)(i * dim)] : &rows_b[(size_t)((i - n_a) * dim)]; }
  void only(int64_t t, const std::vector<int32_t> &named) {
    for (int64_t j = 0; j < width; j++) entry(t, j) = j < (int64_t)named.size() ? named[(size_t)j] : -1;
  }
};

std::vector<float> frequencies(int64_t rope_dim) {
  std::vector<float> f;
  for (int64_t i = 0; i < rope_dim / 2; i++) f.push_back((float)pow(1e4, -(double)i / (double)(rope_dim / 2)));
  return f;
}

template <class T>
T *or_null(bool wanted, const device<T> &d) {
  return wanted ? static_cast<T *>(d) : nullptr;
}

struct results {
  std::vector<uint16_t> sparse_o, o_rot;
};

/* Buffers end with the last element that may be read: idx with the last query's last entry, rows_a and rows_b with their last row. */
results run(const attention &a, bool want_sparse_o = true, bool want_o_rot = true) {
  const size_t count = (size_t)(a.m * a.heads * a.dim);
  std::vector<int32_t> spread((size_t)((a.m - 1) * a.ld + a.width), 0x7FFFFFFF);
  for (int64_t t = 0; t < a.m; t++)
    for (int64_t j = 0; j < a.width; j++) spread[(size_t)(t * a.ld + j)] = a.idx[(size_t)(t * a.width + j)];
  device<uint16_t> o(std::vector<uint16_t>(count, 0x4242), "sparse_o"), rot(std::vector<uint16_t>(count, 0x4242), "o_rot");
  device<uint16_t> q(a.q, "q"), rows_a(a.rows_a, "rows_a"), rows_b(a.n_b > 0 ? a.rows_b : std::vector<uint16_t>(8), "rows_b");
  device<int32_t> idx(spread, "idx");
  device<float> sink(a.sink, "sink"), freq(frequencies(a.rope_dim), "freq");
  ls_gpu_attn_step host = {};
  host.start_pos = a.start_pos, host.ratio = 1, host.n = a.n_b, host.rows_a = a.n_a, host.compress_cache = or_null(a.n_b > 0, rows_b);
  device<ls_gpu_attn_step> step(std::vector<ls_gpu_attn_step>{host}, "step");
  const size_t bytes = ls_gpu_sparse_bytes(a.m, a.heads, a.dim, a.width);
  cr_assert_eq(bytes == 0, ls_gpu_sparse_splits(a.m, a.heads, a.width) == 1);
  device<uint8_t> scratch(std::vector<uint8_t>(bytes > 0 ? bytes : 1, 0xFF), "scratch");
  expect_launched(ls_gpu_sparse_attn(or_null(want_sparse_o, o), or_null(want_o_rot, rot), q, rows_a, idx, a.ld, a.width, sink, freq, a.m,
                                     a.heads, a.dim, a.rope_dim, or_null(bytes > 0, scratch), step, stream()));
  return {o.download(), rot.download()};
}

ls_tensor matrix(ls_dtype type, int64_t rows, int64_t columns, const void *data) {
  ls_tensor t = {};
  t.dtype = type, t.ndim = 2, t.dim[0] = rows, t.dim[1] = columns, t.stride[0] = columns, t.stride[1] = 1;
  t.data = const_cast<void *>(data);
  return t;
}

/* The formula as it stands in double, unrounded. */
std::vector<double> in_double(const attention &a) {
  std::vector<double> o((size_t)(a.m * a.heads * a.dim));
  for (int64_t t = 0; t < a.m; t++) {
    for (int64_t h = 0; h < a.heads; h++) {
      const uint16_t *q = &a.q[(size_t)((t * a.heads + h) * a.dim)];
      double *y = &o[(size_t)((t * a.heads + h) * a.dim)], max = -INFINITY, sum = 0;
      std::vector<double> s;
      std::vector<const uint16_t *> rows;
      for (int64_t j = 0; j < a.width; j++) {
        const int32_t i = a.idx[(size_t)(t * a.width + j)];
        if (i < 0) continue;
        double dot = 0;
        for (int64_t c = 0; c < a.dim; c++) dot += widen(true, q[c]) * widen(true, a.row(i)[c]);
        s.push_back(dot / sqrt((double)a.dim));
        rows.push_back(a.row(i));
        if (s.back() > max) max = s.back();
      }
      for (size_t j = 0; j < s.size(); j++) {
        const double p = exp(s[j] - max);
        sum += p;
        for (int64_t c = 0; c < a.dim; c++) y[c] += p * widen(true, rows[j][c]);
      }
      if (!s.empty()) sum += exp((double)a.sink[(size_t)h] - max);
      for (int64_t c = 0; c < a.dim && !s.empty(); c++) y[c] /= sum;
    }
  }
  return o;
}

std::vector<double> of_reference(const attention &a) {
  std::vector<uint16_t> o((size_t)(a.m * a.heads * a.dim));
  const ls_tensor to = matrix(LS_BF16, a.m, a.heads * a.dim, o.data()), q = matrix(LS_BF16, a.m, a.heads * a.dim, a.q.data());
  const ls_tensor rows_a = matrix(LS_BF16, a.n_a, a.dim, a.rows_a.data()), idx = matrix(LS_I32, a.m, a.width, a.idx.data());
  const ls_tensor rows_b = matrix(LS_BF16, a.n_b, a.dim, a.n_b > 0 ? a.rows_b.data() : nullptr);
  ls_tensor sink = matrix(LS_F32, a.heads, 1, a.sink.data());
  sink.ndim = 1;
  ls_error err = {};
  cr_assert_eq(ls_ref_sparse_attn(&to, &q, &rows_a, &rows_b, &idx, &sink, &err), LS_OK, "%s", err.text);
  std::vector<double> wide;
  for (uint16_t v : o) wide.push_back(widen(true, v));
  return wide;
}

std::vector<float> bounds(const attention &a) {
  std::vector<float> bound((size_t)(a.m * a.heads * a.dim));
  std::vector<double> q, zeros(a.q.size()), sink(a.sink.begin(), a.sink.end());
  for (uint16_t v : a.q) q.push_back(widen(true, v));
  ls_stage_values q_values = {};
  q_values.value = q.data(), q_values.total = zeros.data(), q_values.type = LS_BF16, q_values.n = (int64_t)q.size();
  const ls_tensor held_a = matrix(LS_BF16, a.n_a, a.dim, a.rows_a.data());
  const ls_tensor held_b = matrix(LS_BF16, a.n_b, a.dim, a.n_b > 0 ? a.rows_b.data() : nullptr);
  ls_bound_rows rows_a = {}, rows_b = {};
  rows_a.n = a.n_a, rows_a.width = a.dim, rows_a.held = &held_a;
  rows_b.n = a.n_b, rows_b.width = a.dim, rows_b.held = &held_b;
  const ls_tensor to = matrix(LS_F32, a.m, a.heads * a.dim, bound.data()), idx = matrix(LS_I32, a.m, a.width, a.idx.data());
  ls_error err = {};
  cr_assert_eq(ls_bound_sparse(&to, &q_values, &rows_a, &rows_b, &idx, sink.data(), a.heads, &err), LS_OK, "%s", err.text);
  return bound;
}

/* The rule of docs/tolerances.md, 1 step and the bound. */
void expect_close(const attention &a, const std::vector<uint16_t> &found, const std::vector<double> &expected,
                  const std::vector<float> &bound, const char *what) {
  for (size_t i = 0; i < found.size(); i++) {
    const double f = widen(true, found[i]), e = expected[i], largest = fabs(f) > fabs(e) ? fabs(f) : fabs(e);
    if (isnan(e) && isnan(f)) continue;
    cr_assert(f == e || (isfinite(e) && fabs(f - e) <= ls_step_at(LS_BF16, largest) + (double)bound[i]),
              "m %ld heads %ld dim %ld width %ld, query %zu head %zu column %zu: %g, %s has %g, bound %g", (long)a.m, (long)a.heads,
              (long)a.dim, (long)a.width, i / (size_t)(a.heads * a.dim), i / (size_t)a.dim % (size_t)a.heads, i % (size_t)a.dim, f, what, e,
              (double)bound[i]);
  }
}

/* o_rot from the sparse_o that goes with it: the tail turned back within the rule of a rotation, the rest the same bytes. Nearly all have
 * the bits of double: a rounding left out would flip a third. */
void expect_turned_back(const attention &a, const results &r) {
  const auto freq = frequencies(a.rope_dim);
  int64_t compared = 0, equal = 0;
  for (int64_t i = 0; i < a.m * a.heads * a.dim; i += 2) {
    const int64_t column = i % a.dim, t = i / a.dim / a.heads, turned = (column - (a.dim - a.rope_dim)) / 2;
    const uint16_t *o = &r.sparse_o[(size_t)i], *rot = &r.o_rot[(size_t)i];
    if (column < a.dim - a.rope_dim) {
      cr_assert(rot[0] == o[0] && rot[1] == o[1], "column %ld does not turn", (long)column);
      continue;
    }
    const float angle = (float)(a.start_pos + t) * freq[(size_t)turned];
    const double c = cos((double)angle), s = -sin((double)angle), x = widen(true, o[0]), y = widen(true, o[1]);
    const double want[2] = {x * c - y * s, y * c + x * s};
    for (int e = 0; e < 2; e++) {
      const double f = widen(true, rot[e]);
      if (isnan(x) || isnan(y)) {
        cr_assert(isnan(f));
        continue;
      }
      cr_assert(fabs(f - want[e]) <= ls_step_at(LS_BF16, want[e]) + 8 * 0x1p-24 * (fabs(x) + fabs(y)),
                "query %ld column %ld: %g, expected %g", (long)t, (long)column + e, f, want[e]);
      compared++, equal += rot[e] == narrow(true, want[e]) || f == want[e];
    }
  }
  cr_assert(equal >= compared - 2 - compared / 100, "%ld of %ld have the bits of double", (long)equal, (long)compared);
}

results expect_right(const attention &a) {
  const results r = run(a);
  const auto bound = bounds(a);
  expect_close(a, r.sparse_o, in_double(a), bound, "double");
  expect_close(a, r.sparse_o, of_reference(a), bound, "the reference");
  expect_turned_back(a, r);
  return r;
}

bool all_nan(const attention &a, const std::vector<uint16_t> &o, int64_t t, int64_t h) {
  for (int64_t c = 0; c < a.dim; c++)
    if (!isnan(widen(true, o[(size_t)((t * a.heads + h) * a.dim + c)]))) return false;
  return true;
}

bool all_zero(const attention &a, const std::vector<uint16_t> &o, int64_t t) {
  for (int64_t i = t * a.heads * a.dim; i < (t + 1) * a.heads * a.dim; i++)
    if (widen(true, o[(size_t)i]) != 0) return false;
  return true;
}

/* One launch of each shape: entries in parts, 16 heads a block without parts, 64 heads a block. */
const struct { int64_t m, heads; } shapes[] = {{2, 3}, {64, 3}, {64, 33}};

}  // namespace

Test(gpu_sparse_attn, parts_fill_the_device_at_decode_and_are_one_at_prefill) {
  cr_assert_geq(ls_gpu_sparse_splits(1, 64, 640) * 4, 120); /* four groups of 16 heads */
  cr_assert_leq(ls_gpu_sparse_splits(1, 64, 640), 40);
  for (int64_t m : {64, 100, 4096}) cr_assert_eq(ls_gpu_sparse_splits(m, 64, 640), 1);
  for (int64_t m : {1, 2, 7, 33, 63, 64}) {
    for (int64_t heads : {1, 16, 20, 64}) {
      for (int64_t width : {1, 15, 16, 17, 128, 640, 2048, 5000}) {
        const int64_t parts = ls_gpu_sparse_splits(m, heads, width);
        cr_assert(parts >= 1 && parts <= 64 && parts <= (width + 15) / 16);
        cr_assert_eq(ls_gpu_sparse_bytes(m, heads, 128, width), parts == 1 ? 0 : (size_t)(m * parts * heads * (128 + 2) * 4));
      }
    }
  }
}

Test(gpu_sparse_attn, every_size_of_heads_dim_and_width_is_within_the_bound) {
  for (int64_t heads : {1, 3, 16, 20}) {
    for (int64_t dim : {32, 64, 96, 128}) {
      for (int64_t width : {1, 16, 37, 70}) expect_right(attention(2, heads, dim, width));
    }
  }
  expect_right(attention(1, 2, 512, 40));
  expect_right(attention(40, 16, 32, 300)); /* parts of several tiles */
}

Test(gpu_sparse_attn, without_parts_every_tile_of_either_shape_is_within_the_bound) {
  for (int64_t width : {1, 33, 64, 130}) {
    expect_right(attention(64, 5, 32, width));
    expect_right(attention(64, 33, 32, width));
  }
  expect_right(attention(65, 70, 64, 65)); /* a second, nearly empty group of heads */
}

Test(gpu_sparse_attn, the_shape_of_the_model_is_within_the_bound) {
  attention decode(1, 64, 512, 100);
  decode.rope_dim = 64, decode.start_pos = 12345;
  expect_right(decode);
  attention prefill(64, 64, 512, 130);
  for (int64_t t = 1; t < 63; t++) prefill.only(t, {});
  prefill.rope_dim = 64;
  expect_right(prefill);
}

Test(gpu_sparse_attn, rows_of_the_index_and_widths_of_the_tail_may_be_anything) {
  for (auto &shape : shapes) {
    attention a(shape.m, shape.heads, 64, 50);
    a.ld = 77;
    for (int64_t rope_dim : {0, 2, 4, 6, 34, 64}) {
      a.rope_dim = rope_dim, a.start_pos = 1000;
      expect_right(a);
    }
  }
}

Test(gpu_sparse_attn, parts_and_one_pass_agree_within_the_bound) {
  for (int64_t heads : {17, 40}) { /* the two shapes of one pass */
    attention all(64, heads, 64, 200), one = all;
    const auto together = run(all);
    cr_assert_eq(ls_gpu_sparse_splits(64, heads, 200), 1);
    cr_assert_gt(ls_gpu_sparse_splits(1, heads, 200), 4);
    const size_t row = (size_t)(heads * 64);
    for (int64_t t : {0, 2, 63}) {
      one.m = 1, one.start_pos = t;
      one.q.assign(all.q.begin() + (long)((size_t)t * row), all.q.begin() + (long)((size_t)(t + 1) * row));
      one.idx.assign(all.idx.begin() + t * 200, all.idx.begin() + (t + 1) * 200);
      std::vector<double> same;
      for (size_t i = 0; i < row; i++) same.push_back(widen(true, together.sparse_o[(size_t)t * row + i]));
      expect_close(one, run(one).sparse_o, same, bounds(one), "one pass");
    }
  }
}

Test(gpu_sparse_attn, a_sink_of_any_size_enters_the_denominator_once) {
  for (auto &shape : shapes) {
    attention a(shape.m, shape.heads, 32, 70);
    for (float sink : {0.0f, 30.0f, -30.0f, 300.0f, -INFINITY}) {
      for (auto &s : a.sink) s = sink;
      const auto r = expect_right(a);
      cr_assert_eq(all_zero(a, r.sparse_o, 0), sink == 300.0f);
    }
    /* equal scores: n rows of one value v and a sink of their score give v n / (n + 1), which counts the sink */
    for (auto &v : a.q) v = 0;
    for (auto &v : a.rows_a) v = narrow(true, 3.0);
    for (auto &s : a.sink) s = 0;
    for (int64_t t = 0; t < a.m; t++)
      for (int64_t j = 0; j < 70; j++) a.entry(t, j) = j % 35 == 0 ? 7 : -1; /* 2 rows, in two parts */
    for (uint16_t v : run(a).sparse_o) cr_assert_eq(widen(true, v), 2.0);
  }
}

Test(gpu_sparse_attn, empty_entries_and_tiles_are_stepped_over) {
  for (auto &shape : shapes) {
    attention a(shape.m, shape.heads, 32, 150);
    for (int64_t j = 0; j < 150; j++) {
      if (j < 70) a.entry(0, j) = -1;             /* the first tiles */
      if (j >= 20 && j < 140) a.entry(1, j) = -1; /* those in the middle */
    }
    expect_right(a);
    a.only(0, {});  /* nothing */
    a.only(1, {7}); /* one row */
    const auto r = expect_right(a);
    cr_assert(all_zero(a, r.sparse_o, 0) && all_zero(a, r.o_rot, 0) && !all_zero(a, r.sparse_o, 1));
    for (float sink : {-INFINITY, 300.0f, NAN}) {
      for (auto &s : a.sink) s = sink;
      const auto s = run(a);
      cr_assert(all_zero(a, s.sparse_o, 0) && all_zero(a, s.o_rot, 0), "whatever the sink");
    }
  }
}

Test(gpu_sparse_attn, either_row_set_alone_and_rows_named_twice_are_right) {
  for (auto &shape : shapes) {
    attention a(shape.m, shape.heads, 32, 40);
    auto from_a = a, from_b = a, twice = a;
    for (size_t i = 0; i < a.idx.size(); i++) {
      from_a.idx[i] = a.idx[i] < 0 ? -1 : a.idx[i] % 20;
      from_b.idx[i] = a.idx[i] < 0 ? -1 : 20 + a.idx[i] % 30;
      twice.idx[i] = (int32_t)(i % 3 * 19);
    }
    expect_right(from_b);
    expect_right(twice);
    from_a.n_b = 0, from_a.rows_b.clear(); /* no second row set at all */
    expect_right(from_a);
  }
}

Test(gpu_sparse_attn, probabilities_are_rounded_for_the_product_and_not_for_the_sum) {
  /* row 0 has the largest score of every tile and part, so all exponentials are known: y = (n_0 v_0 + n p' v) / (n_0 + n p), p' = bf16(p)
   */
  for (auto &shape : shapes) {
    attention a(shape.m, shape.heads, 64, 64);
    a.q = values(true, a.m * a.heads * 64, 8, 0.5, 1.0);
    for (auto &v : a.rows_a) v = narrow(true, widen(true, v) * 0.125);
    for (int64_t c = 0; c < 64; c++) a.row(0, c) = narrow(true, 0.1875);
    for (auto &s : a.sink) s = -INFINITY;
    for (int64_t t = 0; t < a.m; t++)
      for (int64_t j = 0; j < 64; j++) a.entry(t, j) = j % 16 == 0 ? 0 : 1 + (int32_t)(t % 19);
    const auto r = run(a);
    int64_t equal = 0;
    for (int64_t i = 0; i < a.m * a.heads; i++) {
      const uint16_t *v = a.row(1 + i / a.heads % 19);
      double gap = 0;
      for (int64_t c = 0; c < 64; c++) gap += widen(true, a.q[(size_t)(i * 64 + c)]) * (widen(true, v[c]) - 0.1875) / 8;
      cr_assert_lt(gap, 0);
      const double p = exp(gap), rounded = widen(true, narrow(true, p));
      for (int64_t c = 0; c < 64; c++)
        equal += r.sparse_o[(size_t)(i * 64 + c)] == narrow(true, (4 * 0.1875 + 60 * rounded * widen(true, v[c])) / (4 + 60 * p));
    }
    cr_assert_geq(equal * 50, a.m * a.heads * 64 * 49, "%ld of %ld", (long)equal, (long)(a.m * a.heads * 64));
  }
}

Test(gpu_sparse_attn, a_row_gives_one_score_wherever_it_stands) {
  /* one row, n times: equal probabilities, so each result is the row itself, and a score that depended on the place would show */
  for (auto &shape : shapes) {
    attention a(shape.m, shape.heads, 128, 64);
    for (auto &s : a.sink) s = -INFINITY;
    for (auto &i : a.idx) i = 23;
    const auto r = run(a);
    for (size_t i = 0; i < r.sparse_o.size(); i++) cr_assert_eq(r.sparse_o[i], a.row(23)[i % 128]);
  }
}

Test(gpu_sparse_attn, a_nan_in_a_selected_row_reaches_every_head_and_no_other_query) {
  for (auto &shape : shapes) {
    for (int64_t at : {0, 33, 69}) {
      attention a(shape.m, shape.heads, 32, 70);
      for (auto &i : a.idx) i = i == 23 ? -1 : i;
      for (int64_t i = 0; i < a.m * a.heads; i++) a.q[(size_t)(i * 32 + 9)] = 0; /* what q multiplies by 0 */
      a.row(23, 9) = NAN_BF16;
      const auto unnamed = run(a);
      for (uint16_t v : unnamed.sparse_o) cr_assert(isfinite(widen(true, v)), "nobody selected it");
      a.entry(1, at) = 23;
      const auto r = run(a);
      expect_close(a, r.sparse_o, of_reference(a), std::vector<float>(r.sparse_o.size(), 0.5f), "the reference");
      for (int64_t t = 0; t < a.m; t++)
        for (int64_t h = 0; h < a.heads; h++) cr_assert_eq(all_nan(a, r.sparse_o, t, h) && all_nan(a, r.o_rot, t, h), t == 1);
      for (size_t i = 0; i < r.sparse_o.size(); i++)
        if ((int64_t)i / 32 / a.heads != 1) cr_assert_eq(r.sparse_o[i], unnamed.sparse_o[i]);
    }
  }
}

Test(gpu_sparse_attn, a_nan_in_q_stays_in_its_head) {
  for (auto &shape : shapes) {
    attention a(shape.m, shape.heads, 32, 70);
    a.q[3] = NAN_BF16;
    const auto r = run(a);
    for (int64_t t = 0; t < a.m; t++)
      for (int64_t h = 0; h < a.heads; h++)
        for (int64_t c = 0; c < 32; c++)
          cr_assert_eq(isnan(widen(true, r.sparse_o[(size_t)((t * a.heads + h) * 32 + c)])), t == 0 && h == 0);
  }
}

Test(gpu_sparse_attn, infinite_values_follow_ieee_as_in_the_reference) {
  for (auto &shape : shapes) {
    for (uint16_t infinity : {INF_BF16, MINUS_INF_BF16}) {
      attention a(shape.m, shape.heads, 32, 70);
      for (auto &i : a.idx) i = i == 23 ? -1 : i;
      for (int64_t i = 0; i < a.m * a.heads; i++)
        a.q[(size_t)(i * 32 + 9)] = narrow(true, i % 2 ? 1.0 : -1.0); /* half score +inf, half -inf */
      a.row(23, 9) = infinity;
      a.entry(0, 40) = 23;
      a.only(1, {23, -1, 23}); /* -inf alone: NaN, not zeros */
      const auto r = run(a);
      const std::vector<float> loose(r.sparse_o.size(), 0.5f); /* which are NaN is what counts here */
      expect_close(a, r.sparse_o, of_reference(a), loose, "the reference");
      for (int64_t h = 0; h < a.heads; h++) {
        const bool plus = ((h % 2 == 1) == (infinity == INF_BF16));
        cr_assert_eq(all_nan(a, r.sparse_o, 0, h), plus);
        cr_assert(all_nan(a, r.sparse_o, 1, h));
      }
    }
  }
}

Test(gpu_sparse_attn, outputs_that_are_not_wanted_are_not_written) {
  for (auto &shape : shapes) {
    attention a(shape.m, shape.heads, 32, 40);
    const auto both = run(a), o = run(a, true, false), rot = run(a, false, true);
    const std::vector<uint16_t> untouched(both.sparse_o.size(), 0x4242);
    cr_assert(o.sparse_o == both.sparse_o && o.o_rot == untouched);
    cr_assert(rot.o_rot == both.o_rot && rot.sparse_o == untouched);
  }
}

Test(gpu_sparse_attn, the_order_of_threads_and_a_second_run_change_no_byte) {
  for (auto &shape : shapes) {
    attention a(shape.m, shape.heads, 96, 75);
    const auto first = run(a), again = run(a);
    cr_assert(first.sparse_o == again.sparse_o && first.o_rot == again.o_rot);
    for (uint64_t seed = 1; seed <= 5; seed++) {
      lsg_set_schedule(seed);
      const auto r = run(a);
      lsg_set_schedule(0);
      cr_assert(r.sparse_o == first.sparse_o && r.o_rot == first.o_rot, "schedule %ld", (long)seed);
    }
  }
}
