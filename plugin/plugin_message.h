/* plugin_message: the nouns of the flow over a wire: configs, steps, tensors, traces. By name throughout, so that two builds whose tables
 * differ either understand each other or say what the other does not know.
 *
 * The protocol, version LS_WIRE_PROTOCOL. The child begins: HELLO. Then one request, one reply, until CLOSE or the end of the socket. A
 * reply is any number of PROGRESS and then DONE: status, text, and what the request asks for. */
#ifndef LS_PLUGIN_MESSAGE_H
#define LS_PLUGIN_MESSAGE_H

#include "../layers/ls_path.h"
#include "plugin_wire.h"

enum { LS_WIRE_PROTOCOL = 1, LS_WIRE_SOCKET = 3 /* the child's end */ };

#define LS_WIRE_MAGIC ((int64_t)0x4c6f636b73746570) /* "Lockstep" */

typedef enum {
  LS_WIRE_OPEN = 1, /* config, options, threads, weights -> description */
  LS_WIRE_STEP,     /* traced, out_rings, step, given -> kinds and out where it was done and traced */
  LS_WIRE_SAVE,     /* -> state */
  LS_WIRE_LOAD,     /* state */
  LS_WIRE_KIND,     /* step, stage -> kind */
  LS_WIRE_CLOSE
} ls_wire_request;

typedef enum { LS_WIRE_PROGRESS = 1, LS_WIRE_DONE } ls_wire_answer;

/* A tensor's head, and then its elements, dense. */
typedef struct {
  char name[LS_MAX_SPEC_NAME];
  ls_dtype dtype;
  int ndim;
  int64_t dim[LS_MAX_DIMS];
} ls_wire_head;

/* LS_INTERNAL where a tensor lies on a device or memory runs out; the wire's own trouble is the wire's. trace NULL: goes as an empty one.
 */
ls_status ls_wire_put_trace(ls_wire *wire, const ls_trace *trace, ls_error *err);

/* accept: asked before memory is made for a tensor that comes; anything but LS_OK ends the reading with the rest unread. NULL: all are
 * fine. */
typedef ls_status ls_wire_accept(void *arg, const ls_wire_head *head, ls_error *err);
ls_status ls_wire_get_trace(ls_wire *wire, ls_trace *trace, ls_wire_accept *accept, void *arg, ls_error *err);

void ls_wire_put_config(ls_wire *wire, const ls_config *config);
/* Checked by the layer. LS_UNAVAILABLE naming a layer or a field that this build does not know. */
ls_status ls_wire_get_config(ls_wire *wire, ls_config *config, ls_error *err);

/* Without what the step is expected to come to. */
ls_status ls_wire_put_step(ls_wire *wire, const ls_step *step, ls_error *err);
ls_status ls_wire_get_step(ls_wire *wire, ls_step *step,
                           ls_error *err); /* step->in is new, also where it ends badly: the caller frees it */

/* One line for a trouble of the wire that has no better one. */
ls_status ls_wire_status(const ls_wire *wire, ls_error *err);

#endif
