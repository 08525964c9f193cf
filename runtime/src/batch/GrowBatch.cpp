//===- GrowBatch.cpp - A batch whose sequences all have grown -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/batch/Batch.h"

#include <algorithm>
#include <limits>

namespace attn::rt {

/// Checks only what changes: the batch was checked, and the rest still holds.
static Status checkGrowth(const Manifest &manifest, const Batch &batch, int32_t tokens, int64_t apart) {
  constexpr int64_t most = std::numeric_limits<int32_t>::max();
  if (manifest.operands.size() != 1)
    return inputError("'" + manifest.entry + "': expected one operand, got " +
                      std::to_string(manifest.operands.size()));
  const Argument &argument = manifest.argumentOf(manifest.operands.front());
  const OperandBatch &operand = batch.operands.front();
  if (argument.store != Argument::Store::Packed || argument.ragged)
    return inputError("'" + argument.name + "': expected a packed store, whose heads have the same tokens");
  if (tokens < 0)
    return inputError("'" + argument.name + ".lengths': expected that they grow, got " +
                      std::to_string(tokens) + " tokens more");
  const auto count = static_cast<int64_t>(operand.instances());
  // Kernels count the slots of one head, and tables count the begins of instances, in 32 bits.
  const int64_t limit = most / std::max<int64_t>(count * std::max(manifest.kvHeads, 1), 1);
  if (apart < 0 || apart > limit)
    return inputError("'" + argument.name + ".start': expected " + std::to_string(count) +
                      " instances that are up to " + std::to_string(limit) + " tokens apart, got " +
                      std::to_string(apart));
  for (size_t i = 0; i < operand.lengths.size(); ++i)
    if (operand.lengths[i] + int64_t{tokens} > apart || int64_t{operand.pos0[i]} + apart > most)
      return inputError("'" + argument.name + ".lengths'[" + std::to_string(i) + "]: expected at most the " +
                        std::to_string(apart) + " tokens that instances are apart, got " +
                        std::to_string(operand.lengths[i] + int64_t{tokens}));
  for (size_t row = 0; row < batch.qPos.size(); ++row)
    if (batch.qPos[row] > most - tokens)
      return inputError("'q_pos'[" + std::to_string(row) + "]: " + std::to_string(batch.qPos[row]) + " and " +
                        std::to_string(tokens) + " more exceed 2^31 - 1");
  return {};
}

Status growBatch(const Manifest &manifest, Batch &batch, int32_t tokens, int64_t apart) {
  if (Status status = checkGrowth(manifest, batch, tokens, apart); !status)
    return status;
  OperandBatch &operand = batch.operands.front();
  for (int32_t &position : batch.qPos)
    position += tokens;
  for (int32_t &length : operand.lengths)
    length += tokens;
  for (size_t i = 0; i < operand.start.size(); ++i)
    operand.start[i] = static_cast<int32_t>(static_cast<int64_t>(i) * apart);
  operand.tokens = apart * static_cast<int64_t>(operand.instances());
  return {};
}

} // namespace attn::rt
