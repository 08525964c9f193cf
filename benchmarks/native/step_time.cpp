//===- step_time.cpp - How long a step of decoding takes without Python -----===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
//   attn-step-time FILE.attn SEQUENCES TOKENS [LAYERS] [host]
//
// The attention of all layers of a model over a paged cache, as `bench gpu graphs` takes it from Python: new
// tokens are appended, the step is planned, each layer writes its keys and values and attends. FILE has the
// functions of kernels/step.mlir. Prints, as JSON, milliseconds of a step from the first to the last of many
// without waiting in between, and microseconds of the host for tables and plan, and for all launches.
//
//===----------------------------------------------------------------------===//
#include "attn_rt/cache/CacheBatch.h"
#include "attn_rt/cuda/CudaDevice.h"
#include "attn_rt/device/HostDevice.h"
#include "attn_rt/plan/Plan.h"
#include "attn_rt/session/CacheKernels.h"
#include "attn_rt/session/LoadArtifact.h"
#include "attn_rt/session/Session.h"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace attn::rt;

/// Returns the error of a Status or a Result from the function.
#define TRY(call)                                                                                            \
  if (auto &&done = (call); !done)                                                                           \
  return done.error()

namespace {

constexpr int pageTokens = 16, queryHeads = 32, kvHeads = 8, dim = 128, bytes = 2;
constexpr int64_t kvRow = kvHeads * dim * bytes, queryRow = queryHeads * dim * bytes;
constexpr int rounds = 3, steps = 40, warmUp = 5;

using Clock = std::chrono::steady_clock;
double microseconds(Clock::time_point begin, Clock::time_point end) {
  return std::chrono::duration<double, std::micro>(end - begin).count();
}

class Decoding {
public:
  static Result<std::unique_ptr<Decoding>> create(Device &device, const std::string &file, int32_t sequences,
                                                  int32_t tokens, int32_t layers);
  /// Microseconds of the host for tables and plan, and for launches.
  struct Spent {
    double update, launches;
  };
  Result<Spent> step();

private:
  explicit Decoding(Device &device) : device(device) {}
  Status allocate();
  Status attend(int32_t layer);

  Device &device;
  int32_t layers = 0, sequences = 0, pages = 0;
  LoadedArtifact artifacts[3]; // attend, append, move
  std::optional<Cache> cache;
  Buffer keys, values, newKeys, newValues, queries, outputs;
  std::optional<CacheKernels> changes;
  std::optional<Session> session;
  std::optional<Planner> planner;
  BatchBuilder builder;
  CacheBatch batch;
  Plan plan;
  CacheStep grow;
  std::vector<RowGroup> groups;
  int slots[4] = {}; // of q, keys, values and the output
  bool isPlanned = false;
  uint64_t movements = 0;

