//===- PageManager.cpp - Pages of many lists, on a device -----------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/session/PageManager.h"

#include "session/Grid.h"

#include <algorithm>
#include <limits>
#include <map>

namespace attn::rt {

namespace {

constexpr int64_t mostEntries = std::numeric_limits<int32_t>::max(); ///< of the table, in what kernels count
constexpr int64_t mostPages = int64_t{1} << 29;                      ///< two rounds of the ring in 31 bits
constexpr int64_t sumWords = 4, spanWords = 2;                       ///< of a block; behind those of all
constexpr uint64_t alignment = 16;

} // namespace

struct PageManager::State {
  /// One of the launches, with its arguments.
  struct Step {
    const KernelInfo *info;
    Kernel *kernel;
    std::vector<uint64_t> values = {};
    std::vector<void *> args = {};
  };

  Device &device;
  Manifest manifest;
  std::shared_ptr<Module> module;
  std::vector<Step> steps = {};
  PageTableSizes sizes = {};
  Buffer sums = {};
  int blocks = 0;
  std::map<std::string, uint64_t> bound = {}; ///< values of parameters by name
  bool isBound = false;

  Error error(const std::string &what) const {
    return inputError("page manager '" + manifest.entry + "': " + what);
  }
};

std::vector<size_t> PageTables::bytes(const PageTableSizes &sizes) {
  const auto words = [](int64_t count) { return static_cast<size_t>(count) * sizeof(int32_t); };
  return {words(sizes.lists * sizes.columns),
          words(sizes.lists * 2),
          words(sizes.lists * 2),
          words(sizes.pages),
          words(2),
          words(4)};
}

PageManager::PageManager(std::unique_ptr<State> state) : state_(std::move(state)) {}
PageManager::PageManager(PageManager &&) noexcept = default;
PageManager &PageManager::operator=(PageManager &&) noexcept = default;
PageManager::~PageManager() = default;

Result<PageManager> PageManager::create(Device &device, const Manifest &manifest,
                                        std::shared_ptr<Module> module) {
  if (!manifest.managesPages())
    return inputError("page manager: expected an attn.manage_pages, got '" + manifest.entry +
                      "', which is something else");
  std::unique_ptr<State> state(new State{device, manifest, std::move(module)});
  for (const LaunchInfo &launch : state->manifest.launches) {
    const KernelInfo &info = state->manifest.kernels[static_cast<size_t>(launch.kernels.front())];
    Result<Kernel *> kernel = state->module->kernel(info.name, info.sharedBytes);
    if (!kernel)
      return kernel.error();
    State::Step &step = state->steps.emplace_back(State::Step{&info, *kernel});
    step.values.resize(info.params.size());
    for (uint64_t &value : step.values)
      step.args.push_back(&value);
  }
  return PageManager(std::move(state));
}

const PageTableSizes &PageManager::sizes() const { return state_->sizes; }
int PageManager::blocks() const { return state_->blocks; }

Status PageManager::reserve(const PageTableSizes &sizes, std::optional<int> blocks) {
  State &s = *state_;
  for (const auto &[what, size, most] :
       {std::tuple("lists", sizes.lists, mostEntries), std::tuple("columns", sizes.columns, mostEntries),
        std::tuple("pages", sizes.pages, mostPages)})
    if (size < 1 || size > most)
      return s.error("expected 1 to " + std::to_string(most) + " " + what + ", got " + std::to_string(size) +
                     "; nearest legal: " + std::to_string(std::clamp<int64_t>(size, 1, most)));
  if (sizes.columns > mostEntries / sizes.lists)
    return s.error("expected at most " + std::to_string(mostEntries / sizes.lists) + " columns of " +
                   std::to_string(sizes.lists) + " lists, got " + std::to_string(sizes.columns));
  if (blocks && (*blocks < 1 || *blocks > 1 << 16))
    return s.error("expected 1 to 65536 blocks, got " + std::to_string(*blocks));
  const KernelInfo &info = *s.steps.front().info;
  const int64_t filled = int64_t{s.device.properties().multiprocessors} * info.blocksPerSM;
  const int grid = blocks ? *blocks : static_cast<int>(gridBlocks(info, sizes.lists, 1, filled));
  const int64_t words = grid * sumWords + spanWords;
  Result<Buffer> made = Buffer::create(s.device, static_cast<size_t>(words) * sizeof(int32_t),
                                       "sums of '" + s.manifest.entry + "'");
  if (!made)
    return made.error();
  s.sums = std::move(*made);
  s.sizes = sizes;
  s.blocks = grid;
  s.bound = {{"sums", s.sums.address()},
             {"table.dim0", static_cast<uint64_t>(sizes.lists)},
             {"table.dim1", static_cast<uint64_t>(sizes.columns)},
             {"free.dim0", static_cast<uint64_t>(sizes.pages)}};
  s.isBound = false;
  return {};
}

Status PageManager::bind(const PageTables &tables) {
  State &s = *state_;
  if (!s.sums)
    return s.error("bind before reserve");
  for (size_t i = 0; i < std::size(PageTables::names); ++i) {
    if (!tables.addresses[i] || tables.addresses[i] % alignment)
      return s.error("expected '" + std::string(PageTables::names[i]) + "' at a multiple of " +
                     std::to_string(alignment) + ", got " + std::to_string(tables.addresses[i]));
    s.bound[PageTables::names[i]] = tables.addresses[i];
  }
  for (State::Step &step : s.steps)
    for (size_t i = 0; i < step.values.size(); ++i) {
      const auto found = s.bound.find(step.info->params[i].name);
      if (found == s.bound.end())
        return s.error("'" + step.info->params[i].name + "' is not bound");
      step.values[i] = found->second;
    }
  s.isBound = true;
  return {};
}

Status PageManager::launch() {
  State &s = *state_;
  if (!s.isBound)
    return s.error("launch before bind");
  for (size_t i = 0; i < s.steps.size(); ++i) {
    State::Step &step = s.steps[i];
    const LaunchShape shape{{static_cast<uint32_t>(s.blocks), 1, 1},
                            {static_cast<uint32_t>(step.info->threads), 1, 1},
                            static_cast<uint32_t>(step.info->sharedBytes),
                            s.manifest.launches[i].overlapsPrevious};
    if (Status status = s.device.launch(*step.kernel, shape, step.args.data()); !status)
      return status;
  }
  return {};
}

} // namespace attn::rt
