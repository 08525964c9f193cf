//===- AttnOps.cpp - The problem level ------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Verify.h"
#include "VisibilitySyntax.h"

#include "attn/Dialect/Attn/IR/Signature.h"
#include "attn/Dialect/Attn/IR/StepOps.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/OpImplementation.h"

#include <array>
#include <cmath>
#include <cstdio>
#include <cstdlib>

using namespace mlir;
using namespace mlir::attn;

//===----------------------------------------------------------------------===//
// Text shared by attend and update
//===----------------------------------------------------------------------===//

static ParseResult parseScale(OpAsmParser &parser, FloatAttr &scale) {
  APFloat value(0.0f);
  if (parser.parseFloat(APFloat::IEEEsingle(), value))
    return failure();
  scale = FloatAttr::get(parser.getBuilder().getF32Type(), value);
  return success();
}

/// Prints the shortest decimal that reads back as the same float; MLIR's own form ends in hexadecimal for
/// most scales.
static void printScale(OpAsmPrinter &printer, Operation *, FloatAttr scale) {
  float value = scale.getValue().convertToFloat();
  std::array<char, 32> text;
  for (int precision = 1; precision <= 9; ++precision) {
    std::snprintf(text.data(), text.size(), "%.*g", precision, value);
    if (std::strtof(text.data(), nullptr) == value)
      break;
  }
  // A float token starts with digits and a point.
  StringRef digits(text.data());
  size_t exponent = std::min(digits.find('e'), digits.size());
  StringRef mantissa = digits.take_front(exponent);
  printer << mantissa << (mantissa.contains('.') ? "" : ".0") << digits.drop_front(exponent);
}

static ParseResult parseClassName(OpAsmParser &parser, StringAttr &name) {
  std::string text;
  SMLoc loc = parser.getCurrentLocation();
  if (parser.parseKeywordOrString(&text))
    return failure();
  if (text.empty())
    return parser.emitError(loc, "expected the name of a head class, got an empty one");
  name = parser.getBuilder().getStringAttr(text);
  return success();
}

static void printClassName(OpAsmPrinter &printer, Operation *, StringAttr name) {
  printer.printKeywordOrString(name.getValue());
}

/// Parses `name %copy, ...`.
static ParseResult parseCopies(OpAsmParser &parser, SmallVectorImpl<OpAsmParser::UnresolvedOperand> &copies,
                               ArrayAttr &names) {
  SmallVector<Attribute> parsed;
  do {
    StringRef word;
    SMLoc loc = parser.getCurrentLocation();
    if (parser.parseKeyword(&word))
      return failure();
    std::optional<Copy> name = symbolizeCopy(word);
    if (!name)
      return parser.emitError(loc, "expected the name of a copy (query, keys, values, ...), got ") << word;
    parsed.push_back(CopyAttr::get(parser.getContext(), *name));
    if (parser.parseOperand(copies.emplace_back()))
      return failure();
  } while (succeeded(parser.parseOptionalComma()));
  names = parser.getBuilder().getArrayAttr(parsed);
  return success();
}

static void printCopies(OpAsmPrinter &printer, Operation *, OperandRange copies, ArrayAttr names) {
  llvm::interleaveComma(llvm::zip_equal(names.getAsRange<CopyAttr>(), copies), printer, [&](auto each) {
    printer << stringifyCopy(std::get<0>(each).getValue()) << ' ' << std::get<1>(each);
  });
}

/// Parses `(` operand `see` visibility (`for` class)? `)`, ...
static ParseResult parseRegions(OpAsmParser &parser, SmallVectorImpl<OpAsmParser::UnresolvedOperand> &regions,
                                ArrayAttr &visibility, ArrayAttr &classes) {
  SmallVector<Attribute> visibilities, names;
  bool some = false;
  do {
    VisibilityAttr see;
    StringAttr name = parser.getBuilder().getStringAttr("");
    if (parser.parseLParen() || parser.parseOperand(regions.emplace_back()) || parser.parseKeyword("see") ||
        parseVisibility(parser, see))
      return failure();
    if (succeeded(parser.parseOptionalKeyword("for"))) {
      some = true;
      if (parseClassName(parser, name))
        return failure();
    }
    SMLoc end = parser.getCurrentLocation();
    if (failed(parser.parseOptionalRParen()))
      return parser.emitError(
          end, "expected ')' after the region's visibility, whose parts are joined by '|' or '&'; "
               "each region has parentheses of its own: over (%a see all), (%b see causal)");
    visibilities.push_back(see);
    names.push_back(name);
  } while (succeeded(parser.parseOptionalComma()));
  visibility = parser.getBuilder().getArrayAttr(visibilities);
  if (some)
    classes = parser.getBuilder().getArrayAttr(names);
  return success();
}

static void printRegions(OpAsmPrinter &printer, Operation *op, OperandRange regions, ArrayAttr visibility,
                         ArrayAttr classes) {
  llvm::interleaveComma(llvm::enumerate(regions), printer, [&](auto region) {
    printer << "(" << region.value() << " see ";
    cast<VisibilityAttr>(visibility[region.index()]).printExpression(printer);
    if (classes && !cast<StringAttr>(classes[region.index()]).empty()) {
      printer << " for ";
      printClassName(printer, op, cast<StringAttr>(classes[region.index()]));
    }
    printer << ")";
  });
}

