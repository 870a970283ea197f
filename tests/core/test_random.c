/* Expected values were computed from the text of the format with exact integers and IEEE doubles in another language. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/ls_numeric.h"
#include "core/ls_parallel.h"
#include "core/ls_random.h"

static uint64_t seed_of(const char *name) { return ls_fnv1a64(name, strlen(name)); }

Test(random, fnv1a64_has_the_known_values) {
  cr_assert_eq(seed_of(""), UINT64_C(0xcbf29ce484222325));
  cr_assert_eq(seed_of("a"), UINT64_C(0xaf63dc4c8601ec8c));
  cr_assert_eq(seed_of("layers/0/k_proj"), UINT64_C(0xfd20fd90d97d13dc));
  cr_assert_eq(seed_of("h\xC3\xA9"), UINT64_C(0x3130f1192e1ad66f), "over the UTF-8 bytes");
}

Test(random, splitmix64_has_the_known_values) {
  cr_assert_eq(ls_splitmix64_at(0, 0), UINT64_C(0xe220a8397b1dcdaf));
  cr_assert_eq(ls_splitmix64_at(0, 1), UINT64_C(0x6e789e6aa1b965f4));
  cr_assert_eq(ls_splitmix64_at(0, 2), UINT64_C(0x06c45d188009454f));
  cr_assert_eq(ls_splitmix64_at(seed_of("fc"), 0), UINT64_C(0x326e96667640ada8));
  cr_assert_eq(ls_splitmix64_at(seed_of("fc"), 1000003), UINT64_C(0x77e858f752e76d47));
  cr_assert_eq(ls_splitmix64_at(UINT64_MAX, 5), UINT64_C(0xd31dadbda438bb33));
  cr_assert_eq(ls_splitmix64_at(seed_of("layers/4/v_proj"), (UINT64_C(1) << 40) + 7), UINT64_C(0x741ccc19465ff763));
}

typedef struct {
  int64_t i;
  double exact;
  uint32_t f32;
  uint16_t bf16, f16;
} known;

static void has_known_values(const char *name, double scale, double offset, const known *list, int n) {
  int64_t count = list[n - 1].i + 1;
  for (int d = LS_BF16; d <= LS_F64; d++) {
    void *data = malloc((size_t)count * ls_dtype_size((ls_dtype)d));
    ls_tensor t = ls_tensor_make((ls_dtype)d, 1, &count, data);
    ls_generate(&t, name, scale, offset);
    for (int j = 0; j < n; j++) {
      const known *e = &list[j];
      cr_assert_eq(ls_generated_at(seed_of(name), (uint64_t)e->i, scale, offset), e->exact);
      if (d == LS_BF16) cr_assert_eq(((uint16_t *)data)[e->i], e->bf16, "%s[%ld]", name, (long)e->i);
      if (d == LS_F16) cr_assert_eq(((uint16_t *)data)[e->i], e->f16, "%s[%ld]", name, (long)e->i);
      if (d == LS_F32) cr_assert_eq(((uint32_t *)data)[e->i], e->f32, "%s[%ld]", name, (long)e->i);
      if (d == LS_F64) cr_assert_eq(((double *)data)[e->i], (double)ls_f32_from_bits(e->f32), "%s[%ld]", name, (long)e->i);
    }
    free(data);
  }
}

/* Across the blocks and pieces in which it is made. */
Test(random, a_part_of_a_generated_tensor_is_that_part_of_the_whole) {
  enum { COUNT = 600000 };
  static const int64_t parts[][2] = {{0, 1}, {1, COUNT - 1}, {511, 3}, {262143, 300000}, {COUNT - 1, 1}};
  float *whole = malloc(COUNT * sizeof *whole), *part = malloc(COUNT * sizeof *part);
  const int64_t count = COUNT;
  const ls_tensor all = ls_tensor_make(LS_F32, 1, &count, whole);
  ls_generate(&all, "fc", 0.02, 1);
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++) {
    const ls_tensor t = ls_tensor_make(LS_F32, 1, &parts[i][1], part);
    ls_generate_from(&t, "fc", parts[i][0], 0.02, 1);
    cr_expect_eq(memcmp(part, whole + parts[i][0], (size_t)parts[i][1] * sizeof *part), 0, "%zu", i);
  }
  free(whole);
  free(part);
}

