/* lockstep: the command line. Exit codes: 0 all pass, 1 a divergence or nothing proved, 2 usage, 3 bad fixture, 4 device or path not
 * available, 5 internal error, 130 interrupted. */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "../core/ls_gemm.h"
#include "../core/ls_parallel.h"
#include "../core/ls_shortage.h"
#include "cli.h"

volatile sig_atomic_t ls_interrupted = 0;

/* The first one lets the run end in order; another, half a second later or more, ends the program at once. Sooner it is the same one,
 * delivered to the process and to its group. */
static void on_interrupt(int signal_number) {
  static struct timespec first;
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  if (ls_interrupted && (double)(now.tv_sec - first.tv_sec) + 1e-9 * (double)(now.tv_nsec - first.tv_nsec) > 0.5) {
    signal(signal_number, SIG_DFL);
    raise(signal_number);
  }
  if (!ls_interrupted) first = now;
  ls_interrupted = 1;
}

/* What is opened would else take the place of a standard stream that the caller has closed, and be written to as that. Not writable:
 * whoever writes to a closed output is told, as by the system. */
static void fill_closed_streams(void) {
  for (int fd = open("/dev/null", O_RDONLY); fd >= 0; fd = open("/dev/null", O_RDONLY)) {
    if (fd <= STDERR_FILENO) continue;
    close(fd);
    return;
  }
}

ls_status ls_cli_number(const char *option, const char *text, long long low, long long high, long long *value) {
  char *end = NULL;
  errno = 0;
  *value = strtoll(text, &end, 10);
  if (errno == 0 && end != text && *end == '\0' && *value >= low && *value <= high) return LS_OK;
  fprintf(stderr, "lockstep: %s: expected a whole number from %lld to %lld, found '%s'\n", option, low, high, text);
  return LS_USAGE;
}

ls_status ls_cli_optarg(const char *option, long long low, long long high, int64_t *to) {
  long long value = 0;
  LS_TRY(ls_cli_number(option, optarg, low, high, &value));
  *to = value;
  return LS_OK;
}

static const char usage[] =
    "lockstep: runs the reference and the CUDA path of a layer side by side and names the first place where they part\n"
    "\n"
    "  lockstep verify [options] FIXTURE...   compare golden, reference and GPU path, stage by stage\n"
    "  lockstep bisect [options] FIXTURE      the first step and stage where what fails was introduced, or where two builds part\n"
    "  lockstep record [options] FIXTURE      what one path does with a fixture, into a file\n"
    "  lockstep diff [options] A B            two recordings, or one and a path that runs here\n"
    "  lockstep bench [options] [SCENARIO]... how long steps take, and whether that is longer than before\n"
    "  lockstep info FILE...                  what a fixture or a recording holds\n"
    "  lockstep gen dflash|attn [options]     make a scenario\n"
    "  lockstep import [options]              make a fixture of a published checkpoint's weights\n"
    "  lockstep export [options] FILE         what a fixture or a recording holds, as arrays for NumPy\n"
    "  lockstep fuzz dflash|attn [options]    random scenarios, without fixtures; what fails is shrunk to a minimal one\n"
    "  lockstep merge [options] REPORT...     the reports of sharded runs as one\n"
    "  lockstep --version [--json]            this build, its libraries, the devices of this machine\n"
    "\n"
    "lockstep COMMAND --help lists a command's options. Exit codes: 0 all pass, 1 divergence or nothing proved, 2 usage,\n"
    "3 bad fixture, 4 device or path not available, 5 internal error, 130 interrupted.\n";

/* OpenBLAS maps a buffer for each thread that calls it, and for each thread of its own as soon as it is loaded; where there is no room it
 * tries again for ever, and a fork or exit waits for it. So under a limit on the address space (ulimit -v) the program starts again with
 * no threads of OpenBLAS's own (it uses none), and then, for a command that multiplies, says so where its own threads' buffers do not fit.
 */
