#include "emu_memory.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#include <list>
#include <map>
#include <mutex>
#include <string>

#if __has_include(<valgrind/memcheck.h>)
#include <valgrind/memcheck.h>
#else
#define VALGRIND_MAKE_MEM_DEFINED(p, n) ((void)(p), (void)(n))
#endif

namespace lsg_emu {

namespace {

constexpr unsigned char pattern = 0xFF; /* what lies around a buffer reads as NaN, like what was never written */
constexpr size_t quarantine_bytes = (size_t)64 << 30,
                 quarantine_buffers = 512; /* of addresses, guards included: no memory stands behind them */

struct buffer {
  unsigned char *map; /* the first guard */
  size_t map_bytes;
  unsigned char *data;
  size_t bytes;
  bool freed;
  std::string name;
  unsigned char *first() const { return map + EMU_GUARD_BYTES; }
  unsigned char *last() const { return map + map_bytes - EMU_GUARD_BYTES; }
};

struct {
  std::mutex lock;
  std::map<uintptr_t, buffer> by_map; /* key: map */
  std::list<uintptr_t> freed;         /* a deque would want memory before main */
  size_t freed_bytes = 0;
} memory;

/* The buffer whose mapping, guards included, holds p. Called with the lock held. */
const buffer *holder(const void *p) {
  auto after = memory.by_map.upper_bound((uintptr_t)p);
  if (after == memory.by_map.begin()) return nullptr;
  const buffer &b = std::prev(after)->second;
  return (uintptr_t)p < (uintptr_t)b.map + b.map_bytes ? &b : nullptr;
}

void forget_oldest() {
  auto oldest = memory.by_map.find(memory.freed.front());
  memory.freed.pop_front();
  memory.freed_bytes -= oldest->second.map_bytes;
  munmap(oldest->second.map, oldest->second.map_bytes);
  memory.by_map.erase(oldest);
}

/* Called for every live buffer after every launch: a run of one byte is one that equals itself shifted by one, which memcmp sees at the
 * speed of memory. */
bool is_pattern(const unsigned char *p, const unsigned char *end, const unsigned char **where) {
  if (p >= end || (*p == pattern && memcmp(p, p + 1, (size_t)(end - p) - 1) == 0)) return true;
  for (; p < end; p++)
    if (*p != pattern) return *where = p, false;
  return true;
}

}  // namespace

int emu_guard(void *page, size_t bytes) {
  if (mprotect(page, bytes, PROT_NONE) != 0) return errno;
  VALGRIND_MAKE_MEM_DEFINED(page, bytes);
  return 0;
}

void emu_treat_as_written(void *p, size_t bytes) { VALGRIND_MAKE_MEM_DEFINED(p, bytes); }

int emu_memory_new(void **data, size_t bytes, const char *name) {
  *data = nullptr;
  if (bytes > SIZE_MAX / 4) return ENOMEM;
  size_t rounded = (bytes + 15) / 16 * 16, inside = (rounded + EMU_PAGE - 1) / EMU_PAGE * EMU_PAGE, whole = inside + 2 * EMU_GUARD_BYTES;
  void *map = mmap(nullptr, whole, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (map == MAP_FAILED) return errno;
  buffer b = {};
  b.map = static_cast<unsigned char *>(map), b.map_bytes = whole, b.bytes = bytes, b.data = b.last() - rounded;
  int error = emu_guard(b.map, EMU_GUARD_BYTES);
  if (error == 0) error = emu_guard(b.last(), EMU_GUARD_BYTES);
  if (error == 0 && mprotect(b.first(), inside, PROT_READ | PROT_WRITE) != 0) error = errno;
  if (error == 0) {
    memset(b.first(), pattern, (size_t)(b.data - b.first()));
    memset(b.data, 0xFF, bytes);
    memset(b.data + bytes, pattern, rounded - bytes);
    *data = b.data;
    try {
      b.name = name != nullptr ? name : "unnamed";
      std::lock_guard<std::mutex> hold(memory.lock);
      memory.by_map.emplace((uintptr_t)map, std::move(b));
    } catch (...) {
      error = ENOMEM;
    }
  }
  if (error != 0) munmap(map, whole), *data = nullptr;
  return error;
}

bool emu_memory_free(void *data) {
  std::lock_guard<std::mutex> hold(memory.lock);
  auto *b = const_cast<buffer *>(holder(data));
  if (b == nullptr || b->freed || b->data != data) return false;
  b->freed = true;
  madvise(b->map, b->map_bytes, MADV_DONTNEED); /* gives the pages back, keeps the addresses */
  emu_guard(b->map, b->map_bytes);
  memory.freed_bytes += b->map_bytes;
  try {
    memory.freed.push_back((uintptr_t)b->map);
  } catch (...) {
    memory.freed_bytes -= b->map_bytes; /* never given back then, which only costs addresses */
  }
  while (memory.freed.size() > 1 && (memory.freed_bytes > quarantine_bytes || memory.freed.size() > quarantine_buffers)) forget_oldest();
  return true;
}

emu_where emu_memory_find(const void *p, size_t bytes) {
  std::lock_guard<std::mutex> hold(memory.lock);
  const buffer *b = holder(p);
  if (b == nullptr) return EMU_NOWHERE;
  auto *at = static_cast<const unsigned char *>(p);
  if (at < b->data || at > b->data + b->bytes || bytes > (size_t)(b->data + b->bytes - at)) return EMU_NOWHERE;
  return b->freed ? EMU_FREED : EMU_LIVE;
}

bool emu_memory_describe(char *text, size_t size, const void *p) {
  std::lock_guard<std::mutex> hold(memory.lock);
  const buffer *b = holder(p);
  if (b == nullptr) return false;
  auto *at = static_cast<const unsigned char *>(p);
  const char *freed = b->freed ? "freed " : "";
  const unsigned char *end = b->data + b->bytes;
  if (at >= end)
    snprintf(text, size, "%sbuffer '%s' (%zu bytes), %zu bytes past its end", freed, b->name.c_str(), b->bytes, (size_t)(at - end));
  else if (at < b->data)
    snprintf(text, size, "%sbuffer '%s' (%zu bytes), %zu bytes before its begin", freed, b->name.c_str(), b->bytes, (size_t)(b->data - at));
  else
    snprintf(text, size, "%sbuffer '%s' (%zu bytes), at byte %zu", freed, b->name.c_str(), b->bytes, (size_t)(at - b->data));
  return true;
}

bool emu_memory_check(char *text, size_t size) {
  std::lock_guard<std::mutex> hold(memory.lock);
  for (auto &entry : memory.by_map) {
    buffer &b = entry.second;
    if (b.freed) continue;
    const unsigned char *where, *end = b.data + b.bytes;
    if (!is_pattern(b.first(), b.data, &where)) {
      snprintf(text, size, "wrote before buffer '%s' (%zu bytes), as far as %zu bytes before its begin", b.name.c_str(), b.bytes,
               (size_t)(b.data - where));
      memset(b.first(), pattern, (size_t)(b.data - b.first()));
      return false;
    }
    if (!is_pattern(end, b.last(), &where)) {
      snprintf(text, size, "wrote past buffer '%s' (%zu bytes), %zu bytes past its end", b.name.c_str(), b.bytes, (size_t)(where - end));
      memset(b.data + b.bytes, pattern, (size_t)(b.last() - end));
      return false;
    }
  }
  return true;
}

bool emu_is_mapped(const void *p) {
  unsigned char in_core;
  void *page = reinterpret_cast<void *>((uintptr_t)p / EMU_PAGE * EMU_PAGE);
  return mincore(page, EMU_PAGE, &in_core) == 0 || errno != ENOMEM;
}

}  // namespace lsg_emu
