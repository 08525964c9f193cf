//===- Batch.cc - The C API's batches -------------------------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn-c/Unstable.h"
#include "attn_rt/batch/Visibility.h"
#include "attn_rt/capi/Objects.h"

#include <cstring>

using namespace attn::rt;
using namespace attn::rt::capi;

Status SharedBatch::fits(const Manifest &manifest) const {
  if (contentHash == manifest.contentHash)
    return {};
  return inputError("the batch was made for '" + entry + "', not for '" + manifest.entry +
                    "': make one of this kernel's");
}

Result<SlotNeed> SharedBatch::need(const Manifest &manifest, const std::string &slot) const {
  const Batch &batch = content.batch;
  const auto of = [](int64_t elements, DType dtype) {
    const size_t size = dtypeSize(dtype);
    return SlotNeed{static_cast<size_t>(elements) * size, isFloat(dtype) && size <= 2 ? 16 : size};
  };
  // Copies take up to 16 bytes at a time.
  const auto ofLines = [](int64_t bytes) { return SlotNeed{static_cast<size_t>(bytes), 16}; };
  if (const ResultInfo *result = manifest.findResult(slot)) {
    Result<std::vector<int64_t>> shape = result->shape(resultSizes(manifest, batch));
    if (!shape)
      return shape.error();
    return of(elementCount(*shape).value_or(0), result->dtype);
  }
  if (slot == "ordinal_heads")
    return of(manifest.kvHeads, DType::I32);
  for (const Argument &argument : manifest.arguments) {
    if (argument.name != slot || argument.role == Argument::Role::KV)
      continue;
    if (argument.role == Argument::Role::Query)
      return of(batch.rows * manifest.qHeads * manifest.keyDim, manifest.dtype);
    if (argument.role == Argument::Role::Gate)
      return SlotNeed{static_cast<size_t>(manifest.gateBytes(batch.rows)),
                      argument.dims.size() == 3 ? 16 : dtypeSize(argument.dtype)};
    auto known = shapes.find(slot);
    int64_t elements = 1;
    for (size_t i = 0; i < argument.dims.size(); ++i) {
      if (!argument.dims[i].name.empty() && known == shapes.end())
        return inputError("tensor '" + slot + "' has a dimension '" + argument.dims[i].name +
                          "', which a batch made from a cache does not know");
      elements *= argument.dims[i].name.empty() ? argument.dims[i].value : known->second[i];
    }
    return of(elements, argument.dtype);
  }
  const std::vector<int32_t> heads = classHeads(manifest, batch);
  for (size_t o = 0; o < batch.operands.size(); ++o) {
    const Argument &argument = manifest.argumentOf(manifest.operands[o]);
    const OperandBatch &operand = batch.operands[o];
    const Store store = storeOf(argument);
    const int64_t tokens =
        store.slots(static_cast<int64_t>(operand.instances()), operand.tokens, operand.pages);
    const int64_t ofHeads =
        store.isOfClass() ? heads[static_cast<size_t>(argument.headClass)] : argument.kvHeads;
    const int64_t lines = store.isUnified() ? tokens : tokens * ofHeads;
    for (bool keys : {true, false}) {
      const StorePart &part = store.part(keys);
      const Format &format = part.format;
      if (slot == argument.name + "." + store.codesName(part))
        return ofLines(lines * format.rowBytes(part.dim));
      if (format.hasLines() && slot == argument.name + "." + Store::metaName(part))
        return ofLines(lines * format.metaBytes(part.dim));
      if (format.hasSharedScale() && slot == argument.name + "." + Store::sharedName(part))
        return of(format.scales == Format::Scales::Head ? ofHeads : 1, DType::F32);
    }
  }
  return inputError("'" + manifest.entry + "' has no buffer '" + slot + "'");
}

