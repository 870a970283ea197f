/* The figures are of work that was done; how large they are is the machine's business. */
#include <criterion/criterion.h>

#include "gpu/emu/emu_rate.h"

Test(emu_rate, are_measured) {
  ls_error err = {LS_OK, ""};
  ls_emu_rates rates = {};
  cr_assert_eq(ls_emu_measure(&rates, &err), LS_OK, "%s", err.text);
  cr_expect(rates.mma_flops > 1e6 && rates.mma_flops < 1e13, "%g", rates.mma_flops);
  cr_expect(rates.blocks > 100 && rates.blocks < 1e9, "%g", rates.blocks);
}
