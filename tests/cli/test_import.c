/* lockstep import from outside: checkpoints with the published names, types and scales become fixtures, bit for bit, which both paths pass;
 * what is off is told in one line. write_checkpoint.py makes them, and says by arithmetic of its own what each weight has to become. */
#include <criterion/criterion.h>
#include <dirent.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "../fixtures/hostile_safetensors.h"
#include "fixtures/ls_fixture.h"
#include "shell_run.h"

static char folder[512];

static void make_folder(void) {
  snprintf(folder, sizeof folder, "%s/import-XXXXXX", LS_BINARY_DIR);
  cr_assert_not_null(mkdtemp(folder));
}
static void remove_folder(void) { shell_run(NULL, 0, "rm -rf %s", folder); }

TestSuite(import, .init = make_folder, .fini = remove_folder);

/* Runs lockstep in the folder; both streams land in out. */
static int lockstep(char *out, size_t size, const char *format, ...) __attribute__((format(printf, 3, 4)));
static int lockstep(char *out, size_t size, const char *format, ...) {
  char arguments[2048];
  va_list list;
  va_start(list, format);
  vsnprintf(arguments, sizeof arguments, format, list);
  va_end(list);
  return shell_run(out, size, "cd %s && %s/lockstep %s 2>&1", folder, LS_BINARY_DIR, arguments);
}

static int write_checkpoints(const char *words) {
  char out[4096];
  const int code = shell_run(out, sizeof out, "cd %s && ${LOCKSTEP_PYTHON:-python3} %s/tests/cli/write_checkpoint.py %s 2>&1", folder,
                             LS_SOURCE_DIR, words);
  cr_assert(code == 0 || code == 77, "exit %d: %s", code, out);
  return code;
}

static void passes(const char *words, const char *told) {
  static char out[1 << 16];
  const int code = lockstep(out, sizeof out, "%s", words);
  cr_expect_eq(code, 0, "lockstep %s: exit %d: %s", words, code, out);
  cr_expect_not_null(strstr(out, told), "lockstep %s: expected '%s' in: %s", words, told, out);
}

static void refused(int code, const char *words, const char *told) {
  static char out[1 << 14];
  const int found = lockstep(out, sizeof out, "%s", words);
  const char *end = strchr(out, '\n');
  cr_expect_eq(found, code, "lockstep %s: expected exit %d, found %d: %s", words, code, found, out);
  cr_expect_not_null(strstr(out, told), "lockstep %s: expected '%s' in: %s", words, told, out);
  cr_expect(end != NULL && end[1] == '\0', "lockstep %s: expected one line, found: %s", words, out);
}

/* Each weight of the fixture against the bytes that it has to have. */
static void weights_are(const char *file, const char *variant) {
  char path[1024];
  ls_fixture *fixture = NULL;
  const ls_trace *weights = NULL;
  ls_error err = {LS_OK, ""};
  snprintf(path, sizeof path, "%s/%s", folder, file);
  cr_assert_eq(ls_fixture_open(&fixture, path, NULL, &err), LS_OK, "%s", err.text);
  cr_assert_eq(ls_fixture_weights(fixture, &weights, &err), LS_OK, "%s", err.text);
  for (int i = 0; i < weights->n; i++) {
    const ls_tensor *t = &weights->rec[i].t;
    const size_t bytes = ls_tensor_bytes(t);
    snprintf(path, sizeof path, "%s/%s/expected/%s", folder, variant, weights->rec[i].name);
    for (char *c = path + strlen(folder) + strlen(variant) + 11; *c != '\0'; c++) *c = *c == '/' ? '.' : *c;
    unsigned char *expected = malloc(bytes + 1);
    FILE *f = fopen(path, "rb");
    cr_assert(expected != NULL && f != NULL, "%s", path);
    cr_expect_eq(fread(expected, 1, bytes + 1, f), bytes, "%s: %s", file, path);
    cr_expect_eq(memcmp(expected, t->data, bytes), 0, "%s: %s is not what it has to be", file, weights->rec[i].name);
    fclose(f);
    free(expected);
  }
  snprintf(path, sizeof path, "%s/%s/expected", folder, variant);
  char count[32];
  shell_run(count, sizeof count, "ls %s | wc -l", path);
  cr_expect_eq(weights->n, atoi(count), "%s: %d weights of %s", file, weights->n, count);
  ls_fixture_close(fixture);
}

#define ATTN "import --layer attn_v41 --layers 2,5-6 --prefill 8 --decode 2 --out "

