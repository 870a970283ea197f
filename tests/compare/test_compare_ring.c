#include "compare_helpers.h"

enum { LAYERS = 2, CAPACITY = 12, KV = 64 };

static const ls_stage k_ring = {.name = "k_ring", .axes = "layer slot channel", .is_ring = true, .head_dim_field = 1};

/* A history of three writes on a ring of 12: 0..7 at step 1, 8..11 at step 3, 12..14 at step 5 (slots 0..2 again). k and v: the rings as
 * a right path holds them. */
typedef struct {
  ls_trace *trace;
  ls_ring_history *history;
  ls_tensor k, v, bad; /* bad: a copy of k to plant faults in */
  ls_tensor rows_k[3], rows_v[3];
} rig;

static const int64_t base_of[] = {0, 8, 12}, rows_of[] = {8, 4, 3}, step_of[] = {1, 3, 5};

static uint16_t *slot_of(const ls_tensor *ring, int64_t layer, int64_t slot) {
  return (uint16_t *)ring->data + (layer * CAPACITY + slot) * KV;
}

static void put(const ls_tensor *ring, int64_t base, const ls_tensor *rows) {
  for (int64_t layer = 0; layer < LAYERS; layer++) {
    for (int64_t r = 0; r < rows->dim[1]; r++) {
      memcpy(slot_of(ring, layer, (base + r) % CAPACITY), (uint16_t *)rows->data + (layer * rows->dim[1] + r) * KV, KV * 2);
    }
  }
}

static void setup_writes(rig *g, int writes, bool bounded) {
  int64_t ring[] = {LAYERS, CAPACITY, KV};
  g->trace = new_trace("test");
  MUST(ls_ring_history_new(&g->history, LAYERS, CAPACITY, KV, err));
  ls_ring_history_heads(g->history, 32);
  g->k = add_tensor(g->trace, "k_ring", LS_BF16, 3, ring);
  g->v = add_tensor(g->trace, "v_ring", LS_BF16, 3, ring);
  for (int i = 0; i < writes; i++) {
    char name[16];
    int64_t dim[] = {LAYERS, rows_of[i], KV};
    snprintf(name, sizeof name, "k%d", i);
    g->rows_k[i] = add_random(g->trace, name, LS_BF16, 3, dim, 1.0);
    name[0] = 'v';
    g->rows_v[i] = add_random(g->trace, name, LS_BF16, 3, dim, 1.0);
    name[0] = 'b';
    ls_tensor bound = add_tensor(g->trace, name, LS_F32, 3, dim);
    for (int64_t e = 0; e < ls_tensor_count(&bound); e++) ls_tensor_set(&bound, e, e < rows_of[i] * KV ? 0x1p-6 : 0x1p-12); /* by layer */
    put(&g->k, base_of[i], &g->rows_k[i]);
    put(&g->v, base_of[i], &g->rows_v[i]);
    MUST(ls_ring_history_write(g->history, step_of[i], i == 0 ? "draft_write" : "context_write", base_of[i], rows_of[i], &g->rows_k[i],
                               &g->rows_v[i], bounded ? &bound : NULL, bounded ? &bound : NULL, err));
  }
  g->bad = add_copy(g->trace, "bad", &g->k);
}

static void setup(rig *g) { setup_writes(g, 3, true); }

static void teardown(rig *g) {
  ls_ring_history_free(g->history);
  ls_trace_free(g->trace);
}

static ls_result judge(const rig *g, const ls_tensor *a, const ls_tensor *b) {
  ls_result r;
  ls_compare_ring(&r, g->history, &k_ring, LS_BF16, false, a, b, 0, 0);
  return r;
}

/* The same fault is found against the trusted ring and against the history alone. */
static ls_result must_fail(const rig *g, const char *note) {
  ls_result r = judge(g, NULL, &g->bad);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, note);
  r = judge(g, &g->k, &g->bad);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, note);
  return r;
}

