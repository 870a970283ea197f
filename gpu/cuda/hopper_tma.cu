/* hopper_tma.cu: tensor maps, asked of the driver: nothing is linked for it. */
#include "hopper_tma.cuh"

#include <cuda_runtime.h>

#include "cuda_internal.cuh"

namespace LSG_NS {

tma_encode_fn *tma_encoder() {
  static tma_encode_fn *const found = [] {
    void *entry = nullptr;
    cudaDriverEntryPointQueryResult result;
    cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000, cudaEnableDefault, &result);
    if (error != cudaSuccess) cudaGetLastError();
    return error == cudaSuccess && result == cudaDriverEntryPointSuccess ? reinterpret_cast<tma_encode_fn *>(entry) : nullptr;
  }();
  return found;
}

lsg_status tma_tile_map(CUtensorMap *map, bool bf16, const uint16_t *matrix, int64_t rows, int64_t k, int64_t ld, int box_rows, bool wide) {
  const cuuint64_t size[2] = {(cuuint64_t)k, (cuuint64_t)rows}, stride[1] = {(cuuint64_t)ld * 2};
  const cuuint32_t box[2] = {TMA_PIECE, (cuuint32_t)box_rows}, step[2] = {1, 1};
  CUresult result =
      tma_encoder()(map, bf16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16, 2, const_cast<uint16_t *>(matrix), size,
                    stride, box, step, CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                    wide ? CU_TENSOR_MAP_L2_PROMOTION_L2_256B : CU_TENSOR_MAP_L2_PROMOTION_NONE, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result == CUDA_SUCCESS) return LSG_OK;
  return cuda_fail(LSG_FAILED, "cuTensorMapEncodeTiled: error %d for [%lld, %lld] of row stride %lld", (int)result, (long long)rows,
                   (long long)k, (long long)ld);
}

}  // namespace LSG_NS
