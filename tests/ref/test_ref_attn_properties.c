/* The properties of layers.md for attn_v41, each checked through the whole path. WINDOW, RATIO and what is built from them stay below
 * LS_INVARIANT_ROWS, so that they hold byte for byte. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/ls_gemm.h"
#include "core/ls_numeric.h"
#include "core/ls_parallel.h"
#include "ref_attn_scene.h"

static ls_tensor row_of(const ls_tensor *t, int64_t row) {
  cr_assert_not_null(t);
  return ls_tensor_at(t, row);
}

static bool same_row(const ls_tensor *a, int64_t a_row, const ls_tensor *b, int64_t b_row) {
  const ls_tensor x = row_of(a, a_row), y = row_of(b, b_row);
  return ls_tensor_same_bytes(&x, &y);
}

static bool same_tensor(const ls_tensor *a, const ls_tensor *b) {
  return (a == NULL) == (b == NULL) && (a == NULL || ls_tensor_same_bytes(a, b));
}

/* ---- prefill and decode ---- */

/* Rings and caches whole; of the pooling state the tokens of the group that is open after m tokens. */
static void assert_same_memory(const ls_trace *a, const ls_trace *b, int64_t m) {
  for (int64_t layer = 0; layer < LAYERS; layer++) {
    cr_assert(same_tensor(attn_scene_of(a, layer, "window"), attn_scene_of(b, layer, "window")), "layer %d, %d tokens", (int)layer, (int)m);
    cr_assert(same_tensor(attn_scene_of(a, layer, "compress_cache"), attn_scene_of(b, layer, "compress_cache")), "layer %d, %d tokens",
              (int)layer, (int)m);
    cr_assert(same_tensor(attn_scene_of(a, layer, "index_cache"), attn_scene_of(b, layer, "index_cache")), "layer %d, %d tokens",
              (int)layer, (int)m);
  }
  for (int64_t slot = 0; slot < m % RATIO; slot++) {
    cr_assert(same_row(attn_scene_of(a, POOLER, "kv_state"), slot, attn_scene_of(b, POOLER, "kv_state"), slot));
    cr_assert(same_row(attn_scene_of(a, POOLER, "score_state"), slot, attn_scene_of(b, POOLER, "score_state"), slot));
  }
}

Test(ref_attn_properties, rings_and_caches_after_a_prefill_are_those_of_decoding_one_by_one) {
  for (int keys = LS_INDEX_KEYS_PUBLISHED; keys <= LS_INDEX_KEYS_OWN; keys++) {
    attn_scene at_once = attn_scene_open((ls_index_keys)keys, LS_PRECISION_ACT),
               one_by_one = attn_scene_open((ls_index_keys)keys, LS_PRECISION_ACT);
    for (int64_t m = 1; m <= LS_INVARIANT_ROWS; m++) { /* 1, r - 1, r, r + 1, w - 1 .. 2 w + 2 among them */
      attn_scene_load(&at_once, NULL);
      attn_scene_round(&at_once, 0, m, NULL);
      attn_scene_round(&one_by_one, m - 1, 1, NULL);
      ls_trace *a = attn_scene_state(&at_once), *b = attn_scene_state(&one_by_one);
      assert_same_memory(a, b, m);
      const ls_tensor *cache = attn_scene_of(a, POOLER, "compress_cache");
      cr_assert_eq(cache == NULL ? 0 : cache->dim[0], m / RATIO); /* and no more is saved than was written */
      cr_assert_eq(attn_scene_of(a, SOURCE, "index_cache")->dim[0], m);
      ls_trace_free(a), ls_trace_free(b);
    }
    attn_scene_close(&at_once), attn_scene_close(&one_by_one);
  }
}

