/* The parent's side of a path in a child process: starts it, asks, holds the answers against the layer's tables, and says in one line what
 * became of it when it does not answer. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* close_range, sigabbrev_np */
#endif
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "../core/ls_clock.h"
#include "../core/ls_parallel.h"
#include "ls_child.h"
#include "plugin_check.h"

typedef struct {
  ls_path path; /* first: the path and its options are one block */
  ls_child_options options;
  char *program, *target, *label, *name;
} child_path;

/* The scalars by which a step is known again. */
typedef struct {
  ls_op op;
  int64_t number, rows, position, layer, start_pos;
} step_key;

typedef struct {
  const child_path *of;
  pid_t pid; /* 0: none */
  bool reaped;
  int wait_status;
  ls_wire wire;
  bool dead;    /* told already; every further call fails */
  bool loading; /* until the child has said that it is there */
  ls_config config;
  char last_step[128];               /* "step 3 context_write (isolated)" */
  char last_stage[LS_MAX_SPEC_NAME]; /* that it told of in the call now running */
  char text[256];                    /* describe */
  step_key key;                      /* of the step that `kind` is for */
  bool has_kinds;
  ls_stage_kind kind[LS_MAX_STAGES]; /* by place in the layer's table */
} child;

/* ---- the process ---- */

static bool gone(void *arg) {
  child *c = arg;
  if (!c->reaped && waitpid(c->pid, &c->wait_status, WNOHANG) == c->pid) c->reaped = true;
  return c->reaped;
}

/* Until it has ended, at most so long. */
static bool ends_within(child *c, double seconds) {
  const double until = ls_clock_seconds() + seconds;
  while (!gone(c)) {
    if (ls_clock_seconds() >= until) return false;
    nanosleep(&(struct timespec){.tv_nsec = 2000000}, NULL);
  }
  return true;
}

static void end_process(child *c) {
  if (c->wire.fd >= 0) close(c->wire.fd);
  c->wire.fd = -1;
  if (c->pid <= 0) return;
  kill(-c->pid, SIGKILL); /* and what it may have started */
  if (!c->reaped) {
    kill(c->pid, SIGKILL);
    while (waitpid(c->pid, &c->wait_status, 0) < 0 && errno == EINTR) continue;
  }
  c->pid = 0;
}

/* Between fork and exec: async-signal-safe calls alone. */
static _Noreturn void become(const child_path *of, int socket, int null, char *const *argv) {
  setpgid(0, 0); /* an interrupt of the terminal is the parent's to handle */
  if (dup2(null, 0) < 0 || dup2(2, 1) < 0) _exit(126);
  if (socket == LS_WIRE_SOCKET)
    fcntl(socket, F_SETFD, 0);
  else if (dup2(socket, LS_WIRE_SOCKET) < 0)
    _exit(126);
  syscall(SYS_close_range, LS_WIRE_SOCKET + 1, ~0U, 0); /* not there before Linux 5.9: what is CLOEXEC is closed anyway */
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, NULL);
  signal(SIGINT, SIG_DFL);
  signal(SIGTERM, SIG_DFL);
  execv(of->program, argv);
  _exit(127);
}

static ls_status spawn(child *c, ls_error *err) {
  const child_path *of = c->of;
  char memory[32];
  snprintf(memory, sizeof memory, "%" PRId64, of->options.memory_mib);
  char *const argv[] = {of->program, "__serve-path", of->target, memory, NULL};
  int pair[2], null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (null < 0) return ls_fail(err, LS_INTERNAL, "%s: no /dev/null: %s", of->label, strerror(errno));
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair) != 0) {
    close(null);
    return ls_fail(err, LS_INTERNAL, "%s: no socket for its process: %s", of->label, strerror(errno));
  }
  fflush(NULL);
  c->pid = fork();
  if (c->pid == 0) become(of, pair[1], null, argv);
  const int failure = errno;
  close(null);
  close(pair[1]);
  ls_wire_init(&c->wire, pair[0]);
  if (c->pid < 0) {
    c->pid = 0;
    return ls_fail(err, LS_INTERNAL, "%s: no process for it: %s", of->label, strerror(failure));
  }
  setpgid(c->pid, c->pid); /* whichever of the two is first */
  c->wire.interrupted = of->options.interrupted;
  c->wire.gone = gone;
  c->wire.gone_arg = c;
  return LS_OK;
}

/* ---- what became of it ---- */

static void begin(child *c) {
  c->last_stage[0] = '\0';
  c->wire.deadline = ls_clock_seconds() + c->of->options.timeout;
}

