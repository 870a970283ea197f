/* cuda_launch.cuh: LSG_LAUNCH over cudaLaunchKernel. Arguments are converted to the kernel's parameter types, so an int literal may stand
 * for an int64_t. A kernel with commas in its template arguments goes in parentheses: LSG_LAUNCH((k<1, 2>), ...). */
#ifndef CUDA_LAUNCH_CUH
#define CUDA_LAUNCH_CUH

namespace LSG_NS {

/* cuda_backend.cu: raises the kernel's dynamic shared memory limit, launches, and puts the kernel's name in the error text. */
lsg_status lsg_launch_raw(const char *name, const void *kernel, lsg_dim3 grid, int threads, size_t dynamic_bytes, bool early,
                          lsg_stream stream, void **arguments);

template <bool early, typename... P, typename... A>
inline lsg_status lsg_launch(const char *name, void (*kernel)(P...), lsg_dim3 grid, int threads, size_t dynamic_bytes, lsg_stream stream,
                             A... a) {
  static_assert(sizeof...(P) == sizeof...(A), "LSG_LAUNCH: the kernel takes another number of arguments");
  return [&](P... p) {
    void *arguments[sizeof...(P) + 1] = {const_cast<void *>(static_cast<const void *>(&p))..., nullptr};
    return lsg_launch_raw(name, reinterpret_cast<const void *>(kernel), grid, threads, dynamic_bytes, early, stream, arguments);
  }(static_cast<P>(a)...);
}

}  // namespace LSG_NS

#define LSG_LAUNCH(kernel, ...)       LSG_NS::lsg_launch<false>(#kernel, kernel, __VA_ARGS__)
#define LSG_LAUNCH_EARLY(kernel, ...) LSG_NS::lsg_launch<true>(#kernel, kernel, __VA_ARGS__)

#endif