Test(compare_ring, right_rings_pass_against_the_history_and_against_each_other) {
  rig g;
  setup(&g);
  ls_result r = judge(&g, NULL, &g.k);
  assert_verdict(r, LS_PASS);
  cr_assert(r.count == LAYERS * CAPACITY * KV && r.bit_equal == r.count && r.rows == LAYERS * CAPACITY);
  r = judge(&g, &g.k, &g.bad);
  assert_verdict(r, LS_PASS);
  ls_compare_ring(&r, g.history, &k_ring, LS_BF16, true, NULL, &g.v, 0, 0);
  assert_verdict(r, LS_PASS);
  ls_compare_ring(&r, g.history, &k_ring, LS_BF16, true, NULL, &g.k, 0, 0); /* K where V should be */
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "the K row of position");
  teardown(&g);
}

/* From one state and by one write: only its rows may differ, by the bound that is handed in. */
Test(compare_ring, isolated_rings_differ_only_in_what_was_written) {
  rig g;
  setup(&g);
  const int64_t dim[] = {LAYERS, 3, KV};
  ls_tensor bound = add_tensor(g.trace, "isolated", LS_F32, 3, dim);
  for (int64_t e = 0; e < ls_tensor_count(&bound); e++) ls_tensor_set(&bound, e, 0x1p-3);
  const ls_tensor place = ls_tensor_make(LS_BF16, 1, (int64_t[]){KV}, slot_of(&g.bad, 0, 1)); /* position 13, of the last write */
  ls_tensor_set(&place, 5, ls_tensor_get(&place, 5) + 0.1);
  assert_verdict(judge(&g, &g.k, &g.bad), LS_FAIL);
  ls_ring_history_isolated(g.history, 12, 3, &bound, NULL);
  assert_verdict(judge(&g, &g.k, &g.bad), LS_PASS);
  ls_ring_history_isolated(g.history, 12, 3, NULL, NULL);
  assert_verdict(judge(&g, &g.k, &g.bad), LS_FAIL);

  MUST(ls_tensor_copy(&g.bad, &g.k, err)); /* an older row, off by less than its bound: that is for states that are each path's own */
  const ls_tensor older = ls_tensor_make(LS_BF16, 1, (int64_t[]){KV}, slot_of(&g.bad, 0, 5));
  ls_tensor_set(&older, 5, ls_tensor_get(&older, 5) + 0x1p-7);
  ls_ring_history_isolated(g.history, 12, 3, &bound, NULL);
  assert_verdict(judge(&g, &g.k, &g.bad), LS_FAIL);
  ls_ring_history_cascaded(g.history);
  assert_verdict(judge(&g, &g.k, &g.bad), LS_PASS);
  teardown(&g);
}

Test(compare_ring, one_stale_slot_is_named_with_both_positions) {
  rig g;
  setup(&g);
  for (int64_t layer = 0; layer < LAYERS; layer++)
    memcpy(slot_of(&g.bad, layer, 1), (uint16_t *)g.rows_k[0].data + (layer * 8 + 1) * KV, KV * 2);
  ls_result r = must_fail(&g, "slot 1 holds position 1 (step 1), expected 13: stale, not overwritten");
  cr_assert(r.rows_failing == 2 && r.worst_index[1] == 1);
  assert_has(r.where, "slot 1 (position 13) head ");
  teardown(&g);
}

Test(compare_ring, a_stale_slot_of_one_layer_names_the_layer) {
  rig g;
  setup(&g);
  memcpy(slot_of(&g.bad, 1, 2), (uint16_t *)g.rows_k[0].data + (8 + 2) * KV, KV * 2);
  must_fail(&g, "slot 2 layer 1 holds position 2 (step 1), expected 14: stale, not overwritten");
  teardown(&g);
}

