/* The example's kernel, broken in one way that the environment chooses: LOCKSTEP_TEST_FAULT says how, LOCKSTEP_TEST_STEP in which step
 * (absent: in every one). Without the first it is the example itself. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <signal.h>
#include <stdint.h>
#include <unistd.h>

#define lockstep_plugin_entry own_kernel_entry
#include "../../../docs/examples/own_kernel/own_kernel.c"
#undef lockstep_plugin_entry

static lockstep_host host; /* ours, between Lockstep and the kernel */
static const lockstep_host *real_host;
static int64_t now = -1; /* the step that runs */
static void *recorded_k_rope;

static int is(const char *fault) {
  const char *said = getenv("LOCKSTEP_TEST_FAULT"), *step = getenv("LOCKSTEP_TEST_STEP");
  return said != NULL && strcmp(said, fault) == 0 && (step == NULL || strtoll(step, NULL, 10) == now);
}

static void crash(void) {
  volatile int *nowhere = NULL;
  *nowhere = 1;
}

static void hang(void) {
  for (;;) pause();
}

/* Faults that any call can have: NAME_crash, NAME_exit, NAME_hang. */
static void misbehave(const char *call) {
  char fault[64];
  snprintf(fault, sizeof fault, "%s_crash", call);
  if (is(fault)) crash();
  snprintf(fault, sizeof fault, "%s_exit", call);
  if (is(fault)) exit(7);
  snprintf(fault, sizeof fault, "%s_hang", call);
  if (is(fault)) hang();
}

__attribute__((constructor)) static void when_loaded(void) { misbehave("loading"); }

/* ---- what is recorded ---- */

static void *add(lockstep_out *out, const char *name, int32_t dtype, int32_t ndim, const int64_t *dim) {
  const int64_t turned[4] = {dim[0], ndim > 2 ? dim[2] : 0, dim[1], 1}, huge[4] = {INT64_MAX / 2 + 1, 1, 1, 1};
  const int k_norm = strcmp(name, "k_norm") == 0;
  if (k_norm && is("wrong_shape")) return real_host->add(out, name, dtype, ndim, turned);
  if (k_norm && is("wrong_type")) return real_host->add(out, name, LOCKSTEP_I32, ndim, dim);
  if (k_norm && is("bad_type")) return real_host->add(out, name, 99, ndim, dim);
  if (k_norm && is("impossible_shape")) return real_host->add(out, name, dtype, 1, huge);
  if (k_norm && is("unknown_stage")) return real_host->add(out, "k_normal", dtype, ndim, dim);
  if (k_norm && is("twice")) real_host->add(out, name, dtype, ndim, dim);
  if (k_norm && is("missing_stage")) return calloc(1, 1 << 20);
  if (strcmp(name, "capture") == 0 && is("save_lacks_capture")) return calloc(1, 1 << 20);
  if (strcmp(name, "k_ring") == 0 && is("save_wrong_shape")) return real_host->add(out, name, dtype, ndim, turned);
  if (strcmp(name, "cursor") == 0 && is("save_unknown")) return real_host->add(out, "curser", dtype, ndim, dim);
  void *room = real_host->add(out, name, dtype, ndim, dim);
  if (strcmp(name, "k_rope") == 0) recorded_k_rope = room;
  if (k_norm) misbehave("recording");
  if (k_norm && is("overrun") && room != NULL) memset((char *)room + dim[0] * dim[1] * dim[2] * 2, 0, 2);
  return room;
}

/* ---- faults of a step ---- */

static int32_t eat_memory(lockstep_error *error) {
  for (;;) {
    void *more = malloc(64 << 20);
    if (more == NULL) return real_host->fail(error, LOCKSTEP_FAILED, "out of memory");
    memset(more, 1, 4096);
  }
}

static void before(kernel *m, const lockstep_step *s, lockstep_out *out) {
  misbehave("step");
  if (is("abort")) abort();
  if (is("killed")) raise(SIGKILL);
  if (is("close_socket")) close(3), hang();
  if (is("scribble") && write(3, "this is not what the protocol says it is", 40) == 40) hang();
  if (is("print")) printf("a word on standard output\n"), fflush(stdout);
  if (is("orphan") && fork() == 0) sleep(60), _exit(0); /* holds the socket open */
  if (is("orphan")) crash();
  const int64_t dim[3] = {m->layers, s->rows, m->kv_dim};
  if (is("absent_stage") && out != NULL && strcmp(s->op, "capture") == 0) real_host->add(out, "k_proj", m->act, 3, dim);
}

/* Values that are wrong in one step. */
static void after(kernel *m, const lockstep_step *s, const lockstep_tensors *given, const lockstep_out *out) {
  const int written = strcmp(s->op, "context_write") == 0;
  if (is("wrong_key") && written) { /* both in the record and in the ring: row 1, layer 0, channel 5 */
    const int64_t slot = (m->cursor - s->rows + 1) % m->capacity * m->kv_dim + 5;
    if (s->rows > 1) m->k_ring[slot] ^= 0x0100;
    if (s->rows > 1 && out != NULL && recorded_k_rope != NULL) ((uint16_t *)recorded_k_rope)[m->kv_dim + 5] ^= 0x0100;
  }
  if (is("last_bit") && written) { /* inside every bound */
    m->k_ring[(m->cursor - s->rows) % m->capacity * m->kv_dim + 3] ^= 1;
    if (out != NULL && recorded_k_rope != NULL) ((uint16_t *)recorded_k_rope)[3] ^= 1;
  }
  if (is("wrong_far_slot") && given == NULL) m->v_ring[(m->cursor + 10) % m->capacity * m->kv_dim] ^= 0x4000; /* that no step near writes */
  if (is("wrong_ring") && given == NULL) m->v_ring[(m->cursor + 1) % m->capacity * m->kv_dim] ^= 0x4000;      /* a slot of nobody's */
}

