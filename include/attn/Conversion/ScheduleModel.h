//===- ScheduleModel.h - What schedules need, and what chips have -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The one place that knows what a schedule takes of a chip: shared memory, by
// placing what the kernel will allocate; registers, by the fragments that are
// live at once; and which ways of copying, computing and writing the operands
// allow. `attn-choose-schedule` chooses by it and completes by it what a user
// gave; `tile-allocate-shared` checks its shared memory.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_CONVERSION_SCHEDULEMODEL_H
#define ATTN_CONVERSION_SCHEDULEMODEL_H

#include "attn/Conversion/Chain.h"
#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Support/Chip.h"

namespace mlir::attn {

/// What of a problem decides how much a schedule needs.
struct ScheduleShape {
  int64_t keyDim = 0, valueDim = 0; ///< as tiles hold them
  int64_t group = 1;                ///< query heads of a KV head
  int64_t masks = 0;                ///< a mask for each region, and each class of heads in it
  Type element;                     ///< of queries and outputs
  bool rawScores = true;            ///< scores go to the softmax as they are
  bool plain = true;                ///< and no visibility has a size
  int64_t tableReads = 0;           ///< of tables whose gradients a kernel of rows adds up
  int64_t groups = 1;               ///< the most groups of features with metadata of their own
  SmallVector<KVType> regions;

  /// The shape of a function's attention; none where it has none at the online level.
  static std::optional<ScheduleShape> of(func::FuncOp function);
  /// Elements of keys or values that tensor cores do not multiply as they are stored, and null.
  Type converted() const;
};

class ScheduleModel {
public:
  ScheduleModel(const ScheduleShape &shape, const Chip &chip) : shape(shape), chip(chip) {}

  /// The schedule with all that it leaves open chosen, and its shared memory.
  tile::ScheduleAttr complete(tile::ScheduleAttr schedule) const;
  /// Whether a complete schedule can be written and launched; says what is in its way.
  LogicalResult verify(tile::ScheduleAttr schedule, function_ref<InFlightDiagnostic()> emitError) const;
  /// The schedule of the merge kernel.
  tile::MergeScheduleAttr merge(MLIRContext *context) const;

  // Shared memory.
  int64_t sharedBytes(tile::ScheduleAttr schedule) const;
  bool fitsBlock(tile::ScheduleAttr schedule) const;
  /// Whether `blocks` of them fit a multiprocessor.
  bool fitsMultiprocessor(tile::ScheduleAttr schedule) const;

  // Registers.
  /// Those of the fragments that are live at once in a thread that computes: scores, weights, the
  /// accumulator, and the queries where they stay.
  int64_t fragmentRegisters(tile::ScheduleAttr schedule) const;
  /// Whether query fragments can stay in registers.
  bool keepsQueries() const;
  /// Whether regions hold codes of different formats.
  bool mixesCodes() const;
  /// Whether mmas can take queries from the right, in tiles of few rows that a group of heads fits: keys and
  /// values are codes then, in runs.
  bool takesFewRows() const;
  /// Whether keys of e4m3 become f16 by arithmetic, beside queries that are not kept.
  bool convertsByArithmetic() const;
  /// As many registers as fragments may take in kernels of prefill, so that ptxas spills nothing.
  int64_t fragmentRoom(tile::ScheduleAttr schedule) const;

  // Copies of keys and values in tiles of so many tokens.
  /// Whether they can come in boxes.
  bool mayLoadByTma(int64_t keys) const;
  /// Whether pages that would make copies of 32 lines and more are fetched in less.
  bool tearsPages(int64_t keys) const;
  /// Whether boxes are whole tiles, or whole pages in panels of one width: what a producer can address in the
  /// few registers that three consumers leave it.
  bool loadsSimplyByTma(int64_t keys) const;
  /// Whether the tiles of a ring begin where swizzles do.
  bool alignsTiles(int64_t keys) const;

private:
  tile::SharedType queryTile(int64_t lines) const;
  // Of keys and values that tensor cores multiply as they are.
  tile::SharedType keyTile(int64_t lines) const;
  tile::SharedType valueTile(int64_t lines) const;
  tile::ScheduleAttr completeRoles(tile::ScheduleAttr schedule, int64_t queryStages) const;
  bool mayStoreByTma(tile::ScheduleAttr schedule) const;
  bool pingPongs(tile::ScheduleAttr schedule) const;
  int64_t valueBoxesOf(ArrayRef<int64_t> copies, int64_t keys) const;
  using EmitError = function_ref<InFlightDiagnostic()>;
  LogicalResult verifyTokenCopies(tile::ScheduleAttr schedule, EmitError emitError) const;
  LogicalResult verifyQueryCopies(tile::ScheduleAttr schedule, EmitError emitError) const;
  LogicalResult verifyRoles(tile::ScheduleAttr schedule, EmitError emitError) const;
  LogicalResult verifyFragments(tile::ScheduleAttr schedule, EmitError emitError) const;

  const ScheduleShape &shape;
  const Chip &chip;
};

} // namespace mlir::attn

#endif
