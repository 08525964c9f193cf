//===- BatchDefaults.cpp - Tables that a caller may leave out -------------===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#include "attn_rt/batch/Batch.h"
#include "attn_rt/batch/Visibility.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <optional>
#include <tuple>
#include <vector>

namespace attn::rt {

namespace {

/// The i32 tensor of this name and rank, or null. Its element count is not checked; batchFromTensors reports
/// errors.
const Tensor *findI32(const TensorMap &tensors, const std::string &name, size_t rank = 1) {
  auto found = tensors.find(name);
  if (found == tensors.end() || found->second.dtype != DType::I32 || found->second.shape.size() != rank)
    return nullptr;
  return &found->second;
}

/// The lengths: [instances], or [instances, heads] if ragged. Null if the data does not match the shape, of
/// which a file may claim any.
const Tensor *findLengths(const TensorMap &tensors, const Argument &argument) {
  const Tensor *lengths = findI32(tensors, argument.name + ".lengths", argument.ragged ? 2 : 1);
  return lengths && elementCount(lengths->shape) == std::ssize(lengths->as<int32_t>()) ? lengths : nullptr;
}

/// Bounds rows * heads: results are counted in 32 bits.
constexpr int64_t mostRows = std::numeric_limits<int32_t>::max();

/// The rows of q, or -1 if q is missing or malformed: a file may claim any number of rows without heads.
int64_t rowsOf(const Manifest &manifest, const TensorMap &tensors) {
  auto q = tensors.find("q");
  if (q == tensors.end() || q->second.shape.size() != 3 || q->second.shape[1] != manifest.qHeads ||
      q->second.shape[2] != manifest.keyDim || q->second.shape[0] > mostRows / manifest.qHeads ||
      (!q->second.bytes.empty() && elementCount(q->second.shape) != q->second.elements()))
    return -1;
  return q->second.shape[0];
}

int64_t instancesOf(const TensorMap &tensors, const Argument &argument) {
  const Tensor *lengths = findLengths(tensors, argument);
  if (!lengths)
    return -1;
  // With zero heads the tensor is empty, so its shape proves nothing: at most as many instances as sequences.
  const Tensor *qStart = findI32(tensors, "q_start");
  const int64_t instances = lengths->shape[0];
  const bool counted = lengths->elements() > 0 || instances == 0;
  return counted || (qStart && instances < qStart->elements()) ? instances : -1;
}

void addLengthsOfPacked(const Argument &argument, TensorMap &tensors) {
  const Tensor *start = findI32(tensors, argument.name + ".start");
  if (argument.store != Argument::Store::Packed || argument.ragged || !start || start->elements() == 0)
    return;
  const auto offsets = start->as<int32_t>();
  Tensor lengths(DType::I32, {std::ssize(offsets) - 1});
  for (size_t i = 1; i < offsets.size(); ++i)
    lengths.data<int32_t>()[i - 1] = static_cast<int32_t>(int64_t{offsets[i]} - offsets[i - 1]);
  tensors.emplace(argument.name + ".lengths", std::move(lengths));
}

/// Adds lengths of all tokens of every instance. It trusts at most as many instances as rows: a file may
/// claim any number.
void addLengthsOfDense(const Manifest &manifest, const Argument &argument, TensorMap &tensors) {
  auto keys = tensors.find(argument.name + ".k");
  if (argument.store != Argument::Store::Dense || argument.ragged || keys == tensors.end() ||
      keys->second.shape.size() != 4)
    return;
  const int64_t instances = keys->second.shape[0], tokens = keys->second.shape[1];
  if (instances > std::max<int64_t>(rowsOf(manifest, tensors), 0) || tokens > mostRows)
    return;
  const std::vector<int32_t> lengths(static_cast<size_t>(instances), static_cast<int32_t>(tokens));
  tensors.emplace(argument.name + ".lengths", Tensor::ofI32({instances}, lengths));
}

Status addRows(const Argument &argument, TensorMap &tensors) {
  const Tensor *qStart = findI32(tensors, "q_start");
  const int64_t instances = instancesOf(tensors, argument);
  if (!qStart || instances < 0)
    return {};
  if (instances != qStart->elements() - 1)
    return inputError("tensor '" + argument.name +
                      ".rows' is missing; it may be left out only with one instance per sequence: '" +
                      argument.name + ".lengths' has " + std::to_string(instances) +
                      " instances, 'q_start' " + std::to_string(qStart->elements() - 1) + " sequences");
  Tensor ranges(DType::I32, {instances, 2});
  int32_t *range = ranges.data<int32_t>();
  const auto offsets = qStart->as<int32_t>();
  for (size_t i = 1; i < offsets.size(); ++i) {
    *range++ = offsets[i - 1];
    *range++ = offsets[i];
  }
  tensors.emplace(argument.name + ".rows", std::move(ranges));
  return {};
}

/// The end position of each sequence. An instance is private when exactly the sequence's rows see it; its
/// longest head gives its end. A sequence ends where its last private instance ends or, without one, where
/// the last instance that all its rows see ends.
class SequenceEnds {
public:
  SequenceEnds(const Manifest &manifest, const TensorMap &tensors) {
    for (const Argument &argument : manifest.arguments)
      if (argument.role == Argument::Role::KV)
        add(argument, tensors);
    if (!std::is_sorted(instances.begin(), instances.end()))
      std::sort(instances.begin(), instances.end());
  }

