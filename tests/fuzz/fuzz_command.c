/* Fuzz target: the command line. Bytes become the words of one command, which runs in this process in a folder of its own, its output
 * thrown away: cli/, and through it the sessions and the reports. Words are mostly those that the commands know, else any bytes without a
 * '/', so that no other folder is written to. What starts processes is left out (--isolate, libraries), and sizes are kept small.
 *
 *   byte < 192: a known word; else a text of byte % 32 bytes that follow. 255 ends the words: the rest becomes the file `known`.
 *
 * It must return one of the documented exit codes. */
#include <fcntl.h>
#include <getopt.h>
#include <limits.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "cli/verify_session.h"
#include "core/ls_parallel.h"
#include "fuzz_target.h"
#include "tests/fixtures/sound_fixture.h"

int lockstep_main(int argc, char **argv); /* cli/lockstep.c, its main renamed */
extern volatile sig_atomic_t ls_interrupted;

static char folder[128];
static int inside, outside; /* folders: libFuzzer's own files are outside */

static void make_traces(void) {
  static const ls_trace_about about[] = {{"commit", "0123abc"}, {NULL, NULL}};
  static volatile sig_atomic_t never;
  static const char *const of[] = {"f.h5", "s.h5"}, *const to[] = {"t.h5", "at.h5", "d.h5", "ad.h5"};
  for (int i = 0; i < 4; i++) {
    ls_error err = {LS_OK, ""};
    ls_report *report = NULL;
    ls_recording recording = {.file = to[i], .digest = i >= 2, .about = about};
    const ls_verify_options options = {
        .path = {&ls_path_ref}, .n_paths = 1, .only_step = -1, .record = &recording, .trust = true, .interrupted = &never};
    fuzz_expect("ls_report_new", ls_report_new(&report, &err), 1u << LS_OK, &err);
    fuzz_expect("recording", ls_verify_fixture(of[i % 2], &options, report, &err), 1u << LS_OK, &err);
    ls_report_free(report);
  }
}

static void forget_folder(void) {
  static const char *const files[] = {"f.h5",  "a.h5",   "s.h5",  "t.h5", "at.h5",  "d.h5",
                                      "ad.h5", "bad.h5", "known", "out",  "out.h5", "out.json"};
  if (fchdir(inside) != 0) return;
  for (size_t i = 0; i < sizeof files / sizeof *files; i++) unlink(files[i]);
  rmdir("dir");
  if (fchdir(outside) == 0) rmdir(folder); /* stays where words made other files in it */
}

