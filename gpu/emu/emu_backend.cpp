/* emu_backend: gpu_backend.h over host memory. */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <string>

#include "../../core/ls_parallel.h"
#include "emu_stream.h"

namespace LSG_NS {

struct lsg_graph_s {
  std::vector<std::unique_ptr<emu_op>> ops;
};

struct lsg_stream_s {
  std::unique_ptr<lsg_graph_s> capture; /* being captured */
  bool failed;
  char text[EMU_TEXT_BYTES]; /* of the first failure since the last sync */
};

struct lsg_mark_s {
  double seconds; /* negative: not recorded */
};

static thread_local char error_text[EMU_TEXT_BYTES];
static std::atomic<uint64_t> schedule_seed, launches;

lsg_status emu_error(lsg_status status, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(error_text, sizeof error_text, format, list);
  va_end(list);
  return status;
}

lsg_status emu_out_of_memory(const char *what) { return emu_error(LSG_NO_MEMORY, "emu: %s: out of memory", what); }

const char *lsg_error_text(void) { return error_text; }

/* ---- device ---- */

lsg_status lsg_open(int device) {
  if (device != 0) return emu_error(LSG_NO_DEVICE, "emu: no device %d: the emulator is device 0", device);
  return LSG_OK;
}

lsg_status lsg_info(lsg_device_info *info) {
  memset(info, 0, sizeof *info);
  int workers = ls_threads();
  snprintf(info->name, sizeof info->name, "emulator, %d worker%s", workers, workers == 1 ? "" : "s");
  snprintf(info->runtime, sizeof info->runtime, "emu");
  info->multiprocessors = workers;
  info->memory_bytes = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  info->max_shared_bytes = EMU_SHARED_LIMIT;
  return LSG_OK;
}

void lsg_set_schedule(uint64_t seed) {
  schedule_seed.store(seed);
  launches.store(0);
}

/* ---- memory ---- */

lsg_status lsg_alloc(void **device, size_t bytes, const char *name) {
  int error = emu_memory_new(device, bytes, name);
  if (error == 0) return LSG_OK;
  return emu_error(LSG_NO_MEMORY, "emu: no %zu bytes for buffer '%s': %s", bytes, name != nullptr ? name : "unnamed", strerror(error));
}

void lsg_free(void *device) {
  if (device != nullptr) emu_memory_free(device); /* what was never allocated, or is freed already, is left alone */
}

lsg_status emu_expect_device(const char *what, const void *p, size_t bytes) {
  char text[EMU_TEXT_BYTES / 2];
  if (bytes == 0) return LSG_OK;
  emu_where where = emu_memory_find(p, bytes);
  if (where == EMU_LIVE) return LSG_OK;
  if (!emu_memory_describe(text, sizeof text, p)) snprintf(text, sizeof text, "no device memory");
  return emu_error(LSG_FAILED, "emu: %s: expected %zu bytes of device memory at %p, found %s", what, bytes, p, text);
}

static lsg_status expect_host(const char *what, const void *p, size_t bytes) {
  char text[EMU_TEXT_BYTES / 2];
  if (bytes == 0) return LSG_OK;
  if (p == nullptr) return emu_error(LSG_FAILED, "emu: %s: the host pointer is null", what);
  if (!emu_memory_describe(text, sizeof text, p)) return LSG_OK;
  return emu_error(LSG_FAILED, "emu: %s: expected host memory at %p, found %s", what, p, text);
}

/* ---- stream ---- */

lsg_status lsg_stream_new(lsg_stream *stream) {
  *stream = new (std::nothrow) lsg_stream_s();
  return *stream != nullptr ? LSG_OK : emu_out_of_memory("a stream");
}
void lsg_stream_free(lsg_stream stream) { delete stream; }

static bool run_op(lsg_stream stream, emu_op *op) {
  if (stream->failed) return false; /* as on a GPU, nothing runs after a failure */
  stream->failed = !op->run(stream->text);
  return !stream->failed;
}

lsg_status emu_enqueue(lsg_stream stream, std::unique_ptr<emu_op> op) {
  if (!op) return emu_out_of_memory("an operation");
  if (stream == nullptr) return emu_error(LSG_FAILED, "emu: no stream was given");
  if (stream->capture) {
    try {
      stream->capture->ops.push_back(std::move(op));
    } catch (...) {
      return emu_out_of_memory("a graph");
    }
    return LSG_OK;
  }
  run_op(stream, op.get());
  return LSG_OK;
}

lsg_status lsg_sync(lsg_stream stream) {
  if (stream == nullptr) return emu_error(LSG_FAILED, "emu: no stream was given");
  if (stream->capture) return emu_error(LSG_FAILED, "emu: lsg_sync inside a graph capture");
  if (!stream->failed) return LSG_OK;
  stream->failed = false;
  return emu_error(LSG_FAILED, "%s", stream->text);
}

/* ---- copies ---- */

namespace {

class copy_op final : public emu_op {
 public:
  copy_op(void *to, const void *from, size_t bytes) : to_(to), from_(from), bytes_(bytes) {}
  bool run(char *text) override {
    if (emu_expect_device("lsg_copy to", to_, bytes_) != LSG_OK || emu_expect_device("lsg_copy from", from_, bytes_) != LSG_OK) {
      snprintf(text, EMU_TEXT_BYTES, "%s", error_text);
      return false;
    }
    memmove(to_, from_, bytes_);
    return true;
  }