static void expect_room_for_blas(char **argv, bool multiplies) {
  enum { MIB_A_THREAD = 128, MIB_BESIDE = 64 };
  struct rlimit limit;
  if (getrlimit(RLIMIT_AS, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  const char *blas_threads = getenv("OPENBLAS_NUM_THREADS");
  if ((blas_threads == NULL || strcmp(blas_threads, "1") != 0) && setenv("OPENBLAS_NUM_THREADS", "1", 1) == 0) execvp(argv[0], argv);
  if (!multiplies) return;
  const size_t mib = (size_t)ls_threads() * MIB_A_THREAD + MIB_BESIDE;
  void *room = mmap(NULL, mib << 20, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) {
    fprintf(stderr, "lockstep: the limit on address space (ulimit -v %llu) leaves no %zu MiB for the buffers of OpenBLAS, %d a thread\n",
            (unsigned long long)limit.rlim_cur >> 10, mib, MIB_A_THREAD);
    _exit(LS_INTERNAL);
  }
  munmap(room, mib << 20);
}

/* The same way to kernels that suit the processor, unless somebody chose. */
static void expect_fast_blas(char **argv) {
  const char *core = ls_gemm_faster_core();
  if (core != NULL && getenv("OPENBLAS_CORETYPE") == NULL && setenv("OPENBLAS_CORETYPE", core, 1) == 0) execvp(argv[0], argv);
}

static ls_status run_command(int argc, char **argv) {
  const char *command = argc > 1 ? argv[1] : "";
  const bool judges = strcmp(command, "verify") == 0 || strcmp(command, "record") == 0 || strcmp(command, "diff") == 0 ||
                      strcmp(command, "bisect") == 0 || strcmp(command, "fuzz") == 0 || strcmp(command, "bench") == 0;
  const bool multiplies = judges || strcmp(command, "gen") == 0 || strcmp(command, "import") == 0;
  expect_room_for_blas(argv, multiplies);
  if (multiplies) expect_fast_blas(argv);
  if (strcmp(command, "verify") == 0) return ls_cmd_verify(argc - 1, argv + 1);
  if (strcmp(command, "record") == 0) return ls_cmd_record(argc - 1, argv + 1);
  if (strcmp(command, "diff") == 0) return ls_cmd_diff(argc - 1, argv + 1);
  if (strcmp(command, "bisect") == 0) return ls_cmd_bisect(argc - 1, argv + 1);
  if (strcmp(command, "bench") == 0) return ls_cmd_bench(argc - 1, argv + 1);
  if (strcmp(command, "info") == 0) return ls_cmd_info(argc - 1, argv + 1);
  if (strcmp(command, "gen") == 0) return ls_cmd_gen(argc - 1, argv + 1);
  if (strcmp(command, "import") == 0) return ls_cmd_import(argc - 1, argv + 1);
  if (strcmp(command, "export") == 0) return ls_cmd_export(argc - 1, argv + 1);
  if (strcmp(command, "fuzz") == 0) return ls_cmd_fuzz(argc - 1, argv + 1);
  if (strcmp(command, "merge") == 0) return ls_cmd_merge(argc - 1, argv + 1);
  if (strcmp(command, "__serve-path") == 0) return ls_cmd_serve(argc - 1, argv + 1);
  if (strcmp(command, "--version") == 0) return ls_cmd_version(argc - 1, argv + 1);
  if (strcmp(command, "--help") == 0 || strcmp(command, "help") == 0) {
    fputs(usage, stdout);
    return LS_OK;
  }
  if (*command != '\0') fprintf(stderr, "lockstep: unknown command '%s'\n", command);
  fputs(usage, stderr);
  return LS_USAGE;
}

int main(int argc, char **argv) {
  struct sigaction action;
  memset(&action, 0, sizeof action);
  action.sa_handler = on_interrupt;
  sigaction(SIGINT, &action, NULL);
  sigaction(SIGTERM, &action, NULL);
  signal(SIGPIPE, SIG_IGN); /* who reads the table may leave: the files that were asked for are still written */
  signal(SIGXFSZ, SIG_IGN); /* a limit on file size is an error of the write, like a full disk */
  fill_closed_streams();

  ls_status status = run_command(argc, argv);
  if (ls_shortage_take() && status != LS_INTERNAL) { /* LS_INTERNAL has had its line */
    fprintf(stderr, "lockstep: out of memory: the report is not whole\n");
    status = LS_INTERNAL;
  }
  /* Output is buffered, so a full disk may show only here; LS_INTERNAL has had its line. */
  errno = 0;
  if ((fflush(stdout) != 0 || ferror(stdout)) && status != LS_INTERNAL) {
    fprintf(stderr, "lockstep: cannot write to standard output%s%s\n", errno ? ": " : "", errno ? strerror(errno) : "");
    status = LS_INTERNAL;
  }
  return (int)status;
}
