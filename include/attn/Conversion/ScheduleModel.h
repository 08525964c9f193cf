//===- ScheduleModel.h - What schedules need, and what chips have -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The one place that knows what a schedule needs of a chip: shared memory, by
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

/// The properties of a problem that decide how much a schedule needs.
struct ScheduleShape {
  int64_t keyDim = 0, valueDim = 0; ///< padded as in tiles
  int64_t group = 1;                ///< query heads of a KV head
  int64_t masks = 0;                ///< a mask for each region, and for each class of heads in it
  Type element;                     ///< element type of queries
  bool quantizedOutput = false;     ///< whether outputs are f8E4M3FN instead of `element`
  bool gatesFeatures = false;       ///< whether each feature of an output has a gate
  bool rawScores = true;            ///< whether scores go to the softmax unchanged
  bool byRow = false;               ///< whether results follow a numerics contract
  bool plain = true;                ///< `rawScores`, and no visibility has a size
  int64_t sizes = 0;                ///< the most sizes that a visibility has
  int64_t tableReads = 0;           ///< reads of tables whose gradients a kernel with stationary rows adds up
  int64_t groups = 1;               ///< the largest number of feature groups with metadata of their own
  SmallVector<KVType> regions;

  /// The shape of a function's attention; nullopt if the function has none at the online level.
  static std::optional<ScheduleShape> of(func::FuncOp function);
  /// The warps, or warpgroups, that share rows. The accumulator of a warp has at most 256 features.
  int64_t valueSlices() const { return llvm::divideCeil(valueDim, 256); }
  /// Whether the values of all regions, or of some, are a part of their keys.
  bool areLatent() const;
  bool mixesLatent() const;
  /// The first type of keys or values that tensor cores do not multiply as stored; null if there is none.
  Type converted() const;
  /// Whether producers can widen quantized keys and values for wgmma.
  bool mayWiden() const;
  /// Whether they can widen latents, to the type of the queries.
  bool mayWidenLatents() const;
};

class ScheduleModel {
public:
  ScheduleModel(const ScheduleShape &shape, const Chip &chip) : shape(shape), chip(chip) {}

  /// Completes the schedule: chooses all that it leaves open, and computes its shared memory.
  tile::ScheduleAttr complete(tile::ScheduleAttr schedule) const;
  /// Checks that a complete schedule can be written and launched; reports what prevents it.
  LogicalResult verify(tile::ScheduleAttr schedule, function_ref<InFlightDiagnostic()> emitError) const;
  /// The schedule of the merge kernel, for this value dim.
  tile::MergeScheduleAttr merge(MLIRContext *context) const;

  // Shared memory.
  int64_t sharedBytes(tile::ScheduleAttr schedule) const;
  bool fitsBlock(tile::ScheduleAttr schedule) const;
  /// Whether the schedule's number of blocks fits a multiprocessor at once.
  bool fitsMultiprocessor(tile::ScheduleAttr schedule) const;

  // Registers.
  /// The registers of the fragments that are live at once in a thread that computes: scores, weights, the
  /// accumulator, and the queries if they stay in registers.
  int64_t fragmentRegisters(tile::ScheduleAttr schedule) const;
  /// Whether query fragments can stay in registers.
  bool keepsQueries() const;
  /// Whether regions hold quantized values of different formats.
  bool mixesCodes() const;
  /// Whether an MMA can take queries as its right operand, in tiles of few rows that a group of heads fits.
  /// Keys and values are then quantized, in runs.
  bool takesFewRows() const;
  /// Whether keys of e4m3 become f16 by arithmetic, and queries do not stay in registers.
  bool convertsByArithmetic() const;
  /// The most registers that fragments may take in a prefill kernel so that ptxas spills nothing.
  int64_t fragmentRoom(tile::ScheduleAttr schedule) const;

  // Copies of keys and values in tiles of `keys` tokens.
  /// Whether all regions can be loaded in TMA boxes.
  bool mayLoadByTma(int64_t keys) const;
  /// Whether pages come in several boxes each, and these have fewer than 32 lines.
  bool tearsPages(int64_t keys) const;
  /// Whether boxes are whole tiles, or whole pages in panels of one width. A producer can address these in
  /// the few registers that three consumers leave it.
  bool loadsSimplyByTma(int64_t keys) const;
  /// Whether the tiles of a ring begin where the swizzle pattern repeats.
  bool alignsTiles(int64_t keys) const;
  /// Whether two warpgroups may share the weights of their rows, with `half` keys in each half of a tile.
  bool mayShareWeights(int64_t half) const;
  /// Whether two warps may, over quantized latents.
  bool mayShareWeightsOfWarps() const;

private:
  tile::SharedType queryTile(int64_t lines) const;
  // Tiles of keys and values that tensor cores multiply as stored, or widened.
  tile::SharedType keyTile(int64_t lines) const;
  tile::SharedType valueTile(int64_t lines) const;
  tile::ScheduleAttr completeRoles(tile::ScheduleAttr schedule, int64_t queryStages) const;
  bool mayStoreByTma(tile::ScheduleAttr schedule) const;
  bool pingPongs(tile::ScheduleAttr schedule) const;
  int64_t valueBoxesOf(ArrayRef<int64_t> copies, int64_t keys) const;
  using EmitError = function_ref<InFlightDiagnostic()>;
  LogicalResult verifyWidening(tile::ScheduleAttr schedule, EmitError emitError) const;
  LogicalResult verifyTokenCopies(tile::ScheduleAttr schedule, EmitError emitError) const;
  LogicalResult verifyQueryCopies(tile::ScheduleAttr schedule, EmitError emitError) const;
  LogicalResult verifyRoles(tile::ScheduleAttr schedule, EmitError emitError) const;
  LogicalResult verifyFragments(tile::ScheduleAttr schedule, EmitError emitError) const;

  const ScheduleShape &shape;
  const Chip &chip;
};

} // namespace mlir::attn

#endif
