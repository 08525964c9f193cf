//===- CudaTensorMap.h - Tensor maps by the driver --------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_RT_CUDA_CUDATENSORMAP_H
#define ATTN_RT_CUDA_CUDATENSORMAP_H

#include "attn_rt/tensor/BulkTensor.h"
#include "cuda/CudaApi.h"

namespace attn::rt::cuda {

Result<EncodedMap> encodeTensorMap(const Api &api, const BulkTensor &tensor);

} // namespace attn::rt::cuda

#endif
