//===- DrawPlan.cpp - A plan as a picture ----------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The upper half is the problem: a box for each instance, as wide as the rows
// that see it and as high as it has tokens. A forest hangs there as it is:
// prompts on top and wide, drafts below and narrow. Each level of each operand
// has a panel with a scale of its own, so that a few tokens are seen beside
// thousands. The lower half is the plan.
//
//===----------------------------------------------------------------------===//
#include "attn_rt/picture/Picture.h"
#include "picture/Svg.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace attn::rt {

namespace {

constexpr double panelsHeight = 240, tallest = 180, lowest = 60, betweenPanels = 30; ///< of the upper half
constexpr double thinnest = 2;
constexpr size_t mostBoxes = 20000; ///< of instances

class Drawing {
public:
  Drawing(const Manifest &manifest, const Batch &batch, const Plan &plan)
      : manifest_(manifest), batch_(batch), plan_(plan),
        keys_(manifest.kernels[static_cast<size_t>(plan.kernel)].keys) {
    for (const OperandBatch &operand : batch.operands)
      firstNode_.push_back(firstNode_.back() + static_cast<int32_t>(operand.instances()));
    for (size_t o = 0; o < batch.operands.size(); ++o)
      hang(o);
  }

  std::string text(const GpuModel &gpu) {
    int64_t longest = 1;
    for (int block = 0; block < plan_.blocks; ++block)
      longest = std::max(longest, loadOf(block));
    SharesPicture picture(plan_.blocks, longest, [this](const SharesPicture::Run &run) { return tell(run); });
    for (int block = 0; block < plan_.blocks; ++block)
      forEachTask(block, [&](int32_t task) { addTask(picture, block, task); });

    SharesPicture::Words words;
    std::vector<std::string> &lines = words.lines;
    lines = {manifest_.entry + " for " + manifest_.target};
    const std::string explained = explainPlan(manifest_, batch_, plan_, gpu);
    for (size_t begin = 0, end; (end = explained.find('\n', begin)) != std::string::npos; begin = end + 1)
      lines.push_back(explained.substr(begin, end - begin));
    if (!plan_.mergeRows.empty())
      lines.push_back(mergeText());
    words.axis = "cost of what a block does, in tiles of " + std::to_string(keys_) + " keys";
    words.unit = std::max(static_cast<double>(plan_.stats.tileCost), 1.0);
    words.series = series_;
    words.start = "a task starts";
    for (size_t c = 1; c < manifest_.headClasses.size(); ++c)
      words.faint += (c == 1 ? "heads of class " : ", ") + manifest_.headClasses[c].name;
    words.partials = plan_.partialRows > 0;
    words.caption =
        "above: the instances that rows see; below: which block reads them; numbers in boxes: instances";
    return picture.text(words, regions(), regionsHeight());
  }

private:
  const Manifest &manifest_;
  const Batch &batch_;
  const Plan &plan_;
  int keys_;
  std::vector<int32_t> firstNode_ = {0}; ///< of each operand: its instances are numbered behind one another
  std::vector<int32_t> seriesOf_;        ///< of each node, an index of series_
  std::vector<std::string> series_;      ///< what colours stand for
  std::vector<size_t> operandOf_;        ///< of each series

  template <typename Visit> void forEachTask(int block, Visit visit) {
    const auto b = static_cast<size_t>(block);
    for (int32_t task = plan_.blockTasks[b]; task < plan_.blockTasks[b + 1]; ++task)
      visit(task);
  }

  int64_t tilesOf(const PlanSegment &segment) const {
    return (segment.kvEnd - segment.kvBegin + keys_ - 1) / keys_;
  }
  int64_t costOf(const PlanSegment &segment) const {
    return static_cast<int64_t>(plan_.stats.tileCost) * tilesOf(segment);
  }

  int64_t loadOf(int block) {
    int64_t load = 0;
    forEachTask(block, [&](int32_t task) {
      const PlanTask &of = plan_.tasks[static_cast<size_t>(task)];
      load += static_cast<int64_t>(plan_.stats.fixedCost);
      for (int32_t s = of.segmentBegin; s < of.segmentEnd; ++s)
        load += costOf(plan_.segments[static_cast<size_t>(s)]);
    });
    return load;
  }

