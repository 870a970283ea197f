/* own_kernel: dflash_context_kv as a plug-in of Lockstep, in plain C: the smallest complete one. docs/bring-your-own-kernel.md walks
 * through it. Where a loop stands, a launch of your own kernel would.
 *
 *   cc -O2 -shared -fPIC -I include -o libown_kernel.so docs/examples/own_kernel/own_kernel.c -lm
 *   lockstep verify --path ./libown_kernel.so fixtures/golden/dflash_rounds.h5
 *
 * -DPLANTED_FAULT turns each key by the row's number in the batch instead of by its position: Lockstep names k_rope. */
#include <lockstep/plugin.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

typedef struct {
  const lockstep_host *host;
  int act;
  int64_t hidden, fc_in, layers, heads, head_dim, kv_dim, capacity, window, max_rows;
  float eps;
  double theta;
  const lockstep_tensors *weights;
  uint16_t *k_ring, *v_ring, *captured; /* [layers, capacity, kv_dim], [max_rows, fc_in] */
  int64_t cursor, capture_base, capture_rows;
} kernel;

/* ---- bf16 and f16, nearest-even ---- */

static float widen(int type, const void *data, int64_t i) {
  if (type == LOCKSTEP_F32) return ((const float *)data)[i];
  uint16_t bits = ((const uint16_t *)data)[i];
  float value;
  if (type == LOCKSTEP_BF16) {
    uint32_t wide = (uint32_t)bits << 16;
    memcpy(&value, &wide, sizeof value);
    return value;
  }
  int exponent = bits >> 10 & 31, mantissa = bits & 1023;
  value =
      exponent == 31 ? (mantissa ? NAN : INFINITY) : ldexpf((float)(exponent ? mantissa + 1024 : mantissa), (exponent ? exponent : 1) - 25);
  return bits >> 15 ? -value : value;
}

static uint16_t narrow(int type, float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  if (type == LOCKSTEP_BF16) return (uint16_t)(isnan(value) ? bits >> 16 | 64 : (bits + 0x7fff + (bits >> 16 & 1)) >> 16);
  uint16_t sign = (uint16_t)(bits >> 16 & 0x8000);
  float size = fabsf(value);
  if (isnan(value)) return sign | 0x7e00;
  if (size >= 65520.0f) return sign | 0x7c00;
  int exponent = size < 0x1p-14f ? -14 : ilogbf(size);
  int units = (int)nearbyintf(ldexpf(size, 10 - exponent)); /* 1024 .. 2048 of a normal number; a carry goes into the exponent */
  return (uint16_t)(sign | (units < 1024 ? units : units - 1024 + ((exponent + 15) << 10)));
}

/* ---- the stages, row by row ---- */

/* y [rows, n] = x [rows, k] . w [n, k]^T */
static void linear(const kernel *m, uint16_t *y, const uint16_t *x, const lockstep_tensor *w, int64_t rows, int64_t n, int64_t k) {
  for (int64_t r = 0; r < rows; r++)
    for (int64_t j = 0; j < n; j++) {
      float sum = 0;
      for (int64_t i = 0; i < k; i++) sum += widen(m->act, x, r * k + i) * widen(w->dtype, w->data, j * k + i);
      y[r * n + j] = narrow(m->act, sum);
    }
}

static void rms_norm(const kernel *m, uint16_t *y, const uint16_t *x, const lockstep_tensor *w, int64_t n) {
  float squares = 0;
  for (int64_t i = 0; i < n; i++) squares += widen(m->act, x, i) * widen(m->act, x, i);
  float scale = 1.0f / sqrtf(squares / (float)n + m->eps);
  for (int64_t i = 0; i < n; i++) y[i] = narrow(m->act, widen(m->act, x, i) * scale * widen(w->dtype, w->data, i));
}

static void rope(const kernel *m, uint16_t *y, const uint16_t *x, int64_t position) {
  int64_t half = m->head_dim / 2;
  for (int64_t i = 0; i < half; i++) {
    float exponent = (float)(2 * i) / (float)m->head_dim, power = (float)pow(m->theta, exponent), angle = (float)position * (1.0f / power);
    float c = cosf(angle), s = sinf(angle), a = widen(m->act, x, i), b = widen(m->act, x, i + half);
    y[i] = narrow(m->act, a * c - b * s);
    y[i + half] = narrow(m->act, b * c + a * s);
  }
}

