//===- Rewriter.cpp - From NVVM operations to calls -----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Rewriter.h"
#include "attn/Dialect/Tile/IR/Tile.h"
#include "mlir/Interfaces/FunctionInterfaces.h"

using namespace mlir;

namespace attn::host {

Rewriter::Rewriter(ModuleOp module, const ModuleLayout &layout, bool check)
    : module(module), layout(layout), check(check), b(module.getContext()), loc(module.getLoc()) {
  i1 = b.getI1Type();
  i32 = b.getI32Type();
  i64 = b.getI64Type();
  f32 = b.getF32Type();
  ptr = LLVM::LLVMPointerType::get(b.getContext());
  none = LLVM::LLVMVoidType::get(b.getContext());
}

//===----------------------------------------------------------------------===//
// Small builders
//===----------------------------------------------------------------------===//

Value Rewriter::constant(uint32_t value) {
  return LLVM::ConstantOp::create(b, loc, i32, b.getI32IntegerAttr(static_cast<int32_t>(value)));
}

Value Rewriter::call(StringRef name, Type result, ArrayRef<Value> operands) {
  if (!module.lookupSymbol(name)) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    SmallVector<Type> types;
    for (Value v : operands)
      types.push_back(v.getType());
    LLVM::LLVMFuncOp::create(b, module.getLoc(), name, LLVM::LLVMFunctionType::get(result, types));
  }
  auto op = LLVM::CallOp::create(b, loc, result == none ? TypeRange{} : TypeRange{result}, name, operands);
  return result == none ? Value{} : op.getResult();
}

Value Rewriter::laneField(uint32_t offset, Type type) {
  Value at = LLVM::GEPOp::create(b, loc, ptr, b.getI8Type(), lane,
                                 ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(offset)});
  auto load = LLVM::LoadOp::create(b, loc, type, at);
  load.setInvariant(true);
  return load;
}

Value Rewriter::exchangeSlot(unsigned word) {
  Value column = laneField(rt::host::kLaneExchangeOffset, ptr);
  return LLVM::GEPOp::create(b, loc, ptr, i32, column,
                             ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(word * 32)});
}

void Rewriter::put(unsigned word, Value value) {
  LLVM::StoreOp::create(b, loc, value, exchangeSlot(word), /*alignment=*/4);
}

Value Rewriter::get(unsigned word, Type type) {
  return LLVM::LoadOp::create(b, loc, type, exchangeSlot(word), /*alignment=*/4);
}

Value Rewriter::plainPointer(Value pointer) { return cast(pointer, ptr); }

Value Rewriter::cast(Value value, Type type) {
  if (value.getType() == type)
    return value;
  if (isa<LLVM::LLVMPointerType>(type))
    return LLVM::AddrSpaceCastOp::create(b, loc, type, value);
  return LLVM::BitcastOp::create(b, loc, type, value);
}

void Rewriter::replace(Operation *op, Value value) {
  if (value)
    op->getResult(0).replaceAllUsesWith(value);
  op->erase();
}

//===----------------------------------------------------------------------===//
// Functions
//===----------------------------------------------------------------------===//

