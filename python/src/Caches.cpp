//===- Caches.cpp - The cache in Python -----------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Objects.h"
#include "RowGroups.h"

#include <algorithm>
#include <optional>

namespace attn::python {

AttnCache *Cache::get() const {
  if (open_ && (open_->failed || open_.use_count() == 1))
    rollBack();
  return handle_.get();
}

void Cache::open(Movement &movement, OpenChange change) const {
  if (attnMovementRows(movement.get()) == 0)
    return;
  movement.change = open_ = std::make_shared<OpenChange>(std::move(change));
}

/// Undoes the open change: the last tokens of leaves, children without children, a draft. Nothing else has
/// changed since.
void Cache::rollBack() const {
  const std::shared_ptr<OpenChange> change = std::exchange(open_, nullptr);
  if (!change)
    return;
  change->takenBack = true;
  AttnCache *cache = handle_.get();
  Movement none;
  if (change->speculated)
    check(attnCacheCommit(cache, *change->speculated, -1, none.out()));
  // Pages are freed in the reverse of the order in which they were taken, so that the next change takes the
  // same ones.
  for (size_t i = change->children.size(); i-- > 0;)
    check(attnCachePrune(cache, change->children[i]));
  for (size_t i = change->appended.size(); i-- > 0;) {
    Movement each;
    check(attnCacheTruncate(cache, change->appended[i].node, change->appended[i].tokens, each.out()));
  }
}

namespace {

using ClassTuple = std::tuple<std::string, int32_t, int32_t, int32_t, int32_t>;

Cache makeCache(int32_t pageTokens, int32_t draftPage, const std::vector<ClassTuple> &classes) {
  std::vector<AttnCacheClass> given;
  for (const auto &[name, pages, recent, sink, draft] : classes)
    given.push_back({name.c_str(), pages, recent, sink, draft});
  Cache cache;
  const AttnCacheClass none{};
  check(attnCacheCreate(pageTokens, draftPage, given.empty() ? &none : given.data(), given.size(),
                        cache.out()));
  cache.pageTokens = pageTokens;
  cache.draftPage = draftPage;
  cache.classes = py::cast(classes);
  return cache;
}

AttnNodeInfo infoOf(const Cache &cache, AttnNode node) {
  AttnNodeInfo info{};
  check(attnCacheNode(cache.get(), node, &info));
  return info;
}

std::pair<std::vector<AttnNode>, Movement>
apply(const Cache &cache, const std::vector<AttnNode> &prune, const Appends *append,
      const std::vector<std::tuple<AttnNode, int32_t, int32_t>> &branch) {
  std::vector<AttnBranch> branches;
  int64_t children = 0;
  for (const auto &[node, count, tokens] : branch) {
    branches.push_back({node, count, tokens});
    children += std::max(count, 0);
  }
  if (children > 1 << 24)
    raise("input", "branch: expected at most 2^24 children, got " + std::to_string(children));
  std::vector<AttnNode> made(static_cast<size_t>(children));
  Movement movement;
  runOn(cache, [&](AttnCache *mine) {
    return attnCacheApply(mine, prune.data(), prune.size(), append ? append->data() : nullptr,
                          append ? append->size() : 0, branches.data(), branches.size(), made.data(),
                          made.size(), movement.out());
  });
  OpenChange change{{}, made, {}};
  if (append)
    change.appended.assign(append->data(), append->data() + append->size());
  cache.open(movement, std::move(change));
  return {std::move(made), std::move(movement)};
}

void executeMovement(const Movement &movement, int32_t headClass, int32_t pageTokens, uintptr_t address,
                     size_t nbytes, int64_t tokenBytes, int32_t layers, int64_t layerBytes, uintptr_t rows,
                     size_t rowsSize, int64_t rowsLayerBytes) {
  const AttnPageMemory memory{headClass,  pageTokens,
                              layers,     tokenBytes,
                              layerBytes, reinterpret_cast<void *>(address),
                              nbytes,     reinterpret_cast<const void *>(rows),
                              rowsSize,   rowsLayerBytes};
  run([&] { return attnMovementExecute(movement.get(), &memory); });
}

void bindMovements(py::module_ &module) {
  using namespace py::literals;
  py::class_<Movement>(module, "Movement")
      .def_property(
          "failed", [](const Movement &m) { return m.change && m.change->failed; },
          [](const Movement &m, bool failed) {
            if (m.change)
              m.change->failed = failed;
          })
      .def_property_readonly("taken_back", [](const Movement &m) { return m.change && m.change->takenBack; })
      .def_property_readonly("rows", [](const Movement &m) { return attnMovementRows(m.get()); })
      .def_property_readonly(
          "copies",
          [](const Movement &m) {
            py::list list;
            for (size_t i = 0; i < attnMovementCopyCount(m.get()); ++i) {
              const AttnTokenCopy c = attnMovementCopy(m.get(), i);
              list.append(py::make_tuple(c.headClass, c.fromPage, c.fromSlot, c.toPage, c.toSlot, c.tokens));
            }
            return list;
          })
      .def_property_readonly("writes",
                             [](const Movement &m) {
                               py::list list;
                               for (size_t i = 0; i < attnMovementWriteCount(m.get()); ++i) {
                                 const AttnTokenWrite w = attnMovementWrite(m.get(), i);
                                 list.append(py::make_tuple(w.headClass, w.row, w.page, w.slot, w.tokens));
                               }
                               return list;
                             })
      .def("execute", &executeMovement, py::kw_only(), "head_class"_a, "page_tokens"_a, "address"_a,
           "nbytes"_a, "token_bytes"_a, "layers"_a = 1, "layer_bytes"_a = 0, "rows_address"_a = 0,
           "rows_nbytes"_a = 0, "rows_layer_bytes"_a = 0);
}

void bindForest(py::module_ &module) {
  using namespace py::literals;
  py::class_<Cache>(module, "Cache")
      .def(py::init(&makeCache), py::kw_only(), "page_tokens"_a = 16, "draft_page"_a = 0,
           "classes"_a = std::vector<ClassTuple>())
      .def_readonly("page_tokens", &Cache::pageTokens)
      .def_readonly("draft_page", &Cache::draftPage)
      .def_property_readonly("classes", [](const Cache &c) { return c.classes.attr("copy")(); })
      .def("create_root",
           [](const Cache &c) {
             AttnNode root = 0;
             check(attnCacheCreateRoot(c.get(), &root));
             return root;
           })
      .def(
          "append",
          [](const Cache &c, AttnNode node, int32_t tokens) {
            Movement movement;
            runOn(c, [&](AttnCache *mine) { return attnCacheAppend(mine, node, tokens, movement.out()); });
            c.open(movement, {{{node, tokens}}, {}, {}});
            return movement;
          },
          "node"_a, "tokens"_a)
      .def(
          "branch",
          [](const Cache &c, AttnNode node, int32_t children) {
            if (children > 1 << 24)
              raise("input", "branch: expected at most 2^24 children, got " + std::to_string(children));
            std::vector<AttnNode> made(static_cast<size_t>(std::max(children, 1)));
            runOn(c, [&](AttnCache *mine) { return attnCacheBranch(mine, node, children, made.data()); });
            return made;
          },
          "node"_a, "children"_a)
      .def(
          "prune",
          [](const Cache &c, AttnNode node) {
            runOn(c, [&](AttnCache *mine) { return attnCachePrune(mine, node); });
          },
          "node"_a)
      .def(
          "fork",
          [](const Cache &c, AttnNode leaf) {
            AttnNode twin = 0;
            Movement movement;
            runOn(c, [&](AttnCache *mine) { return attnCacheFork(mine, leaf, &twin, movement.out()); });
            return std::pair(twin, std::move(movement));
          },
          "leaf"_a)
      .def(
          "truncate",
          [](const Cache &c, AttnNode leaf, int32_t tokens) {
            Movement movement;
            runOn(c, [&](AttnCache *mine) { return attnCacheTruncate(mine, leaf, tokens, movement.out()); });
            return movement;
          },
          "leaf"_a, "tokens"_a)
      .def(
          "evict",
          [](const Cache &c, AttnNode node) {
            runOn(c, [&](AttnCache *mine) { return attnCacheEvict(mine, node); });
          },
          "node"_a)
      .def(
          "speculate",
          [](const Cache &c, AttnNode leaf, const std::vector<int32_t> &parents) {
            Movement movement;
            const int32_t none = 0;
            runOn(c, [&](AttnCache *mine) {
              return attnCacheSpeculate(mine, leaf, parents.empty() ? &none : parents.data(), parents.size(),
                                        movement.out());
            });
            c.open(movement, {{}, {}, leaf});
            return movement;
          },
          "leaf"_a, "parents"_a)
      .def(
          "commit",
          [](const Cache &c, AttnNode leaf, int32_t token) {
            Movement movement;
            runOn(c, [&](AttnCache *mine) { return attnCacheCommit(mine, leaf, token, movement.out()); });
            return movement;
          },
          "leaf"_a, "token"_a)
      .def("apply", &apply, py::kw_only(), "prune"_a = std::vector<AttnNode>(), "append"_a = nullptr,
           "branch"_a = std::vector<std::tuple<AttnNode, int32_t, int32_t>>())
      .def(
          "check_groups",
          [](const Cache &c, const RowGroups &groups) {
            check(attnCacheCheckGroups(c.get(), groups.data(), groups.size()));
          },
          "groups"_a)
      .def(
          "contains", [](const Cache &c, AttnNode node) { return attnCacheContains(c.get(), node); },
          "node"_a)
      .def("roots",
           [](const Cache &c) {
             return listOf<AttnNode>(
                 [&](auto *out, size_t room, size_t *n) { return attnCacheRoots(c.get(), out, room, n); });
           })
      .def(
          "children",
          [](const Cache &c, AttnNode node) {
            return listOf<AttnNode>([&](auto *out, size_t room, size_t *n) {
              return attnCacheChildren(c.get(), node, out, room, n);
            });
          },
          "node"_a)
      .def(
          "parent",
          [](const Cache &c, AttnNode node) -> std::optional<AttnNode> {
            const AttnNodeInfo info = infoOf(c, node);
            return info.hasParent ? std::optional(info.parent) : std::nullopt;
          },
          "node"_a)
      .def(
          "tokens", [](const Cache &c, AttnNode node) { return infoOf(c, node).tokens; }, "node"_a)
      .def(
          "position", [](const Cache &c, AttnNode node) { return infoOf(c, node).position; }, "node"_a)
      .def(
          "is_leaf", [](const Cache &c, AttnNode node) { return infoOf(c, node).isLeaf; }, "node"_a)
      .def(
          "is_evicted", [](const Cache &c, AttnNode node) { return infoOf(c, node).isEvicted; }, "node"_a)
      .def(
          "draft_tokens", [](const Cache &c, AttnNode node) { return infoOf(c, node).draftTokens; }, "node"_a)
      .def("node_count", [](const Cache &c) { return attnCacheNodeCount(c.get()); })
      .def(
          "free_pages",
          [](const Cache &c, int32_t headClass) {
            int32_t pages = 0;
            check(attnCacheFreePages(c.get(), headClass, &pages));
            return pages;
          },
          "head_class"_a = 0)
      .def(
          "places",
          [](const Cache &c, AttnNode node, int32_t headClass) {
            py::list list;
            for (const AttnTokenSpan &s : listOf<AttnTokenSpan>([&](auto *out, size_t room, size_t *n) {
                   return attnCachePlaces(c.get(), node, headClass, out, room, n);
                 }))
              list.append(py::make_tuple(s.firstToken, s.tokens, s.page, s.slot));
            return list;
          },
          "node"_a, "head_class"_a = 0)
      .def(
          "draft_places",
          [](const Cache &c, AttnNode node, int32_t headClass) {
            py::list list;
            for (const AttnTokenSpan &s : listOf<AttnTokenSpan>([&](auto *out, size_t room, size_t *n) {
                   return attnCacheDraftPlaces(c.get(), node, headClass, out, room, n);
                 }))
              list.append(py::make_tuple(s.page, s.slot));
            return list;
          },
          "node"_a, "head_class"_a = 0)
      .def("roll_back", &Cache::rollBack)
      .def("close", &Cache::close, "movement"_a)
      .def_property_readonly("is_open", &Cache::isOpen)
      .def("check_invariants",
           [](const Cache &c) { runOn(c, [&](AttnCache *mine) { return attnCacheCheckInvariants(mine); }); });
}

} // namespace

void bindCaches(py::module_ &module) {
  using namespace py::literals;
  bindMovements(module);
  bindForest(module);
  bindRowGroups(module);
  bindBatches(module);
  bindSteps(module);
}

} // namespace attn::python
