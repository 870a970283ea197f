/* RoPE gone wrong, planted by a rotation of the test's own; and near misses that must not be named. */
#include "explain_helpers.h"
#include "layers/bound_attn_v41.h"
#include "layers/bound_common.h"

enum { ROWS = 16, HEADS = 2, HEAD = 32, WIDTH = HEADS * HEAD, RING = 2176, BASE = 2168, TURNED = 16 };

/* How a rotation is done; all zero: by the layer's definition. */
typedef struct {
  int64_t (*place)(int64_t position, int64_t row);
  const float *freq;
  bool not, back, other_pairs, exchanged, swapped_table, rounded_table, rounded_angle, exact_angle, reduced, front, twice;
  double wobble; /* what each angle is off by, otherwise for each pair */
} planted;

typedef struct {
  const float *freq;
  int64_t width, turned, base, stride;
  bool neox, inverse;
} rope;

static void turn(const ls_tensor *to, const ls_tensor *from, const rope *r, const planted *how) {
  const int64_t rows = from->dim[0], width = from->dim[1], half = r->turned / 2;
  ls_error err = {0};
  cr_assert(ls_tensor_copy(to, from, &err) == LS_OK);
  const int64_t start = how->front ? 0 : r->width - r->turned;
  const float *freq = how->freq != NULL ? how->freq : r->freq;
  for (int64_t row = 0; row < rows && !how->not ; row++) {
    const int64_t own = r->base + r->stride * row, position = how->place != NULL ? how->place(own, row) : own;
    for (int64_t i = 0; i < half; i++) {
      const float product = (float)position * freq[i];
      double angle = how->exact_angle ? (double)position * (double)freq[i] : (double)product;
      if (how->twice) angle *= 2;
      if (how->rounded_angle) angle = ls_round_to(LS_BF16, angle);
      if (how->reduced) angle = (double)(product - floorf(product * 0.15915494f + 0.5f) * 6.2831855f);
      angle += how->wobble * sin((double)(i * 7 + row));
      double c = cos(angle), s = sin(angle);
      if (how->rounded_table) c = ls_round_to(LS_BF16, c), s = ls_round_to(LS_BF16, s);
      if (how->swapped_table) angle = c, c = s, s = angle;
      if (r->inverse != how->back) s = -s;
      const bool neox = r->neox != how->other_pairs;
      for (int64_t head = row * width; head < (row + 1) * width; head += r->width) {
        const int64_t at = head + start + (neox ? i : 2 * i), with = head + start + (neox ? i + half : 2 * i + 1);
        const double a = ls_tensor_get(from, at), b = ls_tensor_get(from, with);
        ls_tensor_set(to, how->exchanged ? with : at, a * c - b * s);
        ls_tensor_set(to, how->exchanged ? at : with, b * c + a * s);
      }
    }
  }
}

/* ---- dflash: NeoX, whole heads ---- */

typedef struct {
  scene s;
  ls_tensor input;
  float freq[HEAD / 2];
  rope r;
} rotated;

static void dflash_open(rotated *d, int64_t base) {
  const ls_layer *layer = &ls_layer_dflash_context_kv;
  memset(d, 0, sizeof *d);
  scene_open(&d->s, ls_stage_find(layer, "k_rope"), LS_BF16, ROWS, WIDTH, HEAD);
  d->s.config = (ls_config){.layer = layer, .act = LS_BF16};
  d->s.config.dflash =
      (ls_dflash_config){.layers = 1, .num_kv_heads = HEADS, .head_dim = HEAD, .ring_capacity = RING, .rope_theta = 1e4, .kv_dim = WIDTH};
  scene_knows(&d->s);
  const int64_t dim[] = {1, ROWS, WIDTH}, one[] = {1};
  const ls_tensor whole = add_random(d->s.values, "k_norm", LS_BF16, 3, dim, 2.0);
  d->input = ls_tensor_at(&whole, 0);
  const ls_tensor cursor = add_tensor(d->s.before, "cursor", LS_I64, 1, one);
  ls_tensor_set(&cursor, 0, (double)base);
  for (int64_t i = 0; i < HEAD / 2; i++) d->freq[i] = 1.0f / (float)pow(1e4, (double)((float)(2 * i) / (float)HEAD));
  d->r = (rope){d->freq, HEAD, HEAD, base, 1, true, false};
  d->s.args.compare.names = (ls_place_names){.base = base, .capacity = RING, .head_dim = HEAD};
  turn(&d->s.a, &d->input, &d->r, &(planted){.place = NULL});
  for (int64_t i = 0; i < ROWS * WIDTH; i++) ((float *)d->s.bound.data)[i] = (float)(8 * LS_UNIT * 4);
}

