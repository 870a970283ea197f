/* lockstep --version [--json]: this build, the libraries that it runs with, and the devices that it finds. */
#include <jansson.h>
#include <stdio.h>
#include <string.h>

#include "../core/ls_gemm.h"
#include "../fixtures/ls_fixture.h"
#include "../gpu/gpu_devices.h"
#include "../layers/ls_path.h"
#include "cli.h"
#include "provenance.h"

enum { PATHS = 2 };
static const char *const path_names[PATHS] = {"emu", "cuda"};

/* "available", or why it is not. */
static const char *path_words(const char *name, ls_error *why) {
  if (ls_path_find(name) == NULL) return "not in this build";
  return ls_path_available(name, why) == LS_OK ? "available" : why->text;
}

/* 13010 is 13.1, as the toolkit numbers its versions. */
static const char *cuda_version(char text[16], int version) {
  snprintf(text, 16, "%d.%d", version / 1000, version % 1000 / 10);
  return text;
}

static json_t *version_json(int version) {
  char text[16];
  return version > 0 ? json_string(cuda_version(text, version)) : json_null();
}

static void print_text(const ls_gpu_devices *devices, const char *hdf5) {
  char runtime[16], driver[16];
  printf("lockstep %s (commit %s)\ncompiler: %s\nflags: %s\n%s\n%s\n", LS_VERSION, ls_provenance_commit(), ls_provenance_compiler(),
         ls_provenance_flags(), hdf5, ls_gemm_library());
  for (int i = 0; i < PATHS; i++) {
    ls_error why = {LS_OK, ""};
    printf("%s: %s\n", path_names[i], path_words(path_names[i], &why));
  }
  if (devices->runtime > 0)
    printf("CUDA runtime %s, %s%s\n", cuda_version(runtime, devices->runtime), devices->driver > 0 ? "driver for " : "no driver",
           devices->driver > 0 ? cuda_version(driver, devices->driver) : "");
  for (int i = 0; i < devices->n; i++) {
    const ls_gpu_device *d = &devices->device[i];
    printf("device %d: %s, compute capability %d.%d, %.0f GiB\n", i, d->name, d->major, d->minor, d->bytes / 1073741824.0);
  }
}

static ls_status print_json(const ls_gpu_devices *devices, const char *hdf5) {
  json_t *paths = json_object(), *list = json_array();
  json_t *root = json_pack("{s:s, s:s, s:s, s:s, s:s, s:s, s:o, s:o}", "version", LS_VERSION, "commit", ls_provenance_commit(), "compiler",
                           ls_provenance_compiler(), "flags", ls_provenance_flags(), "hdf5", hdf5, "openblas", ls_gemm_library(), "paths",
                           paths, "devices", list);
  if (root == NULL) {
    fprintf(stderr, "lockstep --version: out of memory\n");
    return LS_INTERNAL;
  }
  bool whole = true;
  for (int i = 0; i < PATHS; i++) {
    ls_error why = {LS_OK, ""};
    whole &= json_object_set_new(paths, path_names[i], json_string(path_words(path_names[i], &why))) == 0;
  }
  whole &= json_object_set_new(root, "cuda_runtime", version_json(devices->runtime)) == 0;
  whole &= json_object_set_new(root, "cuda_driver", version_json(devices->driver)) == 0;
  for (int i = 0; i < devices->n; i++) {
    const ls_gpu_device *d = &devices->device[i];
    char capability[32];
    snprintf(capability, sizeof capability, "%d.%d", d->major, d->minor);
    whole &= json_array_append_new(list,
                                   json_pack("{s:s, s:s, s:f}", "name", d->name, "compute_capability", capability, "bytes", d->bytes)) == 0;
  }
  whole = whole && json_dumpf(root, stdout, JSON_INDENT(2)) == 0 && putchar('\n') != EOF;
  json_decref(root);
  if (!whole) fprintf(stderr, "lockstep --version: cannot be written\n");
  return whole ? LS_OK : LS_INTERNAL;
}

ls_status ls_cmd_version(int argc, char **argv) {
  if (argc > 2 || (argc == 2 && strcmp(argv[1], "--json") != 0)) {
    fprintf(stderr, "lockstep --version: unexpected '%s' (known: --json)\n", argv[argc > 2 && strcmp(argv[1], "--json") == 0 ? 2 : 1]);
    return LS_USAGE;
  }
  char hdf5[64];
  ls_gpu_devices devices;
  ls_fixture_library(hdf5, sizeof hdf5);
  ls_gpu_devices_find(&devices);
  if (argc == 2) return print_json(&devices, hdf5);
  print_text(&devices, hdf5);
  return LS_OK;
}
