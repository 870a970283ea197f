/* hopper_stream: the linear product for 1 to 16 rows and many channels on compute capability 9.0, fed by TMA, in the K order of
 * gpu_linear.h, so with the bits of linear_stream_kernel. The types of out that it stores to are those instantiated in hopper_stream.cu. */
#ifndef HOPPER_STREAM_H
#define HOPPER_STREAM_H

#include "hopper_linear.h"

namespace LSG_NS {

/* Whether it can, and there are blocks enough for the device. */
bool hopper_stream_takes(const hopper_workspace *workspace, int64_t rows, int64_t n, int64_t k);

template <class out_t>
lsg_status hopper_stream(const out_t &out, const uint16_t *x, const uint16_t *w, const hopper_shape &s, lsg_stream stream);

}  // namespace LSG_NS

#endif