static void plant(rotated *d, planted how) { turn(&d->s.b, &d->input, &d->r, &how); }

static int64_t by_row(int64_t position, int64_t row) { return position * 0 + row; }
static int64_t by_slot(int64_t position, int64_t row) { return position % RING + row * 0; }
static int64_t plus_3(int64_t position, int64_t row) { return position + 3 + row * 0; }
static int64_t minus_1(int64_t position, int64_t row) { return position - 1 + row * 0; }
static int64_t plus_900(int64_t position, int64_t row) { return position + 900 + row * 0; }
static int64_t first_row(int64_t position, int64_t row) { return position - row; }
static int64_t scattered(int64_t position, int64_t row) { return position + row * row % 7 + 1; }

Test(explain_rotation, the_right_rotation_has_no_pattern) {
  rotated d;
  dflash_open(&d, BASE);
  plant(&d, (planted){.place = NULL});
  cr_assert(scene_explain(&d.s).id[0] == '\0');
  scene_close(&d.s);
}

Test(explain_rotation, another_position_is_named_with_its_numbers) {
  static const struct {
    int64_t (*place)(int64_t position, int64_t row);
    int64_t base;
    const char *text;
  } cases[] = {
      {by_row, BASE, "by the row number (0 .. 15) instead of the position"},
      {by_slot, BASE, "8 of 16 rows differ, all with position >= 2176: rows match a rotation by (position - 2176). Slots were wrapped"},
      {by_slot, 2180, "rows match a rotation by (position - 2176). Slots were wrapped before RoPE used the position"},
      {plus_3, BASE, "by (position + 3)"},
      {minus_1, BASE, "by (position - 1)"},
      {plus_900, BASE, "by (position + 900)"},
      {first_row, BASE, "by one position, 2168, that of row 0"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    rotated d;
    dflash_open(&d, cases[i].base);
    plant(&d, (planted){.place = cases[i].place});
    assert_named(&d.s, "rotation-position");
    assert_says(&d.s, cases[i].text);
    scene_spoil(&d.s);
    assert_not_named(&d.s, "rotation-position");
    scene_close(&d.s);
  }
}

Test(explain_rotation, counted_from_the_cursor) {
  rotated d;
  dflash_open(&d, BASE);
  ls_tensor_set(ls_trace_tensor(d.s.before, "cursor"), 0, BASE + 3);
  plant(&d, (planted){.place = plus_3});
  assert_named(&d.s, "rotation-position");
  assert_says(&d.s, "counted from the cursor, 2171, instead of 2168");
  scene_close(&d.s);
}

Test(explain_rotation, positions_without_a_rule_are_none) {
  rotated d;
  dflash_open(&d, BASE);
  plant(&d, (planted){.place = scattered});
  assert_not_named(&d.s, "rotation-position");
  scene_close(&d.s);
}

Test(explain_rotation, angles_that_are_off_without_a_rule_are_none) {
  rotated d;
  dflash_open(&d, BASE);
  plant(&d, (planted){.wobble = 0.3});
  const ls_pattern p = scene_explain(&d.s);
  cr_assert(strncmp(p.id, "rotat", 5) != 0 && strcmp(p.id, "not-rotated") != 0, "%s: %s", p.id, p.text);
  scene_close(&d.s);
}

Test(explain_rotation, each_kind_is_named_and_not_when_spoilt) {
  const struct {
    planted how;
    int64_t base;
    const char *id;
  } cases[] = {{{.not = true}, BASE, "not-rotated"},
               {{.back = true}, BASE, "rotation-conjugate"},
               {{.other_pairs = true}, BASE, "rotation-pairs"},
               {{.exchanged = true}, BASE, "rotation-exchanged"},
               {{.swapped_table = true}, BASE, "rotation-exchanged"},
               {{.rounded_table = true}, BASE, "rotation-table"},
               {{.rounded_angle = true}, BASE, "rotation-angle"},
               {{.exact_angle = true}, 1000000, "rotation-angle"},
               {{.reduced = true}, 1000000, "rotation-reduction"},
               {{.twice = true}, BASE, "rotated-twice"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    rotated d;
    dflash_open(&d, cases[i].base);
    plant(&d, cases[i].how);
    assert_named_and_not_when_spoilt(&d.s, cases[i].id);
    scene_close(&d.s);
  }
}

/* What somebody's layer did is wrong, and the path right. Of a head that turns as a whole "another part" is the right rotation. */
Test(explain_rotation, a_fault_of_the_expected_values_is_theirs) {
  rotated d;
  dflash_open(&d, BASE);
  plant(&d, (planted){.rounded_table = true});
  d.s.args.compare.a = &d.s.b, d.s.args.compare.b = &d.s.a;
  assert_not_named(&d.s, "rotation-part");
  d.s.args.a_is_expected = true;
  assert_named(&d.s, "rotation-table");
  assert_says(&d.s, "the expected values, not the path's: ");
  d.s.args.compare.a = &d.s.a, d.s.args.compare.b = &d.s.b; /* and of the path's, where they are expected ones too */
  assert_named(&d.s, "rotation-table");
  cr_assert_null(strstr(scene_explain(&d.s).text, "expected values"));
  scene_close(&d.s);
}

/* A table in a coarser type than the activations' is not "the activation type". */
Test(explain_rotation, a_table_of_another_rounding_is_not_taken_for_it) {
  rotated d;
  dflash_open(&d, BASE);
  planted how = {.wobble = 0.02};
  plant(&d, how);
  assert_not_named(&d.s, "rotation-table");
  scene_close(&d.s);
}

Test(explain_rotation, frequencies_rounded_once) {
  rotated d;
  dflash_open(&d, 1000000);
  float once[HEAD / 2];
  for (int64_t i = 0; i < HEAD / 2; i++) once[i] = (float)pow(1e4, -(double)((float)(2 * i) / (float)HEAD));
  plant(&d, (planted){.freq = once});
  assert_named_and_not_when_spoilt(&d.s, "rotation-frequency");
  scene_close(&d.s);
}

Test(explain_rotation, one_head_alone) {
  rotated d;
  dflash_open(&d, BASE);
  for (int64_t row = 0; row < ROWS; row++)
    for (int64_t c = HEAD; c < WIDTH; c++) ls_tensor_set(&d.s.b, row * WIDTH + c, ls_tensor_get(&d.input, row * WIDTH + c));
  for (int64_t row = 0; row < ROWS; row++)
    for (int64_t c = 0; c < HEAD; c++) ls_tensor_set(&d.s.b, row * WIDTH + c, ls_tensor_get(&d.s.a, row * WIDTH + c));
  assert_named(&d.s, "not-rotated");
  assert_says(&d.s, "in head 1 alone");
  scene_close(&d.s);
}

/* One pair of one row says too little, however well it fits. */
Test(explain_rotation, too_few_elements_are_chance) {
  rotated d;
  dflash_open(&d, BASE);
  MUST(ls_tensor_copy(&d.s.b, &d.s.a, err));
  ls_tensor_set(&d.s.b, 5, ls_tensor_get(&d.s.a, 5) * 1.5);
  const ls_pattern p = scene_explain(&d.s);
  cr_assert(p.id[0] == '\0' || p.bits < LS_PATTERN_BITS, "%s", p.text);
  scene_close(&d.s);
}

/* ---- attn_v41: adjacent pairs of a head's tail, YaRN ---- */

static void attn_config(ls_config *config, int64_t ratio) {
  *config = (ls_config){.layer = &ls_layer_attn_v41, .act = LS_BF16};
  ls_attn_config *a = &config->attn;
  *a = (ls_attn_config){.n_heads = HEADS,
                        .head_dim = HEAD,
                        .rope_head_dim = TURNED,
                        .window_size = 128,
                        .n_layers = 2,
                        .max_seq_len = 65536,
                        .max_tokens = 64,
                        .rope_theta = 1e4,
                        .compress_rope_theta = 1.6e5,
                        .rope_factor = 16,
                        .original_seq_len = 4096,
                        .beta_fast = 32,
                        .beta_slow = 1,
                        .candidate_source_layer = -1,
                        .q_dim = WIDTH};
  for (int l = 0; l < 2; l++) a->compress_ratio[l] = ratio;
}

static void attn_open(rotated *d, const char *stage, const char *input, int64_t ratio) {
  memset(d, 0, sizeof *d);
  scene_open(&d->s, ls_stage_find(&ls_layer_attn_v41, stage), LS_BF16, ROWS, WIDTH, HEAD);
  attn_config(&d->s.config, ratio);
  d->s.step = (ls_step){.op = LS_OP_FORWARD, .layer = 1, .start_pos = 0, .rows = ROWS};
  scene_knows(&d->s);
  const int64_t dim[] = {ROWS, WIDTH};
  d->input = add_random(d->s.values, input, LS_BF16, 2, dim, 2.0);
  ls_bound_attn_freq(d->freq, &d->s.config.attn, ratio > 0);
  d->r = (rope){d->freq, HEAD, TURNED, 500, 1, false, strcmp(stage, "o_rot") == 0};
  d->s.args.compare.names = (ls_place_names){.base = 500, .head_dim = HEAD};
  turn(&d->s.a, &d->input, &d->r, &(planted){.place = NULL});
  for (int64_t i = 0; i < ROWS * WIDTH; i++) ((float *)d->s.bound.data)[i] = (float)(8 * LS_UNIT * 4);
}

Test(explain_rotation, frequencies_of_other_layers) {
  for (int64_t ratio = 0; ratio <= 1; ratio++) {
    rotated d;
    attn_open(&d, "q", "q_proj", ratio);
    float freq[TURNED / 2];
    ls_bound_attn_freq(freq, &d.s.config.attn, ratio == 0);
    plant(&d, (planted){.freq = freq});
    assert_named_and_not_when_spoilt(&d.s, "rotation-frequency");
    scene_close(&d.s);
  }
}

Test(explain_rotation, no_yarn) {
  rotated d;
  attn_open(&d, "q", "q_proj", 1);
  float freq[TURNED / 2];
  ls_bound_rope_freq(freq, TURNED, 1.6e5);
  plant(&d, (planted){.freq = freq});
  assert_named(&d.s, "rotation-frequency");
  assert_says(&d.s, "without YaRN");
  scene_spoil(&d.s);
  assert_not_named(&d.s, "rotation-frequency");
  scene_close(&d.s);
}

Test(explain_rotation, tails_of_heads) {
  const struct {
    planted how;
    const char *id;
  } cases[] = {{{.front = true}, "rotation-part"}, {{.other_pairs = true}, "rotation-pairs"}, {{.back = true}, "rotation-conjugate"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    rotated d;
    attn_open(&d, "o_rot", "sparse_o", 0);
    plant(&d, cases[i].how);
    assert_named_and_not_when_spoilt(&d.s, cases[i].id);
    scene_close(&d.s);
  }
}

/* ---- latents: group positions ---- */

static int64_t group_number(int64_t position, int64_t row) { return position / 4 + row * 0; }
static int64_t last_token(int64_t position, int64_t row) { return position + 3 + row * 0; }
static int64_t next_group(int64_t position, int64_t row) { return position + 4 + row * 0; }

Test(explain_rotation, group_positions) {
  static const struct {
    int64_t (*place)(int64_t position, int64_t row);
    const char *text;
  } cases[] = {{group_number, "by the number of their group"},
               {last_token, "(position + 3): the last token of their group"},
               {next_group, "(position + 4): the group after theirs"}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    rotated d;
    attn_open(&d, "compress_kv_rope", "latent", 4);
    d.s.args.compare.names = (ls_place_names){.base = 500, .stride = 4};
    d.r.stride = 4;
    d.r.width = WIDTH; /* one head a row */
    turn(&d.s.a, &d.input, &d.r, &(planted){.place = NULL});
    plant(&d, (planted){.place = cases[i].place});
    assert_named(&d.s, "rotation-position");
    assert_says(&d.s, cases[i].text);
    scene_spoil(&d.s);
    assert_not_named(&d.s, "rotation-position");
    scene_close(&d.s);
  }
}
