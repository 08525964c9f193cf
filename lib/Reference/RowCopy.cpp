//===- RowCopy.cpp - The meaning of operations on a cache -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn/Dialect/Attn/IR/RowCopy.h"
#include "attn/Dialect/Attn/IR/Signature.h"
#include "attn/Dialect/Attn/IR/Stores.h"
#include "attn/Reference/Reference.h"
#include "attn/Support/Elements.h"
#include "attn_rt/tensor/Prologue.h"

#include <algorithm>
#include <cstring>

using namespace mlir;
using namespace mlir::attn;
namespace rt = ::attn::rt;

namespace {

/// Keys or values of a cache, or rows of them, in all layers.
struct Memory {
  std::optional<rt::Store> store; ///< store of slots
  rt::StorePart part;
  rt::Tensor *codes = nullptr, *meta = nullptr, *shared = nullptr;
  int64_t layers = 1, count = 0, heads = 1; ///< slots, or rows, of a layer

  uint8_t *codesAt(int64_t layer, int64_t row, int64_t head) const {
    rt::StoreNumbers numbers{.table = {}, .heads = heads, .head = head};
    int64_t line = store ? store->lineOf(numbers, row) : row * heads + head;
    return codes->bytes.data() + (layer * count * heads + line) * part.format.rowBytes(part.dim);
  }
  /// Returns the metadata of a line or, if lines have none, the head's part of the shared scales.
  uint8_t *metaAt(int64_t layer, int64_t row, int64_t head) const {
    if (!meta)
      return sharedAt(layer, head);
    rt::StoreNumbers numbers{.table = {}, .heads = heads, .head = head};
    int64_t inLayer = store->lineOf(numbers, row) * part.format.metaBytes(part.dim);
    return meta->bytes.data() + layer * (int64_t(meta->bytes.size()) / layers) + inLayer;
  }
  uint8_t *sharedAt(int64_t layer, int64_t head) const {
    if (!shared)
      return nullptr;
    rt::StoreNumbers numbers{.table = {}, .heads = heads, .head = head};
    int64_t inLayer = store->sharedOf(numbers, part) * int64_t(sizeof(float));
    return shared->bytes.data() + layer * (int64_t(shared->bytes.size()) / layers) + inLayer;
  }
  float scaleAt(int64_t layer, int64_t head) const {
    const uint8_t *at = sharedAt(layer, head);
    float scale = 1;
    if (at)
      std::memcpy(&scale, at, sizeof scale);
    return scale;
  }
};

/// The norm and the rotation of keys or of queries.
struct Preparation {
  std::vector<float> weights, cos, sin; ///< [layers, normal], [positions, angles]; empty without
  int64_t normal = 0, angles = 0;
  int64_t turned = 0; ///< the first feature that turns
  float epsilon = 0;
  bool interleaved = false;
  std::span<const int32_t> positions;

  bool isEmpty() const { return weights.empty() && cos.empty(); }
  void apply(int64_t layer, int64_t row, std::vector<float> &head) const {
    if (!weights.empty())
      rt::normalizeRow(head, std::span(weights).subspan(layer * normal, normal), epsilon);
    if (cos.empty())
      return;
    const int64_t last = std::ssize(cos) / angles - 1;
    const int64_t first = std::clamp<int64_t>(positions[row], 0, last) * angles;
    rt::rotateRow(std::span(head).subspan(turned), std::span(cos).subspan(first, angles),
                  std::span(sin).subspan(first, angles), interleaved);
  }
};

/// Copies the rows of keys, of values or of queries from one memory to another.
class RowsCopy {
public:
  RowsCopy(const Memory &source, const Memory &target, bool oneCache, Preparation preparation = {})
      : source(source), target(target), preparation(std::move(preparation)), decoder(source.part.format),
        isCopy(this->preparation.isEmpty() && source.part.format == target.part.format &&
               (oneCache || !source.part.format.hasSharedScale())) {}

  void copy(int64_t layer, int64_t from, int64_t to) {
    for (int64_t head = 0; head < source.heads; ++head)
      copyHead(layer, from, to, head);
  }
  int64_t strange = 0; ///< count of numbers that cannot be quantized

private:
  void copyHead(int64_t layer, int64_t from, int64_t to, int64_t head) {
    const rt::Format &format = target.part.format;
    const int64_t dim = target.part.dim;
    const uint8_t *codes = source.codesAt(layer, from, head), *meta = source.metaAt(layer, from, head);
    uint8_t *newCodes = target.codesAt(layer, to, head), *newMeta = target.metaAt(layer, to, head);
    if (isCopy) {
      std::memcpy(newCodes, codes, format.rowBytes(dim));
      if (format.hasLines())
        std::memcpy(newMeta, meta, format.metaBytes(dim));
      return;
    }
    std::vector<float> row(dim);
    decoder.decode(codes, meta, row, source.scaleAt(layer, head));
    preparation.apply(layer, from, row);
    const float scale = target.scaleAt(layer, head);
    if (!format.isPlain()) {
      strange += rt::clampRow(format, row);
      rt::findMeta(format, row, newMeta, scale);
    }
    rt::quantizeRow(format, row, newMeta, newCodes, scale);
  }