static const lockstep_tensor *layer_weight(const kernel *m, int64_t layer, const char *what) {
  char name[64];
  snprintf(name, sizeof name, "layers/%lld/%s", (long long)layer, what);
  return lockstep_find(m->weights, name);
}

/* Room for a stage: the record's where there is one (with `given`, the next stage then reads that), else the scratch memory. */
static uint16_t *stage(kernel *m, lockstep_out *out, const char *name, int64_t layers, int64_t rows, int64_t width, void **scratch) {
  int64_t dim[3] = {layers, rows, width};
  int flat = layers == 0; /* [rows, width] */
  if (out != NULL) return m->host->add(out, name, m->act, flat ? 2 : 3, flat ? dim + 1 : dim);
  return *scratch = malloc((size_t)((flat ? 1 : layers) * rows * width) * sizeof(uint16_t));
}

static const uint16_t *input(const lockstep_tensors *given, const char *name, const uint16_t *own) {
  const lockstep_tensor *t = lockstep_find(given, name);
  return t != NULL ? t->data : own;
}

static int32_t context_write(kernel *m, int64_t rows, const lockstep_tensors *given, lockstep_out *out, lockstep_error *error) {
  void *scratch[6] = {NULL};
  int32_t status = LOCKSTEP_OK;
  uint16_t *combined = stage(m, out, "ctx_combined", 0, rows, m->hidden, &scratch[0]);
  uint16_t *normed = stage(m, out, "ctx_normed", 0, rows, m->hidden, &scratch[1]);
  uint16_t *k_proj = stage(m, out, "k_proj", m->layers, rows, m->kv_dim, &scratch[2]);
  uint16_t *v_proj = stage(m, out, "v_proj", m->layers, rows, m->kv_dim, &scratch[3]);
  uint16_t *k_norm = stage(m, out, "k_norm", m->layers, rows, m->kv_dim, &scratch[4]);
  uint16_t *k_rope = stage(m, out, "k_rope", m->layers, rows, m->kv_dim, &scratch[5]);
  if (!combined || !normed || !k_proj || !v_proj || !k_norm || !k_rope) {
    status = m->host->fail(error, LOCKSTEP_FAILED, "out of memory for %lld rows", (long long)rows);
    goto out;
  }
  linear(m, combined, input(given, "capture", m->captured), lockstep_find(m->weights, "fc"), rows, m->hidden, m->fc_in);
  for (int64_t r = 0; r < rows; r++)
    rms_norm(m, normed + r * m->hidden, input(given, "ctx_combined", combined) + r * m->hidden, lockstep_find(m->weights, "hidden_norm"),
             m->hidden);
  for (int64_t layer = 0; layer < m->layers; layer++) {
    const lockstep_tensor *norm = layer_weight(m, layer, "k_norm");
    const int64_t at = layer * rows * m->kv_dim;
    linear(m, k_proj + at, input(given, "ctx_normed", normed), layer_weight(m, layer, "k_proj"), rows, m->kv_dim, m->hidden);
    linear(m, v_proj + at, input(given, "ctx_normed", normed), layer_weight(m, layer, "v_proj"), rows, m->kv_dim, m->hidden);
    for (int64_t r = 0; r < rows; r++) {
#ifdef PLANTED_FAULT
      const int64_t position = r;
#else
      const int64_t position = m->capture_base + r;
#endif
      for (int64_t head = 0; head < m->heads; head++) {
        const int64_t from = at + r * m->kv_dim + head * m->head_dim;
        rms_norm(m, k_norm + from, input(given, "k_proj", k_proj) + from, norm, m->head_dim);
        rope(m, k_rope + from, input(given, "k_norm", k_norm) + from, position);
      }
      const int64_t slot = (layer * m->capacity + (m->capture_base + r) % m->capacity) * m->kv_dim;
      memcpy(m->k_ring + slot, k_rope + at + r * m->kv_dim, (size_t)m->kv_dim * 2);
      memcpy(m->v_ring + slot, v_proj + at + r * m->kv_dim, (size_t)m->kv_dim * 2);
    }
  }
  m->cursor = m->capture_base + rows;
  m->capture_rows = 0;
out:
  for (int i = 0; i < 6; i++) free(scratch[i]);
  return status;
}

