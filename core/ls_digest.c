#include "ls_digest.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <xxhash.h>

#include "ls_random.h"
#include "ls_shortage.h"

enum { MAX_NAME = 128 };

uint64_t ls_hash_bytes(const void *bytes, size_t n, uint64_t seed) { return XXH3_64bits_withSeed(bytes, n, seed); }

ls_status ls_digest_scratch_new(ls_digest_scratch *scratch, int64_t width, ls_error *err) {
  scratch->bits = ls_shortage_unless(malloc((size_t)width * sizeof(double) + 1));
  scratch->wide = ls_shortage_unless(malloc((size_t)width * sizeof(double) + 1));
  if (scratch->bits != NULL && scratch->wide != NULL) return LS_OK;
  ls_digest_scratch_free(scratch);
  return ls_fail(err, LS_INTERNAL, "out of memory for the digest of a row of %lld", (long long)width);
}

void ls_digest_scratch_free(ls_digest_scratch *scratch) {
  free(scratch->bits);
  free(scratch->wide);
  scratch->bits = NULL;
  scratch->wide = NULL;
}

double ls_digest_sign(int64_t i) { return ls_splitmix64_at(0x6c6f636b73746570u, (uint64_t)i) >> 63 != 0 ? -1 : 1; }

/* The one NaN and the one zero of a type. */
static double plain(double v) { return isnan(v) ? (double)NAN : v == 0 ? 0.0 : v; }

static void tell(double stat[LS_DIGEST_STATS], int64_t i, double v) {
  if (isfinite(v)) {
    stat[LS_DIGEST_FINITE]++;
    stat[LS_DIGEST_SUM] += v;
    stat[LS_DIGEST_SUM_SQUARES] += v * v;
    stat[LS_DIGEST_MIX] += ls_digest_sign(i) * v;
    if (v < stat[LS_DIGEST_LEAST]) stat[LS_DIGEST_LEAST] = v;
    if (v > stat[LS_DIGEST_LARGEST]) stat[LS_DIGEST_LARGEST] = v;
    return;
  }
  stat[isnan(v) ? LS_DIGEST_NAN : v > 0 ? LS_DIGEST_PLUS_INF : LS_DIGEST_MINUS_INF]++;
  if (stat[LS_DIGEST_FIRST_NONFINITE] < 0) stat[LS_DIGEST_FIRST_NONFINITE] = (double)i;
}

void ls_digest_row(uint64_t *hash, double stat[LS_DIGEST_STATS], const ls_tensor *row, ls_dtype type, const ls_tensor *only,
                   ls_digest_scratch *scratch) {
  const int64_t n = row->dim[0];
  const ls_tensor bits = ls_tensor_make(type, 1, &n, scratch->bits);
  memset(stat, 0, LS_DIGEST_STATS * sizeof *stat);
  stat[LS_DIGEST_FIRST_NONFINITE] = -1;
  stat[LS_DIGEST_LEAST] = INFINITY;
  stat[LS_DIGEST_LARGEST] = -INFINITY;
  ls_tensor_to_f64(scratch->wide, row);
  ls_tensor_from_f64(&bits, scratch->wide); /* rounded once */
  ls_tensor_to_f64(scratch->wide, &bits);
  for (int64_t i = 0; i < n; i++) {
    const bool counts = only == NULL || ls_tensor_get(only, i) != 0;
    scratch->wide[i] = counts ? plain(scratch->wide[i]) : 0;
    if (counts) tell(stat, i, scratch->wide[i]);
  }
  ls_tensor_from_f64(&bits, scratch->wide);
  *hash = ls_hash_bytes(scratch->bits, (size_t)n * ls_dtype_size(type), 0);
}

int ls_digest_shape(int64_t dim[LS_MAX_DIMS], const ls_tensor *t) {
  const int ndim = t->ndim > 1 ? t->ndim - 1 : 1;
  for (int i = 0; i < LS_MAX_DIMS; i++) dim[i] = i < ndim && t->ndim > 1 ? t->dim[i] : 1;
  return ndim;
}

