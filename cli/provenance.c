#include "provenance.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/utsname.h>
#include <time.h>

#include "../core/ls_gemm.h"
#include "../core/ls_parallel.h"
#include "../core/ls_shortage.h"

#if !defined(LS_COMMIT) || !defined(LS_COMPILER) || !defined(LS_COMPILE_FLAGS)
#define LS_COMMIT        "unknown"
#define LS_COMPILER      "unknown"
#define LS_COMPILE_FLAGS "unknown"
#endif

const char *ls_provenance_commit(void) { return LS_COMMIT; }
const char *ls_provenance_compiler(void) { return LS_COMPILER; }
const char *ls_provenance_flags(void) { return LS_COMPILE_FLAGS; }

static void add(ls_provenance *p, const char *name, const char *value) {
  if (p->n + 1 >= LS_PROVENANCE_LINES || value[0] == '\0') return;
  snprintf(p->text[p->n], sizeof p->text[p->n], "%s", value);
  p->line[p->n] = (ls_trace_about){name, p->text[p->n]};
  p->n++;
}

/* What stands after "key" and a colon or blanks in the first line of a file that begins with it; "" where there is none. */
static void line_of(char *value, size_t size, const char *file, const char *key) {
  char line[512];
  value[0] = '\0';
  FILE *in = fopen(file, "r");
  if (in == NULL) {
    if (errno == ENOMEM) ls_shortage_note(); /* a fact would be missing as if the machine had none */
    return;
  }
  while (value[0] == '\0' && fgets(line, sizeof line, in) != NULL) {
    if (strncmp(line, key, strlen(key)) != 0) continue;
    const char *from = line + strlen(key);
    from += strspn(from, " \t:");
    snprintf(value, size, "%.*s", (int)strcspn(from, "\n"), from);
  }
  fclose(in);
}

void ls_provenance_collect(ls_provenance *p, int argc, char **argv) {
  char text[LS_PROVENANCE_TEXT];
  struct utsname system;
  memset(p, 0, sizeof *p);
  add(p, "lockstep", LS_VERSION);
  add(p, "commit", LS_COMMIT);
  add(p, "compiler", LS_COMPILER);
  add(p, "flags", LS_COMPILE_FLAGS);
  add(p, "blas", ls_gemm_library());
  line_of(text, sizeof text, "/proc/cpuinfo", "model name");
  add(p, "cpu", text);
  snprintf(text, sizeof text, "%d", ls_threads());
  add(p, "threads", text);
  if (uname(&system) == 0) {
    snprintf(text, sizeof text, "%s %s %s", system.sysname, system.release, system.machine);
    add(p, "system", text);
  }
  line_of(text, sizeof text, "/proc/driver/nvidia/version", "NVRM version");
  add(p, "driver", text);
  const time_t now = time(NULL);
  struct tm utc;
  if (gmtime_r(&now, &utc) != NULL && strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &utc) > 0) add(p, "date", text);
  text[0] = '\0';
  for (int i = 0; i < argc; i++) {
    const size_t used = strlen(text);
    snprintf(text + used, sizeof text - used, "%s%s", i > 0 ? " " : "", argv[i]);
  }
  add(p, "command", text);
}