Test(import, a_checkpoint_of_attn_becomes_a_fixture_that_both_paths_pass) {
  write_checkpoints(". attn attn-inference attn-shards");
  passes(ATTN "hub.h5 --config attn/config.json --weights attn",
         "hub.h5: layers 1-2,4-6 as 0-4 (1,4 because others read from there); 55 weights, 26 of them dequantised, 2 made float32, from 1 "
         "file\n");
  weights_are("hub.h5", "attn");
  passes(ATTN "inference.h5 --config attn-inference/config.json --weights attn-inference/model.safetensors", "55 weights");
  weights_are("inference.h5", "attn-inference");
  passes(
      ATTN
      "index.h5 --config attn-shards/config.json --weights attn-shards/model.safetensors.index.json --expect none --context 40 --prefill 0",
      "from 3 files");
  weights_are("index.h5", "attn-shards");
  passes(ATTN "glob.h5 --config attn-shards/config.json --weights attn-shards/*.safetensors --expect none", "from 3 files");
  weights_are("glob.h5", "attn-shards");
  passes("verify --path emu index.h5", "1 fixture: 1 pass, 0 fail");
  passes("info hub.h5", "a checkpoint's layers 1-2,4-6, seed 1, full2 reuse2 full1 reuse1 reindex, prefill of 8 and 2 decode rounds");
}

Test(import, a_checkpoint_of_a_drafter_becomes_a_fixture_that_both_paths_pass) {
  write_checkpoints(". dflash dflash-shards");
  passes("import --layer dflash_context_kv --config dflash/config.json --weights dflash --out whole.h5 --rounds 4",
         "whole.h5: layers 0-2 as 0-2; 11 weights, from 1 file\n");
  weights_are("whole.h5", "dflash");
  passes(
      "import --layer dflash --config dflash-shards/config.json --weights dflash-shards --out index.h5 --rounds 2 --ring-capacity 24 "
      "--max-rows 5 --window 18 --expect none",
      "11 weights, from 3 files");
  weights_are("index.h5", "dflash-shards");
  passes("import --layer dflash --layers 1 --config dflash/config.json --weights dflash --out one.h5 --rounds 1 --expect none",
         "one.h5: layer 1 as 0; 5 weights");
  passes("verify --path emu whole.h5 index.h5", "2 fixtures: 2 pass, 0 fail");
  passes("info index.h5 | grep ring_capacity", " 24");
  passes("info whole.h5 | grep ring_capacity", " 148");
}

Test(import, files_of_the_safetensors_package_import_bit_for_bit) {
  if (write_checkpoints("--package . attn dflash") == 77) {
    cr_assert_null(getenv("LOCKSTEP_SKIP_NOTHING"), "the Python package safetensors is not installed");
    cr_skip_test("the Python package safetensors is not installed");
  }
  passes(ATTN "attn.h5 --config attn/config.json --weights attn --expect none", "55 weights, 26 of them dequantised, 2 made float32");
  weights_are("attn.h5", "attn");
  passes("import --layer dflash --config dflash/config.json --weights dflash --out dflash.h5 --expect none", "11 weights");
  weights_are("dflash.h5", "dflash");
}

Test(import, steps_come_from_another_fixture_of_the_layer) {
  write_checkpoints(". attn dflash");
  passes(ATTN "a.h5 --config attn/config.json --weights attn --context 33 --prefill 0 --seed 5", "55 weights");
  passes("import --layer attn_v41 --layers 2,5-6 --config attn/config.json --weights attn --steps a.h5 --expect steps --out b.h5",
         "55 weights");
  passes("import --layer attn_v41 --layers 2,5-6 --config attn/config.json --weights attn --steps a.h5 --out c.h5", "55 weights");
  weights_are("b.h5", "attn");
  passes("verify --path emu b.h5", "1 fixture: 1 pass, 0 fail");
  passes("import --layer dflash --config dflash/config.json --weights dflash --rounds 3 --out d.h5", "11 weights");
  passes("import --layer dflash --config dflash/config.json --weights dflash --steps d.h5 --expect steps --out e.h5", "11 weights");
  passes("verify --path emu e.h5", "1 pass, 0 fail");
  /* but for who made them the same: config, weights, start, inputs, expected values */
  cr_expect_eq(shell_run(NULL, 0,
                         "cd %s && for f in a b d e; do %s/lockstep info $f.h5 | grep -vE '^(file|title)|stored|bytes' >$f.txt; done; "
                         "grep -q expect a.txt && cmp a.txt b.txt && cmp d.txt e.txt",
                         folder, LS_BINARY_DIR),
               0);
  refused(3, "import --layer attn_v41 --layers 2 --config attn/config.json --weights attn --steps a.h5 --out x.h5",
          "a.h5: /config@n_layers: expected 2, as attn/config.json has it, found 5");
  refused(3, "import --layer attn_v41 --config attn/config.json --weights attn --steps d.h5 --out x.h5",
          "d.h5: expected a fixture of attn_v41, found one of dflash_context_kv");
  refused(3, "import --layer attn_v41 --config attn/config.json --weights attn --steps attn/config.json --out x.h5", "attn/config.json");
}

