//===- RowMemory.cpp - Where rows of keys and values lie ------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "RowMemory.h"

#include "attn/Dialect/Attn/IR/Stores.h"
#include "attn/Support/Elements.h"

using namespace mlir;
using namespace mlir::attn;
namespace rt = ::attn::rt;

RowMemory mlir::attn::sharedScalesOf(Value cache, RowPart part) {
  const std::string buffer =
      argumentName(cache).str() + "." + rt::Store::sharedName(storedPartOf(cache, part));
  return {buffer, buffer + "_layer"};
}

RowMemory mlir::attn::rowMemoryOf(Value argument, RowPart part, bool meta) {
  std::string name = argumentName(argument).str();
  const rt::StorePart stored = storedPartOf(argument, part);
  if (auto type = dyn_cast<KVType>(argument.getType())) {
    const rt::Store store = storeOf(type);
    std::string prefix = name + ".";
    if (meta) {
      std::string buffer = prefix + rt::Store::metaName(stored);
      return {buffer, buffer + "_layer", store.heads * stored.format.metaBytes(stored.dim)};
    }
    return {prefix + store.codesName(stored), prefix + stored.letter + "_layer",
            store.heads * stored.format.rowBytes(stored.dim)};
  }
  int64_t heads = cast<RankedTensorType>(argument.getType()).getDimSize(2);
  return {name, name + ".layer", heads * stored.format.rowBytes(stored.dim)};
}

rt::StorePart mlir::attn::storedPartOf(Value argument, RowPart part) {
  if (auto type = dyn_cast<KVType>(argument.getType()))
    return storeOf(type).part(part == RowPart::Keys);
  auto rows = cast<RankedTensorType>(argument.getType());
  return {part == RowPart::Keys ? 'k' : 'v', rows.getDimSize(3),
          rt::Format::plain(elementOf(rows.getElementType()).dtype)};
}

int64_t mlir::attn::numbersTogether(const rt::StorePart &part) {
  if (part.format.isMixed())
    return part.format.group;
  if (!part.format.hasLines())
    return rowNumbers;
  return part.dim / part.format.groups(part.dim);
}
