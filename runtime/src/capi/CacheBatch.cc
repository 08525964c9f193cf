//===- CacheBatch.cc - The C API's batches of caches ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/capi/Objects.h"
#include "capi/CacheObjects.h"

#include <algorithm>

using namespace attn::rt;
using namespace attn::rt::capi;

struct AttnBatchBuilder {
  std::shared_ptr<LoadedKernel> kernel;
  CacheBatchOptions options;
  BatchBuilder builder;
  std::weak_ptr<SharedBatch> last; ///< the batch that was built last
  Lock lock = {};
};

namespace {

/// Checks that the operands of the kernel can show this cache.
Status checkOperands(const AttnBatchBuilder &builder, const Cache &cache) {
  const Manifest &manifest = builder.kernel->manifest;
  for (size_t o = 0; o < builder.options.operands.size(); ++o) {
    const CacheOperand &operand = builder.options.operands[o];
    const Argument &argument = manifest.argumentOf(manifest.operands[o]);
    const auto classes = std::ssize(cache.options().classes);
    if (operand.headClass < 0 || operand.headClass >= classes)
      return inputError("operand '" + argument.name + "': expected a head class of the cache, 0 to " +
                        std::to_string(classes - 1) + ", got " + std::to_string(operand.headClass));
    const int32_t page = operand.page(cache.options());
    const Store store = storeOf(argument), shown{StoreKind::Paged, page};
    if (store.ragged || store.text() != shown.text())
      return inputError("operand '" + argument.name + "' is " + store.text() +
                        (store.ragged ? ", ragged" : "") + ", and what it shows of the cache lies in " +
                        (page ? shown.text() : "pages of two sizes"));
  }
  return {};
}

} // namespace

AttnStatus attnBatchBuilderCreate(const AttnKernel *kernel, const AttnCacheOperand *operands, size_t count,
                                  int32_t maxPages, AttnBatchBuilder **builder) {
  return guarded([&]() -> Status {
    if (Status status = required("kernel, operands, builder", kernel, operands, builder); !status)
      return status;
    const Manifest &manifest = kernel->loaded->manifest;
    if (!manifest.hasPlan())
      return inputError("'" + manifest.entry + "' is an operation on a cache: it has no batches");
    if (count != manifest.operands.size())
      return inputError("expected " + std::to_string(manifest.operands.size()) + " operands, as '" +
                        manifest.entry + "' has, got " + std::to_string(count));
    for (const auto &operand : manifest.operands)
      if (const Argument &argument = manifest.argumentOf(operand);
          !storeOf(argument).isPaged() || argument.ragged)
        return inputError("'" + argument.name + "': a cache has pages of tokens that all heads share; '" +
                          manifest.entry + "' reads another store: make its batches of tensors");
    if (maxPages < 0 || maxPages > 1 << 24)
      return inputError("max_pages: expected 0 to 2^24, got " + std::to_string(maxPages));
    CacheBatchOptions options{{}, maxPages};
    for (size_t i = 0; i < count; ++i)
      options.operands.push_back({operands[i].headClass, operands[i].nodes, operands[i].drafts});
    *builder = new AttnBatchBuilder{kernel->loaded, options, BatchBuilder(options), {}};
    return {};
  });
}

void attnBatchBuilderDestroy(AttnBatchBuilder *builder) { delete builder; }