Test(ref_attn_properties, only_tokens_of_the_open_group_wait_after_a_prefill) {
  attn_scene s = attn_scene_open(LS_INDEX_KEYS_OWN, LS_PRECISION_ACT);
  for (int64_t m = 1; m <= 2 * RATIO; m++) {
    attn_scene_load(&s, NULL);
    ls_trace_free(attn_scene_forward(&s, POOLER, 0, m, NULL));
    ls_trace *state = attn_scene_state(&s);
    for (int64_t slot = 0; slot < RATIO; slot++) {
      const ls_tensor kv = row_of(attn_scene_of(state, POOLER, "kv_state"), slot),
                      score = row_of(attn_scene_of(state, POOLER, "score_state"), slot);
      for (int64_t c = 0; c < HEAD_DIM; c++) {
        cr_assert_eq(ls_tensor_get(&kv, c) != 0, slot < m % RATIO, "slot %d after %d tokens", (int)slot, (int)m);
        cr_assert_eq(ls_tensor_get(&score, c) > -(double)INFINITY, slot < m % RATIO);
      }
    }
    ls_trace_free(state);
  }
  attn_scene_close(&s);
}

Test(ref_attn_properties, ring_of_a_long_prefill_holds_the_last_positions_in_their_slots) {
  attn_scene s = attn_scene_open(LS_INDEX_KEYS_OWN, LS_PRECISION_ACT);
  for (int64_t m = WINDOW + 1; m <= MAX_TOKENS; m++) {
    attn_scene_load(&s, NULL);
    ls_trace *out = attn_scene_forward(&s, PLAIN, 0, m, NULL), *state = attn_scene_state(&s);
    for (int64_t p = m - WINDOW; p < m; p++)
      cr_assert(same_row(attn_scene_of(state, PLAIN, "window"), p % WINDOW, ls_trace_tensor(out, "kv"), p), "position %d of %d", (int)p,
                (int)m);
    ls_trace_free(out), ls_trace_free(state);
  }
  attn_scene_close(&s);
}

Test(ref_attn_properties, row_does_not_depend_on_the_number_of_rows_nor_on_its_index) {
  static const char *const stages[] = {"qr", "q", "kv_proj", "kv_norm", "kv_rope", "kv"};
  attn_scene s = attn_scene_open(LS_INDEX_KEYS_OWN, LS_PRECISION_ACT);
  ls_trace *all[LAYERS];
  attn_scene_round(&s, 0, LS_INVARIANT_ROWS, all);
  for (int64_t m = 1; m < LS_INVARIANT_ROWS; m++) {
    ls_trace *out[LAYERS];
    attn_scene_load(&s, NULL);
    attn_scene_round(&s, 0, m, out);
    for (int layer = 0; layer < LAYERS; layer++) {
      for (size_t k = 0; k < sizeof stages / sizeof stages[0]; k++) {
        for (int64_t t = 0; t < m; t++)
          cr_assert(same_row(ls_trace_tensor(out[layer], stages[k]), t, ls_trace_tensor(all[layer], stages[k]), t), "%s row %d of %d",
                    stages[k], (int)t, (int)m);
      }
    }
    attn_scene_free(out);
  }
  attn_scene_free(all);
  attn_scene_close(&s);
}

/* ||a - b|| / ||b|| of one row */
static double apart(const ls_tensor *a, int64_t a_row, const ls_tensor *b, int64_t b_row) {
  const ls_tensor x = row_of(a, a_row), y = row_of(b, b_row);
  double difference = 0, size = 0;
  for (int64_t i = 0; i < ls_tensor_count(&x); i++) {
    const double u = ls_tensor_get(&x, i), v = ls_tensor_get(&y, i);
    difference += (u - v) * (u - v);
    size += v * v;
  }
  return sqrt(difference / size);
}

