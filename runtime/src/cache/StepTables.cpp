//===- StepTables.cpp - Tables that one recording reads -------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/cache/StepTables.h"
#include "cache/State.h"

#include <algorithm>

namespace attn::rt {

namespace {

constexpr size_t alignment = 16; ///< in words: data that is read together begins at a sector

std::string atMost(const std::string &what, int64_t asked, int64_t most) {
  return std::to_string(asked) + " " + what + " where there is room for " + std::to_string(most) +
         "; nearest legal: " + std::to_string(most);
}

/// Whether an operand shows the tokens that sequences keep.
bool showsNodes(const StepCapacity::Operand &operand) { return operand.shown.nodes; }

} // namespace

std::string StepTables::Where::operator+(const std::string &rest) const {
  return "requests[" + std::to_string(request) + "]: " + rest;
}

Result<StepTables> StepTables::create(const Cache &cache, StepCapacity capacity) {
  const CacheOptions &options = cache.options();
  for (const auto &[what, value] :
       {std::pair("sequences", capacity.sequences), std::pair("rows", capacity.rows),
        std::pair("new tokens", capacity.newTokens)})
    if (value < 1 || value > 1 << 26)
      return inputError("tables of steps: expected 1 to 67108864 " + std::string(what) + ", got " +
                        std::to_string(value));
  if (capacity.operands.empty() ||
      std::none_of(capacity.operands.begin(), capacity.operands.end(), showsNodes))
    return inputError("tables of steps: expected an operand that shows the tokens of sequences");
  StepTables tables;
  tables.headClass_ = static_cast<size_t>(capacity.operands.front().shown.headClass);
  for (const StepCapacity::Operand &operand : capacity.operands) {
    const std::string where = "operand '" + operand.name + "': ";
    if (operand.shown.headClass < 0 || operand.shown.headClass >= std::ssize(options.classes) ||
        static_cast<size_t>(operand.shown.headClass) != tables.headClass_)
      return inputError(where + "expected one head class of the cache, shown by all operands");
    if (options.classes[tables.headClass_].streaming())
      return inputError(where + "class '" + options.classes[tables.headClass_].name +
                        "' frees tokens: its steps are planned on the host");
    if (!operand.shown.nodes && operand.shown.page(options) != 1)
      return inputError(where + "shows drafts on pages of " + std::to_string(operand.shown.page(options)) +
                        " tokens: paths of drafts are lists of single tokens; nearest legal: a cache with "
                        "draft_page=1");
    if (operand.pages < 1 || operand.pages > 1 << 24)
      return inputError(where + "expected 1 to 2^24 pages of a sequence, got " +
                        std::to_string(operand.pages));
  }
  tables.capacity_ = std::move(capacity);
  tables.layOut();
  return tables;
}

void StepTables::layOut() {
  size_t words = 0;
  const auto place = [&](const std::string &name, size_t size) {
    parts_.push_back({name, words, size});
    words += (size + alignment - 1) / alignment * alignment;
  };
  const auto sequences = static_cast<size_t>(capacity_.sequences);
  place("new_tokens", newTokenWords(capacity_.newTokens));
  place("q_start", sequences + 1);
  for (const StepCapacity::Operand &operand : capacity_.operands)
    for (const char *table : {".lengths", ".pos0"})
      place(operand.name + table, sequences);
  for (const StepCapacity::Operand &operand : capacity_.operands)
    place(operand.name + ".block_table", sequences * static_cast<size_t>(operand.pages));
  words_.assign(words, 0);
  used_ = changed_ = blockTables(); // no step yet
  taken_.reserve(static_cast<size_t>(capacity_.newTokens));
  sequences_.reserve(sequences + 1);
  written_.reserve(sequences + 1);
}

Status StepTables::checkRoom(int64_t tokens) const {
  const int64_t left = capacity_.newTokens - std::ssize(taken_);
  if (tokens <= left)
    return {};
  return inputError("new tokens: " + std::to_string(std::ssize(taken_) + tokens) +
                    " in a step where there is room for " + std::to_string(capacity_.newTokens) +
                    "; nearest legal: " + std::to_string(left) + " here");
}

Status StepTables::append(Cache &cache, std::vector<CacheStep::Append> appends) {
  int64_t tokens = 0;
  for (const CacheStep::Append &append : appends)
    tokens += std::max(append.tokens, 0);
  if (Status status = checkRoom(tokens); !status)
    return status;
  Result<CacheChange> change = cache.apply({{}, std::move(appends), {}});
  return change ? take(cache, change->movement) : change.error();
}

Status StepTables::take(const Cache &cache, const Movement &movement) {
  if (Status status = checkRoom(movement.rows); !status)
    return status;
  const Cache::State &state = *cache.state_;
  const uint64_t count = state.pools[headClass_].log()->count();
  const size_t first = taken_.size();
  taken_.resize(first + static_cast<size_t>(movement.rows), {-1, -1, count});
  for (const Movement::Write &write : movement.writes)
    for (int32_t i = 0; static_cast<size_t>(write.headClass) == headClass_ && i < write.tokens; ++i)
      taken_[first + static_cast<size_t>(write.row + i)] = {
          write.to.page * state.options.pageTokens + write.to.slot + i, write.to.page, count};
  return {};
}

/// The number of pages of the path. Checks that all tokens but the last node's lie in whole pages, and that
/// the tables can hold them.
Result<int32_t> StepTables::checkPath(const Cache::State &cache, int32_t leaf, const Where &where) const {
  int32_t pages = 0;
  bool isBelow = false;
  for (int32_t index = leaf; index != ground; index = cache.at(index).parent) {
    const Node &node = cache.at(index);
    if (isBelow && node.tokens % cache.options.pageTokens)
      return inputError(where + nodeText(cache.idOf(leaf)) + " is below " + nodeText(cache.idOf(index)) +
                        ", whose " + std::to_string(node.tokens) +
                        " tokens do not fill their pages: such a batch is planned on the host; nearest "
                        "legal: fork instead of branch");
    isBelow |= node.tokens > 0;
    pages += node.runs[headClass_].count();
  }
  for (const StepCapacity::Operand &operand : capacity_.operands)
    if (operand.shown.nodes && pages > operand.pages)
      return inputError(
          where + nodeText(cache.idOf(leaf)) + " has " +
          atMost("tokens", cache.at(leaf).end(), int64_t{operand.pages} * cache.options.pageTokens));
  return pages;
}

/// Adds the chains in the order in which their tokens were given, which is the order of their rows.
Status StepTables::addDraft(const Cache::State &cache, int32_t leaf, int32_t pages, int32_t rows,
                            const Where &where) {
  const std::string name = nodeText(cache.idOf(leaf));
  const auto shown = std::find_if(capacity_.operands.begin(), capacity_.operands.end(),
                                  [](const auto &operand) { return !operand.shown.nodes; });
  if (shown == capacity_.operands.end())
    return inputError(where + name +
                      " has a draft, and no operand shows drafts: describe one of Paged(page_size=1) and "
                      "make the cache with draft_page=1");
  const TokenTree &tree = cache.at(leaf).draft->tree;
  const size_t first = sequences_.size();
  for (int32_t c = 0; c < std::ssize(tree.chains()); ++c) {
    const TokenTree::Chain &chain = tree.chains()[static_cast<size_t>(c)];
    for (int32_t d = chain.begin + 1; d < chain.end; ++d)
      if (tree.order()[static_cast<size_t>(d)] != tree.order()[static_cast<size_t>(d - 1)] + 1)
        return inputError(where + "token " + std::to_string(tree.order()[static_cast<size_t>(d)]) +
                          " of the draft of " + name + " is the only child of token " +
                          std::to_string(tree.order()[static_cast<size_t>(d - 1)]) +
                          " and was not given right after it: tokens of a chain must be consecutive");
    const int32_t tokens = tree.depth()[static_cast<size_t>(chain.end - 1)] + 1;
    if (tokens > shown->pages)
      return inputError(where + "a path of the draft of " + name + " has " +
                        atMost("tokens", tokens, shown->pages));
    sequences_.emplace_back(leaf, pages, chain.end - chain.begin, c);
  }
  const auto given = [&](const Sequence &sequence) {
    return tree.order()[static_cast<size_t>(tree.chains()[static_cast<size_t>(sequence.chain)].begin)];
  };
  std::sort(sequences_.begin() + static_cast<int64_t>(first), sequences_.end(),
            [&](const Sequence &a, const Sequence &b) { return given(a) < given(b); });
  Sequence &front = sequences_[first];
  const int32_t place = tree.chains()[static_cast<size_t>(front.chain)].begin;
  if (rows > 0 && tree.depth()[static_cast<size_t>(place)] == 0)
    front.rows += rows; // the chain continues the leaf's own tokens
  else if (rows > 0)
    sequences_.insert(sequences_.begin() + static_cast<int64_t>(first), {leaf, pages, rows, -1});
  return {};
}

Status StepTables::readGroup(const Cache::State &cache, const RowGroup &group, const Where &where) {
  Result<int32_t> found = cache.find(group.node);
  if (!found)
    return inputError(where + found.error().message);
  const Node &node = cache.at(*found);
  if (group.draft && !node.draft)
    return inputError(where + nodeText(group.node) + " has no draft");
  if (const std::string why = refuseRows(node, group.node, group.rows, group.draft); !why.empty())
    return inputError(where + why);
  const Result<int32_t> pages = checkPath(cache, *found, where);
  if (!pages)
    return pages.error();
  rows_ += group.rows + (group.draft ? node.draft->tree.size() : 0);
  if (rows_ > capacity_.rows)
    return inputError(where + "the step has " + atMost("rows up to here", rows_, capacity_.rows));
  if (!group.draft)
    sequences_.emplace_back(*found, *pages, group.rows, -1);
  else if (Status status = addDraft(cache, *found, *pages, group.rows, where); !status)
    return status;
  if (std::ssize(sequences_) > capacity_.sequences)
    return inputError(where + "the step has " +
                      atMost("sequences up to here", std::ssize(sequences_), capacity_.sequences));
  return {};
}

/// Writes the pages of the path that the row lacks.
void StepTables::writePath(const Cache::State &cache, const Row &has, int32_t pages, int32_t *row) const {
  const int32_t *begin = row + has.pages;
  int32_t *end = row + pages;
  for (int32_t index = has.leaf; end != begin; index = cache.at(index).parent) {
    const std::vector<int32_t> &held = cache.at(index).runs[headClass_].pages;
    end = std::copy_backward(held.end() - std::min(std::ssize(held), end - begin), held.end(), end);
  }
}

void StepTables::writeSequence(const Cache::State &cache, size_t number, const Sequence &sequence) {
  const Node &leaf = cache.at(sequence.leaf);
  const size_t count = capacity_.operands.size();
  Row &has = written_[number];
  if (has.leaf != sequence.leaf)
    has = {sequence.leaf, 0};
  for (size_t o = 0; o < count; ++o) {
    const StepCapacity::Operand &operand = capacity_.operands[o];
    int32_t &length = words_[parts_[2 + 2 * o].first + number];
    int32_t &pos0 = words_[parts_[3 + 2 * o].first + number];
    const size_t first = parts_[2 + 2 * count + o].first + number * static_cast<size_t>(operand.pages);
    int32_t *row = words_.data() + first;
    length = pos0 = 0;
    if (operand.shown.nodes) {
      length = leaf.end();
      if (has.pages == sequence.pages)
        continue;
      writePath(cache, has, sequence.pages, row);
      changed_ = std::max(changed_, first + static_cast<size_t>(sequence.pages));
    } else if (sequence.chain >= 0) {
      const Draft &draft = *leaf.draft;
      int32_t place = draft.tree.chains()[static_cast<size_t>(sequence.chain)].end - 1;
      pos0 = leaf.end();
      length = draft.tree.depth()[static_cast<size_t>(place)] + 1;
      for (int32_t i = length; place >= 0; place = draft.tree.parent()[static_cast<size_t>(place)]) {
        const int32_t slot = draft.slots[static_cast<size_t>(place)], page = cache.options.pageTokens;
        row[--i] = draft.pages[headClass_].tokens[static_cast<size_t>(slot / page)] * page + slot % page;
      }
      changed_ = std::max(changed_, first + static_cast<size_t>(length));
    }
  }
  has.pages = sequence.pages;
}

/// The rest of the last piece is filled with -1, which kernels skip.
void StepTables::writeNewTokens(const Cache::State &cache) {
  const auto log = cache.pools[headClass_].log();
  const uint64_t now = log->count();
  int32_t *list = words_.data() + parts_[0].first;
  *list = static_cast<int32_t>(taken_.size());
  int32_t *slot = list + 8;
  for (const NewToken &token : taken_)
    *slot++ = token.page >= 0 && (token.count == now || !log->givenOutSince(token.page, token.count))
                  ? token.slot
                  : -1;
  std::fill(slot, list + parts_[0].words, -1);
  taken_.clear();
}

Status StepTables::update(const Cache &cache, std::span<const RowGroup> groups) {
  const Cache::State &state = *cache.state_;
  sequences_.clear();
  rows_ = 0;
  for (size_t i = 0; i < groups.size(); ++i)
    if (Status status = readGroup(state, groups[i], {i}); !status)
      return status;
  if (serial_ != state.serial || shape_ != state.shape)
    written_.clear();
  serial_ = state.serial, shape_ = state.shape;
  written_.resize(sequences_.size(), {-1, 0}); // a device may not have the rows after those of the step
  changed_ = blockTables();
  int32_t *starts = words_.data() + parts_[1].first;
  int32_t row = 0;
  for (size_t i = 0; i < sequences_.size(); ++i) {
    starts[i] = row;
    writeSequence(state, i, sequences_[i]);
    row += sequences_[i].rows;
  }
  std::fill(starts + sequences_.size(), starts + parts_[1].words, row);
  for (size_t part = 2; part < 2 + 2 * capacity_.operands.size(); ++part) {
    int32_t *table = words_.data() + parts_[part].first;
    std::fill(table + sequences_.size(), table + parts_[part].words, 0);
  }
  writeNewTokens(state);
  watched_.begin(cache, groups);
  const Part &last = parts_.back();
  used_ = last.first + sequences_.size() * static_cast<size_t>(capacity_.operands.back().pages);
  return {};
}

} // namespace attn::rt
