/* provenance: what this binary and this machine are, for --version and for recorded traces. */
#ifndef LS_PROVENANCE_H
#define LS_PROVENANCE_H

#include "../fixtures/ls_trace_file.h"

const char *ls_provenance_commit(void); /* as git described the tree when the build was configured; "unknown" without git */
const char *ls_provenance_compiler(void);
const char *ls_provenance_flags(void);

enum { LS_PROVENANCE_LINES = 16, LS_PROVENANCE_TEXT = 1024 };

/* Lines of ls_trace_about, ended by a NULL, with the texts they point to. */
typedef struct {
  ls_trace_about line[LS_PROVENANCE_LINES];
  char text[LS_PROVENANCE_LINES][LS_PROVENANCE_TEXT];
  int n;
} ls_provenance;

/* version, commit, compiler, flags, BLAS, CPU, kernel, driver, date, command line. */
void ls_provenance_collect(ls_provenance *provenance, int argc, char **argv);

#endif
