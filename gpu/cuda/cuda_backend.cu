/* cuda_backend: gpu_backend.h over the CUDA runtime. */
#include <cuda_runtime.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cuda_internal.cuh"

namespace LSG_NS {

struct lsg_stream_s {
  cudaStream_t stream;
  bool capturing;
  bool early; /* the device can begin a launch before the one in front has ended: compute capability 9.0 and up */
};
struct lsg_graph_s {
  cudaGraph_t graph;
  cudaGraphExec_t exec;
};
struct lsg_mark_s {
  cudaEvent_t event;
};

static thread_local char error_text[512];

lsg_status cuda_fail(lsg_status status, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(error_text, sizeof error_text, format, list);
  va_end(list);
  return status;
}

/* Relays a runtime error as the one line of lsg_error_text. */
#define CUDA_TRY(call)                                                                                            \
  do {                                                                                                            \
    cudaError_t cuda_error = (call);                                                                              \
    if (cuda_error != cudaSuccess) return cuda_fail(LSG_FAILED, "%s: %s", #call, cudaGetErrorString(cuda_error)); \
  } while (0)

const char *lsg_error_text(void) { return error_text; }

void *cuda_stream_of(lsg_stream stream) { return stream->stream; }

bool cuda_device_ask(cuda_device *d) {
  const char *portable = getenv("LOCKSTEP_PORTABLE");
  int device = 0, minor = 0;
  *d = {};
  d->portable = portable != nullptr && strcmp(portable, "") != 0 && strcmp(portable, "0") != 0;
  if (cudaGetDevice(&device) != cudaSuccess ||
      cudaDeviceGetAttribute(&d->major, cudaDevAttrComputeCapabilityMajor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&d->shared_bytes, cudaDevAttrMaxSharedMemoryPerBlockOptin, device) != cudaSuccess ||
      cudaDeviceGetAttribute(&d->multiprocessors, cudaDevAttrMultiProcessorCount, device) != cudaSuccess)
    return false;
  d->hopper = d->major == 9 && minor == 0 && !d->portable;
  return true;
}

lsg_status lsg_open(int device) {
  int count = 0;
  cudaError_t error = cudaGetDeviceCount(&count);
  if (error != cudaSuccess || count == 0) {
    cudaGetLastError();
    return cuda_fail(LSG_NO_DEVICE, "no CUDA device: %s", error != cudaSuccess ? cudaGetErrorString(error) : "the driver lists none");
  }
  if (device < 0 || device >= count) return cuda_fail(LSG_NO_DEVICE, "no CUDA device %d: the driver lists %d", device, count);
  CUDA_TRY(cudaSetDevice(device));
  CUDA_TRY(cudaFree(nullptr)); /* makes the context here, not inside the first step */
  return LSG_OK;
}

lsg_status lsg_info(lsg_device_info *info) {
  int device = 0, runtime = 0, driver = 0, optin = 0;
  cudaDeviceProp properties;
  size_t free_bytes = 0, total = 0;
  memset(info, 0, sizeof *info);
  CUDA_TRY(cudaGetDevice(&device));
  CUDA_TRY(cudaGetDeviceProperties(&properties, device));
  CUDA_TRY(cudaRuntimeGetVersion(&runtime));
  CUDA_TRY(cudaDriverGetVersion(&driver));
  CUDA_TRY(cudaMemGetInfo(&free_bytes, &total));
  CUDA_TRY(cudaDeviceGetAttribute(&optin, cudaDevAttrMaxSharedMemoryPerBlockOptin, device));
  snprintf(info->name, sizeof info->name, "%.127s", properties.name);
  snprintf(info->runtime, sizeof info->runtime, "CUDA %d.%d, driver for %d.%d", runtime / 1000, runtime % 1000 / 10, driver / 1000,
           driver % 1000 / 10);
  info->multiprocessors = properties.multiProcessorCount;
  info->memory_bytes = (int64_t)free_bytes;
  info->max_shared_bytes = optin;
  info->cache_bytes = properties.l2CacheSize;
  return LSG_OK;
}

lsg_status lsg_stream_new(lsg_stream *stream) {
  *stream = static_cast<lsg_stream>(calloc(1, sizeof **stream));
  if (*stream == nullptr) return cuda_fail(LSG_NO_MEMORY, "out of host memory");
  cudaError_t error = cudaStreamCreateWithFlags(&(*stream)->stream, cudaStreamNonBlocking);
  cuda_device device;
  (*stream)->early = cuda_device_ask(&device) && device.major >= 9;
  if (error == cudaSuccess) return LSG_OK;
  free(*stream);
  *stream = nullptr;
  return cuda_fail(LSG_FAILED, "cudaStreamCreate: %s", cudaGetErrorString(error));
}
void lsg_stream_free(lsg_stream stream) {
  if (stream == nullptr) return;
  cudaStreamDestroy(stream->stream);
  free(stream);
}

lsg_status lsg_alloc(void **device, size_t bytes, const char *name) {
  *device = nullptr;
  cudaError_t error = cudaMalloc(device, bytes > 0 ? bytes : 1);
  if (error == cudaSuccess) return LSG_OK;
  cudaGetLastError();
  size_t free_bytes = 0, total = 0;
  cudaMemGetInfo(&free_bytes, &total);
  return cuda_fail(LSG_NO_MEMORY, "%s: expected %zu bytes of device memory, found %zu free of %zu (%s)", name, bytes, free_bytes, total,
                   cudaGetErrorString(error));
}
void lsg_free(void *device) {
  if (device != nullptr) cudaFree(device);
}

lsg_status lsg_upload(void *device, const void *host, size_t bytes, lsg_stream stream) {
  if (stream->capturing) return cuda_fail(LSG_FAILED, "an upload inside a graph capture would freeze its host bytes");
  if (bytes == 0) return LSG_OK;
  CUDA_TRY(cudaMemcpyAsync(device, host, bytes, cudaMemcpyHostToDevice, stream->stream));
  CUDA_TRY(cudaStreamSynchronize(stream->stream)); /* the host buffer may be reused on return, pinned or not */
  return LSG_OK;
}
lsg_status lsg_download(void *host, const void *device, size_t bytes, lsg_stream stream) {
  if (stream->capturing) return cuda_fail(LSG_FAILED, "a download inside a graph capture");
  if (bytes > 0) CUDA_TRY(cudaMemcpyAsync(host, device, bytes, cudaMemcpyDeviceToHost, stream->stream));
  CUDA_TRY(cudaStreamSynchronize(stream->stream));
  return LSG_OK;
}
lsg_status lsg_copy(void *device_to, const void *device_from, size_t bytes, lsg_stream stream) {
  if (bytes > 0) CUDA_TRY(cudaMemcpyAsync(device_to, device_from, bytes, cudaMemcpyDeviceToDevice, stream->stream));
  return LSG_OK;
}
lsg_status lsg_fill(void *device, int byte, size_t bytes, lsg_stream stream) {
  if (bytes > 0) CUDA_TRY(cudaMemsetAsync(device, byte, bytes, stream->stream));
  return LSG_OK;
}
lsg_status lsg_sync(lsg_stream stream) {
  CUDA_TRY(cudaStreamSynchronize(stream->stream));
  CUDA_TRY(cudaGetLastError());
  return LSG_OK;
}

lsg_status lsg_graph_begin(lsg_stream stream) {
  CUDA_TRY(cudaStreamBeginCapture(stream->stream, cudaStreamCaptureModeThreadLocal));
  stream->capturing = true;
  return LSG_OK;
}
lsg_status lsg_graph_end(lsg_graph *graph, lsg_stream stream) {
  *graph = nullptr;
  stream->capturing = false;
  cudaGraph_t captured = nullptr;
  cudaGraphExec_t exec = nullptr;
  cudaError_t error = cudaStreamEndCapture(stream->stream, &captured);
  if (error == cudaSuccess) error = cudaGraphInstantiate(&exec, captured, 0);
  lsg_graph made = error == cudaSuccess ? static_cast<lsg_graph>(calloc(1, sizeof *made)) : nullptr;
  if (made == nullptr) {
    if (exec != nullptr) cudaGraphExecDestroy(exec);
    if (captured != nullptr) cudaGraphDestroy(captured);
    if (error == cudaSuccess) return cuda_fail(LSG_NO_MEMORY, "out of host memory");
    return cuda_fail(LSG_FAILED, "graph capture: %s", cudaGetErrorString(error));
  }
  made->graph = captured;
  made->exec = exec;
  *graph = made;
  return LSG_OK;
}
lsg_status lsg_graph_launch(lsg_graph graph, lsg_stream stream) {
  CUDA_TRY(cudaGraphLaunch(graph->exec, stream->stream));
  return LSG_OK;
}
int lsg_graph_nodes(lsg_graph graph) {
  size_t nodes = 0;
  return cudaGraphGetNodes(graph->graph, nullptr, &nodes) == cudaSuccess ? (int)nodes : 0;
}
void lsg_graph_free(lsg_graph graph) {
  if (graph == nullptr) return;
  cudaGraphExecDestroy(graph->exec);
  cudaGraphDestroy(graph->graph);
  free(graph);
}

lsg_status lsg_mark_new(lsg_mark *mark) {
  *mark = static_cast<lsg_mark>(calloc(1, sizeof **mark));
  if (*mark == nullptr) return cuda_fail(LSG_NO_MEMORY, "out of host memory");
  cudaError_t error = cudaEventCreate(&(*mark)->event);
  if (error == cudaSuccess) return LSG_OK;
  free(*mark);
  *mark = nullptr;
  return cuda_fail(LSG_FAILED, "cudaEventCreate: %s", cudaGetErrorString(error));
}
lsg_status lsg_mark_record(lsg_mark mark, lsg_stream stream) {
  CUDA_TRY(cudaEventRecord(mark->event, stream->stream));
  return LSG_OK;
}
lsg_status lsg_mark_seconds(double *seconds, lsg_mark from, lsg_mark to) {
  float milliseconds = 0;
  CUDA_TRY(cudaEventSynchronize(to->event));
  CUDA_TRY(cudaEventElapsedTime(&milliseconds, from->event, to->event));
  *seconds = milliseconds * 1e-3;
  return LSG_OK;
}
void lsg_mark_free(lsg_mark mark) {
  if (mark == nullptr) return;
  cudaEventDestroy(mark->event);
  free(mark);
}

void lsg_set_schedule(uint64_t) {} /* the card orders its threads as it likes */

lsg_status lsg_launch_raw(const char *name, const void *kernel, lsg_dim3 grid, int threads, size_t dynamic_bytes, bool early,
                          lsg_stream stream, void **arguments) {
  if (grid.x == 0 || grid.y == 0 || grid.z == 0 || threads <= 0)
    return cuda_fail(LSG_FAILED, "kernel %s: empty grid (%u, %u, %u) of %d threads", name, grid.x, grid.y, grid.z, threads);
  cudaError_t error = cudaSuccess;
  /* 48 KB without asking is for static and dynamic together, so asked whenever there is any */
  if (dynamic_bytes > 0) error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, (int)dynamic_bytes);
  cudaLaunchAttribute attribute;
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(grid.x, grid.y, grid.z);
  config.blockDim = dim3((unsigned)threads);
  config.dynamicSmemBytes = dynamic_bytes;
  config.stream = stream->stream;
  config.attrs = &attribute;
  config.numAttrs = early && stream->early ? 1 : 0;
  if (error == cudaSuccess) error = cudaLaunchKernelExC(&config, kernel, arguments);
  if (error == cudaSuccess) return LSG_OK;
  cudaGetLastError();
  return cuda_fail(LSG_FAILED, "kernel %s, grid (%u, %u, %u), %d threads, %zu bytes of shared memory: %s", name, grid.x, grid.y, grid.z,
                   threads, dynamic_bytes, cudaGetErrorString(error));
}

}  // namespace LSG_NS
