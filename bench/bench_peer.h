/* bench_peer: another build of lockstep that times the same scenario in turn with this one.
 *
 * The peer is `OTHER bench --turns ... NAME`: it opens and verifies the scenario once, says "ready", and for each line that it is sent
 * times a round and answers with one line of history (bench_append_history's form). Rounds of two builds so alternate within seconds, and
 * what the machine does meanwhile happens to both. */
#ifndef BENCH_PEER_H
#define BENCH_PEER_H

#include <stdio.h>
#include <sys/types.h>

#include "bench_record.h"

typedef struct {
  pid_t pid;
  FILE *to, *from;
  const char *binary;
} bench_peer;

/* Starts `binary` with these arguments (NULL-terminated, without the program's name) and waits until it is ready. LS_UNAVAILABLE with what
 * it said where it does not come to that. */
ls_status bench_peer_start(bench_peer *peer, const char *binary, char *const *arguments, ls_error *err);

/* Has it time a round, which is added to records. */
ls_status bench_peer_round(bench_peer *peer, bench_records *records, ls_error *err);

void bench_peer_end(bench_peer *peer);

/* The peer's side, for bench_run_*'s round: says "ready" (round NULL) or what the round came to, and waits for its next turn. false: there
 * is none. */
bool bench_turn(FILE *in, FILE *out, const bench_records *round);

#endif
