#include "ls_dflash.h"

#include "../core/ls_ring.h"

typedef long long ll; /* for %lld */

static ls_status check_rows(const char *what, int64_t rows, int64_t largest, const char *field, ls_error *err) {
  if (rows >= 1 && rows <= largest) return LS_OK;
  return ls_fail(err, LS_REFUSED, "%s refused: rows %lld, expected 1 .. %s = %lld", what, (ll)rows, field, (ll)largest);
}

static ls_status check_positions(const char *what, int64_t base, int64_t rows, ls_error *err) {
  if (base < 0) return ls_fail(err, LS_REFUSED, "%s refused: base %lld is negative", what, (ll)base);
  if (ls_positions_valid(base, rows)) return LS_OK;
  return ls_fail(err, LS_REFUSED, "%s refused: base %lld + rows %lld is past the last position %lld", what, (ll)base, (ll)rows,
                 (ll)(LS_POSITION_LIMIT - 1));
}

ls_status ls_dflash_decide(const ls_dflash_config *config, const ls_dflash_state *state, const ls_step *step, ls_dflash_state *next,
                           ls_error *err) {
  const char *what = ls_op_name(step->op);
  ls_dflash_state after = *state;
  switch (step->op) {
    case LS_OP_CAPTURE:
      LS_TRY(check_rows(what, step->rows, config->max_rows, "max_rows", err));
      LS_TRY(check_positions(what, step->base, step->rows, err));
      after.capture_base = step->base;
      after.capture_rows = step->rows;
      break;

    case LS_OP_DRAFT_WRITE: /* moves no cursor */
      LS_TRY(check_rows(what, step->rows, config->ring_capacity, "ring_capacity", err));
      LS_TRY(check_positions(what, step->base, step->rows, err));
      break;

    case LS_OP_CONTEXT_WRITE: /* in the order of layers.md */
      if (step->rows < 1) return ls_fail(err, LS_REFUSED, "%s refused: rows %lld, expected at least 1", what, (ll)step->rows);
      if (step->rows > state->capture_rows) {
        return ls_fail(err, LS_REFUSED, "%s refused: rows %lld, but %lld rows are captured", what, (ll)step->rows, (ll)state->capture_rows);
      }
      if (step->rows > config->ring_capacity) {
        return ls_fail(err, LS_REFUSED, "%s refused: rows %lld, more than ring_capacity %lld", what, (ll)step->rows,
                       (ll)config->ring_capacity);
      }
      if (state->capture_base + step->rows < state->cursor) {
        return ls_fail(err, LS_REFUSED, "%s refused: capture_base %lld + rows %lld would move the cursor back from %lld", what,
                       (ll)state->capture_base, (ll)step->rows, (ll)state->cursor);
      }
      after.cursor = state->capture_base + step->rows;
      after.capture_rows = 0;
      break;

    case LS_OP_REWIND:
      if (step->position < 0) return ls_fail(err, LS_REFUSED, "%s refused: position %lld is negative", what, (ll)step->position);
      if (step->position >= state->cursor) break; /* never forward */
      if (state->cursor - step->position > config->ring_capacity - config->window) {
        return ls_fail(err, LS_REFUSED, "%s refused: from cursor %lld to %lld is %lld back, more than ring_capacity - window = %lld", what,
                       (ll)state->cursor, (ll)step->position, (ll)(state->cursor - step->position),
                       (ll)(config->ring_capacity - config->window));
      }
      after.cursor = step->position;
      break;

    default:
      return ls_fail(err, LS_INTERNAL, "operation %d is unknown", (int)step->op);
  }
  *next = after;
  return LS_OK;
}

void ls_dflash_written(const ls_dflash_state *state, const ls_step *step, int64_t *base, int64_t *rows) {
  *base = *rows = 0;
  if (step->op == LS_OP_DRAFT_WRITE) {
    *base = step->base;
    *rows = step->rows;
  } else if (step->op == LS_OP_CONTEXT_WRITE) {
    *base = state->capture_base;
    *rows = step->rows;
  }
}

ls_status ls_dflash_state_check(const ls_dflash_config *config, const ls_dflash_state *state, ls_error *err) {
  if (!(state->cursor >= 0 && state->cursor <= LS_POSITION_LIMIT)) {
    return ls_fail(err, LS_BAD_FIXTURE, "cursor: expected 0 .. %lld, found %lld", (ll)LS_POSITION_LIMIT, (ll)state->cursor);
  }
  if (!(state->capture_rows >= 0 && state->capture_rows <= config->max_rows)) {
    return ls_fail(err, LS_BAD_FIXTURE, "capture_rows: expected 0 .. max_rows = %lld, found %lld", (ll)config->max_rows,
                   (ll)state->capture_rows);
  }
  if (!ls_positions_valid(state->capture_base, state->capture_rows)) {
    return ls_fail(err, LS_BAD_FIXTURE, "capture_base: expected 0 .. %lld for %lld rows, found %lld",
                   (ll)(LS_POSITION_LIMIT - state->capture_rows), (ll)state->capture_rows, (ll)state->capture_base);
  }
  return LS_OK;
}
