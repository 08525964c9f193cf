//===- BatchTables.cpp - A batch as tensors -------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/cache/CacheBatch.h"

namespace attn::rt {

TensorMap tablesOf(const Manifest &manifest, const Batch &batch) {
  TensorMap tensors;
  tensors["q_start"] = Tensor::ofI32({std::ssize(batch.qStart)}, batch.qStart);
  tensors["q_pos"] = Tensor::ofI32({batch.rows}, batch.qPos);
  if (!batch.classes.empty())
    tensors["classes"] = Tensor::ofI32({std::ssize(batch.classes)}, batch.classes);
  for (size_t o = 0; o < batch.operands.size(); ++o) {
    const OperandBatch &operand = batch.operands[o];
    const Argument &argument = manifest.argumentOf(manifest.operands[o]);
    const auto instances = static_cast<int64_t>(operand.instances());
    const std::string prefix = argument.name + ".";
    std::vector<int64_t> lists{instances};
    if (argument.ragged)
      lists.push_back(operand.heads);
    tensors[prefix + "lengths"] = Tensor::ofI32(lists, operand.lengths);
    tensors[prefix + "pos0"] = Tensor::ofI32({instances}, operand.pos0);
    std::vector<int32_t> ranges;
    for (size_t i = 0; i < operand.instances(); ++i)
      ranges.insert(ranges.end(), {operand.rowFirst[i], operand.rowLast[i]});
    tensors[prefix + "rows"] = Tensor::ofI32({instances, 2}, ranges);
    if (storeOf(argument).isPaged()) {
      lists.push_back(operand.maxPages);
      tensors[prefix + "block_table"] = Tensor::ofI32(lists, operand.blockTable);
    }
    if (argument.store == Argument::Store::Packed)
      tensors[prefix + "start"] = Tensor::ofI32({std::ssize(operand.start)}, operand.start);
  }
  return tensors;
}

} // namespace attn::rt
