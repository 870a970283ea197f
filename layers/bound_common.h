/* bound_common: what the bounds of both layers are made of: reading stages and what they may be off by, and the bounds of GEMM, RMSNorm and
 * RoPE. Formulas and reasons: docs/tolerances.md.
 *
 * Every function returns LS_INTERNAL where something it reads is lacking or has another size, or memory does not suffice. */
#ifndef LS_BOUND_COMMON_H
#define LS_BOUND_COMMON_H

#include <math.h>

#include "ls_layer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Relative rounding error of one float32 operation. */
#define LS_UNIT 0x1p-24

/* The tensor `name` of trace with at least `elements` elements; NULL, with the reason in err, where it is lacking. what: "values",
 * "weights", ... for the message. */
const ls_tensor *ls_bound_find(const ls_trace *trace, const char *what, const char *name, int64_t elements, ls_error *err);

/* What a tensor of the state before the step may be off by; NULL: exact. The only way to state_bounds for what is evaluated of a step. */
const ls_tensor *ls_bound_held(const ls_bound_args *args, const char *name);

/* What element v of a stage may be off by in all: `steps` steps of the binade that the other side's value may have reached, and the rest.
 */
double ls_bound_total(ls_dtype type, double steps, double v, double rest);

/* Values of a stage and what each may be off by. All doubles, [n] each, one block: free(value). */
typedef struct {
  double *value, *total;
  bool carried; /* else total is all zeros */
  ls_dtype type;
  double steps;
  int64_t n;
} ls_stage_values;

/* value: the n elements of `stage`. total: what each may be off by where that is carried on, else zeros. On failure there is nothing to
 * free. */
ls_status ls_stage_values_read(ls_stage_values *s, const ls_bound_args *args, const ls_trace *bounds, const char *stage, int64_t n,
                               ls_error *err);

/* bound = (4 sqrt(k) 2^-24 |x| + total) . |W|^T, own error and carried error in one GEMM: all terms are positive.
 *
 * bound [rows, n] f32, dense within a row; x [at least rows, k] of any float type; total [at least rows, k] f64, NULL: zeros; w [n, k].
 * x and total may be views with gaps. On the threads of ls_parallel; needs 64 x k floats a thread and 512 x k doubles beside. */
ls_status ls_bound_gemm(const ls_tensor *bound, const ls_tensor *x, const ls_tensor *total, const ls_tensor *w, ls_error *err);

/* Own error alone, from how far the sums really go: at most what ls_bound_gemm says without a total, and
 *   5 sqrt(2 k) 2^-24 R,  R^2 = max(mean of partial sums^2 forward, backward along k, y^2 / 3 + sum (x w)^2 / 6)
 * with the partial sums at 16 places along k. For a few outputs: three products instead of one, on one thread. Shapes as above; k at least
 * 1. */
ls_status ls_bound_gemm_sums(const ls_tensor *bound, const ls_tensor *x, const ls_tensor *w, ls_error *err);

/* The bound of RMSNorm over one row or head: bound, x, total, w [n]. */
void ls_bound_norm(float *bound, const double *x, const double *total, const double *w, int64_t n, double eps);

/* A norm weight of n channels, widened; *w is to be freed. */
ls_status ls_bound_norm_weight(double **w, const ls_trace *weights, const char *name, int64_t n, ls_error *err);

/* freq [dim / 2] (layers.md): 1 / (float)pow(theta, (float)(2i) / (float)dim). Written here and in ref/ on purpose: a bound must not come
 * from the code it judges. */
void ls_bound_rope_freq(float *freq, int64_t dim, double theta);

/* |cos| and |sin| of the angles of one position: turn [2, half]. freq [half]. */
void ls_bound_rope_turn(double *turn, const float *freq, int64_t half, int64_t position);

/* A rotated pair (a, b), off by total_a and total_b, |cos| and |sin| of its angle.
 *
 * Own error: cos and sin are within 2 ulps (2 * 2^-24 of their largest value) on each path, each product and the sum round once: 4 units of
 * 2^-24 (|a| + |b|) a path, 8 between two. It does not shrink with the result, which is why steps of the result alone do not suffice where
 * the terms cancel. The angle itself is defined to the bit (layers.md) and so carries no error. Turning back is the same. */
static inline void ls_bound_rope_pair(float *bound_a, float *bound_b, double a, double b, double total_a, double total_b, double cosine,
                                      double sine) {
  double own = 8 * LS_UNIT * (fabs(a) + fabs(b));
  *bound_a = (float)(own + cosine * total_a + sine * total_b);
  *bound_b = (float)(own + cosine * total_b + sine * total_a);
}

#ifdef __cplusplus
}
#endif
#endif
