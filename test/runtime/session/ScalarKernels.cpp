//===- ScalarKernels.cpp - The plan's meaning, in plain C++ ---------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "ScalarKernels.h"
#include "attn_rt/batch/Visibility.h"
#include "attn_rt/host/Abi.h"

#include <cmath>
#include <gtest/gtest.h>
#include <limits>

namespace attn::rt::test {

namespace {

// The shape that the kernels are "compiled" for.
constexpr int qHeads = 8, kvHeads = 2, dim = 16, page = 16, keys = 64, group = qHeads / kvHeads;
constexpr float negativeInfinity = -std::numeric_limits<float>::infinity();

template <typename T> T *buffer(void **args, int i) { return *static_cast<T **>(args[i]); }
template <typename T> T scalar(void **args, int i) { return *static_cast<T *>(args[i]); }

struct Row {
  float best = negativeInfinity, sum = 0, out[dim] = {};
  void add(float score, const float *value) {
    const float next = std::max(best, score), keep = best == negativeInfinity ? 0 : std::exp(best - next);
    const float weight = std::exp(score - next);
    best = next;
    sum = sum * keep + weight;
    for (int d = 0; d < dim; ++d)
      out[d] = out[d] * keep + (value ? weight * value[d] : 0);
  }
};

// Parameters in the order of scalarManifest.
enum {
  Q,
  QPos,
  O,
  Lse,
  BlockTasks,
  Tasks,
  Segments,
  PartialO,
  PartialLse,
  K,
  V,
  Table,
  Sinks,
  MaxPages,
  End0,
  Scale,
  OrdinalHeads, ///< these two where heads have classes
  End1
};

template <bool classes> void attend(host::LaneAbi *lane, void **args) {
  if (lane->special[host::TidX] != 0)
    return;
  const int32_t *blocks = buffer<int32_t>(args, BlockTasks);
  const float scale = scalar<float>(args, Scale);
  const uint32_t block = lane->special[host::CtaidX];
  for (int32_t t = blocks[block]; t < blocks[block + 1]; ++t) {
    const PlanTask &task = buffer<PlanTask>(args, Tasks)[t];
    const int32_t kvHead = classes ? buffer<int32_t>(args, OrdinalHeads)[task.ordinal] : task.ordinal;
    const int32_t wide = scalar<int32_t>(args, End0);
    const int32_t window =
        classes && task.headClass == 1 ? std::min(wide, scalar<int32_t>(args, End1)) : wide;
    for (int32_t r = 0; r < task.packedCount; ++r) {
      const int32_t packed = task.packedBegin + r, row = packed / group;
      const int32_t head = kvHead * group + packed % group;
      const float *q = buffer<float>(args, Q) + (row * qHeads + head) * dim;
      Row state;
      if (task.flags & taskHasSink)
        state.add(buffer<float>(args, Sinks)[head], nullptr);
      for (int32_t s = task.segmentBegin; s < task.segmentEnd; ++s) {
        const PlanSegment &segment = buffer<PlanSegment>(args, Segments)[s];
        for (int32_t tile = segment.kvBegin; tile < segment.kvEnd; tile += keys)
          for (int32_t token = tile; token < std::min(tile + keys, segment.kvEnd); ++token) {
            const bool full = segment.fullBegin <= tile && tile + keys <= segment.fullEnd;
            const int32_t distance = buffer<int32_t>(args, QPos)[row] - (segment.pos0 + token);
            if (!full && (distance < 0 || distance >= window))
              continue;
            const int32_t slot =
                buffer<int32_t>(args,
                                Table)[segment.instance * scalar<int32_t>(args, MaxPages) + token / page] *
                    page +
                token % page;
            const int64_t offset = (int64_t{slot} * kvHeads + kvHead) * dim;
            float score = 0;
            for (int d = 0; d < dim; ++d)
              score += q[d] * buffer<float>(args, K)[offset + d];
            state.add(score * scale, buffer<float>(args, V) + offset);
          }
      }
      const int64_t output = task.partial < 0 ? int64_t{row} * qHeads + head : task.partial + r;
      float *o = buffer<float>(args, task.partial < 0 ? O : PartialO) + output * dim;
      for (int d = 0; d < dim; ++d)
        o[d] = state.sum > 0 ? state.out[d] / state.sum : 0;
      buffer<float>(args, task.partial < 0 ? Lse : PartialLse)[output] =
          state.sum > 0 ? state.best + std::log(state.sum) : negativeInfinity;
    }
  }
}

enum {
  MergeO,
  MergeLse,
  MergeStart,
  MergeRows,
  MergePartials,
  MergePartialO,
  MergePartialLse,
  MergeOrdinalHeads
};

template <bool classes> void merge(host::LaneAbi *lane, void **args) {
  if (lane->special[host::TidX] != 0)
    return;
  const int32_t count = *buffer<int32_t>(args, MergeStart);
  for (auto i = static_cast<int32_t>(lane->special[host::CtaidX]); i < count;
       i += static_cast<int32_t>(lane->special[host::NctaidX])) {
    Row state;
    const int32_t *start = buffer<int32_t>(args, MergeStart) + 1;
    for (int32_t p = start[i]; p < start[i + 1]; ++p) {
      const int64_t partial = buffer<int32_t>(args, MergePartials)[p];
      if (buffer<float>(args, MergePartialLse)[partial] != negativeInfinity)
        state.add(buffer<float>(args, MergePartialLse)[partial],
                  buffer<float>(args, MergePartialO) + partial * dim);
    }
    int64_t output = buffer<int32_t>(args, MergeRows)[i];
    if (classes) {
      const int64_t ordinal = output % qHeads / group;
      output += (buffer<int32_t>(args, MergeOrdinalHeads)[ordinal] - ordinal) * group;
    }
    for (int d = 0; d < dim; ++d)
      buffer<float>(args, MergeO)[output * dim + d] = state.sum > 0 ? state.out[d] / state.sum : 0;
    buffer<float>(args, MergeLse)[output] =
        state.sum > 0 ? state.best + std::log(state.sum) : negativeInfinity;
  }
}

} // namespace

Manifest scalarManifest(const SampleOptions &given) {
  SampleOptions options = given;
  options.qHeads = qHeads;
  options.kvHeads = kvHeads;
  options.dim = dim;
  options.page = page;
  options.keys = keys;
  options.visibility = visibility(Visibility::Kind::Window, 0);
  options.sinkLogits = true;
  Manifest m = sampleManifest(options);
  m.dtype = DType::F32;
  for (ResultInfo &result : m.results)
    result.dtype = DType::F32;
  for (Argument &argument : m.arguments)
    if (argument.role != Argument::Role::Classes) {
      argument.dtype = DType::F32;
      argument.keyFormat = argument.valueFormat = Format::plain(DType::F32);
    }
  std::vector<Parameter> params, mergeParams;
  for (const char *name :
       {"q", "q_pos", "o", "lse", "plan.block_tasks", "plan.tasks", "plan.segments", "partial.o",
        "partial.lse", "kv.k_pages", "kv.v_pages", "kv.block_table", "sink_logits"})
    params.push_back({Parameter::Kind::Buffer, name, 0});
  params.push_back({Parameter::Kind::Dim, "kv.max_pages", 0});
  params.push_back({Parameter::Kind::End, "", 0});
  params.push_back({Parameter::Kind::Scale, "", 0});
  for (const char *name :
       {"o", "lse", "plan.merge_start", "plan.merge_rows", "plan.merge_partials", "partial.o", "partial.lse"})
    mergeParams.push_back({Parameter::Kind::Buffer, name, 0});
  if (!m.headClasses.empty()) {
    params.push_back({Parameter::Kind::Buffer, "ordinal_heads", 0});
    params.push_back({Parameter::Kind::End, "", 1});
    mergeParams.push_back({Parameter::Kind::Buffer, "ordinal_heads", 0});
  }
  for (KernelInfo &kernel : m.kernels) {
    kernel.params = kernel.role == KernelInfo::Role::Attend ? params : mergeParams;
    kernel.sharedBytes = 0;
    kernel.threads = 32;
  }
  return m;
}

std::vector<host::HostKernel> scalarKernels(const Manifest &manifest) {
  std::vector<host::HostKernel> kernels;
  for (const KernelInfo &info : manifest.kernels) {
    host::HostKernel kernel;
    kernel.name = info.name;
    for (const Parameter &param : info.params)
      kernel.parameterBytes.push_back(param.kind == Parameter::Kind::Buffer ? 8 : 4);
    const bool classes = !manifest.headClasses.empty(), attends = info.role == KernelInfo::Role::Attend;
    kernel.entry =
        attends ? (classes ? attend<true> : attend<false>) : (classes ? merge<true> : merge<false>);
    kernels.push_back(std::move(kernel));
  }
  return kernels;
}

TensorMap attendReference(const Manifest &m, const Batch &batch, const TensorMap &tensors) {
  const std::vector<int32_t> &ends = batch.ends.empty() ? m.ends : batch.ends;
  const OperandBatch &kv = batch.operands[0];
  TensorMap out;
  out["o"] = Tensor(DType::F32, {batch.rows, m.qHeads, m.valueDim});
  out["lse"] = Tensor(DType::F32, {batch.rows, m.qHeads});
  const auto read = [&](const char *name, int64_t i) { return tensors.at(name).get(i); };
  for (int64_t row = 0; row < batch.rows; ++row)
    for (int h = 0; h < m.qHeads; ++h) {
      const int64_t output = row * m.qHeads + h;
      const auto headClass =
          static_cast<size_t>(m.headClasses.empty() ? 0 : batch.classes[static_cast<size_t>(h / group)]);
      double sum = std::exp(read("sink_logits", h));
      std::vector<double> o(static_cast<size_t>(m.valueDim));
      for (size_t i = 0; i < kv.instances(); ++i)
        for (int64_t t = 0; t < kv.lengths[i]; ++t) {
          if (row < kv.rowFirst[i] || row >= kv.rowLast[i] ||
              !isVisible(m.visibilityOf(0, headClass), ends, batch.qPos[static_cast<size_t>(row)],
                         kv.pos0[i] + t))
            continue;
          const int64_t slot =
              int64_t{kv.blockTable[i * static_cast<size_t>(kv.maxPages) + static_cast<size_t>(t / page)]} *
                  page +
              t % page;
          const int64_t at = (slot * m.kvHeads + h / group) * dim;
          double score = 0;
          for (int d = 0; d < dim; ++d)
            score += read("q", output * dim + d) * read("kv.k_pages", at + d);
          const double weight = std::exp(score * m.scale);
          sum += weight;
          for (int d = 0; d < dim; ++d)
            o[static_cast<size_t>(d)] += weight * read("kv.v_pages", at + d);
        }
      out["lse"].set(output, std::log(sum));
      for (int d = 0; d < dim; ++d)
        out["o"].set(output * dim + d, o[static_cast<size_t>(d)] / sum);
    }
  return out;
}

void expectClose(const TensorMap &got, const TensorMap &expected) {
  for (const char *name : {"o", "lse"}) {
    const std::vector<double> a = got.at(name).toDoubles(), b = expected.at(name).toDoubles();
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i)
      ASSERT_NEAR(a[i], b[i], 2e-5) << name << " " << i;
  }
}

} // namespace attn::rt::test
