/* planted_fixture: copies of a fixture with expected stages left out, with one wrong value, or cut short. */
#ifndef PLANTED_FIXTURE_H
#define PLANTED_FIXTURE_H

#include <criterion/criterion.h>
#include <fnmatch.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "core/ls_numeric.h"
#include "fixtures/ls_fixture.h"

typedef struct {
  const char *drop;  /* glob list of stages that the copy does not hold; NULL: all are kept */
  const char *stage; /* one value of this stage, or of the input of that name, is wrong ... */
  int64_t step;      /* ... in this step */
  double steps;      /* by so many units in the last place; an index by so many positions; NaN: it becomes NaN */
  int64_t keep;      /* only so many steps are copied; 0: all */
  double at;         /* 0 .. 1: how far into the tensor it stands; 0: in the middle */
} plant;

static inline bool in_list(const char *list, const char *name) {
  char copy[256];
  snprintf(copy, sizeof copy, "%s", list != NULL ? list : "");
  for (char *rest = copy, *glob; (glob = strsep(&rest, " ")) != NULL;)
    if (*glob != '\0' && fnmatch(glob, name, 0) == 0) return true;
  return false;
}

/* Somewhere in the middle that is not zero, nor an empty entry of a selection. */
static inline int64_t planted_element(const ls_tensor *t, double at) {
  const int64_t n = ls_tensor_count(t);
  int64_t i = at == 0 ? n / 2 : (int64_t)(at * (double)n) % n;
  const int64_t from = i;
  while (ls_tensor_get(t, i) == (t->dtype == LS_I32 ? -1 : 0) || !isfinite(ls_tensor_get(t, i))) {
    i = (i + 1) % n;
    cr_assert_neq(i, from, "nothing to plant in");
  }
  return i;
}

static inline void write_trace(ls_fixture_writer *writer, const char *group, const ls_trace *trace, const plant *p, int64_t step) {
  ls_error err = {LS_OK, ""};
  for (int i = 0; trace != NULL && i < trace->n; i++) {
    const ls_record *r = &trace->rec[i];
    if (p != NULL && in_list(p->drop, r->name)) continue;
    if (p != NULL && p->stage != NULL && step == p->step && strcmp(p->stage, r->name) == 0) {
      const int64_t i0 = planted_element(&r->t, p->at);
      const double v = ls_tensor_get(&r->t, i0);
      ls_tensor_set(&r->t, i0, v + p->steps * ls_step_at(r->t.dtype, v));
    }
    char path[256];
    snprintf(path, sizeof path, "%s/%s", group, r->name);
    cr_assert_eq(ls_fixture_write_tensor(writer, path, &r->t, -1, -1, &err), LS_OK, "%s", err.text);
  }
}

static inline void copy_fixture(const char *to, const char *from, const plant *p) {
  ls_error err = {LS_OK, ""};
  ls_fixture *fixture = NULL;
  ls_fixture_writer *writer = NULL;
  const ls_trace *weights = NULL;
  ls_fixture_options options = {false, NULL};
  cr_assert_eq(ls_fixture_open(&fixture, from, &options, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_fixture_weights(fixture, &weights, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_fixture_writer_new(&writer, to, ls_fixture_config(fixture), "a copy", "planted", &err), LS_OK, "%s", err.text);
  write_trace(writer, "/weights", weights, NULL, -1);
  const int64_t n = ls_fixture_steps(fixture);
  for (int64_t i = 0; i < (p->keep > 0 && p->keep < n ? p->keep : n); i++) {
    ls_step step;
    char group[64];
    cr_assert_eq(ls_fixture_load_step(fixture, i, &step, &err), LS_OK, "%s", err.text);
    cr_assert_eq(ls_fixture_write_step(writer, &step, &err), LS_OK, "%s", err.text);
    snprintf(group, sizeof group, "/steps/%04lld/in", (long long)step.number);
    write_trace(writer, group, step.in, &(plant){.stage = p->stage, .step = p->step, .steps = p->steps, .at = p->at}, step.number);
    snprintf(group, sizeof group, "/steps/%04lld/expect", (long long)step.number);
    write_trace(writer, group, step.expect, p, step.number);
    ls_step_free(&step);
  }
  cr_assert_eq(ls_fixture_writer_commit(writer, &err), LS_OK, "%s", err.text);
  ls_fixture_close(fixture);
}

#endif