Test(import, a_checkpoint_that_is_off_is_named_with_file_tensor_and_shapes) {
  static const char *const cases[][2] = {
      {"code-nan", "model.safetensors: layers.2.attn.wkv.weight: expected finite values, found nan at [1, 3], scaled"},
      {"scale-nan", "layers.2.attn.wo_b.weight: expected finite values, found nan at [32, 0], scaled"},
      {"scale-huge", "layers.2.attn.wo_b.weight: expected finite values, found"},
      {"norm-inf", "layers.2.attn.q_norm.weight: expected finite values, found -inf at [3]"},
      {"dtype", "layers.2.attn.wkv.weight: expected BF16 or F8_E4M3 [64, 72], found F8_E5M2 [64, 72]"},
      {"sink-dtype", "layers.2.attn.attn_sink: expected F32 [4], found I32 [4]"},
      {"shape", "layers.2.attn.wq_b.weight: expected BF16 or F8_E4M3 [256, 40], found F8_E4M3 [40, 256]"},
      {"rank", "layers.2.attn.kv_norm.weight: expected BF16, F16 or F32 [64], found BF16 [1, 64]"},
      {"scale-dtype",
       "layers.2.attn.wq_a.scale: expected F8_E8M0 [2, 3], one for each block of [32, 32] (scale-dtype/config.json), found U8 [2, 3]"},
      {"scale-shape",
       "layers.2.attn.wq_a.scale: expected F8_E8M0 [2, 3], one for each block of [32, 32] (scale-shape/config.json), found F8_E8M0 [3, 2]"},
      {"needless-scale", "layers.1.attn.indexer.wk.weight: expected F8_E4M3, as layers.1.attn.indexer.wk.scale is there, found BF16"},
      {"no-scale",
       "layers.2.attn.wq_a.scale: expected F8_E8M0 [2, 3], one for each block of [32, 32] (no-scale/config.json), found no such tensor"},
      {"no-tensor", "layers.2.attn.wo_a.weight: expected BF16 or F8_E4M3 [40, 128], found no such tensor"},
      {"no-layer", "layers.1.attn.attn_sink: expected a tensor of this name, by itself or after model. or language_model., found none"},
      {"block-64",
       "layers.1.attn.wq_a.scale: expected F8_E8M0 [1, 2], one for each block of [64, 64] (block-64/config.json), found F8_E8M0 [2, 3]"},
      {"block-128",
       "layers.1.attn.wq_a.scale: expected F8_E8M0 [1, 1], one for each block of [128, 128] (block-128/config.json), found F8_E8M0 [2, "
       "3]"}};
  char words[1024] = ".", told[512];
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) sprintf(words + strlen(words), " attn+%s", cases[i][0]);
  write_checkpoints(words);
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    snprintf(words, sizeof words, ATTN "x.h5 --expect none --config attn+%s/config.json --weights attn+%s", cases[i][0], cases[i][0]);
    const char *of_config = strstr(cases[i][1], "config.json"); /* the folder's name stands before it */
    const char *from = of_config == NULL ? "" : strchr(cases[i][1], '(');
    if (of_config == NULL) {
      snprintf(told, sizeof told, "%s", cases[i][1]);
    } else {
      snprintf(told, sizeof told, "%.*s(attn+%s", (int)(from - cases[i][1]), cases[i][1], from + 1);
    }
    refused(3, words, told);
  }
  cr_expect_eq(shell_run(NULL, 0, "ls %s/x.h5* 2>/dev/null", folder), 2, "a file was left behind");
  passes(ATTN "x.h5 --expect none --config attn+norm-inf/config.json --weights attn+norm-inf --allow-nonfinite", "55 weights");
}

Test(import, each_hostile_file_is_refused_with_one_line_and_exit_3) {
  char file[1024];
  write_checkpoints(". dflash");
  snprintf(file, sizeof file, "%s/hostile.safetensors", folder);
  for (size_t i = 0; i < n_hostile_files; i++) {
    write_hostile(file, &hostile_files[i]);
    refused(3, "import --layer dflash --config dflash/config.json --weights hostile.safetensors --out x.h5", hostile_files[i].told);
  }
  cr_expect_eq(shell_run(NULL, 0, "ls %s/x.h5* 2>/dev/null", folder), 2, "a file was left behind");
}

