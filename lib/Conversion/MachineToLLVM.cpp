//===- MachineToLLVM.cpp - The last step to the machine level -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Attn/IR/Attn.h"
#include "attn/Dialect/Tile/IR/Tile.h"

#include "mlir/Conversion/ArithCommon/AttrToLLVMConverter.h"
#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlowOps.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Rewrite/PatternApplicator.h"
#include "mlir/Transforms/DialectConversion.h"

namespace mlir::attn {
#define GEN_PASS_DEF_MACHINETOLLVMPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;

namespace {

/// Replaces a kernel function by an `llvm.func` with the launch bounds of its schedule.
void replaceKernel(func::FuncOp op) {
  OpBuilder b(op);
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(op.getContext()), op.getArgumentTypes());
  auto kernel = LLVM::LLVMFuncOp::create(b, op.getLoc(), op.getName(), type);
  int32_t threads = tile::threadsAttr.get(op).getInt();
  kernel->setAttr(gpu::GPUDialect::getKernelFuncAttrName(), b.getUnitAttr());
  kernel->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), b.getUnitAttr());
  kernel->setAttr(NVVM::NVVMDialect::getReqntidAttrName(), b.getDenseI32ArrayAttr({threads}));
  if (auto blocks = tile::blocksPerSMAttr.get(op))
    kernel->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), b.getI32IntegerAttr(blocks.getInt()));
  for (NamedAttribute attribute : op->getDiscardableAttrs())
    if (attribute.getName().strref().starts_with("tile.") || attribute.getName() == StringRef(numericsAttr))
      kernel->setAttr(attribute.getName(), attribute.getValue());
  // Tensors never overlap what a kernel writes, and LLVM may use that. Generic pointers are tensor maps: 128
  // bytes of the parameters themselves.
  for (auto [i, argument] : llvm::enumerate(op.getArgumentTypes())) {
    auto pointer = dyn_cast<LLVM::LLVMPointerType>(argument);
    if (pointer && pointer.getAddressSpace() == 0) {
      kernel.setArgAttr(i, LLVM::LLVMDialect::getByValAttrName(),
                        TypeAttr::get(LLVM::LLVMArrayType::get(b.getI8Type(), 128)));
      kernel.setArgAttr(i, LLVM::LLVMDialect::getAlignAttrName(), b.getI32IntegerAttr(64));
      kernel.setArgAttr(i, NVVM::NVVMDialect::getGridConstantAttrName(), b.getUnitAttr());
    } else if (pointer) {
      kernel.setArgAttr(i, LLVM::LLVMDialect::getNoAliasAttrName(), b.getUnitAttr());
    }
  }
  kernel.getBody().takeBody(op.getBody());
  op.erase();
}

/// Replaces `op` by `to`, which stands before it and has its results.
void finishReplacing(Operation *op, Operation *to) {
  if (DictionaryAttr attributes = op->getDiscardableAttrDictionary(); !attributes.empty())
    to->setDiscardableAttrs(attributes);
  op->replaceAllUsesWith(to);
  op->erase();
}

/// Replaces an operation that is the same in two dialects, `From` and `To`.
template <typename From, typename To> void replaceBy(Operation *operation, OpBuilder &b) {
  auto op = cast<From>(operation);
  auto to = To::create(b, op.getLoc(), op->getResultTypes(), op->getOperands());
  if constexpr (requires {
                  op.getFastmath();
                  to.getFastmathFlags();
                })
    to.setFastmathFlags(arith::convertArithFastMathFlagsToLLVM(op.getFastmath()));
  if constexpr (requires {
                  op.getOverflowFlags();
                  to.getOverflowFlags();
                })
    to.setOverflowFlags(arith::convertArithOverflowFlagsToLLVM(op.getOverflowFlags()));
  if constexpr (requires {
                  op.getIsExact();
                  to.getIsExact();
                })
    to.setIsExact(op.getIsExact());
  if constexpr (requires {
                  op.getNonNeg();
                  to.getNonNeg();
                })
    to.setNonNeg(op.getNonNeg());
  finishReplacing(op, to);
}
template <> void replaceBy<arith::ConstantOp, LLVM::ConstantOp>(Operation *op, OpBuilder &b) {
  finishReplacing(op, LLVM::ConstantOp::create(b, op->getLoc(), op->getResult(0).getType(),
                                               cast<arith::ConstantOp>(op).getValue()));
}
template <> void replaceBy<arith::CmpIOp, LLVM::ICmpOp>(Operation *operation, OpBuilder &b) {
  auto op = cast<arith::CmpIOp>(operation);
  auto predicate = static_cast<LLVM::ICmpPredicate>(op.getPredicate());
  finishReplacing(op, LLVM::ICmpOp::create(b, op.getLoc(), predicate, op.getLhs(), op.getRhs()));
}
template <> void replaceBy<cf::BranchOp, LLVM::BrOp>(Operation *operation, OpBuilder &b) {
  auto op = cast<cf::BranchOp>(operation);
  finishReplacing(op, LLVM::BrOp::create(b, op.getLoc(), op.getDestOperands(), op.getDest()));
}
template <> void replaceBy<cf::CondBranchOp, LLVM::CondBrOp>(Operation *operation, OpBuilder &b) {
  auto op = cast<cf::CondBranchOp>(operation);
  finishReplacing(op, LLVM::CondBrOp::create(b, op.getLoc(), op.getCondition(), op.getTrueDest(),
                                             op.getTrueDestOperands(), op.getFalseDest(),
                                             op.getFalseDestOperands()));
}
template <> void replaceBy<func::ReturnOp, LLVM::ReturnOp>(Operation *op, OpBuilder &b) {
  finishReplacing(op, LLVM::ReturnOp::create(b, op->getLoc(), ValueRange()));
}

