/* ls_clones: a function compiled twice, for any x86-64 and for x86-64-v3 (AVX2), of which the processor's own is chosen when the program
 * starts. The same loops in wider registers: contraction is off everywhere, and a sum that a function runs in partial sums of its own runs
 * in the same ones in both, so the bits are the same. Where the compiler or the processor is another, the function is compiled once.
 *
 *   LS_CLONES static void add(float *y, const float *x, int64_t n) { for (...) y[i] += x[i]; }
 *
 * What such a function calls is compiled with it where it is inlined: LS_CLONES_PART instead of `static inline` sees to that. */
#ifndef LS_CLONES_H
#define LS_CLONES_H

#if defined(__x86_64__) && defined(__GNUC__) && defined(__gnu_linux__)
#define LS_CLONES __attribute__((target_clones("default", "arch=x86-64-v3")))
#else
#define LS_CLONES
#endif
#define LS_CLONES_PART static inline __attribute__((always_inline))

#endif
