#include "bench_gate.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_random.h"
#include "bench_statistics.h"

static const double alpha = 0.01;
enum { HALVINGS = 1000 };

/* The medians of the rounds of a name; a round that was not measured stops it, and says why. */
static int rounds_of(double **medians, const bench_records *records, const char *name, char *why, size_t size) {
  int n = 0;
  *medians = malloc((size_t)(records->n + 1) * sizeof **medians);
  for (int i = 0; i < records->n && *medians != NULL; i++) {
    const bench_record *r = &records->record[i];
    if (strcmp(r->name, name) != 0) continue;
    if (r->outcome != BENCH_MEASURED || r->n == 0) {
      if (*why == '\0') snprintf(why, size, "%.200s", r->why[0] != '\0' ? r->why : "no samples");
      continue;
    }
    (*medians)[n++] = bench_median(r->seconds, (size_t)r->n);
  }
  return n;
}

void bench_compare(bench_comparison *c, const char *name, const bench_records *before, const bench_records *after, double threshold) {
  double *old, *new;
  memset(c, 0, sizeof *c);
  snprintf(c->name, sizeof c->name, "%s", name);
  c->rounds_before = rounds_of(&old, before, name, c->why, sizeof c->why);
  c->rounds_after = rounds_of(&new, after, name, c->why, sizeof c->why);
  c->verdict = BENCH_UNDECIDED;
  if (old == NULL || new == NULL) snprintf(c->why, sizeof c->why, "out of memory");
  if (c->rounds_before > 0) c->before = bench_median(old, (size_t)c->rounds_before);
  if (c->rounds_after > 0) c->after = bench_median(new, (size_t)c->rounds_after);
  if (c->why[0] == '\0' && (c->rounds_before < BENCH_LEAST_ROUNDS || c->rounds_after < BENCH_LEAST_ROUNDS))
    snprintf(c->why, sizeof c->why, "%d rounds against %d: at least %d a side", c->rounds_after, c->rounds_before, BENCH_LEAST_ROUNDS);
  if (c->why[0] == '\0') {
    const uint64_t seed = ls_fnv1a64(name, strlen(name));
    c->effect = c->after / c->before - 1;
    c->noise = fmax(bench_noise(old, (size_t)c->rounds_before, HALVINGS, seed), bench_noise(new, (size_t)c->rounds_after, HALVINGS, seed));
    c->p = bench_rank_test(old, (size_t)c->rounds_before, new, (size_t)c->rounds_after);
    const bool sure = fabs(c->effect) > c->noise && fabs(c->effect) > threshold && c->p < alpha;
    c->verdict = !sure ? BENCH_SAME : c->effect > 0 ? BENCH_REGRESSION : BENCH_FASTER;
  }
  free(old);
  free(new);
}

ls_status bench_baseline(bench_records *baseline, const bench_records *history, const char *name, const char *machine_class,
                         const char *commit, int most, ls_error *err) {
  const char *of = NULL;
  for (int pass = 0; pass < 2 && of == NULL; pass++) { /* first: of another commit */
    for (int i = history->n - 1; i >= 0 && of == NULL; i--) {
      const bench_record *r = &history->record[i];
      if (strcmp(r->name, name) == 0 && strcmp(r->machine_class, machine_class) == 0 && r->outcome == BENCH_MEASURED &&
          (strcmp(r->commit, commit) == 0) == (pass == 1))
        of = r->commit;
    }
  }
  for (int i = history->n - 1; i >= 0 && of != NULL && baseline->n < most; i--) {
    const bench_record *r = &history->record[i];
    if (strcmp(r->name, name) != 0 || strcmp(r->machine_class, machine_class) != 0 || strcmp(r->commit, of) != 0) continue;
    if (r->outcome != BENCH_MEASURED) continue; /* was told then */
    bench_record *kept = bench_records_add(baseline, r->seconds, r->n);
    if (kept == NULL) return ls_fail(err, LS_INTERNAL, "out of memory for the baseline of %s", name);
    memcpy(kept->name, r->name, sizeof kept->name);
    memcpy(kept->commit, r->commit, sizeof kept->commit);
  }
  return LS_OK;
}

static const char *const verdict_names[BENCH_VERDICTS] = {"same", "faster", "REGRESSION", "not measured"};

void bench_print_comparison(const bench_comparison *comparison, int n, double threshold, FILE *out) {
  fprintf(out, "%-44s %12s %12s %8s %7s %8s  %s\n", "scenario", "before, us", "after, us", "effect", "noise", "p", "verdict");
  for (int i = 0; i < n; i++) {
    const bench_comparison *c = &comparison[i];
    if (c->verdict == BENCH_UNDECIDED) {
      fprintf(out, "%-44s %s: %s\n", c->name, verdict_names[c->verdict], c->why);
      continue;
    }
    fprintf(out, "%-44s %12.2f %12.2f %+7.2f%% %6.2f%% %8.2g  %s (%d against %d rounds)\n", c->name, 1e6 * c->before, 1e6 * c->after,
            100 * c->effect, 100 * c->noise, c->p, verdict_names[c->verdict], c->rounds_after, c->rounds_before);
  }
  int count[BENCH_VERDICTS] = {0};
  for (int i = 0; i < n; i++) count[comparison[i].verdict]++;
  fprintf(out, "%d scenarios: %d regressions beyond %g%%, %d faster, %d the same, %d not measured\n", n, count[BENCH_REGRESSION],
          100 * threshold, count[BENCH_FASTER], count[BENCH_SAME], count[BENCH_UNDECIDED]);
}

ls_status bench_gate_status(const bench_comparison *comparison, int n) {
  ls_status status = n > 0 ? LS_OK : LS_UNAVAILABLE;
  for (int i = 0; i < n; i++) {
    if (comparison[i].verdict == BENCH_REGRESSION) return LS_DIVERGED;
    if (comparison[i].verdict == BENCH_UNDECIDED) status = LS_UNAVAILABLE;
  }
  return status;
}
