//===- TileDialect.cpp - Registration of the tile dialect -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Support/Elements.h"

#include "attn/Dialect/Tile/IR/CacheHint.h"
#include "attn/Dialect/Tile/IR/Launch.h"
#include "attn/Dialect/Tile/IR/Signals.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/DialectImplementation.h"
#include "llvm/ADT/SmallSet.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace mlir::tile;

#include "attn/Dialect/Tile/IR/TileDialect.cpp.inc"
#include "attn/Dialect/Tile/IR/TileEnums.cpp.inc"
#define GET_ATTRDEF_CLASSES
#include "attn/Dialect/Tile/IR/TileAttributes.cpp.inc"
#define GET_TYPEDEF_CLASSES
#include "attn/Dialect/Tile/IR/TileTypes.cpp.inc"

void TileDialect::initialize() {
  addTypes<
#define GET_TYPEDEF_LIST
#include "attn/Dialect/Tile/IR/TileTypes.cpp.inc"
      >();
  addAttributes<
#define GET_ATTRDEF_LIST
#include "attn/Dialect/Tile/IR/TileAttributes.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "attn/Dialect/Tile/IR/TileOps.cpp.inc"
      >();
  addOperations<
#define GET_OP_LIST
#include "attn/Dialect/Tile/IR/TileSignalOps.cpp.inc"
      >();
}

/// Verifies attributes that passes read without further checks.
LogicalResult TileDialect::verifyOperationAttribute(Operation *op, NamedAttribute attribute) {
  StringRef name = attribute.getName().strref();
  Attribute value = attribute.getValue();
  auto expected = [&](StringRef what) {
    return op->emitOpError("expected '") << name << "' to be " << what << ", got " << value;
  };
  auto isListOf = [&](auto isElement) {
    auto list = dyn_cast<ArrayAttr>(value);
    return list && llvm::all_of(list, isElement);
  };
  if (name == schedulesAttr) {
    if (!isListOf([](Attribute a) { return isa<ScheduleAttr>(a); }) || cast<ArrayAttr>(value).empty())
      return expected("a list of #tile.schedule, at least one");
    llvm::SmallSet<int64_t, 4> rows; // kernels are named by their rows
    for (auto schedule : cast<ArrayAttr>(value).getAsRange<ScheduleAttr>())
      if (!rows.insert(schedule.getRows()).second)
        return op->emitOpError("expected one schedule per number of rows, got two for ")
               << schedule.getRows();
  } else if (name == scheduleAttr || name == tokenScheduleAttr || name == valueScheduleAttr) {
    if (!isa<ScheduleAttr>(value))
      return expected("a #tile.schedule");
  } else if (name == mergeScheduleAttr) {
    if (!isa<MergeScheduleAttr>(value))
      return expected("a #tile.merge_schedule");
  } else if (name == parametersAttr) {
    if (!isListOf([](Attribute a) { return isa<ParameterAttr>(a); }))
      return expected("a list of #tile.parameter");
  } else if (name == tensorMapsAttr) {
    if (!isListOf([](Attribute a) { return isa<TensorMapAttr>(a); }))
      return expected("a list of #tile.tensor_map");
  } else if (name == threadsAttr || name == blocksPerSMAttr || name == stagesAttr || name == unrollAttr ||
             name == keyAlignAttr) {
    auto count = dyn_cast<IntegerAttr>(value);
    if (!count || count.getValue().getSignificantBits() > 32 || count.getValue().slt(1))
      return expected("a positive integer");
  } else if (name == severalRangesAttr) {
    if (!isa<UnitAttr>(value))
      return expected("no value");
  } else if (name == cacheHintAttr) {
    auto hint = dyn_cast<StringAttr>(value);
    if (!hint || (hint != evictFirst && hint != evictLast && hint != discards))
      return expected("\"evict_first\", \"evict_last\" or \"discard\"");
  } else if (name == launchAttr) {
    return verifyLaunch(op, value);
  } else if (name == sharedBytesAttr) {
    auto bytes = dyn_cast<IntegerAttr>(value);
    if (!bytes || bytes.getValue().getSignificantBits() > 32 || bytes.getValue().isNegative())
      return expected("an integer that is not negative");
  }
  return success();
}

LogicalResult TensorMapAttr::verify(function_ref<InFlightDiagnostic()> emitError, StringRef name,
                                    StringRef buffer, Type element, DenseI64ArrayAttr extents, ArrayAttr dims,
                                    DenseI64ArrayAttr strides, DenseI64ArrayAttr box, int64_t swizzle,
                                    ArrayAttr times) {
  int64_t rank = extents.size();
  if (rank < 1 || rank > 5)
    return emitError() << "expected 1 to 5 axes, got " << rank;
  auto isListOfNames = [](Attribute axis) {
    auto names = dyn_cast<ArrayAttr>(axis);
    return names && llvm::all_of(names, [](Attribute name) { return isa<StringAttr>(name); });
  };
  if (static_cast<int64_t>(dims.size()) != rank || strides.size() != rank || box.size() != rank ||
      !llvm::all_of(dims, isListOfNames))
    return emitError() << "expected a list of names, a stride and a box size for each of " << rank << " axes";
  if (!element.isIntOrFloat() || element.getIntOrFloatBitWidth() % 8 != 0)
    return emitError() << "expected an element of whole bytes, got " << element;
  if (failed(mlir::attn::dtypeOf(element, emitError)))
    return failure();
  int64_t size = mlir::attn::bytesOf(element);
  if (strides[0] != size)
    return emitError() << "expected the innermost stride to be the element's " << size << " bytes, got "
                       << strides[0];
  auto isName = [](Attribute name) { return isa<StringAttr>(name); };
  if (times && (static_cast<int64_t>(times.size()) != rank || !llvm::all_of(times, isName)))
    return emitError() << "expected times to have a name, or an empty one, for each of " << rank << " axes";
  auto isGiven = [&](size_t axis) { return times && !cast<StringAttr>(times[axis]).empty(); };
  if (isGiven(0))
    return emitError() << "expected nothing that multiplies the innermost stride";
  for (auto [axis, stride] : llvm::drop_begin(llvm::enumerate(strides.asArrayRef())))
    if (isGiven(axis) ? stride < 1 : stride < 16 || stride % 16 != 0)
      return emitError() << "expected strides of multiples of 16 bytes, got " << stride;
  for (int64_t extent : box.asArrayRef())
    if (extent < 1 || extent > 256)
      return emitError() << "expected a box of 1 to 256 along each axis, got " << extent;
  if ((swizzle != 32 && swizzle != 64 && swizzle != 128) || box[0] * size != swizzle)
    return emitError()
           << "expected a swizzle of 32, 64 or 128 bytes, as long as the box's innermost axis, got "
           << swizzle << " for " << box[0] * size;
  return success();
}
