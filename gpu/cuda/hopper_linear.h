/* hopper_linear: the linear product for more than 16 rows on compute capability 9.0: wgmma fed by TMA, in the K order of gpu_linear.h, so
 * with the bits of the portable kernels. The types of out that it stores to are those instantiated in hopper_linear.cu. */
#ifndef HOPPER_LINEAR_H
#define HOPPER_LINEAR_H

#include "gpu_linear_out.h"

namespace LSG_NS {

/* What one user of a stream holds: sums of K ranges on their way to the block that adds them, and how many have arrived. */
typedef struct {
  bool usable;  /* compute capability 9.0, a build for 9.0a, a driver that makes tensor maps, LOCKSTEP_PORTABLE not set */
  int teams[2]; /* clusters of one block and of two that are resident at once */
  float *sums;
  unsigned *arrived;
} hopper_workspace;

lsg_status hopper_workspace_new(hopper_workspace *workspace); /* not usable is no failure */
void hopper_workspace_free(hopper_workspace *workspace);
const hopper_workspace *hopper_workspace_of(lsg_gemm gemm); /* cuda_gemm.cu: every user of the library has one */

typedef struct {
  bool bf16;
  int64_t rows, n, k, ldx;
} hopper_shape;

/* Whether it can: usable, K ranges of whole 64s, rows of x, W and y on 16 bytes. */
bool hopper_linear_takes(const hopper_workspace *workspace, int64_t n, int64_t k);

template <class out_t>
lsg_status hopper_linear(const hopper_workspace *workspace, const out_t &out, const uint16_t *x, const uint16_t *w, const hopper_shape &s,
                         lsg_stream stream);

}  // namespace LSG_NS

#endif
