#include "emu_fiber.h"

#include <errno.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include <algorithm>
#include <new>
#include <vector>

#include "../../core/ls_parallel.h"
#include "emu_switch.h"

#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#include <valgrind/valgrind.h>
#else
#define VALGRIND_MAKE_MEM_UNDEFINED(p, n)  ((void)(p), (void)(n))
#define VALGRIND_STACK_REGISTER(low, high) 0
#define VALGRIND_STACK_DEREGISTER(id)      ((void)(id))
#endif

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#include <sanitizer/common_interface_defs.h>
enum { EMU_STACK_BYTES = 256 << 10 };
#else
enum { EMU_STACK_BYTES = 64 << 10 };
#endif

namespace LSG_NS {

EMU_CONSTINIT thread_local const emu_place *emu_here = nullptr;
EMU_CONSTINIT thread_local emu_fiber *emu_self = nullptr;

struct emu_worker {
  emu_run *run;
  emu_fiber home;       /* the worker's own stack */
  emu_fiber *came_from; /* the last to leave a stack */
  emu_fiber *fibers;    /* EMU_MAX_THREADS, of which n_fibers have a stack */
  int n_fibers;
  emu_warp_state *warps; /* EMU_MAX_WARPS */
  int n_threads, n_warps;

  /* the block that runs */
  emu_block place;
  int64_t turn; /* its place in the running order */
  uint64_t block_number;
  int alive, at_barrier;
  int barrier_line;
  const char *barrier_file;
  bool abandoned;
  uint64_t random;
  unsigned stretch; /* picks for which `favourite` is still preferred, under a seed */
  int favourite;

  /* shared memory */
  std::vector<emu_shared_cell> cells;
  size_t static_bytes; /* of this block's sites so far */
  unsigned char *dynamic_map, *dynamic;
  size_t dynamic_map_bytes;

