/* lockstep verify: fixtures through every path, judged, reported. */
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "cli.h"
#include "run_options.h"
#include "verify_command.h"

static const char help_verify[] =
    "usage: lockstep verify [options] FIXTURE...\n"
    "\n"
    "  --path LIST             of ref, cuda, emu, auto (cuda where a device is present, else emu), a library of yours (./libmine.so) or\n"
    "                          another build's path (FOLDER/lockstep:cuda); default auto. The reference always runs\n"
    "  --stage GLOB            judge only matching stages and properties: k_rope, k_rope.3, 'k_*', write-set\n"
    "  --step N                judge only step N (earlier ones run, unjudged)\n"
    "  --precision act|f64     of the reference: the contract's rounding points, or double without them (default act)\n"
    "  --threads N             of the reference and the emulator together with their BLAS (default: all cores)\n"
    "  --emu-schedule SEED     run the emulator's threads in a random order between rendezvous points\n"
    "  --device N              CUDA device (default 0)\n"
    "  --shard I/N             of the fixtures named only each N-th, from the I-th on; `lockstep merge` puts reports together\n"
    "  --report FILE           the report as one HTML page, with where differences lie\n"
    "  --isolate               run cuda and emu in a child process too, as libraries always are\n"
    "  --timeout SECONDS       a call of a path in a child process may take (default 120)\n"
    "  --memory MIB            address space of a child process beside what it starts with (default: no limit)\n"
    "  --json FILE             the report as JSON (docs/report.schema.json)\n"
    "  --junit FILE            the report as JUnit XML, for continuous integration\n"
    "  --calibrate             print what each stage uses of its bound over all fixtures, instead of the table; a run that fails prints\n"
    "                          both\n"
    "  --known-failures FILE   one FIXTURE:STAGE[.LAYER]:PAIR a line (globs, # comments): these may fail, and must not pass\n"
    "  --allow-mistrusted      MISTRUSTED, MISSING and nothing compared do not fail\n"
    "  --allow-nonfinite       NaN and infinity in weights and inputs are fine\n"
    "  --relations             judge each path against itself, too, in runs whose outcome must relate (docs/relations.md); slower\n"
    "  --times                 note the time of each path's traced context_writes and forwards\n"
    "  --trust                 do not read the file in a child process first\n";

enum {
  OPT_PATH = 256,
  OPT_STAGE,
  OPT_STEP,
  OPT_PRECISION,
  OPT_SHARD,
  OPT_REPORT,
  OPT_JSON,
  OPT_JUNIT,
  OPT_CALIBRATE,
  OPT_KNOWN,
  OPT_MISTRUSTED,
  OPT_RELATIONS,
  OPT_TIMES,
  OPT_FIXTURE,
  OPT_HELP
};

static const struct option long_options[] = {{"path", required_argument, NULL, OPT_PATH},
                                             {"stage", required_argument, NULL, OPT_STAGE},
                                             {"step", required_argument, NULL, OPT_STEP},
                                             {"precision", required_argument, NULL, OPT_PRECISION},
                                             LS_RUN_OPTIONS,
                                             LS_CHILD_OPTIONS,
                                             {"shard", required_argument, NULL, OPT_SHARD},
                                             {"report", required_argument, NULL, OPT_REPORT},
                                             {"json", required_argument, NULL, OPT_JSON},
                                             {"junit", required_argument, NULL, OPT_JUNIT},
                                             {"calibrate", no_argument, NULL, OPT_CALIBRATE},
                                             {"known-failures", required_argument, NULL, OPT_KNOWN},
                                             {"allow-mistrusted", no_argument, NULL, OPT_MISTRUSTED},
                                             {"relations", no_argument, NULL, OPT_RELATIONS},
                                             {"times", no_argument, NULL, OPT_TIMES},
                                             {"fixture", required_argument, NULL, OPT_FIXTURE},
                                             {"help", no_argument, NULL, OPT_HELP},
                                             {NULL, 0, NULL, 0}};

typedef struct {
  const ls_verify_command *command;
  ls_verify_options verify;
  ls_report_options report;
  ls_path_list list;
  const char *paths, *html, *json, *junit, *known_file, *fixture;
  bool calibrate;
  ls_repeat repeat;
  char **known;
  int n_known;
} arguments;

static ls_status choose_paths(arguments *a) {
  LS_TRY(ls_cli_paths(&a->list, "--path", a->paths));
  memcpy(a->verify.path, a->list.path, sizeof a->verify.path);
  a->verify.n_paths = a->list.n;
  a->verify.may_drop_paths = a->list.may_drop;
  return LS_OK;
}

