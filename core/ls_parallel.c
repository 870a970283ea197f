/* One job at a time, one pool. A worker takes part in a job when its number is below the job's helpers; indices are drawn from one
 * counter. The pool starts with the first job that needs it, follows ls_threads_set at the next one, and is joined at exit. */
#define _GNU_SOURCE /* sched_getaffinity */
#include "ls_parallel.h"

#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <unistd.h>

typedef struct {
  void (*fn)(void *arg, int64_t i);
  void *arg;
  int64_t n;
  atomic_int_fast64_t next;
} job;

static struct {
  pthread_mutex_t busy; /* held by the caller whose job runs, and while the pool grows or shrinks */
  pthread_mutex_t lock; /* guards what follows */
  pthread_cond_t start, done;
  pthread_t *worker;
  int workers; /* running threads besides the caller */
  int room;    /* of worker[] */
  int helpers; /* how many workers the present job wants */
  int pending; /* of those, how many have not finished it */
  bool stop;   /* workers leave */
  uint64_t job_number;
  job *current;
} pool = {.busy = PTHREAD_MUTEX_INITIALIZER,
          .lock = PTHREAD_MUTEX_INITIALIZER,
          .start = PTHREAD_COND_INITIALIZER,
          .done = PTHREAD_COND_INITIALIZER};

static atomic_int threads_wanted; /* 0: as many as there are cores for this process */
static _Thread_local bool inside; /* this thread is running a job: a nested call is serial */

static cpu_set_t cores_before_pin; /* where this process's threads could run before they were tied */
static bool pinned;                /* changes with pool.busy held */

static int cores_for_this_process(void) {
  if (pinned) return CPU_COUNT(&cores_before_pin);    /* this thread's own set is one core now */
  for (int cpus = 1024; cpus <= 1 << 20; cpus *= 2) { /* the kernel refuses a set smaller than its own */
    cpu_set_t *set = CPU_ALLOC(cpus);
    if (set == NULL) break;
    size_t size = CPU_ALLOC_SIZE(cpus);
    int count = sched_getaffinity(0, size, set) == 0 ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (count > 0) return count;
  }
  long online = sysconf(_SC_NPROCESSORS_ONLN);
  return online > 0 ? (int)online : 1;
}

void ls_threads_set(int n) { atomic_store(&threads_wanted, n > 0 ? n : 0); }

int ls_threads(void) {
  int n = atomic_load(&threads_wanted);
  return n > 0 ? n : cores_for_this_process();
}

static void work(job *j) {
  for (;;) {
    int64_t i = (int64_t)atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
    if (i >= j->n) return;
    j->fn(j->arg, i);
  }
}

static void *worker_main(void *arg) {
  int me = (int)(intptr_t)arg;
  inside = true;
  uint64_t seen = 0;
  pthread_mutex_lock(&pool.lock);
  for (;;) {
    while (!pool.stop && (pool.job_number == seen || me >= pool.helpers)) pthread_cond_wait(&pool.start, &pool.lock);
    if (pool.stop) break;
    seen = pool.job_number;
    job *j = pool.current;
    pthread_mutex_unlock(&pool.lock);
    work(j);
    pthread_mutex_lock(&pool.lock);
    if (--pool.pending == 0) pthread_cond_signal(&pool.done);
  }
  pthread_mutex_unlock(&pool.lock);
  return NULL;
}

/* Called with busy held and no job running. */
static void stop_workers(void) {
  pthread_mutex_lock(&pool.lock);
  pool.stop = true;
  pthread_cond_broadcast(&pool.start);
  pthread_mutex_unlock(&pool.lock);
  for (int w = 0; w < pool.workers; w++) pthread_join(pool.worker[w], NULL);
  pool.workers = 0;
  pool.stop = false;
  pool.job_number = 0; /* a worker begins having seen job 0 */
  pool.helpers = 0;
  free(pool.worker);
  pool.worker = NULL;
  pool.room = 0;
}

static void stop_at_exit(void) {
  if (inside) return; /* exit() out of a job: a thread cannot join itself */
  pthread_mutex_lock(&pool.busy);
  stop_workers();
  pthread_mutex_unlock(&pool.busy);
}

