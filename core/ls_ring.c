#include "ls_ring.h"

int64_t ls_ring_slot(int64_t position, int64_t capacity) { return position % capacity; }

int ls_ring_spans(ls_span span[2], int64_t base, int64_t rows, int64_t capacity) {
  int64_t slot = ls_ring_slot(base, capacity);
  int64_t to_end = capacity - slot;
  int64_t first = rows < to_end ? rows : to_end;
  span[0] = (ls_span){.slot = slot, .row = 0, .rows = first};
  span[1] = (ls_span){.slot = 0, .row = first, .rows = rows - first};
  return (span[0].rows > 0) + (span[1].rows > 0);
}

bool ls_ring_row_of_slot(int64_t *row, int64_t slot, int64_t base, int64_t rows, int64_t capacity) {
  int64_t ahead = slot - ls_ring_slot(base, capacity); /* slots from base's slot up to this one, going round */
  if (ahead < 0) ahead += capacity;
  if (slot < 0 || slot >= capacity || ahead >= rows) return false;
  *row = ahead;
  return true;
}

bool ls_positions_valid(int64_t base, int64_t rows) {
  return base >= 0 && rows >= 0 && base <= LS_POSITION_LIMIT && rows <= LS_POSITION_LIMIT - base;
}
