//===- KernelText.cpp - Helper kernels that are written as text -----------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "KernelText.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/IRMapping.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace mlir::attn;

KernelText::KernelText(MLIRContext *context, ArrayRef<StringRef> texts, StringRef file)
    : module(parseSourceString<ModuleOp>(llvm::join(texts, ""), ParserConfig(context), file)) {
  if (!module)
    llvm::report_fatal_error("cannot parse the text of a helper kernel: " + file);
}

func::FuncOp KernelText::opened(StringRef name) {
  auto function = module->lookupSymbol<func::FuncOp>(name);
  if (!function || !function.isExternal())
    llvm::report_fatal_error("the text of a helper kernel has no parameter " + name);
  function.addEntryBlock();
  return function;
}

void KernelText::define(StringRef name, int64_t number) {
  func::FuncOp function = opened(name);
  OpBuilder b = OpBuilder::atBlockBegin(&function.front());
  Value constant = arith::ConstantIntOp::create(b, function.getLoc(), number, 32);
  func::ReturnOp::create(b, function.getLoc(), constant);
}

/// Clones the operations of a block, and the outside constants that they use. Returns the clones of the
/// values that its terminator yields.
static SmallVector<Value> cloneBody(Block &block, ValueRange arguments, OpBuilder &b) {
  IRMapping mapping;
  mapping.map(block.getArguments(), arguments);
  block.walk([&](Operation *op) {
    for (Value operand : op->getOperands())
      if (Operation *constant = operand.getDefiningOp();
          constant && !block.findAncestorOpInBlock(*constant) && !mapping.contains(operand))
        mapping.map(operand, b.clone(*constant)->getResult(0));
  });
  for (Operation &op : block.without_terminator())
    b.clone(op, mapping);
  return llvm::map_to_vector(block.getTerminator()->getOperands(),
                             [&](Value value) { return mapping.lookupOrDefault(value); });
}

void KernelText::define(StringRef name, Region &region) {
  func::FuncOp function = opened(name);
  OpBuilder b = OpBuilder::atBlockBegin(&function.front());
  func::ReturnOp::create(b, function.getLoc(), cloneBody(region.front(), function.getArguments(), b));
}

func::FuncOp KernelText::instantiate(OpBuilder &builder, StringRef function, StringRef name) {
  auto kernel = cast<func::FuncOp>(builder.clone(*module->lookupSymbol<func::FuncOp>(function)));
  kernel.setName(name);
  SmallVector<func::CallOp> calls;
  auto collect = [&](Operation *in) { in->walk([&](func::CallOp call) { calls.push_back(call); }); };
  for (collect(kernel); !calls.empty(); collect(kernel)) {
    for (func::CallOp call : calls) {
      auto callee = module->lookupSymbol<func::FuncOp>(call.getCallee());
      OpBuilder b(call);
      call.replaceAllUsesWith(cloneBody(callee.front(), call.getOperands(), b));
      call.erase();
    }
    calls.clear();
  }
  return kernel;
}
