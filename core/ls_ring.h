/* ls_ring: which slot a position lives in, and how a run of positions falls on the ring (layers.md, dflash_context_kv 3). */
#ifndef LS_RING_H
#define LS_RING_H

#include <stdbool.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define LS_POSITION_LIMIT ((int64_t)1 << 31) /* positions are 0 .. 2^31 - 1 */

typedef struct {
  int64_t slot; /* first slot of the span */
  int64_t row;  /* first of the written rows that goes there */
  int64_t rows; /* length of the span; 0 where the span is empty */
} ls_span;

/* position mod capacity; position >= 0, capacity >= 1. */
int64_t ls_ring_slot(int64_t position, int64_t capacity);

/* Cuts [base, base + rows), rows <= capacity, into at most two spans: first = min(rows, capacity - base mod capacity), the rest from
 * slot 0. Returns the number of non-empty spans (0 for rows = 0). */
int ls_ring_spans(ls_span span[2], int64_t base, int64_t rows, int64_t capacity);

/* Whether slot is one of the slots of [base, base + rows), and if so which row. */
bool ls_ring_row_of_slot(int64_t *row, int64_t slot, int64_t base, int64_t rows, int64_t capacity);

/* Whether [base, base + rows) lies inside 0 .. 2^31 - 1, rows >= 0, without overflow. */
bool ls_positions_valid(int64_t base, int64_t rows);

#ifdef __cplusplus
}
#endif
#endif
