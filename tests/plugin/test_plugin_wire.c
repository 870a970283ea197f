/* The wire between a run and a child process: what comes over it is believed only where it fits, and the other side may vanish or fall
 * silent at any byte. */
#include <criterion/criterion.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include "core/ls_clock.h"
#include "core/ls_numeric.h"
#include "plugin/plugin_message.h"
#include "plugin_run.h"

typedef struct {
  ls_wire *a, *b;
} line;

static line connected(void) {
  int pair[2], room = 1 << 20;
  line l = {malloc(sizeof *l.a), malloc(sizeof *l.b)};
  cr_assert(l.a != NULL && l.b != NULL);
  cr_assert_eq(socketpair(AF_UNIX, SOCK_STREAM, 0, pair), 0);
  setsockopt(pair[0], SOL_SOCKET, SO_SNDBUF, &room, sizeof room);
  ls_wire_init(l.a, pair[0]);
  ls_wire_init(l.b, pair[1]);
  l.a->deadline = l.b->deadline = ls_clock_seconds() + 20;
  return l;
}

static void disconnected(line *l) {
  close(l->a->fd);
  close(l->b->fd);
  free(l->a);
  free(l->b);
}

Test(wire, numbers_texts_and_bytes_come_as_they_went) {
  line l = connected();
  static uint8_t block[100000], came[sizeof block];
  char text[16];
  for (size_t i = 0; i < sizeof block; i++) block[i] = (uint8_t)(i * 7);
  ls_wire_put_int(l.a, INT64_MIN);
  ls_wire_put_real(l.a, -0.0);
  ls_wire_put_text(l.a, "k_rope");
  ls_wire_put_bytes(l.a, block, sizeof block); /* more than the buffer holds */
  ls_wire_put_text(l.a, "");
  ls_wire_flush(l.a);
  cr_expect_eq(ls_wire_get_int(l.b), INT64_MIN);
  cr_expect(signbit(ls_wire_get_real(l.b)));
  ls_wire_get_text(l.b, text, sizeof text);
  cr_expect_str_eq(text, "k_rope");
  ls_wire_get_bytes(l.b, came, sizeof came);
  cr_expect_arr_eq(came, block, sizeof block);
  ls_wire_get_text(l.b, text, sizeof text);
  cr_expect_str_eq(text, "");
  cr_expect_eq(l.b->state, LS_WIRE_OK);
  disconnected(&l);
}

Test(wire, a_text_that_does_not_fit_or_holds_a_zero_is_malformed) {
  char text[8];
  for (int i = 0; i < 3; i++) {
    line l = connected();
    ls_wire_put_int(l.a, i == 0 ? 8 : i == 1 ? -1 : 3);
    ls_wire_put_bytes(l.a, "a\0cdefgh", 8);
    ls_wire_flush(l.a);
    ls_wire_get_text(l.b, text, sizeof text);
    cr_expect_eq(l.b->state, LS_WIRE_MALFORMED, "case %d", i);
    cr_expect_str_eq(text, "");
    cr_expect_eq(ls_wire_get_int(l.b), 0, "trouble sticks");
    disconnected(&l);
  }
}

Test(wire, a_number_outside_its_range_is_malformed) {
  line l = connected();
  ls_wire_put_int(l.a, 5);
  ls_wire_flush(l.a);
  cr_expect_eq(ls_wire_get_range(l.b, 1, 4), 1);
  cr_expect_eq(l.b->state, LS_WIRE_MALFORMED);
  disconnected(&l);
}

Test(wire, silence_ends_at_the_deadline_and_a_closed_end_at_once) {
  line l = connected();
  l.b->deadline = ls_clock_seconds() + 0.2;
  cr_expect_eq(ls_wire_get_int(l.b), 0);
  cr_expect_eq(l.b->state, LS_WIRE_TIMEOUT);
  shutdown(l.b->fd, SHUT_RDWR);
  cr_expect_eq(ls_wire_get_int(l.a), 0);
  cr_expect_eq(l.a->state, LS_WIRE_CLOSED);
  disconnected(&l);
  l = connected();
  shutdown(l.b->fd, SHUT_RDWR); /* writing to nobody is no signal that ends the program */
  for (int i = 0; i < 100000; i++) ls_wire_put_int(l.a, i);
  cr_expect_eq(l.a->state, LS_WIRE_CLOSED);
  disconnected(&l);
}

Test(wire, a_reader_that_never_reads_does_not_hold_the_writer_up) {
  line l = connected();
  l.a->deadline = ls_clock_seconds() + 0.3;
  for (int i = 0; i < 1 << 20; i++) ls_wire_put_int(l.a, i);
  cr_expect_eq(l.a->state, LS_WIRE_TIMEOUT);
  disconnected(&l);
}

static volatile sig_atomic_t interrupted;

Test(wire, an_interrupt_ends_the_wait) {
  line l = connected();
  interrupted = 1;
  l.b->interrupted = &interrupted;
  cr_expect_eq(ls_wire_get_int(l.b), 0);
  cr_expect_eq(l.b->state, LS_WIRE_INTERRUPTED);
  disconnected(&l);
}

static bool is_gone(void *arg) {
  (void)arg;
  return true;
}

