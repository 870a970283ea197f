#include "compare_helpers.h"

enum { LAYERS = 2, CAPACITY = 10, KV = 16 };

/* A state trace before an operation that writes positions 18..21 (slots 8, 9, 0, 1) and a copy to plant changes in. */
static void states(ls_trace **before, ls_trace **after) {
  *before = new_trace("before");
  int64_t ring[] = {LAYERS, CAPACITY, KV};
  add_random(*before, "k_ring", LS_BF16, 3, ring, 1.0);
  add_random(*before, "v_ring", LS_BF16, 3, ring, 1.0);
  add_random(*before, "capture", LS_BF16, 2, (int64_t[]){4, 32}, 1.0);
  add_tensor(*before, "cursor", LS_I64, 1, (int64_t[]){1});
  MUST(ls_trace_copy(after, *before, err));
}

static void flip(const ls_trace *trace, const char *name, int64_t layer, int64_t slot, int64_t channel) {
  ((uint16_t *)ls_trace_tensor(trace, name)->data)[(layer * CAPACITY + slot) * KV + channel] ^= 1;
}

static ls_result write_set(const ls_trace *before, const ls_trace *after, int64_t rows, const char *const *may_change) {
  ls_result r;
  ls_compare_write_set(&r, before, after, 18, rows, CAPACITY, may_change);
  return r;
}

Test(compare_write_set, the_written_slots_may_change) {
  ls_trace *before, *after;
  states(&before, &after);
  const int64_t slots[] = {8, 9, 0, 1};
  for (int i = 0; i < 4; i++) {
    for (int64_t layer = 0; layer < LAYERS; layer++) flip(after, "k_ring", layer, slots[i], i), flip(after, "v_ring", layer, slots[i], 15);
  }
  *(int64_t *)ls_trace_tensor(after, "cursor")->data = 22;
  ls_result r = write_set(before, after, 4, (const char *const[]){"cursor", NULL});
  assert_verdict(r, LS_PASS);
  cr_assert(r.count == 2 * LAYERS * 6 * KV + 4 * 32 && r.bit_equal == r.count);
  r = write_set(before, after, 4, (const char *const[]){NULL});
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "cursor");
  r = write_set(before, after, 0, (const char *const[]){"cursor", NULL}); /* after a refusal nothing may */
  assert_verdict(r, LS_FAIL);
  ls_trace_free(before);
  ls_trace_free(after);
}

Test(compare_write_set, a_slot_before_after_or_between_is_found) {
  const int64_t slot[] = {7, 2, 5};
  for (int i = 0; i < 3; i++) {
    for (int ring = 0; ring < 2; ring++) {
      ls_trace *before, *after;
      states(&before, &after);
      const char *name = ring ? "v_ring" : "k_ring";
      flip(after, name, 1, slot[i], 11);
      ls_result r = write_set(before, after, 4, (const char *const[]){"cursor", NULL});
      assert_verdict(r, LS_FAIL);
      char place[128];
      snprintf(place, sizeof place, "%s layer 1 slot %d channel 11 outside the slots of positions 18..21", name, (int)slot[i]);
      assert_has(r.note, place);
      cr_assert(r.failing == 1 && r.rows_failing == 1);
      ls_trace_free(before);
      ls_trace_free(after);
    }
  }
}

Test(compare_write_set, a_change_of_sign_of_zero_is_a_change) {
  ls_trace *before, *after;
  states(&before, &after);
  ((uint16_t *)ls_trace_tensor(before, "capture")->data)[33] = 0;
  ((uint16_t *)ls_trace_tensor(after, "capture")->data)[33] = 0x8000;
  ls_result r = write_set(before, after, 4, NULL);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "capture row 1 channel 1");
  assert_has(r.note, "in its bits");
  r = write_set(before, after, 4, (const char *const[]){"capture", NULL});
  assert_verdict(r, LS_PASS);
  ls_trace_free(before);
  ls_trace_free(after);
}

Test(compare_write_set, a_tensor_that_comes_goes_or_changes_its_shape_fails) {
  ls_trace *before, *after;
  states(&before, &after);
  add_tensor(after, "extra", LS_I64, 1, (int64_t[]){1});
  ls_result r = write_set(before, after, 4, NULL);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "extra");
  r = write_set(after, before, 4, NULL);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "extra");
  ls_trace *other = new_trace("other"), *same = new_trace("same");
  add_tensor(other, "x", LS_BF16, 1, (int64_t[]){4});
  add_tensor(same, "x", LS_F16, 1, (int64_t[]){4});
  r = write_set(other, same, 4, NULL);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "bf16 [4] against f16 [4]");
  ls_trace_free(before);
  ls_trace_free(after);
  ls_trace_free(other);
  ls_trace_free(same);
}

Test(compare_write_set, nothing_compared_is_no_pass) {
  ls_trace *a = new_trace("a"), *b = new_trace("b");
  ls_result r = write_set(a, b, 4, NULL);
  assert_verdict(r, LS_MISTRUSTED);
  ls_trace_free(a);
  ls_trace_free(b);
}

Test(compare_same_bytes, equal_traces_pass_and_one_bit_fails) {
  ls_trace *a, *b;
  states(&a, &b);
  ls_place_names place = {.base = 18, .capacity = CAPACITY, .head_dim = 8};
  ls_result r;
  ls_compare_same_bytes(&r, a, b, NULL, &place);
  assert_verdict(r, LS_PASS);
  cr_assert(r.count == 2 * LAYERS * CAPACITY * KV + 4 * 32 + 1);
  flip(b, "v_ring", 0, 3, 9);
  ls_compare_same_bytes(&r, a, b, NULL, &place);
  assert_verdict(r, LS_FAIL);
  cr_assert_str_eq(r.where, "layer 0 slot 3 head 1 channel 1");
  assert_has(r.note, "v_ring");
  ls_compare_same_bytes(&r, a, b, (const char *const[]){"k_ring", "cursor", NULL}, &place);
  assert_verdict(r, LS_PASS);
  ls_compare_same_bytes(&r, a, b, (const char *const[]){"k_ring", "absent", NULL}, &place);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "absent: held by neither side");
  ls_trace_free(a);
  ls_trace_free(b);
}

Test(compare_same_bytes, equal_nan_payloads_are_equal_and_others_not) {
  ls_trace *a, *b;
  states(&a, &b);
  uint16_t *x = ls_trace_tensor(a, "k_ring")->data, *y = ls_trace_tensor(b, "k_ring")->data;
  x[0] = y[0] = 0x7FC3;
  ls_result r;
  ls_compare_same_bytes(&r, a, b, NULL, NULL);
  assert_verdict(r, LS_PASS);
  y[0] = 0x7FC4;
  ls_compare_same_bytes(&r, a, b, NULL, NULL);
  assert_verdict(r, LS_FAIL);
  ls_trace_free(a);
  ls_trace_free(b);
}
