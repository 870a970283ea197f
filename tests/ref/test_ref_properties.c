/* The properties of layers.md that hold bit for bit: each is checked through the whole path. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "core/ls_numeric.h"
#include "core/ls_parallel.h"
#include "core/ls_random.h"
#include "core/ls_ring.h"
#include "ref_scene.h"

/* The state after [base, base + rows) of one version was captured and written into rings that were zero. */
static ls_trace *written(scene *s, int64_t base, int64_t rows, int version) {
  scene_reset(s);
  cr_assert_eq(scene_capture(s, base, rows, version), LS_OK);
  cr_assert_eq(scene_write(s, rows, NULL, NULL, false), LS_OK);
  return scene_state(s);
}

/* K and V of one position are the same bytes in two states, in every drafter layer. */
static bool same_position(const scene *s, const ls_trace *a, const ls_trace *b, int64_t position) {
  const int64_t slot = ls_ring_slot(position, s->config.dflash.ring_capacity);
  bool same = true;
  for (int64_t layer = 0; layer < s->config.dflash.layers; layer++) {
    const ls_tensor ka = scene_slot(a, "k_ring", layer, slot), kb = scene_slot(b, "k_ring", layer, slot);
    const ls_tensor va = scene_slot(a, "v_ring", layer, slot), vb = scene_slot(b, "v_ring", layer, slot);
    same = same && ls_tensor_same_bytes(&ka, &kb) && ls_tensor_same_bytes(&va, &vb);
  }
  return same;
}

/* A second shape with longer sums, as a BLAS may switch its code with the size. */
static ls_dflash_config longer_shape(void) {
  return (ls_dflash_config){.hidden = 640,
                            .aux_count = 2,
                            .layers = 1,
                            .num_kv_heads = 2,
                            .head_dim = 64,
                            .ring_capacity = 32,
                            .window = 16,
                            .max_rows = 32,
                            .rms_eps = 1e-6,
                            .rope_theta = 1e7};
}

Test(ref_properties, row_does_not_depend_on_the_number_of_rows_nor_on_its_index) {
  for (int act = LS_BF16; act <= LS_F16; act++) {
    for (int longer = 0; longer <= 1; longer++) {
      const ls_dflash_config shape = longer ? longer_shape() : scene_shape();
      scene s = scene_open(&shape, (ls_dtype)act, LS_PRECISION_ACT);
      const int64_t position = 1000003; /* watched; somewhere in blocks of every size, at every index */
      ls_trace *alone = written(&s, position, 1, 0);
      for (int64_t rows = 2; rows <= 16; rows++) {
        for (int64_t index = 0; index < rows; index++) {
          ls_trace *together = written(&s, position - index, rows, 0);
          cr_assert(same_position(&s, alone, together, position), "%s: row %d of %d", ls_dtype_name(s.config.act), (int)index, (int)rows);
          ls_trace_free(together);
        }
      }
      ls_trace_free(alone);
      scene_close(&s);
    }
  }
}

Test(ref_properties, every_row_of_every_block_equals_itself_alone) {
  const ls_dflash_config shape = scene_shape();
  scene s = scene_open(&shape, LS_BF16, LS_PRECISION_ACT);
  ls_trace *alone[16];
  for (int64_t p = 0; p < 16; p++) alone[p] = written(&s, 90 + p, 1, 0); /* crosses the end of the ring at 96 */
  for (int64_t rows = 1; rows <= 16; rows++) {
    ls_trace *together = written(&s, 90, rows, 0);
    for (int64_t p = 0; p < rows; p++) cr_assert(same_position(&s, alone[p], together, 90 + p));
    ls_trace_free(together);
  }
  for (int64_t p = 0; p < 16; p++) ls_trace_free(alone[p]);
  scene_close(&s);
}

