//===- Strides.cpp - Tensors that lie otherwise than densely --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/tensor/Strides.h"

#include <algorithm>
#include <limits>
#include <utility>

namespace attn::rt {

namespace {

constexpr int64_t unit = 16; // bytes that a lane copies at a time
constexpr int64_t limit = std::numeric_limits<int32_t>::max();

Error fail(const std::string &name, const StridedShape &tensor, const std::string &expected,
           const std::string &nearest) {
  return inputError(name + ": expected " + expected + ", got strides " + shapeText(tensor.strides) +
                    " in bytes for " + std::string(dtypeName(tensor.dtype)) + " " + shapeText(tensor.shape) +
                    "; nearest legal: " + nearest);
}

/// Axes with several indices, by ascending stride.
std::vector<size_t> axesByStride(const StridedShape &tensor) {
  std::vector<size_t> axes;
  for (size_t i = 0; i < tensor.shape.size(); ++i)
    if (tensor.shape[i] > 1)
      axes.push_back(i);
  std::sort(axes.begin(), axes.end(), [&](size_t a, size_t b) {
    return std::pair(tensor.strides[a], a) < std::pair(tensor.strides[b], b);
  });
  return axes;
}

} // namespace

StridedShape StridedShape::dense(DType dtype, std::vector<int64_t> shape) {
  StridedShape made{dtype, std::move(shape), {}};
  made.strides.resize(made.shape.size());
  auto stride = static_cast<int64_t>(dtypeSize(dtype));
  for (size_t i = made.shape.size(); i-- > 0; stride *= std::max<int64_t>(made.shape[i], 1))
    made.strides[i] = stride;
  return made;
}

bool StridedShape::isEmpty() const { return std::find(shape.begin(), shape.end(), 0) != shape.end(); }

std::optional<int64_t> StridedShape::span() const {
  if (isEmpty())
    return 0;
  auto bytes = static_cast<int64_t>(dtypeSize(dtype));
  for (size_t i = 0; i < shape.size(); ++i) {
    int64_t reach = 0;
    if (__builtin_mul_overflow(shape[i] - 1, strides[i], &reach) ||
        __builtin_add_overflow(bytes, reach, &bytes))
      return std::nullopt;
  }
  return bytes;
}

Result<StridedShape> checkStrides(const std::string &name, StridedShape tensor) {
  const StridedShape dense = StridedShape::dense(tensor.dtype, tensor.shape);
  const size_t rank = tensor.shape.size();
  if (tensor.strides.size() != rank)
    return inputError(name + ": expected a stride for each of " + std::to_string(rank) + " dimensions, got " +
                      std::to_string(tensor.strides.size()));
  for (size_t i = 0; i < rank; ++i)
    if (tensor.shape[i] <= 1 || tensor.isEmpty())
      tensor.strides[i] = dense.strides[i];
  if (tensor.strides.back() != dense.strides.back())
    return fail(name, tensor, "contiguous features", "its contiguous copy");
  for (size_t i = 0; i + 1 < rank; ++i) {
    int64_t &stride = tensor.strides[i];
    if (tensor.shape[i] > 1 && (stride <= 0 || stride % unit || stride > limit)) {
      const int64_t up = (std::clamp<int64_t>(stride, 1, limit - unit) + unit - 1) / unit * unit;
      return fail(name, tensor, "strides that are multiples of 16 bytes, above 0 and below 2^31",
                  stride > 0 ? std::to_string(up) + " for dimension " + std::to_string(i)
                             : "its contiguous copy");
    }
  }
  int64_t reach = static_cast<int64_t>(dtypeSize(tensor.dtype)); // bytes within one index of an axis
  for (size_t axis : axesByStride(tensor)) {
    if (tensor.strides[axis] < reach)
      return fail(name, tensor, "elements that do not overlap",
                  "at least " + std::to_string((reach + unit - 1) / unit * unit) + " for dimension " +
                      std::to_string(axis));
    reach += (tensor.shape[axis] - 1) * tensor.strides[axis];
  }
  return tensor;
}

Result<StridedShape> checkPages(const std::string &name, StridedShape tensor) {
  const StridedShape dense = StridedShape::dense(tensor.dtype, tensor.shape);
  if (tensor.strides.size() != tensor.shape.size())
    return inputError(name + ": expected a stride for each of " + std::to_string(tensor.shape.size()) +
                      " dimensions, got " + std::to_string(tensor.strides.size()));
  const bool several = tensor.shape[0] > 1 && !tensor.isEmpty();
  const int64_t pages = several ? tensor.strides[0] : dense.strides[0];
  for (size_t i = 0; i < tensor.shape.size(); ++i)
    if (i == 0 || tensor.shape[i] <= 1 || tensor.isEmpty())
      tensor.strides[i] = dense.strides[i];
  if (tensor.strides != dense.strides)
    return fail(name, tensor, "dense pages", "its contiguous copy");
  tensor.strides[0] = pages;
  const int64_t least = (dense.strides[0] + unit - 1) / unit * unit;
  if (several && (pages < least || pages % unit || pages > limit))
    return fail(name, tensor,
                "pages a multiple of 16 bytes apart, at least " + std::to_string(least) + " and below 2^31",
                std::to_string(std::clamp((pages + unit - 1) / unit * unit, least,
                                          std::max(least, limit / unit * unit))) +
                    " for dimension 0");
  return tensor;
}

Result<int64_t> countPageBytes(const Store &store,
                               const std::vector<std::pair<std::string, StridedShape>> &parts) {
  const auto &[first, like] = parts.front();
  if (const int64_t most = limit / store.gatheredSlots(); like.shape[0] > most)
    return inputError(first + ": expected at most " + std::to_string(most) + " pages of " +
                      std::to_string(store.tokensOf(int64_t{1})) + " tokens, got " +
                      std::to_string(like.shape[0]));
  for (const auto &[name, part] : parts)
    if (part.shape[0] > 1 && part.strides[0] != like.strides[0])
      return fail(name, part, "pages " + std::to_string(like.strides[0]) + " bytes apart, as of " + first,
                  std::to_string(like.strides[0]) + " for dimension 0, a view into the same pages");
  return like.strides[0];
}

Result<SlotCounts> countSlots(const std::string &operand, const Store &store, StridedShape &keys,
                              StridedShape &values) {
  const size_t inner = store.slotDims().size() - 1;
  const int64_t tokens = keys.shape[inner], outer = inner ? keys.shape[0] : 1;
  const bool empty = keys.isEmpty();
  if (inner == 0 || store.slotAxis() == 0)
    return SlotCounts{1, empty ? 0 : keys.shape[store.slotAxis()]};
  const char *what = store.isPaged() ? "pages" : "sequences";
  int64_t apart = tokens;
  for (StridedShape *tensor : {&keys, &values}) {
    if (outer <= 1 || empty)
      break;
    if (tokens == 1) // a single token has no distance: the distance of instances serves
      tensor->strides[inner] = tensor->strides[0];
    const std::string name = operand + "." + store.codesName(store.part(tensor == &keys));
    const int64_t slots = tensor->strides[0] / tensor->strides[inner];
    if (slots * tensor->strides[inner] != tensor->strides[0])
      return fail(name, *tensor, std::string(what) + " a whole number of tokens apart",
                  std::to_string(std::max<int64_t>(slots, tokens) * tensor->strides[inner]) +
                      " for dimension 0");
    if (tensor != &keys && slots != apart)
      return fail(name, *tensor,
                  std::string(what) + " " + std::to_string(apart) + " tokens apart, as of the keys",
                  std::to_string(apart * tensor->strides[inner]) + " for dimension 0");
    apart = slots;
  }
  int64_t all = 0;
  if (__builtin_mul_overflow(std::max<int64_t>(outer - 1, 0), apart, &all) ||
      __builtin_add_overflow(all, tokens, &all) || all > limit)
    return inputError(operand + ": expected " + what + " that lie within 2^31 tokens, got " +
                      std::to_string(outer) + " of them " + std::to_string(apart) + " tokens apart");
  return SlotCounts{apart, empty ? 0 : all};
}

} // namespace attn::rt
