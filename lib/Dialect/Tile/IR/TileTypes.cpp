//===- TileTypes.cpp - Types of memory ------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Extent.h"

#include "mlir/IR/DialectImplementation.h"

using namespace mlir;
using namespace mlir::tile;

ParseResult tile::parseExtent(AsmParser &parser, Axis &axis, int64_t &size) {
  StringRef keyword;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeyword(&keyword))
    return failure();
  std::optional<Axis> parsed = symbolizeAxis(keyword);
  if (!parsed)
    return parser.emitError(loc, "expected an axis (query, key or feature), got '") << keyword << "'";
  axis = *parsed;
  return parser.parseInteger(size);
}

/// Verifies elements of memory: scalars of whole bytes, or quantized elements that fill bytes.
static LogicalResult verifyElement(function_ref<InFlightDiagnostic()> emitError, Type element) {
  if (element.isIntOrFloat() && llvm::is_contained({8, 16, 32, 64}, element.getIntOrFloatBitWidth()))
    return success();
  if (element.isSignlessInteger(4) || element.isSignlessInteger(2) || isa<Float4E2M1FNType>(element))
    return success();
  return emitError() << "expected an element type of 8, 16, 32 or 64 bits, i4, i2 or f4E2M1FN, got "
                     << element;
}

/// No tile is near this size; products of sizes stay far from overflow.
static constexpr int64_t kMaxExtent = 1 << 16;

LogicalResult tile::verifyExtent(function_ref<InFlightDiagnostic()> emitError, Axis axis, int64_t size) {
  if (size >= 1 && size <= kMaxExtent)
    return success();
  return emitError() << "expected 1 to " << kMaxExtent << " along " << stringifyAxis(axis) << ", got "
                     << size;
}

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

LogicalResult BufferType::verify(function_ref<InFlightDiagnostic()> emitError, Type element) {
  return verifyElement(emitError, element);
}

LogicalResult RingType::verify(function_ref<InFlightDiagnostic()> emitError, int64_t stages, SharedType) {
  if (stages < 1 || stages > 8)
    return emitError() << "expected 1 to 8 stages, got " << stages;
  return success();
}

LogicalResult ScratchType::verify(function_ref<InFlightDiagnostic()> emitError, int64_t bytes) {
  if (bytes < 1)
    return emitError() << "expected at least one byte, got " << bytes;
  return success();
}

LogicalResult BarriersType::verify(function_ref<InFlightDiagnostic()> emitError, int64_t count) {
  if (count < 1 || count > 64)
    return emitError() << "expected 1 to 64 barriers, got " << count;
  return success();
}

LogicalResult TensorMapType::verify(function_ref<InFlightDiagnostic()> emitError, int64_t rank) {
  if (rank < 1 || rank > 5)
    return emitError() << "expected 1 to 5 axes, got " << rank;
  return success();
}

LogicalResult SharedType::verify(function_ref<InFlightDiagnostic()> emitError, Axis rowAxis, int64_t rows,
                                 Axis colAxis, int64_t cols, Type element, bool swizzled, int64_t boxes) {
  if (rowAxis == colAxis)
    return emitError() << "expected two different axes, got '" << stringifyAxis(rowAxis) << "' twice";
  if (failed(verifyExtent(emitError, rowAxis, rows)) || failed(verifyExtent(emitError, colAxis, cols)) ||
      failed(verifyElement(emitError, element)))
    return failure();
  int64_t lineBytes = cols * element.getIntOrFloatBitWidth() / 8;
  if (cols * element.getIntOrFloatBitWidth() % 8 != 0)
    return emitError() << "expected lines of whole bytes, got " << cols << " elements of " << element;
  if (swizzled && lineBytes % 32 != 0)
    return emitError() << "expected the lines of a swizzled tile to be a multiple of 32 bytes, got "
                       << lineBytes;
  if (boxes != 0 && (boxes < 16 || boxes % 16 != 0 || rows % boxes != 0 || boxes * lineBytes % 1024 != 0))
    return emitError() << "expected boxes of a multiple of 16 lines that divides " << rows
                       << " and fills a multiple of 1024 bytes, got " << boxes;
  return success();
}

//===----------------------------------------------------------------------===//
// SharedType
//===----------------------------------------------------------------------===//

Type SharedType::parse(AsmParser &parser) {
  Axis rowAxis, colAxis;
  int64_t rows, cols, boxes = 0;
  Type element;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() || parseExtent(parser, rowAxis, rows) || parser.parseComma() ||
      parseExtent(parser, colAxis, cols) || parser.parseComma() || parser.parseType(element))
    return {};
  bool comma = succeeded(parser.parseOptionalComma());
  if (comma && succeeded(parser.parseOptionalKeyword("boxes"))) {
    if (parser.parseInteger(boxes))
      return {};
    comma = succeeded(parser.parseOptionalComma());
  }
  if ((comma && parser.parseKeyword("swizzled")) || parser.parseGreater())
    return {};
  return parser.getChecked<SharedType>(loc, parser.getContext(), rowAxis, rows, colAxis, cols, element, comma,
                                       boxes);
}

void SharedType::print(AsmPrinter &printer) const {
  printer << "<" << stringifyAxis(getRowAxis()) << " " << getRows() << ", " << stringifyAxis(getColAxis())
          << " " << getCols() << ", " << getElement();
  if (getBoxes())
    printer << ", boxes " << getBoxes();
  printer << (getSwizzled() ? ", swizzled>" : ">");
}

int64_t SharedType::getLineBytes() const { return getCols() * getElement().getIntOrFloatBitWidth() / 8; }

int64_t SharedType::getBytes() const { return getRows() * getLineBytes(); }

SmallVector<SharedType::Panel> SharedType::getPanels() const {
  int64_t left = getLineBytes();
  int64_t offset = 0, chunk = 0;
  SmallVector<Panel> panels;
  if (!getSwizzled())
    return {{left, 0, 0}};
  for (int64_t width : {128, 64, 32}) {
    for (; left >= width; left -= width) {
      panels.push_back({width, offset, chunk});
      offset += width * getBoxLines();
      chunk += width / 16;
    }
  }
  return panels;
}

size_t SharedType::getPanelOf(int64_t chunk) const {
  size_t index = 0;
  SmallVector<Panel> panels = getPanels();
  while (index + 1 < panels.size() && panels[index + 1].chunk <= chunk)
    ++index;
  return index;
}

int64_t tile::memoryBytes(Type type) {
  if (auto ring = dyn_cast<RingType>(type))
    return ring.getStages() * ring.getTile().getBytes();
  if (auto scratch = dyn_cast<ScratchType>(type))
    return scratch.getBytes();
  if (auto barriers = dyn_cast<BarriersType>(type))
    return barriers.getCount() * 8;
  return cast<SharedType>(type).getBytes();
}