int LLVMFuzzerInitialize(int *argc, char ***argv) {
  (void)argc, (void)argv;
  const char *parent = getenv("TMPDIR");
  snprintf(folder, sizeof folder, "%.80s/fuzz_command.XXXXXX", parent != NULL ? parent : P_tmpdir);
  outside = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (outside < 0 || mkdtemp(folder) == NULL || chdir(folder) != 0) abort();
  inside = open(".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  atexit(forget_folder);
  ls_threads_set(1);
  write_small("f.h5");
  write_small_attn("a.h5", false);
  write_small_attn("s.h5", true);
  make_traces();
  FILE *bad = fopen("bad.h5", "w");
  if (bad == NULL || fputs("no HDF5", bad) < 0 || fclose(bad) != 0 || mkdir("dir", 0700) != 0 || fchdir(outside) != 0) abort();
  return 0;
}

#if defined(FUZZ_MUTATES)
/* The probe's child is a copy of a process that a sanitizer has made large: most of a run's time. Files here are sound, or no HDF5 at all,
 * and fuzz_bytes is for the others. A replay has the probe. */
ls_status __wrap_ls_fixture_probe(const char *file, ls_error *err);
ls_status __wrap_ls_fixture_probe(const char *file, ls_error *err) {
  (void)file, (void)err;
  return LS_OK;
}
#endif

/* ---- words ---- */

static const char *const words[] = {"verify",
                                    "record",
                                    "diff",
                                    "bisect",
                                    "info",
                                    "gen",
                                    "--version",
                                    "--help",
                                    "dflash",
                                    "attn",
                                    "f.h5",
                                    "a.h5",
                                    "s.h5",
                                    "t.h5",
                                    "at.h5",
                                    "d.h5",
                                    "ad.h5",
                                    "bad.h5",
                                    "none.h5",
                                    "dir",
                                    "known",
                                    "out",
                                    "out.h5",
                                    "out.json",
                                    "/dev/null",
                                    "/dev/full",
                                    ".",
                                    "",
                                    "--path",
                                    "--against",
                                    "--bits",
                                    "--stage",
                                    "--step",
                                    "--precision",
                                    "--threads",
                                    "--emu-schedule",
                                    "--device",
                                    "--report",
                                    "--timeout",
                                    "--memory",
                                    "--json",
                                    "--junit",
                                    "--calibrate",
                                    "--known-failures",
                                    "--allow-mistrusted",
                                    "--allow-nonfinite",
                                    "--times",
                                    "--trust",
                                    "--fixture",
                                    "--digest",
                                    "--out",
                                    "--shape",
                                    "--seed",
                                    "--rounds",
                                    "--positions",
                                    "--straddle",
                                    "--act",
                                    "--expect",
                                    "--roles",
                                    "--prefill",
                                    "--decode",
                                    "--context",
                                    "--jump",
                                    "--index-keys",
                                    "--values",
                                    "--refusals",
                                    "ref",
                                    "emu",
                                    "cuda",
                                    "auto",
                                    "ref,emu",
                                    "emu,ref",
                                    "ref,ref,ref",
                                    ",",
                                    "act",
                                    "f64",
                                    "bf16",
                                    "f16",
                                    "none",
                                    "own",
                                    "published",
                                    "all",
                                    "window,full2",
                                    "reindex",
                                    "full2,,",
                                    "tiny",
                                    "nan",
                                    "huge",
                                    "tied",
                                    "normal",
                                    "k_rope",
                                    "k_*",
                                    "[",
                                    "[!a-",
                                    "*",
                                    "k_rope.1",
                                    "write-set",
                                    "\\",
                                    "0",
                                    "1",
                                    "2",
                                    "3",
                                    "7",
                                    "-1",
                                    "0:64",
                                    "3:1",
                                    "0:2147483647",
                                    "2147483648",
                                    "9223372036854775807",
                                    "9223372036854775808",
                                    "1025",
                                    "1e3",
                                    " 5",
                                    "5x",
                                    "0x10",
                                    "0.5",
                                    "1e400",
                                    "-0",
                                    "nan",
                                    "inf",
                                    "--",
                                    "-",
                                    "-x",
                                    "--pat",
                                    "--no",
                                    "--path=ref",
                                    "--out=out.h5",
                                    "--seed=",
                                    "f.h5:k_rope:golden-ref",
                                    "merge"};

enum { MOST_WORDS = 24, MOST_SIZE = 24 };

/* A word of its own, made safe: no other folder, nothing that is loaded or started, no control over this process' own files. */
static void take_text(char *text, size_t n, fuzz_bytes *b) {
  for (size_t i = 0; i < n; i++) {
    text[i] = (char)fuzz_u8(b);
    if (text[i] == '/') text[i] = '_';
  }
  text[n] = '\0';
  char *library;
  while ((library = strstr(text, ".so")) != NULL) library[1] = '_';
  for (char *c = text; strchr(text, ':') != NULL && (c = strchr(c, ':')) != NULL; c++)
    if (strncmp(c, ":ref", 4) == 0 || strncmp(c, ":emu", 4) == 0 || strncmp(c, ":cuda", 5) == 0) *c = '_';
}

/* Whether this word makes a run long where the next one is a large number, or "real". */
static bool sizes(const char *word) {
  static const char *const heavy[] = {"--rounds", "--decode", "--prefill", "--context", "--threads", "--shape"};
  for (size_t i = 0; i < sizeof heavy / sizeof *heavy; i++) /* getopt_long takes what an option begins with */
    if (strlen(word) > 2 && strncmp(word, heavy[i], strcspn(word, "=") < strlen(heavy[i]) ? strcspn(word, "=") : strlen(heavy[i])) == 0)
      return true;
  return false;
}

static void keep_small(char *word, const char *before) {
  const char *equals = strchr(word, '=');
  char *value = sizes(before) ? word : sizes(word) && equals != NULL ? word + (equals - word) + 1 : NULL;
  if (value == NULL) return;
  if (value[0] == 'r' || value[0] == 'm') value[0] = '1'; /* real, mid */
  char *end = NULL;
  const long long number = strtoll(value, &end, 10);
  if (number > MOST_SIZE && number <= INT_MAX) strcpy(value, "9"); /* beyond the range of any option it may stay */
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_bytes b = {data, data + size};
  static char text[MOST_WORDS][64];
  char program[] = "lockstep", *argv[MOST_WORDS + 2] = {program};
  int argc = 1;
  while (argc <= MOST_WORDS && b.at < b.end) {
    const uint8_t kind = fuzz_u8(&b);
    if (kind == 255) break;
    char *word = text[argc - 1];
    if (kind < 192)
      snprintf(word, sizeof text[0], "%s", words[kind % (sizeof words / sizeof *words)]);
    else
      take_text(word, kind % 32u, &b);
    keep_small(word, argv[argc - 1]);
    argv[argc++] = word;
  }
  if (argc > 1 && strcmp(argv[1], "__serve-path") == 0) return 0; /* ends the process by design */
  if (argc > 1 && strcmp(argv[1], "fuzz") == 0) return 0;         /* starts a process for each of its cases */

  FILE *known = fchdir(inside) == 0 ? fopen("known", "w") : NULL;
  if (known == NULL) abort();
  fwrite(b.at, 1, (size_t)(b.end - b.at), known);
  fclose(known);

  FILE *const was_out = stdout, *const was_err = stderr;
  struct sigaction interrupt, end, pipe;
  sigaction(SIGINT, NULL, &interrupt);
  sigaction(SIGTERM, NULL, &end);
  sigaction(SIGPIPE, NULL, &pipe);
  stdout = stderr = fuzz_nowhere();
  const int code = lockstep_main(argc, argv);
  stdout = was_out, stderr = was_err;
  sigaction(SIGINT, &interrupt, NULL);
  sigaction(SIGTERM, &end, NULL);
  sigaction(SIGPIPE, &pipe, NULL);
  optind = 0; /* what a half read word left behind is gone at the next look */
  opterr = 0;
  getopt(1, argv, "");
  opterr = 1;
  ls_threads_set(1);
  if (fchdir(outside) != 0) abort();
  if (code >= 0 && code <= LS_INTERNAL) return 0;
  fprintf(stderr, "fuzz: the command came to exit code %d:", code);
  for (int i = 0; i < argc; i++) fprintf(stderr, " '%s'", argv[i]);
  fputc('\n', stderr);
  abort();
}
