//===- Kernel.cpp - What the kernel writers share -------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Kernel.h"

#include "attn_rt/tensor/Store.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

KernelBuilder::KernelBuilder(func::FuncOp kernel)
    : ImplicitLocOpBuilder(kernel.getLoc(), kernel.getContext()), kernel(kernel) {
  if (auto known = tile::parametersAttr.get(kernel))
    llvm::append_range(parameters, known);
  if (auto known = tile::tensorMapsAttr.get(kernel))
    tensorMaps.insert(known.begin(), known.end());
}

Value KernelBuilder::parameter(ParameterAttr attribute, Type type) {
  auto known = llvm::find(parameters, attribute);
  if (known != parameters.end())
    return kernel.getArgument(kernel.getNumArguments() - (parameters.end() - known));
  parameters.push_back(attribute);
  (void)kernel.insertArgument(kernel.getNumArguments(), type, DictionaryAttr(), getLoc());
  return kernel.getArguments().back();
}

Value KernelBuilder::buffer(StringRef name, Type element) {
  return parameter(ParameterAttr::get(getContext(), ParameterKind::Buffer, name, 0),
                   BufferType::get(getContext(), element));
}
Value KernelBuilder::dimension(StringRef name) {
  return parameter(ParameterAttr::get(getContext(), ParameterKind::Dim, name, 0), getI32Type());
}
Value KernelBuilder::stride(StringRef tensor, size_t axis) {
  return dimension(::attn::rt::strideName(std::string_view(tensor), axis));
}
Value KernelBuilder::end(int64_t index) {
  return parameter(ParameterAttr::get(getContext(), ParameterKind::End, "", index), getI32Type());
}
Value KernelBuilder::scale() {
  return parameter(ParameterAttr::get(getContext(), ParameterKind::Scale, "", 0), getF32Type());
}

Value KernelBuilder::tensorMap(TensorMapAttr map) {
  tensorMaps.insert(map);
  return parameter(ParameterAttr::get(getContext(), ParameterKind::Map, map.getName(), 0),
                   TensorMapType::get(getContext(), map.getExtents().size()));
}

void KernelBuilder::describeParameters() {
  if (!tensorMaps.empty())
    tile::tensorMapsAttr.set(kernel, getArrayAttr(tensorMaps.getArrayRef()));
  tile::parametersAttr.set(kernel, getArrayAttr(parameters));
}

void KernelBuilder::doIf(Value condition, function_ref<void()> body) {
  if (!condition)
    return body();
  auto branch = scf::IfOp::create(*this, condition);
  InsertionGuard guard(*this);
  setInsertionPoint(branch.thenYield());
  body();
}

void KernelBuilder::finish(int64_t threads) {
  func::ReturnOp::create(*this);
  describeParameters();
  tile::threadsAttr.set(kernel, getI32IntegerAttr(threads));
}

void KernelBuilder::fillAll(Region &region, TypeRange types, ScalarFunctions functions) {
  InsertionGuard guard(*this);
  Block *block = createBlock(&region, {}, types, SmallVector<Location>(types.size(), getLoc()));
  SmallVector<Value> results = functions(block->getArguments());
  tile::YieldOp::create(*this, results);
}

void KernelBuilder::fill(Region &region, TypeRange types, ScalarFunction function) {
  fillAll(region, types, [&](ValueRange arguments) { return SmallVector<Value>{function(arguments)}; });
}

ResultRange KernelBuilder::mapAll(TypeRange results, ValueRange inputs, ScalarFunctions functions) {
  auto op = MapOp::create(*this, results, inputs);
  SmallVector<Type> types;
  for (Value input : inputs)
    types.push_back(cast<FragmentType>(input.getType()).getElement());
  fillAll(op.getBody(), types, functions);
  return op.getResults();
}

Value KernelBuilder::map(FragmentType type, ValueRange inputs, ScalarFunction function) {
  auto one = [&](ValueRange arguments) { return SmallVector<Value>{function(arguments)}; };
  return mapAll(TypeRange{type}, inputs, one).front();
}

void mlir::attn::eraseSourceArguments(func::FuncOp kernel) {
  size_t parameters = tile::parametersAttr.get(kernel).size();
  BitVector source(kernel.getNumArguments());
  source.set(0, kernel.getNumArguments() - parameters);
  (void)kernel.eraseArguments(source);
}
