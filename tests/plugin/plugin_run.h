/* plugin_run: the command with a library of tests/plugin/broken, as a user would run it. */
#ifndef PLUGIN_RUN_H
#define PLUGIN_RUN_H

#define LOCKSTEP LS_BINARY_DIR "/lockstep"
#define BROKEN   LS_BINARY_DIR "/plugins/libbroken_plugin.so"
#define GOLDEN   LS_SOURCE_DIR "/fixtures/golden/"

enum { PLUGIN_OUTPUT = 1 << 18 };

/* Runs the shell command in the tree's root; both streams land in out. Returns the exit status, 128 + N for signal N. */
int plugin_run(char *out, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* lockstep with the library broken by `fault`, in step `step` (below 0: in all); must end with `code` and say `text` (NULL: anything). The
 * same call again does not run it again. */
void plugin_expect(const char *fault, int step, int code, const char *text, const char *arguments);

/* A name for a scratch file of this process. */
void plugin_scratch(char *path, unsigned size, const char *name);

#endif
