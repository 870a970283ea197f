/* hopper_index_score: ls_gpu_index_score (gpu_indexer.h) of many queries by wgmma, for 32 heads of 128 elements on compute capability 9.0;
 * score, q and w lie on 16 bytes.
 */
#ifndef HOPPER_INDEX_SCORE_CUH
#define HOPPER_INDEX_SCORE_CUH

#include "gpu_attn_step.h"

namespace LSG_NS {

/* Whether it is there for these sizes: the device is one, this build is for it, and LOCKSTEP_PORTABLE is not in the environment. */
bool hopper_index_score_takes(int64_t m, int64_t heads, int64_t width, int64_t n_most);

lsg_status hopper_index_score(uint16_t *score, const uint16_t *q, const uint16_t *w, int64_t m, int64_t n_most,
                              const ls_gpu_attn_step *step, lsg_stream stream);

}  // namespace LSG_NS

#endif
