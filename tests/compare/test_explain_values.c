/* Patterns that the two sides show by themselves, and places. Each planted, and a near miss that must not be named. */
#include "explain_helpers.h"

enum { ROWS = 16, HEADS = 4, HEAD = 32, WIDTH = HEADS * HEAD };

static const ls_stage heads = {.name = "s", .axes = "row channel", .steps = 1, .head_dim_field = 1};
static const ls_stage slots = {.name = "s", .axes = "slot channel", .steps = 1};

static void open_heads(scene *s) { scene_open(s, &heads, LS_BF16, ROWS, WIDTH, HEAD); }

static double a_at(const scene *s, int64_t row, int64_t c) { return ls_tensor_get(&s->a, row * WIDTH + c); }
static void set_b(const scene *s, int64_t row, int64_t c, double v) { ls_tensor_set(&s->b, row * WIDTH + c, v); }

/* Another value, of which no pattern knows. */
static double noise(int64_t i) { return sin((double)(i * i % 7919) + 0.7 * (double)i) * 1.7; }

Test(explain_values, equal_sides_have_no_pattern) {
  scene s;
  open_heads(&s);
  const ls_pattern p = scene_explain(&s);
  cr_assert(p.id[0] == '\0' && p.text[0] == '\0');
  scene_close(&s);
}

Test(explain_values, noise_has_no_pattern) {
  scene s;
  open_heads(&s);
  for (int64_t i = 0; i < ROWS * WIDTH; i++) ls_tensor_set(&s.b, i, noise(i));
  const ls_pattern p = scene_explain(&s);
  cr_assert(p.id[0] == '\0' || p.bits < LS_PATTERN_BITS, "%s: %s", p.id, p.text);
  scene_close(&s);
}

Test(explain_values, few_scattered_failures_have_no_pattern) {
  scene s;
  open_heads(&s);
  for (int64_t i = 7; i < ROWS * WIDTH; i += 211) ls_tensor_set(&s.b, i, noise(i));
  const ls_pattern p = scene_explain(&s);
  cr_assert(p.id[0] == '\0' || p.bits < LS_PATTERN_BITS, "%s: %s", p.id, p.text);
  scene_close(&s);
}

Test(explain_values, zeros) {
  scene s;
  open_heads(&s);
  for (int64_t c = 0; c < WIDTH; c++) set_b(&s, 5, c, 0);
  assert_named(&s, "zeros");
  assert_says(&s, "row 5");
  for (int64_t c = 0; c < WIDTH; c++) set_b(&s, 5, c, 1e-4 * noise(c)); /* nearly 0 is something else */
  assert_not_named(&s, "zeros");
  scene_close(&s);
}

Test(explain_values, a_constant) {
  scene s;
  open_heads(&s);
  for (int64_t c = 0; c < WIDTH; c++) set_b(&s, 5, c, -3.5), set_b(&s, 6, c, -3.5);
  assert_named(&s, "constant");
  assert_says(&s, "-3.5");
  for (int64_t c = 0; c < WIDTH; c += 2) set_b(&s, 6, c, 3.75);
  assert_not_named(&s, "constant");
  scene_close(&s);
}

Test(explain_values, rows_from_before_the_step) {
  scene s;
  open_heads(&s);
  const int64_t dim[] = {ROWS, WIDTH};
  const ls_tensor held = add_random(s.values, "held", LS_BF16, 2, dim, 1.5);
  s.args.held = s.args.held_right = &held; /* both started from one state */
  for (int64_t row = 4; row < 7; row++)
    for (int64_t c = 0; c < WIDTH; c++) set_b(&s, row, c, ls_tensor_get(&held, row * WIDTH + c));
  assert_named(&s, "stale");
  s.args.held_right = &s.a; /* the right rows stayed too: the step does not write there, what is wrong came earlier */
  assert_not_named(&s, "stale");
  s.args.held_right = &held;
  scene_spoil(&s);
  assert_not_named(&s, "stale");
  scene_close(&s);
}