Test(ref_properties, rows_at_once_equal_any_split) {
  const ls_dflash_config shape = scene_shape();
  scene s = scene_open(&shape, LS_BF16, LS_PRECISION_ACT);
  ls_random r = {.seed = 11};
  for (int round = 0; round < 60; round++) {
    const int64_t base = ls_random_range(&r, 0, 3000), rows = ls_random_range(&r, 2, 16);
    ls_trace *once = written(&s, base, rows, 1);
    scene_reset(&s);
    for (int64_t done = 0; done < rows;) {
      const int64_t part = ls_random_range(&r, 1, rows - done);
      cr_assert_eq(scene_capture(&s, base + done, part, 1), LS_OK);
      cr_assert_eq(scene_write(&s, part, NULL, NULL, false), LS_OK);
      done += part;
    }
    ls_trace *split = scene_state(&s);
    cr_assert(ls_tensor_same_bytes(ls_trace_tensor(once, "k_ring"), ls_trace_tensor(split, "k_ring")));
    cr_assert(ls_tensor_same_bytes(ls_trace_tensor(once, "v_ring"), ls_trace_tensor(split, "v_ring")));
    cr_assert_eq(scene_integer(once, "cursor"), scene_integer(split, "cursor"));
    ls_trace_free(once), ls_trace_free(split);
  }
  scene_close(&s);
}

Test(ref_properties, the_same_capture_and_write_again_give_identical_rings) {
  const ls_dflash_config shape = scene_shape();
  for (int64_t rows = 1; rows <= 24; rows++) { /* above 16 rows too: it is the same computation */
    scene s = scene_open(&shape, LS_F16, LS_PRECISION_ACT);
    cr_assert_eq(scene_draft(&s, 30, 24, 5), LS_OK);
    cr_assert_eq(scene_capture(&s, 37, rows, 0), LS_OK);
    cr_assert_eq(scene_write(&s, rows, NULL, NULL, false), LS_OK);
    ls_trace *first = scene_state(&s);
    cr_assert_eq(scene_capture(&s, 37, rows, 0), LS_OK);
    cr_assert_eq(scene_write(&s, rows, NULL, NULL, false), LS_OK);
    ls_trace *second = scene_state(&s);
    cr_assert(scene_same(first, second));
    ls_trace_free(first), ls_trace_free(second);
    scene_close(&s);
  }
}

Test(ref_properties, bytes_do_not_depend_on_the_number_of_threads) {
  static const int64_t counts[] = {1, 3, 8, 16, 17, 24, 32};
  const ls_dflash_config shape = longer_shape();
  scene s = scene_open(&shape, LS_BF16, LS_PRECISION_ACT), exact = scene_open(&shape, LS_BF16, LS_PRECISION_F64);
  for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++) {
    ls_threads_set(1);
    ls_trace *one = written(&s, 60, counts[i], 0), *exact_one = written(&exact, 60, counts[i], 0);
    for (int threads = 2; threads <= 5; threads++) {
      ls_threads_set(threads);
      ls_trace *many = written(&s, 60, counts[i], 0), *exact_many = written(&exact, 60, counts[i], 0);
      cr_assert(scene_same(one, many) && scene_same(exact_one, exact_many), "%d rows, %d threads", (int)counts[i], threads);
      ls_trace_free(many), ls_trace_free(exact_many);
    }
    ls_trace_free(one), ls_trace_free(exact_one);
  }
  ls_threads_set(0);
  scene_close(&s), scene_close(&exact);
}

/* What each slot must hold, in a model that knows only (kind, version, position) of the last write: a drafted row is its input, a
 * target-derived one what a fresh path makes of that row alone. After every operation of a random history the whole rings must agree, so
 * this is at once write-set, wrap, idempotence, refusals, and "any history that ends with the same rows ends with the same bytes". */
typedef struct {
  enum { NEVER, DRAFTED, DERIVED } kind;
  int version;
  int64_t position;
} slot_model;

static bool slot_agrees(scene *s, scene *fresh, const ls_trace *state, int64_t slot, const slot_model *m) {
  bool same = true;
  ls_trace *expected = m->kind == DERIVED ? written(fresh, m->position, 1, m->version) : scene_draft_input(s, m->position, 1, m->version);
  for (int64_t layer = 0; layer < s->config.dflash.layers; layer++) {
    const ls_tensor k = scene_slot(state, "k_ring", layer, slot), v = scene_slot(state, "v_ring", layer, slot);
    if (m->kind == NEVER) {
      for (int64_t i = 0; i < k.dim[0]; i++) same = same && ls_tensor_get(&k, i) == 0 && ls_tensor_get(&v, i) == 0;
    } else {
      const ls_tensor ek = scene_slot(expected, m->kind == DERIVED ? "k_ring" : "k", layer, m->kind == DERIVED ? slot : 0);
      const ls_tensor ev = scene_slot(expected, m->kind == DERIVED ? "v_ring" : "v", layer, m->kind == DERIVED ? slot : 0);
      same = same && ls_tensor_same_bytes(&k, &ek) && ls_tensor_same_bytes(&v, &ev);
    }
  }
  ls_trace_free(expected);
  return same;
}

