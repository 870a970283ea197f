/* lockstep export as a user runs it: exit codes, NumPy's own reading of what it wrote, and no half file whatever ends it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include "scratch.h"

TestSuite(export_command, .init = set_up, .fini = tear_down, .timeout = 600);

static void expect_files(const char *names) {
  run("ls -A | tr '\\n' ' '");
  cr_expect_str_eq(out, names);
}

Test(export_command, words_that_are_wrong_are_told) {
  expect(0, "--only GLOB", "$L export --help");
  expect(2, "--out FILE.npz is needed", "$L export $F/golden/dflash_rounds.h5");
  expect(2, "expected one fixture or trace", "$L export --out a.npz");
  expect(2, "expected one fixture or trace", "$L export --out a.npz x.h5 y.h5");
  expect(2, "unrecognized option '--csv'", "$L export --csv --out a.npz x.h5");
  expect(2, "expected a whole number from 1", "$L export --threads 0 --out a.npz x.h5");
  expect(2, "no array has a name like 'nothing/*'", "$L export --only 'nothing/*' --out a.npz $F/golden/dflash_rounds.h5");
  expect(2, "a device or a pipe", "$L export --out /dev/full $F/golden/dflash_rounds.h5");
  expect(2, "cannot be written", "$L export --out no/folder/a.npz $F/golden/dflash_rounds.h5");
  expect(2, "cannot be written", "$L export --out . $F/golden/dflash_rounds.h5");
  expect(2, "is the file that is read", "cp $F/golden/dflash_f16.h5 f.h5; ln -s f.h5 l.npz; $L export --out l.npz f.h5");
  expect(0, "", "cmp f.h5 $F/golden/dflash_f16.h5 && rm f.h5 l.npz");
  expect(3, "cannot be opened", "$L export --out a.npz none.h5");
  expect(3, "expected an HDF5 file", "$L export --out a.npz $F/ls_fixture.h");
  expect(3, "expected a file, found a directory", "$L export --out a.npz $F");
  expect_files("");
}

Test(export_command, a_file_that_is_not_what_the_format_says_is_refused) {
  expect(3, "", "head -c 100000 $F/golden/dflash_rounds.h5 >cut.h5; $L export --out a.npz cut.h5");
  /* a byte in the middle of a chunk: its checksum tells; without the probe it is met while the file is written */
  run("cp $F/golden/dflash_rounds.h5 flipped.h5; printf '\\377\\001\\377' | dd of=flipped.h5 bs=1 seek=20000 conv=notrunc");
  expect(3, "flipped.h5: /", "$L export --out a.npz flipped.h5");
  expect(3, "flipped.h5: /", "$L export --trust --out a.npz flipped.h5");
  expect_files("cut.h5 flipped.h5 ");
}

static void compare_with_numpy(const char *file, const char *options) {
  cr_assert_eq(run("$L export --npz %s --out a.npz %s", options, file), 0, "%s", out);
  const int code = run("${LOCKSTEP_PYTHON:-python3} %s/tests/cli/compare_npz.py %s a.npz %s", LS_SOURCE_DIR, file, options);
  if (code == 77) {
    cr_assert_null(getenv("LOCKSTEP_SKIP_NOTHING"), "%s", out);
    cr_skip_test("NumPy or h5py is not installed");
  }
  cr_expect_eq(code, 0, "%s %s: %s", file, options, out);
}

Test(export_command, numpy_loads_what_h5py_reads) {
  cr_assert_eq(run("$L record --path ref --out t.h5 $F/golden/dflash_f16.h5 && $L record --path ref --digest --out d.h5 "
                   "$F/golden/attn_v41_single_token.h5"),
               0, "%s", out);
  compare_with_numpy("$F/golden/dflash_rounds.h5", "");
  compare_with_numpy("$F/golden/dflash_f16.h5", "");
  compare_with_numpy("$F/golden/attn_v41_context_4k.h5", "--bits"); /* generated tensors and masks */
  compare_with_numpy("$F/real/minilm_drafter.h5", "--bits");
  compare_with_numpy("t.h5", "");
  compare_with_numpy("d.h5", "");
}