Test(explain_values, rows_of_an_earlier_step) {
  scene s;
  open_heads(&s);
  const int64_t dim[] = {ROWS, WIDTH};
  const ls_tensor older[] = {add_random(s.values, "older", LS_BF16, 2, dim, 1.5), add_random(s.values, "oldest", LS_BF16, 2, dim, 1.5)};
  const ls_explain_earlier earlier[] = {{11, &older[0]}, {9, &older[1]}};
  s.args.earlier = earlier, s.args.n_earlier = 2;
  for (int64_t c = 0; c < WIDTH; c++) set_b(&s, 2, c, ls_tensor_get(&older[1], 2 * WIDTH + c));
  assert_named(&s, "stale");
  assert_says(&s, "step 9");
  scene_spoil(&s);
  assert_not_named(&s, "stale");
  scene_close(&s);
}

/* ---- rows ---- */

static void move_rows(scene *s, int64_t (*from)(int64_t row), int64_t first, int64_t end) {
  for (int64_t row = first; row < end; row++)
    for (int64_t c = 0; c < WIDTH; c++) set_b(s, row, c, a_at(s, from(row), c));
}
static int64_t one_before(int64_t row) { return row - 1; }
static int64_t three_after(int64_t row) { return (row + 3) % ROWS; }
static int64_t backward(int64_t row) { return ROWS - 1 - row; }
static int64_t sixth(int64_t row) { return row * 0 + 6; }
static int64_t scrambled(int64_t row) { return row * 5 % ROWS; }

Test(explain_values, rows_off_by_one) {
  scene s;
  open_heads(&s);
  move_rows(&s, one_before, 1, ROWS);
  assert_named(&s, "rows-shifted");
  assert_says(&s, "r - 1: off by one");
  scene_spoil(&s);
  assert_not_named(&s, "rows-shifted");
  scene_close(&s);
}

Test(explain_values, rows_off_by_n_whose_ends_have_no_source) {
  scene s;
  open_heads(&s);
  for (int64_t row = 0; row < ROWS; row++)
    for (int64_t c = 0; c < WIDTH; c++) set_b(&s, row, c, row < 2 ? noise(row * WIDTH + c) : a_at(&s, row - 2, c));
  assert_named(&s, "rows-shifted");
  assert_says(&s, "row r holds row r - 2: off by a constant; 2 at the end hold other values");
  for (int64_t row = 0; row < ROWS; row++) /* most of them have none: no shift */
    for (int64_t c = 0; c < WIDTH; c++) set_b(&s, row, c, row < 12 ? noise(row * WIDTH + c) : a_at(&s, row - 12, c));
  assert_not_named(&s, "rows-shifted");
  scene_close(&s);
}

Test(explain_values, one_row_that_is_another) {
  scene s;
  open_heads(&s);
  for (int64_t c = 0; c < WIDTH; c++) set_b(&s, 9, c, a_at(&s, 4, c));
  assert_named(&s, "rows-shifted");
  assert_says(&s, "row 9: it holds row 4");
  scene_close(&s);
}

Test(explain_values, slots_turned_around_the_end) {
  scene s;
  scene_open(&s, &slots, LS_BF16, ROWS, WIDTH, 0);
  move_rows(&s, three_after, 0, ROWS);
  assert_named(&s, "rows-shifted");
  assert_says(&s, "around the end");
  scene_spoil(&s);
  assert_not_named(&s, "rows-shifted");
  scene_close(&s);
}

Test(explain_values, rows_in_reverse) {
  scene s;
  open_heads(&s);
  move_rows(&s, backward, 0, ROWS);
  assert_named_and_not_when_spoilt(&s, "rows-reversed");
  scene_close(&s);
}

Test(explain_values, one_row_in_place_of_the_others) {
  scene s;
  open_heads(&s);
  move_rows(&s, sixth, 0, ROWS);
  assert_named(&s, "row-repeated");
  assert_says(&s, "row 6");
  scene_spoil(&s);
  assert_not_named(&s, "row-repeated");
  scene_close(&s);
}

Test(explain_values, rows_that_changed_places) {
  scene s;
  open_heads(&s);
  move_rows(&s, scrambled, 0, ROWS);
  assert_named(&s, "rows-moved");
  assert_says(&s, "1 holds 5, 2 holds 10");
  for (int64_t c = 0; c < WIDTH; c++) set_b(&s, 3, c, noise(c)); /* a row that is none of the step's */
  assert_not_named(&s, "rows-moved");
  scene_close(&s);
}

