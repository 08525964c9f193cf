#include "attn_rt/CacheKernel.h"

#include "session/Grid.h"

#include <algorithm>
#include <cstring>
#include <limits>
#include <map>

namespace attn::rt {

namespace {

constexpr int64_t chunkBytes = 16;
constexpr int64_t mostWork = std::numeric_limits<int32_t>::max() / 2; ///< what a warp's counter may reach

int64_t tokenBytes(const Argument &cache, bool keys) {
  const StorePart part = storeOf(cache).part(keys);
  return int64_t{cache.kvHeads} * part.format.rowBytes(part.dim);
}

const Argument &cacheOf(const Manifest &manifest) {
  return *std::find_if(manifest.arguments.begin(), manifest.arguments.end(),
                       [](const Argument &argument) { return argument.role == Argument::Role::KV; });
}

} // namespace

struct CacheKernel::State {
  Device &device;
  std::string entry;
  KernelInfo info;
  LaunchInfo launch;
  Argument cache;
  std::shared_ptr<Module> module;
  Kernel *kernel = nullptr;

  std::map<std::string, uint64_t> bound; ///< values of parameters by name
  std::vector<uint64_t> values;
  std::vector<void *> args;
  bool stale = true;

  // On the device: the number of rows in a sector of its own, then the lists, each of `capacity` rows.
  Buffer lists = {};
  int64_t capacity = 0;
  int32_t layers = 0;
  int blocks = 0;
  int64_t slots = -1, rows = -1; ///< of what is bound
  bool set = false;
  std::vector<int32_t> staging = {};
  RowChecker checker = {};

  bool reads() const { return info.role != KernelInfo::Role::Append; }
  bool writes() const { return info.role != KernelInfo::Role::Gather; }
  Error error(const std::string &what) const { return inputError("cache kernel '" + entry + "': " + what); }

  Status bindRows(const DeviceRows &given, const char *what, const std::string &k, const std::string &v,
                  const std::string &kLayer, const std::string &vLayer) {
    const struct {
      const char *which;
      DeviceAddress address;
      int64_t layerBytes, tokenBytes;
      const std::string &buffer, &layer;
    } parts[] = {{"keys", given.k, given.kLayerBytes, tokenBytes(cache, true), k, kLayer},
                 {"values", given.v, given.vLayerBytes, tokenBytes(cache, false), v, vLayer}};
    if (given.count < 0 || given.count > std::numeric_limits<int32_t>::max())
      return error(std::string("expected 0 to 2^31 - 1 ") + what + ", got " + std::to_string(given.count));
    for (const auto &part : parts) {
      const std::string name = std::string(part.which) + " of the " + what;
      if (part.address % chunkBytes)
        return error("expected the " + name + " at a multiple of 16 bytes, got an address that is " +
                     std::to_string(part.address % chunkBytes) + " above one");
      const int64_t needed = given.count * part.tokenBytes;
      if (layers > 1 && (part.layerBytes < needed || part.layerBytes % chunkBytes ||
                         part.layerBytes / chunkBytes > std::numeric_limits<int32_t>::max()))
        return error("expected layers of " + name + " to lie a multiple of 16 and at least " +
                     std::to_string(needed) + " bytes apart, got " + std::to_string(part.layerBytes));
      bound[part.buffer] = part.address;
      bound[part.layer] = static_cast<uint64_t>(layers > 1 ? part.layerBytes / chunkBytes : 0);
    }
    return {};
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
                                         cacheOf(manifest),
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
const Argument &CacheKernel::cache() const { return state_->cache; }
int64_t CacheKernel::keyBytes() const { return tokenBytes(state_->cache, true); }
int64_t CacheKernel::valueBytes() const { return tokenBytes(state_->cache, false); }
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
  s.layers = layers;
  const int64_t filled = int64_t{s.device.properties().multiprocessors} * s.info.blocksPerSM;
  s.blocks = blocks ? *blocks : static_cast<int>(gridBlocks(s.info, rows, layers, filled));
  const DeviceAddress first = s.lists.address() + 32;
  s.bound = {{"row_count", s.lists.address()},
             {"layers", static_cast<uint64_t>(layers)},
             {"slots", first},
             {"from", first},
             {"to", first + static_cast<uint64_t>(capacity) * 4}};
  s.slots = s.rows = -1;
  s.set = false;
  s.stale = true;
  return {};
}

Status CacheKernel::bind(const DeviceRows &cache, const DeviceRows &rows) {
  State &s = *state_;
  if (!s.lists)
    return s.error("bind before reserve");
  const std::string name = s.cache.name + ".";
  if (Status status = s.bindRows(cache, "slots", cacheTensorName(s.cache, true),
                                 cacheTensorName(s.cache, false), name + "k_layer", name + "v_layer");
      !status)
    return status;
  s.slots = cache.count;
  s.rows = s.reads() && s.writes() ? s.capacity : rows.count;
  s.stale = true;
  s.set = false;
  if (s.reads() && s.writes())
    return {};
  return s.bindRows(rows, "rows", "k", "v", "k.layer", "v.layer");
}

Status CacheKernel::setRows(const RowLists &lists) {
  State &s = *state_;
  if (s.slots < 0)
    return s.error("rows are set before a cache is bound");
  const auto count = static_cast<int64_t>(std::max(lists.from.size(), lists.to.size()));
  if (count > s.capacity || count > s.rows)
    return s.error("expected at most " + std::to_string(std::min(s.capacity, s.rows)) + " rows, got " +
                   std::to_string(count) + (count > s.capacity ? ": reserve more" : ", more than are bound"));
  if (Status status = s.checker.check(s.info.role, lists, s.slots); !status)
    return status;
  s.staging[0] = static_cast<int32_t>(count);
  const std::span<const int32_t> first = s.reads() ? lists.from : lists.to;
  std::copy(first.begin(), first.end(), s.staging.begin() + 8);
  if (Status status = s.device.copyIn(s.lists.address(), s.staging.data(), (8 + first.size()) * 4); !status)
    return status;
  if (s.reads() && s.writes() && count) {
    int32_t *second = s.staging.data() + 8 + s.capacity;
    std::copy(lists.to.begin(), lists.to.end(), second);
    if (Status status = s.device.copyIn(s.bound["to"], second, lists.to.size() * 4); !status)
      return status;
  }
  s.set = true;
  return {};
}

Status CacheKernel::launch() {
  State &s = *state_;
  if (!s.set)
    return s.error("launch before rows were set");
  if (s.stale)
    if (Status status = s.fill(); !status)
      return status;
  const LaunchShape shape{{static_cast<uint32_t>(s.blocks), 1, 1},
                          {static_cast<uint32_t>(s.info.threads), 1, 1},
                          static_cast<uint32_t>(s.info.sharedBytes),
                          s.launch.overlapsPrevious};
  return s.device.launch(*s.kernel, shape, s.args.data());
}

int64_t rowCopyFloor(const Manifest &manifest, const RowLists &lists, int32_t layers) {
  const Argument &cache = cacheOf(manifest);
  const std::span<const int32_t> slots = lists.from.empty() ? lists.to : lists.from;
  const int64_t rows = std::count_if(slots.begin(), slots.end(), [](int32_t slot) { return slot >= 0; });
  return 2 * rows * layers * (tokenBytes(cache, true) + tokenBytes(cache, false)) +
         4 * static_cast<int64_t>(lists.from.size() + lists.to.size());
}

} // namespace attn::rt