Test(compare_ring, rows_shifted_by_one_are_named) {
  rig g;
  setup(&g);
  for (int64_t layer = 0; layer < LAYERS; layer++) { /* 12, 13, 14 went to slots 1, 2, 3 */
    for (int64_t r = 0; r < 3; r++) memcpy(slot_of(&g.bad, layer, 1 + r), slot_of(&g.k, layer, r), KV * 2);
  }
  ls_result r = must_fail(&g, "slot 1 holds position 12 of this step, expected position 13: shifted by one; 3 slots are wrong");
  cr_assert(r.rows_failing == 6);
  teardown(&g);
}

Test(compare_ring, a_skipped_stage_is_named) {
  rig g;
  setup(&g);
  ls_tensor proj = add_random(g.trace, "proj", LS_BF16, 3, (int64_t[]){LAYERS, 3, KV}, 1.0);
  MUST(ls_ring_history_intermediate(g.history, "k_proj", 12, &proj, err));
  for (int64_t layer = 0; layer < LAYERS; layer++) memcpy(slot_of(&g.bad, layer, 1), (uint16_t *)proj.data + (layer * 3 + 1) * KV, KV * 2);
  must_fail(&g, "slot 1 holds k_proj of position 13: a later stage was skipped");
  MUST(ls_ring_history_write(g.history, 7, "context_write", 15, 3, &g.rows_k[2], &g.rows_v[2], NULL, NULL, err)); /* forgets it */
  ls_result r = judge(&g, NULL, &g.bad);
  assert_lacks(r.note, "k_proj");
  teardown(&g);
}

Test(compare_ring, a_write_where_none_was_is_named) {
  rig g;
  setup_writes(&g, 1, true); /* slots 8..11 were never written */
  ls_result r = judge(&g, NULL, &g.bad);
  assert_verdict(r, LS_PASS);
  cr_assert(r.count == LAYERS * 8 * KV); /* only what was written counts */
  slot_of(&g.bad, 0, 9)[5] = 0x3F80;
  r = must_fail(&g, "slot 9 layer 0 changed, but no operation wrote it");
  cr_assert(r.failing == 1);
  ls_result other = judge(&g, &g.bad, &g.k);
  assert_verdict(other, LS_FAIL);
  assert_has(other.note, "of the trusted side");
  other = judge(&g, &g.bad, &g.bad); /* both sides alike, and still wrong */
  assert_verdict(other, LS_FAIL);
  slot_of(&g.bad, 0, 9)[5] = 0x7FC0;
  must_fail(&g, "slot 9 layer 0 changed, but no operation wrote it");
  teardown(&g);
}

Test(compare_ring, zeros_garbage_and_nan_in_a_slot_are_told_apart) {
  rig g;
  setup(&g);
  for (int64_t layer = 0; layer < LAYERS; layer++) memset(slot_of(&g.bad, layer, 9), 0, KV * 2);
  must_fail(&g, "slot 9 holds zeros, expected position 9 (step 3): never written, or cleared");
  ls_tensor noise = add_random(g.trace, "noise", LS_BF16, 1, (int64_t[]){KV}, 1.0);
  memcpy(g.bad.data, g.k.data, ls_tensor_bytes(&g.k));
  memcpy(slot_of(&g.bad, 1, 2), noise.data, KV * 2);
  must_fail(&g, "slot 2 layer 1 holds nothing seen so far, expected position 14 (step 5)");
  memset(slot_of(&g.bad, 1, 2), 0xFF, KV * 2);
  must_fail(&g, "slot 2 layer 1 holds values that are not finite");
  teardown(&g);
}

