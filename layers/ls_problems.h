/* ls_problems: every field of a config that is off, gathered into one line: "hidden: expected 1 .. 2147483647, found 0; head_dim: ...". */
#ifndef LS_PROBLEMS_H
#define LS_PROBLEMS_H

#include "../core/ls_status.h"

#include <stddef.h>
#include <stdint.h>

typedef struct {
  char text[LS_ERROR_TEXT - 64]; /* leaves room for the file's name in front */
  size_t used;                   /* 0: none so far */
} ls_problems;

__attribute__((format(printf, 2, 3))) void ls_problem(ls_problems *p, const char *format, ...);

/* Complains unless 1 <= found <= largest. */
void ls_problem_size(ls_problems *p, const char *name, int64_t found, int64_t largest);

/* The product of up to three sizes, each 1 .. 2^31 - 1. 0 after a complaint where it is above limit. */
int64_t ls_problem_product(ls_problems *p, const char *what, int64_t limit, int64_t a, int64_t b, int64_t c);

#endif
