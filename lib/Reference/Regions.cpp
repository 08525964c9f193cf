//===- Regions.cpp - Positions of a region's tokens in memory -------------===//
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
  const int64_t line = lineOf(slot, place), dim = store.isLatent() ? store.keys.dim : part.stored.dim;
  if (!part.decoder) {
    llvm::copy(part.codes->as<double>().subspan(line * dim, out.size()), out.begin());
    return;
  }
  const rt::Format &format = part.stored.format;
  rt::StoreNumbers of = numbers(place);
  const uint8_t *meta =
      part.meta ? part.meta->bytes.data() + store.lineOf(of, slot) * format.metaBytes(part.stored.dim)
                : nullptr;
  float scale = 1;
  if (part.shared) {
    const rt::Tensor &shared = *part.shared;
    const int64_t index = store.sharedOf(of, part.stored);
    scale = shared.as<float>()[index];
    if (!meta)
      meta = shared.bytes.data() + index * sizeof(float);
  }
  SmallVector<float, 256> narrow(out.size());
  part.decoder->decode(part.codes->bytes.data() + line * part.stored.format.rowBytes(dim), meta,
                       {narrow.data(), narrow.size()}, scale);
  llvm::copy(narrow, out.begin());
}

rt::Status KVRegion::checkTokens() const {
  int64_t dims = store.slotDims().size();
  if (!std::equal(keys.codes->shape.begin(), keys.codes->shape.begin() + dims, values.codes->shape.begin()))
    return rt::inputError("keys and values of '" + name + "': expected the same tokens, got " +
                          rt::shapeText(keys.codes->shape) + " and " + rt::shapeText(values.codes->shape));
  const std::vector<int64_t> &shape = keys.codes->shape;
  int64_t slots = store.slots(shape[0], shape[store.kind == rt::StoreKind::Dense], shape[0]);
  int64_t lists = type.getRagged() ? heads : 1;
  for (size_t list = 0; list < instances() * lists; ++list) {
    size_t i = list / lists, place = list % lists;
    std::string which =
        "instance " + std::to_string(i) + (type.getRagged() ? ", head " + std::to_string(place) : "");
    int64_t tokens = length(i, place), capacity = slots;
    if (store.isPaged())
      capacity = int64_t(i) < table->shape[0] ? store.tokensOf(table->shape.back()) : 0;
    else if (type.getStore() == Store::Dense)
      capacity = int64_t(i) < keys.codes->shape[0] ? keys.codes->shape[1] : 0;
    if (tokens < 0 || tokens > capacity)
      return rt::inputError("length of " + which + " of '" + name + "': expected 0 to " +
                            std::to_string(capacity) + ", got " + std::to_string(tokens));
    if (type.getStore() == Store::Packed && int64_t(i) >= table->elements())
      return rt::inputError("tensor '" + name + ".start': expected an entry for instance " +
                            std::to_string(i));
    for (int64_t t = 0; t < tokens; ++t)
      if (int64_t at = slot(i, place, t); at < 0 || at >= slots)
        return rt::inputError("token " + std::to_string(t) + " of " + which + " of '" + name +
                              "': expected a slot from 0 to " + std::to_string(slots - 1) + ", got " +
                              std::to_string(at));
  }
  return {};
}