/* ---- the operations: refused before a byte changes, else done ---- */

enum { POSITIONS = 2147483647 }; /* 0 .. 2^31 - 1 */

static const char *refusal(const kernel *m, const lockstep_step *s) {
  const int capture = strcmp(s->op, "capture") == 0, draft = strcmp(s->op, "draft_write") == 0;
  if (capture || draft) {
    if (s->rows < 1 || s->rows > (capture ? m->max_rows : m->capacity)) return "the number of rows";
    if (s->base < 0 || s->base + s->rows - 1 > POSITIONS) return "a position outside the range";
  } else if (strcmp(s->op, "context_write") == 0) {
    if (s->rows < 1 || s->rows > m->capture_rows || s->rows > m->capacity) return "the number of rows";
    if (m->capture_base + s->rows < m->cursor) return "the cursor would move back";
  } else if (s->position < 0 || (s->position < m->cursor && m->cursor - s->position > m->capacity - m->window)) {
    return "too far back"; /* rewind */
  }
  return NULL;
}

static int32_t own_step(void *ctx, const lockstep_step *s, const lockstep_tensors *given, lockstep_out *out, lockstep_error *error) {
  kernel *m = ctx;
  const char *why = refusal(m, s);
  if (why != NULL) return m->host->fail(error, LOCKSTEP_REFUSED, "%s refused: %s", s->op, why);
  if (strcmp(s->op, "context_write") == 0) return context_write(m, s->rows, given, out, error);
  if (strcmp(s->op, "capture") == 0) {
    memcpy(m->captured, lockstep_find(&s->in, "capture")->data, (size_t)(s->rows * m->fc_in) * 2);
    m->capture_base = s->base;
    m->capture_rows = s->rows;
  } else if (strcmp(s->op, "draft_write") == 0) {
    const uint16_t *k = lockstep_find(&s->in, "k")->data, *v = lockstep_find(&s->in, "v")->data;
    for (int64_t i = 0; i < m->layers * s->rows; i++) {
      const int64_t slot = (i / s->rows * m->capacity + (s->base + i % s->rows) % m->capacity) * m->kv_dim;
      memcpy(m->k_ring + slot, k + i * m->kv_dim, (size_t)m->kv_dim * 2);
      memcpy(m->v_ring + slot, v + i * m->kv_dim, (size_t)m->kv_dim * 2);
    }
  } else if (s->position < m->cursor) {
    m->cursor = s->position;
  }
  return LOCKSTEP_OK;
}

static int32_t own_stage_kind(void *ctx, const lockstep_step *s, const char *stage) {
  (void)ctx, (void)stage;
  return strcmp(s->op, "context_write") == 0 ? LOCKSTEP_STAGE_OWN : LOCKSTEP_STAGE_ABSENT;
}

/* ---- state ---- */

static int32_t own_save(void *ctx, lockstep_out *state, lockstep_error *error) {
  kernel *m = ctx;
  const int64_t ring[3] = {m->layers, m->capacity, m->kv_dim}, capture[2] = {m->max_rows, m->fc_in}, one[1] = {1};
  const struct {
    const char *name;
    int type, ndim;
    const int64_t *dim;
    const void *from;
    size_t bytes;
  } part[] = {{"k_ring", m->act, 3, ring, m->k_ring, (size_t)(m->layers * m->capacity * m->kv_dim) * 2},
              {"v_ring", m->act, 3, ring, m->v_ring, (size_t)(m->layers * m->capacity * m->kv_dim) * 2},
              {"capture", m->act, 2, capture, m->captured, (size_t)(m->max_rows * m->fc_in) * 2},
              {"cursor", LOCKSTEP_I64, 1, one, &m->cursor, 8},
              {"capture_base", LOCKSTEP_I64, 1, one, &m->capture_base, 8},
              {"capture_rows", LOCKSTEP_I64, 1, one, &m->capture_rows, 8}};
  for (size_t i = 0; i < sizeof part / sizeof *part; i++) {
    void *to = m->host->add(state, part[i].name, part[i].type, part[i].ndim, part[i].dim);
    if (to == NULL) return m->host->fail(error, LOCKSTEP_FAILED, "no room for %s", part[i].name);
    memcpy(to, part[i].from, part[i].bytes);
  }
  return LOCKSTEP_OK;
}