Test(compare_ring, rows_of_another_layer_or_slot_or_write_are_named) {
  rig g;
  setup(&g);
  memcpy(slot_of(&g.bad, 0, 6), slot_of(&g.k, 1, 6), KV * 2);
  must_fail(&g, "slot 6 layer 0 holds layer 1's row of position 6 (step 1), expected position 6 of layer 0");
  memcpy(slot_of(&g.bad, 0, 6), slot_of(&g.k, 0, 9), KV * 2);
  must_fail(&g, "slot 6 layer 0 holds position 9 (step 3), which belongs in slot 9; expected position 6");
  memcpy(slot_of(&g.bad, 0, 6), slot_of(&g.v, 0, 6), KV * 2);
  must_fail(&g, "slot 6 layer 0 holds the V row of position 6 (step 1), expected position 6");
  memcpy(slot_of(&g.bad, 0, 6), slot_of(&g.k, 0, 6), KV * 2);

  /* position 14 again, drafted over at step 9 */
  ls_tensor k = add_random(g.trace, "again_k", LS_BF16, 3, (int64_t[]){LAYERS, 1, KV}, 1.0);
  MUST(ls_ring_history_write(g.history, 9, "draft_write", 14, 1, &k, &k, NULL, NULL, err));
  ls_result r = judge(&g, NULL, &g.bad);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note,
             "slot 2 holds position 14 as step 5 wrote it (context_write), expected that of step 9 (draft_write): stale, not overwritten");
  teardown(&g);
}

Test(compare_ring, a_row_that_is_a_little_off_is_called_what_it_is) {
  rig g;
  setup(&g);
  slot_of(&g.bad, 1, 0)[40] = ls_f32_to_bf16(ls_bf16_to_f32(slot_of(&g.bad, 1, 0)[40]) + 0.05f);
  ls_result r = must_fail(&g, "slot 0 layer 1 holds position 12 as expected, but outside its bound");
  cr_assert(r.failing == 1);
  cr_assert_str_eq(r.where, "layer 1 slot 0 (position 12) head 1 channel 8");
  teardown(&g);
}

Test(compare_ring, a_fault_of_the_first_side_is_laid_at_its_door) {
  rig g;
  setup(&g);
  for (int64_t layer = 0; layer < LAYERS; layer++) memcpy(slot_of(&g.bad, layer, 9), slot_of(&g.k, layer, 10), KV * 2);
  ls_result r = judge(&g, &g.bad, &g.k);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "slot 9 of the first side holds position 10 of step 3, expected position 9: shifted by one");
  teardown(&g);
}

Test(compare_ring, the_bound_of_a_slot_is_that_of_its_row) {
  for (int bounded = 0; bounded < 2; bounded++) {
    rig g;
    setup_writes(&g, 3, bounded);
    float v = ls_bf16_to_f32(slot_of(&g.bad, 0, 3)[7]);
    slot_of(&g.bad, 0, 3)[7] = ls_f32_to_bf16(v + 0x1.8p-7f);
    ls_result r = judge(&g, NULL, &g.bad);
    if (bounded) {
      assert_verdict(r, LS_PASS); /* 2^-6 is allowed */
      cr_assert(r.use > 0.3 && r.use <= 1);
      v = ls_bf16_to_f32(slot_of(&g.bad, 1, 3)[7]);
      slot_of(&g.bad, 1, 3)[7] = ls_f32_to_bf16(v + 0x1.8p-7f);
      r = judge(&g, NULL, &g.bad);
      assert_verdict(r, LS_FAIL); /* in this layer it is not */
      cr_assert(r.failing == 1 && r.worst_index[0] == 1);
    } else {
      assert_verdict(r, LS_FAIL); /* a row without bound: equality */
      slot_of(&g.bad, 0, 3)[7] = ls_f32_to_bf16(v);
      r = judge(&g, NULL, &g.bad);
      assert_verdict(r, LS_PASS);
    }
    teardown(&g);
  }
}

Test(compare_ring, only_the_asked_for_slots_are_judged) {
  rig g;
  setup(&g);
  slot_of(&g.bad, 0, 5)[0] = 0x4F80;
  ls_result r;
  ls_compare_ring(&r, g.history, &k_ring, LS_BF16, false, &g.k, &g.bad, 12, 3);
  assert_verdict(r, LS_PASS);
  cr_assert(r.count == LAYERS * 3 * KV);
  ls_compare_ring(&r, g.history, &k_ring, LS_BF16, false, &g.k, &g.bad, 4, 3);
  assert_verdict(r, LS_FAIL);
  teardown(&g);
}

