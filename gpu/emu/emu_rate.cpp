#include "emu_rate.h"

#include <algorithm>

#include "../../core/ls_clock.h"
#include "gpu_backend.h"
#include "gpu_device.h"

namespace LSG_NS {

namespace {

enum { MMA_THREADS = 256, MMA_TURNS = 64, MMA_CHAINS = 4, MMA_BLOCKS = 128, EMPTY_THREADS = 128, EMPTY_BLOCKS = 4096, RUNS = 3 };
const double mma_flop = 2.0 * 16 * 8 * 16;

/* Four products in turn, as the linear kernels have them: what one adds to, the next does not wait for. */
LSG_KERNEL(MMA_THREADS) void mma_rate_kernel(float *y) {
  float sum[MMA_CHAINS][4] = {};
  const uint32_t a[4] = {0x3F803F80u, 0x3F803F80u, 0x3F803F80u, 0x3F803F80u}, b[2] = {0x3F803F80u, 0x3F803F80u}; /* ones */
  for (int turn = 0; turn < MMA_TURNS; turn++) {
    LSG_UNROLL
    for (int chain = 0; chain < MMA_CHAINS; chain++) lsg_mma_bf16(sum[chain], a, b);
  }
  float total = 0;
  for (int chain = 0; chain < MMA_CHAINS; chain++) total += sum[chain][0];
  y[lsg_block_x() * MMA_THREADS + lsg_thread()] = total;
}

LSG_KERNEL(EMPTY_THREADS) void barrier_rate_kernel(float *y) {
  lsg_barrier();
  if (lsg_thread() == 0) y[lsg_block_x()] = 1;
}

}  // namespace

/* The least time of a few launches; 0 where one failed. */
template <class launch_t>
static double fastest(const launch_t &launch, lsg_stream stream) {
  double least = 0;
  for (int run = 0; run < RUNS; run++) {
    const double started = ls_clock_seconds();
    if (launch() != LSG_OK || lsg_sync(stream) != LSG_OK) return 0;
    const double seconds = ls_clock_seconds() - started;
    least = run == 0 ? seconds : std::min(least, seconds);
  }
  return least;
}

/* What the kernels left is what they were to compute: a rate of nothing is none. */
static bool all_are(const float *y, int64_t n, float expected) {
  return std::all_of(y, y + n, [&](float v) { return v == expected; });
}

}  // namespace LSG_NS

extern "C" ls_status ls_emu_measure(ls_emu_rates *rates, ls_error *err) {
  using namespace LSG_NS;
  lsg_stream stream = nullptr;
  float *y = nullptr;
  double mma = 0, empty = 0;
  bool right = true;
  const int64_t n = std::max<int64_t>(MMA_BLOCKS * MMA_THREADS, EMPTY_BLOCKS);
  if (lsg_open(0) == LSG_OK && lsg_stream_new(&stream) == LSG_OK &&
      lsg_alloc(reinterpret_cast<void **>(&y), (size_t)n * sizeof *y, "rates") == LSG_OK) {
    mma = fastest([&] { return LSG_LAUNCH(mma_rate_kernel, lsg_grid(MMA_BLOCKS), MMA_THREADS, 0, stream, y); }, stream);
    right = all_are(y, MMA_BLOCKS * MMA_THREADS, 16.0f * MMA_TURNS * MMA_CHAINS);
    empty = fastest([&] { return LSG_LAUNCH(barrier_rate_kernel, lsg_grid(EMPTY_BLOCKS), EMPTY_THREADS, 0, stream, y); }, stream);
    right = right && all_are(y, EMPTY_BLOCKS, 1);
  }
  lsg_free(y);
  if (stream != nullptr) lsg_stream_free(stream);
  if (!(mma > 0 && empty > 0)) return ls_fail(err, LS_INTERNAL, "%s", lsg_error_text());
  if (!right) return ls_fail(err, LS_INTERNAL, "the emulator's rate: a kernel left another result than it was to compute");
  const int warps = MMA_BLOCKS * MMA_THREADS / 32;
  *rates = {mma_flop * warps * MMA_TURNS * MMA_CHAINS / mma, EMPTY_BLOCKS / empty, EMPTY_THREADS};
  return LS_OK;
}