 private:
  void *to_;
  const void *from_;
  size_t bytes_;
};

class fill_op final : public emu_op {
 public:
  fill_op(void *to, int byte, size_t bytes) : to_(to), byte_(byte), bytes_(bytes) {}
  bool run(char *text) override {
    if (emu_expect_device("lsg_fill", to_, bytes_) != LSG_OK) {
      snprintf(text, EMU_TEXT_BYTES, "%s", error_text);
      return false;
    }
    memset(to_, byte_, bytes_);
    return true;
  }

 private:
  void *to_;
  int byte_;
  size_t bytes_;
};

}  // namespace

lsg_status lsg_upload(void *device, const void *host, size_t bytes, lsg_stream stream) {
  if (stream == nullptr) return emu_error(LSG_FAILED, "emu: no stream was given");
  if (stream->capture) return emu_error(LSG_FAILED, "emu: an upload inside a graph capture would freeze its host bytes");
  lsg_status status = emu_expect_device("lsg_upload", device, bytes);
  if (status == LSG_OK) status = expect_host("lsg_upload", host, bytes);
  if (status == LSG_OK && !stream->failed && bytes > 0) memcpy(device, host, bytes);
  return status;
}

lsg_status lsg_download(void *host, const void *device, size_t bytes, lsg_stream stream) {
  if (stream == nullptr) return emu_error(LSG_FAILED, "emu: no stream was given");
  if (stream->capture) return emu_error(LSG_FAILED, "emu: a download inside a graph capture");
  if (stream->failed) return emu_error(LSG_FAILED, "%s", stream->text);
  lsg_status status = emu_expect_device("lsg_download", device, bytes);
  if (status == LSG_OK) status = expect_host("lsg_download", host, bytes);
  if (status == LSG_OK && bytes > 0) memcpy(host, device, bytes);
  return status;
}

lsg_status lsg_copy(void *device_to, const void *device_from, size_t bytes, lsg_stream stream) {
  lsg_status status = emu_expect_device("lsg_copy to", device_to, bytes);
  if (status == LSG_OK) status = emu_expect_device("lsg_copy from", device_from, bytes);
  if (status != LSG_OK || bytes == 0) return status;
  return emu_enqueue(stream, std::unique_ptr<emu_op>(new (std::nothrow) copy_op(device_to, device_from, bytes)));
}

lsg_status lsg_fill(void *device, int byte, size_t bytes, lsg_stream stream) {
  lsg_status status = emu_expect_device("lsg_fill", device, bytes);
  if (status != LSG_OK || bytes == 0) return status;
  return emu_enqueue(stream, std::unique_ptr<emu_op>(new (std::nothrow) fill_op(device, byte, bytes)));
}

/* ---- launches ---- */

/* Pointers must be null or lie in (or end) a live buffer. In structs, words that look like addresses of mapped host memory are refused:
 * what is below 4 GiB is taken for a number. */
static bool arguments_are_fine(char *text, const char *name, const emu_call *call) {
  const emu_argument *list;
  char what[EMU_TEXT_BYTES / 2];
  int n = call->arguments(&list);
  for (int i = 0; i < n; i++) {
    if (list[i].kind == emu_argument::SCALAR) continue;
    for (size_t at = 0; at + sizeof(void *) <= list[i].bytes; at += sizeof(void *)) {
      uintptr_t word;
      memcpy(&word, static_cast<const char *>(list[i].data) + at, sizeof word);
      emu_treat_as_written(&word, sizeof word); /* a struct's padding */
      const void *p = reinterpret_cast<const void *>(word);
      if (word == 0) continue;
      emu_where where = emu_memory_find(p, 0);
      if (where == EMU_LIVE) continue;
      bool pointer = list[i].kind == emu_argument::POINTER;
      bool device = emu_memory_describe(what, sizeof what, p);
      if (!pointer && !device && (word >> 32 == 0 || word >> 47 != 0 || !emu_is_mapped(p))) continue;
      if (!device) snprintf(what, sizeof what, "%s", emu_is_mapped(p) ? "host memory" : "no memory at all");
      char offset[48] = "";
      if (!pointer) snprintf(offset, sizeof offset, " (a struct), byte %zu,", at);
      snprintf(text, EMU_TEXT_BYTES, "emu: kernel %s: argument %d%s is %p: expected device memory, found %s", name, i + 1, offset, p, what);
      return false;
    }
  }
  return true;
}

namespace {

class launch_op final : public emu_op {
 public:
  launch_op(std::string name, std::unique_ptr<emu_call> call, lsg_dim3 grid, int threads, size_t dynamic_bytes)
      : name_(std::move(name)), call_(std::move(call)), grid_(grid), threads_(threads), dynamic_bytes_(dynamic_bytes) {}

