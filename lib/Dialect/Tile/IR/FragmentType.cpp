//===- FragmentType.cpp - The type of fragments ---------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Extent.h"

#include "mlir/IR/DialectImplementation.h"

using namespace mlir;
using namespace mlir::tile;

Type FragmentType::parse(AsmParser &parser) {
  SmallVector<Axis> axes;
  SmallVector<int64_t> sizes;
  auto extent = [&]() -> ParseResult {
    return parseExtent(parser, axes.emplace_back(), sizes.emplace_back());
  };
  Type element;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseLess() || parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, extent) ||
      parser.parseComma() || parser.parseType(element))
    return {};
  Layout layout = Layout::Unassigned;
  FeatureOrder order;
  bool partial = false;
  while (succeeded(parser.parseOptionalComma())) {
    StringRef keyword;
    if (parser.parseKeyword(&keyword))
      return {};
    if (keyword == "partial") {
      partial = true;
    } else if (keyword == "runs") {
      if (parser.parseInteger(order.runs) ||
          (succeeded(parser.parseOptionalKeyword("by")) && parser.parseInteger(order.step)))
        return {};
      if (!order) { // 0 stands for features in ascending order
        parser.emitError(loc, "expected runs of a power of two of features, 16 to 1024, got 0");
        return {};
      }
    } else if (std::optional<Layout> parsed = symbolizeLayout(keyword)) {
      layout = *parsed;
    } else {
      parser.emitError(loc, "expected a layout, 'runs' or 'partial', got '") << keyword << "'";
      return {};
    }
  }
  if (parser.parseGreater())
    return {};
  return parser.getChecked<FragmentType>(loc, parser.getContext(), ArrayRef<Axis>(axes),
                                         ArrayRef<int64_t>(sizes), element, layout, partial, order);
}

void FragmentType::print(AsmPrinter &printer) const {
  printer << "<[";
  llvm::interleaveComma(llvm::zip_equal(getAxes(), getSizes()), printer, [&](auto extent) {
    printer << stringifyAxis(std::get<0>(extent)) << " " << std::get<1>(extent);
  });
  printer << "], " << getElement();
  if (getLayout() != Layout::Unassigned)
    printer << ", " << stringifyLayout(getLayout());
  if (getOrder())
    printer << ", runs " << getOrder().runs;
  if (getOrder().step != 1)
    printer << " by " << getOrder().step;
  printer << (getPartial() ? ", partial>" : ">");
}

static SmallVector<FragmentType::Span> spansOf(int64_t features, int64_t runs) {
  SmallVector<FragmentType::Span> spans;
  int64_t first = 0;
  for (int64_t size : {runs, runs / 2, runs / 4})
    for (; size && first + size <= features; first += size)
      spans.push_back({first, size});
  return spans;
}

/// Returns the registers that hold a run of quantized elements, in the form of memory.
static int64_t wordsOf(int64_t codes, int64_t bits) { return llvm::divideCeil(codes * bits, 32); }

static LogicalResult verifyOrder(function_ref<InFlightDiagnostic()> emitError, ArrayRef<Axis> axes,
                                 ArrayRef<int64_t> sizes, Type element, Layout layout, FeatureOrder order) {
  auto axis = llvm::find(axes, Axis::Feature);
  bool rows = axis == axes.begin();
  if (axis == axes.end() || axes.size() != 2 || (layout == Layout::Lhs && rows) ||
      !llvm::is_contained({Layout::Lhs, Layout::Rhs, Layout::Acc}, layout))
    return emitError()
           << "expected runs of features of a right operand or of an accumulator, or of the columns of a "
              "left operand";
  if (order.runs < 16 || order.runs > 1024 || !llvm::isPowerOf2_64(order.runs))
    return emitError() << "expected runs of a power of two of features, 16 to 1024, got " << order.runs;
  bool contracted = layout == Layout::Lhs || (layout == Layout::Rhs && !rows);
  if (order.step != 1 && (!contracted || (order.step != 4 && order.step != 8)))
    return emitError() << "expected a step of 4 or 8, of features that are contracted, got " << order.step;
  int64_t bits = element.getIntOrFloatBitWidth(), features = sizes[axis - axes.begin()], covered = 0;
  for (FragmentType::Span span : spansOf(features, order.runs)) {
    covered += span.size;
    int64_t run = span.size / (contracted ? 4 : 8);
    if (contracted ? run % std::max<int64_t>(4, 2 * order.step) != 0 || (bits <= 8 && run * bits % 32 != 0)
                   : span.size % 16 != 0 || run * bits % 8 != 0)
      return emitError() << "expected longer runs of " << element << " than spans of " << span.size
                         << " make";
  }
  if (covered != features)
    return emitError() << "expected spans of " << order.runs << ", then of its half and quarter, to be "
                       << features << " features";
  return success();
}

