/* One pattern for a failing stage: the order in which they are tried. What says more comes first, and what predicts every value ends the
 * search. */
#include <stdio.h>
#include <string.h>

#include "explain_internal.h"

static void try_patterns(const ls_subject *s, ls_pattern *pattern) {
  static const struct {
    void (*look)(const ls_subject *, ls_best *);
    bool own;  /* says something where the inputs may be wrong already: it starts from these, or from what stands in a slot */
    bool ring; /* also of a ring, whose slots are compared coarsely: rows in the wrong slot are compare_ring's to name */
  } patterns[] = {
      {ls_explain_score, true, false},     {ls_explain_nonfinite, false, true}, {ls_explain_other_values, true, true},
      {ls_explain_rotation, true, false},  {ls_explain_norm, true, false},      {ls_explain_grid, true, false},
      {ls_explain_attention, true, false}, {ls_explain_moved, true, false},     {ls_explain_numbers, false, false},
      {ls_explain_gemm, true, false},
  };
  const ls_explain_args *args = s->args;
  ls_best best = {.pattern = pattern, .share = 0};
  for (size_t i = 0; i < sizeof patterns / sizeof *patterns && s->failing > 0 && !ls_best_is_certain(&best); i++)
    if ((patterns[i].own || !args->inherits) && (!args->compare.stage->is_ring || patterns[i].ring)) patterns[i].look(s, &best);
  if (s->failing > 0 && best.share == 0 && !args->inherits) ls_explain_place(s, &best);
}

/* Side b is what its inputs make of it, and side a, the expected values of somebody else, is not: then these are what looks like something.
 * They have each stage by itself. */
static void explain_expected(const ls_explain_args *args, ls_pattern *pattern) {
  static const char whose[] = "the expected values, not the path's: ";
  ls_explain_args turned = *args;
  ls_subject s;
  ls_pattern found = {.id = ""};
  turned.compare.a = args->compare.b, turned.compare.b = args->compare.a;
  turned.fused = NULL, turned.held = turned.held_right = NULL, turned.n_earlier = 0;
  if (!ls_subject_open(&s, &turned)) return;
  try_patterns(&s, &found);
  ls_subject_close(&s);
  if (found.id[0] == '\0') return;
  *pattern = found;
  snprintf(pattern->text, sizeof pattern->text, "%s%.*s", whose, (int)(sizeof pattern->text - sizeof whose), found.text);
}

static void explain_values(const ls_explain_args *args, ls_pattern *pattern) {
  ls_subject s;
  if (!ls_subject_open(&s, args)) return;
  const bool is_right = (args->inherits || args->a_is_expected) && ls_explain_inherited(&s);
  if (!is_right) try_patterns(&s, pattern);
  ls_subject_close(&s);
  if (is_right && !args->inherits) explain_expected(args, pattern);
}

void ls_explain(const ls_explain_args *args, ls_pattern *pattern) {
  memset(pattern, 0, sizeof *pattern);
  const ls_stage *stage = args->compare.stage;
  if (stage == NULL || args->compare.a == NULL || args->compare.b == NULL) return;
  if (stage->holds != LS_HOLDS_VALUES && stage->holds != LS_HOLDS_F32 && args->inherits) return; /* chosen by what may be wrong already */
  if (stage->holds == LS_HOLDS_INDICES || stage->holds == LS_HOLDS_SELECTION) {
    ls_explain_indices(args, pattern);
  } else if (stage->holds == LS_HOLDS_MASK) {
    ls_explain_mask(args, pattern);
  } else {
    explain_values(args, pattern);
    return;
  }
  if (pattern->id[0]) pattern->bits = 2 * LS_PATTERN_BITS; /* counted, not predicted */
}
