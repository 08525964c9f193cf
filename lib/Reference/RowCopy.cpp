//===- RowCopy.cpp - What operations on a cache mean ----------------------===//
#include "attn/Dialect/Attn/IR/RowCopy.h"
#include "attn/Dialect/Attn/IR/Signature.h"
#include "attn/Dialect/Attn/IR/Stores.h"
#include "attn/Reference/Reference.h"

#include <algorithm>
#include <cstring>

using namespace mlir;
using namespace mlir::attn;
namespace rt = ::attn::rt;

/// The bytes of one token, or row, of a layer.
static uint8_t *at(rt::Tensor &tensor, int64_t perLayer, int64_t layer, int64_t token) {
  int64_t tokens = tensor.shape[0] * perLayer;
  return tensor.bytes.data() + (layer * perLayer + token) * (int64_t(tensor.bytes.size()) / tokens);
}

rt::Result<rt::TensorMap> mlir::attn::evaluateRowCopy(func::FuncOp func, const rt::TensorMap &tensors) {
  std::optional<RowCopy> copy = findRowCopy(func);
  FailureOr<Signature> signature = readSignature(func);
  if (failed(signature) || !copy)
    return rt::inputError("function '" + func.getName().str() + "' has no operation on a cache");
  std::string cache;
  for (const Argument &argument : signature->arguments)
    if (argument.role == Role::KV)
      cache = argument.name;
  rt::Store store = storeOf(copy->type());
  auto find = [&](const std::string &name) -> const rt::Tensor * {
    auto found = tensors.find(name);
    return found == tensors.end() ? nullptr : &found->second;
  };

  rt::TensorMap results;
  for (std::string part : {"k", "v"}) {
    std::string pool = cache + "." + store.codesName(store.part(part == "k"));
    const rt::Tensor *slots = find(pool), *rows = find(part);
    const rt::Tensor *from = find(copy->to ? "from" : "slots"), *to = find(copy->from ? "to" : "slots");
    if (!slots || (copy->from && !from) || (copy->to && !to) || (copy->to && !copy->from && !rows))
      return rt::inputError("a tensor of '" + part + "' is missing");
    int64_t layers = slots->shape[0], perLayer = store.slots(1, slots->shape[1], slots->shape[1]);
    int64_t count = (copy->from ? from : to)->elements();
    rt::Tensor memory = *slots, given = rows ? *rows : rt::Tensor();
    if (copy->from && !copy->to) {
      given = rt::Tensor(slots->dtype, {layers, count, slots->shape.rbegin()[1], slots->shape.back()});
      std::fill(given.bytes.begin(), given.bytes.end(), 0xff); // what poisoned memory holds
    }
    rt::Tensor &source = copy->from ? memory : given, &target = copy->to ? memory : given;
    int64_t size = int64_t(memory.bytes.size()) / std::max<int64_t>(1, layers * perLayer);
    for (int64_t layer = 0; layer < layers; ++layer)
      for (int64_t row = 0; row < count; ++row) {
        int64_t read = copy->from ? from->as<int32_t>()[row] : row;
        int64_t write = copy->to ? to->as<int32_t>()[row] : row;
        if (read < 0 || write < 0)
          continue;
        for (int64_t slot : {copy->from ? read : 0, copy->to ? write : 0})
          if (slot >= perLayer)
            return rt::inputError("row " + std::to_string(row) + ": slot " + std::to_string(slot) +
                                  " is outside of the cache");
        std::memcpy(at(target, copy->to ? perLayer : count, layer, write),
                    at(source, copy->from ? perLayer : count, layer, read), size);
      }
    results[copy->to ? pool : part] = copy->to ? std::move(memory) : std::move(given);
  }
  return results;
}
