/* Maps of errors and views of selections: what they show is where it is. */
#include "selection_helpers.h"

/* ---- maps ---- */

static ls_cell cell_at(const ls_cell_grid *g, int down, int across) { return (ls_cell)g->cell[down * g->across + across]; }

static int64_t count_of(const ls_cell_grid *g, ls_cell cell) {
  int64_t n = 0;
  for (int i = 0; i < g->down * g->across; i++) n += g->cell[i] == cell;
  return n;
}

Test(detail_map, a_small_tensor_has_a_cell_an_element) {
  static ls_map map;
  ls_map_start(&map, 3, 12, 4, false);
  cr_expect(map.by_head.down == 3 && map.by_head.across == 3 && map.by_channel.down == 3 && map.by_channel.across == 4);
  ls_map_mark(&map, 1 * 12 + 6, 0.2, false); /* row 1, head 1, channel 2 */
  cr_expect_eq(cell_at(&map.by_head, 1, 1), LS_CELL_30);
  cr_expect_eq(cell_at(&map.by_channel, 1, 2), LS_CELL_30);
  ls_map_mark(&map, 1 * 12 + 6, 0.05, false); /* the larger one stays */
  cr_expect_eq(cell_at(&map.by_head, 1, 1), LS_CELL_30);
  cr_expect(count_of(&map.by_head, LS_CELL_EQUAL) == 8 && count_of(&map.by_channel, LS_CELL_EQUAL) == 11);
}

Test(detail_map, levels_begin_where_they_say) {
  static const struct {
    double use;
    bool lonely;
    ls_cell cell;
  } tried[] = {{0, false, LS_CELL_EQUAL},       {0.01, false, LS_CELL_1},   {0.0101, false, LS_CELL_3},  {0.1, false, LS_CELL_10},
               {0.3, false, LS_CELL_30},        {1, false, LS_CELL_100},    {1.0001, false, LS_CELL_2X}, {2, false, LS_CELL_2X},
               {10, false, LS_CELL_10X},        {100, false, LS_CELL_100X}, {101, false, LS_CELL_MORE},  {INFINITY, false, LS_CELL_MORE},
               {INFINITY, true, LS_CELL_LONELY}};
  for (size_t i = 0; i < sizeof tried / sizeof *tried; i++) {
    static ls_map map;
    ls_map_start(&map, 1, 1, 0, false);
    ls_map_mark(&map, 0, tried[i].use, tried[i].lonely);
    cr_expect_eq(cell_at(&map.by_channel, 0, 0), tried[i].cell, "%g", tried[i].use);
  }
}

/* Every element falls in the cell whose range names it. */
Test(detail_map, a_cell_of_a_large_tensor_covers_the_rows_it_names) {
  static const int64_t sizes[] = {1, 2, 95, 96, 97, 100, 127, 128, 129, 1000, 2176, 5120};
  for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
    const int64_t n = sizes[s];
    for (int64_t i = 0; i < n; i++) {
      static ls_map map;
      int64_t first, last;
      ls_map_start(&map, 1, n, 0, false);
      ls_map_mark(&map, i, 5, false);
      const ls_cell_grid *g = &map.by_channel;
      cr_assert_eq(count_of(g, LS_CELL_10X), 1);
      int cell = 0;
      while (g->cell[cell] != LS_CELL_10X) cell++;
      ls_cells_range(&first, &last, cell, g->across, n);
      cr_assert(first <= i && i <= last && first >= 0 && last < n, "element %d of %d: cell %d, %d to %d", (int)i, (int)n, cell, (int)first,
                (int)last);
    }
  }
}

Test(detail_map, nothing_to_map_is_no_map) {
  static ls_map map;
  ls_map_start(&map, 0, 64, 32, false);
  cr_expect(map.width == 0 && map.by_channel.rows == 0);
  ls_map_mark(&map, 0, 1, false); /* and is not written to */
}

static ls_map compared(int threads, const ls_tensor *a, const ls_tensor *b, const ls_tensor *only) {
  static const ls_stage stage = {.name = "q", .axes = "row channel", .steps = 1, .head_dim_field = 1};
  static ls_map map;
  ls_result r;
  ls_threads_set(threads);
  const ls_compare_args args = {
      .stage = &stage, .type = LS_BF16, .a = a, .b = b, .steps = 1, .names = {.head_dim = 64}, .only = only, .map = &map};
  ls_compare_tensor(&r, &args);
  return map;
}

Test(detail_map, a_comparison_fills_it_the_same_on_any_number_of_threads) {
  enum { ROWS = 700, WIDTH = 512 };
  const int64_t dim[] = {ROWS, WIDTH};
  ls_trace *trace = new_trace("test");
  ls_tensor a = add_random(trace, "a", LS_BF16, 2, dim, 1.0), b = add_copy(trace, "b", &a), only = add_tensor(trace, "only", LS_U8, 2, dim);
  uint16_t *bits = b.data;
  bits[3 * WIDTH + 130] ^= 0x4000;                                  /* row 3, head 2, channel 2: far off */
  bits[690 * WIDTH + 65] = 0x7FC0;                                  /* row 690, head 1, channel 1: NaN */
  for (int row = 100; row < 200; row++) bits[row * WIDTH + 7] ^= 1; /* one step, in head 0 */
  static ls_map first, again;
  first = compared(1, &a, &b, NULL);
  again = compared(4, &a, &b, NULL);
  cr_expect_eq(memcmp(&first, &again, sizeof first), 0);
  cr_expect_eq(cell_at(&first.by_head, 3 * 96 / ROWS, 2), LS_CELL_MORE);
  cr_expect_eq(cell_at(&first.by_channel, 3 * 96 / ROWS, 2), LS_CELL_MORE);
  cr_expect_eq(cell_at(&first.by_head, 690 * 96 / ROWS, 1), LS_CELL_LONELY);
  for (int row = 100; row < 200; row++) cr_expect_eq(cell_at(&first.by_head, row * 96 / ROWS, 0), LS_CELL_100);
  cr_expect_eq(count_of(&first.by_head, LS_CELL_EQUAL), 96 * 8 - 2 - (199 * 96 / ROWS - 100 * 96 / ROWS + 1));

  for (int i = 0; i < WIDTH; i++) ls_tensor_set(&only, 3 * WIDTH + i, 1); /* only row 3 is compared */
  first = compared(2, &a, &b, &only);
  cr_expect_eq(count_of(&first.by_head, LS_CELL_NONE), 95 * 8);
  cr_expect_eq(count_of(&first.by_head, LS_CELL_EQUAL), 7);
  cr_expect_eq(cell_at(&first.by_head, 0, 2), LS_CELL_MORE);
  ls_trace_free(trace);
}

