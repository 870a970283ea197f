/* Fuzz target: whatever a child process may answer (plugin/plugin_child.c, plugin_message.c, plugin_wire.c, plugin_check.c), and whatever
 * a parent of another build may ask (plugin_serve.c). The first byte says which side is fuzzed and what it is asked; the rest is what comes
 * over the socket.
 *
 * The parent's side is built in here, so that it can be handed a socket without a process behind it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "plugin/plugin_child.c" /* before all else: its functions are the target */

#include <pthread.h>

#include "fuzz_target.h"
#include "plugin/ls_serve.h"
#include "tests/fixtures/sound_fixture.h"

static ls_config config[2];

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc, (void)argv;
  config[0] = small_config(LS_BF16);
  config[1] = small_attn_config();
  return 0;
}

static void pair_of(int fd[2]) {
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fd) != 0) abort();
}

/* All that will ever come. It fits the socket: inputs are far smaller than its buffer. */
static void send_input(int fd, const fuzz_bytes *b) {
  enum { MOST = 100000 };
  const size_t n = (size_t)(b->end - b->at) < MOST ? (size_t)(b->end - b->at) : MOST;
  if (n > 0 && send(fd, b->at, n, MSG_NOSIGNAL | MSG_DONTWAIT) < 0) abort();
  shutdown(fd, SHUT_WR);
}

/* ---- the parent's side ---- */

static const unsigned any_end = 1u << LS_OK | 1u << LS_REFUSED | 1u << LS_UNAVAILABLE | 1u << LS_BAD_FIXTURE | 1u << LS_INTERNAL;

static void ask(child *c, int which) {
  const ls_step dflash = {.number = 3, .op = LS_OP_CONTEXT_WRITE, .rows = 2, .cursor = -1},
                attn = {.number = 4, .op = LS_OP_FORWARD, .layer = 1, .start_pos = 0, .rows = 5, .cursor = -1};
  const ls_step *step = which % 2 == 0 ? &dflash : &attn;
  for (int call = 0; call < 6 && !c->dead; call++) {
    ls_trace *trace = NULL;
    ls_error err = {LS_OK, ""};
    ls_status status = LS_OK;
    if (ls_trace_new(&trace, "fuzz", &err) != LS_OK) abort();
    switch ((which + call) % 4) {
      case 0:
        status = child_step(c, step, NULL, trace, true, &err);
        break;
      case 1:
        status = child_save(c, trace, &err);
        break;
      case 2:
        status = child_load(c, trace, &err);
        break;
      default:
        child_stage_kind(c, step, step->op == LS_OP_FORWARD ? "kv" : "k_rope");
        c->has_kinds = false;
    }
    if (status != LS_REFUSED) fuzz_expect("a call of a child", status, any_end, &err); /* why it refuses is its own line, or none */
    ls_trace_free(trace);
  }
}

static void fuzz_parent(int which, const fuzz_bytes *b) {
  int fd[2];
  pair_of(fd);
  send_input(fd[1], b);
  child_path of = {
      .options = {.timeout = 5}, .program = (char *)"prog", .target = (char *)"t", .label = (char *)"label", .name = (char *)"n"};
  child *c = calloc(1, sizeof *c);
  if (c == NULL) abort();
  c->of = &of;
  c->reaped = true; /* there is no process to wait for */
  ls_wire_init(&c->wire, fd[0]);
  ls_error err = {LS_OK, ""};
  ls_status status = which & 4 ? greet(c, &err) : LS_OK;
  fuzz_expect("greeting", status, 1u << LS_OK | 1u << LS_UNAVAILABLE | 1u << LS_BAD_FIXTURE | 1u << LS_INTERNAL, &err);
  c->config = config[which % 2];
  if (status == LS_OK) ask(c, which >> 3);
  c->dead = true; /* a close would wait for an end */
  child_close(c);
  close(fd[1]);
}

/* ---- the child's side ---- */

/* A path that only looks at what it is handed: the server's own code is the target. */
static int opened;

static ls_status look_at(const ls_trace *trace) {
  for (int i = 0; trace != NULL && i < trace->n; i++)
    if (ls_tensor_count(&trace->rec[i].t) > 0) ls_tensor_get(&trace->rec[i].t, ls_tensor_count(&trace->rec[i].t) - 1);
  return LS_OK;
}

static ls_status looks_open(void **ctx, const ls_config *of, const ls_trace *weights, const ls_path_options *options, ls_error *err) {
  (void)options, (void)err;
  *ctx = &opened;
  return of->layer != NULL ? look_at(weights) : LS_INTERNAL;
}

static ls_status looks_step(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, bool rings, ls_error *err) {
  (void)ctx, (void)out, (void)rings;
  look_at(given);
  look_at(step->in);
  return step->rows == 7 ? ls_fail(err, LS_REFUSED, "seven") : LS_OK;
}

static ls_status looks_save(void *ctx, ls_trace *state, ls_error *err) {
  (void)ctx, (void)err;
  return look_at(state);
}

static ls_status looks_load(void *ctx, const ls_trace *state, ls_error *err) {
  (void)ctx, (void)err;
  return look_at(state);
}

static ls_stage_kind looks_kind(void *ctx, const ls_step *step, const char *stage) {
  (void)ctx, (void)step;
  return stage[0] == 'k' ? LS_STAGE_OWN : LS_STAGE_ABSENT;
}

static const char *looks_describe(void *ctx) {
  (void)ctx;
  return "looks";
}

static void looks_close(void *ctx) { (void)ctx; }

static const ls_path fuzz_path = {.abi = LS_PATH_ABI,
                                  .name = "looks",
                                  .open = looks_open,
                                  .step = looks_step,
                                  .save = looks_save,
                                  .load = looks_load,
                                  .stage_kind = looks_kind,
                                  .describe = looks_describe,
                                  .close = looks_close};

static void *drain(void *arg) {
  char rest[4096];
  while (recv(*(const int *)arg, rest, sizeof rest, 0) > 0) continue;
  return NULL;
}

static void fuzz_server(const fuzz_bytes *b) {
  int fd[2];
  pthread_t reader;
  pair_of(fd);
  send_input(fd[1], b);
  if (pthread_create(&reader, NULL, drain, &fd[1]) != 0) abort();
  ls_error reason = {LS_OK, ""}, err = {LS_OK, ""};
  const ls_status status = ls_serve(fd[0], &fuzz_path, &reason, &err);
  fuzz_expect("ls_serve", status, any_end, &err);
  shutdown(fd[0], SHUT_RDWR);
  pthread_join(reader, NULL);
  close(fd[0]);
  close(fd[1]);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_bytes b = {data, data + size};
  const uint8_t which = fuzz_u8(&b);
  if (which >= 192)
    fuzz_server(&b);
  else
    fuzz_parent(which, &b);
  return 0;
}