/* What the system says of a process that is gone. */
static void end_text(const child *c, char *text, size_t size) {
  const int status = c->wait_status;
  if (WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) {
    snprintf(text, size, "was killed (SIGKILL), as the system does where memory runs out,");
  } else if (WIFSIGNALED(status)) {
    const char *abbreviation = sigabbrev_np(WTERMSIG(status));
    snprintf(text, size, "crashed (SIG%s)", abbreviation != NULL ? abbreviation : "?");
  } else if (c->loading && WEXITSTATUS(status) == 127) {
    snprintf(text, size, "cannot be started: %s is no program", c->of->program);
  } else {
    snprintf(text, size, "ended its process (exit status %d)", WEXITSTATUS(status));
  }
}

/* The one line; ends the child. call: "context_write (isolated)", "save after step 3". */
static ls_status dies(child *c, const char *call, ls_error *err) {
  const ls_wire_state state = c->wire.state;
  const char *label = c->of->label;
  char what[256], behind[160] = "";
  if (c->dead) return ls_fail(err, LS_INTERNAL, "%s: its process has ended before", label);
  if (c->last_stage[0] != '\0') snprintf(behind, sizeof behind, ", after it began to record %s", c->last_stage);
  ls_status status = c->loading ? LS_UNAVAILABLE : LS_INTERNAL;
  if (state == LS_WIRE_CLOSED && ends_within(c, 2)) {
    end_text(c, what, sizeof what);
  } else if (state == LS_WIRE_CLOSED) {
    snprintf(what, sizeof what, "closed its connection to lockstep (file descriptor %d)", LS_WIRE_SOCKET);
  } else if (state == LS_WIRE_TIMEOUT) {
    snprintf(what, sizeof what, "did not come back within %g s (--timeout)", c->of->options.timeout);
  } else if (state == LS_WIRE_INTERRUPTED) {
    snprintf(what, sizeof what, "was interrupted");
    status = LS_INTERRUPTED;
  } else {
    snprintf(what, sizeof what, "answered what the protocol does not know, or wrote to lockstep's socket (file descriptor %d)",
             LS_WIRE_SOCKET);
  }
  if (c->loading && WIFSIGNALED(c->wait_status) && c->reaped) status = LS_INTERNAL;
  if (state == LS_WIRE_TIMEOUT) status = LS_INTERNAL;
  c->dead = true;
  end_process(c);
  return ls_fail(err, status, "%s: %s in %s%s", label, what, call, behind);
}

/* An answer that the contract does not allow: nothing that comes after it can be believed. */
static ls_status breaks(child *c, const char *call, const ls_error *why, ls_error *err) {
  c->dead = true;
  end_process(c);
  return ls_fail(err, why->status, "%s: %s: %s", c->of->label, call, why->text);
}

/* What the other process says of a call; a number that is no status is what the protocol does not know. */
static ls_status get_status(ls_wire *wire) {
  const int64_t said = ls_wire_get_range(wire, LS_OK, LS_INTERRUPTED);
  if (wire->state == LS_WIRE_OK && said > LS_REFUSED && said != LS_INTERRUPTED) wire->state = LS_WIRE_MALFORMED;
  return (ls_status)said;
}

/* As it ends a run: another process cannot be refused or interrupted for this one. */
static ls_status as_end(ls_status said) { return said == LS_UNAVAILABLE || said == LS_BAD_FIXTURE ? said : LS_INTERNAL; }

/* Passes over progress; the status and line of the answer. LS_OK: an answer is there, and *said what it says. */
static ls_status answer(child *c, const char *call, ls_status *said, ls_error *line, ls_error *err) {
  char text[LS_ERROR_TEXT];
  ls_wire_flush(&c->wire);
  for (;;) {
    const int64_t kind = ls_wire_get_range(&c->wire, LS_WIRE_PROGRESS, LS_WIRE_DONE);
    if (c->wire.state != LS_WIRE_OK) return dies(c, call, err);
    if (kind == LS_WIRE_DONE) break;
    ls_wire_get_text(&c->wire, c->last_stage, sizeof c->last_stage);
  }
  *said = get_status(&c->wire);
  ls_wire_get_text(&c->wire, text, sizeof text);
  if (c->wire.state != LS_WIRE_OK) return dies(c, call, err);
  if (*said != LS_OK) ls_fail(line, *said, "%s", text);
  return LS_OK;
}

