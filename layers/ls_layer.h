/* ls_layer: what a layer is, as data: its config fields, the tensors it needs, its stages with their bounds. No arithmetic of the layer
 * itself lives here; that is ref/ and gpu/, which never see each other.
 *
 * Stage names, formulas and shapes are those of layers.md (the contract); docs/layers.md repeats what a reader needs. */
#ifndef LS_LAYER_H
#define LS_LAYER_H

#include "../core/ls_trace.h"

#ifdef __cplusplus
extern "C" {
#endif

enum { LS_NAME_MAX = 64, LS_MAX_STAGES = 48, LS_MAX_INPUTS = 6 };

/* ---- configs ---- */

typedef struct {
  int64_t hidden, aux_count, layers, num_kv_heads, head_dim, ring_capacity, window, max_rows;
  double rms_eps, rope_theta;
  int64_t kv_dim; /* derived: num_kv_heads * head_dim */
  int64_t fc_in;  /* derived: aux_count * hidden */
} ls_dflash_config;

typedef struct ls_layer ls_layer;

typedef struct {
  const ls_layer *layer;
  ls_dtype act; /* activation type: LS_BF16 or LS_F16 */
  union {
    ls_dflash_config dflash;
  };
} ls_config;

typedef enum { LS_FIELD_INT, LS_FIELD_FLOAT } ls_field_kind;

typedef struct {
  const char *name; /* attribute of /config */
  ls_field_kind kind;
  size_t offset; /* into ls_config, of an int64_t or a double */
} ls_field;

/* ---- steps ---- */

typedef enum { LS_OP_CAPTURE, LS_OP_DRAFT_WRITE, LS_OP_CONTEXT_WRITE, LS_OP_REWIND, LS_OPS } ls_op;

const char *ls_op_name(ls_op op); /* the `op` attribute: "capture", "draft_write", "context_write", "rewind" */

typedef struct {
  int64_t number; /* of the group /steps/<NNNN> */
  ls_op op;
  int64_t base, rows, position; /* where the op has them, else 0 */
  bool expect_refused;          /* status = refused */
  int64_t cursor;               /* dflash: expected value after the step; -1 where unknown */
  ls_trace *in;                 /* "capture" | "k", "v" | empty. NULL until loaded */
  ls_trace *expect;             /* expected stages, origin "golden". NULL until loaded; may be empty */
} ls_step;

/* ---- tensors a layer asks for ---- */

enum { LS_MAX_SPEC_NAME = 96 };

typedef struct {
  char name[LS_MAX_SPEC_NAME]; /* relative to its group: "layers/3/k_proj" */
  int ndim;
  int64_t dim[LS_MAX_DIMS];
  unsigned dtypes; /* set of 1u << ls_dtype */
  bool required;
} ls_tensor_spec;

typedef struct {
  ls_tensor_spec *spec;
  int n, room;
} ls_spec_list;

ls_status ls_spec_add(ls_spec_list *list, const char *name, int ndim, const int64_t *dim, unsigned dtypes, bool required, ls_error *err);
void ls_spec_free(ls_spec_list *list);

/* ---- stages ---- */

/* What a bound is evaluated from. One of these covers one step in one mode. */
typedef struct {
  const ls_config *config;
  const ls_trace *weights;
  const ls_step *step;
  const ls_trace *values; /* a full trace of the step, from which stage inputs and outputs are read (the reference's, or golden over it) */
  /* Whether what `stage` may be off by is carried into the stages that read it: always in cascaded mode; in isolated mode only for
   * stages that the judged path fuses away. */
  bool (*carries)(void *arg, const char *stage);
  void *carries_arg;
} ls_bound_args;

/* Adds to `bounds`, under the stage's name and shape, an f32 tensor: the part of the allowed difference that is not counted in steps of
 * the output type, element by element. Total bound of an element = stage->steps * step(max(|a|, |b|)) + that. Reads the bounds of the
 * stages it reads from `bounds` where carries() says so. */
typedef ls_status ls_bound_fn(const ls_bound_args *args, ls_trace *bounds, ls_error *err);

typedef struct {
  const char *name;
  const char *math;                 /* one line, for reports and docs */
  const char *axes;                 /* a word per axis: "layer row channel" */
  const char *input[LS_MAX_INPUTS]; /* stages or step inputs that it reads, NULL-terminated */
  double steps;                     /* rounding steps of the output type in the bound */
  ls_bound_fn *bound;               /* NULL: compared as rings or exactly, see is_ring */
  const char *why;                  /* the bound's formula and reason, one or two lines */
  bool is_ring;                     /* state after the operation, judged slot by slot */
  int head_dim_field;               /* 1: the last axis is heads x head_dim and is reported as (head, channel) */
} ls_stage;

struct ls_layer {
  const char *name;
  const ls_field *fields;
  int n_fields;
  const ls_stage *stages; /* in order of computation */
  int n_stages;

  /* Fills derived fields and refuses a config that layers.md refuses: LS_BAD_FIXTURE, the field named. Every size product that later code
   * forms is checked here against overflow. */
  ls_status (*config_check)(ls_config *config, ls_error *err);

  ls_status (*weight_specs)(const ls_config *config, ls_spec_list *list, ls_error *err);
  ls_status (*input_specs)(const ls_config *config, const ls_step *step, ls_spec_list *list, ls_error *err);
  ls_status (*expect_specs)(const ls_config *config, const ls_step *step, ls_spec_list *list, ls_error *err);
  ls_status (*state_specs)(const ls_config *config, ls_spec_list *list, ls_error *err);
};

extern const ls_layer ls_layer_dflash_context_kv;

/* By the root attribute `layer`; NULL where unknown. */
const ls_layer *ls_layer_find(const char *name);
const ls_stage *ls_stage_find(const ls_layer *layer, const char *name);

/* Names a config "5 layers, hidden 5120, ..." in one line for reports; returns buf. */
char *ls_config_text(char *buf, size_t size, const ls_config *config);

/* dflash_context_kv: what the operations decide on (ls_dflash.h). All zero at the start. */
typedef struct {
  int64_t cursor, capture_base, capture_rows;
} ls_dflash_state;

#ifdef __cplusplus
}
#endif
#endif
