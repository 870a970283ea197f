/* emu_rate: how fast the emulator is: what every kernel on it is bound by. */
#ifndef EMU_RATE_H
#define EMU_RATE_H

#include "../../core/ls_status.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct {
  double mma_flops;  /* FLOP/s of tensor core calls alone, on all threads of ls_parallel */
  double blocks;     /* blocks a second that do nothing but meet at a barrier */
  int block_threads; /* of such a block */
} ls_emu_rates;

/* Each the best of a few, about 50 ms each. */
ls_status ls_emu_measure(ls_emu_rates *rates, ls_error *err);

#ifdef __cplusplus
}
#endif
#endif