static void restore(const kernel *m, const lockstep_tensors *state, const char *name, uint16_t *to, int64_t count) {
  const lockstep_tensor *t = lockstep_find(state, name);
  for (int64_t i = 0; i < count; i++)
    to[i] = t == NULL ? 0 : t->dtype == m->act ? ((const uint16_t *)t->data)[i] : narrow(m->act, widen(t->dtype, t->data, i));
}

static int64_t restore_int(const lockstep_tensors *state, const char *name) {
  const lockstep_tensor *t = lockstep_find(state, name);
  return t != NULL ? *(const int64_t *)t->data : 0;
}

static int32_t own_load(void *ctx, const lockstep_tensors *state, lockstep_error *error) {
  kernel *m = ctx;
  (void)error;
  restore(m, state, "k_ring", m->k_ring, m->layers * m->capacity * m->kv_dim);
  restore(m, state, "v_ring", m->v_ring, m->layers * m->capacity * m->kv_dim);
  restore(m, state, "capture", m->captured, m->max_rows * m->fc_in);
  m->cursor = restore_int(state, "cursor");
  m->capture_base = restore_int(state, "capture_base");
  m->capture_rows = restore_int(state, "capture_rows");
  return LOCKSTEP_OK;
}

/* ---- open and close ---- */

static void own_close(void *ctx) {
  kernel *m = ctx;
  free(m->k_ring);
  free(m->v_ring);
  free(m->captured);
  free(m);
}

static int32_t own_open(void **ctx, const lockstep_host *host, const lockstep_setup *setup, lockstep_error *error) {
  if (strcmp(setup->layer, "dflash_context_kv") != 0)
    return host->fail(error, LOCKSTEP_UNAVAILABLE, "layer %s is not written", setup->layer);
  kernel *m = calloc(1, sizeof *m);
  if (m == NULL) return host->fail(error, LOCKSTEP_FAILED, "out of memory");
  m->host = host;
  m->act = setup->act;
  m->weights = &setup->weights;
  m->hidden = lockstep_int(setup, "hidden");
  m->fc_in = lockstep_int(setup, "aux_count") * m->hidden;
  m->layers = lockstep_int(setup, "layers");
  m->heads = lockstep_int(setup, "num_kv_heads");
  m->head_dim = lockstep_int(setup, "head_dim");
  m->kv_dim = m->heads * m->head_dim;
  m->capacity = lockstep_int(setup, "ring_capacity");
  m->window = lockstep_int(setup, "window");
  m->max_rows = lockstep_int(setup, "max_rows");
  m->eps = (float)lockstep_real(setup, "rms_eps");
  m->theta = lockstep_real(setup, "rope_theta");
  m->k_ring = calloc((size_t)(m->layers * m->capacity * m->kv_dim), 2);
  m->v_ring = calloc((size_t)(m->layers * m->capacity * m->kv_dim), 2);
  m->captured = calloc((size_t)(m->max_rows * m->fc_in), 2);
  if (!m->k_ring || !m->v_ring || !m->captured) {
    own_close(m);
    return host->fail(error, LOCKSTEP_FAILED, "out of memory");
  }
  *ctx = m;
  return LOCKSTEP_OK;
}

static const char *own_describe(void *ctx) {
  (void)ctx;
  return "own_kernel, plain C";
}

static const lockstep_plugin own_kernel = {LOCKSTEP_PLUGIN_ABI,
                                           sizeof(lockstep_plugin),
                                           "own_kernel",
                                           own_open,
                                           own_step,
                                           own_save,
                                           own_load,
                                           own_stage_kind,
                                           own_describe,
                                           own_close};

const lockstep_plugin *lockstep_plugin_entry(uint32_t abi) { return abi == LOCKSTEP_PLUGIN_ABI ? &own_kernel : NULL; }
