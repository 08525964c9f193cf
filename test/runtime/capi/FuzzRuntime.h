//===- FuzzRuntime.h - Random calls on devices, kernels, plans -*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TEST_RUNTIME_CAPI_FUZZRUNTIME_H
#define ATTN_TEST_RUNTIME_CAPI_FUZZRUNTIME_H

#include "FuzzCaller.h"

namespace attn::rt::test {

class RuntimeCaller : public Caller {
public:
  using Caller::Caller;

protected:
  //===--- Devices, memory, files, kernels -----------------------------------===//

  void openDevice() {
    AttnDevice *made = nullptr;
    const AttnHostOptions options = {below(rng, 2) == 0, below(rng, 2) == 0,
                                     static_cast<uint32_t>(below(rng, 3)), rng(), below(rng, 2) == 0};
    take(below(rng, 3) ? attnDeviceOpenCuda(rarely() ? small(3) : 0,
                                            rarely() ? "no such driver" : ATTN_FAKE_CUDA, out(made))
                       : attnDeviceOpenHost(rarely() ? nullptr : &options, out(made)),
         made, world.devices);
  }
  void askDevice() {
    const auto device = world.devices.pick(rng);
    const AttnDeviceInfo info = attnDeviceInfo(device.get());
    EXPECT_TRUE(!device || (info.kind && info.name && info.target && info.multiprocessors > 0));
    take(attnDeviceSynchronize(device.get(), rarely() ? 64 : 0));
  }
  void makeMemory() {
    AttnMemory *made = nullptr;
    const auto device = world.devices.pick(rng);
    const size_t bytes = rarely() ? size_t{1} << 60 : below(rng, 4096);
    take(attnMemoryCreate(device.get(), bytes, text({"", "k"}), out(made)), made, world.memories);
  }
  void useMemory() {
    const auto memory = world.memories.pick(rng);
    std::array<uint8_t, 8192> bytes = {};
    const size_t size = attnMemorySize(memory.get()), offset = rarely() ? rng() : below(rng, 64);
    const size_t count = rarely() ? size + below(rng, 64) : below(rng, size + 1);
    ASSERT_LE(count, bytes.size());
    void *here = rarely() ? nullptr : bytes.data();
    switch (below(rng, 4)) {
    case 0:
      take(attnMemoryCopyIn(memory.get(), offset, here, count));
      break;
    case 1:
      take(attnMemoryCopyOut(memory.get(), offset, here, count));
      break;
    case 2:
      take(attnMemoryFill(memory.get(), 7));
      break;
    default:
      take(attnMemoryPoison(memory.get()));
    }
  }
  void readArtifact() {
    AttnArtifact *made = nullptr;
    const std::string &file = world.file(rng);
    take(attnArtifactRead(rarely() ? nullptr : file.data(), rarely() ? file.size() / 2 : file.size(), "fuzz",
                          out(made)),
         made, world.artifacts);
  }
  void useArtifact() {
    const auto artifact = world.artifacts.pick(rng);
    const size_t count = attnArtifactCount(artifact.get());
    EXPECT_EQ(attnArtifactInfo(artifact.get(), count).entry, nullptr);
    AttnBytes *made = nullptr;
    take(attnArtifactTake(artifact.get(), static_cast<size_t>(number(2)), out(made)), made);
    const std::string &a = world.file(rng), &b = world.file(rng);
    const AttnArtifactPart parts[] = {{a.data(), a.size(), text({"", "note"})},
                                      {b.data(), rarely() ? 3 : b.size(), ""}};
    made = nullptr;
    take(attnArtifactJoin(rarely() ? nullptr : parts, below(rng, 3), out(made)), made);
  }
  void loadKernel() {
    AttnKernel *made = nullptr;
    const auto device = world.devices.pick(rng);
    const std::string &file = world.file(rng);
    take(attnKernelLoad(device.get(), rarely() ? nullptr : file.data(), file.size(), text({"fuzz"}),
                        rarely() ? "nobody" : nullptr, out(made)),
         made, world.kernels);
  }
  void askKernel() {
    const auto kernel = world.kernels.pick(rng);
    EXPECT_EQ(bool(kernel), attnKernelEntry(kernel.get()) != nullptr);
    EXPECT_EQ(bool(kernel), attnKernelManifest(kernel.get()) != nullptr);
    (void)attnKernelIsChecked(kernel.get());
    (void)attnKernelIsCacheOperation(kernel.get());
    EXPECT_EQ(attnKernelSlot(kernel.get(), attnKernelSlotCount(kernel.get())), nullptr);
    std::array<int32_t, 16> classes = {}, heads = {};
    take(attnKernelOrdinalHeads(kernel.get(), rarely() ? nullptr : classes.data(), below(rng, 4),
                                heads.data()));
  }

