//===- Safetensors.h - Tensors in files -------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The safetensors format: eight bytes of header length, a JSON header, the
// tensors' bytes back to back. Files come from outside: every length, offset
// and product is checked before use, and each error names tensor and values.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_TENSOR_SAFETENSORS_H
#define ATTN_RT_TENSOR_SAFETENSORS_H

#include "attn_rt/tensor/Tensor.h"

namespace attn::rt {

/// Reads tensors. `name` is the file's name in messages.
Result<TensorMap> readSafetensors(std::string_view bytes, std::string_view name);
Result<TensorMap> readSafetensorsFile(const std::string &path);

/// Writes tensors in the format that readSafetensors reads. The file is written whole or not at all.
std::string writeSafetensors(const TensorMap &tensors);
Status writeSafetensorsFile(const std::string &path, const TensorMap &tensors);

} // namespace attn::rt

#endif