  /// Sequences are asked for in order, so that the search goes on where the last one ended.
  int64_t of(int32_t first, int32_t last) {
    const Instance wanted{first, last, std::numeric_limits<int64_t>::max()};
    if (at > 0 && wanted < instances[at - 1]) // not in order, which is reported later
      at = static_cast<size_t>(std::upper_bound(instances.begin(), instances.end(), wanted) -
                               instances.begin());
    while (at < instances.size() && !(wanted < instances[at]))
      ++at;
    // Instances of the same rows are sorted by end: the last one ends last.
    if (at > 0)
      if (const auto &[from, to, end] = instances[at - 1]; from == first && to == last)
        return end;
    std::optional<int64_t> latest;
    for (const auto &[from, to, end] : instances)
      if (from <= first && to >= last)
        latest = std::max(latest.value_or(end), end);
    return latest.value_or(0);
  }

private:
  using Instance = std::tuple<int32_t, int32_t, int64_t>; ///< its rows, and the position of its end

  void add(const Argument &argument, const TensorMap &tensors) {
    const Tensor *lengths = findLengths(tensors, argument);
    const Tensor *pos0 = findI32(tensors, argument.name + ".pos0");
    const Tensor *rows = findI32(tensors, argument.name + ".rows", 2);
    if (!lengths || !pos0 || !rows || pos0->elements() != lengths->shape[0] ||
        rows->elements() != 2 * pos0->elements() || pos0->elements() == 0)
      return;
    const auto ofHeads = lengths->as<int32_t>(), starts = pos0->as<int32_t>(), ranges = rows->as<int32_t>();
    const size_t heads = ofHeads.size() / starts.size();
    instances.reserve(instances.size() + starts.size());
    for (size_t i = 0; i < starts.size(); ++i) {
      int64_t longest = 0;
      for (int32_t length : ofHeads.subspan(i * heads, heads))
        longest = std::max<int64_t>(longest, length);
      instances.emplace_back(ranges[2 * i], ranges[2 * i + 1], starts[i] + longest);
    }
  }

