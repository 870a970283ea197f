/* cuda_buffer: what the programs share that hold a kernel of one device against its portable twin: device memory with a vector's content.
 * Any error ends the program with a line. */
#ifndef LS_CUDA_BUFFER_H
#define LS_CUDA_BUFFER_H

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include <vector>

#include "gpu/gpu_backend.h"

namespace LSG_NS {

static inline void need(lsg_status status) {
  if (status == LSG_OK) return;
  fprintf(stderr, "%s: %s\n", program_invocation_short_name, lsg_error_text());
  exit(1);
}

template <class T>
struct buffer {
  T *data = nullptr;
  size_t count;
  buffer(size_t n, const char *name) : count(n) { need(lsg_alloc((void **)&data, n * sizeof(T), name)); }
  buffer(const std::vector<T> &v, const char *name, lsg_stream stream) : buffer(v.size(), name) {
    need(lsg_upload(data, v.data(), v.size() * sizeof(T), stream));
  }
  ~buffer() { lsg_free(data); }
  buffer(const buffer &) = delete;
  buffer &operator=(const buffer &) = delete;
  std::vector<T> get(lsg_stream stream) const {
    std::vector<T> v(count);
    need(lsg_download(v.data(), data, count * sizeof(T), stream));
    return v;
  }
};

}  // namespace LSG_NS
#endif
