//===- Picture.h - Who does what, as SVG ------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A line for each block, and along it what the block does, in the order in which
// it does that:
//
//     0  [prompt . . . . . . . . . .][A ]
//     1  [prompt . . . . . .][thought . ]
//     2  [draft][draft][thought . . .][B]
//
// so that an uneven right edge is bad balance, and many colours on a line many
// starts. Colours are nodes.
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
  /// What one block does of one node, in whatever unit lengths are given.
  struct Run {
    int32_t block = 0;
    int64_t begin = 0, length = 0;
    int32_t node = -1;     ///< -1: no node's, grey
    int32_t headClass = 0; ///< the higher the paler
    bool partial = false;  ///< outlined
    int32_t detail = 0;    ///< for `describe`
  };
  /// `describe` says what is shown of a run that is pointed at.
  SharesPicture(int blocks, int64_t longest, std::function<std::string(const Run &)> describe);

  /// Continues the line of run.block; `begin` is set here. Runs too narrow to see become one.
  void add(Run run);
  /// Of a run as long as this.
  bool tooNarrow(int64_t length) const;
  /// Whether the block has a line: of very many only the first have.
  bool isDrawn(int block) const { return block < drawn_; }

  /// What a picture says about itself.
  struct Words {
    std::vector<std::string> lines; ///< above it
    std::string axis;               ///< what lengths are, in units of `unit`
    double unit = 1;
    std::vector<std::pair<std::string, std::string>> legend; ///< colours, and what they are
    bool partials = false;                                   ///< whether outlines are in the legend
    std::string caption;                                     ///< below it
  };
  /// The whole picture, below `panel`, SVG of this height and panelWidth with an axis of its own beneath and
  /// beside it.
  std::string text(const Words &words, const std::string &panel = "", double panelHeight = 0);
  static constexpr double panelWidth = 908;
  /// Neighbouring nodes get distant hues. As #rrggbb: viewers without CSS know no other form.
  static std::string colour(int32_t node, int32_t headClass);

private:
  int blocks_, drawn_;
  double row_, perUnit_;
  std::function<std::string(const Run &)> describe_;
  std::vector<int64_t> loads_;
  std::vector<Run> open_;
  std::string body_;
  void flush(const Run &run);
};

/// A plan: which rows see which instances, at which positions; below that what every block does, along the
/// planner's cost; and how many parts the rows to merge have.
std::string drawPlan(const Manifest &manifest, const Batch &batch, const Plan &plan,
                     const GpuModel &gpu = defaultGpu());

} // namespace attn::rt

#endif