/* Of a call that has no other outcome than done or not. */
static ls_status answer_done(child *c, const char *call, ls_error *err) {
  ls_status said;
  ls_error line = {LS_OK, ""};
  LS_TRY(answer(c, call, &said, &line, err));
  if (said == LS_OK) return LS_OK;
  return ls_fail(err, as_end(said), "%s: %s", c->of->label, line.text);
}

static ls_status check_alive(const child *c, ls_error *err) {
  return c->dead ? ls_fail(err, LS_INTERNAL, "%s: its process has ended before", c->of->label) : LS_OK;
}

/* ---- open, close ---- */

static void child_close(void *ctx) {
  child *c = ctx;
  if (c == NULL) return;
  if (!c->dead && c->pid > 0) {
    enum { CLOSE_SECONDS = 5 }; /* a close that hangs or crashes costs nothing that was asked for */
    c->wire.deadline = ls_clock_seconds() + CLOSE_SECONDS;
    ls_wire_put_int(&c->wire, LS_WIRE_CLOSE);
    ls_wire_flush(&c->wire);
    ends_within(c, CLOSE_SECONDS);
  }
  end_process(c);
  free(c);
}

static ls_status greet(child *c, ls_error *err) {
  static const char call[] = "loading";
  char text[LS_ERROR_TEXT];
  c->loading = true;
  begin(c);
  const int64_t magic = ls_wire_get_int(&c->wire), protocol = ls_wire_get_int(&c->wire);
  if (c->wire.state == LS_WIRE_OK && magic != LS_WIRE_MAGIC) c->wire.state = LS_WIRE_MALFORMED;
  if (c->wire.state != LS_WIRE_OK) return dies(c, call, err);
  if (protocol != LS_WIRE_PROTOCOL)
    return ls_fail(err, LS_UNAVAILABLE, "%s: %s serves paths by protocol %" PRId64 ", expected %d", c->of->label, c->of->program, protocol,
                   (int)LS_WIRE_PROTOCOL);
  const ls_status said = get_status(&c->wire);
  ls_wire_get_text(&c->wire, text, sizeof text);
  if (c->wire.state != LS_WIRE_OK) return dies(c, call, err);
  c->loading = false;
  return said == LS_OK ? LS_OK : ls_fail(err, as_end(said), "%s: %s", c->of->label, text);
}

static ls_status start(child **started, const child_path *of, ls_error *err) {
  *started = NULL;
  child *c = calloc(1, sizeof *c);
  if (c == NULL) return ls_fail(err, LS_INTERNAL, "out of memory");
  c->of = of;
  c->wire.fd = -1;
  ls_status status = spawn(c, err);
  if (status == LS_OK) status = greet(c, err);
  if (status == LS_OK)
    *started = c;
  else
    child_close(c);
  return status;
}

static ls_status child_open(void **ctx, const ls_config *config, const ls_trace *weights, const ls_path_options *options, ls_error *err) {
  *ctx = NULL;
  child *c;
  if (options == NULL || options->self == NULL) return ls_fail(err, LS_INTERNAL, "a path in a child process is opened by ls_run_open");
  LS_TRY(start(&c, options->self, err));
  c->config = *config;
  snprintf(c->last_step, sizeof c->last_step, "the start");
  begin(c);
  ls_wire_put_int(&c->wire, LS_WIRE_OPEN);
  ls_wire_put_config(&c->wire, config);
  ls_wire_put_int(&c->wire, options->precision);
  ls_wire_put_int(&c->wire, (int64_t)options->emu_schedule);
  ls_wire_put_int(&c->wire, options->device);
  ls_wire_put_int(&c->wire, ls_threads());
  ls_status status = ls_wire_put_trace(&c->wire, weights, err);
  if (status == LS_OK) status = answer_done(c, "open", err);
  if (status == LS_OK) {
    ls_wire_get_text(&c->wire, c->text, sizeof c->text);
    if (c->wire.state != LS_WIRE_OK) status = dies(c, "open", err);
  }
  if (status == LS_OK)
    *ctx = c;
  else
    child_close(c);
  return status;
}

static const char *child_describe(void *ctx) {
  const child *c = ctx;
  return c->text;
}

/* ---- steps ---- */

static step_key key_of(const ls_step *step) {
  return (step_key){step->op, step->number, step->rows, step->position, step->layer, step->start_pos};
}

static bool same_key(const step_key *a, const step_key *b) {
  return a->op == b->op && a->number == b->number && a->rows == b->rows && a->position == b->position && a->layer == b->layer &&
         a->start_pos == b->start_pos;
}

