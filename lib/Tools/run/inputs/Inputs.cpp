//===- Inputs.cpp - Tensors for a batch of sequences ----------------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "Inputs.h"

#include "TensorMaker.h"

#include <algorithm>
#include <numeric>
#include <span>

using namespace attn;
using namespace attn::run;

namespace {

/// Generates one problem; later arguments build on the members.
class Sequences {
public:
  Sequences(const Arguments &arguments, Dims &dims, uint64_t seed)
      : arguments(arguments), dims(dims), seed(seed), maker(arguments, dims, seed) {}

  rt::Result<rt::TensorMap> run() {
    auto batchSize = dims.one("batch", 4);
    if (!batchSize)
      return batchSize.error();
    batch = *batchSize;
    if (batch < 1 || batch > 1 << 20)
      return rt::inputError("--dim batch expects 1 to 1048576 sequences, got " + std::to_string(batch));
    maker.setSize("batch", batch);
    std::vector<int64_t> queryLengths = dims.many("q_len", batch, 1, seed);
    maker.setSize("q_len", *std::max_element(queryLengths.begin(), queryLengths.end()));
    if (!arguments.query.dims.empty())
      if (const std::string &rows = arguments.query.dims.front();
          dims.has(rows) && rows != "batch" && rows != "q_len")
        return rt::inputError("--dim " + rows + " follows from batch and q_len: give those");
    int64_t rows = std::accumulate(queryLengths.begin(), queryLengths.end(), int64_t(0));
    if (rt::Status status = checkMemory("q", {rows, arguments.query.shape[1], arguments.query.shape[2]},
                                        arguments.query.dtype);
        !status)
      return status.error();
    start.resize(batch + 1);
    std::partial_sum(queryLengths.begin(), queryLengths.end(), start.begin() + 1);
    if (rt::Status status = maker.addClasses(); !status)
      return status.error();
    ends.assign(arguments.classes ? std::max<size_t>(arguments.classes->names.size(), 1) : 1,
                std::vector<int64_t>(batch));
    for (const KVArgument &kv : arguments.kv)
      if (rt::Status status = addKV(kv); !status)
        return status.error();

    std::vector<int64_t> end(batch);
    for (const std::vector<int64_t> &ofClass : ends)
      for (int64_t s = 0; s < batch; ++s)
        end[s] = std::max(end[s], ofClass[s]);
    for (size_t c = 0; c < ends.size(); ++c)
      if (rt::Status status = alignEnd(static_cast<int>(c), end); !status)
        return status.error();
    std::vector<int32_t> positions;
    for (int64_t s = 0; s < batch; ++s)
      for (int64_t r = 0; r < queryLengths[s]; ++r)
        positions.push_back(static_cast<int32_t>(end[s] - queryLengths[s] + r));
    if (rt::Status status = maker.addQuery({start.begin(), start.end()}, positions); !status)
      return status.error();
    if (rt::Status status = maker.addRest(); !status)
      return status.error();
    return maker.take();
  }

private:
  rt::Status addKV(const KVArgument &kv) {
    int64_t count = batch;
    if (kv.instancesDim != "batch") {
      auto instances = dims.one(kv.instancesDim, 1);
      if (!instances)
        return instances.error();
      count = *instances;
      if (count < 1 || count > batch)
        return rt::inputError("--dim " + kv.instancesDim + " expects 1 to " + std::to_string(batch) +
                              " instances for a batch of " + std::to_string(batch) + ", got " +
                              std::to_string(count));
    }
    Instances instances;
    instances.heads = kv.ragged ? maker.headsOf(kv) : 1;
    instances.runs = dims.many(kv.tokensDim, count * instances.heads, 512, seed);
    instances.pos0.resize(count);
    const std::vector<int64_t> lengths = instances.longest();
    maker.setSize(kv.instancesDim, count);
    maker.setSize(kv.tokensDim, *std::max_element(lengths.begin(), lengths.end()));

    // Its tokens follow those of the earlier arguments that the same heads see.
    const auto firstClass = ends.begin() + std::max(kv.headClass, 0);
    const bool seenByAll = kv.headClass < 0 && kv.heads > 0;
    const std::span seenBy(firstClass, seenByAll ? ends.end() : firstClass + (kv.headClass >= 0));
    std::vector<int32_t> rows;
    for (int64_t i = 0; i < count; ++i) {
      int32_t &pos0 = instances.pos0[i];
      const auto [first, s] = membersOf(i, count);
      for (const std::vector<int64_t> &end : seenBy)
        pos0 = static_cast<int32_t>(
            std::max<int64_t>(pos0, *std::max_element(end.begin() + first, end.begin() + s)));
      for (std::vector<int64_t> &end : seenBy)
        for (int64_t member = first; member < s; ++member) {
          if (end[member] != pos0)
            return rt::inputError("'" + kv.name + "' is shared by sequences " +
                                  (seenByAll && ends.size() > 1 ? "or head classes " : "") +
                                  "whose tokens before it differ in number; "
                                  "put shared arguments first, or share the earlier ones alike");
          end[member] = pos0 + lengths[i];
        }
      rows.push_back(static_cast<int32_t>(start[first]));
      rows.push_back(static_cast<int32_t>(start[s]));
    }
    if (kv.instancesDim != "batch")
      instances.rows = std::move(rows);
    return maker.addKV(kv, instances);
  }

