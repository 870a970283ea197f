/* The diagnosis within a verify session: what a path that lies in one way looks like, in the report, and nothing else named beside it. */
#include <criterion/criterion.h>
#include <stdlib.h>
#include <string.h>

#include "session_run.h"

#define SINGLE GOLDEN "attn_v41_single_token.h5"
#define ROLES  GOLDEN "attn_v41_six_roles.h5"

static int count_of(const char *text, const char *part) {
  int n = 0;
  for (const char *at = text; (at = strstr(at, part)) != NULL; at += strlen(part)) n++;
  return n;
}

/* Fails, with this pattern and no other one. */
static void expect_pattern(const char *golden, const session_lies *lies, const char *pattern) {
  char *text = NULL, named[64];
  const session_how how = {.path = session_cheat(lies)};
  const ls_status status = session_verify(golden, &how, &text);
  snprintf(named, sizeof named, "(%s)", pattern);
  cr_expect_eq(status, LS_DIVERGED, "%s: status %d", pattern, (int)status);
  const int patterns = count_of(text, "        pattern "), right = count_of(text, named);
  /* under each finding that has one, and once more at the first divergence */
  cr_expect(patterns > 0 && right == patterns + 1, "%s: named %d times of %d patterns:\n%s", pattern, right, patterns, text);
  free(text);
}

/* ---- lies ---- */

static bool not_rotated(const ls_step *step, const ls_trace *given, ls_trace *recorded, const ls_tensor *t) {
  const ls_tensor *from = ls_trace_tensor(recorded, "q_proj");
  ls_error err = {LS_OK, ""};
  (void)step, (void)given;
  return from != NULL && ls_tensor_same_shape(from, t) && ls_tensor_copy(t, from, &err) == LS_OK;
}

static bool halved(const ls_step *step, const ls_trace *given, ls_trace *recorded, const ls_tensor *t) {
  (void)step, (void)given, (void)recorded;
  for (int64_t i = 0; i < ls_tensor_count(t); i++) ls_tensor_set(t, i, ls_tensor_get(t, i) / 2);
  return true;
}

/* Every second value, told by its bits alone, one step nearer to zero: what cutting off does to it. */
static bool cut_off(const ls_step *step, const ls_trace *given, ls_trace *recorded, const ls_tensor *t) {
  (void)step, (void)given, (void)recorded;
  for (int64_t i = 0; i < ls_tensor_count(t); i++) {
    uint16_t *bits = (uint16_t *)t->data + i;
    const unsigned magnitude = *bits & 0x7FFFu;
    if (magnitude > 0x80u && magnitude < 0x7F80u && (*bits * 40503u >> 8) % 2 == 0) *bits = (uint16_t)(*bits - 1);
  }
  return true;
}

static bool rows_reversed(const ls_step *step, const ls_trace *given, ls_trace *recorded, const ls_tensor *t) {
  (void)step, (void)given, (void)recorded;
  const int64_t rows = t->dim[0], width = t->dim[1];
  for (int64_t i = 0; i < rows / 2 * width; i++) {
    const int64_t other = (rows - 1 - i / width) * width + i % width;
    const double held = ls_tensor_get(t, i);
    ls_tensor_set(t, i, ls_tensor_get(t, other));
    ls_tensor_set(t, other, held);
  }
  return rows > 1;
}

static bool one_nan(const ls_step *step, const ls_trace *given, ls_trace *recorded, const ls_tensor *t) {
  (void)given, (void)recorded;
  if (step->number != 5) return false;
  ls_tensor_set(t, 3, NAN);
  return true;
}

Test(verify_explain, each_lie_is_named_and_what_inherits_it_is_not) {
  expect_pattern(SINGLE, &(session_lies){.stage = "q", .choose = not_rotated}, "not-rotated");
  expect_pattern(SINGLE, &(session_lies){.stage = "o_group", .choose = halved}, "ratio");
  expect_pattern(ROLES, &(session_lies){.stage = "latent", .choose = rows_reversed}, "rows-reversed");
}

Test(verify_explain, the_first_value_that_is_not_finite_is_named) {
  expect_pattern(SINGLE, &(session_lies){.stage = "o_rot", .choose = one_nan}, "non-finite");
}

Test(verify_explain, a_path_that_cuts_off_fails_by_all_elements_together) {
  expect_pattern(SINGLE, &(session_lies){.stage = "q_proj", .choose = cut_off}, "truncated");
}

Test(verify_explain, an_honest_twin_has_no_pattern) {
  char *text = NULL;
  const session_how how = {.path = session_cheat(&(session_lies){.fused = NULL})};
  cr_expect_eq(session_verify(SINGLE, &how, &text), LS_OK, "%s", text);
  cr_expect_eq(count_of(text, "        pattern "), 0);
  free(text);
}
