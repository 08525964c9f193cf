//===- CacheKernel.cpp - An operation on a cache on a device --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/session/CacheKernel.h"

#include "session/Grid.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

namespace attn::rt {

namespace {

constexpr int64_t chunkBytes = 16;
constexpr int64_t sectorBytes = 32;
constexpr int64_t metaWordBytes = 4; ///< what layers of metadata are counted in
constexpr int64_t mostWork = std::numeric_limits<int32_t>::max() / 2; ///< what a warp's counter may reach

int64_t codesBytes(const Argument &cache, bool keys) {
  const StorePart part = storeOf(cache).part(keys);
  return int64_t{cache.kvHeads} * part.format.rowBytes(part.dim);
}

/// Of a layer, for so many slots; of given scales as they are.
int64_t metadataBytes(const Argument &cache, bool keys, int64_t slots) {
  const StorePart part = storeOf(cache).part(keys);
  if (part.format.scales == Format::Scales::Tensor)
    return part.format.metaBytes(part.dim);
  return cache.kvHeads * part.format.metaBytes(part.dim) * (part.format.hasLines() ? slots : 1);
}

/// The caches of an operation: the first is read, or the only one, the last is written.
std::vector<Argument> cachesOf(const Manifest &manifest) {
  std::vector<Argument> caches;
  std::copy_if(manifest.arguments.begin(), manifest.arguments.end(), std::back_inserter(caches),
               [](const Argument &argument) { return argument.role == Argument::Role::KV; });
  return caches;
}

/// How rows outside of a cache hold numbers.
DType rowType(const Manifest &manifest, bool keys) {
  const std::string_view name = keys ? "k" : "v";
  for (const Argument &argument : manifest.arguments)
    if (argument.role == Argument::Role::Rows && argument.name == name)
      return argument.dtype;
  const ResultInfo *result = manifest.findResult(name);
  return result ? result->dtype : manifest.dtype;
}

int64_t rowBytesOf(const Manifest &manifest, bool keys) {
  return int64_t{manifest.kvHeads} * (keys ? manifest.keyDim : manifest.valueDim) *
         static_cast<int64_t>(dtypeSize(rowType(manifest, keys)));
}

} // namespace

struct CacheKernel::State {
  Device &device;
  std::string entry;
  KernelInfo info;
  LaunchInfo launch;
  std::vector<Argument> caches;
  int64_t keyRowBytes, valueRowBytes;
  std::shared_ptr<Module> module;
  Kernel *kernel = nullptr;

  std::map<std::string, uint64_t> bound; ///< values of parameters by name
  std::vector<uint64_t> values;
  std::vector<void *> args;
  bool stale = true;

  // On the device: the number of rows in a sector of its own, then the lists, each of `capacity` rows.
  Buffer lists = {};
  int64_t capacity = 0;
  int32_t layers = 0, reservedLayers = 0;
  int blocks = 0;
  std::optional<int> givenBlocks = {};
  int64_t slots = -1, rows = -1, written = -1; ///< of what is bound: `written` of the cache that is written
  int64_t listed = -1;                         ///< rows that are set
  DeviceAddress list = 0;                      ///< where launches find them
  std::vector<int32_t> staging = {};
  RowChecker checker = {};

  bool reads() const { return info.role != KernelInfo::Role::Append; }
  bool writes() const { return info.role != KernelInfo::Role::Gather; }
  Error error(const std::string &what) const { return inputError("cache kernel '" + entry + "': " + what); }

  bool hasParameter(const std::string &name) const {
    return std::any_of(info.params.begin(), info.params.end(),
                       [&](const Parameter &parameter) { return parameter.name == name; });
  }

  /// Memory of keys or values, or of their metadata.
  struct Part {
    std::string name, buffer, layer;
    DeviceAddress address;
    int64_t layerBytes, needed; ///< needed: bytes of a layer
    int64_t unit, counted;      ///< layers begin at multiples of `unit`, and are counted in `counted` bytes
  };
  Status bindPart(const Part &part) {
    if (part.address % chunkBytes)
      return error("expected the " + part.name + " at a multiple of 16 bytes, got an address that is " +
                   std::to_string(part.address % chunkBytes) + " above one");
    if (layers > 1 && (part.layerBytes < part.needed || part.layerBytes % part.unit ||
                       part.layerBytes / part.counted > std::numeric_limits<int32_t>::max()))
      return error("expected layers of " + part.name + " to lie a multiple of " + std::to_string(part.unit) +
                   " and at least " + std::to_string(part.needed) + " bytes apart, got " +
                   std::to_string(part.layerBytes));
    bound[part.buffer] = part.address;
    bound[part.layer] = static_cast<uint64_t>(layers > 1 ? part.layerBytes / part.counted : 0);
    return {};
  }
  Status checkCount(int64_t count, const std::string &what) const {
    if (count < 0 || count > std::numeric_limits<int32_t>::max())
      return error("expected 0 to 2^31 - 1 " + what + ", got " + std::to_string(count));
    return {};
  }

  Status bindRows(const DeviceRows &given) {
    if (Status status = checkCount(given.count, "rows"); !status)
      return status;
    for (const Part &part : {Part{"keys of the rows", "k", "k.layer", given.k, given.kLayerBytes,
                                  given.count * keyRowBytes, chunkBytes, chunkBytes},
                             Part{"values of the rows", "v", "v.layer", given.v, given.vLayerBytes,
                                  given.count * valueRowBytes, chunkBytes, chunkBytes}})
      if (Status status = bindPart(part); !status)
        return status;
    return {};
  }