Test(compare_ring, a_ring_nothing_was_written_to_proves_nothing) {
  rig g;
  setup_writes(&g, 0, true);
  ls_result r = judge(&g, &g.k, &g.bad);
  assert_verdict(r, LS_MISTRUSTED);
  cr_assert(r.count == 0);
  ls_compare_ring(&r, g.history, &k_ring, LS_BF16, false, &g.k, NULL, 0, 0);
  assert_verdict(r, LS_MISSING);
  ls_tensor other = ls_tensor_slice(&g.k, 1, 0, 11);
  ls_compare_ring(&r, g.history, &k_ring, LS_BF16, false, &other, &g.k, 0, 0);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "[2, 12, 64], found [2, 11, 64]");
  teardown(&g);
}

Test(compare_ring, a_start_state_is_expected_unchanged) {
  rig g, h;
  setup(&g);
  setup_writes(&h, 0, true);
  for (int64_t layer = 0; layer < LAYERS; layer++) memset(slot_of(&g.k, layer, 7), 0, KV * 2), memset(slot_of(&g.v, layer, 7), 0, KV * 2);
  MUST(ls_ring_history_state(h.history, &g.k, &g.v, 15, err));
  ls_result r = judge(&h, NULL, &g.k);
  assert_verdict(r, LS_PASS);
  cr_assert(r.count == LAYERS * 11 * KV); /* the slot of zeros was never written */
  ls_tensor k = add_random(h.trace, "k", LS_BF16, 3, (int64_t[]){LAYERS, 1, KV}, 1.0);
  MUST(ls_ring_history_write(h.history, 1, "context_write", 15, 1, &k, &k, NULL, NULL, err));
  r = judge(&h, NULL, &g.k);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "slot 3 holds position 3 (start state), expected 15: stale, not overwritten");
  teardown(&g);
  teardown(&h);
}

Test(compare_ring, old_rows_are_dropped_and_live_ones_kept) {
  ls_ring_history *history = NULL;
  ls_trace *trace = new_trace("test");
  enum { WIDE = 4096 };
  MUST(ls_ring_history_new(&history, 4, 8, WIDE, err));
  ls_tensor k = add_random(trace, "k", LS_BF16, 3, (int64_t[]){4, 8, WIDE}, 1.0);
  for (int64_t step = 0; step < 150; step++) { /* 150 times half a MiB */
    MUST(ls_ring_history_write(history, step, "context_write", 8 * step, 8, &k, &k, NULL, NULL, err));
    cr_assert(ls_ring_history_bytes(history) <= ((size_t)65 << 20));
  }
  ls_result r;
  ls_compare_ring(&r, history, &k_ring, LS_BF16, false, NULL, &k, 0, 0);
  assert_verdict(r, LS_PASS);
  ls_ring_history_free(history);
  ls_trace_free(trace);
}

Test(compare_ring, rows_of_a_wrong_shape_are_an_internal_error) {
  rig g;
  setup(&g);
  ls_error err = {0};
  cr_assert_eq(ls_ring_history_write(g.history, 9, "x", 0, 4, &g.rows_k[0], &g.rows_v[0], NULL, NULL, &err), LS_INTERNAL);
  assert_has(err.text, "[2, 4, 64]");
  cr_assert_eq(ls_ring_history_write(g.history, 9, "x", -1, 8, &g.rows_k[0], &g.rows_v[0], NULL, NULL, NULL), LS_INTERNAL);
  cr_assert_eq(ls_ring_history_write(g.history, 9, "x", 0, 13, &g.rows_k[0], &g.rows_v[0], NULL, NULL, NULL), LS_INTERNAL);
  ls_ring_history *none;
  cr_assert_eq(ls_ring_history_new(&none, 0, 1, 1, NULL), LS_INTERNAL);
  cr_assert_null(none);
  teardown(&g);
}

/* ---- one ring a layer (attn_v41's window) ---- */

static const ls_stage window = {.name = "window", .axes = "slot channel"};

