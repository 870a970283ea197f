/* The command under attack from around it: outputs that vanish or fill up, readers that leave, signals at any moment, files that change
 * under it, memory that runs out or must not grow. docs/robustness.md says what is promised. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <criterion/criterion.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scratch.h"

#define LOCKSTEP LS_BINARY_DIR "/lockstep"
#define GOLDEN   LS_SOURCE_DIR "/fixtures/golden/"

TestSuite(robust, .init = set_up, .fini = tear_down, .timeout = 900);

static void expect_no_file(const char *pattern) { cr_expect_neq(run("ls %s 2>/dev/null", pattern), 0, "left behind: %s", out); }

/* ---- options ---- */

Test(robust, diff_refuses_what_it_cannot_use) {
  cr_assert_eq(run("$L record --path ref --out t.h5 $G"), 0, "%s", out);
  expect(2, "unknown option '--isolate'", "$L diff --isolate t.h5 ref");
  expect(2, "unknown option '--timeout'", "$L diff --timeout 5 t.h5 ref");
  expect(2, "unknown option '--memory'", "$L diff --memory 100 t.h5 ref");
}

/* A trace beside a digest holds no ring in values: a ring that fails by its hashes was explained from a null pointer. */
Test(robust, a_trace_against_a_digest_of_another_path_is_judged) {
  cr_assert_eq(run("$L gen dflash --seed 3 --rounds 2 --out a.h5 && $L gen dflash --seed 3 --rounds 2 --expect none --out b.h5"), 0, "%s",
               out);
  cr_assert_eq(run("$L record --path emu --out t.h5 a.h5 && $L record --path ref --digest --out d.h5 a.h5"), 0, "%s", out);
  const int code = run("$L diff t.h5 d.h5");
  cr_expect(code == 0 || code == 1, "expected exit 0 or 1, found %d: %s", code, out);
}

/* ---- outputs ---- */

Test(robust, a_reader_who_leaves_costs_no_file) {
  run("(set +e; $L verify --path ref --json r.json --junit r.xml --report r.html $G 2>said; echo $? >code) | true");
  expect(0, "5", "cat code");
  expect(0, "writ", "cat said");
  expect(0, "r.xml", "grep -l lockstep-report r.json && grep -l '</html>' r.html && grep -l '</testsuites>' r.xml");
}

Test(robust, a_closed_stream_is_no_place_for_a_file) {
  expect(5, "standard output", "$L record --path ref --out t.h5 $G >&-");
  expect(0, "every stage", "$L info t.h5");
  expect(0, "", "$L gen dflash --rounds 1 --out g.h5 <&- >&- 2>&-");
  expect(0, "steps", "$L info g.h5");
}

Test(robust, a_limit_on_file_size_is_a_full_disk) {
  static const char *const commands[] = {"gen dflash --rounds 2 --out f.h5",         "record --path ref --out f.h5 $G",
                                         "record --path ref --digest --out f.h5 $G", "verify --path ref --json f.h5 $G",
                                         "verify --path ref --report f.h5 $G",       "verify --path ref --junit f.h5 $G"};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    char command[256];
    snprintf(command, sizeof command, "(ulimit -f 2; $L %s)", commands[i]);
    expect(5, "written", command);
    expect_no_file("f.h5*");
  }
}

Test(robust, a_full_disk_is_one_line_and_no_file) {
  if (run("mkdir small && unshare -m sh -c 'mount -t tmpfs -o size=64k none small'") != 0) return; /* not allowed to mount here */
  static const char *const commands[] = {"gen dflash --rounds 2 --out small/f.h5", "record --path ref --out small/f.h5 $G",
                                         "verify --path ref --report small/f.h5 $G"};
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    char command[512];
    snprintf(command, sizeof command,
             "export L G; unshare -m sh -c 'mount -t tmpfs -o size=64k none small; head -c 50000 /dev/zero >small/x; $L %s; c=$?; ls "
             "small; exit $c'",
             commands[i]);
    expect(5, "No space left on device", command);
    cr_expect_null(strstr(out, "f.h5\n"), "left behind: %s", out);
  }
}

Test(robust, a_folder_that_vanishes_is_an_error_at_the_end) {
  static const char *const commands[] = {"gen dflash --rounds 60 --out gone/f.h5", "record --path emu --out gone/f.h5 long.h5"};
  cr_assert_eq(run("$L gen dflash --rounds 30 --expect none --out long.h5"), 0, "%s", out);
  for (size_t i = 0; i < sizeof commands / sizeof *commands; i++) {
    char command[512];
    snprintf(command, sizeof command,
             "mkdir gone; $L %s & p=$!; until ls gone/*tmp* >/dev/null 2>&1; do sleep 0.01; done; rm -rf gone; wait $p", commands[i]);
    expect(5, "cannot be written: No such file or directory", command);
  }
}

/* ---- killed ---- */