static ParseResult parseHeadClasses(OpAsmParser &parser, HeadClassesAttr &classes) {
  FailureOr<HeadClassesAttr> parsed = HeadClassesAttr::parseClasses(parser);
  if (failed(parsed))
    return failure();
  classes = *parsed;
  return success();
}

static void printHeadClasses(OpAsmPrinter &printer, Operation *, HeadClassesAttr classes) {
  classes.printClasses(printer);
}

/// Parses query `,` region... (`,` classes)? (`,` sinks)? (`,` gate)? (`,` scale)? `->` output (`,` lse)?
/// (`output_scales` scales)?.
static ParseResult parseAttendTypes(OpAsmParser &parser, ArrayRef<OpAsmParser::UnresolvedOperand> regions,
                                    const std::optional<OpAsmParser::UnresolvedOperand> &classes,
                                    const std::optional<OpAsmParser::UnresolvedOperand> &sinks,
                                    const std::optional<OpAsmParser::UnresolvedOperand> &gate,
                                    const std::optional<OpAsmParser::UnresolvedOperand> &outputScale,
                                    Type &queryType, SmallVectorImpl<Type> &regionTypes, Type &classesType,
                                    Type &sinksType, Type &gateType, Type &scaleType, Type &outputType,
                                    Type &lseType, Type &scalesType) {
  SMLoc loc = parser.getCurrentLocation();
  SmallVector<Type> types;
  if (parser.parseTypeList(types))
    return failure();
  size_t expected =
      1 + regions.size() + (classes ? 1 : 0) + (sinks ? 1 : 0) + (gate ? 1 : 0) + (outputScale ? 1 : 0);
  if (types.size() != expected)
    return parser.emitError(loc, "expected ")
           << expected << " operand types (the query, " << regions.size() << " regions"
           << (classes ? ", the head classes" : "") << (sinks ? " and the sink logits" : "")
           << (gate ? " and the gate" : "") << (outputScale ? " and the output scale" : "") << "), got "
           << types.size();
  queryType = types.front();
  auto next = types.begin() + 1 + regions.size();
  regionTypes.append(types.begin() + 1, next);
  if (classes)
    classesType = *next++;
  if (sinks)
    sinksType = *next++;
  if (gate)
    gateType = *next++;
  if (outputScale)
    scaleType = *next;

  if (parser.parseArrow())
    return failure();
  loc = parser.getCurrentLocation();
  SmallVector<Type> results;
  if (parser.parseTypeList(results))
    return failure();
  if (results.size() > 2)
    return parser.emitError(loc, "expected 1 or 2 result types (the output and the LSE), got ")
           << results.size();
  outputType = results.front();
  if (results.size() == 2)
    lseType = results.back();
  return succeeded(parser.parseOptionalKeyword(outputScales)) ? parser.parseType(scalesType) : success();
}

static void printAttendTypes(OpAsmPrinter &printer, Operation *, OperandRange, Value, Value, Value, Value,
                             Type queryType, TypeRange regionTypes, Type classesType, Type sinksType,
                             Type gateType, Type scaleType, Type outputType, Type lseType, Type scalesType) {
  printer << queryType;
  for (Type type : regionTypes)
    printer << ", " << type;
  for (Type type : {classesType, sinksType, gateType, scaleType})
    if (type)
      printer << ", " << type;
  printer << " -> " << outputType;
  if (lseType)
    printer << ", " << lseType;
  if (scalesType)
    printer << ' ' << outputScales << ' ' << scalesType;
}

/// Parses the types of keys, of values if there are any, and of their cache.
static ParseResult parseRowTypes(OpAsmParser &parser, const std::optional<OpAsmParser::UnresolvedOperand> &v,
                                 Type &k, Type &vType, Type &cache) {
  KVType kv;
  if (parser.parseType(k) || (v && (parser.parseComma() || parser.parseType(vType))) || parser.parseComma() ||
      parser.parseCustomTypeWithFallback(kv))
    return failure();
  cache = kv;
  return success();
}

static void printRowTypes(OpAsmPrinter &printer, Operation *, Value v, Type k, Type vType, Type cache) {
  printer << k << ", ";
  if (v)
    printer << vType << ", ";
  printer.printStrippedAttrOrType(cast<KVType>(cache));
}

#define GET_OP_CLASSES
#include "attn/Dialect/Attn/IR/AttnOps.cpp.inc"

//===----------------------------------------------------------------------===//
// attend
//===----------------------------------------------------------------------===//

FloatAttr AttendOp::getDefaultScale(MLIRContext *context, int64_t keyDim) {
  return FloatAttr::get(Float32Type::get(context), 1.0 / std::sqrt(double(keyDim)));
}

FloatAttr AttendOp::getScaleOrDefault() {
  FloatAttr scale = getScaleAttr();
  return scale ? scale : getDefaultScale(getContext(), getKeyDim());
}

