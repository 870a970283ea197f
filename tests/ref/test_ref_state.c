#include <criterion/criterion.h>
#include <math.h>
#include <string.h>

#include "core/ls_numeric.h"
#include "core/ls_random.h"
#include "core/ls_ring.h"
#include "ref_scene.h"

/* A state where every byte matters: rings and capture buffer full of values. */
static void fill(scene *s) {
  cr_assert_eq(scene_draft(s, 5, 24, 1), LS_OK);
  cr_assert_eq(scene_capture(s, 40, 24, 2), LS_OK);
  cr_assert_eq(scene_write(s, 9, NULL, NULL, false), LS_OK);
  cr_assert_eq(scene_capture(s, 44, 11, 3), LS_OK);
}

Test(ref_state, saved_and_loaded_is_the_same_to_the_byte) {
  for (int act = LS_BF16; act <= LS_F16; act++) {
    for (int precision = LS_PRECISION_ACT; precision <= LS_PRECISION_F64; precision++) {
      const ls_dflash_config shape = scene_shape();
      scene s = scene_open(&shape, (ls_dtype)act, (ls_precision)precision);
      scene other = scene_open(&shape, (ls_dtype)act, (ls_precision)precision);
      fill(&s);
      ls_trace *saved = scene_state(&s);
      const ls_dtype stored = precision == LS_PRECISION_F64 ? LS_F64 : (ls_dtype)act;
      cr_assert_eq(saved->n, 6);
      cr_assert_eq(ls_trace_tensor(saved, "k_ring")->dtype, stored);
      cr_assert_eq(ls_trace_tensor(saved, "capture")->dtype, stored);
      cr_assert_eq(ls_trace_tensor(saved, "cursor")->dtype, LS_I64);
      cr_assert_eq(scene_integer(saved, "cursor"), 49);
      cr_assert_eq(scene_integer(saved, "capture_base"), 44);
      cr_assert_eq(scene_integer(saved, "capture_rows"), 11);
      scene_load(&other, saved);
      ls_trace *again = scene_state(&other);
      cr_assert(scene_same(saved, again) && scene_same(again, saved));
      /* and goes on alike */
      cr_assert_eq(scene_write(&s, 11, NULL, NULL, false), LS_OK);
      cr_assert_eq(scene_write(&other, 11, NULL, NULL, false), LS_OK);
      ls_trace *a = scene_state(&s), *b = scene_state(&other);
      cr_assert(scene_same(a, b));
      ls_trace_free(a), ls_trace_free(b), ls_trace_free(again), ls_trace_free(saved);
      scene_close(&s), scene_close(&other);
    }
  }
}

Test(ref_state, every_bit_pattern_of_a_ring_survives) {
  ls_dflash_config shape = scene_shape();
  shape.layers = 1, shape.num_kv_heads = 1, shape.head_dim = 4096, shape.ring_capacity = 16, shape.hidden = 2, shape.aux_count = 1;
  for (int act = LS_BF16; act <= LS_F16; act++) {
    scene s = scene_open(&shape, (ls_dtype)act, LS_PRECISION_ACT);
    ls_trace *state = scene_trace();
    ls_tensor t;
    cr_assert_eq(ls_trace_add(state, "k_ring", (ls_dtype)act, 3, (int64_t[]){1, 16, 4096}, &t, NULL), LS_OK);
    for (int i = 0; i < 65536; i++) ((uint16_t *)t.data)[i] = (uint16_t)i; /* signalling NaN included */
    scene_load(&s, state);
    ls_trace *saved = scene_state(&s);
    cr_assert(scene_same(state, saved));
    ls_trace_free(saved), ls_trace_free(state);
    scene_close(&s);
  }
}

Test(ref_state, what_is_absent_becomes_zero) {
  const ls_dflash_config shape = scene_shape();
  scene s = scene_open(&shape, LS_BF16, LS_PRECISION_ACT);
  ls_trace *start = scene_state(&s), *nothing = scene_trace();
  for (int i = 0; i < start->n; i++) {
    for (int64_t j = 0; j < ls_tensor_count(&start->rec[i].t); j++) cr_assert_eq(ls_tensor_get(&start->rec[i].t, j), 0);
  }
  fill(&s);
  scene_load(&s, nothing);
  ls_trace *after = scene_state(&s);
  cr_assert(scene_same(start, after));
  fill(&s);
  scene_reset(&s);
  ls_trace *reset = scene_state(&s);
  cr_assert(scene_same(start, reset));
  ls_trace_free(reset), ls_trace_free(after), ls_trace_free(nothing), ls_trace_free(start);
  scene_close(&s);
}

