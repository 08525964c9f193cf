//===- Tile.h - The tile dialect --------------------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_DIALECT_TILE_IR_TILE_H
#define ATTN_DIALECT_TILE_IR_TILE_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

#include "attn/Dialect/Tile/IR/TileEnums.h.inc"
#include "attn/Support/TypedAttr.h"

namespace mlir::tile {
/// The order of a fragment's features (see `!tile.fragment`); `runs` 0: ascending.
struct FeatureOrder {
  int64_t runs = 0, step = 1;
  bool operator==(const FeatureOrder &) const = default;
  explicit operator bool() const { return runs != 0; }
};
inline llvm::hash_code hash_value(FeatureOrder order) { return llvm::hash_combine(order.runs, order.step); }

/// The fields of a #tile.schedule (TileSchedule.td) while they are read or chosen.
struct ScheduleFields {
  ScheduleKind kind = ScheduleKind::Mma;
  std::optional<int64_t> rows, keys, warps, stages, blocks;
  std::optional<bool> splitKeys, queryInRegisters;
  std::optional<int64_t> producers, producerRegisters, consumerRegisters, queryStages, queryCopy;
  SmallVector<int64_t> keyCopies, valueCopies;
  std::optional<int64_t> valueBoxes;
  std::optional<bool> pingPong, sharedWeights;
  std::optional<Epilogue> epilogue;
  std::optional<int64_t> exchangeStages, valueSlices, sequencesUpTo, sharedBytes;
};
} // namespace mlir::tile

#define GET_ATTRDEF_CLASSES
#include "attn/Dialect/Tile/IR/TileAttributes.h.inc"
#include "attn/Dialect/Tile/IR/TileDialect.h.inc"
#define GET_TYPEDEF_CLASSES
#include "attn/Dialect/Tile/IR/TileTypes.h.inc"
#define GET_OP_CLASSES
#include "attn/Dialect/Tile/IR/TileOps.h.inc"

namespace mlir::tile {
/// The attributes that passes set for later passes (TileDialect.td).
inline constexpr attn::TypedAttr<TileDialect::SchedulesAttrHelper> schedulesAttr;
inline constexpr attn::TypedAttr<TileDialect::TokenScheduleAttrHelper> tokenScheduleAttr;
inline constexpr attn::TypedAttr<TileDialect::ValueScheduleAttrHelper> valueScheduleAttr;
inline constexpr attn::TypedAttr<TileDialect::MergeScheduleAttrHelper> mergeScheduleAttr;
inline constexpr attn::TypedAttr<TileDialect::ScheduleAttrHelper> scheduleAttr;
inline constexpr attn::TypedAttr<TileDialect::ParametersAttrHelper> parametersAttr;
inline constexpr attn::TypedAttr<TileDialect::TensorMapsAttrHelper> tensorMapsAttr;
inline constexpr attn::TypedAttr<TileDialect::ThreadsAttrHelper> threadsAttr;
inline constexpr attn::TypedAttr<TileDialect::BlocksPerSmAttrHelper> blocksPerSMAttr;
inline constexpr attn::TypedAttr<TileDialect::SharedBytesAttrHelper> sharedBytesAttr;
inline constexpr attn::TypedAttr<TileDialect::LaunchAttrHelper> launchAttr;
inline constexpr attn::TypedAttr<TileDialect::KeyAlignAttrHelper> keyAlignAttr;
inline constexpr attn::TypedAttr<TileDialect::SeveralRangesAttrHelper> severalRangesAttr;
inline constexpr attn::TypedAttr<TileDialect::StagesAttrHelper> stagesAttr;
inline constexpr attn::TypedAttr<TileDialect::UnrollAttrHelper> unrollAttr;
inline constexpr attn::TypedAttr<TileDialect::L2AttrHelper> cacheHintAttr;

/// Returns the bytes of shared memory of a value of this type (a tile, a ring, scratch).
int64_t memoryBytes(Type type);
} // namespace mlir::tile

#endif
