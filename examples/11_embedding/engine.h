//===- engine.h - Kernels over a paged cache on a device --------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Everything for a step of any mixture of sequences: the cache's bookkeeping, its
// pages in the device's memory, and the kernels that change and read them.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_EXAMPLES_ENGINE_H
#define ATTN_EXAMPLES_ENGINE_H

#include "model.h"

#include "attn_rt/cache/CacheBatch.h"
#include "attn_rt/plan/Plan.h"
#include "attn_rt/session/CacheKernels.h"
#include "attn_rt/session/LoadArtifact.h"
#include "attn_rt/session/Session.h"

#include <functional>

/// Returns the error of a Status or a Result from the function.
#define TRY(call)                                                                                            \
  if (auto &&done = (call); !done)                                                                           \
  return done.error()

/// Use an engine from one thread at a time. Engines share nothing, so each thread may have one.
class Engine {
public:
  /// Creates an engine. `file`: an artifact with the functions attend, append and move.
  static attn::rt::Result<std::unique_ptr<Engine>> create(std::unique_ptr<attn::rt::Device> device,
                                                          const std::string &file, int32_t pages);

  attn::rt::Cache &cache() { return *cache_; }

  /// Writes the new tokens of a change and executes its moves. `tokens`: each row's token and position.
  struct Token {
    uint32_t token;
    size_t position;
  };
  attn::rt::Status write(const attn::rt::Movement &movement, const std::vector<Token> &tokens);

  /// Attends in all layers. `rows` are the tokens of the groups, in their order; `result` receives each row's
  /// output of each layer.
  attn::rt::Status attend(const std::vector<attn::rt::RowGroup> &groups, const std::vector<Token> &rows,
                          const std::function<void(size_t row, int layer, const model::BFloat16 *)> &result);

private:
  Engine() = default;
  /// Allocates buffers for `rows` rows of a step, which are kept.
  attn::rt::Status reserveRows(size_t rows);

  // Members are destroyed from the last to the first, so an object comes after the objects it depends on.
  std::unique_ptr<attn::rt::Device> device_;
  attn::rt::LoadedArtifact attend_, append_, move_;
  std::optional<attn::rt::Cache> cache_;
  attn::rt::Buffer keys_, values_, newKeys_, newValues_, queries_, outputs_;
  std::optional<attn::rt::CacheKernels> changes_;
  std::optional<attn::rt::Session> session_;
  attn::rt::BatchBuilder builder_;
  attn::rt::CacheBatch batch_;
  attn::rt::PlanLimits limits_;
  attn::rt::PlanOptions options_;
  int q_ = 0, k_ = 0, v_ = 0, o_ = 0;
  size_t room_ = 0;
  int32_t pages_ = 0;
};

#endif