/* The last query's selection of a prefill of m rows, as a decode at m - 1 has it: behind a ring, not behind m rows. */
static ls_trace *selection_for_decode(const ls_trace *prefill, int64_t m) {
  const ls_tensor *from = ls_trace_tensor(prefill, "compress_idx");
  ls_trace *given = scene_trace();
  ls_tensor to;
  if (from == NULL) return given;
  cr_assert_eq(ls_trace_add(given, "compress_idx", LS_I32, 2, (int64_t[]){1, from->dim[1]}, &to, NULL), LS_OK);
  for (int64_t j = 0; j < from->dim[1]; j++) {
    const int32_t entry = ((const int32_t *)from->data)[(m - 1) * from->dim[1] + j];
    ((int32_t *)to.data)[j] = entry < 0 ? -1 : entry - (int32_t)m + WINDOW;
  }
  return given;
}

/* Scores of the last query of a prefill of m rows against those of a decode at m - 1; true where there are none. */
static bool same_scores(const ls_trace *prefill, const ls_trace *decode, int64_t m) {
  const ls_tensor *a = ls_trace_tensor(prefill, "index_score"), *b = ls_trace_tensor(decode, "index_score");
  cr_assert_eq(a == NULL, b == NULL);
  return a == NULL || same_row(a, m - 1, b, 0);
}

/* published: at a decode that leaves a group open, the pooler scores against the keys of SOURCE, as the published code does. */
Test(ref_attn_properties, prefill_then_decode_is_a_longer_prefill_with_own_keys_and_not_with_published_ones) {
  static const char *const stages[] = {"q", "kv", "sparse_o", "o_rot", "o_group", "out"};
  int differing = 0;
  for (int keys = LS_INDEX_KEYS_PUBLISHED; keys <= LS_INDEX_KEYS_OWN; keys++) {
    attn_scene s = attn_scene_open((ls_index_keys)keys, LS_PRECISION_ACT);
    for (int64_t m = 2; m <= LS_INVARIANT_ROWS; m++) {
      ls_trace *longer[LAYERS];
      attn_scene_load(&s, NULL);
      attn_scene_round(&s, 0, m, longer);
      attn_scene_load(&s, NULL);
      attn_scene_round(&s, 0, m - 1, NULL);
      for (int layer = 0; layer < LAYERS; layer++) {
        ls_trace *given = selection_for_decode(longer[layer], m), *out = attn_scene_forward(&s, layer, m - 1, 1, given);
        const bool same = same_scores(longer[layer], out, m);
        if (keys == LS_INDEX_KEYS_OWN || layer != POOLER || m % RATIO == 0) {
          cr_assert(same, "layer %d, %d tokens", layer, (int)m);
        } else if (m > RATIO) {
          cr_assert_not(same, "layer %d, %d tokens", layer, (int)m);
          differing++;
        }
        for (size_t k = 0; k < sizeof stages / sizeof stages[0]; k++) {
          const double d = apart(ls_trace_tensor(out, stages[k]), 0, ls_trace_tensor(longer[layer], stages[k]), m - 1);
          cr_assert(d <= 2e-3, "layer %d, %d tokens: %s is %g apart", layer, (int)m, stages[k], d);
        }
        ls_trace_free(given), ls_trace_free(out);
      }
      attn_scene_free(longer);
    }
    attn_scene_close(&s);
  }
  cr_assert_gt(differing, 5);
}

/* ---- selections ---- */

