//===- PageKernel.h - A kernel over a table of pages ------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// Every block has a share of the lists, a list to a thread at a time. Three launches:
//
//   count     each block adds up what its lists give back and ask for     -> sums
//   release   all sums together say whether all can be done and, those of
//             the blocks in front, where in the ring a block's pages go
//   take      the same, and where in the ring a block's pages come from
//
// No block waits for another, and nothing is added up in an order that depends on one:
// the launches order them. What a launch reads of the ring's span was copied by the
// first, and the last alone writes it; so all blocks of a launch see the same.
//
// Most lists change by a page or none in a step, and few by hundreds. So a warp takes
// what its 32 lists change together, a page to a lane: the list of each is searched for
// in the prefix sums that its lanes hold.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_ATTNTOTILE_PAGES_PAGEKERNEL_H
#define ATTN_CONVERSION_ATTNTOTILE_PAGES_PAGEKERNEL_H

#include "ListKernel.h"

namespace mlir::attn {

class PageKernel : ListKernel {
public:
  using ListKernel::Role;
  /// What a block writes of its lists: pages given back, pages asked for, lists that no row holds. Behind
  /// those of all blocks stands a copy of the span.
  static constexpr int64_t sumWords = 4;

  PageKernel(ManagePagesOp manage, func::FuncOp kernel, Role role);
  void run();

private:
  /// What a list holds and is to hold; of one that no row holds both are the same.
  struct List {
    Value exists, fits;
    Value left, right;       ///< pages that it has
    Value newLeft, newRight; ///< pages that its tokens take
  };
  /// Pages of a list that change hands in a launch, in columns of its row.
  struct Change {
    Value count, lefts;     ///< all of them, and those at the left
    Value leftFirst, shift; ///< the first column; added to the number of one at the right gives its column
  };
  void declareParameters();
  /// All threads of the block go through [begin, end) together, each with an i of its own, which may be
  /// beyond the end.
  SmallVector<Value> walkTogether(Value begin, Value end, ValueRange carried, Body body);
  tile::ScanOp scan(ValueRange values);
  void writeWords(StringRef buffer, Value index, ValueRange words);

  List listAt(Value i);
  Change changeOf(const List &list);
  void countPages();
  /// What all blocks counted: whether all can be done, and what the blocks in front of this one have.
  void readSums();
  void exchangePages();
  /// The pages that a warp's lists change, `before` of which stand in front of each lane's in the block.
  void exchangeOfWarp(Value firstList, const Change &change, Value before, Value done);
  void publish();

  Value pagesOf(Value tokens, int64_t ofPage);
  /// An index of the ring, of one that is less than two rounds.
  Value wrap(Value index) { return b.select(b.less(index, pages), index, b.sub(index, pages)); }

  ManagePagesOp manage;
  Role role;
  Value pages;
  Value thread, block, blocks;
  Value begin, end; ///< lists of this block
  tile::AllocOp exchange;
  Value isDone;                      ///< whether all can be done
  Value given, asked, there, unheld; ///< of all lists
  Value inFront;                     ///< pages that lists of the blocks in front exchange
  Value firstFree;                   ///< in the ring, before anything is done
  Value oldFree;                     ///< how many were free then
};

} // namespace mlir::attn

#endif
