#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/ls_random.h"
#include "core/ls_ring.h"
#include "layers/ls_dflash.h"

static const ls_dflash_config config = {.hidden = 4,
                                        .aux_count = 1,
                                        .layers = 1,
                                        .num_kv_heads = 1,
                                        .head_dim = 4,
                                        .ring_capacity = 24,
                                        .window = 16,
                                        .max_rows = 32,
                                        .rms_eps = 1e-6,
                                        .rope_theta = 1e4,
                                        .kv_dim = 4,
                                        .fc_in = 4};

static bool same(ls_dflash_state a, ls_dflash_state b) {
  return a.cursor == b.cursor && a.capture_base == b.capture_base && a.capture_rows == b.capture_rows;
}

/* Refused with a line that holds `text`, state and next untouched. */
static void refuses(ls_dflash_state state, ls_step step, const char *text) {
  const ls_dflash_state before = state, untouched = {-7, -8, -9};
  ls_dflash_state next = untouched;
  ls_error err = {0};
  cr_assert_eq(ls_dflash_decide(&config, &state, &step, &next, &err), LS_REFUSED, "not refused: %s", text);
  cr_assert_not_null(strstr(err.text, text), "expected \"%s\", found \"%s\"", text, err.text);
  cr_assert_eq(strncmp(err.text, ls_op_name(step.op), strlen(ls_op_name(step.op))), 0, "%s", err.text);
  cr_assert(same(state, before) && same(next, untouched));
}

static void moves(ls_dflash_state state, ls_step step, ls_dflash_state expected) {
  const ls_dflash_state before = state;
  ls_dflash_state next = {-7, -8, -9};
  ls_error err = {0};
  cr_assert_eq(ls_dflash_decide(&config, &state, &step, &next, &err), LS_OK, "%s", err.text);
  cr_assert(same(state, before));
  cr_assert(same(next, expected), "found cursor %lld base %lld rows %lld", (long long)next.cursor, (long long)next.capture_base,
            (long long)next.capture_rows);
}

#define STATE(...)    ((ls_dflash_state){__VA_ARGS__}) /* cursor, capture_base, capture_rows */
#define CAPTURE(b, r) ((ls_step){.op = LS_OP_CAPTURE, .base = (b), .rows = (r)})
#define DRAFT(b, r)   ((ls_step){.op = LS_OP_DRAFT_WRITE, .base = (b), .rows = (r)})
#define CONTEXT(r)    ((ls_step){.op = LS_OP_CONTEXT_WRITE, .rows = (r)})
#define REWIND(p)     ((ls_step){.op = LS_OP_REWIND, .position = (p)})

static const int64_t last = LS_POSITION_LIMIT - 1;

Test(dflash_decide, capture_takes_1_to_max_rows_at_any_position_of_the_range) {
  refuses(STATE(5, 3, 2), CAPTURE(0, 0), "rows 0, expected 1 .. max_rows = 32");
  refuses(STATE(5, 3, 2), CAPTURE(0, -1), "rows -1");
  refuses(STATE(5, 3, 2), CAPTURE(0, 33), "rows 33, expected 1 .. max_rows = 32");
  refuses(STATE(5, 3, 2), CAPTURE(0, INT64_MAX), "max_rows");
  refuses(STATE(5, 3, 2), CAPTURE(-1, 1), "base -1 is negative");
  refuses(STATE(5, 3, 2), CAPTURE(INT64_MIN, 1), "is negative");
  refuses(STATE(5, 3, 2), CAPTURE(last, 2), "past the last position 2147483647");
  refuses(STATE(5, 3, 2), CAPTURE(last + 1, 1), "past the last position");
  refuses(STATE(5, 3, 2), CAPTURE(INT64_MAX, 32), "past the last position");
  moves(STATE(5, 3, 2), CAPTURE(0, 1), STATE(5, 0, 1)); /* behind the cursor */
  moves(STATE(5, 3, 2), CAPTURE(900, 32), STATE(5, 900, 32));
  moves(STATE(5, 3, 2), CAPTURE(last, 1), STATE(5, last, 1));
  moves(STATE(5, 3, 2), CAPTURE(last - 31, 32), STATE(5, last - 31, 32));
}

