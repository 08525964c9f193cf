//===- Strides.h - Tensors that lie otherwise than densely ------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Queries, keys, values and outputs may have the strides of their owner's tensors: heads
// before tokens, keys and values in one allocation, a part of a fused projection. The
// demands on strides are written down here once: the session checks them before it launches.
//
// A stride is the number of bytes from one index of an axis to the next. Strides of axes
// with one index mean nothing.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_TENSOR_STRIDES_H
#define ATTN_RT_TENSOR_STRIDES_H

#include "attn_rt/tensor/Store.h"
#include "attn_rt/tensor/Tensor.h"

namespace attn::rt {

/// The dtype, shape and strides of a tensor.
struct StridedShape {
  DType dtype = DType::BF16;
  std::vector<int64_t> shape;
  std::vector<int64_t> strides;

  /// Row-major strides without gaps.
  static StridedShape dense(DType dtype, std::vector<int64_t> shape);
  /// Whether a dimension is 0.
  bool isEmpty() const;
  /// Bytes from the first to the end of the last element; empty if that exceeds 2^63.
  std::optional<int64_t> span() const;
};

/// Strides of tensors by name; a tensor without an entry lies densely.
using StrideMap = std::map<std::string, std::vector<int64_t>>;

/// Returns the tensor with the strides that kernels take: those of axes with one index become harmless.
/// Refuses strides that kernels cannot take; `name` is the tensor's, for messages.
Result<StridedShape> checkStrides(const std::string &name, StridedShape tensor);

/// The sizes of a store that follow from the strides of its keys and values.
struct SlotCounts {
  int64_t outer; ///< StoreSize::OuterSlots
  int64_t all;   ///< StoreSize::Slots
};
/// Counts the slots of checked tensors of the operand of this name. In a store without instances whose pages
/// hold one token at most, all slots are alike. Keys and values of a token have the same slot, so their pages
/// must be the same number of tokens apart.
Result<SlotCounts> countSlots(const std::string &operand, const Store &store, StridedShape &keys,
                              StridedShape &values);

/// Checks the tensor of this name, a part of unified pages. Pages may lie any multiple of 16 bytes apart that
/// holds the part; the part of a page lies densely.
Result<StridedShape> checkPages(const std::string &name, StridedShape tensor);
/// Computes StoreSize::PageBytes of checked parts of unified pages, given by name: all parts have the same
/// pages. Refuses pages whose slots have no number of 31 bits in kernels (Store::gatheredSlots).
Result<int64_t> countPageBytes(const Store &store,
                               const std::vector<std::pair<std::string, StridedShape>> &parts);

} // namespace attn::rt

#endif
