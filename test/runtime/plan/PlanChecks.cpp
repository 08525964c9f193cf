//===- PlanChecks.cpp - What every plan promises --------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "PlanChecks.h"
#include "attn_rt/batch/Visibility.h"

#include <algorithm>
#include <cstring>
#include <gtest/gtest.h>
#include <map>

namespace attn::rt::test {

namespace {

int32_t outputOf(const Manifest &m, const PlanTask &task, int32_t r) {
  const int32_t packed = task.packedBegin + r, group = m.groupSize();
  return packed / group * m.qHeads + task.ordinal * group + packed % group;
}

/// The index, in an operand's store, of the head that an ordinal reads, from the order of heads and classes
/// alone.
int32_t placeOf(const Manifest &m, const Batch &batch, size_t operand, int32_t ordinal) {
  const int only = m.argumentOf(m.operands[operand]).headClass;
  std::vector<std::pair<int32_t, int32_t>> heads; // (class, head): ordinals, once they are sorted
  for (int32_t head = 0; head < m.kvHeads; ++head)
    heads.push_back({batch.classes.empty() ? 0 : batch.classes[static_cast<size_t>(head)], head});
  std::sort(heads.begin(), heads.end());
  if (only < 0)
    return heads[static_cast<size_t>(ordinal)].second;
  return ordinal - static_cast<int32_t>(std::count_if(heads.begin(), heads.end(),
                                                      [&](const auto &head) { return head.first < only; }));
}

/// The class of each ordinal: ordinals are the heads of class 0, then those of class 1, …
std::vector<size_t> classOfOrdinals(const Manifest &m, const Batch &batch) {
  std::vector<size_t> classes(batch.classes.begin(), batch.classes.end());
  std::sort(classes.begin(), classes.end());
  classes.resize(static_cast<size_t>(m.kvHeads));
  return classes;
}

} // namespace

void expectRight(const Manifest &m, const Batch &batch, const Plan &plan, const PlanCapacity &capacity,
                 bool ordered) {
  const std::vector<int32_t> &ends = batch.ends.empty() ? m.ends : batch.ends;
  const KernelInfo &kernel = m.kernels[static_cast<size_t>(plan.kernel)];
  ASSERT_EQ(kernel.role, KernelInfo::Role::Attend);
  const auto outputs = static_cast<size_t>(batch.rows * m.qHeads);
  const std::vector<size_t> classes = classOfOrdinals(m, batch);
  std::vector<int> direct(outputs), sinks(outputs);
  std::vector<std::vector<int32_t>> partials(outputs);
  // covered[operand][instance] counts, for one head and row at a time, how often a token was visited.
  std::map<std::tuple<int32_t, int32_t, int32_t>, std::vector<uint8_t>>
      covered; // (output, operand, instance)

  ASSERT_EQ(plan.blockTasks.size(), static_cast<size_t>(plan.blocks) + 1);
  EXPECT_EQ(plan.blockTasks.front(), 0);
  EXPECT_EQ(plan.blockTasks.back(), static_cast<int32_t>(plan.tasks.size()));
  EXPECT_TRUE(std::is_sorted(plan.blockTasks.begin(), plan.blockTasks.end()));
  for (const PlanTask &task : plan.tasks) {
    ASSERT_GT(task.packedCount, 0);
    ASSERT_LE(task.packedCount, kernel.rows);
    ASSERT_LE(task.packedBegin + task.packedCount, batch.rows * m.groupSize());
    ASSERT_TRUE(task.ordinal >= 0 && task.ordinal < m.kvHeads);
    ASSERT_EQ(static_cast<size_t>(task.headClass), classes[static_cast<size_t>(task.ordinal)]);
    ASSERT_TRUE(0 <= task.segmentBegin && task.segmentBegin <= task.segmentEnd &&
                task.segmentEnd <= static_cast<int32_t>(plan.segments.size()));
    for (int32_t r = 0; r < task.packedCount; ++r) {
      const int32_t output = outputOf(m, task, r), row = output / m.qHeads;
      const int32_t q = batch.qPos[static_cast<size_t>(row)];
      if (task.partial < 0)
        ++direct[static_cast<size_t>(output)];
      else
        partials[static_cast<size_t>(output)].push_back(task.partial + r);
      sinks[static_cast<size_t>(output)] += task.flags & taskHasSink;
      for (int32_t s = task.segmentBegin; s < task.segmentEnd; ++s) {
        const PlanSegment &segment = plan.segments[static_cast<size_t>(s)];
        const OperandBatch &operand = batch.operands[static_cast<size_t>(segment.operand)];
        const int32_t place = placeOf(m, batch, static_cast<size_t>(segment.operand), task.ordinal);
        const Visibility visibility =
            m.visibilityOf(static_cast<size_t>(segment.operand), static_cast<size_t>(task.headClass));
        if (segment.instance < 0) {
          const int32_t rowOfTile = row - task.packedBegin / m.groupSize();
          const int32_t rowsOfTile = (kernel.rows + m.groupSize() - 1) / m.groupSize();
          ASSERT_EQ(segment.fullBegin, segment.fullEnd); // all of it is masked
          ASSERT_FALSE(task.flags & taskRowsFollow);
          // A kernel reads whole tiles, whose last tokens no row sees.
          const int32_t tiles = (segment.kvEnd - segment.kvBegin + kernel.keys - 1) / kernel.keys;
          for (int32_t t = segment.kvBegin; t < segment.kvBegin + tiles * kernel.keys; ++t) {
            const auto word = static_cast<size_t>(t / 32 * rowsOfTile + rowOfTile);
            ASSERT_LT(word, plan.bits.size());
            if (!(plan.bits[word] >> (t % 32) & 1))
              continue;
            ASSERT_LT(t, segment.kvEnd);
            for (size_t i = 0; i < operand.instances(); ++i)
              for (int32_t token = 0; token < operand.length(i, place); ++token)
                if (operand.rowFirst[i] <= row && row < operand.rowLast[i] &&
                    operand.blockTable[operand.listOf(i, place) * static_cast<size_t>(operand.maxPages) +
                                       static_cast<size_t>(token)] == plan.slots[static_cast<size_t>(t)]) {
                  auto &counts = covered[{output, segment.operand, static_cast<int32_t>(i)}];
                  counts.resize(static_cast<size_t>(operand.length(i, place)));
                  ++counts[static_cast<size_t>(token)];
                  ASSERT_TRUE(isVisible(visibility, ends, q, operand.pos0[i] + token));
                }
          }
          continue;
        }
        const auto instance = static_cast<size_t>(segment.instance);
        ASSERT_TRUE(operand.rowFirst[instance] <= row && row < operand.rowLast[instance]);
        ASSERT_EQ(segment.pos0, operand.pos0[instance]);
        const int ofClass = m.argumentOf(m.operands[static_cast<size_t>(segment.operand)]).headClass;
        ASSERT_TRUE(ofClass < 0 || ofClass == task.headClass);
        ASSERT_EQ(segment.firstOrdinal,
                  ofClass < 0 ? 0
                              : std::find(classes.begin(), classes.end(), static_cast<size_t>(ofClass)) -
                                    classes.begin());
        ASSERT_TRUE(0 <= segment.kvBegin && segment.kvBegin <= segment.kvEnd &&
                    segment.kvEnd <= operand.length(instance, place));
        ASSERT_EQ(segment.kvBegin % kernel.keyAlign, 0);
        ASSERT_TRUE(segment.kvBegin <= segment.fullBegin && segment.fullBegin <= segment.fullEnd &&
                    segment.fullEnd <= segment.kvEnd);
        auto &counts = covered[{output, segment.operand, segment.instance}];
        counts.resize(static_cast<size_t>(operand.length(instance, place)));
        for (int32_t t = segment.kvBegin; t < segment.kvEnd; ++t) {
          ++counts[static_cast<size_t>(t)];
          if (segment.fullBegin <= t && t < segment.fullEnd)
            ASSERT_TRUE(isVisible(visibility, ends, q, segment.pos0 + t)) << "row " << row << " token " << t;
          if (task.flags & taskRowsFollow && t >= segment.fullEnd + row - task.packedBegin / m.groupSize())
            ASSERT_FALSE(isVisible(visibility, ends, q, segment.pos0 + t)) << "row " << row << " token " << t;
        }
      }
    }
  }

  // Every visible token is read exactly once.
  for (int32_t output = 0; output < static_cast<int32_t>(outputs); ++output) {
    const int32_t row = output / m.qHeads;
    for (size_t o = 0; o < batch.operands.size(); ++o)
      for (size_t i = 0; i < batch.operands[o].instances(); ++i) {
        const OperandBatch &operand = batch.operands[o];
        if (row < operand.rowFirst[i] || row >= operand.rowLast[i])
          continue;
        auto found = covered.find({output, static_cast<int32_t>(o), static_cast<int32_t>(i)});
        const size_t headClass = classes[static_cast<size_t>(output % m.qHeads / m.groupSize())];
        if (!m.isSeenBy(o, headClass))
          continue;
        const Visibility visibility = m.visibilityOf(o, headClass);
        const int32_t place = placeOf(m, batch, o, output % m.qHeads / m.groupSize());
        for (int32_t t = 0; t < operand.length(i, place); ++t) {
          const int count = found == covered.end() ? 0 : found->second[static_cast<size_t>(t)];
          ASSERT_LE(count, 1);
          if (isVisible(visibility, ends, batch.qPos[static_cast<size_t>(row)], operand.pos0[i] + t))
            ASSERT_EQ(count, 1) << "output " << output << " operand " << o << " instance " << i << " token "
                                << t;
        }
      }
  }

  // Each result is written once, directly or by the merge, and the merge lists are complete and in order.
  ASSERT_EQ(plan.mergeStart.size(), plan.mergeRows.size() + 1);
  EXPECT_EQ(plan.mergeStart.back(), static_cast<int32_t>(plan.mergePartials.size()));
  EXPECT_EQ(static_cast<int64_t>(plan.mergePartials.size()), plan.partialRows);
  std::vector<int> merged(outputs);
  std::vector<int> used(static_cast<size_t>(plan.partialRows));
  for (size_t i = 0; i < plan.mergeRows.size(); ++i) {
    const auto output = static_cast<size_t>(plan.mergeRows[i]);
    ++merged[output];
    const std::vector<int32_t> list(plan.mergePartials.begin() + plan.mergeStart[i],
                                    plan.mergePartials.begin() + plan.mergeStart[i + 1]);
    EXPECT_FALSE(list.empty());
    if (ordered)
      EXPECT_EQ(list, partials[output]);
    else // by instances
      EXPECT_TRUE(
          std::is_permutation(list.begin(), list.end(), partials[output].begin(), partials[output].end()));
    for (int32_t partial : list)
      ++used[static_cast<size_t>(partial)];
  }
  EXPECT_TRUE(std::all_of(used.begin(), used.end(), [](int n) { return n == 1; }));
  for (size_t output = 0; output < outputs; ++output) {
    EXPECT_EQ(direct[output] + merged[output], 1) << output;
    EXPECT_TRUE(merged[output] ? !partials[output].empty() : partials[output].empty());
    EXPECT_EQ(sinks[output], m.sinkLogits ? 1 : 0);
  }

  EXPECT_LE(static_cast<int64_t>(plan.tasks.size()), capacity.tasks);
  EXPECT_LE(static_cast<int64_t>(plan.segments.size()), capacity.segments);
  EXPECT_LE(static_cast<int64_t>(plan.mergeRows.size()), capacity.mergeRows);
  EXPECT_LE(static_cast<int64_t>(plan.mergePartials.size()), capacity.mergePartials);
  EXPECT_LE(plan.partialRows, capacity.partialRows);
  EXPECT_LE(static_cast<int64_t>(plan.slots.size()), capacity.slots);
  EXPECT_LE(static_cast<int64_t>(plan.bits.size()), capacity.bits);
}

bool checkPlan(const Manifest &m, const Batch &batch, const PlanOptions &options) {
  const PlanCapacity capacity = planCapacity(m, PlanLimits::of(m, batch), options);
  Planner planner(m, options, capacity);
  Plan plan;
  Status status = planner.plan(batch, plan);
  EXPECT_TRUE(status) << status.error().message;
  expectRight(m, batch, plan, capacity, options.fixedSplit == 0);
  const bool cut = options.fixedSplit == 0 &&
                   (options.strategy == Strategy::ByQuery || options.strategy == Strategy::Flatten);
  if (cut && plan.stats.cuts > 0) // balance: within one tile and the cost of starting a part
    EXPECT_LE(plan.stats.maxCost - plan.stats.meanCost, plan.stats.tileCost + plan.stats.fixedCost);
  return plan.stats.cuts > 0;
}

bool same(const Plan &a, const Plan &b) {
  const auto equal = [](const auto &x, const auto &y) {
    return x.size() == y.size() &&
           (x.empty() || std::memcmp(x.data(), y.data(), x.size() * sizeof(x[0])) == 0);
  };
  return a.kernel == b.kernel && equal(a.blockTasks, b.blockTasks) && equal(a.tasks, b.tasks) &&
         equal(a.segments, b.segments) && equal(a.mergeStart, b.mergeStart) &&
         equal(a.mergeRows, b.mergeRows) && equal(a.mergePartials, b.mergePartials) &&
         equal(a.slots, b.slots) && equal(a.bits, b.bits);
}

void makeRagged(const Manifest &m, Batch &batch, Rng &rng) {
  for (size_t o = 0; o < batch.operands.size(); ++o) {
    OperandBatch &operand = batch.operands[o];
    const int only = m.argumentOf(m.operands[o]).headClass;
    operand.heads = only < 0 ? m.kvHeads : classHeads(m, batch)[static_cast<size_t>(only)];
    const std::vector<int32_t> lengths = std::move(operand.lengths), table = std::move(operand.blockTable);
    operand.lengths.clear();
    operand.blockTable.clear();
    const auto columns = static_cast<int64_t>(operand.maxPages);
    for (size_t i = 0; i < lengths.size(); ++i)
      for (int32_t head = 0; head < operand.heads; ++head) {
        const bool none = below(rng, 5) == 0;
        operand.lengths.push_back(
            none ? 0 : static_cast<int32_t>(below(rng, static_cast<size_t>(lengths[i]) + 1)));
        if (table.empty())
          continue;
        const auto row = table.begin() + static_cast<int64_t>(i) * columns;
        operand.blockTable.insert(operand.blockTable.end(), row, row + columns);
        const auto own = operand.blockTable.end() - columns;
        std::rotate(own, own + static_cast<int64_t>(below(rng, static_cast<size_t>(lengths[i]) + 1)),
                    own + lengths[i]); // for pages of one token: rotates as many entries as tokens
      }
  }
}

Visibility randomVisibility(Rng &rng) {
  using Kind = Visibility::Kind;
  switch (below(rng, 6)) {
  case 0:
    return visibility(Kind::All);
  case 1:
    return visibility(Kind::Window, 0);
  case 2:
    return both(visibility(Kind::Causal), either(visibility(Kind::Sink, 1), visibility(Kind::Recent, 0)));
  case 3:
    return both(visibility(Kind::Causal), visibility(Kind::Sink, 1));
  default:
    return visibility(Kind::Causal);
  }
}

bool goesInLockstep(const Plan &plan, int heads) {
  const auto tasksOf = [&](int block) {
    return std::span(plan.tasks)
        .subspan(static_cast<size_t>(plan.blockTasks[static_cast<size_t>(block)]),
                 static_cast<size_t>(plan.blockTasks[static_cast<size_t>(block) + 1] -
                                     plan.blockTasks[static_cast<size_t>(block)]));
  };
  for (int block = 0; block < plan.blocks / heads * heads; ++block) {
    const auto first = tasksOf(block / heads * heads), mine = tasksOf(block);
    if (first.size() != mine.size())
      return false;
    for (size_t t = 0; t < mine.size(); ++t) {
      const PlanSegment &s = plan.segments[static_cast<size_t>(first[t].segmentBegin)],
                        &r = plan.segments[static_cast<size_t>(mine[t].segmentBegin)];
      if (mine[t].ordinal != block % heads || s.instance != r.instance || s.kvBegin != r.kvBegin ||
          s.kvEnd != r.kvEnd)
        return false;
    }
  }
  return true;
}

Batch treeBatch(Rng &rng, int32_t rootTokens) {
  Batch batch;
  OperandBatch nodes, leaves;
  batch.qStart = {0};
  const auto inner = static_cast<int32_t>(100 + below(rng, 400));
  const int32_t sequences = 6;
  for (int32_t s = 0; s < sequences; ++s) {
    const auto length = static_cast<int32_t>(below(rng, 200));
    const int32_t rows = 1 + static_cast<int32_t>(below(rng, 2));
    for (int32_t r = 0; r < rows; ++r)
      batch.qPos.push_back(rootTokens + inner + length - rows + r);
    leaves.lengths.push_back(length);
    leaves.pos0.push_back(rootTokens + inner);
    leaves.rowFirst.push_back(batch.qStart.back());
    batch.qStart.push_back(batch.qStart.back() + rows);
    leaves.rowLast.push_back(batch.qStart.back());
  }
  batch.rows = batch.qStart.back();
  nodes.lengths = {rootTokens, inner, inner};
  nodes.pos0 = {0, rootTokens, rootTokens};
  nodes.rowFirst = {0, 0, batch.qStart[4]};
  nodes.rowLast = {static_cast<int32_t>(batch.rows), batch.qStart[4], static_cast<int32_t>(batch.rows)};
  nodes.tokens = leaves.tokens = 10000;
  batch.operands = {nodes, leaves};
  return batch;
}

Manifest tokenManifest(AddsToRows adds, Visibility::Kind sees) {
  Manifest m = sampleManifest({.store = Argument::Store::Packed, .visibility = visibility(sees), .ends = {}});
  KernelInfo rows = m.kernels[1], tokens = m.kernels[1], sums = m.kernels[1];
  rows.role = tokens.role = sums.role = KernelInfo::Role::Gradient;
  tokens.name = "decode_tokens", sums.name = "decode_sum";
  tokens.rows = tokenTile, tokens.keys = 64, tokens.blocksPerSM = 1;
  sums.rows = tokenSumTokens, sums.keys = 1;
  if (adds == AddsToRows::InOrder)
    tokens.params.push_back({.name = std::string(planArrayName(PlanArray::Semaphores))});
  m.kernels.clear();
  m.launches.clear();
  m.addKernel(rows, {.grid = PlanArray::Starts});
  m.addKernel(tokens, {.grid = PlanArray::TokenTasks, .onlyIfFilled = true});
  m.addKernel(sums, {.grid = PlanArray::TokenSums, .onlyIfFilled = true});
  m.results = {{"dq", m.dtype, {{"rows", 0}, {"", m.qHeads}, {"", m.keyDim}}}};
  if (adds != AddsToRows::No)
    m.results.push_back({"dq.sums", DType::F32, m.results.front().dims});
  return m;
}

Nodes randomNodes(Rng &rng, bool large) {
  Nodes nodes;
  for (size_t i = 0, count = 1 + below(rng, large ? 40 : 6); i < count; ++i)
    nodes.emplace_back(-1, static_cast<int32_t>(below(rng, large ? 900 : 3000)));
  // Depth-first order: a node's parent is the node before, or a node above that.
  for (size_t i = 1; i < nodes.size(); ++i) {
    int above = static_cast<int>(i) - 1;
    for (size_t up = below(rng, 4); up > 0 && above >= 0; --up)
      above = nodes[static_cast<size_t>(above)].first;
    nodes[i].first = above;
  }
  return nodes;
}

Batch forestBatch(const Nodes &nodes) {
  std::vector<int32_t> lengths;
  for (const auto &[parent, tokens] : nodes)
    lengths.push_back(tokens);
  Batch batch = simpleBatch(lengths, lengths);
  OperandBatch &operand = batch.operands[0];
  operand.start.assign(1, 0);
  for (int32_t length : lengths)
    operand.start.push_back(operand.start.back() + length);
  operand.tokens = operand.start.back();
  for (size_t i = 0; i < nodes.size(); ++i) {
    const int parent = nodes[i].first;
    const auto above = static_cast<size_t>(std::max(parent, 0));
    operand.pos0[i] = parent < 0 ? 0 : operand.pos0[above] + nodes[above].second;
    for (int32_t row = operand.start[i]; row < operand.start[i + 1]; ++row)
      batch.qPos[static_cast<size_t>(row)] = operand.pos0[i] + row - operand.start[i];
    for (int up = parent; up >= 0; up = nodes[static_cast<size_t>(up)].first)
      operand.rowLast[static_cast<size_t>(up)] = operand.start[i + 1];
  }
  return batch;
}

} // namespace attn::rt::test