Test(wire, an_end_that_someone_else_holds_open_is_closed_once_its_owner_is_gone) {
  line l = connected();
  l.b->gone = is_gone;
  cr_expect_eq(ls_wire_get_int(l.b), 0);
  cr_expect_eq(l.b->state, LS_WIRE_CLOSED);
  disconnected(&l);
}

/* ---- the nouns ---- */

static ls_config small_config(void) {
  ls_error err = {LS_OK, ""};
  ls_config config = {.layer = &ls_layer_dflash_context_kv, .act = LS_F16};
  config.dflash = (ls_dflash_config){.hidden = 8,
                                     .aux_count = 2,
                                     .layers = 2,
                                     .num_kv_heads = 1,
                                     .head_dim = 4,
                                     .ring_capacity = 6,
                                     .window = 4,
                                     .max_rows = 3,
                                     .rms_eps = 1e-6,
                                     .rope_theta = 1e7};
  cr_assert_eq(config.layer->config_check(&config, &err), LS_OK, "%s", err.text);
  return config;
}

Test(wire, a_config_comes_whole_with_what_is_derived_from_it) {
  line l = connected();
  ls_error err = {LS_OK, ""};
  ls_config came;
  const ls_config config = small_config();
  ls_wire_put_config(l.a, &config);
  ls_wire_flush(l.a);
  cr_expect_eq(ls_wire_get_config(l.b, &came, &err), LS_OK, "%s", err.text);
  cr_expect_eq(came.layer, config.layer);
  cr_expect_eq(came.act, config.act);
  cr_expect_arr_eq(&came.dflash, &config.dflash, sizeof config.dflash);
  disconnected(&l);
}

Test(wire, a_layer_or_field_of_another_build_is_named) {
  line l = connected();
  ls_error err = {LS_OK, ""}, other = {LS_OK, ""};
  ls_config came;
  ls_wire_put_text(l.a, "mamba");
  ls_wire_flush(l.a);
  cr_expect_eq(ls_wire_get_config(l.b, &came, &err), LS_UNAVAILABLE);
  cr_expect_not_null(strstr(err.text, "layer mamba is not known"), "%s", err.text);
  ls_wire_put_text(l.a, "dflash_context_kv");
  ls_wire_put_int(l.a, LS_BF16);
  ls_wire_put_int(l.a, 1);
  ls_wire_put_text(l.a, "groups");
  ls_wire_flush(l.a);
  cr_expect_eq(ls_wire_get_config(l.b, &came, &other), LS_UNAVAILABLE);
  cr_expect_not_null(strstr(other.text, "config field groups of layer dflash_context_kv is not known"), "%s", other.text);
  disconnected(&l);
}

Test(wire, a_trace_comes_dense_and_a_step_without_what_it_is_expected_to_come_to) {
  line l = connected();
  ls_error err = {LS_OK, ""};
  ls_trace *trace = NULL;
  ls_tensor t;
  cr_assert_eq(ls_trace_new(&trace, "input", &err), LS_OK);
  cr_assert_eq(ls_trace_add(trace, "whole", LS_BF16, 2, (int64_t[]){3, 4}, &t, &err), LS_OK);
  for (int64_t i = 0; i < 12; i++) ls_tensor_set(&t, i, (double)i);
  const ls_tensor column = ls_tensor_slice(&t, 1, 2, 1); /* strided */
  cr_assert_eq(ls_trace_add_view(trace, "column", &column, &err), LS_OK);
  const ls_step step = {.number = 7, .op = LS_OP_DRAFT_WRITE, .base = 5, .rows = 3, .cursor = 99, .expect_refused = true, .in = trace};
  cr_expect_eq(ls_wire_put_step(l.a, &step, &err), LS_OK, "%s", err.text);
  ls_wire_flush(l.a);
  ls_step came;
  cr_expect_eq(ls_wire_get_step(l.b, &came, &err), LS_OK, "%s", err.text);
  cr_expect(came.number == 7 && came.op == LS_OP_DRAFT_WRITE && came.base == 5 && came.rows == 3);
  cr_expect(came.cursor == -1 && !came.expect_refused && came.expect == NULL);
  cr_expect(ls_tensor_same_bytes(ls_trace_tensor(came.in, "whole"), &t));
  cr_expect(ls_tensor_same_bytes(ls_trace_tensor(came.in, "column"), &column));
  ls_trace_free(came.in);
  ls_trace_free(trace);
  disconnected(&l);
}

/* ---- a program that speaks another version ---- */

Test(wire, another_protocol_is_refused_by_its_number) {
  static char out[PLUGIN_OUTPUT];
  char script[256], arguments[512];
  plugin_scratch(script, sizeof script, "newer");
  /* "Lockstep" in a little-endian number, then 99 */
  cr_assert_eq(
      plugin_run(out, "printf '#!/bin/sh\\nprintf \"petskcoL\\\\143\\\\0\\\\0\\\\0\\\\0\\\\0\\\\0\\\\0\" >&3\\n' > %s && chmod +x %s",
                 script, script),
      0, "%s", out);
  snprintf(arguments, sizeof arguments, "verify --path %s:emu " GOLDEN "dflash_refusals.h5", script);
  plugin_expect("none", -1, 4, "serves paths by protocol 99, expected 1", arguments);
  unlink(script);
}
