//===- VerifySchedule.cpp - Whether a schedule can be written and launched ===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ScheduleLimits.h"

#include "attn/Conversion/ScheduleModel.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

static std::string nameOfCopy(int64_t lines) {
  return lines == ScheduleAttr::gathered ? "gather" : "boxes " + std::to_string(lines);
}

LogicalResult ScheduleModel::verifyTokenCopies(ScheduleAttr schedule, EmitError emitError) const {
  ArrayRef<int64_t> copies = schedule.getKeyCopies();
  if (copies.size() != shape.regions.size())
    return emitError() << schedule << " has copies of " << copies.size() << " regions, and there are "
                       << shape.regions.size();
  for (auto [lines, type] : llvm::zip_equal(copies, shape.regions)) {
    int64_t possible =
        shape.converted() ? ScheduleAttr::gathered : tmaLoadLines(type, schedule.getWarpKeys());
    if (lines != ScheduleAttr::gathered && lines != possible)
      return emitError() << schedule << " copies by " << nameOfCopy(lines) << ", and tiles of "
                         << schedule.getWarpKeys() << " tokens of " << type << " come by "
                         << nameOfCopy(possible);
  }
  if (!schedule.loadsTokensByTma() && llvm::any_of(copies, [](int64_t lines) { return lines != 0; }))
    return emitError() << schedule
                       << " gathers some regions and loads others by TMA: expected one way for all";
  int64_t boxes = *schedule.getValueBoxes(), possible = valueBoxesOf(copies, schedule.getWarpKeys());
  if (boxes != 0 && boxes != possible)
    return emitError() << schedule << " has value_boxes = " << boxes << ", expected 0"
                       << (possible ? " or " + std::to_string(possible) : "");
  return success();
}

LogicalResult ScheduleModel::verifyWidening(ScheduleAttr schedule, EmitError emitError) const {
  Type converted = shape.converted();
  const bool shares = schedule.sharesWeights(); // tokens become floats of the queries' type
  if (converted && !shape.mayWiden() && !shares)
    return emitError() << schedule
                       << " multiplies keys and values of f16 or bf16, and producers do not widen "
                       << converted << " here; nearest legal: a schedule of kind mma";
  const bool narrows = converted && shape.element.isBF16() && !shares;
  if (schedule.getQueryInRegisters() != narrows)
    return emitError() << schedule
                       << " has query_in_registers = " << (schedule.getQueryInRegisters() ? "true" : "false")
                       << ": expected "
                       << (narrows ? "true, where queries of bf16 become f16 as quantized values do"
                                   : "false, where wgmma reads queries from shared memory");
  if (converted && schedule.getConsumers() != 2)
    return emitError() << schedule << " widens " << converted << " for " << schedule.getConsumers()
                       << " warpgroups: expected warps = 8";
  return success();
}

LogicalResult ScheduleModel::verifyQueryCopies(ScheduleAttr schedule, EmitError emitError) const {
  int64_t lines = *schedule.getQueryCopy();
  if (schedule.storesResultsByTma() && shape.valueDim > shape.keyDim)
    return emitError() << schedule << " stores rows of " << shape.valueDim
                       << " features by TMA from the queries' stages, which have " << shape.keyDim;
  if (schedule.storesResultsByTma() && shape.quantizedOutput)
    return emitError() << schedule << " stores results by TMA from tiles of queries, " << shape.element
                       << ", and outputs are f8E4M3FN: expected epilogue = store";
  if (schedule.storesResultsByTma() && schedule.getSlices() > 1)
    return emitError() << schedule << " stores results by TMA, and warpgroups share their rows: expected "
                       << "epilogue = store";
  if (schedule.storesResultsByTma() && *schedule.getQueryStages() != 2)
    return emitError() << schedule
                       << " stores results by TMA from the queries' stage: expected 2 query_stages, "
                          "so that the next queries have a stage of their own";
  if (lines == ScheduleAttr::gathered) {
    if (schedule.storesResultsByTma())
      return emitError() << schedule << " stores results by TMA: expected query_copy = boxes "
                         << ScheduleAttr::groupRows;
    return success();
  }
  if (!schedule.loadsTokensByTma())
    return emitError() << schedule
                       << " loads queries by TMA and gathers tokens: expected query_copy = gather";
  int64_t expected = schedule.storesResultsByTma() ? ScheduleAttr::groupRows : schedule.getRows();
  if (lines != expected)
    return emitError() << schedule << " has query_copy = boxes " << lines << ", expected boxes " << expected
                       << (schedule.storesResultsByTma() ? ", the rows of a warpgroup, which stores its own"
                                                         : ", the rows of a tile");
  if (lines % shape.group != 0)
    return emitError() << schedule << " has boxes of " << lines << " queries, which the " << shape.group
                       << " heads of a group do not fill evenly";
  return success();
}

