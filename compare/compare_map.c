/* Maps of errors: cells keep the largest value that was marked, so that the order of marks, and of threads, does not matter. */
#include <math.h>
#include <string.h>

#include "ls_detail.h"

static void grid_start(ls_cell_grid *grid, int64_t rows, int64_t columns, ls_cell first) {
  grid->rows = rows, grid->columns = columns;
  grid->down = (int)(rows < LS_MAP_DOWN ? rows : LS_MAP_DOWN);
  grid->across = (int)(columns < LS_MAP_ACROSS ? columns : LS_MAP_ACROSS);
  memset(grid->cell, (int)first, (size_t)grid->down * (size_t)grid->across);
}

void ls_map_start(ls_map *map, int64_t rows, int64_t width, int64_t head_dim, bool masked) {
  const ls_cell first = masked ? LS_CELL_NONE : LS_CELL_EQUAL;
  const bool heads = head_dim > 0 && head_dim < width && width % head_dim == 0;
  memset(map, 0, sizeof *map);
  if (rows < 1 || width < 1) return;
  map->width = width, map->head_dim = heads ? head_dim : 0;
  if (heads) grid_start(&map->by_head, rows, width / head_dim, first);
  grid_start(&map->by_channel, rows, heads ? head_dim : width, first);
}

static void grid_mark(ls_cell_grid *grid, int64_t row, int64_t column, uint8_t value) {
  uint8_t *cell = &grid->cell[row * grid->down / grid->rows * grid->across + column * grid->across / grid->columns];
  uint8_t held = __atomic_load_n(cell, __ATOMIC_RELAXED);
  while (held < value && !__atomic_compare_exchange_n(cell, &held, value, true, __ATOMIC_RELAXED, __ATOMIC_RELAXED)) continue;
}

static ls_cell cell_of(double use, bool lonely) {
  static const struct {
    double most;
    ls_cell cell;
  } level[] = {{0, LS_CELL_EQUAL}, {0.01, LS_CELL_1}, {0.03, LS_CELL_3}, {0.1, LS_CELL_10},  {0.3, LS_CELL_30},
               {1, LS_CELL_100},   {2, LS_CELL_2X},   {10, LS_CELL_10X}, {100, LS_CELL_100X}};
  if (lonely) return LS_CELL_LONELY;
  for (size_t i = 0; i < sizeof level / sizeof *level; i++) {
    if (use <= level[i].most) return level[i].cell;
  }
  return LS_CELL_MORE;
}

void ls_map_mark(ls_map *map, int64_t at, double use, bool lonely) {
  if (map->width == 0) return;
  const uint8_t value = (uint8_t)cell_of(use, lonely);
  const int64_t row = at / map->width, column = at % map->width;
  if (map->head_dim == 0) {
    grid_mark(&map->by_channel, row, column, value);
    return;
  }
  grid_mark(&map->by_head, row, column / map->head_dim, value);
  grid_mark(&map->by_channel, row, column % map->head_dim, value);
}

/* i * n / cells, rounded up: the first r with r * cells / n == i. */
void ls_cells_range(int64_t *first, int64_t *last, int i, int cells, int64_t n) {
  *first = ((int64_t)i * n + cells - 1) / cells;
  *last = ((int64_t)(i + 1) * n + cells - 1) / cells - 1;
}