LogicalResult FragmentType::verify(function_ref<InFlightDiagnostic()> emitError, ArrayRef<Axis> axes,
                                   ArrayRef<int64_t> sizes, Type element, Layout layout, bool partial,
                                   FeatureOrder order) {
  if (axes.size() != sizes.size() || axes.empty() || axes.size() > 2)
    return emitError() << "expected one or two axes with a size each";
  if (axes.size() == 2 && axes[0] == axes[1])
    return emitError() << "expected two different axes, got '" << stringifyAxis(axes[0]) << "' twice";
  for (auto [axis, size] : llvm::zip_equal(axes, sizes))
    if (failed(verifyExtent(emitError, axis, size)))
      return failure();
  if (!element.isIntOrFloat())
    return emitError() << "expected elements that are integers or floats, got " << element;
  bool oneAxis = layout == Layout::Row || layout == Layout::Col;
  if (layout != Layout::Unassigned && oneAxis != (axes.size() == 1))
    return emitError() << "layout '" << stringifyLayout(layout) << "' needs "
                       << (oneAxis ? "one axis" : "two axes");
  int64_t first = layout == Layout::Col || layout == Layout::Rhs ? 8 : 16;
  if (layout != Layout::Unassigned && sizes[0] % first != 0)
    return emitError() << "expected a multiple of " << first << " along " << stringifyAxis(axes[0])
                       << ", got " << sizes[0];
  if (layout == Layout::Acc && sizes[1] % 8 != 0)
    return emitError() << "expected a multiple of 8 along " << stringifyAxis(axes[1]) << ", got " << sizes[1];
  if (layout == Layout::Lhs) {
    int64_t bits = element.getIntOrFloatBitWidth();
    if (bits != 8 && bits != 16 && bits != 32)
      return emitError() << "expected elements of 8, 16 or 32 bits in layout 'lhs', got " << element;
    if (int64_t columns = 256 / bits; sizes[1] % columns != 0)
      return emitError() << "expected a multiple of " << columns << " along " << stringifyAxis(axes[1])
                         << ", got " << sizes[1];
  }
  if (layout == Layout::Rhs) {
    if (int64_t bits = element.getIntOrFloatBitWidth(); bits != 8 && bits != 16 && bits != 4 && bits != 2)
      return emitError() << "expected elements of 2, 4, 8 or 16 bits in layout 'rhs', got " << element;
    if (sizes[1] % 16 != 0)
      return emitError() << "expected a multiple of 16 along " << stringifyAxis(axes[1]) << ", got "
                         << sizes[1];
  }
  if (partial && axes.size() != 1)
    return emitError() << "only a one-axis fragment can be partial";
  return order ? verifyOrder(emitError, axes, sizes, element, layout, order) : success();
}

int64_t FragmentType::getFeatureAxis() const {
  auto it = llvm::find(getAxes(), Axis::Feature);
  return it == getAxes().end() ? -1 : it - getAxes().begin();
}

SmallVector<FragmentType::Span> FragmentType::getSpans() const {
  return spansOf(getSizes()[getFeatureAxis()], getOrder().runs);
}

int64_t FragmentType::getRegisters() const {
  switch (getLayout()) {
  case Layout::Acc:
    return getSizes()[0] / 16 * (getSizes()[1] / 8) * 4;
  case Layout::Lhs:
    return getSizes()[0] / 16 * (getSizes()[1] / getLhsColumns()) * 4;
  case Layout::Rhs: // a lane has four elements of a block
    if (getElement().getIntOrFloatBitWidth() == 16)
      return getSizes()[0] / 8 * (getSizes()[1] / 16) * 2;
    if (!getOrder())
      return getSizes()[0] / 8 * (getSizes()[1] / 16);
    return getWords();
  case Layout::Row:
    return getSizes()[0] / 16 * 2;
  case Layout::Col:
    return getSizes()[0] / 8 * 2;
  case Layout::Unassigned:
    break;
  }
  llvm_unreachable("a fragment without a layout has no registers");
}

/// Returns the registers of quantized elements in runs.
int64_t FragmentType::getWords() const {
  int64_t words = 0, bits = getElement().getIntOrFloatBitWidth();
  bool rows = getFeatureAxis() == 0;
  for (Span span : getSpans())
    words += rows ? 4 * wordsOf(span.size / 8, bits) : wordsOf(span.size / 4, bits);
  return words * (rows ? getSizes()[1] / 16 : getSizes()[0] / 8);
}

FragmentType FragmentType::withLayout(Layout layout, FeatureOrder order,
                                      function_ref<InFlightDiagnostic()> emitError) const {
  return getChecked(emitError, getContext(), getAxes(), getSizes(), getElement(), layout, getPartial(),
                    order);
}

FragmentType FragmentType::withElement(Type element) const {
  return get(getContext(), getAxes(), getSizes(), element, getLayout(), getPartial(), getOrder());
}
