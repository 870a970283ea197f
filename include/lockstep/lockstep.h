/* lockstep/lockstep.h: the harness as a library, for a test-suite that judges its own kernels without starting a process. Link liblockstep
 * (CMake: find_package(lockstep) and lockstep::lockstep; pkg-config: lockstep). What is judged, and how: `lockstep verify`, lockstep(1).
 *
 *   lockstep_options options = LOCKSTEP_OPTIONS_INIT;
 *   options.paths = "./libmine.so";                   your kernels behind lockstep/plugin.h; or "cuda"
 *   lockstep_report *report = lockstep_report_new(0);
 *   lockstep_finding first = LOCKSTEP_FINDING_INIT;
 *   int32_t status = lockstep_verify(report, "fixture.h5", &options, &first);
 *   if (first.found) printf("step %lld: %s: %s\n", (long long)first.step, first.name, first.where);
 *   lockstep_report_write(report, LOCKSTEP_HTML, "report.html");
 *   lockstep_report_free(report);
 *
 * Not thread-safe: one call at a time in a process. A call uses all cores unless options.threads says else. It writes nothing to the
 * standard streams, installs no signal handlers and does not end the process. */
#ifndef LOCKSTEP_LOCKSTEP_H
#define LOCKSTEP_LOCKSTEP_H

#include "plugin.h" /* LOCKSTEP_EXPORT */

#ifdef __cplusplus
extern "C" {
#endif

/* Moves, and with it the name of the shared library, when a program that was built for an earlier one can no longer be run. Structs grow
 * only at their ends, which does not move it: `size` says how much of one the caller knows. */
#define LOCKSTEP_ABI 0

/* What a run came to: the exit codes of the command line. */
enum {
  LOCKSTEP_PASSES = 0,
  LOCKSTEP_DIVERGES = 1,    /* something failed, or nothing was proved */
  LOCKSTEP_WRONG_CALL = 2,  /* an option is off, or a call is in progress */
  LOCKSTEP_BAD_FIXTURE = 3, /* the file is not what the format says */
  LOCKSTEP_NO_PATH = 4,     /* a path or device cannot be used here */
  LOCKSTEP_INTERNAL = 5     /* out of memory, a failed device call, a file that cannot be written */
};

/* lockstep_options.flags */
enum {
  LOCKSTEP_ALLOW_NONFINITE = 1, /* NaN and infinity in weights and inputs are fine */
  LOCKSTEP_RELATIONS = 2,       /* each path against itself, too; slower */
  LOCKSTEP_PROBE = 4            /* read the file in a child process (a fork) first, as the command does: a damaged file may crash HDF5 */
};

/* lockstep_report_new's flags */
enum {
  LOCKSTEP_ALLOW_MISTRUSTED = 1 /* MISTRUSTED, MISSING and nothing compared do not fail */
};

typedef struct lockstep_options {
  uint32_t size;
  uint32_t flags;
  /* As of `lockstep verify --path`: of ref, cuda, emu, auto, a library (./libmine.so), another build's path (FOLDER/lockstep:cuda), commas
   * between; NULL: auto. The reference always runs. */
  const char *paths;
  /* The lockstep program whose child processes libraries run in, so that a crash or hang in one is a result; NULL: the one installed with
   * this library, then that on PATH. */
  const char *program;
  const char *stage; /* judge only matching stages and properties: "k_rope", "k_*"; NULL: all */
  int64_t step;      /* judge only this one; -1: all */
  int32_t threads;   /* of the reference and the emulator; 0: all cores */
  int32_t device;    /* CUDA device */
  double timeout;    /* seconds that a call of a library may take; 0: 120 */
} lockstep_options;

#define LOCKSTEP_OPTIONS_INIT \
  { sizeof(lockstep_options), 0, NULL, NULL, NULL, -1, 0, 0, 0 }

/* The first place where a fixture fails: of the first step that has one, in the order of computation. */
typedef struct lockstep_finding {
  uint32_t size;
  int32_t found;
  int32_t is_property; /* "write-set", "idempotence", ...; else a stage */
  int32_t cascaded;    /* a stage: differs only on what earlier steps left; 0: introduced in it */
  int64_t step;
  char name[96];   /* "k_rope.0" */
  char where[128]; /* "layer 3 row 7 (position 2183, slot 7) head 2 channel 81" */
  char note[320];  /* may be empty */
} lockstep_finding;

#define LOCKSTEP_FINDING_INIT \
  { sizeof(lockstep_finding), 0, 0, 0, -1, "", "", "" }

/* What the calls of lockstep_verify found, fixture by fixture. */
typedef struct lockstep_report lockstep_report;

/* NULL: out of memory. */
LOCKSTEP_EXPORT lockstep_report *lockstep_report_new(uint32_t flags);
LOCKSTEP_EXPORT void lockstep_report_free(lockstep_report *report); /* NULL is fine */

/* Runs every path over the fixture's steps and judges them. Returns what this fixture came to, which is in the report too, unless the
 * fixture was not come to at all: a wrong call, a path that is not there. first: NULL, or where it first fails. */
LOCKSTEP_EXPORT int32_t lockstep_verify(lockstep_report *report, const char *fixture, const lockstep_options *options,
                                        lockstep_finding *first);

/* The worst of all fixtures so far; LOCKSTEP_DIVERGES before the first. */
LOCKSTEP_EXPORT int32_t lockstep_report_status(const lockstep_report *report);

enum { LOCKSTEP_TEXT = 0, LOCKSTEP_JSON = 1, LOCKSTEP_JUNIT = 2, LOCKSTEP_HTML = 3 };

/* The report as a file, whole or not at all; LOCKSTEP_PASSES where it is written. */
LOCKSTEP_EXPORT int32_t lockstep_report_write(lockstep_report *report, int32_t format, const char *file);

/* One line on why the last call with this report did not end well; "" where it did. Good until the next call. */
LOCKSTEP_EXPORT const char *lockstep_report_why(const lockstep_report *report);

/* "0.1.0 (commit 1a2b3c4)" */
LOCKSTEP_EXPORT const char *lockstep_version(void);

#ifdef __cplusplus
}
#endif
#endif
