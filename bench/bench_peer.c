#define _GNU_SOURCE /* pipe2 */
#include "bench_peer.h"

#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static ls_status no_peer(const bench_peer *peer, const char *what, ls_error *err) {
  return ls_fail(err, LS_UNAVAILABLE, "%s: %s: %s", peer->binary, what, strerror(errno));
}

static void become(const char *binary, char *const *arguments, const int in[2], const int out[2]) {
  char *command[64] = {(char *)binary};
  for (int i = 0; i < 62 && arguments[i] != NULL; i++) command[i + 1] = arguments[i];
  if (dup2(in[0], STDIN_FILENO) < 0 || dup2(out[1], STDOUT_FILENO) < 0) _exit(127);
  execvp(binary, command);
  fprintf(stderr, "%s: cannot be run: %s\n", binary, strerror(errno));
  _exit(127);
}

ls_status bench_peer_start(bench_peer *peer, const char *binary, char *const *arguments, ls_error *err) {
  int in[2], out[2];
  char line[256] = "";
  *peer = (bench_peer){.pid = -1, .binary = binary};
  if (pipe2(in, O_CLOEXEC) != 0) return no_peer(peer, "no pipe", err);
  if (pipe2(out, O_CLOEXEC) != 0) {
    close(in[0]), close(in[1]);
    return no_peer(peer, "no pipe", err);
  }
  fflush(NULL);
  peer->pid = fork();
  if (peer->pid == 0) become(binary, arguments, in, out);
  close(in[0]), close(out[1]);
  peer->to = fdopen(in[1], "w");
  peer->from = fdopen(out[0], "r");
  if (peer->pid < 0 || peer->to == NULL || peer->from == NULL) return no_peer(peer, "cannot be run", err);
  signal(SIGPIPE, SIG_IGN); /* a peer that is gone is told by its answer */
  if (fgets(line, sizeof line, peer->from) == NULL || strcmp(line, "ready\n") != 0) {
    line[strcspn(line, "\n")] = '\0';
    return ls_fail(err, LS_UNAVAILABLE, "%s: expected it to be ready for its turns, found '%s'", binary, line);
  }
  return LS_OK;
}

ls_status bench_peer_round(bench_peer *peer, bench_records *records, ls_error *err) {
  char *line = NULL;
  size_t size = 0;
  if (fputs("\n", peer->to) == EOF || fflush(peer->to) != 0 || getline(&line, &size, peer->from) <= 0) {
    free(line);
    return ls_fail(err, LS_UNAVAILABLE, "%s: ended before its turn was over", peer->binary);
  }
  const ls_status status = bench_read_line(records, line, peer->binary, 1, err);
  free(line);
  return status;
}

void bench_peer_end(bench_peer *peer) {
  if (peer->to != NULL) fclose(peer->to);
  if (peer->from != NULL) fclose(peer->from);
  if (peer->pid > 0) {
    while (waitpid(peer->pid, NULL, 0) < 0 && errno == EINTR) continue;
  }
  *peer = (bench_peer){.pid = -1};
}

bool bench_turn(FILE *in, FILE *out, const bench_records *round) {
  char line[64];
  const bool said = round == NULL ? fputs("ready\n", out) != EOF : round->n > 0 && bench_print_line(&round->record[0], out);
  return said && fflush(out) == 0 && fgets(line, sizeof line, in) != NULL;
}
