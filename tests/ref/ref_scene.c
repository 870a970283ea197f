#include "ref_scene.h"

#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/ls_random.h"

ls_dflash_config scene_shape(void) {
  return (ls_dflash_config){.hidden = 50,
                            .aux_count = 3,
                            .layers = 2,
                            .num_kv_heads = 3,
                            .head_dim = 22,
                            .ring_capacity = 24,
                            .window = 8,
                            .max_rows = 24,
                            .rms_eps = 1e-6,
                            .rope_theta = 1e7};
}

ls_trace *scene_trace(void) {
  ls_trace *t;
  cr_assert_eq(ls_trace_new(&t, "test", NULL), LS_OK);
  return t;
}

ls_trace *scene_weights(const ls_config *config) {
  ls_spec_list list = {0};
  ls_trace *weights = scene_trace();
  cr_assert_eq(config->layer->weight_specs(config, &list, NULL), LS_OK);
  for (int i = 0; i < list.n; i++) {
    const ls_tensor_spec *spec = &list.spec[i];
    static const ls_dtype norm_types[] = {LS_BF16, LS_F16, LS_F32};
    const bool norm = spec->ndim == 1;
    ls_tensor t;
    cr_assert_eq(ls_trace_add(weights, spec->name, norm ? norm_types[i % 3] : config->act, spec->ndim, spec->dim, &t, NULL), LS_OK);
    ls_generate(&t, spec->name, norm ? 0.3 : 0.1, norm ? 1.0 : 0.0);
  }
  ls_spec_free(&list);
  return weights;
}

scene scene_open(const ls_dflash_config *shape, ls_dtype act, ls_precision precision) {
  scene s = {.config = {.layer = &ls_layer_dflash_context_kv, .act = act, .dflash = *shape}};
  const ls_path_options options = {.precision = precision};
  cr_assert_eq(s.config.layer->config_check(&s.config, &s.err), LS_OK, "%s", s.err.text);
  s.weights = scene_weights(&s.config);
  cr_assert_eq(ls_path_ref.open(&s.path, &s.config, s.weights, &options, &s.err), LS_OK, "%s", s.err.text);
  return s;
}

void scene_close(scene *s) {
  ls_path_ref.close(s->path);
  ls_trace_free(s->weights);
}

/* Rows along axis `axis` of t, each a sequence of its own. The layers of a draft row are cut from one longer sequence. */
static void fill_rows(const ls_tensor *t, int axis, const char *what, int64_t base, int version) {
  for (int64_t row = 0; row < t->dim[axis]; row++) {
    char name[64];
    snprintf(name, sizeof name, "%s v%d p%lld", what, version, (long long)(base + row));
    const uint64_t seed = ls_fnv1a64(name, strlen(name));
    const ls_tensor one = ls_tensor_slice(t, axis, row, 1);
    for (int64_t i = 0; i < ls_tensor_count(&one); i++) ls_tensor_set(&one, i, ls_generated_at(seed, (uint64_t)i, 1.0, 0.1));
  }
}

ls_trace *scene_capture_input(const scene *s, int64_t base, int64_t rows, int version) {
  ls_trace *in = scene_trace();
  ls_tensor t;
  cr_assert_eq(ls_trace_add(in, "capture", s->config.act, 2, (int64_t[]){rows, s->config.dflash.fc_in}, &t, NULL), LS_OK);
  fill_rows(&t, 0, "capture", base, version);
  return in;
}

ls_trace *scene_draft_input(const scene *s, int64_t base, int64_t rows, int version) {
  const int64_t dim[] = {s->config.dflash.layers, rows, s->config.dflash.kv_dim};
  ls_trace *in = scene_trace();
  ls_tensor k, v;
  cr_assert_eq(ls_trace_add(in, "k", s->config.act, 3, dim, &k, NULL), LS_OK);
  cr_assert_eq(ls_trace_add(in, "v", s->config.act, 3, dim, &v, NULL), LS_OK);
  fill_rows(&k, 1, "k", base, version);
  fill_rows(&v, 1, "v", base, version);
  return in;
}

static ls_status run(scene *s, const ls_step *step, const ls_trace *given, ls_trace *out, bool out_rings) {
  s->err = (ls_error){0};
  return ls_path_ref.step(s->path, step, given, out, out_rings, &s->err);
}

/* Inputs are made only where their shape makes sense: what is refused is not read. */
static int64_t input_rows(int64_t rows) { return rows < 0 ? 0 : rows > 64 ? 64 : rows; }

ls_status scene_capture(scene *s, int64_t base, int64_t rows, int version) {
  ls_trace *in = scene_capture_input(s, base, input_rows(rows), version);
  const ls_step step = {.op = LS_OP_CAPTURE, .base = base, .rows = rows, .in = in};
  const ls_status status = run(s, &step, NULL, NULL, false);
  ls_trace_free(in);
  return status;
}

ls_status scene_draft(scene *s, int64_t base, int64_t rows, int version) {
  ls_trace *in = scene_draft_input(s, base, input_rows(rows), version);
  const ls_step step = {.op = LS_OP_DRAFT_WRITE, .base = base, .rows = rows, .in = in};
  const ls_status status = run(s, &step, NULL, NULL, false);
  ls_trace_free(in);
  return status;
}

ls_status scene_write(scene *s, int64_t rows, const ls_trace *given, ls_trace *out, bool out_rings) {
  const ls_step step = {.op = LS_OP_CONTEXT_WRITE, .rows = rows};
  return run(s, &step, given, out, out_rings);
}

ls_status scene_rewind(scene *s, int64_t position) {
  const ls_step step = {.op = LS_OP_REWIND, .position = position};
  return run(s, &step, NULL, NULL, false);
}

void scene_reset(scene *s) { scene_load(s, NULL); }

ls_trace *scene_state(const scene *s) {
  ls_trace *state = scene_trace();
  cr_assert_eq(ls_path_ref.save(s->path, state, NULL), LS_OK);
  return state;
}

void scene_load(scene *s, const ls_trace *state) {
  s->err = (ls_error){0};
  cr_assert_eq(ls_path_ref.load(s->path, state, &s->err), LS_OK, "%s", s->err.text);
}

int64_t scene_integer(const ls_trace *state, const char *name) { return (int64_t)ls_tensor_get(ls_trace_tensor(state, name), 0); }

bool scene_same(const ls_trace *a, const ls_trace *b) {
  bool same = a->n > 0;
  for (int i = 0; i < a->n; i++) {
    const ls_tensor *t = ls_trace_tensor(b, a->rec[i].name);
    same = same && t != NULL && ls_tensor_same_bytes(&a->rec[i].t, t);
  }
  return same;
}

ls_tensor scene_slot(const ls_trace *state, const char *ring, int64_t layer, int64_t slot) {
  const ls_tensor of_layer = ls_tensor_at(ls_trace_tensor(state, ring), layer);
  return ls_tensor_at(&of_layer, slot);
}
