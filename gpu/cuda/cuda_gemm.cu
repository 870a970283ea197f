/* cuda_gemm: lsg_gemm over cuBLASLt.
 *
 * float32 accumulation, and no reduction of partial sums in a 16-bit type: the contract rounds once. The algorithm chosen for a shape is
 * kept, so that a shape gives the same bytes every time on one device. */
#include <cublasLt.h>
#include <stdint.h>
#include <stdlib.h>

#include <initializer_list>

#include "cuda_internal.cuh"
#include "hopper_linear.h"

namespace LSG_NS {

enum { KEPT_SHAPES = 32 };
static const size_t workspace_bytes = (size_t)32 << 20;

typedef struct {
  bool bf16;
  int64_t rows, groups, n, k, ldy, ldx, ldw; /* groups side by side, as gpu_backend.h lays them */
  uint32_t alignment;                        /* of all three addresses, of every group */
  cublasLtMatrixLayout_t y, x, w;
  cublasLtMatmulAlgo_t algorithm;
  size_t workspace;
} kept_shape;

struct lsg_gemm_s {
  cublasLtHandle_t handle;
  cublasLtMatmulDesc_t product;
  cublasLtMatmulPreference_t preference;
  void *workspace;
  hopper_workspace hopper;
  kept_shape kept[KEPT_SHAPES];
  int n_kept, next;
};

#define CUBLAS_TRY(call)                                                                                                               \
  do {                                                                                                                                 \
    cublasStatus_t cublas_status = (call);                                                                                             \
    if (cublas_status != CUBLAS_STATUS_SUCCESS) return cuda_fail(LSG_FAILED, "%s: %s", #call, cublasLtGetStatusString(cublas_status)); \
  } while (0)

static lsg_status open_library(lsg_gemm g) {
  CUBLAS_TRY(cublasLtCreate(&g->handle));
  CUBLAS_TRY(cublasLtMatmulDescCreate(&g->product, CUBLAS_COMPUTE_32F, CUDA_R_32F));
  /* row-major y = x . W^T is column-major y^T = W^T' . x^T: W is read transposed */
  const cublasOperation_t transposed = CUBLAS_OP_T, plain = CUBLAS_OP_N;
  CUBLAS_TRY(cublasLtMatmulDescSetAttribute(g->product, CUBLASLT_MATMUL_DESC_TRANSA, &transposed, sizeof transposed));
  CUBLAS_TRY(cublasLtMatmulDescSetAttribute(g->product, CUBLASLT_MATMUL_DESC_TRANSB, &plain, sizeof plain));
  CUBLAS_TRY(cublasLtMatmulPreferenceCreate(&g->preference));
  const uint32_t schemes = CUBLASLT_REDUCTION_SCHEME_COMPUTE_TYPE; /* besides none: never partial sums in 16 bits */
  CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(g->preference, CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK, &schemes, sizeof schemes));
  CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(g->preference, CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, &workspace_bytes,
                                                  sizeof workspace_bytes));
  lsg_status status = lsg_alloc(&g->workspace, workspace_bytes, "cuBLASLt workspace");
  return status == LSG_OK ? hopper_workspace_new(&g->hopper) : status;
}

const hopper_workspace *hopper_workspace_of(lsg_gemm gemm) { return &gemm->hopper; }

lsg_status lsg_gemm_new(lsg_gemm *gemm) {
  *gemm = static_cast<lsg_gemm>(calloc(1, sizeof **gemm));
  if (*gemm == nullptr) return cuda_fail(LSG_NO_MEMORY, "out of host memory");
  lsg_status status = open_library(*gemm);
  if (status != LSG_OK) {
    lsg_gemm_free(*gemm);
    *gemm = nullptr;
  }
  return status;
}

static void forget(kept_shape *s) {
  if (s->y != nullptr) cublasLtMatrixLayoutDestroy(s->y);
  if (s->x != nullptr) cublasLtMatrixLayoutDestroy(s->x);
  if (s->w != nullptr) cublasLtMatrixLayoutDestroy(s->w);
  *s = {};
}

/* From one product of a group to that of the next, in elements. */
static lsg_status set_groups(cublasLtMatrixLayout_t layout, int64_t groups, int64_t apart) {
  const int32_t count = (int32_t)groups;
  CUBLAS_TRY(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT, &count, sizeof count));
  CUBLAS_TRY(cublasLtMatrixLayoutSetAttribute(layout, CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET, &apart, sizeof apart));
  return LSG_OK;
}