static ls_status read_known(arguments *a) {
  FILE *file = fopen(a->known_file, "r");
  if (file == NULL) {
    const bool no_memory = errno == ENOMEM;
    fprintf(stderr, "lockstep: --known-failures: cannot read %s%s\n", a->known_file, no_memory ? ": out of memory" : "");
    return no_memory ? LS_INTERNAL : LS_USAGE;
  }
  ls_status status = LS_OK;
  char line[512];
  while (status == LS_OK && fgets(line, sizeof line, file) != NULL) {
    if (strchr(line, '\n') == NULL && !feof(file)) {
      fprintf(stderr, "lockstep: --known-failures: %s: a line of more than %zu characters\n", a->known_file, sizeof line - 2);
      status = LS_USAGE;
      break;
    }
    line[strcspn(line, "#\r\n")] = '\0';
    char *start = line + strspn(line, " \t");
    size_t length = strlen(start);
    while (length > 0 && (start[length - 1] == ' ' || start[length - 1] == '\t')) start[--length] = '\0';
    if (length == 0) continue;
    const char *first = strchr(start, ':');
    if (first == NULL || strchr(first + 1, ':') == NULL) {
      fprintf(stderr, "lockstep: --known-failures: %s: expected FIXTURE:STAGE:PAIR or FIXTURE:PROPERTY:PATH, found '%s'\n", a->known_file,
              start);
      status = LS_USAGE;
      break;
    }
    char **grown = realloc(a->known, sizeof *grown * (size_t)(a->n_known + 2));
    if (grown == NULL) {
      status = LS_INTERNAL;
      break;
    }
    a->known = grown;
    a->known[a->n_known] = strdup(start);
    if (a->known[a->n_known] == NULL) status = LS_INTERNAL;
    a->n_known += status == LS_OK;
    a->known[a->n_known] = NULL;
  }
  if (status == LS_INTERNAL) fprintf(stderr, "lockstep: --known-failures: out of memory\n");
  if (status == LS_OK && ferror(file)) {
    fprintf(stderr, "lockstep: --known-failures: cannot read %s\n", a->known_file);
    status = LS_USAGE;
  }
  fclose(file);
  return status;
}

static ls_status parse(arguments *a, int argc, char **argv) {
  long long value = 0;
  int c;
  optind = 1;
  while ((c = getopt_long(argc, argv, "", long_options, NULL)) != -1) {
    bool taken;
    LS_TRY(ls_run_option(c, &a->verify, &a->list, &a->repeat, &taken));
    if (taken) continue;
    switch (c) {
      case OPT_PATH:
        a->paths = optarg;
        break;
      case OPT_STAGE:
        a->verify.stage_glob = optarg;
        break;
      case OPT_STEP:
        LS_TRY(ls_cli_number("--step", optarg, 0, INT64_MAX, &value));
        a->verify.only_step = value;
        break;
      case OPT_PRECISION:
        if (strcmp(optarg, "f64") != 0 && strcmp(optarg, "act") != 0) {
          fprintf(stderr, "lockstep: --precision: expected act or f64, found '%s'\n", optarg);
          return LS_USAGE;
        }
        a->verify.options.precision = strcmp(optarg, "f64") == 0 ? LS_PRECISION_F64 : LS_PRECISION_ACT;
        ls_repeat_add(&a->repeat, "precision", optarg);
        break;
      case OPT_SHARD:
        LS_TRY(ls_cli_shard(optarg, &a->report.shard, &a->report.shards));
        break;
      case OPT_REPORT:
        a->html = optarg;
        a->verify.details = true;
        break;
      case OPT_JSON:
        a->json = optarg;
        break;
      case OPT_JUNIT:
        a->junit = optarg;
        break;
      case OPT_CALIBRATE:
        a->calibrate = true;
        break;
      case OPT_KNOWN:
        a->known_file = optarg;
        break;
      case OPT_MISTRUSTED:
        a->report.allow_mistrusted = true;
        break;
      case OPT_RELATIONS:
        a->verify.relations = true;
        ls_repeat_add(&a->repeat, "relations", NULL);
        break;
      case OPT_TIMES:
        a->verify.times = true;
        break;
      case OPT_FIXTURE:
        a->fixture = optarg;
        break;
      case OPT_HELP:
        fputs(a->command->help, stdout);
        return LS_REFUSED;
      default:
        fputs(a->command->help, stderr);
        return LS_USAGE;
    }
  }
  return LS_OK;
}

