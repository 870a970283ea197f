/* lockstep/plugin.h: what a shared library exports to be a path of `lockstep verify --path ./libmine.so`. This header is all it needs: it
 * includes nothing of Lockstep, and a library has no symbol of Lockstep to resolve. docs/bring-your-own-kernel.md is the guide.
 *
 * The library exports one function, lockstep_plugin_entry, and runs in a process of its own: a crash or a hang in it ends that process, not
 * the run. Every tensor is row-major, dense, in host memory; what it is handed is its process's own copy. One thread calls.
 *
 * Legal order of calls: lockstep_plugin_entry; open; then step, save, load, stage_kind, describe in any order; close. One context a
 * process.
 *
 * What each operation, stage and tensor of a state is called and what it holds: docs/layers.md, and the lists at lockstep_step and
 * lockstep_plugin.save here. */
#ifndef LOCKSTEP_PLUGIN_H
#define LOCKSTEP_PLUGIN_H

#include <stdint.h>
#include <string.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Moves when a library that was built for an earlier one can no longer be called. Structs of this header grow only at their ends, which
 * does not move it: `size` says how much of one is there. */
#define LOCKSTEP_PLUGIN_ABI 1u

#if defined(_WIN32)
#define LOCKSTEP_EXPORT __declspec(dllexport)
#else
#define LOCKSTEP_EXPORT __attribute__((visibility("default")))
#endif

enum { LOCKSTEP_BF16 = 0, LOCKSTEP_F16 = 1, LOCKSTEP_F32 = 2, LOCKSTEP_F64 = 3, LOCKSTEP_I32 = 4, LOCKSTEP_I64 = 5, LOCKSTEP_U8 = 6 };

/* What a call returns. A refusal is a result: every byte of state is as it was. The two below end the run of the fixture. */
enum {
  LOCKSTEP_OK = 0,
  LOCKSTEP_REFUSED = 1,
  LOCKSTEP_UNAVAILABLE = 2, /* open: this layer, config or device is not supported here: exit 4 */
  LOCKSTEP_FAILED = 3       /* out of memory, a failed device call: exit 5 */
};

/* What a stage of a step is on this path. */
enum {
  LOCKSTEP_STAGE_OWN = 0,    /* computed here and recorded */
  LOCKSTEP_STAGE_FUSED = 1,  /* never exists by itself: not recorded, and judged with the stage that ends its group */
  LOCKSTEP_STAGE_SHARED = 2, /* recorded, but computed by code that the reference uses too: its agreement proves nothing, and says so */
  LOCKSTEP_STAGE_ABSENT = 3  /* this step has no such stage */
};

enum { LOCKSTEP_MAX_DIMS = 4 };

typedef struct lockstep_tensor {
  const char *name;
  int32_t dtype, ndim;
  int64_t dim[LOCKSTEP_MAX_DIMS]; /* unused trailing ones are 1 */
  const void *data;
} lockstep_tensor;

typedef struct lockstep_tensors {
  const lockstep_tensor *tensor;
  int64_t n;
} lockstep_tensors;

/* A config field of the layer (layers.md). integer: of a word, its index in the order of layers.md. */
typedef struct lockstep_field {
  const char *name;
  int64_t n;              /* values; 1 but for lists */
  const int64_t *integer; /* NULL: a real number */
  double real;
} lockstep_field;

/* What open is given; good until close. */
typedef struct lockstep_setup {
  uint32_t size;
  int32_t act;       /* activation type: LOCKSTEP_BF16 or LOCKSTEP_F16 */
  const char *layer; /* "dflash_context_kv", "attn_v41" */
  const lockstep_field *field;
  int64_t n_fields;
  lockstep_tensors weights; /* as stored: GEMM weights in the activation type, norm weights bf16, f16 or f32 */
  int32_t device;           /* --device */
} lockstep_setup;

/* One operation. in: "capture" [rows, fc_in] | "k", "v" [layers, rows, kv_dim] | "x" [rows, dim], in the activation type; empty where the
 * operation has no input, and where it has to be refused. What the step is expected to come to is not told. */
