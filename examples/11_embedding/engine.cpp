//===- engine.cpp - Kernels over a paged cache on a device ----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "engine.h"

using namespace attn::rt;
using model::BFloat16;

namespace {

constexpr int64_t mostNewTokens = 1024, mostCopies = 64;

int64_t layerBytes(int32_t pages) { return int64_t{pages} * model::pageTokens * model::kvRow * 2; }

std::vector<BFloat16> numbersOf(model::What what, const std::vector<Engine::Token> &tokens, int layer) {
  const int width = what == model::What::Query ? model::queryRow : model::kvRow;
  std::vector<BFloat16> numbers;
  for (const auto &[token, position] : tokens)
    for (int i = 0; i < width; ++i)
      numbers.push_back(model::number(what, token, position, layer, i));
  return numbers;
}

} // namespace

Result<std::unique_ptr<Engine>> Engine::create(std::unique_ptr<Device> device, const std::string &file,
                                               int32_t pages) {
  std::unique_ptr<Engine> engine(new Engine);
  engine->device_ = std::move(device);
  engine->pages_ = pages;
  Device &on = *engine->device_;

  auto artifacts = readArtifactsFile(file);
  TRY(artifacts);
  for (auto &[loaded, entry] : {std::pair(&engine->attend_, "attend"), std::pair(&engine->append_, "append"),
                                std::pair(&engine->move_, "move")}) {
    auto found = loadArtifact(on, *artifacts, file, entry);
    TRY(found);
    *loaded = std::move(*found);
  }

  auto cache = Cache::create({model::pageTokens, 0, {{"kv", pages}}});
  TRY(cache);
  engine->cache_ = std::move(*cache);
  for (auto [buffer, name] : {std::pair(&engine->keys_, "keys"), std::pair(&engine->values_, "values")}) {
    auto made = Buffer::create(on, static_cast<size_t>(model::layers * layerBytes(pages)), name);
    TRY(made);
    *buffer = std::move(*made);
  }

  auto append = CacheKernel::create(on, engine->append_.manifest, engine->append_.module);
  TRY(append);
  auto move = CacheKernel::create(on, engine->move_.manifest, engine->move_.module);
  TRY(move);
  auto changes = CacheKernels::create(std::move(*append), std::move(*move));
  TRY(changes);
  const DevicePages memory{0,
                           pages,
                           model::pageTokens,
                           model::layers,
                           engine->keys_.address(),
                           engine->values_.address(),
                           layerBytes(pages),
                           layerBytes(pages)};
  TRY(changes->reserve(memory, mostNewTokens, mostCopies));
  engine->changes_.emplace(std::move(*changes));

  auto session = Session::create(on, engine->attend_.manifest, engine->attend_.module);
  TRY(session);
  engine->session_.emplace(std::move(*session));
  for (auto [slot, name] : {std::pair(&engine->q_, "q"), std::pair(&engine->k_, "kv.k_pages"),
                            std::pair(&engine->v_, "kv.v_pages"), std::pair(&engine->o_, "o")}) {
    auto found = engine->session_->slot(name);
    TRY(found);
    *slot = *found;
  }
  if (on.kind() != "host")
    engine->options_.multiprocessors = on.properties().multiprocessors;
  return engine;
}

Status Engine::reserveRows(size_t rows) {
  if (rows <= room_)
    return {};
  for (auto [buffer, width] :
       {std::pair(&newKeys_, model::layers * model::kvRow),
        std::pair(&newValues_, model::layers * model::kvRow), std::pair(&queries_, model::queryRow),
        std::pair(&outputs_, model::queryRow)}) {
    auto made = Buffer::create(*device_, rows * static_cast<size_t>(width) * 2, "rows");
    TRY(made);
    *buffer = std::move(*made);
  }
  room_ = rows;
  return {};
}

Status Engine::write(const Movement &movement, const std::vector<Token> &tokens) {
  if (tokens.empty())
    return changes_->execute(movement);
  TRY(reserveRows(tokens.size()));
  const size_t bytes = tokens.size() * model::kvRow * 2;
  for (size_t layer = 0; layer < model::layers; ++layer) {
    const auto number = static_cast<int>(layer);
    const auto keys = numbersOf(model::What::Key, tokens, number);
    const auto values = numbersOf(model::What::Value, tokens, number);
    TRY(device_->copyIn(newKeys_.address() + layer * bytes, keys.data(), bytes));
    TRY(device_->copyIn(newValues_.address() + layer * bytes, values.data(), bytes));
  }
  DeviceRows rows;
  rows.k = newKeys_.address();
  rows.v = newValues_.address();
  rows.count = static_cast<int64_t>(tokens.size());
  rows.kLayerBytes = rows.vLayerBytes = static_cast<int64_t>(bytes);
  return changes_->execute(movement, rows);
}

Status Engine::attend(const std::vector<RowGroup> &groups, const std::vector<Token> &rows,
                      const std::function<void(size_t, int, const BFloat16 *)> &result) {
  TRY(reserveRows(rows.size()));
  TRY(builder_.build(*cache_, groups, batch_));
  // One plan serves all layers. Its capacity grows with the largest step and never shrinks.
  auto plan = makePlan(attend_.manifest, batch_.batch, options_);
  TRY(plan);
  limits_ = PlanLimits::larger(limits_, PlanLimits::of(attend_.manifest, batch_.batch));
  TRY(session_->bindTables(batch_.batch));
  TRY(session_->reserve(planCapacity(attend_.manifest, limits_, options_)));
  TRY(session_->setPlan(*plan));

  std::vector<Token> inOrder; // of the batch, in which sequences that share tokens are neighbours
  for (int32_t user : batch_.userRow)
    inOrder.push_back(rows[static_cast<size_t>(user)]);
  std::vector<BFloat16> outputs(rows.size() * model::queryRow);
  for (int layer = 0; layer < model::layers; ++layer) {
    const auto queries = numbersOf(model::What::Query, inOrder, layer);
    TRY(device_->copyIn(queries_.address(), queries.data(), queries.size() * 2));
    const auto offset = static_cast<DeviceAddress>(layer * layerBytes(pages_));
    session_->bind(q_, queries_.address());
    session_->bind(k_, keys_.address() + offset);
    session_->bind(v_, values_.address() + offset);
    session_->bind(o_, outputs_.address());
    TRY(session_->launch());
    TRY(device_->copyOut(outputs.data(), outputs_.address(), outputs.size() * 2));
    for (size_t i = 0; i < inOrder.size(); ++i)
      result(static_cast<size_t>(batch_.userRow[i]), layer, outputs.data() + i * model::queryRow);
  }
  return {};
}
