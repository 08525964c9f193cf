//===- MachineToLLVM.cpp - The last step to the machine level -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Conversion/Passes.h"
#include "attn/Dialect/Tile/IR/Tile.h"

#include "mlir/Conversion/ArithToLLVM/ArithToLLVM.h"
#include "mlir/Conversion/ControlFlowToLLVM/ControlFlowToLLVM.h"
#include "mlir/Conversion/LLVMCommon/TypeConverter.h"
#include "mlir/Conversion/SCFToControlFlow/SCFToControlFlow.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Transforms/DialectConversion.h"

namespace mlir::attn {
#define GEN_PASS_DEF_MACHINETOLLVMPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::attn;

namespace {

/// A kernel function becomes an `llvm.func` with the launch bounds of its schedule.
struct KernelPattern : OpConversionPattern<func::FuncOp> {
  using OpConversionPattern::OpConversionPattern;
  LogicalResult matchAndRewrite(func::FuncOp op, OpAdaptor,
                                ConversionPatternRewriter &rewriter) const override {
    auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(getContext()), op.getArgumentTypes());
    auto kernel = LLVM::LLVMFuncOp::create(rewriter, op.getLoc(), op.getName(), type);
    int32_t threads = tile::threadsAttr.get(op).getInt();
    kernel->setAttr(gpu::GPUDialect::getKernelFuncAttrName(), rewriter.getUnitAttr());
    kernel->setAttr(NVVM::NVVMDialect::getKernelFuncAttrName(), rewriter.getUnitAttr());
    kernel->setAttr(NVVM::NVVMDialect::getReqntidAttrName(), rewriter.getDenseI32ArrayAttr({threads}));
    if (auto blocks = tile::blocksPerSMAttr.get(op))
      kernel->setAttr(NVVM::NVVMDialect::getMinctasmAttrName(), rewriter.getI32IntegerAttr(blocks.getInt()));
    for (NamedAttribute attribute : op->getDiscardableAttrs())
      if (attribute.getName().strref().starts_with("tile."))
        kernel->setAttr(attribute.getName(), attribute.getValue());
    // Tensors never overlap what a kernel writes, and LLVM may use it.
    // Generic pointers are tensor maps: 128 bytes of the parameters themselves.
    for (auto [i, argument] : llvm::enumerate(op.getArgumentTypes())) {
      auto pointer = dyn_cast<LLVM::LLVMPointerType>(argument);
      if (pointer && pointer.getAddressSpace() == 0) {
        kernel.setArgAttr(i, LLVM::LLVMDialect::getByValAttrName(),
                          TypeAttr::get(LLVM::LLVMArrayType::get(rewriter.getI8Type(), 128)));
        kernel.setArgAttr(i, LLVM::LLVMDialect::getAlignAttrName(), rewriter.getI32IntegerAttr(64));
        kernel.setArgAttr(i, NVVM::NVVMDialect::getGridConstantAttrName(), rewriter.getUnitAttr());
      } else if (pointer) {
        kernel.setArgAttr(i, LLVM::LLVMDialect::getNoAliasAttrName(), rewriter.getUnitAttr());
      }
    }
    rewriter.inlineRegionBefore(op.getBody(), kernel.getBody(), kernel.end());
    rewriter.eraseOp(op);
    return success();
  }
};

struct ReturnPattern : OpConversionPattern<func::ReturnOp> {
  using OpConversionPattern::OpConversionPattern;
  LogicalResult matchAndRewrite(func::ReturnOp op, OpAdaptor,
                                ConversionPatternRewriter &rewriter) const override {
    rewriter.replaceOpWithNewOp<LLVM::ReturnOp>(op, ValueRange());
    return success();
  }
};

struct MachineToLLVM : attn::impl::MachineToLLVMPassBase<MachineToLLVM> {
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
    getOperation().walk([&](Operation *op) { structures += isa<scf::ForOp, scf::IfOp>(op); });
    ConversionConfig config;
    config.allowPatternRollback = false;
    {
      RewritePatternSet patterns(context);
      populateSCFToControlFlowConversionPatterns(patterns);
      ConversionTarget target(*context);
      target.addIllegalDialect<scf::SCFDialect>();
      target.markUnknownOpDynamicallyLegal([](Operation *) { return true; });
      if (failed(applyPartialConversion(getOperation(), target, std::move(patterns), config)))
        return signalPassFailure();
    }
    LLVMTypeConverter converter(context);
    RewritePatternSet patterns(context);
    arith::populateArithToLLVMConversionPatterns(converter, patterns);
    cf::populateControlFlowToLLVMConversionPatterns(converter, patterns);
    patterns.add<KernelPattern, ReturnPattern>(converter, context);
    ConversionTarget target(*context);
    target.addLegalDialect<LLVM::LLVMDialect, NVVM::NVVMDialect>();
    target.addLegalOp<gpu::GPUModuleOp, tile::MoveMatrixOp, tile::WgmmaOp, tile::WgmmaWaitOp>();
    if (failed(applyFullConversion(getOperation(), target, std::move(patterns), config)))
      signalPassFailure();
  }
};

} // namespace
