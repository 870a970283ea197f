/* ls_clock: time that only goes forward. */
#ifndef LS_CLOCK_H
#define LS_CLOCK_H

#ifdef __cplusplus
extern "C" {
#endif

double ls_clock_seconds(void); /* since some moment; thread-safe */

#ifdef __cplusplus
}
#endif
#endif