static lsg_status choose(lsg_gemm g, kept_shape *s) {
  const cudaDataType type = s->bf16 ? CUDA_R_16BF : CUDA_R_16F;
  CUBLAS_TRY(cublasLtMatrixLayoutCreate(&s->w, type, (uint64_t)s->k, (uint64_t)s->n, s->ldw));
  CUBLAS_TRY(cublasLtMatrixLayoutCreate(&s->x, type, (uint64_t)s->k, (uint64_t)s->rows, s->ldx));
  CUBLAS_TRY(cublasLtMatrixLayoutCreate(&s->y, type, (uint64_t)s->n, (uint64_t)s->rows, s->ldy));
  if (s->groups > 1) {
    lsg_status status = set_groups(s->w, s->groups, s->n * s->ldw);
    if (status == LSG_OK) status = set_groups(s->x, s->groups, s->k);
    if (status == LSG_OK) status = set_groups(s->y, s->groups, s->n);
    if (status != LSG_OK) return status;
  }
  /* the library would take 256 bytes for granted, and fail on a row inside a buffer */
  for (auto attribute : {CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES,
                         CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES})
    CUBLAS_TRY(cublasLtMatmulPreferenceSetAttribute(g->preference, attribute, &s->alignment, sizeof s->alignment));
  cublasLtMatmulHeuristicResult_t best;
  int found = 0;
  CUBLAS_TRY(cublasLtMatmulAlgoGetHeuristic(g->handle, g->product, s->w, s->x, s->y, s->y, g->preference, 1, &best, &found));
  if (found == 0)
    return cuda_fail(LSG_FAILED, "cuBLASLt has no algorithm for %lld x %lld x %lld", (long long)s->rows, (long long)s->n, (long long)s->k);
  s->algorithm = best.algo;
  s->workspace = best.workspaceSize;
  return LSG_OK;
}

static lsg_status run(lsg_gemm gemm, bool bf16, uint16_t *y, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t groups, int64_t n,
                      int64_t k, int64_t ldy, int64_t ldx, int64_t ldw, lsg_stream stream) {
  kept_shape *shape = nullptr;
  const uintptr_t steps = groups > 1 ? (uintptr_t)(n | k | n * ldw) * sizeof(uint16_t) : 0;
  const uintptr_t bits = (uintptr_t)y | (uintptr_t)x | (uintptr_t)w | steps | 256;
  const uint32_t alignment = (uint32_t)(bits & (~bits + 1));
  for (int i = 0; i < gemm->n_kept && shape == nullptr; i++) {
    kept_shape *s = &gemm->kept[i];
    if (s->bf16 == bf16 && s->rows == rows && s->groups == groups && s->n == n && s->k == k && s->ldy == ldy && s->ldx == ldx &&
        s->ldw == ldw && s->alignment == alignment)
      shape = s;
  }
  if (shape == nullptr) {
    shape = &gemm->kept[gemm->next];
    forget(shape);
    shape->bf16 = bf16;
    shape->rows = rows, shape->groups = groups, shape->n = n, shape->k = k;
    shape->alignment = alignment;
    shape->ldy = ldy, shape->ldx = ldx, shape->ldw = ldw;
    lsg_status status = choose(gemm, shape);
    if (status != LSG_OK) {
      forget(shape);
      return status;
    }
    gemm->next = (gemm->next + 1) % KEPT_SHAPES;
    if (gemm->n_kept < KEPT_SHAPES) gemm->n_kept++;
  }
  const float one = 1, zero = 0;
  CUBLAS_TRY(cublasLtMatmul(gemm->handle, gemm->product, &one, w, shape->w, x, shape->x, &zero, y, shape->y, y, shape->y, &shape->algorithm,
                            gemm->workspace, shape->workspace, static_cast<cudaStream_t>(cuda_stream_of(stream))));
  return LSG_OK;
}

lsg_status lsg_gemm_run(lsg_gemm gemm, bool bf16, uint16_t *y, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t n, int64_t k,
                        int64_t ldy, int64_t ldx, int64_t ldw, lsg_stream stream) {
  return run(gemm, bf16, y, x, w, rows, 1, n, k, ldy, ldx, ldw, stream);
}

lsg_status lsg_gemm_run_groups(lsg_gemm gemm, bool bf16, uint16_t *y, const uint16_t *x, const uint16_t *w, int64_t rows, int64_t groups,
                               int64_t n, int64_t k, lsg_stream stream) {
  return run(gemm, bf16, y, x, w, rows, groups, n, k, groups * n, groups * k, k, stream);
}

void lsg_gemm_free(lsg_gemm gemm) {
  if (gemm == nullptr) return;
  for (int i = 0; i < KEPT_SHAPES; i++) forget(&gemm->kept[i]);
  lsg_free(gemm->workspace);
  hopper_workspace_free(&gemm->hopper);
  if (gemm->preference != nullptr) cublasLtMatmulPreferenceDestroy(gemm->preference);
  if (gemm->product != nullptr) cublasLtMatmulDescDestroy(gemm->product);
  if (gemm->handle != nullptr) cublasLtDestroy(gemm->handle);
  free(gemm);
}

}  // namespace LSG_NS
