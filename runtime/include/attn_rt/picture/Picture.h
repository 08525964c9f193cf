//===- Picture.h - Who does what, as SVG ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A line for each block, and along it the block's work, in order of time:
//
//     0  [prompt . . . . . . . . . .][A ]
//     1  [prompt . . . . . .][thought . ]
//     2  [draft][draft][thought . . .][B]
//
// so that an uneven right edge is bad balance, and many boxes on a line many
// starts. Colours are series, a few kinds of nodes; numbers in boxes are nodes.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_PICTURE_PICTURE_H
#define ATTN_RT_PICTURE_PICTURE_H

#include "attn_rt/plan/Plan.h"

#include <functional>
#include <map>

namespace attn::rt {

class SharesPicture {
public:
  /// The work of one block on one node, in any unit of length.
  struct Run {
    int32_t block = 0;
    int64_t begin = 0, length = 0;
    int32_t node = -1;    ///< -1: no node's, grey
    int32_t series = -1;  ///< what the node's colour stands for, below mostSeries
    int32_t mark = -1;    ///< a number to write into the box
    bool faint = false;   ///< as of heads of another class
    bool partial = false; ///< framed
    int32_t detail = 0;   ///< for `describe`
  };
  /// `describe` returns the tooltip of a run.
  SharesPicture(int blocks, int64_t longest, std::function<std::string(const Run &)> describe);

  /// Continues the line of run.block and sets `begin`. Runs too narrow to see are joined.
  void add(Run run);
  /// Whether a run of this length is too narrow to see.
  bool tooNarrow(int64_t length) const;
  /// Whether the block has a line: of very many blocks only the first have one.
  bool isDrawn(int block) const { return block < drawn_; }

  /// The texts of a picture.
  struct Words {
    std::vector<std::string> lines; ///< above it
    std::string axis;               ///< the quantity of the axis, in units of `unit`
    double unit = 1;
    std::vector<std::string> series; ///< what colours are, by number
    std::string start;               ///< what grey is
    std::string faint;               ///< what faint colours are; empty where there are none
    bool partials = false;           ///< whether frames are in the legend
    std::string caption;             ///< below it
  };
  /// Returns the whole picture, below `panel`: an SVG of this height and panelWidth, with room for its own
  /// axis beneath and beside it.
  std::string text(const Words &words, const std::string &panel = "", double panelHeight = 0);
  static constexpr double panelWidth = 908;
  /// Colours that are told apart, beside the one of what is no node's.
  static constexpr int mostSeries = 5;

private:
  int blocks_, drawn_;
  double row_, perUnit_;
  std::function<std::string(const Run &)> describe_;
  std::vector<int64_t> loads_;
  std::vector<Run> open_;
  std::string body_;
  void flush(const Run &run);
};

/// Draws a plan: which rows see which instances, at which positions; below that the work of every block,
/// along the planner's cost; and the number of parts of the rows to merge.
std::string drawPlan(const Manifest &manifest, const Batch &batch, const Plan &plan,
                     const GpuModel &gpu = defaultGpu());

} // namespace attn::rt

#endif