/* A history of K alone: a prefill of 30 rows, then one row at 30. ring, bad: [CAPACITY, KV] as a right path holds it. */
typedef struct {
  ls_trace *trace;
  ls_ring_history *history;
  ls_tensor rows, bound, ring, bad, next;
} one_ring;

static uint16_t *row_of(const ls_tensor *t, int64_t row) { return (uint16_t *)t->data + row * KV; }

static void setup_one(one_ring *g) {
  enum { ROWS = 30 };
  g->trace = new_trace("test");
  MUST(ls_ring_history_new(&g->history, 1, CAPACITY, KV, err));
  g->rows = add_random(g->trace, "rows", LS_BF16, 2, (int64_t[]){ROWS, KV}, 1.0);
  g->bound = add_tensor(g->trace, "bound", LS_F32, 2, (int64_t[]){ROWS, KV});
  g->next = add_random(g->trace, "next", LS_BF16, 2, (int64_t[]){1, KV}, 1.0);
  g->ring = add_tensor(g->trace, "ring", LS_BF16, 2, (int64_t[]){CAPACITY, KV});
  for (int64_t p = ROWS - CAPACITY; p < ROWS; p++) memcpy(row_of(&g->ring, p % CAPACITY), row_of(&g->rows, p), KV * 2);
  memcpy(row_of(&g->ring, ROWS % CAPACITY), g->next.data, KV * 2);
  MUST(ls_ring_history_write(g->history, 1, "forward", 0, ROWS, &g->rows, NULL, &g->bound, NULL, err));
  MUST(ls_ring_history_write(g->history, 2, "forward", ROWS, 1, &g->next, NULL, NULL, NULL, err));
  g->bad = add_copy(g->trace, "bad", &g->ring);
}

static void teardown_one(one_ring *g) {
  ls_ring_history_free(g->history);
  ls_trace_free(g->trace);
}

static ls_result judge_one(const one_ring *g, const ls_tensor *b) {
  ls_result r;
  ls_compare_ring(&r, g->history, &window, LS_BF16, false, NULL, b, 0, 0);
  return r;
}

Test(compare_ring, a_prefill_longer_than_the_ring_leaves_its_last_rows) {
  one_ring g;
  setup_one(&g);
  ls_result r = judge_one(&g, &g.ring);
  assert_verdict(r, LS_PASS);
  cr_assert(r.count == CAPACITY * KV && r.bit_equal == r.count);
  memcpy(row_of(&g.bad, 5), row_of(&g.rows, 5), KV * 2); /* the first rows instead: position 5, which never lies in the ring */
  r = judge_one(&g, &g.bad);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "slot 5 holds nothing seen so far, expected position 29 (step 1)");
  cr_assert(r.worst_ndim == 2 && r.worst_index[0] == 5);
  assert_has(r.where, "slot 5 (position 29) channel ");
  assert_lacks(r.where, "layer");
  teardown_one(&g);
}

Test(compare_ring, faults_of_a_single_ring_are_named) {
  one_ring g;
  setup_one(&g);
  memcpy(row_of(&g.bad, 6), row_of(&g.rows, 18), KV * 2);
  assert_has(judge_one(&g, &g.bad).note, "slot 6 holds position 18 (step 1), expected 30: stale, not overwritten");
  memcpy(row_of(&g.bad, 6), row_of(&g.ring, 6), KV * 2);
  for (int64_t p = 18; p < 30; p++) memcpy(row_of(&g.bad, (p - 18) % CAPACITY), row_of(&g.rows, p), KV * 2); /* the cut was forgotten */
  memcpy(row_of(&g.bad, 6), row_of(&g.ring, 6), KV * 2);
  ls_result r = judge_one(&g, &g.bad);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "of step 1, expected position");
  assert_has(r.note, "11 slots are wrong");
  assert_lacks(r.note, "drafter");
  teardown_one(&g);
}

