//===- Mirror.cpp - A cache beside a model that shares nothing ------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Mirror.h"

#include <algorithm>
#include <gtest/gtest.h>
#include <numeric>

namespace attn::rt::test {

Mirror::Mirror(CacheOptions options, int32_t layers)
    : cache(std::move(*Cache::create(std::move(options)))), layers_(layers) {
  for (const CacheClass &info : cache.options().classes)
    memory_.emplace_back(static_cast<size_t>(layers * info.pages * cache.options().pageTokens));
}

void Mirror::execute(const Movement &movement, const std::vector<uint64_t> &numbers) {
  EXPECT_EQ(static_cast<size_t>(movement.rows), numbers.size());
  for (int32_t c = 0; c < std::ssize(memory_); ++c) {
    std::vector<uint64_t> rows;
    for (int32_t layer = 0; layer < layers_; ++layer)
      for (uint64_t number : numbers)
        rows.push_back(stored(number, c, layer));
    auto &memory = memory_[static_cast<size_t>(c)];
    const Status status =
        executeMovement(movement, c, cache.options().pageTokens,
                        {std::as_writable_bytes(std::span(memory)), 8, layers_,
                         static_cast<int64_t>(memory.size()) / layers_ * 8},
                        {std::as_bytes(std::span(rows)), static_cast<int64_t>(numbers.size()) * 8});
    EXPECT_TRUE(status) << status.error().message;
  }
  if (watch)
    watch(movement, numbers);
}

uint64_t Mirror::numberAt(int32_t headClass, Place place) const {
  const auto &memory = memory_[static_cast<size_t>(headClass)];
  const auto slot = static_cast<size_t>(place.page * cache.options().pageTokens + place.slot);
  const uint64_t number = memory[slot] >> 8;
  for (int32_t layer = 0; layer < layers_; ++layer)
    if (memory[slot + static_cast<size_t>(layer) * memory.size() / static_cast<size_t>(layers_)] !=
        stored(number, headClass, layer))
      return 0;
  return number;
}

NodeId Mirror::createRoot() {
  const NodeId root = cache.createRoot();
  nodes[{root.index, root.generation}] = {};
  return root;
}

template <typename F> auto Mirror::unchangedIfRefused(F &&change) {
  const std::string before = describe();
  auto result = change();
  if (!result) {
    EXPECT_EQ(describe(), before) << result.error().message;
    EXPECT_FALSE(result.error().message.empty());
  }
  return result;
}

Status Mirror::apply(const CacheStep &step, std::vector<NodeId> *children) {
  auto change = unchangedIfRefused([&] { return cache.apply(step); });
  if (!change)
    return change.error();
  std::erase_if(nodes, [&](const auto &node) { return !cache.contains(idOf(node.first)); });
  for (NodeId pruned : step.prune)
    EXPECT_FALSE(cache.contains(pruned));
  std::vector<uint64_t> numbers;
  const auto grow = [&](Node &node, int32_t tokens) {
    for (int32_t i = 0; i < tokens; ++i) {
      numbers.push_back(++lastNumber_);
      node.path.push_back(lastNumber_);
    }
  };
  for (const CacheStep::Append &append : step.append) {
    Node &node = at(append.node);
    node.frontier = static_cast<int32_t>(node.path.size());
    grow(node, append.tokens);
  }
  auto child = change->children.begin();
  for (const CacheStep::Branch &branch : step.branch) {
    at(branch.node).frontier = static_cast<int32_t>(at(branch.node).path.size());
    for (int32_t i = 0; i < branch.children; ++i, ++child) {
      Node node;
      node.path = at(branch.node).path;
      node.frontier = at(branch.node).frontier;
      grow(node, branch.tokens);
      nodes[{child->index, child->generation}] = std::move(node);
    }
  }
  EXPECT_EQ(child, change->children.end());
  execute(change->movement, numbers);
  if (children)
    *children = change->children;
  return {};
}

Result<NodeId> Mirror::fork(NodeId leaf) {
  auto fork = unchangedIfRefused([&] { return cache.fork(leaf); });
  if (!fork)
    return fork.error();
  at(leaf).frontier = static_cast<int32_t>(at(leaf).path.size());
  nodes[{fork->twin.index, fork->twin.generation}] = at(leaf);
  execute(fork->movement, {});
  return fork->twin;
}

Status Mirror::truncate(NodeId leaf, int32_t tokens) {
  auto movement = unchangedIfRefused([&] { return cache.truncate(leaf, tokens); });
  if (!movement)
    return movement.error();
  Node &node = at(leaf);
  node.path.resize(node.path.size() - static_cast<size_t>(tokens));
  node.frontier = static_cast<int32_t>(node.path.size());
  execute(*movement, {});
  return {};
}

Status Mirror::evict(NodeId node) {
  Status status = unchangedIfRefused([&] { return cache.evict(node); });
  if (status)
    at(node).evicted = true;
  return status;
}

Status Mirror::speculate(NodeId leaf, const std::vector<int32_t> &parents) {
  auto movement = unchangedIfRefused([&] { return cache.speculate(leaf, parents); });
  if (!movement)
    return movement.error();
  Node &node = at(leaf);
  node.draftParents = parents;
  for (size_t t = 0; t < parents.size(); ++t)
    node.draft.push_back(++lastNumber_);
  execute(*movement, node.draft);
  return {};
}

Status Mirror::commit(NodeId leaf, int32_t token) {
  auto movement = unchangedIfRefused([&] { return cache.commit(leaf, token); });
  if (!movement)
    return movement.error();
  Node &node = at(leaf);
  std::vector<uint64_t> accepted;
  for (; token >= 0; token = node.draftParents[static_cast<size_t>(token)])
    accepted.push_back(node.draft[static_cast<size_t>(token)]);
  node.path.insert(node.path.end(), accepted.rbegin(), accepted.rend());
  node.frontier = static_cast<int32_t>(node.path.size());
  node.draft.clear();
  node.draftParents.clear();
  execute(*movement, {});
  return {};
}

void Mirror::verify() {
  const Status invariants = cache.checkInvariants();
  ASSERT_TRUE(invariants) << invariants.error().message;
  for (const auto &[key, node] : nodes) {
    ASSERT_EQ(cache.end(idOf(key)), std::ssize(node.path)) << nodeText(idOf(key));
    for (int32_t c = 0; c < std::ssize(memory_); ++c) {
      const CacheClass &info = cache.options().classes[static_cast<size_t>(c)];
      std::vector<bool> held(node.path.size());
      for (std::optional<NodeId> id = idOf(key); id; id = cache.parent(*id))
        for (const TokenSpan &span : cache.places(*id, c))
          for (int32_t i = 0; i < span.tokens; ++i) {
            const auto position = static_cast<size_t>(cache.position(*id) + span.firstToken + i);
            ASSERT_EQ(numberAt(c, {span.at.page, span.at.slot + i}), node.path[position])
                << nodeText(idOf(key)) << ", class " << info.name << ", position " << position;
            ASSERT_FALSE(held[position]);
            held[position] = true;
          }
      for (int32_t position = 0; position < std::ssize(held); ++position) {
        const bool visible = !info.streaming() || position < info.sink ||
                             (!node.evicted && position > node.frontier - info.recent);
        ASSERT_TRUE(held[static_cast<size_t>(position)] || !visible)
            << nodeText(idOf(key)) << ", class " << info.name << ", position " << position;
      }
      const std::vector<Place> draft = cache.draftPlaces(idOf(key), c);
      ASSERT_EQ(draft.size(), node.draft.size());
      for (size_t t = 0; t < draft.size(); ++t)
        ASSERT_EQ(numberAt(c, draft[t]), node.draft[t]) << nodeText(idOf(key)) << ", draft token " << t;
    }
  }
}

std::string Mirror::describe() const {
  std::string text;
  const auto add = [&](auto... numbers) { ((text += std::to_string(numbers) + " "), ...); };
  std::vector<NodeId> open = cache.roots();
  for (size_t i = 0; i < open.size(); ++i) {
    const NodeId id = open[i];
    text += "\n" + nodeText(id) + ": ";
    add(cache.position(id), cache.tokens(id), cache.isEvicted(id), cache.draft(id) != nullptr);
    for (NodeId child : cache.children(id)) {
      text += nodeText(child) + " ";
      open.push_back(child);
    }
    for (int32_t c = 0; c < std::ssize(memory_); ++c) {
      for (const TokenSpan &span : cache.places(id, c))
        add(span.firstToken, span.tokens, span.at.page, span.at.slot);
      for (Place place : cache.draftPlaces(id, c))
        add(place.page, place.slot);
    }
  }
  for (int32_t c = 0; c < std::ssize(memory_); ++c) {
    text += "\nfree ";
    add(cache.freePages(c));
    for (int32_t page = 0; page < cache.options().classes[static_cast<size_t>(c)].pages; ++page)
      if (const auto use = cache.pageUse(c, page))
        add(page, use->node.index, use->node.generation, use->firstToken);
  }
  return text;
}

NodeId Mirror::pick(Rng &rng) const {
  return idOf(std::next(nodes.begin(), static_cast<int64_t>(below(rng, nodes.size())))->first);
}

std::vector<int32_t> randomTree(Rng &rng, size_t most) {
  const size_t count = 1 + below(rng, most);
  // Long chains, wide fans and shapes in between.
  const size_t chain = 1 + below(rng, 8);
  std::vector<int32_t> names(count), parents(count);
  std::iota(names.begin(), names.end(), 0);
  std::shuffle(names.begin(), names.end(), rng);
  for (size_t i = 0; i < count; ++i) {
    const size_t back = below(rng, 8) < chain ? 1 : 1 + below(rng, i + 1);
    parents[static_cast<size_t>(names[i])] = back > i ? -1 : names[i - back];
  }
  return parents;
}

CacheOptions randomOptions(Rng &rng) {
  CacheOptions options;
  options.pageTokens = int32_t{1} << below(rng, 5);
  options.draftPage = options.pageTokens >> below(rng, 5);
  options.classes.clear();
  options.classes.push_back({"all", static_cast<int32_t>(20 + below(rng, 400)), 0, 0, 0});
  while (options.classes.size() < 3 && below(rng, 2))
    options.classes.push_back({"streaming" + std::to_string(options.classes.size()),
                               static_cast<int32_t>(20 + below(rng, 300)),
                               static_cast<int32_t>(1 + below(rng, 40)), static_cast<int32_t>(below(rng, 30)),
                               static_cast<int32_t>(below(rng, 12))});
  return options;
}

static Status randomStep(Mirror &m, Rng &rng) {
  CacheStep step;
  for (size_t i = below(rng, 3); i > 0; --i)
    step.prune.push_back(m.pick(rng));
  for (size_t i = below(rng, 5); i > 0; --i)
    step.append.push_back({m.pick(rng), static_cast<int32_t>(1 + below(rng, 9))});
  for (size_t i = below(rng, 3); i > 0; --i)
    step.branch.push_back(
        {m.pick(rng), static_cast<int32_t>(1 + below(rng, 3)), static_cast<int32_t>(below(rng, 5))});
  return m.apply(step);
}

Status randomOperation(Mirror &m, Rng &rng) {
  if (m.nodes.empty() || below(rng, 20) == 0)
    return m.createRoot(), Status();
  const NodeId node = m.pick(rng);
  switch (below(rng, 14)) {
  case 0:
  case 1:
  case 2:
    return m.append(node, static_cast<int32_t>(1 + below(rng, below(rng, 4) ? 4 : 90)));
  case 3:
    return m.apply(
        {{}, {}, {{node, static_cast<int32_t>(1 + below(rng, 4)), static_cast<int32_t>(below(rng, 3))}}});
  case 4:
    return below(rng, 3) ? Status() : m.apply({{node}, {}, {}});
  case 5: {
    const Result<NodeId> twin = m.fork(node);
    return twin ? Status() : Status(twin.error());
  }
  case 6:
    return below(rng, 3) ? Status() : m.evict(node);
  case 7:
    return m.speculate(node, randomTree(rng, 30));
  case 8:
  case 9: {
    const TokenTree *draft = m.cache.draft(node);
    return m.commit(node,
                    draft ? static_cast<int32_t>(below(rng, static_cast<size_t>(draft->size()) + 1)) - 1 : 0);
  }
  case 10:
  case 11: { // a few tokens, or most of the sequence
    const size_t most = below(rng, 2) ? 5 : m.at(node).path.size() + 2;
    return m.truncate(node, static_cast<int32_t>(1 + below(rng, most)));
  }
  default:
    return randomStep(m, rng);
  }
}

} // namespace attn::rt::test
