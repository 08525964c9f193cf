//===- Batch.h - One problem's sizes, checked -------------------*- C++ -*-===//
// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What a plan is made from: rows, sequences, and for every operand its instances
// with lengths, positions and the rows that see them. Everything here lives on
// the host and is checked before anything is planned or launched; what passed
// cannot make a kernel leave its buffers.
//
//===----------------------------------------------------------------------===//
#ifndef ATTN_RT_BATCH_BATCH_H
#define ATTN_RT_BATCH_BATCH_H

#include "attn_rt/artifact/Artifact.h"
#include "attn_rt/batch/TokenRanges.h"

namespace attn::rt {

/// The instances of one operand of the attention.
struct OperandBatch {
  std::vector<int32_t> lengths;           ///< tokens of each instance; ragged: [instances][heads]
  std::vector<int32_t> pos0;              ///< position of its first token
  std::vector<int32_t> rowFirst, rowLast; ///< the rows [first, last) that see it
  int64_t pages = 0, maxPages = 0;        ///< paged: pages of the pool, columns of the table
  std::vector<int32_t> blockTable; ///< paged: [instances][maxPages]; ragged: [instances][heads][maxPages]
  int64_t tokens = 0;              ///< dense: capacity of an instance; packed: of all
  std::vector<int32_t> start;      ///< packed: [instances + 1]
  int32_t heads = 1; ///< of the store that have lengths and pages of their own: all where ragged, else 1

  size_t instances() const {
    return heads > 0 ? lengths.size() / static_cast<size_t>(heads) : rowFirst.size();
  }
  /// The list of tokens that a head has of an instance: an index into `lengths`, and a row of the table.
  /// `place` numbers the heads of the store.
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
  int64_t otherBytes = 0;       ///< of tensors that are no part of the above (sink logits, slopes, biases)
  std::vector<int32_t> classes; ///< [kv_heads], the class of each KV head; empty where all heads are alike

  size_t sequences() const { return qStart.size() - 1; }
};

/// The sizes of the dimensions that results have names for.
std::map<std::string, int32_t> resultSizes(const Manifest &manifest, const Batch &batch);

/// How many KV heads are in each class; all in one where the manifest has no classes.
std::vector<int32_t> classHeads(const Manifest &manifest, const Batch &batch);
/// "2 retrieval, 6 streaming"
std::string classHeadsText(const Manifest &manifest, std::span<const int32_t> heads);
/// KV heads, by their ordinals, that have the same work: those of a class or, where an operand that they see
/// is ragged, one of them.
struct OrdinalRange {
  int32_t headClass, begin, end;
  int32_t classBegin; ///< the first ordinal of the class
  int32_t head;       ///< the KV head of ordinal `begin`
  int32_t count() const { return end - begin; }
  /// Which of the heads of an argument's store ordinal `begin` reads.
  int32_t placeIn(const Argument &argument) const {
    return argument.headClass < 0 ? head : begin - classBegin;
  }
};
/// All ordinals, in order; no range is empty.
std::vector<OrdinalRange> ordinalRanges(const Manifest &manifest, const Batch &batch);

/// Plans speak of *ordinals*: the KV heads numbered class by class, in order within a class. This is the head
/// of each ordinal, the tensor `ordinal_heads` of the kernels.
std::vector<int32_t> ordinalHeads(const Manifest &manifest, const Batch &batch);

/// That every KV head has a class that is declared.
Status checkClasses(const Manifest &manifest, const std::vector<int32_t> &classes);

/// Everything of design's "bad input" that sizes and tables can break. Each error names the tensor, the
/// index, what was given and what is legal.
Status checkBatch(const Manifest &manifest, const Batch &batch);

/// A step later: each instance of the only operand, which is packed, has `tokens` tokens more, each row
/// stands so many further behind, and instances begin `apart` tokens apart. An error leaves the batch as it
/// was.
Status growBatch(const Manifest &manifest, Batch &batch, int32_t tokens, int64_t apart);

/// Adds the tensors that may be left out, where they are missing: q_start (one row per sequence), q_pos (the
/// last rows of each sequence), <arg>.pos0 (0, where there is one operand), <arg>.rows (one instance per
/// sequence) and <arg>.lengths of a packed store and, where all tokens of all instances are valid, of a dense
/// one. An error says why one cannot be made up, and names all that is missing.
Status addDefaults(const Manifest &manifest, TensorMap &tensors);

/// The names of the tensors that are missing, without those that addDefaults makes once the others are there.
std::vector<std::string> missingTensors(const Manifest &manifest, const TensorMap &tensors);
/// "'a', 'b'".
std::string quotedNames(const std::vector<std::string> &names);

/// Checks every tensor's presence, dtype and shape, and their contents with checkBatch. Tensors that may be
/// left out must be there: call addDefaults first. The data (queries, keys, values, what scores read) may be
/// without bytes: only its sizes matter here.
Result<Batch> batchFromTensors(const Manifest &manifest, const TensorMap &tensors);

} // namespace attn::rt

#endif