Test(compare_ring, a_skipped_stage_of_a_single_ring_is_named) {
  one_ring g;
  setup_one(&g);
  ls_tensor rope = add_random(g.trace, "rope", LS_BF16, 2, (int64_t[]){30, KV}, 1.0);
  MUST(ls_ring_history_write(g.history, 3, "forward", 0, 30, &g.rows, NULL, &g.bound, NULL, err));
  MUST(ls_ring_history_intermediate(g.history, "kv_rope", 0, &rope, err));
  memcpy(row_of(&g.bad, 6), row_of(&g.rows, 18), KV * 2);
  assert_verdict(judge_one(&g, &g.bad), LS_PASS);
  memcpy(row_of(&g.bad, 4), row_of(&rope, 28), KV * 2);
  ls_result r = judge_one(&g, &g.bad);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "slot 4 holds kv_rope of position 28: a later stage was skipped");
  teardown_one(&g);
}

Test(compare_ring, a_grid_of_no_steps_allows_none_in_its_ring) {
  one_ring g;
  setup_one(&g);
  row_of(&g.bad, 4)[9] ^= 1; /* of position 28, which has a bound of 0 */
  ls_result r = judge_one(&g, &g.bad);
  assert_verdict(r, LS_FAIL);
  cr_assert(r.failing == 1);
  cr_assert_str_eq(r.where, "slot 4 (position 28) channel 9");
  ls_stage rounded = window;
  rounded.is_ring = true; /* stores what was rounded once */
  ls_compare_ring(&r, g.history, &rounded, LS_BF16, false, NULL, &g.bad, 0, 0);
  assert_verdict(r, LS_PASS);
  teardown_one(&g);
}

Test(compare_ring, a_start_state_without_v_is_expected_unchanged) {
  one_ring g;
  setup_one(&g);
  ls_ring_history *history = NULL;
  MUST(ls_ring_history_new(&history, 1, CAPACITY, KV, err));
  MUST(ls_ring_history_state(history, &g.ring, NULL, 31, err));
  ls_result r;
  ls_compare_ring(&r, history, &window, LS_BF16, false, NULL, &g.ring, 0, 0);
  assert_verdict(r, LS_PASS);
  memset(row_of(&g.bad, 7), 0, KV * 2);
  ls_compare_ring(&r, history, &window, LS_BF16, false, &g.ring, &g.bad, 0, 0);
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "slot 7 holds zeros, expected position 19 (start state)");
  ls_compare_ring(&r, history, &window, LS_BF16, true, NULL, &g.ring, 0, 0); /* there is no V to judge by */
  assert_verdict(r, LS_FAIL);
  assert_has(r.note, "no V rows");
  cr_assert_eq(ls_ring_history_write(history, 1, "forward", 0, 1, NULL, NULL, NULL, NULL, NULL), LS_INTERNAL);
  ls_ring_history_free(history);
  teardown_one(&g);
}

/* ---- slot by slot, for a report ---- */

static ls_ring_view view_of(const rig *g) {
  static ls_ring_view view;
  ls_result r, plain = judge(g, &g->k, &g->bad);
  ls_compare_ring_slots(&r, &view, g->history, &k_ring, LS_BF16, false, &g->k, &g->bad);
  cr_expect_eq(memcmp(&r, &plain, sizeof r), 0, "the view changes the result");
  return view;
}

static const ls_ring_run *run_of(const ls_ring_view *view, int64_t slot) {
  int i = 0;
  while (i < view->n && view->run[i].slot + view->run[i].slots <= slot) i++;
  cr_assert(i < view->n && view->run[i].slot <= slot);
  return &view->run[i];
}

static void expect_runs(const ls_ring_view *view, int n, const ls_ring_run *expected) {
  cr_expect(view->capacity == CAPACITY && view->n == n && view->left_out == 0, "%d runs", view->n);
  for (int i = 0; i < n && i < view->n; i++) {
    const ls_ring_run *e = &expected[i], *f = &view->run[i];
    cr_expect(e->slot == f->slot && e->slots == f->slots && e->expected == f->expected && e->held == f->held && e->status == f->status,
              "run %d: slots %d + %d, expected %d, held %d, status %d", i, (int)f->slot, (int)f->slots, (int)f->expected, (int)f->held,
              (int)f->status);
  }
}

