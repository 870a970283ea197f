#include "plugin_wire.h"

#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include "../core/ls_clock.h"

void ls_wire_init(ls_wire *wire, int fd) {
  memset(wire, 0, sizeof *wire);
  wire->fd = fd;
}

static void trouble(ls_wire *wire, ls_wire_state state) {
  if (wire->state == LS_WIRE_OK) wire->state = state;
}

/* Until the socket is ready, in short waits: a signal that comes between a look at the flag and the wait would else be slept through. */
static bool wait_for(ls_wire *wire, short events) {
  enum { SLICE_MS = 100 };
  while (wire->state == LS_WIRE_OK) {
    if (wire->interrupted != NULL && *wire->interrupted) trouble(wire, LS_WIRE_INTERRUPTED);
    int slice = SLICE_MS;
    if (wire->deadline > 0) {
      const double left = wire->deadline - ls_clock_seconds();
      if (left <= 0) trouble(wire, LS_WIRE_TIMEOUT);
      if (left * 1000 < slice) slice = (int)(left * 1000) + 1;
    }
    if (wire->state != LS_WIRE_OK) return false;
    struct pollfd p = {.fd = wire->fd, .events = events};
    const int ready = poll(&p, 1, slice);
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) trouble(wire, LS_WIRE_CLOSED);
    /* a process of the child's own may hold the socket open after it */
    if (ready == 0 && wire->gone != NULL && wire->gone(wire->gone_arg)) trouble(wire, LS_WIRE_CLOSED);
  }
  return false;
}

static void send_all(ls_wire *wire, const uint8_t *data, size_t n) {
  while (n > 0 && wire->state == LS_WIRE_OK) {
    const ssize_t sent = send(wire->fd, data, n, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent > 0) {
      data += sent;
      n -= (size_t)sent;
    } else if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS)) {
      wait_for(wire, POLLOUT);
    } else if (sent == 0 || errno != EINTR) {
      trouble(wire, LS_WIRE_CLOSED);
    }
  }
}

void ls_wire_flush(ls_wire *wire) {
  send_all(wire, wire->out, wire->n_out);
  wire->n_out = 0;
}

void ls_wire_put_bytes(ls_wire *wire, const void *data, size_t n) {
  if (n == 0) return;
  if (n > sizeof wire->out - wire->n_out) ls_wire_flush(wire);
  if (n >= sizeof wire->out) {
    send_all(wire, data, n);
  } else {
    memcpy(wire->out + wire->n_out, data, n);
    wire->n_out += n;
  }
}

void ls_wire_put_int(ls_wire *wire, int64_t v) { ls_wire_put_bytes(wire, &v, sizeof v); }
void ls_wire_put_real(ls_wire *wire, double v) { ls_wire_put_bytes(wire, &v, sizeof v); }

void ls_wire_put_text(ls_wire *wire, const char *text) {
  const size_t n = strlen(text);
  ls_wire_put_int(wire, (int64_t)n);
  ls_wire_put_bytes(wire, text, n);
}

static size_t receive(ls_wire *wire, uint8_t *data, size_t most) {
  while (wire->state == LS_WIRE_OK) {
    const ssize_t got = recv(wire->fd, data, most, MSG_DONTWAIT);
    if (got > 0) return (size_t)got;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) {
      wait_for(wire, POLLIN);
    } else if (got == 0 || errno != EINTR) {
      trouble(wire, LS_WIRE_CLOSED);
    }
  }
  return 0;
}

void ls_wire_get_bytes(ls_wire *wire, void *data, size_t n) {
  uint8_t *to = data;
  while (n > 0) {
    size_t part = wire->n_in - wire->in_at;
    if (part > n) part = n;
    if (part > 0) {
      memcpy(to, wire->in + wire->in_at, part);
      wire->in_at += part;
    } else if (n >= sizeof wire->in) {
      part = receive(wire, to, n);
    } else {
      wire->in_at = 0;
      wire->n_in = receive(wire, wire->in, sizeof wire->in);
    }
    if (wire->state != LS_WIRE_OK) {
      memset(to, 0, n);
      return;
    }
    to += part;
    n -= part;
  }
}

int64_t ls_wire_get_int(ls_wire *wire) {
  int64_t v;
  ls_wire_get_bytes(wire, &v, sizeof v);
  return v;
}

int64_t ls_wire_get_range(ls_wire *wire, int64_t low, int64_t high) {
  const int64_t v = ls_wire_get_int(wire);
  if (v >= low && v <= high && wire->state == LS_WIRE_OK) return v;
  trouble(wire, LS_WIRE_MALFORMED);
  return low;
}

double ls_wire_get_real(ls_wire *wire) {
  double v;
  ls_wire_get_bytes(wire, &v, sizeof v);
  return v;
}

void ls_wire_get_text(ls_wire *wire, char *text, size_t size) {
  const int64_t n = ls_wire_get_range(wire, 0, (int64_t)size - 1);
  ls_wire_get_bytes(wire, text, (size_t)n);
  text[n] = '\0';
  if (strlen(text) != (size_t)n) trouble(wire, LS_WIRE_MALFORMED);
  if (wire->state != LS_WIRE_OK) text[0] = '\0';
}