/* ---- heads and channels ---- */

static void move_channels(scene *s, int64_t (*from)(int64_t c)) {
  for (int64_t row = 0; row < ROWS; row++)
    for (int64_t c = 0; c < WIDTH; c++) set_b(s, row, c, a_at(s, row, from(c)));
}
static int64_t next_head(int64_t c) { return (c + HEAD) % WIDTH; }
static int64_t neighbour(int64_t c) { return c ^ 1; }
static int64_t other_half(int64_t c) { return c / HEAD * HEAD + (c % HEAD + HEAD / 2) % HEAD; }
static int64_t interleaved(int64_t c) { return c / HEAD * HEAD + c % HEAD / 2 + c % 2 * (HEAD / 2); }
static int64_t dealt(int64_t c) { return c / HEAD * HEAD + c % HEAD % (HEAD / 2) * 2 + c % HEAD / (HEAD / 2); }
static int64_t last_first(int64_t c) { return c / HEAD * HEAD + HEAD - 1 - c % HEAD; }
static int64_t transposed(int64_t c) { return c % HEADS * HEAD + c / HEADS; }

Test(explain_values, channels_in_another_place) {
  static const struct {
    int64_t (*from)(int64_t c);
    const char *id;
  } moves[] = {{next_head, "heads-shifted"},          {neighbour, "pairs-swapped"},    {other_half, "halves-swapped"},
               {interleaved, "channels-interleaved"}, {dealt, "channels-interleaved"}, {last_first, "channels-reversed"},
               {transposed, "groups-transposed"}};
  for (size_t i = 0; i < sizeof moves / sizeof *moves; i++) {
    scene s;
    open_heads(&s);
    move_channels(&s, moves[i].from);
    assert_named_and_not_when_spoilt(&s, moves[i].id);
    scene_close(&s);
  }
}

/* ---- numbers ---- */

static void scale(scene *s, double by, double spread) {
  for (int64_t i = 0; i < ROWS * WIDTH; i++) ls_tensor_set(&s->b, i, ls_tensor_get(&s->a, i) * (by + spread * noise(i)));
}

Test(explain_values, a_constant_ratio) {
  scene s;
  open_heads(&s);
  scale(&s, 0.25, 0);
  assert_named(&s, "ratio");
  assert_says(&s, "2^-2");
  scale(&s, 1 / sqrt(96), 0);
  assert_named(&s, "ratio");
  assert_says(&s, "96^-1/2");
  scale(&s, 0.25, 0.01); /* a ratio that moves by 2% from element to element is none */
  assert_not_named(&s, "ratio");
  scene_close(&s);
}

Test(explain_values, signs) {
  scene s;
  open_heads(&s);
  scale(&s, -1, 0);
  assert_named_and_not_when_spoilt(&s, "sign");
  for (int64_t i = 0; i < ROWS * WIDTH; i++) ls_tensor_set(&s.b, i, fabs(ls_tensor_get(&s.a, i)));
  assert_named_and_not_when_spoilt(&s, "sign");
  scene_close(&s);
}

Test(explain_values, one_bit) {
  scene s;
  open_heads(&s);
  for (int64_t i = 0; i < ROWS * WIDTH; i += 5) ((uint16_t *)s.b.data)[i] ^= 1u << 5;
  assert_named(&s, "bit");
  assert_says(&s, "bit 5");
  for (int64_t i = 0; i < ROWS * WIDTH; i += 10) ((uint16_t *)s.b.data)[i] ^= 3u << 5; /* now half of them another bit */
  assert_not_named(&s, "bit");
  scene_close(&s);
}

Test(explain_values, not_finite) {
  scene s;
  open_heads(&s);
  for (int64_t c = HEAD; c < 2 * HEAD; c++) set_b(&s, 9, c, NAN);
  assert_named(&s, "non-finite");
  assert_says(&s, "row 9 channel 32");
  for (int64_t i = 0; i < ROWS * WIDTH; i += 2) ls_tensor_set(&s.b, i, noise(i)); /* one NaN among much else is not what is wrong */
  assert_not_named(&s, "non-finite");
  scene_close(&s);
}

/* ---- places ---- */

