//===- SessionFixture.h - Small problems for sessions -----------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TEST_RUNTIME_SESSION_SESSIONFIXTURE_H
#define ATTN_TEST_RUNTIME_SESSION_SESSIONFIXTURE_H

#include "Fuzz.h"
#include "ScalarKernels.h"
#include "attn_rt/device/HostDevice.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace attn::rt::test {

// Slow enough that small problems are worth cutting.
inline constexpr GpuModel slowGpu{"slow", 1e9, 1e12, 1};

// A problem with scattered pages; pages of no sequence and the tails of pages hold NaN.
inline TensorMap problem(const Manifest &m, const std::vector<int32_t> &lengths,
                         const std::vector<int32_t> &rows, Rng &rng) {
  std::normal_distribution<double> normal;
  TensorMap tensors;
  std::vector<int32_t> starts{0};
  int32_t maxPages = 1;
  for (size_t s = 0; s < lengths.size(); ++s) {
    starts.push_back(starts.back() + rows[s]);
    maxPages = std::max(maxPages, (lengths[s] + 15) / 16);
  }
  const auto sequences = static_cast<int64_t>(lengths.size());
  const int64_t pages = sequences * maxPages + 3;
  std::vector<int32_t> shuffled(static_cast<size_t>(pages));
  std::iota(shuffled.begin(), shuffled.end(), 0);
  std::shuffle(shuffled.begin(), shuffled.end(), rng);
  tensors["q"] = Tensor(m.dtype, {starts.back(), m.qHeads, m.keyDim});
  for (int64_t i = 0; i < tensors["q"].elements(); ++i)
    tensors["q"].set(i, normal(rng));
  tensors["q_start"] = Tensor::ofI32({sequences + 1}, starts);
  tensors["kv.lengths"] = Tensor::ofI32({sequences}, lengths);
  tensors["kv.block_table"] = Tensor(DType::I32, {sequences, maxPages});
  tensors["sink_logits"] = Tensor(DType::F32, {m.qHeads});
  for (int h = 0; h < m.qHeads; ++h)
    tensors["sink_logits"].set(h, normal(rng));
  for (const char *name : {"kv.k_pages", "kv.v_pages"}) {
    tensors[name] = Tensor(m.dtype, {pages, 16, m.kvHeads, m.keyDim});
    tensors[name].fill(std::nan(""));
  }
  const int64_t stride = m.kvHeads * m.keyDim;
  for (int64_t s = 0; s < sequences; ++s)
    for (int32_t t = 0; t < lengths[static_cast<size_t>(s)]; ++t) {
      const int32_t page = shuffled[static_cast<size_t>(s * maxPages + t / 16)];
      tensors["kv.block_table"].set(s * maxPages + t / 16, page);
      for (const char *name : {"kv.k_pages", "kv.v_pages"})
        for (int64_t i = 0; i < stride; ++i)
          tensors[name].set((page * 16 + t % 16) * stride + i, normal(rng));
    }
  return tensors;
}

struct Fixture {
  Manifest manifest;
  std::vector<host::HostKernel> kernels;
  std::unique_ptr<HostDevice> device = makeHostDevice();

  explicit Fixture(int32_t window) : Fixture(SampleOptions{.ends = {window}, .bigRows = 64}) {}
  explicit Fixture(const SampleOptions &options) : manifest(scalarManifest(options)) {
    kernels = scalarKernels(manifest);
  }
  Result<Session> session() { return Session::create(*device, manifest, {"scalar", {}, {}, kernels}); }
};

} // namespace attn::rt::test

#endif