static void assert_legal_indices(const ls_trace *out, const ls_attn_plan *p, int64_t width) {
  const ls_tensor *idx = ls_trace_tensor(out, "idx"), *mask = ls_trace_tensor(out, "candidates");
  cr_assert_eq(idx->dim[1], p->wk + width);
  for (int64_t t = 0; t < p->m; t++) {
    const int32_t *entry = (const int32_t *)idx->data + t * idx->dim[1];
    const int64_t visible = ls_attn_visible(p, t), position = p->start_pos + t;
    int64_t rows = 0, previous = -1, chosen = 0;
    for (int64_t j = 0; j < p->wk; j++) {
      if (entry[j] == -1) continue;
      rows++;
      cr_assert(entry[j] >= 0 && entry[j] < p->rows_a);
      if (p->start_pos == 0) cr_assert(entry[j] <= t && entry[j] > t - WINDOW); /* nothing from the future, nothing that left the window */
      for (int64_t i = 0; i < j; i++) cr_assert_neq(entry[i], entry[j]);
    }
    cr_assert_eq(rows, position + 1 < WINDOW ? position + 1 : WINDOW);
    for (int64_t j = 0; j < width; j++) {
      const int64_t e = entry[p->wk + j];
      if (e == -1) continue;
      cr_assert_eq(chosen, j, "-1 comes last");
      chosen++;
      cr_assert(e >= p->rows_a && e - p->rows_a < visible, "row %d of %d visible", (int)(e - p->rows_a), (int)visible);
      cr_assert_gt(e, previous);
      previous = e;
    }
    if (!p->masked && p->index_source) cr_assert_eq(chosen, visible < width ? visible : width);
    if (mask == NULL || visible == 0) continue;
    int64_t kept = 0;
    for (int64_t j = 0; j < p->n; j++) kept += ls_tensor_get(mask, t * p->n + j) != 0 && j < visible;
    for (int64_t j = (visible - 1) / BLOCK * BLOCK; j < visible; j++) cr_assert_neq(ls_tensor_get(mask, t * p->n + j), 0);
    cr_assert(kept <= BLOCK * BLOCKS && kept >= (visible < BLOCK * BLOCKS ? visible : BLOCK * (BLOCKS - 1) + 1));
  }
}

Test(ref_attn_properties, every_selected_index_is_legal) {
  static const int64_t prefill[] = {1, RATIO - 1, RATIO, RATIO + 1, WINDOW - 1, WINDOW, WINDOW + 1, 2 * WINDOW, 2 * WINDOW + 1, MAX_TOKENS};
  for (int keys = LS_INDEX_KEYS_PUBLISHED; keys <= LS_INDEX_KEYS_OWN; keys++) {
    attn_scene s = attn_scene_open((ls_index_keys)keys, LS_PRECISION_ACT);
    for (size_t i = 0; i < sizeof prefill / sizeof prefill[0]; i++) {
      attn_scene_load(&s, NULL);
      for (int64_t start = 0, m = prefill[i]; start <= prefill[i] + 2 * WINDOW + 2; start += m, m = 1) {
        int64_t width = 0; /* of the last selection */
        for (int layer = 0; layer < LAYERS; layer++) {
          const ls_step step = {.layer = layer, .start_pos = start, .rows = m};
          ls_attn_plan plan;
          ls_attn_plan_shapes(&s.config.attn, &step, &plan);
          ls_trace *out = attn_scene_forward(&s, layer, start, m, NULL);
          if (plan.index_source) width = plan.k;
          assert_legal_indices(out, &plan, plan.ratio == 0 ? 0 : width);
          ls_trace_free(out);
        }
      }
    }
    attn_scene_close(&s);
  }
}

Test(ref_attn_properties, layer_that_is_no_source_changes_its_ring_alone) {
  static const int layers[] = {PLAIN, POOL_READER, READER};
  attn_scene s = attn_scene_open(LS_INDEX_KEYS_PUBLISHED, LS_PRECISION_ACT);
  attn_scene_round(&s, 0, 11, NULL);
  for (int64_t start = 11; start < 15; start++) {
    for (int layer = 0; layer < LAYERS; layer++) {
      ls_trace *before = attn_scene_state(&s), *out = attn_scene_forward(&s, layer, start, 1, NULL), *after = attn_scene_state(&s);
      bool source = true;
      for (size_t i = 0; i < sizeof layers / sizeof layers[0]; i++) source = source && layer != layers[i];
      char ring[64];
      snprintf(ring, sizeof ring, "layers/%d/window", layer);
      int changed = 0;
      for (int i = 0; i < after->n; i++) {
        if (strcmp(after->rec[i].name, ring) == 0) continue;
        changed += !same_tensor(ls_trace_tensor(before, after->rec[i].name), &after->rec[i].t);
      }
      cr_assert_eq(changed > 0, source, "layer %d changed %d tensors", layer, changed);
      cr_assert_not(same_tensor(ls_trace_tensor(before, ring), ls_trace_tensor(after, ring)));
      ls_trace_free(before), ls_trace_free(out), ls_trace_free(after);
    }
  }
  attn_scene_close(&s);
}

