#include "run_options.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../core/ls_output.h"
#include "../core/ls_parallel.h"
#include "cli.h"

void ls_repeat_add(ls_repeat *repeat, const char *option, const char *value) {
  if (repeat == NULL) return;
  const size_t used = strlen(repeat->text);
  snprintf(repeat->text + used, sizeof repeat->text - used, "%s--%s%s%s", used ? " " : "", option, value ? " " : "", value ? value : "");
}

static ls_status number(ls_repeat *repeat, const char *option, long long low, long long high, long long *value) {
  char dashed[32];
  snprintf(dashed, sizeof dashed, "--%s", option);
  LS_TRY(ls_cli_number(dashed, optarg, low, high, value));
  ls_repeat_add(repeat, option, optarg);
  return LS_OK;
}

ls_status ls_run_option(int option, ls_verify_options *verify, ls_path_list *list, ls_repeat *repeat, bool *taken) {
  long long value = 0;
  *taken = true;
  switch (option) {
    case LS_OPT_THREADS:
      LS_TRY(number(repeat, "threads", 1, 1024, &value));
      ls_threads_set((int)value);
      break;
    case LS_OPT_SCHEDULE:
      LS_TRY(number(repeat, "emu-schedule", 0, INT64_MAX, &value));
      verify->options.emu_schedule = (uint64_t)value;
      break;
    case LS_OPT_DEVICE:
      LS_TRY(number(repeat, "device", 0, 1024, &value));
      verify->options.device = (int)value;
      break;
    case LS_OPT_NONFINITE:
      verify->allow_nonfinite = true;
      ls_repeat_add(repeat, "allow-nonfinite", NULL);
      break;
    case LS_OPT_TRUST:
      verify->trust = true;
      break;
    case LS_OPT_ISOLATE:
      list->isolate = true;
      ls_repeat_add(repeat, "isolate", NULL);
      break;
    case LS_OPT_TIMEOUT:
      LS_TRY(number(repeat, "timeout", 1, LS_MAX_TIMEOUT, &value));
      list->timeout = (double)value;
      list->limited = "--timeout";
      break;
    case LS_OPT_MEMORY:
      LS_TRY(number(repeat, "memory", 1, INT32_MAX, &value));
      list->memory_mib = value;
      list->limited = "--memory";
      break;
    default:
      *taken = false;
  }
  return LS_OK;
}

ls_status ls_cli_paths(ls_path_list *list, const char *option, const char *names) {
  ls_error err = {LS_OK, ""};
  const ls_status status = ls_path_list_add(list, option, names, &err);
  if (status != LS_OK) fprintf(stderr, "lockstep: %s\n", err.text);
  return status;
}

ls_status ls_cli_shard(const char *text, int64_t *shard, int64_t *shards) {
  long long i = 0, n = 0;
  char rest = '\0';
  if (sscanf(text, "%lld/%lld%c", &i, &n, &rest) != 2 || n < 1 || n > 1000000 || i < 1 || i > n) {
    fprintf(stderr, "lockstep: --shard: expected I/N with I from 1 to N, N at most 1000000, found '%s'\n", text);
    return LS_USAGE;
  }
  *shard = i - 1;
  *shards = n;
  return LS_OK;
}

ls_status ls_cli_output(const char *option, const char *file, bool regular) {
  if (file == NULL) return LS_OK;
  ls_error err = {LS_OK, ""};
  char *target = NULL;
  bool through = false;
  ls_status status = ls_output_target(&target, &through, file, &err);
  if (status == LS_OK && through && regular)
    status = ls_fail(&err, LS_USAGE, "%s: expected a regular file, found a device or a pipe", file);
  if (status != LS_OK) fprintf(stderr, "lockstep: %s: %s\n", option, err.text);
  free(target);
  return status;
}
