//===- LowerToAsm.cpp - Machine operations that NVVM lacks, as PTX text ---===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// The last step before LLVM. wgmma with its left operand in registers, the wait that returns its
// accumulators, and movmatrix become inline assembly whose inputs are tied to its outputs. Quantized elements
// get the exponent of their floats by a mask with one constant and an or with another: one instruction that
// ptxas does not find, since it uses two, with a constant each. Nothing else runs between this and
// instruction selection, so the text never blocks a rewrite. The host device executes the machine level and
// never sees it.
//
//===----------------------------------------------------------------------===//
#include "attn/Target/PTX.h"

#include "attn/Dialect/Tile/IR/Tile.h"
#include "attn/Support/Elements.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/PatternMatch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

/// Returns `{$first, ..., $first+count-1}`.
static std::string registerList(size_t first, size_t count) {
  std::string text = "{";
  for (size_t i = 0; i < count; ++i)
    text += (i ? ", $" : "$") + std::to_string(first + i);
  return text + "}";
}

/// Returns `=f` for each output, inputs tied to outputs 0 ... tied-1, then `rest`.
static std::string constraintList(size_t outputs, size_t tied, StringRef rest) {
  std::string text;
  for (size_t i = 0; i < outputs; ++i)
    text += "=f,";
  for (size_t i = 0; i < tied; ++i)
    text += std::to_string(i) + ",";
  text += rest;
  if (!text.empty() && text.back() == ',')
    text.pop_back();
  return text;
}

/// Replaces `op` by inline assembly with the results of the operation.
static void replaceByAsm(RewriterBase &rewriter, Operation *op, ValueRange operands, StringRef text,
                         StringRef constraints) {
  Location loc = op->getLoc();
  SmallVector<Type> types(op->getResultTypes());
  auto structType = LLVM::LLVMStructType::getLiteral(op->getContext(), types);
  Type result = types.size() == 1 ? types.front() : Type(structType);
  auto assembly = LLVM::InlineAsmOp::create(
      rewriter, loc, result, operands, text, constraints, /*has_side_effects=*/true, /*is_align_stack=*/false,
      LLVM::tailcallkind::TailCallKind::None,
      LLVM::AsmDialectAttr::get(op->getContext(), LLVM::AsmDialect::AD_ATT), ArrayAttr());
  SmallVector<Value> results;
  for (size_t i = 0; i < types.size(); ++i)
    results.push_back(types.size() == 1
                          ? assembly.getResult(0)
                          : LLVM::ExtractValueOp::create(rewriter, loc, assembly.getResult(0), i));
  rewriter.replaceOp(op, results);
}

static void lowerWgmma(RewriterBase &rewriter, tile::WgmmaOp op) {
  size_t n = op.getResults().size(), tied = op.getAcc().size(), next = n + tied;
  SmallVector<Value> operands(op.getAcc());
  std::string element(mlir::attn::elementOf(op.getElement()).name); // PTX has the same names for both types
  std::string text = "wgmma.mma_async.sync.aligned.m64n" + std::to_string(op.getN()) + "k16.f32." + element +
                     "." + element + " " + registerList(0, n) + ", ";
  std::string rest;
  if (op.getLhsDescriptor()) {
    text += "$" + std::to_string(next++);
    operands.push_back(op.getLhsDescriptor());
    rest = "l,l";
  } else {
    text += registerList(next, 4);
    next += 4;
    llvm::append_range(operands, op.getLhs());
    rest = "r,r,r,r,l";
  }
  operands.push_back(op.getRhsDescriptor());
  text += ", $" + std::to_string(next) + (tied ? ", 1" : ", 0") + ", 1, 1" +
          (op.getLhsDescriptor() ? op.getLhsTransposed() ? ", 1" : ", 0" : "") +
          (op.getTransposed() ? ", 1;" : ", 0;");
  replaceByAsm(rewriter, op, operands, text, constraintList(n, tied, rest));
}

static void lowerWait(RewriterBase &rewriter, tile::WgmmaWaitOp op) {
  size_t n = op.getRegisters().size();
  std::string text = "wgmma.wait_group.sync.aligned " + std::to_string(op.getPending()) + ";";
  replaceByAsm(rewriter, op, op.getRegisters(), text, constraintList(n, n, ""));
}

