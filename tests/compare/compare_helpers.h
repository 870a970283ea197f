/* Tensors and results for the comparator's tests. */
#ifndef LS_TESTS_COMPARE_HELPERS_H
#define LS_TESTS_COMPARE_HELPERS_H

#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "compare/ls_report.h"
#include "core/ls_numeric.h"
#include "core/ls_parallel.h"
#include "core/ls_random.h"

#define MUST(call)                                        \
  do {                                                    \
    ls_error must_err = {0};                              \
    ls_error *err = &must_err;                            \
    ls_status must_status = (call);                       \
    cr_assert(must_status == LS_OK, "%s", must_err.text); \
  } while (0)

static inline ls_trace *new_trace(const char *origin) {
  ls_trace *trace = NULL;
  MUST(ls_trace_new(&trace, origin, err));
  return trace;
}

static inline ls_tensor add_tensor(ls_trace *trace, const char *name, ls_dtype dtype, int ndim, const int64_t *dim) {
  ls_tensor t;
  MUST(ls_trace_add(trace, name, dtype, ndim, dim, &t, err));
  memset(t.data, 0, ls_tensor_bytes(&t));
  return t;
}

/* Values of about 1, of both signs, rounded to dtype. */
static inline ls_tensor add_random(ls_trace *trace, const char *name, ls_dtype dtype, int ndim, const int64_t *dim, double scale) {
  ls_tensor t = add_tensor(trace, name, dtype, ndim, dim);
  ls_generate(&t, name, scale, 0);
  return t;
}

static inline ls_tensor add_copy(ls_trace *trace, const char *name, const ls_tensor *of) {
  ls_tensor t = add_tensor(trace, name, of->dtype, of->ndim, of->dim);
  MUST(ls_tensor_copy(&t, of, err));
  return t;
}

static inline bool has(const char *text, const char *part) { return strstr(text, part) != NULL; }

#define assert_has(text, part)   cr_assert(has(text, part), "expected \"%s\" in: %s", part, text)
#define assert_lacks(text, part) cr_assert(!has(text, part), "did not expect \"%s\" in: %s", part, text)
#define assert_verdict(result, expected)                                                                                                  \
  cr_assert_eq((result).verdict, expected, "expected %s, got %s (%s | %s)", ls_verdict_name(expected), ls_verdict_name((result).verdict), \
               (result).where, (result).note)

/* ls_bound_args.carries: everything, nothing. */
static inline bool yes(void *arg, const char *stage) {
  (void)arg;
  (void)stage;
  return true;
}
static inline bool no(void *arg, const char *stage) {
  (void)arg;
  (void)stage;
  return false;
}

#endif