Test(compare_ring, a_view_of_a_right_ring_joins_what_belongs_together) {
  rig g;
  setup(&g);
  ls_ring_view view = view_of(&g);
  expect_runs(&view, 2, (const ls_ring_run[]){{0, 3, 12, -1, LS_SLOT_WRITTEN}, {3, 9, 3, -1, LS_SLOT_KEPT}});
  teardown(&g);
  setup_writes(&g, 1, true); /* the other slots were never written */
  view = view_of(&g);
  expect_runs(&view, 2, (const ls_ring_run[]){{0, 8, 0, -1, LS_SLOT_WRITTEN}, {8, 4, -1, -1, LS_SLOT_EMPTY}});
  memcpy(slot_of(&g.bad, 0, 10), slot_of(&g.k, 0, 3), KV * 2);
  view = view_of(&g);
  cr_expect(run_of(&view, 10)->status == LS_SLOT_CHANGED && run_of(&view, 10)->held == 3);
  teardown(&g);
}

Test(compare_ring, a_view_tells_what_every_wrong_slot_holds) {
  rig g;
  setup(&g);
  const int64_t dim[] = {LAYERS, 3, KV};
  ls_tensor part = add_random(g.trace, "part", LS_BF16, 3, dim, 1.0), noise = add_random(g.trace, "noise", LS_BF16, 3, dim, 1.0);
  MUST(ls_ring_history_intermediate(g.history, "k_norm", 12, &part, err));
  for (int64_t layer = 0; layer < LAYERS; layer++) memcpy(slot_of(&g.bad, layer, 0), (uint16_t *)part.data + layer * 3 * KV, KV * 2);
  for (int64_t slot = 1; slot < 3; slot++) /* rows 1 and 2 of the first write, in every layer */
    for (int64_t layer = 0; layer < LAYERS; layer++)
      memcpy(slot_of(&g.bad, layer, slot), (uint16_t *)g.rows_k[0].data + (layer * 8 + slot) * KV, KV * 2);
  memcpy(slot_of(&g.bad, 1, 4), slot_of(&g.k, 1, 7), KV * 2);          /* another position's */
  memcpy(slot_of(&g.bad, 1, 5), slot_of(&g.k, 0, 5), KV * 2);          /* another layer's */
  memset(slot_of(&g.bad, 0, 6), 0, KV * 2);                            /* zeros */
  memcpy(slot_of(&g.bad, 0, 8), noise.data, KV * 2);                   /* nothing seen so far */
  slot_of(&g.bad, 1, 9)[3] = (uint16_t)(slot_of(&g.bad, 1, 9)[3] + 3); /* the right row, one element off */
  slot_of(&g.bad, 0, 11)[0] = 0x7FC0;                                  /* not finite */
  const ls_ring_view view = view_of(&g);
  expect_runs(&view, 11,
              (const ls_ring_run[]){{0, 1, 12, 12, LS_SLOT_UNDONE},
                                    {1, 2, 13, 1, LS_SLOT_STALE}, /* two that follow each other, in one */
                                    {3, 1, 3, -1, LS_SLOT_KEPT},
                                    {4, 1, 4, 7, LS_SLOT_MISPLACED},
                                    {5, 1, 5, 5, LS_SLOT_MISPLACED},
                                    {6, 1, 6, -1, LS_SLOT_CLEARED},
                                    {7, 1, 7, -1, LS_SLOT_KEPT},
                                    {8, 1, 8, -1, LS_SLOT_UNKNOWN},
                                    {9, 1, 9, 9, LS_SLOT_OUTSIDE},
                                    {10, 1, 10, -1, LS_SLOT_KEPT},
                                    {11, 1, 11, -1, LS_SLOT_UNKNOWN}});
  teardown(&g);
}
