//===- TableOperation.cpp - Pages of many lists, on a device --------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/session/TableOperation.h"

#include "session/Grid.h"

#include <algorithm>
#include <limits>
#include <map>

namespace attn::rt {

namespace {

constexpr int64_t mostElements = std::numeric_limits<int32_t>::max(); ///< of a tensor; kernels use i32
constexpr int64_t mostPages = int64_t{1} << 29;                       ///< two rounds of the ring fit 31 bits
constexpr int64_t sumWords = 4, spanWords = 2; ///< passed from block to block, after the words of all
constexpr uint64_t alignment = 16;
constexpr int64_t flagsAtOnce = 16; ///< flags of a list that a lane reads at once

constexpr int64_t mostFlags = int64_t{1} << 30; ///< of a list, plus a round of loads

int64_t mostOf(const std::string &size) {
  return size == "pages" ? mostPages : size == "flags" ? mostFlags : mostElements;
}

} // namespace

struct TableOperation::State {
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
  std::vector<std::string> sizeNames = {};
  std::vector<Step> steps = {};
  std::vector<Tensor> tensors = {};
  Buffer sums = {};
  int blocks = 0;
  std::map<std::string, uint64_t> bound = {}; ///< values of parameters by name
  bool isBound = false;

  Error error(const std::string &what) const {
    return inputError("table operation '" + manifest.entry + "': " + what);
  }
  Status checkSizes(std::span<const int64_t> sizes) const;
  Status setTensors(std::span<const int64_t> sizes);
};

TableOperation::TableOperation(std::unique_ptr<State> state) : state_(std::move(state)) {}
TableOperation::TableOperation(TableOperation &&) noexcept = default;
TableOperation &TableOperation::operator=(TableOperation &&) noexcept = default;
TableOperation::~TableOperation() = default;

Result<TableOperation> TableOperation::create(Device &device, const Manifest &manifest,
                                              std::shared_ptr<Module> module) {
  if (!manifest.managesPages())
    return inputError("table operation: expected an attn.manage_pages, an attn.compact_tokens, an "
                      "attn.revise_tokens, an attn.merge_states or an attn.exchange_states, got '" +
                      manifest.entry + "', which is something else");
  std::unique_ptr<State> state(new State{device, manifest, std::move(module)});
  for (const Argument &argument : state->manifest.arguments)
    for (const DimInfo &dim : argument.dims)
      if (auto &names = state->sizeNames;
          !dim.name.empty() && std::find(names.begin(), names.end(), dim.name) == names.end())
        names.push_back(dim.name);
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
  return TableOperation(std::move(state));
}

const std::vector<std::string> &TableOperation::sizeNames() const { return state_->sizeNames; }
const std::vector<TableOperation::Tensor> &TableOperation::tensors() const { return state_->tensors; }
int TableOperation::blocks() const { return state_->blocks; }

Status TableOperation::State::checkSizes(std::span<const int64_t> sizes) const {
  if (sizes.size() != sizeNames.size()) {
    std::string names;
    for (const std::string &name : sizeNames)
      names += (names.empty() ? "" : ", ") + name;
    return error("expected the sizes " + names + ", got " + std::to_string(sizes.size()) + " numbers");
  }
  for (size_t i = 0; i < sizes.size(); ++i)
    if (const int64_t most = mostOf(sizeNames[i]); sizes[i] < 1 || sizes[i] > most)
      return error("expected 1 to " + std::to_string(most) + " " + sizeNames[i] + ", got " +
                   std::to_string(sizes[i]) +
                   "; nearest legal: " + std::to_string(std::clamp<int64_t>(sizes[i], 1, most)));
    else if (sizeNames[i] == "flags" && sizes[i] % flagsAtOnce != 0)
      return error("expected a multiple of " + std::to_string(flagsAtOnce) + " flags, got " +
                   std::to_string(sizes[i]) +
                   "; nearest legal: " + std::to_string((sizes[i] / flagsAtOnce + 1) * flagsAtOnce));
  return {};
}

Status TableOperation::State::setTensors(std::span<const int64_t> sizes) {
  tensors.clear();
  bound.clear();
  for (const Argument &argument : manifest.arguments) {
    int64_t elements = 1;
    for (size_t axis = 0; axis < argument.dims.size(); ++axis) {
      const DimInfo &dim = argument.dims[axis];
      const auto named = std::find(sizeNames.begin(), sizeNames.end(), dim.name);
      const int64_t size =
          named == sizeNames.end() ? dim.value : sizes[static_cast<size_t>(named - sizeNames.begin())];
      if (size > mostElements / elements)
        return error("expected at most " + std::to_string(mostElements / elements) + " " +
                     (dim.name.empty() ? "numbers" : dim.name) + " of " + std::to_string(elements) +
                     " lists in '" + argument.name + "', got " + std::to_string(size));
      elements *= size;
      bound[argument.name + ".dim" + std::to_string(axis)] = static_cast<uint64_t>(size);
    }
    tensors.push_back({argument.name.c_str(), static_cast<size_t>(elements) * dtypeSize(argument.dtype)});
  }
  return {};
}

Status TableOperation::reserve(std::span<const int64_t> sizes, std::optional<int> blocks) {
  State &s = *state_;
  s.isBound = false;
  s.blocks = 0;
  if (Status status = s.checkSizes(sizes); !status)
    return status;
  if (blocks && (*blocks < 1 || *blocks > 1 << 16))
    return s.error("expected 1 to 65536 blocks, got " + std::to_string(*blocks));
  if (Status status = s.setTensors(sizes); !status)
    return status;
  const KernelInfo &info = *s.steps.front().info;
  const int64_t filled = int64_t{s.device.properties().multiprocessors} * info.blocksPerSM;
  s.blocks = blocks ? *blocks : static_cast<int>(gridBlocks(info, sizes.front(), 1, filled));
  // Blocks that wait for other ranks must run side by side. Those of the host device take turns.
  if (info.role == KernelInfo::Role::ExchangeStates && s.device.kind() == "host")
    s.blocks = 1;
  const auto isSums = [](const Parameter &param) { return param.name == "sums"; };
  if (std::none_of(info.params.begin(), info.params.end(), isSums))
    return {};
  const int64_t words = s.blocks * sumWords + spanWords;
  Result<Buffer> made = Buffer::create(s.device, static_cast<size_t>(words) * sizeof(int32_t),
                                       "sums of '" + s.manifest.entry + "'");
  if (!made)
    return made.error();
  s.sums = std::move(*made);
  s.bound["sums"] = s.sums.address();
  return {};
}

Status TableOperation::bind(std::span<const DeviceAddress> addresses) {
  State &s = *state_;
  if (!s.blocks)
    return s.error("bind before reserve");
  if (addresses.size() != s.tensors.size())
    return s.error("expected an address of each of the " + std::to_string(s.tensors.size()) +
                   " tensors, got " + std::to_string(addresses.size()));
  for (size_t i = 0; i < addresses.size(); ++i) {
    if (!addresses[i] || addresses[i] % alignment)
      return s.error("expected '" + std::string(s.tensors[i].name) + "' at a multiple of " +
                     std::to_string(alignment) + ", got " + std::to_string(addresses[i]));
    s.bound[s.tensors[i].name] = addresses[i];
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

Status TableOperation::launch() {
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