Test(dflash_decide, draft_write_takes_1_to_ring_capacity_rows_and_moves_nothing) {
  refuses(STATE(5, 3, 2), DRAFT(0, 0), "rows 0, expected 1 .. ring_capacity = 24");
  refuses(STATE(5, 3, 2), DRAFT(0, 25), "rows 25, expected 1 .. ring_capacity = 24");
  refuses(STATE(5, 3, 2), DRAFT(-1, 1), "base -1 is negative");
  refuses(STATE(5, 3, 2), DRAFT(last, 2), "past the last position");
  refuses(STATE(5, 3, 2), DRAFT(INT64_MAX, 1), "past the last position");
  moves(STATE(5, 3, 2), DRAFT(0, 24), STATE(5, 3, 2));
  moves(STATE(5, 3, 2), DRAFT(last - 23, 24), STATE(5, 3, 2));
}

Test(dflash_decide, context_write_takes_captured_rows_that_fit_the_ring_and_never_moves_the_cursor_back) {
  refuses(STATE(0, 0, 0), CONTEXT(1), "rows 1, but 0 rows are captured");
  refuses(STATE(0, 0, 8), CONTEXT(0), "rows 0, expected at least 1");
  refuses(STATE(0, 0, 8), CONTEXT(-5), "rows -5");
  refuses(STATE(0, 0, 8), CONTEXT(9), "rows 9, but 8 rows are captured");
  refuses(STATE(0, 0, 8), CONTEXT(INT64_MAX), "captured");
  refuses(STATE(0, 0, 32), CONTEXT(25), "rows 25, more than ring_capacity 24");
  refuses(STATE(12, 4, 8), CONTEXT(7), "capture_base 4 + rows 7 would move the cursor back from 12");
  moves(STATE(12, 4, 8), CONTEXT(8), STATE(12, 4, 0)); /* to the same place */
  moves(STATE(11, 4, 8), CONTEXT(8), STATE(12, 4, 0));
  moves(STATE(0, 0, 32), CONTEXT(24), STATE(24, 0, 0));
  moves(STATE(3, 900, 8), CONTEXT(5), STATE(905, 900, 0)); /* beyond the cursor: allowed */
  moves(STATE(0, last, 1), CONTEXT(1), STATE(last + 1, last, 0));
}

Test(dflash_decide, context_write_names_the_first_rule_that_refuses) {
  refuses(STATE(100, 0, 0), CONTEXT(0), "expected at least 1");
  refuses(STATE(100, 0, 8), CONTEXT(25), "captured"); /* also above the ring, also backward */
  refuses(STATE(100, 0, 32), CONTEXT(25), "ring_capacity");
  refuses(STATE(100, 0, 32), CONTEXT(24), "cursor back");
}

Test(dflash_decide, rewind_goes_back_at_most_ring_capacity_minus_window_and_never_forward) {
  refuses(STATE(50, 3, 2), REWIND(-1), "position -1 is negative");
  refuses(STATE(50, 3, 2), REWIND(INT64_MIN), "is negative");
  refuses(STATE(0, 0, 0), REWIND(-1), "is negative");
  refuses(STATE(50, 3, 2), REWIND(41), "from cursor 50 to 41 is 9 back, more than ring_capacity - window = 8");
  refuses(STATE(50, 3, 2), REWIND(0), "more than ring_capacity - window");
  moves(STATE(50, 3, 2), REWIND(42), STATE(42, 3, 2));
  moves(STATE(50, 3, 2), REWIND(49), STATE(49, 3, 2));
  moves(STATE(50, 3, 2), REWIND(50), STATE(50, 3, 2));
  moves(STATE(50, 3, 2), REWIND(51), STATE(50, 3, 2));
  moves(STATE(50, 3, 2), REWIND(INT64_MAX), STATE(50, 3, 2));
  moves(STATE(5, 3, 2), REWIND(0), STATE(0, 3, 2));
  /* checked against the present cursor only, as published: step by step it goes any way back */
  moves(STATE(42, 3, 2), REWIND(34), STATE(34, 3, 2));
}

