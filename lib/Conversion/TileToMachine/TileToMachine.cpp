//===- TileToMachine.cpp - From tiles to the code of one lane -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Patterns.h"

#include "attn/Conversion/Passes.h"

#include "mlir/Dialect/Func/Transforms/FuncConversions.h"
#include "mlir/Dialect/GPU/IR/GPUDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/SCF/Transforms/Patterns.h"

namespace mlir::attn {
#define GEN_PASS_DEF_TILETOMACHINEPASS
#include "attn/Conversion/Passes.h.inc"
} // namespace mlir::attn

using namespace mlir;
using namespace mlir::tile;

namespace {

/// The block's dynamic shared memory: one extern array, whose size the launch decides.
constexpr StringLiteral sharedSymbol = "attn_shared";

TypeConverter makeTypeConverter(MLIRContext *context) {
  TypeConverter converter;
  converter.addConversion([](Type type) { return type; });
  auto global = LLVM::LLVMPointerType::get(context, 1);
  auto shared = LLVM::LLVMPointerType::get(context, 3);
  converter.addConversion([=](BufferType) -> Type { return global; });
  converter.addConversion([=](SharedType) -> Type { return shared; });
  converter.addConversion([=](RingType) -> Type { return shared; });
  converter.addConversion([=](ScratchType) -> Type { return shared; });
  converter.addConversion([=](BarriersType) -> Type { return shared; });
  converter.addConversion([=](TensorMapType) -> Type { return LLVM::LLVMPointerType::get(context); });
  converter.addConversion(
      [=](FragmentType type, SmallVectorImpl<Type> &types) -> std::optional<LogicalResult> {
        if (type.getLayout() == Layout::Unassigned)
          return failure();
        types.append(type.getRegisters(), registerType(type));
        return success();
      });
  return converter;
}

LaneValues makeLaneValues(func::FuncOp kernel) {
  OpBuilder b = OpBuilder::atBlockBegin(&kernel.getBody().front());
  Location loc = kernel.getLoc();
  Type i32 = b.getI32Type();
  auto constant = [&](int64_t value) -> Value { return arith::ConstantIntOp::create(b, loc, value, 32); };
  Value thread = NVVM::ThreadIdXOp::create(b, loc, i32);
  LaneValues values;
  values.lane = arith::AndIOp::create(b, loc, thread, constant(31));
  // The value comes from one lane, so that ptxas sees that it is uniform.
  Value warp = arith::ShRUIOp::create(b, loc, thread, constant(5));
  values.warp = NVVM::ShflOp::create(b, loc, warp.getType(), constant(-1), warp, constant(0), constant(31),
                                     NVVM::ShflKind::idx, UnitAttr());
  values.group = arith::ShRUIOp::create(b, loc, values.lane, constant(2));
  values.quad = arith::AndIOp::create(b, loc, thread, constant(3));
  auto pointer = LLVM::LLVMPointerType::get(b.getContext(), 3);
  values.shared = LLVM::AddressOfOp::create(b, loc, pointer, sharedSymbol);
  return values;
}

/// Whether the type is a byte at the machine level, which has no floats of 8 bits and no smaller integers.
bool isCode(Type type) {
  int64_t bits = type.getIntOrFloatBitWidth();
  return bits == 2 || bits == 4 || (isa<FloatType>(type) && bits == 8);
}

/// Checks what the patterns rely on. Earlier passes ensure it; IR from a file may break it.
LogicalResult verifyLowerable(Operation *op, gpu::GPUModuleOp module) {
  if (!isa_and_nonnull<TileDialect>(op->getDialect()))
    return success();
  auto kernel = op->getParentOfType<func::FuncOp>();
  if (!kernel || kernel->getParentOp() != module)
    return op->emitOpError("expected to be in a func.func of the gpu.module");
  SmallVector<Type> types(op->getOperandTypes());
  llvm::append_range(types, op->getResultTypes());
  for (Type type : types)
    if (auto fragment = dyn_cast<FragmentType>(type); fragment && fragment.getLayout() == Layout::Unassigned)
      return op->emitOpError("expected fragments to have a layout, got ")
             << fragment << "; --tile-infer-layouts gives them one";
    else if (fragment && fragment.getRank() == 2 && isCode(fragment.getElement()) &&
             !isa<LoadOp, LoadRhsOp, WidenOp, PartOp, ConvertOp, UndefinedOp>(op))
      return op->emitOpError("cannot compute with quantized values, got ") << fragment;
  if (auto alloc = dyn_cast<AllocOp>(op); alloc && !alloc.getOffset())
    return op->emitOpError("expected an offset; --tile-allocate-shared sets it");
  auto gather = dyn_cast<GatherOp>(op);
  auto lookup = dyn_cast<LookupOp>(op);
  if (!gather && !lookup)
    return success();
  int64_t lines = lookup ? lookup.getLines() : cast<SharedType>(gather.getTargets()[0].getType()).getRows();
  int64_t share = lines;
  if (Scope scope = lookup ? lookup.getScope() : gather.getScope(); scope != Scope::Warp) {
    auto schedule = tile::scheduleAttr.get(kernel);
    if (!schedule)
      return op->emitOpError("is shared by warps, but the kernel has no tile.schedule that says how many");
    int64_t warps = schedule.getCopyWarps(scope);
    if (warps == 0)
      return op->emitOpError("is for producer warps, and the kernel's tile.schedule has none");
    if (lines % warps != 0)
      return op->emitOpError("expected lines that ") << warps << " warps can share, got " << lines;
    share = lines / warps;
  }
  if (lookup && share > 32)
    return op->emitOpError("expected at most 32 lines per warp, one for each lane, got ") << share;
  if (lookup)
    return success();
  for (Value target : gather.getTargets())
    if (auto tile = cast<SharedType>(target.getType()); !tile.getSwizzled() && tile.getLineBytes() > 16)
      return op->emitOpError("expected swizzled tiles, got ")
             << tile << "; --tile-infer-layouts swizzles them";
  return success();
}

struct TileToMachine : attn::impl::TileToMachinePassBase<TileToMachine> {
  void runOnOperation() override {
    gpu::GPUModuleOp module = getOperation();
    MLIRContext *context = &getContext();

    for (auto kernel : module.getOps<func::FuncOp>()) {
      if (!kernel.isExternal())
        continue;
      kernel.emitError("expected a kernel with a body");
      return signalPassFailure();
    }
    WalkResult checked = module.walk([&](Operation *op) {
      if (isa_and_nonnull<TileDialect>(op->getDialect()) && !isa<MoveMatrixOp, WgmmaOp, WgmmaWaitOp>(op))
        ++lowered;
      return failed(verifyLowerable(op, module)) ? WalkResult::interrupt() : WalkResult::advance();
    });
    if (checked.wasInterrupted())
      return signalPassFailure();

    OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
    auto array = LLVM::LLVMArrayType::get(b.getI8Type(), 0);
    LLVM::GlobalOp::create(b, module.getLoc(), array, /*isConstant=*/false, LLVM::Linkage::External,
                           sharedSymbol, Attribute(), /*alignment=*/1024, 3);

    LaneMap lanes;
    for (auto kernel : module.getOps<func::FuncOp>())
      lanes[kernel] = makeLaneValues(kernel);

    TypeConverter converter = makeTypeConverter(context);
    RewritePatternSet patterns(context);
    populateLanePatterns(converter, patterns, lanes);
    populateCopyPatterns(converter, patterns, lanes);
    populateGlobalPatterns(converter, patterns, lanes);
    populateStorePattern(converter, patterns, lanes);
    populateLoadPattern(converter, patterns, lanes);
    populateSumPatterns(converter, patterns, lanes);
    populateStoreScoresPattern(converter, patterns, lanes);
    populateFragmentPatterns(converter, patterns, lanes);
    populateConvertPatterns(converter, patterns, lanes);
    populateRhsPatterns(converter, patterns, lanes);
    populateWidenPatterns(converter, patterns, lanes);
    populateCorrectionPatterns(converter, patterns, lanes);
    populateMmaPatterns(converter, patterns, lanes);
    populateMergeWarpsPattern(converter, patterns, lanes);
    populateAsyncPatterns(converter, patterns, lanes);
    populateBulkPatterns(converter, patterns, lanes);
    populateWgmmaPatterns(converter, patterns, lanes);
    populateApproximateMathPatterns(converter, patterns, lanes);
    populateFunctionOpInterfaceTypeConversionPattern<func::FuncOp>(patterns, converter);

    ConversionTarget target(*context);
    target.addLegalDialect<arith::ArithDialect, LLVM::LLVMDialect, NVVM::NVVMDialect>();
    target.addIllegalDialect<TileDialect, math::MathDialect>();
    target.addLegalOp<MoveMatrixOp, WgmmaOp, WgmmaWaitOp>();
    target.addLegalOp<func::ReturnOp>();
    target.addDynamicallyLegalOp<func::FuncOp>(
        [&](func::FuncOp op) { return converter.isSignatureLegal(op.getFunctionType()); });
    scf::populateSCFStructuralTypeConversionsAndLegality(converter, patterns, target);

    ConversionConfig config;
    config.allowPatternRollback = false;
    if (failed(applyPartialConversion(module, target, std::move(patterns), config)))
      signalPassFailure();
  }
};

} // namespace