Result<Tensor> attn::rt::capi::tensorFrom(const AttnTensor &given, size_t index,
                                          const std::function<bool(const std::string &)> &needsData) {
  if (!given.name)
    return inputError("tensor " + std::to_string(index) + " has no name");
  const std::string name = given.name;
  uint32_t dtype = 0; // C callers may pass any number where C++ expects an enumerator
  static_assert(sizeof(dtype) == sizeof(given.dtype));
  std::memcpy(&dtype, &given.dtype, sizeof(dtype));
  if (dtype >= elementTypes().size())
    return inputError("tensor '" + name + "': expected a dtype, got " +
                      std::to_string(static_cast<int32_t>(dtype)));
  if (given.rank < 0 || given.rank > 16 || (given.rank > 0 && !given.shape))
    return inputError("tensor '" + name + "': expected 0 to 16 dimensions and their sizes, got " +
                      std::to_string(given.rank));
  Tensor tensor;
  tensor.dtype = static_cast<DType>(dtype);
  tensor.shape.assign(given.shape, given.shape + given.rank);
  const std::optional<int64_t> elements = elementCount(tensor.shape);
  if (!elements || *elements > (int64_t{1} << 46))
    return inputError("tensor '" + name + "': expected a shape of memory, got " + shapeText(tensor.shape));
  if (!needsData(name))
    return tensor;
  if (*elements && !given.data)
    return inputError("tensor '" + name + "': expected its contents, got a description");
  const auto *first = static_cast<const uint8_t *>(given.data);
  tensor.bytes.assign(first, first + static_cast<size_t>(*elements) * dtypeSize(tensor.dtype));
  return tensor;
}

namespace {

Error unknownTensor(const std::string &name, const LoadedKernel &kernel) {
  std::string names = "q_start, q_pos";
  for (const Argument &argument : kernel.manifest.arguments) {
    if (argument.role != Argument::Role::KV) {
      names += ", " + argument.name;
      continue;
    }
    const Store store = storeOf(argument);
    for (const auto &owned : {store.tables(), store.data()})
      for (const StoreTensor &tensor : owned)
        names += ", " + argument.name + "." + tensor.name;
  }
  return inputError("tensor '" + name + "' is none of '" + kernel.manifest.entry + "', which has " + names);
}

/// Reads tables with their contents, and all other tensors as sizes only. `contents` gets large tables.
Status readTensors(const AttnTensor *given, size_t count, const LoadedKernel &kernel, TensorMap &tensors,
                   TableContents &contents) {
  using Reads = LoadedKernel::Reads;
  for (size_t i = 0; i < count; ++i) {
    Reads reads = Reads::Sizes;
    Result<Tensor> tensor = tensorFrom(given[i], i, [&](const std::string &name) {
      if (const auto known = kernel.tensors.find(name); known != kernel.tensors.end())
        reads = known->second;
      if (reads == Reads::LargeContents && (given[i].dtype != AttnI32 || !given[i].data))
        reads = Reads::Contents; // refused for it
      return reads == Reads::Contents;
    });
    if (!tensor)
      return tensor.error();
    std::string name = given[i].name;
    if (!kernel.tensors.contains(name))
      return unknownTensor(name, kernel);
    if (reads == Reads::LargeContents)
      contents[name] = {static_cast<const int32_t *>(given[i].data),
                        static_cast<size_t>(*elementCount(tensor->shape))};
    if (const auto [added, isNew] = tensors.emplace(std::move(name), std::move(*tensor)); !isNew)
      return inputError("tensor '" + added->first + "' is given twice");
  }
  return {};
}

} // namespace

/// Replaces the compiled sizes of windows and sinks.
Status attn::rt::capi::setEnds(const Manifest &manifest, const int32_t *ends, size_t count, Batch &batch) {
  if (count == 0)
    return {};
  if (!ends || count != manifest.ends.size())
    return inputError("ends: expected " + std::to_string(manifest.ends.size()) +
                      " sizes of windows and sinks, got " + std::to_string(count));
  batch.ends.assign(ends, ends + count);
  for (size_t i = 0; i < count; ++i)
    if (const int32_t least = leastSize(manifest, i); ends[i] < least)
      return inputError("ends: expected a size from " + std::to_string(least) + " on, got " +
                        std::to_string(ends[i]));
  return {};
}