  void addTask(SharesPicture &picture, int block, int32_t task) const {
    const PlanTask &of = plan_.tasks[static_cast<size_t>(task)];
    SharesPicture::Run run;
    run.block = block;
    run.length = static_cast<int64_t>(plan_.stats.fixedCost);
    run.faint = of.headClass > 0;
    run.partial = of.partial >= 0 && (of.flags & taskFolds) == 0;
    run.detail = task;
    picture.add(run);
    for (int32_t s = of.segmentBegin; s < of.segmentEnd; ++s) {
      const PlanSegment &segment = plan_.segments[static_cast<size_t>(s)];
      run.mark = segment.instance < 0 ? segment.pos0 : segment.instance;
      run.node = firstNode_[static_cast<size_t>(segment.operand)] + run.mark;
      run.series = seriesOf_[static_cast<size_t>(run.node)];
      run.length = costOf(segment);
      picture.add(run);
    }
  }

  std::string instanceText(int32_t node) const {
    size_t o = 0;
    while (firstNode_[o + 1] <= node)
      ++o;
    const int32_t instance = node - firstNode_[o];
    const OperandBatch &operand = batch_.operands[o];
    const auto i = static_cast<size_t>(instance);
    return manifest_.operands[o].argument + "[" + std::to_string(instance) + "], " +
           (operand.heads > 1 ? "up to " : "") + std::to_string(operand.longest(i)) +
           " tokens from position " + std::to_string(operand.pos0[i]) + ", seen by rows [" +
           std::to_string(operand.rowFirst[i]) + ", " + std::to_string(operand.rowLast[i]) + ")";
  }

  std::string tell(const SharesPicture::Run &run) const {
    const PlanTask &task = plan_.tasks[static_cast<size_t>(run.detail)];
    std::string text = "block " + std::to_string(run.block) + ", task " + std::to_string(run.detail) + ": " +
                       std::to_string(task.packedCount) + " packed rows of ordinal " +
                       std::to_string(task.ordinal);
    if (!manifest_.headClasses.empty())
      text += ", " + manifest_.headClasses[static_cast<size_t>(task.headClass)].name;
    return run.node < 0 ? text + ", starts" : text + "; " + instanceText(run.node);
  }

  bool isSeen(const OperandBatch &operand, size_t i) const {
    return operand.rowFirst[i] < operand.rowLast[i] && operand.longest(i) > 0;
  }

  /// Instances of an operand by the rows that see them, those above before those below.
  std::vector<size_t> seenInOrder(const OperandBatch &operand) const {
    std::vector<size_t> order;
    for (size_t i = 0; i < operand.instances(); ++i)
      if (isSeen(operand, i))
        order.push_back(i);
    std::ranges::sort(order, {}, [&](size_t i) {
      return std::tuple(operand.rowFirst[i], -operand.rowLast[i], operand.pos0[i]);
    });
    return order;
  }

  /// Finds how deep each instance of an operand hangs below others of the operand, and which series that is:
  /// the levels of all operands share the colours.
  void hang(size_t o) {
    const OperandBatch &operand = batch_.operands[o];
    std::vector<int32_t> depths(operand.instances(), 0);
    std::vector<size_t> above;
    int32_t deepest = 0;
    for (const size_t i : seenInOrder(operand)) {
      while (!above.empty() && operand.rowLast[above.back()] <= operand.rowFirst[i])
        above.pop_back();
      depths[i] = static_cast<int32_t>(above.size());
      deepest = std::max(deepest, depths[i]);
      above.push_back(i);
    }
    const auto operands = static_cast<int32_t>(batch_.operands.size());
    const int32_t most = std::max(1, SharesPicture::mostSeries / operands),
                  levels = std::min(deepest + 1, most);
    const auto before = static_cast<int32_t>(series_.size());
    for (int32_t level = 0; level < levels; ++level) {
      series_.push_back(manifest_.operands[o].argument +
                        (levels == 1 ? "" : ", depth " + std::to_string(level)) +
                        (levels > 1 && level + 1 == levels && deepest >= levels ? " and below" : ""));
      operandOf_.push_back(o);
    }
    for (size_t i = 0; i < operand.instances(); ++i)
      seriesOf_.push_back(before + std::min(depths[i], levels - 1));
  }