AttnStatus attnBatchBuilderBuild(AttnBatchBuilder *builder, const AttnCache *cache,
                                 const AttnRowGroup *groups, size_t count, const int32_t *classes,
                                 size_t classCount, const int32_t *ends, size_t endCount, AttnBatch **batch) {
  return guarded([&]() -> Status {
    if (Status status = required("builder, cache, batch", builder, cache, batch); !status)
      return status;
    if ((count && !groups) || (classCount && !classes))
      return inputError("expected lists, got null");
    const Manifest &manifest = builder->kernel->manifest;
    auto mine = builder->lock.take("the batch builder");
    if (!mine)
      return mine.error();
    auto held = cache->lock.take("the cache");
    if (!held)
      return held.error();
    if (Status status = checkOperands(*builder, cache->cache); !status)
      return status;
    std::vector<RowGroup> rows;
    rows.reserve(count);
    for (size_t i = 0; i < count; ++i)
      rows.push_back({nodeOf(groups[i].node), groups[i].rows, groups[i].draft});
    auto shared = std::make_shared<SharedBatch>();
    builder->last.reset();
    if (Status status = builder->builder.build(cache->cache, rows, shared->content); !status)
      return status;
    Batch &content = shared->content.batch;
    const bool takesClasses =
        std::any_of(manifest.arguments.begin(), manifest.arguments.end(),
                    [](const Argument &argument) { return argument.role == Argument::Role::Classes; });
    if (!takesClasses && classCount)
      return inputError("classes: '" + manifest.entry + "' has no head classes");
    if ((!manifest.headClasses.empty() || classCount) && classCount != static_cast<size_t>(manifest.kvHeads))
      return inputError("classes: expected one for each of the " + std::to_string(manifest.kvHeads) +
                        " KV heads, got " + std::to_string(classCount));
    if (!manifest.headClasses.empty()) // otherwise all classes see the same tokens
      content.classes.assign(classes, classes + classCount);
    if (Status status = checkClasses(manifest, content.classes); !status)
      return status;
    if (Status status = checkBatch(manifest, content); !status)
      return status;
    if (Status status = setEnds(manifest, ends, endCount, content); !status)
      return status;
    shared->contentHash = manifest.contentHash;
    shared->entry = manifest.entry;
    shared->version = newVersion();
    shared->built = true;
    builder->last = shared;
    *batch = new AttnBatch{std::move(shared)};
    return {};
  });
}

AttnStatus attnBatchBuilderUpdate(AttnBatchBuilder *builder, const AttnCache *cache, AttnBatch *batch,
                                  bool *updated) {
  return guarded([&]() -> Status {
    if (Status status = required("builder, cache, batch, updated", builder, cache, batch, updated); !status)
      return status;
    auto mine = builder->lock.take("the batch builder");
    if (!mine)
      return mine.error();
    if (builder->last.lock() != batch->shared)
      return inputError("expected the batch that was built last");
    auto held = cache->lock.take("the cache");
    if (!held)
      return held.error();
    auto content = batch->shared->lock.take("the batch");
    if (!content)
      return content.error();
    *updated = builder->builder.update(cache->cache, batch->shared->content);
    if (*updated)
      batch->shared->version = newVersion();
    return {};
  });
}

/// Calls `body` with a batch that was made from a cache.
template <typename Body> static AttnStatus withBuilt(const AttnBatch *batch, Body body) {
  return guarded([&]() -> Status {
    if (Status status = required("batch", batch); !status)
      return status;
    auto held = batch->shared->lock.take("the batch");
    if (!held)
      return held.error();
    if (!batch->shared->built)
      return inputError("the batch was made from tensors, not from a cache: it has no nodes");
    return body(batch->shared->content);
  });
}

AttnStatus attnBatchRowMaps(const AttnBatch *batch, int32_t *userRow, int32_t *batchRow, size_t room) {
  return withBuilt(batch, [&](const CacheBatch &content) -> Status {
    if (room < content.userRow.size() || (room && (!userRow || !batchRow)))
      return inputError("expected room for " + std::to_string(content.userRow.size()) + " rows, got " +
                        std::to_string(room));
    std::copy(content.userRow.begin(), content.userRow.end(), userRow);
    std::copy(content.batchRow.begin(), content.batchRow.end(), batchRow);
    return {};
  });
}

AttnStatus attnBatchNodes(const AttnBatch *batch, size_t operand, AttnNode *nodes, size_t room,
                          size_t *count) {
  return withBuilt(batch, [&](const CacheBatch &content) -> Status {
    if (operand >= content.nodes.size())
      return inputError("operand: expected 0 to " + std::to_string(content.nodes.size() - 1) + ", got " +
                        std::to_string(operand));
    std::vector<AttnNode> numbers;
    for (NodeId node : content.nodes[operand])
      numbers.push_back(numberOf(node));
    return giveList(numbers, nodes, room, count);
  });
}