/* ---- non-finite values ---- */

static void plant(const ls_tensor *t, int64_t row, int64_t column) { ls_tensor_set(t, row * t->dim[1] + column, (double)NAN); }

static bool nan_in_row(const ls_trace *out, const char *stage, int64_t row) {
  const ls_tensor one = row_of(ls_trace_tensor(out, stage), row);
  return attn_scene_has_nan(&one);
}

Test(ref_attn_properties, nan_in_one_input_row_reaches_the_queries_that_see_it_and_no_other) {
  enum { M = 15, BAD = 4 };
  attn_scene s = attn_scene_open(LS_INDEX_KEYS_OWN, LS_PRECISION_ACT);
  ls_trace *in = attn_scene_input(&s, PLAIN, 0, M), *out = scene_trace();
  plant(ls_trace_tensor(in, "x"), BAD, 17);
  cr_assert_eq(attn_scene_try(&s, PLAIN, 0, M, in, NULL, out), LS_OK);
  for (int64_t t = 0; t < M; t++) {
    cr_assert_eq(nan_in_row(out, "qr", t), t == BAD);
    cr_assert_eq(nan_in_row(out, "kv", t), t == BAD);
    cr_assert_eq(nan_in_row(out, "out", t), t >= BAD && t < BAD + WINDOW, "row %d", (int)t);
  }
  ls_trace_free(in), ls_trace_free(out);

  /* compressed rows: the group of the bad token, at every query that selects it */
  in = attn_scene_input(&s, POOLER, 0, M), out = scene_trace();
  plant(ls_trace_tensor(in, "x"), BAD, 17);
  cr_assert_eq(attn_scene_try(&s, POOLER, 0, M, in, NULL, out), LS_OK);
  for (int64_t j = 0; j < M / RATIO; j++) {
    cr_assert_eq(nan_in_row(out, "latent", j), j == BAD / RATIO);
    cr_assert_eq(nan_in_row(out, "compress_kv", j), j == BAD / RATIO);
    cr_assert_eq(nan_in_row(out, "index_k", j), j == BAD / RATIO);
  }
  for (int64_t t = 0; t < M; t++) { /* a NaN score ranks first, so whoever sees the group selects it */
    const bool sees = (t >= BAD && t < BAD + WINDOW) || t >= BAD / RATIO * RATIO + RATIO - 1;
    cr_assert_eq(nan_in_row(out, "out", t), sees, "row %d", (int)t);
  }
  ls_trace_free(in), ls_trace_free(out);
  attn_scene_close(&s);
}

Test(ref_attn_properties, nan_in_one_weight_reaches_what_is_made_with_it) {
  enum { M = 5 };
  attn_scene s = attn_scene_open(LS_INDEX_KEYS_OWN, LS_PRECISION_ACT);
  plant(ls_trace_tensor(s.weights, "layers/0/wo_b"), 30, 3);
  plant(ls_trace_tensor(s.weights, "layers/0/wq_b"), 2 * HEAD_DIM + 5, 3); /* head 2 */
  attn_scene_reopen(&s);
  ls_trace *out = attn_scene_forward(&s, PLAIN, 0, M, NULL);
  for (int64_t t = 0; t < M; t++) {
    for (int64_t head = 0; head < HEADS; head++) {
      const ls_tensor of_head = ls_tensor_slice(ls_trace_tensor(out, "sparse_o"), 1, head * HEAD_DIM, HEAD_DIM);
      const ls_tensor row = ls_tensor_at(&of_head, t);
      cr_assert_eq(attn_scene_has_nan(&row), head == 2);
    }
    cr_assert_not(nan_in_row(out, "kv", t));
  }
  ls_trace_free(out);
  attn_scene_close(&s);

  s = attn_scene_open(LS_INDEX_KEYS_OWN, LS_PRECISION_ACT);
  plant(ls_trace_tensor(s.weights, "layers/0/wo_b"), 30, 3);
  plant(ls_trace_tensor(s.weights, "layers/1/wkv"), 0, 0); /* of another layer */
  attn_scene_reopen(&s);
  out = attn_scene_forward(&s, PLAIN, 0, M, NULL);
  const ls_tensor *y = ls_trace_tensor(out, "out");
  for (int64_t i = 0; i < ls_tensor_count(y); i++) cr_assert_eq((bool)isnan(ls_tensor_get(y, i)), i % y->dim[1] == 30);
  ls_trace_free(out);
  attn_scene_close(&s);
}

