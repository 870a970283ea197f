/* gpu_backend.h: the host side of a backend: memory, copies, a stream, launches, graphs. gpu_path.cu and the launchers use nothing else.
 *
 * Implemented by cuda/cuda_backend.cu over the CUDA runtime and by emu/emu_backend.cpp over host memory. In emu device memory is separate
 * from host memory: every allocation is poisoned, ends at an inaccessible page, and is preceded by one, so that one element too far faults
 * and is reported as kernel, block, thread, address and buffer. A host pointer given to a kernel is an error there. A launch in emu runs at
 * once, but its failure shows at the next lsg_sync, as on a GPU.
 *
 * Every function returns an lsg_status; the text of the last failure is lsg_error_text() (per thread, one line). One context a path. */
#ifndef GPU_BACKEND_H
#define GPU_BACKEND_H

#include "gpu_device.h"

namespace LSG_NS {

typedef enum { LSG_OK = 0, LSG_NO_DEVICE, LSG_NO_MEMORY, LSG_FAILED } lsg_status;

typedef struct lsg_stream_s *lsg_stream;
typedef struct lsg_graph_s *lsg_graph;

typedef struct {
  char name[128];   /* "NVIDIA H200", "emulator, 2 workers" */
  char runtime[64]; /* "CUDA 13.0, driver 13.0" | "emu" */
  int multiprocessors;
  int64_t memory_bytes; /* free at the call; emu: physical memory */
  int max_shared_bytes; /* dynamic shared memory a block can have after opting in */
  int64_t cache_bytes;  /* of the cache that all blocks share; emu: 0 */
} lsg_device_info;

lsg_status lsg_open(int device); /* selects the device; LSG_NO_DEVICE where there is none */
lsg_status lsg_info(lsg_device_info *info);
const char *lsg_error_text(void);

lsg_status lsg_stream_new(lsg_stream *stream);
void lsg_stream_free(lsg_stream stream);

lsg_status lsg_alloc(void **device, size_t bytes, const char *name); /* not from inside a step; poisoned in emu */
void lsg_free(void *device);

/* Ordered on the stream. Host buffers of lsg_upload may be reused on return (staged where needed); lsg_download waits for the stream. */
lsg_status lsg_upload(void *device, const void *host, size_t bytes, lsg_stream stream);
lsg_status lsg_download(void *host, const void *device, size_t bytes, lsg_stream stream);
lsg_status lsg_copy(void *device_to, const void *device_from, size_t bytes, lsg_stream stream);
lsg_status lsg_fill(void *device, int byte, size_t bytes, lsg_stream stream);
lsg_status lsg_sync(lsg_stream stream); /* waits; reports what any launch since the last sync did wrong */

/* Everything enqueued between begin and end becomes a graph instead of running. Uploads may not be captured (their host bytes would be
 * frozen): copy into a device buffer before, and let kernels read positions from there. */
lsg_status lsg_graph_begin(lsg_stream stream);
lsg_status lsg_graph_end(lsg_graph *graph, lsg_stream stream);
lsg_status lsg_graph_launch(lsg_graph graph, lsg_stream stream);
void lsg_graph_free(lsg_graph graph);
int lsg_graph_nodes(lsg_graph graph); /* launches, copies and fills in it */

/* Seconds between two marks on the stream (events on cuda, the clock in emu). Waits for the second. */
typedef struct lsg_mark_s *lsg_mark;
lsg_status lsg_mark_new(lsg_mark *mark);
lsg_status lsg_mark_record(lsg_mark mark, lsg_stream stream);
lsg_status lsg_mark_seconds(double *seconds, lsg_mark from, lsg_mark to);
void lsg_mark_free(lsg_mark mark);

typedef struct {
  unsigned x, y, z;
} lsg_dim3;
static inline lsg_dim3 lsg_grid(int64_t x, int64_t y = 1, int64_t z = 1) {
  const int64_t most = 0xFFFFFFFF; /* what fits no grid becomes 0, which a launch refuses */
  lsg_dim3 d = {(unsigned)(x > 0 && x <= most ? x : 0), (unsigned)(y > 0 && y <= most ? y : 0), (unsigned)(z > 0 && z <= most ? z : 0)};
  return d;
}

/* lsg_status LSG_LAUNCH(kernel, lsg_dim3 grid, int threads, size_t dynamic_shared_bytes, lsg_stream, args...)
 * LSG_LAUNCH_EARLY, for kernels that call lsg_wait_before (gpu_device.h): may begin before the launch in front of it has ended.
 * Raises the kernel's dynamic shared memory limit where needed. Empty grids are LSG_FAILED. Arguments are converted to the kernel's
 * parameter types. A template instance with commas goes in parentheses: LSG_LAUNCH((k<1, 2>), ...). No kernel runs after a failed one until
 * lsg_sync or lsg_download has reported it; only lsg_sync clears it (on cuda a fault in a kernel stays: the context is lost). */

/* y [rows, n] = x [rows, k] . W[n, k]^T in the activation type with float32 accumulation, for row counts beyond the project's own
 * kernels: cuBLASLt on cuda, ls_gemm (after widening) on emu. `bf16`: activation type, else f16. Device pointers, leading dimensions in
 * elements. May be captured into a graph on cuda; on emu it is a host callback on the stream. */
typedef struct lsg_gemm_s *lsg_gemm;
lsg_status lsg_gemm_new(lsg_gemm *gemm);
lsg_status lsg_gemm_run(lsg_gemm gemm, bool bf16, uint16_t *y, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t n, int64_t k,
                        int64_t ldy, int64_t ldx, int64_t ldw, lsg_stream stream);
/* Products side by side in one call: group g of x's columns with group g of W's rows, dense. y [rows, groups * n], x [rows, groups * k],
 * W [groups * n, k]. */
lsg_status lsg_gemm_run_groups(lsg_gemm gemm, bool bf16, uint16_t *y, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t groups,
                               int64_t n, int64_t k, lsg_stream stream);
void lsg_gemm_free(lsg_gemm gemm);

/* emu only (no-op on cuda): seed of the random order in which fibers run between rendezvous points, 0: in order. */
void lsg_set_schedule(uint64_t seed);

}  // namespace LSG_NS

#if defined(__CUDACC__)
#include "cuda/cuda_launch.cuh"
#else
#include "emu/emu_launch.h"
#endif

#endif
