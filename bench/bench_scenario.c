#include "bench_scenario.h"

#include <errno.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char *const role_names[BENCH_ROLES] = {"window", "full-r2", "full-r1", "reuse-r1", "index-r1", "masked-r1"};

/* What the tables of docs/measurements.md hold, and for the tiny ones what tests run. */
static const char *const listed[] = {
    "dflash/rows=1",
    "dflash/rows=8",
    "dflash/rows=16",
    "dflash/rows=256",
    "dflash/rows=2048",
    "attn/decode/window/n=4096",
    "attn/decode/reuse-r1/n=4096",
    "attn/decode/index-r1/n=4096",
    "attn/decode/index-r1/n=65536",
    "attn/decode/index-r1/n=1048576",
    "attn/decode/full-r1/n=4096",
    "attn/decode/full-r1/n=65536",
    "attn/decode/full-r1/n=1048576",
    "attn/decode/full-r2/n=4096",
    "attn/decode/full-r2/n=65536",
    "attn/decode/masked-r1/n=65536",
    "attn/prefill/reuse-r1/m=2048",
    "attn/prefill/m=160",
    "attn/prefill/m=2048",
    "attn/prefill/m=4096",
    "tiny/dflash/rows=1",
    "tiny/dflash/rows=8",
    "tiny/attn/decode/reuse-r1/n=64",
    "tiny/attn/decode/full-r2/n=64",
    "tiny/attn/decode/full-r1/n=64",
    "tiny/attn/prefill/m=24",
};

/* ---- names ---- */

static bool skip(const char **at, const char *word) {
  const size_t length = strlen(word);
  if (strncmp(*at, word, length) != 0) return false;
  *at += length;
  return true;
}

static bool take_size(const char *at, int64_t low, int64_t high, int64_t *size) {
  char *end = NULL;
  errno = 0;
  const long long value = strtoll(at, &end, 10);
  *size = value;
  return errno == 0 && *at >= '0' && *at <= '9' && *end == '\0' && value >= low && value <= high;
}

static bool take_role(const char **at, bench_role *role) {
  for (int r = 0; r < BENCH_ROLES; r++) {
    const char *after = *at;
    if (!skip(&after, role_names[r]) || !skip(&after, "/")) continue;
    *role = (bench_role)r;
    *at = after;
    return true;
  }
  return false;
}

ls_status bench_scenario_parse(bench_scenario *scenario, const char *name, ls_error *err) {
  const char *at = name;
  memset(scenario, 0, sizeof *scenario);
  snprintf(scenario->name, sizeof scenario->name, "%s", name);
  scenario->tiny = skip(&at, "tiny/");
  scenario->role = BENCH_INDEX1;
  bool sound = strlen(name) < BENCH_NAME;
  if (skip(&at, "dflash/rows=")) {
    scenario->operation = BENCH_CONTEXT_WRITE;
    sound = sound && take_size(at, 1, scenario->tiny ? 32 : 2176, &scenario->size);
  } else if (skip(&at, "attn/decode/")) {
    scenario->operation = BENCH_DECODE;
    sound =
        sound && take_role(&at, &scenario->role) && skip(&at, "n=") && take_size(at, 2, scenario->tiny ? 4096 : 1 << 20, &scenario->size);
  } else if (skip(&at, "attn/prefill/")) {
    scenario->operation = BENCH_PREFILL;
    take_role(&at, &scenario->role);
    sound = sound && skip(&at, "m=") && take_size(at, 1, scenario->tiny ? 256 : 16384, &scenario->size);
  } else {
    sound = false;
  }
  if (sound) return LS_OK;
  return ls_fail(err, LS_USAGE,
                 "no scenario '%s' (dflash/rows=1..2176, attn/decode/ROLE/n=2..1048576, attn/prefill/[ROLE/]m=1..16384, tiny/...; "
                 "lockstep bench --list)",
                 name);
}

ls_status bench_scenarios(bench_scenario **scenarios, int *n, const char *glob, ls_error *err) {
  enum { LISTED = (int)(sizeof listed / sizeof *listed) };
  *n = 0;
  *scenarios = calloc(LISTED, sizeof **scenarios);
  if (*scenarios == NULL) return ls_fail(err, LS_INTERNAL, "out of memory for the list of scenarios");
  for (int i = 0; i < LISTED; i++) {
    const bool wanted = glob != NULL ? fnmatch(glob, listed[i], 0) == 0 : strncmp(listed[i], "tiny/", 5) != 0;
    if (wanted) LS_TRY(bench_scenario_parse(&(*scenarios)[(*n)++], listed[i], err));
  }
  if (*n > 0 || glob == NULL) return LS_OK;
  *n = 1;
  return bench_scenario_parse(*scenarios, glob, err);
}