Test(import, wrong_words_are_usage_with_one_line) {
  static const char *const wrong[][2] = {
      {"", "--layer LAYER is needed"},
      {"--layer mamba", "--layer: expected attn_v41, dflash_context_kv, attn or dflash, found 'mamba'"},
      {"--layer attn", "--config FILE is needed"},
      {"--layer attn --config c", "--weights PATH is needed"},
      {"--layer attn --config c --weights w", "--out FILE is needed"},
      {"--layer attn --config c --out o w", "unexpected argument 'w'"},
      {"--layer attn --config c --weights w --out o --rounds 3", "--rounds is of dflash_context_kv"},
      {"--layer dflash --config c --weights w --out o --prefill 3", "--prefill is of attn_v41"},
      {"--layer dflash --config c --weights w --out o --values tiny", "--values is of attn_v41"},
      {"--layer dflash --config c --weights w --out o --steps s --seed 3", "--seed is for drawn steps: --steps brings its own"},
      {"--layer dflash --config c --weights w --out o --expect steps", "--steps FILE is needed"},
      {"--layer dflash --config c --weights w --out o --expect gold", "--expect: expected ref, none or steps, found 'gold'"},
      {"--layer attn --config c --weights w --out o --values amax", "--values: expected normal, shifted, heavy, constant or tiny"},
      {"--layer attn --roles all", "unknown option '--roles'"},
      {"--layer", "'--layer' needs a value"}};
  char words[512];
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    snprintf(words, sizeof words, "import %s", wrong[i][0]);
    refused(2, words, wrong[i][1]);
  }
  write_checkpoints(". attn");
  refused(2, "import --layer attn --config attn/config.json --weights attn --out x.h5 --layers 7-9",
          "--layers: expected 0 .. 7, the layers of attn/config.json, found 9");
  refused(2, "import --layer attn --config attn/config.json --weights attn --out none/x.h5 --layers 2", "none/x.h5");
  refused(2, "import --layer attn --config attn/config.json --weights attn --out x.h5 --layers 2 --prefill 4 --context 9", "prefill");
  refused(2, "import --layer attn --config attn/config.json --weights attn attn --out x.h5 --layers 2",
          "attn: expected files of safetensors where there are several, found a folder");
  refused(3, "import --layer attn --config absent.json --weights attn --out x.h5", "absent.json: cannot be opened");
  refused(3, "import --layer attn --config attn/config.json --weights absent --out x.h5", "absent: cannot be opened");
  refused(3, "import --layer dflash --config attn/config.json --weights attn --out x.h5",
          "attn/config.json: num_key_value_heads: expected a whole number, found nothing");
}

Test(import, help_lists_every_option) {
  static char out[1 << 14];
  static const char *const names[] = {
      "--layer",   "--config",    "--weights",  "--out",    "--layers",        "--steps",   "--expect",     "--allow-nonfinite",
      "--threads", "--seed",      "--prefill",  "--decode", "--context",       "--jump",    "--index-keys", "--values",
      "--rounds",  "--positions", "--straddle", "--window", "--ring-capacity", "--max-rows"};
  cr_expect_eq(lockstep(out, sizeof out, "import --help"), 0);
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) cr_expect_not_null(strstr(out, names[i]), "%s", names[i]);
}

/* docs/import.md: after "$ " a command, after it what it prints. */
Test(import, the_documented_commands_print_what_is_documented) {
  static char out[1 << 14], told[1 << 14];
  char line[1024], command[1024] = "";
  int commands = 0;
  FILE *doc = fopen(LS_SOURCE_DIR
                    "/"
                    "docs/import.md",
                    "r");
  cr_assert_not_null(doc);
  cr_assert_eq(shell_run(NULL, 0, "ln -s %s/tests %s/tests", LS_SOURCE_DIR, folder), 0);
  for (bool more = true; more;) {
    more = fgets(line, sizeof line, doc) != NULL;
    if (command[0] != '\0' && (!more || line[0] == '$' || line[0] == '`')) { /* the end of what the command before prints */
      shell_run(out, sizeof out, "cd %s && PATH=%s:$PATH && %s 2>&1", folder, LS_BINARY_DIR, command);
      cr_expect_str_eq(out, told, "%s: printed %s", command, out);
      command[0] = told[0] = '\0';
      commands++;
    } else if (command[0] != '\0') {
      strcat(told, line);
    }
    if (more && strncmp(line, "$ ", 2) == 0) snprintf(command, sizeof command, "%.*s", (int)strcspn(line, "\n") - 2, line + 2);
  }
  fclose(doc);
  cr_expect_eq(commands, 8);
}