  /// The panel of a series: its instances, and where in the panel their first tokens are.
  struct Panel {
    std::vector<std::pair<size_t, int32_t>> begins;
    int32_t longest = 1;    ///< tokens
    bool byPosition = true; ///< whether it begins at position 0 for all rows
  };
  Panel panelOf(size_t series) const {
    const size_t o = operandOf_[series];
    const OperandBatch &operand = batch_.operands[o];
    Panel panel;
    std::vector<size_t> tree; ///< instances whose rows see nothing of the series but these
    int32_t end = 0;
    const auto finish = [&] {
      int32_t base = std::numeric_limits<int32_t>::max();
      for (const size_t i : tree)
        base = std::min(base, operand.pos0[i]);
      for (const size_t i : tree) {
        panel.byPosition &= base == 0;
        panel.begins.emplace_back(i, operand.pos0[i] - base);
        panel.longest = std::max(panel.longest, operand.pos0[i] - base + operand.longest(i));
      }
      tree.clear();
    };
    for (const size_t i : seenInOrder(operand)) {
      if (seriesOf_[static_cast<size_t>(firstNode_[o]) + i] != static_cast<int32_t>(series))
        continue;
      if (operand.rowFirst[i] >= end)
        finish();
      tree.push_back(i);
      end = std::max(end, operand.rowLast[i]);
    }
    finish();
    std::ranges::sort(panel.begins);
    return panel;
  }

  double panelHeight() const {
    return std::clamp(panelsHeight / static_cast<double>(series_.size()), lowest, tallest);
  }
  double regionsHeight() const {
    const auto panels = static_cast<double>(series_.size());
    return panels * panelHeight() + (panels - 1) * betweenPanels;
  }

  std::string regions() const {
    const double perRow = SharesPicture::panelWidth / static_cast<double>(std::max<int64_t>(batch_.rows, 1));
    const double height = panelHeight();
    std::string out;
    size_t boxes = 0;
    for (size_t series = 0; series < series_.size(); ++series) {
      const size_t o = operandOf_[series];
      const OperandBatch &operand = batch_.operands[o];
      const Panel panel = panelOf(series);
      const double top = static_cast<double>(series) * (height + betweenPanels),
                   perToken = height / panel.longest;
      for (const auto &[i, begin] : panel.begins)
        if (boxes++ < mostBoxes)
          out += svg::box(operand.rowFirst[i] * perRow, top + begin * perToken,
                          (operand.rowLast[i] - operand.rowFirst[i]) * perRow,
                          std::max(operand.longest(i) * perToken, thinnest), {static_cast<int>(series)},
                          false, instanceText(firstNode_[o] + static_cast<int32_t>(i)), std::to_string(i));
      const size_t count = panel.begins.size();
      out += svg::text(8, top - 8,
                       series_[series] + ": " + std::to_string(count) +
                           (count == 1 ? " instance" : " instances") +
                           (panel.byPosition ? "" : ", tokens counted from the first"),
                       {10}) +
             svg::axis(0, top, height, panel.longest, panel.byPosition ? "position" : "token", true);
    }
    return out + svg::axis(0, regionsHeight(), SharesPicture::panelWidth, static_cast<double>(batch_.rows),
                           "query rows", false);
  }

  std::string mergeText() const {
    std::map<int32_t, int64_t> rowsOfParts;
    for (size_t i = 0; i < plan_.mergeRows.size(); ++i)
      ++rowsOfParts[plan_.mergeStart[i + 1] - plan_.mergeStart[i]];
    std::string text = "merge     of";
    for (const auto &[parts, rows] : rowsOfParts)
      text += (text.ends_with("of") ? " " : ", ") + std::to_string(parts) + " parts " + std::to_string(rows) +
              " rows x heads";
    return text;
  }
};

} // namespace

std::string drawPlan(const Manifest &manifest, const Batch &batch, const Plan &plan, const GpuModel &gpu) {
  return Drawing(manifest, batch, plan).text(gpu);
}

} // namespace attn::rt
