/* Decisions of attn_v41 against the rules of layers.md: who reads what, when it is refused, and how large everything is. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "attn_published.h"
#include "layers/ls_attn.h"

/* The six roles in one stack, tiny: window 4, topk 2, candidate blocks 2 of 2. */
static ls_attn_config six_roles(void) {
  ls_config config = {.layer = &ls_layer_attn_v41, .act = LS_BF16};
  config.attn = (ls_attn_config){.dim = 8,
                                 .n_heads = 2,
                                 .head_dim = 32,
                                 .rope_head_dim = 4,
                                 .q_lora_rank = 8,
                                 .o_lora_rank = 4,
                                 .o_groups = 2,
                                 .window_size = 4,
                                 .index_n_heads = 2,
                                 .index_head_dim = 32,
                                 .index_topk = 2,
                                 .candidate_topk_blocks = 2,
                                 .candidate_block_size = 2,
                                 .candidate_source_layer = 3,
                                 .max_seq_len = 32,
                                 .max_tokens = 16,
                                 .n_layers = 6,
                                 .norm_eps = 1e-20,
                                 .rope_theta = 1e4,
                                 .compress_rope_theta = 1.6e5,
                                 .rope_factor = 4,
                                 .index_keys = LS_INDEX_KEYS_PUBLISHED,
                                 .compress_ratio = {0, 2, 2, 1, 1, 1},
                                 .is_kv_source = {0, 1, 0, 1, 0, 0},
                                 .is_index_source = {0, 1, 0, 1, 0, 1}};
  ls_error err = {0};
  cr_assert_eq(config.layer->config_check(&config, &err), LS_OK, "%s", err.text);
  return config.attn;
}

static ls_step forward(int64_t layer, int64_t start, int64_t m) {
  return (ls_step){.op = LS_OP_FORWARD, .layer = layer, .start_pos = start, .rows = m};
}

/* Decides, which has to be accepted, and moves the state on. */
static ls_attn_plan run(const ls_attn_config *c, ls_attn_state *state, int64_t layer, int64_t start, int64_t m) {
  const ls_step step = forward(layer, start, m);
  ls_attn_plan plan;
  ls_attn_state next;
  ls_error err = {0};
  cr_assert_eq(ls_attn_decide(c, state, &step, &plan, &next, &err), LS_OK, "layer %d at %d, %d rows: %s", (int)layer, (int)start, (int)m,
               err.text);
  *state = next;
  return plan;
}

static ls_attn_state run_round(const ls_attn_config *c, ls_attn_state state, int64_t start, int64_t m) {
  for (int64_t l = 0; l < c->n_layers; l++) run(c, &state, l, start, m);
  return state;
}

static ls_attn_state nothing(void) {
  ls_attn_state state;
  ls_attn_state_start(&state);
  return state;
}

static void refuses(const ls_attn_config *c, ls_attn_state state, ls_step step, const char *text) {
  const ls_attn_state before = state;
  ls_attn_plan plan;
  ls_attn_state next;
  ls_error err = {0};
  cr_assert_eq(ls_attn_decide(c, &state, &step, &plan, &next, &err), LS_REFUSED, "\"%s\": accepted", text);
  cr_assert_not_null(strstr(err.text, text), "expected \"%s\", found \"%s\"", text, err.text);
  cr_assert_eq(memcmp(&state, &before, sizeof state), 0, "%s: the state moved", text);
}

/* ---- refusals ---- */

Test(attn_decide, a_layer_outside_the_stack_is_refused) {
  const ls_attn_config c = six_roles();
  refuses(&c, nothing(), forward(6, 0, 1), "layer: expected 0 .. 5, found 6");
  refuses(&c, nothing(), forward(-1, 0, 1), "layer: expected 0 .. 5, found -1");
  refuses(&c, nothing(), forward(INT64_MAX, 0, 1), "layer: expected 0 .. 5");
}