/* Whether a decode of `layer` at `start` gives NaN where row `row` of a tensor of the state holds one. */
static bool reads(attn_scene *s, const ls_trace *state, int64_t layer, int64_t start, int64_t of, const char *what, int64_t row) {
  ls_trace *planted;
  cr_assert_eq(ls_trace_copy(&planted, state, NULL), LS_OK);
  plant(attn_scene_of(planted, of, what), row, 1);
  attn_scene_load(s, planted);
  ls_trace *out = attn_scene_forward(s, layer, start, 1, NULL);
  const bool nan = attn_scene_has_nan(ls_trace_tensor(out, "out"));
  ls_trace_free(out), ls_trace_free(planted);
  return nan;
}

Test(ref_attn_properties, rows_that_must_not_be_read_may_hold_nan) {
  attn_scene s = attn_scene_open(LS_INDEX_KEYS_OWN, LS_PRECISION_ACT);
  attn_scene_round(&s, 0, 4, NULL);
  ls_trace *state = attn_scene_state(&s);
  for (int64_t slot = 0; slot < WINDOW; slot++) { /* positions 0 .. 3 are there, 4 is written by the step, the rest is empty */
    cr_assert_eq(reads(&s, state, PLAIN, 4, PLAIN, "window", slot), slot < 4, "slot %d", (int)slot);
    cr_assert_not(reads(&s, state, PLAIN, 4, POOLER, "window", slot)); /* another layer's */
  }
  ls_trace_free(state);

  /* a reader reads the rows that are selected, and no other */
  attn_scene_load(&s, NULL);
  attn_scene_round(&s, 0, 15, NULL);
  for (int layer = 0; layer < READER; layer++) ls_trace_free(attn_scene_forward(&s, layer, 15, 1, NULL));
  state = attn_scene_state(&s);
  const ls_tensor *topk = ls_trace_tensor(state, "topk_idxs");
  int read = 0;
  for (int64_t row = 0; row < 16; row++) {
    bool selected = false;
    for (int64_t j = 0; j < topk->dim[1]; j++) selected = selected || ls_tensor_get(topk, j) == (double)(WINDOW + row);
    cr_assert_eq(reads(&s, state, READER, 15, SOURCE, "compress_cache", row), selected, "row %d", (int)row);
    cr_assert_not(reads(&s, state, READER, 15, SOURCE, "index_cache", row)); /* only an index source reads keys */
    read += selected;
  }
  cr_assert_eq(read, TOPK);
  for (int64_t slot = 0; slot < RATIO; slot++) /* position 15 opens a group: the slots of the closed one do not matter */
    cr_assert_not(reads(&s, state, POOLER, 15, POOLER, "kv_state", slot));
  ls_trace_free(state);

  /* position 16 leaves the group of 15 open; 17 closes it and reads both */
  attn_scene_load(&s, NULL);
  attn_scene_round(&s, 0, 17, NULL);
  state = attn_scene_state(&s);
  for (int64_t slot = 0; slot < RATIO; slot++) {
    cr_assert_eq(reads(&s, state, POOLER, 17, POOLER, "kv_state", slot), slot < 2);
    cr_assert_eq(reads(&s, state, POOLER, 17, POOLER, "score_state", slot), slot < 2);
  }
  ls_trace_free(state);
  attn_scene_close(&s);
}

