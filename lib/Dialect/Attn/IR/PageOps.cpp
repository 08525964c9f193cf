//===- PageOps.cpp - Operations on tables of pages ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Attn/IR/PageOps.h"
#include "CacheSignature.h"

#include "attn_rt/tensor/Store.h"

using namespace mlir;
using namespace mlir::attn;

#define GET_OP_CLASSES
#include "attn/Dialect/Attn/IR/AttnPageOps.cpp.inc"

ManagePagesOp mlir::attn::findManagePages(func::FuncOp func) {
  ManagePagesOp found;
  func.walk([&](ManagePagesOp op) {
    found = op;
    return WalkResult::interrupt();
  });
  return found;
}

LogicalResult ManagePagesOp::verify() {
  constexpr int64_t any = ShapedType::kDynamic;
  const SmallVector<int64_t> shapes[] = {{any, any}, {any, 2}, {any, 2}, {any}, {2}, {4}};
  Type i32 = IntegerType::get(getContext(), 32);
  for (auto [name, shape, value] : llvm::zip_equal(pageTensors, shapes, getOperands()))
    if (auto legal = RankedTensorType::get(shape, i32); value.getType() != legal)
      return emitOpError("expected ") << name << " to be " << legal << ", got " << value.getType();
  for (auto [name, tokens] : {std::pair("left", getLeft()), std::pair("right", getRight())})
    if (!::attn::rt::Store::isPageSize(tokens))
      return emitOpError("expected pages at the ")
             << name << " of " << ::attn::rt::Store::pageSizes << " tokens, got " << tokens;
  return success();
}

FailureOr<Signature> mlir::attn::detail::readPageSignature(func::FuncOp func) {
  if (func.isExternal() || !func.getBody().hasOneBlock())
    return func.emitOpError("expected a body of one block");
  ManagePagesOp manage = findManagePages(func);
  for (Operation &op : func.front().without_terminator())
    if (&op != manage)
      return op.emitOpError("expected one attn.manage_pages per function and nothing beside it, got ")
             << (isa<ManagePagesOp>(op) ? "a second" : "another operation");
  if (func.front().getTerminator()->getNumOperands() != 0)
    return func.emitOpError("expected the function to return nothing: it changes tables");
  if (!llvm::equal(manage->getOperands(), func.getArguments()))
    return manage.emitOpError("expected the arguments of the function for its operands, in their order");
  Signature signature;
  for (auto [index, fixed] : llvm::enumerate(pageTensors)) {
    auto name = func.getArgAttrOfType<StringAttr>(index, "attn.name");
    if (!name || name != fixed) {
      InFlightDiagnostic error = func.emitOpError("argument ")
                                 << index << ": expected the attribute attn.name = \"" << fixed << '"';
      return name ? error << ", got \"" << name.getValue() << '"' : error << ", got none";
    }
    Argument argument{
        Role::Pages, static_cast<unsigned>(index), func.getArgument(index).getType(), fixed.str(), {}};
    static constexpr StringLiteral dims[][2] = {
        {"lists", "columns"}, {"lists", ""}, {"lists", ""}, {"pages", ""}};
    for (int64_t d = 0; d < cast<RankedTensorType>(argument.type).getNumDynamicDims(); ++d)
      argument.dims.push_back(dims[index][d].str());
    signature.arguments.push_back(std::move(argument));
  }
  return signature;
}