  //===--- Formats -----------------------------------------------------------===//

  void askStore() {
    AttnBytes *made = nullptr;
    const AttnStore store = {
        text({"dense", "packed", "paged", "unified", "odd"}),
        below(rng, 2) ? 16 : small(256),
        below(rng, 4) == 0,
        small(9),
        below(rng, 2) ? 64 : small(256),
        below(rng, 2) ? 64 : small(256),
        text({"bf16", "f8e4m3fn per head", "i4 per 64", "f4e2m1fn per 16 by f8e4m3fn", "f64"}),
        text({"bf16", "f8e5m2", "i8 per 32", ""})};
    take(attnStoreTensors(rarely() ? nullptr : &store, out(made)), made);
  }
  void quantize() {
    std::array<float, 256> numbers = {};
    std::array<uint8_t, 1024> meta = {}, codes = {};
    for (float &value : numbers)
      value = rarely() ? std::numeric_limits<float>::quiet_NaN() : static_cast<float>(number(100));
    struct Sizes { // of two rows
      const char *format;
      size_t meta, codes;
    };
    static const Sizes known[] = {{"i4 per 64", 8, 64},
                                  {"i8 per 32", 16, 128},
                                  {"f8e4m3fn per token", 8, 128},
                                  {"f4e2m1fn per 16 by f8e4m3fn", 8, 64},
                                  {"bf16", 0, 256},
                                  {"x", 0, 0}};
    const Sizes &sizes = known[below(rng, std::size(known))];
    const AttnRows rows = {rarely() ? nullptr : sizes.format,
                           rarely() ? number(1) : 64,
                           rarely() ? nullptr : numbers.data(),
                           rarely() ? nullptr : meta.data(),
                           rarely() ? nullptr : codes.data(),
                           rarely() ? below(rng, 1024) : 2 * 64 * sizeof(float),
                           rarely() ? below(rng, meta.size() + 1) : sizes.meta,
                           rarely() ? below(rng, codes.size() + 1) : sizes.codes,
                           rarely() ? static_cast<float>(number(1)) : 1};
    int64_t odd = 0;
    take(below(rng, 2) ? attnQuantizeRows(rarely() ? nullptr : &rows, rarely() ? nullptr : &odd)
                       : attnDequantizeRows(rarely() ? nullptr : &rows));
  }

  //===--- Batches -----------------------------------------------------------===//