Test(attn_decide, rows_outside_1_to_max_tokens_are_refused) {
  const ls_attn_config c = six_roles();
  ls_attn_state state = nothing();
  refuses(&c, state, forward(0, 0, 0), "rows of x: expected 1 .. max_tokens = 16, found 0");
  refuses(&c, state, forward(0, 0, -3), "found -3");
  refuses(&c, state, forward(0, 0, 17), "rows of x: expected 1 .. max_tokens = 16, found 17");
  run(&c, &state, 0, 0, 16);
}

Test(attn_decide, a_position_outside_the_context_is_refused) {
  const ls_attn_config c = six_roles();
  ls_attn_state state = nothing();
  refuses(&c, state, forward(0, -1, 1), "start_pos: expected at least 0, found -1");
  refuses(&c, state, forward(0, 32, 1), "start_pos + m: expected at most max_seq_len = 32, found 32 + 1");
  refuses(&c, state, forward(0, INT64_MAX, 1), "start_pos + m: expected at most max_seq_len = 32");
  run(&c, &state, 0, 31, 1);
  ls_attn_config narrow = c;
  narrow.max_seq_len = 8;
  refuses(&narrow, state, forward(0, 0, 9), "start_pos + m: expected at most max_seq_len = 8, found 0 + 9");
}

Test(attn_decide, several_tokens_are_refused_except_at_the_start) {
  const ls_attn_config c = six_roles();
  refuses(&c, nothing(), forward(0, 1, 2), "m = 2 at start_pos 1: more than one token is for start_pos 0");
}

Test(attn_decide, a_compressed_layer_before_anything_was_published_is_refused) {
  const ls_attn_config c = six_roles();
  refuses(&c, nothing(), forward(2, 0, 4), "layer 2 reads compressed rows, and none were published");
  refuses(&c, nothing(), forward(5, 0, 4), "layer 5 reads compressed rows, and none were published");
}

Test(attn_decide, a_reader_without_a_selection_of_this_round_is_refused) {
  const ls_attn_config c = six_roles();
  ls_attn_state state = nothing();
  state.compress_source = 1; /* as a fixture's state has it: rows, and no selection */
  refuses(&c, state, forward(2, 5, 1), "layer 2 reads a selection, and none was published");
  state = nothing();
  run(&c, &state, 1, 0, 4);
  refuses(&c, state, forward(2, 0, 5), "layer 2 reads a selection for 5 rows at 0, and the published one is for 4 rows at 0");
  refuses(&c, state, forward(2, 4, 1), "layer 2 reads a selection for 1 rows at 4, and the published one is for 4 rows at 0");
  run(&c, &state, 1, 4, 1); /* as many rows, of the round before */
  refuses(&c, state, forward(2, 5, 1), "layer 2 reads a selection for 1 rows at 5, and the published one is for 1 rows at 4");
}

Test(attn_decide, a_selection_wider_than_what_the_reader_sees_is_refused) {
  const ls_attn_config c = six_roles();
  ls_attn_state state = nothing();
  run(&c, &state, 1, 0, 2);
  state.topk_width = 2; /* ratio 2 sees one row of two tokens */
  refuses(&c, state, forward(2, 0, 2), "layer 2 sees 1 compressed rows, and the published selection holds 2");
}

Test(attn_decide, a_reindexer_without_candidates_of_this_round_is_refused) {
  const ls_attn_config c = six_roles();
  ls_attn_state state = nothing();
  run(&c, &state, 3, 0, 4);
  ls_attn_state without = state;
  without.candidate_rows = 0;
  refuses(&c, without, forward(5, 0, 4), "layer 5 selects inside the candidates, and none were published");
  refuses(&c, state, forward(5, 0, 3),
          "layer 5 needs candidates for 3 rows at 0 of width 3, and the published ones are for 4 rows at 0 of width 4");
  refuses(&c, state, forward(5, 4, 1),
          "layer 5 needs candidates for 1 rows at 4 of width 5, and the published ones are for 4 rows at 0 of width 4");
}

