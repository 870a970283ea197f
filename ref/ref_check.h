/* ref_check: what comes from outside the reference (weights, inputs, `given` stages, states) against what a layer asks for. */
#ifndef LS_REF_CHECK_H
#define LS_REF_CHECK_H

#include "../layers/ls_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* The tensor of a trace that spec names. *found is NULL where it is absent and need not be there; a trace of NULL holds nothing. Of a
 * partial spec fewer rows will do. LS_BAD_FIXTURE: "<where><name>: expected bf16 or f32 [96, 288], found ...". */
ls_status ls_ref_check_tensor(const ls_tensor **found, const ls_trace *trace, const char *where, const ls_tensor_spec *spec, ls_error *err);

/* All inputs that a step which was let through needs. LS_BAD_FIXTURE names one that is missing or of another shape. */
ls_status ls_ref_check_inputs(const ls_config *config, const ls_step *step, ls_error *err);

/* All weights that the layer asks for. LS_INTERNAL where they, widened, and state_bytes are more than this machine has of memory: asked
 * before anything is allocated, because Linux hands out memory that it does not have. */
ls_status ls_ref_check_weights(const ls_config *config, const ls_trace *weights, ls_dtype wide, int64_t state_bytes, ls_error *err);

/* What the layer says of a state's integers: "state: <name>: expected ..., found ...". */
ls_status ls_ref_check_state(const ls_config *config, const ls_layer_state *state, ls_error *err);

/* A tensor of one integer in a state trace; `absent` where it is not there. */
ls_status ls_ref_read_integer(int64_t *value, const ls_trace *state, const char *name, int64_t absent, ls_error *err);

#ifdef __cplusplus
}
#endif
#endif