  bool run(char *text) override {
    if (!arguments_are_fine(text, name_.c_str(), call_.get())) return false;
    emu_run run = {};
    run.name = name_.c_str(), run.call = call_.get(), run.early = call_->early(), run.grid = grid_, run.threads = threads_,
    run.dynamic_bytes = dynamic_bytes_;
    run.blocks = (int64_t)grid_.x * grid_.y * grid_.z;
    run.seed = schedule_seed.load();
    run.number = launches.fetch_add(1);
    std::vector<uint32_t> order;
    if (run.seed != 0) {
      try {
        order.resize((size_t)run.blocks);
      } catch (...) {
        snprintf(text, EMU_TEXT_BYTES, "emu: kernel %s: no memory for a random order of %lld blocks", run.name, (long long)run.blocks);
        return false;
      }
      emu_shuffle_blocks(order.data(), run.blocks, run.seed, run.number);
      run.order = order.data();
    }
    if (!emu_run_blocks(&run)) {
      memcpy(text, run.text, sizeof run.text);
      return false;
    }
    char what[EMU_TEXT_BYTES / 2];
    if (emu_memory_check(what, sizeof what)) return true;
    snprintf(text, EMU_TEXT_BYTES, "emu: kernel %s: one of its threads %s", run.name, what);
    return false;
  }

  const emu_call *call() const { return call_.get(); }

