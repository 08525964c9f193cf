//===- ForestDecoder.h - A forest, decoded and checked ----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A cache beside its model, and a session whose plan buffers had their sizes before
// the first step. Every row is compared with attention in double over the tokens that
// the model says it sees, from numbers and not from tables. Memory that no row has a
// reason to read is NaN, including pages without a visible token.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_TEST_RUNTIME_CACHE_FORESTDECODER_H
#define ATTN_TEST_RUNTIME_CACHE_FORESTDECODER_H

#include "Mirror.h"
#include "attn_rt/cache/CacheBatch.h"
#include "attn_rt/device/HostDevice.h"
#include "attn_rt/session/CacheKernels.h"
#include "attn_rt/session/Session.h"

#include <set>

namespace attn::rt::test {

class ForestDecoder {
public:
  /// The manifest and the source's data must outlive it; operands are as in `shown`. `classes`: the class of
  /// each KV head, if the manifest has any.
  ForestDecoder(const Manifest &manifest, const ModuleSource &source, CacheOptions cache,
                CacheBatchOptions shown, double tolerance, std::vector<int32_t> classes = {});
  /// Records the next launch, and replays it for those that follow. Tables need a width
  /// (CacheBatchOptions::maxPages).
  void record();

  Mirror mirror;
  std::unique_ptr<HostDevice> device = makeHostDevice();
  int64_t sharedRows = 0, partialRows = 0, draftRows = 0; ///< of all launches so far
  int extendedPlans = 0;

  /// Keeps keys and values on the device only. These kernels execute each movement there before anything else
  /// happens. For a cache of one class; before the first change.
  void keepOnDevice(CacheKernels kernels);

  /// Launches rows on these groups and checks all of them.
  void decode(const std::vector<RowGroup> &groups);
  /// Makes two prompts, then steps in which leaves grow, branch, are pruned, forked, drafted and committed.
  void decodeForest(uint64_t seed, int steps);

private:
  const Manifest &manifest_;
  CacheBatchOptions shown_;
  double tolerance_;
  std::vector<int32_t> classes_;
  PlanOptions options_;
  PlanCapacity capacity_;
  std::optional<Session> session_;
  std::optional<Planner> planner_;
  Plan plan_;
  BatchBuilder builder_;
  bool recorded_ = false;
  std::unique_ptr<Recording> recording_;

  std::optional<CacheKernels> kernels_;
  Buffer pages_[2], newRows_[2]; ///< keys and values, if they live on the device

  std::vector<std::vector<uint64_t>> userPaths(const std::vector<RowGroup> &groups);
  size_t classOf(int kvHead) const {
    return classes_.empty() ? 0 : static_cast<size_t>(classes_[static_cast<size_t>(kvHead)]);
  }
  std::vector<int> headsIn(const Argument &argument) const;
  Visibility seenBy(size_t headClass) const;
  std::set<uint64_t> seenTokens(const std::vector<std::vector<uint64_t>> &paths, size_t operand) const;
  double stored(uint64_t number, uint64_t which, uint64_t i) const;
  void addData(const std::vector<std::vector<uint64_t>> &paths, const CacheBatch &made,
               TensorMap &tensors) const;
  void execute(const Movement &movement, const std::vector<uint64_t> &numbers);
  Status bind(const TensorMap &tensors, const Batch &batch);
  void padToMost(TensorMap &tensors) const;
  Status launch();
  void checkRow(const TensorMap &out, int32_t row, const std::vector<uint64_t> &path) const;
};

} // namespace attn::rt::test

#endif