  const Memory source, target;
  const Preparation preparation;
  rt::RowDecoder decoder;
  bool isCopy;
};

class Evaluation {
public:
  Evaluation(const RowCopy &copy, const Signature &signature, const rt::TensorMap &tensors)
      : copy(copy), signature(signature), tensors(tensors) {}

  rt::Result<rt::TensorMap> run() {
    for (bool keys : {true, false})
      if (!keys && storeOf(copy.type()).isLatent())
        continue; // a part of the keys
      else if (rt::Status status = copyPart(keys); !status)
        return status.error();
    if (copy.prologue.q)
      if (rt::Status status = prepareQueries(); !status)
        return status.error();
    if (copy.to)
      takeWritten();
    if (copy.status)
      if (rt::Status status = addStrange(); !status)
        return status.error();
    return std::move(results);
  }

private:
  std::string nameOf(Value value) const {
    return signature.arguments[cast<BlockArgument>(value).getArgNumber()].name;
  }
  const rt::Tensor *find(const std::string &name) const {
    auto found = tensors.find(name);
    return found == tensors.end() ? nullptr : &found->second;
  }

  /// Returns the slots of a cache, in copies of its tensors.
  rt::Result<Memory> slotsOf(Value cache, bool keys) {
    Memory memory{.store = storeOf(cast<KVType>(cache.getType()))};
    memory.part = memory.store->part(keys);
    memory.heads = memory.store->heads;
    std::string prefix = nameOf(cache) + ".";
    for (const rt::StoreTensor &each : memory.store->data()) {
      if (each.name.front() != memory.part.letter)
        continue;
      const std::string name = prefix + each.name;
      if (!caches.count(name)) {
        const rt::Tensor *given = find(name);
        if (!given)
          return rt::inputError("a tensor of '" + std::string(1, memory.part.letter) + "' is missing");
        caches[name] = *given;
      }
      (each.content == rt::StoreTensor::Content::Codes   ? memory.codes
       : each.content == rt::StoreTensor::Content::Lines ? memory.meta
                                                         : memory.shared) = &caches[name];
    }
    memory.layers = memory.codes->shape[0];
    memory.count = memory.store->slots(1, memory.codes->shape[1], memory.codes->shape[1]);
    return memory;
  }

  rt::Result<Memory> rowsOf(Value rows, bool keys, int64_t layers, int64_t count) {
    auto type = cast<RankedTensorType>(rows.getType());
    const std::string name = keys ? "k" : "v";
    const rt::DType dtype = elementOf(type.getElementType()).dtype;
    Memory memory{.part = {name[0], type.getDimSize(3), rt::Format::plain(dtype)}};
    memory.layers = layers, memory.count = count, memory.heads = type.getDimSize(2);
    if (copy.to) {
      const rt::Tensor *given = find(name);
      if (!given)
        return rt::inputError("a tensor of '" + name + "' is missing");
      scratch[keys] = *given;
      memory.codes = &scratch[keys];
    } else {
      rt::Tensor made(dtype, {layers, count, memory.heads, memory.part.dim});
      std::fill(made.bytes.begin(), made.bytes.end(), 0xff); // the content of poisoned memory
      memory.codes = &(results[name] = std::move(made));
    }
    return memory;
  }

  rt::Status copyPart(bool keys) {
    const rt::Tensor *from = copy.from ? find(nameOf(copy.from)) : nullptr;
    const rt::Tensor *to = copy.to ? find(nameOf(copy.to)) : nullptr;
    if ((copy.from && !from) || (copy.to && !to))
      return rt::inputError("a tensor of '" + std::string(keys ? "k" : "v") + "' is missing");
    int64_t count = (from ? from : to)->elements();
    auto slots = slotsOf(copy.cache, keys);
    if (!slots)
      return slots.error();
    auto other = copy.into ? slotsOf(copy.into, keys)
                 : copy.k  ? rowsOf(keys ? copy.k : copy.v, keys, slots->layers, count)
                           : slots;
    if (!other)
      return other.error();
    const Memory &source = copy.from ? *slots : *other, &target = copy.from ? *other : *slots;
    auto preparation = keys ? preparationOf(copy.prologue.kNorm) : Preparation();
    if (!preparation)
      return preparation.error();
    RowsCopy rows(source, target, !copy.into && !copy.k, *preparation);
    for (int64_t layer = 0; layer < source.layers; ++layer)
      for (int64_t row = 0; row < count; ++row) {
        int64_t read = from ? from->as<int32_t>()[row] : row, write = to ? to->as<int32_t>()[row] : row;
        if (read < 0 || write < 0)
          continue;
        for (auto [slot, memory] : {std::pair(read, &source), std::pair(write, &target)})
          if (slot >= memory->count)
            return rt::inputError("row " + std::to_string(row) + ": slot " + std::to_string(slot) +
                                  " is outside of the cache");
        rows.copy(layer, read, write);
      }
    strange += rows.strange;
    return {};
  }

