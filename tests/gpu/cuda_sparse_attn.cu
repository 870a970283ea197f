/* cuda_sparse_attn: on a device, the sparse attention of many queries by wgmma against the portable kernels on the same queries a few at a
 * time, within the bound of sparse_o. Ends 77 (skipped) without a device, or where that kernel does not run. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "core/ls_numeric.h"
#include "core/ls_random.h"
#include "cuda_buffer.h"
#include "gpu/gpu_attn_rows.h"
#include "gpu/gpu_sparse_attn.h"
#include "layers/bound_sparse_attn.h"

using namespace LSG_NS;

enum { DIM = 512, ROPE_DIM = 64, FEW = 60 }; /* FEW: queries that the portable kernels take together */
static const uint16_t NAN_BF16 = 0x7FC0, INF_BF16 = 0x7F80;

typedef struct {
  int64_t m, heads, width, ld, n_a, n_b, start_pos;
  std::vector<uint16_t> q, rows_a, rows_b;
  std::vector<int32_t> idx; /* [m, ld] */
  std::vector<float> sink, freq;
} attention;

static std::vector<uint16_t> values(int64_t count, uint64_t seed, double spread) {
  std::vector<uint16_t> v;
  for (int64_t i = 0; i < count; i++) v.push_back(ls_f64_to_bf16(ls_generated_at(seed, (uint64_t)i, spread, 0.0)));
  return v;
}

/* empty: the share of entries that are -1. What lies between two queries' lists would fault. */
static attention make(int64_t m, int64_t heads, int64_t width, double empty, int64_t start_pos) {
  attention a = {
      m,  heads, width, width + 3, 50, 300, start_pos, values(m * heads * DIM, 1, 2.0), values(50 * DIM, 2, 2.0), values(300 * DIM, 3, 2.0),
      {}, {},    {}};
  a.idx.assign((size_t)(m * a.ld), 0x7FFFFFFF);
  for (int64_t i = 0; i < m * width; i++) {
    const double r = ls_generated_at(4, (uint64_t)i, 0.5, 0.5);
    a.idx[(size_t)(i / width * a.ld + i % width)] = r < empty ? -1 : (int32_t)((r - empty) / (1.0 - empty) * 349.0);
  }
  for (int64_t h = 0; h < heads; h++) a.sink.push_back((float)ls_generated_at(5, (uint64_t)h, 2.0, 0.0));
  for (int64_t i = 0; i < ROPE_DIM / 2; i++) a.freq.push_back((float)pow(1.6e5, -(double)i / (ROPE_DIM / 2)));
  return a;
}

static void only(attention *a, int64_t t, int64_t from, int64_t to) { /* the list's other entries become -1 */
  for (int64_t j = 0; j < a->width; j++)
    if (j < from || j >= to) a->idx[(size_t)(t * a->ld + j)] = -1;
}

typedef struct {
  std::vector<uint16_t> sparse_o, o_rot;
} results;

/* few: in launches of FEW queries. */
static results run(const attention &a, bool few, lsg_stream stream) {
  const int64_t at_once = few ? (int64_t)FEW : a.m, row = a.heads * DIM;
  buffer<uint16_t> q(a.q, "q", stream), rows_a(a.rows_a, "rows_a", stream), rows_b(a.rows_b, "rows_b", stream);
  buffer<uint16_t> sparse_o(a.q.size(), "sparse_o"), o_rot(a.q.size(), "o_rot");
  buffer<int32_t> idx(a.idx, "idx", stream);
  buffer<float> sink(a.sink, "sink", stream), freq(a.freq, "freq", stream);
  buffer<ls_gpu_attn_step> step(1, "step");
  size_t bytes = 1; /* of the launch that takes most: few queries are split into parts */
  for (int64_t rest : {at_once, a.m % at_once}) {
    const size_t wanted = rest > 0 ? ls_gpu_sparse_bytes(rest, a.heads, DIM, a.width) : 0;
    bytes = wanted > bytes ? wanted : bytes;
  }
  buffer<char> scratch(bytes, "scratch");
  need(lsg_fill(sparse_o.data, 0xFF, a.q.size() * sizeof(uint16_t), stream));
  need(lsg_fill(o_rot.data, 0xFF, a.q.size() * sizeof(uint16_t), stream));
  for (int64_t first = 0; first < a.m; first += at_once) {
    ls_gpu_attn_step numbers;
    memset(&numbers, 0, sizeof numbers);
    numbers.start_pos = a.start_pos + first, numbers.ratio = 1, numbers.n = a.n_b, numbers.rows_a = a.n_a;
    numbers.compress_cache = rows_b.data;
    need(lsg_upload(step.data, &numbers, sizeof numbers, stream));
    need(ls_gpu_sparse_attn(sparse_o.data + first * row, o_rot.data + first * row, q.data + first * row, rows_a.data,
                            idx.data + first * a.ld, a.ld, a.width, sink.data, freq.data, a.m - first < at_once ? a.m - first : at_once,
                            a.heads, DIM, ROPE_DIM, scratch.data, step.data, stream));
    need(lsg_sync(stream));
  }
  return {sparse_o.get(stream), o_rot.get(stream)};
}

