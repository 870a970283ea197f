#include "ls_timing.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

void ls_timing_free(ls_timing *timing) {
  for (int i = 0; i < timing->n; i++) free(timing->part[i].seconds);
  memset(timing, 0, sizeof *timing);
}

ls_timed *ls_timing_add(ls_timing *timing, const char *name, int samples) {
  if (timing->n == LS_TIMING_PARTS || samples < 1) return NULL;
  double *seconds = calloc((size_t)samples, sizeof *seconds);
  if (seconds == NULL) return NULL;
  ls_timed *t = &timing->part[timing->n++];
  snprintf(t->name, sizeof t->name, "%s", name);
  t->seconds = seconds;
  timing->samples = samples;
  return t;
}
