#define _GNU_SOURCE /* sched_getaffinity */
#include <criterion/criterion.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include "core/ls_parallel.h"

enum { MOST = 5000 };

typedef struct {
  atomic_int calls[MOST];
} tally;

static void count(void *arg, int64_t i) { atomic_fetch_add(&((tally *)arg)->calls[i], 1); }

static void covers_each_once(int64_t n) {
  static tally t;
  for (int i = 0; i < MOST; i++) atomic_store(&t.calls[i], 0);
  ls_parallel_for(n, count, &t);
  for (int64_t i = 0; i < MOST; i++) cr_assert_eq(atomic_load(&t.calls[i]), i < n, "index %ld of %ld", (long)i, (long)n);
}

Test(parallel, each_index_runs_once_at_every_thread_count) {
  const int64_t sizes[] = {0, 1, 2, 3, 7, 16, 100, MOST};
  const int threads[] = {1, 2, 3, 8, 2, 17, 0, 1, 5}; /* growing and shrinking */
  for (size_t t = 0; t < sizeof threads / sizeof *threads; t++) {
    ls_threads_set(threads[t]);
    cr_assert(threads[t] == 0 ? ls_threads() >= 1 : ls_threads() == threads[t]);
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) covers_each_once(sizes[s]);
  }
}

Test(parallel, many_short_jobs_in_a_row_lose_nothing) {
  ls_threads_set(4);
  for (int i = 0; i < 2000; i++) covers_each_once(1 + i % 9);
}

static int cores_here(void) {
  cpu_set_t set;
  return sched_getaffinity(0, sizeof set, &set) == 0 ? CPU_COUNT(&set) : -1;
}

static void see_cores(void *arg, int64_t i) { ((int *)arg)[i] = cores_here(); }

Test(parallel, pinned_threads_have_one_core_each_and_get_all_back) {
  enum { N = 64 };
  int seen[N];
  const int before = cores_here(), threads = ls_threads();
  for (int more = 1; more <= 3; more++) { /* those that were there, and one that starts while they are tied */
    ls_threads_set(more);
    covers_each_once(5);
    if (!ls_threads_pin(true)) cr_skip_test("threads cannot be tied here");
    cr_expect(ls_threads_pin(true), "twice is once");
    ls_threads_set(more + 1);
    ls_parallel_for(N, see_cores, seen);
    for (int i = 0; i < N; i++) cr_expect_eq(seen[i], 1, "%d threads, index %d: on %d cores", more + 1, i, seen[i]);
    ls_threads_set(0);
    cr_expect_eq(ls_threads(), threads, "tied, this process has as many cores as before");
    ls_threads_set(more + 1);
    cr_expect(ls_threads_pin(false) && ls_threads_pin(false));
    ls_parallel_for(N, see_cores, seen);
    for (int i = 0; i < N; i++) cr_expect_eq(seen[i], before);
  }
}

typedef struct {
  tally t;
  pthread_t outer[64];
  atomic_int strangers;
} nested;

typedef struct {
  nested *n;
  int64_t i;
  pthread_t outer;
} inner_arg;

static void inner(void *arg, int64_t j) {
  inner_arg *a = arg;
  if (!pthread_equal(pthread_self(), a->outer)) atomic_fetch_add(&a->n->strangers, 1);
  atomic_fetch_add(&a->n->t.calls[a->i * 50 + j], 1);
}

static void outer(void *arg, int64_t i) {
  inner_arg a = {arg, i, pthread_self()};
  ls_parallel_for(50, inner, &a);
}

Test(parallel, a_nested_call_runs_on_its_callers_thread) {
  static nested n;
  ls_threads_set(4);
  ls_parallel_for(64, outer, &n);
  cr_assert_eq(atomic_load(&n.strangers), 0);
  for (int i = 0; i < 64 * 50; i++) cr_assert_eq(atomic_load(&n.t.calls[i]), 1);
}

static void rendezvous(void *arg, int64_t i) {
  (void)i;
  atomic_fetch_add((atomic_int *)arg, 1);
  while (atomic_load((atomic_int *)arg) < 3) sched_yield(); /* ends only where three threads are in here at once */
}

Test(parallel, the_asked_for_threads_do_run_at_once, .timeout = 20) {
  atomic_int here = 0;
  ls_threads_set(3);
  ls_parallel_for(3, rendezvous, &here);
  cr_assert_eq(atomic_load(&here), 3);
}

static void *second_caller(void *arg) {
  tally *t = arg;
  for (int i = 0; i < 300; i++) ls_parallel_for(100, count, t);
  return NULL;
}

Test(parallel, two_callers_at_once_both_get_their_work_done) {
  static tally one, two;
  ls_threads_set(3);
  pthread_t other;
  cr_assert_eq(pthread_create(&other, NULL, second_caller, &two), 0);
  second_caller(&one);
  pthread_join(other, NULL);
  for (int i = 0; i < 100; i++) cr_assert(atomic_load(&one.calls[i]) == 300 && atomic_load(&two.calls[i]) == 300, "index %d", i);
}

Test(parallel, a_forked_child_starts_with_a_pool_of_its_own, .timeout = 20) {
  static tally t;
  ls_threads_set(4);
  ls_parallel_for(1000, count, &t);
  pid_t child = fork();
  if (child == 0) {
    alarm(10); /* a child that waits for threads it does not have must not outlive the test */
    ls_parallel_for(1000, count, &t);
    for (int i = 0; i < 1000; i++)
      if (atomic_load(&t.calls[i]) != 2) _exit(1);
    _exit(0);
  }
  int status = -1;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  ls_parallel_for(1000, count, &t);
  for (int i = 0; i < 1000; i++) cr_assert_eq(atomic_load(&t.calls[i]), 2, "the parent's own pool is as it was");
}