  Status bindCache(const Argument &cache, const DeviceRows &given) {
    if (Status status = checkCount(given.count, "slots"); !status)
      return status;
    const Store store = storeOf(cache);
    for (const bool keys : {true, false}) {
      const StorePart &part = store.part(keys);
      const std::string prefix = cache.name + ".", what = keys ? "keys of the slots" : "values of the slots";
      if (Status status = bindPart({what, prefix + store.codesName(part), prefix + part.letter + "_layer",
                                    keys ? given.k : given.v, keys ? given.kLayerBytes : given.vLayerBytes,
                                    given.count * codesBytes(cache, keys), chunkBytes, chunkBytes});
          !status)
        return status;
      const std::string meta = prefix + Store::metaName(part);
      if (!hasParameter(meta))
        continue;
      const DeviceMeta &at = keys ? given.kMeta : given.vMeta;
      if (given.count && !at.address)
        return error("expected " + std::string(keys ? "keys" : "values") + " with '" + meta +
                     "', the metadata of codes of " + part.format.text() + ", got none");
      const int64_t line = part.format.metaBytes(part.dim);
      if (Status status = bindPart({"metadata of " + what, meta, meta + "_layer", at.address, at.layerBytes,
                                    metadataBytes(cache, keys, given.count),
                                    std::min<int64_t>(chunkBytes, line & -line), metaWordBytes});
          !status)
        return status;
    }
    return {};
  }

  /// Lists lie behind a sector with the number of rows.
  void useList(DeviceAddress at) {
    if (at == list)
      return;
    list = at;
    bound["row_count"] = at;
    bound["slots"] = bound["from"] = at + sectorBytes;
    bound["to"] = at + sectorBytes + static_cast<uint64_t>(capacity) * 4;
    stale = true;
  }

  Status launchKernel() {
    if (stale)
      if (Status status = fill(); !status)
        return status;
    const LaunchShape shape{{static_cast<uint32_t>(blocks), 1, 1},
                            {static_cast<uint32_t>(info.threads), 1, 1},
                            static_cast<uint32_t>(info.sharedBytes),
                            launch.overlapsPrevious};
    return device.launch(*kernel, shape, args.data());
  }

  Status fill() {
    for (size_t i = 0; i < info.params.size(); ++i) {
      auto found = bound.find(info.params[i].name);
      if (found == bound.end())
        return error("'" + info.params[i].name + "' is not bound");
      values[i] = found->second;
    }
    stale = false;
    return {};
  }
};

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
  const int64_t words = 8 + capacity * (s.reads() && s.writes() ? 2 : 1);
  Result<Buffer> made = Buffer::create(s.device, static_cast<size_t>(words) * 4, "rows of '" + s.entry + "'");
  if (!made)
    return made.error();
  s.lists = std::move(*made);
  s.staging.assign(static_cast<size_t>(words), 0);
  s.checker.reserve(static_cast<size_t>(rows));
  s.capacity = capacity;
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
    s.listed = -1; // the list was checked against another number
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
  s.listed = -1; // until all is there
  s.staging[0] = static_cast<int32_t>(count);
  const std::span<const int32_t> first = s.reads() ? lists.from : lists.to;
  std::copy(first.begin(), first.end(), s.staging.begin() + 8);
  if (Status status = s.device.copyIn(s.lists.address(), s.staging.data(), (8 + first.size()) * 4); !status)
    return status;
  if (s.reads() && s.writes() && count) {
    int32_t *second = s.staging.data() + 8 + s.capacity;
    std::copy(lists.to.begin(), lists.to.end(), second);
    const DeviceAddress to = s.lists.address() + sectorBytes + static_cast<uint64_t>(s.capacity) * 4;
    if (Status status = s.device.copyIn(to, second, lists.to.size() * 4); !status)
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
  if (s.info.role != KernelInfo::Role::Append)
    return s.error("expected an append where the list is the caller's");
  if (s.slots < 0)
    return s.error("launch before a cache is bound");
  if (!list || list % sectorBytes)
    return s.error("expected a list at a multiple of " + std::to_string(sectorBytes) + ", got " +
                   std::to_string(list));
  s.useList(list);
  return s.launchKernel();
}

int64_t rowCopyFloor(const Manifest &manifest, const RowLists &lists, int32_t layers) {
  const std::vector<Argument> caches = cachesOf(manifest);
  const auto inCache = [&](const Argument &cache) { return cache.kvHeads * storeOf(cache).tokenBytes(); };
  const int64_t inRows = rowBytesOf(manifest, true) + rowBytesOf(manifest, false);
  const KernelInfo::Role role = manifest.rowCopy()->role;
  const int64_t read = role == KernelInfo::Role::Append ? inRows : inCache(caches.front());
  const int64_t written = role == KernelInfo::Role::Gather ? inRows : inCache(caches.back());
  const std::span<const int32_t> slots = lists.from.empty() ? lists.to : lists.from;
  const int64_t rows = std::count_if(slots.begin(), slots.end(), [](int32_t slot) { return slot >= 0; });
  return rows * layers * (read + written) + 4 * static_cast<int64_t>(lists.from.size() + lists.to.size());
}

} // namespace attn::rt