/* One that is no kind stays as it is for the caller to refuse. Stages that only the other build knows are passed over. */
static ls_status read_kinds(child *c, const ls_step *step, const char *call, ls_error *err) {
  const ls_layer *layer = c->config.layer;
  const int64_t n = ls_wire_get_range(&c->wire, 0, 1024);
  c->has_kinds = false;
  for (int i = 0; i < layer->n_stages; i++) c->kind[i] = LS_STAGE_ABSENT;
  for (int64_t k = 0; k < n && c->wire.state == LS_WIRE_OK; k++) {
    char name[LS_NAME_MAX];
    ls_wire_get_text(&c->wire, name, sizeof name);
    const int64_t kind = ls_wire_get_int(&c->wire);
    if (c->wire.state != LS_WIRE_OK) break;
    if (kind < LS_STAGE_OWN || kind > LS_STAGE_ABSENT) {
      ls_error why = {LS_OK, ""};
      ls_fail(&why, LS_INTERNAL, "stage_kind of %s returned %" PRId64 ", which is no kind", name, kind);
      return breaks(c, call, &why, err);
    }
    const ls_stage *stage = ls_stage_find(layer, name);
    if (stage != NULL) c->kind[stage - layer->stages] = (ls_stage_kind)kind;
  }
  if (c->wire.state != LS_WIRE_OK) return dies(c, call, err);
  c->key = key_of(step);
  c->has_kinds = true;
  return LS_OK;
}

typedef struct {
  const child *c;
  const ls_spec_list *specs;
} acceptance;

static ls_status accept_stage(void *arg, const ls_wire_head *head, ls_error *err) {
  const acceptance *a = arg;
  const ls_layer *layer = a->c->config.layer;
  const ls_stage *stage = ls_stage_find(layer, head->name);
  LS_TRY(ls_check_stage(&a->c->config, a->specs, head, err));
  if (stage == NULL || stage->is_ring) return LS_OK;
  const ls_stage_kind kind = a->c->kind[stage - layer->stages];
  if (kind != LS_STAGE_FUSED && kind != LS_STAGE_ABSENT) return LS_OK;
  return ls_fail(err, LS_INTERNAL, "it recorded stage %s, which it calls %s", head->name, kind == LS_STAGE_FUSED ? "fused" : "absent");
}

/* What it recorded of a step: the names, types and shapes of the contract, and nothing else. */
static ls_status read_record(child *c, const ls_step *step, ls_trace *out, const char *call, ls_error *err) {
  ls_spec_list specs = {NULL, 0, 0};
  ls_step done = *step;
  ls_error why = {LS_OK, ""};
  done.expect_refused = false;
  ls_status status = c->config.layer->expect_specs(&c->config, &done, &specs, err);
  acceptance a = {c, &specs};
  if (status == LS_OK) {
    status = ls_wire_get_trace(&c->wire, out, accept_stage, &a, &why);
    if (c->wire.state != LS_WIRE_OK)
      status = dies(c, call, err);
    else if (status != LS_OK)
      status = breaks(c, call, &why, err);
  }
  ls_spec_free(&specs);
  return status;
}

static ls_status child_step(void *ctx, const ls_step *step, const ls_trace *given, ls_trace *out, bool out_rings, ls_error *err) {
  child *c = ctx;
  char call[64];
  ls_status said;
  ls_error line = {LS_OK, ""};
  LS_TRY(check_alive(c, err));
  snprintf(call, sizeof call, "%s (%s)", ls_op_name(step->op), given != NULL ? "isolated" : out != NULL ? "cascaded" : "untraced");
  snprintf(c->last_step, sizeof c->last_step, "step %" PRId64 " %s", step->number, call);
  begin(c);
  ls_wire_put_int(&c->wire, LS_WIRE_STEP);
  ls_wire_put_int(&c->wire, out != NULL);
  ls_wire_put_int(&c->wire, out_rings);
  ls_wire_put_int(&c->wire, given != NULL);
  LS_TRY(ls_wire_put_step(&c->wire, step, err));
  if (given != NULL) LS_TRY(ls_wire_put_trace(&c->wire, given, err));
  LS_TRY(answer(c, call, &said, &line, err));
  if (said != LS_OK && said != LS_REFUSED)
    return ls_fail(err, said == LS_UNAVAILABLE ? said : LS_INTERNAL, "%s: %s", c->of->label, line.text);
  if (out != NULL) {
    LS_TRY(read_kinds(c, step, call, err));
    LS_TRY(read_record(c, step, out, call, err));
  }
  return said == LS_OK ? LS_OK : ls_fail(err, LS_REFUSED, "%s", line.text);
}