AttnStatus attnBatchCreate(const AttnKernel *kernel, const AttnTensor *tensors, size_t count,
                           const int32_t *ends, size_t endCount, AttnBatch **batch) {
  return guarded([&]() -> Status {
    if (Status status = required("kernel, batch", kernel, batch); !status)
      return status;
    if (count && !tensors)
      return inputError("expected " + std::to_string(count) + " tensors, got null");
    const Manifest &manifest = kernel->loaded->manifest;
    if (!manifest.hasPlan())
      return inputError("'" + manifest.entry + "' is an operation on a cache: it has no batches");
    TensorMap map;
    TableContents contents;
    if (Status status = readTensors(tensors, count, *kernel->loaded, map, contents); !status)
      return status;
    if (Status status = addDefaults(manifest, map); !status)
      return status;
    Result<Batch> made = batchFromTensors(manifest, map, contents);
    if (!made)
      return made.error();
    if (Status status = setEnds(manifest, ends, endCount, *made); !status)
      return status;
    auto shared = std::make_shared<SharedBatch>();
    shared->contentHash = manifest.contentHash;
    shared->entry = manifest.entry;
    shared->content.batch = std::move(*made);
    shared->version = newVersion();
    for (const Argument &argument : manifest.arguments)
      if (argument.role == Argument::Role::Tensor || argument.role == Argument::Role::Sink)
        shared->shapes[argument.name] = map.at(argument.name).shape;
    *batch = new AttnBatch{std::move(shared)};
    return {};
  });
}

void attnBatchDestroy(AttnBatch *batch) { delete batch; }

int64_t attnBatchRows(const AttnBatch *batch) {
  return guardedValue(int64_t{0}, [&]() -> int64_t {
    if (!batch)
      return 0;
    auto held = batch->shared->lock.take("the batch");
    return held ? batch->shared->content.batch.rows : 0;
  });
}

int64_t attnBatchSequences(const AttnBatch *batch) {
  return guardedValue(int64_t{0}, [&]() -> int64_t {
    if (!batch)
      return 0;
    auto held = batch->shared->lock.take("the batch");
    return held ? static_cast<int64_t>(batch->shared->content.batch.sequences()) : 0;
  });
}

/// Calls `read` with a batch of the kernel, locked.
static Status readBatch(const AttnKernel *kernel, const AttnBatch *batch, auto read) {
  auto held = batch->shared->lock.take("the batch");
  if (!held)
    return held.error();
  const Manifest &manifest = kernel->loaded->manifest;
  if (Status status = batch->shared->fits(manifest); !status)
    return status;
  read(manifest, batch->shared->content.batch);
  return {};
}

AttnStatus attnBatchTables(const AttnKernel *kernel, const AttnBatch *batch, AttnTensors **tables) {
  return guarded([&]() -> Status {
    if (Status status = required("kernel, batch, tables", kernel, batch, tables); !status)
      return status;
    return readBatch(kernel, batch, [&](const Manifest &manifest, const Batch &content) {
      *tables = new AttnTensors{tablesOf(manifest, content)};
    });
  });
}

AttnStatus attnBatchFloor(const AttnKernel *kernel, const AttnBatch *batch, AttnFloor *floor) {
  return guarded([&]() -> Status {
    if (Status status = required("kernel, batch, floor", kernel, batch, floor); !status)
      return status;
    return readBatch(kernel, batch, [&](const Manifest &manifest, const Batch &content) {
      const ProblemFloor least = problemFloor(manifest, content);
      *floor = {least.queryBytes, least.kvBytes, least.tableBytes, least.resultBytes, least.usefulFlops};
    });
  });
}
