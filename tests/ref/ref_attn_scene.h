/* ref_attn_scene: a small attn_v41 stack of all six roles on the reference path, with inputs that depend only on (layer, position), so that
 * a test can say what any slot or cache row must hold. Every call asserts that it worked unless it returns a status. */
#ifndef REF_ATTN_SCENE_H
#define REF_ATTN_SCENE_H

#include "layers/ls_attn.h"
#include "layers/ls_path.h"
#include "ref_scene.h"

/* The layers by role; RATIO is that of the first three that compress. */
enum { PLAIN, POOLER, POOL_READER, SOURCE, READER, MASKED, LAYERS };
enum { RATIO = 3, WINDOW = 7, TOPK = 5, BLOCK = 2, BLOCKS = 3, MAX_TOKENS = 24, MAX_SEQ = 64, HEADS = 4, HEAD_DIM = 64 };

typedef struct {
  ls_config config;
  ls_trace *weights;
  void *path;
  ls_precision precision;
  ls_error err; /* of the last call that returns a status */
} attn_scene;

ls_attn_config attn_scene_shape(ls_index_keys index_keys);
attn_scene attn_scene_open(ls_index_keys index_keys, ls_precision precision);
void attn_scene_reopen(attn_scene *s); /* after a change of s->weights; the state is the start */
void attn_scene_close(attn_scene *s);

/* x [m, dim] at positions start .. start + m - 1 of one layer. Free with ls_trace_free. */
ls_trace *attn_scene_input(const attn_scene *s, int64_t layer, int64_t start, int64_t m);

ls_status attn_scene_try(attn_scene *s, int64_t layer, int64_t start, int64_t m, const ls_trace *in, const ls_trace *given, ls_trace *out);
/* The same with the scene's own input; the stages, free with ls_trace_free. */
ls_trace *attn_scene_forward(attn_scene *s, int64_t layer, int64_t start, int64_t m, const ls_trace *given);

/* Every layer in order; out[layer], or NULL where they are not asked for. */
void attn_scene_round(attn_scene *s, int64_t start, int64_t m, ls_trace *out[LAYERS]);
void attn_scene_free(ls_trace *out[LAYERS]);

void attn_scene_load(attn_scene *s, const ls_trace *state); /* NULL: the start */
ls_trace *attn_scene_state(const attn_scene *s);
/* A tensor of one layer; NULL where the state has none. */
const ls_tensor *attn_scene_of(const ls_trace *state, int64_t layer, const char *what);

/* Whether any element is NaN. */
bool attn_scene_has_nan(const ls_tensor *t);

#endif
