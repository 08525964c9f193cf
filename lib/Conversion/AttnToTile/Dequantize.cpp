//===- Dequantize.cpp - Keys and values that are stored as codes ----------===//
//
// A tile of codes comes into shared memory as it is. On the way to a dot it is
// loaded into registers and widened to the type of the queries, which is exact;
// what is missing then is the scale of the head. A task reads one KV head, so
//
//   s = scale * k_scales[h] * (q . codes)     the unit of its scores takes the key scale
//   o = v_scales[h] * (p . codes) / sum p     the division takes the value scale
//
// and neither costs anything per element, nor per tile.
//
//===----------------------------------------------------------------------===//
#include "Expansion.h"

#include "attn/Dialect/Attn/IR/Stores.h"
#include "attn/Support/Elements.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::tile;

bool FragmentExpansion::hasScales() {
  return llvm::any_of(chain.updates, [](UpdateOp update) { return isQuantized(update.getKv().getType()); });
}

Value FragmentExpansion::scaleOfHead(StringRef which) {
  UpdateOp update = chain.updates.front(); // findChain sees to it that all read the same store
  const rt::Store store = storeOf(update.getKv().getType());
  const rt::StorePart &part = store.part(which == "k");
  if (part.format.isPlain())
    return {};
  return b.read(b.buffer(tensor(update, rt::Store::scalesName(part)), b.getF32Type()), b.wide(kvHead));
}

void FragmentExpansion::readScales() {
  Value keyScale = scaleOfHead("k");
  valueScale = scaleOfHead("v");
  setUnits(keyScale);
}

Value FragmentExpansion::rightOperand(Value tile, Axis kept) {
  auto shared = cast<SharedType>(tile.getType());
  if (isMultiplied(shared.getElement()))
    return tile;
  bool lines = kept == shared.getRowAxis();
  Axis contracted = lines ? shared.getColAxis() : shared.getRowAxis();
  int64_t width = lines ? shared.getRows() : shared.getCols(),
          depth = lines ? shared.getCols() : shared.getRows();
  FragmentType codes = b.fragment({kept, contracted}, {width, depth}, shared.getElement());
  Value loaded = LoadRhsOp::create(b, codes, tile, IntegerAttr());
  return WidenOp::create(b, codes.withElement(chain.element()), loaded, ValueRange(), ValueRange(),
                         /*biased=*/false);
}
