#include "bound_grid.h"

#include <math.h>

#include "../core/ls_numeric.h"

int64_t ls_grid_block(ls_grid grid) { return grid == LS_GRID_FP4_E4M3 ? 16 : 32; }

/* ref/ref_quant.c holds these formulas too, on purpose: a bound must not come from the code it judges. */
static float scale_of(ls_grid grid, float amax) {
  switch (grid) {
    case LS_GRID_FP8:
      return ls_pow2ceil(fmaxf(amax, 1e-4f) * (float)(1.0 / 448));
    case LS_GRID_FP4:
      return ls_pow2ceil(fmaxf(amax, 6 * 0x1p-126f) * (float)(1.0 / 6));
    case LS_GRID_FP4_E4M3:
      break;
  }
  return ls_e4m3_to_f32(ls_f32_to_e4m3(fmaxf(amax, 6 * 0x1p-9f) / 6.0f));
}

static float next_scale(ls_grid grid, float scale) {
  return grid == LS_GRID_FP4_E4M3 ? ls_e4m3_to_f32((uint8_t)(ls_f32_to_e4m3(scale) + 1)) : 2 * scale;
}

/* The clamp of layers.md is the saturation of both codes, and the result is one that bf16 holds. */
static float round_trip(ls_grid grid, float x, float scale) {
  float v = x / scale;
  float code = grid == LS_GRID_FP8 ? ls_e4m3_to_f32(ls_f32_to_e4m3(v)) : ls_e2m1_to_f32(ls_f32_to_e2m1(v));
  return code * scale;
}

void ls_bound_grid(float *bound, const double *x, const double *total, int64_t n, ls_grid grid) {
  double least = 0, most = 0; /* of the largest magnitude */
  bool finite = true, may_be_finite = true, moves = false;
  for (int64_t i = 0; i < n; i++) {
    double v = fabs(x[i]);
    least = fmax(least, v - total[i]);
    most = fmax(most, v + total[i]);
    finite = finite && isfinite(v);
    may_be_finite = may_be_finite && isfinite((float)(v + total[i]));
    moves = moves || !(total[i] == 0);
  }
  for (int64_t i = 0; i < n; i++) bound[i] = finite && !may_be_finite ? INFINITY : 0;
  if (!finite || !may_be_finite || !moves) return;

  /* Conversion to float32, nearest, keeps the order: a float32 that lies in an interval of doubles lies between its converted ends. */
  const float last = scale_of(grid, (float)most);
  for (int64_t i = 0; i < n; i++) {
    double low = INFINITY, high = -INFINITY;
    for (float scale = scale_of(grid, (float)least);; scale = next_scale(grid, scale)) {
      low = fmin(low, (double)round_trip(grid, (float)(x[i] - total[i]), scale));
      high = fmax(high, (double)round_trip(grid, (float)(x[i] + total[i]), scale));
      if (!(scale < last)) break;
    }
    bound[i] = (float)(high - low);
  }
}
