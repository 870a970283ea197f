/* ls_digest: what is kept of a tensor where its values are not: a hash and statistics of each row (a row: all elements of the last axis).
 *
 * The hash is XXH3-64 of the row's values rounded to a type, little endian, with +0 for -0 and one bit pattern for all NaN: rows that a
 * comparison counts as equal in bits have equal hashes, whatever types they are stored in. Statistics are of the rounded values, in double,
 * summed in order of the elements. The same on every machine. */
#ifndef LS_DIGEST_H
#define LS_DIGEST_H

#include "ls_trace.h"

#ifdef __cplusplus
extern "C" {
#endif

/* What is told of a row. The sums, least and largest are of its finite elements (least > largest: there is none). */
typedef enum {
  LS_DIGEST_FINITE, /* how many elements are finite */
  LS_DIGEST_NAN,
  LS_DIGEST_PLUS_INF,
  LS_DIGEST_MINUS_INF,
  LS_DIGEST_FIRST_NONFINITE, /* index of the first; -1: none */
  LS_DIGEST_SUM,
  LS_DIGEST_SUM_SQUARES,
  LS_DIGEST_MIX, /* sum with signs that hang on the index: elements that changed places show here */
  LS_DIGEST_LEAST,
  LS_DIGEST_LARGEST,
  LS_DIGEST_STATS
} ls_digest_stat;

/* XXH3-64 of bytes; seed: of what came before. */
uint64_t ls_hash_bytes(const void *bytes, size_t n, uint64_t seed);

/* A hash of names, shapes and values of a trace; neither the order of its tensors nor their types count, a value is the same in each type
 * that holds it. skip (NULL: none) says which tensors are left out. LS_INTERNAL: out of memory. */
ls_status ls_hash_trace(uint64_t *hash, const ls_trace *trace, bool (*skip)(const void *arg, const char *name), const void *arg,
                        ls_error *err);

/* Scratch for rows of up to `width` elements. */
typedef struct {
  void *bits;
  double *wide;
} ls_digest_scratch;
ls_status ls_digest_scratch_new(ls_digest_scratch *scratch, int64_t width, ls_error *err);
void ls_digest_scratch_free(ls_digest_scratch *scratch);

/* One row, a host tensor of one axis and a float type. only: u8 of the same shape; where it is 0 the element is left out (in the hash: 0).
 * NULL: all count. */
void ls_digest_row(uint64_t *hash, double stat[LS_DIGEST_STATS], const ls_tensor *row, ls_dtype type, const ls_tensor *only,
                   ls_digest_scratch *scratch);

double ls_digest_sign(int64_t i); /* of LS_DIGEST_MIX: 1 or -1 */

/* Adds "<name>/hash" i64 [rows of t] and "<name>/stats" f64 [rows of t, LS_DIGEST_STATS] of t, a float tensor of one to four axes, whose
 * rows have the shape of all axes but the last ([1] where there is one). */
ls_status ls_digest_add(ls_trace *trace, const char *name, const ls_tensor *t, ls_dtype type, const ls_tensor *only, ls_error *err);

/* The two tensors of a name; false where the trace has them not. */
typedef struct {
  ls_tensor hash, stats;
} ls_digest;
bool ls_digest_find(ls_digest *digest, const ls_trace *trace, const char *name);

/* The axes of a tensor without its last. */
int ls_digest_shape(int64_t dim[LS_MAX_DIMS], const ls_tensor *t);

#ifdef __cplusplus
}
#endif
#endif
