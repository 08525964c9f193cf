//===- PlaceTokens.cpp - Slots of instances' tokens -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "TensorMaker.h"

#include "attn_rt/support/Random.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <span>

using namespace attn;
using namespace attn::run;

int64_t run::longestOf(const std::vector<int64_t> &lengths) {
  return lengths.empty() ? 0 : *std::max_element(lengths.begin(), lengths.end());
}

rt::Tensor run::i32Tensor(std::vector<int64_t> shape, const std::vector<int32_t> &values) {
  return rt::Tensor::ofI32(std::move(shape), values);
}

std::vector<int64_t> Instances::lengths() const {
  if (paths.empty())
    return runs;
  std::vector<int64_t> lengths;
  lengths.reserve(paths.size());
  for (const std::vector<int32_t> &path : paths)
    lengths.push_back(std::accumulate(path.begin(), path.end(), int64_t(0),
                                      [&](int64_t sum, int32_t run) { return sum + runs[run]; }));
  return lengths;
}

std::vector<int64_t> Instances::longest() const {
  const std::vector<int64_t> all = lengths();
  std::vector<int64_t> longest(pos0.size(), 0);
  for (size_t i = 0; i < all.size(); ++i)
    longest[i / heads] = std::max(longest[i / heads], all[i]);
  return longest;
}

namespace {

/// The content of unused entries of a block table: no page has this index.
constexpr int32_t noPage = std::numeric_limits<int32_t>::max();

/// Finds a slot for every token of every run. A run is looked up as an instance whose table `numbersOf`
/// knows.
template <typename NumbersOf>
std::vector<int64_t> slotsOf(const rt::Store &store, const Instances &instances, NumbersOf numbersOf) {
  const std::vector<int64_t> &runs = instances.runs;
  const int64_t heads = instances.heads;
  std::vector<int64_t> slots;
  slots.reserve(std::accumulate(runs.begin(), runs.end(), int64_t(0)));
  for (int64_t i = 0; i < std::ssize(runs); ++i) {
    const rt::StoreNumbers numbers = numbersOf(i);
    for (int64_t t = 0; t < runs[i]; ++t)
      slots.push_back(store.slotOf(numbers, store.isPaged() ? 0 : i / heads, t) * heads + i % heads);
  }
  return slots;
}

/// The pages of a pool, in an order for each head; every run takes consecutive pages of it. Unified pages
/// have one order for all heads.
struct Pool {
  Pool(const rt::Store &store, const Instances &instances, rt::Random random);
  /// Returns the order of a run, or of a list.
  const std::vector<int32_t> &orderOf(int64_t run) const { return order[run % std::ssize(order)]; }

  std::vector<int64_t> first; ///< first index of each run in its `order`
  int64_t pages;
  std::vector<std::vector<int32_t>> order;
};

Pool::Pool(const rt::Store &store, const Instances &instances, rt::Random random)
    : first(instances.runs.size()) {
  const int64_t orders = store.isUnified() ? 1 : instances.heads;
  std::vector<int64_t> used(orders);
  for (int64_t i = 0; i < std::ssize(first); ++i) {
    first[i] = used[i % orders];
    used[i % orders] += store.entriesOf(instances.runs[i]);
  }
  const int64_t most = longestOf(used);
  pages = most + most / 8 + 2;
  order.assign(orders, std::vector<int32_t>(pages));
  for (std::vector<int32_t> &ofHead : order) {
    std::iota(ofHead.begin(), ofHead.end(), 0);
    for (int64_t i = pages - 1; i > 0; --i)
      std::swap(ofHead[i], ofHead[random.below(i + 1)]);
  }
  // The pool ends with a listed page: a read past its tokens leaves the pool.
  for (int64_t h = 0; h < orders; ++h)
    if (used[h] > 0)
      std::iter_swap(std::find(order[h].begin(), order[h].end(), pages - 1), order[h].begin() + used[h] - 1);
}

/// Returns the lists of all instances and heads, each of `columns` entries.
std::vector<int32_t> blockTable(const rt::Store &store, const Instances &instances, const Pool &pool,
                                int64_t lists, int64_t columns) {
  std::vector<int32_t> table(lists * columns, noPage);
  for (int64_t i = 0; i < lists; ++i) {
    int32_t *entry = table.data() + i * columns;
    const auto append = [&](int64_t run) {
      entry =
          std::copy_n(pool.orderOf(i).begin() + pool.first[run], store.entriesOf(instances.runs[run]), entry);
    };
    if (instances.paths.empty())
      append(i);
    else
      std::for_each(instances.paths[i].begin(), instances.paths[i].end(), append);
  }
  return table;
}

} // namespace

TensorMaker::Sizes TensorMaker::placeDense(const rt::Store &store, const Instances &instances,
                                           std::vector<int64_t> &slots) {
  const int64_t capacity = longestOf(instances.runs);
  slots =
      slotsOf(store, instances, [&](int64_t) { return rt::StoreNumbers{.table = {}, .tokens = capacity}; });
  return {{rt::StoreSize::Tokens, capacity}};
}

TensorMaker::Sizes TensorMaker::placePacked(const std::string &name, const rt::Store &store,
                                            const Instances &instances, std::vector<int64_t> &slots) {
  std::vector<int32_t> starts(instances.pos0.size() + 1);
  const std::vector<int64_t> longest = instances.longest();
  for (size_t i = 0; i < longest.size(); ++i) // gaps between instances, none after the last
    starts[i + 1] = static_cast<int32_t>(starts[i] + longest[i] + (i + 1 < longest.size() ? i % 3 : 0));
  slots = slotsOf(store, instances, [&](int64_t) { return rt::StoreNumbers{.table = starts}; });
  tensors[name + ".start"] = i32Tensor({static_cast<int64_t>(starts.size())}, starts);
  return {{rt::StoreSize::Tokens, std::max<int64_t>(starts.back(), 1)}};
}

TensorMaker::Sizes TensorMaker::placePaged(const std::string &name, const rt::Store &store,
                                           const Instances &instances, std::vector<int64_t> &slots) {
  const int64_t heads = instances.heads;
  const Pool pool(store, instances, rt::Random(seed, name + ".block_table"));
  slots = slotsOf(store, instances, [&](int64_t i) {
    const std::span<const int32_t> pages = pool.orderOf(i);
    return rt::StoreNumbers{.table = pages.subspan(static_cast<size_t>(pool.first[i]))};
  });
  const std::vector<int64_t> lengths = instances.lengths();
  const int64_t columns = store.entriesOf(longestOf(lengths));
  std::vector<int64_t> shape = {static_cast<int64_t>(instances.pos0.size()), columns};
  if (store.ragged)
    shape.insert(shape.begin() + 1, heads);
  tensors[name + ".block_table"] =
      i32Tensor(shape, blockTable(store, instances, pool, std::ssize(lengths), columns));
  return {{rt::StoreSize::Pages, pool.pages}};
}

TensorMaker::Sizes TensorMaker::placeTokens(const std::string &name, const rt::Store &store,
                                            const Instances &instances, std::vector<int64_t> &slots) {
  Sizes sizes = store.kind == Store::Dense    ? placeDense(store, instances, slots)
                : store.kind == Store::Packed ? placePacked(name, store, instances, slots)
                                              : placePaged(name, store, instances, slots);
  sizes[rt::StoreSize::Instances] = static_cast<int64_t>(instances.pos0.size());
  return sizes;
}
