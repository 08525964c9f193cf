//===- Cache.cc - The C API's caches --------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "capi/CacheObjects.h"

#include <algorithm>

using namespace attn::rt;
using namespace attn::rt::capi;

namespace {

/// Calls `body` with the cache locked.
template <typename Body> AttnStatus withCache(const AttnCache *cache, Body body) {
  return guarded([&]() -> Status {
    if (Status status = required("cache", cache); !status)
      return status;
    auto held = cache->lock.take("the cache");
    if (!held)
      return held.error();
    return body(const_cast<AttnCache *>(cache)->cache);
  });
}

/// Returns the movement of a change.
Status give(Result<Movement> moved, AttnMovement **movement) {
  if (!moved)
    return moved.error();
  *movement = new AttnMovement{std::move(*moved)};
  return {};
}

Status checkClass(const Cache &cache, int32_t headClass) {
  const auto count = std::ssize(cache.options().classes);
  if (headClass >= 0 && headClass < count)
    return {};
  return inputError("head class: expected 0 to " + std::to_string(count - 1) + ", got " +
                    std::to_string(headClass));
}

} // namespace

AttnStatus attnCacheCreate(int32_t pageTokens, int32_t draftPage, const AttnCacheClass *classes,
                           size_t classCount, AttnCache **cache) {
  return guarded([&]() -> Status {
    if (Status status = required("classes, cache", classes, cache); !status)
      return status;
    CacheOptions options{pageTokens, draftPage, {}};
    for (size_t i = 0; i < classCount; ++i)
      options.classes.push_back({classes[i].name ? classes[i].name : "", classes[i].pages, classes[i].recent,
                                 classes[i].sink, classes[i].draft});
    Result<Cache> made = Cache::create(std::move(options));
    if (!made)
      return made.error();
    *cache = new AttnCache{std::move(*made)};
    return {};
  });
}

void attnCacheDestroy(AttnCache *cache) { delete cache; }

AttnStatus attnCacheCreateRoot(AttnCache *cache, AttnNode *root) {
  return withCache(cache, [&](Cache &of) -> Status {
    if (Status status = required("root", root); !status)
      return status;
    *root = numberOf(of.createRoot());
    return {};
  });
}

AttnStatus attnCacheAppend(AttnCache *cache, AttnNode node, int32_t tokens, AttnMovement **movement) {
  return withCache(cache, [&](Cache &of) -> Status {
    if (Status status = required("movement", movement); !status)
      return status;
    return give(of.append(nodeOf(node), tokens), movement);
  });
}

AttnStatus attnCacheBranch(AttnCache *cache, AttnNode node, int32_t count, AttnNode *children) {
  return withCache(cache, [&](Cache &of) -> Status {
    if (Status status = required("children", children); !status)
      return status;
    Result<std::vector<NodeId>> made = of.branch(nodeOf(node), count);
    if (!made)
      return made.error();
    std::transform(made->begin(), made->end(), children, numberOf);
    return {};
  });
}

AttnStatus attnCachePrune(AttnCache *cache, AttnNode node) {
  return withCache(cache, [&](Cache &of) { return of.prune(nodeOf(node)); });
}

AttnStatus attnCacheFork(AttnCache *cache, AttnNode leaf, AttnNode *twin, AttnMovement **movement) {
  return withCache(cache, [&](Cache &of) -> Status {
    if (Status status = required("twin, movement", twin, movement); !status)
      return status;
    Result<Cache::Fork> fork = of.fork(nodeOf(leaf));
    if (!fork)
      return fork.error();
    *twin = numberOf(fork->twin);
    return give(std::move(fork->movement), movement);
  });
}

AttnStatus attnCacheTruncate(AttnCache *cache, AttnNode leaf, int32_t tokens, AttnMovement **movement) {
  return withCache(cache, [&](Cache &of) -> Status {
    if (Status status = required("movement", movement); !status)
      return status;
    return give(of.truncate(nodeOf(leaf), tokens), movement);
  });
}

AttnStatus attnCacheEvict(AttnCache *cache, AttnNode node) {
  return withCache(cache, [&](Cache &of) { return of.evict(nodeOf(node)); });
}

AttnStatus attnCacheSpeculate(AttnCache *cache, AttnNode leaf, const int32_t *parents, size_t count,
                              AttnMovement **movement) {
  return withCache(cache, [&](Cache &of) -> Status {
    if (Status status = required("parents, movement", parents, movement); !status)
      return status;
    return give(of.speculate(nodeOf(leaf), {parents, count}), movement);
  });
}

AttnStatus attnCacheCommit(AttnCache *cache, AttnNode leaf, int32_t token, AttnMovement **movement) {
  return withCache(cache, [&](Cache &of) -> Status {
    if (Status status = required("movement", movement); !status)
      return status;
    return give(of.commit(nodeOf(leaf), token), movement);
  });
}