Test(ref_state, any_float_type_is_loaded_nearest_even) {
  const ls_dflash_config shape = scene_shape();
  static const int64_t ring[] = {2, 24, 66};
  for (int act = LS_BF16; act <= LS_F16; act++) {
    for (int type = LS_BF16; type <= LS_F64; type++) {
      scene s = scene_open(&shape, (ls_dtype)act, LS_PRECISION_ACT);
      ls_trace *state = scene_trace();
      ls_tensor t;
      cr_assert_eq(ls_trace_add(state, "v_ring", (ls_dtype)type, 3, ring, &t, NULL), LS_OK);
      ls_generate(&t, "any float", 3.0, 0.0);
      scene_load(&s, state);
      ls_trace *saved = scene_state(&s);
      const ls_tensor *loaded = ls_trace_tensor(saved, "v_ring");
      for (int64_t i = 0; i < ls_tensor_count(&t); i++) {
        cr_assert_eq(ls_tensor_get(loaded, i), ls_round_to((ls_dtype)act, ls_tensor_get(&t, i)));
      }
      ls_trace_free(saved), ls_trace_free(state);
      scene_close(&s);
    }
  }
}

Test(ref_state, capture_of_a_fixture_fills_the_first_rows) {
  const ls_dflash_config shape = scene_shape();
  scene s = scene_open(&shape, LS_BF16, LS_PRECISION_ACT), direct = scene_open(&shape, LS_BF16, LS_PRECISION_ACT);
  int64_t base = 17, rows = 6;
  const int64_t one = 1;
  ls_trace *state = scene_capture_input(&s, base, rows, 4);
  const ls_tensor base_t = ls_tensor_make(LS_I64, 1, &one, &base), rows_t = ls_tensor_make(LS_I64, 1, &one, &rows);
  cr_assert_eq(ls_trace_add_view(state, "capture_base", &base_t, NULL), LS_OK);
  cr_assert_eq(ls_trace_add_view(state, "capture_rows", &rows_t, NULL), LS_OK);
  fill(&s);
  scene_load(&s, state);
  cr_assert_eq(scene_capture(&direct, base, rows, 4), LS_OK);
  ls_trace *a = scene_state(&s), *b = scene_state(&direct);
  cr_assert(scene_same(a, b));
  ls_trace_free(a), ls_trace_free(b), ls_trace_free(state);
  scene_close(&s), scene_close(&direct);
}

Test(ref_state, bad_state_is_refused_by_name_and_changes_nothing) {
  const int64_t ring[] = {2, 24, 66}, short_ring[] = {2, 23, 66}, tall[] = {25, 150}, low[] = {5, 150}, two[] = {2}, scalar[] = {1};
  const struct {
    const char *name;
    ls_dtype type;
    int ndim;
    const int64_t *dim;
    double value;
    const char *text;
  } cases[] = {
      {"k_ring", LS_BF16, 3, short_ring, 1, "state: k_ring: expected bf16, f16, f32 or f64 [2, 24, 66], found bf16 [2, 23, 66]"},
      {"v_ring", LS_I32, 3, ring, 1, "state: v_ring"},
      {"capture", LS_BF16, 2, tall, 1, "state: capture: expected bf16, f16, f32 or f64 [24, 150], found bf16 [25, 150]"},
      {"cursor", LS_I64, 1, two, 1, "state: cursor: expected one integer, found i64 [2]"},
      {"cursor", LS_F32, 1, scalar, 1, "state: cursor: expected one integer, found f32 [1]"},
      {"cursor", LS_I64, 1, scalar, -1, "state: cursor: expected 0 .. 2147483648, found -1"},
      {"cursor", LS_I64, 1, scalar, 2147483649.0, "state: cursor"},
      {"capture_rows", LS_I64, 1, scalar, 25, "state: capture_rows: expected 0 .. max_rows = 24, found 25"},
      {"capture_base", LS_I64, 1, scalar, -2, "state: capture_base"},
  };
  const ls_dflash_config shape = scene_shape();
  scene s = scene_open(&shape, LS_BF16, LS_PRECISION_ACT);
  fill(&s);
  ls_trace *before = scene_state(&s);
  for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
    ls_trace *state = scene_trace();
    ls_tensor t;
    ls_error err = {0};
    cr_assert_eq(ls_trace_add(state, cases[i].name, cases[i].type, cases[i].ndim, cases[i].dim, &t, NULL), LS_OK);
    for (int64_t j = 0; j < ls_tensor_count(&t); j++) {
      if (ls_dtype_is_float(t.dtype)) ls_tensor_set(&t, j, cases[i].value);
      if (t.dtype == LS_I64) ((int64_t *)t.data)[j] = (int64_t)cases[i].value;
      if (t.dtype == LS_I32) ((int32_t *)t.data)[j] = (int32_t)cases[i].value;
    }
    cr_assert_eq(ls_path_ref.load(s.path, state, &err), LS_BAD_FIXTURE, "%s", cases[i].text);
    cr_assert_not_null(strstr(err.text, cases[i].text), "expected \"%s\", found \"%s\"", cases[i].text, err.text);
    ls_trace *after = scene_state(&s);
    cr_assert(scene_same(before, after));
    ls_trace_free(after), ls_trace_free(state);
  }
  /* fewer rows of capture than are captured */
  ls_trace *state = scene_trace();
  ls_tensor t, rows;
  cr_assert_eq(ls_trace_add(state, "capture", LS_BF16, 2, low, &t, NULL), LS_OK);
  cr_assert_eq(ls_trace_add(state, "capture_rows", LS_I64, 1, scalar, &rows, NULL), LS_OK);
  *(int64_t *)rows.data = 6;
  cr_assert_eq(ls_path_ref.load(s.path, state, NULL), LS_BAD_FIXTURE);
  ls_trace_free(state), ls_trace_free(before);
  scene_close(&s);
}