Test(ref_properties, any_history_leaves_in_each_slot_the_row_that_was_written_last) {
  ls_dflash_config shape = scene_shape();
  shape.ring_capacity = 20, shape.window = 6, shape.max_rows = 16;
  scene s = scene_open(&shape, LS_BF16, LS_PRECISION_ACT), fresh = scene_open(&shape, LS_BF16, LS_PRECISION_ACT);
  ls_random r = {.seed = 2};
  int wraps = 0, again = 0, refusals = 0;
  for (int history = 0; history < 12; history++) {
    slot_model model[20] = {{0}};
    int64_t cursor = 0, captured = 0, captured_rows = 0;
    int captured_version = 0;
    const int64_t far = history % 3 == 0 ? 0 : history % 3 == 1 ? 999990 : LS_POSITION_LIMIT - 80;
    scene_reset(&s);
    for (int i = 0; i < 60; i++) {
      const int version = (int)ls_random_range(&r, 0, 2); /* few, so that rows come back */
      const int64_t near = cursor == 0 ? far : cursor;
      const int64_t base = near + ls_random_range(&r, -8, 4), rows = ls_random_range(&r, 0, 17);
      int64_t first = 0, n = 0;
      slot_model now = {NEVER, version, 0};
      ls_status status;
      switch (ls_random_range(&r, 0, 6)) {
        case 0:
        case 1:
          status = scene_capture(&s, base, rows, version);
          if (status == LS_OK) captured = base, captured_rows = rows, captured_version = version;
          break;
        case 2:
          status = scene_draft(&s, base, rows, version);
          if (status == LS_OK) first = base, n = rows, now.kind = DRAFTED;
          break;
        case 3:
          status = scene_rewind(&s, near - ls_random_range(&r, 0, 16));
          break;
        default:
          again += captured < cursor;
          status = scene_write(&s, captured_rows > 0 && rows > captured_rows ? captured_rows : rows, NULL, NULL, false);
          if (status == LS_OK) {
            first = captured, n = captured_rows > 0 && rows > captured_rows ? captured_rows : rows;
            now.kind = DERIVED, now.version = captured_version;
            captured_rows = 0;
          }
          break;
      }
      cr_assert(status == LS_OK || status == LS_REFUSED, "%s", s.err.text);
      refusals += status == LS_REFUSED;
      for (int64_t p = first; p < first + n; p++) model[p % 20] = (slot_model){now.kind, now.version, p};
      wraps += n > 0 && first % 20 + n > 20;
      ls_trace *state = scene_state(&s);
      cursor = scene_integer(state, "cursor");
      for (int64_t slot = 0; slot < 20; slot++) {
        cr_assert(slot_agrees(&s, &fresh, state, slot, &model[slot]), "history %d, operation %d, slot %d", history, i, (int)slot);
      }
      ls_trace_free(state);
    }
  }
  cr_assert(wraps > 40 && again > 20 && refusals > 100, "%d wraps, %d rows behind the cursor, %d refusals: proves little", wraps, again,
            refusals);
  scene_close(&s), scene_close(&fresh);
}

Test(ref_properties, write_of_more_than_16_rows_agrees_with_single_rows_within_rounding) {
  const ls_dflash_config shape = longer_shape();
  scene s = scene_open(&shape, LS_BF16, LS_PRECISION_ACT);
  ls_trace *together = written(&s, 50, 32, 0);
  int64_t equal = 0, count = 0;
  for (int64_t p = 50; p < 82; p++) {
    ls_trace *alone = written(&s, p, 1, 0);
    for (int ring = 0; ring < 2; ring++) {
      const ls_tensor a = scene_slot(alone, ring ? "v_ring" : "k_ring", 0, p % 32),
                      b = scene_slot(together, ring ? "v_ring" : "k_ring", 0, p % 32);
      for (int64_t i = 0; i < a.dim[0]; i++) {
        const double x = ls_tensor_get(&a, i), y = ls_tensor_get(&b, i);
        equal += x == y;
        count++;
        /* one flipped rounding of an input moves a sum by a few steps of a typical value (about 1 here) at most */
        cr_assert(fabs(x - y) <= 4 * 0x1p-7, "position %d channel %d: %g %g", (int)p, (int)i, x, y);
      }
    }
    ls_trace_free(alone);
  }
  cr_assert(equal >= count * 99 / 100, "%d of %d equal", (int)equal, (int)count);
  ls_trace_free(together);
  scene_close(&s);
}

