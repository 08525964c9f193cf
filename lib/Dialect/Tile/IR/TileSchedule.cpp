//===- TileSchedule.cpp - Schedules: fields, and checks for all chips --------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Tile/IR/Tile.h"

#include "llvm/Support/MathExtras.h"

using namespace mlir;
using namespace mlir::tile;

ScheduleFields ScheduleAttr::getFields() const {
  return {getKind(),
          getRows(),
          getKeys(),
          getWarps(),
          getStages(),
          getBlocks(),
          getSplitKeys(),
          getQueryInRegisters(),
          getProducers(),
          getProducerRegisters(),
          getConsumerRegisters(),
          getQueryStages(),
          getQueryCopy(),
          SmallVector<int64_t>(getKeyCopies()),
          SmallVector<int64_t>(getValueCopies()),
          getValueBoxes(),
          getPingPong(),
          getSharedWeights(),
          getEpilogue(),
          getExchangeStages(),
          getValueSlices(),
          getSequencesUpTo(),
          getSharedBytes()};
}

bool ScheduleAttr::isComplete() const {
  return getKind() == ScheduleKind::Mma ||
         (getProducers() && getProducerRegisters() && getConsumerRegisters() && getQueryStages() &&
          getQueryCopy() && !getKeyCopies().empty() && !getValueCopies().empty() && getValueBoxes() &&
          getPingPong() && getEpilogue());
}

using EmitError = function_ref<InFlightDiagnostic()>;

static LogicalResult verifyTiles(EmitError emitError, ScheduleKind kind, int64_t rows, int64_t keys,
                                 int64_t warps, int64_t stages, int64_t blocks, bool splitKeys,
                                 bool queryInRegisters, int64_t slices, bool sharesWeights) {
  if (warps < 1 || warps > 16)
    return emitError() << "expected 1 to 16 warps, got " << warps;
  if (stages < 1 || stages > 8)
    return emitError() << "expected 1 to 8 stages, got " << stages;
  if (blocks < 1 || blocks > 8)
    return emitError() << "expected 1 to 8 blocks per multiprocessor, got " << blocks;
  int64_t units = kind == ScheduleKind::Wgmma ? warps / ScheduleAttr::groupWarps : warps;
  if (slices < 1 || slices > 4 || (slices > 1 && (splitKeys || units % slices != 0)))
    return emitError() << "expected 1 to 4 value_slices that divide the "
                       << (kind == ScheduleKind::Wgmma ? "warpgroups" : "warps")
                       << ", and 1 with split_keys, got " << slices << " (warps = " << warps << ")";
  int64_t warpRows = splitKeys ? rows : rows * slices / warps;
  if (sharesWeights && (slices != 2 || units != slices || keys % slices != 0))
    return emitError()
           << "expected shared_weights with 2 value_slices, as many warps (under wgmma, warpgroups) and "
              "an even number of keys, got "
           << slices << " value_slices, " << units << " warps or warpgroups and " << keys << " keys";
  if (sharesWeights && kind == ScheduleKind::Wgmma && stages != 1)
    return emitError()
           << "expected 1 stage beside shared_weights under wgmma, whose halves of a tile take turns, got "
           << stages;
  int64_t warpKeys = keys / (splitKeys ? warps : sharesWeights ? slices : 1);
  if (kind == ScheduleKind::Wgmma && (warps % ScheduleAttr::groupWarps != 0 || splitKeys))
    return emitError() << "wgmma computes with whole warpgroups: expected warps a multiple of 4 and "
                          "split_keys false";
  bool few = warpRows == ScheduleAttr::fewRows && splitKeys && queryInRegisters;
  if ((warpRows != 16 && !few) || (!splitKeys && rows * slices % warps != 0))
    return emitError() << "expected 16 rows per warp, or " << ScheduleAttr::fewRows
                       << " with split_keys and query_in_registers, got " << warpRows << " (rows = " << rows
                       << ", warps = " << warps << ")";
  if (splitKeys && rows % warps != 0) // every warp copies a share of the queries
    return emitError() << "expected the number of warps to divide the " << rows << " rows, got " << warps;
  if (warpKeys < 16 || warpKeys % 16 != 0 || (kind == ScheduleKind::Mma && keys % warps != 0))
    return emitError() << "expected the keys of a warp to be a multiple of 16, got " << warpKeys
                       << " (keys = " << keys << ", warps = " << warps << ")";
  if (kind == ScheduleKind::Wgmma && warpKeys > 256)
    return emitError() << "expected at most 256 keys, the limit of one wgmma, got " << warpKeys;
  // Each lane of a warp looks up one line.
  if (int64_t copied = keys / warps; kind == ScheduleKind::Mma && (copied < 2 || copied > 32))
    return emitError() << "expected 2 to 32 keys for each warp to copy, got " << copied << " (keys = " << keys
                       << ", warps = " << warps << ")";
  return success();
}