Test(attn_decide, an_index_source_without_keys_is_refused) {
  const ls_attn_config c = six_roles();
  ls_attn_state state = nothing();
  state.compress_source = 3;
  refuses(&c, state, forward(5, 5, 1), "layer 5 reads index keys, and none were published");
  /* an owner that makes no latent has nothing to publish, and in the published mode scores against what was published last */
  refuses(&c, nothing(), forward(1, 2, 1), "layer 1 reads index keys, and none were published");
}

/* A jump of a stack whose last published cache is of another ratio. */
Test(attn_decide, rows_of_another_ratio_and_too_few_keys_are_refused) {
  const ls_attn_config c = six_roles();
  ls_attn_state state = nothing();
  state.compress_source = 1;
  state.topk_rows = 1, state.topk_start = 20;
  refuses(&c, state, forward(4, 20, 1), "layer 4 reads rows of ratio 1, and the published ones of layer 1 are of ratio 2");
  state.compress_source = 3;
  state.index_source = 1;
  refuses(&c, state, forward(5, 20, 1), "layer 5 reads 21 index keys, and the published cache of layer 1 has 16");
}

/* ---- what is published ---- */

Test(attn_decide, a_round_publishes_what_its_sources_make) {
  const ls_attn_config c = six_roles();
  ls_attn_state state = nothing();
  run(&c, &state, 0, 0, 7);
  cr_assert(state.compress_source == -1 && state.index_source == -1 && state.topk_rows == 0);
  run(&c, &state, 1, 0, 7);
  cr_assert(state.compress_source == 1 && state.index_source == 1);
  cr_assert(state.topk_rows == 7 && state.topk_width == 2 && state.topk_start == 0 && state.candidate_rows == 0);
  const ls_attn_state after_1 = state;
  run(&c, &state, 2, 0, 7);
  cr_assert_eq(memcmp(&state, &after_1, sizeof state), 0, "a layer that is not a source changes nothing");
  run(&c, &state, 3, 0, 7);
  cr_assert(state.compress_source == 3 && state.index_source == 3);
  cr_assert(state.candidate_rows == 7 && state.candidate_width == 7 && state.candidate_start == 0);
  const ls_attn_state after_3 = state;
  run(&c, &state, 4, 0, 7);
  cr_assert_eq(memcmp(&state, &after_3, sizeof state), 0);
  run(&c, &state, 5, 0, 7);
  cr_assert_eq(memcmp(&state, &after_3, sizeof state), 0, "the reindexer's selection has the same shape");
}

Test(attn_decide, nothing_visible_publishes_an_empty_selection) {
  const ls_attn_config c = six_roles();
  ls_attn_state state = nothing();
  const ls_attn_plan source = run(&c, &state, 1, 0, 1);
  cr_assert(source.n == 0 && source.g == 0 && source.k == 0 && source.compress_cache == -1 && source.index_cache == -1);
  cr_assert(state.topk_rows == 1 && state.topk_width == 0);
  cr_assert_eq(run(&c, &state, 2, 0, 1).k, 0);
}

/* layers.md 7: at a decode step that leaves a group of two open the owner scores against the keys published last, or its own. */
Test(attn_decide, index_pointer_moves_as_index_keys_says) {
  for (int own = 0; own < 2; own++) {
    ls_attn_config c = six_roles();
    c.index_keys = own ? LS_INDEX_KEYS_OWN : LS_INDEX_KEYS_PUBLISHED;
    ls_attn_state state = run_round(&c, nothing(), 0, 4);
    cr_assert(state.index_source == 3 && state.compress_source == 3);
    ls_attn_state open = state;
    const ls_attn_plan leaves_open = run(&c, &open, 1, 4, 1); /* (4 + 1) mod 2 = 1 */
    cr_assert_eq(leaves_open.g, 0);
    cr_assert_eq(leaves_open.index_cache, own ? 1 : 3);
    cr_assert_eq(open.index_source, own ? 1 : 3);
    cr_assert_eq(open.compress_source, 1, "the other pointer moves at every step of a source");
    cr_assert_eq(leaves_open.compress_cache, 1);
    state = run_round(&c, state, 4, 1);
    const ls_attn_plan closes = run(&c, &state, 1, 5, 1);
    cr_assert(closes.g == 1 && closes.index_cache == 1 && state.index_source == 1);
  }
}

