//===- ScoreTasks.cpp - Tokens whose stored scores are weighed ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/plan/PlanTerms.h"
#include "plan/TokenTasks.h"

#include <algorithm>
#include <limits>

namespace attn::rt {

namespace {

/// The largest position that a token can have.
constexpr int64_t lastPosition = std::numeric_limits<int32_t>::max() - 1;

/// Whether a row at a position sees all of `tokens` tokens, and all that later sequences can have. A window
/// that sequences have yet to outgrow hides tokens of a later step, whose launches were recorded in this one.
bool seesAll(const Visibility &visibility, std::span<const int32_t> ends, int64_t position, int64_t first,
             int64_t tokens) {
  IntervalList seen;
  const auto sees = [&](int64_t row, int64_t end) {
    certainPositions(visibility, ends, row, row, seen);
    return std::any_of(seen.begin(), seen.end(), [&](const Interval &interval) {
      return interval.begin <= first && end <= interval.end;
    });
  };
  return (tokens == 0 || sees(position, first + tokens)) && sees(lastPosition, lastPosition + 1);
}

} // namespace

bool storesScores(const KernelInfo &kernel) {
  return kernel.role == KernelInfo::Role::Attend &&
         std::any_of(kernel.params.begin(), kernel.params.end(),
                     [](const Parameter &param) { return param.name == planArrayName(PlanArray::Scores); });
}

bool storesScores(const Manifest &manifest) {
  return std::any_of(manifest.kernels.begin(), manifest.kernels.end(),
                     [](const KernelInfo &kernel) { return storesScores(kernel); });
}

bool mayStoreScores(const Manifest &manifest, const Batch &batch, const Plan &plan) {
  if (!storesScores(manifest.kernels[static_cast<size_t>(plan.kernel)]) || !plan.slots.empty())
    return false;
  const int group = manifest.groupSize();
  for (const PlanTask &task : plan.tasks)
    if (task.packedCount != group || task.packedBegin % group != 0)
      return false;
  for (size_t o = 0; o < batch.operands.size(); ++o) {
    const OperandBatch &operand = batch.operands[o];
    for (size_t i = 0; i < operand.instances(); ++i) {
      const int32_t row = operand.rowFirst[i];
      if (row == operand.rowLast[i])
        continue;
      if (row + 1 < operand.rowLast[i] ||
          !seesAll(manifest.operands[o].visibility, plan.ends, batch.qPos[static_cast<size_t>(row)],
                   operand.pos0[i], operand.longest(i)))
        return false;
    }
  }
  return true;
}

void listScoreTasks(const Manifest &manifest, const Batch &batch, Plan &plan) {
  plan.scoreTasks.reserve(static_cast<size_t>(countScoreTasks(manifest, batch)));
  for (size_t o = 0; o < batch.operands.size(); ++o) {
    const OperandBatch &operand = batch.operands[o];
    for (size_t i = 0; i < operand.instances(); ++i) {
      const int32_t room = tokenRoom(manifest, batch, o, i);
      PlanScoreTask task{.operand = static_cast<int32_t>(o), .instance = static_cast<int32_t>(i)};
      const int32_t first = operand.rowFirst[i], counted = firstCountedRow(manifest, batch, first, first + 1);
      task.row = first < operand.rowLast[i] && counted == first ? first : -1;
      for (task.ordinal = 0; task.ordinal < manifest.kvHeads; ++task.ordinal) {
        task.length = operand.length(i, task.ordinal);
        for (task.kvBegin = 0; task.kvBegin < room; task.kvBegin = task.kvEnd) {
          task.kvEnd = scoreTaskEnd(task.kvBegin, room);
          plan.scoreTasks.push_back(task);
        }
      }
    }
  }
  for (PlanTask &task : plan.tasks)
    task.flags |= taskStoresScores;
  plan.scoreWords = scoreWordsOf(countScoreTokens(manifest, batch), manifest.groupSize());
}

int64_t countScoreTasks(const Manifest &manifest, const Batch &batch) {
  int64_t tasks = 0;
  for (size_t o = 0; o < batch.operands.size(); ++o)
    for (size_t i = 0; i < batch.operands[o].instances(); ++i)
      tasks += scoreTasksOf(tokenRoom(manifest, batch, o, i));
  return tasks * manifest.kvHeads;
}

int64_t countScoreTokens(const Manifest &manifest, const Batch &batch) {
  int64_t tokens = 0;
  for (size_t o = 0; o < batch.operands.size(); ++o) {
    const OperandBatch &operand = batch.operands[o];
    if (storeOf(manifest.argumentOf(manifest.operands[o])).kind == StoreKind::Packed)
      tokens += operand.tokens;
    else if (operand.instances() > 0)
      tokens += tokenRoom(manifest, batch, o, 0) * static_cast<int64_t>(operand.instances());
  }
  return tokens * manifest.kvHeads;
}

} // namespace attn::rt
