/* emu_fiber: how a launch runs. Inside the emulator only.
 *
 * A launch's blocks are dealt to workers; a worker runs one block at a time, each of its threads as a fiber with a stack of its own. A
 * fiber runs until it must wait (a barrier, a warp call), then jumps straight to another that is ready. In thread order the lowest ready
 * lane of the same warp comes next, so that a warp's data stay in the cache; with a schedule seed any ready fiber of the block.
 *
 * The last to arrive at a rendezvous does the work for all. Nobody ready while some have not finished is a deadlock, and reported. */
#ifndef EMU_FIBER_H
#define EMU_FIBER_H

#include <signal.h>

#include <atomic>
#include <mutex>

#include "emu_memory.h"
#include "emu_switch.h"
#include "gpu_backend.h"

namespace LSG_NS {

enum { EMU_LANES = 32, EMU_MAX_THREADS = 1024, EMU_MAX_WARPS = EMU_MAX_THREADS / EMU_LANES, EMU_TEXT_BYTES = 640 };
enum { EMU_STATIC_SHARED_LIMIT = 48 << 10, EMU_SHARED_LIMIT = 227 << 10 };

struct emu_worker;

/* One rendezvous of the lanes of mask; kind EMU_NONE: free. */
struct emu_meeting {
  unsigned mask, arrived;
  int line;
  const char *file;
  emu_kind kind;
};

struct emu_fiber;

struct emu_warp_state {
  unsigned exists, exited, ready;
  int meetings;
  bool in_order;    /* no schedule's seed: the lowest ready lane goes on */
  emu_fiber *lanes; /* its 32 fibers */
  emu_meeting meeting[EMU_LANES];
  uint64_t in[EMU_LANES], out[EMU_LANES];
  int operand[EMU_LANES];
  const void *row[EMU_LANES];               /* ldmatrix */
  alignas(32) uint16_t matrix[4][8][8];     /* ldmatrix: what was read */
  alignas(32) uint16_t a[16][16], b[16][8]; /* mma: [m][k], [k][n] */
  alignas(32) float d[16][8];               /* mma: [m][n], in and out; a lane reads and writes its own elements only */
};

struct emu_cp {
  void *shared;
  const void *global;
  int bytes, line;
  const char *file;
  unsigned group;
  unsigned turns; /* after so many times that its thread gives way it lands; 0: at the wait */
};

/* What a switch touches comes first, in one line of the cache. */
struct alignas(64) emu_fiber {
  emu_place place; /* emu_here points at it */
  void *context;
  emu_worker *worker;
  emu_warp_state *warp;
  unsigned bit;   /* of its lane */
  emu_kind waits; /* EMU_NONE: ready or running */
  bool finished;
  int wait_line;
  unsigned wait_mask;
  const char *wait_file;

  emu_cp *copies; /* not landed, oldest first */
  int n_copies, room_copies;
  unsigned group;       /* the open group; those below are committed */
  unsigned char *stack; /* lowest usable byte */
  size_t stack_bytes;
  void *fake_stack; /* AddressSanitizer's */
  unsigned valgrind_id;
  bool waited; /* lsg_wait_before was called */
};
static_assert(offsetof(emu_fiber, copies) <= 64, "a switch touches one line of the cache");

/* A static shared array of a worker: the array of one LSG_SHARED site, in pages of its own. */
struct emu_shared_cell {
  const emu_shared_site *site;
  unsigned char *map, *data;
  size_t map_bytes, bytes;
  uint64_t block_number; /* of the worker's blocks: for which it was poisoned */
};

/* What every worker of one launch sees. */
struct emu_run {
  const char *name; /* the kernel's */
  const emu_call *call;
  bool early; /* each thread calls lsg_wait_before */
  lsg_dim3 grid;
  int threads;
  size_t dynamic_bytes;
  uint64_t seed, number; /* of the schedule; of the launch */
  const uint32_t *order; /* of the blocks; NULL: as they are */
  int64_t blocks;
  std::atomic<int64_t> next;
  std::atomic<int64_t> failed; /* the first block, in running order, that failed; `blocks` where none did */
  std::mutex lock;
  char text[EMU_TEXT_BYTES];
  bool no_memory;
};

/* Runs all blocks on the threads of ls_parallel. False: text holds the line of the first block that failed. */
bool emu_run_blocks(emu_run *run);

/* A random order of the blocks, for a schedule's seed and launch number. */
void emu_shuffle_blocks(uint32_t *order, int64_t blocks, uint64_t seed, uint64_t number);

/* From inside a kernel: the block fails with "emu: kernel K, block (x,y,z), thread t: ...". Does not return. */
[[noreturn]] __attribute__((format(printf, 1, 2))) void emu_fail(const char *format, ...);

extern EMU_CONSTINIT thread_local emu_fiber *emu_self; /* NULL outside a kernel */
const char *emu_file_name(const char *path);           /* the last part */

/* Waits for the other lanes; the last to arrive gets true, does the work and calls emu_release. */
bool emu_meet(emu_fiber *self, emu_kind kind, unsigned mask, const char *file, int line);
void emu_release(emu_fiber *self, unsigned mask);

/* The same for the whole warp, of which nearly all calls are: where the others have begun this very meeting and another lane of the warp is
 * ready it goes on with no more than that; else emu_meet sees to it. Between the store of where `self` waits and its return nothing is kept
 * in registers but what the compiler has to. */
static inline bool emu_meet_warp(emu_fiber *self, emu_kind kind, const char *file, int line) {
#if !defined(__SANITIZE_ADDRESS__) /* which is told of each change of stacks */
  emu_warp_state *warp = self->warp;
  emu_meeting *m = warp->meeting;
  const unsigned arrived = m->arrived | self->bit, ready = warp->ready;
  const bool begun =
      warp->in_order && warp->meetings == 1 && m->mask == LSG_FULL_MASK && m->kind == kind && m->line == line && m->file == file;
  if (__builtin_expect(begun && arrived == LSG_FULL_MASK, 0)) {
    warp->meetings = 0;
    return true;
  }
  if (__builtin_expect(begun && ready != 0, 1)) {
    m->arrived = arrived;
    warp->ready = ready & (ready - 1);
    self->waits = kind;
    self->wait_mask = LSG_FULL_MASK;
    self->wait_file = file;
    self->wait_line = line;
    emu_fiber *next = &warp->lanes[__builtin_ctz(ready)];
    emu_self = next;
    emu_here = &next->place;
    emu_swap(&self->context, next->context);
    emu_self->waits = EMU_NONE;
    return false;
  }
#endif
  return emu_meet(self, kind, LSG_FULL_MASK, file, line);
}

bool emu_in_shared(const emu_worker *worker, const void *p, size_t bytes);
bool emu_describe_shared(const emu_worker *worker, char *text, size_t size, const void *p);

/* emu_fault.cpp: while one is held, a fault in a fiber becomes emu_fail of its thread; other faults go where they went before. */
void emu_fault_hold(void);
void emu_fault_release(void);
/* Between enter and leave the calling thread can take faults: it has a signal stack (from here where it had none), and the faults'
 * signals are not blocked (ls_parallel blocks all in its workers; a blocked fault ends the process). */
struct emu_fault_thread {
  unsigned char *memory;
  bool lent;
  sigset_t mask_before;
};
int emu_fault_enter(emu_fault_thread *t);
void emu_fault_leave(emu_fault_thread *t);
void emu_fault_free(emu_fault_thread *t);

}  // namespace LSG_NS

#endif