Test(dflash_decide, unknown_operation_is_an_error_and_no_refusal) {
  ls_dflash_state state = {1, 2, 3}, next = {-7, -8, -9};
  ls_step step = {.op = LS_OPS};
  ls_error err = {0};
  cr_assert_eq(ls_dflash_decide(&config, &state, &step, &next, &err), LS_INTERNAL);
  cr_assert(same(next, STATE(-7, -8, -9)));
}

/* ---- against a model that says the same in another way: all rules of layers.md as one list, in 128-bit arithmetic ---- */

__extension__ typedef __int128 int128;

typedef struct {
  bool refused;
  const char *word; /* of the first rule that refuses */
  ls_dflash_state next;
} answer;

static answer model(const ls_dflash_config *c, ls_dflash_state s, const ls_step *step) {
  const int128 rows = step->rows, base = step->base, position = step->position, end = base + rows;
  const struct {
    bool refuses;
    const char *word;
  } rules[LS_OPS][4] = {
      [LS_OP_CAPTURE] = {{!(1 <= rows && rows <= c->max_rows), "max_rows"},
                         {base < 0, "negative"},
                         {end - 1 > 2147483647, "past the last position"}},
      [LS_OP_DRAFT_WRITE] = {{!(1 <= rows && rows <= c->ring_capacity), "ring_capacity"},
                             {base < 0, "negative"},
                             {end - 1 > 2147483647, "past the last position"}},
      [LS_OP_CONTEXT_WRITE] = {{rows < 1, "at least 1"},
                               {rows > s.capture_rows, "captured"},
                               {rows > c->ring_capacity, "more than ring_capacity"},
                               {s.capture_base + rows < s.cursor, "cursor back"}},
      [LS_OP_REWIND] = {{position < 0, "negative"},
                        {position < s.cursor && s.cursor - position > c->ring_capacity - c->window, "ring_capacity - window"}},
  };
  answer a = {.next = s};
  for (int i = 3; i >= 0; i--) {
    if (rules[step->op][i].refuses) a = (answer){true, rules[step->op][i].word, s};
  }
  if (a.refused) return a;
  if (step->op == LS_OP_CAPTURE) a.next = (ls_dflash_state){s.cursor, step->base, step->rows};
  if (step->op == LS_OP_CONTEXT_WRITE) a.next = (ls_dflash_state){s.capture_base + step->rows, s.capture_base, 0};
  if (step->op == LS_OP_REWIND && position < s.cursor) a.next.cursor = step->position;
  return a;
}

/* Mostly near a landmark, sometimes anything. */
static int64_t draw(ls_random *r, const int64_t *landmark, int n) {
  static const int64_t extremes[] = {INT64_MIN, INT64_MIN + 1, -LS_POSITION_LIMIT, LS_POSITION_LIMIT, INT64_MAX - 1, INT64_MAX};
  if (ls_random_range(r, 0, 49) == 0) return extremes[ls_random_range(r, 0, 5)];
  return landmark[ls_random_range(r, 0, n - 1)] + ls_random_range(r, -2, 2);
}