  /// Returns the sequences that see an instance: s sees s * count / batch.
  std::pair<int64_t, int64_t> membersOf(int64_t instance, int64_t count) const {
    auto first = [&](int64_t i) { return (i * batch + count - 1) / count; };
    return {first(instance), first(instance + 1)};
  }

  /// Aligns a class: if it keeps fewer tokens, it keeps the last, so its last argument ends where the
  /// sequence does.
  rt::Status alignEnd(int headClass, const std::vector<int64_t> &end) {
    const KVArgument *last = nullptr;
    for (const KVArgument &kv : arguments.kv)
      if (kv.headClass == headClass)
        last = &kv;
    if (!last)
      return {};
    rt::Tensor &pos0 = maker.pos0Of(*last);
    const std::vector<int64_t> &own = ends[headClass];
    for (int64_t i = 0; i < pos0.elements(); ++i) {
      const auto [first, behind] = membersOf(i, pos0.elements());
      for (int64_t member = first; member < behind; ++member)
        if (end[member] - own[member] != end[first] - own[first])
          return rt::inputError("'" + last->name +
                                "' is shared by sequences of which other heads see different numbers of "
                                "tokens; give it an instance for each sequence");
      pos0.data<int32_t>()[i] += static_cast<int32_t>(end[first] - own[first]);
    }
    return {};
  }

  const Arguments &arguments;
  Dims &dims;
  uint64_t seed;
  TensorMaker maker;
  int64_t batch = 0;
  std::vector<int64_t> start; ///< first row of each sequence, and the end
  /// By class (one without classes): position after the last token so far of each sequence.
  std::vector<std::vector<int64_t>> ends;
};

/// Returns the names of the tensors that the arguments expand into, in the order of the manifest.
std::vector<std::string> tensorNames(const Arguments &arguments) {
  std::vector<std::string> names = {"q", "q_start", "q_pos"};
  for (const KVArgument &kv : arguments.kv) {
    const rt::Store store = kv.layout(kv.heads);
    for (const auto &tensors : {store.data(), store.tables()})
      for (const rt::StoreTensor &tensor : tensors)
        names.push_back(kv.name + "." + tensor.name);
  }
  for (const TensorArgument &other : arguments.others)
    names.push_back(other.name);
  if (arguments.classes)
    names.push_back("classes");
  return names;
}

/// Returns every dimension that --dim can set.
std::vector<std::string> dimensionNames(const Arguments &arguments) {
  std::vector<std::string> names = {"batch", "q_len"};
  auto add = [&](const std::string &name) {
    if (std::find(names.begin(), names.end(), name) == names.end())
      names.push_back(name);
  };
  for (const KVArgument &kv : arguments.kv) {
    add(kv.instancesDim);
    add(kv.tokensDim);
  }
  for (const TensorArgument &other : arguments.others)
    for (const std::string &name : other.dims)
      add(name);
  if (arguments.classes)
    for (const std::string &name : arguments.classes->names)
      add(name);
  return names;
}

std::string joined(const std::vector<std::string> &names) {
  std::string text;
  for (const std::string &name : names)
    text += (text.empty() ? "" : ", ") + name;
  return text;
}

} // namespace

rt::Result<rt::TensorMap> run::generateInputs(const Arguments &arguments, Dims &dims, uint64_t seed) {
  auto tensors = Sequences(arguments, dims, seed).run();
  if (tensors)
    if (auto unused = dims.unused(); !unused.empty())
      return rt::inputError("--dim " + unused.front() + ": this problem has no such dimension; it has: " +
                            joined(dimensionNames(arguments)));
  return tensors;
}

rt::Status run::checkNames(const Arguments &arguments, const rt::TensorMap &tensors) {
  std::vector<std::string> names = tensorNames(arguments);
  for (const auto &[name, tensor] : tensors)
    if (std::find(names.begin(), names.end(), name) == names.end())
      return rt::inputError("tensor '" + name + "' belongs to no argument; expected: " + joined(names));
  return {};
}
