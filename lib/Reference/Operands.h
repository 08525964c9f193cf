//===- Operands.h - The tensors of a problem --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_LIB_REFERENCE_OPERANDS_H
#define ATTN_LIB_REFERENCE_OPERANDS_H

#include "attn/Dialect/Attn/IR/Signature.h"
#include "attn/Dialect/Attn/IR/Stores.h"
#include "attn_rt/tensor/Tensor.h"

namespace mlir::attn::reference {

namespace rt = ::attn::rt;

/// One KV region: its instances, and where their tokens are.
struct KVRegion {
  std::string name;
  KVType type;
  VisibilityAttr visibility;
  rt::Store store; ///< of `heads` heads
  /// Keys or values, and the metadata of formats that have some: by line, and shared by a head or all.
  struct Part {
    rt::StorePart stored;
    const rt::Tensor *codes = nullptr, *meta = nullptr, *shared = nullptr;
    std::optional<rt::RowDecoder> decoder; ///< none where the numbers themselves are given, in f64
  };
  Part keys, values;
  std::vector<int32_t> pos0, rowFirst, rowLast; ///< per instance
  std::vector<int32_t> lengths;                 ///< [instances], or [instances, heads] where ragged
  const rt::Tensor *table = nullptr;            ///< that says where tokens lie: block_table, start
  int64_t heads = 0;                            ///< in the store
  std::vector<int64_t> headPlaces; ///< which of those a KV head is; -1: none, it does not see the region

  size_t instances() const { return pos0.size(); }
  /// Of `place`, one of the heads in the store.
  int64_t length(size_t instance, int64_t place) const { return lengths[listOf(instance, place)]; }
  /// The most tokens that a head has of an instance.
  int64_t longest(size_t instance) const;

  /// The slot of token t of an instance.
  int64_t slot(size_t instance, int64_t place, int64_t token) const;
  /// Which row of keys or values one head of a slot is.
  int64_t lineOf(int64_t slot, int64_t place) const;
  /// The numbers of that row.
  void read(const Part &part, int64_t slot, int64_t place, std::span<double> out) const;
  /// That every token of every instance lies inside the tensors of keys and values.
  rt::Status checkTokens() const;

private:
  rt::StoreNumbers numbers(int64_t place) const;
  /// The heads of an instance share one list of tokens, or each has its own.
  size_t listOf(size_t instance, int64_t place) const {
    return type.getRagged() ? instance * size_t(heads) + size_t(place) : instance;
  }
};

/// A tensor that the score region reads.
struct Table {
  std::string name;
  std::vector<int64_t> shape;
  std::vector<double> numbers;
};

/// Everything that an attention reads, checked.
struct Operands {
  AttendOp attend;
  int64_t rows = 0, queryHeads = 0, keyHeads = 0, keyDim = 0, valueDim = 0;
  std::vector<double> query; ///< [rows, query heads, key dim]
  std::vector<double> sinks; ///< of each query head; empty where there are none
  std::vector<int32_t> queryPositions, queryStarts;
  std::vector<VisibilityAttr> seen; ///< what the class of each KV head sees; null: whatever the regions show
  std::vector<KVRegion> regions;
  /// What the score region reads, by the number of the function's argument.
  std::map<unsigned, Table> tables;

  std::span<const double> queryOf(int64_t row, int64_t head) const {
    return std::span(query).subspan((row * queryHeads + head) * keyDim, keyDim);
  }
};

/// Of the function's attention, or, where there are two, of the one over the `first` region alone.
rt::Result<Operands> readOperands(func::FuncOp func, const rt::TensorMap &tensors, bool first = false);

} // namespace mlir::attn::reference

#endif
