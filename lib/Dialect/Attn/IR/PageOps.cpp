//===- PageOps.cpp - Operations on tables of pages ------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Attn/IR/PageOps.h"
#include "CacheSignature.h"
#include "Verify.h"

#include "attn_rt/tensor/Store.h"

using namespace mlir;
using namespace mlir::attn;

#define GET_OP_CLASSES
#include "attn/Dialect/Attn/IR/AttnPageOps.cpp.inc"

Type PageTensor::element(MLIRContext *context) const {
  return isFloat ? Type(Float32Type::get(context)) : Type(IntegerType::get(context, bits));
}

RankedTensorType PageTensor::type(MLIRContext *context) const {
  SmallVector<int64_t> shape;
  for (auto [size, name] : dims)
    shape.push_back(name.empty() ? size : ShapedType::kDynamic);
  return RankedTensorType::get(shape, element(context));
}

static SmallVector<PageTensor> tensorsOfRevision() {
  const SmallVector<std::pair<int64_t, StringRef>, 2> ofLists = {{0, "lists"}},
                                                      places = {{0, "pages"}, {0, "places"}};
  return {{"table", 32, {{0, "lists"}, {0, "columns"}}},
          {"high", 32, ofLists},
          {"low", 32, ofLists},
          {"seen", 32, ofLists},
          {"prompt", 32, ofLists},
          {"limits", 32, {{0, "lists"}, {2, ""}}, true},
          {"sees", 32, {{0, "lists"}, {2, ""}}},
          {"score", 32, places, true},
          {"position", 32, places},
          {"worth_high", 32, {{0, "lists"}, {0, "high_room"}}, true},
          {"worth_low", 32, {{0, "lists"}, {0, "low_room"}}, true},
          {"done", 32, {{4, ""}}},
          {"down_from", 32, ofLists},
          {"down_to", 32, ofLists},
          {"move_from", 32, ofLists},
          {"move_to", 32, ofLists}};
}

static SmallVector<PageTensor> tensorsOfMerge(MergeStatesOp merge) {
  return {{"result", 32, {{0, "items"}, {0, "words"}}},
          {"total", 32, {{0, "items"}}, true},
          {"memory", 32, {{int64_t(merge.getRanks()), ""}, {0, "room"}}}};
}

static SmallVector<PageTensor> tensorsOfExchange(ExchangeStatesOp exchange) {
  const auto ranks = int64_t(exchange.getRanks());
  return {{"result", 32, {{0, "items"}, {0, "words"}}},
          {"total", 32, {{0, "items"}}, true},
          {"out", 32, {{0, "items"}, {0, "words"}}},
          {"lse", 32, {{0, "items"}}, true},
          {"memory", 32, {{0, "regions"}, {0, "room"}}},
          {"places", 32, {{ranks, ""}, {2, ""}}},
          {"state", 32, {{2052, ""}}},
          {"status", 32, {{ranks, ""}}}};
}

SmallVector<PageTensor> mlir::attn::pageTensorsOf(Operation *op) {
  if (auto merge = dyn_cast<MergeStatesOp>(op))
    return tensorsOfMerge(merge);
  if (auto exchange = dyn_cast<ExchangeStatesOp>(op))
    return tensorsOfExchange(exchange);
  if (isa<ReviseTokensOp>(op))
    return tensorsOfRevision();
  SmallVector<PageTensor> tensors = {{"table", 32, {{0, "lists"}, {0, "columns"}}},
                                     {"counts", 32, {{0, "lists"}, {2, ""}}},
                                     {"tokens", 32, {{0, "lists"}, {2, ""}}}};
  if (isa<ManagePagesOp>(op))
    tensors.append({{"free", 32, {{0, "pages"}}}, {"span", 32, {{2, ""}}}, {"status", 32, {{4, ""}}}});
  else
    tensors.append({{"keep", 8, {{0, "lists"}, {0, "flags"}}},
                    {"from", 32, {{0, "lists"}, {0, "moves"}}},
                    {"to", 32, {{0, "lists"}, {0, "moves"}}},
                    {"status", 32, {{1, ""}}}});
  return tensors;
}

bool mlir::attn::isPageOp(Operation *op) {
  return isa<ManagePagesOp, CompactTokensOp, ReviseTokensOp, MergeStatesOp, ExchangeStatesOp>(op);
}

Operation *mlir::attn::findPageOp(func::FuncOp func) {
  Operation *found = nullptr;
  func.walk([&](Operation *op) {
    found = isPageOp(op) ? op : nullptr;
    return found ? WalkResult::interrupt() : WalkResult::advance();
  });
  return found;
}

