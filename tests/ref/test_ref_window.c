/* The ring against a list that every token is appended to: what a query may see are the list's last `window` tokens. */
#include <criterion/criterion.h>

#include "core/ls_numeric.h"
#include "ref/ref_window.h"

enum { MOST_WINDOW = 8, MOST_TOKENS = 2 * MOST_WINDOW + 3, DIM = 2 };

static const int64_t windows[] = {1, 2, 3, 5, 8};

typedef struct {
  ls_attn_config config;
  float ring[MOST_WINDOW][DIM];
  ls_tensor ring_view;
} scene;

static void start(scene *s, int64_t window) {
  *s = (scene){.config = {.window_size = window, .n_layers = 1, .max_seq_len = 1000, .max_tokens = 1000}};
  for (int64_t slot = 0; slot < window; slot++) s->ring[slot][0] = s->ring[slot][1] = -1;
  s->ring_view = ls_tensor_make(LS_F32, 2, (int64_t[]){window, DIM}, s->ring);
}

/* Token p's row is (p, p + 0.5). */
static ls_tensor tokens(float (*rows)[DIM], int64_t from, int64_t m) {
  for (int64_t t = 0; t < m; t++) rows[t][0] = (float)(from + t), rows[t][1] = (float)(from + t) + 0.5f;
  return ls_tensor_make(LS_F32, 2, (int64_t[]){m, DIM}, rows);
}

static ls_attn_plan write(scene *s, int64_t start_pos, int64_t m) {
  float rows[MOST_TOKENS][DIM];
  const ls_step step = {.op = LS_OP_FORWARD, .rows = m, .start_pos = start_pos};
  const ls_tensor kv = tokens(rows, start_pos, m);
  ls_attn_plan plan;
  ls_attn_plan_shapes(&s->config, &step, &plan);
  ls_ref_window_write(&s->ring_view, &kv, &s->config, &plan);
  return plan;
}

/* The newest position <= last that lives in the slot; -1 where none does. */
static float held(int64_t slot, int64_t last, int64_t window) {
  for (int64_t p = last; p >= 0; p--) {
    if (p % window == slot) return (float)p;
  }
  return -1;
}

static void check_ring(const scene *s, int64_t last) {
  const int64_t window = s->config.window_size;
  for (int64_t slot = 0; slot < window; slot++) {
    const float p = held(slot, last, window);
    cr_assert_eq(s->ring[slot][0], p, "window %d, last %d, slot %d", (int)window, (int)last, (int)slot);
    cr_assert_eq(s->ring[slot][1], p < 0 ? -1 : p + 0.5f);
  }
}

/* The entries of one query name, in order, the last `window` positions up to its own; nothing else but -1. */
static void check_sees(const int32_t *entry, int64_t wk, float (*rows)[DIM], int64_t position, int64_t window) {
  int64_t next = position - window + 1 > 0 ? position - window + 1 : 0;
  for (int64_t j = 0; j < wk; j++) {
    if (entry[j] == -1) continue;
    cr_assert_eq(rows[entry[j]][0], (float)next, "window %d, position %d, entry %d is %d", (int)window, (int)position, (int)j, entry[j]);
    next++;
  }
  cr_assert_eq(next, position + 1, "window %d, position %d", (int)window, (int)position);
}

Test(ref_window, decoding_token_by_token_keeps_the_last_ones_and_sees_them_oldest_first) {
  for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
    const int64_t window = windows[i];
    scene s;
    start(&s, window);
    for (int64_t p = 0; p <= 2 * window + 2; p++) {
      const ls_attn_plan plan = write(&s, p, 1);
      check_ring(&s, p);
      int32_t entry[MOST_WINDOW];
      const ls_tensor idx = ls_tensor_make(LS_I32, 2, (int64_t[]){1, plan.wk}, entry);
      ls_ref_window_idx(&idx, &s.config, &plan);
      if (p == 0) {
        cr_assert(plan.wk == 1 && entry[0] == 0); /* of the row itself, not of the ring */
      } else {
        cr_assert_eq(plan.wk, window);
        check_sees(entry, plan.wk, s.ring, p, window);
      }
    }
  }
}

Test(ref_window, prefill_of_every_length_leaves_the_ring_that_decoding_does) {
  for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
    const int64_t window = windows[i];
    for (int64_t m = 1; m <= 2 * window + 1; m++) {
      scene s;
      start(&s, window);
      write(&s, 0, m);
      check_ring(&s, m - 1);
      write(&s, m, 1); /* and goes on from there */
      check_ring(&s, m);
    }
  }
}