  emu_fault_thread fault_thread;
};

static const char *const kind_names[EMU_KINDS] = {"nothing",         "lsg_barrier",     "lsg_warp_sync",         "lsg_shfl",
                                                  "lsg_shfl_xor",    "lsg_shfl_down",   "lsg_shfl_up",           "lsg_ballot",
                                                  "lsg_any",         "lsg_all",         "lsg_warp_sum",          "lsg_warp_max",
                                                  "lsg_ldmatrix_x4", "lsg_ldmatrix_x2", "lsg_ldmatrix_x4_trans", "lsg_ldmatrix_x2_trans",
                                                  "lsg_mma_bf16",    "lsg_mma_f16"};

const char *emu_file_name(const char *path) {
  const char *slash = strrchr(path, '/');
  return slash != nullptr ? slash + 1 : path;
}

/* ---- switching ---- */

EMU_SWITCH_DEFINITION

/* AddressSanitizer is told of every change of stacks, and tells where the worker's own lies. */
static inline void leave(emu_fiber *from, const emu_fiber *to) {
#if defined(__SANITIZE_ADDRESS__)
  from->worker->came_from = from;
  __sanitizer_start_switch_fiber(&from->fake_stack, to->stack, to->stack_bytes);
#else
  (void)from, (void)to;
#endif
}
static inline void arrive(emu_fiber *self) {
#if defined(__SANITIZE_ADDRESS__)
  const void *bottom;
  size_t bytes;
  __sanitizer_finish_switch_fiber(self->fake_stack, &bottom, &bytes);
  emu_fiber *from = self->worker->came_from;
  from->stack = static_cast<unsigned char *>(const_cast<void *>(bottom)), from->stack_bytes = bytes;
#else
  (void)self;
#endif
}

static inline void jump(emu_fiber *from, emu_fiber *to) {
  emu_self = to;
  emu_here = &to->place;
  leave(from, to);
  emu_swap(&from->context, to->context);
  arrive(from);
}

static void go_home(emu_fiber *from) {
  emu_worker *w = from->worker;
  emu_self = nullptr;
  emu_here = nullptr;
  leave(from, &w->home);
  emu_swap(&from->context, w->home.context);
  arrive(from);
}

[[noreturn]] static void fail_list(const emu_fiber *self, const char *format, va_list list) {
  emu_worker *w = self->worker;
  emu_run *run = w->run;
  {
    std::lock_guard<std::mutex> hold(run->lock);
    if (w->turn < run->failed.load()) {
      const int64_t *b = w->place.block;
      int n = snprintf(run->text, sizeof run->text, "emu: kernel %s, block (%lld,%lld,%lld), thread %d: ", run->name, (long long)b[0],
                       (long long)b[1], (long long)b[2], self->place.thread);
      if (n > 0 && n < (int)sizeof run->text) vsnprintf(run->text + n, sizeof run->text - (size_t)n, format, list);
      run->failed.store(w->turn);
    }
  }
  w->abandoned = true;
  go_home(const_cast<emu_fiber *>(self));
  __builtin_unreachable(); /* its worker makes the fiber anew */
}

void emu_fail(const char *format, ...) {
  va_list list;
  va_start(list, format);
  fail_list(emu_self, format, list);
  va_end(list);
}

[[noreturn]] __attribute__((format(printf, 2, 3))) static void fail_as(const emu_fiber *who, const char *format, ...) {
  va_list list;
  va_start(list, format);
  /* the line names `who`; it is the running fiber that leaves */
  emu_fiber *running = emu_self;
  running->place.thread = who->place.thread;
  fail_list(running, format, list);
  va_end(list);
}

void emu_misaligned(const char *what, const void *p, const char *file, int line) {
  char text[EMU_TEXT_BYTES / 2];
  if (!emu_memory_describe(text, sizeof text, p) && !emu_describe_shared(emu_self->worker, text, sizeof text, p))
    snprintf(text, sizeof text, "no device memory");
  emu_fail("%s (%s:%d) of address %p, which is not 16-byte aligned: %s", what, emu_file_name(file), line, p, text);
}

/* ---- who runs next ---- */

static uint64_t mix(uint64_t z) {
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}
static uint64_t draw(uint64_t *state) { return mix(*state += 0x9E3779B97F4A7C15u); }

void emu_shuffle_blocks(uint32_t *order, int64_t blocks, uint64_t seed, uint64_t number) {
  uint64_t random = mix(seed ^ mix(~number));
  for (int64_t i = 0; i < blocks; i++) {
    int64_t j = (int64_t)(draw(&random) % (uint64_t)(i + 1));
    order[i] = order[j];
    order[j] = (uint32_t)i;
  }
}

static void describe_wait(char *text, size_t size, const emu_fiber *f) {
  const char *file = f->wait_file != nullptr ? emu_file_name(f->wait_file) : "";
  if (f->finished)
    snprintf(text, size, "thread %d has returned", f->place.thread);
  else if (f->waits == EMU_BARRIER)
    snprintf(text, size, "thread %d waits at lsg_barrier (%s:%d)", f->place.thread, file, f->wait_line);
  else if (f->waits == EMU_NONE)
    snprintf(text, size, "thread %d has not come to it", f->place.thread);
  else
    snprintf(text, size, "thread %d waits at %s (%s:%d) with mask 0x%08x", f->place.thread, kind_names[f->waits], file, f->wait_line,
             f->wait_mask);
}

/* Nobody can go on. Names a thread at a warp call if there is one (a barrier is often only waiting for it), and who did not come. */
[[noreturn]] static void report_deadlock(const emu_worker *w) {
  const emu_fiber *stuck = nullptr, *missing = nullptr;
  char text[EMU_TEXT_BYTES / 4];
  for (int t = 0; t < w->n_threads; t++) {
    const emu_fiber *f = &w->fibers[t];
    if (f->finished || f->waits == EMU_NONE) continue;
    if (stuck == nullptr || (stuck->waits == EMU_BARRIER && f->waits != EMU_BARRIER)) stuck = f;
  }
  if (stuck == nullptr) emu_fail("no thread of the block can go on");
  // cppcheck-suppress nullPointer ; emu_fail does not return
  bool barrier = stuck->waits == EMU_BARRIER;
  for (int t = 0; t < w->n_threads; t++) {
    const emu_fiber *f = &w->fibers[t];
    bool named = barrier || (f->warp == stuck->warp && (stuck->wait_mask & f->bit) != 0);
    bool came = !f->finished && f->waits == stuck->waits && (barrier || f->wait_mask == stuck->wait_mask);
    if (named && !came && (missing == nullptr || (f->finished && !missing->finished))) missing = f;
  }
  if (missing == nullptr) missing = stuck;
  describe_wait(text, sizeof text, missing);
  if (barrier)
    fail_as(stuck, "waits at lsg_barrier (%s:%d), which not all threads reach: %s", emu_file_name(stuck->wait_file), stuck->wait_line,
            text);
  fail_as(stuck, "waits at %s (%s:%d) with mask 0x%08x, which not all its lanes reach: %s", kind_names[stuck->waits],
          emu_file_name(stuck->wait_file), stuck->wait_line, stuck->wait_mask, text);
}

/* The next fiber to run, taken off the ready ones; NULL: none is. */
static inline emu_fiber *pick(emu_worker *w, emu_warp_state *near) {
  if (w->run->seed != 0) {
    /* some warp that has one ready, then some lane of it. For a while one warp is preferred: were all alike, none would ever be far ahead
     * of another, and a barrier that only such a one needs would never be missed */
    uint64_t r = draw(&w->random);
    int first = (int)((r >> 32) % (uint64_t)w->n_warps), turn = (int)(r & 31);
    if (w->stretch == 0) {
      w->stretch = 1u << (r >> 8 & 15);
      w->favourite = first;
    }
    w->stretch--;
    if ((r >> 16 & 7) != 0) first = w->favourite;
    for (int i = 0; i < w->n_warps; i++) {
      int at = first + i < w->n_warps ? first + i : first + i - w->n_warps;
      unsigned ready = w->warps[at].ready;
      if (ready == 0) continue;
      unsigned turned = turn == 0 ? ready : ready >> turn | ready << (32 - turn);
      int lane = (__builtin_ctz(turned) + turn) & 31;
      w->warps[at].ready = ready & ~(1u << lane);
      return &w->fibers[at * EMU_LANES + lane];
    }
    return nullptr;
  }
  for (int i = -1; i < w->n_warps; i++) {
    emu_warp_state *warp = i < 0 ? near : &w->warps[i];
    if (warp->ready == 0) continue;
    int lane = __builtin_ctz(warp->ready);
    warp->ready &= warp->ready - 1;
    return &w->fibers[(warp - w->warps) * EMU_LANES + lane];
  }
  return nullptr;
}

/* ---- cp.async: a copy lands at its wait, or, under a schedule's seed, at a random moment from its issue on, as on a GPU. So a stage that
 * is filled again while other threads still read it shows under a seed, and a missing wait without one. ---- */

static void land(const emu_cp *c) {
  unsigned char bytes[16] = {0};
  if (c->bytes > 0) memcpy(bytes, c->global, (size_t)c->bytes);
  memcpy(c->shared, bytes, sizeof bytes);
}

/* Those whose moment has come. */
static void land_early(emu_fiber *self) {
  int left = 0;
  for (int i = 0; i < self->n_copies; i++) {
    emu_cp *c = &self->copies[i];
    if (c->turns > 0 && --c->turns == 0)
      land(c);
    else
      self->copies[left++] = *c;
  }
  self->n_copies = left;
}

/* Runs others until self is picked again. */
static inline void give_way(emu_fiber *self) {
  if (self->worker->run->seed != 0 && self->n_copies > 0) land_early(self);
  emu_fiber *next = pick(self->worker, self->warp);
  if (next == self) return;
  if (__builtin_expect(next == nullptr, 0)) report_deadlock(self->worker);
  jump(self, next);
}

/* ---- rendezvous ---- */

[[noreturn]] static void refuse_mask(const emu_fiber *self, emu_kind kind, unsigned mask, const char *file, int line) {
  const char *name = kind_names[kind];
  const char *where = emu_file_name(file);
  const emu_warp_state *warp = self->warp;
  if ((mask & self->bit) == 0)
    emu_fail("%s (%s:%d): its own lane %d is not in mask 0x%08x", name, where, line, self->place.thread & 31, mask);
  if ((mask & ~warp->exists) != 0)
    emu_fail("%s (%s:%d): mask 0x%08x names lanes 0x%08x, which this warp does not have", name, where, line, mask, mask & ~warp->exists);
  int lane = __builtin_ctz(mask & warp->exited);
  emu_fail("%s (%s:%d): mask 0x%08x names lane %d (thread %d), which has returned", name, where, line, mask, lane,
           (self->place.thread & ~31) + lane);
}

[[noreturn]] static void refuse_meeting(const emu_meeting *m, emu_kind kind, const char *file, int line) {
  emu_fail("%s (%s:%d) with mask 0x%08x meets another call, %s (%s:%d), of lanes 0x%08x", kind_names[kind], emu_file_name(file), line,
           m->mask, kind_names[m->kind], emu_file_name(m->file), m->line, m->arrived);
}

static inline void start_waiting(emu_fiber *self, emu_kind kind, unsigned mask, const char *file, int line) {
  self->waits = kind;
  self->wait_mask = mask;
  self->wait_file = file;
  self->wait_line = line;
}

static inline bool same_site(const char *file_a, int line_a, const char *file_b, int line_b) {
  return line_a == line_b && (file_a == file_b || strcmp(file_a, file_b) == 0);
}

bool emu_meet(emu_fiber *self, emu_kind kind, unsigned mask, const char *file, int line) {
  emu_warp_state *warp = self->warp;
  emu_meeting *m = warp->meeting, *end = m + warp->meetings;
  while (m < end && m->mask != mask) m++;
  if (m == end) {
    if (__builtin_expect((mask & self->bit) == 0 || (mask & ~warp->exists) != 0 || (mask & warp->exited) != 0, 0))
      refuse_mask(self, kind, mask, file, line);
    *m = {mask, 0, line, file, kind};
    warp->meetings++;
  } else if (__builtin_expect((mask & self->bit) == 0, 0)) {
    refuse_mask(self, kind, mask, file, line);
  } else if (__builtin_expect(m->kind != kind || !same_site(m->file, m->line, file, line), 0)) {
    refuse_meeting(m, kind, file, line);
  }
  m->arrived |= self->bit;
  if (m->arrived == mask) {
    *m = warp->meeting[--warp->meetings];
    return true;
  }
  start_waiting(self, kind, mask, file, line);
  give_way(self);
  self->waits = EMU_NONE;
  return false;
}

void emu_release(emu_fiber *self, unsigned mask) {
  emu_warp_state *warp = self->warp;
  warp->ready |= mask & ~self->bit;
  if (self->worker->run->seed != 0) {
    warp->ready |= self->bit;
    give_way(self);
  }
}

void emu_barrier(const char *file, int line) {
  emu_fiber *self = emu_self;
  emu_worker *w = self->worker;
  if (w->alive < w->n_threads) { /* one has returned */
    start_waiting(self, EMU_BARRIER, 0, file, line);
    report_deadlock(w);
  }
  if (w->at_barrier == 0) {
    w->barrier_file = file;
    w->barrier_line = line;
  } else if (!same_site(w->barrier_file, w->barrier_line, file, line)) {
    emu_fail("lsg_barrier (%s:%d), while others of the block wait at another one (%s:%d)", emu_file_name(file), line,
             emu_file_name(w->barrier_file), w->barrier_line);
  }
  if (++w->at_barrier < w->n_threads) {
    start_waiting(self, EMU_BARRIER, 0, file, line);
    give_way(self);
    self->waits = EMU_NONE;
    return;
  }
  w->at_barrier = 0;
  for (int i = 0; i < w->n_warps; i++) w->warps[i].ready = w->warps[i].exists;
  if (w->run->seed == 0)
    self->warp->ready &= ~self->bit;
  else
    give_way(self);
}

static inline float as_float(uint64_t bits) { return lsg_from_bits((uint32_t)bits); }

/* Sum and max as butterflies over offsets 16 8 4 2 1, as on the GPU. */
static void butterfly(emu_warp_state *warp, bool sum) {
  float v[2][EMU_LANES];
  for (int i = 0; i < EMU_LANES; i++) v[0][i] = as_float(warp->in[i]);
  int at = 0;
  for (int offset = EMU_LANES / 2; offset > 0; offset >>= 1, at ^= 1)
    for (int i = 0; i < EMU_LANES; i++) {
      float a = v[at][i], b = v[at][i ^ offset];
      v[at ^ 1][i] = sum ? a + b : lsg_fmax_nan(a, b);
    }
  for (int i = 0; i < EMU_LANES; i++) warp->out[i] = lsg_bits(v[at][i]);
}

static void exchange(emu_fiber *self, emu_kind kind, unsigned mask, const char *file, int line) {
  emu_warp_state *warp = self->warp;
  unsigned votes = 0;
  switch (kind) {
    case EMU_SHFL:
    case EMU_SHFL_XOR:
    case EMU_SHFL_DOWN:
    case EMU_SHFL_UP:
      for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
        int lane = __builtin_ctz(rest), n = warp->operand[lane], from;
        if (kind == EMU_SHFL) {
          from = n & 31;
        } else {
          if (__builtin_expect(n < 0 || n > 31, 0))
            emu_fail("%s (%s:%d): lane %d asks for an offset of %d, outside 0..31", kind_names[kind], emu_file_name(file), line, lane, n);
          if (kind == EMU_SHFL_XOR)
            from = lane ^ n;
          else if (kind == EMU_SHFL_DOWN)
            from = lane + n > 31 ? lane : lane + n;
          else
            from = lane < n ? lane : lane - n;
        }
        if (__builtin_expect((mask >> from & 1u) == 0, 0))
          emu_fail("%s (%s:%d): lane %d reads lane %d, which is not in mask 0x%08x", kind_names[kind], emu_file_name(file), line, lane,
                   from, mask);
        warp->out[lane] = warp->in[from];
      }
      break;
    case EMU_BALLOT:
    case EMU_ANY:
    case EMU_ALL:
      for (unsigned rest = mask; rest != 0; rest &= rest - 1) {
        int lane = __builtin_ctz(rest);
        votes |= (unsigned)(warp->in[lane] != 0) << lane;
      }
      for (unsigned rest = mask; rest != 0; rest &= rest - 1)
        warp->out[__builtin_ctz(rest)] = kind == EMU_BALLOT ? votes : kind == EMU_ANY ? votes != 0 : votes == mask;
      break;
    case EMU_WARP_SUM:
      butterfly(warp, true);
      break;
    case EMU_WARP_MAX:
      butterfly(warp, false);
      break;
    default:
      break;
  }
}

