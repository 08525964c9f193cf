//===- Stores.cpp - The store of a KV type --------------------------------===//
#include "attn/Dialect/Attn/IR/Stores.h"

using namespace mlir;

static constexpr bool isSame(mlir::attn::Store store, ::attn::rt::StoreKind kind) {
  return static_cast<unsigned>(store) == static_cast<unsigned>(kind);
}
static_assert(isSame(mlir::attn::Store::Dense, ::attn::rt::StoreKind::Dense) &&
              isSame(mlir::attn::Store::Packed, ::attn::rt::StoreKind::Packed) &&
              isSame(mlir::attn::Store::Paged, ::attn::rt::StoreKind::Paged));

::attn::rt::Store mlir::attn::storeOf(KVType type) {
  auto part = [](char letter, int64_t dim, Type element) {
    std::optional<rt::Format> format = rt::Format::of(elementOf(element).dtype);
    assert(format && "the type's verifier knows the formats");
    return rt::StorePart{letter, dim, *format};
  };
  return {static_cast<rt::StoreKind>(type.getStore()),
          type.getPage(),
          type.getRagged(),
          type.isOfClass() ? 0 : type.getHeads(),
          part('k', type.getKeyDim(), type.getKey()),
          part('v', type.getValueDim(), type.getValue())};
}