/* ---- selections ---- */

Test(detail_choice, a_view_shows_the_scores_around_the_last_place_and_what_one_side_alone_chose) {
  enum { M = 2, N = 400, K = 60 };
  const int64_t of_scores[] = {M, N}, of_choice[] = {M, K};
  ls_trace *trace = new_trace("test");
  ls_tensor score = add_random(trace, "score", LS_F32, 2, of_scores, 1.0), idx = add_tensor(trace, "idx", LS_I32, 2, of_choice),
            other = add_tensor(trace, "other", LS_I32, 2, of_choice);
  const ls_select_rule rule = {.m = M, .n = N, .k = K, .offset = 8, .start_pos = N - 1, .ratio = 1, .lower_wins = true};
  for (int64_t i = 0; i < 5; i++) ls_tensor_set(&score, N + 17 + i, 0.71); /* ties somewhere */
  choose(&idx, &score, &rule);
  choose(&other, &score, &rule);
  const int64_t dropped = (int64_t)ls_tensor_get(&other, K) - 8;
  ls_tensor_set(&other, K, 8 + N - 1 == ls_tensor_get(&idx, 2 * K - 1) ? 8 + N - 2 : 8 + N - 1); /* query 1: an entry of its own */
  const int64_t taken = (int64_t)ls_tensor_get(&other, K) - 8;
  const ls_selection a = {.idx = &idx, .score = &score}, b = {.idx = &other, .score = &score};
  static ls_choice_view view;
  ls_selection_view(&view, &a, &b, &rule, 1);
  cr_expect(view.row == 1 && view.k == K && view.eligible == N && view.n >= 2 * LS_CHOICE_AROUND);
  bool saw_dropped = false, saw_taken = false;
  for (int i = 0; i < view.n; i++) {
    const ls_choice_item *t = &view.item[i];
    if (i > 0) cr_expect(t->place > view.item[i - 1].place && t->score[0] <= view.item[i - 1].score[0]);
    cr_expect_eq(t->score[0], ls_tensor_get(&score, N + t->position));
    if (t->place >= K - LS_CHOICE_AROUND && t->place < K && t->position != dropped) cr_expect(t->in[0] && t->in[1]);
    if (t->place >= K && t->position != taken) cr_expect(!t->in[0] && !t->in[1]);
    if (t->position == dropped) saw_dropped = t->in[0] && !t->in[1];
    if (t->position == taken) saw_taken = !t->in[0] && t->in[1];
  }
  cr_expect(saw_dropped && saw_taken);
  int64_t places = 0;
  for (int64_t place = K - LS_CHOICE_AROUND; place < K + LS_CHOICE_AROUND; place++)
    for (int i = 0; i < view.n; i++) places += view.item[i].place == place;
  cr_expect_eq(places, 2 * LS_CHOICE_AROUND);
  ls_selection_view(&view, &a, &b, &rule, M); /* no such query */
  cr_expect_eq(view.n, 0);
  ls_trace_free(trace);
}

Test(detail_choice, ties_at_the_end_and_what_may_not_be_chosen_are_counted) {
  enum { N = 10, K = 3 };
  const int64_t of_scores[] = {1, N}, of_choice[] = {1, K};
  ls_trace *trace = new_trace("test");
  ls_tensor score = add_tensor(trace, "score", LS_F32, 2, of_scores), idx = add_tensor(trace, "idx", LS_I32, 2, of_choice),
            mask = add_tensor(trace, "mask", LS_U8, 2, of_scores);
  const double scores[N] = {0.5, 0.25, 0.5, 0.25, 0.25, -INFINITY, 9, 0.25, 0.25, 7};
  for (int i = 0; i < N; i++) ls_tensor_set(&score, i, scores[i]), ls_tensor_set(&mask, i, i != 6);
  const ls_select_rule rule = {.m = 1, .n = N, .k = K, .start_pos = 7, .ratio = 1, .mask = &mask, .lower_wins = true}; /* 8 are visible */
  choose(&idx, &score, &rule);
  const ls_selection a = {.idx = &idx, .score = &score};
  static ls_choice_view view;
  ls_selection_view(&view, &a, &a, &rule, 0);
  cr_expect(view.eligible == 6 && view.equals == 4 && view.n == 6, "%d, %d, %d", (int)view.eligible, (int)view.equals, view.n);
  const int64_t order[] = {0, 2, 1, 3, 4, 7};
  for (int i = 0; i < view.n; i++) cr_expect(view.item[i].position == order[i] && view.item[i].in[0] == (i < K));
  ls_trace_free(trace);
}
