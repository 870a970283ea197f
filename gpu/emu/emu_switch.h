/* emu_switch: from one stack to another. Inside the emulator only.
 *
 *   void *emu_context(void *top, size_t bytes, void (*begin)(void))   a context that begins `begin`, which never returns, on a stack of
 *                                                                     `bytes` below `top`
 *   void emu_swap(void **from, void *to)                              stores where it is in *from, goes on at `to`
 *
 * Boost.Context's fcontext everywhere but on x86-64, where it costs twice as much: it leaves by an indirect jump, so that every return
 * after it is predicted wrongly. Fibers of one warp come from the same calls, so leaving by `ret` keeps the predictions right. Neither
 * saves vector registers (no call does); this one leaves the floating-point control words alone too, which kernels do not change. */
#ifndef EMU_SWITCH_H
#define EMU_SWITCH_H

#include <stddef.h>
#include <stdint.h>

#if defined(__x86_64__)

extern "C" __attribute__((visibility("hidden"))) void lsg_emu_swap(void **from, void *to);

static inline void emu_swap(void **from, void *to) { lsg_emu_swap(from, to); }

static inline void *emu_context(void *top, size_t, void (*begin)(void)) {
  /* below an aligned top: six registers, where to return to, and the address `begin` would return to */
  auto *slot = reinterpret_cast<uintptr_t *>((uintptr_t)top & ~(uintptr_t)15) - 8;
  for (int i = 0; i < 6; i++) slot[i] = 0;
  slot[6] = (uintptr_t)begin;
  slot[7] = 0;
  return slot;
}

#define EMU_SWITCH_DEFINITION                                                          \
  asm(".pushsection .text\n"                                                           \
      ".p2align 4\n"                                                                   \
      ".globl lsg_emu_swap\n"                                                          \
      ".hidden lsg_emu_swap\n"                                                         \
      ".type lsg_emu_swap, @function\n"                                                \
      "lsg_emu_swap:\n"                                                                \
      "  push %rbp\n  push %rbx\n  push %r12\n  push %r13\n  push %r14\n  push %r15\n" \
      "  mov %rsp, (%rdi)\n"                                                           \
      "  mov %rsi, %rsp\n"                                                             \
      "  pop %r15\n  pop %r14\n  pop %r13\n  pop %r12\n  pop %rbx\n  pop %rbp\n"       \
      "  ret\n"                                                                        \
      ".size lsg_emu_swap, . - lsg_emu_swap\n"                                         \
      ".popsection\n");

#else

#include <boost/context/detail/fcontext.hpp>

static inline void emu_swap_arrived(boost::context::detail::transfer_t t) { *static_cast<void **>(t.data) = t.fctx; }

static inline void emu_swap(void **from, void *to) { emu_swap_arrived(boost::context::detail::jump_fcontext(to, from)); }

template <void (*begin)(void)>
static void emu_context_begin(boost::context::detail::transfer_t t) {
  emu_swap_arrived(t);
  begin();
}

#define emu_context(top, bytes, begin) boost::context::detail::make_fcontext(top, bytes, emu_context_begin<begin>)

#define EMU_SWITCH_DEFINITION

#endif

#endif
