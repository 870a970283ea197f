#include "ls_attn.h"

#include <string.h>

typedef long long ll;

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

bool ls_attn_is_kv_source(const ls_attn_config *config, int64_t layer) { return config->is_kv_source[layer] != 0; }
bool ls_attn_is_index_source(const ls_attn_config *config, int64_t layer) { return config->is_index_source[layer] != 0; }

bool ls_attn_is_masked(const ls_attn_config *config, int64_t layer) {
  return ls_attn_is_index_source(config, layer) && config->candidate_source_layer >= 0 && layer > config->candidate_source_layer;
}

int64_t ls_attn_cache_rows(const ls_attn_config *config, int64_t layer) {
  const int64_t ratio = config->compress_ratio[layer];
  return ratio > 0 ? config->max_seq_len / ratio : 0;
}

/* Everything that does not depend on what is published. */
static void plan_of(const ls_attn_config *c, const ls_step *step, ls_attn_plan *p) {
  const int64_t layer = step->layer, start = step->start_pos, m = step->rows, ratio = c->compress_ratio[layer];
  *p = (ls_attn_plan){.layer = layer, .start_pos = start, .m = m, .ratio = ratio, .compress_cache = -1, .index_cache = -1};
  p->kv_source = ls_attn_is_kv_source(c, layer);
  p->index_source = ls_attn_is_index_source(c, layer);
  p->candidate_source = c->candidate_source_layer == layer;
  p->masked = ls_attn_is_masked(c, layer);
  p->rows_a = start == 0 ? m : c->window_size;
  p->wk = start == 0 ? smaller(m, c->window_size) : c->window_size;
  if (ratio == 0) return;
  p->n = (start + m) / ratio;
  p->k = smaller(c->index_topk, p->n);
  p->first_row = start / ratio;
  if (p->kv_source) p->g = p->n - p->first_row;
}

void ls_attn_plan_shapes(const ls_attn_config *config, const ls_step *step, ls_attn_plan *plan) {
  memset(plan, 0, sizeof *plan);
  const bool sound = step->layer >= 0 && step->layer < config->n_layers && step->rows >= 1 && step->start_pos >= 0 &&
                     step->rows <= config->max_seq_len && step->start_pos <= config->max_seq_len - step->rows;
  if (sound) plan_of(config, step, plan);
}

ls_status ls_attn_decide(const ls_attn_config *c, const ls_attn_state *state, const ls_step *step, ls_attn_plan *plan, ls_attn_state *next,
                         ls_error *err) {
  const int64_t layer = step->layer, start = step->start_pos, m = step->rows;
  if (!(layer >= 0 && layer < c->n_layers))
    return ls_fail(err, LS_REFUSED, "layer: expected 0 .. %lld, found %lld", (ll)c->n_layers - 1, (ll)layer);
  if (!(m >= 1 && m <= c->max_tokens))
    return ls_fail(err, LS_REFUSED, "rows of x: expected 1 .. max_tokens = %lld, found %lld", (ll)c->max_tokens, (ll)m);
  if (start < 0) return ls_fail(err, LS_REFUSED, "start_pos: expected at least 0, found %lld", (ll)start);
  if (!(m <= c->max_seq_len && start <= c->max_seq_len - m))
    return ls_fail(err, LS_REFUSED, "start_pos + m: expected at most max_seq_len = %lld, found %lld + %lld", (ll)c->max_seq_len, (ll)start,
                   (ll)m);
  if (m > 1 && start > 0)
    return ls_fail(err, LS_REFUSED, "m = %lld at start_pos %lld: more than one token is for start_pos 0 (there is no block decode)", (ll)m,
                   (ll)start);

  plan_of(c, step, plan);
  *next = *state;
  if (plan->ratio == 0) return LS_OK;

  if (plan->kv_source) {
    next->compress_source = layer;
    if (c->index_keys == LS_INDEX_KEYS_OWN || plan->g > 0) next->index_source = layer;
  }
  if (next->compress_source < 0) return ls_fail(err, LS_REFUSED, "layer %lld reads compressed rows, and none were published", (ll)layer);
  if (c->compress_ratio[next->compress_source] != plan->ratio)
    return ls_fail(err, LS_REFUSED, "layer %lld reads rows of ratio %lld, and the published ones of layer %lld are of ratio %lld",
                   (ll)layer, (ll)plan->ratio, (ll)next->compress_source, (ll)c->compress_ratio[next->compress_source]);
  if (plan->n > 0) plan->compress_cache = next->compress_source;

  if (!plan->index_source) {
    if (state->topk_rows == 0) return ls_fail(err, LS_REFUSED, "layer %lld reads a selection, and none was published", (ll)layer);
    if (state->topk_rows != m || state->topk_start != start)
      return ls_fail(err, LS_REFUSED, "layer %lld reads a selection for %lld rows at %lld, and the published one is for %lld rows at %lld",
                     (ll)layer, (ll)m, (ll)start, (ll)state->topk_rows, (ll)state->topk_start);
    if (state->topk_width > plan->n)
      return ls_fail(err, LS_REFUSED, "layer %lld sees %lld compressed rows, and the published selection holds %lld", (ll)layer,
                     (ll)plan->n, (ll)state->topk_width);
    plan->k = state->topk_width;
    return LS_OK;
  }

  if (plan->n > 0) {
    if (next->index_source < 0) return ls_fail(err, LS_REFUSED, "layer %lld reads index keys, and none were published", (ll)layer);
    if (plan->n > ls_attn_cache_rows(c, next->index_source))
      return ls_fail(err, LS_REFUSED, "layer %lld reads %lld index keys, and the published cache of layer %lld has %lld", (ll)layer,
                     (ll)plan->n, (ll)next->index_source, (ll)ls_attn_cache_rows(c, next->index_source));
    plan->index_cache = next->index_source;
  }
  if (plan->masked) {
    if (state->candidate_rows == 0)
      return ls_fail(err, LS_REFUSED, "layer %lld selects inside the candidates, and none were published", (ll)layer);
    if (state->candidate_rows != m || state->candidate_start != start || state->candidate_width != plan->n)
      return ls_fail(err, LS_REFUSED,
                     "layer %lld needs candidates for %lld rows at %lld of width %lld, and the published ones are for %lld rows at %lld of "
                     "width %lld",
                     (ll)layer, (ll)m, (ll)start, (ll)plan->n, (ll)state->candidate_rows, (ll)state->candidate_start,
                     (ll)state->candidate_width);
  }
  next->topk_rows = m;
  next->topk_width = plan->k;
  next->topk_start = start;
  if (plan->candidate_source) {
    next->candidate_rows = m;
    next->candidate_width = plan->n;
    next->candidate_start = start;
  }
  return LS_OK;
}