/* The comparison sees one flipped bit. */
Test(export_command, comparison_with_numpy_can_fail) {
  cr_assert_eq(run("$L export --out a.npz $F/golden/dflash_rounds.h5"), 0, "%s", out);
  const int code = run("${LOCKSTEP_PYTHON:-python3} %s/tests/cli/compare_npz.py $F/golden/dflash_far_position.h5 a.npz", LS_SOURCE_DIR);
  if (code == 77) cr_skip_test("NumPy or h5py is not installed");
  cr_expect_eq(code, 1, "%s", out);
}

/* ---- no half file ---- */

Test(export_command, a_disk_that_is_full_leaves_what_was_there) {
  expect(0, "", "echo as it was >a.npz");
  for (int kib = 0; kib < 1800; kib += 300) { /* the whole file has some 2200 */
    char command[256];
    snprintf(command, sizeof command, "(ulimit -f %d; $L export --out a.npz $F/golden/dflash_rounds.h5)", kib);
    expect(5, "a.npz: cannot be written: File too large", command);
    expect(0, "as it was", "cat a.npz");
    expect_files("a.npz ");
  }
  if (run("mkdir small && unshare -m sh -c 'mount -t tmpfs -o size=64k none small'") != 0) return; /* not allowed to mount here */
  expect(5, "No space left on device",
         "export L F; unshare -m sh -c 'mount -t tmpfs -o size=1m none small; $L export --out small/a.npz $F/golden/dflash_rounds.h5; "
         "c=$?; ls "
         "-A small; exit $c'");
  cr_expect_null(strstr(out, "a.npz.tmp"), "%s", out);
}

Test(export_command, killed_at_any_moment_the_file_is_whole_or_as_it_was) {
  run("echo as it was >a.npz");
  for (double after = 0.002; after < 0.5; after *= 1.3) {
    run("timeout -s KILL %g $L export --trust --out a.npz $F/golden/dflash_rounds.h5", after);
    /* or the last thing of a zip is its last thing */
    cr_expect_eq(run("grep -qx 'as it was' a.npz || test $(tail -c 22 a.npz | head -c 4 | od -An -tx1 | tr -d ' ') = 504b0506"), 0,
                 "after %g s: %s", after, out);
  }
}

Test(export_command, interrupted_it_says_so_and_leaves_nothing) {
  int seen = 0;
  for (double after = 0.01; after < 0.5; after *= 1.4) {
    const int code =
        run("timeout -s INT %g $L export --trust --out a.npz $F/golden/attn_v41_context_4k.h5 ; code=$?; rm -f a.npz; exit $code", after);
    cr_expect(code == 0 || code == 124 || code == 130, "after %g s: %d %s", after, code, out);
    seen += strstr(out, "interrupted: no file was written") != NULL;
    expect_files("");
  }
  cr_expect_gt(seen, 0);
}

/* A generated weight of 131 million elements, 500 MiB as float32, under a limit on memory that would not hold it. */
/* KiB that were resident while one tensor was exported. */
static long resident_with(const char *tensor) {
  char path[512];
  struct rusage used;
  int status = -1;
  snprintf(path, sizeof path, "%s/a.npz", folder);
  const pid_t child = fork();
  cr_assert_geq(child, 0);
  if (child == 0) {
    execl(LS_BINARY_DIR "/lockstep", "lockstep", "export", "--threads", "1", "--trust", "--only", tensor, "--out", path,
          LS_SOURCE_DIR "/fixtures/golden/dflash_real_shape.h5", (char *)NULL);
    _exit(127);
  }
  cr_assert_eq(wait4(child, &status, 0, &used), child);
  cr_expect(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%s: ended with %d", tensor, status);
  return used.ru_maxrss;
}

/* 262 MB stored, 524 MB as float32, beside 10 KB. (A limit on address space would not do: a build with cuda maps a gigabyte of libraries.)
 */
Test(export_command, memory_does_not_grow_with_a_tensor) {
  const long small = resident_with("weights/hidden_norm"), large = resident_with("weights/fc");
  cr_expect_lt(large, small + 50 * 1024, "%ld KiB resident, %ld with a small tensor", large, small);
}