Test(dflash_decide, agrees_with_the_rules_written_as_a_list_over_random_histories) {
  ls_random r = {.seed = 20260};
  int64_t refused[LS_OPS] = {0}, accepted[LS_OPS] = {0};
  for (int history = 0; history < 400; history++) {
    ls_dflash_config c = config;
    c.ring_capacity = ls_random_range(&r, 1, 40);
    c.window = ls_random_range(&r, 1, c.ring_capacity);
    c.max_rows = ls_random_range(&r, 1, 48);
    ls_dflash_state state = {0};
    if (history % 4 == 0) state.cursor = LS_POSITION_LIMIT - ls_random_range(&r, 0, 60);
    for (int i = 0; i < 200; i++) {
      const int64_t rows_near[] = {0, 1, 4, c.max_rows, c.ring_capacity, state.capture_rows, state.cursor - state.capture_base};
      const int64_t place_near[] = {0,
                                    state.cursor,
                                    state.cursor,
                                    state.cursor - c.ring_capacity + c.window,
                                    state.cursor + 10,
                                    LS_POSITION_LIMIT - c.max_rows,
                                    state.cursor > 8 ? state.cursor - 8 : 0};
      const ls_step step = {.op = (ls_op)ls_random_range(&r, 0, LS_OP_REWIND),
                            .base = draw(&r, place_near, history % 4 == 0 ? 7 : 5),
                            .rows = draw(&r, rows_near, 7),
                            .position = draw(&r, place_near, 7)};
      const answer expected = model(&c, state, &step);
      ls_dflash_state next = state;
      ls_error err = {0};
      const ls_status status = ls_dflash_decide(&c, &state, &step, &next, &err);
      cr_assert_eq(status, expected.refused ? LS_REFUSED : LS_OK, "history %d operation %d: %s", history, i, err.text);
      cr_assert(same(next, expected.next), "history %d operation %d", history, i);
      if (expected.refused) cr_assert_not_null(strstr(err.text, expected.word), "\"%s\" in \"%s\"", expected.word, err.text);
      cr_assert_eq(ls_dflash_state_check(&c, &next, NULL), LS_OK);
      (expected.refused ? refused : accepted)[step.op]++;
      state = next;
    }
  }
  for (int op = 0; op <= LS_OP_REWIND; op++) cr_assert(refused[op] > 1000 && accepted[op] > 1000, "%s hardly tried", ls_op_name((ls_op)op));
}

/* ---- what is written ---- */

Test(dflash_written, is_the_range_of_the_draft_or_of_the_capture) {
  const ls_dflash_state state = {50, 44, 9};
  int64_t base = -1, rows = -1;
  ls_dflash_written(&state, &DRAFT(70, 3), &base, &rows);
  cr_assert(base == 70 && rows == 3);
  ls_dflash_written(&state, &CONTEXT(8), &base, &rows);
  cr_assert(base == 44 && rows == 8); /* at capture_base, not at the cursor */
  ls_dflash_written(&state, &CAPTURE(70, 3), &base, &rows);
  cr_assert_eq(rows, 0);
  base = rows = -1;
  ls_dflash_written(&state, &REWIND(48), &base, &rows);
  cr_assert_eq(rows, 0);
}

/* ---- states from outside ---- */

static void state_is_bad(ls_dflash_state state, const char *field) {
  ls_error err = {0};
  cr_assert_eq(ls_dflash_state_check(&config, &state, &err), LS_BAD_FIXTURE, "%s accepted", field);
  cr_assert_not_null(strstr(err.text, field), "%s", err.text);
}

Test(dflash_state, that_no_history_leads_to_is_refused_by_field) {
  state_is_bad(STATE(-1, 0, 0), "cursor: expected 0 .. 2147483648, found -1");
  state_is_bad(STATE(LS_POSITION_LIMIT + 1, 0, 0), "cursor");
  state_is_bad(STATE(0, 0, -1), "capture_rows: expected 0 .. max_rows = 32, found -1");
  state_is_bad(STATE(0, 0, 33), "capture_rows");
  state_is_bad(STATE(0, -1, 0), "capture_base");
  state_is_bad(STATE(0, -1, 1), "capture_base");
  state_is_bad(STATE(0, last, 2), "capture_base: expected 0 .. 2147483646 for 2 rows, found 2147483647");
  state_is_bad(STATE(0, INT64_MAX, 1), "capture_base");
  cr_assert_eq(ls_dflash_state_check(&config, &STATE(LS_POSITION_LIMIT, last, 1), NULL), LS_OK);
  cr_assert_eq(ls_dflash_state_check(&config, &STATE(0, 0, 32), NULL), LS_OK);
}
