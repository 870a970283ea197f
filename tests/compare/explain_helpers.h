/* A failing stage to be diagnosed: right values a, and b with a fault planted in it. */
#ifndef LS_TESTS_EXPLAIN_HELPERS_H
#define LS_TESTS_EXPLAIN_HELPERS_H

#include "compare/ls_explain.h"
#include "compare_helpers.h"
#include "layers/ls_layer.h"

typedef struct {
  ls_config config;
  ls_step step;
  ls_trace *values, *weights, *bounds, *before, *after; /* bounds: NULL until a test wants some */
  ls_bound_args known;
  ls_tensor a, b, bound;
  ls_explain_args args;
} scene;

static inline void scene_close(scene *s) {
  ls_trace *const all[] = {s->values, s->weights, s->bounds, s->before, s->after};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) ls_trace_free(all[i]);
}

/* rows x width of `stage`, b equal to a; nothing known but the two sides where `layer` is NULL. */
static inline void scene_open(scene *s, const ls_stage *stage, ls_dtype type, int64_t rows, int64_t width, int64_t head_dim) {
  memset(s, 0, sizeof *s);
  s->values = new_trace("values"), s->weights = new_trace("weights"), s->before = new_trace("before"), s->after = new_trace("after");
  const int64_t dim[] = {rows, width};
  s->a = add_random(s->before, "the right side", type, 2, dim, 2.0);
  s->b = add_copy(s->before, "the path", &s->a);
  s->bound = add_tensor(s->before, "bound", LS_F32, 2, dim);
  s->args.compare = (ls_compare_args){
      .stage = stage, .type = type, .a = &s->a, .b = &s->b, .bound = &s->bound, .steps = stage->steps, .names = {.head_dim = head_dim}};
}

/* What the step read is known too. */
static inline void scene_knows(scene *s) {
  s->known = (ls_bound_args){
      .config = &s->config, .weights = s->weights, .step = &s->step, .values = s->values, .before = s->before, .after = s->after};
  s->args.step = &s->known;
}

static inline ls_pattern scene_explain(const scene *s) {
  ls_pattern p;
  ls_explain(&s->args, &p);
  return p;
}

/* Named, and by more than chance. */
#define assert_named(scene, expected)                                                                            \
  do {                                                                                                           \
    const ls_pattern named = scene_explain(scene);                                                               \
    cr_assert_str_eq(named.id, expected, "expected %s, got \"%s\": %s", expected, named.id, named.text);         \
    cr_assert(named.bits >= LS_PATTERN_BITS, "%s with %.1f bits only: %s", expected, named.bits, named.text);    \
    cr_assert(named.text[0] != '\0' && strlen(named.text) < sizeof named.text - 1, "cut short: %s", named.text); \
  } while (0)

#define assert_says(scene, part)                  \
  do {                                            \
    const ls_pattern said = scene_explain(scene); \
    assert_has(said.text, part);                  \
  } while (0)

#define assert_not_named(scene, wrong)                                                                                     \
  do {                                                                                                                     \
    const ls_pattern wrongly = scene_explain(scene);                                                                       \
    cr_assert(strcmp(wrongly.id, wrong) != 0 || wrongly.bits < LS_PATTERN_BITS, "named %s: %s", wrongly.id, wrongly.text); \
  } while (0)

/* The near miss of any prediction: every third element that differs is wrong in a way of its own. */
static inline void scene_spoil(scene *s) {
  int64_t seen = 0;
  for (int64_t i = 0; i < ls_tensor_count(&s->b); i++) {
    const double a = ls_tensor_get(&s->a, i), b = ls_tensor_get(&s->b, i);
    if (a == b || (a != a && b != b) || seen++ % 3 != 0) continue;
    ls_tensor_set(&s->b, i, a * (1.17 + 0.031 * (double)(i % 11)) + 0.05);
  }
}

static inline void assert_named_and_not_when_spoilt(scene *s, const char *id) {
  assert_named(s, id);
  scene_spoil(s);
  assert_not_named(s, id);
}

#endif
