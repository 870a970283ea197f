/* verify_command: the command line of what judges and reports, shared by `verify` and `diff`. */
#ifndef LS_VERIFY_COMMAND_H
#define LS_VERIFY_COMMAND_H

#include "verify_session.h"

typedef struct {
  const char *name, *help;
  int least, most;    /* operands */
  const char *wanted; /* what is said where there are fewer or more */
  /* Runs the sessions into the report; may complete options and report_options, whose additions must outlive the call. A status other than
   * LS_OK ends the command before anything is reported, its line in err. NULL: the operands are fixtures. */
  ls_status (*run)(ls_verify_options *options, ls_report_options *report_options, const char *fixture, ls_report *report, char **operands,
                   ls_error *err);
} ls_verify_command;

ls_status ls_verify_command_run(const ls_verify_command *command, int argc, char **argv);

#endif