ls_status ls_digest_add(ls_trace *trace, const char *name, const ls_tensor *t, ls_dtype type, const ls_tensor *only, ls_error *err) {
  char hash_name[MAX_NAME], stats_name[MAX_NAME];
  int64_t dim[LS_MAX_DIMS + 1] = {0};
  ls_tensor hash, stats;
  const int ndim = ls_digest_shape(dim, t);
  const int64_t width = t->ndim > 0 ? t->dim[t->ndim - 1] : 1, rows = width > 0 ? ls_tensor_count(t) / width : 0;
  if (ndim == LS_MAX_DIMS) return ls_fail(err, LS_INTERNAL, "%s: too many axes for a digest", name);
  snprintf(hash_name, sizeof hash_name, "%s/hash", name);
  snprintf(stats_name, sizeof stats_name, "%s/stats", name);
  LS_TRY(ls_trace_add(trace, hash_name, LS_I64, ndim, dim, &hash, err));
  dim[ndim] = LS_DIGEST_STATS;
  LS_TRY(ls_trace_add(trace, stats_name, LS_F64, ndim + 1, dim, &stats, err));
  ls_digest_scratch scratch = {NULL, NULL};
  LS_TRY(ls_digest_scratch_new(&scratch, width, err));
  const int64_t flat[] = {width};
  for (int64_t r = 0; r < rows; r++) {
    ls_tensor row = ls_tensor_make(t->dtype, 1, flat, (char *)t->data + ls_tensor_offset(t, r * width) * (int64_t)ls_dtype_size(t->dtype));
    row.stride[0] = t->ndim > 0 ? t->stride[t->ndim - 1] : 1;
    ls_tensor counted;
    if (only != NULL) {
      counted = ls_tensor_make(only->dtype, 1, flat, (char *)only->data + ls_tensor_offset(only, r * width));
      counted.stride[0] = only->stride[only->ndim - 1];
    }
    ls_digest_row((uint64_t *)hash.data + r, (double *)stats.data + r * LS_DIGEST_STATS, &row, type, only != NULL ? &counted : NULL,
                  &scratch);
  }
  ls_digest_scratch_free(&scratch);
  return LS_OK;
}

bool ls_digest_find(ls_digest *digest, const ls_trace *trace, const char *name) {
  char part[MAX_NAME];
  snprintf(part, sizeof part, "%s/hash", name);
  const ls_tensor *hash = ls_trace_tensor(trace, part);
  snprintf(part, sizeof part, "%s/stats", name);
  const ls_tensor *stats = ls_trace_tensor(trace, part);
  if (hash == NULL || stats == NULL) return false;
  *digest = (ls_digest){*hash, *stats};
  return true;
}

ls_status ls_hash_trace(uint64_t *hash, const ls_trace *trace, bool (*skip)(const void *arg, const char *name), const void *arg,
                        ls_error *err) {
  *hash = 0;
  for (int i = 0; trace != NULL && i < trace->n; i++) {
    const ls_record *r = &trace->rec[i];
    if (skip != NULL && skip(arg, r->name)) continue;
    uint64_t one = ls_hash_bytes(r->name, strlen(r->name), 0);
    one = ls_hash_bytes(r->t.dim, sizeof r->t.dim, one);
    const int64_t count = ls_tensor_count(&r->t), width = r->t.ndim > 0 ? r->t.dim[r->t.ndim - 1] : 1, flat[] = {width};
    double *wide = ls_shortage_unless(malloc((size_t)width * sizeof *wide + 1));
    if (wide == NULL) return ls_fail(err, LS_INTERNAL, "out of memory for the hash of %s", r->name);
    for (int64_t at = 0; at < count; at += width) {
      ls_tensor row =
          ls_tensor_make(r->t.dtype, 1, flat, (char *)r->t.data + ls_tensor_offset(&r->t, at) * (int64_t)ls_dtype_size(r->t.dtype));
      row.stride[0] = r->t.ndim > 0 ? r->t.stride[r->t.ndim - 1] : 1;
      if (ls_dtype_is_float(row.dtype)) {
        ls_tensor_to_f64(wide, &row);
      } else {
        for (int64_t k = 0; k < width; k++) wide[k] = ls_tensor_get(&row, k);
      }
      for (int64_t k = 0; k < width; k++) wide[k] = plain(wide[k]);
      one = ls_hash_bytes(wide, (size_t)width * sizeof *wide, one);
    }
    free(wide);
    *hash += one; /* whatever the order */
  }
  return LS_OK;
}
