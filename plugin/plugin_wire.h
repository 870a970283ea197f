/* plugin_wire: numbers, texts and bytes over a socket between a run and the child process that holds a path. Either side may vanish, stop
 * answering, or send anything: the first trouble sticks, every later call does nothing and gives zeros, and the caller looks once. Both
 * sides are the same machine: numbers go in its byte order. */
#ifndef LS_PLUGIN_WIRE_H
#define LS_PLUGIN_WIRE_H

#include <signal.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
  LS_WIRE_OK,
  LS_WIRE_CLOSED,      /* the other side is gone, or has closed its end */
  LS_WIRE_TIMEOUT,     /* nothing moved until the deadline */
  LS_WIRE_INTERRUPTED, /* *interrupted was set */
  LS_WIRE_MALFORMED    /* what came is not what the protocol says */
} ls_wire_state;

enum { LS_WIRE_BUFFER = 1 << 16 };

typedef struct {
  int fd;
  double deadline;                          /* seconds of CLOCK_MONOTONIC; 0: none */
  const volatile sig_atomic_t *interrupted; /* may be NULL */
  bool (*gone)(void *arg);                  /* asked now and then while waiting: whether the other side has ended. NULL: never asked */
  void *gone_arg;
  ls_wire_state state;
  size_t n_out, in_at, n_in;
  uint8_t out[LS_WIRE_BUFFER], in[LS_WIRE_BUFFER];
} ls_wire;

void ls_wire_init(ls_wire *wire, int fd);

void ls_wire_put_bytes(ls_wire *wire, const void *data, size_t n);
void ls_wire_put_int(ls_wire *wire, int64_t v);
void ls_wire_put_real(ls_wire *wire, double v);
void ls_wire_put_text(ls_wire *wire, const char *text);
void ls_wire_flush(ls_wire *wire);

void ls_wire_get_bytes(ls_wire *wire, void *data, size_t n);
int64_t ls_wire_get_int(ls_wire *wire);
int64_t ls_wire_get_range(ls_wire *wire, int64_t low, int64_t high); /* outside: LS_WIRE_MALFORMED, and low */
double ls_wire_get_real(ls_wire *wire);
void ls_wire_get_text(ls_wire *wire, char *text, size_t size); /* one that does not fit, or holds a 0: LS_WIRE_MALFORMED, and "" */

#endif
