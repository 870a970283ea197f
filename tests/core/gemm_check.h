/* What the tests of ls_gemm and the helper that runs under other core types both check. */
#ifndef GEMM_CHECK_H
#define GEMM_CHECK_H

#include <stdbool.h>
#include <stdint.h>

/* Every number of rows 1 .. 16 and every index: the bits of a row are those it has alone. n channels, inner dimension k, f32 and f64. On
 * failure says where in text. */
bool gemm_rows_are_invariant(int64_t n, int64_t k, char text[160]);

/* The first channels of a product with more of them are those of the smaller product. */
bool gemm_channels_are_invariant(int64_t fewer, int64_t n, int64_t k, char text[160]);

#endif
