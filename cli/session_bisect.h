/* session_bisect: one fixture, one path (or two against each other): the first step and stage where what fails was introduced. The judge is
 * the verify session's; this only chooses what it runs.
 *
 * 1. All steps cascaded, up to the first in which something fails. The paths run on and never load a state, as in production. There is no
 *    search over steps here: each needs the ones before it anyway, and a fault that later steps write over would be missed.
 * 2. Both modes, up to that step (where there is none: to the end). A stage that fails isolated is where it was introduced. Isolated bounds
 *    are the tighter ones, so this may be in an earlier step.
 * 3. Where none does, the state is to blame, or the step as a whole. The path is made to go on from the reference's state before some step
 *    and runs to the failing one: if that still fails, the fault lies at or after that step, else before it. A binary search finds the step
 *    from before which it fails, and from after which it does not; both of these runs are made, whatever lies between. */
#ifndef LS_SESSION_BISECT_H
#define LS_SESSION_BISECT_H

#include "verify_session.h"

/* options: as for a verify session; judged is LS_JUDGE_LAST_PATH or LS_JUDGE_LAST_PAIR. *report is new: the run in which it shows best,
 * with its ls_bisect; the caller frees it. What stops a run is in the report as well as returned, as by ls_verify_fixture. */
ls_status ls_bisect_fixture(const char *file, const ls_verify_options *options, ls_report **report, ls_error *err);

#endif