/// The operations that kernels have many of, and how each is replaced. MLIR's conversion takes four times as
/// long.
class Replacements {
public:
  Replacements() {
    add<arith::ConstantOp, LLVM::ConstantOp>();
    add<arith::AddIOp, LLVM::AddOp>();
    add<arith::SubIOp, LLVM::SubOp>();
    add<arith::MulIOp, LLVM::MulOp>();
    add<arith::AndIOp, LLVM::AndOp>();
    add<arith::OrIOp, LLVM::OrOp>();
    add<arith::XOrIOp, LLVM::XOrOp>();
    add<arith::ShLIOp, LLVM::ShlOp>();
    add<arith::ShRUIOp, LLVM::LShrOp>();
    add<arith::MinSIOp, LLVM::SMinOp>();
    add<arith::MaxSIOp, LLVM::SMaxOp>();
    add<arith::CmpIOp, LLVM::ICmpOp>();
    add<arith::SelectOp, LLVM::SelectOp>();
    add<arith::ExtSIOp, LLVM::SExtOp>();
    add<arith::ExtUIOp, LLVM::ZExtOp>();
    add<arith::TruncIOp, LLVM::TruncOp>();
    add<arith::ExtFOp, LLVM::FPExtOp>();
    add<arith::AddFOp, LLVM::FAddOp>();
    add<arith::SubFOp, LLVM::FSubOp>();
    add<arith::MulFOp, LLVM::FMulOp>();
    add<arith::MaxNumFOp, LLVM::MaxNumOp>();
    add<arith::BitcastOp, LLVM::BitcastOp>();
    add<cf::BranchOp, LLVM::BrOp>();
    add<cf::CondBranchOp, LLVM::CondBrOp>();
    add<func::ReturnOp, LLVM::ReturnOp>();
  }
  /// Replaces the operation if it is one of these; returns whether it did.
  bool apply(Operation *op) const {
    auto known = functions.find(op->getName().getTypeID());
    if (known == functions.end())
      return false;
    OpBuilder b(op);
    known->second(op, b);
    return true;
  }

private:
  template <typename From, typename To> void add() { functions[TypeID::get<From>()] = replaceBy<From, To>; }
  DenseMap<TypeID, void (*)(Operation *, OpBuilder &)> functions;
};

struct MachineToLLVM : mlir::attn::impl::MachineToLLVMPassBase<MachineToLLVM> {
  void runOnOperation() override {
    MLIRContext *context = &getContext();
    for (auto kernel : getOperation().getOps<func::FuncOp>()) {
      if (tile::threadsAttr.isOn(kernel) && kernel.getNumResults() == 0 && !kernel.isExternal()) {
        ++kernels;
        continue;
      }
      kernel.emitError("expected a kernel: a function with a body, without results and with tile.threads");
      return signalPassFailure();
    }
    replaceStructures();
    // MLIR's conversion takes the remaining operations.
    const Replacements replacements;
    SmallVector<Operation *> rest;
    getOperation().walk([&](Operation *op) {
      if (!replacements.apply(op) && !isLegal(op))
        rest.push_back(op);
    });
    for (auto kernel : llvm::make_early_inc_range(getOperation().getOps<func::FuncOp>()))
      replaceKernel(kernel);
    if (rest.empty())
      return;
    LLVMTypeConverter converter(context);
    RewritePatternSet patterns(context);
    arith::populateArithToLLVMConversionPatterns(converter, patterns);
    cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
    ConversionTarget target(*context);
    target.markUnknownOpDynamicallyLegal(isLegal);
    ConversionConfig config;
    config.allowPatternRollback = false;
    if (failed(applyFullConversion(rest, target, std::move(patterns), config)))
      signalPassFailure();
  }

private:
  static bool isLegal(Operation *op) {
    return isa<LLVM::LLVMDialect, NVVM::NVVMDialect>(op->getDialect()) ||
           isa<gpu::GPUModuleOp, func::FuncOp, tile::MoveMatrixOp, tile::WgmmaOp, tile::WgmmaWaitOp>(op);
  }

  /// Turns loops and branches into blocks, inner ones before those around them.
  void replaceStructures() {
    SmallVector<Operation *> found;
    getOperation().walk([&](Operation *op) {
      if (isa<scf::SCFDialect>(op->getDialect()) && op->getNumRegions() != 0)
        found.push_back(op);
      structures += isa<scf::ForOp, scf::IfOp>(op);
    });
    RewritePatternSet patterns(&getContext());
    populateSCFToControlFlowConversionPatterns(patterns);
    const FrozenRewritePatternSet frozen(std::move(patterns));
    PatternApplicator applicator(frozen);
    applicator.applyDefaultCostModel();
    PatternRewriter rewriter(&getContext());
    for (Operation *op : found) {
      rewriter.setInsertionPoint(op);
      if (failed(applicator.matchAndRewrite(op, rewriter)))
        return signalPassFailure();
    }
  }
};

} // namespace
