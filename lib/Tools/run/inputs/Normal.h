//===- Normal.h - Tensors of standard normal numbers ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_INPUTS_NORMAL_H
#define ATTN_TOOLS_RUN_INPUTS_NORMAL_H

#include "attn_rt/support/Random.h"
#include "attn_rt/tensor/Tensor.h"

#include <span>

namespace attn::run {

/// Standard normal numbers in any float dtype, or uniform bytes in u8. They are drawn from a table of 2^16
/// values by one thread per core, because a GPU waits while its tensors are made. The bytes do not depend on
/// the threads, because any draw of a stream can be reached directly.
class NormalSource {
public:
  explicit NormalSource(rt::DType dtype, double factor = 1);

  /// Fills lines of `length` elements each, in the order of `slots`, which gives their numbers in `out`.
  /// Every line begins with a draw of its own.
  void fill(uint8_t *out, std::span<const int64_t> slots, int64_t length, const rt::Random &random) const;
  /// Fills `count` elements.
  void fill(uint8_t *out, int64_t count, const rt::Random &random) const;

private:
  void draw(uint8_t *out, int64_t count, rt::Random random) const;

  size_t size;
  std::vector<uint8_t> table;
};

/// Returns a tensor of standard normal numbers, from the stream of this name.
rt::Tensor normalTensor(rt::DType dtype, std::vector<int64_t> shape, uint64_t seed, const std::string &name,
                        double factor = 1);

} // namespace attn::run

#endif