  /// Returns the numbers of a small tensor; none without one.
  rt::Result<std::vector<float>> numbersOf(Value value) {
    if (!value)
      return std::vector<float>();
    const rt::Tensor *given = find(nameOf(value));
    if (!given)
      return rt::inputError("a tensor of '" + nameOf(value) + "' is missing");
    std::vector<float> numbers(given->elements());
    if (given->dtype == rt::DType::F32)
      llvm::copy(given->as<float>(), numbers.begin());
    else
      llvm::transform(given->as<uint16_t>(), numbers.begin(), [&](uint16_t bits) {
        return static_cast<float>(rt::fromFloatBits(bits, rt::elementType(given->dtype)));
      });
    return numbers;
  }

  rt::Result<Preparation> preparationOf(Value weights) {
    const Prologue &prologue = copy.prologue;
    Preparation made;
    for (auto [value, into] : {std::pair(weights, &made.weights), std::pair(prologue.cos, &made.cos),
                               std::pair(prologue.sin, &made.sin)}) {
      auto numbers = numbersOf(value);
      if (!numbers)
        return numbers.error();
      *into = std::move(*numbers);
    }
    if (weights)
      made.normal = cast<RankedTensorType>(weights.getType()).getDimSize(1);
    made.epsilon = prologue.epsilon.value_or(0);
    made.turned = prologue.first;
    made.interleaved = prologue.interleaved;
    if (!prologue.cos)
      return made;
    made.angles = cast<RankedTensorType>(prologue.cos.getType()).getDimSize(1);
    const rt::Tensor *positions = find("positions");
    if (!positions)
      return rt::inputError("a tensor of 'positions' is missing");
    made.positions = positions->as<int32_t>();
    return made;
  }

  rt::Status prepareQueries() {
    auto type = cast<RankedTensorType>(copy.prologue.q.getType());
    const rt::Tensor *given = find("q");
    if (!given)
      return rt::inputError("a tensor of 'q' is missing");
    auto preparation = preparationOf(copy.prologue.qNorm);
    if (!preparation)
      return preparation.error();
    if (copy.type().getLatent()) // they are the features that turn
      preparation->turned = 0;
    rt::Tensor from = *given;
    Memory source{.part = {'q', type.getDimSize(3), rt::Format::plain(given->dtype)}};
    source.codes = &from;
    source.layers = given->shape[0], source.count = given->shape[1], source.heads = type.getDimSize(2);
    Memory target = source;
    target.codes = &(results["rotated"] = *given);
    RowsCopy rows(source, target, false, *preparation);
    for (int64_t layer = 0; layer < source.layers; ++layer)
      for (int64_t row = 0; row < source.count; ++row)
        rows.copy(layer, row, row);
    return {};
  }

  /// Takes the written tensors of a cache as the operation's results.
  void takeWritten() {
    const rt::Store store = storeOf(cast<KVType>(copy.written().getType()));
    std::string prefix = nameOf(copy.written()) + ".";
    for (const rt::StoreTensor &tensor : store.data())
      if (tensor.content != rt::StoreTensor::Content::Scales)
        results[prefix + tensor.name] = std::move(caches.at(prefix + tensor.name));
  }

  rt::Status addStrange() {
    const rt::Tensor *given = find("status");
    if (!given)
      return rt::inputError("a tensor of 'status' is missing");
    results["status"] = *given;
    results["status"].data<int32_t>()[0] += static_cast<int32_t>(strange);
    return {};
  }

  const RowCopy &copy;
  const Signature &signature;
  const rt::TensorMap &tensors;
  rt::TensorMap caches, results;
  rt::Tensor scratch[2];
  int64_t strange = 0;
};

} // namespace

rt::Result<rt::TensorMap> mlir::attn::evaluateRowCopy(func::FuncOp func, const rt::TensorMap &tensors) {
  std::optional<RowCopy> copy = findRowCopy(func);
  FailureOr<Signature> signature = readSignature(func);
  if (failed(signature) || !copy)
    return rt::inputError("function '" + func.getName().str() + "' has no operation on a cache");
  return Evaluation(*copy, *signature, tensors).run();
}