Test(attn_decide, readers_follow_the_last_source) {
  const ls_attn_config c = six_roles();
  ls_attn_state state = nothing();
  run(&c, &state, 1, 0, 6);
  cr_assert_eq(run(&c, &state, 2, 0, 6).compress_cache, 1);
  run(&c, &state, 3, 0, 6);
  cr_assert_eq(run(&c, &state, 4, 0, 6).compress_cache, 3);
  const ls_attn_plan reindex = run(&c, &state, 5, 0, 6);
  cr_assert(reindex.compress_cache == 3 && reindex.index_cache == 3 && reindex.masked && reindex.g == 0 && !reindex.kv_source);
  cr_assert_eq(run(&c, &state, 0, 0, 6).compress_cache, -1);
}

Test(attn_decide, positions_may_jump_forward_between_rounds) {
  const ls_attn_config c = six_roles();
  const ls_attn_state state = run_round(&c, run_round(&c, nothing(), 0, 3), 29, 1);
  cr_assert(state.topk_start == 29 && state.topk_rows == 1 && state.topk_width == 2 && state.candidate_width == 30);
}

/* ---- shapes ---- */

/* The rules of layers.md written again, entry by entry. */
static void shapes_hold(const ls_attn_config *c, int64_t layer, int64_t start, int64_t m) {
  const ls_step step = forward(layer, start, m);
  ls_attn_plan p;
  ls_attn_plan_shapes(c, &step, &p);
  const int64_t ratio = c->compress_ratio[layer];
  int64_t n = 0, g = 0;
  for (int64_t t = 0; ratio > 0 && t < start + m; t++) {
    if ((t + 1) % ratio != 0) continue;
    n++; /* a group is whole */
    if (t >= start && c->is_kv_source[layer] != 0) {
      cr_assert_eq(ls_attn_group_position(&p, g), t + 1 - ratio, "layer %d start %d m %d latent %d", (int)layer, (int)start, (int)m,
                   (int)g);
      g++;
    }
  }
  cr_assert(p.layer == layer && p.start_pos == start && p.m == m && p.ratio == ratio);
  cr_assert_eq(p.n, n, "layer %d start %d m %d", (int)layer, (int)start, (int)m);
  cr_assert_eq(p.g, g, "layer %d start %d m %d", (int)layer, (int)start, (int)m);
  cr_assert_eq(p.k, n < c->index_topk ? n : c->index_topk);
  cr_assert_eq(p.rows_a, start == 0 ? m : c->window_size);
  cr_assert_eq(p.wk, start == 0 && m < c->window_size ? m : c->window_size);
  if (ratio > 0) cr_assert_eq(p.first_row, start / ratio);
  for (int64_t t = 0; t < m; t++) {
    int64_t seen = 0;
    for (int64_t j = 0; ratio > 0 && j * ratio + ratio - 1 <= start + t; j++) seen++;
    cr_assert_eq(ls_attn_visible(&p, t), seen, "layer %d start %d query %d", (int)layer, (int)start, (int)t);
  }
}

Test(attn_plan, shapes_are_those_of_the_rules_for_every_prefill_and_decode) {
  const ls_attn_config c = six_roles();
  for (int64_t layer = 0; layer < c.n_layers; layer++) {
    for (int64_t m = 1; m <= 2 * c.window_size + 1; m++) shapes_hold(&c, layer, 0, m);
    for (int64_t start = 1; start < c.max_seq_len; start++) shapes_hold(&c, layer, start, 1);
  }
}