/* What one command takes and the other does not. */
static ls_status check_words(const arguments *a, int operands) {
  const bool diff = a->command->run != NULL;
  const char *stranger = diff && a->paths != NULL      ? "--path"
                         : diff && a->verify.times     ? "--times"
                         : diff && a->verify.relations ? "--relations"
                         : diff && a->report.shards    ? "--shard"
                         : diff && a->list.isolate     ? "--isolate" /* no path of diff's runs in a child process */
                         : diff && a->list.limited     ? a->list.limited
                         : !diff && a->fixture         ? "--fixture"
                                                       : NULL;
  if (stranger != NULL) {
    fprintf(stderr, "lockstep %s: unknown option '%s'\n%s", a->command->name, stranger, a->command->help);
  } else if (operands < a->command->least || operands > a->command->most) {
    fprintf(stderr, "lockstep %s: %s\n%s", a->command->name, a->command->wanted, a->command->help);
  } else {
    return LS_OK;
  }
  return LS_USAGE;
}

/* Every file that was asked for, also where one before it could not be written; the first error counts. */
static ls_status write_files(const arguments *a, const ls_report *report, ls_error *err) {
  ls_status json = LS_OK, junit = LS_OK, html = LS_OK;
  if (a->json != NULL) json = ls_report_json(report, &a->report, a->json, err);
  if (a->junit != NULL) junit = ls_report_junit(report, &a->report, a->junit, err);
  if (a->html != NULL) html = ls_report_html(report, &a->report, a->html, err);
  return json != LS_OK ? json : junit != LS_OK ? junit : html;
}

static ls_status verify_all(const arguments *a, ls_report *report, int n, char **files) {
  for (int i = 0; i < n && !ls_interrupted; i++) {
    if (a->report.shards > 0 && i % a->report.shards != a->report.shard) continue;
    ls_error why = {LS_OK, ""};
    ls_verify_fixture(files[i], &a->verify, report, &why); /* what stopped it is in the report */
  }
  return LS_OK;
}

ls_status ls_verify_command_run(const ls_verify_command *command, int argc, char **argv) {
  arguments a;
  memset(&a, 0, sizeof a);
  a.command = command;
  ls_path_list_init(&a.list, &ls_interrupted);
  a.verify.only_step = -1;
  a.verify.interrupted = &ls_interrupted;
  a.verify.progress = isatty(STDERR_FILENO) != 0;
  a.report.program = "lockstep";
  a.report.command = command->name;
  a.report.colour = isatty(STDOUT_FILENO) != 0 && getenv("NO_COLOR") == NULL;
  struct winsize size;
  if (a.report.colour && ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 80) a.report.width = size.ws_col;

  ls_error err = {LS_OK, ""};
  ls_report *report = NULL;
  ls_status status = parse(&a, argc, argv);
  if (status == LS_REFUSED) return LS_OK; /* help was asked for */
  if (status == LS_OK) status = check_words(&a, argc - optind);
  const bool chooses = command->run == NULL;
  if (chooses && a.paths == NULL) a.paths = "auto";
  if (status == LS_OK && a.known_file != NULL) status = read_known(&a);
  if (status == LS_OK) status = ls_cli_output("--json", a.json, false); /* now, not after the whole run */
  if (status == LS_OK) status = ls_cli_output("--junit", a.junit, false);
  if (status == LS_OK) status = ls_cli_output("--report", a.html, false);
  if (status == LS_OK && chooses) status = choose_paths(&a);
  if (status != LS_OK) goto out;
  if (chooses) ls_repeat_add(&a.repeat, "path", a.paths);
  if (a.fixture != NULL) ls_repeat_add(&a.repeat, "fixture", a.fixture);
  a.report.repeat_options = a.repeat.text;
  a.report.known_failures = (const char *const *)a.known;

  status = ls_report_new(&report, &err);
  if (status == LS_OK)
    status = chooses ? verify_all(&a, report, argc - optind, argv + optind)
                     : command->run(&a.verify, &a.report, a.fixture, report, argv + optind, &err);
  const bool table = !a.calibrate || (status == LS_OK && ls_report_status(report, &a.report) != LS_OK);
  if (status == LS_OK && table) status = ls_report_text(report, &a.report, stdout, &err);
  if (status == LS_OK && a.calibrate) status = ls_report_calibrate(report, stdout, &err);
  if (status == LS_OK && (fflush(stdout) != 0 || ferror(stdout)))
    status = ls_fail(&err, LS_INTERNAL, "cannot write the report to standard output");
  if (report != NULL) {
    const ls_status written = write_files(&a, report, &err);
    if (status == LS_OK) status = written;
  }
  if (status != LS_OK)
    fprintf(stderr, "lockstep: %s\n", err.text);
  else
    status = ls_report_status(report, &a.report);
out:
  ls_report_free(report);
  ls_path_list_free(&a.list);
  for (int i = 0; i < a.n_known; i++) free(a.known[i]);
  free(a.known);
  return status;
}

ls_status ls_cmd_verify(int argc, char **argv) {
  static const ls_verify_command verify = {
      .name = "verify", .help = help_verify, .least = 1, .most = INT_MAX, .wanted = "no fixture named"};
  return ls_verify_command_run(&verify, argc, argv);
}
