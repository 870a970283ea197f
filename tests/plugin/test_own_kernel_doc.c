/* bring-your-own-kernel.md does what it says: each line of its ```sh blocks is run in a scratch folder with the tree's folders in it and
 * lockstep on the PATH, must end as its comment says (exit 0 without one), and its output must hold the lines of the ```text block after
 * the block. */
#include <criterion/criterion.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "plugin_run.h"

static char out[PLUGIN_OUTPUT], doc[1 << 16];

static void read_doc(void) {
  FILE *file = fopen(LS_SOURCE_DIR
                     "/docs/"
                     "bring-your-own-kernel.md",
                     "r");
  cr_assert_not_null(file);
  doc[fread(doc, 1, sizeof doc - 1, file)] = '\0';
  fclose(file);
}

/* The next line of *at, cut off; NULL at the end of the block. */
static char *block_line(char **at) {
  char *line = *at, *end = strchr(line, '\n');
  cr_assert_not_null(end, "a block without an end");
  *end = '\0';
  *at = end + 1;
  return strcmp(line, "```") == 0 ? NULL : line;
}

Test(own_kernel, every_command_of_the_guide_does_what_the_guide_says) {
  char folder[256];
  int commands = 0, lines = 0;
  read_doc();
  plugin_scratch(folder, sizeof folder, "guide");
  cr_assert_eq(plugin_run(out, "mkdir -p %s && ln -sf $PWD/docs $PWD/include $PWD/fixtures %s", folder, folder), 0, "%s", out);
  for (char *at = doc; (at = strstr(at, "```")) != NULL;) {
    char *kind = block_line(&at);
    if (strcmp(kind, "```text") == 0) {
      for (char *line; (line = block_line(&at)) != NULL; lines++) cr_expect_not_null(strstr(out, line), "expected '%s' in:\n%s", line, out);
    } else if (strcmp(kind, "```sh") == 0) {
      for (char *line; (line = block_line(&at)) != NULL; commands++) {
        char *comment = strstr(line, "# exit ");
        const int expected = comment != NULL ? atoi(comment + strlen("# exit ")) : 0;
        const int code = plugin_run(out, "cd %s && PATH=%s:$PATH && %s", folder, LS_BINARY_DIR, line);
        cr_expect_eq(code, expected, "%s: expected exit %d, found %d:\n%s", line, expected, code, out);
      }
    } else {
      while (block_line(&at) != NULL) continue;
    }
  }
  cr_expect_geq(commands, 7);
  cr_expect_geq(lines, 6);
  plugin_run(out, "rm -rf %s", folder);
}