static std::optional<uint32_t> constantOf(Value value) {
  auto constant = value.getDefiningOp<LLVM::ConstantOp>();
  auto attribute = constant ? dyn_cast<IntegerAttr>(constant.getValue()) : IntegerAttr();
  if (!attribute || !value.getType().isInteger(32))
    return std::nullopt;
  return static_cast<uint32_t>(attribute.getValue().getZExtValue());
}

/// Returns a constant of two equal halves.
static std::optional<uint32_t> twiceInConstant(Value value) {
  std::optional<uint32_t> bits = constantOf(value);
  return bits && *bits >> 16 == (*bits & 0xffff) ? bits : std::nullopt;
}

static void replaceByLop3(RewriterBase &rewriter, LLVM::OrOp op, ValueRange operands,
                          const std::string &text) {
  rewriter.setInsertionPoint(op);
  rewriter.replaceOpWithNewOp<LLVM::InlineAsmOp>(
      op, op.getType(), operands, text, operands.size() == 1 ? "=r,r" : "=r,r,r", /*has_side_effects=*/false,
      /*is_align_stack=*/false, LLVM::tailcallkind::TailCallKind::None,
      LLVM::AsmDialectAttr::get(op.getContext(), LLVM::AsmDialect::AD_ATT), ArrayAttr());
}

/// Lowers (x & mask) | bits, of both halves of a register.
static bool lowerMaskedHalves(RewriterBase &rewriter, LLVM::OrOp op) {
  auto masked = op.getLhs().getDefiningOp<LLVM::AndOp>();
  std::optional<uint32_t> bits = twiceInConstant(op.getRhs());
  std::optional<uint32_t> mask = masked ? twiceInConstant(masked.getRhs()) : std::nullopt;
  if (!bits || !mask)
    return false;
  constexpr StringLiteral andThenOr = "0xEA";
  replaceByLop3(rewriter, op, masked.getLhs(),
                llvm::formatv("lop3.b32 $0, $1, {0}, {1}, {2};", *mask, *bits, andThenOr).str());
  return true;
}

/// Lowers (x & mask) | (y & ~mask). LLVM drops bits of either mask that it knows to be zero; ptxas then does
/// not recognize a selection.
static bool lowerChoice(RewriterBase &rewriter, LLVM::OrOp op) {
  auto first = op.getLhs().getDefiningOp<LLVM::AndOp>(), second = op.getRhs().getDefiningOp<LLVM::AndOp>();
  std::optional<uint32_t> mask = first ? constantOf(first.getRhs()) : std::nullopt;
  std::optional<uint32_t> others = second ? constantOf(second.getRhs()) : std::nullopt;
  if (!mask || !others || *mask != ~*others)
    return false;
  constexpr StringLiteral choose = "0xE4";
  replaceByLop3(rewriter, op, {first.getLhs(), second.getLhs()},
                llvm::formatv("lop3.b32 $0, $1, $2, {0}, {1};", *mask, choose).str());
  return true;
}

void mlir::attn::lowerToAsm(gpu::GPUModuleOp module) {
  IRRewriter rewriter(module.getContext());
  SmallVector<LLVM::OrOp> joined;
  module.walk([&](LLVM::OrOp op) { joined.push_back(op); });
  for (LLVM::OrOp op : joined)
    lowerMaskedHalves(rewriter, op) || lowerChoice(rewriter, op);
  SmallVector<Operation *> found;
  module.walk([&](Operation *op) {
    if (isa<tile::MoveMatrixOp, tile::WgmmaOp, tile::WgmmaWaitOp>(op))
      found.push_back(op);
  });
  for (Operation *op : found) {
    rewriter.setInsertionPoint(op);
    if (auto wgmma = dyn_cast<tile::WgmmaOp>(op))
      lowerWgmma(rewriter, wgmma);
    else if (isa<tile::MoveMatrixOp>(op))
      replaceByAsm(rewriter, op, op->getOperands(), "movmatrix.sync.aligned.m8n8.trans.b16 $0, $1;", "=r,r");
    else
      lowerWait(rewriter, cast<tile::WgmmaWaitOp>(op));
  }
}