/// Limits of setmaxnreg (PTX ISA).
static constexpr int64_t leastRegisters = 24, mostRegisters = 256;

LogicalResult ScheduleAttr::verify(EmitError emitError, ScheduleKind kind, int64_t rows, int64_t keys,
                                   int64_t warps, int64_t stages, int64_t blocks, bool splitKeys,
                                   bool queryInRegisters, std::optional<int64_t> producers,
                                   std::optional<int64_t> producerRegisters,
                                   std::optional<int64_t> consumerRegisters,
                                   std::optional<int64_t> queryStages, std::optional<int64_t> queryCopy,
                                   ArrayRef<int64_t> keyCopies, ArrayRef<int64_t> valueCopies,
                                   std::optional<int64_t> valueBoxes, std::optional<bool> pingPong,
                                   std::optional<Epilogue> epilogue, std::optional<int64_t> exchangeStages,
                                   std::optional<int64_t> valueSlices, std::optional<bool> sharedWeights,
                                   std::optional<int64_t> sequencesUpTo, std::optional<int64_t> sharedBytes) {
  if (failed(verifyTiles(emitError, kind, rows, keys, warps, stages, blocks, splitKeys, queryInRegisters,
                         valueSlices.value_or(1), sharedWeights.value_or(false))))
    return failure();
  if (sequencesUpTo && *sequencesUpTo < 1)
    return emitError() << "expected sequences_up_to of at least 1, got " << *sequencesUpTo;
  if (sharedWeights.value_or(false) && pingPong.value_or(false))
    return emitError()
           << "expected ping_pong = false beside shared_weights: warpgroups wait for each other's weights";
  if (sharedBytes && *sharedBytes < 0)
    return emitError() << "expected shared_bytes that are not negative, got " << *sharedBytes;
  auto usesTma = [](ArrayRef<int64_t> copies) {
    return llvm::any_of(copies, [](int64_t lines) { return lines != gathered; });
  };
  if (kind == ScheduleKind::Mma) {
    if (producers.value_or(0) != 0 || producerRegisters || consumerRegisters ||
        queryStages.value_or(1) != 1 || queryCopy.value_or(gathered) != gathered || usesTma(keyCopies) ||
        usesTma(valueCopies) || valueBoxes.value_or(0) != 0 || pingPong.value_or(false) ||
        epilogue == Epilogue::Send || exchangeStages.value_or(1) != 1)
      return emitError()
             << "under mma all warps gather, compute and store, and queries have one stage: "
                "producers, registers of roles, boxes, ping-pong, TMA stores and exchanges need wgmma";
    return success();
  }
  if (producers && *producers != groupWarps && *producers != 2 * groupWarps)
    return emitError() << "expected " << groupWarps << " or " << 2 * groupWarps << " producers, one or two "
                       << "warpgroups, to which registers are given, got " << *producers;
  if (queryStages && *queryStages != 1 && *queryStages != 2)
    return emitError() << "expected 1 or 2 query_stages, got " << *queryStages;
  if (exchangeStages && *exchangeStages != 1 && *exchangeStages != 2)
    return emitError() << "expected 1 or 2 exchange_stages, got " << *exchangeStages;
  if (!keyCopies.empty() && !valueCopies.empty() && keyCopies != valueCopies)
    return emitError() << "expected key_copies and value_copies to be the same: a region's keys and values "
                          "lie alike";
  for (std::optional<int64_t> registers : {producerRegisters, consumerRegisters})
    if (registers && (*registers < leastRegisters || *registers > mostRegisters || *registers % 8 != 0))
      return emitError() << "expected registers of a role to be a multiple of 8 from " << leastRegisters
                         << " to " << mostRegisters << ", got " << *registers;
  return success();
}

LogicalResult MergeScheduleAttr::verify(EmitError emitError, int64_t warps, int64_t blocks, int64_t parts,
                                        int64_t slices) {
  if (warps < 1 || warps > 32)
    return emitError() << "expected 1 to 32 warps, got " << warps;
  if (blocks < 1 || blocks > 32)
    return emitError() << "expected 1 to 32 blocks per multiprocessor, got " << blocks;
  // Each lane holds the state of one part, and the remaining parts of a row are read in halves.
  if (parts < 1 || parts > 32 || !llvm::isPowerOf2_64(parts))
    return emitError() << "expected a power of two up to 32 as the parts that are read at once, got "
                       << parts;
  if (slices < 1 || warps % slices != 0)
    return emitError() << "expected slices that divide the " << warps << " warps, got " << slices;
  return success();
}
