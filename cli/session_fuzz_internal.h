/* session_fuzz_internal: what session_fuzz.c (one case) and session_fuzz_run.c (all of them) share. */
#ifndef LS_SESSION_FUZZ_INTERNAL_H
#define LS_SESSION_FUZZ_INTERNAL_H

#include <stdarg.h>
#include <sys/types.h>

#include "session_fuzz.h"

/* Memory that forked processes share, zeroed; NULL: none. Released by munmap. */
void *fuzz_share(size_t bytes);

/* Waits for a child; kills it and returns false where it lives past the deadline. */
bool fuzz_wait(pid_t child, double deadline, int *wait_status);

/* What it means that a process did not come back with an answer. */
void fuzz_died(ls_fuzz_finding *finding, int wait_status, bool late, double timeout);

/* Judges in a process of its own, or in this one where options->jobs is 0. file: NULL, or a fixture to be judged in place of the scenario.
 */
ls_status fuzz_judge_apart(const ls_scenario *scenario, const char *file, const ls_fuzz_options *options, ls_fuzz_finding *finding,
                           ls_error *err);

/* Draws the case again, shrinks it while it shows the finding, writes it; *f is the caller's to free, whatever comes back. */
ls_status fuzz_shrink_case(const ls_fuzz_options *options, int64_t number, const ls_fuzz_finding *finding, ls_fuzz_failure *f,
                           ls_error *err);

#endif
