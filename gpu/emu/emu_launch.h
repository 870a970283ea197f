/* emu_launch.h: LSG_LAUNCH in the emulator. A launch is an object that holds a copy of the arguments and can be run by every thread of
 * every block, at once or, captured into a graph, later. */
#ifndef EMU_LAUNCH_H
#define EMU_LAUNCH_H

#include <memory>
#include <new>
#include <tuple>
#include <type_traits>
#include <utility>

namespace LSG_NS {

/* The bytes of one argument, for the search for host pointers. */
struct emu_argument {
  const void *data;
  size_t bytes;
  enum { SCALAR, POINTER, STRUCT } kind;
};

class emu_call {
 public:
  explicit emu_call(bool early) : early_(early) {}
  virtual ~emu_call() = default;
  virtual void invoke() const = 0; /* one thread of the kernel */
  virtual int arguments(const emu_argument **list) const = 0;
  bool early() const { return early_; } /* LSG_LAUNCH_EARLY */

 private:
  bool early_;
};

/* emu_backend.cpp. Takes the call over. */
lsg_status emu_launch(const char *name, std::unique_ptr<emu_call> call, lsg_dim3 grid, int threads, size_t dynamic_bytes,
                      lsg_stream stream);
lsg_status emu_out_of_memory(const char *what);

/* What stands between the members of a struct is whatever was on the caller's stack, and may look like a host address. */
template <typename T>
inline void emu_clear_padding(T &value) {
#if defined(__has_builtin)
#if __has_builtin(__builtin_clear_padding)
  if constexpr (std::is_class_v<T>) __builtin_clear_padding(&value);
#endif
#endif
  (void)value;
}

template <typename... P>
class emu_kernel_call final : public emu_call {
 public:
  emu_kernel_call(bool early, void (*kernel)(P...), P... p) : emu_call(early), kernel_(kernel), values_(p...) {
    static_assert((std::is_trivially_copyable_v<P> && ...), "kernel arguments are pointers, scalars and plain structs");
    std::apply([](P &...value) { (emu_clear_padding(value), ...); }, values_);
    describe(std::index_sequence_for<P...>());
  }
  void invoke() const override { std::apply(kernel_, values_); }
  int arguments(const emu_argument **list) const override {
    *list = list_;
    return (int)sizeof...(P);
  }

 private:
  template <size_t... I>
  void describe(std::index_sequence<I...>) {
    ((list_[I] = {&std::get<I>(values_), sizeof(P),
                  std::is_pointer_v<P> ? emu_argument::POINTER
                  : std::is_class_v<P> ? emu_argument::STRUCT
                                       : emu_argument::SCALAR}),
     ...);
  }
  void (*kernel_)(P...);
  std::tuple<P...> values_;
  emu_argument list_[sizeof...(P) + 1];
};

template <bool early, typename... P, typename... A>
inline lsg_status lsg_launch(const char *name, void (*kernel)(P...), lsg_dim3 grid, int threads, size_t dynamic_bytes, lsg_stream stream,
                             A... a) {
  static_assert(sizeof...(P) == sizeof...(A), "LSG_LAUNCH: the kernel takes another number of arguments");
  std::unique_ptr<emu_call> call(new (std::nothrow) emu_kernel_call<P...>(early, kernel, static_cast<P>(a)...));
  if (!call) return emu_out_of_memory(name);
  return emu_launch(name, std::move(call), grid, threads, dynamic_bytes, stream);
}

}  // namespace LSG_NS

#define LSG_LAUNCH(kernel, ...)       LSG_NS::lsg_launch<false>(#kernel, kernel, __VA_ARGS__)
#define LSG_LAUNCH_EARLY(kernel, ...) LSG_NS::lsg_launch<true>(#kernel, kernel, __VA_ARGS__)

#endif
