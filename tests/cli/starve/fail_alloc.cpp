/* Preloaded into the command by scripts/starve: counts the allocations that the program's own code asks for (those whose caller is the
 * executable, and all of C++'s), lets the one that the environment names fail, and says at the end which blocks of the program's are still
 * held. What libraries allocate for themselves is passed on untouched.
 *
 *   LS_STARVE_AT=N     the N-th fails, in whichever process of the run it is asked for; 0: none
 *   LS_STARVE_EACH=K   each K-th fails, in a child of its own that is forked there and runs to its end, while the program itself waits and
 *                      then goes on as if nothing had been: one run tries them all. Not for a program that writes a file as it goes
 *   LS_STARVE_FROM=N   where LS_STARVE_EACH: the first of them is the N-th (else the K-th)
 *   LS_STARVE_FILE=F   where LS_STARVE_EACH: a file that such a child may leave; kept as F.N
 *   LS_STARVE_LOG=F    appended to: "failed N CALL ADDRESS", "held N CALL ADDRESS" for each place once, "count N", and of a child
 *                      "ended N STATUS" (as of a shell). Its output is in F.out.N and F.err.N. Addresses are those of the executable's file
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <link.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <new>

extern "C" {
void *__libc_malloc(size_t);
void *__libc_calloc(size_t, size_t);
void *__libc_realloc(void *, size_t);
void *__libc_memalign(size_t, size_t);
void __libc_free(void *);
}

namespace {

struct shared_page {
  std::atomic<long> count;
};

shared_page *page; /* NULL: not begun, nothing fails */
long fail_at;
long each, each_from, number; /* number: of the one that failed in this process */
char file_name[512];
pid_t owner;
char log_name[512];
uintptr_t base, from, to; /* of the executable: where it is loaded, and its code */

struct held {
  void *block;
  uintptr_t site;
  const char *call;
};
constexpr size_t SLOTS = 1 << 18;
held table[SLOTS];
std::atomic_flag lock = ATOMIC_FLAG_INIT;

size_t slot_of(const void *block) { return ((uintptr_t)block >> 4) * 0x9E3779B97F4A7C15u >> 46; }

void say(const char *word, const char *call, uintptr_t site, long n) {
  char line[160];
  if (log_name[0] == '\0') return;
  const int size = call != nullptr ? snprintf(line, sizeof line, "%s %ld %s 0x%lx\n", word, n, call, (unsigned long)(site - base))
                                   : snprintf(line, sizeof line, "%s %ld\n", word, n);
  const int fd = open(log_name, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
  if (fd >= 0 && write(fd, line, (size_t)size) < 0) errno = 0;
  if (fd >= 0) close(fd);
}

void keep(void *block, const char *call, uintptr_t site) {
  if (block == nullptr || page == nullptr) return;
  while (lock.test_and_set()) continue;
  size_t i = slot_of(block);
  while (table[i].block != nullptr && table[i].block != (void *)1) i = (i + 1) % SLOTS;
  table[i] = {block, site, call};
  lock.clear();
}

void forget(const void *block) {
  if (block == nullptr || page == nullptr) return;
  while (lock.test_and_set()) continue;
  size_t i = slot_of(block);
  for (size_t looked = 0; table[i].block != nullptr && looked < SLOTS; i = (i + 1) % SLOTS, looked++) {
    if (table[i].block != block) continue;
    table[i].block = (void *)1; /* passed by, used again */
    break;
  }
  lock.clear();
}

/* Code of a library that is linked statically (the CUDA runtime): LS_STARVE_SKIP="1a0-2f0,400-480", hexadecimal, from the executable's
 * base. */
struct range {
  uintptr_t low, high;
} foreign[256];
int foreign_ranges;

void take_foreign(const char *text) {
  while (text != nullptr && *text != '\0' && foreign_ranges < 256) {
    char *end;
    const uintptr_t low = strtoul(text, &end, 16);
    if (*end != '-') return;
    const uintptr_t high = strtoul(end + 1, &end, 16);
    foreign[foreign_ranges++] = {base + low, base + high};
    text = *end == ',' ? end + 1 : nullptr;
  }
}

bool own(uintptr_t site) {
  if (site < from || site >= to) return false;
  for (int i = 0; i < foreign_ranges; i++) {
    if (site >= foreign[i].low && site < foreign[i].high) return false;
  }
  return true;
}

void redirect(int to, const char *word, long n) {
  char name[600];
  snprintf(name, sizeof name, "%s.%s.%ld", log_name, word, n);
  const int fd = open(name, O_WRONLY | O_CREAT | O_TRUNC, 0666);
  if (fd >= 0) dup2(fd, to), close(fd);
}

/* Goes on twice: true in a child. */
bool split(long n) {
  enum { SECONDS = 120 };
  const pid_t pid = fork();
  if (pid == 0) {
    static shared_page mine; /* the program goes on counting by itself */
    mine.count.store(n);
    page = &mine;
    owner = getpid();
    each = 0;
    redirect(STDOUT_FILENO, "out", n);
    redirect(STDERR_FILENO, "err", n);
    alarm(SECONDS);
    return true;
  }
  int status = 0;
  while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) continue;
  char line[96];
  snprintf(line, sizeof line, "ended %ld", n);
  say(line, nullptr, 0, pid < 0 ? 127 : WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status));
  if (file_name[0] != '\0') {
    char kept[600];
    snprintf(kept, sizeof kept, "%s.%ld", file_name, n);
    rename(file_name, kept);
  }
  return false;
}