int64_t AttendOp::getKVHeads() {
  for (unsigned i = 0, e = getRegions().size(); i != e; ++i)
    if (!getRegionType(i).isOfClass())
      return getRegionType(i).getHeads();
  return detail::kvHeadsOf(getRegionType(0), getClasses());
}

StringAttr AttendOp::getRegionClass(unsigned i) {
  ArrayAttr classes = getRegionClassesAttr();
  return classes && !cast<StringAttr>(classes[i]).empty() ? cast<StringAttr>(classes[i]) : StringAttr();
}

LogicalResult AttendOp::verifyRegion(unsigned i) {
  KVType region = getRegionType(i), first = getRegionType(0);
  if (failed(detail::verifyRegionClass(*this, region, getRegionClass(i), getHeadClassesAttr())))
    return failure();
  int64_t heads = region.isOfClass() ? getKVHeads() : region.getHeads();
  if (heads != getKVHeads() || region.getKeyDim() != first.getKeyDim() ||
      region.getValueDim() != first.getValueDim()) {
    InFlightDiagnostic error = emitOpError("expected all regions to have the heads and dims of the first, ");
    error << getKVHeads() << " heads of " << first.getKeyDim() << "/" << first.getValueDim() << ", got "
          << heads << " heads of " << region.getKeyDim() << "/" << region.getValueDim();
    return error << " in region " << i;
  }
  for (unsigned before = 0; before < i; ++before)
    if (getRegions()[before] == getRegions()[i] && getRegionClass(before) != getRegionClass(i))
      return emitOpError("expected a store to hold the heads of one class, got the same for '")
             << getRegionClass(before).getValue() << "' in region " << before << " and for '"
             << getRegionClass(i).getValue() << "' in region " << i;
  return detail::verifyRegion(*this, getQueryType(), region, heads);
}

LogicalResult AttendOp::verify() {
  if (getRegions().empty())
    return emitOpError("expected at least one region, got none");
  if (getVisibility().size() != getRegions().size())
    return emitOpError("expected one visibility per region, ")
           << getRegions().size() << ", got " << getVisibility().size();
  if (getRegionClassesAttr() && getRegionClassesAttr().size() != getRegions().size())
    return emitOpError("expected one class name per region, ")
           << getRegions().size() << ", got " << getRegionClassesAttr().size();
  if (failed(detail::verifyQuery(*this, "query", getQuery().getType())))
    return failure();
  for (unsigned i = 0, e = getRegions().size(); i != e; ++i)
    if (failed(verifyRegion(i)))
      return failure();
  if (failed(detail::verifyOutput(*this, getOutput().getType(), getQueryHeads(), getValueDim())))
    return failure();
  if (failed(detail::verifyOutputScale(*this, getOutputScale(), getOutput().getType(),
                                       getOutputScales() != nullptr)))
    return failure();
  if (getOutputScales() &&
      failed(detail::verifyOutputScales(*this, getOutputScales().getType(), getQueryHeads(), getValueDim())))
    return failure();
  if (!getOutputScale() && !getOutputScales() &&
      getOutputType().getElementType() != getQueryType().getElementType())
    return emitOpError("expected output elements of the query's type, ")
           << getQueryType().getElementType() << ", got " << getOutputType().getElementType();
  if (getLse() && failed(detail::verifyLse(*this, getLse().getType(), getQueryHeads())))
    return failure();
  if (failed(detail::verifyClasses(*this, getClasses(), getHeadClassesAttr(), getKVHeads())))
    return failure();
  if (getSinks() && failed(detail::verifySinks(*this, getSinks().getType(), getQueryHeads())))
    return failure();
  if (getGate() && failed(detail::verifyGate(*this, getGate().getType(), getOutput().getType(),
                                             getQueryType().getElementType())))
    return failure();
  if (std::optional<APFloat> scale = getScale())
    return detail::verifyScale(*this, *scale);
  return success();
}

LogicalResult AttendOp::verifyRegions() { return detail::verifyScore(*this, getScore()); }

//===----------------------------------------------------------------------===//
// read
//===----------------------------------------------------------------------===//

LogicalResult ReadOp::verify() {
  auto type = cast<RankedTensorType>(getTensor().getType());
  if (!type.getElementType().isF32() || type.getEncoding())
    return emitOpError("expected a tensor of f32, got ") << type;
  if (type.getRank() == 0 || llvm::is_contained(type.getShape(), 0))
    return emitOpError("expected a tensor of one or more dimensions, none of them 0, got ") << type;
  if (int64_t(getIndices().size()) != type.getRank())
    return emitOpError("expected one index per dimension, ")
           << type.getRank() << ", got " << getIndices().size();
  auto argument = dyn_cast<BlockArgument>(getTensor());
  if (!argument || !isa<FunctionOpInterface>(argument.getOwner()->getParentOp()))
    return emitOpError("expected the tensor to be an argument of the function");
  if (!isa_and_nonnull<AttendOp, UpdateOp>((*this)->getParentOp()))
    return emitOpError("expected to be in a score region");
  return success();
}
