//===- Layouts.cpp - Memory layouts of tensors ----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Layouts.h"

#include <algorithm>

using namespace attn;
using namespace attn::run;

namespace {

/// Padding in bytes after the content of an axis, as a factor and a number.
struct Room {
  int64_t times = 1, plus = 0;
};

/// Returns strides. The last axis is features, the axes before it belong to a token, a row or a page.
std::vector<int64_t> lay(std::string_view layout, const rt::StridedShape &tensor) {
  const size_t rank = tensor.shape.size();
  std::vector<size_t> order; // from the innermost axis on
  for (size_t axis = rank; axis-- > 0;)
    order.push_back(axis);
  if (layout == "heads-first" || layout == "halves")
    std::swap(order[1], order[2]);
  const auto roomOf = [&](size_t axis) -> Room {
    if (layout == "halves" && axis == rank - 1)
      return {2, 0};
    if (layout == "interleaved" && axis == 1)
      return {rank == 3 ? 3 : 2, 0};
    if (layout == "padded" && axis >= rank - 2)
      return {1, 16};
    return {};
  };
  std::vector<int64_t> strides(rank);
  auto stride = static_cast<int64_t>(rt::dtypeSize(tensor.dtype));
  for (size_t i = 0; i < rank; ++i) {
    const size_t axis = order[i];
    strides[axis] = stride;
    const Room room = roomOf(axis);
    stride = stride * std::max<int64_t>(tensor.shape[axis], 1) * room.times + room.plus;
  }
  if (layout == "padded" && rank == 4)
    strides[0] += 3 * strides[1];
  return strides;
}

/// Returns strides for unified pages: their parts are a whole page apart, each in memory of its own.
rt::StrideMap pageStrides(const rt::Manifest &manifest, const rt::TensorMap &tensors) {
  rt::StrideMap strides;
  for (const rt::Argument &argument : manifest.arguments) {
    if (argument.role != rt::Argument::Role::KV || !rt::storeOf(argument).isUnified())
      continue;
    const rt::Store store = rt::storeOf(argument);
    for (const rt::StoreTensor &tensor : store.data()) {
      auto given = tensors.find(argument.name + "." + tensor.name);
      if (given == tensors.end() || tensor.content == rt::StoreTensor::Content::Scales)
        continue;
      std::vector<int64_t> &of = strides[given->first];
      of = rt::StridedShape::dense(tensor.dtype, given->second.shape).strides;
      of[0] = store.pageParts().bytes;
    }
  }
  return strides;
}

} // namespace

rt::StrideMap run::stridesOf(std::string_view layout, const rt::Manifest &manifest,
                             const rt::TensorMap &tensors, int64_t rows) {
  rt::StrideMap strides = pageStrides(manifest, tensors);
  if (layout == "dense")
    return strides;
  for (const rt::StridedTensor &tensor : rt::stridedTensors(manifest)) {
    if (tensor.unified)
      continue;
    std::vector<int64_t> shape;
    if (auto given = tensors.find(tensor.name); given != tensors.end())
      shape = given->second.shape;
    else
      for (const rt::DimInfo &dim : tensor.dims)
        shape.push_back(dim.name.empty() ? dim.value : rows);
    strides[tensor.name] = lay(layout, rt::StridedShape::dense(tensor.dtype, std::move(shape)));
  }
  return strides;
}