int64_t ls_attn_group_position(const ls_attn_plan *plan, int64_t j) { return (plan->first_row + j) * plan->ratio; }

int64_t ls_attn_visible(const ls_attn_plan *plan, int64_t t) { return plan->ratio > 0 ? (plan->start_pos + t + 1) / plan->ratio : 0; }

int64_t ls_attn_row_of_slot(const ls_attn_config *config, const ls_attn_plan *plan, int64_t slot) {
  const int64_t window = config->window_size;
  const int64_t last = plan->start_pos + plan->m - 1; /* newest position */
  const int64_t position = last - ((last - slot) % window + window) % window;
  return position >= plan->start_pos ? position - plan->start_pos : -1;
}

const ls_int_attribute ls_attn_published[LS_ATTN_PUBLISHED] = {
    {"compress_source", offsetof(ls_attn_state, compress_source), -1},
    {"index_source", offsetof(ls_attn_state, index_source), -1},
    {"topk_rows", offsetof(ls_attn_state, topk_rows), 0},
    {"topk_width", offsetof(ls_attn_state, topk_width), 0},
    {"topk_start", offsetof(ls_attn_state, topk_start), 0},
    {"candidate_rows", offsetof(ls_attn_state, candidate_rows), 0},
    {"candidate_width", offsetof(ls_attn_state, candidate_width), 0},
    {"candidate_start", offsetof(ls_attn_state, candidate_start), 0},
};

void ls_attn_state_start(ls_attn_state *state) { *state = (ls_attn_state){.compress_source = -1, .index_source = -1}; }

static ls_status check_source(const ls_attn_config *c, const char *name, int64_t layer, ls_error *err) {
  if (layer == -1) return LS_OK;
  if (!(layer >= 0 && layer < c->n_layers)) {
    return ls_fail(err, LS_BAD_FIXTURE, "%s: expected -1 or a layer, 0 .. %lld, found %lld", name, (ll)c->n_layers - 1, (ll)layer);
  }
  if (!ls_attn_is_kv_source(c, layer))
    return ls_fail(err, LS_BAD_FIXTURE, "%s: expected -1 or a kv source, found layer %lld, which is none", name, (ll)layer);
  return LS_OK;
}

/* A published tensor [rows, width] of a step at `start`. */
static ls_status check_published(const ls_attn_config *c, const char *name, int64_t rows, int64_t width, int64_t start, int64_t widest,
                                 ls_error *err) {
  const bool sound = rows >= 0 && rows <= c->max_tokens && width >= 0 && width <= widest && start >= 0 && start <= c->max_seq_len - rows;
  if (sound) return LS_OK;
  return ls_fail(err, LS_BAD_FIXTURE, "%s: expected at most [%lld, %lld] within max_seq_len, found [%lld, %lld] at start_pos %lld", name,
                 (ll)c->max_tokens, (ll)widest, (ll)rows, (ll)width, (ll)start);
}

ls_status ls_attn_state_check(const ls_attn_config *config, const ls_attn_state *state, ls_error *err) {
  if (!(state->position >= 0 && state->position <= config->max_seq_len))
    return ls_fail(err, LS_BAD_FIXTURE, "position: expected 0 .. max_seq_len = %lld, found %lld", (ll)config->max_seq_len,
                   (ll)state->position);
  LS_TRY(check_source(config, "compress_source", state->compress_source, err));
  LS_TRY(check_source(config, "index_source", state->index_source, err));
  LS_TRY(check_published(config, "topk_idxs", state->topk_rows, state->topk_width, state->topk_start, config->index_topk, err));
  return check_published(config, "candidates", state->candidate_rows, state->candidate_width, state->candidate_start, config->max_seq_len,
                         err);
}
