/* ref_scene: a small dflash_context_kv layer on the reference path, with inputs that depend only on (version, position), so that a test can
 * say what any slot must hold. Every call asserts that it worked unless it returns a status. */
#ifndef REF_SCENE_H
#define REF_SCENE_H

#include "layers/ls_dflash.h"
#include "layers/ls_path.h"

typedef struct {
  ls_config config;
  ls_trace *weights;
  void *path;
  ls_error err; /* of the last call that returns a status */
} scene;

ls_dflash_config scene_shape(void); /* small, no size a power of two or a multiple of a block */

/* Seeded weights: GEMM weights of the activation type, norm weights around 1 (bf16, f16 and f32 in turn). */
scene scene_open(const ls_dflash_config *shape, ls_dtype act, ls_precision precision);
void scene_close(scene *s);
ls_trace *scene_weights(const ls_config *config);

/* The inputs of operations: row p of version v is the same whatever is asked for with it. Free with ls_trace_free. */
ls_trace *scene_capture_input(const scene *s, int64_t base, int64_t rows, int version);
ls_trace *scene_draft_input(const scene *s, int64_t base, int64_t rows, int version);

ls_status scene_capture(scene *s, int64_t base, int64_t rows, int version);
ls_status scene_draft(scene *s, int64_t base, int64_t rows, int version);
ls_status scene_write(scene *s, int64_t rows, const ls_trace *given, ls_trace *out, bool out_rings);
ls_status scene_rewind(scene *s, int64_t position);

void scene_reset(scene *s);            /* to the start */
ls_trace *scene_state(const scene *s); /* free with ls_trace_free */
void scene_load(scene *s, const ls_trace *state);
int64_t scene_integer(const ls_trace *state, const char *name);
ls_trace *scene_trace(void); /* an empty one */

/* All tensors of a are in b with the same bytes. */
bool scene_same(const ls_trace *a, const ls_trace *b);

/* The bytes of one slot of ring ("k_ring", "v_ring") in one drafter layer: [kv_dim]. */
ls_tensor scene_slot(const ls_trace *state, const char *ring, int64_t layer, int64_t slot);

#endif