void Rewriter::changeSignature(LLVM::LLVMFuncOp function, bool isKernel) {
  auto type = function.getFunctionType();
  SmallVector<bool> byValue; // the parameter is the value behind the argument's address
  for (unsigned i = 0, e = type.getNumParams(); i < e; ++i)
    byValue.push_back(static_cast<bool>(function.getArgAttr(i, LLVM::LLVMDialect::getByValAttrName())));
  // Attributes for PTX or for callers on the GPU have no meaning here.
  NamedAttrList kept;
  for (NamedAttribute a : function->getAttrs())
    if (a.getName() == "sym_name" || a.getName() == "function_type" || a.getName() == "linkage" ||
        a.getName() == "CConv" || a.getName() == "visibility_")
      kept.append(a);
  function->setAttrs(kept);
  function.removeArgAttrsAttr(); // inherent, so setAttrs does not remove them
  function.setLinkage(isKernel ? LLVM::Linkage::External : LLVM::Linkage::Internal);
  Block &entry = function.getBody().front();
  SmallVector<Type> inputs{ptr};
  if (!isKernel)
    llvm::append_range(inputs, type.getParams());
  else
    inputs.push_back(ptr);
  lane = entry.insertArgument(0u, ptr, function.getLoc());
  if (isKernel) {
    Value args = entry.insertArgument(1u, ptr, function.getLoc());
    b.setInsertionPointToStart(&entry);
    loc = function.getLoc();
    for (unsigned i = 0, e = type.getNumParams(); i < e; ++i) {
      Value slot =
          LLVM::GEPOp::create(b, loc, ptr, ptr, args, ArrayRef<LLVM::GEPArg>{static_cast<int32_t>(i)});
      Value address = LLVM::LoadOp::create(b, loc, ptr, slot);
      Value value = address;
      if (!byValue[i])
        value = LLVM::LoadOp::create(b, loc, type.getParamType(i), address);
      entry.getArgument(2).replaceAllUsesWith(value);
      entry.eraseArgument(2);
    }
  }
  function.setFunctionType(LLVM::LLVMFunctionType::get(type.getReturnType(), inputs));
}

llvm::Error Rewriter::rewrite(LLVM::LLVMFuncOp function, bool isKernel) {
  SmallVector<Operation *> ops;
  function.getBody().walk([&](Operation *op) { ops.push_back(op); });
  changeSignature(function, isKernel);
  erased.clear();
  markWgmmaMisuse(function);
  for (Block &block : function.getBody()) {
    if (llvm::Error error = batchMatrices(block))
      return error;
    if (llvm::Error error = batchWgmma(block))
      return error;
  }
  for (Operation *op : ops) {
    if (erased.contains(op))
      continue;
    b.setInsertionPoint(op);
    loc = op->getLoc();
    if (llvm::Error error = rewriteOp(op))
      return error;
  }
  return llvm::Error::success();
}

llvm::Error Rewriter::rewriteOp(Operation *op) {
  // Flags would let the optimizer compute other bits here than in a checked build.
  if (auto flags = dyn_cast<LLVM::FastmathFlagsInterface>(op))
    op->setAttr(flags.getFastmathAttrName(),
                LLVM::FastmathFlagsAttr::get(b.getContext(), LLVM::FastmathFlags::none));
  if (isa<NVVM::NVVMDialect>(op->getDialect()))
    return rewriteNVVM(op);
  if (isa<LLVM::LLVMDialect>(op->getDialect()))
    return rewriteLLVM(op);
  if (auto wait = dyn_cast<tile::WgmmaWaitOp>(op))
    return rewriteWgmmaWait(wait);
  if (isa<tile::MoveMatrixOp>(op)) {
    replace(op, call("attn_host_movmatrix", i32, {lane, opId(op), op->getOperand(0)}));
    return llvm::Error::success();
  }
  return errorAt(op, "the host device cannot execute '" + op->getName().getStringRef() + "'");
}