/* As far as a step alone tells: not whose caches are read. */
static bool same_shapes(const ls_attn_plan *a, const ls_attn_plan *b) {
  return a->layer == b->layer && a->start_pos == b->start_pos && a->m == b->m && a->ratio == b->ratio && a->kv_source == b->kv_source &&
         a->index_source == b->index_source && a->candidate_source == b->candidate_source && a->masked == b->masked &&
         a->rows_a == b->rows_a && a->wk == b->wk && a->n == b->n && a->g == b->g && a->first_row == b->first_row && a->k == b->k;
}

Test(attn_plan, shapes_are_those_that_decide_gives) {
  const ls_attn_config c = six_roles();
  for (int64_t m = 1; m <= 9; m++) {
    ls_attn_state state = nothing();
    for (int64_t start = 0; start < c.max_seq_len; start = start == 0 ? m : start + 1) {
      for (int64_t layer = 0; layer < c.n_layers; layer++) {
        const int64_t rows = start == 0 ? m : 1;
        const ls_step step = forward(layer, start, rows);
        const ls_attn_plan decided = run(&c, &state, layer, start, rows);
        ls_attn_plan alone;
        ls_attn_plan_shapes(&c, &step, &alone);
        cr_assert(same_shapes(&alone, &decided), "m %d layer %d start %d", (int)m, (int)layer, (int)start);
      }
    }
  }
}

Test(attn_plan, a_step_that_is_off_has_no_shapes) {
  const ls_attn_config c = six_roles();
  const ls_attn_plan zero = {0};
  const ls_step off[] = {forward(-1, 0, 1), forward(6, 0, 1),         forward(0, 0, 0),  forward(0, -1, 1),
                         forward(0, 32, 1), forward(0, INT64_MAX, 1), forward(0, 0, 33), forward(INT64_MIN, 0, INT64_MAX)};
  for (size_t i = 0; i < sizeof off / sizeof off[0]; i++) {
    ls_attn_plan p;
    ls_attn_plan_shapes(&c, &off[i], &p);
    cr_assert(same_shapes(&p, &zero), "step %d", (int)i);
  }
}

/* layers.md 4, as a ring that is written: prefills up to the window, beyond it (the rotated tail), and decodes. */
Test(attn_ring, row_of_a_slot_is_that_of_the_written_ring) {
  ls_attn_config c = six_roles();
  c.max_tokens = c.max_seq_len;
  for (c.window_size = 1; c.window_size <= 9; c.window_size++) {
    const int64_t window = c.window_size;
    for (int64_t m = 1; m <= c.max_seq_len; m++) {
      int64_t ring[16];
      for (int64_t s = 0; s < window; s++) ring[s] = -1;
      if (m <= window) {
        for (int64_t t = 0; t < m; t++) ring[t] = t;
      } else {
        const int64_t cut = m % window, tail = m - window; /* the first row of the last `window` ones */
        for (int64_t i = 0; i < window - cut; i++) ring[cut + i] = tail + i;
        for (int64_t i = 0; i < cut; i++) ring[i] = tail + (window - cut) + i;
      }
      const ls_step step = forward(0, 0, m);
      ls_attn_plan p;
      ls_attn_plan_shapes(&c, &step, &p);
      for (int64_t s = 0; s < window; s++)
        cr_assert_eq(ls_attn_row_of_slot(&c, &p, s), ring[s], "window %d m %d slot %d", (int)window, (int)m, (int)s);
    }
    for (int64_t start = 1; start < c.max_seq_len; start++) {
      const ls_step step = forward(0, start, 1);
      ls_attn_plan p;
      ls_attn_plan_shapes(&c, &step, &p);
      for (int64_t s = 0; s < window; s++)
        cr_assert_eq(ls_attn_row_of_slot(&c, &p, s), s == start % window ? 0 : -1, "window %d start %d slot %d", (int)window, (int)start,
                     (int)s);
    }
  }
}

