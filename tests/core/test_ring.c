/* ls_ring against a model that writes positions one by one into an array. */
#include <criterion/criterion.h>

#include "core/ls_ring.h"

enum { MOST = 40 };

static void compare_with_model(int64_t base, int64_t rows, int64_t capacity) {
  int64_t row_in[MOST]; /* what the model wrote into each slot: a row, or -1 */
  for (int64_t s = 0; s < capacity; s++) row_in[s] = -1;
  int64_t slot = 0;
  /* the model's only knowledge: slot 0 holds position 0, and counting on wraps at capacity; start at a lap below base */
  for (int64_t p = base / capacity * capacity; p < base + rows; p++, slot = slot + 1 == capacity ? 0 : slot + 1) {
    if (p < base) continue;
    cr_assert_eq(ls_ring_slot(p, capacity), slot, "position %ld, capacity %ld", (long)p, (long)capacity);
    row_in[slot] = p - base;
  }
  ls_span span[2];
  int n = ls_ring_spans(span, base, rows, capacity), filled = 0;
  int64_t from_spans[MOST];
  for (int64_t s = 0; s < capacity; s++) from_spans[s] = -1;
  for (int i = 0; i < 2; i++) {
    cr_assert_eq(span[i].rows > 0, i < n, "the non-empty spans come first");
    for (int64_t r = 0; r < span[i].rows; r++) {
      cr_assert(span[i].slot + r < capacity, "a span ends at the end of the ring");
      cr_assert_eq(from_spans[span[i].slot + r], -1, "no slot is written twice");
      from_spans[span[i].slot + r] = span[i].row + r;
      filled++;
    }
  }
  cr_assert_eq(filled, rows);
  for (int64_t s = 0; s < capacity; s++) {
    cr_assert_eq(from_spans[s], row_in[s], "slot %ld, base %ld, rows %ld, capacity %ld", (long)s, (long)base, (long)rows, (long)capacity);
    int64_t row = -1;
    bool hit = ls_ring_row_of_slot(&row, s, base, rows, capacity);
    cr_assert_eq(hit, row_in[s] >= 0);
    cr_assert_eq(row, row_in[s], "slot %ld, base %ld, rows %ld, capacity %ld", (long)s, (long)base, (long)rows, (long)capacity);
  }
}

Test(ring, agrees_with_a_model_for_all_bases_rows_and_capacities_up_to_40) {
  for (int64_t capacity = 1; capacity <= MOST; capacity++)
    for (int64_t rows = 0; rows <= capacity; rows++)
      for (int64_t base = 0; base <= 3 * capacity; base++) compare_with_model(base, rows, capacity);
}

Test(ring, agrees_with_a_model_at_the_end_of_the_position_range) {
  for (int64_t capacity = 1; capacity <= MOST; capacity++)
    for (int64_t rows = 0; rows <= capacity; rows++)
      for (int64_t before = 0; before <= capacity; before++) compare_with_model(LS_POSITION_LIMIT - rows - before, rows, capacity);
}

Test(ring, a_slot_outside_the_ring_belongs_to_no_row) {
  int64_t row = 7;
  cr_assert_not(ls_ring_row_of_slot(&row, -1, 3, 5, 5));
  cr_assert_not(ls_ring_row_of_slot(&row, 5, 3, 5, 5));
  cr_assert_eq(row, 7);
}

Test(ring, positions_end_at_2_to_the_31) {
  cr_assert(ls_positions_valid(0, 0));
  cr_assert(ls_positions_valid(0, LS_POSITION_LIMIT));
  cr_assert(ls_positions_valid(LS_POSITION_LIMIT - 1, 1));
  cr_assert_not(ls_positions_valid(LS_POSITION_LIMIT - 1, 2));
  cr_assert_not(ls_positions_valid(LS_POSITION_LIMIT, 1));
  cr_assert_not(ls_positions_valid(-1, 1));
  cr_assert_not(ls_positions_valid(0, -1));
  cr_assert_not(ls_positions_valid(INT64_MAX, INT64_MAX));
  cr_assert_not(ls_positions_valid(INT64_MIN, 1));
  cr_assert_not(ls_positions_valid(1, INT64_MAX));
}
