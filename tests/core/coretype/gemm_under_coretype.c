/* OpenBLAS reads OPENBLAS_CORETYPE when it is loaded, so each core type needs a process of its own: this one. Prints the library, then
 * "invariant" (exit 0), the self-test's refusal (exit 4), or what broke although the self-test passed (exit 1: a hole in the self-test). */
#include <stdio.h>

#include "core/ls_gemm.h"
#include "tests/core/gemm_check.h"

int main(void) {
  static const int64_t ks[] = {1, 3, 16, 64, 127, 256, 257, 383, 384, 640, 1000, 1025};
  char text[160];
  printf("%s: ", ls_gemm_library());
  for (size_t i = 0; i < sizeof ks / sizeof *ks; i++) {
    ls_error err = {0};
    if (ls_gemm_selftest(ks[i], &err) != LS_OK) {
      printf("%s\n", err.text);
      return err.status;
    }
    if (!gemm_rows_are_invariant(ks[i] < 300 ? 70 : 33, ks[i], text) || !gemm_channels_are_invariant(5, 70, ks[i], text)) {
      printf("%s, and the self-test did not see it\n", text);
      return 1;
    }
  }
  ls_error err = {0};
  if (ls_gemm_selftest(5120, &err) != LS_OK) {
    printf("%s\n", err.text);
    return err.status;
  }
  printf("invariant\n");
  return 0;
}