  std::vector<Instance> instances; ///< of all regions, sorted
  size_t at = 0;                   ///< the first of them after the rows asked for last
};

/// Whether a row at this negative position sees a token, in any region and class of heads. If it sees one, it
/// sees token 0.
bool seesFromInFront(const Manifest &manifest, int64_t position) {
  for (size_t o = 0; o < manifest.operands.size(); ++o)
    for (size_t c = 0; c < std::max<size_t>(manifest.headClasses.size(), 1); ++c)
      if (isVisible(manifest.visibilityOf(o, c), manifest.ends, position, 0))
        return true;
  return false;
}

Status addPositions(const Manifest &manifest, TensorMap &tensors) {
  const Tensor *qStart = findI32(tensors, "q_start");
  const int64_t rows = rowsOf(manifest, tensors);
  if (!qStart || rows < 0)
    return {};
  Tensor positions(DType::I32, {rows});
  const auto offsets = qStart->as<int32_t>();
  SequenceEnds ends(manifest, tensors);
  for (size_t s = 1; s < offsets.size(); ++s) {
    const int32_t first = offsets[s - 1], last = offsets[s];
    if (first < 0 || first >= last || last > rows)
      continue; // empty, or wrong and reported later
    const int64_t end = ends.of(first, last), before = last - first - end;
    if (end > 0 && before > 0 && !seesFromInFront(manifest, -before))
      return inputError(
          "'q': expected at most the " + std::to_string(end) + " tokens of sequence " +
          std::to_string(s - 1) + " as rows, which are its last positions, got " +
          std::to_string(last - first) + ", of which the first " + std::to_string(before) +
          " would see nothing; tensors are read as [rows, heads, dim], and 'q_pos' says it where "
          "rows of zeros are meant");
    for (int32_t row = first; row < last; ++row)
      positions.data<int32_t>()[row] = static_cast<int32_t>(positionOf<int64_t>(row, last, end));
  }
  tensors.emplace("q_pos", std::move(positions));
  return {};
}

} // namespace

Status addDefaults(const Manifest &manifest, TensorMap &tensors) {
  Status status;
  std::string named; // in the status
  const auto fail = [&](Status why, const std::string &name) {
    if (status)
      status = std::move(why), named = name;
  };
  for (const Argument &argument : manifest.arguments)
    if (argument.role == Argument::Role::KV && !tensors.count(argument.name + ".lengths")) {
      addLengthsOfPacked(argument, tensors);
      addLengthsOfDense(manifest, argument, tensors);
    }
  if (const int64_t rows = rowsOf(manifest, tensors); !tensors.count("q_start") && rows >= 0) {
    const Argument &argument = manifest.argumentOf(manifest.operands.front());
    if (const int64_t instances = instancesOf(tensors, argument); instances == rows) {
      Tensor offsets(DType::I32, {rows + 1});
      const auto values = offsets.as<int32_t>();
      std::iota(values.begin(), values.end(), 0);
      tensors.emplace("q_start", std::move(offsets));
    } else if (tensors.count(argument.name + ".lengths")) {
      fail(inputError(
               "tensor 'q_start' is missing; it may be left out only with one row per instance: 'q' has " +
               std::to_string(rows) + " rows, '" + argument.name + ".lengths' " +
               std::to_string(std::max<int64_t>(instances, 0)) + " instances"),
           "q_start");
    }
  }
  for (const Argument &argument : manifest.arguments) {
    if (argument.role != Argument::Role::KV)
      continue;
    const int64_t instances = instancesOf(tensors, argument);
    if (!tensors.count(argument.name + ".pos0") && instances >= 0 && manifest.operands.size() == 1)
      tensors.emplace(argument.name + ".pos0", Tensor(DType::I32, {instances}));
    if (!tensors.count(argument.name + ".rows"))
      if (Status s = addRows(argument, tensors); !s)
        fail(s, argument.name + ".rows");
  }
  if (!tensors.count("q_pos"))
    if (Status s = addPositions(manifest, tensors); !s)
      fail(s, "q_pos");
  if (status)
    return {};
  std::vector<std::string> others;
  for (const std::string &name : missingTensors(manifest, tensors))
    if (name != named)
      others.push_back(name);
  if (others.empty())
    return status;
  return inputError(status.error().message + "; missing besides: " + quotedNames(others));
}

} // namespace attn::rt
