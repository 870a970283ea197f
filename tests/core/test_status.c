#include <criterion/criterion.h>
#include <string.h>

#include "core/ls_status.h"

Test(status, the_first_message_stays) {
  ls_error err = {0};
  cr_assert_eq(ls_fail(&err, LS_BAD_FIXTURE, "%s: %d", "first", 1), LS_BAD_FIXTURE);
  cr_assert_eq(ls_fail(&err, LS_INTERNAL, "second"), LS_INTERNAL);
  cr_assert_eq(err.status, LS_BAD_FIXTURE);
  cr_assert_str_eq(err.text, "first: 1");
}

Test(status, a_caller_may_want_no_text) { cr_assert_eq(ls_fail(NULL, LS_USAGE, "%d", 1), LS_USAGE); }

Test(status, a_message_is_one_line_however_long_or_odd) {
  ls_error err = {0};
  char name[2 * LS_ERROR_TEXT];
  memset(name, 'x', sizeof name);
  name[1] = '\n', name[2] = '\033', name[sizeof name - 1] = '\0';
  ls_fail(&err, LS_BAD_FIXTURE, "%s", name);
  cr_assert_eq(strlen(err.text), (size_t)LS_ERROR_TEXT - 1);
  cr_assert_eq(strpbrk(err.text, "\n\033"), NULL);
  cr_assert_str_eq(err.text + LS_ERROR_TEXT - 4, "...");
}

Test(status, every_status_has_its_own_word) {
  const ls_status all[] = {LS_OK, LS_DIVERGED, LS_USAGE, LS_BAD_FIXTURE, LS_UNAVAILABLE, LS_INTERNAL, LS_REFUSED, LS_INTERRUPTED};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++)
    for (size_t j = 0; j < i; j++) cr_assert_str_neq(ls_status_name(all[i]), ls_status_name(all[j]));
  cr_assert_str_eq(ls_status_name((ls_status)77), "unknown status");
}