static ls_tensor matrix(ls_dtype type, int64_t rows, int64_t columns, const void *data) {
  ls_tensor t;
  memset(&t, 0, sizeof t);
  t.dtype = type, t.ndim = 2, t.dim[0] = rows, t.dim[1] = columns, t.stride[0] = columns, t.stride[1] = 1;
  t.data = const_cast<void *>(data);
  return t;
}

static std::vector<float> bounds(const attention &a) {
  std::vector<float> bound(a.q.size());
  std::vector<double> q, zeros(a.q.size()), sink(a.sink.begin(), a.sink.end());
  for (uint16_t v : a.q) q.push_back(ls_bf16_to_f32(v));
  ls_stage_values held;
  memset(&held, 0, sizeof held);
  held.value = q.data(), held.total = zeros.data(), held.type = LS_BF16, held.n = (int64_t)q.size();
  const ls_tensor held_a = matrix(LS_BF16, a.n_a, DIM, a.rows_a.data()), held_b = matrix(LS_BF16, a.n_b, DIM, a.rows_b.data());
  ls_bound_rows rows_a, rows_b;
  memset(&rows_a, 0, sizeof rows_a);
  memset(&rows_b, 0, sizeof rows_b);
  rows_a.n = a.n_a, rows_a.width = DIM, rows_a.held = &held_a;
  rows_b.n = a.n_b, rows_b.width = DIM, rows_b.held = &held_b;
  const ls_tensor to = matrix(LS_F32, a.m, a.heads * DIM, bound.data());
  ls_tensor idx = matrix(LS_I32, a.m, a.width, a.idx.data());
  idx.stride[0] = a.ld;
  ls_error err;
  memset(&err, 0, sizeof err);
  if (ls_bound_sparse(&to, &held, &rows_a, &rows_b, &idx, sink.data(), a.heads, &err) != LS_OK) {
    fprintf(stderr, "cuda_sparse_attn: %s\n", err.text);
    exit(1);
  }
  return bound;
}

static int64_t differing(const std::vector<uint16_t> &a, const std::vector<uint16_t> &b) {
  int64_t n = 0;
  for (size_t i = 0; i < a.size(); i++) n += a[i] != b[i];
  return n;
}

static bool report(bool ok, const char *name, const attention &a, int64_t bad) {
  if (!ok)
    printf("cuda_sparse_attn: %s, m %lld heads %lld width %lld: %lld elements are off\n", name, (long long)a.m, (long long)a.heads,
           (long long)a.width, (long long)bad);
  return ok;
}