  int64_t layerBytes() const { return int64_t{pages} * pageTokens * kvRow; }
};

Result<std::unique_ptr<Decoding>> Decoding::create(Device &device, const std::string &file, int32_t sequences,
                                                   int32_t tokens, int32_t layers) {
  std::unique_ptr<Decoding> made(new Decoding(device));
  made->sequences = sequences, made->layers = layers;
  const int32_t room = tokens + rounds * (steps + warmUp) + pageTokens;
  made->pages = sequences * (room / pageTokens + 1);
  auto found = readArtifactsFile(file);
  TRY(found);
  const char *entries[] = {"attend", "append", "move"};
  for (int i = 0; i < 3; ++i) {
    auto loaded = loadArtifact(device, *found, file, entries[i]);
    TRY(loaded);
    made->artifacts[i] = std::move(*loaded);
  }
  auto cache = Cache::create({pageTokens, 0, {{"kv", made->pages}}});
  TRY(cache);
  made->cache = std::move(*cache);
  CacheStep fill;
  for (int32_t i = 0; i < sequences; ++i) {
    const NodeId node = made->cache->createRoot();
    fill.append.push_back({node, tokens});
    made->grow.append.push_back({node, 1});
    made->groups.push_back({node, 1});
  }
  TRY(made->cache->apply(fill)); // what lies in their pages does not matter
  TRY(made->allocate());
  return made;
}

Status Decoding::allocate() {
  const struct {
    Buffer &buffer;
    int64_t bytes;
  } wanted[] = {{keys, layers * layerBytes()},
                {values, layers * layerBytes()},
                {newKeys, layers * sequences * kvRow},
                {newValues, layers * sequences * kvRow},
                {queries, layers * sequences * queryRow},
                {outputs, layers * sequences * queryRow}};
  for (const auto &[buffer, size] : wanted) {
    auto made = Buffer::create(device, static_cast<size_t>(size), "tensor");
    TRY(made);
    buffer = std::move(*made);
    TRY(device.fill(buffer.address(), 0x3c, static_cast<size_t>(size))); // numbers of about 0.01
  }
  auto append = CacheKernel::create(device, artifacts[1].manifest, artifacts[1].module);
  TRY(append);
  auto move = CacheKernel::create(device, artifacts[2].manifest, artifacts[2].module);
  TRY(move);
  auto kernels = CacheKernels::create(std::move(*append), std::move(*move));
  TRY(kernels);
  const DevicePages memory{
      0, pages, pageTokens, layers, keys.address(), values.address(), layerBytes(), layerBytes()};
  TRY(kernels->reserve(memory, sequences, sequences * pageTokens));
  changes.emplace(std::move(*kernels));

  auto made = Session::create(device, artifacts[0].manifest, artifacts[0].module);
  TRY(made);
  session.emplace(std::move(*made));
  const char *names[] = {"q", "kv.k_pages", "kv.v_pages", "o"};
  for (int i = 0; i < 4; ++i) {
    auto slot = session->slot(names[i]);
    TRY(slot);
    slots[i] = *slot;
  }
  return {};
}

Result<Decoding::Spent> Decoding::step() {
  const auto begin = Clock::now();
  auto change = cache->apply(grow);
  TRY(change);
  if (!isPlanned || !builder.update(*cache, batch)) {
    TRY(builder.build(*cache, groups, batch));
    PlanOptions options;
    if (device.kind() != "host")
      options.multiprocessors = device.properties().multiprocessors;
    const PlanCapacity capacity =
        planCapacity(artifacts[0].manifest, PlanLimits::of(artifacts[0].manifest, batch.batch), options);
    planner.emplace(artifacts[0].manifest, options, capacity);
    TRY(session->reserve(capacity));
    TRY(planner->plan(batch.batch, plan));
    isPlanned = true;
  } else {
    TRY(planner->update(batch.batch, plan));
  }
  TRY(session->bindTables(batch.batch));
  TRY(session->setPlan(plan));
  const auto updated = Clock::now();
  ++movements;
  for (int32_t layer = 0; layer < layers; ++layer) {
    DeviceRows rows;
    rows.k = newKeys.address() + static_cast<DeviceAddress>(layer * sequences * kvRow);
    rows.v = newValues.address() + static_cast<DeviceAddress>(layer * sequences * kvRow);
    rows.count = sequences;
    rows.kLayerBytes = rows.vLayerBytes = sequences * kvRow;
    TRY(changes->execute(change->movement, rows, {layer, 1}, movements));
    TRY(attend(layer));
  }
  return Spent{microseconds(begin, updated), microseconds(updated, Clock::now())};
}

Status Decoding::attend(int32_t layer) {
  const auto rows = static_cast<DeviceAddress>(layer * sequences * queryRow);
  const auto pool = static_cast<DeviceAddress>(layer * layerBytes());
  session->bind(slots[0], queries.address() + rows);
  session->bind(slots[1], keys.address() + pool);
  session->bind(slots[2], values.address() + pool);
  session->bind(slots[3], outputs.address() + rows);
  return session->launch();
}

double median(std::vector<double> &numbers) {
  std::sort(numbers.begin(), numbers.end());
  return numbers[numbers.size() / 2];
}

Status measure(Device &device, const std::string &file, int32_t sequences, int32_t tokens, int32_t layers) {
  auto made = Decoding::create(device, file, sequences, tokens, layers);
  TRY(made);
  double best = 0, update = 0, launches = 0;
  for (int round = 0; round < rounds; ++round) {
    for (int i = 0; i < warmUp; ++i)
      TRY((*made)->step());
    TRY(device.synchronize());
    std::vector<double> updates, launched;
    const auto begin = Clock::now();
    for (int i = 0; i < steps; ++i) {
      auto spent = (*made)->step();
      TRY(spent);
      updates.push_back(spent->update), launched.push_back(spent->launches);
    }
    TRY(device.synchronize());
    const double milliseconds = microseconds(begin, Clock::now()) / 1e3 / steps;
    best = round ? std::min(best, milliseconds) : milliseconds;
    const double up = median(updates), down = median(launched);
    if (!round || up + down < update + launches)
      update = up, launches = down;
  }
  std::printf("{\"step_ms\": %.4f, \"update_us\": %.1f, \"launches_us\": %.1f}\n", best, update, launches);
  return {};
}

} // namespace

int main(int argc, char **argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: attn-step-time FILE.attn SEQUENCES TOKENS [LAYERS] [host]\n");
    return 2;
  }
  const bool onHost = !std::strcmp(argv[argc - 1], "host");
  auto device = onHost ? Result<std::unique_ptr<Device>>(makeHostDevice()) : openCudaDevice();
  const int layers = argc - onHost > 4 ? std::atoi(argv[4]) : 32;
  const Status status = device ? measure(**device, argv[1], std::atoi(argv[2]), std::atoi(argv[3]), layers)
                               : Status(device.error());
  if (!status)
    std::fprintf(stderr, "attn-step-time: error: %s\n", status.error().message.c_str());
  return status ? 0 : 2;
}
