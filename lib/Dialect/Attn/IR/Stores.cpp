//===- Stores.cpp - The store of a KV type --------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Attn/IR/Stores.h"

#include <cmath>

using namespace mlir;

using Scales = ::attn::rt::Format::Scales;
static constexpr bool isSame(mlir::attn::Per per, Scales scales) {
  return static_cast<unsigned>(per) == static_cast<unsigned>(scales);
}
static_assert(isSame(mlir::attn::Per::Tensor, Scales::Tensor) &&
              isSame(mlir::attn::Per::Head, Scales::Head) && isSame(mlir::attn::Per::Token, Scales::Token) &&
              isSame(mlir::attn::Per::Group, Scales::Group));

static constexpr bool isSame(mlir::attn::Store store, ::attn::rt::StoreKind kind) {
  return static_cast<unsigned>(store) == static_cast<unsigned>(kind);
}
static_assert(isSame(mlir::attn::Store::Dense, ::attn::rt::StoreKind::Dense) &&
              isSame(mlir::attn::Store::Packed, ::attn::rt::StoreKind::Packed) &&
              isSame(mlir::attn::Store::Paged, ::attn::rt::StoreKind::Paged) &&
              isSame(mlir::attn::Store::Unified, ::attn::rt::StoreKind::Unified));

::attn::rt::Format::Blocks mlir::attn::blocksOf(Type scale) {
  std::string name;
  llvm::raw_string_ostream(name) << scale;
  return rt::Format::blocksBy(StringRef(name).lower());
}

Type mlir::attn::codesOf(Type stored) {
  auto codes = dyn_cast<QuantizedType>(stored);
  return codes ? codes.getElement() : stored;
}

::attn::rt::Format mlir::attn::formatOf(Type stored) {
  auto codes = dyn_cast<QuantizedType>(stored);
  if (!codes)
    return rt::Format::plain(elementOf(stored).dtype);
  Type element = codes.getElement();
  if (codes.getRest())
    return rt::Format::rows(codes.getGroup(), codes.getRest());
  if (codes.getScale())
    return rt::Format::blocksOf(isa<Float4E2M1FNType>(element) ? rt::DType::U8 : elementOf(element).dtype,
                                codes.getGroup(), blocksOf(codes.getScale()));
  if (element.isInteger())
    return rt::Format::integers(element.getIntOrFloatBitWidth(), codes.getGroup());
  return rt::Format::floats(elementOf(element).dtype, static_cast<rt::Format::Scales>(codes.getPer()));
}

::attn::rt::Store mlir::attn::storeOf(KVType type) {
  return {static_cast<rt::StoreKind>(type.getStore()),
          type.getPage(),
          type.getRagged(),
          type.isOfClass() ? 0 : type.getHeads(),
          {'k', type.getKeyDim(), formatOf(type.getKey())},
          {type.getLatent() ? 'k' : 'v', type.getValueDim(), formatOf(type.getValue())}};
}

float mlir::attn::widenedUnit(Type stored) {
  return std::ldexp(1.0F, static_cast<int>(exponentBelowF16(codesOf(stored))));
}