uint64_t emu_warp(emu_kind kind, unsigned mask, uint64_t bits, int operand, const char *file, int line) {
  emu_fiber *self = emu_self;
  emu_warp_state *warp = self->warp;
  int lane = self->place.thread & 31;
  warp->in[lane] = bits;
  warp->operand[lane] = operand;
  if (mask == LSG_FULL_MASK ? emu_meet_warp(self, kind, file, line) : emu_meet(self, kind, mask, file, line)) {
    exchange(self, kind, mask, file, line);
    emu_release(self, mask);
  }
  return warp->out[lane];
}

/* ---- cp.async, from a kernel ---- */

void emu_cp_async16(void *shared, const void *global, int bytes, const char *file, int line) {
  emu_fiber *self = emu_self;
  if (((uintptr_t)shared & 15u) != 0) emu_misaligned("lsg_cp_async16, to", shared, file, line);
  if (((uintptr_t)global & 15u) != 0) emu_misaligned("lsg_cp_async16, from", global, file, line);
  if (bytes < 0 || bytes > 16) emu_fail("lsg_cp_async16 (%s:%d): %d bytes, expected 0..16", emu_file_name(file), line, bytes);
  if (!emu_in_shared(self->worker, shared, 16))
    emu_fail("lsg_cp_async16 (%s:%d): the destination %p is not 16 bytes of this block's shared memory", emu_file_name(file), line, shared);
  if (self->n_copies == self->room_copies) {
    int room = self->room_copies > 0 ? 2 * self->room_copies : 16;
    void *more = realloc(self->copies, (size_t)room * sizeof *self->copies);
    if (more == nullptr) emu_fail("out of memory for %d copies in flight", room);
    self->copies = static_cast<emu_cp *>(more);
    self->room_copies = room;
  }
  emu_cp *copy = &self->copies[self->n_copies++];
  *copy = {shared, global, bytes, line, file, self->group, 0};
  if (self->worker->run->seed == 0) return;
  /* a quarter of them at once, a quarter at the wait, the others after some turns */
  const uint64_t r = draw(&self->worker->random);
  if ((r & 3) == 0) {
    self->n_copies--;
    land(copy);
  } else if ((r & 3) != 1) {
    copy->turns = 1 + (unsigned)(r >> 2 & 15);
  }
}

