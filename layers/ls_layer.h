/* ls_layer: what a layer is, as data: its config fields, the tensors it needs, its stages with their bounds. No arithmetic of the layer
 * itself lives here; that is ref/ and gpu/, which never see each other.
 *
 * Stage names, formulas and shapes are those of docs/layers.md, the contract; comments of the tree call it layers.md. */
#ifndef LS_LAYER_H
#define LS_LAYER_H

#include <stddef.h>

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

enum { LS_ATTN_MAX_LAYERS = 256 };

/* Which keys an owner scores against at a step that makes no latent (layers.md, attn_v41 7). */
typedef enum { LS_INDEX_KEYS_PUBLISHED, LS_INDEX_KEYS_OWN } ls_index_keys;

typedef struct {
  int64_t dim, n_heads, head_dim, rope_head_dim, q_lora_rank, o_lora_rank, o_groups, window_size;
  int64_t index_n_heads, index_head_dim, index_topk, candidate_topk_blocks, candidate_block_size;
  int64_t candidate_source_layer; /* -1: none */
  int64_t original_seq_len, beta_fast, beta_slow, max_seq_len, max_tokens, n_layers;
  double norm_eps, rope_theta, compress_rope_theta, rope_factor;
  int64_t index_keys; /* an ls_index_keys */
  int64_t compress_ratio[LS_ATTN_MAX_LAYERS], is_kv_source[LS_ATTN_MAX_LAYERS], is_index_source[LS_ATTN_MAX_LAYERS];
  int64_t q_dim;       /* derived: n_heads * head_dim */
  int64_t group_dim;   /* derived: q_dim / o_groups */
  int64_t o_dim;       /* derived: o_groups * o_lora_rank */
  int64_t index_q_dim; /* derived: index_n_heads * index_head_dim */
} ls_attn_config;

typedef struct ls_layer ls_layer;

typedef struct {
  const ls_layer *layer;
  ls_dtype act; /* activation type: LS_BF16 or LS_F16 */
  union {
    ls_dflash_config dflash;
    ls_attn_config attn;
  };
} ls_config;

typedef enum {
  LS_FIELD_INT,
  LS_FIELD_FLOAT,
  LS_FIELD_WORD, /* a string, one of `words`; absent: the first. Held as the word's index. */
  LS_FIELD_INTS  /* as many integers as the field at count_offset says, at most `most`. Comes after that field. */
} ls_field_kind;

typedef struct {
  const char *name; /* attribute of /config */
  ls_field_kind kind;
  size_t offset; /* into ls_config, of an int64_t, a double, or int64_t[most] */
  size_t count_offset;
  int64_t most;
  const char *const *words; /* NULL-terminated */
} ls_field;

/* ---- steps ---- */

typedef enum { LS_OP_CAPTURE, LS_OP_DRAFT_WRITE, LS_OP_CONTEXT_WRITE, LS_OP_REWIND, LS_OP_FORWARD, LS_OPS } ls_op;

const char *ls_op_name(ls_op op); /* the `op` attribute: "capture", "draft_write", "context_write", "rewind", "forward" */

/* An integer attribute in a fixture, and where its value goes. */
typedef struct {
  const char *name;
  size_t offset;  /* of an int64_t in an ls_step, an ls_layer_state, or (ls_attn_published) an ls_attn_state */
  int64_t absent; /* of a state: the value where the attribute is not there */
} ls_int_attribute;

/* The attributes of a step of this op beside op, status and cursor; *n of them. */
const ls_int_attribute *ls_op_attributes(ls_op op, int *n);