/* Whether this one, the program's own, has to fail. */
bool fails(const char *call, uintptr_t site) {
  if (page == nullptr) return false;
  const long n = page->count.fetch_add(1) + 1;
  if (n != fail_at && !(each > 0 && n >= each_from && (n - each_from) % each == 0 && getpid() == owner && split(n))) return false;
  number = n;
  say("failed", call, site, n);
  errno = ENOMEM;
  return true;
}

int see_executable(struct dl_phdr_info *info, size_t, void *) {
  base = info->dlpi_addr;
  for (int i = 0; i < info->dlpi_phnum; i++) {
    const ElfW(Phdr) &p = info->dlpi_phdr[i];
    if (p.p_type != PT_LOAD || (p.p_flags & PF_X) == 0) continue;
    from = base + p.p_vaddr;
    to = from + p.p_memsz;
  }
  return 1; /* the first is the executable */
}

__attribute__((constructor)) void begin() {
  const char *at = getenv("LS_STARVE_AT"), *log = getenv("LS_STARVE_LOG"), *all = getenv("LS_STARVE_EACH"),
             *file = getenv("LS_STARVE_FILE"), *first = getenv("LS_STARVE_FROM");
  if (at == nullptr) return;
  fail_at = strtol(at, nullptr, 10);
  each = all != nullptr ? strtol(all, nullptr, 10) : 0;
  each_from = first != nullptr ? strtol(first, nullptr, 10) : each;
  if (file != nullptr) snprintf(file_name, sizeof file_name, "%s", file);
  if (log != nullptr) snprintf(log_name, sizeof log_name, "%s", log);
  owner = getpid();
  dl_iterate_phdr(see_executable, nullptr);
  take_foreign(getenv("LS_STARVE_SKIP"));
  void *shared = mmap(nullptr, sizeof(shared_page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared != MAP_FAILED) page = new (shared) shared_page();
}

__attribute__((destructor)) void end() {
  if (page == nullptr || getpid() != owner) return;
  enum { PLACES = 256 };
  uintptr_t told[PLACES];
  int n = 0;
  for (const held &h : table) {
    bool is_told = h.block == nullptr || h.block == (void *)1;
    for (int i = 0; i < n && !is_told; i++) is_told = told[i] == h.site;
    if (is_told || n == PLACES) continue;
    told[n++] = h.site;
    say("held", h.call, h.site, number);
  }
  if (number == 0) say("count", nullptr, 0, page->count.load());
}

}  // namespace

