//===- Operands.h - The tensors of a problem --------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
#ifndef ATTN_LIB_REFERENCE_OPERANDS_H
#define ATTN_LIB_REFERENCE_OPERANDS_H

#include "attn/Dialect/Attn/IR/Signature.h"
#include "attn/Dialect/Attn/IR/Stores.h"
#include "attn_rt/tensor/Tensor.h"

namespace mlir::attn::reference {

namespace rt = ::attn::rt;

/// A KV region: its instances, and the positions of their tokens in memory.
struct KVRegion {
  std::string name;
  KVType type;
  VisibilityAttr visibility;
  rt::Store store; ///< with `heads` heads
  /// Keys or values, and the metadata of their format, if any: by line, and shared by a head or by all.
  struct Part {
    rt::StorePart stored;
    const rt::Tensor *codes = nullptr, *meta = nullptr, *shared = nullptr;
    std::optional<rt::RowDecoder> decoder; ///< none if the values themselves are given, in f64
  };
  Part keys, values;
  std::vector<int32_t> pos0, rowFirst, rowLast; ///< per instance
  std::vector<int32_t> lengths;                 ///< [instances], or [instances, heads] if ragged
  const rt::Tensor *table = nullptr;            ///< the store's table: block_table, start
  int64_t heads = 0;                            ///< heads in the store
  std::vector<int64_t> headPlaces; ///< index of a KV head in the store; -1: it does not see the region

  size_t instances() const { return pos0.size(); }
  /// Returns the length for `place`, the index of a head in the store.
  int64_t length(size_t instance, int64_t place) const { return lengths[listOf(instance, place)]; }
  /// Returns the largest length of a head in an instance.
  int64_t longest(size_t instance) const;

  /// Returns the slot of token t of an instance.
  int64_t slot(size_t instance, int64_t place, int64_t token) const;
  /// Returns the row of keys or values of one head of a slot.
  int64_t lineOf(int64_t slot, int64_t place) const;
  /// Reads the values of that row.
  void read(const Part &part, int64_t slot, int64_t place, std::span<double> out) const;
  /// Checks that every token of every instance lies inside the tensors of keys and values.
  rt::Status checkTokens() const;

private:
  rt::StoreNumbers numbers(int64_t place) const;
  /// Returns the index of the list of tokens, which all heads of an instance share, or which each has for
  /// itself.
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

/// All checked inputs of an attention.
struct Operands {
  AttendOp attend;
  int64_t rows = 0, queryHeads = 0, keyHeads = 0, keyDim = 0, valueDim = 0;
  std::vector<double> query; ///< [rows, query heads, key dim]
  std::vector<double> sinks; ///< per query head; empty without sinks
  std::vector<double> gate;  ///< [rows, query heads, value dim or 1]; empty without a gate
  std::optional<double> outputScale;
  std::vector<int32_t> queryPositions, queryStarts;
  std::vector<VisibilityAttr> seen; ///< visibility of the class of each KV head; null: the regions' own
  std::vector<KVRegion> regions;
  /// Tensors that the score region reads, by the number of the function's argument.
  std::map<unsigned, Table> tables;

  std::span<const double> queryOf(int64_t row, int64_t head) const {
    return std::span(query).subspan((row * queryHeads + head) * keyDim, keyDim);
  }
};

/// Reads the operands of the function's attention; of two attentions, with `first`, of the one over the first
/// region.
rt::Result<Operands> readOperands(func::FuncOp func, const rt::TensorMap &tensors, bool first = false);

} // namespace mlir::attn::reference

#endif
