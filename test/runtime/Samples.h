//===- Samples.h - Manifests that the tests share ---------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TEST_RUNTIME_SAMPLES_H
#define ATTN_TEST_RUNTIME_SAMPLES_H

#include "attn_rt/artifact/VisibilityTerms.h"
#include "attn_rt/batch/Batch.h"

namespace attn::rt::test {

inline Visibility visibility(Visibility::Kind kind, int end = -1) { return {kind, end, {}}; }
inline Visibility either(Visibility a, Visibility b) { return {Visibility::Kind::Or, -1, {a, b}}; }
inline Visibility both(Visibility a, Visibility b) { return {Visibility::Kind::And, -1, {a, b}}; }

/// DuoAttention's classes; the streaming heads' sizes are ends 0 and 1.
inline const std::vector<HeadClassInfo> duo = {
    {"retrieval", visibility(Visibility::Kind::All)},
    {"streaming", either(visibility(Visibility::Kind::Sink, 0), visibility(Visibility::Kind::Recent, 1))}};

struct SampleOptions {
  int qHeads = 8, kvHeads = 2, dim = 64;
  Argument::Store store = Argument::Store::Paged;
  int page = 16;
  Visibility visibility = {Visibility::Kind::Causal, -1, {}};
  std::vector<int32_t> ends = {};
  int operands = 1; ///< named "kv", "kv1", …; all but the first have visibility `all`
  bool sinkLogits = false;
  int bigRows = 128, keys = 64, keyAlign = 1;
  std::vector<HeadClassInfo> headClasses = {};
  bool apart = false;     ///< operand i is of head class i, and holds only its heads
  bool ragged = false;    ///< every operand is ragged
  bool tensorMap = false; ///< the attend kernels read "kv.k_pages" through "kv.k.map0"
};

/// Boxes of 8 tokens of one head in the keys of a paged store. Tokens of all pages are one dimension.
inline TensorMapInfo sampleTensorMap(const SampleOptions &options, DType dtype) {
  const auto size = static_cast<int64_t>(dtypeSize(dtype));
  return {"kv.k.map0",
          "kv.k_pages",
          dtype,
          {{options.dim, {}}, {options.page, {"kv.pages"}}, {options.kvHeads, {}}},
          {options.kvHeads * options.dim * size, options.dim * size},
          {},
          {static_cast<int32_t>(64 / size), 8, 1},
          64};
}

/// A manifest as the compiler would write it, with a decode, a prefill and a merge kernel.
inline Manifest sampleManifest(const SampleOptions &options = {}) {
  Manifest m;
  m.producer = "attn test";
  m.entry = "decode";
  m.target = "sm_80";
  m.schedule = "mma";
  m.problem = "func.func @decode";
  m.ptxVersion = 70;
  m.qHeads = options.qHeads;
  m.kvHeads = options.kvHeads;
  m.keyDim = m.valueDim = options.dim;
  m.scale = 0.125;
  m.results = {{"o", m.dtype, {{"rows", 0}, {"", m.qHeads}, {"", m.valueDim}}},
               {"lse", DType::F32, {{"rows", 0}, {"", m.qHeads}}}};
  m.sinkLogits = options.sinkLogits;
  m.ends = options.ends;
  m.contentHash = computeContentHash(m);
  Argument q;
  q.name = "q";
  q.role = Argument::Role::Query;
  q.dtype = m.dtype;
  q.dims = {{"rows", 0}, {"", m.qHeads}, {"", m.keyDim}};
  m.arguments.push_back(q);
  for (int i = 0; i < options.operands; ++i) {
    Argument kv;
    kv.name = i ? "kv" + std::to_string(i) : "kv";
    kv.role = Argument::Role::KV;
    kv.store = options.store;
    kv.page = options.store == Argument::Store::Paged ? options.page : 0;
    kv.kvHeads = options.apart ? 0 : m.kvHeads;
    kv.headClass = options.apart ? i : -1;
    kv.ragged = options.ragged;
    kv.keyDim = kv.valueDim = options.dim;
    m.arguments.push_back(kv);
    m.operands.push_back(
        {kv.name, i + 1, i && !options.apart ? visibility(Visibility::Kind::All) : options.visibility});
  }
  if (m.sinkLogits) {
    Argument sink;
    sink.name = "sink_logits";
    sink.role = Argument::Role::Sink;
    sink.dims = {{"", m.qHeads}};
    m.arguments.push_back(sink);
  }
  m.headClasses = options.headClasses;
  if (!m.headClasses.empty()) {
    Argument classes;
    classes.name = "classes";
    classes.role = Argument::Role::Classes;
    classes.dtype = DType::I32;
    classes.dims = {{"", m.kvHeads}};
    m.arguments.push_back(classes);
  }
  const auto buffer = [](std::string name) { return Parameter{Parameter::Kind::Buffer, std::move(name), 0}; };
  const auto attend = [&](int rows) {
    KernelInfo kernel;
    kernel.name = "decode_rows" + std::to_string(rows);
    kernel.rows = rows;
    kernel.keys = options.keys;
    kernel.keyAlign = options.keyAlign;
    kernel.warps = 4;
    kernel.threads = 128;
    kernel.sharedBytes = 65536;
    kernel.blocksPerSM = rows == 16 ? 2 : 1;
    kernel.params = {buffer("q"), buffer("q_pos"), buffer("o"), buffer("lse"), buffer("plan.tasks")};
    if (!m.headClasses.empty())
      kernel.params.push_back(buffer("ordinal_heads"));
    if (!m.ends.empty())
      kernel.params.push_back({Parameter::Kind::End, "", 0});
    kernel.params.push_back({Parameter::Kind::Scale, "", 0});
    if (options.tensorMap)
      kernel.params.push_back({Parameter::Kind::Map, "kv.k.map0", 0});
    return kernel;
  };
  for (int rows : {16, options.bigRows})
    m.addKernel(attend(rows), {.grid = PlanArray::Starts});
  if (options.tensorMap)
    m.tensorMaps.push_back(sampleTensorMap(options, m.dtype));
  KernelInfo merge;
  merge.name = "decode_merge";
  merge.role = KernelInfo::Role::Merge;
  merge.rowsPerWarp = 1;
  merge.blocksPerSM = 5;
  merge.threads = 128;
  merge.warps = 4;
  merge.params = {buffer("plan.merge_start"), buffer("partial.o"), {Parameter::Kind::Dim, "rows", 0}};
  m.addKernel(merge, {.grid = PlanArray::MergeRows, .onlyIfFilled = true, .overlapsPrevious = true});
  return m;
}

/// One instance of operand 0 for each sequence, with these lengths and numbers of rows, and default
/// positions. Tables are left out: a planner does not read them.
inline Batch simpleBatch(const std::vector<int32_t> &lengths, const std::vector<int32_t> &rows) {
  Batch batch;
  batch.qStart = {0};
  OperandBatch operand;
  for (size_t s = 0; s < lengths.size(); ++s) {
    for (int32_t r = 0; r < rows[s]; ++r)
      batch.qPos.push_back(lengths[s] - rows[s] + r);
    operand.lengths.push_back(lengths[s]);
    operand.pos0.push_back(0);
    operand.rowFirst.push_back(batch.qStart.back());
    batch.qStart.push_back(batch.qStart.back() + rows[s]);
    operand.rowLast.push_back(batch.qStart.back());
  }
  batch.rows = batch.qStart.back();
  batch.operands.push_back(std::move(operand));
  return batch;
}

/// A manifest as the compiler would write it for an operation on a cache of 2 heads of 64 and 32 features, in
/// pages of 16 or packed.
inline Manifest cacheManifest(KernelInfo::Role role, Argument::Store store = Argument::Store::Paged) {
  using Role = KernelInfo::Role;
  Manifest m;
  m.producer = "attn test";
  m.entry = role == Role::Append ? "append" : role == Role::Move ? "move" : "gather";
  m.target = "sm_80";
  m.schedule = "copy";
  m.problem = "func.func @" + m.entry;
  m.ptxVersion = 70;
  m.qHeads = m.kvHeads = 2;
  m.keyDim = 64;
  m.valueDim = 32;
  m.contentHash = computeContentHash(m);
  Argument kv;
  kv.name = "kv";
  kv.role = Argument::Role::KV;
  kv.store = store;
  kv.page = store == Argument::Store::Paged ? 16 : 0;
  kv.kvHeads = 2;
  kv.keyDim = 64;
  kv.valueDim = 32;
  m.arguments.push_back(kv);
  KernelInfo kernel;
  kernel.name = m.entry;
  kernel.role = role;
  kernel.warps = 4;
  kernel.threads = 128;
  kernel.blocksPerSM = 4;
  kernel.rowsPerWarp = 8;
  kernel.pieces = 2;
  const auto buffer = [&](std::string name) { kernel.params.push_back({Parameter::Kind::Buffer, name, 0}); };
  const auto dim = [&](std::string name) { kernel.params.push_back({Parameter::Kind::Dim, name, 0}); };
  const auto list = [&](std::string name) {
    Argument slots;
    slots.name = name;
    slots.role = Argument::Role::Slots;
    slots.dtype = DType::I32;
    slots.dims = {{"rows", 0}};
    m.arguments.push_back(slots);
    buffer(name);
  };
  buffer("row_count");
  for (const char *name : {"k", "v"}) {
    if (role == Role::Move)
      continue;
    buffer(name);
    Argument rows;
    rows.name = name;
    rows.role = Argument::Role::Rows;
    rows.dtype = DType::BF16;
    rows.dims = {{"layers", 0}, {"rows", 0}, {"", 2}, {"", *name == 'k' ? 64 : 32}};
    if (role == Role::Append)
      m.arguments.push_back(rows);
    else
      m.results.push_back({rows.name, rows.dtype, rows.dims});
  }
  const std::string pages = store == Argument::Store::Paged ? "_pages" : "";
  buffer("kv.k" + pages);
  buffer("kv.v" + pages);
  list(role == Role::Move ? "from" : "slots");
  if (role == Role::Move)
    list("to");
  dim("layers");
  if (role != Role::Move) {
    dim("k.layer");
    dim("v.layer");
  }
  dim("kv.k_layer");
  dim("kv.v_layer");
  m.addKernel(std::move(kernel), {});
  return m;
}

} // namespace attn::rt::test

#endif