/* The two copies of layers.md, taken literally. */
Test(ref_window, long_prefill_is_the_tail_cut_in_two) {
  const int64_t window = 5;
  for (int64_t m = window + 1; m <= 2 * window + 1; m++) {
    scene s;
    start(&s, window);
    write(&s, 0, m);
    const int64_t cut = m % window, tail = m - window;
    for (int64_t i = 0; i < window - cut; i++) cr_assert_eq(s.ring[cut + i][0], (float)(tail + i));
    for (int64_t i = 0; i < cut; i++) cr_assert_eq(s.ring[i][0], (float)(tail + window - cut + i));
  }
}

Test(ref_window, prefill_queries_see_the_window_that_ends_with_themselves) {
  for (size_t i = 0; i < sizeof windows / sizeof windows[0]; i++) {
    const int64_t window = windows[i];
    for (int64_t m = 1; m <= 2 * window + 1; m++) {
      scene s;
      start(&s, window);
      const ls_attn_plan plan = write(&s, 0, m);
      float rows[MOST_TOKENS][DIM];
      tokens(rows, 0, m);
      cr_assert_eq(plan.wk, m < window ? m : window);
      int32_t entry[MOST_TOKENS * MOST_WINDOW];
      const ls_tensor idx = ls_tensor_make(LS_I32, 2, (int64_t[]){m, plan.wk}, entry);
      ls_ref_window_idx(&idx, &s.config, &plan);
      for (int64_t t = 0; t < m; t++) check_sees(entry + t * plan.wk, plan.wk, rows, t, window);
    }
  }
}

static void expect_entries(int64_t window, int64_t start_pos, int64_t m, const int32_t *expected) {
  scene s;
  start(&s, window);
  const ls_attn_plan plan = write(&s, start_pos, m);
  int32_t entry[MOST_TOKENS * MOST_WINDOW];
  const ls_tensor idx = ls_tensor_make(LS_I32, 2, (int64_t[]){m, plan.wk}, entry);
  ls_ref_window_idx(&idx, &s.config, &plan);
  for (int64_t i = 0; i < m * plan.wk; i++) cr_assert_eq(entry[i], expected[i], "start_pos %d, entry %d", (int)start_pos, (int)i);
}

Test(ref_window, entries_by_hand) {
  expect_entries(4, 0, 3, (int32_t[]){0, -1, -1, 0, 1, -1, 0, 1, 2});
  expect_entries(3, 0, 5, (int32_t[]){0, -1, -1, 0, 1, -1, 0, 1, 2, 1, 2, 3, 2, 3, 4});
  expect_entries(4, 1, 1, (int32_t[]){-1, -1, 0, 1}); /* slots 2, 3, 0, 1: still filling */
  expect_entries(4, 3, 1, (int32_t[]){0, 1, 2, 3});
  expect_entries(4, 6, 1, (int32_t[]){3, 0, 1, 2});
  expect_entries(4, 999, 1, (int32_t[]){0, 1, 2, 3}); /* after a jump every slot counts, whatever it holds */
}

Test(ref_window, list_that_is_a_part_of_a_wider_tensor_leaves_the_rest_alone) {
  int32_t entry[3 * 5];
  for (int i = 0; i < 15; i++) entry[i] = 77;
  scene s;
  start(&s, 3);
  const ls_attn_plan plan = write(&s, 0, 3);
  const ls_tensor all = ls_tensor_make(LS_I32, 2, (int64_t[]){3, 5}, entry), idx = ls_tensor_slice(&all, 1, 0, 3);
  ls_ref_window_idx(&idx, &s.config, &plan);
  for (int i = 0; i < 15; i++) cr_assert_eq(entry[i], i % 5 >= 3 ? 77 : i % 5 <= i / 5 ? i % 5 : -1);
}

Test(ref_window, bytes_are_moved_not_numbers) {
  uint16_t ring[2] = {0, 0}, rows[3] = {1, 0x7F81, 0x8000}; /* a signalling NaN and -0 stay what they are */
  const ls_tensor to = ls_tensor_make(LS_BF16, 2, (int64_t[]){2, 1}, ring), from = ls_tensor_make(LS_BF16, 2, (int64_t[]){3, 1}, rows);
  const ls_attn_config config = {.window_size = 2};
  const ls_attn_plan plan = {.m = 3};
  ls_ref_window_write(&to, &from, &config, &plan);
  cr_assert(ring[0] == 0x8000 && ring[1] == 0x7F81);
}
