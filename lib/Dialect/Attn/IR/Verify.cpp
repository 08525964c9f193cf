//===- Verify.cpp - Common parts of verifiers -----------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Verify.h"

#include "attn/Dialect/Attn/IR/Stores.h"

using namespace mlir;
using namespace mlir::attn;

LogicalResult mlir::attn::detail::verifyHeads(EmitError emitError, StringRef what, int64_t heads) {
  if (heads >= 1 && heads <= kMaxHeads)
    return success();
  return emitError() << "expected " << what << " from 1 to " << kMaxHeads << ", got " << heads
                     << "; nearest legal: " << (heads < 1 ? 1 : kMaxHeads);
}

/// Verifies a multiple of 8 from 8 to 256, or of `step` up to `most`.
static LogicalResult verifyDim(mlir::attn::detail::EmitError emitError, StringRef what, int64_t dim,
                               int64_t step, int64_t most) {
  constexpr int64_t simple = mlir::attn::detail::mostSimpleDim;
  int64_t unit = dim <= simple ? 8 : step;
  if (dim >= 8 && dim <= most && dim % unit == 0)
    return success();
  InFlightDiagnostic error = emitError() << "expected " << what << " to be a multiple of 8 from 8 to "
                                         << simple << ", or of " << step << " up to " << most << ", got "
                                         << dim << "; nearest legal: ";
  if (dim < 8)
    return error << 8;
  if (dim > most)
    return error << most;
  return error << dim / unit * unit << " or " << dim / unit * unit + unit;
}

LogicalResult mlir::attn::detail::verifyKeyDim(EmitError emitError, StringRef what, int64_t dim) {
  return verifyDim(emitError, what, dim, /*step=*/32, /*most=*/576);
}

LogicalResult mlir::attn::detail::verifyValueDim(EmitError emitError, StringRef what, int64_t dim) {
  return verifyDim(emitError, what, dim, /*step=*/128, /*most=*/512);
}

int64_t mlir::attn::detail::nearestValueDim(int64_t most) {
  return std::min<int64_t>(most <= mostSimpleDim ? most / 8 * 8 : most / 128 * 128, 512);
}

LogicalResult mlir::attn::detail::verifyElement(EmitError emitError, StringRef what, Type type) {
  if (isMultiplied(type))
    return success();
  return emitError() << "expected " << what << " to be f16 or bf16, got " << type;
}

LogicalResult mlir::attn::detail::verifyStored(EmitError emitError, StringRef what, Type type, int64_t dim) {
  if (!isa<QuantizedType>(type) && !isMultiplied(type))
    return emitError()
           << "expected " << what
           << " elements to be f16 or bf16, or quantized as in !attn.quantized<i8, per = 128>, got " << type;
  std::string fault = formatOf(type).faultOf(dim);
  if (fault.empty())
    return success();
  return emitError() << what << "s: " << fault;
}

LogicalResult mlir::attn::detail::verifyQuery(Operation *op, StringRef what, Type type) {
  auto emitError = [&] { return op->emitOpError(); };
  auto tensor = dyn_cast<RankedTensorType>(type);
  if (!tensor || tensor.getRank() != 3 || tensor.getEncoding() || !tensor.isDynamicDim(0) ||
      tensor.isDynamicDim(1) || tensor.isDynamicDim(2))
    return emitError() << "expected " << what
                       << " to be tensor<?x(heads)x(dim)x(type)>, rows dynamic and the rest "
                       << "static, got " << type;
  if (failed(verifyElement(emitError, (what + " elements").str(), tensor.getElementType())) ||
      failed(verifyHeads(emitError, (what + " heads").str(), tensor.getDimSize(1))))
    return failure();
  return verifyKeyDim(emitError, (what + " dim").str(), tensor.getDimSize(2));
}

int64_t mlir::attn::detail::kvHeadsOf(KVType region, Value classes) {
  if (!region.isOfClass())
    return region.getHeads();
  auto tensor = classes ? dyn_cast<RankedTensorType>(classes.getType()) : RankedTensorType();
  return tensor && tensor.getRank() == 1 && !tensor.isDynamicDim(0) ? tensor.getDimSize(0) : 0;
}