/* Known from the last traced step; else asked. The signature has no room for an error: a child that ends here fails the next call. */
static ls_stage_kind child_stage_kind(void *ctx, const ls_step *step, const char *name) {
  child *c = ctx;
  const ls_stage *stage = ls_stage_find(c->config.layer, name);
  const step_key key = key_of(step);
  if (stage == NULL) return LS_STAGE_ABSENT;
  if (c->has_kinds && same_key(&key, &c->key)) return c->kind[stage - c->config.layer->stages];
  ls_status said;
  ls_error err = {LS_OK, ""}, line = {LS_OK, ""};
  if (c->dead) return LS_STAGE_ABSENT;
  begin(c);
  ls_wire_put_int(&c->wire, LS_WIRE_KIND);
  if (ls_wire_put_step(&c->wire, step, &err) != LS_OK) return LS_STAGE_ABSENT;
  ls_wire_put_text(&c->wire, name);
  if (answer(c, "stage_kind", &said, &line, &err) != LS_OK) return LS_STAGE_ABSENT;
  return (ls_stage_kind)ls_wire_get_range(&c->wire, LS_STAGE_OWN, LS_STAGE_ABSENT);
}

/* ---- states ---- */

static ls_status accept_state(void *arg, const ls_wire_head *head, ls_error *err) {
  const acceptance *a = arg;
  return ls_check_state_tensor(&a->c->config, a->specs, head, err);
}

static ls_status child_save(void *ctx, ls_trace *state, ls_error *err) {
  child *c = ctx;
  char call[160];
  LS_TRY(check_alive(c, err));
  snprintf(call, sizeof call, "save after %s", c->last_step);
  begin(c);
  ls_wire_put_int(&c->wire, LS_WIRE_SAVE);
  LS_TRY(answer_done(c, call, err));
  ls_spec_list specs = {NULL, 0, 0};
  ls_error why = {LS_OK, ""};
  acceptance a = {c, &specs};
  ls_status status = c->config.layer->state_specs(&c->config, &specs, err);
  if (status == LS_OK) {
    status = ls_wire_get_trace(&c->wire, state, accept_state, &a, &why);
    if (status == LS_OK) status = ls_check_state_whole(&c->config, &specs, state, &why);
    if (c->wire.state != LS_WIRE_OK)
      status = dies(c, call, err);
    else if (status != LS_OK)
      status = breaks(c, call, &why, err);
  }
  ls_spec_free(&specs);
  return status;
}

static ls_status child_load(void *ctx, const ls_trace *state, ls_error *err) {
  child *c = ctx;
  char call[160];
  LS_TRY(check_alive(c, err));
  snprintf(call, sizeof call, "load after %s", c->last_step);
  begin(c);
  ls_wire_put_int(&c->wire, LS_WIRE_LOAD);
  LS_TRY(ls_wire_put_trace(&c->wire, state, err));
  return answer_done(c, call, err);
}

/* ---- the path ---- */

void ls_child_path_free(ls_path *path) {
  child_path *of = (child_path *)path;
  if (of == NULL) return;
  free(of->program);
  free(of->target);
  free(of->label);
  free(of->name);
  free(of);
}

ls_status ls_child_path_new(ls_path **path, const ls_child_options *options, ls_error *err) {
  *path = NULL;
  child_path *of = calloc(1, sizeof *of);
  if (of == NULL) return ls_fail(err, LS_INTERNAL, "out of memory");
  of->options = *options;
  of->program = strdup(options->program);
  of->target = strdup(options->target);
  of->label = strdup(options->label);
  of->name = strdup(options->name);
  of->path = (ls_path){.abi = LS_PATH_ABI,
                       .name = of->name,
                       .open = child_open,
                       .step = child_step,
                       .save = child_save,
                       .load = child_load,
                       .stage_kind = child_stage_kind,
                       .describe = child_describe,
                       .close = child_close,
                       .self = of};
  ls_status status = LS_OK;
  child *tried = NULL;
  if (of->program == NULL || of->target == NULL || of->label == NULL || of->name == NULL)
    status = ls_fail(err, LS_INTERNAL, "out of memory");
  if (status == LS_OK) status = start(&tried, of, err);
  child_close(tried);
  if (status == LS_OK)
    *path = &of->path;
  else
    ls_child_path_free(&of->path);
  return status;
}
