/* emu_fault: a bad address in a kernel becomes a line with kernel, block, thread, address and buffer.
 *
 * The handler changes where the interrupted fiber goes on: at emu_fault_landing, on top of its own stack (its frames are dead), outside
 * the signal. From there it fails like any other thread. */
#include <signal.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <mutex>

#include "emu_fiber.h"

#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/asan_interface.h>
#endif

namespace LSG_NS {

namespace {

enum { SIGNAL_STACK_BYTES = 64 << 10 };

struct fault {
  uintptr_t address;
  bool write, known;
};
thread_local fault last_fault;

std::mutex lock;
int holders;
struct sigaction before_segv, before_bus;

[[noreturn]] void emu_fault_landing() {
  const fault f = last_fault;
  const void *p = reinterpret_cast<const void *>(f.address);
  const char *does = f.write ? "writes" : "reads";
  char text[EMU_TEXT_BYTES / 2];
  const emu_fiber *self = emu_self;
  if (f.address >= (uintptr_t)self->stack - EMU_PAGE && f.address < (uintptr_t)self->stack)
    emu_fail("its stack of %zu bytes is used up (recursion, or large local arrays)", self->stack_bytes);
  if (!f.known) emu_fail("%s an address that no memory can have (a poisoned or garbled pointer)", does);
  if (emu_memory_describe(text, sizeof text, p) || emu_describe_shared(self->worker, text, sizeof text, p))
    emu_fail("%s at address %p: %s", does, p, text);
  if (f.address < 65536) emu_fail("%s at address %p: a null pointer", does, p);
  emu_fail("%s at address %p: no device memory is there", does, p);
}

void go_on_landing(ucontext_t *context, const emu_fiber *self) {
  uintptr_t top = ((uintptr_t)self->stack + self->stack_bytes - 256) & ~(uintptr_t)15;
#if defined(__x86_64__)
  greg_t *r = context->uc_mcontext.gregs;
  r[REG_RSP] = (greg_t)(top - 8); /* as after a call */
  r[REG_RIP] = (greg_t)(uintptr_t)emu_fault_landing;
  r[REG_EFL] &= ~(greg_t)0x400; /* direction flag: string operations go up */
#elif defined(__aarch64__)
  context->uc_mcontext.sp = top;
  context->uc_mcontext.pc = (uintptr_t)emu_fault_landing;
#else
#error "emu: where a fault's context keeps stack pointer and program counter is not known for this processor"
#endif
}

bool is_write(const ucontext_t *context) {
#if defined(__x86_64__)
  return (context->uc_mcontext.gregs[REG_ERR] & 2) != 0;
#else
  (void)context;
  return false;
#endif
}

void on_fault(int signal, siginfo_t *info, void *context) {
  const emu_fiber *self = emu_self;
  if (self != nullptr && info->si_code > 0) { /* the processor's, not another process's kill */
    last_fault.address = (uintptr_t)info->si_addr;
    last_fault.known = info->si_code != SI_KERNEL; /* an address outside the processor's range comes without it */
    last_fault.write = is_write(static_cast<ucontext_t *>(context));
#if defined(__SANITIZE_ADDRESS__)
    __asan_unpoison_memory_region(self->stack, self->stack_bytes);
#endif
    go_on_landing(static_cast<ucontext_t *>(context), self);
    return;
  }
  const struct sigaction *before = signal == SIGBUS ? &before_bus : &before_segv;
  if ((before->sa_flags & SA_SIGINFO) != 0) {
    before->sa_sigaction(signal, info, context);
  } else if (before->sa_handler != SIG_DFL && before->sa_handler != SIG_IGN) {
    before->sa_handler(signal);
  } else {
    sigaction(signal, before, nullptr); /* comes again on return, and ends the process */
  }
}

}  // namespace

void emu_fault_hold(void) {
  std::lock_guard<std::mutex> hold(lock);
  if (holders++ > 0) return;
  struct sigaction action = {};
  action.sa_sigaction = on_fault;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK;
  sigemptyset(&action.sa_mask);
  sigaction(SIGSEGV, &action, &before_segv);
  sigaction(SIGBUS, &action, &before_bus);
}

void emu_fault_release(void) {
  std::lock_guard<std::mutex> hold(lock);
  if (--holders > 0) return;
  sigaction(SIGSEGV, &before_segv, nullptr);
  sigaction(SIGBUS, &before_bus, nullptr);
}

int emu_fault_enter(emu_fault_thread *t) {
  stack_t present;
  sigset_t faults;
  sigemptyset(&faults);
  sigaddset(&faults, SIGSEGV);
  sigaddset(&faults, SIGBUS);
  t->lent = false;
  if (pthread_sigmask(SIG_UNBLOCK, &faults, &t->mask_before) != 0) return -1;
  if (sigaltstack(nullptr, &present) == 0 && (present.ss_flags & SS_DISABLE) == 0) return 0; /* AddressSanitizer gives each thread one */
  if (t->memory == nullptr) {
    void *memory = mmap(nullptr, SIGNAL_STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    t->memory = memory != MAP_FAILED ? static_cast<unsigned char *>(memory) : nullptr;
  }
  stack_t mine = {};
  mine.ss_sp = t->memory, mine.ss_size = SIGNAL_STACK_BYTES;
  t->lent = t->memory != nullptr && sigaltstack(&mine, nullptr) == 0;
  if (!t->lent) pthread_sigmask(SIG_SETMASK, &t->mask_before, nullptr);
  return t->lent ? 0 : -1;
}

void emu_fault_leave(emu_fault_thread *t) {
  if (t->lent) {
    stack_t none = {};
    none.ss_flags = SS_DISABLE;
    sigaltstack(&none, nullptr);
    t->lent = false;
  }
  pthread_sigmask(SIG_SETMASK, &t->mask_before, nullptr);
}

void emu_fault_free(emu_fault_thread *t) {
  if (t->memory != nullptr) munmap(t->memory, SIGNAL_STACK_BYTES);
  t->memory = nullptr;
}

}  // namespace LSG_NS
