/* The property "rounding": twins of the reference that leave a rounding of a fused group out, or round once too often, inside every bound;
 * and twins whose values are off by single steps, which it must not mind. */
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

#include "core/ls_numeric.h"
#include "ref/ref_norm.h"
#include "ref/ref_rope.h"
#include "session_run.h"

enum { MOST = 4096 };

/* The file that the twins work on: they need its weights. */
static ls_fixture *file;
static const ls_trace *weights;
static const ls_config *config;

static void open_weights(const char *golden) {
  ls_error err = {LS_OK, ""};
  const ls_fixture_options options = {false, NULL};
  cr_assert_eq(ls_fixture_open(&file, golden, &options, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_fixture_weights(file, &weights, &err), LS_OK, "%s", err.text);
  config = ls_fixture_config(file);
}

static const float *weight_of(int64_t layer, const char *name, int64_t n) {
  static float w[MOST];
  char full[LS_MAX_SPEC_NAME];
  snprintf(full, sizeof full, "layers/%lld/%s", (long long)layer, name);
  const ls_tensor *t = ls_trace_tensor(weights, full);
  cr_assert(t != NULL && ls_tensor_count(t) == n && n <= MOST, "%s", full);
  ls_tensor_to_f32(w, t);
  return w;
}

static void judge(const char *what, const char *golden, const session_lies *lies, const char *verdict, const char *said) {
  char *text = NULL;
  open_weights(golden);
  session_verify(golden, &(session_how){.path = session_cheat(lies)}, &text);
  cr_expect(session_says(text, "rounding", "cheat", verdict), "%s: expected rounding %s:\n%s", what, verdict, text);
  cr_expect(session_says(text, "rounding", "ref", "PASS"), "%s: the reference fails:\n%s", what, text);
  if (said != NULL) cr_expect_not_null(strstr(text, said), "%s: expected '%s' in:\n%s", what, said, text);
  free(text);
  ls_fixture_close(file);
}

static float rounded(ls_dtype type, float v) { return (float)ls_round_to(type, (double)v); }

/* ---- dflash: k_norm, which the twin fuses into k_rope ---- */

static bool twice;

static void fuse(ls_trace *out, const char *stage) {
  ls_record *r = ls_trace_find(out, stage);
  if (r == NULL) return;
  memmove(r, r + 1, (size_t)(out->rec + --out->n - r) * sizeof *r);
}

/* k_rope of what was given of k_proj. */
static void make_k_rope(const ls_trace *given, const ls_tensor *to, int64_t base) {
  const ls_tensor *from = ls_trace_tensor(given, "k_proj");
  const int64_t dim = config->dflash.head_dim, width = from->dim[2];
  float freq[MOST], cosine[MOST], sine[MOST], ones[MOST], x[MOST];
  ls_ref_rope_freq(freq, dim, config->dflash.rope_theta);
  for (int64_t i = 0; i < dim; i++) ones[i] = 1;
  for (int64_t l = 0; l < from->dim[0]; l++) {
    const float *w = weight_of(l, "k_norm", dim);
    for (int64_t row = 0; row < from->dim[1]; row++) {
      const ls_tensor in = ls_tensor_slice(from, 0, l, 1), in_row = ls_tensor_slice(&in, 1, row, 1);
      const ls_tensor out = ls_tensor_slice(to, 0, l, 1), out_row = ls_tensor_slice(&out, 1, row, 1);
      const ls_tensor c = ls_tensor_make(LS_F32, 2, (const int64_t[]){1, dim / 2}, cosine);
      const ls_tensor s = ls_tensor_make(LS_F32, 2, (const int64_t[]){1, dim / 2}, sine);
      ls_ref_rope_table(&c, &s, freq, base + row);
      ls_tensor_to_f32(x, &in_row);
      for (int64_t head = 0; head < width; head += dim) {
        ls_ref_rms_norm_f32(x + head, x + head, twice ? ones : w, dim, (float)config->dflash.rms_eps);
        for (int64_t i = 0; twice && i < dim; i++) x[head + i] = rounded(config->act, rounded(config->act, x[head + i]) * w[i]);
        ls_ref_rope_neox_f32(x + head, cosine, sine, dim);
      }
      ls_tensor_from_f32(&out_row, x);
    }
  }
}

static void fused_k_norm(const ls_step *step, const ls_trace *given, ls_trace *out) {
  fuse(out, "k_norm");
  const ls_tensor *to = ls_trace_tensor(out, "k_rope");
  if (given != NULL && to != NULL && ls_trace_find(given, "k_proj") != NULL) make_k_rope(given, to, step->base);
}

Test(rounding, a_norm_that_stays_in_float32_until_it_is_rotated_is_named) {
  twice = false;
  judge("k_norm", GOLDEN "dflash_rounds.h5", &(session_lies){.record = fused_k_norm, .fused = "k_norm"}, "FAIL",
        "looks as if k_norm were not rounded to bf16 before k_rope");
  judge("k_norm", GOLDEN "dflash_f16.h5", &(session_lies){.record = fused_k_norm, .fused = "k_norm"}, "FAIL",
        "looks as if k_norm were not rounded to f16 before k_rope");
}

Test(rounding, a_fused_norm_that_rounds_before_its_weight_is_named) {
  twice = true;
  judge("k_norm twice", GOLDEN "dflash_rounds.h5", &(session_lies){.record = fused_k_norm, .fused = "k_norm"}, "FAIL",
        "looks as if k_norm were rounded to bf16 before the weight, too");
}

/* ---- attn: a stage by itself ---- */

static void qr_twice(const ls_step *step, const ls_trace *given, ls_trace *out) {
  const ls_tensor *from = ls_trace_tensor(given, "qr_proj"), *to = ls_trace_tensor(out, "qr");
  if (from == NULL || to == NULL) return;
  const int64_t n = from->dim[1];
  const float *w = weight_of(step->layer, "q_norm", n);
  float ones[MOST], x[MOST];
  for (int64_t i = 0; i < n; i++) ones[i] = 1;
  for (int64_t row = 0; row < from->dim[0]; row++) {
    const ls_tensor in = ls_tensor_at(from, row), stored = ls_tensor_at(to, row);
    ls_tensor_to_f32(x, &in);
    ls_ref_rms_norm_f32(x, x, ones, n, (float)config->attn.norm_eps);
    for (int64_t i = 0; i < n; i++) x[i] = rounded(LS_BF16, x[i]) * w[i];
    ls_tensor_from_f32(&stored, x);
  }
}

Test(rounding, a_norm_that_rounds_before_its_weight_is_named) {
  judge("qr twice", GOLDEN "attn_v41_single_token.h5", &(session_lies){.record = qr_twice}, "FAIL",
        "looks as if qr were rounded to bf16 before the weight, too");
}

/* ---- what is no fault of rounding ---- */

/* Every seventh value is one step further from zero: more than another order of sums ever does. */
static void single_flips(const ls_step *step, const ls_trace *given, ls_trace *out) {
  static const char *const stages[] = {"ctx_normed", "k_rope", "qr", "kv", "latent", "index_k", "index_q", "compress_kv", "index_score"};
  (void)step;
  for (size_t k = 0; given != NULL && k < sizeof stages / sizeof *stages; k++) {
    const ls_tensor *t = ls_trace_tensor(out, stages[k]);
    for (int64_t i = 0; t != NULL && i < ls_tensor_count(t); i += 7) {
      const double v = ls_tensor_get(t, i);
      if (isfinite(v) && v != 0) ls_tensor_set(t, i, v + copysign(ls_step_at(t->dtype, v), v));
    }
  }
}

Test(rounding, values_that_are_single_steps_off_pass) {
  judge("flips", GOLDEN "dflash_rounds.h5", &(session_lies){.record = single_flips}, "PASS", NULL);
  judge("flips", GOLDEN "attn_v41_single_token.h5", &(session_lies){.record = single_flips}, "PASS", NULL);
}

Test(rounding, an_honest_twin_passes) {
  judge("honest", GOLDEN "dflash_rounds.h5", &(session_lies){.fused = NULL}, "PASS", NULL);
  judge("honest", GOLDEN "attn_v41_mid.h5", &(session_lies){.fused = NULL}, "PASS", NULL);
}
