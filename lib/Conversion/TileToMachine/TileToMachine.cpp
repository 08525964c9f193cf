//===- TileToMachine.cpp - From tiles to the code of one lane -------------===//
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
  converter.addConversion([=](FragmentType type, SmallVectorImpl<Type> &types) -> std::optional<LogicalResult> {
    if (type.getLayout() == Layout::Unassigned)
      return failure();
    bool packed = type.getLayout() == Layout::Lhs;
    Type element = packed ? IntegerType::get(type.getContext(), 32) : type.getElement();
    types.append(type.getRegisters(), element);
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
  values.warp = arith::ShRUIOp::create(b, loc, thread, constant(5));
  values.group = arith::ShRUIOp::create(b, loc, values.lane, constant(2));
  values.quad = arith::AndIOp::create(b, loc, thread, constant(3));
  auto pointer = LLVM::LLVMPointerType::get(b.getContext(), 3);
  values.shared = LLVM::AddressOfOp::create(b, loc, pointer, sharedSymbol);
  return values;
}

struct TileToMachine : attn::impl::TileToMachinePassBase<TileToMachine> {
  void runOnOperation() override {
    gpu::GPUModuleOp module = getOperation();
    MLIRContext *context = &getContext();

    OpBuilder b = OpBuilder::atBlockBegin(module.getBody());
    auto array = LLVM::LLVMArrayType::get(b.getI8Type(), 0);
    LLVM::GlobalOp::create(b, module.getLoc(), array, /*isConstant=*/false, LLVM::Linkage::External, sharedSymbol,
                           Attribute(), /*alignment=*/128, 3);

    LaneMap lanes;
    for (auto kernel : module.getOps<func::FuncOp>())
      lanes[kernel] = makeLaneValues(kernel);

    TypeConverter converter = makeTypeConverter(context);
    RewritePatternSet patterns(context);
    populateMemoryPatterns(converter, patterns, lanes);
    populateFragmentPatterns(converter, patterns, lanes);
    populateDotPatterns(converter, patterns, lanes);
    populateMergeWarpsPattern(converter, patterns, lanes);
    populateApproximateMathPatterns(converter, patterns, lanes);
    populateFunctionOpInterfaceTypeConversionPattern<func::FuncOp>(patterns, converter);

    ConversionTarget target(*context);
    target.addLegalDialect<arith::ArithDialect, LLVM::LLVMDialect, NVVM::NVVMDialect>();
    target.addIllegalDialect<TileDialect, math::MathDialect>();
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
