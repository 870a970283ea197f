/* cuda_index_score: on a device, the index scores of many queries by wgmma against the portable kernel on the same queries a few at a time.
 * Queries and keys are fp4 grid values, as the layer makes them: their dot products are exact in any order, so all bits must be the same.
 * Ends 77 (skipped) without a device, or where that kernel does not run. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <vector>

#include "core/ls_numeric.h"
#include "core/ls_random.h"
#include "cuda_buffer.h"
#include "gpu/gpu_indexer.h"

using namespace LSG_NS;

enum { HEADS = 32, WIDTH = 128, FEW = 48 }; /* FEW: queries that the portable kernel takes together */

/* Rows of WIDTH grid values, each 32 of them times a power of two of their own. Every `odd`-th is NaN or infinite; 0: none. */
static std::vector<uint16_t> grid(int64_t rows, uint64_t seed, uint64_t odd) {
  std::vector<uint16_t> v;
  for (int64_t i = 0; i < rows * WIDTH; i++) {
    const uint64_t block = (uint64_t)i / 32;
    const float scale = (float)(1 << (block * 2654435761u >> 20 & 3)) / 4.0f;
    const uint8_t code = (uint8_t)(ls_generated_at(seed, (uint64_t)i, 8.0, 8.0)) & 15;
    v.push_back(ls_f32_to_bf16(ls_e2m1_to_f32(code) * scale));
    if (odd > 0 && (uint64_t)i % odd == odd / 2) v.back() = (uint64_t)i / odd % 2 ? 0x7FC0 : 0x7F80;
  }
  return v;
}

/* The same, or two NaN. */
static bool same(uint16_t a, uint16_t b) { return a == b || ((a & 0x7FFF) > 0x7F80 && (b & 0x7FFF) > 0x7F80); }

static bool check(int64_t m, int64_t n_most, int64_t ratio, uint64_t odd, lsg_stream stream) {
  std::vector<uint16_t> weights;
  for (int64_t i = 0; i < m * HEADS; i++) weights.push_back(ls_f64_to_bf16(ls_generated_at(3, (uint64_t)i, 0.02, 0.0)));
  const buffer<uint16_t> q(grid(m * HEADS, 1, odd), "q", stream), keys(grid(n_most, 2, odd > 0 ? odd * 17 : 0), "keys", stream);
  const buffer<uint16_t> w(weights, "w", stream), whole((size_t)(m * n_most), "whole"), few(whole.count, "few");
  ls_gpu_attn_step step;
  memset(&step, 0, sizeof step);
  step.ratio = ratio, step.n = m / ratio, step.rows_a = m, step.index_cache = keys.data;
  const buffer<ls_gpu_attn_step> there(1, "step");
  need(lsg_fill(whole.data, 0x55, whole.count * sizeof(uint16_t), stream));
  need(lsg_fill(few.data, 0x55, few.count * sizeof(uint16_t), stream));
  need(lsg_upload(there.data, &step, sizeof step, stream));
  need(ls_gpu_index_score(whole.data, q.data, w.data, m, HEADS, WIDTH, n_most, there.data, stream));
  for (int64_t first = 0; first < m; first += FEW) {
    step.start_pos = first; /* the same queries see the same keys */
    need(lsg_upload(there.data, &step, sizeof step, stream));
    need(ls_gpu_index_score(few.data + first * n_most, q.data + first * HEADS * WIDTH, w.data + first * HEADS,
                            m - first < FEW ? m - first : (int64_t)FEW, HEADS, WIDTH, n_most, there.data, stream));
  }
  const std::vector<uint16_t> found = whole.get(stream), expected = few.get(stream);
  int64_t wrong = 0, seen = 0, zeros = 0, not_finite = 0;
  for (size_t i = 0; i < found.size(); i++) {
    wrong += !same(found[i], expected[i]);
    seen += expected[i] != 0xFF80;
    zeros += expected[i] == 0;
    not_finite += expected[i] != 0xFF80 && (expected[i] & 0x7F80) == 0x7F80;
  }
  printf("cuda_index_score: m %lld, n %lld, ratio %lld: %lld of %zu scores differ (%lld visible, %lld zeros, %lld not finite)\n",
         (long long)m, (long long)n_most, (long long)ratio, (long long)wrong, found.size(), (long long)seen, (long long)zeros,
         (long long)not_finite);
  return wrong == 0 && 2 * zeros < seen && (odd == 0 || not_finite > 0);
}

int main() {
  lsg_stream stream;
  if (lsg_open(0) != LSG_OK) {
    printf("cuda_index_score: skipped: %s\n", lsg_error_text());
    return 77;
  }
  need(lsg_stream_new(&stream));
  if (strcmp(ls_gpu_index_score_kernel(2048, HEADS, WIDTH, 2048), "wgmma") != 0) {
    printf("cuda_index_score: skipped: no kernel of ours for so many queries on this device\n");
    return 77;
  }
  bool all = check(2048, 2048, 1, 0, stream);
  all = check(2051, 2052, 1, 100003, stream) && all;
  all = check(1030, 516, 2, 0, stream) && all; /* rows that no 16 bytes divide */
  all = check(1030, 514, 2, 50021, stream) && all;
  all = check(300, 1024, 1, 0, stream) && all; /* tiles that nobody sees */
  all = check(64, 32, 2, 0, stream) && all;
  lsg_stream_free(stream);
  printf("cuda_index_score: %s\n", all ? "the same bits" : "BITS DIFFER");
  return all ? 0 : 1;
}