/* ---- configs: the published shapes (layers.md), and tiny ones ---- */

static int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static void dflash_config(const bench_scenario *s, ls_config *config) {
  config->layer = &ls_layer_dflash_context_kv;
  config->dflash = ls_make_dflash_published();
  config->dflash.max_rows = larger(s->size, 16);
  if (!s->tiny) return;
  ls_dflash_config *d = &config->dflash;
  d->hidden = 128, d->aux_count = 3, d->layers = 2, d->num_kv_heads = 2, d->head_dim = 32, d->ring_capacity = 64, d->window = 48;
}

/* The stack: what the timed layer reads from, and the timed layer last. */
static void attn_stack(const bench_scenario *s, ls_attn_config *a) {
  const bool reads = s->role >= BENCH_REUSE1;
  const int64_t timed = reads ? 1 : 0, ratio = s->role == BENCH_WINDOW ? 0 : s->role == BENCH_FULL2 ? 2 : 1;
  a->n_layers = timed + 1;
  for (int64_t l = 0; l <= timed; l++) {
    const bool source = l < timed || s->role == BENCH_FULL2 || s->role == BENCH_FULL1;
    a->compress_ratio[l] = ratio;
    a->is_kv_source[l] = source;
    a->is_index_source[l] = source || s->role == BENCH_INDEX1 || s->role == BENCH_MASKED1;
  }
  a->candidate_source_layer = s->role == BENCH_FULL1 || s->role == BENCH_MASKED1 || s->role == BENCH_REUSE1 ? 0 : -1;
}

/* The position of the step: where the layer sees `size` rows. */
static int64_t attn_start(const bench_scenario *s) {
  return s->operation == BENCH_PREFILL ? 0 : s->size * (s->role == BENCH_FULL2 ? 2 : 1) - 1;
}

static void attn_config(const bench_scenario *s, ls_config *config) {
  config->layer = &ls_layer_attn_v41;
  config->attn = ls_make_attn_published();
  ls_attn_config *a = &config->attn;
  if (s->tiny) {
    a->dim = 96, a->n_heads = 4, a->head_dim = 64, a->rope_head_dim = 16, a->q_lora_rank = 48, a->o_lora_rank = 24, a->o_groups = 2;
    a->window_size = 16, a->index_n_heads = 2, a->index_head_dim = 32, a->index_topk = 16, a->candidate_topk_blocks = 8;
    a->candidate_block_size = 4;
  }
  attn_stack(s, a);
  const int64_t m = s->operation == BENCH_PREFILL ? s->size : 1;
  a->max_tokens = larger(m, 16);
  a->max_seq_len = larger(attn_start(s) + m, a->max_tokens + 1);
}

/* ---- the file ---- */

typedef struct {
  ls_fixture_writer *writer;
  ls_config config;
  ls_error *err;
} making;

/* Uniform of width w has variance w^2 / 3. */
static const double unit_width = 1.7320508075688772;

static ls_status put(making *m, const char *group, const char *name, ls_dtype dtype, int ndim, const int64_t *dim, double scale,
                     double offset) {
  char path[160];
  snprintf(path, sizeof path, "%s/%s", group, name);
  return ls_fixture_write_generated(m->writer, path, dtype, ndim, dim, path, scale, offset, m->err);
}

/* Weights that keep the size of what they multiply, as `lockstep gen` makes them. */
static ls_status put_weights(making *m) {
  ls_spec_list specs = {NULL, 0, 0};
  ls_status status = m->config.layer->weight_specs(&m->config, &specs, m->err);
  for (int i = 0; i < specs.n && status == LS_OK; i++) {
    const ls_tensor_spec *spec = &specs.spec[i];
    const bool sink = strstr(spec->name, "attn_sink") != NULL;
    const ls_dtype dtype = (spec->dtypes >> LS_BF16 & 1u) != 0 ? LS_BF16 : LS_F32;
    const double scale = sink ? 1 : spec->ndim == 1 ? 0.3 : unit_width / sqrt((double)spec->dim[1]);
    status = put(m, "/weights", spec->name, dtype, spec->ndim, spec->dim, scale, !sink && spec->ndim == 1 ? 1 : 0);
  }
  ls_spec_free(&specs);
  return status;
}

static ls_status put_step(making *m, ls_step *step, const char *input, int64_t columns) {
  char group[64];
  const int64_t dim[] = {step->rows, columns};
  LS_TRY(ls_fixture_write_step(m->writer, step, m->err));
  if (input == NULL) return LS_OK;
  snprintf(group, sizeof group, "/steps/%04lld/in", (long long)step->number);
  return put(m, group, input, LS_BF16, 2, dim, unit_width, 0);
}

