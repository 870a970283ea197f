#include "bound_pool.h"

#include <math.h>

#include "bound_common.h"

double ls_bound_pool(const double *k, const double *s, const double *off_k, const double *off_s, int64_t n) {
  double highest = -INFINITY, largest = 0; /* score, magnitude of a score */
  for (int64_t i = 0; i < n; i++) {
    if (s[i] == -INFINITY) continue;
    highest = s[i] > highest || s[i] != s[i] ? s[i] : highest;
    largest = fmax(largest, fabs(s[i]));
  }
  double sum = 0, y = 0, magnitude = 0;
  for (int64_t i = 0; i < n; i++) {
    double e = exp(s[i] - highest);
    sum += e;
    y += e * k[i];
    magnitude += e * fabs(k[i]);
  }
  y /= sum;
  magnitude /= sum;
  double spread = 0, by_score = 0, mean_off = 0, by_rows = 0, most_off = 0, least = INFINITY, most = -INFINITY;
  for (int64_t i = 0; i < n; i++) {
    if (s[i] == -INFINITY) continue;
    double p = exp(s[i] - highest) / sum, off = off_s[i] + 6 * LS_UNIT * (fabs(s[i]) + largest);
    spread += p * fabs(k[i] - y);
    by_score += p * off * fabs(k[i] - y);
    mean_off += p * off;
    by_rows += p * off_k[i];
    most_off = fmax(most_off, off);
    least = fmin(least, k[i] - off_k[i]);
    most = fmax(most, k[i] + off_k[i]);
  }
  double grow = exp(2 * most_off), moved = grow * (by_score + mean_off * (grow - 1) * spread + by_rows);
  double farthest = fmax(most - y, y - least);
  return (moved <= farthest ? moved : farthest) + (2 * (double)n + 16) * LS_UNIT * magnitude + 0 * y; /* a NaN stays one */
}
