//===- Strides.h - Tensors that lie otherwise than densely ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Queries, keys, values and outputs may lie as their owner lays them: heads in front
// of tokens, keys and values in one allocation, a part of a fused projection. What is
// asked of strides is written down here once: the session asks before it launches.
//
// A stride is the number of bytes from one index of an axis to the next. Those of axes
// with one index mean nothing.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_TENSOR_STRIDES_H
#define ATTN_RT_TENSOR_STRIDES_H

#include "attn_rt/tensor/Store.h"
#include "attn_rt/tensor/Tensor.h"

namespace attn::rt {

/// How a tensor lies.
struct StridedShape {
  DType dtype = DType::BF16;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;

  /// Each row behind the one before.
  static StridedShape dense(DType dtype, std::vector<int64_t> shape);
  bool isEmpty() const;
  /// From the first byte to behind the last one; empty where that exceeds 2^63.
  std::optional<int64_t> span() const;
};

/// Strides of tensors by their names; one that is not there lies densely.
using StrideMap = std::map<std::string, std::vector<int64_t>>;

/// The tensor of this name with what kernels take for its strides: those of axes with one index become
/// harmless. Refuses what kernels cannot take.
Result<StridedShape> checkStrides(const std::string &name, StridedShape tensor);

/// The sizes of a store that follow from how its keys and values lie.
struct SlotCounts {
  int64_t outer; ///< StoreSize::OuterSlots
  int64_t all;   ///< StoreSize::Slots
};
/// Of tensors that were checked, of the operand of this name; a store without pages of several tokens and
/// without instances has slots that are all alike. Keys and values of a token have the same slot, so their
/// pages must be the same number of tokens apart.
Result<SlotCounts> countSlots(const std::string &operand, const Store &store, StridedShape &keys,
                              StridedShape &values);

/// The tensor of this name, a part of unified pages, which may lie any multiple of 16 bytes apart that holds
/// what each has of it; what a page has lies densely.
Result<StridedShape> checkPages(const std::string &name, StridedShape tensor);
/// StoreSize::PageBytes of parts of unified pages that were checked, by their names: they have the same
/// pages.
Result<int64_t> countPageBytes(const std::vector<std::pair<std::string, StridedShape>> &parts);

} // namespace attn::rt

#endif