static ls_status put_context_write(making *m, const bench_scenario *s) {
  const ls_dflash_config *d = &m->config.dflash;
  const int64_t base = d->ring_capacity - s->size < 64 ? 0 : 64;
  ls_step capture = {.number = 0, .op = LS_OP_CAPTURE, .base = base, .rows = s->size, .cursor = 0};
  ls_step write = {.number = 1, .op = LS_OP_CONTEXT_WRITE, .rows = s->size, .cursor = base + s->size};
  LS_TRY(put_step(m, &capture, "capture", d->fc_in));
  return put_step(m, &write, NULL, 0);
}

/* Rings, and caches of `rows` rows, published, that a step starts from: a decode's hold everything before its position. */
static ls_status put_state(making *m, int64_t position, int64_t rows) {
  ls_spec_list specs = {NULL, 0, 0};
  const bool compressed = m->config.attn.compress_ratio[0] > 0;
  ls_status status = m->config.layer->state_specs(&m->config, &specs, m->err);
  for (int i = 0; i < specs.n && status == LS_OK; i++) {
    ls_tensor_spec *spec = &specs.spec[i];
    if (spec->partial) spec->dim[0] = rows;
    status = put(m, "/state", spec->name, (spec->dtypes >> LS_BF16 & 1u) != 0 ? LS_BF16 : LS_F32, spec->ndim, spec->dim, unit_width, 0);
  }
  ls_spec_free(&specs);
  LS_TRY(status);
  LS_TRY(ls_fixture_write_int(m->writer, "/state", "position", position, m->err));
  LS_TRY(ls_fixture_write_int(m->writer, "/state", "compress_source", compressed ? 0 : -1, m->err));
  return ls_fixture_write_int(m->writer, "/state", "index_source", compressed ? 0 : -1, m->err);
}

/* The layers in order, the timed one last. */
static ls_status put_forward(making *m, const bench_scenario *s) {
  const ls_attn_config *a = &m->config.attn;
  const int64_t start = attn_start(s), ratio = a->compress_ratio[0];
  /* Whoever selects for itself reads nothing but caches from the source before it: in a prefill the state holds these, and the source's own
   * step, which would be verified for as long as the timed one, has one row. */
  const bool caches = s->operation == BENCH_PREFILL && s->role == BENCH_INDEX1;
  if (start > 0) LS_TRY(put_state(m, start, ratio > 0 ? start / ratio : 0));
  if (caches) LS_TRY(put_state(m, 0, s->size / ratio));
  for (int64_t l = 0; l < a->n_layers; l++) {
    const int64_t rows = s->operation == BENCH_PREFILL && (!caches || l + 1 == a->n_layers) ? s->size : 1;
    ls_step step = {.number = l, .op = LS_OP_FORWARD, .layer = l, .start_pos = start, .rows = rows, .cursor = -1};
    LS_TRY(put_step(m, &step, "x", a->dim));
  }
  return LS_OK;
}

static ls_status config_of(const bench_scenario *s, ls_config *config, ls_error *err) {
  *config = (ls_config){.act = LS_BF16};
  if (s->operation == BENCH_CONTEXT_WRITE) {
    dflash_config(s, config);
  } else {
    attn_config(s, config);
  }
  return config->layer->config_check(config, err); /* fills the derived fields */
}

ls_status bench_scenario_work(bench_work *work, const bench_scenario *scenario, int weight_bytes, ls_error *err) {
  ls_config config;
  ls_step step = {.op = LS_OP_CONTEXT_WRITE, .rows = scenario->size};
  LS_TRY(config_of(scenario, &config, err));
  if (scenario->operation != BENCH_CONTEXT_WRITE)
    step = (ls_step){.op = LS_OP_FORWARD,
                     .layer = config.attn.n_layers - 1,
                     .start_pos = attn_start(scenario),
                     .rows = scenario->operation == BENCH_PREFILL ? scenario->size : 1};
  *work = bench_count_work(&config, &step, weight_bytes);
  return LS_OK;
}

ls_status bench_scenario_make(const bench_scenario *scenario, const char *file, ls_error *err) {
  making m = {.err = err};
  char title[BENCH_NAME + 16];
  LS_TRY(config_of(scenario, &m.config, err));
  snprintf(title, sizeof title, "bench: %s", scenario->name);
  LS_TRY(ls_fixture_writer_new(&m.writer, file, &m.config, title, "lockstep bench", err));
  ls_status status = put_weights(&m);
  if (status == LS_OK) status = scenario->operation == BENCH_CONTEXT_WRITE ? put_context_write(&m, scenario) : put_forward(&m, scenario);
  if (status == LS_OK) return ls_fixture_writer_commit(m.writer, err);
  ls_fixture_writer_abandon(m.writer);
  return status;
}
