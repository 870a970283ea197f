/* hopper_registers: the long lists that wgmma asks for: its sums, which are the first operands of the asm statement. */
#ifndef HOPPER_REGISTERS_CUH
#define HOPPER_REGISTERS_CUH

/* As text of the instruction. */
#define HOPPER_SUMS_32                                                     \
  "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, " \
  "%16, %17, %18, %19, %20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31"
#define HOPPER_SUMS_64                                                                 \
  HOPPER_SUMS_32                                                                       \
  ", %32, %33, %34, %35, %36, %37, %38, %39, %40, %41, %42, %43, %44, %45, %46, %47, " \
  "%48, %49, %50, %51, %52, %53, %54, %55, %56, %57, %58, %59, %60, %61, %62, %63"
#define HOPPER_SUMS_80 HOPPER_SUMS_64 ", %64, %65, %66, %67, %68, %69, %70, %71, %72, %73, %74, %75, %76, %77, %78, %79"
#define HOPPER_SUMS_128                                                                          \
  HOPPER_SUMS_80                                                                                 \
  ", %80, %81, %82, %83, %84, %85, %86, %87, %88, %89, %90, %91, %92, %93, %94, %95, "           \
  "%96, %97, %98, %99, %100, %101, %102, %103, %104, %105, %106, %107, %108, %109, %110, %111, " \
  "%112, %113, %114, %115, %116, %117, %118, %119, %120, %121, %122, %123, %124, %125, %126, %127"

/* As operands: d[i] and those behind it. */
#define HOPPER_OPERANDS_8(d, i) \
  "+f"(d[i]), "+f"(d[(i) + 1]), "+f"(d[(i) + 2]), "+f"(d[(i) + 3]), "+f"(d[(i) + 4]), "+f"(d[(i) + 5]), "+f"(d[(i) + 6]), "+f"(d[(i) + 7])
#define HOPPER_OPERANDS_16(d, i) HOPPER_OPERANDS_8(d, i), HOPPER_OPERANDS_8(d, (i) + 8)
#define HOPPER_OPERANDS_32(d)    HOPPER_OPERANDS_16(d, 0), HOPPER_OPERANDS_16(d, 16)
#define HOPPER_OPERANDS_64(d)    HOPPER_OPERANDS_32(d), HOPPER_OPERANDS_16(d, 32), HOPPER_OPERANDS_16(d, 48)
#define HOPPER_OPERANDS_80(d)    HOPPER_OPERANDS_64(d), HOPPER_OPERANDS_16(d, 64)
#define HOPPER_OPERANDS_128(d)   HOPPER_OPERANDS_80(d), HOPPER_OPERANDS_16(d, 80), HOPPER_OPERANDS_16(d, 96), HOPPER_OPERANDS_16(d, 112)

#endif
