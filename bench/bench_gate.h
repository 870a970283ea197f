/* bench_gate: whether a figure is worse than another.
 *
 * The unit of evidence is the round: the median of its samples. Samples of one round share clocks, pages and neighbours, and a test that
 * took each for a witness of its own would be sure of differences that the next round does not have. A regression needs all of
 *   - an effect beyond the threshold: median of the new rounds over median of the old, minus 1;
 *   - an effect beyond the noise of the same build: the larger of what random halves of the old rounds, and of the new, come apart by in 19
 *     of 20 cases (an A/A comparison made of the rounds at hand);
 *   - a rank test (Mann-Whitney, two-sided) with p < 0.01.
 * With fewer than 5 rounds a side the rank test cannot come to that: not measured. */
#ifndef BENCH_GATE_H
#define BENCH_GATE_H

#include "bench_record.h"

typedef enum { BENCH_SAME, BENCH_FASTER, BENCH_REGRESSION, BENCH_UNDECIDED, BENCH_VERDICTS } bench_verdict;

enum { BENCH_LEAST_ROUNDS = 5 };

typedef struct {
  char name[BENCH_RECORD_NAME];
  bench_verdict verdict;
  double before, after; /* seconds */
  double effect, noise, p;
  int rounds_before, rounds_after;
  char why[256]; /* of BENCH_UNDECIDED: what was not measured */
} bench_comparison;

/* before, after: records of one name each, one a round; those that were not measured make it undecided. threshold: 0.05 is 5%. */
void bench_compare(bench_comparison *comparison, const char *name, const bench_records *before, const bench_records *after,
                   double threshold);

/* Of a history: the rounds that a name is held against, those of its last commit other than `commit` on this machine class (of `commit`
 * itself where there is no other), the last `most` of them. */
ls_status bench_baseline(bench_records *baseline, const bench_records *history, const char *name, const char *machine_class,
                         const char *commit, int most, ls_error *err);

void bench_print_comparison(const bench_comparison *comparison, int n, double threshold, FILE *out);

/* LS_DIVERGED where there is a regression, else LS_UNAVAILABLE where something is undecided, else LS_OK. */
ls_status bench_gate_status(const bench_comparison *comparison, int n);

#endif