Test(ref_properties, a_nan_or_infinite_row_spoils_itself_only) {
  static const float bad[] = {NAN, INFINITY, -INFINITY};
  const ls_dflash_config shape = scene_shape();
  scene s = scene_open(&shape, LS_BF16, LS_PRECISION_ACT);
  ls_trace *clean = written(&s, 20, 16, 0);
  for (int64_t spoiled = 0; spoiled < 16; spoiled++) {
    ls_trace *in = scene_capture_input(&s, 20, 16, 0);
    const ls_tensor row = ls_tensor_at(ls_trace_tensor(in, "capture"), spoiled);
    ls_tensor_set(&row, (spoiled * 37) % row.dim[0], (double)bad[spoiled % 3]);
    const ls_step capture = {.op = LS_OP_CAPTURE, .base = 20, .rows = 16, .in = in};
    scene_reset(&s);
    cr_assert_eq(ls_path_ref.step(s.path, &capture, NULL, NULL, false, NULL), LS_OK);
    cr_assert_eq(scene_write(&s, 16, NULL, NULL, false), LS_OK);
    ls_trace *state = scene_state(&s);
    for (int64_t p = 0; p < 16; p++) {
      if (p != spoiled) cr_assert(same_position(&s, clean, state, 20 + p));
    }
    const ls_tensor k = scene_slot(state, "k_ring", 0, (20 + spoiled) % 24), v = scene_slot(state, "v_ring", 1, (20 + spoiled) % 24);
    for (int64_t i = 0; i < k.dim[0]; i++) cr_assert(isnan(ls_tensor_get(&k, i)) && isnan(ls_tensor_get(&v, i)));
    ls_trace_free(state), ls_trace_free(in);
  }
  ls_trace_free(clean);
  scene_close(&s);
}

/* ---- the second precision ---- */

Test(ref_f64, stays_within_rounding_of_the_rounded_path_and_rounds_nothing) {
  for (int act = LS_BF16; act <= LS_F16; act++) {
    const ls_dflash_config shape = longer_shape();
    scene rounded = scene_open(&shape, (ls_dtype)act, LS_PRECISION_ACT), exact = scene_open(&shape, (ls_dtype)act, LS_PRECISION_F64);
    ls_trace *a = scene_trace(), *b = scene_trace();
    cr_assert_eq(scene_capture(&rounded, 1000000, 16, 0), LS_OK);
    cr_assert_eq(scene_capture(&exact, 1000000, 16, 0), LS_OK);
    cr_assert_eq(scene_write(&rounded, 16, NULL, a, true), LS_OK);
    cr_assert_eq(scene_write(&exact, 16, NULL, b, true), LS_OK);
    /* half a step of relative error at each of five roundings in a row, as independent errors of uniform size */
    const double half_step = act == LS_BF16 ? 0x1p-8 : 0x1p-11;
    cr_assert_eq(a->n, 8);
    for (int i = 0; i < a->n; i++) {
      const ls_tensor *x = &a->rec[i].t, *y = ls_trace_tensor(b, a->rec[i].name);
      cr_assert(x->dtype == (ls_dtype)act && y->dtype == LS_F64);
      double error = 0, size = 0;
      int64_t representable = 0;
      for (int64_t j = 0; j < ls_tensor_count(x); j++) {
        const double e = ls_tensor_get(y, j), d = ls_tensor_get(x, j) - e;
        error += d * d, size += e * e;
        representable += e != 0 && e == ls_round_to(LS_F32, e);
      }
      const double relative = sqrt(error / size);
      cr_assert(relative > 0.1 * half_step && relative < 2 * half_step, "%s: %g", a->rec[i].name, relative);
      cr_assert(representable < ls_tensor_count(x) / 50, "%s: rounded to float32", a->rec[i].name);
    }
    ls_trace_free(a), ls_trace_free(b);
    scene_close(&rounded), scene_close(&exact);
  }
}