void emu_wait_before(void) { emu_self->waited = true; }

void emu_cp_async_commit(void) { emu_self->group++; }

void emu_cp_async_wait(int groups) {
  emu_fiber *self = emu_self;
  int landed = 0;
  for (; landed < self->n_copies && (int64_t)self->copies[landed].group < (int64_t)self->group - groups; landed++)
    land(&self->copies[landed]);
  if (landed == 0) return;
  self->n_copies -= landed;
  memmove(self->copies, self->copies + landed, (size_t)self->n_copies * sizeof *self->copies);
}

/* ---- shared memory ---- */

enum { SHARED_GUARD_BYTES = 64 << 10 };

/* Pages of which the last `bytes` (16-byte granularity) end at inaccessible ones; NULL: out of memory. */
static unsigned char *guarded_pages(unsigned char **map, size_t *map_bytes, size_t bytes) {
  size_t inside = (bytes + EMU_PAGE - 1) / EMU_PAGE * EMU_PAGE;
  *map_bytes = inside + 2 * SHARED_GUARD_BYTES;
  void *p = mmap(nullptr, *map_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (p == MAP_FAILED) return nullptr;
  *map = static_cast<unsigned char *>(p);
  if (emu_guard(*map, SHARED_GUARD_BYTES) != 0 || emu_guard(*map + SHARED_GUARD_BYTES + inside, SHARED_GUARD_BYTES) != 0) {
    munmap(p, *map_bytes);
    return nullptr;
  }
  memset(*map + SHARED_GUARD_BYTES, 0xFF, inside);
  return *map + SHARED_GUARD_BYTES + inside - (bytes + 15) / 16 * 16;
}

void *emu_shared(const emu_shared_site *site) {
  emu_worker *w = emu_self->worker;
  emu_shared_cell *cell = nullptr;
  for (emu_shared_cell &c : w->cells)
    if (c.site == site) cell = &c;
  if (cell != nullptr && cell->block_number == w->block_number) return cell->data;
  if (cell == nullptr) {
    emu_shared_cell made = {};
    made.site = site;
    made.bytes = site->bytes;
    made.data = guarded_pages(&made.map, &made.map_bytes, site->bytes);
    if (made.data == nullptr) emu_fail("out of memory for the shared array '%s' of %zu bytes", site->name, site->bytes);
    try {
      w->cells.push_back(made);
    } catch (...) {
      munmap(made.map, made.map_bytes);
      emu_fail("out of memory for the shared array '%s' of %zu bytes", site->name, site->bytes);
    }
    cell = &w->cells.back();
  }
  w->static_bytes += (site->bytes + 15) / 16 * 16;
  if (w->static_bytes > EMU_STATIC_SHARED_LIMIT)
    emu_fail("the shared array '%s' makes %zu bytes of static shared memory, more than %d", site->name, w->static_bytes,
             EMU_STATIC_SHARED_LIMIT);
  if (w->static_bytes + w->run->dynamic_bytes > EMU_SHARED_LIMIT)
    emu_fail("%zu bytes of static and %zu of dynamic shared memory, together more than %d", w->static_bytes, w->run->dynamic_bytes,
             EMU_SHARED_LIMIT);
  cell->block_number = w->block_number;
  memset(cell->data, 0xFF, site->bytes);
  return cell->data;
}

void *emu_dynamic_shared(void) { return emu_self->worker->dynamic; }

bool emu_in_shared(const emu_worker *w, const void *p, size_t bytes) {
  auto *at = static_cast<const unsigned char *>(p);
  auto inside = [&](const unsigned char *data, size_t size) { return at >= data && at + bytes <= data + size; };
  if (inside(w->dynamic, w->run->dynamic_bytes)) return true;
  for (const emu_shared_cell &c : w->cells)
    if (c.block_number == w->block_number && inside(c.data, c.bytes)) return true;
  return false;
}

bool emu_describe_shared(const emu_worker *w, char *text, size_t size, const void *p) {
  auto *at = static_cast<const unsigned char *>(p);
  auto describe = [&](const unsigned char *map, size_t map_bytes, const unsigned char *data, size_t bytes, const char *name) {
    if (at < map || at >= map + map_bytes) return false;
    if (at >= data + bytes)
      snprintf(text, size, "shared array '%s' (%zu bytes), %zu bytes past its end", name, bytes, (size_t)(at - data) - bytes);
    else if (at < data)
      snprintf(text, size, "shared array '%s' (%zu bytes), %zu bytes before its begin", name, bytes, (size_t)(data - at));
    else
      snprintf(text, size, "shared array '%s' (%zu bytes), at byte %zu", name, bytes, (size_t)(at - data));
    return true;
  };
  for (const emu_shared_cell &c : w->cells)
    if (describe(c.map, c.map_bytes, c.data, c.bytes, c.site->name)) return true;
  return describe(w->dynamic_map, w->dynamic_map_bytes, w->dynamic, w->run->dynamic_bytes, "dynamic shared memory");
}

/* The few bytes around an array that share its pages, as far as an overrun is likely to begin. Mended where written over. */
static bool edges_are_clean(unsigned char *map, size_t map_bytes, unsigned char *data, size_t bytes) {
  unsigned char *first = map + SHARED_GUARD_BYTES, *last = map + map_bytes - SHARED_GUARD_BYTES;
  unsigned char *from = (size_t)(data - first) > 256 ? data - 256 : first;
  bool clean = true;
  for (unsigned char *p = from; p < data; p++) clean = clean && *p == 0xFF;
  for (unsigned char *p = data + bytes; p < last; p++) clean = clean && *p == 0xFF;
  if (!clean) memset(from, 0xFF, (size_t)(data - from)), memset(data + bytes, 0xFF, (size_t)(last - data) - bytes);
  return clean;
}

/* NULL, or the name of an array of the block that just ended whose surroundings were written. */
static const char *overrun_array(emu_worker *w) {
  for (emu_shared_cell &c : w->cells)
    if (c.block_number == w->block_number && !edges_are_clean(c.map, c.map_bytes, c.data, c.bytes)) return c.site->name;
  if (w->run->dynamic_bytes > 0 && !edges_are_clean(w->dynamic_map, w->dynamic_map_bytes, w->dynamic, w->run->dynamic_bytes))
    return "dynamic shared memory";
  return nullptr;
}

/* ---- a thread's life ---- */

/* The fiber has run its thread; it sleeps until the next block's begins. */
static void finish_thread(emu_fiber *self) {
  emu_worker *w = self->worker;
  emu_warp_state *warp = self->warp;
  for (int i = 0; i < warp->meetings; i++) {
    const emu_meeting *m = &warp->meeting[i];
    if ((m->mask & self->bit) != 0)
      emu_fail("has returned, while lanes 0x%08x of its warp wait at %s (%s:%d), whose mask 0x%08x names it", m->arrived,
               kind_names[m->kind], emu_file_name(m->file), m->line, m->mask);
  }
  if (w->run->early && !self->waited)
    emu_fail("has returned without lsg_wait_before(): the launch is an early one, and what it read may not have been written yet");
  self->finished = true;
  warp->exited |= self->bit;
  w->alive--;
  if (w->at_barrier > 0) report_deadlock(w);
  if (w->alive == 0) {
    const char *name = overrun_array(w);
    if (name != nullptr) emu_fail("(the block's last) bytes beside the shared array '%s' were written", name);
    go_home(self);
    return;
  }
  emu_fiber *next = pick(w, warp);
  if (next == nullptr) report_deadlock(w);
  jump(self, next);
}

static void fiber_main(void) {
  emu_fiber *self = emu_self;
  arrive(self);
  for (;;) {
    self->worker->run->call->invoke();
    finish_thread(self);
  }
}

/* ---- workers ---- */

static void make_context(emu_fiber *f) {
  /* tops a few lines apart: stacks at equal offsets of their pages would fight for the same lines of the cache */
  VALGRIND_MAKE_MEM_UNDEFINED(f->stack, f->stack_bytes); /* frames of a thread that failed are gone */
  size_t stagger = (size_t)((f - f->worker->fibers) & 31) * 128;
  f->context = emu_context(f->stack + f->stack_bytes - stagger, f->stack_bytes - stagger, fiber_main);
  f->fake_stack = nullptr;
}

static bool new_fiber(emu_worker *w) {
  const size_t whole = EMU_STACK_BYTES + EMU_PAGE; /* not a power of two, for the cache's sake */
  void *map = mmap(nullptr, whole, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_STACK, -1, 0);
  if (map == MAP_FAILED) return false;
  if (emu_guard(map, EMU_PAGE) != 0) {
    munmap(map, whole);
    return false;
  }
  const int t = w->n_fibers++;
  emu_fiber *f = &w->fibers[t];
  f->stack = static_cast<unsigned char *>(map) + EMU_PAGE;
  f->stack_bytes = EMU_STACK_BYTES;
  f->worker = w;
  f->bit = 1u << (t & 31);
  f->warp = &w->warps[t / EMU_LANES];
  f->valgrind_id = VALGRIND_STACK_REGISTER(f->stack, f->stack + f->stack_bytes);
  make_context(f);
  return true;
}

static void free_worker(emu_worker *w) {
  if (w == nullptr) return;
  for (int t = 0; t < w->n_fibers; t++) {
    emu_fiber *f = &w->fibers[t];
    VALGRIND_STACK_DEREGISTER(f->valgrind_id);
    munmap(f->stack - EMU_PAGE, f->stack_bytes + EMU_PAGE);
    free(f->copies);
  }
  for (emu_shared_cell &c : w->cells) munmap(c.map, c.map_bytes);
  if (w->dynamic_map != nullptr) munmap(w->dynamic_map, w->dynamic_map_bytes);
  emu_fault_free(&w->fault_thread);
  delete[] w->fibers;
  delete[] w->warps;
  delete w;
}

/* Workers at rest, for the next launch. */
static struct worker_pool {
  std::mutex lock;
  std::vector<emu_worker *> resting;
  ~worker_pool() {
    for (emu_worker *w : resting) free_worker(w);
  }
} pool;

static emu_worker *take_worker(void) {
  {
    std::lock_guard<std::mutex> hold(pool.lock);
    if (!pool.resting.empty()) {
      emu_worker *w = pool.resting.back();
      pool.resting.pop_back();
      return w;
    }
  }
  auto *w = new (std::nothrow) emu_worker();
  if (w == nullptr) return nullptr;
  w->home.worker = w;
  w->warps = new (std::nothrow) emu_warp_state[EMU_MAX_WARPS]();
  w->fibers = new (std::nothrow) emu_fiber[EMU_MAX_THREADS]();
  unsigned char *end =
      w->warps == nullptr || w->fibers == nullptr ? nullptr : guarded_pages(&w->dynamic_map, &w->dynamic_map_bytes, EMU_SHARED_LIMIT);
  if (end == nullptr) {
    w->dynamic_map = nullptr;
    free_worker(w);
    return nullptr;
  }
  return w;
}

static void rest_worker(emu_worker *w) {
  try {
    std::lock_guard<std::mutex> hold(pool.lock);
    pool.resting.push_back(w);
  } catch (...) {
    free_worker(w);
  }
}

/* After a failure: the fibers' frames are dead, each begins anew. */
static void bury(emu_worker *w) {
  for (int t = 0; t < w->n_fibers; t++) {
    emu_fiber *f = &w->fibers[t];
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(f->stack, f->stack_bytes);
#endif
    make_context(f);
  }
  w->abandoned = false;
}

static void run_block(emu_worker *w, int64_t turn) {
  emu_run *run = w->run;
  int64_t block = run->order != nullptr ? (int64_t)run->order[turn] : turn;
  int64_t x = block % run->grid.x, y = block / run->grid.x % run->grid.y, z = block / run->grid.x / run->grid.y;
  w->place = {{x, y, z}, {run->grid.x, run->grid.y, run->grid.z}, run->threads};
  w->turn = turn;
  w->block_number++;
  w->static_bytes = 0;
  w->at_barrier = 0;
  w->alive = w->n_threads = run->threads;
  w->n_warps = (run->threads + EMU_LANES - 1) / EMU_LANES;
  w->random = mix(run->seed ^ mix(run->number ^ mix((uint64_t)block)));
  w->stretch = 0;
  unsigned char *end = w->dynamic_map + w->dynamic_map_bytes - SHARED_GUARD_BYTES;
  w->dynamic = end - (run->dynamic_bytes + 15) / 16 * 16;
  /* with its surroundings, which an earlier launch may have had more dynamic memory in */
  unsigned char *first = w->dynamic_map + SHARED_GUARD_BYTES, *from = w->dynamic - first > 256 ? w->dynamic - 256 : first;
  memset(from, 0xFF, (size_t)(end - from));
  for (int i = 0; i < w->n_warps; i++) {
    emu_warp_state *warp = &w->warps[i];
    int lanes = run->threads - i * EMU_LANES;
    warp->exists = warp->ready = lanes >= EMU_LANES ? LSG_FULL_MASK : (1u << lanes) - 1u;
    warp->exited = 0;
    warp->meetings = 0;
    warp->in_order = run->seed == 0;
    warp->lanes = w->fibers + (size_t)i * EMU_LANES;
  }
  for (int t = 0; t < run->threads; t++) {
    emu_fiber *f = &w->fibers[t];
    f->place = {t, &w->place};
    f->finished = false;
    f->waits = EMU_NONE;
    f->n_copies = 0;
    f->group = 0;
    f->waited = false;
  }
  jump(&w->home, pick(w, &w->warps[0]));
  if (w->abandoned) bury(w);
}

static void work(void *arg, int64_t) {
  auto *run = static_cast<emu_run *>(arg);
  if (run->next.load(std::memory_order_relaxed) >= run->blocks) return;
  emu_worker *w = take_worker();
  bool ok = w != nullptr;
  while (ok && w->n_fibers < run->threads) ok = new_fiber(w);
  ok = ok && emu_fault_enter(&w->fault_thread) == 0;
  if (ok) {
    w->run = run;
    for (;;) {
      int64_t turn = run->next.fetch_add(1, std::memory_order_relaxed);
      if (turn >= run->blocks) break;
      if (turn < run->failed.load(std::memory_order_relaxed)) run_block(w, turn);
    }
    emu_fault_leave(&w->fault_thread);
  } else {
    std::lock_guard<std::mutex> hold(run->lock);
    run->no_memory = true;
  }
  if (w != nullptr) rest_worker(w);
}

bool emu_run_blocks(emu_run *run) {
  /* each stack is two mappings, of which a process has some 65,000 */
  int64_t workers = std::min<int64_t>({ls_threads(), run->blocks, std::max(1, 16384 / run->threads)});
  run->next.store(0);
  run->failed.store(run->blocks);
  run->no_memory = false;
  emu_fault_hold();
  ls_parallel_for(workers, work, run);
  emu_fault_release();
  if (run->next.load() < run->blocks && run->failed.load() == run->blocks) {
    snprintf(run->text, sizeof run->text, "emu: kernel %s: out of memory for the stacks of %d threads", run->name, run->threads);
    run->failed.store(0);
  }
  return run->failed.load() == run->blocks;
}

}  // namespace LSG_NS
