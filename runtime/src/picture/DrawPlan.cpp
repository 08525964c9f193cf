//===- DrawPlan.cpp - A plan as a picture ----------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The upper half is the problem: a box for each instance, as wide as the rows
// that see it, at the positions of its tokens. A forest looks like itself there:
// prompts on top and wide, drafts below and narrow. The lower half is the plan.
//
//===----------------------------------------------------------------------===//
#include "attn_rt/picture/Picture.h"
#include "picture/Svg.h"

#include <algorithm>

namespace attn::rt {

namespace {

constexpr double regionsHeight = 180, thinnest = 0.6;
constexpr size_t mostBoxes = 20000; ///< of instances

class Drawing {
public:
  Drawing(const Manifest &manifest, const Batch &batch, const Plan &plan)
      : manifest_(manifest), batch_(batch), plan_(plan),
        keys_(manifest.kernels[static_cast<size_t>(plan.kernel)].keys) {
    for (const OperandBatch &operand : batch.operands)
      firstNode_.push_back(firstNode_.back() + static_cast<int32_t>(operand.instances()));
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
    words.legend = legend();
    words.partials = plan_.partialRows > 0;
    words.caption = "above: the instances that rows see; below: which block reads them";
    return picture.text(words, regions(), regionsHeight);
  }

private:
  const Manifest &manifest_;
  const Batch &batch_;
  const Plan &plan_;
  int keys_;
  std::vector<int32_t> firstNode_ = {0}; ///< of each operand, in the numbers that become colours

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
    SharesPicture::Run run{
        block, 0, static_cast<int64_t>(plan_.stats.fixedCost), -1, of.headClass, of.partial >= 0, task};
    picture.add(run);
    for (int32_t s = of.segmentBegin; s < of.segmentEnd; ++s) {
      const PlanSegment &segment = plan_.segments[static_cast<size_t>(s)];
      run.node = firstNode_[static_cast<size_t>(segment.operand)] +
                 (segment.instance < 0 ? segment.pos0 : segment.instance);
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

  /// Names the first few instances of each operand, and the colours that stand for no instance.
  std::vector<std::pair<std::string, std::string>> legend() const {
    constexpr int32_t most = 6;
    std::vector<std::pair<std::string, std::string>> entries;
    for (size_t o = 0; o < batch_.operands.size(); ++o) {
      const auto count = static_cast<int32_t>(batch_.operands[o].instances());
      for (int32_t i = 0; i < std::min(count, most); ++i)
        entries.emplace_back(SharesPicture::colour(firstNode_[o] + i, 0),
                             manifest_.operands[o].argument + "[" + std::to_string(i) + "]" +
                                 (i + 1 == most && count > most
                                      ? ", ... to [" + std::to_string(count - 1) + "], each in its colour"
                                      : ""));
    }
    for (size_t c = 1; c < manifest_.headClasses.size(); ++c)
      entries.emplace_back(SharesPicture::colour(0, static_cast<int32_t>(c)),
                           "paler: heads of class " + manifest_.headClasses[c].name);
    entries.emplace_back(SharesPicture::colour(-1, 0), "a task starts");
    return entries;
  }

  std::string regions() const {
    double last = 1;
    for (const OperandBatch &operand : batch_.operands)
      for (size_t i = 0; i < operand.instances(); ++i)
        if (operand.rowFirst[i] < operand.rowLast[i])
          last = std::max(last, static_cast<double>(operand.pos0[i]) + operand.longest(i));
    const double perRow = SharesPicture::panelWidth / static_cast<double>(std::max<int64_t>(batch_.rows, 1));
    const double perToken = regionsHeight / last;
    std::string out;
    size_t boxes = 0;
    for (size_t o = 0; o < batch_.operands.size(); ++o) {
      const OperandBatch &operand = batch_.operands[o];
      for (size_t i = 0; i < operand.instances() && boxes < mostBoxes; ++i) {
        const int32_t tokens = operand.longest(i);
        if (operand.rowFirst[i] == operand.rowLast[i] || tokens == 0)
          continue;
        const int32_t node = firstNode_[o] + static_cast<int32_t>(i);
        out += svg::box(operand.rowFirst[i] * perRow, operand.pos0[i] * perToken,
                        (operand.rowLast[i] - operand.rowFirst[i]) * perRow,
                        std::max(tokens * perToken, thinnest), SharesPicture::colour(node, 0), "#fff",
                        instanceText(node));
        ++boxes;
      }
    }
    return out +
           svg::axis(0, regionsHeight, SharesPicture::panelWidth, static_cast<double>(batch_.rows),
                     "query rows", false) +
           svg::axis(0, 0, regionsHeight, last, "position", true);
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
