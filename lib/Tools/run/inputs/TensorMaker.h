//===- TensorMaker.h - Stores, tables and small tensors ---------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_TOOLS_RUN_INPUTS_TENSORMAKER_H
#define ATTN_TOOLS_RUN_INPUTS_TENSORMAKER_H

#include "Inputs.h"

namespace attn::run {

/// The instances of one KV argument: their lengths, positions and rows.
struct Instances {
  std::vector<int64_t> runs; ///< lengths of runs of contiguous tokens
  /// The runs of each instance, in order; a run may be in several instances. Empty: instance i is run i. Only
  /// a store with pages of one token can join runs of any length.
  std::vector<std::vector<int32_t>> paths;
  /// The heads of a ragged argument: runs are then of one head each, in turn, and so are paths.
  int64_t heads = 1;
  std::vector<int32_t> pos0;
  std::vector<int32_t>
      rows; ///< [first, last) of each instance; empty: the rows of the sequence of its number

  std::vector<int64_t> lengths() const; ///< [instances][heads]
  std::vector<int64_t> longest() const; ///< the largest length of a head in each instance
};

/// Makes the tensors of one problem, argument by argument. The caller decides what is attended; this class
/// decides how it lies in memory.
class TensorMaker {
public:
  TensorMaker(const Arguments &arguments, Dims &dims, uint64_t seed)
      : arguments(arguments), dims(dims), seed(seed) {}

  /// Adds the query with qStart [sequences + 1] and positions [rows].
  rt::Status addQuery(const std::vector<int32_t> &qStart, const std::vector<int32_t> &positions);
  /// Assigns heads to classes; comes first, for stores that hold the heads of one class.
  rt::Status addClasses();
  rt::Status addKV(const KVArgument &kv, const Instances &instances);
  /// KV heads in the store of an argument.
  int64_t headsOf(const KVArgument &kv) const {
    return kv.headClass < 0 ? kv.heads : classHeads[static_cast<size_t>(kv.headClass)];
  }
  /// Returns the positions where the instances of an argument start.
  rt::Tensor &pos0Of(const KVArgument &kv) { return tensors[kv.name + ".pos0"]; }
  /// Adds sink logits and tables of score regions. Sizes of named dimensions must be known by then.
  rt::Status addRest();
  /// Sets the size of a dimension that the file may name.
  void setSize(const std::string &name, int64_t size) { known[name] = size; }

  rt::TensorMap take() { return std::move(tensors); }

private:
  /// Finds a slot for every token and adds the tensors that record the slots (PlaceTokens.cpp).
  using Sizes = std::map<rt::StoreSize, int64_t>;
  Sizes placeTokens(const std::string &name, const rt::Store &store, const Instances &instances,
                    std::vector<int64_t> &slots);
  Sizes placeDense(const rt::Store &store, const Instances &instances, std::vector<int64_t> &slots);
  Sizes placePacked(const std::string &name, const rt::Store &store, const Instances &instances,
                    std::vector<int64_t> &slots);
  Sizes placePaged(const std::string &name, const rt::Store &store, const Instances &instances,
                   std::vector<int64_t> &slots);
  rt::Status addTokens(const std::string &name, const std::vector<int64_t> &shape, rt::Format format,
                       const std::vector<int64_t> &slots, int64_t line);
  void addMixed(const std::string &name, rt::Tensor tensor, const rt::StorePart &part,
                const std::vector<int64_t> &slots, int64_t heads);
  static std::vector<int64_t> linesOf(const rt::Store &store, const std::vector<int64_t> &slots);
  void addLines(const std::string &name, rt::Tensor tensor, const rt::StorePart &part,
                const std::vector<int64_t> &lines);
  void addScales(const std::string &name, rt::Tensor tensor, rt::Format format);
  rt::Status addOther(const TensorArgument &other);
  bool namesDimension(const std::string &name) const;

  const Arguments &arguments;
  Dims &dims;
  uint64_t seed;
  std::map<std::string, int64_t> known; ///< sizes of named dimensions so far
  std::vector<int64_t> classHeads;      ///< KV heads of each class
  rt::TensorMap tensors;
};

/// Returns the largest length; 0 if there are none: a ragged argument of a class without heads.
int64_t longestOf(const std::vector<int64_t> &lengths);
rt::Tensor i32Tensor(std::vector<int64_t> shape, const std::vector<int32_t> &values);

/// Checks that a tensor fits the machine's memory.
rt::Status checkMemory(const std::string &name, const std::vector<int64_t> &shape, rt::DType dtype);

} // namespace attn::run

#endif