LogicalResult mlir::attn::detail::verifyRegionClass(Operation *op, KVType region, StringAttr name,
                                                    HeadClassesAttr classes) {
  if (!name) {
    if (!region.isOfClass())
      return success();
    return op->emitOpError("expected a number of KV heads in a region that all KV heads see, got ")
           << region << "; heads = ? is a region of one class, see ... for CLASS";
  }
  if (!classes)
    return op->emitOpError("expected head classes, as in heads %classes {")
           << name.getValue() << ": see all}, beside a region for '" << name.getValue() << "'";
  if (!llvm::is_contained(classes.getNames(), name)) {
    auto nearest = llvm::min_element(classes.getNames(), [&](StringAttr a, StringAttr b) {
      return a.getValue().edit_distance(name.getValue()) < b.getValue().edit_distance(name.getValue());
    });
    InFlightDiagnostic error = op->emitOpError("expected a region for one of the head classes ");
    llvm::interleaveComma(classes.getNames(), error, [&](StringAttr known) { error << known.getValue(); });
    return error << ", got '" << name.getValue() << "'; nearest legal: " << nearest->getValue();
  }
  if (!region.isOfClass())
    return op->emitOpError("expected a region for '")
           << name.getValue() << "' to have heads = ?, the heads that the assignment gives the class; "
           << "got heads = " << region.getHeads();
  return success();
}

LogicalResult mlir::attn::detail::verifyRegion(Operation *op, RankedTensorType query, KVType region,
                                               int64_t heads) {
  int64_t queryHeads = query.getDimSize(1);
  if (heads < 1)
    return op->emitOpError("expected one or more KV heads, got ") << heads;
  if (queryHeads % heads != 0) {
    InFlightDiagnostic error = op->emitOpError("expected query heads to be a multiple of the ")
                               << heads << " KV heads, got " << queryHeads << "; nearest legal: ";
    int64_t below = queryHeads / heads * heads;
    if (below > 0)
      error << below << " or ";
    return error << below + heads;
  }
  if (query.getDimSize(2) != region.getKeyDim())
    return op->emitOpError("expected the query dim to be the key dim, ")
           << region.getKeyDim() << ", got " << query.getDimSize(2);
  for (auto [what, type] : {std::pair("key", region.getKey()), std::pair("value", region.getValue())})
    if (type != query.getElementType() && !isa<QuantizedType>(type))
      return op->emitOpError("expected ")
             << what << " elements of the query's type, " << query.getElementType() << ", got " << type;
  auto codes = dyn_cast<QuantizedType>(region.getKey());
  if (codes && codes.getRest() && !query.getElementType().isBF16())
    return op->emitOpError("expected queries of bf16 beside keys whose last ")
           << codes.getRest() << " features are bf16, got " << query.getElementType();
  return success();
}

LogicalResult mlir::attn::detail::verifyOutput(Operation *op, Type output, int64_t heads, int64_t valueDim) {
  auto tensor = dyn_cast<RankedTensorType>(output);
  int64_t expected[] = {ShapedType::kDynamic, heads, valueDim};
  if (!tensor || tensor.getEncoding() || tensor.getShape() != ArrayRef(expected))
    return op->emitOpError("expected the output to be tensor<?x")
           << heads << "x" << valueDim << "x(type)>, got " << output;
  if (isa<Float8E4M3FNType>(tensor.getElementType()))
    return success(); // verifyOutputScale
  return verifyElement([&] { return op->emitOpError(); }, "output elements", tensor.getElementType());
}

