//===- Significance.cpp - Significance of tokens, in float64 --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The significance of a token and query head is the sum over rows of exp(s - lse); the heads that read one KV
// head are reduced to one number.
//
//===----------------------------------------------------------------------===//
#include "Walk.h"
#include "attn_rt/support/Threads.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <numeric>

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::attn::reference;

static double together(std::span<const double> ofHeads, Together how) {
  if (how == Together::Max)
    return *std::max_element(ofHeads.begin(), ofHeads.end());
  const double sum = std::accumulate(ofHeads.begin(), ofHeads.end(), 0.0);
  return how == Together::Mean ? sum / double(ofHeads.size()) : sum;
}

/// Returns, for each row, whether it is among the last `counted` rows of its sequence.
static std::vector<bool> countedRows(const Operands &operands, int64_t counted) {
  std::vector<bool> counts(size_t(operands.rows), counted == 0);
  for (size_t s = 1; counted > 0 && s < operands.queryStarts.size(); ++s) {
    const int64_t end = operands.queryStarts[s], begin = operands.queryStarts[s - 1];
    std::fill(counts.begin() + std::max(begin, end - counted), counts.begin() + end, true);
  }
  return counts;
}

rt::TensorMap reference::weighTokens(const Operands &operands, const rt::Tensor &lse, Together how,
                                     int64_t counted, unsigned threads) {
  const int64_t group = operands.queryHeads / operands.keyHeads;
  const Scores scores(operands.attend, operands);
  const std::vector<bool> counts = countedRows(operands, counted);
  rt::TensorMap found;
  std::vector<std::span<double>> worth;     // by line, for each region
  std::vector<std::vector<double>> ofHeads; // by line and head of its group
  for (const KVRegion &region : operands.regions) {
    std::vector<int64_t> shape = region.keys.codes->shape;
    shape.pop_back();
    if (region.store.isPaged())
      shape = {int64_t(region.instances()), region.heads, region.table->shape.back(),
               region.store.tokensOf(1)};
    rt::Tensor &tensor = found[region.name + ".significance"] = rt::Tensor(rt::DType::F64, shape);
    worth.push_back(tensor.as<double>());
    ofHeads.emplace_back(size_t(tensor.elements() * group));
  }
  auto lineOf = [&](const Chunk &chunk, int64_t keyHead, int64_t t) {
    const KVRegion &region = operands.regions[chunk.region];
    if (!region.store.isPaged())
      return chunk.lines[size_t(t)];
    const int64_t list = int64_t(chunk.instance) * region.heads + region.headPlaces[size_t(keyHead)];
    return list * region.store.tokensOf(region.table->shape.back()) + chunk.first + t;
  };
  // A work item is a KV head, whose lines belong to no other.
  std::atomic<int64_t> next = 0;
  rt::onThreads(threads, [&] {
    ScoreProgram::Lanes lanes = scores.makeLanes();
    std::vector<double> ofTokens;
    for (int64_t keyHead; (keyHead = next++) < operands.keyHeads;)
      walkTokens(operands, keyHead, [&](int64_t row, const Chunk &chunk) {
        for (int64_t member = 0; member < group && counts[size_t(row)]; ++member) {
          const int64_t head = keyHead * group + member;
          const double ofRow = lse.as<double>()[row * operands.queryHeads + head];
          scores.find(chunk, row, head, lanes, ofTokens);
          for (auto [t, s] : llvm::zip(chunk.visible, ofTokens))
            if (s != -std::numeric_limits<double>::infinity())
              ofHeads[chunk.region][size_t(lineOf(chunk, keyHead, t) * group + member)] +=
                  std::exp(s - ofRow);
        }
      });
  });
  for (auto [tokens, heads] : llvm::zip(worth, ofHeads))
    for (size_t line = 0; line < tokens.size(); ++line)
      tokens[line] = together(std::span(heads).subspan(line * size_t(group), size_t(group)), how);
  return found;
}
