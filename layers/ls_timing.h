/* ls_timing: how a step is timed, and what came of it (ls_path.time_step). */
#ifndef LS_TIMING_H
#define LS_TIMING_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

enum { LS_TIMING_NAME = 160, LS_TIMING_PARTS = 48 };

typedef struct {
  int warmup, samples;                /* runs before, and runs that are timed one by one */
  int back_to_back;                   /* runs that are timed in one piece after those; 0: none */
  bool cold;                          /* before each timed run other data is read, as much as the caches hold several times over */
  bool parts;                         /* each group of launches by itself, instead of the whole */
  volatile sig_atomic_t *interrupted; /* NULL: nobody interrupts */
} ls_timing_how;

/* The whole step, or a part of it. */
typedef struct {
  char name[LS_TIMING_NAME]; /* "": the whole step; else the stages that stand when it ends, joined by "+" */
  double *seconds;           /* [samples] */
  double back_to_back;       /* seconds of one of the runs in one piece; 0 where none was asked for */
  int launches;              /* kernels and copies, as the path counts them; 0: it does not */
} ls_timed;

/* All zero before it is filled; what is timed next is added. The whole step, where it is timed, stands first. */
typedef struct {
  ls_timed part[LS_TIMING_PARTS];
  int n, samples;
} ls_timing;

void ls_timing_free(ls_timing *timing); /* frees the samples, and leaves it all zero */

/* A part of that name with room for its samples; NULL where there is no memory or no room. */
ls_timed *ls_timing_add(ls_timing *timing, const char *name, int samples);

#ifdef __cplusplus
}
#endif
#endif