#define CALLER ((uintptr_t)__builtin_return_address(0))
/* One of the program's own calls: NULL where it has to fail, else what `make` gives, remembered. */
#define GIVE(call, make)                 \
  const uintptr_t site = CALLER;         \
  if (!own(site)) return make;           \
  if (fails(call, site)) return nullptr; \
  auto *made = make;                     \
  keep(made, call, site);                \
  return made

extern "C" {

void *malloc(size_t n) { GIVE("malloc", __libc_malloc(n)); }
void *calloc(size_t n, size_t size) { GIVE("calloc", __libc_calloc(n, size)); }
void *aligned_alloc(size_t align, size_t n) { GIVE("aligned_alloc", __libc_memalign(align, n)); }

void *realloc(void *block, size_t n) {
  const uintptr_t site = CALLER;
  if (own(site) && fails("realloc", site)) return nullptr;
  forget(block);
  void *made = __libc_realloc(block, n);
  if (own(site)) keep(made != nullptr ? made : block, "realloc", site);
  return made;
}

void free(void *block) {
  forget(block);
  __libc_free(block);
}

static char *copy_of(const char *text, size_t n) {
  char *copy = (char *)__libc_malloc(n + 1);
  if (copy == nullptr) return nullptr;
  memcpy(copy, text, n);
  copy[n] = '\0';
  return copy;
}

char *strdup(const char *text) noexcept { GIVE("strdup", copy_of(text, strlen(text))); }
char *strndup(const char *text, size_t n) noexcept { GIVE("strndup", copy_of(text, strnlen(text, n))); }

char *realpath(const char *path, char *resolved) noexcept {
  static auto real = (char *(*)(const char *, char *))dlsym(RTLD_NEXT, "realpath");
  const uintptr_t site = CALLER;
  if (resolved == nullptr && own(site) && fails("realpath", site)) return nullptr;
  char *made = real(path, resolved);
  if (resolved == nullptr && own(site)) keep(made, "realpath", site);
  return made;
}

int asprintf(char **to_text, const char *format, ...) noexcept {
  const uintptr_t site = CALLER;
  if (own(site) && fails("asprintf", site)) return -1;
  va_list args;
  va_start(args, format);
  const int n = vasprintf(to_text, format, args);
  va_end(args);
  if (own(site) && n >= 0) keep(*to_text, "asprintf", site);
  return n;
}

FILE *fopen(const char *path, const char *mode) {
  static auto real = (FILE * (*)(const char *, const char *)) dlsym(RTLD_NEXT, "fopen");
  const uintptr_t site = CALLER;
  return own(site) && fails("fopen", site) ? nullptr : real(path, mode);
}

void *mmap(void *at, size_t n, int protection, int flags, int fd, off_t offset) noexcept {
  static auto real = (void *(*)(void *, size_t, int, int, int, off_t))dlsym(RTLD_NEXT, "mmap");
  const uintptr_t site = CALLER;
  return own(site) && fails("mmap", site) ? MAP_FAILED : real(at, n, protection, flags, fd, offset);
}
}  // extern "C"

static void *make(size_t n, uintptr_t site, const char *call) {
  if (fails(call, site)) return nullptr;
  void *made = __libc_malloc(n);
  keep(made, call, site);
  return made;
}

void *operator new(size_t n) {
  void *made = make(n, CALLER, "new");
  if (made == nullptr) throw std::bad_alloc();
  return made;
}
void *operator new[](size_t n) {
  void *made = make(n, CALLER, "new[]");
  if (made == nullptr) throw std::bad_alloc();
  return made;
}
void *operator new(size_t n, const std::nothrow_t &) noexcept { return make(n, CALLER, "new"); }
void *operator new[](size_t n, const std::nothrow_t &) noexcept { return make(n, CALLER, "new[]"); }
void operator delete(void *block) noexcept { free(block); }
void operator delete[](void *block) noexcept { free(block); }
void operator delete(void *block, size_t) noexcept { free(block); }
void operator delete[](void *block, size_t) noexcept { free(block); }
