//===- CacheKernel.cpp - An operation on a cache on a device --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "session/CacheKernelState.h"
#include "session/Grid.h"

#include <algorithm>
#include <limits>

namespace attn::rt {

namespace {

constexpr int64_t mostWork = std::numeric_limits<int32_t>::max() / 2; ///< the limit of a warp's counter

/// The caches of an operation: the first, or the only one, is read; the last is written.
std::vector<Argument> cachesOf(const Manifest &manifest) {
  std::vector<Argument> caches;
  std::copy_if(manifest.arguments.begin(), manifest.arguments.end(), std::back_inserter(caches),
               [](const Argument &argument) { return argument.role == Argument::Role::KV; });
  return caches;
}

/// The dtype of rows outside of a cache.
DType rowType(const Manifest &manifest, bool keys) {
  const std::string_view name = keys ? "k" : "v";
  for (const Argument &argument : manifest.arguments)
    if (argument.role == Argument::Role::Rows && argument.name == name)
      return argument.dtype;
  const ResultInfo *result = manifest.findResult(name);
  return result ? result->dtype : manifest.dtype;
}

int64_t rowBytesOf(const Manifest &manifest, bool keys) {
  if (!keys && cachesOf(manifest).front().latent)
    return 0;
  return int64_t{manifest.kvHeads} * (keys ? manifest.keyDim : manifest.valueDim) *
         static_cast<int64_t>(dtypeSize(rowType(manifest, keys)));
}

/// Bytes of a head of a row's queries.
int64_t queryHeadBytesOf(const Manifest &manifest) {
  const ResultInfo *rotated = manifest.findResult("rotated");
  return rotated ? rotated->dims.back().value * static_cast<int64_t>(dtypeSize(rotated->dtype)) : 0;
}

} // namespace

CacheKernel::CacheKernel(std::unique_ptr<State> state) : state_(std::move(state)) {}
CacheKernel::CacheKernel(CacheKernel &&) noexcept = default;
CacheKernel &CacheKernel::operator=(CacheKernel &&) noexcept = default;
CacheKernel::~CacheKernel() = default;

Result<CacheKernel> CacheKernel::create(Device &device, const Manifest &manifest,
                                        const ModuleSource &source) {
  Result<std::unique_ptr<Module>> module = device.load(source);
  if (!module)
    return module.error();
  return create(device, manifest, std::shared_ptr<Module>(std::move(*module)));
}

Result<CacheKernel> CacheKernel::create(Device &device, const Manifest &manifest,
                                        std::shared_ptr<Module> module) {
  const KernelInfo *info = manifest.rowCopy();
  if (!info)
    return inputError("'" + manifest.entry +
                      "' is an attention, not an operation on a cache: run it in a Session");
  Result<Kernel *> kernel = module->kernel(info->name, info->sharedBytes);
  if (!kernel)
    return kernel.error();
  std::unique_ptr<State> state(new State{device,
                                         manifest.entry,
                                         *info,
                                         manifest.launches.front(),
                                         cachesOf(manifest),
                                         rowBytesOf(manifest, true),
                                         rowBytesOf(manifest, false),
                                         manifest.qHeads,
                                         queryHeadBytesOf(manifest),
                                         std::move(module),
                                         *kernel,
                                         {},
                                         {},
                                         {}});
  state->values.resize(info->params.size());
  for (uint64_t &value : state->values)
    state->args.push_back(&value);
  return CacheKernel(std::move(state));
}

KernelInfo::Role CacheKernel::role() const { return state_->info.role; }
const Argument &CacheKernel::cache() const { return state_->caches.front(); }
const Argument &CacheKernel::written() const { return state_->caches.back(); }
int64_t CacheKernel::slotBytes(bool keys) const { return codesBytes(cache(), keys); }
int64_t CacheKernel::rowBytes(bool keys) const { return keys ? state_->keyRowBytes : state_->valueRowBytes; }
int64_t CacheKernel::metaBytes(bool keys, int64_t slots) const { return metadataBytes(cache(), keys, slots); }
int CacheKernel::blocks() const { return state_->blocks; }
bool CacheKernel::hasStrides() const { return state_->hasStrides(); }
int64_t CacheKernel::listWords() const { return 8 + state_->capacity * state_->listCount(); }

Status CacheKernel::reserve(int64_t rows, int32_t layers, std::optional<int> blocks) {
  State &s = *state_;
  if (rows < 0 || layers < 1 || (blocks && *blocks < 1))
    return s.error("expected rows, at least 1 layer and at least 1 block, got " + std::to_string(rows) +
                   ", " + std::to_string(layers) + " and " + std::to_string(blocks.value_or(1)));
  const int64_t perLayer = walkTurns(s.info, rows), together = s.info.rowsPerWarp;
  if (perLayer > mostWork / layers)
    return s.error("expected at most " + std::to_string(mostWork / layers / s.info.pieces * together) +
                   " rows of " + std::to_string(layers) + " layers at once, got " + std::to_string(rows));
  const int64_t capacity = (rows + together - 1) / together * together;
  s.capacity = capacity;
  const auto words = static_cast<size_t>(listWords());
  Result<Buffer> made = Buffer::create(s.device, words * 4, "rows of '" + s.entry + "'");
  if (!made)
    return made.error();
  s.lists = std::move(*made);
  s.staging.assign(words, 0);
  s.checker.reserve(static_cast<size_t>(rows));
  s.reservedLayers = layers;
  s.layers = 0;
  s.givenBlocks = blocks;
  s.bound.clear();
  s.list = 0;
  s.useList(s.lists.address());
  s.slots = s.rows = s.listed = -1;
  return useLayers(layers);
}

Status CacheKernel::useLayers(int32_t layers) {
  State &s = *state_;
  if (layers == s.layers)
    return {};
  if (layers < 1 || layers > s.reservedLayers)
    return s.error("expected 1 to " + std::to_string(s.reservedLayers) + " layers, as reserved, got " +
                   std::to_string(layers));
  const int64_t filled = int64_t{s.device.properties().multiprocessors} * s.info.blocksPerSM;
  s.blocks =
      s.givenBlocks ? *s.givenBlocks : static_cast<int>(gridBlocks(s.info, s.capacity, layers, filled));
  s.layers = layers;
  s.bound["layers"] = static_cast<uint64_t>(layers);
  s.stale = true;
  return {};
}

Status CacheKernel::bind(const DeviceRows &cache, const DeviceRows &rows, DeviceAddress status) {
  State &s = *state_;
  if (!s.lists)
    return s.error("bind before reserve");
  if (Status bound = s.bindCache(s.caches.front(), cache); !bound)
    return bound;
  if (s.hasParameter("status")) {
    if (!status || status % 4)
      return s.error("expected a status to count in, at a multiple of 4 bytes");
    s.bound["status"] = status;
  }
  if (cache.count != s.slots)
    s.listed = -1; // the list was checked against another number of slots
  s.slots = s.written = cache.count;
  s.rows = s.capacity;
  s.stale = true;
  if (s.info.role == KernelInfo::Role::Move)
    return {};
  if (s.info.role == KernelInfo::Role::Requantize) {
    s.written = rows.count;
    s.listed = -1;
    return s.bindCache(s.caches.back(), rows);
  }
  s.rows = rows.count;
  return s.bindRows(rows);
}

Status CacheKernel::bindPrologue(const DevicePrologue &given) {
  State &s = *state_;
  if (!s.hasStrides())
    return s.error("its rows have no strides");
  for (auto [name, bytes, dense] :
       {std::tuple("k", given.kRowBytes, s.keyRowBytes), std::tuple("v", given.vRowBytes, s.valueRowBytes)})
    if (!dense)
      continue; // values that are a part of their keys
    else if (Status status = s.bindRowStride(name, bytes, dense); !status)
      return status;
  for (auto [name, heads] : {std::pair("q", &given.q), std::pair("rotated", &given.rotated)})
    if (s.hasParameter(name))
      if (Status status = s.bindQueries(name, *heads); !status)
        return status;
  for (auto [name, address] : {std::pair("k_norm", given.kNorm), std::pair("q_norm", given.qNorm),
                               std::pair("cos", given.cos), std::pair("sin", given.sin)}) {
    if (!s.hasParameter(name))
      continue;
    if (!address || address % 16)
      return s.error("expected '" + std::string(name) + "' at a multiple of 16 bytes, got " +
                     std::to_string(address));
    s.bound[name] = address;
  }
  if (s.hasParameter("cos") && (given.tableRows < 1 || given.tableRows > mostWork))
    return s.error("expected tables of 1 to 2^30 positions, got " + std::to_string(given.tableRows));
  if (given.positions % 4)
    return s.error("expected positions at a multiple of 4 bytes, got " + std::to_string(given.positions));
  s.positions = given.positions;
  s.bound["cos.dim0"] = static_cast<uint64_t>(given.tableRows);
  s.stale = true;
  return {};
}

Status CacheKernel::setRows(const RowLists &lists) {
  State &s = *state_;
  if (s.slots < 0)
    return s.error("rows are set before a cache is bound");
  const auto count = static_cast<int64_t>(std::max(lists.from.size(), lists.to.size()));
  if (count > s.capacity || count > s.rows)
    return s.error("expected at most " + std::to_string(std::min(s.capacity, s.rows)) + " rows, got " +
                   std::to_string(count) + (count > s.capacity ? ": reserve more" : ", more than are bound"));
  if (Status status = s.checker.check(s.info.role, lists, s.slots, s.written); !status)
    return status;
  if (s.hasParameter("positions") && std::ssize(lists.positions) != count)
    return s.error("expected the positions of " + std::to_string(count) + " rows, got " +
                   std::to_string(lists.positions.size()));
  s.listed = -1; // until the lists are complete
  s.staging[0] = static_cast<int32_t>(count);
  const std::span<const int32_t> first = s.reads() ? lists.from : lists.to;
  std::copy(first.begin(), first.end(), s.staging.begin() + 8);
  if (Status status = s.device.copyIn(s.lists.address(), s.staging.data(), (8 + first.size()) * 4); !status)
    return status;
  if (s.listCount() > 1 && count) {
    const std::span<const int32_t> last = s.reads() ? lists.to : lists.positions;
    int32_t *second = s.staging.data() + 8 + s.capacity;
    std::copy(last.begin(), last.end(), second);
    const DeviceAddress to = s.lists.address() + sectorBytes + static_cast<uint64_t>(s.capacity) * 4;
    if (Status status = s.device.copyIn(to, second, last.size() * 4); !status)
      return status;
  }
  s.listed = count;
  return {};
}

Status CacheKernel::launch() {
  State &s = *state_;
  if (s.listed < 0)
    return s.error("launch before rows were set");
  if (s.listed > s.rows)
    return s.error("expected at least the " + std::to_string(s.listed) + " rows that are set, got " +
                   std::to_string(s.rows));
  s.useList(s.lists.address());
  return s.launchKernel();
}

Status CacheKernel::launchFrom(DeviceAddress list) {
  State &s = *state_;
  if (s.slots < 0)
    return s.error("launch before a cache is bound");
  if (!list || list % sectorBytes)
    return s.error("expected a list at a multiple of " + std::to_string(sectorBytes) + ", got " +
                   std::to_string(list));
  s.useList(list);
  return s.launchKernel();
}

namespace {

/// Bytes of the queries, weights and tables that an append reads or writes beside keys and values: each once.
int64_t prologueFloor(const Manifest &manifest, const RowLists &lists, int32_t layers) {
  int64_t bytes = 0;
  for (const Argument &argument : manifest.arguments) {
    if (argument.role == Argument::Role::Rows && argument.name == "q")
      bytes += 2 * std::ssize(lists.to) * layers * manifest.qHeads * queryHeadBytesOf(manifest);
    if (argument.role != Argument::Role::Tensor)
      continue;
    const bool isTable = argument.name == "cos" || argument.name == "sin";
    std::vector<int32_t> positions(lists.positions.begin(), lists.positions.end());
    std::sort(positions.begin(), positions.end());
    const int64_t used = std::unique(positions.begin(), positions.end()) - positions.begin();
    bytes +=
        (isTable ? used : layers) * argument.dims[1].value * static_cast<int64_t>(dtypeSize(argument.dtype));
  }
  return bytes + 4 * std::ssize(lists.positions);
}

} // namespace

int64_t rowCopyFloor(const Manifest &manifest, const RowLists &lists, int32_t layers) {
  const std::vector<Argument> caches = cachesOf(manifest);
  const auto inCache = [&](const Argument &cache) { return cache.kvHeads * storeOf(cache).tokenBytes(); };
  const int64_t inRows = rowBytesOf(manifest, true) + rowBytesOf(manifest, false);
  const KernelInfo::Role role = manifest.rowCopy()->role;
  const int64_t read = role == KernelInfo::Role::Append ? inRows : inCache(caches.front());
  const int64_t written = role == KernelInfo::Role::Gather ? inRows : inCache(caches.back());
  const std::span<const int32_t> slots = lists.from.empty() ? lists.to : lists.from;
  const int64_t rows = std::count_if(slots.begin(), slots.end(), [](int32_t slot) { return slot >= 0; });
  return rows * layers * (read + written) + 4 * static_cast<int64_t>(lists.from.size() + lists.to.size()) +
         prologueFloor(manifest, lists, layers);
}

} // namespace attn::rt
