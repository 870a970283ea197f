/* lockstep diff: two recorded traces, or one and a path that runs here, judged and reported as verify does. */
#include <libgen.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "cli.h"
#include "session_path_list.h"
#include "verify_command.h"

static const char help_diff[] =
    "usage: lockstep diff [options] A B\n"
    "\n"
    "A and B: traces made by lockstep record, of one fixture; one of them may be a path that runs here: ref, cuda, emu, auto.\n"
    "Each is judged against the fixture and the reference, and B against A.\n"
    "\n"
    "  --fixture FILE          the fixture; default: the file that the trace names, or one of its name beside the trace\n"
    "  --stage GLOB            judge only matching stages and properties: k_rope, k_rope.3, 'k_*', write-set\n"
    "  --step N                judge only step N (earlier ones run, unjudged)\n"
    "  --precision act|f64     of the reference: the contract's rounding points, or double without them (default act)\n"
    "  --threads N             of the reference and the emulator together with their BLAS (default: all cores)\n"
    "  --emu-schedule SEED     run the emulator's threads in a random order between rendezvous points\n"
    "  --device N              CUDA device (default 0)\n"
    "  --json FILE             the report as JSON (docs/report.schema.json)\n"
    "  --known-failures FILE   one FIXTURE:STAGE[.LAYER]:PAIR a line (globs, # comments): these may fail, and must not pass\n"
    "  --allow-mistrusted      MISTRUSTED, MISSING and nothing compared do not fail\n"
    "  --allow-nonfinite       NaN and infinity in weights and inputs are fine\n"
    "  --trust                 do not read the files in a child process first\n";

/* A trace, or a path. */
typedef struct {
  ls_trace_reader *trace;
  const ls_path *path;
  char name[LS_NAME_MAX]; /* of a trace: "cuda@A" */
} operand;

static bool is_path_name(const char *text) {
  static const char *const names[] = {"ref", "cuda", "emu", "auto"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(text, names[i]) == 0) return true;
  return false;
}

static ls_status open_operand(operand *o, const char *text, char letter, bool trust, ls_error *err) {
  if (is_path_name(text)) return ls_own_path(text, &o->path, err);
  if (!trust) LS_TRY(ls_fixture_probe(text, err));
  LS_TRY(ls_trace_reader_open(&o->trace, text, err));
  snprintf(o->name, sizeof o->name, "%.16s@%c", ls_trace_reader_path(o->trace), letter);
  return LS_OK;
}

/* Where the fixture is that a trace names: as named, or beside the trace. */
static ls_status find_fixture(const ls_trace_reader *trace, char **file, ls_error *err) {
  const char *named = ls_trace_reader_fixture(trace);
  char *folder_copy = strdup(ls_trace_reader_file(trace)), *name_copy = strdup(named);
  ls_status status = LS_OK;
  *file = NULL;
  if (folder_copy == NULL || name_copy == NULL) {
    status = ls_fail(err, LS_INTERNAL, "out of memory");
  } else if (access(named, R_OK) == 0) {
    *file = strdup(named);
  } else {
    const char *folder = dirname(folder_copy), *name = basename(name_copy);
    const size_t room = strlen(folder) + strlen(name) + 2;
    *file = malloc(room);
    if (*file != NULL) snprintf(*file, room, "%s/%s", folder, name);
    if (*file != NULL && access(*file, R_OK) != 0)
      status = ls_fail(err, LS_USAGE, "%s: was recorded from %s, which is not here: --fixture FILE says where it is",
                       ls_trace_reader_file(trace), named);
  }
  if (status == LS_OK && *file == NULL) status = ls_fail(err, LS_INTERNAL, "out of memory");
  free(folder_copy);
  free(name_copy);
  return status;
}

/* One session: the reference, then the operands. What stops it is in the report. */
static void judge(ls_verify_options *options, ls_report *report, const char *fixture, const operand *const *o, int n) {
  ls_error why = {LS_OK, ""};
  options->path[0] = &ls_path_ref;
  options->recorded[0] = NULL;
  options->n_paths = 1;
  for (int i = 0; i < n; i++) {
    if (o[i]->trace == NULL && o[i]->path == &ls_path_ref) continue; /* always there */
    options->path[options->n_paths] = o[i]->path;
    options->recorded[options->n_paths] = o[i]->trace;
    options->recorded_name[options->n_paths] = o[i]->name;
    options->n_paths++;
  }
  ls_verify_fixture(fixture, options, report, &why);
}

static ls_status diff(ls_verify_options *options, ls_report_options *report_options, const char *fixture, ls_report *report,
                      char **operands, ls_error *err) {
  static const char *both[3]; /* read after this returned */
  operand a = {.trace = NULL}, b = {.trace = NULL};
  char *found = NULL;
  bool apart[LS_MAX_PATHS] = {false}, alone[LS_MAX_PATHS] = {false};
  ls_status status;
  both[0] = operands[0];
  both[1] = operands[1];
  report_options->operands = both;
  LS_TRY_OUT(open_operand(&a, operands[0], 'A', options->trust, err));
  LS_TRY_OUT(open_operand(&b, operands[1], 'B', options->trust, err));
  if (a.trace == NULL && b.trace == NULL) {
    status =
        ls_fail(err, LS_USAGE, "diff: at least one of %s and %s has to be a trace; lockstep verify runs paths", operands[0], operands[1]);
    goto out;
  }
  if (fixture == NULL) {
    LS_TRY_OUT(find_fixture(a.trace != NULL ? a.trace : b.trace, &found, err));
    fixture = found;
  }
  const operand *const together[] = {a.trace != NULL ? &a : &b, a.trace != NULL ? &b : &a}; /* traces first: they are paths 1 and 2 */
  options->apart = apart;
  judge(options, report, fixture, together, 2);
  options->apart = alone;
  for (int i = 0; i < 2 && together[1]->trace != NULL; i++)
    if (apart[1 + i] && !ls_interrupted) judge(options, report, fixture, &together[i], 1); /* by itself, on what it was given */
out:
  ls_trace_reader_close(a.trace);
  ls_trace_reader_close(b.trace);
  free(found);
  return status;
}

ls_status ls_cmd_diff(int argc, char **argv) {
  static const ls_verify_command command = {
      .name = "diff", .help = help_diff, .least = 2, .most = 2, .wanted = "expected two traces, or a trace and a path", .run = diff};
  return ls_verify_command_run(&command, argc, argv);
}
