//===- Regions.cpp - Where the tokens of a region lie ---------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Operands.h"

using namespace mlir;
using namespace mlir::attn;
using namespace mlir::attn::reference;

int64_t KVRegion::longest(size_t instance) const {
  int64_t most = 0;
  for (int64_t place = 0; place < (type.getRagged() ? heads : 1); ++place)
    most = std::max(most, length(instance, place));
  return most;
}

rt::StoreNumbers KVRegion::numbers(int64_t place) const {
  rt::StoreNumbers numbers;
  if (table)
    numbers.table = table->as<int32_t>();
  if (store.kind == rt::StoreKind::Dense)
    numbers.tokens = keys.codes->shape[1];
  if (store.isPaged())
    numbers.maxPages = table->shape.back();
  numbers.heads = heads, numbers.head = place;
  return numbers;
}

int64_t KVRegion::slot(size_t instance, int64_t place, int64_t token) const {
  rt::StoreNumbers of = numbers(place);
  return store.slotOf(of, int64_t(instance), token);
}

int64_t KVRegion::lineOf(int64_t slot, int64_t place) const {
  rt::StoreNumbers of = numbers(place);
  return store.lineOf(of, slot);
}

void KVRegion::read(const Part &part, int64_t slot, int64_t place, std::span<double> out) const {
  const int64_t line = lineOf(slot, place);
  if (!part.decoder) {
    llvm::copy(part.codes->as<double>().subspan(line * part.stored.dim, out.size()), out.begin());
    return;
  }
  const uint8_t *meta = nullptr;
  if (part.meta) {
    rt::StoreNumbers of = numbers(place);
    meta = part.meta->bytes.data() +
           store.metaOf(of, part.stored, slot) * part.stored.format.metaBytes(part.stored.dim);
  }
  SmallVector<float, 256> narrow(out.size());
  part.decoder->decode(part.codes->bytes.data() + line * part.stored.format.rowBytes(part.stored.dim), meta,
                       {narrow.data(), narrow.size()});
  llvm::copy(narrow, out.begin());
}