AttnStatus attnCacheApply(AttnCache *cache, const AttnNode *prune, size_t pruneCount,
                          const AttnAppend *append, size_t appendCount, const AttnBranch *branch,
                          size_t branchCount, AttnNode *children, size_t room, AttnMovement **movement) {
  return withCache(cache, [&](Cache &of) -> Status {
    if (Status status = required("movement", movement); !status)
      return status;
    if ((pruneCount && !prune) || (appendCount && !append) || (branchCount && !branch) || (room && !children))
      return inputError("expected lists, got null");
    CacheStep step;
    for (size_t i = 0; i < pruneCount; ++i)
      step.prune.push_back(nodeOf(prune[i]));
    for (size_t i = 0; i < appendCount; ++i)
      step.append.push_back({nodeOf(append[i].node), append[i].tokens});
    size_t needed = 0;
    for (size_t i = 0; i < branchCount; ++i) {
      step.branch.push_back({nodeOf(branch[i].node), branch[i].children, branch[i].tokens});
      needed += static_cast<size_t>(std::max(branch[i].children, 0));
    }
    if (needed > room)
      return inputError("expected room for " + std::to_string(needed) + " children, got " +
                        std::to_string(room));
    Result<CacheChange> change = of.apply(step);
    if (!change)
      return change.error();
    std::transform(change->children.begin(), change->children.end(), children, numberOf);
    return give(std::move(change->movement), movement);
  });
}

AttnStatus attnCacheNode(const AttnCache *cache, AttnNode node, AttnNodeInfo *info) {
  return withCache(cache, [&](Cache &of) -> Status {
    if (Status status = required("info", info); !status)
      return status;
    const NodeId id = nodeOf(node);
    if (Status status = of.check(id); !status)
      return status;
    const std::optional<NodeId> parent = of.parent(id);
    const TokenTree *draft = of.draft(id);
    *info = {parent ? numberOf(*parent) : 0,
             parent.has_value(),
             of.isLeaf(id),
             of.isEvicted(id),
             of.tokens(id),
             of.position(id),
             draft ? draft->size() : 0};
    return {};
  });
}

bool attnCacheContains(const AttnCache *cache, AttnNode node) {
  bool contains = false;
  attnStatusFree(withCache(cache, [&](Cache &of) -> Status {
    contains = of.contains(nodeOf(node));
    return {};
  }));
  return contains;
}

AttnStatus attnCacheCheckGroups(const AttnCache *cache, const AttnRowGroup *groups, size_t count) {
  return withCache(cache, [&](Cache &of) -> Status {
    if (count && !groups)
      return inputError("expected " + std::to_string(count) + " row groups, got null");
    for (size_t i = 0; i < count; ++i)
      if (Status status = of.check(nodeOf(groups[i].node)); !status)
        return inputError("requests[" + std::to_string(i) + "]: " + status.error().message);
    return {};
  });
}

int64_t attnCacheNodeCount(const AttnCache *cache) {
  int64_t count = 0;
  attnStatusFree(withCache(cache, [&](Cache &of) -> Status {
    count = of.nodeCount();
    return {};
  }));
  return count;
}

AttnStatus attnCacheFreePages(const AttnCache *cache, int32_t headClass, int32_t *pages) {
  return withCache(cache, [&](Cache &of) -> Status {
    if (Status status = required("pages", pages); !status)
      return status;
    if (Status status = checkClass(of, headClass); !status)
      return status;
    *pages = of.freePages(headClass);
    return {};
  });
}

AttnStatus attnCacheCheckInvariants(const AttnCache *cache) {
  return withCache(cache, [&](Cache &of) { return of.checkInvariants(); });
}

static std::vector<AttnNode> numbersOf(const std::vector<NodeId> &nodes) {
  std::vector<AttnNode> numbers(nodes.size());
  std::transform(nodes.begin(), nodes.end(), numbers.begin(), numberOf);
  return numbers;
}

AttnStatus attnCacheRoots(const AttnCache *cache, AttnNode *roots, size_t room, size_t *count) {
  return withCache(cache, [&](Cache &of) { return giveList(numbersOf(of.roots()), roots, room, count); });
}

AttnStatus attnCacheChildren(const AttnCache *cache, AttnNode node, AttnNode *children, size_t room,
                             size_t *count) {
  return withCache(cache, [&](Cache &of) -> Status {
    if (Status status = of.check(nodeOf(node)); !status)
      return status;
    return giveList(numbersOf(of.children(nodeOf(node))), children, room, count);
  });
}

AttnStatus attnCachePlaces(const AttnCache *cache, AttnNode node, int32_t headClass, AttnTokenSpan *spans,
                           size_t room, size_t *count) {
  return withCache(cache, [&](Cache &of) -> Status {
    if (Status status = of.check(nodeOf(node)); !status)
      return status;
    if (Status status = checkClass(of, headClass); !status)
      return status;
    std::vector<AttnTokenSpan> list;
    for (const TokenSpan &span : of.places(nodeOf(node), headClass))
      list.push_back({span.firstToken, span.tokens, span.at.page, span.at.slot});
    return giveList(list, spans, room, count);
  });
}

AttnStatus attnCacheDraftPlaces(const AttnCache *cache, AttnNode node, int32_t headClass,
                                AttnTokenSpan *spans, size_t room, size_t *count) {
  return withCache(cache, [&](Cache &of) -> Status {
    if (Status status = of.check(nodeOf(node)); !status)
      return status;
    if (Status status = checkClass(of, headClass); !status)
      return status;
    std::vector<AttnTokenSpan> list;
    if (of.draft(nodeOf(node)))
      for (const Place &place : of.draftPlaces(nodeOf(node), headClass))
        list.push_back({static_cast<int32_t>(list.size()), 1, place.page, place.slot});
    return giveList(list, spans, room, count);
  });
}