static uint16_t *hidden; /* what the kernel really reads; the state that is saved is `captured` */

/* A capture that keeps a second copy, wrong in one step, which only the next context_write reads: save shows nothing of it, load heals it.
 */
static int32_t with_hidden_copy(kernel *m, const lockstep_step *s, const lockstep_tensors *given, lockstep_out *out,
                                lockstep_error *error) {
  const size_t bytes = (size_t)(m->max_rows * m->fc_in) * 2;
  if (hidden == NULL) hidden = calloc(1, bytes);
  if (hidden == NULL) return real_host->fail(error, LOCKSTEP_FAILED, "out of memory");
  uint16_t *shown = m->captured;
  if (strcmp(s->op, "context_write") == 0) m->captured = hidden;
  int32_t status = own_step(m, s, given, out, error);
  m->captured = shown;
  if (strcmp(s->op, "capture") == 0 && status == LOCKSTEP_OK) {
    memcpy(hidden, shown, bytes);
    if (is("hidden_capture"))
      for (int64_t i = 0; i < m->fc_in; i++) hidden[m->fc_in + i] ^= 0x8000;
  }
  return status;
}

/* ---- the table ---- */

static int32_t broken_step(void *ctx, const lockstep_step *s, const lockstep_tensors *given, lockstep_out *out, lockstep_error *error) {
  kernel *m = ctx;
  const char *fault = getenv("LOCKSTEP_TEST_FAULT");
  now = s->number;
  recorded_k_rope = NULL;
  before(m, s, out);
  if (is("memory")) return eat_memory(error);
  if (is("failed")) return real_host->fail(error, LOCKSTEP_FAILED, "launch of kernel %s failed: error %d", "k_rope", 700);
  if (is("status_42")) return 42;
  if (is("refuses")) return real_host->fail(error, LOCKSTEP_REFUSED, "not today");
  if (is("poisoned") && out != NULL && strcmp(s->op, "context_write") == 0) {
    const int64_t dim[2] = {s->rows, m->hidden};
    real_host->add(out, "ctx_combined", m->act, 2, dim); /* and left as it comes */
    return LOCKSTEP_OK;
  }
  const int32_t status = fault != NULL && strcmp(fault, "hidden_capture") == 0 ? with_hidden_copy(m, s, given, out, error)
                                                                               : own_step(ctx, s, given, out, error);
  if (status == LOCKSTEP_OK) after(m, s, given, out);
  return status;
}

static int32_t broken_open(void **ctx, const lockstep_host *given_host, const lockstep_setup *setup, lockstep_error *error) {
  real_host = given_host;
  host = *given_host;
  host.add = add;
  misbehave("open");
  for (int fd = is("files_from_3") ? 3 : 4; fd < 256 && (is("files") || is("files_from_3")); fd++)
    if (fcntl(fd, F_GETFD) >= 0) return real_host->fail(error, LOCKSTEP_FAILED, "file descriptor %d is open", fd);
  if (is("open_unavailable")) return real_host->fail(error, LOCKSTEP_UNAVAILABLE, "no such device");
  if (is("open_failed")) return LOCKSTEP_FAILED;
  return own_open(ctx, &host, setup, error);
}

static int32_t broken_save(void *ctx, lockstep_out *state, lockstep_error *error) {
  misbehave("save");
  if (is("save_refuses")) return LOCKSTEP_REFUSED;
  return own_save(ctx, state, error);
}

static int32_t broken_load(void *ctx, const lockstep_tensors *state, lockstep_error *error) {
  kernel *m = ctx;
  misbehave("load");
  int32_t status = own_load(ctx, state, error);
  if (hidden != NULL && status == LOCKSTEP_OK) memcpy(hidden, m->captured, (size_t)(m->max_rows * m->fc_in) * 2);
  return status;
}

static int32_t broken_stage_kind(void *ctx, const lockstep_step *s, const char *stage) {
  misbehave("stage_kind");
  if (is("bad_kind")) return 17;
  if (is("fused_but_recorded") && strcmp(stage, "k_norm") == 0 && strcmp(s->op, "context_write") == 0) return LOCKSTEP_STAGE_FUSED;
  return own_stage_kind(ctx, s, stage);
}

static void broken_close(void *ctx) {
  misbehave("close");
  own_close(ctx);
}

LOCKSTEP_EXPORT const lockstep_plugin *lockstep_plugin_entry(uint32_t abi) {
  static lockstep_plugin table;
  table = (lockstep_plugin){LOCKSTEP_PLUGIN_ABI, sizeof table, "broken",          broken_open,  broken_step,
                            broken_save,         broken_load,  broken_stage_kind, own_describe, broken_close};
  misbehave("entry");
  if (is("no_table")) return NULL;
  if (is("abi")) table.abi = abi + 1;
  if (is("size")) table.size = 8;
  if (is("no_open")) table.open = NULL;
  if (is("no_step")) table.step = NULL;
  if (is("no_save")) table.save = NULL;
  if (is("no_load")) table.load = NULL;
  if (is("no_stage_kind")) table.stage_kind = NULL;
  if (is("no_close")) table.close = NULL;
  if (is("no_describe")) table.describe = NULL; /* which is fine */
  return &table;
}