/* within: elements of sparse_o that differ from the portable kernels' by no more than the bound and a step; NaN in the same places. */
static bool check(const char *name, const attention &a, lsg_stream stream) {
  const results many = run(a, false, stream), few = run(a, true, stream);
  const std::vector<float> bound = bounds(a);
  int64_t within = 0;
  for (size_t i = 0; i < bound.size(); i++) {
    const double f = ls_bf16_to_f32(many.sparse_o[i]), e = ls_bf16_to_f32(few.sparse_o[i]);
    const double step = ls_step_at(LS_BF16, fabs(f) > fabs(e) ? fabs(f) : fabs(e));
    within += f == e || (isnan(f) && isnan(e)) || fabs(f - e) <= step + (double)bound[i];
  }
  bool ok = report(within == (int64_t)bound.size(), name, a, (int64_t)bound.size() - within);

  /* the rotation: that of the kernel that does nothing else, save where a product and a sum were contracted otherwise */
  buffer<uint16_t> x(many.sparse_o, "sparse_o", stream), y(a.q.size(), "y");
  buffer<float> freq(a.freq, "freq", stream);
  buffer<ls_gpu_attn_step> step(1, "step");
  ls_gpu_attn_step numbers;
  memset(&numbers, 0, sizeof numbers);
  numbers.start_pos = a.start_pos;
  need(lsg_upload(step.data, &numbers, sizeof numbers, stream));
  need(ls_gpu_rope_heads(y.data, x.data, freq.data, a.m, a.heads, DIM, ROPE_DIM, true, step.data, stream));
  const std::vector<uint16_t> rotated = y.get(stream);
  int64_t off = 0;
  for (size_t i = 0; i < rotated.size(); i++) {
    const double f = ls_bf16_to_f32(many.o_rot[i]), e = ls_bf16_to_f32(rotated[i]);
    const double size = fabs((double)ls_bf16_to_f32(many.sparse_o[i])) + fabs((double)ls_bf16_to_f32(many.sparse_o[i ^ 1]));
    const bool turns = i % DIM >= DIM - ROPE_DIM;
    off += turns ? !(f == e || (isnan(f) && isnan(e)) || fabs(f - e) <= ls_step_at(LS_BF16, e) + 8 * 0x1p-24 * size)
                 : many.o_rot[i] != many.sparse_o[i];
  }
  ok = report(off == 0, "o_rot", a, off) && ok;

  /* a query's bytes do not depend on how many there are with it, nor on the run */
  attention less = a;
  less.m = a.m - 1, less.q.resize((size_t)(less.m * a.heads * DIM)), less.idx.resize((size_t)(less.m * a.ld));
  results most = many;
  most.o_rot.resize(less.q.size());
  off = less.m < 64 ? 0 : differing(run(less, false, stream).o_rot, most.o_rot);
  return report(off == 0, "one query less", a, off) && ok;
}

int main(void) {
  lsg_stream stream;
  if (lsg_open(0) != LSG_OK || strcmp(ls_gpu_sparse_kernel(64, 64, DIM, ROPE_DIM, 640), "wgmma") != 0) {
    printf("cuda_sparse_attn: skipped: no device of compute capability 9.0, a build for another, or LOCKSTEP_PORTABLE\n");
    return 77;
  }
  need(lsg_stream_new(&stream));
  bool ok = true;
  for (int64_t width : {1, 63, 64, 65, 128, 193, 640, 1100})
    ok = check("lists of any length", make(65, 64, width, width % 2 ? 0.2 : 0.0, 1000003), stream) && ok;
  ok = check("three groups of heads", make(133, 192, 100, 0.5, 0), stream) && ok;

  attention a = make(301, 64, 200, 0.3, 0); /* more queries than multiprocessors: of lists from empty to full, in turn */
  for (int64_t t = 0; t < a.m; t++) only(&a, t, t % 7 * 20, t % 7 * 20 + t * 37 % 201);
  ok = check("lists of all kinds", a, stream) && ok;
  for (int64_t t = 0; t < a.m; t++) only(&a, t, 0, 0);
  ok = check("nothing named", a, stream) && ok;

  attention b = make(150, 64, 200, 0.3, 0);
  b.rows_b[7 * DIM + 100] = NAN_BF16;
  b.rows_a[3 * DIM + 5] = INF_BF16;
  ok = check("NaN and infinite rows", b, stream) && ok;
  for (auto &s : b.sink) s = -INFINITY;
  b.sink[5] = 300.0f, b.sink[6] = NAN;
  ok = check("sinks", b, stream) && ok;
  lsg_stream_free(stream);
  printf("cuda_sparse_attn: %s\n", ok ? "ok" : "FAILED");
  return ok ? 0 : 1;
}