/* ---- threads, precision ---- */

Test(ref_attn_properties, bytes_do_not_depend_on_the_number_of_threads) {
  attn_scene s = attn_scene_open(LS_INDEX_KEYS_OWN, LS_PRECISION_ACT);
  ls_trace *one[LAYERS], *three[LAYERS];
  ls_threads_set(1);
  attn_scene_round(&s, 0, MAX_TOKENS, one);
  attn_scene_load(&s, NULL);
  ls_threads_set(3);
  attn_scene_round(&s, 0, MAX_TOKENS, three);
  ls_threads_set(0);
  for (int layer = 0; layer < LAYERS; layer++) cr_assert(scene_same(one[layer], three[layer]) && scene_same(three[layer], one[layer]));
  attn_scene_free(one), attn_scene_free(three);
  attn_scene_close(&s);
}

/* Selections are those of the rounded path, so that both attend to the same rows. */
Test(ref_attn_properties, f64_stays_within_rounding_of_the_rounded_path_and_rounds_only_the_grids) {
  static const char *const grids[] = {"kv", "index_k", "index_q", "compress_kv"}, *const smooth[] = {"qr", "q", "latent", "sparse_o",
                                                                                                     "out"};
  attn_scene rounded = attn_scene_open(LS_INDEX_KEYS_OWN, LS_PRECISION_ACT), exact = attn_scene_open(LS_INDEX_KEYS_OWN, LS_PRECISION_F64);
  for (int64_t start = 0, m = 13; start < 17; start += m, m = 1) {
    for (int layer = 0; layer < LAYERS; layer++) {
      ls_trace *a = attn_scene_forward(&rounded, layer, start, m, NULL), *given = scene_trace();
      static const char *const choices[] = {"candidates", "compress_idx"};
      for (int i = 0; i < 2; i++) {
        const ls_tensor *t = ls_trace_tensor(a, choices[i]);
        if (t != NULL) cr_assert_eq(ls_trace_add_view(given, choices[i], t, NULL), LS_OK);
      }
      ls_trace *b = attn_scene_forward(&exact, layer, start, m, given);
      for (int i = 0; i < b->n; i++) {
        const ls_tensor *of_rounded = ls_trace_tensor(a, b->rec[i].name);
        cr_assert_not_null(of_rounded);
        cr_assert_eq(b->rec[i].t.dtype, ls_dtype_is_float(of_rounded->dtype) ? LS_F64 : of_rounded->dtype, "%s", b->rec[i].name);
      }
      for (size_t k = 0; k < sizeof grids / sizeof grids[0]; k++) {
        const ls_tensor *t = ls_trace_tensor(b, grids[k]);
        for (int64_t i = 0; t != NULL && i < ls_tensor_count(t); i++)
          cr_assert_eq(ls_tensor_get(t, i), ls_round_to(LS_BF16, ls_tensor_get(t, i)));
      }
      for (size_t k = 0; k < sizeof smooth / sizeof smooth[0]; k++) {
        const ls_tensor *x = ls_trace_tensor(a, smooth[k]), *y = ls_trace_tensor(b, smooth[k]);
        int64_t unrounded = 0;
        for (int64_t t = 0; x != NULL && t < x->dim[0]; t++)
          cr_assert(apart(x, t, y, t) < 0.1, "layer %d %s %g", layer, smooth[k], apart(x, t, y, t));
        for (int64_t i = 0; x != NULL && i < ls_tensor_count(y); i++)
          unrounded += ls_tensor_get(y, i) != (double)(float)ls_tensor_get(y, i);
        cr_assert(x == NULL || unrounded > ls_tensor_count(y) / 2, "%s", smooth[k]);
      }
      ls_trace_free(a), ls_trace_free(b), ls_trace_free(given);
    }
  }
  attn_scene_close(&rounded), attn_scene_close(&exact);
}