/* A forked child has the memory of the pool but none of its threads: it begins again with none. */
static void forget_workers_in_child(void) {
  pthread_mutex_init(&pool.busy, NULL);
  pthread_mutex_init(&pool.lock, NULL);
  pthread_cond_init(&pool.start, NULL);
  pthread_cond_init(&pool.done, NULL);
  free(pool.worker);
  pool.worker = NULL;
  pool.workers = pool.room = pool.helpers = pool.pending = 0;
  pool.stop = false;
  pool.job_number = 0;
  pool.current = NULL;
}

static void arrange_ends(void) {
  pthread_atfork(NULL, NULL, forget_workers_in_child);
  atexit(stop_at_exit);
}

/* Thread i (0: the caller) to the i-th core, round and round. */
static bool tie(pthread_t thread, int i) {
  cpu_set_t one;
  int left = i % CPU_COUNT(&cores_before_pin), core = 0;
  for (; !CPU_ISSET(core, &cores_before_pin) || left > 0; core++) left -= CPU_ISSET(core, &cores_before_pin) ? 1 : 0;
  CPU_ZERO(&one);
  CPU_SET(core, &one);
  return pthread_setaffinity_np(thread, sizeof one, &one) == 0;
}

bool ls_threads_pin(bool wanted) {
  bool ok = true;
  if (pthread_mutex_trylock(&pool.busy) != 0) return false;
  if (wanted && !pinned) {
    ok =
        sched_getaffinity(0, sizeof cores_before_pin, &cores_before_pin) == 0 && CPU_COUNT(&cores_before_pin) > 0 && tie(pthread_self(), 0);
    for (int w = 0; ok && w < pool.workers; w++) tie(pool.worker[w], w + 1);
    pinned = ok;
  } else if (!wanted && pinned) {
    ok = pthread_setaffinity_np(pthread_self(), sizeof cores_before_pin, &cores_before_pin) == 0;
    for (int w = 0; w < pool.workers; w++) pthread_setaffinity_np(pool.worker[w], sizeof cores_before_pin, &cores_before_pin);
    pinned = !ok;
  }
  pthread_mutex_unlock(&pool.busy);
  return ok;
}

/* Makes the pool hold `wanted` workers; fewer where the system gives no more. Called with busy held. */
static void resize(int wanted) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  if (pool.workers == wanted) return;
  pthread_once(&once, arrange_ends);
  if (pool.workers > wanted) stop_workers();
  if (pool.room < wanted) {
    pthread_t *more = realloc(pool.worker, (size_t)wanted * sizeof *more);
    if (more == NULL) return;
    pool.worker = more;
    pool.room = wanted;
  }
  pthread_mutex_lock(&pool.lock); /* a new worker begins having seen job 0: start the count again, so that an old job is not taken up */
  pool.helpers = 0;
  pthread_mutex_unlock(&pool.lock);
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before); /* signals go to the program's own threads */
  while (pool.workers < wanted) {
    if (pthread_create(&pool.worker[pool.workers], NULL, worker_main, (void *)(intptr_t)pool.workers) != 0) break;
    pool.workers++;
    if (pinned) tie(pool.worker[pool.workers - 1], pool.workers);
  }
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

void ls_parallel_for(int64_t n, void (*fn)(void *arg, int64_t i), void *arg) {
  int threads = inside || n <= 1 ? 1 : ls_threads();
  /* a second caller from another thread of the program does its own work alone */
  if (threads <= 1 || pthread_mutex_trylock(&pool.busy) != 0) {
    for (int64_t i = 0; i < n; i++) fn(arg, i);
    return;
  }
  resize(threads - 1);
  job j = {.fn = fn, .arg = arg, .n = n};
  atomic_init(&j.next, 0);
  pthread_mutex_lock(&pool.lock);
  pool.current = &j;
  pool.helpers = pool.workers < n - 1 ? pool.workers : (int)(n - 1);
  pool.pending = pool.helpers;
  pool.job_number++;
  pthread_cond_broadcast(&pool.start);
  pthread_mutex_unlock(&pool.lock);

  inside = true;
  work(&j);
  inside = false;

  pthread_mutex_lock(&pool.lock);
  while (pool.pending > 0) pthread_cond_wait(&pool.done, &pool.lock);
  pool.helpers = 0; /* a worker that sleeps through this job must not wake into it */
  pool.current = NULL;
  pthread_mutex_unlock(&pool.lock);
  pthread_mutex_unlock(&pool.busy);
}
