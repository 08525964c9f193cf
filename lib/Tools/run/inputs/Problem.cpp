//===- Problem.cpp - The function that attn-run runs ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Problem.h"

#include "attn/Dialect/Attn/IR/Signature.h"
#include "attn/Dialect/Attn/IR/Stores.h"
#include "attn/Support/Elements.h"

using namespace attn;
using namespace attn::run;
using mlir::attn::KVType;
using mlir::attn::Role;

namespace {

TensorArgument tensorArgument(const mlir::attn::Argument &argument) {
  auto type = mlir::cast<mlir::RankedTensorType>(argument.type);
  TensorArgument result;
  result.name = argument.name;
  result.dtype = mlir::attn::elementOf(type.getElementType()).dtype; // checked with the signature
  for (int64_t dim : type.getShape())
    result.shape.push_back(mlir::ShapedType::isDynamic(dim) ? -1 : dim);
  result.dims.assign(argument.dims.begin(), argument.dims.end());
  return result;
}

KVArgument kvArgument(const mlir::attn::Argument &argument) {
  auto type = mlir::cast<KVType>(argument.type);
  KVArgument result;
  result.name = argument.name;
  result.instancesDim = argument.dims[0];
  result.tokensDim = argument.dims[1];
  const rt::Store store = mlir::attn::storeOf(type);
  result.store = store.kind;
  result.page = type.getPage();
  result.heads = type.isOfClass() ? 0 : type.getHeads();
  result.keyDim = type.getKeyDim();
  result.valueDim = type.getValueDim();
  result.latent = store.isLatent();
  result.key = store.keys.format;
  result.value = store.values.format;
  result.ragged = type.getRagged();
  return result;
}

/// Returns the number of the head class whose heads alone a KV operand holds, or -1.
int classOf(mlir::func::FuncOp func, const mlir::attn::Argument &argument) {
  int result = -1;
  func.walk([&](mlir::attn::AttendOp attend) {
    for (unsigned i = 0, e = attend.getRegions().size(); i != e; ++i)
      if (mlir::StringAttr name = attend.getRegionClass(i);
          name && attend.getRegions()[i] == func.getArgument(argument.index)) {
        auto names = attend.getHeadClassesAttr().getNames();
        result = static_cast<int>(llvm::find(names, name) - names.begin());
      }
  });
  return result;
}

/// Returns the classes. Classes with equal visibility have vanished from the problem, and any numbers serve.
ClassesArgument classesArgument(mlir::func::FuncOp func, const mlir::attn::Argument &argument) {
  ClassesArgument result;
  result.heads = mlir::cast<mlir::RankedTensorType>(argument.type).getNumElements();
  func.walk([&](mlir::attn::AttendOp attend) {
    if (mlir::attn::HeadClassesAttr classes = attend.getHeadClassesAttr())
      for (mlir::StringAttr name : classes.getNames())
        result.names.push_back(name.str());
  });
  return result;
}

} // namespace

mlir::FailureOr<Arguments> run::readArguments(mlir::func::FuncOp func) {
  auto signature = mlir::attn::readSignature(func);
  if (mlir::failed(signature))
    return mlir::failure();
  Arguments arguments;
  for (const mlir::attn::Argument &argument : signature->arguments) {
    switch (argument.role) {
    case Role::Query:
      arguments.query = tensorArgument(argument);
      break;
    case Role::KV:
      arguments.kv.push_back(kvArgument(argument));
      arguments.kv.back().headClass = classOf(func, argument);
      break;
    case Role::Sinks:
    case Role::Gate:
    case Role::OutputScale:
    case Role::Tensor:
      arguments.others.push_back(tensorArgument(argument));
      break;
    case Role::Classes:
      arguments.classes = classesArgument(func, argument);
      break;
    case Role::Rows:
    case Role::Slots:
    case Role::Status:
    case Role::Pages:
      break; // for operations on a cache, see CacheInputs.h
    }
  }
  return arguments;
}
