#include <criterion/criterion.h>
#include <stdio.h>
#include <string.h>

#include "core/ls_trace.h"

Test(trace, tensors_are_found_by_name_and_start_poisoned) {
  ls_trace *trace;
  ls_error err = {0};
  cr_assert_eq(ls_trace_new(&trace, "ref", &err), LS_OK);
  ls_tensor t;
  char name[32];
  for (int i = 0; i < 100; i++) { /* more than the first room for records */
    snprintf(name, sizeof name, "k_rope.%d", i);
    cr_assert_eq(ls_trace_add(trace, name, LS_I32, 2, (int64_t[]){2, 3}, &t, &err), LS_OK);
    for (int64_t j = 0; j < 6; j++) {
      cr_assert_eq(ls_tensor_get(&t, j), -1, "poison");
      ls_tensor_set(&t, j, (double)(10 * i + j));
    }
  }
  memset(name, 'x', sizeof name); /* names are copied */
  for (int i = 0; i < 100; i++) {
    char wanted[32];
    snprintf(wanted, sizeof wanted, "k_rope.%d", i);
    const ls_tensor *found = ls_trace_tensor(trace, wanted);
    cr_assert_neq(found, NULL);
    cr_assert_eq(ls_tensor_get(found, 5), 10 * i + 5);
  }
  cr_assert_eq(ls_trace_tensor(trace, "k_rope"), NULL, "a prefix is not a name");
  cr_assert_eq(ls_trace_find(trace, ""), NULL);
  cr_assert_eq(ls_trace_find(NULL, "k_rope.0"), NULL);
  cr_assert_eq(ls_arena_check(trace->mem, &err), LS_OK);
  ls_trace_free(trace);
  ls_trace_free(NULL);
}

Test(trace, a_name_is_taken_once) {
  ls_trace *trace;
  ls_tensor t;
  ls_error err = {0};
  cr_assert_eq(ls_trace_new(&trace, "golden", &err), LS_OK);
  cr_assert_eq(ls_trace_add(trace, "k_ring", LS_F32, 1, (int64_t[]){4}, &t, &err), LS_OK);
  cr_assert_eq(ls_trace_add(trace, "k_ring", LS_F32, 1, (int64_t[]){4}, &t, &err), LS_INTERNAL);
  cr_assert(strstr(err.text, "golden") && strstr(err.text, "k_ring"), "%s", err.text);
  cr_assert_eq(ls_trace_add_view(trace, "k_ring", &t, NULL), LS_INTERNAL);
  cr_assert_eq(trace->n, 1);
  ls_trace_free(trace);
}

Test(trace, impossible_shapes_are_refused) {
  ls_trace *trace;
  ls_tensor t;
  cr_assert_eq(ls_trace_new(&trace, "golden", NULL), LS_OK);
  cr_assert_eq(ls_trace_add(trace, "a", LS_F32, 2, (int64_t[]){INT64_MAX, 2}, &t, NULL), LS_INTERNAL);
  cr_assert_eq(ls_trace_add(trace, "b", LS_F64, 1, (int64_t[]){INT64_MAX / 2}, &t, NULL), LS_INTERNAL);
  cr_assert_eq(ls_trace_add(trace, "c", LS_F32, 1, (int64_t[]){-1}, &t, NULL), LS_INTERNAL);
  cr_assert_eq(ls_trace_add(trace, "d", LS_F32, 5, (int64_t[]){1, 1, 1, 1, 1}, &t, NULL), LS_INTERNAL);
  cr_assert_eq(trace->n, 0);
  ls_trace_free(trace);
}

Test(trace, a_copy_is_deep_dense_and_keeps_what_is_known) {
  ls_trace *trace, *copy;
  ls_tensor t;
  ls_error err = {0};
  cr_assert_eq(ls_trace_new(&trace, "golden", &err), LS_OK);
  cr_assert_eq(ls_trace_add(trace, "whole", LS_BF16, 2, (int64_t[]){3, 4}, &t, &err), LS_OK);
  for (int64_t i = 0; i < 12; i++) ls_tensor_set(&t, i, (double)i);
  ls_tensor column = ls_tensor_slice(&t, 1, 2, 1);
  cr_assert_eq(ls_trace_add_view(trace, "column", &column, &err), LS_OK);
  ls_record *rec = ls_trace_find(trace, "column");
  rec->seconds = 2.5, rec->has_tolerance = true, rec->atol = 0.25, rec->rtol = 0.5;
  cr_assert_eq(ls_trace_copy(&copy, trace, &err), LS_OK);
  ls_trace_free(trace);
  const ls_record *got = ls_trace_find(copy, "column");
  cr_assert_str_eq(got->name, "column");
  cr_assert_str_eq(copy->origin, "golden");
  cr_assert(ls_tensor_is_dense(&got->t));
  cr_assert_eq(got->t.dtype, LS_BF16);
  for (int64_t i = 0; i < 3; i++) cr_assert_eq(ls_tensor_get(&got->t, i), 4.0 * (double)i + 2);
  cr_assert(got->has_tolerance && got->seconds == 2.5 && got->atol == 0.25 && got->rtol == 0.5);
  cr_assert_eq(ls_tensor_get(ls_trace_tensor(copy, "whole"), 11), 11);
  ls_trace_free(copy);
}
