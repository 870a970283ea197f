#include "bench_work.h"

#include "../layers/ls_attn.h"

static double smaller(double a, double b) { return a < b ? a : b; }

/* y [rows, n] = x . W^T: the weights once, twice rows * n * k operations. */
static void product(bench_work *w, double rows, double n, double k, double weight_bytes) {
  w->bytes += weight_bytes * n * k;
  w->flops += 2 * rows * n * k;
}

static bench_work context_write(const ls_dflash_config *d, double rows, int weight_bytes) {
  bench_work w = {0, 0};
  const double act = 2, channels = (double)(2 * d->layers * d->kv_dim);
  product(&w, rows, (double)d->hidden, (double)d->fc_in, weight_bytes);
  product(&w, rows, channels, (double)d->hidden, weight_bytes);
  w.bytes += act * rows * ((double)d->fc_in + channels); /* the capture, and the rings' rows */
  return w;
}

/* Sum over the queries of how many of at most `most` entries each sees, query t seeing per_token * (t + 1) of them: a prefill. */
static double seen(double m, double most, double ratio) {
  double sum = 0;
  for (double t = 0; t < m; t++) sum += smaller(most, (double)(int64_t)((t + 1) / ratio));
  return sum;
}

static bench_work forward(const ls_attn_config *a, const ls_step *step, int weight_bytes) {
  bench_work w = {0, 0};
  ls_attn_plan p;
  ls_attn_plan_shapes(a, step, &p);
  const double act = 2, m = (double)p.m, head = (double)a->head_dim, key = (double)a->index_head_dim, dim = (double)a->dim;
  const double n = (double)p.n, top = smaller((double)a->index_topk, n), prefill = p.start_pos == 0;
  product(&w, m, (double)a->q_lora_rank, dim, weight_bytes);
  product(&w, m, head, dim, weight_bytes);
  product(&w, m, (double)a->q_dim, (double)a->q_lora_rank, weight_bytes);
  product(&w, m, (double)a->o_dim, (double)a->group_dim, weight_bytes);
  product(&w, m, dim, (double)a->o_dim, weight_bytes);
  if (p.kv_source) {
    const int pooled = p.ratio > 1 ? 4 : weight_bytes;
    product(&w, m, p.ratio > 1 ? 2 * head : head, dim, pooled);
    product(&w, (double)p.g, key, head, weight_bytes);
    w.bytes += act * (double)p.g * (head + key); /* new rows of both caches */
  }
  if (p.index_source && p.n > 0) {
    product(&w, m, (double)a->index_q_dim, (double)a->q_lora_rank, weight_bytes);
    product(&w, m, (double)a->index_n_heads, dim, weight_bytes);
    w.bytes += act * n * key;
    w.flops += 2 * (prefill ? seen(m, n, (double)p.ratio) : m * n) * (double)a->index_n_heads * key;
  }
  double entries = prefill ? seen(m, (double)a->window_size, 1) : smaller((double)a->window_size, (double)p.start_pos + 1);
  if (p.ratio > 0) entries += prefill ? seen(m, top, (double)p.ratio) : m * top;
  const double rows = prefill ? m + n : entries; /* of keys that are values too */
  w.bytes += act * (rows * head + 2 * m * dim);
  w.flops += 4 * entries * (double)a->n_heads * head;
  return w;
}

bench_work bench_count_work(const ls_config *config, const ls_step *step, int weight_bytes) {
  const bench_work none = {0, 0};
  if (step->op == LS_OP_CONTEXT_WRITE) return context_write(&config->dflash, (double)step->rows, weight_bytes);
  return step->op == LS_OP_FORWARD ? forward(&config->attn, step, weight_bytes) : none;
}
