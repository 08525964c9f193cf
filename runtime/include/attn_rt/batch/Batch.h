//===- Batch.h - One problem's sizes, checked -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// A plan is made from a batch: rows, sequences and, for every operand, instances
// with their lengths, their positions and the rows that see them. Everything here
// lives on the host and is checked before anything is planned or launched: no batch
// that passed the checks makes a kernel leave its buffers.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_BATCH_BATCH_H
#define ATTN_RT_BATCH_BATCH_H

#include "attn_rt/artifact/Artifact.h"
#include "attn_rt/batch/TokenRanges.h"

namespace attn::rt {

/// The instances of one operand of the attention.
struct OperandBatch {
  std::vector<int32_t> lengths;           ///< tokens of each instance; ragged: [instances, heads]
  std::vector<int32_t> pos0;              ///< position of each instance's first token
  std::vector<int32_t> rowFirst, rowLast; ///< the rows [first, last) that see each instance
  int64_t pages = 0, maxPages = 0;        ///< paged: pages of the pool, columns of the block table
  std::vector<int32_t> blockTable; ///< paged: [instances, maxPages]; ragged: [instances, heads, maxPages]
  int64_t tokens = 0;              ///< dense: capacity of an instance; packed: tokens of all instances
  std::vector<int32_t> start;      ///< packed: [instances + 1]
  int32_t heads = 1; ///< heads of the store with lengths and pages of their own: all if ragged, else 1

  size_t instances() const {
    return heads > 0 ? lengths.size() / static_cast<size_t>(heads) : rowFirst.size();
  }
  /// The index of the list of tokens that a head has of an instance: into `lengths`, and of its row of the
  /// block table. `place` is the head's index in the store.
  size_t listOf(size_t instance, int32_t place) const {
    return heads == 1 ? instance
                      : listOfHead(instance, static_cast<size_t>(heads), static_cast<size_t>(place));
  }
  int32_t length(size_t instance, int32_t place) const { return lengths[listOf(instance, place)]; }
  /// The most tokens that a head has of an instance.
  int32_t longest(size_t instance) const;
};

struct Batch {
  int64_t rows = 0;
  std::vector<int32_t> qStart;        ///< [sequences + 1]
  std::vector<int32_t> qPos;          ///< [rows]
  std::vector<OperandBatch> operands; ///< as in Manifest::operands
  std::vector<int32_t> ends;          ///< sizes of windows and sinks; empty: as compiled (Manifest::ends)
  int64_t otherBytes = 0;             ///< bytes of all other tensors: sink logits, slopes, biases
  std::vector<int32_t> classes;       ///< [kv_heads], the class of each KV head; empty: all heads are alike

  size_t sequences() const { return qStart.size() - 1; }
};

/// The sizes of the named dimensions of results.
std::map<std::string, int32_t> resultSizes(const Manifest &manifest, const Batch &batch);

/// The number of KV heads in each class. Without classes, all heads are in one.
std::vector<int32_t> classHeads(const Manifest &manifest, const Batch &batch);
/// The counts as text: "2 retrieval, 6 streaming".
std::string classHeadsText(const Manifest &manifest, std::span<const int32_t> heads);
/// A range of ordinals whose KV heads have the same work: the heads of a class or, if an operand that they
/// see is ragged, one head.
struct OrdinalRange {
  int32_t headClass, begin, end;
  int32_t classBegin; ///< the first ordinal of the class
  int32_t head;       ///< the KV head of ordinal `begin`
  int32_t count() const { return end - begin; }
  /// The index, in the store of an argument, of the head that ordinal `begin` reads.
  int32_t placeIn(const Argument &argument) const {
    return argument.headClass < 0 ? head : begin - classBegin;
  }
};
/// All ordinals, in order; no range is empty.
std::vector<OrdinalRange> ordinalRanges(const Manifest &manifest, const Batch &batch);

/// The KV head of each ordinal, the tensor `ordinal_heads` of the kernels. Plans count heads by *ordinals*:
/// class by class, in order within a class.
std::vector<int32_t> ordinalHeads(const Manifest &manifest, const Batch &batch);

/// Checks that every KV head has a declared class.
Status checkClasses(const Manifest &manifest, const std::vector<int32_t> &classes);

/// Checks all sizes and tables of a batch. Each error names the tensor, the index, the value given and the
/// legal values.
Status checkBatch(const Manifest &manifest, const Batch &batch);

/// Advances a batch by one step. The only operand must be packed: each of its instances gains `tokens`
/// tokens, each row moves as many positions on, and instances begin `apart` tokens apart. An error leaves the
/// batch unchanged.
Status growBatch(const Manifest &manifest, Batch &batch, int32_t tokens, int64_t apart);

/// Adds the optional tensors that are missing. An error says why a tensor has no default, and names all that
/// are missing.
/// - q_start: one row per sequence
/// - q_pos: the last rows of each sequence
/// - <arg>.pos0: 0, if the attention has one operand
/// - <arg>.rows: one instance per sequence
/// - <arg>.lengths of a packed store and, if every token of every instance is valid, of a dense store
Status addDefaults(const Manifest &manifest, TensorMap &tensors);

/// The names of the missing tensors, without those that addDefaults makes once these are given.
std::vector<std::string> missingTensors(const Manifest &manifest, const TensorMap &tensors);
/// The names as text: "'a', 'b'".
std::string quotedNames(const std::vector<std::string> &names);

/// Makes a batch of tensors: checks the presence, dtype and shape of each, and the contents with checkBatch.
/// Optional tensors must be present: call addDefaults first. Tensors of data (queries, keys, values, tensors
/// that scores read) may have no bytes: only their sizes are read.
Result<Batch> batchFromTensors(const Manifest &manifest, const TensorMap &tensors);
/// Makes a batch of tensors and the contents of tables that `tensors` only describes: large tables need no
/// copy in between.
using TableContents = std::map<std::string, std::span<const int32_t>>;
Result<Batch> batchFromTensors(const Manifest &manifest, const TensorMap &tensors,
                               const TableContents &contents);

} // namespace attn::rt

#endif
