/* emu_gemm: lsg_gemm through the project's ls_gemm: widened to float32, multiplied, rounded once. It is the reference's own product, so a
 * comparison of the two proves nothing: the path reports such a stage as shared. */
#include <stdint.h>

#include <algorithm>
#include <new>
#include <vector>

#include "../../core/ls_gemm.h"
#include "../../core/ls_parallel.h"
#include "emu_stream.h"

namespace LSG_NS {

struct lsg_gemm_s {
  std::vector<float> x, w, y; /* grown to the largest product so far; W in pieces of W_PIECE rows */
};

namespace {

enum { W_PIECE = 512 };

struct rows_job {
  bool bf16;
  float *wide;
  const uint16_t *from;
  uint16_t *to;
  int64_t columns, ld_wide, ld;
};

void widen_row(void *arg, int64_t r) {
  auto *j = static_cast<rows_job *>(arg);
  float *out = j->wide + r * j->ld_wide;
  const uint16_t *in = j->from + r * j->ld;
  if (j->bf16)
    for (int64_t i = 0; i < j->columns; i++) out[i] = lsg_bf16_to_f32(in[i]);
  else
    for (int64_t i = 0; i < j->columns; i++) out[i] = lsg_f16_to_f32(in[i]);
}

void round_row(void *arg, int64_t r) {
  auto *j = static_cast<rows_job *>(arg);
  const float *in = j->wide + r * j->ld_wide;
  uint16_t *out = j->to + r * j->ld;
  if (j->bf16)
    for (int64_t i = 0; i < j->columns; i++) out[i] = lsg_f32_to_bf16(in[i]);
  else
    for (int64_t i = 0; i < j->columns; i++) out[i] = lsg_f32_to_f16(in[i]);
}

size_t matrix_bytes(int64_t rows, int64_t columns, int64_t ld) { return (size_t)((rows - 1) * ld + columns) * sizeof(uint16_t); }

class gemm_op final : public emu_op {
 public:
  lsg_gemm gemm;
  bool bf16;
  uint16_t *y;
  const uint16_t *x, *w;
  int64_t rows, n, k, ldy, ldx, ldw;

  lsg_status check() const {
    lsg_status status = emu_expect_device("lsg_gemm_run, y", y, matrix_bytes(rows, n, ldy));
    if (status == LSG_OK) status = emu_expect_device("lsg_gemm_run, x", x, matrix_bytes(rows, k, ldx));
    if (status == LSG_OK) status = emu_expect_device("lsg_gemm_run, w", w, matrix_bytes(n, k, ldw));
    return status;
  }

  bool run(char *text) override {
    if (check() != LSG_OK) {
      snprintf(text, EMU_TEXT_BYTES, "%s", lsg_error_text());
      return false;
    }
    const int64_t piece = std::min<int64_t>(n, W_PIECE);
    try {
      gemm->x.resize(std::max(gemm->x.size(), (size_t)(rows * k)));
      gemm->w.resize(std::max(gemm->w.size(), (size_t)(piece * k)));
      gemm->y.resize(std::max(gemm->y.size(), (size_t)(rows * piece)));
    } catch (const std::bad_alloc &) {
      snprintf(text, EMU_TEXT_BYTES, "emu: lsg_gemm_run: no memory for %lld x %lld x %lld in float32", (long long)rows, (long long)n,
               (long long)k);
      return false;
    }
    rows_job wide_x = {bf16, gemm->x.data(), x, nullptr, k, k, ldx};
    ls_parallel_for(rows, widen_row, &wide_x);
    for (int64_t first = 0; first < n; first += piece) {
      const int64_t channels = std::min(piece, n - first);
      rows_job wide_w = {bf16, gemm->w.data(), w + first * ldw, nullptr, k, k, ldw};
      ls_parallel_for(channels, widen_row, &wide_w);
      ls_gemm_f32(gemm->y.data(), gemm->x.data(), gemm->w.data(), rows, channels, k, channels, k, k);
      rows_job narrow_y = {bf16, gemm->y.data(), nullptr, y + first, channels, channels, ldy};
      ls_parallel_for(rows, round_row, &narrow_y);
    }
    return true;
  }
};

}  // namespace

lsg_status lsg_gemm_new(lsg_gemm *gemm) {
  *gemm = new (std::nothrow) lsg_gemm_s();
  return *gemm != nullptr ? LSG_OK : emu_out_of_memory("a product");
}

lsg_status lsg_gemm_run(lsg_gemm gemm, bool bf16, uint16_t *y, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t n, int64_t k,
                        int64_t ldy, int64_t ldx, int64_t ldw, lsg_stream stream) {
  if (rows < 1 || n < 1 || k < 1 || ldy < n || ldx < k || ldw < k)
    return emu_error(LSG_FAILED, "emu: lsg_gemm_run: rows %lld, n %lld, k %lld with leading dimensions %lld, %lld, %lld", (long long)rows,
                     (long long)n, (long long)k, (long long)ldy, (long long)ldx, (long long)ldw);
  std::unique_ptr<gemm_op> op(new (std::nothrow) gemm_op());
  if (!op) return emu_out_of_memory("a product");
  op->gemm = gemm, op->bf16 = bf16, op->y = y, op->x = x, op->w = w;
  op->rows = rows, op->n = n, op->k = k, op->ldy = ldy, op->ldx = ldx, op->ldw = ldw;
  lsg_status status = op->check();
  return status == LSG_OK ? emu_enqueue(stream, std::move(op)) : status;
}

lsg_status lsg_gemm_run_groups(lsg_gemm gemm, bool bf16, uint16_t *y, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t groups,
                               int64_t n, int64_t k, lsg_stream stream) {
  lsg_status status = LSG_OK;
  for (int64_t g = 0; g < groups && status == LSG_OK; g++)
    status = lsg_gemm_run(gemm, bf16, y + g * n, x + g * k, w + g * n * k, rows, n, k, groups * n, groups * k, k, stream);
  return status;
}

void lsg_gemm_free(lsg_gemm gemm) { delete gemm; }

}  // namespace LSG_NS