Test(random, generated_tensors_have_the_known_values) {
  static const known fc[] = {
      {0, -0x1.8d25f5c28f5c3p-7, 0xbc4692fb, 0xbc47, 0xa235},     {1, -0x1.2cdcp-9, 0xbb166e00, 0xbb16, 0x98b3},
      {511, -0x1.3fa56147ae148p-6, 0xbc9fd2b1, 0xbca0, 0xa4ff},   {512, -0x1.5437333333333p-10, 0xbaaa1b9a, 0xbaaa, 0x9551},
      {262143, 0x1.dca5d70a3d70ap-8, 0x3bee52ec, 0x3bee, 0x1f73}, {262144, -0x1.4b328a3d70a3ep-7, 0xbc259945, 0xbc26, 0xa12d},
      {262145, 0x1.116ab851eb852p-10, 0x3a88b55c, 0x3a89, 0x1446}};
  static const known norm[] = {{0, 0x1.bf024bp-1, 0x3f5f8126, 0x3f60, 0x3afc},      {1, 0x1.8839fbp-1, 0x3f441cfe, 0x3f44, 0x3a21},
                               {511, 0x1.e5a2cdp-1, 0x3f72d166, 0x3f73, 0x3b97},    {512, 0x1.d9b55bp-1, 0x3f6cdaae, 0x3f6d, 0x3b67},
                               {262143, 0x1.2f5347p+0, 0x3f97a9a4, 0x3f98, 0x3cbd}, {262144, 0x1.125de68p+0, 0x3f892ef3, 0x3f89, 0x3c49},
                               {262145, 0x1.1182a6p+0, 0x3f88c153, 0x3f89, 0x3c46}};
  has_known_values("fc", 0.02, 0.0, fc, 7);
  has_known_values("layers/0/k_norm", 0.25, 1.0, norm, 7);
}

Test(random, a_fill_is_its_elements_one_by_one_at_every_length_and_thread_count) {
  const struct {
    double scale, offset;
  } cases[] = {{0.02, 0}, {0.75, 1}, {1e-7, -1e-9}, {3e38, 3e38}, {1e5, 7e4}, {1e-310, 0}, {1e-41, 1e-42}, {NAN, 0}, {0, -0.0}};
  const int64_t lengths[] = {0, 1, 3, 511, 512, 513, 2000, 600001};
  uint16_t *data = malloc(600001 * sizeof *data);
  for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
    for (size_t l = 0; l < sizeof lengths / sizeof *lengths; l++) {
      if (lengths[l] > 2000 && c > 1) continue;
      for (int d = LS_BF16; d <= LS_F16; d++) {
        ls_threads_set(1 + (int)(l % 4));
        ls_tensor t = ls_tensor_make((ls_dtype)d, 1, &lengths[l], data);
        ls_generate(&t, "some/tensor", cases[c].scale, cases[c].offset);
        uint64_t seed = seed_of("some/tensor");
        for (int64_t i = 0; i < lengths[l]; i++) {
          float v = (float)ls_generated_at(seed, (uint64_t)i, cases[c].scale, cases[c].offset);
          cr_assert_eq(data[i], d == LS_BF16 ? ls_f32_to_bf16(v) : ls_f32_to_f16(v), "case %zu, element %ld of %ld", c, (long)i,
                       (long)lengths[l]);
        }
      }
    }
  }
  free(data);
}

Test(random, a_range_keeps_its_ends_and_reaches_them) {
  ls_random draw = {.seed = 3};
  int seen[5] = {0};
  for (int i = 0; i < 5000; i++) {
    int64_t v = ls_random_range(&draw, -2, 2);
    cr_assert(v >= -2 && v <= 2);
    seen[v + 2]++;
  }
  for (int i = 0; i < 5; i++) cr_assert(seen[i] > 850 && seen[i] < 1150, "%d of 5000", seen[i]);
  cr_assert_eq(ls_random_range(&draw, 9, 9), 9);
  int low = 0;
  for (int i = 0; i < 1000; i++) low += ls_random_range(&draw, INT64_MIN, INT64_MAX) < 0;
  cr_assert(low > 400 && low < 600);
  for (int i = 0; i < 1000; i++) {
    double u = ls_random_unit(&draw);
    cr_assert(u >= 0 && u < 1);
  }
}