LogicalResult ScheduleModel::verifyRoles(ScheduleAttr schedule, EmitError emitError) const {
  int64_t producer = *schedule.getProducerRegisters(), consumer = *schedule.getConsumerRegisters();
  int64_t first = firstRegisters(schedule), has = first * schedule.getThreads();
  int64_t gives = 32 * (schedule.getProducerWarps() * producer + schedule.getWarps() * consumer);
  if (gives > has)
    return emitError() << schedule << " gives " << gives
                       << " registers to its roles, and a block begins with " << has;
  if (consumer < first)
    return emitError() << schedule << " has threads that begin with " << first
                       << " registers: expected consumer_registers to be no fewer, got " << consumer;
  if (*schedule.getPingPong() && schedule.getConsumers() < 2)
    return emitError() << schedule << " has ping-pong: expected two or more warpgroups that compute, got one";
  return success();
}

/// Checks that fragments alone do not take all registers of a thread.
LogicalResult ScheduleModel::verifyFragments(ScheduleAttr schedule, EmitError emitError) const {
  int64_t share = allRegisters / (schedule.getBlocks() * schedule.getThreads());
  int64_t has = schedule.getConsumerRegisters().value_or(std::min(threadRegisters, share));
  if (int64_t fragments = fragmentRegisters(schedule); fragments > has)
    return emitError() << schedule << " needs " << fragments
                       << " registers of a thread for fragments alone, and it has " << has;
  return success();
}

LogicalResult ScheduleModel::verify(ScheduleAttr schedule,
                                    function_ref<InFlightDiagnostic()> emitError) const {
  if (schedule.getKind() == ScheduleKind::Wgmma) {
    if (!chip.hasWgmma)
      return emitError() << schedule << " needs sm_90a, the only chip with wgmma; got " << chip.name;
    if (failed(verifyWidening(schedule, emitError)))
      return failure();
    if (!alignsTiles(schedule.getWarpKeys()))
      return emitError() << schedule << " has tiles of keys and values that are no multiples of 1024 bytes, "
                         << "after which swizzles repeat; the nearest number of keys that has is "
                         << llvm::alignTo(schedule.getWarpKeys(), 32);
    const bool comes = shape.converted() ? !schedule.loadsTokensByTma() : schedule.loadsTokensByTma();
    if (schedule.sharesWeights() && !(mayShareWeights(schedule.getWarpKeys()) && comes))
      return emitError()
             << schedule
             << " has shared_weights: expected values of a multiple of 128 features from 257 to 512 "
             << "and keys of a multiple of 64, in 16 bits and one form, loaded by TMA, or latents in one "
             << "region of e4m3 with a scale that all tokens share, gathered, without score regions, several "
             << "masks, masks of several sizes, gates of features and numerics";
    if (shape.converted() && schedule.sharesWeights()) {
      constexpr int64_t producers = 2 * ScheduleAttr::groupWarps, linesOfWarp = 8;
      if (schedule.getProducers() != producers || schedule.getWarpKeys() % (producers * linesOfWarp) != 0)
        return emitError() << schedule << " has shared_weights over " << shape.converted() << ": expected "
                           << producers << " producers, and keys a multiple of "
                           << 2 * producers * linesOfWarp << ", as producers hold eight lines of a half each";
    }
    if (schedule.getExchangeStages())
      return emitError() << schedule << " has exchange_stages, and only gradients are exchanged";
    if (failed(verifyTokenCopies(schedule, emitError)) || failed(verifyQueryCopies(schedule, emitError)))
      return failure();
    if (failed(verifyRoles(schedule, emitError)))
      return failure();
  }
  if (schedule.sharesWeights() && schedule.getKind() == ScheduleKind::Mma && !mayShareWeightsOfWarps())
    return emitError()
           << schedule << " has shared_weights: expected one region of latents whose values have 257 to 512 "
           << "features, in e4m3 with a scale that all tokens share, without score regions, stores "
           << "of head classes and numerics";
  if (int64_t slices = shape.valueSlices(); schedule.getSlices() != slices)
    return emitError() << schedule << " has " << schedule.getSlices() << " value_slices: expected " << slices
                       << " for values of " << shape.valueDim << " features";
  int64_t needs = sharedBytes(schedule);
  if (*schedule.getSharedBytes() != needs)
    return emitError() << schedule << " needs " << needs << " bytes of shared memory, and says "
                       << *schedule.getSharedBytes();
  if (!fitsBlock(schedule))
    return emitError() << schedule << " needs " << needs << " bytes of shared memory, " << chip.name
                       << " has " << chip.sharedPerBlock << " per block";
  if (!fitsMultiprocessor(schedule))
    return emitError() << schedule << " needs " << needs << " bytes of shared memory and " << systemShared
                       << " of the system's in each of " << schedule.getBlocks() << " blocks, " << chip.name
                       << " has " << chip.sharedPerMultiprocessor << " per multiprocessor";
  return verifyFragments(schedule, emitError);
}