typedef struct {
  int64_t number; /* of the group /steps/<NNNN> */
  ls_op op;
  int64_t base, rows, position; /* where the op has them, else 0. forward: rows is m, the rows of x (0 where there is no x) */
  int64_t layer, start_pos;     /* forward */
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
  bool partial;   /* dim[0] is a limit: the first rows alone will do, the rest is as at the start */
  bool minus_inf; /* -inf is a value of it, that of a slot where nothing waits */
  int64_t below;  /* indices and masks: values are -1 .. below - 1 (u8: 0 .. below - 1); 0: not said */
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
  /* attn_v41 only. before, after: the reference's state before and after the step (ls_path.h). state_bounds: what the float tensors of
   * `before` may be off by, under the same names and of the same shapes, f32; NULL, or a tensor absent: exact (isolated: both sides start
   * from one state). */
  const ls_trace *before, *after, *state_bounds;
  bool *asked_state; /* set where a bound asks for state_bounds (ls_bound_held); NULL: nobody wants to know */
  bool unrounded;    /* one side is a double reference: what a stage rounds within itself is part of the difference */
} ls_bound_args;

/* Adds to `bounds`, under the stage's name and shape, an f32 tensor: the part of the allowed difference that is not counted in steps of
 * the output type, element by element. Total bound of an element = stage->steps * step(max(|a|, |b|)) + that. Reads the bounds of the
 * stages it reads from `bounds` where carries() says so. */
typedef ls_status ls_bound_fn(const ls_bound_args *args, ls_trace *bounds, ls_error *err);

typedef enum {
  LS_HOLDS_VALUES,    /* floats of the activation type, judged by steps and bound */
  LS_HOLDS_F32,       /* floats that are never rounded to the activation type, likewise */
  LS_HOLDS_INDICES,   /* i32, exact */
  LS_HOLDS_SELECTION, /* i32, judged by the scores that they were chosen by */
  LS_HOLDS_MASK       /* u8, likewise */
} ls_holds;

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
  size_t head_width;                /* where head_dim_field: offset into ls_config of the int64_t that is the width of a head */
  ls_holds holds;
  bool finer; /* an optional record: a path need not have it, and a fixture seldom holds it */
} ls_stage;

/* The type in whose steps a stage is counted. */
ls_dtype ls_stage_type(const ls_config *config, const ls_stage *stage);

/* dflash_context_kv: what the operations decide on (ls_dflash.h). All zero at the start. */
typedef struct {
  int64_t cursor, capture_base, capture_rows;
} ls_dflash_state;

/* attn_v41: what is published (ls_attn.h), without the values. */
typedef struct {
  int64_t position;                          /* where a fixture's /state says it stands; no path uses it */
  int64_t compress_source, index_source;     /* the layer whose cache is published; -1: none */
  int64_t topk_rows, topk_width, topk_start; /* the published selection [rows, width] and the start_pos it was made at; rows 0: none */
  int64_t candidate_rows, candidate_width, candidate_start; /* the published mask, likewise */
} ls_attn_state;

typedef union {
  ls_dflash_state dflash;
  ls_attn_state attn;
} ls_layer_state;

struct ls_layer {
  const char *name;
  unsigned ops;    /* set of 1u << ls_op */
  bool has_cursor; /* every step says the cursor after it */
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

  /* The attributes of /state, offsets into an ls_layer_state, and what may be said of them: LS_BAD_FIXTURE, the attribute named. */
  const ls_int_attribute *state_attributes;
  int n_state_attributes;
  ls_status (*state_check)(const ls_config *config, const ls_layer_state *state, ls_error *err);

  /* What the state after the step may be off by, from that before it (args->state_bounds) and the step's bounds; a new trace of the same
   * form. What is stored of a stage that is not carried is exact: both sides stored the same values. NULL where rows are remembered in
   * another way (dflash: ls_ring_history). */
  ls_status (*state_bounds)(const ls_bound_args *args, const ls_trace *bounds, ls_trace **next, ls_error *err);
};

extern const ls_layer ls_layer_dflash_context_kv;
extern const ls_layer ls_layer_attn_v41;

/* By the root attribute `layer`; NULL where unknown. */
const ls_layer *ls_layer_find(const char *name);
const ls_stage *ls_stage_find(const ls_layer *layer, const char *name);

/* Names a config "5 layers, hidden 5120, ..." in one line for reports; returns buf. */
char *ls_config_text(char *buf, size_t size, const ls_config *config);

#ifdef __cplusplus
}
#endif
#endif
