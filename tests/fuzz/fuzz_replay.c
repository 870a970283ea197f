/* Runs a fuzz target over files, or over all files of folders, once each, in the order of their names: what was found once stays found,
 * with any compiler. */
#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "fuzz_target.h"

static int files;

static void replay(const char *path) {
  struct stat st;
  if (stat(path, &st) != 0) {
    fprintf(stderr, "%s: not there\n", path);
    exit(1);
  }
  if (S_ISDIR(st.st_mode)) {
    struct dirent **list = NULL;
    const int n = scandir(path, &list, NULL, alphasort);
    for (int i = 0; i < n; i++) {
      char file[1024];
      snprintf(file, sizeof file, "%s/%s", path, list[i]->d_name);
      if (list[i]->d_name[0] != '.') replay(file);
      free(list[i]);
    }
    free(list);
    return;
  }
  size_t n = 0;
  uint8_t *bytes = fuzz_file_bytes(path, &n);
  printf("%s\n", path); /* the last one told is the one that crashed */
  fflush(stdout);
  LLVMFuzzerTestOneInput(bytes, n);
  free(bytes);
  files++;
}

int main(int argc, char **argv) {
  LLVMFuzzerInitialize(&argc, &argv);
  for (int i = 1; i < argc; i++) replay(argv[i]);
  printf("%d files\n", files);
  return files > 0 ? 0 : 1;
}