Test(attn_ring, a_long_prefill_leaves_the_ring_of_a_token_by_token_decode) {
  const ls_attn_config c = six_roles();
  for (int64_t m = 1; m <= 3 * c.window_size; m++) {
    int64_t ring[4] = {-1, -1, -1, -1};
    for (int64_t t = 0; t < m; t++) {
      const ls_step step = forward(0, t, 1);
      ls_attn_plan p;
      ls_attn_plan_shapes(&c, &step, &p);
      for (int64_t s = 0; s < c.window_size; s++)
        if (ls_attn_row_of_slot(&c, &p, s) == 0) ring[s] = t;
    }
    const ls_step step = forward(0, 0, m);
    ls_attn_plan p;
    ls_attn_plan_shapes(&c, &step, &p);
    for (int64_t s = 0; s < c.window_size; s++) cr_assert_eq(ls_attn_row_of_slot(&c, &p, s), ring[s], "m %d slot %d", (int)m, (int)s);
  }
}

/* ---- the published stack ---- */

static ls_attn_config published(void) {
  ls_config config = {.layer = &ls_layer_attn_v41, .act = LS_BF16};
  ls_attn_config *c = &config.attn;
  *c = attn_published();
  c->candidate_source_layer = 20;
  c->max_tokens = 4096;
  c->n_layers = 40;
  for (int l = 0; l < 40; l++) c->compress_ratio[l] = l < 2 ? 0 : l < 20 ? 2 : 1;
  static const int kv[] = {2, 8, 14, 20}, index[] = {2, 8, 14, 20, 24, 28, 32, 36};
  for (int i = 0; i < 4; i++) c->is_kv_source[kv[i]] = 1;
  for (int i = 0; i < 8; i++) c->is_index_source[index[i]] = 1;
  ls_error err = {0};
  cr_assert_eq(config.layer->config_check(&config, &err), LS_OK, "%s", err.text);
  return config.attn;
}

/* W window only, K kv + index source, r reader, C kv + candidate source, X reindex (masked). */
static const char schedule[] = "WWKrrrrrKrrrrrKrrrrrCrrrXrrrXrrrXrrrXrrr";

static char role(const ls_attn_config *c, int64_t l) {
  if (c->compress_ratio[l] == 0) return 'W';
  if (ls_attn_is_kv_source(c, l)) return c->candidate_source_layer == l ? 'C' : 'K';
  return ls_attn_is_masked(c, l) ? 'X' : ls_attn_is_index_source(c, l) ? 'I' : 'r';
}

Test(attn_published, all_40_layers_have_their_roles_and_read_from_the_right_source) {
  const ls_attn_config c = published();
  ls_attn_state prefill = nothing();
  int64_t source = -1;
  for (int64_t l = 0; l < 40; l++) {
    cr_assert_eq(role(&c, l), schedule[l], "layer %d", (int)l);
    cr_assert_eq(ls_attn_cache_rows(&c, l), l < 2 ? 0 : l < 20 ? 524288 : 1048576);
    const ls_attn_plan p = run(&c, &prefill, l, 0, 1001);
    if (p.kv_source) source = l;
    cr_assert_eq(p.compress_cache, source, "layer %d", (int)l);
    cr_assert_eq(p.index_cache, p.index_source ? source : -1, "layer %d", (int)l);
    cr_assert_eq(p.n, l < 2 ? 0 : l < 20 ? 500 : 1001);
    cr_assert_eq(p.k, l < 2 ? 0 : l < 20 ? 500 : 512);
    cr_assert_eq(p.g, p.kv_source ? p.n : 0);
  }
}

