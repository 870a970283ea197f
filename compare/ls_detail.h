/* ls_detail: where the differences of one comparison lie, small enough to be kept for a report: a map of errors in a bounded number of
 * cells, what the slots of a ring hold, the scores around the last place of a selection. No pointers: a detail is copied as it is.
 *
 * Filled beside the comparison whose ls_compare_args.map, or whose call, names it. The same whatever the number of threads. */
#ifndef LS_DETAIL_H
#define LS_DETAIL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- errors by place ---- */

/* What the worst element of a cell uses of its bound. */
typedef enum {
  LS_CELL_NONE,  /* nothing was compared */
  LS_CELL_EQUAL, /* no element differs */
  LS_CELL_1,     /* at most 1% */
  LS_CELL_3,     /* at most 3%, and so on */
  LS_CELL_10,
  LS_CELL_30,
  LS_CELL_100,
  LS_CELL_2X, /* outside the bound, at most twice as far */
  LS_CELL_10X,
  LS_CELL_100X,
  LS_CELL_MORE,
  LS_CELL_LONELY, /* not finite on one side only */
  LS_CELLS
} ls_cell;

enum { LS_MAP_DOWN = 96, LS_MAP_ACROSS = 128 };

/* rows x columns of elements, summed up in down x across cells; rows 0: no map. A cell stands for the rows r with r * down / rows equal to
 * its own, and likewise across. */
typedef struct {
  int64_t rows, columns;
  int down, across;
  uint8_t cell[LS_MAP_DOWN * LS_MAP_ACROSS];
} ls_cell_grid;

/* A tensor as rows of its last axis. Where that is heads x head_dim, once by (row, head) and once by (row, channel within the head). */
typedef struct {
  int64_t width, head_dim; /* head_dim 0: no heads, and by_head is empty */
  ls_cell_grid by_head, by_channel;
} ls_map;

/* masked: not all elements will be compared. */
void ls_map_start(ls_map *map, int64_t rows, int64_t width, int64_t head_dim, bool masked);

/* An element, by its flat index, that uses so much of its bound; 0: compared, and without a difference. Any thread. */
void ls_map_mark(ls_map *map, int64_t at, double use, bool lonely);

/* The rows or columns [*first, *last] that cell i of `cells` stands for. */
void ls_cells_range(int64_t *first, int64_t *last, int i, int cells, int64_t n);

/* ---- rings ---- */

typedef enum {
  LS_SLOT_EMPTY,     /* no operation wrote it, and it is zero */
  LS_SLOT_KEPT,      /* right, written earlier */
  LS_SLOT_WRITTEN,   /* right, written by this step */
  LS_SLOT_OUTSIDE,   /* the right row, outside its bound */
  LS_SLOT_STALE,     /* what the slot held before */
  LS_SLOT_MISPLACED, /* another position's row, another layer's, or of the other ring */
  LS_SLOT_UNDONE,    /* the right position's row as an earlier stage left it */
  LS_SLOT_CLEARED,   /* zeros */
  LS_SLOT_CHANGED,   /* no operation wrote it, and it is not zero */
  LS_SLOT_UNKNOWN,   /* none of the rows seen so far */
  LS_SLOTS
} ls_slot_status;

enum { LS_RING_RUNS = 256 };

/* Slots that follow each other, hold positions that do, and have one status. -1: none. */
typedef struct {
  int64_t slot, slots;
  int64_t expected, held; /* positions of the first slot; held where it is known and wrong */
  ls_slot_status status;
} ls_ring_run;

typedef struct {
  int64_t capacity; /* 0: no ring */
  int n;
  int64_t left_out; /* slots after the last run that fits */
  ls_ring_run run[LS_RING_RUNS];
} ls_ring_view;

/* ---- selections ---- */

enum { LS_CHOICE_AROUND = 12, LS_CHOICE_ALONE = 16, LS_CHOICE_ITEMS = 2 * LS_CHOICE_AROUND + LS_CHOICE_ALONE };

typedef struct {
  int64_t position, place; /* place: 0 for the best score of the first side, equal ones by position */
  double score[2], bound;
  bool in[2]; /* chosen by the first side, by the second */
} ls_choice_item;

/* One query: the positions around its last place, and up to LS_CHOICE_ALONE that one side alone chose, by place. */
typedef struct {
  int64_t row, k, eligible; /* eligible: positions that may be chosen */
  int64_t equals;           /* of them with the score of the last place */
  int n;                    /* 0: no view */
  ls_choice_item item[LS_CHOICE_ITEMS];
} ls_choice_view;

/* ---- all of it ---- */

typedef struct {
  int64_t base, stride; /* row r of a map is at position base + stride * r; stride 0: rows have no position */
  char row_name[24];    /* "row", "slot", "latent" */
  ls_map map;
  ls_ring_view ring;
  ls_choice_view choice;
} ls_detail;

#ifdef __cplusplus
}
#endif
#endif
