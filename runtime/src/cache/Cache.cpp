//===- Cache.cpp - A forest of sequences over pages -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "cache/State.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>

namespace attn::rt {

namespace {

Status checkClass(const CacheClass &info, const std::string &where) {
  const auto expect = [&](bool holds, const char *field, const char *legal, int64_t got) -> Status {
    if (holds)
      return {};
    return inputError(where + "." + field + ": expected " + legal + ", got " + std::to_string(got));
  };
  if (Status s = expect(info.pages >= 1, "pages", "at least 1", info.pages); !s)
    return s;
  if (Status s = expect(info.recent >= 0, "recent", "at least 0", info.recent); !s)
    return s;
  if (Status s = expect(info.sink >= 0, "sink", "at least 0", info.sink); !s)
    return s;
  if (Status s = expect(info.draft >= 0, "draft", "at least 0", info.draft); !s)
    return s;
  if (!info.streaming() && (info.sink || info.draft))
    return inputError(where + ": sink and draft belong to a streaming class, which has recent > 0");
  constexpr int32_t limit = 1 << 30; // sums of two stay within 31 bits
  if (std::max({info.recent, info.sink, info.draft}) > limit)
    return inputError(where + ": expected recent, sink and draft of at most " + std::to_string(limit));
  return {};
}

} // namespace

Cache::Cache(std::unique_ptr<State> state) : state_(std::move(state)) {}
Cache::Cache(Cache &&) noexcept = default;
Cache &Cache::operator=(Cache &&) noexcept = default;
Cache::~Cache() = default;

Result<Cache> Cache::create(CacheOptions options) {
  constexpr int32_t pageLimit = 1 << 16;
  if (options.pageTokens < 1 || options.pageTokens > pageLimit)
    return inputError("cache.pageTokens: expected 1 to " + std::to_string(pageLimit) + ", got " +
                      std::to_string(options.pageTokens));
  if (options.draftPage == 0)
    options.draftPage = options.pageTokens;
  if (options.draftPage < 1 || options.pageTokens % options.draftPage != 0)
    return inputError("cache.draftPage: expected a divisor of the " + std::to_string(options.pageTokens) +
                      " tokens of a page, got " + std::to_string(options.draftPage));
  if (options.classes.empty())
    return inputError("cache.classes: expected at least one, got none");
  auto state = std::make_unique<State>();
  for (size_t c = 0; c < options.classes.size(); ++c) {
    const CacheClass &info = options.classes[c];
    if (Status status = checkClass(info, "cache.classes[" + std::to_string(c) + "]"); !status)
      return status.error();
    state->anyStreaming |= info.streaming();
    state->pools.emplace_back(info.pages);
  }
  state->options = std::move(options);
  return Cache(std::move(state));
}

NodeId Cache::createRoot() {
  const NodeId root = state_->idOf(state_->addNode(ground, 0));
  state_->checkInDebugBuilds();
  return root;
}

Result<Movement> Cache::append(NodeId node, int32_t tokens) {
  Result<CacheChange> change = apply({{}, {{node, tokens}}, {}});
  if (!change)
    return change.error();
  return std::move(change->movement);
}

Result<std::vector<NodeId>> Cache::branch(NodeId node, int32_t children) {
  Result<CacheChange> change = apply({{}, {}, {{node, children, 0}}});
  if (!change)
    return change.error();
  return std::move(change->children);
}

Status Cache::prune(NodeId node) {
  Result<CacheChange> change = apply({{node}, {}, {}});
  return change ? Status() : Status(change.error());
}

const CacheOptions &Cache::options() const { return state_->options; }
bool Cache::contains(NodeId node) const { return static_cast<bool>(state_->find(node)); }
Status Cache::check(NodeId node) const {
  Result<int32_t> index = state_->find(node);
  return index ? Status() : Status(index.error());
}

static std::vector<NodeId> childrenOf(const Cache::State &s, int32_t index) {
  std::vector<NodeId> ids;
  for (int32_t child = s.at(index).firstChild; child >= 0; child = s.at(child).next)
    ids.push_back(s.idOf(child));
  return ids;
}

std::vector<NodeId> Cache::roots() const { return childrenOf(*state_, ground); }
std::vector<NodeId> Cache::children(NodeId node) const { return childrenOf(*state_, node.index); }
std::optional<NodeId> Cache::parent(NodeId node) const {
  const int32_t parent = state_->at(node.index).parent;
  return parent == ground ? std::nullopt : std::optional(state_->idOf(parent));
}
int32_t Cache::tokens(NodeId node) const { return state_->at(node.index).tokens; }
int32_t Cache::position(NodeId node) const { return state_->at(node.index).pos0; }
bool Cache::isLeaf(NodeId node) const { return state_->at(node.index).isLeaf(); }
bool Cache::isEvicted(NodeId node) const { return state_->at(node.index).evicted; }
const TokenTree *Cache::draft(NodeId node) const {
  const auto &draft = state_->at(node.index).draft;
  return draft ? &draft->tree : nullptr;
}
int64_t Cache::nodeCount() const { return state_->live; }
int32_t Cache::freePages(int32_t headClass) const {
  return state_->pools[static_cast<size_t>(headClass)].left();
}

std::optional<PageUse> Cache::pageUse(int32_t headClass, int32_t page) const {
  const PagePool::Owner owner = state_->pools[static_cast<size_t>(headClass)].owner(page);
  if (owner.node < 0)
    return std::nullopt;
  return PageUse{state_->idOf(owner.node), owner.page < 0 ? -1 : owner.page * state_->options.pageTokens};
}

std::vector<TokenSpan> Cache::places(NodeId id, int32_t headClass) const {
  const State &s = *state_;
  const Node &node = s.at(id.index);
  const auto c = static_cast<size_t>(headClass);
  const int32_t sink = s.sinkPages(node, c), gap = node.runs[c].gap, pageTokens = s.options.pageTokens;
  std::vector<TokenSpan> spans;
  for (int32_t page = 0; page < s.pagesFor(node.tokens); ++page)
    if (page < sink || page >= sink + gap)
      spans.push_back({page * pageTokens,
                       std::min(pageTokens, node.tokens - page * pageTokens),
                       {s.pageOf(node, c, page * pageTokens), 0}});
  return spans;
}

std::vector<Place> Cache::draftPlaces(NodeId id, int32_t headClass) const {
  const State &s = *state_;
  std::vector<Place> places;
  if (const auto &draft = s.at(id.index).draft)
    for (int32_t d : draft->tree.place()) {
      const int32_t slot = draft->slots[static_cast<size_t>(d)];
      const auto &pages = draft->pages[static_cast<size_t>(headClass)].tokens;
      places.push_back(
          {pages[static_cast<size_t>(slot / s.options.pageTokens)], slot % s.options.pageTokens});
    }
  return places;
}

uint64_t Cache::State::newSerial() {
  static std::atomic<uint64_t> last = 0;
  return ++last;
}

void Cache::State::checkInDebugBuilds() const {
#ifndef NDEBUG
  if (const Status status = checkState(*this); !status) {
    fprintf(stderr, "%s\n", status.error().message.c_str());
    abort();
  }
#endif
}

Status Cache::checkInvariants() const { return checkState(*state_); }

} // namespace attn::rt