static void ruin(scene *s, bool (*inside)(int64_t row, int64_t c)) {
  for (int64_t row = 0; row < ROWS; row++)
    for (int64_t c = 0; c < WIDTH; c++)
      if (inside(row, c)) set_b(s, row, c, noise(row * WIDTH + c));
}
static bool in_head_2(int64_t row, int64_t c) { return row >= 0 && c / HEAD == 2; }
static bool every_8th(int64_t row, int64_t c) { return row >= 0 && c % 8 == 3; }
static bool after_10(int64_t row, int64_t c) { return c >= 0 && row >= 10; }
static bool before_3(int64_t row, int64_t c) { return c >= 0 && row < 3; }
static bool row_7(int64_t row, int64_t c) { return c >= 0 && row == 7; }
static bool some_rows(int64_t row, int64_t c) { return c >= 0 && (row == 2 || row == 3 || row == 11); }
static bool around(int64_t row, int64_t c) { return c >= 0 && (row >= 14 || row < 2); }
static bool tail(int64_t row, int64_t c) { return row >= 0 && c % HEAD >= 24; }

Test(explain_values, places_where_no_values_explain_it) {
  static const struct {
    bool (*inside)(int64_t row, int64_t c);
    const ls_stage *stage;
    const char *id, *text;
  } places[] = {{in_head_2, &heads, "one-head", "head 2 alone"},
                {every_8th, &heads, "every-nth-channel", "every 8th channel from 3 on"},
                {after_10, &heads, "rows-after", "all from row 10 on"},
                {before_3, &heads, "rows-before", "all before row 3"},
                {row_7, &heads, "one-row", "row 7"},
                {some_rows, &heads, "whole-rows", "3 of 16 rows differ"},
                {around, &slots, "ring-span", "slots 14 .. 1"},
                {tail, &heads, "channel-range", "channels 24 .. 31"}};
  for (size_t i = 0; i < sizeof places / sizeof *places; i++) {
    scene s;
    scene_open(&s, places[i].stage, LS_BF16, ROWS, WIDTH, HEAD);
    ruin(&s, places[i].inside);
    assert_named(&s, places[i].id);
    assert_says(&s, places[i].text);
    s.args.inherits = true; /* what was wrong before says nothing here */
    assert_not_named(&s, places[i].id);
    s.args.inherits = false;
    for (int64_t k = 0; k < ROWS * WIDTH; k++) /* the near miss: the same rows and channels, of which few fail */
      if (k % 7 != 0) ls_tensor_set(&s.b, k, ls_tensor_get(&s.a, k));
    assert_not_named(&s, places[i].id);
    scene_close(&s);
  }
}

Test(explain_values, positions_are_named_where_they_are_known) {
  scene s;
  open_heads(&s);
  ruin(&s, after_10);
  s.args.compare.names = (ls_place_names){.base = 2166, .capacity = 2176, .head_dim = HEAD};
  assert_says(&s, "6 of 16 rows differ, all with position >= 2176");
  scene_close(&s);
}

Test(explain_values, an_element_that_is_not_defined_is_not_looked_at) {
  scene s;
  open_heads(&s);
  const int64_t dim[] = {ROWS, WIDTH};
  const ls_tensor only = add_tensor(s.values, "only", LS_U8, 2, dim);
  for (int64_t i = 0; i < ROWS * WIDTH; i++) ls_tensor_set(&only, i, i / WIDTH != 5);
  for (int64_t c = 0; c < WIDTH; c++) set_b(&s, 5, c, 0);
  s.args.compare.only = &only;
  const ls_pattern p = scene_explain(&s);
  cr_assert(p.id[0] == '\0', "%s", p.text);
  scene_close(&s);
}

Test(explain_values, what_cannot_be_compared_has_no_pattern) {
  scene s;
  open_heads(&s);
  const int64_t other[] = {ROWS, WIDTH - 1};
  const ls_tensor narrow = add_tensor(s.values, "narrow", LS_BF16, 2, other);
  s.args.compare.b = &narrow;
  cr_assert(scene_explain(&s).id[0] == '\0');
  s.args.compare.b = NULL;
  cr_assert(scene_explain(&s).id[0] == '\0');
  scene_close(&s);
}