typedef struct lockstep_step {
  uint32_t size;
  const char *op;                                 /* "capture", "draft_write", "context_write", "rewind", "forward" */
  int64_t number;                                 /* of the step in the fixture, for messages */
  int64_t base, rows, position, layer, start_pos; /* where the op has them, else 0 */
  lockstep_tensors in;
} lockstep_step;

typedef struct lockstep_out lockstep_out;     /* tensors that a call hands back */
typedef struct lockstep_error lockstep_error; /* one line on what went wrong */

/* What Lockstep offers; good as long as the library is loaded. */
typedef struct lockstep_host {
  uint32_t abi, size;

  /* Room for a tensor of this name, to be filled before the call returns; poisoned, 64-byte aligned, with guard bands around it that are
   * looked at after the call. NULL: not possible, and the call has failed whatever it returns. */
  void *(*add)(lockstep_out *out, const char *name, int32_t dtype, int32_t ndim, const int64_t *dim);

  /* Notes why a call returns something else than LOCKSTEP_OK (printf's format); returns status. The first note stays. */
  int32_t (*fail)(lockstep_error *error, int32_t status, const char *format, ...);
} lockstep_host;

typedef struct lockstep_plugin {
  uint32_t abi;     /* LOCKSTEP_PLUGIN_ABI */
  uint32_t size;    /* sizeof(lockstep_plugin) */
  const char *name; /* what it calls itself, for messages; NULL is fine */

  int32_t (*open)(void **ctx, const lockstep_host *host, const lockstep_setup *setup, lockstep_error *error);

  /* Runs one operation.
   * out: NULL runs the production form, without a record; else every stage that this path computes is added to it under the name, and in
   * the shape, of layers.md. Rings are not recorded: save has them.
   * given: NULL: a stage reads what this path computed before it. Else it reads those of its inputs that `given` holds from there; a stage
   * that is fused away reads the inputs of its group. attn_v41: a stage that `given` holds is computed and recorded, then replaced by
   * `given`'s before anything reads or stores it. */
  int32_t (*step)(void *ctx, const lockstep_step *step, const lockstep_tensors *given, lockstep_out *out, lockstep_error *error);

  /* The whole state, and back: dflash_context_kv: k_ring, v_ring [layers, ring_capacity, kv_dim], capture [max_rows, fc_in], all in the
   * activation type; cursor, capture_base, capture_rows [1] i64. attn_v41: the list in layers/ls_path.h. load takes what is absent as zero,
   * and may be handed any float type. */
  int32_t (*save)(void *ctx, lockstep_out *state, lockstep_error *error);
  int32_t (*load)(void *ctx, const lockstep_tensors *state, lockstep_error *error);

  int32_t (*stage_kind)(void *ctx, const lockstep_step *step, const char *stage);

  const char *(*describe)(void *ctx); /* one line on what runs: "my kernels on an H200"; NULL instead of a function is fine */

  void (*close)(void *ctx);
} lockstep_plugin;

/* The one exported symbol. abi: the LOCKSTEP_PLUGIN_ABI of the caller. Returns the library's own table, or NULL where it knows none that
 * suits the caller. */
LOCKSTEP_EXPORT const lockstep_plugin *lockstep_plugin_entry(uint32_t abi);

/* ---- looking things up by name ---- */

static inline const lockstep_tensor *lockstep_find(const lockstep_tensors *set, const char *name) {
  for (int64_t i = 0; set != NULL && i < set->n; i++)
    if (strcmp(set->tensor[i].name, name) == 0) return &set->tensor[i];
  return NULL;
}

static inline const lockstep_field *lockstep_field_of(const lockstep_setup *setup, const char *name) {
  for (int64_t i = 0; i < setup->n_fields; i++)
    if (strcmp(setup->field[i].name, name) == 0) return &setup->field[i];
  return NULL;
}

/* 0 where the layer has no such field. */
static inline int64_t lockstep_int(const lockstep_setup *setup, const char *name) {
  const lockstep_field *f = lockstep_field_of(setup, name);
  return f != NULL && f->integer != NULL && f->n > 0 ? f->integer[0] : 0;
}

static inline double lockstep_real(const lockstep_setup *setup, const char *name) {
  const lockstep_field *f = lockstep_field_of(setup, name);
  return f != NULL ? f->real : 0;
}

#ifdef __cplusplus
}
#endif
#endif
