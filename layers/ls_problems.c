#include "ls_problems.h"

#include <stdarg.h>
#include <stdio.h>

void ls_problem(ls_problems *p, const char *format, ...) {
  if (p->used + 2 >= sizeof p->text) return;
  if (p->used > 0) p->used += (size_t)snprintf(p->text + p->used, sizeof p->text - p->used, "; ");
  if (p->used >= sizeof p->text) return;
  va_list args;
  va_start(args, format);
  int n = vsnprintf(p->text + p->used, sizeof p->text - p->used, format, args);
  va_end(args);
  if (n > 0) p->used += (size_t)n;
}

void ls_problem_size(ls_problems *p, const char *name, int64_t found, int64_t largest) {
  if (!(found >= 1 && found <= largest)) {
    ls_problem(p, "%s: expected 1 .. %lld, found %lld", name, (long long)largest, (long long)found);
  }
}

int64_t ls_problem_product(ls_problems *p, const char *what, int64_t limit, int64_t a, int64_t b, int64_t c) {
  int64_t product;
  if (!__builtin_mul_overflow(a, b, &product) && !__builtin_mul_overflow(product, c, &product) && product <= limit) return product;
  ls_problem(p, "%s: expected a product of at most %lld, found %lld * %lld * %lld", what, (long long)limit, (long long)a, (long long)b,
             (long long)c);
  return 0;
}