Test(ref_state, capture_replaces_only_the_rows_it_is_given) {
  const ls_dflash_config shape = scene_shape();
  scene s = scene_open(&shape, LS_BF16, LS_PRECISION_ACT);
  cr_assert_eq(scene_capture(&s, 100, 24, 1), LS_OK);
  ls_trace *before = scene_state(&s), *in = scene_capture_input(&s, 7, 10, 2);
  cr_assert_eq(scene_capture(&s, 7, 10, 2), LS_OK);
  ls_trace *after = scene_state(&s);
  for (int64_t row = 0; row < 24; row++) {
    const ls_tensor now = ls_tensor_at(ls_trace_tensor(after, "capture"), row);
    const ls_tensor expected = ls_tensor_at(ls_trace_tensor(row < 10 ? in : before, "capture"), row);
    cr_assert(ls_tensor_same_bytes(&now, &expected), "row %d", (int)row);
  }
  cr_assert(ls_tensor_same_bytes(ls_trace_tensor(before, "k_ring"), ls_trace_tensor(after, "k_ring")));
  ls_trace_free(in), ls_trace_free(before), ls_trace_free(after);
  scene_close(&s);
}

Test(ref_state, refused_operations_leave_every_byte) {
  const ls_dflash_config shape = scene_shape(); /* ring 24, window 8, max_rows 24 */
  const int64_t limit = LS_POSITION_LIMIT;
  for (int precision = LS_PRECISION_ACT; precision <= LS_PRECISION_F64; precision++) {
    scene s = scene_open(&shape, LS_BF16, (ls_precision)precision);
    fill(&s); /* cursor 49, captured [44, 55) */
    ls_trace *before = scene_state(&s);
    int refused = 0;
    refused += scene_capture(&s, 49, 0, 9) == LS_REFUSED;
    refused += scene_capture(&s, 49, 25, 9) == LS_REFUSED;
    refused += scene_capture(&s, -1, 3, 9) == LS_REFUSED;
    refused += scene_capture(&s, limit - 2, 3, 9) == LS_REFUSED;
    refused += scene_draft(&s, 49, 0, 9) == LS_REFUSED;
    refused += scene_draft(&s, 49, 25, 9) == LS_REFUSED;
    refused += scene_draft(&s, -5, 3, 9) == LS_REFUSED;
    refused += scene_draft(&s, limit, 1, 9) == LS_REFUSED;
    refused += scene_write(&s, 0, NULL, NULL, false) == LS_REFUSED;
    refused += scene_write(&s, 12, NULL, NULL, false) == LS_REFUSED;
    refused += scene_write(&s, 4, NULL, NULL, false) == LS_REFUSED; /* 48 < 49 */
    refused += scene_rewind(&s, -1) == LS_REFUSED;
    refused += scene_rewind(&s, 32) == LS_REFUSED; /* 17 > 16 */
    cr_assert_eq(refused, 13);
    cr_assert_not_null(strstr(s.err.text, "rewind refused"));
    ls_trace *after = scene_state(&s);
    cr_assert(scene_same(before, after));
    ls_trace_free(after);
    cr_assert_eq(scene_rewind(&s, 60), LS_OK); /* forward: nothing happens */
    after = scene_state(&s);
    cr_assert(scene_same(before, after));
    cr_assert_eq(scene_rewind(&s, 33), LS_OK);
    cr_assert_eq(scene_write(&s, 4, NULL, NULL, false), LS_OK); /* and now it may */
    ls_trace_free(before), ls_trace_free(after);
    scene_close(&s);
  }
}

Test(ref_state, rewind_moves_the_cursor_and_no_row) {
  const ls_dflash_config shape = scene_shape();
  scene s = scene_open(&shape, LS_BF16, LS_PRECISION_ACT);
  fill(&s);
  ls_trace *before = scene_state(&s);
  cr_assert_eq(scene_rewind(&s, 41), LS_OK);
  ls_trace *after = scene_state(&s);
  cr_assert_eq(scene_integer(after, "cursor"), 41);
  for (int i = 0; i < before->n; i++) {
    const bool same = ls_tensor_same_bytes(&before->rec[i].t, ls_trace_tensor(after, before->rec[i].name));
    cr_assert_eq(same, strcmp(before->rec[i].name, "cursor") != 0, "%s", before->rec[i].name);
  }
  ls_trace_free(before), ls_trace_free(after);
  scene_close(&s);
}
