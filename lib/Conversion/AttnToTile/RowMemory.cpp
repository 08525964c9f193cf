//===- RowMemory.cpp - Where rows of keys and values lie ------------------===//
#include "RowMemory.h"

#include "attn/Dialect/Attn/IR/Stores.h"

using namespace mlir;
using namespace mlir::attn;

RowMemory mlir::attn::rowMemoryOf(Value argument, RowPart part) {
  std::string name = argumentName(argument).str();
  if (auto type = dyn_cast<KVType>(argument.getType())) {
    const rt::Store store = storeOf(type);
    const rt::StorePart &stored = store.part(part == RowPart::Keys);
    std::string prefix = name + ".";
    return {prefix + store.codesName(stored), prefix + stored.letter + "_layer",
            store.heads * stored.format.rowBytes(stored.dim)};
  }
  auto rows = cast<RankedTensorType>(argument.getType());
  return {name, name + ".layer", rows.getDimSize(2) * rows.getDimSize(3) * rows.getElementTypeBitWidth() / 8};
}
