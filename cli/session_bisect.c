#include "session_bisect.h"

#include <inttypes.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef struct {
  const char *file;
  const ls_verify_options *options;
  ls_bisect found;
  const ls_step **step; /* of the fixture, without tensors */
  ls_fixture *fixture;
} bisection;

static void conclude(bisection *b, ls_bisect_origin origin, int64_t failing, int64_t from, const ls_report_hit *hit) {
  b->found.origin = origin;
  b->found.failing_step = failing;
  b->found.origin_step = from;
  snprintf(b->found.name, sizeof b->found.name, "%s", hit->name);
}

__attribute__((format(printf, 2, 3))) static void say(bisection *b, const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(b->found.line, sizeof b->found.line, format, args);
  va_end(args);
}

/* A run, into a report of its own. */
static ls_status run(bisection *b, const ls_verify_options *how, ls_report **report, ls_report_hit *hit, ls_error *err) {
  ls_report_free(*report);
  *report = NULL;
  LS_TRY(ls_report_new(report, err));
  b->found.passes++;
  LS_TRY(ls_verify_fixture(b->file, how, *report, err));
  return ls_report_first(*report, hit, err);
}

/* Whether the step of index k fails, run cascaded from the reference's state before the step of index j. */
static ls_status fails_from(bisection *b, int64_t j, int64_t k, bool *fails, ls_error *err) {
  ls_verify_options how = *b->options;
  ls_report *report = NULL;
  ls_report_hit hit;
  how.cascaded_only = how.no_reruns = true;
  how.only_step = b->step[k]->number;
  how.has_transplant = true;
  how.transplant = b->step[j]->number;
  const ls_status status = run(b, &how, &report, &hit, err);
  ls_report_free(report);
  *fails = status == LS_OK && hit.found;
  return status;
}

static int64_t index_of(const bisection *b, int64_t number) {
  int64_t i = 0;
  while (b->step[i]->number != number) i++;
  return i;
}

static const char *op_at(const bisection *b, int64_t i) { return ls_op_name(b->step[i]->op); }

/* It fails cascaded, and no stage isolated. */
static ls_status search_state(bisection *b, const ls_report_hit *hit, ls_error *err) {
  const int64_t k = index_of(b, hit->step);
  const char *what = hit->is_property ? "property " : "";
  bool fails;
  if (b->options->n_paths == 1) {
    conclude(b, LS_ORIGIN_UNKNOWN, hit->step, -1, hit);
    say(b, "step %" PRId64 " %s: %s%s of the reference itself fails: there is no other state to start it from", hit->step, op_at(b, k),
        what, hit->name);
    return LS_OK;
  }
  LS_TRY(fails_from(b, k, k, &fails, err));
  if (fails) {
    conclude(b, LS_ORIGIN_STEP, hit->step, hit->step, hit);
    if (hit->is_property || hit->is_state) {
      say(b, "introduced in step %" PRId64 " %s: %s%s fails from the reference's state too, and no stage does isolated", hit->step,
          op_at(b, k), what, hit->name);
    } else {
      say(b,
          "introduced in step %" PRId64
          " %s as a whole: %s fails from the reference's state too, but each stage by itself is within its bound",
          hit->step, op_at(b, k), hit->name);
    }
    return LS_OK;
  }
  int64_t from = 0, clean = k; /* started before `from` it fails, before `clean` it does not */
  fails = false;
  if (k > 0) LS_TRY(fails_from(b, 0, k, &fails, err));
  if (!fails) {
    conclude(b, LS_ORIGIN_UNKNOWN, hit->step, -1, hit);
    say(b,
        "step %" PRId64
        " %s: %s%s failed once and passes from the same start now: the path does not repeat itself, or load changes more than "
        "save shows",
        hit->step, op_at(b, k), what, hit->name);
    return LS_OK;
  }
  while (clean - from > 1) {
    const int64_t middle = from + (clean - from) / 2;
    LS_TRY(fails_from(b, middle, k, &fails, err));
    if (fails) {
      from = middle;
    } else {
      clean = middle;
    }
  }
  conclude(b, LS_ORIGIN_STATE, hit->step, b->step[from]->number, hit);
  say(b,
      "carried in the state that step %" PRId64 " %s left: step %" PRId64
      " %s (%s%s) fails where the path goes on from the reference's state "
      "before step %" PRId64 ", and passes from that after it; no stage fails isolated",
      b->step[from]->number, op_at(b, from), hit->step, op_at(b, k), what, hit->name, b->step[from]->number);
  return LS_OK;
}

