/* plugin_check: what a child process hands back, held against the layer's tables before memory is made for it. */
#ifndef LS_PLUGIN_CHECK_H
#define LS_PLUGIN_CHECK_H

#include "plugin_message.h"

/* A stage that a step recorded. specs: the layer's expect_specs of the step. */
ls_status ls_check_stage(const ls_config *config, const ls_spec_list *specs, const ls_wire_head *head, ls_error *err);

/* A tensor of a saved state; specs: the layer's state_specs. */
ls_status ls_check_state_tensor(const ls_config *config, const ls_spec_list *specs, const ls_wire_head *head, ls_error *err);

/* Whether everything is there that a state must hold. */
ls_status ls_check_state_whole(const ls_config *config, const ls_spec_list *specs, const ls_trace *state, ls_error *err);

#endif