LogicalResult mlir::attn::detail::verifyOutputScale(Operation *op, Value scale, Type output,
                                                    bool returnsScales) {
  Type element = cast<RankedTensorType>(output).getElementType();
  auto expected = RankedTensorType::get({1}, Float32Type::get(op->getContext()));
  if (scale && returnsScales)
    return op->emitOpError("expected output_scale, a scale that is given, or output_scales, which are "
                           "results, got both");
  if (isa<Float8E4M3FNType>(element)) {
    if (returnsScales || (scale && scale.getType() == expected))
      return success();
    InFlightDiagnostic error = op->emitOpError("expected an output of f8E4M3FN to have an output_scale of ")
                               << expected << ", by which outputs are divided, or output_scales, got ";
    return scale ? error << scale.getType() : error << "none";
  }
  if (!scale && !returnsScales)
    return success();
  return op->emitOpError("expected an output of f8E4M3FN beside output_scale")
         << (returnsScales ? "s" : "") << ", got " << element << "; nearest legal: "
         << RankedTensorType::get(cast<RankedTensorType>(output).getShape(),
                                  Float8E4M3FNType::get(op->getContext()));
}

LogicalResult mlir::attn::detail::verifyOutputScales(Operation *op, Type scales, int64_t heads,
                                                     int64_t valueDim) {
  auto expected = RankedTensorType::get({ShapedType::kDynamic, heads}, Float32Type::get(op->getContext()));
  if (scales != expected)
    return op->emitOpError("expected output_scales to be ") << expected << ", got " << scales;
  if (valueDim <= mostSimpleDim)
    return success();
  return op->emitOpError("expected values of up to ")
         << mostSimpleDim << " features beside output_scales, as warps share the rows of longer values, got "
         << valueDim << "; nearest legal: output_scale, a scale that is given";
}

LogicalResult mlir::attn::detail::verifyLse(Operation *op, Type lse, int64_t heads) {
  auto expected = RankedTensorType::get({ShapedType::kDynamic, heads}, Float32Type::get(op->getContext()));
  // The text may leave the number of heads to the query.
  if (lse == expected || lse == RankedTensorType::get({ShapedType::kDynamic, ShapedType::kDynamic},
                                                      Float32Type::get(op->getContext())))
    return success();
  return op->emitOpError("expected the LSE to be ") << expected << ", got " << lse;
}

LogicalResult mlir::attn::detail::verifySinks(Operation *op, Type sinks, int64_t heads) {
  auto expected = RankedTensorType::get({heads}, Float32Type::get(op->getContext()));
  if (sinks == expected)
    return success();
  return op->emitOpError("expected the sink logits to be ")
         << expected << ", one per query head, got " << sinks;
}

LogicalResult mlir::attn::detail::verifyGate(Operation *op, Type gate, Type output, Type element) {
  auto of = cast<RankedTensorType>(output);
  if (!element)
    element = isMultiplied(of.getElementType()) || !isMultiplied(getElementTypeOrSelf(gate))
                  ? of.getElementType()
                  : getElementTypeOrSelf(gate);
  auto byFeature = RankedTensorType::get(of.getShape(), element);
  auto byHead = RankedTensorType::get(of.getShape().drop_back(), element);
  if (gate == byFeature || gate == byHead)
    return success();
  return op->emitOpError("expected the gate to be ")
         << byFeature << ", one number per feature, or " << byHead << ", one per head, got " << gate;
}

LogicalResult mlir::attn::detail::verifyClasses(Operation *op, Value tensor, HeadClassesAttr classes,
                                                int64_t heads) {
  if (bool(tensor) != bool(classes))
    return op->emitOpError("expected head classes and the tensor that assigns heads to them, got ")
           << (tensor ? "only the tensor" : "only the classes");
  auto expected = RankedTensorType::get({heads}, IntegerType::get(op->getContext(), 32));
  if (!tensor || tensor.getType() == expected)
    return success();
  return op->emitOpError("expected the head classes to be assigned by ")
         << expected << ", one element per KV head, got " << tensor.getType();
}

LogicalResult mlir::attn::detail::verifyScale(Operation *op, APFloat scale) {
  if (scale.isFinite() && !scale.isZero() && !scale.isNegative())
    return success();
  SmallString<16> text;
  scale.toString(text);
  return op->emitOpError("expected a scale that is positive and finite, got ") << text;
}
