#include <criterion/criterion.h>
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "core/ls_arena.h"
#include "core/ls_numeric.h"

Test(arena, a_block_is_aligned_and_poisoned_with_nan) {
  ls_arena *arena;
  ls_error err = {0};
  cr_assert_eq(ls_arena_new(&arena, &err), LS_OK);
  const size_t sizes[] = {0, 1, 8, 63, 64, 65, 1000, (9 << 20) + 5};
  size_t sum = 0;
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    void *block;
    cr_assert_eq(ls_arena_alloc(arena, "some block", sizes[s], &block, &err), LS_OK);
    cr_assert_eq((uintptr_t)block % LS_ALIGN, 0);
    const unsigned char *p = block;
    for (size_t i = 0; i < sizes[s]; i++) cr_assert_eq(p[i], LS_POISON_BYTE);
    if (sizes[s] >= 8) {
      uint16_t half;
      float single;
      double wide;
      memcpy(&half, block, sizeof half);
      memcpy(&single, block, sizeof single);
      memcpy(&wide, block, sizeof wide);
      cr_assert(isnan(ls_bf16_to_f32(half)) && isnan(ls_f16_to_f32(half)) && isnan(single) && isnan(wide));
    }
    sum += sizes[s];
  }
  cr_assert_eq(ls_arena_bytes(arena), sum);
  cr_assert_eq(ls_arena_check(arena, &err), LS_OK);
  ls_arena_free(arena);
  ls_arena_free(NULL);
}

Test(arena, any_byte_written_outside_a_block_is_reported_by_name) {
  const size_t sizes[] = {0, 1, 63, 64, 65, 100};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    ls_arena *arena;
    void *before, *block, *after;
    cr_assert_eq(ls_arena_new(&arena, NULL), LS_OK);
    cr_assert_eq(ls_arena_alloc(arena, "before", 64, &before, NULL), LS_OK);
    cr_assert_eq(ls_arena_alloc(arena, "the block", sizes[s], &block, NULL), LS_OK);
    cr_assert_eq(ls_arena_alloc(arena, "after", 64, &after, NULL), LS_OK);
    for (int64_t i = -LS_GUARD_BYTES; i < (int64_t)sizes[s] + LS_GUARD_BYTES; i++) {
      unsigned char *at = (unsigned char *)block + i, was = *at;
      *at ^= 0x40;
      ls_error err = {0};
      bool outside = i < 0 || i >= (int64_t)sizes[s];
      cr_assert_eq(ls_arena_check(arena, &err), outside ? LS_INTERNAL : LS_OK, "byte %ld of %zu", (long)i, sizes[s]);
      if (outside) cr_assert(strstr(err.text, "the block") != NULL, "%s", err.text);
      *at = was;
    }
    cr_assert_eq(ls_arena_check(arena, NULL), LS_OK);
    ls_arena_free(arena);
  }
}

Test(arena, the_oldest_broken_block_is_the_one_named) {
  ls_arena *arena;
  unsigned char *one, *two;
  ls_error err = {0};
  cr_assert_eq(ls_arena_new(&arena, NULL), LS_OK);
  cr_assert_eq(ls_arena_alloc(arena, "one", 3, (void **)&one, NULL), LS_OK);
  cr_assert_eq(ls_arena_alloc(arena, "two", 3, (void **)&two, NULL), LS_OK);
  two[3] = 0;
  one[4] = 0;
  cr_assert_eq(ls_arena_check(arena, &err), LS_INTERNAL);
  cr_assert_str_eq(err.text, "one (3 bytes): written to at byte 4, past its end");
  err = (ls_error){0};
  one[-2] = 0;
  cr_assert_eq(ls_arena_check(arena, &err), LS_INTERNAL);
  cr_assert_str_eq(err.text, "one (3 bytes): written to 2 bytes before its start");
  ls_arena_free(arena);
}

Test(arena, an_impossible_size_is_an_error_and_not_a_crash) {
  ls_arena *arena;
  void *block;
  cr_assert_eq(ls_arena_new(&arena, NULL), LS_OK);
  const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 100, (size_t)1 << 62};
  for (size_t s = 0; s < 3; s++) {
    ls_error err = {0};
    cr_assert_eq(ls_arena_alloc(arena, "huge", sizes[s], &block, &err), LS_INTERNAL);
    cr_assert_eq(block, NULL);
    cr_assert(strstr(err.text, "huge") != NULL);
  }
  ls_arena_free(arena);
}
