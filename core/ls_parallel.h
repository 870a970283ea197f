/* ls_parallel: the harness's own worker threads. One setting, `--threads N`, for the reference, the generators and the emulator.
 *
 * The threads start with the first job that wants them, sleep between jobs and are joined at exit. A fork between jobs is safe: the child
 * starts with no threads and makes its own. A child forked from inside a job runs everything serially. Signals go to the program's other
 * threads. */
#ifndef LS_PARALLEL_H
#define LS_PARALLEL_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* 0: as many as the machine has cores for this process. Takes effect at the next ls_parallel_for. Not to be called from inside one. */
void ls_threads_set(int n);
int ls_threads(void); /* at least 1 */

/* true: ties the calling thread and each worker to a core of its own among those of this process (more threads than cores share them in
 * turn), so that no run is on a core that is still cold; false: all of them may run where they could before. What was true before stays
 * where false is returned: the system does not let threads be tied. Not to be called from inside a job. */
bool ls_threads_pin(bool pinned);

/* Calls fn(arg, i) for i in [0, n), each once, on ls_threads() threads of which the caller is one, and returns when all are done.
 * Which thread runs which i is not defined, so fn's result must not depend on it. A nested call runs serially. */
void ls_parallel_for(int64_t n, void (*fn)(void *arg, int64_t i), void *arg);

#ifdef __cplusplus
}
#endif
#endif