/* rerun: only the run that does steps again shows it. */
static ls_status judge_hit(bisection *b, const ls_report_hit *hit, bool rerun, ls_error *err) {
  const int64_t k = index_of(b, hit->step);
  if (hit->is_property && rerun) {
    conclude(b, LS_ORIGIN_STEP, hit->step, hit->step, hit);
    say(b, "introduced in step %" PRId64 " %s: property %s fails, and no stage does: %s", hit->step, op_at(b, k), hit->name, hit->note);
    return LS_OK;
  }
  if (hit->is_property || hit->mode != LS_ISOLATED) return search_state(b, hit, err);
  conclude(b, LS_ORIGIN_STAGE, hit->step, hit->step, hit);
  say(b, "introduced in step %" PRId64 " %s by %s%s%s: it fails isolated", hit->step, op_at(b, k), hit->name,
      hit->where[0] != '\0' ? ", " : "", hit->where);
  return LS_OK;
}

static void judge_nothing(bisection *b, const ls_report_hit *hit) {
  conclude(b, LS_ORIGIN_NONE, -1, -1, hit);
  if (hit->compared == 0) {
    say(b, "nothing was compared");
  } else if (hit->bit_equal < hit->compared && !b->options->exact) {
    say(b, "nothing fails; %" PRId64 " of %" PRId64 " elements differ in bits, within their bounds%s", hit->compared - hit->bit_equal,
        hit->compared, b->options->judged == LS_JUDGE_LAST_PAIR ? " (--bits names the first)" : "");
  } else {
    say(b, "nothing differs");
  }
}

static ls_status search(bisection *b, ls_report **report, ls_error *err) {
  ls_verify_options cascaded = *b->options, both = *b->options;
  ls_report_hit shown, hit;
  ls_report *second = NULL;
  cascaded.cascaded_only = cascaded.no_reruns = cascaded.until_failure = both.until_failure = true;
  LS_TRY(run(b, &cascaded, report, &shown, err));
  if (shown.found) { /* what fails further on is no matter */
    both.no_reruns = both.has_last_step = true;
    both.last_step = shown.step;
  }
  const ls_status status = run(b, &both, &second, &hit, err);
  if (status != LS_OK || hit.found || !shown.found) { /* else only the first run shows it */
    ls_report_free(*report);
    *report = second;
    second = NULL;
  }
  ls_report_free(second);
  LS_TRY(status);
  if (!hit.found && !shown.found) {
    judge_nothing(b, &hit);
    return LS_OK;
  }
  return judge_hit(b, hit.found ? &hit : &shown, !shown.found, err);
}

static ls_status list_steps(bisection *b, ls_error *err) {
  const ls_fixture_options reading = {b->options->allow_nonfinite, NULL};
  LS_TRY(ls_fixture_open(&b->fixture, b->file, &reading, err));
  const int64_t n = ls_fixture_steps(b->fixture);
  b->step = calloc((size_t)n + 1, sizeof *b->step);
  if (b->step == NULL) return ls_fail(err, LS_INTERNAL, "out of memory");
  for (int64_t i = 0; i < n; i++) b->step[i] = ls_fixture_step_info(b->fixture, i);
  return LS_OK;
}

ls_status ls_bisect_fixture(const char *file, const ls_verify_options *options, ls_report **report, ls_error *err) {
  bisection b = {.file = file, .options = options, .found = {.failing_step = -1, .origin_step = -1}};
  *report = NULL;
  ls_error why = {LS_OK, ""};
  ls_status status = ls_fixture_probe(file, &why);
  if (status == LS_OK) status = list_steps(&b, &why);
  if (status == LS_OK) {
    status = search(&b, report, err);
  } else if (status == LS_INTERNAL) { /* not the file's fault, and a second try may succeed: it would be no bisection */
    ls_fail(err, status, "%s", why.text);
  } else { /* the session says what is wrong with it */
    ls_report_hit hit;
    status = run(&b, options, report, &hit, err);
  }
  if (status == LS_OK) status = ls_report_bisect(*report, &b.found, err);
  free(b.step);
  ls_fixture_close(b.fixture);
  return status;
}