/* layers.md 7: "in the published stack: layer 20's ratio-1 keys of the token before". */
Test(attn_published, an_open_group_is_scored_against_layer_20_of_the_token_before) {
  for (int own = 0; own < 2; own++) {
    ls_attn_config c = published();
    c.index_keys = own ? LS_INDEX_KEYS_OWN : LS_INDEX_KEYS_PUBLISHED;
    ls_attn_state state = run_round(&c, nothing(), 0, 1000);
    for (int64_t l = 0; l < 20; l++) {
      const ls_attn_plan p = run(&c, &state, l, 1000, 1);
      if (!p.kv_source) continue;
      cr_assert_eq(p.g, 0);
      cr_assert_eq(p.index_cache, own ? l : 20, "layer %d", (int)l);
    }
    cr_assert_eq(run(&c, &state, 20, 1000, 1).index_cache, 20);
    for (int64_t l = 0; l < 20; l++) {
      const ls_attn_plan p = run(&c, &state, l, 1001, 1);
      if (p.kv_source) cr_assert(p.g == 1 && p.index_cache == l);
    }
  }
}

/* ---- states from outside ---- */

static void state_is_bad(ls_attn_state state, const char *text) {
  const ls_attn_config c = six_roles();
  ls_error err = {0};
  cr_assert_eq(ls_attn_state_check(&c, &state, &err), LS_BAD_FIXTURE, "\"%s\": accepted", text);
  cr_assert_not_null(strstr(err.text, text), "expected \"%s\", found \"%s\"", text, err.text);
}

#define STATE(...) ((ls_attn_state){.compress_source = -1, .index_source = -1, __VA_ARGS__})

Test(attn_state, what_no_history_leads_to_is_named) {
  state_is_bad(STATE(.position = -1), "position: expected 0 .. max_seq_len = 32, found -1");
  state_is_bad(STATE(.position = 33), "position: expected 0 .. max_seq_len = 32, found 33");
  ls_attn_state state = nothing();
  state.compress_source = -2;
  state_is_bad(state, "compress_source: expected -1 or a layer, 0 .. 5, found -2");
  state.compress_source = 6;
  state_is_bad(state, "compress_source: expected -1 or a layer, 0 .. 5, found 6");
  state.compress_source = 5;
  state_is_bad(state, "compress_source: expected -1 or a kv source, found layer 5, which is none");
  state = nothing();
  state.index_source = 0;
  state_is_bad(state, "index_source: expected -1 or a kv source, found layer 0, which is none");
  state_is_bad(STATE(.topk_rows = 17), "topk_idxs: expected at most [16, 2] within max_seq_len, found [17, 0]");
  state_is_bad(STATE(.topk_rows = 1, .topk_width = 3), "topk_idxs: ");
  state_is_bad(STATE(.topk_rows = 1, .topk_start = 32), "topk_idxs: ");
  state_is_bad(STATE(.topk_rows = -1), "topk_idxs: ");
  state_is_bad(STATE(.candidate_rows = 1, .candidate_width = 33), "candidates: ");
  state_is_bad(STATE(.candidate_rows = 1, .candidate_start = -1), "candidates: ");
  state_is_bad(STATE(.candidate_rows = INT64_MAX, .candidate_start = INT64_MAX), "candidates: ");
}

Test(attn_state, every_state_of_a_run_is_sound) {
  const ls_attn_config c = six_roles();
  for (int64_t m = 1; m <= 9; m++) {
    ls_attn_state state = nothing();
    cr_assert_eq(ls_attn_state_check(&c, &state, NULL), LS_OK);
    for (int64_t start = 0; start < c.max_seq_len; start = start == 0 ? m : start + 1) {
      for (int64_t layer = 0; layer < c.n_layers; layer++) {
        run(&c, &state, layer, start, start == 0 ? m : 1);
        cr_assert_eq(ls_attn_state_check(&c, &state, NULL), LS_OK);
      }
    }
  }
}