 private:
  std::string name_;
  std::unique_ptr<emu_call> call_;
  lsg_dim3 grid_;
  int threads_;
  size_t dynamic_bytes_;
};

}  // namespace

lsg_status emu_launch(const char *name, std::unique_ptr<emu_call> call, lsg_dim3 grid, int threads, size_t dynamic_bytes,
                      lsg_stream stream) {
  try {
    std::string plain = name; /* LSG_LAUNCH((k<1, 2>), ...) keeps its parentheses */
    if (plain.size() > 2 && plain.front() == '(' && plain.back() == ')') plain = plain.substr(1, plain.size() - 2);
    const char *k = plain.c_str();
    if (grid.x == 0 || grid.y == 0 || grid.z == 0 || grid.x > 0x7FFFFFFFu || grid.y > 65535 || grid.z > 65535)
      return emu_error(LSG_FAILED, "emu: kernel %s: grid (%u,%u,%u), expected 1..2147483647 x 1..65535 x 1..65535", k, grid.x, grid.y,
                       grid.z);
    if (threads < 1 || threads > EMU_MAX_THREADS)
      return emu_error(LSG_FAILED, "emu: kernel %s: %d threads a block, expected 1..%d", k, threads, EMU_MAX_THREADS);
    if (dynamic_bytes > EMU_SHARED_LIMIT)
      return emu_error(LSG_FAILED, "emu: kernel %s: %zu bytes of dynamic shared memory, expected at most %d", k, dynamic_bytes,
                       EMU_SHARED_LIMIT);
    if (!arguments_are_fine(error_text, k, call.get())) return LSG_FAILED;
    return emu_enqueue(stream, std::make_unique<launch_op>(std::move(plain), std::move(call), grid, threads, dynamic_bytes));
  } catch (const std::bad_alloc &) {
    return emu_out_of_memory(name);
  }
}

/* ---- graphs ---- */

lsg_status lsg_graph_begin(lsg_stream stream) {
  if (stream == nullptr) return emu_error(LSG_FAILED, "emu: no stream was given");
  if (stream->capture) return emu_error(LSG_FAILED, "emu: the stream is being captured already");
  stream->capture.reset(new (std::nothrow) lsg_graph_s());
  return stream->capture ? LSG_OK : emu_out_of_memory("a graph");
}

lsg_status lsg_graph_end(lsg_graph *graph, lsg_stream stream) {
  *graph = nullptr;
  if (stream == nullptr) return emu_error(LSG_FAILED, "emu: no stream was given");
  if (!stream->capture) return emu_error(LSG_FAILED, "emu: no graph capture was begun");
  *graph = stream->capture.release();
  return LSG_OK;
}

lsg_status lsg_graph_launch(lsg_graph graph, lsg_stream stream) {
  if (stream == nullptr) return emu_error(LSG_FAILED, "emu: no stream was given");
  if (stream->capture) return emu_error(LSG_FAILED, "emu: a graph launch inside a graph capture");
  for (auto &op : graph->ops)
    if (!run_op(stream, op.get())) break;
  return LSG_OK;
}

int lsg_graph_nodes(lsg_graph graph) { return static_cast<int>(graph->ops.size()); }

void lsg_graph_free(lsg_graph graph) { delete graph; }

/* ---- marks ---- */

lsg_status lsg_mark_new(lsg_mark *mark) {
  *mark = new (std::nothrow) lsg_mark_s{-1};
  return *mark != nullptr ? LSG_OK : emu_out_of_memory("a mark");
}
lsg_status lsg_mark_record(lsg_mark mark, lsg_stream stream) {
  if (stream == nullptr) return emu_error(LSG_FAILED, "emu: no stream was given");
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  mark->seconds = (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
  return LSG_OK;
}
lsg_status lsg_mark_seconds(double *seconds, lsg_mark from, lsg_mark to) {
  if (from->seconds < 0 || to->seconds < 0) return emu_error(LSG_FAILED, "emu: a mark was not recorded");
  *seconds = to->seconds - from->seconds;
  return LSG_OK;
}
void lsg_mark_free(lsg_mark mark) { delete mark; }

}  // namespace LSG_NS