  void makeBatch() {
    const auto kernel = world.kernels.pick(rng);
    const auto sequences = static_cast<int64_t>(1 + below(rng, 3));
    std::vector<int32_t> lengths, blocks, starts = {0};
    for (int64_t i = 0; i < sequences; ++i) {
      lengths.push_back(small(60));
      starts.push_back(starts.back() + 1);
    }
    for (int64_t i = 0; i < 4 * sequences; ++i)
      blocks.push_back(rarely() ? small(99) : static_cast<int32_t>(i));
    for (auto *numbers : {&lengths, &blocks, &starts})
      numbers->resize(2 * numbers->size()); // a random dtype has up to 8 bytes
    const int64_t rows[] = {sequences, 8, 64}, pages[] = {16, 16, 2, 64}, table[] = {sequences, 4},
                  one[] = {sequences}, ends[] = {sequences + 1},
                  sizesOfAnyRank[10] = {1, 1, 1, 1, 1, 1, 1, 1, 1, 1};
    std::vector<AttnTensor> tensors = {{"q", AttnBF16, 3, rows, nullptr},
                                       {"kv.k_pages", AttnBF16, 4, pages, nullptr},
                                       {"kv.v_pages", AttnBF16, 4, pages, nullptr},
                                       {"kv.lengths", AttnI32, 1, one, lengths.data()},
                                       {"kv.block_table", AttnI32, 2, table, blocks.data()},
                                       {"q_start", AttnI32, 1, ends, starts.data()}};
    if (rarely()) {
      AttnTensor &odd = tensors[below(rng, tensors.size())];
      switch (below(rng, 5)) {
      case 0:
        odd.name = text({"", "nobody", "q"});
        break;
      case 1:
        odd.dtype = static_cast<AttnDType>(below(rng, 40));
        break;
      case 2:
        odd.rank = rarely() ? small(9) : odd.rank - 1;
        odd.shape = sizesOfAnyRank; // as many sizes as the rank says, and data for them
        break;
      case 3:
        odd.shape = nullptr;
        break;
      default:
        odd.data = nullptr;
      }
    }
    AttnBatch *made = nullptr;
    const int32_t sizes[] = {small(9), 1};
    take(attnBatchCreate(kernel.get(), rarely() ? nullptr : tensors.data(), rarely() ? 5 : tensors.size(),
                         rarely() ? sizes : nullptr, rarely() ? 1 : 0, out(made)),
         made, world.batches);
  }
  void askBatch() {
    const auto kernel = world.kernels.pick(rng);
    const auto batch = world.batches.pick(rng);
    EXPECT_GE(attnBatchRows(batch.get()), 0);
    EXPECT_GE(attnBatchSequences(batch.get()), 0);
    AttnTensors *made = nullptr;
    takeTables(attnBatchTables(kernel.get(), batch.get(), out(made)), made);
    std::array<int32_t, 256> user, own;
    take(attnBatchRowMaps(batch.get(), rarely() ? nullptr : user.data(), own.data(), below(rng, 256)));
    std::array<AttnNode, 16> nodes;
    size_t count = 0;
    take(attnBatchNodes(batch.get(), static_cast<size_t>(number(1)), nodes.data(), below(rng, 17), &count));
  }
  void makeBuilder() {
    AttnBatchBuilder *made = nullptr;
    const auto kernel = world.kernels.pick(rng);
    const AttnCacheOperand operands[] = {{rarely() ? small(3) : 0, !rarely(), below(rng, 2) == 0},
                                         {0, true, true}};
    take(attnBatchBuilderCreate(kernel.get(), rarely() ? nullptr : operands, rarely() ? 2 : 1, small(20),
                                out(made)),
         made, world.builders);
  }
  std::vector<AttnRowGroup> groups() {
    std::vector<AttnRowGroup> groups;
    for (size_t i = below(rng, 4); i > 0; --i)
      groups.push_back({node(), small(2), below(rng, 4) == 0});
    return groups;
  }
  void useBuilder() {
    const auto builder = world.builders.pick(rng);
    const auto cache = world.caches.pick(rng);
    const std::vector<AttnRowGroup> rows = groups();
    AttnBatch *made = nullptr;
    take(attnBatchBuilderBuild(builder.get(), cache.get(), rows.data(), rows.size(), nullptr, 0, nullptr, 0,
                               out(made)),
         made, world.batches);
    const auto batch = world.batches.pick(rng);
    bool updated = false;
    take(attnBatchBuilderUpdate(builder.get(), cache.get(), batch.get(), rarely() ? nullptr : &updated));
  }