static LogicalResult verifyTensors(Operation *op) {
  for (auto [tensor, value] : llvm::zip_equal(pageTensorsOf(op), op->getOperands()))
    if (auto legal = tensor.type(op->getContext()); value.getType() != legal)
      return op->emitOpError("expected ") << tensor.name << " to be " << legal << ", got " << value.getType();
  return success();
}

static LogicalResult verifyPage(Operation *op, StringRef where, int64_t tokens) {
  if (::attn::rt::Store::isPageSize(tokens))
    return success();
  return op->emitOpError("expected pages")
         << where << " of " << ::attn::rt::Store::pageSizes << " tokens, got " << tokens
         << "; nearest legal: " << ::attn::rt::Store::nearestPageSizes(tokens);
}

LogicalResult ManagePagesOp::verify() {
  return success(succeeded(verifyTensors(*this)) && succeeded(verifyPage(*this, " at the left", getLeft())) &&
                 succeeded(verifyPage(*this, " at the right", getRight())));
}

LogicalResult CompactTokensOp::verify() {
  return success(succeeded(verifyTensors(*this)) && succeeded(verifyPage(*this, "", getPageTokens())));
}

LogicalResult ReviseTokensOp::verify() {
  if (failed(verifyTensors(*this)) || failed(verifyPage(*this, " at the left", getLeft())) ||
      failed(verifyPage(*this, " at the right", getRight())))
    return failure();
  for (auto [name, value, least] :
       {std::tuple("window", getWindow(), int64_t{1}), std::tuple("rows", getRows(), int64_t{0})})
    if (int64_t number = value; number < least || number > 1 << 29)
      return emitOpError("expected ")
             << name << " to be " << least << " to " << (1 << 29) << ", got " << number;
  return success();
}

static LogicalResult verifyRanks(Operation *op, int64_t ranks, Type element) {
  if (ranks < 2 || ranks > 32)
    return op->emitOpError("expected 2 to 32 ranks, got ")
           << ranks << "; nearest legal: " << (ranks < 2 ? 2 : 32);
  if (!element.isBF16() && !element.isF16())
    return op->emitOpError("expected elements of bf16 or f16, got ") << element;
  return verifyTensors(op);
}

LogicalResult MergeStatesOp::verify() { return verifyRanks(*this, getRanks(), getElement()); }
LogicalResult ExchangeStatesOp::verify() { return verifyRanks(*this, getRanks(), getElement()); }

LogicalResult ReviseTokensOp::verifyRegions() {
  Builder b(getContext());
  Type f32 = b.getF32Type(), i32 = b.getI32Type(), i1 = b.getI1Type();
  return success(succeeded(detail::verifyPolicy(*this, getRank(), "rank", {f32, i32, i32, i32},
                                                RankOp::getOperationName())) &&
                 succeeded(detail::verifyPolicy(*this, getDecide(), "decide",
                                                {f32, i1, f32, i1, f32, i1, i32, i32, i32, f32, f32},
                                                DecideOp::getOperationName())));
}

FailureOr<Signature> mlir::attn::detail::readPageSignature(func::FuncOp func) {
  if (func.isExternal() || !func.getBody().hasOneBlock())
    return func.emitOpError("expected a body of one block");
  Operation *found = findPageOp(func);
  for (Operation &op : func.front().without_terminator())
    if (&op != found && !isa<arith::ConstantOp>(op)) // constants of its regions
      return op.emitOpError(
                 "expected one operation on a table of pages per function and nothing beside it, got ")
             << (isPageOp(&op) ? "a second" : "another operation");
  if (func.front().getTerminator()->getNumOperands() != 0)
    return func.emitOpError("expected the function to return nothing: it changes tables");
  if (!llvm::equal(found->getOperands(), func.getArguments()))
    return found->emitOpError("expected the arguments of the function for its operands, in their order");
  Signature signature;
  for (auto [index, tensor] : llvm::enumerate(pageTensorsOf(found))) {
    auto name = func.getArgAttrOfType<StringAttr>(index, "attn.name");
    if (!name || name != tensor.name) {
      InFlightDiagnostic error = func.emitOpError("argument ")
                                 << index << ": expected the attribute attn.name = \"" << tensor.name << '"';
      return name ? error << ", got \"" << name.getValue() << '"' : error << ", got none";
    }
    Argument argument{
        Role::Pages, static_cast<unsigned>(index), func.getArgument(index).getType(), tensor.name.str(), {}};
    for (auto [size, dim] : tensor.dims)
      if (!dim.empty())
        argument.dims.push_back(dim.str());
    signature.arguments.push_back(std::move(argument));
  }
  return signature;
}
