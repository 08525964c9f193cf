//===- ForestDecoder.cpp - A forest, decoded and checked ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ForestDecoder.h"
#include "attn_rt/batch/Visibility.h"

#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>

namespace attn::rt::test {

namespace {

constexpr GpuModel slow{"slow", 1e9, 1e12, 1}; // small problems are worth cutting
constexpr int64_t mostRows = 300, mostInstances = 400;
enum : uint64_t { query, key, value };

/// Element i of a token's query, key or value: any numbers between -1 and 1.
double element(uint64_t number, uint64_t which, uint64_t i) {
  uint64_t x = (number * 3 + which) * 1000003 + i;
  x = (x ^ x >> 31) * 0x9E3779B97F4A7C15U;
  x = (x ^ x >> 29) * 0xBF58476D1CE4E5B9U;
  return static_cast<double>(x >> 40) / (1 << 23) - 1;
}

double sinkLogit(int head) { return 0.125 * head; }

} // namespace

ForestDecoder::ForestDecoder(const Manifest &manifest, const ModuleSource &source, CacheOptions cache,
                             CacheBatchOptions shown, double tolerance, std::vector<int32_t> classes)
    : mirror(std::move(cache), 1), manifest_(manifest), shown_(shown), tolerance_(tolerance),
      classes_(std::move(classes)), builder_(std::move(shown)) {
  PlanLimits limits;
  limits.rows = limits.groups = mostRows;
  limits.instancesPerRow = 60;
  limits.sharedInstances = 300;
  limits.sharedRows = 6000;
  options_.blocks = 24;
  options_.gpu = &slow;
  capacity_ = planCapacity(manifest, limits, options_);
  Result<Session> session = Session::create(*device, manifest, source);
  EXPECT_TRUE(session) << session.error().message;
  session_.emplace(std::move(*session));
  EXPECT_TRUE(session_->reserve(capacity_));
  planner_.emplace(manifest, options_, capacity_);
}

/// The tokens that each of the user's rows sees, its own token last.
std::vector<std::vector<uint64_t>> ForestDecoder::userPaths(const std::vector<RowGroup> &groups) {
  std::vector<std::vector<uint64_t>> paths;
  for (const RowGroup &group : groups) {
    const Mirror::Node &node = mirror.at(group.node);
    for (int32_t i = group.rows; i > 0; --i)
      paths.emplace_back(node.path.begin(), node.path.end() - i + 1);
    for (size_t t = 0; group.draft && t < node.draft.size(); ++t) {
      std::vector<uint64_t> own;
      for (auto token = static_cast<int32_t>(t); token >= 0;
           token = node.draftParents[static_cast<size_t>(token)])
        own.push_back(node.draft[static_cast<size_t>(token)]);
      paths.push_back(node.path);
      paths.back().insert(paths.back().end(), own.rbegin(), own.rend());
    }
  }
  return paths;
}

/// The KV heads that a store holds.
std::vector<int> ForestDecoder::headsIn(const Argument &argument) const {
  std::vector<int> heads;
  for (int head = 0; head < manifest_.kvHeads; ++head)
    if (argument.headClass < 0 || argument.headClass == static_cast<int>(classOf(head)))
      heads.push_back(head);
  return heads;
}

/// The visibility of a class's heads: the same for all operands that they see.
Visibility ForestDecoder::seenBy(size_t headClass) const {
  size_t o = 0;
  while (!manifest_.isSeenBy(o, headClass))
    ++o;
  return manifest_.visibilityOf(o, headClass);
}

/// The tokens that some row sees through a head of this operand's store.
std::set<uint64_t> ForestDecoder::seenTokens(const std::vector<std::vector<uint64_t>> &paths,
                                             size_t operand) const {
  std::set<uint64_t> seen;
  for (int head : headsIn(manifest_.argumentOf(manifest_.operands[operand]))) {
    const Visibility visibility = seenBy(classOf(head));
    for (const std::vector<uint64_t> &path : paths)
      for (int64_t t = 0; t < std::ssize(path); ++t)
        if (isVisible(visibility, manifest_.ends, std::ssize(path) - 1, t))
          seen.insert(path[static_cast<size_t>(t)]);
  }
  return seen;
}

/// An element as rounded to the tensors' dtype.
double ForestDecoder::stored(uint64_t number, uint64_t which, uint64_t i) const {
  Tensor one(manifest_.dtype, {1});
  one.set(0, element(number, which, i));
  return one.get(0);
}

/// Adds queries, and the pages of every class that is shown: their contents, or NaN if a slot is empty or no
/// row sees it.
void ForestDecoder::addData(const std::vector<std::vector<uint64_t>> &paths, const CacheBatch &made,
                            TensorMap &tensors) const {
  const int64_t perRow = int64_t{manifest_.qHeads} * manifest_.keyDim;
  Tensor &q = tensors["q"] = Tensor(manifest_.dtype, {made.batch.rows, manifest_.qHeads, manifest_.keyDim});
  for (int64_t row = 0; row < made.batch.rows; ++row)
    for (int64_t i = 0; i < perRow; ++i)
      q.set(row * perRow + i,
            element(paths[static_cast<size_t>(made.userRow[static_cast<size_t>(row)])].back(), query,
                    static_cast<uint64_t>(i)));
  if (manifest_.sinkLogits) {
    tensors["sink_logits"] = Tensor(DType::F32, {manifest_.qHeads});
    for (int h = 0; h < manifest_.qHeads; ++h)
      tensors["sink_logits"].set(h, sinkLogit(h));
  }
  const int64_t dim = manifest_.keyDim;
  const int32_t pageTokens = mirror.cache.options().pageTokens;
  for (size_t o = 0; o < shown_.operands.size(); ++o) {
    if (!shown_.operands[o].nodes || kernels_)
      continue; // it shares the memory of the operand that shows the nodes of this class
    const int32_t c = shown_.operands[o].headClass;
    const int32_t pages = mirror.cache.options().classes[static_cast<size_t>(c)].pages;
    const std::string &name = manifest_.operands[o].argument;
    const std::vector<int> heads = headsIn(manifest_.argumentOf(manifest_.operands[o]));
    const std::set<uint64_t> seen = seenTokens(paths, o);
    std::vector<bool> read(static_cast<size_t>(pages));
    for (int32_t slot = 0; slot < pages * pageTokens; ++slot)
      if (seen.count(mirror.numberAt(c, {slot / pageTokens, slot % pageTokens})))
        read[static_cast<size_t>(slot / pageTokens)] = true;
    for (uint64_t which : {key, value}) {
      Tensor tensor(manifest_.dtype, {pages, pageTokens, std::ssize(heads), dim});
      tensor.fill(std::nan(""));
      for (int32_t slot = 0; slot < pages * pageTokens; ++slot)
        if (const uint64_t number = mirror.numberAt(c, {slot / pageTokens, slot % pageTokens});
            number && read[static_cast<size_t>(slot / pageTokens)])
          for (int64_t i = 0; i < std::ssize(heads) * dim; ++i)
            tensor.set(slot * std::ssize(heads) * dim + i,
                       element(number, which,
                               static_cast<uint64_t>(heads[static_cast<size_t>(i / dim)] * dim + i % dim)));
      tensors[name + (which == key ? ".k_pages" : ".v_pages")] = std::move(tensor);
    }
  }
}

void ForestDecoder::keepOnDevice(CacheKernels kernels) {
  const CacheOptions &options = mirror.cache.options();
  const int64_t slots = int64_t{options.classes[0].pages} * options.pageTokens;
  const int64_t perToken = int64_t{manifest_.kvHeads} * manifest_.keyDim * 2;
  for (int which : {0, 1}) {
    pages_[which] = std::move(*Buffer::create(*device, static_cast<size_t>(slots * perToken), "pages"));
    newRows_[which] =
        std::move(*Buffer::create(*device, static_cast<size_t>(mostRows * perToken), "new rows"));
  }
  kernels_.emplace(std::move(kernels));
  const Status reserved = kernels_->reserve(
      {0, options.classes[0].pages, options.pageTokens, 1, pages_[0].address(), pages_[1].address()},
      mostRows, mostRows);
  ASSERT_TRUE(reserved) << reserved.error().message;
  mirror.watch = [this](const Movement &movement, const std::vector<uint64_t> &numbers) {
    execute(movement, numbers);
  };
}

void ForestDecoder::execute(const Movement &movement, const std::vector<uint64_t> &numbers) {
  const int64_t perToken = int64_t{manifest_.kvHeads} * manifest_.keyDim;
  for (uint64_t which : {key, value}) {
    Tensor rows(manifest_.dtype, {std::ssize(numbers), perToken});
    for (int64_t i = 0; i < rows.elements(); ++i)
      rows.set(
          i, element(numbers[static_cast<size_t>(i / perToken)], which, static_cast<uint64_t>(i % perToken)));
    ASSERT_TRUE(device->copyIn(newRows_[which - key].address(), rows.bytes.data(), rows.bytes.size()));
  }
  const Status done =
      kernels_->execute(movement, {newRows_[0].address(), newRows_[1].address(), std::ssize(numbers)});
  ASSERT_TRUE(done) << done.error().message;
}

Status ForestDecoder::bind(const TensorMap &tensors, const Batch &batch) {
  if (Status status = session_->bind(tensors, batch); !status)
    return status;
  for (size_t o = 0; o < shown_.operands.size() && kernels_; ++o) {
    const std::string &name = manifest_.operands[o].argument;
    if (Status status = session_->bindAddress(name + ".k_pages", pages_[0].address()); !status)
      return status;
    if (Status status = session_->bindAddress(name + ".v_pages", pages_[1].address()); !status)
      return status;
    session_->setDim(name + ".pages", static_cast<int32_t>(batch.operands[o].pages));
  }
  if (kernels_)
    return {};
  for (size_t o = 0; o < shown_.operands.size(); ++o) {
    if (shown_.operands[o].nodes)
      continue;
    for (size_t other = 0; other < shown_.operands.size(); ++other)
      if (shown_.operands[other].nodes && shown_.operands[other].headClass == shown_.operands[o].headClass) {
        const std::string &to = manifest_.operands[o].argument, &from = manifest_.operands[other].argument;
        for (const char *pages : {".k_pages", ".v_pages"})
          if (Status status = session_->bindAddress(to + pages, session_->address(from + pages)); !status)
            return status;
        session_->setDim(to + ".pages", static_cast<int32_t>(batch.operands[o].pages));
      }
  }
  return {};
}

void ForestDecoder::record() {
  recorded_ = true;
  options_.kernel = 0;
  planner_.emplace(manifest_, options_, capacity_);
}

/// Pads tensors to those of the largest batch, with this batch's contents first: a recorded launch is bound
/// to them.
void ForestDecoder::padToMost(TensorMap &tensors) const {
  const auto pad = [&](const std::string &name, int64_t most) {
    Tensor &tensor = tensors.at(name);
    ASSERT_LE(tensor.shape[0], most) << name;
    tensor.shape[0] = most;
    tensor.bytes.resize(static_cast<size_t>(*elementCount(tensor.shape)) * dtypeSize(tensor.dtype));
  };
  pad("q", mostRows);
  pad("q_pos", mostRows);
  for (const OperandInfo &operand : manifest_.operands)
    for (const char *name : {".lengths", ".pos0", ".rows", ".block_table"})
      pad(operand.argument + name, mostInstances);
}

Status ForestDecoder::launch() {
  if (!recorded_)
    return session_->run(plan_);
  if (Status status = session_->poison(); !status)
    return status;
  if (Status status = session_->setPlan(plan_); !status)
    return status;
  if (!recording_) {
    if (Status status = session_->fixLaunch(); !status)
      return status;
    if (Status status = device->beginRecording(); !status)
      return status;
    if (Status status = session_->launch(); !status)
      return status;
    Result<std::unique_ptr<Recording>> recording = device->endRecording();
    if (!recording)
      return recording.error();
    recording_ = std::move(*recording);
  }
  return device->replay(*recording_);
}

void ForestDecoder::decode(const std::vector<RowGroup> &groups) {
  CacheBatch made;
  const Status built = builder_.build(mirror.cache, groups, made);
  ASSERT_TRUE(built) << built.error().message;
  made.batch.classes = classes_;
  const Status checked = checkBatch(manifest_, made.batch);
  ASSERT_TRUE(checked) << checked.error().message;
  const std::vector<std::vector<uint64_t>> paths = userPaths(groups);
  TensorMap tensors = tablesOf(manifest_, made.batch);
  addData(paths, made, tensors);
  Batch shape = made.batch;
  if (recorded_) {
    padToMost(tensors);
    shape.rows = mostRows;
  }
  const Status bound = bind(tensors, shape);
  ASSERT_TRUE(bound) << bound.error().message;
  const DeviceAddress tasks = session_->address("plan.tasks"), partials = session_->address("partial.o");
  const Result<bool> extended = planner_->update(made.batch, plan_);
  ASSERT_TRUE(extended) << extended.error().message;
  extendedPlans += *extended;
  const Status ran = launch();
  ASSERT_TRUE(ran) << ran.error().message;
  EXPECT_EQ(session_->address("plan.tasks"), tasks);
  EXPECT_EQ(session_->address("partial.o"), partials);
  partialRows += plan_.partialRows;
  for (size_t i = 0; i < made.batch.operands[0].instances(); ++i)
    if (const int32_t seenBy = made.batch.operands[0].rowLast[i] - made.batch.operands[0].rowFirst[i];
        seenBy > 1)
      sharedRows += seenBy;
  for (const RowGroup &group : groups)
    draftRows += group.draft ? mirror.cache.draft(group.node)->size() : 0;
  const Result<TensorMap> out = session_->outputs();
  ASSERT_TRUE(out) << out.error().message;
  for (size_t user = 0; user < paths.size(); ++user)
    checkRow(*out, made.batchRow[user], paths[user]);
}

void ForestDecoder::checkRow(const TensorMap &out, int32_t row, const std::vector<uint64_t> &path) const {
  const auto dim = static_cast<uint64_t>(manifest_.keyDim);
  const int64_t q = std::ssize(path) - 1;
  for (int h = 0; h < manifest_.qHeads; ++h) {
    const auto kvHead = static_cast<uint64_t>(h / manifest_.groupSize());
    const Visibility visibility = seenBy(classOf(static_cast<int>(kvHead)));
    double sum = manifest_.sinkLogits ? std::exp(sinkLogit(h)) : 0;
    std::vector<double> o(dim);
    for (int64_t t = 0; t <= q; ++t) {
      if (!isVisible(visibility, manifest_.ends, q, t))
        continue;
      double score = 0;
      for (uint64_t d = 0; d < dim; ++d)
        score += stored(path.back(), query, static_cast<uint64_t>(h) * dim + d) *
                 stored(path[static_cast<size_t>(t)], key, kvHead * dim + d);
      const double weight = std::exp(score * manifest_.scale);
      sum += weight;
      for (uint64_t d = 0; d < dim; ++d)
        o[d] += weight * stored(path[static_cast<size_t>(t)], value, kvHead * dim + d);
    }
    const int64_t at = int64_t{row} * manifest_.qHeads + h;
    ASSERT_NEAR(out.at("lse").get(at), std::log(sum), 2e-3) << "row " << row << ", head " << h;
    double wrong = 0, size = 0;
    for (uint64_t d = 0; d < dim; ++d) {
      const double got = out.at("o").get(at * static_cast<int64_t>(dim) + static_cast<int64_t>(d));
      wrong += (got - o[d] / sum) * (got - o[d] / sum);
      size += o[d] / sum * (o[d] / sum);
    }
    ASSERT_LE(std::sqrt(wrong), tolerance_ * std::sqrt(size)) << "row " << row << ", head " << h;
  }
}

void ForestDecoder::decodeForest(uint64_t seed, int steps) {
  Mirror &m = mirror;
  Rng rng(seed);
  const NodeId a = m.createRoot(), b = m.createRoot();
  ASSERT_TRUE(m.apply({{}, {{a, 150}, {b, 40}}, {}}));
  decode({{b, 40}, {a, 150}});
  ASSERT_TRUE(m.append(b, 30));
  decode({{b, 30}});
  ASSERT_TRUE(m.apply({{}, {}, {{a, 3, 1}}}));
  ASSERT_TRUE(m.fork(b));
  for (int step = 0; step < steps; ++step) {
    SCOPED_TRACE("step " + std::to_string(step));
    CacheStep change;
    std::vector<NodeId> leaves, children;
    for (const auto &[key, node] : m.nodes)
      if (m.cache.isLeaf(Mirror::idOf(key)))
        leaves.push_back(Mirror::idOf(key));
    for (NodeId leaf : leaves)
      if (leaves.size() > 5 && below(rng, 4) == 0)
        change.prune.push_back(leaf);
      else if (below(rng, 5) == 0)
        change.branch.push_back({leaf, 2, 1});
      else
        change.append.push_back({leaf, 1});
    ASSERT_TRUE(m.apply(change, &children));
    std::vector<RowGroup> groups;
    for (const CacheStep::Append &append : change.append)
      groups.push_back({append.node});
    for (NodeId child : children)
      groups.push_back({child});
    for (RowGroup &group : groups)
      if (below(rng, 4) == 0) {
        ASSERT_TRUE(m.speculate(group.node, randomTree(rng, 12)));
        group.draft = true;
      }
    std::shuffle(groups.begin(), groups.end(), rng);
    decode(groups);
    if (testing::Test::HasFatalFailure())
      return;
    for (const RowGroup &group : groups)
      if (const TokenTree *draft = m.cache.draft(group.node))
        ASSERT_TRUE(m.commit(group.node,
                             static_cast<int32_t>(below(rng, static_cast<size_t>(draft->size()) + 1)) - 1));
    m.verify();
  }
  // The usual decoding: every leaf grows by a token.
  for (int step = 0; step < 5; ++step) {
    std::vector<RowGroup> groups;
    CacheStep change;
    for (const auto &[key, node] : m.nodes)
      if (m.cache.isLeaf(Mirror::idOf(key))) {
        change.append.push_back({Mirror::idOf(key), 1});
        groups.push_back({Mirror::idOf(key)});
      }
    ASSERT_TRUE(m.apply(change));
    decode(groups);
    if (testing::Test::HasFatalFailure())
      return;
  }
  EXPECT_GT(extendedPlans, 1);
  EXPECT_GT(sharedRows, 0);
  EXPECT_GT(partialRows, 0);
  EXPECT_GT(draftRows, 0);
}

} // namespace attn::rt::test
