/* ref_sparse_loops: the two loops of sparse attention that take the time, for one type of number. ref_sparse_attn.c includes it once a
 * type, with ELEMENT, VECTOR (LANES neighbours that are added and multiplied together), LANES and NAMED(name), the type's name of it,
 * defined. No guard: each time makes other functions. */

/* s[j] = x . row[j] of ROWS rows        x [dim], rows [ROWS, stride] */
LS_CLONES_PART void NAMED(dots)(ELEMENT *s, const ELEMENT *x, const ELEMENT *rows, int64_t dim, int64_t stride) {
  VECTOR sum[ROWS][2] = {{{0}}};
  int64_t i = 0;
  for (; i + 2 * LANES <= dim; i += 2 * LANES) {
    const VECTOR *v = (const VECTOR *)(x + i);
#pragma GCC unroll 4
    for (int j = 0; j < ROWS; j++) {
      const VECTOR *row = (const VECTOR *)(rows + j * stride + i);
      sum[j][0] += v[0] * row[0];
      sum[j][1] += v[1] * row[1];
    }
  }
  for (int j = 0; j < ROWS; j++) {
    const VECTOR both = sum[j][0] + sum[j][1];
    ELEMENT total = 0;
    for (int lane = 0; lane < LANES; lane++) total += both[lane];
    for (int64_t rest = i; rest < dim; rest++) total += x[rest] * rows[j * stride + rest];
    s[j] = total;
  }
}

/* s[h][j] = q[h] . row[j] * dim^-0.5        s [heads, ld], q [heads, dim], rows [n, dim + APART], n a multiple of ROWS */
LS_CLONES static void NAMED(scores)(ELEMENT *s, const ELEMENT *q, const ELEMENT *rows, int64_t heads, int64_t n, int64_t dim, int64_t ld) {
  const int64_t stride = dim + APART;
  const ELEMENT scale = (ELEMENT)(1.0 / sqrt((double)dim));
  for (int64_t j = 0; j < n; j += ROWS) {
    for (int64_t h = 0; h < heads; h++) {
      ELEMENT *at = s + h * ld + j;
      NAMED(dots)(at, q + h * dim, rows + j * stride, dim, stride);
      for (int i = 0; i < ROWS; i++) at[i] *= scale;
    }
  }
}

/* o[h][c] += sum_j p[h][j] * row[j][c], row by row        o [heads, dim], p [heads, ld], rows [n, dim + APART], heads a multiple of HEADS
 */
LS_CLONES static void NAMED(add_rows)(ELEMENT *o, const ELEMENT *p, const ELEMENT *rows, int64_t heads, int64_t n, int64_t dim,
                                      int64_t ld) {
  const int64_t stride = dim + APART;
  const int64_t whole = dim / (2 * LANES) * (2 * LANES);
  for (int64_t c = 0; c < whole; c += 2 * LANES) {
    for (int64_t first = 0; first < heads; first += HEADS) {
      VECTOR *to[HEADS], sum[HEADS][2];
#pragma GCC unroll 4
      for (int h = 0; h < HEADS; h++) {
        to[h] = (VECTOR *)(o + (first + h) * dim + c);
        sum[h][0] = to[h][0];
        sum[h][1] = to[h][1];
      }
      for (int64_t j = 0; j < n; j++) {
        const VECTOR *row = (const VECTOR *)(rows + j * stride + c);
#pragma GCC unroll 4
        for (int h = 0; h < HEADS; h++) {
          sum[h][0] += p[(first + h) * ld + j] * row[0];
          sum[h][1] += p[(first + h) * ld + j] * row[1];
        }
      }
#pragma GCC unroll 4
      for (int h = 0; h < HEADS; h++) {
        to[h][0] = sum[h][0];
        to[h][1] = sum[h][1];
      }
    }
  }
  for (int64_t h = 0; h < heads; h++)
    for (int64_t j = 0; j < n; j++)
      for (int64_t c = whole; c < dim; c++) o[h * dim + c] += p[h * ld + j] * rows[j * stride + c];
}
