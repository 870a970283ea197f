/* splitmix64 by element. The fill is why this file looks as it does: weights of hundreds of millions of elements are made from it, so the
 * loop works on short blocks in simple passes that a compiler vectorises, and is built a second time for AVX2 (no fused multiply-add: the
 * values are the same bits). */
#include "ls_random.h"

#include <string.h>

#include "ls_numeric.h"
#include "ls_parallel.h"

#define STEP 0x9E3779B97F4A7C15u

uint64_t ls_fnv1a64(const void *bytes, size_t n) {
  const unsigned char *p = bytes;
  uint64_t hash = 0xCBF29CE484222325u;
  for (size_t i = 0; i < n; i++) hash = (hash ^ p[i]) * 0x100000001B3u;
  return hash;
}

static inline uint64_t mixed(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

uint64_t ls_splitmix64_at(uint64_t seed, uint64_t i) { return mixed(seed + (i + 1) * STEP); }

double ls_generated_at(uint64_t seed, uint64_t i, double scale, double offset) {
  double u = (double)(ls_splitmix64_at(seed, i) >> 40) * 0x1p-24;
  return (2 * u - 1) * scale + offset;
}

/* ---- the fill ---- */

enum { BLOCK = 512, PIECE = 1 << 18 };

/* Elements first .. first + n - 1, n <= BLOCK, as float32. 2u - 1 is (2k - 2^24) / 2^24 for the 24-bit k, exact in float64 either way. */
static inline __attribute__((always_inline)) void block_values(float *restrict value, uint64_t seed, uint64_t first, int n, double scale,
                                                               double offset) {
  int32_t k[BLOCK];
  uint64_t state = seed + first * STEP;
  for (int i = 0; i < n; i++) {
    uint64_t z = state += STEP; /* counted up: the compiler would spend a third multiplication on state + i * STEP */
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    k[i] = (int32_t)(z >> 40); /* the last step, z ^ (z >> 31), leaves the upper 31 bits as they are */
  }
  for (int i = 0; i < n; i++) value[i] = (float)((double)(2 * k[i] - (1 << 24)) * 0x1p-24 * scale + offset);
}

static inline __attribute__((always_inline)) void fill(ls_dtype dtype, void *restrict data, uint64_t seed, uint64_t first, int64_t count,
                                                       double scale, double offset) {
  float value[BLOCK];
  for (int64_t done = 0; done < count; done += BLOCK) {
    int n = count - done < BLOCK ? (int)(count - done) : BLOCK;
    block_values(value, seed, first + (uint64_t)done, n, scale, offset);
    switch (dtype) {
      case LS_BF16:
        for (int i = 0; i < n; i++) ((uint16_t *)data)[done + i] = ls_f32_to_bf16(value[i]);
        break;
      case LS_F16:
        for (int i = 0; i < n; i++) ((uint16_t *)data)[done + i] = ls_f32_to_f16(value[i]);
        break;
      case LS_F32:
        memcpy((float *)data + done, value, (size_t)n * sizeof *value);
        break;
      case LS_F64:
        for (int i = 0; i < n; i++) ((double *)data)[done + i] = (double)value[i];
        break;
      default:
        return;
    }
  }
}

static void fill_baseline(ls_dtype dtype, void *data, uint64_t seed, uint64_t first, int64_t count, double scale, double offset) {
  fill(dtype, data, seed, first, count, scale, offset);
}

#if defined(__x86_64__)
__attribute__((target("avx2"))) static void fill_avx2(ls_dtype dtype, void *data, uint64_t seed, uint64_t first, int64_t count,
                                                      double scale, double offset) {
  fill(dtype, data, seed, first, count, scale, offset);
}
#endif

typedef struct {
  void (*fill)(ls_dtype dtype, void *data, uint64_t seed, uint64_t first, int64_t count, double scale, double offset);
  const ls_tensor *t;
  uint64_t seed;
  int64_t from, count;
  double scale, offset;
} generation;

static void generate_piece(void *arg, int64_t i) {
  const generation *g = arg;
  int64_t first = i * PIECE, n = g->count - first < PIECE ? g->count - first : PIECE;
  g->fill(g->t->dtype, (char *)g->t->data + first * (int64_t)ls_dtype_size(g->t->dtype), g->seed, (uint64_t)(g->from + first), n, g->scale,
          g->offset);
}

void ls_generate_from(const ls_tensor *t, const char *name, int64_t from, double scale, double offset) {
  generation g = {.fill = fill_baseline,
                  .t = t,
                  .seed = ls_fnv1a64(name, strlen(name)),
                  .from = from,
                  .count = ls_tensor_count(t),
                  .scale = scale,
                  .offset = offset};
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2")) g.fill = fill_avx2;
#endif
  ls_parallel_for((g.count + PIECE - 1) / PIECE, generate_piece, &g);
}

void ls_generate(const ls_tensor *t, const char *name, double scale, double offset) { ls_generate_from(t, name, 0, scale, offset); }

/* ---- the small sequential one ---- */

uint64_t ls_random_u64(ls_random *r) { return ls_splitmix64_at(r->seed, r->i++); }

int64_t ls_random_range(ls_random *r, int64_t low, int64_t high) {
  uint64_t span = (uint64_t)high - (uint64_t)low + 1; /* 0: all of 2^64 */
  if (span == 0) return (int64_t)ls_random_u64(r);
  uint64_t surplus = (0 - span) % span; /* 2^64 mod span: so many draws at the low end would tip the scale, draw again */
  uint64_t z = ls_random_u64(r);
  while (z < surplus) z = ls_random_u64(r);
  return (int64_t)((uint64_t)low + z % span);
}

double ls_random_unit(ls_random *r) { return (double)(ls_random_u64(r) >> 11) * 0x1p-53; }