llvm::Error Rewriter::rewriteLLVM(Operation *op) {
  auto reject = [&] {
    return errorAt(op, "the host device cannot execute '" + op->getName().getStringRef() + "'");
  };
  if (isa<LLVM::LoadOp>(op))
    return rewriteAccess(op, 0, "attn_host_load");
  if (isa<LLVM::StoreOp>(op))
    return rewriteAccess(op, 1, "attn_host_store");
  if (auto atomic = dyn_cast<LLVM::AtomicRMWOp>(op))
    return rewriteAtomic(atomic);
  if (isa<LLVM::AtomicCmpXchgOp>(op))
    return rewriteAccess(op, 0, "attn_host_atomic");
  if (auto address = dyn_cast<LLVM::AddressOfOp>(op)) {
    rewriteAddressOf(address);
    return llvm::Error::success();
  }
  if (isa<LLVM::PtrToIntOp, LLVM::IntToPtrOp>(op)) {
    rewritePointerCasts(op);
    return llvm::Error::success();
  }
  if (isa<LLVM::FPToSIOp, LLVM::FPToUIOp>(op)) { // PTX's conversions saturate, and make 0 of NaN
    StringRef name = isa<LLVM::FPToSIOp>(op) ? "llvm.fptosi.sat" : "llvm.fptoui.sat";
    auto fresh = LLVM::CallIntrinsicOp::create(b, loc, op->getResult(0).getType(), b.getStringAttr(name),
                                               op->getOperands());
    replace(op, fresh.getResult(0));
    return llvm::Error::success();
  }
  if (auto tanh = dyn_cast<LLVM::TanhOp>(op)) { // PTX has the approximate instruction only
    if (tanh.getType() != f32)
      return errorAt(op, "the host device executes tanh of f32 only");
    replace(op, call("attn_host_tanh", f32, {tanh.getOperand()}));
    return llvm::Error::success();
  }
  if (auto intrinsic = dyn_cast<LLVM::CallIntrinsicOp>(op))
    return rewriteIntrinsic(intrinsic);
  if (auto call = dyn_cast<LLVM::CallOp>(op)) {
    auto callee = call.getCallee() ? module.lookupSymbol<LLVM::LLVMFuncOp>(*call.getCallee()) : nullptr;
    if (!callee || callee.isExternal())
      return errorAt(op, "the host device can call only functions of the same module");
    SmallVector<Value> operands{lane};
    llvm::append_range(operands, call.getArgOperands());
    auto fresh = LLVM::CallOp::create(b, loc, call.getResultTypes(), *call.getCallee(), operands);
    call->replaceAllUsesWith(fresh);
    call->erase();
    return llvm::Error::success();
  }
  if (isa<LLVM::InlineAsmOp, LLVM::InvokeOp, LLVM::VaArgOp, LLVM::MemcpyOp, LLVM::MemcpyInlineOp,
          LLVM::MemmoveOp, LLVM::MemsetOp, LLVM::MaskedLoadOp, LLVM::MaskedStoreOp, LLVM::masked_gather,
          LLVM::masked_scatter>(op))
    return reject();
  return llvm::Error::success();
}

llvm::Error Rewriter::rewriteIntrinsic(LLVM::CallIntrinsicOp op) {
  static const std::pair<StringLiteral, StringLiteral> known[] = {
      {"llvm.nvvm.ex2.approx.ftz.f", "attn_host_ex2"},   {"llvm.nvvm.ex2.approx.ftz", "attn_host_ex2"},
      {"llvm.nvvm.ex2.approx.ftz.f32", "attn_host_ex2"}, {"llvm.nvvm.lg2.approx.ftz.f", "attn_host_lg2"},
      {"llvm.nvvm.rcp.approx.ftz.f", "attn_host_rcp"},   {"llvm.nvvm.sqrt.approx.ftz.f", "attn_host_sqrt"}};
  StringRef name = op.getIntrin();
  for (auto [intrinsic, function] : known)
    if (name == intrinsic) {
      if (op->getNumOperands() != 1 || op->getOperand(0).getType() != f32)
        return errorAt(op, "the host device executes " + name + " on f32 only");
      replace(op, call(function, f32, {op->getOperand(0)}));
      return llvm::Error::success();
    }
  if (name == "llvm.nvvm.read.ptx.sreg.globaltimer") {
    replace(op, call("attn_host_globaltimer", i64, {lane}));
    return llvm::Error::success();
  }
  if (name.starts_with("llvm.nvvm."))
    return errorAt(op, "the host device cannot execute the intrinsic '" + name + "'");
  return llvm::Error::success();
}

} // namespace attn::host