  //===--- Plans -------------------------------------------------------------===//

  void makePlan() {
    AttnPlan *made = nullptr;
    const auto kernel = world.kernels.pick(rng);
    const auto batch = world.batches.pick(rng);
    AttnPlanOptions options = {};
    options.strategy = text({"flatten", "auto", "by-query", "by-node", "no such"});
    options.blocks = small(4);
    options.fixedSplit = rarely() ? small(640) : 0;
    options.kernel = rarely() ? small(3) : 0;
    options.limits.rows = rarely() ? number(9) : 0;
    options.limits.instances = rarely() ? number(9) : 0;
    options.limits.pages = rarely() ? number(9) : 0;
    options.limits.tokensPerRow = rarely() ? number(99) : 0;
    take(attnPlanCreate(kernel.get(), batch.get(), rarely() ? nullptr : &options, 0, out(made)), made,
         world.plans);
  }
  void updatePlan() {
    const auto plan = world.plans.pick(rng);
    const auto batch = world.batches.pick(rng);
    bool extended = false;
    take(below(rng, 4) ? attnPlanUpdate(plan.get(), batch.get(), 0, rarely() ? nullptr : &extended)
                       : attnPlanGrow(plan.get(), small(2), number(9), 0, &extended));
  }
  /// Memory of the fake driver, large enough or not.
  void places(size_t count, std::vector<uint64_t> &addresses, std::vector<size_t> &bytes) {
    const auto memory = world.memories.pick(rng);
    for (size_t i = 0; i < count; ++i) {
      addresses.push_back(rarely() ? rng() : attnMemoryAddress(memory.get()) + i * 0x10000000);
      bytes.push_back(rarely() ? below(rng, 64) : 1 << 27);
    }
  }
  void runPlan() {
    const auto plan = world.plans.pick(rng);
    std::vector<uint64_t> addresses;
    std::vector<size_t> bytes;
    places(rarely() ? 2 : 3, addresses, bytes);
    const int64_t some[] = {16, 1024, 128, 2};
    std::vector<const int64_t *> strides(addresses.size(), rarely() ? some : nullptr);
    take(below(rng, 2) ? attnPlanRun(plan.get(), rarely() ? nullptr : addresses.data(), bytes.data(),
                                     addresses.size(), 0)
                       : attnPlanRunStrided(plan.get(), addresses.data(), bytes.data(),
                                            rarely() ? nullptr : strides.data(), addresses.size(), 0));
  }
  void askPlan() {
    const auto plan = world.plans.pick(rng);
    EXPECT_GE(attnPlanRows(plan.get()), 0);
    (void)attnPlanSlotBytes(plan.get(), static_cast<size_t>(number(5)));
    EXPECT_GE(attnPlanStats(plan.get()).tasks, 0);
    (void)attnPlanTable(plan.get(), static_cast<size_t>(number(5)));
    (void)attnPlanTableBytes(plan.get(), static_cast<size_t>(number(5)));
    AttnBytes *made = nullptr;
    take(attnPlanExplain(plan.get(), out(made)), made);
    made = nullptr;
  }
  void changePlan() {
    const auto plan = world.plans.pick(rng);
    AttnBytes *made = nullptr;
    const uint64_t addresses[] = {0, 0, 0, 0, 0};
    const size_t bytes[] = {0, 0, 0, 0, 0};
    switch (below(rng, 6)) {
    case 0:
      take(attnPlanFix(plan.get()));
      break;
    case 1:
      take(attnPlanOnDevice(plan.get(), number(99), 0));
      break;
    case 2:
      take(attnPlanMake(plan.get(), 0));
      break;
    case 3:
      take(attnPlanFault(plan.get(), 0, out(made)), made);
      break;
    default:
      take(attnPlanBind(plan.get(), addresses, bytes, below(rng, 6)));
    }
  }
};

} // namespace attn::rt::test

#endif