/* A file that is there is whole, whenever it was looked at. */
Test(robust, killed_at_any_moment_it_leaves_no_half_file) {
  cr_assert_eq(run("$L gen dflash --rounds 4 --out f.h5"), 0, "%s", out);
  for (int i = 0; i < 12; i++) {
    const double after = 0.02 + 0.03 * i;
    run("timeout -s KILL %g $L gen dflash --rounds 6 --out g.h5", after);
    run("timeout -s KILL %g $L record --path ref --trust --out t.h5 f.h5", after);
    run("timeout -s KILL %g $L verify --path ref --trust --json r.json --report r.html f.h5", after);
    cr_expect_eq(run("test ! -e g.h5 || $L info g.h5"), 0, "%s", out);
    cr_expect_eq(run("test ! -e t.h5 || $L info t.h5"), 0, "%s", out);
    cr_expect_eq(run("test ! -e r.json || tail -1 r.json | grep -q '^}'"), 0, "%s", out);
    cr_expect_eq(run("test ! -e r.html || tail -1 r.html | grep -q '</html>'"), 0, "%s", out);
  }
  expect(0, "", "$L gen dflash --rounds 6 --out g.h5 && $L record --path ref --out t.h5 f.h5 && $L diff t.h5 ref");
}

/* ---- interrupted ---- */

static void expect_interrupted(const char *signal_name, const char *command, const char *text) {
  const int code = run("timeout --preserve-status -s %s 1 %s", signal_name, command);
  cr_expect_eq(code, 130, "%s %s: expected exit 130, found %d:\n%s", signal_name, command, code, out);
  cr_expect_not_null(strstr(out, text), "%s: expected '%s' in:\n%s", command, text, out);
}

Test(robust, an_interrupt_finishes_the_report_of_every_command) {
  cr_assert_eq(run("$L gen dflash --rounds 150 --expect none --out f.h5 && $L record --path ref --digest --out t.h5 f.h5"), 0, "%s", out);
  expect_interrupted("TERM", "$L verify --path emu --json r.json " GOLDEN "dflash_real_shape.h5", "NOT FINISHED (interrupted)");
  expect(0, "interrupted", "cat r.json");
  expect_interrupted("INT", "$L bisect --path emu " GOLDEN "dflash_real_shape.h5", "interrupted");
  expect_interrupted("INT", "$L diff --trust t.h5 emu --fixture f.h5", "NOT FINISHED (interrupted)");
  expect_interrupted("TERM", "$L record --path emu --out r.h5 " GOLDEN "dflash_real_shape.h5", "interrupted");
  expect_interrupted("TERM", "$L gen dflash --rounds 100000 --out r.h5", "interrupted");
  expect_no_file("r.h5*");
}

Test(robust, a_second_interrupt_ends_at_once) {
  const int code =
      run("$L verify --path emu " GOLDEN "dflash_real_shape.h5 & p=$!; sleep 0.6; kill -TERM $p; sleep 0.8; kill -TERM $p; wait $p");
  cr_expect(code == 143 || code == 130, "expected 143, or 130 where it had ended, found %d: %s", code, out);
}

/* ---- files that change ---- */

Test(robust, a_file_that_changes_while_it_is_read_is_a_bad_one_or_as_it_was) {
  cr_assert_eq(run("$L gen dflash --rounds 3 --seed 2 --out a.h5 && $L gen dflash --rounds 3 --seed 5 --out b.h5 && cp a.h5 f.h5"), 0, "%s",
               out);
  for (int i = 0; i < 8; i++) {
    const int code =
        run("(while [ ! -e stop ]; do cat b.h5 >f.h5; truncate -s %d f.h5; cat a.h5 >f.h5; done) & "
            "for k in 1 2 3; do $L verify --path ref %s f.h5 >/dev/null 2>said; c=$?; [ $c -le 3 ] || break; done; "
            "touch stop; wait; rm stop; cat said; exit $c",
            1000 + 7000 * i, i % 2 == 1 ? "--trust" : "");
    cr_expect(code == 0 || code == 1 || code == 3, "expected exit 0, 1 or 3, found %d: %s", code, out);
  }
}

/* ---- memory ---- */

#if !defined(__SANITIZE_ADDRESS__) /* it has a memory of its own */
static long peak_kib(const char *path, const char *fixture) {
  char file[512];
  struct rusage used;
  int status = 0;
  snprintf(file, sizeof file, "%s/%s", folder, fixture);
  fflush(NULL);
  const pid_t pid = fork();
  if (pid == 0) {
    const int null = open("/dev/null", O_WRONLY);
    dup2(null, 1), dup2(null, 2);
    execl(LOCKSTEP, "lockstep", "verify", "--threads", "1", "--trust", "--path", path, file, (char *)NULL);
    _exit(127);
  }
  cr_assert_eq(wait4(pid, &status, 0, &used), pid);
  cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "verify --path %s %s: status %d", path, fixture, status);
  return used.ru_maxrss;
}

/* What libhdf5 keeps of metadata by itself was 20 KiB a step and more; what the index of a file needs is 3. */
Test(robust, memory_does_not_grow_with_the_steps) {
  cr_assert_eq(run("$L gen dflash --rounds 40 --out short.h5 && $L gen dflash --rounds 240 --out long.h5"), 0, "%s", out);
  static const char *const paths[] = {"ref", "emu"};
  for (int p = 0; p < 2; p++) {
    const long few = peak_kib(paths[p], "short.h5"), many = peak_kib(paths[p], "long.h5");
    cr_expect_lt(many - few, 9000, "path %s: 170 steps take %ld KiB, 1000 take %ld", paths[p], few, many);
  }
}

/* Of each 400 allocations one; scripts/starve tries them all. */
Test(robust, memory_that_runs_out_is_a_line_wherever_it_does) {
  const int code = run(LS_SOURCE_DIR "/scripts/starve --build " LS_BINARY_DIR " --every 400 --from 1");
  cr_expect_eq(code, 0, "%s", out);
}
#endif
