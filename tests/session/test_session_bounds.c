/* A bound is taken over from another pair of the step only where everything that it asked for is the same there. */
#include <criterion/criterion.h>
#include <string.h>

#include "cli/session_internal.h"

/* Three stages in a row: "first" asks nothing, "second" whether the first is carried, "third" whether the second is, and for a state. Each
 * bound is one number: 1, more by what is carried to it, and by what the state is off by. */
static int evaluated[3];

static ls_status put(ls_trace *bounds, const char *name, float value, ls_error *err) {
  ls_tensor t;
  const int64_t one = 1;
  LS_TRY(ls_trace_add(bounds, name, LS_F32, 1, &one, &t, err));
  *(float *)t.data = value;
  return LS_OK;
}

static float value_of(const ls_trace *trace, const char *name) {
  const ls_tensor *t = ls_trace_tensor(trace, name);
  return t != NULL ? *(const float *)t->data : 0;
}

static float carried(const ls_bound_args *args, const ls_trace *bounds, const char *stage) {
  return args->carries(args->carries_arg, stage) ? value_of(bounds, stage) : 0;
}

static ls_status first(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  (void)args;
  evaluated[0]++;
  return put(bounds, "first", 1, err);
}
static ls_status second(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  evaluated[1]++;
  return put(bounds, "second", 1 + 10 * carried(args, bounds, "first"), err);
}
static ls_status third(const ls_bound_args *args, ls_trace *bounds, ls_error *err) {
  evaluated[2]++;
  if (*args->asked_state) return ls_fail(err, LS_INTERNAL, "asked before it did");
  *args->asked_state = true;
  return put(bounds, "third", 1 + 10 * carried(args, bounds, "second") + 1000 * value_of(args->state_bounds, "state"), err);
}

static const ls_stage stages[] = {
    {.name = "first", .bound = first}, {.name = "second", .bound = second}, {.name = "third", .bound = third}};
static const ls_layer layer = {.name = "three", .stages = stages, .n_stages = 3};
static const ls_config config = {.layer = &layer};

static session_bounds *all;
static ls_trace *state, *made[16];
static int n_made;
static ls_error err;

static bool names(void *arg, const char *stage) { return strstr(arg, stage) != NULL; }

/* The bounds of a pair that carries the stages named in `what`, and how many were evaluated for it. */
static const ls_trace *bounds_of(const char *what, const ls_trace *state_bounds, int expected) {
  const ls_bound_args args = {.config = &config, .carries = names, .carries_arg = (void *)(uintptr_t)what, .state_bounds = state_bounds};
  memset(evaluated, 0, sizeof evaluated);
  cr_assert_eq(session_bounds_isolated(&all, &args, &made[n_made], &err), LS_OK, "%s", err.text);
  cr_expect_eq(evaluated[0] + evaluated[1] + evaluated[2], expected, "'%s': %d %d %d", what, evaluated[0], evaluated[1], evaluated[2]);
  return made[n_made++];
}

static void expect(const ls_trace *bounds, float a, float b, float c) {
  cr_expect(value_of(bounds, "first") == a && value_of(bounds, "second") == b && value_of(bounds, "third") == c, "%g %g %g",
            (double)value_of(bounds, "first"), (double)value_of(bounds, "second"), (double)value_of(bounds, "third"));
}

static void begin(void) { cr_assert(ls_trace_new(&state, "state", &err) == LS_OK && put(state, "state", 1, &err) == LS_OK); }
static void end(void) {
  for (int i = 0; i < n_made; i++) ls_trace_free(made[i]);
  session_bounds_free(all);
  ls_trace_free(state);
}
TestSuite(session_bounds, .init = begin, .fini = end);

Test(session_bounds, the_same_again_is_not_evaluated_again) {
  expect(bounds_of("", NULL, 3), 1, 1, 1);
  expect(bounds_of("", NULL, 0), 1, 1, 1);
  expect(bounds_of("third", NULL, 0), 1, 1, 1); /* nobody asks for that */
}

Test(session_bounds, what_is_carried_reaches_all_that_read_it) {
  expect(bounds_of("", NULL, 3), 1, 1, 1);
  expect(bounds_of("second", NULL, 1), 1, 1, 11);
  expect(bounds_of("first", NULL, 1), 1, 11, 1);          /* the third asks whether the second is carried, and it is not: whatever it is */
  expect(bounds_of("first second", NULL, 1), 1, 11, 111); /* another second than the one that was carried before */
  expect(bounds_of("first second", NULL, 0), 1, 11, 111);
}

Test(session_bounds, another_state_is_evaluated_where_it_is_asked_for) {
  expect(bounds_of("", NULL, 3), 1, 1, 1);
  expect(bounds_of("", state, 1), 1, 1, 1001);
  expect(bounds_of("", state, 0), 1, 1, 1001);
  expect(bounds_of("", NULL, 0), 1, 1, 1);
}

Test(session_bounds, more_pairs_than_are_remembered_are_evaluated_right) {
  for (int i = 0; i < 12; i++) expect(bounds_of(i % 2 == 0 ? "" : "first", NULL, i == 0 ? 3 : i == 1 ? 1 : 0), 1, i % 2 == 0 ? 1 : 11, 1);
}
